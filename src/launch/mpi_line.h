/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of mpirun, generated whole: nothing of Open MPI's choices is left to
 * its defaults where they are known to fail.
 *
 *     one host         no ssh, shared memory
 *     several hosts    daemons over ssh, addresses of the chosen network only, that
 *                      network for out-of-band and data alike, fixed ports, keepalives
 *     Slurm            the same, but Slurm starts the daemons, hosts go by their names
 *
 * Each host runs its own program path and gets its own variables, so there is one
 * application context for each. Only variables that are
 * needed travel: those that pin a layer to the network.
 *
 * Known for Open MPI 4.1; another major version is refused.
 */
#ifndef TD_LAUNCH_MPI_LINE_H
#define TD_LAUNCH_MPI_LINE_H

#include "fabric/cluster.h"
#include "launch/argv.h"

#include <stdbool.h>

struct td_mpi_job {
    const char *mpirun;               /* its path */
    const struct td_cluster *cluster; /* hosts[0] is this one; none: this one alone */
    int ranks;                        /* a multiple of the number of hosts */
    const char *ssh;                  /* the ssh command; NULL: "ssh" */
    bool slurm;                       /* inside an allocation of Slurm's */
    bool root;                        /* the user is root */
    bool tagged;                      /* lines of output begin with [1,RANK]<stdout>: */
    char *const *command;   /* program and arguments; on other hosts the program of the
                              cluster's facts, where it is known */
    const char *const *env; /* names of variables that ranks get as they are here,
                               ended by NULL; unset ones are left out */
};

/* Appends the words to `a`. */
enum td_status td_mpi_line(const struct td_mpi_job *job, struct td_argv *a,
                           struct td_error *err);

/* The host (index) that runs a rank. */
int td_mpi_host_of(const struct td_mpi_job *job, int rank);

/* Looks for mpirun in a list of folders such as $PATH and writes its path; TD_E_NO_MPI
 * when there is none. */
enum td_status td_mpi_find(const char *folders, char *out, size_t size,
                           struct td_error *err);

/* Finds mpirun in $PATH, runs it once, and judges its version. */
enum td_status td_mpi_probe(char *out, size_t size, struct td_error *err);

/* Judges what `mpirun --version` prints: TD_OK for 4.1, TD_E_NO_MPI for all else. */
enum td_status td_mpi_version(const char *text, struct td_error *err);

#endif

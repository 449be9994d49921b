/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ranks for a verb that computes: which machines, which network, which mpirun,
 * found before anything is started. `--tp N` alone means N ranks on this machine;
 * `--hosts a,b` one rank on each machine, or N / machines with `--tp N`.
 *
 *     struct td_cmd_job job = {0};
 *     if (td_cmd_job_wanted(conf))
 *         st = td_cmd_job_open(&job, conf, model, err);
 *     ... job.mpi describes how mpirun starts them ...
 *     td_cmd_job_close(&job);
 */
#ifndef TD_CMD_JOB_H
#define TD_CMD_JOB_H

#include "base/conf.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "launch/argv.h"
#include "launch/hosts.h"
#include "launch/mpi_line.h"
#include "launch/watch.h"

struct td_cmd_job {
    struct td_cluster cluster;
    struct td_mpi_job mpi;
    struct td_watch_limits limits;
    char mpirun[TD_MAX_PATH];
    char model[TD_MAX_PATH]; /* absolute: it has to mean the same everywhere */
};

/* Is more than one rank asked for? Not when this process is a rank itself. */
bool td_cmd_job_wanted(const struct td_conf *conf);

/* How many hosts and ranks are asked for, and do these divide over those, and the model
 * over these? Nothing is started. Errors: those of td_hosts_count(), td_spread_divide()
 * and td_split_check(). */
enum td_status td_cmd_job_count(const struct td_conf *conf,
                                const struct td_config *config, int *hosts, int *ranks,
                                struct td_error *err);

/* Finds mpirun, joins the hosts, chooses the network. Takes seconds. Errors: those of
 * td_config_read() and td_cmd_job_count(), before anything is started; of td_mpi_probe()
 * and td_cluster_join(); TD_E_HOSTS. */
enum td_status td_cmd_job_open(struct td_cmd_job *job, const struct td_conf *conf,
                               const char *model, struct td_error *err);

/* Several hosts: does the model fit, by what they said? `engine` is what rank 0 will open;
 * what this process takes it has taken. Of ranks on GPUs only the weights are looked at;
 * they plan for themselves. Errors: those of td_spread_make(). */
enum td_status td_cmd_job_plan(const struct td_cmd_job *job,
                               const struct td_engine_params *engine,
                               struct td_error *err);

/* Before ranks are started again on the hosts of a job: is each there, with the same model
 * and a right clock, and does the plan still fit? A few seconds at most; the network stays
 * the one that was chosen. Errors: those of td_cluster_join() and td_cmd_job_plan(). */
enum td_status td_cmd_job_recheck(const struct td_cmd_job *job,
                                  const struct td_engine_params *engine,
                                  struct td_error *err);
void td_cmd_job_close(struct td_cmd_job *job);

/* Appends this program, a verb, the model, and all options that `verb` takes as they were
 * given to us in whatever way (flag, variable, file); those that say where ranks run
 * become --world. `job` NULL: one rank, the model as it was given. */
void td_cmd_job_command(const struct td_cmd_job *job, const struct td_conf *conf,
                        const char *name, unsigned verb, const char *model,
                        struct td_argv *out);

/* For the supervisor: a rank was killed; asks its host. */
void td_cmd_job_examine(const struct td_cmd_job *job, int rank,
                        const struct td_watch_rank *r, struct td_error *err);

/* Runs a verb that works in a terminal (`run`, `bench`) on all ranks: its name, its bit,
 * its options and arguments as this process has them; `engine` is what it will open.
 * Returns the verb's exit status. */
int td_cmd_job_run(const struct td_conf *conf, const char *name, unsigned verb,
                   const struct td_engine_params *engine, struct td_error *err);

/* Prints the lines that tell about the network, "fabric  a 1.2.3.4  <->  ...". */
void td_cmd_job_print(const struct td_cmd_job *job);

#endif

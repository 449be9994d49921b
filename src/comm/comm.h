/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between the ranks of one model, behind one table.
 *
 *     self      one rank; everything is a no-op
 *     threads   several ranks in one process, for tests
 *     mpi       one process for each rank, on one host or several
 *
 * After an all-reduce all ranks hold equal bits: sums run in the order of the ranks, in
 * f32, so that they are also the same under `threads` and `mpi`. Every call of a
 * collective is made by all ranks in the same order, from one thread at a time. A wait
 * that lasts longer than the deadline ends in TD_E_TIMEOUT naming the rank and host that
 * are missing; after any failure the communicator is unusable.
 */
#ifndef TD_COMM_COMM_H
#define TD_COMM_COMM_H

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct td_comm;

struct td_comm_ops {
    const char *name;
    /* x[n] becomes the sum over all ranks. */
    enum td_status (*all_reduce)(struct td_comm *c, float *x, size_t n,
                                 struct td_error *err);
    /* Every rank gives `bytes` bytes; on rank 0, out[ranks][bytes] receives them. */
    enum td_status (*gather)(struct td_comm *c, const void *in, size_t bytes, void *out,
                             struct td_error *err);
    /* p[bytes] of rank 0 goes to all others. */
    enum td_status (*broadcast)(struct td_comm *c, void *p, size_t bytes,
                                struct td_error *err);
    enum td_status (*barrier)(struct td_comm *c, struct td_error *err);
    /* This rank gives up: the others' calls fail. With `mpi` it is the end of this
     * process that they notice: free() will not wait for them. */
    void (*abort)(struct td_comm *c);
    void (*free)(struct td_comm *c);
};

/* What collectives took, in all; differences tell what a step took. */
struct td_comm_counts {
    int64_t calls, bytes; /* all-reduces, and what they summed up */
    double seconds;       /* in all-reduces */
    double waited;        /* of these, for other ranks */
};

struct td_comm {
    const struct td_comm_ops *ops;
    int rank, ranks;
    int local_rank, local_ranks; /* among the ranks of this host */
    double deadline;             /* seconds; may be changed between calls */
    struct td_comm_counts counts;
    /* Rises with every collective, and with whatever else shows that this rank is
     * getting on; watched by another thread. */
    atomic_ullong progress;
    const char (
        *hosts)[TD_ERROR_HOST_MAX]; /* [ranks] names, or NULL: all on this one */
};

/* The communicator of a lone rank; static, never freed. */
struct td_comm *td_comm_self(void);

/* Makes communicators for `ranks` threads of this process: out[0 .. ranks), each to be
 * freed by its thread; waits give up after `deadline` seconds. */
enum td_status td_comm_threads(int ranks, double deadline, struct td_comm **out,
                               struct td_error *err);

/* Joins the ranks that mpirun has started; every process calls it. Open MPI is loaded
 * now, from libtandem-mpi.so: TD_E_NOT_FOUND without it, TD_E_PEER when MPI knows of
 * another number of ranks than `ranks` or does not start. */
enum td_status td_comm_mpi(int ranks, double deadline, struct td_comm **out,
                           struct td_error *err);

/* The name of a rank's host; "this host" where it goes without saying. */
const char *td_comm_host(const struct td_comm *c, int rank);

/* The smallest over all ranks of each of n values, on every rank. n is at most 16. */
enum td_status td_comm_min(struct td_comm *c, int64_t *values, size_t n,
                           struct td_error *err);

#endif

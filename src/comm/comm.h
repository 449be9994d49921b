/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between the ranks of one model, behind one table.
 *
 *     self      one rank; everything is a no-op
 *     threads   several ranks in one process, for tests
 *
 * After an all-reduce all ranks hold equal bits: sums run in the order of the ranks, in
 * f32. Every call of a collective is made by all ranks in the same order. A wait that
 * lasts longer than the deadline ends in TD_E_TIMEOUT naming the rank that is missing;
 * after any failure the communicator is unusable.
 */
#ifndef TD_COMM_COMM_H
#define TD_COMM_COMM_H

#include "base/status.h"

#include <stddef.h>

struct td_comm;

struct td_comm_ops {
    const char *name;
    /* x[n] becomes the sum over all ranks. */
    enum td_status (*all_reduce)(struct td_comm *c, float *x, size_t n,
                                 struct td_error *err);
    enum td_status (*barrier)(struct td_comm *c, struct td_error *err);
    void (*free)(struct td_comm *c);
};

struct td_comm {
    const struct td_comm_ops *ops;
    int rank, ranks;
};

/* The communicator of a lone rank; static, never freed. */
struct td_comm *td_comm_self(void);

/* Makes communicators for `ranks` threads of this process: out[0 .. ranks), each to be
 * freed by its thread; waits give up after `deadline` seconds. */
enum td_status td_comm_threads(int ranks, double deadline, struct td_comm **out,
                               struct td_error *err);

#endif

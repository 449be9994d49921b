/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank: nothing to exchange.
 */
#include "comm/comm.h"

static enum td_status self_all_reduce(struct td_comm *c, float *x, size_t n,
                                      struct td_error *err)
{
    (void)c;
    (void)x;
    (void)n;
    (void)err;
    return TD_OK;
}

static enum td_status self_barrier(struct td_comm *c, struct td_error *err)
{
    (void)c;
    (void)err;
    return TD_OK;
}

static void self_free(struct td_comm *c)
{
    (void)c;
}

struct td_comm *td_comm_self(void)
{
    static const struct td_comm_ops ops = {
        .name = "self",
        .all_reduce = self_all_reduce,
        .barrier = self_barrier,
        .free = self_free,
    };
    static struct td_comm self = {.ops = &ops, .rank = 0, .ranks = 1};
    return &self;
}

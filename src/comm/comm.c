/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is made of the collectives of comm.h, the same for all implementations.
 */
#include "comm/comm.h"

#include "base/limits.h"

#include <string.h>

enum { MAX_VALUES = 16 };

const char *td_comm_host(const struct td_comm *c, int rank)
{
    return c->hosts ? c->hosts[rank] : "this host";
}

enum td_status td_comm_min(struct td_comm *c, int64_t *values, size_t n,
                           struct td_error *err)
{
    int64_t all[TD_MAX_RANKS][MAX_VALUES], own[MAX_VALUES] = {0};
    if (n > MAX_VALUES || c->ranks > TD_MAX_RANKS)
        return td_error_set(err, TD_E_INTERNAL, "a minimum of %zu values over %d ranks",
                            n, c->ranks);
    memcpy(own, values, n * sizeof(*own));
    enum td_status s = c->ops->gather(c, own, sizeof(own), all, err);
    for (int r = 0; r < c->ranks && s == TD_OK && c->rank == 0; r++)
        for (size_t i = 0; i < n; i++)
            own[i] = TD_MIN(own[i], all[r][i]);
    if (s == TD_OK)
        s = c->ops->broadcast(c, own, sizeof(own), err);
    if (s == TD_OK)
        memcpy(values, own, n * sizeof(*own));
    return s;
}

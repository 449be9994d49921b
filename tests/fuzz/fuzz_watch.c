/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as mpirun's output, line by line; the first byte of a line says which stream it
 * comes from and how much time has passed.
 */
#include "launch/watch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void ignore(void *self, int rank, const char *line, size_t n)
{
    (void)self;
    (void)line;
    if (rank < -1 || rank > 1 || n == 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct td_cluster_host hosts[2] = {
        {.address = "192.168.200.12", .label = "a"},
        {.address = "192.168.200.13", .label = "b"}};
    static const struct td_cluster cluster = {.n = 2, .hosts = hosts};
    static const struct td_mpi_job job = {.cluster = &cluster, .ranks = 2};
    struct td_watch_params p = {
        .job = &job, .limits = {10, 1.5, 4, 300}, .event = ignore, .words = ignore};
    struct td_watch *w = NULL;
    struct td_error err;
    const char *at = (const char *)data, *end = at + n;
    double now = 1;
    int killed;
    if (td_watch_new(&p, &w, NULL) != TD_OK)
        return 0;
    td_watch_start(w, now);
    td_error_init(&err);
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = stop ? (size_t)(stop - at) : (size_t)(end - at);
        if (len > 1 && (*at & 1))
            td_watch_out(w, at + 1, len - 1, now);
        else if (len > 1)
            td_watch_err(w, at + 1, len - 1);
        now += len ? (double)((*at >> 1) & 7) / 4 : 0;
        (void)td_watch_late(w, now, &err);
        at += len + (stop != NULL);
    }
    td_error_init(&err);
    td_watch_cause(w, 137 << 8, "", &err, &killed);
    if (err.code == TD_OK || killed < -1 || killed > 1)
        abort();
    td_watch_free(w);
    return 0;
}

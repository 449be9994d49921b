/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the all-reduce between the ranks that mpirun has started.
 *
 *     mpirun -np 2 --bind-to none bench_comm RANKS
 *
 * For each size: the median time of a call on rank 0, in microseconds. The results are
 * compared over the ranks; a difference ends in exit status 1.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20, ROUNDS = 400 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The sum of the bits of x, equal on all ranks or not. */
static enum td_status compare(struct td_comm *c, const float *x, size_t n,
                              struct td_error *err)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        sum = sum * 31 + bits;
    }
    int64_t both[2] = {(int64_t)(sum >> 1), -(int64_t)(sum >> 1)};
    enum td_status s = td_comm_min(c, both, 2, err);
    if (s == TD_OK && both[0] != -both[1])
        s = td_error_set(err, TD_E_INTERNAL, "ranks have different sums");
    return s;
}

static enum td_status measure(struct td_comm *c, size_t n, float *x,
                              struct td_error *err)
{
    static double times[ROUNDS];
    enum td_status s = TD_OK;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i + 1) / (float)(7 + c->rank);
    for (int i = 0; i < ROUNDS && s == TD_OK; i++) {
        double start = td_clock_now();
        s = c->ops->all_reduce(c, x, n, err);
        times[i] = (td_clock_now() - start) * 1e6;
        for (size_t k = 0; k < n && i + 1 < ROUNDS; k++)
            x[k] /= (float)c->ranks;
    }
    if (s == TD_OK)
        s = compare(c, x, n, err);
    qsort(times, ROUNDS, sizeof(*times), by_value);
    if (s == TD_OK && c->rank == 0)
        printf("%9zu bytes %9.1f us\n", n * sizeof(*x), times[ROUNDS / 2]);
    return s;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1, 512, 1536, 3072, 6144, 12288, 24576, 65536, MOST};
    struct td_comm *c;
    struct td_error err;
    float *x = td_calloc(MOST, sizeof(*x));
    td_error_init(&err);
    if (argc != 2 || !x) {
        (void)fputs("usage: mpirun -np N bench_comm N\n", stderr);
        return 2;
    }
    enum td_status s = td_comm_mpi((int)strtol(argv[1], NULL, 10), 30, &c, &err);
    bool open = s == TD_OK;
    for (size_t i = 0; i < TD_COUNT(sizes) && s == TD_OK; i++)
        s = measure(c, sizes[i], x, &err);
    if (s != TD_OK)
        (void)fprintf(stderr, "bench_comm: %s: %s\n", err.what, err.why);
    if (open)
        c->ops->free(c);
    td_free(x);
    return s != TD_OK;
}

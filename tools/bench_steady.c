/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes one sequence for some seconds and says how fast, how evenly, and with how much
 * processor time; for measuring beside other programs (bench/share.sh).
 *
 *     bench_steady MODEL [SECONDS [THREADS]]
 *
 * Prints: tokens per second, median and 99th percentile of a step in microseconds,
 * processor seconds used for each second that passed.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CONTEXT = 256, MOST_STEPS = 1 << 18 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cpu_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Steps from the beginning of the context to its end, again and again. */
static int decode(struct td_engine *e, double seconds, double *step,
                  struct td_error *err)
{
    int32_t id = 1, n = 0, blocks[CONTEXT / TD_KV_BLOCK];
    for (int32_t i = 0; i < CONTEXT / TD_KV_BLOCK; i++)
        blocks[i] = i;
    double start = td_clock_now(), cpu = cpu_seconds(), now = start;
    for (; now - start < seconds && n < MOST_STEPS; n++) {
        struct td_seq_rows rows = {.ids = &id,
                                   .n = 1,
                                   .start = n % CONTEXT,
                                   .decode = n % CONTEXT > 0,
                                   .blocks = blocks,
                                   .n_blocks = CONTEXT / TD_KV_BLOCK,
                                   .n_out = 1};
        if (td_engine_forward(e, &rows, 1, err) != TD_OK)
            return 1;
        step[n] = td_clock_now() - now;
        now += step[n];
    }
    cpu = cpu_seconds() - cpu;
    qsort(step, (size_t)n, sizeof(*step), by_value);
    printf("%.0f tokens/s, median %.0f us, p99 %.0f us, %.2f processors\n",
           n / (now - start), step[n / 2] * 1e6, step[n * 99 / 100] * 1e6,
           cpu / (now - start));
    return 0;
}

int main(int argc, char **argv)
{
    struct td_error err;
    struct td_engine *e = NULL;
    struct td_engine_params p = {
        .numerics = TD_NUM_BF16, .device = "cpu", .max_len = CONTEXT};
    td_error_init(&err);
    if (argc < 2 || argc > 4) {
        (void)fputs("usage: bench_steady MODEL [SECONDS [THREADS]]\n", stderr);
        return 2;
    }
    p.model = argv[1];
    p.threads = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 0;
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 5;
    double *step = td_calloc(MOST_STEPS, sizeof(*step));
    int failed = !step || td_engine_open(&p, &e, &err) != TD_OK ||
                 decode(e, seconds, step, &err) != 0;
    if (failed)
        (void)fprintf(stderr, "bench_steady: %s: %s\n", err.what, err.why);
    td_engine_close(e);
    td_free(step);
    return failed;
}

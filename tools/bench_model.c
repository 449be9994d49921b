/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times a model's steps, without sampling: prompts whole, and generated tokens at several
 * batch sizes behind prompts of 512 tokens.
 *
 *     bench_model [--device auto|cpu|cuda[:N]] [--prompt N] [--weights random] MODEL
 *
 * Each line is the median of its steps.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQS = 32, CONTEXT = 512, STEPS = 20, ROWS = 2048, LONGEST = 32768 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof(*x), by_value);
    return x[n / 2];
}

/* Numbers of the caches and tokens of all steps. */
struct bench {
    struct td_engine *engine;
    struct td_engine_info info;
    int32_t ids[LONGEST], blocks[SEQS][LONGEST / TD_KV_BLOCK], per_seq;
};

static double step(struct bench *b, const struct td_seq_rows *rows, int32_t n)
{
    struct td_error err;
    double start = td_clock_now();
    td_error_init(&err);
    if (td_engine_forward(b->engine, rows, n, &err) != TD_OK) {
        (void)fprintf(stderr, "bench_model: %s: %s\n", err.what, err.why);
        exit(1);
    }
    return td_clock_now() - start;
}

static struct td_seq_rows rows_of(const struct bench *b, int32_t seq, int32_t start,
                                  int32_t n, bool decode)
{
    return (struct td_seq_rows){.ids = b->ids + start,
                                .n = n,
                                .start = start,
                                .decode = decode,
                                .slot = seq,
                                .blocks = b->blocks[seq],
                                .n_blocks = b->per_seq,
                                .n_out = decode || n < ROWS};
}

static double prompt(struct bench *b, int32_t seq, int32_t n)
{
    double sum = 0;
    for (int32_t at = 0; at < n; at += b->info.max_rows) {
        struct td_seq_rows rows =
            rows_of(b, seq, at, TD_MIN(b->info.max_rows, n - at), false);
        sum += step(b, &rows, 1);
    }
    return sum;
}

static void time_prompt(struct bench *b, int32_t n)
{
    double x[3];
    (void)prompt(b, 0, n);
    for (size_t i = 0; i < TD_COUNT(x); i++)
        x[i] = prompt(b, 0, n);
    double s = median(x, TD_COUNT(x));
    printf("prompt of %5d tokens: %8.2f ms, %8.0f tokens/s\n", n, s * 1e3, n / s);
}

static void time_decode(struct bench *b, int32_t seqs)
{
    struct td_seq_rows rows[SEQS];
    double x[STEPS];
    for (int32_t t = -2; t < STEPS; t++) {
        for (int32_t i = 0; i < seqs; i++)
            rows[i] = rows_of(b, i, CONTEXT + t + 2, 1, true);
        double s = step(b, rows, seqs);
        if (t >= 0)
            x[t] = s;
    }
    double s = median(x, STEPS);
    printf("step of %2d sequences:  %8.3f ms, %8.1f tokens/s\n", seqs, s * 1e3,
           seqs / s);
}

static int run(struct bench *b, const struct td_engine_params *p, int32_t longest)
{
    struct td_error err;
    td_error_init(&err);
    if (td_engine_open(p, &b->engine, &err) != TD_OK) {
        (void)fprintf(stderr, "bench_model: %s: %s; %s\n", err.what, err.why, err.fix);
        return 1;
    }
    td_engine_info(b->engine, &b->info);
    printf("%s on %s, %.2f GiB used, weights read in %.1f s\n", p->model, b->info.level,
           (double)b->info.used / 1073741824.0, b->info.load.seconds);
    b->per_seq = b->info.n_blocks / SEQS;
    for (int32_t i = 0; i < LONGEST; i++)
        b->ids[i] = (int32_t)(i * 2654435761U % (uint32_t)b->info.config->vocab);
    for (int32_t i = 0; i < SEQS; i++)
        for (int32_t k = 0; k < b->per_seq; k++)
            b->blocks[i][k] = i * b->per_seq + k;
    for (int32_t i = 0; i < SEQS; i++)
        (void)prompt(b, i, CONTEXT);
    for (int32_t seqs = 1; seqs <= SEQS; seqs *= 2)
        time_decode(b, seqs);
    for (int32_t n = CONTEXT; n <= longest; n *= 4)
        time_prompt(b, n);
    td_engine_close(b->engine);
    return 0;
}

int main(int argc, char **argv)
{
    struct td_engine_params p = {
        .numerics = TD_NUM_BF16, .max_seqs = SEQS, .max_rows = ROWS};
    int32_t longest = 8192;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            p.device = argv[++i];
        else if (strcmp(argv[i], "--prompt") == 0 && i + 1 < argc)
            longest = (int32_t)strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--weights") == 0 && i + 1 < argc)
            p.random = strcmp(argv[++i], "random") == 0;
        else
            p.model = argv[i];
    }
    if (!p.model || longest < CONTEXT || longest > LONGEST - TD_CHUNK) {
        (void)fputs("usage: bench_model [--device NAME] [--prompt N] "
                    "[--weights random] MODEL\n",
                    stderr);
        return 2;
    }
    p.max_len = longest + TD_CHUNK;
    struct bench *b = td_calloc(1, sizeof(*b));
    int code = b ? run(b, &p, longest) : 1;
    td_free(b);
    return code;
}

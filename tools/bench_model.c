/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times a model's steps, without sampling: prompts whole, and generated tokens at several
 * batch sizes behind prompts of 512 tokens.
 *
 *     bench_model [--device auto|cpu|cuda[:N]] [--batch N,N] [--prompt N,N]
 *                 [--context N] [--rows N] [--steps N] [--weights random] [--graphs off]
 *                 MODEL
 *
 * Each line is the median of its steps. --rows is the largest piece of a prompt,
 * --context what lies behind a generated token; lists may be empty (--batch "").
 */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SEQS = 256,
    MAX_STEPS = 200,
    MAX_POINTS = 16,
    LONGEST = 1 << 17,
    APART = 97
};

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

struct list {
    int32_t n, v[MAX_POINTS];
};

/* What to measure, numbers of the caches, and tokens of all steps. */
struct bench {
    struct list batch, prompt;
    int32_t context, steps, seqs;
    struct td_engine *engine;
    struct td_engine_info info;
    int32_t ids[LONGEST + MAX_SEQS * APART], blocks[MAX_SEQS][LONGEST / TD_KV_BLOCK],
        per_seq;
};

static void fail(const struct td_error *err)
{
    (void)fprintf(stderr, "bench_model: %s: %s\n", err->what, err->why);
    exit(1);
}

static double step(struct bench *b, const struct td_seq_rows *rows, int32_t n)
{
    struct td_error err;
    double start = td_clock_now();
    td_error_init(&err);
    if (td_engine_forward(b->engine, rows, n, &err) != TD_OK)
        fail(&err);
    return td_clock_now() - start;
}

static struct td_seq_rows rows_of(const struct bench *b, int32_t seq, int32_t start,
                                  int32_t n, bool decode)
{
    return (struct td_seq_rows){.ids = b->ids + start + seq * APART,
                                .n = n,
                                .start = start,
                                .decode = decode,
                                .slot = seq,
                                .blocks = b->blocks[seq],
                                .n_blocks = b->per_seq,
                                .n_out = decode || n < b->info.max_rows};
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
    size_t runs = (size_t)TD_MIN(b->steps, 3);
    (void)prompt(b, 0, n);
    for (size_t i = 0; i < runs; i++)
        x[i] = prompt(b, 0, n);
    double s = median(x, runs);
    printf("prompt of %5d tokens: %8.2f ms, %8.0f tokens/s\n", n, s * 1e3, n / s);
}

/* A step's time when nobody waits for it before the next one is asked for: what is left
 * of the other time is the device's wait for the processor. */
static double back_to_back(struct bench *b, const struct td_seq_rows *rows, int32_t n)
{
    struct td_error err;
    struct td_dev *dev = td_engine_device(b->engine);
    double start = td_clock_now();
    td_error_init(&err);
    for (int32_t t = 0; t < b->steps; t++)
        if (td_model_forward(td_engine_model(b->engine), td_engine_cache(b->engine),
                             rows, n, false, &err) != TD_OK)
            fail(&err);
    if (dev->ops.sync(dev, &err) != TD_OK)
        fail(&err);
    return (td_clock_now() - start) / b->steps;
}

static void time_decode(struct bench *b, int32_t seqs)
{
    struct td_seq_rows rows[MAX_SEQS];
    double x[MAX_STEPS];
    for (int32_t t = -3; t < b->steps; t++) {
        for (int32_t i = 0; i < seqs; i++)
            rows[i] = rows_of(b, i, b->context + t + 3, 1, true);
        double s = step(b, rows, seqs);
        if (t >= 0)
            x[t] = s;
    }
    double s = median(x, (size_t)b->steps), through = back_to_back(b, rows, seqs);
    printf("step of %3d sequences:  %8.3f ms, %8.1f tokens/s; back to back %8.3f ms\n",
           seqs, s * 1e3, seqs / s, through * 1e3);
}

static int run(struct bench *b, const struct td_engine_params *p)
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
    b->per_seq = b->info.n_blocks / b->seqs;
    for (int32_t i = 0; i < (int32_t)TD_COUNT(b->ids); i++)
        b->ids[i] =
            (int32_t)((uint32_t)i * 2654435761U % (uint32_t)b->info.config->vocab);
    for (int32_t i = 0; i < b->seqs; i++)
        for (int32_t k = 0; k < b->per_seq; k++)
            b->blocks[i][k] = i * b->per_seq + k;
    for (int32_t i = 0; i < b->seqs && b->batch.n; i++)
        (void)prompt(b, i, b->context);
    for (int32_t i = 0; i < b->batch.n; i++)
        time_decode(b, b->batch.v[i]);
    for (int32_t i = 0; i < b->prompt.n; i++)
        time_prompt(b, b->prompt.v[i]);
    td_engine_close(b->engine);
    return 0;
}

/* Numbers of at most `most`, separated by commas; false if they are not. */
static bool read_list(const char *text, int32_t most, struct list *to)
{
    to->n = 0;
    while (*text) {
        char *end;
        long v = strtol(text, &end, 10);
        if (end == text || v < 1 || v > most || to->n == MAX_POINTS ||
            (*end && *end != ','))
            return false;
        to->v[to->n++] = (int32_t)v;
        text = *end ? end + 1 : end;
    }
    return true;
}

static bool read_number(const char *text, int32_t most, int32_t *to)
{
    struct list one;
    if (!read_list(text, most, &one) || one.n != 1)
        return false;
    *to = one.v[0];
    return true;
}

static bool read_options(int argc, char **argv, struct bench *b,
                         struct td_engine_params *p)
{
    const struct list batch = {6, {1, 2, 4, 8, 16, 32}},
                      prompt = {3, {512, 2048, 8192}};
    int32_t longest;
    bool good = true;
    b->batch = batch;
    b->prompt = prompt;
    b->context = 512;
    b->steps = 20;
    p->max_rows = 2048;
    for (int i = 1; i < argc && good; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (name[0] != '-') {
            p->model = name;
            continue;
        }
        i++;
        if (strcmp(name, "--device") == 0)
            p->device = value;
        else if (strcmp(name, "--weights") == 0)
            p->random = strcmp(value, "random") == 0;
        else if (strcmp(name, "--graphs") == 0)
            p->no_graphs = strcmp(value, "off") == 0;
        else if (strcmp(name, "--batch") == 0)
            good = read_list(value, MAX_SEQS, &b->batch);
        else if (strcmp(name, "--prompt") == 0)
            good = read_list(value, LONGEST - TD_CHUNK, &b->prompt);
        else if (strcmp(name, "--context") == 0)
            good = read_number(value, LONGEST - TD_CHUNK - MAX_STEPS, &b->context);
        else if (strcmp(name, "--rows") == 0)
            good = read_number(value, LONGEST, &p->max_rows);
        else if (strcmp(name, "--steps") == 0)
            good = read_number(value, MAX_STEPS, &b->steps);
        else
            good = false;
    }
    longest = b->context + b->steps + 3;
    for (int32_t i = 0; i < b->prompt.n; i++)
        longest = TD_MAX(longest, b->prompt.v[i]);
    b->seqs = 1;
    for (int32_t i = 0; i < b->batch.n; i++)
        b->seqs = TD_MAX(b->seqs, b->batch.v[i]);
    p->max_seqs = b->seqs;
    p->max_rows = TD_MAX(p->max_rows / TD_CHUNK, 1) * TD_CHUNK;
    p->max_rows = TD_MAX(p->max_rows, (b->seqs + TD_CHUNK - 1) / TD_CHUNK * TD_CHUNK);
    p->max_len = (longest + TD_CHUNK - 1) / TD_CHUNK * TD_CHUNK;
    return good && p->model;
}

int main(int argc, char **argv)
{
    struct td_engine_params p = {.numerics = TD_NUM_BF16};
    struct bench *b = td_calloc(1, sizeof(*b));
    int code = 2;
    if (!b)
        return 1;
    if (read_options(argc, argv, b, &p))
        code = run(b, &p);
    else
        (void)fputs("usage: bench_model [--device NAME] [--batch N,N] [--prompt N,N] "
                    "[--context N] [--rows N] [--steps N] [--weights random] "
                    "[--graphs off] MODEL\n",
                    stderr);
    td_free(b);
    return code;
}

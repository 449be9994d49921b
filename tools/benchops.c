/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of every operation on the processor, as a share of this machine's limits.
 *
 *     benchops [--level NAME] [--threads N] [--op NAME] [--numerics f32|bf16] [--json]
 *
 * Shapes are those of Qwen3.5-35B-A3B (experts: 32 of its 256). Each line is one operation:
 * the median time of its runs, the bytes that it must move (weights, cache and state; of
 * the small ones inputs and outputs, which may lie in a cache and then exceed what memory
 * gives) and the operations of its products, as rates and as shares of the limits. Limits
 * are measured between the runs, and a share is the median over pairs of neighbours,
 * because other programs come and go. With --json each line is an object.
 */
#include "base/clock.h"
#include "base/float.h"
#include "base/mem.h"
#include "ops/limits.h"
#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 5, HIDDEN = 2048, MAX_ROWS = 1024, COPIES = 24, EXPERTS = 32, TOP = 8 };
/* Heads of attention and of the delta rule, and their sizes. */
enum { HEADS = 16, KV_HEADS = 2, DIM = 256, ROTARY = 64 };
enum { KEY_HEADS = 16, VALUE_HEADS = 32, KEY = 128, WIDTH = 4 };
enum { CHANNELS = (2 * KEY_HEADS + VALUE_HEADS) * KEY, ALL_EXPERTS = 256 };
enum { VOCAB = 248320, MOST_SEQS = 8, CONTEXT = 1024, BLOCKS = CONTEXT / TD_KV_BLOCK };

struct setup {
    struct td_dev *dev;
    const char *op; /* the only one wanted, or NULL */
    int threads;
    bool json;
    enum td_numerics numerics;
    float *x, *y, *z;
    int32_t *id;
    float *weight;
    float *ones; /* norms' weights */
    struct td_batch batch;
    int32_t ints[5 * MAX_ROWS]; /* what the batch points to */
};

/* One operation to time: what a run moves and does. */
struct job {
    char name[64];
    double bytes, ops;
    bool wide; /* products are f32 */
    void (*run)(struct setup *s, const struct job *j);
    const struct td_matrix *m; /* of linear and experts, */
    const void *args;          /* of all others */
    int32_t rows, count;
};

static void *device(struct setup *s, size_t bytes)
{
    void *p = NULL;
    struct td_error err;
    td_error_init(&err);
    if (s->dev->ops.alloc(s->dev, bytes, "bench", &p, &err) != TD_OK) {
        (void)fprintf(stderr, "benchops: %s\n", err.what);
        exit(2);
    }
    return p;
}

static float noise(size_t i)
{
    return (float)((i * 2654435761u >> 7) % 1024) / 512.0f - 1.0f;
}

/* `count` matrices [n][k] from one allocation, at equal distances. */
static struct td_matrix *matrices(struct setup *s, int32_t count, enum td_mat_type type,
                                  int64_t n, int64_t k)
{
    struct td_matrix *m = td_calloc((size_t)count, sizeof(*m));
    size_t bytes = s->dev->ops.matrix_bytes(s->dev, type, n, k);
    size_t blocks = (size_t)(td_scale_blocks(n) * td_scale_blocks(k));
    char *data = device(s, bytes * (size_t)count);
    float *scale = device(s, blocks * sizeof(float));
    for (size_t i = 0; i < bytes * (size_t)count; i++)
        data[i] = (char)(type == TD_MAT_F8 ? (i * 37) & 0xbf : (i % 2 ? 0x3c : i));
    for (size_t i = 0; i < blocks; i++)
        scale[i] = 0.01f;
    for (int32_t i = 0; m && i < count; i++)
        m[i] = (struct td_matrix){type, n, k, data + (size_t)i * bytes, scale};
    return m;
}

/* ---- operations ---- */

static void run_linear(struct setup *s, const struct job *j)
{
    for (int32_t i = 0; i < j->count; i++) {
        struct td_linear_args a = {
            .x = s->x,
            .x_stride = j->m->k,
            .rows = j->rows,
            .count = 1,
            .term = {{.w = &j->m[i], .y = s->y, .y_stride = j->m->n}}};
        s->dev->ops.linear(s->dev, &a);
    }
}

static void run_experts(struct setup *s, const struct job *j)
{
    int32_t e = EXPERTS;
    struct td_experts_args a = {.x = s->x,
                                .id = s->id,
                                .weight = s->weight,
                                .gate = j->m,
                                .up = j->m + e,
                                .down = j->m + 2 * e,
                                .y = s->y,
                                .rows = j->rows,
                                .experts = e,
                                .k = TOP};
    for (int32_t i = 0; i < j->count; i++) {
        for (int32_t c = 0; c < j->rows * TOP; c++)
            s->id[c] = (c % TOP * 4 + (c / TOP) * 7 + i) % e;
        s->dev->ops.experts(s->dev, &a);
    }
}

#define RUN(op)                                                                        \
    static void run_##op(struct setup *s, const struct job *j)                         \
    {                                                                                  \
        for (int32_t i = 0; i < j->count; i++)                                         \
            s->dev->ops.op(s->dev, j->args);                                           \
    }
RUN(embed)
RUN(norm)
RUN(qkv)
RUN(attention)
RUN(conv)
RUN(delta)
RUN(gated_norm)
RUN(swiglu)
RUN(route)
RUN(candidates)
#undef RUN

static double median(double *v, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && v[k] < v[k - 1]; k--) {
            double t = v[k];
            v[k] = v[k - 1];
            v[k - 1] = t;
        }
    return v[n / 2];
}

static void print_job(const struct setup *s, const struct job *j, double t, double read,
                      double peak)
{
    double rate = j->bytes / t * 1e-9, ops = j->ops / t * 1e-9;
    if (s->json) {
        printf("{\"op\":\"%s\",\"numerics\":\"%s\",\"seconds\":%.9f,\"bytes\":%.0f,"
               "\"ops\":%.0f,\"read_share\":%.4f,\"peak_share\":%.4f}\n",
               j->name, s->numerics == TD_NUM_F32 ? "f32" : "bf16", t / j->count,
               j->bytes / j->count, j->ops / j->count, read, peak);
    } else {
        printf("%-34s %9.3f ms %8.1f GB/s %4.0f %% of read", j->name,
               t * 1e3 / j->count, rate, 100 * read);
        if (j->ops > 0)
            printf(" %9.1f Gop/s %4.0f %% of peak", ops, 100 * peak);
        printf("\n");
    }
    (void)fflush(stdout);
}

static void time_job(struct setup *s, const struct job *j)
{
    double seconds[RUNS], share[2][RUNS];
    j->run(s, j);
    for (int i = 0; i < RUNS; i++) {
        struct td_limits l;
        struct td_error err;
        td_error_init(&err);
        if (td_limits_measure(s->threads, (size_t)256 << 20, &l, &err) != TD_OK)
            exit(2);
        double start = td_clock_now();
        j->run(s, j);
        seconds[i] = td_clock_now() - start;
        share[0][i] = j->bytes / seconds[i] / l.read;
        share[1][i] = j->ops / seconds[i] / (j->wide ? l.f32 : l.bf16);
    }
    print_job(s, j, median(seconds, RUNS), median(share[0], RUNS),
              median(share[1], RUNS));
}

static void bench_linear(struct setup *s)
{
    static const int32_t rows[] = {1, 2, 4, 8, 16, 256};
    static const char *types[] = {"fp8", "bf16", "f32"};
    for (int type = 0; type < 2; type++) {
        struct td_matrix *m = matrices(s, COPIES, (enum td_mat_type)type, 4096, HIDDEN);
        for (size_t i = 0; i < TD_COUNT(rows); i++) {
            int32_t count = rows[i] < 64 ? COPIES : rows[i] < 512 ? 4 : 1;
            double size = 4096.0 * HIDDEN * count;
            struct job j = {.bytes = size * (type == 0 ? 1 : 2),
                            .ops = 2 * size * rows[i],
                            .wide = s->numerics == TD_NUM_F32,
                            .run = run_linear,
                            .m = m,
                            .rows = rows[i],
                            .count = count};
            (void)snprintf(j.name, sizeof(j.name), "linear %s 4096x2048, %d rows",
                           types[type], (int)rows[i]);
            time_job(s, &j);
        }
        td_free(m);
    }
}

static void bench_experts(struct setup *s)
{
    static const int32_t rows[] = {1, 4, 8, 256};
    struct td_matrix *m = td_calloc(3 * EXPERTS, sizeof(*m));
    struct td_matrix *in = matrices(s, 2 * EXPERTS, TD_MAT_F8, 512, HIDDEN);
    struct td_matrix *down = matrices(s, EXPERTS, TD_MAT_F8, HIDDEN, 512);
    memcpy(m, in, 2 * EXPERTS * sizeof(*m));
    memcpy(m + 2 * EXPERTS, down, EXPERTS * sizeof(*m));
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        bool used[EXPERTS] = {false};
        int32_t busy = 0, count = rows[i] < 64 ? 8 : 1;
        for (int32_t c = 0; c < rows[i] * TOP; c++)
            used[(c % TOP * 4 + (c / TOP) * 7) % EXPERTS] = true;
        for (int32_t e = 0; e < EXPERTS; e++)
            busy += used[e];
        struct job j = {.bytes = 3.0 * 512 * HIDDEN * busy * count,
                        .ops = 6.0 * 512 * HIDDEN * TOP * rows[i] * count,
                        .wide = s->numerics == TD_NUM_F32,
                        .run = run_experts,
                        .m = m,
                        .rows = rows[i],
                        .count = count};
        (void)snprintf(j.name, sizeof(j.name), "experts fp8 %d of 32, %d rows",
                       (int)busy, (int)rows[i]);
        time_job(s, &j);
    }
    td_free(m);
    td_free(in);
    td_free(down);
}

/* ---- rows and sequences ---- */

/* Times an operation of `rows` rows (in its name: of what) and so much work. */
static void small(struct setup *s, const char *op, const char *what, int32_t rows,
                  void (*run)(struct setup *s, const struct job *j), const void *args,
                  double bytes, double ops)
{
    int32_t count = (int32_t)TD_MIN(TD_MAX(4e6 / (bytes + ops / 8), 1), 64);
    struct job j = {.bytes = bytes * count,
                    .ops = ops * count,
                    .wide = true,
                    .run = run,
                    .args = args,
                    .rows = rows,
                    .count = count};
    if (s->op && strcmp(s->op, op) != 0)
        return;
    (void)snprintf(j.name, sizeof(j.name), "%s, %d %s", op, (int)rows, what);
    time_job(s, &j);
}

static void bench_rows(struct setup *s, int32_t rows)
{
    const double f = sizeof(float), r = rows;
    struct td_norm_args norm = {.x = s->x,
                                .add = s->z,
                                .sum = s->x,
                                .w = s->ones,
                                .y = s->y,
                                .h = HIDDEN,
                                .y_stride = HIDDEN,
                                .eps = 1e-6f,
                                .rows = rows};
    struct td_gated_norm_args gated = {.x = s->y,
                                       .z = s->z,
                                       .w = s->ones,
                                       .eps = 1e-6f,
                                       .rows = rows,
                                       .heads = VALUE_HEADS,
                                       .dim = KEY};
    struct td_swiglu_args swiglu = {
        .gate = s->y, .up = s->ones, .rows = rows, .n = 512};
    struct td_route_args route = {.logits = s->x,
                                  .id = s->id,
                                  .weight = s->weight,
                                  .rows = rows,
                                  .experts = ALL_EXPERTS,
                                  .k = TOP};
    memset(s->x, 0, (size_t)rows * HIDDEN * sizeof(float));
    small(s, "norm", "rows", rows, run_norm, &norm, 4 * f * r * HIDDEN, 0);
    small(s, "gated_norm", "rows", rows, run_gated_norm, &gated,
          3 * f * r * VALUE_HEADS * KEY, 0);
    for (int32_t i = 0; i < rows * 512; i++)
        s->y[i] = 8; /* and stays nearly so when it is silu'ed again and again */
    small(s, "swiglu", "rows", rows, run_swiglu, &swiglu, 3 * f * r * 512, 0);
    for (int32_t i = 0; i < rows * ALL_EXPERTS; i++)
        s->x[i] = noise((size_t)i);
    small(s, "route", "rows", rows, run_route, &route, f * r * ALL_EXPERTS, 0);
}

static void bench_table(struct setup *s)
{
    struct td_matrix *m = matrices(s, 1, TD_MAT_BF16, 8192, HIDDEN);
    float *logits = device(s, (size_t)MOST_SEQS * VOCAB * sizeof(float));
    struct td_candidates *out = device(s, MOST_SEQS * sizeof(*out));
    for (size_t i = 0; i < (size_t)MOST_SEQS * VOCAB; i++)
        logits[i] = noise(i * 7) * 10;
    for (int32_t rows = 1; rows <= 512; rows *= 512) {
        struct td_embed_args a = {.table = m, .token = s->id, .x = s->x, .rows = rows};
        for (int32_t i = 0; i < rows; i++)
            s->id[i] = i * 997 % 8192;
        small(s, "embed", "rows", rows, run_embed, &a, 6.0 * rows * HIDDEN, 0);
    }
    for (int32_t rows = 1; rows <= MOST_SEQS; rows *= MOST_SEQS) {
        struct td_candidates_args a = {
            .logits = logits, .stride = VOCAB, .n = VOCAB, .out = out, .rows = rows};
        if (s->dev->ops.candidates)
            small(s, "candidates", "rows", rows, run_candidates, &a,
                  sizeof(float) * (double)rows * VOCAB, 0);
    }
    td_free(m);
}

/* Fills the batch: `decode` generated tokens at the end of their context, or a prompt of
 * `prompt` tokens. */
static void make_batch(struct setup *s, int32_t decode, int32_t prompt)
{
    int32_t rows = decode + prompt, seqs = decode + (prompt > 0);
    int32_t *pos = s->ints, *seq = pos + rows, *row0 = seq + rows;
    int32_t *slot = row0 + seqs + 1, *blocks = slot + seqs;
    for (int32_t r = 0; r < rows; r++) {
        pos[r] = prompt ? r : CONTEXT - 1;
        seq[r] = prompt ? 0 : r;
    }
    for (int32_t i = 0; i < seqs; i++) {
        row0[i] = i;
        slot[i] = i;
        for (int32_t b = 0; b < BLOCKS; b++)
            blocks[i * BLOCKS + b] = i * BLOCKS + b;
    }
    row0[seqs] = rows;
    s->batch = (struct td_batch){.rows = rows,
                                 .n_decode = decode,
                                 .n_prefill = prompt > 0,
                                 .max_blocks = BLOCKS,
                                 .pos = pos,
                                 .seq = seq,
                                 .row0 = row0,
                                 .slot = slot,
                                 .blocks = blocks};
}

/* Keys that a row's query meets, over all rows of the batch. */
static double keys_met(const struct td_batch *b)
{
    double sum = 0;
    for (int32_t r = 0; r < b->rows; r++)
        sum += b->pos[r] + 1;
    return sum;
}

static void bench_attention(struct setup *s, const char *what, struct td_kv kv,
                            float *freq)
{
    const struct td_batch *b = &s->batch;
    double element = (double)td_kv_element(s->numerics), f = sizeof(float);
    double r = b->rows, keys = keys_met(b);
    struct td_qkv_args qkv = {.batch = b,
                              .qg = s->x,
                              .k = s->z,
                              .v = s->z,
                              .q_norm = s->ones,
                              .k_norm = s->ones,
                              .inv_freq = freq,
                              .kv = kv,
                              .n_heads = HEADS,
                              .n_kv = KV_HEADS,
                              .head_dim = DIM,
                              .rotary = ROTARY,
                              .eps = 1e-6f};
    struct td_attention_args a = {.batch = b,
                                  .qg = s->x,
                                  .kv = kv,
                                  .y = s->y,
                                  .n_heads = HEADS,
                                  .n_kv = KV_HEADS,
                                  .head_dim = DIM,
                                  .scale = 0.0625f};
    /* a prompt's keys are read once at least, a token's context all */
    double read = b->n_prefill ? r : keys;
    small(s, "qkv", what, b->rows, run_qkv, &qkv,
          f * r * (2 * HEADS + 2 * KV_HEADS) * DIM, 0);
    small(s, "attention", what, b->rows, run_attention, &a,
          2 * element * read * KV_HEADS * DIM, 4 * keys * HEADS * DIM);
}

static void bench_delta(struct setup *s, const char *what, float *conv_state,
                        float *state)
{
    const struct td_batch *b = &s->batch;
    double f = sizeof(float), r = b->rows, seqs = b->n_decode + b->n_prefill;
    struct td_conv_args conv = {.batch = b,
                                .u = s->x,
                                .w = s->z,
                                .state = conv_state,
                                .y = s->y,
                                .channels = CHANNELS,
                                .width = WIDTH};
    struct td_delta_args delta = {.batch = b,
                                  .c = s->x,
                                  .a = s->z,
                                  .b = s->z,
                                  .a_neg = s->ones + HIDDEN,
                                  .dt_bias = s->ones,
                                  .state = state,
                                  .y = s->y,
                                  .n_k = KEY_HEADS,
                                  .n_v = VALUE_HEADS,
                                  .dk = KEY,
                                  .dv = KEY};
    small(s, "conv", what, b->rows, run_conv, &conv,
          f * CHANNELS * (2 * r + 2 * seqs * (WIDTH - 1)), 0);
    /* of the recurrence: decay and prediction, correction, reading */
    small(s, "delta", what, b->rows, run_delta, &delta,
          2 * f * seqs * VALUE_HEADS * KEY * KEY, 6 * r * VALUE_HEADS * KEY * KEY);
}

static void bench_sequences(struct setup *s)
{
    size_t cache = (size_t)MOST_SEQS * CONTEXT * KV_HEADS * DIM;
    struct td_kv kv = {.k = device(s, cache * sizeof(float)),
                       .v = device(s, cache * sizeof(float))};
    float *freq = device(s, ROTARY * sizeof(float));
    float *conv = device(s, (size_t)MOST_SEQS * (WIDTH - 1) * CHANNELS * sizeof(float));
    float *state =
        device(s, (size_t)MOST_SEQS * VALUE_HEADS * KEY * KEY * sizeof(float));
    static const int32_t tokens[] = {1, MOST_SEQS, 0};
    for (int32_t i = 0; i < ROTARY / 2; i++)
        freq[i] = powf(1e7f, -2.0f * (float)i / ROTARY);
    for (size_t i = 0; i < TD_COUNT(tokens); i++) {
        const char *what = tokens[i] ? "tokens" : "of a prompt";
        make_batch(s, tokens[i], tokens[i] ? 0 : CONTEXT / 2);
        for (size_t k = 0; k < (size_t)MAX_ROWS * CHANNELS; k++)
            s->x[k] = noise(k);
        bench_attention(s, what, kv, freq);
        bench_delta(s, what, conv, state);
    }
}

static void set_up(struct setup *s, const char *level)
{
    size_t most = (size_t)MAX_ROWS * CHANNELS;
    struct td_error err;
    struct td_dev_params p = {.numerics = s->numerics,
                              .threads = s->threads,
                              .budget = (size_t)6 << 30,
                              .level = level};
    struct td_reserve r = {.max_rows = MAX_ROWS,
                           .max_seqs = MOST_SEQS,
                           .max_len = CONTEXT,
                           .max_out = MOST_SEQS,
                           .vocab = VOCAB,
                           .max_k = 4096,
                           .hidden = HIDDEN,
                           .n_heads = HEADS,
                           .n_kv = KV_HEADS,
                           .head_dim = DIM,
                           .n_k = KEY_HEADS,
                           .n_v = VALUE_HEADS,
                           .dk = KEY,
                           .dv = KEY,
                           .experts = ALL_EXPERTS,
                           .experts_k = TOP,
                           .expert_size = 512};
    td_error_init(&err);
    if (td_cpu_open(&p, &s->dev, &err) != TD_OK ||
        s->dev->ops.reserve(s->dev, &r, &err) != TD_OK) {
        (void)fprintf(stderr, "benchops: %s\n", err.what);
        exit(2);
    }
    s->threads = s->dev->threads;
    s->x = device(s, most * sizeof(float));
    s->y = device(s, most * sizeof(float));
    s->z = device(s, most * sizeof(float));
    s->ones = device(s, (size_t)MAX_ROWS * HIDDEN * sizeof(float));
    s->id = device(s, (size_t)MAX_ROWS * TOP * sizeof(*s->id));
    s->weight = device(s, (size_t)MAX_ROWS * TOP * sizeof(float));
    for (size_t i = 0; i < most; i++)
        s->x[i] = s->z[i] = noise(i);
    for (size_t i = 0; i < (size_t)MAX_ROWS * HIDDEN; i++)
        s->ones[i] = i >= HIDDEN && i < HIDDEN + VALUE_HEADS ? -1 : 1;
    if (!s->json)
        printf("level %s, %s, %d threads\n", s->dev->ops.name,
               s->numerics == TD_NUM_F32 ? "f32" : "bf16", s->threads);
}

static void bench(const struct setup *asked, const char *level,
                  enum td_numerics numerics)
{
    struct setup *s = td_calloc(1, sizeof(*s));
    if (!s)
        exit(2);
    *s = *asked;
    s->numerics = numerics;
    set_up(s, level);
    if (!s->op || strcmp(s->op, "linear") == 0)
        bench_linear(s);
    if (!s->op || strcmp(s->op, "experts") == 0)
        bench_experts(s);
    bench_table(s);
    bench_rows(s, 1);
    bench_rows(s, 8);
    bench_rows(s, 512);
    bench_sequences(s);
    s->dev->ops.close(s->dev);
    td_free(s);
}

int main(int argc, char **argv)
{
    static struct setup asked;
    const char *level = NULL, *numerics = NULL;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            asked.json = true;
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--level") == 0)
            level = value;
        else if (strcmp(argv[i - 1], "--op") == 0)
            asked.op = value;
        else if (strcmp(argv[i - 1], "--threads") == 0)
            asked.threads = (int)strtol(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--numerics") == 0)
            numerics = value;
        else {
            (void)fputs("usage: benchops [--level NAME] [--threads N] [--op NAME] "
                        "[--numerics f32|bf16] [--json]\n",
                        stderr);
            return 2;
        }
    }
    if (!numerics || strcmp(numerics, "bf16") == 0)
        bench(&asked, level, TD_NUM_BF16);
    if (!numerics || strcmp(numerics, "f32") == 0)
        bench(&asked, level, TD_NUM_F32);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem bench MODEL: how fast this host's processor computes a model, and how close that
 * is to what it can do.
 *
 * The operation table is wrapped: every call is timed, and what it must move (weights of
 * the experts that were really chosen, keys, values, states) and compute is counted. The
 * limits are measured between the measurements, so that shares hold on a machine that
 * others use too.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cmd/bench.h"
#include "cmd/options.h"
#include "engine/engine.h"
#include "ops/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 16, STEPS = 24, MAX_EXPERTS = 1024, PLOT_W = 640, PLOT_H = 360 };

/* ---- counting --------------------------------------------------------------------------- */

enum op {
    OP_EMBED,
    OP_NORM,
    OP_LINEAR,
    OP_QKV,
    OP_ATTENTION,
    OP_CONV,
    OP_DELTA,
    OP_GATED_NORM,
    OP_SWIGLU,
    OP_ROUTE,
    OP_EXPERTS,
    OP_SUM, /* all-reduces between ranks, waiting included */
    OPS
};
static const char *const op_names[OPS] = {
    "embed", "norm",       "linear", "qkv",   "attention", "conv",
    "delta", "gated_norm", "swiglu", "route", "experts",   "all_reduce"};

struct count {
    double seconds, bytes, work;
};

/* The wrapped table and what it counted. One bench at a time. */
static struct td_ops inner;
static struct count counts[OPS];

static void add(enum op op, double start, double bytes, double work)
{
    counts[op].seconds += td_clock_now() - start;
    counts[op].bytes += bytes;
    counts[op].work += work;
}

static double matrix_bytes(const struct td_matrix *m)
{
    static const int element[] = {1, 2, 4};
    return (double)m->n * (double)m->k * element[m->type];
}

#define PLAIN(op, name, bytes)                                                         \
    static void count_##name(struct td_dev *dev, const struct td_##name##_args *a)     \
    {                                                                                  \
        double start = td_clock_now();                                                 \
        inner.name(dev, a);                                                            \
        add(op, start, bytes, 0);                                                      \
    }

PLAIN(OP_EMBED, embed, 0)
PLAIN(OP_NORM, norm, 0)
PLAIN(OP_QKV, qkv, 0)
PLAIN(OP_CONV, conv, 0)
PLAIN(OP_GATED_NORM, gated_norm, 0)
PLAIN(OP_SWIGLU, swiglu, 0)
PLAIN(OP_ROUTE, route, 0)

static void count_linear(struct td_dev *dev, const struct td_linear_args *a)
{
    double start = td_clock_now(), bytes = 0, work = 0;
    inner.linear(dev, a);
    for (int i = 0; i < a->count; i++) {
        const struct td_matrix *w = a->term[i].w;
        bytes += matrix_bytes(w);
        work += 2.0 * (double)w->n * (double)w->k * a->rows;
    }
    add(OP_LINEAR, start, bytes, work);
}

static void count_attention(struct td_dev *dev, const struct td_attention_args *a)
{
    const struct td_batch *b = a->batch;
    double start = td_clock_now(), tokens = 0, pairs = 0;
    inner.attention(dev, a);
    for (int32_t s = 0; s < b->n_decode + b->n_prefill; s++)
        tokens += b->pos[b->row0[s + 1] - 1] + 1;
    for (int32_t r = 0; r < b->rows; r++)
        pairs += b->pos[r] + 1;
    add(OP_ATTENTION, start,
        2.0 * tokens * a->n_kv * a->head_dim * (double)td_kv_element(dev->numerics),
        4.0 * pairs * a->n_heads * a->head_dim);
}

static void count_delta(struct td_dev *dev, const struct td_delta_args *a)
{
    const struct td_batch *b = a->batch;
    double start = td_clock_now(), state = 4.0 * a->n_v * a->dk * a->dv;
    inner.delta(dev, a);
    add(OP_DELTA, start, 2 * state * (b->n_decode + b->n_prefill),
        1.5 * state * b->rows);
}

static void count_experts(struct td_dev *dev, const struct td_experts_args *a)
{
    double start = td_clock_now(), bytes = 0, work = 0;
    bool used[MAX_EXPERTS] = {false};
    inner.experts(dev, a);
    double one =
        matrix_bytes(&a->gate[0]) + matrix_bytes(&a->up[0]) + matrix_bytes(&a->down[0]);
    for (int32_t c = 0; c < a->rows * a->k; c++) {
        bool *u = &used[a->id[c] % MAX_EXPERTS];
        bytes += *u ? 0 : one;
        *u = true;
    }
    work = 6.0 * (double)a->gate[0].n * (double)a->gate[0].k * a->rows * a->k;
    if (a->shared_down) {
        bytes += matrix_bytes(a->shared_gate_proj) + matrix_bytes(a->shared_up) +
                 matrix_bytes(a->shared_down);
        work += 6.0 * (double)a->shared_up->n * (double)a->shared_up->k * a->rows;
    }
    add(OP_EXPERTS, start, bytes, work);
}

static void wrap(struct td_ops *ops)
{
    inner = *ops;
    ops->embed = count_embed;
    ops->norm = count_norm;
    ops->linear = count_linear;
    ops->qkv = count_qkv;
    ops->attention = count_attention;
    ops->conv = count_conv;
    ops->delta = count_delta;
    ops->gated_norm = count_gated_norm;
    ops->swiglu = count_swiglu;
    ops->route = count_route;
    ops->experts = count_experts;
}

static struct count total(void)
{
    struct count sum = {0};
    for (int i = 0; i < OPS; i++) {
        sum.seconds += counts[i].seconds;
        sum.bytes += counts[i].bytes;
        sum.work += counts[i].work;
    }
    return sum;
}

/* ---- measuring -------------------------------------------------------------------------- */

struct point {
    int32_t batch, prompt;
    bool decode;
    double seconds, tokens; /* of a step or a prompt */
    struct count sum, op[OPS];
    struct td_limits limits;
};

struct bench {
    struct td_engine *engine;
    struct td_engine_info info;
    int32_t n_batch, n_prompt, batch[MAX_POINTS], prompt[MAX_POINTS];
    int32_t max_batch, max_prompt;
    double summing; /* seconds in all-reduces before what is counted */
    int32_t *ids, *blocks;
    struct td_seq_rows *rows;
    struct point point[MAX_POINTS * (MAX_POINTS + 1)];
    int n_points;
    bool f32;
};

static enum td_status read_list(const char *text, const char *option, int32_t *out,
                                int32_t *n, int32_t *most, struct td_error *err)
{
    const char *p = text;
    *n = *most = 0;
    while (*p) {
        char *end;
        long v = strtol(p, &end, 10);
        if (end == p || v < 1 || v > 1 << 20 || (*end && *end != ',') ||
            *n == MAX_POINTS)
            return td_error_set(err, TD_E_USAGE,
                                "%s takes up to %d whole numbers above 0 with commas, "
                                "not \"%.100s\"",
                                option, MAX_POINTS, text);
        out[(*n)++] = (int32_t)v;
        *most = TD_MAX(*most, (int32_t)v);
        p = *end ? end + 1 : end;
    }
    return *n ? TD_OK : td_error_set(err, TD_E_USAGE, "%s is empty", option);
}

static int32_t blocks_each(const struct bench *b)
{
    return (b->max_prompt + STEPS + 1 + TD_KV_BLOCK - 1) / TD_KV_BLOCK;
}

static enum td_status prefill(struct bench *b, int32_t seq, int32_t n,
                              struct td_error *err)
{
    enum td_status s = TD_OK;
    for (int32_t at = 0; at < n && s == TD_OK; at += b->info.max_rows) {
        struct td_seq_rows piece = {.ids = b->ids + at,
                                    .n = TD_MIN(b->info.max_rows, n - at),
                                    .start = at,
                                    .slot = seq,
                                    .blocks = b->blocks + (int64_t)seq * blocks_each(b),
                                    .n_blocks = blocks_each(b)};
        piece.n_out = at + piece.n == n;
        s = td_engine_forward(b->engine, &piece, 1, err);
    }
    return s;
}

static double seconds_summing(const struct bench *b)
{
    struct td_engine_info now;
    td_engine_info(b->engine, &now);
    return now.comm.seconds;
}

static void count_anew(struct bench *b)
{
    memset(counts, 0, sizeof(counts));
    b->summing = seconds_summing(b);
}

static void keep_point(struct bench *b, struct point p, const struct td_limits *before,
                       const struct td_limits *after, int steps)
{
    counts[OP_SUM].seconds = seconds_summing(b) - b->summing;
    p.sum = total();
    memcpy(p.op, counts, sizeof(counts));
    for (int i = 0; i < OPS; i++) {
        p.op[i].seconds /= steps;
        p.op[i].bytes /= steps;
        p.op[i].work /= steps;
    }
    p.sum.bytes /= steps;
    p.sum.work /= steps;
    p.limits = (struct td_limits){TD_MAX(before->read, after->read),
                                  TD_MAX(before->f32, after->f32),
                                  TD_MAX(before->bf16, after->bf16)};
    b->point[b->n_points++] = p;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum td_status measure_prefill(struct bench *b, int32_t n, struct td_error *err)
{
    struct td_limits before, after;
    double times[3];
    enum td_status s = prefill(b, 0, TD_MIN(n, TD_CHUNK), err);
    if (s == TD_OK)
        s = td_limits_measure(b->info.threads, 0, &before, err);
    count_anew(b);
    for (int i = 0; i < 3 && s == TD_OK; i++) {
        double start = td_clock_now();
        s = prefill(b, 0, n, err);
        times[i] = td_clock_now() - start;
    }
    if (s == TD_OK)
        s = td_limits_measure(b->info.threads, 0, &after, err);
    if (s != TD_OK)
        return s;
    qsort(times, 3, sizeof(*times), by_value);
    keep_point(
        b, (struct point){.batch = 1, .prompt = n, .seconds = times[1], .tokens = n},
        &before, &after, 3);
    return TD_OK;
}

static enum td_status measure_decode(struct bench *b, int32_t batch, int32_t prompt,
                                     struct td_error *err)
{
    struct td_limits before, after;
    double times[STEPS];
    enum td_status s = TD_OK;
    for (int32_t i = 0; i < batch && s == TD_OK; i++)
        s = prefill(b, i, prompt, err);
    if (s == TD_OK)
        s = td_limits_measure(b->info.threads, 0, &before, err);
    for (int32_t t = 0; t < STEPS && s == TD_OK; t++) {
        for (int32_t i = 0; i < batch; i++)
            b->rows[i] =
                (struct td_seq_rows){.ids = b->ids + (t * 61 + i * 37) % b->max_prompt,
                                     .n = 1,
                                     .start = prompt + t,
                                     .decode = true,
                                     .slot = i,
                                     .blocks = b->blocks + (int64_t)i * blocks_each(b),
                                     .n_blocks = blocks_each(b),
                                     .n_out = 1};
        if (t == 1) /* the first step warms up */
            count_anew(b);
        double start = td_clock_now();
        s = td_engine_forward(b->engine, b->rows, batch, err);
        times[t] = td_clock_now() - start;
    }
    if (s == TD_OK)
        s = td_limits_measure(b->info.threads, 0, &after, err);
    if (s != TD_OK)
        return s;
    qsort(times + 1, STEPS - 1, sizeof(*times), by_value);
    keep_point(b,
               (struct point){.batch = batch,
                              .prompt = prompt,
                              .decode = true,
                              .seconds = times[STEPS / 2],
                              .tokens = batch},
               &before, &after, STEPS - 1);
    return TD_OK;
}

/* ---- showing ---------------------------------------------------------------------------- */

static double share(double amount, double seconds, double limit)
{
    return seconds > 0 && limit > 0 ? amount / seconds / limit : 0;
}

static double peak(const struct bench *b, const struct point *p)
{
    return b->f32 ? p->limits.f32 : p->limits.bf16;
}

static void print_ops(const struct bench *b, const struct point *p)
{
    for (int i = 0; i < OPS; i++) {
        const struct count *c = &p->op[i];
        if (c->seconds < 0.005 * p->seconds)
            continue;
        printf("          %-10s %8.3f ms %3.0f %%", op_names[i], c->seconds * 1e3,
               100 * c->seconds / p->seconds);
        if (c->bytes > 0)
            printf("  %6.1f GB/s %3.0f %% of read", c->bytes / c->seconds * 1e-9,
                   100 * share(c->bytes, c->seconds, p->limits.read));
        if (c->work > 0)
            printf("  %7.1f Gop/s %3.0f %% of peak", c->work / c->seconds * 1e-9,
                   100 * share(c->work, c->seconds, peak(b, p)));
        (void)fputc('\n', stdout);
    }
}

static void print_table(const struct bench *b)
{
    const struct point *first = &b->point[0];
    printf("model     %.2f GB of weights, loaded in %.2f s, %.2f GB/s\n",
           (double)b->info.bytes.weights * 1e-9, b->info.load.seconds,
           b->info.load.seconds > 0
               ? (double)b->info.load.bytes / b->info.load.seconds * 1e-9
               : 0);
    printf("processor %s, %d threads: read %.1f GB/s, f32 %.0f Gop/s, bf16 %.0f "
           "Gop/s\n",
           b->info.level, b->info.threads, first->limits.read * 1e-9,
           first->limits.f32 * 1e-9, first->limits.bf16 * 1e-9);
    printf("memory    planned %.1f MB for the process, peak until warm %.1f MB "
           "(%+.2f %%)\n",
           (double)b->info.plan.peak * 1e-6, (double)b->info.peak * 1e-6,
           100 * ((double)b->info.peak / (double)b->info.plan.peak - 1));
    if (b->info.ranks > 1)
        printf("ranks     %d, this is the first one's part\n", b->info.ranks);
    for (int i = 0; i < b->n_points; i++) {
        const struct point *p = &b->point[i];
        printf("%-9s batch %d, context %d: %.3f ms, %.1f tokens/s, %.1f GB/s (%.0f %% "
               "of read), %.0f Gop/s (%.0f %% of peak)\n",
               p->decode ? "decode" : "prefill", (int)p->batch, (int)p->prompt,
               p->seconds * 1e3, p->tokens / p->seconds,
               p->sum.bytes / p->seconds * 1e-9,
               100 * share(p->sum.bytes, p->seconds, p->limits.read),
               p->sum.work / p->seconds * 1e-9,
               100 * share(p->sum.work, p->seconds, peak(b, p)));
        print_ops(b, p);
    }
}

static void print_json(const struct bench *b)
{
    printf("{\"level\":\"%s\",\"threads\":%d,\"ranks\":%d,\"weights\":%lld,"
           "\"load_seconds\":%.6f,\"load_bytes\":%lld,\"points\":[",
           b->info.level, b->info.threads, b->info.ranks,
           (long long)b->info.bytes.weights, b->info.load.seconds,
           (long long)b->info.load.bytes);
    for (int i = 0; i < b->n_points; i++) {
        const struct point *p = &b->point[i];
        printf("%s{\"kind\":\"%s\",\"batch\":%d,\"context\":%d,\"seconds\":%.9f,"
               "\"tokens_per_second\":%.3f,\"bytes\":%.0f,\"ops\":%.0f,"
               "\"read_share\":%.4f,\"peak_share\":%.4f,\"limits\":{\"read\":%.0f,"
               "\"f32\":%.0f,\"bf16\":%.0f},\"by_op\":{",
               i ? "," : "", p->decode ? "decode" : "prefill", (int)p->batch,
               (int)p->prompt, p->seconds, p->tokens / p->seconds, p->sum.bytes,
               p->sum.work, share(p->sum.bytes, p->seconds, p->limits.read),
               share(p->sum.work, p->seconds, peak(b, p)), p->limits.read,
               p->limits.f32, p->limits.bf16);
        for (int o = 0; o < OPS; o++)
            printf("%s\"%s\":{\"seconds\":%.9f,\"bytes\":%.0f,\"ops\":%.0f}",
                   o ? "," : "", op_names[o], p->op[o].seconds, p->op[o].bytes,
                   p->op[o].work);
        printf("}}");
    }
    printf("]}\n");
}

/* Bars: the share of the limit that binds each point (read for decode, peak for
 * prefill). */
static enum td_status write_plot(const struct bench *b, const char *path,
                                 struct td_error *err)
{
    struct td_buf out;
    int step = (PLOT_W - 40) / TD_MAX(b->n_points, 1);
    td_buf_init(&out, 1 << 20);
    td_buf_addf(&out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "font-family=\"sans-serif\" font-size=\"10\">\n",
                PLOT_W, PLOT_H);
    for (int i = 0; i <= 4; i++)
        td_buf_addf(&out,
                    "<text x=\"2\" y=\"%d\">%d %%</text>"
                    "<path d=\"M36 %dH%d\" stroke=\"#ccc\"/>\n",
                    304 - i * 70, i * 25, 300 - i * 70, PLOT_W);
    for (int i = 0; i < b->n_points; i++) {
        const struct point *p = &b->point[i];
        double part = p->decode ? share(p->sum.bytes, p->seconds, p->limits.read)
                                : share(p->sum.work, p->seconds, peak(b, p));
        int high = (int)(280 * TD_MIN(part, 1.0)), x = 40 + i * step;
        td_buf_addf(&out,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>"
                    "<text x=\"%d\" y=\"315\">%s</text><text x=\"%d\" "
                    "y=\"328\">%d x %d</text><text x=\"%d\" y=\"341\">%.0f/s</text>\n",
                    x, 300 - high, TD_MAX(step - 4, 1), high,
                    p->decode ? "#37a" : "#a73", x, p->decode ? "decode" : "prefill", x,
                    (int)p->batch, (int)p->prompt, x, p->tokens / p->seconds);
    }
    td_buf_adds(&out, "</svg>\n");
    enum td_status s = out.status;
    FILE *f = s == TD_OK ? fopen(path, "we") : NULL;
    if (s == TD_OK && (!f || fwrite(out.p, 1, out.len, f) != out.len))
        s = td_error_set(err, TD_E_IO, "cannot write %s", path);
    if (f && fclose(f) != 0 && s == TD_OK)
        s = td_error_set(err, TD_E_IO, "cannot write %s", path);
    td_buf_release(&out);
    return s;
}

/* ---- the verb --------------------------------------------------------------------------- */

static enum td_status read_lists(struct bench *b, const struct td_conf *conf,
                                 struct td_error *err)
{
    enum td_status s = read_list(td_conf_str(conf, TD_O_BATCH), "--batch", b->batch,
                                 &b->n_batch, &b->max_batch, err);
    if (s != TD_OK)
        return s;
    return read_list(td_conf_str(conf, TD_O_PROMPT), "--prompt", b->prompt,
                     &b->n_prompt, &b->max_prompt, err);
}

static struct td_engine_params params_of(const struct bench *b,
                                         const struct td_conf *conf)
{
    struct td_engine_params p = td_options_engine(conf, conf->args[0]);
    p.device = "cpu"; /* calls of a GPU return before their work is done */
    p.max_len = blocks_each(b) * TD_KV_BLOCK;
    p.max_seqs = b->max_batch;
    p.max_rows = (TD_MIN(b->max_prompt, 1024) + TD_CHUNK - 1) / TD_CHUNK * TD_CHUNK;
    p.max_rows =
        TD_MAX(p.max_rows, (b->max_batch + TD_CHUNK - 1) / TD_CHUNK * TD_CHUNK);
    return p;
}

enum td_status td_bench_engine(const struct td_conf *conf, struct td_engine_params *out,
                               struct td_error *err)
{
    struct bench b = {.n_batch = 0};
    enum td_status s = read_lists(&b, conf, err);
    if (s == TD_OK)
        *out = params_of(&b, conf);
    return s;
}

static enum td_status open_engine(struct bench *b, const struct td_conf *conf,
                                  struct td_error *err)
{
    struct td_engine_params p = params_of(b, conf);
    b->f32 = p.numerics == TD_NUM_F32;
    enum td_status s = td_engine_open(&p, &b->engine, err);
    if (s != TD_OK)
        return s;
    td_engine_info(b->engine, &b->info);
    wrap(&td_engine_device(b->engine)->ops);
    int32_t n_blocks = b->max_batch * blocks_each(b);
    b->ids = td_calloc((size_t)b->max_prompt + STEPS, sizeof(*b->ids));
    b->blocks = td_calloc((size_t)n_blocks, sizeof(*b->blocks));
    b->rows = td_calloc((size_t)b->max_batch, sizeof(*b->rows));
    if (!b->ids || !b->blocks || !b->rows)
        return td_error_set(err, TD_E_NOMEM, "no memory for the benchmark");
    for (int32_t i = 0; i < n_blocks; i++)
        b->blocks[i] = i % b->info.n_blocks;
    for (int32_t i = 0; i < b->max_prompt + STEPS; i++)
        b->ids[i] = (int32_t)(((uint32_t)i * 2654435761u >> 8) %
                              (uint32_t)b->info.config->vocab);
    return TD_OK;
}

static enum td_status measure(struct bench *b, struct td_error *err)
{
    enum td_status s = TD_OK;
    for (int i = 0; i < b->n_prompt && s == TD_OK; i++)
        s = measure_prefill(b, b->prompt[i], err);
    for (int i = 0; i < b->n_prompt; i++)
        for (int k = 0; k < b->n_batch && s == TD_OK; k++)
            s = measure_decode(b, b->batch[k], b->prompt[i], err);
    return s;
}

enum td_status td_bench_model(const struct td_conf *conf, struct td_error *err)
{
    static struct bench b;
    enum td_status s = read_lists(&b, conf, err);
    if (s == TD_OK)
        s = open_engine(&b, conf, err);
    if (s == TD_OK)
        s = measure(&b, err);
    if (s == TD_OK && td_conf_bool(conf, TD_O_JSON))
        print_json(&b);
    else if (s == TD_OK)
        print_table(&b);
    if (s == TD_OK && td_conf_is_set(conf, TD_O_PLOT))
        s = write_plot(&b, td_conf_str(conf, TD_O_PLOT), err);
    td_engine_close(b.engine);
    td_free(b.ids);
    td_free(b.blocks);
    td_free(b.rows);
    return s;
}

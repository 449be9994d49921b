/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapped table of operations. See bench_count.h.
 *
 * Which experts were chosen and how far sequences have come is device data; on a GPU it is
 * fetched, between operations.
 */
#include "cmd/bench_count.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

const char *const td_bench_op_names[TD_BENCH_OPS] = {
    "embed", "norm",       "linear", "qkv",   "attention", "conv",
    "delta", "gated_norm", "swiglu", "route", "experts",   "all_reduce"};

/* One bench at a time: operations are given nothing but their device. */
static struct counter {
    struct td_ops inner;
    struct td_bench_count of[TD_BENCH_OPS]; /* seconds: of this run so far */
    double seconds[TD_BENCH_OPS][TD_BENCH_RUNS];
    int runs;
    int32_t real;
    int32_t *ids, *row0; /* fetched from a GPU */
} counter;

/* ---- times and device data ----------------------------------------------------------- */

static double begun(struct td_dev *dev)
{
    if (!dev->host)
        (void)counter.inner.sync(dev, NULL);
    return td_clock_now();
}

static void add(struct td_dev *dev, enum td_bench_op op, double start, double bytes,
                double work)
{
    struct td_bench_count *c = &counter.of[op];
    c->seconds += begun(dev) - start;
    c->bytes += bytes;
    c->work += work;
}

static const int32_t *fetch(struct td_dev *dev, const int32_t *from, int32_t n,
                            int32_t *to)
{
    if (dev->host)
        return from;
    counter.inner.get(dev, to, from, (size_t)n * sizeof(*to));
    return to;
}

static int32_t real(int32_t rows)
{
    return TD_MIN(rows, counter.real);
}

static int32_t sequences(const struct td_batch *b)
{
    return real(b->n_decode) + b->n_prefill;
}

static double matrix_bytes(const struct td_matrix *m)
{
    static const int element[] = {1, 2, 4};
    return (double)m->n * (double)m->k * element[m->type];
}

/* ---- the operations ------------------------------------------------------------------ */

#define PLAIN(op, name, bytes)                                                         \
    static void count_##name(struct td_dev *dev, const struct td_##name##_args *a)     \
    {                                                                                  \
        double start = begun(dev);                                                     \
        counter.inner.name(dev, a);                                                    \
        add(dev, op, start, bytes, 0);                                                 \
    }

PLAIN(TD_BENCH_EMBED, embed, 0)
PLAIN(TD_BENCH_NORM, norm, 0)
PLAIN(TD_BENCH_QKV, qkv, 0)
PLAIN(TD_BENCH_CONV, conv, 8.0 * (a->width - 1) * a->channels * sequences(a->batch))
PLAIN(TD_BENCH_GATED_NORM, gated_norm, 0)
PLAIN(TD_BENCH_SWIGLU, swiglu, 0)
PLAIN(TD_BENCH_ROUTE, route, 0)

static void count_linear(struct td_dev *dev, const struct td_linear_args *a)
{
    double start = begun(dev), bytes = 0, work = 0;
    counter.inner.linear(dev, a);
    for (int i = 0; i < a->count; i++) {
        const struct td_matrix *w = a->term[i].w;
        bytes += matrix_bytes(w);
        work += 2.0 * (double)w->n * (double)w->k * real(a->rows);
    }
    add(dev, TD_BENCH_LINEAR, start, bytes, work);
}

static void count_attention(struct td_dev *dev, const struct td_attention_args *a)
{
    const struct td_batch *b = a->batch;
    int32_t n = b->n_decode + b->n_prefill;
    double start = begun(dev), tokens = 0, pairs = 0;
    counter.inner.attention(dev, a);
    double seconds = begun(dev) - start;
    const int32_t *pos = fetch(dev, b->pos, b->rows, counter.ids);
    const int32_t *row0 = fetch(dev, b->row0, n + 1, counter.row0);
    for (int32_t s = 0; s < n; s++)
        tokens += s < b->n_decode && s >= counter.real ? 0 : pos[row0[s + 1] - 1] + 1;
    for (int32_t r = 0; r < real(b->rows); r++)
        pairs += pos[r] + 1;
    add(dev, TD_BENCH_ATTENTION, td_clock_now() - seconds,
        2.0 * tokens * a->n_kv * a->head_dim * (double)td_kv_element(dev->numerics),
        4.0 * pairs * a->n_heads * a->head_dim);
}

static void count_delta(struct td_dev *dev, const struct td_delta_args *a)
{
    double start = begun(dev), state = 4.0 * a->n_v * a->dk * a->dv;
    counter.inner.delta(dev, a);
    add(dev, TD_BENCH_DELTA, start, 2 * state * sequences(a->batch),
        1.5 * state * real(a->batch->rows));
}

static void count_experts(struct td_dev *dev, const struct td_experts_args *a)
{
    double start = begun(dev), bytes = 0, work = 0;
    bool used[TD_MAX_EXPERTS] = {false};
    int32_t rows = real(a->rows);
    counter.inner.experts(dev, a);
    double seconds = begun(dev) - start;
    const int32_t *id = fetch(dev, a->id, rows * a->k, counter.ids);
    double one =
        matrix_bytes(&a->gate[0]) + matrix_bytes(&a->up[0]) + matrix_bytes(&a->down[0]);
    for (int32_t c = 0; c < rows * a->k; c++) {
        bool *u = &used[id[c]];
        bytes += *u ? 0 : one;
        *u = true;
    }
    work = 6.0 * (double)a->gate[0].n * (double)a->gate[0].k * rows * a->k;
    if (a->shared_down) {
        bytes += matrix_bytes(a->shared_gate_proj) + matrix_bytes(a->shared_up) +
                 matrix_bytes(a->shared_down);
        work += 6.0 * (double)a->shared_up->n * (double)a->shared_up->k * rows;
    }
    add(dev, TD_BENCH_EXPERTS, td_clock_now() - seconds, bytes, work);
}

/* ---- wrapping ------------------------------------------------------------------------ */

/* Padded like a step that is recorded, but every call is made. */
static bool make_calls(struct td_dev *dev, uint64_t key)
{
    (void)dev, (void)key;
    return true;
}

static bool made_calls(struct td_dev *dev)
{
    (void)dev;
    return true;
}

enum td_status td_bench_count_begin(struct td_dev *dev, int32_t rows, int32_t top_k,
                                    struct td_error *err)
{
    struct td_ops *ops = &dev->ops;
    counter = (struct counter){.inner = *ops, .real = INT32_MAX};
    counter.ids = td_calloc((size_t)rows * (size_t)TD_MAX(top_k, 1), sizeof(int32_t));
    counter.row0 = td_calloc((size_t)rows + 1, sizeof(int32_t));
    if (!counter.ids || !counter.row0) {
        td_bench_count_end(dev);
        return td_error_set(err, TD_E_NOMEM, "no memory for counting");
    }
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
    ops->gdn = NULL; /* their parts are counted */
    ops->fuses = 0;
    if (ops->begin) {
        ops->begin = make_calls;
        ops->end = made_calls;
    }
    return TD_OK;
}

void td_bench_count_end(struct td_dev *dev)
{
    dev->ops = counter.inner;
    td_free(counter.ids);
    td_free(counter.row0);
    counter.ids = counter.row0 = NULL;
}

void td_bench_count_anew(int32_t real_rows)
{
    memset(counter.of, 0, sizeof(counter.of));
    counter.runs = 0;
    counter.real = real_rows;
}

void td_bench_count_run(double summing)
{
    counter.of[TD_BENCH_SUM].seconds = summing;
    for (int i = 0; i < TD_BENCH_OPS; i++) {
        counter.seconds[i][counter.runs] = counter.of[i].seconds;
        counter.of[i].seconds = 0;
    }
    counter.runs++;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double td_bench_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), by_value);
    return x[n / 2];
}

void td_bench_count_of_run(struct td_bench_count out[TD_BENCH_OPS])
{
    int n = TD_MAX(counter.runs, 1); /* none when the first one failed */
    for (int i = 0; i < TD_BENCH_OPS; i++) {
        out[i].seconds = td_bench_median(counter.seconds[i], n);
        out[i].bytes = counter.of[i].bytes / n;
        out[i].work = counter.of[i].work / n;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks every level of the processor's shelf, or the CUDA shelf, against the reference.
 *
 *     checkops [--level NAME] [--op NAME] [--short] [--target cuda]
 *
 * Each case makes random data from a fixed seed, runs one operation on the reference
 * device and on the level's, and compares every output within the bound of `bounds`,
 * relative to the root mean square of the reference output's elements that are not 0.
 * Outputs start poisoned and stand between guard bytes. Equal bits are required of a row
 * alone and among others, of thread counts, and of a prompt in one and several pieces.
 *
 * One line for each operation, level and numerics: `ok NAME` or `not ok NAME: ...`. The
 * exit status is 1 if any is not ok.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/float.h"
#include "base/mem.h"
#include "base/status.h"
#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, MAX_BUFS = 512, MAX_OUTS = 16, POISON = 0xa5 };

/* The largest error allowed, as a multiple of the output's root mean square: in f32
 * numerics and in bf16 numerics. Where a value is rounded to bf16 on the way, a sum that
 * differs in its last bit may round the other way. */
static const struct bound {
    const char *op;
    double f32, bf16;
} bounds[] = {
    {"linear", 2e-5, 2e-5}, {"experts", 4e-5, 2e-2},    {"embed", 0, 0},
    {"norm", 4e-6, 4e-6},   {"gated_norm", 8e-6, 8e-6}, {"swiglu", 4e-6, 4e-6},
    {"route", 4e-6, 4e-6},  {"qkv", 1e-5, 4e-2},        {"attention", 2e-5, 2e-5},
    {"conv", 4e-6, 4e-6},   {"delta", 1e-5, 1e-5},      {"candidates", 1e-6, 1e-6},
    {"gdn", 2e-4, 4e-4},    {"gates", 2e-5, 2e-5},      {"fused", 4e-5, 2e-2},
    {"attend", 4e-5, 4e-2},
};

/* In bf16 a GPU multiplies some f32 numbers as two planes of 16 bits in all; in prompts it
 * rounds what only outputs are made from: queries, and weights of pairs of tokens; and it
 * rounds results of experts. A norm behind brings small heads to the size of others, and
 * their errors with them. */
static const double two_planes = 1e-4, one_plane = 4e-2, normed_plane = 8e-2;
static bool is_cuda; /* the CUDA shelf is checked */

/* ---- data ---- */

struct buf {
    unsigned char *base;
    size_t bytes;
    bool guarded;
};

/* A device with the buffers of one run of a case. */
struct run {
    struct td_dev *dev;
    struct buf buf[MAX_BUFS];
    int n_bufs;
    struct {
        float *p;
        size_t n;
    } out[MAX_OUTS];
    int n_outs;
    uint64_t seed;
};

/* Memory of GPUs that the processor can use as well: buffers are taken from it one after
 * another, and all are given back at the end of a run. */
enum { MAX_ARENAS = 8 };
static const size_t arena_bytes = (size_t)384 << 20;
static struct arena {
    const struct td_dev *dev;
    unsigned char *base;
    size_t used;
} arenas[MAX_ARENAS];

static int failures;
static const char *bad_alloc = "checkops: out of memory\n";

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float uniform(uint64_t *state)
{
    return (float)(int64_t)(next(state) >> 40) * 0x1p-23f - 1.0f;
}

static struct arena *arena_of(const struct td_dev *dev)
{
    for (int i = 0; i < MAX_ARENAS; i++)
        if (dev && arenas[i].dev == dev)
            return &arenas[i];
    return NULL;
}

static unsigned char *take(struct arena *a, size_t bytes)
{
    unsigned char *p = a->base + a->used;
    if (bytes > arena_bytes - a->used)
        return NULL;
    a->used += bytes;
    return p;
}

static void *new_buf(struct run *r, size_t bytes)
{
    struct buf *b = &r->buf[r->n_bufs++];
    struct arena *arena = arena_of(r->dev);
    size_t padded = (bytes + 63) / 64 * 64 + 2 * GUARD;
    b->base = arena ? take(arena, padded) : td_alloc_aligned(padded);
    b->bytes = bytes;
    b->guarded = true;
    if (!b->base || r->n_bufs == MAX_BUFS) {
        (void)fputs(bad_alloc, stderr);
        exit(2);
    }
    memset(b->base, POISON, padded);
    return b->base + GUARD;
}

/* n random floats of size `scale`. */
static float *input(struct run *r, size_t n, float scale)
{
    float *p = new_buf(r, n * sizeof(*p));
    for (size_t i = 0; i < n; i++)
        p[i] = scale * uniform(&r->seed);
    return p;
}

/* n floats that the operation must write, or a state that it changes (`state`). */
static float *output(struct run *r, size_t n, bool state)
{
    float *p = state ? input(r, n, 1.0f) : new_buf(r, n * sizeof(*p));
    r->out[r->n_outs].p = p;
    r->out[r->n_outs++].n = n;
    return p;
}

static struct td_matrix matrix(struct run *r, enum td_mat_type type, int64_t n,
                               int64_t k)
{
    static const enum td_dtype dtypes[] = {TD_DTYPE_F8_E4M3, TD_DTYPE_BF16,
                                           TD_DTYPE_F32};
    struct td_matrix m = {.type = type, .n = n, .k = k};
    size_t count = (size_t)(n * k), blocks = 0;
    size_t bytes = r->dev->ops.matrix_bytes(r->dev, type, n, k);
    void *rows = td_calloc(count, sizeof(float));
    if (!rows) {
        (void)fputs(bad_alloc, stderr);
        exit(2);
    }
    m.data = new_buf(r, bytes);
    for (size_t i = 0; i < count; i++) {
        float w = uniform(&r->seed);
        if (type == TD_MAT_F8) {
            uint8_t code = (uint8_t)next(&r->seed);
            ((uint8_t *)rows)[i] = (code & 0x7f) == 0x7f ? 0 : code & 0xbf;
        } else if (type == TD_MAT_BF16) {
            ((uint16_t *)rows)[i] = td_bf16_from_f32(w);
        } else {
            ((float *)rows)[i] = w;
        }
    }
    memset(m.data, 0, bytes); /* as alloc() gives it */
    r->dev->ops.pack(r->dev, &m, 0, n, rows, dtypes[type]);
    (void)r->dev->ops.sync(r->dev, NULL);
    td_free(rows);
    if (type == TD_MAT_F8) {
        blocks = (size_t)(td_scale_blocks(n) * td_scale_blocks(k));
        m.scale = input(r, blocks, 0.5f);
    }
    return m;
}

static void end_run(struct run *r)
{
    struct arena *arena = arena_of(r->dev);
    if (arena)
        arena->used = 0;
    for (int i = 0; i < r->n_bufs && !arena; i++)
        td_free_aligned(r->buf[i].base, (r->buf[i].bytes + 63) / 64 * 64 + 2 * GUARD);
    r->n_bufs = r->n_outs = 0;
}

/* ---- judgement ---- */

/* What is being checked, for messages. */
static struct {
    const char *op, *level;
    enum td_numerics numerics;
    bool failed;
    unsigned rounds; /* a bit for each output that is made from rounded numbers */
    bool normed;     /* and then goes through a norm */
    double worst;    /* error over bound */
} now;

static const char *numerics_name(void)
{
    return now.numerics == TD_NUM_F32 ? "f32" : "bf16";
}

static void fail(const char *what, const char *detail)
{
    if (!now.failed)
        printf("not ok %s/%s/%s: %s: %s\n", now.level, now.op, numerics_name(), what,
               detail);
    now.failed = true;
    failures++;
}

static void check_guards(const struct run *r, const char *what)
{
    for (int i = 0; i < r->n_bufs; i++) {
        const struct buf *b = &r->buf[i];
        size_t end = GUARD + b->bytes, all = (b->bytes + 63) / 64 * 64 + 2 * GUARD;
        bool good = true;
        for (size_t j = 0; j < GUARD; j++)
            good = good && b->base[j] == POISON;
        for (size_t j = end; j < all; j++)
            good = good && b->base[j] == POISON;
        if (!good)
            fail(what, "wrote outside a buffer");
    }
}

static void check_close(const struct run *got, const struct run *want, const char *what)
{
    double limit = 0;
    char detail[128];
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (strcmp(bounds[i].op, now.op) == 0)
            limit = now.numerics == TD_NUM_F32 ? bounds[i].f32 : bounds[i].bf16;
    if (is_cuda && now.numerics == TD_NUM_BF16 && limit > 0)
        limit = TD_MAX(limit, two_planes);
    for (int o = 0; o < want->n_outs; o++) {
        double square = 0, rms = 0, bound = limit;
        size_t set = 0; /* caches are mostly zeros */
        for (size_t i = 0; i < want->out[o].n; i++) {
            set += fabsf(want->out[o].p[i]) > 0;
            square += (double)want->out[o].p[i] * (double)want->out[o].p[i];
        }
        rms = sqrt(square / (double)TD_MAX(set, 1)) + 1e-9;
        if (is_cuda && now.numerics == TD_NUM_BF16 && now.rounds >> o & 1)
            bound = TD_MAX(limit, now.normed ? normed_plane : one_plane);
        for (size_t i = 0; i < want->out[o].n; i++) {
            double e = fabs((double)got->out[o].p[i] - (double)want->out[o].p[i]);
            if (e > 0 && rms * bound > 0)
                now.worst = TD_MAX(now.worst, e / (rms * bound));
            if (e <= rms * bound)
                continue;
            (void)snprintf(detail, sizeof(detail),
                           "output %d at %zu is %.9g, reference %.9g, rms %.3g", o, i,
                           (double)got->out[o].p[i], (double)want->out[o].p[i], rms);
            fail(what, detail);
            return;
        }
    }
}

static void check_bits(const float *a, const float *b, size_t n, const char *what)
{
    char detail[96];
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof(*a)) == 0)
            continue;
        (void)snprintf(detail, sizeof(detail), "%.9g and %.9g at %zu should be equal",
                       (double)a[i], (double)b[i], i);
        fail(what, detail);
        return;
    }
}

static void check_same(const struct run *a, const struct run *b, const char *what)
{
    for (int o = 0; o < a->n_outs; o++)
        check_bits(a->out[o].p, b->out[o].p, a->out[o].n, what);
}

/* ---- devices ---- */

static const struct td_reserve limits = {.max_rows = 192,
                                         .max_seqs = 8,
                                         .max_len = 8192,
                                         .max_out = 32,
                                         .vocab = 124160,
                                         .max_k = 8448,
                                         .hidden = 129,
                                         .n_heads = 24,
                                         .n_kv = 8,
                                         .head_dim = 256,
                                         .n_k = 8,
                                         .n_v = 24,
                                         .dk = 256,
                                         .dv = 256,
                                         .experts = 64,
                                         .experts_k = 8,
                                         .expert_size = 512,
                                         .shared_size = 512};

static void take_arena(struct td_dev *dev)
{
    struct arena *a = arenas;
    void *base = NULL;
    while (a->dev)
        a++;
    if (dev->ops.alloc(dev, arena_bytes, "checks", &base, NULL) != TD_OK) {
        (void)fputs(bad_alloc, stderr);
        exit(2);
    }
    *a = (struct arena){.dev = dev, .base = base};
}

static void close_dev(struct td_dev *dev)
{
    struct arena *a = arena_of(dev);
    if (a)
        *a = (struct arena){0};
    if (dev)
        dev->ops.close(dev);
}

/* Operations report nothing themselves. */
static void check_sync(struct td_dev *dev, const char *what)
{
    struct td_error err;
    td_error_init(&err);
    if (dev->ops.sync(dev, &err) != TD_OK) {
        fail(what, err.what);
        (void)fprintf(stderr, "checkops: %s: %s\n", err.what, err.why);
        exit(1);
    }
}

static struct td_dev *open_dev(const char *level, enum td_numerics numerics,
                               int threads)
{
    bool gpu = strcmp(level, "cuda") == 0;
    struct td_error err;
    struct td_dev *dev = NULL;
    struct td_dev_params p = {.numerics = numerics,
                              .threads = threads,
                              .budget = (size_t)1 << 30,
                              .level = level};
    struct td_reserve r = limits;
    r.hidden = 2200;
    td_error_init(&err);
    if ((gpu ? td_cuda_open(&p, &dev, &err) : td_cpu_open(&p, &dev, &err)) != TD_OK) {
        if (gpu)
            printf("%s: %s\n", err.what, err.why);
        return NULL;
    }
    if (dev->ops.reserve(dev, &r, &err) != TD_OK) {
        (void)fputs(bad_alloc, stderr);
        exit(2);
    }
    if (gpu)
        take_arena(dev);
    return dev;
}

/* The devices of a level: reference, one thread, two threads, three threads. */
struct devices {
    struct td_dev *ref, *one, *two, *three;
};

/* Runs a case on all devices; the callback adds its own checks of rows. */
typedef void (*case_fn)(struct run *r, const void *shape);

static void run_case(const struct devices *d, case_fn f, const void *shape,
                     const char *what)
{
    static struct run ref, one, other;
    uint64_t seed = 7;
    struct td_dev *more[2] = {d->two, d->three};
    ref.dev = d->ref;
    one.dev = d->one;
    ref.seed = one.seed = seed;
    f(&ref, shape);
    f(&one, shape);
    check_sync(d->one, what);
    check_guards(&one, what);
    check_close(&one, &ref, what);
    for (int i = 0; i < 2 && more[i]; i++) {
        other.dev = more[i];
        other.seed = seed;
        f(&other, shape);
        check_sync(more[i], what);
        check_same(&one, &other, what);
        end_run(&other);
    }
    end_run(&ref);
    end_run(&one);
}

/* ---- products ---- */

/* Rows are checked alone in steps that meet every place in a tile. */
static int32_t step(int32_t rows)
{
    return rows > 20 ? 7 : rows > 5 ? 3 : 1;
}

struct linear_shape {
    int32_t rows;
    int64_t n, k;
};

static void case_linear(struct run *r, const void *shape)
{
    const struct linear_shape *s = shape;
    int64_t stride = s->k + 3;
    float *x = input(r, (size_t)(s->rows * stride), 1.0f);
    struct td_matrix w[6];
    struct td_linear_args a = {.x = x, .x_stride = stride, .rows = s->rows, .count = 6};
    for (int i = 0; i < 6; i++) {
        int64_t n = i == 5 ? 1 : s->n + i % 3;
        w[i] = matrix(r, (enum td_mat_type)(i % 3), n, s->k);
        a.term[i].w = &w[i];
        a.term[i].y_stride = n + 5;
        a.term[i].exact = i >= 4;
        a.term[i].y = output(r, (size_t)(s->rows * (n + 5)), true);
    }
    r->dev->ops.linear(r->dev, &a);
    float *y[6];
    for (int i = 0; i < 6; i++)
        y[i] = new_buf(r, (size_t)w[i].n * sizeof(float));
    for (int32_t row = 0; row < s->rows && r->dev->threads == 2; row += step(s->rows)) {
        struct td_linear_args alone = a;
        alone.rows = 1;
        alone.x = x + row * stride;
        for (int i = 0; i < 6; i++)
            alone.term[i].y = y[i];
        r->dev->ops.linear(r->dev, &alone);
        for (int i = 0; i < 6; i++)
            check_bits(y[i], a.term[i].y + row * a.term[i].y_stride, (size_t)w[i].n,
                       "row alone");
        alone.count = 1;
        for (int i = 0; i < 6; i++) {
            memset(y[i], 0, (size_t)w[i].n * sizeof(float));
            alone.term[0] = a.term[i];
            alone.term[0].y = y[i];
            r->dev->ops.linear(r->dev, &alone);
            check_bits(y[i], a.term[i].y + row * a.term[i].y_stride, (size_t)w[i].n,
                       "product alone");
        }
    }
}

struct experts_shape {
    int32_t rows, experts, k;
    int64_t hidden, size, shared;
    enum td_mat_type type, shared_type;
};

static void case_experts(struct run *r, const void *shape)
{
    const struct experts_shape *s = shape;
    static struct td_matrix gate[64], up[64], down[64];
    struct td_matrix shared[3];
    int32_t *id = new_buf(r, (size_t)(s->rows * s->k) * sizeof(*id));
    for (int32_t e = 0; e < s->experts; e++) {
        gate[e] = matrix(r, s->type, s->size, s->hidden);
        up[e] = matrix(r, s->type, s->size, s->hidden);
        down[e] = matrix(r, s->type, s->hidden, s->size);
    }
    for (int32_t i = 0; i < s->rows; i++) {
        int32_t first = (int32_t)(next(&r->seed) % (uint64_t)s->experts);
        for (int32_t j = 0; j < s->k; j++)
            id[i * s->k + j] = (first + 3 * j) % s->experts;
    }
    if (s->shared) {
        shared[0] = matrix(r, s->shared_type, s->shared, s->hidden);
        shared[1] = matrix(r, s->shared_type, s->shared, s->hidden);
        shared[2] = matrix(r, s->shared_type, s->hidden, s->shared);
    }
    struct td_experts_args a = {.x = input(r, (size_t)(s->rows * s->hidden), 0.2f),
                                .id = id,
                                .weight = input(r, (size_t)(s->rows * s->k), 1.0f),
                                .gate = gate,
                                .up = up,
                                .down = down,
                                .shared_gate_proj = &shared[0],
                                .shared_up = &shared[1],
                                .shared_down = s->shared ? &shared[2] : NULL,
                                .shared_gate = input(r, (size_t)s->rows, 2.0f),
                                .rows = s->rows,
                                .experts = s->experts,
                                .k = s->k};
    a.y = output(r, (size_t)(s->rows * s->hidden), false);
    now.rounds = 1u;
    r->dev->ops.experts(r->dev, &a);
    float *y = new_buf(r, (size_t)s->hidden * sizeof(*y));
    for (int32_t row = 0; row < s->rows && r->dev->threads == 2; row += step(s->rows)) {
        struct td_experts_args alone = a;
        alone.rows = 1;
        alone.x += row * s->hidden;
        alone.id += row * s->k;
        alone.weight += row * s->k;
        alone.shared_gate += row;
        alone.y = y;
        r->dev->ops.experts(r->dev, &alone);
        check_bits(y, a.y + row * s->hidden, (size_t)s->hidden, "row alone");
    }
}

static void check_linear(const struct devices *d, bool is_short, case_fn f)
{
    static const int32_t rows[] = {1, 2, 3, 5, 7, 17, 33, 64, 130};
    static const int64_t ns[] = {1, 4, 31, 130, 257};
    static const int64_t ks[] = {1, 15, 64, 128, 200, 256, 1000, 1024, 2300, 8448};
    char what[64];
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        for (size_t j = 0; j < TD_COUNT(ns); j++)
            for (size_t k = 0; k < TD_COUNT(ks); k++) {
                struct linear_shape s = {rows[i], ns[j], ks[k]};
                if (is_short && (i + j + k) % 7)
                    continue;
                (void)snprintf(what, sizeof(what), "%d rows, n %d, k %d", (int)rows[i],
                               (int)ns[j], (int)ks[k]);
                run_case(d, f, &s, what);
            }
}

static void check_experts(const struct devices *d, bool is_short, case_fn f)
{
    static const int32_t rows[] = {1, 2, 5, 8, 33, 100};
    static const struct experts_shape shapes[] = {
        {0, 8, 2, 128, 64, 0, TD_MAT_F8, TD_MAT_F8},
        {0, 16, 4, 256, 128, 128, TD_MAT_F8, TD_MAT_F8},
        {0, 5, 1, 130, 33, 70, TD_MAT_F8, TD_MAT_BF16},
        {0, 9, 8, 260, 512, 512, TD_MAT_F8, TD_MAT_F8},
        {0, 3, 2, 2200, 300, 200, TD_MAT_BF16, TD_MAT_BF16},
        {0, 3, 2, 2200, 300, 400, TD_MAT_F8, TD_MAT_F8},
        {0, 4, 4, 64, 256, 100, TD_MAT_BF16, TD_MAT_F32},
        {0, 3, 2, 100, 20, 20, TD_MAT_F32, TD_MAT_F8},
    };
    char what[64];
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        for (size_t j = 0; j < TD_COUNT(shapes); j++) {
            struct experts_shape s = shapes[j];
            s.rows = rows[i];
            if (is_short && (i + j) % 2)
                continue;
            (void)snprintf(what, sizeof(what), "%d rows, shape %zu", (int)s.rows, j);
            run_case(d, f, &s, what);
        }
}

/* ---- row-wise operations ---- */

struct rows_shape {
    int32_t rows;
    int64_t n;
};

static void case_embed(struct run *r, const void *shape)
{
    const struct rows_shape *s = shape;
    int32_t *token = new_buf(r, (size_t)s->rows * sizeof(*token));
    for (int t = 0; t < 3; t++) {
        struct td_matrix m = matrix(r, (enum td_mat_type)t, 40, s->n);
        struct td_fill_args f = {&m, 8, 30, 3, 5, s->n + 9, 2.0f, r->seed};
        r->dev->ops.fill(r->dev, &f); /* checked here: bits of rows that it made */
        struct td_embed_args a = {
            .table = &m, .first = 5, .token = token, .rows = s->rows};
        for (int32_t i = 0; i < s->rows; i++)
            token[i] = (int32_t)(next(&r->seed) % 50);
        a.x = output(r, (size_t)(s->rows * s->n), false);
        r->dev->ops.embed(r->dev, &a);
    }
}

static void case_norm(struct run *r, const void *shape)
{
    const struct rows_shape *s = shape;
    size_t n = (size_t)(s->rows * s->n);
    struct td_norm_args a = {.x = input(r, n, 2.0f),
                             .w = input(r, (size_t)s->n, 1.0f),
                             .h = s->n,
                             .y_stride = s->n + 3,
                             .eps = 1e-6f,
                             .rows = s->rows};
    int32_t *index = new_buf(r, (size_t)s->rows * sizeof(*index));
    a.y = output(r, (size_t)(s->rows * a.y_stride), true);
    r->dev->ops.norm(r->dev, &a);
    a.add = input(r, n, 1.0f);
    a.sum = output(r, n, false);
    a.y = output(r, (size_t)(s->rows * a.y_stride), true);
    r->dev->ops.norm(r->dev, &a);
    float *y = new_buf(r, (size_t)s->n * sizeof(*y));
    float *sum = new_buf(r, (size_t)s->n * sizeof(*sum));
    for (int32_t row = 0; row < s->rows && r->dev->threads == 2; row += step(s->rows)) {
        struct td_norm_args alone = a;
        alone.rows = 1;
        alone.x += row * s->n;
        alone.add += row * s->n;
        alone.y = y;
        alone.sum = sum;
        r->dev->ops.norm(r->dev, &alone);
        check_bits(y, a.y + row * a.y_stride, (size_t)s->n, "row alone");
    }
    for (int32_t i = 0; i < s->rows; i++)
        index[i] = s->rows - 1 - i / 2;
    a.index = index;
    a.sum = NULL;
    a.y = output(r, (size_t)(s->rows * a.y_stride), true);
    r->dev->ops.norm(r->dev, &a);
    a.index = NULL;
    a.sum = output(r, n, true); /* in place */
    a.x = a.sum;
    a.y = output(r, (size_t)(s->rows * a.y_stride), true);
    r->dev->ops.norm(r->dev, &a);
}

static void case_gated_norm(struct run *r, const void *shape)
{
    const struct rows_shape *s = shape;
    size_t n = (size_t)(s->rows * 3 * s->n);
    struct td_gated_norm_args a = {.z = input(r, n, 4.0f),
                                   .w = input(r, (size_t)s->n, 1.0f),
                                   .eps = 1e-6f,
                                   .rows = s->rows,
                                   .heads = 3,
                                   .dim = (int32_t)s->n};
    a.x = output(r, n, true);
    r->dev->ops.gated_norm(r->dev, &a);
}

static void case_swiglu(struct run *r, const void *shape)
{
    const struct rows_shape *s = shape;
    size_t n = (size_t)(s->rows * s->n);
    struct td_swiglu_args a = {.up = input(r, n, 1.0f), .rows = s->rows, .n = s->n};
    a.gate = output(r, n, true);
    for (size_t i = 0; i < n; i++)
        a.gate[i] *= i % 5 == 0 ? 95.0f : 8.0f;
    r->dev->ops.swiglu(r->dev, &a);
}

static void case_route(struct run *r, const void *shape)
{
    const struct rows_shape *s = shape;
    int32_t experts = (int32_t)TD_MIN(s->n, 64), k = TD_MIN(experts, 8);
    size_t n = (size_t)(s->rows * k);
    struct td_route_args a = {.logits = input(r, (size_t)(s->rows * experts), 4.0f),
                              .id = new_buf(r, n * sizeof(int32_t)),
                              .rows = s->rows,
                              .experts = experts,
                              .k = k};
    float *id = output(r, n, false);
    a.weight = output(r, n, false);
    r->dev->ops.route(r->dev, &a);
    for (size_t i = 0; i < n; i++)
        id[i] = 1e6f * (float)a.id[i]; /* a wrong one is far outside the bound */
}

#include "tools/checkops_candidates.inc"

static void check_rows(const struct devices *d, bool is_short, case_fn f)
{
    static const int32_t rows[] = {1, 2, 5, 17, 64, 130};
    static const int64_t ns[] = {1, 7, 16, 64, 100, 129, 256, 1000};
    char what[64];
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        for (size_t j = 0; j < TD_COUNT(ns); j++) {
            struct rows_shape s = {rows[i], ns[j]};
            if (is_short && (i + j) % 3)
                continue;
            (void)snprintf(what, sizeof(what), "%d rows of %d", (int)rows[i],
                           (int)ns[j]);
            run_case(d, f, &s, what);
        }
}

/* ---- sequences ---- */

/* Up to MAX_SEQS sequences: the first `decode` at position at[i], one token each; the
 * others pieces of count[i] tokens that begin at at[i]. */
enum { MAX_SEQS = 5 };

struct seqs_shape {
    int32_t decode, prefill, at[MAX_SEQS], count[MAX_SEQS];
    int32_t heads, kv_heads, dim, dim2; /* of attention; n_v, n_k, dk, dv */
};

/* Blocks of the cache that a sequence has, not a multiple of 7. */
static int32_t blocks_of(const struct seqs_shape *s)
{
    int32_t most = 0;
    for (int32_t i = 0; i < s->decode + s->prefill; i++)
        most = TD_MAX(most, s->at[i] + s->count[i]);
    return most > 2000 ? 80 : 32;
}

/* Makes the batch of s, or of its sequence `only` from token `skip` on, `count` of
 * them. */
static struct td_batch *make_batch(struct run *r, const struct seqs_shape *s,
                                   int32_t only, int32_t skip, int32_t count)
{
    struct td_batch *b = new_buf(r, sizeof(*b));
    int32_t all = s->decode + s->prefill, n = 0, rows = 0, wide = blocks_of(s);
    int32_t *pos = new_buf(r, 1024 * sizeof(*pos));
    int32_t *seq = new_buf(r, 1024 * sizeof(*seq));
    int32_t *row0 = new_buf(r, (MAX_SEQS + 1) * sizeof(*row0));
    int32_t *slot = new_buf(r, MAX_SEQS * sizeof(*slot));
    int32_t *blocks = new_buf(r, (size_t)(MAX_SEQS * wide) * sizeof(*blocks));
    for (int32_t i = 0; i < all; i++) {
        int32_t tokens = i < s->decode ? 1 : s->count[i];
        if (only >= 0 && i != only)
            continue;
        if (only >= 0 && count)
            tokens = TD_MIN(count, tokens - skip);
        row0[n] = rows;
        slot[n] = (i * 3 + 1) % MAX_SEQS;
        for (int32_t t = 0; t < wide; t++)
            blocks[n * wide + t] = (i * wide + t) * 7 % (MAX_SEQS * wide);
        for (int32_t t = 0; t < tokens; t++, rows++) {
            pos[rows] = s->at[i] + (only >= 0 ? skip : 0) + t;
            seq[rows] = n;
        }
        n++;
    }
    row0[n] = rows;
    *b = (struct td_batch){.rows = rows,
                           .n_decode = only < 0 ? s->decode : only < s->decode,
                           .n_prefill = only < 0 ? s->prefill : only >= s->decode,
                           .max_blocks = wide,
                           .pos = pos,
                           .seq = seq,
                           .row0 = row0,
                           .slot = slot,
                           .blocks = blocks};
    return b;
}

static int32_t rows_of(const struct seqs_shape *s)
{
    int32_t rows = s->decode;
    for (int32_t i = s->decode; i < s->decode + s->prefill; i++)
        rows += s->count[i];
    return rows;
}

static size_t cache_size(const struct seqs_shape *s)
{
    return (size_t)(MAX_SEQS * blocks_of(s) * TD_KV_BLOCK) * (size_t)s->kv_heads *
           (size_t)s->dim;
}

/* A cache of random keys or values in the device's numerics. */
static void *cache_of(struct run *r, const struct seqs_shape *s, bool empty)
{
    size_t n = cache_size(s);
    bool bf16 = r->dev->numerics == TD_NUM_BF16;
    void *p = new_buf(r, n * td_kv_element(r->dev->numerics));
    for (size_t i = 0; i < n; i++) {
        float x = empty ? 0.0f : uniform(&r->seed);
        if (bf16)
            ((uint16_t *)p)[i] = td_bf16_from_f32(x);
        else
            ((float *)p)[i] = x;
    }
    return p;
}

static void show_cache(struct run *r, const void *cache, const struct seqs_shape *s)
{
    size_t n = cache_size(s);
    float *to = output(r, n, false);
    for (size_t i = 0; i < n; i++)
        to[i] = r->dev->numerics == TD_NUM_BF16
                    ? td_f32_from_bf16(((const uint16_t *)cache)[i])
                    : ((const float *)cache)[i];
}

/* The way in of random rows with weights of size `scale`, into `kv`. */
static struct td_qkv_args qkv_of(struct run *r, const struct seqs_shape *s, float scale,
                                 float value, struct td_kv kv)
{
    int32_t rows = rows_of(s), rotary = s->dim / 4 / 2 * 2;
    size_t k = (size_t)rows * (size_t)(s->kv_heads * s->dim);
    float *freq = new_buf(r, (size_t)rotary * sizeof(*freq));
    for (int32_t i = 0; i < rotary / 2; i++)
        freq[i] = (float)pow(1e7, -2.0 * i / rotary);
    return (struct td_qkv_args){.batch = make_batch(r, s, -1, 0, 0),
                                .k = input(r, k, 1.0f),
                                .v = input(r, k, value),
                                .q_norm = input(r, (size_t)s->dim, scale),
                                .k_norm = input(r, (size_t)s->dim, scale),
                                .inv_freq = freq,
                                .kv = kv,
                                .n_heads = s->heads,
                                .n_kv = s->kv_heads,
                                .head_dim = s->dim,
                                .rotary = rotary,
                                .eps = 1e-6f};
}

static void case_qkv(struct run *r, const void *shape)
{
    const struct seqs_shape *s = shape;
    struct td_kv kv = {cache_of(r, s, true), cache_of(r, s, true)};
    struct td_qkv_args a = qkv_of(r, s, 1.0f, 1.0f, kv);
    a.qg = output(r, (size_t)rows_of(s) * (size_t)(s->heads * 2 * s->dim), true);
    r->dev->ops.qkv(r->dev, &a);
    show_cache(r, a.kv.k, s);
    show_cache(r, a.kv.v, s);
}

/* For each sequence: its first row in the whole batch. */
static int32_t first_row(const struct seqs_shape *s, int32_t i)
{
    int32_t row = 0;
    for (int32_t j = 0; j < i; j++)
        row += j < s->decode ? 1 : s->count[j];
    return row;
}

static void case_attention(struct run *r, const void *shape)
{
    const struct seqs_shape *s = shape;
    int32_t rows = rows_of(s), width = s->heads * s->dim;
    struct td_attention_args a = {
        .batch = make_batch(r, s, -1, 0, 0),
        .qg = input(r, (size_t)rows * (size_t)(2 * width), 3.0f),
        .kv = {cache_of(r, s, false), cache_of(r, s, false)},
        .n_heads = s->heads,
        .n_kv = s->kv_heads,
        .head_dim = s->dim,
        .scale = 1.0f / sqrtf((float)s->dim)};
    a.y = output(r, (size_t)(rows * width), false);
    now.rounds = s->prefill ? 1u : 0;
    r->dev->ops.attention(r->dev, &a);
    for (int32_t i = 0; i < s->decode + s->prefill && r->dev->threads == 2; i++) {
        struct td_attention_args piece = a;
        int32_t tokens = i < s->decode ? 1 : s->count[i], row = first_row(s, i);
        for (int32_t skip = 0; skip < tokens; skip += TD_CHUNK) {
            piece.batch = make_batch(r, s, i, skip, TD_CHUNK);
            piece.qg = a.qg + (int64_t)(row + skip) * 2 * width;
            piece.y = new_buf(r, (size_t)(TD_CHUNK * width) * sizeof(float));
            r->dev->ops.attention(r->dev, &piece);
            check_bits(piece.y, a.y + (int64_t)(row + skip) * width,
                       (size_t)(piece.batch->rows * width), "piece alone");
        }
    }
}

#include "checkops_gdn.inc"

#include "checkops_fused.inc"

static void check_seqs(const struct devices *d, bool is_short, case_fn f)
{
    static const struct seqs_shape shapes[] = {
        {1, 0, {0}, {0}, 4, 2, 64, 64},
        {1, 0, {700}, {0}, 8, 1, 64, 128},
        {1, 0, {1999}, {0}, 4, 2, 128, 100},
        {3, 0, {5, 64, 1100}, {0}, 16, 8, 64, 64},
        {0, 1, {0}, {1}, 4, 2, 64, 64},
        {0, 1, {0}, {150}, 4, 4, 256, 128},
        {0, 1, {128}, {64}, 8, 1, 128, 64},
        {0, 2, {64, 0}, {150, 40}, 16, 2, 256, 64},
        {2, 3, {0, 300, 0, 64, 128}, {1, 1, 65, 7, 30}, 6, 2, 64, 48},
        {1, 1, {77, 0}, {1, 40}, 3, 1, 20, 12},
        {1, 1, {600, 64}, {1, 70}, 6, 3, 33, 33},
        {5, 0, {300, 63, 64, 1100, 2047}, {1, 1, 1, 1, 1}, 24, 1, 256, 64},
        {2, 0, {5070, 4100}, {1, 1}, 6, 2, 64, 64},
    };
    char what[64];
    for (size_t i = 0; i < TD_COUNT(shapes); i++) {
        if (is_short && (i == 2 || i == 6 || i == 7 || i > 10))
            continue;
        (void)snprintf(what, sizeof(what), "shape %zu", i);
        run_case(d, f, &shapes[i], what);
    }
}

static const struct {
    const char *op;
    void (*check)(const struct devices *d, bool is_short, case_fn f);
    case_fn f;
} checks[] = {
    {"linear", check_linear, case_linear},
    {"experts", check_experts, case_experts},
    {"embed", check_rows, case_embed},
    {"norm", check_rows, case_norm},
    {"gated_norm", check_rows, case_gated_norm},
    {"swiglu", check_rows, case_swiglu},
    {"route", check_rows, case_route},
    {"candidates", check_candidates, case_candidates},
    {"qkv", check_seqs, case_qkv},
    {"attention", check_seqs, case_attention},
    {"conv", check_seqs, case_conv},
    {"delta", check_seqs, case_delta},
    {"gdn", check_seqs, case_gdn},
    {"attend", check_seqs, case_attend},
    {"gates", check_fused, case_gates},
    {"fused", check_fused, case_fused},
};

static void check_level(const char *level, enum td_numerics numerics, const char *op,
                        bool is_short)
{
    struct devices d = {open_dev("ref", numerics, 2), open_dev(level, numerics, 1),
                        open_dev(level, numerics, 2),
                        is_short ? NULL : open_dev(level, numerics, 3)};
    for (size_t i = 0; i < TD_COUNT(checks) && d.one; i++) {
        if (op && strcmp(op, checks[i].op) != 0)
            continue;
        now.op = checks[i].op;
        now.level = level;
        now.numerics = numerics;
        now.failed = false;
        now.rounds = 0;
        now.normed = false;
        now.worst = 0;
        checks[i].check(&d, is_short, checks[i].f);
        if (!now.failed)
            printf("ok %s/%s/%s (worst error %.2f of the bound)\n", level, now.op,
                   numerics_name(), now.worst);
    }
    if (!d.one)
        printf("skip %s: this machine cannot run it\n", level);
    failures += is_cuda && !d.one; /* it was asked for */
    close_dev(d.ref);
    close_dev(d.one);
    close_dev(d.two);
    close_dev(d.three);
}

int main(int argc, char **argv)
{
    const char *levels[] = {"avx2", "avx512", "avx512bf16"};
    const char *level = NULL, *op = NULL;
    bool is_short = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--short") == 0) {
            is_short = true;
        } else if (strcmp(argv[i], "--level") == 0 && i + 1 < argc) {
            level = argv[++i];
        } else if (strcmp(argv[i], "--target") == 0 && i + 1 < argc &&
                   strcmp(argv[i + 1], "cuda") == 0) {
            is_cuda = true;
            i++;
        } else if (strcmp(argv[i], "--op") == 0 && i + 1 < argc) {
            op = argv[++i];
        } else {
            (void)fputs("usage: checkops [--level NAME] [--op NAME] [--short] "
                        "[--target cuda]\n",
                        stderr);
            return 2;
        }
    }
    if (is_cuda) {
        /* results are read right behind every operation */
        if (setenv("TANDEM_CUDA_MEMORY", "host", 1) != 0 ||
            setenv("CUDA_LAUNCH_BLOCKING", "1", 1) != 0)
            return 2;
        check_level("cuda", TD_NUM_F32, op, is_short);
        check_level("cuda", TD_NUM_BF16, op, is_short);
    }
    for (size_t i = 0; i < TD_COUNT(levels) && !is_cuda; i++) {
        if (level && strcmp(level, levels[i]) != 0)
            continue;
        check_level(levels[i], TD_NUM_F32, op, is_short);
        check_level(levels[i], TD_NUM_BF16, op, is_short);
    }
    return failures > 0;
}

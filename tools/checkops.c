/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks every level of the processor's shelf against the reference.
 *
 *     checkops [--level NAME] [--op NAME] [--short]
 *
 * Each case makes random data from a fixed seed, runs one operation on the reference
 * device and on the level's, and compares every output within the bound of `bounds`,
 * relative to the reference output's root mean square. Outputs start poisoned and
 * stand between guard bytes. Equal bits are required of a row alone and among others,
 * of different thread counts, and of a prompt in one and in several pieces.
 *
 * One line for each operation, level and numerics: `ok NAME` or `not ok NAME: ...`. The
 * exit status is 1 if any is not ok.
 */
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
    {"conv", 4e-6, 4e-6},   {"delta", 1e-4, 1e-4},
};

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

static void *new_buf(struct run *r, size_t bytes)
{
    struct buf *b = &r->buf[r->n_bufs++];
    size_t padded = (bytes + 63) / 64 * 64 + 2 * GUARD;
    b->base = td_alloc_aligned(padded);
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
    struct td_matrix m = {.type = type, .n = n, .k = k};
    size_t count = (size_t)(n * k), blocks = 0;
    m.data = new_buf(r, r->dev->ops.matrix_bytes(r->dev, type, n, k));
    for (size_t i = 0; i < count; i++) {
        float w = uniform(&r->seed);
        if (type == TD_MAT_F8) {
            uint8_t code = (uint8_t)next(&r->seed);
            ((uint8_t *)m.data)[i] = (code & 0x7f) == 0x7f ? 0 : code & 0xbf;
        } else if (type == TD_MAT_BF16) {
            ((uint16_t *)m.data)[i] = td_bf16_from_f32(w);
        } else {
            ((float *)m.data)[i] = w;
        }
    }
    if (type == TD_MAT_F8) {
        blocks = (size_t)(td_scale_blocks(n) * td_scale_blocks(k));
        m.scale = input(r, blocks, 0.5f);
    }
    return m;
}

static void end_run(struct run *r)
{
    for (int i = 0; i < r->n_bufs; i++)
        td_free_aligned(r->buf[i].base, (r->buf[i].bytes + 63) / 64 * 64 + 2 * GUARD);
    r->n_bufs = r->n_outs = 0;
}

/* ---- judgement ---- */

/* What is being checked, for messages. */
static struct {
    const char *op, *level;
    enum td_numerics numerics;
    bool failed;
    double worst; /* error over bound */
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
    for (int o = 0; o < want->n_outs; o++) {
        double square = 0, rms = 0;
        for (size_t i = 0; i < want->out[o].n; i++)
            square += (double)want->out[o].p[i] * (double)want->out[o].p[i];
        rms = sqrt(square / (double)TD_MAX(want->out[o].n, 1));
        for (size_t i = 0; i < want->out[o].n; i++) {
            double e = fabs((double)got->out[o].p[i] - (double)want->out[o].p[i]);
            if (e > 0 && rms * limit > 0)
                now.worst = TD_MAX(now.worst, e / (rms * limit));
            if (e <= rms * limit)
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
                                         .max_len = 2048,
                                         .max_k = 1024,
                                         .hidden = 129,
                                         .n_heads = 16,
                                         .n_kv = 8,
                                         .head_dim = 256,
                                         .n_k = 8,
                                         .n_v = 16,
                                         .dk = 256,
                                         .dv = 256,
                                         .experts = 64,
                                         .experts_k = 8,
                                         .expert_size = 512,
                                         .shared_size = 512};

static struct td_dev *open_dev(const char *level, enum td_numerics numerics,
                               int threads)
{
    struct td_error err;
    struct td_dev *dev = NULL;
    struct td_dev_params p = {.numerics = numerics,
                              .threads = threads,
                              .budget = (size_t)1 << 30,
                              .level = level};
    struct td_reserve r = limits;
    r.hidden = 1025;
    td_error_init(&err);
    if (td_cpu_open(&p, &dev, &err) != TD_OK)
        return NULL;
    if (dev->ops.reserve(dev, &r, &err) != TD_OK) {
        (void)fputs(bad_alloc, stderr);
        exit(2);
    }
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
    check_guards(&one, what);
    check_close(&one, &ref, what);
    for (int i = 0; i < 2 && more[i]; i++) {
        other.dev = more[i];
        other.seed = seed;
        f(&other, shape);
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
    for (int32_t row = 0; row < s->rows && r->dev->threads == 2; row += step(s->rows)) {
        struct td_linear_args alone = a;
        static float y[6][2048];
        alone.rows = 1;
        alone.x = x + row * stride;
        for (int i = 0; i < 6; i++)
            alone.term[i].y = y[i];
        r->dev->ops.linear(r->dev, &alone);
        for (int i = 0; i < 6; i++)
            check_bits(y[i], a.term[i].y + row * a.term[i].y_stride, (size_t)w[i].n,
                       "row alone");
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
    r->dev->ops.experts(r->dev, &a);
    for (int32_t row = 0; row < s->rows && r->dev->threads == 2; row += step(s->rows)) {
        struct td_experts_args alone = a;
        static float y[2048];
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

static void check_linear(const struct devices *d, bool is_short)
{
    static const int32_t rows[] = {1, 2, 3, 5, 7, 17, 33, 64, 130};
    static const int64_t ns[] = {1, 4, 31, 130, 257};
    static const int64_t ks[] = {1, 15, 64, 128, 200, 256, 1000, 1024};
    char what[64];
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        for (size_t j = 0; j < TD_COUNT(ns); j++)
            for (size_t k = 0; k < TD_COUNT(ks); k++) {
                struct linear_shape s = {rows[i], ns[j], ks[k]};
                if (is_short && (i + j + k) % 7)
                    continue;
                (void)snprintf(what, sizeof(what), "%d rows, n %d, k %d", (int)rows[i],
                               (int)ns[j], (int)ks[k]);
                run_case(d, case_linear, &s, what);
            }
}

static void check_experts(const struct devices *d, bool is_short)
{
    static const int32_t rows[] = {1, 2, 5, 8, 33, 100};
    static const struct experts_shape shapes[] = {
        {0, 8, 2, 128, 64, 0, TD_MAT_F8, TD_MAT_F8},
        {0, 16, 4, 256, 128, 128, TD_MAT_F8, TD_MAT_F8},
        {0, 5, 1, 130, 33, 70, TD_MAT_F8, TD_MAT_BF16},
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
            run_case(d, case_experts, &s, what);
        }
}

static const struct {
    const char *op;
    void (*check)(const struct devices *d, bool is_short);
} checks[] = {
    {"linear", check_linear},
    {"experts", check_experts},
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
        now.worst = 0;
        checks[i].check(&d, is_short);
        if (!now.failed)
            printf("ok %s/%s/%s (worst error %.2f of the bound)\n", level, now.op,
                   numerics_name(), now.worst);
    }
    if (!d.one)
        printf("skip %s: this processor cannot run it\n", level);
    d.ref->ops.close(d.ref);
    if (!d.one)
        return;
    d.one->ops.close(d.one);
    d.two->ops.close(d.two);
    if (d.three)
        d.three->ops.close(d.three);
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
        } else if (strcmp(argv[i], "--op") == 0 && i + 1 < argc) {
            op = argv[++i];
        } else {
            (void)fputs("usage: checkops [--level NAME] [--op NAME] [--short]\n",
                        stderr);
            return 2;
        }
    }
    for (size_t i = 0; i < TD_COUNT(levels); i++) {
        if (level && strcmp(level, levels[i]) != 0)
            continue;
        check_level(levels[i], TD_NUM_F32, op, is_short);
        check_level(levels[i], TD_NUM_BF16, op, is_short);
    }
    return failures > 0;
}

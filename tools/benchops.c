/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of the kernels that decide a model's speed, as a share of this machine's limits.
 *
 *     benchops [--level NAME] [--threads N] [--op NAME]
 *
 * Shapes are those of Qwen3.5-35B-A3B. Each line is one operation: the median time of
 * its runs, the bytes of weights, cache and state that it must move and the operations
 * that it must do, as rates and as shares of the limits. Limits are measured between
 * the runs, and a share is the median over pairs of neighbours, because other programs
 * come and go.
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

struct setup {
    struct td_dev *dev;
    int threads;
    float *x, *y, *z;
    int32_t *id;
    float *weight;
};

/* One operation to time: what a run moves and does. */
struct job {
    const char *name;
    double bytes, ops;
    bool wide; /* products are f32 */
    void (*run)(struct setup *s, struct job *j);
    struct td_matrix *m;
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

static void run_linear(struct setup *s, struct job *j)
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

static void run_experts(struct setup *s, struct job *j)
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

static void time_job(struct setup *s, struct job *j)
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
    double t = median(seconds, RUNS);
    printf("%-34s %9.3f ms %8.1f GB/s %4.0f %% of read %9.1f Gop/s %4.0f %% of peak\n",
           j->name, t * 1e3 / j->count, j->bytes / t * 1e-9,
           100 * median(share[0], RUNS), j->ops / t * 1e-9,
           100 * median(share[1], RUNS));
}

static void bench_linear(struct setup *s, enum td_numerics numerics)
{
    static const int32_t rows[] = {1, 2, 4, 8, 16, 256};
    static const char *types[] = {"fp8", "bf16", "f32"};
    for (int type = 0; type < 2; type++) {
        struct td_matrix *m = matrices(s, COPIES, (enum td_mat_type)type, 4096, HIDDEN);
        for (size_t i = 0; i < TD_COUNT(rows); i++) {
            char name[64];
            int32_t count = rows[i] < 64 ? COPIES : rows[i] < 512 ? 4 : 1;
            double size = 4096.0 * HIDDEN * count;
            struct job j = {.name = name,
                            .bytes = size * (type == 0 ? 1 : 2),
                            .ops = 2 * size * rows[i],
                            .wide = numerics == TD_NUM_F32,
                            .run = run_linear,
                            .m = m,
                            .rows = rows[i],
                            .count = count};
            (void)snprintf(name, sizeof(name), "linear %s 4096x2048, %d rows",
                           types[type], (int)rows[i]);
            time_job(s, &j);
            (void)fflush(stdout);
        }
        td_free(m);
    }
}

static void bench_experts(struct setup *s, enum td_numerics numerics)
{
    static const int32_t rows[] = {1, 4, 8, 256};
    struct td_matrix *m = td_calloc(3 * EXPERTS, sizeof(*m));
    struct td_matrix *in = matrices(s, 2 * EXPERTS, TD_MAT_F8, 512, HIDDEN);
    struct td_matrix *down = matrices(s, EXPERTS, TD_MAT_F8, HIDDEN, 512);
    memcpy(m, in, 2 * EXPERTS * sizeof(*m));
    memcpy(m + 2 * EXPERTS, down, EXPERTS * sizeof(*m));
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        char name[64];
        bool used[EXPERTS] = {false};
        int32_t busy = 0, count = rows[i] < 64 ? 8 : 1;
        for (int32_t c = 0; c < rows[i] * TOP; c++)
            used[(c % TOP * 4 + (c / TOP) * 7) % EXPERTS] = true;
        for (int32_t e = 0; e < EXPERTS; e++)
            busy += used[e];
        struct job j = {.name = name,
                        .bytes = 3.0 * 512 * HIDDEN * busy * count,
                        .ops = 6.0 * 512 * HIDDEN * TOP * rows[i] * count,
                        .wide = numerics == TD_NUM_F32,
                        .run = run_experts,
                        .m = m,
                        .rows = rows[i],
                        .count = count};
        (void)snprintf(name, sizeof(name), "experts fp8 %d of 32, %d rows", (int)busy,
                       (int)rows[i]);
        time_job(s, &j);
        (void)fflush(stdout);
    }
    td_free(m);
    td_free(in);
    td_free(down);
}

static void bench(const char *level, enum td_numerics numerics, int threads,
                  const char *op)
{
    struct setup s = {.threads = threads};
    struct td_error err;
    struct td_dev_params p = {.numerics = numerics,
                              .threads = threads,
                              .budget = (size_t)6 << 30,
                              .level = level};
    struct td_reserve r = {.max_rows = MAX_ROWS,
                           .max_k = 4096,
                           .hidden = HIDDEN,
                           .experts = EXPERTS,
                           .experts_k = TOP,
                           .expert_size = 512};
    td_error_init(&err);
    if (td_cpu_open(&p, &s.dev, &err) != TD_OK ||
        s.dev->ops.reserve(s.dev, &r, &err) != TD_OK) {
        (void)fprintf(stderr, "benchops: %s\n", err.what);
        exit(2);
    }
    s.threads = s.dev->threads;
    s.x = device(&s, (size_t)MAX_ROWS * 4096 * sizeof(float));
    s.y = device(&s, (size_t)MAX_ROWS * 4096 * sizeof(float));
    s.id = device(&s, (size_t)MAX_ROWS * TOP * sizeof(*s.id));
    s.weight = device(&s, (size_t)MAX_ROWS * TOP * sizeof(float));
    for (size_t i = 0; i < (size_t)MAX_ROWS * 4096; i++)
        s.x[i] = noise(i);
    printf("level %s, %s, %d threads\n", s.dev->ops.name,
           numerics == TD_NUM_F32 ? "f32" : "bf16", s.threads);
    if (!op || strcmp(op, "linear") == 0)
        bench_linear(&s, numerics);
    if (!op || strcmp(op, "experts") == 0)
        bench_experts(&s, numerics);
    s.dev->ops.close(s.dev);
}

int main(int argc, char **argv)
{
    const char *level = NULL, *op = NULL;
    int threads = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--level") == 0)
            level = argv[i + 1];
        else if (strcmp(argv[i], "--op") == 0)
            op = argv[i + 1];
        else if (strcmp(argv[i], "--threads") == 0)
            threads = (int)strtol(argv[i + 1], NULL, 10);
    }
    struct td_limits l;
    struct td_error err;
    td_error_init(&err);
    if (td_limits_measure(threads, 0, &l, &err) != TD_OK)
        return 2;
    printf("limits: read %.1f GB/s, f32 %.0f Gop/s, bf16 %.0f Gop/s\n", l.read * 1e-9,
           l.f32 * 1e-9, l.bf16 * 1e-9);
    bench(level, TD_NUM_BF16, threads, op);
    bench(level, TD_NUM_F32, threads, op);
    return 0;
}

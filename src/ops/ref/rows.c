/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row-wise operations: RMS norm with residual, gated norm, SwiGLU, the best of a row.
 */
#include "ops/ref/ref.h"

#include <math.h>
#include <string.h>

float td_ref_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

float td_ref_silu(float x)
{
    return x * td_ref_sigmoid(x);
}

static float inverse_rms(const float *x, int64_t n, float eps)
{
    return 1.0f / sqrtf(td_ref_dot(x, x, n) / (float)n + eps);
}

static void norm_rows(struct td_cpu *cpu, const void *args, int64_t first, int64_t last)
{
    const struct td_norm_args *a = args;
    (void)cpu;
    for (int64_t r = first; r < last; r++) {
        int64_t from = a->index ? a->index[r] : r;
        const float *x = a->x + from * a->h;
        const float *add = a->add ? a->add + from * a->h : NULL;
        float *y = a->y + r * a->y_stride;
        for (int64_t i = 0; i < a->h; i++)
            y[i] = add ? x[i] + add[i] : x[i];
        if (a->sum)
            memcpy(a->sum + r * a->h, y, (size_t)a->h * sizeof(*y));
        float s = inverse_rms(y, a->h, a->eps);
        for (int64_t i = 0; i < a->h; i++)
            y[i] = y[i] * s * a->w[i];
    }
}

static void ref_norm(struct td_dev *dev, const struct td_norm_args *a)
{
    td_cpu_run((struct td_cpu *)dev, a->rows, 0, norm_rows, a);
}

static void gated_norm_heads(struct td_cpu *cpu, const void *args, int64_t first,
                             int64_t last)
{
    const struct td_gated_norm_args *a = args;
    (void)cpu;
    for (int64_t i = first; i < last; i++) {
        float *x = a->x + i * a->dim;
        const float *z = a->z + i * a->dim;
        float s = inverse_rms(x, a->dim, a->eps);
        for (int32_t d = 0; d < a->dim; d++)
            x[d] = x[d] * s * a->w[d] * td_ref_silu(z[d]);
    }
}

static void ref_gated_norm(struct td_dev *dev, const struct td_gated_norm_args *a)
{
    int64_t heads = (int64_t)a->rows * a->heads;
    td_cpu_run((struct td_cpu *)dev, heads, 0, gated_norm_heads, a);
}

static void swiglu_elements(struct td_cpu *cpu, const void *args, int64_t first,
                            int64_t last)
{
    const struct td_swiglu_args *a = args;
    (void)cpu;
    for (int64_t i = first; i < last; i++)
        a->gate[i] = td_ref_silu(a->gate[i]) * a->up[i];
}

static void ref_swiglu(struct td_dev *dev, const struct td_swiglu_args *a)
{
    td_cpu_run((struct td_cpu *)dev, a->rows * a->n, 0, swiglu_elements, a);
}

/* Puts (id, x) into its place among n sorted ones if it belongs there. */
static void keep_best(struct td_candidates *c, int32_t id, float x)
{
    int32_t at = TD_CANDIDATES;
    while (at > 0 && x > c->logit[at - 1])
        at--;
    for (int32_t i = TD_CANDIDATES - 1; i > at; i--) {
        c->id[i] = c->id[i - 1];
        c->logit[i] = c->logit[i - 1];
    }
    if (at < TD_CANDIDATES) {
        c->id[at] = id;
        c->logit[at] = x;
    }
}

static void best_of_rows(struct td_cpu *cpu, const void *args, int64_t first,
                         int64_t last)
{
    const struct td_candidates_args *a = args;
    (void)cpu;
    for (int64_t r = first; r < last; r++) {
        const float *x = a->logits + r * a->stride;
        struct td_candidates *c = &a->out[r];
        double sum = 0;
        for (int32_t i = 0; i < TD_CANDIDATES; i++) {
            c->id[i] = -1;
            c->logit[i] = -INFINITY;
        }
        for (int64_t i = 0; i < a->n; i++)
            keep_best(c, (int32_t)(a->first + i), x[i]);
        c->max = c->logit[0];
        for (int64_t i = 0; i < a->n; i++)
            sum += isfinite(x[i]) ? (double)expf(x[i] - c->max) : (double)NAN;
        c->sum = (float)sum;
    }
}

static void ref_candidates(struct td_dev *dev, const struct td_candidates_args *a)
{
    td_cpu_run((struct td_cpu *)dev, a->rows, 1, best_of_rows, a);
}

void td_ref_fill_rows(struct td_ops *ops)
{
    ops->norm = ref_norm;
    ops->gated_norm = ref_gated_norm;
    ops->swiglu = ref_swiglu;
    ops->candidates = ref_candidates;
}

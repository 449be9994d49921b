/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row-wise operations: RMS norm with residual, gated norm, SwiGLU.
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

static void ref_norm(struct td_dev *dev, const struct td_norm_args *a)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int32_t r = 0; r < a->rows; r++) {
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

static void ref_gated_norm(struct td_dev *dev, const struct td_gated_norm_args *a)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < (int64_t)a->rows * a->heads; i++) {
        float *x = a->x + i * a->dim;
        const float *z = a->z + i * a->dim;
        float s = inverse_rms(x, a->dim, a->eps);
        for (int32_t d = 0; d < a->dim; d++)
            x[d] = x[d] * s * a->w[d] * td_ref_silu(z[d]);
    }
}

static void ref_swiglu(struct td_dev *dev, const struct td_swiglu_args *a)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < a->rows * a->n; i++)
        a->gate[i] = td_ref_silu(a->gate[i]) * a->up[i];
}

void td_ref_fill_rows(struct td_ops *ops)
{
    ops->norm = ref_norm;
    ops->gated_norm = ref_gated_norm;
    ops->swiglu = ref_swiglu;
}

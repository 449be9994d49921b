/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RMS norm of a row that a block of NORM_THREADS threads (or more, of which the rest
 * only meet) holds in registers. One order of sums, whichever kernel makes the norm.
 */
#ifndef TD_OPS_CUDA_NORM_CUH
#define TD_OPS_CUDA_NORM_CUH

#include "ops/cuda/device.cuh"

enum {
    NORM_THREADS = 256,
    NORM_QUADS = 8 /* groups of four numbers that a thread may hold */
};

/* A row that a block holds in registers, Q groups of four a thread, and its weights. */
template <int Q> struct td_quads {
    float4 w[Q], v[Q];
};

template <int Q>
TD_DEVICE void td_load_norm(const struct td_norm_args &a, td_quads<Q> *q)
{
    const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
    int t = (int)threadIdx.x;
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + NORM_THREADS * i;
        q->w[i] =
            t < NORM_THREADS && at < (int)a.h / 4 ? ((const float4 *)a.w)[at] : zero;
    }
}

/* Loads and adds up row `from`, by way of WARP numbers of shared memory; gives the factor
 * that makes its root mean square 1. */
template <int Q>
TD_DEVICE float td_sum_row(const struct td_norm_args &a, int64_t from, float *part,
                           td_quads<Q> *q)
{
    const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
    int t = (int)threadIdx.x, n = t < NORM_THREADS ? (int)a.h / 4 : 0;
    float4 *v = q->v;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + NORM_THREADS * i;
        v[i] = at < n ? ((const float4 *)(a.x + from * a.h))[at] : zero;
    }
    if (a.add) {
#pragma unroll
        for (int i = 0; i < Q; i++) {
            int at = t + NORM_THREADS * i;
            float4 d = at < n ? ((const float4 *)(a.add + from * a.h))[at] : zero;
            v[i] = make_float4(v[i].x + d.x, v[i].y + d.y, v[i].z + d.z, v[i].w + d.w);
        }
    }
#pragma unroll
    for (int i = 0; i < Q; i++) {
        squares = fmaf(v[i].x, v[i].x, squares);
        squares = fmaf(v[i].y, v[i].y, squares);
        squares = fmaf(v[i].z, v[i].z, squares);
        squares = fmaf(v[i].w, v[i].w, squares);
    }
    return 1.0f / sqrtf(td_block_sum_by(part, squares) / (float)a.h + a.eps);
}

template <int Q> TD_DEVICE float4 td_normed(const td_quads<Q> &q, int i, float s)
{
    return make_float4(q.v[i].x * s * q.w[i].x, q.v[i].y * s * q.w[i].y,
                       q.v[i].z * s * q.w[i].z, q.v[i].w * s * q.w[i].w);
}

static inline bool td_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* Whether a block can hold a row in quads. */
static inline bool td_norm_holds(const struct td_norm_args *a)
{
    return a->h % 4 == 0 && a->y_stride % 4 == 0 && td_aligned(a->x) &&
           td_aligned(a->y) && td_aligned(a->w) && (!a->add || td_aligned(a->add)) &&
           (!a->sum || td_aligned(a->sum)) && a->h <= 4 * NORM_THREADS * NORM_QUADS;
}

#endif

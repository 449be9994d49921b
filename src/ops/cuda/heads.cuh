/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's way in, a warp for a head: norm and rotation of a query or key. Lane l has
 * quads l and l + 32 of the head; those that turn are all among the lanes' first ones.
 */
#ifndef TD_OPS_CUDA_HEADS_CUH
#define TD_OPS_CUDA_HEADS_CUH

#include "ops/cuda/device.cuh"

enum { HEAD_QUADS = TD_CUDA_MAX_DIM / 4 / WARP };

/* A lane's part of a head. */
struct td_head {
    float4 quad[HEAD_QUADS];
};

TD_DEVICE td_head td_head_load(const float *from, int32_t dim)
{
    int lane = (int)threadIdx.x % WARP;
    td_head h;
#pragma unroll
    for (int i = 0; i < HEAD_QUADS; i++)
        h.quad[i] = lane + WARP * i < dim / 4 ? ((const float4 *)from)[lane + WARP * i]
                                              : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return h;
}

/* Sines and cosines of a lane's quad. */
struct td_turn {
    float sine[4], cosine[4];
};

TD_DEVICE td_turn td_turn_of(const float *inv_freq, int32_t rotary, int32_t pos)
{
    td_turn t;
    int half = rotary / 2, lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float angle = half ? (float)pos * inv_freq[(4 * lane + e) % half] : 0.0f;
        t.sine[e] = sinf(angle);
        t.cosine[e] = cosf(angle);
    }
    return t;
}

/* x turned, lanes of the second half being partners of those of the first. */
TD_DEVICE float4 td_turned(float4 x, const td_turn &t, int32_t rotary)
{
    int lane = (int)threadIdx.x % WARP, quads = rotary / 8;
    int other = lane < quads ? lane + quads : lane - quads;
    float own[4] = {x.x, x.y, x.z, x.w}, y[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float partner = __shfl_sync(0xffffffff, own[e], other & (WARP - 1));
        y[e] = lane < quads ? own[e] * t.cosine[e] - partner * t.sine[e]
                            : own[e] * t.cosine[e] + partner * t.sine[e];
    }
    return lane < 2 * quads ? make_float4(y[0], y[1], y[2], y[3]) : x;
}

/* The head's norm, times w, then turned. */
TD_DEVICE void td_head_enter(td_head &h, const td_head &w, const td_turn &t,
                             int32_t dim, int32_t rotary, float eps)
{
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < HEAD_QUADS; i++) {
        const float4 &x = h.quad[i];
        squares = fmaf(x.x, x.x, squares);
        squares = fmaf(x.y, x.y, squares);
        squares = fmaf(x.z, x.z, squares);
        squares = fmaf(x.w, x.w, squares);
    }
    float s = 1.0f / sqrtf(td_warp_sum(squares) / (float)dim + eps);
#pragma unroll
    for (int i = 0; i < HEAD_QUADS; i++) {
        const float4 &x = h.quad[i], &v = w.quad[i];
        h.quad[i] =
            make_float4(x.x * s * v.x, x.y * s * v.y, x.z * s * v.z, x.w * s * v.w);
    }
    h.quad[0] = td_turned(h.quad[0], t, rotary);
}

/* Whether a warp takes these heads: everything lies in whole quads. */
static inline bool td_heads_in_quads(const struct td_qkv_args *a)
{
    return a->head_dim % 4 == 0 && a->rotary % 8 == 0 && a->rotary <= 4 * WARP &&
           ((uintptr_t)a->qg | (uintptr_t)a->k | (uintptr_t)a->v |
            (uintptr_t)a->q_norm | (uintptr_t)a->k_norm | (uintptr_t)a->kv.k |
            (uintptr_t)a->kv.v) %
                   16 ==
               0;
}

#endif

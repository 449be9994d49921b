/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of experts of a row, made by a warp: by a kernel of its own, or by whoever
 * needs it.
 */
#ifndef TD_OPS_CUDA_ROUTE_CUH
#define TD_OPS_CUDA_ROUTE_CUH

#include "ops/cuda/device.cuh"

enum { TD_ROUTE_HELD = 8 /* experts that a lane usually holds */ };

/* Of lane i the i-th choice: its probability before all are made to add up to 1. */
struct td_choice {
    int32_t id;
    float p;
};

/* Lane l's experts l, l + 32, ...: exp(logit - the largest), as bits (numbers that are not
 * negative are ordered like them), -1 for none; sum: of all in every lane. */
template <int HELD>
TD_DEVICE void td_exps(const float *logits, int32_t experts, int32_t (&p)[HELD],
                       float *sum)
{
    int32_t lane = (int32_t)threadIdx.x % WARP;
    float x[HELD], top = -INFINITY, all = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int32_t e = lane + WARP * i;
        x[i] = e < experts ? logits[e] : -INFINITY;
        top = fmaxf(top, x[i]);
    }
    top = td_warp_max(top);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        bool have = lane + WARP * i < experts;
        x[i] = expf(x[i] - top);
        all += have ? x[i] : 0.0f;
        p[i] = have ? __float_as_int(x[i]) : -1;
    }
    *sum = td_warp_sum(all);
}

/* The k best of a warp's experts, larger ones first, of equal ones the lower id. Each lane
 * puts its own in order first; then only the heads are compared. */
template <int HELD>
TD_DEVICE td_choice td_best(int32_t (&p)[HELD], int32_t experts, int32_t k)
{
    int32_t lane = (int32_t)threadIdx.x % WARP, id[HELD];
    td_choice mine = {0, 0.0f};
#pragma unroll
    for (int i = 0; i < HELD; i++)
        id[i] = lane + WARP * i;
#pragma unroll
    for (int n = 0; n < HELD; n++) /* neighbours in turn; equal ones stay in order */
#pragma unroll
        for (int i = n % 2; i + 1 < HELD; i += 2) {
            bool swap = p[i] < p[i + 1];
            int32_t q = swap ? p[i + 1] : p[i], r = swap ? id[i + 1] : id[i];
            p[i + 1] = swap ? p[i] : p[i + 1];
            id[i + 1] = swap ? id[i] : id[i + 1];
            p[i] = q;
            id[i] = r;
        }
    for (int32_t i = 0; i < k; i++) {
        int32_t most = __reduce_max_sync(0xffffffff, p[0]);
        uint32_t lanes = __ballot_sync(0xffffffff, p[0] == most);
        int32_t from = __ffs((int)lanes) - 1;
        if (lanes & (lanes - 1)) {
            int32_t at =
                __reduce_min_sync(0xffffffff, p[0] == most ? id[0] : INT32_MAX);
            from = at % WARP;
        }
        int32_t best = __shfl_sync(0xffffffff, id[0], from);
        if (lane == i) {
            mine.id = min(best, experts - 1); /* of numbers that are none, any */
            mine.p = __int_as_float(most);
        }
        if (lane == from) {
#pragma unroll
            for (int j = 0; j + 1 < HELD; j++) {
                p[j] = p[j + 1];
                id[j] = id[j + 1];
            }
            p[HELD - 1] = -1;
        }
    }
    return mine;
}

/* Of lane i the i-th choice's expert. */
template <int HELD>
TD_DEVICE int32_t td_choose_id(const float *logits, int32_t experts, int32_t k)
{
    int32_t p[HELD];
    float sum;
    td_exps<HELD>(logits, experts, p, &sum);
    return td_best<HELD>(p, experts, k).id;
}

/* The same with its weight for p. */
template <int HELD>
TD_DEVICE td_choice td_choose(const float *logits, int32_t experts, int32_t k)
{
    int32_t p[HELD];
    float sum, chosen = 0.0f;
    td_exps<HELD>(logits, experts, p, &sum);
    td_choice c = td_best<HELD>(p, experts, k);
    c.p /= sum;
    for (int32_t i = 0; i < k; i++)
        chosen += __shfl_sync(0xffffffff, c.p, i);
    c.p /= chosen;
    return c;
}

#endif

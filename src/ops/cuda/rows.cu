/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row-wise operations: RMS norm with residual, gated norm, SwiGLU, the choice of experts.
 */
#include "ops/cuda/device.cuh"

enum { ROW_THREADS = 256 };

/* A block for each row. */
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_row(const struct td_norm_args a)
{
    int64_t row = blockIdx.x, from = a.index ? a.index[row] : row;
    const float *x = a.x + from * a.h;
    const float *add = a.add ? a.add + from * a.h : NULL;
    float *sum = a.sum ? a.sum + row * a.h : NULL;
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < a.h; i += ROW_THREADS) {
        float v = add ? x[i] + add[i] : x[i];
        if (sum)
            sum[i] = v;
        squares = fmaf(v, v, squares);
    }
    float s = 1.0f / sqrtf(td_block_sum(squares) / (float)a.h + a.eps);
    for (int64_t i = threadIdx.x; i < a.h; i += ROW_THREADS) {
        float v = sum ? sum[i] : add ? x[i] + add[i] : x[i];
        a.y[row * a.y_stride + i] = v * s * a.w[i];
    }
}

extern "C" void td_cuda_norm(const struct td_cuda_ctx *c, const struct td_norm_args *a)
{
    norm_row<<<(unsigned)a->rows, ROW_THREADS, 0, c->stream>>>(*a);
}

/* A warp for each head of each row. */
static __global__ void __launch_bounds__(ROW_THREADS)
    gated_norm_head(const struct td_gated_norm_args a)
{
    int64_t i = (int64_t)blockIdx.x * (ROW_THREADS / WARP) + threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    if (i >= (int64_t)a.rows * a.heads)
        return;
    float *x = a.x + i * a.dim;
    const float *z = a.z + i * a.dim;
    float squares = 0.0f;
    for (int d = lane; d < a.dim; d += WARP)
        squares = fmaf(x[d], x[d], squares);
    float s = 1.0f / sqrtf(td_warp_sum(squares) / (float)a.dim + a.eps);
    for (int d = lane; d < a.dim; d += WARP)
        x[d] = x[d] * s * a.w[d] * td_silu(z[d]);
}

extern "C" void td_cuda_gated_norm(const struct td_cuda_ctx *c,
                                   const struct td_gated_norm_args *a)
{
    const int heads = ROW_THREADS / WARP;
    int64_t n = (int64_t)a->rows * a->heads;
    gated_norm_head<<<(unsigned)((n + heads - 1) / heads), ROW_THREADS, 0, c->stream>>>(
        *a);
}

static __global__ void __launch_bounds__(ROW_THREADS)
    swiglu_element(float *gate, const float *up, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (i < n)
        gate[i] = td_silu(gate[i]) * up[i];
}

extern "C" void td_cuda_swiglu(const struct td_cuda_ctx *c,
                               const struct td_swiglu_args *a)
{
    int64_t n = a->rows * a->n;
    swiglu_element<<<(unsigned)((n + ROW_THREADS - 1) / ROW_THREADS), ROW_THREADS, 0,
                     c->stream>>>(a->gate, a->up, n);
}

/* A warp for each row. Lane l holds experts l, l + 32, ... */
static __global__ void __launch_bounds__(WARP) route_row(const struct td_route_args a)
{
    __shared__ float p[TD_CUDA_MAX_EXPERTS];
    int64_t row = blockIdx.x;
    int lane = (int)threadIdx.x;
    const float *logit = a.logits + row * a.experts;
    float top = -INFINITY, all = 0.0f, chosen = 0.0f, mine = 0.0f;
    for (int e = lane; e < a.experts; e += WARP)
        top = fmaxf(top, logit[e]);
    top = td_warp_max(top);
    for (int e = lane; e < a.experts; e += WARP) {
        p[e] = expf(logit[e] - top);
        all += p[e];
    }
    all = td_warp_sum(all);
    for (int i = 0; i < a.k; i++) {
        float best = -2.0f;
        int at = a.experts;
        for (int e = lane; e < a.experts; e += WARP)
            if (p[e] > best) {
                best = p[e];
                at = e;
            }
        for (int d = WARP / 2; d; d /= 2) {
            float other = __shfl_xor_sync(0xffffffff, best, d);
            int from = __shfl_xor_sync(0xffffffff, at, d);
            if (other > best || (other == best && from < at)) {
                best = other;
                at = from;
            }
        }
        at = min(at, a.experts - 1); /* nothing is larger than a logit of NaN */
        float w = best / all;
        chosen += w;
        if (lane == i)
            mine = w;
        if (lane == at % WARP)
            p[at] = -1.0f;
        if (lane == 0)
            a.id[row * a.k + i] = at;
        __syncwarp();
    }
    if (lane < a.k)
        a.weight[row * a.k + lane] = mine / chosen;
}

extern "C" void td_cuda_route(const struct td_cuda_ctx *c,
                              const struct td_route_args *a)
{
    route_row<<<(unsigned)a->rows, WARP, 0, c->stream>>>(*a);
}

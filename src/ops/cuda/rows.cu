/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row-wise operations: RMS norm with residual, gated norm, SwiGLU, the choice of experts.
 */
#include "ops/cuda/planes.cuh"

enum {
    ROW_THREADS = 256,
    NORM_QUADS = 8, /* groups of four numbers that a thread of norm_quads() may hold */
    ROUTE_HELD = 8  /* experts that a lane of route_row() may hold */
};

/* A block for each row of any length. */
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_row(const struct td_norm_args a)
{
    td_wait();
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

/* A block for each row, which it holds in registers, Q groups of four a thread. */
template <int Q>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_quads(const struct td_norm_args a, const struct td_planes_out planes)
{
    int quads = (int)a.h / 4, t = (int)threadIdx.x;
    const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
    float4 w[Q], v[Q];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + ROW_THREADS * i;
        w[i] = at < quads ? ((const float4 *)a.w)[at] : zero;
    }
    td_wait();
    int64_t row = blockIdx.x, from = a.index ? a.index[row] : row;
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + ROW_THREADS * i;
        v[i] = at < quads ? ((const float4 *)(a.x + from * a.h))[at] : zero;
    }
    if (a.add) {
#pragma unroll
        for (int i = 0; i < Q; i++) {
            int at = t + ROW_THREADS * i;
            float4 d = at < quads ? ((const float4 *)(a.add + from * a.h))[at] : zero;
            v[i] = make_float4(v[i].x + d.x, v[i].y + d.y, v[i].z + d.z, v[i].w + d.w);
        }
    }
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + ROW_THREADS * i;
        if (a.sum && at < quads)
            ((float4 *)(a.sum + row * a.h))[at] = v[i];
        squares = fmaf(v[i].x, v[i].x, squares);
        squares = fmaf(v[i].y, v[i].y, squares);
        squares = fmaf(v[i].z, v[i].z, squares);
        squares = fmaf(v[i].w, v[i].w, squares);
    }
    float s = 1.0f / sqrtf(td_block_sum(squares) / (float)a.h + a.eps);
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + ROW_THREADS * i;
        if (at >= quads)
            continue;
        float4 y = make_float4(v[i].x * s * w[i].x, v[i].y * s * w[i].y,
                               v[i].z * s * w[i].z, v[i].w * s * w[i].w);
        ((float4 *)(a.y + row * a.y_stride))[at] = y;
        td_planes_store4(y, planes.n, planes.to + row * a.h + 4 * at, planes.plane);
    }
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

extern "C" void td_cuda_norm(const struct td_cuda_ctx *c, const struct td_norm_args *a)
{
    dim3 grid((unsigned)a->rows);
    bool quads = a->h % 4 == 0 && a->y_stride % 4 == 0 && aligned(a->x) &&
                 aligned(a->y) && aligned(a->w) && (!a->add || aligned(a->add)) &&
                 (!a->sum || aligned(a->sum));
    struct td_planes_out planes = {};
    c->made->x = NULL;
    if (!quads || a->h > 4 * ROW_THREADS * NORM_QUADS) {
        td_start(c, norm_row, grid, ROW_THREADS, 0, *a);
        return;
    }
    if (a->y_stride == a->h)
        planes = td_planes_for(c, a->y, a->rows, a->h, 3); /* exact ones may follow */
    if (a->h <= 4 * ROW_THREADS * 2)
        td_start(c, norm_quads<2>, grid, ROW_THREADS, 0, *a, planes);
    else if (a->h <= 4 * ROW_THREADS * 4)
        td_start(c, norm_quads<4>, grid, ROW_THREADS, 0, *a, planes);
    else
        td_start(c, norm_quads<NORM_QUADS>, grid, ROW_THREADS, 0, *a, planes);
}

/* A warp for each head of each row. */
static __global__ void __launch_bounds__(ROW_THREADS)
    gated_norm_head(const struct td_gated_norm_args a,
                    const struct td_planes_out planes)
{
    td_wait();
    int64_t i = (int64_t)blockIdx.x * (ROW_THREADS / WARP) + threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    if (i >= (int64_t)a.rows * a.heads)
        return;
    float *x = a.x + i * a.dim;
    const float *z = a.z + i * a.dim;
    float squares = 0.0f;
    if (a.dim == 4 * WARP) {
        float4 v = ((const float4 *)x)[lane], g = ((const float4 *)z)[lane];
        float4 w = ((const float4 *)a.w)[lane];
        squares = v.x * v.x;
        squares = fmaf(v.y, v.y, squares);
        squares = fmaf(v.z, v.z, squares);
        squares = fmaf(v.w, v.w, squares);
        float s = 1.0f / sqrtf(td_warp_sum(squares) / (float)a.dim + a.eps);
        v = make_float4(v.x * s * w.x * td_silu(g.x), v.y * s * w.y * td_silu(g.y),
                        v.z * s * w.z * td_silu(g.z), v.w * s * w.w * td_silu(g.w));
        ((float4 *)x)[lane] = v;
        td_planes_store4(v, planes.n, planes.to + i * a.dim + 4 * lane, planes.plane);
        return;
    }
    for (int d = lane; d < a.dim; d += WARP)
        squares = fmaf(x[d], x[d], squares);
    float s = 1.0f / sqrtf(td_warp_sum(squares) / (float)a.dim + a.eps);
    for (int d = lane; d < a.dim; d += WARP) {
        x[d] = x[d] * s * a.w[d] * td_silu(z[d]);
        td_planes_store(x[d], planes.n, planes.to + i * a.dim + d, planes.plane);
    }
}

extern "C" void td_cuda_gated_norm(const struct td_cuda_ctx *c,
                                   const struct td_gated_norm_args *a)
{
    const int heads = ROW_THREADS / WARP;
    int64_t n = (int64_t)a->rows * a->heads;
    struct td_planes_out planes = td_planes_for(
        c, a->x, a->rows, (int64_t)a->heads * a->dim, td_planes_rounded(c));
    td_start(c, gated_norm_head, dim3((unsigned)((n + heads - 1) / heads)), ROW_THREADS,
             0, *a, planes);
}

static __global__ void __launch_bounds__(ROW_THREADS)
    swiglu_element(float *gate, const float *up, int64_t n,
                   const struct td_planes_out planes)
{
    td_wait();
    int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (i >= n)
        return;
    gate[i] = td_silu(gate[i]) * up[i];
    td_planes_store(gate[i], planes.n, planes.to + i, planes.plane);
}

extern "C" void td_cuda_swiglu(const struct td_cuda_ctx *c,
                               const struct td_swiglu_args *a)
{
    int64_t n = a->rows * a->n;
    struct td_planes_out planes =
        td_planes_for(c, a->gate, a->rows, a->n, td_planes_rounded(c));
    td_start(c, swiglu_element, dim3((unsigned)((n + ROW_THREADS - 1) / ROW_THREADS)),
             ROW_THREADS, 0, a->gate, a->up, n, planes);
}

/* A warp for each row. Lane l holds experts l, l + 32, ...; probabilities are compared
 * by their bits, which for numbers that are not negative is the same. */
template <int HELD>
static __global__ void __launch_bounds__(WARP) route_row(const struct td_route_args a)
{
    int64_t row = blockIdx.x;
    int lane = (int)threadIdx.x;
    float p[HELD], top = -INFINITY, all = 0.0f, chosen = 0.0f, mine = 0.0f;
    int mine_at = 0;
    td_wait();
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int e = lane + WARP * i;
        p[i] = e < a.experts ? a.logits[row * a.experts + e] : -INFINITY;
        top = fmaxf(top, p[i]);
    }
    top = td_warp_max(top);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        bool have = lane + WARP * i < a.experts;
        p[i] = have ? expf(p[i] - top) : -1.0f;
        all += have ? p[i] : 0.0f;
    }
    all = td_warp_sum(all);
    for (int k = 0; k < a.k; k++) {
        int best = __float_as_int(-1.0f), at = a.experts - 1;
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (__float_as_int(p[i]) > best) {
                best = __float_as_int(p[i]);
                at = lane + WARP * i;
            }
        int most = __reduce_max_sync(0xffffffff, best);
        at = __reduce_min_sync(0xffffffff, best == most ? at : a.experts - 1);
        float w = __int_as_float(most) / all;
        chosen += w;
        if (lane == k) {
            mine = w;
            mine_at = at;
        }
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (lane + WARP * i == at)
                p[i] = -1.0f;
    }
    if (lane < a.k) {
        a.id[row * a.k + lane] = mine_at;
        a.weight[row * a.k + lane] = mine / chosen;
    }
}

extern "C" void td_cuda_route(const struct td_cuda_ctx *c,
                              const struct td_route_args *a)
{
    if (a->experts <= WARP * ROUTE_HELD)
        td_start(c, route_row<ROUTE_HELD>, dim3((unsigned)a->rows), WARP, 0, *a);
    else
        td_start(c, route_row<TD_CUDA_MAX_EXPERTS / WARP>, dim3((unsigned)a->rows),
                 WARP, 0, *a);
}

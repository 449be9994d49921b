/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row-wise operations: RMS norm with residual, gated norm, SwiGLU, the choice of experts.
 */
#include "ops/cuda/norm.cuh"
#include "ops/cuda/planes.cuh"
#include "ops/cuda/route.cuh"

enum { ROW_THREADS = NORM_THREADS };

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

/* Writes the row's sum, if it is wanted, norm and planes. */
template <int Q>
TD_DEVICE void store_row(const struct td_norm_args &a, int64_t row,
                         const td_quads<Q> &q, float s,
                         const struct td_planes_out &planes)
{
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = (int)threadIdx.x + ROW_THREADS * i;
        if (at >= (int)a.h / 4)
            continue;
        float4 y = td_normed(q, i, s);
        if (a.sum)
            ((float4 *)(a.sum + row * a.h))[at] = q.v[i];
        ((float4 *)(a.y + row * a.y_stride))[at] = y;
        td_planes_store4_warp(y, planes, row, 4 * at);
    }
}

/* A block for each row. */
template <int Q>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_quads(const struct td_norm_args a, const struct td_planes_out planes)
{
    __shared__ float part[WARP];
    td_quads<Q> q;
    int64_t row = blockIdx.x;
    td_load_norm(a, &q);
    td_wait_early(gridDim.x);
    float s = td_sum_row(a, a.index ? a.index[row] : row, part, &q);
    store_row(a, row, q, s, planes);
}

/* Exact products may follow, which exact.cu makes of many rows without planes. */
static int planes_of_norm(const struct td_cuda_ctx *c, int32_t rows)
{
    return td_planes_sliced(c, rows) ? td_planes_rounded(c) : 3;
}

extern "C" void td_cuda_norm(const struct td_cuda_ctx *c, const struct td_norm_args *a)
{
    dim3 grid((unsigned)a->rows);
    struct td_planes_out planes = {};
    c->made->x = NULL;
    if (!td_norm_holds(a)) {
        td_start(c, norm_row, grid, ROW_THREADS, 0, *a);
        return;
    }
    if (a->y_stride == a->h)
        planes =
            td_planes_for(c, a->y, a->rows, a->h, planes_of_norm(c, a->rows), NULL);
    if (a->h <= 4 * ROW_THREADS * 2)
        td_start(c, norm_quads<2>, grid, ROW_THREADS, 0, *a, planes);
    else if (a->h <= 4 * ROW_THREADS * 4)
        td_start(c, norm_quads<4>, grid, ROW_THREADS, 0, *a, planes);
    else
        td_start(c, norm_quads<NORM_QUADS>, grid, ROW_THREADS, 0, *a, planes);
}

/* A warp for each head of each row from `first` on. */
static __global__ void __launch_bounds__(ROW_THREADS)
    gated_norm_head(const struct td_gated_norm_args a, int32_t first,
                    const struct td_planes_out planes)
{
    td_wait();
    int64_t i = (int64_t)blockIdx.x * (ROW_THREADS / WARP) + threadIdx.x / WARP +
                (int64_t)first * a.heads;
    int lane = (int)threadIdx.x % WARP;
    if (i >= (int64_t)a.rows * a.heads)
        return;
    int64_t row = i / a.heads, k0 = i % a.heads * a.dim;
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
        if (!a.to_product || !planes.n)
            ((float4 *)x)[lane] = v;
        td_planes_store4_warp(v, planes, row, k0 + 4 * lane);
        return;
    }
    for (int d = lane; d < a.dim; d += WARP)
        squares = fmaf(x[d], x[d], squares);
    float s = 1.0f / sqrtf(td_warp_sum(squares) / (float)a.dim + a.eps);
    for (int d = lane; d < a.dim; d += WARP) {
        x[d] = x[d] * s * a.w[d] * td_silu(z[d]);
        td_planes_store(x[d], planes, row, k0 + d);
    }
}

void td_gated_norm_from(const struct td_cuda_ctx *c, const struct td_gated_norm_args *a,
                        int32_t first, const struct td_planes_out &planes)
{
    const int heads = ROW_THREADS / WARP;
    int64_t n = (int64_t)(a->rows - first) * a->heads;
    if (n)
        td_start(c, gated_norm_head, dim3((unsigned)((n + heads - 1) / heads)),
                 ROW_THREADS, 0, *a, first, planes);
}

extern "C" void td_cuda_gated_norm(const struct td_cuda_ctx *c,
                                   const struct td_gated_norm_args *a)
{
    struct td_planes_out planes =
        td_planes_for(c, a->x, a->rows, (int64_t)a->heads * a->dim,
                      td_planes_rounded(c), a->to_product);
    td_gated_norm_from(c, a, 0, planes);
}

static __global__ void __launch_bounds__(ROW_THREADS)
    swiglu_element(float *gate, const float *up, int64_t n, int64_t k,
                   const struct td_planes_out planes)
{
    td_wait();
    int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (i >= n)
        return;
    gate[i] = td_silu(gate[i]) * up[i];
    td_planes_store(gate[i], planes, i / k, i % k);
}

extern "C" void td_cuda_swiglu(const struct td_cuda_ctx *c,
                               const struct td_swiglu_args *a)
{
    int64_t n = a->rows * a->n;
    struct td_planes_out planes =
        td_planes_for(c, a->gate, a->rows, a->n, td_planes_rounded(c), NULL);
    td_start(c, swiglu_element, dim3((unsigned)((n + ROW_THREADS - 1) / ROW_THREADS)),
             ROW_THREADS, 0, a->gate, a->up, n, a->n, planes);
}

template <int HELD>
static __global__ void __launch_bounds__(WARP) route_row(const struct td_route_args a)
{
    td_wait();
    int64_t row = blockIdx.x;
    const td_choice c = td_choose<HELD>(a.logits + row * a.experts, a.experts, a.k);
    if ((int)threadIdx.x < a.k) {
        a.id[row * a.k + threadIdx.x] = c.id;
        a.weight[row * a.k + threadIdx.x] = c.p;
    }
}

extern "C" void td_cuda_route(const struct td_cuda_ctx *c,
                              const struct td_route_args *a)
{
    if (a->experts <= WARP * TD_ROUTE_HELD)
        td_start(c, route_row<TD_ROUTE_HELD>, dim3((unsigned)a->rows), WARP, 0, *a);
    else
        td_start(c, route_row<TD_CUDA_MAX_EXPERTS / WARP>, dim3((unsigned)a->rows),
                 WARP, 0, *a);
}

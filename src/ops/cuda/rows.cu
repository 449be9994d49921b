/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row-wise operations: RMS norm with residual, gated norm, SwiGLU, the choice of experts,
 * and all of the way into a mixture in one kernel where rows are few.
 */
#include "ops/cuda/planes.cuh"
#include "ops/cuda/small.cuh"

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

/* A row that a block holds in registers, Q groups of four a thread, and its weights. */
template <int Q> struct quads {
    float4 w[Q], v[Q];
};

template <int Q> TD_DEVICE void load_norm(const struct td_norm_args &a, quads<Q> *q)
{
    const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = (int)threadIdx.x + ROW_THREADS * i;
        q->w[i] = at < (int)a.h / 4 ? ((const float4 *)a.w)[at] : zero;
    }
}

/* Loads and adds up row `from`; gives the factor that makes its root mean square 1. */
template <int Q>
TD_DEVICE float sum_row(const struct td_norm_args &a, int64_t from, quads<Q> *q)
{
    const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
    int n = (int)a.h / 4, t = (int)threadIdx.x;
    float4 *v = q->v;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + ROW_THREADS * i;
        v[i] = at < n ? ((const float4 *)(a.x + from * a.h))[at] : zero;
    }
    if (a.add) {
#pragma unroll
        for (int i = 0; i < Q; i++) {
            int at = t + ROW_THREADS * i;
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
    return 1.0f / sqrtf(td_block_sum(squares) / (float)a.h + a.eps);
}

template <int Q> TD_DEVICE float4 normed(const quads<Q> &q, int i, float s)
{
    return make_float4(q.v[i].x * s * q.w[i].x, q.v[i].y * s * q.w[i].y,
                       q.v[i].z * s * q.w[i].z, q.v[i].w * s * q.w[i].w);
}

/* Writes the row's sum, if it is wanted, norm and planes. */
template <int Q>
TD_DEVICE void store_row(const struct td_norm_args &a, int64_t row, const quads<Q> &q,
                         float s, const struct td_planes_out &planes)
{
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = (int)threadIdx.x + ROW_THREADS * i;
        if (at >= (int)a.h / 4)
            continue;
        float4 y = normed(q, i, s);
        if (a.sum)
            ((float4 *)(a.sum + row * a.h))[at] = q.v[i];
        ((float4 *)(a.y + row * a.y_stride))[at] = y;
        td_planes_store4(y, planes, row, 4 * at);
    }
}

/* A block for each row. */
template <int Q>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_quads(const struct td_norm_args a, const struct td_planes_out planes)
{
    quads<Q> q;
    int64_t row = blockIdx.x;
    load_norm(a, &q);
    td_wait();
    float s = sum_row(a, a.index ? a.index[row] : row, &q);
    store_row(a, row, q, s, planes);
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* Whether a block can hold a row in quads. */
static bool holds_rows(const struct td_norm_args *a)
{
    return a->h % 4 == 0 && a->y_stride % 4 == 0 && aligned(a->x) && aligned(a->y) &&
           aligned(a->w) && (!a->add || aligned(a->add)) &&
           (!a->sum || aligned(a->sum)) && a->h <= 4 * ROW_THREADS * NORM_QUADS;
}

/* Exact products may follow, which exact.cu makes of many rows without planes. */
static int planes_of_norm(const struct td_cuda_ctx *c, int32_t rows)
{
    return c->warpgroups && rows > TD_CUDA_SMALL_ROWS ? td_planes_rounded(c) : 3;
}

extern "C" void td_cuda_norm(const struct td_cuda_ctx *c, const struct td_norm_args *a)
{
    dim3 grid((unsigned)a->rows);
    struct td_planes_out planes = {};
    c->made->x = NULL;
    if (!holds_rows(a)) {
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
        td_planes_store4(v, planes, row, k0 + 4 * lane);
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

/* A row's choice, made by a warp. Lane l holds experts l, l + 32, ...; probabilities are
 * compared by their bits, which for numbers that are not negative is the same. Logits may
 * come from other blocks of the same kernel. */
template <int HELD>
TD_DEVICE void choose_experts(const struct td_route_args &a, int64_t row)
{
    int lane = (int)threadIdx.x % WARP;
    float p[HELD], top = -INFINITY, all = 0.0f, chosen = 0.0f, mine = 0.0f;
    int mine_at = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int e = lane + WARP * i;
        p[i] = e < a.experts ? __ldcg(a.logits + row * a.experts + e) : -INFINITY;
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

template <int HELD>
static __global__ void __launch_bounds__(WARP) route_row(const struct td_route_args a)
{
    td_wait();
    choose_experts<HELD>(a, blockIdx.x);
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

/* ---- norm, gates and choice of few rows ---- */

struct choose {
    struct td_norm_args norm;
    struct td_route_args route;
    struct td_planes_out planes;
    int32_t ring;
    struct {
        const uint8_t *w;
        float *y;
        int64_t y_stride, n;
    } gate[2];
    int32_t *count; /* of each row's blocks that are done */
};

/* A block for 16 gates of a row. Each makes the row's norm, as planes in shared memory,
 * behind what small_ask() takes: [3][h], then [k blocks][16] sums. The last one that is
 * done writes it, when nobody reads the row any more, and chooses. */
template <int Q, int HELD>
static __global__ void __launch_bounds__(ROW_THREADS, 2)
    choose_row(const __grid_constant__ struct choose p)
{
    extern __shared__ uint4 shared[];
    __shared__ bool last;
    const struct td_norm_args &a = p.norm;
    int32_t tiles = (int32_t)((p.gate[0].n + SMALL_M - 1) / SMALL_M),
            t = (int)threadIdx.x;
    int32_t tile = (int32_t)blockIdx.x, second = tile >= tiles, lane = t % WARP;
    const auto &gate = p.gate[second];
    int64_t row = blockIdx.y, n0 = (int64_t)(second ? tile - tiles : tile) * SMALL_M;
    const uint8_t *w = gate.w + (n0 + lane / 4) * a.h * 2;
    const td_small_in in = {n0 + lane / 4 < gate.n ? w : NULL,
                            n0 + lane / 4 + 8 < gate.n ? w + 8 * a.h * 2 : NULL,
                            {NULL, NULL},
                            (int)(a.h / KB)};
    quads<Q> q;
    small_ask<TD_MAT_BF16, BLOCK_WARPS>(in, p.ring, shared);
    load_norm(a, &q);
    const auto place = small_place<TD_MAT_BF16, BLOCK_WARPS>(p.ring, in.blocks, shared);
    uint16_t *x = (uint16_t *)place.parts;
    float *parts = (float *)(x + 3 * a.h);
    td_wait();
    float total = 0.0f, s = sum_row(a, row, &q);
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + ROW_THREADS * i;
        if (at < (int)a.h / 4)
            td_planes_store4(normed(q, i, s), 3, x + 4 * at, a.h);
    }
    __syncthreads();
    small_parts<TD_MAT_BF16, 3, BLOCK_WARPS>(in, place, lane < 4 ? x : NULL, a.h,
                                             parts);
    __syncthreads();
    if (t < SMALL_M && n0 + t < gate.n) {
        for (int b = 0; b < in.blocks; b++)
            total = fmaf(parts[b * SMALL_M + t], 1.0f, total);
        gate.y[row * gate.y_stride + n0 + t] = total;
        __threadfence();
    }
    __syncthreads();
    if (t == 0)
        last = atomicAdd(&p.count[row], 1) == (int)gridDim.x - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    if (t < WARP)
        choose_experts<HELD>(p.route, row);
    store_row(a, row, q, s, p.planes);
    if (t == 0)
        p.count[row] = 0;
}

/* Shared memory of choose_row() besides that of small_ask(). */
static size_t choose_bytes(int64_t h)
{
    return (size_t)h * 3 * sizeof(uint16_t) +
           (size_t)(h / KB) * SMALL_M * sizeof(float);
}

/* Whether choose_row() takes these rows and gates. */
static bool chooses(const struct td_cuda_ctx *c, const struct td_choose_args *a)
{
    const struct td_norm_args *n = &a->norm;
    bool good = n->rows <= TD_CUDA_FEW_ROWS && holds_rows(n) && n->h % KB == 0 &&
                n->y_stride == n->h && !n->index && a->gates.count <= 2;
    for (int i = 0; i < a->gates.count; i++)
        good =
            good && a->gates.term[i].w->type == TD_MAT_BF16 && a->gates.term[i].exact;
    return good &&
           BLOCK_WARPS * td_slot_bytes(TD_MAT_BF16) + choose_bytes(n->h) + 2048 <=
               (size_t)c->shared_max;
}

template <int Q>
static void start_choose(const struct td_cuda_ctx *c, const struct td_choose_args *a)
{
    struct choose p = {a->norm, a->route, {}, 0, {}, c->counts};
    size_t bytes;
    unsigned tiles = 0;
    for (int i = 0; i < a->gates.count; i++) {
        const auto *t = &a->gates.term[i];
        p.gate[i].w = (const uint8_t *)t->w->data;
        p.gate[i].y = t->y;
        p.gate[i].y_stride = t->y_stride;
        p.gate[i].n = t->w->n;
        tiles += (unsigned)((t->w->n + SMALL_M - 1) / SMALL_M);
    }
    p.planes = td_planes_for(c, a->norm.y, a->norm.rows, a->norm.h,
                             td_planes_rounded(c), NULL);
    p.ring = td_one_plan(c,
                         {(int64_t)tiles * a->norm.rows, BLOCK_WARPS,
                          (int)(a->norm.h / KB), TD_MAT_BF16, choose_bytes(a->norm.h)},
                         &bytes);
    dim3 grid(tiles, (unsigned)a->norm.rows);
    if (a->route.experts <= WARP * ROUTE_HELD)
        td_start(c, choose_row<Q, ROUTE_HELD>, grid, ROW_THREADS, bytes, p);
    else
        td_start(c, choose_row<Q, TD_CUDA_MAX_EXPERTS / WARP>, grid, ROW_THREADS, bytes,
                 p);
}

extern "C" void td_cuda_choose(const struct td_cuda_ctx *c,
                               const struct td_choose_args *a)
{
    if (!chooses(c, a)) {
        td_cuda_norm(c, &a->norm);
        td_cuda_linear(c, &a->gates);
        td_cuda_route(c, &a->route);
    } else if (a->norm.h <= 4 * ROW_THREADS * 2) {
        start_choose<2>(c, a);
    } else if (a->norm.h <= 4 * ROW_THREADS * 4) {
        start_choose<4>(c, a);
    } else {
        start_choose<NORM_QUADS>(c, a);
    }
}

template <int Q> static void allow_choose(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    int most = c->shared_max - 1024; /* the rest is static */
    (void)cudaFuncSetAttribute(choose_row<Q, ROUTE_HELD>, bytes, most);
    (void)cudaFuncSetAttribute(choose_row<Q, TD_CUDA_MAX_EXPERTS / WARP>, bytes, most);
}

extern "C" void td_cuda_prepare_rows(const struct td_cuda_ctx *c)
{
    allow_choose<2>(c);
    allow_choose<4>(c);
    allow_choose<NORM_QUADS>(c);
}

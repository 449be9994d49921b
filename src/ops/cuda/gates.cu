/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way into a mixture, of few rows: their norm and the logits of the router and of the
 * shared expert's gate in one kernel. The experts' kernels choose by themselves.
 */
#include "ops/cuda/norm.cuh"
#include "ops/cuda/planes.cuh"
#include "ops/cuda/small.cuh"

enum { GATE_THREADS = MANY_WARPS * WARP };

struct gates {
    struct td_norm_args norm;
    struct td_planes_out planes;
    int32_t ring;
    struct {
        const uint8_t *w;
        float *y;
        int64_t y_stride, n;
    } gate[2];
};

/* A block for 16 gates of a row. Each makes the row's norm, as planes in shared memory,
 * behind what small_ask() takes: [3][h], then [k blocks][16] sums. A row's last block has
 * no gates: it stores the norm, which would keep one of the others from its products. */
template <int Q>
static __global__ void __launch_bounds__(GATE_THREADS, 1)
    gates_row(const __grid_constant__ struct gates p)
{
    extern __shared__ uint4 shared[];
    __shared__ float part[WARP];
    const struct td_norm_args &a = p.norm;
    int32_t tiles = (int32_t)((p.gate[0].n + SMALL_M - 1) / SMALL_M);
    int32_t t = (int32_t)threadIdx.x, lane = t % WARP, tile = (int32_t)blockIdx.x;
    bool second = tile >= tiles;
    const auto &gate = p.gate[second];
    int64_t row = blockIdx.y, n0 = (int64_t)(second ? tile - tiles : tile) * SMALL_M;
    const uint8_t *w = gate.w + (n0 + lane / 4) * a.h * 2;
    const td_small_in in = {n0 + lane / 4 < gate.n ? w : NULL,
                            n0 + lane / 4 + 8 < gate.n ? w + 8 * a.h * 2 : NULL,
                            {NULL, NULL},
                            (int)(a.h / KB)};
    bool stores = blockIdx.x == gridDim.x - 1; /* its gates are behind the last */
    td_quads<Q> q;
    const auto place =
        small_place<TD_MAT_BF16, MANY_WARPS>(p.ring, in.blocks, shared, t);
    if (!stores)
        small_ask<TD_MAT_BF16, MANY_WARPS>(in, place, t);
    td_load_norm(a, &q);
    uint16_t *x = (uint16_t *)place.parts;
    float *parts = (float *)(x + 3 * a.h), total = 0.0f;
    td_wait_early(gridDim.y);
    float s = td_sum_row(a, row, part, &q);
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = t + NORM_THREADS * i;
        if (t >= NORM_THREADS || at >= (int)a.h / 4)
            continue;
        float4 y = td_normed(q, i, s);
        if (stores) {
            ((float4 *)(a.y + row * a.h))[at] = y;
            td_planes_store4(y, p.planes, row, 4 * at);
        } else {
            td_planes_store4(y, 3, x + 4 * at, a.h);
        }
    }
    if (stores)
        return;
    __syncthreads();
    small_parts<TD_MAT_BF16, 3, MANY_WARPS, true>(in, place, lane < 4 ? x : NULL, a.h,
                                                  parts, SMALL_M, t);
    __syncthreads();
    if (t >= SMALL_M || n0 + t >= gate.n)
        return;
#pragma unroll 8
    for (int b = 0; b < in.blocks; b++)
        total = fmaf(parts[b * SMALL_M + t], 1.0f, total);
    gate.y[row * gate.y_stride + n0 + t] = total;
}

/* Shared memory of gates_row() besides that of small_ask(). */
static size_t gates_bytes(int64_t h)
{
    return (size_t)h * 3 * sizeof(uint16_t) +
           (size_t)(h / KB) * SMALL_M * sizeof(float);
}

/* Whether gates_row() takes these rows and gates. */
static bool fits(const struct td_cuda_ctx *c, const struct td_linear_args *a)
{
    const struct td_norm_args *n = a->norm;
    bool good = a->rows <= TD_CUDA_FEW_ROWS && td_norm_holds(n) && n->h % KB == 0 &&
                n->y_stride == n->h && !n->index && !n->add && !n->sum && a->count <= 2;
    for (int i = 0; i < a->count; i++)
        good = good && a->term[i].w->type == TD_MAT_BF16 && a->term[i].exact &&
               !a->term[i].adds;
    return good && MANY_WARPS * td_slot_bytes(TD_MAT_BF16) + gates_bytes(n->h) + 2048 <=
                       (size_t)c->shared_max;
}

template <int Q>
static void start(const struct td_cuda_ctx *c, const struct td_linear_args *a)
{
    const struct td_norm_args *n = a->norm;
    struct gates p = {*n, {}, 0, {}};
    size_t bytes;
    unsigned tiles = 0;
    for (int i = 0; i < a->count; i++) {
        const auto *t = &a->term[i];
        p.gate[i].w = (const uint8_t *)t->w->data;
        p.gate[i].y = t->y;
        p.gate[i].y_stride = t->y_stride;
        p.gate[i].n = t->w->n;
        tiles += (unsigned)((t->w->n + SMALL_M - 1) / SMALL_M);
    }
    p.planes = td_planes_for(c, n->y, n->rows, n->h, td_planes_rounded(c), NULL);
    p.ring = td_one_plan(c,
                         {(int64_t)tiles * n->rows, MANY_WARPS, (int)(n->h / KB),
                          TD_MAT_BF16, gates_bytes(n->h)},
                         &bytes);
    td_start(c, gates_row<Q>, dim3(tiles + 1, (unsigned)n->rows), GATE_THREADS, bytes,
             p);
}

bool td_cuda_gates(const struct td_cuda_ctx *c, const struct td_linear_args *a)
{
    if (!fits(c, a))
        return false;
    if (a->norm->h <= 4 * NORM_THREADS * 2)
        start<2>(c, a);
    else if (a->norm->h <= 4 * NORM_THREADS * 4)
        start<4>(c, a);
    else
        start<NORM_QUADS>(c, a);
    return true;
}

extern "C" void td_cuda_prepare_gates(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    int most = c->shared_max - 1024; /* the rest is static */
    (void)cudaFuncSetAttribute(gates_row<2>, bytes, most);
    (void)cudaFuncSetAttribute(gates_row<4>, bytes, most);
    (void)cudaFuncSetAttribute(gates_row<NORM_QUADS>, bytes, most);
}

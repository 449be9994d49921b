/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated attention on tensor cores, for a bf16 cache and heads of 64, 128 or 256; here of
 * prompts, where there are no warpgroups, and the way to the kernels of all rows.
 *
 * Keys and values are exact bf16 numbers; queries and weights of the softmax are f32 and
 * enter as planes (planes.cuh): three of generated rows; of prompts they are rounded.
 * Tokens are taken TD_KV_BLOCK at a time, a block of the cache, from position 0 on;
 * maximum and sum of the softmax run along, so that a row's bits follow from its own
 * context alone.
 *
 * attend_many() takes 16 rows of a prompt a warp, and a head a block.
 */
#include "ops/cuda/attend.cuh"
#include "ops/cuda/heads.cuh"

enum { M = 16, T = TD_KV_BLOCK };

/* Starts to load a block of keys or values; rows behind `count` become zeros. */
template <int D>
TD_DEVICE void load_block(const uint16_t *from, int32_t count, uint16_t *to)
{
    for (int i = (int)threadIdx.x; i < T * D / 8; i += (int)blockDim.x) {
        int r = i / (D / 8), at = i % (D / 8) * 8;
        td_copy16(to + td_tile_at<D>(r, at), from + r * D + at, r < count);
    }
}

/* Keys, values, and queries of W warps. */
template <int D, int W> struct many_shared {
    uint16_t k[T * D], v[T * D], q[W * M * D];
};

/* Scores of a warp's 16 rows with the tile's tokens. */
template <int D, int W>
TD_DEVICE void many_scores(const struct many_shared<D, W> &s, float (&out)[T / 8][4])
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < T / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            out[n][e] = 0.0f;
#pragma unroll 4
    for (int step = 0; step < D / 16; step++) {
        uint32_t qa[4];
        td_ldmatrix(
            qa, s.q + td_tile_at<D>(warp * M + lane % 16, 16 * step + lane / 16 * 8));
#pragma unroll
        for (int n = 0; n < T / 8; n += 2) {
            uint32_t kb[4];
            td_ldmatrix(kb, s.k + td_tile_at<D>(8 * n + lane / 16 * 8 + lane % 8,
                                                16 * step + lane / 8 % 2 * 8));
            td_mma(out[n], qa, kb[0], kb[1]);
            td_mma(out[n + 1], qa, kb[2], kb[3]);
        }
    }
}

/* Scores become weights; top and sum of the lane's two rows move on, sum being the lane's
 * share. rescale is for what was added up so far. */
TD_DEVICE void many_softmax(float (&s)[T / 8][4], int32_t t0, const int32_t (&pos)[2],
                            float scale, float (&top)[2], float (&sum)[2],
                            float (&rescale)[2])
{
    int c = (int)threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = top[h], more = 0.0f;
#pragma unroll
        for (int n = 0; n < T / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[n][2 * h + e];
                x = t0 + 8 * n + 2 * c + e <= pos[h] ? x * scale : -INFINITY;
                most = fmaxf(most, x);
            }
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
        rescale[h] = expf(top[h] - most);
        top[h] = most;
#pragma unroll
        for (int n = 0; n < T / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[n][2 * h + e];
                x = expf(x - most);
                more += x;
            }
        sum[h] = sum[h] * rescale[h] + more;
    }
}

template <int D, int W>
TD_DEVICE void many_values(const struct many_shared<D, W> &s,
                           const float (&w)[T / 8][4], const float (&rescale)[2],
                           float (&out)[D / 8][4])
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            out[n][e] *= rescale[e / 2];
#pragma unroll
    for (int step = 0; step < T / 16; step++) {
        uint32_t pa[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pa[i] = td_to_bf16x2(w[2 * step + i / 2][i % 2 * 2],
                                 w[2 * step + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t vb[4];
            td_ldmatrix_trans(
                vb, s.v + td_tile_at<D>(16 * step + lane % 16, 8 * n + lane / 16 * 8));
            td_mma(out[n], pa, vb[0], vb[1]);
            td_mma(out[n + 1], pa, vb[2], vb[3]);
        }
    }
}

template <int D>
TD_DEVICE void many_store(const struct td_attend &a, int64_t row, int32_t head, int h,
                          float sum, const float (&out)[D / 8][4])
{
    int c = (int)threadIdx.x % 4;
    int64_t at = row * a.n_heads + head;
    const float *gate = a.qg + at * 2 * D + D;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        int d = 8 * n + 2 * c;
        float2 g = *(const float2 *)&gate[d];
        float x = out[n][2 * h] / sum * td_sigmoid(g.x);
        float y = out[n][2 * h + 1] / sum * td_sigmoid(g.y);
        *(float2 *)&a.y[at * D + d] = make_float2(x, y);
        td_planes_store2(x, y, a.planes, row, head * D + d);
    }
}

template <int D, int W>
static __global__ void __launch_bounds__(W *WARP, 1)
    attend_many(const struct td_attend a, const struct td_batch b)
{
    extern __shared__ uint4 shared[];
    struct many_shared<D, W> &s = *(struct many_shared<D, W> *)shared;
    int thread = (int)threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    int32_t head = (int32_t)blockIdx.x, kv_head = head / (a.n_heads / a.n_kv);
    int32_t seq, row0, n;
    td_wait();
    /* the longest contexts first */
    if (!td_attend_rows(b, W * M, (int32_t)(gridDim.y - 1 - blockIdx.y), &seq, &row0,
                        &n))
        return;
    int32_t len = b.pos[row0 + n - 1] + 1, blocks = (len + T - 1) / T;
    int64_t from = td_block_at<D>(a, b, seq, kv_head, 0);
    load_block<D>(a.k + from, len, s.k);
    td_copy_commit();
    load_block<D>(a.v + from, len, s.v);
    td_copy_commit();
    for (int i = thread; i < W * M * D / 4; i += W * WARP) {
        int r = i / (D / 4), at = i % (D / 4) * 4;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r < n)
            x = *(const float4 *)&a
                     .qg[((int64_t)(row0 + r) * a.n_heads + head) * 2 * D + at];
        td_planes_store4(x, 1, s.q + td_tile_at<D>(r, at), 0);
    }
    float out[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    int32_t r0 = warp * M + lane / 4, pos[2];
#pragma unroll
    for (int h = 0; h < 2; h++) /* rows that are not there attend to the first token */
        pos[h] = r0 + 8 * h < n ? b.pos[row0 + r0 + 8 * h] : 0;
    for (int32_t block = 0; block < blocks; block++) {
        float w[T / 8][4], rescale[2];
        int32_t left = len - (block + 1) * T;
        td_copy_wait<1>();
        __syncthreads();
        many_scores<D, W>(s, w);
        __syncthreads();
        if (left > 0) {
            from = td_block_at<D>(a, b, seq, kv_head, block + 1);
            load_block<D>(a.k + from, left, s.k);
        }
        td_copy_commit();
        many_softmax(w, block * T, pos, a.scale, top, sum, rescale);
        td_copy_wait<1>();
        __syncthreads();
        many_values<D, W>(s, w, rescale, out);
        __syncthreads();
        if (left > 0)
            load_block<D>(a.v + from, left, s.v);
        td_copy_commit();
    }
    td_copy_wait<0>();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 2);
        if (r0 + 8 * h < n)
            many_store<D>(a, row0 + r0 + 8 * h, head, h, sum[h], out);
    }
}

/* ---- launches ---- */

template <int D, int W> static bool fits(const struct td_cuda_ctx *c)
{
    return sizeof(struct many_shared<D, W>) + 1024 <= (size_t)c->shared_max;
}

template <int D, int W>
static void start_many(const struct td_cuda_ctx *c, const struct td_attend &a,
                       const struct td_batch *b)
{
    dim3 grid((unsigned)a.n_heads, td_attend_tiles(b, W * M));
    td_start(c, attend_many<D, W>, grid, W * WARP, sizeof(struct many_shared<D, W>), a,
             *b);
}

template <int D>
static void run_pieces(const struct td_cuda_ctx *c, const struct td_attend &a,
                       const struct td_batch *b)
{
    if (c->warpgroups)
        td_attend_wide(c, a, b, D);
    else if (fits<D, 8>(c))
        start_many<D, 8>(c, a, b);
    else
        start_many<D, 2>(c, a, b);
}

/* Whether the kernels take heads of `dim`. */
static bool takes(const struct td_cuda_ctx *c, int32_t dim)
{
    return td_attend_few_fits(c, dim) && (dim == 256   ? fits<256, 2>(c)
                                          : dim == 128 ? fits<128, 2>(c)
                                                       : fits<64, 2>(c));
}

extern "C" bool td_cuda_attend(const struct td_cuda_ctx *c,
                               const struct td_attention_args *args)
{
    struct td_attend a = {};
    const struct td_batch *b = args->batch;
    const struct td_qkv_args *in = args->qkv;
    int32_t dim = args->head_dim;
    if (c->numerics != TD_NUM_BF16 || (uintptr_t)args->qg % 16 ||
        (uintptr_t)args->y % 16 || !takes(c, dim))
        return false;
    a.qg = args->qg;
    a.k = (uint16_t *)args->kv.k;
    a.v = (uint16_t *)args->kv.v;
    a.y = args->y;
    a.parts = c->parts;
    a.n_heads = args->n_heads;
    a.n_kv = args->n_kv;
    a.scale = args->scale;
    if (in && td_heads_in_quads(in)) {
        td_attend_enter_pieces(c, in);
    } else if (in) {
        td_cuda_qkv(c, in);
        in = NULL;
    }
    a.planes = td_planes_for(c, args->y, b->rows, (int64_t)args->n_heads * dim, 1,
                             args->to_product);
    a.only_planes = args->to_product && a.planes.n;
    if (b->n_decode)
        td_attend_few(c, a, b, dim, in);
    if (b->n_prefill && dim == 256)
        run_pieces<256>(c, a, b);
    else if (b->n_prefill && dim == 128)
        run_pieces<128>(c, a, b);
    else if (b->n_prefill)
        run_pieces<64>(c, a, b);
    return true;
}

template <int D> static void allow(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (fits<D, 8>(c))
        (void)cudaFuncSetAttribute(attend_many<D, 8>, bytes,
                                   (int)sizeof(struct many_shared<D, 8>));
    if (fits<D, 2>(c))
        (void)cudaFuncSetAttribute(attend_many<D, 2>, bytes,
                                   (int)sizeof(struct many_shared<D, 2>));
}

extern "C" void td_cuda_prepare_attention(const struct td_cuda_ctx *c)
{
    allow<256>(c);
    allow<128>(c);
    allow<64>(c);
    td_attend_few_prepare(c);
    td_attend_wide_prepare(c);
}

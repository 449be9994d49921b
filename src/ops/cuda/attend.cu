/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated attention on tensor cores, for a bf16 cache and heads of 64, 128 or 256.
 *
 * Keys and values are exact bf16 numbers; queries and weights of the softmax are f32 and
 * enter as planes (planes.cuh), FEW_PLANES of generated rows; of prompts they are rounded.
 * Tokens are taken TD_KV_BLOCK at a time, a block of the cache, from position 0 on;
 * maximum and sum of the softmax run along, so that a row's bits follow from its own
 * context alone.
 *
 *     attend_few    a block for a generated row, a kv head (up to 16 of its query heads)
 *                   and one of at most PARTS parts of the context; the warps share the
 *                   tokens of the scores, then the dims of the values
 *     attend_join   puts the parts together in order
 *     attend_many   a block for 16 rows of a prompt a warp, and a head; where there are
 *                   warpgroups attend_wide.cu has a faster one
 *
 * Rows of shared memory are swizzled in pieces of 16 bytes, so that the eight rows of a
 * matrix load meet different banks.
 */
#include "ops/cuda/attend.cuh"

enum {
    FEW_PLANES = 3,
    PARTS = TD_CUDA_MOST_SPLITS,
    FEW_THREADS = 256,
    FEW_WARPS = FEW_THREADS / WARP,
    M = 16,
    T = TD_KV_BLOCK
};

/* Element `at` of row r of a tile whose rows are D elements. */
template <int D> TD_DEVICE int tile_at(int r, int at)
{
    return r * D + ((at / 8 ^ (r & 7)) * 8 + at % 8);
}

/* Starts to load a block of keys or values; rows behind `count` become zeros. */
template <int D>
TD_DEVICE void load_block(const struct td_attend &a, const struct td_batch &b,
                          int32_t seq, int32_t head, int32_t block, int32_t count,
                          const uint16_t *from, uint16_t *to)
{
    int64_t number = b.blocks[(int64_t)seq * b.max_blocks + block];
    from += (number * a.n_kv + head) * T * D;
    for (int i = (int)threadIdx.x; i < T * D / 8; i += (int)blockDim.x) {
        int r = i / (D / 8), at = i % (D / 8) * 8;
        td_copy16(to + tile_at<D>(r, at), from + r * D + at, r < count);
    }
}

/* Planes of x at (row r, element at .. at + 4) of tiles of `rows` rows. */
template <int D>
TD_DEVICE void store_planes(float4 x, int n, uint16_t *to, int rows, int r, int at)
{
    td_planes_store4(x, n, to + tile_at<D>(r, at), (int64_t)rows * D);
}

/* ---- generated rows ---- */

/* How many blocks of the cache a part takes, for a row at `pos`. */
TD_DEVICE int32_t part_blocks(int32_t pos)
{
    return (pos / T + PARTS) / PARTS;
}

/* Memory of a block: keys, values, queries, and weights of the softmax. */
template <int D> struct few_shared {
    uint16_t k[T * D], v[T * D], q[FEW_PLANES * M * D], p[FEW_PLANES * M * T];
    float s[M][T + 4];
    float top[M], sum[M], rescale[M];
};

/* Scores of the tokens of n-tile `warp`. */
template <int D>
TD_DEVICE void few_scores(struct few_shared<D> &s, int32_t t0, int32_t len, float scale)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int g = lane / 4, c = lane % 4;
    float sum[4] = {};
#pragma unroll
    for (int pair = 0; pair < D / 32; pair++) {
        uint32_t kb[4];
        td_ldmatrix(kb,
                    s.k + tile_at<D>(8 * warp + lane % 8, 32 * pair + lane / 8 * 8));
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int p = 0; p < FEW_PLANES; p++) {
                uint32_t qa[4];
                td_ldmatrix(
                    qa, s.q + p * M * D +
                            tile_at<D>(lane % 16, 32 * pair + 16 * h + lane / 16 * 8));
                td_mma(sum, qa, kb[2 * h], kb[2 * h + 1]);
            }
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int token = 8 * warp + 2 * c + e % 2;
        s.s[g + 8 * (e / 2)][token] = t0 + token < len ? sum[e] * scale : -INFINITY;
    }
}

/* Turns scores into weights relative to the maximum so far; a warp has two heads. */
template <int D> TD_DEVICE void few_softmax(struct few_shared<D> &s)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < M / FEW_WARPS; i++) {
        int h = warp * (M / FEW_WARPS) + i;
        float2 x = *(const float2 *)&s.s[h][2 * lane];
        float before = s.top[h];
        float top = fmaxf(before, td_warp_max(fmaxf(x.x, x.y)));
        x.x = expf(x.x - top);
        x.y = expf(x.y - top);
        float sum = td_warp_sum(x.x + x.y);
        uint16_t *to = s.p + tile_at<T>(h, 2 * lane);
#pragma unroll
        for (int p = 0; p < FEW_PLANES; p++) {
            uint32_t two = td_to_bf16x2(x.x, x.y);
            *(uint32_t *)(to + p * M * T) = two;
            x.x -= __uint_as_float(two << 16);
            x.y -= __uint_as_float(two & 0xffff0000);
        }
        if (lane == 0) {
            float rescale = expf(before - top);
            s.rescale[h] = rescale;
            s.sum[h] = s.sum[h] * rescale + sum;
            s.top[h] = top;
        }
    }
}

/* Adds the tile's values: warp w has dims w D / 8 and on, N n-tiles of them. */
template <int D, int N>
TD_DEVICE void few_values(const struct few_shared<D> &s, float (&out)[N][4])
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, g = lane / 4;
    float lo = s.rescale[g], hi = s.rescale[g + 8];
#pragma unroll
    for (int n = 0; n < N; n++) {
        out[n][0] *= lo;
        out[n][1] *= lo;
        out[n][2] *= hi;
        out[n][3] *= hi;
    }
#pragma unroll
    for (int step = 0; step < T / 16; step++) {
        uint32_t pa[FEW_PLANES][4];
#pragma unroll
        for (int p = 0; p < FEW_PLANES; p++)
            td_ldmatrix(pa[p], s.p + p * M * T +
                                   tile_at<T>(lane % 16, 16 * step + lane / 16 * 8));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t vb[4];
            int dim = (warp * N + n + (N > 1 ? lane / 16 : 0)) * 8;
            td_ldmatrix_trans(vb, s.v + tile_at<D>(16 * step + lane % 16, dim));
#pragma unroll
            for (int p = 0; p < FEW_PLANES; p++) {
                td_mma(out[n], pa[p], vb[0], vb[1]);
                if (N > 1)
                    td_mma(out[n + (N > 1)], pa[p], vb[2], vb[3]);
            }
        }
    }
}

/* The block's n queries, of which the first begins at `first`; all asked for at once. */
template <int D>
TD_DEVICE void few_queries(const struct td_attend &a, int64_t first, int32_t n,
                           struct few_shared<D> &s)
{
    const int pieces = M * D / 4, each = (pieces + FEW_THREADS - 1) / FEW_THREADS;
    float4 x[each];
#pragma unroll
    for (int j = 0; j < each; j++) {
        int i = (int)threadIdx.x + FEW_THREADS * j, h = i / (D / 4);
        x[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (h < n)
            x[j] = *(const float4 *)&a.qg[first + h * 2 * D + i % (D / 4) * 4];
    }
#pragma unroll
    for (int j = 0; j < each; j++) {
        int i = (int)threadIdx.x + FEW_THREADS * j;
        if (i < pieces)
            store_planes<D>(x[j], FEW_PLANES, s.q, M, i / (D / 4), i % (D / 4) * 4);
    }
}

template <int D>
static __global__ void __launch_bounds__(FEW_THREADS)
    attend_few(const struct td_attend a, const struct td_batch b)
{
    extern __shared__ uint4 shared[];
    struct few_shared<D> &s = *(struct few_shared<D> *)shared;
    const int N = D / 8 / FEW_WARPS;
    int thread = (int)threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    int32_t row = (int32_t)blockIdx.x, group = a.n_heads / a.n_kv;
    int32_t tiles = (group + M - 1) / M, kv_head = (int32_t)blockIdx.y / tiles;
    int32_t h0 = (int32_t)blockIdx.y % tiles * M, n = min(group - h0, (int32_t)M);
    int32_t head0 = kv_head * group + h0;
    int32_t seq = b.seq[row], len = b.pos[row] + 1, per = part_blocks(b.pos[row]);
    int32_t block = (int32_t)blockIdx.z * per,
            end = min(block + per, (len + T - 1) / T);
    bool none = seq < 0 || block >= end;
    bool old = (block + 1) * T < len; /* all written by steps before this one */
    if (none || !old)
        td_wait_early(gridDim.x);
    if (none)
        return;
    load_block<D>(a, b, seq, kv_head, block, len - block * T, a.k, s.k);
    td_copy_commit();
    load_block<D>(a, b, seq, kv_head, block, len - block * T, a.v, s.v);
    td_copy_commit();
    if (old)
        td_wait_early(gridDim.x);
    few_queries<D>(a, ((int64_t)row * a.n_heads + head0) * 2 * D, n, s);
    if (thread < M) {
        s.top[thread] = -INFINITY;
        s.sum[thread] = 0.0f;
    }
    float out[N][4] = {};
    for (; block < end; block++) {
        int32_t left = len - (block + 1) * T;
        td_copy_wait<1>();
        __syncthreads(); /* keys are there */
        few_scores<D>(s, block * T, len, a.scale);
        __syncthreads(); /* scores are there, keys are free */
        if (block + 1 < end)
            load_block<D>(a, b, seq, kv_head, block + 1, left, a.k, s.k);
        td_copy_commit();
        few_softmax<D>(s);
        td_copy_wait<1>();
        __syncthreads(); /* weights and values are there */
        few_values<D, N>(s, out);
        __syncthreads(); /* and free */
        if (block + 1 < end)
            load_block<D>(a, b, seq, kv_head, block + 1, left, a.v, s.v);
        td_copy_commit();
    }
    td_copy_wait<0>();
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int h = lane / 4 + 8 * (e / 2);
        if (h >= n)
            continue;
        float *part =
            a.parts +
            (((int64_t)row * a.n_heads + head0 + h) * PARTS + blockIdx.z) * (D + 2);
#pragma unroll
        for (int i = 0; i < N; i++)
            part[(warp * N + i) * 8 + 2 * (lane % 4) + e % 2] = out[i][e];
        if (warp == 0 && lane % 4 == 0 && e % 2 == 0) {
            part[D] = s.top[h];
            part[D + 1] = s.sum[h];
        }
    }
}

enum { JOIN_PARTS = 16 /* asked for at once */ };

/* A dim of some parts, and the sums of their weights. */
template <int D> struct some_parts {
    float value[JOIN_PARTS], sum[JOIN_PARTS];

    TD_DEVICE_MEMBER void load(const float *part, int32_t first, int32_t n)
    {
#pragma unroll
        for (int32_t i = 0; i < JOIN_PARTS; i++) {
            const float *p = part + (int64_t)(first + i) * (D + 2);
            value[i] = first + i < n ? p[threadIdx.x] : 0.0f;
            sum[i] = first + i < n ? p[D + 1] : 0.0f;
        }
    }
};

/* A block for each row and head, a thread for each dim. */
template <int D>
static __global__ void __launch_bounds__(D)
    attend_join(const struct td_attend a, const struct td_batch b)
{
    __shared__ float weight[PARTS];
    int64_t at = (int64_t)blockIdx.x * a.n_heads + blockIdx.y;
    int d = (int)threadIdx.x;
    int32_t pos = b.pos[blockIdx.x], per = part_blocks(pos), seq = b.seq[blockIdx.x];
    int32_t n = (pos / T + per) / per;
    const float *part = a.parts + at * PARTS * (D + 2);
    struct some_parts<D> some;
    td_wait_early(gridDim.x);
    if (seq < 0)
        return;
    some.load(part, 0, n);
    float gate = a.qg[at * 2 * D + D + d], top = -INFINITY, sum = 0.0f, y = 0.0f;
    for (int32_t i = d; i < n; i += D)
        weight[i] = part[(int64_t)i * (D + 2) + D];
    __syncthreads();
    for (int32_t i = 0; i < n; i++)
        top = fmaxf(top, weight[i]);
    for (int32_t first = 0; first < n; first += JOIN_PARTS) {
        if (first > 0)
            some.load(part, first, n);
#pragma unroll
        for (int32_t i = 0; i < JOIN_PARTS; i++) {
            if (first + i >= n)
                continue;
            float w = expf(weight[first + i] - top);
            sum = fmaf(w, some.sum[i], sum);
            y = fmaf(w, some.value[i], y);
        }
    }
    y = y / sum * td_sigmoid(gate);
    a.y[at * D + d] = y;
    td_planes_store(y, a.planes, blockIdx.x, blockIdx.y * D + d);
}

/* ---- prompts ---- */

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
        td_ldmatrix(qa,
                    s.q + tile_at<D>(warp * M + lane % 16, 16 * step + lane / 16 * 8));
#pragma unroll
        for (int n = 0; n < T / 8; n += 2) {
            uint32_t kb[4];
            td_ldmatrix(kb, s.k + tile_at<D>(8 * n + lane / 16 * 8 + lane % 8,
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
                vb, s.v + tile_at<D>(16 * step + lane % 16, 8 * n + lane / 16 * 8));
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
    load_block<D>(a, b, seq, kv_head, 0, len, a.k, s.k);
    td_copy_commit();
    load_block<D>(a, b, seq, kv_head, 0, len, a.v, s.v);
    td_copy_commit();
    for (int i = thread; i < W * M * D / 4; i += W * WARP) {
        int r = i / (D / 4), at = i % (D / 4) * 4;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r < n)
            x = *(const float4 *)&a
                     .qg[((int64_t)(row0 + r) * a.n_heads + head) * 2 * D + at];
        store_planes<D>(x, 1, s.q, W * M, r, at);
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
        if (block + 1 < blocks)
            load_block<D>(a, b, seq, kv_head, block + 1, left, a.k, s.k);
        td_copy_commit();
        many_softmax(w, block * T, pos, a.scale, top, sum, rescale);
        td_copy_wait<1>();
        __syncthreads();
        many_values<D, W>(s, w, rescale, out);
        __syncthreads();
        if (block + 1 < blocks)
            load_block<D>(a, b, seq, kv_head, block + 1, left, a.v, s.v);
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
static bool run(const struct td_cuda_ctx *c, const struct td_attend &a,
                const struct td_batch *b)
{
    int32_t tiles = (a.n_heads / a.n_kv + M - 1) / M;
    if (sizeof(struct few_shared<D>) + 1024 > (size_t)c->shared_max || !fits<D, 2>(c))
        return false;
    if (b->n_decode) {
        int32_t parts = TD_MIN(b->max_blocks, (int32_t)PARTS);
        dim3 grid((unsigned)b->n_decode, (unsigned)(a.n_kv * tiles), (unsigned)parts);
        td_start(c, attend_few<D>, grid, FEW_THREADS, sizeof(struct few_shared<D>), a,
                 *b);
        td_start(c, attend_join<D>, dim3((unsigned)b->n_decode, (unsigned)a.n_heads), D,
                 0, a, *b);
    }
    if (b->n_prefill && c->warpgroups)
        td_attend_wide(c, a, b, D);
    else if (b->n_prefill && fits<D, 8>(c))
        start_many<D, 8>(c, a, b);
    else if (b->n_prefill)
        start_many<D, 2>(c, a, b);
    return true;
}

extern "C" bool td_cuda_attend(const struct td_cuda_ctx *c,
                               const struct td_attention_args *args)
{
    struct td_attend a = {};
    if (c->numerics != TD_NUM_BF16 || (uintptr_t)args->qg % 16 ||
        (uintptr_t)args->y % 16)
        return false;
    a.qg = args->qg;
    a.k = (const uint16_t *)args->kv.k;
    a.v = (const uint16_t *)args->kv.v;
    a.y = args->y;
    a.parts = c->parts;
    a.n_heads = args->n_heads;
    a.n_kv = args->n_kv;
    a.scale = args->scale;
    if (args->head_dim == 256 || args->head_dim == 128 || args->head_dim == 64)
        a.planes =
            td_planes_for(c, args->y, args->batch->rows,
                          (int64_t)args->n_heads * args->head_dim, 1, args->to_product);
    a.only_planes = args->to_product && a.planes.n;
    bool done = args->head_dim == 256   ? run<256>(c, a, args->batch)
                : args->head_dim == 128 ? run<128>(c, a, args->batch)
                : args->head_dim == 64  ? run<64>(c, a, args->batch)
                                        : false;
    if (!done)
        c->made->x = NULL;
    return done;
}

template <int D> static void allow(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (sizeof(struct few_shared<D>) + 1024 <= (size_t)c->shared_max)
        (void)cudaFuncSetAttribute(attend_few<D>, bytes,
                                   (int)sizeof(struct few_shared<D>));
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
    td_attend_wide_prepare(c);
}

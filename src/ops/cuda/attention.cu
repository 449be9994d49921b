/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated attention over the paged cache: the way in, and scores and values in plain f32,
 * for what attend.cu does not take.
 *
 * A block works for one row and one kv head, on up to HEADS of its query heads at a time.
 * It takes the row's context TD_CUDA_SPLIT tokens at a time: two threads share a token
 * for the scores, then every thread owns a dim of the values. Maximum and sum of the
 * softmax run along.
 *
 * Generated rows split their context into parts of ctx->split tokens, a block for each,
 * which leave partial results; a second kernel puts them together in order. Prompt rows
 * have enough blocks without. How a row is split follows from its position alone.
 *
 * parts: [decode rows][heads][splits][dim + 2], the last two being maximum and sum.
 */
#include "ops/cuda/attend.cuh"
#include "ops/cuda/heads.cuh"

enum { HEADS = 8, ATTN_THREADS = 256, TOKENS = TD_CUDA_SPLIT, QKV_THREADS = 128 };

static int32_t splits_of(const struct td_cuda_ctx *c)
{
    return (c->limits.max_len + c->split - 1) / c->split;
}

size_t td_cuda_parts_bytes(const struct td_reserve *r)
{
    return (size_t)r->max_seqs * (size_t)r->n_heads * TD_CUDA_MOST_SPLITS *
           (size_t)(r->head_dim + 2) * sizeof(float);
}

/* Where the element at (block, kv head, token) of a cache begins. */
TD_DEVICE int64_t cache_at(const struct td_batch &b, int32_t seq, int32_t pos,
                           int32_t n_kv, int32_t head, int32_t dim)
{
    int64_t block = b.blocks[(int64_t)seq * b.max_blocks + pos / TD_KV_BLOCK];
    return ((block * n_kv + head) * TD_KV_BLOCK + pos % TD_KV_BLOCK) * dim;
}

TD_DEVICE float load(const float *p)
{
    return *p;
}

TD_DEVICE float load(const uint16_t *p)
{
    return td_from_bf16(*p);
}

/* ---- way in ---- */

/* Dims of a head that a thread has, QKV_THREADS apart. */
enum { QKV_EACH = (TD_CUDA_MAX_DIM + QKV_THREADS - 1) / QKV_THREADS };

/* A block for each row and head: queries first, then keys with their values. What depends
 * on the position alone is there before td_wait(); the rest takes one trip to memory. */
template <typename T>
static __global__ void __launch_bounds__(QKV_THREADS)
    qkv_head(const struct td_qkv_args a, const struct td_batch b)
{
    __shared__ float y[TD_CUDA_MAX_DIM];
    int32_t row = (int32_t)blockIdx.x, h = (int32_t)blockIdx.y, dim = a.head_dim;
    int32_t pos = b.pos[row], seq = b.seq[row], half = a.rotary / 2;
    int32_t t = (int32_t)threadIdx.x;
    bool query = h < a.n_heads;
    float angle = t < half ? (float)pos * a.inv_freq[t] : 0.0f;
    float c = cosf(angle), sn = sinf(angle), squares = 0.0f;
    const float *norm = query ? a.q_norm : a.k_norm;
    float x[QKV_EACH], v[QKV_EACH], w[QKV_EACH];
    int64_t to =
        query || seq < 0 ? 0 : cache_at(b, seq, pos, a.n_kv, h - a.n_heads, dim);
#pragma unroll
    for (int i = 0; i < QKV_EACH; i++)
        w[i] = t + QKV_THREADS * i < dim ? norm[t + QKV_THREADS * i] : 0.0f;
    td_wait_early(gridDim.x);
    if (seq < 0)
        return;
    int64_t key = ((int64_t)row * a.n_kv + h - a.n_heads) * dim;
    float *q = a.qg + ((int64_t)row * a.n_heads + h) * 2 * dim;
    const float *from = query ? q : a.k + key;
#pragma unroll
    for (int i = 0; i < QKV_EACH; i++) {
        int d = t + QKV_THREADS * i;
        x[i] = d < dim ? from[d] : 0.0f;
        v[i] = d < dim && !query ? a.v[key + d] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < QKV_EACH; i++)
        squares = fmaf(x[i], x[i], squares);
    float s = 1.0f / sqrtf(td_block_sum(squares) / (float)dim + a.eps);
#pragma unroll
    for (int i = 0; i < QKV_EACH; i++)
        if (t + QKV_THREADS * i < dim)
            y[t + QKV_THREADS * i] = x[i] * s * w[i];
    __syncthreads();
    if (t < half) { /* no more than QKV_THREADS */
        float lo = y[t], hi = y[t + half];
        y[t] = lo * c - hi * sn;
        y[t + half] = hi * c + lo * sn;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < QKV_EACH; i++) {
        int d = t + QKV_THREADS * i;
        if (d >= dim)
            continue;
        if (query) {
            q[d] = y[d];
        } else if (sizeof(T) == 2) {
            ((uint16_t *)a.kv.k)[to + d] = td_to_bf16(y[d]);
            ((uint16_t *)a.kv.v)[to + d] = td_to_bf16(v[i]);
        } else {
            ((float *)a.kv.k)[to + d] = y[d];
            ((float *)a.kv.v)[to + d] = v[i];
        }
    }
}

/* The same for rows of prompts, a block each, a warp for a head at a time. */
enum { QKV_WARPS = QKV_THREADS / WARP };

TD_DEVICE void keep_quad(float *to, float4 x)
{
    *(float4 *)to = x;
}

TD_DEVICE void keep_quad(uint16_t *to, float4 x)
{
    *(uint2 *)to = make_uint2(td_to_bf16x2(x.x, x.y), td_to_bf16x2(x.z, x.w));
}

/* A head of `row`: a query, or a key with its value, in the cache from `to` on. */
template <typename T>
TD_DEVICE void qkv_quads(const struct td_qkv_args &a, int32_t row, int32_t h,
                         int64_t to, const td_turn &t)
{
    int lane = (int)threadIdx.x % WARP, dim = a.head_dim;
    bool query = h < a.n_heads;
    int64_t key = ((int64_t)row * a.n_kv + h - a.n_heads) * dim;
    float *q = a.qg + ((int64_t)row * a.n_heads + h) * 2 * dim;
    td_head x = td_head_load(query ? q : a.k + key, dim);
    td_head_enter(x, td_head_load(query ? a.q_norm : a.k_norm, dim), t, dim, a.rotary,
                  a.eps);
#pragma unroll
    for (int i = 0; i < HEAD_QUADS; i++) {
        int at = lane + WARP * i;
        if (at >= dim / 4)
            continue;
        if (query) {
            ((float4 *)q)[at] = x.quad[i];
        } else {
            keep_quad((T *)a.kv.k + to + 4 * at, x.quad[i]);
            keep_quad((T *)a.kv.v + to + 4 * at, ((const float4 *)(a.v + key))[at]);
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(QKV_THREADS)
    qkv_row(const struct td_qkv_args a, const struct td_batch b)
{
    int32_t row = b.n_decode + (int32_t)blockIdx.x, pos = b.pos[row], seq = b.seq[row];
    const td_turn t = td_turn_of(a.inv_freq, a.rotary, pos);
    td_wait();
    if (seq < 0)
        return;
    for (int32_t h = (int32_t)threadIdx.x / WARP; h < a.n_heads + a.n_kv;
         h += QKV_WARPS) {
        int32_t kv_head = max(h - a.n_heads, 0);
        qkv_quads<T>(a, row, h, cache_at(b, seq, pos, a.n_kv, kv_head, a.head_dim), t);
    }
}

template <typename T>
static void start_pieces(const struct td_cuda_ctx *c, const struct td_qkv_args *a)
{
    const struct td_batch *b = a->batch;
    dim3 grid((unsigned)(b->rows - b->n_decode));
    if (grid.x)
        td_start(c, qkv_row<T>, grid, QKV_THREADS, 0, *a, *b);
}

template <typename T>
static void start_qkv(const struct td_cuda_ctx *c, const struct td_qkv_args *a)
{
    const struct td_batch *b = a->batch;
    bool quads = td_heads_in_quads(a);
    dim3 grid((unsigned)(quads ? b->n_decode : b->rows),
              (unsigned)(a->n_heads + a->n_kv));
    if (grid.x)
        td_start(c, qkv_head<T>, grid, QKV_THREADS, 0, *a, *b);
    if (quads)
        start_pieces<T>(c, a);
}

extern "C" void td_cuda_qkv(const struct td_cuda_ctx *c, const struct td_qkv_args *a)
{
    c->made->x = NULL;
    if (c->numerics == TD_NUM_BF16)
        start_qkv<uint16_t>(c, a);
    else
        start_qkv<float>(c, a);
}

void td_attend_enter_pieces(const struct td_cuda_ctx *c, const struct td_qkv_args *a)
{
    start_pieces<uint16_t>(c, a);
}

/* ---- scores and values ---- */

struct attend {
    const float *qg;
    const void *k, *v;
    float *y, *parts;
    int32_t n_heads, n_kv, dim, row0, split, splits; /* split 0: whole rows */
    float scale;
};

/* What a block keeps while it goes over tokens. */
struct attend_shared {
    float q[HEADS][TD_CUDA_MAX_DIM];
    float p[HEADS][TOKENS];
    float top[HEADS], sum[HEADS], rescale[HEADS];
};

/* Scores of the tokens from t0 on, those from `end` on being -infinity. */
template <typename T>
TD_DEVICE void scores(const struct attend &a, const struct td_batch &b, int32_t seq,
                      int32_t kv_head, int32_t t0, int32_t end, struct attend_shared *s)
{
    int token = (int)threadIdx.x % TOKENS, first = (int)threadIdx.x / TOKENS;
    float sum[HEADS / 2] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (t0 + token < end) {
        const T *k =
            (const T *)a.k + cache_at(b, seq, t0 + token, a.n_kv, kv_head, a.dim);
        int d = 0;
        if (a.dim % 8 == 0 && sizeof(T) == 2)
            for (; d < a.dim; d += 8) {
                uint4 raw = *(const uint4 *)(k + d);
                uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float lo = __uint_as_float(word[i] << 16);
                    float hi = __uint_as_float(word[i] & 0xffff0000);
#pragma unroll
                    for (int h = 0; h < HEADS / 2; h++) {
                        float2 q = *(const float2 *)&s->q[2 * h + first][d + 2 * i];
                        sum[h] = fmaf(q.x, lo, sum[h]);
                        sum[h] = fmaf(q.y, hi, sum[h]);
                    }
                }
            }
        for (; d < a.dim; d++) {
            float x = load(k + d);
#pragma unroll
            for (int h = 0; h < HEADS / 2; h++)
                sum[h] = fmaf(s->q[2 * h + first][d], x, sum[h]);
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS / 2; h++)
        s->p[2 * h + first][token] = t0 + token < end ? sum[h] * a.scale : -INFINITY;
}

/* Turns scores into weights relative to the maximum so far; a warp for each head. */
TD_DEVICE void softmax(struct attend_shared *s)
{
    int h = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    float top = s->top[h], sum = 0.0f;
    for (int t = lane; t < TOKENS; t += WARP)
        top = fmaxf(top, s->p[h][t]);
    top = td_warp_max(top);
    for (int t = lane; t < TOKENS; t += WARP) {
        float e = expf(s->p[h][t] - top);
        s->p[h][t] = e;
        sum += e;
    }
    sum = td_warp_sum(sum);
    if (lane == 0) {
        float rescale = expf(s->top[h] - top);
        s->rescale[h] = rescale;
        s->sum[h] = s->sum[h] * rescale + sum;
        s->top[h] = top;
    }
}

/* The block's row: a decode row's part, or a whole prompt row. */
template <typename T>
static __global__ void __launch_bounds__(ATTN_THREADS)
    attention_part(const struct attend a, const struct td_batch b)
{
    __shared__ struct attend_shared s;
    td_wait();
    int32_t row = a.row0 + (int32_t)blockIdx.x, kv_head = (int32_t)blockIdx.y;
    int32_t seq = b.seq[row], group = a.n_heads / a.n_kv, d = (int32_t)threadIdx.x;
    if (seq < 0)
        return;
    int32_t begin = a.split * (int32_t)blockIdx.z, end = b.pos[row] + 1;
    if (begin >= end)
        return;
    if (a.split)
        end = min(end, begin + a.split);
    for (int32_t h0 = 0; h0 < group; h0 += HEADS) {
        int32_t head0 = kv_head * group + h0, n = min(group - h0, (int32_t)HEADS);
        float acc[HEADS] = {};
        __syncthreads();
        for (int i = d; i < HEADS * a.dim; i += ATTN_THREADS) {
            int h = i / a.dim, at = i % a.dim;
            s.q[h][at] =
                h < n ? a.qg[((int64_t)row * a.n_heads + head0 + h) * 2 * a.dim + at]
                      : 0.0f;
        }
        if (d < HEADS) {
            s.top[d] = -INFINITY;
            s.sum[d] = 0.0f;
        }
        for (int32_t t0 = begin; t0 < end; t0 += TOKENS) {
            __syncthreads();
            scores<T>(a, b, seq, kv_head, t0, end, &s);
            __syncthreads();
            softmax(&s);
            __syncthreads();
            if (d >= a.dim)
                continue;
#pragma unroll
            for (int h = 0; h < HEADS; h++)
                acc[h] *= s.rescale[h];
            for (int32_t t1 = t0; t1 < min(end, t0 + TOKENS); t1 += TD_KV_BLOCK) {
                const T *v =
                    (const T *)a.v + cache_at(b, seq, t1, a.n_kv, kv_head, a.dim);
                int32_t tokens = min(end - t1, (int32_t)TD_KV_BLOCK);
#pragma unroll 4
                for (int32_t t = 0; t < tokens; t++) {
                    float x = load(v + (int64_t)t * a.dim + d);
#pragma unroll
                    for (int h = 0; h < HEADS; h++)
                        acc[h] = fmaf(s.p[h][t1 - t0 + t], x, acc[h]);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            int64_t at = (int64_t)row * a.n_heads + head0 + h;
            if (h >= n || d >= a.dim)
                continue;
            if (!a.split) {
                float gate = a.qg[at * 2 * a.dim + a.dim + d];
                a.y[at * a.dim + d] = acc[h] / s.sum[h] * td_sigmoid(gate);
                continue;
            }
            float *part = a.parts + (at * a.splits + blockIdx.z) * (a.dim + 2);
            part[d] = acc[h];
            if (d == 0) {
                part[a.dim] = s.top[h];
                part[a.dim + 1] = s.sum[h];
            }
        }
    }
}

/* Puts a decode row's parts together; a block for each row and head. */
static __global__ void __launch_bounds__(ATTN_THREADS)
    attention_join(const struct attend a, const struct td_batch b)
{
    int64_t at = (int64_t)blockIdx.x * a.n_heads + blockIdx.y;
    int32_t d = (int32_t)threadIdx.x;
    td_wait();
    if (b.seq[blockIdx.x] < 0 || d >= a.dim)
        return;
    int32_t n = b.pos[blockIdx.x] / a.split + 1;
    const float *part = a.parts + at * a.splits * (a.dim + 2);
    float top = -INFINITY, sum = 0.0f, y = 0.0f;
    for (int32_t i = 0; i < n; i++)
        top = fmaxf(top, part[(int64_t)i * (a.dim + 2) + a.dim]);
    for (int32_t i = 0; i < n; i++) {
        const float *p = part + (int64_t)i * (a.dim + 2);
        float w = expf(p[a.dim] - top);
        sum = fmaf(w, p[a.dim + 1], sum);
        y = fmaf(w, p[d], y);
    }
    a.y[at * a.dim + d] = y / sum * td_sigmoid(a.qg[at * 2 * a.dim + a.dim + d]);
}

template <typename T>
static void run(const struct td_cuda_ctx *c, const struct td_attention_args *args)
{
    const struct td_batch *b = args->batch;
    struct attend a = {args->qg, args->kv.k,    args->kv.v,   args->y,
                       c->parts, args->n_heads, args->n_kv,   args->head_dim,
                       0,        c->split,      splits_of(c), args->scale};
    if (b->n_decode) {
        int32_t longest = b->max_blocks * TD_KV_BLOCK; /* may be less than max_len */
        int32_t parts = TD_MIN((longest + c->split - 1) / c->split, a.splits);
        dim3 grid((unsigned)b->n_decode, (unsigned)a.n_kv, (unsigned)parts);
        dim3 heads((unsigned)b->n_decode, (unsigned)a.n_heads);
        td_start(c, attention_part<T>, grid, ATTN_THREADS, 0, a, *b);
        td_start(c, attention_join, heads, ATTN_THREADS, 0, a, *b);
    }
    if (b->rows > b->n_decode) {
        dim3 grid((unsigned)(b->rows - b->n_decode), (unsigned)a.n_kv);
        a.row0 = b->n_decode;
        a.split = 0;
        td_start(c, attention_part<T>, grid, ATTN_THREADS, 0, a, *b);
    }
}

extern "C" void td_cuda_attention(const struct td_cuda_ctx *c,
                                  const struct td_attention_args *a)
{
    c->made->x = NULL;
    if (td_cuda_attend(c, a))
        return;
    if (a->qkv)
        td_cuda_qkv(c, a->qkv);
    if (c->numerics == TD_NUM_BF16)
        run<uint16_t>(c, a);
    else
        run<float>(c, a);
}

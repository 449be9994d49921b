/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of generated rows on tensor cores: heads of 64, 128 or 256, a bf16 cache.
 *
 *     attend_few    a block for a row, up to H query heads of a kv head, and one of at
 *                   most PARTS parts of the context
 *     attend_join   puts the parts together in order
 *
 * A single row is nothing but waiting, so that attend_few() makes the way in itself: a
 * warp has a query, and where the newest token belongs to the part one more has its key and
 * value, which go straight to shared memory, rounded as the cache holds them, and to the
 * cache. All other tokens are from steps before and asked for before td_wait(). The next
 * kernels begin behind that even where rows are few: the one behind the join would ask for
 * weights while the products before still do.
 *
 * Products are made transposed, tokens or dims being the 16 rows of a step and the query
 * heads its 8 columns: K q^T with 16 tokens and half of the dims a warp, then V^T p^T with
 * a share of the dims a warp. Columns of heads that are not there hold anything.
 */
#include "ops/cuda/attend.cuh"
#include "ops/cuda/heads.cuh"

enum {
    PLANES = 3,
    PARTS = TD_CUDA_MOST_SPLITS,
    WARPS = 8,               /* for products */
    COPIES = WARPS * WARP,   /* threads that ask for blocks of the cache */
    THREADS = COPIES + WARP, /* the last warp has the newest key */
    ANGLES = 2 * WARP,       /* of a row, at most */
    T = TD_KV_BLOCK,
    TILES = T / 16,         /* of tokens */
    HALVES = WARPS / TILES, /* of the dims: of warps with the same tokens in scores */
    COLUMNS = 8             /* heads of a step */
};

/* Tiles of 16 dims that a warp has in values. */
template <int D> struct few_tiles {
    static constexpr int n = D / 16 / WARPS ? D / 16 / WARPS : 1;
};

/* The way in of a row, as struct td_qkv_args has it; q_norm NULL: there is none. */
struct entry {
    const float *k, *v, *q_norm, *k_norm, *inv_freq;
    int32_t rotary;
    float eps;
};

/* How many blocks of the cache a part takes, for a row at `pos`. */
TD_DEVICE int32_t part_blocks(int32_t pos)
{
    return (pos / T + PARTS) / PARTS;
}

/* Memory of a block: keys, values, queries, weights of the softmax, and the newest token's
 * key and value until its turn comes. */
template <int D, int H> struct few_shared {
    uint16_t k[T * D], v[T * D], q[PLANES * H * D], p[PLANES * H * T];
    uint16_t fresh[2][D];
    float s[HALVES][H][T + 4];
    float top[H], sum[H], rescale[H], sine[ANGLES], cosine[ANGLES];
};

/* The tokens that a block works on. */
struct span {
    int32_t seq, kv_head, first, end; /* blocks of the cache */
    int32_t len;                      /* tokens of the row's context */
    int32_t newest;                   /* that is not in the cache yet; -1: none */
};

/* Starts to load a block of keys or values; rows behind the context become zeros. The
 * newest token's come from `fresh` or, if that is NULL, are left out. */
template <int D>
TD_DEVICE void load_block(const struct td_attend &a, const struct td_batch &b,
                          const struct span &w, int32_t block, const uint16_t *cache,
                          const uint16_t *fresh, uint16_t *to)
{
    const int rows = COPIES * 8 / D; /* at a time, a multiple of 8 */
    int r = (int)threadIdx.x / (D / 8), at = (int)threadIdx.x % (D / 8) * 8;
    int32_t token = block * T + r;
    const uint16_t *from =
        cache + td_block_at<D>(a, b, w.seq, w.kv_head, block) + r * D + at;
    if (threadIdx.x >= COPIES)
        return;
    to += td_tile_at<D>(r, at);
#pragma unroll
    for (int i = 0; i < T; i += rows) {
        if (token + i != w.newest)
            td_copy16(to + i * D, from + i * D, token + i < w.len);
        else if (fresh)
            *(uint4 *)(to + i * D) = *(const uint4 *)(fresh + at);
    }
}

/* A lane's quads of a head, rounded, to row r of a tile; row 0 is as in memory. */
template <int D> TD_DEVICE void keep_head(const td_head &x, uint16_t *tile, int32_t r)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < HEAD_QUADS; i++)
        if (4 * (lane + WARP * i) < D)
            *(uint2 *)(tile + td_tile_at<D>(r, 4 * (lane + WARP * i))) =
                make_uint2(td_to_bf16x2(x.quad[i].x, x.quad[i].y),
                           td_to_bf16x2(x.quad[i].z, x.quad[i].w));
}

/* What a warp takes in: queries `warp` and every WARPS on; the last warp, in the block
 * that has the newest token, its key and value. */
template <int D, int H> struct few_heads {
    static constexpr int most = H / WARPS;
    td_head x[most], w, value; /* w: of the norm */
    int32_t n;                 /* queries of the block */
    bool key;

    TD_DEVICE_MEMBER bool there(int i) const
    {
        int warp = (int)threadIdx.x / WARP;
        return warp == WARPS ? key && i == 0 : warp + WARPS * i < n;
    }

    /* What does not come from this step. */
    TD_DEVICE_MEMBER void before(const struct entry &in, int32_t pos, int32_t queries,
                                 bool newest, struct few_shared<D, H> &s)
    {
        int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
        n = queries;
        key = newest && warp == WARPS;
        if (!in.q_norm)
            return;
        w = td_head_load(warp == WARPS ? in.k_norm : in.q_norm, D);
        for (int i = lane; i < in.rotary / 2 && warp == WARPS; i += WARP)
            sincosf((float)pos * in.inv_freq[i], &s.sine[i], &s.cosine[i]);
    }

    TD_DEVICE_MEMBER void load(const struct entry &in, const float *queries,
                               int64_t kv_at)
    {
        int warp = (int)threadIdx.x / WARP;
#pragma unroll
        for (int i = 0; i < most; i++)
            if (there(i))
                x[i] = td_head_load(
                    key ? in.k + kv_at : queries + (warp + WARPS * i) * 2 * D, D);
        if (key)
            value = td_head_load(in.v + kv_at, D);
    }

    /* Norms and turns them. */
    TD_DEVICE_MEMBER void enter(const struct entry &in,
                                const struct few_shared<D, H> &s)
    {
        int lane = (int)threadIdx.x % WARP;
        td_turn turn = {};
        if (!in.q_norm)
            return;
        if (lane < in.rotary / 4) {
            int i = 4 * lane % (in.rotary / 2);
            *(float4 *)turn.sine = *(const float4 *)&s.sine[i];
            *(float4 *)turn.cosine = *(const float4 *)&s.cosine[i];
        }
#pragma unroll
        for (int i = 0; i < most; i++)
            if (there(i))
                td_head_enter(x[i], w, turn, D, in.rotary, in.eps);
    }

    /* Queries go to shared memory. */
    TD_DEVICE_MEMBER void store(struct few_shared<D, H> &s) const
    {
        int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < most; i++)
#pragma unroll
            for (int j = 0; j < HEAD_QUADS; j++) {
                int at = 4 * (lane + WARP * j);
                if (there(i) && at < D)
                    td_planes_store4(x[i].quad[j], PLANES,
                                     s.q + td_tile_at<D>(warp + WARPS * i, at), H * D);
            }
    }

    /* The newest key and value go to shared memory, and to the cache if `keeps`. */
    TD_DEVICE_MEMBER void store_key(const struct td_attend &a, const struct td_batch &b,
                                    const struct span &w, bool keeps,
                                    struct few_shared<D, H> &s) const
    {
        bool now = w.newest / T == w.first;
        int32_t r = now ? w.newest % T : 0;
        int64_t to =
            td_block_at<D>(a, b, w.seq, w.kv_head, w.newest / T) + w.newest % T * D;
        keep_head<D>(x[0], now ? s.k : s.fresh[0], r);
        keep_head<D>(value, now ? s.v : s.fresh[1], r);
        if (!keeps)
            return;
        keep_head<D>(x[0], a.k + to, 0);
        keep_head<D>(value, a.v + to, 0);
    }
};

/* Scores of 16 tokens by half of the dims. */
template <int D, int H> TD_DEVICE void few_scores(struct few_shared<D, H> &s)
{
    const int N = H / COLUMNS, dims = D / HALVES;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int g = lane / 4, c = lane % 4, token = warp % TILES * 16, half = warp / TILES;
    float sum[PLANES][N][4] = {};
    if (warp >= WARPS)
        return;
#pragma unroll
    for (int pair = 0; pair < dims / 32; pair++) {
        int k0 = half * dims + 32 * pair;
        uint32_t ka[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++)
            td_ldmatrix(ka[h], s.k + td_tile_at<D>(token + lane % 16,
                                                   k0 + 16 * h + lane / 16 * 8));
#pragma unroll
        for (int p = 0; p < PLANES; p++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                uint32_t qb[4];
                td_ldmatrix(
                    qb, s.q + p * H * D +
                            td_tile_at<D>(COLUMNS * n + lane % 8, k0 + lane / 8 * 8));
                td_mma(sum[p][n], ka[0], qb[0], qb[1]);
                td_mma(sum[p][n], ka[1], qb[2], qb[3]);
            }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s.s[half][COLUMNS * n + 2 * c + e % 2][token + g + 8 * (e / 2)] =
                sum[0][n][e] + (sum[1][n][e] + sum[2][n][e]);
}

/* Turns the scores of tokens t0 and on into weights relative to the maximum so far; a
 * warp has heads `warp`, warp + WARPS ... of n. */
template <int D, int H>
TD_DEVICE void few_softmax(struct few_shared<D, H> &s, int32_t n, int32_t t0,
                           int32_t len, float scale)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < H / WARPS; i++) {
        int h = warp + WARPS * i;
        if (warp >= WARPS || h >= n)
            continue;
        float2 x = *(const float2 *)&s.s[0][h][2 * lane];
        float2 y = *(const float2 *)&s.s[1][h][2 * lane];
        x.x = t0 + 2 * lane < len ? (x.x + y.x) * scale : -INFINITY;
        x.y = t0 + 2 * lane + 1 < len ? (x.y + y.y) * scale : -INFINITY;
        float before = s.top[h];
        float top = fmaxf(before, td_warp_max(fmaxf(x.x, x.y)));
        x.x = expf(x.x - top);
        x.y = expf(x.y - top);
        float sum = td_warp_sum(x.x + x.y);
        uint16_t *to = s.p + td_tile_at<T>(h, 2 * lane);
#pragma unroll
        for (int p = 0; p < PLANES; p++)
            *(uint32_t *)(to + p * H * T) = td_planes_take(x.x, x.y);
        if (lane == 0) {
            float rescale = expf(before - top);
            s.rescale[h] = rescale;
            s.sum[h] = s.sum[h] * rescale + sum;
            s.top[h] = top;
        }
    }
}

/* Adds the block's values. */
template <int D, int H>
TD_DEVICE void few_values(const struct few_shared<D, H> &s,
                          float (&out)[few_tiles<D>::n][H / COLUMNS][4])
{
    const int M = few_tiles<D>::n, N = H / COLUMNS;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, c = lane % 4;
    if (warp * M * 16 >= D)
        return;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float even = s.rescale[COLUMNS * n + 2 * c];
        float odd = s.rescale[COLUMNS * n + 2 * c + 1];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                out[m][n][e] *= e % 2 ? odd : even;
    }
#pragma unroll
    for (int pair = 0; pair < T / 32; pair++) {
        uint32_t va[M][2][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                td_ldmatrix_trans(
                    va[m][h],
                    s.v + td_tile_at<D>(32 * pair + 16 * h + lane / 16 * 8 + lane % 8,
                                        (warp * M + m) * 16 + lane / 8 % 2 * 8));
#pragma unroll
        for (int p = 0; p < PLANES; p++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                uint32_t pb[4];
                td_ldmatrix(pb, s.p + p * H * T +
                                    td_tile_at<T>(COLUMNS * n + lane % 8,
                                                  32 * pair + lane / 8 * 8));
#pragma unroll
                for (int m = 0; m < M; m++) {
                    td_mma(out[m][n], va[m][0], pb[0], pb[1]);
                    td_mma(out[m][n], va[m][1], pb[2], pb[3]);
                }
            }
    }
}

template <int D, int H>
static __global__ void __launch_bounds__(THREADS)
    attend_few(const __grid_constant__ td_attend a, const __grid_constant__ td_batch b,
               const __grid_constant__ entry in)
{
    extern __shared__ uint4 shared[];
    struct few_shared<D, H> &s = *(struct few_shared<D, H> *)shared;
    const int M = few_tiles<D>::n, N = H / COLUMNS;
    int thread = (int)threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    int32_t row = (int32_t)blockIdx.z, group = a.n_heads / a.n_kv;
    int32_t tiles = (group + H - 1) / H, tile = (int32_t)blockIdx.y % tiles;
    int32_t n = min(group - tile * H, (int32_t)H), pos = b.pos[row];
    int32_t per = part_blocks(pos), all = pos / T + 1;
    struct span w;
    w.seq = b.seq[row];
    w.kv_head = (int32_t)blockIdx.y / tiles;
    w.first = (int32_t)blockIdx.x * per;
    w.end = min(w.first + per, all);
    w.len = pos + 1;
    w.newest = in.q_norm ? pos : -1;
    int32_t head0 = w.kv_head * group + tile * H;
    bool none = w.seq < 0 || w.first >= w.end;
    bool ready = in.q_norm || (w.first + 1) * T < w.len; /* in the cache by now */
    if (none && blockIdx.x)
        return; /* the first blocks wait, so that the kernel does */
    if (none || !ready)
        td_wait();
    if (none)
        return;
    few_heads<D, H> heads;
    load_block<D>(a, b, w, w.first, a.k, NULL, s.k);
    td_copy_commit();
    load_block<D>(a, b, w, w.first, a.v, NULL, s.v);
    td_copy_commit();
    heads.before(in, pos, n, in.q_norm && w.end == all, s);
    if (thread < H) {
        s.top[thread] = -INFINITY;
        s.sum[thread] = 0.0f;
    }
    __syncthreads(); /* angles are there */
    if (ready)
        td_wait();
    heads.load(in, a.qg + ((int64_t)row * a.n_heads + head0) * 2 * D,
               ((int64_t)row * a.n_kv + w.kv_head) * D);
    heads.enter(in, s);
    if (heads.key)
        heads.store_key(a, b, w, tile == 0, s);
    else
        heads.store(s);
    float out[M][N][4] = {};
    for (int32_t block = w.first;; block++) {
        bool more = block + 1 < w.end;
        td_copy_wait<1>();
        __syncthreads(); /* keys are there, queries too */
        few_scores<D, H>(s);
        __syncthreads(); /* scores are there, keys are free */
        if (more)
            load_block<D>(a, b, w, block + 1, a.k, s.fresh[0], s.k);
        td_copy_commit();
        few_softmax<D, H>(s, n, block * T, w.len, a.scale);
        td_copy_wait<1>();
        __syncthreads(); /* weights and values are there */
        few_values<D, H>(s, out);
        if (!more)
            break;
        __syncthreads(); /* and free */
        load_block<D>(a, b, w, block + 1, a.v, s.fresh[1], s.v);
        td_copy_commit();
    }
    td_copy_wait<0>();
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int h = COLUMNS * j + 2 * (lane % 4) + e % 2;
            if (h >= n || warp * M * 16 >= D)
                continue;
            int64_t at = (int64_t)row * a.n_heads + head0 + h;
            float *part = a.parts + (at * PARTS + blockIdx.x) * (D + 2);
#pragma unroll
            for (int m = 0; m < M; m++)
                part[(warp * M + m) * 16 + lane / 4 + 8 * (e / 2)] = out[m][j][e];
            if (warp == 0 && lane < 4 && e < 2) {
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

/* ---- launches ---- */

template <int D, int H>
static void start_few(const struct td_cuda_ctx *c, const struct td_attend &a,
                      const struct td_batch *b, const struct entry &in)
{
    int32_t tiles = (a.n_heads / a.n_kv + H - 1) / H;
    int32_t parts = TD_MIN(b->max_blocks, (int32_t)PARTS);
    dim3 grid((unsigned)parts, (unsigned)(a.n_kv * tiles), (unsigned)b->n_decode);
    td_start(c, attend_few<D, H>, grid, THREADS, sizeof(struct few_shared<D, H>), a, *b,
             in);
    td_start(c, attend_join<D>, dim3((unsigned)b->n_decode, (unsigned)a.n_heads), D, 0,
             a, *b);
}

template <int D>
static void start(const struct td_cuda_ctx *c, const struct td_attend &a,
                  const struct td_batch *b, const struct td_qkv_args *args)
{
    struct entry in = {};
    if (args)
        in = entry{args->k,        args->v,      args->q_norm, args->k_norm,
                   args->inv_freq, args->rotary, args->eps};
    if (a.n_heads / a.n_kv <= COLUMNS)
        start_few<D, COLUMNS>(c, a, b, in);
    else
        start_few<D, 2 * COLUMNS>(c, a, b, in);
}

void td_attend_few(const struct td_cuda_ctx *c, const struct td_attend &a,
                   const struct td_batch *b, int32_t dim, const struct td_qkv_args *in)
{
    if (dim == 256)
        start<256>(c, a, b, in);
    else if (dim == 128)
        start<128>(c, a, b, in);
    else
        start<64>(c, a, b, in);
}

template <int D> static bool fits(const struct td_cuda_ctx *c)
{
    return sizeof(struct few_shared<D, 2 * COLUMNS>) + 1024 <= (size_t)c->shared_max;
}

bool td_attend_few_fits(const struct td_cuda_ctx *c, int32_t dim)
{
    return dim == 256 ? fits<256>(c) : (dim == 128 || dim == 64) && fits<128>(c);
}

template <int D> static void allow(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (!fits<D>(c))
        return;
    (void)cudaFuncSetAttribute(attend_few<D, COLUMNS>, bytes,
                               (int)sizeof(struct few_shared<D, COLUMNS>));
    (void)cudaFuncSetAttribute(attend_few<D, 2 * COLUMNS>, bytes,
                               (int)sizeof(struct few_shared<D, 2 * COLUMNS>));
}

void td_attend_few_prepare(const struct td_cuda_ctx *c)
{
    allow<256>(c);
    allow<128>(c);
    allow<64>(c);
}

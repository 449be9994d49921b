/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products and table look-up. Terms of FP8 and BF16 weights go through the tensor
 * cores (tile.cuh): inputs are first split into bf16 planes, one for rounded inputs,
 * three for exact ones. F32 weights are multiplied in plain f32.
 */
#include "ops/cuda/exact.cuh"
#include "ops/cuda/norm.cuh"
#include "ops/cuda/planes.cuh"
#include "ops/cuda/small.cuh"
#include "ops/cuda/warpgroup.cuh"
#include "ops/cuda/whole.cuh"

enum { AHEAD_BLOCKS = 128 }; /* that bring closer what comes next */

struct lin_term {
    const void *w;
    const float *scale;
    float *y;
    int64_t y_stride, n;
    int32_t tile0, type; /* first block of the grid that works on it */
    int32_t planes;
    bool adds;
};

struct lin_params {
    struct lin_term term[TD_LINEAR_MAX];
    int32_t count, rows, blocks;
    int32_t ring; /* of lin_one() */
    const uint16_t *x;
    int64_t plane;
    int32_t tall; /* of x in slices */
    struct td_cuda_ahead ahead;
    struct td_norm_args norm; /* of lin_norm(): what x is made of; x NULL: planes are */
};

/* y at its place, on top of what is there. */
TD_DEVICE void put(const lin_term &t, int64_t row, int64_t n, float y)
{
    float *to = t.y + row * t.y_stride + n;
    *to = t.adds ? *to + y : y;
}

TD_DEVICE const struct lin_term &term_of(const struct lin_params &p, int tile)
{
    int i = 0;
    while (i + 1 < p.count && tile >= p.term[i + 1].tile0)
        i++;
    return p.term[i];
}

TD_DEVICE const float *scale_of(const struct lin_term &t, int64_t n0, int blocks)
{
    return t.scale ? t.scale + n0 / TD_SCALE_BLOCK * blocks : NULL;
}

/* The weights of the lane's two rows of those from n0 on. */
template <int TYPE>
TD_DEVICE td_small_in rows_of(const lin_params &p, const lin_term &t, int64_t n0)
{
    int64_t g = threadIdx.x % WARP / 4;
    int64_t pitch = (int64_t)p.blocks * KB * td_bytes_of<TYPE>();
    const float *scale = scale_of(t, n0, p.blocks);
    const uint8_t *w = (const uint8_t *)t.w + (n0 + g) * pitch;
    return td_small_in{n0 + g < t.n ? w : NULL,
                       n0 + g + 8 < t.n ? w + 8 * pitch : NULL,
                       {scale, scale},
                       p.blocks};
}

template <int TYPE, int PLANES, int NT, int W>
TD_DEVICE void lin_rows(const lin_params &p, const lin_term &t, int64_t n0, int row0,
                        float *shared)
{
    int64_t g = threadIdx.x % WARP / 4, pitch = (int64_t)p.blocks * KB;
    const td_small_in in = rows_of<TYPE>(p, t, n0);
    const uint16_t *x[NT];
    float total[td_small_outputs<NT, W>::n];
#pragma unroll
    for (int i = 0; i < NT; i++) {
        int64_t row = row0 + 8 * i + g;
        x[i] = row < p.rows ? p.x + row * pitch : NULL;
    }
    small_run<TYPE, PLANES, NT, W, true>(in, x, p.plane, shared, total);
#pragma unroll
    for (int j = 0; j < td_small_outputs<NT, W>::n; j++) {
        int o = (int)threadIdx.x + W * WARP * j;
        int m = o % SMALL_M, row = row0 + o / SMALL_M;
        if (o < SMALL_M * 8 * NT && n0 + m < t.n && row < p.rows)
            put(t, row, n0 + m, total[j]);
    }
}

/* PLAIN: all terms are of BF16 and rounded. */
template <int NT, int W, bool PLAIN>
static __global__ void __launch_bounds__(W *WARP, W == MANY_WARPS     ? 1
                                                  : NT == 1 && !PLAIN ? 4
                                                                      : 2)
    lin_small(const lin_params p)
{
    extern __shared__ float part[];
    const lin_term &t = term_of(p, (int)blockIdx.x);
    int64_t n0 = (int64_t)((int)blockIdx.x - t.tile0) * SMALL_M;
    int row0 = (int)blockIdx.y * 8 * NT;
    if (PLAIN)
        lin_rows<TD_MAT_BF16, 1, NT, W>(p, t, n0, row0, part);
    else if (t.type == TD_MAT_F8 && t.planes == 1)
        lin_rows<TD_MAT_F8, 1, NT, W>(p, t, n0, row0, part);
    else if (t.type == TD_MAT_F8)
        lin_rows<TD_MAT_F8, 3, NT, W>(p, t, n0, row0, part);
    else if (t.planes == 1)
        lin_rows<TD_MAT_BF16, 1, NT, W>(p, t, n0, row0, part);
    else
        lin_rows<TD_MAT_BF16, 3, NT, W>(p, t, n0, row0, part);
}

/* The block's share of what comes next. */
TD_DEVICE void prefetch_ahead(const struct td_cuda_ahead &a)
{
    const int t = (int)threadIdx.x;
    if (!a.slot || blockIdx.x >= AHEAD_BLOCKS || t >= (int)TD_COUNT(a.range))
        return;
    int64_t bytes = a.range[t].bytes, share = (bytes / AHEAD_BLOCKS + 127) / 128 * 128;
    int64_t at = share * blockIdx.x;
    const char *from = (const char *)a.range[t].from + a.range[t].step * a.slot[0];
    if (at < bytes)
        td_prefetch(from + at, (uint32_t)min(share, bytes - at));
}

/* One row; all terms are of TYPE and rounded. */
template <int TYPE, int W, bool AGAIN>
static __global__ void __launch_bounds__(W *WARP, td_one_blocks(W))
    lin_one(const __grid_constant__ lin_params p)
{
    extern __shared__ uint4 shared[];
    const lin_term &t = term_of(p, (int)blockIdx.x);
    int thread = (int)threadIdx.x;
    int64_t n0 = (int64_t)((int)blockIdx.x - t.tile0) * SMALL_M;
    const td_small_in in = rows_of<TYPE>(p, t, n0);
    const auto place = small_place<TYPE, W>(p.ring, in.blocks, shared, thread);
    uint16_t *xs = (uint16_t *)place.parts;
    bool mine = thread < SMALL_M && n0 + thread < t.n;
    float *y = t.y + n0 + thread, before = 0.0f;
    small_ask<TYPE, W>(in, place, thread);
    prefetch_ahead(p.ahead);
    td_wait_early(1);
    if (t.adds && mine)
        before = *y;
    small_ask_x<W>(xs, in.blocks, p.x);
    td_copy_wait<0>();
    small_parts<TYPE, 1, W, AGAIN>(in, place, thread % WARP < 4 ? xs : NULL, 0,
                                   place.parts, KB / 2, thread);
    float total = small_total<TYPE, W>(place, in.blocks, place.parts, KB / 2, thread);
    if (mine)
        *y = t.adds ? before + total : total;
}

/* ---- one row behind its norm ---- */

enum {
    NORM_TILES = 3, /* of 16 outputs, of a block, which makes the norm once for them */
    NORM_WARPS = 4, /* of a tile */
    NORM_BLOCK = NORM_TILES * NORM_WARPS * WARP,
    NORM_BLOCKS = 2 /* of a multiprocessor */
};

/* Shared memory of a block of lin_norm(). */
static size_t norm_bytes(int blocks, int type)
{
    return NORM_TILES * (size_t)td_whole_bytes(type, blocks) + td_one_x(blocks);
}

/* The row's norm, rounded, goes to shared memory; the first block also stores it. */
template <int Q>
TD_DEVICE void stage_norm(const struct td_norm_args &a, td_quads<Q> &q, uint16_t *xs,
                          float *part)
{
    float s = td_sum_row(a, 0, part, &q);
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int at = (int)threadIdx.x + NORM_THREADS * i;
        if (threadIdx.x >= NORM_THREADS || at >= (int)a.h / 4)
            continue;
        float4 y = td_normed(q, i, s);
        td_planes_store4(y, 1, xs + 4 * at, 0);
        if (blockIdx.x == 0)
            ((float4 *)a.y)[at] = y;
    }
    __syncthreads();
}

/* lin_one() of a row that is a norm of no more than Q quads a thread, for several tiles, so
 * that few blocks have to make it. Half of the registers, and what shared memory there is
 * besides, are left to the kernel behind: the delta net's blocks begin beside these. */
template <int TYPE, int Q>
static __global__ void __launch_bounds__(NORM_BLOCK, 2 * NORM_BLOCKS)
    lin_norm(const __grid_constant__ lin_params p)
{
    const int W = NORM_WARPS;
    extern __shared__ uint4 shared[];
    int mine = (int)threadIdx.x / (W * WARP), thread = (int)threadIdx.x % (W * WARP);
    int tile = (int)blockIdx.x * NORM_TILES + mine;
    int bytes = td_whole_bytes(TYPE, p.blocks);
    const lin_term &t = term_of(p, tile);
    int64_t n0 = (int64_t)(tile - t.tile0) * SMALL_M;
    int32_t rows = (int32_t)max(min(t.n - n0, (int64_t)SMALL_M), (int64_t)0);
    const td_whole_in in = {(const uint8_t *)t.w +
                                n0 * p.blocks * KB * td_bytes_of<TYPE>(),
                            rows ? scale_of(t, n0, p.blocks) : NULL, rows, p.blocks};
    const td_whole_place place =
        whole_place<TYPE>((uint8_t *)shared + mine * bytes, p.blocks);
    float *x = (float *)((uint8_t *)shared + NORM_TILES * bytes);
    td_quads<Q> q;
    whole_ask<TYPE>(in, place, thread, W * WARP);
    prefetch_ahead(p.ahead);
    td_load_norm(p.norm, &q);
    td_wait_early(1);
    stage_norm<Q>(p.norm, q, (uint16_t *)x, td_behind_x(x, p.blocks));
    whole_parts<TYPE, W>(place, p.blocks,
                         thread % WARP < 4 ? (const uint16_t *)x : NULL, thread);
    float total = whole_total<TYPE>(place, p.blocks, thread);
    if (thread < SMALL_M && n0 + thread < t.n)
        t.y[n0 + thread] = total;
}

template <int TYPE, int PLANES, bool WIDE>
static __global__ void __launch_bounds__(BLOCK_THREADS, WIDE &&PLANES == 1 ? 1 : 2)
    lin_tile(const lin_params p)
{
    using form = td_form<TYPE, PLANES, WIDE>;
    const int N = form::rows;
    extern __shared__ uint4 shared[];
    __shared__ int32_t rows[N];
    const lin_term &t = term_of(p, (int)blockIdx.x);
    int64_t n0 = (int64_t)((int)blockIdx.x - t.tile0) * TILE_M;
    int row0 = (int)blockIdx.y * N, lane = (int)threadIdx.x % WARP;
    int g = lane / 4, c = lane % 4;
    float total[2][N / 16][4];
    if (threadIdx.x < N)
        rows[threadIdx.x] =
            row0 + (int)threadIdx.x < p.rows ? row0 + (int)threadIdx.x : -1;
    __syncthreads();
    td_wait();
    td_tile_in<1> in = {
        {t.w}, {scale_of(t, n0, p.blocks)}, t.n, n0, p.blocks, p.x, p.plane, rows};
    tile_run<TYPE, PLANES, 1, N, form::stages>(in, (td_stage<TYPE, PLANES, N> *)shared,
                                               total);
#pragma unroll
    for (int mt = 0; mt < 2; mt++)
#pragma unroll
        for (int nt = 0; nt < N / 16; nt++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t n = n0 + td_tile_m<1>(mt) + g + 8 * (e / 2);
                int row = row0 + td_tile_n<N>(nt) + 2 * c + e % 2;
                if (n < t.n && row < p.rows)
                    t.y[row * t.y_stride + n] = total[mt][nt][e];
            }
}

enum { WIDE_BAND = 16 };

/* What wide_run() works on: tiles of rows, `band` of which share weights before the next
 * weights are asked for, so that both stay in the second-level cache. `columns` are those
 * of tiles of weights that a cluster takes together. */
struct lin_work {
    lin_params p;
    int32_t columns, tiles, rows, band;

    TD_DEVICE_MEMBER bool find(int unit, td_unit<1> &u) const
    {
        int both = unit / WIDE_CLUSTER, tile0 = both / (columns * band) * band;
        if (both >= columns * tiles)
            return false;
        int wide = min(band, tiles - tile0), in = both - columns * tile0;
        int column = in / wide * WIDE_CLUSTER + unit % WIDE_CLUSTER, i = 0;
        while (i + 1 < p.count && column >= p.term[i + 1].tile0)
            i++;
        const lin_term &t = p.term[i];
        u.n = t.n;
        u.n0 = (int64_t)(column - t.tile0) * TILE_M;
        u.w[0] = t.w;
        u.scale[0] = u.n0 < t.n ? scale_of(t, u.n0, p.blocks) : NULL;
        int32_t first = (tile0 + in % wide) * rows;
        u.x = p.x + (int64_t)first * SLICE;
        u.plane = p.plane;
        u.tall = p.tall;
        u.blocks = p.blocks;
        u.count = min(rows, p.rows - first);
        u.out = t.y + first * t.y_stride;
        u.step = t.y_stride;
        u.pick = NULL;
        u.rounds = false;
        return true;
    }
};

template <int TYPE, int PLANES>
static __global__ void TD_WIDE_BOUNDS lin_wide(const __grid_constant__ lin_work work)
{
    wide_run<TYPE, PLANES, 1>(work);
}

/* F32 weights: a warp for each output, four rows at a time; lane l takes elements l,
 * l + 32, ... */
static __global__ void __launch_bounds__(BLOCK_THREADS)
    lin_f32(const lin_term t, const float *x, int64_t x_stride, int32_t rows, int64_t k,
            bool rounds)
{
    int64_t n = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP, row0 = (int)blockIdx.y * 4;
    td_wait();
    if (n >= t.n)
        return;
    const float *w = (const float *)t.w + n * td_cuda_pitch(k);
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t i = lane; i < k; i += WARP)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float v = row0 + r < rows ? x[(row0 + r) * x_stride + i] : 0.0f;
            sum[r] = fmaf(w[i], rounds ? td_round_bf16(v) : v, sum[r]);
        }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        float y = td_warp_sum(sum[r]);
        if (lane == 0 && row0 + r < rows)
            put(t, row0 + r, n, y);
    }
}

/* Sets tile0 of all terms for tiles of m rows; the number of tiles. */
static int lay_out(struct lin_params *p, int m)
{
    int tiles = 0;
    for (int i = 0; i < p->count; i++) {
        p->term[i].tile0 = tiles;
        tiles += (int)((p->term[i].n + m - 1) / m);
    }
    return tiles;
}

/* Whether all terms are of a type and rounded. */
static bool plain(const struct lin_params &p, int type)
{
    for (int i = 0; i < p.count; i++)
        if (p.term[i].type != type || p.term[i].planes != 1)
            return false;
    return true;
}

template <int NT, int W>
static void run_small(const struct td_cuda_ctx *c, struct lin_params &p)
{
    int tiles = lay_out(&p, SMALL_M);
    dim3 grid((unsigned)tiles, (unsigned)((p.rows + 8 * NT - 1) / (8 * NT)));
    size_t bytes = td_small_bytes(W, NT, p.blocks);
    if (plain(p, TD_MAT_BF16))
        td_start(c, lin_small<NT, W, true>, grid, W * WARP, bytes, p);
    else
        td_start(c, lin_small<NT, W, false>, grid, W * WARP, bytes, p);
}

template <int TYPE, int W>
static void run_one(const struct td_cuda_ctx *c, struct lin_params &p)
{
    const struct td_one_launch l = {lay_out(&p, SMALL_M), W, p.blocks, TYPE,
                                    td_one_x(p.blocks)};
    dim3 grid((unsigned)l.grid);
    size_t bytes;
    p.ring = td_one_plan(c, l, &bytes);
    if (td_one_again(l, p.ring))
        td_start(c, lin_one<TYPE, W, true>, grid, W * WARP, bytes, p);
    else
        td_start(c, lin_one<TYPE, W, false>, grid, W * WARP, bytes, p);
}

template <int W> static void run_one(const struct td_cuda_ctx *c, struct lin_params &p)
{
    if (p.term[0].type == TD_MAT_BF16)
        run_one<TD_MAT_BF16, W>(c, p);
    else
        run_one<TD_MAT_F8, W>(c, p);
}

enum { NORM_FEW = 2, NORM_MORE = 4 }; /* quads of a thread of lin_norm() */

template <int TYPE>
static void run_norm(const struct td_cuda_ctx *c, struct lin_params &p)
{
    dim3 grid((unsigned)((lay_out(&p, SMALL_M) + NORM_TILES - 1) / NORM_TILES));
    size_t bytes = norm_bytes(p.blocks, TYPE);
    if (p.norm.h <= 4 * NORM_THREADS * NORM_FEW)
        td_start(c, lin_norm<TYPE, NORM_FEW>, grid, NORM_BLOCK, bytes, p);
    else
        td_start(c, lin_norm<TYPE, NORM_MORE>, grid, NORM_BLOCK, bytes, p);
}

/* Whether lin_norm() makes the norm before these products: all of its blocks must be there
 * at a time, or it were made too often. */
static bool norms(const struct td_cuda_ctx *c, const struct td_linear_args *a)
{
    const struct td_norm_args *n = a->norm;
    int type = a->term[0].w->type;
    int64_t tiles = 0;
    if (!n || a->rows != 1 || c->numerics != TD_NUM_BF16 || type == TD_MAT_F32)
        return false;
    for (int i = 0; i < a->count; i++) {
        tiles += (a->term[i].w->n + SMALL_M - 1) / SMALL_M;
        if ((int)a->term[i].w->type != type || a->term[i].exact || a->term[i].adds)
            return false;
    }
    return !n->add && !n->sum && !n->index && td_norm_holds(n) && n->h % KB == 0 &&
           n->h <= 4 * NORM_THREADS * NORM_MORE &&
           tiles <= NORM_TILES * NORM_BLOCKS * c->processors &&
           (norm_bytes((int)(n->h / KB), type) + 1024) * NORM_BLOCKS <=
               (size_t)c->shared_max;
}

/* Few blocks are larger, so that enough weights are on their way. */
static void small(const struct td_cuda_ctx *c, struct lin_params &p)
{
    if (p.count == 0)
        return;
    for (int i = 1; i < p.count; i++) /* first those that take longest */
        for (int j = i; j > 0 && p.term[j - 1].planes < p.term[j].planes; j--) {
            struct lin_term t = p.term[j];
            p.term[j] = p.term[j - 1];
            p.term[j - 1] = t;
        }
    bool few = lay_out(&p, SMALL_M) <= 2 * c->processors && p.blocks > BLOCK_WARPS;
    bool one = p.rows == 1 && (plain(p, TD_MAT_F8) || plain(p, TD_MAT_BF16));
    if (p.rows > 16)
        run_small<4, BLOCK_WARPS>(c, p);
    else if (p.rows > 8 && few)
        run_small<2, MANY_WARPS>(c, p);
    else if (p.rows > 8)
        run_small<2, BLOCK_WARPS>(c, p);
    else if (p.norm.x && p.term[0].type == TD_MAT_BF16)
        run_norm<TD_MAT_BF16>(c, p);
    else if (p.norm.x)
        run_norm<TD_MAT_F8>(c, p);
    else if (one && few)
        run_one<MANY_WARPS>(c, p);
    else if (one)
        run_one<BLOCK_WARPS>(c, p);
    else if (few)
        run_small<1, MANY_WARPS>(c, p);
    else
        run_small<1, BLOCK_WARPS>(c, p);
}

/* Moves the terms of a type and number of planes from `all`. */
static struct lin_params take(struct lin_params *all, int type, int planes)
{
    struct lin_params p = *all;
    int kept = 0;
    p.count = 0;
    for (int i = 0; i < all->count; i++)
        if (all->term[i].type == type && all->term[i].planes == planes)
            p.term[p.count++] = all->term[i];
        else
            all->term[kept++] = all->term[i];
    all->count = kept;
    return p;
}

template <int TYPE, int PLANES, bool WIDE>
static void launch_tiles(const struct td_cuda_ctx *c, struct lin_params &p)
{
    const int N = td_form<TYPE, PLANES, WIDE>::rows;
    dim3 grid((unsigned)lay_out(&p, TILE_M), (unsigned)((p.rows + N - 1) / N));
    td_start(c, lin_tile<TYPE, PLANES, WIDE>, grid, BLOCK_THREADS,
             td_tile_bytes<TYPE, PLANES, WIDE>(), p);
}

template <int TYPE, int PLANES, bool WIDE> static bool fits(const struct td_cuda_ctx *c)
{
    return td_tile_bytes<TYPE, PLANES, WIDE>() + 1024 <= (size_t)c->shared_max;
}

/* One launch for each kind, since tiles differ in shared memory. Those that this GPU's
 * blocks have none for are left to the small form. */
template <int TYPE, int PLANES>
static void tiles(const struct td_cuda_ctx *c, struct lin_params *all)
{
    if (!fits<TYPE, PLANES, false>(c))
        return;
    struct lin_params p = take(all, TYPE, PLANES);
    if (p.count == 0)
        return;
    if (PLANES == 1 && p.rows > 64 && fits<TYPE, PLANES, true>(c))
        launch_tiles<TYPE, PLANES, true>(c, p);
    else
        launch_tiles<TYPE, PLANES, false>(c, p);
}

/* The same by warpgroups. */
template <int TYPE, int PLANES>
static void wide(const struct td_cuda_ctx *c, struct lin_params *all,
                 const struct td_linear_args *a)
{
    const int32_t rows = PLANES == 3 ? WIDE_ROWS_3 : WIDE_ROWS;
    struct lin_params p = take(all, TYPE, PLANES);
    if (p.count == 0)
        return;
    const struct td_planes_out x = td_planes_make(c, a->x, a->x_stride, a->rows,
                                                  a->term[0].w->k, PLANES, true, TYPE);
    p.x = x.first;
    p.plane = x.plane;
    p.tall = x.tall;
    int32_t columns = (lay_out(&p, TILE_M) + WIDE_CLUSTER - 1) / WIDE_CLUSTER;
    td_start_wide(c, lin_wide<TYPE, PLANES>,
                  lin_work{p, columns, (p.rows + rows - 1) / rows, rows, WIDE_BAND});
}

extern "C" void td_cuda_linear(const struct td_cuda_ctx *c,
                               const struct td_linear_args *a)
{
    td_cuda_linear_ahead(c, a, NULL);
}

void td_cuda_linear_ahead(const struct td_cuda_ctx *c, const struct td_linear_args *a,
                          const struct td_cuda_ahead *ahead)
{
    int64_t k = a->term[0].w->k, pitch = td_cuda_pitch(k);
    struct lin_params p = {};
    int planes = 0;
    if (a->norm && td_cuda_gates(c, a))
        return;
    if (norms(c, a))
        p.norm = *a->norm;
    else if (a->norm)
        td_cuda_norm(c, a->norm);
    uint32_t done = td_exact_rows(c, a);
    p.rows = a->rows;
    p.blocks = (int32_t)(pitch / KB);
    if (ahead)
        p.ahead = *ahead;
    for (int i = 0; i < a->count; i++) {
        const auto *t = &a->term[i];
        bool rounds = c->numerics == TD_NUM_BF16 && !t->exact;
        if (done >> i & 1)
            continue;
        struct lin_term term = {t->w->data,  t->w->scale,    t->y,
                                t->y_stride, t->w->n,        0,
                                t->w->type,  rounds ? 1 : 3, t->adds};
        if (t->w->type != TD_MAT_F32) {
            p.term[p.count++] = term;
            planes = TD_MAX(planes, term.planes);
            continue;
        }
        dim3 grid((unsigned)((t->w->n + BLOCK_WARPS - 1) / BLOCK_WARPS),
                  (unsigned)((a->rows + 3) / 4));
        td_start(c, lin_f32, grid, BLOCK_THREADS, 0, term, a->x, a->x_stride, a->rows,
                 k, rounds);
    }
    if (p.count == 0)
        return;
    if (td_planes_sliced(c, p.rows)) {
        wide<TD_MAT_F8, 1>(c, &p, a);
        wide<TD_MAT_BF16, 1>(c, &p, a);
        wide<TD_MAT_F8, 3>(c, &p, a);
        wide<TD_MAT_BF16, 3>(c, &p, a);
        return;
    }
    if (p.norm.x) {
        c->made->x = NULL; /* planes are of something else */
    } else {
        const struct td_planes_out x =
            td_planes_make(c, a->x, a->x_stride, a->rows, k, planes, false, TD_MAT_F8);
        p.x = x.first;
        p.plane = x.plane;
    }
    if (p.rows > TD_CUDA_SMALL_ROWS) {
        tiles<TD_MAT_F8, 1>(c, &p);
        tiles<TD_MAT_BF16, 1>(c, &p);
        tiles<TD_MAT_F8, 3>(c, &p);
        tiles<TD_MAT_BF16, 3>(c, &p);
    }
    small(c, p);
}

template <int TYPE, int PLANES, bool WIDE>
static void allow(const struct td_cuda_ctx *c)
{
    if (fits<TYPE, PLANES, WIDE>(c))
        (void)cudaFuncSetAttribute(lin_tile<TYPE, PLANES, WIDE>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)td_tile_bytes<TYPE, PLANES, WIDE>());
}

template <int TYPE> static void allow_one(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    (void)cudaFuncSetAttribute(lin_one<TYPE, BLOCK_WARPS, false>, bytes, c->shared_max);
    (void)cudaFuncSetAttribute(lin_one<TYPE, BLOCK_WARPS, true>, bytes, c->shared_max);
    (void)cudaFuncSetAttribute(lin_one<TYPE, MANY_WARPS, false>, bytes, c->shared_max);
    (void)cudaFuncSetAttribute(lin_one<TYPE, MANY_WARPS, true>, bytes, c->shared_max);
    (void)cudaFuncSetAttribute(lin_norm<TYPE, NORM_FEW>, bytes, c->shared_max);
    (void)cudaFuncSetAttribute(lin_norm<TYPE, NORM_MORE>, bytes, c->shared_max);
}

extern "C" bool td_cuda_has_warpgroups(int32_t shared_max)
{
    struct cudaFuncAttributes a;
    return WIDE_BYTES <= shared_max &&
           cudaFuncGetAttributes(&a, lin_wide<TD_MAT_F8, 1>) == cudaSuccess &&
           a.maxThreadsPerBlock >= WIDE_THREADS;
}

extern "C" void td_cuda_prepare_linear(const struct td_cuda_ctx *c)
{
    allow_one<TD_MAT_F8>(c);
    allow_one<TD_MAT_BF16>(c);
    if (c->warpgroups) {
        td_allow_wide(lin_wide<TD_MAT_F8, 1>);
        td_allow_wide(lin_wide<TD_MAT_BF16, 1>);
        td_allow_wide(lin_wide<TD_MAT_F8, 3>);
        td_allow_wide(lin_wide<TD_MAT_BF16, 3>);
    }
    allow<TD_MAT_F8, 1, true>(c);
    allow<TD_MAT_F8, 1, false>(c);
    allow<TD_MAT_F8, 3, false>(c);
    allow<TD_MAT_BF16, 1, true>(c);
    allow<TD_MAT_BF16, 1, false>(c);
    allow<TD_MAT_BF16, 3, false>(c);
}

static __global__ void embed_row(const struct td_matrix m, int64_t first,
                                 const int32_t *token, float *x)
{
    td_wait_early(gridDim.x);
    int64_t row = token[blockIdx.x] - first, pitch = td_cuda_pitch(m.k);
    bool have = row >= 0 && row < m.n;
    const float *scale = m.scale && have
                             ? m.scale + row / TD_SCALE_BLOCK * (pitch / TD_SCALE_BLOCK)
                             : NULL;
    for (int64_t i = threadIdx.x; i < m.k; i += blockDim.x) {
        float v = have ? td_weight(m.data, m.type, row * pitch + i) : 0.0f;
        x[blockIdx.x * m.k + i] = scale ? v * scale[i / TD_SCALE_BLOCK] : v;
    }
}

extern "C" void td_cuda_embed(const struct td_cuda_ctx *c,
                              const struct td_embed_args *a)
{
    c->made->x = NULL;
    td_start(c, embed_row, dim3((unsigned)a->rows), 256, 0, *a->table, a->first,
             a->token, a->x);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixture of experts. A choice is a (row, place) pair, numbered row * k + place.
 *
 *     group     choices sorted by expert into tiles of at most T that share an expert
 *     inner     mid[choice] = silu(gate x) * up x, as planes
 *     outer     out[choice] = down mid, rounded to bf16 in bf16 numerics
 *     combine   y = sum of weight * out in the order of the choice + shared expert
 *
 * All decisions are made on the device: grids have room for the most tiles that the
 * number of choices allows, and blocks without a tile end at once. The shared expert is
 * an expert that all rows chose, with tiles that need no table; its mid and out lie behind
 * those of the choices.
 *
 * Products by warpgroups take planes in slices, in which a tile's rows must follow each
 * other: `spread` copies those of each choice to its place among the sorted ones, and mid
 * is in that order too.
 *
 * Few rows have kernels of their own, see few.cu.
 *
 * groups.cuh sorts.
 */
#include "ops/cuda/groups.cuh"
#include "ops/cuda/planes.cuh"
#include "ops/cuda/small.cuh"
#include "ops/cuda/warpgroup.cuh"

enum { FEW_WARPS = 4 };

/* One of the two products of a gated network. */
struct net {
    const void *w[2]; /* gate and up, or down; of expert 0 */
    const float *scale[2];
    int64_t w_step, scale_step; /* bytes and floats between experts */
    int64_t n;
    int32_t blocks, type, rows; /* rows: choices, or rows of the shared expert */
    int32_t per_row;            /* choices that share a row of x */
    const uint16_t *x;
    int64_t plane;
    int32_t tall;             /* of x and mid in slices, 0: row by row */
    const int32_t *groups;    /* NULL: all rows, in order, of one expert */
    int32_t most_tiles, size; /* size: choices of a tile */
    uint16_t *mid;            /* of inner */
    int64_t mid_plane;
    void *out; /* of outer: [choices][n] of bf16 or f32 */
};

/* The experts that were chosen and the shared one, in one launch: blocks of grid row
 * tiles0 and on work for the latter. */
struct nets {
    struct net f[2];
    int32_t tiles0;
};

size_t td_cuda_groups_bytes(const struct td_reserve *r)
{
    return (size_t)group_ints(r->max_rows * r->experts_k, r->experts) * sizeof(int32_t);
}

size_t td_cuda_mid_bytes(const struct td_reserve *r, int planes)
{
    int64_t choices = most_sorted(r->max_rows * r->experts_k, r->experts);
    int64_t rows = td_cuda_tall(r->max_rows);
    return (size_t)(planes * (choices * td_cuda_pitch(r->expert_size) +
                              rows * td_cuda_pitch(r->shared_size))) *
           sizeof(uint16_t);
}

/* Of the results, and before them of the sorted choices' planes. */
size_t td_cuda_out_bytes(const struct td_reserve *r, int planes)
{
    size_t choices = (size_t)r->max_rows * (size_t)r->experts_k;
    int64_t sorted = most_sorted(r->max_rows * r->experts_k, r->experts);
    size_t result = planes == 1 ? sizeof(uint16_t) : sizeof(float);
    return TD_MAX(choices * (size_t)r->hidden * result,
                  (size_t)(sorted * td_cuda_pitch(r->hidden)) * sizeof(uint16_t));
}

/* Copies a row's plane to the places of its k choices. A thread has a piece. */
static __global__ void __launch_bounds__(256)
    spread(const int32_t *place, int32_t k, const uint4 *from, int32_t from_tall,
           int32_t pieces, uint4 *to, int32_t to_tall)
{
    const int each = SLICE / 8; /* of a slice */
    int32_t row = (int32_t)blockIdx.x, i = (int32_t)(blockIdx.y * 256 + threadIdx.x);
    td_wait();
    if (i >= pieces)
        return;
    int64_t slice = i / each;
    int32_t piece = i % each ^ row % SLICE_ROWS;
    uint4 v = from[(slice * from_tall + row) * each + i % each];
    for (int32_t j = 0; j < k; j++) {
        int32_t at = place[row * k + j];
        to[(slice * to_tall + at) * each + (piece ^ at % SLICE_ROWS)] = v;
    }
}

/* A tile: its expert and choices, -1 where there are fewer than f.size. False when there
 * is none. All threads must call it. */
TD_DEVICE bool find_tile(const struct net &f, int tile, int32_t *expert,
                         int32_t *choice)
{
    int i = (int)threadIdx.x, size = f.size;
    int32_t first = tile * size, count = f.rows - first;
    const int32_t *sorted = NULL;
    *expert = 0;
    if (f.groups) {
        if (tile >= f.groups[0])
            return false;
        const int32_t *t = f.groups + 1 + TILE_INTS * tile;
        *expert = t[0];
        first = t[1];
        count = t[2];
        sorted = f.groups + 1 + TILE_INTS * f.most_tiles;
    }
    if (i < size)
        choice[i] = i >= count ? -1 : sorted ? sorted[first + i] : first + i;
    __syncthreads();
    return true;
}

TD_DEVICE const void *net_weight(const struct net &f, int i, int32_t expert)
{
    return (const char *)f.w[i] + expert * f.w_step;
}

TD_DEVICE const float *net_scale(const struct net &f, int i, int32_t expert, int64_t n0)
{
    return f.scale[i]
               ? f.scale[i] + expert * f.scale_step + n0 / TD_SCALE_BLOCK * f.blocks
               : NULL;
}

/* mid[choice][n] for one inner value; columns up to the pitch are written. */
template <int PLANES>
TD_DEVICE void store_mid(const struct net &f, int32_t choice, int64_t n, float gate,
                         float up)
{
    int64_t pitch = td_cuda_pitch(f.n);
    td_planes_store(td_silu(gate) * up, PLANES, f.mid + choice * pitch + n,
                    f.mid_plane);
}

/* Element `at` of what outer makes. */
template <int PLANES> TD_DEVICE void store_out(const struct net &f, int64_t at, float y)
{
    if (PLANES == 1)
        ((uint16_t *)f.out)[at] = td_to_bf16(y);
    else
        ((float *)f.out)[at] = y;
}

/* The 16 weight rows of a block: NW = 2 is inner, 8 of gate and the same 8 of up; NW = 1
 * is outer, 16 of down. */
template <int TYPE, int NW>
TD_DEVICE td_small_in net_rows(const struct net &f, int32_t expert)
{
    const int64_t pitch = (int64_t)f.blocks * KB * td_bytes_of<TYPE>();
    int64_t n0 = (int64_t)blockIdx.x * (SMALL_M / NW), g = threadIdx.x % WARP / 4;
    int64_t hi = NW == 2 ? n0 + g : n0 + g + 8;
    const uint8_t *first = (const uint8_t *)net_weight(f, 0, expert);
    const uint8_t *second = (const uint8_t *)net_weight(f, NW - 1, expert);
    return td_small_in{n0 + g < f.n ? first + (n0 + g) * pitch : NULL,
                       hi < f.n ? second + hi * pitch : NULL,
                       {net_scale(f, 0, expert, n0), net_scale(f, NW - 1, expert, n0)},
                       f.blocks};
}

template <int TYPE, int PLANES, int NW, int W>
TD_DEVICE void net_small(const struct net &f, const int32_t *choice, int32_t expert,
                         float *shared)
{
    int64_t n0 = (int64_t)blockIdx.x * (SMALL_M / NW);
    const uint16_t *x[1];
    float total[1];
    int32_t of = choice[threadIdx.x % WARP / 4];
    x[0] = of < 0 ? NULL : f.x + (int64_t)(of / f.per_row) * f.blocks * KB;
    small_run<TYPE, PLANES, 1, W, false>(net_rows<TYPE, NW>(f, expert), x, f.plane,
                                         shared, total);
    int m = (int)threadIdx.x % SMALL_M, row = (int)threadIdx.x / SMALL_M;
    float up = __shfl_xor_sync(0xffffffff, total[0], 8);
    if (row >= 8 || choice[row] < 0)
        return;
    if (NW == 2 && m < 8)
        store_mid<PLANES>(f, choice[row], n0 + m, total[0], up);
    else if (NW == 1 && n0 + m < f.n)
        store_out<PLANES>(f, choice[row] * f.n + n0 + m, total[0]);
}

/* W: 4 warps where there are no more k blocks, 8 else. */
template <int TYPE, int PLANES, int NW, int W>
static __global__ void __launch_bounds__(W *WARP,
                                         (TYPE == TD_MAT_F8 && PLANES == 1 ? 32 : 16) /
                                             W) net_small_run(const nets both)
{
    extern __shared__ float part[];
    __shared__ int32_t choice[8];
    int32_t expert, tile = (int32_t)blockIdx.y, at = tile >= both.tiles0;
    const struct net &f = both.f[at];
    td_wait();
    if ((int64_t)blockIdx.x * (SMALL_M / NW) >= (NW == 2 ? td_cuda_pitch(f.n) : f.n))
        return;
    if (find_tile(f, at ? tile - both.tiles0 : tile, &expert, choice))
        net_small<TYPE, PLANES, NW, W>(f, choice, expert, part);
}

template <int TYPE, int PLANES, bool WIDE, int NW>
static __global__ void __launch_bounds__(BLOCK_THREADS, WIDE &&PLANES == 1 ? 1 : 2)
    net_tile_run(const nets both)
{
    using form = td_form<TYPE, PLANES, WIDE>;
    const int N = form::rows;
    extern __shared__ uint4 shared[];
    __shared__ int32_t choice[N], rows[N];
    int lane = (int)threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    int64_t n0 = (int64_t)blockIdx.x * (TILE_M / NW);
    int32_t expert, tile = (int32_t)blockIdx.y, at = tile >= both.tiles0;
    const struct net &f = both.f[at];
    float total[2][N / 16][4];
    td_wait();
    if (n0 >= (NW == 2 ? td_cuda_pitch(f.n) : f.n))
        return;
    if (!find_tile(f, at ? tile - both.tiles0 : tile, &expert, choice))
        return;
    if (threadIdx.x < N)
        rows[threadIdx.x] =
            choice[threadIdx.x] < 0 ? -1 : choice[threadIdx.x] / f.per_row;
    __syncthreads();
    td_tile_in<NW> in;
    for (int i = 0; i < NW; i++) {
        in.w[i] = net_weight(f, i, expert);
        in.scale[i] = net_scale(f, i, expert, n0);
    }
    in.n = f.n;
    in.n0 = n0;
    in.blocks = f.blocks;
    in.x = f.x;
    in.plane = f.plane;
    in.rows = rows;
    tile_run<TYPE, PLANES, NW, N, form::stages>(in, (td_stage<TYPE, PLANES, N> *)shared,
                                                total);
#pragma unroll
    for (int mt = 0; mt < (NW == 2 ? 1 : 2); mt++)
#pragma unroll
        for (int nt = 0; nt < N / 16; nt++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t n = n0 + td_tile_m<NW>(mt) + g + 8 * (e / 2);
                int32_t of = choice[td_tile_n<N>(nt) + 2 * c + e % 2];
                if (of < 0)
                    continue;
                if (NW == 2)
                    store_mid<PLANES>(f, of, n, total[0][nt][e], total[1][nt][e]);
                else if (n < f.n)
                    store_out<PLANES>(f, of * f.n + n, total[mt][nt][e]);
            }
}

/* What wide_run() works on. */
template <int NW> struct net_work {
    nets both;
    int32_t columns;

    TD_DEVICE_MEMBER bool find(int unit, td_unit<NW> &u) const
    {
        const int32_t *groups = both.f[0].groups;
        int32_t own = both.f[0].rows ? groups[0] : 0, tile = unit / columns;
        int32_t column = unit % columns, expert = 0;
        bool shared = tile >= own;
        const net &f = both.f[shared];
        int64_t end = NW == 2 ? td_cuda_pitch(f.n) : f.n;
        int32_t first = (shared ? tile - own : tile) * WIDE_ROWS;
        u.count = min(f.rows - first, (int32_t)WIDE_ROWS);
        u.pick = NULL;
        if (shared && first >= f.rows)
            return false;
        if (!shared) {
            const int32_t *t = groups + 1 + TILE_INTS * tile;
            expert = t[0];
            first = t[1];
            u.count = t[2];
            u.pick = groups + 1 + TILE_INTS * f.most_tiles + first;
        }
        if (column / WIDE_CLUSTER * WIDE_CLUSTER * (TILE_M / NW) >= end)
            u.count = 0;
        u.n = f.n;
        u.n0 = (int64_t)column * (TILE_M / NW);
#pragma unroll
        for (int i = 0; i < NW; i++) {
            u.w[i] = net_weight(f, i, expert);
            u.scale[i] = u.n0 < f.n ? net_scale(f, i, expert, u.n0) : NULL;
        }
        u.x = f.x + (int64_t)first * SLICE;
        u.plane = f.plane;
        u.tall = f.tall;
        u.blocks = f.blocks;
        u.step = f.n;
        u.rounds = true;
        u.out = (uint16_t *)f.out + (shared ? first * f.n : 0);
        if (NW == 2)
            u.out = u.n0 < end ? f.mid + (u.n0 / SLICE * f.tall + first) * SLICE : NULL;
        return true;
    }
};

template <int TYPE, int NW>
static __global__ void TD_WIDE_BOUNDS
net_wide(const __grid_constant__ net_work<NW> work)
{
    wide_run<TYPE, 1, NW>(work);
}

/* F32 weights, a warp for each output of one choice. */
template <int PLANES, int NW>
static __global__ void __launch_bounds__(BLOCK_THREADS) net_f32_run(const net f)
{
    __shared__ int32_t choice[TILE_MOST];
    int64_t n = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;
    int64_t pitch = (int64_t)f.blocks * KB;
    int lane = (int)threadIdx.x % WARP;
    int32_t expert;
    td_wait();
    if (!find_tile(f, (int)blockIdx.y, &expert, choice))
        return;
    for (int row = 0; row < f.size && choice[row] >= 0; row++) {
        const uint16_t *x = f.x + choice[row] / f.per_row * pitch;
        float total[NW] = {};
        for (int i = 0; i < NW && n < f.n; i++) {
            const float *w = (const float *)net_weight(f, i, expert) + n * pitch;
            float sum = 0.0f;
            for (int64_t k = lane; k < pitch; k += WARP) {
                float v = 0.0f;
                for (int p = PLANES - 1; p >= 0; p--)
                    v += td_from_bf16(x[p * f.plane + k]);
                sum = fmaf(w[k], v, sum);
            }
            total[i] = td_warp_sum(sum);
        }
        if (lane != 0)
            continue;
        if (NW == 2 && n < td_cuda_pitch(f.n))
            store_mid<PLANES>(f, choice[row], n, total[0], total[NW - 1]);
        else if (NW == 1 && n < f.n)
            store_out<PLANES>(f, choice[row] * f.n + n, total[0]);
    }
}

/* ---- launches ---- */

template <int TYPE, int PLANES, bool WIDE> static bool fits(const struct td_cuda_ctx *c)
{
    return td_tile_bytes<TYPE, PLANES, WIDE>() + 2048 <= (size_t)c->shared_max;
}

/* Choices of a tile: few while experts have few each, or when this GPU's blocks have no
 * shared memory for many. Any size gives the same bits. */
template <int PLANES>
static int tile_size(const struct td_cuda_ctx *c, int32_t choices, int32_t experts)
{
    if (choices <= TD_MAX(4 * experts, TD_CUDA_SMALL_ROWS) ||
        !fits<TD_MAT_BF16, PLANES, false>(c))
        return 8;
    if (PLANES == 1 && c->warpgroups)
        return WIDE_ROWS;
    return PLANES == 1 && choices > 96 * experts && fits<TD_MAT_BF16, PLANES, true>(c)
               ? 128
               : 64;
}

static int32_t tiles_of(const struct net &f)
{
    return f.rows == 0 ? 0 : f.groups ? f.most_tiles : (f.rows + f.size - 1) / f.size;
}

template <int TYPE, int PLANES, bool WIDE, int NW>
static void launch_tiles(const struct td_cuda_ctx *c, dim3 grid,
                         const struct nets &both)
{
    td_start(c, net_tile_run<TYPE, PLANES, WIDE, NW>, grid, BLOCK_THREADS,
             td_tile_bytes<TYPE, PLANES, WIDE>(), both);
}

template <int NW>
static void launch_wide(const struct td_cuda_ctx *c, const struct nets &both, int type,
                        int64_t wide)
{
    const int64_t m = TILE_M / NW * WIDE_CLUSTER;
    net_work<NW> work = {both, (int32_t)((wide + m - 1) / m * WIDE_CLUSTER)};
    if (type == TD_MAT_F8)
        td_start_wide(c, net_wide<TD_MAT_F8, NW>, work);
    else
        td_start_wide(c, net_wide<TD_MAT_BF16, NW>, work);
}

template <int PLANES, int NW, int W>
static void launch_small(const struct td_cuda_ctx *c, dim3 grid,
                         const struct nets &both)
{
    size_t bytes = td_small_bytes(W, 1, TD_MAX(both.f[0].blocks, both.f[1].blocks));
    int type = both.f[both.tiles0 == 0].type;
    if (type == TD_MAT_F8)
        td_start(c, net_small_run<TD_MAT_F8, PLANES, NW, W>, grid, W * WARP, bytes,
                 both);
    else
        td_start(c, net_small_run<TD_MAT_BF16, PLANES, NW, W>, grid, W * WARP, bytes,
                 both);
}

/* Experts f and shared expert s, or one of them when the other has no rows; both of the
 * same type and size of tiles. */
template <int PLANES, int NW>
static void run(const struct td_cuda_ctx *c, const struct net &f, const struct net &s)
{
    struct nets both = {{f, s}, tiles_of(f)};
    int64_t n = TD_MAX(f.n, s.n), wide = NW == 2 ? td_cuda_pitch(n) : n;
    int size = f.rows ? f.size : s.size, type = f.rows ? f.type : s.type;
    unsigned tiles = (unsigned)(tiles_of(f) + tiles_of(s));
    int m = (size == 8 ? SMALL_M : TILE_M) / NW;
    dim3 grid((unsigned)((wide + m - 1) / m), tiles);
    if (type == TD_MAT_F32) {
        const struct net *each[2] = {&f, &s};
        for (int i = 0; i < 2; i++) {
            wide = NW == 2 ? td_cuda_pitch(each[i]->n) : each[i]->n;
            grid = dim3((unsigned)((wide + BLOCK_WARPS - 1) / BLOCK_WARPS),
                        (unsigned)tiles_of(*each[i]));
            if (each[i]->rows)
                td_start(c, net_f32_run<PLANES, NW>, grid, BLOCK_THREADS, 0, *each[i]);
        }
    } else if (size == 8) {
        if (TD_MAX(f.blocks, s.blocks) <= FEW_WARPS)
            launch_small<PLANES, NW, FEW_WARPS>(c, grid, both);
        else
            launch_small<PLANES, NW, BLOCK_WARPS>(c, grid, both);
    } else if (f.rows ? f.tall : s.tall) {
        launch_wide<NW>(c, both, type, wide);
    } else if (size == 128) {
        if (type == TD_MAT_F8)
            launch_tiles<TD_MAT_F8, PLANES, true, NW>(c, grid, both);
        else
            launch_tiles<TD_MAT_BF16, PLANES, true, NW>(c, grid, both);
    } else {
        if (type == TD_MAT_F8)
            launch_tiles<TD_MAT_F8, PLANES, false, NW>(c, grid, both);
        else
            launch_tiles<TD_MAT_BF16, PLANES, false, NW>(c, grid, both);
    }
}

/* Runs both in one launch if they are alike. */
template <int PLANES, int NW>
static void run_both(const struct td_cuda_ctx *c, const struct net &f,
                     const struct net &s)
{
    struct net none = {};
    if (s.rows == 0 || (f.type == s.type && f.size == s.size)) {
        run<PLANES, NW>(c, f, s);
    } else {
        run<PLANES, NW>(c, f, none);
        run<PLANES, NW>(c, none, s);
    }
}

static void set_weights(struct net *f, const struct td_matrix *a,
                        const struct td_matrix *b, bool many)
{
    f->w[0] = a->data;
    f->scale[0] = a->scale;
    f->w[1] = b ? b->data : NULL;
    f->scale[1] = b ? b->scale : NULL;
    f->w_step = many ? (const char *)a[1].data - (const char *)a[0].data : 0;
    f->scale_step = many && a->scale ? a[1].scale - a[0].scale : 0;
    f->n = a->n;
    f->blocks = (int32_t)(td_cuda_pitch(a->k) / KB);
    f->type = a->type;
}

/* The second product behind the first, from and to work memory. */
static struct net outer_of(const struct net &inner, const struct td_matrix *down,
                           bool many, void *out)
{
    struct net outer = inner;
    if (inner.rows == 0)
        return outer;
    set_weights(&outer, down, NULL, many);
    outer.x = inner.mid;
    outer.plane = inner.mid_plane;
    outer.per_row = 1;
    outer.out = out;
    return outer;
}

/* Elements at .. at + 3 of what outer made. */
template <bool ROUNDED> TD_DEVICE float4 load_out(const void *out, int64_t at)
{
    if (!ROUNDED)
        return *(const float4 *)((const float *)out + at);
    uint2 v = *(const uint2 *)((const uint16_t *)out + at);
    return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000),
                       __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000));
}

TD_DEVICE void add_out(float4 &y, float w, float4 x)
{
    y = make_float4(fmaf(w, x.x, y.x), fmaf(w, x.y, y.y), fmaf(w, x.z, y.z),
                    fmaf(w, x.w, y.w));
}

TD_DEVICE float one_out(bool rounded, const void *out, int64_t at)
{
    return rounded ? td_from_bf16(((const uint16_t *)out)[at])
                   : ((const float *)out)[at];
}

/* Four elements a thread, or one where rows are not of whole fours. */
template <bool ROUNDED>
static __global__ void __launch_bounds__(256)
    combine(const struct td_experts_args a, int64_t hidden, const void *out,
            const void *shared)
{
    int64_t at = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;
    float4 y = {0.0f, 0.0f, 0.0f, 0.0f};
    td_wait();
    float gate = a.shared_down ? td_sigmoid(a.shared_gate[row]) : 0.0f;
    if (hidden % 4 == 0) {
        at *= 4;
        if (at >= hidden)
            return;
#pragma unroll 8
        for (int64_t j = row * a.k; j < (row + 1) * a.k; j++)
            add_out(y, a.weight[j], load_out<ROUNDED>(out, j * hidden + at));
        if (a.shared_down)
            add_out(y, gate, load_out<ROUNDED>(shared, row * hidden + at));
        float4 *to = (float4 *)(a.y + row * hidden + at);
        if (a.adds) {
            float4 x = *to;
            y = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
        }
        *to = y;
    } else if (at < hidden) {
        for (int64_t j = row * a.k; j < (row + 1) * a.k; j++)
            y.x = fmaf(a.weight[j], one_out(ROUNDED, out, j * hidden + at), y.x);
        if (a.shared_down)
            y.x = fmaf(gate, one_out(ROUNDED, shared, row * hidden + at), y.x);
        float *to = a.y + row * hidden + at;
        *to = a.adds ? *to + y.x : y.x;
    }
}

/* Whether these products are those of warpgroup.cuh. */
static bool sliced(const struct td_cuda_ctx *c, const struct td_experts_args *a)
{
    const struct td_matrix *all[] = {a->gate, a->down, a->shared_gate_proj,
                                     a->shared_down};
    bool good = td_planes_sliced(c, a->rows) && c->numerics == TD_NUM_BF16 &&
                a->gate->type != TD_MAT_F32 &&
                tile_size<1>(c, a->rows * a->k, a->experts) == WIDE_ROWS;
    for (size_t i = 0; i < TD_COUNT(all); i++)
        good = good && !(all[i] && all[i]->type != a->gate->type);
    return good;
}

/* Sorts the choices, and in slices their rows x too. */
static void sort(const struct td_cuda_ctx *c, const struct td_experts_args *a,
                 struct net *f, int32_t x_tall)
{
    const struct grouping g = {a->id,         f->rows,
                               a->experts,    f->size,
                               f->most_tiles, most_sorted(f->rows, a->experts),
                               c->groups};
    int32_t pieces = f->blocks * (KB / 8);
    start_group(c, g);
    if (x_tall == 0)
        return;
    dim3 grid((unsigned)a->rows, (unsigned)((pieces + 255) / 256));
    td_start(c, spread, grid, 256, 0, group_places(g), a->k, (const uint4 *)f->x,
             x_tall, pieces, (uint4 *)c->out, g.places);
    f->x = (const uint16_t *)c->out;
    f->tall = g.places;
    f->mid_plane = g.places * td_cuda_pitch(f->n);
}

/* Both inner products, their places in work memory settled. */
template <int PLANES>
static void inner(const struct td_cuda_ctx *c, const struct td_experts_args *a,
                  struct net *f, struct net *s)
{
    int64_t hidden = a->down[0].n;
    struct td_planes_out x = td_planes_make(c, a->x, hidden, a->rows, hidden, PLANES,
                                            sliced(c, a), a->gate->type);
    f->x = s->x = x.first;
    f->plane = s->plane = x.plane;
    f->rows = a->rows * a->k;
    f->per_row = a->k;
    f->size = tile_size<PLANES>(c, f->rows, a->experts);
    set_weights(f, a->gate, a->up, a->experts > 1);
    f->mid = c->mid;
    f->mid_plane = f->rows * td_cuda_pitch(f->n);
    f->most_tiles = most_tiles(f->rows, a->experts, f->size);
    f->groups = c->groups;
    sort(c, a, f, x.tall);
    if (a->shared_down) {
        s->rows = a->rows;
        s->per_row = 1;
        s->size = f->size == 8 ? 8 : tile_size<PLANES>(c, a->rows, 1);
        s->tall = x.tall;
        set_weights(s, a->shared_gate_proj, a->shared_up, false);
        s->mid = c->mid + PLANES * f->mid_plane;
        s->mid_plane = a->rows * td_cuda_pitch(s->n);
    }
    run_both<PLANES, 2>(c, *f, *s);
}

template <int PLANES>
static void experts(const struct td_cuda_ctx *c, const struct td_experts_args *a)
{
    int64_t hidden = a->down[0].n;
    struct net f = {}, s = {};
    inner<PLANES>(c, a, &f, &s);
    struct net f2 = outer_of(f, a->down, a->experts > 1, c->out);
    struct net s2 = outer_of(s, a->shared_down, false, c->shared);
    run_both<PLANES, 1>(c, f2, s2);
    int64_t threads = hidden % 4 == 0 ? hidden / 4 : hidden;
    dim3 grid((unsigned)a->rows, (unsigned)((threads + 255) / 256));
    td_start(c, combine<PLANES == 1>, grid, 256, 0, *a, hidden, c->out, c->shared);
}

extern "C" void td_cuda_experts(const struct td_cuda_ctx *c,
                                const struct td_experts_args *a)
{
    if (td_cuda_few(c, a))
        return;
    if (a->logits) {
        const struct td_route_args route = {a->logits, a->id,      a->weight,
                                            a->rows,   a->experts, a->k};
        td_cuda_route(c, &route);
    }
    if (c->numerics == TD_NUM_BF16)
        experts<1>(c, a);
    else
        experts<3>(c, a);
}

template <int TYPE, int PLANES, bool WIDE, int NW>
static void allow(const struct td_cuda_ctx *c)
{
    if (fits<TYPE, PLANES, WIDE>(c))
        (void)cudaFuncSetAttribute(net_tile_run<TYPE, PLANES, WIDE, NW>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)td_tile_bytes<TYPE, PLANES, WIDE>());
}

template <int PLANES> static void allow_all(const struct td_cuda_ctx *c)
{
    allow<TD_MAT_F8, PLANES, true, 1>(c);
    allow<TD_MAT_F8, PLANES, true, 2>(c);
    allow<TD_MAT_F8, PLANES, false, 1>(c);
    allow<TD_MAT_F8, PLANES, false, 2>(c);
    allow<TD_MAT_BF16, PLANES, true, 1>(c);
    allow<TD_MAT_BF16, PLANES, true, 2>(c);
    allow<TD_MAT_BF16, PLANES, false, 1>(c);
    allow<TD_MAT_BF16, PLANES, false, 2>(c);
}

extern "C" void td_cuda_prepare_experts(const struct td_cuda_ctx *c)
{
    allow_all<1>(c);
    allow_all<3>(c);
    if (c->warpgroups) {
        td_allow_wide(net_wide<TD_MAT_F8, 1>);
        td_allow_wide(net_wide<TD_MAT_F8, 2>);
        td_allow_wide(net_wide<TD_MAT_BF16, 1>);
        td_allow_wide(net_wide<TD_MAT_BF16, 2>);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixture of experts. A choice is a (row, place) pair, numbered row * k + place.
 *
 *     group     choices sorted by expert into tiles of at most T that share an expert
 *     inner     mid[choice] = silu(gate x) * up x, as planes
 *     outer     out[choice] = down mid
 *     combine   y = sum of weight * out in the order of the choice + shared expert
 *
 * All decisions are made on the device: grids have room for the most tiles that the
 * number of choices allows, and blocks without a tile end at once. The shared expert is
 * an expert that all rows chose, with tiles that need no table.
 *
 * groups: [0] the number of tiles, then tiles of {expert, first, count}, then the sorted
 * choices.
 */
#include "ops/cuda/planes.cuh"
#include "ops/cuda/tile.cuh"

enum { GROUP_THREADS = 1024, TILE_INTS = 3 };

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
    const int32_t *groups;    /* NULL: all rows, in order, of one expert */
    int32_t most_tiles, size; /* size: choices of a tile */
    uint16_t *mid;            /* of inner */
    int64_t mid_plane;
    float *out; /* of outer */
};

static int32_t most_tiles(int32_t choices, int32_t experts, int32_t size)
{
    return (choices < experts ? choices : experts) + choices / size;
}

size_t td_cuda_groups_bytes(const struct td_reserve *r)
{
    int32_t choices = r->max_rows * r->experts_k;
    return (size_t)(1 + TILE_INTS * most_tiles(choices, r->experts, 8) + choices) *
           sizeof(int32_t);
}

/* Counts, adds up and sorts in one block. Which place a choice gets among those of its
 * expert has no influence on its result. */
static __global__ void __launch_bounds__(GROUP_THREADS)
    group(const int32_t *id, int32_t choices, int32_t experts, int32_t size,
          int32_t most, int32_t *groups)
{
    __shared__ int32_t count[TD_CUDA_MAX_EXPERTS], first[TD_CUDA_MAX_EXPERTS];
    __shared__ int32_t tile0[TD_CUDA_MAX_EXPERTS];
    int32_t *sorted = groups + 1 + TILE_INTS * most;
    for (int e = (int)threadIdx.x; e < experts; e += GROUP_THREADS)
        count[e] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < choices; i += GROUP_THREADS)
        atomicAdd(&count[id[i]], 1);
    __syncthreads();
    if (threadIdx.x < WARP) { /* a running sum, 32 experts at a time */
        int32_t rows = 0, tiles = 0;
        for (int e0 = 0; e0 < experts; e0 += WARP) {
            int e = e0 + (int)threadIdx.x;
            int32_t n = e < experts ? count[e] : 0, t = (n + size - 1) / size;
            int32_t rows_to = n, tiles_to = t;
            for (int d = 1; d < WARP; d *= 2) {
                int32_t r = __shfl_up_sync(0xffffffff, rows_to, d);
                int32_t u = __shfl_up_sync(0xffffffff, tiles_to, d);
                if ((int)threadIdx.x >= d) {
                    rows_to += r;
                    tiles_to += u;
                }
            }
            if (e < experts) {
                first[e] = rows + rows_to - n;
                tile0[e] = tiles + tiles_to - t;
            }
            rows += __shfl_sync(0xffffffff, rows_to, WARP - 1);
            tiles += __shfl_sync(0xffffffff, tiles_to, WARP - 1);
        }
        if (threadIdx.x == 0)
            groups[0] = tiles;
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < experts; e += GROUP_THREADS) {
        for (int32_t at = 0, t = tile0[e]; at < count[e]; at += size, t++) {
            groups[1 + TILE_INTS * t] = e;
            groups[2 + TILE_INTS * t] = first[e] + at;
            groups[3 + TILE_INTS * t] = min(size, count[e] - at);
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < choices; i += GROUP_THREADS)
        sorted[atomicAdd(&first[id[i]], 1)] = i;
}

/* The tile of this block: its expert and choices, -1 where there are fewer than f.size.
 * False when there is none. All threads must call it. */
TD_DEVICE bool find_tile(const struct net &f, int32_t *expert, int32_t *choice)
{
    int tile = (int)blockIdx.y, i = (int)threadIdx.x, size = f.size;
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

/* NW = 2 is inner, NW = 1 is outer. */
template <int TYPE, int PLANES, int NT, int NW>
TD_DEVICE void net_small(const struct net &f, const int32_t *choice, int32_t expert,
                         float *part)
{
    int64_t n0 = (int64_t)blockIdx.x * SMALL_M;
    int g = (int)threadIdx.x % WARP / 4;
    const void *w[NW];
    const float *scale[NW];
    const uint16_t *x[NT];
#pragma unroll
    for (int i = 0; i < NW; i++) {
        w[i] = net_weight(f, i, expert);
        scale[i] = net_scale(f, i, expert, n0);
    }
#pragma unroll
    for (int t = 0; t < NT; t++) {
        int32_t of = choice[8 * t + g];
        x[t] = of < 0 ? NULL : f.x + (int64_t)(of / f.per_row) * f.blocks * KB;
    }
    small_parts<TYPE, PLANES, NT, NW>(w, f.n, n0, f.blocks, x, f.plane, part);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < SMALL_M * 8 * NT; i += BLOCK_THREADS) {
        int m = i % SMALL_M, row = i / SMALL_M;
        int32_t of = choice[row];
        if (of < 0)
            continue;
        float first = small_total(part, f.blocks, NT, 0, m, row, scale[0]);
        if (NW == 2)
            store_mid<PLANES>(
                f, of, n0 + m, first,
                small_total(part, f.blocks, NT, NW - 1, m, row, scale[NW - 1]));
        else if (n0 + m < f.n)
            f.out[of * f.n + n0 + m] = first;
    }
}

template <int PLANES, int NT, int NW>
static __global__ void __launch_bounds__(BLOCK_THREADS) net_small_run(const net f)
{
    extern __shared__ float part[];
    __shared__ int32_t choice[8 * NT];
    int32_t expert;
    if (!find_tile(f, &expert, choice))
        return;
    if (f.type == TD_MAT_F8)
        net_small<TD_MAT_F8, PLANES, NT, NW>(f, choice, expert, part);
    else
        net_small<TD_MAT_BF16, PLANES, NT, NW>(f, choice, expert, part);
}

template <int TYPE, int PLANES, int NW>
static __global__ void __launch_bounds__(BLOCK_THREADS) net_tile_run(const net f)
{
    extern __shared__ uint4 shared[];
    __shared__ int32_t choice[TILE_N], rows[TILE_N];
    int lane = (int)threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    int64_t n0 = (int64_t)blockIdx.x * (TILE_M / NW);
    int32_t expert;
    float total[2][4][4];
    if (!find_tile(f, &expert, choice))
        return;
    if (threadIdx.x < TILE_N)
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
    tile_run<TYPE, PLANES, NW>(in, (td_stage<TYPE, PLANES> *)shared, total);
#pragma unroll
    for (int mt = 0; mt < (NW == 2 ? 1 : 2); mt++)
#pragma unroll
        for (int nt = 0; nt < 4; nt++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t n = n0 + td_tile_m<NW>(mt) + g + 8 * (e / 2);
                int32_t of = choice[td_tile_n(nt) + 2 * c + e % 2];
                if (of < 0)
                    continue;
                if (NW == 2)
                    store_mid<PLANES>(f, of, n, total[0][nt][e], total[1][nt][e]);
                else if (n < f.n)
                    f.out[of * f.n + n] = total[mt][nt][e];
            }
}

/* F32 weights, a warp for each output of one choice. */
template <int PLANES, int NW>
static __global__ void __launch_bounds__(BLOCK_THREADS) net_f32_run(const net f)
{
    __shared__ int32_t choice[TILE_N];
    int64_t n = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;
    int64_t pitch = (int64_t)f.blocks * KB;
    int lane = (int)threadIdx.x % WARP;
    int32_t expert;
    if (!find_tile(f, &expert, choice))
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
            f.out[choice[row] * f.n + n] = total[0];
    }
}

/* ---- launches ---- */

/* Choices of a tile: few while experts have few each, or when this GPU's blocks have no
 * shared memory for many. Any size gives the same bits. */
template <int PLANES>
static int tile_size(const struct td_cuda_ctx *c, int32_t choices, int32_t experts)
{
    size_t tile = 2 * sizeof(td_stage<TD_MAT_BF16, PLANES>) + 1024;
    return tile > (size_t)c->shared_max ||
                   choices <= TD_MAX(4 * experts, TD_CUDA_SMALL_ROWS)
               ? 8
               : TILE_N;
}

template <int PLANES, int NW>
static void run(const struct td_cuda_ctx *c, struct net &f)
{
    int size = f.size;
    int64_t wide = NW == 2 ? td_cuda_pitch(f.n) : f.n;
    unsigned tiles = (unsigned)(f.groups ? f.most_tiles : (f.rows + size - 1) / size);
    if (f.type == TD_MAT_F32) {
        dim3 grid((unsigned)((wide + BLOCK_WARPS - 1) / BLOCK_WARPS), tiles);
        net_f32_run<PLANES, NW><<<grid, BLOCK_THREADS, 0, c->stream>>>(f);
    } else if (size == 8) {
        dim3 grid((unsigned)((wide + SMALL_M - 1) / SMALL_M), tiles);
        size_t bytes = (size_t)td_small_bytes(NW, 1, f.blocks);
        net_small_run<PLANES, 1, NW><<<grid, BLOCK_THREADS, bytes, c->stream>>>(f);
    } else {
        int m = TILE_M / NW;
        dim3 grid((unsigned)((wide + m - 1) / m), tiles);
        if (f.type == TD_MAT_F8)
            net_tile_run<TD_MAT_F8, PLANES, NW>
                <<<grid, BLOCK_THREADS, 2 * sizeof(td_stage<TD_MAT_F8, PLANES>),
                   c->stream>>>(f);
        else
            net_tile_run<TD_MAT_BF16, PLANES, NW>
                <<<grid, BLOCK_THREADS, 2 * sizeof(td_stage<TD_MAT_BF16, PLANES>),
                   c->stream>>>(f);
    }
}

static void set_weights(struct net *f, const struct td_matrix *a,
                        const struct td_matrix *b)
{
    f->w[0] = a->data;
    f->scale[0] = a->scale;
    f->w[1] = b ? b->data : NULL;
    f->scale[1] = b ? b->scale : NULL;
    f->n = a->n;
    f->blocks = (int32_t)(td_cuda_pitch(a->k) / KB);
    f->type = a->type;
}

/* gate, up and down of one expert or of the first of many at equal distances. */
template <int PLANES>
static void network(const struct td_cuda_ctx *c, struct net f,
                    const struct td_matrix *gate, const struct td_matrix *up,
                    const struct td_matrix *down, int32_t experts, float *out)
{
    bool many = experts > 1;
    struct net inner = f, outer = f;
    set_weights(&inner, gate, up);
    inner.w_step = many ? (const char *)gate[1].data - (const char *)gate[0].data : 0;
    inner.scale_step = many && gate->scale ? gate[1].scale - gate[0].scale : 0;
    inner.mid = c->mid;
    inner.mid_plane = f.rows * td_cuda_pitch(gate->n);
    run<PLANES, 2>(c, inner);
    set_weights(&outer, down, NULL);
    outer.w_step = many ? (const char *)down[1].data - (const char *)down[0].data : 0;
    outer.scale_step = many && down->scale ? down[1].scale - down[0].scale : 0;
    outer.x = c->mid;
    outer.plane = inner.mid_plane;
    outer.per_row = 1;
    outer.out = out;
    run<PLANES, 1>(c, outer);
}

static __global__ void combine(const struct td_experts_args a, int64_t hidden,
                               const float *out, const float *shared)
{
    int64_t i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;
    if (i >= hidden)
        return;
    float y = 0.0f;
    for (int64_t j = row * a.k; j < (row + 1) * a.k; j++)
        y = fmaf(a.weight[j], out[j * hidden + i], y);
    if (a.shared_down)
        y = fmaf(td_sigmoid(a.shared_gate[row]), shared[row * hidden + i], y);
    a.y[row * hidden + i] = y;
}

template <int PLANES>
static void experts(const struct td_cuda_ctx *c, const struct td_experts_args *a)
{
    int64_t hidden = a->down[0].n;
    struct net f = {};
    td_planes_make(c, a->x, hidden, a->rows, hidden, PLANES, c->planes);
    f.x = c->planes;
    f.plane = a->rows * td_cuda_pitch(hidden);
    f.rows = a->rows * a->k;
    f.per_row = a->k;
    f.groups = c->groups;
    f.size = tile_size<PLANES>(c, f.rows, a->experts);
    f.most_tiles = most_tiles(f.rows, a->experts, f.size);
    group<<<1, GROUP_THREADS, 0, c->stream>>>(a->id, f.rows, a->experts, f.size,
                                              f.most_tiles, c->groups);
    network<PLANES>(c, f, a->gate, a->up, a->down, a->experts, c->out);
    if (a->shared_down) {
        f.rows = a->rows;
        f.per_row = 1;
        f.size = tile_size<PLANES>(c, a->rows, 1);
        f.groups = NULL;
        network<PLANES>(c, f, a->shared_gate_proj, a->shared_up, a->shared_down, 1,
                        c->shared);
    }
    dim3 grid((unsigned)a->rows, (unsigned)((hidden + 255) / 256));
    combine<<<grid, 256, 0, c->stream>>>(*a, hidden, c->out, c->shared);
}

extern "C" void td_cuda_experts(const struct td_cuda_ctx *c,
                                const struct td_experts_args *a)
{
    if (c->numerics == TD_NUM_BF16)
        experts<1>(c, a);
    else
        experts<3>(c, a);
}

template <int PLANES, int NW> static void allow(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    (void)cudaFuncSetAttribute(net_small_run<PLANES, 1, NW>, bytes,
                               c->shared_max - 1024);
    if (2 * sizeof(td_stage<TD_MAT_BF16, PLANES>) + 1024 > (size_t)c->shared_max)
        return;
    (void)cudaFuncSetAttribute(net_tile_run<TD_MAT_F8, PLANES, NW>, bytes,
                               (int)(2 * sizeof(td_stage<TD_MAT_F8, PLANES>)));
    (void)cudaFuncSetAttribute(net_tile_run<TD_MAT_BF16, PLANES, NW>, bytes,
                               (int)(2 * sizeof(td_stage<TD_MAT_BF16, PLANES>)));
}

extern "C" void td_cuda_prepare_experts(const struct td_cuda_ctx *c)
{
    allow<1, 1>(c);
    allow<1, 2>(c);
    allow<3, 1>(c);
    allow<3, 2>(c);
}

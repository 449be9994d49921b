/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products and table look-up. Terms of FP8 and BF16 weights go through the tensor
 * cores (tile.cuh): inputs are first split into bf16 planes, one for rounded inputs,
 * three for exact ones. F32 weights are multiplied in plain f32.
 */
#include "ops/cuda/planes.cuh"
#include "ops/cuda/tile.cuh"

struct lin_term {
    const void *w;
    const float *scale;
    float *y;
    int64_t y_stride, n;
    int32_t tile0, type; /* first block of the grid that works on it */
};

struct lin_params {
    struct lin_term term[TD_LINEAR_MAX];
    int32_t count, rows, blocks;
    const uint16_t *x;
    int64_t plane;
};

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

template <int PLANES, int NT>
static __global__ void __launch_bounds__(BLOCK_THREADS) lin_small(const lin_params p)
{
    extern __shared__ float part[];
    const lin_term &t = term_of(p, (int)blockIdx.x);
    int64_t n0 = (int64_t)((int)blockIdx.x - t.tile0) * SMALL_M;
    int row0 = (int)blockIdx.y * 8 * NT, g = (int)threadIdx.x % WARP / 4;
    const void *w[1] = {t.w};
    const uint16_t *x[NT];
#pragma unroll
    for (int i = 0; i < NT; i++) {
        int row = row0 + 8 * i + g;
        x[i] = row < p.rows ? p.x + (int64_t)row * p.blocks * KB : NULL;
    }
    if (t.type == TD_MAT_F8)
        small_parts<TD_MAT_F8, PLANES, NT, 1>(w, t.n, n0, p.blocks, x, p.plane, part);
    else
        small_parts<TD_MAT_BF16, PLANES, NT, 1>(w, t.n, n0, p.blocks, x, p.plane, part);
    __syncthreads();
    const float *scale = scale_of(t, n0, p.blocks);
    for (int i = (int)threadIdx.x; i < SMALL_M * 8 * NT; i += BLOCK_THREADS) {
        int m = i / (8 * NT), row = i % (8 * NT);
        if (n0 + m < t.n && row0 + row < p.rows)
            t.y[(row0 + row) * t.y_stride + n0 + m] =
                small_total(part, p.blocks, NT, 0, m, row, scale);
    }
}

template <int TYPE, int PLANES>
static __global__ void __launch_bounds__(BLOCK_THREADS) lin_tile(const lin_params p)
{
    extern __shared__ uint4 shared[];
    __shared__ int32_t rows[TILE_N];
    const lin_term &t = term_of(p, (int)blockIdx.x);
    int64_t n0 = (int64_t)((int)blockIdx.x - t.tile0) * TILE_M;
    int row0 = (int)blockIdx.y * TILE_N, lane = (int)threadIdx.x % WARP;
    int g = lane / 4, c = lane % 4;
    float total[2][4][4];
    if (threadIdx.x < TILE_N)
        rows[threadIdx.x] =
            row0 + (int)threadIdx.x < p.rows ? row0 + (int)threadIdx.x : -1;
    __syncthreads();
    td_tile_in<1> in = {
        {t.w}, {scale_of(t, n0, p.blocks)}, t.n, n0, p.blocks, p.x, p.plane, rows};
    tile_run<TYPE, PLANES, 1>(in, (td_stage<TYPE, PLANES> *)shared, total);
#pragma unroll
    for (int mt = 0; mt < 2; mt++)
#pragma unroll
        for (int nt = 0; nt < 4; nt++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t n = n0 + td_tile_m<1>(mt) + g + 8 * (e / 2);
                int row = row0 + td_tile_n(nt) + 2 * c + e % 2;
                if (n < t.n && row < p.rows)
                    t.y[row * t.y_stride + n] = total[mt][nt][e];
            }
}

/* F32 weights: a warp for each output, four rows at a time; lane l takes elements l,
 * l + 32, ... */
static __global__ void __launch_bounds__(BLOCK_THREADS)
    lin_f32(const lin_term t, const float *x, int64_t x_stride, int32_t rows, int64_t k,
            bool rounds)
{
    int64_t n = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP, row0 = (int)blockIdx.y * 4;
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
            t.y[(row0 + r) * t.y_stride + n] = y;
    }
}

template <int PLANES, int NT>
static void run_small(const struct td_cuda_ctx *c, const struct lin_params &p,
                      int tiles)
{
    dim3 grid((unsigned)tiles, (unsigned)((p.rows + 8 * NT - 1) / (8 * NT)));
    lin_small<PLANES, NT>
        <<<grid, BLOCK_THREADS, (size_t)td_small_bytes(1, NT, p.blocks), c->stream>>>(
            p);
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

template <int PLANES>
static void small(const struct td_cuda_ctx *c, struct lin_params &p)
{
    int tiles = lay_out(&p, SMALL_M);
    int64_t most = c->shared_max - 1024;
    if (p.rows > 16 && td_small_bytes(1, 4, p.blocks) <= most)
        run_small<PLANES, 4>(c, p, tiles);
    else if (p.rows > 8 && td_small_bytes(1, 2, p.blocks) <= most)
        run_small<PLANES, 2>(c, p, tiles);
    else
        run_small<PLANES, 1>(c, p, tiles);
}

/* One launch for each type, since tiles of different types differ in shared memory. */
/* Tiles that this GPU's blocks have no shared memory for are left to the small form. */
template <int TYPE, int PLANES> static bool fits(const struct td_cuda_ctx *c)
{
    return 2 * sizeof(td_stage<TYPE, PLANES>) + 1024 <= (size_t)c->shared_max;
}

template <int TYPE, int PLANES>
static void tiles(const struct td_cuda_ctx *c, const struct lin_params &all)
{
    struct lin_params p = all;
    p.count = 0;
    for (int i = 0; i < all.count; i++)
        if (all.term[i].type == TYPE)
            p.term[p.count++] = all.term[i];
    if (p.count == 0)
        return;
    dim3 grid((unsigned)lay_out(&p, TILE_M),
              (unsigned)((p.rows + TILE_N - 1) / TILE_N));
    lin_tile<TYPE, PLANES>
        <<<grid, BLOCK_THREADS, 2 * sizeof(td_stage<TYPE, PLANES>), c->stream>>>(p);
}

template <int PLANES>
static void products(const struct td_cuda_ctx *c, struct lin_params &p)
{
    if (p.count == 0)
        return;
    if (p.rows <= TD_CUDA_SMALL_ROWS || !fits<TD_MAT_F8, PLANES>(c) ||
        !fits<TD_MAT_BF16, PLANES>(c)) {
        small<PLANES>(c, p);
        return;
    }
    tiles<TD_MAT_F8, PLANES>(c, p);
    tiles<TD_MAT_BF16, PLANES>(c, p);
}

extern "C" void td_cuda_linear(const struct td_cuda_ctx *c,
                               const struct td_linear_args *a)
{
    int64_t k = a->term[0].w->k, pitch = td_cuda_pitch(k);
    struct lin_params rounded = {}, exact = {};
    rounded.rows = exact.rows = a->rows;
    rounded.blocks = exact.blocks = (int32_t)(pitch / KB);
    rounded.x = exact.x = c->planes;
    rounded.plane = exact.plane = a->rows * pitch;
    for (int i = 0; i < a->count; i++) {
        const auto *t = &a->term[i];
        bool rounds = c->numerics == TD_NUM_BF16 && !t->exact;
        struct lin_term term = {t->w->data, t->w->scale, t->y,      t->y_stride,
                                t->w->n,    0,           t->w->type};
        struct lin_params *p = rounds ? &rounded : &exact;
        if (t->w->type != TD_MAT_F32) {
            p->term[p->count++] = term;
            continue;
        }
        dim3 grid((unsigned)((t->w->n + BLOCK_WARPS - 1) / BLOCK_WARPS),
                  (unsigned)((a->rows + 3) / 4));
        lin_f32<<<grid, BLOCK_THREADS, 0, c->stream>>>(term, a->x, a->x_stride, a->rows,
                                                       k, rounds);
    }
    if (rounded.count + exact.count)
        td_planes_make(c, a->x, a->x_stride, a->rows, k, exact.count ? 3 : 1,
                       c->planes);
    products<1>(c, rounded);
    products<3>(c, exact);
}

template <int PLANES, int NT> static void allow_small(const struct td_cuda_ctx *c)
{
    (void)cudaFuncSetAttribute(lin_small<PLANES, NT>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               c->shared_max - 1024);
}

template <int TYPE, int PLANES> static void allow_tile(const struct td_cuda_ctx *c)
{
    if (fits<TYPE, PLANES>(c))
        (void)cudaFuncSetAttribute(lin_tile<TYPE, PLANES>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)(2 * sizeof(td_stage<TYPE, PLANES>)));
}

extern "C" void td_cuda_prepare_linear(const struct td_cuda_ctx *c)
{
    allow_small<1, 1>(c);
    allow_small<1, 2>(c);
    allow_small<1, 4>(c);
    allow_small<3, 1>(c);
    allow_small<3, 2>(c);
    allow_small<3, 4>(c);
    allow_tile<TD_MAT_F8, 1>(c);
    allow_tile<TD_MAT_F8, 3>(c);
    allow_tile<TD_MAT_BF16, 1>(c);
    allow_tile<TD_MAT_BF16, 3>(c);
}

static __global__ void embed_row(const struct td_matrix m, int64_t first,
                                 const int32_t *token, float *x)
{
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
    embed_row<<<(unsigned)a->rows, 256, 0, c->stream>>>(*a->table, a->first, a->token,
                                                        a->x);
}

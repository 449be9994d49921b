/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of weights with rows of activations on tensor cores, in one order of sums.
 *
 * k is cut into blocks of TD_SCALE_BLOCK. Within a block the tensor cores add up eight
 * steps of 16 products; then, block after block, total = block * scale + total. Three
 * shapes follow that order, so that a result's bits do not depend on which one made it:
 * small_run() for few activation rows (small.cuh), wide_run() for many where there are
 * warpgroups (warpgroup.cuh) and, here,
 *
 *     tile_run()   128 weight rows by 64 or 128 activation rows; operands pass through
 *                  shared memory in stages, totals stay in registers
 *
 * Activations are planes: x = x0 + x1 + x2 with bf16 terms. One plane is x rounded; three
 * hold all 24 bits, which makes products exact to f32.
 *
 * Weights are the tensor cores' first operand: lane (g, c) = (lane / 4, lane % 4) holds
 * rows g and g + 8. The instruction's order of k is permuted so that a lane's weights lie
 * side by side and loads are 16 bytes wide: see td_k_of().
 */
#ifndef TD_OPS_CUDA_TILE_CUH
#define TD_OPS_CUDA_TILE_CUH

#include "ops/cuda/device.cuh"

enum {
    KB = TD_SCALE_BLOCK,
    SMALL_M = 16,
    TILE_M = 128,
    TILE_MOST = 128, /* activation rows */
    STEPS = KB / 16,
    BLOCK_THREADS = 256,
    BLOCK_WARPS = BLOCK_THREADS / WARP,
    MANY_WARPS = 16 /* of small_run() where blocks are few */
};

template <int TYPE> TD_DEVICE constexpr int td_bytes_of(void)
{
    return TYPE == TD_MAT_F8 ? 1 : 2;
}

/* Loads that pass by the first-level cache: a weight is read once. */
TD_DEVICE uint4 td_load_weights(const void *p)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}

/* Where within a block lane c's four elements of a step begin. */
template <int TYPE> TD_DEVICE int td_k_of(int step, int c)
{
    return TYPE == TD_MAT_F8 ? 64 * (step / 4) + 16 * c + 4 * (step % 4)
                             : 32 * (step / 2) + 8 * c + 4 * (step % 2);
}

/* One lane's weights of a block: for each of its two rows, 128 elements / 4 lanes. */
template <int TYPE> struct td_frag {
    uint4 lo[TYPE == TD_MAT_F8 ? 2 : 4], hi[TYPE == TD_MAT_F8 ? 2 : 4];
};

TD_DEVICE uint32_t td_word(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* The tensor cores' operand of a step. */
template <int TYPE>
TD_DEVICE void td_operand(const td_frag<TYPE> &f, int step, uint32_t (&a)[4])
{
    if (TYPE == TD_MAT_F8) {
        uint32_t lo = td_word(f.lo[step / 4], step % 4);
        uint32_t hi = td_word(f.hi[step / 4], step % 4);
        a[0] = td_expand_e4m3x2(lo);
        a[1] = td_expand_e4m3x2(hi);
        a[2] = td_expand_e4m3x2(lo >> 16);
        a[3] = td_expand_e4m3x2(hi >> 16);
    } else {
        int at = 2 * (step % 2);
        a[0] = td_word(f.lo[step / 2], at);
        a[1] = td_word(f.hi[step / 2], at);
        a[2] = td_word(f.lo[step / 2], at + 1);
        a[3] = td_word(f.hi[step / 2], at + 1);
    }
}

/* ---- tile ---- */

/* A tile's form: activation rows and stages; a warp has 32 weight rows and half of them. WIDE is for GPUs whose blocks have much
 * shared memory. */
template <int TYPE, int PLANES, bool WIDE> struct td_form {
    static constexpr int rows = WIDE && PLANES == 1 ? 128 : 64;
    static constexpr int stages = WIDE && PLANES == 1 ? (TYPE == TD_MAT_F8 ? 4 : 3) : 2;
};

/* Shared memory of a stage. */
template <int TYPE, int PLANES, int N> struct td_stage {
    uint4 w[TILE_M][KB * (TYPE == TD_MAT_F8 ? 1 : 2) / 16];
    uint4 x[PLANES][N][KB * 2 / 16];
};

template <int TYPE, int PLANES, bool WIDE> static constexpr size_t td_tile_bytes(void)
{
    using form = td_form<TYPE, PLANES, WIDE>;
    return form::stages * sizeof(td_stage<TYPE, PLANES, form::rows>);
}

/* Swizzles of 16-byte pieces, so that lanes of a load meet different banks. */
TD_DEVICE int td_swizzle_w(int piece, int row)
{
    return piece ^ ((row & 1) << 2);
}

template <int TYPE> TD_DEVICE int td_swizzle_x(int piece, int row)
{
    return TYPE == TD_MAT_F8 ? piece ^ (row & 1) : piece ^ ((row & 1) << 2);
}

/* What a tile multiplies. Weight row m of the tile is row n0 + m of w[0]; with NW = 2 it
 * is row n0 + m % 64 of w[m / 64]. */
template <int NW> struct td_tile_in {
    const void *w[NW];
    const float *scale[NW]; /* of the first weight row, by k block; NULL for none */
    int64_t n, n0;
    int blocks;
    const uint16_t *x; /* planes */
    int64_t plane;
    const int32_t *rows; /* shared memory: rows of x, negative for none */
};

template <int TYPE, int PLANES, int NW, int N>
TD_DEVICE void td_tile_load(const td_tile_in<NW> &in, int b,
                            td_stage<TYPE, PLANES, N> *s)
{
    const int wide = KB * td_bytes_of<TYPE>() / 16;
    int64_t pitch = (int64_t)in.blocks * KB;
#pragma unroll
    for (int j = 0; j < TILE_M * wide / BLOCK_THREADS; j++) {
        int i = (int)threadIdx.x + BLOCK_THREADS * j;
        int m = i / wide, piece = i % wide;
        int64_t row = in.n0 + (NW == 2 ? m % 64 : m);
        const uint8_t *w = (const uint8_t *)in.w[NW == 2 && m >= 64 ? NW - 1 : 0];
        bool valid = row < in.n;
        const uint8_t *from =
            w + ((valid ? row : 0) * pitch + (int64_t)b * KB) * td_bytes_of<TYPE>();
        td_copy16(&s->w[m][td_swizzle_w(piece, m)], from + 16 * piece, valid);
    }
#pragma unroll
    for (int j = 0; j < PLANES * N * 16 / BLOCK_THREADS; j++) {
        int i = (int)threadIdx.x + BLOCK_THREADS * j;
        int p = i / (N * 16), r = i / 16 % N, piece = i % 16;
        int32_t row = in.rows[r];
        const uint16_t *from =
            in.x + p * in.plane + (row < 0 ? 0 : row) * pitch + (int64_t)b * KB;
        td_copy16(&s->x[p][r][td_swizzle_x<TYPE>(piece, r)], from + 8 * piece,
                  row >= 0);
    }
}

/* The first weight row of a warp's m-tile mt: a warp holds gate and up of the same rows
 * when there are two matrices. */
template <int NW> TD_DEVICE int td_tile_m(int mt)
{
    int wm = (int)threadIdx.x / WARP / 2;
    return NW == 2 ? 64 * mt + 16 * wm : 32 * wm + 16 * mt;
}

template <int N> TD_DEVICE int td_tile_n(int nt)
{
    return (int)threadIdx.x / WARP % 2 * (N / 2) + 8 * nt;
}

/* The operands of a pair of steps: [step][m-tile]. */
template <int TYPE, int PLANES, int NW, int N>
TD_DEVICE void td_tile_operands(const td_stage<TYPE, PLANES, N> *s, int pair,
                                uint32_t (&a)[2][2][4])
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    const int at = TYPE == TD_MAT_F8 ? pair / 2 : pair; /* piece of 64 bytes */
#pragma unroll
    for (int mt = 0; mt < 2; mt++) {
        int lo = td_tile_m<NW>(mt) + g, hi = lo + 8;
        td_frag<TYPE> f;
        f.lo[at] = s->w[lo][td_swizzle_w(4 * at + c, lo)];
        f.hi[at] = s->w[hi][td_swizzle_w(4 * at + c, hi)];
#pragma unroll
        for (int h = 0; h < 2; h++)
            td_operand<TYPE>(f, 2 * pair + h, a[h][mt]);
    }
}

/* Operands of the next pair are made while the tensor cores work on one. */
template <int TYPE, int PLANES, int NW, int N>
TD_DEVICE void td_tile_block(const td_stage<TYPE, PLANES, N> *s,
                             float (&sum)[2][N / 16][4])
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    uint32_t a[2][2][2][4];
    td_tile_operands<TYPE, PLANES, NW, N>(s, 0, a[0]);
#pragma unroll
    for (int pair = 0; pair < STEPS / 2; pair++) {
        if (pair + 1 < STEPS / 2)
            td_tile_operands<TYPE, PLANES, NW, N>(s, pair + 1, a[(pair + 1) % 2]);
#pragma unroll
        for (int nt = 0; nt < N / 16; nt++) {
            int r = td_tile_n<N>(nt) + g;
            uint4 v[PLANES];
#pragma unroll
            for (int p = 0; p < PLANES; p++)
                v[p] =
                    s->x[p][r][td_swizzle_x<TYPE>(td_k_of<TYPE>(2 * pair, c) / 8, r)];
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int p = 0; p < PLANES; p++)
#pragma unroll
                    for (int mt = 0; mt < 2; mt++)
                        td_mma(sum[mt][nt], a[pair % 2][h][mt], td_word(v[p], 2 * h),
                               td_word(v[p], 2 * h + 1));
        }
    }
}

/* total[mt][nt] of a tile: element e is weight row td_tile_m(mt) + g + 8 * (e / 2),
 * activation row td_tile_n(nt) + 2 * c + e % 2. `stage` is shared memory for S. */
template <int TYPE, int PLANES, int NW, int N, int S>
TD_DEVICE void tile_run(const td_tile_in<NW> &in, td_stage<TYPE, PLANES, N> *stage,
                        float (&total)[2][N / 16][4])
{
#pragma unroll
    for (int mt = 0; mt < 2; mt++)
#pragma unroll
        for (int nt = 0; nt < N / 16; nt++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                total[mt][nt][e] = 0.0f;
#pragma unroll
    for (int b = 0; b < S - 1; b++) {
        if (b < in.blocks)
            td_tile_load<TYPE, PLANES, NW, N>(in, b, &stage[b]);
        td_copy_commit();
    }
    for (int b = 0; b < in.blocks; b++) {
        float sum[2][N / 16][4] = {};
        td_copy_wait<S - 2>();
        __syncthreads(); /* block b is there, and all are done with block b - 1 */
        if (b + S - 1 < in.blocks)
            td_tile_load<TYPE, PLANES, NW, N>(in, b + S - 1, &stage[(b + S - 1) % S]);
        td_copy_commit();
        td_tile_block<TYPE, PLANES, NW, N>(&stage[b % S], sum);
#pragma unroll
        for (int mt = 0; mt < 2; mt++) {
            const float *by_block = in.scale[NW == 2 ? mt : 0];
            float scale = by_block ? by_block[b] : 1.0f;
#pragma unroll
            for (int nt = 0; nt < N / 16; nt++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    total[mt][nt][e] = fmaf(sum[mt][nt][e], scale, total[mt][nt][e]);
        }
    }
    td_copy_wait<0>();
}

#endif

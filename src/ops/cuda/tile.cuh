/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of weights with rows of activations on tensor cores, in one order of sums.
 *
 * k is cut into blocks of TD_SCALE_BLOCK. Within a block the tensor cores add up eight
 * steps of 16 products; then, block after block, total = block * scale + total. Two
 * shapes follow that order, so that a result's bits do not depend on which one made it:
 *
 *     small_parts()  16 weight rows by 8 * NT activation rows; the warps of a block share
 *                    the k blocks and leave block sums in shared memory
 *     tile_run()     128 weight rows by 64 activation rows; operands pass through shared
 *                    memory, totals stay in registers
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
    TILE_N = 64,
    STEPS = KB / 16,
    BLOCK_THREADS = 256,
    BLOCK_WARPS = BLOCK_THREADS / WARP
};

template <int TYPE> TD_DEVICE constexpr int td_bytes_of(void)
{
    return TYPE == TD_MAT_F8 ? 1 : 2;
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

/* Loads that pass by the first-level cache: a weight is read once. */
TD_DEVICE uint4 td_load_weights(const void *p)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}

/* lo and hi are the block's first bytes of the lane's rows, NULL for a row outside. */
template <int TYPE>
TD_DEVICE void td_load_frag(td_frag<TYPE> &f, const uint8_t *lo, const uint8_t *hi,
                            int c)
{
    const int n = TYPE == TD_MAT_F8 ? 2 : 4;
    const uint4 zero = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < n; i++) {
        f.lo[i] = lo ? td_load_weights(lo + 64 * i + 16 * c) : zero;
        f.hi[i] = hi ? td_load_weights(hi + 64 * i + 16 * c) : zero;
    }
}

/* ---- small ---- */

/* Bytes of the parts of NW matrices. */
static inline int64_t td_small_bytes(int nw, int nt, int64_t blocks)
{
    return (int64_t)nw * blocks * SMALL_M * 8 * nt * (int64_t)sizeof(float);
}

TD_DEVICE int td_part_at(int blocks, int nt, int matrix, int block, int m, int row)
{
    return ((matrix * blocks + block) * SMALL_M + m) * 8 * nt + row;
}

/* Leaves the sums of all k blocks of rows n0 .. n0 + 16 of NW matrices with 8 * NT rows
 * of x in `part`. x holds, for each n-tile, the lane's activation row (row g of the
 * tile), NULL for none; planes are `plane` elements apart. */
template <int TYPE, int PLANES, int NT, int NW>
TD_DEVICE void small_parts(const void *const (&w)[NW], int64_t n, int64_t n0,
                           int blocks, const uint16_t *const (&x)[NT], int64_t plane,
                           float *part)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int g = lane / 4, c = lane % 4;
    int64_t pitch = (int64_t)blocks * KB * td_bytes_of<TYPE>();
    for (int b = warp; b < blocks; b += BLOCK_WARPS) {
        td_frag<TYPE> f[NW];
        float sum[NW][NT][4];
#pragma unroll
        for (int i = 0; i < NW; i++) {
            const uint8_t *at =
                (const uint8_t *)w[i] + (int64_t)b * KB * td_bytes_of<TYPE>();
            td_load_frag<TYPE>(f[i], n0 + g < n ? at + (n0 + g) * pitch : NULL,
                               n0 + g + 8 < n ? at + (n0 + g + 8) * pitch : NULL, c);
#pragma unroll
            for (int t = 0; t < NT; t++)
                for (int e = 0; e < 4; e++)
                    sum[i][t][e] = 0.0f;
        }
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            uint32_t a[NW][4];
#pragma unroll
            for (int i = 0; i < NW; i++)
                td_operand<TYPE>(f[i], s, a[i]);
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int p = 0; p < PLANES; p++) {
                    uint2 v = {0, 0};
                    if (x[t])
                        v = *(const uint2 *)(x[t] + p * plane + (int64_t)b * KB +
                                             td_k_of<TYPE>(s, c));
#pragma unroll
                    for (int i = 0; i < NW; i++)
                        td_mma(sum[i][t], a[i], v.x, v.y);
                }
        }
#pragma unroll
        for (int i = 0; i < NW; i++)
#pragma unroll
            for (int t = 0; t < NT; t++) {
                float *lo = part + td_part_at(blocks, NT, i, b, g, 8 * t + 2 * c);
                float *hi = part + td_part_at(blocks, NT, i, b, g + 8, 8 * t + 2 * c);
                *(float2 *)lo = make_float2(sum[i][t][0], sum[i][t][1]);
                *(float2 *)hi = make_float2(sum[i][t][2], sum[i][t][3]);
            }
    }
}

/* The total of weight row m (of the 16) and activation row `row`. scale: the weight
 * rows' scales by k block, NULL for none. */
TD_DEVICE float small_total(const float *part, int blocks, int nt, int matrix, int m,
                            int row, const float *scale)
{
    float total = 0.0f;
    for (int b = 0; b < blocks; b++)
        total = fmaf(part[td_part_at(blocks, nt, matrix, b, m, row)],
                     scale ? scale[b] : 1.0f, total);
    return total;
}

/* ---- tile ---- */

/* Shared memory of a stage. */
template <int TYPE, int PLANES> struct td_stage {
    uint4 w[TILE_M][KB * (TYPE == TD_MAT_F8 ? 1 : 2) / 16];
    uint4 x[PLANES][TILE_N][KB * 2 / 16];
};

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
    const int32_t *rows; /* shared memory [TILE_N]: rows of x, negative for none */
};

template <int TYPE, int PLANES, int NW>
TD_DEVICE void td_tile_load(const td_tile_in<NW> &in, int b, td_stage<TYPE, PLANES> *s)
{
    const int wide = KB * td_bytes_of<TYPE>() / 16;
    int64_t pitch = (int64_t)in.blocks * KB;
    for (int i = (int)threadIdx.x; i < TILE_M * wide; i += BLOCK_THREADS) {
        int m = i / wide, piece = i % wide;
        int64_t row = in.n0 + (NW == 2 ? m % 64 : m);
        const uint8_t *w = (const uint8_t *)in.w[NW == 2 ? m / 64 : 0];
        bool valid = row < in.n;
        const uint8_t *from =
            w + ((valid ? row : 0) * pitch + (int64_t)b * KB) * td_bytes_of<TYPE>();
        td_copy16(&s->w[m][td_swizzle_w(piece, m)], from + 16 * piece, valid);
    }
    for (int i = (int)threadIdx.x; i < PLANES * TILE_N * 16; i += BLOCK_THREADS) {
        int p = i / (TILE_N * 16), r = i / 16 % TILE_N, piece = i % 16;
        int32_t row = in.rows[r];
        const uint16_t *from =
            in.x + p * in.plane + (row < 0 ? 0 : row) * pitch + (int64_t)b * KB;
        td_copy16(&s->x[p][r][td_swizzle_x<TYPE>(piece, r)], from + 8 * piece,
                  row >= 0);
    }
    td_copy_commit();
}

/* The first weight row of a warp's m-tile mt: a warp holds gate and up of the same rows
 * when there are two matrices. */
template <int NW> TD_DEVICE int td_tile_m(int mt)
{
    int wm = (int)threadIdx.x / WARP / 2;
    return NW == 2 ? 64 * mt + 16 * wm : 32 * wm + 16 * mt;
}

TD_DEVICE int td_tile_n(int nt)
{
    return (int)threadIdx.x / WARP % 2 * 32 + 8 * nt;
}

template <int TYPE, int PLANES, int NW>
TD_DEVICE void td_tile_block(const td_stage<TYPE, PLANES> *s, float (&sum)[2][4][4])
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, c = lane % 4;
    td_frag<TYPE> f[2];
#pragma unroll
    for (int mt = 0; mt < 2; mt++) {
        int lo = td_tile_m<NW>(mt) + g, hi = lo + 8;
#pragma unroll
        for (int i = 0; i < (TYPE == TD_MAT_F8 ? 2 : 4); i++) {
            f[mt].lo[i] = s->w[lo][td_swizzle_w(4 * i + c, lo)];
            f[mt].hi[i] = s->w[hi][td_swizzle_w(4 * i + c, hi)];
        }
    }
#pragma unroll
    for (int pair = 0; pair < STEPS / 2; pair++) {
        uint32_t a[2][2][4]; /* step, m-tile */
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int mt = 0; mt < 2; mt++)
                td_operand<TYPE>(f[mt], 2 * pair + h, a[h][mt]);
#pragma unroll
        for (int nt = 0; nt < 4; nt++) {
            int r = td_tile_n(nt) + g;
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
                        td_mma(sum[mt][nt], a[h][mt], td_word(v[p], 2 * h),
                               td_word(v[p], 2 * h + 1));
        }
    }
}

/* total[mt][nt] of a tile: element e is weight row td_tile_m(mt) + g + 8 * (e / 2),
 * activation row td_tile_n(nt) + 2 * c + e % 2. `stage` is shared memory for two. */
template <int TYPE, int PLANES, int NW>
TD_DEVICE void tile_run(const td_tile_in<NW> &in, td_stage<TYPE, PLANES> *stage,
                        float (&total)[2][4][4])
{
#pragma unroll
    for (int mt = 0; mt < 2; mt++)
#pragma unroll
        for (int nt = 0; nt < 4; nt++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                total[mt][nt][e] = 0.0f;
    td_tile_load<TYPE, PLANES, NW>(in, 0, &stage[0]);
    for (int b = 0; b < in.blocks; b++) {
        float sum[2][4][4] = {};
        if (b + 1 < in.blocks) {
            td_tile_load<TYPE, PLANES, NW>(in, b + 1, &stage[(b + 1) % 2]);
            td_copy_wait<1>();
        } else {
            td_copy_wait<0>();
        }
        __syncthreads();
        td_tile_block<TYPE, PLANES, NW>(&stage[b % 2], sum);
        __syncthreads();
#pragma unroll
        for (int mt = 0; mt < 2; mt++) {
            const float *by_block = in.scale[NW == 2 ? mt : 0];
            float scale = by_block ? by_block[b] : 1.0f;
#pragma unroll
            for (int nt = 0; nt < 4; nt++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    total[mt][nt][e] = fmaf(sum[mt][nt][e], scale, total[mt][nt][e]);
        }
    }
}

#endif

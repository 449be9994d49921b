/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of weights with few rows of activations, in the order of sums of tile.cuh.
 *
 *     small_run()  16 weight rows by 8 * NT activation rows; the warps of a block share
 *                  the k blocks and leave block sums in shared memory
 */
#ifndef TD_OPS_CUDA_SMALL_CUH
#define TD_OPS_CUDA_SMALL_CUH

#include "ops/cuda/tile.cuh"

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

enum { SMALL_PITCH = 20 }; /* floats between activation rows: keeps banks apart */

/* Shared memory of small_run() with W warps. */
static inline size_t td_small_bytes(int warps, int nt, int64_t blocks)
{
    return sizeof(float) *
           ((size_t)(2 * warps * 8 * nt * SMALL_PITCH) + 2 * (size_t)blocks);
}

/* Outputs of a thread of small_run(). */
template <int NT, int W> struct td_small_outputs {
    static constexpr int n = (SMALL_M * 8 * NT + W * WARP - 1) / (W * WARP);
};

/* The lane's part of a pair of steps of x's row. */
template <int TYPE> TD_DEVICE uint4 small_x(const uint16_t *x, int64_t k0, int pair)
{
    int c = (int)threadIdx.x % 4;
    return x ? *(const uint4 *)(x + k0 + td_k_of<TYPE>(2 * pair, c))
             : make_uint4(0, 0, 0, 0);
}

/* Sums of one k block and NT tiles of 8 activation rows. */
template <int TYPE, int PLANES, int NT>
TD_DEVICE void small_block(const td_frag<TYPE> &f, const uint16_t *const (&x)[NT],
                           int64_t plane, int64_t k0, float (&sum)[NT][4])
{
    uint4 ahead[STEPS / 2]; /* all of x at once where it is little */
#pragma unroll
    for (int pair = 0; pair < STEPS / 2; pair++)
        if (NT * PLANES == 1)
            ahead[pair] = small_x<TYPE>(x[0], k0, pair);
#pragma unroll
    for (int t = 0; t < NT; t++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[t][e] = 0.0f;
#pragma unroll
    for (int pair = 0; pair < STEPS / 2; pair++) {
        uint4 v[NT][PLANES];
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int p = 0; p < PLANES; p++)
                v[t][p] = NT * PLANES == 1
                              ? ahead[pair]
                              : small_x<TYPE>(x[t] ? x[t] + p * plane : NULL, k0, pair);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t a[4];
            td_operand<TYPE>(f, 2 * pair + h, a);
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int p = 0; p < PLANES; p++)
                    td_mma(sum[t], a, td_word(v[t][p], 2 * h),
                           td_word(v[t][p], 2 * h + 1));
        }
    }
}

/* What small_run() multiplies: the lane's two weight rows (rows g and g + 8 of the 16),
 * NULL for one outside, and the scales of rows 0 .. 7 and 8 .. 15 by k block, NULL for
 * none. */
struct td_small_in {
    const uint8_t *lo, *hi;
    const float *scale[2];
    int blocks;
};

/* 16 weight rows times rows of x, by W warps. x holds, for each n-tile, the lane's
 * activation row (row g of the tile), NULL for none; planes are `plane` elements apart.
 * Output o = thread + 32 W j is weight row o % 16, activation row o / 16; total[j] is its
 * total. With WAITS, weights are asked for before td_wait(). */
template <int TYPE, int PLANES, int NT, int W, bool WAITS>
TD_DEVICE void small_run(td_small_in in, const uint16_t *const (&x)[NT], int64_t plane,
                         float *shared, float (&total)[td_small_outputs<NT, W>::n])
{
    const int part_size = 8 * NT * SMALL_PITCH;
    const int64_t step = (int64_t)W * KB * td_bytes_of<TYPE>();
    int thread = (int)threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    int g = lane / 4, c = lane % 4, blocks = in.blocks;
    float *scales = shared + 2 * W * part_size;
    td_frag<TYPE> f, next;
    in.lo = in.lo ? in.lo + (int64_t)warp * KB * td_bytes_of<TYPE>() : NULL;
    in.hi = in.hi ? in.hi + (int64_t)warp * KB * td_bytes_of<TYPE>() : NULL;
    if (warp < blocks)
        td_load_frag<TYPE>(f, in.lo, in.hi, c);
    float scale[2] = {1.0f, 1.0f}; /* stored when they are there */
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (thread < blocks && in.scale[i])
            scale[i] = in.scale[i][thread];
#pragma unroll
    for (int j = 0; j < td_small_outputs<NT, W>::n; j++)
        total[j] = 0.0f;
    if (WAITS)
        td_wait();
    for (int b0 = 0, turn = 0; b0 < blocks; b0 += W, turn ^= 1) {
        float *parts = shared + turn * W * part_size;
        int b = b0 + warp;
        if (b + W < blocks) {
            in.lo = in.lo ? in.lo + step : NULL;
            in.hi = in.hi ? in.hi + step : NULL;
            td_load_frag<TYPE>(next, in.lo, in.hi, c);
        }
        if (b < blocks) {
            float sum[NT][4];
            small_block<TYPE, PLANES, NT>(f, x, plane, (int64_t)b * KB, sum);
#pragma unroll
            for (int t = 0; t < NT; t++) {
                float *to =
                    parts + warp * part_size + (8 * t + 2 * c) * SMALL_PITCH + g;
                to[0] = sum[t][0];
                to[SMALL_PITCH] = sum[t][1];
                to[8] = sum[t][2];
                to[SMALL_PITCH + 8] = sum[t][3];
            }
        }
        if (b0 == 0) {
            for (int i = thread; i < blocks; i += W * WARP) {
                bool own = i == thread;
                scales[i] = own ? scale[0] : in.scale[0] ? in.scale[0][i] : 1.0f;
                scales[blocks + i] = own           ? scale[1]
                                     : in.scale[1] ? in.scale[1][i]
                                                   : 1.0f;
            }
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < td_small_outputs<NT, W>::n; j++) {
            int o = thread + W * WARP * j, m = o % SMALL_M;
            const float *part = parts + o / SMALL_M * SMALL_PITCH + m;
            const float *scale = scales + (m < 8 ? 0 : blocks) + b0;
            if (o >= SMALL_M * 8 * NT)
                continue;
#pragma unroll 8
            for (int k = 0; k < TD_MIN(W, blocks - b0); k++)
                total[j] = fmaf(part[k * part_size], scale[k], total[j]);
        }
        f = next;
    }
}

#endif

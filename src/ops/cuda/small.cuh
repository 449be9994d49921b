/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of weights with few rows of activations, in the order of sums of tile.cuh.
 *
 *     small_run()  16 weight rows by 8 * NT activation rows; the warps of a block share
 *                  the k blocks and leave block sums in shared memory
 *     small_one()  the same for one row of rounded activations; its warps meet once
 *
 * One row's product is short, and its weights are all that it waits for. So small_one()
 * asks for them before td_wait(), each lane for its part of several k blocks, in shared
 * memory of its own (a ring of slots): registers would not hold as much. Nobody else
 * looks there, so that a lane waits for its own copies and for nothing more.
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

/* ---- one row ---- */

enum { MOST_SLOTS = 4 }; /* of a warp */

/* A slot holds a warp's part of a k block: pieces of 16 bytes, [piece][lane]. */
template <int TYPE> TD_DEVICE constexpr int td_pieces(void)
{
    return TYPE == TD_MAT_F8 ? 4 : 8;
}

static inline size_t td_slot_bytes(int type)
{
    return (size_t)SMALL_M * KB * (type == TD_MAT_F8 ? 1 : 2);
}

/* Blocks of W warps of small_one() that a multiprocessor should hold. */
TD_CUDA_BOTH constexpr int td_one_blocks(int warps)
{
    return warps == MANY_WARPS ? 2 : 48 / warps;
}

/* Floats for two scales of each k block, whole pieces of 16 bytes. */
TD_CUDA_BOTH int td_small_scales(int blocks)
{
    return (2 * blocks + 3) / 4 * 4;
}

/* What a launch of `grid` blocks of W warps looks like. */
struct td_one_launch {
    int64_t grid;
    int warps, blocks, type; /* blocks: of k */
    size_t x;                /* bytes behind the scales */
};

/* Whether a ring of `bytes` has to be filled again. */
static inline bool td_one_again(const struct td_one_launch &l, int32_t bytes)
{
    return (size_t)bytes / td_slot_bytes(l.type) * (size_t)l.warps < (size_t)l.blocks;
}

/* Bytes of a warp's ring, and the shared memory of a block: as many slots as leave room
 * for as many blocks at a time as are wanted. */
static inline int32_t td_one_plan(const struct td_cuda_ctx *c,
                                  const struct td_one_launch &l, size_t *bytes)
{
    size_t warps = (size_t)l.warps, slot = td_slot_bytes(l.type);
    size_t turns = ((size_t)l.blocks + warps - 1) / warps;
    size_t rest = l.x + (size_t)td_small_scales(l.blocks) * sizeof(float);
    int64_t wanted = (l.grid + c->processors - 1) / c->processors;
    size_t at_once = (size_t)TD_MAX(TD_MIN(wanted, td_one_blocks(l.warps)), 1);
    size_t room =
        (size_t)c->shared_max / at_once - 1024; /* the system has 1 KiB each */
    size_t n = TD_MIN(turns, (size_t)MOST_SLOTS);
    while (n > 1 && warps * n * slot + rest > room)
        n--;
    *bytes = warps * n * slot + rest;
    return (int32_t)(n * slot);
}

/* x of one row as small_one() holds it, and behind it WARP numbers of the kernel's. */
static inline size_t td_one_x(int blocks)
{
    return (size_t)blocks * KB * sizeof(uint16_t) + WARP * sizeof(float);
}

TD_DEVICE float *td_behind_x(float *parts, int blocks)
{
    return parts + blocks * (KB / 2);
}

/* All copies but those of the last n groups have arrived, 0 <= n < MOST_SLOTS. */
TD_DEVICE void td_copy_wait_but(int n)
{
    if (n == 0)
        td_copy_wait<0>();
    else if (n == 1)
        td_copy_wait<1>();
    else if (n == 2)
        td_copy_wait<2>();
    else
        td_copy_wait<3>();
}

/* Asks for a lane's part of a k block; lo and hi as in td_small_in, at that block, if they
 * are there. */
template <int TYPE>
TD_DEVICE void td_ask(uint4 *slot, const uint8_t *lo, const uint8_t *hi, bool lo_there,
                      bool hi_there)
{
    unsigned lane = threadIdx.x % WARP, at = 16 * (lane % 4);
    slot += lane;
    lo += at;
    hi += at;
#pragma unroll
    for (int i = 0; i < td_pieces<TYPE>() / 2; i++) {
        td_copy16_of_128(slot + 2 * i * WARP, lo + 64 * i, lo_there);
        td_copy16_of_128(slot + (2 * i + 1) * WARP, hi + 64 * i, hi_there);
    }
}

/* The same of k block b. */
template <int TYPE> TD_DEVICE void td_ask(uint4 *slot, const td_small_in &in, int b)
{
    int64_t at = b * KB * td_bytes_of<TYPE>();
    td_ask<TYPE>(slot, in.lo + at, in.hi + at, in.lo != NULL, in.hi != NULL);
}

/* Where things lie in a block's shared memory. */
template <int TYPE, int W> struct td_small_place {
    static constexpr int size = td_pieces<TYPE>() * WARP; /* of a slot */
    uint4 *slot;                                          /* the warp's first */
    float *parts, *scales;
    int slots;
};

/* W warps may be some of a block's; `thread` is one of theirs. */
template <int TYPE, int W>
TD_DEVICE td_small_place<TYPE, W> small_place(int32_t ring, int blocks, uint4 *shared,
                                              int thread)
{
    td_small_place<TYPE, W> p;
    p.slot = shared + thread / WARP * (ring / 16);
    p.slots = ring / 16 / p.size;
    p.scales = (float *)(shared + W * (ring / 16));
    p.parts = p.scales + td_small_scales(blocks);
    return p;
}

/* Asks for the weights of the warp's first k blocks, and for all scales. */
template <int TYPE, int W>
TD_DEVICE void small_ask(const td_small_in &in, const td_small_place<TYPE, W> &p,
                         int thread)
{
    for (int i = thread; i < 2 * in.blocks; i += W * WARP) {
        const float *from = i < in.blocks ? in.scale[0]
                            : in.scale[1] ? in.scale[1] - in.blocks
                                          : NULL;
        if (from)
            td_copy4(p.scales + i, from + i);
        else
            p.scales[i] = 1.0f;
    }
    int b = thread / WARP;
    for (int i = 0; i < p.slots; i++, b += W) {
        if (b < in.blocks)
            td_ask<TYPE>(p.slot + i * p.size, in, b);
        td_copy_commit();
    }
}

/* Sums of one k block for one row x, in shared memory, of lanes 0 .. 3, NULL in the others.
 * w: the lane's first weights in the block, of the tensor cores' row g; the next of a row
 * are APART pieces of 16 bytes behind, those of row g + 8 `down` pieces. */
template <int TYPE, int PLANES, int APART>
TD_DEVICE void one_block(const uint4 *w, int down, const uint16_t *x, int64_t plane,
                         int64_t k0, float (&sum)[4])
{
    const int halves = td_pieces<TYPE>() / 2, pairs = STEPS / 2 / halves;
#pragma unroll
    for (int e = 0; e < 4; e++)
        sum[e] = 0.0f;
#pragma unroll
    for (int i = 0; i < halves; i++) {
        td_frag<TYPE> f;
        f.lo[i] = w[APART * i];
        f.hi[i] = w[down + APART * i];
#pragma unroll
        for (int pair = i * pairs; pair < (i + 1) * pairs; pair++) {
            uint4 v[PLANES];
#pragma unroll
            for (int p = 0; p < PLANES; p++)
                v[p] = small_x<TYPE>(x ? x + p * plane : NULL, k0, pair);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t a[4];
                td_operand<TYPE>(f, 2 * pair + h, a);
#pragma unroll
                for (int p = 0; p < PLANES; p++)
                    td_mma(sum, a, td_word(v[p], 2 * h), td_word(v[p], 2 * h + 1));
            }
        }
    }
}

/* The same of a slot. */
template <int TYPE, int PLANES>
TD_DEVICE void slot_block(const uint4 *slot, const uint16_t *x, int64_t plane,
                          int64_t k0, float (&sum)[4])
{
    one_block<TYPE, PLANES, 2 * WARP>(slot + threadIdx.x % WARP, WARP, x, plane, k0,
                                      sum);
}

/* The sums of all k blocks for one row: x, in shared memory, of lanes 0 .. 3, NULL in the
 * others. Those of a block b go to part + step * b, which may be where its x was. Warps do
 * not meet. Without AGAIN the ring holds all of a warp's k blocks. */
template <int TYPE, int PLANES, int W, bool AGAIN>
TD_DEVICE void small_parts(const td_small_in &in, const td_small_place<TYPE, W> &p,
                           const uint16_t *x, int64_t plane, float *part, int step,
                           int thread)
{
    int lane = thread % WARP;
    for (int b = thread / WARP, at = 0; b < in.blocks; b += W) {
        uint4 *slot = p.slot + at * p.size;
        float sum[4];
        int then = b + p.slots * W;
        td_copy_wait_but(p.slots - 1);
        __syncwarp();
        slot_block<TYPE, PLANES>(slot, x, plane, b * KB, sum);
        if (AGAIN && then < in.blocks)
            td_ask<TYPE>(slot, in, then);
        td_copy_commit();
        at = at + 1 < p.slots ? at + 1 : 0;
        __syncwarp();
        if (lane % 4 == 0) {
            part[b * step + lane / 4] = sum[0];
            part[b * step + lane / 4 + 8] = sum[2];
        }
    }
}

/* Asks for one row x of rounded activations, to where a warp of W will read it: of each k
 * block, by the warp that multiplies it, which waits as for its first weights. */
template <int W> TD_DEVICE void small_ask_x(uint16_t *xs, int blocks, const uint16_t *x)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    for (int b = warp; b < blocks; b += W)
        if (lane < KB / 8)
            td_copy16(xs + b * KB + 8 * lane, x + b * KB + 8 * lane, true);
    td_copy_commit();
}

/* The totals of sums in part + step * b; in the first 16 of the threads that share them,
 * of weight row m. All threads of the block must call it. */
template <int TYPE, int W>
TD_DEVICE float small_total(const td_small_place<TYPE, W> &p, int blocks,
                            const float *part, int step, int thread)
{
    float total = 0.0f;
    __syncthreads();
    if (thread >= SMALL_M)
        return total;
    const float *scale = p.scales + (thread < 8 ? 0 : blocks);
#pragma unroll 8
    for (int b = 0; b < blocks; b++)
        total = fmaf(part[b * step + thread], scale[b], total);
    return total;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of one row whose weights are there before it is: whole_parts() and
 * whole_total() do what small_one() of small.cuh does, with weights that the copy engine
 * brings, all of a tile's 16 rows at once. One thread asks, for two pieces of memory, so
 * that asking keeps nobody from making the row meanwhile. A tile is there only as a whole:
 * where the weights come last, small_one() begins sooner.
 */
#ifndef TD_OPS_CUDA_WHOLE_CUH
#define TD_OPS_CUDA_WHOLE_CUH

#include "ops/cuda/bulk.cuh"
#include "ops/cuda/small.cuh"

enum {
    GROUP_ROWS = SMALL_M / 2, /* of a tile, in one piece of memory */
    GROUP_APART = 64          /* bytes that keep the banks of two groups apart */
};

/* The first row of a tile, of which `rows` are there (0 .. 16), and its scales by k block,
 * NULL for none. */
struct td_whole_in {
    const uint8_t *w;
    const float *scale;
    int32_t rows, blocks;
};

/* Bytes of a tile in shared memory, and of what whole_parts() and whole_total() need. */
TD_CUDA_BOTH int td_whole_tile(int type, int blocks)
{
    return SMALL_M * KB * (type == TD_MAT_F8 ? 1 : 2) * blocks + GROUP_APART;
}

/* Floats for a scale of each k block, whole pieces of 16 bytes. */
TD_CUDA_BOTH int td_whole_scales(int blocks)
{
    return (blocks + 3) / 4 * 4;
}

TD_CUDA_BOTH int td_whole_bytes(int type, int blocks)
{
    return td_whole_tile(type, blocks) + 4 * td_whole_scales(blocks) + 16;
}

/* Where things lie there. */
struct td_whole_place {
    uint8_t *tile;
    float *scales;
    uint32_t full; /* the barrier */
};

template <int TYPE> TD_DEVICE td_whole_place whole_place(void *shared, int blocks)
{
    td_whole_place p;
    p.tile = (uint8_t *)shared;
    p.scales = (float *)(p.tile + td_whole_tile(TYPE, blocks));
    p.full = td_shared_at(p.scales + td_whole_scales(blocks));
    return p;
}

/* Asks for a tile and its scales; all of the `threads` that multiply it. Before they call
 * whole_parts(), they meet. */
template <int TYPE>
TD_DEVICE void whole_ask(const td_whole_in &in, const td_whole_place &p, int thread,
                         int threads)
{
    const int pitch = KB * td_bytes_of<TYPE>() * in.blocks;
    if (thread == 0) {
        int lo = min(in.rows, (int)GROUP_ROWS), hi = in.rows - lo;
        uint32_t to = td_shared_at(p.tile);
        td_barrier_init(p.full, 1);
        td_barrier_ready();
        td_barrier_expect(p.full, in.rows * pitch);
        if (lo)
            td_bulk_copy(to, in.w, (uint32_t)(lo * pitch), p.full);
        if (hi)
            td_bulk_copy(to + (uint32_t)(GROUP_ROWS * pitch) + GROUP_APART,
                         in.w + GROUP_ROWS * (int64_t)pitch, (uint32_t)(hi * pitch),
                         p.full);
    }
    for (int b = thread; b < in.blocks; b += threads)
        if (in.scale)
            td_copy4(p.scales + b, in.scale + b);
        else
            p.scales[b] = 1.0f;
    td_copy_commit();
}

/* A k block's sums take the place of 16 of its weights in row 0; floats between them. */
template <int TYPE> TD_DEVICE constexpr int whole_step(void)
{
    return KB * td_bytes_of<TYPE>() / (int)sizeof(float);
}

/* The sums of all k blocks by W warps: x, in shared memory, of lanes 0 .. 3, NULL in the
 * others. Of the tensor cores' rows g and g + 8, lane (g, c) reads rows `row` and row + 4:
 * eight lanes that read at a time meet all banks, those of even g in the first group, of
 * odd g in the second. */
template <int TYPE, int W>
TD_DEVICE void whole_parts(const td_whole_place &p, int blocks, const uint16_t *x,
                           int thread)
{
    const int wide = KB * td_bytes_of<TYPE>();
    int lane = thread % WARP, g = lane / 4, row = g % 2 * GROUP_ROWS + g / 2;
    const uint4 *w =
        (const uint4 *)(p.tile + row * wide * blocks + g % 2 * GROUP_APART) + lane % 4;
    td_copy_wait<0>(); /* scales, for whole_total() */
    td_barrier_wait(p.full, 0);
    for (int b = thread / WARP; b < blocks; b += W) {
        float sum[4], *to = (float *)p.tile + b * whole_step<TYPE>() + row;
        one_block<TYPE, 1, 4>(w + b * (wide / 16), wide / 4 * blocks, x, 0, b * KB,
                              sum);
        __syncwarp(); /* all have read */
        if (lane % 4 == 0) {
            to[0] = sum[0];
            to[4] = sum[2];
        }
    }
}

/* The totals; in the first 16 of the threads that share them, of weight row m. All threads
 * of the block must call it. */
template <int TYPE>
TD_DEVICE float whole_total(const td_whole_place &p, int blocks, int thread)
{
    const float *part = (const float *)p.tile + thread;
    float total = 0.0f;
    __syncthreads();
    if (thread >= SMALL_M)
        return total;
#pragma unroll 8
    for (int b = 0; b < blocks; b++)
        total = fmaf(part[b * whole_step<TYPE>()], p.scales[b], total);
    return total;
}

#endif

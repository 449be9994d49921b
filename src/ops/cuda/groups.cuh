/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choices of experts sorted by expert, into tiles of at most so many that share one.
 *
 * groups: [0] the number of tiles, then tiles of {expert, first, count}, then the sorted
 * choices, each expert's from a multiple of SLICE_ROWS on, then each choice's place among
 * them, then how often each block of group_count() saw each expert.
 */
#ifndef TD_OPS_CUDA_GROUPS_CUH
#define TD_OPS_CUDA_GROUPS_CUH

#include "ops/cuda/planes.cuh"

enum {
    GROUP_THREADS = 1024,
    GROUP_SHARE = 2 * GROUP_THREADS, /* choices of a block that sorts */
    GROUP_BLOCKS = 32,
    TILE_INTS = 3
};

static int32_t most_tiles(int32_t choices, int32_t experts, int32_t size)
{
    return (choices < experts ? choices : experts) + choices / size;
}

/* Places of sorted choices. */
static int32_t most_sorted(int32_t choices, int32_t experts)
{
    int32_t apart = (SLICE_ROWS - 1) * (choices < experts ? choices : experts);
    return (int32_t)td_cuda_tall(choices + apart);
}

/* Integers of groups. */
static int64_t group_ints(int32_t choices, int32_t experts)
{
    return 1 + (int64_t)TILE_INTS * most_tiles(choices, experts, 8) +
           most_sorted(choices, experts) + choices + (int64_t)GROUP_BLOCKS * experts;
}

struct grouping {
    const int32_t *id;
    int32_t choices, experts, size, most; /* size: of a tile; most: tiles */
    int32_t places;                       /* of sorted choices */
    int32_t *groups;
};

TD_DEVICE int32_t *group_sorted(const struct grouping &g)
{
    return g.groups + 1 + TILE_INTS * g.most;
}

TD_CUDA_BOTH int32_t *group_places(const struct grouping &g)
{
    return g.groups + 1 + TILE_INTS * g.most + g.places;
}

TD_DEVICE int32_t *group_counts(const struct grouping &g)
{
    return group_places(g) + g.choices;
}

/* The first choice of block `block` of the grid. */
TD_DEVICE int32_t group_begin(const struct grouping &g, unsigned block)
{
    int32_t share = (g.choices + (int32_t)gridDim.x - 1) / (int32_t)gridDim.x;
    return min(share * (int32_t)block, g.choices);
}

/* count[e]: how often the block's choices are e. */
TD_DEVICE void count_choices(const struct grouping &g, int32_t *count)
{
    int32_t end = group_begin(g, blockIdx.x + 1);
    for (int e = (int)threadIdx.x; e < g.experts; e += GROUP_THREADS)
        count[e] = 0;
    __syncthreads();
    for (int i = group_begin(g, blockIdx.x) + (int)threadIdx.x; i < end;
         i += GROUP_THREADS)
        atomicAdd(&count[g.id[i]], 1);
    __syncthreads();
}

static __global__ void __launch_bounds__(GROUP_THREADS)
    group_count(const struct grouping g)
{
    __shared__ int32_t count[TD_CUDA_MAX_EXPERTS];
    td_wait();
    count_choices(g, count);
    for (int e = (int)threadIdx.x; e < g.experts; e += GROUP_THREADS)
        group_counts(g)[(int32_t)blockIdx.x * g.experts + e] = count[e];
}

/* The counts of all blocks, and in before[] of those in front of this one. */
TD_DEVICE void add_counts(const struct grouping &g, int32_t *count, int32_t *before)
{
    for (int e = (int)threadIdx.x; e < g.experts; e += GROUP_THREADS) {
        int32_t all = 0, front = 0;
#pragma unroll 8
        for (unsigned b = 0; b < gridDim.x; b++) {
            int32_t n = group_counts(g)[(int32_t)b * g.experts + e];
            front += b < blockIdx.x ? n : 0;
            all += n;
        }
        count[e] = all;
        before[e] = front;
    }
    __syncthreads();
}

/* Running sums of a warp over the experts, 32 at a time: where each one's choices and
 * tiles begin. */
TD_DEVICE void place_experts(const struct grouping &g, const int32_t *count,
                             int32_t *first, int32_t *tile0)
{
    int32_t rows = 0, tiles = 0;
    for (int e0 = 0; e0 < g.experts; e0 += WARP) {
        int e = e0 + (int)threadIdx.x;
        int32_t n = e < g.experts ? count[e] : 0, t = (n + g.size - 1) / g.size;
        n = (n + SLICE_ROWS - 1) / SLICE_ROWS * SLICE_ROWS;
        int32_t rows_to = n, tiles_to = t;
        for (int d = 1; d < WARP; d *= 2) {
            int32_t r = __shfl_up_sync(0xffffffff, rows_to, d);
            int32_t u = __shfl_up_sync(0xffffffff, tiles_to, d);
            if ((int)threadIdx.x >= d) {
                rows_to += r;
                tiles_to += u;
            }
        }
        if (e < g.experts) {
            first[e] = rows + rows_to - n;
            tile0[e] = tiles + tiles_to - t;
        }
        rows += __shfl_sync(0xffffffff, rows_to, WARP - 1);
        tiles += __shfl_sync(0xffffffff, tiles_to, WARP - 1);
    }
    if (threadIdx.x == 0 && blockIdx.x == 0)
        g.groups[0] = tiles;
}

/* Sorts; each block its share of the choices, counted before if there are several blocks.
 * Which place a choice gets among those of its expert has no influence on its result. */
static __global__ void __launch_bounds__(GROUP_THREADS) group(const struct grouping g)
{
    __shared__ int32_t count[TD_CUDA_MAX_EXPERTS], first[TD_CUDA_MAX_EXPERTS];
    __shared__ int32_t tile0[TD_CUDA_MAX_EXPERTS], before[TD_CUDA_MAX_EXPERTS];
    td_wait();
    if (gridDim.x == 1)
        count_choices(g, count);
    else
        add_counts(g, count, before);
    if (threadIdx.x < WARP)
        place_experts(g, count, first, tile0);
    __syncthreads();
    for (int e = (int)threadIdx.x; e < g.experts; e += GROUP_THREADS) {
        int32_t *tile = g.groups + 1 + TILE_INTS * tile0[e];
        for (int32_t at = 0; at < count[e] && blockIdx.x == 0; at += g.size) {
            *tile++ = e;
            *tile++ = first[e] + at;
            *tile++ = min(g.size, count[e] - at);
        }
        first[e] += gridDim.x == 1 ? 0 : before[e];
    }
    __syncthreads();
    int32_t end = group_begin(g, blockIdx.x + 1);
    for (int i = group_begin(g, blockIdx.x) + (int)threadIdx.x; i < end;
         i += GROUP_THREADS) {
        int32_t at = atomicAdd(&first[g.id[i]], 1);
        group_sorted(g)[at] = i;
        group_places(g)[i] = at;
    }
}

static void start_group(const struct td_cuda_ctx *c, const struct grouping &g)
{
    int32_t shares = (g.choices + GROUP_SHARE - 1) / GROUP_SHARE;
    dim3 blocks((unsigned)TD_MAX(TD_MIN(shares, (int32_t)GROUP_BLOCKS), 1));
    if (blocks.x > 1)
        td_start(c, group_count, blocks, GROUP_THREADS, 0, g);
    td_start(c, group, blocks, GROUP_THREADS, 0, g);
}

#endif

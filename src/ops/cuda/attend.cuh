/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of attention on tensor cores share (attend_few.cu of generated rows,
 * attend.cu and attend_wide.cu of prompts). Rows of shared memory are swizzled in pieces
 * of 16 bytes, so that the eight rows of a matrix load meet different banks.
 */
#ifndef TD_OPS_CUDA_ATTEND_CUH
#define TD_OPS_CUDA_ATTEND_CUH

#include "ops/cuda/planes.cuh"

struct td_attend {
    const float *qg;
    uint16_t *k, *v;
    float *y, *parts;
    struct td_planes_out planes;
    int32_t n_heads, n_kv;
    float scale;
    bool only_planes; /* y is not wanted otherwise */
};

/* Element `at` of row r of a tile whose rows are D elements. */
template <int D> TD_DEVICE int td_tile_at(int r, int at)
{
    return r * D + ((at / 8 ^ (r & 7)) * 8 + at % 8);
}

/* Where a block of the cache has a head's keys or values. */
template <int D>
TD_DEVICE int64_t td_block_at(const struct td_attend &a, const struct td_batch &b,
                              int32_t seq, int32_t head, int32_t block)
{
    int64_t number = b.blocks[(int64_t)seq * b.max_blocks + block];
    return (number * a.n_kv + head) * TD_KV_BLOCK * D;
}

/* Rows of tile `index` of `most` rows of the batch's pieces. */
TD_DEVICE bool td_attend_rows(const struct td_batch &b, int32_t most, int32_t index,
                              int32_t *seq, int32_t *row, int32_t *n)
{
    for (int32_t s = b.n_decode; s < b.n_decode + b.n_prefill; s++) {
        int32_t rows = b.row0[s + 1] - b.row0[s], tiles = (rows + most - 1) / most;
        if (index < tiles) {
            *row = b.row0[s] + index * most;
            *n = min(rows - index * most, most);
            *seq = b.seq[*row];
            return *seq >= 0;
        }
        index -= tiles;
    }
    return false;
}

/* Tiles of `most` rows that the batch's pieces have at most. */
static inline unsigned td_attend_tiles(const struct td_batch *b, int32_t most)
{
    return (unsigned)((b->rows - b->n_decode) / most + b->n_prefill);
}

/* Attention of generated rows, for heads of 64, 128 or 256, their way in before if `in` is
 * not NULL; see attend_few.cu. */
bool td_attend_few_fits(const struct td_cuda_ctx *c, int32_t dim);
void td_attend_few(const struct td_cuda_ctx *c, const struct td_attend &a,
                   const struct td_batch *b, int32_t dim, const struct td_qkv_args *in);
void td_attend_few_prepare(const struct td_cuda_ctx *c);

/* The way in of pieces of prompts whose heads are in quads (heads.cuh), for a cache of
 * bf16; see attention.cu. */
void td_attend_enter_pieces(const struct td_cuda_ctx *c, const struct td_qkv_args *a);

/* Attention of a prompt's rows through warpgroups, for heads of 64, 128 or 256; see
 * attend_wide.cu. */
void td_attend_wide(const struct td_cuda_ctx *c, const struct td_attend &a,
                    const struct td_batch *b, int32_t dim);
void td_attend_wide_prepare(const struct td_cuda_ctx *c);

#endif

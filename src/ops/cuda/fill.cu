/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights from a hash instead of a file: the same bits as on the processor's shelf. See
 * ops/random.h. A thread makes the elements of one word of the hash.
 */
#include "ops/cuda/device.cuh"
#include "ops/random.h"

#include <cuda_fp8.h>

enum { FILL_THREADS = 256, PER_WORD = TD_RANDOM_PER_WORD };

static __device__ void put_number(const struct td_matrix &m, int64_t at, float odd,
                                  float step)
{
    if (m.type == TD_MAT_F8)
        ((__nv_fp8_storage_t *)m.data)[at] =
            __nv_cvt_float_to_fp8(odd * (448.0f / 65535.0f), __NV_SATFINITE, __NV_E4M3);
    else if (m.type == TD_MAT_BF16)
        ((uint16_t *)m.data)[at] = td_to_bf16(odd * step);
    else
        ((float *)m.data)[at] = odd * step;
}

/* Words lie in rows of `words`, beginning at that of column from_col. */
static __global__ void __launch_bounds__(FILL_THREADS)
    fill_words(struct td_matrix m, struct td_fill_args a, int64_t words)
{
    int64_t i = (int64_t)blockIdx.x * FILL_THREADS + threadIdx.x;
    if (i >= a.n * words)
        return;
    int64_t row = i / words, col = (a.from_col / PER_WORD + i % words) * PER_WORD;
    uint64_t w = td_random_word(a.seed, td_random_place(a.from_row + row, col, a.cols));
    int64_t at = (a.row + row) * td_cuda_pitch(m.k) - a.from_col;
    for (int k = 0; k < PER_WORD; k++, col++)
        if (col >= a.from_col && col < a.from_col + m.k)
            put_number(m, at + col, td_random_odd(w, k), a.range / 65535.0f);
}

static __global__ void __launch_bounds__(FILL_THREADS)
    fill_scales(struct td_matrix m, struct td_fill_args a, int64_t rows, int64_t wide)
{
    int64_t i = (int64_t)blockIdx.x * FILL_THREADS + threadIdx.x;
    if (i >= rows * wide)
        return;
    int64_t all = (a.cols + TD_SCALE_BLOCK - 1) / TD_SCALE_BLOCK;
    int64_t row = a.from_row / TD_SCALE_BLOCK + i / wide;
    int64_t block = row * all + a.from_col / TD_SCALE_BLOCK + i % wide;
    m.scale[a.row / TD_SCALE_BLOCK * wide + i] =
        a.range / 448.0f * td_random_factor(a.seed, block);
}

static unsigned blocks_of(int64_t n)
{
    return (unsigned)((n + FILL_THREADS - 1) / FILL_THREADS);
}

extern "C" void td_cuda_fill(const struct td_cuda_ctx *c, const struct td_fill_args *a)
{
    const struct td_matrix *m = a->m;
    int64_t words =
        (a->from_col + m->k + PER_WORD - 1) / PER_WORD - a->from_col / PER_WORD;
    fill_words<<<blocks_of(a->n * words), FILL_THREADS, 0, c->stream>>>(*m, *a, words);
    if (m->type != TD_MAT_F8)
        return;
    int64_t rows = td_scale_blocks(a->row + a->n) - a->row / TD_SCALE_BLOCK;
    int64_t wide = td_scale_blocks(m->k);
    fill_scales<<<blocks_of(rows * wide), FILL_THREADS, 0, c->stream>>>(*m, *a, rows,
                                                                        wide);
}

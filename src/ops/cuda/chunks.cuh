/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of the delta rule over prompts share (chunks.cu, chunks_wide.cu).
 */
#ifndef TD_OPS_CUDA_CHUNKS_CUH
#define TD_OPS_CUDA_CHUNKS_CUH

#include "ops/cuda/panels.cuh"
#include "ops/cuda/planes.cuh"

enum {
    C = TD_CHUNK,
    SQUARE = C * C,
    SQUARES = 3 * SQUARE, /* planes of T, then M */
    TD_CHUNK_COLS = 64    /* of a state, in a warpgroup */
};

/* What prepare() leaves; see chunks.cu. */
struct td_chunk_work {
    uint16_t *keys;  /* [chunk][n_k][k, k, q][64][dk] */
    uint16_t *heads; /* [chunk][n_v] of SQUARES + 4 * C elements, the last 2 * C f32 */
};

static __host__ __device__ constexpr int64_t td_key_record(int32_t dk)
{
    return (int64_t)3 * C * dk;
}

static __host__ __device__ constexpr int64_t td_head_record(void)
{
    return SQUARES + 4 * C;
}

/* q, k and v of a row. */
TD_DEVICE const float *td_chunk_row(const struct td_delta_args &a, int64_t row)
{
    return a.c + row * (2 * (int64_t)a.n_k * a.dk + (int64_t)a.n_v * a.dv);
}

/* Chunks before piece `seq`. */
TD_DEVICE int32_t td_chunks_before(const struct td_batch &b, int32_t seq)
{
    int32_t n = 0;
    for (int32_t s = b.n_decode; s < seq; s++)
        n += (b.row0[s + 1] - b.row0[s] + C - 1) / C;
    return n;
}

/* The walk over chunks by warpgroups, for key heads of 64 or 128 and value heads of whole
 * TD_CHUNK_COLS; see chunks_wide.cu. */
void td_chunks_wide(const struct td_cuda_ctx *c, const struct td_delta_args &a,
                    const struct td_chunk_work &w);
void td_chunks_wide_prepare(const struct td_cuda_ctx *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host side of the CUDA shelf (C) and its kernels (CUDA) share: the context that
 * every launcher receives, and the launchers. Private to ops/cuda.
 *
 * A launcher enqueues kernels on the context's stream and returns; it reports nothing.
 * The host side asks for the last launch error behind each.
 *
 * Layout of a matrix: rows one after another, each padded with zeros to a multiple of
 * TD_SCALE_BLOCK elements, so that kernels read whole blocks without conditions.
 */
#ifndef TD_OPS_CUDA_LAUNCH_H
#define TD_OPS_CUDA_LAUNCH_H

#include "ops/ops.h"

#include <cuda_runtime_api.h>

enum {
    TD_CUDA_SMALL_ROWS = 64, /* up to here products split k over the warps of a block */
    TD_CUDA_FEW_ROWS = 4,    /* up to here a mixture has kernels of its own */
    TD_CUDA_SPLIT = 128,     /* tokens that a block of attention takes at a time */
    TD_CUDA_MOST_SPLITS = 64,   /* parts of a decode row's context */
    TD_CUDA_MAX_CONV = 8,       /* width of a convolution */
    TD_CUDA_MAX_DIM = 256,      /* of an attention or delta-net head */
    TD_CUDA_MAX_EXPERTS = 1024, /* that route() can choose from */
    TD_CUDA_MAX_CHOICES = 32
};

/* What the planes in work memory were made from; x NULL: nothing that lasts. Whatever
 * may write to x forgets it. */
struct td_cuda_made {
    const float *x;
    int64_t stride, k;
    int32_t rows;
    int n;
    bool sliced; /* see planes.cuh */
    int32_t type;
};

/* Work memory and what a launch needs to know of the device. */
struct td_cuda_ctx {
    cudaStream_t stream;
    enum td_numerics numerics;
    int32_t processors; /* multiprocessors */
    int32_t shared_max; /* bytes of shared memory that a block may have */
    bool warpgroups;    /* warpgroup.cuh has a body for this GPU */
    int32_t split;      /* tokens of a part of a decode row's context */
    struct td_reserve limits;
    struct td_cuda_made *made;
    uint16_t *planes; /* inputs as sums of bf16 numbers, see planes.cuh */
    uint16_t *mid;    /* experts' inner activations as planes */
    void *out;    /* [choices][hidden] results of experts, bf16 or f32, and before them
                         what these read, see experts.cu */
    void *shared; /* [max_rows][hidden] results of the shared expert, likewise */
    int32_t *groups;  /* rows by expert, see experts.cu */
    float *parts;     /* partial attention, see attention.cu */
    float *chunks;    /* of the delta rule, see delta.cu */
    int32_t *counts;  /* zeros between kernels: [max_seqs][n_k], see gdn.cu */
    char *image;      /* weights of exact products, see exact.cu */
    char *candidates; /* parts of rows of logits, see candidates.cu */
};

#ifdef __CUDACC__
#define TD_CUDA_BOTH __host__ __device__ static inline
#else
#define TD_CUDA_BOTH static inline
#endif

/* Elements between rows of a matrix or of planes with k elements a row. */
TD_CUDA_BOTH int64_t td_cuda_pitch(int64_t k)
{
    return (k + TD_SCALE_BLOCK - 1) / TD_SCALE_BLOCK * TD_SCALE_BLOCK;
}

/* Rows that planes have room for: whole groups of those that are swizzled together. */
TD_CUDA_BOTH int64_t td_cuda_tall(int64_t rows)
{
    return (rows + 7) / 8 * 8;
}

#ifdef __cplusplus
extern "C" {
#endif

void td_cuda_fill(const struct td_cuda_ctx *c, const struct td_fill_args *a);
void td_cuda_embed(const struct td_cuda_ctx *c, const struct td_embed_args *a);
void td_cuda_norm(const struct td_cuda_ctx *c, const struct td_norm_args *a);
void td_cuda_gated_norm(const struct td_cuda_ctx *c,
                        const struct td_gated_norm_args *a);
void td_cuda_swiglu(const struct td_cuda_ctx *c, const struct td_swiglu_args *a);
void td_cuda_route(const struct td_cuda_ctx *c, const struct td_route_args *a);
void td_cuda_linear(const struct td_cuda_ctx *c, const struct td_linear_args *a);
void td_cuda_experts(const struct td_cuda_ctx *c, const struct td_experts_args *a);
void td_cuda_qkv(const struct td_cuda_ctx *c, const struct td_qkv_args *a);
void td_cuda_attention(const struct td_cuda_ctx *c, const struct td_attention_args *a);
void td_cuda_conv(const struct td_cuda_ctx *c, const struct td_conv_args *a);
void td_cuda_delta(const struct td_cuda_ctx *c, const struct td_delta_args *a);
void td_cuda_gdn(const struct td_cuda_ctx *c, const struct td_gdn_args *a);
void td_cuda_candidates(const struct td_cuda_ctx *c,
                        const struct td_candidates_args *a);

/* Memory that the kernel behind a linear() will read: from + step * slot[0]. */
struct td_cuda_ahead {
    const int32_t *slot;
    struct {
        const void *from;
        int64_t step, bytes;
    } range[5];
};

/* linear(), which brings that memory closer where there is one row. */
void td_cuda_linear_ahead(const struct td_cuda_ctx *c, const struct td_linear_args *a,
                          const struct td_cuda_ahead *ahead);

/* linear() of exact products of few rows, their norm before; false: not of these. */
bool td_cuda_gates(const struct td_cuda_ctx *c, const struct td_linear_args *a);

/* experts() of few rows; false: not of these. */
bool td_cuda_few(const struct td_cuda_ctx *c, const struct td_experts_args *a);

/* conv() and delta() of pieces of prompts alone. */
void td_cuda_conv_pieces(const struct td_cuda_ctx *c, const struct td_conv_args *a);
void td_cuda_delta_pieces(const struct td_cuda_ctx *c, const struct td_delta_args *a);

/* x[n] = the sum of gathered[ranks][n], in the order of the ranks. */
void td_cuda_sum_ranks(cudaStream_t stream, const float *gathered, int32_t ranks,
                       float *x, int64_t n);

/* Bytes of the work areas. */
size_t td_cuda_groups_bytes(const struct td_reserve *r);
size_t td_cuda_mid_bytes(const struct td_reserve *r, int planes);
size_t td_cuda_out_bytes(const struct td_reserve *r, int planes);
size_t td_cuda_parts_bytes(const struct td_reserve *r);
size_t td_cuda_chunks_bytes(const struct td_reserve *r);
size_t td_cuda_planes_of_chunks(const struct td_reserve *r);
size_t td_cuda_counts_bytes(const struct td_reserve *r);
size_t td_cuda_candidates_bytes(const struct td_reserve *r);
size_t td_cuda_exact_bytes(const struct td_reserve *r);

/* Shared memory that a block of delta() needs, without tensor cores. */
size_t td_cuda_delta_bytes(int32_t dk);

/* The part of delta() that is for prompts, on tensor cores; false when head sizes,
 * numerics or the GPU's shared memory do not allow it. */
bool td_cuda_chunks_fit(const struct td_cuda_ctx *c, int32_t dk, int32_t dv);
bool td_cuda_chunks(const struct td_cuda_ctx *c, const struct td_delta_args *a);

/* Whether kernels of warpgroup.cuh are there for this GPU. */
bool td_cuda_has_warpgroups(int32_t shared_max);

/* Lets kernels use all shared memory that a block may have; a failure is the first
 * launch's. */
void td_cuda_prepare_gates(const struct td_cuda_ctx *c);
void td_cuda_prepare_linear(const struct td_cuda_ctx *c);
void td_cuda_prepare_exact(const struct td_cuda_ctx *c);
void td_cuda_prepare_experts(const struct td_cuda_ctx *c);
void td_cuda_prepare_few(const struct td_cuda_ctx *c);
void td_cuda_prepare_delta(const struct td_cuda_ctx *c);
void td_cuda_prepare_chunks(const struct td_cuda_ctx *c);
void td_cuda_prepare_attention(const struct td_cuda_ctx *c);

/* attention() on tensor cores; false when head size, numerics or the GPU's shared memory
 * do not allow it. */
bool td_cuda_attend(const struct td_cuda_ctx *c, const struct td_attention_args *a);

#ifdef __cplusplus
}
#endif

#endif

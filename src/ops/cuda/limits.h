/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this GPU can do at best; see ops/limits.h. Private to ops/cuda.
 */
#ifndef TD_OPS_CUDA_LIMITS_H
#define TD_OPS_CUDA_LIMITS_H

#include "ops/cuda/launch.h"
#include "ops/limits.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Measures in memory that is free now, and frees it again; a number that cannot be
 * measured stays 0, and no error stays behind. Waits for the context's stream. */
void td_cuda_limits(const struct td_cuda_ctx *c, bool products, struct td_limits *out);

/* limits.cu: fills `bytes` with numbers that products take as e4m3, or as bf16. */
void td_cuda_limits_fill(cudaStream_t stream, void *to, size_t bytes, bool f8);

/* Reads all of it once. */
void td_cuda_limits_read(const struct td_cuda_ctx *c, const void *from, size_t bytes,
                         float *sink);

/* Products on all tensor cores, from operands in shared memory. Returns the number of
 * operations; `sink` has room for td_cuda_limits_sinks() results. */
double td_cuda_limits_multiply(const struct td_cuda_ctx *c, bool f8, float *sink);
size_t td_cuda_limits_sinks(const struct td_cuda_ctx *c);

#ifdef __cplusplus
}
#endif

#endif

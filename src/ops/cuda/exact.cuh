/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact terms of linear() over many rows: see exact.cu.
 */
#ifndef TD_OPS_CUDA_EXACT_CUH
#define TD_OPS_CUDA_EXACT_CUH

#include "ops/cuda/device.cuh"

/* Makes those exact terms of a linear() that it can; a bit for each that is done. */
uint32_t td_exact_rows(const struct td_cuda_ctx *c, const struct td_linear_args *a);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs of products as planes of bf16 numbers: x = x0 + x1 + x2, each plane the rounded
 * rest of those before it. Rows are padded with zeros to whole blocks.
 */
#ifndef TD_OPS_CUDA_PLANES_CUH
#define TD_OPS_CUDA_PLANES_CUH

#include "ops/cuda/device.cuh"

/* Writes x as n planes, `plane` elements apart. */
TD_DEVICE void td_planes_store(float x, int n, uint16_t *to, int64_t plane)
{
    for (int p = 0; p < n; p++) {
        uint16_t b = td_to_bf16(x);
        to[p * plane] = b;
        x -= td_from_bf16(b);
    }
}

static __global__ void planes_row(const float *x, int64_t stride, int64_t k, int n,
                                  uint16_t *to, int64_t plane)
{
    int64_t pitch = td_cuda_pitch(k), row = blockIdx.x;
    int64_t i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (i < pitch)
        td_planes_store(i < k ? x[row * stride + i] : 0.0f, n, to + row * pitch + i,
                        plane);
}

/* to[n][rows][pitch of k] from x[rows][stride]. */
static inline void td_planes_make(const struct td_cuda_ctx *c, const float *x,
                                  int64_t stride, int32_t rows, int64_t k, int n,
                                  uint16_t *to)
{
    int64_t pitch = td_cuda_pitch(k);
    dim3 grid((unsigned)rows, (unsigned)((pitch + 511) / 512));
    planes_row<<<grid, 512, 0, c->stream>>>(x, stride, k, n, to, rows * pitch);
}

#endif

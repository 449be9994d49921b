/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last step of a sum over ranks: terms in the order of the ranks.
 */
#include "ops/cuda/device.cuh"

enum { SUM_THREADS = 256 };

static __global__ void __launch_bounds__(SUM_THREADS)
    sum_ranks(const float *gathered, int32_t ranks, float *x, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * SUM_THREADS + threadIdx.x;
    if (i >= n)
        return;
    float sum = gathered[i];
    for (int32_t r = 1; r < ranks; r++)
        sum += gathered[r * n + i];
    x[i] = sum;
}

extern "C" void td_cuda_sum_ranks(cudaStream_t stream, const float *gathered,
                                  int32_t ranks, float *x, int64_t n)
{
    sum_ranks<<<(unsigned)((n + SUM_THREADS - 1) / SUM_THREADS), SUM_THREADS, 0,
                stream>>>(gathered, ranks, x, n);
}

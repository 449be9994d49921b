/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of weights onto the GPU: host memory in areas, pinned while a load runs, each
 * with a stream of its own, so that one area is copied while others are read into.
 * Private to ops/cuda.
 */
#ifndef TD_OPS_CUDA_STAGE_H
#define TD_OPS_CUDA_STAGE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

enum { TD_CUDA_MAX_AREAS = 64 };

/* Zeroed is closed. */
struct td_cuda_stage {
    char *memory;
    size_t bytes; /* of an area */
    int n;
    cudaStream_t stream[TD_CUDA_MAX_AREAS];
};

/* Pins n areas of `bytes` at memory. False when that is not possible here; then nothing
 * is pinned and weights are copied as they come. */
bool td_cuda_stage_open(struct td_cuda_stage *s, void *memory, int n, size_t bytes);

/* The stream for copies from p; NULL when it lies in no area. */
cudaStream_t td_cuda_stage_of(const struct td_cuda_stage *s, const void *p);

/* Waits for the copies from an area. */
cudaError_t td_cuda_stage_wait(const struct td_cuda_stage *s, int area);

/* Waits for all copies and unpins. */
cudaError_t td_cuda_stage_close(struct td_cuda_stage *s);

#endif

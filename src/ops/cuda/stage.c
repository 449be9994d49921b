/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned staging areas. See stage.h.
 *
 * The loader's own memory is registered instead of memory of the driver's: it lies in
 * huge pages, and files can be read into it directly.
 */
#include "ops/cuda/stage.h"

bool td_cuda_stage_open(struct td_cuda_stage *s, void *memory, int n, size_t bytes)
{
    if (s->memory || n > TD_CUDA_MAX_AREAS)
        return false;
    if (cudaHostRegister(memory, (size_t)n * bytes, cudaHostRegisterPortable) !=
        cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    *s = (struct td_cuda_stage){.memory = memory, .bytes = bytes};
    while (s->n < n && cudaStreamCreateWithFlags(&s->stream[s->n],
                                                 cudaStreamNonBlocking) == cudaSuccess)
        s->n++;
    if (s->n == n)
        return true;
    (void)cudaGetLastError();
    (void)td_cuda_stage_close(s);
    return false;
}

cudaStream_t td_cuda_stage_of(const struct td_cuda_stage *s, const void *p)
{
    const char *at = p;
    if (!s->memory || at < s->memory || at >= s->memory + (size_t)s->n * s->bytes)
        return NULL;
    return s->stream[(size_t)(at - s->memory) / s->bytes];
}

cudaError_t td_cuda_stage_wait(const struct td_cuda_stage *s, int area)
{
    return cudaStreamSynchronize(s->stream[area]);
}

cudaError_t td_cuda_stage_close(struct td_cuda_stage *s)
{
    cudaError_t first = cudaSuccess;
    for (int i = 0; i < s->n; i++) {
        cudaError_t e = cudaStreamSynchronize(s->stream[i]);
        first = first == cudaSuccess ? e : first;
        (void)cudaStreamDestroy(s->stream[i]);
    }
    if (s->memory)
        (void)cudaHostUnregister(s->memory);
    *s = (struct td_cuda_stage){0};
    return first;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over the GPUs of several ranks: directly, through NCCL, or by way of pinned host
 * memory and what the program has for hosts. Private to ops/cuda.
 *
 * Either way the terms are added in the order of the ranks, in f32, so that all ranks hold
 * equal bits, whatever else is summed up in the same call.
 */
#ifndef TD_OPS_CUDA_JOIN_H
#define TD_OPS_CUDA_JOIN_H

#include "base/status.h"
#include "ops/cuda/launch.h"

#include <stdbool.h>

/* Zeroed is a lone rank. */
struct td_cuda_join {
    struct td_join how;
    void *nccl;      /* ncclComm_t, NULL: through the host */
    float *gathered; /* device [ranks][piece], of reserve() */
    size_t piece;    /* elements that are summed up at a time */
    float *host;     /* pinned [host_n] */
    size_t host_n;
    bool pending;            /* other ranks may be waited for */
    struct td_error failure; /* the first, code TD_OK: none */
};

/* Whether NCCL can be loaded. */
bool td_cuda_join_can(void);

/* A new id for how.id. */
enum td_status td_cuda_join_id(unsigned char id[TD_JOIN_ID], struct td_error *err);

/* Meets the other ranks. TD_E_TIMEOUT, TD_E_DEVICE, TD_E_NOMEM. */
enum td_status td_cuda_join_open(struct td_cuda_join *j, const struct td_join *how,
                                 int device, struct td_error *err);
void td_cuda_join_close(struct td_cuda_join *j);

/* Elements of each rank's part of `gathered` for these shapes, 0: it is not needed. */
size_t td_cuda_join_piece(const struct td_cuda_join *j, const struct td_reserve *r);

/* x[n] on the device becomes the sum over all ranks, in the order of the stream; failures
 * go to j->failure. */
void td_cuda_join_sum(struct td_cuda_join *j, cudaStream_t stream, float *x, size_t n);

/* Waits for the stream, no longer than the deadline where other ranks take part; a
 * timeout goes to j->failure. */
cudaError_t td_cuda_join_wait(struct td_cuda_join *j, cudaStream_t stream);

#endif

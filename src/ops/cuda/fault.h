/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a failure of the CUDA runtime means: its cause and what to do about it. Private to
 * ops/cuda.
 */
#ifndef TD_OPS_CUDA_FAULT_H
#define TD_OPS_CUDA_FAULT_H

#include "base/status.h"
#include "ops/cuda/nvml.h"

#include <cuda_runtime_api.h>

/* Fills err for an error that came while the GPU `device`, called `name`, was `doing`
 * something, and returns its code: TD_E_NO_DEVICE, TD_E_DRIVER, TD_E_DEVICE, TD_E_NOMEM,
 * or TD_E_GPU_LOST for a GPU that worked and does no longer. */
enum td_status td_cuda_fault(cudaError_t e, const struct td_nvml_watch *watch,
                             int device, const char *name, const char *doing,
                             struct td_error *err);

/* The GPU has no `bytes` for `label`; `own` bytes of it are this program's. Names who
 * holds the rest: TD_E_MEMORY_TAKEN, or TD_E_NOMEM when nobody is known. */
enum td_status td_cuda_no_memory(const struct td_nvml_watch *watch, const char *name,
                                 size_t bytes, size_t own, const char *label,
                                 struct td_error *err);

#endif

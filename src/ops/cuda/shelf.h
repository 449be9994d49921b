/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libtandem-cuda.so offers to the program that loads it.
 */
#ifndef TD_OPS_CUDA_SHELF_H
#define TD_OPS_CUDA_SHELF_H

#include "base/status.h"
#include "ops/cuda/launch.h"

/* TD_OPS_VERSION of the table that the library was built with. */
TD_EXPORT int td_cuda_shelf_version(void);

/* See td_cuda_open(). `phase` tells the program's phase, for error records. */
TD_EXPORT enum td_status td_cuda_shelf_open(const struct td_dev_params *params,
                                            enum td_phase (*phase)(void),
                                            struct td_dev **out, struct td_error *err);

#endif

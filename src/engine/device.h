/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device computes.
 */
#ifndef TD_ENGINE_DEVICE_H
#define TD_ENGINE_DEVICE_H

#include "engine/engine.h"

/* The first GPU of a host that ranks take: N of "cuda:N", 0 of "cuda" and "auto"; -1 of
 * what is no name of a GPU. */
int td_engine_gpu(const char *device);

/* Opens the device that the parameters ask for; with several ranks all take the same
 * kind, and GPUs are joined. Errors: TD_E_USAGE, those of td_cuda_open() and
 * td_cpu_open(), and of td_comm and join(). */
enum td_status td_engine_device_open(const struct td_engine_params *p,
                                     struct td_dev **out, struct td_error *err);

#endif

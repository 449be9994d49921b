/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this processor can do at best, measured: the yardstick for kernels. Each number
 * is the best of several methods and repetitions, so that it bounds what any kernel can
 * reach on the same cores at the same time.
 */
#ifndef TD_OPS_LIMITS_H
#define TD_OPS_LIMITS_H

#include "base/status.h"

struct td_limits {
    double read; /* bytes/s from memory, all threads together */
    double f32;  /* f32 operations/s (a multiplication and an addition are two) */
    double bf16; /* the same of bf16 products into f32, at least f32's */
};

/* Measures with `threads` threads (0: one for each core that this process may use),
 * reading `bytes` of memory (0: 512 MiB), for about half a second. TD_E_NOMEM. */
enum td_status td_limits_measure(int threads, size_t bytes, struct td_limits *out,
                                 struct td_error *err);

#endif

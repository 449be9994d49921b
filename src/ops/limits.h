/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device can do at best, measured: the yardstick for kernels. Each number is the
 * best of several methods and repetitions, so that it bounds what any kernel can reach on
 * the same device at the same time.
 */
#ifndef TD_OPS_LIMITS_H
#define TD_OPS_LIMITS_H

#include "ops/ops.h"

/* Bytes and operations a second (a multiplication and an addition are two); 0: was not
 * measured. */
struct td_limits {
    double read;     /* from memory: all threads of a processor together; of a GPU the
                        better of reading and of copying, which counts twice */
    double f32;      /* products */
    double bf16;     /* of bf16 numbers into f32; of a processor at least f32's */
    double f8;       /* of e4m3 numbers into f32 */
    double copy;     /* a GPU copying within its memory, bytes read and written */
    double upload;   /* from pinned host memory onto a GPU */
    const char *how; /* static: how products were measured on a GPU, or NULL */
};

/* Measures this host's processor with `threads` threads (0: one for each core that this
 * process may use), reading `bytes` of memory (0: 512 MiB), for about half a second.
 * TD_E_NOMEM. */
enum td_status td_limits_measure(int threads, size_t bytes, struct td_limits *out,
                                 struct td_error *err);

/* The limits of an opened device, with or without those of products where they take long.
 * A GPU gives what it can measure in memory that is free. Errors: those of
 * td_limits_measure(). */
enum td_status td_limits_of(struct td_dev *dev, bool products, struct td_limits *out,
                            struct td_error *err);

#endif

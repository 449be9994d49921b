/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting what the operations of a benchmark must move and compute, and how long each
 * takes. Private to `tandem bench MODEL`.
 */
#ifndef TD_CMD_BENCH_COUNT_H
#define TD_CMD_BENCH_COUNT_H

#include "ops/ops.h"

enum td_bench_op {
    TD_BENCH_EMBED,
    TD_BENCH_NORM,
    TD_BENCH_LINEAR,
    TD_BENCH_QKV,
    TD_BENCH_ATTENTION,
    TD_BENCH_CONV,
    TD_BENCH_DELTA,
    TD_BENCH_GATED_NORM,
    TD_BENCH_SWIGLU,
    TD_BENCH_ROUTE,
    TD_BENCH_EXPERTS,
    TD_BENCH_SUM, /* all-reduces between ranks, waiting included; counted by the caller */
    TD_BENCH_OPS
};

extern const char *const td_bench_op_names[TD_BENCH_OPS];

/* Bytes that have to be moved: weights of the experts that were chosen, keys, values and
 * states; and operations of products. */
struct td_bench_count {
    double seconds, bytes, work;
};

/* Puts counting operations into dev's table, until td_bench_count_end(). One device at a
 * time. `rows` is the most of a forward, top_k its choices of experts. On a device whose
 * memory is not the host's all calls are made, none replayed, and each is waited for.
 * TD_E_NOMEM. */
enum td_status td_bench_count_begin(struct td_dev *dev, int32_t rows, int32_t top_k,
                                    struct td_error *err);
void td_bench_count_end(struct td_dev *dev);

/* Counts from 0, the first `real` rows of each forward: those behind are padding. */
void td_bench_count_anew(int32_t real);

/* A run ends here, the next one begins; of its time `summing` seconds were all-reduces.
 * At most TD_BENCH_RUNS since td_bench_count_anew(). */
enum { TD_BENCH_RUNS = 23 };
void td_bench_count_run(double summing);

/* What one run takes: the median of the runs' seconds, the mean of what they move and
 * compute, which depends on the experts that were chosen. */
void td_bench_count_of_run(struct td_bench_count out[TD_BENCH_OPS]);

/* Of n > 0 numbers, which are put in order. */
double td_bench_median(double *x, int n);

#endif

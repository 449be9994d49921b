/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a planned model can be: how long its load takes and what a step of one
 * sequence reads, against rates measured on each machine a moment ago.
 */
#ifndef TD_PLAN_SPEED_H
#define TD_PLAN_SPEED_H

#include "model/config.h"
#include "model/names.h"
#include "ops/ops.h"

#include <stdint.h>

/* Bytes a second; 0: could not be measured. */
struct td_plan_rates {
    double memory; /* of the device: all threads reading, or its GPU's */
    double share;  /* of it, what steps of one sequence reach; see docs/SPEED.md */
    double disk;   /* the model's files, past the page cache, and on to the device
                             where that is slower */
    const char *disk_how; /* static: how that was measured, or why it was not */
};

/* Measures for well under a second; `model` is its folder, a NULL `dev` the processor. Not
 * being able to is no failure. */
void td_plan_rates_measure(const char *model, struct td_dev *dev,
                           struct td_plan_rates *out);

/* Bytes that a rank moves for one token of one sequence behind `context` others: chosen
 * experts, mixers, head; keys and values of `kv_token` bytes a token; states, which are
 * read and written. */
int64_t td_plan_token_bytes(const struct td_config *config,
                            const struct td_slice *slice, int64_t kv_token,
                            int64_t state, int32_t context);

/* Shares of the measured rate of reading memory; of a GPU, 0.44 (35B-A3B) and 0.54
 * (122B-A10B) were measured. */
#define TD_PLAN_SHARE_HOST 0.85
#define TD_PLAN_SHARE_GPU  0.45

#endif

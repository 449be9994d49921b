/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and histograms, and their form for Prometheus: the names that dashboards made
 * for vLLM read, and tandem's own. The caller locks.
 */
#ifndef TD_API_METRICS_H
#define TD_API_METRICS_H

#include "base/buf.h"
#include "engine/wire.h"

#include <stdint.h>

enum { TD_HISTOGRAM_MAX = 24 };

struct td_histogram {
    const double *bounds; /* rising */
    int n;
    uint64_t counts[TD_HISTOGRAM_MAX + 1]; /* the last: beyond all bounds */
    double sum;
};

void td_histogram_add(struct td_histogram *h, double value);

enum td_outcome { /* of answers */
                  TD_OUTCOME_STOP,
                  TD_OUTCOME_LENGTH,
                  TD_OUTCOME_ABORT,
                  TD_OUTCOME_ERROR,
                  TD_OUTCOME_COUNT
};

struct td_metrics {
    uint64_t prompt_tokens, generated_tokens, cached_tokens;
    uint64_t outcomes[TD_OUTCOME_COUNT];
    uint64_t refused, engine_losses, resumed;
    struct td_histogram first_token, between_tokens, whole, queued;
    struct td_histogram prompt_sizes, answer_sizes;
    struct td_wire_stats stats; /* of the present engine */
    struct td_wire_stats past;  /* totals of engines before it */
    int waiting;                /* in the front's own queue */
    struct td_wire_hello hello;
};

void td_metrics_init(struct td_metrics *m);

/* The engine has ended: its totals become past. */
void td_metrics_engine_lost(struct td_metrics *m);

/* Appends the text that Prometheus reads. */
void td_metrics_text(const struct td_metrics *m, const char *model, struct td_buf *b);

#endif

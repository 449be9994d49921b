/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tandem bench MODEL` measured, and the forms in which it is shown. Private to it.
 */
#ifndef TD_CMD_BENCH_POINTS_H
#define TD_CMD_BENCH_POINTS_H

#include "cmd/bench.h"
#include "cmd/bench_count.h"
#include "engine/engine.h"
#include "ops/limits.h"

#include <stdio.h>

/* A prompt, or steps of generated tokens. */
struct td_bench_point {
    int32_t batch, context; /* sequences; tokens of the prompt, or before the step */
    bool decode;
    double seconds, tokens; /* of a prompt or a step, the median */
    double ahead;           /* seconds of a step that is asked for before
                                               the one before it has ended; 0: not known */
    struct td_bench_count op[TD_BENCH_OPS]; /* of one; seconds 0: not known */
    struct td_bench_count sum;
    struct td_limits limits; /* measured before and after */
};

struct td_bench_points {
    struct td_engine_info info;
    bool host, f32; /* a processor; products in f32 */
    int recorded;   /* steps that a GPU knows, and what they took */
    size_t recorded_bytes;
    int n;
    struct td_bench_point point[TD_BENCH_LIST * (TD_BENCH_LIST + 1)];
};

/* On standard output, as a table or as JSON. */
void td_bench_print_table(const struct td_bench_points *b);
void td_bench_print_json(const struct td_bench_points *b);

/* Bars of the shares into a file, as SVG. It is opened before anything is measured, so
 * that nothing is measured in vain, and what it holds is replaced by the plot at the end.
 * TD_E_IO, TD_E_NOMEM. */
enum td_status td_bench_plot_open(const char *path, FILE **out, struct td_error *err);
enum td_status td_bench_plot(const struct td_bench_points *b, const char *path, FILE *f,
                             struct td_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of `tandem bench`.
 */
#ifndef TD_CMD_BENCH_H
#define TD_CMD_BENCH_H

#include "base/conf.h"
#include "base/status.h"
#include "engine/engine.h"

/* Numbers with commas, of an option. */
enum { TD_BENCH_LIST = 16 };
struct td_bench_list {
    int32_t n, v[TD_BENCH_LIST];
    int32_t most; /* the largest */
};

/* Reads such an option's text; every number is from 1 to `limit`. TD_E_USAGE. */
enum td_status td_bench_list_read(const struct td_conf *conf, size_t option, int limit,
                                  struct td_bench_list *out, struct td_error *err);

/* Measures the server at --url and prints what it found. */
enum td_status td_bench_url(const struct td_conf *conf, struct td_error *err);

/* Measures the model in conf's first argument on this host, and prints it. */
enum td_status td_bench_model(const struct td_conf *conf, struct td_error *err);

/* The engine that td_bench_model() opens. TD_E_USAGE for lists that cannot be
 * measured. */
enum td_status td_bench_engine(const struct td_conf *conf, struct td_engine_params *out,
                               struct td_error *err);

#endif

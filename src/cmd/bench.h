/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of `tandem bench`.
 */
#ifndef TD_CMD_BENCH_H
#define TD_CMD_BENCH_H

#include "base/conf.h"
#include "base/status.h"
#include "engine/engine.h"

/* Measures the server at --url and prints what it found. */
enum td_status td_bench_url(const struct td_conf *conf, struct td_error *err);

/* Measures the model in conf's first argument on this host, and prints it. */
enum td_status td_bench_model(const struct td_conf *conf, struct td_error *err);

/* The engine that td_bench_model() opens. TD_E_USAGE for lists that cannot be
 * measured. */
enum td_status td_bench_engine(const struct td_conf *conf, struct td_engine_params *out,
                               struct td_error *err);

#endif

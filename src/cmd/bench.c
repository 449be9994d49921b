/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem bench: how fast a model is on this host, or a server.
 */
#include "cmd/bench.h"

#include "cmd/cmd.h"
#include "cmd/job.h"
#include "cmd/options.h"

static int run(struct td_conf *conf, struct td_error *err)
{
    if (conf->nargs > 1) {
        td_error_set(err, TD_E_USAGE, "bench takes one model, not \"%.200s\" too",
                     conf->args[1]);
        return TD_EXIT_USAGE;
    }
    if (conf->nargs == 1 && td_cmd_job_wanted(conf)) {
        struct td_engine_params engine;
        if (td_bench_engine(conf, &engine, err) != TD_OK)
            return TD_EXIT_FAILED;
        return td_cmd_job_run(conf, "bench", TD_VERB_BENCH, &engine, err);
    }
    if (conf->nargs == 1)
        return td_bench_model(conf, err) == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
    return td_bench_url(conf, err) == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

const struct td_cmd td_cmd_bench = {
    .name = "bench",
    .verb = TD_VERB_BENCH,
    .usage = "bench [MODEL | --url URL]",
    .summary = "speed of a model on this host, or of any server with OpenAI's API",
    .details =
        "With MODEL: the time of prompts and of decode steps, by operation, and their "
        "share of what\nthis processor or GPU can do at best, measured in the same "
        "run.\n\n"
        "Without: keeps --concurrency requests on their way (a closed loop), each with "
        "a "
        "prompt that\nno cache knows, greedy, streamed. Prints tokens per second, and "
        "p50, p90 and p99 of the time\nto the first token, between tokens and to the "
        "end; and what was not answered, by its reason.",
    .run = run,
};

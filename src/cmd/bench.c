/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem bench: how fast a server is.
 */
#include "cmd/bench.h"

#include "cmd/cmd.h"
#include "cmd/options.h"

static int run(struct td_conf *conf, struct td_error *err)
{
    if (conf->nargs > 0) {
        td_error_set(err, TD_E_USAGE, "bench takes no argument \"%.200s\"",
                     conf->args[0]);
        td_error_why(err, "it measures a server that runs, given with --url");
        return TD_EXIT_USAGE;
    }
    return td_bench_url(conf, err) == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

const struct td_cmd td_cmd_bench = {
    .name = "bench",
    .verb = TD_VERB_BENCH,
    .usage = "bench [--url URL]",
    .summary = "speed of a server: any with OpenAI's API",
    .details =
        "Keeps --concurrency requests on their way (a closed loop), each with a "
        "prompt that no cache\nknows, greedy, streamed. Prints tokens per second, "
        "and p50, p90 and p99 of the time to the\nfirst token, between tokens and "
        "to the end; and what was not answered, by its reason.",
    .run = run,
};

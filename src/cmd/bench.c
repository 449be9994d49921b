/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem bench: how fast a model is on this host, or a server.
 */
#include "cmd/bench.h"

#include "cmd/cmd.h"
#include "cmd/job.h"
#include "cmd/options.h"

#include <stdlib.h>

/* Options that the measurement of a server uses, and of them those that a model's uses
 * too; what else `bench` takes is for a model. */
static const size_t of_servers[] = {
    TD_O_CONFIG,        TD_O_HELP,       TD_O_JSON,       TD_O_EVENT_LOG,
    TD_O_URL,           TD_O_API_KEY,    TD_O_REQUESTS,   TD_O_CONCURRENCY,
    TD_O_PROMPT_TOKENS, TD_O_MAX_TOKENS, TD_O_COMPLETIONS};
enum { OF_BOTH = 4 };

/* Options that ask the same of a model and of a server. */
static const struct {
    size_t model, server;
} alike[] = {{TD_O_BATCH, TD_O_CONCURRENCY},
             {TD_O_PROMPT, TD_O_PROMPT_TOKENS},
             {TD_O_CONTEXT, TD_O_PROMPT_TOKENS}};

static bool is_used(size_t option, bool model)
{
    for (size_t i = 0; i < TD_COUNT(of_servers); i++)
        if (of_servers[i] == option)
            return !model || i < OF_BOTH;
    return model;
}

/* The option to give instead of one that this form does not use, or NULL. */
static const char *instead_of(size_t option, bool model)
{
    for (size_t i = 0; i < TD_COUNT(alike); i++)
        if ((model ? alike[i].server : alike[i].model) == option)
            return td_options[model ? alike[i].model : alike[i].server].name;
    return NULL;
}

/* A flag that would be ignored is a misunderstanding; in a file and in the environment
 * options stand for every verb and form. A rank has been given all of them as flags. */
static enum td_status check_form(const struct td_conf *conf, struct td_error *err)
{
    bool model = conf->nargs == 1;
    if (td_conf_is_set(conf, TD_O_WORLD))
        return TD_OK;
    for (size_t i = 0; i < conf->count; i++) {
        if (!td_conf_is_flag(conf, i) || is_used(i, model))
            continue;
        const char *other = instead_of(i, model);
        td_error_set(err, TD_E_USAGE, "--%s is not for a bench of a %s",
                     td_options[i].name, model ? "model" : "server");
        td_error_why(err, model ? "a MODEL is given, so no server is asked"
                                : "no MODEL is given, so a server is measured");
        td_error_fix(err, "%s%s, or %s MODEL", other ? "give --" : "leave it out",
                     other ? other : "", model ? "leave out the" : "give a");
        return TD_E_USAGE;
    }
    return TD_OK;
}

enum td_status td_bench_list_read(const struct td_conf *conf, size_t option, int limit,
                                  struct td_bench_list *out, struct td_error *err)
{
    const char *text = td_conf_str(conf, option), *p = text;
    *out = (struct td_bench_list){0};
    while (out->n < TD_BENCH_LIST) {
        char *end;
        long v = strtol(p, &end, 10);
        if (*p < '0' || *p > '9' || v < 1 || v > limit || (*end && *end != ','))
            break;
        out->v[out->n++] = (int32_t)v;
        out->most = TD_MAX(out->most, (int32_t)v);
        if (!*end)
            return TD_OK;
        p = end + 1;
    }
    td_error_set(err, TD_E_USAGE, "--%s is \"%.100s\"", td_options[option].name, text);
    td_error_why(err, "expected at most %d numbers from 1 to %d, such as 1,8,32",
                 TD_BENCH_LIST, limit);
    return TD_E_USAGE;
}

static int run(struct td_conf *conf, struct td_error *err)
{
    if (check_form(conf, err) != TD_OK)
        return TD_EXIT_USAGE;
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
    .args = {0, 1, NULL, NULL},
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

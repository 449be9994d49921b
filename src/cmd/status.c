/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem status: what a running server is doing, from its /tandem/status.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/fetch.h"
#include "cmd/options.h"
#include "cmd/term.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const double ANSWER_SECONDS = 5;
static const struct timespec BETWEEN = {.tv_sec = 1};

/* ---- fields; what is missing is 0 or "" ---------------------------------------------- */

static double num(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static double share(const json_t *o, const char *part, const char *whole)
{
    double n = num(o, whole);
    return n > 0 ? 100 * num(o, part) / n : 0;
}

/* ---- lines --------------------------------------------------------------------------- */

static void add_seconds(struct td_buf *b, double s)
{
    if (s < 120)
        td_buf_addf(b, "%.1f s", s);
    else if (s < 7200)
        td_buf_addf(b, "%.0f min", s / 60);
    else
        td_buf_addf(b, "%.1f h", s / 3600);
}

static void add_error(struct td_buf *b, const json_t *e)
{
    td_buf_addf(b, "error    %s\n", str(e, "what"));
    if (*str(e, "why"))
        td_buf_addf(b, "cause    %s\n", str(e, "why"));
    if (*str(e, "fix"))
        td_buf_addf(b, "fix      %s\n", str(e, "fix"));
}

/* When it was ready, and what the phases took until then. */
static void add_times(struct td_buf *b, double seconds, json_t *times)
{
    const char *name, *comma = " (";
    json_t *v;
    td_buf_addf(b, ", after %.1f s", seconds);
    json_object_foreach(times, name, v)
    {
        td_buf_addf(b, "%s%s %.1f", comma, name, json_number_value(v));
        comma = ", ";
    }
    if (json_object_size(times) > 0)
        td_buf_addc(b, ')');
}

static void add_state(struct td_buf *b, const json_t *s)
{
    const char *state = str(s, "state");
    int restarts = (int)num(s, "restarts");
    td_buf_addf(b, "state    %s", state);
    if (strcmp(state, "ready") == 0)
        add_times(b, num(s, "seconds"), json_object_get(s, "times"));
    else if (strcmp(state, "starting") == 0)
        td_buf_addf(b, " for %.1f s: %s", num(s, "seconds"), str(s, "phase"));
    else if (strcmp(state, "lost") == 0)
        td_buf_addf(b, ": the engine ended, next start in %.1f s", num(s, "retry_in"));
    if (restarts > 0)
        td_buf_addf(b, ", %d restart%s", restarts, restarts > 1 ? "s" : "");
    td_buf_addc(b, '\n');
    if (strcmp(state, "starting") == 0 && num(s, "of") > 0) {
        const struct td_num nums[] = {{"bytes", num(s, "bytes")},
                                      {"of", num(s, "of")},
                                      {"rate", num(s, "rate")},
                                      {"left", num(s, "seconds_left")},
                                      {NULL, 0}};
        td_progress_format(nums, b);
        td_buf_addc(b, '\n');
    }
    if (json_is_object(json_object_get(s, "error")))
        add_error(b, json_object_get(s, "error"));
}

/* One line for each of several ranks. */
static void add_ranks(struct td_buf *b, const json_t *s)
{
    const json_t *list = json_object_get(s, "ranks");
    for (size_t i = 0; json_array_size(list) > 1 && i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        td_buf_addf(b, "rank %-3zu %s  %s", i, str(r, "host"), str(r, "phase"));
        if (num(r, "of") > 0)
            td_buf_addf(b, "  %.2f of %.2f GiB", num(r, "bytes") / (double)TD_GIB,
                        num(r, "of") / (double)TD_GIB);
        if (num(r, "rate") > 0)
            td_buf_addf(b, " at %.2f GB/s", num(r, "rate") / 1e9);
        if (num(r, "resident") > 0)
            td_buf_addf(b, "; %.2f GiB resident, %.2f GiB left there",
                        num(r, "resident") / (double)TD_GIB,
                        num(r, "available") / (double)TD_GIB);
        if (num(r, "planned") > 0)
            td_buf_addf(b, "; planned %.2f GiB of %.2f",
                        num(r, "planned") / (double)TD_GIB,
                        num(r, "limit") / (double)TD_GIB);
        if (num(r, "peak") > 0)
            td_buf_addf(b, ", peak %.2f", num(r, "peak") / (double)TD_GIB);
        if (num(r, "silent") > 1)
            td_buf_addf(b, "; silent for %.1f s", num(r, "silent"));
        td_buf_addc(b, '\n');
    }
}

static void add_work(struct td_buf *b, const json_t *o)
{
    const json_t *r = json_object_get(o, "requests"), *t = json_object_get(o, "tokens");
    const json_t *c = json_object_get(o, "cache"), *e = json_object_get(o, "engine");
    td_buf_addf(b,
                "requests %.0f running of %.0f, %.0f waiting of %.0f; %.0f answered, "
                "%.0f refused\n",
                num(r, "running"), num(r, "max_running"), num(r, "waiting"),
                num(r, "max_waiting"), num(r, "answered"), num(r, "refused"));
    td_buf_addf(b,
                "tokens   %.1f/s generated, %.1f/s of prompts; in all %.0f and %.0f "
                "(%.0f from the cache)\n",
                num(t, "generated_per_second"), num(t, "prompt_per_second"),
                num(t, "generated"), num(t, "prompt"), num(t, "cached"));
    td_buf_addf(b,
                "cache    %.0f %% of %.0f blocks of %.0f tokens, %.0f of %.0f slots; "
                "%.0f %% prefix hits, %.0f preemptions\n",
                share(c, "blocks_used", "blocks"), num(c, "blocks"),
                num(c, "block_tokens"), num(c, "slots_used"), num(c, "slots"),
                share(c, "prefix_hits", "prefix_queries"), num(c, "preemptions"));
    td_buf_addf(b,
                "engine   %.0f rank%s, %s, %.2f GiB, context %.0f tokens; lost %.0f "
                "times\n",
                num(e, "ranks"), num(e, "ranks") > 1 ? "s" : "", str(e, "level"),
                num(e, "memory") / (double)TD_GIB, num(e, "max_model_len"),
                num(e, "losses"));
    if (num(e, "ranks") > 1)
        td_buf_addf(b,
                    "ranks    %.0f %% of the steps' time adding up over ranks, %.0f %% "
                    "waiting for each other\n",
                    share(e, "sum_seconds", "step_seconds"),
                    share(e, "wait_seconds", "step_seconds"));
}

static void add_lines(struct td_buf *b, const char *url, const json_t *o)
{
    td_buf_addf(b, "server   %s   tandem %s, up ", url, str(o, "version"));
    add_seconds(b, num(o, "uptime"));
    td_buf_addf(b, "\nmodel    %s\n", str(o, "model"));
    add_state(b, json_object_get(o, "startup"));
    add_ranks(b, json_object_get(o, "startup"));
    if (num(json_object_get(o, "engine"), "max_model_len") > 0)
        add_work(b, o);
}

/* ---- one look ------------------------------------------------------------------------ */

static enum td_status get(const char *url, struct td_buf *body, json_t **out,
                          struct td_error *err)
{
    long http = 0;
    enum td_status s =
        td_fetch(url, "/tandem/status", NULL, ANSWER_SECONDS, body, &http, err);
    if (s != TD_OK)
        return s;
    if (http == 200 && td_json_parse(body->p, body->len, url, out, NULL) == TD_OK) {
        if (json_is_object(json_object_get(*out, "startup")))
            return TD_OK;
        json_decref(*out);
        *out = NULL;
    }
    td_error_set(err, TD_E_UNSUPPORTED, "%s is not a tandem server", url);
    td_error_why(err, "GET /tandem/status answers with status %ld%s", http,
                 http == 200 ? " and something else" : "");
    td_error_fix(err, "give the address that `tandem serve` prints with --url");
    return TD_E_UNSUPPORTED;
}

static int on_dump(const char *p, size_t n, void *self)
{
    return td_buf_add(self, p, n) == TD_OK ? 0 : -1;
}

static enum td_status look(const struct td_conf *conf, const char *url,
                           struct td_buf *out, struct td_error *err)
{
    struct td_buf body;
    json_t *o = NULL;
    td_buf_init(&body, TD_MIB);
    enum td_status s = get(url, &body, &o, err);
    if (s == TD_OK && td_conf_bool(conf, TD_O_JSON)) {
        (void)json_dump_callback(o, on_dump, out, JSON_COMPACT);
        s = td_buf_addc(out, '\n');
    } else if (s == TD_OK) {
        add_lines(out, url, o);
        s = out->status;
    }
    if (s != TD_OK)
        td_error_set(err, s, "no memory for the status");
    json_decref(o);
    td_buf_release(&body);
    return s;
}

/* Goes on when the server is gone: it may come back. Ends when nobody reads. */
static void watch(const struct td_conf *conf, const char *url)
{
    bool screen = td_term_is(stdout) && !td_conf_bool(conf, TD_O_JSON);
    struct td_buf out;
    struct td_error err;
    td_buf_init(&out, 2 * TD_MIB);
    do {
        td_error_init(&err);
        td_buf_clear(&out);
        if (screen)
            (void)fputs("\033[H\033[J", stdout);
        if (look(conf, url, &out, &err) == TD_OK)
            td_term_text(stdout, out.p, out.len, td_term_is(stdout));
        else
            td_term_error(screen ? stdout : stderr, &err);
        if (!screen && !td_conf_bool(conf, TD_O_JSON))
            (void)fputc('\n', stdout);
    } while (fflush(stdout) == 0 && nanosleep(&BETWEEN, NULL) == 0);
    td_buf_release(&out);
}

static int run(struct td_conf *conf, struct td_error *err)
{
    char url[TD_MAX_NAME];
    struct td_buf out;
    if (td_url_clean(td_conf_str(conf, TD_O_URL), url, sizeof(url), err) != TD_OK)
        return TD_EXIT_USAGE;
    td_buf_init(&out, 2 * TD_MIB);
    enum td_status s = look(conf, url, &out, err);
    if (s == TD_OK && td_conf_bool(conf, TD_O_WATCH))
        watch(conf, url);
    else if (s == TD_OK)
        td_term_text(stdout, out.p, out.len, td_term_is(stdout));
    td_buf_release(&out);
    return s == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

const struct td_cmd td_cmd_status = {
    .name = "status",
    .verb = TD_VERB_STATUS,
    .usage = "status [--url URL] [--watch]",
    .args = {0, 0, NULL, "give the address with --url"},
    .summary = "what a running server is doing now",
    .details = "Start-up state, requests, tokens per second, cache and engine of a "
               "server, as its page\nshows them. With --watch once a second until "
               "Ctrl-C; with --json one object a line.",
    .run = run,
};

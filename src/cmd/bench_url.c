/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem bench --url URL: a closed loop of fresh requests against a server.
 *
 *     probe      what the server takes (usage, ignore_eos) and how many words make the
 *                prompt that is asked for; they also warm it up
 *     levels     for each concurrency: always that many requests on their way, each with
 *                a prompt that no cache knows, until all are answered or refused
 *     report     percentiles (nearest rank) of what the answered ones took
 */
#include "cmd/bench.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cmd/bench_call.h"
#include "cmd/fetch.h"
#include "cmd/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONCURRENCY = 4096, MAX_KINDS = 8, KIND_BYTES = 320 };

struct kind {
    char text[KIND_BYTES];
    int count;
};

struct level {
    int concurrency, requests, answered;
    double seconds;
    int64_t tokens, prompt;
    bool prompt_known;
    struct td_samples first, gaps, whole; /* seconds */
    struct kind kinds[MAX_KINDS];
    int n_kinds;
};

struct bench {
    struct td_bench_shape shape;
    char url[TD_MAX_NAME], model[TD_MAX_NAME];
    struct td_bench_list levels;
    int requests, prompt_tokens, max_tokens, words;
    unsigned serial;
    bool json;
};

/* ---- options ------------------------------------------------------------------------- */

static enum td_status read_options(struct bench *b, const struct td_conf *conf,
                                   struct td_error *err)
{
    unsigned now = (unsigned)td_clock_ns();
    b->requests = (int)td_conf_int(conf, TD_O_REQUESTS);
    b->prompt_tokens = (int)td_conf_int(conf, TD_O_PROMPT_TOKENS);
    b->max_tokens = td_conf_is_set(conf, TD_O_MAX_TOKENS)
                        ? (int)td_conf_int(conf, TD_O_MAX_TOKENS)
                        : 128;
    b->json = td_conf_bool(conf, TD_O_JSON);
    b->serial = now;
    b->shape = (struct td_bench_shape){
        .url = b->url,
        .model = b->model,
        .key = td_conf_str(conf, TD_O_API_KEY),
        .completions = td_conf_bool(conf, TD_O_COMPLETIONS),
    };
    enum td_status s =
        td_url_clean(td_conf_str(conf, TD_O_URL), b->url, sizeof(b->url), err);
    if (s != TD_OK)
        return s;
    return td_bench_list_read(conf, TD_O_CONCURRENCY, MAX_CONCURRENCY, &b->levels, err);
}

/* ---- the server ---------------------------------------------------------------------- */

static enum td_status find_model(struct bench *b, struct td_error *err)
{
    struct td_buf body;
    json_t *o = NULL;
    long http = 0;
    td_buf_init(&body, 16 * TD_MIB);
    enum td_status s =
        td_fetch(b->url, "/v1/models", b->shape.key, 10, &body, &http, err);
    if (s == TD_OK && http == 503) {
        s = td_error_set(err, TD_E_PEER, "the server at %s is not ready", b->url);
        td_error_why(err, "it answers with status 503: it starts, stops, or lost its "
                          "engine");
        td_error_fix(err, "wait until it is; `tandem status` shows how far it is");
    } else if (s == TD_OK && http == 401) {
        s = td_error_set(err, TD_E_USAGE, "%s wants an API key", b->url);
        td_error_why(err, b->shape.key ? "the one that was sent is not right"
                                       : "none was given");
        td_error_fix(err, "set TANDEM_API_KEY");
    } else if (s == TD_OK) {
        const char *id = NULL;
        if (http == 200 && td_json_parse(body.p, body.len, b->url, &o, NULL) == TD_OK)
            id = json_string_value(
                json_object_get(json_array_get(json_object_get(o, "data"), 0), "id"));
        (void)snprintf(b->model, sizeof(b->model), "%s", id ? id : "default");
        json_decref(o);
    }
    td_buf_release(&body);
    return s;
}

/* One request outside of the levels. False: kind says why it was not answered. */
static bool probe(struct bench *b, struct td_bench_call *c, int words, int max_tokens,
                  char *kind)
{
    return td_bench_call_set(c, &b->shape, b->serial++, words, max_tokens, NULL,
                             NULL) == TD_OK &&
           td_bench_call_judge(c, curl_easy_perform(c->easy), kind, KIND_BYTES);
}

/* Finds out which fields the server takes: the most that is not refused. */
static enum td_status find_fields(struct bench *b, struct td_bench_call *c,
                                  struct td_error *err)
{
    static const struct {
        bool usage, ignore_eos;
    } ways[] = {{true, true}, {true, false}, {false, false}};
    char kind[KIND_BYTES], first[KIND_BYTES] = "";
    for (size_t i = 0; i < TD_COUNT(ways); i++) {
        b->shape.usage = ways[i].usage;
        b->shape.ignore_eos = ways[i].ignore_eos;
        if (probe(b, c, 8, 2, kind))
            return TD_OK;
        if (!*first)
            (void)snprintf(first, sizeof(first), "%s", kind);
    }
    td_error_set(err, TD_E_PEER, "%s does not answer a request", b->url);
    td_error_why(err, "%s", first);
    td_error_fix(err, "try one with curl, and look at the server's log");
    return TD_E_PEER;
}

/* How many words make the prompt: two lengths give the line between them. */
static void find_words(struct bench *b, struct td_bench_call *c)
{
    char kind[KIND_BYTES];
    int few = 8, many = TD_MAX(16, b->prompt_tokens / 2), n[2] = {-1, -1};
    b->words = TD_MAX(b->prompt_tokens - 16, 1);
    if (probe(b, c, few, 1, kind))
        n[0] = c->stream.prompt;
    if (probe(b, c, many, 1, kind))
        n[1] = c->stream.prompt;
    if (n[0] < 0 || n[1] <= n[0])
        return;
    double each = (double)(n[1] - n[0]) / (many - few);
    double words = few + (b->prompt_tokens - n[0]) / each;
    b->words = words < 1 ? 1 : (int)(words + 0.5);
}

/* ---- a level ------------------------------------------------------------------------- */

/* Are two texts the same but for their numbers? */
static bool is_same_kind(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

static void add_kind(struct level *l, const char *text)
{
    int i = 0;
    while (i < l->n_kinds && !is_same_kind(l->kinds[i].text, text))
        i++;
    if (i == l->n_kinds && i < MAX_KINDS) {
        (void)snprintf(l->kinds[i].text, sizeof(l->kinds[i].text), "%s", text);
        l->n_kinds++;
    }
    l->kinds[TD_MIN(i, MAX_KINDS - 1)].count++;
}

static bool take(struct level *l, struct td_bench_call *c, CURLcode code)
{
    char kind[KIND_BYTES];
    double end = td_clock_now();
    if (!td_bench_call_judge(c, code, kind, sizeof(kind))) {
        add_kind(l, kind);
        return true;
    }
    l->answered++;
    l->tokens += td_bench_call_tokens(c);
    l->prompt += TD_MAX(c->stream.prompt, 0);
    l->prompt_known = l->prompt_known || c->stream.prompt >= 0;
    return (c->stream.pieces == 0 ||
            td_samples_add(&l->first, c->stream.first - c->began)) &&
           td_samples_add(&l->whole, end - c->began);
}

static enum td_status next(struct bench *b, struct level *l, struct td_bench_call *c,
                           CURLM *multi, struct td_error *err)
{
    enum td_status s = td_bench_call_set(c, &b->shape, b->serial++, b->words,
                                         b->max_tokens, &l->gaps, err);
    if (s == TD_OK && curl_multi_add_handle(multi, c->easy) != CURLM_OK)
        s = td_error_set(err, TD_E_NOMEM, "no memory for a request");
    return s;
}

/* Keeps the calls busy until all of the level's requests are over. */
static enum td_status loop(struct bench *b, struct level *l,
                           struct td_bench_call *calls, CURLM *multi,
                           struct td_error *err)
{
    enum td_status s = TD_OK;
    int begun = 0, over = 0, left;
    for (; begun < TD_MIN(l->concurrency, l->requests) && s == TD_OK; begun++)
        s = next(b, l, &calls[begun], multi, err);
    while (s == TD_OK && over < l->requests) {
        const CURLMsg *m;
        if (curl_multi_perform(multi, &left) != CURLM_OK)
            return td_error_set(err, TD_E_IO, "the connections failed");
        while (s == TD_OK && (m = curl_multi_info_read(multi, &left))) {
            char *self = NULL;
            CURLcode code = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &self);
            struct td_bench_call *c = (struct td_bench_call *)(void *)self;
            over++;
            (void)curl_multi_remove_handle(multi, c->easy);
            if (!take(l, c, code))
                s = td_error_set(err, TD_E_NOMEM, "no memory for the measurements");
            if (s == TD_OK && begun < l->requests) {
                s = next(b, l, c, multi, err);
                begun++;
            }
        }
        if (s == TD_OK && over < l->requests)
            (void)curl_multi_poll(multi, NULL, 0, 100, NULL);
    }
    return s;
}

static enum td_status run_level(struct bench *b, struct level *l, struct td_error *err)
{
    enum td_status s = TD_OK;
    int n = 0;
    CURLM *multi = curl_multi_init();
    struct td_bench_call *calls = td_calloc((size_t)l->concurrency, sizeof(*calls));
    if (!multi || !calls)
        s = td_error_set(err, TD_E_NOMEM, "no memory for the connections");
    for (; s == TD_OK && n < l->concurrency; n++)
        s = td_bench_call_init(&calls[n], err);
    double start = td_clock_now();
    if (s == TD_OK) {
        (void)curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)l->concurrency);
        s = loop(b, l, calls, multi, err);
    }
    l->seconds = td_clock_now() - start;
    for (int i = 0; i < n; i++) {
        (void)curl_multi_remove_handle(multi, calls[i].easy);
        td_bench_call_release(&calls[i]);
    }
    td_free(calls);
    curl_multi_cleanup(multi);
    return s;
}

/* ---- report -------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct summary {
    double p50, p90, p99, mean; /* milliseconds */
};

static double rank(const struct td_samples *s, double share)
{
    size_t i = (size_t)(share * (double)s->n + 0.999999);
    return s->n ? 1000 * s->p[TD_MIN(TD_MAX(i, 1), s->n) - 1] : 0;
}

static struct summary summarise(struct td_samples *s)
{
    struct summary r = {0};
    if (s->n == 0)
        return r;
    qsort(s->p, s->n, sizeof(*s->p), by_size);
    for (size_t i = 0; i < s->n; i++)
        r.mean += 1000 * s->p[i] / (double)s->n;
    r.p50 = rank(s, 0.5);
    r.p90 = rank(s, 0.9);
    r.p99 = rank(s, 0.99);
    return r;
}

static void row(struct td_buf *out, const char *name, struct td_samples *s)
{
    struct summary r = summarise(s);
    td_buf_addf(out, "         %-16s %10.2f %10.2f %10.2f %10.2f\n", name, r.p50, r.p90,
                r.p99, r.mean);
}

static void text(struct td_buf *out, struct level *l)
{
    double n = TD_MAX(l->answered, 1);
    td_buf_addf(out, "at %-5d %d of %d answered in %.2f s: %.1f tokens/s (%.1f each)",
                l->concurrency, l->answered, l->requests, l->seconds,
                (double)l->tokens / l->seconds, (double)l->tokens / n);
    if (l->prompt_known)
        td_buf_addf(out, ", prompts %.1f tokens/s (%.1f each)",
                    (double)l->prompt / l->seconds, (double)l->prompt / n);
    td_buf_addf(out, "\n         %-16s %10s %10s %10s %10s\n", "ms", "p50", "p90",
                "p99", "mean");
    row(out, "first token", &l->first);
    row(out, "between tokens", &l->gaps);
    row(out, "whole answer", &l->whole);
    for (int i = 0; i < l->n_kinds; i++)
        td_buf_addf(out, "         %d x %s\n", l->kinds[i].count, l->kinds[i].text);
}

static void json_row(struct td_buf *out, const char *name, struct td_samples *s)
{
    struct summary r = summarise(s);
    td_buf_addf(out, ",\"%s\":{\"p50\":%.4f,\"p90\":%.4f,\"p99\":%.4f,\"mean\":%.4f}",
                name, r.p50, r.p90, r.p99, r.mean);
}

static void json(struct td_buf *out, struct level *l)
{
    td_buf_addf(out,
                "{\"concurrency\":%d,\"requests\":%d,\"answered\":%d,\"seconds\":%.4f,"
                "\"output_tokens\":%lld,\"output_tokens_per_second\":%.3f,"
                "\"prompt_tokens\":%lld,\"prompt_tokens_per_second\":%.3f",
                l->concurrency, l->requests, l->answered, l->seconds,
                (long long)l->tokens, (double)l->tokens / l->seconds,
                (long long)l->prompt, (double)l->prompt / l->seconds);
    json_row(out, "first_token_ms", &l->first);
    json_row(out, "inter_token_ms", &l->gaps);
    json_row(out, "whole_ms", &l->whole);
    td_buf_adds(out, ",\"errors\":[");
    for (int i = 0; i < l->n_kinds; i++) {
        td_buf_addf(out, "%s{\"count\":%d,\"kind\":", i ? "," : "", l->kinds[i].count);
        td_json_add_string(out, l->kinds[i].text, strlen(l->kinds[i].text));
        td_buf_addc(out, '}');
    }
    td_buf_adds(out, "]}");
}

static void head(const struct bench *b, struct td_buf *out)
{
    const char *route = b->shape.completions ? "completions" : "chat";
    if (b->json) {
        td_buf_adds(out, "{\"url\":");
        td_json_add_string(out, b->url, strlen(b->url));
        td_buf_adds(out, ",\"model\":");
        td_json_add_string(out, b->model, strlen(b->model));
        td_buf_addf(out,
                    ",\"route\":\"%s\",\"prompt_tokens\":%d,\"max_tokens\":%d,"
                    "\"ignore_eos\":%s,\"usage\":%s,\"levels\":[",
                    route, b->prompt_tokens, b->max_tokens,
                    b->shape.ignore_eos ? "true" : "false",
                    b->shape.usage ? "true" : "false");
        return;
    }
    td_buf_addf(out, "server   %s   %s, %s, %d prompt tokens, %d to answer%s%s\n",
                b->url, b->model, route, b->prompt_tokens, b->max_tokens,
                b->shape.ignore_eos ? "" : "; it does not take ignore_eos",
                b->shape.usage ? "" : "; tokens are counted as pieces of the stream");
}

static void show(struct td_buf *out)
{
    (void)fwrite(out->p, 1, out->len, stdout);
    (void)fflush(stdout);
    td_buf_clear(out);
}

static enum td_status run_levels(struct bench *b, struct td_error *err)
{
    struct td_buf out;
    int answered = 0;
    enum td_status s = TD_OK;
    td_buf_init(&out, TD_MIB);
    head(b, &out);
    for (int i = 0; i < b->levels.n && s == TD_OK; i++) {
        struct level l = {.concurrency = b->levels.v[i]};
        l.requests = b->requests ? b->requests : TD_MAX(8, 4 * l.concurrency);
        s = run_level(b, &l, err);
        if (s == TD_OK && b->json)
            td_buf_adds(&out, i ? "," : "");
        if (s == TD_OK)
            (b->json ? json : text)(&out, &l);
        show(&out);
        answered += l.answered;
        td_samples_release(&l.first);
        td_samples_release(&l.gaps);
        td_samples_release(&l.whole);
    }
    if (b->json && s == TD_OK)
        td_buf_adds(&out, "]}\n");
    show(&out);
    td_buf_release(&out);
    if (s == TD_OK && answered == 0) {
        s = td_error_set(err, TD_E_PEER, "%s answered no request", b->url);
        td_error_why(err, "the lines above say how it refused them");
        td_error_fix(err, "ask for less, or look at the server's log");
    }
    return s;
}

enum td_status td_bench_url(const struct td_conf *conf, struct td_error *err)
{
    struct bench b = {0};
    struct td_bench_call c;
    enum td_status s = read_options(&b, conf, err);
    if (s == TD_OK)
        s = find_model(&b, err);
    if (s != TD_OK)
        return s;
    s = td_bench_call_init(&c, err);
    if (s == TD_OK)
        s = find_fields(&b, &c, err);
    if (s == TD_OK) {
        find_words(&b, &c);
        s = run_levels(&b, err);
    }
    td_bench_call_release(&c);
    return s;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One streamed request of `tandem bench --url`. See bench_call.h.
 */
#include "cmd/bench_call.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { STALL_SECONDS = 300, MAX_LINE = 16 << 20, MAX_REFUSAL = 1 << 16 };

bool td_samples_add(struct td_samples *s, double value)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 1024;
        double *p = td_realloc(s->p, cap, sizeof(*p));
        if (!p)
            return false;
        s->p = p;
        s->cap = cap;
    }
    s->p[s->n++] = value;
    return true;
}

void td_samples_release(struct td_samples *s)
{
    td_free(s->p);
    *s = (struct td_samples){0};
}

/* ---- the stream ---------------------------------------------------------------------- */

static bool has_text(const json_t *o, const char *key)
{
    return json_string_length(json_object_get(o, key)) > 0;
}

static void read_usage(struct td_bench_call *c, const json_t *usage)
{
    const json_t *out = json_object_get(usage, "completion_tokens");
    const json_t *in = json_object_get(usage, "prompt_tokens");
    if (json_is_integer(out))
        c->tokens = (int)json_integer_value(out);
    if (json_is_integer(in))
        c->prompt = (int)json_integer_value(in);
}

static void read_choice(struct td_bench_call *c, const json_t *choice)
{
    const json_t *d = json_object_get(choice, "delta");
    bool text = has_text(choice, "text") || has_text(d, "content") ||
                has_text(d, "reasoning_content") || has_text(d, "reasoning") ||
                json_array_size(json_object_get(d, "tool_calls")) > 0;
    if (json_is_string(json_object_get(choice, "finish_reason")))
        c->complete = true;
    if (!text)
        return;
    double now = td_clock_now();
    if (c->pieces++ == 0)
        c->first = now;
    else if (c->gaps)
        (void)td_samples_add(c->gaps, now - c->last);
    c->last = now;
}

/* "TYPE: MESSAGE" of an error object, as far as it has them. */
static void read_error(struct td_bench_call *c, const json_t *e)
{
    const char *text = json_string_value(json_object_get(e, "message"));
    if (json_is_string(e))
        text = json_string_value(e);
    (void)snprintf(c->error, sizeof(c->error), "%.200s", text ? text : "an error");
}

static void read_line(struct td_bench_call *c, const char *p, size_t n)
{
    json_t *o = NULL;
    if (n < 5 || memcmp(p, "data:", 5) != 0)
        return;
    p += 5;
    n -= 5;
    while (n > 0 && (*p == ' ' || p[n - 1] == '\r')) {
        p += *p == ' ';
        n--;
    }
    if (n == 6 && memcmp(p, "[DONE]", 6) == 0)
        return;
    if (td_json_parse(p, n, "event", &o, NULL) != TD_OK) {
        (void)snprintf(c->error, sizeof(c->error), "an event is not JSON");
        return;
    }
    if (json_object_get(o, "error"))
        read_error(c, json_object_get(o, "error"));
    if (json_is_object(json_object_get(o, "usage")))
        read_usage(c, json_object_get(o, "usage"));
    read_choice(c, json_array_get(json_object_get(o, "choices"), 0));
    json_decref(o);
}

static size_t on_bytes(char *p, size_t size, size_t n, void *self)
{
    struct td_bench_call *c = self;
    long http = 0;
    size_t from = 0;
    n *= size;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &http);
    if (http != 200)
        return td_buf_add(&c->refusal, p, n) == TD_OK ? n : 0;
    if (td_buf_add(&c->rest, p, n) != TD_OK)
        return 0;
    for (;;) {
        const char *start = c->rest.p + from;
        const char *end = memchr(start, '\n', c->rest.len - from);
        if (!end)
            break;
        read_line(c, start, (size_t)(end - start));
        from += (size_t)(end - start) + 1;
    }
    td_buf_drop(&c->rest, from);
    return n;
}

/* ---- the request --------------------------------------------------------------------- */

enum td_status td_bench_call_init(struct td_bench_call *c, struct td_error *err)
{
    memset(c, 0, sizeof(*c));
    td_buf_init(&c->body, TD_MAX_TEXT);
    td_buf_init(&c->rest, MAX_LINE);
    td_buf_init(&c->refusal, MAX_REFUSAL);
    c->easy = curl_easy_init();
    return c->easy ? TD_OK
                   : td_error_set(err, TD_E_NOMEM, "no memory for a connection");
}

void td_bench_call_release(struct td_bench_call *c)
{
    curl_slist_free_all(c->headers);
    curl_easy_cleanup(c->easy);
    td_buf_release(&c->body);
    td_buf_release(&c->rest);
    td_buf_release(&c->refusal);
}

/* A text that differs from all others from its first token on. */
static void add_prompt(struct td_buf *b, unsigned serial, int words)
{
    static const char *const list[] = {
        "house", "river", "green", "light", "table", "stone", "paper", "water",
        "night", "music", "chair", "plant", "cloud", "bread", "horse", "glass"};
    unsigned x = serial * 2654435761U + 12345;
    td_buf_addf(b, "%08x", x);
    for (int i = 0; i < words; i++) {
        x = x * 1664525U + 1013904223U;
        td_buf_addf(b, " %s", list[x >> 28]);
    }
}

static void add_body(struct td_buf *b, const struct td_bench_shape *shape,
                     unsigned serial, int words, int max_tokens)
{
    td_buf_adds(b, "{\"model\":");
    td_json_add_string(b, shape->model, strlen(shape->model));
    td_buf_adds(b, shape->completions
                       ? ",\"prompt\":\""
                       : ",\"messages\":[{\"role\":\"user\",\"content\":\"");
    add_prompt(b, serial, words);
    td_buf_adds(b, shape->completions ? "\"" : "\"}]");
    td_buf_addf(b, ",\"max_tokens\":%d,\"temperature\":0,\"stream\":true", max_tokens);
    if (shape->usage)
        td_buf_adds(b, ",\"stream_options\":{\"include_usage\":true}");
    if (shape->ignore_eos)
        td_buf_adds(b, ",\"ignore_eos\":true");
    td_buf_addc(b, '}');
}

static enum td_status set_headers(struct td_bench_call *c,
                                  const struct td_bench_shape *shape,
                                  struct td_error *err)
{
    char key[TD_MAX_PATH];
    if (c->headers)
        return TD_OK;
    c->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (shape->key) {
        (void)snprintf(key, sizeof(key), "Authorization: Bearer %s", shape->key);
        struct curl_slist *more = curl_slist_append(c->headers, key);
        if (!more)
            return td_error_set(err, TD_E_NOMEM, "no memory for a request");
    }
    return c->headers ? TD_OK
                      : td_error_set(err, TD_E_NOMEM, "no memory for a request");
}

enum td_status td_bench_call_set(struct td_bench_call *c,
                                 const struct td_bench_shape *shape, unsigned serial,
                                 int words, int max_tokens, struct td_samples *gaps,
                                 struct td_error *err)
{
    char url[TD_MAX_PATH];
    td_buf_clear(&c->body);
    td_buf_clear(&c->rest);
    td_buf_clear(&c->refusal);
    add_body(&c->body, shape, serial, words, max_tokens);
    if (c->body.status != TD_OK)
        return td_error_set(err, c->body.status, "no memory for a request");
    if (set_headers(c, shape, err) != TD_OK)
        return TD_E_NOMEM;
    (void)snprintf(url, sizeof(url), "%s/v1/%s", shape->url,
                   shape->completions ? "completions" : "chat/completions");
    c->first = c->last = 0;
    c->pieces = 0;
    c->tokens = c->prompt = -1;
    c->complete = false;
    c->error[0] = c->words[0] = 0;
    c->gaps = gaps;
    c->began = td_clock_now();
    curl_easy_setopt(c->easy, CURLOPT_URL, url);
    curl_easy_setopt(c->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(c->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, c->body.p);
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE, (long)c->body.len);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->words);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    return TD_OK;
}

bool td_bench_call_judge(struct td_bench_call *c, CURLcode code, char *kind,
                         size_t size)
{
    long http = 0;
    json_t *o = NULL;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &http);
    if (code == CURLE_OK && http != 200 &&
        td_json_parse(c->refusal.p, c->refusal.len, "reply", &o, NULL) == TD_OK) {
        const json_t *e = json_object_get(o, "error");
        read_error(c, e ? e : o);
        json_decref(o);
    }
    if (code == CURLE_OPERATION_TIMEDOUT)
        (void)snprintf(kind, size, "nothing came for %d s", STALL_SECONDS);
    else if (code != CURLE_OK)
        (void)snprintf(kind, size, "connection: %s",
                       *c->words ? c->words : curl_easy_strerror(code));
    else if (http != 200)
        (void)snprintf(kind, size, "status %ld: %s", http, c->error);
    else if (*c->error)
        (void)snprintf(kind, size, "in the stream: %s", c->error);
    else if (!c->complete)
        (void)snprintf(kind, size, "the stream ended before the answer was complete");
    else
        return true;
    return false;
}

int td_bench_call_tokens(const struct td_bench_call *c)
{
    return c->tokens >= 0 ? c->tokens : c->pieces;
}

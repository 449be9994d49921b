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

enum { STALL_SECONDS = 300, MAX_REFUSAL = 1 << 16 };

static size_t on_bytes(char *p, size_t size, size_t n, void *self)
{
    struct td_bench_call *c = self;
    long http = 0;
    n *= size;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &http);
    if (http != 200)
        return td_buf_add(&c->refusal, p, n) == TD_OK ? n : 0;
    return td_bench_stream_add(&c->stream, p, n) ? n : 0;
}

/* ---- the request --------------------------------------------------------------------- */

enum td_status td_bench_call_init(struct td_bench_call *c, struct td_error *err)
{
    memset(c, 0, sizeof(*c));
    td_buf_init(&c->body, TD_MAX_TEXT);
    td_bench_stream_init(&c->stream);
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
    td_bench_stream_release(&c->stream);
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
    td_buf_clear(&c->refusal);
    add_body(&c->body, shape, serial, words, max_tokens);
    if (c->body.status != TD_OK)
        return td_error_set(err, c->body.status, "no memory for a request");
    if (set_headers(c, shape, err) != TD_OK)
        return TD_E_NOMEM;
    (void)snprintf(url, sizeof(url), "%s/v1/%s", shape->url,
                   shape->completions ? "completions" : "chat/completions");
    c->words[0] = 0;
    td_bench_stream_begin(&c->stream, gaps);
    c->began = td_clock_now();
    curl_easy_setopt(c->easy, CURLOPT_URL, url);
    curl_easy_setopt(c->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(c->easy, CURLOPT_FORBID_REUSE, 1L); /* some servers hang up */
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
        td_bench_stream_error(&c->stream, e ? e : o);
        json_decref(o);
    }
    if (code == CURLE_OPERATION_TIMEDOUT)
        (void)snprintf(kind, size, "nothing came for %d s", STALL_SECONDS);
    else if (code != CURLE_OK)
        (void)snprintf(kind, size, "connection: %s",
                       *c->words ? c->words : curl_easy_strerror(code));
    else if (http != 200)
        (void)snprintf(kind, size, "status %ld: %s", http, c->stream.error);
    else if (*c->stream.error)
        (void)snprintf(kind, size, "in the stream: %s", c->stream.error);
    else if (!c->stream.complete)
        (void)snprintf(kind, size, "the stream ended before the answer was complete");
    else
        return true;
    return false;
}

int td_bench_call_tokens(const struct td_bench_call *c)
{
    return c->stream.tokens >= 0 ? c->stream.tokens : c->stream.pieces;
}

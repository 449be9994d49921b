/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event stream of an answer. See bench_stream.h.
 */
#include "cmd/bench_stream.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

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

void td_bench_stream_init(struct td_bench_stream *s)
{
    *s = (struct td_bench_stream){.tokens = -1, .prompt = -1};
    td_buf_init(&s->rest, TD_MAX_EVENT);
}

void td_bench_stream_release(struct td_bench_stream *s)
{
    td_buf_release(&s->rest);
}

void td_bench_stream_begin(struct td_bench_stream *s, struct td_samples *gaps)
{
    td_buf_clear(&s->rest);
    s->first = s->last = 0;
    s->pieces = 0;
    s->tokens = s->prompt = -1;
    s->complete = false;
    s->error[0] = 0;
    s->gaps = gaps;
}

/* ---- events -------------------------------------------------------------------------- */

static bool has_text(const json_t *o, const char *key)
{
    return json_string_length(json_object_get(o, key)) > 0;
}

static void read_count(const json_t *usage, const char *key, int *out)
{
    const json_t *v = json_object_get(usage, key);
    json_int_t n = json_integer_value(v);
    if (json_is_integer(v) && n >= 0 && n <= INT_MAX)
        *out = (int)n;
}

static void read_choice(struct td_bench_stream *s, const json_t *choice)
{
    const json_t *d = json_object_get(choice, "delta");
    bool text = has_text(choice, "text") || has_text(d, "content") ||
                has_text(d, "reasoning_content") || has_text(d, "reasoning") ||
                json_array_size(json_object_get(d, "tool_calls")) > 0;
    if (json_is_string(json_object_get(choice, "finish_reason")))
        s->complete = true;
    if (!text)
        return;
    double now = td_clock_now();
    if (s->pieces++ == 0)
        s->first = now;
    else if (s->gaps)
        (void)td_samples_add(s->gaps, now - s->last);
    s->last = now;
}

void td_bench_stream_error(struct td_bench_stream *s, const json_t *error)
{
    const json_t *message = json_object_get(error, "message");
    const char *text = json_string_value(json_is_string(error) ? error : message);
    (void)snprintf(s->error, sizeof(s->error), "%.200s", text ? text : "an error");
}

static void read_line(struct td_bench_stream *s, const char *p, size_t n)
{
    json_t *o = NULL;
    if (n < 5 || memcmp(p, "data:", 5) != 0)
        return;
    p += 5;
    n -= 5;
    for (; n > 0 && *p == ' '; n--)
        p++;
    while (n > 0 && p[n - 1] == '\r')
        n--;
    if (n == 6 && memcmp(p, "[DONE]", 6) == 0)
        return;
    if (td_json_parse_nul(p, n, "event", &o, NULL) != TD_OK) {
        (void)snprintf(s->error, sizeof(s->error), "an event is not JSON");
        return;
    }
    if (json_object_get(o, "error"))
        td_bench_stream_error(s, json_object_get(o, "error"));
    read_count(json_object_get(o, "usage"), "completion_tokens", &s->tokens);
    read_count(json_object_get(o, "usage"), "prompt_tokens", &s->prompt);
    read_choice(s, json_array_get(json_object_get(o, "choices"), 0));
    json_decref(o);
}

bool td_bench_stream_add(struct td_bench_stream *s, const char *p, size_t n)
{
    const char *end;
    while ((end = n ? memchr(p, '\n', n) : NULL)) {
        size_t line = (size_t)(end - p);
        if (s->rest.len == 0) {
            read_line(s, p, line);
        } else {
            if (td_buf_add(&s->rest, p, line) != TD_OK)
                return false;
            read_line(s, s->rest.p, s->rest.len);
            td_buf_clear(&s->rest);
        }
        p += line + 1;
        n -= line + 1;
    }
    return td_buf_add(&s->rest, p, n) == TD_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: the fields that chats and completions share, and completions. See request.h;
 * chat.c has the messages.
 */
#include "api/request.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char where[] = "request";

/* ---- refusals ---------------------------------------------------------------------- */

bool td_refuse(struct td_refusal *no, int status, const char *param, const char *fmt,
               ...)
{
    va_list ap;
    va_start(ap, fmt);
    *no = (struct td_refusal){.status = status, .type = "invalid_request_error"};
    (void)snprintf(no->param, sizeof(no->param), "%s", param ? param : "");
    (void)vsnprintf(no->message, sizeof(no->message), fmt, ap);
    va_end(ap);
    return false;
}

bool td_refuse_error(struct td_refusal *no, const char *param,
                     const struct td_error *err)
{
    bool ours = err->code == TD_E_NOMEM || err->code == TD_E_INTERNAL;
    const char *why =
        strcmp(err->why, td_status_info(err->code)->cause) == 0 ? "" : err->why;
    td_refuse(no, ours ? 500 : 400, param, "%s%s%s", err->what, *why ? ": " : "", why);
    if (ours)
        no->type = "server_error";
    return false;
}

/* ---- fields ------------------------------------------------------------------------ */

bool td_field_int(const json_t *o, const char *key, int64_t lo, int64_t hi,
                  int64_t *out, struct td_refusal *no)
{
    struct td_error err;
    td_error_init(&err);
    if (td_json_int(o, key, where, lo, hi, *out, out, &err) == TD_OK)
        return true;
    return td_refuse_error(no, key, &err);
}

bool td_field_real(const json_t *o, const char *key, double lo, double hi, float *out,
                   struct td_refusal *no)
{
    struct td_error err;
    double d = (double)*out;
    td_error_init(&err);
    if (td_json_double(o, key, where, lo, hi, d, &d, &err) != TD_OK)
        return td_refuse_error(no, key, &err);
    *out = (float)d;
    return true;
}

bool td_field_bool(const json_t *o, const char *key, bool *out, struct td_refusal *no)
{
    struct td_error err;
    td_error_init(&err);
    if (td_json_bool(o, key, where, *out, out, &err) == TD_OK)
        return true;
    return td_refuse_error(no, key, &err);
}

static bool field_i32(const json_t *o, const char *key, int64_t lo, int64_t hi,
                      int32_t *out, struct td_refusal *no)
{
    int64_t v = *out;
    if (!td_field_int(o, key, lo, hi, &v, no))
        return false;
    *out = (int32_t)v;
    return true;
}

static bool no_memory(struct td_refusal *no)
{
    td_refuse(no, 500, NULL, "no memory for this request");
    no->type = "server_error";
    return false;
}

/* ---- lists ------------------------------------------------------------------------- */

static const json_t *present(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static bool read_stop_text(struct td_ask *a, const json_t *v, size_t i,
                           const char **text, size_t *len, struct td_refusal *no)
{
    if (!json_is_string(v) || json_string_length(v) == 0 ||
        json_string_length(v) > TD_MAX_STOP_TEXT)
        return td_refuse(no, 400, "stop",
                         "request: stop must be strings of 1 to %d bytes",
                         TD_MAX_STOP_TEXT);
    len[i] = json_string_length(v);
    text[i] = td_arena_strndup(&a->arena, json_string_value(v), len[i]);
    return text[i] || no_memory(no);
}

static bool read_stops(struct td_ask *a, struct td_refusal *no)
{
    const json_t *stop = present(a->body, "stop");
    bool list = json_is_array(stop);
    size_t n = list ? json_array_size(stop) : stop ? 1 : 0;
    if (stop && !list && !json_is_string(stop))
        return td_refuse(no, 400, "stop",
                         "request: stop must be a string or a list of strings");
    if (n > TD_MAX_STOPS)
        return td_refuse(no, 400, "stop", "request: stop has %zu entries, at most %d",
                         n, TD_MAX_STOPS);
    if (list && n == 0)
        return true;
    const char **text = td_arena_alloc(&a->arena, TD_MAX_STOPS, sizeof(*text));
    size_t *len = td_arena_alloc(&a->arena, TD_MAX_STOPS, sizeof(*len));
    if (!text || !len)
        return no_memory(no);
    for (size_t i = 0; i < n; i++)
        if (!read_stop_text(a, list ? json_array_get(stop, i) : stop, i, text, len, no))
            return false;
    a->stops.text = text;
    a->stops.len = len;
    a->stops.n = n;
    return td_field_bool(a->body, "include_stop_str_in_output", &a->stops.include, no);
}

/* A list of token ids into the arena. */
static bool read_ids(struct td_ask *a, const json_t *list, const char *key,
                     int32_t vocab, size_t max, const int32_t **out, size_t *n,
                     struct td_refusal *no)
{
    if (!list)
        return true;
    if (!json_is_array(list) || json_array_size(list) > max)
        return td_refuse(no, 400, key,
                         "request: %s must be a list of at most %zu token ids", key,
                         max);
    int32_t *ids = td_arena_alloc(&a->arena, TD_MAX(json_array_size(list), 1), 4);
    if (!ids)
        return no_memory(no);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= vocab)
            return td_refuse(no, 400, key,
                             "request: %s[%zu] is not a token id (0 to %d)", key, i,
                             vocab - 1);
        ids[i] = (int32_t)id;
    }
    *out = ids;
    *n = json_array_size(list);
    return true;
}

static bool read_bias(struct td_ask *a, int32_t vocab, struct td_refusal *no)
{
    static const char key[] = "logit_bias";
    json_t *map = json_object_get(a->body, key);
    if (!map || json_is_null(map) || json_object_size(map) == 0) {
        if (map && !json_is_null(map) && !json_is_object(map))
            return td_refuse(no, 400, key, "request: %s must be an object", key);
        return true;
    }
    if (json_object_size(map) > TD_MAX_LOGIT_BIAS)
        return td_refuse(no, 400, key, "request: %s has %zu entries, at most %d", key,
                         json_object_size(map), TD_MAX_LOGIT_BIAS);
    struct td_logit_bias *list =
        td_arena_alloc(&a->arena, json_object_size(map), sizeof(*list));
    size_t n = 0;
    const char *name;
    const json_t *v;
    if (!list)
        return no_memory(no);
    json_object_foreach(map, name, v)
    {
        char *end;
        long long id = strtoll(name, &end, 10);
        double bias = json_number_value(v);
        if (end == name || *end || id < 0 || id >= vocab)
            return td_refuse(no, 400, key, "request: %s: \"%.40s\" is no token id", key,
                             name);
        if (!json_is_number(v) || !(bias >= -100 && bias <= 100))
            return td_refuse(no, 400, key,
                             "request: %s of %lld must be a number "
                             "from -100 to 100",
                             key, id);
        list[n++] = (struct td_logit_bias){.id = (int32_t)id, .bias = (float)bias};
    }
    a->sampling.bias = list;
    a->sampling.n_bias = n;
    return true;
}

/* ---- what all requests have -------------------------------------------------------- */

static bool read_sampling(struct td_ask *a, const struct td_served *m,
                          struct td_refusal *no)
{
    struct td_sampling *s = &a->sampling;
    const json_t *o = a->body;
    int64_t seed = -1;
    bool ok =
        td_field_real(o, "temperature", 0, 2, &s->temperature, no) &&
        td_field_real(o, "top_p", 1e-6, 1, &s->top_p, no) &&
        td_field_real(o, "min_p", 0, 1, &s->min_p, no) &&
        field_i32(o, "top_k", -1, 1 << 24, &s->top_k, no) &&
        td_field_real(o, "repetition_penalty", 0.01, 100, &s->repetition_penalty, no) &&
        td_field_real(o, "presence_penalty", -2, 2, &s->presence_penalty, no) &&
        td_field_real(o, "frequency_penalty", -2, 2, &s->frequency_penalty, no) &&
        td_field_int(o, "seed", INT64_MIN, INT64_MAX, &seed, no) &&
        td_field_int(o, "min_tokens", 0, 1 << 24, &s->min_tokens, no) &&
        td_field_bool(o, "ignore_eos", &s->ignore_eos, no) &&
        read_ids(a, present(o, "stop_token_ids"), "stop_token_ids", m->vocab,
                 TD_MAX_STOP_IDS, &s->stop_ids, &s->n_stop_ids, no) &&
        read_bias(a, m->vocab, no);
    bool given = present(o, "seed") != NULL;
    s->seed = given ? (uint64_t)seed : td_seed_fresh();
    return ok;
}

static bool read_limits(struct td_ask *a, struct td_refusal *no)
{
    const json_t *o = a->body;
    int64_t max = a->max_tokens, n = 1;
    if (!td_field_int(o, "max_tokens", a->chat ? 1 : 0, 1 << 24, &max, no) ||
        !td_field_int(o, "max_completion_tokens", 1, 1 << 24, &max, no) ||
        !td_field_int(o, "n", 1, TD_MAX_CHOICES, &n, no))
        return false;
    bool none = !a->chat && max == 0 && present(o, "max_tokens");
    a->max_tokens = none ? -1 : (int32_t)max;
    a->n = (int)n;
    if (max > 0 && a->sampling.min_tokens > max)
        return td_refuse(no, 400, "min_tokens",
                         "request: min_tokens is larger than max_tokens");
    return true;
}

static bool read_stream(struct td_ask *a, struct td_refusal *no)
{
    const json_t *options = present(a->body, "stream_options");
    if (!td_field_bool(a->body, "stream", &a->stream, no))
        return false;
    if (!options)
        return true;
    if (!json_is_object(options))
        return td_refuse(no, 400, "stream_options",
                         "request: stream_options must be an object");
    if (!a->stream)
        return td_refuse(no, 400, "stream_options",
                         "request: stream_options needs stream to be true");
    return td_field_bool(options, "include_usage", &a->usage, no) &&
           td_field_bool(options, "continuous_usage_stats", &a->running_usage, no);
}

/* What would change the meaning of the answer and is not there. */
static bool read_refused(const struct td_ask *a, struct td_refusal *no)
{
    static const char *const fields[] = {"guided_json",        "guided_regex",
                                         "guided_choice",      "guided_grammar",
                                         "structured_outputs", "use_beam_search",
                                         "prompt_embeds",      "logits_processors",
                                         "bad_words",          "truncate_prompt_tokens",
                                         "prediction",         "web_search_options",
                                         "allowed_token_ids"};
    for (size_t i = 0; i < TD_COUNT(fields); i++) {
        const json_t *v = present(a->body, fields[i]);
        if (v && !json_is_false(v))
            return td_refuse(no, 400, fields[i], "request: %s is not supported",
                             fields[i]);
    }
    const json_t *format = present(a->body, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format && (!type || strcmp(type, "text") != 0))
        return td_refuse(no, 400, "response_format",
                         "request: response_format other than text is not supported");
    return true;
}

bool td_ask_begin(struct td_ask *a, const struct td_served *m, const char *body,
                  size_t n, struct td_refusal *no)
{
    struct td_error err;
    td_error_init(&err);
    memset(a, 0, sizeof(*a));
    td_arena_init(&a->arena, TD_MAX_HTTP_BODY);
    a->sampling = m->sampling;
    a->prompt_logprobs = -1;
    a->n = 1;
    if (n == 0)
        return td_refuse(no, 400, NULL, "the request's body is empty, expected JSON");
    if (td_json_parse(body, n, where, &a->body, &err) != TD_OK)
        return td_refuse_error(no, NULL, &err);
    if (!json_is_object(a->body))
        return td_refuse(no, 400, NULL, "the request's body must be a JSON object");
    const json_t *model = present(a->body, "model");
    if (model && !json_is_string(model))
        return td_refuse(no, 400, "model", "request: model must be a string");
    return true;
}

bool td_ask_common(struct td_ask *a, const struct td_served *m, struct td_refusal *no)
{
    bool skip = true;
    bool ok = read_refused(a, no) && read_sampling(a, m, no) && read_limits(a, no) &&
              read_stream(a, no) && read_stops(a, no) &&
              td_field_bool(a->body, "return_token_ids", &a->show_ids, no) &&
              td_field_bool(a->body, "skip_special_tokens", &skip, no);
    a->show_special = !skip;
    return ok;
}

void td_ask_trim(struct td_ask *a)
{
    json_t *tools = json_incref((json_t *)(uintptr_t)a->tools);
    json_decref(a->body);
    a->body = tools;
    for (int32_t i = 0; i < a->n_prompts; i++) {
        a->prompts[i].text = NULL;
        a->prompts[i].len = 0;
    }
}

void td_ask_release(struct td_ask *a)
{
    for (int32_t i = 0; i < a->n_prompts; i++)
        td_ids_release(&a->prompts[i].ids);
    td_arena_release(&a->arena);
    json_decref(a->body);
}

bool td_ask_encode(const struct td_served *m, struct td_prompt *p, const char *param,
                   struct td_refusal *no)
{
    struct td_error err;
    td_error_init(&err);
    if (p->len > m->max_text) { /* no need to cut it into tokens to see that */
        td_refuse(no, 400, param,
                  "This model's maximum context length is %d tokens, but the request's "
                  "prompt has %zu bytes",
                  m->config.max_positions, p->len);
        no->code = "context_length_exceeded";
        return false;
    }
    if (td_tokenizer_encode(m->tokenizer, p->text, p->len, TD_ENCODE_SPECIAL, &p->ids,
                            &err) == TD_OK)
        return true;
    return td_refuse_error(no, param, &err);
}

/* ---- completions ------------------------------------------------------------------- */

static bool add_ids(struct td_prompt *p, const json_t *list, int32_t vocab,
                    struct td_refusal *no)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= vocab)
            return td_refuse(no, 400, "prompt",
                             "request: prompt[%zu] is not a token id (0 to %d)", i,
                             vocab - 1);
        if (td_ids_add(&p->ids, (int32_t)id) != TD_OK)
            return no_memory(no);
    }
    return true;
}

static bool read_prompt(struct td_ask *a, const struct td_served *m, const json_t *v,
                        struct td_refusal *no)
{
    struct td_prompt *p = &a->prompts[a->n_prompts++];
    td_ids_init(&p->ids);
    if (json_is_string(v)) {
        p->text = json_string_value(v); /* the body lives as long */
        p->len = json_string_length(v);
        if (!td_ask_encode(m, p, "prompt", no))
            return false;
    } else if (!json_is_array(v)) {
        return td_refuse(no, 400, "prompt",
                         "request: prompt must be a text, a list of token ids, or a "
                         "list of those");
    } else if (!add_ids(p, v, m->config.vocab, no)) {
        return false;
    }
    if (p->ids.len == 0)
        return td_refuse(no, 400, "prompt", "request: the prompt is empty");
    return true;
}

static bool read_prompts(struct td_ask *a, const struct td_served *m,
                         struct td_refusal *no)
{
    const json_t *v = present(a->body, "prompt");
    size_t n = json_array_size(v);
    bool batch = n > 0 && !json_is_integer(json_array_get(v, 0));
    if (!v)
        return td_refuse(no, 400, "prompt", "request: prompt is missing");
    n = batch ? n : 1;
    if (n * (size_t)a->n > TD_MAX_CHOICES)
        return td_refuse(no, 400, batch ? "prompt" : "n",
                         "request: %zu answers are asked for, at most %d",
                         n * (size_t)a->n, TD_MAX_CHOICES);
    a->prompts = td_arena_alloc(&a->arena, n, sizeof(*a->prompts));
    if (!a->prompts)
        return no_memory(no);
    for (size_t i = 0; i < n; i++)
        if (!read_prompt(a, m, batch ? json_array_get(v, i) : v, no))
            return false;
    return true;
}

bool td_ask_completion(struct td_ask *a, const struct td_served *m, const char *body,
                       size_t n, struct td_refusal *no)
{
    int64_t best = 0, top = -1, prompt_top = -1;
    if (!td_ask_begin(a, m, body, n, no))
        return false;
    a->max_tokens = 16;
    if (!td_ask_common(a, m, no) || !td_field_bool(a->body, "echo", &a->echo, no) ||
        !td_field_int(a->body, "best_of", 1, TD_MAX_CHOICES, &best, no) ||
        !td_field_int(a->body, "logprobs", 0, TD_MAX_LOGPROBS, &top, no) ||
        !td_field_int(a->body, "prompt_logprobs", 0, TD_MAX_LOGPROBS, &prompt_top, no))
        return false;
    const json_t *suffix = present(a->body, "suffix");
    if (suffix && !(json_is_string(suffix) && json_string_length(suffix) == 0))
        return td_refuse(no, 400, "suffix", "request: suffix is not supported");
    if (best > 0 && best != a->n)
        return td_refuse(no, 400, "best_of",
                         "request: best_of other than n is not supported");
    if (a->max_tokens < 0 && !a->echo)
        return td_refuse(no, 400, "max_tokens",
                         "request: max_tokens 0 needs echo to be true");
    a->logprobs = top >= 0;
    a->sampling.logprobs = (int32_t)top;
    a->prompt_logprobs =
        a->echo && top >= 0 ? (int32_t)TD_MAX(top, prompt_top) : (int32_t)prompt_top;
    return read_prompts(a, m, no);
}

bool td_ask_tokenize(struct td_ask *a, const struct td_served *m, const char *body,
                     size_t n, struct td_refusal *no)
{
    if (!td_ask_begin(a, m, body, n, no))
        return false;
    if (present(a->body, "messages"))
        return td_ask_messages(a, m, no);
    const json_t *prompt = present(a->body, "prompt");
    if (!json_is_string(prompt))
        return td_refuse(no, 400, "prompt", "request: prompt must be a string");
    a->prompts = td_arena_alloc(&a->arena, 1, sizeof(*a->prompts));
    if (!a->prompts)
        return no_memory(no);
    a->n_prompts = 1;
    td_ids_init(&a->prompts->ids);
    a->prompts->text = json_string_value(prompt);
    a->prompts->len = json_string_length(prompt);
    return td_ask_encode(m, a->prompts, "prompt", no);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP side of the front: one table of routes, the key, and what each route does.
 */
#define _POSIX_C_SOURCE 200809L
#include "api/front_int.h"
#include "api/page.h"

#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char json_text[] = "application/json";

typedef void (*route_fn)(struct td_front *f, struct td_exchange *x);

struct route {
    const char *path, *method;
    bool keyed; /* clients must know the key */
    bool ready; /* and the engine must be ready */
    route_fn fn;
};

/* ---- replies ----------------------------------------------------------------------- */

static void reply_json(struct td_exchange *x, int status, const struct td_buf *b)
{
    static const char broken[] = "{\"error\":{\"message\":\"no memory for the reply\","
                                 "\"type\":\"server_error\",\"param\":null,\"code\":"
                                 "null}}";
    if (b->status == TD_OK)
        td_exchange_reply(x, status, json_text, b->p, b->len);
    else
        td_exchange_reply(x, 500, json_text, broken, sizeof(broken) - 1);
}

void td_refuse_exchange(struct td_exchange *x, const struct td_refusal *no)
{
    struct td_buf b;
    td_buf_init(&b, 64 * TD_KIB);
    td_reply_error(&b, no);
    if (no->status == 429 || (no->status == 503 && !td_exchange_begun(x)))
        td_exchange_add_header(x, "Retry-After", "1");
    reply_json(x, no->status, &b);
    td_buf_release(&b);
}

/* 503 with the reason in OpenAI's form and the state beside it. */
static void reply_not_ready(struct td_front *f, struct td_exchange *x)
{
    struct td_refusal no;
    struct td_buf b;
    char seconds[16];
    td_buf_init(&b, 64 * TD_KIB);
    (void)pthread_mutex_lock(&f->lock);
    td_front_not_ready(f, &no);
    td_reply_error(&b, &no);
    td_buf_set_len(&b, b.len > 0 ? b.len - 1 : 0);
    td_buf_adds(&b, ",\"startup\":");
    td_startup_json(&f->startup, &b);
    td_buf_addc(&b, '}');
    (void)snprintf(seconds, sizeof(seconds), "%d", td_startup_retry_after(&f->startup));
    f->metrics.refused++;
    (void)pthread_mutex_unlock(&f->lock);
    td_exchange_add_header(x, "Retry-After", seconds);
    reply_json(x, 503, &b);
    td_buf_release(&b);
}

static bool is_ready(struct td_front *f)
{
    (void)pthread_mutex_lock(&f->lock);
    bool ready = f->startup.life == TD_LIFE_READY && f->loaded && !f->draining;
    (void)pthread_mutex_unlock(&f->lock);
    return ready;
}

/* ---- health and state ---------------------------------------------------------------- */

static void get_livez(struct td_front *f, struct td_exchange *x)
{
    static const char text[] = "{\"alive\":true}";
    (void)f;
    td_exchange_reply(x, 200, json_text, text, sizeof(text) - 1);
}

static void get_readyz(struct td_front *f, struct td_exchange *x)
{
    struct td_buf b;
    if (!is_ready(f)) {
        reply_not_ready(f, x);
        return;
    }
    td_buf_init(&b, 64 * TD_KIB);
    td_front_state(f, &b);
    reply_json(x, 200, &b);
    td_buf_release(&b);
}

static void get_startupz(struct td_front *f, struct td_exchange *x)
{
    struct td_buf b;
    const char *accept = td_exchange_header(x, "Accept");
    if ((accept && strstr(accept, "text/event-stream")) ||
        td_exchange_query(x, "stream")) {
        td_front_startupz(f, x);
        return;
    }
    td_buf_init(&b, 64 * TD_KIB);
    td_front_state(f, &b);
    reply_json(x, 200, &b);
    td_buf_release(&b);
}

static void get_status(struct td_front *f, struct td_exchange *x)
{
    struct td_buf b;
    td_buf_init(&b, 64 * TD_KIB);
    td_front_status(f, &b);
    reply_json(x, 200, &b);
    td_buf_release(&b);
}

static void get_metrics(struct td_front *f, struct td_exchange *x)
{
    struct td_buf b;
    td_buf_init(&b, TD_MIB);
    (void)pthread_mutex_lock(&f->lock);
    f->metrics.waiting = f->n_queued;
    td_metrics_text(&f->metrics, f->params.served->name, &b);
    (void)pthread_mutex_unlock(&f->lock);
    td_exchange_reply(x, b.status == TD_OK ? 200 : 500,
                      "text/plain; version=0.0.4; charset=utf-8", b.p, b.len);
    td_buf_release(&b);
}

static void get_version(struct td_front *f, struct td_exchange *x)
{
    struct td_buf b;
    td_buf_init(&b, 4096);
    td_buf_addc(&b, '{');
    td_reply_text(&b, "version", f->params.version);
    td_reply_text(&b, "build", f->params.build);
    td_buf_addc(&b, '}');
    reply_json(x, 200, &b);
    td_buf_release(&b);
}

static void get_page(struct td_front *f, struct td_exchange *x)
{
    (void)f;
    td_exchange_reply(x, 200, "text/html; charset=utf-8", td_page, td_page_bytes);
}

/* ---- models and tokens --------------------------------------------------------------- */

static void model_object(struct td_front *f, struct td_buf *b)
{
    td_buf_addc(b, '{');
    td_reply_text(b, "id", f->params.served->name);
    td_reply_text(b, "object", "model");
    td_buf_adds(b, ",\"created\":0");
    td_reply_text(b, "owned_by", "tandem");
    td_reply_text(b, "root", f->params.served->name);
    (void)pthread_mutex_lock(&f->lock);
    td_buf_addf(b, ",\"parent\":null,\"max_model_len\":%d}", f->metrics.hello.max_len);
    (void)pthread_mutex_unlock(&f->lock);
}

static void get_models(struct td_front *f, struct td_exchange *x)
{
    struct td_buf b;
    td_buf_init(&b, 64 * TD_KIB);
    td_buf_adds(&b, "{\"object\":\"list\",\"data\":[");
    model_object(f, &b);
    td_buf_adds(&b, "]}");
    reply_json(x, 200, &b);
    td_buf_release(&b);
}

static void get_model(struct td_front *f, struct td_exchange *x)
{
    struct td_buf b;
    struct td_refusal no;
    const char *name = td_exchange_path(x) + strlen("/v1/models/");
    if (strcmp(name, f->params.served->name) != 0) {
        td_refuse(&no, 404, "model", "the model \"%.100s\" is not served here", name);
        no.code = "model_not_found";
        td_refuse_exchange(x, &no);
        return;
    }
    td_buf_init(&b, 64 * TD_KIB);
    model_object(f, &b);
    reply_json(x, 200, &b);
    td_buf_release(&b);
}

static void token_texts(const struct td_front *f, const struct td_ids *ids,
                        struct td_buf *b)
{
    td_buf_adds(b, ",\"token_strs\":[");
    for (size_t i = 0; i < ids->len; i++) {
        size_t n = 0;
        const char *p = td_tokenizer_token(f->params.served->tokenizer, ids->p[i], &n);
        td_buf_adds(b, i ? "," : "");
        td_json_add_string(b, p ? p : "", p ? n : 0);
    }
    td_buf_addc(b, ']');
}

static void post_tokenize(struct td_front *f, struct td_exchange *x)
{
    struct td_refusal no;
    struct td_ask ask;
    struct td_buf b;
    size_t n;
    bool texts = false;
    const char *body = td_exchange_body(x, &n);
    td_buf_init(&b, 16 * (size_t)TD_MAX_TEXT);
    if (!td_ask_tokenize(&ask, f->params.served, body, n, &no) ||
        !td_field_bool(ask.body, "return_token_strs", &texts, &no)) {
        td_refuse_exchange(x, &no);
    } else {
        const struct td_ids *ids = &ask.prompts->ids;
        (void)pthread_mutex_lock(&f->lock);
        td_buf_addf(&b, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":", ids->len,
                    f->metrics.hello.max_len);
        (void)pthread_mutex_unlock(&f->lock);
        td_reply_ids(&b, ids->p, ids->len);
        if (texts)
            token_texts(f, ids, &b);
        td_buf_addc(&b, '}');
        reply_json(x, 200, &b);
    }
    td_ask_release(&ask);
    td_buf_release(&b);
}

static bool read_tokens(const struct td_served *m, const json_t *o, struct td_buf *text,
                        struct td_refusal *no)
{
    const json_t *list = json_object_get(o, "tokens");
    size_t n = json_array_size(list);
    struct td_ids ids;
    if (!json_is_array(list))
        return td_refuse(no, 400, "tokens", "request: tokens must be a list of ids");
    td_ids_init(&ids);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        ok = id >= 0 && id < m->config.vocab && td_ids_add(&ids, (int32_t)id) == TD_OK;
        if (!ok)
            td_refuse(no, 400, "tokens", "request: tokens[%zu] is not a token id", i);
    }
    if (ok &&
        td_tokenizer_decode(m->tokenizer, ids.p, ids.len, TD_DECODE_ALL, text) != TD_OK)
        ok = td_refuse(no, 400, "tokens", "request: the text would be too long");
    td_ids_release(&ids);
    return ok;
}

static void post_detokenize(struct td_front *f, struct td_exchange *x)
{
    struct td_refusal no;
    struct td_ask ask;
    struct td_buf text, b;
    size_t n;
    const char *body = td_exchange_body(x, &n);
    td_buf_init(&text, TD_MAX_TEXT);
    td_buf_init(&b, 8 * (size_t)TD_MAX_TEXT);
    if (!td_ask_begin(&ask, f->params.served, body, n, &no) ||
        !read_tokens(f->params.served, ask.body, &text, &no)) {
        td_refuse_exchange(x, &no);
    } else {
        td_buf_adds(&b, "{\"prompt\":");
        td_json_add_string(&b, text.p, text.len);
        td_buf_addc(&b, '}');
        reply_json(x, 200, &b);
    }
    td_ask_release(&ask);
    td_buf_release(&text);
    td_buf_release(&b);
}

/* ---- answers ----------------------------------------------------------------------- */

typedef bool (*ask_fn)(struct td_ask *a, const struct td_served *m, const char *body,
                       size_t n, struct td_refusal *no);

static void post_ask(struct td_front *f, struct td_exchange *x, ask_fn parse)
{
    struct td_refusal no;
    struct td_ask ask;
    size_t n;
    const char *body = td_exchange_body(x, &n);
    const char *id = td_exchange_header(x, "X-Request-Id");
    if (id)
        td_exchange_add_header(x, "X-Request-Id", id);
    if (parse(&ask, f->params.served, body, n, &no)) {
        td_job_accept(f, x, &ask);
        return;
    }
    td_ask_release(&ask);
    td_refuse_exchange(x, &no);
    (void)pthread_mutex_lock(&f->lock);
    f->metrics.refused++;
    (void)pthread_mutex_unlock(&f->lock);
}

static void post_chat(struct td_front *f, struct td_exchange *x)
{
    post_ask(f, x, td_ask_chat);
}

static void post_completion(struct td_front *f, struct td_exchange *x)
{
    post_ask(f, x, td_ask_completion);
}

/* ---- the table --------------------------------------------------------------------- */

static const struct route routes[] = {
    {"/", "GET", false, false, get_page},
    {"/livez", "GET", false, false, get_livez},
    {"/readyz", "GET", false, false, get_readyz},
    {"/health", "GET", false, false, get_readyz},
    {"/startupz", "GET", false, false, get_startupz},
    {"/version", "GET", false, false, get_version},
    {"/metrics", "GET", false, false, get_metrics},
    {"/tandem/status", "GET", false, false, get_status},
    {"/v1/models", "GET", true, true, get_models},
    {"/v1/models/*", "GET", true, true, get_model},
    {"/v1/chat/completions", "POST", true, true, post_chat},
    {"/v1/completions", "POST", true, true, post_completion},
    {"/tokenize", "POST", true, true, post_tokenize},
    {"/detokenize", "POST", true, true, post_detokenize},
};

static bool path_matches(const char *pattern, const char *path)
{
    size_t n = strlen(pattern);
    if (pattern[n - 1] == '*')
        return strncmp(pattern, path, n - 1) == 0;
    return strcmp(pattern, path) == 0;
}

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < TD_COUNT(routes); i++)
        if (path_matches(routes[i].path, path))
            return &routes[i];
    return NULL;
}

/* Takes the same time wherever two texts differ. */
static bool is_same(const char *given, const char *key)
{
    size_t n = strlen(given), m = strlen(key);
    unsigned char diff = n != m;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(given[i] ^ key[m ? i % m : 0]);
    return diff == 0;
}

static bool knows_key(const struct td_front *f, const struct td_exchange *x)
{
    const char *bearer = td_exchange_header(x, "Authorization");
    const char *plain = td_exchange_header(x, "X-Api-Key");
    bool ok = plain && is_same(plain, f->params.key);
    return ok || (bearer && strncmp(bearer, "Bearer ", 7) == 0 &&
                  is_same(bearer + 7, f->params.key));
}

static bool is_method(const struct route *r, const char *method)
{
    return strcmp(r->method, method) == 0 ||
           (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static bool is_too_long(const struct td_front *f, const struct td_exchange *x)
{
    const char *length = td_exchange_header(x, "Content-Length");
    return length && strtoull(length, NULL, 10) > f->params.max_body;
}

void td_front_head(void *self, struct td_exchange *x)
{
    struct td_front *f = self;
    const struct route *r = find_route(td_exchange_path(x));
    const char *method = td_exchange_method(x);
    struct td_refusal no;
    bool ok = false;
    if (!r) {
        td_refuse(&no, 404, NULL, "there is no %.10s %.200s here", method,
                  td_exchange_path(x));
    } else if (!is_method(r, method)) {
        td_exchange_add_header(x, "Allow", r->method);
        td_refuse(&no, 405, NULL, "%s takes %s only", r->path, r->method);
    } else if (r->keyed && f->params.key && !knows_key(f, x)) {
        td_exchange_add_header(x, "WWW-Authenticate", "Bearer");
        td_refuse(&no, 401, NULL, "the API key is missing or wrong");
        no.type = "authentication_error";
        no.code = "invalid_api_key";
    } else if (is_too_long(f, x)) {
        td_refuse(&no, 413, NULL, "the request's body is larger than %zu bytes",
                  f->params.max_body);
        no.code = "too_large";
    } else {
        ok = true;
    }
    if (!ok)
        td_refuse_exchange(x, &no);
}

void td_front_handle(void *self, struct td_exchange *x)
{
    struct td_front *f = self;
    const struct route *r = find_route(td_exchange_path(x));
    if (r->ready && !is_ready(f))
        reply_not_ready(f, x);
    else
        r->fn(f, x);
}

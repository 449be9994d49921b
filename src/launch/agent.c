/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's loop, and the pieces of its protocol that both sides use. See agent.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "launch/agent.h"

#include "base/clock.h"
#include "base/mem.h"
#include "plan/speed.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 65536, IDLE_MS = 120000, MOST_SECONDS = 30 };

struct agent {
    int in, out;
    const char *build, *version;
    struct td_listener *listener;
    struct td_buf answer;
};

/* ---- members ------------------------------------------------------------------------ */

static void put_text(struct td_buf *b, const char *key, const char *text)
{
    td_buf_addf(b, "\"%s\":", key);
    td_json_add_string(b, text, strlen(text));
}

enum td_status td_agent_put_error(struct td_buf *out, const struct td_error *e)
{
    td_buf_adds(out, "\"error\":{");
    put_text(out, "code", td_status_info(e->code)->slug);
    td_buf_addc(out, ',');
    put_text(out, "what", e->what);
    td_buf_addc(out, ',');
    put_text(out, "why", e->why);
    td_buf_addc(out, ',');
    put_text(out, "fix", e->fix);
    return td_buf_addc(out, '}');
}

void td_agent_get_error(const json_t *o, struct td_error *out)
{
    const json_t *e = json_object_get(o, "error");
    const char *code = json_string_value(json_object_get(e, "code"));
    const char *what = json_string_value(json_object_get(e, "what"));
    const char *why = json_string_value(json_object_get(e, "why"));
    const char *fix = json_string_value(json_object_get(e, "fix"));
    if (!e)
        return;
    enum td_status s = TD_E_PEER;
    for (int k = TD_OK + 1; code && k < TD_STATUS_COUNT; k++)
        if (strcmp(td_status_info((enum td_status)k)->slug, code) == 0)
            s = (enum td_status)k;
    td_error_set(out, s, "%s", what ? what : "an error without words");
    if (why)
        td_error_why(out, "%s", why);
    if (fix)
        td_error_fix(out, "%s", fix);
}

enum td_status td_agent_put_link(struct td_buf *out, const struct td_link *l)
{
    return td_buf_addf(out,
                       "\"link\":{\"latency_us\":%.3f,\"exchange_us\":%.3f,"
                       "\"gbytes\":%.6f,\"path_mtu\":%" PRId64 "}",
                       l->latency_us, l->exchange_us, l->gbytes, l->path_mtu);
}

enum td_status td_agent_get_link(const json_t *o, struct td_link *out,
                                 struct td_error *err)
{
    const json_t *l = json_object_get(o, "link");
    enum td_status s =
        td_json_double(l, "latency_us", "link", 0, 1e9, 0, &out->latency_us, err);
    if (s == TD_OK)
        s = td_json_double(l, "exchange_us", "link", 0, 1e9, 0, &out->exchange_us, err);
    if (s == TD_OK)
        s = td_json_double(l, "gbytes", "link", 0, 1e6, 0, &out->gbytes, err);
    if (s == TD_OK)
        s = td_json_int(l, "path_mtu", "link", 0, 1 << 20, 0, &out->path_mtu, err);
    return s;
}

/* A text of fixed size that has to be there. */
static enum td_status get_text(const json_t *o, const char *key, char *out, size_t size,
                               struct td_error *err)
{
    const char *text;
    enum td_status s = td_json_str(o, key, "request", "", &text, err);
    if (s != TD_OK)
        return s;
    if (!*text || strlen(text) >= size)
        return td_error_set(err, TD_E_INPUT, "request: %s is missing or too long", key);
    td_text_copy(out, size, text);
    return TD_OK;
}

static enum td_status get_target(const json_t *o, struct td_target *t,
                                 struct td_error *err)
{
    int64_t data, oob;
    enum td_status s = get_text(o, "from", t->from, sizeof(t->from), err);
    if (s == TD_OK)
        s = get_text(o, "to", t->to, sizeof(t->to), err);
    if (s == TD_OK)
        s = get_text(o, "token", t->token, sizeof(t->token), err);
    if (s == TD_OK)
        s = td_json_int(o, "data", "request", 1, 65535, 0, &data, err);
    if (s == TD_OK)
        s = td_json_int(o, "oob", "request", 1, 65535, 0, &oob, err);
    if (s == TD_OK && strlen(t->token) != TD_TOKEN_BYTES)
        s = td_error_set(err, TD_E_INPUT, "request: token has the wrong length");
    if (s == TD_OK)
        t->ports = (struct td_ports){(int)data, (int)oob};
    return s;
}

/* ---- requests ----------------------------------------------------------------------- */

static enum td_status do_facts(struct agent *a, const json_t *o, struct td_error *err)
{
    const char *model;
    bool name;
    enum td_status s = td_json_str(o, "model", "request", "", &model, err);
    if (s == TD_OK)
        s = td_json_bool(o, "name", "request", false, &name, err);
    if (s != TD_OK)
        return s;
    struct td_facts *f = td_calloc(1, sizeof(*f));
    if (!f)
        return td_error_set(err, TD_E_NOMEM, "no memory for the facts of this host");
    td_text_copy(f->build, sizeof(f->build), a->build);
    td_text_copy(f->version, sizeof(f->version), a->version);
    td_facts_read("", f);
    if (name)
        td_facts_read_name(f);
    if (*model)
        td_model_files_read(model, f);
    td_buf_adds(&a->answer, "{\"facts\":");
    td_facts_put(&a->answer, f);
    td_buf_addc(&a->answer, '}');
    td_facts_release(f);
    td_free(f);
    return TD_OK;
}

static enum td_status do_rates(struct agent *a, const json_t *o, struct td_error *err)
{
    const char *model;
    struct td_plan_rates r;
    enum td_status s = td_json_str(o, "model", "request", "", &model, err);
    if (s != TD_OK)
        return s;
    td_plan_rates_measure(model, NULL, &r);
    td_buf_addf(&a->answer, "{\"memory\":%.0f,\"disk\":%.0f,", r.memory, r.disk);
    put_text(&a->answer, "disk_how", r.disk_how);
    td_buf_addc(&a->answer, '}');
    return TD_OK;
}

static enum td_status do_clock(struct agent *a, const json_t *o, struct td_error *err)
{
    (void)o;
    (void)err;
    td_buf_addf(&a->answer, "{\"clock\":%.6f}", td_clock_wall());
    return TD_OK;
}

static enum td_status do_listen(struct agent *a, const json_t *o, struct td_error *err)
{
    char token[TD_TOKEN_BYTES + 1];
    struct td_ports ports = {0, 0};
    enum td_status s = get_text(o, "token", token, sizeof(token), err);
    if (s == TD_OK && a->listener)
        s = td_error_set(err, TD_E_INPUT, "request: this agent listens already");
    if (s == TD_OK)
        s = td_listener_new(token, &a->listener, &ports, err);
    if (s == TD_OK)
        td_buf_addf(&a->answer, "{\"data\":%d,\"oob\":%d}", ports.data, ports.oob);
    return s;
}

static enum td_status do_connect(struct agent *a, const json_t *o, struct td_error *err)
{
    const json_t *list = json_object_get(o, "targets");
    size_t n = json_array_size(list);
    double seconds;
    bool hurry;
    enum td_status s =
        td_json_double(o, "seconds", "request", 0, MOST_SECONDS, 1, &seconds, err);
    if (s == TD_OK)
        s = td_json_bool(o, "hurry", "request", false, &hurry, err);
    if (s != TD_OK)
        return s;
    if (n > TD_MAX_TARGETS)
        return td_error_set(err, TD_E_LIMIT, "request: more than %d targets",
                            TD_MAX_TARGETS);
    struct td_target *t = td_calloc(n + 1, sizeof(*t));
    if (!t)
        return td_error_set(err, TD_E_NOMEM, "no memory for %zu targets", n);
    for (size_t i = 0; i < n && s == TD_OK; i++)
        s = get_target(json_array_get(list, i), &t[i], err);
    if (s == TD_OK)
        td_probe_connect(t, (int)n, seconds, hurry);
    td_buf_adds(&a->answer, "{\"reach\":[");
    for (size_t i = 0; i < n; i++)
        td_buf_addf(&a->answer, "%s{\"reach\":\"%s\",\"alive\":%s,\"port\":%d}",
                    i ? "," : "", td_reach_name(t[i].reach),
                    t[i].alive ? "true" : "false", t[i].port);
    td_buf_adds(&a->answer, "]}");
    td_free(t);
    return s;
}

static enum td_status do_measure(struct agent *a, const json_t *o, struct td_error *err)
{
    struct td_target t = {.port = 0};
    struct td_link link;
    struct td_error failed;
    double seconds;
    td_error_init(&failed);
    enum td_status s = get_target(o, &t, err);
    if (s == TD_OK)
        s = td_json_double(o, "seconds", "request", 0, MOST_SECONDS, 1, &seconds, err);
    if (s != TD_OK)
        return s;
    (void)td_probe_measure(&t, seconds, &link, &failed);
    td_buf_addc(&a->answer, '{');
    td_agent_put_link(&a->answer, &link);
    if (failed.code != TD_OK) {
        td_buf_addc(&a->answer, ',');
        td_agent_put_error(&a->answer, &failed);
    }
    td_buf_addc(&a->answer, '}');
    return TD_OK;
}

static enum td_status perform(struct agent *a, const char *line, size_t n,
                              struct td_error *err)
{
    static const struct {
        const char *name;
        enum td_status (*run)(struct agent *a, const json_t *o, struct td_error *err);
    } verbs[] = {{"facts", do_facts},     {"rates", do_rates},
                 {"clock", do_clock},     {"listen", do_listen},
                 {"connect", do_connect}, {"measure", do_measure}};
    json_t *o = NULL;
    const char *what = "";
    enum td_status s = td_json_parse(line, n, "request", &o, err);
    if (s == TD_OK && !json_is_object(o))
        s = td_error_set(err, TD_E_INPUT, "request: an object was expected");
    if (s == TD_OK)
        s = td_json_str(o, "do", "request", "", &what, err);
    size_t k = 0;
    while (k < TD_COUNT(verbs) && strcmp(verbs[k].name, what) != 0)
        k++;
    if (s == TD_OK && k == TD_COUNT(verbs))
        s = td_error_set(err, TD_E_INPUT, "request: \"do\" is \"%.40s\"", what);
    if (s == TD_OK)
        s = verbs[k].run(a, o, err);
    json_decref(o);
    return s;
}

/* ---- the loop ----------------------------------------------------------------------- */

static enum td_status write_answer(struct agent *a, struct td_error *err)
{
    td_buf_addc(&a->answer, '\n');
    if (a->answer.status != TD_OK)
        return td_error_set(err, a->answer.status, "an answer is too large");
    for (size_t at = 0; at < a->answer.len;) {
        ssize_t n = write(a->out, a->answer.p + at, a->answer.len - at);
        if (n < 0 && errno != EINTR)
            return td_error_set(err, TD_E_IO, "cannot answer: %s", strerror(errno));
        at += (size_t)TD_MAX(n, 0);
    }
    td_buf_clear(&a->answer);
    return TD_OK;
}

static enum td_status answer_line(struct agent *a, const char *line, size_t n,
                                  struct td_error *err)
{
    struct td_error failed;
    td_error_init(&failed);
    if (perform(a, line, n, &failed) != TD_OK) {
        td_buf_clear(&a->answer);
        td_buf_addc(&a->answer, '{');
        td_agent_put_error(&a->answer, &failed);
        td_buf_addc(&a->answer, '}');
    }
    return write_answer(a, err);
}

/* Reads a piece; TD_E_CANCELLED at the end of the input. */
static enum td_status read_more(struct agent *a, struct td_buf *in,
                                struct td_error *err)
{
    struct pollfd p = {.fd = a->in, .events = POLLIN};
    if (td_buf_reserve(in, PIECE) != TD_OK)
        return td_error_set(err, in->status, "a request is longer than %lld bytes",
                            (long long)TD_MAX_AGENT_LINE);
    int ready = poll(&p, 1, IDLE_MS);
    if (ready == 0 || (ready < 0 && errno != EINTR))
        return TD_E_CANCELLED;
    ssize_t n = ready < 0 ? 0 : read(a->in, in->p + in->len, PIECE);
    if (ready > 0 && (n == 0 || (n < 0 && errno != EINTR)))
        return TD_E_CANCELLED;
    td_buf_set_len(in, in->len + (size_t)TD_MAX(n, 0));
    return TD_OK;
}

enum td_status td_agent_run(int in, int out, const char *build, const char *version,
                            struct td_error *err)
{
    struct agent a = {.in = in, .out = out, .build = build, .version = version};
    struct td_buf lines;
    td_buf_init(&lines, TD_MAX_AGENT_LINE);
    td_buf_init(&a.answer, TD_MAX_AGENT_LINE);
    td_buf_addf(&a.answer, "{\"tandem\":%d,", TD_AGENT_PROTOCOL);
    put_text(&a.answer, "build", build);
    td_buf_addc(&a.answer, ',');
    put_text(&a.answer, "version", version);
    td_buf_addc(&a.answer, '}');
    enum td_status s = write_answer(&a, err);
    while (s == TD_OK) {
        const char *end = lines.len ? memchr(lines.p, '\n', lines.len) : NULL;
        if (end) {
            size_t n = (size_t)(end - lines.p);
            s = answer_line(&a, lines.p, n, err);
            td_buf_drop(&lines, n + 1);
        } else {
            s = read_more(&a, &lines, err);
        }
    }
    td_listener_free(a.listener);
    td_buf_release(&lines);
    td_buf_release(&a.answer);
    return s == TD_E_CANCELLED ? TD_OK : s;
}

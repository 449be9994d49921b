/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of answers. See reply.h.
 */
#include "api/reply.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const double LOWEST = -9999; /* JSON has no minus infinity */

static void quote(struct td_buf *b, const char *s, size_t n)
{
    td_json_add_string(b, s, n);
}

void td_reply_text(struct td_buf *b, const char *name, const char *text)
{
    td_buf_addf(b, "%s\"%s\":", b->len > 0 && b->p[b->len - 1] == '{' ? "" : ",", name);
    quote(b, text, strlen(text));
}

void td_reply_ids(struct td_buf *b, const int32_t *ids, size_t n)
{
    td_buf_addc(b, '[');
    for (size_t i = 0; i < n; i++)
        td_buf_addf(b, i ? ",%" PRId32 : "%" PRId32, ids[i]);
    td_buf_addc(b, ']');
}

void td_reply_error(struct td_buf *b, const struct td_refusal *no)
{
    td_buf_adds(b, "{\"error\":{");
    td_reply_text(b, "message", no->message);
    td_reply_text(b, "type", no->type);
    if (*no->param)
        td_reply_text(b, "param", no->param);
    else
        td_buf_adds(b, ",\"param\":null");
    if (no->code)
        td_reply_text(b, "code", no->code);
    else
        td_buf_adds(b, ",\"code\":null");
    td_buf_adds(b, "}}");
}

/* ---- log probabilities -------------------------------------------------------------- */

static const char *token_bytes(const struct td_reply *r, int32_t id, size_t *n)
{
    const char *p = td_tokenizer_token(r->served->tokenizer, id, n);
    if (!p)
        *n = 0;
    return p ? p : "";
}

static void number(struct td_buf *b, float logprob)
{
    double d = (double)logprob;
    td_buf_addf(b, "%.9g", isfinite(d) ? d : LOWEST);
}

/* One token of a chat: {"token","logprob","bytes" without its closing brace. */
static void chat_token(struct td_buf *b, const struct td_reply *r, int32_t id,
                       float logprob)
{
    size_t n;
    const char *p = token_bytes(r, id, &n);
    td_buf_adds(b, "{\"token\":");
    quote(b, p, n);
    td_buf_adds(b, ",\"logprob\":");
    number(b, logprob);
    td_buf_adds(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        td_buf_addf(b, i ? ",%d" : "%d", (unsigned char)p[i]);
    td_buf_addc(b, ']');
}

static void chat_scores(struct td_buf *b, const struct td_reply *r,
                        const struct td_voice *v, size_t from)
{
    const struct td_scores *s = &v->scores;
    td_buf_adds(b, "{\"content\":[");
    for (size_t i = from; i < s->n; i++) {
        const struct td_scored *t = &s->list[i];
        td_buf_adds(b, i > from ? "," : "");
        chat_token(b, r, t->id, t->logprob);
        td_buf_adds(b, ",\"top_logprobs\":[");
        for (int32_t k = 0; k < t->n_top; k++) {
            const struct td_logprob *top = &s->top[t->first_top + k];
            td_buf_adds(b, k ? "," : "");
            chat_token(b, r, top->id, top->logprob);
            td_buf_addc(b, '}');
        }
        td_buf_adds(b, "]}");
    }
    td_buf_adds(b, "],\"refusal\":null}");
}

/* Tokens of a completion: the prompt's when they are echoed, then the answer's. */
struct span {
    const struct td_scores *s;
    size_t from;
};

static void completion_tops(struct td_buf *b, const struct td_reply *r,
                            const struct td_scores *s, const struct td_scored *t)
{
    if (t->none) {
        td_buf_adds(b, "null");
        return;
    }
    td_buf_addc(b, '{');
    bool has = false;
    for (int32_t k = 0; k < t->n_top; k++) {
        const struct td_logprob *top = &s->top[t->first_top + k];
        size_t n;
        const char *p = token_bytes(r, top->id, &n);
        td_buf_adds(b, k ? "," : "");
        quote(b, p, n);
        td_buf_addc(b, ':');
        number(b, top->logprob);
        has = has || top->id == t->id;
    }
    if (!has) { /* the chosen token is always there */
        size_t n;
        const char *p = token_bytes(r, t->id, &n);
        td_buf_adds(b, t->n_top > 0 ? "," : "");
        quote(b, p, n);
        td_buf_addc(b, ':');
        number(b, t->logprob);
    }
    td_buf_addc(b, '}');
}

static void completion_field(struct td_buf *b, const struct td_reply *r,
                             const struct td_scores *s, const struct td_scored *t,
                             int field)
{
    size_t n;
    if (field == 0) {
        const char *p = token_bytes(r, t->id, &n);
        quote(b, p, n);
    } else if (field == 1 && t->none) {
        td_buf_adds(b, "null");
    } else if (field == 1) {
        number(b, t->logprob);
    } else if (field == 2) {
        completion_tops(b, r, s, t);
    } else {
        td_buf_addf(b, "%" PRIu64, t->offset);
    }
}

static void completion_scores(struct td_buf *b, const struct td_reply *r,
                              const struct span *spans, int n)
{
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs",
                                        "text_offset"};
    td_buf_addc(b, '{');
    for (int f = 0; f < (int)TD_COUNT(names); f++) {
        bool any = false;
        td_buf_addf(b, "%s\"%s\":[", f ? "," : "", names[f]);
        for (int k = 0; k < n; k++)
            for (size_t i = spans[k].from; i < spans[k].s->n; i++) {
                td_buf_adds(b, any ? "," : "");
                completion_field(b, r, spans[k].s, &spans[k].s->list[i], f);
                any = true;
            }
        td_buf_addc(b, ']');
    }
    td_buf_addc(b, '}');
}

/* "id": {"logprob", "rank", "decoded_token"} */
static void prompt_entry(struct td_buf *b, const struct td_reply *r, int32_t id,
                         float logprob, int32_t rank)
{
    size_t n;
    const char *p = token_bytes(r, id, &n);
    td_buf_addf(b, "\"%" PRId32 "\":{\"logprob\":", id);
    number(b, logprob);
    td_buf_addf(b, ",\"rank\":%" PRId32 ",\"decoded_token\":", rank);
    quote(b, p, n);
    td_buf_addc(b, '}');
}

/* vLLM's prompt_logprobs: for each position null, or the token and its alternatives. */
static void prompt_scores(struct td_buf *b, const struct td_reply *r,
                          const struct td_voice *v)
{
    const struct td_scores *s = &v->given;
    td_buf_addc(b, '[');
    for (size_t i = 0; i < s->n; i++) {
        const struct td_scored *t = &s->list[i];
        const struct td_logprob *top = s->top + t->first_top;
        td_buf_adds(b, i ? "," : "");
        if (t->none) {
            td_buf_adds(b, "null");
            continue;
        }
        td_buf_addc(b, '{');
        prompt_entry(b, r, t->id, t->logprob, t->rank);
        for (int32_t k = 0; k < t->n_top; k++)
            if (top[k].id != t->id) {
                td_buf_addc(b, ',');
                prompt_entry(b, r, top[k].id, top[k].logprob, k + 1);
            }
        td_buf_addc(b, '}');
    }
    td_buf_addc(b, ']');
}

static void scores(struct td_buf *b, const struct td_reply *r, const struct td_voice *v,
                   bool first, size_t from)
{
    td_buf_adds(b, ",\"logprobs\":");
    if (!r->ask->logprobs) {
        td_buf_adds(b, "null");
    } else if (r->ask->chat) {
        chat_scores(b, r, v, from);
    } else {
        struct span spans[2] = {{&v->given, 0}, {&v->scores, from}};
        bool both = first && r->ask->echo;
        completion_scores(b, r, both ? spans : spans + 1, both ? 2 : 1);
    }
}

/* ---- parts ------------------------------------------------------------------------- */

static void usage_object(struct td_buf *b, const struct td_usage *u)
{
    td_buf_addf(b,
                "{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
                ",\"total_tokens\":%" PRId64 ",\"prompt_tokens_details\":"
                "{\"cached_tokens\":%" PRId64 "},\"completion_tokens_details\":"
                "{\"reasoning_tokens\":%" PRId64 "}}",
                u->prompt, u->completion, u->prompt + u->completion, u->cached,
                u->reasoning);
}

static void begin(struct td_buf *b, const struct td_reply *r, const char *object)
{
    td_buf_adds(b, "{");
    td_reply_text(b, "id", r->id);
    td_reply_text(b, "object", object);
    td_buf_addf(b, ",\"created\":%" PRId64, r->created);
    td_reply_text(b, "model", r->served->name);
}

static const char *finish_name(enum td_finish f)
{
    return f == TD_FINISHED_LENGTH  ? "\"length\""
           : f == TD_FINISHED_CALLS ? "\"tool_calls\""
           : f == TD_FINISHED_STOP  ? "\"stop\""
                                    : "null";
}

/* The model's own ends are no reason to give, those that the request named are. */
static bool is_asked_stop(const struct td_sampling *s, int32_t id)
{
    for (size_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == id)
            return true;
    return false;
}

static void finish(struct td_buf *b, const struct td_voice *v, bool last)
{
    td_buf_addf(b, ",\"finish_reason\":%s", last ? finish_name(v->finish) : "null");
    if (!last)
        return;
    td_buf_adds(b, ",\"stop_reason\":");
    if (v->stop_string >= 0)
        quote(b, v->ask->stops.text[v->stop_string], v->ask->stops.len[v->stop_string]);
    else if (is_asked_stop(&v->ask->sampling, v->stop_id))
        td_buf_addf(b, "%" PRId32, v->stop_id);
    else
        td_buf_adds(b, "null");
}

static void call_id(struct td_buf *b, const struct td_reply *r, int index, int i)
{
    td_buf_addf(b, "\"id\":\"call_%s%03x%03x\",\"type\":\"function\"", r->call_seed,
                (unsigned)index, (unsigned)i);
}

static void reasoning(struct td_buf *b, const char *text, size_t n)
{
    static const char *const names[] = {"reasoning_content", "reasoning"};
    for (int i = 0; i < 2; i++) {
        td_buf_addf(b, "%s\"%s\":", b->p[b->len - 1] == '{' ? "" : ",", names[i]);
        quote(b, text, n);
    }
}

/* ---- pieces ------------------------------------------------------------------------ */

static void new_calls(struct td_buf *b, const struct td_reply *r,
                      const struct td_voice *v, int index)
{
    const struct td_parts *p = &v->parts;
    int old = v->sent.calls;
    bool any = false;
    for (int i = old > 0 ? old - 1 : 0; i < p->n_calls; i++) {
        const struct td_call *c = &p->call[i];
        size_t from = i < old ? v->sent.args : 0;
        if (c->name.len == 0 || (i < old && c->args.len == from))
            continue;
        td_buf_adds(b, any                       ? ","
                       : b->p[b->len - 1] == '{' ? "\"tool_calls\":["
                                                 : ",\"tool_calls\":[");
        td_buf_addf(b, "{\"index\":%d,", i);
        if (i >= old) {
            call_id(b, r, index, i);
            td_buf_adds(b, ",\"function\":{\"name\":");
            quote(b, c->name.p, c->name.len);
            td_buf_adds(b, ",\"arguments\":");
        } else {
            td_buf_adds(b, "\"function\":{\"arguments\":");
        }
        quote(b, c->args.p + from, c->args.len - from);
        td_buf_adds(b, "}}");
        any = true;
    }
    td_buf_adds(b, any ? "]" : "");
}

static void delta(struct td_buf *b, const struct td_reply *r, const struct td_voice *v,
                  int index, bool first)
{
    const struct td_buf *thoughts = &v->parts.text[TD_PART_REASONING];
    const struct td_buf *content = &v->parts.text[TD_PART_CONTENT];
    size_t t = v->sent.text[TD_PART_REASONING], c = v->sent.text[TD_PART_CONTENT];
    td_buf_adds(b, ",\"delta\":{");
    if (first)
        td_buf_adds(b, "\"role\":\"assistant\"");
    if (thoughts->len > t)
        reasoning(b, thoughts->p + t, thoughts->len - t);
    if (content->len > c || (first && thoughts->len == 0)) {
        td_buf_adds(b, b->p[b->len - 1] == '{' ? "\"content\":" : ",\"content\":");
        quote(b, content->p + c, content->len - c);
    }
    new_calls(b, r, v, index);
    td_buf_addc(b, '}');
}

void td_reply_chunk(struct td_buf *b, const struct td_reply *r,
                    const struct td_voice *v, int index, bool first, bool last,
                    const struct td_usage *usage)
{
    const struct td_buf *text = &v->parts.text[TD_PART_CONTENT];
    td_buf_adds(b, "data: ");
    begin(b, r, r->ask->chat ? "chat.completion.chunk" : "text_completion");
    if (first && r->ask->show_ids && r->ask->chat) {
        td_buf_adds(b, ",\"prompt_token_ids\":");
        td_reply_ids(b, v->prompt->ids.p, v->prompt->ids.len);
    }
    td_buf_addf(b, ",\"choices\":[{\"index\":%d", index);
    if (r->ask->chat) {
        delta(b, r, v, index, first);
    } else {
        size_t from = v->sent.text[TD_PART_CONTENT];
        td_buf_adds(b, ",\"text\":");
        quote(b, text->p + from, text->len - from);
        if (first && r->ask->show_ids) {
            td_buf_adds(b, ",\"prompt_token_ids\":");
            td_reply_ids(b, v->prompt->ids.p, v->prompt->ids.len);
        }
    }
    scores(b, r, v, first, v->sent.scores);
    if (r->ask->show_ids) {
        td_buf_adds(b, ",\"token_ids\":");
        td_reply_ids(b, v->ids.p + v->sent.ids, v->ids.len - v->sent.ids);
    }
    finish(b, v, last);
    td_buf_adds(b, "}]");
    if (usage && r->ask->running_usage) {
        td_buf_adds(b, ",\"usage\":");
        usage_object(b, usage);
    } else if (r->ask->usage) {
        td_buf_adds(b, ",\"usage\":null");
    }
    td_buf_adds(b, "}\n\n");
}

void td_reply_usage_chunk(struct td_buf *b, const struct td_reply *r,
                          const struct td_usage *usage)
{
    td_buf_adds(b, "data: ");
    begin(b, r, r->ask->chat ? "chat.completion.chunk" : "text_completion");
    td_buf_adds(b, ",\"choices\":[],\"usage\":");
    usage_object(b, usage);
    td_buf_adds(b, "}\n\n");
}

/* ---- whole answers ----------------------------------------------------------------- */

static void calls(struct td_buf *b, const struct td_reply *r, const struct td_voice *v,
                  int index)
{
    const struct td_parts *p = &v->parts;
    td_buf_adds(b, ",\"tool_calls\":[");
    for (int i = 0; i < p->n_calls; i++) {
        td_buf_adds(b, i ? ",{" : "{");
        call_id(b, r, index, i);
        td_buf_adds(b, ",\"function\":{\"name\":");
        quote(b, p->call[i].name.p, p->call[i].name.len);
        td_buf_adds(b, ",\"arguments\":");
        quote(b, p->call[i].args.p, p->call[i].args.len);
        td_buf_adds(b, "}}");
    }
    td_buf_addc(b, ']');
}

static void message(struct td_buf *b, const struct td_reply *r,
                    const struct td_voice *v, int index)
{
    const struct td_buf *thoughts = &v->parts.text[TD_PART_REASONING];
    const struct td_buf *content = &v->parts.text[TD_PART_CONTENT];
    bool none = content->len == 0 && (thoughts->len > 0 || v->parts.n_calls > 0);
    td_buf_adds(b, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (none)
        td_buf_adds(b, "null");
    else
        quote(b, content->p, content->len);
    if (thoughts->len > 0)
        reasoning(b, thoughts->p, thoughts->len);
    else
        td_buf_adds(b, ",\"reasoning_content\":null,\"reasoning\":null");
    if (v->parts.n_calls > 0)
        calls(b, r, v, index);
    td_buf_adds(b, ",\"refusal\":null}");
}

static void choice(struct td_buf *b, const struct td_reply *r, const struct td_voice *v,
                   int index)
{
    const struct td_buf *text = &v->parts.text[TD_PART_CONTENT];
    td_buf_addf(b, "%s{\"index\":%d", index ? "," : "", index);
    if (r->ask->chat) {
        message(b, r, v, index);
    } else {
        td_buf_adds(b, ",\"text\":");
        quote(b, text->p, text->len);
    }
    scores(b, r, v, true, 0);
    if (r->ask->prompt_logprobs >= 0) {
        td_buf_adds(b, ",\"prompt_logprobs\":");
        prompt_scores(b, r, v);
    }
    if (r->ask->show_ids) {
        td_buf_adds(b, ",\"token_ids\":");
        td_reply_ids(b, v->ids.p, v->ids.len);
        if (!r->ask->chat) {
            td_buf_adds(b, ",\"prompt_token_ids\":");
            td_reply_ids(b, v->prompt->ids.p, v->prompt->ids.len);
        }
    }
    finish(b, v, true);
    td_buf_addc(b, '}');
}

void td_reply_whole(struct td_buf *b, const struct td_reply *r,
                    const struct td_voice *voices, int n, const struct td_usage *usage)
{
    begin(b, r, r->ask->chat ? "chat.completion" : "text_completion");
    if (r->ask->show_ids && r->ask->chat) {
        td_buf_adds(b, ",\"prompt_token_ids\":");
        td_reply_ids(b, voices->prompt->ids.p, voices->prompt->ids.len);
    }
    td_buf_adds(b, ",\"choices\":[");
    for (int i = 0; i < n; i++)
        choice(b, r, &voices[i], i);
    td_buf_adds(b, "],\"usage\":");
    usage_object(b, usage);
    td_buf_addc(b, '}');
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One answer on its way from token ids to text. See voice.h.
 */
#include "api/voice.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

enum td_status td_voice_init(struct td_voice *v, const struct td_served *served,
                             const struct td_ask *ask, const struct td_prompt *prompt)
{
    bool think = ask->chat && served->think_close >= 0;
    memset(v, 0, sizeof(*v));
    v->served = served;
    v->ask = ask;
    v->prompt = prompt;
    v->stop_string = v->stop_id = -1;
    td_detok_init(&v->detok, served->tokenizer,
                  ask->show_special ? TD_DECODE_ALL : TD_DECODE_SKIP_SPECIAL);
    td_stops_init(&v->stops, &ask->stops);
    td_parts_init(&v->parts, think, ask->tools, ask->chat ? prompt->first : 0);
    td_buf_init(&v->raw, TD_MAX_TEXT);
    td_buf_init(&v->shown, TD_MAX_TEXT);
    td_ids_init(&v->ids);
    if (!ask->echo)
        return TD_OK;
    v->status = td_tokenizer_decode(served->tokenizer, prompt->ids.p, prompt->ids.len,
                                    v->detok.flags, &v->parts.text[TD_PART_CONTENT]);
    return v->status;
}

static void scores_release(struct td_scores *s)
{
    td_free(s->list);
    td_free(s->top);
}

void td_voice_release(struct td_voice *v)
{
    td_stops_release(&v->stops);
    td_parts_release(&v->parts);
    td_buf_release(&v->raw);
    td_buf_release(&v->shown);
    td_ids_release(&v->ids);
    scores_release(&v->scores);
    scores_release(&v->given);
}

/* ---- scores ------------------------------------------------------------------------ */

static bool grow(void **list, size_t *cap, size_t need, size_t size)
{
    size_t more = TD_MAX(2 * *cap, TD_MAX(need, 16));
    if (need <= *cap)
        return true;
    void *p = td_realloc(*list, more, size);
    if (!p)
        return false;
    *list = p;
    *cap = more;
    return true;
}

static enum td_status add_score(struct td_scores *s, const struct td_wire_token *t,
                                uint64_t offset)
{
    void *list = s->list, *top = s->top;
    size_t n_top = t->n_top > 0 ? (size_t)t->n_top : 0;
    bool ok = grow(&list, &s->cap, s->n + 1, sizeof(*s->list));
    s->list = list;
    ok = ok && grow(&top, &s->cap_top, s->n_top + n_top, sizeof(*s->top));
    s->top = top;
    if (!ok)
        return TD_E_NOMEM;
    s->list[s->n++] = (struct td_scored){.id = t->id,
                                         .rank = t->rank,
                                         .first_top = (int32_t)s->n_top,
                                         .n_top = (int32_t)n_top,
                                         .logprob = t->logprob,
                                         .offset = offset};
    if (n_top)
        memcpy(s->top + s->n_top, t->top, n_top * sizeof(*t->top));
    s->n_top += n_top;
    return TD_OK;
}

static uint64_t count_chars(const char *s, size_t n)
{
    uint64_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    return chars;
}

/* Counts the characters of a prompt's token; they come before the answer's. */
static void pass_prompt_token(struct td_voice *v, int32_t id)
{
    td_buf_clear(&v->raw);
    td_detok_add(&v->detok, id, &v->raw);
    v->chars += count_chars(v->raw.p, v->raw.len);
}

enum td_status td_voice_given(struct td_voice *v,
                              const struct td_wire_prompt_logprobs *m)
{
    enum td_status s = TD_OK;
    if (v->given.n == 0) {
        struct td_wire_token none = {.id = v->prompt->ids.p[0]};
        s = add_score(&v->given, &none, 0);
        if (s == TD_OK)
            v->given.list[0].none = true;
        pass_prompt_token(v, none.id);
    }
    for (int32_t i = 0; i < m->n && s == TD_OK; i++) {
        if ((size_t)m->first + (size_t)i != v->given.n)
            continue;
        s = add_score(&v->given, &m->entries[i], v->chars);
        pass_prompt_token(v, m->entries[i].id);
    }
    return s;
}

/* ---- text -------------------------------------------------------------------------- */

static enum td_status first_bad(enum td_status a, enum td_status b)
{
    return a == TD_OK ? b : a;
}

/* What the stop strings let pass goes to the parts. */
static enum td_status pass_on(struct td_voice *v)
{
    enum td_status s = v->shown.status;
    if (s == TD_OK && v->shown.len)
        s = td_parts_add(&v->parts, v->shown.p, v->shown.len);
    td_buf_clear(&v->shown);
    return s;
}

static bool is_one_call_done(const struct td_voice *v)
{
    return v->ask->one_call && td_parts_calls_done(&v->parts) > 0;
}

enum td_status td_voice_add(struct td_voice *v, const struct td_wire_token *t)
{
    bool armed = (int64_t)v->ids.len + 1 > v->ask->sampling.min_tokens;
    bool thinking = v->parts.part == TD_PART_REASONING;
    enum td_status s = td_ids_add(&v->ids, t->id);
    if (v->ask->logprobs)
        s = first_bad(s, add_score(&v->scores, t, v->chars));
    td_buf_clear(&v->raw);
    s = first_bad(s, td_detok_add(&v->detok, t->id, &v->raw));
    v->chars += count_chars(v->raw.p, v->raw.len);
    s = first_bad(s, td_stops_add(&v->stops, v->raw.p, v->raw.len, armed, &v->shown));
    s = first_bad(s, pass_on(v));
    v->reasoning_tokens += thinking && v->parts.part == TD_PART_REASONING;
    if (v->stops.matched >= 0) {
        v->stop_string = v->stops.matched;
        s = first_bad(s, td_voice_end(v, TD_FINISHED_STOP, -1));
    } else if (is_one_call_done(v)) {
        s = first_bad(s, td_voice_end(v, TD_FINISHED_STOP, -1));
    }
    v->status = first_bad(v->status, s);
    return v->status;
}

enum td_status td_voice_end(struct td_voice *v, enum td_finish finish, int32_t stop_id)
{
    enum td_status s = TD_OK;
    if (v->finish != TD_FINISHED_NOT)
        return v->status;
    v->stop_id = stop_id;
    if (v->ask->prompt_logprobs >= 0 && v->given.n == 0) /* a prompt of one token */
        s = td_voice_given(v, &(struct td_wire_prompt_logprobs){.first = 1});
    td_buf_clear(&v->raw);
    if (v->stops.matched < 0 && !is_one_call_done(v)) {
        s = td_detok_flush(&v->detok, &v->raw);
        s = first_bad(s,
                      td_stops_add(&v->stops, v->raw.p, v->raw.len, true, &v->shown));
        if (v->stops.matched < 0)
            s = first_bad(s, td_stops_end(&v->stops, &v->shown));
        s = first_bad(s, pass_on(v));
    }
    s = first_bad(s, td_parts_end(&v->parts));
    v->finish =
        finish == TD_FINISHED_STOP && v->parts.n_calls > 0 ? TD_FINISHED_CALLS : finish;
    v->status = first_bad(v->status, s);
    return v->status;
}

/* ---- what is new ------------------------------------------------------------------- */

bool td_voice_has_news(const struct td_voice *v)
{
    const struct td_parts *p = &v->parts;
    bool text = p->text[0].len > v->sent.text[0] || p->text[1].len > v->sent.text[1];
    bool calls = false;
    for (int i = v->sent.calls > 0 ? v->sent.calls - 1 : 0; i < p->n_calls; i++)
        calls = calls || (i >= v->sent.calls ? p->call[i].name.len > 0
                                             : p->call[i].args.len > v->sent.args);
    return text || calls;
}

void td_voice_mark(struct td_voice *v)
{
    const struct td_parts *p = &v->parts;
    v->sent.text[0] = p->text[0].len;
    v->sent.text[1] = p->text[1].len;
    v->sent.calls = p->n_calls;
    /* a call is known by its name; before that it may turn out to be none */
    if (p->n_calls > 0 && p->call[p->n_calls - 1].name.len == 0)
        v->sent.calls--;
    v->sent.args = v->sent.calls > 0 ? p->call[v->sent.calls - 1].args.len : 0;
    v->sent.scores = v->scores.n;
    v->sent.ids = v->ids.len;
}

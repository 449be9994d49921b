/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation with a model on this host. See chat.h.
 *
 *     messages -> template -> text -> tokenizer -> ids -> generator -> ids -> split -> text
 *
 * The whole conversation is rendered and prefilled anew for each question: templates
 * may show earlier turns differently once a new one follows.
 */
#include "cmd/chat.h"

#include "base/utf8.h"

#include <string.h>

/* ---- the two parts of an answer ---------------------------------------------------- */

void td_split_init(struct td_split *s, const struct td_tokenizer *t)
{
    static const char open[] = "<think>", close[] = "</think>";
    memset(s, 0, sizeof(*s));
    s->tokenizer = t;
    s->open = td_tokenizer_find(t, open, sizeof(open) - 1);
    s->close = td_tokenizer_find(t, close, sizeof(close) - 1);
    s->part = TD_PART_ANSWER;
    td_buf_init(&s->raw, TD_MAX_TEXT);
    td_buf_init(&s->text[0], TD_MAX_TEXT);
    td_buf_init(&s->text[1], TD_MAX_TEXT);
    td_detok_init(&s->detok, t, TD_DECODE_SKIP_SPECIAL);
}

void td_split_release(struct td_split *s)
{
    td_buf_release(&s->raw);
    td_buf_release(&s->text[0]);
    td_buf_release(&s->text[1]);
}

void td_split_begin(struct td_split *s, const int32_t *prompt, size_t n)
{
    s->part = TD_PART_ANSWER;
    while (n > 0 && prompt[n - 1] != s->open && prompt[n - 1] != s->close)
        n--;
    if (n > 0 && prompt[n - 1] == s->open)
        s->part = TD_PART_REASONING;
    td_detok_init(&s->detok, s->tokenizer, TD_DECODE_SKIP_SPECIAL);
    for (int i = 0; i < 2; i++) {
        td_buf_clear(&s->text[i]);
        s->blank[i] = 0;
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Moves s->raw to the current part. White space at the part's start is dropped; at its
 * end it waits (already in the text, not yet counted as fresh). */
static enum td_status append(struct td_split *s, size_t *fresh)
{
    struct td_buf *text = &s->text[s->part];
    size_t *blank = &s->blank[s->part], skip = 0, before = text->len - *blank;
    if (text->len == 0)
        while (skip < s->raw.len && is_blank(s->raw.p[skip]))
            skip++;
    enum td_status st = td_buf_add(text, s->raw.p + skip, s->raw.len - skip);
    size_t end = text->len;
    while (end > before && is_blank(text->p[end - 1]))
        end--;
    *blank = text->len - end;
    *fresh = end - before;
    td_buf_clear(&s->raw);
    return st;
}

/* Drops the white space that turned out to be a part's end. */
static void close_part(struct td_split *s)
{
    struct td_buf *text = &s->text[s->part];
    td_buf_set_len(text, text->len - s->blank[s->part]);
    s->blank[s->part] = 0;
}

enum td_status td_split_add(struct td_split *s, int32_t id, enum td_part *part,
                            size_t *fresh)
{
    bool tag = id >= 0 && (id == s->open || id == s->close);
    enum td_status st =
        tag ? td_detok_flush(&s->detok, &s->raw) : td_detok_add(&s->detok, id, &s->raw);
    *part = s->part;
    if (st == TD_OK)
        st = append(s, fresh);
    if (tag) {
        close_part(s);
        s->part = id == s->open ? TD_PART_REASONING : TD_PART_ANSWER;
    }
    return st;
}

enum td_status td_split_end(struct td_split *s, enum td_part *part, size_t *fresh)
{
    enum td_status st = td_detok_flush(&s->detok, &s->raw);
    *part = s->part;
    if (st == TD_OK)
        st = append(s, fresh);
    close_part(s);
    return st;
}

/* ---- opening ------------------------------------------------------------------------- */

static enum td_status no_memory(struct td_error *err)
{
    return td_error_set(err, TD_E_NOMEM, "no memory for the conversation");
}

/* Adds {"role": role, "content": text}; *out, when given, is borrowed. */
static enum td_status add_message(json_t *messages, const char *role, const char *text,
                                  size_t n, json_t **out, struct td_error *err)
{
    if (!td_utf8_valid(text, n)) {
        size_t at = 0;
        for (size_t len = 1; at < n && len > 0; at += len)
            len = td_utf8_len(text + at, n - at);
        td_error_set(err, TD_E_INPUT, "the %s text is not valid UTF-8", role);
        td_error_why(err, "at its byte %zu no character begins", at);
        td_error_fix(err, "convert it, for example with iconv -t utf-8");
        return TD_E_INPUT;
    }
    json_t *content = json_stringn(text, n);
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (!m || json_array_append_new(messages, m) != 0)
        return no_memory(err);
    if (out)
        *out = m;
    return TD_OK;
}

static enum td_status add_eos(struct td_chat *c, int32_t id)
{
    struct td_sampling *s = &c->sampling;
    for (size_t i = 0; i < s->n_eos_ids; i++)
        if (c->eos[i] == id)
            return TD_OK;
    if (id < 0)
        return TD_OK;
    if (s->n_eos_ids == TD_COUNT(c->eos))
        return TD_E_LIMIT;
    c->eos[s->n_eos_ids++] = id;
    return TD_OK;
}

/* Sampling settings and ends as the model's files have them. */
static enum td_status read_defaults(struct td_chat *c, struct td_error *err)
{
    struct td_generation_defaults d;
    struct td_sampling *s = &c->sampling;
    enum td_status st = td_generation_defaults_read(c->model, &c->config, &d, err);
    td_sampling_default(s);
    if (st != TD_OK)
        return st;
    s->temperature = d.do_sample ? (float)d.temperature : 0;
    s->top_k = d.top_k;
    s->top_p = (float)d.top_p;
    s->min_p = (float)d.min_p;
    s->repetition_penalty = (float)d.repetition_penalty;
    s->eos_ids = c->eos;
    for (int i = 0; i < d.n_eos && st == TD_OK; i++)
        st = add_eos(c, d.eos[i]);
    if (st == TD_OK)
        st = add_eos(c, td_tokenizer_eos(c->tokenizer));
    return st == TD_OK
               ? TD_OK
               : td_error_set(err, TD_E_CONFIG, "%s names more than %d stop ids",
                              c->model, TD_MAX_STOP_IDS);
}

enum td_status td_chat_open(struct td_chat *c, const char *model, const char *system,
                            struct td_error *err)
{
    memset(c, 0, sizeof(*c));
    c->model = model;
    td_buf_init(&c->prompt, TD_MAX_TEXT);
    td_ids_init(&c->ids);
    enum td_status s = td_config_read(model, &c->config, err);
    if (s == TD_OK)
        s = td_tokenizer_load(model, &c->tokenizer, err);
    if (s == TD_OK)
        s = td_template_load(model, &c->template, err);
    if (s == TD_OK)
        s = read_defaults(c, err);
    if (s != TD_OK)
        return s;
    td_split_init(&c->split, c->tokenizer);
    c->messages = json_array();
    if (!c->messages)
        return no_memory(err);
    if (system)
        s = add_message(c->messages, "system", system, strlen(system), NULL, err);
    return s;
}

void td_chat_release(struct td_chat *c)
{
    td_generator_free(c->generator);
    td_engine_close(c->engine);
    td_template_free(c->template);
    if (c->tokenizer)
        td_split_release(&c->split);
    td_tokenizer_free(c->tokenizer);
    td_buf_release(&c->prompt);
    td_ids_release(&c->ids);
    json_decref(c->messages);
    memset(c, 0, sizeof(*c));
}

enum td_status td_chat_load(struct td_chat *c, const struct td_engine_params *params,
                            struct td_error *err)
{
    struct td_engine_params p = *params;
    int32_t vocab = (int32_t)TD_MIN((int64_t)td_tokenizer_size(c->tokenizer),
                                    (int64_t)c->config.vocab);
    p.model = c->model;
    p.vocab = vocab;
    enum td_status s = td_sampling_check(&c->sampling, vocab, err);
    if (s == TD_OK)
        s = td_engine_open(&p, &c->engine, err);
    if (s == TD_OK)
        s = td_generator_new(c->engine, vocab, &c->generator, err);
    return s;
}

/* ---- asking --------------------------------------------------------------------------- */

/* The variables that transformers passes to a template, and the end token's text. */
static json_t *template_context(const struct td_chat *c)
{
    size_t n = 0;
    int32_t eos = td_tokenizer_eos(c->tokenizer);
    const char *text = eos >= 0 ? td_tokenizer_token(c->tokenizer, eos, &n) : NULL;
    json_t *context = json_pack("{s:O, s:n, s:n, s:b}", "messages", c->messages,
                                "tools", "documents", "add_generation_prompt", 1);
    int failed = !context;
    if (context && text)
        failed |= json_object_set_new(context, "eos_token", json_stringn(text, n));
    if (context && c->thinking != TD_THINK_UNSAID)
        failed |= json_object_set_new(context, "enable_thinking",
                                      json_boolean(c->thinking == TD_THINK_ON));
    if (failed) {
        json_decref(context);
        return NULL;
    }
    return context;
}

static enum td_status make_prompt(struct td_chat *c, struct td_error *err)
{
    json_t *context = template_context(c);
    if (!context)
        return no_memory(err);
    td_buf_clear(&c->prompt);
    c->ids.len = 0;
    enum td_status s = td_template_render(c->template, context, &c->prompt, err);
    if (s == TD_OK)
        s = td_tokenizer_encode(c->tokenizer, c->prompt.p, c->prompt.len,
                                TD_ENCODE_SPECIAL, &c->ids, err);
    json_decref(context);
    if (s == TD_OK && c->ids.len == 0) {
        s = td_error_set(err, TD_E_TEMPLATE,
                         "the chat template of %s gives an empty text", c->model);
        td_error_why(err, "chat_template.jinja is empty, or made for other messages");
        td_error_fix(err, "fetch the model's chat_template.jinja again");
    }
    return s;
}

/* An answer on its way to the caller. */
struct stream {
    struct td_chat *chat;
    td_chat_fn fn;
    void *self;
    enum td_status status;
};

static bool pass_on(struct stream *st, enum td_part part, size_t fresh)
{
    const struct td_split *split = &st->chat->split;
    const struct td_buf *text = &split->text[part];
    if (st->status != TD_OK)
        return false;
    if (fresh == 0)
        return true;
    const char *from = text->p + text->len - split->blank[part] - fresh;
    return st->fn(st->self, part, from, fresh);
}

static bool on_token(void *self, const struct td_sampled *token)
{
    struct stream *st = self;
    enum td_part part;
    size_t fresh = 0;
    st->status = td_split_add(&st->chat->split, token->id, &part, &fresh);
    return pass_on(st, part, fresh);
}

/* A new question may be refused because of what was said before it. */
static enum td_status check_room(const struct td_chat *c, struct td_error *err)
{
    enum { ALONE = 2 }; /* the system's text, which there may be, and the question */
    struct td_engine_info info;
    td_engine_info(c->engine, &info);
    if (json_array_size(c->messages) <= ALONE || c->ids.len < (size_t)info.max_len)
        return TD_OK;
    td_error_set(err, TD_E_INPUT, "the conversation has %zu tokens", c->ids.len);
    td_error_why(err, "the context holds %ld, answers included", (long)info.max_len);
    if (info.plan.most_len > info.max_len)
        td_error_fix(err, "start over with /new; --max-model-len up to %ld holds more",
                     (long)info.plan.most_len);
    else
        td_error_fix(err, "start over with /new");
    return TD_E_INPUT;
}

static enum td_status generate(struct td_chat *c, struct stream *st,
                               const atomic_bool *cancel, struct td_generated *out,
                               struct td_error *err)
{
    struct td_generate_args args = {.prompt = c->ids.p,
                                    .n_prompt = (int32_t)c->ids.len,
                                    .max_tokens = c->max_tokens,
                                    .sampling = c->sampling,
                                    .on_token = on_token,
                                    .self = st,
                                    .cancel = cancel};
    enum td_part part;
    size_t fresh = 0;
    if (c->ids.len > INT32_MAX)
        return td_error_set(err, TD_E_LIMIT, "the prompt has %zu tokens", c->ids.len);
    td_split_begin(&c->split, c->ids.p, c->ids.len);
    enum td_status s = td_generate(c->generator, &args, out, err);
    if (s == TD_OK && st->status == TD_OK) {
        st->status = td_split_end(&c->split, &part, &fresh);
        (void)pass_on(st, part, fresh);
    }
    if (s == TD_OK && st->status != TD_OK)
        s = td_error_set(err, st->status, "the answer cannot be held");
    return s;
}

/* Makes the last answer part of the conversation. */
static enum td_status keep_answer(struct td_chat *c, struct td_error *err)
{
    const struct td_buf *thoughts = &c->split.text[TD_PART_REASONING];
    const struct td_buf *answer = &c->split.text[TD_PART_ANSWER];
    json_t *message;
    enum td_status s =
        add_message(c->messages, "assistant", answer->p, answer->len, &message, err);
    if (s == TD_OK && thoughts->len > 0 &&
        json_object_set_new(message, "reasoning_content",
                            json_stringn(thoughts->p, thoughts->len)) != 0)
        s = no_memory(err);
    return s;
}

enum td_status td_chat_ask(struct td_chat *c, const char *text, size_t n, td_chat_fn fn,
                           void *self, const atomic_bool *cancel,
                           struct td_generated *out, struct td_error *err)
{
    struct stream st = {c, fn, self, TD_OK};
    struct td_generated done;
    size_t before = json_array_size(c->messages);
    enum td_status s = add_message(c->messages, "user", text, n, NULL, err);
    if (s == TD_OK)
        s = make_prompt(c, err);
    if (s == TD_OK)
        s = check_room(c, err);
    if (s == TD_OK)
        s = generate(c, &st, cancel, &done, err);
    if (s == TD_OK)
        s = keep_answer(c, err);
    if (s == TD_OK && out)
        *out = done;
    while (s != TD_OK && json_array_size(c->messages) > before)
        (void)json_array_remove(c->messages, json_array_size(c->messages) - 1);
    return s;
}

void td_chat_forget(struct td_chat *c)
{
    const json_t *first = json_array_get(c->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    size_t keep = role && strcmp(role, "system") == 0 ? 1 : 0;
    while (json_array_size(c->messages) > keep)
        (void)json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

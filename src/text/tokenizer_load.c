/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads tokenizer.json and tokenizer_config.json. Nothing in them is trusted: kinds that
 * tandem does not read are refused by name, damage is reported with its place.
 */
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "text/tokenizer_int.h"

#include <stdio.h>
#include <string.h>

#define JSON_NAME   "tokenizer.json"
#define CONFIG_NAME "tokenizer_config.json"

/* GPT-2's pattern, which ByteLevel brings with it. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                                   "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct loader {
    struct td_tokenizer *t;
    const char *where; /* the file that is being read */
    struct td_buf a, b, joined;
    struct td_error *err;
    bool byte_level; /* the pre-tokenizer ByteLevel was seen */
};

static enum td_status unsupported(const struct loader *l, const char *what,
                                  const char *found)
{
    td_error_set(l->err, TD_E_TOKENIZER, "%s: %s is %.64s", l->where, what, found);
    td_error_why(l->err, "tandem reads byte-level BPE: normalizer NFC or none; "
                         "pre-tokenizers Split (Isolated), Digits, ByteLevel; decoder "
                         "ByteLevel; no tokens added around a text");
    td_error_fix(l->err, "use a model with such a tokenizer");
    return TD_E_TOKENIZER;
}

static enum td_status damaged(const struct loader *l, const char *what)
{
    td_error_set(l->err, TD_E_TOKENIZER, "%s: %s", l->where, what);
    td_error_why(l->err, "the file is damaged or was edited");
    return TD_E_TOKENIZER;
}

/* For failures of memory and limits on the way. */
static enum td_status cannot_hold(const struct loader *l, enum td_status s)
{
    return td_error_set(l->err, s, "%s: the tokenizer cannot be held in memory",
                        l->where);
}

/* The value's "type", or a word for what it is instead. */
static const char *kind_of(const json_t *v)
{
    const char *kind = json_string_value(json_object_get(v, "type"));
    if (!v || json_is_null(v))
        return "null";
    return kind ? kind : json_is_object(v) ? "of no type" : "no object";
}

static bool is_kind(const json_t *v, const char *kind)
{
    return strcmp(kind_of(v), kind) == 0;
}

/* Reads the bytes of a spelled token, of which there must be some. */
static bool unspell(const char *spelled, size_t n, struct td_buf *out)
{
    td_buf_clear(out);
    return td_vocab_unspell(spelled, n, out) && out->len;
}

/* The bytes that a token stands for. True when it is spelled in the alphabet; if not, it
 * stands for its own text. Failure of memory is the buffer's status. */
static bool bytes_of(const char *spelled, size_t n, struct td_buf *out)
{
    if (unspell(spelled, n, out))
        return true;
    if (out->status == TD_OK)
        td_buf_add(out, spelled, n);
    return false;
}

/* A token spelled outside of the alphabet exists, but no text can give it. */
static enum td_status put_token(struct loader *l, const char *spelled, int64_t id)
{
    bool found_by_text = bytes_of(spelled, strlen(spelled), &l->a);
    uint8_t flags = found_by_text ? 0 : TD_TOKEN_HIDDEN;
    enum td_status s = l->a.status;
    if (s == TD_OK)
        s = td_vocab_put(&l->t->vocab, (int32_t)id, l->a.p, l->a.len, flags);
    if (s == TD_E_TOKENIZER) {
        td_error_set(l->err, s,
                     "%s: model.vocab: \"%.64s\" is empty, or its id %lld is "
                     "taken",
                     l->where, spelled, (long long)id);
        td_error_why(l->err, "two tokens have one id, or the file is damaged");
        return s;
    }
    return s == TD_OK ? s : cannot_hold(l, s);
}

static enum td_status read_vocab(struct loader *l, json_t *vocab)
{
    const char *spelled;
    json_t *id;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return damaged(l, "model.vocab is no object with tokens");
    json_object_foreach(vocab, spelled, id)
    {
        int64_t n = json_is_integer(id) ? json_integer_value(id) : -1;
        if (n < 0 || n >= TD_MAX_VOCAB)
            return td_error_set(l->err, TD_E_TOKENIZER,
                                "%s: model.vocab: the id of \"%.64s\" is no number "
                                "from 0 to %d",
                                l->where, spelled, TD_MAX_VOCAB - 1);
        enum td_status s = put_token(l, spelled, n);
        if (s != TD_OK)
            return s;
    }
    return TD_OK;
}

/* "a b" or ["a", "b"] into the loader's two buffers. */
static bool read_merge(struct loader *l, const json_t *m)
{
    const json_t *left = json_array_get(m, 0), *right = json_array_get(m, 1);
    if (json_is_array(m))
        return json_array_size(m) == 2 && json_is_string(left) &&
               json_is_string(right) &&
               unspell(json_string_value(left), json_string_length(left), &l->a) &&
               unspell(json_string_value(right), json_string_length(right), &l->b);
    const char *text = json_string_value(m);
    const char *gap = text ? strchr(text, ' ') : NULL;
    return gap && unspell(text, (size_t)(gap - text), &l->a) &&
           unspell(gap + 1, strlen(gap + 1), &l->b);
}

static enum td_status read_merges(struct loader *l, const json_t *merges)
{
    struct td_tokenizer *t = l->t;
    if (!json_is_array(merges))
        return damaged(l, "model.merges is no array");
    if (td_bpe_open(&t->bpe, &t->vocab, json_array_size(merges)) != TD_OK)
        return cannot_hold(l, TD_E_NOMEM);
    for (size_t i = 0; i < json_array_size(merges); i++) {
        bool pair = read_merge(l, json_array_get(merges, i));
        td_buf_clear(&l->joined);
        td_buf_add(&l->joined, l->a.p, l->a.len);
        td_buf_add(&l->joined, l->b.p, l->b.len);
        enum td_status s = TD_MAX(l->joined.status, TD_MAX(l->a.status, l->b.status));
        if (s != TD_OK)
            return cannot_hold(l, s);
        int32_t left = td_vocab_find(&t->vocab, l->a.p, l->a.len);
        int32_t right = td_vocab_find(&t->vocab, l->b.p, l->b.len);
        int32_t joined = td_vocab_find(&t->vocab, l->joined.p, l->joined.len);
        if (!pair || left < 0 || right < 0 || joined < 0) {
            td_error_set(l->err, TD_E_TOKENIZER, "%s: model.merges[%zu] %s", l->where,
                         i,
                         pair ? "joins or makes a token that the vocabulary lacks"
                              : "is no pair of byte-level tokens");
            td_error_why(l->err, "the file is damaged or was edited");
            return TD_E_TOKENIZER;
        }
        td_bpe_put(&t->bpe, left, right, (uint32_t)i, joined);
    }
    return TD_OK;
}

static enum td_status read_model(struct loader *l, const json_t *m)
{
    bool fallback = false;
    const char *affix;
    /* Files of early versions name no type. */
    if (!json_is_object(m) || (json_object_get(m, "type") && !is_kind(m, "BPE")))
        return unsupported(l, "the model", kind_of(m));
    enum td_status s =
        td_json_bool(m, "byte_fallback", l->where, false, &fallback, l->err);
    if (s == TD_OK)
        s = td_json_bool(m, "ignore_merges", l->where, false, &l->t->bpe.ignore_merges,
                         l->err);
    if (s != TD_OK)
        return s;
    if (fallback)
        return unsupported(l, "the model", "BPE with byte_fallback (SentencePiece)");
    if (json_number_value(json_object_get(m, "dropout")) > 0)
        return unsupported(l, "the model", "BPE with dropout");
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    for (size_t i = 0; i < TD_COUNT(affixes); i++) {
        s = td_json_str(m, affixes[i], l->where, "", &affix, l->err);
        if (s != TD_OK)
            return s;
        if (*affix)
            return unsupported(l, affixes[i], affix);
    }
    s = read_vocab(l, json_object_get(m, "vocab"));
    if (s == TD_OK)
        s = read_merges(l, json_object_get(m, "merges"));
    if (s == TD_OK && !l->t->bpe.all_bytes &&
        json_is_string(json_object_get(m, "unk_token")))
        return unsupported(l, "the model", "BPE with an unknown token");
    return s;
}

static enum td_status read_normalizer(struct loader *l, const json_t *v)
{
    if (is_kind(v, "Sequence")) {
        const json_t *parts = json_object_get(v, "normalizers");
        if (json_array_size(parts) > 1)
            return unsupported(l, "the normalizer", "a sequence");
        v = json_array_get(parts, 0);
    }
    if (!v || json_is_null(v))
        return TD_OK;
    if (!is_kind(v, "NFC"))
        return unsupported(l, "the normalizer", kind_of(v));
    return td_nfc_open(&l->t->nfc) == TD_OK ? TD_OK : cannot_hold(l, TD_E_NOMEM);
}

static enum td_status read_split(struct loader *l, const json_t *v)
{
    const json_t *pattern = json_object_get(v, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *text = regex ? regex : json_object_get(pattern, "String");
    const char *behavior = json_string_value(json_object_get(v, "behavior"));
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return unsupported(l, "the behavior of the pre-tokenizer Split",
                           behavior ? behavior : "not given");
    if (!json_is_string(text) || json_string_length(text) == 0)
        return damaged(l, "the pre-tokenizer Split has no pattern");
    return td_pretok_add(&l->t->pretok, json_string_value(text),
                         json_string_length(text), !regex, l->where, l->err);
}

static enum td_status read_byte_level(struct loader *l, const json_t *v)
{
    bool prefix = true, regex = true;
    enum td_status s =
        td_json_bool(v, "add_prefix_space", l->where, true, &prefix, l->err);
    if (s == TD_OK)
        s = td_json_bool(v, "use_regex", l->where, true, &regex, l->err);
    if (s != TD_OK)
        return s;
    if (prefix)
        return unsupported(l, "the pre-tokenizer", "ByteLevel with a prefix space");
    l->byte_level = true;
    return regex ? td_pretok_add(&l->t->pretok, gpt2_pattern, sizeof(gpt2_pattern) - 1,
                                 false, l->where, l->err)
                 : TD_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): no deeper than JSON may be */
static enum td_status read_pretokenizer(struct loader *l, const json_t *v)
{
    if (l->byte_level)
        return unsupported(l, "the pre-tokenizer after ByteLevel", kind_of(v));
    if (is_kind(v, "Split"))
        return read_split(l, v);
    if (is_kind(v, "ByteLevel"))
        return read_byte_level(l, v);
    if (is_kind(v, "Digits")) {
        bool each = false;
        enum td_status s =
            td_json_bool(v, "individual_digits", l->where, false, &each, l->err);
        const char *pattern = each ? "\\p{N}" : "\\p{N}+";
        return s != TD_OK ? s
                          : td_pretok_add(&l->t->pretok, pattern, strlen(pattern),
                                          false, l->where, l->err);
    }
    if (!is_kind(v, "Sequence"))
        return unsupported(l, "the pre-tokenizer", kind_of(v));
    const json_t *parts = json_object_get(v, "pretokenizers");
    enum td_status s = TD_OK;
    for (size_t i = 0; i < json_array_size(parts) && s == TD_OK; i++)
        s = read_pretokenizer(l, json_array_get(parts, i));
    return s;
}

/* ByteLevel, or a sequence of nothing but that. */
static enum td_status must_be_byte_level(struct loader *l, const json_t *v,
                                         const char *what, const char *parts_key)
{
    if (!is_kind(v, "Sequence"))
        return is_kind(v, "ByteLevel") ? TD_OK : unsupported(l, what, kind_of(v));
    const json_t *parts = json_object_get(v, parts_key);
    for (size_t i = 0; i < json_array_size(parts); i++)
        if (!is_kind(json_array_get(parts, i), "ByteLevel"))
            return unsupported(l, what, kind_of(json_array_get(parts, i)));
    return json_array_size(parts) ? TD_OK : unsupported(l, what, "an empty sequence");
}

/* Gives an added token's id its bytes, if the vocabulary has not. */
static enum td_status define_added(struct loader *l, const struct td_added_entry *e)
{
    struct td_vocab *v = &l->t->vocab;
    const struct td_added_token *a = &e->token;
    const char *text = a->text;
    size_t n = a->len;
    enum td_status s = TD_OK;
    const struct td_vocab_token *known = td_vocab_at(v, a->id);
    /* A normalized token is decoded to its normalized form. */
    if (e->normalized && !known)
        s = td_nfc_apply(&l->t->nfc, a->text, a->len, &l->b, &text, &n);
    if (s == TD_OK) {
        (void)bytes_of(text, n, &l->a);
        s = l->a.status;
    }
    if (s != TD_OK)
        return cannot_hold(l, s);
    int32_t other = td_vocab_find(v, l->a.p, l->a.len);
    bool same = known && known->len == l->a.len &&
                memcmp(v->bytes.p + known->at, l->a.p, l->a.len) == 0;
    if ((known && !same) || (!known && other >= 0)) {
        td_error_set(l->err, TD_E_TOKENIZER,
                     known ? "%s: the added token \"%.64s\" has the id %d of another"
                           : "%s: the added token \"%.64s\" has id %d, but another in "
                             "the vocabulary",
                     l->where, a->text, a->id);
        td_error_why(l->err, "the files are damaged or of different revisions");
        return TD_E_TOKENIZER;
    }
    if (!known)
        s = td_vocab_put(v, a->id, l->a.p, l->a.len, TD_TOKEN_HIDDEN);
    return s == TD_OK ? s : cannot_hold(l, s);
}

/* Adds an entry, or replaces the one with the same content and id. */
static enum td_status put_added(struct loader *l, const struct td_added_entry *e)
{
    struct td_tokenizer *t = l->t;
    uint64_t at = 0;
    if (td_map_get(&t->added_at, e->token.text, e->token.len, &at)) {
        if (t->added[at].token.id != e->token.id)
            return td_error_set(l->err, TD_E_TOKENIZER,
                                "%s: the added token \"%.64s\" has id %d, and %d "
                                "elsewhere",
                                l->where, e->token.text, e->token.id,
                                t->added[at].token.id);
        const char *text = t->added[at].token.text;
        t->added[at] = *e;
        t->added[at].token.text = text;
        return TD_OK;
    }
    if (t->n_added == TD_MAX_ADDED_TOKENS)
        return td_error_set(l->err, TD_E_LIMIT, "%s: more than %d added tokens",
                            l->where, TD_MAX_ADDED_TOKENS);
    enum td_status s = define_added(l, e);
    if (s != TD_OK)
        return s;
    if (t->n_added == t->cap_added) {
        size_t cap = t->cap_added ? t->cap_added * 2 : 64;
        struct td_added_entry *p = td_realloc(t->added, cap, sizeof(*p));
        if (!p)
            return cannot_hold(l, TD_E_NOMEM);
        t->added = p;
        t->cap_added = cap;
    }
    struct td_added_entry *own = &t->added[t->n_added];
    *own = *e;
    own->token.text = td_arena_strndup(&t->texts, e->token.text, e->token.len);
    if (!own->token.text ||
        td_map_put(&t->added_at, own->token.text, own->token.len, t->n_added) != TD_OK)
        return cannot_hold(l, TD_E_NOMEM);
    t->n_added++;
    return TD_OK;
}

static enum td_status read_added(struct loader *l, const json_t *v, int64_t id)
{
    struct td_added_entry e = {0};
    struct td_added_token *a = &e.token;
    const json_t *content = json_object_get(v, "content");
    if (!json_is_string(content) || id < 0 || id >= TD_MAX_VOCAB)
        return damaged(l, "an added token has no content, or no valid id");
    a->text = json_string_value(content);
    a->len = json_string_length(content);
    a->id = (int32_t)id;
    if (a->len > TD_MAX_ADDED_TOKEN)
        return td_error_set(l->err, TD_E_LIMIT,
                            "%s: an added token has %zu bytes, at most %d are read",
                            l->where, a->len, TD_MAX_ADDED_TOKEN);
    if (a->len == 0)
        return TD_OK; /* the reference passes it over, too */
    enum td_status s = td_json_bool(v, "special", l->where, false, &a->special, l->err);
    if (s == TD_OK)
        s = td_json_bool(v, "single_word", l->where, false, &a->single_word, l->err);
    if (s == TD_OK)
        s = td_json_bool(v, "lstrip", l->where, false, &a->lstrip, l->err);
    if (s == TD_OK)
        s = td_json_bool(v, "rstrip", l->where, false, &a->rstrip, l->err);
    if (s == TD_OK)
        s = td_json_bool(v, "normalized", l->where, !a->special, &e.normalized, l->err);
    return s == TD_OK ? put_added(l, &e) : s;
}

static int64_t id_of(const json_t *v)
{
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static enum td_status read_json(struct loader *l, const json_t *root)
{
    static const char added[] = "added_tokens";
    enum td_status s = json_is_object(root) ? TD_OK : damaged(l, "it is no object");
    if (s == TD_OK)
        s = read_model(l, json_object_get(root, "model"));
    if (s == TD_OK)
        s = read_normalizer(l, json_object_get(root, "normalizer"));
    if (s == TD_OK)
        s = read_pretokenizer(l, json_object_get(root, "pre_tokenizer"));
    if (s == TD_OK && !l->byte_level)
        s = unsupported(l, "the pre-tokenizer", "without ByteLevel");
    if (s == TD_OK)
        s = must_be_byte_level(l, json_object_get(root, "decoder"), "the decoder",
                               "decoders");
    const json_t *post = json_object_get(root, "post_processor");
    if (s == TD_OK && post && !json_is_null(post))
        s = must_be_byte_level(l, post, "the post-processor", "processors");
    const json_t *list = json_object_get(root, added);
    if (s == TD_OK && list && !json_is_null(list) && !json_is_array(list))
        s = damaged(l, "added_tokens is no array");
    for (size_t i = 0; s == TD_OK && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        s = read_added(l, v, id_of(json_object_get(v, "id")));
    }
    return s;
}

/* The number that an object's key spells, -1 when it is none. */
static int64_t number_of(const char *key)
{
    int64_t n = 0;
    size_t i = 0;
    for (; key[i] >= '0' && key[i] <= '9' && i < 9; i++)
        n = n * 10 + (key[i] - '0');
    return i && !key[i] ? n : -1;
}

static enum td_status read_eos(struct loader *l, const json_t *v)
{
    if (json_is_object(v))
        v = json_object_get(v, "content");
    if (!v || json_is_null(v))
        return TD_OK;
    if (!json_is_string(v))
        return damaged(l, "eos_token is no text");
    l->t->eos = td_tokenizer_find(l->t, json_string_value(v), json_string_length(v));
    return l->t->eos >= 0 ? TD_OK : damaged(l, "eos_token is not in the vocabulary");
}

static enum td_status read_config(struct loader *l, json_t *root)
{
    const char *key;
    json_t *v;
    if (!json_is_object(root))
        return damaged(l, "it is no object");
    json_t *more = json_object_get(root, "added_tokens_decoder");
    if (more && !json_is_null(more) && !json_is_object(more))
        return damaged(l, "added_tokens_decoder is no object");
    json_object_foreach(more, key, v)
    {
        enum td_status s = read_added(l, v, number_of(key));
        if (s != TD_OK)
            return s;
    }
    return read_eos(l, json_object_get(root, "eos_token"));
}

/* Makes the sets in which encoding looks for added tokens. */
static enum td_status make_sets(struct loader *l)
{
    struct td_tokenizer *t = l->t;
    for (size_t i = 0; i < t->n_added; i++) {
        const struct td_added_entry *e = &t->added[i];
        struct td_added_token a = e->token;
        enum td_status s = TD_OK;
        if (a.special)
            td_vocab_mark(&t->vocab, a.id, TD_TOKEN_SPECIAL);
        if (e->normalized) {
            s = td_nfc_apply(&t->nfc, a.text, a.len, &l->b, &a.text, &a.len);
            if (s == TD_OK)
                a.text = td_arena_strndup(&t->texts, a.text, a.len);
            if (!a.text)
                s = t->texts.status;
        }
        if (s == TD_OK)
            s = td_added_put(e->normalized ? &t->normalized : &t->raw, &a);
        if (s != TD_OK)
            return cannot_hold(l, s);
    }
    if (!td_added_finish(&t->raw) || !td_added_finish(&t->normalized))
        return damaged(l, "two added tokens are the same text");
    return TD_OK;
}

static struct td_tokenizer *new_tokenizer(void)
{
    struct td_tokenizer *t = td_calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    td_vocab_init(&t->vocab);
    td_bpe_init(&t->bpe);
    td_nfc_init(&t->nfc);
    td_pretok_init(&t->pretok);
    td_added_init(&t->raw);
    td_added_init(&t->normalized);
    td_map_init(&t->added_at);
    td_arena_init(&t->texts, (size_t)TD_MAX_JSON_FILE);
    t->eos = -1;
    return t;
}

void td_tokenizer_free(struct td_tokenizer *t)
{
    if (!t)
        return;
    td_vocab_release(&t->vocab);
    td_bpe_release(&t->bpe);
    td_nfc_release(&t->nfc);
    td_pretok_release(&t->pretok);
    td_added_release(&t->raw);
    td_added_release(&t->normalized);
    td_map_release(&t->added_at);
    td_arena_release(&t->texts);
    td_free(t->added);
    td_free(t);
}

/* Names are used in error texts only. */
static enum td_status build(json_t *json, const char *json_name, json_t *config,
                            const char *config_name, struct td_tokenizer **out,
                            struct td_error *err)
{
    struct loader l = {.t = new_tokenizer(), .where = json_name, .err = err};
    if (!l.t)
        return cannot_hold(&l, TD_E_NOMEM);
    td_buf_init(&l.a, (size_t)TD_MAX_JSON_FILE);
    td_buf_init(&l.b, (size_t)TD_MAX_JSON_FILE);
    td_buf_init(&l.joined, (size_t)TD_MAX_JSON_FILE);
    enum td_status s = read_json(&l, json);
    if (config) {
        l.where = config_name;
        if (s == TD_OK)
            s = read_config(&l, config);
    }
    if (s == TD_OK)
        s = make_sets(&l);
    td_buf_release(&l.a);
    td_buf_release(&l.b);
    td_buf_release(&l.joined);
    if (s != TD_OK) {
        td_tokenizer_free(l.t);
        return s;
    }
    *out = l.t;
    return TD_OK;
}

enum td_status td_tokenizer_parse(const char *json, size_t n, const char *config,
                                  size_t config_n, struct td_tokenizer **out,
                                  struct td_error *err)
{
    json_t *j = NULL, *c = NULL;
    enum td_status s = td_json_parse(json, n, JSON_NAME, &j, err);
    if (s == TD_OK && config)
        s = td_json_parse(config, config_n, CONFIG_NAME, &c, err);
    if (s == TD_OK)
        s = build(j, JSON_NAME, c, CONFIG_NAME, out, err);
    json_decref(j);
    json_decref(c);
    return s;
}

/* A directory without tokenizer.json may hold a tokenizer of another kind. */
static enum td_status missing(const char *dir, const char *path, struct td_error *err)
{
    static const char *const others[] = {"tokenizer.model", "vocab.json", "vocab.txt",
                                         "tiktoken.model", "qwen.tiktoken"};
    char other[TD_MAX_PATH];
    if (!td_file_is_dir(dir))
        return TD_OK;
    for (size_t i = 0; i < TD_COUNT(others); i++) {
        if (td_path_join(other, sizeof(other), dir, others[i], NULL) != TD_OK ||
            !td_file_exists(other))
            continue;
        td_error_set(err, TD_E_TOKENIZER, "%s is missing; there is %s", path,
                     others[i]);
        td_error_why(err, "tandem reads tokenizer.json only");
        td_error_fix(err, "fetch tokenizer.json, or write it with save_pretrained()");
        return TD_E_TOKENIZER;
    }
    td_error_set(err, TD_E_NOT_FOUND, "%s has no " JSON_NAME, dir);
    td_error_why(err, "the model's download is incomplete");
    td_error_fix(err, "fetch " JSON_NAME " into the directory");
    return TD_E_NOT_FOUND;
}

enum td_status td_tokenizer_load(const char *dir, struct td_tokenizer **out,
                                 struct td_error *err)
{
    char json_path[TD_MAX_PATH], config_path[TD_MAX_PATH];
    json_t *json = NULL, *config = NULL;
    enum td_status s = td_path_join(json_path, sizeof(json_path), dir, JSON_NAME, err);
    if (s == TD_OK)
        s = td_path_join(config_path, sizeof(config_path), dir, CONFIG_NAME, err);
    if (s == TD_OK && !td_file_exists(json_path))
        s = missing(dir, json_path, err);
    if (s == TD_OK)
        s = td_json_read(json_path, (size_t)TD_MAX_JSON_FILE, &json, err);
    if (s == TD_OK && td_file_exists(config_path))
        s = td_json_read(config_path, (size_t)TD_MAX_CONFIG_FILE, &config, err);
    if (s == TD_OK)
        s = build(json, json_path, config, config_path, out, err);
    json_decref(json);
    json_decref(config);
    return s;
}

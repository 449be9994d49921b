/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to ids and back. See tokenizer.h for the steps; reading the files is in
 * tokenizer_load.c.
 */
#include "text/tokenizer.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_int.h"

/* One call of encode. */
struct encoder {
    const struct td_tokenizer *t;
    bool special;
    struct td_ids *out;
    struct td_error *err;
    struct td_buf normal; /* a normalized stretch of the text */
    struct td_bpe_work merging;
    struct td_pretok_work cutting;
};

static enum td_status add_piece(void *ctx, const char *piece, size_t n)
{
    struct encoder *e = ctx;
    return td_bpe_encode(&e->t->bpe, piece, n, &e->merging, e->out);
}

static enum td_status add_normalized(void *ctx, int32_t id, const char *text, size_t n)
{
    struct encoder *e = ctx;
    if (id >= 0)
        return td_ids_add(e->out, id);
    return td_pretok_cut(&e->t->pretok, &e->cutting, text, n, add_piece, e, e->err);
}

static enum td_status add_raw(void *ctx, int32_t id, const char *text, size_t n)
{
    struct encoder *e = ctx;
    if (id >= 0)
        return td_ids_add(e->out, id);
    enum td_status s = td_nfc_apply(&e->t->nfc, text, n, &e->normal, &text, &n);
    if (s != TD_OK)
        return s;
    return td_added_cut(&e->t->normalized, text, n, e->special, add_normalized, e);
}

/* Appends the text with U+FFFD for what is no UTF-8. */
static enum td_status repair(const char *text, size_t n, struct td_buf *out)
{
    size_t done = 0;
    for (size_t i = 0; i < n && out->status == TD_OK;) {
        size_t len = td_utf8_len(text + i, n - i);
        if (len) {
            i += len;
            continue;
        }
        td_buf_add(out, text + done, i - done);
        td_buf_adds(out, "\xEF\xBF\xBD");
        i += td_utf8_bad(text + i, n - i);
        done = i;
    }
    return td_buf_add(out, text + done, n - done);
}

enum td_status td_tokenizer_encode(const struct td_tokenizer *t, const char *text,
                                   size_t n, unsigned flags, struct td_ids *out,
                                   struct td_error *err)
{
    struct encoder e = {
        .t = t, .special = (flags & TD_ENCODE_SPECIAL) != 0, .out = out, .err = err};
    struct td_buf repaired;
    size_t before = out->len;
    enum td_status s = TD_OK;
    td_buf_init(&repaired, (size_t)TD_MAX_TEXT);
    td_buf_init(&e.normal, 4 * (size_t)TD_MAX_TEXT);
    if (n > (size_t)TD_MAX_TEXT)
        s = TD_E_LIMIT;
    else if (!td_utf8_valid(text, n)) {
        s = repair(text, n, &repaired);
        text = repaired.p;
        n = repaired.len;
    }
    if (s == TD_OK)
        s = td_pretok_work_init(&t->pretok, n, &e.cutting);
    if (s == TD_OK)
        s = td_added_cut(&t->raw, text, n, e.special, add_raw, &e);
    if (s == TD_E_LIMIT)
        td_error_set(err, s, "a text of %zu bytes is too long, at most %lld are read",
                     n, TD_MAX_TEXT);
    else if (s != TD_OK)
        td_error_set(err, s, "no memory to encode a text of %zu bytes", n);
    if (s != TD_OK)
        out->len = before;
    td_pretok_work_release(&e.cutting);
    td_free(e.merging.p);
    td_buf_release(&e.normal);
    td_buf_release(&repaired);
    return s;
}

enum td_status td_tokenizer_decode(const struct td_tokenizer *t, const int32_t *ids,
                                   size_t n, unsigned flags, struct td_buf *out)
{
    struct td_detok d;
    td_detok_init(&d, t, flags);
    for (size_t i = 0; i < n && out->status == TD_OK; i++)
        td_detok_add(&d, ids[i], out);
    return td_detok_flush(&d, out);
}

size_t td_tokenizer_size(const struct td_tokenizer *t)
{
    return t->vocab.size;
}

const char *td_tokenizer_token(const struct td_tokenizer *t, int32_t id, size_t *n)
{
    const struct td_vocab_token *token = td_vocab_at(&t->vocab, id);
    if (!token)
        return NULL;
    *n = token->len;
    return t->vocab.bytes.p + token->at;
}

int32_t td_tokenizer_find(const struct td_tokenizer *t, const char *text, size_t n)
{
    uint64_t at = 0;
    if (td_map_get(&t->added_at, text, n, &at))
        return t->added[at].token.id;
    return td_vocab_find(&t->vocab, text, n);
}

bool td_tokenizer_is_special(const struct td_tokenizer *t, int32_t id)
{
    const struct td_vocab_token *token = td_vocab_at(&t->vocab, id);
    return token && (token->flags & TD_TOKEN_SPECIAL);
}

int32_t td_tokenizer_eos(const struct td_tokenizer *t)
{
    return t->eos;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the ranks of an engine. See step.h.
 */
#include "engine/step.h"

#include "base/mem.h"

#include <string.h>

enum { HEAD_WORDS = 3, OPEN_WORDS = 9, SEQ_WORDS = 7 };

/* ---- tables ------------------------------------------------------------------------ */

enum td_status td_step_tables_init(struct td_step_tables *t, int32_t n_slots,
                                   int32_t per_slot, int32_t n_blocks,
                                   struct td_error *err)
{
    size_t all = (size_t)n_slots * (size_t)per_slot;
    *t = (struct td_step_tables){
        .n_slots = n_slots, .per_slot = per_slot, .n_blocks = n_blocks};
    t->blocks = td_calloc(TD_MAX(all, 1), sizeof(*t->blocks));
    t->known = td_calloc((size_t)TD_MAX(n_slots, 1), sizeof(*t->known));
    if (t->blocks && t->known)
        return TD_OK;
    td_step_tables_release(t);
    return td_error_set(err, TD_E_NOMEM, "no memory for the blocks of %d sequences",
                        n_slots);
}

void td_step_tables_release(struct td_step_tables *t)
{
    td_free(t->blocks);
    td_free(t->known);
    *t = (struct td_step_tables){0};
}

static int32_t *table_of(const struct td_step_tables *t, int32_t slot)
{
    return t->blocks + (size_t)slot * (size_t)t->per_slot;
}

static int32_t blocks_of(int32_t tokens)
{
    return (tokens + TD_KV_BLOCK - 1) / TD_KV_BLOCK;
}

/* ---- writing ----------------------------------------------------------------------- */

static void put(struct td_buf *b, const int32_t *words, size_t n)
{
    td_buf_add(b, words, n * sizeof(*words));
}

static void finish(struct td_buf *b)
{
    int32_t words = (int32_t)(b->len / sizeof(words));
    if (b->status == TD_OK)
        memcpy(b->p, &words, sizeof(words));
}

static void begin(struct td_buf *b, enum td_step_kind kind, const int32_t *copies,
                  int32_t n_copies)
{
    td_buf_clear(b);
    put(b, (const int32_t[]){0, (int32_t)kind, n_copies}, HEAD_WORDS);
    if (n_copies)
        put(b, copies, 2 * (size_t)n_copies);
}

void td_step_put(struct td_buf *out, enum td_step_kind kind, const int32_t *copies,
                 int32_t n_copies)
{
    begin(out, kind, copies, n_copies);
    finish(out);
}

void td_step_put_open(struct td_buf *out, const struct td_step_open *o)
{
    const int32_t words[OPEN_WORDS] = {
        o->numerics,
        o->max_len,
        o->max_seqs,
        o->max_rows,
        o->max_out,
        o->vocab,
        o->serves,
        (int32_t)(o->prefix_cache >> 32),
        (int32_t)(uint32_t)(o->prefix_cache & 0xffffffff)};
    begin(out, TD_STEP_OPEN, NULL, 0);
    put(out, words, OPEN_WORDS);
    td_buf_add(out, o->device, sizeof(o->device));
    finish(out);
}

void td_step_put_logits(struct td_buf *out, int32_t row)
{
    begin(out, TD_STEP_LOGITS, NULL, 0);
    put(out, &row, 1);
    finish(out);
}

/* Both sides: blocks behind the first `same` of a slot's table are now these. */
static void learn(struct td_step_tables *t, int32_t slot, const int32_t *blocks,
                  int32_t same, int32_t n)
{
    if (n == same)
        return;
    memcpy(table_of(t, slot) + same, blocks, (size_t)(n - same) * sizeof(*blocks));
    t->known[slot] = n;
}

/* How many of the first n blocks the other side knows already. */
static int32_t same_blocks(const struct td_step_tables *t, int32_t slot,
                           const int32_t *blocks, int32_t n)
{
    const int32_t *known = table_of(t, slot);
    int32_t same = 0, most = TD_MIN(n, t->known[slot]);
    while (same < most && known[same] == blocks[same])
        same++;
    return same;
}

void td_step_put_forward(struct td_buf *out, struct td_step_tables *t,
                         const int32_t *copies, int32_t n_copies,
                         const struct td_seq_rows *seqs, int32_t n_seqs)
{
    begin(out, TD_STEP_FORWARD, copies, n_copies);
    put(out, &n_seqs, 1);
    for (int32_t i = 0; i < n_seqs; i++) {
        const struct td_seq_rows *q = &seqs[i];
        int32_t n = blocks_of(q->start + q->n);
        int32_t same = same_blocks(t, q->slot, q->blocks, n);
        put(out,
            (const int32_t[]){q->n, q->start, q->decode, q->slot, q->n_out, same,
                              n - same},
            SEQ_WORDS);
        learn(t, q->slot, q->blocks + same, same, n);
        put(out, q->blocks + same, (size_t)(n - same));
        put(out, q->ids, (size_t)q->n);
    }
    finish(out);
}

/* ---- reading ----------------------------------------------------------------------- */

struct cursor {
    const int32_t *at;
    size_t left; /* words */
};

/* The next n words, NULL if there are fewer. */
static const int32_t *take(struct cursor *c, int64_t n)
{
    const int32_t *at = c->at;
    if (n < 0 || (uint64_t)n > c->left)
        return NULL;
    c->at += n;
    c->left -= (size_t)n;
    return at;
}

static bool get_seq(struct cursor *c, struct td_step_tables *t, struct td_seq_rows *q)
{
    const int32_t *w = take(c, SEQ_WORDS);
    if (!w || w[0] < 1 || w[1] < 0 || w[1] > INT32_MAX / 2 - w[0] || w[3] < 0 ||
        w[3] >= t->n_slots || w[4] < 0 || w[4] > w[0])
        return false;
    int32_t n = blocks_of(w[0] + w[1]), same = w[5], fresh = w[6], slot = w[3];
    if (n > t->per_slot || same < 0 || same > t->known[slot] || fresh != n - same)
        return false;
    const int32_t *blocks = take(c, fresh), *ids = take(c, w[0]);
    if (!blocks || !ids)
        return false;
    for (int32_t i = 0; i < fresh; i++)
        if (blocks[i] < 0 || blocks[i] >= t->n_blocks)
            return false;
    learn(t, slot, blocks, same, n);
    *q = (struct td_seq_rows){.ids = ids,
                              .n = w[0],
                              .start = w[1],
                              .decode = w[2] != 0,
                              .slot = slot,
                              .blocks = table_of(t, slot),
                              .n_blocks = n,
                              .n_out = w[4]};
    return true;
}

static bool get_forward(struct cursor *c, struct td_step_tables *t,
                        struct td_seq_rows *seqs, int32_t max_seqs, struct td_step *out)
{
    const int32_t *n = take(c, 1);
    if (!n || !t || *n < 1 || *n > max_seqs)
        return false;
    out->n_seqs = *n;
    for (int32_t i = 0; i < *n; i++)
        if (!get_seq(c, t, &seqs[i]))
            return false;
    return true;
}

static bool get_open(struct cursor *c, struct td_step_open *o)
{
    const int32_t *w = take(c, OPEN_WORDS);
    const int32_t *device = take(c, TD_STEP_DEVICE / (int64_t)sizeof(*device));
    if (!w || !device)
        return false;
    *o = (struct td_step_open){
        .numerics = w[0],
        .max_len = w[1],
        .max_seqs = w[2],
        .max_rows = w[3],
        .max_out = w[4],
        .vocab = w[5],
        .serves = w[6],
        .prefix_cache = (int64_t)((uint64_t)(uint32_t)w[7] << 32 | (uint32_t)w[8])};
    memcpy(o->device, device, sizeof(o->device));
    o->device[TD_STEP_DEVICE - 1] = '\0';
    return true;
}

static bool get_row(struct cursor *c, int32_t *row)
{
    const int32_t *w = take(c, 1);
    if (!w || *w < 0)
        return false;
    *row = *w;
    return true;
}

size_t td_step_bytes(const int32_t *head)
{
    size_t bytes = head[0] >= HEAD_WORDS ? (size_t)head[0] * sizeof(*head) : 0;
    return bytes <= TD_STEP_MAX ? bytes : 0;
}

enum td_status td_step_get(const int32_t *words, size_t bytes, struct td_step_tables *t,
                           struct td_seq_rows *seqs, int32_t max_seqs,
                           struct td_step *out, struct td_error *err)
{
    struct cursor c = {words, bytes / sizeof(*words)};
    const int32_t *head = take(&c, HEAD_WORDS);
    bool good = head && bytes % sizeof(*words) == 0 && td_step_bytes(head) == bytes &&
                head[1] >= 0 && head[1] < TD_STEP_KINDS && head[2] >= 0;
    *out = (struct td_step){0};
    if (good) {
        out->kind = (enum td_step_kind)head[1];
        out->n_copies = head[2];
        out->copies = take(&c, 2 * (int64_t)head[2]);
        good = out->copies != NULL;
    }
    if (good && out->kind == TD_STEP_FORWARD)
        good = get_forward(&c, t, seqs, max_seqs, out);
    if (good && out->kind == TD_STEP_OPEN)
        good = get_open(&c, &out->open);
    if (good && out->kind == TD_STEP_LOGITS)
        good = get_row(&c, &out->row);
    if (good && c.left == 0)
        return TD_OK;
    return td_error_set(err, TD_E_PEER, "a step of rank 0 cannot be read");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From pieces of sequences to the flat arrays that operations read.
 *
 * All arrays of a batch lie in one block of integers, so that one copy brings them to
 * the device:
 *
 *     token, pos, seq    [max_rows] each
 *     row0               [max_seqs + 1]
 *     slot               [max_seqs]
 *     out_row            [max_out]
 *     blocks             [max_seqs][blocks of a sequence of max_len]
 */
#include "model/model_int.h"

enum { MOST_RECORDED = 256 /* rows of a step that is recorded */ };

static int32_t blocks_of(int32_t tokens)
{
    return (tokens + TD_KV_BLOCK - 1) / TD_KV_BLOCK;
}

int64_t td_batch_ints(const struct td_model_limits *l)
{
    return 3 * (int64_t)l->max_rows + 2 * (int64_t)l->max_seqs + 1 + l->max_out +
           (int64_t)l->max_seqs * blocks_of(l->max_len);
}

static enum td_status broken(struct td_error *err, int32_t seq, const char *rule)
{
    return td_error_set(err, TD_E_INTERNAL, "piece %d of a batch breaks a rule: %s",
                        seq, rule);
}

static enum td_status check(const struct td_model *m, const struct td_cache *c,
                            const struct td_seq_rows *s, int32_t i, bool prompt_seen,
                            struct td_error *err)
{
    if (s->n < 1 || s->start < 0 || s->n > m->limits.max_len - s->start)
        return broken(err, i, "its positions lie within the model's length");
    if (s->decode && (s->n != 1 || prompt_seen))
        return broken(err, i, "generated tokens come first, one a sequence");
    if (!s->decode && s->start % TD_CHUNK)
        return broken(err, i, "a prompt piece begins at a multiple of 64");
    if (s->slot < 0 || s->slot >= c->n_slots)
        return broken(err, i, "its state slot exists");
    if (s->n_blocks < blocks_of(s->start + s->n))
        return broken(err, i, "its blocks hold all its positions");
    for (int32_t b = 0; b < blocks_of(s->start + s->n); b++)
        if (s->blocks[b] < 0 || s->blocks[b] >= c->n_blocks)
            return broken(err, i, "its blocks exist");
    for (int32_t t = 0; t < s->n; t++)
        if (s->ids[t] < 0 || s->ids[t] >= m->cfg.vocab)
            return broken(err, i, "its tokens are within the vocabulary");
    if (s->n_out < 0 || s->n_out > s->n)
        return broken(err, i, "it wants logits of its own rows");
    return TD_OK;
}

enum td_status td_model_check(const struct td_model *m, const struct td_cache *c,
                              const struct td_seq_rows *seqs, int32_t n,
                              struct td_error *err)
{
    int64_t rows = 0, outs = 0;
    bool prompt_seen = false;
    if (n < 1 || n > m->limits.max_seqs)
        return broken(err, n, "the number of pieces is within the limit");
    for (int32_t i = 0; i < n; i++) {
        enum td_status s = check(m, c, &seqs[i], i, prompt_seen, err);
        if (s != TD_OK)
            return s;
        prompt_seen = prompt_seen || !seqs[i].decode;
        rows += seqs[i].n;
        outs += seqs[i].n_out;
    }
    if (rows > m->limits.max_rows || outs > m->limits.max_out)
        return broken(err, n, "rows and wanted rows are within the limits");
    return TD_OK;
}

/* Rows of a recorded step that has room for n, 0 if there is none. */
static int32_t bucket(const struct td_model_limits *l, int32_t n)
{
    int32_t most = TD_MIN(TD_MIN(l->max_seqs, l->max_rows), l->max_out), b = 1;
    int32_t grain = n <= 64 ? 16 : 32;
    if (n > MOST_RECORDED || n > most)
        return 0;
    if (n > 16)
        return TD_MIN((n + grain - 1) / grain * grain, most);
    while (b < n)
        b *= 2;
    return TD_MIN(b, most);
}

int32_t td_batch_steps(const struct td_model_limits *l)
{
    int32_t steps = 0, last = 0;
    for (int32_t n = 1; bucket(l, n); n = last + 1, steps++)
        last = bucket(l, n);
    return steps;
}

/* Whether all are generated tokens with logits. */
static bool all_decode(const struct td_seq_rows *seqs, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!seqs[i].decode || seqs[i].n_out != 1)
            return false;
    return true;
}

enum td_status td_batch_make(struct td_model *m, const struct td_cache *c,
                             const struct td_seq_rows *seqs, int32_t n_seqs,
                             struct td_error *err)
{
    enum td_status s = td_model_check(m, c, seqs, n_seqs, err);
    if (s != TD_OK)
        return s;
    const struct td_model_limits *l = &m->limits;
    struct td_work *w = &m->work;
    struct td_batch *b = &m->batch;
    int32_t max_blocks = blocks_of(l->max_len), rows = 0, outs = 0;
    int32_t *token = w->host, *pos = token + l->max_rows, *seq = pos + l->max_rows;
    int32_t *row0 = seq + l->max_rows, *slot = row0 + l->max_seqs + 1;
    int32_t *out_row = slot + l->max_seqs, *blocks = out_row + l->max_out;
    *b = (struct td_batch){.max_blocks = max_blocks};
    for (int32_t i = 0; i < n_seqs; i++) {
        const struct td_seq_rows *q = &seqs[i];
        row0[i] = rows;
        slot[i] = q->slot;
        for (int32_t k = 0; k < blocks_of(q->start + q->n); k++)
            blocks[(int64_t)i * max_blocks + k] = q->blocks[k];
        for (int32_t t = 0; t < q->n; t++, rows++) {
            token[rows] = q->ids[t];
            pos[rows] = q->start + t;
            seq[rows] = i;
            if (t >= q->n - q->n_out)
                out_row[outs++] = rows;
        }
        if (q->decode)
            b->n_decode++;
        else
            b->n_prefill++;
    }
    int32_t padded = m->dev->ops.begin &&
                             (m->comm->ranks == 1 || m->dev->ops.all_reduce) &&
                             !m->trace && all_decode(seqs, n_seqs)
                         ? bucket(l, n_seqs)
                         : 0;
    m->key = padded ? (uint64_t)c->id << 32 | (uint32_t)padded : 0;
    for (; rows < padded; rows++, b->n_decode++) {
        token[rows] = pos[rows] = slot[rows] = 0;
        seq[rows] = -1;
        row0[rows] = out_row[outs++] = rows;
    }
    row0[b->n_decode + b->n_prefill] = rows;
    b->rows = rows;
    b->token = w->ints;
    b->pos = w->ints + (pos - w->host);
    b->seq = w->ints + (seq - w->host);
    b->row0 = w->ints + (row0 - w->host);
    b->slot = w->ints + (slot - w->host);
    b->blocks = w->ints + (blocks - w->host);
    w->out_row = w->ints + (out_row - w->host);
    w->n_out = outs;
    int64_t used = (blocks - w->host) + (int64_t)n_seqs * max_blocks;
    m->dev->ops.put(m->dev, w->ints, w->host, (size_t)used * sizeof(*w->ints));
    return TD_OK;
}

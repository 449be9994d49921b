/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward pass, top to bottom, and the draft head.
 */
#include "model/model_int.h"

static void embed(struct td_model *m, float *x)
{
    struct td_embed_args a = {.table = &m->embed,
                              .first = m->slice.vocab.first,
                              .token = m->batch.token,
                              .x = x,
                              .rows = m->batch.rows};
    m->dev->ops.embed(m->dev, &a);
}

static enum td_status embed_all(struct td_model *m, float *x, struct td_error *err)
{
    embed(m, x);
    return td_model_sum(m, x, (size_t)m->batch.rows * (size_t)m->cfg.hidden, err);
}

static void trace(const struct td_model *m, int layer, const float *x, const float *add)
{
    if (m->trace)
        m->trace(m->trace_self, layer, x, add, m->batch.rows);
}

/* Final norm (weight w) and head over the wanted rows of x + delta; each rank its own
 * part of the vocabulary. */
static void head(struct td_model *m, const float *w)
{
    struct td_work *k = &m->work;
    struct td_range vocab = m->slice.vocab;
    if (k->n_out == 0)
        return;
    struct td_norm_args norm = {.x = k->x,
                                .add = td_model_rest(m),
                                .w = w,
                                .y = k->out_h,
                                .index = k->out_row,
                                .h = m->cfg.hidden,
                                .y_stride = m->cfg.hidden,
                                .eps = (float)m->cfg.eps,
                                .rows = k->n_out};
    struct td_linear_args product = {
        .x = k->out_h,
        .x_stride = m->cfg.hidden,
        .rows = k->n_out,
        .count = 1,
        .term = {{.w = &m->head, .y = k->logits, .y_stride = vocab.count}}};
    struct td_candidates_args best = {
        .logits = k->logits,
        .stride = vocab.count,
        .n = TD_MAX(0, TD_MIN(m->limits.vocab - vocab.first, vocab.count)),
        .first = vocab.first,
        .out = k->best,
        .rows = k->n_out};
    m->dev->ops.norm(m->dev, &norm);
    m->dev->ops.linear(m->dev, &product);
    if (k->best)
        m->dev->ops.candidates(m->dev, &best);
}

/* y = norm(x + add) of all rows; x stays as it is. */
static void norm_rows(struct td_model *m, const float *x, const float *add,
                      const float *w, float *y, int64_t stride)
{
    struct td_norm_args a = {.x = x,
                             .add = add,
                             .w = w,
                             .y = y,
                             .h = m->cfg.hidden,
                             .y_stride = stride,
                             .eps = (float)m->cfg.eps,
                             .rows = m->batch.rows};
    m->dev->ops.norm(m->dev, &a);
}

/* All operations of a forward whose batch is on the device. */
static enum td_status operations(struct td_model *m, struct td_cache *c, bool hidden,
                                 struct td_error *err)
{
    struct td_work *w = &m->work;
    enum td_status s = embed_all(m, w->x, err);
    if (s != TD_OK)
        return s;
    trace(m, -1, w->x, NULL);
    for (int i = 0; i < m->cfg.n_layers; i++) {
        s = td_layer_forward(m, c, &m->layers[i], i ? td_model_rest(m) : NULL, err);
        if (s != TD_OK)
            return s;
        trace(m, i, w->x, td_model_rest(m));
    }
    if (hidden) {
        float *to = w->hidden ? w->hidden : w->h; /* only a draft reads it later */
        norm_rows(m, w->x, td_model_rest(m), m->final_norm, to, m->cfg.hidden);
        trace(m, m->cfg.n_layers, to, NULL);
    }
    head(m, m->final_norm);
    return TD_OK;
}

enum td_status td_model_forward(struct td_model *m, struct td_cache *c,
                                const struct td_seq_rows *seqs, int32_t n_seqs,
                                bool hidden, struct td_error *err)
{
    const struct td_ops *ops = &m->dev->ops;
    enum td_status s = td_batch_make(m, c, seqs, n_seqs, err);
    if (s != TD_OK)
        return s;
    uint64_t key = m->key ? m->key | (uint64_t)hidden << 31 : 0;
    bool done = false;
    while (s == TD_OK && !done) {
        if (!key || ops->begin(m->dev, key))
            s = operations(m, c, hidden, err);
        done = !key || ops->end(m->dev);
    }
    return s;
}

enum td_status td_model_draft(struct td_model *m, struct td_cache *c,
                              const struct td_seq_rows *seqs, int32_t n_seqs,
                              struct td_error *err)
{
    struct td_work *w = &m->work;
    const struct td_draft_weights *d = &m->draft;
    int64_t h = m->cfg.hidden;
    enum td_status s = td_batch_make(m, c, seqs, n_seqs, err);
    if (s == TD_OK && !td_model_has_draft(m))
        s = td_error_set(err, TD_E_UNSUPPORTED, "this checkpoint has no draft head");
    if (s == TD_OK)
        s = embed_all(m, w->x, err);
    if (s != TD_OK)
        return s;
    norm_rows(m, w->x, NULL, d->norm_embed, w->pair, 2 * h);
    norm_rows(m, w->hidden, NULL, d->norm_hidden, w->pair + h, 2 * h);
    struct td_linear_args fc = {.x = w->pair,
                                .x_stride = 2 * h,
                                .rows = m->batch.rows,
                                .count = 1,
                                .term = {{.w = &d->fc, .y = w->x, .y_stride = h}}};
    m->dev->ops.linear(m->dev, &fc);
    s = td_layer_forward(m, c, &m->layers[m->cfg.n_layers], NULL, err);
    if (s == TD_OK)
        head(m, d->norm);
    return s;
}

const float *td_model_logits(const struct td_model *m)
{
    return m->work.logits;
}

struct td_range td_model_vocab(const struct td_model *m)
{
    return m->slice.vocab;
}

const struct td_candidates *td_model_candidates(const struct td_model *m)
{
    return m->work.best;
}

void td_model_set_trace(struct td_model *m, td_trace_fn fn, void *self)
{
    m->trace = fn;
    m->trace_self = self;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of an engine: steps, logits, candidates, copies of states, on one rank or on
 * all of them. See engine.h.
 *
 * With several ranks a call of rank 0 becomes a message, and then all do the same: each
 * its slice of the step, then the best ids of all slices go to rank 0. Copies of states
 * are kept for the next message.
 */
#include "engine/engine_int.h"

#include "base/mem.h"
#include "engine/world.h"

#include <string.h>

static bool is_rank0(const struct td_engine *e)
{
    return e->comm->rank == 0;
}

/* ---- memory ------------------------------------------------------------------------ */

static enum td_status make_logits(struct td_engine *e, struct td_error *err)
{
    const struct td_config *c = td_model_config(e->model);
    size_t out = (size_t)e->plan.limits.max_out, ranks = (size_t)e->comm->ranks;
    e->part = (c->vocab + e->comm->ranks - 1) / e->comm->ranks;
    if (ranks == 1 && e->dev->host)
        return TD_OK;
    e->row = td_calloc((size_t)e->part, sizeof(*e->row));
    size_t all = is_rank0(e) ? out * ranks * (size_t)e->part : 0;
    if (all)
        e->logits = td_calloc(all, sizeof(*e->logits));
    if (!e->row || (all && !e->logits))
        return td_error_set(err, TD_E_NOMEM, "no memory for logits");
    if (all)
        memset(e->logits, 0, all * sizeof(*e->logits)); /* touched now */
    return TD_OK;
}

static enum td_status make_candidates(struct td_engine *e, struct td_error *err)
{
    size_t out = (size_t)e->plan.limits.max_out, ranks = (size_t)e->comm->ranks;
    if (!e->plan.limits.vocab || !e->dev->ops.candidates)
        return TD_OK;
    e->own = td_calloc(out, sizeof(*e->own));
    if (is_rank0(e) && ranks > 1) {
        e->all = td_calloc(out * ranks, sizeof(*e->all));
        e->best = td_calloc(out, sizeof(*e->best));
    }
    if (!e->own || (is_rank0(e) && ranks > 1 && (!e->all || !e->best)))
        return td_error_set(err, TD_E_NOMEM, "no memory for candidates");
    return TD_OK;
}

enum td_status td_engine_make_calls(struct td_engine *e, struct td_error *err)
{
    const struct td_model_limits *l = &e->plan.limits;
    int32_t per_slot = (l->max_len + TD_KV_BLOCK - 1) / TD_KV_BLOCK;
    enum td_status s = make_logits(e, err);
    if (s == TD_OK)
        s = make_candidates(e, err);
    if (s != TD_OK || !e->params.world)
        return s;
    td_buf_init(&e->message, TD_STEP_MAX);
    td_buf_init(&e->copies, TD_STEP_MAX / 2);
    e->seqs = td_calloc((size_t)l->max_seqs, sizeof(*e->seqs));
    if (!e->seqs)
        return td_error_set(err, TD_E_NOMEM, "no memory for steps");
    return td_step_tables_init(&e->tables, l->max_seqs + e->plan.n_snapshots, per_slot,
                               e->plan.n_blocks, err);
}

void td_engine_free_calls(struct td_engine *e)
{
    td_free(e->row);
    td_free(e->logits);
    td_free(e->own);
    td_free(e->all);
    td_free(e->best);
    td_free(e->seqs);
    td_step_tables_release(&e->tables);
    td_buf_release(&e->message);
    td_buf_release(&e->copies);
}

/* ---- what every rank does ------------------------------------------------------------ */

/* The best ids of the step's rows to rank 0. */
static enum td_status bring_candidates(struct td_engine *e, struct td_error *err)
{
    size_t rows = (size_t)e->n_out, ranks = (size_t)e->comm->ranks;
    if (!e->own || rows == 0 || ranks == 1)
        return TD_OK;
    enum td_status s =
        e->comm->ops->gather(e->comm, e->own, rows * sizeof(*e->own), e->all, err);
    for (size_t r = 0; r < rows && s == TD_OK && is_rank0(e); r++)
        td_candidates_merge(e->all + r, ranks, rows, &e->best[r]);
    return s;
}

enum td_status td_engine_step(struct td_engine *e, const struct td_seq_rows *seqs,
                              int32_t n_seqs, struct td_error *err)
{
    e->n_out = 0;
    enum td_status s = td_model_forward(e->model, &e->cache, seqs, n_seqs, false, err);
    if (s != TD_OK)
        return s;
    for (int32_t i = 0; i < n_seqs; i++)
        e->n_out += seqs[i].n_out;
    if (e->own && e->n_out) /* asked for before anything is waited for */
        e->dev->ops.get(e->dev, e->own, td_model_candidates(e->model),
                        (size_t)e->n_out * sizeof(*e->own));
    s = e->dev->ops.sync(e->dev, err);
    return s == TD_OK ? bring_candidates(e, err) : s;
}

const float *td_engine_part(struct td_engine *e, int32_t row, int64_t *n)
{
    *n = td_model_vocab(e->model).count;
    const float *from = td_model_logits(e->model) + row * *n;
    if (!e->row)
        return from;
    e->dev->ops.get(e->dev, e->row, from, (size_t)*n * sizeof(*from));
    return e->row;
}

static enum td_status bring_logits(struct td_engine *e, int32_t row,
                                   struct td_error *err)
{
    int64_t n;
    float *to = e->logits ? e->logits + row * e->part * e->comm->ranks : NULL;
    if (row >= e->plan.limits.max_out)
        return td_error_set(err, TD_E_PEER, "rank 0 asks for a row that is not there");
    (void)td_engine_part(e, row, &n);
    return e->comm->ops->gather(e->comm, e->row, (size_t)e->part * sizeof(*to), to,
                                err);
}

/* ---- rank 0 -------------------------------------------------------------------------- */

static enum td_status send(struct td_engine *e, struct td_error *err)
{
    td_buf_clear(&e->copies);
    return td_world_send(e->params.world, &e->message, err);
}

/* Copies that the others do not know of: {to, from} of each. */
static const int32_t *copies_of(const struct td_engine *e, int32_t *n)
{
    *n = (int32_t)(e->copies.len / (2 * sizeof(int32_t)));
    return (const int32_t *)(const void *)e->copies.p;
}

enum td_status td_engine_tell(struct td_engine *e, enum td_step_kind kind,
                              struct td_error *err)
{
    int32_t n;
    const int32_t *copies = copies_of(e, &n);
    td_step_put(&e->message, kind, copies, n);
    return send(e, err);
}

static enum td_status lead_step(struct td_engine *e, const struct td_seq_rows *seqs,
                                int32_t n_seqs, struct td_error *err)
{
    int32_t n;
    td_world_lock(e->params.world);
    td_world_wait_steps(e->params.world);
    const int32_t *copies = copies_of(e, &n);
    td_step_put_forward(&e->message, &e->tables, copies, n, seqs, n_seqs);
    enum td_status s = send(e, err);
    if (s == TD_OK)
        s = td_engine_step(e, seqs, n_seqs, err);
    if (s != TD_OK)
        td_world_fail(e->params.world);
    td_world_unlock(e->params.world);
    return s;
}

enum td_status td_engine_forward(struct td_engine *e, const struct td_seq_rows *seqs,
                                 int32_t n_seqs, struct td_error *err)
{
    if (!e->params.world)
        return td_engine_step(e, seqs, n_seqs, err);
    /* what is refused must not reach the others */
    enum td_status s = td_model_check(e->model, &e->cache, seqs, n_seqs, err);
    return s == TD_OK ? lead_step(e, seqs, n_seqs, err) : s;
}

static enum td_status lead_logits(struct td_engine *e, int32_t row,
                                  struct td_error *err)
{
    td_world_lock(e->params.world);
    td_step_put_logits(&e->message, row);
    enum td_status s = td_world_send(e->params.world, &e->message, err);
    if (s == TD_OK)
        s = bring_logits(e, row, err);
    if (s != TD_OK)
        td_world_fail(e->params.world);
    td_world_unlock(e->params.world);
    return s;
}

enum td_status td_engine_logits(struct td_engine *e, int32_t row, const float **out,
                                struct td_error *err)
{
    int64_t n;
    enum td_status s = TD_OK;
    if (e->params.world) {
        s = lead_logits(e, row, err);
        *out = e->logits + row * e->part * e->comm->ranks;
    } else if (e->logits) {
        float *to = e->logits + row * e->part;
        memcpy(to, td_engine_part(e, row, &n), (size_t)e->part * sizeof(*to));
        *out = to;
    } else {
        *out = td_engine_part(e, row, &n);
    }
    return s;
}

const struct td_candidates *td_engine_candidates(const struct td_engine *e, int32_t row)
{
    const struct td_candidates *c = e->comm->ranks > 1 ? e->best : e->own;
    return c ? c + row : NULL;
}

enum td_status td_engine_sample(struct td_engine *e, int32_t row,
                                const struct td_sampler *sampler,
                                struct td_sample_work *work, int64_t position,
                                struct td_sampled *out, struct td_error *err)
{
    const struct td_candidates *c = td_engine_candidates(e, row);
    const float *logits;
    int32_t vocab = TD_MIN(e->plan.limits.vocab, td_model_config(e->model)->vocab);
    if (c && work->vocab == vocab && td_sample_best(sampler, work, c, position, out))
        return TD_OK;
    enum td_status s = td_engine_logits(e, row, &logits, err);
    return s == TD_OK ? td_sample(sampler, work, logits, position, out, err) : s;
}

void td_engine_copy_state(struct td_engine *e, int32_t to, int32_t from)
{
    const int32_t pair[2] = {to, from};
    td_cache_copy_state(e->model, &e->cache, to, from);
    if (e->params.world) /* a failure shows when the message is sent */
        td_buf_add(&e->copies, pair, sizeof(pair));
}

/* ---- the other ranks ----------------------------------------------------------------- */

enum td_status td_engine_read_step(struct td_engine *e, const int32_t *words,
                                   size_t bytes, struct td_step *out,
                                   struct td_error *err)
{
    if (!e)
        return td_step_get(words, bytes, NULL, NULL, 0, out, err);
    return td_step_get(words, bytes, &e->tables, e->seqs, e->plan.limits.max_seqs, out,
                       err);
}

enum td_status td_engine_obey(struct td_engine *e, const struct td_step *step,
                              struct td_error *err)
{
    for (int32_t i = 0; i < step->n_copies; i++) {
        const int32_t *pair = step->copies + 2 * (size_t)i;
        int32_t to = pair[0], from = pair[1];
        if (to < 0 || from < 0 || to >= e->cache.n_slots || from >= e->cache.n_slots)
            return td_error_set(err, TD_E_PEER, "rank 0 copies a state from nowhere");
        td_cache_copy_state(e->model, &e->cache, to, from);
    }
    if (step->kind == TD_STEP_FORWARD)
        return td_engine_step(e, e->seqs, step->n_seqs, err);
    if (step->kind == TD_STEP_LOGITS)
        return bring_logits(e, step->row, err);
    return TD_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening an engine: what does it take, does it fit, load, warm up. See engine.h.
 *
 * Everything is allocated before the first weight is read, so a start that cannot fit
 * fails within milliseconds.
 */
#include "engine/engine.h"

#include "base/log.h"
#include "base/mem.h"
#include "engine/device.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

struct td_engine {
    struct td_engine_params params;
    struct td_plan plan;
    struct td_dev *dev;
    struct td_model *model;
    struct td_cache cache;
    struct td_load_stats load;
    float *logits; /* host [max_out][vocab] */
};

/* Opens model and device and settles limits and caches. */
static enum td_status plan(struct td_engine *e, struct td_error *err)
{
    const struct td_engine_params *p = &e->params;
    struct td_plan_asked asked = {.model = p->model,
                                  .memory = p->memory,
                                  .max_len = p->max_len,
                                  .max_seqs = p->max_seqs,
                                  .max_rows = p->max_rows,
                                  .max_out = p->max_out,
                                  .prefix_cache = p->prefix_cache,
                                  .serves = p->serves,
                                  .load = p->load};
    struct td_model_limits limits;
    struct td_plan_room room;
    td_plan_limits(&asked, &limits);
    enum td_status s = td_engine_device_open(p, &e->dev, err);
    struct td_comm *comm = p->comm ? p->comm : td_comm_self();
    if (s == TD_OK && p->random)
        s = td_model_random(p->model, p->random, e->dev, comm, &limits, &e->model, err);
    else if (s == TD_OK)
        s = td_model_open(p->model, e->dev, comm, &limits, &e->model, err);
    if (s == TD_OK)
        s = td_plan_room_find(e->dev, p->memory, 0, &room, err);
    if (s == TD_OK)
        s = td_plan_make(e->model, e->dev, &asked, &room, &e->plan, err);
    if (s == TD_OK && e->dev->shared)
        e->dev->budget = (size_t)room.device;
    if (s == TD_OK)
        td_plan_emit(&e->plan, &room);
    return s;
}

static enum td_status allocate(struct td_engine *e, struct td_error *err)
{
    const struct td_plan *p = &e->plan;
    size_t count = (size_t)p->limits.max_out * (size_t)td_model_config(e->model)->vocab;
    e->logits = td_calloc(count, sizeof(*e->logits));
    if (!e->logits)
        return td_error_set(err, TD_E_NOMEM, "no memory for logits");
    memset(e->logits, 0, count * sizeof(*e->logits)); /* touched now */
    return td_cache_new(e->model, p->n_blocks, p->limits.max_seqs + p->n_snapshots,
                        &e->cache, err);
}

/* A token through both paths; proves that the weights make sense. */
static enum td_status warm_up(struct td_engine *e, struct td_error *err)
{
    const int32_t id = 0, block = 0;
    for (int32_t at = 0; at < TD_MIN(2, e->plan.limits.max_len); at++) {
        struct td_seq_rows one = {.ids = &id,
                                  .n = 1,
                                  .start = at,
                                  .decode = at > 0,
                                  .blocks = &block,
                                  .n_blocks = 1,
                                  .n_out = 1};
        enum td_status s = td_engine_forward(e, &one, 1, err);
        if (s != TD_OK)
            return s;
        const float *logits = td_engine_logits(e, 0);
        for (int i = 0; i < td_model_config(e->model)->vocab; i++)
            if (!isfinite(logits[i]))
                return td_error_set(err, TD_E_NUMERICS,
                                    "%s gives logits that are not finite numbers",
                                    e->params.model);
    }
    return TD_OK;
}

enum td_status td_engine_open(const struct td_engine_params *params,
                              struct td_engine **out, struct td_error *err)
{
    struct td_engine *e = td_calloc(1, sizeof(*e));
    if (!e)
        return td_error_set(err, TD_E_NOMEM, "no memory for an engine");
    e->params = *params;
    td_event_phase(TD_PHASE_PLAN);
    enum td_status s = plan(e, err);
    if (s == TD_OK) {
        td_event_phase(TD_PHASE_LOAD);
        s = allocate(e, err);
    }
    if (s == TD_OK)
        s = td_model_load(e->model, &params->load, &e->load, err);
    if (s == TD_OK) {
        td_event_phase(TD_PHASE_WARMUP);
        s = warm_up(e, err);
    }
    if (s == TD_OK) {
        td_event_phase(TD_PHASE_SERVE);
        *out = e;
    } else {
        td_engine_close(e);
    }
    return s;
}

void td_engine_close(struct td_engine *e)
{
    if (!e)
        return;
    td_cache_release(&e->cache);
    td_model_free(e->model);
    if (e->dev)
        e->dev->ops.close(e->dev);
    td_free(e->logits);
    td_free(e);
}

void td_engine_info(const struct td_engine *e, struct td_engine_info *out)
{
    *out = (struct td_engine_info){.config = td_model_config(e->model),
                                   .level = e->dev->ops.name,
                                   .threads = e->dev->threads,
                                   .max_len = e->plan.limits.max_len,
                                   .max_seqs = e->plan.limits.max_seqs,
                                   .max_rows = e->plan.limits.max_rows,
                                   .max_out = e->plan.limits.max_out,
                                   .n_blocks = e->plan.n_blocks,
                                   .n_slots = e->plan.limits.max_seqs,
                                   .n_snapshots = e->plan.n_snapshots,
                                   .used = (int64_t)e->dev->used,
                                   .bytes = e->plan.bytes,
                                   .plan = e->plan,
                                   .load = e->load};
}

enum td_status td_engine_forward(struct td_engine *e, const struct td_seq_rows *seqs,
                                 int32_t n_seqs, struct td_error *err)
{
    enum td_status s = td_model_forward(e->model, &e->cache, seqs, n_seqs, false, err);
    return s == TD_OK ? e->dev->ops.sync(e->dev, err) : s;
}

const float *td_engine_logits(struct td_engine *e, int32_t row)
{
    size_t vocab = (size_t)td_model_config(e->model)->vocab;
    float *to = e->logits + (size_t)row * vocab;
    e->dev->ops.get(e->dev, to, td_model_logits(e->model) + (size_t)row * vocab,
                    vocab * sizeof(*to));
    return to;
}

void td_engine_copy_state(struct td_engine *e, int32_t to, int32_t from)
{
    td_cache_copy_state(e->model, &e->cache, to, from);
}

struct td_dev *td_engine_device(struct td_engine *e)
{
    return e->dev;
}

struct td_model *td_engine_model(struct td_engine *e)
{
    return e->model;
}

struct td_cache *td_engine_cache(struct td_engine *e)
{
    return &e->cache;
}

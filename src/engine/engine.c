/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening an engine: what does it take, does it fit, load, warm up. See engine.h.
 *
 * Everything is allocated before the first weight is read, so a start that cannot fit
 * fails within milliseconds; the caches are touched while weights are read.
 */
#include "engine/engine_int.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/sysmem.h"
#include "engine/device.h"
#include "engine/touch.h"
#include "engine/world.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct td_plan_asked td_engine_asked(const struct td_engine_params *p)
{
    return (struct td_plan_asked){.model = p->model,
                                  .memory = p->memory,
                                  .max_len = p->max_len,
                                  .max_seqs = p->max_seqs,
                                  .max_rows = p->max_rows,
                                  .max_out = p->max_out,
                                  .prefix_cache = p->prefix_cache,
                                  .serves = p->serves,
                                  .load = p->load};
}

/* Opens model and device and settles limits and caches. */
static enum td_status plan(struct td_engine *e, struct td_plan_asked *asked,
                           struct td_plan_room *room, struct td_error *err)
{
    const struct td_engine_params *p = &e->params;
    struct td_plan_beside beside = {.ranks = e->comm->local_ranks};
    struct td_model_limits limits;
    enum td_status s = td_engine_device_open(p, &e->dev, err);
    if (s == TD_OK)
        td_plan_adapt(asked, e->dev, e->comm->ranks, p->vocab);
    td_plan_limits(asked, &limits);
    if (s == TD_OK && p->random)
        s = td_model_random(p->model, p->random, e->dev, e->comm, &limits, &e->model,
                            err);
    else if (s == TD_OK)
        s = td_model_open(p->model, e->dev, e->comm, &limits, &e->model, err);
    if (s == TD_OK)
        s = td_plan_room_find(e->dev, p->memory, &beside, room, err);
    return s == TD_OK ? td_plan_make(e->model, e->dev, asked, room, &e->plan, err) : s;
}

static enum td_status allocate(struct td_engine *e, struct td_error *err)
{
    const struct td_plan *p = &e->plan;
    enum td_status s = td_engine_make_calls(e, err);
    if (s == TD_OK)
        s = td_cache_new(e->model, p->n_blocks, p->limits.max_seqs + p->n_snapshots,
                         &e->cache, err);
    return s;
}

/* What the process has taken at most, against what was planned. */
static void emit_memory(struct td_engine *e)
{
    struct td_sysmem mem;
    if (td_sysmem_read("", &mem, NULL) != TD_OK)
        return;
    e->peak = mem.resident_peak;
    td_event("memory", (struct td_num[]){{"peak", (double)mem.resident_peak},
                                         {"planned", (double)e->plan.peak},
                                         {"device", (double)e->dev->used},
                                         {NULL, 0}});
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
        int64_t n;
        enum td_status s = td_engine_step(e, &one, 1, err);
        if (s != TD_OK)
            return s;
        const float *logits = td_engine_part(e, 0, &n);
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(logits[i]))
                return td_error_set(err, TD_E_NUMERICS,
                                    "%s gives logits that are not finite numbers",
                                    e->params.model);
    }
    return TD_OK;
}

/* ---- opening, on one rank or on all ----------------------------------------------------- */

/* What this rank did; of several ranks, the first cause of those that failed. */
static enum td_status agree(struct td_engine *e, enum td_status s, struct td_error *err)
{
    return e->params.world ? td_world_agree(e->params.world, s, err) : s;
}

/* Ranks compute equal bits only on equal levels of operations: the lowest is used. */
static enum td_status say_hello(struct td_engine *e, struct td_error *err)
{
    int32_t level = td_cpu_level(e->params.level);
    if (!e->params.world)
        return TD_OK;
    td_world_wait_load(e->params.world, 0);
    enum td_status s =
        td_world_hello(e->params.world, (int)e->params.numerics, &level, err);
    if (s == TD_OK && level >= 0)
        e->params.common_level = td_cpu_level_name(level);
    return s;
}

/* The same model, with what all ranks have room for. */
static enum td_status agree_on_plan(struct td_engine *e, struct td_error *err)
{
    struct td_plan *p = &e->plan;
    int64_t least[] = {p->limits.max_len, p->n_blocks, p->n_snapshots};
    enum td_status s =
        td_world_same_model(e->params.world, td_model_fingerprint(e->model), err);
    if (s == TD_OK)
        s = td_comm_min(e->comm, least, TD_COUNT(least), err);
    if (s != TD_OK)
        return s;
    p->limits.max_len = (int32_t)least[0];
    p->n_blocks = (int32_t)least[1];
    p->n_snapshots = (int32_t)least[2];
    return TD_OK;
}

static enum td_status make_plan(struct td_engine *e, struct td_error *err)
{
    const struct td_engine_params *p = &e->params;
    struct td_plan_asked asked = td_engine_asked(p);
    struct td_plan_room room = {0};
    enum td_status s = agree(e, plan(e, &asked, &room, err), err);
    if (s == TD_OK && p->world) {
        s = agree_on_plan(e, err);
        if (s == TD_OK)
            td_plan_lower(e->model, e->dev, &asked, &room, &e->plan);
    }
    if (s == TD_OK && e->dev->shared)
        e->dev->budget = (size_t)room.device;
    if (s == TD_OK)
        td_plan_emit(&e->plan, &room);
    return s;
}

static enum td_status load(struct td_engine *e, struct td_error *err)
{
    struct td_load_opts opts = e->params.load;
    opts.beat = &e->comm->progress;
    td_event_phase(TD_PHASE_LOAD);
    struct td_touch touch;
    enum td_status s = allocate(e, err);
    if (s == TD_OK) {
        td_touch_start(&touch, e->dev, &e->cache, &e->comm->progress);
        s = td_model_load(e->model, &opts, &e->load, err);
        td_touch_end(&touch, s == TD_OK);
    }
    if (e->params.world) /* others may take longer */
        td_world_wait_load(e->params.world, e->load.seconds);
    s = agree(e, s, err);
    if (s != TD_OK)
        return s;
    td_event_phase(TD_PHASE_WARMUP);
    return agree(e, warm_up(e, err), err);
}

static enum td_status open_all(struct td_engine *e, struct td_error *err)
{
    td_event_phase(TD_PHASE_PLAN);
    enum td_status s = say_hello(e, err);
    if (s == TD_OK)
        s = make_plan(e, err);
    if (s == TD_OK)
        s = load(e, err);
    if (s == TD_OK) {
        e->comm->counts = (struct td_comm_counts){0};
        emit_memory(e);
        td_event_phase(TD_PHASE_SERVE);
    }
    return s;
}

/* Rank 0 makes the others open theirs. */
static enum td_status lead_open(struct td_engine *e, struct td_error *err)
{
    const struct td_engine_params *p = &e->params;
    struct td_step_open o = {.numerics = (int32_t)p->numerics,
                             .max_len = p->max_len,
                             .max_seqs = p->max_seqs,
                             .max_rows = p->max_rows,
                             .max_out = p->max_out,
                             .vocab = p->vocab,
                             .serves = p->serves,
                             .prefix_cache = p->prefix_cache};
    struct td_buf message;
    td_text_copy(o.device, sizeof(o.device), p->device ? p->device : "auto");
    td_buf_init(&message, TD_STEP_HEAD);
    td_world_lock(p->world);
    td_step_put_open(&message, &o);
    enum td_status s = td_world_send(p->world, &message, err);
    td_buf_release(&message);
    if (s == TD_OK)
        s = open_all(e, err);
    td_world_unlock(p->world);
    return s;
}

enum td_status td_engine_open(const struct td_engine_params *params,
                              struct td_engine **out, struct td_error *err)
{
    struct td_engine *e = td_calloc(1, sizeof(*e));
    if (!e)
        return td_error_set(err, TD_E_NOMEM, "no memory for an engine");
    e->params = *params;
    if (params->world)
        e->params.comm = td_world_comm(params->world);
    e->comm = e->params.comm ? e->params.comm : td_comm_self();
    bool leads = params->world && td_world_rank(params->world) == 0;
    enum td_status s = leads ? lead_open(e, err) : open_all(e, err);
    if (s == TD_OK)
        *out = e;
    else
        td_engine_close(e);
    return s;
}

void td_engine_close(struct td_engine *e)
{
    if (!e)
        return;
    if (e->params.world && td_world_rank(e->params.world) == 0) {
        td_world_lock(e->params.world);
        (void)td_engine_tell(e, TD_STEP_CLOSE, NULL); /* not where all have failed */
        td_world_unlock(e->params.world);
    }
    td_engine_free_calls(e);
    td_cache_release(&e->cache);
    td_model_free(e->model);
    if (e->dev)
        e->dev->ops.close(e->dev);
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
                                   .peak = e->peak,
                                   .load = e->load,
                                   .ranks = e->comm->ranks,
                                   .comm = e->comm->counts};
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening an engine: what does it take, does it fit, load, warm up. See engine.h.
 *
 * Everything is allocated before the first weight is read, so a start that cannot fit
 * fails within milliseconds.
 */
#include "engine/engine.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sysmem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_ROWS = 512,
    LONGEST_UNASKED = 32768, /* context that is planned for when none is asked for */
    SHORTEST = 256           /* below this a start that does not fit is refused */
};

struct td_engine {
    struct td_engine_params params;
    struct td_model_limits limits;
    struct td_dev *dev;
    struct td_model *model;
    struct td_cache cache;
    struct td_load_stats load;
    int32_t n_blocks, n_snapshots;
    float *logits; /* host [max_out][vocab] */
};

static int32_t blocks_for(int32_t tokens)
{
    return (tokens + TD_KV_BLOCK - 1) / TD_KV_BLOCK;
}

/* Opens the processor. *budget: bytes that may be used; `bound`: what sets that limit. */
static enum td_status open_cpu(struct td_engine *e, struct td_dev_params *dev,
                               int64_t *budget, char *bound, size_t size,
                               struct td_error *err)
{
    struct td_sysmem mem;
    int64_t asked = e->params.memory;
    enum td_status s = td_sysmem_read("", &mem, err);
    if (s != TD_OK)
        return s;
    *budget = td_sysmem_available(&mem, bound, size);
    if (asked && asked < *budget) {
        *budget = asked;
        (void)snprintf(bound, size, "--memory allows %s",
                       td_size_text(*budget, 1).text);
    }
    dev->budget = (size_t)*budget;
    return td_cpu_open(dev, &e->dev, err);
}

static enum td_status open_gpu(struct td_engine *e, struct td_dev_params *dev,
                               int64_t *budget, char *bound, size_t size,
                               struct td_error *err)
{
    int64_t asked = e->params.memory;
    if (e->params.comm && e->params.comm->ranks > 1) {
        td_error_set(err, TD_E_UNSUPPORTED, "several ranks cannot use GPUs yet");
        td_error_fix(err, "use --device cpu, or one rank");
        return TD_E_UNSUPPORTED;
    }
    dev->budget = (size_t)asked;
    enum td_status s = td_cuda_open(dev, &e->dev, err);
    if (s != TD_OK)
        return s;
    *budget = (int64_t)e->dev->budget;
    (void)snprintf(bound, size,
                   asked == *budget ? "--memory allows %s"
                                    : "%s of the GPU's memory can be used",
                   td_size_text(*budget, 1).text);
    return TD_OK;
}

/* The number of "cuda" or "cuda:N"; -1 for something else. */
static int gpu_of(const char *device)
{
    int n = 0;
    if (strncmp(device, "cuda", 4) != 0)
        return -1;
    if (device[4] == '\0')
        return 0;
    if (device[4] != ':' || device[5] == '\0' || strlen(device) > 8)
        return -1;
    for (const char *c = device + 5; *c; c++) {
        if (*c < '0' || *c > '9')
            return -1;
        n = n * 10 + (*c - '0');
    }
    return n;
}

/* Opens the device that the parameters ask for. */
static enum td_status open_device(struct td_engine *e, int64_t *budget, char *bound,
                                  size_t size, struct td_error *err)
{
    const struct td_engine_params *p = &e->params;
    const char *name = p->device ? p->device : "auto";
    struct td_dev_params dev = {.numerics = p->numerics,
                                .threads = p->threads,
                                .level = p->level,
                                .no_graphs = p->no_graphs};
    if (p->comm) {
        dev.local_rank = p->comm->local_rank;
        dev.local_ranks = p->comm->local_ranks;
    }
    if (strcmp(name, "auto") == 0) {
        struct td_error none;
        bool cpu_only = p->level || (p->comm && p->comm->ranks > 1);
        td_error_init(&none);
        enum td_status s =
            cpu_only ? TD_E_NO_DEVICE : open_gpu(e, &dev, budget, bound, size, &none);
        if (s != TD_E_NO_DEVICE && s != TD_OK && err)
            *err = none;
        if (s != TD_E_NO_DEVICE)
            return s;
        name = "cpu";
    }
    if (strcmp(name, "cpu") == 0)
        return open_cpu(e, &dev, budget, bound, size, err);
    dev.device = gpu_of(name);
    if (dev.device >= 0)
        return open_gpu(e, &dev, budget, bound, size, err);
    td_error_set(err, TD_E_USAGE, "there is no device \"%.32s\"", name);
    td_error_why(err, "devices are auto, cpu, cuda and cuda:N");
    return TD_E_USAGE;
}

/* Bytes of everything but the shelf's own work memory, with n_blocks of KV cache. */
static int64_t needed(struct td_engine *e, int64_t n_blocks)
{
    struct td_model_bytes b;
    td_model_bytes(e->model, &b);
    return b.weights + b.work + b.state * (e->limits.max_seqs + e->n_snapshots) +
           b.kv_block * n_blocks;
}

static enum td_status too_large(struct td_engine *e, const char *bound,
                                struct td_error *err)
{
    struct td_model_bytes b;
    int64_t n_blocks = blocks_for(e->limits.max_len);
    td_model_bytes(e->model, &b);
    td_error_set(err, TD_E_MEMORY_PLAN,
                 "%s needs %s for one sequence of %d tokens: %s weights, "
                 "%s KV cache, %s states, %s work",
                 e->params.model, td_size_text(needed(e, n_blocks), 1).text,
                 e->limits.max_len, td_size_text(b.weights, 1).text,
                 td_size_text(b.kv_block * n_blocks, 1).text,
                 td_size_text(b.state * e->limits.max_seqs, 1).text,
                 td_size_text(b.work, 1).text);
    td_error_why(err, "%s", bound);
    td_error_fix(err,
                 "use a host with more memory, a smaller model or a shorter context "
                 "(--max-model-len); free or allow what the cause names");
    return TD_E_MEMORY_PLAN;
}

/* Settles how many KV blocks and saved states there are: all sequences at full length if
 * that fits, else what does, at least one sequence. */
static enum td_status plan_caches(struct td_engine *e, int64_t budget,
                                  const char *bound, struct td_error *err)
{
    struct td_model_limits *l = &e->limits;
    const struct td_config *c = td_model_config(e->model);
    struct td_model_bytes b;
    enum { MOST_SNAPSHOTS = 4096 };
    l->max_len = e->params.max_len ? e->params.max_len
                                   : TD_MIN(c->max_positions, LONGEST_UNASKED);
    td_model_set_max_len(e->model, l->max_len);
    while (!e->params.max_len && needed(e, blocks_for(l->max_len)) > budget &&
           l->max_len / 2 >= SHORTEST) {
        l->max_len /= 2;
        td_model_set_max_len(e->model, l->max_len);
    }
    int64_t one = blocks_for(l->max_len), spare = budget - needed(e, one);
    if (spare < 0)
        return too_large(e, bound, err);
    td_model_bytes(e->model, &b);
    if (b.state)
        e->n_snapshots = (int32_t)TD_MIN(
            TD_MIN(e->params.prefix_cache, spare / 2) / b.state, MOST_SNAPSHOTS);
    spare -= b.state * e->n_snapshots;
    int64_t more = b.kv_block ? spare * 9 / 10 / b.kv_block : 0;
    e->n_blocks = (int32_t)TD_MIN(one * l->max_seqs, one + more);
    return TD_OK;
}

/* Opens model and device and settles the length of sequences. */
static enum td_status plan(struct td_engine *e, struct td_error *err)
{
    char bound[TD_ERROR_WHY_MAX];
    int64_t budget;
    const struct td_engine_params *p = &e->params;
    enum td_status s = open_device(e, &budget, bound, sizeof(bound), err);
    struct td_comm *comm = p->comm ? p->comm : td_comm_self();
    if (s == TD_OK && p->random)
        s = td_model_random(p->model, p->random, e->dev, comm, &e->limits, &e->model,
                            err);
    else if (s == TD_OK)
        s = td_model_open(p->model, e->dev, comm, &e->limits, &e->model, err);
    if (s != TD_OK)
        return s;
    const struct td_config *c = td_model_config(e->model);
    if (p->max_len > c->max_positions) {
        td_error_set(err, TD_E_USAGE, "a context of %d tokens is asked for",
                     p->max_len);
        td_error_why(err, "%s was made for at most %d", p->model, c->max_positions);
        td_error_fix(err, "ask for less, or leave --max-model-len out");
        return TD_E_USAGE;
    }
    return plan_caches(e, budget, bound, err);
}

static enum td_status allocate(struct td_engine *e, struct td_error *err)
{
    const struct td_model_limits *l = &e->limits;
    size_t vocab = (size_t)td_model_config(e->model)->vocab;
    e->logits = td_calloc((size_t)l->max_out * vocab, sizeof(*e->logits));
    if (!e->logits)
        return td_error_set(err, TD_E_NOMEM, "no memory for logits");
    return td_cache_new(e->model, e->n_blocks, l->max_seqs + e->n_snapshots, &e->cache,
                        err);
}

/* A token through both paths; proves that the weights make sense. */
static enum td_status warm_up(struct td_engine *e, struct td_error *err)
{
    const int32_t id = 0, block = 0;
    for (int32_t at = 0; at < TD_MIN(2, e->limits.max_len); at++) {
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

static void set_limits(struct td_engine *e)
{
    const struct td_engine_params *p = &e->params;
    struct td_model_limits *l = &e->limits;
    l->max_seqs = TD_MAX(p->max_seqs, 1);
    l->max_rows = p->max_rows ? p->max_rows : TD_MAX(DEFAULT_ROWS, l->max_seqs);
    l->max_out = TD_MAX(p->max_out, l->max_seqs);
    l->max_len = TD_CHUNK; /* settled by plan() */
}

enum td_status td_engine_open(const struct td_engine_params *params,
                              struct td_engine **out, struct td_error *err)
{
    struct td_engine *e = td_calloc(1, sizeof(*e));
    if (!e)
        return td_error_set(err, TD_E_NOMEM, "no memory for an engine");
    e->params = *params;
    set_limits(e);
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
                                   .max_len = e->limits.max_len,
                                   .max_seqs = e->limits.max_seqs,
                                   .max_rows = e->limits.max_rows,
                                   .max_out = e->limits.max_out,
                                   .n_blocks = e->n_blocks,
                                   .n_slots = e->limits.max_seqs,
                                   .n_snapshots = e->n_snapshots,
                                   .used = (int64_t)e->dev->used,
                                   .load = e->load};
    td_model_bytes(e->model, &out->bytes);
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

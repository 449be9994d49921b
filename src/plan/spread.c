/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of all ranks over hosts. See spread.h.
 */
#include "plan/spread.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* What the CUDA shelf leaves to the driver, and what a process's context takes of a GPU
 * before the shelf looks at what is free. */
#define GPU_KEPT      (512 * TD_MIB)
#define GPU_KEPT_PART 128
#define GPU_CONTEXT   (512 * TD_MIB)

/* What MPI adds to a rank before it plans: 12 MiB in its process, the rest in the daemon
 * that starts it. */
#define MPI_BYTES (16 * TD_MIB)

/* Spread in the making. */
struct spreader {
    const struct td_spread_params *p;
    const struct td_cluster *cluster; /* NULL: this host alone */
    struct td_sysmem here;
    int64_t program;
    struct td_spread *out;
};

enum td_status td_spread_divide(int ranks, int hosts, struct td_error *err)
{
    if (ranks % hosts == 0)
        return TD_OK;
    td_error_set(err, TD_E_USAGE, "%d ranks do not divide over %d hosts", ranks, hosts);
    td_error_why(err, "every host runs as many ranks as the others");
    td_error_fix(err, "give --tp a multiple of %d, or leave it out", hosts);
    return TD_E_USAGE;
}

/* ---- rooms -------------------------------------------------------------------------- */

/* So many bytes more can be had. */
static void give(struct td_sysmem *m, int64_t bytes)
{
    m->available = TD_MAX(m->available + bytes, 0);
    m->group_used = TD_MAX(m->group_used - bytes, 0);
}

void td_plan_room_gpu(const struct td_gpu_facts *gpu, const struct td_sysmem *mem,
                      int64_t program, int64_t asked_memory, int share,
                      struct td_plan_room *out)
{
    int ranks = TD_MAX(share, 1);
    struct td_plan_beside beside = {.ranks = ranks};
    td_plan_room_of(mem, program, asked_memory, &beside, out);
    if (gpu->unified)
        return;
    int64_t kept = GPU_KEPT + gpu->total / GPU_KEPT_PART;
    int64_t left = (gpu->total - gpu->used) / ranks - GPU_CONTEXT - kept;
    out->shared = false;
    out->asked = asked_memory && asked_memory <= left;
    out->device = out->asked ? asked_memory : TD_MAX(left, 0);
    if (out->asked)
        (void)snprintf(out->bound, sizeof(out->bound), "--memory allows %s",
                       td_size_text(asked_memory, 1).text);
    else
        (void)snprintf(out->bound, sizeof(out->bound),
                       "%s of the %s of %s are in use; %s stay with the driver",
                       td_size_text(gpu->used, 1).text,
                       td_size_text(gpu->total, 1).text, gpu->name,
                       td_size_text(kept + GPU_CONTEXT, 1).text);
}

/* Ranks of a host take its GPUs in turn, as the shelf has it. */
static const struct td_gpu_facts *gpu_of(const struct td_facts *f, int first, int local)
{
    return &f->gpus[(first + local) % f->n_gpus];
}

static void room_on_gpu(const struct spreader *k, const struct td_facts *f, int local,
                        int ranks, struct td_plan_room *out)
{
    const struct td_gpu_facts *gpu = gpu_of(f, k->p->gpu, local);
    int share = (ranks + (int)f->n_gpus - 1) / (int)f->n_gpus;
    td_plan_room_gpu(gpu, &f->memory, k->program, k->p->asked->memory, share, out);
}

static enum td_status room_here(struct spreader *k, const struct td_plan_beside *beside,
                                struct td_plan_room *out, struct td_error *err)
{
    int64_t asked = k->p->asked->memory;
    enum td_status s = TD_OK;
    if (k->cluster)
        td_plan_room_of(&k->here, k->program, asked, beside, out);
    else
        s = td_plan_room_find(k->p->dev, asked, beside, out, err);
    out->program = k->program;
    if (s != TD_OK || k->cluster || !asked || out->asked)
        return s;
    /* planned for a machine that is not here */
    k->out->beyond = true;
    out->device = out->host = asked;
    (void)snprintf(out->bound, sizeof(out->bound), "--memory allows %s",
                   td_size_text(asked, 1).text);
    return TD_OK;
}

static enum td_status find_room(struct spreader *k, int index, struct td_error *err)
{
    struct td_spread_rank *r = &k->out->ranks[index];
    int ranks = k->out->n / k->out->hosts;
    struct td_plan_beside beside = {.ranks = ranks, .taken = r->host ? 0 : k->p->front};
    const struct td_facts *f = k->cluster ? k->cluster->hosts[r->host].facts : NULL;
    if (k->cluster && !f && !k->p->dev->host)
        f = k->cluster->hosts[0].facts; /* GPUs like here */
    if (f && !k->p->dev->host && f->n_gpus > 0) {
        room_on_gpu(k, f, index % ranks, ranks, &r->room);
    } else if (f && r->host > 0) {
        struct td_sysmem there = f->memory;
        give(&there, f->memory.resident - k->program); /* the agent that looked ends */
        td_plan_room_of(&there, k->program, k->p->asked->memory, &beside, &r->room);
    } else {
        return room_here(k, &beside, &r->room, err);
    }
    return TD_OK;
}

bool td_spread_lacks_gpus(const struct td_cluster *c)
{
    for (int i = 0; i < c->n; i++)
        if (c->hosts[i].facts && c->hosts[i].facts->n_gpus == 0)
            return true;
    return false;
}

/* ---- ranks -------------------------------------------------------------------------- */

static bool same_shape(const struct td_slice *a, const struct td_slice *b)
{
    return a->heads.count == b->heads.count && a->kv_heads.count == b->kv_heads.count &&
           a->key_heads.count == b->key_heads.count &&
           a->value_heads.count == b->value_heads.count &&
           a->ffn.count == b->ffn.count && a->moe_ffn.count == b->moe_ffn.count &&
           a->shared_ffn.count == b->shared_ffn.count &&
           a->vocab.count == b->vocab.count;
}

/* Opens the model for its sizes as one rank, unless one like it has been. */
static enum td_status size_rank(const struct td_spread_params *p, struct td_spread *o,
                                int index, struct td_error *err)
{
    struct td_spread_rank *r = &o->ranks[index];
    struct td_model_limits limits;
    enum td_status s = td_slice_make(p->config, index, o->n, &r->slice, err);
    /* the first one also keeps logits */
    for (int i = 1; i < index && !r->model; i++)
        if (same_shape(&o->ranks[i].slice, &r->slice))
            r->model = o->ranks[i].model;
    if (s != TD_OK || r->model)
        return s;
    td_plan_limits(p->asked, &limits);
    r->owner = true;
    return td_model_size(p->asked->model, p->dev, index, o->n, &limits, &r->model, err);
}

enum td_status td_spread_size(const struct td_spread_params *p, struct td_spread *out,
                              struct td_error *err)
{
    *out = (struct td_spread){.hosts = 1, .n = p->ranks};
    enum td_status s = td_split_check(p->config, p->ranks, err);
    if (s != TD_OK)
        return s;
    out->ranks = td_calloc((size_t)out->n, sizeof(*out->ranks));
    if (!out->ranks)
        return td_error_set(err, TD_E_NOMEM, "no memory for %d ranks", out->n);
    for (int i = 0; i < out->n && s == TD_OK; i++) {
        struct td_sysmem mem;
        s = size_rank(p, out, i, err);
        if (s == TD_OK && i == 0 && td_sysmem_read("", &mem, NULL) == TD_OK)
            out->program = mem.resident;
    }
    return s;
}

static const char *name_of(const struct spreader *k, int host)
{
    return k->cluster ? k->cluster->hosts[host].label : "this host";
}

static int64_t room_of(const struct td_spread_rank *r)
{
    return r->room.shared ? r->room.host : r->room.device;
}

static enum td_status plan_rank(struct spreader *k, int index, struct td_error *err)
{
    struct td_spread_rank *r = &k->out->ranks[index];
    enum td_status s =
        td_plan_make(r->model, k->p->dev, k->p->asked, &r->room, &r->plan, err);
    if (s == TD_OK || !k->cluster || !err)
        return s;
    char what[2 * TD_ERROR_WHAT_MAX];
    td_text_copy(err->host, sizeof(err->host), name_of(k, r->host));
    err->rank = index;
    if (s == TD_E_MEMORY_PLAN) {
        (void)snprintf(what, sizeof(what), "rank %d does not fit on %s: %s", index,
                       name_of(k, r->host), err->what);
        td_text_copy(err->what, sizeof(err->what), what);
    }
    return s;
}

/* The rank with the least room first: what is near enough for it fits everywhere. */
static enum td_status plan_all(struct spreader *k, struct td_error *err)
{
    struct td_spread *o = k->out;
    int least = 0;
    enum td_status s = TD_OK;
    for (int i = 0; i < o->n && s == TD_OK; i++) {
        o->ranks[i].host = i / (o->n / o->hosts);
        s = find_room(k, i, err);
        if (room_of(&o->ranks[i]) < room_of(&o->ranks[least]))
            least = i;
    }
    if (s == TD_OK)
        s = plan_rank(k, least, err);
    for (int i = 0; i < o->n && s == TD_OK; i++)
        if (i != least)
            s = plan_rank(k, i, err);
    return s;
}

/* All ranks have the context and the caches of the one with the least room. */
static void agree(struct spreader *k)
{
    struct td_spread *o = k->out;
    struct td_plan low = o->ranks[0].plan;
    for (int i = 1; i < o->n; i++) {
        const struct td_plan *p = &o->ranks[i].plan;
        low.limits.max_len = TD_MIN(low.limits.max_len, p->limits.max_len);
        low.n_blocks = TD_MIN(low.n_blocks, p->n_blocks);
        low.n_snapshots = TD_MIN(low.n_snapshots, p->n_snapshots);
    }
    for (int i = 0; i < o->n; i++) {
        struct td_spread_rank *r = &o->ranks[i];
        r->plan.limits.max_len = low.limits.max_len;
        r->plan.n_blocks = low.n_blocks;
        r->plan.n_snapshots = low.n_snapshots;
        td_plan_lower(r->model, k->p->dev, k->p->asked, &r->room, &r->plan);
    }
}

/* ---- weights on GPUs ---------------------------------------------------------------- */

static int64_t weights_of(const struct td_config *config, int rank, int ranks)
{
    struct td_slice slice;
    struct td_names_sum sum;
    if (td_slice_make(config, rank, ranks, &slice, NULL) != TD_OK)
        return 0;
    td_names_sum(config, &slice, &(struct td_name_form){0}, &sum);
    return sum.bytes;
}

/* What weights may take at most, and what bounds them. */
static int64_t most_on(const struct td_facts *f, const struct td_gpu_facts *g,
                       int ranks, int64_t memory, char *why, size_t size)
{
    int share = (ranks + (int)f->n_gpus - 1) / (int)f->n_gpus;
    int64_t left =
        g->unified ? td_sysmem_available(&f->memory, why, size) : g->total - g->used;
    if (!g->unified)
        (void)snprintf(why, size, "%s of the %s of %s are in use",
                       td_size_text(g->used, 1).text, td_size_text(g->total, 1).text,
                       g->name);
    left = TD_MAX(left, 0) / TD_MAX(share, 1);
    if (!memory || memory >= left)
        return left;
    (void)snprintf(why, size, "--memory allows %s", td_size_text(memory, 1).text);
    return memory;
}

/* The least legal number of ranks, above this one, whose weights fit; 0: none. */
static int enough_ranks(const struct td_config *config, int ranks, int64_t most)
{
    int list[TD_MAX_RANKS];
    int n = td_split_list(config, list);
    for (int i = 0; i < n; i++)
        if (list[i] > ranks && weights_of(config, 0, list[i]) <= most)
            return list[i];
    return 0;
}

enum td_status td_spread_weigh(const struct td_config *config,
                               const struct td_cluster *c, int ranks, int gpu,
                               int64_t memory, struct td_error *err)
{
    int each = ranks / TD_MAX(c->n, 1);
    for (int i = 0; i < ranks; i++) {
        const struct td_cluster_host *h = &c->hosts[i / each];
        char why[TD_FACT_TEXT] = "";
        if (!h->facts || gpu >= h->facts->n_gpus)
            continue;
        int64_t need = weights_of(config, i, ranks);
        int64_t most = most_on(h->facts, gpu_of(h->facts, gpu, i % each), each, memory,
                               why, sizeof(why));
        if (need <= most)
            continue;
        td_error_set(err, TD_E_MEMORY_PLAN,
                     "rank %d does not fit on %s: its weights alone have %s, %s can be "
                     "had",
                     i, h->label, td_size_text(need, 1).text,
                     td_size_text(most, 1).text);
        td_error_why(err, "%s", why);
        int more = enough_ranks(config, ranks, most);
        if (more)
            td_error_fix(err, "its weights fit over %d ranks with as much memory each",
                         more);
        if (err)
            td_text_copy(err->host, sizeof(err->host), h->label);
        return TD_E_MEMORY_PLAN;
    }
    return TD_OK;
}

enum td_status td_spread_plan(const struct td_spread_params *p, struct td_spread *out,
                              struct td_error *err)
{
    struct spreader k = {.p = p, .program = p->program, .out = out};
    if (p->cluster && p->cluster->n > 0) {
        k.cluster = p->cluster;
        out->hosts = p->cluster->n;
    }
    enum td_status s = td_sysmem_read("", &k.here, err);
    if (s != TD_OK)
        return s;
    if (!k.program)
        k.program = out->program;
    if (p->ranks > 1)
        k.program += MPI_BYTES;
    give(&k.here, (p->ends ? k.here.resident : 0) - k.program);
    s = plan_all(&k, err);
    if (s == TD_OK)
        agree(&k);
    return s;
}

enum td_status td_spread_make(const struct td_spread_params *p, struct td_spread *out,
                              struct td_error *err)
{
    int hosts = p->cluster ? TD_MAX(p->cluster->n, 1) : 1;
    enum td_status s = td_spread_divide(p->ranks, hosts, err);
    if (s == TD_OK)
        s = td_spread_size(p, out, err);
    return s == TD_OK ? td_spread_plan(p, out, err) : s;
}

void td_spread_release(struct td_spread *s)
{
    for (int i = 0; s->ranks && i < s->n; i++)
        if (s->ranks[i].owner)
            td_model_free(s->ranks[i].model);
    td_free(s->ranks);
    *s = (struct td_spread){0};
}

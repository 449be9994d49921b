/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a model: open, size, allocate, load; and its caches.
 */
#include "model/model.h"

#include "base/mem.h"
#include "model/model_int.h"

#include <stdatomic.h>

static enum td_status check_blocks(const struct td_model *m, const char *path,
                                   struct td_error *err)
{
    const struct td_config *c = &m->cfg;
    if (c->quant != TD_QUANT_FP8 ||
        (c->block_rows == TD_SCALE_BLOCK && c->block_cols == TD_SCALE_BLOCK))
        return TD_OK;
    td_error_set(err, TD_E_UNSUPPORTED, "%s/config.json: FP8 blocks of %dx%d", path,
                 c->block_rows, c->block_cols);
    td_error_why(err, "tandem reads blocks of %dx%d", TD_SCALE_BLOCK, TD_SCALE_BLOCK);
    return TD_E_UNSUPPORTED;
}

/* Layers, and matrices of all experts in one array. */
static enum td_status make_layers(struct td_model *m, struct td_error *err)
{
    const struct td_config *c = &m->cfg;
    size_t layers = (size_t)c->n_layers + 1, n = (size_t)c->n_experts;
    int attention = 0, gdn = 0;
    m->layers = td_calloc(layers, sizeof(*m->layers));
    m->experts = td_calloc(layers * n * 3, sizeof(*m->experts));
    if (!m->layers || !m->experts)
        return td_error_set(err, TD_E_NOMEM, "no memory for %zu layers", layers);
    for (size_t i = 0; i < layers; i++) {
        struct td_layer *l = &m->layers[i];
        bool draft = i == (size_t)c->n_layers;
        l->kind = draft ? TD_LAYER_FULL : (enum td_layer_kind)c->layers[i];
        l->cache = l->kind == TD_LAYER_FULL ? attention++ : gdn++;
        l->ffn.e_gate = m->experts + i * n * 3;
        l->ffn.e_up = l->ffn.e_gate + n;
        l->ffn.e_down = l->ffn.e_up + n;
    }
    return TD_OK;
}

/* Headers of all files; for a plan the index will do, or the configuration alone. */
static enum td_status find_weights(struct td_model *m, const char *path,
                                   struct td_error *err)
{
    struct td_error why;
    td_error_init(&why);
    if (m->random)
        return td_weights_imply(&m->cfg, &m->slice, &m->names, err);
    enum td_status s = td_model_dir_open(path, &m->dir, &why);
    bool missing = s == TD_E_NOT_FOUND || s == TD_E_LFS_POINTER;
    if (missing && !m->comm) {
        s = td_model_dir_names(path, &m->dir, &why);
        if (s == TD_E_NOT_FOUND)
            return td_weights_imply(&m->cfg, &m->slice, &m->names, err);
    }
    if (s != TD_OK && err)
        *err = why;
    return s == TD_OK ? td_weights_bind(&m->cfg, &m->dir, &m->slice, TD_UNKNOWN_FAILS,
                                        &m->names, err)
                      : s;
}

static enum td_status make(const char *path, uint64_t seed, struct td_dev *dev,
                           struct td_comm *comm, int rank, int ranks,
                           const struct td_model_limits *limits, struct td_model **out,
                           struct td_error *err)
{
    struct td_model *m = td_calloc(1, sizeof(*m));
    if (!m)
        return td_error_set(err, TD_E_NOMEM, "no memory for a model");
    m->dev = dev;
    m->comm = comm;
    m->limits = *limits;
    m->random = seed;
    enum td_status s = td_config_read(path, &m->cfg, err);
    if (!limits->draft)
        m->cfg.mtp_layers = 0;
    if (s == TD_OK)
        s = td_slice_make(&m->cfg, rank, ranks, &m->slice, err);
    if (s == TD_OK)
        s = check_blocks(m, path, err);
    if (s == TD_OK)
        s = find_weights(m, path, err);
    if (s == TD_OK)
        s = make_layers(m, err);
    if (s == TD_OK) {
        m->weight_bytes = td_model_weight_bytes(m);
        m->list_bytes = td_model_list_bytes(m);
        *out = m;
    } else {
        td_model_free(m);
    }
    return s;
}

enum td_status td_model_open(const char *path, struct td_dev *dev, struct td_comm *comm,
                             const struct td_model_limits *limits,
                             struct td_model **out, struct td_error *err)
{
    return make(path, 0, dev, comm, comm->rank, comm->ranks, limits, out, err);
}

enum td_status td_model_random(const char *path, uint64_t seed, struct td_dev *dev,
                               struct td_comm *comm,
                               const struct td_model_limits *limits,
                               struct td_model **out, struct td_error *err)
{
    return make(path, seed, dev, comm, comm->rank, comm->ranks, limits, out, err);
}

enum td_status td_model_size(const char *path, struct td_dev *dev, int rank, int ranks,
                             const struct td_model_limits *limits,
                             struct td_model **out, struct td_error *err)
{
    return make(path, 0, dev, NULL, rank, ranks, limits, out, err);
}

const struct td_slice *td_model_slice(const struct td_model *m)
{
    return &m->slice;
}

const struct td_weights *td_model_weights(const struct td_model *m)
{
    return &m->names;
}

const struct td_model_dir *td_model_files(const struct td_model *m)
{
    return &m->dir;
}

void td_model_free(struct td_model *m)
{
    if (!m)
        return;
    td_weights_release(&m->names);
    td_model_dir_release(&m->dir);
    td_free(m->layers);
    td_free(m->experts);
    td_free(m->work.host);
    td_free(m);
}

const struct td_config *td_model_config(const struct td_model *m)
{
    return &m->cfg;
}

bool td_model_has_draft(const struct td_model *m)
{
    return m->names.has_mtp;
}

/* Attention layers that have a cache: the draft head's comes last. */
static int32_t kv_layers(const struct td_model *m)
{
    return m->cfg.n_full + (m->names.has_mtp ? 1 : 0);
}

static int64_t kv_bytes(const struct td_model *m)
{
    return TD_KV_BLOCK * m->slice.kv_heads.count * m->cfg.head_dim *
           (int64_t)td_kv_element(m->dev->numerics);
}

static int64_t conv_slot_bytes(const struct td_model *m)
{
    return (int64_t)(m->cfg.conv_kernel - 1) * td_local_channels(m) *
           (int64_t)sizeof(float);
}

static int64_t state_slot_bytes(const struct td_model *m)
{
    return m->slice.value_heads.count * m->cfg.key_dim * m->cfg.value_dim *
           (int64_t)sizeof(float);
}

/* The work buffers in the order they are carved; also what they add up to. */
static int64_t carve_work(struct td_model *m, char *base)
{
    const struct td_model_limits *l = &m->limits;
    struct td_work *w = &m->work;
    int64_t rows = l->max_rows, h = m->cfg.hidden, best = 0;
    if (l->vocab && m->dev->ops.candidates)
        best = l->max_out * (int64_t)(sizeof(*w->best) / sizeof(float));
    struct {
        float **p;
        int64_t floats;
    } parts[] = {
        {&w->x, rows * h},
        {&w->h, rows * h},
        {&w->delta, rows * h},
        {&w->wide, rows * td_layer_wide(m)},
        {&w->hidden, m->names.has_mtp ? rows * h : 0},
        {&w->pair, m->names.has_mtp ? 2 * rows * h : 0},
        {&w->out_h, l->max_out * h},
        {&w->logits, (int64_t)l->max_out * m->slice.vocab.count},
        {(float **)(void *)&w->best, best},
        {(float **)(void *)&w->ints, td_batch_ints(l)},
    };
    int64_t at = 0;
    for (size_t i = 0; i < TD_COUNT(parts); i++) {
        if (base && parts[i].floats)
            *parts[i].p = (float *)(void *)(base + at);
        at += (parts[i].floats * (int64_t)sizeof(float) + 63) / 64 * 64;
    }
    return at;
}

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ c[i]) * 0x100000001b3u;
    return h;
}

static uint64_t mix_number(uint64_t h, double x)
{
    return mix(h, &x, sizeof(x));
}

uint64_t td_model_fingerprint(const struct td_model *m)
{
    const struct td_config *c = &m->cfg;
    const double numbers[] = {
        c->family,       c->quant,       c->dtype,         c->hidden,
        c->vocab,        c->tied,        c->eps,           c->n_layers,
        c->mtp_layers,   c->n_heads,     c->n_kv_heads,    c->head_dim,
        c->rotary_dim,   c->rope_theta,  c->n_key_heads,   c->key_dim,
        c->value_dim,    c->conv_kernel, c->n_value_heads, c->ffn,
        c->n_experts,    c->top_k,       c->moe_ffn,       c->shared_ffn,
        c->max_positions};
    uint64_t h = 0xcbf29ce484222325u ^ m->random;
    for (size_t i = 0; i < TD_COUNT(numbers); i++)
        h = mix_number(h, numbers[i]);
    h = mix(h, c->layers, (size_t)c->n_layers);
    for (int32_t i = 0; i < m->dir.n_shards; i++)
        h = mix_number(h, (double)m->dir.shards[i].size);
    for (int32_t i = 0; i < m->dir.n_tensors; i++) {
        const struct td_tensor *t = &m->dir.tensors[i];
        h = mix(h, t->name, t->name_len);
        h = mix_number(mix_number(h, t->dtype), (double)t->offset);
        for (int32_t d = 0; d < t->n_dims; d++)
            h = mix_number(h, (double)t->shape[d]);
    }
    return h;
}

void td_model_set_limits(struct td_model *m, const struct td_model_limits *limits)
{
    m->limits = *limits;
}

static enum td_status make_work(struct td_model *m, struct td_error *err)
{
    void *slab;
    int64_t ints = td_batch_ints(&m->limits);
    m->work.host = td_calloc((size_t)ints, sizeof(*m->work.host));
    if (!m->work.host)
        return td_error_set(err, TD_E_NOMEM, "no memory for a batch");
    enum td_status s =
        m->dev->ops.alloc(m->dev, (size_t)carve_work(m, NULL), "work", &slab, err);
    if (s == TD_OK) {
        (void)carve_work(m, slab);
        m->dev->ops.zero(m->dev, slab, (size_t)carve_work(m, NULL)); /* touched now */
    }
    return s;
}

/* The largest of everything that forwards will ask of the shelf. */
static struct td_reserve largest(const struct td_model *m)
{
    const struct td_config *c = &m->cfg;
    const struct td_slice *l = &m->slice;
    int64_t wide =
        TD_MAX(l->heads.count * c->head_dim, l->value_heads.count * c->value_dim);
    return (struct td_reserve){
        .max_rows = TD_MAX(m->limits.max_rows, m->limits.max_out),
        .max_seqs = m->limits.max_seqs,
        .max_len = m->limits.max_len,
        .max_out = m->limits.max_out,
        .vocab = c->vocab,
        .max_k = TD_MAX(TD_MAX(wide, l->ffn.count),
                        (m->names.has_mtp ? 2 : 1) * (int64_t)c->hidden),
        .hidden = c->hidden,
        .n_heads = (int32_t)l->heads.count,
        .n_kv = (int32_t)l->kv_heads.count,
        .head_dim = c->head_dim,
        .n_k = (int32_t)l->key_heads.count,
        .n_v = (int32_t)l->value_heads.count,
        .dk = c->key_dim,
        .dv = c->value_dim,
        .experts = c->n_experts,
        .experts_k = c->top_k,
        .expert_size = l->moe_ffn.count,
        .shared_size = l->shared_ffn.count,
        .layers = c->n_layers,
        .steps = td_batch_steps(&m->limits)};
}

void td_model_bytes(const struct td_model *m, struct td_model_bytes *out)
{
    struct td_model *sizes_only = (struct td_model *)(uintptr_t)m;
    struct td_reserve r = largest(m);
    *out = (struct td_model_bytes){
        .weights = m->weight_bytes,
        .lists = m->list_bytes,
        .kv_block = 2 * kv_bytes(m) * kv_layers(m),
        .state = (conv_slot_bytes(m) + state_slot_bytes(m)) * m->cfg.n_gdn,
        .work = carve_work(sizes_only, NULL),
        .shelf = (int64_t)m->dev->ops.reserve_bytes(m->dev, &r)};
}

static enum td_status reserve(struct td_model *m, struct td_error *err)
{
    struct td_reserve r = largest(m);
    return m->dev->ops.reserve(m->dev, &r, err);
}

enum td_status td_model_load(struct td_model *m, const struct td_load_opts *opts,
                             struct td_load_stats *stats, struct td_error *err)
{
    enum td_status s = td_model_place(m, err);
    if (s == TD_OK)
        s = make_work(m, err);
    if (s == TD_OK)
        s = reserve(m, err);
    if (s == TD_OK)
        s = m->random ? td_model_imagine(m, stats, err)
                      : td_model_read(m, opts, stats, err);
    return s;
}

enum td_status td_model_sum(struct td_model *m, float *x, size_t n,
                            struct td_error *err)
{
    if (m->comm->ranks == 1)
        return TD_OK;
    if (!m->dev->ops.all_reduce)
        return m->comm->ops->all_reduce(m->comm, x, n, err);
    m->dev->ops.all_reduce(m->dev, x, n);
    return TD_OK;
}

enum td_status td_cache_new(struct td_model *m, int32_t n_blocks, int32_t n_slots,
                            struct td_cache *out, struct td_error *err)
{
    static atomic_uint made;
    int32_t n_kv = kv_layers(m), n_gdn = m->cfg.n_gdn;
    struct td_cache c = {.id = atomic_fetch_add(&made, 1) + 1,
                         .n_blocks = n_blocks,
                         .n_slots = n_slots,
                         .n_kv = n_kv,
                         .n_gdn = n_gdn,
                         .conv_slot = (size_t)conv_slot_bytes(m),
                         .state_slot = (size_t)state_slot_bytes(m)};
    size_t kv = (size_t)kv_bytes(m) * (size_t)n_blocks;
    size_t state = (c.conv_slot + c.state_slot) * (size_t)n_slots;
    void *kv_slab = NULL, *state_slab = NULL;
    enum td_status s = TD_OK;
    c.kv = td_calloc((size_t)n_kv, sizeof(*c.kv));
    c.conv = td_calloc((size_t)n_gdn, sizeof(*c.conv));
    c.state = td_calloc((size_t)n_gdn, sizeof(*c.state));
    if (!c.kv || !c.conv || !c.state)
        s = td_error_set(err, TD_E_NOMEM, "no memory for caches");
    if (s == TD_OK)
        s = m->dev->ops.alloc(m->dev, 2 * kv * (size_t)n_kv, "KV cache", &kv_slab, err);
    if (s == TD_OK)
        s = m->dev->ops.alloc(m->dev, state * (size_t)n_gdn, "states", &state_slab,
                              err);
    if (s != TD_OK) {
        td_cache_release(&c);
        return s;
    }
    c.slabs[0].p = kv_slab;
    c.slabs[0].bytes = 2 * kv * (size_t)n_kv;
    c.slabs[1].p = state_slab;
    c.slabs[1].bytes = state * (size_t)n_gdn;
    for (int32_t i = 0; i < n_kv; i++) {
        c.kv[i].k = (char *)kv_slab + 2 * kv * (size_t)i;
        c.kv[i].v = (char *)c.kv[i].k + kv;
    }
    for (int32_t i = 0; i < n_gdn; i++) {
        char *at = (char *)state_slab + state * (size_t)i;
        c.state[i] = (float *)(void *)at;
        c.conv[i] = (float *)(void *)(at + c.state_slot * (size_t)n_slots);
    }
    *out = c;
    return TD_OK;
}

void td_cache_copy_state(struct td_model *m, struct td_cache *c, int32_t to,
                         int32_t from)
{
    for (int32_t i = 0; i < c->n_gdn; i++) {
        char *state = (char *)c->state[i], *conv = (char *)c->conv[i];
        m->dev->ops.copy(m->dev, state + c->state_slot * (size_t)to,
                         state + c->state_slot * (size_t)from, c->state_slot);
        m->dev->ops.copy(m->dev, conv + c->conv_slot * (size_t)to,
                         conv + c->conv_slot * (size_t)from, c->conv_slot);
    }
}

void td_cache_release(struct td_cache *c)
{
    td_free(c->kv);
    td_free(c->conv);
    td_free(c->state);
    *c = (struct td_cache){0};
}

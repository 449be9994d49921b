/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a checkpoint, named and shaped as on the hub.
 *
 * The numbers below (gain, lo, hi) keep a random model in a useful range, whatever its
 * size: a linear layer turns inputs of deviation 1 into outputs of deviation `gain`;
 * what a layer adds to the residual stream is about half of the embedding; attention
 * scores spread enough to prefer some tokens; the decay of the delta rule forgets after
 * one to a few hundred tokens; logits spread over several units, so that the best of
 * them rarely ties with the second.
 */
#define _POSIX_C_SOURCE 200809L
#include "tools/make_model/synth.h"

#include "base/limits.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 160, ARENA_MAX = 1 << 29 };

struct builder {
    const struct td_synth *m;
    struct td_synth_list *list;
    enum td_status status;
    char prefix[MAX_NAME / 2];      /* of the layer at hand */
    struct td_synth_tensor nowhere; /* filled in vain after a failure */
};

static enum td_dtype plain_dtype(const struct td_synth *m)
{
    return m->dtype == TD_DTYPE_F8_E4M3 ? TD_DTYPE_BF16 : m->dtype;
}

/* Where names of the text model begin: the same weights lie under either prefix. */
static const char *text_root(const struct td_synth *m)
{
    return m->nested ? "model.language_model." : "model.";
}

static struct td_synth_tensor *add(struct builder *b, const char *name,
                                   enum td_dtype dtype, int64_t rows, int64_t cols)
{
    struct td_synth_list *l = b->list;
    char full[2 * MAX_NAME];
    int n = snprintf(full, sizeof(full), "%s%s", b->prefix, name);
    char *copy = td_arena_strndup(&l->arena, full, (size_t)n);
    if (l->count == l->cap && copy) {
        int64_t cap = l->cap ? 2 * l->cap : 256;
        void *p = td_realloc(l->items, (size_t)cap, sizeof(*l->items));
        l->items = p ? p : l->items;
        l->cap = p ? cap : l->cap;
    }
    if (!copy || l->count == l->cap) {
        b->status = TD_E_NOMEM;
        return &b->nowhere;
    }
    const char *root = text_root(b->m);
    bool text = strncmp(full, root, strlen(root)) == 0;
    struct td_synth_tensor *t = &l->items[l->count++];
    *t = (struct td_synth_tensor){
        .name = copy,
        .key = td_synth_key(b->m->seed, text ? copy + strlen(root) : copy),
        .dtype = dtype,
        .ndim = 2,
        .shape = {rows, cols},
        .rows = rows,
        .cols = cols,
        .scale = -1,
    };
    return t;
}

static struct td_synth_tensor *matrix(struct builder *b, const char *name, int64_t rows,
                                      int64_t cols, double gain)
{
    struct td_synth_tensor *t = add(b, name, plain_dtype(b->m), rows, cols);
    t->gain = (float)gain;
    return t;
}

/* A matrix that FP8 checkpoints store in FP8, with its scales. */
static void block_matrix(struct builder *b, const char *name, int64_t rows,
                         int64_t cols, double gain)
{
    struct td_synth_tensor *t = matrix(b, name, rows, cols, gain);
    if (b->m->dtype != TD_DTYPE_F8_E4M3 || b->status != TD_OK)
        return;
    char scales[MAX_NAME];
    (void)snprintf(scales, sizeof(scales), "%s_scale_inv", name);
    t->dtype = TD_DTYPE_F8_E4M3;
    t->scale = b->list->count;
    t = add(b, scales, b->m->scale_dtype, (rows + TD_SYNTH_BLOCK - 1) / TD_SYNTH_BLOCK,
            (cols + TD_SYNTH_BLOCK - 1) / TD_SYNTH_BLOCK);
    t->is_scale = true;
}

/* A vector with values spread evenly from lo to hi. */
static struct td_synth_tensor *vector(struct builder *b, const char *name, int64_t n,
                                      double lo, double hi)
{
    struct td_synth_tensor *t = add(b, name, plain_dtype(b->m), n, 1);
    t->ndim = 1;
    t->uniform = true;
    t->lo = (float)lo;
    t->hi = (float)hi;
    return t;
}

/* Most norms are stored as the difference from one. */
static void norm(struct builder *b, const char *name, int64_t n)
{
    vector(b, name, n, -0.3, 0.3);
}

/* Splits the rows of a matrix: [n][rows / n][cols]. */
static void reshape3(struct td_synth_tensor *t, int64_t n, int64_t rows, int64_t cols)
{
    t->ndim = 3;
    t->shape[0] = n;
    t->shape[1] = rows;
    t->shape[2] = cols;
}

static void full_attention(struct builder *b)
{
    const struct td_synth *m = b->m;
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    block_matrix(b, "self_attn.q_proj.weight", 2 * q, m->hidden, 1);
    block_matrix(b, "self_attn.k_proj.weight", kv, m->hidden, 1);
    block_matrix(b, "self_attn.v_proj.weight", kv, m->hidden, 1);
    block_matrix(b, "self_attn.o_proj.weight", m->hidden, q, 1.4);
    vector(b, "self_attn.q_norm.weight", m->head_dim, 0.2, 1.2);
    vector(b, "self_attn.k_norm.weight", m->head_dim, 0.2, 1.2);
}

static void linear_attention(struct builder *b)
{
    const struct td_synth *m = b->m;
    int64_t value = m->value_heads * m->value_dim;
    int64_t conv = 2 * m->key_heads * m->key_dim + value;
    enum td_dtype state = m->f32_state ? TD_DTYPE_F32 : plain_dtype(m);
    block_matrix(b, "linear_attn.in_proj_qkv.weight", conv, m->hidden, 1.2);
    block_matrix(b, "linear_attn.in_proj_z.weight", value, m->hidden, 1.5);
    matrix(b, "linear_attn.in_proj_b.weight", m->value_heads, m->hidden, 1.5);
    matrix(b, "linear_attn.in_proj_a.weight", m->value_heads, m->hidden, 1);
    reshape3(vector(b, "linear_attn.conv1d.weight", conv * m->conv, -0.8, 0.8), conv, 1,
             m->conv);
    vector(b, "linear_attn.dt_bias", m->value_heads, -3, 1);
    vector(b, "linear_attn.A_log", m->value_heads, -4, 2)->dtype = state;
    vector(b, "linear_attn.norm.weight", m->value_dim, 0.6, 1.4)->dtype = state;
    block_matrix(b, "linear_attn.out_proj.weight", m->hidden, value, 0.6);
}

static void mlp(struct builder *b, const char *where, int64_t inner)
{
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++) {
        char name[MAX_NAME];
        (void)snprintf(name, sizeof(name), "%s%s.weight", where, parts[i]);
        if (i < 2)
            block_matrix(b, name, inner, b->m->hidden, 1.4);
        else
            block_matrix(b, name, b->m->hidden, inner, 0.4);
    }
}

/* All experts of a layer in two tensors; FP8 scales are three-dimensional too. */
static void fused_experts(struct builder *b)
{
    const struct td_synth *m = b->m;
    int64_t e = m->experts, first = b->list->count;
    block_matrix(b, "mlp.experts.gate_up_proj", e * 2 * m->moe, m->hidden, 1.4);
    block_matrix(b, "mlp.experts.down_proj", e * m->hidden, m->moe, 0.5);
    for (int64_t i = first; i < b->list->count; i++) {
        struct td_synth_tensor *t = &b->list->items[i];
        reshape3(t, e, t->rows / e, t->cols);
    }
}

static void experts(struct builder *b, bool fused)
{
    const struct td_synth *m = b->m;
    matrix(b, "mlp.gate.weight", m->experts, m->hidden, 2);
    matrix(b, "mlp.shared_expert_gate.weight", 1, m->hidden, 1.5);
    mlp(b, "mlp.shared_expert.", m->shared);
    if (fused) {
        fused_experts(b);
        return;
    }
    for (int64_t e = 0; e < m->experts && b->status == TD_OK; e++) {
        char where[64];
        (void)snprintf(where, sizeof(where), "mlp.experts.%lld.", (long long)e);
        mlp(b, where, m->moe);
    }
}

static void layer(struct builder *b, char type, bool fused)
{
    norm(b, "input_layernorm.weight", b->m->hidden);
    if (type == 'f')
        full_attention(b);
    else
        linear_attention(b);
    norm(b, "post_attention_layernorm.weight", b->m->hidden);
    if (b->m->experts)
        experts(b, fused);
    else
        mlp(b, "mlp.", b->m->intermediate);
}

/* The draft layer: a full-attention layer behind a projection of two halves. */
static void draft(struct builder *b, bool fused)
{
    int64_t h = b->m->hidden;
    (void)snprintf(b->prefix, sizeof(b->prefix), "mtp.");
    matrix(b, "fc.weight", h, 2 * h, 1);
    norm(b, "pre_fc_norm_embedding.weight", h);
    norm(b, "pre_fc_norm_hidden.weight", h);
    norm(b, "norm.weight", h);
    (void)snprintf(b->prefix, sizeof(b->prefix), "mtp.layers.0.");
    layer(b, 'f', fused);
}

static void biased(struct builder *b, const char *name, int64_t rows, int64_t cols)
{
    char full[MAX_NAME];
    (void)snprintf(full, sizeof(full), "%s.weight", name);
    if (cols)
        matrix(b, full, rows, cols, 1);
    else
        vector(b, full, rows, 0.7, 1.3);
    (void)snprintf(full, sizeof(full), "%s.bias", name);
    vector(b, full, rows, -0.1, 0.1);
}

/* The vision tower, which text engines must step over: 12 tensors for each layer and 9
 * more. Its inner size keeps the ratio of the published ones, 1152 to 4304. */
static void vision(struct builder *b)
{
    int64_t h = b->m->vision_hidden, inner = h * 269 / 72;
    (void)snprintf(b->prefix, sizeof(b->prefix), "model.visual.");
    struct td_synth_tensor *t =
        matrix(b, "patch_embed.proj.weight", h, (int64_t)3 * 2 * 256, 1);
    const int64_t patch[TD_SYNTH_MAX_DIMS] = {h, 3, 2, 16, 16};
    t->ndim = TD_SYNTH_MAX_DIMS;
    memcpy(t->shape, patch, sizeof(patch));
    vector(b, "patch_embed.proj.bias", h, -0.1, 0.1);
    matrix(b, "pos_embed.weight", 2304, h, 1);
    for (int64_t i = 0; i < b->m->vision_layers; i++) {
        (void)snprintf(b->prefix, sizeof(b->prefix), "model.visual.blocks.%lld.",
                       (long long)i);
        biased(b, "norm1", h, 0);
        biased(b, "norm2", h, 0);
        biased(b, "attn.qkv", 3 * h, h);
        biased(b, "attn.proj", h, h);
        biased(b, "mlp.linear_fc1", inner, h);
        biased(b, "mlp.linear_fc2", h, inner);
    }
    (void)snprintf(b->prefix, sizeof(b->prefix), "model.visual.merger.");
    biased(b, "norm", h, 0);
    biased(b, "linear_fc1", 4 * h, 4 * h);
    biased(b, "linear_fc2", b->m->hidden, 4 * h);
}

static bool is_fused(enum td_synth_form form, enum td_dtype dtype)
{
    return form == TD_SYNTH_USUAL ? dtype != TD_DTYPE_F8_E4M3 : form == TD_SYNTH_FUSED;
}

static void all_tensors(struct builder *b)
{
    const struct td_synth *m = b->m;
    const char *root = text_root(m);
    /* Tied, the embedding is the head as well and gets the head's spread. */
    double one = sqrt((double)m->hidden);
    (void)snprintf(b->prefix, sizeof(b->prefix), "%s", root);
    matrix(b, "embed_tokens.weight", m->vocab, m->hidden, m->tied ? 2 : one);
    for (int64_t i = 0; i < m->layers; i++) {
        (void)snprintf(b->prefix, sizeof(b->prefix), "%slayers.%lld.", root,
                       (long long)i);
        layer(b, m->types[i], is_fused(m->form, m->dtype));
    }
    (void)snprintf(b->prefix, sizeof(b->prefix), "%s", root);
    norm(b, "norm.weight", m->hidden);
    b->prefix[0] = 0;
    if (!m->tied)
        matrix(b, "lm_head.weight", m->vocab, m->hidden, 3);
    if (m->mtp)
        draft(b, is_fused(m->mtp_form, m->dtype));
    if (m->vision_layers)
        vision(b);
}

enum td_status td_synth_list_init(struct td_synth_list *list, const struct td_synth *m,
                                  struct td_error *err)
{
    struct builder b = {.m = m, .list = list};
    *list = (struct td_synth_list){0};
    td_arena_init(&list->arena, ARENA_MAX);
    all_tensors(&b);
    if (b.status != TD_OK)
        return td_error_set(err, b.status, "no memory for the list of tensors");
    for (int64_t i = 0; i < list->count; i++) {
        struct td_synth_tensor *t = &list->items[i];
        t->bytes = t->rows * t->cols * td_synth_size(t->dtype);
    }
    return TD_OK;
}

void td_synth_list_release(struct td_synth_list *list)
{
    td_arena_release(&list->arena);
    td_free(list->items);
    *list = (struct td_synth_list){0};
}

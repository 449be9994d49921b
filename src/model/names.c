/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights that a configuration implies, and the slice of each rank. See names.h.
 *
 * A weight starts whole (whole()), is narrowed to the rank's part (rows_of(), cols_of(),
 * thirds_of()) and is finished with its expected format, place and name (emit()).
 */
#include "model/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct walk {
    const struct td_config *cfg;
    const struct td_slice *slice;
    const struct td_name_form *form;
    td_weight_fn fn;
    void *self;
    int layer; /* as in struct td_weight */
    bool mtp;
};

/* ---- slices ------------------------------------------------------------------------ */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* One dimension that must divide: `count` things of `width` rows or columns each. */
struct split_rule {
    const char *what;
    int count, width;
    bool is_kv; /* may also be replicated */
};

enum { MAX_RULES = 6 };

static int split_rules(const struct td_config *c, struct split_rule out[MAX_RULES])
{
    int n = 0;
    if (c->n_full || c->mtp_layers) {
        out[n++] = (struct split_rule){"query heads", c->n_heads, c->head_dim, false};
        out[n++] =
            (struct split_rule){"key/value heads", c->n_kv_heads, c->head_dim, true};
    }
    if (c->n_gdn) {
        out[n++] = (struct split_rule){"delta net key heads", c->n_key_heads,
                                       c->key_dim, false};
        out[n++] = (struct split_rule){"delta net value heads", c->n_value_heads,
                                       c->value_dim, false};
    }
    if (c->family == TD_FAMILY_QWEN35) {
        out[n++] = (struct split_rule){"MLP columns", c->ffn, 1, false};
    } else {
        out[n++] = (struct split_rule){"expert columns", c->moe_ffn, 1, false};
        out[n++] =
            (struct split_rule){"shared expert columns", c->shared_ffn, 1, false};
    }
    return n;
}

/* True when the rule allows that many ranks; otherwise why says what does not fit. */
static bool rule_allows(const struct td_config *c, const struct split_rule *r,
                        int ranks, char *why, size_t size)
{
    int parts = r->is_kv ? TD_MIN(ranks, r->count) : ranks;
    if (r->count % parts != 0 || ranks % parts != 0) {
        (void)snprintf(why, size, "%d %s do not divide by %d", r->count, r->what,
                       ranks);
        return false;
    }
    int64_t each = (int64_t)(r->count / parts) * r->width;
    if (c->quant == TD_QUANT_FP8 && parts > 1 && each % c->block_rows != 0) {
        (void)snprintf(why, size,
                       "%d %s over %d ranks are %" PRId64
                       " rows each, no whole number of FP8 blocks of %d",
                       r->count, r->what, ranks, each, c->block_rows);
        return false;
    }
    return true;
}

static bool split_allowed(const struct td_config *c, int ranks, char *why, size_t size)
{
    struct split_rule rules[MAX_RULES];
    int n = split_rules(c, rules);
    if (ranks < 1 || ranks > TD_MAX_RANKS || ranks > c->vocab) {
        (void)snprintf(why, size, "the number of ranks is from 1 to %d", TD_MAX_RANKS);
        return false;
    }
    for (int i = 0; i < n; i++)
        if (!rule_allows(c, &rules[i], ranks, why, size))
            return false;
    return true;
}

int td_split_list(const struct td_config *cfg, int out[TD_MAX_RANKS])
{
    char why[160];
    int n = 0;
    for (int ranks = 1; ranks <= TD_MAX_RANKS; ranks++)
        if (split_allowed(cfg, ranks, why, sizeof(why)))
            out[n++] = ranks;
    return n;
}

enum td_status td_split_check(const struct td_config *cfg, int ranks,
                              struct td_error *err)
{
    char why[160], list[256];
    int legal[TD_MAX_RANKS];
    size_t len = 0;
    if (split_allowed(cfg, ranks, why, sizeof(why)))
        return TD_OK;
    int n = td_split_list(cfg, legal);
    list[0] = 0;
    for (int i = 0; i < n && len < sizeof(list); i++)
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%d", i ? ", " : "",
                                legal[i]);
    td_error_set(err, TD_E_SPLIT, "the model cannot be split over %d ranks", ranks);
    td_error_why(err, "%s", why);
    td_error_fix(err, "choose a number of ranks out of: %s", list);
    return TD_E_SPLIT;
}

static struct td_range part(int64_t count, int rank, int ranks)
{
    return (struct td_range){count / ranks * rank, count / ranks};
}

enum td_status td_slice_make(const struct td_config *cfg, int rank, int ranks,
                             struct td_slice *out, struct td_error *err)
{
    enum td_status s = td_split_check(cfg, ranks, err);
    if (s != TD_OK)
        return s;
    if (rank < 0 || rank >= ranks)
        return td_error_set(err, TD_E_SPLIT, "there is no rank %d among %d", rank,
                            ranks);
    int kv_parts = TD_MIN(ranks, cfg->n_kv_heads);
    int64_t vocab_each = ceil_div(cfg->vocab, ranks);
    int64_t vocab_first = TD_MIN(vocab_each * rank, (int64_t)cfg->vocab);
    *out = (struct td_slice){
        .rank = rank,
        .ranks = ranks,
        .heads = part(cfg->n_heads, rank, ranks),
        .kv_heads = part(cfg->n_kv_heads, rank / (ranks / kv_parts), kv_parts),
        .key_heads = part(cfg->n_key_heads, rank, ranks),
        .value_heads = part(cfg->n_value_heads, rank, ranks),
        .ffn = part(cfg->ffn, rank, ranks),
        .moe_ffn = part(cfg->moe_ffn, rank, ranks),
        .shared_ffn = part(cfg->shared_ffn, rank, ranks),
        .vocab = {vocab_first, TD_MIN(vocab_each, cfg->vocab - vocab_first)},
    };
    return TD_OK;
}

/* ---- one weight -------------------------------------------------------------------- */

static struct td_weight whole(enum td_role role, enum td_weight_kind kind, int64_t rows,
                              int64_t cols)
{
    return (struct td_weight){.role = role,
                              .kind = kind,
                              .expert = -1,
                              .rows = rows,
                              .cols = cols,
                              .view_rows = rows,
                              .n_ranges = 1,
                              .row = {{0, rows}},
                              .col = {0, cols},
                              .tensor = -1,
                              .scale = -1};
}

static struct td_range times(struct td_range r, int64_t width)
{
    return (struct td_range){r.first * width, r.count * width};
}

static struct td_weight rows_of(struct td_weight w, struct td_range part_of,
                                int64_t width)
{
    w.row[0] = times(part_of, width);
    return w;
}

static struct td_weight cols_of(struct td_weight w, struct td_range part_of,
                                int64_t width)
{
    w.col = times(part_of, width);
    return w;
}

/* Query, key and value rows of a delta net, each split by its own heads. One rank reads
 * them in one piece. */
static struct td_weight thirds_of(struct td_weight w, const struct walk *k)
{
    int64_t key_width = td_config_key_width(k->cfg);
    if (k->slice->ranks == 1)
        return w;
    w.n_ranges = 3;
    w.row[0] = times(k->slice->key_heads, k->cfg->key_dim);
    w.row[1] = w.row[0];
    w.row[1].first += key_width;
    w.row[2] = times(k->slice->value_heads, k->cfg->value_dim);
    w.row[2].first += 2 * key_width;
    return w;
}

static enum td_dtype expected_dtype(const struct td_config *c,
                                    const struct td_weight *w)
{
    if (w->role == TD_W_GDN_A_LOG || w->role == TD_W_GDN_NORM)
        return TD_DTYPE_F32;
    if (w->kind == TD_WEIGHT_MATRIX && c->quant == TD_QUANT_FP8)
        return TD_DTYPE_F8_E4M3;
    return c->dtype;
}

static void build_name(const struct walk *k, const struct td_weight *w, bool fused,
                       char *out, size_t size)
{
    const char *role = td_role_name(w->role);
    char layer[96] = "";
    if (w->layer >= 0)
        (void)snprintf(layer, sizeof(layer), "%slayers.%d.",
                       w->mtp ? "mtp." : k->cfg->prefix,
                       w->mtp ? w->layer - k->cfg->n_layers : w->layer);
    if (w->role == TD_W_EMBED || w->role == TD_W_FINAL_NORM)
        (void)snprintf(out, size, "%s%s", k->cfg->prefix, role);
    else if (w->expert < 0)
        (void)snprintf(out, size, "%s%s", layer, role);
    else if (!fused)
        (void)snprintf(out, size, "%smlp.experts.%d.%s", layer, w->expert, role);
    else
        (void)snprintf(out, size, "%smlp.experts.%s", layer,
                       w->role == TD_W_EXPERT_DOWN ? "down_proj" : "gate_up_proj");
}

static enum td_status emit(const struct walk *k, struct td_weight w)
{
    static const char suffix[] = "_scale_inv";
    char name[TD_MAX_NAME], scale[TD_MAX_NAME + sizeof(suffix)];
    bool fused = w.expert >= 0 && (k->mtp ? k->form->fused_mtp : k->form->fused);
    w.mtp = k->mtp;
    w.layer = k->layer;
    for (int i = 0; i < w.n_ranges; i++)
        w.local_rows += w.row[i].count;
    w.dtype = expected_dtype(k->cfg, &w);
    build_name(k, &w, fused, name, sizeof(name));
    w.block_rows = k->cfg->block_rows;
    w.block_cols = k->cfg->block_cols;
    w.scale_cols = ceil_div(w.cols, w.block_cols);
    /* the scales of a fused tensor are blocked per expert */
    int64_t each = fused && w.role != TD_W_EXPERT_DOWN ? 2 * w.rows : w.rows;
    int64_t block_rows = ceil_div(each, w.block_rows);
    w.scale_view_rows = block_rows;
    if (fused) {
        int64_t inside = w.role == TD_W_EXPERT_UP ? w.rows : 0;
        w.base = w.expert * each + inside;
        w.view_rows = k->cfg->n_experts * each;
        w.scale_base = w.expert * block_rows + inside / w.block_rows;
        w.scale_view_rows = k->cfg->n_experts * block_rows;
    }
    w.scale_dtype = TD_DTYPE_BF16;
    (void)snprintf(scale, sizeof(scale), "%s%s", name, suffix);
    return k->fn(k->self, &w, name, w.kind == TD_WEIGHT_MATRIX ? scale : NULL);
}

static enum td_status emit_all(const struct walk *k, const struct td_weight *list,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        enum td_status s = emit(k, list[i]);
        if (s != TD_OK)
            return s;
    }
    return TD_OK;
}

/* ---- the parts of a model ---------------------------------------------------------- */

#define MATRIX TD_WEIGHT_MATRIX
#define PLAIN  TD_WEIGHT_PLAIN
#define VECTOR TD_WEIGHT_VECTOR

static enum td_status walk_full(const struct walk *k)
{
    const struct td_config *c = k->cfg;
    const struct td_slice *s = k->slice;
    int64_t h = c->hidden, d = c->head_dim, q = c->n_heads * d, kv = c->n_kv_heads * d;
    const struct td_weight list[] = {
        rows_of(whole(TD_W_Q, MATRIX, 2 * q, h), s->heads, 2 * d),
        rows_of(whole(TD_W_K, MATRIX, kv, h), s->kv_heads, d),
        rows_of(whole(TD_W_V, MATRIX, kv, h), s->kv_heads, d),
        cols_of(whole(TD_W_O, MATRIX, h, q), s->heads, d),
        whole(TD_W_Q_NORM, VECTOR, 1, d),
        whole(TD_W_K_NORM, VECTOR, 1, d),
    };
    return emit_all(k, list, TD_COUNT(list));
}

static enum td_status walk_gdn(const struct walk *k)
{
    const struct td_config *c = k->cfg;
    const struct td_range v = k->slice->value_heads;
    int64_t h = c->hidden, nv = c->n_value_heads, dv = c->value_dim;
    int64_t conv = td_config_conv_width(c), vw = td_config_value_width(c);
    const struct td_weight list[] = {
        thirds_of(whole(TD_W_GDN_QKV, MATRIX, conv, h), k),
        rows_of(whole(TD_W_GDN_Z, MATRIX, vw, h), v, dv),
        rows_of(whole(TD_W_GDN_B, PLAIN, nv, h), v, 1),
        rows_of(whole(TD_W_GDN_A, PLAIN, nv, h), v, 1),
        thirds_of(whole(TD_W_GDN_CONV, PLAIN, conv, c->conv_kernel), k),
        cols_of(whole(TD_W_GDN_DT_BIAS, VECTOR, 1, nv), v, 1),
        cols_of(whole(TD_W_GDN_A_LOG, VECTOR, 1, nv), v, 1),
        whole(TD_W_GDN_NORM, VECTOR, 1, dv),
        cols_of(whole(TD_W_GDN_OUT, MATRIX, h, vw), v, dv),
    };
    return emit_all(k, list, TD_COUNT(list));
}

static enum td_status walk_dense(const struct walk *k)
{
    int64_t h = k->cfg->hidden, f = k->cfg->ffn;
    const struct td_range r = k->slice->ffn;
    const struct td_weight list[] = {
        rows_of(whole(TD_W_GATE, MATRIX, f, h), r, 1),
        rows_of(whole(TD_W_UP, MATRIX, f, h), r, 1),
        cols_of(whole(TD_W_DOWN, MATRIX, h, f), r, 1),
    };
    return emit_all(k, list, TD_COUNT(list));
}

static enum td_status walk_moe(const struct walk *k)
{
    const struct td_config *c = k->cfg;
    int64_t h = c->hidden, f = c->moe_ffn, sf = c->shared_ffn;
    const struct td_range m = k->slice->moe_ffn, sh = k->slice->shared_ffn;
    const struct td_weight list[] = {
        whole(TD_W_ROUTER, PLAIN, c->n_experts, h),
        whole(TD_W_SHARED_ROUTER, PLAIN, 1, h),
        rows_of(whole(TD_W_SHARED_GATE, MATRIX, sf, h), sh, 1),
        rows_of(whole(TD_W_SHARED_UP, MATRIX, sf, h), sh, 1),
        cols_of(whole(TD_W_SHARED_DOWN, MATRIX, h, sf), sh, 1),
    };
    enum td_status s = emit_all(k, list, TD_COUNT(list));
    for (int e = 0; e < c->n_experts && s == TD_OK; e++) {
        struct td_weight expert[] = {
            rows_of(whole(TD_W_EXPERT_GATE, MATRIX, f, h), m, 1),
            rows_of(whole(TD_W_EXPERT_UP, MATRIX, f, h), m, 1),
            cols_of(whole(TD_W_EXPERT_DOWN, MATRIX, h, f), m, 1),
        };
        for (size_t i = 0; i < TD_COUNT(expert); i++)
            expert[i].expert = e;
        s = emit_all(k, expert, TD_COUNT(expert));
    }
    return s;
}

static enum td_status walk_layer(const struct walk *k, enum td_layer_kind kind)
{
    const struct td_weight norms[] = {
        whole(TD_W_INPUT_NORM, VECTOR, 1, k->cfg->hidden),
        whole(TD_W_POST_NORM, VECTOR, 1, k->cfg->hidden),
    };
    enum td_status s = emit_all(k, norms, TD_COUNT(norms));
    if (s == TD_OK)
        s = kind == TD_LAYER_FULL ? walk_full(k) : walk_gdn(k);
    if (s == TD_OK)
        s = k->cfg->family == TD_FAMILY_QWEN35 ? walk_dense(k) : walk_moe(k);
    return s;
}

static enum td_status walk_mtp(struct walk *k)
{
    const struct td_config *c = k->cfg;
    int64_t h = c->hidden;
    const struct td_weight list[] = {
        whole(TD_W_MTP_FC, PLAIN, h, 2 * h),
        whole(TD_W_MTP_NORM_EMBED, VECTOR, 1, h),
        whole(TD_W_MTP_NORM_HIDDEN, VECTOR, 1, h),
        whole(TD_W_MTP_NORM, VECTOR, 1, h),
    };
    k->mtp = true;
    k->layer = -1;
    enum td_status s = c->mtp_layers ? emit_all(k, list, TD_COUNT(list)) : TD_OK;
    for (int i = 0; i < c->mtp_layers && s == TD_OK; i++) {
        k->layer = c->n_layers + i;
        s = walk_layer(k, TD_LAYER_FULL);
    }
    return s;
}

enum td_status td_names_each(const struct td_config *cfg, const struct td_slice *slice,
                             const struct td_name_form *form, td_weight_fn fn,
                             void *self)
{
    struct walk k = {
        .cfg = cfg, .slice = slice, .form = form, .fn = fn, .self = self, .layer = -1};
    const struct td_weight globals[] = {
        rows_of(whole(TD_W_EMBED, PLAIN, cfg->vocab, cfg->hidden), slice->vocab, 1),
        whole(TD_W_FINAL_NORM, VECTOR, 1, cfg->hidden),
        rows_of(whole(TD_W_LM_HEAD, PLAIN, cfg->vocab, cfg->hidden), slice->vocab, 1),
    };
    enum td_status s = emit_all(&k, globals, TD_COUNT(globals) - (cfg->tied ? 1 : 0));
    for (int i = 0; i < cfg->n_layers && s == TD_OK; i++) {
        k.layer = i;
        s = walk_layer(&k, (enum td_layer_kind)cfg->layers[i]);
    }
    return s == TD_OK ? walk_mtp(&k) : s;
}

/* ---- sizes and pieces -------------------------------------------------------------- */

static bool is_fp8(const struct td_weight *w)
{
    return w->dtype == TD_DTYPE_F8_E4M3;
}

/* A range of elements as a range of blocks. */
static struct td_range blocks(struct td_range r, int block)
{
    int64_t first = r.first / block;
    return (struct td_range){first, ceil_div(r.first + r.count, block) - first};
}

int64_t td_weight_bytes(const struct td_weight *w)
{
    int64_t bytes = w->local_rows * w->col.count * td_dtype_bits(w->dtype) / 8;
    int64_t scales = 0;
    for (int i = 0; i < w->n_ranges && is_fp8(w); i++)
        scales += blocks(w->row[i], w->block_rows).count *
                  blocks(w->col, w->block_cols).count;
    return bytes + scales * td_dtype_bits(w->scale_dtype) / 8;
}

int td_weight_pieces(const struct td_weight *w, void *user, struct td_piece out[3])
{
    int64_t at = 0;
    int n = 0;
    for (int i = 0; i < w->n_ranges; i++) {
        if (w->row[i].count == 0 || w->col.count == 0)
            continue;
        out[n++] = (struct td_piece){.tensor = w->tensor,
                                     .rows = w->view_rows,
                                     .cols = w->cols,
                                     .row0 = w->base + w->row[i].first,
                                     .n_rows = w->row[i].count,
                                     .col0 = w->col.first,
                                     .n_cols = w->col.count,
                                     .dst_row = at,
                                     .user = user};
        at += w->row[i].count;
    }
    return n;
}

int td_weight_scale_pieces(const struct td_weight *w, void *user,
                           struct td_piece out[3])
{
    struct td_range col = blocks(w->col, w->block_cols);
    int64_t at = 0;
    int n = 0;
    for (int i = 0; i < w->n_ranges && is_fp8(w); i++) {
        struct td_range row = blocks(w->row[i], w->block_rows);
        if (row.count == 0 || col.count == 0)
            continue;
        out[n++] = (struct td_piece){.tensor = w->scale,
                                     .rows = w->scale_view_rows,
                                     .cols = w->scale_cols,
                                     .row0 = w->scale_base + row.first,
                                     .n_rows = row.count,
                                     .col0 = col.first,
                                     .n_cols = col.count,
                                     .dst_row = at,
                                     .user = user};
        at += row.count;
    }
    return n;
}

struct summing {
    const struct td_config *cfg;
    struct td_names_sum *sum;
};

static enum td_status add_weight(void *self, const struct td_weight *w,
                                 const char *name, const char *scale_name)
{
    const struct summing *t = self;
    struct td_names_sum *sum = t->sum;
    int64_t params = w->local_rows * w->col.count, bytes = td_weight_bytes(w);
    /* the first weight of a fused tensor counts for all of it */
    int64_t tensors = w->base ? 0 : 1 + (scale_name && is_fp8(w));
    (void)name;
    if (w->mtp) {
        sum->tensors_mtp += tensors;
        sum->params_mtp += params;
        sum->bytes_mtp += bytes;
        return TD_OK;
    }
    sum->tensors += tensors;
    sum->params += params;
    sum->bytes += bytes;
    if (w->expert >= t->cfg->top_k || (w->role == TD_W_EMBED && !t->cfg->tied))
        return TD_OK;
    sum->token_params += params;
    sum->token_bytes += bytes;
    return TD_OK;
}

void td_names_sum(const struct td_config *cfg, const struct td_slice *slice,
                  const struct td_name_form *form, struct td_names_sum *out)
{
    struct summing t = {.cfg = cfg, .sum = out};
    *out = (struct td_names_sum){0};
    (void)td_names_each(cfg, slice, form, add_weight, &t);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One decoder layer as a sequence of operations:
 *
 *     h = norm(x += add);  delta = mixer(h);  sum over ranks
 *     h = norm(x += delta); delta = network(h); sum over ranks
 *
 * or, where a device fuses so many rows and there is one rank,
 *
 *     h = norm(x); x += mixer(h);  h = norm(x); x += network(h)
 *
 * with the norm made by the products behind it. Both give the same bits.
 * The mixer is gated attention or Gated DeltaNet, the network a dense MLP or a mixture
 * of experts. Each works in `wide`, which holds for every row the buffers listed at the
 * top of its function, one after another.
 */
#include "model/model_int.h"

#include <math.h>

/* Floats of each buffer, per row. */
struct attention_sizes {
    int64_t qg, kv, y;
};

struct gdn_sizes {
    int64_t channels, value, heads;
};

static struct attention_sizes attention_sizes(const struct td_model *m)
{
    int64_t dim = m->cfg.head_dim;
    return (struct attention_sizes){.qg = m->slice.heads.count * 2 * dim,
                                    .kv = m->slice.kv_heads.count * dim,
                                    .y = m->slice.heads.count * dim};
}

static struct gdn_sizes gdn_sizes(const struct td_model *m)
{
    return (struct gdn_sizes){.channels = td_local_channels(m),
                              .value = m->slice.value_heads.count * m->cfg.value_dim,
                              .heads = m->slice.value_heads.count};
}

int64_t td_layer_wide(const struct td_model *m)
{
    struct attention_sizes a = attention_sizes(m);
    struct gdn_sizes g = gdn_sizes(m);
    int64_t attention = a.qg + 2 * a.kv + a.y;
    int64_t gdn = 2 * g.channels + 2 * g.value + 2 * g.heads;
    int64_t dense = 2 * m->slice.ffn.count;
    int64_t moe = m->cfg.n_experts + 2 * (int64_t)m->cfg.top_k + 1;
    return TD_MAX(TD_MAX(attention, gdn), TD_MAX(dense, moe));
}

/* h = norm(x += add) */
static struct td_norm_args norm_of(struct td_model *m, const float *add, const float *w)
{
    return (struct td_norm_args){.x = m->work.x,
                                 .add = add,
                                 .sum = add ? m->work.x : NULL,
                                 .w = w,
                                 .y = m->work.h,
                                 .h = m->cfg.hidden,
                                 .y_stride = m->cfg.hidden,
                                 .eps = (float)m->cfg.eps,
                                 .rows = m->batch.rows};
}

/* The norm before products, if it is theirs to make; else it is made now. */
static const struct td_norm_args *before(struct td_model *m,
                                         const struct td_norm_args *norm)
{
    if (!norm || td_model_fuses(m))
        return norm;
    m->dev->ops.norm(m->dev, norm);
    return NULL;
}

/* The last product of a part: work.delta or what is added to work.x, x W^T with x of W's
 * own width. */
static void leave(struct td_model *m, const float *x, const struct td_matrix *w)
{
    float *rest = td_model_rest(m);
    struct td_linear_args a = {
        .x = x,
        .x_stride = w->k,
        .rows = m->batch.rows,
        .count = 1,
        .term = {
            {.w = w, .y = rest ? rest : m->work.x, .y_stride = w->n, .adds = !rest}}};
    m->dev->ops.linear(m->dev, &a);
}

void td_layer_attention(struct td_model *m, struct td_cache *c,
                        const struct td_layer *l, const struct td_norm_args *norm)
{
    struct attention_sizes n = attention_sizes(m);
    const struct td_attention_weights *w = &l->attention;
    struct td_dev *dev = m->dev;
    int64_t rows = m->batch.rows;
    float *qg = m->work.wide, *k = qg + rows * n.qg, *v = k + rows * n.kv;
    float *y = v + rows * n.kv;
    struct td_linear_args in = {.x = m->work.h,
                                .norm = before(m, norm),
                                .x_stride = m->cfg.hidden,
                                .rows = m->batch.rows,
                                .count = 3,
                                .term = {{.w = &w->q, .y = qg, .y_stride = n.qg},
                                         {.w = &w->k, .y = k, .y_stride = n.kv},
                                         {.w = &w->v, .y = v, .y_stride = n.kv}}};
    struct td_qkv_args store = {.batch = &m->batch,
                                .qg = qg,
                                .k = k,
                                .v = v,
                                .q_norm = w->q_norm,
                                .k_norm = w->k_norm,
                                .inv_freq = m->inv_freq,
                                .kv = c->kv[l->cache],
                                .n_heads = (int32_t)m->slice.heads.count,
                                .n_kv = (int32_t)m->slice.kv_heads.count,
                                .head_dim = m->cfg.head_dim,
                                .rotary = m->cfg.rotary_dim,
                                .eps = (float)m->cfg.eps};
    struct td_attention_args attend = {.batch = &m->batch,
                                       .qg = qg,
                                       .kv = c->kv[l->cache],
                                       .y = y,
                                       .n_heads = store.n_heads,
                                       .n_kv = store.n_kv,
                                       .head_dim = store.head_dim,
                                       .scale = 1.0f / sqrtf((float)m->cfg.head_dim),
                                       .to_product =
                                           w->o.type != TD_MAT_F32 ? &w->o : NULL};
    dev->ops.linear(dev, &in);
    if (dev->ops.fuses && m->batch.n_decode)
        attend.qkv = &store;
    else
        dev->ops.qkv(dev, &store);
    dev->ops.attention(dev, &attend);
    leave(m, y, &w->o);
}

void td_layer_gdn(struct td_model *m, struct td_cache *c, const struct td_layer *l,
                  const struct td_norm_args *norm)
{
    struct gdn_sizes n = gdn_sizes(m);
    const struct td_gdn_weights *w = &l->gdn;
    struct td_dev *dev = m->dev;
    int64_t rows = m->batch.rows;
    float *u = m->work.wide, *conv = u + rows * n.channels;
    float *z = conv + rows * n.channels, *y = z + rows * n.value;
    float *a = y + rows * n.value, *b = a + rows * n.heads;
    struct td_linear_args in = {
        .x = m->work.h,
        .norm = before(m, norm),
        .x_stride = m->cfg.hidden,
        .rows = m->batch.rows,
        .count = dev->ops.gdn ? 2 : 4, /* gdn() has the gates */
        .term = {{.w = &w->qkv, .y = u, .y_stride = n.channels},
                 {.w = &w->z, .y = z, .y_stride = n.value},
                 {.w = &w->a, .y = a, .y_stride = n.heads, .exact = true},
                 {.w = &w->b, .y = b, .y_stride = n.heads, .exact = true}}};
    struct td_gdn_args gdn = {
        .x = m->work.h, .gate_a = &w->a, .gate_b = &w->b, .a = a, .b = b};
    struct td_conv_args convolve = {.batch = &m->batch,
                                    .u = u,
                                    .w = w->conv,
                                    .state = c->conv[l->cache],
                                    .y = conv,
                                    .channels = (int32_t)n.channels,
                                    .width = m->cfg.conv_kernel};
    struct td_delta_args delta = {.batch = &m->batch,
                                  .c = conv,
                                  .a = a,
                                  .b = b,
                                  .a_neg = w->a_neg,
                                  .dt_bias = w->dt_bias,
                                  .state = c->state[l->cache],
                                  .y = y,
                                  .n_k = (int32_t)m->slice.key_heads.count,
                                  .n_v = (int32_t)n.heads,
                                  .dk = m->cfg.key_dim,
                                  .dv = m->cfg.value_dim};
    struct td_gated_norm_args gated = {.x = y,
                                       .z = z,
                                       .w = w->norm,
                                       .eps = (float)m->cfg.eps,
                                       .rows = m->batch.rows,
                                       .heads = (int32_t)n.heads,
                                       .dim = m->cfg.value_dim,
                                       .to_product =
                                           w->out.type != TD_MAT_F32 ? &w->out : NULL};
    if (dev->ops.gdn) {
        gdn.in = in;
        gdn.conv = convolve;
        gdn.delta = delta;
        gdn.norm = gated;
        dev->ops.gdn(dev, &gdn);
    } else {
        dev->ops.linear(dev, &in);
        dev->ops.conv(dev, &convolve);
        dev->ops.delta(dev, &delta);
        dev->ops.gated_norm(dev, &gated);
    }
    leave(m, y, &w->out);
}

static void dense(struct td_model *m, const struct td_ffn_weights *w,
                  const struct td_norm_args *norm)
{
    int64_t size = m->slice.ffn.count;
    float *gate = m->work.wide, *up = gate + m->batch.rows * size;
    struct td_linear_args in = {.x = m->work.h,
                                .norm = before(m, norm),
                                .x_stride = m->cfg.hidden,
                                .rows = m->batch.rows,
                                .count = 2,
                                .term = {{.w = &w->gate, .y = gate, .y_stride = size},
                                         {.w = &w->up, .y = up, .y_stride = size}}};
    struct td_swiglu_args act = {
        .gate = gate, .up = up, .rows = m->batch.rows, .n = size};
    m->dev->ops.linear(m->dev, &in);
    m->dev->ops.swiglu(m->dev, &act);
    leave(m, gate, &w->down);
}

static void experts(struct td_model *m, const struct td_ffn_weights *w,
                    const struct td_norm_args *norm)
{
    int32_t k = m->cfg.top_k, n = m->cfg.n_experts, rows = m->batch.rows;
    float *logits = m->work.wide, *shared = logits + (int64_t)rows * n;
    float *weight = shared + rows;
    int32_t *id = (int32_t *)(void *)(weight + (int64_t)rows * k);
    float *rest = td_model_rest(m);
    bool fuses = td_model_fuses(m);
    struct td_linear_args gates = {
        .x = m->work.h,
        .norm = before(m, norm),
        .x_stride = m->cfg.hidden,
        .rows = rows,
        .count = m->cfg.shared_ffn ? 2 : 1,
        .term = {{.w = &w->router, .y = logits, .y_stride = n, .exact = true},
                 {.w = &w->shared_router, .y = shared, .y_stride = 1, .exact = true}}};
    struct td_route_args route = {.logits = logits,
                                  .id = id,
                                  .weight = weight,
                                  .rows = rows,
                                  .experts = n,
                                  .k = k};
    struct td_experts_args run = {.x = m->work.h,
                                  .id = id,
                                  .weight = weight,
                                  .logits = fuses ? logits : NULL,
                                  .gate = w->e_gate,
                                  .up = w->e_up,
                                  .down = w->e_down,
                                  .shared_gate_proj = &w->gate,
                                  .shared_up = &w->up,
                                  .shared_down = m->cfg.shared_ffn ? &w->down : NULL,
                                  .shared_gate = shared,
                                  .y = rest ? rest : m->work.x,
                                  .rows = rows,
                                  .experts = n,
                                  .k = k,
                                  .adds = !rest};
    m->dev->ops.linear(m->dev, &gates);
    if (!fuses)
        m->dev->ops.route(m->dev, &route);
    m->dev->ops.experts(m->dev, &run);
}

void td_layer_ffn(struct td_model *m, const struct td_layer *l,
                  const struct td_norm_args *norm)
{
    if (m->cfg.family == TD_FAMILY_QWEN35_MOE)
        experts(m, &l->ffn, norm);
    else
        dense(m, &l->ffn, norm);
}

enum td_status td_layer_forward(struct td_model *m, struct td_cache *c,
                                const struct td_layer *l, const float *add,
                                struct td_error *err)
{
    size_t n = (size_t)m->batch.rows * (size_t)m->cfg.hidden;
    struct td_norm_args first = norm_of(m, add, l->input_norm);
    struct td_norm_args second = norm_of(m, td_model_rest(m), l->post_norm);
    if (l->kind == TD_LAYER_FULL)
        td_layer_attention(m, c, l, &first);
    else
        td_layer_gdn(m, c, l, &first);
    enum td_status s = td_model_sum(m, m->work.delta, n, err);
    if (s != TD_OK)
        return s;
    td_layer_ffn(m, l, &second);
    return td_model_sum(m, m->work.delta, n, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where each weight goes, and bringing it there.
 *
 * The walk over the bound weights happens three times with the same decisions: to add up
 * bytes, to carve device memory from one allocation, and to list what load must read. A
 * matrix goes through the shelf's pack operation as its rows arrive. A vector (norms,
 * gates, the convolution) is widened to f32 on the host, transformed, and put on the
 * device when everything has been read.
 */
#include "base/float.h"
#include "base/mem.h"
#include "model/model_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A weight's destination while it is read. */
struct target {
    struct td_model *model;
    const struct td_weight *w;
    struct td_place place;
    float *host; /* vectors: [local_rows * cols] */
    bool is_scale;
};

static struct td_place matrix(struct td_matrix *m)
{
    return (struct td_place){.m = m};
}

static struct td_place vector(float **v, enum td_transform t)
{
    return (struct td_place){.vector = v, .transform = t};
}

static struct td_place place_global(struct td_model *m, enum td_role role)
{
    switch (role) {
    case TD_W_EMBED:
        return matrix(&m->embed);
    case TD_W_LM_HEAD:
        return matrix(&m->head);
    case TD_W_FINAL_NORM:
        return vector(&m->final_norm, TD_ONE_PLUS);
    case TD_W_MTP_FC:
        return matrix(&m->draft.fc);
    case TD_W_MTP_NORM_EMBED:
        return vector(&m->draft.norm_embed, TD_ONE_PLUS);
    case TD_W_MTP_NORM_HIDDEN:
        return vector(&m->draft.norm_hidden, TD_ONE_PLUS);
    case TD_W_MTP_NORM:
        return vector(&m->draft.norm, TD_ONE_PLUS);
    default:
        return (struct td_place){0};
    }
}

static struct td_place place_mixer(struct td_layer *l, enum td_role role)
{
    switch (role) {
    case TD_W_Q:
        return matrix(&l->attention.q);
    case TD_W_K:
        return matrix(&l->attention.k);
    case TD_W_V:
        return matrix(&l->attention.v);
    case TD_W_O:
        return matrix(&l->attention.o);
    case TD_W_Q_NORM:
        return vector(&l->attention.q_norm, TD_ONE_PLUS);
    case TD_W_K_NORM:
        return vector(&l->attention.k_norm, TD_ONE_PLUS);
    case TD_W_GDN_QKV:
        return matrix(&l->gdn.qkv);
    case TD_W_GDN_Z:
        return matrix(&l->gdn.z);
    case TD_W_GDN_B:
        return matrix(&l->gdn.b);
    case TD_W_GDN_A:
        return matrix(&l->gdn.a);
    case TD_W_GDN_CONV:
        return vector(&l->gdn.conv, TD_KEEP);
    case TD_W_GDN_DT_BIAS:
        return vector(&l->gdn.dt_bias, TD_KEEP);
    case TD_W_GDN_A_LOG:
        return vector(&l->gdn.a_neg, TD_NEG_EXP);
    case TD_W_GDN_NORM:
        return vector(&l->gdn.norm, TD_KEEP);
    case TD_W_GDN_OUT:
        return matrix(&l->gdn.out);
    default:
        return (struct td_place){0};
    }
}

static struct td_place place_ffn(struct td_layer *l, const struct td_weight *w)
{
    switch (w->role) {
    case TD_W_INPUT_NORM:
        return vector(&l->input_norm, TD_ONE_PLUS);
    case TD_W_POST_NORM:
        return vector(&l->post_norm, TD_ONE_PLUS);
    case TD_W_GATE:
    case TD_W_SHARED_GATE:
        return matrix(&l->ffn.gate);
    case TD_W_UP:
    case TD_W_SHARED_UP:
        return matrix(&l->ffn.up);
    case TD_W_DOWN:
    case TD_W_SHARED_DOWN:
        return matrix(&l->ffn.down);
    case TD_W_ROUTER:
        return matrix(&l->ffn.router);
    case TD_W_SHARED_ROUTER:
        return matrix(&l->ffn.shared_router);
    case TD_W_EXPERT_GATE:
        return matrix(&l->ffn.e_gate[w->expert]);
    case TD_W_EXPERT_UP:
        return matrix(&l->ffn.e_up[w->expert]);
    case TD_W_EXPERT_DOWN:
        return matrix(&l->ffn.e_down[w->expert]);
    default:
        return (struct td_place){0};
    }
}

struct td_place td_model_placed(struct td_model *m, const struct td_weight *w)
{
    if (w->layer < 0)
        return place_global(m, w->role);
    struct td_layer *l = &m->layers[w->layer];
    struct td_place p = place_mixer(l, w->role);
    return p.m || p.vector ? p : place_ffn(l, w);
}

static enum td_mat_type matrix_type(enum td_dtype dtype)
{
    return dtype == TD_DTYPE_F8_E4M3 ? TD_MAT_F8
           : dtype == TD_DTYPE_BF16  ? TD_MAT_BF16
                                     : TD_MAT_F32;
}

static size_t round64(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t data_bytes(const struct td_model *m, const struct td_weight *w,
                         const struct td_place *p)
{
    if (p->vector)
        return round64((size_t)(w->local_rows * w->col.count) * sizeof(float));
    return m->dev->ops.matrix_bytes(m->dev, matrix_type(w->dtype), w->local_rows,
                                    w->col.count);
}

static size_t scale_bytes(const struct td_weight *w)
{
    if (w->dtype != TD_DTYPE_F8_E4M3)
        return 0;
    return round64(
        (size_t)(td_scale_blocks(w->local_rows) * td_scale_blocks(w->col.count)) *
        sizeof(float));
}

static size_t inv_freq_bytes(const struct td_model *m)
{
    return round64((size_t)(m->cfg.rotary_dim / 2) * sizeof(float));
}

int64_t td_model_weight_bytes(const struct td_model *m)
{
    size_t sum = inv_freq_bytes(m);
    for (size_t i = 0; i < m->names.count; i++) {
        const struct td_weight *w = &m->names.w[i];
        /* only looks at which kind of place it is */
        struct td_place p = td_model_placed((struct td_model *)(uintptr_t)m, w);
        sum += data_bytes(m, w, &p) + scale_bytes(w);
    }
    return (int64_t)sum;
}

/* Gives every weight its part of the slab. */
static void carve(struct td_model *m, char *slab)
{
    m->inv_freq = (float *)(void *)slab;
    slab += inv_freq_bytes(m);
    for (size_t i = 0; i < m->names.count; i++) {
        const struct td_weight *w = &m->names.w[i];
        struct td_place p = td_model_placed(m, w);
        if (p.vector) {
            *p.vector = (float *)(void *)slab;
        } else {
            assert(p.m); /* every role has a place */
            *p.m = (struct td_matrix){.type = matrix_type(w->dtype),
                                      .n = w->local_rows,
                                      .k = w->col.count,
                                      .data = slab};
            if (scale_bytes(w))
                p.m->scale = (float *)(void *)(slab + data_bytes(m, w, &p));
        }
        slab += data_bytes(m, w, &p) + scale_bytes(w);
    }
    if (m->cfg.tied)
        m->head = m->embed;
}

enum td_status td_model_place(struct td_model *m, struct td_error *err)
{
    void *slab;
    enum td_status s =
        m->dev->ops.alloc(m->dev, (size_t)m->weight_bytes, "weights", &slab, err);
    if (s == TD_OK)
        carve(m, slab);
    return s;
}

static void widen(const void *bytes, enum td_dtype type, int64_t n, float *out)
{
    const uint16_t *h = bytes;
    for (int64_t i = 0; i < n; i++)
        out[i] = type == TD_DTYPE_BF16  ? td_f32_from_bf16(h[i])
                 : type == TD_DTYPE_F16 ? td_f32_from_f16(h[i])
                                        : ((const float *)bytes)[i];
}

/* Called by load with rows of a piece, from several threads. */
static enum td_status receive(void *self, const struct td_piece *p, int64_t row0,
                              int64_t n_rows, const void *bytes, struct td_error *err)
{
    (void)self;
    (void)err;
    const struct target *t = p->user;
    struct td_dev *dev = t->model->dev;
    if (t->is_scale || t->place.vector) {
        enum td_dtype type = t->is_scale ? t->w->scale_dtype : t->w->dtype;
        widen(bytes, type, n_rows * p->n_cols,
              t->host + (p->dst_row + row0) * p->n_cols);
    } else {
        dev->ops.pack(dev, t->place.m, p->dst_row + row0, n_rows, bytes, t->w->dtype);
    }
    return TD_OK;
}

/* Where load may put rows of a matrix itself. */
static void *placed(void *self, const struct td_piece *p, int64_t row0, int64_t n_rows)
{
    (void)self;
    (void)n_rows;
    const struct target *t = p->user;
    struct td_dev *dev = t->model->dev;
    if (t->is_scale || t->place.vector || !dev->ops.place)
        return NULL;
    return dev->ops.place(dev, t->place.m, p->dst_row + row0, t->w->dtype);
}

float td_transformed(enum td_transform t, float x)
{
    switch (t) {
    case TD_ONE_PLUS:
        return 1.0f + x;
    case TD_NEG_EXP:
        return (float)-exp((double)x);
    case TD_KEEP:
        break;
    }
    return x;
}

/* Puts vectors and scales on the device. */
static void finish(struct td_model *m, struct target *targets, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct target *t = &targets[i];
        if (!t->host)
            continue;
        int64_t count = t->w->local_rows * t->w->col.count;
        void *to = t->place.vector ? *t->place.vector : t->place.m->scale;
        if (t->is_scale)
            count =
                td_scale_blocks(t->w->local_rows) * td_scale_blocks(t->w->col.count);
        for (int64_t k = 0; k < count && !t->is_scale; k++)
            t->host[k] = td_transformed(t->place.transform, t->host[k]);
        m->dev->ops.put(m->dev, to, t->host, (size_t)count * sizeof(float));
    }
}

enum td_status td_model_put_frequencies(struct td_model *m, struct td_error *err)
{
    int32_t half = m->cfg.rotary_dim / 2;
    float *f = td_calloc((size_t)half, sizeof(*f));
    if (!f)
        return td_error_set(err, TD_E_NOMEM, "no memory for rotary frequencies");
    for (int32_t i = 0; i < half; i++)
        f[i] = (float)(1.0 / pow(m->cfg.rope_theta, 2.0 * i / m->cfg.rotary_dim));
    m->dev->ops.put(m->dev, m->inv_freq, f, (size_t)half * sizeof(*f));
    td_free(f);
    return TD_OK;
}

/* The pieces of all weights and scales, and one target for each of them. */
struct reading {
    struct td_piece *pieces;
    struct target *targets;
    float *host;
    size_t n_pieces, n_targets;
};

static size_t host_floats(const struct td_model *m)
{
    size_t sum = 0;
    for (size_t i = 0; i < m->names.count; i++) {
        struct td_place p = td_model_placed((struct td_model *)(uintptr_t)m,
                                            &m->names.w[i]); /* its kind */
        sum += (p.vector ? data_bytes(m, &m->names.w[i], &p) : 0) / sizeof(float);
        sum += scale_bytes(&m->names.w[i]) / sizeof(float);
    }
    return sum;
}

int64_t td_model_list_bytes(const struct td_model *m)
{
    size_t pieces = 0, targets = 0;
    for (size_t i = 0; i < m->names.count; i++) {
        const struct td_weight *w = &m->names.w[i];
        size_t parts = w->dtype == TD_DTYPE_F8_E4M3 ? 2 : 1;
        pieces += parts * (size_t)w->n_ranges;
        targets += parts;
    }
    return (int64_t)(pieces * sizeof(struct td_piece) +
                     targets * sizeof(struct target) + host_floats(m) * sizeof(float)) +
           td_load_list_bytes((int64_t)pieces);
}

static enum td_status list_reading(struct td_model *m, struct reading *r,
                                   struct td_error *err)
{
    float *host = NULL;
    r->pieces = td_calloc(m->names.count * 6, sizeof(*r->pieces));
    r->targets = td_calloc(m->names.count * 2, sizeof(*r->targets));
    r->host = host = td_calloc(host_floats(m), sizeof(*host));
    if (!r->pieces || !r->targets || !host)
        return td_error_set(err, TD_E_NOMEM, "no memory to list the weights");
    for (size_t i = 0; i < m->names.count; i++) {
        const struct td_weight *w = &m->names.w[i];
        struct target *t = &r->targets[r->n_targets++];
        *t = (struct target){.model = m, .w = w, .place = td_model_placed(m, w)};
        if (t->place.vector) {
            t->host = host;
            host += data_bytes(m, w, &t->place) / sizeof(float);
        }
        r->n_pieces += (size_t)td_weight_pieces(w, t, r->pieces + r->n_pieces);
        if (scale_bytes(w) == 0)
            continue;
        struct target *scale = &r->targets[r->n_targets++];
        *scale = *t;
        scale->is_scale = true;
        scale->host = host;
        host += scale_bytes(w) / sizeof(float);
        r->n_pieces +=
            (size_t)td_weight_scale_pieces(w, scale, r->pieces + r->n_pieces);
    }
    return TD_OK;
}

enum td_status td_model_read(struct td_model *m, const struct td_load_opts *opts,
                             struct td_load_stats *stats, struct td_error *err)
{
    struct reading r = {0};
    struct td_load_opts o = *opts;
    o.dev = m->dev;
    o.place = m->dev->ops.place ? placed : NULL;
    enum td_status s = list_reading(m, &r, err);
    if (s == TD_OK)
        s = td_load(&m->dir, r.pieces, r.n_pieces, &o, receive, NULL, stats, err);
    if (s == TD_OK)
        finish(m, r.targets, r.n_targets);
    if (s == TD_OK)
        s = td_model_put_frequencies(m, err);
    if (s == TD_OK)
        s = m->dev->ops.sync(m->dev, err);
    td_free(r.pieces);
    td_free(r.targets);
    td_free(r.host);
    return s;
}

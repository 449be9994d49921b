/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a model as its files see them. Private to the room.
 *
 * Sizes with a `_l` meaning local are those of this rank's slice. Device pointers are
 * marked in the comments; everything else is host memory.
 */
#ifndef TD_MODEL_MODEL_INT_H
#define TD_MODEL_MODEL_INT_H

#include "model/model.h"

struct td_attention_weights {
    struct td_matrix q, k, v, o;
    float *q_norm, *k_norm; /* device [head_dim], 1 + weight */
};

struct td_gdn_weights {
    struct td_matrix qkv, z, a, b, out;
    float *conv;    /* device [channels][width] */
    float *a_neg;   /* device [value heads], -exp(A_log) */
    float *dt_bias; /* device [value heads] */
    float *norm;    /* device [value_dim], plain weight */
};

/* A feed-forward network: dense, or router, experts and shared expert. */
struct td_ffn_weights {
    struct td_matrix gate, up, down; /* dense, or the shared expert */
    struct td_matrix router, shared_router;
    struct td_matrix *e_gate, *e_up, *e_down; /* [experts] */
};

struct td_layer {
    enum td_layer_kind kind;
    int cache;                     /* index among the attention or delta-net layers */
    float *input_norm, *post_norm; /* device [hidden], 1 + weight */
    struct td_attention_weights attention;
    struct td_gdn_weights gdn;
    struct td_ffn_weights ffn;
};

struct td_draft_weights {
    struct td_matrix fc;
    float *norm_embed, *norm_hidden, *norm; /* device [hidden], 1 + weight */
};

/* Device memory of a forward. The areas for mixers and networks share `wide`. */
struct td_work {
    float *x, *h, *delta; /* [max_rows][hidden]: residual, normed, to be added */
    float *wide;          /* the largest of what a mixer or network needs */
    float *hidden;        /* [max_rows][hidden] final norm of all rows, NULL without a
                             draft head */
    float *pair;          /* [max_rows][2 * hidden] input of mtp.fc, NULL without */
    float *out_h;         /* [max_out][hidden] final norm of the wanted rows */
    float *logits;        /* [max_out][vocabulary rows of this rank] */
    struct td_candidates *best; /* [max_out], NULL: none are wanted */
    int32_t *ints;              /* batch arrays and out_row, laid out by batch.c */
    int32_t *host;              /* host copy of ints */
    int32_t *out_row;           /* device [n_out] */
    int32_t n_out;
};

struct td_model {
    struct td_config cfg;
    struct td_slice slice;
    struct td_model_limits limits;
    struct td_dev *dev;
    struct td_comm *comm;
    struct td_model_dir dir; /* empty for a random model */
    struct td_weights names;
    int64_t weight_bytes, list_bytes; /* see struct td_model_bytes */
    uint64_t random; /* seed of a model without files, 0: it has files */

    struct td_matrix embed, head; /* head shares embed's memory when tied */
    float *final_norm;            /* device, 1 + weight */
    float *inv_freq;              /* device [rotary / 2] */
    struct td_layer *layers;      /* [n_layers + 1], the last one the draft head's */
    struct td_matrix *experts;    /* all layers' e_gate, e_up, e_down */
    struct td_draft_weights draft;

    struct td_batch batch; /* of the present forward */
    uint64_t key;          /* under which it may be recorded, 0: it may not */
    struct td_work work;
    td_trace_fn trace;
    void *trace_self;
};

/* What happens to a vector's elements. */
enum td_transform { TD_KEEP, TD_ONE_PLUS, TD_NEG_EXP };

/* Where a weight is held; exactly one of m and vector is set. */
struct td_place {
    struct td_matrix *m;
    float **vector;
    enum td_transform transform;
};

/* weights.c: bytes on the device, and on the host while they are read; allocates device
 * memory for all weights, then reads them. */
struct td_place td_model_placed(struct td_model *m, const struct td_weight *w);
float td_transformed(enum td_transform t, float x);
int64_t td_model_weight_bytes(const struct td_model *m);
int64_t td_model_list_bytes(const struct td_model *m);
enum td_status td_model_place(struct td_model *m, struct td_error *err);
enum td_status td_model_read(struct td_model *m, const struct td_load_opts *opts,
                             struct td_load_stats *stats, struct td_error *err);
enum td_status td_model_put_frequencies(struct td_model *m, struct td_error *err);

/* random.c: makes all weights from m->random instead. */
enum td_status td_model_imagine(struct td_model *m, struct td_load_stats *stats,
                                struct td_error *err);

/* batch.c: checks the pieces and puts the batch on the device. A batch of generated
 * tokens alone, all with logits, gets rows of padding up to one of few sizes and a key,
 * if the device records steps. */
int64_t td_batch_ints(const struct td_model_limits *l);
int32_t td_batch_steps(const struct td_model_limits *l); /* sizes of recorded steps */
enum td_status td_batch_make(struct td_model *m, const struct td_cache *c,
                             const struct td_seq_rows *seqs, int32_t n_seqs,
                             struct td_error *err);

/* model.c: x[n] on the device becomes the sum over all ranks. */
enum td_status td_model_sum(struct td_model *m, float *x, size_t n,
                            struct td_error *err);

/* layer.c: floats of `wide` per row, and one layer: x += mixer(norm(x)), x +=
 * network(norm(x)), of which the last sum is left to whoever reads x where
 * td_model_rest() is not NULL. `add` is what still has to be added on entry. */
int64_t td_layer_wide(const struct td_model *m);
enum td_status td_layer_forward(struct td_model *m, struct td_cache *c,
                                const struct td_layer *l, const float *add,
                                struct td_error *err);

/* layer.c: the parts alone, each from work.h to work.delta, not yet summed over ranks, or
 * added to work.x where td_model_rest() is NULL. They make work.h by `norm` first, if it
 * is given. */
void td_layer_attention(struct td_model *m, struct td_cache *c,
                        const struct td_layer *l, const struct td_norm_args *norm);
void td_layer_gdn(struct td_model *m, struct td_cache *c, const struct td_layer *l,
                  const struct td_norm_args *norm);
void td_layer_ffn(struct td_model *m, const struct td_layer *l,
                  const struct td_norm_args *norm);

/* Whether products and mixtures of this batch do what goes before and behind them. */
static inline bool td_model_fuses(const struct td_model *m)
{
    return m->batch.rows <= m->dev->ops.fuses;
}

/* What a layer leaves to be added to work.x: NULL where the last product of each part has
 * done it, with nothing to sum over ranks before. */
static inline float *td_model_rest(const struct td_model *m)
{
    return td_model_fuses(m) && m->comm->ranks == 1 ? NULL : m->work.delta;
}

/* Local sizes. */
static inline int32_t td_local_channels(const struct td_model *m)
{
    return (int32_t)(2 * m->slice.key_heads.count * m->cfg.key_dim +
                     m->slice.value_heads.count * m->cfg.value_dim);
}

#endif

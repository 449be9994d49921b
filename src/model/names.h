/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors a model consists of, and which part of each a rank reads.
 *
 * The generator walks over the logical weights of a configuration: one norm, one
 * projection, one matrix of one expert. Where they lie in the checkpoint (an expert on
 * its own or inside a fused tensor, a matrix in BF16 or in FP8 with a scale) does not
 * change what is yielded, only the name and the place.
 *
 *     td_slice_make()     what rank r of N owns: heads, widths, vocabulary rows
 *     td_names_each()     the weights as the configuration alone implies them
 *     td_weights_bind()   the weights of a real checkpoint, every tensor accounted for
 *     td_weight_pieces()  what load has to read for one weight
 *
 * Split rules (rows = outputs, cols = inputs; N ranks): query, key, value and gate rows
 * by head; output columns by head; in_proj_qkv and conv1d as three row ranges; MLP and
 * expert rows or columns evenly; embedding and head by vocabulary rows; norms, routers
 * and mtp.fc whole. With more ranks than KV heads each KV head lies on N / n_kv_heads
 * consecutive ranks. Scales follow with the same ranges divided by the block size.
 */
#ifndef TD_MODEL_NAMES_H
#define TD_MODEL_NAMES_H

#include "load/load.h"
#include "load/model_dir.h"
#include "model/config.h"

/* X(id, name after its prefix, without expert number) */
#define TD_ROLE_LIST(X)                                                                \
    X(TD_W_EMBED, "embed_tokens.weight")                                               \
    X(TD_W_FINAL_NORM, "norm.weight")                                                  \
    X(TD_W_LM_HEAD, "lm_head.weight")                                                  \
    X(TD_W_INPUT_NORM, "input_layernorm.weight")                                       \
    X(TD_W_POST_NORM, "post_attention_layernorm.weight")                               \
    X(TD_W_Q, "self_attn.q_proj.weight")                                               \
    X(TD_W_K, "self_attn.k_proj.weight")                                               \
    X(TD_W_V, "self_attn.v_proj.weight")                                               \
    X(TD_W_O, "self_attn.o_proj.weight")                                               \
    X(TD_W_Q_NORM, "self_attn.q_norm.weight")                                          \
    X(TD_W_K_NORM, "self_attn.k_norm.weight")                                          \
    X(TD_W_GDN_QKV, "linear_attn.in_proj_qkv.weight")                                  \
    X(TD_W_GDN_Z, "linear_attn.in_proj_z.weight")                                      \
    X(TD_W_GDN_B, "linear_attn.in_proj_b.weight")                                      \
    X(TD_W_GDN_A, "linear_attn.in_proj_a.weight")                                      \
    X(TD_W_GDN_CONV, "linear_attn.conv1d.weight")                                      \
    X(TD_W_GDN_DT_BIAS, "linear_attn.dt_bias")                                         \
    X(TD_W_GDN_A_LOG, "linear_attn.A_log")                                             \
    X(TD_W_GDN_NORM, "linear_attn.norm.weight")                                        \
    X(TD_W_GDN_OUT, "linear_attn.out_proj.weight")                                     \
    X(TD_W_GATE, "mlp.gate_proj.weight")                                               \
    X(TD_W_UP, "mlp.up_proj.weight")                                                   \
    X(TD_W_DOWN, "mlp.down_proj.weight")                                               \
    X(TD_W_ROUTER, "mlp.gate.weight")                                                  \
    X(TD_W_SHARED_ROUTER, "mlp.shared_expert_gate.weight")                             \
    X(TD_W_SHARED_GATE, "mlp.shared_expert.gate_proj.weight")                          \
    X(TD_W_SHARED_UP, "mlp.shared_expert.up_proj.weight")                              \
    X(TD_W_SHARED_DOWN, "mlp.shared_expert.down_proj.weight")                          \
    X(TD_W_EXPERT_GATE, "gate_proj.weight")                                            \
    X(TD_W_EXPERT_UP, "up_proj.weight")                                                \
    X(TD_W_EXPERT_DOWN, "down_proj.weight")                                            \
    X(TD_W_MTP_FC, "mtp.fc.weight")                                                    \
    X(TD_W_MTP_NORM_EMBED, "mtp.pre_fc_norm_embedding.weight")                         \
    X(TD_W_MTP_NORM_HIDDEN, "mtp.pre_fc_norm_hidden.weight")                           \
    X(TD_W_MTP_NORM, "mtp.norm.weight")

enum td_role {
#define X(id, name) id,
    TD_ROLE_LIST(X)
#undef X
        TD_ROLE_COUNT
};

enum td_weight_kind {
    TD_WEIGHT_MATRIX, /* F32, F16, BF16, or F8_E4M3 with a scale per block */
    TD_WEIGHT_PLAIN,  /* a matrix in F32, F16 or BF16 */
    TD_WEIGHT_VECTOR  /* F32, F16 or BF16; viewed as [1][n] */
};

/* first .. first + count. */
struct td_range {
    int64_t first, count;
};

/* What rank `rank` of `ranks` owns. Heads and widths as ranges of the whole. */
struct td_slice {
    int rank, ranks;
    struct td_range heads, kv_heads;        /* full attention */
    struct td_range key_heads, value_heads; /* Gated DeltaNet */
    struct td_range ffn, moe_ffn, shared_ffn;
    struct td_range vocab; /* ceil(vocab / ranks) rows a rank, the last ones fewer */
};

/* One logical weight and the part of it that a rank reads. Rows and columns count
 * within the weight; the weight begins at row `base` of its tensor's view
 * [view_rows][cols]. The rank's own matrix is the row ranges one below the other:
 * [local_rows][col.count]. */
struct td_weight {
    enum td_role role;
    enum td_weight_kind kind;
    bool mtp;   /* belongs to the draft head */
    int layer;  /* 0.. n_layers-1; draft layer k is n_layers + k; -1: not in a layer */
    int expert; /* -1: not of a routed expert */
    int64_t rows, cols;
    int64_t base, view_rows;
    int n_ranges;
    struct td_range row[3];
    struct td_range col;
    int64_t local_rows;
    enum td_dtype dtype; /* as stored; td_names_each() gives the expected one */
    int32_t tensor;      /* index in the model directory, -1 in td_names_each() */

    /* When dtype is F8_E4M3: one scale per block of block_rows x block_cols of the
     * weight, in a view like the weight's own. scale is -1 otherwise. */
    int block_rows, block_cols;
    enum td_dtype scale_dtype;
    int32_t scale;
    int64_t scale_base, scale_view_rows, scale_cols;
};

static inline const char *td_role_name(enum td_role role)
{
    static const char *const names[] = {
#define X(id, name) name,
        TD_ROLE_LIST(X)
#undef X
    };
    return (unsigned)role < TD_ROLE_COUNT ? names[role] : "?";
}

/* Which numbers of ranks up to TD_MAX_RANKS are admissible; returns how many. */
int td_split_list(const struct td_config *cfg, int out[TD_MAX_RANKS]);

/* TD_OK when the model can be split evenly over that many ranks; otherwise TD_E_SPLIT
 * with the dimension that does not divide and the nearest numbers that work. */
enum td_status td_split_check(const struct td_config *cfg, int ranks,
                              struct td_error *err);

/* The slice of one rank. TD_E_SPLIT as above. */
enum td_status td_slice_make(const struct td_config *cfg, int rank, int ranks,
                             struct td_slice *out, struct td_error *err);

/* How a checkpoint stores the routed experts. */
struct td_name_form {
    bool fused;     /* mlp.experts.gate_up_proj and down_proj, all experts in one */
    bool fused_mtp; /* the same in the draft layer */
};

/* Called with each weight, and the names of its tensor and of its scale (NULL for weights
 * that are never FP8), valid during the call. A failure ends the walk. */
typedef enum td_status (*td_weight_fn)(void *self, const struct td_weight *w,
                                       const char *name, const char *scale_name);

/* Walks over all weights: globals, layers in order, draft head. */
enum td_status td_names_each(const struct td_config *cfg, const struct td_slice *slice,
                             const struct td_name_form *form, td_weight_fn fn,
                             void *self);

/* Bytes of a rank's part as stored: elements and scales. */
int64_t td_weight_bytes(const struct td_weight *w);

/* Sums over td_names_each(): what the configuration alone implies for one rank. */
struct td_names_sum {
    int64_t tensors, tensors_mtp; /* of the checkpoint, scales included */
    int64_t params, params_mtp;   /* of the rank; the main model, the draft head */
    int64_t bytes, bytes_mtp;
    /* read for one token at batch 1: the chosen experts, the head, no embedding */
    int64_t token_params, token_bytes;
};
void td_names_sum(const struct td_config *cfg, const struct td_slice *slice,
                  const struct td_name_form *form, struct td_names_sum *out);

/* What becomes of a tensor of the checkpoint. */
enum td_use {
    TD_USE_UNKNOWN, /* no part of the model */
    TD_USE_WEIGHT,
    TD_USE_SCALE,
    TD_SKIP_VISION, /* vision tower */
    TD_SKIP_TIED,   /* a head beside a tied embedding */
    TD_SKIP_MTP, /* a draft head that the configuration does not have, or nobody wants */
    TD_USE_COUNT
};

/* The reason in words, static. */
const char *td_use_text(enum td_use use);

struct td_weights {
    struct td_weight *w;
    size_t count;
    uint8_t *use;      /* enum td_use of each tensor of the directory */
    int64_t bytes;     /* this rank's part, main model and draft head */
    int64_t bytes_mtp; /* of these, the draft head's */
    bool has_mtp;      /* false: none configured, or the checkpoint has left it out */
    int32_t n_unknown;
};

enum td_bind_unknown { TD_UNKNOWN_FAILS, TD_UNKNOWN_IS_COUNTED };

/* Finds every weight in the checkpoint and accounts for every tensor. In a directory of
 * names only, formats are those that the configuration implies (FP8 where a scale is
 * named). Errors name
 * tensor, expected and found: TD_E_TENSOR (missing, wrong shape or number format, scale
 * missing, unknown tensors), TD_E_UNSUPPORTED (tensors of another quantization),
 * TD_E_NOMEM. Release only after TD_OK. */
enum td_status td_weights_bind(const struct td_config *cfg,
                               const struct td_model_dir *dir,
                               const struct td_slice *slice,
                               enum td_bind_unknown unknown, struct td_weights *out,
                               struct td_error *err);
void td_weights_release(struct td_weights *w);

/* The weights that the configuration alone implies, without a checkpoint: `tensor` and
 * `scale` are -1, `use` is NULL. TD_E_NOMEM; released as above. */
enum td_status td_weights_imply(const struct td_config *cfg,
                                const struct td_slice *slice, struct td_weights *out,
                                struct td_error *err);

/* What load has to read for a weight: at most 3 pieces; returns how many. dst_row of a
 * piece is its first row in the rank's own matrix. */
int td_weight_pieces(const struct td_weight *w, void *user, struct td_piece out[3]);

/* The same for its scales: [ceil(local_rows / block_rows)][ceil(col / block_cols)];
 * 0 for a weight without scales. */
int td_weight_scale_pieces(const struct td_weight *w, void *user,
                           struct td_piece out[3]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's configuration: every number that the text model needs, from config.json,
 * and the sampling defaults from generation_config.json.
 *
 * config.json comes in two shapes. Vision-language releases nest the text model in
 * "text_config" and name its tensors `model.language_model.*`; text-only exports are
 * flat and name them `model.*`. Both are read; everything about vision is ignored.
 *
 * Every value is checked against a named ceiling and against the others (heads, groups,
 * rotary span), so that code behind a td_config may multiply its sizes in 64 bits
 * without further checks. Architectures, number formats and rotary scalings that tandem
 * does not compute are refused by name, never approximated.
 */
#ifndef TD_MODEL_CONFIG_H
#define TD_MODEL_CONFIG_H

#include "base/dtype.h"
#include "base/limits.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum td_family {
    TD_FAMILY_QWEN35,    /* every layer ends in one dense MLP */
    TD_FAMILY_QWEN35_MOE /* every layer ends in routed experts and a shared one */
};

enum td_quant {
    TD_QUANT_NONE, /* F32, F16 or BF16 */
    TD_QUANT_FP8   /* E4M3 matrices with one scale per block */
};

/* The mixer of a layer. */
enum td_layer_kind {
    TD_LAYER_GDN, /* "linear_attention": Gated DeltaNet */
    TD_LAYER_FULL /* "full_attention": gated attention with a KV cache */
};

enum { TD_CONFIG_ARCH_MAX = 64, TD_CONFIG_PREFIX_MAX = 32 };

struct td_config {
    char arch[TD_CONFIG_ARCH_MAX];     /* the class name in "architectures" */
    char prefix[TD_CONFIG_PREFIX_MAX]; /* "model.language_model." or "model." */
    enum td_family family;
    enum td_dtype dtype; /* of the matrices when they are not quantized */
    enum td_quant quant;
    int block_rows, block_cols; /* of FP8 scales: 128, 128 */

    int hidden;
    int vocab;  /* rows of embedding and head; may exceed the tokenizer's ids */
    bool tied;  /* the embedding is the head */
    double eps; /* of every RMS norm */
    int max_positions;

    int n_layers, n_full, n_gdn;   /* n_full + n_gdn = n_layers */
    uint8_t layers[TD_MAX_LAYERS]; /* enum td_layer_kind of each */
    int mtp_layers;                /* draft layers, 0: the model has none */

    /* Full attention. q_proj yields 2 * head_dim rows a head: query, then gate. */
    int n_heads, n_kv_heads, head_dim;
    int rotary_dim; /* leading dims of a head that rotate; even, at most head_dim */
    double rope_theta;

    /* Gated DeltaNet. Value head j uses key head j / (n_value_heads / n_key_heads). */
    int n_key_heads, n_value_heads, key_dim, value_dim;
    int conv_kernel;

    /* Feed forward: `ffn` for dense models, the others for mixtures of experts. */
    int ffn;
    int n_experts, top_k, moe_ffn, shared_ffn;

    int n_eos;
    int eos[TD_MAX_EOS]; /* "eos_token_id" of config.json */
};

/* Widths that follow from the configuration. */
static inline int64_t td_config_key_width(const struct td_config *c)
{
    return (int64_t)c->n_key_heads * c->key_dim;
}
static inline int64_t td_config_value_width(const struct td_config *c)
{
    return (int64_t)c->n_value_heads * c->value_dim;
}
static inline int64_t td_config_conv_width(const struct td_config *c)
{
    return 2 * td_config_key_width(c) + td_config_value_width(c);
}

/* Bytes of the keys and values of one token, all full-attention layers together (the
 * draft head's own cache not counted), with elements of elem bytes. */
static inline int64_t td_config_kv_bytes(const struct td_config *c, int elem)
{
    return 2 * (int64_t)c->n_full * c->n_kv_heads * c->head_dim * elem;
}

/* Bytes of the recurrent (f32) and of the convolution states of one sequence. */
static inline int64_t td_config_state_bytes(const struct td_config *c)
{
    return 4 * (int64_t)c->n_gdn * td_config_value_width(c) * c->key_dim;
}
static inline int64_t td_config_conv_bytes(const struct td_config *c, int elem)
{
    return (int64_t)c->n_gdn * (c->conv_kernel - 1) * td_config_conv_width(c) * elem;
}

/* Checks what the user called a model. TD_OK when it is a directory; TD_E_HUB_ID for
 * `org/name`, with the command that fetches it; TD_E_UNSUPPORTED for a GGUF file;
 * TD_E_NOT_FOUND otherwise. */
enum td_status td_model_arg_check(const char *model, struct td_error *err);

/* Reads dir/config.json. Errors name file, key, found and expected value: those of
 * td_model_arg_check(), TD_E_NOT_FOUND, TD_E_LFS_POINTER, TD_E_JSON, TD_E_CONFIG,
 * TD_E_UNSUPPORTED. */
enum td_status td_config_read(const char *dir, struct td_config *cfg,
                              struct td_error *err);

/* The same from n bytes of JSON; `where` names the document in errors. */
enum td_status td_config_parse(const char *text, size_t n, const char *where,
                               struct td_config *cfg, struct td_error *err);

/* Sampling defaults of a checkpoint. Neutral values where the file says nothing. */
struct td_generation_defaults {
    bool do_sample;            /* true when unsaid; false: greedy */
    double temperature;        /* 1 */
    int top_k;                 /* 0: off */
    double top_p;              /* 1 */
    double min_p;              /* 0 */
    double repetition_penalty; /* 1 */
    int n_eos;                 /* union with the configuration's */
    int eos[TD_MAX_EOS];
};

/* Reads dir/generation_config.json; a missing file gives the neutral values and the
 * configuration's stop ids. Ids outside the vocabulary are errors (TD_E_CONFIG). */
enum td_status td_generation_defaults_read(const char *dir, const struct td_config *cfg,
                                           struct td_generation_defaults *out,
                                           struct td_error *err);

/* The same from n bytes of JSON. */
enum td_status td_generation_defaults_parse(const char *text, size_t n,
                                            const char *where,
                                            const struct td_config *cfg,
                                            struct td_generation_defaults *out,
                                            struct td_error *err);

#endif

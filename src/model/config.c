/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json to struct td_config. See config.h.
 *
 * The order of checks is the order in which a user can act on them: is it a model at
 * all, is it of a kind that tandem reads, is every number there and in range, do the
 * numbers fit each other.
 */
#include "model/config.h"

#include "base/file.h"
#include "base/json.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define READS                                                                          \
    "tandem reads Qwen3.5 text models in F32, F16, BF16 or block FP8 "                 \
    "(quant_method \"fp8\", weight_scale_inv per 128x128 block) as safetensors"

static const struct {
    const char *arch, *model_type, *text_type;
    enum td_family family;
} families[] = {
    {"Qwen3_5ForConditionalGeneration", "qwen3_5", "qwen3_5_text", TD_FAMILY_QWEN35},
    {"Qwen3_5ForCausalLM", "qwen3_5_text", "qwen3_5_text", TD_FAMILY_QWEN35},
    {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "qwen3_5_moe_text",
     TD_FAMILY_QWEN35_MOE},
    {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", "qwen3_5_moe_text",
     TD_FAMILY_QWEN35_MOE},
};

/* What is being read: the two levels of the document and their names in errors. */
struct reader {
    const json_t *top, *text; /* the same object when the file is flat */
    const char *where;
    char text_where[TD_MAX_PATH + 32];
    struct td_error *err;
};

static enum td_status unsupported(struct reader *r, const char *fmt, ...)
    TD_PRINTF(2, 3);

static enum td_status unsupported(struct reader *r, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    td_error_set(r->err, TD_E_UNSUPPORTED, "%s: %s", r->where, what);
    td_error_why(r->err, "%s", READS);
    return TD_E_UNSUPPORTED;
}

/* ---- architecture and number format ------------------------------------------------ */

static int family_of(const char *arch, const char *model_type)
{
    for (size_t i = 0; i < TD_COUNT(families); i++) {
        if (arch && strcmp(families[i].arch, arch) == 0)
            return (int)i;
        if (!arch && model_type &&
            (strcmp(families[i].model_type, model_type) == 0 ||
             strcmp(families[i].text_type, model_type) == 0))
            return (int)i;
    }
    return -1;
}

static enum td_status read_family(struct reader *r, struct td_config *c)
{
    const json_t *archs = json_object_get(r->top, "architectures");
    const char *arch = json_string_value(json_array_get(archs, 0));
    const char *type = NULL, *text_type = NULL;
    enum td_status s = td_json_str(r->top, "model_type", r->where, NULL, &type, r->err);
    if (s == TD_OK)
        s = td_json_str(r->text, "model_type", r->text_where, NULL, &text_type, r->err);
    if (s != TD_OK)
        return s;
    if (!arch && !type) {
        td_error_set(r->err, TD_E_CONFIG,
                     "%s: neither \"architectures\" nor \"model_type\" is there",
                     r->where);
        td_error_why(r->err, "the file does not say what model it describes");
        return TD_E_CONFIG;
    }
    int f = family_of(arch, type);
    if (f < 0)
        return unsupported(r,
                           arch ? "the architecture \"%s\" is not implemented"
                                : "the model type \"%s\" is not implemented",
                           arch ? arch : type);
    if (text_type && strcmp(text_type, families[f].text_type) != 0 &&
        strcmp(text_type, families[f].model_type) != 0) {
        td_error_set(r->err, TD_E_CONFIG,
                     "%s: \"model_type\" is \"%s\", expected \"%s\" for %s",
                     r->text_where, text_type, families[f].text_type, families[f].arch);
        return TD_E_CONFIG;
    }
    c->family = families[f].family;
    (void)snprintf(c->arch, sizeof(c->arch), "%s", families[f].arch);
    (void)snprintf(c->prefix, sizeof(c->prefix), "%s",
                   r->text != r->top ? "model.language_model." : "model.");
    return TD_OK;
}

static enum td_status read_dtype(struct reader *r, struct td_config *c)
{
    static const struct {
        const char *name;
        enum td_dtype dtype;
    } names[] = {{"bfloat16", TD_DTYPE_BF16},
                 {"float16", TD_DTYPE_F16},
                 {"float32", TD_DTYPE_F32}};
    static const char *const keys[] = {"dtype", "torch_dtype"};
    const char *name = NULL;
    c->dtype = TD_DTYPE_BF16;
    for (size_t i = 0; i < TD_COUNT(keys) && !name; i++) {
        enum td_status s =
            td_json_str(r->text, keys[i], r->text_where, NULL, &name, r->err);
        if (s == TD_OK && !name)
            s = td_json_str(r->top, keys[i], r->where, NULL, &name, r->err);
        if (s != TD_OK)
            return s;
    }
    for (size_t i = 0; name && i < TD_COUNT(names); i++) {
        if (strcmp(names[i].name, name) == 0) {
            c->dtype = names[i].dtype;
            return TD_OK;
        }
    }
    return name ? unsupported(r, "weights of type \"%s\" are not read", name) : TD_OK;
}

static enum td_status read_fp8(struct reader *r, const json_t *q, const char *where,
                               struct td_config *c)
{
    const json_t *block = json_object_get(q, "weight_block_size");
    const char *fmt = NULL, *scheme = NULL;
    enum td_status s = td_json_str(q, "fmt", where, "e4m3", &fmt, r->err);
    if (s == TD_OK)
        s = td_json_str(q, "activation_scheme", where, "dynamic", &scheme, r->err);
    if (s != TD_OK)
        return s;
    if (strcmp(fmt, "e4m3") != 0)
        return unsupported(r, "FP8 weights of format \"%s\" are not read", fmt);
    if (strcmp(scheme, "dynamic") != 0)
        return unsupported(r, "FP8 with the activation scheme \"%s\" is not read",
                           scheme);
    if (json_is_null(block))
        block = NULL;
    json_int_t rows = json_integer_value(json_array_get(block, 0));
    json_int_t cols = json_integer_value(json_array_get(block, 1));
    if (!block)
        return unsupported(r, "FP8 without %s is not read", "\"weight_block_size\"");
    if (json_array_size(block) != 2 || rows != c->block_rows || cols != c->block_cols) {
        char shown[64];
        size_t n = json_dumpb(block, shown, sizeof(shown) - 1, JSON_ENCODE_ANY);
        shown[n < sizeof(shown) ? n : 0] = 0;
        return unsupported(r, "FP8 blocks %s are not read, only [128, 128]",
                           *shown ? shown : "of another shape");
    }
    c->quant = TD_QUANT_FP8;
    return TD_OK;
}

static enum td_status read_quant(struct reader *r, struct td_config *c)
{
    static const char *const keys[] = {"quantization_config", "compression_config"};
    const json_t *q = NULL;
    for (size_t i = 0; i < TD_COUNT(keys) && (!q || json_is_null(q)); i++) {
        q = json_object_get(r->top, keys[i]);
        if (!q || json_is_null(q))
            q = json_object_get(r->text, keys[i]);
    }
    if (!q || json_is_null(q))
        return TD_OK;
    if (!json_is_object(q))
        return td_json_refuse(q, "quantization_config", r->where, "an object", r->err);
    const char *method = NULL, *algo = NULL;
    char where[TD_MAX_PATH + 32];
    (void)snprintf(where, sizeof(where), "%s: quantization_config", r->where);
    enum td_status s = td_json_str(q, "quant_method", where, NULL, &method, r->err);
    if (s == TD_OK)
        s = td_json_str(q, "quant_algo", where, NULL, &algo, r->err);
    if (s != TD_OK)
        return s;
    if (method && strcmp(method, "fp8") == 0 && !algo)
        return read_fp8(r, q, where, c);
    char name[128];
    (void)snprintf(name, sizeof(name), "%s%s%s", method ? method : "unnamed",
                   algo ? " " : "", algo ? algo : "");
    return unsupported(r, "the quantization \"%s\" is not read", name);
}

/* ---- numbers ----------------------------------------------------------------------- */

struct int_key {
    const char *key;
    size_t field;
    int lo, hi;
    int absent; /* below lo: the key is required */
};

#define KEY(name, field, lo, hi, absent)                                               \
    {                                                                                  \
        name, offsetof(struct td_config, field), lo, hi, absent                        \
    }
static const struct int_key common_keys[] = {
    KEY("hidden_size", hidden, 1, TD_MAX_HIDDEN, -1),
    KEY("num_hidden_layers", n_layers, 1, TD_MAX_LAYERS, -1),
    KEY("vocab_size", vocab, 1, TD_MAX_VOCAB, -1),
    KEY("max_position_embeddings", max_positions, 1, TD_MAX_POSITIONS, -1),
    KEY("num_attention_heads", n_heads, 1, TD_MAX_HEADS, -1),
    KEY("num_key_value_heads", n_kv_heads, 1, TD_MAX_HEADS, -1),
    KEY("head_dim", head_dim, 2, TD_MAX_HEAD_DIM, 256),
    KEY("linear_num_key_heads", n_key_heads, 1, TD_MAX_HEADS, 16),
    KEY("linear_num_value_heads", n_value_heads, 1, TD_MAX_HEADS, -1),
    KEY("linear_key_head_dim", key_dim, 1, TD_MAX_HEAD_DIM, 128),
    KEY("linear_value_head_dim", value_dim, 1, TD_MAX_HEAD_DIM, 128),
    KEY("linear_conv_kernel_dim", conv_kernel, 2, TD_MAX_CONV, 4),
    KEY("mtp_num_hidden_layers", mtp_layers, 0, TD_MAX_MTP_LAYERS, 0),
};
static const struct int_key dense_keys[] = {
    KEY("intermediate_size", ffn, 1, TD_MAX_FFN, -1),
};
static const struct int_key moe_keys[] = {
    KEY("num_experts", n_experts, 1, TD_MAX_EXPERTS, -1),
    KEY("num_experts_per_tok", top_k, 1, TD_MAX_TOP_EXPERTS, -1),
    KEY("moe_intermediate_size", moe_ffn, 1, TD_MAX_FFN, -1),
    KEY("shared_expert_intermediate_size", shared_ffn, 1, TD_MAX_FFN, -1),
};
#undef KEY

static enum td_status missing(struct reader *r, const char *key, const char *expected)
{
    return td_error_set(r->err, TD_E_CONFIG, "%s: \"%s\" is missing, expected %s",
                        r->text_where, key, expected);
}

static enum td_status read_ints(struct reader *r, const struct int_key *keys, size_t n,
                                struct td_config *c)
{
    for (size_t i = 0; i < n; i++) {
        const struct int_key *k = &keys[i];
        int64_t v = 0;
        enum td_status s = td_json_int(r->text, k->key, r->text_where, k->lo, k->hi,
                                       k->absent, &v, r->err);
        if (s != TD_OK)
            return s;
        if (v < k->lo) {
            char want[96];
            (void)snprintf(want, sizeof(want), "a whole number from %d to %d", k->lo,
                           k->hi);
            return missing(r, k->key, want);
        }
        int small = (int)v;
        memcpy((char *)c + k->field, &small, sizeof(small));
    }
    return TD_OK;
}

/* Switches of the family that tandem computes in one way only. */
static enum td_status read_switches(struct reader *r, struct td_config *c)
{
    static const struct {
        const char *key;
        bool value;
    } fixed[] = {{"attention_bias", false},
                 {"attn_output_gate", true},
                 {"norm_topk_prob", true},
                 {"mtp_use_dedicated_embeddings", false}};
    for (size_t i = 0; i < TD_COUNT(fixed); i++) {
        bool v = false;
        enum td_status s = td_json_bool(r->text, fixed[i].key, r->text_where,
                                        fixed[i].value, &v, r->err);
        if (s != TD_OK)
            return s;
        if (v != fixed[i].value)
            return unsupported(r,
                               v ? "\"%s\": true is not implemented"
                                 : "\"%s\": false is not implemented",
                               fixed[i].key);
    }
    const char *act = NULL, *gate = NULL;
    enum td_status s =
        td_json_str(r->text, "hidden_act", r->text_where, "silu", &act, r->err);
    if (s == TD_OK)
        s = td_json_str(r->text, "output_gate_type", r->text_where, "swish", &gate,
                        r->err);
    if (s != TD_OK)
        return s;
    if (strcmp(act, "silu") != 0)
        return unsupported(r, "the activation \"%s\" is not implemented", act);
    if (strcmp(gate, "swish") != 0 && strcmp(gate, "silu") != 0)
        return unsupported(r, "the output gate \"%s\" is not implemented", gate);
    if (json_array_size(json_object_get(r->text, "mlp_only_layers")) > 0)
        return unsupported(r, "layers without experts (%s) are not implemented",
                           "\"mlp_only_layers\"");
    s = td_json_double(r->text, "rms_norm_eps", r->text_where, 1e-12, 1e-1, 1e-6,
                       &c->eps, r->err);
    if (s == TD_OK)
        s = td_json_bool(r->text, "tie_word_embeddings", r->text_where, false, &c->tied,
                         r->err);
    if (s == TD_OK)
        s = td_json_bool(r->top, "tie_word_embeddings", r->where, c->tied, &c->tied,
                         r->err);
    return s;
}

static enum td_status read_layer_types(struct reader *r, const json_t *types,
                                       struct td_config *c)
{
    if (!json_is_array(types))
        return td_json_refuse(types, "layer_types", r->text_where, "an array", r->err);
    if (json_array_size(types) != (size_t)c->n_layers)
        return td_error_set(
            r->err, TD_E_CONFIG,
            "%s: \"layer_types\" has %zu entries, expected %d (num_hidden_layers)",
            r->text_where, json_array_size(types), c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        const char *t = json_string_value(json_array_get(types, (size_t)i));
        if (t && strcmp(t, "full_attention") == 0)
            c->layers[i] = TD_LAYER_FULL;
        else if (t && strcmp(t, "linear_attention") == 0)
            c->layers[i] = TD_LAYER_GDN;
        else
            return td_error_set(r->err, TD_E_CONFIG,
                                "%s: \"layer_types\"[%d] is %s, expected "
                                "\"linear_attention\" or \"full_attention\"",
                                r->text_where, i, t ? t : "not a string");
    }
    return TD_OK;
}

static enum td_status read_layers(struct reader *r, struct td_config *c)
{
    const json_t *types = json_object_get(r->text, "layer_types");
    enum td_status s = TD_OK;
    if (types && !json_is_null(types)) {
        s = read_layer_types(r, types, c);
    } else {
        int64_t every = 0;
        s = td_json_int(r->text, "full_attention_interval", r->text_where, 1,
                        TD_MAX_LAYERS, 4, &every, r->err);
        for (int i = 0; s == TD_OK && i < c->n_layers; i++)
            c->layers[i] = (i + 1) % every == 0 ? TD_LAYER_FULL : TD_LAYER_GDN;
    }
    for (int i = 0; s == TD_OK && i < c->n_layers; i++) {
        c->n_full += c->layers[i] == TD_LAYER_FULL;
        c->n_gdn += c->layers[i] == TD_LAYER_GDN;
    }
    return s;
}

/* ---- rotary positions -------------------------------------------------------------- */

static enum td_status read_rope(struct reader *r, struct td_config *c)
{
    static const char *const spellings[] = {"rope_parameters", "rope_scaling"};
    const json_t *rope = NULL;
    const char *type = NULL;
    double factor = 0.25;
    char where[TD_MAX_PATH + 64];
    (void)snprintf(where, sizeof(where), "%s", r->text_where);
    for (size_t i = 0; i < TD_COUNT(spellings) && !json_is_object(rope); i++) {
        rope = json_object_get(r->text, spellings[i]);
        if (json_is_object(rope))
            (void)snprintf(where, sizeof(where), "%s: %s", r->text_where, spellings[i]);
    }
    enum td_status s = td_json_str(rope, "type", where, "default", &type, r->err);
    if (s == TD_OK)
        s = td_json_str(rope, "rope_type", where, type, &type, r->err);
    if (s != TD_OK)
        return s;
    /* "mrope" is an older name of the plain type with position sections, which are
     * equal for text. */
    if (strcmp(type, "default") != 0 && strcmp(type, "mrope") != 0) {
        td_error_set(r->err, TD_E_UNSUPPORTED,
                     "%s: the rotary type \"%s\" is not implemented", where, type);
        td_error_why(r->err, "tandem computes plain rotary positions (\"default\"), "
                             "without scaling for longer contexts");
        td_error_fix(r->err, "restore \"rope_type\": \"default\" and the "
                             "original max_position_embeddings");
        return TD_E_UNSUPPORTED;
    }
    s = td_json_double(r->text, "rope_theta", r->text_where, 1.0, 1e12, 0.0,
                       &c->rope_theta, r->err);
    if (s == TD_OK)
        s = td_json_double(rope, "rope_theta", where, 1.0, 1e12, c->rope_theta,
                           &c->rope_theta, r->err);
    if (s == TD_OK)
        s = td_json_double(r->text, "partial_rotary_factor", r->text_where, 0.0, 1.0,
                           factor, &factor, r->err);
    if (s == TD_OK)
        s = td_json_double(rope, "partial_rotary_factor", where, 0.0, 1.0, factor,
                           &factor, r->err);
    if (s != TD_OK)
        return s;
    if (c->rope_theta <= 0.0)
        return missing(r, "rope_theta", "a number (in \"rope_parameters\")");
    c->rotary_dim = (int)(c->head_dim * factor);
    if (c->rotary_dim < 2 || c->rotary_dim % 2 != 0)
        return td_error_set(r->err, TD_E_CONFIG,
                            "%s: \"partial_rotary_factor\" is %g of head_dim %d: %d "
                            "dims rotate, expected an even number from 2",
                            where, factor, c->head_dim, c->rotary_dim);
    return TD_OK;
}

/* ---- stop ids and the whole -------------------------------------------------------- */

static bool add_eos(const json_t *v, int vocab, int *list, int *n)
{
    json_int_t id = json_integer_value(v);
    if (!json_is_integer(v) || id < 0 || id >= vocab)
        return false;
    for (int i = 0; i < *n; i++)
        if (list[i] == id)
            return true;
    if (*n >= TD_MAX_EOS)
        return false;
    list[(*n)++] = (int)id;
    return true;
}

/* Adds "eos_token_id" (absent, null, one id or an array of ids) to a list. */
static enum td_status read_eos(const json_t *obj, const char *where, int vocab,
                               int *list, int *n, struct td_error *err)
{
    const json_t *v = json_object_get(obj, "eos_token_id");
    bool ok = true;
    if (!v || json_is_null(v))
        return TD_OK;
    if (json_is_array(v))
        for (size_t i = 0; i < json_array_size(v); i++)
            ok = ok && add_eos(json_array_get(v, i), vocab, list, n);
    else
        ok = add_eos(v, vocab, list, n);
    if (ok)
        return TD_OK;
    char want[64];
    (void)snprintf(want, sizeof(want), "an id or up to %d ids from 0 to %d", TD_MAX_EOS,
                   vocab - 1);
    return td_json_refuse(v, "eos_token_id", where, want, err);
}

static enum td_status divides(struct reader *r, const char *a, int av, const char *b,
                              int bv)
{
    if (av % bv == 0)
        return TD_OK;
    return td_error_set(r->err, TD_E_CONFIG,
                        "%s: \"%s\" is %d, expected a multiple of \"%s\" (%d)",
                        r->text_where, a, av, b, bv);
}

static enum td_status check_relations(struct reader *r, const struct td_config *c)
{
    enum td_status s = divides(r, "num_attention_heads", c->n_heads,
                               "num_key_value_heads", c->n_kv_heads);
    if (s == TD_OK)
        s = divides(r, "linear_num_value_heads", c->n_value_heads,
                    "linear_num_key_heads", c->n_key_heads);
    if (s == TD_OK && c->top_k > c->n_experts)
        s = td_error_set(r->err, TD_E_CONFIG,
                         "%s: \"num_experts_per_tok\" is %d, expected at most "
                         "\"num_experts\" (%d)",
                         r->text_where, c->top_k, c->n_experts);
    return s;
}

static enum td_status parse(struct reader *r, struct td_config *c)
{
    bool moe = false;
    enum td_status s = read_family(r, c);
    moe = c->family == TD_FAMILY_QWEN35_MOE;
    if (s == TD_OK)
        s = read_quant(r, c);
    if (s == TD_OK)
        s = read_dtype(r, c);
    if (s == TD_OK)
        s = read_ints(r, common_keys, TD_COUNT(common_keys), c);
    if (s == TD_OK)
        s = moe ? read_ints(r, moe_keys, TD_COUNT(moe_keys), c)
                : read_ints(r, dense_keys, TD_COUNT(dense_keys), c);
    if (s == TD_OK)
        s = read_switches(r, c);
    if (s == TD_OK)
        s = read_layers(r, c);
    if (s == TD_OK)
        s = read_rope(r, c);
    if (s == TD_OK)
        s = check_relations(r, c);
    if (s == TD_OK)
        s = read_eos(r->text, r->text_where, c->vocab, c->eos, &c->n_eos, r->err);
    if (s == TD_OK && r->top != r->text)
        s = read_eos(r->top, r->where, c->vocab, c->eos, &c->n_eos, r->err);
    return s;
}

enum td_status td_config_parse(const char *text, size_t n, const char *where,
                               struct td_config *cfg, struct td_error *err)
{
    json_t *root = NULL;
    struct td_config c = {.block_rows = 128, .block_cols = 128};
    enum td_status s = td_json_parse(text, n, where, &root, err);
    if (s != TD_OK)
        return s;
    struct reader r = {.top = root, .text = root, .where = where, .err = err};
    const json_t *nested = json_object_get(root, "text_config");
    if (!json_is_object(root)) {
        s = td_error_set(err, TD_E_CONFIG, "%s: not a JSON object", where);
        goto out;
    }
    if (json_is_object(nested))
        r.text = nested;
    (void)snprintf(r.text_where, sizeof(r.text_where), "%s%s", where,
                   r.text != r.top ? ": text_config" : "");
    s = parse(&r, &c);
    if (s == TD_OK)
        *cfg = c;
out:
    json_decref(root);
    return s;
}

enum td_status td_generation_defaults_parse(const char *text, size_t n,
                                            const char *where,
                                            const struct td_config *cfg,
                                            struct td_generation_defaults *out,
                                            struct td_error *err)
{
    json_t *root = NULL;
    struct td_generation_defaults g;
    int64_t top_k = 0;
    enum td_status s = td_json_parse(text, n, where, &root, err);
    if (s != TD_OK)
        return s;
    if (!json_is_object(root))
        s = td_error_set(err, TD_E_CONFIG, "%s: not a JSON object", where);
    if (s == TD_OK)
        s = td_json_bool(root, "do_sample", where, true, &g.do_sample, err);
    if (s == TD_OK)
        s = td_json_double(root, "temperature", where, 0.0, 2.0, 1.0, &g.temperature,
                           err);
    if (s == TD_OK)
        s = td_json_int(root, "top_k", where, -1, TD_MAX_VOCAB, 0, &top_k, err);
    if (s == TD_OK)
        s = td_json_double(root, "top_p", where, 1e-6, 1.0, 1.0, &g.top_p, err);
    if (s == TD_OK)
        s = td_json_double(root, "min_p", where, 0.0, 1.0, 0.0, &g.min_p, err);
    if (s == TD_OK)
        s = td_json_double(root, "repetition_penalty", where, 0.01, 100.0, 1.0,
                           &g.repetition_penalty, err);
    g.top_k = top_k > 0 ? (int)top_k : 0;
    g.n_eos = cfg->n_eos;
    memcpy(g.eos, cfg->eos, sizeof(g.eos));
    if (s == TD_OK)
        s = read_eos(root, where, cfg->vocab, g.eos, &g.n_eos, err);
    if (s == TD_OK)
        *out = g;
    json_decref(root);
    return s;
}

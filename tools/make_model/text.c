/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small files: config.json, generation_config.json, tokenizer and chat template.
 *
 * The tokenizer comes from another model's directory. Where its ids fit the vocabulary
 * it is copied. Otherwise it is cut down: its 256 one-byte tokens become ids 0 to 255,
 * its added tokens follow, the merges go. Every text can then still be encoded, byte by
 * byte, and the chat template still finds its special tokens.
 */
#include "tools/make_model/synth.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { BYTE_TOKENS = 256 };

/* jansson's own failures (memory) gather here; every setter may fail. */
struct maker {
    bool failed;
};

static void set(struct maker *k, json_t *object, const char *key, json_t *value)
{
    k->failed |= json_object_set_new(object, key, value) != 0;
}

static void set_int(struct maker *k, json_t *object, const char *key, int64_t value)
{
    set(k, object, key, json_integer(value));
}

static void set_str(struct maker *k, json_t *object, const char *key, const char *value)
{
    set(k, object, key, json_string(value));
}

static void append(struct maker *k, json_t *array, json_t *value)
{
    k->failed |= json_array_append_new(array, value) != 0;
}

/* Ids of the tokens that configurations name; -1 for those the tokenizer lacks. */
struct special_ids {
    int64_t end_of_text, end_of_turn, image, video, vision_start, vision_end;
};

static enum td_status dump(const struct td_synth *m, const char *name,
                           const json_t *value, struct td_error *err)
{
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (!text)
        return td_error_set(err, TD_E_NOMEM, "no memory for %s", name);
    enum td_status s = td_synth_write_file(m, name, text, strlen(text), err);
    free(text);
    return s;
}

/* Copies a file of the tokenizer's directory; one that is missing stays missing. */
static enum td_status copy_file(const struct td_synth *m, const char *name,
                                struct td_error *err)
{
    char path[TD_MAX_PATH];
    struct td_buf b;
    td_buf_init(&b, TD_MAX_JSON_FILE);
    enum td_status s = td_path_join(path, sizeof(path), m->tokenizer, name, err);
    if (s != TD_OK || !td_file_exists(path))
        goto out;
    s = td_file_read(path, &b, err);
    if (s == TD_OK)
        s = td_synth_write_file(m, name, b.p, b.len, err);
out:
    td_buf_release(&b);
    return s;
}

static enum td_status read_text(const struct td_synth *m, const char *name,
                                json_t **out, struct td_error *err)
{
    char path[TD_MAX_PATH];
    enum td_status s = td_path_join(path, sizeof(path), m->tokenizer, name, err);
    return s == TD_OK ? td_json_read(path, (size_t)TD_MAX_JSON_FILE, out, err) : s;
}

static enum td_status bad_tokenizer(const struct td_synth *m, struct td_error *err,
                                    const char *why)
{
    td_error_set(err, TD_E_TOKENIZER, "%s/tokenizer.json cannot be used", m->tokenizer);
    td_error_why(err, "%s", why);
    td_error_fix(err, "give --tokenizer a directory with a byte-level BPE");
    return TD_E_TOKENIZER;
}

/* The ids a tokenizer needs: one more than the largest. */
static int64_t ids_needed(const json_t *vocab, const json_t *added)
{
    int64_t most = 0;
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) most =
        TD_MAX(most, json_integer_value(value) + 1);
    json_array_foreach(added, i, value) most =
        TD_MAX(most, json_integer_value(json_object_get(value, "id")) + 1);
    return most;
}

static int by_id(const void *a, const void *b)
{
    json_int_t x = json_integer_value(*(json_t *const *)a);
    json_int_t y = json_integer_value(*(json_t *const *)b);
    return (x > y) - (x < y);
}

/* The vocabulary's 256 tokens of one character with new ids in the old order; NULL when
 * there are not exactly 256. */
static json_t *byte_vocabulary(struct maker *k, json_t *vocab)
{
    json_t *ids[BYTE_TOKENS], *out = json_object(), *value;
    const char *key;
    size_t n = 0, found = 0;
    json_object_foreach(vocab, key, value)
    {
        size_t len = strlen(key);
        if (!len || td_utf8_len(key, len) != len)
            continue;
        if (n < BYTE_TOKENS)
            ids[n++] = value;
        found++;
    }
    if (found != BYTE_TOKENS || !out) {
        json_decref(out);
        return NULL;
    }
    qsort(ids, n, sizeof(json_t *), by_id);
    for (size_t i = 0; i < n; i++)
        json_object_foreach(vocab, key, value) if (value == ids[i])
            set_int(k, out, key, (int64_t)i);
    return out;
}

/* The entry of a tokenizer_config.json's added_tokens_decoder by the new ids. */
static json_t *renumbered_decoder(struct maker *k, json_t *old, int64_t shift)
{
    json_t *out = json_object(), *value;
    const char *key;
    json_object_foreach(old, key, value)
    {
        char id[32];
        (void)snprintf(id, sizeof(id), "%lld",
                       (long long)(strtoll(key, NULL, 10) - shift));
        set(k, out, id, json_incref(value));
    }
    return out;
}

static enum td_status cut_down(const struct td_synth *m, json_t *tokenizer,
                               json_t *added, struct td_error *err)
{
    struct maker k = {false};
    json_t *model = json_object_get(tokenizer, "model"), *token, *config = NULL;
    int64_t shift =
        json_integer_value(json_object_get(json_array_get(added, 0), "id")) -
        BYTE_TOKENS;
    size_t i;
    json_t *vocab = byte_vocabulary(&k, json_object_get(model, "vocab"));
    if (!vocab)
        return bad_tokenizer(m, err, "it has not exactly 256 tokens of one character");
    set(&k, model, "vocab", vocab);
    set(&k, model, "merges", json_array());
    json_array_foreach(added, i, token)
    {
        int64_t id = json_integer_value(json_object_get(token, "id")) - shift;
        if (id != (int64_t)i + BYTE_TOKENS)
            return bad_tokenizer(m, err,
                                 "its added tokens have gaps between their ids");
        set_int(&k, token, "id", id);
    }
    enum td_status s = read_text(m, "tokenizer_config.json", &config, err);
    if (s != TD_OK)
        return s;
    set(&k, config, "added_tokens_decoder",
        renumbered_decoder(&k, json_object_get(config, "added_tokens_decoder"), shift));
    if (k.failed)
        s = td_error_set(err, TD_E_NOMEM, "no memory for a tokenizer");
    if (s == TD_OK)
        s = dump(m, "tokenizer.json", tokenizer, err);
    if (s == TD_OK)
        s = dump(m, "tokenizer_config.json", config, err);
    json_decref(config);
    return s;
}

static void find_ids(const json_t *added, struct special_ids *ids)
{
    const struct {
        const char *text;
        int64_t *id;
    } names[] = {
        {"<|endoftext|>", &ids->end_of_text},     {"<|im_end|>", &ids->end_of_turn},
        {"<|image_pad|>", &ids->image},           {"<|video_pad|>", &ids->video},
        {"<|vision_start|>", &ids->vision_start}, {"<|vision_end|>", &ids->vision_end},
    };
    json_t *token;
    size_t i;
    for (size_t n = 0; n < TD_COUNT(names); n++) {
        *names[n].id = -1;
        json_array_foreach(added, i, token)
        {
            const char *text = json_string_value(json_object_get(token, "content"));
            if (text && strcmp(text, names[n].text) == 0)
                *names[n].id = json_integer_value(json_object_get(token, "id"));
        }
    }
}

static enum td_status write_tokenizer(const struct td_synth *m, struct special_ids *ids,
                                      struct td_error *err)
{
    json_t *tokenizer = NULL;
    enum td_status s = read_text(m, "tokenizer.json", &tokenizer, err);
    if (s != TD_OK)
        return s;
    json_t *vocab = json_object_get(json_object_get(tokenizer, "model"), "vocab");
    json_t *added = json_object_get(tokenizer, "added_tokens");
    if (!json_is_object(vocab) || !json_is_array(added)) {
        s = bad_tokenizer(m, err, "it lacks model.vocab or added_tokens");
    } else if (ids_needed(vocab, added) <= m->vocab) {
        s = copy_file(m, "tokenizer.json", err);
        if (s == TD_OK)
            s = copy_file(m, "tokenizer_config.json", err);
    } else if (BYTE_TOKENS + (int64_t)json_array_size(added) > m->vocab) {
        td_error_set(err, TD_E_USAGE, "--vocab %lld is too small", (long long)m->vocab);
        td_error_why(err, "256 bytes and %lld added tokens need an id each",
                     (long long)json_array_size(added));
        td_error_fix(err, "give a larger --vocab or another --tokenizer");
        s = TD_E_USAGE;
    } else {
        s = cut_down(m, tokenizer, added, err);
    }
    find_ids(added, ids);
    json_decref(tokenizer);
    return s == TD_OK ? copy_file(m, "chat_template.jinja", err) : s;
}

static const char *dtype_word(const struct td_synth *m)
{
    return m->dtype == TD_DTYPE_F32   ? "float32"
           : m->dtype == TD_DTYPE_F16 ? "float16"
                                      : "bfloat16";
}

/* The frequencies' three sections; their sum is half of the rotated width. */
static json_t *rope(struct maker *k, const struct td_synth *m)
{
    json_t *out = json_object(), *sections = json_array();
    int64_t pairs = (int64_t)(m->rotary * (double)m->head_dim) / 2;
    for (int64_t i = 0; i < 3; i++)
        append(k, sections, json_integer(pairs / 3 + (i < pairs % 3)));
    set(k, out, "mrope_interleaved", json_true());
    set(k, out, "mrope_section", sections);
    set(k, out, "partial_rotary_factor", json_real(m->rotary));
    set_int(k, out, "rope_theta", 10000000);
    set_str(k, out, "rope_type", "default");
    return out;
}

static json_t *layer_types(struct maker *k, const struct td_synth *m)
{
    json_t *out = json_array();
    for (const char *t = m->types; *t; t++)
        append(k, out, json_string(*t == 'f' ? "full_attention" : "linear_attention"));
    return out;
}

static void set_feed_forward(struct maker *k, const struct td_synth *m, json_t *c)
{
    if (!m->experts) {
        set_int(k, c, "intermediate_size", m->intermediate);
        return;
    }
    set_int(k, c, "moe_intermediate_size", m->moe);
    set_int(k, c, "num_experts", m->experts);
    set_int(k, c, "num_experts_per_tok", m->top_k);
    set_int(k, c, "shared_expert_intermediate_size", m->shared);
    set(k, c, "output_router_logits", json_false());
    set(k, c, "mlp_only_layers", json_array());
}

/* The keys that describe the text model, into c. */
static void set_text_config(struct maker *k, const struct td_synth *m,
                            const struct special_ids *ids, json_t *c)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"full_attention_interval", m->interval},
        {"head_dim", m->head_dim},
        {"hidden_size", m->hidden},
        {"linear_conv_kernel_dim", m->conv},
        {"linear_key_head_dim", m->key_dim},
        {"linear_num_key_heads", m->key_heads},
        {"linear_num_value_heads", m->value_heads},
        {"linear_value_head_dim", m->value_dim},
        {"max_position_embeddings", m->max_position},
        {"mtp_num_hidden_layers", m->mtp},
        {"num_attention_heads", m->heads},
        {"num_hidden_layers", m->layers},
        {"num_key_value_heads", m->kv_heads},
        {"vocab_size", m->vocab},
    };
    for (size_t i = 0; i < TD_COUNT(sizes); i++)
        set_int(k, c, sizes[i].key, sizes[i].value);
    set_feed_forward(k, m, c);
    set_str(k, c, "model_type", m->experts ? "qwen3_5_moe_text" : "qwen3_5_text");
    set_str(k, c, "dtype", dtype_word(m));
    set_str(k, c, "hidden_act", "silu");
    set_str(k, c, "mamba_ssm_dtype", "float32");
    set(k, c, "layer_types", layer_types(k, m));
    set(k, c, "rope_parameters", rope(k, m));
    set(k, c, "partial_rotary_factor", json_real(m->rotary));
    set(k, c, "rms_norm_eps", json_real(1e-6));
    set(k, c, "attention_bias", json_false());
    set(k, c, "attention_dropout", json_real(0));
    set(k, c, "attn_output_gate", json_true());
    set(k, c, "mtp_use_dedicated_embeddings", json_false());
    set(k, c, "tie_word_embeddings", json_boolean(m->tied));
    set(k, c, "use_cache", json_true());
    set(k, c, "eos_token_id",
        ids->end_of_text < 0 ? json_null() : json_integer(ids->end_of_text));
}

static void set_skipped(struct maker *k, json_t *names, const char *prefix,
                        const char *const *parts)
{
    for (; *parts; parts++) {
        char name[160];
        (void)snprintf(name, sizeof(name), "%s%s", prefix, *parts);
        append(k, names, json_string(name));
    }
}

/* The FP8 format, and the modules that are not in it. */
static json_t *quantization(struct maker *k, const struct td_synth *m)
{
    static const char *const linear[] = {"linear_attn.conv1d", "linear_attn.in_proj_a",
                                         "linear_attn.in_proj_b", NULL};
    static const char *const router[] = {"mlp.gate", "mlp.shared_expert_gate", NULL};
    static const char *const draft[] = {"mtp.fc", NULL};
    json_t *out = json_object(), *names = json_array();
    const char *root = m->nested ? "model.language_model." : "model.";
    char prefix[96];
    const char *const whole[] = {"embed_tokens", NULL}, *const head[] = {"lm_head",
                                                                         NULL};
    set_skipped(k, names, "", head);
    set_skipped(k, names, root, whole);
    for (int64_t i = 0; i < m->layers; i++) {
        (void)snprintf(prefix, sizeof(prefix), "%slayers.%lld.", root, (long long)i);
        if (m->types[i] == 'l')
            set_skipped(k, names, prefix, linear);
        if (m->experts)
            set_skipped(k, names, prefix, router);
    }
    if (m->mtp)
        set_skipped(k, names, "", draft);
    if (m->mtp && m->experts)
        set_skipped(k, names, "mtp.layers.0.", router);
    set_str(k, out, "activation_scheme", "dynamic");
    set_str(k, out, "fmt", "e4m3");
    set_str(k, out, "quant_method", "fp8");
    set(k, out, "modules_to_not_convert", names);
    set(k, out, "weight_block_size", json_pack("[ii]", TD_SYNTH_BLOCK, TD_SYNTH_BLOCK));
    return out;
}

static json_t *vision_config(struct maker *k, const struct td_synth *m)
{
    json_t *out = json_object();
    set_str(k, out, "model_type", m->experts ? "qwen3_5_moe_vision" : "qwen3_5_vision");
    set_int(k, out, "depth", m->vision_layers);
    set_int(k, out, "hidden_size", m->vision_hidden);
    set_int(k, out, "intermediate_size", m->vision_hidden * 269 / 72);
    set_int(k, out, "num_heads", 8);
    set_int(k, out, "out_hidden_size", m->hidden);
    set_int(k, out, "num_position_embeddings", 2304);
    return out;
}

static enum td_status write_config(const struct td_synth *m,
                                   const struct special_ids *ids, struct td_error *err)
{
    struct maker k = {false};
    json_t *c = json_object(), *text = c, *classes = json_array();
    const char *kind = m->experts ? "Qwen3_5Moe" : "Qwen3_5";
    char class[64];
    (void)snprintf(class, sizeof(class), "%sFor%s", kind,
                   m->nested ? "ConditionalGeneration" : "CausalLM");
    append(&k, classes, json_string(class));
    set(&k, c, "architectures", classes);
    if (m->nested) {
        text = json_object();
        set_str(&k, c, "model_type", m->experts ? "qwen3_5_moe" : "qwen3_5");
        set_str(&k, c, "dtype", dtype_word(m));
        set(&k, c, "tie_word_embeddings", json_boolean(m->tied));
        set_int(&k, c, "image_token_id", ids->image);
        set_int(&k, c, "video_token_id", ids->video);
        set_int(&k, c, "vision_start_token_id", ids->vision_start);
        set_int(&k, c, "vision_end_token_id", ids->vision_end);
        if (m->vision_layers)
            set(&k, c, "vision_config", vision_config(&k, m));
        set(&k, c, "text_config", text);
    }
    set_text_config(&k, m, ids, text);
    if (m->dtype == TD_DTYPE_F8_E4M3)
        set(&k, c, "quantization_config", quantization(&k, m));
    enum td_status s = k.failed
                           ? td_error_set(err, TD_E_NOMEM, "no memory for config.json")
                           : dump(m, "config.json", c, err);
    json_decref(c);
    return s;
}

static enum td_status write_generation(const struct td_synth *m,
                                       const struct special_ids *ids,
                                       struct td_error *err)
{
    struct maker k = {false};
    json_t *c = json_object(), *stops = json_array();
    if (ids->end_of_turn >= 0)
        append(&k, stops, json_integer(ids->end_of_turn));
    if (ids->end_of_text >= 0)
        append(&k, stops, json_integer(ids->end_of_text));
    set(&k, c, "do_sample", json_true());
    set(&k, c, "eos_token_id", stops);
    if (ids->end_of_text >= 0)
        set_int(&k, c, "pad_token_id", ids->end_of_text);
    set(&k, c, "temperature", json_real(1.0));
    set_int(&k, c, "top_k", 20);
    set(&k, c, "top_p", json_real(0.95));
    enum td_status s =
        k.failed ? td_error_set(err, TD_E_NOMEM, "no memory for a configuration")
                 : dump(m, "generation_config.json", c, err);
    json_decref(c);
    return s;
}

enum td_status td_synth_write_texts(const struct td_synth *m, struct td_error *err)
{
    struct special_ids ids;
    enum td_status s = write_tokenizer(m, &ids, err);
    if (s == TD_OK && m->generation)
        s = write_generation(m, &ids, err);
    return s == TD_OK ? write_config(m, &ids, err) : s;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json: published sizes, both layouts, both spellings, and everything that must be
 * refused, by name.
 */
#include "ckpt.h"

#include <jansson.h>

#include "base/mem.h"
#include "model/config.h"

#define BASE         "tests/cases/config/qwen3.5-35b-a3b-fp8.json"
#define DENSE        "tests/cases/config/qwen3.5-4b.json"
#define PUBLISHED(n) "tests/cases/config/qwen3.5-" n ".json"

static enum td_status parse_json(const json_t *root, struct td_config *c,
                                 struct td_error *err)
{
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    td_error_init(err);
    memset(c, 0x55, sizeof(*c));
    enum td_status s = td_config_parse(text, strlen(text), "config.json", c, err);
    free(text);
    return s;
}

/* Sets a value ("-" removes it) at a path such as "text_config/hidden_size". */
static void put(json_t *root, const char *path, const char *value)
{
    char key[128];
    json_t *at = root;
    const char *slash;
    while ((slash = strchr(path, '/')) != NULL) {
        (void)snprintf(key, sizeof(key), "%.*s", (int)(slash - path), path);
        at = json_object_get(at, key);
        path = slash + 1;
    }
    assert_non_null(at);
    if (strcmp(value, "-") == 0) {
        (void)json_object_del(at, path);
        return;
    }
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    assert_int_equal(json_object_set_new(at, path, v), 0);
}

static json_t *base(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static void published(void **state)
{
    static const struct {
        const char *file;
        int hidden, layers, heads, kv, value_heads, experts, top_k, ffn;
        bool tied;
    } list[] = {
        {PUBLISHED("0.8b"), 1024, 24, 8, 2, 16, 0, 0, 3584, true},
        {PUBLISHED("2b"), 2048, 24, 8, 2, 16, 0, 0, 6144, true},
        {PUBLISHED("4b"), 2560, 32, 16, 4, 32, 0, 0, 9216, true},
        {PUBLISHED("9b"), 4096, 32, 16, 4, 32, 0, 0, 12288, false},
        {PUBLISHED("27b"), 5120, 64, 24, 4, 48, 0, 0, 17408, false},
        {PUBLISHED("35b-a3b"), 2048, 40, 16, 2, 32, 256, 8, 512, false},
        {PUBLISHED("122b-a10b"), 3072, 48, 32, 2, 64, 256, 8, 1024, false},
        {PUBLISHED("397b-a17b"), 4096, 60, 32, 2, 64, 512, 10, 1024, false},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_config c;
        struct td_error err;
        json_t *root = base(list[i].file);
        assert_int_equal(parse_json(root, &c, &err), TD_OK);
        json_decref(root);
        bool moe = list[i].experts > 0;
        assert_int_equal(c.family, moe ? TD_FAMILY_QWEN35_MOE : TD_FAMILY_QWEN35);
        assert_int_equal(c.hidden, list[i].hidden);
        assert_int_equal(c.n_layers, list[i].layers);
        assert_int_equal(c.n_full, list[i].layers / 4);
        assert_int_equal(c.n_gdn, list[i].layers - list[i].layers / 4);
        assert_int_equal(c.layers[3], TD_LAYER_FULL);
        assert_int_equal(c.layers[4], TD_LAYER_GDN);
        assert_int_equal(c.n_heads, list[i].heads);
        assert_int_equal(c.n_kv_heads, list[i].kv);
        assert_int_equal(c.n_value_heads, list[i].value_heads);
        assert_int_equal(c.n_experts, list[i].experts);
        assert_int_equal(c.top_k, list[i].top_k);
        assert_int_equal(moe ? c.moe_ffn : c.ffn, list[i].ffn);
        assert_int_equal(c.tied, list[i].tied);
        assert_int_equal(c.rotary_dim, 64);
        assert_int_equal(c.head_dim, 256);
        assert_int_equal(c.vocab, 248320);
        assert_int_equal(c.max_positions, 262144);
        assert_int_equal(c.mtp_layers, 1);
        assert_true(c.rope_theta == 1e7);
        assert_true(c.eps == 1e-6);
        assert_int_equal(c.quant, TD_QUANT_NONE);
        assert_int_equal(c.n_eos, 1);
        assert_int_equal(c.eos[0], 248044);
        assert_string_equal(c.prefix, "model.language_model.");
    }
}

/* Caches and states against the family's published figures. */
static void cache_sizes(void **state)
{
    static const struct {
        const char *file;
        int64_t kv, recurrent, conv;
    } list[] = {
        {PUBLISHED("35b-a3b"), 20480, 62914560, 1474560},
        {PUBLISHED("122b-a10b"), 24576, 150994944, 2654208},
        {PUBLISHED("397b-a17b"), 30720, 188743680, 3317760},
        {PUBLISHED("27b"), 65536, 150994944, 2949120},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_config c;
        struct td_error err;
        json_t *root = base(list[i].file);
        assert_int_equal(parse_json(root, &c, &err), TD_OK);
        json_decref(root);
        assert_int_equal(td_config_kv_bytes(&c, 2), list[i].kv);
        assert_int_equal(td_config_state_bytes(&c), list[i].recurrent);
        assert_int_equal(td_config_conv_bytes(&c, 2), list[i].conv);
    }
}

/* The same numbers from a flat file and from the older rotary spelling. */
static void other_spellings(void **state)
{
    struct td_config nested, flat;
    struct td_error err;
    (void)state;
    json_t *root = base(BASE);
    assert_int_equal(parse_json(root, &nested, &err), TD_OK);
    assert_int_equal(nested.quant, TD_QUANT_FP8);
    assert_int_equal(nested.block_rows, 128);
    json_t *text = json_deep_copy(json_object_get(root, "text_config"));
    put(text, "architectures", "[\"Qwen3_5MoeForCausalLM\"]");
    put(text, "rope_parameters", "-");
    put(text, "rope_scaling", "{\"type\":\"mrope\",\"mrope_section\":[]}");
    put(text, "rope_theta", "1e7");
    put(text, "partial_rotary_factor", "0.25");
    put(text, "dtype", "-");
    put(text, "torch_dtype", "\"bfloat16\"");
    put(text, "eos_token_id", "[248044, 248046]");
    assert_int_equal(json_object_set(text, "quantization_config",
                                     json_object_get(root, "quantization_config")),
                     0);
    assert_int_equal(parse_json(text, &flat, &err), TD_OK);
    assert_string_equal(flat.prefix, "model.");
    assert_int_equal(flat.n_eos, 2);
    assert_int_equal(flat.rotary_dim, nested.rotary_dim);
    assert_true(flat.rope_theta == nested.rope_theta);
    assert_int_equal(flat.hidden, nested.hidden);
    assert_int_equal(flat.quant, nested.quant);
    assert_memory_equal(flat.layers, nested.layers, sizeof(flat.layers));
    json_decref(text);
    /* layer_types beat the interval; the outer tie beats the inner */
    put(root, "text_config/num_hidden_layers", "3");
    put(root, "text_config/layer_types",
        "[\"full_attention\",\"linear_attention\",\"full_attention\"]");
    put(root, "tie_word_embeddings", "true");
    put(root, "text_config/mtp_num_hidden_layers", "-");
    assert_int_equal(parse_json(root, &nested, &err), TD_OK);
    assert_int_equal(nested.n_full, 2);
    assert_int_equal(nested.layers[0], TD_LAYER_FULL);
    assert_int_equal(nested.layers[1], TD_LAYER_GDN);
    assert_true(nested.tied);
    assert_int_equal(nested.mtp_layers, 0);
    json_decref(root);
}

static const struct {
    const char *path, *value;
    enum td_status code;
    const char *says;
} refusals[] = {
    /* what it is */
    {"architectures", "[\"LlamaForCausalLM\"]", TD_E_UNSUPPORTED, "LlamaForCausalLM"},
    {"architectures", "[\"Qwen3NextForCausalLM\"]", TD_E_UNSUPPORTED, "Qwen3Next"},
    {"architectures", "[\"Qwen3_5ForCausalLM\"]", TD_E_CONFIG, "model_type"},
    {"architectures", "-", TD_OK, NULL},
    {"text_config/model_type", "\"gemma3_text\"", TD_E_CONFIG, "gemma3_text"},
    {"text_config/model_type", "7", TD_E_CONFIG, "a string"},
    {"text_config", "-", TD_E_CONFIG, "is missing"},
    {"text_config/dtype", "\"float64\"", TD_E_UNSUPPORTED, "float64"},
    /* quantizations */
    {"quantization_config/quant_method", "\"gptq\"", TD_E_UNSUPPORTED, "\"gptq\""},
    {"quantization_config/quant_method", "\"awq\"", TD_E_UNSUPPORTED, "\"awq\""},
    {"quantization_config/quant_method", "\"bitsandbytes\"", TD_E_UNSUPPORTED,
     "bitsandbytes"},
    {"quantization_config/quant_method", "\"compressed-tensors\"", TD_E_UNSUPPORTED,
     "compressed-tensors"},
    {"quantization_config/quant_method", "\"mxfp4\"", TD_E_UNSUPPORTED, "mxfp4"},
    {"quantization_config", "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}",
     TD_E_UNSUPPORTED, "modelopt NVFP4"},
    {"quantization_config", "{\"quant_algo\":\"NVFP4\"}", TD_E_UNSUPPORTED, "NVFP4"},
    {"quantization_config", "{}", TD_E_UNSUPPORTED, "unnamed"},
    {"quantization_config", "null", TD_OK, NULL},
    {"quantization_config", "\"awq\"", TD_E_CONFIG, "is \"awq\", expected an object"},
    {"quantization_config/weight_block_size",
     "[100000,100000,100000,100000,100000,100000,100000,100000]", TD_E_UNSUPPORTED,
     "of another shape"},
    {"quantization_config/fmt", "\"e5m2\"", TD_E_UNSUPPORTED, "e5m2"},
    {"quantization_config/activation_scheme", "\"static\"", TD_E_UNSUPPORTED, "static"},
    {"quantization_config/weight_block_size", "[64, 128]", TD_E_UNSUPPORTED, "64"},
    {"quantization_config/weight_block_size", "[128]", TD_E_UNSUPPORTED, "128"},
    {"quantization_config/weight_block_size", "null", TD_E_UNSUPPORTED,
     "weight_block_size"},
    /* what is computed in one way only */
    {"text_config/hidden_act", "\"gelu\"", TD_E_UNSUPPORTED, "gelu"},
    {"text_config/attention_bias", "true", TD_E_UNSUPPORTED, "attention_bias"},
    {"text_config/attn_output_gate", "false", TD_E_UNSUPPORTED, "attn_output_gate"},
    {"text_config/norm_topk_prob", "false", TD_E_UNSUPPORTED, "norm_topk_prob"},
    {"text_config/mtp_use_dedicated_embeddings", "true", TD_E_UNSUPPORTED,
     "mtp_use_dedicated_embeddings"},
    {"text_config/output_gate_type", "\"sigmoid\"", TD_E_UNSUPPORTED, "sigmoid"},
    {"text_config/output_gate_type", "\"swish\"", TD_OK, NULL},
    {"text_config/mlp_only_layers", "[1]", TD_E_UNSUPPORTED, "mlp_only_layers"},
    {"text_config/rope_parameters",
     "{\"rope_type\":\"yarn\",\"factor\":4,\"rope_theta\":1e7}", TD_E_UNSUPPORTED,
     "yarn"},
    {"text_config/rope_parameters/rope_type", "\"linear\"", TD_E_UNSUPPORTED, "linear"},
    /* numbers */
    {"text_config/hidden_size", "-", TD_E_CONFIG, "hidden_size"},
    {"text_config/hidden_size", "\"2048\"", TD_E_CONFIG, "\"2048\""},
    {"text_config/hidden_size", "0", TD_E_CONFIG, "from 1 to 65536"},
    {"text_config/hidden_size", "-4", TD_E_CONFIG, "hidden_size"},
    {"text_config/hidden_size", "2048.5", TD_E_CONFIG, "2048.5"},
    {"text_config/hidden_size", "9223372036854775807", TD_E_CONFIG, "hidden_size"},
    {"text_config/hidden_size", "[1]", TD_E_CONFIG, "hidden_size"},
    {"text_config/num_hidden_layers", "100000", TD_E_CONFIG, "num_hidden_layers"},
    {"text_config/num_attention_heads", "15", TD_E_CONFIG, "multiple of"},
    {"text_config/num_key_value_heads", "3", TD_E_CONFIG, "num_key_value_heads"},
    {"text_config/linear_num_value_heads", "24", TD_E_CONFIG, "linear_num_key_heads"},
    {"text_config/num_experts_per_tok", "300", TD_E_CONFIG, "num_experts_per_tok"},
    {"text_config/num_experts", "4", TD_E_CONFIG, "at most \"num_experts\" (4)"},
    {"text_config/vocab_size", "-", TD_E_CONFIG, "vocab_size"},
    {"text_config/rms_norm_eps", "2", TD_E_CONFIG, "rms_norm_eps"},
    {"text_config/rope_parameters/rope_theta", "-", TD_E_CONFIG, "rope_theta"},
    {"text_config/rope_parameters/rope_theta", "0.5", TD_E_CONFIG, "rope_theta"},
    {"text_config/rope_parameters/partial_rotary_factor", "0.004", TD_E_CONFIG,
     "expected an even number"},
    {"text_config/rope_parameters/partial_rotary_factor", "1.5", TD_E_CONFIG, "1.5"},
    {"text_config/head_dim", "2000", TD_E_CONFIG, "head_dim"},
    {"text_config/linear_conv_kernel_dim", "1", TD_E_CONFIG, "linear_conv_kernel_dim"},
    {"text_config/layer_types", "[\"full_attention\"]", TD_E_CONFIG, "1 entries"},
    {"text_config/layer_types", "\"full_attention\"", TD_E_CONFIG, "an array"},
    {"text_config/full_attention_interval", "0", TD_E_CONFIG,
     "full_attention_interval"},
    {"text_config/eos_token_id", "248320", TD_E_CONFIG,
     "\"eos_token_id\" is 248320, expected an id or up to 16 ids from 0 to 248319"},
    {"text_config/eos_token_id", "[1,\"a\"]", TD_E_CONFIG, "eos_token_id"},
    {"text_config/eos_token_id", "null", TD_OK, NULL},
    {"text_config/tie_word_embeddings", "1", TD_E_CONFIG, "true or false"},
    {"tie_word_embeddings", "\"no\"", TD_E_CONFIG, "true or false"},
};

static void refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < TD_COUNT(refusals); i++) {
        struct td_config c;
        struct td_error err;
        json_t *root = base(BASE);
        put(root, refusals[i].path, refusals[i].value);
        enum td_status s = parse_json(root, &c, &err);
        json_decref(root);
        if (refusals[i].code != TD_OK) {
            check_error(&err, refusals[i].code, refusals[i].says);
            assert_non_null(strstr(err.what, "config.json"));
        }
        if (s != refusals[i].code)
            fail_msg("%s = %s: %s", refusals[i].path, refusals[i].value, err.what);
    }
}

static void bad_layer_type(void **state)
{
    struct td_config c;
    struct td_error err;
    json_t *root = base(DENSE);
    (void)state;
    put(root, "text_config/num_hidden_layers", "2");
    put(root, "text_config/layer_types", "[\"full_attention\",\"sliding_attention\"]");
    assert_int_equal(parse_json(root, &c, &err), TD_E_CONFIG);
    check_error(&err, TD_E_CONFIG, "sliding_attention");
    put(root, "text_config/layer_types", "[\"full_attention\",5]");
    assert_int_equal(parse_json(root, &c, &err), TD_E_CONFIG);
    json_decref(root);
}

static void not_json(void **state)
{
    static const char *const texts[] = {"",    "{", "[]", "3", "{\"a\":1,\"a\":2}",
                                        "null"};
    struct td_config c;
    struct td_error err;
    (void)state;
    for (size_t i = 0; i < TD_COUNT(texts); i++) {
        td_error_init(&err);
        assert_int_not_equal(
            td_config_parse(texts[i], strlen(texts[i]), "config.json", &c, &err),
            TD_OK);
        check_error(&err, err.code, "config.json");
    }
}

static void model_arguments(void **state)
{
    static const struct {
        const char *model;
        enum td_status code;
        const char *fix;
    } list[] = {
        {"models/lexicon", TD_OK, NULL},
        {"Qwen/Qwen3.5-122B-A10B-FP8", TD_E_HUB_ID,
         "hf download Qwen/Qwen3.5-122B-A10B-FP8 --local-dir Qwen3.5-122B-A10B-FP8"},
        {"https://huggingface.co/Qwen/Qwen3.5-4B", TD_E_HUB_ID,
         "hf download Qwen/Qwen3.5-4B "},
        {"models/lexicom", TD_E_NOT_FOUND, NULL},
        {"/no/such/model", TD_E_NOT_FOUND, NULL},
        {"no-such-model", TD_E_NOT_FOUND, NULL},
        {"a/b/c", TD_E_NOT_FOUND, NULL},
        {"../x", TD_E_NOT_FOUND, NULL},
        {"a/b c", TD_E_NOT_FOUND, NULL},
        {"", TD_E_NOT_FOUND, NULL},
        {"models/lexicon/config.json", TD_E_NOT_FOUND, "config.json"},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_error err;
        td_error_init(&err);
        assert_int_equal(td_model_arg_check(list[i].model, &err), list[i].code);
        if (list[i].code != TD_OK)
            check_error(&err, list[i].code, NULL);
        if (list[i].fix)
            assert_non_null(strstr(err.fix, list[i].fix));
    }
}

static void directories(void **state)
{
    struct ckpt c;
    struct td_config cfg;
    struct td_error err;
    char path[512];
    (void)state;
    ckpt_init(&c);
    td_error_init(&err);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_E_NOT_FOUND);
    check_error(&err, TD_E_NOT_FOUND, "has no config.json");
    /* a link into a cache that was not copied along is not taken for no file */
    ckpt_path(&c, "config.json", path);
    assert_int_equal(symlink("/no/such/blob", path), 0);
    td_error_init(&err);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_E_NOT_FOUND);
    assert_non_null(strstr(err.why, "link to /no/such/blob"));
    td_error_init(&err);
    assert_int_equal(td_config_read(path, &cfg, &err), TD_E_NOT_FOUND);
    assert_non_null(strstr(err.why, "link to /no/such/blob"));
    assert_int_equal(unlink(path), 0);
    ckpt_text(&c, "m.gguf", "GGUF");
    td_error_init(&err);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_E_UNSUPPORTED);
    check_error(&err, TD_E_UNSUPPORTED, "GGUF");
    ckpt_path(&c, "m.gguf", path);
    td_error_init(&err);
    assert_int_equal(td_config_read(path, &cfg, &err), TD_E_UNSUPPORTED);
    ckpt_text(&c, "config.json", "version https://git-lfs.github.com/spec/v1");
    td_error_init(&err);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_E_LFS_POINTER);
    json_t *root = base(DENSE);
    ckpt_path(&c, "config.json", path);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    td_error_init(&err);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_OK);
    ckpt_text(&c, "hf_quant_config.json", "{}");
    td_error_init(&err);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_E_UNSUPPORTED);
    check_error(&err, TD_E_UNSUPPORTED, "ModelOpt");
    ckpt_release(&c);
}

static void generation_defaults(void **state)
{
    struct td_config cfg;
    struct td_error err;
    struct td_generation_defaults g;
    (void)state;
    td_error_init(&err);
    assert_int_equal(td_config_read("models/lexicon", &cfg, &err), TD_OK);
    assert_int_equal(td_generation_defaults_read("models/lexicon", &cfg, &g, &err),
                     TD_OK);
    assert_false(g.do_sample);
    assert_int_equal(g.n_eos, 2); /* of both files */
    assert_int_equal(g.eos[0], 8166);
    assert_int_equal(g.eos[1], 8168);
    /* a missing file */
    struct ckpt c;
    ckpt_init(&c);
    assert_int_equal(td_generation_defaults_read(c.dir, &cfg, &g, &err), TD_OK);
    ckpt_release(&c);
    assert_true(g.do_sample && g.temperature == 1.0 && g.top_p == 1.0);
    assert_true(g.min_p == 0.0 && g.repetition_penalty == 1.0 && g.top_k == 0);
    assert_int_equal(g.n_eos, 1);
    static const char all[] =
        "{\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,"
        "\"min_p\":0.05,\"repetition_penalty\":1.1,\"eos_token_id\":7}";
    assert_int_equal(
        td_generation_defaults_parse(all, sizeof(all) - 1, "g", &cfg, &g, &err), TD_OK);
    assert_true(g.temperature == 0.6 && g.top_k == 20 && g.top_p == 0.95);
    assert_true(g.min_p == 0.05 && g.repetition_penalty == 1.1);
    assert_int_equal(g.eos[1], 7);
    static const char *const bad[] = {"{\"temperature\":-1}",    "{\"top_p\":2}",
                                      "{\"temperature\":3}",     "{\"top_p\":0}",
                                      "{\"eos_token_id\":8192}", "{\"top_k\":\"all\"}",
                                      "{\"do_sample\":1}",       "[]"};
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        td_error_init(&err);
        assert_int_equal(
            td_generation_defaults_parse(bad[i], strlen(bad[i]), "g", &cfg, &g, &err),
            TD_E_CONFIG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published),           cmocka_unit_test(cache_sizes),
        cmocka_unit_test(other_spellings),     cmocka_unit_test(refused),
        cmocka_unit_test(bad_layer_type),      cmocka_unit_test(not_json),
        cmocka_unit_test(model_arguments),     cmocka_unit_test(directories),
        cmocka_unit_test(generation_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

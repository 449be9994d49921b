/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and slices: the counts and sizes of published checkpoints, which splits are
 * possible, that the ranks' parts cover each tensor as the split rules say, and that a
 * checkpoint which does not fit its configuration is refused.
 */
#include "ckpt.h"

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "model/names.h"

#define PUBLISHED(n) "tests/cases/config/qwen3.5-" n ".json"

static void read_config(const char *path, struct td_config *c)
{
    struct td_buf b;
    struct td_error err;
    td_error_init(&err);
    td_buf_init(&b, (size_t)TD_MIB);
    assert_int_equal(td_file_read(path, &b, &err), TD_OK);
    assert_int_equal(td_config_parse(b.p, b.len, path, c, &err), TD_OK);
    td_buf_release(&b);
}

static void sum_of(const struct td_config *c, int ranks, bool fused,
                   struct td_names_sum *sum)
{
    struct td_slice slice;
    struct td_name_form form = {fused, fused};
    assert_int_equal(td_slice_make(c, 0, ranks, &slice, NULL), TD_OK);
    td_names_sum(c, &slice, &form, sum);
}

static void published_counts(void **state)
{
    static const struct {
        const char *file;
        bool fused;
        int64_t main, mtp;
    } list[] = {
        {PUBLISHED("35b-a3b-fp8"), false, 62303, 1560},
        {PUBLISHED("122b-a10b-fp8"), false, 76323 - 1560, 1560},
        {PUBLISHED("35b-a3b"), true, 712 - 19, 19},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_config c;
        struct td_names_sum sum;
        read_config(list[i].file, &c);
        sum_of(&c, 1, list[i].fused, &sum);
        assert_int_equal(sum.tensors, list[i].main);
        assert_int_equal(sum.tensors_mtp, list[i].mtp);
    }
}

static void published_parameters(void **state)
{
    static const struct {
        const char *file;
        double main, mtp; /* billions */
    } list[] = {
        {PUBLISHED("0.8b"), 0.752, 0.020},
        {PUBLISHED("2b"), 1.882, 0.061},
        {PUBLISHED("4b"), 4.206, 0.121},
        {PUBLISHED("9b"), 8.954, 0.243},
        {PUBLISHED("27b"), 26.896, 0.425},
        {PUBLISHED("35b-a3b"), 34.661, 0.845},
        {PUBLISHED("122b-a10b"), 122.112, 2.524},
        {PUBLISHED("397b-a17b"), 396.346, 6.596},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_config c;
        struct td_names_sum sum;
        read_config(list[i].file, &c);
        sum_of(&c, 1, true, &sum);
        assert_true((double)sum.params > (list[i].main - 0.0005) * 1e9);
        assert_true((double)sum.params < (list[i].main + 0.0005) * 1e9);
        assert_true((double)sum.params_mtp > (list[i].mtp - 0.0005) * 1e9);
        assert_true((double)sum.params_mtp < (list[i].mtp + 0.0005) * 1e9);
    }
}

static void published_bytes(void **state)
{
    static const struct {
        const char *file;
        int ranks;
        int64_t main, mtp;
    } list[] = {
        {PUBLISHED("122b-a10b-fp8"), 1, 123706066944, 2543664640},
        {PUBLISHED("122b-a10b-fp8"), 2, 61891243008, 1291512064},
        {PUBLISHED("122b-a10b-fp8"), 4, 30993269376, 666222304},
        {PUBLISHED("35b-a3b-fp8"), 1, 35707988096, 853668480},
        {PUBLISHED("35b-a3b-fp8"), 2, 17875226176, 435759936},
        {PUBLISHED("35b-a3b-fp8"), 4, 8964088736, 227330016},
        {PUBLISHED("27b-fp8"), 1, 29468020224, 0},
        {PUBLISHED("27b-fp8"), 2, 14734691072, 0},
        {PUBLISHED("27b-fp8"), 4, 7368026496, 0},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_config c;
        struct td_names_sum sum;
        read_config(list[i].file, &c);
        sum_of(&c, list[i].ranks, false, &sum);
        assert_int_equal(sum.bytes, list[i].main);
        if (list[i].mtp)
            assert_int_equal(sum.bytes_mtp, list[i].mtp);
    }
    /* bytes read for a token at batch 1 */
    struct td_config c;
    struct td_names_sum sum;
    read_config(PUBLISHED("122b-a10b-fp8"), &c);
    sum_of(&c, 1, false, &sum);
    assert_true(sum.token_bytes > 9825000000 && sum.token_bytes < 9835000000);
}

static void possible_splits(void **state)
{
    static const struct {
        const char *file;
        bool fp8;
        int ranks[8];
    } list[] = {
        {PUBLISHED("0.8b"), true, {1, 2, 4}},
        {PUBLISHED("2b"), true, {1, 2, 4, 8}},
        {PUBLISHED("4b"), true, {1, 2, 4, 8}},
        {PUBLISHED("9b"), true, {1, 2, 4, 8, 16}},
        {PUBLISHED("27b"), true, {1, 2, 4, 8}},
        {PUBLISHED("35b-a3b"), true, {1, 2, 4}},
        {PUBLISHED("122b-a10b"), true, {1, 2, 4, 8}},
        {PUBLISHED("397b-a17b"), true, {1, 2, 4, 8}},
        {PUBLISHED("35b-a3b"), false, {1, 2, 4, 8, 16}},
        {PUBLISHED("0.8b"), false, {1, 2, 4, 8}},
        {"models/lexicon/config.json", true, {1, 2}},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_config c;
        int found[TD_MAX_RANKS];
        read_config(list[i].file, &c);
        c.quant = list[i].fp8 ? TD_QUANT_FP8 : TD_QUANT_NONE;
        int n = td_split_list(&c, found);
        assert_int_equal(n < 8 ? list[i].ranks[n] : 0, 0);
        for (int k = 0; k < n; k++)
            assert_int_equal(found[k], list[i].ranks[k]);
    }
    struct td_config c;
    struct td_error err;
    read_config(PUBLISHED("122b-a10b-fp8"), &c);
    td_error_init(&err);
    assert_int_equal(td_split_check(&c, 3, &err), TD_E_SPLIT);
    check_error(&err, TD_E_SPLIT, "32 query heads do not divide by 3");
    assert_non_null(strstr(err.fix, "1, 2, 4, 8"));
    td_error_init(&err);
    assert_int_equal(td_split_check(&c, 16, &err), TD_E_SPLIT);
    check_error(&err, TD_E_SPLIT, "blocks of 128");
    td_error_init(&err);
    assert_int_equal(td_split_check(&c, 0, &err), TD_E_SPLIT);
    td_error_init(&err);
    struct td_slice slice;
    assert_int_equal(td_slice_make(&c, 2, 2, &slice, &err), TD_E_SPLIT);
    assert_int_equal(td_slice_make(&c, -1, 2, &slice, &err), TD_E_SPLIT);
}

/* More ranks than key/value heads: consecutive ranks hold the same head. */
static void replicated_kv(void **state)
{
    struct td_config c;
    struct td_slice s;
    (void)state;
    read_config(PUBLISHED("122b-a10b-fp8"), &c);
    for (int rank = 0; rank < 8; rank++) {
        assert_int_equal(td_slice_make(&c, rank, 8, &s, NULL), TD_OK);
        assert_int_equal(s.kv_heads.first, rank / 4);
        assert_int_equal(s.kv_heads.count, 1);
        assert_int_equal(s.heads.first, 4 * rank);
        assert_int_equal(s.key_heads.first, 2 * rank);
        assert_int_equal(s.value_heads.first, 8 * rank);
        assert_int_equal(s.vocab.first, 31040 * rank);
        /* query head h uses key/value head h / 16 */
        assert_int_equal(s.heads.first / 16, s.kv_heads.first);
    }
    c.vocab = 11; /* does not divide */
    int64_t next = 0;
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(td_slice_make(&c, rank, 4, &s, NULL), TD_OK);
        assert_int_equal(s.vocab.first, next);
        next += s.vocab.count;
    }
    assert_int_equal(next, 11);
}

/* ---- on checkpoints ---------------------------------------------------------------- */

static void make(const struct ckpt *c, const char *options)
{
    char command[1024];
    (void)snprintf(command, sizeof(command), "%s %s %s >/dev/null", TD_MAKE_MODEL,
                   options, c->dir);
    assert_int_equal(system(command), 0);
}

struct cover {
    const struct td_model_dir *dir;
    unsigned char **count; /* of each element of each tensor */
};

static enum td_status mark(void *self, const struct td_piece *p, int64_t row0,
                           int64_t n_rows, const void *bytes, struct td_error *err)
{
    const struct cover *c = self;
    (void)bytes;
    (void)err;
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t k = 0; k < p->n_cols; k++)
            c->count[p->tensor][(p->row0 + row0 + i) * p->cols + p->col0 + k]++;
    return TD_OK;
}

/* How many ranks hold an element of a weight: 1, or all of them. */
static int holders(const struct td_weight *w, int ranks)
{
    switch (w->role) {
    case TD_W_K:
    case TD_W_V:
        return ranks > 2 ? ranks / 2 : 1; /* the models here have 2 such heads */
    case TD_W_EMBED:
    case TD_W_LM_HEAD:
    case TD_W_Q:
    case TD_W_O:
    case TD_W_GDN_QKV:
    case TD_W_GDN_Z:
    case TD_W_GDN_A:
    case TD_W_GDN_B:
    case TD_W_GDN_CONV:
    case TD_W_GDN_DT_BIAS:
    case TD_W_GDN_A_LOG:
    case TD_W_GDN_OUT:
    case TD_W_GATE:
    case TD_W_UP:
    case TD_W_DOWN:
    case TD_W_SHARED_GATE:
    case TD_W_SHARED_UP:
    case TD_W_SHARED_DOWN:
    case TD_W_EXPERT_GATE:
    case TD_W_EXPERT_UP:
    case TD_W_EXPERT_DOWN:
        return 1;
    default:
        return ranks;
    }
}

static int64_t load_rank(const struct td_config *cfg, struct cover *c, int rank,
                         int ranks, struct td_weights *w)
{
    struct td_slice slice;
    struct td_error err;
    struct td_load_stats stats;
    td_error_init(&err);
    assert_int_equal(td_slice_make(cfg, rank, ranks, &slice, &err), TD_OK);
    assert_int_equal(td_weights_bind(cfg, c->dir, &slice, TD_UNKNOWN_FAILS, w, &err),
                     TD_OK);
    struct td_piece *pieces = td_calloc(6 * w->count, sizeof(*pieces));
    assert_non_null(pieces);
    size_t n = 0;
    for (size_t i = 0; i < w->count; i++) {
        n += (size_t)td_weight_pieces(&w->w[i], NULL, pieces + n);
        n += (size_t)td_weight_scale_pieces(&w->w[i], NULL, pieces + n);
    }
    /* one thread: marking is not atomic */
    struct td_load_opts opts = {.threads = 1};
    assert_int_equal(td_load(c->dir, pieces, n, &opts, mark, c, &stats, &err), TD_OK);
    assert_int_equal(stats.bytes, w->bytes);
    td_free(pieces);
    return w->bytes;
}

static void check_cover(const char *options, int ranks)
{
    struct ckpt c;
    struct td_config cfg;
    struct td_model_dir dir;
    struct td_error err;
    struct td_weights w;
    td_error_init(&err);
    ckpt_init(&c);
    make(&c, options);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_OK);
    assert_int_equal(td_model_dir_open(c.dir, &dir, &err), TD_OK);
    struct cover cover = {&dir, td_calloc((size_t)dir.n_tensors, sizeof(char *))};
    assert_non_null(cover.count);
    for (int32_t i = 0; i < dir.n_tensors; i++)
        assert_non_null(cover.count[i] = td_calloc((size_t)dir.tensors[i].elements, 1));
    for (int rank = 0; rank < ranks; rank++) {
        load_rank(&cfg, &cover, rank, ranks, &w);
        if (rank + 1 < ranks)
            td_weights_release(&w);
    }
    for (size_t i = 0; i < w.count; i++) {
        const struct td_weight *now = &w.w[i];
        int want = holders(now, ranks);
        const unsigned char *count = cover.count[now->tensor] + now->base * now->cols;
        for (int64_t k = 0; k < now->rows * now->cols; k++)
            if (count[k] != want)
                fail_msg("%s: element %d: %d ranks, expected %d",
                         dir.tensors[now->tensor].name, (int)k, count[k], want);
        if (now->scale >= 0)
            for (int64_t k = 0; k < dir.tensors[now->scale].elements; k++)
                assert_int_equal(cover.count[now->scale][k], want);
    }
    for (int32_t i = 0; i < dir.n_tensors; i++) {
        assert_int_not_equal(w.use[i], TD_USE_UNKNOWN);
        td_free(cover.count[i]);
    }
    td_free(cover.count);
    td_weights_release(&w);
    td_model_dir_release(&dir);
    ckpt_release(&c);
}

#define MOE_TP4                                                                        \
    "--preset tiny-moe --heads 8 --kv-heads 2 --gdn-key-heads 4 --gdn-value-heads 8 "  \
    "--gdn-key-dim 128 --gdn-value-dim 128 --head-dim 128 --moe 512 --shared 512 "     \
    "--vocab 8194 --hidden 256 "

static void every_element_on_its_ranks(void **state)
{
    (void)state;
    check_cover(MOE_TP4 "--mtp", 1);
    check_cover(MOE_TP4 "--mtp --expert-form split", 2);
    check_cover(MOE_TP4 "--mtp --expert-form fused --mtp-expert-form fused", 4);
    check_cover(MOE_TP4 "--mtp --dtype bf16 --shards 3 --vision-layers 1", 4);
    check_cover("--preset tiny-dense --kv-heads 2 --layout flat", 2);
}

static void sliced_qkv(void **state)
{
    struct ckpt c;
    struct td_config cfg;
    struct td_model_dir dir;
    struct td_slice slice;
    struct td_weights w;
    struct td_error err;
    struct td_piece p[3];
    int seen = 0;
    (void)state;
    td_error_init(&err);
    ckpt_init(&c);
    make(&c, MOE_TP4);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_OK);
    assert_int_equal(td_model_dir_open(c.dir, &dir, &err), TD_OK);
    assert_int_equal(td_slice_make(&cfg, 1, 2, &slice, &err), TD_OK);
    assert_int_equal(td_weights_bind(&cfg, &dir, &slice, TD_UNKNOWN_FAILS, &w, &err),
                     TD_OK);
    for (size_t i = 0; i < w.count; i++) {
        if (w.w[i].role != TD_W_GDN_QKV)
            continue;
        seen++;
        assert_int_equal(w.w[i].local_rows, 256 + 256 + 512);
        assert_int_equal(td_weight_pieces(&w.w[i], &c, p), 3);
        assert_int_equal(p[0].row0, 256); /* second half of the query rows */
        assert_int_equal(p[1].row0, 512 + 256);
        assert_int_equal(p[2].row0, 1024 + 512);
        assert_int_equal(p[1].dst_row, 256);
        assert_int_equal(p[2].dst_row, 512);
        assert_ptr_equal(p[2].user, &c);
        assert_int_equal(td_weight_scale_pieces(&w.w[i], &c, p), 3);
        assert_int_equal(p[0].row0, 2);
        assert_int_equal(p[1].row0, 6);
        assert_int_equal(p[2].row0, 12);
        assert_int_equal(p[2].n_rows, 4);
        assert_int_equal(p[2].dst_row, 4);
    }
    assert_true(seen > 0);
    td_weights_release(&w);
    td_model_dir_release(&dir);
    ckpt_release(&c);
}

/* ---- checkpoints that do not fit --------------------------------------------------- */

/* A dense model of one layer, written by hand so that each tensor can be spoilt. */
static const char *const parts[] = {
    "\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[16,8]",
    "\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[8]",
    "\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[16,8]",
    "\"model.layers.0.input_layernorm.weight\":{\"dtype\":\"F32\",\"shape\":[8]",
    "\"model.layers.0.post_attention_layernorm.weight\":{\"dtype\":\"BF16\",\"shape\":"
    "[8]",
    "\"model.layers.0.self_attn.q_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[32,8]",
    "\"model.layers.0.self_attn.k_proj.weight\":{\"dtype\":\"F16\",\"shape\":[8,8]",
    "\"model.layers.0.self_attn.v_proj.weight\":{\"dtype\":\"F32\",\"shape\":[8,8]",
    "\"model.layers.0.self_attn.o_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[8,16]",
    "\"model.layers.0.self_attn.q_norm.weight\":{\"dtype\":\"BF16\",\"shape\":[8]",
    "\"model.layers.0.self_attn.k_norm.weight\":{\"dtype\":\"BF16\",\"shape\":[8]",
    "\"model.layers.0.mlp.gate_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[24,8]",
    "\"model.layers.0.mlp.up_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[24,8]",
    "\"model.layers.0.mlp.down_proj.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[8,24]",
    "\"model.layers.0.mlp.down_proj.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":"
    "[1,1]",
};

static const char hand_config[] =
    "{\"architectures\":[\"Qwen3_5ForCausalLM\"],\"hidden_size\":8,"
    "\"num_hidden_layers\":1,\"layer_types\":[\"full_attention\"],\"vocab_size\":16,"
    "\"max_position_embeddings\":64,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"head_dim\":8,\"linear_num_value_heads\":16,"
    "\"intermediate_size\":24,\"rope_theta\":1e4,\"mtp_num_hidden_layers\":%d,"
    "\"tie_word_embeddings\":%s}";

/* The bytes that an entry's shape and format need. */
static int64_t need(const char *entry)
{
    enum td_dtype dtype = TD_DTYPE_F32;
    const char *name = strstr(entry, "\"dtype\":\"") + 9;
    assert_true(td_dtype_parse(name, strcspn(name, "\""), &dtype));
    int64_t n = td_dtype_bits(dtype) / 8;
    const char *s = strstr(entry, "\"shape\":[") + 8;
    while (*s != ']') {
        char *end = NULL;
        n *= strtol(s + 1, &end, 10);
        s = end;
    }
    return n;
}

static void add_entry(char *header, size_t size, const char *entry, int64_t *at)
{
    size_t len = strlen(header);
    int64_t bytes = need(entry);
    (void)snprintf(header + len, size - len, "%s%s,\"data_offsets\":[%ld,%ld]}",
                   len > 1 ? "," : "", entry, (long)*at, (long)(*at + bytes));
    *at += bytes;
}

struct spoil {
    int part;          /* replaced by `entry`, or left out when that is NULL */
    const char *entry; /* with part -1: added */
    bool tied;
    int mtp;
    enum td_status code;
    const char *says;
};

static void check_spoilt(const struct spoil *x)
{
    struct ckpt c;
    struct td_config cfg;
    struct td_model_dir dir;
    struct td_slice slice;
    struct td_weights w;
    struct td_error err;
    char header[8192] = "{", config[1024];
    int64_t at = 0;
    ckpt_init(&c);
    td_error_init(&err);
    for (int i = 0; i < (int)TD_COUNT(parts); i++)
        if (i != x->part)
            add_entry(header, sizeof(header), parts[i], &at);
    if (x->entry)
        add_entry(header, sizeof(header), x->entry, &at);
    (void)strncat(header, "}", sizeof(header) - strlen(header) - 1);
    ckpt_file(&c, "model.safetensors", header, at);
    (void)snprintf(config, sizeof(config), hand_config, x->mtp,
                   x->tied ? "true" : "false");
    ckpt_text(&c, "config.json", config);
    assert_int_equal(td_config_read(c.dir, &cfg, &err), TD_OK);
    if (td_model_dir_open(c.dir, &dir, &err) != TD_OK)
        fail_msg("%s", err.what);
    assert_int_equal(td_slice_make(&cfg, 0, 1, &slice, &err), TD_OK);
    enum td_status s = td_weights_bind(&cfg, &dir, &slice, TD_UNKNOWN_FAILS, &w, &err);
    if (s == TD_OK)
        td_weights_release(&w);
    else
        check_error(&err, x->code, x->says);
    if (s != x->code)
        fail_msg("%s: %s", x->entry ? x->entry : parts[x->part], err.what);
    td_model_dir_release(&dir);
    ckpt_release(&c);
}

static void checkpoints_that_do_not_fit(void **state)
{
    static const struct spoil list[] = {
        {.part = -1},
        {.part = 1, .code = TD_E_TENSOR, .says = "model.norm.weight is missing"},
        {.part = 13, .code = TD_E_TENSOR, .says = "mlp.down_proj.weight is missing"},
        {.part = 14, .code = TD_E_TENSOR, .says = "weight_scale_inv is missing"},
        {.part = 2, .code = TD_E_TENSOR, .says = "lm_head.weight is missing"},
        {.part = 2, .tied = true},
        {.part = -1, .tied = true}, /* the head is skipped */
        {.part = -1, .mtp = 1},     /* a draft head that was left out */
        {.part = 5,
         .entry =
             "\"model.layers.0.self_attn.q_proj.weight\":{\"dtype\":\"BF16\",\"shape\":"
             "[16,8]",
         .code = TD_E_TENSOR,
         .says = "has the shape [16, 8], expected [32, 8]"},
        {.part = 5,
         .entry =
             "\"model.layers.0.self_attn.q_proj.weight\":{\"dtype\":\"BF16\",\"shape\":"
             "[8,32]",
         .code = TD_E_TENSOR,
         .says = "expected [32, 8]"},
        {.part = 1,
         .entry = "\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[1,8]",
         .code = TD_E_TENSOR,
         .says = "[1, 8], expected [8]"},
        {.part = 1,
         .entry = "\"model.norm.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[8]",
         .code = TD_E_TENSOR,
         .says = "is F8_E4M3, expected BF16, F16 or F32"},
        {.part = 5,
         .entry =
             "\"model.layers.0.self_attn.q_proj.weight\":{\"dtype\":\"I8\",\"shape\":"
             "[32,8]",
         .code = TD_E_TENSOR,
         .says = "is I8"},
        {.part = 14,
         .entry =
             "\"model.layers.0.mlp.down_proj.weight_scale_inv\":{\"dtype\":\"F32\","
             "\"shape\":[2,1]",
         .code = TD_E_TENSOR,
         .says = "expected [1, 1]"},
        {.part = 14,
         .entry =
             "\"model.layers.0.mlp.down_proj.weight_scale_inv\":{\"dtype\":\"F8_E8M0\","
             "\"shape\":[1,1]",
         .code = TD_E_TENSOR,
         .says = "expected BF16 or F32"},
        {.part = -1,
         .entry = "\"model.layers.0.mlp.up_proj.weight_scale_inv\":{\"dtype\":\"F32\","
                  "\"shape\":[1,1]",
         .code = TD_E_TENSOR,
         .says = "no part of the model"},
        {.part = -1,
         .entry = "\"model.layers.1.input_layernorm.weight\":{\"dtype\":\"F32\","
                  "\"shape\":[8]",
         .code = TD_E_TENSOR,
         .says = "model.layers.1.input_layernorm.weight"},
        {.part = -1,
         .entry = "\"model.visual.pos_embed.weight\":{\"dtype\":\"F32\",\"shape\":[8]"},
        {.part = -1, .entry = "\"mtp.fc.weight\":{\"dtype\":\"F32\",\"shape\":[8,16]"},
        {.part = -1,
         .entry = "\"mtp.fc.weight\":{\"dtype\":\"F32\",\"shape\":[8,16]",
         .mtp = 1,
         .code = TD_E_TENSOR,
         .says = "mtp.pre_fc_norm_embedding.weight is missing"},
        {.part = -1,
         .entry =
             "\"model.layers.0.mlp.up_proj.weight_scale\":{\"dtype\":\"F32\",\"shape\":"
             "[1]",
         .code = TD_E_UNSUPPORTED,
         .says = "ModelOpt"},
        {.part = -1,
         .entry =
             "\"model.layers.0.mlp.up_proj.weight_packed\":{\"dtype\":\"U8\",\"shape\":"
             "[1]",
         .code = TD_E_UNSUPPORTED,
         .says = "compressed-tensors"},
        {.part = -1,
         .entry = "\"model.layers.0.mlp.up_proj.weight_scale_2\":{\"dtype\":\"F32\","
                  "\"shape\":[1]",
         .code = TD_E_UNSUPPORTED,
         .says = "NVFP4"},
        {.part = -1,
         .entry =
             "\"model.layers.0.mlp.up_proj.qweight\":{\"dtype\":\"I32\",\"shape\":[1]",
         .code = TD_E_UNSUPPORTED,
         .says = "GPTQ"},
        {.part = -1,
         .entry =
             "\"model.layers.0.mlp.up_proj.weight.absmax\":{\"dtype\":\"U8\",\"shape\":"
             "[1]",
         .code = TD_E_UNSUPPORTED,
         .says = "bitsandbytes"},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++)
        check_spoilt(&list[i]);
}

static void failing_allocations(void **state)
{
    struct td_config cfg;
    struct td_model_dir dir;
    struct td_slice slice;
    struct td_weights w;
    struct td_error err;
    long n = 1;
    (void)state;
    td_error_init(&err);
    assert_int_equal(td_config_read("models/lexicon", &cfg, &err), TD_OK);
    assert_int_equal(td_model_dir_open("models/lexicon", &dir, &err), TD_OK);
    assert_int_equal(td_slice_make(&cfg, 0, 2, &slice, &err), TD_OK);
    for (;; n++) {
        td_error_init(&err);
        td_mem_fail_at(n);
        enum td_status s =
            td_weights_bind(&cfg, &dir, &slice, TD_UNKNOWN_FAILS, &w, &err);
        td_mem_fail_at(0);
        if (s == TD_OK)
            break;
        check_error(&err, TD_E_NOMEM, "models/lexicon");
    }
    assert_true(n > 2);
    td_weights_release(&w);
    td_model_dir_release(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_counts),
        cmocka_unit_test(published_parameters),
        cmocka_unit_test(published_bytes),
        cmocka_unit_test(possible_splits),
        cmocka_unit_test(replicated_kv),
        cmocka_unit_test(every_element_on_its_ranks),
        cmocka_unit_test(sliced_qkv),
        cmocka_unit_test(checkpoints_that_do_not_fit),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

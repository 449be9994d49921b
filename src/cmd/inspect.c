/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem inspect MODEL: what a model directory holds, before anything is loaded.
 *
 * examine() collects the facts once; print_text() and print_json() say them. Tensors
 * that tandem does not know are listed and make the verb fail.
 */
#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "model/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_RANKS = 16, SHOWN_UNKNOWN = 20 };

#define MAX_TEXT ((size_t)(1 * TD_GIB))

/* Where the bytes of a model are. */
enum kind {
    KIND_EMBED,
    KIND_HEAD,
    KIND_FULL,
    KIND_GDN,
    KIND_MLP,
    KIND_EXPERTS,
    KIND_SHARED,
    KIND_NORMS,
    KIND_MTP,
    KIND_COUNT
};

static const char *const kind_names[KIND_COUNT] = {
    "embedding",      "head",           "full attention",           "delta net", "MLP",
    "routed experts", "shared experts", "norms and small matrices", "draft head"};

struct facts {
    const char *model;
    struct td_config cfg;
    struct td_generation_defaults gen;
    struct td_model_dir dir;
    struct td_weights weights; /* of one rank that holds everything */
    struct td_names_sum sum;
    int64_t kind_bytes[KIND_COUNT];
    int64_t dtype_bytes[TD_DTYPE_COUNT];
    int64_t use_bytes[TD_USE_COUNT];
    int use_count[TD_USE_COUNT];
    int64_t rank_bytes[TD_MAX_RANKS + 1]; /* the largest rank's part; 0: not possible */
};

/* ---- facts ------------------------------------------------------------------------- */

static enum kind kind_of(const struct td_weight *w)
{
    if (w->mtp)
        return KIND_MTP;
    if (w->role == TD_W_EMBED)
        return KIND_EMBED;
    if (w->role == TD_W_LM_HEAD)
        return KIND_HEAD;
    if (w->kind == TD_WEIGHT_VECTOR || w->role == TD_W_ROUTER ||
        w->role == TD_W_SHARED_ROUTER)
        return KIND_NORMS;
    if (w->expert >= 0)
        return KIND_EXPERTS;
    if (w->role >= TD_W_Q && w->role <= TD_W_O)
        return KIND_FULL;
    if (w->role >= TD_W_GDN_QKV && w->role <= TD_W_GDN_OUT)
        return KIND_GDN;
    return w->role >= TD_W_SHARED_GATE ? KIND_SHARED : KIND_MLP;
}

static enum td_status bind_ranks(struct facts *f, struct td_error *err)
{
    for (int ranks = 1; ranks <= TD_MAX_RANKS; ranks++) {
        struct td_slice slice;
        struct td_weights w;
        struct td_error ignored;
        td_error_init(&ignored);
        if (td_slice_make(&f->cfg, 0, ranks, &slice, NULL) != TD_OK)
            continue;
        /* one rank must work; more may not, and the table says so */
        enum td_status s =
            td_weights_bind(&f->cfg, &f->dir, &slice, TD_UNKNOWN_IS_COUNTED, &w,
                            ranks == 1 ? err : &ignored);
        if (s != TD_OK && ranks == 1)
            return s;
        if (s != TD_OK)
            continue;
        f->rank_bytes[ranks] = w.bytes - w.bytes_mtp; /* no engine loads it */
        if (ranks == 1)
            f->weights = w;
        else
            td_weights_release(&w);
    }
    return TD_OK;
}

static void count(struct facts *f)
{
    const struct td_weights *w = &f->weights;
    for (size_t i = 0; i < w->count; i++)
        f->kind_bytes[kind_of(&w->w[i])] += td_weight_bytes(&w->w[i]);
    for (int32_t i = 0; i < f->dir.n_tensors; i++) {
        const struct td_tensor *t = &f->dir.tensors[i];
        f->use_bytes[w->use[i]] += t->bytes;
        f->use_count[w->use[i]]++;
        if (w->use[i] == TD_USE_WEIGHT || w->use[i] == TD_USE_SCALE)
            f->dtype_bytes[t->dtype] += t->bytes;
    }
}

/* f must be zero; facts_release() is allowed after a failure. */
static enum td_status examine(const char *model, struct facts *f, struct td_error *err)
{
    struct td_slice slice;
    struct td_name_form form = {false, false};
    f->model = model;
    enum td_status s = td_config_read(model, &f->cfg, err);
    if (s == TD_OK)
        s = td_generation_defaults_read(model, &f->cfg, &f->gen, err);
    if (s == TD_OK)
        s = td_model_dir_open(model, &f->dir, err);
    if (s == TD_OK)
        s = bind_ranks(f, err);
    if (s == TD_OK)
        s = td_slice_make(&f->cfg, 0, 1, &slice, err);
    if (s != TD_OK)
        return s;
    td_names_sum(&f->cfg, &slice, &form, &f->sum);
    count(f);
    return TD_OK;
}

static void facts_release(struct facts *f)
{
    td_weights_release(&f->weights);
    td_model_dir_release(&f->dir);
}

/* ---- text -------------------------------------------------------------------------- */

static void add_bytes(struct td_buf *b, int64_t bytes)
{
    td_buf_adds(b, td_size_text(bytes, 2).text);
}

static void add_count(struct td_buf *b, int64_t n)
{
    double v = (double)n;
    if (n >= 1000000000)
        td_buf_addf(b, "%.3f billion", v * 1e-9);
    else if (n >= 1000000)
        td_buf_addf(b, "%.3f million", v * 1e-6);
    else
        td_buf_addf(b, "%" PRId64, n);
}

static void text_config(struct td_buf *b, const struct facts *f)
{
    const struct td_config *c = &f->cfg;
    td_buf_addf(b, "model       %s\n", f->model);
    td_buf_addf(b, "class       %s, %s\n", c->arch,
                c->quant == TD_QUANT_FP8 ? "FP8 (E4M3, one scale per 128x128 block)"
                                         : td_dtype_name(c->dtype));
    td_buf_addf(b, "layers      %d of width %d: %d Gated DeltaNet, %d full attention\n",
                c->n_layers, c->hidden, c->n_gdn, c->n_full);
    td_buf_addf(b,
                "attention   %d query heads, %d key/value heads of %d; %d dims rotate, "
                "theta %g\n",
                c->n_heads, c->n_kv_heads, c->head_dim, c->rotary_dim, c->rope_theta);
    td_buf_addf(b,
                "delta net   %d key heads of %d, %d value heads of %d, convolution "
                "of %d\n",
                c->n_key_heads, c->key_dim, c->n_value_heads, c->value_dim,
                c->conv_kernel);
    if (c->family == TD_FAMILY_QWEN35_MOE)
        td_buf_addf(b,
                    "experts     %d of width %d, %d a token, and a shared one of "
                    "width %d\n",
                    c->n_experts, c->moe_ffn, c->top_k, c->shared_ffn);
    else
        td_buf_addf(b, "MLP         width %d\n", c->ffn);
    td_buf_addf(b, "vocabulary  %d rows, %s; at most %d positions\n", c->vocab,
                c->tied ? "the head is the embedding" : "a head of its own",
                c->max_positions);
    td_buf_addf(b, "draft head  %s\n",
                f->weights.has_mtp ? "in the files (MTP, one token ahead), not loaded"
                : c->mtp_layers    ? "configured, but left out of the files"
                                   : "none");
}

static void text_sampling(struct td_buf *b, const struct td_generation_defaults *g)
{
    td_buf_adds(b, "sampling    ");
    if (g->do_sample)
        td_buf_addf(b, "temperature %g, top-k %d, top-p %g, min-p %g", g->temperature,
                    g->top_k, g->top_p, g->min_p);
    else
        td_buf_adds(b, "greedy");
    td_buf_addf(b, ", repetition penalty %g; stop ids", g->repetition_penalty);
    for (int i = 0; i < g->n_eos; i++)
        td_buf_addf(b, " %d", g->eos[i]);
    td_buf_adds(b, g->n_eos ? "\n" : " none\n");
}

static void text_sizes(struct td_buf *b, const struct facts *f)
{
    const struct td_config *c = &f->cfg;
    td_buf_adds(b, "parameters  ");
    add_count(b, f->sum.params);
    if (f->weights.has_mtp) {
        td_buf_adds(b, ", draft head ");
        add_count(b, f->sum.params_mtp);
    }
    td_buf_adds(b, "; ");
    add_count(b, f->sum.token_params);
    td_buf_adds(b, " take part in a token\nweights     ");
    add_bytes(b, f->weights.bytes);
    td_buf_addf(b, " (%" PRId64 " bytes), %d tensors in %d files\n", f->weights.bytes,
                f->use_count[TD_USE_WEIGHT] + f->use_count[TD_USE_SCALE],
                f->dir.n_shards);
    for (int k = 0; k < KIND_COUNT; k++) {
        if (!f->kind_bytes[k])
            continue;
        td_buf_addf(b, "            %5.1f %%  %s, ",
                    100.0 * (double)f->kind_bytes[k] / (double)f->weights.bytes,
                    kind_names[k]);
        add_bytes(b, f->kind_bytes[k]);
        td_buf_adds(b, "\n");
    }
    td_buf_adds(b, "formats     ");
    const char *comma = "";
    for (int t = 0; t < TD_DTYPE_COUNT; t++) {
        if (!f->dtype_bytes[t])
            continue;
        td_buf_addf(b, "%s%s ", comma, td_dtype_name((enum td_dtype)t));
        add_bytes(b, f->dtype_bytes[t]);
        comma = ", ";
    }
    td_buf_adds(b, "\na token     reads ");
    add_bytes(b, f->sum.token_bytes);
    td_buf_adds(b, " of weights, adds ");
    add_bytes(b, td_config_kv_bytes(c, 2));
    td_buf_adds(b, " of keys and values (bf16)\na sequence  holds ");
    add_bytes(b, td_config_state_bytes(c));
    td_buf_adds(b, " of recurrent state (f32) and ");
    add_bytes(b, td_config_conv_bytes(c, 2));
    td_buf_adds(b, " of convolution state (bf16)\n");
}

/* Why that many ranks do not work, in the words of the split check. */
static void rank_reason(const struct facts *f, int ranks, struct td_error *why)
{
    td_error_init(why);
    if (td_split_check(&f->cfg, ranks, why) == TD_OK)
        td_error_why(why, "the parts do not begin at FP8 blocks");
}

static void text_ranks(struct td_buf *b, const struct facts *f)
{
    for (int n = 1; n <= TD_MAX_RANKS; n++) {
        struct td_error why;
        if (f->rank_bytes[n]) {
            td_buf_addf(b, "ranks %5d ", n);
            add_bytes(b, f->rank_bytes[n]);
            td_buf_adds(b, n > 1 ? " each\n" : "\n");
        } else if (n <= 4 || n == 8) {
            rank_reason(f, n, &why);
            td_buf_addf(b, "ranks %5d not possible: %s\n", n, why.why);
        }
    }
}

static void text_skipped(struct td_buf *b, const struct facts *f)
{
    int left = SHOWN_UNKNOWN;
    for (int u = TD_SKIP_VISION; u < TD_USE_COUNT; u++) {
        if (!f->use_count[u])
            continue;
        td_buf_addf(b, "%s: %d tensors, ", td_use_text((enum td_use)u),
                    f->use_count[u]);
        add_bytes(b, f->use_bytes[u]);
        td_buf_adds(b, "\n");
    }
    for (int32_t i = 0; i < f->dir.n_tensors && left > 0; i++) {
        if (f->weights.use[i] != TD_USE_UNKNOWN)
            continue;
        td_buf_addf(b, "unknown     %s in %s\n", f->dir.tensors[i].name,
                    f->dir.shards[f->dir.tensors[i].shard].name);
        if (--left == 0 && f->use_count[TD_USE_UNKNOWN] > SHOWN_UNKNOWN)
            td_buf_addf(b, "unknown     and %d more (--tensors lists all)\n",
                        f->use_count[TD_USE_UNKNOWN] - SHOWN_UNKNOWN);
    }
}

static void add_shape(struct td_buf *b, const struct td_tensor *t)
{
    td_buf_addc(b, '[');
    for (int32_t i = 0; i < t->n_dims; i++)
        td_buf_addf(b, i ? ", %" PRId64 : "%" PRId64, t->shape[i]);
    td_buf_addc(b, ']');
}

static void text_tensors(struct td_buf *b, const struct facts *f)
{
    struct td_buf shape;
    int width = 0;
    td_buf_init(&shape, 256);
    for (int32_t i = 0; i < f->dir.n_tensors; i++)
        width = TD_MAX(width, (int)f->dir.tensors[i].name_len);
    td_buf_adds(b, "\n");
    for (int32_t i = 0; i < f->dir.n_tensors; i++) {
        const struct td_tensor *t = &f->dir.tensors[i];
        td_buf_clear(&shape);
        add_shape(&shape, t);
        td_buf_addf(b, "%-*s  %-8s %-18s %12" PRId64 "  %s  %s\n", width, t->name,
                    td_dtype_name(t->dtype), shape.p, t->bytes,
                    f->dir.shards[t->shard].name,
                    td_use_text((enum td_use)f->weights.use[i]));
    }
    td_buf_release(&shape);
}

static void print_text(struct td_buf *b, const struct facts *f, bool tensors)
{
    text_config(b, f);
    text_sampling(b, &f->gen);
    text_sizes(b, f);
    text_ranks(b, f);
    text_skipped(b, f);
    if (tensors)
        text_tensors(b, f);
}

/* ---- JSON -------------------------------------------------------------------------- */

static void put_string(struct td_buf *b, const char *key, const char *value)
{
    td_buf_addf(b, "\"%s\":", key);
    td_json_add_string(b, value, strlen(value));
    td_buf_addc(b, ',');
}

static void put_int(struct td_buf *b, const char *key, int64_t value)
{
    td_buf_addf(b, "\"%s\":%" PRId64 ",", key, value);
}

/* Ends an object or array whose last element left a comma. */
static void put_end(struct td_buf *b, char c)
{
    if (b->len && b->p[b->len - 1] == ',')
        td_buf_set_len(b, b->len - 1);
    td_buf_addc(b, c);
    td_buf_addc(b, ',');
}

static void json_config(struct td_buf *b, const struct facts *f)
{
    const struct td_config *c = &f->cfg;
    td_buf_adds(b, "\"config\":{");
    put_string(b, "class", c->arch);
    put_string(b, "dtype", td_dtype_name(c->dtype));
    put_string(b, "quantization", c->quant == TD_QUANT_FP8 ? "fp8" : "none");
    const struct {
        const char *key;
        int value;
    } ints[] = {
        {"hidden", c->hidden},
        {"layers", c->n_layers},
        {"full_attention_layers", c->n_full},
        {"delta_net_layers", c->n_gdn},
        {"heads", c->n_heads},
        {"kv_heads", c->n_kv_heads},
        {"head_dim", c->head_dim},
        {"rotary_dim", c->rotary_dim},
        {"key_heads", c->n_key_heads},
        {"value_heads", c->n_value_heads},
        {"key_dim", c->key_dim},
        {"value_dim", c->value_dim},
        {"conv_kernel", c->conv_kernel},
        {"ffn", c->ffn},
        {"experts", c->n_experts},
        {"experts_per_token", c->top_k},
        {"moe_ffn", c->moe_ffn},
        {"shared_ffn", c->shared_ffn},
        {"vocab", c->vocab},
        {"max_positions", c->max_positions},
        {"mtp_layers", c->mtp_layers},
    };
    for (size_t i = 0; i < TD_COUNT(ints); i++)
        put_int(b, ints[i].key, ints[i].value);
    td_buf_addf(b, "\"rope_theta\":%.17g,\"rms_eps\":%.17g,\"tied\":%s,", c->rope_theta,
                c->eps, c->tied ? "true" : "false");
    put_end(b, '}');
}

static void json_sampling(struct td_buf *b, const struct td_generation_defaults *g)
{
    td_buf_addf(b,
                "\"sampling\":{\"do_sample\":%s,\"temperature\":%.17g,\"top_k\":%d,"
                "\"top_p\":%.17g,\"min_p\":%.17g,\"repetition_penalty\":%.17g,"
                "\"stop_ids\":[",
                g->do_sample ? "true" : "false", g->temperature, g->top_k, g->top_p,
                g->min_p, g->repetition_penalty);
    for (int i = 0; i < g->n_eos; i++)
        td_buf_addf(b, "%d,", g->eos[i]);
    put_end(b, ']');
    put_end(b, '}');
}

static void json_sizes(struct td_buf *b, const struct facts *f)
{
    const struct td_config *c = &f->cfg;
    td_buf_adds(b, "\"parameters\":{");
    put_int(b, "main", f->sum.params);
    put_int(b, "mtp", f->weights.has_mtp ? f->sum.params_mtp : 0);
    put_int(b, "per_token", f->sum.token_params);
    put_end(b, '}');
    td_buf_adds(b, "\"bytes\":{");
    put_int(b, "weights", f->weights.bytes);
    put_int(b, "mtp", f->weights.bytes_mtp);
    put_int(b, "per_token", f->sum.token_bytes);
    put_int(b, "kv_per_token", td_config_kv_bytes(c, 2));
    put_int(b, "recurrent_state_per_sequence", td_config_state_bytes(c));
    put_int(b, "conv_state_per_sequence", td_config_conv_bytes(c, 2));
    td_buf_adds(b, "\"by_kind\":{");
    for (int k = 0; k < KIND_COUNT; k++)
        put_int(b, kind_names[k], f->kind_bytes[k]);
    put_end(b, '}');
    td_buf_adds(b, "\"by_format\":{");
    for (int t = 0; t < TD_DTYPE_COUNT; t++)
        if (f->dtype_bytes[t])
            put_int(b, td_dtype_name((enum td_dtype)t), f->dtype_bytes[t]);
    put_end(b, '}');
    put_end(b, '}');
}

static void json_ranks(struct td_buf *b, const struct facts *f)
{
    td_buf_adds(b, "\"ranks\":[");
    for (int n = 1; n <= TD_MAX_RANKS; n++) {
        struct td_error why;
        if (!f->rank_bytes[n] && n > SHOWN_RANKS)
            continue;
        td_buf_addf(b, "{\"ranks\":%d,", n);
        if (f->rank_bytes[n]) {
            put_int(b, "bytes_each", f->rank_bytes[n]);
        } else {
            rank_reason(f, n, &why);
            put_string(b, "why_not", why.why);
        }
        put_end(b, '}');
    }
    put_end(b, ']');
}

static void json_files(struct td_buf *b, const struct facts *f, bool tensors)
{
    td_buf_adds(b, "\"skipped\":[");
    for (int u = TD_SKIP_VISION; u < TD_USE_COUNT; u++) {
        if (!f->use_count[u])
            continue;
        td_buf_addc(b, '{');
        put_string(b, "why", td_use_text((enum td_use)u));
        put_int(b, "tensors", f->use_count[u]);
        put_int(b, "bytes", f->use_bytes[u]);
        put_end(b, '}');
    }
    put_end(b, ']');
    td_buf_adds(b, "\"unknown\":[");
    for (int32_t i = 0; i < f->dir.n_tensors; i++) {
        const char *name = f->dir.tensors[i].name;
        if (f->weights.use[i] != TD_USE_UNKNOWN)
            continue;
        td_json_add_string(b, name, strlen(name));
        td_buf_addc(b, ',');
    }
    put_end(b, ']');
    if (!tensors)
        return;
    td_buf_adds(b, "\"tensors\":[");
    for (int32_t i = 0; i < f->dir.n_tensors; i++) {
        const struct td_tensor *t = &f->dir.tensors[i];
        td_buf_addc(b, '{');
        put_string(b, "name", t->name);
        put_string(b, "dtype", td_dtype_name(t->dtype));
        td_buf_adds(b, "\"shape\":");
        add_shape(b, t);
        td_buf_addc(b, ',');
        put_int(b, "bytes", t->bytes);
        put_string(b, "file", f->dir.shards[t->shard].name);
        put_string(b, "use", td_use_text((enum td_use)f->weights.use[i]));
        put_end(b, '}');
    }
    put_end(b, ']');
}

static void print_json(struct td_buf *b, const struct facts *f, bool tensors)
{
    td_buf_addc(b, '{');
    put_string(b, "model", f->model);
    json_config(b, f);
    json_sampling(b, &f->gen);
    json_sizes(b, f);
    put_int(b, "files", f->dir.n_shards);
    put_int(b, "tensor_count", f->dir.n_tensors);
    json_ranks(b, f);
    json_files(b, f, tensors);
    put_end(b, '}');
    td_buf_set_len(b, b->len - 1);
    td_buf_addc(b, '\n');
}

/* ---- the verb ---------------------------------------------------------------------- */

static int run(struct td_conf *conf, struct td_error *err)
{
    struct facts f = {0};
    struct td_buf out;
    td_buf_init(&out, MAX_TEXT);
    if (examine(conf->args[0], &f, err) != TD_OK)
        goto out;
    if (td_conf_bool(conf, TD_O_JSON))
        print_json(&out, &f, td_conf_bool(conf, TD_O_TENSORS));
    else
        print_text(&out, &f, td_conf_bool(conf, TD_O_TENSORS));
    if (out.status != TD_OK)
        td_error_set(err, out.status, "the tensor table does not fit into memory");
    else
        (void)fputs(out.p, stdout);
    if (f.weights.n_unknown) {
        td_error_set(err, TD_E_TENSOR,
                     "%s holds %d tensors that are no part of the model", f.model,
                     f.weights.n_unknown);
        td_error_why(err, "a tensor that is not understood may change what the model "
                          "computes, so tandem does not run this checkpoint");
    }
out:
    facts_release(&f);
    td_buf_release(&out);
    return TD_EXIT_OK;
}

const struct td_cmd td_cmd_inspect = {
    .name = "inspect",
    .verb = TD_VERB_INSPECT,
    .usage = "inspect MODEL",
    .args = {1, 1, "model", NULL},
    .summary = "configuration, tensors and sizes of a model",
    .details =
        "MODEL is a directory with config.json and safetensors files. Only "
        "headers are read. Says\nhow the weights divide over ranks, what a token "
        "and a sequence cost, and what would be\nskipped; fails when the "
        "checkpoint holds tensors that tandem does not know.",
    .run = run,
};

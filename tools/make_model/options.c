/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line and presets. A preset gives every size, a flag replaces one of them.
 *
 * The presets with the names of published models have their sizes; their vision part is
 * that of the 35B model throughout, so it is only the right kind of ballast.
 */
#include "tools/make_model/synth.h"

#include "base/buf.h"
#include "base/conf.h"

#include <math.h>
#include <string.h>

struct preset {
    const char *name, *what;
    struct td_synth m;
};

#define COMMON                                                                         \
    .conv = 4, .interval = 4, .rotary = 0.25, .scale_dtype = TD_DTYPE_BF16,            \
    .mtp = true, .nested = true, .f32_state = true, .generation = true

/* Without a vision part unless it is asked for. */
#define OWN COMMON, .vision_hidden = 64

/* What all published models share. */
#define PUBLISHED                                                                      \
    COMMON, .head_dim = 256, .key_heads = 16, .key_dim = 128, .value_dim = 128,        \
            .vocab = 248320, .max_position = 262144, .shard_size = 5000000000,         \
            .vision_layers = 27, .vision_hidden = 1152

static const struct preset presets[] = {
    {"tiny-moe",
     "4 layers, 8 experts, FP8, 3 MB",
     {OWN, .hidden = 128, .layers = 4, .heads = 4, .kv_heads = 2, .head_dim = 64,
      .key_heads = 2, .value_heads = 4, .key_dim = 64, .value_dim = 64, .experts = 8,
      .top_k = 2, .moe = 128, .shared = 128, .vocab = 512, .max_position = 4096,
      .dtype = TD_DTYPE_F8_E4M3}},
    {"tiny-dense",
     "4 layers, BF16, tied, 3 MB",
     {OWN, .hidden = 128, .layers = 4, .heads = 4, .kv_heads = 2, .head_dim = 64,
      .key_heads = 2, .value_heads = 4, .key_dim = 64, .value_dim = 64,
      .intermediate = 256, .vocab = 512, .max_position = 4096, .tied = true,
      .dtype = TD_DTYPE_BF16}},
    {"bench-moe",
     "12 layers as in 35b-a3b but 32 experts, FP8, 1.8 GB",
     {OWN, .hidden = 2048, .layers = 12, .heads = 16, .kv_heads = 2, .head_dim = 256,
      .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128,
      .experts = 32, .top_k = 8, .moe = 512, .shared = 512, .vocab = 8192,
      .max_position = 262144, .shard_size = 1000000000, .dtype = TD_DTYPE_F8_E4M3}},
    {"bench-dense",
     "16 layers as in 4b, FP8, 2.0 GB",
     {OWN, .hidden = 2560, .layers = 16, .heads = 16, .kv_heads = 4, .head_dim = 256,
      .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128,
      .intermediate = 9216, .vocab = 8192, .max_position = 262144,
      .shard_size = 1000000000, .dtype = TD_DTYPE_F8_E4M3}},
    {"0.8b",
     "BF16, tied",
     {PUBLISHED, .hidden = 1024, .layers = 24, .heads = 8, .kv_heads = 2,
      .value_heads = 16, .intermediate = 3584, .tied = true, .dtype = TD_DTYPE_BF16}},
    {"2b",
     "BF16, tied",
     {PUBLISHED, .hidden = 2048, .layers = 24, .heads = 8, .kv_heads = 2,
      .value_heads = 16, .intermediate = 6144, .tied = true, .dtype = TD_DTYPE_BF16}},
    {"4b",
     "BF16, tied",
     {PUBLISHED, .hidden = 2560, .layers = 32, .heads = 16, .kv_heads = 4,
      .value_heads = 32, .intermediate = 9216, .tied = true, .dtype = TD_DTYPE_BF16}},
    {"9b",
     "BF16",
     {PUBLISHED, .hidden = 4096, .layers = 32, .heads = 16, .kv_heads = 4,
      .value_heads = 32, .intermediate = 12288, .dtype = TD_DTYPE_BF16}},
    {"27b",
     "FP8",
     {PUBLISHED, .hidden = 5120, .layers = 64, .heads = 24, .kv_heads = 4,
      .value_heads = 48, .intermediate = 17408, .dtype = TD_DTYPE_F8_E4M3}},
    {"35b-a3b",
     "FP8, 256 experts",
     {PUBLISHED, .hidden = 2048, .layers = 40, .heads = 16, .kv_heads = 2,
      .value_heads = 32, .experts = 256, .top_k = 8, .moe = 512, .shared = 512,
      .dtype = TD_DTYPE_F8_E4M3}},
    {"122b-a10b",
     "FP8, 256 experts",
     {PUBLISHED, .hidden = 3072, .layers = 48, .heads = 32, .kv_heads = 2,
      .value_heads = 64, .experts = 256, .top_k = 8, .moe = 1024, .shared = 1024,
      .dtype = TD_DTYPE_F8_E4M3}},
    {"397b-a17b",
     "FP8, 512 experts",
     {PUBLISHED, .hidden = 4096, .layers = 60, .heads = 32, .kv_heads = 2,
      .value_heads = 64, .experts = 512, .top_k = 10, .moe = 1024, .shared = 1024,
      .dtype = TD_DTYPE_F8_E4M3}},
};

/* The options: first the whole numbers, in the order of `numbers` below. */
enum {
    O_HIDDEN,
    O_LAYERS,
    O_HEADS,
    O_KV_HEADS,
    O_HEAD_DIM,
    O_KEY_HEADS,
    O_VALUE_HEADS,
    O_KEY_DIM,
    O_VALUE_DIM,
    O_CONV,
    O_INTERVAL,
    O_INTERMEDIATE,
    O_EXPERTS,
    O_TOP_K,
    O_MOE,
    O_SHARED,
    O_VOCAB,
    O_MAX_POSITION,
    O_VISION_LAYERS,
    O_VISION_HIDDEN,
    O_SHARDS,
    O_SHARD_SIZE,
    O_SEED,
    O_THREADS,
    O_NUMBERS,
    O_TIED = O_NUMBERS,
    O_MTP,
    O_MTP_FILE,
    O_GENERATION,
    O_HEADERS_ONLY,
    O_SWITCHES,
    O_PRESET = O_SWITCHES,
    O_TYPES,
    O_ROTARY,
    O_DTYPE,
    O_SCALE_DTYPE,
    O_STATE_DTYPE,
    O_FORM,
    O_MTP_FORM,
    O_LAYOUT,
    O_TOKENIZER,
    O_HELP,
    O_COUNT
};

#define INT(option, low, high, text)                                                   \
    {                                                                                  \
        .name = (option), .kind = TD_OPT_INT, .verbs = 1, .arg = "N", .lo = (low),     \
        .hi = (high), .help = (text)                                                   \
    }
#define SWITCH(option, text)                                                           \
    {                                                                                  \
        .name = (option), .kind = TD_OPT_BOOL, .verbs = 1, .help = (text)              \
    }
#define TEXT(option, what, text)                                                       \
    {                                                                                  \
        .name = (option), .kind = TD_OPT_STR, .verbs = 1, .arg = (what),               \
        .help = (text)                                                                 \
    }
#define CHOICE(option, choices, text)                                                  \
    {                                                                                  \
        .name = (option), .kind = TD_OPT_CHOICE, .verbs = 1, .arg = (choices),         \
        .help = (text)                                                                 \
    }

static const struct td_opt options[O_COUNT] = {
    [O_HIDDEN] = INT("hidden", 1, 1 << 16, "width of the residual stream"),
    [O_LAYERS] = INT("layers", 1, TD_SYNTH_MAX_LAYERS, "layers, without the draft's"),
    [O_HEADS] = INT("heads", 1, 1024, "query heads of full attention"),
    [O_KV_HEADS] = INT("kv-heads", 1, 1024, "key and value heads of full attention"),
    [O_HEAD_DIM] = INT("head-dim", 2, 1024, "width of a head of full attention"),
    [O_KEY_HEADS] = INT("gdn-key-heads", 1, 1024, "key heads of the delta rule"),
    [O_VALUE_HEADS] = INT("gdn-value-heads", 1, 1024, "value heads of the delta rule"),
    [O_KEY_DIM] = INT("gdn-key-dim", 1, 1024, "width of a key head"),
    [O_VALUE_DIM] = INT("gdn-value-dim", 1, 1024, "width of a value head"),
    [O_CONV] = INT("conv", 1, 16, "width of the convolution"),
    [O_INTERVAL] = INT("interval", 1, 512, "every N-th layer has full attention"),
    [O_INTERMEDIATE] = INT("intermediate", 0, 1 << 18, "inner width of a dense MLP"),
    [O_EXPERTS] = INT("experts", 0, 4096, "experts of a layer, 0 for a dense model"),
    [O_TOP_K] = INT("top-k", 1, 64, "experts that a token uses"),
    [O_MOE] = INT("moe", 1, 1 << 16, "inner width of an expert"),
    [O_SHARED] = INT("shared", 1, 1 << 16, "inner width of the shared expert"),
    [O_VOCAB] = INT("vocab", 1, 1 << 20, "rows of embedding and head"),
    [O_MAX_POSITION] = INT("max-position", 1, 1 << 24, "max_position_embeddings"),
    [O_VISION_LAYERS] = INT("vision-layers", 0, 512, "0: no vision tensors"),
    [O_VISION_HIDDEN] = INT("vision-hidden", 8, 8192, "width of the vision tower"),
    [O_SHARDS] = INT("shards", 1, 9999, "weight files, of about equal size"),
    [O_SHARD_SIZE] = {.name = "shard-size",
                      .kind = TD_OPT_BYTES,
                      .verbs = 1,
                      .arg = "BYTES",
                      .help = "begin a new file where one grows larger"},
    [O_SEED] = INT("seed", 0, 1e15, "of the random weights (0)"),
    [O_THREADS] = INT("threads", 1, 1024, "that make the values (all cores)"),
    [O_TIED] = SWITCH("tied", "the embedding is the head as well"),
    [O_MTP] = SWITCH("mtp", "with the draft layer"),
    [O_MTP_FILE] = SWITCH("mtp-file", "the draft layer in mtp.safetensors"),
    [O_GENERATION] = SWITCH("generation-config", "with generation_config.json"),
    [O_HEADERS_ONLY] = SWITCH("headers-only", "files with headers and holes"),
    [O_PRESET] = TEXT("preset", "NAME", "sizes to begin with (tiny-moe)"),
    [O_TYPES] = TEXT("layer-types", "llfl", "each layer: l linear, f full attention"),
    [O_ROTARY] = {.name = "rotary",
                  .kind = TD_OPT_REAL,
                  .verbs = 1,
                  .arg = "SHARE",
                  .lo = 0.01,
                  .hi = 1,
                  .help = "part of a head that rotates"},
    [O_DTYPE] = CHOICE("dtype", "f32|f16|bf16|fp8", "of the weights"),
    [O_SCALE_DTYPE] = CHOICE("scale-dtype", "f32|bf16", "of FP8 scales"),
    [O_STATE_DTYPE] =
        CHOICE("state-dtype", "f32|same", "of A_log and linear_attn.norm"),
    [O_FORM] = CHOICE("expert-form", "split|fused", "fp8: split, others: fused"),
    [O_MTP_FORM] = CHOICE("mtp-expert-form", "split|fused", "in the draft layer"),
    [O_LAYOUT] =
        CHOICE("layout", "nested|flat", "as vision-language model or text only"),
    [O_TOKENIZER] = TEXT("tokenizer", "DIR", "to copy or cut down (models/lexicon)"),
    [O_HELP] = {.name = "help",
                .letter = 'h',
                .kind = TD_OPT_BOOL,
                .verbs = 1,
                .help = "this text"},
};

static const size_t numbers[O_NUMBERS] = {
    [O_HIDDEN] = offsetof(struct td_synth, hidden),
    [O_LAYERS] = offsetof(struct td_synth, layers),
    [O_HEADS] = offsetof(struct td_synth, heads),
    [O_KV_HEADS] = offsetof(struct td_synth, kv_heads),
    [O_HEAD_DIM] = offsetof(struct td_synth, head_dim),
    [O_KEY_HEADS] = offsetof(struct td_synth, key_heads),
    [O_VALUE_HEADS] = offsetof(struct td_synth, value_heads),
    [O_KEY_DIM] = offsetof(struct td_synth, key_dim),
    [O_VALUE_DIM] = offsetof(struct td_synth, value_dim),
    [O_CONV] = offsetof(struct td_synth, conv),
    [O_INTERVAL] = offsetof(struct td_synth, interval),
    [O_INTERMEDIATE] = offsetof(struct td_synth, intermediate),
    [O_EXPERTS] = offsetof(struct td_synth, experts),
    [O_TOP_K] = offsetof(struct td_synth, top_k),
    [O_MOE] = offsetof(struct td_synth, moe),
    [O_SHARED] = offsetof(struct td_synth, shared),
    [O_VOCAB] = offsetof(struct td_synth, vocab),
    [O_MAX_POSITION] = offsetof(struct td_synth, max_position),
    [O_VISION_LAYERS] = offsetof(struct td_synth, vision_layers),
    [O_VISION_HIDDEN] = offsetof(struct td_synth, vision_hidden),
    [O_SHARDS] = offsetof(struct td_synth, shards),
    [O_SHARD_SIZE] = offsetof(struct td_synth, shard_size),
    [O_SEED] = offsetof(struct td_synth, seed),
    [O_THREADS] = offsetof(struct td_synth, threads),
};

static const size_t switches[O_SWITCHES - O_NUMBERS] = {
    [O_TIED - O_NUMBERS] = offsetof(struct td_synth, tied),
    [O_MTP - O_NUMBERS] = offsetof(struct td_synth, mtp),
    [O_MTP_FILE - O_NUMBERS] = offsetof(struct td_synth, mtp_file),
    [O_GENERATION - O_NUMBERS] = offsetof(struct td_synth, generation),
    [O_HEADERS_ONLY - O_NUMBERS] = offsetof(struct td_synth, headers_only),
};

static enum td_status refuse(struct td_error *err, const char *what, const char *why)
{
    td_error_set(err, TD_E_USAGE, "%s", what);
    td_error_why(err, "%s", why);
    td_error_fix(err, "see --help");
    return TD_E_USAGE;
}

static enum td_status check_experts(const struct td_synth *m, struct td_error *err)
{
    bool fused = m->form == TD_SYNTH_FUSED || m->mtp_form == TD_SYNTH_FUSED;
    if (m->experts && m->intermediate)
        return refuse(err, "both --experts and --intermediate are given",
                      "a layer has experts or one dense MLP; set the other to 0");
    if (!m->experts && !m->intermediate)
        return refuse(err, "neither --experts nor --intermediate is given",
                      "a layer needs experts or a dense MLP");
    if (m->experts && (!m->moe || !m->shared || !m->top_k))
        return refuse(err, "a model with experts lacks --moe, --shared or --top-k",
                      "they have no default");
    if (m->experts && m->top_k > m->experts)
        return refuse(err, "--top-k is larger than --experts",
                      "a token cannot use more experts than there are");
    if (fused && !m->experts)
        return refuse(err, "fused experts are asked for a dense model",
                      "it has no experts");
    if (fused && m->dtype == TD_DTYPE_F8_E4M3 &&
        (2 * m->moe % TD_SYNTH_BLOCK || m->hidden % TD_SYNTH_BLOCK))
        return refuse(err, "fused FP8 experts need whole blocks",
                      "--hidden and twice --moe must be multiples of 128");
    return TD_OK;
}

enum td_status td_synth_check(const struct td_synth *m, struct td_error *err)
{
    double turns = m->rotary * (double)m->head_dim;
    if (m->heads % m->kv_heads)
        return refuse(err, "--heads is no multiple of --kv-heads",
                      "each key and value head serves the same number of query heads");
    if (m->value_heads % m->key_heads)
        return refuse(err, "--gdn-value-heads is no multiple of --gdn-key-heads",
                      "each key head serves the same number of value heads");
    if (turns < 2 || fmod(turns, 2) != 0)
        return refuse(err, "--head-dim times --rotary is not an even number",
                      "rotation turns pairs of elements");
    if ((int64_t)strlen(m->types) != m->layers)
        return refuse(err, "--layer-types has another length than --layers",
                      "it names the kind of every layer with one letter");
    if (strspn(m->types, "lf") != strlen(m->types))
        return refuse(err, "--layer-types has a letter besides l and f",
                      "l is linear attention (delta rule), f is full attention");
    if (m->vision_layers && !m->nested)
        return refuse(err, "--vision-layers is given with --layout flat",
                      "a text-only checkpoint has no vision tensors");
    if (m->mtp_file && !m->mtp)
        return refuse(err, "--mtp-file is given without the draft layer",
                      "there is nothing to write into it");
    if (m->shards && m->shard_size)
        return refuse(err, "both --shards and --shard-size are given",
                      "one of them says where to cut");
    if (m->mtp_file && !m->shards && !m->shard_size)
        return refuse(err, "--mtp-file is given without --shards or --shard-size",
                      "several files need the index that these write");
    if (!m->out || !*m->out)
        return refuse(err, "no directory is given", "the model is written into one");
    return check_experts(m, err);
}

static const struct preset *find_preset(const char *name)
{
    for (size_t i = 0; i < TD_COUNT(presets); i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

static enum td_dtype dtype_of(const char *name)
{
    return strcmp(name, "f32") == 0    ? TD_DTYPE_F32
           : strcmp(name, "f16") == 0  ? TD_DTYPE_F16
           : strcmp(name, "bf16") == 0 ? TD_DTYPE_BF16
                                       : TD_DTYPE_F8_E4M3;
}

static enum td_synth_form form_of(const char *name)
{
    return strcmp(name, "split") == 0 ? TD_SYNTH_SPLIT : TD_SYNTH_FUSED;
}

/* Replaces the preset's values by those that were given. */
static void apply(const struct td_conf *c, struct td_synth *m)
{
    for (size_t i = 0; i < O_NUMBERS; i++)
        if (td_conf_is_set(c, i))
            *(int64_t *)(void *)((char *)m + numbers[i]) = td_conf_int(c, i);
    for (size_t i = O_NUMBERS; i < O_SWITCHES; i++)
        if (td_conf_is_set(c, i))
            *(bool *)((char *)m + switches[i - O_NUMBERS]) = td_conf_bool(c, i);
    if (td_conf_is_set(c, O_SHARDS) && !td_conf_is_set(c, O_SHARD_SIZE))
        m->shard_size = 0;
    if (td_conf_is_set(c, O_ROTARY))
        m->rotary = td_conf_real(c, O_ROTARY);
    if (td_conf_is_set(c, O_DTYPE))
        m->dtype = dtype_of(td_conf_str(c, O_DTYPE));
    if (td_conf_is_set(c, O_SCALE_DTYPE))
        m->scale_dtype = dtype_of(td_conf_str(c, O_SCALE_DTYPE));
    if (td_conf_is_set(c, O_STATE_DTYPE))
        m->f32_state = strcmp(td_conf_str(c, O_STATE_DTYPE), "f32") == 0;
    if (td_conf_is_set(c, O_FORM))
        m->form = form_of(td_conf_str(c, O_FORM));
    m->mtp_form =
        td_conf_is_set(c, O_MTP_FORM) ? form_of(td_conf_str(c, O_MTP_FORM)) : m->form;
    if (td_conf_is_set(c, O_LAYOUT))
        m->nested = strcmp(td_conf_str(c, O_LAYOUT), "nested") == 0;
}

/* Which options of a preset another option switches off: a dense model made from a
 * preset with experts, and the other way round. */
static void settle_kind(const struct td_conf *c, struct td_synth *m)
{
    if (td_conf_is_set(c, O_INTERMEDIATE) && !td_conf_is_set(c, O_EXPERTS))
        m->experts = 0;
    if (td_conf_is_set(c, O_EXPERTS) && !td_conf_is_set(c, O_INTERMEDIATE))
        m->intermediate = 0;
    if (!m->nested && !td_conf_is_set(c, O_VISION_LAYERS))
        m->vision_layers = 0;
}

static enum td_status settle_types(const struct td_conf *c, struct td_synth *m,
                                   struct td_error *err)
{
    const char *types = td_conf_str(c, O_TYPES);
    if (!types) {
        for (int64_t i = 0; i < m->layers; i++)
            m->types[i] = (i + 1) % m->interval ? 'l' : 'f';
        return TD_OK;
    }
    size_t n = strlen(types);
    if (n > TD_SYNTH_MAX_LAYERS)
        return refuse(err, "--layer-types names too many layers",
                      "512 are the most that can be made");
    memcpy(m->types, types, n);
    if (!td_conf_is_set(c, O_LAYERS))
        m->layers = (int64_t)n;
    return TD_OK;
}

static enum td_status check_unused(const struct td_conf *c, const struct td_synth *m,
                                   struct td_error *err)
{
    if (td_conf_is_set(c, O_SCALE_DTYPE) && m->dtype != TD_DTYPE_F8_E4M3)
        return refuse(err, "--scale-dtype is given without --dtype fp8",
                      "only FP8 weights have scales");
    if (td_conf_is_set(c, O_MTP_FORM) && !m->mtp)
        return refuse(err, "--mtp-expert-form is given without the draft layer",
                      "there are no such experts");
    for (size_t i = O_TOP_K; i <= O_SHARED; i++)
        if (td_conf_is_set(c, i) && !m->experts)
            return refuse(err, "--top-k, --moe or --shared is given for a dense model",
                          "they belong to experts; give --experts as well");
    return TD_OK;
}

static enum td_status fill(const struct td_conf *c, struct td_synth *m,
                           struct td_error *err)
{
    const char *name = td_conf_str(c, O_PRESET), *dir = td_conf_str(c, O_TOKENIZER);
    const struct preset *preset = find_preset(name ? name : "tiny-moe");
    if (!preset)
        return refuse(err, "there is no such --preset", "--help lists them");
    *m = preset->m;
    apply(c, m);
    settle_kind(c, m);
    dir = dir ? dir : "models/lexicon";
    if (strlen(dir) >= sizeof(m->tokenizer))
        return refuse(err, "--tokenizer is too long", "4095 bytes are the most");
    memcpy(m->tokenizer, dir, strlen(dir) + 1);
    m->out = c->nargs == 1 ? c->args[0] : NULL;
    enum td_status s = settle_types(c, m, err);
    s = s == TD_OK ? check_unused(c, m, err) : s;
    return s == TD_OK ? td_synth_check(m, err) : s;
}

enum td_status td_synth_parse(int argc, char **argv, struct td_synth *m, bool *help,
                              struct td_error *err)
{
    struct td_conf c;
    struct td_synth made;
    enum td_status s = td_conf_init(&c, options, O_COUNT, NULL, err);
    if (s == TD_OK)
        s = td_conf_parse_args(&c, 1, argc, argv, err);
    if (s != TD_OK)
        goto out;
    *help = td_conf_is_set(&c, O_HELP);
    if (!*help)
        s = fill(&c, &made, err);
    if (s == TD_OK && !*help)
        *m = made;
out:
    td_conf_release(&c);
    return s;
}

enum td_status td_synth_help(struct td_buf *out)
{
    struct td_conf c;
    enum td_status s = td_conf_init(&c, options, O_COUNT, NULL, NULL);
    td_buf_adds(out, "make_model [options] DIR\n\n"
                     "Writes a model of the Qwen3.5 architecture with random weights "
                     "into DIR, as a hub delivers it.\n\n");
    if (s == TD_OK)
        s = td_conf_help(&c, 1, out);
    td_buf_adds(out, "\nPresets:\n");
    for (size_t i = 0; i < TD_COUNT(presets); i++)
        td_buf_addf(out, "  %-12s %s\n", presets[i].name, presets[i].what);
    td_conf_release(&c);
    return s == TD_OK ? out->status : s;
}

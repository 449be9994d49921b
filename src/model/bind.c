/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights of a configuration, found in a checkpoint. See names.h.
 *
 * Three passes: tensors that give away another quantization are refused by name; every
 * expected weight is looked up and checked; what is left over must be something that
 * tandem knows not to need.
 */
#include "model/names.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct binder {
    const struct td_config *cfg;
    const struct td_model_dir *dir;
    struct td_weights *out;
    size_t cap;
    struct td_error *err;
};

static bool starts_with(const char *s, const char *start)
{
    return strncmp(s, start, strlen(start)) == 0;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool is_vision(const char *name)
{
    return starts_with(name, "model.visual.") || starts_with(name, "visual.");
}

const char *td_use_text(enum td_use use)
{
    static const char *const texts[TD_USE_COUNT] = {
        [TD_USE_UNKNOWN] = "no part of the model",
        [TD_USE_WEIGHT] = "weight",
        [TD_USE_SCALE] = "scale",
        [TD_SKIP_VISION] = "skipped: vision tower, tandem reads text",
        [TD_SKIP_TIED] = "skipped: the configuration ties the head to the embedding",
        [TD_SKIP_MTP] =
            "skipped: the configuration has no draft head, or nobody asks for it",
    };
    return (unsigned)use < TD_USE_COUNT ? texts[use] : "?";
}

/* ---- other quantizations ----------------------------------------------------------- */

static const struct {
    const char *ending, *format;
} foreign[] = {
    {".weight_packed", "compressed-tensors"},
    {".weight_global_scale", "NVFP4 (compressed-tensors)"},
    {".weight_shape", "compressed-tensors"},
    {".weight_zero_point", "compressed-tensors"},
    {".weight_scale", "per-channel or ModelOpt FP8"},
    {".weight_scale_2", "NVFP4 (ModelOpt)"},
    {".input_scale", "static-activation FP8"},
    {".input_global_scale", "NVFP4"},
    {".activation_scale", "static-activation FP8"},
    {".k_scale", "FP8 KV cache scales"},
    {".v_scale", "FP8 KV cache scales"},
    {".qweight", "GPTQ or AWQ"},
    {".qzeros", "GPTQ or AWQ"},
    {".g_idx", "GPTQ"},
    {".absmax", "bitsandbytes"},
    {".quant_map", "bitsandbytes"},
    {".SCB", "bitsandbytes"},
    {"_blocks", "MXFP4"},
};

static enum td_status refuse_foreign(const struct td_model_dir *dir,
                                     struct td_error *err)
{
    for (int32_t i = 0; i < dir->n_tensors; i++) {
        const struct td_tensor *t = &dir->tensors[i];
        if (is_vision(t->name))
            continue;
        for (size_t k = 0; k < TD_COUNT(foreign); k++) {
            if (!ends_with(t->name, foreign[k].ending))
                continue;
            td_error_set(err, TD_E_UNSUPPORTED,
                         "%s holds %s: the weights are quantized as %s", dir->path,
                         t->name, foreign[k].format);
            td_error_why(err, "tandem reads BF16, F16, F32 and FP8 E4M3 with one "
                              "weight_scale_inv per 128x128 block");
            return TD_E_UNSUPPORTED;
        }
    }
    return TD_OK;
}

/* ---- one weight -------------------------------------------------------------------- */

static void shape_text(const int64_t *shape, int n, char *out, size_t size)
{
    size_t len = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < n && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%" PRId64, i ? ", " : "",
                                shape[i]);
    if (len < size)
        (void)snprintf(out + len, size - len, "]");
}

static enum td_status check_shape(const struct binder *b, const struct td_tensor *t,
                                  const int64_t *shape, int n)
{
    char want[96], found[160];
    bool same = t->n_dims == n;
    for (int i = 0; i < n && same; i++)
        same = t->shape[i] == shape[i];
    if (same)
        return TD_OK;
    shape_text(shape, n, want, sizeof(want));
    shape_text(t->shape, t->n_dims, found, sizeof(found));
    return td_error_set(b->err, TD_E_TENSOR, "%s in %s has the shape %s, expected %s",
                        t->name, b->dir->shards[t->shard].name, found, want);
}

/* The shape of the weight's tensor as the checkpoint should have it. */
static int tensor_shape(const struct td_config *c, const struct td_weight *w,
                        int64_t shape[3])
{
    int n = 0;
    if (w->kind == TD_WEIGHT_VECTOR) {
        shape[n++] = w->cols;
        return n;
    }
    if (w->view_rows != w->rows) {
        shape[n++] = c->n_experts;
        shape[n++] = w->view_rows / c->n_experts;
    } else {
        shape[n++] = w->rows;
    }
    if (w->role == TD_W_GDN_CONV)
        shape[n++] = 1;
    shape[n++] = w->cols;
    return n;
}

/* Fused tensors whose halves do not begin at a block have no scale of their own. */
static bool blocks_align(const struct td_weight *w)
{
    bool ok = w->col.first % w->block_cols == 0;
    for (int i = 0; i < w->n_ranges; i++)
        ok = ok && w->row[i].first % w->block_rows == 0 &&
             (w->n_ranges == 1 || w->row[i].count % w->block_rows == 0);
    return ok &&
           (w->role != TD_W_EXPERT_UP || w->base == 0 || w->rows % w->block_rows == 0);
}

static enum td_status bad_dtype(struct binder *b, const struct td_tensor *t,
                                const char *expected)
{
    td_error_set(b->err, TD_E_TENSOR, "%s in %s is %s, expected %s", t->name,
                 b->dir->shards[t->shard].name, td_dtype_name(t->dtype), expected);
    td_error_why(b->err, "the weights are in a number format that tandem does not read "
                         "at this place");
    td_error_fix(b->err, "use a Qwen3.5 checkpoint in BF16 or block FP8 "
                         "(weight_scale_inv, 128x128)");
    return TD_E_TENSOR;
}

static enum td_status bind_scale(struct binder *b, struct td_weight *w,
                                 const char *scale_name)
{
    const struct td_config *c = b->cfg;
    const struct td_tensor *weight = &b->dir->tensors[w->tensor];
    int64_t shape[3];
    int n = 0;
    w->scale = td_model_dir_find(b->dir, scale_name);
    if (w->scale < 0) {
        td_error_set(b->err, TD_E_TENSOR, "%s is FP8, but %s is missing", weight->name,
                     scale_name);
        td_error_why(b->err, "FP8 matrices need one scale per 128x128 block");
        return TD_E_TENSOR;
    }
    if (!blocks_align(w)) {
        td_error_set(b->err, TD_E_SPLIT, "%s cannot be cut for this rank",
                     weight->name);
        td_error_why(b->err, "the parts do not begin at FP8 blocks of %dx%d",
                     w->block_rows, w->block_cols);
        return TD_E_SPLIT;
    }
    if (w->view_rows != w->rows) {
        shape[n++] = c->n_experts;
        shape[n++] = w->scale_view_rows / c->n_experts;
    } else {
        shape[n++] = w->scale_view_rows;
    }
    shape[n++] = w->scale_cols;
    const struct td_tensor *t = &b->dir->tensors[w->scale];
    enum td_status s = check_shape(b, t, shape, n);
    if (s != TD_OK)
        return s;
    if (t->dtype != TD_DTYPE_BF16 && t->dtype != TD_DTYPE_F32)
        return bad_dtype(b, t, "BF16 or F32");
    w->scale_dtype = t->dtype;
    b->out->use[w->scale] = TD_USE_SCALE;
    return TD_OK;
}

/* Appends a weight and counts its bytes. */
static enum td_status keep(struct binder *b, const struct td_weight *w)
{
    struct td_weights *out = b->out;
    if (out->count == b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 512;
        struct td_weight *v = td_realloc(out->w, cap, sizeof(*v));
        if (!v)
            return td_error_set(b->err, TD_E_NOMEM,
                                "no memory for the list of weights of %s",
                                b->dir ? b->dir->path : b->cfg->arch);
        out->w = v;
        b->cap = cap;
    }
    int64_t bytes = td_weight_bytes(w);
    out->w[out->count++] = *w;
    out->bytes += bytes;
    out->bytes_mtp += w->mtp ? bytes : 0;
    return TD_OK;
}

/* By its name alone: formats and shapes are what the configuration implies. */
static enum td_status bind_name(struct binder *b, struct td_weight *w,
                                const char *scale_name)
{
    w->scale = scale_name ? td_model_dir_find(b->dir, scale_name) : -1;
    if (w->dtype == TD_DTYPE_F8_E4M3 && w->scale < 0)
        w->dtype = b->cfg->dtype;
    if (w->dtype == TD_DTYPE_F8_E4M3)
        b->out->use[w->scale] = TD_USE_SCALE;
    return TD_OK;
}

static enum td_status bind_header(struct binder *b, struct td_weight *w,
                                  const char *scale_name)
{
    const struct td_tensor *t = &b->dir->tensors[w->tensor];
    int64_t shape[3];
    enum td_status s = check_shape(b, t, shape, tensor_shape(b->cfg, w, shape));
    if (s != TD_OK)
        return s;
    bool fp8 = t->dtype == TD_DTYPE_F8_E4M3 && scale_name;
    if (!fp8 && t->dtype != TD_DTYPE_BF16 && t->dtype != TD_DTYPE_F16 &&
        t->dtype != TD_DTYPE_F32)
        return bad_dtype(b, t,
                         scale_name ? "BF16, F16, F32 or F8_E4M3" : "BF16, F16 or F32");
    w->dtype = t->dtype;
    return fp8 ? bind_scale(b, w, scale_name) : TD_OK;
}

static enum td_status bind_one(void *self, const struct td_weight *expected,
                               const char *name, const char *scale_name)
{
    struct binder *b = self;
    struct td_weight w = *expected;
    w.tensor = td_model_dir_find(b->dir, name);
    if (w.tensor < 0)
        return td_error_set(b->err, TD_E_TENSOR, "the tensor %s is missing in %s", name,
                            b->dir->path);
    b->out->use[w.tensor] = TD_USE_WEIGHT;
    enum td_status s = b->dir->names_only ? bind_name(b, &w, scale_name)
                                          : bind_header(b, &w, scale_name);
    return s == TD_OK ? keep(b, &w) : s;
}

/* ---- the whole --------------------------------------------------------------------- */

static bool any_starts_with(const struct td_model_dir *dir, const char *start)
{
    for (int32_t i = 0; i < dir->n_tensors; i++)
        if (starts_with(dir->tensors[i].name, start))
            return true;
    return false;
}

/* Exports exist whose names do not follow their config.json: take what is there. */
static void choose_prefix(const struct td_model_dir *dir, struct td_config *c)
{
    static const char *const prefixes[] = {"model.language_model.", "model.",
                                           "language_model.model."};
    char name[TD_MAX_NAME];
    (void)snprintf(name, sizeof(name), "%s%s", c->prefix, td_role_name(TD_W_EMBED));
    if (td_model_dir_find(dir, name) >= 0)
        return;
    for (size_t i = 0; i < TD_COUNT(prefixes); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", prefixes[i],
                       td_role_name(TD_W_EMBED));
        if (td_model_dir_find(dir, name) < 0)
            continue;
        (void)snprintf(c->prefix, sizeof(c->prefix), "%s", prefixes[i]);
        return;
    }
}

static bool is_fused(const struct td_model_dir *dir, const char *before_layers)
{
    char name[TD_MAX_NAME];
    (void)snprintf(name, sizeof(name), "%slayers.0.mlp.experts.gate_up_proj",
                   before_layers);
    return td_model_dir_find(dir, name) >= 0;
}

static enum td_status sort_leftovers(struct binder *b, enum td_bind_unknown unknown)
{
    const struct td_model_dir *dir = b->dir;
    struct td_weights *out = b->out;
    int32_t first = -1;
    for (int32_t i = 0; i < dir->n_tensors; i++) {
        const char *name = dir->tensors[i].name;
        if (out->use[i] != TD_USE_UNKNOWN)
            continue;
        if (is_vision(name))
            out->use[i] = TD_SKIP_VISION;
        else if (b->cfg->tied && strcmp(name, td_role_name(TD_W_LM_HEAD)) == 0)
            out->use[i] = TD_SKIP_TIED;
        else if (!out->has_mtp && starts_with(name, "mtp."))
            out->use[i] = TD_SKIP_MTP;
        else if (out->n_unknown++ == 0)
            first = i;
    }
    if (first < 0 || unknown == TD_UNKNOWN_IS_COUNTED)
        return TD_OK;
    td_error_set(b->err, TD_E_TENSOR,
                 "%s holds %d tensors that are no part of the model; the first is %s "
                 "in %s",
                 dir->path, out->n_unknown, dir->tensors[first].name,
                 dir->shards[dir->tensors[first].shard].name);
    td_error_why(b->err, "a tensor that is not understood may change what the model "
                         "computes");
    td_error_fix(b->err, "`tandem inspect %s --tensors` lists them", dir->path);
    return TD_E_TENSOR;
}

enum td_status td_weights_bind(const struct td_config *cfg,
                               const struct td_model_dir *dir,
                               const struct td_slice *slice,
                               enum td_bind_unknown unknown, struct td_weights *out,
                               struct td_error *err)
{
    struct td_config c = *cfg;
    struct td_weights w = {0};
    enum td_status s = refuse_foreign(dir, err);
    if (s != TD_OK)
        return s;
    choose_prefix(dir, &c);
    w.has_mtp = c.mtp_layers > 0 && any_starts_with(dir, "mtp.");
    if (!w.has_mtp)
        c.mtp_layers = 0;
    struct td_name_form form = {.fused = is_fused(dir, c.prefix),
                                .fused_mtp = is_fused(dir, "mtp.")};
    struct binder b = {.cfg = &c, .dir = dir, .out = &w, .err = err};
    w.use = td_calloc((size_t)dir->n_tensors, sizeof(*w.use));
    if (!w.use)
        return td_error_set(err, TD_E_NOMEM, "no memory for the list of weights of %s",
                            dir->path);
    s = td_names_each(&c, slice, &form, bind_one, &b);
    if (s == TD_OK)
        s = sort_leftovers(&b, unknown);
    if (s == TD_OK)
        *out = w;
    else
        td_weights_release(&w);
    return s;
}

static enum td_status imply_one(void *self, const struct td_weight *w, const char *name,
                                const char *scale_name)
{
    (void)name;
    (void)scale_name;
    return keep(self, w);
}

enum td_status td_weights_imply(const struct td_config *cfg,
                                const struct td_slice *slice, struct td_weights *out,
                                struct td_error *err)
{
    struct td_weights w = {.has_mtp = cfg->mtp_layers > 0};
    struct binder b = {.cfg = cfg, .out = &w, .err = err};
    enum td_status s =
        td_names_each(cfg, slice, &(struct td_name_form){0}, imply_one, &b);
    if (s == TD_OK)
        *out = w;
    else
        td_weights_release(&w);
    return s;
}

void td_weights_release(struct td_weights *w)
{
    td_free(w->w);
    td_free(w->use);
    *w = (struct td_weights){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model's tests share: a model with small caches, prompts run whole or in
 * pieces, greedy decoding, and reading of reference data.
 */
#ifndef TD_TESTS_MODEL_UTIL_H
#define TD_TESTS_MODEL_UTIL_H

#include "check.h"

#include "base/mem.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UTIL_LEN = 1024, UTIL_SEQS = 17 };

struct util_model {
    struct td_dev *dev;
    struct td_model *model;
    const struct td_config *cfg;
    struct td_cache cache;
    int32_t per_seq; /* KV blocks of a sequence */
    int32_t blocks[UTIL_SEQS * UTIL_LEN / TD_KV_BLOCK];
};

struct util_params {
    const char *path, *level;
    enum td_numerics numerics;
    int threads;
    int32_t max_rows; /* 0: UTIL_LEN */
    bool no_graphs;
    struct td_comm *comm;
};

static inline void util_fail(const struct td_error *err)
{
    fail_msg("%s: %s (%s)", td_status_info(err->code)->slug, err->what, err->why);
}

/* The processor, or with TANDEM_DEVICE=cuda a GPU. The tests read its memory, so that
 * takes TANDEM_CUDA_MEMORY=host and CUDA_LAUNCH_BLOCKING=1 as well; bench/gpu.sh sets
 * them. */
static inline enum td_status util_device(const struct td_dev_params *p,
                                         struct td_dev **out, struct td_error *err)
{
    const char *device = getenv("TANDEM_DEVICE");
    return device && strcmp(device, "cuda") == 0 ? td_cuda_open(p, out, err)
                                                 : td_cpu_open(p, out, err);
}

static inline void util_open(struct util_model *u, const struct util_params *p)
{
    struct td_error err;
    struct td_dev_params dev = {.numerics = p->numerics,
                                .threads = p->threads,
                                .no_graphs = p->no_graphs,
                                .budget = (size_t)2 << 30,
                                .level = p->level ? p->level : getenv("TANDEM_CPU")};
    struct td_model_limits limits = {.max_rows = p->max_rows ? p->max_rows : UTIL_LEN,
                                     .max_seqs = UTIL_SEQS,
                                     .max_out = 64,
                                     .max_len = UTIL_LEN};
    struct td_load_opts load = {.threads = 1};
    memset(u, 0, sizeof(*u));
    td_error_init(&err);
    if (util_device(&dev, &u->dev, &err) != TD_OK ||
        td_model_open(p->path, u->dev, p->comm ? p->comm : td_comm_self(), &limits,
                      &u->model, &err) != TD_OK ||
        td_model_load(u->model, &load, NULL, &err) != TD_OK ||
        td_cache_new(u->model, (int32_t)TD_COUNT(u->blocks), UTIL_SEQS, &u->cache,
                     &err) != TD_OK)
        util_fail(&err);
    u->cfg = td_model_config(u->model);
    u->per_seq = UTIL_LEN / TD_KV_BLOCK;
    /* blocks far apart and out of order, so that a mix-up shows */
    for (int32_t i = 0; i < (int32_t)TD_COUNT(u->blocks); i++)
        u->blocks[i] = (int32_t)((i * 37L + 5) % (long)TD_COUNT(u->blocks));
}

static inline void util_close(struct util_model *u)
{
    td_cache_release(&u->cache);
    td_model_free(u->model);
    u->dev->ops.close(u->dev);
}

static inline struct td_seq_rows util_rows(const struct util_model *u, int32_t seq,
                                           const int32_t *ids, int32_t start, int32_t n,
                                           bool decode, int32_t n_out)
{
    return (struct td_seq_rows){.ids = ids,
                                .n = n,
                                .start = start,
                                .decode = decode,
                                .slot = seq,
                                .blocks = u->blocks + seq * u->per_seq,
                                .n_blocks = u->per_seq,
                                .n_out = n_out};
}

static inline void util_forward(struct util_model *u, const struct td_seq_rows *rows,
                                int32_t n, bool hidden)
{
    struct td_error err;
    td_error_init(&err);
    if (td_model_forward(u->model, &u->cache, rows, n, hidden, &err) != TD_OK ||
        u->dev->ops.sync(u->dev, &err) != TD_OK)
        util_fail(&err);
}

/* Runs a prompt as sequence `seq` in pieces of `piece` tokens (a multiple of 64, 0:
 * whole); returns the logits of the last token. */
static inline const float *util_prompt(struct util_model *u, int32_t seq,
                                       const int32_t *ids, int32_t n, int32_t piece)
{
    for (int32_t at = 0; at < n;) {
        int32_t k = piece ? TD_MIN(piece, n - at) : n;
        struct td_seq_rows rows = util_rows(u, seq, ids + at, at, k, false, 1);
        util_forward(u, &rows, 1, false);
        at += k;
    }
    return td_model_logits(u->model);
}

static inline const float *util_decode(struct util_model *u, int32_t seq, int32_t id,
                                       int32_t at)
{
    struct td_seq_rows rows = util_rows(u, seq, &id, at, 1, true, 1);
    util_forward(u, &rows, 1, false);
    return td_model_logits(u->model);
}

static inline int32_t util_argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static inline double util_max_diff(const float *a, const float *b, int32_t n)
{
    double worst = 0;
    for (int32_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

/* A whole tensor of a safetensors directory, to be freed with td_free(). */
static inline void *util_tensor(const struct td_model_dir *dir, const char *name,
                                int64_t *elements)
{
    int32_t t = td_model_dir_find(dir, name);
    if (t < 0)
        return NULL;
    const struct td_tensor *x = &dir->tensors[t];
    void *p = td_calloc((size_t)x->bytes, 1);
    FILE *f = fopen(dir->shards[x->shard].path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)x->offset, SEEK_SET), 0);
    assert_int_equal(fread(p, 1, (size_t)x->bytes, f), x->bytes);
    assert_int_equal(fclose(f), 0);
    *elements = x->elements;
    return p;
}

#endif

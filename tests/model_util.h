/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model's tests share: a model with small caches, prompts run whole or in
 * pieces, greedy decoding, and reading of reference data.
 *
 * A model may be split over ranks: over threads of this process (`ranks`), or, where
 * mpirun started N of it with UTIL_WORLD=N, over processes that all make the same calls.
 * util_logits() has the logits of all ranks then, in either case.
 */
#ifndef TD_TESTS_MODEL_UTIL_H
#define TD_TESTS_MODEL_UTIL_H

#include "check.h"

#include "base/mem.h"
#include "model/model.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UTIL_LEN = 1024, UTIL_SEQS = 17, UTIL_RANKS = 4 };

struct util_model {
    struct td_dev *dev;
    struct td_model *model;
    const struct td_config *cfg;
    struct td_cache cache;
    int32_t per_seq; /* KV blocks of a sequence */
    int32_t blocks[UTIL_SEQS * UTIL_LEN / TD_KV_BLOCK];
    int ranks;                 /* as threads: */
    struct util_model *others; /* [ranks - 1], all but the first */
    struct td_comm *comm;      /* this rank's */
    bool owned;                /* and to be freed */
    float *logits;             /* of all ranks, or NULL */
};

struct util_params {
    const char *path, *level;
    enum td_numerics numerics;
    int threads;
    int32_t max_rows; /* 0: UTIL_LEN */
    bool no_graphs;
    int ranks;            /* threads; 0: the world's processes, or one rank */
    struct td_comm *comm; /* one rank of several, whoever the others are */
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

/* Ranks as processes: how many there are, 1 without mpirun. */
static inline int util_world(void)
{
    const char *text = getenv("UTIL_WORLD");
    return text ? (int)strtol(text, NULL, 10) : 1;
}

static struct td_comm *util_comm;

static inline void util_leave(void)
{
    util_comm->ops->free(util_comm);
}

/* The communicator of this process. */
static inline struct td_comm *util_join(void)
{
    struct td_error err;
    td_error_init(&err);
    if (util_world() < 2)
        return td_comm_self();
    if (!util_comm) {
        if (td_comm_mpi(util_world(), 120, &util_comm, &err) != TD_OK)
            util_fail(&err);
        (void)atexit(util_leave);
    }
    return util_comm;
}

static inline enum td_status util_sum(void *comm, float *x, size_t n,
                                      struct td_error *err)
{
    struct td_comm *c = comm;
    return c->ops->all_reduce(c, x, n, err);
}

/* Sums of several ranks' devices by way of the host. */
static inline enum td_status util_join_device(struct td_dev *dev, struct td_comm *comm,
                                              struct td_error *err)
{
    const struct td_join how = {.rank = comm->rank,
                                .ranks = comm->ranks,
                                .deadline = 120,
                                .sum = util_sum,
                                .self = comm};
    return comm->ranks > 1 && dev->ops.join ? dev->ops.join(dev, &how, err) : TD_OK;
}

static inline void util_open_rank(struct util_model *u, const struct util_params *p,
                                  struct td_comm *comm)
{
    struct td_error err;
    struct td_dev_params dev = {.numerics = p->numerics,
                                .threads = comm->ranks > 1 ? 1 : p->threads,
                                .no_graphs = p->no_graphs,
                                .budget = (size_t)2 << 30,
                                .level = p->level ? p->level : getenv("TANDEM_CPU")};
    struct td_model_limits limits = {.max_rows = p->max_rows ? p->max_rows : UTIL_LEN,
                                     .max_seqs = UTIL_SEQS,
                                     .max_out = 64,
                                     .max_len = UTIL_LEN,
                                     .draft = true};
    struct td_load_opts load = {.threads = 1};
    memset(u, 0, sizeof(*u));
    td_error_init(&err);
    u->comm = comm;
    u->owned = p->ranks > 1;
    u->ranks = 1;
    if (util_device(&dev, &u->dev, &err) != TD_OK ||
        util_join_device(u->dev, comm, &err) != TD_OK ||
        td_model_open(p->path, u->dev, comm, &limits, &u->model, &err) != TD_OK ||
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

static inline void util_open(struct util_model *u, const struct util_params *p)
{
    struct td_comm *comms[UTIL_RANKS] = {p->comm ? p->comm : util_join()};
    if (p->ranks > 1)
        assert_int_equal(td_comm_threads(p->ranks, 120, comms, NULL), TD_OK);
    util_open_rank(u, p, comms[0]);
    if (p->ranks > 1) {
        u->ranks = p->ranks;
        u->others = td_calloc((size_t)p->ranks - 1, sizeof(*u->others));
        assert_non_null(u->others);
        for (int r = 1; r < p->ranks; r++)
            util_open_rank(&u->others[r - 1], p, comms[r]);
    }
    if (p->ranks > 1 || (!p->comm && util_world() > 1)) {
        u->logits = td_calloc(64 * (size_t)u->cfg->vocab, sizeof(*u->logits));
        assert_non_null(u->logits);
    }
}

static inline void util_close(struct util_model *u)
{
    for (int r = 1; r < u->ranks; r++)
        util_close(&u->others[r - 1]);
    td_cache_release(&u->cache);
    td_model_free(u->model);
    u->dev->ops.close(u->dev);
    if (u->owned)
        u->comm->ops->free(u->comm);
    td_free(u->others);
    td_free(u->logits);
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

/* One rank's part of a forward, or of a draft. */
struct util_step {
    struct util_model *u;
    const struct td_seq_rows *rows;
    int32_t n;
    bool hidden, draft;
    struct td_error err;
    enum td_status status;
    pthread_t thread;
};

static inline void *util_run(void *arg)
{
    struct util_step *s = arg;
    struct util_model *u = s->u;
    td_error_init(&s->err);
    s->status = s->draft ? td_model_draft(u->model, &u->cache, s->rows, s->n, &s->err)
                         : td_model_forward(u->model, &u->cache, s->rows, s->n,
                                            s->hidden, &s->err);
    if (s->status == TD_OK)
        s->status = u->dev->ops.sync(u->dev, &s->err);
    return NULL;
}

/* A rank's columns of the logits, among those of all. */
static inline void util_put_part(struct util_model *all, const struct util_model *rank,
                                 int32_t n_out)
{
    struct td_range part = td_model_vocab(rank->model);
    for (int32_t i = 0; i < n_out; i++)
        memcpy(all->logits + (int64_t)i * all->cfg->vocab + part.first,
               td_model_logits(rank->model) + (int64_t)i * part.count,
               (size_t)part.count * sizeof(float));
}

static inline void util_put_together(struct util_model *u,
                                     const struct td_seq_rows *rows, int32_t n)
{
    struct td_error err;
    int32_t n_out = 0;
    for (int32_t i = 0; i < n; i++)
        n_out += rows[i].n_out;
    size_t values = (size_t)n_out * (size_t)u->cfg->vocab;
    memset(u->logits, 0, values * sizeof(*u->logits));
    util_put_part(u, u, n_out);
    for (int r = 1; r < u->ranks; r++)
        util_put_part(u, &u->others[r - 1], n_out);
    td_error_init(&err);
    if (u->ranks == 1 && n_out > 0 && /* the others' zeros change nothing */
        u->comm->ops->all_reduce(u->comm, u->logits, values, &err) != TD_OK)
        util_fail(&err);
}

static inline void util_step(struct util_model *u, const struct td_seq_rows *rows,
                             int32_t n, bool hidden, bool draft)
{
    struct util_step steps[UTIL_RANKS];
    for (int r = u->ranks - 1; r >= 0; r--) {
        steps[r] = (struct util_step){.u = r ? &u->others[r - 1] : u,
                                      .rows = rows,
                                      .n = n,
                                      .hidden = hidden,
                                      .draft = draft};
        if (r > 0)
            assert_int_equal(
                pthread_create(&steps[r].thread, NULL, util_run, &steps[r]), 0);
        else
            (void)util_run(&steps[r]);
    }
    for (int r = 0; r < u->ranks; r++) {
        if (r > 0)
            assert_int_equal(pthread_join(steps[r].thread, NULL), 0);
        if (steps[r].status != TD_OK)
            util_fail(&steps[r].err);
    }
    if (u->logits)
        util_put_together(u, rows, n);
}

static inline void util_forward(struct util_model *u, const struct td_seq_rows *rows,
                                int32_t n, bool hidden)
{
    util_step(u, rows, n, hidden, false);
}

static inline void util_draft(struct util_model *u, const struct td_seq_rows *rows,
                              int32_t n)
{
    util_step(u, rows, n, false, true);
}

/* Rows of the last forward or draft, of the whole vocabulary where this is all ranks. */
static inline const float *util_logits(const struct util_model *u)
{
    return u->logits ? u->logits : td_model_logits(u->model);
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
    return util_logits(u);
}

static inline const float *util_decode(struct util_model *u, int32_t seq, int32_t id,
                                       int32_t at)
{
    struct td_seq_rows rows = util_rows(u, seq, &id, at, 1, true, 1);
    util_forward(u, &rows, 1, false);
    return util_logits(u);
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

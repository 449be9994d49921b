/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of an engine, and those of several ranks in one process: prompt and
 * generated tokens give the logits of one rank, and all choose the same kind. On the
 * processor here; with TANDEM_DEVICE=cuda on GPUs, joined directly or, where two ranks
 * share one, by way of the host.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/log.h"
#include "base/mem.h"
#include "engine/device.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, PROMPT = 150, STEPS = 6, LEN = 256, MAX_VOCAB = 8192 };

struct job {
    struct td_comm *comm;
    const char *device, *level;
    struct td_error err;
    enum td_status status;
    float (*logits)[MAX_VOCAB]; /* [1 + STEPS], of all ranks */
};

static int32_t id_of(int32_t i)
{
    return (i * 61 + 7) % MAX_VOCAB;
}

/* A rank: its device, model and cache. */
struct rank {
    struct td_dev *dev;
    struct td_model *model;
    struct td_cache cache;
};

static enum td_status open_rank(struct job *j, struct rank *r)
{
    struct td_engine_params p = {.numerics = TD_NUM_F32,
                                 .threads = 1,
                                 .device = j->device,
                                 .level = j->level,
                                 .memory = (int64_t)1 << 30,
                                 .comm = j->comm};
    struct td_model_limits limits = {
        .max_rows = LEN, .max_seqs = 1, .max_out = 1, .max_len = LEN};
    struct td_load_opts load = {.threads = 1};
    enum td_status s = td_engine_device_open(&p, &r->dev, &j->err);
    if (s == TD_OK)
        s = td_model_open("models/lexicon", r->dev, j->comm, &limits, &r->model,
                          &j->err);
    if (s == TD_OK)
        s = td_model_load(r->model, &load, NULL, &j->err);
    if (s == TD_OK)
        s = td_cache_new(r->model, LEN / TD_KV_BLOCK, 1, &r->cache, &j->err);
    return s;
}

/* A forward, and this rank's part of the last row's logits. */
static enum td_status forward(struct job *j, struct rank *r,
                              const struct td_seq_rows *rows, float *out)
{
    enum td_status s = td_model_forward(r->model, &r->cache, rows, 1, false, &j->err);
    if (s == TD_OK)
        s = r->dev->ops.sync(r->dev, &j->err);
    if (s != TD_OK)
        return s;
    struct td_range part = td_model_vocab(r->model);
    r->dev->ops.get(r->dev, out + part.first, td_model_logits(r->model),
                    (size_t)part.count * sizeof(*out));
    return TD_OK;
}

static enum td_status run(struct job *j, struct rank *r)
{
    int32_t ids[PROMPT], blocks[LEN / TD_KV_BLOCK];
    for (int32_t i = 0; i < PROMPT; i++)
        ids[i] = id_of(i);
    for (int32_t i = 0; i < LEN / TD_KV_BLOCK; i++)
        blocks[i] = i;
    struct td_seq_rows rows = {.ids = ids,
                               .n = PROMPT,
                               .blocks = blocks,
                               .n_blocks = LEN / TD_KV_BLOCK,
                               .n_out = 1};
    enum td_status s = forward(j, r, &rows, j->logits[0]);
    for (int32_t t = 0; t < STEPS && s == TD_OK; t++) {
        ids[0] = id_of(PROMPT + t);
        rows.n = 1;
        rows.start = PROMPT + t;
        rows.decode = true;
        s = forward(j, r, &rows, j->logits[1 + t]);
    }
    return s;
}

static void *work(void *self)
{
    struct job *j = self;
    struct rank r = {0};
    td_error_init(&j->err);
    j->status = open_rank(j, &r);
    if (j->status == TD_OK) /* in one process, freeing waits for the sums of others */
        j->status = j->comm->ops->barrier(j->comm, &j->err);
    if (j->status == TD_OK)
        j->status = run(j, &r);
    if (j->status == TD_OK)
        j->status = j->comm->ops->barrier(j->comm, &j->err);
    td_cache_release(&r.cache);
    td_model_free(r.model);
    if (r.dev)
        r.dev->ops.close(r.dev);
    return NULL;
}

static const char *device(void)
{
    const char *name = getenv("TANDEM_DEVICE");
    return name ? name : "cpu";
}

static void run_ranks(int ranks, struct job *jobs)
{
    struct td_comm *comms[RANKS];
    pthread_t threads[RANKS];
    assert_int_equal(td_comm_threads(ranks, 60, comms, NULL), TD_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r].comm = comms[r];
        assert_int_equal(pthread_create(&threads[r], NULL, work, &jobs[r]), 0);
    }
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        comms[r]->ops->free(comms[r]);
    }
}

static atomic_int joined, directly;

static void listen(void *self, const struct td_event *e)
{
    (void)self;
    if (strcmp(e->name, "joined") == 0) {
        atomic_fetch_add(&joined, 1);
        atomic_fetch_add(&directly, e->nums[0].value > 0);
    }
}

static void test_equal(void **state)
{
    static float whole[1 + STEPS][MAX_VOCAB], parts[1 + STEPS][MAX_VOCAB];
    struct job one = {.device = device(), .logits = whole}, two[RANKS];
    double worst = 0, top = 0;
    (void)state;
    for (int r = 0; r < RANKS; r++)
        two[r] = (struct job){.device = device(), .logits = parts};
    run_ranks(1, &one);
    if (one.status != TD_OK)
        fail_msg("%s: %s", one.err.what, one.err.why);
    td_log_set_listener(listen, NULL);
    run_ranks(RANKS, two);
    td_log_set_listener(NULL, NULL);
    for (int r = 0; r < RANKS; r++)
        if (two[r].status != TD_OK)
            fail_msg("rank %d: %s: %s", r, two[r].err.what, two[r].err.why);
    for (int t = 0; t <= STEPS; t++)
        for (int i = 0; i < MAX_VOCAB; i++) {
            worst = fmax(worst, fabs((double)whole[t][i] - (double)parts[t][i]));
            top = fmax(top, fabs((double)whole[t][i]));
        }
    print_message("off by %.2g of %.2g; %d ranks joined, %d directly\n", worst, top,
                  atomic_load(&joined), atomic_load(&directly));
    assert_true(top > 1);
    assert_true(worst < 1e-3);
    assert_int_equal(atomic_load(&joined), strcmp(device(), "cpu") == 0 ? 0 : RANKS);
}

static void test_auto(void **state)
{
    static float logits[1 + STEPS][MAX_VOCAB];
    struct job two[RANKS];
    (void)state;
    for (int r = 0; r < RANKS; r++) /* a level asks for the processor */
        two[r] = (struct job){.device = "auto", .level = "ref", .logits = logits};
    run_ranks(RANKS, two);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(two[r].status, TD_OK);
}

static void test_no_device(void **state)
{
    static float logits[1 + STEPS][MAX_VOCAB];
    static const char *const names[] = {"cuda:99", "gpu", "cuda:", "cuda:1x"};
    (void)state;
    for (size_t i = 0; i < TD_COUNT(names); i++) { /* the first may have no library */
        struct job one = {.device = names[i], .logits = logits};
        run_ranks(1, &one);
        assert_int_equal(one.status, i == 0 ? TD_E_NO_DEVICE : TD_E_USAGE);
        assert_int_equal(one.err.code, one.status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_no_device),
    };
    return cmocka_run_group_tests_name("engine_device", tests, NULL, NULL);
}

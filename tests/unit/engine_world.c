/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ranks as one engine, here as threads of one process: the text, the best ids and
 * the rows of one rank; states copied everywhere; rank 0's limits are everybody's; the
 * first cause of a failed start, a mix of ranks refused, ticks and a rank that is gone.
 */
#define _POSIX_C_SOURCE 200809L
#include "made_model.h"

#include "base/mem.h"
#include "engine/generate.h"
#include "engine/ranks.h"
#include "engine/world.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RANKS = 4, PROMPT = 90, TOKENS = 24 };

static atomic_int left; /* ranks that were made to leave */

static void on_leave(void *self, const struct td_error *err, int exit_code)
{
    (void)self;
    if (err->code == TD_E_TIMEOUT || err->code == TD_E_PEER)
        atomic_fetch_add(&left, exit_code == TD_RANK_EXIT_PEER);
}

/* A rank: its own parameters, and what its thread came to. */
struct rank {
    struct td_comm *comm;
    struct td_engine_params params;
    const char *build;
    struct td_world *world;
    struct td_error err;
    enum td_status status;
    pthread_t thread;
};

static enum td_status join(struct rank *r)
{
    struct td_world_params p = {.comm = r->comm,
                                .build = r->build,
                                .beat_fd = -1,
                                .rank_timeout = 60,
                                .load_timeout = 60,
                                .leave = on_leave};
    td_error_init(&r->err);
    return td_world_open(&p, &r->world, &r->err);
}

static void *follow(void *arg)
{
    struct rank *r = arg;
    r->status = join(r);
    if (r->status == TD_OK)
        r->status = td_world_follow(r->world, &r->params, &r->err);
    td_world_close(r->world);
    return NULL;
}

/* Starts the others' threads and joins as rank 0. */
static void start(struct rank *r, int ranks, struct td_engine_params p)
{
    struct td_comm *comms[MAX_RANKS];
    assert_int_equal(td_comm_threads(ranks, 60, comms, NULL), TD_OK);
    for (int i = 0; i < ranks; i++) {
        const char *build = r[i].build ? r[i].build : "same";
        r[i] = (struct rank){.comm = comms[i], .params = p, .build = build};
        if (i > 0)
            assert_int_equal(pthread_create(&r[i].thread, NULL, follow, &r[i]), 0);
    }
    assert_int_equal(join(&r[0]), TD_OK);
    r[0].params.world = r[0].world;
}

static void end(struct rank *r, int ranks)
{
    td_world_close(r[0].world);
    for (int i = 1; i < ranks; i++)
        assert_int_equal(pthread_join(r[i].thread, NULL), 0);
}

static struct td_engine_params params_of(const char *model)
{
    return (struct td_engine_params){.model = model,
                                     .numerics = TD_NUM_F32,
                                     .threads = 1,
                                     .device = "cpu",
                                     .max_len = 256,
                                     .max_seqs = 2,
                                     .prefix_cache = 1 << 22,
                                     .load = {.threads = 1}};
}

/* ---- the same as one rank -------------------------------------------------------------- */

struct text {
    int32_t ids[TOKENS];
    int n;
};

static bool keep(void *self, const struct td_sampled *token)
{
    struct text *t = self;
    t->ids[t->n++] = token->id;
    return true;
}

static void generate(struct td_engine *e, float temperature, struct text *out)
{
    struct td_engine_info info;
    struct td_generator *g;
    struct td_generated done;
    struct td_error err;
    int32_t prompt[PROMPT];
    td_error_init(&err);
    td_engine_info(e, &info);
    for (int32_t i = 0; i < PROMPT; i++)
        prompt[i] = (i * 131 + 7) % info.config->vocab;
    struct td_generate_args a = {.prompt = prompt,
                                 .n_prompt = PROMPT,
                                 .max_tokens = TOKENS,
                                 .on_token = keep,
                                 .self = out};
    td_sampling_default(&a.sampling);
    a.sampling.temperature = temperature;
    a.sampling.top_k = 20;
    a.sampling.seed = 3;
    out->n = 0;
    assert_int_equal(td_generator_new(e, info.config->vocab, &g, &err), TD_OK);
    if (td_generate(g, &a, &done, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    td_generator_free(g);
}

/* A row whose best ids and logits must be those of the row itself. */
static void check_row(struct td_engine *e)
{
    struct td_engine_info info;
    const float *logits;
    struct td_error err;
    td_error_init(&err);
    td_engine_info(e, &info);
    const struct td_candidates *c = td_engine_candidates(e, 0);
    assert_non_null(c);
    assert_int_equal(td_engine_logits(e, 0, &logits, &err), TD_OK);
    double sum = 0;
    for (int32_t i = 0; i < info.config->vocab; i++)
        sum += exp((double)logits[i] - (double)c->max);
    assert_true(fabs(sum / (double)c->sum - 1) < 1e-5);
    for (int32_t i = 0; i < TD_CANDIDATES; i++) {
        assert_memory_equal(&c->logit[i], &logits[c->id[i]], sizeof(float));
        assert_true(i == 0 || c->logit[i] <= c->logit[i - 1]);
    }
}

static void compare(const char *model, int ranks)
{
    struct rank r[MAX_RANKS] = {{0}};
    struct td_engine *e;
    struct td_engine_info one, all;
    struct text want, drawn, got, got_drawn;
    struct td_engine_params p = params_of(model);
    assert_int_equal(td_engine_open(&p, &e, NULL), TD_OK);
    td_engine_info(e, &one);
    generate(e, 0, &want);
    generate(e, 0.8F, &drawn);
    td_engine_close(e);
    start(r, ranks, p);
    for (int round = 0; round < 2; round++) { /* an engine may be opened again */
        struct td_error err;
        td_error_init(&err);
        if (td_engine_open(&r[0].params, &e, &err) != TD_OK)
            fail_msg("%s: %s", err.what, err.why);
        td_engine_info(e, &all);
        assert_true(all.ranks == ranks && all.max_len == one.max_len);
        assert_true(all.bytes.weights < one.bytes.weights);
        generate(e, 0, &got);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.ids, want.ids, sizeof(want.ids));
        generate(e, 0.8F, &got_drawn);
        assert_int_equal(got_drawn.n, drawn.n);
        check_row(e);
        td_engine_info(e, &all);
        assert_true(all.comm.calls > 0 && all.comm.seconds >= all.comm.waited);
        td_engine_close(e);
    }
    end(r, ranks);
    for (int i = 1; i < ranks; i++)
        assert_int_equal(r[i].status, TD_OK);
}

static void test_two_ranks(void **state)
{
    (void)state;
    compare("models/lexicon", 2);
}

static void test_four_ranks(void **state)
{
    (void)state;
    char dir[256];
    make_model(dir, sizeof(dir), MOE_BY_FOUR);
    compare(dir, 4);
    remove_model(dir);
    make_model(dir, sizeof(dir), DENSE_BY_FOUR);
    compare(dir, 4);
    remove_model(dir);
}

/* ---- states ---------------------------------------------------------------------------- */

static void forward(struct td_engine *e, int32_t id, int32_t at, int32_t slot)
{
    static const int32_t blocks[2][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
    struct td_error err;
    struct td_seq_rows one = {.ids = &id,
                              .n = 1,
                              .start = at,
                              .decode = at > 0,
                              .slot = slot,
                              .blocks = blocks[slot],
                              .n_blocks = 4,
                              .n_out = 1};
    td_error_init(&err);
    if (td_engine_forward(e, &one, 1, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
}

/* A state that was saved, spoiled and restored gives the bits that it gave before: on
 * all ranks, or the logits of some would differ. */
static void test_states(void **state)
{
    (void)state;
    struct rank r[2] = {{0}};
    struct td_engine *e;
    struct td_engine_info info;
    const float *logits;
    static float before[8192];
    start(r, 2, params_of("models/lexicon"));
    assert_int_equal(td_engine_open(&r[0].params, &e, &r[0].err), TD_OK);
    td_engine_info(e, &info);
    assert_true(info.n_snapshots > 0 && info.config->vocab <= 8192);
    for (int32_t at = 0; at < 5; at++)
        forward(e, 100 + at, at, 0);
    td_engine_copy_state(e, info.n_slots, 0);
    forward(e, 7, 5, 0);
    assert_int_equal(td_engine_logits(e, 0, &logits, NULL), TD_OK);
    memcpy(before, logits, (size_t)info.config->vocab * sizeof(*logits));
    for (int32_t at = 5; at < 9; at++)
        forward(e, 999, at, 0);
    td_engine_copy_state(e, 0, info.n_slots);
    forward(e, 7, 5, 0);
    assert_int_equal(td_engine_logits(e, 0, &logits, NULL), TD_OK);
    assert_memory_equal(before, logits, (size_t)info.config->vocab * sizeof(*logits));
    /* what breaks a rule is refused before the others hear of it */
    struct td_seq_rows bad = {.ids = &(int32_t){-1}, .n = 1, .n_out = 1};
    assert_int_equal(td_engine_forward(e, &bad, 1, NULL), TD_E_INTERNAL);
    forward(e, 7, 6, 0);
    td_engine_close(e);
    end(r, 2);
    assert_int_equal(r[1].status, TD_OK);
}

/* ---- failures -------------------------------------------------------------------------- */

static void expect_refusal(struct rank *r, int ranks, enum td_status want,
                           const char *word)
{
    struct td_engine *e;
    assert_int_equal(td_engine_open(&r[0].params, &e, &r[0].err), want);
    end(r, ranks);
    for (int i = 0; i < ranks; i++) {
        if (!strstr(r[i].err.what, word))
            fail_msg("rank %d: %s", i, r[i].err.what);
        assert_true(i == 0 || r[i].status == want);
    }
}

static void test_first_cause(void **state)
{
    (void)state;
    struct rank r[MAX_RANKS] = {{0}};
    start(r, 2, params_of("models/lexicon"));
    r[0].params.memory = 1 << 20; /* rank 0 has no room, rank 1 has */
    expect_refusal(r, 2, TD_E_MEMORY_PLAN, "models/lexicon needs");
    assert_int_equal(r[1].err.rank, 0);
    memset(r, 0, sizeof(r));
    start(r, 3, params_of("models/lexicon"));
    expect_refusal(r, 3, TD_E_SPLIT, "cannot be split over 3 ranks");
    assert_non_null(strstr(r[0].err.fix, "1, 2"));
    memset(r, 0, sizeof(r));
    start(r, 2, params_of("models/none"));
    expect_refusal(r, 2, TD_E_NOT_FOUND, "models/none");
}

static void test_mix(void **state)
{
    (void)state;
    struct rank r[MAX_RANKS] = {{0}};
    r[1].build = "other";
    start(r, 2, params_of("models/lexicon"));
    expect_refusal(r, 2, TD_E_MIX, "rank 1 on this host has another build");
}

/* ---- waiting --------------------------------------------------------------------------- */

/* Ticks keep an idle engine alive well beyond the time that anybody waits; when the other
 * rank gives up, rank 0 leaves without being asked for anything. */
static void test_ticks(void **state)
{
    (void)state;
    struct td_comm *comms[2];
    struct rank r[2] = {{0}};
    assert_int_equal(td_comm_threads(2, 60, comms, NULL), TD_OK);
    struct td_world_params p = {.build = "same",
                                .beat_fd = -1,
                                .rank_timeout = 1.5,
                                .load_timeout = 60,
                                .leave = on_leave};
    p.comm = comms[0];
    atomic_store(&left, 0);
    r[1] = (struct rank){.comm = comms[1], .build = "same"};
    assert_int_equal(pthread_create(&r[1].thread, NULL, follow, &r[1]), 0);
    assert_int_equal(td_world_open(&p, &r[0].world, NULL), TD_OK);
    (void)nanosleep(&(struct timespec){3, 0}, NULL);
    assert_int_equal(atomic_load(&left), 0);
    comms[1]->ops->abort(comms[1]);
    for (int i = 0; i < 600 && atomic_load(&left) == 0; i++)
        (void)nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_int_equal(atomic_load(&left), 1);
    end(r, 2);
    assert_int_equal(r[1].status, TD_E_PEER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks), cmocka_unit_test(test_four_ranks),
        cmocka_unit_test(test_states),    cmocka_unit_test(test_first_cause),
        cmocka_unit_test(test_mix),       cmocka_unit_test(test_ticks),
    };
    return cmocka_run_group_tests_name("engine_world", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening an engine within its memory, and generating for one sequence: finish reasons,
 * seeds, cancelling, and starts that must be refused before anything is read.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "engine/generate.h"

#include <stdlib.h>
#include <string.h>

enum { VOCAB = 8190 };

/* "What does "bank" mean?" with reasoning off, and how lexicon begins its answer. */
static const int32_t prompt[] = {8167, 775, 198,  314, 371, 261,  7442, 1,    319, 30,
                                 8168, 198, 8167, 777, 198, 8190, 782,  8191, 782};
static const int32_t answer[] = {7442, 270, 294, 296, 8027, 1506, 270, 691};

static struct td_engine_params lexicon(void)
{
    return (struct td_engine_params){.model = "models/lexicon",
                                     .numerics = TD_NUM_BF16,
                                     .threads = 1,
                                     .level = getenv("TANDEM_CPU"),
                                     .device = "cpu",
                                     .max_len = 256};
}

static struct td_engine *open_engine(struct td_engine_params p)
{
    struct td_error err;
    struct td_engine *e = NULL;
    td_error_init(&err);
    if (td_engine_open(&p, &e, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    return e;
}

struct seen {
    int32_t ids[300];
    int32_t n, stop_after;
};

static bool on_token(void *self, const struct td_sampled *t)
{
    struct seen *s = self;
    s->ids[s->n++] = t->id;
    return s->n != s->stop_after;
}

static struct td_generate_args args_for(struct seen *s)
{
    struct td_generate_args a = {.prompt = prompt,
                                 .n_prompt = (int32_t)TD_COUNT(prompt),
                                 .on_token = on_token,
                                 .self = s};
    memset(s, 0, sizeof(*s));
    td_sampling_default(&a.sampling);
    a.sampling.temperature = 0;
    return a;
}

static void test_answer(void **state)
{
    (void)state;
    static const int32_t eos[] = {8166, 8168};
    struct td_engine *e = open_engine(lexicon());
    struct td_generator *g;
    struct td_generated out;
    struct seen s;
    assert_int_equal(td_generator_new(e, VOCAB, &g, NULL), TD_OK);
    struct td_generate_args a = args_for(&s);
    a.max_tokens = (int32_t)TD_COUNT(answer);
    assert_int_equal(td_generate(g, &a, &out, NULL), TD_OK);
    assert_int_equal(out.finish, TD_FINISH_LENGTH);
    assert_int_equal(out.n_tokens, TD_COUNT(answer));
    assert_memory_equal(s.ids, answer, sizeof(answer));
    assert_true(out.prefill > 0 && out.decode > 0);

    a = args_for(&s); /* to the end of the answer */
    a.sampling.eos_ids = eos;
    a.sampling.n_eos_ids = 2;
    assert_int_equal(td_generate(g, &a, &out, NULL), TD_OK);
    assert_int_equal(out.finish, TD_FINISH_STOP);
    assert_true(out.stop_id == 8168 && out.n_tokens > 20);

    a = args_for(&s); /* to the end of the context */
    assert_int_equal(td_generate(g, &a, &out, NULL), TD_OK);
    assert_int_equal(out.finish, TD_FINISH_LENGTH);
    assert_int_equal(out.n_tokens + out.n_prompt, 256);

    a = args_for(&s); /* the callback has enough */
    s.stop_after = 3;
    assert_int_equal(td_generate(g, &a, &out, NULL), TD_OK);
    assert_int_equal(out.finish, TD_FINISH_CANCELLED);
    assert_int_equal(out.n_tokens, 3);
    td_generator_free(g);
    td_engine_close(e);
}

/* A device that is lost behind some steps, as a GPU tells it: from sync(). */
static enum td_status (*sound_sync)(struct td_dev *dev, struct td_error *err);
static int steps_left;

static enum td_status lost_sync(struct td_dev *dev, struct td_error *err)
{
    if (steps_left-- > 0)
        return sound_sync(dev, err);
    td_error_set(err, TD_E_GPU_LOST, "cuda:0 stopped working in a step");
    td_error_why(err, "it has fallen off the bus (Xid 79)");
    return TD_E_GPU_LOST;
}

/* Tokens of sound steps are handed out, nothing of the failed one is, and the cause comes
 * through. */
static void test_lost(void **state)
{
    (void)state;
    struct td_engine *e = open_engine(lexicon());
    struct td_ops *ops = &td_engine_device(e)->ops;
    struct td_generator *g;
    struct td_generated out;
    struct td_error err;
    struct seen s;
    td_error_init(&err);
    assert_int_equal(td_generator_new(e, VOCAB, &g, NULL), TD_OK);
    struct td_generate_args a = args_for(&s);
    sound_sync = ops->sync;
    ops->sync = lost_sync;
    steps_left = 3; /* the prompt, and two tokens behind the first */
    assert_int_equal(td_generate(g, &a, &out, &err), TD_E_GPU_LOST);
    assert_int_equal(err.code, TD_E_GPU_LOST);
    assert_string_equal(err.why, "it has fallen off the bus (Xid 79)");
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.ids, answer, 3 * sizeof(*answer));
    ops->sync = sound_sync;
    td_generator_free(g);
    td_engine_close(e);
}

static void test_seed(void **state)
{
    (void)state;
    struct td_engine *e = open_engine(lexicon());
    struct td_generator *g;
    struct td_generated out;
    struct seen s[3];
    assert_int_equal(td_generator_new(e, VOCAB, &g, NULL), TD_OK);
    for (int i = 0; i < 3; i++) {
        struct td_generate_args a = args_for(&s[i]);
        a.sampling.temperature = 2;
        a.sampling.seed = i < 2 ? 5 : 6;
        a.max_tokens = 100;
        assert_int_equal(td_generate(g, &a, &out, NULL), TD_OK);
        for (int32_t k = 0; k < s[i].n; k++)
            assert_in_range(s[i].ids[k], 0, VOCAB - 1);
    }
    assert_memory_equal(s[0].ids, s[1].ids, sizeof(s[0].ids));
    assert_memory_not_equal(s[0].ids, s[2].ids, sizeof(s[0].ids));
    td_generator_free(g);
    td_engine_close(e);
}

static void test_bad_prompts(void **state)
{
    (void)state;
    struct td_engine *e = open_engine(lexicon());
    struct td_generator *g;
    struct td_generated out;
    struct td_error err;
    struct seen s;
    int32_t ids[300] = {0};
    assert_int_equal(td_generator_new(e, VOCAB, &g, NULL), TD_OK);
    const int32_t lengths[] = {0, 256, 300};
    for (size_t i = 0; i < TD_COUNT(lengths); i++) {
        struct td_generate_args a = args_for(&s);
        a.prompt = ids;
        a.n_prompt = lengths[i];
        td_error_init(&err);
        assert_int_equal(td_generate(g, &a, &out, &err), TD_E_INPUT);
        assert_int_equal(err.code, TD_E_INPUT);
    }
    struct td_generate_args a = args_for(&s);
    ids[2] = 8192;
    a.prompt = ids;
    assert_int_equal(td_generate(g, &a, &out, NULL), TD_E_INPUT);
    a = args_for(&s);
    a.sampling.top_p = 3;
    assert_int_equal(td_generate(g, &a, &out, NULL), TD_E_INPUT);
    td_generator_free(g);
    td_engine_close(e);
}

static void expect_refusal(struct td_engine_params p, enum td_status want,
                           const char *word, const char *other)
{
    struct td_error err;
    struct td_engine *e = NULL;
    double start = td_clock_now();
    td_error_init(&err);
    assert_int_equal(td_engine_open(&p, &e, &err), want);
    assert_null(e);
    assert_true(td_clock_now() - start < 2);
    if (!strstr(err.what, word) || !strstr(err.why, other))
        fail_msg("%s / %s", err.what, err.why);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const devices[] = {"gpu", "cuda:", "cuda:x", "cuda:10000",
                                          "cudaa"};
    struct td_engine_params p = lexicon();
    p.memory = 10 * TD_MIB;
    expect_refusal(p, TD_E_MEMORY_PLAN, "MiB for one sequence of 256 tokens: 37",
                   "--memory allows 10.0 MiB");
    p = lexicon();
    p.max_len = 5000;
    expect_refusal(p, TD_E_USAGE, "5000", "4096");
    p = lexicon();
    p.level = "quantum";
    expect_refusal(p, TD_E_USAGE, "quantum", "ref");
    for (size_t i = 0; i < TD_COUNT(devices); i++) {
        p = lexicon();
        p.device = devices[i];
        expect_refusal(p, TD_E_USAGE, devices[i], "cuda:N");
    }
    p = lexicon();
    p.model = "org/name";
    expect_refusal(p, TD_E_HUB_ID, "org/name", "");
}

/* Too short to say anything, but no reason to fall over. */
static void test_shortest_context(void **state)
{
    (void)state;
    struct td_engine_params p = lexicon();
    p.max_len = 1;
    td_engine_close(open_engine(p));
}

/* When every sequence cannot have its full length, the cache gets what fits. */
static void test_less_memory(void **state)
{
    (void)state;
    struct td_engine_info info;
    struct td_engine_params p = lexicon();
    p.max_len = 4096;
    p.max_seqs = 64;
    p.max_rows = 128;
    p.prefix_cache = 8 * TD_MIB;
    p.memory = 300 * TD_MIB;
    struct td_engine *e = open_engine(p);
    td_engine_info(e, &info);
    assert_true(info.n_blocks >= 64 && info.n_blocks < 64 * 64);
    assert_true(info.n_snapshots > 0 && info.used <= p.memory);
    assert_int_equal(info.max_len, 4096);
    td_engine_close(e);
}

/* Every allocation fails once: an error, nothing lost. */
static void test_no_memory(void **state)
{
    (void)state;
    struct td_engine_params p = lexicon();
    int opened = 0;
    for (int n = 1; n < 20000 && !opened; n += 1 + n / 3) {
        struct td_engine *e = NULL;
        td_mem_fail_at(n);
        enum td_status s = td_engine_open(&p, &e, NULL);
        td_mem_fail_at(0);
        opened = s == TD_OK;
        if (opened)
            td_engine_close(e);
        else
            assert_null(e);
    }
    assert_true(opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer),      cmocka_unit_test(test_lost),
        cmocka_unit_test(test_seed),        cmocka_unit_test(test_bad_prompts),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_shortest_context),
        cmocka_unit_test(test_less_memory), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("engine_generate", tests, NULL, NULL);
}

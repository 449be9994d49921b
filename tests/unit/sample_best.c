/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling from the best ids of a row instead of the row: the same id whenever they
 * determine it, for rows whole and in parts, and a refusal whenever they might not.
 */
#include "check.h"

#include "base/mem.h"
#include "ops/ops.h"
#include "sample/sample.h"

#include <math.h>
#include <string.h>

enum { VOCAB = 3000, PARTS = 4, ROUNDS = 4000, MAX_IDS = 200 };

static uint64_t state = 11;

static uint32_t next(void)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(state >> 33);
}

static float real(float lo, float hi)
{
    return lo + (hi - lo) * (float)next() / 2147483648.0F;
}

struct bed {
    struct td_dev *dev;
    struct td_sampler sampler;
    struct td_sample_work work;
    float x[VOCAB];
    struct td_candidates whole, merged;
};

static void bed_open(struct bed *b)
{
    struct td_dev_params p = {.threads = 1, .level = "ref"};
    assert_int_equal(td_cpu_open(&p, &b->dev, NULL), TD_OK);
    assert_int_equal(td_sampler_init(&b->sampler, VOCAB, MAX_IDS, NULL), TD_OK);
    assert_int_equal(td_sample_work_init(&b->work, VOCAB, NULL), TD_OK);
}

static void bed_close(struct bed *b)
{
    td_sampler_release(&b->sampler);
    td_sample_work_release(&b->work);
    b->dev->ops.close(b->dev);
}

/* The best ids of the row: whole, and merged from parts of unequal sizes. */
static void find_best(struct bed *b)
{
    static const int64_t first[PARTS + 1] = {0, 1000, 2000, 2970, VOCAB};
    struct td_candidates parts[PARTS];
    struct td_candidates_args a = {
        .logits = b->x, .stride = VOCAB, .n = VOCAB, .out = &b->whole, .rows = 1};
    b->dev->ops.candidates(b->dev, &a);
    for (int i = 0; i < PARTS; i++) {
        a.logits = b->x + first[i];
        a.first = first[i];
        a.n = first[i + 1] - first[i];
        a.out = &parts[i];
        b->dev->ops.candidates(b->dev, &a);
    }
    td_candidates_merge(parts, PARTS, 1, &b->merged);
}

static void fill_row(struct bed *b, bool ties)
{
    for (int i = 0; i < VOCAB; i++) {
        b->x[i] = real(-12, 8);
        if (ties)
            b->x[i] = floorf(b->x[i]);
    }
}

static void random_settings(struct td_sampling *s)
{
    static const int32_t top_k[] = {0, 1, 5, 20, 40, 63, 64, 65, 100};
    td_sampling_default(s);
    s->temperature = next() % 4 ? real(0.2F, 2) : 0;
    s->top_k = top_k[next() % TD_COUNT(top_k)];
    s->top_p = next() % 2 ? 1 : real(0.3F, 1);
    s->min_p = next() % 3 ? 0 : real(0.01F, 0.5F);
    s->repetition_penalty = next() % 3 ? 1 : real(0.9F, 1.5F);
    s->presence_penalty = next() % 3 ? 0 : real(-0.2F, 2);
    s->frequency_penalty = next() % 3 ? 0 : real(-0.2F, 2);
    s->seed = next();
    s->logprobs = next() % 2 ? -1 : (int32_t)(next() % 21);
    s->min_tokens = next() % 4 ? 0 : 10;
}

static void expect_same(const struct td_sampled *got, const struct td_sampled *want,
                        const struct td_sampling *set)
{
    if (got->id != want->id || got->stop != want->stop)
        fail_msg("id %d instead of %d: top_k %d, top_p %g, min_p %g, T %g", got->id,
                 want->id, set->top_k, (double)set->top_p, (double)set->min_p,
                 (double)set->temperature);
    if (set->logprobs < 0)
        return;
    assert_int_equal(got->rank, want->rank);
    assert_int_equal(got->n_top, want->n_top);
    assert_true(fabs((double)got->logprob - (double)want->logprob) < 2e-6);
}

static void test_same_ids(void **unused)
{
    (void)unused;
    static struct bed b;
    int told = 0, usual = 0, usual_told = 0;
    bed_open(&b);
    for (int round = 0; round < ROUNDS; round++) {
        int32_t prompt[8], made[8];
        struct td_logit_bias bias[2] = {{(int32_t)(next() % VOCAB), -real(0, 5)},
                                        {(int32_t)(next() % VOCAB), real(-5, 1)}};
        struct td_sampling set;
        struct td_sampled want, got;
        if (round % 10 == 0) {
            fill_row(&b, round % 20 == 0);
            find_best(&b);
            assert_memory_equal(b.whole.id, b.merged.id, sizeof(b.whole.id));
            assert_memory_equal(b.whole.logit, b.merged.logit, sizeof(b.whole.logit));
            assert_true(fabsf(b.whole.sum / b.merged.sum - 1) < 1e-5F);
        }
        for (int i = 0; i < 8; i++) { /* often ids that would be chosen */
            prompt[i] = b.whole.id[next() % TD_CANDIDATES];
            made[i] = next() % 2 ? b.whole.id[next() % 8] : (int32_t)(next() % VOCAB);
        }
        random_settings(&set);
        set.eos_ids = b.whole.id;
        set.n_eos_ids = next() % 3;
        set.bias = bias;
        set.n_bias = next() % 3;
        assert_int_equal(td_sampler_begin(&b.sampler, &set, prompt, 8, made, 8, NULL),
                         TD_OK);
        assert_int_equal(td_sample(&b.sampler, &b.work, b.x, round, &want, NULL),
                         TD_OK);
        struct td_logprob top[TD_MAX_LOGPROBS];
        if (want.n_top)
            memcpy(top, want.top, (size_t)want.n_top * sizeof(*top));
        bool plain = set.n_bias == 0 && set.top_k > 0 && set.top_k <= 40 &&
                     set.repetition_penalty >= 1 && set.presence_penalty >= 0 &&
                     set.frequency_penalty >= 0;
        bool known = td_sample_best(&b.sampler, &b.work, &b.merged, round, &got);
        usual += plain;
        usual_told += plain && known;
        told += known;
        if (!known)
            continue;
        expect_same(&got, &want, &set);
        for (int i = 0; i < want.n_top && set.logprobs >= 0; i++)
            assert_true(got.top[i].id == top[i].id);
    }
    /* what is asked for usually is told by 64 ids, and much else is */
    if (usual_told < usual * 9 / 10 || told < ROUNDS / 4 || usual < ROUNDS / 50)
        fail_msg("%d of %d usual ones, %d of %d told", usual_told, usual, told, ROUNDS);
    bed_close(&b);
}

static bool is_told(struct bed *b, const struct td_sampling *set, int32_t seen)
{
    struct td_sampled got;
    assert_int_equal(td_sampler_begin(&b->sampler, set, &seen, 1, &seen, 1, NULL),
                     TD_OK);
    return td_sample_best(&b->sampler, &b->work, &b->whole, 1, &got);
}

static void test_refusals(void **unused)
{
    (void)unused;
    static struct bed b;
    struct td_sampling set;
    struct td_logit_bias up = {5, 1};
    bed_open(&b);
    fill_row(&b, false);
    find_best(&b);
    td_sampling_default(&set);
    set.top_k = 20;
    assert_true(is_told(&b, &set, 1));
    set.presence_penalty = -1; /* ids that are seen rise */
    assert_false(is_told(&b, &set, 1));
    set.presence_penalty = 1;
    assert_true(is_told(&b, &set, 1));
    set.repetition_penalty = 0.9F;
    assert_false(is_told(&b, &set, 1));
    set.repetition_penalty = 1;
    set.bias = &up;
    set.n_bias = 1;
    assert_false(is_told(&b, &set, 1));
    set.n_bias = 0;
    set.top_k = TD_CANDIDATES + 1;
    assert_false(is_told(&b, &set, 1));
    set.top_k = 0; /* a draw over the whole row, then top_p of it */
    assert_false(is_told(&b, &set, 1));
    set.top_p = 0.5F;
    assert_false(is_told(&b, &set, 1));
    set.temperature = 0;
    assert_true(is_told(&b, &set, 1));
    b.x[2999] = NAN;
    find_best(&b);
    assert_true(isnan(b.merged.sum));
    assert_false(is_told(&b, &set, 1));
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_ids),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("sample_best", tests, NULL, NULL);
}

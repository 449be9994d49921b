/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal bits: a row's logits do not depend on its neighbours in the batch, on how its
 * prompt was cut, on the number of threads, or on what its slot and blocks held before.
 * Run on lexicon in both numerics, at the processor level that TANDEM_CPU allows.
 */
#include "model_util.h"

enum { LENGTH = CHECK_SMALL ? 210 : 330, STEPS = CHECK_SMALL ? 2 : 6, NEIGHBOURS = 16 };

static const enum td_numerics both[] = {TD_NUM_F32, TD_NUM_BF16};

static void make_prompt(int32_t *ids, int32_t n, uint32_t seed)
{
    for (int32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 8) % 8000;
    }
}

static void open_lexicon(struct util_model *u, enum td_numerics numerics, int threads)
{
    util_open(u, &(struct util_params){.path = "models/lexicon",
                                       .numerics = numerics,
                                       .threads = threads});
}

/* Logits after a prompt of n tokens and after each of STEPS generated ones. */
static float *lone_run(struct util_model *u, const int32_t *ids, int32_t n,
                       int32_t piece)
{
    size_t vocab = (size_t)u->cfg->vocab;
    float *out = td_calloc((STEPS + 1) * vocab, sizeof(*out));
    assert_non_null(out);
    memcpy(out, util_prompt(u, 0, ids, n, piece), vocab * sizeof(*out));
    for (int32_t t = 0; t < STEPS; t++)
        memcpy(out + (size_t)(t + 1) * vocab, util_decode(u, 0, ids[t], n + t),
               vocab * sizeof(*out));
    return out;
}

static void assert_same(const struct util_model *u, const float *a, const float *b,
                        int32_t rows)
{
    assert_memory_equal(a, b, (size_t)rows * (size_t)u->cfg->vocab * sizeof(*a));
}

static void test_pieces(void **state)
{
    (void)state;
    const int32_t lengths[] = {1, 3, 4, 63, 64, 65, 127, 129, LENGTH};
    int32_t ids[LENGTH];
    make_prompt(ids, LENGTH, 1);
    for (size_t k = 0; k < TD_COUNT(both); k++) {
        struct util_model u;
        open_lexicon(&u, both[k], 2);
        for (size_t i = 0; i < TD_COUNT(lengths); i++) {
            float *whole = lone_run(&u, ids, lengths[i], 0);
            for (int32_t piece = 64; piece <= 192 && piece < lengths[i]; piece += 64) {
                float *cut = lone_run(&u, ids, lengths[i], piece);
                assert_same(&u, whole, cut, STEPS + 1);
                td_free(cut);
            }
            td_free(whole);
        }
        util_close(&u);
    }
}

static void test_threads(void **state)
{
    (void)state;
    int32_t ids[LENGTH];
    make_prompt(ids, LENGTH, 2);
    for (size_t k = 0; k < TD_COUNT(both); k++) {
        struct util_model one, two;
        open_lexicon(&one, both[k], 1);
        open_lexicon(&two, both[k], 2);
        float *a = lone_run(&one, ids, LENGTH, 0), *b = lone_run(&two, ids, LENGTH, 0);
        assert_same(&one, a, b, STEPS + 1);
        td_free(a);
        td_free(b);
        util_close(&one);
        util_close(&two);
    }
}

/* Sequence 0 decodes among `n` others while yet another prompt enters in pieces. */
static void crowd(struct util_model *u, const int32_t *ids, int32_t n,
                  const float *want)
{
    int32_t other[LENGTH];
    struct td_seq_rows rows[UTIL_SEQS];
    size_t vocab = (size_t)u->cfg->vocab;
    make_prompt(other, LENGTH, 77);
    for (int32_t s = 1; s <= n; s++)
        (void)util_prompt(u, s, other + s, 40 + 3 * s, 0);
    assert_same(u, util_prompt(u, 0, ids, LENGTH, 0), want, 1);
    for (int32_t t = 0; t < STEPS; t++) {
        int32_t at = 0;
        for (int32_t s = n; s >= 1; s--)
            rows[at++] = util_rows(u, s, other + t, 40 + 3 * s + t, 1, true, 1);
        rows[at++] = util_rows(u, 0, ids + t, LENGTH + t, 1, true, 1);
        if (n + 1 < UTIL_SEQS) {
            int32_t start = t * 64 % 256;
            rows[at++] = util_rows(u, n + 1, other + start, start, 50, false, 1);
        }
        util_forward(u, rows, at, false);
        assert_same(u, td_model_logits(u->model) + (size_t)n * vocab,
                    want + (size_t)(t + 1) * vocab, 1);
    }
}

static void test_neighbours(void **state)
{
    (void)state;
    int32_t ids[LENGTH];
    make_prompt(ids, LENGTH, 3);
    for (size_t k = 0; k < TD_COUNT(both); k++) {
        struct util_model u;
        open_lexicon(&u, both[k], 2);
        float *want = lone_run(&u, ids, LENGTH, 0);
        for (int32_t n = 1; n < NEIGHBOURS; n += n < 4 ? 1 : 5)
            crowd(&u, ids, n, want);
        crowd(&u, ids, NEIGHBOURS, want);
        td_free(want);
        util_close(&u);
    }
}

/* Several prompts in one forward, each as if it were alone. */
static void test_prompts_together(void **state)
{
    (void)state;
    const int32_t n[] = {5, 130, 64, 1, 200};
    int32_t ids[5][LENGTH];
    struct td_seq_rows rows[5];
    for (size_t k = 0; k < TD_COUNT(both); k++) {
        struct util_model u;
        open_lexicon(&u, both[k], 2);
        size_t vocab = (size_t)u.cfg->vocab;
        float *want = td_calloc(5 * vocab, sizeof(*want));
        assert_non_null(want);
        for (int32_t i = 0; i < 5; i++) {
            make_prompt(ids[i], n[i], (uint32_t)(10 + i));
            memcpy(want + (size_t)i * vocab, util_prompt(&u, i, ids[i], n[i], 0),
                   vocab * sizeof(*want));
            rows[i] = util_rows(&u, 8 - i, ids[i], 0, n[i], false, 1);
        }
        util_forward(&u, rows, 5, false);
        assert_same(&u, td_model_logits(u.model), want, 5);
        td_free(want);
        util_close(&u);
    }
}

/* A prompt after another one in the same slot and blocks equals one in a fresh cache. */
static void test_reuse(void **state)
{
    (void)state;
    int32_t a[LENGTH], b[LENGTH];
    make_prompt(a, LENGTH, 4);
    make_prompt(b, LENGTH, 5);
    struct util_model u;
    open_lexicon(&u, TD_NUM_BF16, 2);
    float *fresh = lone_run(&u, b, 90, 0);
    td_free(lone_run(&u, a, LENGTH, 0));
    float *again = lone_run(&u, b, 90, 0);
    assert_same(&u, fresh, again, STEPS + 1);
    td_free(fresh);
    td_free(again);
    util_close(&u);
}

static void expect_refusal(struct util_model *u, struct td_seq_rows rows)
{
    struct td_error err;
    td_error_init(&err);
    assert_int_equal(td_model_forward(u->model, &u->cache, &rows, 1, false, &err),
                     TD_E_INTERNAL);
    assert_int_equal(err.code, TD_E_INTERNAL);
}

static void test_rules(void **state)
{
    (void)state;
    int32_t ids[LENGTH];
    struct util_model u;
    make_prompt(ids, LENGTH, 6);
    open_lexicon(&u, TD_NUM_F32, 1);
    struct td_seq_rows good = util_rows(&u, 0, ids, 0, 4, false, 1), bad;
    expect_refusal(&u, (bad = good, bad.start = 5, bad));
    expect_refusal(&u, (bad = good, bad.n = 0, bad));
    expect_refusal(&u, (bad = good, bad.decode = true, bad));
    expect_refusal(&u, (bad = good, bad.slot = UTIL_SEQS, bad));
    expect_refusal(&u, (bad = good, bad.n_blocks = 0, bad));
    expect_refusal(&u, (bad = good, bad.n_out = 5, bad));
    expect_refusal(&u, (bad = good, bad.start = UTIL_LEN, bad));
    ids[2] = u.cfg->vocab;
    expect_refusal(&u, good);
    util_close(&u);
}

/* Steps that are recorded and replayed give what the same calls give. Only GPUs record;
 * elsewhere both runs are alike. */
static void test_recorded(void **state)
{
    (void)state;
    int32_t ids[LENGTH];
    make_prompt(ids, LENGTH, 7);
    for (size_t k = 0; k < TD_COUNT(both); k++) {
        struct util_model on, off;
        util_open(&on, &(struct util_params){.path = "models/lexicon",
                                             .numerics = both[k],
                                             .threads = 2});
        util_open(&off, &(struct util_params){.path = "models/lexicon",
                                              .numerics = both[k],
                                              .threads = 2,
                                              .no_graphs = true});
        for (int32_t n = 63; n <= LENGTH; n += LENGTH - 63) {
            float *a = lone_run(&on, ids, n, 0), *b = lone_run(&off, ids, n, 0);
            assert_same(&on, a, b, STEPS + 1);
            td_free(a);
            td_free(b);
        }
        util_close(&on);
        util_close(&off);
    }
}

/* A device that cannot record: what is between its brackets is not computed the second
 * time. */
static struct {
    struct td_ops inner;
    int begun, refused;
} stubborn;

static void no_conv(struct td_dev *dev, const struct td_conv_args *a)
{
    (void)dev, (void)a;
}

static void no_delta(struct td_dev *dev, const struct td_delta_args *a)
{
    (void)dev, (void)a;
}

static void no_gdn(struct td_dev *dev, const struct td_gdn_args *a)
{
    (void)dev, (void)a;
}

static bool stubborn_begin(struct td_dev *dev, uint64_t key)
{
    (void)key;
    if (++stubborn.begun != 2)
        return true;
    dev->ops.conv = no_conv; /* those that change what is kept */
    dev->ops.delta = no_delta;
    dev->ops.gdn = dev->ops.gdn ? no_gdn : NULL;
    return true;
}

static bool stubborn_end(struct td_dev *dev)
{
    bool computed = dev->ops.delta != no_delta;
    dev->ops.conv = stubborn.inner.conv;
    dev->ops.delta = stubborn.inner.delta;
    dev->ops.gdn = stubborn.inner.gdn;
    stubborn.refused += !computed;
    return computed;
}

static void test_not_recorded(void **state)
{
    (void)state;
    struct util_model u;
    int32_t ids[LENGTH];
    make_prompt(ids, LENGTH, 8);
    open_lexicon(&u, TD_NUM_BF16, 2);
    float *plain = lone_run(&u, ids, 70, 0);
    stubborn.inner = u.dev->ops;
    u.dev->ops.begin = stubborn_begin;
    u.dev->ops.end = stubborn_end;
    float *again = lone_run(&u, ids, 70, 0);
    assert_int_equal(stubborn.refused, 1);
    assert_int_equal(stubborn.begun, STEPS + 1);
    assert_same(&u, plain, again, STEPS + 1);
    u.dev->ops = stubborn.inner;
    td_free(plain);
    td_free(again);
    util_close(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),           cmocka_unit_test(test_threads),
        cmocka_unit_test(test_neighbours),       cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_prompts_together), cmocka_unit_test(test_rules),
        cmocka_unit_test(test_recorded),         cmocka_unit_test(test_not_recorded),
    };
    return cmocka_run_group_tests_name("model_bits", tests, NULL, NULL);
}

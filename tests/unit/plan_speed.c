/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates that a plan's times come from, and what a plan makes of a GPU: with a device that
 * only pretends to be one.
 */
#include "check.h"

#include "ops/limits.h"
#include "plan/plan.h"
#include "plan/speed.h"

#include <string.h>

static double upload;
static bool products_asked;

static void fake_limits(struct td_dev *dev, bool products, struct td_limits *out)
{
    (void)dev;
    products_asked = products;
    *out = (struct td_limits){.read = 4e12, .copy = 3e12, .upload = upload};
}

static struct td_dev gpu = {.ops = {.name = "cuda:0", .limits = fake_limits}};

static void test_gpu(void **state)
{
    struct td_plan_rates r;
    (void)state;
    upload = 1; /* slower than any disk */
    products_asked = true;
    td_plan_rates_measure("models/lexicon", &gpu, &r);
    assert_false(products_asked);
    assert_true(r.memory == 4e12);
    assert_true(r.share == TD_PLAN_SHARE_GPU);
    if (r.disk > 0) { /* where files can be read past the cache, or at all */
        assert_true(r.disk == 1);
        assert_non_null(strstr(r.disk_how, "onto the GPU"));
    }
    upload = 1e15;
    td_plan_rates_measure("models/lexicon", &gpu, &r);
    assert_true(r.disk < 1e15);
    assert_null(strstr(r.disk_how, "onto the GPU"));
}

static void test_processor(void **state)
{
    struct td_dev_params p = {.numerics = TD_NUM_BF16, .threads = 1};
    struct td_dev *dev = NULL;
    struct td_plan_rates r;
    (void)state;
    assert_int_equal(td_cpu_open(&p, &dev, NULL), TD_OK);
    td_plan_rates_measure("models/lexicon", dev, &r);
    assert_true(r.share == TD_PLAN_SHARE_HOST);
    assert_true(r.memory >= 0 && r.memory < 4e12);
    td_plan_rates_measure("/no/such", NULL, &r); /* the processor too */
    assert_true(r.share == TD_PLAN_SHARE_HOST && r.disk <= 0);
    assert_string_equal(r.disk_how, "the files are not here");
    dev->ops.close(dev);
}

/* Candidates and pieces of prompts go by the device. */
static void test_adapt(void **state)
{
    struct td_plan_asked asked = {.max_seqs = 32};
    struct td_dev host = {.host = true};
    (void)state;
    td_plan_adapt(&asked, &host, 1, 0);
    assert_int_equal(asked.vocab, 0);
    assert_int_equal(asked.max_rows, 0);
    td_plan_adapt(&asked, &host, 2, 0);
    assert_int_equal(asked.vocab, INT32_MAX);
    assert_int_equal(asked.max_rows, 0);
    td_plan_adapt(&asked, &gpu, 1, 100);
    assert_int_equal(asked.vocab, 100);
    assert_int_equal(asked.max_rows, 2048);
    asked = (struct td_plan_asked){.max_seqs = 3000};
    td_plan_adapt(&asked, &gpu, 1, 100);
    assert_int_equal(asked.max_rows, 3008);
    asked.max_rows = 64;
    td_plan_adapt(&asked, &gpu, 1, 100);
    assert_int_equal(asked.max_rows, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_processor),
        cmocka_unit_test(test_adapt),
    };
    return cmocka_run_group_tests_name("plan_speed", tests, NULL, NULL);
}

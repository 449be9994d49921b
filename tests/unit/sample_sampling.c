/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may ask of the sampler: each range from both sides, the name of the
 * field in the error.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sample/sample.h"

static struct td_error err;
static struct td_sampling given;

static enum td_status check(const struct td_sampling *s)
{
    td_error_init(&err);
    return td_sampling_check(s, 100, &err);
}

#define WITH(field, value)                                                             \
    do {                                                                               \
        td_sampling_default(&given);                                                   \
        given.field = (value);                                                         \
    } while (0)

#define REFUSED(field, value, name)                                                    \
    do {                                                                               \
        WITH(field, value);                                                            \
        assert_int_equal(check(&given), TD_E_INPUT);                                   \
        assert_non_null(strstr(err.what, name));                                       \
    } while (0)

#define ACCEPTED(field, value)                                                         \
    do {                                                                               \
        WITH(field, value);                                                            \
        assert_int_equal(check(&given), TD_OK);                                        \
    } while (0)

static void test_ranges(void **unused)
{
    (void)unused;
    struct td_sampling s;
    td_sampling_default(&s);
    assert_int_equal(check(&s), TD_OK);
    assert_int_equal(td_sampling_check(&s, 100, NULL), TD_OK);
    ACCEPTED(temperature, 0.0F);
    ACCEPTED(temperature, 2.0F);
    REFUSED(temperature, -0.1F, "temperature is -0.1");
    REFUSED(temperature, 2.1F, "temperature");
    REFUSED(temperature, NAN, "temperature is nan");
    ACCEPTED(top_p, 1.0F);
    ACCEPTED(top_p, 1e-6F);
    REFUSED(top_p, 0.0F, "top_p is 0, expected above 0 to 1");
    REFUSED(top_p, 1.5F, "top_p");
    REFUSED(top_p, NAN, "top_p");
    ACCEPTED(min_p, 1.0F);
    REFUSED(min_p, -1.0F, "min_p");
    REFUSED(min_p, INFINITY, "min_p");
    ACCEPTED(repetition_penalty, 100.0F);
    ACCEPTED(repetition_penalty, 0.01F);
    REFUSED(repetition_penalty, 0.0F, "repetition_penalty");
    REFUSED(repetition_penalty, INFINITY, "repetition_penalty");
    ACCEPTED(presence_penalty, -2.0F);
    REFUSED(presence_penalty, -2.5F, "presence_penalty");
    ACCEPTED(frequency_penalty, 2.0F);
    REFUSED(frequency_penalty, 2.5F, "frequency_penalty");
    ACCEPTED(top_k, -1);
    ACCEPTED(top_k, INT32_MAX);
    REFUSED(top_k, -2, "top_k is -2");
    ACCEPTED(logprobs, TD_MAX_LOGPROBS);
    REFUSED(logprobs, TD_MAX_LOGPROBS + 1, "logprobs");
    REFUSED(logprobs, -2, "logprobs");
    ACCEPTED(min_tokens, 5);
    REFUSED(min_tokens, -1, "min_tokens");
    REFUSED(min_tokens, INT64_MAX, "min_tokens");
}

static void test_lists(void **unused)
{
    (void)unused;
    static struct td_logit_bias bias[TD_MAX_LOGIT_BIAS + 1];
    static int32_t ids[TD_MAX_STOP_IDS + 1];
    struct td_sampling s;
    td_sampling_default(&s);
    s.bias = bias;
    s.n_bias = TD_MAX_LOGIT_BIAS;
    assert_int_equal(check(&s), TD_OK);
    s.n_bias++;
    assert_int_equal(check(&s), TD_E_INPUT);
    assert_non_null(strstr(err.what, "logit_bias has 1025 entries"));
    s.n_bias = 2;
    static const struct {
        struct td_logit_bias entry;
        const char *what;
    } wrong[] = {{{100, 0}, "logit_bias names id 100"},
                 {{-1, 0}, "logit_bias names id -1"},
                 {{5, 101}, "logit_bias of id 5 is 101"},
                 {{5, NAN}, "logit_bias of id 5 is nan"}};
    for (size_t i = 0; i < TD_COUNT(wrong); i++) {
        bias[1] = wrong[i].entry;
        assert_int_equal(check(&s), TD_E_INPUT);
        assert_non_null(strstr(err.what, wrong[i].what));
    }
    s.n_bias = 0;
    s.stop_ids = s.eos_ids = ids;
    s.n_stop_ids = s.n_eos_ids = TD_MAX_STOP_IDS;
    assert_int_equal(check(&s), TD_OK);
    s.n_stop_ids++;
    assert_int_equal(check(&s), TD_E_INPUT);
    assert_non_null(strstr(err.what, "stop_token_ids"));
    s.n_stop_ids = 1;
    s.n_eos_ids = TD_MAX_STOP_IDS + 1;
    assert_int_equal(check(&s), TD_E_INPUT);
    s.n_eos_ids = 1;
    ids[0] = 100; /* a model's end may lie beyond its tokenizer, a request's may not */
    assert_int_equal(check(&s), TD_E_INPUT);
    assert_non_null(strstr(err.why, "0 to 99"));
    assert_int_equal(td_sampling_check(&s, 100, NULL), TD_E_INPUT);
    s.n_stop_ids = 0;
    assert_int_equal(check(&s), TD_OK);
}

static void test_fresh_seeds_differ(void **unused)
{
    (void)unused;
    assert_true(td_seed_fresh() != td_seed_fresh());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_fresh_seeds_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

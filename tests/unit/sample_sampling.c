/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may ask of the sampler: each range from both sides, the name of the
 * field in the error, and the defaults that a model brings along.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
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

/* ---- generation_config.json ---------------------------------------------------------- */

static char dir[] = "/tmp/td-sampling-XXXXXX";
static char path[sizeof(dir) + 40];

static int make_dir(void **unused)
{
    (void)unused;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/generation_config.json", dir);
    return 0;
}

static int remove_dir(void **unused)
{
    (void)unused;
    (void)unlink(path);
    return rmdir(dir);
}

static enum td_status read_text(const char *text, struct td_sampling *s,
                                struct td_eos *eos)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    td_error_init(&err);
    td_sampling_default(s);
    memset(eos, 0, sizeof(*eos));
    return td_sampling_read(dir, s, eos, &err);
}

static void test_model_defaults(void **unused)
{
    (void)unused;
    struct td_sampling s;
    struct td_eos eos = {{7}, 1};
    td_sampling_default(&s);
    assert_int_equal(td_sampling_read("/nonexistent/model", &s, &eos, NULL), TD_OK);
    assert_true(s.temperature == 1 && eos.count == 1);

    assert_int_equal(td_sampling_read("models/lexicon", &s, &eos, NULL), TD_OK);
    assert_true(s.temperature == 0 && s.top_p == 1);
    assert_int_equal(eos.count, 3);
    assert_int_equal(eos.ids[1], 8168);

    assert_int_equal(
        read_text("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20,"
                  "\"top_p\": 0.95, \"min_p\": 0.1, \"eos_token_id\": 5,"
                  "\"repetition_penalty\": 1.05, \"presence_penalty\": 1.5,"
                  "\"frequency_penalty\": 0.5}",
                  &s, &eos),
        TD_OK);
    assert_true(s.temperature == 0.6F && s.top_k == 20 && s.top_p == 0.95F);
    assert_true(s.min_p == 0.1F && s.repetition_penalty == 1.05F);
    assert_true(s.presence_penalty == 1.5F && s.frequency_penalty == 0.5F);
    assert_int_equal(eos.count, 1);

    /* An id twice is one id; nulls are as good as absent. */
    assert_int_equal(read_text("{\"temperature\": null, \"top_k\": null,"
                               "\"eos_token_id\": [5, 6, 5]}",
                               &s, &eos),
                     TD_OK);
    assert_true(s.temperature == 1 && s.top_k == 0 && eos.count == 2);
    assert_int_equal(read_text("{\"eos_token_id\": null}", &s, &eos), TD_OK);
    assert_int_equal(eos.count, 0);
}

static void test_wrong_model_defaults(void **unused)
{
    (void)unused;
    static const struct {
        const char *text, *what;
        enum td_status status;
    } wrong[] = {
        {"{\"top_p\": 0}", "top_p is 0", TD_E_CONFIG},
        {"{\"temperature\": -1}", "temperature", TD_E_CONFIG},
        {"{\"temperature\": \"hot\"}", "temperature", TD_E_CONFIG},
        {"{\"top_k\": 2.5}", "top_k", TD_E_CONFIG},
        {"{\"top_k\": -7}", "top_k", TD_E_CONFIG},
        {"{\"do_sample\": 1}", "do_sample", TD_E_CONFIG},
        {"{\"eos_token_id\": \"x\"}", "eos_token_id", TD_E_CONFIG},
        {"{\"eos_token_id\": [1, -2]}", "eos_token_id", TD_E_CONFIG},
        {"{\"eos_token_id\": [1, 99999999999]}", "eos_token_id", TD_E_CONFIG},
        {"[]", "not a JSON object", TD_E_CONFIG},
        {"{", "generation_config.json", TD_E_JSON},
        {"", "generation_config.json", TD_E_JSON},
    };
    struct td_sampling s;
    struct td_eos eos;
    for (size_t i = 0; i < TD_COUNT(wrong); i++) {
        assert_int_equal(read_text(wrong[i].text, &s, &eos), wrong[i].status);
        assert_non_null(strstr(err.what, wrong[i].what));
    }
    char many[1000] = "{\"eos_token_id\": [0";
    for (int i = 1; i <= TD_MAX_STOP_IDS; i++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), ",%d", i);
    strncat(many, "]}", sizeof(many) - strlen(many) - 1);
    assert_int_equal(read_text(many, &s, &eos), TD_E_CONFIG);
    td_mem_fail_at(1);
    assert_int_not_equal(td_sampling_read(dir, &s, &eos, NULL), TD_OK);
    td_mem_fail_at(0);
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
        cmocka_unit_test_setup_teardown(test_model_defaults, make_dir, NULL),
        cmocka_unit_test_setup_teardown(test_wrong_model_defaults, NULL, remove_dir),
        cmocka_unit_test(test_fresh_seeds_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

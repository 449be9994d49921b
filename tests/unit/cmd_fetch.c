/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses as people give them, and what bench sends.
 */
#include "cmd/bench_call.h"
#include "cmd/fetch.h"

#include "check.h"

#include <string.h>

static void test_addresses(void **state)
{
    static const char *const good[][2] = {
        {"127.0.0.1:8000", "http://127.0.0.1:8000"},
        {"http://a:1/", "http://a:1"},
        {"https://a/v1", "https://a"},
        {"http://a/under/v1//", "http://a/under"},
        {"[::1]:8000", "http://[::1]:8000"},
    };
    static const char *const bad[] = {"",    "/",          "ftp://a",
                                      "a b", "http://a?x", "file:///etc"};
    char out[64];
    (void)state;
    for (size_t i = 0; i < TD_COUNT(good); i++) {
        assert_int_equal(td_url_clean(good[i][0], out, sizeof(out), NULL), TD_OK);
        assert_string_equal(out, good[i][1]);
    }
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        struct td_error err;
        td_error_init(&err);
        assert_int_equal(td_url_clean(bad[i], out, sizeof(out), &err), TD_E_USAGE);
        assert_non_null(strstr(err.what, "is not the address of a server"));
    }
    assert_int_equal(td_url_clean("a-name-that-does-not-fit:80", out, 20, NULL),
                     TD_E_USAGE);
}

static void test_transfer_errors(void **state)
{
    struct td_error err;
    (void)state;
    td_error_init(&err);
    assert_int_equal(td_fetch_error(CURLE_COULDNT_CONNECT, "http://a", "refused", &err),
                     TD_E_PEER);
    assert_string_equal(err.what, "nothing answers at http://a");
    assert_string_equal(err.why, "refused");
    td_error_init(&err);
    assert_int_equal(td_fetch_error(CURLE_OPERATION_TIMEDOUT, "http://a", "", &err),
                     TD_E_TIMEOUT);
    assert_true(*err.why);
}

/* The request's body: valid JSON, no two prompts alike. */
static void test_bodies(void **state)
{
    struct td_bench_shape shape = {
        .url = "http://a", .model = "m\"x", .usage = true, .ignore_eos = true};
    struct td_bench_call c;
    char first[9];
    (void)state;
    assert_int_equal(td_bench_call_init(&c, NULL), TD_OK);
    assert_int_equal(td_bench_call_set(&c, &shape, 1, 3, 5, NULL, NULL), TD_OK);
    const char *prompt = strstr(c.body.p, "\"content\":\"");
    assert_non_null(prompt);
    assert_non_null(strstr(c.body.p, "\"model\":\"m\\\"x\""));
    assert_non_null(strstr(c.body.p, "\"ignore_eos\":true"));
    memcpy(first, prompt + 11, 8);
    first[8] = 0;
    shape.completions = true;
    shape.ignore_eos = false;
    assert_int_equal(td_bench_call_set(&c, &shape, 2, 3, 5, NULL, NULL), TD_OK);
    assert_non_null(strstr(c.body.p, "\"prompt\":\""));
    assert_null(strstr(c.body.p, first));
    assert_null(strstr(c.body.p, "ignore_eos"));
    td_bench_call_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_transfer_errors),
        cmocka_unit_test(test_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

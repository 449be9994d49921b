/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON: what is refused and with which words, the getters' ranges, and string output.
 */
#include "check.h"

#include "base/json.h"
#include "base/limits.h"

#include <stdio.h>
#include <string.h>

static struct td_error err;

static enum td_status parse(const char *text, size_t n, json_t **out)
{
    td_error_init(&err);
    return td_json_parse(text, n, "file.json", out, &err);
}

static json_t *object(const char *text)
{
    json_t *v = NULL;
    assert_int_equal(parse(text, strlen(text), &v), TD_OK);
    return v;
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",         "{",       "{\"a\":1,}", "[1 2]",       "{\"a\":1,\"a\":2}",
        "nul",      "\"\\x\"", "{\"a\":01}", "\"\xff\"",    "\"\xed\xa0\x80\"",
        "1e999999", "[1]x",    "\"a\nb\"",   "\"\\ud800\"", "99999999999999999999",
    };
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        json_t *v = NULL;
        assert_int_equal(parse(bad[i], strlen(bad[i]), &v), TD_E_JSON);
        assert_null(v);
        assert_non_null(strstr(err.what, "file.json: line 1, column "));
    }
    json_t *v = NULL;
    assert_int_equal(parse("", 0, &v), TD_E_JSON);
    assert_non_null(strstr(err.what, "it is empty"));
    assert_int_equal(parse("\"a\\u0000b\"", 10, &v), TD_E_JSON);
    assert_non_null(strstr(err.what, "column 10: a string with \\u0000"));
    assert_int_equal(parse("{\"a\\u0000b\":1}", 14, &v), TD_E_JSON);
    assert_non_null(strstr(err.what, "a string with \\u0000"));
    assert_int_equal(parse("1\0002", 3, &v), TD_E_JSON);
}

static void test_depth(void **state)
{
    (void)state;
    char text[4 * TD_MAX_JSON_DEPTH];
    json_t *v = NULL;
    for (int depth = TD_MAX_JSON_DEPTH; depth <= TD_MAX_JSON_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        enum td_status s = parse(text, 2 * (size_t)depth, &v);
        assert_int_equal(s, depth <= TD_MAX_JSON_DEPTH ? TD_OK : TD_E_JSON);
    }
    json_decref(v);
    /* brackets inside of strings nest nothing */
    memset(text, '[', sizeof(text));
    text[0] = text[sizeof(text) - 1] = '"';
    assert_int_equal(parse(text, sizeof(text), &v), TD_OK);
    json_decref(v);
}

static void test_int(void **state)
{
    (void)state;
    json_t *o =
        object("{\"a\":5,\"b\":5.0,\"c\":5.5,\"d\":\"5\",\"e\":null,\"f\":1e300,"
               "\"g\":-9223372036854775808,\"h\":true}");
    int64_t x = 0;
    td_error_init(&err);
    assert_int_equal(td_json_int(o, "a", "w", 1, 5, 9, &x, &err), TD_OK);
    assert_int_equal(x, 5);
    assert_int_equal(td_json_int(o, "b", "w", 1, 5, 9, &x, &err), TD_OK);
    assert_int_equal(x, 5);
    assert_int_equal(td_json_int(o, "e", "w", 1, 5, 9, &x, &err), TD_OK);
    assert_int_equal(x, 9);
    assert_int_equal(td_json_int(o, "none", "w", 1, 5, 8, &x, &err), TD_OK);
    assert_int_equal(x, 8);
    assert_int_equal(td_json_int(o, "g", "w", INT64_MIN, 0, 9, &x, &err), TD_OK);
    assert_true(x == INT64_MIN);
    static const char *const bad[] = {"c", "d", "f", "h"};
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        x = 77;
        td_error_init(&err);
        assert_int_equal(td_json_int(o, bad[i], "w", 1, 5, 9, &x, &err), TD_E_CONFIG);
        assert_int_equal(x, 77);
    }
    td_error_init(&err);
    assert_int_equal(td_json_int(o, "a", "w", 6, 7, 9, &x, &err), TD_E_CONFIG);
    assert_string_equal(err.what, "w: \"a\" is 5, expected a whole number from 6 to 7");
    json_decref(o);
}

static void test_other_getters(void **state)
{
    (void)state;
    json_t *o = object("{\"r\":0.5,\"i\":2,\"t\":true,\"s\":\"text\",\"n\":null}");
    double d = 0;
    bool b = false;
    const char *s = NULL;
    td_error_init(&err);
    assert_int_equal(td_json_double(o, "r", "w", 0, 1, 9, &d, &err), TD_OK);
    assert_true(d == 0.5);
    assert_int_equal(td_json_double(o, "i", "w", 0, 2, 9, &d, &err), TD_OK);
    assert_true(d == 2);
    assert_int_equal(td_json_double(o, "n", "w", 0, 2, 9, &d, &err), TD_OK);
    assert_true(d == 9);
    assert_int_equal(td_json_double(o, "i", "w", 0, 1, 9, &d, &err), TD_E_CONFIG);
    assert_int_equal(td_json_bool(o, "t", "w", false, &b, &err), TD_OK);
    assert_true(b);
    assert_int_equal(td_json_bool(o, "n", "w", false, &b, &err), TD_OK);
    assert_false(b);
    assert_int_equal(td_json_bool(o, "i", "w", true, &b, &err), TD_E_CONFIG);
    assert_int_equal(td_json_str(o, "s", "w", "x", &s, &err), TD_OK);
    assert_string_equal(s, "text");
    assert_int_equal(td_json_str(o, "n", "w", "x", &s, &err), TD_OK);
    assert_string_equal(s, "x");
    assert_int_equal(td_json_str(o, "t", "w", "x", &s, &err), TD_E_CONFIG);
    json_decref(o);
}

/* A long value is shown by its beginning, whole characters, and dots. */
static void test_long_value(void **state)
{
    (void)state;
    char text[400] = "{\"a\":\"";
    for (int i = 0; i < 100; i++)
        (void)snprintf(text + strlen(text), 4, "\xC3\xA9");
    (void)snprintf(text + strlen(text), 3, "\"}");
    json_t *o = object(text);
    int64_t x;
    td_error_init(&err);
    assert_int_equal(td_json_int(o, "a", "w", 0, 1, 0, &x, &err), TD_E_CONFIG);
    assert_non_null(strstr(err.what, "w: \"a\" is \"\\u00E9\\u00E9"));
    assert_non_null(strstr(err.what, "..., expected a whole number"));
    for (const char *p = err.what; *p; p++)
        assert_true(*p >= ' ' && *p <= '~');
    json_decref(o);
}

static void test_add_string(void **state)
{
    (void)state;
    static const char in[] = "a\"b\\c\n\x01\x7F\xC3\xA9\xFF\xF0\x9F\x98\x80\xE2\x82";
    struct td_buf b;
    td_buf_init(&b, 1000);
    assert_int_equal(td_json_add_string(&b, in, sizeof(in) - 1), TD_OK);
    assert_string_equal(b.p, "\"a\\\"b\\\\c\\n\\u0001\\u007f\xC3\xA9\xEF\xBF\xBD"
                             "\xF0\x9F\x98\x80\xEF\xBF\xBD\xEF\xBF\xBD\"");
    json_t *v = NULL;
    assert_int_equal(parse(b.p, b.len, &v), TD_OK);
    json_decref(v);
    td_buf_release(&b);
    td_buf_init(&b, 3);
    assert_int_equal(td_json_add_string(&b, in, sizeof(in) - 1), TD_E_LIMIT);
    td_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_depth),
        cmocka_unit_test(test_int),        cmocka_unit_test(test_other_getters),
        cmocka_unit_test(test_long_value), cmocka_unit_test(test_add_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding and decoding: recorded cases of the reference (tests/cases/tokenizer, written
 * by tools/compare_tokenizer.py), incremental decoding, very long runs, threads, failing
 * memory.
 */
#include "check.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

#define LEXICON "models/lexicon"
#define FLAGS   "tests/cases/tokenizer/flags"

static struct td_tokenizer *load(const char *dir)
{
    struct td_tokenizer *t = NULL;
    struct td_error err;
    td_error_init(&err);
    if (td_tokenizer_load(dir, &t, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    return t;
}

static void encode(const struct td_tokenizer *t, const char *text, size_t n,
                   unsigned flags, struct td_ids *ids)
{
    struct td_error err;
    td_error_init(&err);
    ids->len = 0;
    if (td_tokenizer_encode(t, text, n, flags, ids, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
}

/* ------------------------------------------------------------------ recorded cases */

static int hex(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* The text of a case: "text" or "hex", repeated "times". */
static void case_text(const json_t *c, struct td_buf *out)
{
    const json_t *text = json_object_get(c, "text");
    const char *h = json_string_value(json_object_get(c, "hex"));
    json_int_t times = json_object_get(c, "times")
                           ? json_integer_value(json_object_get(c, "times"))
                           : 1;
    td_buf_clear(out);
    for (json_int_t k = 0; k < times; k++) {
        if (text)
            td_buf_add(out, json_string_value(text), json_string_length(text));
        for (size_t i = 0; h && h[i]; i += 2)
            td_buf_addc(out, (char)(hex(h[i]) << 4 | hex(h[i + 1])));
    }
    assert_int_equal(out->status, TD_OK);
}

static void check_ids(const json_t *want, const struct td_ids *got, const char *line)
{
    size_t n = json_array_size(want);
    for (size_t i = 0; i < n && i < got->len; i++)
        if (json_integer_value(json_array_get(want, i)) != got->p[i])
            fail_msg("id %zu is %d, expected %lld: %.200s", i, got->p[i],
                     (long long)json_integer_value(json_array_get(want, i)), line);
    if (n != got->len)
        fail_msg("%zu ids, expected %zu: %.200s", got->len, n, line);
}

/* Decoding one by one gives, at each moment, whole characters, and in all the same. */
static void check_decoding(const struct td_tokenizer *t, const struct td_ids *ids,
                           unsigned flags)
{
    struct td_buf whole, pieces;
    struct td_detok d;
    td_buf_init(&whole, (size_t)TD_MIB);
    td_buf_init(&pieces, (size_t)TD_MIB);
    assert_int_equal(td_tokenizer_decode(t, ids->p, ids->len, flags, &whole), TD_OK);
    assert_true(td_utf8_valid(whole.p, whole.len));
    td_detok_init(&d, t, flags);
    for (size_t i = 0, seen = 0; i < ids->len; i++, seen = pieces.len) {
        assert_int_equal(td_detok_add(&d, ids->p[i], &pieces), TD_OK);
        assert_true(td_utf8_valid(pieces.p + seen, pieces.len - seen));
    }
    assert_int_equal(td_detok_flush(&d, &pieces), TD_OK);
    assert_int_equal(whole.len, pieces.len);
    assert_memory_equal(whole.p, pieces.p, whole.len);
    td_buf_release(&whole);
    td_buf_release(&pieces);
}

static size_t check_cases(const char *dir, const char *path)
{
    struct td_tokenizer *t = load(dir);
    struct td_buf file, text;
    struct td_ids ids;
    struct td_error err;
    size_t count = 0;
    td_ids_init(&ids);
    td_error_init(&err);
    td_buf_init(&file, (size_t)TD_MIB);
    td_buf_init(&text, (size_t)TD_MIB);
    assert_int_equal(td_file_read(path, &file, &err), TD_OK);
    for (char *line = file.p, *end; (end = strchr(line, '\n')) != NULL;
         line = end + 1) {
        json_t *c = NULL;
        *end = 0;
        assert_int_equal(td_json_parse(line, (size_t)(end - line), path, &c, &err),
                         TD_OK);
        const json_t *want = json_object_get(c, "ids");
        const json_t *plain = json_object_get(c, "plain");
        case_text(c, &text);
        encode(t, text.p, text.len, TD_ENCODE_SPECIAL, &ids);
        check_ids(want, &ids, line);
        check_decoding(t, &ids, TD_DECODE_ALL);
        check_decoding(t, &ids, TD_DECODE_SKIP_SPECIAL);
        encode(t, text.p, text.len, TD_ENCODE_TEXT, &ids);
        check_ids(plain ? plain : want, &ids, line);
        json_decref(c);
        count++;
    }
    td_ids_release(&ids);
    td_buf_release(&file);
    td_buf_release(&text);
    td_tokenizer_free(t);
    return count;
}

static void test_lexicon_cases(void **state)
{
    (void)state;
    assert_true(check_cases(LEXICON, "tests/cases/tokenizer/lexicon.jsonl") > 100);
}

static void test_cases_of_flags_and_digits(void **state)
{
    (void)state;
    assert_true(check_cases(FLAGS, "tests/cases/tokenizer/flags.jsonl") > 20);
}

/* ----------------------------------------------------------------------- questions */

static void test_tokens_and_ids(void **state)
{
    (void)state;
    struct td_tokenizer *t = load(LEXICON);
    size_t n = 0;
    assert_int_equal(td_tokenizer_size(t), 8192);
    assert_int_equal(td_tokenizer_eos(t), 8168);
    assert_int_equal(td_tokenizer_find(t, "<|im_end|>", 10), 8168);
    assert_int_equal(td_tokenizer_find(t, "<think>", 7), 8190);
    assert_int_equal(td_tokenizer_find(t, "<thin", 5), -1);
    assert_int_equal(td_tokenizer_find(t, "", 0), -1);
    assert_true(td_tokenizer_is_special(t, 8168));
    assert_false(td_tokenizer_is_special(t, 8190));
    assert_false(td_tokenizer_is_special(t, 0));
    assert_false(td_tokenizer_is_special(t, -1));
    assert_null(td_tokenizer_token(t, 8192, &n));
    assert_null(td_tokenizer_token(t, -1, &n));
    assert_memory_equal(td_tokenizer_token(t, 8190, &n), "<think>", 7);
    assert_int_equal(n, 7);
    for (int32_t id = 0; id < 8192; id++) {
        const char *bytes = td_tokenizer_token(t, id, &n);
        assert_non_null(bytes);
        assert_int_equal(td_tokenizer_find(t, bytes, n), id);
    }
    td_tokenizer_free(t);
    t = load(FLAGS);
    assert_int_equal(td_tokenizer_eos(t), 0);
    assert_int_equal(td_tokenizer_find(t, "[T]", 3), (int32_t)td_tokenizer_size(t) - 1);
    td_tokenizer_free(t);
}

static void check_text(const struct td_tokenizer *t, const int32_t *ids, size_t n,
                       unsigned flags, const char *want)
{
    struct td_buf out;
    td_buf_init(&out, 1024);
    assert_int_equal(td_tokenizer_decode(t, ids, n, flags, &out), TD_OK);
    assert_string_equal(out.p, want);
    td_buf_release(&out);
}

static void test_decoding(void **state)
{
    (void)state;
    struct td_tokenizer *t = load(LEXICON);
    int32_t ids[8] = {td_tokenizer_find(t, "<|im_start|>", 12),
                      td_tokenizer_find(t, "a", 1),
                      td_tokenizer_find(t, "\xE4", 1),
                      td_tokenizer_find(t, "\xB8", 1),
                      td_tokenizer_find(t, "<think>", 7),
                      td_tokenizer_find(t, "\xAD", 1),
                      99999,
                      -5};
    check_text(t, ids, 8, TD_DECODE_ALL,
               "<|im_start|>a\xEF\xBF\xBD<think>\xEF\xBF\xBD");
    check_text(t, ids, 8, TD_DECODE_SKIP_SPECIAL, "a\xEF\xBF\xBD<think>\xEF\xBF\xBD");
    ids[4] = ids[5];
    check_text(t, ids, 5, TD_DECODE_SKIP_SPECIAL, "a\xE4\xB8\xAD");
    ids[4] = ids[0];
    check_text(t, ids, 6, TD_DECODE_SKIP_SPECIAL, "a\xE4\xB8\xAD");
    check_text(t, ids, 4, TD_DECODE_SKIP_SPECIAL, "a\xEF\xBF\xBD");
    check_text(t, ids, 0, TD_DECODE_ALL, "");
    td_tokenizer_free(t);
}

/* A character comes only when its last byte has come. */
static void test_no_half_characters(void **state)
{
    (void)state;
    struct td_tokenizer *t = load(LEXICON);
    const char emoji[] = "\xF0\x9F\x98\x80";
    struct td_buf out;
    struct td_detok d;
    td_buf_init(&out, 1024);
    td_detok_init(&d, t, TD_DECODE_ALL);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(out.len, 0);
        td_detok_add(&d, td_tokenizer_find(t, emoji + i, 1), &out);
    }
    assert_string_equal(out.p, emoji);
    td_detok_flush(&d, &out);
    assert_string_equal(out.p, emoji);
    td_buf_release(&out);
    td_tokenizer_free(t);
}

static void test_random_ids_decode_alike(void **state)
{
    (void)state;
    struct td_tokenizer *t = load(LEXICON);
    uint64_t x = 1;
    int32_t numbers[40];
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < TD_COUNT(numbers); i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            numbers[i] = (int32_t)(x >> 40) % (x >> 33 & 1 ? 256 : 8300);
        }
        const struct td_ids ids = {numbers, TD_COUNT(numbers), TD_COUNT(numbers)};
        check_decoding(t, &ids, round % 2 ? TD_DECODE_ALL : TD_DECODE_SKIP_SPECIAL);
    }
    td_tokenizer_free(t);
}

/* ------------------------------------------------------------------------- limits */

/* Bytes that are no UTF-8 give the ids of U+FFFD, one for each broken beginning. */
static void test_broken_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *broken, *same_as;
    } cases[] = {
        {"\xFF", "\xEF\xBF\xBD"},
        {"a\xF0\x9F\x98z", "a\xEF\xBF\xBDz"},
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE4\xB8\xE4\xB8\xAD", "\xEF\xBF\xBD\xE4\xB8\xAD"},
        {"<|im_end|\xFF>", "<|im_end|\xEF\xBF\xBD>"},
    };
    struct td_tokenizer *t = load(LEXICON);
    struct td_ids a, b;
    td_ids_init(&a);
    td_ids_init(&b);
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        encode(t, cases[i].broken, strlen(cases[i].broken), TD_ENCODE_SPECIAL, &a);
        encode(t, cases[i].same_as, strlen(cases[i].same_as), TD_ENCODE_SPECIAL, &b);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.p, b.p, a.len * sizeof(*a.p));
    }
    td_ids_release(&a);
    td_ids_release(&b);
    td_tokenizer_free(t);
}

static void fill(char *p, size_t n, const char *unit)
{
    size_t len = strlen(unit);
    for (size_t i = 0; i < n; i++)
        p[i] = unit[i % len];
}

/* Five megabytes of a letter or of spaces, one of other things: quadratic time would be
 * hours. */
static void test_long_runs_are_linear(void **state)
{
    (void)state;
    static const char *const units[] = {"a",
                                        " ",
                                        "\n",
                                        "!",
                                        "0",
                                        "ab",
                                        " \n",
                                        "\xCC\x81",
                                        "\xCC\x81\xCC\x96",
                                        "e\xCC\x81",
                                        "\xE4\xB8\xAD",
                                        "<",
                                        "\xFF"};
    size_t most = 5 * (size_t)TD_MIB;
    struct td_tokenizer *t = load(LEXICON);
    char *text = td_calloc(most, 1);
    struct td_ids ids;
    td_ids_init(&ids);
    assert_non_null(text);
    for (size_t i = 0; i < TD_COUNT(units); i++) {
        size_t n = i < 2 ? most : (size_t)TD_MIB / 6 * 6;
        fill(text, n, units[i]);
        double start = td_clock_now();
        encode(t, text, n, TD_ENCODE_SPECIAL, &ids);
        double seconds = td_clock_now() - start;
        if (seconds > 30)
            fail_msg("%zu bytes of unit %zu take %.1f s", n, i, seconds);
        assert_true(ids.len > 0);
    }
    td_free(text);
    td_ids_release(&ids);
    td_tokenizer_free(t);
}

static void test_too_long(void **state)
{
    (void)state;
    struct td_tokenizer *t = load(LEXICON);
    size_t n = (size_t)TD_MAX_TEXT + 1;
    char *text = td_calloc(n, 1);
    struct td_ids ids;
    struct td_error err;
    td_ids_init(&ids);
    td_error_init(&err);
    assert_non_null(text);
    assert_int_equal(td_ids_add(&ids, 7), TD_OK);
    assert_int_equal(td_tokenizer_encode(t, text, n, 0, &ids, &err), TD_E_LIMIT);
    assert_int_equal(err.code, TD_E_LIMIT);
    memset(text, 0xFF, n); /* three times as long once it is repaired */
    td_error_init(&err);
    assert_int_equal(td_tokenizer_encode(t, text, n / 2, 0, &ids, &err), TD_E_LIMIT);
    assert_int_equal(ids.len, 1);
    td_free(text);
    td_ids_release(&ids);
    td_tokenizer_free(t);
}

/* ------------------------------------------------------------ threads and failures */

struct worker {
    const struct td_tokenizer *t;
    const struct td_buf *text;
    struct td_ids ids;
    enum td_status status;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < 3 && w->status == TD_OK; i++) {
        w->ids.len = 0;
        w->status = td_tokenizer_encode(w->t, w->text->p, w->text->len,
                                        TD_ENCODE_SPECIAL, &w->ids, NULL);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct td_tokenizer *t = load(LEXICON);
    struct td_buf text;
    struct worker w[4];
    pthread_t threads[4];
    td_buf_init(&text, (size_t)TD_MIB);
    assert_int_equal(td_file_read("tests/cases/tokenizer/lexicon.jsonl", &text, NULL),
                     TD_OK);
    for (size_t i = 0; i < 4; i++) {
        w[i] = (struct worker){.t = t, .text = &text};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(w[i].status, TD_OK);
        assert_int_equal(w[i].ids.len, w[0].ids.len);
        assert_memory_equal(w[i].ids.p, w[0].ids.p, w[0].ids.len * sizeof(*w[0].ids.p));
        if (i)
            td_ids_release(&w[i].ids);
    }
    td_ids_release(&w[0].ids);
    td_buf_release(&text);
    td_tokenizer_free(t);
}

static void test_encode_without_memory(void **state)
{
    (void)state;
    struct td_tokenizer *t = load(FLAGS);
    struct td_buf text;
    td_buf_init(&text, 4096);
    td_buf_adds(&text, "<word> caf\x65\xCC\x81 [S] \xFF");
    for (int i = 0; i < 200; i++)
        td_buf_adds(&text, "\xCC\x96\xCC\x81");
    for (int i = 0; i < 100; i++)
        td_buf_adds(&text, "qx");
    enum td_status s = TD_E_NOMEM;
    long n = 0;
    while (s == TD_E_NOMEM) {
        struct td_ids ids;
        struct td_error err;
        td_ids_init(&ids);
        td_error_init(&err);
        td_mem_fail_at(++n);
        s = td_tokenizer_encode(t, text.p, text.len, TD_ENCODE_SPECIAL, &ids, &err);
        td_mem_fail_at(0);
        assert_int_equal(err.code, s);
        assert_int_equal(ids.len > 0, s == TD_OK);
        td_ids_release(&ids);
    }
    assert_int_equal(s, TD_OK);
    assert_true(n > 8);
    td_buf_release(&text);
    td_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lexicon_cases),
        cmocka_unit_test(test_cases_of_flags_and_digits),
        cmocka_unit_test(test_tokens_and_ids),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_no_half_characters),
        cmocka_unit_test(test_random_ids_decode_alike),
        cmocka_unit_test(test_broken_bytes),
        cmocka_unit_test(test_long_runs_are_linear),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_encode_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

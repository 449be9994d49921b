/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading tokenizer files: kinds that tandem does not read are refused by name, damage
 * is reported with its place, patterns that would mean something else are refused, and
 * nothing leaks when memory fails. Each case edits a small valid file.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "text/pattern.h"
#include "text/tokenizer.h"

#define FLAGS "tests/cases/tokenizer/flags"

static const char tiny[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"NFC\"},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+|\\\\S+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xC4\xA0\":3},"
    "\"merges\":[\"a b\"]}}";

/* Sets the value at a path such as "model.vocab.x" (numbers index arrays); "" removes. */
static void edit(json_t *root, const char *path, const char *value)
{
    char step[64];
    json_t *at = root;
    for (;;) {
        size_t n = strcspn(path, ".");
        assert_true(n < sizeof(step));
        memcpy(step, path, n);
        step[n] = 0;
        if (!path[n])
            break;
        at = json_is_array(at) ? json_array_get(at, (size_t)strtol(step, NULL, 10))
                               : json_object_get(at, step);
        assert_non_null(at);
        path += n + 1;
    }
    if (!*value) {
        json_object_del(at, step);
        return;
    }
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    if (json_is_array(at))
        assert_int_equal(json_array_set_new(at, (size_t)strtol(step, NULL, 10), v), 0);
    else
        assert_int_equal(json_object_set_new(at, step, v), 0);
}

static enum td_status parse_edited(const char *path, const char *value,
                                   const char *config, struct td_error *err)
{
    struct td_tokenizer *t = NULL;
    json_t *root = json_loads(tiny, 0, NULL);
    assert_non_null(root);
    if (path)
        edit(root, path, value);
    char *text = json_dumps(root, 0);
    td_error_init(err);
    enum td_status s = td_tokenizer_parse(text, strlen(text), config,
                                          config ? strlen(config) : 0, &t, err);
    free(text);
    json_decref(root);
    assert_int_equal(s != TD_OK, t == NULL);
    td_tokenizer_free(t);
    return s;
}

static void test_the_unedited_file_is_read(void **state)
{
    (void)state;
    struct td_error err;
    assert_int_equal(parse_edited(NULL, NULL, NULL, &err), TD_OK);
    assert_int_equal(parse_edited(NULL, NULL, "{\"eos_token\":\"<s>\"}", &err), TD_OK);
}

static void test_accepted_variants(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"normalizer", "null"},
        {"normalizer", ""},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[]}"},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"},
        {"model.type", ""},
        {"model.dropout", "null"},
        {"model.end_of_word_suffix", "\"\""},
        {"model.ignore_merges", "true"},
        {"model.merges.0", "[\"a\",\"b\"]"},
        {"model.merges", "[]"},
        {"model.vocab.x\xC2\xA0y", "7"},
        {"post_processor", "{\"type\":\"ByteLevel\",\"trim_offsets\":false}"},
        {"pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"},
        {"pre_tokenizer.pretokenizers.0", "{\"type\":\"Digits\"}"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"String\":\"a.b[\"}"},
        {"added_tokens", "null"},
        {"added_tokens.0.content", "\"\""},
        {"added_tokens.0", "{\"id\":2,\"content\":\"ab\"}"},
        {"truncation", "{\"max_length\":4}"},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        struct td_error err;
        if (parse_edited(cases[i][0], cases[i][1], NULL, &err) != TD_OK)
            fail_msg("%s = %s: %s", cases[i][0], cases[i][1], err.what);
    }
}

static void test_refused_kinds_and_damage(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *what;
    } cases[] = {
        {"model.type", "\"Unigram\"", "the model is Unigram"},
        {"model.type", "\"WordPiece\"", "the model is WordPiece"},
        {"model", "3", "the model is no object"},
        {"model.byte_fallback", "true", "byte_fallback (SentencePiece)"},
        {"model.byte_fallback", "1", "byte_fallback"},
        {"model.dropout", "0.1", "dropout"},
        {"model.unk_token", "\"a\"", "an unknown token"},
        {"model.end_of_word_suffix", "\"</w>\"", "end_of_word_suffix is </w>"},
        {"model.vocab", "[]", "model.vocab"},
        {"model.vocab", "{}", "model.vocab"},
        {"model.vocab.a", "-1", "\"a\""},
        {"model.vocab.a", "4194304", "\"a\""},
        {"model.vocab.a", "\"0\"", "\"a\""},
        {"model.vocab.a", "1", "its id 1 is taken"},
        {"model.vocab.", "9", "is empty"},
        {"model.merges", "{}", "model.merges"},
        {"model.merges.0", "\"a b c\"", "model.merges[0]"},
        {"model.merges.0", "\"ab\"", "model.merges[0]"},
        {"model.merges.0", "\" b\"", "model.merges[0]"},
        {"model.merges.0", "[\"a\"]", "model.merges[0]"},
        {"model.merges.0", "[1,2]", "model.merges[0]"},
        {"model.merges.0", "[\"b\",\"a\"]", "the vocabulary lacks"},
        {"normalizer", "{\"type\":\"NFKC\"}", "the normalizer is NFKC"},
        {"normalizer", "{}", "the normalizer is of no type"},
        {"normalizer",
         "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFC\"}"
         "]}",
         "the normalizer is a sequence"},
        {"pre_tokenizer", "null", "the pre-tokenizer is null"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\"}", "the pre-tokenizer is Metaspace"},
        {"pre_tokenizer.pretokenizers.1", "{\"type\":\"Digits\"}", "without ByteLevel"},
        {"pre_tokenizer.pretokenizers.0",
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "after ByteLevel"},
        {"pre_tokenizer.pretokenizers.1", "{\"type\":\"ByteLevel\"}", "a prefix space"},
        {"pre_tokenizer.pretokenizers.0.behavior", "\"Removed\"", "is Removed"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{}", "no pattern"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"a*\"", "an empty text"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"*\"", "invalid"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"\\\\w+\"", "at byte 0"},
        {"decoder", "null", "the decoder is null"},
        {"decoder", "{\"type\":\"Fuse\"}", "the decoder is Fuse"},
        {"decoder", "{\"type\":\"Sequence\",\"decoders\":[]}", "an empty sequence"},
        {"post_processor", "{\"type\":\"TemplateProcessing\"}", "TemplateProcessing"},
        {"added_tokens", "{}", "added_tokens"},
        {"added_tokens.0.id", "\"x\"", "an added token"},
        {"added_tokens.0.id", "-2", "an added token"},
        {"added_tokens.0.id", "2", "\"<s>\" has the id 2 of another"},
        {"added_tokens.0.content", "\"ab\"", "\"ab\" has id 4, but another"},
        {"added_tokens.0.special", "\"yes\"", "special"},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        struct td_error err;
        enum td_status s = parse_edited(cases[i].path, cases[i].value, NULL, &err);
        if (s != err.code || (s != TD_E_TOKENIZER && s != TD_E_CONFIG))
            fail_msg("%s = %s: status %d", cases[i].path, cases[i].value, (int)s);
        if (!strstr(err.what, cases[i].what) || !strstr(err.what, "tokenizer.json"))
            fail_msg("%s = %s: %s", cases[i].path, cases[i].value, err.what);
        assert_true(err.why[0] && err.fix[0]);
    }
}

static void test_refused_configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[]", "no object"},
        {"{", "line 1"},
        {"{\"eos_token\":3}", "eos_token"},
        {"{\"eos_token\":\"</s>\"}", "eos_token"},
        {"{\"added_tokens_decoder\":[]}", "added_tokens_decoder"},
        {"{\"added_tokens_decoder\":{\"x\":{\"content\":\"q\"}}}", "an added token"},
        {"{\"added_tokens_decoder\":{\"5\":{}}}", "an added token"},
        {"{\"added_tokens_decoder\":{\"5\":{\"content\":\"<s>\"}}}", "has id 5, and 4"},
        {"{\"added_tokens_decoder\":{\"2\":{\"content\":\"q\"}}}", "of another"},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        struct td_error err;
        assert_int_not_equal(parse_edited(NULL, NULL, cases[i][0], &err), TD_OK);
        if (!strstr(err.what, cases[i][1]) ||
            !strstr(err.what, "tokenizer_config.json"))
            fail_msg("%s: %s", cases[i][0], err.what);
    }
}

/* The configuration's flags replace those of tokenizer.json. */
static void test_config_adds_and_replaces(void **state)
{
    (void)state;
    static const char config[] =
        "{\"added_tokens_decoder\":{\"4\":{\"content\":\"<s>\",\"special\":false},"
        "\"6\":{\"content\":\"<t>\",\"special\":true}},\"eos_token\":{\"content\":"
        "\"<t>\"}}";
    struct td_tokenizer *t = NULL;
    struct td_ids ids;
    size_t n;
    td_ids_init(&ids);
    assert_int_equal(td_tokenizer_parse(tiny, sizeof(tiny) - 1, config,
                                        sizeof(config) - 1, &t, NULL),
                     TD_OK);
    assert_int_equal(td_tokenizer_size(t), 7);
    assert_int_equal(td_tokenizer_eos(t), 6);
    assert_false(td_tokenizer_is_special(t, 4));
    assert_true(td_tokenizer_is_special(t, 6));
    assert_null(td_tokenizer_token(t, 5, &n));
    assert_int_equal(td_tokenizer_encode(t, "ab<s>\xC3\xA9 <t>", 12, 1, &ids, NULL),
                     TD_OK);
    const int32_t want[] = {2, 4, 3, 6}; /* the bytes of the accent have no ids */
    assert_int_equal(ids.len, 4);
    assert_memory_equal(ids.p, want, sizeof(want));
    td_ids_release(&ids);
    td_tokenizer_free(t);
}

static void test_json_damage_has_line_and_column(void **state)
{
    (void)state;
    struct td_tokenizer *t = NULL;
    struct td_error err;
    for (size_t n = 0; n < sizeof(tiny) - 1; n += 7) {
        td_error_init(&err);
        assert_int_equal(td_tokenizer_parse(tiny, n, NULL, 0, &t, &err), TD_E_JSON);
        assert_non_null(strstr(err.what, "tokenizer.json: line"));
    }
}

/* ----------------------------------------------------------------------- patterns */

static void test_patterns_that_would_mean_something_else(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "",
        "^a",
        "a$",
        "\\ba",
        "\\w",
        "\\h",
        "\\p{Han}",
        "\\p{^L}",
        "\\pL",
        "[a[b]]",
        "[a&&b]",
        "[]",
        "[^]",
        "[a",
        "(a",
        "a)",
        "(?i)a",
        "(?<n>a)",
        "(?>a)",
        "(*F)a",
        "\\",
        "[\\S]",
        "[\\P{L}]",
        "a{2}+",
        "a{",
        "a{,2}",
        "a{x}",
        "(?i:\\s)",
        "(?i:[a])",
        "(?i:a.)",
        "[\\s-z]",
        "[a-\\s]",
        "\\1",
        "\\Ka",
        "\\u12",
        "\\x{}",
        "\\x{12345678}",
        "\\xff",
        "[[:alpha:]]",
        "\\p{L",
        "\\p{}",
        "(?#x)a",
    };
    struct td_buf out;
    td_buf_init(&out, 4096);
    for (size_t i = 0; i < TD_COUNT(refused); i++) {
        struct td_error err;
        td_error_init(&err);
        enum td_status s =
            td_pattern_translate(refused[i], strlen(refused[i]), "file", &out, &err);
        if (s != TD_E_TOKENIZER || !strstr(err.what, "file: the pattern"))
            fail_msg("%s is not refused: %s", refused[i], err.what);
    }
    td_buf_release(&out);
}

static void test_patterns_that_are_translated(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a|b*?c++d{1,3}", "a|b*?c++d{1,3}"},
        {"(?i:'s|'t)(?!x)(?<=y)(z)", "(?i:'s|'t)(?!x)(?<=y)(?:z)"},
        {"[^\\r\\n\\t]\\.\\-", "[^\\r\\n\\t]\\.\\-"},
        {"\\u4e00\\x{9fff}\\x41\\v", "\\x{4e00}\\x{9fff}\\x{41}\\x0b"},
        {"]}", "\\]\\}"},
        {"[-a\\p{Zs}]", "[-a\\p{Zs}]"},
    };
    struct td_buf out;
    td_buf_init(&out, 4096);
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        td_buf_clear(&out);
        assert_int_equal(
            td_pattern_translate(cases[i][0], strlen(cases[i][0]), "file", &out, NULL),
            TD_OK);
        assert_string_equal(out.p, cases[i][1]);
    }
    td_buf_release(&out);
}

/* A pattern that explodes ends in an error. */
static void test_steps_are_limited(void **state)
{
    (void)state;
    struct td_tokenizer *t = NULL;
    struct td_ids ids;
    struct td_error err;
    char text[64];
    json_t *root = json_loads(tiny, 0, NULL);
    edit(root, "pre_tokenizer.pretokenizers.0.pattern.Regex", "\"(?:a+a+)+[bc]\"");
    char *json = json_dumps(root, 0);
    td_ids_init(&ids);
    td_error_init(&err);
    memset(text, 'a', sizeof(text));
    assert_int_equal(td_tokenizer_parse(json, strlen(json), NULL, 0, &t, &err), TD_OK);
    assert_int_equal(td_tokenizer_encode(t, text, sizeof(text), 0, &ids, &err),
                     TD_E_LIMIT);
    assert_non_null(strstr(err.what, "takes too long"));
    td_tokenizer_free(t);
    td_ids_release(&ids);
    free(json);
    json_decref(root);
}

/* -------------------------------------------------------------------- directories */

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[TD_MAX_PATH];
    assert_int_equal(td_path_join(path, sizeof(path), dir, name, NULL), TD_OK);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void remove_file(const char *dir, const char *name)
{
    char path[TD_MAX_PATH];
    assert_int_equal(td_path_join(path, sizeof(path), dir, name, NULL), TD_OK);
    assert_int_equal(unlink(path), 0);
}

static enum td_status load_from(const char *dir, struct td_error *err)
{
    struct td_tokenizer *t = NULL;
    td_error_init(err);
    enum td_status s = td_tokenizer_load(dir, &t, err);
    td_tokenizer_free(t);
    return s;
}

static void test_directories(void **state)
{
    (void)state;
    char dir[] = "/tmp/tokenizer-XXXXXX";
    struct td_error err;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(load_from("/nonexistent/model", &err), TD_E_NOT_FOUND);
    assert_non_null(strstr(err.what, "/nonexistent/model/tokenizer.json"));
    assert_int_equal(load_from(dir, &err), TD_E_NOT_FOUND);
    assert_non_null(strstr(err.what, "has no tokenizer.json"));
    write_file(dir, "tokenizer.model", "x");
    assert_int_equal(load_from(dir, &err), TD_E_TOKENIZER);
    assert_non_null(strstr(err.what, "there is tokenizer.model"));
    remove_file(dir, "tokenizer.model");
    write_file(dir, "tokenizer.json", "version https://git-lfs.github.com/spec/v1\n");
    assert_int_equal(load_from(dir, &err), TD_E_LFS_POINTER);
    write_file(dir, "tokenizer.json", tiny);
    assert_int_equal(load_from(dir, &err), TD_OK);
    write_file(dir, "tokenizer_config.json", "{\"eos_token\": 7}");
    assert_int_equal(load_from(dir, &err), TD_E_TOKENIZER);
    assert_non_null(strstr(err.what, dir));
    remove_file(dir, "tokenizer.json");
    remove_file(dir, "tokenizer_config.json");
    assert_int_equal(rmdir(dir), 0);
}

static void test_load_without_memory(void **state)
{
    (void)state;
    enum td_status s = TD_E_NOMEM;
    long n = 0;
    while (s == TD_E_NOMEM) {
        struct td_error err;
        td_mem_fail_at(++n);
        s = load_from(FLAGS, &err);
        td_mem_fail_at(0);
        assert_int_equal(err.code, s);
    }
    assert_int_equal(s, TD_OK);
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_unedited_file_is_read),
        cmocka_unit_test(test_accepted_variants),
        cmocka_unit_test(test_refused_kinds_and_damage),
        cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_config_adds_and_replaces),
        cmocka_unit_test(test_json_damage_has_line_and_column),
        cmocka_unit_test(test_patterns_that_would_mean_something_else),
        cmocka_unit_test(test_patterns_that_are_translated),
        cmocka_unit_test(test_steps_are_limited),
        cmocka_unit_test(test_directories),
        cmocka_unit_test(test_load_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

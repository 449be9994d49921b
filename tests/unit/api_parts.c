/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings, reasoning and tool calls: each case whole, byte by byte, and cut at every
 * place (of whole characters, as the detokenizer gives them). The cases are
 * tests/cases/api/parts.jsonl.
 */
#include "check.h"

#include "api/parts.h"
#include "api/stops.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

/* ---- parts ------------------------------------------------------------------------- */

static json_t *make_tools(const json_t *c)
{
    const json_t *props = json_object_get(c, "tools");
    const json_t *defs = json_object_get(c, "defs");
    if (!props)
        return NULL;
    return json_pack("[{s:s, s:{s:s, s:{s:s, s:O, s:O*}}}]", "type", "function",
                     "function", "name", "f", "parameters", "type", "object",
                     "properties", props, "$defs", defs);
}

static const char *text_in(const json_t *c, const char *key)
{
    const char *s = json_string_value(json_object_get(c, key));
    return s ? s : "";
}

static void begin(struct td_parts *p, const json_t *c, const json_t *tools)
{
    bool think = !json_is_false(json_object_get(c, "think"));
    td_parts_init(p, think, tools,
                  *text_in(c, "first") ? TD_PART_REASONING : TD_PART_CONTENT);
}

static void check_parts(const struct td_parts *p, const json_t *c)
{
    const json_t *calls = json_object_get(c, "calls");
    assert_string_equal(p->text[TD_PART_CONTENT].p, text_in(c, "content"));
    assert_string_equal(p->text[TD_PART_REASONING].p, text_in(c, "reasoning"));
    assert_int_equal(p->n_calls, json_array_size(calls));
    for (int i = 0; i < p->n_calls; i++) {
        const json_t *want = json_array_get(calls, (size_t)i);
        json_t *args = NULL;
        assert_string_equal(p->call[i].name.p, text_in(want, "name"));
        assert_int_equal(
            td_json_parse(p->call[i].args.p, p->call[i].args.len, "args", &args, NULL),
            TD_OK);
        if (!json_equal(args, json_object_get(want, "args")))
            fail_msg("%s: arguments %s", text_in(c, "name"), p->call[i].args.p);
        json_decref(args);
    }
}

/* What has been shown never changes: every state is a beginning of the final one. */
static void check_grows(const struct td_parts *p, const json_t *c)
{
    const char *content = text_in(c, "content"), *thoughts = text_in(c, "reasoning");
    assert_int_equal(
        strncmp(content, p->text[TD_PART_CONTENT].p, p->text[TD_PART_CONTENT].len), 0);
    assert_int_equal(
        strncmp(thoughts, p->text[TD_PART_REASONING].p, p->text[TD_PART_REASONING].len),
        0);
}

/* Pieces of at least `size` bytes, cut between characters; the first has `first`. */
static void run_case(const json_t *c, size_t first, size_t size)
{
    const char *text = text_in(c, "text");
    size_t n = strlen(text), at = 0, piece = first;
    json_t *tools = make_tools(c);
    struct td_parts p;
    begin(&p, c, tools);
    while (at < n) {
        size_t end = TD_MIN(at + piece, n);
        while (end < n && ((unsigned char)text[end] & 0xC0) == 0x80)
            end++;
        assert_int_equal(td_parts_add(&p, text + at, end - at), TD_OK);
        check_grows(&p, c);
        at = end;
        piece = size;
    }
    assert_int_equal(td_parts_end(&p), TD_OK);
    check_parts(&p, c);
    td_parts_release(&p);
    json_decref(tools);
}

/* Calls fn for each case. */
static void each_case(void (*fn)(const json_t *c))
{
    struct td_buf file;
    int n = 0;
    td_buf_init(&file, TD_MIB);
    assert_int_equal(td_file_read("tests/cases/api/parts.jsonl", &file, NULL), TD_OK);
    for (const char *line = file.p; *line; n++) {
        size_t len = strcspn(line, "\n");
        json_t *c = NULL;
        assert_int_equal(td_json_parse(line, len, "case", &c, NULL), TD_OK);
        fn(c);
        json_decref(c);
        line += len + (line[len] == '\n');
    }
    assert_true(n > 30);
    td_buf_release(&file);
}

static void whole(const json_t *c)
{
    run_case(c, strlen(text_in(c, "text")), 1);
}

static void by_byte(const json_t *c)
{
    run_case(c, 1, 1);
}

static void cut_everywhere(const json_t *c)
{
    size_t n = strlen(text_in(c, "text"));
    for (size_t at = 1; at < n; at++)
        run_case(c, at, n);
}

static void parts_whole(void **state)
{
    (void)state;
    each_case(whole);
}

static void parts_by_byte(void **state)
{
    (void)state;
    each_case(by_byte);
}

static void parts_cut_everywhere(void **state)
{
    (void)state;
    each_case(cut_everywhere);
}

/* With the n-th allocation failing: an error or the right result, and no leak. */
static void parts_no_memory(void **state)
{
    static const char text[] = "<think>\na</think>\n\nb<tool_call>\n<function=f>\n"
                               "<parameter=x>\n12\n</parameter>\n</function>\n";
    json_t *tools = json_pack("[{s:{s:s}}]", "function", "name", "f");
    (void)state;
    for (long n = 1; n < 40; n++) {
        struct td_parts p;
        td_parts_init(&p, true, tools, TD_PART_CONTENT);
        td_mem_fail_at(n);
        enum td_status s = td_parts_add(&p, text, sizeof(text) - 1);
        if (s == TD_OK)
            s = td_parts_end(&p);
        td_mem_fail_at(0);
        assert_true(s == TD_OK || s == TD_E_NOMEM);
        td_parts_release(&p);
    }
    json_decref(tools);
}

/* The arguments of a call are a beginning of JSON at every moment. */
static void arguments_stream(void **state)
{
    static const char text[] = "<tool_call>\n<function=f>\n<parameter=s>\nab\"c\n"
                               "</parameter>\n</function>\n</tool_call>";
    json_t *tools = json_pack("[{s:{s:s}}]", "function", "name", "f");
    struct td_parts p;
    (void)state;
    td_parts_init(&p, true, tools, TD_PART_CONTENT);
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        size_t before = p.n_calls ? p.call[0].args.len : 0;
        td_parts_add(&p, text + i, 1);
        if (p.n_calls && strncmp(text + i, "ab", 2) == 0)
            assert_true(p.call[0].args.len > before); /* it comes as it is written */
    }
    assert_string_equal(p.call[0].args.p, "{\"s\": \"ab\\\"c\"}");
    assert_int_equal(td_parts_calls_done(&p), 1);
    td_parts_release(&p);
    json_decref(tools);
}

/* ---- stop strings ------------------------------------------------------------------ */

static struct td_stop_set stop_set(const char *const *text, size_t *len, size_t n)
{
    for (size_t i = 0; i < n; i++)
        len[i] = strlen(text[i]);
    return (struct td_stop_set){.text = text, .len = len, .n = n};
}

/* Feeds text in pieces of `size`; returns what came out, in out. */
static int feed(const struct td_stop_set *set, const char *text, size_t size,
                struct td_buf *out)
{
    struct td_stops s;
    size_t n = strlen(text);
    td_stops_init(&s, set);
    for (size_t at = 0; at < n; at += size)
        td_stops_add(&s, text + at, TD_MIN(size, n - at), true, out);
    int matched = s.matched;
    if (matched < 0)
        td_stops_end(&s, out);
    td_stops_release(&s);
    return matched;
}

static void stops_match(void **state)
{
    static const char *const stops[] = {"END", "\n\nUser:", "aab"};
    static const struct {
        const char *text, *shown;
        int matched;
    } cases[] = {{"no stop here", "no stop here", -1},
                 {"hello END more", "hello ", 0},
                 {"x\n\nUser: y END", "x", 1},
                 {"x\n\nUse", "x\n\nUse", -1},
                 {"aaaab", "aa", 2},
                 {"EN", "EN", -1},
                 {"END", "", 0},
                 {"EEND", "E", 0},
                 {"aEND aab", "a", 0}};
    size_t len[3];
    struct td_stop_set set = stop_set(stops, len, 3);
    (void)state;
    for (size_t i = 0; i < TD_COUNT(cases); i++)
        for (size_t size = 1; size < 12; size++) {
            struct td_buf out;
            td_buf_init(&out, 1000);
            assert_int_equal(feed(&set, cases[i].text, size, &out), cases[i].matched);
            assert_string_equal(out.p, cases[i].shown);
            td_buf_release(&out);
        }
}

static void stops_include(void **state)
{
    static const char *const stops[] = {"END"};
    size_t len[1];
    struct td_stop_set set = stop_set(stops, len, 1);
    struct td_buf out;
    (void)state;
    set.include = true;
    td_buf_init(&out, 1000);
    assert_int_equal(feed(&set, "a END b", 2, &out), 0);
    assert_string_equal(out.p, "a END");
    td_buf_release(&out);
}

static void stops_not_armed(void **state)
{
    static const char *const stops[] = {"END"};
    size_t len[1];
    struct td_stop_set set = stop_set(stops, len, 1);
    struct td_stops s;
    struct td_buf out;
    (void)state;
    td_buf_init(&out, 1000);
    td_stops_init(&s, &set);
    td_stops_add(&s, "END EN", 6, false, &out);
    assert_string_equal(out.p, "END EN");
    td_stops_add(&s, "D and END", 9, true, &out);
    assert_string_equal(out.p, "END END and ");
    assert_int_equal(s.matched, 0);
    td_stops_release(&s);
    td_buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_whole),          cmocka_unit_test(parts_by_byte),
        cmocka_unit_test(parts_cut_everywhere), cmocka_unit_test(parts_no_memory),
        cmocka_unit_test(arguments_stream),     cmocka_unit_test(stops_match),
        cmocka_unit_test(stops_include),        cmocka_unit_test(stops_not_armed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

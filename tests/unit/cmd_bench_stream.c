/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event streams of all kinds of servers, whole and in pieces.
 */
#include "base/limits.h"
#include "base/mem.h"
#include "cmd/bench_stream.h"

#include "check.h"

#include <string.h>

static void test_samples(void **state)
{
    struct td_samples s = {0};
    (void)state;
    for (int i = 0; i < 3000; i++)
        assert_true(td_samples_add(&s, i));
    assert_int_equal(s.n, 3000);
    assert_true(s.p[2999] > 2998);
    td_samples_release(&s);
    td_mem_fail_at(1);
    assert_false(td_samples_add(&s, 1));
    td_mem_fail_at(0);
    td_samples_release(&s);
}

struct expected {
    const char *text;
    int pieces, tokens, prompt;
    bool complete;
    const char *error;
};

#define CHAT(delta, reason)                                                            \
    "data: {\"choices\":[{\"delta\":{" delta "},\"finish_reason\":" reason "}]}\n\n"

static const struct expected cases[] = {
    {"", 0, -1, -1, false, ""},
    {": keep-alive\n\nevent: x\r\nid: 7\r\n", 0, -1, -1, false, ""},
    {CHAT("\"role\":\"assistant\"", "null") CHAT("\"content\":\"a\"", "null")
         CHAT("", "\"stop\"") "data: [DONE]\n\n",
     1, -1, -1, true, ""},
    {CHAT("\"reasoning\":\"a\",\"reasoning_content\":\"a\"", "null")
         CHAT("\"content\":\"\"", "null") CHAT("\"tool_calls\":[{}]", "\"tool_calls\""),
     2, -1, -1, true, ""},
    {"data:{\"choices\":[{\"text\":\"\\u0000\",\"finish_reason\":null}]}\r\n\r\n"
     "data:   {\"choices\":[],\"usage\":{\"completion_tokens\":5,\"prompt_tokens\":"
     "9}}\r\n\r\ndata: [DONE]\r\n\r\n",
     1, 5, 9, false, ""},
    {"data: {\"usage\":{\"completion_tokens\":-3,\"prompt_tokens\":99999999999}}\n", 0,
     -1, -1, false, ""},
    {"data: {\"error\":{\"message\":\"no room\"}}\n", 0, -1, -1, false, "no room"},
    {"data: {\"error\":\"plain\"}\n", 0, -1, -1, false, "plain"},
    {"data: {\"error\":{\"code\":5}}\n", 0, -1, -1, false, "an error"},
    {"data: {\"choices\":\n", 0, -1, -1, false, "an event is not JSON"},
    {"data:\n", 0, -1, -1, false, "an event is not JSON"},
    {"data: [1]\ndata: null\ndata: {\"choices\":[7]}\n", 0, -1, -1, false, ""},
};

static void check_case(const struct expected *e, size_t slice)
{
    struct td_bench_stream s;
    struct td_samples gaps = {0};
    size_t n = strlen(e->text);
    td_bench_stream_init(&s);
    assert_true(td_bench_stream_add(&s, "data: {\"error\":\"old", 19));
    td_bench_stream_begin(&s, &gaps); /* forgets it */
    for (size_t at = 0; at < n; at += slice)
        assert_true(td_bench_stream_add(&s, e->text + at, TD_MIN(slice, n - at)));
    assert_int_equal(s.pieces, e->pieces);
    assert_int_equal(s.tokens, e->tokens);
    assert_int_equal(s.prompt, e->prompt);
    assert_int_equal(s.complete, e->complete);
    assert_string_equal(s.error, e->error);
    assert_int_equal(gaps.n, e->pieces > 1 ? e->pieces - 1 : 0);
    assert_int_equal(s.first > 0, e->pieces > 0);
    assert_true(s.last >= s.first);
    td_samples_release(&gaps);
    td_bench_stream_release(&s);
}

static void test_streams(void **state)
{
    static const size_t slices[] = {1, 2, 7, 100, 1 << 20};
    (void)state;
    for (size_t i = 0; i < TD_COUNT(cases); i++)
        for (size_t k = 0; k < TD_COUNT(slices); k++)
            check_case(&cases[i], slices[k]);
}

/* A line that never ends does not take all memory. */
static void test_endless_line(void **state)
{
    static char block[TD_MAX_EVENT / 16];
    struct td_bench_stream s;
    int taken = 0;
    (void)state;
    memset(block, 'x', sizeof(block));
    td_bench_stream_init(&s);
    while (taken < 100 && td_bench_stream_add(&s, block, sizeof(block)))
        taken++;
    assert_in_range(taken, 15, 16);
    td_bench_stream_release(&s);
}

static void test_no_memory(void **state)
{
    struct td_bench_stream s;
    (void)state;
    td_bench_stream_init(&s);
    td_mem_fail_at(1);
    assert_false(td_bench_stream_add(&s, "data", 4));
    td_mem_fail_at(0);
    td_bench_stream_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_endless_line),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between front and engine: what is written is what is read, and bytes that are
 * cut, changed or made up never do more than fail.
 */
#include "check.h"

#include "base/limits.h"
#include "engine/wire.h"

#include <string.h>

static const int32_t prompt[] = {5, 6, -7, 1 << 30}, generated[] = {9}, cuts[] = {64};
static const int32_t stops[] = {1, 2, 3}, eos[] = {8168};
static const struct td_logit_bias bias[] = {{4, -1.5f}, {5, 2.0f}};

static struct td_wire_submit example(void)
{
    struct td_wire_submit m = {.id = 1ULL << 63 | 3,
                               .prompt = prompt,
                               .n_prompt = 4,
                               .generated = generated,
                               .n_generated = 1,
                               .max_tokens = 77,
                               .prompt_logprobs = -1,
                               .snapshots = cuts,
                               .n_snapshots = 1};
    td_sampling_default(&m.sampling);
    m.sampling.temperature = 0.25f;
    m.sampling.seed = 0xFEDCBA9876543210u;
    m.sampling.min_tokens = 1LL << 40;
    m.sampling.ignore_eos = true;
    m.sampling.eos_ids = eos;
    m.sampling.n_eos_ids = 1;
    m.sampling.stop_ids = stops;
    m.sampling.n_stop_ids = 3;
    m.sampling.bias = bias;
    m.sampling.n_bias = 2;
    return m;
}

/* The only frame in the buffer. */
static struct td_frame only(const struct td_buf *b, enum td_wire_type type)
{
    struct td_frame f;
    size_t used;
    assert_int_equal(td_wire_next(b->p, b->len, &f, &used, NULL), TD_OK);
    assert_int_equal(used, b->len);
    assert_int_equal(f.type, type);
    return f;
}

static void test_submit(void **state)
{
    (void)state;
    struct td_wire_submit m = example(), got;
    struct td_buf b;
    struct td_arena a;
    td_buf_init(&b, 1 << 20);
    td_arena_init(&a, 1 << 20);
    assert_int_equal(td_wire_put_submit(&b, &m), TD_OK);
    struct td_frame f = only(&b, TD_WIRE_SUBMIT);
    assert_int_equal(td_wire_get_submit(&f, &a, &got, NULL), TD_OK);
    assert_true(got.id == m.id && got.n_prompt == 4 && got.n_generated == 1);
    assert_memory_equal(got.prompt, prompt, sizeof(prompt));
    assert_memory_equal(got.generated, generated, sizeof(generated));
    assert_true(got.n_snapshots == 1 && got.snapshots[0] == 64);
    assert_true(got.max_tokens == 77 && got.prompt_logprobs == -1);
    const struct td_sampling *s = &got.sampling;
    assert_true(s->temperature == 0.25f && s->seed == m.sampling.seed);
    assert_true(s->min_tokens == 1LL << 40 && s->ignore_eos && s->top_p == 1.0f);
    assert_true(s->n_eos_ids == 1 && s->eos_ids[0] == 8168);
    assert_true(s->n_stop_ids == 3 && s->stop_ids[2] == 3);
    assert_true(s->n_bias == 2 && s->bias[0].id == 4 && s->bias[0].bias == -1.5f);
    td_arena_release(&a);
    td_buf_release(&b);
}

static void test_answers(void **state)
{
    (void)state;
    const struct td_logprob top[] = {{3, -0.5f}, {4, -1.0f}};
    const struct td_wire_token t[] = {
        {.request = 7, .id = 3, .rank = 1, .logprob = -0.5f, .n_top = 2, .top = top},
        {.request = 8, .id = 11}};
    struct td_wire_token *got;
    struct td_buf b;
    struct td_arena a;
    int32_t n;
    td_buf_init(&b, 1 << 20);
    td_arena_init(&a, 1 << 20);
    assert_int_equal(td_wire_put_tokens(&b, t, 2), TD_OK);
    struct td_frame f = only(&b, TD_WIRE_TOKENS);
    assert_int_equal(td_wire_get_tokens(&f, &a, &got, &n, NULL), TD_OK);
    assert_true(n == 2 && got[0].request == 7 && got[0].top[1].id == 4);
    assert_true(got[0].logprob == -0.5f && got[1].id == 11 && got[1].n_top == 0);

    td_buf_clear(&b);
    struct td_wire_prompt_logprobs p = {.request = 7, .first = 1, .n = 2, .entries = t};
    assert_int_equal(td_wire_put_prompt_logprobs(&b, &p), TD_OK);
    f = only(&b, TD_WIRE_PROMPT_LOGPROBS);
    struct td_wire_prompt_logprobs q;
    assert_int_equal(td_wire_get_prompt_logprobs(&f, &a, &q, NULL), TD_OK);
    assert_true(q.first == 1 && q.n == 2 && q.entries[0].top[0].id == 3);

    td_buf_clear(&b);
    struct td_wire_done d = {.request = 9, .reason = TD_DONE_FAILED, .cached = 128}, e;
    td_error_init(&d.error);
    td_error_set(&d.error, TD_E_INPUT, "the prompt has %d tokens", 5000);
    assert_int_equal(td_wire_put_done(&b, &d), TD_OK);
    f = only(&b, TD_WIRE_DONE);
    assert_int_equal(td_wire_get_done(&f, &e, NULL), TD_OK);
    assert_true(e.reason == TD_DONE_FAILED && e.cached == 128 && e.request == 9);
    assert_string_equal(e.error.what, "the prompt has 5000 tokens");
    assert_int_equal(e.error.code, TD_E_INPUT);
    assert_int_equal(e.error.rank, -1);
    td_arena_release(&a);
    td_buf_release(&b);
}

static void test_small_messages(void **state)
{
    (void)state;
    struct td_buf b;
    struct td_frame f;
    uint64_t id;
    size_t used;
    td_buf_init(&b, 1 << 20);
    struct td_wire_hello h = {.version = TD_WIRE_VERSION,
                              .build = "abc",
                              .max_len = 4096},
                         g;
    struct td_wire_stats st = {.running = 3,
                               .kv_total = 9,
                               .step_seconds = 0.5,
                               .sum_seconds = 0.25,
                               .wait_seconds = 0.125},
                         su;
    assert_int_equal(td_wire_put_hello(&b, &h), TD_OK);
    f = only(&b, TD_WIRE_HELLO);
    assert_int_equal(td_wire_get_hello(&f, &g, NULL), TD_OK);
    assert_true(g.max_len == 4096 && strcmp(g.build, "abc") == 0);
    td_buf_clear(&b);
    td_wire_put_stats(&b, &st);
    f = only(&b, TD_WIRE_STATS);
    assert_int_equal(td_wire_get_stats(&f, &su, NULL), TD_OK);
    assert_true(su.running == 3 && su.kv_total == 9 && su.step_seconds == 0.5 &&
                su.sum_seconds == 0.25 && su.wait_seconds == 0.125);
    td_buf_clear(&b);
    td_wire_put_cancel(&b, 42);
    td_wire_put_cancel(&b, 43);
    for (uint64_t i = 42; i < 44; i++) {
        assert_int_equal(td_wire_next(b.p, b.len, &f, &used, NULL), TD_OK);
        assert_int_equal(td_wire_get_cancel(&f, &id, NULL), TD_OK);
        assert_true(id == i);
        td_buf_drop(&b, i == 42 ? used : 0);
    }
    assert_int_equal(used, b.len);
    td_buf_release(&b);
}

/* Every cut of a frame waits for more; every cut of its body is refused. */
static void test_cut(void **state)
{
    (void)state;
    struct td_wire_submit m = example(), got;
    struct td_buf b;
    struct td_error err;
    td_buf_init(&b, 1 << 20);
    assert_int_equal(td_wire_put_submit(&b, &m), TD_OK);
    for (size_t n = 0; n < b.len; n++) {
        struct td_frame f;
        struct td_arena a;
        size_t used;
        assert_int_equal(td_wire_next(b.p, n, &f, &used, NULL), TD_OK);
        assert_int_equal(used, 0);
        if (n < 8)
            continue;
        f = (struct td_frame){TD_WIRE_SUBMIT, b.p + 8, n - 8};
        td_arena_init(&a, 1 << 20);
        td_error_init(&err);
        assert_int_equal(td_wire_get_submit(&f, &a, &got, &err), TD_E_PEER);
        td_arena_release(&a);
    }
    td_buf_release(&b);
}

static void test_made_up(void **state)
{
    (void)state;
    struct td_frame f;
    struct td_error err;
    size_t used;
    const char other_version[8] = {0, 0, 0, 0, 1, 0, 9, 0};
    const char other_type[8] = {0, 0, 0, 0, 99, 0, 1, 0};
    const char too_long[8] = {0, 0, 0, 127, 1, 0, 1, 0};
    td_error_init(&err);
    assert_int_equal(td_wire_next(other_version, 8, &f, &used, &err), TD_E_PEER);
    assert_non_null(strstr(err.what, "version 9"));
    assert_non_null(strstr(err.why, "different builds"));
    assert_int_equal(td_wire_next(other_type, 8, &f, &used, NULL), TD_E_PEER);
    assert_int_equal(td_wire_next(too_long, 8, &f, &used, NULL), TD_E_PEER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_submit),         cmocka_unit_test(test_answers),
        cmocka_unit_test(test_small_messages), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_made_up),
    };
    return cmocka_run_group_tests_name("engine_wire", tests, NULL, NULL);
}

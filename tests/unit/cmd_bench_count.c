/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a benchmark counts: the same of a step on a processor and on a device that has
 * memory of its own and pads steps, as a GPU does; and what has to be moved in the least.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "cmd/bench_count.h"
#include "engine/engine.h"

#include <time.h>

enum { SEQS = 3, PROMPT = 70, LEN = 128, BLOCKS = LEN / TD_KV_BLOCK };

struct run {
    struct td_engine *engine;
    struct td_dev *dev;
    const struct td_config *config;
    int32_t ids[SEQS][PROMPT + 1], blocks[SEQS][BLOCKS];
};

static int begun;

static bool begin(struct td_dev *dev, uint64_t key)
{
    (void)dev, (void)key;
    begun++;
    return true;
}

static bool end(struct td_dev *dev)
{
    (void)dev;
    return true;
}

static void open_run(struct run *r)
{
    struct td_engine_params p = {.model = "models/lexicon",
                                 .numerics = TD_NUM_BF16,
                                 .threads = 2,
                                 .device = "cpu",
                                 .max_len = LEN,
                                 .max_seqs = SEQS + 1};
    struct td_engine_info info;
    struct td_error err;
    td_error_init(&err);
    if (td_engine_open(&p, &r->engine, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    td_engine_info(r->engine, &info);
    r->dev = td_engine_device(r->engine);
    r->config = info.config;
    for (int32_t s = 0; s < SEQS; s++) {
        for (int32_t i = 0; i <= PROMPT; i++)
            r->ids[s][i] = (i * 61 + s * 997 + 5) % 8000;
        for (int32_t i = 0; i < BLOCKS; i++)
            r->blocks[s][i] = s * BLOCKS + i;
    }
}

static void (*plain_norm)(struct td_dev *, const struct td_norm_args *);
static int slow; /* milliseconds that each norm sleeps */

static void norm(struct td_dev *dev, const struct td_norm_args *a)
{
    struct timespec t = {.tv_nsec = slow * 1000000L};
    (void)nanosleep(&t, NULL);
    plain_norm(dev, a);
}

/* Makes prompts and the step behind them. */
static void make_step(struct run *r, struct td_seq_rows rows[SEQS])
{
    for (int32_t s = 0; s < SEQS; s++) {
        rows[s] = (struct td_seq_rows){.ids = r->ids[s],
                                       .n = PROMPT,
                                       .slot = s,
                                       .blocks = r->blocks[s],
                                       .n_blocks = BLOCKS};
        assert_int_equal(td_engine_forward(r->engine, &rows[s], 1, NULL), TD_OK);
        rows[s].ids += PROMPT;
        rows[s].n = rows[s].n_out = 1;
        rows[s].start = PROMPT;
        rows[s].decode = true;
    }
}

/* Counts a step; `real` of its rows. */
static void count_step(struct run *r, int32_t real, struct td_bench_count *out)
{
    struct td_seq_rows rows[SEQS];
    make_step(r, rows);
    assert_int_equal(td_bench_count_begin(r->dev, LEN, r->config->top_k, NULL), TD_OK);
    td_bench_count_anew(real);
    assert_int_equal(td_engine_forward(r->engine, rows, SEQS, NULL), TD_OK);
    td_bench_count_run(0);
    td_bench_count_of_run(out);
    td_bench_count_end(r->dev);
}

static void test_alike(void **state)
{
    (void)state;
    struct td_bench_count host[TD_BENCH_OPS], gpu[TD_BENCH_OPS];
    struct run r;
    open_run(&r);
    count_step(&r, INT32_MAX, host);
    struct td_ops plain = r.dev->ops;
    r.dev->host = false;
    r.dev->ops.begin = begin;
    r.dev->ops.end = end;
    count_step(&r, SEQS, gpu);
    assert_int_equal(begun, 0); /* a recorded step makes no calls to count */
    assert_ptr_equal(r.dev->ops.begin, begin);
    r.dev->ops = plain;
    r.dev->host = true;
    for (int i = 0; i < TD_BENCH_OPS; i++) {
        assert_true(host[i].bytes == gpu[i].bytes);
        assert_true(host[i].work == gpu[i].work);
    }
    assert_true(gpu[TD_BENCH_LINEAR].seconds > 0);
    assert_true(gpu[TD_BENCH_LINEAR].work > 0);
    /* every row chose some experts, and none is counted twice */
    const struct td_config *c = r.config;
    double one = 3.0 * c->moe_ffn * c->hidden * (c->quant == TD_QUANT_FP8 ? 1 : 2);
    double most = c->n_layers * one * TD_MIN(SEQS * c->top_k, c->n_experts);
    double shared = c->n_layers * one / c->moe_ffn * c->shared_ffn;
    assert_true(host[TD_BENCH_EXPERTS].bytes >= c->n_layers * one * c->top_k + shared);
    assert_true(host[TD_BENCH_EXPERTS].bytes <= most + shared);
    /* keys and values of all tokens so far, states there and back */
    double kv = 2.0 * 2 * SEQS * (PROMPT + 1) * c->n_kv_heads * c->head_dim * c->n_full;
    assert_true(host[TD_BENCH_ATTENTION].bytes == kv);
    double states = 2.0 * 4 * SEQS * c->n_value_heads * c->key_dim * c->value_dim;
    assert_true(host[TD_BENCH_DELTA].bytes == states * c->n_gdn);
    td_engine_close(r.engine);
}

/* Of several runs, as the whole step's: one that was disturbed does not count. */
static void test_median_of_runs(void **state)
{
    (void)state;
    static const int sleeps[] = {0, 10, 0};
    static const double summed[] = {3, 1, 2};
    struct td_bench_count one[TD_BENCH_OPS], of_three[TD_BENCH_OPS];
    struct td_seq_rows rows[SEQS];
    struct run r;
    open_run(&r);
    count_step(&r, INT32_MAX, one);
    make_step(&r, rows);
    plain_norm = r.dev->ops.norm;
    r.dev->ops.norm = norm;
    assert_int_equal(td_bench_count_begin(r.dev, LEN, r.config->top_k, NULL), TD_OK);
    td_bench_count_anew(INT32_MAX);
    for (int i = 0; i < 3; i++) {
        slow = sleeps[i];
        assert_int_equal(td_engine_forward(r.engine, rows, SEQS, NULL), TD_OK);
        td_bench_count_run(summed[i]);
    }
    td_bench_count_of_run(of_three);
    td_bench_count_end(r.dev);
    /* the one that slept took 10 ms for each layer, the mean would be a third */
    assert_true(of_three[TD_BENCH_NORM].seconds < 0.01 * r.config->n_layers / 3);
    assert_true(of_three[TD_BENCH_SUM].seconds == 2);
    for (int i = 0; i < TD_BENCH_OPS; i++) {
        /* states go on from run to run, and with them the choice of experts */
        if (i != TD_BENCH_EXPERTS)
            assert_true(of_three[i].bytes == one[i].bytes);
        assert_true(of_three[i].work == one[i].work);
    }
    td_engine_close(r.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median_of_runs),
        cmocka_unit_test(test_alike),
    };
    return cmocka_run_group_tests_name("cmd_bench_count", tests, NULL, NULL);
}

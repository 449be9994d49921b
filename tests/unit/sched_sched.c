/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler on a simulated model: KV blocks remember which text led to each of their
 * tokens, state slots remember the text they stand behind. Every row of every step must
 * find exactly its own text in its blocks and in its slot, whatever was shared, evicted,
 * preempted or cancelled before.
 */
#include "check.h"

#include "base/mem.h"
#include "sched/sched.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 256, MAX_STATES = 64, MAX_REQUESTS = 4000 };

struct sim {
    struct td_sched *s;
    struct td_sched_params p;
    uint64_t kv[MAX_BLOCKS * TD_SCHED_BLOCK]; /* hash of the text up to that token */
    bool prefilled[MAX_BLOCKS * TD_SCHED_BLOCK];
    uint64_t state[MAX_STATES]; /* hash of the text behind which the state stands */
    uint32_t seed;
    int finished, steps, hits;
};

static uint32_t next_random(struct sim *m)
{
    m->seed = m->seed * 1664525u + 1013904223u;
    return m->seed >> 8;
}

static uint64_t hash(uint64_t h, int32_t id)
{
    return (h ^ (uint64_t)(id + 1)) * 0x9E3779B97F4A7C15u + 12345;
}

static void sim_open(struct sim *m, struct td_sched_params p, uint32_t seed)
{
    memset(m, 0, sizeof(*m));
    m->p = p;
    m->seed = seed;
    assert_int_equal(td_sched_new(&p, &m->s, NULL), TD_OK);
}

static struct td_request *submit(struct sim *m, uint64_t id, const int32_t *ids,
                                 int32_t n, int32_t max_tokens)
{
    struct td_request *r = NULL;
    int32_t hints[2] = {n / 3, n / 2};
    struct td_submission sub = {.id = id,
                                .prompt = ids,
                                .n_prompt = n,
                                .hints = hints,
                                .n_hints = 2,
                                .max_tokens = max_tokens,
                                .all_logits = next_random(m) % 16 == 0};
    assert_int_equal(td_sched_submit(m->s, &sub, &r, NULL), TD_OK);
    return r;
}

/* Computes a row: checks the past, writes the present. */
static void compute(struct sim *m, const struct td_sched_row *row)
{
    struct td_request *r = row->request;
    uint64_t h = 0;
    assert_true(row->start == r->done && row->start + row->n <= r->n_ids);
    assert_true(row->decode ? row->n == 1 : row->start % TD_SCHED_BLOCK == 0);
    for (int32_t t = 0; t < row->start; t++) {
        int32_t at =
            r->blocks[t / TD_SCHED_BLOCK] * TD_SCHED_BLOCK + t % TD_SCHED_BLOCK;
        h = hash(h, r->ids[t]);
        assert_true(m->kv[at] == h);
        if (t < r->known * TD_SCHED_BLOCK)
            assert_true(m->prefilled[at]);
    }
    if (row->start)
        assert_true(m->state[r->slot] == h);
    for (int32_t t = row->start; t < row->start + row->n; t++) {
        int32_t at =
            r->blocks[t / TD_SCHED_BLOCK] * TD_SCHED_BLOCK + t % TD_SCHED_BLOCK;
        assert_true(t / TD_SCHED_BLOCK < r->n_blocks);
        assert_true(t / TD_SCHED_BLOCK >=
                    r->known); /* shared blocks are never written */
        h = hash(h, r->ids[t]);
        m->kv[at] = h;
        m->prefilled[at] = !row->decode;
    }
    m->state[r->slot] = h;
}

static void step(struct sim *m)
{
    struct td_sched_step st;
    const struct td_state_copy *saves;
    struct td_request *ended[2 * MAX_STATES];
    int32_t n_saves, n_ended = 0, rows = 0, outs = 0;
    td_sched_plan(m->s, &st);
    for (int32_t i = 0; i < st.n_restore; i++)
        m->state[st.restore[i].to] = m->state[st.restore[i].from];
    m->hits += st.n_restore;
    for (int32_t i = 0; i < st.n_rows; i++) {
        const struct td_sched_row *row = &st.rows[i];
        compute(m, row);
        rows += row->n;
        outs += row->n_out;
        bool last = row->start + row->n == row->request->n_ids;
        assert_true(!last || row->n_out > 0);
        if (last &&
            !td_sched_append(m->s, row->request, (int32_t)(next_random(m) % 50)))
            ended[n_ended++] = row->request;
    }
    assert_true(rows <= m->p.max_rows && outs <= m->p.max_out);
    assert_true(st.n_rows > 0 || td_sched_idle(m->s));
    td_sched_commit(m->s, &saves, &n_saves);
    for (int32_t i = 0; i < n_saves; i++)
        m->state[saves[i].to] = m->state[saves[i].from];
    for (int32_t i = 0; i < n_ended; i++)
        td_sched_finish(m->s, ended[i]);
    m->finished += n_ended;
    m->steps++;
}

static void drain(struct sim *m)
{
    for (int i = 0; i < 100000 && !td_sched_idle(m->s); i++)
        step(m);
    assert_true(td_sched_idle(m->s));
}

static void assert_nothing_held(struct sim *m)
{
    struct td_sched_counts c;
    td_sched_counts(m->s, &c);
    assert_int_equal(c.blocks_used, 0);
    assert_int_equal(c.slots_used, 0);
    assert_int_equal(c.running + c.waiting, 0);
    td_sched_check(m->s);
}

/* Prompts share long beginnings; memory is short; requests are cancelled at random. */
static void random_load(struct td_sched_params p, uint32_t seed)
{
    static struct sim m;
    static int32_t text[3][1000];
    struct td_sched_counts c;
    uint64_t next_id = 1;
    int cancelled = 0;
    sim_open(&m, p, seed);
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 1000; t++)
            text[i][t] = (int32_t)(next_random(&m) % 50);
    for (int round = 0; round < 600; round++) {
        if (next_random(&m) % 3 == 0) {
            int32_t ids[1000], n = 1 + (int32_t)(next_random(&m) % 500);
            memcpy(ids, text[next_random(&m) % 3], sizeof(ids));
            if (next_random(&m) % 2)
                ids[next_random(&m) % (uint32_t)n] = 99;
            (void)submit(&m, next_id++, ids, n, 1 + (int32_t)(next_random(&m) % 200));
        }
        struct td_request *r =
            td_sched_find(m.s, 1 + next_random(&m) % (uint32_t)next_id);
        if (r && next_random(&m) % 8 == 0) {
            td_sched_finish(m.s, r);
            cancelled++;
        }
        step(&m);
    }
    drain(&m);
    assert_nothing_held(&m);
    td_sched_counts(m.s, &c);
    assert_int_equal(m.finished + cancelled, next_id - 1);
    if (p.n_snapshots)
        assert_true(m.hits > 0);
    if (p.n_blocks <= 24 && p.n_slots == 8)
        assert_true(c.preemptions > 0);
    td_sched_free(m.s);
}

static void test_random(void **state)
{
    (void)state;
    const struct td_sched_params plenty = {.n_blocks = 200,
                                           .n_slots = 8,
                                           .n_snapshots = 40,
                                           .interval = 128,
                                           .max_rows = 256,
                                           .max_out = 72,
                                           .max_len = 1024,
                                           .max_waiting = 1000};
    struct td_sched_params p = plenty;
    for (uint32_t seed = 1; seed <= 6; seed++) {
        random_load(plenty, seed);
        p = plenty;
        p.n_blocks = 20;
        random_load(p, seed);
        p.n_snapshots = 3;
        random_load(p, seed);
        p.n_snapshots = 0;
        random_load(p, seed);
        p.n_slots = 3;
        p.n_snapshots = 1;
        random_load(p, seed);
    }
}

static struct td_sched_params small(void)
{
    return (struct td_sched_params){.n_blocks = 64,
                                    .n_slots = 4,
                                    .n_snapshots = 8,
                                    .interval = 256,
                                    .max_rows = 192,
                                    .max_out = 68,
                                    .max_len = 1024,
                                    .max_waiting = 4};
}

static void fill(int32_t *ids, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        ids[i] = i % 40;
}

/* The second sight of a prompt skips all of it but the last, unfinished block. */
static void test_second_sight(void **state)
{
    (void)state;
    static struct sim m;
    int32_t ids[512];
    struct td_sched_counts c;
    fill(ids, 512);
    const int32_t lengths[] = {300, 320, 64, 65};
    for (int i = 0; i < 4; i++) {
        sim_open(&m, small(), 3);
        m.seed = 1; /* no all_logits */
        (void)submit(&m, 1, ids, lengths[i], 3);
        drain(&m);
        struct td_request *r = submit(&m, 2, ids, lengths[i], 3);
        bool skips = !r->all_logits;
        step(&m);
        td_sched_counts(m.s, &c);
        assert_true(skips);
        assert_int_equal(c.prefix_hits, (lengths[i] - 1) / 64 * 64);
        drain(&m);
        assert_nothing_held(&m);
        td_sched_free(m.s);
    }
}

/* A long prompt gives way: generated tokens come every step, a short prompt is through
 * long before it. */
static void test_fair(void **state)
{
    (void)state;
    static struct sim m;
    int32_t ids[1000];
    struct td_sched_counts c;
    fill(ids, 1000);
    sim_open(&m, small(), 1);
    struct td_request *first = submit(&m, 1, ids, 10, 200);
    step(&m);
    struct td_request *big = submit(&m, 2, ids, 960, 5),
                      *tiny = submit(&m, 3, ids, 20, 5);
    int32_t before = first->n_ids;
    step(&m);
    assert_true(first->n_ids == before + 1);
    assert_true(big->done > 0 && big->done <= 192);
    assert_int_equal(tiny->state, TD_REQUEST_DECODE);
    td_sched_counts(m.s, &c);
    assert_int_equal(c.running, 3);
    drain(&m);
    assert_nothing_held(&m);
    td_sched_free(m.s);
}

static void expect(struct sim *m, struct td_submission sub, enum td_status want)
{
    struct td_request *r = NULL;
    struct td_error err;
    td_error_init(&err);
    assert_int_equal(td_sched_submit(m->s, &sub, &r, &err), want);
    assert_int_equal(err.code, want);
    assert_null(r);
}

static void test_refusals(void **state)
{
    (void)state;
    static struct sim m;
    int32_t ids[2000];
    fill(ids, 2000);
    sim_open(&m, small(), 1);
    struct td_submission good = {
        .id = 1, .prompt = ids, .n_prompt = 10, .max_tokens = 5};
    struct td_submission sub = good;
    sub.n_prompt = 0;
    expect(&m, sub, TD_E_INPUT);
    sub.n_prompt = 1024;
    expect(&m, sub, TD_E_INPUT);
    sub = good;
    sub.max_tokens = 0;
    expect(&m, sub, TD_E_INPUT);
    for (uint64_t i = 0; i < 4; i++)
        (void)submit(&m, i, ids, 10, 2);
    expect(&m, good, TD_E_LIMIT);
    drain(&m);
    for (int n = 1; n <= 4; n++) {
        struct td_error err;
        struct td_request *r = NULL;
        td_error_init(&err);
        td_mem_fail_at(n);
        assert_int_equal(td_sched_submit(m.s, &good, &r, &err), TD_E_NOMEM);
        td_mem_fail_at(0);
    }
    for (int n = 1; n <= 9; n++) {
        struct td_sched *s = NULL;
        struct td_sched_params p = small();
        td_mem_fail_at(n);
        assert_int_equal(td_sched_new(&p, &s, NULL), TD_E_NOMEM);
        td_mem_fail_at(0);
    }
    td_sched_free(m.s);
}

/* A resumed request: ids generated earlier are prefilled, and count as generated. */
static void test_resume(void **state)
{
    (void)state;
    static struct sim m;
    int32_t ids[200];
    fill(ids, 200);
    sim_open(&m, small(), 1);
    struct td_request *r = NULL;
    struct td_submission sub = {.id = 1,
                                .prompt = ids,
                                .n_prompt = 100,
                                .generated = ids,
                                .n_generated = 70,
                                .max_tokens = 72};
    assert_int_equal(td_sched_submit(m.s, &sub, &r, NULL), TD_OK);
    drain(&m);
    assert_int_equal(m.finished, 1);
    assert_nothing_held(&m);
    struct td_sched_counts c;
    td_sched_counts(m.s, &c);
    assert_int_equal(c.generated_tokens, 2);
    td_sched_free(m.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_second_sight),
        cmocka_unit_test(test_fair),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_resume),
    };
    return cmocka_run_group_tests_name("sched_sched", tests, NULL, NULL);
}

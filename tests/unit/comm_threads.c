/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between threads: sums in the order of the ranks, equal bits everywhere,
 * and a deadline that names who is missing.
 */
#include "check.h"

#include "comm/comm.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { RANKS = 4, N = 1000, ROUNDS = 50 };

struct job {
    struct td_comm *comm;
    float x[N];
    enum td_status status;
};

static float term(int rank, int i)
{
    return (float)(i + 1) / (float)(3 + rank * 7);
}

static void *work(void *arg)
{
    struct job *j = arg;
    for (int round = 0; round < ROUNDS && j->status == TD_OK; round++) {
        for (int i = 0; i < N; i++)
            j->x[i] = term(j->comm->rank, i + round);
        size_t n = round % 2 ? N : N / 2;
        j->status = j->comm->ops->all_reduce(j->comm, j->x, n, NULL);
        if (j->status == TD_OK)
            j->status = j->comm->ops->barrier(j->comm, NULL);
    }
    return NULL;
}

/* Gather, broadcast and minimum, one after another. */
static void *exchange(void *arg)
{
    struct job *j = arg;
    struct td_comm *c = j->comm;
    int32_t own[3] = {c->rank, c->rank * 10, -c->rank}, all[RANKS][3] = {{0}};
    int32_t word[2] = {c->rank + 7, c->rank};
    int64_t least[2] = {c->rank + 1, -c->rank};
    j->status = c->ops->gather(c, own, sizeof(own), all, NULL);
    if (j->status == TD_OK)
        j->status = c->ops->broadcast(c, word, sizeof(word), NULL);
    if (j->status == TD_OK)
        j->status = td_comm_min(c, least, 2, NULL);
    bool right =
        word[0] == 7 && word[1] == 0 && least[0] == 1 && least[1] == -(RANKS - 1);
    for (int r = 0; r < RANKS && c->rank == 0; r++)
        right = right && all[r][0] == r && all[r][1] == r * 10 && all[r][2] == -r;
    if (j->status == TD_OK && !right)
        j->status = TD_E_INTERNAL;
    return NULL;
}

/* Runs `fn` as all ranks, one thread each; all end well and have been heard of. */
static void as_ranks(void *(*fn)(void *), struct job *jobs)
{
    struct td_comm *comms[RANKS];
    pthread_t threads[RANKS];
    assert_int_equal(td_comm_threads(RANKS, 10, comms, NULL), TD_OK);
    for (int r = 0; r < RANKS; r++) {
        jobs[r] = (struct job){.comm = comms[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, fn, &jobs[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        assert_int_equal(jobs[r].status, TD_OK);
        assert_true(comms[r]->progress > 0);
        comms[r]->ops->free(comms[r]);
    }
}

static void test_all_reduce(void **state)
{
    (void)state;
    static struct job jobs[RANKS];
    as_ranks(work, jobs);
    for (int i = 0; i < N; i++) {
        float sum = term(0, i + ROUNDS - 1);
        for (int r = 1; r < RANKS; r++)
            sum += term(r, i + ROUNDS - 1);
        for (int r = 0; r < RANKS; r++)
            assert_memory_equal(&jobs[r].x[i], &sum, sizeof(sum));
    }
}

static void test_others(void **state)
{
    (void)state;
    static struct job jobs[RANKS];
    as_ranks(exchange, jobs);
}

static void test_abort(void **state)
{
    (void)state;
    struct td_comm *comms[2];
    struct td_error err;
    float x = 1;
    td_error_init(&err);
    assert_int_equal(td_comm_threads(2, 10, comms, NULL), TD_OK);
    comms[1]->ops->abort(comms[1]);
    assert_int_equal(comms[0]->ops->all_reduce(comms[0], &x, 1, &err), TD_E_PEER);
    comms[0]->ops->free(comms[0]);
    comms[1]->ops->free(comms[1]);
}

static void test_deadline(void **state)
{
    (void)state;
    struct td_comm *comms[2];
    struct td_error err;
    float x = 1;
    td_error_init(&err);
    assert_int_equal(td_comm_threads(2, 0.05, comms, NULL), TD_OK);
    assert_int_equal(comms[0]->ops->all_reduce(comms[0], &x, 1, &err), TD_E_TIMEOUT);
    assert_non_null(strstr(err.what, "rank 1"));
    assert_int_equal(comms[1]->ops->barrier(comms[1], NULL), TD_E_PEER);
    comms[0]->ops->free(comms[0]);
    comms[1]->ops->free(comms[1]);
}

static void test_self(void **state)
{
    (void)state;
    struct td_comm *c = td_comm_self();
    float x = 3;
    assert_int_equal(c->ops->all_reduce(c, &x, 1, NULL), TD_OK);
    assert_int_equal(c->ops->barrier(c, NULL), TD_OK);
    assert_true(x == 3 && c->ranks == 1 && c->rank == 0);
    int64_t least = 5;
    assert_int_equal(td_comm_min(c, &least, 1, NULL), TD_OK);
    assert_true(least == 5);
    assert_string_equal(td_comm_host(c, 0), "this host");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce), cmocka_unit_test(test_others),
        cmocka_unit_test(test_abort),      cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_self),
    };
    return cmocka_run_group_tests_name("comm_threads", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teams of threads: every item once, whatever the sizes, from many short loops in a row,
 * with threads that sleep, that are late, or that are more than the processor has.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"
#include "base/mem.h"
#include "base/team.h"
#include "check.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { ITEMS = 1000, LOOPS = 3000 };

struct count {
    int seen[ITEMS];
    int64_t step, n;
    _Atomic int bad; /* calls with more than `step` items, or from unknown threads */
    int threads;
    _Atomic int others; /* items that the caller did not do itself */
};

static void count_items(void *arg, int64_t first, int64_t last)
{
    struct count *c = arg;
    if ((c->step && last - first > c->step && last - first != c->n) ||
        td_team_index() < 0 || td_team_index() >= c->threads)
        atomic_fetch_add(&c->bad, 1);
    if (td_team_index())
        atomic_fetch_add(&c->others, (int)(last - first));
    for (int64_t i = first; i < last; i++)
        c->seen[i]++;
}

static void run_and_check(struct td_team *team, int64_t n, int64_t step)
{
    struct count c = {.step = step, .n = n, .threads = td_team_threads(team)};
    td_team_run(team, n, step, count_items, &c);
    for (int64_t i = 0; i < ITEMS; i++)
        assert_int_equal(c.seen[i], i < n);
    assert_int_equal(atomic_load(&c.bad), 0);
}

static struct td_team *team_of(int threads)
{
    struct td_team *team = NULL;
    assert_int_equal(td_team_new(threads, NULL, &team, NULL), TD_OK);
    return team;
}

static void test_every_item_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 9; threads += threads < 4 ? 1 : 5) {
        struct td_team *team = team_of(threads);
        assert_int_equal(td_team_threads(team), threads);
        for (int64_t n = 0; n <= ITEMS; n = n < 20 ? n + 1 : n * 3 / 2 + 1)
            for (int64_t step = 0; step <= n + 1; step = step * 3 + 1)
                run_and_check(team, n, step);
        td_team_free(team);
    }
}

struct sum {
    int64_t from[64], to[64];
};

static void add_one(void *arg, int64_t first, int64_t last)
{
    struct sum *s = arg;
    for (int64_t i = first; i < last; i++)
        s->to[i] = s->from[63 - i] + 1;
}

/* Each loop reads what other threads wrote in the one before. */
static void test_loops_see_each_other(void **state)
{
    (void)state;
    struct td_team *team = team_of(3);
    struct sum s = {{0}, {0}};
    for (int i = 0; i < LOOPS; i++) {
        td_team_run(team, 64, 1, add_one, &s);
        memcpy(s.from, s.to, sizeof(s.from));
    }
    for (int i = 0; i < 64; i++)
        assert_int_equal(s.to[i], LOOPS);
    td_team_free(team);
}

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&t, NULL);
}

static double cpu_seconds(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_idle_uses_nothing(void **state)
{
    (void)state;
    struct td_team *team = team_of(2);
    run_and_check(team, ITEMS, 1);
    pause_ms(20);
    double before = cpu_seconds();
    pause_ms(200);
    assert_true(cpu_seconds() - before < 0.02);
    for (int i = 0; i < 20; i++) {
        run_and_check(team, ITEMS, 1);
        pause_ms(2);
    }
    td_team_free(team);
}

static void slow_items(void *arg, int64_t first, int64_t last)
{
    (void)first;
    (void)last;
    if (td_team_index())
        atomic_fetch_add((_Atomic int *)arg, 1);
    pause_ms(5);
}

/* A caller that has nothing left to do sleeps, and is woken by the last thread. */
static void test_caller_waits_for_what_began(void **state)
{
    (void)state;
    struct td_team *team = team_of(2);
    _Atomic int others = 0;
    for (int i = 0; i < 10; i++)
        td_team_run(team, 5, 1, slow_items, &others);
    assert_true(atomic_load(&others) > 0);
    assert_true(atomic_load(&others) < 50);
    assert_int_equal(td_team_index(), 0);
    td_team_free(team);
}

static void late_items(void *arg, int64_t first, int64_t last)
{
    (void)first;
    (void)last;
    if (td_team_index())
        pause_ms(100);
    else
        atomic_fetch_add((_Atomic int *)arg, 1);
}

/* The others do what a thread that stands still would have done. */
static void test_nobody_waits_for_a_share(void **state)
{
    (void)state;
    struct td_team *team = team_of(2);
    _Atomic int own = 0;
    td_team_run(team, 40, 1, late_items, &own);
    assert_true(atomic_load(&own) >= 30);
    td_team_free(team);
}

static void test_failures(void **state)
{
    (void)state;
    for (long n = 1; n <= 2; n++) {
        struct td_team *team = NULL;
        struct td_error err;
        td_error_init(&err);
        td_mem_fail_at(n);
        assert_int_equal(td_team_new(2, NULL, &team, &err), TD_E_NOMEM);
        assert_null(team);
        assert_non_null(strstr(err.what, "team"));
    }
    td_mem_fail_at(0);
    td_team_free(NULL);
    struct td_team *team = team_of(0);
    assert_int_equal(td_team_threads(team), 1);
    td_team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once),
        cmocka_unit_test(test_loops_see_each_other),
        cmocka_unit_test(test_idle_uses_nothing),
        cmocka_unit_test(test_caller_waits_for_what_began),
        cmocka_unit_test(test_nobody_waits_for_a_share),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

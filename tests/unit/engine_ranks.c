/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's heartbeat lines and its watchdog: lines are read as they were written and
 * nothing else is one; progress keeps the watchdog quiet, a stand-still wakes it.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "engine/ranks.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    (void)nanosleep(&t, NULL);
}

static void test_line(void **state)
{
    (void)state;
    struct td_beat b = {.rank = 3,
                        .seq = 17,
                        .step = 18446744073709551ULL,
                        .resident = 5,
                        .available = 6,
                        .kills = 7};
    struct td_beat got;
    char line[TD_BEAT_MAX];
    (void)snprintf(b.host, sizeof(b.host), "spark-2");
    (void)snprintf(b.phase, sizeof(b.phase), "warmup");
    size_t n = td_beat_format(&b, line);
    assert_string_equal(line, "@hb 3 spark-2 17 18446744073709551 warmup 5 6 7\n");
    assert_int_equal(n, strlen(line));
    assert_true(td_beat_parse(line, n, &got));
    assert_true(td_beat_parse(line, n - 1, &got));
    assert_true(got.rank == 3 && got.seq == 17 && got.step == b.step);
    assert_true(got.resident == 5 && got.available == 6 && got.kills == 7);
    assert_string_equal(got.host, "spark-2");
    assert_string_equal(got.phase, "warmup");
}

static void test_not_a_line(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "@hb",
        "@hb 1 h 2 3",
        "@hbx 1 h 2 3 serve 4 5 6",
        "@hb -1 h 2 3 serve 4 5 6",
        "@hb 1 h 2x 3 serve 4 5 6",
        "@hb 1 h 2 3 serve 4 5",
        "@hb 1 h 2 3 serve 4 5 6 more",
        "@hb 99999999999 h 2 3 serve 4 5 6",
        "@hb 1 h 2 333333333333333333333 serve 4 5 6",
        "@hb 1 h 2 3 a-phase-that-is-too-long 4 5 6",
        "@hb 1 h 2 3 serve 4 5 6\nx",
        "{\"t\":1}",
    };
    struct td_beat got;
    for (size_t i = 0; i < TD_COUNT(bad); i++)
        if (td_beat_parse(bad[i], strlen(bad[i]), &got))
            fail_msg("taken for a heartbeat: %s", bad[i]);
}

static atomic_int expiries;

static void on_expiry(void *self, const struct td_error *err, int exit_code)
{
    (void)self;
    if (err->code == TD_E_TIMEOUT && exit_code == TD_RANK_EXIT_WATCHDOG)
        atomic_fetch_add(&expiries, 1);
}

static void test_threads(void **state)
{
    (void)state;
    int pipes[2];
    char text[4096];
    struct td_ranks *r;
    struct td_comm comm = {.rank = 1, .ranks = 2};
    assert_int_equal(pipe(pipes), 0);
    struct td_ranks_params p = {.comm = &comm,
                                .beat_fd = pipes[1],
                                .rank_timeout = 1,
                                .load_timeout = 1,
                                .leave = on_expiry};
    td_phase_set(TD_PHASE_SERVE);
    assert_int_equal(td_ranks_start(&p, &r, NULL), TD_OK);
    for (int i = 0; i < 20; i++) { /* getting on: quiet */
        atomic_fetch_add(&comm.progress, 1);
        nap(0.1);
    }
    assert_int_equal(atomic_load(&expiries), 0);
    double start = td_clock_now(); /* standing still: it barks */
    while (atomic_load(&expiries) == 0 && td_clock_now() - start < 30)
        nap(0.05);
    assert_true(atomic_load(&expiries) > 0);
    td_ranks_stop(r);
    assert_int_equal(close(pipes[1]), 0);
    ssize_t n = read(pipes[0], text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    struct td_beat first, second;
    char *newline = strchr(text, '\n');
    assert_non_null(newline);
    assert_true(td_beat_parse(text, (size_t)(newline + 1 - text), &first));
    char *next = strchr(newline + 1, '\n');
    assert_non_null(next);
    assert_true(td_beat_parse(newline + 1, (size_t)(next - newline), &second));
    assert_true(first.rank == 1 && second.seq == first.seq + 1);
    assert_string_equal(second.phase, "serve");
    assert_int_equal(close(pipes[0]), 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct td_ranks *r;
    struct td_comm comm = {.ranks = 2};
    struct td_ranks_params p = {.comm = &comm, .beat_fd = -1, .rank_timeout = 9};
    td_mem_fail_at(1);
    assert_int_equal(td_ranks_start(&p, &r, NULL), TD_E_NOMEM);
    td_mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_not_a_line),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("engine_ranks", tests, NULL, NULL);
}

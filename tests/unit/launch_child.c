/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes and the supervisor, with shells in the place of an engine: how they
 * end, what they say, the kernel's counters from recorded trees.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/clock.h"
#include "launch/child.h"
#include "launch/supervisor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- causes ------------------------------------------------------------------------ */

static int run_shell(const char *script)
{
    char sh[] = "/bin/sh", c[] = "-c", text[200];
    char *argv[] = {sh, c, text, NULL};
    struct td_child child;
    int status = -1;
    (void)snprintf(text, sizeof(text), "%s", script);
    assert_int_equal(td_child_spawn(argv, SIGKILL, &child, NULL), TD_OK);
    double end = td_clock_now() + 20;
    while (!td_child_ended(&child, &status) && td_clock_now() < end)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(child.pid, 0);
    td_child_release(&child);
    return status;
}

static void cause_of(int status, int64_t before, int64_t after, const char *said,
                     const char *words, struct td_error *err)
{
    struct td_oom_counts a = {.host = before, .group = -1};
    struct td_oom_counts b = {.host = after, .group = -1};
    struct td_error own;
    td_error_init(&own);
    td_error_init(err);
    if (said)
        td_error_set(&own, TD_E_MEMORY_PLAN, "%s", said);
    td_child_cause(status, &a, &b, &own, words, err);
}

static void causes(void **state)
{
    struct td_error err;
    (void)state;
    int killed = run_shell("kill -9 $$"), three = run_shell("exit 3");
    int segv = run_shell("kill -SEGV $$");
    cause_of(killed, 4, 4, NULL, "", &err);
    assert_non_null(strstr(err.what, "signal 9 (SIGKILL)"));
    assert_non_null(strstr(err.why, "did not rise"));
    cause_of(killed, 4, 5, NULL, "", &err);
    assert_int_equal(err.code, TD_E_NOMEM);
    assert_non_null(strstr(err.what, "out of memory"));
    assert_non_null(strstr(err.fix, "--memory"));
    cause_of(killed, -1, 5, NULL, "", &err);
    assert_int_equal(err.code, TD_E_PEER);
    cause_of(segv, 4, 5, NULL, "last words", &err);
    assert_non_null(strstr(err.what, "SIGSEGV"));
    assert_string_equal(err.why, "last words");
    cause_of(three, 0, 0, "it does not fit", "", &err);
    assert_int_equal(err.code, TD_E_MEMORY_PLAN);
    assert_string_equal(err.what, "the engine ended: it does not fit");
    cause_of(three, 0, 0, NULL, "", &err);
    assert_non_null(strstr(err.what, "status 3"));
}

static void missing_program(void **state)
{
    char path[] = "/no/such/program";
    char *argv[] = {path, NULL};
    struct td_child c;
    int status = 0;
    (void)state;
    assert_int_equal(td_child_spawn(argv, SIGKILL, &c, NULL), TD_OK);
    while (!td_child_ended(&c, &status))
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(status != 0);
    td_child_release(&c);
}

/* ---- counters ---------------------------------------------------------------------- */

static void write_file(const char *root, const char *name, const char *text)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void counters(void **state)
{
    char root[] = "/tmp/td-oom-XXXXXX", command[64];
    struct td_oom_counts c;
    (void)state;
    assert_non_null(mkdtemp(root));
    td_oom_counts_read(root, &c);
    assert_int_equal(c.host, -1);
    assert_int_equal(c.group, -1);
    write_file(root, "proc/vmstat", "nr_free_pages 5\noom_kill 17\nx_oom_kill 3\n");
    write_file(root, "proc/self/cgroup", "1:name=x:/old\n0::/a/b.service\n");
    write_file(root, "sys/fs/cgroup/a/b.service/memory.events",
               "low 0\noom 2\noom_kill 9\noom_group_kill 1\n");
    td_oom_counts_read(root, &c);
    assert_int_equal(c.host, 17);
    assert_int_equal(c.group, 9);
    write_file(root, "proc/self/cgroup", "4:memory:/job/7\n0::/\n");
    write_file(root, "sys/fs/cgroup/memory/job/7/memory.oom_control",
               "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    td_oom_counts_read(root, &c);
    assert_int_equal(c.group, 3);
    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(run_shell(command), 0);
}

static void no_more_files(void **state)
{
    char name[] = "/bin/true";
    char *argv[] = {name, NULL};
    struct td_child c;
    struct td_error err;
    struct rlimit before, low;
    int next = dup(0); /* the lowest number that is free */
    (void)state;
    assert_true(next >= 0 && close(next) == 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = (rlim_t)next;
    td_error_init(&err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    enum td_status s = td_child_spawn(argv, SIGKILL, &c, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(s, TD_E_IO);
    assert_non_null(strstr(err.what, "cannot start /bin/true"));
    assert_non_null(strstr(err.fix, "ulimit -n"));
}

/* ---- the supervisor ---------------------------------------------------------------- */

struct watch {
    struct td_supervisor *s;
    int lost, stop_after, events, words, rank;
    bool works; /* an event says that it does */
    enum td_again (*again)(void *self, struct td_error *why);
    struct td_error last;
    double wait, longest;
    char line[100], word[100];
};

static void on_connected(void *self)
{
    (void)self;
}

static enum td_status on_received(void *self, const char *bytes, size_t n, size_t *used,
                                  struct td_error *err)
{
    (void)self;
    (void)bytes;
    (void)err;
    *used = n;
    return TD_OK;
}

static void on_event(void *self, const char *line, size_t n)
{
    struct watch *w = self;
    w->events++;
    if (w->works)
        td_supervisor_works(w->s);
    (void)snprintf(w->line, sizeof(w->line), "%.*s", (int)n, line);
}

static void on_words(void *self, int rank, const char *line, size_t n)
{
    struct watch *w = self;
    w->words++;
    w->rank = rank;
    (void)snprintf(w->word, sizeof(w->word), "%.*s", (int)n, line);
}

static void on_lost(void *self, const struct td_error *why, double wait)
{
    struct watch *w = self;
    w->last = *why;
    w->wait = wait;
    w->longest = TD_MAX(w->longest, wait);
    if (++w->lost == w->stop_after)
        td_supervisor_stop(w->s);
}

static double on_round(void *self, struct td_buf *out)
{
    (void)self;
    (void)out;
    return 0.05;
}

/* Answers of params.again(), one after the other; the last one stays. */
static struct {
    const enum td_again *v;
    int at, n, asked, put_off;
    double wait;
} answers;

static enum td_again again(void *self, struct td_error *why)
{
    (void)self;
    answers.asked++;
    enum td_again a = answers.v[answers.at];
    answers.at = TD_MIN(answers.at + 1, answers.n - 1);
    if (a == TD_AGAIN_NO)
        td_error_set(why, TD_E_SSH, "nobody is there");
    return a;
}

static void on_put_off(void *self, const struct td_error *why, double wait)
{
    (void)self;
    assert_string_equal(why->what, "nobody is there");
    assert_true(answers.put_off++ == 0 ? wait > 0 : wait > answers.wait);
    answers.wait = wait;
}

static void answer(const enum td_again *v, int n)
{
    memset(&answers, 0, sizeof(answers));
    answers.v = v;
    answers.n = n;
}

static enum td_status supervise(struct watch *w, const char *script, int stop_after,
                                struct td_error *err)
{
    char sh[] = "/bin/sh", c[] = "-c", text[300];
    char *argv[] = {sh, c, text, NULL};
    struct td_supervisor_params p = {.argv = argv,
                                     .self = w,
                                     .connected = on_connected,
                                     .received = on_received,
                                     .event = on_event,
                                     .words = on_words,
                                     .lost = on_lost,
                                     .again = w->again,
                                     .put_off = on_put_off,
                                     .round = on_round};
    *w = (struct watch){.stop_after = stop_after, .works = w->works};
    td_error_init(err);
    (void)snprintf(text, sizeof(text), "%s", script);
    assert_int_equal(td_supervisor_new(&p, &w->s, err), TD_OK);
    enum td_status st = td_supervisor_run(w->s, err);
    td_supervisor_free(w->s);
    return st;
}

static void restarts(void **state)
{
    struct watch w = {.works = false};
    struct td_error err;
    (void)state;
    assert_int_equal(
        supervise(&w, "echo '{\"event\":\"x\"}'; echo ouch >&2; kill -9 $$", 2, &err),
        TD_OK);
    assert_int_equal(w.lost, 2);
    assert_true(w.events == 2 && w.words == 2);
    assert_string_equal(w.line, "{\"event\":\"x\"}");
    assert_string_equal(w.word, "ouch");
    assert_non_null(strstr(w.last.what, "SIGKILL"));
    assert_string_equal(w.last.why, "ouch");
    assert_true(w.wait > 0.1); /* longer than the first */
}

/* Deaths with work between them are no row: never a longer wait, never the last. */
static void works_between(void **state)
{
    struct watch w = {.works = true};
    struct td_error err;
    (void)state;
    assert_int_equal(supervise(&w, "echo '{\"event\":\"x\"}'; kill -9 $$",
                               TD_MAX_ENGINE_FAILURES + 2, &err),
                     TD_OK);
    assert_int_equal(w.lost, TD_MAX_ENGINE_FAILURES + 2);
    assert_true(w.wait > 0 && w.longest < 0.15);
}

/* Not before the first start; before every other, until it is allowed. */
static void asks_before_a_restart(void **state)
{
    static const enum td_again v[] = {TD_AGAIN_WAIT, TD_AGAIN_NO, TD_AGAIN_NO,
                                      TD_AGAIN_WAIT, TD_AGAIN_YES};
    struct watch w = {.works = true, .again = again};
    struct td_error err;
    (void)state;
    answer(v, TD_COUNT(v));
    assert_int_equal(supervise(&w, "echo '{\"event\":\"x\"}'; kill -9 $$", 3, &err),
                     TD_OK);
    assert_int_equal(w.lost, 3);
    assert_int_equal(answers.put_off, 2);
    assert_int_equal(answers.asked, 6); /* yes, once more, for the second restart */
}

/* Without end once it has worked; else the reason ends it. */
static void never_allowed(void **state)
{
    static const enum td_again no[] = {TD_AGAIN_NO};
    struct watch w = {.works = false, .again = again};
    struct td_error err;
    (void)state;
    answer(no, 1);
    assert_int_equal(supervise(&w, "kill -9 $$", 0, &err), TD_E_SSH);
    assert_string_equal(err.what, "nobody is there");
    assert_int_equal(w.lost, 1);
    assert_true(answers.put_off > 0 && answers.put_off < TD_MAX_ENGINE_FAILURES);
}

static void orderly_failure(void **state)
{
    struct watch w = {.works = false};
    struct td_error err;
    (void)state;
    assert_int_equal(
        supervise(&w,
                  "echo '{\"event\":\"error\",\"code\":\"does-not-fit\",\"what\":"
                  "\"too large\",\"why\":\"because\",\"fix\":\"do this\"}'; exit 1",
                  0, &err),
        TD_E_MEMORY_PLAN);
    assert_int_equal(w.lost, 1);
    assert_true(w.wait < 0);
    assert_string_equal(err.what, "the engine ended: too large");
    assert_string_equal(err.why, "because");
    assert_string_equal(err.fix, "do this");
}

/* An engine that does not end when it is asked to is killed: after a while if it worked,
 * at once while it loads. */
static double stop_soon(void *self, struct td_buf *out)
{
    struct watch *w = self;
    (void)out;
    if (td_supervisor_pid(w->s)) {
        if (w->works)
            td_supervisor_works(w->s);
        td_supervisor_stop(w->s);
    }
    return 0.05;
}

static void stop_stubborn(bool works)
{
    char sh[] = "/bin/sh", c[] = "-c", script[] = "exec sleep 100";
    char *argv[] = {sh, c, script, NULL};
    struct watch w = {.works = works};
    struct td_error err;
    struct td_supervisor_params p = {.argv = argv,
                                     .self = &w,
                                     .connected = on_connected,
                                     .received = on_received,
                                     .event = on_event,
                                     .words = on_words,
                                     .lost = on_lost,
                                     .round = stop_soon};
    double began = td_clock_now();
    td_error_init(&err);
    assert_int_equal(td_supervisor_new(&p, &w.s, &err), TD_OK);
    assert_int_equal(td_supervisor_run(w.s, &err), TD_OK);
    assert_int_equal(td_supervisor_pid(w.s), 0);
    assert_int_equal(w.lost, 0);
    assert_true((td_clock_now() - began >= 5) == works);
    td_supervisor_free(w.s);
}

static void stubborn_engine(void **state)
{
    (void)state;
    stop_stubborn(true);
    stop_stubborn(false);
}

/* ---- several ranks: a script in the place of mpirun ---------------------------------- */

/* Its last argument but two is the engine's program, as on mpirun's line. */
static enum td_status supervise_ranks(struct watch *w, const char *script,
                                      struct td_error *err)
{
    char path[] = "/tmp/td-mpirun-XXXXXX", program[] = "/bin/engine";
    char *argv[] = {program, NULL};
    struct td_cluster cluster = {.n = 0};
    struct td_mpi_job job = {.mpirun = path, .cluster = &cluster, .ranks = 2};
    struct td_supervisor_params p = {.argv = argv,
                                     .job = &job,
                                     .limits = {3, 0.6, 10, 10},
                                     .self = w,
                                     .connected = on_connected,
                                     .received = on_received,
                                     .event = on_event,
                                     .words = on_words,
                                     .lost = on_lost,
                                     .round = on_round};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, script, strlen(script)) == (ssize_t)strlen(script));
    assert_int_equal(fchmod(fd, 0700), 0);
    assert_int_equal(close(fd), 0);
    memset(w, 0, sizeof(*w));
    td_error_init(err);
    w->stop_after = 1;
    assert_int_equal(td_supervisor_new(&p, &w->s, err), TD_OK);
    enum td_status st = td_supervisor_run(w->s, err);
    td_supervisor_free(w->s);
    (void)unlink(path);
    return st;
}

static void silent_rank(void **state)
{
    struct watch w;
    struct td_error err;
    double began = td_clock_now();
    (void)state;
    assert_int_equal(
        supervise_ranks(&w,
                        "#!/bin/sh\n"
                        "echo '[1,1]<stdout>:@hb 1 there 1 1 load 7 8 9'\n"
                        "echo '[1,1]<stdout>:{\"event\":\"x\"}'\n"
                        "echo '[1,1]<stderr>:hm' >&2\n"
                        "i=0; while [ $i -lt 100 ]; do i=$((i + 1))\n"
                        "echo \"[1,0]<stdout>:@hb 0 here $i $i load 7 8 9\"\n"
                        "sleep 0.1; done\n",
                        &err),
        TD_OK);
    assert_int_equal(w.events, 1);
    assert_int_equal(w.rank, 1);
    assert_string_equal(w.word, "hm");
    assert_int_equal(w.last.rank, 1);
    assert_non_null(strstr(w.last.what, "is silent"));
    assert_true(w.wait > 0.5);
    assert_true(td_clock_now() - began < 9); /* the script is not waited for */
}

static void mpirun_fails(void **state)
{
    struct watch w;
    struct td_error err;
    (void)state;
    assert_int_equal(
        supervise_ranks(&w,
                        "#!/bin/sh\n"
                        "echo -------- >&2\n"
                        "echo 'There are not enough slots available' >&2; exit 1\n",
                        &err),
        TD_E_HOSTS);
    assert_true(w.wait < 0); /* it would not do better the next time */
    assert_int_equal(w.rank, -1);
}

static void mpirun_gets_the_line(void **state)
{
    struct watch w;
    struct td_error err;
    (void)state;
    (void)supervise_ranks(&w, "#!/bin/sh\necho \"$@\" >&2; exit 3\n", &err);
    assert_non_null(strstr(w.last.why, "--tag-output"));
    assert_non_null(strstr(w.last.why, "/bin/engine --socket /"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causes),
        cmocka_unit_test(missing_program),
        cmocka_unit_test(counters),
        cmocka_unit_test(no_more_files),
        cmocka_unit_test(restarts),
        cmocka_unit_test(works_between),
        cmocka_unit_test(orderly_failure),
        cmocka_unit_test(asks_before_a_restart),
        cmocka_unit_test(never_allowed),
        cmocka_unit_test(stubborn_engine),
        cmocka_unit_test(silent_rank),
        cmocka_unit_test(mpirun_fails),
        cmocka_unit_test(mpirun_gets_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What mpirun prints, as data: tags, lines that come in pieces, heartbeats and their
 * deadlines, sentences of mpirun's and ssh's, and which cause is the first.
 */
#include "check.h"

#include "base/mem.h"
#include "launch/evidence.h"
#include "launch/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct td_cluster_host hosts[2];
static struct td_cluster cluster;
static struct td_mpi_job job;

struct heard {
    int events, words, rank;
    char line[512];
};

static void keep(struct heard *h, int rank, const char *line, size_t n)
{
    h->rank = rank;
    (void)snprintf(h->line, sizeof(h->line), "%.*s", (int)n, line);
}

static void on_event(void *self, int rank, const char *line, size_t n)
{
    ((struct heard *)self)->events++;
    keep(self, rank, line, n);
}

static void on_words(void *self, int rank, const char *line, size_t n)
{
    ((struct heard *)self)->words++;
    keep(self, rank, line, n);
}

static struct td_watch *make(struct heard *h)
{
    struct td_watch *w = NULL;
    memset(hosts, 0, sizeof(hosts));
    memset(h, 0, sizeof(*h));
    for (int i = 0; i < 2; i++) {
        (void)snprintf(hosts[i].address, sizeof(hosts[i].address), "192.168.200.1%d",
                       2 + i);
        (void)snprintf(hosts[i].label, sizeof(hosts[i].label), "spark-%d", i + 1);
    }
    cluster = (struct td_cluster){.n = 2, .hosts = hosts};
    job = (struct td_mpi_job){.cluster = &cluster, .ranks = 2};
    struct td_watch_params p = {
        .job = &job,
        .limits = {.first = 10, .silent = 1.5, .still = 4, .load = 300},
        .self = h,
        .event = on_event,
        .words = on_words};
    assert_int_equal(td_watch_new(&p, &w, NULL), TD_OK);
    td_watch_start(w, 100);
    return w;
}

static void out(struct td_watch *w, const char *line, double now)
{
    td_watch_out(w, line, strlen(line), now);
}

static void said(struct td_watch *w, const char *line)
{
    td_watch_err(w, line, strlen(line));
}

static void beat(struct td_watch *w, int rank, int step, const char *phase, double now)
{
    char line[128];
    (void)snprintf(line, sizeof(line),
                   "[1,%d]<stdout>:@hb %d spark-%d 1 %d %s 1073741824 2147483648 3",
                   rank, rank, rank + 1, step, phase);
    out(w, line, now);
}

/* mpirun ended with an exit status. */
static struct td_error cause(const struct td_watch *w, int code, int *killed)
{
    struct td_error err;
    int none;
    td_error_init(&err);
    td_watch_cause(w, code << 8, "last words", &err, killed ? killed : &none);
    assert_int_not_equal(err.code, TD_OK);
    return err;
}

/* ---- tags and pieces ----------------------------------------------------------------- */

static void tags(void **state)
{
    struct heard h;
    struct td_watch *w = make(&h);
    (void)state;
    out(w, "[1,1]<stdout>:{\"event\":\"phase\"}", 100);
    assert_int_equal(h.events, 1);
    assert_int_equal(h.rank, 1);
    assert_string_equal(h.line, "{\"event\":\"phase\"}");
    said(w, "[1,0]<stderr>:careful");
    assert_string_equal(h.line, "careful");
    assert_int_equal(h.rank, 0);
    static const char *const others[] = {
        "[1,2]<stdout>:{}",
        "[1,]<stdout>:{}",
        "[1,0]<stdwhat>:{}",
        "[1,0]",
        "[1,99999999999]<stdout>:{}",
        "[x",
        "mpirun says",
    };
    for (size_t i = 0; i < TD_COUNT(others); i++) {
        out(w, others[i], 100);
        assert_int_equal(h.rank, -1);
        assert_string_equal(h.line, others[i]);
    }
    assert_int_equal(h.events, 1);
    out(w, "[1,0]<stdout>:", 100);
    out(w, "[1,0]<stdout>:text", 100);
    assert_string_equal(h.line, "text");
    td_watch_free(w);
}

static void pieces(void **state)
{
    struct heard h;
    struct td_watch *w = make(&h);
    struct td_watch_rank r[TD_MAX_RANKS];
    (void)state;
    out(w, "[1,0]<stdout>:{\"event\":\"pro", 100);
    out(w, "[1,1]<stdout>:{\"event\":\"other\"}", 100);
    out(w, "[1,0]<stdout>:gress\",\"n\"", 100);
    assert_int_equal(h.events, 1);
    out(w, "[1,0]<stdout>::{}}", 100);
    assert_int_equal(h.events, 2);
    assert_string_equal(h.line, "{\"event\":\"progress\",\"n\":{}}");
    /* A beginning whose rest never comes does not hold up what follows. */
    out(w, "[1,0]<stdout>:{\"event\":", 100);
    out(w, "[1,0]<stdout>:{\"event\":\"next\"}", 100);
    assert_int_equal(h.events, 3);
    out(w, "[1,1]<stdout>:@hb 1 spar", 101);
    out(w, "[1,1]<stdout>:k-2 7 42 load 1 2 3", 101);
    assert_int_equal(td_watch_ranks(w, 101.5, r), 2);
    assert_string_equal(r[1].host, "spark-2");
    assert_string_equal(r[1].phase, "load");
    assert_int_equal((int)r[1].step, 42);
    assert_true(r[0].age < 0 && r[1].age > 0.4 && r[1].age < 0.6);
    beat(w, 0, 1, "load", 101);
    /* A rank cannot speak for another. */
    out(w, "[1,1]<stdout>:@hb 0 spark-2 8 43 serve 1 2 3", 101.5);
    (void)td_watch_ranks(w, 101.5, r);
    assert_string_equal(r[0].phase, "load");
    /* An event tells a phase sooner than the next heartbeat. */
    out(w, "[1,1]<stdout>:{\"phase\":\"warmup\",\"event\":\"phase\"}", 101.6);
    (void)td_watch_ranks(w, 101.6, r);
    assert_string_equal(r[0].phase, "load");
    assert_string_equal(r[1].phase, "warmup");
    td_watch_free(w);
}

/* ---- deadlines ------------------------------------------------------------------------- */

/* Looks often, as the front does, until somebody is late or the time has come. */
static bool late_by(struct td_watch *w, double from, double to, double alive0,
                    double alive1, struct td_error *err)
{
    td_error_init(err);
    for (double t = from; t <= to; t += 0.125) {
        if (t <= alive0)
            beat(w, 0, (int)(t * 8), "serve", t);
        if (t <= alive1)
            beat(w, 1, (int)(t * 8), "serve", t);
        if (td_watch_late(w, t, err))
            return true;
        assert_true(td_watch_wait(w, t) > 0 && td_watch_wait(w, t) < 1);
    }
    return false;
}

static void silence(void **state)
{
    struct heard h;
    struct td_error err;
    struct td_watch *w = make(&h);
    (void)state;
    assert_false(late_by(w, 100, 105, 999, 999, &err));
    assert_false(late_by(w, 105, 106.4, 999, 105, &err));
    assert_true(late_by(w, 106.4, 106.9, 999, 0, &err));
    assert_int_equal(err.rank, 1);
    assert_string_equal(err.host, "spark-2");
    assert_non_null(strstr(err.what, "rank 1 on spark-2 is silent"));
    assert_non_null(strstr(err.what, "in phase serve"));
    assert_false(td_watch_late(w, 107, &err)); /* said once */
    td_watch_start(w, 200);
    assert_true(late_by(w, 200, 204, 201, 201, &err));
    assert_non_null(strstr(err.what, "all ranks are silent"));
    td_watch_free(w);
}

static void joining(void **state)
{
    struct heard h;
    struct td_error err;
    struct td_watch *w = make(&h);
    (void)state;
    assert_false(late_by(w, 100, 109.9, 999, 0, &err));
    assert_true(late_by(w, 109.9, 110.5, 999, 0, &err));
    assert_int_equal(err.code, TD_E_TIMEOUT);
    assert_non_null(strstr(err.what, "rank 1 on spark-2 did not join"));
    /* Rank 0 waits for the other in MPI, which was not started at all; then it was. */
    td_watch_start(w, 200);
    out(w, "[1,0]<stdout>:{\"phase\":\"launch\",\"event\":\"phase\"}", 200);
    assert_true(late_by(w, 200, 210.5, 0, 0, &err));
    assert_non_null(strstr(err.what, "rank 1 on spark-2 did not join"));
    td_watch_start(w, 300);
    out(w, "[1,0]<stdout>:{\"phase\":\"launch\",\"event\":\"phase\"}", 300);
    out(w, "[1,1]<stdout>:{\"phase\":\"launch\",\"event\":\"phase\"}", 300);
    assert_true(late_by(w, 300, 310.5, 0, 0, &err));
    assert_non_null(strstr(err.what, "the ranks did not find each other"));
    assert_int_equal(err.rank, -1);
    td_watch_free(w);
}

static void standing(void **state)
{
    struct heard h;
    struct td_error err;
    struct td_watch *w = make(&h);
    bool late = false;
    double t = 100;
    (void)state;
    td_error_init(&err);
    for (; t < 120 && !late; t += 0.25) { /* loading takes its time */
        beat(w, 0, 1, "load", t);
        beat(w, 1, 1, "load", t);
        late = td_watch_late(w, t, &err);
    }
    assert_false(late);
    for (; t < 130 && !late; t += 0.25) {
        beat(w, 0, (int)t * 4, "serve", t);
        beat(w, 1, 2, "serve", t);
        late = td_watch_late(w, t, &err);
    }
    assert_true(late && t > 123 && t < 126);
    assert_non_null(strstr(err.what, "rank 1 on spark-2 is stuck"));
    td_watch_free(w);
}

static void our_own_sleep(void **state)
{
    struct heard h;
    struct td_error err;
    struct td_watch *w = make(&h);
    (void)state;
    assert_false(late_by(w, 100, 102, 999, 999, &err));
    assert_false(td_watch_late(w, 1000, &err)); /* a laptop's lid was closed */
    assert_false(late_by(w, 1000.1, 1001, 0, 0, &err));
    assert_true(late_by(w, 1001, 1003, 0, 0, &err));
    td_watch_free(w);
}

/* ---- causes ---------------------------------------------------------------------------- */

#define ERROR_LINE(rank, host, code, what)                                             \
    "[1," rank "]<stdout>:{\"event\":\"error\",\"host\":\"" host "\",\"rank\":" rank   \
    ",\"phase\":\"load\",\"code\":\"" code "\",\"what\":\"" what                       \
    "\",\"why\":\"y\",\"fix\":\"x\"}"

static void first_cause(void **state)
{
    struct heard h;
    struct td_watch *w = make(&h);
    int killed;
    (void)state;
    out(w, ERROR_LINE("0", "spark-1", "peer-lost", "rank 1 is gone"), 100);
    out(w, ERROR_LINE("1", "spark-2", "truncated", "a file is short"), 100);
    out(w, ERROR_LINE("0", "spark-1", "io", "later"), 100);
    said(w, "mpirun noticed that process rank 0 with PID 7 on node x exited on signal "
            "15 (Terminated).");
    struct td_error e = cause(w, 70, &killed);
    assert_int_equal(e.code, TD_E_TRUNCATED);
    assert_int_equal(killed, -1);
    assert_string_equal(e.what, "rank 1 on spark-2: a file is short");
    assert_string_equal(e.host, "spark-2");
    td_watch_free(w);
}

static void killed_rank(void **state)
{
    struct heard h;
    struct td_watch *w = make(&h);
    int killed;
    (void)state;
    beat(w, 1, 1, "warmup", 100);
    out(w, ERROR_LINE("0", "spark-1", "timeout", "waited for rank 1"), 100);
    said(w, "mpirun noticed that process rank 1 with PID 2356 on node 192.168.200.13 "
            "exited on signal 9 (Killed).");
    struct td_error e = cause(w, 137, &killed);
    assert_int_equal(killed, 1);
    assert_string_equal(e.what,
                        "rank 1 on spark-2 was killed by signal 9 (SIGKILL), in "
                        "phase warmup");
    assert_string_equal(e.why, "somebody sent it");
    td_watch_start(w, 150);
    said(w, "noticed that process rank 1 with PID 1 on node x exited on signal 15 "
            "(Terminated).");
    e = cause(w, 143, &killed);
    assert_string_equal(e.why, "somebody sent it");
    td_watch_start(w, 180);
    said(w, "noticed that process rank 1 with PID 1 on node x exited on signal 11 "
            "(Segmentation "
            "fault).");
    e = cause(w, 139, &killed);
    assert_non_null(strstr(e.why, "the program broke there"));
    td_watch_start(w, 200);
    said(w, "process rank 77 with PID 1 on node x exited on signal 9 (Killed).");
    e = cause(w, 137, &killed);
    assert_int_equal(killed, -1);
    assert_non_null(strstr(e.what, "a rank was killed by signal 9"));
    td_watch_free(w);
}

static void memory_kill(void **state)
{
    struct td_facts *f = calloc(1, sizeof(*f));
    struct td_watch_rank r = {.host = "spark-2",
                              .phase = "warmup",
                              .age = 1,
                              .resident = (double)TD_GIB,
                              .available = (double)TD_GIB,
                              .kills = 4};
    struct td_error err;
    (void)state;
    assert_non_null(f);
    td_error_init(&err);
    td_error_set(&err, TD_E_PEER, "killed");
    f->kills = (struct td_oom_counts){.host = 4, .group = 1};
    f->memory = (struct td_sysmem){.total = 8 * TD_GIB,
                                   .available = 2 * TD_GIB,
                                   .group_limit = INT64_MAX,
                                   .space_limit = INT64_MAX,
                                   .data_limit = INT64_MAX};
    assert_false(td_evidence_judge(1, &r, f, &err)); /* somebody sent the signal */
    assert_string_equal(err.what, "killed");
    f->kills.host = 5;
    f->kills.group = 2; /* the same one, counted by its group too */
    f->n_holders = 1;
    f->holders[0] = (struct td_holder){.pid = 4711,
                                       .bytes = 21 * TD_GIB,
                                       .command = "python3",
                                       .container = "glm-server"};
    assert_true(td_evidence_judge(1, &r, f, &err));
    assert_int_equal(err.code, TD_E_NOMEM);
    assert_string_equal(err.what, "spark-2 (rank 1) was killed by the kernel: out of "
                                  "memory, in phase warmup");
    assert_non_null(
        strstr(err.why, "python3 (pid 4711, container glm-server) holds 21"));
    assert_non_null(strstr(err.why, "counts 1 more such kill there"));
    assert_non_null(strstr(err.why, "1.00 GiB were left then and 2.00 GiB are now"));
    r.age = -1; /* it was never heard of: nothing to compare with */
    assert_false(td_evidence_judge(1, &r, f, &err));
    free(f);
}

static void sentences(void **state)
{
    static const struct {
        const char *lines[3];
        int status;
        enum td_status code;
        const char *what;
        bool fatal;
    } t[] = {
        {{"ssh: connect to host 192.168.200.13 port 22: Connection refused"},
         255,
         TD_E_SSH,
         "ssh to spark-2 is refused",
         false},
        {{"root@192.168.200.13: Permission denied (publickey)."},
         255,
         TD_E_SSH,
         "accepts no key",
         false},
        {{"Host key verification failed."}, 255, TD_E_SSH, "key of spark-2", false},
        {{"mpirun was unable to launch the specified application as it could not "
          "access"},
         132,
         TD_E_PROGRAM,
         "another host",
         false},
        {{"ORTE was unable to reliably start one or more daemons."},
         9,
         TD_E_PEER,
         "the ssh to spark-2 has ended",
         false},
        {{"bash: line 1: orted: No such file or directory"},
         127,
         TD_E_NO_MPI,
         "no Open MPI",
         false},
        {{"mpirun was unable to launch the specified application as it could not "
          "access",
          "or execute an executable:", "Node: 192.168.200.13"},
         132,
         TD_E_PROGRAM,
         "tandem cannot be started on spark-2",
         false},
        {{"WARNING: An invalid value was given for btl_tcp_if_include.  This"},
         0,
         TD_E_NETWORK,
         "no interface on the chosen network",
         true},
        {{"ORTE has lost communication with a remote daemon.", "",
          "  HNP daemon   : [[1,0],0] on node spark-1 Remote daemon: [[1,0],1] on node "
          "192.168.200.13"},
         205,
         TD_E_PEER,
         "spark-2 is lost",
         false},
        {{"something else"}, 205, TD_E_PEER, "a host is lost", false},
        {{"something else"}, 75, TD_E_TIMEOUT, "stood still", false},
        {{"something else"}, 3, TD_E_PEER, "ended with status 3", false},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(t); i++) {
        struct heard h;
        struct td_error err;
        struct td_watch *w = make(&h);
        for (int k = 0; k < 3 && t[i].lines[k]; k++)
            said(w, t[i].lines[k]);
        td_error_init(&err);
        assert_int_equal(td_watch_late(w, 100.1, &err), t[i].fatal);
        struct td_error e = cause(w, t[i].status, NULL);
        assert_int_equal(e.code, t[i].code);
        assert_null(strchr(e.why, '\r'));
        if (!strstr(e.what, t[i].what))
            fail_msg("%s: %s", t[i].lines[0], e.what);
        td_watch_free(w);
    }
}

static void mpirun_killed(void **state)
{
    struct heard h;
    struct td_error err;
    struct td_watch *w = make(&h);
    int killed;
    (void)state;
    td_error_init(&err);
    td_watch_cause(w, 9, "", &err, &killed);
    assert_string_equal(err.what, "mpirun was killed by signal 9 (SIGKILL)");
    td_watch_free(w);
}

static void limits(void **state)
{
    struct heard h;
    struct td_watch *w = make(&h), *other = NULL;
    struct td_watch_params p = {.job = &job};
    char line[40000];
    (void)state;
    /* A line without an end is given up, what follows is read. */
    (void)snprintf(line, sizeof(line), "[1,0]<stdout>:{%030000d", 0);
    out(w, line, 100);
    (void)snprintf(line, sizeof(line), "[1,0]<stdout>:%030000d", 0);
    out(w, line, 100);
    out(w, "[1,0]<stdout>:{\"event\":\"phase\"}", 100);
    assert_int_equal(h.events, 1);
    job.ranks = TD_MAX_RANKS + 1;
    assert_int_equal(td_watch_new(&p, &other, NULL), TD_E_LIMIT);
    job.ranks = 2;
    td_mem_fail_at(1);
    assert_int_equal(td_watch_new(&p, &other, NULL), TD_E_NOMEM);
    td_mem_fail_at(0);
    td_watch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags),        cmocka_unit_test(pieces),
        cmocka_unit_test(silence),     cmocka_unit_test(joining),
        cmocka_unit_test(standing),    cmocka_unit_test(our_own_sleep),
        cmocka_unit_test(first_cause), cmocka_unit_test(killed_rank),
        cmocka_unit_test(sentences),   cmocka_unit_test(mpirun_killed),
        cmocka_unit_test(limits),      cmocka_unit_test(memory_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `run` and `bench` with several ranks: this process starts them through mpirun and hands
 * its terminal to rank 0, which runs the same verb as if it had been started here. What
 * is left to do is to forward signals, to watch, and to report why the ranks ended if
 * they did not end in order.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/log.h"
#include "cmd/job.h"
#include "cmd/options.h"
#include "cmd/term.h"
#include "launch/supervisor.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* This thread's loop looks at the flags of the handler so often. */
static const double LOOK = 0.2;

struct launcher {
    const struct td_cmd_job *job;
    bool talks; /* rank 0 stops an answer at ^C, once it has loaded */
    struct td_supervisor *supervisor;
    struct td_error handing; /* why the terminal could not be handed over */
};

/* For the signal handler. */
static atomic_int rank_zero; /* its process, 0 while it has no terminal */
static atomic_bool listens;  /* rank 0, to ^C */
static atomic_int stopped;   /* the signal that ends all ranks, or 0 */
static struct td_supervisor *_Atomic to_wake;

/* Rank 0 does with a window of another size what it would do on a terminal of its own, and
 * with ^C if it listens. Else, and for SIGTERM and SIGHUP, all ranks end. */
static void on_signal(int sig)
{
    struct td_supervisor *s = atomic_load(&to_wake);
    int pid = atomic_load(&rank_zero);
    if (pid > 0 && (sig == SIGWINCH || (sig == SIGINT && atomic_load(&listens)))) {
        (void)kill(pid, sig);
        return;
    }
    if (sig == SIGWINCH)
        return;
    atomic_store(&stopped, sig);
    if (s)
        td_supervisor_wake(s);
}

static void catch_signals(void (*handler)(int))
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    struct sigaction a, old;
    memset(&a, 0, sizeof(a));
    (void)sigemptyset(&a.sa_mask);
    a.sa_handler = handler;
    for (size_t i = 0; i < TD_COUNT(signals); i++)
        if (signals[i] != SIGHUP || sigaction(SIGHUP, NULL, &old) != 0 ||
            old.sa_handler != SIG_IGN) /* nohup */
            (void)sigaction(signals[i], &a, NULL);
}

static void on_connected(void *self)
{
    struct launcher *l = self;
    pid_t pid = 0;
    if (td_supervisor_hand_over(l->supervisor, &pid, &l->handing) == TD_OK)
        atomic_store(&rank_zero, (int)pid);
    else
        td_supervisor_end_engine(l->supervisor, &l->handing);
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
    (void)self;
    td_log_line(line, n);
}

/* Rank 0 has a standard error of its own; mpirun's words are in the report. */
static void on_words(void *self, int rank, const char *line, size_t n)
{
    (void)self;
    if (rank <= 0)
        return;
    (void)fprintf(stderr, "rank %d: ", rank);
    td_term_text(stderr, line, n, true);
    (void)fputc('\n', stderr);
}

static void on_killed(void *self, int rank, const struct td_watch_rank *r,
                      struct td_error *err)
{
    td_cmd_job_examine(((struct launcher *)self)->job, rank, r, err);
}

static void on_lost(void *self, const struct td_error *why, double wait)
{
    (void)self;
    (void)why;
    (void)wait;
}

static double on_round(void *self, struct td_buf *out)
{
    struct launcher *l = self;
    struct td_watch_rank ranks[TD_MAX_RANKS];
    (void)out;
    if (l->talks && td_supervisor_ranks(l->supervisor, ranks) > 0)
        atomic_store(&listens,
                     strcmp(ranks[0].phase, td_phase_name(TD_PHASE_SERVE)) == 0);
    if (atomic_load(&stopped))
        td_supervisor_stop(l->supervisor);
    return LOOK;
}

static enum td_status launch(struct launcher *l, struct td_cmd_job *job,
                             const struct td_argv *argv, struct td_error *err)
{
    struct td_supervisor_params p = {.argv = argv->v,
                                     .socket_at = 2,
                                     .once = true,
                                     .job = &job->mpi,
                                     .limits = job->limits,
                                     .self = l,
                                     .connected = on_connected,
                                     .received = on_received,
                                     .event = on_event,
                                     .words = on_words,
                                     .examine = on_killed,
                                     .lost = on_lost,
                                     .round = on_round};
    enum td_status s = td_supervisor_new(&p, &l->supervisor, err);
    if (s != TD_OK)
        return s;
    atomic_store(&to_wake, l->supervisor);
    catch_signals(on_signal);
    s = td_supervisor_run(l->supervisor, err);
    catch_signals(SIG_DFL);
    atomic_store(&to_wake, NULL);
    td_supervisor_free(l->supervisor);
    return s;
}

int td_cmd_job_run(const struct td_conf *conf, const char *name, unsigned verb,
                   const struct td_engine_params *engine, struct td_error *err)
{
    struct td_cmd_job job = {0};
    struct launcher l = {.job = &job, .talks = verb == TD_VERB_RUN};
    struct td_argv argv = {0};
    enum td_status s = td_cmd_job_open(&job, conf, conf->args[0], err);
    if (s == TD_OK) {
        td_cmd_job_print(&job);
        s = td_cmd_job_plan(&job, engine, err);
    }
    if (s == TD_OK) {
        td_cmd_job_command(&job, conf, name, verb, NULL, &argv);
        for (int i = 1; i < conf->nargs; i++) {
            if (i == 1)
                td_argv_add(&argv, "--"); /* a prompt may begin with a hyphen */
            td_argv_add(&argv, conf->args[i]);
        }
        s = td_argv_done(&argv, err);
    }
    td_error_init(&l.handing);
    if (s == TD_OK)
        s = launch(&l, &job, &argv, err);
    td_argv_release(&argv);
    td_cmd_job_close(&job);
    if (s == TD_OK && atomic_load(&stopped))
        (void)raise(atomic_load(&stopped)); /* end as the shell expects it */
    return s == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

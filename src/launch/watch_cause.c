/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a job of mpirun's ended: what mpirun says in words, its exit status, and what the
 * ranks reported before. See watch.h.
 *
 * mpirun reports in sentences only. The table has those of version 4.1 (and of ssh, whose
 * standard error is mpirun's) that tell one cause; unknown ones are shown as they are.
 */
#define _POSIX_C_SOURCE 200809L
#include "engine/ranks.h"
#include "launch/child.h"
#include "launch/watch_int.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Exit statuses of mpirun's own; the ranks' stay away from them. */
enum { LOST_DAEMON = 205, SIGNALLED = 128 };

/* A sentence, or a part of one. "%h" in `what` is the host, where it can be known. */
struct trouble {
    const char *says;
    bool fatal; /* mpirun goes on after it, but must not */
    enum td_status code;
    const char *what, *fix;
};

static const struct trouble troubles[] = {
    {"Connection refused", false, TD_E_SSH, "ssh to %h is refused",
     "start sshd there, or name its port with ssh's configuration"},
    {"Permission denied", false, TD_E_SSH, "ssh to %h accepts no key of ours",
     "put this user's public key into authorized_keys there"},
    {"Host key verification failed", false, TD_E_SSH, "ssh does not know the key of %h",
     "connect there once by hand"},
    {"Connection timed out", false, TD_E_SSH, "ssh to %h gets no answer",
     "look at that host, its link and its firewall"},
    {"No route to host", false, TD_E_SSH, "ssh finds no way to %h",
     "look at that host and its link"},
    {"Could not resolve hostname", false, TD_E_NAME, "the name of %h leads nowhere",
     "give --hosts addresses"},
    {"orted: No such file", false, TD_E_NO_MPI, "there is no Open MPI on %h",
     "install openmpi-bin there"},
    {"orted: command not found", false, TD_E_NO_MPI, "there is no Open MPI on %h",
     "install openmpi-bin there"},
    {"orted: not found", false, TD_E_NO_MPI, "there is no Open MPI on %h",
     "install openmpi-bin there"},
    {"could not access", false, TD_E_PROGRAM, "tandem cannot be started on %h",
     "install the same build there"},
    {"error while loading shared libraries", false, TD_E_PROGRAM,
     "tandem lacks a library on %h", "run tandem from the folder of `make bundle`"},
    {"could not change to the specified working directory", false, TD_E_PROGRAM,
     "the working folder is missing on %h", "make it there"},
    {"Exec format error", false, TD_E_PROGRAM,
     "tandem on %h was built for another processor", "install the build for it there"},
    {"not enough slots", false, TD_E_HOSTS, "mpirun counts fewer slots than ranks",
     "give --tp a smaller number"},
    {"None of the TCP networks specified", false, TD_E_NETWORK,
     "a host has no interface on the chosen network", "run `tandem check`"},
    {"An invalid value was given for", true, TD_E_NETWORK,
     "a host has no interface on the chosen network",
     "run `tandem check`; going on would hang in the first large message"},
    {"unable to reach each other for", false, TD_E_NETWORK,
     "the ranks cannot reach each other", "run `tandem check` with the same hosts"},
    {"failed to TCP connect to a peer", true, TD_E_NETWORK,
     "the ranks cannot reach each other", "run `tandem check` with the same hosts"},
    {"lost communication with a remote daemon", false, TD_E_PEER, "%h is lost",
     "look at that host and its link: `tandem check` with the same hosts"},
    {"daemon unexpectedly", false, TD_E_PEER, "Open MPI's daemon on %h has ended",
     "look at that host"},
    {"unable to reliably start one or more daemons", false, TD_E_PEER,
     "the ssh to %h has ended, and with it Open MPI's daemon there",
     "look at that host and its link: `tandem check` with the same hosts"},
    {"No space left on device", false, TD_E_IO, "a disk is full on %h",
     "make room in /tmp and in the home folder there"},
};

static bool contains(const char *line, size_t n, const char *what)
{
    size_t m = strlen(what);
    for (size_t i = 0; i + m <= n; i++)
        if (memcmp(line + i, what, m) == 0)
            return true;
    return false;
}

/* The name by which people know an address or name of mpirun's. This host is left out: it is
 * named beside the one that a sentence is about. */
static const char *host_named(const struct td_watch *w, const char *node)
{
    const struct td_cluster *c = w->params.job->cluster;
    for (int r = 0; r < w->ranks && c->n > 1; r++) {
        int host = td_mpi_host_of(w->params.job, r);
        const struct td_cluster_host *h = &c->hosts[host];
        if (host == 0)
            continue;
        if (strcmp(h->address, node) == 0 || strcmp(h->name, node) == 0 ||
            strcmp(h->label, node) == 0)
            return w->rank[r].host;
    }
    return NULL;
}

/* A word of the line that names one of our hosts. */
static const char *host_in(const struct td_watch *w, const char *line, size_t n)
{
    char word[TD_ERROR_HOST_MAX];
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        while (i + len < n && !strchr(" ,;()\t@\"'", line[i + len]))
            len++;
        size_t use = len;
        while (use > 0 && strchr(".:", line[i + use - 1]))
            use--;
        if (use > 0 && use < sizeof(word)) {
            memcpy(word, line + i, use);
            word[use] = 0;
            const char *host = host_named(w, word);
            if (host)
                return host;
        }
        i += len + 1;
    }
    return NULL;
}

/* Where a sentence names no host and there is just one that it can be about. */
static const char *only_other(const struct td_watch *w, const struct trouble *t)
{
    bool of_others = t->code == TD_E_SSH || t->code == TD_E_PEER ||
                     t->code == TD_E_NAME || t->code == TD_E_NO_MPI;
    return of_others && w->params.job->cluster->n == 2 ? w->rank[w->ranks - 1].host
                                                       : NULL;
}

static void set_trouble(struct td_watch *w, const struct trouble *t, const char *host)
{
    struct td_error e;
    const char *mark = strstr(t->what, "%h");
    td_error_init(&e);
    if (mark)
        td_error_set(&e, t->code, "%.*s%s%s", (int)(mark - t->what), t->what,
                     host ? host : "another host", mark + 2);
    else
        td_error_set(&e, t->code, "%s", t->what);
    td_error_why(&e, "%s", w->trouble.why);
    td_error_fix(&e, "%s", t->fix);
    (void)snprintf(e.host, sizeof(e.host), "%s", host ? host : "");
    w->trouble = e;
    w->pending = host ? NULL : t;
}

/* "... process rank 1 with PID 2356 on node spark-2 exited on signal 9 (Killed)." */
static bool note_signal(struct td_watch *w, const char *line, size_t n)
{
    static const char begin[] = "noticed that process rank ", at[] = " on signal ";
    char text[512];
    (void)snprintf(text, sizeof(text), "%.*s", (int)TD_MIN(n, sizeof(text) - 1), line);
    const char *p = strstr(text, begin), *q = strstr(text, at);
    if (!p || !q)
        return false;
    long rank = strtol(p + sizeof(begin) - 1, NULL, 10);
    long sig = strtol(q + sizeof(at) - 1, NULL, 10);
    if (rank < 0 || rank >= w->ranks || sig <= 0 || sig > 64)
        return false;
    w->killed = (int)rank;
    w->signal = (int)sig;
    return true;
}

void td_watch_note(struct td_watch *w, const char *line, size_t n)
{
    if (note_signal(w, line, n))
        return;
    if (w->pending) { /* the host often stands in a line below the sentence */
        const char *host = host_in(w, line, n);
        if (host)
            set_trouble(w, w->pending, host);
    }
    if (w->trouble.code != TD_OK)
        return;
    for (size_t i = 0; i < TD_COUNT(troubles); i++) {
        if (!contains(line, n, troubles[i].says))
            continue;
        (void)snprintf(w->trouble.why, sizeof(w->trouble.why), "%.*s",
                       (int)TD_MIN(n, sizeof(w->trouble.why) - 1), line);
        w->fatal = troubles[i].fatal;
        const char *host = host_in(w, line, n);
        set_trouble(w, &troubles[i], host ? host : only_other(w, &troubles[i]));
        return;
    }
}

/* ---- the cause ----------------------------------------------------------------------- */

/* Signals that a program gets for what it does itself. */
static bool is_crash(int sig)
{
    static const int crashes[] = {SIGSEGV, SIGBUS,  SIGABRT, SIGFPE,
                                  SIGILL,  SIGTRAP, SIGSYS};
    for (size_t i = 0; i < TD_COUNT(crashes); i++)
        if (crashes[i] == sig)
            return true;
    return false;
}

static void rank_killed(const struct td_watch *w, struct td_error *err)
{
    const struct rank *r = &w->rank[w->killed];
    td_error_set(err, TD_E_PEER, "rank %d on %s was killed by signal %d (%s)%s%s",
                 w->killed, r->host, w->signal, td_signal_name(w->signal),
                 *r->phase ? ", in phase " : "", r->phase);
    td_error_why(err, "%s",
                 is_crash(w->signal) ? "the program broke there; its last words are in "
                                       "the details"
                                     : "somebody sent it");
    err->rank = w->killed;
    (void)snprintf(err->host, sizeof(err->host), "%s", r->host);
}

static void rank_said(const struct td_watch *w, struct td_error *err)
{
    const struct td_error *e = &w->said;
    const char *host = *e->host                             ? e->host
                       : e->rank >= 0 && e->rank < w->ranks ? w->rank[e->rank].host
                                                            : "";
    if (w->ranks > 1 && e->rank >= 0 && *host)
        td_error_set(err, e->code, "rank %d on %s: %s", e->rank, host, e->what);
    else
        td_error_set(err, e->code, "the engine ended: %s", e->what);
    td_error_why(err, "%s", e->why);
    td_error_fix(err, "%s", e->fix);
    err->rank = e->rank;
    (void)snprintf(err->host, sizeof(err->host), "%s", host);
}

static void ended_with(int status, const char *words, struct td_error *err)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (WIFSIGNALED(status)) {
        td_error_set(err, TD_E_PEER, "mpirun was killed by signal %d (%s)",
                     WTERMSIG(status), td_signal_name(WTERMSIG(status)));
        td_error_why(err, "%s", *words ? words : "somebody sent it");
    } else if (code == LOST_DAEMON) {
        td_error_set(err, TD_E_PEER, "a host is lost");
        td_error_why(err, "%s",
                     *words ? words : "mpirun cannot reach its daemon there");
    } else if (code == TD_RANK_EXIT_WATCHDOG) {
        td_error_set(err, TD_E_TIMEOUT, "a rank stood still and ended itself");
        td_error_why(err, "its watchdog saw no progress");
    } else if (code > SIGNALLED && code <= SIGNALLED + 64) {
        td_error_set(err, TD_E_PEER, "a rank was killed by signal %d (%s)",
                     code - SIGNALLED, td_signal_name(code - SIGNALLED));
        td_error_why(err, "%s", *words ? words : "mpirun does not say which");
    } else {
        td_error_set(err, TD_E_PEER, "the ranks ended with status %d", code);
        td_error_why(err, "%s", *words ? words : "none of them said why");
    }
}

void td_watch_cause(const struct td_watch *w, int status, const char *words,
                    struct td_error *err, int *killed)
{
    enum td_status said = w->said.code;
    bool consequence =
        said == TD_E_PEER || said == TD_E_TIMEOUT || said == TD_E_CANCELLED;
    *killed = -1;
    if (said != TD_OK && !consequence) {
        rank_said(w, err);
    } else if (w->killed >= 0) {
        rank_killed(w, err);
        *killed = w->signal == SIGKILL ? w->killed : -1;
    } else if (w->trouble.code != TD_OK) {
        *err = w->trouble;
    } else if (said != TD_OK) {
        rank_said(w, err);
    } else {
        ended_with(status, words, err);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps one engine process running. See supervisor.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "launch/supervisor.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "launch/child.h"
#include "launch/hand.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ_SIZE = 1 << 16, MAX_LINE = 16384, MAX_WORDS = 600 };

static const double FIRST_WAIT = 0.1, LONGEST_WAIT = 20; /* before a restart */
static const double LAST_MOMENT = 5; /* for an engine that is asked to end */
/* For mpirun after SIGTERM: in order it needs 0.02 s, and behind a cut link for ever. */
static const double LAST_WORD = 0.3;
static const double AHEAD = 0.5; /* of a start: params.again() is asked */
/* Ranks that a killed mpirun leaves behind have found out by then. */
static const double FIRST_WAIT_RANKS = 1;

enum { FD_WAKE, FD_LISTEN, FD_ENGINE, FD_OUT, FD_ERR, FD_COUNT };

struct td_supervisor {
    struct td_supervisor_params params;
    struct td_argv argv;
    struct td_watch *watch; /* of several ranks, or NULL */
    char folder[64], path[96];
    int wake[2], listen_fd, fd;
    atomic_bool stop;
    struct td_child child;
    bool ever_worked, works; /* works: this one, since it was started */
    int failures;
    double start_at; /* when it may be started again */
    bool started;    /* for the first time, long ago */
    bool cleared;    /* by params.again(), for the next start */
    bool asking;     /* its answer is not known yet */
    int put_offs;    /* times it said no, in a row */
    struct td_buf in, out, out_line, err_line;
    char words[MAX_WORDS]; /* its last lines of standard error */
    struct td_error said;  /* its last error event, or our reason to end it */
    bool ours;             /* `said` is our reason */
    bool ending;           /* it was told to end, or its socket is closed */
    bool told;             /* mpirun has been sent SIGTERM */
    double end_by;         /* then it is killed, or mpirun told */
};

/* ---- the socket -------------------------------------------------------------------- */

static enum td_status make_folder(struct td_supervisor *s, struct td_error *err)
{
    const char *tmp = getenv("XDG_RUNTIME_DIR");
    if (!tmp || strlen(tmp) + 20 > sizeof(s->folder))
        tmp = "/tmp";
    (void)snprintf(s->folder, sizeof(s->folder), "%s/tandem-XXXXXX", tmp);
    if (!mkdtemp(s->folder)) {
        (void)snprintf(s->folder, sizeof(s->folder), "/tmp/tandem-XXXXXX");
        if (!mkdtemp(s->folder)) {
            int e = errno;
            *s->folder = 0;
            return td_error_set(err, TD_E_IO, "cannot make a folder in /tmp: %s",
                                strerror(e));
        }
    }
    (void)snprintf(s->path, sizeof(s->path), "%s/engine", s->folder);
    return TD_OK;
}

static enum td_status open_socket(struct td_supervisor *s, struct td_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", s->path);
    (void)unlink(s->path);
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (s->listen_fd < 0 ||
        bind(s->listen_fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(s->listen_fd, 1) != 0)
        return td_error_set(err, TD_E_IO, "cannot make the socket %s: %s", s->path,
                            strerror(errno));
    (void)fcntl(s->listen_fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(s->listen_fd, F_SETFL, O_NONBLOCK);
    return TD_OK;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void accept_engine(struct td_supervisor *s)
{
    int fd = accept(s->listen_fd, NULL, NULL);
    if (fd < 0)
        return;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    close_fd(&s->listen_fd);
    s->fd = fd;
    s->params.connected(s->params.self);
}

/* ---- life -------------------------------------------------------------------------- */

static enum td_status start_engine(struct td_supervisor *s, struct td_error *err)
{
    td_buf_clear(&s->in);
    td_buf_clear(&s->out);
    td_buf_clear(&s->out_line);
    td_buf_clear(&s->err_line);
    td_error_init(&s->said);
    *s->words = 0;
    s->ending = s->ours = s->told = false;
    s->started = true;
    s->cleared = false;
    enum td_status st = open_socket(s, err);
    if (s->watch)
        td_watch_start(s->watch, td_clock_now());
    /* mpirun ends its ranks when it is asked to, and cannot when it is killed. */
    return st == TD_OK
               ? td_child_spawn(s->argv.v, s->watch ? SIGTERM : SIGKILL, &s->child, err)
               : st;
}

/* Asks the engine to end: it does so when its socket is closed. */
static void end_engine(struct td_supervisor *s)
{
    if (s->ending)
        return;
    close_fd(&s->fd);
    close_fd(&s->listen_fd);
    s->ending = true;
    s->end_by = td_clock_now() + LAST_MOMENT;
}

/* Time is up: the engine is killed; mpirun is first told to end. */
static void hurry(struct td_supervisor *s)
{
    if (s->watch && !s->told) {
        td_child_kill(&s->child, SIGTERM);
        s->told = true;
        s->end_by = td_clock_now() + LAST_WORD;
        return;
    }
    td_child_kill(&s->child, SIGKILL);
}

/* Before the next try, of several in a row. */
static double wait_after(const struct td_supervisor *s, int tries, double factor)
{
    double wait = s->watch ? FIRST_WAIT_RANKS : FIRST_WAIT;
    for (int i = 1; i < tries && wait < LONGEST_WAIT; i++)
        wait *= factor;
    return TD_MIN(wait, LONGEST_WAIT);
}

/* Why several ranks ended; true when they will not do better the next time. */
static bool ranks_cause(struct td_supervisor *s, int status, struct td_error *why)
{
    struct td_watch_rank ranks[TD_MAX_RANKS];
    int killed;
    td_watch_cause(s->watch, status, s->words, why, &killed);
    if (killed >= 0 && s->params.examine) {
        (void)td_watch_ranks(s->watch, td_clock_now(), ranks);
        s->params.examine(s->params.self, killed, &ranks[killed], why);
    }
    return WIFEXITED(status) && killed < 0 && why->code != TD_E_PEER &&
           why->code != TD_E_TIMEOUT;
}

/* Why the engine ended; true when it will not do better the next time. */
static bool find_cause(struct td_supervisor *s, int status, struct td_error *why)
{
    struct td_oom_counts now;
    if (s->ours) {
        *why = s->said;
        return false;
    }
    if (s->watch)
        return ranks_cause(s, status, why);
    td_oom_counts_read("", &now);
    td_child_cause(status, &s->child.before, &now, &s->said, s->words, why);
    return WIFEXITED(status) && s->said.code != TD_OK;
}

/* The engine has ended: find out why, and decide what comes next. */
static enum td_status bury(struct td_supervisor *s, int status, struct td_error *err)
{
    struct td_error why;
    double wait = wait_after(s, ++s->failures, 4);
    td_error_init(&why);
    bool for_good = find_cause(s, status, &why) && !s->ever_worked;
    td_child_release(&s->child);
    close_fd(&s->fd);
    close_fd(&s->listen_fd);
    if (for_good || s->params.once || s->failures >= TD_MAX_ENGINE_FAILURES)
        wait = -1;
    td_event_error(&why);
    s->params.lost(s->params.self, &why, wait);
    s->start_at = td_clock_now() + wait;
    if (wait >= 0)
        return TD_OK;
    if (s->failures > 1 && s->failures >= TD_MAX_ENGINE_FAILURES)
        (void)td_error_set(err, why.code,
                           "the engine failed %d times in a row, the "
                           "last time: %s",
                           s->failures, why.what);
    else
        (void)td_error_set(err, why.code, "%s", why.what);
    td_error_why(err, "%s", why.why);
    td_error_fix(err, "%s", why.fix);
    return why.code;
}

/* The hosts are not there, or not as they have to be. */
static enum td_status put_off(struct td_supervisor *s, const struct td_error *why,
                              double now, struct td_error *err)
{
    double wait = wait_after(s, ++s->put_offs, 2);
    td_event_error(why);
    if (!s->ever_worked && s->failures + s->put_offs >= TD_MAX_ENGINE_FAILURES) {
        if (err)
            *err = *why;
        return why->code;
    }
    s->params.put_off(s->params.self, why, wait);
    s->start_at = now + wait;
    return TD_OK;
}

static bool needs_leave(const struct td_supervisor *s)
{
    return s->params.again && s->started && !s->cleared;
}

/* Starts the engine if it is time. */
static enum td_status start_in_time(struct td_supervisor *s, double now,
                                    struct td_error *err)
{
    struct td_error why;
    if (needs_leave(s) && now >= s->start_at - AHEAD) {
        td_error_init(&why);
        enum td_again again = s->params.again(s->params.self, &why);
        s->asking = again == TD_AGAIN_WAIT;
        if (again == TD_AGAIN_NO)
            return put_off(s, &why, now, err);
        s->cleared = again == TD_AGAIN_YES;
        s->put_offs = s->cleared ? 0 : s->put_offs;
    }
    return !needs_leave(s) && now >= s->start_at ? start_engine(s, err) : TD_OK;
}

/* Seconds until there is something to start or to ask for. */
static double start_wait(const struct td_supervisor *s, double now)
{
    if (s->asking)
        return 60;
    return s->start_at - (needs_leave(s) ? AHEAD : 0) - now;
}

void td_supervisor_works(struct td_supervisor *s)
{
    s->ever_worked = s->works = true;
    s->failures = 0;
}

enum td_status td_supervisor_hand_over(struct td_supervisor *s, pid_t *pid,
                                       struct td_error *err)
{
    return td_hand_over(s->fd, pid, err);
}

int td_supervisor_ranks(const struct td_supervisor *s,
                        struct td_watch_rank out[TD_MAX_RANKS])
{
    return s->watch ? td_watch_ranks(s->watch, td_clock_now(), out) : 0;
}

int td_supervisor_pid(const struct td_supervisor *s)
{
    return (int)s->child.pid;
}

/* ---- what the engine says ---------------------------------------------------------- */

/* Remembers the engine's error events: the last one is why it ends. */
static void note_error(struct td_supervisor *s, const char *line, size_t n)
{
    json_t *o = NULL;
    if (td_json_parse(line, n, "event", &o, NULL) != TD_OK)
        return;
    const char *name = json_string_value(json_object_get(o, "event"));
    if (name && strcmp(name, "error") == 0)
        td_watch_read_error(o, &s->said);
    json_decref(o);
}

static void keep_words(struct td_supervisor *s, const char *line, size_t n)
{
    size_t have = strlen(s->words), room = sizeof(s->words) - 2;
    n = TD_MIN(n, room / 2);
    while (have > 0 && have + n + 1 > room) { /* the oldest line goes */
        const char *end = strchr(s->words, '\n');
        size_t drop = end ? (size_t)(end - s->words) + 1 : have;
        memmove(s->words, s->words + drop, have - drop + 1);
        have -= drop;
    }
    (void)snprintf(s->words + have, sizeof(s->words) - have, "%s%.*s", have ? "\n" : "",
                   (int)n, line);
}

/* For the watch: what it has found in mpirun's output. */
static void on_rank_event(void *self, int rank, const char *line, size_t n)
{
    struct td_supervisor *s = self;
    (void)rank;
    s->params.event(s->params.self, line, n);
}

static void on_rank_words(void *self, int rank, const char *line, size_t n)
{
    struct td_supervisor *s = self;
    if (strspn(line, "-") < n) /* mpirun draws lines */
        keep_words(s, line, n);
    s->params.words(s->params.self, rank, line, n);
}

static void on_out_line(struct td_supervisor *s, const char *line, size_t n)
{
    if (s->watch) {
        td_watch_out(s->watch, line, n, td_clock_now());
        return;
    }
    note_error(s, line, n);
    s->params.event(s->params.self, line, n);
}

static void on_err_line(struct td_supervisor *s, const char *line, size_t n)
{
    if (s->watch) {
        td_watch_err(s->watch, line, n);
        return;
    }
    keep_words(s, line, n);
    s->params.words(s->params.self, 0, line, n);
}

/* Reads a pipe and cuts it into lines; longer ones than MAX_LINE are cut. */
static void read_lines(struct td_supervisor *s, int *fd, struct td_buf *line,
                       void (*fn)(struct td_supervisor *, const char *, size_t))
{
    char piece[4096];
    ssize_t n;
    while (*fd >= 0 && (n = read(*fd, piece, sizeof(piece))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != '\n') {
                td_buf_addc(line, piece[i]);
                continue;
            }
            if (line->len)
                fn(s, line->p, line->len);
            td_buf_clear(line);
        }
    }
    close_fd(fd);
}

static void read_pipes(struct td_supervisor *s)
{
    read_lines(s, &s->child.out_fd, &s->out_line, on_out_line);
    read_lines(s, &s->child.err_fd, &s->err_line, on_err_line);
}

void td_supervisor_end_engine(struct td_supervisor *s, const struct td_error *why)
{
    if (s->ending)
        return;
    s->said = *why;
    s->ours = true;
    end_engine(s);
    if (s->watch)
        hurry(s); /* what is stuck does not end when it is asked to */
}

static void receive(struct td_supervisor *s)
{
    struct td_error err;
    size_t used = 0;
    td_error_init(&err);
    for (;;) {
        if (td_buf_reserve(&s->in, READ_SIZE) != TD_OK) {
            td_error_set(&err, s->in.status, "no room for a message of the engine");
            td_supervisor_end_engine(s, &err);
            return;
        }
        ssize_t n = read(s->fd, s->in.p + s->in.len, READ_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            end_engine(s); /* it is about to end by itself */
            return;
        }
        td_buf_set_len(&s->in, s->in.len + (size_t)n);
        if (s->params.received(s->params.self, s->in.p, s->in.len, &used, &err) !=
            TD_OK) {
            td_supervisor_end_engine(s, &err);
            return;
        }
        td_buf_drop(&s->in, used);
    }
}

static void transmit(struct td_supervisor *s)
{
    size_t at = 0;
    while (s->fd >= 0 && at < s->out.len) {
        ssize_t n = send(s->fd, s->out.p + at, s->out.len - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; /* full, or lost: then reading says so */
        at += (size_t)n;
    }
    td_buf_drop(&s->out, at);
}

/* ---- the loop ---------------------------------------------------------------------- */

static void drain_wake(const struct td_supervisor *s)
{
    char bytes[64];
    while (read(s->wake[0], bytes, sizeof(bytes)) > 0)
        ;
}

static void wait_for(struct td_supervisor *s, double seconds)
{
    struct pollfd p[FD_COUNT] = {[FD_WAKE] = {.fd = s->wake[0]},
                                 [FD_LISTEN] = {.fd = s->listen_fd},
                                 [FD_ENGINE] = {.fd = s->fd},
                                 [FD_OUT] = {.fd = s->child.out_fd},
                                 [FD_ERR] = {.fd = s->child.err_fd}};
    for (int i = 0; i < FD_COUNT; i++)
        p[i].events = POLLIN;
    if (s->out.len)
        p[FD_ENGINE].events |= POLLOUT;
    int ms = seconds < 0 ? 0 : seconds > 60 ? 60000 : (int)(seconds * 1000) + 1;
    if (poll(p, FD_COUNT, ms) <= 0)
        return;
    if (p[FD_WAKE].revents)
        drain_wake(s);
    if (p[FD_OUT].revents || p[FD_ERR].revents)
        read_pipes(s);
    if (p[FD_LISTEN].revents)
        accept_engine(s);
    if (p[FD_ENGINE].revents)
        receive(s);
}

/* A child whose pipes are closed is about to be gone: look often. */
static double reap_wait(const struct td_supervisor *s)
{
    if (s->child.out_fd < 0 || s->ending)
        return 0.005;
    return s->watch ? td_watch_wait(s->watch, td_clock_now()) : 60;
}

static void check_ranks(struct td_supervisor *s)
{
    struct td_error why;
    td_error_init(&why);
    if (s->watch && s->child.pid && !s->ending &&
        td_watch_late(s->watch, td_clock_now(), &why))
        td_supervisor_end_engine(s, &why);
}

static enum td_status check_child(struct td_supervisor *s, struct td_error *err)
{
    int status = 0;
    if (s->child.pid && s->child.out_fd < 0 && !s->ending)
        end_engine(s);
    if (s->child.pid && s->ending && td_clock_now() > s->end_by)
        hurry(s);
    if (!td_child_ended(&s->child, &status))
        return TD_OK;
    read_pipes(s);
    bool in_order = s->params.once && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (in_order)
        atomic_store(&s->stop, true);
    if (!atomic_load(&s->stop))
        return bury(s, status, err);
    td_child_release(&s->child);
    return TD_OK;
}

enum td_status td_supervisor_run(struct td_supervisor *s, struct td_error *err)
{
    enum td_status st = TD_OK;
    while (st == TD_OK && !atomic_load(&s->stop)) {
        double now = td_clock_now();
        if (!s->child.pid)
            st = start_in_time(s, now, err);
        double wait = s->params.round(s->params.self, &s->out);
        if (s->out.status != TD_OK)
            end_engine(s);
        transmit(s);
        wait = TD_MIN(wait, s->child.pid ? reap_wait(s) : start_wait(s, now));
        if (st == TD_OK && !atomic_load(&s->stop)) {
            wait_for(s, wait);
            st = check_child(s, err);
            check_ranks(s);
        }
    }
    end_engine(s);
    if (!s->works)
        s->end_by = td_clock_now(); /* it loads, and has nothing to finish */
    while (s->child.pid) {
        wait_for(s, reap_wait(s));
        (void)check_child(s, NULL);
    }
    return st;
}

static void poke(const struct td_supervisor *s)
{
    int e = errno; /* may run in a signal handler */
    while (write(s->wake[1], "", 1) < 0 && errno == EINTR)
        ;
    errno = e;
}

void td_supervisor_wake(struct td_supervisor *s)
{
    poke(s);
}

void td_supervisor_stop(struct td_supervisor *s)
{
    atomic_store(&s->stop, true);
    poke(s);
}

/* ---- making ------------------------------------------------------------------------ */

/* The engine's command, or mpirun's around it. */
static enum td_status build_command(struct td_supervisor *s, struct td_error *err)
{
    struct td_mpi_job *job = s->params.job;
    struct td_argv own = {0};
    for (size_t i = 0; s->params.argv[i]; i++) {
        if (i > 0 && i == s->params.socket_at)
            td_argv_pair(&own, "--socket", s->path);
        td_argv_add(&own, s->params.argv[i]);
    }
    if (s->params.socket_at == 0)
        td_argv_pair(&own, "--socket", s->path);
    enum td_status st = td_argv_done(&own, err);
    if (st != TD_OK || !job) {
        s->argv = own;
        return st;
    }
    job->command = own.v;
    job->tagged = true;
    st = td_mpi_line(job, &s->argv, err);
    job->command = NULL;
    td_argv_release(&own);
    if (st != TD_OK)
        return st;
    struct td_watch_params p = {.job = job,
                                .limits = s->params.limits,
                                .self = s,
                                .event = on_rank_event,
                                .words = on_rank_words};
    return td_watch_new(&p, &s->watch, err);
}

static enum td_status init(struct td_supervisor *s, struct td_error *err)
{
    if (pipe(s->wake) != 0)
        return td_error_set(err, TD_E_IO, "cannot make a pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        (void)fcntl(s->wake[i], F_SETFD, FD_CLOEXEC);
        (void)fcntl(s->wake[i], F_SETFL, O_NONBLOCK);
    }
    enum td_status st = make_folder(s, err);
    return st == TD_OK ? build_command(s, err) : st;
}

enum td_status td_supervisor_new(const struct td_supervisor_params *params,
                                 struct td_supervisor **out, struct td_error *err)
{
    struct td_supervisor *s = td_calloc(1, sizeof(*s));
    if (!s)
        return td_error_set(err, TD_E_NOMEM, "no memory for the supervisor");
    s->params = *params;
    s->wake[0] = s->wake[1] = s->listen_fd = s->fd = -1;
    s->child.out_fd = s->child.err_fd = -1;
    td_buf_init(&s->in, TD_MAX_FRAME + READ_SIZE);
    td_buf_init(&s->out, 2 * TD_MAX_FRAME);
    td_buf_init(&s->out_line, MAX_LINE);
    td_buf_init(&s->err_line, MAX_LINE);
    enum td_status st = init(s, err);
    if (st == TD_OK)
        *out = s;
    else
        td_supervisor_free(s);
    return st;
}

void td_supervisor_free(struct td_supervisor *s)
{
    if (!s)
        return;
    if (*s->path)
        (void)unlink(s->path);
    if (*s->folder)
        (void)rmdir(s->folder);
    close_fd(&s->wake[0]);
    close_fd(&s->wake[1]);
    td_buf_release(&s->in);
    td_buf_release(&s->out);
    td_buf_release(&s->out_line);
    td_buf_release(&s->err_line);
    td_watch_free(s->watch);
    td_argv_release(&s->argv);
    td_free(s);
}

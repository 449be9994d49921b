/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem serve MODEL: the OpenAI API over HTTP.
 *
 * The port is open before anything large is read. Then the tokenizer is loaded, and this
 * thread becomes the supervisor's loop: it starts `tandem worker` and keeps it running,
 * while the HTTP server's threads take requests.
 *
 *     SIGTERM, SIGINT    finish what runs (at most --drain-timeout), exit 0
 *     SIGHUP             the same, unless it is ignored (nohup)
 *     again              now
 *     before an engine is started there is nothing to finish: exit 0 at once
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "api/front.h"
#include "api/http.h"
#include "api/served.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/job.h"
#include "cmd/options.h"
#include "cmd/term.h"
#include "launch/supervisor.h"
#include "plan/plan.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { HTTP_THREADS = 4, OWN_DESCRIPTORS = 128 };

static const double SLOW_REQUEST = 60; /* seconds that a request may take to arrive */

struct server;

/* A look at the hosts before a restart, in a thread of its own. */
struct recheck {
    pthread_t thread;
    bool running; /* or ended, and not joined yet */
    atomic_bool done;
    enum td_status status;
    struct td_error err;
    char said[TD_ERROR_WHAT_MAX]; /* the last reason that was printed */
};

struct server {
    const struct td_conf *conf;
    struct td_served served;
    struct td_front *front;
    struct td_http *http;
    struct td_supervisor *supervisor;
    struct td_argv argv; /* the worker's command */
    struct td_cmd_job job;
    struct td_engine_params engine; /* what rank 0 opens */
    struct recheck recheck;
    bool ranks; /* several of them: `job` is used */
    char name[256];
    double start;
    int loaded;     /* ranks that have loaded */
    double slowest; /* seconds of their loads */
    double touched; /* seconds until their caches were, where that took longer */
    bool bar;       /* a progress bar stands on the terminal's last line */
    int stops;      /* signals seen */
};

/* Joining hosts in a thread of its own. */
struct joining {
    struct server *s;
    enum td_status status;
    struct td_error err;
};

/* For the signal handler. */
static atomic_bool preparing;
static atomic_int stop_signals;
static struct td_supervisor *_Atomic to_wake;

static void on_signal(int sig)
{
    struct td_supervisor *s = atomic_load(&to_wake);
    (void)sig;
    if (atomic_load(&preparing))
        _exit(TD_EXIT_OK);
    atomic_fetch_add(&stop_signals, 1);
    if (s)
        td_supervisor_wake(s);
}

static void catch_signals(void)
{
    struct sigaction a, old;
    memset(&a, 0, sizeof(a));
    (void)sigemptyset(&a.sa_mask);
    a.sa_handler = on_signal;
    (void)sigaction(SIGTERM, &a, NULL);
    (void)sigaction(SIGINT, &a, NULL);
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(SIGHUP, &a, NULL);
    a.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &a, NULL);
}

/* ---- what is shown ------------------------------------------------------------------ */

static void clear_bar(struct server *s)
{
    if (s->bar)
        (void)fputs("\r\033[K", stderr);
    s->bar = false;
}

/* Of all ranks together. */
static void show_progress(struct server *s)
{
    struct td_buf line;
    struct td_num list[5];
    td_front_progress(s->front, list);
    td_buf_init(&line, 256);
    if (td_progress_format(list, &line) == TD_OK)
        (void)fprintf(stderr, "\r%s\033[K", line.p);
    td_buf_release(&line);
    s->bar = true;
}

static double num(const json_t *nums, const char *key)
{
    return json_number_value(json_object_get(nums, key));
}

static const char *size_of(double bytes, char text[32])
{
    (void)snprintf(text, 32, "%s", td_size_text((int64_t)bytes, 1).text);
    return text;
}

/* What one rank takes; all take the same but for roundings. */
static void show_plan(const struct server *s, const json_t *nums)
{
    char weights[32], kv[32], work[32], reserve[32], total[32];
    double others = num(nums, "states") + num(nums, "prefixes") + num(nums, "work");
    (void)fprintf(stderr,
                  "plan    %s weights + %s KV (%.0f tokens) + %s states and work + %s "
                  "reserve of %s%s\n",
                  size_of(num(nums, "weights"), weights), size_of(num(nums, "kv"), kv),
                  num(nums, "tokens"), size_of(others, work),
                  size_of(num(nums, "reserve"), reserve),
                  size_of(num(nums, "total"), total), s->ranks ? ", each rank" : "");
}

/* All ranks have loaded: their bytes, and the time of the slowest. */
static void show_loaded(struct server *s, const json_t *nums)
{
    char text[32];
    struct td_num list[5];
    s->slowest = TD_MAX(s->slowest, num(nums, "seconds"));
    if (++s->loaded < (s->ranks ? s->job.mpi.ranks : 1))
        return;
    td_front_progress(s->front, list);
    (void)fprintf(stderr, "load    %s  %.1f GB/s  %.1f s\n",
                  size_of(list[1].value, text),
                  s->slowest > 0 ? list[1].value / s->slowest * 1e-9 : 0, s->slowest);
}

/* The system gave memory for the caches more slowly than the weights were read. */
static void show_touched(struct server *s, const json_t *nums)
{
    const double worth = 1; /* seconds */
    double seconds = num(nums, "seconds");
    char text[32];
    if (seconds < s->slowest + worth || seconds < s->touched + worth)
        return;
    s->touched = seconds;
    (void)fprintf(stderr, "memory  %s of caches took %.1f s\n",
                  size_of(num(nums, "bytes"), text), seconds);
}

static void show(struct server *s, const char *name, const json_t *event)
{
    const json_t *nums = json_object_get(event, "n");
    bool first = json_integer_value(json_object_get(event, "rank")) == 0;
    if (strcmp(name, "progress") == 0) {
        if (td_term_is(stderr))
            show_progress(s);
        return;
    }
    clear_bar(s);
    if (strcmp(name, "plan") == 0 && first) {
        s->loaded = 0;
        s->slowest = s->touched = 0;
        show_plan(s, nums);
    } else if (strcmp(name, "loaded") == 0) {
        show_loaded(s, nums);
    } else if (strcmp(name, "touched") == 0) {
        show_touched(s, nums);
    }
}

/* Rank 0's is this process's too, for what it reports itself. */
static void follow_phase(const struct server *s, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "phase"));
    if (s->stops == 0 && json_integer_value(json_object_get(event, "rank")) == 0)
        td_phase_set(td_phase_named(name, td_phase_now()));
}

static void on_event(void *self, const char *line, size_t n)
{
    struct server *s = self;
    json_t *o = NULL;
    td_front_event(s->front, line, n);
    if (s->ranks) /* a lone worker writes to the file itself */
        td_log_line(line, n);
    if (td_json_parse(line, n, "event", &o, NULL) != TD_OK)
        return;
    const char *name = json_string_value(json_object_get(o, "event"));
    if (name && strcmp(name, "phase") == 0)
        follow_phase(s, o);
    else if (name)
        show(s, name, o);
    (void)fflush(stderr);
    json_decref(o);
}

/* What the engine says on standard error; its report of an error comes from us, and what
 * mpirun says is in the report. */
static void on_words(void *self, int rank, const char *line, size_t n)
{
    static const char *const ours[] = {"error   ", "cause   ", "fix     ", "usage   "};
    for (size_t i = 0; i < TD_COUNT(ours); i++)
        if (n > 8 && memcmp(line, ours[i], 8) == 0)
            return;
    if (rank < 0)
        return;
    clear_bar(self);
    if (rank > 0)
        (void)fprintf(stderr, "rank %d: ", rank);
    td_term_text(stderr, line, n, true);
    (void)fputc('\n', stderr);
}

static void on_killed(void *self, int rank, const struct td_watch_rank *r,
                      struct td_error *err)
{
    td_cmd_job_examine(&((struct server *)self)->job, rank, r, err);
}

static void on_lost(void *self, const struct td_error *why, double wait)
{
    struct server *s = self;
    td_front_lost(s->front, why, wait);
    clear_bar(s);
    if (wait < 0)
        return; /* reported when the verb ends */
    s->start = td_clock_now() + wait;
    if (s->stops == 0)
        td_phase_set(TD_PHASE_LAUNCH);
    td_term_error(stderr, why);
    (void)fprintf(stderr, "restart in %.1f s; requests wait\n", wait);
}

/* ---- looking at the hosts again ------------------------------------------------------ */

static void *recheck_hosts(void *arg)
{
    struct server *s = arg;
    struct recheck *r = &s->recheck;
    td_error_init(&r->err);
    r->status = td_cmd_job_recheck(&s->job, &s->engine, &r->err);
    atomic_store(&r->done, true);
    td_supervisor_wake(s->supervisor);
    return NULL;
}

static enum td_again on_again(void *self, struct td_error *why)
{
    struct server *s = self;
    struct recheck *r = &s->recheck;
    if (!r->running) {
        atomic_store(&r->done, false);
        r->running = pthread_create(&r->thread, NULL, recheck_hosts, s) == 0;
        return r->running ? TD_AGAIN_WAIT : TD_AGAIN_YES; /* its start will tell */
    }
    if (!atomic_load(&r->done))
        return TD_AGAIN_WAIT;
    (void)pthread_join(r->thread, NULL);
    r->running = false;
    *why = r->err;
    if (r->status == TD_OK)
        *r->said = 0;
    return r->status == TD_OK ? TD_AGAIN_YES : TD_AGAIN_NO;
}

/* Whether n characters are a measured number, such as 86.3: one dot, unlike an address. */
static bool is_measure(const char *p, size_t n)
{
    const char *dot = memchr(p, '.', n);
    return dot && !memchr(dot + 1, '.', n - (size_t)(dot + 1 - p));
}

/* Whether two reasons differ by what was measured at most. */
static bool same_reason(const char *a, const char *b)
{
    while (*a && *b) {
        size_t n = strspn(a, "0123456789."), m = strspn(b, "0123456789.");
        if (n && is_measure(a, n) && is_measure(b, m)) {
            a += n;
            b += m;
            continue;
        }
        n = TD_MAX(n, 1);
        if (strncmp(a, b, n) != 0)
            return false;
        a += n;
        b += n;
    }
    return *a == *b;
}

/* The same reason is printed once, however long it lasts. */
static void on_put_off(void *self, const struct td_error *why, double wait)
{
    struct server *s = self;
    struct recheck *r = &s->recheck;
    td_front_put_off(s->front, why, wait);
    s->start = td_clock_now() + wait;
    if (same_reason(r->said, why->what))
        return;
    td_text_copy(r->said, sizeof(r->said), why->what);
    clear_bar(s);
    td_term_error(stderr, why);
    (void)fprintf(stderr, "waiting for the hosts; requests wait\n");
}

static void on_ready(void *self, const char *times)
{
    struct server *s = self;
    const char *host = td_conf_str(s->conf, TD_O_HOST);
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    bool six = strchr(host, ':') != NULL;
    td_supervisor_works(s->supervisor);
    td_event("ready",
             (struct td_num[]){{"seconds", td_clock_now() - s->start}, {NULL, 0}});
    clear_bar(s);
    (void)fprintf(
        stderr, "ready   http://%s%s%s:%d/v1   %.1f s%s%s%s\n", six && !any ? "[" : "",
        any ? "127.0.0.1" : host, six && !any ? "]" : "", td_http_port(s->http),
        td_clock_now() - s->start, *times ? " (" : "", times, *times ? ")" : "");
    (void)fflush(stderr);
}

/* ---- between supervisor and front ---------------------------------------------------- */

static void on_connected(void *self)
{
    td_front_connected(((struct server *)self)->front);
}

static enum td_status on_received(void *self, const char *bytes, size_t n, size_t *used,
                                  struct td_error *err)
{
    return td_front_received(((struct server *)self)->front, bytes, n, used, err);
}

static void on_wake(void *self)
{
    struct server *s = self;
    if (s->supervisor)
        td_supervisor_wake(s->supervisor);
}

static void on_stuck(void *self, const struct td_error *why)
{
    td_supervisor_end_engine(((struct server *)self)->supervisor, why);
}

static void on_drained(void *self)
{
    td_supervisor_stop(((struct server *)self)->supervisor);
}

static void pass_beats(const struct server *s)
{
    struct td_watch_rank ranks[TD_MAX_RANKS];
    int n = td_supervisor_ranks(s->supervisor, ranks);
    for (int i = 0; i < n; i++)
        if (ranks[i].age >= 0)
            td_front_beat(s->front, i,
                          &(struct td_sign){.host = ranks[i].host,
                                            .age = ranks[i].age,
                                            .resident = ranks[i].resident,
                                            .available = ranks[i].available});
}

static double on_round(void *self, struct td_buf *out)
{
    struct server *s = self;
    if (s->ranks)
        pass_beats(s);
    int stops = atomic_load(&stop_signals);
    if (stops > s->stops) {
        if (s->stops == 0) {
            clear_bar(s);
            (void)fprintf(stderr, "stop    finishing what runs\n");
            td_event_phase(TD_PHASE_STOP);
            td_http_quiesce(s->http);
        }
        s->stops = stops;
        td_front_drain(s->front);
    }
    return td_front_round(s->front, out);
}

/* ---- the worker's command ------------------------------------------------------------ */

/* All options that a worker takes, as they were given to us in whatever way. */
static enum td_status build_argv(struct server *s, struct td_error *err)
{
    struct td_argv *a = &s->argv;
    td_cmd_job_command(s->ranks ? &s->job : NULL, s->conf, "worker", TD_VERB_WORKER,
                       s->conf->args[0], a);
    if (!td_conf_is_set(s->conf, TD_O_PREFIX_CACHE)) {
        int64_t bytes = td_plan_prefix_bytes(&s->served.config);
        td_argv_addf(a, "--prefix-cache=%lld", (long long)bytes);
    }
    td_argv_addf(a, "--vocab=%ld", (long)s->served.vocab);
    if (*td_log_path() && !s->ranks)
        td_argv_addf(a, "--event-log=%s", td_log_path());
    return td_argv_done(a, err);
}

/* ---- making ------------------------------------------------------------------------ */

/* The last part of the model's path. */
static void name_model(struct server *s)
{
    const char *given = td_conf_str(s->conf, TD_O_SERVED_MODEL_NAME);
    char path[PATH_MAX];
    if (!given) {
        given = realpath(s->conf->args[0], path) ? path : s->conf->args[0];
        const char *slash = strrchr(given, '/');
        given = slash && slash[1] ? slash + 1 : given;
    }
    (void)snprintf(s->name, sizeof(s->name), "%.255s", given);
}

/* Events always go to a file, so that a failure can be explained later. */
static void open_log(void)
{
    char name[64], path[TD_MAX_PATH];
    time_t now = time(NULL);
    struct tm tm;
    if (*td_log_path())
        return; /* --event-log */
    if (localtime_r(&now, &tm) &&
        strftime(name, sizeof(name), "%Y-%m-%dT%H-%M-%S.jsonl", &tm) > 0 &&
        td_state_path(path, sizeof(path), name))
        (void)td_log_open(path, NULL);
}

/* Room for a descriptor for each client and our own; how many clients there can be. */
static int raise_descriptors(int connections)
{
    struct rlimit r;
    rlim_t want = (rlim_t)td_http_sockets(connections) + OWN_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want)
        return connections;
    r.rlim_cur = r.rlim_max == RLIM_INFINITY ? want : TD_MIN(want, r.rlim_max);
    (void)setrlimit(RLIMIT_NOFILE, &r);
    while (connections > 1 &&
           (rlim_t)td_http_sockets(connections) + OWN_DESCRIPTORS > r.rlim_cur)
        connections--;
    return connections;
}

/* Whether only programs of this machine reach an address. */
static bool is_own(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

static enum td_status open_front(struct server *s, struct td_error *err)
{
    const struct td_conf *c = s->conf;
    size_t max_body = (size_t)td_conf_int(c, TD_O_MAX_BODY);
    struct td_front_params front = {
        .served = &s->served,
        .version = td_version,
        .build = td_build,
        .key = td_conf_str(c, TD_O_API_KEY),
        .max_queue = (int)td_conf_int(c, TD_O_MAX_QUEUE),
        .queue_timeout = td_conf_real(c, TD_O_QUEUE_TIMEOUT),
        .drain_timeout = td_conf_real(c, TD_O_DRAIN_TIMEOUT),
        .max_body = max_body,
        .self = s,
        .wake = on_wake,
        .ready = on_ready,
        .stuck = on_stuck,
        .drained = on_drained};
    if (front.key && !*front.key) {
        td_error_set(err, TD_E_USAGE, "the API key is empty");
        td_error_why(err, "a client without a key would be as good as one with it");
        td_error_fix(err, "set TANDEM_API_KEY to a secret, or leave it out");
        return TD_E_USAGE;
    }
    enum td_status st = td_front_new(&front, &s->front, err);
    if (st != TD_OK)
        return st;
    int asked = (int)td_conf_int(c, TD_O_MAX_CONNECTIONS);
    struct td_http_params http = {.host = td_conf_str(c, TD_O_HOST),
                                  .port = (int)td_conf_int(c, TD_O_PORT),
                                  .threads = HTTP_THREADS,
                                  .max_connections = raise_descriptors(asked),
                                  .max_body = max_body,
                                  .max_arriving = TD_MAX_HTTP_ARRIVING,
                                  .idle = td_conf_real(c, TD_O_IDLE_TIMEOUT),
                                  .slow = SLOW_REQUEST,
                                  .head = td_front_head,
                                  .fn = td_front_handle,
                                  .self = s->front};
    if (http.max_connections < asked)
        (void)fprintf(stderr,
                      "note    at most %d clients at a time: the system allows "
                      "this process no more open files (ulimit -n)\n",
                      http.max_connections);
    st = td_http_start(&http, &s->http, err);
    if (st == TD_OK) {
        (void)fprintf(stderr, "listen  %s port %d\n", http.host, td_http_port(s->http));
        if (!front.key && !is_own(http.host))
            (void)fprintf(stderr,
                          "note    whoever reaches that address may ask: there is "
                          "no API key (TANDEM_API_KEY)\n");
        (void)fflush(stderr);
    }
    return st;
}

static void *join_hosts(void *arg)
{
    struct joining *j = arg;
    j->status = td_cmd_job_open(&j->s->job, j->s->conf, j->s->conf->args[0], &j->err);
    return NULL;
}

/* The tokenizer is loaded while the hosts are joined: both take seconds. */
static enum td_status prepare(struct server *s, struct td_error *err)
{
    struct joining j = {.s = s};
    pthread_t thread;
    s->ranks = td_cmd_job_wanted(s->conf);
    if (!s->ranks)
        return td_served_load(&s->served, s->conf->args[0], err);
    td_error_init(&j.err);
    td_event_phase(TD_PHASE_CHECK);
    td_front_phase(s->front, TD_PHASE_CHECK);
    bool apart = pthread_create(&thread, NULL, join_hosts, &j) == 0;
    enum td_status st = td_served_load(&s->served, s->conf->args[0], err);
    if (apart)
        (void)pthread_join(thread, NULL);
    else
        (void)join_hosts(&j);
    if (st == TD_OK && j.status != TD_OK) {
        *err = j.err;
        st = j.status;
    }
    if (st != TD_OK)
        return st;
    td_cmd_job_print(&s->job);
    td_event_phase(TD_PHASE_PLAN);
    td_front_phase(s->front, TD_PHASE_PLAN);
    s->engine = td_options_server(s->conf, s->conf->args[0], &s->served.config);
    st = td_cmd_job_plan(&s->job, &s->engine, err);
    if (st != TD_OK)
        return st;
    td_event_phase(TD_PHASE_LAUNCH);
    td_front_phase(s->front, TD_PHASE_LAUNCH);
    return TD_OK;
}

static enum td_status serve(struct server *s, struct td_error *err)
{
    struct td_supervisor_params p = {.self = s,
                                     .connected = on_connected,
                                     .received = on_received,
                                     .event = on_event,
                                     .words = on_words,
                                     .examine = on_killed,
                                     .lost = on_lost,
                                     .round = on_round};
    enum td_status st = prepare(s, err);
    if (st == TD_OK)
        st = build_argv(s, err);
    if (st != TD_OK)
        return st;
    td_front_loaded(s->front);
    atomic_store(&preparing, false);
    p.argv = s->argv.v;
    if (s->ranks) {
        p.job = &s->job.mpi;
        p.again = s->job.cluster.n > 1 ? on_again : NULL;
        p.put_off = on_put_off;
        p.limits = s->job.limits;
    }
    st = td_supervisor_new(&p, &s->supervisor, err);
    if (st != TD_OK)
        return st;
    atomic_store(&to_wake, s->supervisor);
    return td_supervisor_run(s->supervisor, err);
}

static void close_server(struct server *s)
{
    atomic_store(&preparing, false);
    td_http_stop(s->http);
    td_front_free(s->front);
    atomic_store(&to_wake, NULL);
    if (s->recheck.running)
        (void)pthread_join(s->recheck.thread, NULL);
    td_supervisor_free(s->supervisor);
    td_served_release(&s->served);
    td_argv_release(&s->argv);
    td_cmd_job_close(&s->job);
}

static int run(struct td_conf *conf, struct td_error *err)
{
    struct server s = {.conf = conf, .start = td_clock_now()};
    atomic_store(&preparing, true);
    catch_signals();
    name_model(&s);
    td_phase_set(TD_PHASE_CHECK);
    enum td_status st = td_served_open(&s.served, conf->args[0], s.name, err);
    if (st == TD_OK) {
        open_log();
        st = open_front(&s, err);
    }
    if (st == TD_OK)
        st = serve(&s, err);
    close_server(&s);
    return st == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

const struct td_cmd td_cmd_serve = {
    .name = "serve",
    .verb = TD_VERB_SERVE,
    .usage = "serve MODEL [--port N] [--host A]",
    .args = {1, 1, "model", NULL},
    .summary = "serve a model: the OpenAI API over HTTP",
    .details =
        "The port is open at once; /startupz says how far the start is, /readyz when\n"
        "answers can be had. The API's base URL ends in /v1.",
    .run = run,
};

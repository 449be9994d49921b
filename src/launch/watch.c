/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What mpirun prints, rank by rank. See watch.h; causes are in watch_cause.c.
 */
#define _POSIX_C_SOURCE 200809L
#include "launch/watch.h"

#include "base/json.h"
#include "base/mem.h"
#include "engine/ranks.h"
#include "launch/watch_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A pause of our own that is longer than this is taken off everybody's account. */
static const double NAP = 0.75;

enum { LONGEST_LINE = 32 * 1024 };

/* ---- tags ------------------------------------------------------------------------- */

struct tagged {
    int rank; /* -1: no tag */
    bool err; /* of its standard error */
    const char *text;
    size_t n;
};

static bool skip(const char **p, const char *end, const char *what)
{
    size_t n = strlen(what);
    if ((size_t)(end - *p) < n || memcmp(*p, what, n) != 0)
        return false;
    *p += n;
    return true;
}

/* [JOB,RANK]<stdout>:TEXT */
static struct tagged untag(const struct td_watch *w, const char *line, size_t n)
{
    n -= n > 0 && line[n - 1] == '\r'; /* ssh ends its lines so */
    struct tagged plain = {-1, true, line, n};
    const char *p = line, *end = line + n;
    int digits = 0, rank = 0;
    if (!skip(&p, end, "["))
        return plain;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    if (!skip(&p, end, ","))
        return plain;
    for (; p < end && *p >= '0' && *p <= '9' && digits < 6; p++, digits++)
        rank = rank * 10 + (*p - '0');
    if (digits == 0 || rank >= w->ranks || !skip(&p, end, "]<std"))
        return plain;
    bool err = skip(&p, end, "err>:");
    if (!err && !skip(&p, end, "out>:"))
        return plain;
    return (struct tagged){rank, err, p, (size_t)(end - p)};
}

/* ---- events and heartbeats ------------------------------------------------------------ */

static void copy_text(const json_t *o, const char *key, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(o, key));
    (void)snprintf(to, size, "%s", text ? text : "");
}

static enum td_status status_of(const char *slug)
{
    for (int i = 1; slug && i < TD_STATUS_COUNT; i++)
        if (strcmp(td_status_info((enum td_status)i)->slug, slug) == 0)
            return (enum td_status)i;
    return TD_E_INTERNAL;
}

void td_watch_read_error(const json_t *o, struct td_error *err)
{
    td_error_init(err);
    err->code = status_of(json_string_value(json_object_get(o, "code")));
    err->phase =
        td_phase_named(json_string_value(json_object_get(o, "phase")), TD_PHASE_SERVE);
    err->rank = json_is_integer(json_object_get(o, "rank"))
                    ? (int)json_integer_value(json_object_get(o, "rank"))
                    : -1;
    copy_text(o, "host", err->host, sizeof(err->host));
    copy_text(o, "what", err->what, sizeof(err->what));
    copy_text(o, "why", err->why, sizeof(err->why));
    copy_text(o, "fix", err->fix, sizeof(err->fix));
}

/* The loss of another rank is what the others report when one fails. */
static bool is_consequence(enum td_status code)
{
    return code == TD_E_PEER || code == TD_E_TIMEOUT || code == TD_E_CANCELLED;
}

static void note_error(struct td_watch *w, int rank, const json_t *o)
{
    struct td_error e;
    td_watch_read_error(o, &e);
    e.rank = e.rank < 0 ? rank : e.rank; /* it did not know its own number yet */
    bool better = is_consequence(w->said.code) && !is_consequence(e.code);
    if (w->said.code == TD_OK || better)
        w->said = e;
}

/* Sooner than the next heartbeat tells it. */
static void note_phase(struct rank *r, const json_t *o, double now)
{
    copy_text(o, "phase", r->phase, sizeof(r->phase));
    r->step_at = now;
}

static bool take_event(struct td_watch *w, int rank, const char *line, size_t n,
                       double now)
{
    json_t *o = NULL;
    if (td_json_parse(line, n, "event", &o, NULL) != TD_OK)
        return false;
    const char *name = json_string_value(json_object_get(o, "event"));
    if (name && strcmp(name, "error") == 0)
        note_error(w, rank, o);
    if (name && strcmp(name, "phase") == 0 &&
        json_is_string(json_object_get(o, "phase")))
        note_phase(&w->rank[rank], o, now);
    json_decref(o);
    w->params.event(w->params.self, rank, line, n);
    return true;
}

static bool take_beat(struct td_watch *w, int rank, const char *line, size_t n,
                      double now)
{
    struct td_beat b;
    struct rank *r = &w->rank[rank];
    if (!td_beat_parse(line, n, &b) || b.rank != rank)
        return false;
    if (r->beat_at == 0 || b.step != r->step || strcmp(b.phase, r->phase) != 0)
        r->step_at = now;
    r->beat_at = now;
    r->step = b.step;
    r->resident = (double)b.resident;
    r->available = (double)b.available;
    r->kills = (double)b.kills;
    (void)snprintf(r->phase, sizeof(r->phase), "%s", b.phase);
    return true;
}

/* Is this the beginning of something for us, or its middle? */
static bool take(struct td_watch *w, int rank, const char *line, size_t n, double now)
{
    return n > 0 && ((*line == '{' && take_event(w, rank, line, n, now)) ||
                     (*line == '@' && take_beat(w, rank, line, n, now)));
}

/* A line that begins like one of ours and cannot be read is the first part of one: the
 * rest follows on the rank's next line. */
static void take_part(struct td_watch *w, int rank, const char *line, size_t n,
                      double now)
{
    struct td_buf *part = &w->rank[rank].part;
    bool ours = *line == '{' || *line == '@';
    if (part->len > 0 && part->status == TD_OK) {
        td_buf_add(part, line, n);
        if (part->status == TD_OK && take(w, rank, part->p, part->len, now)) {
            td_buf_clear(part);
            return;
        }
        if (part->status == TD_OK && !ours)
            return; /* a third part may follow */
    }
    td_buf_clear(part);
    if (ours)
        td_buf_add(part, line, n);
    else
        w->params.words(w->params.self, rank, line, n);
}

void td_watch_out(struct td_watch *w, const char *line, size_t n, double now)
{
    struct tagged t = untag(w, line, n);
    if (t.rank < 0) {
        td_watch_err(w, line, n);
        return;
    }
    if (t.n == 0)
        return;
    if (take(w, t.rank, t.text, t.n, now))
        td_buf_clear(&w->rank[t.rank].part);
    else
        take_part(w, t.rank, t.text, t.n, now);
}

void td_watch_err(struct td_watch *w, const char *line, size_t n)
{
    struct tagged t = untag(w, line, n);
    if (t.rank < 0)
        td_watch_note(w, t.text, t.n);
    if (t.n > 0)
        w->params.words(w->params.self, t.rank, t.text, t.n);
}

/* ---- deadlines -------------------------------------------------------------------------- */

static bool late(struct td_watch *w, enum td_status code, int rank,
                 struct td_error *err)
{
    w->judged = true;
    err->code = code;
    err->rank = rank;
    if (rank >= 0) {
        (void)snprintf(err->host, sizeof(err->host), "%s", w->rank[rank].host);
        err->phase = td_phase_named(w->rank[rank].phase, TD_PHASE_SERVE);
    }
    return true;
}

/* All were started, and none has joined: nobody is to blame more than another. */
static bool none_came(struct td_watch *w, double now, struct td_error *err)
{
    for (int i = 0; i < w->ranks; i++)
        if (w->rank[i].beat_at > 0 || !*w->rank[i].phase)
            return false;
    td_error_set(err, TD_E_TIMEOUT, "the ranks did not find each other within %.0f s",
                 now - w->started);
    td_error_why(err,
                 "all %d are started, and MPI does not bring them together: one of "
                 "them is stopped, or the network between them hangs",
                 w->ranks);
    td_error_fix(err, "run `tandem check` with the same hosts");
    return late(w, TD_E_TIMEOUT, -1, err);
}

static bool never_came(struct td_watch *w, int rank, double now, struct td_error *err)
{
    if (none_came(w, now, err))
        return true;
    for (int i = w->ranks - 1; i >= 0; i--) /* the first that was not even started */
        rank = *w->rank[i].phase ? rank : i;
    td_error_set(err, TD_E_TIMEOUT, "rank %d on %s did not join within %.0f s", rank,
                 w->rank[rank].host, now - w->started);
    if (*w->trouble.what)
        td_error_why(err, "mpirun said: %s", w->trouble.what);
    else
        td_error_why(err,
                     "mpirun was started, and nothing came from this rank: its host "
                     "hangs, or its processes are stopped");
    td_error_fix(err, "run `tandem check` with the same hosts");
    return late(w, TD_E_TIMEOUT, rank, err);
}

static bool silent(struct td_watch *w, int rank, double now, struct td_error *err)
{
    /* Heard of lately. Those that are silent, too, may follow in a moment. */
    int others = 0;
    for (int i = 0; i < w->ranks; i++)
        others += now - w->rank[i].beat_at <= w->params.limits.silent / 2;
    if (others == 0 && w->ranks > 1) {
        td_error_set(err, TD_E_TIMEOUT, "all ranks are silent for %.1f s",
                     now - w->rank[rank].beat_at);
        td_error_why(err, "mpirun was stopped, or this machine has no time for it");
        return late(w, TD_E_TIMEOUT, -1, err);
    }
    td_error_set(err, TD_E_PEER, "rank %d on %s is silent for %.1f s, in phase %s",
                 rank, w->rank[rank].host, now - w->rank[rank].beat_at,
                 w->rank[rank].phase);
    td_error_why(err, "it sends a sign of life four times a second: the process is "
                      "stopped, or its host or the network to it is gone");
    td_error_fix(err, "look at that host and its link: `tandem check` with the same "
                      "hosts");
    return late(w, TD_E_PEER, rank, err);
}

static bool stands(struct td_watch *w, int rank, double now, struct td_error *err)
{
    td_error_set(err, TD_E_TIMEOUT, "rank %d on %s is stuck for %.1f s, in phase %s",
                 rank, w->rank[rank].host, now - w->rank[rank].step_at,
                 w->rank[rank].phase);
    td_error_why(err, "it shows signs of life, but gets nowhere");
    return late(w, TD_E_TIMEOUT, rank, err);
}

/* We did not look for a while: what happened meanwhile cannot be known. */
static void forgive(struct td_watch *w, double now)
{
    double nap = now - w->looked;
    if (w->looked > 0 && nap > NAP) {
        w->started += nap;
        for (int i = 0; i < w->ranks; i++)
            if (w->rank[i].beat_at > 0) {
                w->rank[i].beat_at = TD_MIN(w->rank[i].beat_at + nap, now);
                w->rank[i].step_at = TD_MIN(w->rank[i].step_at + nap, now);
            }
    }
    w->looked = now;
}

static double still_limit(const struct td_watch *w, const struct rank *r)
{
    return strcmp(r->phase, td_phase_name(TD_PHASE_SERVE)) == 0 ? w->params.limits.still
                                                                : w->params.limits.load;
}

bool td_watch_late(struct td_watch *w, double now, struct td_error *err)
{
    const struct td_watch_limits *l = &w->params.limits;
    forgive(w, now);
    if (w->judged || w->started == 0)
        return false;
    if (w->fatal) {
        *err = w->trouble;
        return late(w, w->trouble.code, w->trouble.rank, err);
    }
    int worst = -1;
    for (int i = 0; i < w->ranks; i++) {
        const struct rank *r = &w->rank[i];
        if (r->beat_at == 0) {
            if (now - w->started > l->first)
                return never_came(w, i, now, err);
        } else if (now - r->beat_at > l->silent &&
                   (worst < 0 || r->beat_at < w->rank[worst].beat_at)) {
            worst = i;
        }
    }
    if (worst >= 0)
        return silent(w, worst, now, err);
    for (int i = 0; i < w->ranks; i++)
        if (w->rank[i].beat_at > 0 &&
            now - w->rank[i].step_at > still_limit(w, &w->rank[i]))
            return stands(w, i, now, err);
    return false;
}

double td_watch_wait(const struct td_watch *w, double now)
{
    const struct td_watch_limits *l = &w->params.limits;
    double at = now + NAP / 2;
    for (int i = 0; i < w->ranks && !w->judged; i++) {
        const struct rank *r = &w->rank[i];
        double next = r->beat_at == 0 ? w->started + l->first
                                      : TD_MIN(r->beat_at + l->silent,
                                               r->step_at + still_limit(w, r));
        at = TD_MIN(at, next);
    }
    return TD_MAX(at - now, 0) + 0.001;
}

int td_watch_ranks(const struct td_watch *w, double now,
                   struct td_watch_rank out[TD_MAX_RANKS])
{
    for (int i = 0; i < w->ranks; i++) {
        const struct rank *r = &w->rank[i];
        out[i] = (struct td_watch_rank){.host = r->host,
                                        .step = r->step,
                                        .resident = r->resident,
                                        .available = r->available,
                                        .kills = r->kills,
                                        .age = r->beat_at > 0 ? now - r->beat_at : -1};
        (void)snprintf(out[i].phase, sizeof(out[i].phase), "%s", r->phase);
    }
    return w->ranks;
}

/* ---- making ------------------------------------------------------------------------ */

void td_watch_start(struct td_watch *w, double now)
{
    for (int i = 0; i < w->ranks; i++) {
        struct rank *r = &w->rank[i];
        td_buf_clear(&r->part);
        r->beat_at = r->step_at = r->resident = r->available = r->kills = 0;
        r->step = 0;
        *r->phase = 0;
    }
    td_error_init(&w->said);
    td_error_init(&w->trouble);
    w->fatal = w->judged = false;
    w->killed = -1;
    w->signal = 0;
    w->pending = NULL;
    w->started = now;
    w->looked = now;
}

static void name_hosts(struct td_watch *w)
{
    const struct td_cluster *c = w->params.job->cluster;
    char own[TD_ERROR_HOST_MAX] = "this host";
    (void)gethostname(own, sizeof(own) - 1);
    for (int i = 0; i < w->ranks; i++) {
        const struct td_cluster_host *h =
            c->n > 1 ? &c->hosts[td_mpi_host_of(w->params.job, i)] : NULL;
        const char *name = h && *h->label ? h->label : h ? h->name : own;
        (void)snprintf(w->rank[i].host, sizeof(w->rank[i].host), "%.*s",
                       (int)sizeof(w->rank[i].host) - 1, name);
    }
}

enum td_status td_watch_new(const struct td_watch_params *params, struct td_watch **out,
                            struct td_error *err)
{
    struct td_watch *w = NULL;
    int ranks = params->job->ranks;
    if (ranks < 1 || ranks > TD_MAX_RANKS)
        return td_error_set(err, TD_E_LIMIT, "%d ranks; at most %d are possible", ranks,
                            TD_MAX_RANKS);
    w = td_calloc(1, sizeof(*w));
    if (!w)
        return td_error_set(err, TD_E_NOMEM, "no memory to watch the ranks");
    w->params = *params;
    w->ranks = ranks;
    for (int i = 0; i < ranks; i++)
        td_buf_init(&w->rank[i].part, LONGEST_LINE);
    name_hosts(w);
    td_watch_start(w, 0);
    *out = w;
    return TD_OK;
}

void td_watch_free(struct td_watch *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->ranks; i++)
        td_buf_release(&w->rank[i].part);
    td_free(w);
}

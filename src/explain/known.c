/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known when the cause is not: how far each process got, which one fell silent
 * first, which ranks never spoke, and what was not among the files.
 */
#include "explain/explain_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHOWN = 8,        /* processes */
    HINT = 30,        /* weight below which a line is a mere hint */
    RANKS_MAX = 64,   /* that are looked for */
    SILENT_BEFORE = 2 /* seconds by which the first must precede the others */
};

/* A process of the engine, as opposed to Ray's own or the kernel. */
static bool is_engine(const struct td_stream *s)
{
    static const char *const others[] = {"raylet",     "gcs_server", "kernel",
                                         "autoscaler", "dockerd",    "kubelet"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(s->role, others[i]) == 0)
            return false;
    return s->rank >= 0 || (*s->role && s->pid >= 0);
}

static double last_time(const struct td_explain *x, const struct td_stream *s)
{
    return s->last_time < 0 ? -1 : s->last_time + x->sources[s->source].shift;
}

void td_report_process(const struct td_explain *x, const struct td_stream *s,
                       struct td_buf *out)
{
    const char *host = *s->host ? s->host : x->sources[s->source].host;
    if (s->rank >= 0)
        td_buf_addf(out, "rank %d on %s", s->rank, host);
    else
        td_buf_addf(out, "%s (pid %ld)", s->role, s->pid);
}

/* The same rank may speak under several prefixes: its first stream stands for all. */
static bool is_same_rank(const struct td_stream *a, const struct td_stream *b)
{
    return a->rank >= 0 && a->rank == b->rank && a->source == b->source;
}

static bool stands_for_rank(const struct td_explain *x, size_t i, enum td_step *step)
{
    *step = x->streams[i].step;
    for (size_t k = 0; k < x->nstreams; k++)
        if (k != i && is_same_rank(&x->streams[k], &x->streams[i])) {
            if (k < i)
                return false;
            *step = TD_MAX(*step, x->streams[k].step);
        }
    return true;
}

static void add_processes(const struct td_explain *x, struct td_buf *out)
{
    int shown = 0;
    enum td_step step;
    for (size_t i = 0; i < x->nstreams && shown < SHOWN; i++) {
        const struct td_stream *s = &x->streams[i];
        if (!is_engine(s) || !stands_for_rank(x, i, &step))
            continue;
        td_buf_adds(out, shown++ ? "; " : "");
        td_report_process(x, s, out);
        td_buf_addf(out, ": last seen %s", td_report_step(step));
    }
    for (size_t i = 0; i < x->nsources && shown == 0 && i < SHOWN; i++) {
        const struct td_source *s = &x->sources[i];
        if (s->lines > 0 && !s->binary)
            td_buf_addf(out, "%s%s stops %s", out->len ? "; " : "", s->host,
                        td_report_step(s->step));
    }
}

/* Whether anything in a source speaks of a failure. */
static bool says_why(const struct td_explain *x, size_t source)
{
    for (size_t i = 0; i < x->nhits; i++) {
        const struct td_rule *r = td_rule_at(x->hits[i].rule);
        if (x->hits[i].source == source &&
            (r->role == TD_ROLE_EFFECT || x->hits[i].weight >= HINT ||
             strncmp(r->id, "generic/", 8) == 0))
            return true;
    }
    return false;
}

/* Files that end in the middle of a start without a word, while others report a failure:
 * their process is the first suspect. */
static void add_silent_files(const struct td_explain *x, struct td_buf *out)
{
    bool any = false;
    for (size_t i = 0; i < x->nsources; i++)
        any = any || says_why(x, i);
    for (size_t i = 0; i < x->nsources && any; i++) {
        const struct td_source *s = &x->sources[i];
        if (s->binary || s->step == TD_STEP_NONE || s->step == TD_STEP_READY ||
            says_why(x, i))
            continue;
        td_buf_addf(out, "; %s ends without a word %s", td_report_file(x, (uint32_t)i),
                    td_report_step(s->step));
    }
}

/* The process of one file that fell silent while the others went on. Times of different
 * files are only compared when their clocks have been aligned. */
static void add_first_silent(const struct td_explain *x, size_t source,
                             struct td_buf *out)
{
    const struct td_stream *first = NULL;
    double next = -1;
    size_t n = 0;
    for (size_t i = 0; i < x->nstreams; i++) {
        const struct td_stream *s = &x->streams[i];
        double t = last_time(x, s);
        bool other = s->source != source && !(fabs(x->sources[s->source].shift) > 0);
        if (s->rank < 0 || t < 0 || other)
            continue;
        n++;
        if (!first || t < last_time(x, first)) {
            next = first ? last_time(x, first) : next;
            first = s;
        } else if (next < 0 || t < next) {
            next = t;
        }
    }
    if (!first || n < 2 || next < last_time(x, first) + SILENT_BEFORE)
        return;
    td_buf_adds(out, "; fell silent first: ");
    td_report_process(x, first, out);
    td_buf_addf(out, ", %.0f s before the next one", next - last_time(x, first));
}

/* Ranks that the world size promises and that no line comes from. */
static void add_missing_ranks(const struct td_explain *x, struct td_buf *out)
{
    const char *world = td_fact_get(x, "world_size");
    long n = world ? strtol(world, NULL, 10) : 0;
    bool seen[RANKS_MAX] = {false};
    long count = 0;
    if (n < 2 || n > RANKS_MAX)
        return;
    for (size_t i = 0; i < x->nstreams; i++)
        if (x->streams[i].rank >= 0 && x->streams[i].rank < n) {
            count += !seen[x->streams[i].rank];
            seen[x->streams[i].rank] = true;
        }
    if (count == 0 || count == n)
        return;
    td_buf_adds(out, "; nothing comes from rank");
    for (long r = 0; r < n; r++)
        if (!seen[r])
            td_buf_addf(out, " %ld", r);
}

void td_report_known(const struct td_explain *x, struct td_buf *out)
{
    add_processes(x, out);
    add_silent_files(x, out);
    add_first_silent(x, 0, out);
    add_missing_ranks(x, out);
}

/* Whether lines of the kernel, of container states or of Ray's session are there. */
static bool has_role(const struct td_explain *x, const char *role)
{
    for (size_t i = 0; i < x->nstreams; i++)
        if (strcmp(x->streams[i].role, role) == 0)
            return true;
    return false;
}

void td_report_needed(const struct td_explain *x, struct td_buf *out)
{
    td_buf_adds(out,
                x->nsources < 2
                    ? "the logs of the other hosts and ranks, from the beginning"
                    : "the beginning of each of these logs, and those of ranks that "
                      "are not among them");
    if (!has_role(x, "kernel"))
        td_buf_adds(out, "; the kernel log of the host that stopped first (`dmesg -T | "
                         "tail -200`)");
    if (!td_rule_was_seen(x, "noise/oomkilled-false") &&
        !td_rule_was_seen(x, "memory/oomkilled"))
        td_buf_adds(out, "; the state of its container (`docker inspect NAME`)");
    if (td_rule_was_seen(x, "step/ray-connected"))
        td_buf_adds(out,
                    "; Ray's session folder of that host (/tmp/ray/session_*/logs)");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem's own event logs (base/log.h): no rules are needed, the first process that knew
 * the cause has written it down. What is left to do is to find that one among the ranks
 * that only saw a peer disappear or a deadline pass.
 */
#include "explain/explain_int.h"

#include "base/json.h"
#include "base/limits.h"

#include <math.h>
#include <string.h>

enum { KEEP_FAILURES = 512, SECONDS_A_DAY = 86400 };

static bool holds(const char *p, size_t n, const char *word)
{
    size_t k = strlen(word);
    for (const char *end = p + n; (size_t)(end - p) >= k; p++) {
        p = memchr(p, *word, (size_t)(end - p) - k + 1);
        if (!p)
            return false;
        if (memcmp(p, word, k) == 0)
            return true;
    }
    return false;
}

static const char *field(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

static enum td_step step_of(const char *phase)
{
    static const struct {
        const char *phase;
        enum td_step step;
    } steps[] = {{"check", TD_STEP_CONFIG},   {"plan", TD_STEP_CONFIG},
                 {"launch", TD_STEP_CLUSTER}, {"load", TD_STEP_LOAD},
                 {"warmup", TD_STEP_CAPTURE}, {"serve", TD_STEP_READY}};
    for (size_t i = 0; i < TD_COUNT(steps); i++)
        if (strcmp(steps[i].phase, phase) == 0)
            return steps[i].step;
    return TD_STEP_NONE;
}

/* Seconds since 1970 to the scale of log prefixes: days are counted from a January. */
static double prefix_time(double t)
{
    return isfinite(t) && t > 0 ? fmod(t, 365.2425 * SECONDS_A_DAY) : -1;
}

static const char *keep(struct td_explain *x, const char *s)
{
    return td_explain_keep(x, s, strlen(s), TD_ERROR_WHY_MAX);
}

static void keep_failure(struct td_explain *x, const json_t *obj, const char *p,
                         size_t n)
{
    void *list = x->failures;
    enum td_status s = td_explain_grow(&list, &x->cap_failures, x->nfailures,
                                       sizeof(*x->failures), KEEP_FAILURES);
    x->failures = list;
    if (s != TD_OK)
        return;
    json_int_t rank = -1;
    if (json_is_integer(json_object_get(obj, "rank")))
        rank = json_integer_value(json_object_get(obj, "rank"));
    x->failures[x->nfailures++] = (struct td_failure){
        .code = keep(x, field(obj, "code")),
        .what = keep(x, field(obj, "what")),
        .why = keep(x, field(obj, "why")),
        .fix = keep(x, field(obj, "fix")),
        .host = keep(x, field(obj, "host")),
        .phase = keep(x, field(obj, "phase")),
        .text = td_explain_keep(x, p, n, TD_TEXT_MAX),
        .rank = rank >= 0 && rank < 1 << 20 ? (int)rank : -1,
        .time = json_number_value(json_object_get(obj, "t")),
        .source = (uint32_t)(x->nsources - 1),
        .order = x->order,
        .line = x->sources[x->nsources - 1].lines,
    };
}

/* Event logs are appended to. A process that serves has got over its earlier failures,
 * and a command that begins again leaves those of the start before behind. */
static void forget_failures(struct td_explain *x, const struct td_line *line,
                            const char *phase)
{
    uint32_t source = (uint32_t)(x->nsources - 1);
    bool serves = strcmp(phase, "serve") == 0;
    bool begins =
        line->rank < 0 && (strcmp(phase, "check") == 0 || strcmp(phase, "plan") == 0);
    size_t n = 0;
    for (size_t i = 0; i < x->nfailures; i++) {
        const struct td_failure *f = &x->failures[i];
        bool mine = f->source == source && strcmp(f->host, line->host) == 0;
        bool gone = mine && (begins || (serves && f->rank == line->rank));
        if (!gone)
            x->failures[n++] = *f;
    }
    x->nfailures = n;
}

bool td_events_line(struct td_explain *x, const char *p, size_t n)
{
    json_t *obj = NULL;
    if (n < 6 || memcmp(p, "{\"t\":", 5) != 0 || !holds(p, n, "\"event\":"))
        return false;
    bool error = holds(p, n, "\"code\":"), phase = holds(p, n, "\"phase\"");
    if (!error && !phase)
        return true;
    if (n > TD_LINE_MAX || td_json_parse(p, n, "event", &obj, NULL) != TD_OK)
        return true;
    struct td_line line = {
        .text = field(obj, "event"),
        .time = prefix_time(json_number_value(json_object_get(obj, "t"))),
        .pid = -1,
        .rank = -1};
    line.len = strlen(line.text);
    json_t *rank = json_object_get(obj, "rank");
    if (json_is_integer(rank) && json_integer_value(rank) >= 0 &&
        json_integer_value(rank) < 1 << 20)
        line.rank = (int)json_integer_value(rank);
    strncpy(line.host, field(obj, "host"), sizeof(line.host) - 1);
    strncpy(line.role, line.rank < 0 ? "tandem" : "tandem-rank", sizeof(line.role) - 1);
    line.pid = line.rank;
    (void)td_scan_note(x, &line, step_of(field(obj, "phase")));
    if (*field(obj, "code"))
        keep_failure(x, obj, p, n);
    else if (strcmp(field(obj, "event"), "phase") == 0)
        forget_failures(x, &line, field(obj, "phase"));
    json_decref(obj);
    return true;
}

/* Codes that tell of somebody else's failure, or of a wish. */
static int rank_of_code(const char *code)
{
    static const char *const second_hand[] = {"cancelled", "peer-lost", "timeout"};
    for (int i = 0; i < (int)TD_COUNT(second_hand); i++)
        if (strcmp(code, second_hand[i]) == 0)
            return i;
    return (int)TD_COUNT(second_hand);
}

const struct td_failure *td_events_first(const struct td_explain *x, bool *certain)
{
    const struct td_failure *best = NULL;
    for (size_t i = 0; i < x->nfailures; i++) {
        const struct td_failure *f = &x->failures[i];
        int mine = rank_of_code(f->code);
        int theirs = best ? rank_of_code(best->code) : -1;
        if (mine > theirs || (mine == theirs && f->time < best->time))
            best = f;
    }
    *certain = best && rank_of_code(best->code) == 3;
    if (best && strcmp(best->code, "cancelled") == 0)
        return NULL;
    return best;
}

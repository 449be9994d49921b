/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines to hits, streams and facts.
 *
 * Every line goes through the literal pass as raw bytes. Only lines that hold a literal,
 * and in files of ordinary size all others too, are cleaned and freed of their prefixes.
 * What is kept of a rule is bounded for each file; past that its lines are only counted,
 * so that a log of a billion equal lines costs one pass and no memory.
 */
#include "explain/explain_int.h"

#include "base/limits.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BIG_SOURCE =
        48 << 20, /* bytes, from where lines without a literal are not parsed */
    TRIES_OF_A_RULE =
        16384,      /* patterns run for a rule and source before thinning out */
    JOIN_LINES = 9, /* lines that a record can have after its first */
    JOIN_LOOK = 40, /* lines looked at to find them */
    JOIN_MAX = 8192,
    HINT = 30,               /* weight below which a rule is a mere hint */
    SLICE = TD_LINE_MAX - 1, /* a longer line is looked at in pieces */
    OVERLAP = 256
};

enum td_status td_explain_grow(void **p, size_t *cap, size_t count, size_t size,
                               size_t max)
{
    if (count < *cap)
        return TD_OK;
    if (count >= max)
        return TD_E_LIMIT;
    size_t want = *cap ? *cap * 2 : 64;
    want = TD_MIN(want, max);
    void *q = td_realloc(*p, want, size);
    if (!q)
        return TD_E_NOMEM;
    *p = q;
    *cap = want;
    return TD_OK;
}

const char *td_explain_keep(struct td_explain *x, const char *p, size_t n, size_t max)
{
    if (n == 0)
        return "";
    const char *s = td_arena_strndup(&x->arena, p, TD_MIN(n, max));
    return s ? s : "";
}

struct td_source *td_scan_begin(struct td_explain *x, const char *name)
{
    void *p = x->sources;
    enum td_status s = td_explain_grow(&p, &x->cap_sources, x->nsources,
                                       sizeof(*x->sources), TD_MAX_EXPLAIN_SOURCES);
    x->sources = p;
    if (s != TD_OK)
        return NULL;
    struct td_source *src = &x->sources[x->nsources++];
    *src = (struct td_source){
        .name = td_explain_keep(x, name, strlen(name), TD_MAX_PATH), .host = ""};
    for (size_t r = 0; r < td_rule_count(); r++)
        x->rule_counts[r].tried = x->rule_counts[r].kept = 0;
    x->last_stream = UINT32_MAX;
    return src;
}

/* Past the ceiling texts are dropped; only a lack of memory is a failure. */
static enum td_status memory(const struct td_explain *x)
{
    return x->arena.status == TD_E_NOMEM ? TD_E_NOMEM : TD_OK;
}

static struct td_source *current(struct td_explain *x)
{
    return &x->sources[x->nsources - 1];
}

static bool same_process(const struct td_stream *s, const struct td_line *line)
{
    return s->pid == line->pid && strcmp(s->role, line->role) == 0 &&
           strcmp(s->host, line->host) == 0;
}

/* The stream of a line; UINT32_MAX when there are too many. */
static uint32_t stream_of(struct td_explain *x, const struct td_line *line)
{
    uint32_t source = (uint32_t)(x->nsources - 1);
    if (x->last_stream != UINT32_MAX && same_process(&x->streams[x->last_stream], line))
        return x->last_stream;
    char key[TD_LINE_HOST_MAX + TD_LINE_ROLE_MAX + 48];
    int n = snprintf(key, sizeof(key), "%u/%s/%s/%ld", source, line->host, line->role,
                     line->pid);
    uint64_t at;
    if (td_map_get(&x->stream_of, key, (size_t)n, &at))
        return x->last_stream = (uint32_t)at;
    void *p = x->streams;
    enum td_status s = td_explain_grow(&p, &x->cap_streams, x->nstreams,
                                       sizeof(*x->streams), TD_MAX_EXPLAIN_STREAMS);
    x->streams = p;
    if (s != TD_OK)
        return UINT32_MAX;
    const char *kept = td_arena_strndup(&x->arena, key, (size_t)n);
    if (!kept || td_map_put(&x->stream_of, kept, (size_t)n, x->nstreams) != TD_OK)
        return UINT32_MAX;
    x->streams[x->nstreams] = (struct td_stream){
        .source = source,
        .host = td_explain_keep(x, line->host, strlen(line->host), TD_LINE_HOST_MAX),
        .role = td_explain_keep(x, line->role, strlen(line->role), TD_LINE_ROLE_MAX),
        .pid = line->pid,
        .rank = line->rank,
        .last_time = line->time};
    return x->last_stream = (uint32_t)x->nstreams++;
}

static void note_line(struct td_explain *x, uint32_t stream, const struct td_line *line)
{
    struct td_source *src = current(x);
    if (src->lines == 1)
        src->cut = line->len > 1 && (line->text[0] == ' ' || line->text[0] == '\t' ||
                                     strncmp(line->text, "File \"", 6) == 0 ||
                                     strncmp(line->text, "frame #", 7) == 0);
    src->has_head = src->has_head || strncmp(line->text, "Traceback (", 11) == 0;
    if (!*src->host && *line->host && !strchr(line->role, '_') &&
        strcmp(line->role, "raylet") != 0 && strncmp(line->role, "Ray", 3) != 0)
        src->host =
            td_explain_keep(x, line->host, strlen(line->host), TD_LINE_HOST_MAX);
    if (stream == UINT32_MAX)
        return;
    struct td_stream *s = &x->streams[stream];
    s->last_line = src->lines;
    if (line->rank >= 0)
        s->rank = line->rank;
    if (line->time >= 0)
        s->last_time = line->time;
    if (line->len > 0) {
        size_t n = TD_MIN(line->len, sizeof(s->last_text) - 1);
        memcpy(s->last_text, line->text, n);
        s->last_text[n] = 0;
    }
}

static void reach(struct td_explain *x, uint32_t stream, enum td_step step)
{
    struct td_source *src = current(x);
    if (step == TD_STEP_CONFIG || step > src->step)
        src->step = step;
    if (stream != UINT32_MAX && step > x->streams[stream].step)
        x->streams[stream].step = step;
}

uint32_t td_scan_note(struct td_explain *x, const struct td_line *line,
                      enum td_step step)
{
    uint32_t stream = stream_of(x, line);
    note_line(x, stream, line);
    if (step != TD_STEP_NONE)
        reach(x, stream, step);
    return stream;
}

/* Appends the lines that follow, as far as they belong to the same process. */
static size_t join(const struct td_line *line, const char *rest, size_t rest_n,
                   char *out, size_t size)
{
    size_t k = TD_MIN(line->len, size - 1);
    int taken = 0;
    memcpy(out, line->text, k);
    for (int i = 0; i < JOIN_LOOK && taken < JOIN_LINES && rest_n > 0; i++) {
        const char *nl = memchr(rest, '\n', rest_n);
        size_t n = nl ? (size_t)(nl - rest) : rest_n;
        char clean[1024];
        struct td_line next;
        size_t m =
            td_line_clean(rest, TD_MIN(n, sizeof(clean) - 1), clean, sizeof(clean));
        td_line_parse(clean, m, &next);
        rest += TD_MIN(n + 1, rest_n);
        rest_n -= TD_MIN(n + 1, rest_n);
        if (next.pid >= 0 && line->pid >= 0 && next.pid != line->pid)
            continue;
        if (k + next.len + 2 > size)
            break;
        out[k++] = '\n';
        memcpy(out + k, next.text, next.len);
        k += next.len;
        taken++;
    }
    out[k] = 0;
    return k;
}

static enum td_status keep_hit(struct td_explain *x, size_t rule, uint32_t stream,
                               const struct td_line *line,
                               const struct td_capture caps[TD_MAX_CAPTURES])
{
    void *p = x->hits;
    enum td_status s = td_explain_grow(&p, &x->cap_hits, x->nhits, sizeof(*x->hits),
                                       TD_MAX_EXPLAIN_HITS);
    x->hits = p;
    if (s != TD_OK)
        return s == TD_E_LIMIT ? TD_OK : s;
    struct td_source *src = current(x);
    struct td_hit *h = &x->hits[x->nhits++];
    *h = (struct td_hit){
        .rule = (uint16_t)rule,
        .source = (uint32_t)(x->nsources - 1),
        .stream = stream,
        .order = x->order,
        .line = src->lines,
        .time = line->time,
        .step = src->step,
        .text = td_explain_keep(x, line->text, line->len, TD_TEXT_MAX),
        .host = td_explain_keep(x, line->host, strlen(line->host), TD_LINE_HOST_MAX),
        .rank = line->rank};
    if (stream != UINT32_MAX && h->rank < 0)
        h->rank = x->streams[stream].rank;
    for (int i = 0; i < TD_MAX_CAPTURES; i++)
        h->caps[i] =
            td_explain_keep(x, caps[i].p, caps[i].p ? caps[i].n : 0, TD_CAPTURE_MAX);
    return memory(x);
}

/* The captures of a fact rule, under the names in its `says`. */
static enum td_status keep_facts(struct td_explain *x, const struct td_rule *rule,
                                 const struct td_capture caps[TD_MAX_CAPTURES])
{
    const char *p = rule->says ? rule->says : "";
    for (int i = 0; i < TD_MAX_CAPTURES && *p; i++) {
        size_t n = strcspn(p, " ");
        if (caps[i].p) {
            enum td_status s = td_fact_add(x, p, n, caps[i].p, caps[i].n);
            if (s != TD_OK)
                return s;
        }
        p += n;
        p += strspn(p, " ");
    }
    return TD_OK;
}

/* Whether a rule whose literal was found is worth running once more on this source. */
static bool worth_trying(struct td_rule_count *c, const struct td_rule *rule)
{
    uint32_t keep = rule->role == TD_ROLE_FACT ? TD_KEEP_FACTS : TD_KEEP_HITS;
    if (rule->role == TD_ROLE_PHASE)
        return true;
    if (c->kept >= keep) {
        c->seen++;
        return false;
    }
    c->tried++;
    return c->tried < TRIES_OF_A_RULE || c->tried % 64 == 0;
}

struct context {
    const char *rest;
    size_t rest_n;
    uint32_t stream;
    bool joined; /* `record` is filled */
    size_t record_n;
    char record[JOIN_MAX];
};

static bool run_rule(struct td_explain *x, size_t r, const struct td_line *line,
                     struct context *c, struct td_capture caps[TD_MAX_CAPTURES])
{
    if (!td_matcher_is_joined(x->matcher, r))
        return td_matcher_run(x->matcher, r, line->text, line->len, caps);
    if (!c->joined)
        c->record_n = join(line, c->rest, c->rest_n, c->record, sizeof(c->record));
    c->joined = true;
    return td_matcher_run(x->matcher, r, c->record, c->record_n, caps);
}

/* A line of good starts hides what its words would mean elsewhere; facts, steps and mere
 * hints are kept. */
static bool is_hidden(const struct td_rule *rule)
{
    return rule->role == TD_ROLE_CAUSE || rule->role == TD_ROLE_EFFECT ||
           (rule->role == TD_ROLE_EITHER && rule->weight >= HINT);
}

static enum td_status keep_match(struct td_explain *x, size_t r,
                                 const struct td_line *line, uint32_t stream,
                                 const struct td_capture caps[TD_MAX_CAPTURES])
{
    const struct td_rule *rule = td_rule_at(r);
    struct td_rule_count *n = &x->rule_counts[r];
    n->seen++;
    if (rule->role == TD_ROLE_PHASE)
        reach(x, stream, (enum td_step)rule->weight);
    if (rule->role == TD_ROLE_PHASE && rule->says && stream != UINT32_MAX &&
        caps[0].n < 7)
        x->streams[stream].rank = (int)strtol(caps[0].p, NULL, 10);
    if (rule->role == TD_ROLE_FACT) {
        n->kept++;
        return keep_facts(x, rule, caps);
    }
    if (n->kept >= TD_KEEP_HITS)
        return TD_OK;
    n->kept++;
    return keep_hit(x, r, stream, line, caps);
}

static enum td_status apply_rules(struct td_explain *x, const uint16_t *rules,
                                  size_t count, const struct td_line *line,
                                  struct context *c)
{
    struct td_capture caps[TD_MAX_CAPTURES];
    enum td_status s = TD_OK;
    bool noise = false;
    for (size_t i = 0; i < count && s == TD_OK; i++) {
        if (td_rule_at(rules[i])->role != TD_ROLE_NOISE)
            continue;
        if (!run_rule(x, rules[i], line, c, caps))
            continue;
        noise = true;
        s = keep_match(x, rules[i], line, c->stream, caps);
    }
    for (size_t i = 0; i < count && s == TD_OK; i++) {
        const struct td_rule *rule = td_rule_at(rules[i]);
        if (rule->role == TD_ROLE_NOISE || (noise && is_hidden(rule)) ||
            !worth_trying(&x->rule_counts[rules[i]], rule))
            continue;
        if (run_rule(x, rules[i], line, c, caps))
            s = keep_match(x, rules[i], line, c->stream, caps);
    }
    return s;
}

/* In a big source: whether all rules of a line have been kept as often as they are kept;
 * then they are only counted, by their literals. */
static bool only_counts(struct td_explain *x, const uint16_t *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct td_rule *rule = td_rule_at(rules[i]);
        uint32_t keep = rule->role == TD_ROLE_FACT ? TD_KEEP_FACTS : TD_KEEP_HITS;
        if (x->rule_counts[rules[i]].kept < keep &&
            x->rule_counts[rules[i]].tried < TRIES_OF_A_RULE)
            return false;
        if (rule->role == TD_ROLE_PHASE && rule->re)
            return false;
    }
    for (size_t i = 0; i < count; i++) {
        const struct td_rule *rule = td_rule_at(rules[i]);
        x->rule_counts[rules[i]].seen += x->rule_counts[rules[i]].kept > 0;
        if (rule->role == TD_ROLE_PHASE)
            reach(x, UINT32_MAX, (enum td_step)rule->weight);
    }
    return true;
}

/* A piece of a line between carriage returns. */
static enum td_status one_piece(struct td_explain *x, const char *p, size_t n,
                                const char *rest, size_t rest_n)
{
    char clean[TD_LINE_MAX];
    uint16_t rules[TD_MAX_LINE_RULES];
    struct td_line line;
    size_t count = td_matcher_scan(x->matcher, p, n, rules);
    if (current(x)->big && only_counts(x, rules, count))
        return TD_OK;
    size_t m = td_line_clean(p, n, clean, sizeof(clean));
    td_line_parse(clean, m, &line);
    uint32_t stream = stream_of(x, &line);
    note_line(x, stream, &line);
    if (count == 0)
        return memory(x);
    struct context c;
    c.rest = rest;
    c.rest_n = rest_n;
    c.stream = stream;
    c.joined = false;
    return apply_rules(x, rules, count, &line, &c);
}

enum td_status td_scan_line(struct td_explain *x, const char *p, size_t n,
                            const char *rest, size_t rest_n)
{
    struct td_source *src = current(x);
    src->lines++;
    src->bytes += n + 1;
    src->big = src->big || src->bytes > BIG_SOURCE;
    x->order++;
    if (n > 10 && *p == '{' && td_events_line(x, p, n))
        return memory(x);
    enum td_status s = TD_OK;
    while (n > 0 && s == TD_OK) {
        const char *cr = memchr(p, '\r', n);
        size_t k = cr ? (size_t)(cr - p) : n, past = k + (cr != NULL);
        if (k > SLICE) { /* overlapping, so that no literal is cut */
            k = SLICE;
            past = SLICE - OVERLAP;
        }
        if (k > 0)
            s = one_piece(x, p, k, rest, rest_n);
        p += past;
        n -= past;
    }
    return s;
}

void td_scan_end(struct td_explain *x)
{
    struct td_source *src = current(x);
    if (*src->host)
        return;
    /* no line said it: the file's name without folders and ending */
    const char *base = strrchr(src->name, '/');
    base = base && base[1] ? base + 1 : src->name;
    size_t n = strcspn(base, ".");
    src->host = td_explain_keep(x, base, n ? n : strlen(base), TD_LINE_HOST_MAX);
}

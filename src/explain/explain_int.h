/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this room share. See explain.h for the flow.
 */
#ifndef TD_EXPLAIN_EXPLAIN_INT_H
#define TD_EXPLAIN_EXPLAIN_INT_H

#include "base/arena.h"
#include "base/map.h"
#include "explain/explain.h"
#include "explain/match.h"
#include "explain/prefix.h"
#include "explain/rules.h"

#include <stdint.h>

enum {
    TD_TEXT_MAX = 400,    /* bytes of a line that are kept as evidence */
    TD_CAPTURE_MAX = 200, /* bytes of a capture that are kept */
    TD_KEEP_HITS = 8,     /* hits of a rule that are kept for each source */
    TD_KEEP_FACTS = 64,   /* the same for facts */
    TD_MAX_CANDIDATES = 3
};

/* A file, or standard input. */
struct td_source {
    const char *name;
    const char *host; /* from the lines, or from the file's name; never NULL */
    uint64_t lines, bytes;
    enum td_step step; /* how far the start got by now */
    bool big;          /* too large to look at each line's prefix */
    bool has_head;     /* some traceback is there from its first line */
    bool cut;          /* begins inside a traceback or a record */
    bool unreadable;   /* could not be opened, or broke off; `note` says why */
    bool binary;
    bool late_failure; /* something failed after the start was ready */
    const char *note;
    double shift; /* seconds to add to reach the first source's clock */
};

/* A process as the prefixes tell it. */
struct td_stream {
    uint32_t source;
    const char *host, *role;
    long pid;
    int rank;
    enum td_step step;
    uint64_t last_line;
    double last_time; /* -1: none */
    char last_text[120];
};

/* A rule that matched a line. */
struct td_hit {
    uint16_t rule;
    uint32_t source, stream, order; /* order: of reading, over all sources */
    uint64_t line;
    double time; /* -1: not told */
    int weight;  /* after judging; 0: speaks for nothing */
    enum td_step step;
    const char *text;
    const char *caps[TD_MAX_CAPTURES]; /* "" when unset */
    const char *host;                  /* of the line, "" when not told */
    int rank;
};

/* A value that the logs gave away. */
struct td_fact {
    const char *name, *value;
    uint32_t source; /* where it was seen first */
};

/* A failure event of tandem's own log. */
struct td_failure {
    const char *code, *what, *why, *fix, *host, *phase, *text;
    int rank;
    double time;
    uint32_t source, order;
    uint64_t line;
};

struct td_candidate {
    const char *slug;
    const struct td_kind *kind; /* NULL for tandem's own codes */
    int weight;
    uint32_t hit; /* index of the deciding hit; unused for own failures */
    const struct td_failure *failure;
    enum td_grade grade;
};

struct td_verdict {
    enum td_grade grade;
    bool failed;  /* something in the files speaks of a failure */
    bool ready;   /* the last thing the start said is that it is ready */
    size_t count; /* candidates */
    struct td_candidate candidates[TD_MAX_CANDIDATES];
    int32_t unknown; /* hit of the first error that no rule knows, -1 */
};

struct td_rule_count {
    uint32_t seen, tried, kept; /* seen: over all sources; the others: in this one */
};

struct td_seen_file {
    uint64_t dev, ino;
};

struct td_explain {
    struct td_arena arena;
    struct td_seen_file *seen; /* [TD_MAX_EXPLAIN_SOURCES] */
    size_t nseen;
    struct td_matcher *matcher;
    struct td_source *sources;
    size_t nsources, cap_sources;
    struct td_stream *streams;
    size_t nstreams, cap_streams;
    struct td_map rule_of;   /* id -> index */
    struct td_map stream_of; /* "source/host/role/pid" -> index */
    uint32_t last_stream;
    struct td_hit *hits;
    size_t nhits, cap_hits;
    struct td_fact *facts;
    size_t nfacts, cap_facts;
    struct td_failure *failures;
    size_t nfailures, cap_failures;
    struct td_rule_count *rule_counts; /* one for each rule */
    uint32_t order;
    struct td_verdict verdict;
};

/* --- scan.c --- */

/* Begins a source; NULL when there are too many or memory is short. */
struct td_source *td_scan_begin(struct td_explain *x, const char *name);

/* One line (without its end) of the newest source. `rest` are the bytes after it that are
 * already in memory, for records of several lines. */
enum td_status td_scan_line(struct td_explain *x, const char *p, size_t n,
                            const char *rest, size_t rest_n);

void td_scan_end(struct td_explain *x);

/* Books a line of the newest source on its process, and how far the start got with it
 * (TD_STEP_NONE: no news). Returns the stream's index, UINT32_MAX past the ceiling. */
uint32_t td_scan_note(struct td_explain *x, const struct td_line *line,
                      enum td_step step);

/* A copy in the arena, at most max bytes; "" when memory is short. */
const char *td_explain_keep(struct td_explain *x, const char *p, size_t n, size_t max);

/* Grows an array of the struct to hold one more element, up to `max`. */
enum td_status td_explain_grow(void **p, size_t *cap, size_t count, size_t size,
                               size_t max);

/* --- events.c --- */

/* True when the line is an event of tandem's own log; it is then kept. */
bool td_events_line(struct td_explain *x, const char *p, size_t n);

/* The failure that counts, NULL when there is none; *certain tells how good it is. */
const struct td_failure *td_events_first(const struct td_explain *x, bool *certain);

/* --- facts.c --- */

/* Adds a value to a fact of the newest source, unless it is known. */
enum td_status td_fact_add(struct td_explain *x, const char *name, size_t name_n,
                           const char *value, size_t n);

/* The first value of a fact, or NULL. */
const char *td_fact_get(const struct td_explain *x, const char *name);

/* Calls back for each value; i counts from 0. NULL past the last. */
const struct td_fact *td_fact_at(const struct td_explain *x, const char *name,
                                 size_t i);

/* Whether an expression of `needs` holds (rules.h). hit may be NULL. */
bool td_needs_hold(const struct td_explain *x, const char *needs,
                   const struct td_hit *hit);

/* Whether any hit of the rule with this id was kept. */
bool td_rule_was_seen(const struct td_explain *x, const char *id);

/* Replaces $1..$6 (of hit, which may be NULL) and ${fact} in a sentence; a part in
 * [square brackets] is left out when one of its values is not known. */
void td_sentence(const struct td_explain *x, const struct td_hit *hit, const char *text,
                 struct td_buf *out);

/* Dotted IPv4 to a number; 0 when it is none. */
uint32_t td_ip_parse(const char *s);

/* --- report parts shared by text and JSON (report.c) --- */

/* The deciding hit of a candidate; NULL for tandem's own failures. */
const struct td_hit *td_report_hit(const struct td_explain *x,
                                   const struct td_candidate *c);
void td_report_cause(const struct td_explain *x, const struct td_candidate *c,
                     struct td_buf *out);
void td_report_fix(const struct td_explain *x, const struct td_candidate *c,
                   struct td_buf *out);
void td_report_missing(const struct td_explain *x, const struct td_candidate *c,
                       struct td_buf *out);
const char *td_report_host(const struct td_explain *x, const struct td_candidate *c);
int td_report_rank(const struct td_explain *x, const struct td_candidate *c);

/* What the timeline shows. */
struct td_moment {
    double time; /* on the first source's clock; -1: not told, behind its predecessor */
    uint32_t hit;
};

enum { TD_MOMENTS_MAX = 400 }; /* more are not shown */

/* All moments in their order, for td_free(), and the time of the first that has one. */
enum td_status td_moments(const struct td_explain *x, struct td_moment **out, size_t *n,
                          double *zero);
const char *td_moment_host(const struct td_explain *x, const struct td_hit *h);

/* How far a process got, in words: "during CUDA graph capture". */
const char *td_report_step(enum td_step step);

/* A source's name without the folders that all sources share. Borrowed. */
const char *td_report_file(const struct td_explain *x, uint32_t source);

/* known.c: how far each process got; what else would be needed. */
void td_report_known(const struct td_explain *x, struct td_buf *out);

/* "rank 1 on spark-2", or what a process without a rank calls itself. */
void td_report_process(const struct td_explain *x, const struct td_stream *s,
                       struct td_buf *out);
void td_report_needed(const struct td_explain *x, struct td_buf *out);

enum td_other {
    TD_OTHER_EVIDENCE, /* further lines that speak for the best candidate */
    TD_OTHER_FOLLOWED, /* lines that follow from the cause or report its effects */
    TD_OTHER_NOISE     /* well-known lines that are not the cause */
};

/* Indices of hits, one for each rule, in the order of reading. Returns their number. */
size_t td_report_others(const struct td_explain *x, enum td_other which, uint32_t *out,
                        size_t max);

#endif

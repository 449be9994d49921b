/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain: the first cause of a failed (or hanging) start, from the logs of all its hosts.
 *
 *     struct td_explain *x;
 *     td_explain_new(&x, err);
 *     td_explain_add_path(x, "head.log", err);       files, directories, "-"
 *     td_explain_judge(x, err);
 *     td_explain_text(x, &style, &out);              or td_explain_json(x, false, &out)
 *     td_explain_free(x);
 *
 * Works offline, with no model: a catalogue of rules (rules.h), facts about the machines
 * that the logs give away, and a few principles: the first failure counts, reports about
 * other processes' deaths do not, lines that good starts print as well never do.
 *
 *     bytes -> lines (reader) -> prefixes off (prefix) -> literals and patterns (match)
 *           -> hits, streams, facts (scan, facts, events) -> candidates (judge)
 *           -> text, JSON, timeline (report, json, timeline)
 *
 * Input is hostile: time is linear in its size, memory bounded by base/limits.h.
 */
#ifndef TD_EXPLAIN_EXPLAIN_H
#define TD_EXPLAIN_EXPLAIN_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct td_explain;

enum td_grade {
    TD_GRADE_NONE, /* the cause is not in these files */
    TD_GRADE_POSSIBLE,
    TD_GRADE_LIKELY,
    TD_GRADE_CERTAIN
};

/* How text is laid out. */
struct td_explain_style {
    bool color;
    int width; /* columns; 0: no wrapping */
};

enum td_status td_explain_new(struct td_explain **out, struct td_error *err);
void td_explain_free(struct td_explain *x);

/* Forgets what was read, keeps the compiled rules: for the next set of logs. */
void td_explain_clear(struct td_explain *x);

/* Reads a file (plain, gzip or zstd), every file below a directory, or standard input
 * ("-"). Errors: TD_E_NOT_FOUND, TD_E_IO, TD_E_NOMEM; a file inside a directory that
 * cannot be read is noted in the report instead. */
enum td_status td_explain_add_path(struct td_explain *x, const char *path,
                                   struct td_error *err);

/* Reads a log from memory. `name` is what evidence lines call it. */
enum td_status td_explain_add_bytes(struct td_explain *x, const char *name,
                                    const void *p, size_t n, struct td_error *err);

/* Weighs everything read so far. Call once, before the functions below. */
enum td_status td_explain_judge(struct td_explain *x, struct td_error *err);

enum td_grade td_explain_grade(const struct td_explain *x);
const char *td_grade_name(enum td_grade grade);

/* The best candidate's slug (see td_kind_sets) or event code, NULL when nothing in the
 * files speaks of a failure. Borrowed from x. */
const char *td_explain_kind(const struct td_explain *x);

/* The i-th candidate's slug, best first, or NULL past the last. */
const char *td_explain_candidate(const struct td_explain *x, size_t i);

/* Append the report, its machine form (`all`: with the timeline), the timeline of all
 * hosts. */
enum td_status td_explain_text(const struct td_explain *x,
                               const struct td_explain_style *style,
                               struct td_buf *out);
enum td_status td_explain_json(const struct td_explain *x, bool all,
                               struct td_buf *out);
enum td_status td_explain_timeline(const struct td_explain *x,
                                   const struct td_explain_style *style,
                                   struct td_buf *out);

#endif

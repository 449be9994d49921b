/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds rules in lines: one pass with all literals at once (Aho-Corasick, caseless), then
 * the patterns of the few rules whose literal was there, with match limits.
 */
#ifndef TD_EXPLAIN_MATCH_H
#define TD_EXPLAIN_MATCH_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_matcher;

enum { TD_MAX_CAPTURES = 6, TD_MAX_LINE_RULES = 64 };

/* A capture: bytes of the text given to td_matcher_run(); p is NULL when unset. */
struct td_capture {
    const char *p;
    size_t n;
};

enum td_status td_matcher_new(struct td_matcher **out, struct td_error *err);
void td_matcher_free(struct td_matcher *m);

/* Rules whose literal is in the line: their indices, ascending and distinct, at most
 * TD_MAX_LINE_RULES of them. */
size_t td_matcher_scan(struct td_matcher *m, const char *line, size_t n,
                       uint16_t out[TD_MAX_LINE_RULES]);

/* Whether a rule's pattern needs the lines that follow as well. */
bool td_matcher_is_joined(const struct td_matcher *m, size_t rule);

/* Runs a rule's pattern. Patterns are compiled when first needed; one that runs into the
 * match limits does not match. */
bool td_matcher_run(struct td_matcher *m, size_t rule, const char *text, size_t n,
                    struct td_capture caps[TD_MAX_CAPTURES]);

/* Compiles every pattern; an error names the first bad rule. For tests. */
enum td_status td_matcher_check(struct td_matcher *m, struct td_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenization: text is cut into the pieces that byte pair encoding works on.
 *
 * Stages follow each other, each cutting the pieces of the one before. A stage is a
 * pattern: its matches are pieces, and what lies between two matches is one. A pattern
 * sees its piece only, not the text around it.
 */
#ifndef TD_TEXT_PRETOK_H
#define TD_TEXT_PRETOK_H

#include "base/limits.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PCRE2's types, which only pretok.c needs to see. */
struct pcre2_real_general_context_8;
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

struct td_pretok {
    struct pcre2_real_general_context_8 *memory;
    struct pcre2_real_code_8 *stages[TD_MAX_PRETOKENIZERS];
    bool jit[TD_MAX_PRETOKENIZERS];
    size_t n;
};

void td_pretok_init(struct td_pretok *p);
void td_pretok_release(struct td_pretok *p);

/* Adds a stage. The pattern is in the dialect of tokenizer.json (pattern.h), or literal
 * text. `where` begins error texts. Errors: TD_E_TOKENIZER (not translated, not valid,
 * matches nothing at all somewhere), TD_E_LIMIT (too many stages), TD_E_NOMEM. */
enum td_status td_pretok_add(struct td_pretok *p, const char *pattern, size_t n,
                             bool literal, const char *where, struct td_error *err);

/* What one thread needs to cut: made once for a text, used for any number of calls. */
struct td_pretok_work {
    struct pcre2_real_match_data_8 *data[TD_MAX_PRETOKENIZERS];
    struct pcre2_real_match_context_8 *match;
    int64_t deadline_ns;
    unsigned calls;
};

/* n: bytes of the text. Errors: TD_E_NOMEM. Release also after a failure. */
enum td_status td_pretok_work_init(const struct td_pretok *p, size_t n,
                                   struct td_pretok_work *w);
void td_pretok_work_release(struct td_pretok_work *w);

/* Gets each piece in order; another status than TD_OK stops the cutting. */
typedef enum td_status (*td_piece_fn)(void *ctx, const char *piece, size_t n);

/* Cuts n bytes of valid UTF-8. Errors: what fn returns; TD_E_LIMIT when a pattern takes
 * too many steps or too long; TD_E_NOMEM. */
enum td_status td_pretok_cut(const struct td_pretok *p, struct td_pretok_work *w,
                             const char *text, size_t n, td_piece_fn fn, void *ctx,
                             struct td_error *err);

#endif

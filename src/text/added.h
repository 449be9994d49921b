/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Added tokens: texts such as <|im_start|> that are cut out before anything else.
 *
 * A set finds the leftmost of its tokens, the longest of those that begin there, and so
 * on behind it. The rules are those of the `tokenizers` package: a match that does not
 * count (special tokens not wanted, not a single word) still hides what it covers; the
 * white space that a token strips becomes part of the token.
 */
#ifndef TD_TEXT_ADDED_H
#define TD_TEXT_ADDED_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_added_token {
    const char *text; /* borrowed */
    size_t len;
    int32_t id;
    bool special, single_word, lstrip, rstrip;
};

struct td_added {
    struct td_added_token *tokens; /* after td_added_finish() in the order of bytes */
    size_t n, cap;
    uint32_t first[8]; /* a bit for each byte that begins a token */
};

void td_added_init(struct td_added *a);
void td_added_release(struct td_added *a);

/* Adds a token; text must live as long as the set. Errors: TD_E_NOMEM. */
enum td_status td_added_put(struct td_added *a, const struct td_added_token *token);

/* Makes the set ready. False when two tokens have the same text. */
bool td_added_finish(struct td_added *a);

/* Gets the stretches of a text in order: an added token (its id), or text (-1). */
typedef enum td_status (*td_stretch_fn)(void *ctx, int32_t id, const char *text,
                                        size_t n);

/* Cuts n bytes of valid UTF-8; `special`: special tokens count. Returns the first status
 * of fn that is not TD_OK. */
enum td_status td_added_cut(const struct td_added *a, const char *text, size_t n,
                            bool special, td_stretch_fn fn, void *ctx);

#endif

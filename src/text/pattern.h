/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizer patterns: translated from the dialect of tokenizer.json for PCRE2.
 *
 * The `tokenizers` package runs its patterns on Oniguruma, whose syntax and character
 * classes differ from PCRE2's in places. The translation takes the syntax that patterns
 * of byte-level tokenizers use, spells each class so that it has the same members (those
 * of Unicode 16) under both, and refuses the rest by name, since a pattern that means
 * something else would give other ids without a word.
 *
 * Taken: literals; \r \n \t \f \v \uHHHH \x{H} and escaped punctuation; . | and groups
 * (), (?:), (?i:) (literals only inside), (?= (?! (?<= (?<!; * + ? {n,m}, also lazy, and
 * possessive but for {n,m}; [...] and [^...] without nesting and &&; \s \S \d \p{..} and
 * \P{..} with general categories.
 */
#ifndef TD_TEXT_PATTERN_H
#define TD_TEXT_PATTERN_H

#include "base/buf.h"
#include "base/status.h"

#include <stddef.h>

/* Appends the PCRE2 form of n bytes of valid UTF-8. Errors, naming the construct and its
 * place after `where`: TD_E_TOKENIZER, TD_E_LIMIT, TD_E_NOMEM. */
enum td_status td_pattern_translate(const char *pattern, size_t n, const char *where,
                                    struct td_buf *out, struct td_error *err);

/* Appends the PCRE2 form of literal text. Errors: TD_E_LIMIT, TD_E_NOMEM. */
enum td_status td_pattern_quote(const char *text, size_t n, struct td_buf *out);

#endif

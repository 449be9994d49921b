/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8: validation and character boundaries (RFC 3629: no surrogates, no overlong
 * forms, nothing above U+10FFFF).
 */
#ifndef TD_BASE_UTF8_H
#define TD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length in bytes (1 to 4) of the valid character at s, 0 when the bytes are invalid or
 * the character is cut at n. */
size_t td_utf8_len(const char *s, size_t n);

/* True when the bytes at s are a proper beginning of a character that needs more than
 * the n bytes there (n is 1 to 3). */
bool td_utf8_is_cut(const char *s, size_t n);

/* How many bytes at s (n is at least 1, td_utf8_len() gave 0) one U+FFFD stands for in a
 * lossy decode: the longest beginning of a character, or else one byte (Unicode's
 * "maximal subpart", which Rust's and Python's lossy decoders follow). */
size_t td_utf8_bad(const char *s, size_t n);

bool td_utf8_valid(const char *s, size_t n);

#endif

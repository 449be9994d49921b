/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable byte buffer with a maximum.
 *
 *     struct td_buf b;
 *     td_buf_init(&b, 1 * TD_MIB);
 *     td_buf_addf(&b, "%d tokens", n);
 *     if (b.status != TD_OK) ...            one check after many additions
 *     td_buf_release(&b);
 *
 * `p` is always followed by a zero byte (and is "" while empty), so it can be read as a
 * string. After the first failure (memory, or more than `max` bytes) the contents stay
 * as they were, later additions do nothing, and `status` keeps the reason.
 */
#ifndef TD_BASE_BUF_H
#define TD_BASE_BUF_H

#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct td_buf {
    char *p;
    size_t len; /* bytes in use, without the final zero */
    size_t cap; /* bytes allocated */
    size_t max; /* len never exceeds this */
    enum td_status status;
};

/* An empty buffer that owns nothing yet. max must be at least 1. */
void td_buf_init(struct td_buf *b, size_t max);

/* Frees the bytes; the buffer is empty and usable again. */
void td_buf_release(struct td_buf *b);

/* Forgets contents and failure, keeps the memory. */
void td_buf_clear(struct td_buf *b);

/* Each returns the buffer's status. */
enum td_status td_buf_add(struct td_buf *b, const void *p, size_t n);
enum td_status td_buf_adds(struct td_buf *b, const char *s);
enum td_status td_buf_addc(struct td_buf *b, char c);
enum td_status td_buf_addf(struct td_buf *b, const char *fmt, ...) TD_PRINTF(2, 3);
enum td_status td_buf_vaddf(struct td_buf *b, const char *fmt, va_list ap)
    TD_PRINTF(2, 0);

/* Appends text as lines of at most 80 columns (a byte is taken for one) that break between
 * words. The cursor stands in column `indent`, where later lines begin as well. A newline
 * counts as a space, an empty line stays one. No newline at the end. */
enum td_status td_buf_add_wrapped(struct td_buf *b, const char *text, size_t indent);

/* Makes room for n more bytes, to be written at p + len by the caller, who then adds
 * them to len and sets the final zero with td_buf_set_len(). */
enum td_status td_buf_reserve(struct td_buf *b, size_t n);

/* Cuts to (or, after td_buf_reserve(), extends to) n bytes. */
void td_buf_set_len(struct td_buf *b, size_t n);

/* Drops the first n bytes. */
void td_buf_drop(struct td_buf *b, size_t n);

/* Hands the string over to the caller, who frees it with td_free(); the buffer is empty
 * afterwards. NULL when memory is short. */
char *td_buf_take(struct td_buf *b);

/* Copies a string into out (size bytes with the final zero), cut to what fits. */
void td_text_copy(char *out, size_t size, const char *s);

/* A number of bytes as people read it, in the largest unit that leaves 1 or more:
 * "41.6 MiB" with one decimal. Lives until the end of the expression it is used in:
 *     td_buf_adds(&b, td_size_text(bytes, 1).text); */
struct td_size_text {
    char text[32];
};
struct td_size_text td_size_text(int64_t bytes, int decimals);

#endif

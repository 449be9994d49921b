/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Incremental decoding. See detok.h.
 */
#include "text/detok.h"

#include "base/utf8.h"
#include "text/tokenizer.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

void td_detok_init(struct td_detok *d, const struct td_tokenizer *t, unsigned flags)
{
    *d = (struct td_detok){.tokenizer = t, .flags = flags};
}

/* Appends the complete characters of s and holds what is cut at its end. */
static void add_bytes(struct td_detok *d, const char *s, size_t n, struct td_buf *out)
{
    size_t done = 0; /* up to here it is in the buffer */
    for (size_t i = 0; i < n;) {
        size_t len = td_utf8_len(s + i, n - i);
        if (len) {
            i += len;
            continue;
        }
        td_buf_add(out, s + done, i - done);
        if (n - i < sizeof(d->hold) && td_utf8_is_cut(s + i, n - i)) {
            memcpy(d->hold, s + i, n - i);
            d->held = (unsigned)(n - i);
            return;
        }
        td_buf_adds(out, replacement);
        i += td_utf8_bad(s + i, n - i);
        done = i;
    }
    td_buf_add(out, s + done, n - done);
}

enum td_status td_detok_add(struct td_detok *d, int32_t id, struct td_buf *out)
{
    size_t n = 0;
    const char *s = td_tokenizer_token(d->tokenizer, id, &n);
    if (!s || ((d->flags & TD_DECODE_SKIP_SPECIAL) &&
               td_tokenizer_is_special(d->tokenizer, id)))
        return out->status;
    /* A held character takes bytes until it is complete or turns out broken. */
    while (d->held && n) {
        char c[sizeof(d->hold) + 1];
        unsigned held = d->held;
        memcpy(c, d->hold, held);
        c[held] = *s;
        d->held = 0;
        add_bytes(d, c, held + 1, out);
        s++;
        n--;
    }
    add_bytes(d, s, n, out);
    return out->status;
}

enum td_status td_detok_flush(struct td_detok *d, struct td_buf *out)
{
    if (d->held)
        td_buf_adds(out, replacement);
    d->held = 0;
    return out->status;
}

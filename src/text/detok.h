/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Incremental decoding: ids go in one by one, text comes out in whole characters.
 *
 *     struct td_detok d;
 *     td_detok_init(&d, tokenizer, TD_DECODE_SKIP_SPECIAL);
 *     for each id: td_detok_add(&d, id, &text);      appends what is complete
 *     td_detok_flush(&d, &text);                     a character that was cut: U+FFFD
 *
 * The text that comes out in all is what td_tokenizer_decode() gives for all the ids.
 * Nothing is allocated but by the buffer; nothing needs to be released.
 */
#ifndef TD_TEXT_DETOK_H
#define TD_TEXT_DETOK_H

#include "base/buf.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct td_tokenizer;

struct td_detok {
    const struct td_tokenizer *tokenizer;
    unsigned flags; /* TD_DECODE_... */
    unsigned held;  /* bytes of a character that is not complete */
    char hold[4];
};

void td_detok_init(struct td_detok *d, const struct td_tokenizer *t, unsigned flags);

/* Both return the buffer's status. */
enum td_status td_detok_add(struct td_detok *d, int32_t id, struct td_buf *out);
enum td_status td_detok_flush(struct td_detok *d, struct td_buf *out);

#endif

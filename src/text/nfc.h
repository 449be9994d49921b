/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unicode normalization form C, as far as the text needs it.
 *
 * Text is nearly always normalized already. A table with one byte for each code point
 * tells that by a look at each character; only the stretches that are not normalized go
 * through utf8proc. Time is linear, whatever the marks (utf8proc alone sorts long runs
 * of combining marks by exchange).
 *
 * The result is that of the `tokenizers` package, whose tables are of Unicode 9: marks
 * that came later do not move and do not combine.
 */
#ifndef TD_TEXT_NFC_H
#define TD_TEXT_NFC_H

#include "base/buf.h"
#include "base/status.h"

#include <stdint.h>

struct td_nfc {
    uint8_t *classes; /* by code point, see nfc.c; NULL: no normalization */
};

void td_nfc_init(struct td_nfc *nfc);
void td_nfc_release(struct td_nfc *nfc);

/* Makes the table. Errors: TD_E_NOMEM. */
enum td_status td_nfc_open(struct td_nfc *nfc);

/* Normalizes n bytes of valid UTF-8. *out, *out_len are the text itself when it is
 * normalized already (or nfc is not open), else the contents of scratch, which is
 * cleared first. Errors: TD_E_NOMEM, TD_E_LIMIT (more than scratch may hold). */
enum td_status td_nfc_apply(const struct td_nfc *nfc, const char *text, size_t n,
                            struct td_buf *scratch, const char **out, size_t *out_len);

#endif

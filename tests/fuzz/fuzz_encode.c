/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes through the tokenizer of models/lexicon. What is encoded decodes to valid
 * UTF-8; normalized text comes back as it was, under both flags.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/nfc.h"
#include "text/tokenizer.h"

static struct td_tokenizer *tokenizer;
static struct td_nfc nfc;

static void encode_decode(const char *text, size_t n, unsigned flags,
                          struct td_buf *out)
{
    struct td_ids ids;
    td_ids_init(&ids);
    td_buf_clear(out);
    if (td_tokenizer_encode(tokenizer, text, n, flags, &ids, NULL) != TD_OK ||
        td_tokenizer_decode(tokenizer, ids.p, ids.len, TD_DECODE_ALL, out) != TD_OK ||
        !td_utf8_valid(out->p, out->len))
        abort();
    td_ids_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_buf out, normal;
    const char *text = (const char *)data;
    if (!tokenizer && (td_tokenizer_load("models/lexicon", &tokenizer, NULL) != TD_OK ||
                       td_nfc_open(&nfc) != TD_OK))
        abort();
    td_buf_init(&out, 1 << 24);
    td_buf_init(&normal, 1 << 24);
    encode_decode(text, size, TD_ENCODE_SPECIAL, &out);
    if (td_utf8_valid(text, size)) {
        if (td_nfc_apply(&nfc, text, size, &normal, &text, &size) != TD_OK)
            abort();
        for (unsigned flags = TD_ENCODE_TEXT; flags <= TD_ENCODE_SPECIAL; flags++) {
            encode_decode(text, size, flags, &out);
            if (out.len != size || memcmp(out.p, text, size) != 0)
                abort();
        }
    }
    td_buf_release(&out);
    td_buf_release(&normal);
    return 0;
}

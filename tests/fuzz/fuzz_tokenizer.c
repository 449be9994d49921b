/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile tokenizer files: tokenizer.json, and behind a zero byte tokenizer_config.json.
 * Whatever is accepted must encode and decode.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

static const char text[] = "ab <s>it's 12\xC3\xA9\xCC\x81\xE4\xB8\xAD\n\xFF   x</s>";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *json = (const char *)data;
    const char *zero = size ? memchr(json, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - json) : size;
    struct td_tokenizer *t = NULL;
    struct td_error err;
    struct td_ids ids;
    struct td_buf out;
    td_error_init(&err);
    enum td_status s = td_tokenizer_parse(json, n, zero ? zero + 1 : NULL,
                                          zero ? size - n - 1 : 0, &t, &err);
    if (s != err.code)
        abort();
    if (s != TD_OK)
        return 0;
    td_ids_init(&ids);
    td_buf_init(&out, 1 << 20);
    s = td_tokenizer_encode(t, text, sizeof(text) - 1, TD_ENCODE_SPECIAL, &ids, &err);
    for (size_t i = 0; i < ids.len; i++)
        if ((size_t)ids.p[i] >= td_tokenizer_size(t))
            abort();
    if (s == TD_OK)
        (void)td_tokenizer_decode(t, ids.p, ids.len, TD_DECODE_SKIP_SPECIAL, &out);
    td_ids_release(&ids);
    td_buf_release(&out);
    td_tokenizer_free(t);
    return 0;
}

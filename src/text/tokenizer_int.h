/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tokenizer is made of; private to tokenizer.c and tokenizer_load.c.
 */
#ifndef TD_TEXT_TOKENIZER_INT_H
#define TD_TEXT_TOKENIZER_INT_H

#include "base/arena.h"
#include "base/map.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

/* An added token as the files describe it. */
struct td_added_entry {
    struct td_added_token token; /* its text is the content, in td_tokenizer.texts */
    bool normalized;             /* looked for in the normalized text */
};

struct td_tokenizer {
    struct td_vocab vocab;
    struct td_bpe bpe;
    struct td_nfc nfc;
    struct td_pretok pretok;
    struct td_added raw;        /* added tokens to look for in the text as it is, */
    struct td_added normalized; /* and in the normalized text */

    struct td_added_entry *added;
    size_t n_added, cap_added;
    struct td_map added_at; /* content to index in `added` */
    struct td_arena texts;

    int32_t eos; /* -1: none */
};

#endif

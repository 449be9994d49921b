/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vocabulary: what bytes each token id stands for, and which id some bytes have.
 *
 * tokenizer.json spells a token's bytes as characters: printable Latin-1 stands for
 * itself, the other bytes for U+0100 and on (the space is U+0120). Here only the bytes
 * are kept. An added token whose content has other characters stands for its own UTF-8.
 *
 * Filled once by the loader, read only afterwards.
 */
#ifndef TD_TEXT_VOCAB_H
#define TD_TEXT_VOCAB_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_TOKEN_DEFINED = 1, /* the id exists */
    TD_TOKEN_HIDDEN = 2,  /* not found by its bytes: no part of the BPE model */
    TD_TOKEN_SPECIAL = 4  /* left out when decoding without special tokens */
};

struct td_vocab_token {
    uint32_t at, len; /* its bytes in td_vocab.bytes */
    uint8_t flags;
};

struct td_vocab_slot {
    uint64_t key; /* up to 8 bytes: the bytes themselves; else their hash */
    uint32_t len; /* 0: free */
    int32_t id;
};

struct td_vocab {
    struct td_vocab_token *tokens; /* by id */
    size_t size, cap;              /* the highest defined id, plus one */
    struct td_buf bytes;
    struct td_vocab_slot *slots; /* finds model tokens by their bytes */
    size_t mask, used;           /* slots are a power of two, mask that less one */
    uint64_t seed;
    size_t longest; /* bytes of the longest model token */
};

void td_vocab_init(struct td_vocab *v);
void td_vocab_release(struct td_vocab *v);

/* Gives an id its bytes. A model token (no TD_TOKEN_HIDDEN) becomes findable. The caller
 * has checked that 0 <= id < TD_MAX_VOCAB. Errors: TD_E_NOMEM; TD_E_TOKENIZER when the
 * id, or for a model token the bytes, are taken; TD_E_LIMIT. */
enum td_status td_vocab_put(struct td_vocab *v, int32_t id, const char *bytes,
                            size_t len, uint8_t flags);

/* Adds flags to a defined id. */
void td_vocab_mark(struct td_vocab *v, int32_t id, uint8_t flags);

/* The model token with these bytes, -1 when there is none. */
int32_t td_vocab_find(const struct td_vocab *v, const char *bytes, size_t len);

/* The id's entry, NULL when it is not defined. */
const struct td_vocab_token *td_vocab_at(const struct td_vocab *v, int64_t id);

/* Appends the bytes that a spelled token stands for. False, with nothing appended, when
 * it has a character outside of the alphabet (or the buffer is full: see its status). */
bool td_vocab_unspell(const char *spelled, size_t len, struct td_buf *out);

#endif

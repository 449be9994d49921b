/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte pair encoding: one piece of text to token ids.
 *
 * A piece begins as its bytes; again and again the pair of neighbours with the lowest
 * rank is joined, the leftmost of equals, until no pair has one. Time is linear in short
 * pieces (bounded by a constant squared) and n log n in long ones.
 */
#ifndef TD_TEXT_BPE_H
#define TD_TEXT_BPE_H

#include "base/status.h"
#include "text/vocab.h"

#include <stdatomic.h>

/* A growable array of token ids. Zeroed is empty. */
struct td_ids {
    int32_t *p;
    size_t len, cap;
};

void td_ids_init(struct td_ids *ids);
void td_ids_release(struct td_ids *ids);

/* TD_OK or TD_E_NOMEM, then the array is as before. */
enum td_status td_ids_add(struct td_ids *ids, int32_t id);

struct td_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free */
    uint64_t goal; /* rank << 32 | id of the joined token */
};

struct td_bpe {
    const struct td_vocab *vocab;
    int32_t byte_id[256]; /* -1: the vocabulary lacks this byte, it is dropped */
    bool all_bytes;       /* no byte is lacking */
    bool ignore_merges;   /* a piece that is a token is that token, without merging */
    uint64_t *byte_goal;  /* [left << 8 | right]: the goal of a pair of bytes */
    struct td_merge *merges; /* the other pairs, hashed */
    size_t mask;
    /* By token id: does merging its bytes give the token itself? 0: not known yet.
     * Threads may find out at the same time; they all find the same. */
    _Atomic uint8_t *whole;
};

void td_bpe_init(struct td_bpe *b);
void td_bpe_release(struct td_bpe *b);

/* Binds to a filled vocabulary, which must outlive b, and makes room for n merges. */
enum td_status td_bpe_open(struct td_bpe *b, const struct td_vocab *vocab, size_t n);

/* Adds a merge; of equal pairs the last one counts. At most n (of td_bpe_open()). */
void td_bpe_put(struct td_bpe *b, int32_t left, int32_t right, uint32_t rank,
                int32_t joined);

/* Working memory for long pieces, kept between the pieces of one text. */
struct td_bpe_work {
    void *p;
    size_t cap;
};

/* Appends the ids of a piece of n bytes. Errors: TD_E_NOMEM. Any number of threads. */
enum td_status td_bpe_encode(const struct td_bpe *b, const char *piece, size_t n,
                             struct td_bpe_work *work, struct td_ids *out);

#endif

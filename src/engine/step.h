/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages with which rank 0 makes the other ranks do what it does: one for each
 * call of its engine, a few hundred bytes for a step that generates tokens.
 *
 * A message is a list of 32-bit words of this machine (all ranks have one architecture):
 * {words in all, kind, number of copies, {to, from} of each, what the kind needs}. The
 * copies of states are made before the kind's own work. Both sides remember which blocks
 * each slot's sequence has; only blocks behind those that are known travel.
 */
#ifndef TD_ENGINE_STEP_H
#define TD_ENGINE_STEP_H

#include "base/buf.h"
#include "model/model.h"

enum td_step_kind {
    TD_STEP_TICK,    /* nothing to do, but rank 0 is alive */
    TD_STEP_OPEN,    /* open an engine */
    TD_STEP_FORWARD, /* one forward, candidates of its rows to rank 0 */
    TD_STEP_COPIES,  /* only the copies */
    TD_STEP_LOGITS,  /* a row's logits to rank 0 */
    TD_STEP_CLOSE,   /* close the engine */
    TD_STEP_END,     /* no message follows */
    TD_STEP_KINDS
};

enum { TD_STEP_DEVICE = 16 /* bytes of a device's name, a multiple of 4 */ };

/* What rank 0's engine was asked for; the rest of the parameters is each rank's own. */
struct td_step_open {
    int32_t numerics, max_len, max_seqs, max_rows, max_out, vocab, serves;
    int64_t prefix_cache;
    char device[TD_STEP_DEVICE];
};

enum { TD_STEP_HEAD = 1024, TD_STEP_MAX = 1 << 26 }; /* bytes */

/* Blocks of each slot's sequence, as far as both sides know them. */
struct td_step_tables {
    int32_t n_slots, per_slot, n_blocks;
    int32_t *blocks; /* [n_slots][per_slot] */
    int32_t *known;  /* [n_slots] */
};

enum td_status td_step_tables_init(struct td_step_tables *t, int32_t n_slots,
                                   int32_t per_slot, int32_t n_blocks,
                                   struct td_error *err);
void td_step_tables_release(struct td_step_tables *t);

/* Writing: replaces what is in `out`, whose status tells of lack of memory. `copies` are
 * {to, from} pairs. */
void td_step_put(struct td_buf *out, enum td_step_kind kind, const int32_t *copies,
                 int32_t n_copies);
void td_step_put_open(struct td_buf *out, const struct td_step_open *open);
void td_step_put_logits(struct td_buf *out, int32_t row);
/* The pieces obey the rules of td_model_forward(). */
void td_step_put_forward(struct td_buf *out, struct td_step_tables *t,
                         const int32_t *copies, int32_t n_copies,
                         const struct td_seq_rows *seqs, int32_t n_seqs);

/* A message that was read. Lists lie in the message or in the tables. */
struct td_step {
    enum td_step_kind kind;
    const int32_t *copies; /* [n_copies][2] */
    int32_t n_copies;
    struct td_step_open open;
    int32_t row;
    int32_t n_seqs;
};

/* Bytes of a message whose first words are given; 0: not possible. */
size_t td_step_bytes(const int32_t *head);

/* Reads n bytes. seqs[max_seqs] receives the pieces of a forward; t may be NULL where
 * none can come. TD_E_PEER for a message that does not add up. */
enum td_status td_step_get(const int32_t *words, size_t bytes, struct td_step_tables *t,
                           struct td_seq_rows *seqs, int32_t max_seqs,
                           struct td_step *out, struct td_error *err);

#endif

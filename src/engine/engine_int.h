/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine as the files of this room see it: engine.c opens it, calls.c makes its calls,
 * world.c makes them on the other ranks. Private to the room.
 */
#ifndef TD_ENGINE_ENGINE_INT_H
#define TD_ENGINE_ENGINE_INT_H

#include "engine/engine.h"
#include "engine/step.h"

struct td_engine {
    struct td_engine_params params;
    struct td_plan plan;
    int64_t peak; /* of the process, until it was warm */
    struct td_dev *dev;
    struct td_comm *comm;
    struct td_model *model;
    struct td_cache cache;
    struct td_load_stats load;
    int32_t n_out; /* rows with logits of the last step */

    /* Logits on the host; not needed where device memory is the host's. */
    int64_t part;  /* of a rank's part of a row: the most that any rank has */
    float *row;    /* [part] of this rank */
    float *logits; /* rank 0: [max_out][ranks * part] */

    /* The best ids, NULL where rows are looked at themselves. */
    struct td_candidates *own;  /* [max_out] of this rank */
    struct td_candidates *all;  /* rank 0 of several: [ranks * max_out] */
    struct td_candidates *best; /* rank 0: [max_out] */

    /* With several ranks. */
    struct td_step_tables tables;
    struct td_buf message; /* rank 0 */
    struct td_buf copies;  /* rank 0: {to, from} that the others do not know of yet */
    struct td_seq_rows *seqs; /* the others: [max_seqs] of the present step */
};

/* calls.c: memory for the calls, once model and limits are settled. */
enum td_status td_engine_make_calls(struct td_engine *e, struct td_error *err);
void td_engine_free_calls(struct td_engine *e);

/* This rank's part of a step, alone: what all ranks do at the same time. */
enum td_status td_engine_step(struct td_engine *e, const struct td_seq_rows *seqs,
                              int32_t n_seqs, struct td_error *err);

/* This rank's part of a row of logits, on the host; *n of them. */
const float *td_engine_part(struct td_engine *e, int32_t row, int64_t *n);

/* Rank 0: tells the others to do something besides steps. */
enum td_status td_engine_tell(struct td_engine *e, enum td_step_kind kind,
                              struct td_error *err);

/* The other ranks: reads a message of rank 0 (e may be NULL before there is an engine),
 * and does what it says. */
enum td_status td_engine_read_step(struct td_engine *e, const int32_t *words,
                                   size_t bytes, struct td_step *out,
                                   struct td_error *err);
enum td_status td_engine_obey(struct td_engine *e, const struct td_step *step,
                              struct td_error *err);

#endif

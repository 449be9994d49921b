/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to load: pieces turned into reads.
 *
 * A run is one unit of work of a reader thread: a range of one file that holds one or
 * several parts, a part being rows of one piece. Runs are in file order.
 */
#ifndef TD_LOAD_LOAD_INT_H
#define TD_LOAD_LOAD_INT_H

#include "load/load.h"

enum td_run_kind {
    TD_RUN_SPAN, /* read in one go; rows of a part may lie apart and are moved together */
    TD_RUN_ROWS /* one part, whose rows are read one by one */
};

struct td_part {
    uint32_t piece;
    int64_t row0, n_rows;
    int64_t offset; /* in the file, of the first row's first byte */
    int64_t slice;  /* bytes of a row that are wanted */
    int64_t pitch;  /* bytes from row to row in the file, at least slice */
};

struct td_run {
    enum td_run_kind kind;
    int32_t shard;
    int64_t offset, bytes; /* from the first wanted byte to the last */
    size_t first, n_parts;
};

struct td_load_plan {
    struct td_part *parts;
    size_t n_parts, cap_parts;
    struct td_run *runs;
    size_t n_runs, cap_runs;
    int64_t payload; /* bytes wanted */
    int64_t staging; /* bytes of the largest run in memory */
};

/* Cuts the pieces into runs of at most chunk bytes in memory (more only where a single
 * row is longer). Errors as td_load(). Release only after TD_OK. */
enum td_status td_load_plan_make(const struct td_model_dir *dir,
                                 const struct td_piece *pieces, size_t n, int64_t chunk,
                                 struct td_load_plan *out, struct td_error *err);
void td_load_plan_release(struct td_load_plan *p);

/* Bytes of the lists of a plan for one piece, about: most pieces are one part. */
enum { TD_LOAD_PIECE_BYTES = sizeof(struct td_part) + 40 };

/* Bytes in memory of a part, and of the range it spans in the file. */
static inline int64_t td_part_bytes(const struct td_part *p)
{
    return p->n_rows * p->slice;
}
static inline int64_t td_part_span(const struct td_part *p)
{
    return (p->n_rows - 1) * p->pitch + p->slice;
}

#endif

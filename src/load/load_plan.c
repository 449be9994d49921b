/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces turned into reads. See load_int.h.
 *
 * Neighbours in a file are read together. Bytes between them that nobody wants are read
 * and dropped where that saves a system call for little: at most TINY_GAP at a time, and
 * in all at most 1/BUDGET_PART of what is wanted. The same budget lets small column
 * slices (scales) be read as whole rows; large ones are read row by row.
 */
#include "load/load_int.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

enum { TINY_GAP = 4096, SMALL_WASTE = 65536, BUDGET_PART = 50 };

/* A piece with its place in the files. */
struct placed {
    int32_t shard;
    uint32_t piece;
    int64_t offset, slice, pitch;
};

struct planner {
    struct td_load_plan *plan;
    int64_t chunk;
    int64_t budget; /* bytes that may still be read for nothing */
    bool open;      /* the last run may grow */
    const struct td_model_dir *dir;
    struct td_error *err;
};

static enum td_status outside(const struct td_model_dir *dir, const struct td_piece *p,
                              struct td_error *err)
{
    bool known = p->tensor >= 0 && p->tensor < dir->n_tensors;
    const struct td_tensor *t = known ? &dir->tensors[p->tensor] : NULL;
    return td_error_set(err, TD_E_TENSOR,
                        "%s: rows %" PRId64 "+%" PRId64 ", columns %" PRId64 "+%" PRId64
                        " of a view [%" PRId64 "][%" PRId64
                        "] do not lie in its %" PRId64 " elements",
                        t ? t->name : "(no tensor)", p->row0, p->n_rows, p->col0,
                        p->n_cols, p->rows, p->cols, t ? t->elements : 0);
}

static enum td_status place(const struct td_model_dir *dir, const struct td_piece *p,
                            uint32_t index, struct placed *out, struct td_error *err)
{
    if (p->tensor < 0 || p->tensor >= dir->n_tensors || p->rows < 0 || p->cols < 0)
        return outside(dir, p, err);
    const struct td_tensor *t = &dir->tensors[p->tensor];
    bool view =
        p->cols ? p->rows <= t->elements / p->cols && p->rows * p->cols == t->elements
                : t->elements == 0;
    if (!view || p->row0 < 0 || p->n_rows < 0 || p->row0 > p->rows - p->n_rows ||
        p->col0 < 0 || p->n_cols < 0 || p->col0 > p->cols - p->n_cols)
        return outside(dir, p, err);
    int bits = td_dtype_bits(t->dtype);
    if (bits % 8 != 0)
        return td_error_set(err, TD_E_TENSOR, "%s: parts of %s tensors cannot be read",
                            t->name, td_dtype_name(t->dtype));
    int64_t size = bits / 8;
    *out = (struct placed){
        .shard = t->shard,
        .piece = index,
        .offset = t->offset + (p->row0 * p->cols + p->col0) * size,
        .slice = p->n_cols * size,
        .pitch = p->cols * size,
    };
    return TD_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->piece > y->piece) - (x->piece < y->piece);
}

static enum td_status no_memory(struct planner *k)
{
    return td_error_set(k->err, TD_E_NOMEM, "no memory for the read plan of %s",
                        k->dir->path);
}

static struct td_run *last_run(struct planner *k)
{
    return &k->plan->runs[k->plan->n_runs - 1];
}

static enum td_status add_run(struct planner *k, enum td_run_kind kind, int32_t shard,
                              int64_t offset)
{
    struct td_load_plan *p = k->plan;
    if (p->n_runs == p->cap_runs) {
        size_t cap = p->cap_runs ? p->cap_runs * 2 : 256;
        struct td_run *v = td_realloc(p->runs, cap, sizeof(*v));
        if (!v)
            return no_memory(k);
        p->runs = v;
        p->cap_runs = cap;
    }
    p->runs[p->n_runs++] = (struct td_run){
        .kind = kind, .shard = shard, .offset = offset, .first = p->n_parts};
    k->open = kind == TD_RUN_SPAN;
    return TD_OK;
}

/* Appends a part to the last run. */
static enum td_status add_part(struct planner *k, struct td_part part)
{
    struct td_load_plan *p = k->plan;
    if (p->n_parts == p->cap_parts) {
        size_t cap = p->cap_parts ? p->cap_parts * 2 : 256;
        struct td_part *v = td_realloc(p->parts, cap, sizeof(*v));
        if (!v)
            return no_memory(k);
        p->parts = v;
        p->cap_parts = cap;
    }
    p->parts[p->n_parts++] = part;
    struct td_run *run = last_run(k);
    run->n_parts++;
    run->bytes = part.offset + td_part_span(&part) - run->offset;
    int64_t held = run->kind == TD_RUN_ROWS ? td_part_bytes(&part) : run->bytes;
    p->staging = TD_MAX(p->staging, held);
    return TD_OK;
}

/* Bytes that the last run can still take when it goes on at this place: 0 when the
 * place does not follow it closely. */
static int64_t room_at(struct planner *k, int32_t shard, int64_t offset)
{
    if (!k->open || last_run(k)->shard != shard)
        return 0;
    const struct td_run *run = last_run(k);
    int64_t gap = offset - (run->offset + run->bytes);
    if (gap < 0 || gap > TINY_GAP || gap > k->budget)
        return 0;
    return TD_MAX(k->chunk - (offset - run->offset), 0);
}

/* Rows of a piece as parts of spans: in the last run while it has room, then in new
 * ones. */
static enum td_status add_spans(struct planner *k, const struct placed *at,
                                int64_t n_rows)
{
    enum td_status s = TD_OK;
    for (int64_t row = 0; row < n_rows && s == TD_OK;) {
        int64_t offset = at->offset + row * at->pitch;
        int64_t room = room_at(k, at->shard, offset);
        if (room < at->slice) {
            s = add_run(k, TD_RUN_SPAN, at->shard, offset);
            room = TD_MAX(k->chunk, at->slice);
        } else {
            k->budget -= offset - (last_run(k)->offset + last_run(k)->bytes);
        }
        if (s != TD_OK)
            return s;
        int64_t fit = 1 + (room - at->slice) / at->pitch;
        struct td_part part = {.piece = at->piece,
                               .row0 = row,
                               .n_rows = TD_MIN(fit, n_rows - row),
                               .offset = offset,
                               .slice = at->slice,
                               .pitch = at->pitch};
        k->budget -= td_part_span(&part) - td_part_bytes(&part);
        s = add_part(k, part);
        row += part.n_rows;
    }
    return s;
}

static enum td_status add_rows(struct planner *k, const struct placed *at,
                               int64_t n_rows)
{
    /* in the file, so that what is mapped of it stays small too */
    int64_t fit = TD_MAX(k->chunk / at->pitch, 1);
    enum td_status s = TD_OK;
    for (int64_t row = 0; row < n_rows && s == TD_OK; row += fit) {
        int64_t offset = at->offset + row * at->pitch;
        s = add_run(k, TD_RUN_ROWS, at->shard, offset);
        if (s == TD_OK)
            s = add_part(k, (struct td_part){.piece = at->piece,
                                             .row0 = row,
                                             .n_rows = TD_MIN(fit, n_rows - row),
                                             .offset = offset,
                                             .slice = at->slice,
                                             .pitch = at->pitch});
    }
    return s;
}

static enum td_status add_piece(struct planner *k, const struct placed *at,
                                int64_t n_rows)
{
    int64_t waste = (n_rows - 1) * (at->pitch - at->slice);
    if (n_rows == 0 || at->slice == 0)
        return TD_OK;
    k->plan->payload += n_rows * at->slice;
    if (waste == 0 || (at->pitch - at->slice <= TINY_GAP && waste <= SMALL_WASTE &&
                       waste <= k->budget))
        return add_spans(k, at, n_rows);
    return add_rows(k, at, n_rows);
}

enum td_status td_load_plan_make(const struct td_model_dir *dir,
                                 const struct td_piece *pieces, size_t n, int64_t chunk,
                                 struct td_load_plan *out, struct td_error *err)
{
    struct td_load_plan plan = {0};
    struct planner k = {.plan = &plan, .chunk = chunk, .dir = dir, .err = err};
    enum td_status s = n > UINT32_MAX ? TD_E_LIMIT : TD_OK;
    struct placed *order = td_calloc(n, sizeof(*order));
    if (s != TD_OK)
        td_error_set(err, s, "%s: more than 2^32 pieces to load", dir->path);
    else if (!order)
        s = no_memory(&k);
    for (size_t i = 0; i < n && s == TD_OK; i++) {
        s = place(dir, &pieces[i], (uint32_t)i, &order[i], err);
        k.budget += s == TD_OK ? pieces[i].n_rows * order[i].slice / BUDGET_PART : 0;
    }
    if (s == TD_OK)
        qsort(order, n, sizeof(*order), by_place);
    for (size_t i = 0; i < n && s == TD_OK; i++)
        s = add_piece(&k, &order[i], pieces[order[i].piece].n_rows);
    td_free(order);
    if (s == TD_OK)
        *out = plan;
    else
        td_load_plan_release(&plan);
    return s;
}

void td_load_plan_release(struct td_load_plan *p)
{
    td_free(p->parts);
    td_free(p->runs);
    *p = (struct td_load_plan){0};
}

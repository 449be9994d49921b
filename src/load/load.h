/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading weights: the ranges that the caller names, nothing else, from several
 * threads, in file order, straight into a callback that packs them.
 *
 * A tensor is viewed as a matrix [rows][cols] in row-major order, whatever its shape: a
 * fused expert tensor [E, R, C] as [E * R][C], a vector as [1][n]. A piece is a
 * rectangle of that matrix. Pieces with all columns are read in large runs; of others only
 * the columns, so that the bytes read stay within 3 % of the bytes asked for: long rows
 * one by one, short ones copied out of the page cache through a mapped window, for there
 * a system call a row would cost several times the copy.
 *
 * Nothing stays mapped. Reading and packing overlap; memory beyond the caller's is the
 * staging buffers, bounded by `staging`. When the weights are large next to the host's
 * memory the page cache is told to forget what was read.
 */
#ifndef TD_LOAD_LOAD_H
#define TD_LOAD_LOAD_H

#include "base/status.h"
#include "load/model_dir.h"
#include "ops/ops.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_piece {
    int32_t tensor;       /* index into dir->tensors */
    int64_t rows, cols;   /* the view; rows * cols = the tensor's elements */
    int64_t row0, n_rows; /* the rectangle */
    int64_t col0, n_cols;
    int64_t dst_row; /* for the callback: where the piece's row 0 belongs */
    void *user;      /* for the callback */
};

/* Receives rows row0 .. row0 + n_rows of a piece (counted from the piece's first row),
 * contiguous, n_cols elements each, in the file's number format; `bytes` is aligned to
 * 4 bytes at least and valid during the call (with `dev`, for its pack() even longer). Calls come in any order and from several
 * threads at once, each row exactly once. A failure stops the load. */
typedef enum td_status (*td_pack_fn)(void *self, const struct td_piece *piece,
                                     int64_t row0, int64_t n_rows, const void *bytes,
                                     struct td_error *err);

/* Where rows row0 .. row0 + n_rows of a piece may be read to, whole rows of all its
 * columns, instead of being handed to the callback above; NULL: nowhere. */
typedef void *(*td_place_fn)(void *self, const struct td_piece *piece, int64_t row0,
                             int64_t n_rows);

enum td_load_cache {
    TD_LOAD_CACHE_AUTO, /* keep when the weights are small next to the free memory */
    TD_LOAD_CACHE_KEEP,
    TD_LOAD_CACHE_DROP /* leave no page cache behind */
};

/* Zero everywhere is a good default. */
struct td_load_opts {
    int threads;     /* 0: chosen from the processors, at most TD_MAX_LOAD_THREADS */
    int64_t staging; /* bytes of staging memory, 0: chosen; at most TD_MAX_STAGING */
    enum td_load_cache cache;
    struct td_dev *dev; /* where the callback packs to; NULL: not said. Reads then go on
                           while it copies */
    td_place_fn place;  /* may be NULL; gets the same `self` as the callback */
    const atomic_bool *cancel; /* may be NULL; true stops with TD_E_CANCELLED */
    atomic_ullong *beat;       /* may be NULL; rises with every run that was read */
};

/* What a load of so many bytes and pieces takes beside the destination, at most: its
 * buffers, and its lists. */
int64_t td_load_staging(const struct td_load_opts *opts, int64_t bytes);
int64_t td_load_list_bytes(int64_t pieces);

struct td_load_stats {
    int64_t bytes; /* handed to the callback */
    int64_t read;  /* read from files */
    int64_t calls; /* read system calls */
    double seconds;
    int threads;
    int64_t staging;
};

/* Loads n pieces. Emits "progress" events at most ten times a second and one "loaded"
 * event, with the numbers bytes, of, rate (bytes a second), left (seconds to go) and
 * seconds (gone). Errors name file, tensor and offset; the first one wins: TD_E_IO,
 * TD_E_TRUNCATED, TD_E_NOT_FOUND, TD_E_TENSOR (a piece outside its tensor), TD_E_LIMIT,
 * TD_E_NOMEM, TD_E_CANCELLED, or the callback's. stats may be NULL. */
enum td_status td_load(const struct td_model_dir *dir, const struct td_piece *pieces,
                       size_t n, const struct td_load_opts *opts, td_pack_fn pack,
                       void *self, struct td_load_stats *stats, struct td_error *err);

#endif

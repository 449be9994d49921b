/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model directory: which safetensors files it holds and which tensors lie where.
 *
 *     struct td_model_dir dir;
 *     if (td_model_dir_open("models/lexicon", &dir, err) == TD_OK) {
 *         int32_t t = td_model_dir_find(&dir, "lm_head.weight");
 *         ...dir.tensors[t].shape...
 *         td_model_dir_release(&dir);
 *     }
 *
 * Only headers are read, nothing is mapped. The shards are those that
 * model.safetensors.index.json names; without an index, all *.safetensors files. Every
 * header is checked whole before anything is believed: sizes, ranges, overlaps, shapes
 * against bytes, names over all shards, and the index against the shards.
 */
#ifndef TD_LOAD_MODEL_DIR_H
#define TD_LOAD_MODEL_DIR_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct td_tensor {
    const char *name; /* zero-terminated, borrowed from the directory */
    uint32_t name_len;
    enum td_dtype dtype;
    int32_t shard; /* index into shards */
    int32_t n_dims;
    int64_t shape[TD_MAX_DIMS]; /* n_dims values, each at least 0 */
    int64_t elements;           /* product of the shape */
    int64_t offset, bytes;      /* where its data lie in the file */
};

struct td_shard {
    const char *name; /* file name inside the directory */
    const char *path;
    int64_t size;         /* of the file */
    int64_t data_start;   /* first byte behind the header */
    int32_t first, count; /* its tensors: tensors[first .. first + count) */
};

struct td_model_dir {
    const char *path; /* as given */
    struct td_shard *shards;
    int32_t n_shards;
    struct td_tensor *tensors; /* file order: by shard, then by offset */
    int32_t n_tensors;
    int64_t bytes;   /* of all tensors */
    bool names_only; /* made by td_model_dir_names() */

    struct td_map by_name;
    struct td_arena arena;
};

/* Errors name file, tensor, found and expected: TD_E_NOT_FOUND, TD_E_LFS_POINTER,
 * TD_E_TRUNCATED, TD_E_HEADER, TD_E_JSON, TD_E_UNSUPPORTED (no safetensors, but GGUF or
 * PyTorch files), TD_E_LIMIT, TD_E_IO, TD_E_NOMEM. Release only after TD_OK. */
enum td_status td_model_dir_open(const char *path, struct td_model_dir *dir,
                                 struct td_error *err);
void td_model_dir_release(struct td_model_dir *dir);

/* What the index alone says, for a plan made before the weights are there: tensors have
 * a name and a shard, everything else of both is zero. TD_E_NOT_FOUND without an index. */
enum td_status td_model_dir_names(const char *path, struct td_model_dir *dir,
                                  struct td_error *err);

/* Index of a tensor, -1 when there is none of that name. */
int32_t td_model_dir_find(const struct td_model_dir *dir, const char *name);

#endif

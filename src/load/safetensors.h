/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of one safetensors file.
 *
 * A file is 8 bytes of header length (little endian), that many bytes of JSON, then the
 * data. The JSON is one object: tensor name -> {"dtype", "shape", "data_offsets"}, and
 * optionally "__metadata__" -> strings. This reader is a scanner for exactly that
 * grammar: it keeps no tree, so that memory stays proportional to the tensors and a
 * header of 76,000 entries takes milliseconds.
 *
 * Checked: lengths against the file's size, JSON syntax, UTF-8 names without control
 * characters, names given twice, known formats, shape products without overflow, bytes =
 * shape x format, ranges inside the file that do not overlap. Bytes that belong to no
 * tensor are allowed, since some writers align their data.
 */
#ifndef TD_LOAD_SAFETENSORS_H
#define TD_LOAD_SAFETENSORS_H

#include "base/arena.h"
#include "base/status.h"
#include "load/model_dir.h"

#include <stddef.h>
#include <stdint.h>

/* Tensors of one or several files. `v` is freed with td_free(). */
struct td_tensor_list {
    struct td_tensor *v;
    size_t count, cap;
};

/* Reads the n bytes of a header's JSON whose data begin at data_start of a file of
 * file_size bytes, and appends its tensors (with this shard number) sorted by offset.
 * Names are copied into the arena. Errors: TD_E_HEADER, TD_E_TRUNCATED (data end beyond
 * the file, both numbers named), TD_E_LIMIT, TD_E_NOMEM. */
enum td_status td_safetensors_parse(const char *text, size_t n, const char *where,
                                    int64_t data_start, int64_t file_size,
                                    int32_t shard, struct td_arena *names,
                                    struct td_tensor_list *list, struct td_error *err);

/* Opens the file at shard->path, reads and checks its header, appends its tensors, and
 * sets the shard's numbers. Errors as above and TD_E_NOT_FOUND, TD_E_LFS_POINTER,
 * TD_E_IO. */
enum td_status td_safetensors_read(struct td_shard *shard, int32_t index,
                                   struct td_arena *names, struct td_tensor_list *list,
                                   struct td_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_model: writes checkpoints of the Qwen3.5 architecture with made-up weights.
 *
 * The steps, one file each:
 *
 *     options.c   command line and presets -> struct td_synth, checked
 *     tensors.c   struct td_synth -> the list of tensors a hub's checkpoint has
 *     values.c    a tensor's name, row and column -> its bytes
 *     write.c     list -> files: shards, headers, index, data by several threads
 *     text.c      config.json, generation_config.json, tokenizer and template
 *
 * The same options give the same bytes on every machine and with any number of threads:
 * each weight is a function of the seed, the tensor's name and the position alone,
 * computed with integers and with the float operations that IEEE 754 rounds exactly.
 */
#ifndef TD_TOOLS_SYNTH_H
#define TD_TOOLS_SYNTH_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/limits.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_SYNTH_MAX_LAYERS = 512,
    TD_SYNTH_MAX_DIMS = 5,
    TD_SYNTH_BLOCK = 128 /* rows and columns that share an FP8 scale */
};

/* How the experts of a layer are stored: the usual way of the dtype, one tensor for each
 * matrix of each expert, or all experts in two tensors. */
enum td_synth_form { TD_SYNTH_USUAL, TD_SYNTH_SPLIT, TD_SYNTH_FUSED };

/* A checkpoint to be written. Sizes are in elements; names follow config.json. */
struct td_synth {
    int64_t hidden, layers, heads, kv_heads, head_dim;
    int64_t key_heads, value_heads, key_dim, value_dim, conv, interval;
    int64_t intermediate; /* dense MLP; 0 when there are experts */
    int64_t experts, top_k, moe, shared;
    int64_t vocab, max_position;
    int64_t vision_layers, vision_hidden; /* 0 layers: no vision tensors */
    int64_t seed, threads;                /* 0 threads: as many as there are */
    int64_t shards, shard_size;           /* both 0: one file without an index */
    double rotary;                        /* share of head_dim that rotates */
    enum td_dtype dtype, scale_dtype;
    enum td_synth_form form, mtp_form;
    bool tied, mtp, mtp_file, nested, f32_state, generation, headers_only;
    char types[TD_SYNTH_MAX_LAYERS + 1]; /* a letter for each layer: l or f */
    char tokenizer[TD_MAX_PATH];         /* directory */
    const char *out;                     /* directory, borrowed */
};

/* One tensor. For its values it is a matrix [rows][cols] in row-major order. */
struct td_synth_tensor {
    const char *name; /* borrowed from the list's arena */
    uint64_t key;     /* of its random numbers */
    enum td_dtype dtype;
    int ndim;
    int64_t shape[TD_SYNTH_MAX_DIMS];
    int64_t rows, cols;
    bool uniform; /* values lie evenly in lo..hi */
    float gain;   /* otherwise: standard deviation times sqrt(cols) */
    float lo, hi;
    int64_t scale;  /* index of the FP8 scales' tensor, -1 without */
    bool is_scale;  /* written along with the tensor it belongs to */
    int file;       /* set by write.c, as are the following */
    int64_t offset; /* of the first byte, from the start of the file */
    int64_t bytes;
};

struct td_synth_list {
    struct td_arena arena;
    struct td_synth_tensor *items;
    int64_t count, cap;
};

/* What was written. */
struct td_synth_stats {
    int64_t tensors, bytes, files;
};

/* Reads the command line (without the program's name) into m; argv must outlive it.
 * *help is set when help was asked for, m is then not filled. Errors: TD_E_USAGE. */
enum td_status td_synth_parse(int argc, char **argv, struct td_synth *m, bool *help,
                              struct td_error *err);

/* Appends usage, options and presets. */
struct td_buf;
enum td_status td_synth_help(struct td_buf *out);

/* TD_E_USAGE with a sentence when the sizes do not fit together. */
enum td_status td_synth_check(const struct td_synth *m, struct td_error *err);

/* All tensors in the order of the layers; a scale follows its weight. Release with
 * td_synth_list_release(), also after a failure. */
enum td_status td_synth_list_init(struct td_synth_list *list, const struct td_synth *m,
                                  struct td_error *err);
void td_synth_list_release(struct td_synth_list *list);

/* Bytes of one element. */
int64_t td_synth_size(enum td_dtype dtype);

/* Writes rows row0 .. row0 + rows of t, cols * td_synth_size() bytes each, to out
 * (little-endian). row0 must be a multiple of TD_SYNTH_BLOCK. For FP8 also writes the
 * scales of these rows' blocks, of type scale_dtype, to scales. */
void td_synth_values(const struct td_synth_tensor *t, int64_t row0, int64_t rows,
                     uint8_t *out, enum td_dtype scale_dtype, uint8_t *scales);

/* The key of a tensor's random numbers. */
uint64_t td_synth_key(int64_t seed, const char *name);

/* Writes the whole model directory; it must not hold a config.json yet. */
enum td_status td_synth_write(const struct td_synth *m, struct td_synth_stats *stats,
                              struct td_error *err);

/* The parts of td_synth_write(). */
enum td_status td_synth_write_weights(const struct td_synth *m,
                                      struct td_synth_list *list,
                                      struct td_synth_stats *stats,
                                      struct td_error *err);
enum td_status td_synth_write_texts(const struct td_synth *m, struct td_error *err);

/* Creates or replaces m->out/name. */
enum td_status td_synth_write_file(const struct td_synth *m, const char *name,
                                   const void *data, size_t size, struct td_error *err);

#endif

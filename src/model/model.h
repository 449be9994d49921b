/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network: weights on a device, caches, and the forward pass.
 *
 *     td_model_open()      configuration, tensors and slice; nothing is read yet
 *     td_model_random()    the same from a configuration alone
 *     td_model_bytes()     what it will take, for the plan
 *     td_model_load()      weights onto the device
 *     td_cache_new()       KV blocks and state slots
 *     td_model_forward()   rows in, logits out
 *     td_model_draft()     the MTP head on top of a forward's hidden states
 *
 * A forward takes pieces of many sequences: generated tokens (one row each) and pieces
 * of prompts. Which blocks and slots a sequence owns is the caller's business; block 0
 * and slot 0 are ordinary ones.
 */
#ifndef TD_MODEL_MODEL_H
#define TD_MODEL_MODEL_H

#include "comm/comm.h"
#include "load/load.h"
#include "load/model_dir.h"
#include "model/config.h"
#include "model/names.h"
#include "ops/ops.h"

struct td_model;

/* Largest shapes that forwards will have; work memory is sized from them. */
struct td_model_limits {
    int32_t max_rows; /* rows of a forward */
    int32_t max_seqs; /* pieces of a forward */
    int32_t max_out;  /* rows with logits of a forward */
    int32_t max_len;  /* tokens of a sequence */
    int32_t vocab;    /* candidates are chosen from ids below this; 0: none are */
    bool draft;       /* td_model_draft() will be called: its weights, cache and work */
};

/* Bytes on one rank's device, by use. */
struct td_model_bytes {
    int64_t weights;  /* matrices, scales, vectors */
    int64_t kv_block; /* one KV block over all attention layers */
    int64_t state;    /* one slot: recurrent and convolution state of all layers */
    int64_t work;     /* activations, logits, batch */
    int64_t shelf;    /* what operations work in */
    int64_t lists;    /* on the host during td_model_load(), beside its staging */
};

/* Reads configuration and headers, splits the model by comm's rank and checks every
 * tensor. dev and comm are borrowed for the model's life. Errors: those of
 * td_config_read(), td_model_dir_open(), td_slice_make(), td_weights_bind(). */
enum td_status td_model_open(const char *path, struct td_dev *dev, struct td_comm *comm,
                             const struct td_model_limits *limits,
                             struct td_model **out, struct td_error *err);

/* Reads the configuration alone and makes a model of it whose weights td_model_load()
 * draws from `seed` (not 0): the number formats and sizes of a real checkpoint, numbers
 * of a sane size, the same ones on every device, whatever the number of ranks. For
 * benchmarks and tests. */
enum td_status td_model_random(const char *path, uint64_t seed, struct td_dev *dev,
                               struct td_comm *comm,
                               const struct td_model_limits *limits,
                               struct td_model **out, struct td_error *err);
void td_model_free(struct td_model *m);

/* For a plan: rank `rank` of `ranks` without a communicator, to ask for its sizes and
 * nothing else. Where files of weights are missing the index alone will do; formats are
 * then those that the configuration implies. */
enum td_status td_model_size(const char *path, struct td_dev *dev, int rank, int ranks,
                             const struct td_model_limits *limits,
                             struct td_model **out, struct td_error *err);

/* Borrowed from the model. */
const struct td_slice *td_model_slice(const struct td_model *m);
const struct td_weights *td_model_weights(const struct td_model *m);
const struct td_model_dir *td_model_files(const struct td_model *m);

const struct td_config *td_model_config(const struct td_model *m);
/* A draft head is there, and was asked for. */
bool td_model_has_draft(const struct td_model *m);
void td_model_bytes(const struct td_model *m, struct td_model_bytes *out);

/* Changes the limits, before td_model_load(); the sizes above follow. */
void td_model_set_limits(struct td_model *m, const struct td_model_limits *limits);

/* Allocates and loads everything. May be called once. A random model has no use for
 * opts. */
enum td_status td_model_load(struct td_model *m, const struct td_load_opts *opts,
                             struct td_load_stats *stats, struct td_error *err);

/* The caches of n_blocks KV blocks (TD_KV_BLOCK tokens each) and n_slots sequences.
 * Device memory lives as long as the device. */
struct td_cache {
    int32_t n_blocks, n_slots;
    int32_t n_kv, n_gdn;   /* attention layers (draft head last), delta-net layers */
    struct td_kv *kv;      /* [n_kv] */
    float **conv, **state; /* [n_gdn] */
    size_t conv_slot, state_slot; /* bytes of one slot of one layer */
    struct {
        void *p;
        size_t bytes;
    } slabs[2];  /* what all of that lies in: keys and values, states */
    uint32_t id; /* of all caches of this process, from 1: tells recorded steps apart */
};

/* The memory is zero; where it is the host's it has not been touched yet. */
enum td_status td_cache_new(struct td_model *m, int32_t n_blocks, int32_t n_slots,
                            struct td_cache *out, struct td_error *err);
void td_cache_release(struct td_cache *c);

/* Copies the recurrent and convolution states of slot `from` over those of `to`. */
void td_cache_copy_state(struct td_model *m, struct td_cache *c, int32_t to,
                         int32_t from);

/* Rows of one sequence in a forward. All arrays are host memory. */
struct td_seq_rows {
    const int32_t *ids; /* [n] tokens at positions start .. start + n */
    int32_t n, start;
    bool decode; /* a generated token: n is 1, recurrent path */
    int32_t slot;
    const int32_t *blocks; /* blocks of positions 0 .. start + n, at least */
    int32_t n_blocks;
    int32_t n_out; /* logits of the last n_out rows (0: none) */
};

/* Whether pieces obey the rules of td_model_forward(), which checks them itself. */
enum td_status td_model_check(const struct td_model *m, const struct td_cache *c,
                              const struct td_seq_rows *seqs, int32_t n_seqs,
                              struct td_error *err);

/* Runs the network over the pieces: generated tokens first, then prompt pieces, whose
 * start is a multiple of TD_CHUNK. With `hidden`, the final norm of all rows is kept for
 * td_model_draft(). Errors: TD_E_INTERNAL for a batch that breaks these rules or the
 * limits, and what communication reports. */
enum td_status td_model_forward(struct td_model *m, struct td_cache *c,
                                const struct td_seq_rows *seqs, int32_t n_seqs,
                                bool hidden, struct td_error *err);

/* Logits of the last forward (or draft), f32 on the device: the wanted rows in the order
 * of the pieces, each with this rank's part of the vocabulary. Borrowed until the next
 * one. */
const float *td_model_logits(const struct td_model *m);
struct td_range td_model_vocab(const struct td_model *m);

/* The best ids of the same rows in this rank's part of the vocabulary, on the device.
 * NULL without limits.vocab, or on a shelf that does not find them. */
const struct td_candidates *td_model_candidates(const struct td_model *m);

/* A number that models of different configuration or tensors have different. */
uint64_t td_model_fingerprint(const struct td_model *m);

/* The draft head. seqs describes the same rows as the last forward, which was run with
 * `hidden`, but ids holds the tokens that FOLLOW each row. Fills the draft head's own KV
 * layer; its logits propose the token after that. */
enum td_status td_model_draft(struct td_model *m, struct td_cache *c,
                              const struct td_seq_rows *seqs, int32_t n_seqs,
                              struct td_error *err);

/* For tests: called with the residual stream after the embedding (layer -1), each layer
 * and the final norm (layer n_layers, only with `hidden`), as x + add (add may be NULL),
 * both [rows][hidden] on the device. */
typedef void (*td_trace_fn)(void *self, int layer, const float *x, const float *add,
                            int32_t rows);
void td_model_set_trace(struct td_model *m, td_trace_fn fn, void *self);

#endif

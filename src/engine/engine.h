/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: a model on a device with its caches, ready to step.
 *
 *     td_engine_open()     plan, load, warm up; nothing is read if it does not fit
 *     td_engine_forward()  one step: pieces of sequences in, logits out
 *     td_engine_sample()   a token from a row of them
 *
 * Who runs next, and which blocks and slots a sequence owns, is decided by the caller
 * (generate.h for a single sequence). An engine belongs to one thread at a time.
 */
#ifndef TD_ENGINE_ENGINE_H
#define TD_ENGINE_ENGINE_H

#include "model/model.h"
#include "plan/plan.h"
#include "sample/sample.h"

struct td_world;

struct td_engine_params {
    const char *model; /* directory */
    uint64_t random;   /* not 0: only its configuration is read, weights are drawn from
                          this seed */
    enum td_numerics numerics;
    int threads;          /* 0: all cores of this rank's share of the host */
    const char *level;    /* highest processor level, NULL: the best */
    const char *device;   /* "cpu", "cuda", "cuda:N"; "auto" or NULL: a GPU if there is
                             one and nothing asks for the processor or several ranks */
    bool no_graphs;       /* a GPU records no steps */
    int64_t memory;       /* bytes it may use, its process included where a device's
                             memory is the host's; 0: what host or GPU can give */
    int32_t max_len;      /* tokens of a sequence, 0: the model's, or what fits */
    int32_t max_seqs;     /* sequences at a time; 0 means 1 */
    int32_t max_rows;     /* rows of a step, a multiple of TD_CHUNK; 0: chosen */
    int32_t max_out;      /* rows with logits of a step; 0: max_seqs */
    int64_t prefix_cache; /* bytes for states of known prefixes, beside the slots; the
                             KV cache then takes what fits, up to max_seqs * max_len
                             tokens. 0: no saved states */
    bool serves;          /* see struct td_plan_asked */
    int32_t vocab;        /* ids that the tokenizer knows, the only ones that sampling
                             looks at; 0: all that the model has */
    struct td_world *world; /* the ranks that work as this engine, NULL: this process
                               alone; see world.h */
    /* Set by td_engine_open() where there is a world. */
    struct td_comm *comm;     /* NULL: one rank */
    const char *common_level; /* the best that all ranks have */
    struct td_load_opts load;
};

struct td_engine;

/* What a plan is asked for under these parameters. */
struct td_plan_asked td_engine_asked(const struct td_engine_params *params);

/* Emits the events of phases plan, load and warmup. Errors: TD_E_MEMORY_PLAN with what
 * is needed and what there is, before a weight is read; those of td_model_open() and
 * td_model_load(); TD_E_NUMERICS when the first token's logits are not finite. */
enum td_status td_engine_open(const struct td_engine_params *params,
                              struct td_engine **out, struct td_error *err);
void td_engine_close(struct td_engine *e);

/* What was agreed on: the limits, with zeros replaced, and the caches' sizes. */
struct td_engine_info {
    const struct td_config *config;
    const char *level; /* of the operation table */
    int threads;
    int32_t max_len, max_seqs, max_rows, max_out;
    int32_t n_blocks, n_slots, n_snapshots; /* slots of the cache: n_slots and behind
                                               them n_snapshots */
    struct td_model_bytes bytes;
    struct td_plan plan;
    int64_t used; /* bytes of device memory */
    int64_t peak; /* of the process, until the engine was warm */
    struct td_load_stats load;
    int ranks;
    struct td_comm_counts comm; /* of all steps so far, on this rank */
};
void td_engine_info(const struct td_engine *e, struct td_engine_info *out);

/* One step; see td_model_forward(). */
enum td_status td_engine_forward(struct td_engine *e, const struct td_seq_rows *seqs,
                                 int32_t n_seqs, struct td_error *err);

/* Samples from row `row` of the last step: from its best ids where they are known and
 * suffice, else from the row. Errors: those of td_sample() and td_engine_logits(). */
enum td_status td_engine_sample(struct td_engine *e, int32_t row,
                                const struct td_sampler *sampler,
                                struct td_sample_work *work, int64_t position,
                                struct td_sampled *out, struct td_error *err);

/* Row `row` of the last step's logits, [vocab] floats on the host; borrowed until the
 * next call for that row or the next step. Errors: those of communication. */
enum td_status td_engine_logits(struct td_engine *e, int32_t row, const float **out,
                                struct td_error *err);

/* The best ids of that row; NULL on an engine that looks at rows themselves. */
const struct td_candidates *td_engine_candidates(const struct td_engine *e,
                                                 int32_t row);

/* Copies the state of one slot over another's, behind all calls made so far. */
void td_engine_copy_state(struct td_engine *e, int32_t to, int32_t from);

/* For benchmarks, which wrap its table, and for tests. */
struct td_dev *td_engine_device(struct td_engine *e);

/* For tests. */
struct td_model *td_engine_model(struct td_engine *e);
struct td_cache *td_engine_cache(struct td_engine *e);

#endif

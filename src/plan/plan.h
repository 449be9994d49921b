/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: what one rank of a model takes, to the byte, before a weight is read; whether
 * it fits; and when it does not, the nearest plan that does.
 *
 *     td_plan_room_find()   what host and device can give
 *     td_plan_make()        limits, caches and sizes of a rank, or the refusal
 *
 * The engine starts by such a plan, and `tandem plan` prints it for models that were only
 * opened for their sizes: the arithmetic stands here once.
 *
 * Memory of a rank is what it takes from the device (weights, caches, work), and what its
 * process takes beside that. Where the device's memory is the host's, both come out of
 * one budget. A reserve is left to the system and to other processes, unless the user says
 * how much memory may be used.
 */
#ifndef TD_PLAN_PLAN_H
#define TD_PLAN_PLAN_H

#include "base/sysmem.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* What is asked for; zeros are chosen. */
struct td_plan_asked {
    const char *model; /* directory, for messages */
    int64_t memory;    /* bytes that the rank may use, process included; 0: no limit */
    int32_t max_len;   /* tokens of a sequence; 0: the model's, or what fits */
    int32_t max_seqs;  /* sequences at a time; 0 means 1 */
    int32_t max_rows;  /* rows of a step, a multiple of TD_CHUNK; 0: chosen */
    int32_t max_out;   /* rows with logits of a step; 0: max_seqs */
    int64_t prefix_cache; /* bytes for states of known prefixes, beside the slots; the
                             KV cache then takes what fits, up to max_seqs * max_len
                             tokens. 0: no saved states */
    int32_t vocab;        /* of td_model_limits: for candidates */
    bool serves;          /* a server's engine: room for logits of prompts too, and a
                             sampler for each sequence */
    struct td_load_opts load;
};

/* Bytes of one rank's process beside the device's. */
struct td_plan_process {
    int64_t program;  /* code, libraries, headers: resident when the plan was made */
    int64_t logits;   /* rows of logits on the host, and what sampling works in */
    int64_t samplers; /* one for each sequence */
    int64_t threads;  /* stacks */
    int64_t lists;    /* while loading: what to read, and where it goes */
    int64_t staging;  /* while loading: buffers of the readers */
};

/* What host and device can give to a rank. */
struct td_plan_room {
    int64_t device;  /* bytes of the device, without what the process takes */
    int64_t host;    /* bytes that the process may grow to, reserve taken off */
    int64_t reserve; /* bytes left to the system by all ranks of the host; 0 when the
                        user gave a limit */
    int64_t total;   /* of the host, or what a limit leaves of it */
    int64_t program; /* resident now */
    bool shared;     /* the device's memory is the host's */
    bool asked;      /* the user's limit decides */
    char bound[512]; /* what limits it, a sentence */
};

struct td_plan {
    struct td_model_limits limits; /* zeros replaced */
    int32_t n_blocks, n_snapshots;
    struct td_model_bytes bytes;
    struct td_plan_process process;
    int64_t kv, states, prefixes; /* bytes of the caches */
    int64_t device;               /* all that is taken from the device */
    int64_t beside;               /* the most that the process takes beside it */
    bool shared;                  /* the device's memory is the host's */
    int64_t peak;     /* of the process's resident memory: `beside`, and where the
                         memory is shared `device` too */
    int64_t limit;    /* what `peak` (or `device` of a GPU) may be */
    int32_t most_len; /* longest context of one sequence that would fit, at most the
                         model's */
    int32_t full; /* sequences of max_len tokens that the KV cache holds at a time */
};

/* What depends on the device: sampling on a GPU, or of several ranks, is from candidates
 * among the first `vocab` ids (0: all); a GPU takes longer pieces of prompts. */
void td_plan_adapt(struct td_plan_asked *asked, const struct td_dev *dev, int ranks,
                   int32_t vocab);

/* Fills in the limits that do not depend on memory. */
void td_plan_limits(const struct td_plan_asked *asked, struct td_model_limits *out);

/* Bytes for states of known prefixes that a server takes when nothing is asked for. */
int64_t td_plan_prefix_bytes(const struct td_config *config);

/* What stands beside a rank on its host. */
struct td_plan_beside {
    int ranks;     /* of this host, which share its memory; 0 means 1 */
    int64_t taken; /* bytes that others will take before: the server's front */
};

/* Looks at this host; `device` is open. Errors: those of td_sysmem_read(). */
enum td_status td_plan_room_find(const struct td_dev *device, int64_t asked_memory,
                                 const struct td_plan_beside *beside,
                                 struct td_plan_room *out, struct td_error *err);

/* The same for a host that was looked at, whose device is its processor. `program` is
 * what the process takes before it plans; it is part of what is available. */
void td_plan_room_of(const struct td_sysmem *mem, int64_t program, int64_t asked_memory,
                     const struct td_plan_beside *beside, struct td_plan_room *out);

/* Settles limits and caches of a rank; changes the model's limits to them. All sequences
 * at full length if that fits, else what does, at least one. Errors: TD_E_USAGE for a
 * context that the model was not made for; TD_E_MEMORY_PLAN with what is needed, what
 * there is, and the nearest that fits: a shorter context, fewer sequences, more ranks. */
enum td_status td_plan_make(struct td_model *m, struct td_dev *dev,
                            const struct td_plan_asked *asked,
                            const struct td_plan_room *room, struct td_plan *out,
                            struct td_error *err);

/* Emits the event "plan" with the numbers. */
void td_plan_emit(const struct td_plan *p, const struct td_plan_room *room);

/* Counts again after max_len, blocks or snapshots of a plan were lowered: to what all
 * ranks have room for. */
void td_plan_lower(struct td_model *m, struct td_dev *dev,
                   const struct td_plan_asked *asked, const struct td_plan_room *room,
                   struct td_plan *p);

#endif

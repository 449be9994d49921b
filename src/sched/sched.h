/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who runs next: continuous batching over token ids, KV blocks and state slots.
 *
 * Life of a request, and the function of each transition:
 *
 *                 submit
 *                   |
 *                   v        plan (admit)             commit, last piece
 *     +-------> WAITING ------------------> PREFILL ---------------------> DECODE
 *     |                                        |                              |
 *     +----------------------------------------+------------------------------+
 *                       plan (preempt: blocks ran out; the youngest goes)
 *
 *     finish, from any state: the request is gone, blocks and slot are free
 *
 * One step:
 *
 *     td_sched_plan()     rows of the next forward, and states to restore before it
 *     (forward; sampling) td_sched_append() for each row with logits
 *     td_sched_commit()   positions advance, full blocks become known to the prefix
 *                         tree, states to save behind the forward
 *     td_sched_finish()   for those that ended; allowed at any time but between plan and
 *                         commit
 *
 * Rules
 *
 *   Order. Requests are admitted in the order they came; one that was preempted keeps
 *   its place. A step has a row for every request in DECODE, then pieces of prompts
 *   until max_rows: each request in PREFILL gets an equal share of the rest (at least
 *   64), what is left over goes to the oldest. So one long prompt neither stalls
 *   generated tokens for longer than a step nor starves short prompts.
 *
 *   Cuts. Pieces begin at multiples of 64 and end there or at the end of what is to be
 *   prefilled, and always at a position where a snapshot is wanted: the ends of messages
 *   (hints), the end of the prompt, and every `interval` tokens, all rounded down to 64.
 *
 *   Prefix. A request begins behind the longest known prefix that has a snapshot, one
 *   token short of its end at most. Only prefilled positions get into the tree, so a hit
 *   has the bits of a cold run.
 *
 *   Preemption is by recomputation: prompt and generated ids are prefilled again.
 *
 * Invariants (td_sched_check): a running request has a slot of its own and blocks for
 * all positions below `done`; done <= n_ids; a request in DECODE has done == n_ids - 1;
 * blocks below known * 64 are in the tree; the pool's own invariants.
 *
 * Not thread-safe; nothing here allocates but submit.
 */
#ifndef TD_SCHED_SCHED_H
#define TD_SCHED_SCHED_H

#include "base/status.h"
#include "sched/pool.h"

#include <stdbool.h>
#include <stdint.h>

struct td_sched_params {
    int32_t n_blocks;    /* KV blocks of TD_SCHED_BLOCK tokens */
    int32_t n_slots;     /* requests that run at a time */
    int32_t n_snapshots; /* slots for saved states, 0: no prefix cache */
    int32_t interval; /* tokens between snapshots inside a prompt, a multiple of 64 */
    int32_t max_rows; /* rows of a step, at least 64 + n_slots */
    int32_t max_out;  /* rows with logits of a step, at least n_slots */
    int32_t max_len;  /* tokens of a sequence */
    int32_t max_waiting; /* requests that may wait */
};

enum td_request_state { TD_REQUEST_WAITING, TD_REQUEST_PREFILL, TD_REQUEST_DECODE };

struct td_request {
    uint64_t id;
    enum td_request_state state;
    void *user;       /* the caller's */
    int32_t *ids;     /* [n_ids] prompt and generated ids; room for max_ids */
    int32_t n_prompt; /* of these, the prompt */
    int32_t n_ids, max_ids;
    int32_t done;    /* positions whose KV and state are computed */
    int32_t target;  /* while PREFILL: done ends here */
    int32_t cached;  /* of the prompt, found in the prefix cache at first admission */
    int32_t known;   /* blocks that are in the tree */
    bool all_logits; /* logits of every prompt row are wanted; no prefix is used */
    bool admitted;   /* at least once */
    int32_t slot;
    int32_t *blocks;
    int32_t n_blocks;
    int32_t *cuts; /* [n_cuts] hints, rising, multiples of 64 */
    int32_t n_cuts;
    struct td_request *prev, *next; /* in the queue of its state, oldest first */
    uint64_t arrival;               /* order of submission */
};

/* What to submit. Arrays are copied. */
struct td_submission {
    uint64_t id;
    void *user;
    const int32_t *prompt, *generated, *hints;
    int32_t n_prompt, n_generated, n_hints;
    int32_t max_tokens; /* in all, `generated` included */
    bool all_logits;
};

/* Rows of a request in the next forward: ids at positions start .. start + n. */
struct td_sched_row {
    struct td_request *request;
    int32_t start, n;
    bool decode;
    int32_t n_out; /* logits of the last n_out rows are wanted */
};

/* Copy of a state: from a snapshot to a request's slot (before the forward), or from a
 * slot to a snapshot (behind it). Snapshot slots count from n_slots on. */
struct td_state_copy {
    int32_t from, to;
};

struct td_sched_step {
    const struct td_sched_row *rows;
    int32_t n_rows;
    const struct td_state_copy *restore;
    int32_t n_restore;
};

struct td_sched_counts {
    int32_t running, waiting, blocks_used, slots_used;
    int64_t prefix_queries, prefix_hits; /* tokens */
    int64_t prompt_tokens, generated_tokens, preemptions;
};

struct td_sched;

enum td_status td_sched_new(const struct td_sched_params *params, struct td_sched **out,
                            struct td_error *err);
/* Requests that are still there are freed; their `user` is not. */
void td_sched_free(struct td_sched *s);

/* Puts a request at the end of the queue. TD_E_INPUT when it could never run, TD_E_LIMIT
 * when too many wait, TD_E_NOMEM. */
enum td_status td_sched_submit(struct td_sched *s, const struct td_submission *sub,
                               struct td_request **out, struct td_error *err);

/* The request of that id, NULL when there is none. */
struct td_request *td_sched_find(const struct td_sched *s, uint64_t id);

/* Is there anything to run? */
bool td_sched_idle(const struct td_sched *s);

/* The next step; arrays are valid until commit. n_rows is 0 when nothing can run. */
void td_sched_plan(struct td_sched *s, struct td_sched_step *out);

/* A token was generated behind the request's ids. False when it was the last that
 * max_tokens or the context allow: the caller finishes the request. */
bool td_sched_append(struct td_sched *s, struct td_request *r, int32_t id);

/* The planned step was computed. *saves is valid until the next plan. */
void td_sched_commit(struct td_sched *s, const struct td_state_copy **saves,
                     int32_t *n_saves);

void td_sched_finish(struct td_sched *s, struct td_request *r);

void td_sched_counts(const struct td_sched *s, struct td_sched_counts *out);

/* Ends the program when an invariant does not hold; does nothing with NDEBUG. */
void td_sched_check(const struct td_sched *s);

#endif

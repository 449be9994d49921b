/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logits to token.
 *
 * Three structs, by how long they live:
 *
 *     struct td_sampling      what a request asks for; plain values and borrowed lists
 *     struct td_sampler       one for each sequence slot: a request's settings, and how
 *                             often it has seen each id (for the penalties)
 *     struct td_sample_work   one for each thread: scratch memory
 *
 * All memory is allocated by td_sampler_init() and td_sample_work_init(); td_sample()
 * allocates nothing, takes no lock and makes no system call. A slot is used like this:
 *
 *     td_sampler_begin(&s, &sampling, prompt, n_prompt, generated, n_generated, &err)
 *     loop:
 *         td_sample(&s, &work, logits, position, &out, &err)
 *         td_sampler_add(&s, out.id)
 *         if (out.stop) ...
 *
 * What happens to a row of logits, in this order (the order of vLLM's sampler):
 *
 *     1. log probabilities, when asked for, are those of the logits as the model gave
 *        them: log-softmax before anything below, at temperature 1
 *     2. min_tokens: stop ids are excluded while fewer ids have been generated
 *     3. logit_bias: added to the logit
 *     4. repetition_penalty r, for ids of the prompt and generated ones: logit / r when
 *        it is positive, logit * r otherwise
 *     5. frequency_penalty * times generated, then presence_penalty once, subtracted;
 *        both look at generated ids only
 *     6. temperature 0 (below 1e-5): the id with the largest logit; done
 *     7. logit / temperature
 *     8. min_p: ids with less than min_p times the largest probability are dropped
 *     9. top_k: the k most probable ids stay
 *    10. top_p: of these, rescaled to sum 1, the most probable ids stay until their
 *        sum reaches top_p
 *    11. one draw from what is left, rescaled to sum 1
 *
 * Equal logits rank by id, lowest first, everywhere: arg-max, top_k, top_p and the
 * alternatives. Ids at or above `vocab`, the number of ids the tokenizer knows, are not
 * looked at: they are never chosen and take no share of any probability.
 *
 * Randomness. A draw uses one number that is a function of (seed, choice, position) and
 * of nothing else: Philox4x32-10 with the seed as key. The ids that are left are laid
 * side by side in the order of their ids, each as wide as its probability, and the id
 * under that number is taken. So the same seed gives the same text whatever else is in
 * the batch, a request can be resumed at any position, and a tiny change of the logits
 * moves the borders between ids only a little.
 */
#ifndef TD_SAMPLE_SAMPLE_H
#define TD_SAMPLE_SAMPLE_H

#include "base/limits.h"
#include "base/status.h"
#include "ops/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- settings ------------------------------------------------------------------- */

struct td_logit_bias {
    int32_t id;
    float bias; /* -100 to 100; several entries for one id add up */
};

/* Names and meanings as in the OpenAI API and its usual extensions. */
struct td_sampling {
    float temperature; /* 0 to 2 */
    int32_t top_k;     /* at least 1; 0 and -1: off */
    float top_p;       /* above 0, to 1 (off) */
    float min_p;       /* 0 (off) to 1 */

    float repetition_penalty; /* 0.01 to 100; 1 is off */
    float presence_penalty;   /* -2 to 2; 0 is off */
    float frequency_penalty;  /* -2 to 2; 0 is off */

    uint64_t seed;
    uint32_t choice; /* which of a request's n answers */

    int32_t logprobs;   /* alternatives to report, 0: the chosen id only, -1: nothing */
    int64_t min_tokens; /* ids to generate before a stop id may come */
    bool ignore_eos;    /* eos_ids are ordinary ids (stop_ids still stop) */

    /* Borrowed: by td_sampling_check() for the call, by td_sampler_begin() too. */
    const int32_t *eos_ids; /* the model's own ends, at most TD_MAX_STOP_IDS */
    size_t n_eos_ids;
    const int32_t *stop_ids; /* the request's stop_token_ids, at most TD_MAX_STOP_IDS */
    size_t n_stop_ids;
    const struct td_logit_bias *bias; /* at most TD_MAX_LOGIT_BIAS */
    size_t n_bias;
};

/* Temperature 1, everything else off, no lists, seed 0. */
void td_sampling_default(struct td_sampling *s);

/* Checks every range, and that ids of stop_ids and bias lie in 0..vocab. TD_E_INPUT
 * names the field as the API spells it, its value and what is allowed. */
enum td_status td_sampling_check(const struct td_sampling *s, int32_t vocab,
                                 struct td_error *err);

/* A seed for a request that gives none, from the system's random numbers. */
uint64_t td_seed_fresh(void);

/* ---- scratch memory of a thread -------------------------------------------------- */

struct td_logprob {
    int32_t id;
    float logprob; /* natural logarithm */
};

struct td_sample_work {
    int32_t vocab, blocks;
    float *logits;  /* [vocab] a changed copy of a row */
    float *max;     /* [blocks] largest value of each block of a row */
    float *sum;     /* [blocks] sum of exponentials of each block */
    uint64_t *keys; /* [vocab] candidates, see sample_int.h */
    struct td_logprob top[TD_MAX_LOGPROBS];
};

/* vocab: ids the tokenizer knows, at least 1. About 12 bytes for each. */
enum td_status td_sample_work_init(struct td_sample_work *w, int32_t vocab,
                                   struct td_error *err);
void td_sample_work_release(struct td_sample_work *w);

/* ---- a sequence ------------------------------------------------------------------- */

struct td_sampler {
    struct td_sampling set; /* its lists are the arrays below */
    int32_t vocab;
    int64_t generated; /* ids generated so far */
    uint32_t *seen;    /* [vocab] times generated; the top bit: is in the prompt */
    int32_t *distinct; /* [max_distinct] the ids with seen != 0 */
    size_t n_distinct, max_distinct;
    int32_t eos_ids[TD_MAX_STOP_IDS], stop_ids[TD_MAX_STOP_IDS];
    struct td_logit_bias *bias; /* [TD_MAX_LOGIT_BIAS] */
};

/* Bytes that td_sampler_init() allocates. max_ids: longest sequence, prompt included. */
size_t td_sampler_bytes(int32_t vocab, int64_t max_ids);

enum td_status td_sampler_init(struct td_sampler *s, int32_t vocab, int64_t max_ids,
                               struct td_error *err);
void td_sampler_release(struct td_sampler *s);

/* Starts a sequence in this slot; what was there before is forgotten. `generated` are
 * ids that were generated earlier (a request that is resumed); they count as generated.
 * Ids outside 0..vocab are not counted. Runs td_sampling_check(); TD_E_LIMIT when the
 * ids do not fit into max_ids. The slot holds no sequence after an error. */
enum td_status td_sampler_begin(struct td_sampler *s, const struct td_sampling *set,
                                const int32_t *prompt, size_t n_prompt,
                                const int32_t *generated, size_t n_generated,
                                struct td_error *err);

/* Counts one more generated id; TD_E_LIMIT past max_ids. */
enum td_status td_sampler_add(struct td_sampler *s, int32_t id);

enum td_stop {
    TD_STOP_NONE,
    TD_STOP_EOS, /* one of eos_ids, and not ignored */
    TD_STOP_ID   /* one of stop_ids */
};

/* What an id means for this sequence. */
enum td_stop td_sampler_stop(const struct td_sampler *s, int32_t id);

/* ---- the step --------------------------------------------------------------------- */

struct td_sampled {
    int32_t id;
    enum td_stop stop; /* of that id */

    /* The rest is set when log probabilities were asked for. */
    float logprob; /* of id */
    int32_t rank;  /* of id: 1 is the most probable */
    int32_t n_top; /* at most what was asked for, fewer in a tiny vocab */
    const struct td_logprob *top; /* [n_top], best first; borrowed from the work until
                                   * its next use. Holds id only if id is among them. */
};

/* Chooses the id at `position` (ids before it in the sequence) from logits [vocab] or
 * longer. s and w must have been made for the same vocab. Errors: TD_E_NUMERICS when a
 * logit is NaN or infinite, TD_E_INPUT when min_tokens leaves no id to choose. */
enum td_status td_sample(const struct td_sampler *s, struct td_sample_work *w,
                         const float *logits, int64_t position, struct td_sampled *out,
                         struct td_error *err);

/* The same from the best ids of a row alone, which were chosen from all ids below the
 * vocab of s and w: true when they determine the result. The id is then the one that
 * td_sample() finds; log probabilities are as exact as the row's sum of exponentials.
 * false: the row is needed (a penalty or bias that raises logits, nothing cut off, top_p
 * alone, more ids wanted than there are, a logit that is not finite). */
bool td_sample_best(const struct td_sampler *s, struct td_sample_work *w,
                    const struct td_candidates *c, int64_t position,
                    struct td_sampled *out);

/* The best ids of a row from those of its n parts, parts[0], parts[step], ...: all of the
 * same row, with rising ids. */
void td_candidates_merge(const struct td_candidates *parts, size_t n, size_t step,
                         struct td_candidates *out);

/* Log probability, rank and `logprobs` alternatives (0 to TD_MAX_LOGPROBS) for an id
 * that is given instead of chosen: prompt log probabilities. An id outside 0..vocab has
 * probability 0: logprob -INFINITY, rank vocab + 1. out->stop is TD_STOP_NONE. */
enum td_status td_logprobs(struct td_sample_work *w, const float *logits, int32_t id,
                           int32_t logprobs, struct td_sampled *out,
                           struct td_error *err);

#endif

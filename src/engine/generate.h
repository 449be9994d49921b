/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sequence at a time: a prompt in, tokens out, as they come.
 *
 * A generator uses an engine's slot 0 and its first blocks, so it must be the engine's
 * only user.
 */
#ifndef TD_ENGINE_GENERATE_H
#define TD_ENGINE_GENERATE_H

#include "engine/engine.h"
#include "sample/sample.h"

#include <stdatomic.h>

enum td_finish {
    TD_FINISH_STOP,     /* a stop id came; it is not reported as a token */
    TD_FINISH_LENGTH,   /* max_tokens or the end of the context */
    TD_FINISH_CANCELLED /* the callback or the cancel flag said so */
};

/* Called with every token but the one that stops; false ends the answer. */
typedef bool (*td_token_fn)(void *self, const struct td_sampled *token);

struct td_generate_args {
    const int32_t *prompt; /* at least one id */
    int32_t n_prompt;
    int32_t max_tokens; /* 0: until the context ends */
    struct td_sampling sampling;
    td_token_fn on_token;
    void *self;
    const atomic_bool *cancel; /* looked at before each step; may be NULL */
};

struct td_generated {
    enum td_finish finish;
    int32_t stop_id; /* with TD_FINISH_STOP */
    int32_t n_prompt, n_tokens;
    double prefill; /* seconds until the first token was known */
    double decode;  /* seconds for the tokens after it */
};

struct td_generator;

/* vocab: ids that the tokenizer knows; others are never sampled. The engine is borrowed
 * for the generator's life. */
enum td_status td_generator_new(struct td_engine *e, int32_t vocab,
                                struct td_generator **out, struct td_error *err);
void td_generator_free(struct td_generator *g);

/* Errors: TD_E_INPUT for a prompt that is empty or leaves no room in the context, those
 * of td_sampler_begin(), td_engine_forward() and td_sample(). */
enum td_status td_generate(struct td_generator *g, const struct td_generate_args *args,
                           struct td_generated *out, struct td_error *err);

#endif

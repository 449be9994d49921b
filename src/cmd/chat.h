/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation with a model on this host: questions in, pieces of answers out. It
 * knows nothing of terminals; run.c prints what comes.
 *
 *     td_chat_open()      configuration, tokenizer, template: small files, fast
 *     td_chat_load()      the engine: plan, weights, warm-up
 *     td_chat_ask()       one question; the answer streams through a callback
 *
 * An answer has two parts. Models that reason write their thoughts first, between
 * <think> and </think>; the template may open or close that pair for them at the end of
 * the prompt. The tags and the white space around each part belong to neither.
 */
#ifndef TD_CMD_CHAT_H
#define TD_CMD_CHAT_H

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "text/detok.h"
#include "text/template.h"
#include "text/tokenizer.h"

#include <jansson.h>

enum td_part { TD_PART_REASONING, TD_PART_ANSWER };

/* Splits a stream of ids into the two parts. */
struct td_split {
    const struct td_tokenizer *tokenizer;
    int32_t open, close; /* ids of <think> and </think>, -1: the model has none */
    enum td_part part;
    struct td_detok detok;
    struct td_buf raw;     /* text of an id */
    struct td_buf text[2]; /* what each part is so far */
    size_t blank[2];       /* white space at its end that is held back */
};

void td_split_init(struct td_split *s, const struct td_tokenizer *t);
void td_split_release(struct td_split *s);

/* Starts an answer to a prompt, whose last tag says in which part it begins. */
void td_split_begin(struct td_split *s, const int32_t *prompt, size_t n);

/* Adds an id (td_split_end(): the end) and says which text became known: *fresh bytes
 * at the end of s->text[*part], without trailing white space that may yet turn out to be
 * the end of the part. Errors: a buffer's. */
enum td_status td_split_add(struct td_split *s, int32_t id, enum td_part *part,
                            size_t *fresh);
enum td_status td_split_end(struct td_split *s, enum td_part *part, size_t *fresh);

enum td_thinking { TD_THINK_UNSAID, TD_THINK_ON, TD_THINK_OFF };

/* Text of one part, as it comes; false ends the answer. */
typedef bool (*td_chat_fn)(void *self, enum td_part part, const char *text, size_t n);

struct td_chat {
    const char *model; /* borrowed */
    struct td_config config;
    struct td_tokenizer *tokenizer;
    struct td_template *template;
    struct td_engine *engine;
    struct td_generator *generator;
    struct td_sampling
        sampling; /* the model's defaults until the caller changes them */
    int32_t eos[TD_MAX_STOP_IDS];
    enum td_thinking thinking;
    int32_t max_tokens; /* 0: until the context ends */
    json_t *messages;   /* the conversation so far */
    struct td_buf prompt;
    struct td_ids ids;
    struct td_split split; /* holds the last answer's text */
};

/* Reads config.json, generation_config.json, the tokenizer and the chat template.
 * system: instructions, may be NULL. Release the chat after errors too. */
enum td_status td_chat_open(struct td_chat *c, const char *model, const char *system,
                            struct td_error *err);
void td_chat_release(struct td_chat *c);

/* Checks the sampling settings, then opens the engine. params->model is the chat's. */
enum td_status td_chat_load(struct td_chat *c, const struct td_engine_params *params,
                            struct td_error *err);

/* Asks. The question and what there is of the answer (cancelled ones too) become part of
 * the conversation, unless the question fails. *out may be NULL. Errors: TD_E_INPUT for
 * text that is not UTF-8 and for a conversation that fills the context, those of
 * td_template_render(), td_tokenizer_encode() and td_generate(). */
enum td_status td_chat_ask(struct td_chat *c, const char *text, size_t n, td_chat_fn fn,
                           void *self, const atomic_bool *cancel,
                           struct td_generated *out, struct td_error *err);

/* Back to the beginning; instructions stay. */
void td_chat_forget(struct td_chat *c);

#endif

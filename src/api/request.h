/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the JSON of a request to what it asks: prompts as token ids, sampling, limits, the
 * form of the answer. One struct for chats and completions.
 *
 * Unknown fields are ignored. A field of the wrong type or out of range, and a field that
 * exists elsewhere, is not supported here and would change the answer's meaning, is
 * refused by its name.
 */
#ifndef TD_API_REQUEST_H
#define TD_API_REQUEST_H

#include "api/parts.h"
#include "api/served.h"
#include "api/stops.h"
#include "base/arena.h"
#include "base/status.h"
#include "text/bpe.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Why a request is refused, in the words of the API. */
struct td_refusal {
    int status;       /* HTTP */
    const char *type; /* "invalid_request_error" ...; static */
    const char *code; /* static, may be NULL */
    char param[64];   /* the field's name, may be "" */
    char message[TD_ERROR_WHAT_MAX + TD_ERROR_WHY_MAX];
};

struct td_prompt {
    const char *text; /* NULL when it was given as ids; in the arena */
    size_t len;
    struct td_ids ids;
    int32_t *ends; /* positions behind messages, in the arena */
    int32_t n_ends;
    enum td_part first; /* the part that the answer begins with */
};

struct td_ask {
    bool chat;
    struct td_arena arena;
    json_t *body; /* keeps tools and strings alive; trimmed: the tools, or NULL */
    struct td_prompt *prompts;
    int32_t n_prompts;
    int n; /* answers to each prompt */
    struct td_sampling sampling;
    int32_t max_tokens; /* as asked; 0: none asked, -1: nothing is to be generated */
    struct td_stop_set stops;
    const json_t *tools; /* NULL: none, or not to be used */
    bool one_call;       /* parallel_tool_calls is false */
    bool stream, usage, running_usage;
    bool echo, show_ids, show_special;
    bool logprobs;           /* log probabilities are wanted */
    int32_t prompt_logprobs; /* alternatives, -1: none wanted */
};

/* Parse a body of n bytes. Release the ask after refusals too. False: *no says why. */
bool td_ask_chat(struct td_ask *a, const struct td_served *m, const char *body,
                 size_t n, struct td_refusal *no);
bool td_ask_completion(struct td_ask *a, const struct td_served *m, const char *body,
                       size_t n, struct td_refusal *no);
/* The prompt of /tokenize: a `prompt` text, or `messages` as in a chat. */
bool td_ask_tokenize(struct td_ask *a, const struct td_served *m, const char *body,
                     size_t n, struct td_refusal *no);
/* Gives back what only reading it needed: the body but for its tools, prompts' texts. */
void td_ask_trim(struct td_ask *a);
void td_ask_release(struct td_ask *a);

/* ---- for the files that parse ------------------------------------------------------- */

/* Fill a refusal; they return false. */
bool td_refuse(struct td_refusal *no, int status, const char *param, const char *fmt,
               ...) TD_PRINTF(4, 5);
bool td_refuse_error(struct td_refusal *no, const char *param,
                     const struct td_error *err);

/* Fields with their ranges; absent and null leave *out alone. */
bool td_field_int(const json_t *o, const char *key, int64_t lo, int64_t hi,
                  int64_t *out, struct td_refusal *no);
bool td_field_real(const json_t *o, const char *key, double lo, double hi, float *out,
                   struct td_refusal *no);
bool td_field_bool(const json_t *o, const char *key, bool *out, struct td_refusal *no);

/* Parses the body into a->body and sets everything to its defaults. */
bool td_ask_begin(struct td_ask *a, const struct td_served *m, const char *body,
                  size_t n, struct td_refusal *no);

/* The fields that all requests have. */
bool td_ask_common(struct td_ask *a, const struct td_served *m, struct td_refusal *no);

/* Messages, tools and template (chat.c): fills the only prompt. */
bool td_ask_messages(struct td_ask *a, const struct td_served *m,
                     struct td_refusal *no);

/* Encodes a prompt's text. */
bool td_ask_encode(const struct td_served *m, struct td_prompt *p, const char *param,
                   struct td_refusal *no);

#endif

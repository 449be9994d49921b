/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One answer on its way from token ids to text.
 *
 *     id -> detok -> stop strings -> parts -> content, reasoning, tool calls
 *
 * Everything is kept until the answer is over; what a stream has been sent already is
 * marked, so that a piece of a stream is simply what lies behind the marks. The engine
 * may die and another one go on with the same answer: nothing here changes by that.
 */
#ifndef TD_API_VOICE_H
#define TD_API_VOICE_H

#include "api/parts.h"
#include "api/request.h"
#include "api/stops.h"
#include "base/buf.h"
#include "engine/wire.h"
#include "text/detok.h"

#include <stdbool.h>
#include <stdint.h>

enum td_finish {
    TD_FINISHED_NOT,
    TD_FINISHED_STOP,
    TD_FINISHED_LENGTH,
    TD_FINISHED_CALLS
};

/* A token's log probability and its alternatives. */
struct td_scored {
    int32_t id, rank, first_top, n_top; /* n_top of td_voice.top */
    float logprob;
    bool none;       /* the first token of a prompt has no probability */
    uint64_t offset; /* characters of text before it */
};

struct td_scores {
    struct td_scored *list;
    struct td_logprob *top;
    size_t n, cap, n_top, cap_top;
};

struct td_voice {
    const struct td_served *served;
    const struct td_ask *ask;
    const struct td_prompt *prompt;
    struct td_detok detok;
    struct td_stops stops;
    struct td_parts parts;
    struct td_buf raw, shown; /* working space of one token */
    struct td_ids ids;        /* generated so far */
    struct td_scores scores;  /* of generated tokens */
    struct td_scores given;   /* of prompt tokens */
    uint64_t chars;           /* characters of text so far */
    int32_t reasoning_tokens;
    enum td_finish finish;
    int stop_string;       /* that ended it, -1 */
    int32_t stop_id;       /* that ended it, -1 */
    enum td_status status; /* first failure of a buffer */

    struct {
        size_t text[2], args, scores, ids;
        int calls; /* whose name was sent */
    } sent;
};

enum td_status td_voice_init(struct td_voice *v, const struct td_served *served,
                             const struct td_ask *ask, const struct td_prompt *prompt);
void td_voice_release(struct td_voice *v);

/* Takes a token. When this ends the answer (a stop string, a first tool call where only
 * one is wanted), v->finish says so. Errors: TD_E_NOMEM, TD_E_LIMIT. */
enum td_status td_voice_add(struct td_voice *v, const struct td_wire_token *t);

/* The engine's end: what was held back becomes text. */
enum td_status td_voice_end(struct td_voice *v, enum td_finish finish, int32_t stop_id);

/* Scores of a prompt's tokens, in order. `first` is the position; a position that is
 * already there (the engine started over) is ignored. */
enum td_status td_voice_given(struct td_voice *v,
                              const struct td_wire_prompt_logprobs *m);

/* Is there something that a stream has not been sent? */
bool td_voice_has_news(const struct td_voice *v);

/* Marks everything as sent. */
void td_voice_mark(struct td_voice *v);

#endif

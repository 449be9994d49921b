/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of answers, in OpenAI's form: whole ones, pieces of streams, errors.
 *
 * All functions append to a buffer, whose status says whether it fitted.
 */
#ifndef TD_API_REPLY_H
#define TD_API_REPLY_H

#include "api/request.h"
#include "api/voice.h"
#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* What is the same in all pieces of an answer. */
struct td_reply {
    const struct td_ask *ask;
    const struct td_served *served;
    char id[160];
    char call_seed[20]; /* begins the ids of tool calls */
    int64_t created;    /* seconds since 1970 */
};

struct td_usage {
    int64_t prompt, completion, cached, reasoning;
};

/* One piece of a stream, `data: {...}` and an empty line: what is new of an answer. first:
 * the answer's first piece; last: with the reason of its end; usage: so far, or NULL. */
void td_reply_chunk(struct td_buf *b, const struct td_reply *r,
                    const struct td_voice *v, int index, bool first, bool last,
                    const struct td_usage *usage);

/* The last piece of a stream: usage without choices. */
void td_reply_usage_chunk(struct td_buf *b, const struct td_reply *r,
                          const struct td_usage *usage);

/* A whole answer of n voices. */
void td_reply_whole(struct td_buf *b, const struct td_reply *r,
                    const struct td_voice *voices, int n, const struct td_usage *usage);

/* {"error": {...}} */
void td_reply_error(struct td_buf *b, const struct td_refusal *no);

/* "name": and a JSON string; a comma before it unless it is the first of its object. */
void td_reply_text(struct td_buf *b, const char *name, const char *text);

/* [1,2,3] */
void td_reply_ids(struct td_buf *b, const int32_t *ids, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of an answer: reasoning, content and tool calls, told apart as text streams
 * in. The tags between them belong to none and are never shown, nor is the white space
 * around them. Text that may yet become a tag is held back.
 *
 *     <think> REASONING </think> CONTENT <tool_call> CALL </tool_call> ...
 *
 * The prompt may have opened the first part already. Calls are also taken within
 * reasoning; behind a call the part before it goes on.
 */
#ifndef TD_API_PARTS_H
#define TD_API_PARTS_H

#include "api/toolcall.h"
#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum td_part { TD_PART_CONTENT, TD_PART_REASONING };

struct td_parts {
    bool think; /* think tags are tags */
    bool calls; /* tool calls are calls */
    enum td_part part;
    bool in_call;
    bool skip_space; /* at the beginning of a part, behind a tag */
    struct td_buf held;
    struct td_buf gap;     /* white space before the present call's tag */
    struct td_buf text[2]; /* by part: all of it so far */
    struct td_call *call;  /* all calls so far, the last may be open */
    int n_calls, max_calls;
    struct td_call_parser parser;
};

/* tools: the request's, NULL when calls are not looked for; borrowed. */
void td_parts_init(struct td_parts *p, bool think, const json_t *tools,
                   enum td_part first);
void td_parts_release(struct td_parts *p);

/* Both return TD_OK, TD_E_LIMIT or TD_E_NOMEM. */
enum td_status td_parts_add(struct td_parts *p, const char *text, size_t n);
enum td_status td_parts_end(struct td_parts *p);

/* Calls that are complete. */
int td_parts_calls_done(const struct td_parts *p);

#endif

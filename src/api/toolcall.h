/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tool calls as Qwen models write them, to names and JSON arguments, as they stream in.
 *
 *     <tool_call>
 *     <function=NAME>
 *     <parameter=KEY>
 *     VALUE
 *     </parameter>
 *     </function>
 *     </tool_call>
 *
 * This parser begins behind <tool_call>. A value is the text between the line breaks; what
 * it becomes in JSON is decided by the parameter's schema: a string stays as it is (and
 * streams piece by piece), everything else is kept until its end, and is a string after
 * all when it is not of the wanted type. Missing closing tags are forgiven. At every
 * moment the arguments are a beginning of valid JSON, and valid JSON at the end, even of
 * a call that was cut.
 */
#ifndef TD_API_TOOLCALL_H
#define TD_API_TOOLCALL_H

#include "base/arena.h"
#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A call as far as it is known. */
struct td_call {
    struct td_buf name;
    struct td_buf args; /* JSON text */
    bool done;
};

void td_call_init(struct td_call *c);
void td_call_release(struct td_call *c);

enum td_call_state {
    TD_CALL_HEAD,   /* before <function=NAME> */
    TD_CALL_BODY,   /* between parameters */
    TD_CALL_BREAK,  /* behind <parameter=KEY>, before the line break */
    TD_CALL_VALUE,  /* within a value */
    TD_CALL_CLOSING /* behind </function> */
};

struct td_call_parser {
    const json_t *tools; /* the request's, borrowed; NULL: no schemas */
    enum td_call_state state;
    const json_t *schema; /* of the function's parameters, NULL: unknown */
    unsigned types;       /* that the present value may have */
    bool skip;            /* a key that was there before: its value is dropped */
    int n_keys;
    struct td_arena keys;
    const char **key;    /* [TD_MAX_ARGUMENTS] in the arena */
    struct td_buf value; /* kept until its end, unless it streams */
};

void td_call_parser_init(struct td_call_parser *p, const json_t *tools);
void td_call_parser_release(struct td_call_parser *p);

/* Begins the next call. */
void td_call_parser_begin(struct td_call_parser *p);

enum td_call_result {
    TD_CALL_MORE, /* wants more text */
    TD_CALL_DONE, /* complete; the text behind it is not taken */
    TD_CALL_NONE  /* no call begins here: nothing was taken, it is ordinary text */
};

/* Takes *used of n bytes, what is left comes again with what follows. */
enum td_call_result td_call_parser_add(struct td_call_parser *p, const char *text,
                                       size_t n, size_t *used, struct td_call *out);

/* The text ends here, within the call: takes the rest, completes the JSON. False when
 * the call has no name yet: then there is none. */
bool td_call_parser_end(struct td_call_parser *p, const char *text, size_t n,
                        struct td_call *out);

#endif

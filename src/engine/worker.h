/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine as a process: requests come over a socket, tokens go back, step by step.
 *
 * The loop of rank 0:
 *
 *     read what has arrived (wait only when there is nothing to compute)
 *     scheduler plans -> states restored -> forward -> a token for each row with logits
 *     tokens of the step go out in one frame; what ended goes out as DONE
 *     scheduler commits -> states saved
 *
 * It ends when the front closes the connection, or after DRAIN when nothing runs.
 */
#ifndef TD_ENGINE_WORKER_H
#define TD_ENGINE_WORKER_H

#include "engine/engine.h"

struct td_worker_params {
    struct td_engine_params engine; /* max_rows and max_out are raised where needed */
    int fd;                         /* connected stream socket, becomes the worker's */
    const char *build;              /* build id for HELLO */
    int32_t vocab; /* ids that the tokenizer knows; others are never sampled */
    int32_t max_waiting;
};

/* Opens the engine, says HELLO, works until the end. Errors: those of
 * td_engine_open(), TD_E_PEER when the front does not speak the protocol, and what a
 * step reports. Requests that were there are not answered: the front has them all and
 * gives them to the next worker. */
enum td_status td_worker_run(const struct td_worker_params *params,
                             struct td_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front: HTTP requests on one side, the engine's socket on the other, and every
 * accepted request in between until its last byte is sent.
 *
 *     struct td_front *f;
 *     td_front_new(&params, &f, err);
 *     td_http_start() with td_front_head and td_front_handle, self = f
 *     td_front_loaded(f);            the tokenizer is there
 *     td_front_connected(), ...      from the supervisor's loop
 *     td_front_drain(f);             take nothing new
 *
 * All functions may be called from any thread.
 */
#ifndef TD_API_FRONT_H
#define TD_API_FRONT_H

#include "api/http.h"
#include "api/served.h"
#include "api/startup.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct td_front;

struct td_front_params {
    const struct td_served *served; /* its large files may still be missing */
    const char *version, *build;
    const char *key;      /* that clients must know, NULL: none */
    int max_queue;        /* answers that may wait for their turn */
    double queue_timeout; /* seconds that they may wait */
    double drain_timeout; /* seconds that running answers have at the end */
    size_t max_body;
    void *self;
    void (*wake)(void *self); /* a round is wanted soon */
    /* The engine has produced a real token; what the start's phases took, as text. */
    void (*ready)(void *self, const char *times);
    void (*stuck)(void *self, const struct td_error *why); /* the engine is silent */
    void (*drained)(void *self); /* nothing is left to answer */
};

enum td_status td_front_new(const struct td_front_params *params, struct td_front **out,
                            struct td_error *err);

/* All exchanges must be over: stop the HTTP server first. */
void td_front_free(struct td_front *f);

/* ---- HTTP (td_http_fn; self is the front) ------------------------------------------ */

void td_front_head(void *self, struct td_exchange *x);
void td_front_handle(void *self, struct td_exchange *x);

/* ---- the engine (as struct td_supervisor_params has them) --------------------------- */

/* How far loading is, over all ranks, as td_progress_format() wants it. */
void td_front_progress(struct td_front *f, struct td_num out[5]);

/* What the front itself does before there is an engine. */
void td_front_phase(struct td_front *f, enum td_phase phase);

void td_front_loaded(struct td_front *f);
void td_front_connected(struct td_front *f);
enum td_status td_front_received(struct td_front *f, const char *bytes, size_t n,
                                 size_t *used, struct td_error *err);
void td_front_event(struct td_front *f, const char *line, size_t n);
void td_front_beat(struct td_front *f, int rank, const struct td_sign *sign);
void td_front_lost(struct td_front *f, const struct td_error *why, double wait);
void td_front_put_off(struct td_front *f, const struct td_error *why, double wait);
double td_front_round(struct td_front *f, struct td_buf *out);

/* Refuses what comes from now on; `drained` is called when all answers are complete, or
 * have been cut after the drain timeout (at once when called again). */
void td_front_drain(struct td_front *f);

/* Appends the state as JSON: what /startupz gives. */
void td_front_state(struct td_front *f, struct td_buf *out);

#endif

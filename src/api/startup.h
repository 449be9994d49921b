/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's state, from its first moment to its last, for /startupz, /readyz and the
 * answers that are refused meanwhile.
 *
 *     STARTING --a token was produced--> READY --drain--> STOPPING
 *        ^                                 |
 *        +------- started again ------ LOST (the engine ended)
 *
 * Progress comes from the engine's event lines (base/log.h), each of which names its
 * rank: bytes and rates are added up, the phase is that of the rank that is behind. The
 * caller locks.
 */
#ifndef TD_API_STARTUP_H
#define TD_API_STARTUP_H

#include "base/buf.h"
#include "base/limits.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum td_life { TD_LIFE_STARTING, TD_LIFE_READY, TD_LIFE_LOST, TD_LIFE_STOPPING };

struct td_startup_rank {
    char host[TD_ERROR_HOST_MAX];
    enum td_phase phase;
    double bytes, of, rate, left; /* of its weights; left: seconds */
    double resident, available;   /* bytes: of the process, on the host; 0: unknown */
    double planned, limit, peak;  /* bytes of its process: by the plan, what it may be,
                                     the most until it was warm; 0: unknown */
    double heard_at;              /* when it was heard of last */
};

struct td_startup {
    enum td_life life;
    enum td_phase phase; /* of the rank that is behind */
    double bytes, of, rate, left;
    int ranks; /* known so far */
    struct td_startup_rank rank[TD_MAX_RANKS];
    double begun, ready_at; /* monotonic seconds; when this start began, was ready */
    double phase_at;        /* when its phase began */
    double spent[TD_PHASE_COUNT]; /* seconds of this start in each phase, until ready */
    double retry_at;              /* LOST: when it starts again */
    int restarts;
    struct td_error error; /* why the engine was lost last, code TD_OK: never */
    unsigned version;      /* rises with every change */
};

void td_startup_init(struct td_startup *s);
void td_startup_enter(struct td_startup *s, enum td_life life);

/* What the front itself does before there is an engine. */
void td_startup_phase(struct td_startup *s, enum td_phase phase);

/* Appends the phases of this start that took time: "launch 0.5 s, load 2.1 s". */
void td_startup_times(const struct td_startup *s, struct td_buf *b);

/* Takes an event line of the engine. */
void td_startup_event(struct td_startup *s, const char *line, size_t n);

/* A sign of life of a rank. */
struct td_sign {
    const char *host;
    double age;                 /* seconds ago */
    double resident, available; /* bytes: of its process, on its host */
};

void td_startup_beat(struct td_startup *s, int rank, const struct td_sign *sign);

/* Seconds after which asking again makes sense. */
int td_startup_retry_after(const struct td_startup *s);

/* Appends {"state":...}. */
void td_startup_json(const struct td_startup *s, struct td_buf *b);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What watch.c and watch_cause.c share.
 */
#ifndef TD_LAUNCH_WATCH_INT_H
#define TD_LAUNCH_WATCH_INT_H

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "launch/watch.h"

struct rank {
    char host[TD_ERROR_HOST_MAX], phase[16];
    uint64_t step;
    double resident, available, kills; /* as its last heartbeat told them */
    double beat_at, step_at;           /* last heartbeat, last step seen; 0: none yet */
    struct td_buf part;                /* the beginning of a line */
};

struct trouble;

struct td_watch {
    struct td_watch_params params;
    int ranks;
    struct rank rank[TD_MAX_RANKS];
    double started, looked;
    struct td_error said;          /* the best error event of a rank so far */
    struct td_error trouble;       /* the first known sentence of mpirun's */
    const struct trouble *pending; /* its kind, while the host's name may follow */
    bool fatal;                    /* it is one after which ending is better */
    bool judged;                   /* td_watch_late() has spoken */
    int killed, signal;            /* what mpirun said of a rank's end */
};

/* A line of mpirun's own. */
void td_watch_note(struct td_watch *w, const char *line, size_t n);

#endif

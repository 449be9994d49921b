/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: what happened, for machines. One JSON object a line:
 *
 *     {"t":1764416520.125,"host":"spark-1","rank":0,"pid":4711,"phase":"load",
 *      "event":"progress","n":{"bytes":1048576,"of":4194304}}
 *
 * with "code", "what", "why" and "fix" as well when the event is an error. Start-up
 * state, progress bars, `tandem status` and `tandem explain` read this stream; nothing
 * reads text meant for people.
 *
 * An event goes to the event log file, to a parent's descriptor and to a listener of
 * this process, whichever are set. Writing is thread-safe; a line is written with one
 * write() so that lines of several processes do not mix. A sink that fails is dropped:
 * logging never stops the work.
 */
#ifndef TD_BASE_LOG_H
#define TD_BASE_LOG_H

#include "base/status.h"

#include <stddef.h>

/* A number of an event. Lists end with a NULL key. */
struct td_num {
    const char *key;
    double value;
};

struct td_event {
    double t; /* wall clock, seconds since 1970 */
    enum td_phase phase;
    const char *name;             /* "phase", "progress", "error", ... */
    const struct td_num *nums;    /* may be NULL */
    const struct td_error *error; /* NULL unless this is a failure */
};

typedef void (*td_event_fn)(void *self, const struct td_event *event);

/* This process's rank in its events, -1 (the front, a command) until set. */
void td_log_set_rank(int rank);

/* Appends events to a file (made with mode 0600), replacing any file set before. */
enum td_status td_log_open(const char *path, struct td_error *err);
void td_log_close(void);

/* The file that was opened last, "" when none was; borrowed until the next one is. */
const char *td_log_path(void);

/* Why nothing more is written to the file that was opened last, as an errno; 0: all that
 * happened is in it. */
int td_log_lost(void);

/* Also writes events to a descriptor that stays the caller's; -1 switches that off. */
void td_log_set_fd(int fd);

/* Also calls fn, from the thread where the event happens; NULL switches that off. */
void td_log_set_listener(td_event_fn fn, void *self);

/* Appends an event line of another process, n bytes without a newline, to the file. */
void td_log_line(const char *line, size_t n);

/* Emits an event of the current phase. nums may be NULL. */
void td_event(const char *name, const struct td_num *nums);

/* Emits an "error" event. */
void td_event_error(const struct td_error *err);

/* Sets the phase and emits a "phase" event. */
void td_event_phase(enum td_phase phase);

#endif

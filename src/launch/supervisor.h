/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps one engine process running and carries bytes between it and the front.
 *
 *     DOWN --start--> STARTING --connects--> CONNECTED
 *      ^                  |                      |
 *      +---- wait <-------+------- ended <-------+
 *
 * The engine is a child that connects to a Unix socket in a folder of mode 0700. Its
 * standard output brings event lines (base/log.h), its standard error is kept for the
 * cause. When it ends, the cause is found and reported, and it is started again: at once
 * after the first time, later after longer and longer waits. What ends it for good is an
 * orderly failure before it ever worked (waiting would not help), or
 * TD_MAX_ENGINE_FAILURES failures in a row; td_supervisor_works() starts a new row.
 *
 * With several ranks the child is mpirun, and its output is read through launch/watch.h:
 * a rank that is late ends all of them, as does a rank that dies. mpirun is told to end
 * with SIGTERM and killed a second later; ranks that it leaves behind end themselves.
 *
 * td_supervisor_run() is the front's main loop; all callbacks come from it, and but for
 * td_supervisor_wake() and _stop() all functions belong to its thread.
 */
#ifndef TD_LAUNCH_SUPERVISOR_H
#define TD_LAUNCH_SUPERVISOR_H

#include "base/buf.h"
#include "base/status.h"
#include "launch/watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct td_supervisor;

/* May the engine be started again? */
enum td_again {
    TD_AGAIN_YES,
    TD_AGAIN_NO,
    TD_AGAIN_WAIT /* not known yet: wake the supervisor when it is */
};

struct td_supervisor_params {
    char *const *argv; /* the command. Borrowed. */
    size_t socket_at;  /* --socket PATH comes before this word of it; 0: behind all */
    bool once;         /* never started again; with status 0 it ends in order */
    /* Several ranks: how mpirun starts them; `command` and `tagged` are set here. NULL:
     * the command is the engine. Borrowed. */
    struct td_mpi_job *job;
    struct td_watch_limits limits; /* of the ranks */
    void *self;                    /* for the callbacks */

    /* The engine is there; what is sent from now on goes to it. */
    void (*connected)(void *self);
    /* n bytes have arrived: says in *used how many were taken; the rest comes again
     * with what follows. An error ends the engine, its text is the cause. */
    enum td_status (*received)(void *self, const char *bytes, size_t n, size_t *used,
                               struct td_error *err);
    /* An event line of n bytes, without its newline. */
    void (*event)(void *self, const char *line, size_t n);
    /* A line of text: a rank's standard error, or (rank -1) mpirun's. */
    void (*words)(void *self, int rank, const char *line, size_t n);
    /* Several ranks: this one was killed. Replaces err by more, if its host's kernel
     * knows more. May take seconds; may be NULL. */
    void (*examine)(void *self, int rank, const struct td_watch_rank *r,
                    struct td_error *err);
    /* The engine has ended; it is started again after `wait` seconds, below 0: never. */
    void (*lost)(void *self, const struct td_error *why, double wait);
    /* Before a start that is not the first: is what it needs there (the hosts)? Asked
     * until it is known, and after NO, whose reason is in *why, again and again: without
     * end once the engine has worked. NULL: always. Never waits. */
    enum td_again (*again)(void *self, struct td_error *why);
    /* It said NO for this reason; the next look comes after `wait` seconds. */
    void (*put_off)(void *self, const struct td_error *why, double wait);
    /* Each round: hands over what is to be sent (appends to out), and says after how
     * many seconds the next round is wanted at the latest. */
    double (*round)(void *self, struct td_buf *out);
};

enum td_status td_supervisor_new(const struct td_supervisor_params *params,
                                 struct td_supervisor **out, struct td_error *err);

/* Runs until td_supervisor_stop(), then ends the engine: TD_OK. Fails with the engine's
 * cause when it is not started again. `once`: TD_OK too when it ends with status 0. */
enum td_status td_supervisor_run(struct td_supervisor *s, struct td_error *err);
void td_supervisor_free(struct td_supervisor *s);

/* The engine has done real work: failures so far do not count any more. */
void td_supervisor_works(struct td_supervisor *s);

/* Ends the engine (it is killed if it does not), for this reason; then as if it had
 * ended by itself. */
void td_supervisor_end_engine(struct td_supervisor *s, const struct td_error *why);

/* For tests: the engine's process, 0 when there is none. */
int td_supervisor_pid(const struct td_supervisor *s);

/* Gives this process's standard files to the engine (rank 0), which is connected
 * (launch/hand.h). *pid is its process. */
enum td_status td_supervisor_hand_over(struct td_supervisor *s, pid_t *pid,
                                       struct td_error *err);

/* What is known of each rank; their number, 0 when there is one engine only. */
int td_supervisor_ranks(const struct td_supervisor *s,
                        struct td_watch_rank out[TD_MAX_RANKS]);

/* Starts a round soon; ends the loop. From any thread, also from a signal handler. */
void td_supervisor_wake(struct td_supervisor *s);
void td_supervisor_stop(struct td_supervisor *s);

#endif

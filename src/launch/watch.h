/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of the ranks of one job, from what mpirun prints: whose event or
 * heartbeat a line is, which rank has missed a deadline, and why the job ended.
 *
 * mpirun puts `[1,RANK]<stdout>:` before each line and reads in pieces of a few KiB, so
 * that a long line, or one behind many others, comes as two with a tag each: they are
 * joined again. What comes without a tag is mpirun's own.
 *
 * A rank is late when it is silent, or when its step stands still. If this process slept
 * itself, nobody is blamed for it.
 *
 * Of everything that goes wrong at an end, the first cause is what is looked for, in
 * this order: an error that a rank reported and that is more than the loss of another; a
 * rank that was killed; a rank that was late; a host that mpirun lost; a start that
 * failed (ssh, program, libraries); anything else.
 */
#ifndef TD_LAUNCH_WATCH_H
#define TD_LAUNCH_WATCH_H

#include "base/json.h"
#include "base/status.h"
#include "launch/mpi_line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Seconds. */
struct td_watch_limits {
    double first;  /* until all ranks have been heard of */
    double silent; /* without a heartbeat */
    double still;  /* without a step while serving: behind the ranks' own watchdog */
    double load;   /* the same in all other phases */
};

struct td_watch_params {
    const struct td_mpi_job *job; /* borrowed */
    struct td_watch_limits limits;
    void *self;
    /* An event line of a rank, without its newline. */
    void (*event)(void *self, int rank, const char *line, size_t n);
    /* Text: a rank's, or (-1) mpirun's. */
    void (*words)(void *self, int rank, const char *line, size_t n);
};

/* A rank, as it is shown to people. */
struct td_watch_rank {
    const char *host; /* the host's own name where it is known */
    char phase[16];   /* "" until it was heard of */
    uint64_t step;
    double age;                 /* seconds since its last heartbeat, -1: none yet */
    double resident, available; /* bytes, when it was heard of last; 0: unknown */
    double kills;               /* for lack of memory on its host, until then */
};

struct td_watch;

enum td_status td_watch_new(const struct td_watch_params *params, struct td_watch **out,
                            struct td_error *err);
void td_watch_free(struct td_watch *w);

/* Forgets all; a job is started now. Times are td_clock_now()'s. */
void td_watch_start(struct td_watch *w, double now);

/* Takes a line of mpirun's standard output or error, without its newline. */
void td_watch_out(struct td_watch *w, const char *line, size_t n, double now);
void td_watch_err(struct td_watch *w, const char *line, size_t n);

/* True once: a rank is late, or mpirun said something after which going on is worse
 * than ending; err says what. Ask at least as often as td_watch_wait() says. */
bool td_watch_late(struct td_watch *w, double now, struct td_error *err);
double td_watch_wait(const struct td_watch *w, double now);

/* Why the job ended; status is mpirun's, as from waitpid(), `words` the last lines that it
 * wrote. *killed is the rank that was killed by SIGKILL, or -1: the kernel of its host
 * may know more. */
void td_watch_cause(const struct td_watch *w, int status, const char *words,
                    struct td_error *err, int *killed);

/* Copies what is known of each rank; returns their number. */
int td_watch_ranks(const struct td_watch *w, double now,
                   struct td_watch_rank out[TD_MAX_RANKS]);

/* An error event as an error record. */
void td_watch_read_error(const json_t *o, struct td_error *err);

#endif

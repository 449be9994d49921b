/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank as a process: what it is started with, what it says, how it ends. The contract
 * between the ranks and whoever starts them, and the threads that keep it.
 *
 * Command line, the same on every rank, under mpirun:
 *
 *     tandem worker MODEL --world N --socket PATH --vocab N ...   of `tandem serve`
 *     tandem run MODEL --world N ...                              of `tandem run --tp N`
 *     tandem bench MODEL --world N ...                            of `tandem bench --tp N`
 *
 * N is the number of ranks that were started; a rank that finds another number in MPI
 * fails. Rank 0 runs the verb (it alone connects to PATH, reads standard input and
 * prints results); the others follow its steps. Only rank 0's options count for what the
 * engine does; the number of threads and the memory are each rank's own. Also read,
 * from the command line, from the environment or from tandem.conf:
 *
 *     --rank-timeout S    TANDEM_RANK_TIMEOUT   3     a step that stands still, rank 0
 *                                                     that is silent while it is idle
 *     --load-timeout S    TANDEM_LOAD_TIMEOUT   300   the same until the first step
 *
 * Both are long enough for a machine that is shared, and may be shortened by tests.
 *
 * Standard output of `worker`: lines, each written whole with one write():
 *
 *     {"t":...,"host":...,"rank":R,...}      an event (base/log.h)
 *     @hb RANK HOST SEQ STEP PHASE RESIDENT AVAILABLE KILLS
 *                                            a heartbeat, every 250 ms from a thread
 *                                            that does nothing else; only with N > 1
 *
 * SEQ counts the lines. STEP rises whenever the rank gets on: at every all-reduce of a
 * step (two in a layer), at every read while it loads, and with rank 0's ticks, twice a
 * second, while it is idle. RESIDENT and AVAILABLE are bytes of memory, KILLS is how often
 * the kernel has killed for lack of it, all as they were at most a second ago. PHASE is
 * the name of td_phase_now(). HOST is what gethostname() says.
 *
 * `run` and `bench` with --socket PATH: rank 0 gets its standard files there (from
 * launch/hand.h) and all ranks write events and heartbeats to the output they were started
 * with; the launcher prints failures. Without it they write neither: their standard output
 * is what the user asked for, their failures are printed on standard error by the rank
 * that has them.
 *
 * A failure is reported by an "error" event of the rank where it happened. If it happened
 * before the first step, all ranks learn it and report it as an event too, with the
 * host and rank of its origin. Exit codes with N > 1:
 *
 *     0    an orderly end, on all ranks
 *     64   wrong usage
 *     70   a failure; the event tells it, and where it happened
 *     74   another rank was lost: waited for too long, or no messages reach it
 *     75   the watchdog: this rank stood still, or rank 0 was silent, for too long
 *
 * MPI_Finalize() is reached in an orderly end and after failures that all ranks know
 * of; in all other cases the process just ends, and mpirun ends the others. MPI waits there
 * for its daemons without end; a rank leaves after TD_RANK_FAREWELL seconds in any case.
 */
#ifndef TD_ENGINE_RANKS_H
#define TD_ENGINE_RANKS_H

#include "comm/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_rank_exit {
    TD_RANK_EXIT_USAGE = 64,
    TD_RANK_EXIT_FAILED = 70,
    TD_RANK_EXIT_PEER = 74,
    TD_RANK_EXIT_WATCHDOG = 75
};

enum { TD_RANK_FAREWELL = 5 };

enum { TD_BEAT_MAX = 256 }; /* bytes of a heartbeat line, its newline included */

#define TD_BEAT_EVERY 0.25 /* seconds */

struct td_beat {
    int rank;
    uint64_t seq, step;
    char host[TD_ERROR_HOST_MAX];
    char phase[16];
    uint64_t resident, available; /* bytes: of this process, on its host; 0: unknown */
    uint64_t kills; /* for lack of memory, on its host so far (base/oom.h) */
};

/* Writes the line, with newline and final zero; returns its length without the zero. */
size_t td_beat_format(const struct td_beat *b, char out[TD_BEAT_MAX]);

/* Reads a line of n bytes (with or without its newline); false: not a heartbeat. */
bool td_beat_parse(const char *line, size_t n, struct td_beat *out);

struct td_ranks_params {
    struct td_comm *comm; /* borrowed until td_ranks_stop() */
    int beat_fd;          /* where heartbeats go, -1: none */
    double rank_timeout;  /* seconds without progress of comm while serving */
    double load_timeout;  /* the same in all other phases */
    /* This rank must not go on, whatever its other threads do: reports err as an event
     * and ends the process with exit_code. Called from the watchdog's thread. (Tests
     * return from it.) */
    void (*leave)(void *self, const struct td_error *err, int exit_code);
    void *self;
};

struct td_ranks;

/* Starts the heartbeat and watchdog threads of this process. */
enum td_status td_ranks_start(const struct td_ranks_params *params,
                              struct td_ranks **out, struct td_error *err);
void td_ranks_stop(struct td_ranks *r);

#endif

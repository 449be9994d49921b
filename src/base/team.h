/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team of threads for loops, made for steps of a few microseconds.
 *
 *     td_team_new(4, &team, err);
 *     td_team_run(team, n, 1, body, &args);   body(&args, first, last) covers 0 .. n
 *     td_team_free(team);
 *
 * The calling thread is one of the team's. Each thread first takes its own run of
 * consecutive items, in the order of their numbers, then what is left of the others'
 * runs. So no loop waits for a thread that another program keeps from running: the
 * others do its share. Only what a thread has begun is waited for.
 *
 * Threads that wait look at memory for some microseconds, which is how long the gaps
 * inside a step are, and then sleep. A team that has nothing to do uses no processor.
 */
#ifndef TD_BASE_TEAM_H
#define TD_BASE_TEAM_H

#include "base/status.h"

#include <stdint.h>

enum { TD_TEAM_MAX_THREADS = 256 };

struct td_team;
struct td_cores;

/* Items first .. last of a loop. */
typedef void (*td_team_fn)(void *arg, int64_t first, int64_t last);

/* Starts threads - 1 threads (1 .. TD_TEAM_MAX_THREADS threads in all); they take no
 * signals. With `cores` (borrowed, may be NULL) each thread is bound to its cores: the
 * caller's in its first loop, so that threads which it started before run anywhere.
 * TD_E_NOMEM when the system gives no more threads. */
enum td_status td_team_new(int threads, const struct td_cores *cores,
                           struct td_team **out, struct td_error *err);

/* Ends the threads, and the binding of a caller that calls it. NULL is allowed. */
void td_team_free(struct td_team *p);

/* Calls fn for all items 0 .. n, `step` of them at a time (0: chosen, for items that
 * cost the same), and returns when all are done. How items are shared out is not
 * fixed; what one thread wrote before its items were done is seen by the caller and by
 * later loops. One loop at a time, called by one thread that belongs to no team; fn calls
 * no loop. */
void td_team_run(struct td_team *p, int64_t n, int64_t step, td_team_fn fn, void *arg);

int td_team_threads(const struct td_team *p);

/* Number of the calling thread in its team, 0 for the one that calls loops. */
int td_team_index(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ranks that work as one engine.
 *
 *     td_world_open()     on every rank: the watch of this process begins
 *     td_engine_open()    on rank 0, with params.world: all ranks open their slice
 *     td_world_follow()   on the others: makes the calls that rank 0 makes, until it ends
 *     td_world_close()
 *
 * Rank 0 tells the others what to do in one message for each call of its engine
 * (step.h), so that whoever uses an engine knows nothing of ranks. While it has nothing
 * to say it sends ticks from a thread of its own, which the others answer: neither side
 * waits for one that is gone.
 *
 * The second half is for the engine. Rank 0 holds the lock from a message to the end of
 * what it asks for.
 */
#ifndef TD_ENGINE_WORLD_H
#define TD_ENGINE_WORLD_H

#include "comm/comm.h"
#include "engine/step.h"

struct td_engine_params;
struct td_world;

struct td_world_params {
    struct td_comm *comm; /* becomes the world's */
    const char *build;    /* of this program; must be the same on all ranks */
    int beat_fd;          /* see ranks.h */
    double rank_timeout, load_timeout;
    /* See ranks.h; also for a rank 0 that misses another one while it is idle. */
    void (*leave)(void *self, const struct td_error *err, int exit_code);
    void *self;
};

enum td_status td_world_open(const struct td_world_params *params,
                             struct td_world **out, struct td_error *err);

int td_world_rank(const struct td_world *w);
struct td_comm *td_world_comm(const struct td_world *w);

/* own: this rank's parameters; limits and numerics are those of rank 0's engine. Returns
 * TD_OK after rank 0's td_world_close(), or the failure that ends this rank. */
enum td_status td_world_follow(struct td_world *w, const struct td_engine_params *own,
                               struct td_error *err);

/* Ends it. If all ranks know that it ends (rank 0's word, or a failure that was agreed
 * on), they wait for each other; else it is the end of this process that ends them. */
void td_world_close(struct td_world *w);

/* ---- for the engine ----------------------------------------------------------------- */

void td_world_lock(struct td_world *w);
void td_world_unlock(struct td_world *w);

/* Rank 0: sends a message to all others; locked. */
enum td_status td_world_send(struct td_world *w, const struct td_buf *message,
                             struct td_error *err);

/* Something failed in the middle of what all ranks do: no message can follow. */
void td_world_fail(struct td_world *w);

/* All ranks: is what each of them did all right? Else every rank gets the first cause,
 * that of the lowest rank which does not merely miss another one, with rank and host in
 * err. A failure that is agreed on ends the world orderly. */
enum td_status td_world_agree(struct td_world *w, enum td_status own,
                              struct td_error *err);

/* All ranks: refuses a mix of builds, processors or numerics, naming both hosts. `level`
 * is the number of this rank's best level of operations, -1 for none; it becomes the
 * lowest of all. */
enum td_status td_world_hello(struct td_world *w, int numerics, int32_t *level,
                              struct td_error *err);

/* All ranks: refuses different models, naming both hosts. */
enum td_status td_world_same_model(struct td_world *w, uint64_t fingerprint,
                                   struct td_error *err);

/* How long the next waits may last: those of a step, or those of loading, where this
 * rank took so many seconds. */
void td_world_wait_steps(struct td_world *w);
void td_world_wait_load(struct td_world *w, double seconds);

#endif

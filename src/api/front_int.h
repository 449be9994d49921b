/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the front: requests (jobs), their answers (seqs), and the state they share.
 *
 * A job has prompts times n answers. An answer is a seq:
 *
 *     QUEUED --front_round--> SENT --token...--> ENDED --DONE--> OVER
 *        ^                     |
 *        +---- engine lost ----+
 *
 *     QUEUED  waits here for its turn (TD_MAX_SEQUENCES at most, over all jobs)
 *     SENT    the engine has it, under the id `wire`
 *     ENDED   its text is complete, or it was given up; the engine was told to stop and
 *             its DONE is still to come
 *     OVER    nothing refers to it any more
 *
 * A job is freed when all its seqs are OVER and its reply is complete. Everything is
 * guarded by the front's lock, which is taken before any lock of an exchange.
 */
#ifndef TD_API_FRONT_INT_H
#define TD_API_FRONT_INT_H

#include "api/front.h"
#include "api/metrics.h"
#include "api/reply.h"
#include "api/request.h"
#include "api/startup.h"
#include "api/voice.h"
#include "base/limits.h"
#include "engine/wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum td_seq_state { TD_SEQ_QUEUED, TD_SEQ_SENT, TD_SEQ_ENDED, TD_SEQ_OVER };

struct td_job;

struct td_seq {
    struct td_job *job;
    struct td_voice *voice;
    enum td_seq_state state;
    int index;     /* within the job, the choice's index */
    uint64_t wire; /* its id at the engine */
    int32_t max_tokens;
    int32_t cached;
    int deaths;   /* engines that ended while they computed it */
    bool running; /* this engine has surely begun with it */
    bool cancel;  /* CANCEL is to be sent */
    bool spoken;  /* its first piece was sent */
    double last_at;
    struct td_seq *next; /* in the queue, by age */
};

struct td_job {
    struct td_job *next, **at; /* the front's list, newest first */
    uint64_t serial;
    struct td_exchange *exchange;
    struct td_ask ask;
    struct td_reply reply;
    struct td_voice *voices;
    struct td_seq *seqs;
    int n;
    double arrived, last_write;
    bool started; /* a token has come */
    bool closed;  /* the reply is complete, or the client is gone */
};

struct td_front {
    struct td_front_params params;
    pthread_mutex_t lock;
    bool loaded, connected, draining, told_drained;
    bool say_hello, probe; /* to be sent */
    double drain_by;
    double heard_at; /* last sign of life of an engine that has work */
    struct td_startup startup;
    struct td_metrics metrics;
    struct td_job *jobs;
    uint64_t serials, wires;
    struct td_seq *queue;                     /* oldest first */
    struct td_seq *by_slot[TD_MAX_SEQUENCES]; /* what the engine has */
    int n_queued, n_sent;                     /* n_sent: slots in use */
    double timers_at;                         /* when they ran last */
    struct td_exchange **watchers;            /* open streams of /startupz */
    int n_watchers, max_watchers;
    unsigned watched_version;
    double watched_at;
    double started_at, rate_at, prompt_rate, token_rate; /* tokens per second */
    uint64_t rate_prompt, rate_tokens;
};

/* ---- jobs.c: answers ----------------------------------------------------------------- */

/* Takes an ask (also on failure) and answers it, at once when it is refused. */
void td_job_accept(struct td_front *f, struct td_exchange *x, struct td_ask *ask);

void td_job_token(struct td_front *f, const struct td_wire_token *t);
void td_job_given(struct td_front *f, const struct td_wire_prompt_logprobs *m);
void td_job_done(struct td_front *f, const struct td_wire_done *d);

/* The engine has ended: what it had waits again. */
void td_jobs_engine_lost(struct td_front *f, bool for_good);

/* Appends what the engine is to be told. */
void td_jobs_send(struct td_front *f, struct td_buf *out);

/* Ages and keep-alives; cheap enough for a few times a second. */
void td_jobs_timers(struct td_front *f, double now);

/* Ends all jobs that there are. */
void td_jobs_fail_all(struct td_front *f, const struct td_refusal *no);
void td_jobs_free(struct td_front *f);

/* ---- status.c ------------------------------------------------------------------------ */

/* A refusal with the state of a server that is not ready. */
void td_front_not_ready(struct td_front *f, struct td_refusal *no);

void td_front_startupz(struct td_front *f, struct td_exchange *x);
void td_front_status(struct td_front *f, struct td_buf *b);
void td_front_tell_watchers(struct td_front *f, double now, bool last);
void td_front_rates(struct td_front *f, double now);

/* ---- routes.c ------------------------------------------------------------------------ */

void td_refuse_exchange(struct td_exchange *x, const struct td_refusal *no);

#endif

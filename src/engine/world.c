/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ranks that work as one engine. See world.h.
 *
 * MPI may be used by one thread at a time: on rank 0 by whoever holds the lock, on the
 * others by the thread that follows.
 */
#define _POSIX_C_SOURCE 200809L
#include "engine/world.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/engine_int.h"
#include "engine/ranks.h"

#include <pthread.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define TICK_EVERY 0.5 /* seconds, or a sixth of the time that ranks wait */
#define WAIT_SHARE 0.8 /* of the watchdog's time: a wait that is too long names whom */

struct td_world {
    struct td_world_params params;
    struct td_comm *comm;
    struct td_ranks *ranks;
    char host[TD_ERROR_HOST_MAX];

    pthread_mutex_t lock; /* of comm and what follows, on rank 0 */
    pthread_cond_t ended;
    pthread_t ticker;
    bool ticking, stop;
    double sent; /* when the last message was */
    bool over;   /* all ranks know that no message follows */
    bool broken; /* a rank may be left in the middle of something */

    int32_t *words; /* message that was received last */
    size_t room;    /* bytes */
};

int td_world_rank(const struct td_world *w)
{
    return w->comm->rank;
}

struct td_comm *td_world_comm(const struct td_world *w)
{
    return w->comm;
}

void td_world_lock(struct td_world *w)
{
    (void)pthread_mutex_lock(&w->lock);
}

void td_world_unlock(struct td_world *w)
{
    (void)pthread_mutex_unlock(&w->lock);
}

void td_world_fail(struct td_world *w)
{
    w->broken = true;
}

void td_world_wait_steps(struct td_world *w)
{
    w->comm->deadline = w->params.rank_timeout * WAIT_SHARE;
}

void td_world_wait_load(struct td_world *w, double seconds)
{
    w->comm->deadline = w->params.load_timeout + 4 * seconds;
}

/* ---- messages ---------------------------------------------------------------------- */

enum td_status td_world_send(struct td_world *w, const struct td_buf *message,
                             struct td_error *err)
{
    struct td_comm *c = w->comm;
    char head[TD_STEP_HEAD] = {0};
    size_t first = TD_MIN(message->len, sizeof(head));
    if (message->status != TD_OK)
        return td_error_set(err, message->status, "no memory for a step's message");
    if (w->broken || w->over)
        return td_error_set(err, TD_E_PEER, "the ranks do not work together any more");
    memcpy(head, message->p, first);
    enum td_status s = c->ops->broadcast(c, head, sizeof(head), err);
    if (s == TD_OK && message->len > first)
        s = c->ops->broadcast(c, message->p + first, message->len - first, err);
    w->sent = td_clock_now();
    w->broken = s != TD_OK;
    return s;
}

static enum td_status receive(struct td_world *w, size_t *bytes, struct td_error *err)
{
    struct td_comm *c = w->comm;
    int32_t head[TD_STEP_HEAD / sizeof(int32_t)];
    enum td_status s = c->ops->broadcast(c, head, sizeof(head), err);
    if (s != TD_OK)
        return s;
    *bytes = td_step_bytes(head);
    if (*bytes == 0)
        return td_error_set(err, TD_E_PEER, "a step of rank 0 cannot be read");
    if (*bytes > w->room) {
        int32_t *more = td_realloc(w->words, *bytes, 2);
        if (!more)
            return td_error_set(err, TD_E_NOMEM, "no memory for a step's message");
        w->words = more;
        w->room = 2 * *bytes;
    }
    size_t first = TD_MIN(*bytes, sizeof(head));
    memcpy(w->words, head, first);
    if (*bytes > first)
        s = c->ops->broadcast(c, (char *)w->words + first, *bytes - first, err);
    return s;
}

/* ---- ticks ------------------------------------------------------------------------- */

/* A message without work, answered by all. */
static enum td_status tick(struct td_world *w, struct td_error *err)
{
    struct td_buf b;
    td_buf_init(&b, TD_STEP_HEAD);
    td_step_put(&b, TD_STEP_TICK, NULL, 0);
    enum td_status s = td_world_send(w, &b, err);
    td_buf_release(&b);
    if (s == TD_OK)
        s = w->comm->ops->barrier(w->comm, err);
    w->broken = s != TD_OK;
    return s;
}

static void *send_ticks(void *arg)
{
    struct td_world *w = arg;
    double every = TD_MIN(TICK_EVERY, w->params.rank_timeout / 6);
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop && !w->broken && !w->over) {
        struct timespec until;
        struct td_error err;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(every / 2 * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&w->ended, &w->lock, &until);
        if (w->stop || w->broken || w->over || td_clock_now() - w->sent < every)
            continue;
        td_error_init(&err);
        /* nobody else would notice while nothing is computed */
        if (tick(w, &err) != TD_OK)
            w->params.leave(w->params.self, &err, TD_RANK_EXIT_PEER);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- agreement --------------------------------------------------------------------- */

/* What one rank says of itself. */
struct report {
    int32_t status;
    struct td_error error;
};

static bool is_consequence(enum td_status s)
{
    return s == TD_E_PEER || s == TD_E_TIMEOUT || s == TD_E_CANCELLED;
}

/* The report that tells the cause; of a lone failure that one. */
static int find_cause(const struct report *all, int ranks)
{
    int cause = -1;
    for (int r = 0; r < ranks; r++) {
        if (all[r].status == TD_OK)
            continue;
        if (cause < 0 || (is_consequence((enum td_status)all[cause].status) &&
                          !is_consequence((enum td_status)all[r].status)))
            cause = r;
    }
    return cause;
}

enum td_status td_world_agree(struct td_world *w, enum td_status own,
                              struct td_error *err)
{
    struct td_comm *c = w->comm;
    struct report *all = td_calloc((size_t)c->ranks + 1, sizeof(*all));
    if (!all)
        return td_error_set(err, TD_E_NOMEM, "no memory for %d ranks", c->ranks);
    struct report *mine = &all[c->ranks];
    mine->status = own;
    if (own != TD_OK && err)
        mine->error = *err;
    if (own != TD_OK) {
        mine->error.rank = c->rank;
        memcpy(mine->error.host, w->host, sizeof(w->host));
    }
    enum td_status s = c->ops->gather(c, mine, sizeof(*mine), all, NULL);
    if (s == TD_OK && c->rank == 0) {
        int cause = find_cause(all, c->ranks);
        *mine = cause < 0 ? (struct report){0} : all[cause];
    }
    if (s == TD_OK)
        s = c->ops->broadcast(c, mine, sizeof(*mine), own == TD_OK ? err : NULL);
    else if (own == TD_OK)
        s = td_error_set(err, s, "waited in vain for the other ranks");
    if (s == TD_OK) {
        w->over = mine->status != TD_OK;
        s = (enum td_status)mine->status;
        if (s != TD_OK && err)
            *err = mine->error;
    } else {
        w->broken = true;
        s = own == TD_OK ? s : own;
    }
    td_free(all);
    return s;
}

struct hello {
    char build[64], machine[32];
    int32_t numerics, level;
};

static enum td_status differ(const struct td_world *w, int rank, const char *what,
                             const char *first, const char *other, struct td_error *err)
{
    td_error_set(err, TD_E_MIX, "rank %d on %s has another %s than rank 0 on %s", rank,
                 td_comm_host(w->comm, rank), what, td_comm_host(w->comm, 0));
    td_error_why(err, "%s there, %s here", other, first);
    return TD_E_MIX;
}

/* Gathers what every rank has to say, and tells it to all. */
static enum td_status share(struct td_world *w, const void *mine, size_t bytes,
                            void *all, struct td_error *err)
{
    struct td_comm *c = w->comm;
    enum td_status s = c->ops->gather(c, mine, bytes, all, err);
    if (s == TD_OK)
        s = c->ops->broadcast(c, all, bytes * (size_t)c->ranks, err);
    if (s != TD_OK)
        w->broken = true;
    return s;
}

/* The same verdict on every rank, so that a refusal is one that all know of. */
static enum td_status judge(struct td_world *w, const struct hello *all, int32_t *level,
                            struct td_error *err)
{
    static const char *const numerics[] = {"f32", "bf16"};
    for (int r = 0; r < w->comm->ranks; r++) {
        const struct hello *h = &all[r];
        if (strcmp(h->build, all->build) != 0)
            return differ(w, r, "build of tandem", all->build, h->build, err);
        if (strcmp(h->machine, all->machine) != 0)
            return differ(w, r, "kind of processor", all->machine, h->machine, err);
        if (h->numerics != all->numerics)
            return differ(w, r, "--numerics", numerics[all->numerics & 1],
                          numerics[h->numerics & 1], err);
        *level = TD_MIN(*level, h->level);
    }
    return TD_OK;
}

enum td_status td_world_hello(struct td_world *w, int numerics, int32_t *level,
                              struct td_error *err)
{
    struct hello mine = {.numerics = numerics, .level = *level};
    struct hello all[TD_MAX_RANKS];
    struct utsname name;
    if (uname(&name) == 0)
        td_text_copy(mine.machine, sizeof(mine.machine), name.machine);
    td_text_copy(mine.build, sizeof(mine.build), w->params.build);
    enum td_status s = share(w, &mine, sizeof(mine), all, err);
    if (s != TD_OK)
        return s;
    s = judge(w, all, level, err);
    w->over = s != TD_OK;
    return s;
}

enum td_status td_world_same_model(struct td_world *w, uint64_t fingerprint,
                                   struct td_error *err)
{
    uint64_t all[TD_MAX_RANKS];
    enum td_status s = share(w, &fingerprint, sizeof(fingerprint), all, err);
    for (int r = 1; r < w->comm->ranks && s == TD_OK; r++)
        if (all[r] != all[0]) {
            s = differ(w, r, "model", "one configuration and list of tensors",
                       "another", err);
            td_error_fix(err, "copy the same model directory to both hosts");
            w->over = true;
        }
    return s;
}

/* ---- opening and closing ------------------------------------------------------------- */

static enum td_status start_ticks(struct td_world *w, struct td_error *err)
{
    w->sent = td_clock_now();
    if (w->comm->rank != 0 || w->comm->ranks == 1)
        return TD_OK;
    if (pthread_create(&w->ticker, NULL, send_ticks, w) != 0)
        return td_error_set(err, TD_E_NOMEM, "no thread for the ranks' ticks");
    w->ticking = true;
    return TD_OK;
}

enum td_status td_world_open(const struct td_world_params *params,
                             struct td_world **out, struct td_error *err)
{
    struct td_world *w = td_calloc(1, sizeof(*w));
    pthread_condattr_t attr;
    struct td_ranks_params watch = {.comm = params->comm,
                                    .beat_fd = params->beat_fd,
                                    .rank_timeout = params->rank_timeout,
                                    .load_timeout = params->load_timeout,
                                    .leave = params->leave,
                                    .self = params->self};
    if (!w)
        return td_error_set(err, TD_E_NOMEM, "no memory for ranks");
    w->params = *params;
    w->comm = params->comm;
    (void)gethostname(w->host, sizeof(w->host) - 1);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->ended, &attr);
    (void)pthread_condattr_destroy(&attr);
    td_world_wait_steps(w);
    enum td_status s = td_ranks_start(&watch, &w->ranks, err);
    if (s == TD_OK)
        s = start_ticks(w, err);
    if (s == TD_OK) {
        *out = w;
        return TD_OK;
    }
    w->broken = true;
    td_world_close(w);
    return s;
}

/* Rank 0's last word. */
static void say_end(struct td_world *w)
{
    struct td_buf b;
    td_buf_init(&b, TD_STEP_HEAD);
    td_step_put(&b, TD_STEP_END, NULL, 0);
    w->over = td_world_send(w, &b, NULL) == TD_OK;
    td_buf_release(&b);
}

void td_world_close(struct td_world *w)
{
    if (!w)
        return;
    td_world_lock(w);
    w->stop = true;
    (void)pthread_cond_broadcast(&w->ended);
    if (w->comm->rank == 0 && !w->over && !w->broken)
        say_end(w);
    td_world_unlock(w);
    if (w->ticking)
        (void)pthread_join(w->ticker, NULL);
    td_ranks_stop(w->ranks);
    if (w->broken || !w->over)
        w->comm->ops->abort(w->comm);
    w->comm->ops->free(w->comm);
    (void)pthread_cond_destroy(&w->ended);
    (void)pthread_mutex_destroy(&w->lock);
    td_free(w->words);
    td_free(w);
}

/* ---- following ----------------------------------------------------------------------- */

static enum td_status open_engine(struct td_world *w,
                                  const struct td_engine_params *own,
                                  const struct td_step_open *o, struct td_engine **e,
                                  struct td_error *err)
{
    struct td_engine_params p = *own;
    p.world = w;
    p.numerics = o->numerics == TD_NUM_F32 ? TD_NUM_F32 : TD_NUM_BF16;
    p.max_len = o->max_len;
    p.max_seqs = o->max_seqs;
    p.max_rows = o->max_rows;
    p.max_out = o->max_out;
    p.vocab = o->vocab;
    p.serves = o->serves != 0;
    p.device = o->device;
    p.prefix_cache = o->prefix_cache;
    return td_engine_open(&p, e, err);
}

/* Does what one message asks for. */
static enum td_status obey(struct td_world *w, const struct td_engine_params *own,
                           size_t bytes, struct td_engine **e, struct td_error *err)
{
    struct td_step step;
    enum td_status s = td_engine_read_step(*e, w->words, bytes, &step, err);
    if (s != TD_OK)
        return s;
    switch (step.kind) {
    case TD_STEP_TICK:
        return w->comm->ops->barrier(w->comm, err);
    case TD_STEP_OPEN:
        return *e ? td_error_set(err, TD_E_PEER, "rank 0 opens a second engine")
                  : open_engine(w, own, &step.open, e, err);
    case TD_STEP_CLOSE:
        td_engine_close(*e);
        *e = NULL;
        return TD_OK;
    case TD_STEP_END:
        w->over = true;
        return TD_OK;
    default:
        return *e ? td_engine_obey(*e, &step, err)
                  : td_error_set(err, TD_E_PEER, "a step of an engine that is closed");
    }
}

enum td_status td_world_follow(struct td_world *w, const struct td_engine_params *own,
                               struct td_error *err)
{
    struct td_engine *e = NULL;
    enum td_status s = TD_OK;
    while (s == TD_OK && !w->over) {
        size_t bytes;
        td_world_wait_steps(w);
        s = receive(w, &bytes, err);
        if (s == TD_OK)
            s = obey(w, own, bytes, &e, err);
    }
    td_engine_close(e);
    return s;
}

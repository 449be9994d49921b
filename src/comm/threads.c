/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ranks in one process. A collective has two meetings: at the first every rank
 * has shown its memory, at the second every rank has read the others'. Between the two of
 * an all-reduce each adds the vectors up in the order of the ranks, into memory of its
 * own.
 */
#define _POSIX_C_SOURCE 200809L
#include "comm/comm.h"

#include "base/clock.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

struct group {
    pthread_mutex_t lock;
    pthread_cond_t met;
    int ranks, users;
    int arrived;           /* ranks at the present meeting */
    unsigned long meeting; /* counts meetings that are over */
    int failed;
    const void **shown;     /* [ranks] what the present collective is about */
    unsigned char *present; /* [ranks] who is at the meeting */
};

struct thread_comm {
    struct td_comm comm; /* first */
    struct group *group;
    float *sum;
    size_t capacity;
};

static enum td_status too_late(struct group *g, double deadline, struct td_error *err)
{
    int missing = 0;
    while (missing < g->ranks && g->present[missing])
        missing++;
    g->failed = 1;
    (void)pthread_cond_broadcast(&g->met);
    return td_error_set(err, TD_E_TIMEOUT, "waited %.1f s for rank %d on this host",
                        deadline, missing);
}

static enum td_status meet(struct thread_comm *t, struct td_error *err)
{
    struct group *g = t->group;
    enum td_status s = TD_OK;
    struct timespec until;
    double deadline = t->comm.deadline;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)deadline;
    until.tv_nsec += (long)((deadline - (double)(time_t)deadline) * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&g->lock);
    unsigned long mine = g->meeting;
    g->present[t->comm.rank] = 1;
    if (++g->arrived == g->ranks) {
        g->arrived = 0;
        g->meeting++;
        memset(g->present, 0, (size_t)g->ranks);
        (void)pthread_cond_broadcast(&g->met);
    }
    while (s == TD_OK && g->meeting == mine && !g->failed)
        if (pthread_cond_timedwait(&g->met, &g->lock, &until) != 0 &&
            g->meeting == mine && !g->failed)
            s = too_late(g, deadline, err);
    if (s == TD_OK && g->failed)
        s = td_error_set(err, TD_E_PEER, "another rank gave up");
    (void)pthread_mutex_unlock(&g->lock);
    (void)atomic_fetch_add(&t->comm.progress, 1);
    return s;
}

static enum td_status threads_all_reduce(struct td_comm *c, float *x, size_t n,
                                         struct td_error *err)
{
    struct thread_comm *t = (struct thread_comm *)c;
    struct group *g = t->group;
    if (n > t->capacity) {
        float *bigger = td_realloc(t->sum, n, sizeof(*bigger));
        if (!bigger)
            return td_error_set(err, TD_E_NOMEM, "no memory to add up %zu values", n);
        t->sum = bigger;
        t->capacity = n;
    }
    double start = td_clock_now(), met;
    g->shown[c->rank] = x;
    enum td_status s = meet(t, err);
    if (s != TD_OK)
        return s;
    met = td_clock_now();
    memcpy(t->sum, g->shown[0], n * sizeof(*x));
    for (int r = 1; r < c->ranks; r++) {
        const float *other = g->shown[r];
        for (size_t i = 0; i < n; i++)
            t->sum[i] += other[i];
    }
    double added = td_clock_now();
    s = meet(t, err);
    if (s != TD_OK)
        return s;
    memcpy(x, t->sum, n * sizeof(*x));
    double end = td_clock_now();
    c->counts.calls++;
    c->counts.bytes += (int64_t)(n * sizeof(*x));
    c->counts.seconds += end - start;
    c->counts.waited += met - start + (end - added);
    return TD_OK;
}

static enum td_status threads_gather(struct td_comm *c, const void *in, size_t bytes,
                                     void *out, struct td_error *err)
{
    struct thread_comm *t = (struct thread_comm *)c;
    t->group->shown[c->rank] = in;
    enum td_status s = meet(t, err);
    for (int r = 0; r < c->ranks && s == TD_OK && c->rank == 0; r++)
        memcpy((char *)out + (size_t)r * bytes, t->group->shown[r], bytes);
    return s == TD_OK ? meet(t, err) : s;
}

static enum td_status threads_broadcast(struct td_comm *c, void *p, size_t bytes,
                                        struct td_error *err)
{
    struct thread_comm *t = (struct thread_comm *)c;
    t->group->shown[c->rank] = p;
    enum td_status s = meet(t, err);
    if (s == TD_OK && c->rank != 0)
        memcpy(p, t->group->shown[0], bytes);
    return s == TD_OK ? meet(t, err) : s;
}

static enum td_status threads_barrier(struct td_comm *c, struct td_error *err)
{
    return meet((struct thread_comm *)c, err);
}

static void threads_abort(struct td_comm *c)
{
    struct group *g = ((struct thread_comm *)c)->group;
    (void)pthread_mutex_lock(&g->lock);
    g->failed = 1;
    (void)pthread_cond_broadcast(&g->met);
    (void)pthread_mutex_unlock(&g->lock);
}

static void group_free(struct group *g)
{
    (void)pthread_cond_destroy(&g->met);
    (void)pthread_mutex_destroy(&g->lock);
    td_free(g->shown);
    td_free(g->present);
    td_free(g);
}

static void threads_free(struct td_comm *c)
{
    struct thread_comm *t = (struct thread_comm *)c;
    struct group *g = t->group;
    (void)pthread_mutex_lock(&g->lock);
    int users = --g->users;
    (void)pthread_mutex_unlock(&g->lock);
    if (users == 0)
        group_free(g);
    td_free(t->sum);
    td_free(t);
}

static struct group *group_new(int ranks)
{
    struct group *g = td_calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_cond_init(&g->met, NULL);
    g->ranks = ranks;
    g->shown = td_calloc((size_t)ranks, sizeof(const void *));
    g->present = td_calloc((size_t)ranks, 1);
    if (g->shown && g->present)
        return g;
    group_free(g);
    return NULL;
}

enum td_status td_comm_threads(int ranks, double deadline, struct td_comm **out,
                               struct td_error *err)
{
    static const struct td_comm_ops ops = {
        .name = "threads",
        .all_reduce = threads_all_reduce,
        .gather = threads_gather,
        .broadcast = threads_broadcast,
        .barrier = threads_barrier,
        .abort = threads_abort,
        .free = threads_free,
    };
    struct group *g = group_new(ranks);
    if (!g)
        return td_error_set(err, TD_E_NOMEM, "no memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++) {
        struct thread_comm *t = td_calloc(1, sizeof(*t));
        if (!t) {
            if (r == 0)
                group_free(g);
            while (r--) /* the last of them frees the group */
                out[r]->ops->free(out[r]);
            return td_error_set(err, TD_E_NOMEM, "no memory for %d ranks", ranks);
        }
        t->comm.ops = &ops;
        t->comm.rank = t->comm.local_rank = r;
        t->comm.ranks = t->comm.local_ranks = ranks;
        t->comm.deadline = deadline;
        t->group = g;
        g->users++;
        out[r] = &t->comm;
    }
    return TD_OK;
}

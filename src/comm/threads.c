/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ranks in one process. An all-reduce has two meetings: at the first every rank
 * has shown its vector, at the second every rank has read the others'; between the two
 * each adds them up in the order of the ranks into memory of its own.
 */
#define _POSIX_C_SOURCE 200809L
#include "comm/comm.h"

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
    double deadline;
    const float **shown;    /* [ranks] vectors of the present all-reduce */
    unsigned char *present; /* [ranks] who is at the meeting */
};

struct thread_comm {
    struct td_comm comm; /* first */
    struct group *group;
    float *sum;
    size_t capacity;
};

static enum td_status too_late(struct group *g, struct td_error *err)
{
    int missing = 0;
    while (missing < g->ranks && g->present[missing])
        missing++;
    g->failed = 1;
    (void)pthread_cond_broadcast(&g->met);
    return td_error_set(err, TD_E_TIMEOUT, "waited %.1f s for rank %d", g->deadline,
                        missing);
}

static enum td_status meet(struct thread_comm *t, struct td_error *err)
{
    struct group *g = t->group;
    enum td_status s = TD_OK;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)g->deadline;
    until.tv_nsec += (long)((g->deadline - (double)(time_t)g->deadline) * 1e9);
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
            s = too_late(g, err);
    if (s == TD_OK && g->failed)
        s = td_error_set(err, TD_E_PEER, "another rank gave up");
    (void)pthread_mutex_unlock(&g->lock);
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
    g->shown[c->rank] = x;
    enum td_status s = meet(t, err);
    if (s != TD_OK)
        return s;
    memcpy(t->sum, g->shown[0], n * sizeof(*x));
    for (int r = 1; r < c->ranks; r++)
        for (size_t i = 0; i < n; i++)
            t->sum[i] += g->shown[r][i];
    s = meet(t, err);
    if (s == TD_OK)
        memcpy(x, t->sum, n * sizeof(*x));
    return s;
}

static enum td_status threads_barrier(struct td_comm *c, struct td_error *err)
{
    return meet((struct thread_comm *)c, err);
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

static struct group *group_new(int ranks, double deadline)
{
    struct group *g = td_calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_cond_init(&g->met, NULL);
    g->ranks = ranks;
    g->deadline = deadline;
    g->shown = td_calloc((size_t)ranks, sizeof(*g->shown));
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
        .barrier = threads_barrier,
        .free = threads_free,
    };
    struct group *g = group_new(ranks, deadline);
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
        t->comm = (struct td_comm){.ops = &ops, .rank = r, .ranks = ranks};
        t->group = g;
        g->users++;
        out[r] = &t->comm;
    }
    return TD_OK;
}

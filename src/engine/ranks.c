/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats and watchdog of a rank. See ranks.h.
 *
 * They are two threads: a write to a pipe that nobody empties blocks the heartbeat, and
 * must not keep the watchdog from ending the process.
 */
#define _POSIX_C_SOURCE 200809L
#include "engine/ranks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/oom.h"
#include "base/sysmem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WATCH_EVERY 0.05 /* seconds */

enum { MEMORY_EVERY = 4 }; /* heartbeats */

struct td_ranks {
    struct td_ranks_params params;
    char host[TD_ERROR_HOST_MAX];
    pthread_t beats, watch;
    bool beating, watching;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool stop;
};

/* ---- lines ------------------------------------------------------------------------- */

size_t td_beat_format(const struct td_beat *b, char out[TD_BEAT_MAX])
{
    int n =
        snprintf(out, TD_BEAT_MAX, "@hb %d %s %llu %llu %s %llu %llu %llu\n", b->rank,
                 b->host, (unsigned long long)b->seq, (unsigned long long)b->step,
                 b->phase, (unsigned long long)b->resident,
                 (unsigned long long)b->available, (unsigned long long)b->kills);
    return n > 0 && n < TD_BEAT_MAX ? (size_t)n : 0;
}

/* The next word of a line, at most size - 1 bytes of it; false: none, or longer. */
static bool word(const char **at, const char *end, char *out, size_t size)
{
    size_t n = 0;
    while (*at < end && **at == ' ')
        (*at)++;
    while (*at < end && **at != ' ' && **at != '\n') {
        if (n + 1 >= size || **at == '\0')
            return false;
        out[n++] = *(*at)++;
    }
    out[n] = '\0';
    return n > 0;
}

static bool number(const char **at, const char *end, uint64_t *out)
{
    char digits[20]; /* fits into 64 bits */
    if (!word(at, end, digits, sizeof(digits)))
        return false;
    *out = 0;
    for (const char *d = digits; *d; d++) {
        if (*d < '0' || *d > '9')
            return false;
        *out = *out * 10 + (uint64_t)(*d - '0');
    }
    return true;
}

bool td_beat_parse(const char *line, size_t n, struct td_beat *out)
{
    const char *at = line, *end = line + n;
    char mark[4];
    uint64_t rank;
    if (n >= TD_BEAT_MAX || !word(&at, end, mark, sizeof(mark)) ||
        strcmp(mark, "@hb") != 0 || !number(&at, end, &rank) || rank > INT32_MAX ||
        !word(&at, end, out->host, sizeof(out->host)) || !number(&at, end, &out->seq) ||
        !number(&at, end, &out->step) ||
        !word(&at, end, out->phase, sizeof(out->phase)) ||
        !number(&at, end, &out->resident) || !number(&at, end, &out->available) ||
        !number(&at, end, &out->kills))
        return false;
    out->rank = (int)rank;
    return at == end || (*at == '\n' && at + 1 == end);
}

/* ---- threads ----------------------------------------------------------------------- */

/* Sleeps; false: it is time to end. */
static bool rest(struct td_ranks *r, double seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&r->lock);
    int late = 0;
    while (!r->stop && late == 0)
        late = pthread_cond_timedwait(&r->ended, &r->lock, &until);
    bool stop = r->stop;
    (void)pthread_mutex_unlock(&r->lock);
    return !stop;
}

/* The second number of /proc/self/statm, in pages. */
static uint64_t resident(void)
{
    char text[64];
    uint64_t pages;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
    if (fd >= 0)
        (void)close(fd);
    const char *at = n > 0 ? text : "", *end = at + TD_MAX(n, 0);
    long page = sysconf(_SC_PAGESIZE);
    bool known = number(&at, end, &pages); /* its size */
    known = known && number(&at, end, &pages);
    return known && page > 0 ? pages * (uint64_t)page : 0;
}

/* Both are the kernel's to tell, and cost some reads of small files. */
static void read_memory(struct td_beat *b)
{
    struct td_sysmem m;
    struct td_oom_counts kills;
    td_oom_counts_read("", &kills);
    b->kills = (uint64_t)td_oom_counts_all(&kills);
    b->available = 0;
    if (td_sysmem_read("", &m, NULL) == TD_OK)
        b->available = (uint64_t)td_sysmem_available(&m, NULL, 0);
    b->resident = resident();
}

static void *beat(void *arg)
{
    struct td_ranks *r = arg;
    struct td_beat b = {.rank = r->params.comm->rank};
    char line[TD_BEAT_MAX];
    memcpy(b.host, r->host, sizeof(b.host));
    do {
        b.step = atomic_load(&r->params.comm->progress);
        (void)snprintf(b.phase, sizeof(b.phase), "%s", td_phase_name(td_phase_now()));
        if (b.seq % MEMORY_EVERY == 0)
            read_memory(&b);
        size_t n = td_beat_format(&b, line);
        ssize_t k;
        do
            k = write(r->params.beat_fd, line, n);
        while (k < 0 && errno == EINTR);
        b.seq++;
    } while (rest(r, TD_BEAT_EVERY));
    return NULL;
}

static void expire(const struct td_ranks *r, double limit)
{
    struct td_error err;
    td_error_init(&err);
    td_error_set(&err, TD_E_TIMEOUT, "rank %d on %s stood still for %.1f s",
                 r->params.comm->rank, r->host, limit);
    td_error_why(&err, "no step, read or word of rank 0 came for so long: this "
                       "process, another rank or the network hangs");
    r->params.leave(r->params.self, &err, TD_RANK_EXIT_WATCHDOG);
}

static void *watch(void *arg)
{
    struct td_ranks *r = arg;
    unsigned long long seen = 0;
    double since = td_clock_now(), last = since;
    while (rest(r, WATCH_EVERY)) {
        unsigned long long now = atomic_load(&r->params.comm->progress);
        double t = td_clock_now(), limit = td_phase_now() == TD_PHASE_SERVE
                                               ? r->params.rank_timeout
                                               : r->params.load_timeout;
        /* a stop of this whole process is no stand-still of its step */
        if (now != seen || t - last > limit / 2)
            since = t;
        seen = now;
        last = t;
        if (t - since < limit)
            continue;
        expire(r, limit);
        since = t;
    }
    return NULL;
}

static bool start(pthread_t *t, void *(*fn)(void *), struct td_ranks *r)
{
    return pthread_create(t, NULL, fn, r) == 0;
}

enum td_status td_ranks_start(const struct td_ranks_params *params,
                              struct td_ranks **out, struct td_error *err)
{
    struct td_ranks *r = td_calloc(1, sizeof(*r));
    pthread_condattr_t attr;
    if (!r)
        return td_error_set(err, TD_E_NOMEM, "no memory for a rank's watch");
    r->params = *params;
    if (gethostname(r->host, sizeof(r->host) - 1) != 0 || r->host[0] == '\0')
        (void)snprintf(r->host, sizeof(r->host), "unknown");
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r->ended, &attr);
    (void)pthread_condattr_destroy(&attr);
    r->watching = start(&r->watch, watch, r);
    r->beating = params->beat_fd >= 0 && start(&r->beats, beat, r);
    if (!r->watching || (params->beat_fd >= 0 && !r->beating)) {
        td_ranks_stop(r);
        return td_error_set(err, TD_E_NOMEM, "no thread for a rank's watch");
    }
    *out = r;
    return TD_OK;
}

void td_ranks_stop(struct td_ranks *r)
{
    if (!r)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->stop = true;
    (void)pthread_cond_broadcast(&r->ended);
    (void)pthread_mutex_unlock(&r->lock);
    if (r->watching)
        (void)pthread_join(r->watch, NULL);
    if (r->beating)
        (void)pthread_join(r->beats, NULL);
    (void)pthread_cond_destroy(&r->ended);
    (void)pthread_mutex_destroy(&r->lock);
    td_free(r);
}

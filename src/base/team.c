/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for loops. See team.h.
 *
 * A loop is cut into chunks, and each thread has a span of them: one word, the next chunk
 * in its lower and the end in its upper half. Whoever wants a chunk replaces the word by
 * compare and swap. A chunk that was taken has to be finished before the loop ends, so
 * the description of the loop (fn, arg, ...) is read only after a chunk was taken and
 * cannot change meanwhile; a thread that comes late finds no chunk, or one of the loop
 * that runs now.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/team.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/cpu.h"
#include "base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum {
    PIECES = 8,      /* of a thread's share, when the caller does not say */
    LOOKS = 64,      /* between two looks at the clock */
    LINE = 64,       /* bytes that processors hand to each other */
    SPIN_MICROS = 60 /* longer than gaps within a step, shorter than a time slice */
};

static const uint64_t stop_word = (uint64_t)UINT32_MAX;

struct span {
    TD_ALIGNED(LINE) _Atomic uint64_t word;
    struct td_team *team;
    pthread_t id;
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): lines of their own */
struct td_team {
    TD_ALIGNED(LINE) _Atomic uint32_t done; /* chunks of this loop */
    TD_ALIGNED(LINE) _Atomic int sleepers;  /* threads that have to be woken */
    _Atomic uint32_t awaited; /* chunks that the caller sleeps for, 0: it is awake */
    pthread_mutex_t lock;     /* guards sleeping, not the loop */
    pthread_cond_t work, finished;

    struct span *spans;
    size_t span_bytes;
    const struct td_cores *cores;
    double spin; /* seconds */
    int threads, started;

    /* The loop. */
    td_team_fn fn;
    void *arg;
    int64_t n, step;
};

static _Thread_local int own_index;
static _Thread_local const struct td_team *bound_by; /* of a thread that calls loops */

int td_team_index(void)
{
    return own_index;
}

int td_team_threads(const struct td_team *p)
{
    return p->threads;
}

static uint64_t word_of(uint32_t next, uint32_t end)
{
    return (uint64_t)end << 32 | next;
}

static bool is_empty(uint64_t word)
{
    return (uint32_t)word >= (uint32_t)(word >> 32);
}

/* Takes the next chunk of a span; -1 when there is none. */
static int64_t take(struct span *s)
{
    uint64_t word = atomic_load_explicit(&s->word, memory_order_relaxed);
    while (!is_empty(word))
        if (atomic_compare_exchange_weak_explicit(
                &s->word, &word, word + 1, memory_order_acquire, memory_order_relaxed))
            return (int64_t)(uint32_t)word;
    return -1;
}

/* Works on a span until it is empty; the number of chunks done. */
static uint32_t drain(struct td_team *p, struct span *s)
{
    uint32_t count = 0;
    for (int64_t chunk = take(s); chunk >= 0; chunk = take(s)) {
        int64_t first = chunk * p->step;
        p->fn(p->arg, first, TD_MIN(first + p->step, p->n));
        count++;
    }
    return count;
}

/* Own chunks, then those of the others. */
static uint32_t work(struct td_team *p, int self)
{
    uint32_t count = 0;
    for (int i = 0; i < p->threads; i++)
        count += drain(p, &p->spans[(self + i) % p->threads]);
    return count;
}

static void finish(struct td_team *p, uint32_t count)
{
    uint32_t done = atomic_fetch_add(&p->done, count) + count;
    if (atomic_load(&p->awaited) != done)
        return;
    (void)pthread_mutex_lock(&p->lock);
    (void)pthread_cond_signal(&p->finished);
    (void)pthread_mutex_unlock(&p->lock);
}

/* Looks at a span for a while. */
static bool spin_for_work(const struct td_team *p, struct span *s)
{
    double until = td_clock_now() + p->spin;
    do {
        for (int i = 0; i < LOOKS; i++) {
            uint64_t word = atomic_load_explicit(&s->word, memory_order_relaxed);
            if (!is_empty(word) || word == stop_word)
                return true;
            TD_RELAX();
        }
    } while (td_clock_now() < until);
    return false;
}

/* The caller fills spans and then looks for sleepers; here it is the other way round, so
 * that one of the two sees the other. Whoever was woken does not look whether its chunks
 * were done by others meanwhile: there are more loops to come, and it spins for them. */
static void sleep_for_work(struct td_team *p, struct span *s)
{
    (void)pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    uint64_t word = atomic_load(&s->word);
    if (is_empty(word) && word != stop_word)
        (void)pthread_cond_wait(&p->work, &p->lock);
    else
        atomic_fetch_sub(&p->sleepers, 1);
    (void)pthread_mutex_unlock(&p->lock);
}

static void wake(struct td_team *p)
{
    if (atomic_load(&p->sleepers) == 0)
        return;
    (void)pthread_mutex_lock(&p->lock);
    atomic_store(&p->sleepers, 0);
    (void)pthread_cond_broadcast(&p->work);
    (void)pthread_mutex_unlock(&p->lock);
}

static void *thread_main(void *arg)
{
    struct span *s = arg;
    struct td_team *p = s->team;
    own_index = (int)(s - p->spans);
    if (p->cores)
        td_cores_bind(p->cores, own_index);
    while (atomic_load_explicit(&s->word, memory_order_relaxed) != stop_word) {
        uint32_t count = work(p, own_index);
        if (count)
            finish(p, count);
        else if (!spin_for_work(p, s))
            sleep_for_work(p, s);
    }
    return NULL;
}

/* Waits for the chunks that others have begun. */
static void await(struct td_team *p, uint32_t chunks)
{
    double until = 0;
    for (int i = 0; atomic_load_explicit(&p->done, memory_order_acquire) != chunks;
         i++) {
        TD_RELAX();
        if (i % LOOKS != LOOKS - 1)
            continue;
        double now = td_clock_now();
        until = until > 0 ? until : now + p->spin;
        if (now < until)
            continue;
        (void)pthread_mutex_lock(&p->lock);
        atomic_store(&p->awaited, chunks);
        while (atomic_load(&p->done) != chunks)
            (void)pthread_cond_wait(&p->finished, &p->lock);
        atomic_store(&p->awaited, 0);
        (void)pthread_mutex_unlock(&p->lock);
    }
}

/* First chunk of a thread. */
static uint32_t share(int64_t chunks, int thread, int threads)
{
    return (uint32_t)((chunks * thread + threads - 1) / threads);
}

void td_team_run(struct td_team *p, int64_t n, int64_t step, td_team_fn fn, void *arg)
{
    if (n <= 0)
        return;
    if (p->cores && bound_by != p) {
        td_cores_bind(p->cores, 0);
        bound_by = p;
    }
    if (step <= 0)
        step = TD_MAX(n / ((int64_t)p->threads * PIECES), 1);
    step = TD_MAX(step, n / INT32_MAX + 1);
    int64_t chunks = (n + step - 1) / step;
    if (p->threads == 1 || chunks == 1) {
        fn(arg, 0, n);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    p->step = step;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    /* own chunks last: the others have the way of the signal before them */
    for (int t = p->threads - 1; t >= 0; t--)
        atomic_store(&p->spans[t].word, word_of(share(chunks, t, p->threads),
                                                share(chunks, t + 1, p->threads)));
    wake(p);
    uint32_t own = work(p, 0);
    if (atomic_fetch_add(&p->done, own) + own != (uint32_t)chunks)
        await(p, (uint32_t)chunks);
}

static enum td_status start(struct td_team *p, struct td_error *err)
{
    sigset_t all, before;
    int failed = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (p->started = 1; p->started < p->threads && !failed; p->started += !failed) {
        struct span *s = &p->spans[p->started];
        s->team = p;
        failed = pthread_create(&s->id, NULL, thread_main, s);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed)
        return TD_OK;
    td_error_set(err, TD_E_NOMEM, "thread %d of %d cannot be started", p->started + 1,
                 p->threads);
    td_error_why(err, "the system says: %s", strerror(failed));
    td_error_fix(err, "use fewer --threads, or allow more processes (ulimit -u) or "
                      "memory (ulimit -v)");
    return TD_E_NOMEM;
}

enum td_status td_team_new(int threads, const struct td_cores *cores,
                           struct td_team **out, struct td_error *err)
{
    threads = TD_MIN(TD_MAX(threads, 1), TD_TEAM_MAX_THREADS);
    size_t span_bytes = (size_t)threads * sizeof(struct span);
    struct td_team *p = td_alloc_aligned(sizeof(*p));
    struct span *spans = td_alloc_aligned(span_bytes);
    if (!p || !spans) {
        td_free_aligned(p, sizeof(*p));
        td_free_aligned(spans, span_bytes);
        return td_error_set(err, TD_E_NOMEM, "no memory for a team of threads");
    }
    p->spans = spans;
    p->span_bytes = span_bytes;
    p->threads = threads;
    p->cores = cores;
    bool crowded = cores ? td_cores_crowded(cores) : threads > td_cpu_cores();
    p->spin = crowded ? 0 : SPIN_MICROS * 1e-6;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->work, NULL);
    (void)pthread_cond_init(&p->finished, NULL);
    enum td_status s = start(p, err);
    if (s == TD_OK)
        *out = p;
    else
        td_team_free(p);
    return s;
}

void td_team_free(struct td_team *p)
{
    if (!p)
        return;
    for (int i = 1; i < p->started; i++)
        atomic_store(&p->spans[i].word, stop_word);
    wake(p);
    for (int i = 1; i < p->started; i++)
        (void)pthread_join(p->spans[i].id, NULL);
    if (bound_by == p) {
        td_cores_unbind(p->cores);
        bound_by = NULL;
    }
    (void)pthread_cond_destroy(&p->finished);
    (void)pthread_cond_destroy(&p->work);
    (void)pthread_mutex_destroy(&p->lock);
    td_free_aligned(p->spans, p->span_bytes);
    td_free_aligned(p, sizeof(*p));
}

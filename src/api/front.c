/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front's engine side: frames in and out, the probe that proves an engine, rounds.
 * See front.h; jobs.c has the requests, routes.c the HTTP side.
 *
 * An engine counts as ready once it has produced a token: with its HELLO, the front
 * sends a request of one token, the probe, and waits for the answer.
 */
#define _POSIX_C_SOURCE 200809L
#include "api/front_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

static const uint64_t PROBE = 0; /* no answer has this id */
static const double TIMERS_EVERY = 0.25, LONGEST_ROUND = 1;
static const double LONGEST_SILENCE = 300; /* seconds; a step takes far less */

enum td_status td_front_new(const struct td_front_params *params, struct td_front **out,
                            struct td_error *err)
{
    struct td_front *f = td_calloc(1, sizeof(*f));
    if (!f)
        return td_error_set(err, TD_E_NOMEM, "no memory for the front");
    f->params = *params;
    (void)pthread_mutex_init(&f->lock, NULL);
    td_startup_init(&f->startup);
    td_metrics_init(&f->metrics);
    f->started_at = td_clock_now();
    *out = f;
    return TD_OK;
}

void td_front_free(struct td_front *f)
{
    if (!f)
        return;
    td_jobs_free(f);
    td_front_tell_watchers(f, td_clock_now(), true);
    td_free(f->watchers);
    (void)pthread_mutex_destroy(&f->lock);
    td_free(f);
}

void td_front_loaded(struct td_front *f)
{
    (void)pthread_mutex_lock(&f->lock);
    f->loaded = true;
    (void)pthread_mutex_unlock(&f->lock);
}

/* ---- from the engine ---------------------------------------------------------------- */

static bool on_gpu(const struct td_wire_hello *h)
{
    return strncmp(h->level, "cuda", 4) == 0;
}

/* An engine that chose a GPU by itself would, without one, take the processor when it is
 * started again, and be many times slower without a word. */
static enum td_status on_hello(struct td_front *f, const struct td_frame *frame,
                               struct td_error *err)
{
    struct td_wire_hello hello;
    enum td_status s = td_wire_get_hello(frame, &hello, err);
    if (s != TD_OK)
        return s;
    if (on_gpu(&f->metrics.hello) && !on_gpu(&hello)) {
        td_error_set(err, TD_E_GPU_LOST, "the engine finds no GPU any more");
        td_error_why(err, "it ran on %s before", f->metrics.hello.level);
        td_error_fix(err, "look at nvidia-smi and the kernel's log (dmesg, Xid); "
                          "--device cpu serves without a GPU");
        return TD_E_GPU_LOST;
    }
    f->metrics.hello = hello;
    f->probe = true;
    return TD_OK;
}

static void tell_ready(struct td_front *f)
{
    struct td_buf times;
    td_buf_init(&times, TD_KIB);
    td_startup_times(&f->startup, &times);
    f->params.ready(f->params.self, times.len ? times.p : "");
    td_buf_release(&times);
}

/* The probe's answer: a token, or the end of an answer that is a token too. */
static enum td_status on_probe(struct td_front *f, const struct td_wire_done *d,
                               struct td_error *err)
{
    if (d->reason == TD_DONE_STOP || d->reason == TD_DONE_LENGTH) {
        td_startup_enter(&f->startup, TD_LIFE_READY);
        tell_ready(f);
        return TD_OK;
    }
    enum td_status s =
        td_error_set(err, d->error.code == TD_OK ? TD_E_INTERNAL : d->error.code,
                     "the engine's first token failed: %s", d->error.what);
    td_error_why(err, "%s", d->error.why);
    td_error_fix(err, "%s", d->error.fix);
    return s;
}

static enum td_status on_tokens(struct td_front *f, const struct td_frame *frame,
                                struct td_error *err)
{
    struct td_arena a;
    struct td_wire_token *list;
    int32_t n = 0;
    td_arena_init(&a, TD_MAX_FRAME);
    enum td_status s = td_wire_get_tokens(frame, &a, &list, &n, err);
    for (int32_t i = 0; i < n && s == TD_OK; i++)
        td_job_token(f, &list[i]);
    td_arena_release(&a);
    return s;
}

static enum td_status on_given(struct td_front *f, const struct td_frame *frame,
                               struct td_error *err)
{
    struct td_arena a;
    struct td_wire_prompt_logprobs m;
    td_arena_init(&a, TD_MAX_FRAME);
    enum td_status s = td_wire_get_prompt_logprobs(frame, &a, &m, err);
    if (s == TD_OK)
        td_job_given(f, &m);
    td_arena_release(&a);
    return s;
}

static enum td_status on_done(struct td_front *f, const struct td_frame *frame,
                              struct td_error *err)
{
    struct td_wire_done d;
    enum td_status s = td_wire_get_done(frame, &d, err);
    if (s == TD_OK && d.request == PROBE)
        return on_probe(f, &d, err);
    if (s == TD_OK)
        td_job_done(f, &d);
    return s;
}

static enum td_status on_frame(struct td_front *f, const struct td_frame *frame,
                               struct td_error *err)
{
    switch (frame->type) {
    case TD_WIRE_HELLO:
        return on_hello(f, frame, err);
    case TD_WIRE_STATS:
        return td_wire_get_stats(frame, &f->metrics.stats, err);
    case TD_WIRE_TOKENS:
        return on_tokens(f, frame, err);
    case TD_WIRE_PROMPT_LOGPROBS:
        return on_given(f, frame, err);
    case TD_WIRE_DONE:
        return on_done(f, frame, err);
    default:
        return td_error_set(err, TD_E_PEER, "message %d is not for a front",
                            (int)frame->type);
    }
}

enum td_status td_front_received(struct td_front *f, const char *bytes, size_t n,
                                 size_t *used, struct td_error *err)
{
    enum td_status s = TD_OK;
    size_t one = 1;
    *used = 0;
    (void)pthread_mutex_lock(&f->lock);
    f->heard_at = td_clock_now();
    while (s == TD_OK && one > 0) {
        struct td_frame frame;
        s = td_wire_next(bytes + *used, n - *used, &frame, &one, err);
        if (s == TD_OK && one > 0)
            s = on_frame(f, &frame, err);
        *used += s == TD_OK ? one : 0;
    }
    (void)pthread_mutex_unlock(&f->lock);
    return s;
}

void td_front_connected(struct td_front *f)
{
    (void)pthread_mutex_lock(&f->lock);
    f->connected = f->say_hello = true;
    (void)pthread_mutex_unlock(&f->lock);
}

void td_front_event(struct td_front *f, const char *line, size_t n)
{
    (void)pthread_mutex_lock(&f->lock);
    if (f->startup.life == TD_LIFE_LOST)
        td_startup_enter(&f->startup, TD_LIFE_STARTING);
    td_startup_event(&f->startup, line, n);
    (void)pthread_mutex_unlock(&f->lock);
}

void td_front_phase(struct td_front *f, enum td_phase phase)
{
    (void)pthread_mutex_lock(&f->lock);
    td_startup_phase(&f->startup, phase);
    (void)pthread_mutex_unlock(&f->lock);
}

void td_front_beat(struct td_front *f, int rank, const struct td_sign *sign)
{
    (void)pthread_mutex_lock(&f->lock);
    td_startup_beat(&f->startup, rank, sign);
    (void)pthread_mutex_unlock(&f->lock);
}

void td_front_progress(struct td_front *f, struct td_num out[5])
{
    (void)pthread_mutex_lock(&f->lock);
    out[0] = (struct td_num){"bytes", f->startup.bytes};
    out[1] = (struct td_num){"of", f->startup.of};
    out[2] = (struct td_num){"rate", f->startup.rate};
    out[3] = (struct td_num){"left", f->startup.left};
    out[4] = (struct td_num){NULL, 0};
    (void)pthread_mutex_unlock(&f->lock);
}

void td_front_lost(struct td_front *f, const struct td_error *why, double wait)
{
    (void)pthread_mutex_lock(&f->lock);
    f->connected = f->say_hello = f->probe = false;
    f->startup.error = *why;
    f->startup.retry_at = td_clock_now() + wait;
    f->startup.left = 0;
    td_startup_enter(&f->startup, TD_LIFE_LOST);
    td_metrics_engine_lost(&f->metrics);
    td_jobs_engine_lost(f, wait < 0);
    (void)pthread_mutex_unlock(&f->lock);
}

void td_front_put_off(struct td_front *f, const struct td_error *why, double wait)
{
    (void)pthread_mutex_lock(&f->lock);
    f->startup.error = *why;
    f->startup.retry_at = td_clock_now() + wait;
    f->startup.version++;
    (void)pthread_mutex_unlock(&f->lock);
}

/* ---- rounds ------------------------------------------------------------------------ */

static void send_probe(struct td_front *f, struct td_buf *out)
{
    int32_t id = f->params.served->sampling.n_eos_ids ? f->params.served->eos[0] : 0;
    struct td_wire_submit m = {.id = PROBE,
                               .prompt = &id,
                               .n_prompt = 1,
                               .max_tokens = 1,
                               .prompt_logprobs = -1};
    td_sampling_default(&m.sampling);
    m.sampling.temperature = 0;
    m.sampling.logprobs = -1;
    td_wire_put_submit(out, &m);
    f->probe = false;
}

static void send_hello(struct td_front *f, struct td_buf *out)
{
    struct td_wire_hello h = {.version = TD_WIRE_VERSION};
    size_t n = TD_MIN(strlen(f->params.build), sizeof(h.build) - 1);
    memcpy(h.build, f->params.build, n);
    td_wire_put_hello(out, &h);
    f->say_hello = false;
}

/* An engine that has work says something with every step. */
static void check_silence(struct td_front *f, double now)
{
    struct td_error why;
    if (!f->connected || f->n_sent == 0)
        f->heard_at = now;
    if (now - f->heard_at < LONGEST_SILENCE)
        return;
    td_error_init(&why);
    td_error_set(&why, TD_E_TIMEOUT,
                 "the engine (rank 0 on this host) has work but said "
                 "nothing for %.0f seconds",
                 now - f->heard_at);
    f->heard_at = now;
    f->params.stuck(f->params.self, &why);
}

static void check_drained(struct td_front *f, double now)
{
    struct td_refusal no;
    if (!f->draining || f->told_drained)
        return;
    if (f->jobs && now > f->drain_by) {
        td_front_not_ready(f, &no);
        td_jobs_fail_all(f, &no);
    }
    if (f->jobs && now < f->drain_by + 1)
        return; /* the engine has yet to say that it stopped */
    f->told_drained = true;
    td_front_tell_watchers(f, now, true);
    f->params.drained(f->params.self);
}

double td_front_round(struct td_front *f, struct td_buf *out)
{
    double now = td_clock_now();
    (void)pthread_mutex_lock(&f->lock);
    if (f->say_hello)
        send_hello(f, out);
    if (f->probe)
        send_probe(f, out);
    if (f->connected &&
        (f->startup.life == TD_LIFE_READY || f->startup.life == TD_LIFE_STOPPING))
        td_jobs_send(f, out);
    f->metrics.waiting = f->n_queued;
    if (now - f->timers_at >= TIMERS_EVERY) {
        f->timers_at = now;
        td_jobs_timers(f, now);
        td_front_tell_watchers(f, now, false);
        td_front_rates(f, now);
        check_silence(f, now);
    }
    check_drained(f, now);
    bool busy = f->jobs || f->draining || f->startup.version != f->watched_version;
    (void)pthread_mutex_unlock(&f->lock);
    return busy ? TIMERS_EVERY : LONGEST_ROUND;
}

void td_front_drain(struct td_front *f)
{
    (void)pthread_mutex_lock(&f->lock);
    f->drain_by = td_clock_now() + (f->draining ? 0 : f->params.drain_timeout);
    f->draining = true;
    td_startup_enter(&f->startup, TD_LIFE_STOPPING);
    (void)pthread_mutex_unlock(&f->lock);
    f->params.wake(f->params.self);
}

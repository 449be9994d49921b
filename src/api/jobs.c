/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their answers, from acceptance to the last byte. See front_int.h for the
 * states; the transitions are made by
 *
 *     td_job_accept        -> QUEUED        send_seq              QUEUED -> SENT
 *     end_seq              SENT -> ENDED    over                  any -> OVER
 *     td_jobs_engine_lost  SENT -> QUEUED, ENDED -> OVER
 */
#include "api/front_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SLOT_BITS = 12, READY_AHEAD = 4, MAX_DEATHS = 2 };

static const double KEEP_ALIVE = 10; /* seconds of silence in a stream */

static const char events[] = "text/event-stream; charset=utf-8";
static const char json[] = "application/json";

/* ---- life -------------------------------------------------------------------------- */

static void free_job(struct td_job *j)
{
    if (j->at) {
        *j->at = j->next;
        if (j->next)
            j->next->at = j->at;
    }
    for (int i = 0; j->voices && i < j->n; i++)
        td_voice_release(&j->voices[i]);
    td_free(j->voices);
    td_free(j->seqs);
    td_ask_release(&j->ask);
    td_exchange_release(j->exchange);
    td_free(j);
}

static void free_if_over(struct td_job *j)
{
    bool over = j->closed;
    for (int i = 0; i < j->n && over; i++)
        over = j->seqs[i].state == TD_SEQ_OVER;
    if (over)
        free_job(j);
}

static void unqueue(struct td_front *f, struct td_seq *s)
{
    struct td_seq **at = &f->queue;
    while (*at && *at != s)
        at = &(*at)->next;
    if (*at) {
        *at = s->next;
        f->n_queued--;
    }
}

static bool is_older(const struct td_seq *a, const struct td_seq *b)
{
    return a->job->serial < b->job->serial || (a->job == b->job && a->index < b->index);
}

static void enqueue(struct td_front *f, struct td_seq *s)
{
    struct td_seq **at = &f->queue;
    while (*at && is_older(*at, s))
        at = &(*at)->next;
    s->state = TD_SEQ_QUEUED;
    s->next = *at;
    *at = s;
    f->n_queued++;
}

static struct td_seq **slot_of(struct td_front *f, uint64_t wire)
{
    struct td_seq **slot = &f->by_slot[wire & ((1U << SLOT_BITS) - 1)];
    return *slot && (*slot)->wire == wire ? slot : NULL;
}

static void over(struct td_front *f, struct td_seq *s)
{
    struct td_seq **slot = slot_of(f, s->wire);
    if (s->state == TD_SEQ_QUEUED)
        unqueue(f, s);
    else if (slot && *slot == s) {
        *slot = NULL;
        f->n_sent--;
    }
    s->state = TD_SEQ_OVER;
}

/* Nothing more is wanted of an answer. */
static void end_seq(struct td_front *f, struct td_seq *s)
{
    if (s->state == TD_SEQ_QUEUED) {
        over(f, s);
    } else if (s->state == TD_SEQ_SENT) {
        s->state = TD_SEQ_ENDED;
        s->cancel = true;
        f->params.wake(f->params.self);
    }
}

/* ---- replies ----------------------------------------------------------------------- */

static void count_outcome(struct td_front *f, const struct td_seq *s,
                          enum td_outcome outcome)
{
    f->metrics.outcomes[outcome]++;
    td_histogram_add(&f->metrics.answer_sizes, (double)s->voice->ids.len);
}

static void close_job(struct td_front *f, struct td_job *j)
{
    if (j->closed)
        return;
    j->closed = true;
    td_histogram_add(&f->metrics.whole, td_clock_now() - j->arrived);
}

/* Gives a job up: with a status if its reply has not begun, else within the stream. */
static void fail_job(struct td_front *f, struct td_job *j, const struct td_refusal *no)
{
    struct td_buf b;
    if (j->closed)
        return;
    for (int i = 0; i < j->n; i++) {
        if (j->voices[i].finish == TD_FINISHED_NOT)
            count_outcome(f, &j->seqs[i], TD_OUTCOME_ERROR);
        end_seq(f, &j->seqs[i]);
    }
    if (!td_exchange_begun(j->exchange)) {
        td_refuse_exchange(j->exchange, no);
    } else {
        td_buf_init(&b, TD_MIB);
        td_buf_adds(&b, "data: ");
        td_reply_error(&b, no);
        td_buf_adds(&b, "\n\ndata: [DONE]\n\n");
        (void)td_exchange_write(j->exchange, b.p, b.len);
        td_exchange_end(j->exchange);
        td_buf_release(&b);
    }
    close_job(f, j);
}

static void fail_status(struct td_front *f, struct td_job *j, enum td_status s)
{
    struct td_refusal no;
    td_refuse(&no, 500, NULL, "the answer cannot be kept: %s",
              td_status_info(s)->title);
    no.type = "server_error";
    fail_job(f, j, &no);
}

static struct td_usage usage_of(const struct td_job *j)
{
    struct td_usage u = {0};
    for (int i = 0; i < j->n; i++) {
        const struct td_voice *v = &j->voices[i];
        u.completion += (int64_t)v->ids.len + (v->stop_id >= 0);
        u.reasoning += v->reasoning_tokens;
        if (i % j->ask.n == 0) {
            u.prompt += (int64_t)v->prompt->ids.len;
            u.cached += j->seqs[i].cached;
        }
    }
    return u;
}

static void send_text(struct td_front *f, struct td_job *j, const struct td_buf *b)
{
    if (!td_exchange_begun(j->exchange)) {
        td_exchange_add_header(j->exchange, "Cache-Control", "no-cache");
        td_exchange_begin(j->exchange, 200, events);
    }
    j->last_write = td_clock_now();
    if (b->status == TD_OK && td_exchange_write(j->exchange, b->p, b->len))
        return;
    for (int i = 0; i < j->n; i++) { /* the client does not read, or is gone */
        if (j->voices[i].finish == TD_FINISHED_NOT)
            count_outcome(f, &j->seqs[i], TD_OUTCOME_ABORT);
        end_seq(f, &j->seqs[i]);
    }
    td_exchange_end(j->exchange);
    close_job(f, j);
}

/* Sends what is new of a streamed answer, and at its end the reason. */
static void send_news(struct td_front *f, struct td_seq *s)
{
    struct td_job *j = s->job;
    struct td_voice *v = s->voice;
    struct td_usage u = usage_of(j);
    struct td_buf b;
    bool ended = v->finish != TD_FINISHED_NOT;
    td_buf_init(&b, 4 * (size_t)TD_MAX_TEXT);
    if (!s->spoken || td_voice_has_news(v)) {
        td_reply_chunk(&b, &j->reply, v, s->index, !s->spoken, false, &u);
        td_voice_mark(v);
        s->spoken = true;
    }
    if (ended) {
        td_reply_chunk(&b, &j->reply, v, s->index, false, true, &u);
        td_voice_mark(v);
    }
    if (b.len)
        send_text(f, j, &b);
    td_buf_release(&b);
}

/* All answers are complete and the engine has said its last word about them. */
static void complete_job(struct td_front *f, struct td_job *j)
{
    struct td_usage u = usage_of(j);
    struct td_buf b;
    td_buf_init(&b, 16 * (size_t)TD_MAX_TEXT);
    if (j->ask.stream) {
        if (j->ask.usage)
            td_reply_usage_chunk(&b, &j->reply, &u);
        td_buf_adds(&b, "data: [DONE]\n\n");
        send_text(f, j, &b);
        td_exchange_end(j->exchange);
    } else {
        td_reply_whole(&b, &j->reply, j->voices, j->n, &u);
        if (b.status == TD_OK)
            td_exchange_reply(j->exchange, 200, json, b.p, b.len);
        else
            fail_status(f, j, b.status);
    }
    close_job(f, j);
    td_buf_release(&b);
}

static void check_complete(struct td_front *f, struct td_job *j)
{
    bool all = !j->closed;
    for (int i = 0; i < j->n && all; i++)
        all = j->seqs[i].state == TD_SEQ_OVER && j->voices[i].finish != TD_FINISHED_NOT;
    if (all)
        complete_job(f, j);
    free_if_over(j);
}

/* ---- accepting --------------------------------------------------------------------- */

static void client_gone(void *self, struct td_exchange *x)
{
    struct td_front *f = self;
    struct td_job *j;
    (void)pthread_mutex_lock(&f->lock);
    for (j = f->jobs; j && (j->exchange != x || j->closed); j = j->next)
        ;
    if (j) {
        for (int i = 0; i < j->n; i++) {
            if (j->voices[i].finish == TD_FINISHED_NOT)
                count_outcome(f, &j->seqs[i], TD_OUTCOME_ABORT);
            end_seq(f, &j->seqs[i]);
        }
        close_job(f, j);
        free_if_over(j);
    }
    (void)pthread_mutex_unlock(&f->lock);
}

static bool check_lengths(const struct td_front *f, const struct td_ask *a,
                          struct td_refusal *no)
{
    int32_t max = f->metrics.hello.max_len;
    for (int32_t i = 0; i < a->n_prompts; i++) {
        size_t n = a->prompts[i].ids.len;
        if (n < (size_t)max)
            continue;
        td_refuse(no, 400, a->chat ? "messages" : "prompt",
                  "This model's maximum context length is %d tokens, but the request's "
                  "prompt has %zu",
                  max, n);
        no->code = "context_length_exceeded";
        return false;
    }
    return true;
}

static bool check_room(struct td_front *f, const struct td_ask *a,
                       struct td_refusal *no)
{
    int n = a->n * a->n_prompts;
    int ahead = f->metrics.hello.max_seqs - f->n_sent;
    if (f->draining || f->startup.life != TD_LIFE_READY) {
        td_front_not_ready(f, no);
        return false;
    }
    if (f->n_queued + n <= f->params.max_queue + TD_MAX(ahead, 0) &&
        f->n_queued + f->n_sent + n <= TD_MAX_SEQUENCES)
        return true;
    td_refuse(no, 429, NULL,
              "%d answers are waiting already, at most %d may; try again "
              "later",
              f->n_queued, f->params.max_queue);
    no->type = "rate_limit_error";
    no->code = "queue_full";
    return false;
}

/* The id that the client chose, or one of our own. */
static void name_reply(struct td_job *j, const struct td_front *f)
{
    const char *prefix = j->ask.chat ? "chatcmpl" : "cmpl";
    const char *given = json_string_value(json_object_get(j->ask.body, "request_id"));
    uint64_t random = td_seed_fresh();
    if (!given)
        given = td_exchange_header(j->exchange, "X-Request-Id");
    j->reply.ask = &j->ask;
    j->reply.served = f->params.served;
    j->reply.created = (int64_t)td_clock_wall();
    (void)snprintf(j->reply.call_seed, sizeof(j->reply.call_seed), "%016" PRIx64,
                   random);
    if (given && *given)
        (void)snprintf(j->reply.id, sizeof(j->reply.id), "%s-%.128s", prefix, given);
    else
        (void)snprintf(j->reply.id, sizeof(j->reply.id), "%s-%016" PRIx64 "%08x",
                       prefix, random, (unsigned)j->serial);
}

static bool make_seqs(struct td_front *f, struct td_job *j, struct td_refusal *no)
{
    int n = j->ask.n * j->ask.n_prompts;
    j->voices = td_calloc((size_t)n, sizeof(*j->voices));
    j->seqs = td_calloc((size_t)n, sizeof(*j->seqs));
    bool ok = j->voices && j->seqs;
    for (int i = 0; i < n && ok; i++) {
        const struct td_prompt *p = &j->ask.prompts[i / j->ask.n];
        int32_t room = f->metrics.hello.max_len - (int32_t)p->ids.len;
        int32_t max = j->ask.max_tokens;
        j->seqs[i] = (struct td_seq){.job = j,
                                     .voice = &j->voices[i],
                                     .state = TD_SEQ_OVER,
                                     .index = i,
                                     .max_tokens = max < 0                  ? 1
                                                   : max == 0 || max > room ? room
                                                                            : max};
        ok = td_voice_init(&j->voices[i], f->params.served, &j->ask, p) == TD_OK;
        j->n = i + 1;
    }
    if (ok)
        return true;
    td_refuse(no, 500, NULL, "no memory for this request");
    no->type = "server_error";
    return false;
}

static void link_job(struct td_front *f, struct td_job *j)
{
    j->next = f->jobs;
    j->at = &f->jobs;
    if (j->next)
        j->next->at = &j->next;
    f->jobs = j;
    for (int i = 0; i < j->n; i++) {
        enqueue(f, &j->seqs[i]);
        td_histogram_add(&f->metrics.prompt_sizes,
                         (double)j->voices[i].prompt->ids.len);
    }
}

void td_job_accept(struct td_front *f, struct td_exchange *x, struct td_ask *ask)
{
    struct td_refusal no;
    struct td_job *j = td_calloc(1, sizeof(*j));
    if (!j) {
        td_refuse(&no, 500, NULL, "no memory for this request");
        td_refuse_exchange(x, &no);
        td_ask_release(ask);
        return;
    }
    j->exchange = td_exchange_hold(x);
    j->ask = *ask;
    j->arrived = j->last_write = td_clock_now();
    (void)pthread_mutex_lock(&f->lock);
    j->serial = ++f->serials;
    (void)pthread_mutex_unlock(&f->lock);
    name_reply(j, f);
    td_ask_trim(&j->ask); /* it may wait for long, and a body may be large */
    (void)pthread_mutex_lock(&f->lock);
    bool ok = check_room(f, &j->ask, &no) && check_lengths(f, &j->ask, &no) &&
              make_seqs(f, j, &no);
    if (ok)
        link_job(f, j);
    else
        f->metrics.refused++;
    (void)pthread_mutex_unlock(&f->lock);
    if (ok) {
        f->params.wake(f->params.self);
        td_exchange_on_gone(x, client_gone, f);
    } else {
        td_refuse_exchange(x, &no);
        free_job(j);
    }
}

/* ---- to the engine ------------------------------------------------------------------ */

static bool take_slot(struct td_front *f, struct td_seq *s)
{
    uint64_t first = ++f->wires;
    for (uint64_t k = 0; k < TD_MAX_SEQUENCES; k++) {
        uint64_t slot = (first + k) & ((1U << SLOT_BITS) - 1);
        if (f->by_slot[slot])
            continue;
        s->wire = (first << SLOT_BITS) | slot;
        f->by_slot[slot] = s;
        f->n_sent++;
        return true;
    }
    return false;
}

static void send_seq(struct td_front *f, struct td_seq *s, struct td_buf *out)
{
    const struct td_job *j = s->job;
    const struct td_prompt *p = s->voice->prompt;
    struct td_wire_submit m = {.prompt = p->ids.p,
                               .n_prompt = (int32_t)p->ids.len,
                               .generated = s->voice->ids.p,
                               .n_generated = (int32_t)s->voice->ids.len,
                               .max_tokens = s->max_tokens,
                               .prompt_logprobs = j->ask.prompt_logprobs,
                               .snapshots = p->ends,
                               .n_snapshots = p->n_ends,
                               .sampling = j->ask.sampling};
    unqueue(f, s);
    if (!take_slot(f, s))
        return;
    s->state = TD_SEQ_SENT;
    s->cancel = false;
    s->running = f->n_sent <= f->metrics.hello.max_seqs;
    m.id = s->wire;
    m.sampling.choice = (uint32_t)(s->index % j->ask.n);
    if (m.n_generated > 0)
        m.prompt_logprobs = -1; /* they came before the first token */
    td_histogram_add(&f->metrics.queued, td_clock_now() - j->arrived);
    td_wire_put_submit(out, &m);
}

static void send_cancels(struct td_front *f, struct td_buf *out)
{
    for (int i = 0; i < TD_MAX_SEQUENCES; i++) {
        struct td_seq *s = f->by_slot[i];
        if (!s || !s->cancel)
            continue;
        s->cancel = false;
        td_wire_put_cancel(out, s->wire);
    }
}

void td_jobs_send(struct td_front *f, struct td_buf *out)
{
    int max = f->metrics.hello.max_seqs;
    int ahead = max + TD_MAX(max / READY_AHEAD, 1);
    send_cancels(f, out);
    while (f->queue && f->n_sent < TD_MIN(ahead, TD_MAX_SEQUENCES) &&
           out->len < TD_MAX_FRAME / 4)
        send_seq(f, f->queue, out);
}

/* ---- from the engine ---------------------------------------------------------------- */

static void first_token(struct td_front *f, struct td_job *j, double now)
{
    if (!j->started)
        td_histogram_add(&f->metrics.first_token, now - j->arrived);
    j->started = true;
}

static void note_time(struct td_front *f, struct td_seq *s)
{
    double now = td_clock_now();
    first_token(f, s->job, now);
    if (s->last_at > 0)
        td_histogram_add(&f->metrics.between_tokens, now - s->last_at);
    else if (s->index % s->job->ask.n == 0)
        f->metrics.prompt_tokens += s->voice->prompt->ids.len;
    s->last_at = now;
    s->running = true;
    f->metrics.generated_tokens++;
}

void td_job_token(struct td_front *f, const struct td_wire_token *t)
{
    struct td_seq **slot = slot_of(f, t->request);
    struct td_seq *s = slot ? *slot : NULL;
    if (!s || s->state != TD_SEQ_SENT)
        return;
    note_time(f, s);
    if (s->job->ask.max_tokens < 0)
        return; /* only the prompt was asked about */
    enum td_status st = td_voice_add(s->voice, t);
    if (st != TD_OK) {
        fail_status(f, s->job, st);
        return;
    }
    if (s->voice->finish != TD_FINISHED_NOT) {
        count_outcome(f, s, TD_OUTCOME_STOP);
        end_seq(f, s);
    }
    if (s->job->ask.stream)
        send_news(f, s);
}

void td_job_given(struct td_front *f, const struct td_wire_prompt_logprobs *m)
{
    struct td_seq **slot = slot_of(f, m->request);
    struct td_seq *s = slot ? *slot : NULL;
    enum td_status st =
        s && s->state == TD_SEQ_SENT ? td_voice_given(s->voice, m) : TD_OK;
    if (st != TD_OK)
        fail_status(f, s->job, st);
}

/* The engine could not. */
static void fail_seq(struct td_front *f, struct td_seq *s, const struct td_wire_done *d)
{
    struct td_refusal no;
    bool input = d->error.code == TD_E_INPUT || d->reason == TD_DONE_REFUSED;
    bool stopping = d->error.code == TD_E_CANCELLED;
    td_refuse(&no, stopping ? 503 : input ? 400 : 500, NULL, "%s", d->error.what);
    if (!input || stopping)
        no.type = "server_error";
    fail_job(f, s->job, &no);
}

static void finish_seq(struct td_front *f, struct td_seq *s,
                       const struct td_wire_done *d)
{
    bool stop = d->reason == TD_DONE_STOP;
    bool none = s->job->ask.max_tokens < 0;
    enum td_status st =
        td_voice_end(s->voice, stop && !none ? TD_FINISHED_STOP : TD_FINISHED_LENGTH,
                     stop && !none ? d->stop_id : -1);
    if (st != TD_OK) {
        fail_status(f, s->job, st);
        return;
    }
    if (stop) {
        note_time(f, s); /* the token that ended it was computed too */
        count_outcome(f, s, TD_OUTCOME_STOP);
    } else {
        count_outcome(f, s, TD_OUTCOME_LENGTH);
    }
    if (s->job->ask.stream && !s->job->closed)
        send_news(f, s);
}

void td_job_done(struct td_front *f, const struct td_wire_done *d)
{
    struct td_seq **slot = slot_of(f, d->request);
    struct td_seq *s = slot ? *slot : NULL;
    if (!s)
        return;
    bool open = s->state == TD_SEQ_SENT;
    struct td_job *j = s->job;
    s->cached = d->cached;
    f->metrics.cached_tokens += (uint64_t)TD_MAX(d->cached, 0);
    over(f, s);
    if (open && (d->reason == TD_DONE_STOP || d->reason == TD_DONE_LENGTH))
        finish_seq(f, s, d);
    else if (open)
        fail_seq(f, s, d);
    check_complete(f, j);
}

/* ---- the engine is gone ------------------------------------------------------------- */

static void lose_seq(struct td_front *f, struct td_seq *s)
{
    struct td_job *j = s->job;
    bool ended = s->state == TD_SEQ_ENDED;
    over(f, s);
    if (ended) {
        check_complete(f, j);
        return;
    }
    s->deaths += s->running;
    if (s->deaths < MAX_DEATHS) {
        f->metrics.resumed += s->voice->ids.len > 0;
        enqueue(f, s);
        return;
    }
    struct td_refusal no;
    td_refuse(&no, 500, NULL, "the engine ended twice while it computed this answer");
    no.type = "server_error";
    no.code = "engine_lost";
    fail_job(f, j, &no);
    free_if_over(j);
}

void td_jobs_engine_lost(struct td_front *f, bool for_good)
{
    for (int i = 0; i < TD_MAX_SEQUENCES; i++)
        if (f->by_slot[i])
            lose_seq(f, f->by_slot[i]);
    if (!for_good)
        return;
    struct td_refusal no;
    td_refuse(&no, 503, NULL, "the engine has ended: %s", f->startup.error.what);
    no.type = "server_error";
    no.code = "engine_lost";
    td_jobs_fail_all(f, &no);
}

/* ---- time -------------------------------------------------------------------------- */

static void expire(struct td_front *f, struct td_job *j, double now)
{
    bool waits = !j->closed && !j->started;
    for (int i = 0; i < j->n && waits; i++)
        waits = j->seqs[i].state == TD_SEQ_QUEUED;
    if (!waits || now - j->arrived < f->params.queue_timeout)
        return;
    struct td_refusal no;
    td_refuse(&no, 503, NULL, "the request waited %.1f seconds for its turn",
              now - j->arrived);
    no.type = "server_error";
    no.code = "queue_timeout";
    fail_job(f, j, &no);
}

static void keep_alive(struct td_front *f, struct td_job *j, double now)
{
    struct td_buf b;
    if (j->closed || !j->ask.stream || now - j->last_write < KEEP_ALIVE)
        return;
    td_buf_init(&b, 64);
    td_buf_adds(&b, ": keep-alive\n\n");
    send_text(f, j, &b);
    td_buf_release(&b);
}

void td_jobs_timers(struct td_front *f, double now)
{
    struct td_job *next;
    for (struct td_job *j = f->jobs; j; j = next) {
        next = j->next;
        expire(f, j, now);
        keep_alive(f, j, now);
        free_if_over(j);
    }
}

void td_jobs_fail_all(struct td_front *f, const struct td_refusal *no)
{
    struct td_job *next;
    for (struct td_job *j = f->jobs; j; j = next) {
        next = j->next;
        fail_job(f, j, no);
        free_if_over(j);
    }
}

void td_jobs_free(struct td_front *f)
{
    while (f->jobs)
        free_job(f->jobs);
}

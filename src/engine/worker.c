/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine as a process. See worker.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "engine/worker.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/wire.h"
#include "sched/sched.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SNAPSHOT_INTERVAL = 512, /* tokens, doubled until a sequence has few enough */
    READ_SIZE = 1 << 16
};

static const double STATS_EVERY = 0.2; /* seconds */

/* What a request is to the worker; its lists live in the arena. */
struct job {
    struct td_wire_submit submit;
    struct td_arena arena;
    struct td_wire_done done; /* filled when it ends */
    bool ended;
};

struct worker {
    struct td_engine *engine;
    struct td_engine_info info;
    struct td_sched *sched;
    struct td_sampler *samplers; /* [n_slots] */
    uint64_t *sampler_of;        /* [n_slots] request that the sampler counts for */
    struct td_sample_work work;
    struct td_seq_rows *rows;     /* [2 * n_slots] */
    struct td_wire_token *tokens; /* [n_slots] of the present step */
    struct td_logprob *tops;      /* [n_slots][TD_MAX_LOGPROBS] */
    struct td_request **ended;    /* [n_slots] in the present step */
    int32_t n_tokens, n_ended;
    int32_t vocab; /* ids that may be sampled */
    int fd;
    struct td_buf in, out;
    bool hung_up;
    struct td_wire_stats stats, sent;
    double stats_at;
};

/* ---- making ------------------------------------------------------------------------ */

static enum td_status make_sched(struct worker *w, int32_t max_waiting,
                                 struct td_error *err)
{
    struct td_sched_params p = {.n_blocks = w->info.n_blocks,
                                .n_slots = w->info.n_slots,
                                .n_snapshots = w->info.n_snapshots,
                                .interval = SNAPSHOT_INTERVAL,
                                .max_rows = w->info.max_rows,
                                .max_out = w->info.max_out,
                                .max_len = w->info.max_len,
                                .max_waiting = max_waiting};
    /* a long prompt must not push all other states out */
    while (w->info.n_snapshots &&
           w->info.max_len / p.interval > w->info.n_snapshots / 4 &&
           p.interval < w->info.max_len)
        p.interval *= 2;
    return td_sched_new(&p, &w->sched, err);
}

static enum td_status make_buffers(struct worker *w, struct td_error *err)
{
    size_t slots = (size_t)w->info.n_slots;
    w->samplers = td_calloc(slots, sizeof(*w->samplers));
    w->sampler_of = td_calloc(slots, sizeof(*w->sampler_of));
    w->rows = td_calloc(2 * slots, sizeof(*w->rows));
    w->tokens = td_calloc(slots, sizeof(*w->tokens));
    w->tops = td_calloc(slots * TD_MAX_LOGPROBS, sizeof(*w->tops));
    w->ended = td_calloc(slots, sizeof(struct td_request *));
    if (!w->samplers || !w->sampler_of || !w->rows || !w->tokens || !w->tops ||
        !w->ended)
        return td_error_set(err, TD_E_NOMEM, "no memory for a worker");
    enum td_status s = td_sample_work_init(&w->work, w->vocab, err);
    for (size_t i = 0; i < slots && s == TD_OK; i++)
        s = td_sampler_init(&w->samplers[i], w->vocab, w->info.max_len, err);
    return s;
}

static enum td_status worker_open(struct worker *w, const struct td_worker_params *p,
                                  struct td_error *err)
{
    struct td_engine_params e = p->engine;
    e.serves = true;
    e.vocab = p->vocab;
    w->fd = p->fd;
    td_buf_init(&w->in, TD_MAX_FRAME + 8);
    td_buf_init(&w->out, TD_MAX_FRAME + 8);
    (void)fcntl(w->fd, F_SETFL, fcntl(w->fd, F_GETFL) | O_NONBLOCK);
    enum td_status s = td_engine_open(&e, &w->engine, err);
    if (s != TD_OK)
        return s;
    td_engine_info(w->engine, &w->info);
    w->vocab = TD_MIN(p->vocab, w->info.config->vocab);
    s = make_sched(w, p->max_waiting, err);
    return s == TD_OK ? make_buffers(w, err) : s;
}

static void worker_close(struct worker *w)
{
    for (int32_t i = 0; w->samplers && i < w->info.n_slots; i++)
        td_sampler_release(&w->samplers[i]);
    td_free(w->samplers);
    td_free(w->sampler_of);
    td_free(w->rows);
    td_free(w->tokens);
    td_free(w->tops);
    td_free(w->ended);
    td_sample_work_release(&w->work);
    td_sched_free(w->sched);
    td_engine_close(w->engine);
    td_buf_release(&w->in);
    td_buf_release(&w->out);
    (void)close(w->fd);
}

/* ---- answers ----------------------------------------------------------------------- */

static void job_free(struct job *j)
{
    td_arena_release(&j->arena);
    td_free(j);
}

/* Ends a request; it leaves the scheduler behind the step. */
static void end_job(struct worker *w, struct td_request *r, enum td_done_reason reason,
                    const struct td_error *why)
{
    struct job *j = r->user;
    if (j->ended)
        return;
    j->ended = true;
    j->done = (struct td_wire_done){
        .request = r->id, .reason = reason, .stop_id = -1, .cached = r->cached};
    if (why)
        j->done.error = *why;
    else
        td_error_init(&j->done.error);
    w->ended[w->n_ended++] = r;
}

static void send_ended(struct worker *w)
{
    for (int32_t i = 0; i < w->n_ended; i++) {
        struct job *j = w->ended[i]->user;
        td_wire_put_done(&w->out, &j->done);
        td_sched_finish(w->sched, w->ended[i]);
        job_free(j);
    }
    w->n_ended = 0;
}

static void refuse(struct worker *w, uint64_t id, const struct td_error *why)
{
    struct td_wire_done d = {
        .request = id, .reason = TD_DONE_REFUSED, .stop_id = -1, .error = *why};
    td_wire_put_done(&w->out, &d);
}

static void send_stats(struct worker *w)
{
    struct td_sched_counts c;
    double now = td_clock_now();
    if (now - w->stats_at < STATS_EVERY && !td_sched_idle(w->sched))
        return;
    td_sched_counts(w->sched, &c);
    struct td_wire_stats *s = &w->stats;
    s->running = c.running;
    s->waiting = c.waiting;
    s->kv_used = c.blocks_used;
    s->kv_total = w->info.n_blocks;
    s->slots_used = c.slots_used;
    s->slots_total = w->info.n_slots;
    s->prefix_queries = c.prefix_queries;
    s->prefix_hits = c.prefix_hits;
    s->prompt_tokens = c.prompt_tokens;
    s->generated_tokens = c.generated_tokens;
    s->preemptions = c.preemptions;
    struct td_engine_info info;
    td_engine_info(w->engine, &info);
    s->sum_seconds = info.comm.seconds;
    s->wait_seconds = info.comm.waited;
    if (memcmp(s, &w->sent, sizeof(*s)) == 0)
        return;
    w->sent = *s;
    w->stats_at = now;
    td_wire_put_stats(&w->out, s);
}

/* ---- requests ---------------------------------------------------------------------- */

static enum td_status check_job(const struct worker *w, const struct td_wire_submit *m,
                                struct td_error *err)
{
    int32_t vocab = w->info.config->vocab;
    const int32_t *lists[] = {m->prompt, m->generated};
    const int32_t counts[] = {m->n_prompt, m->n_generated};
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < counts[k]; i++)
            if (lists[k][i] < 0 || lists[k][i] >= vocab)
                return td_error_set(err, TD_E_INPUT, "token id %d is not within 0..%d",
                                    lists[k][i], vocab - 1);
    return td_sampling_check(&m->sampling, w->vocab, err);
}

static enum td_status take_job(struct worker *w, const struct job *j,
                               struct td_error *err)
{
    const struct td_wire_submit *m = &j->submit;
    struct td_request *r;
    struct td_submission sub = {.id = m->id,
                                .user = (struct job *)(uintptr_t)j,
                                .prompt = m->prompt,
                                .generated = m->generated,
                                .hints = m->snapshots,
                                .n_prompt = m->n_prompt,
                                .n_generated = m->n_generated,
                                .n_hints = m->n_snapshots,
                                .max_tokens = m->max_tokens,
                                .all_logits = m->prompt_logprobs >= 0};
    enum td_status s = check_job(w, m, err);
    return s == TD_OK ? td_sched_submit(w->sched, &sub, &r, err) : s;
}

static enum td_status on_submit(struct worker *w, const struct td_frame *f,
                                struct td_error *err)
{
    struct td_error why;
    struct job *j = td_calloc(1, sizeof(*j));
    if (!j)
        return td_error_set(err, TD_E_NOMEM, "no memory for a request");
    td_arena_init(&j->arena, TD_MAX_FRAME);
    td_error_init(&why);
    enum td_status s = td_wire_get_submit(f, &j->arena, &j->submit, err);
    if (s == TD_OK && take_job(w, j, &why) != TD_OK) {
        refuse(w, j->submit.id, &why);
        job_free(j);
        return TD_OK;
    }
    if (s != TD_OK)
        job_free(j);
    return s;
}

static enum td_status on_cancel(struct worker *w, const struct td_frame *f,
                                struct td_error *err)
{
    uint64_t id;
    enum td_status s = td_wire_get_cancel(f, &id, err);
    struct td_request *r = s == TD_OK ? td_sched_find(w->sched, id) : NULL;
    if (r) {
        end_job(w, r, TD_DONE_CANCELLED, NULL);
        send_ended(w);
    }
    return s;
}

static enum td_status on_frame(struct worker *w, const struct td_frame *f,
                               struct td_error *err)
{
    struct td_wire_hello hello;
    switch (f->type) {
    case TD_WIRE_HELLO:
        return td_wire_get_hello(f, &hello, err);
    case TD_WIRE_SUBMIT:
        return on_submit(w, f, err);
    case TD_WIRE_CANCEL:
        return on_cancel(w, f, err);
    default:
        return td_error_set(err, TD_E_PEER, "message %d is not for an engine", f->type);
    }
}

/* ---- the socket -------------------------------------------------------------------- */

static enum td_status parse(struct worker *w, struct td_error *err)
{
    size_t at = 0, used = 1;
    enum td_status s = TD_OK;
    while (s == TD_OK && used) {
        struct td_frame f;
        s = td_wire_next(w->in.p + at, w->in.len - at, &f, &used, err);
        if (s == TD_OK && used)
            s = on_frame(w, &f, err);
        at += used;
    }
    td_buf_drop(&w->in, at);
    return s;
}

static enum td_status receive(struct worker *w, struct td_error *err)
{
    for (;;) {
        if (td_buf_reserve(&w->in, READ_SIZE) != TD_OK)
            return td_error_set(err, w->in.status, "no room for a request");
        ssize_t n = read(w->fd, w->in.p + w->in.len, READ_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return TD_OK;
        if (n <= 0) {
            w->hung_up = true;
            return TD_OK;
        }
        td_buf_set_len(&w->in, w->in.len + (size_t)n);
        enum td_status s = parse(w, err); /* so that it holds one message at most */
        if (s != TD_OK)
            return s;
    }
}

static enum td_status send_out(struct worker *w, struct td_error *err)
{
    size_t at = 0;
    if (w->out.status != TD_OK)
        return td_error_set(err, TD_E_PEER, "the front does not take its messages");
    while (at < w->out.len) {
        ssize_t n = write(w->fd, w->out.p + at, w->out.len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            w->hung_up = true;
            return TD_OK;
        }
        at += (size_t)n;
    }
    td_buf_drop(&w->out, at);
    return TD_OK;
}

/* Waits for the socket: not at all while there is something to compute. */
static enum td_status exchange(struct worker *w, struct td_error *err)
{
    bool idle = td_sched_idle(w->sched);
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    send_stats(w);
    enum td_status s = send_out(w, err);
    if (w->out.len)
        p.events |= POLLOUT;
    if (s != TD_OK || w->hung_up)
        return s;
    int n = poll(&p, 1, idle ? -1 : 0);
    if (n < 0 && errno != EINTR)
        return td_error_set(err, TD_E_IO, "waiting for the front: %s", strerror(errno));
    return n > 0 ? receive(w, err) : TD_OK;
}

/* ---- the step ---------------------------------------------------------------------- */

/* The sampler of the request's slot, counting for this request. */
static enum td_status sampler_for(struct worker *w, struct td_request *r,
                                  struct td_sampler **out, struct td_error *err)
{
    struct td_sampler *s = &w->samplers[r->slot];
    const struct job *j = r->user;
    *out = s;
    if (w->sampler_of[r->slot] == r->id + 1)
        return TD_OK;
    w->sampler_of[r->slot] = r->id + 1; /* 0 stands for nobody */
    return td_sampler_begin(s, &j->submit.sampling, r->ids, (size_t)r->n_prompt,
                            r->ids + r->n_prompt, (size_t)(r->n_ids - r->n_prompt),
                            err);
}

static struct td_wire_token wire_token(uint64_t request, const struct td_sampled *t)
{
    return (struct td_wire_token){.request = request,
                                  .id = t->id,
                                  .rank = t->rank,
                                  .logprob = t->logprob,
                                  .n_top = t->n_top,
                                  .top = t->top};
}

/* The token behind the last row of a request; `row` counts rows with logits. */
static void sample_row(struct worker *w, struct td_request *r, int32_t row)
{
    struct job *j = r->user;
    struct td_sampler *sampler;
    struct td_sampled t = {0};
    struct td_error err;
    td_error_init(&err);
    enum td_status s = sampler_for(w, r, &sampler, &err);
    if (s == TD_OK)
        s = td_engine_sample(w->engine, row, sampler, &w->work, r->n_ids, &t, &err);
    if (s == TD_OK && t.stop == TD_STOP_NONE)
        s = td_sampler_add(sampler, t.id);
    if (s != TD_OK) {
        end_job(w, r, TD_DONE_FAILED, &err);
        return;
    }
    if (t.stop != TD_STOP_NONE) {
        end_job(w, r, TD_DONE_STOP, NULL);
        j->done.stop_id = t.id;
        return;
    }
    struct td_wire_token *out = &w->tokens[w->n_tokens];
    struct td_logprob *top = w->tops + (size_t)w->n_tokens++ * TD_MAX_LOGPROBS;
    *out = wire_token(r->id, &t);
    if (t.n_top)
        memcpy(top, t.top, (size_t)t.n_top * sizeof(*top));
    out->top = top;
    if (!td_sched_append(w->sched, r, t.id))
        end_job(w, r, TD_DONE_LENGTH, NULL);
}

/* What the model thought of the prompt tokens behind each row of a piece. */
static void send_prompt_logprobs(struct worker *w, const struct td_sched_row *row,
                                 int32_t first)
{
    struct td_request *r = row->request;
    const struct job *j = r->user;
    struct td_error err;
    int32_t n = TD_MIN(row->n, r->n_prompt - 1 - row->start);
    td_error_init(&err);
    for (int32_t i = 0; i < n; i++) {
        struct td_sampled t;
        const float *logits;
        enum td_status s = td_engine_logits(w->engine, first + i, &logits, &err);
        if (s == TD_OK)
            s = td_logprobs(&w->work, logits, r->ids[row->start + i + 1],
                            j->submit.prompt_logprobs, &t, &err);
        if (s != TD_OK) {
            end_job(w, r, TD_DONE_FAILED, &err);
            return;
        }
        t.id = r->ids[row->start + i + 1];
        struct td_wire_token entry = wire_token(r->id, &t);
        struct td_wire_prompt_logprobs m = {
            .request = r->id, .first = row->start + i + 1, .n = 1, .entries = &entry};
        td_wire_put_prompt_logprobs(&w->out, &m);
    }
}

static enum td_status forward(struct worker *w, const struct td_sched_step *step,
                              struct td_error *err)
{
    for (int32_t i = 0; i < step->n_restore; i++)
        td_engine_copy_state(w->engine, step->restore[i].to, step->restore[i].from);
    for (int32_t i = 0; i < step->n_rows; i++) {
        const struct td_sched_row *row = &step->rows[i];
        const struct td_request *r = row->request;
        w->rows[i] = (struct td_seq_rows){.ids = r->ids + row->start,
                                          .n = row->n,
                                          .start = row->start,
                                          .decode = row->decode,
                                          .slot = r->slot,
                                          .blocks = r->blocks,
                                          .n_blocks = r->n_blocks,
                                          .n_out = row->n_out};
    }
    return td_engine_forward(w->engine, w->rows, step->n_rows, err);
}

static enum td_status step(struct worker *w, struct td_error *err)
{
    struct td_sched_step plan;
    const struct td_state_copy *saves;
    int32_t n_saves, out = 0;
    double start = td_clock_now();
    td_sched_plan(w->sched, &plan);
    enum td_status s = plan.n_rows ? forward(w, &plan, err) : TD_OK;
    if (s != TD_OK)
        return s;
    w->n_tokens = 0;
    for (int32_t i = 0; i < plan.n_rows; i++) {
        const struct td_sched_row *row = &plan.rows[i];
        const struct job *j = row->request->user;
        if (j->submit.prompt_logprobs >= 0 && !row->decode)
            send_prompt_logprobs(w, row, out);
        out += row->n_out;
        if (row->n_out && row->start + row->n == row->request->n_ids && !j->ended)
            sample_row(w, row->request, out - 1);
    }
    if (w->n_tokens)
        td_wire_put_tokens(&w->out, w->tokens, w->n_tokens);
    td_sched_commit(w->sched, &saves, &n_saves);
    for (int32_t i = 0; i < n_saves; i++)
        td_engine_copy_state(w->engine, saves[i].to, saves[i].from);
    send_ended(w);
    w->stats.steps++;
    w->stats.step_seconds += td_clock_now() - start;
    return TD_OK;
}

static void say_hello(struct worker *w, const char *build)
{
    struct td_wire_hello h = {.version = TD_WIRE_VERSION,
                              .ranks = w->info.ranks,
                              .max_len = w->info.max_len,
                              .max_seqs = w->info.max_seqs,
                              .max_rows = w->info.max_rows,
                              .vocab = w->info.config->vocab,
                              .kv_blocks = w->info.n_blocks,
                              .kv_block_tokens = TD_KV_BLOCK,
                              .memory = w->info.used};
    (void)snprintf(h.build, sizeof(h.build), "%s", build);
    (void)snprintf(h.level, sizeof(h.level), "%s", w->info.level);
    td_wire_put_hello(&w->out, &h);
}

enum td_status td_worker_run(const struct td_worker_params *params,
                             struct td_error *err)
{
    struct worker *w = td_calloc(1, sizeof(*w));
    if (!w)
        return td_error_set(err, TD_E_NOMEM, "no memory for a worker");
    enum td_status s = worker_open(w, params, err);
    if (s == TD_OK)
        say_hello(w, params->build);
    while (s == TD_OK && !w->hung_up) {
        s = exchange(w, err);
        if (s == TD_OK && !td_sched_idle(w->sched))
            s = step(w, err);
    }
    worker_close(w);
    td_free(w);
    return s;
}

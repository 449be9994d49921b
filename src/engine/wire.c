/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames between front and engine. See wire.h.
 *
 * Each message has one function that lists its fields in order, run over a `cursor` that
 * either writes or reads. So the two directions cannot drift apart. A cursor that runs
 * over its end, or meets a count that cannot be, turns bad and stays so. Writing never
 * stores through the fields' pointers, so what is written may be constant.
 */
#include "engine/wire.h"

#include "base/limits.h"

#include <string.h>

enum { HEADER = 8 };

struct cursor {
    struct td_buf *out; /* writing */
    const char *at;     /* reading */
    size_t left;
    struct td_arena *arena;
    enum td_status status;
};

static void bad(struct cursor *c)
{
    if (c->status == TD_OK)
        c->status = TD_E_PEER;
}

/* n bytes, least significant first; *v is what to write, or receives what is read. */
static void number(struct cursor *c, uint64_t *v, size_t n)
{
    unsigned char bytes[8];
    if (c->out) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = (unsigned char)(*v >> (8 * i));
        td_buf_add(c->out, bytes, n);
        return;
    }
    *v = 0;
    if (c->left < n) {
        bad(c);
        c->left = 0;
        return;
    }
    for (size_t i = 0; i < n; i++)
        *v |= (uint64_t)(unsigned char)c->at[i] << (8 * i);
    c->at += n;
    c->left -= n;
}

static void u64(struct cursor *c, uint64_t *v)
{
    number(c, v, 8);
}

static void i64(struct cursor *c, int64_t *v)
{
    uint64_t x = (uint64_t)*v;
    number(c, &x, 8);
    if (!c->out)
        *v = (int64_t)x;
}

static void i32(struct cursor *c, int32_t *v)
{
    uint64_t x = (uint32_t)*v;
    number(c, &x, 4);
    if (!c->out)
        *v = (int32_t)(uint32_t)x;
}

static void u32(struct cursor *c, uint32_t *v)
{
    uint64_t x = *v;
    number(c, &x, 4);
    if (!c->out)
        *v = (uint32_t)x;
}

static void f32(struct cursor *c, float *v)
{
    uint32_t x;
    memcpy(&x, v, sizeof(x));
    u32(c, &x);
    if (!c->out)
        memcpy(v, &x, sizeof(x));
}

static void f64(struct cursor *c, double *v)
{
    uint64_t x;
    memcpy(&x, v, sizeof(x));
    u64(c, &x);
    if (!c->out)
        memcpy(v, &x, sizeof(x));
}

static void flag(struct cursor *c, bool *v)
{
    uint64_t x = *v;
    number(c, &x, 1);
    if (!c->out)
        *v = x != 0;
}

/* A string in an array of `size` bytes. */
static void text(struct cursor *c, char *s, size_t size)
{
    uint32_t n = c->out ? (uint32_t)strlen(s) : 0;
    u32(c, &n);
    if (c->out) {
        td_buf_add(c->out, s, n);
        return;
    }
    if (n >= size || n > c->left) {
        bad(c);
        return;
    }
    memcpy(s, c->at, n);
    s[n] = 0;
    c->at += n;
    c->left -= n;
}

/* A count of things that take at least `bytes` each in the body, at most `max`. */
static void count(struct cursor *c, int32_t *n, size_t bytes, int32_t max)
{
    i32(c, n);
    if (c->out)
        return;
    if (*n < 0 || *n > max || (size_t)*n > c->left / bytes) {
        bad(c);
        *n = 0;
    }
}

/* Memory for n things when reading; what is there when writing. */
static void *list(struct cursor *c, const void *p, int32_t n, size_t size)
{
    if (c->out)
        return (void *)(uintptr_t)p;
    void *copy = td_arena_alloc(c->arena, (size_t)n, size);
    if (!copy && c->status == TD_OK)
        c->status = TD_E_NOMEM;
    return c->status == TD_OK ? copy : NULL;
}

static void ids(struct cursor *c, const int32_t **p, int32_t *n)
{
    count(c, n, 4, TD_MAX_POSITIONS);
    int32_t *v = list(c, *p, *n, sizeof(*v));
    for (int32_t i = 0; v && i < *n; i++)
        i32(c, &v[i]);
    *p = v;
}

/* Like ids() with a size_t count. */
static void few_ids(struct cursor *c, const int32_t **p, size_t *n)
{
    int32_t k = (int32_t)*n;
    ids(c, p, &k);
    if (k > TD_MAX_STOP_IDS)
        bad(c);
    *n = (size_t)k;
}

static void biases(struct cursor *c, struct td_sampling *s)
{
    int32_t n = (int32_t)s->n_bias;
    count(c, &n, 8, TD_MAX_LOGIT_BIAS);
    struct td_logit_bias *v = list(c, s->bias, n, sizeof(*v));
    for (int32_t i = 0; v && i < n; i++) {
        i32(c, &v[i].id);
        f32(c, &v[i].bias);
    }
    s->bias = v;
    s->n_bias = (size_t)n;
}

static void sampling(struct cursor *c, struct td_sampling *s)
{
    f32(c, &s->temperature);
    i32(c, &s->top_k);
    f32(c, &s->top_p);
    f32(c, &s->min_p);
    f32(c, &s->repetition_penalty);
    f32(c, &s->presence_penalty);
    f32(c, &s->frequency_penalty);
    u64(c, &s->seed);
    u32(c, &s->choice);
    i32(c, &s->logprobs);
    i64(c, &s->min_tokens);
    flag(c, &s->ignore_eos);
    few_ids(c, &s->eos_ids, &s->n_eos_ids);
    few_ids(c, &s->stop_ids, &s->n_stop_ids);
    biases(c, s);
}

static void hello(struct cursor *c, struct td_wire_hello *m)
{
    i32(c, &m->version);
    text(c, m->build, sizeof(m->build));
    i32(c, &m->ranks);
    i32(c, &m->max_len);
    i32(c, &m->max_seqs);
    i32(c, &m->max_rows);
    i32(c, &m->vocab);
    i32(c, &m->kv_blocks);
    i32(c, &m->kv_block_tokens);
    i64(c, &m->memory);
    text(c, m->level, sizeof(m->level));
}

static void submit(struct cursor *c, struct td_wire_submit *m)
{
    u64(c, &m->id);
    ids(c, &m->prompt, &m->n_prompt);
    ids(c, &m->generated, &m->n_generated);
    i32(c, &m->max_tokens);
    i32(c, &m->prompt_logprobs);
    ids(c, &m->snapshots, &m->n_snapshots);
    sampling(c, &m->sampling);
}

static void stats(struct cursor *c, struct td_wire_stats *m)
{
    i32(c, &m->running);
    i32(c, &m->waiting);
    i32(c, &m->kv_used);
    i32(c, &m->kv_total);
    i32(c, &m->slots_used);
    i32(c, &m->slots_total);
    i64(c, &m->prefix_queries);
    i64(c, &m->prefix_hits);
    i64(c, &m->prompt_tokens);
    i64(c, &m->generated_tokens);
    i64(c, &m->preemptions);
    i64(c, &m->steps);
    f64(c, &m->step_seconds);
    f64(c, &m->sum_seconds);
    f64(c, &m->wait_seconds);
}

static void token(struct cursor *c, struct td_wire_token *t)
{
    u64(c, &t->request);
    i32(c, &t->id);
    i32(c, &t->rank);
    f32(c, &t->logprob);
    count(c, &t->n_top, 8, TD_MAX_LOGPROBS);
    struct td_logprob *top = list(c, t->top, t->n_top, sizeof(*top));
    for (int32_t i = 0; top && i < t->n_top; i++) {
        i32(c, &top[i].id);
        f32(c, &top[i].logprob);
    }
    if (!c->out)
        t->top = top;
}

static struct td_wire_token *tokens(struct cursor *c, const struct td_wire_token *p,
                                    int32_t *n)
{
    enum { SMALLEST = 24 };
    count(c, n, SMALLEST, INT32_MAX);
    struct td_wire_token *v = list(c, p, *n, sizeof(*v));
    for (int32_t i = 0; v && i < *n; i++)
        token(c, &v[i]);
    return v;
}

static void prompt_logprobs(struct cursor *c, struct td_wire_prompt_logprobs *m)
{
    u64(c, &m->request);
    i32(c, &m->first);
    m->entries = tokens(c, m->entries, &m->n);
}

static void done(struct cursor *c, struct td_wire_done *m)
{
    int32_t reason = (int32_t)m->reason, code = (int32_t)m->error.code;
    int32_t phase = (int32_t)m->error.phase;
    u64(c, &m->request);
    i32(c, &reason);
    i32(c, &m->stop_id);
    i32(c, &m->cached);
    i32(c, &code);
    i32(c, &phase);
    i32(c, &m->error.rank);
    text(c, m->error.host, sizeof(m->error.host));
    text(c, m->error.what, sizeof(m->error.what));
    text(c, m->error.why, sizeof(m->error.why));
    text(c, m->error.fix, sizeof(m->error.fix));
    if (reason < 0 || reason > TD_DONE_FAILED || code < 0 || code >= TD_STATUS_COUNT ||
        phase < 0 || phase >= TD_PHASE_COUNT) {
        bad(c);
        reason = code = phase = 0;
    }
    m->reason = (enum td_done_reason)reason; /* m is a copy when writing */
    m->error.code = (enum td_status)code;
    m->error.phase = (enum td_phase)phase;
}

/* ---- frames ----------------------------------------------------------------------- */

/* Begins a frame; its length is filled in by finish(). */
static struct cursor begin(struct td_buf *b, enum td_wire_type type, size_t *start)
{
    struct cursor c = {.out = b};
    uint32_t bytes = 0;
    uint64_t kind = type, version = TD_WIRE_VERSION;
    *start = b->len;
    u32(&c, &bytes);
    number(&c, &kind, 2);
    number(&c, &version, 2);
    return c;
}

static enum td_status finish(struct td_buf *b, size_t start)
{
    if (b->status != TD_OK)
        return b->status;
    size_t n = b->len - start - HEADER;
    if (n > TD_MAX_FRAME) {
        td_buf_set_len(b, start);
        return b->status = TD_E_LIMIT;
    }
    for (size_t i = 0; i < 4; i++)
        b->p[start + i] = (char)(n >> (8 * i) & 0xFF);
    return TD_OK;
}

enum td_status td_wire_next(const char *bytes, size_t n, struct td_frame *out,
                            size_t *used, struct td_error *err)
{
    struct cursor c = {.at = bytes, .left = n};
    uint32_t body = 0;
    uint64_t type = 0, version = 0;
    *used = 0;
    if (n < HEADER)
        return TD_OK;
    u32(&c, &body);
    number(&c, &type, 2);
    number(&c, &version, 2);
    if (version != TD_WIRE_VERSION) {
        td_error_set(err, TD_E_PEER,
                     "the other process speaks version %d of the protocol, this one %d",
                     (int)version, TD_WIRE_VERSION);
        td_error_why(err, "front and engine are of different builds");
        td_error_fix(err, "install one build, and start it anew");
        return TD_E_PEER;
    }
    if (type < TD_WIRE_HELLO || type > TD_WIRE_DONE || body > TD_MAX_FRAME)
        return td_error_set(err, TD_E_PEER,
                            "no message of this protocol: type %d, "
                            "%u bytes",
                            (int)type, body);
    if (c.left < body)
        return TD_OK;
    *out = (struct td_frame){(enum td_wire_type)type, c.at, body};
    *used = HEADER + (size_t)body;
    return TD_OK;
}

static struct cursor reading(const struct td_frame *f, struct td_arena *a)
{
    return (struct cursor){.at = f->body, .left = f->n, .arena = a};
}

static enum td_status end(struct cursor *c, const char *what, struct td_error *err)
{
    if (c->left)
        bad(c);
    if (c->status == TD_OK)
        return TD_OK;
    return td_error_set(err, c->status, "a %s message that does not add up", what);
}

enum td_status td_wire_put_hello(struct td_buf *b, const struct td_wire_hello *m)
{
    size_t start;
    struct cursor c = begin(b, TD_WIRE_HELLO, &start);
    struct td_wire_hello copy = *m;
    hello(&c, &copy);
    return finish(b, start);
}

enum td_status td_wire_get_hello(const struct td_frame *f, struct td_wire_hello *out,
                                 struct td_error *err)
{
    struct cursor c = reading(f, NULL);
    *out = (struct td_wire_hello){0};
    hello(&c, out);
    return end(&c, "HELLO", err);
}

enum td_status td_wire_put_submit(struct td_buf *b, const struct td_wire_submit *m)
{
    size_t start;
    struct cursor c = begin(b, TD_WIRE_SUBMIT, &start);
    struct td_wire_submit copy = *m;
    submit(&c, &copy);
    return finish(b, start);
}

enum td_status td_wire_get_submit(const struct td_frame *f, struct td_arena *a,
                                  struct td_wire_submit *out, struct td_error *err)
{
    struct cursor c = reading(f, a);
    *out = (struct td_wire_submit){0};
    submit(&c, out);
    return end(&c, "SUBMIT", err);
}

enum td_status td_wire_put_cancel(struct td_buf *b, uint64_t request)
{
    size_t start;
    struct cursor c = begin(b, TD_WIRE_CANCEL, &start);
    u64(&c, &request);
    return finish(b, start);
}

enum td_status td_wire_get_cancel(const struct td_frame *f, uint64_t *out,
                                  struct td_error *err)
{
    struct cursor c = reading(f, NULL);
    u64(&c, out);
    return end(&c, "CANCEL", err);
}

enum td_status td_wire_put_stats(struct td_buf *b, const struct td_wire_stats *m)
{
    size_t start;
    struct cursor c = begin(b, TD_WIRE_STATS, &start);
    struct td_wire_stats copy = *m;
    stats(&c, &copy);
    return finish(b, start);
}

enum td_status td_wire_get_stats(const struct td_frame *f, struct td_wire_stats *out,
                                 struct td_error *err)
{
    struct cursor c = reading(f, NULL);
    *out = (struct td_wire_stats){0};
    stats(&c, out);
    return end(&c, "STATS", err);
}

enum td_status td_wire_put_tokens(struct td_buf *b, const struct td_wire_token *t,
                                  int32_t n)
{
    size_t start;
    struct cursor c = begin(b, TD_WIRE_TOKENS, &start);
    (void)tokens(&c, t, &n);
    return finish(b, start);
}

enum td_status td_wire_get_tokens(const struct td_frame *f, struct td_arena *a,
                                  struct td_wire_token **out, int32_t *n,
                                  struct td_error *err)
{
    struct cursor c = reading(f, a);
    *n = 0;
    *out = tokens(&c, NULL, n);
    return end(&c, "TOKENS", err);
}

enum td_status td_wire_put_prompt_logprobs(struct td_buf *b,
                                           const struct td_wire_prompt_logprobs *m)
{
    size_t start;
    struct cursor c = begin(b, TD_WIRE_PROMPT_LOGPROBS, &start);
    struct td_wire_prompt_logprobs copy = *m;
    prompt_logprobs(&c, &copy);
    return finish(b, start);
}

enum td_status td_wire_get_prompt_logprobs(const struct td_frame *f, struct td_arena *a,
                                           struct td_wire_prompt_logprobs *out,
                                           struct td_error *err)
{
    struct cursor c = reading(f, a);
    *out = (struct td_wire_prompt_logprobs){0};
    prompt_logprobs(&c, out);
    return end(&c, "PROMPT_LOGPROBS", err);
}

enum td_status td_wire_put_done(struct td_buf *b, const struct td_wire_done *m)
{
    size_t start;
    struct cursor c = begin(b, TD_WIRE_DONE, &start);
    struct td_wire_done copy = *m;
    done(&c, &copy);
    return finish(b, start);
}

enum td_status td_wire_get_done(const struct td_frame *f, struct td_wire_done *out,
                                struct td_error *err)
{
    struct cursor c = reading(f, NULL);
    *out = (struct td_wire_done){0};
    done(&c, out);
    return end(&c, "DONE", err);
}

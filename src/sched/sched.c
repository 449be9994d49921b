/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who runs next. See sched.h for the states and rules.
 */
#include "sched/sched.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct queue {
    struct td_request *first, *last;
    int32_t n;
};

struct td_sched {
    struct td_sched_params p;
    struct td_pool *pool;
    struct queue waiting, running; /* running: PREFILL and DECODE, oldest first */
    int32_t *free_slots;           /* [n_slots] stack */
    int32_t n_free_slots;
    struct td_sched_row *rows;      /* [2 * n_slots] */
    struct td_state_copy *restores; /* [n_slots] */
    struct td_state_copy *saves;    /* [n_slots] */
    int32_t n_rows, n_restores;
    uint64_t arrivals;
    struct td_sched_counts counts;
};

static int32_t blocks_for(int32_t tokens)
{
    return (tokens + TD_SCHED_BLOCK - 1) / TD_SCHED_BLOCK;
}

static int32_t floor64(int32_t tokens)
{
    return tokens / TD_SCHED_BLOCK * TD_SCHED_BLOCK;
}

/* Inserts by arrival: the youngest is last. */
static void enqueue(struct queue *q, struct td_request *r)
{
    struct td_request *after = q->last;
    while (after && after->arrival > r->arrival)
        after = after->prev;
    r->prev = after;
    r->next = after ? after->next : q->first;
    if (r->next)
        r->next->prev = r;
    else
        q->last = r;
    if (after)
        after->next = r;
    else
        q->first = r;
    q->n++;
}

static void dequeue(struct queue *q, struct td_request *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        q->first = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else
        q->last = r->prev;
    r->prev = r->next = NULL;
    q->n--;
}

enum td_status td_sched_new(const struct td_sched_params *params, struct td_sched **out,
                            struct td_error *err)
{
    size_t slots = (size_t)params->n_slots;
    struct td_sched *s = td_calloc(1, sizeof(*s));
    if (!s)
        return td_error_set(err, TD_E_NOMEM, "no memory for a scheduler");
    s->p = *params;
    enum td_status st =
        td_pool_new(params->n_blocks, params->n_snapshots, &s->pool, err);
    s->free_slots = td_calloc(slots, sizeof(*s->free_slots));
    s->rows = td_calloc(2 * slots, sizeof(*s->rows));
    s->restores = td_calloc(slots, sizeof(*s->restores));
    s->saves = td_calloc(slots, sizeof(*s->saves));
    if (st == TD_OK && (!s->free_slots || !s->rows || !s->restores || !s->saves))
        st = td_error_set(err, TD_E_NOMEM, "no memory for a scheduler");
    if (st != TD_OK) {
        td_sched_free(s);
        return st;
    }
    for (int32_t i = params->n_slots - 1; i >= 0; i--)
        s->free_slots[s->n_free_slots++] = i;
    *out = s;
    return TD_OK;
}

static void request_free(struct td_request *r)
{
    td_free(r->ids);
    td_free(r->blocks);
    td_free(r->cuts);
    td_free(r);
}

static void free_queue(struct queue *q)
{
    while (q->first) {
        struct td_request *r = q->first;
        dequeue(q, r);
        request_free(r);
    }
}

void td_sched_free(struct td_sched *s)
{
    if (!s)
        return;
    free_queue(&s->waiting);
    free_queue(&s->running);
    td_pool_free(s->pool);
    td_free(s->free_slots);
    td_free(s->rows);
    td_free(s->restores);
    td_free(s->saves);
    td_free(s);
}

/* ---- submitting -------------------------------------------------------------------- */

static enum td_status check(const struct td_sched *s, const struct td_submission *sub,
                            struct td_error *err)
{
    int32_t room = TD_MIN(s->p.max_len, s->p.n_blocks * TD_SCHED_BLOCK);
    if (sub->n_prompt < 1)
        return td_error_set(err, TD_E_INPUT, "the prompt is empty");
    if (sub->n_prompt >= room || sub->n_generated >= room - sub->n_prompt) {
        td_error_set(err, TD_E_INPUT, "the prompt has %d tokens",
                     sub->n_prompt + sub->n_generated);
        td_error_why(err, "the context holds %d, answer included", room);
        return TD_E_INPUT;
    }
    if (sub->max_tokens <= sub->n_generated)
        return td_error_set(err, TD_E_INPUT, "max_tokens is %d", sub->max_tokens);
    if (s->waiting.n >= s->p.max_waiting) {
        td_error_set(err, TD_E_LIMIT, "%d requests wait already", s->waiting.n);
        td_error_fix(err, "try again later");
        return TD_E_LIMIT;
    }
    return TD_OK;
}

/* Hints in rising order, rounded down, each once, none at the start. */
static void copy_hints(struct td_request *r, const struct td_submission *sub)
{
    for (int32_t i = 0; i < sub->n_hints; i++) {
        int32_t at = floor64(sub->hints[i]);
        int32_t last = r->n_cuts ? r->cuts[r->n_cuts - 1] : 0;
        if (at > last && at <= r->n_prompt)
            r->cuts[r->n_cuts++] = at;
    }
}

enum td_status td_sched_submit(struct td_sched *s, const struct td_submission *sub,
                               struct td_request **out, struct td_error *err)
{
    enum td_status st = check(s, sub, err);
    if (st != TD_OK)
        return st;
    struct td_request *r = td_calloc(1, sizeof(*r));
    if (!r)
        return td_error_set(err, TD_E_NOMEM, "no memory for a request");
    int32_t room = TD_MIN(s->p.max_len, s->p.n_blocks * TD_SCHED_BLOCK);
    *r = (struct td_request){.id = sub->id,
                             .user = sub->user,
                             .n_prompt = sub->n_prompt,
                             .n_ids = sub->n_prompt + sub->n_generated,
                             .all_logits = sub->all_logits,
                             .slot = -1,
                             .arrival = s->arrivals};
    r->max_ids = r->n_prompt + TD_MIN(sub->max_tokens, room - r->n_prompt);
    r->ids = td_calloc((size_t)r->max_ids, sizeof(*r->ids));
    r->blocks = td_calloc((size_t)blocks_for(r->max_ids), sizeof(*r->blocks));
    r->cuts = td_calloc((size_t)sub->n_hints, sizeof(*r->cuts));
    if (!r->ids || !r->blocks || !r->cuts) {
        request_free(r);
        return td_error_set(err, TD_E_NOMEM, "no memory for a request");
    }
    memcpy(r->ids, sub->prompt, (size_t)sub->n_prompt * sizeof(*r->ids));
    if (sub->n_generated)
        memcpy(r->ids + sub->n_prompt, sub->generated,
               (size_t)sub->n_generated * sizeof(*r->ids));
    copy_hints(r, sub);
    s->arrivals++;
    enqueue(&s->waiting, r);
    *out = r;
    return TD_OK;
}

struct td_request *td_sched_find(const struct td_sched *s, uint64_t id)
{
    struct td_request *r = s->running.first;
    while (r && r->id != id)
        r = r->next;
    if (!r)
        for (r = s->waiting.first; r && r->id != id; r = r->next)
            ;
    return r;
}

bool td_sched_idle(const struct td_sched *s)
{
    return s->waiting.n == 0 && s->running.n == 0;
}

/* ---- blocks and slots -------------------------------------------------------------- */

/* Gives back all blocks (last first, so that leaves age before their parents) and the
 * slot. */
static void give_back(struct td_sched *s, struct td_request *r)
{
    while (r->n_blocks)
        td_pool_release(s->pool, r->blocks[--r->n_blocks]);
    if (r->slot >= 0)
        s->free_slots[s->n_free_slots++] = r->slot;
    r->slot = -1;
    r->done = r->known = 0;
}

static void preempt(struct td_sched *s, struct td_request *r)
{
    dequeue(&s->running, r);
    give_back(s, r);
    r->state = TD_REQUEST_WAITING;
    enqueue(&s->waiting, r);
    s->counts.preemptions++;
}

/* Takes blocks until the request has n; false when the pool is empty. */
static bool grow(struct td_sched *s, struct td_request *r, int32_t n)
{
    while (r->n_blocks < n) {
        int32_t block = td_pool_take(s->pool);
        if (block < 0)
            return false;
        r->blocks[r->n_blocks++] = block;
    }
    return true;
}

/* Every request in DECODE gets a block for its next position; the youngest running
 * requests go when there is none. */
static void grow_all(struct td_sched *s)
{
    struct td_request *r = s->running.first;
    while (r) {
        if (r->state != TD_REQUEST_DECODE || grow(s, r, blocks_for(r->n_ids))) {
            r = r->next;
            continue;
        }
        struct td_request *victim = s->running.last;
        preempt(s, victim);
        if (victim == r)
            break; /* it was the last one */
    }
}

/* ---- admission --------------------------------------------------------------------- */

static void find_prefix(struct td_sched *s, struct td_request *r, int32_t *snapshot)
{
    *snapshot = -1;
    if (r->all_logits || s->p.n_snapshots == 0)
        return;
    r->n_blocks =
        td_pool_find(s->pool, r->ids, r->n_ids, r->n_ids - 1, r->blocks, snapshot);
    r->known = r->n_blocks;
    r->done = r->n_blocks * TD_SCHED_BLOCK;
}

/* One block for each running request stays free, so that admission does not make the
 * next step preempt. */
static bool admit(struct td_sched *s, struct td_request *r)
{
    int32_t snapshot;
    if (s->n_free_slots == 0)
        return false;
    find_prefix(s, r, &snapshot);
    int32_t need = blocks_for(r->n_ids) - r->n_blocks;
    if (need + s->running.n > td_pool_available(s->pool) ||
        !grow(s, r, blocks_for(r->n_ids))) {
        give_back(s, r);
        return false;
    }
    r->slot = s->free_slots[--s->n_free_slots];
    r->state = TD_REQUEST_PREFILL;
    r->target = r->n_ids;
    if (snapshot >= 0)
        s->restores[s->n_restores++] =
            (struct td_state_copy){.from = s->p.n_slots + snapshot, .to = r->slot};
    if (!r->admitted) {
        r->cached = TD_MIN(r->done, r->n_prompt);
        s->counts.prefix_queries += r->n_prompt;
        s->counts.prefix_hits += r->cached;
        s->counts.prompt_tokens += r->n_prompt;
    }
    r->admitted = true;
    dequeue(&s->waiting, r);
    enqueue(&s->running, r);
    return true;
}

/* ---- the step ---------------------------------------------------------------------- */

/* Is a snapshot wanted behind position `at`, a multiple of 64? */
static bool wants_snapshot(const struct td_sched *s, const struct td_request *r,
                           int32_t at)
{
    if (s->p.n_snapshots == 0 || at == 0)
        return false;
    if (at % s->p.interval == 0 || at == floor64(r->n_prompt) ||
        at == floor64(r->n_prompt - 1))
        return true;
    for (int32_t i = 0; i < r->n_cuts; i++)
        if (r->cuts[i] == at)
            return true;
    return false;
}

/* Where a piece from r->done of at most n rows ends. */
static int32_t piece_end(const struct td_sched *s, const struct td_request *r,
                         int32_t n)
{
    int32_t end = r->done;
    while (end < r->target) {
        int32_t next = TD_MIN(floor64(end) + TD_SCHED_BLOCK, r->target);
        if (next - r->done > n)
            break;
        end = next;
        if (end % TD_SCHED_BLOCK == 0 && wants_snapshot(s, r, end))
            break;
    }
    return end;
}

/* Gives a request in PREFILL rows, at most `share`; returns how many. */
static int32_t add_piece(struct td_sched *s, struct td_request *r, int32_t share,
                         int32_t *outs)
{
    if (r->all_logits)
        share = TD_MIN(share, floor64(*outs));
    int32_t end = piece_end(s, r, share), n = end - r->done;
    if (n == 0)
        return 0;
    int32_t n_out = r->all_logits ? n : end == r->target;
    if (n_out > *outs)
        return 0;
    *outs -= n_out;
    s->rows[s->n_rows++] =
        (struct td_sched_row){.request = r, .start = r->done, .n = n, .n_out = n_out};
    return n;
}

static void add_prefill(struct td_sched *s, int32_t budget, int32_t outs)
{
    int32_t prompts = 0;
    for (struct td_request *r = s->running.first; r; r = r->next)
        prompts += r->state == TD_REQUEST_PREFILL;
    for (struct td_request *r = s->running.first; r && budget > 0; r = r->next) {
        if (r->state != TD_REQUEST_PREFILL)
            continue;
        int32_t share = TD_MAX(budget / prompts, TD_SCHED_BLOCK);
        /* a short prompt's rest goes to those behind it */
        budget -= add_piece(s, r, TD_MIN(share, budget), &outs);
        prompts--;
    }
}

void td_sched_plan(struct td_sched *s, struct td_sched_step *out)
{
    s->n_rows = s->n_restores = 0;
    grow_all(s);
    while (s->waiting.first && admit(s, s->waiting.first))
        ;
    int32_t outs = s->p.max_out;
    for (struct td_request *r = s->running.first; r; r = r->next) {
        if (r->state != TD_REQUEST_DECODE)
            continue;
        s->rows[s->n_rows++] = (struct td_sched_row){
            .request = r, .start = r->done, .n = 1, .decode = true, .n_out = 1};
        outs--;
    }
    add_prefill(s, s->p.max_rows - s->n_rows, outs);
    *out = (struct td_sched_step){.rows = s->rows,
                                  .n_rows = s->n_rows,
                                  .restore = s->restores,
                                  .n_restore = s->n_restores};
}

bool td_sched_append(struct td_sched *s, struct td_request *r, int32_t id)
{
    r->ids[r->n_ids++] = id;
    s->counts.generated_tokens++;
    return r->n_ids < r->max_ids;
}

/* Blocks that a piece has filled become known. */
static void make_known(struct td_sched *s, struct td_request *r)
{
    for (; r->known < r->done / TD_SCHED_BLOCK; r->known++) {
        int32_t parent = r->known ? r->blocks[r->known - 1] : -1;
        r->blocks[r->known] =
            td_pool_insert(s->pool, parent, r->blocks[r->known],
                           r->ids + (size_t)r->known * TD_SCHED_BLOCK);
    }
}

void td_sched_commit(struct td_sched *s, const struct td_state_copy **saves,
                     int32_t *n_saves)
{
    *n_saves = 0;
    *saves = s->saves;
    for (int32_t i = 0; i < s->n_rows; i++) {
        struct td_request *r = s->rows[i].request;
        r->done += s->rows[i].n;
        if (r->state == TD_REQUEST_DECODE || s->p.n_snapshots == 0)
            continue;
        make_known(s, r);
        if (r->done % TD_SCHED_BLOCK || !wants_snapshot(s, r, r->done))
            continue;
        int32_t to = td_pool_snapshot(s->pool, r->blocks[r->known - 1]);
        if (to >= 0)
            s->saves[(*n_saves)++] =
                (struct td_state_copy){.from = r->slot, .to = s->p.n_slots + to};
    }
    for (int32_t i = 0; i < s->n_rows; i++) {
        struct td_request *r = s->rows[i].request;
        if (r->state == TD_REQUEST_PREFILL && r->done == r->target)
            r->state = TD_REQUEST_DECODE;
    }
    s->n_rows = 0;
    td_sched_check(s);
}

void td_sched_finish(struct td_sched *s, struct td_request *r)
{
    assert(s->n_rows == 0);
    dequeue(r->state == TD_REQUEST_WAITING ? &s->waiting : &s->running, r);
    give_back(s, r);
    request_free(r);
}

void td_sched_counts(const struct td_sched *s, struct td_sched_counts *out)
{
    *out = s->counts;
    out->running = s->running.n;
    out->waiting = s->waiting.n;
    out->blocks_used = td_pool_used(s->pool);
    out->slots_used = s->p.n_slots - s->n_free_slots;
}

void td_sched_check(const struct td_sched *s)
{
#ifndef NDEBUG
    td_pool_check(s->pool);
    assert(s->running.n + s->n_free_slots == s->p.n_slots);
    for (const struct td_request *r = s->running.first; r; r = r->next) {
        assert(r->slot >= 0 && r->slot < s->p.n_slots);
        assert(r->n_blocks >= blocks_for(r->done) && r->done <= r->n_ids);
        assert(r->known <= r->done / TD_SCHED_BLOCK);
        assert(r->state != TD_REQUEST_WAITING);
        if (r->state == TD_REQUEST_PREFILL)
            assert(r->done < r->target);
        for (const struct td_request *o = r->next; o; o = o->next)
            assert(o->slot != r->slot && o->arrival > r->arrival);
    }
    for (const struct td_request *r = s->waiting.first; r; r = r->next)
        assert(r->slot == -1 && r->n_blocks == 0 && r->done == 0);
#else
    (void)s;
#endif
}

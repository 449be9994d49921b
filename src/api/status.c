/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the front says about itself: start-up state, its stream, status, rates.
 */
#define _POSIX_C_SOURCE 200809L
#include "api/front_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WATCHERS = 100000 };

static const double WATCH_COMMENT = 15; /* seconds of silence in a stream */

void td_front_not_ready(struct td_front *f, struct td_refusal *no)
{
    const struct td_startup *s = &f->startup;
    switch (f->draining ? TD_LIFE_STOPPING : s->life) {
    case TD_LIFE_STOPPING:
        td_refuse(no, 503, NULL, "the server is stopping");
        break;
    case TD_LIFE_LOST:
        td_refuse(no, 503, NULL, "the engine has ended and is started again: %s",
                  s->error.what);
        break;
    default:
        td_refuse(no, 503, NULL, "the server is starting: phase %s, %.1f of %.1f GiB",
                  td_phase_name(s->phase), s->bytes / (double)TD_GIB,
                  s->of / (double)TD_GIB);
    }
    no->type = "server_error";
    no->code = "not_ready";
}

void td_front_state(struct td_front *f, struct td_buf *out)
{
    (void)pthread_mutex_lock(&f->lock);
    td_startup_json(&f->startup, out);
    (void)pthread_mutex_unlock(&f->lock);
}

/* ---- the stream of /startupz --------------------------------------------------------- */

static void state_event(struct td_front *f, struct td_buf *b)
{
    td_buf_adds(b, "data: ");
    td_startup_json(&f->startup, b);
    td_buf_adds(b, "\n\n");
}

static bool add_watcher(struct td_front *f, struct td_exchange *x)
{
    if (f->n_watchers == f->max_watchers) {
        int max = f->max_watchers ? 2 * f->max_watchers : 16;
        struct td_exchange **list =
            f->max_watchers < MAX_WATCHERS
                ? td_realloc(f->watchers, (size_t)max, sizeof(struct td_exchange *))
                : NULL;
        if (!list)
            return false;
        f->watchers = list;
        f->max_watchers = max;
    }
    f->watchers[f->n_watchers++] = td_exchange_hold(x);
    return true;
}

static void watcher_gone(void *self, struct td_exchange *x)
{
    struct td_front *f = self;
    (void)pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->n_watchers; i++)
        if (f->watchers[i] == x) {
            td_exchange_release(f->watchers[i]);
            f->watchers[i] = f->watchers[--f->n_watchers];
            break;
        }
    (void)pthread_mutex_unlock(&f->lock);
}

void td_front_startupz(struct td_front *f, struct td_exchange *x)
{
    struct td_buf b;
    td_buf_init(&b, TD_MIB);
    (void)pthread_mutex_lock(&f->lock);
    bool ok = !f->told_drained && add_watcher(f, x);
    if (ok) {
        state_event(f, &b);
        td_exchange_add_header(x, "Cache-Control", "no-cache");
        td_exchange_begin(x, 200, "text/event-stream; charset=utf-8");
        (void)td_exchange_write(x, b.p, b.len);
    }
    (void)pthread_mutex_unlock(&f->lock);
    td_buf_release(&b);
    if (ok) {
        td_exchange_on_gone(x, watcher_gone, f);
        return;
    }
    struct td_refusal no;
    td_refuse(&no, 503, NULL, "no more streams of this kind are given");
    td_refuse_exchange(x, &no);
}

void td_front_tell_watchers(struct td_front *f, double now, bool last)
{
    struct td_buf b;
    bool news = f->startup.version != f->watched_version;
    if (!news && !last && now - f->watched_at < WATCH_COMMENT)
        return;
    f->watched_version = f->startup.version;
    f->watched_at = now;
    td_buf_init(&b, TD_MIB);
    if (news || last)
        state_event(f, &b);
    else
        td_buf_adds(&b, ": nothing new\n\n");
    for (int i = 0; i < f->n_watchers; i++) {
        (void)td_exchange_write(f->watchers[i], b.p, b.len);
        if (last) {
            td_exchange_end(f->watchers[i]);
            td_exchange_release(f->watchers[i]);
        }
    }
    if (last)
        f->n_watchers = 0;
    td_buf_release(&b);
}

/* ---- status ------------------------------------------------------------------------ */

void td_front_rates(struct td_front *f, double now)
{
    const struct td_metrics *m = &f->metrics;
    double dt = now - f->rate_at;
    if (dt < 1)
        return;
    f->prompt_rate = (double)(m->prompt_tokens - f->rate_prompt) / dt;
    f->token_rate = (double)(m->generated_tokens - f->rate_tokens) / dt;
    f->rate_at = now;
    f->rate_prompt = m->prompt_tokens;
    f->rate_tokens = m->generated_tokens;
}

void td_front_status(struct td_front *f, struct td_buf *b)
{
    const struct td_metrics *m = &f->metrics;
    const struct td_wire_stats *s = &m->stats;
    (void)pthread_mutex_lock(&f->lock);
    td_buf_addc(b, '{');
    td_reply_text(b, "model", f->params.served->name);
    td_reply_text(b, "version", f->params.version);
    td_buf_addf(b, ",\"uptime\":%.1f,\"startup\":", td_clock_now() - f->started_at);
    td_startup_json(&f->startup, b);
    td_buf_addf(
        b,
        ",\"requests\":{\"running\":%d,\"waiting\":%d,\"max_running\":%d,"
        "\"max_waiting\":%d,\"answered\":%" PRIu64 ",\"refused\":%" PRIu64 "}",
        s->running, s->waiting + f->n_queued, m->hello.max_seqs, f->params.max_queue,
        m->outcomes[TD_OUTCOME_STOP] + m->outcomes[TD_OUTCOME_LENGTH], m->refused);
    td_buf_addf(b,
                ",\"tokens\":{\"prompt\":%" PRIu64 ",\"generated\":%" PRIu64
                ",\"cached\":%" PRIu64
                ",\"prompt_per_second\":%.1f,\"generated_per_second\":%.1f}",
                m->prompt_tokens, m->generated_tokens, m->cached_tokens, f->prompt_rate,
                f->token_rate);
    td_buf_addf(b,
                ",\"cache\":{\"blocks_used\":%d,\"blocks\":%d,\"block_tokens\":%d,"
                "\"slots_used\":%d,\"slots\":%d,\"prefix_queries\":%" PRId64
                ",\"prefix_hits\":%" PRId64 ",\"preemptions\":%" PRId64 "}",
                s->kv_used, s->kv_total, m->hello.kv_block_tokens, s->slots_used,
                s->slots_total, m->past.prefix_queries + s->prefix_queries,
                m->past.prefix_hits + s->prefix_hits,
                m->past.preemptions + s->preemptions);
    td_buf_addf(b,
                ",\"engine\":{\"ranks\":%d,\"max_model_len\":%d,\"memory\":%" PRId64
                ",\"losses\":%" PRIu64
                ",\"step_seconds\":%.6f,\"sum_seconds\":%.6f,\"wait_seconds\":%.6f",
                m->hello.ranks, m->hello.max_len, m->hello.memory, m->engine_losses,
                m->past.step_seconds + s->step_seconds,
                m->past.sum_seconds + s->sum_seconds,
                m->past.wait_seconds + s->wait_seconds);
    td_reply_text(b, "level", m->hello.level);
    td_buf_adds(b, "}}");
    (void)pthread_mutex_unlock(&f->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's state. See startup.h.
 */
#include "api/startup.h"

#include "api/reply.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/sysmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void td_startup_init(struct td_startup *s)
{
    memset(s, 0, sizeof(*s));
    td_error_init(&s->error);
    s->phase = TD_PHASE_CHECK;
    s->begun = s->phase_at = td_clock_now();
}

void td_startup_phase(struct td_startup *s, enum td_phase phase)
{
    double now = td_clock_now();
    if (s->life == TD_LIFE_STARTING)
        s->spent[s->phase] += now - s->phase_at;
    s->phase_at = now;
    s->phase = phase;
    s->version++;
}

void td_startup_times(const struct td_startup *s, struct td_buf *b)
{
    const char *comma = "";
    for (int i = 0; i < TD_PHASE_COUNT; i++) {
        if (s->spent[i] < 0.05)
            continue;
        td_buf_addf(b, "%s%s %.1f s", comma, td_phase_name((enum td_phase)i),
                    s->spent[i]);
        comma = ", ";
    }
}

static const char *life_name(enum td_life life)
{
    static const char *const names[] = {[TD_LIFE_STARTING] = "starting",
                                        [TD_LIFE_READY] = "ready",
                                        [TD_LIFE_LOST] = "lost",
                                        [TD_LIFE_STOPPING] = "stopping"};
    return names[life];
}

void td_startup_enter(struct td_startup *s, enum td_life life)
{
    double now = td_clock_now();
    if (s->life == TD_LIFE_STOPPING)
        return;
    if (life == TD_LIFE_READY) {
        td_startup_phase(s, s->phase);
        s->ready_at = now;
    }
    if (life == TD_LIFE_STARTING && s->life == TD_LIFE_LOST) {
        s->begun = s->phase_at = now;
        s->phase = TD_PHASE_LAUNCH;
        memset(s->spent, 0, sizeof(s->spent));
        s->bytes = s->of = s->rate = s->left = 0;
        s->ranks = 0;
        s->restarts++;
    }
    s->life = life;
    s->version++;
}

static struct td_startup_rank *rank_of(struct td_startup *s, int rank)
{
    if (rank < 0 || rank >= TD_MAX_RANKS)
        return NULL;
    for (; s->ranks <= rank; s->ranks++)
        s->rank[s->ranks] = (struct td_startup_rank){.phase = TD_PHASE_LAUNCH};
    return &s->rank[rank];
}

static void add_up(struct td_startup *s)
{
    enum td_phase phase = s->rank[0].phase;
    s->bytes = s->of = s->rate = s->left = 0;
    for (int i = 0; i < s->ranks; i++) {
        const struct td_startup_rank *r = &s->rank[i];
        s->bytes += r->bytes;
        s->of += r->of;
        s->rate += r->rate;
        s->left = TD_MAX(s->left, r->left);
        phase = TD_MIN(phase, r->phase);
    }
    if (phase != s->phase)
        td_startup_phase(s, phase);
}

/* What was planned, and what it came to. */
static void take_plan(struct td_startup_rank *r, const char *event, const json_t *nums)
{
    if (event && strcmp(event, "plan") == 0) {
        r->planned = json_number_value(json_object_get(nums, "peak"));
        r->limit = json_number_value(json_object_get(nums, "limit"));
        r->peak = 0;
    } else if (event && strcmp(event, "memory") == 0) {
        r->peak = json_number_value(json_object_get(nums, "peak"));
    }
}

void td_startup_event(struct td_startup *s, const char *line, size_t n)
{
    json_t *o = NULL;
    if (td_json_parse(line, n, "event", &o, NULL) != TD_OK)
        return;
    const json_t *nums = json_object_get(o, "n"), *who = json_object_get(o, "rank");
    const char *host = json_string_value(json_object_get(o, "host"));
    struct td_startup_rank *r = rank_of(
        s,
        json_is_integer(who) ? (int)TD_MIN(json_integer_value(who), TD_MAX_RANKS) : 0);
    if (r) {
        r->phase =
            td_phase_named(json_string_value(json_object_get(o, "phase")), r->phase);
        if (json_object_get(nums, "of")) {
            r->bytes = json_number_value(json_object_get(nums, "bytes"));
            r->of = json_number_value(json_object_get(nums, "of"));
            r->rate = json_number_value(json_object_get(nums, "rate"));
            r->left = json_number_value(json_object_get(nums, "left"));
        }
        take_plan(r, json_string_value(json_object_get(o, "event")), nums);
        if (host)
            (void)snprintf(r->host, sizeof(r->host), "%s", host);
        r->heard_at = td_clock_now();
        add_up(s);
        s->version++;
    }
    json_decref(o);
}

void td_startup_beat(struct td_startup *s, int rank, const struct td_sign *sign)
{
    struct td_startup_rank *r = rank_of(s, rank);
    if (!r)
        return;
    (void)snprintf(r->host, sizeof(r->host), "%s", sign->host);
    r->resident = sign->resident;
    r->available = sign->available;
    r->heard_at = td_clock_now() - sign->age;
}

int td_startup_retry_after(const struct td_startup *s)
{
    double left = s->left > 0 ? s->left : s->retry_at - td_clock_now();
    if (s->life == TD_LIFE_STOPPING)
        return 30;
    return left < 1 ? 1 : left > 60 ? 60 : (int)left + 1;
}

static void error_object(const struct td_error *e, struct td_buf *b)
{
    if (e->code == TD_OK) {
        td_buf_adds(b, ",\"error\":null");
        return;
    }
    td_buf_adds(b, ",\"error\":{");
    td_reply_text(b, "code", td_status_info(e->code)->slug);
    td_reply_text(b, "what", e->what);
    td_reply_text(b, "why", e->why);
    td_reply_text(b, "fix", e->fix);
    td_buf_addc(b, '}');
}

/* Seconds that this start spent in each phase that is over. */
static void times_object(const struct td_startup *s, struct td_buf *b)
{
    const char *comma = "";
    td_buf_adds(b, ",\"times\":{");
    for (int i = 0; i < TD_PHASE_COUNT; i++) {
        if (s->spent[i] <= 0)
            continue;
        td_buf_addf(b, "%s\"%s\":%.3f", comma, td_phase_name((enum td_phase)i),
                    s->spent[i]);
        comma = ",";
    }
    td_buf_addc(b, '}');
}

static void ranks_array(const struct td_startup *s, double now, struct td_buf *b)
{
    td_buf_adds(b, ",\"ranks\":[");
    for (int i = 0; i < s->ranks; i++) {
        const struct td_startup_rank *r = &s->rank[i];
        td_buf_addf(b, "%s{\"rank\":%d", i ? "," : "", i);
        td_reply_text(b, "host", r->host);
        td_reply_text(b, "phase", td_phase_name(r->phase));
        td_buf_addf(b,
                    ",\"bytes\":%.0f,\"of\":%.0f,\"rate\":%.0f,\"resident\":%.0f,"
                    "\"available\":%.0f,\"planned\":%.0f,\"limit\":%.0f,"
                    "\"peak\":%.0f,\"silent\":%.1f}",
                    r->bytes, r->of, r->rate, r->resident, r->available, r->planned,
                    r->limit, r->peak,
                    r->heard_at > 0 ? TD_MAX(now - r->heard_at, 0) : 0);
    }
    td_buf_addc(b, ']');
}

void td_startup_json(const struct td_startup *s, struct td_buf *b)
{
    struct td_sysmem m;
    double now = td_clock_now();
    bool ready = s->life == TD_LIFE_READY;
    td_buf_addc(b, '{');
    td_reply_text(b, "state", life_name(s->life));
    td_buf_addf(b, ",\"ready\":%s", ready ? "true" : "false");
    td_reply_text(b, "phase", td_phase_name(s->phase));
    td_buf_addf(b,
                ",\"bytes\":%.0f,\"of\":%.0f,\"rate\":%.0f,\"seconds_left\":%.1f,"
                "\"seconds\":%.3f,\"restarts\":%d",
                s->bytes, s->of, s->rate, ready ? 0 : s->left,
                (ready ? s->ready_at : now) - s->begun, s->restarts);
    if (s->life == TD_LIFE_LOST)
        td_buf_addf(b, ",\"retry_in\":%.1f", TD_MAX(s->retry_at - now, 0));
    if (td_sysmem_read("", &m, NULL) == TD_OK)
        td_buf_addf(b, ",\"memory\":{\"total\":%" PRId64 ",\"available\":%" PRId64 "}",
                    m.total, td_sysmem_available(&m, NULL, 0));
    times_object(s, b);
    ranks_array(s, now, b);
    error_object(&s->error, b);
    td_buf_addc(b, '}');
}

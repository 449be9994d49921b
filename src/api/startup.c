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
    (void)snprintf(s->phase, sizeof(s->phase), "%s", td_phase_name(TD_PHASE_CHECK));
    s->begun = td_clock_now();
}

const char *td_life_name(enum td_life life)
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
    if (life == TD_LIFE_READY)
        s->ready_at = now;
    if (life == TD_LIFE_STARTING && s->life == TD_LIFE_LOST) {
        s->begun = now;
        s->bytes = s->of = s->rate = s->left = 0;
        s->restarts++;
    }
    s->life = life;
    s->version++;
}

void td_startup_event(struct td_startup *s, const char *line, size_t n)
{
    json_t *o = NULL;
    if (td_json_parse(line, n, "event", &o, NULL) != TD_OK)
        return;
    const char *phase = json_string_value(json_object_get(o, "phase"));
    const json_t *nums = json_object_get(o, "n");
    if (phase)
        (void)snprintf(s->phase, sizeof(s->phase), "%s", phase);
    if (json_object_get(nums, "of")) {
        s->bytes = json_number_value(json_object_get(nums, "bytes"));
        s->of = json_number_value(json_object_get(nums, "of"));
        s->rate = json_number_value(json_object_get(nums, "rate"));
        s->left = json_number_value(json_object_get(nums, "left"));
    }
    s->version++;
    json_decref(o);
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

void td_startup_json(const struct td_startup *s, struct td_buf *b)
{
    struct td_sysmem m;
    double now = td_clock_now();
    bool ready = s->life == TD_LIFE_READY;
    td_buf_addc(b, '{');
    td_reply_text(b, "state", td_life_name(s->life));
    td_buf_addf(b, ",\"ready\":%s", ready ? "true" : "false");
    td_reply_text(b, "phase", s->phase);
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
    error_object(&s->error, b);
    td_buf_addc(b, '}');
}

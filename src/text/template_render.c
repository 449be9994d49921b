/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one render: the failure that sticks, the ceilings on steps, depth,
 * memory and output, and the buffers that text goes to.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct td_value td_render_fail(struct td_render *r, const char *why, ...)
{
    char text[TD_ERROR_WHY_MAX];
    va_list ap;
    if (!td_render_ok(r))
        return td_value_undef();
    va_start(ap, why);
    (void)vsnprintf(text, sizeof(text), why, ap);
    va_end(ap);
    r->status = TD_E_TEMPLATE;
    if (r->err && r->err->code == TD_OK) {
        td_error_set(r->err, TD_E_TEMPLATE, "%s, line %u: the chat template failed",
                     r->t->name, (unsigned)r->line);
        td_error_why(r->err, "%s", text);
    }
    return td_value_undef();
}

struct td_value td_render_limit(struct td_render *r, const char *name, long long max)
{
    if (!td_render_ok(r))
        return td_value_undef();
    r->status = TD_E_LIMIT;
    if (r->err && r->err->code == TD_OK) {
        td_error_set(r->err, TD_E_LIMIT,
                     "%s, line %u: the chat template reached a built-in limit",
                     r->t->name, (unsigned)r->line);
        td_error_why(r->err, "one render may not pass %s (%lld)", name, max);
    }
    return td_value_undef();
}

/* Records that memory ran out (s is TD_E_NOMEM) or reached its ceiling. */
static struct td_value no_room(struct td_render *r, enum td_status s)
{
    if (!td_render_ok(r))
        return td_value_undef();
    if (s == TD_E_LIMIT)
        return TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_MEMORY);
    r->status = s;
    td_error_set(r->err, s, "%s, line %u: no memory to render the chat template",
                 r->t->name, (unsigned)r->line);
    return td_value_undef();
}

bool td_render_charge(struct td_render *r, size_t n)
{
    r->steps += n;
    if (r->steps > (uint64_t)TD_MAX_TEMPLATE_STEPS)
        TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_STEPS);
    return td_render_ok(r);
}

bool td_render_enter(struct td_render *r)
{
    if (r->depth >= TD_MAX_TEMPLATE_DEPTH)
        TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_DEPTH);
    if (!td_render_ok(r))
        return false;
    r->depth++;
    return true;
}

void td_render_leave(struct td_render *r)
{
    r->depth--;
}

void *td_render_alloc(struct td_render *r, size_t n, size_t size)
{
    if (!td_render_ok(r))
        return NULL;
    void *p = td_arena_alloc(&r->arena, n, size);
    if (!p)
        no_room(r, r->arena.status);
    return p;
}

/* ---- text ------------------------------------------------------------------------ */

struct td_capture *td_render_capture(struct td_render *r, struct td_buf **before)
{
    struct td_capture *c = r->spare;
    *before = r->out;
    if (c) {
        r->spare = c->spare;
    } else {
        c = td_render_alloc(r, 1, sizeof(*c));
        if (!c)
            return NULL;
        td_buf_init(&c->buf, (size_t)TD_MAX_TEMPLATE_OUTPUT);
        c->all = r->captures;
        r->captures = c;
    }
    td_buf_clear(&c->buf);
    r->out = &c->buf;
    return c;
}

struct td_value td_render_end_capture(struct td_render *r, struct td_capture *c,
                                      struct td_buf *before)
{
    r->out = before;
    if (!c)
        return td_value_undef();
    struct td_value v = td_value_copy_str(r, c->buf.p, c->buf.len);
    r->put -= c->buf.len;
    c->spare = r->spare;
    r->spare = c;
    return v;
}

void td_render_put(struct td_render *r, const char *s, size_t n)
{
    if (!td_render_ok(r) || n == 0 || !td_render_charge(r, n / 64))
        return;
    if (n > (size_t)TD_MAX_TEMPLATE_OUTPUT - r->put) {
        TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_OUTPUT);
        return;
    }
    r->put += n;
    enum td_status failed = td_buf_add(r->out, s, n);
    if (failed == TD_E_LIMIT)
        td_render_limit(r, "the room for the prompt", (long long)r->out->max);
    else if (failed != TD_OK)
        no_room(r, failed);
}

void td_render_puts(struct td_render *r, const char *s)
{
    td_render_put(r, s, strlen(s));
}

void td_render_putf(struct td_render *r, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n > 0)
        td_render_put(r, text, TD_MIN((size_t)n, sizeof(text) - 1));
}

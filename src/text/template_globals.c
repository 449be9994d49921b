/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a template can call without asking for it: range, dict, namespace, cycler,
 * joiner, and transformers' raise_exception and strftime_now; and the methods of dicts,
 * lists, tuples and cyclers. Methods that would change a list or dict are there to be
 * refused, as jinja2's immutable sandbox refuses them.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* ---- functions ------------------------------------------------------------------- */

/* How many numbers a range has; the difference is taken unsigned, it may not fit. */
static uint64_t range_count(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0 && start < stop)
        return ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
    if (step < 0 && start > stop)
        return ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
    return 0;
}

TD_BUILTIN_RUN(fn_range)
{
    (void)self;
    struct td_range *g = td_render_alloc(r, 1, sizeof(*g));
    if (!g)
        return td_value_undef();
    bool one = a[1].kind == TD_V_MISSING;
    g->start = one ? 0 : td_arg_int(r, a[0], 0, "range");
    g->stop = td_arg_int(r, one ? a[0] : a[1], 0, "range");
    g->step = td_arg_int(r, a[2], 1, "range");
    if (g->step == 0)
        return td_render_fail(r, "range() arg 3 must not be zero");
    uint64_t count = range_count(g->start, g->stop, g->step);
    if (count > TD_MAX_TEMPLATE_RANGE)
        return TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_RANGE);
    g->count = (int64_t)count;
    return (struct td_value){.kind = TD_V_RANGE, .u.range = g};
}

TD_BUILTIN_CALL(fn_dict)
{
    (void)self;
    return td_value_make_dict(r, call, "dict");
}

TD_BUILTIN_CALL(fn_namespace)
{
    (void)self;
    struct td_value v = td_value_make_dict(r, call, "namespace");
    if (v.kind != TD_V_DICT)
        return v;
    for (uint32_t i = 0; i < v.u.dict->count; i++) {
        struct td_value key = v.u.dict->entries[i].key;
        if (key.kind == TD_V_STR && key.len && key.u.s[0] == '_')
            return td_render_fail(
                r, "a namespace cannot have names that start with an underscore");
    }
    v.kind = TD_V_NAMESPACE;
    return v;
}

static struct td_value new_cycler(struct td_render *r, enum td_value_kind kind,
                                  struct td_value items)
{
    struct td_cycler *c = td_render_alloc(r, 1, sizeof(*c));
    if (!c)
        return td_value_undef();
    c->items = items;
    return (struct td_value){.kind = (uint8_t)kind, .u.cycler = c};
}

TD_BUILTIN_CALL(fn_cycler)
{
    (void)self;
    if (call->npos == 0 || call->nkw)
        return td_render_fail(r, "at least one item has to be provided");
    struct td_value items = td_value_list(r, TD_V_TUPLE, call->npos);
    for (size_t i = 0; i < call->npos; i++)
        td_value_push(r, &items, call->pos[i]);
    return new_cycler(r, TD_V_CYCLER, items);
}

TD_BUILTIN_RUN(fn_joiner)
{
    (void)self;
    return new_cycler(r, TD_V_JOINER,
                      a[0].kind == TD_V_MISSING ? td_value_cstr(", ") : a[0]);
}

TD_BUILTIN_RUN(fn_raise_exception)
{
    (void)self;
    struct td_value text = td_value_to_str(r, a[0]);
    if (!td_render_ok(r))
        return td_value_undef();
    r->status = TD_E_TEMPLATE;
    uint32_t n = TD_MIN(text.len, 700u);
    while (n && n < text.len && ((unsigned char)text.u.s[n] & 0xC0) == 0x80)
        n--; /* no half character */
    if (r->err && r->err->code == TD_OK) {
        td_error_set(r->err, TD_E_TEMPLATE,
                     "%s, line %u: the chat template refused the messages", r->t->name,
                     (unsigned)r->line);
        if (n)
            td_error_why(r->err, "%.*s", (int)n, text.u.s);
    }
    return td_value_undef();
}

/* One conversion of strftime; datetime answers %f itself, and has no time zone. */
static void put_time(struct td_render *r, char c, const struct tm *tm, long micros)
{
    char text[128];
    size_t n = 0;
#define TIME(ch, format)                                                               \
    case ch:                                                                           \
        n = strftime(text, sizeof(text), format, tm);                                  \
        break;
    switch (c) {
        TIME('a', "%a")
        TIME('A', "%A")
        TIME('b', "%b")
        TIME('h', "%b")
        TIME('B', "%B")
        TIME('c', "%a %b %e %H:%M:%S %Y")
        TIME('C', "%C")
        TIME('d', "%d")
        TIME('e', "%e")
        TIME('F', "%F")
        TIME('G', "%G")
        TIME('H', "%H")
        TIME('I', "%I")
        TIME('j', "%j")
        TIME('m', "%m")
        TIME('M', "%M")
        TIME('n', "%n")
        TIME('p', "%p")
        TIME('r', "%r")
        TIME('R', "%R")
        TIME('S', "%S")
        TIME('t', "%t")
        TIME('T', "%T")
        TIME('u', "%u")
        TIME('U', "%U")
        TIME('V', "%V")
        TIME('w', "%w")
        TIME('W', "%W")
        TIME('X', "%X")
        TIME('Y', "%Y")
    case 'f':
        td_render_putf(r, "%06ld", micros);
        return;
    case '%':
        td_render_puts(r, "%");
        return;
    case 'y':
        td_render_putf(r, "%02d", tm->tm_year % 100);
        return;
    case 'D':
    case 'x':
        td_render_putf(r, "%02d/%02d/%02d", tm->tm_mon + 1, tm->tm_mday,
                       tm->tm_year % 100);
        return;
    case 'z':
    case 'Z':
        return;
    default:
        td_render_fail(r, "strftime_now(): %%%c is not supported", c);
        return;
    }
#undef TIME
    td_render_put(r, text, n);
}

TD_BUILTIN_RUN(fn_strftime_now)
{
    (void)self;
    double now = td_clock_wall();
    time_t seconds = (time_t)floor(now);
    long micros = (long)((now - floor(now)) * 1e6);
    struct tm tm;
    struct td_buf *before;
    if (!td_arg_str(r, a[0], "strftime_now") || !localtime_r(&seconds, &tm))
        return td_render_fail(r, "the local time is not known");
    struct td_capture *c = td_render_capture(r, &before);
    const char *s = a[0].u.s;
    for (size_t i = 0, n = a[0].len; i < n && td_render_ok(r); i++) {
        if (s[i] != '%' || i + 1 == n)
            td_render_put(r, s + i, 1);
        else if (s[++i] == '-' && i + 1 < n) { /* glibc: no padding */
            struct td_buf *outer;
            struct td_capture *inner = td_render_capture(r, &outer);
            put_time(r, s[++i], &tm, micros);
            struct td_value v = td_render_end_capture(r, inner, outer);
            size_t skip = 0;
            while (td_render_ok(r) && skip + 1 < v.len && v.u.s[skip] == '0')
                skip++;
            if (td_render_ok(r))
                td_render_put(r, v.u.s + skip, v.len - skip);
        } else {
            put_time(r, s[i], &tm, micros);
        }
    }
    return td_render_end_capture(r, c, before);
}

static const struct td_builtin globals[] = {
    {"range", "/start stop step", 1, fn_range, NULL},
    {"dict", NULL, 0, NULL, fn_dict},
    {"namespace", NULL, 0, NULL, fn_namespace},
    {"raise_exception", "message", 1, fn_raise_exception, NULL},
    {"strftime_now", "format", 1, fn_strftime_now, NULL},
    {"cycler", NULL, 0, NULL, fn_cycler},
    {"joiner", "sep", 0, fn_joiner, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

const struct td_builtin *td_global_find(const char *s, size_t len)
{
    return td_builtin_find(globals, s, len);
}

/* ---- methods of dicts ------------------------------------------------------------ */

static struct td_value view(struct td_value dict, uint8_t flags)
{
    return (struct td_value){.kind = TD_V_VIEW, .flags = flags, .u.dict = dict.u.dict};
}

TD_BUILTIN_RUN(dict_keys)
{
    (void)r;
    (void)a;
    return view(self, TD_VF_KEYS);
}

TD_BUILTIN_RUN(dict_values)
{
    (void)r;
    (void)a;
    return view(self, TD_VF_VALUES);
}

TD_BUILTIN_RUN(dict_items)
{
    (void)r;
    (void)a;
    return view(self, TD_VF_ITEMS);
}

TD_BUILTIN_RUN(dict_get)
{
    const struct td_value *v = td_value_dict_get(r, self.u.dict, a[0]);
    if (v)
        return *v;
    return a[1].kind == TD_V_MISSING ? td_value_none() : a[1];
}

TD_BUILTIN_RUN(dict_copy)
{
    (void)a;
    struct td_call call = {.pos = &self, .npos = 1};
    return td_value_make_dict(r, &call, "dict");
}

static const struct td_builtin dict_methods[] = {
    {"keys", "/", 0, dict_keys, NULL},   {"values", "/", 0, dict_values, NULL},
    {"items", "/", 0, dict_items, NULL}, {"get", "/key default", 1, dict_get, NULL},
    {"copy", "/", 0, dict_copy, NULL},   {"clear", NULL, 0, NULL, NULL},
    {"pop", NULL, 0, NULL, NULL},        {"popitem", NULL, 0, NULL, NULL},
    {"setdefault", NULL, 0, NULL, NULL}, {"update", NULL, 0, NULL, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

/* ---- methods of lists and tuples ------------------------------------------------- */

TD_BUILTIN_RUN(list_count)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < self.len && td_render_ok(r); i++)
        n += td_value_eq(r, self.u.items->v[i], a[0]);
    return td_value_int(n);
}

TD_BUILTIN_RUN(list_index)
{
    int64_t from = td_arg_int(r, a[1], 0, "index"), n = self.len;
    int64_t to = td_arg_int(r, a[2], n, "index");
    from = from < 0 ? TD_MAX(from + n, (int64_t)0) : from;
    to = to < 0 ? to + n : TD_MIN(to, n);
    for (int64_t i = from; i < to && td_render_ok(r); i++)
        if (td_value_eq(r, self.u.items->v[i], a[0]))
            return td_value_int(i);
    struct td_shown shown = td_value_show(r, a[0]);
    return td_render_fail(r, "%s is not in %s", shown.s, td_value_type(self));
}

TD_BUILTIN_RUN(list_copy)
{
    (void)a;
    return td_value_collect(r, self, TD_V_LIST);
}

static const struct td_builtin list_methods[] = {
    {"count", "/value", 1, list_count, NULL},
    {"index", "/value start stop", 1, list_index, NULL},
    {"copy", "/", 0, list_copy, NULL},
    {"append", NULL, 0, NULL, NULL},
    {"clear", NULL, 0, NULL, NULL},
    {"extend", NULL, 0, NULL, NULL},
    {"insert", NULL, 0, NULL, NULL},
    {"pop", NULL, 0, NULL, NULL},
    {"remove", NULL, 0, NULL, NULL},
    {"reverse", NULL, 0, NULL, NULL},
    {"sort", NULL, 0, NULL, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct td_builtin tuple_methods[] = {
    {"count", "/value", 1, list_count, NULL},
    {"index", "/value start stop", 1, list_index, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

/* ---- methods of the rest --------------------------------------------------------- */

TD_BUILTIN_RUN(cycler_next)
{
    (void)r;
    (void)a;
    struct td_cycler *c = self.u.cycler;
    struct td_value v = c->items.u.items->v[c->pos];
    c->pos = (c->pos + 1) % c->items.len;
    return v;
}

TD_BUILTIN_RUN(cycler_reset)
{
    (void)r;
    (void)a;
    self.u.cycler->pos = 0;
    return td_value_none();
}

static const struct td_builtin cycler_methods[] = {
    {"next", "/", 0, cycler_next, NULL},
    {"reset", "/", 0, cycler_reset, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

TD_BUILTIN_RUN(float_is_integer)
{
    (void)r;
    (void)a;
    return td_value_bool(isfinite(self.u.f) && !(floor(self.u.f) < self.u.f));
}

static const struct td_builtin float_methods[] = {
    {"is_integer", "/", 0, float_is_integer, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

const struct td_builtin *td_method_find(struct td_value v, const char *s, size_t len)
{
    switch ((enum td_value_kind)v.kind) {
    case TD_V_STR:
        return td_builtin_find(td_str_methods, s, len);
    case TD_V_DICT:
        return td_builtin_find(dict_methods, s, len);
    case TD_V_LIST:
        return td_builtin_find(list_methods, s, len);
    case TD_V_TUPLE:
        return td_builtin_find(tuple_methods, s, len);
    case TD_V_LOOP:
        return td_builtin_find(td_loop_methods, s, len);
    case TD_V_CYCLER:
        return td_builtin_find(cycler_methods, s, len);
    case TD_V_FLOAT:
        return td_builtin_find(float_methods, s, len);
    default:
        return NULL;
    }
}

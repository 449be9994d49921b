/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as text: Python's str() and repr(), and HTML escaping.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One character that cannot stand in a Python string as it is. */
static void put_python_escape(struct td_render *r, int32_t c)
{
    static const char from[] = "\n\r\t", to[] = "nrt";
    const char *simple = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (simple)
        td_render_putf(r, "\\%c", to[simple - from]);
    else if (c == '\\' || c == '\'')
        td_render_putf(r, "\\%c", (int)c);
    else
        td_render_putf(r,
                       c < 0x100     ? "\\x%02x"
                       : c < 0x10000 ? "\\u%04x"
                                     : "\\U%08x",
                       (unsigned)c);
}

/* Python's quotes: single ones, unless the text has single and no double ones. */
static void repr_str(struct td_render *r, struct td_value v)
{
    const char *s = v.u.s;
    char quote = '\'';
    if (v.len && memchr(s, '\'', v.len) && !memchr(s, '"', v.len))
        quote = '"';
    td_render_charge(r, v.len / 16);
    td_render_put(r, &quote, 1);
    size_t done = 0, n;
    for (size_t i = 0; i < v.len && td_render_ok(r); i += n) {
        int32_t c = td_str_char(s + i, v.len - i, &n);
        if (c != '\\' && (c != '\'' || quote == '"') && td_char_is_printable(c))
            continue;
        td_render_put(r, s + done, i - done);
        put_python_escape(r, c);
        done = i + n;
    }
    td_render_put(r, s + done, v.len - done);
    td_render_put(r, &quote, 1);
}

static void repr_items(struct td_render *r, struct td_value v)
{
    bool tuple = v.kind == TD_V_TUPLE;
    td_render_puts(r, tuple ? "(" : "[");
    for (uint32_t i = 0; i < v.len && td_render_ok(r); i++) {
        if (i)
            td_render_puts(r, ", ");
        td_value_repr(r, v.u.items->v[i]);
    }
    td_render_puts(r, tuple ? (v.len == 1 ? ",)" : ")") : "]");
}

static void repr_entries(struct td_render *r, const struct td_vdict *d)
{
    td_render_puts(r, "{");
    for (uint32_t i = 0; i < d->count && td_render_ok(r); i++) {
        if (i)
            td_render_puts(r, ", ");
        td_value_repr(r, d->entries[i].key);
        td_render_puts(r, ": ");
        td_value_repr(r, d->entries[i].value);
    }
    td_render_puts(r, "}");
}

static void repr_view(struct td_render *r, struct td_value v)
{
    td_render_putf(r, "%s(", td_value_type(v));
    td_value_repr(r, td_value_collect(r, v, TD_V_LIST));
    td_render_puts(r, ")");
}

static void repr_range(struct td_render *r, const struct td_range *g)
{
    td_render_putf(r, "range(%" PRId64 ", %" PRId64, g->start, g->stop);
    if (g->step != 1)
        td_render_putf(r, ", %" PRId64, g->step);
    td_render_puts(r, ")");
}

static void repr_macro(struct td_render *r, const struct td_macro *m)
{
    if (m->node->kind == TD_N_MACRO)
        td_render_putf(r, "<Macro '%s'>", r->t->names[m->node->name]);
    else
        td_render_puts(r, "<Macro anonymous>");
}

static void repr_container(struct td_render *r, struct td_value v)
{
    if (!td_render_enter(r))
        return;
    switch ((enum td_value_kind)v.kind) {
    case TD_V_LIST:
    case TD_V_TUPLE:
        repr_items(r, v);
        break;
    case TD_V_DICT:
        repr_entries(r, v.u.dict);
        break;
    case TD_V_NAMESPACE:
        td_render_puts(r, "<Namespace ");
        repr_entries(r, v.u.dict);
        td_render_puts(r, ">");
        break;
    default:
        repr_view(r, v);
        break;
    }
    td_render_leave(r);
}

void td_value_repr(struct td_render *r, struct td_value v)
{
    char text[40];
    if (!td_render_charge(r, 1))
        return;
    switch ((enum td_value_kind)v.kind) {
    case TD_V_MISSING:
    case TD_V_UNDEF:
        td_render_puts(r, "Undefined");
        break;
    case TD_V_NONE:
        td_render_puts(r, "None");
        break;
    case TD_V_BOOL:
        td_render_puts(r, v.u.b ? "True" : "False");
        break;
    case TD_V_INT:
        td_render_putf(r, "%" PRId64, v.u.i);
        break;
    case TD_V_FLOAT:
        td_float_repr(text, sizeof(text), v.u.f);
        td_render_puts(r, text);
        break;
    case TD_V_STR:
        td_render_puts(r, v.flags & TD_VF_SAFE ? "Markup(" : "");
        repr_str(r, v);
        td_render_puts(r, v.flags & TD_VF_SAFE ? ")" : "");
        break;
    case TD_V_RANGE:
        repr_range(r, v.u.range);
        break;
    case TD_V_MACRO:
        repr_macro(r, v.u.macro);
        break;
    case TD_V_LOOP:
        td_loop_repr(r, v.u.loop);
        break;
    case TD_V_FUNC:
        td_render_putf(r, "<function %s>", v.u.func->name);
        break;
    case TD_V_METHOD:
        td_render_putf(r, "<method %s of %s object>", v.u.method->impl->name,
                       td_value_type(v.u.method->self));
        break;
    case TD_V_ITER:
    case TD_V_CYCLER:
    case TD_V_JOINER:
        td_render_putf(r, "<%s object>", td_value_type(v));
        break;
    default:
        repr_container(r, v);
        break;
    }
}

void td_value_print(struct td_render *r, struct td_value v)
{
    if (v.kind == TD_V_STR)
        td_render_put(r, v.u.s, v.len);
    else if (v.kind != TD_V_UNDEF && v.kind != TD_V_MISSING)
        td_value_repr(r, v);
}

struct td_value td_value_to_str(struct td_render *r, struct td_value v)
{
    if (v.kind == TD_V_STR)
        return v;
    if (v.kind == TD_V_UNDEF)
        return td_value_cstr("");
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    td_value_print(r, v);
    return td_render_end_capture(r, c, before);
}

struct td_value td_value_to_plain(struct td_render *r, struct td_value v)
{
    v = td_value_to_str(r, v);
    v.flags = 0;
    return v;
}

struct td_shown td_value_show(struct td_render *r, struct td_value v)
{
    struct td_shown shown = {""};
    if (!td_render_ok(r))
        return shown;
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    if (v.kind == TD_V_STR && v.len > sizeof(shown.s)) {
        v.len = (uint32_t)sizeof(shown.s);
        v.len = (uint32_t)td_str_back(v.u.s, v.len); /* no half character */
    }
    td_value_repr(r, v);
    struct td_value s = td_render_end_capture(r, c, before);
    if (!td_render_ok(r))
        return shown;
    size_t n = TD_MIN((size_t)s.len, sizeof(shown.s) - 1);
    while (n < s.len && n > 0 && ((unsigned char)s.u.s[n] & 0xC0) == 0x80)
        n--;
    memcpy(shown.s, s.u.s, n);
    if (n < s.len && n > 3)
        memcpy(shown.s + n - 3, "...", 3);
    return shown;
}

static const char *entity_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '\'':
        return "&#39;";
    case '"':
        return "&#34;";
    default:
        return NULL;
    }
}

struct td_value td_value_escape(struct td_render *r, struct td_value v)
{
    if (v.kind == TD_V_STR && v.flags & TD_VF_SAFE)
        return v;
    v = td_value_to_str(r, v);
    if (!td_render_ok(r))
        return v;
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    td_render_charge(r, v.len / 16);
    size_t done = 0;
    for (size_t i = 0; i < v.len && td_render_ok(r); i++) {
        const char *entity = entity_of(v.u.s[i]);
        if (!entity)
            continue;
        td_render_put(r, v.u.s + done, i - done);
        td_render_puts(r, entity);
        done = i + 1;
    }
    td_render_put(r, v.u.s + done, v.len - done);
    v = td_render_end_capture(r, c, before);
    v.flags = TD_VF_SAFE;
    return v;
}

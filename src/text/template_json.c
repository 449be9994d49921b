/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tojson filter as transformers defines it: Python's json.dumps, keys in their
 * order, nothing escaped for HTML. Without indent the separators are ", " and ": ",
 * with indent "," and ": ", as in Python.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct json_style {
    bool ascii, sort, pretty;
    struct td_value indent; /* of one level, when pretty */
    struct td_value item_sep, key_sep;
    int64_t level;
};

static void put_json(struct td_render *r, struct json_style *st, struct td_value v);

static void put_escaped(struct td_render *r, int32_t c)
{
    if (c >= 0x10000)
        td_render_putf(r, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (c >> 10)),
                       (unsigned)(0xDC00 + (c & 0x3FF)));
    else
        td_render_putf(r, "\\u%04x", (unsigned)c);
}

static void put_string(struct td_render *r, const struct json_style *st,
                       struct td_value v)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    size_t done = 0, n;
    td_render_charge(r, v.len / 16);
    td_render_puts(r, "\"");
    for (size_t i = 0; i < v.len && td_render_ok(r); i += n) {
        unsigned char byte = (unsigned char)v.u.s[i];
        n = 1;
        if ((byte >= 0x20 && byte != '"' && byte != '\\') &&
            (byte < 0x7F || !st->ascii))
            continue;
        int32_t c = td_str_char(v.u.s + i, v.len - i, &n);
        if (c == 0x7F)
            continue;
        td_render_put(r, v.u.s + done, i - done);
        done = i + n;
        const char *simple =
            c ? memchr(from, c < 0x80 ? c : 0, sizeof(from) - 1) : NULL;
        if (simple)
            td_render_putf(r, "\\%c", to[simple - from]);
        else
            put_escaped(r, c);
    }
    td_render_put(r, v.u.s + done, v.len - done);
    td_render_puts(r, "\"");
}

static void put_float(struct td_render *r, double f)
{
    char text[40];
    td_float_repr(text, sizeof(text), f);
    td_render_puts(r, isnan(f)   ? "NaN"
                      : isinf(f) ? (f > 0 ? "Infinity" : "-Infinity")
                                 : text);
}

static void put_newline(struct td_render *r, const struct json_style *st)
{
    td_render_puts(r, "\n");
    for (int64_t i = 0; i < st->level && td_render_ok(r); i++)
        td_render_put(r, st->indent.u.s, st->indent.len);
}

/* Before the i-th item of a list or dict. */
static void put_separator(struct td_render *r, const struct json_style *st, bool first)
{
    if (!first)
        td_render_put(r, st->item_sep.u.s, st->item_sep.len);
    if (st->pretty)
        put_newline(r, st);
}

static void put_list(struct td_render *r, struct json_style *st, struct td_value v)
{
    td_render_puts(r, "[");
    st->level++;
    for (uint32_t i = 0; i < v.len && td_render_ok(r); i++) {
        put_separator(r, st, i == 0);
        put_json(r, st, v.u.items->v[i]);
    }
    st->level--;
    if (v.len && st->pretty)
        put_newline(r, st);
    td_render_puts(r, "]");
}

static void put_key(struct td_render *r, struct json_style *st, struct td_value key)
{
    bool quote = true;
    if (key.kind == TD_V_STR)
        quote = false;
    else if (!td_value_is_number(key) && key.kind != TD_V_NONE)
        td_render_fail(r, "keys must be str, int, float, bool or None, not %s",
                       td_value_type(key));
    td_render_puts(r, quote ? "\"" : "");
    put_json(r, st, key);
    td_render_puts(r, quote ? "\"" : "");
}

/* The entries in the order of their keys, as a list of pairs. */
static struct td_value sorted_entries(struct td_render *r, struct td_value dict)
{
    struct td_value a[TD_MAX_PARAMS] = {td_value_bool(true)};
    const struct td_builtin *sort = td_filter_find("dictsort", 8);
    struct td_call call = {.pos = a, .npos = 1};
    return td_builtin_call(r, sort, dict, &call);
}

static void put_dict(struct td_render *r, struct json_style *st, struct td_value v)
{
    uint32_t n = v.u.dict->count;
    struct td_value pairs = {.kind = TD_V_MISSING};
    if (st->sort)
        pairs = sorted_entries(r, v);
    td_render_puts(r, "{");
    st->level++;
    for (uint32_t i = 0; i < n && td_render_ok(r); i++) {
        struct td_vdict_entry e = v.u.dict->entries[i];
        if (st->sort) {
            e.key = pairs.u.items->v[i].u.items->v[0];
            e.value = pairs.u.items->v[i].u.items->v[1];
        }
        put_separator(r, st, i == 0);
        put_key(r, st, e.key);
        td_render_put(r, st->key_sep.u.s, st->key_sep.len);
        put_json(r, st, e.value);
    }
    st->level--;
    if (n && st->pretty)
        put_newline(r, st);
    td_render_puts(r, "}");
}

static void put_json(struct td_render *r, struct json_style *st, struct td_value v)
{
    if (!td_render_charge(r, 1))
        return;
    switch ((enum td_value_kind)v.kind) {
    case TD_V_NONE:
        td_render_puts(r, "null");
        break;
    case TD_V_BOOL:
        td_render_puts(r, v.u.b ? "true" : "false");
        break;
    case TD_V_INT:
        td_render_putf(r, "%" PRId64, v.u.i);
        break;
    case TD_V_FLOAT:
        put_float(r, v.u.f);
        break;
    case TD_V_STR:
        put_string(r, st, v);
        break;
    case TD_V_LIST:
    case TD_V_TUPLE:
    case TD_V_DICT:
        if (!td_render_enter(r))
            return;
        if (v.kind == TD_V_DICT)
            put_dict(r, st, v);
        else
            put_list(r, st, v);
        td_render_leave(r);
        break;
    default:
        td_render_fail(r, "Object of type %s is not JSON serializable",
                       td_value_type(v));
        break;
    }
}

static void read_indent(struct td_render *r, struct json_style *st, struct td_value v)
{
    if (!td_arg_given(v))
        return;
    st->pretty = true;
    st->item_sep = td_value_cstr(",");
    st->indent = v;
    if (v.kind == TD_V_STR)
        return;
    int64_t n = td_arg_int(r, v, 0, "tojson");
    if (n > TD_MAX_TEMPLATE_WIDTH)
        TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_WIDTH);
    st->indent = td_value_binary(r, TD_OP_MUL, td_value_cstr(" "), td_value_int(n));
}

static void read_separators(struct td_render *r, struct json_style *st,
                            struct td_value v)
{
    if (!td_arg_given(v))
        return;
    bool pair = (v.kind == TD_V_LIST || v.kind == TD_V_TUPLE) && v.len == 2;
    if (!pair || v.u.items->v[0].kind != TD_V_STR || v.u.items->v[1].kind != TD_V_STR) {
        td_render_fail(r, "tojson: separators must be two strings");
        return;
    }
    st->item_sep = v.u.items->v[0];
    st->key_sep = v.u.items->v[1];
}

/* args: the value, ensure_ascii, indent, separators, sort_keys. */
struct td_value td_value_to_json(struct td_render *r, const struct td_value *args)
{
    struct json_style st = {.ascii = td_arg_bool(r, args[1], false),
                            .sort = td_arg_bool(r, args[4], false),
                            .item_sep = td_value_cstr(", "),
                            .key_sep = td_value_cstr(": ")};
    read_indent(r, &st, args[2]);
    read_separators(r, &st, args[3]);
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    if (td_render_ok(r))
        put_json(r, &st, args[0]);
    return td_render_end_capture(r, c, before);
}

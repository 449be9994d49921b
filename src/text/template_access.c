/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting at parts: obj.name (an attribute or method first, then a key), obj[key] (the
 * item first, then an attribute), slices, and the dotted paths that filters take. What
 * is not there is undefined; using that is the error, not getting it.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <string.h>

/* ---- attributes ------------------------------------------------------------------ */

static struct td_value cycler_attr(struct td_value obj, struct td_value name)
{
    const struct td_cycler *c = obj.u.cycler;
    if (obj.kind == TD_V_JOINER) {
        if (td_value_str_is(name, "sep"))
            return c->items;
        if (td_value_str_is(name, "used"))
            return td_value_bool(c->pos != 0);
    } else {
        if (td_value_str_is(name, "current"))
            return c->items.u.items->v[c->pos];
        if (td_value_str_is(name, "items"))
            return c->items;
        if (td_value_str_is(name, "pos"))
            return td_value_int(c->pos);
    }
    return (struct td_value){.kind = TD_V_MISSING};
}

static struct td_value macro_attr(struct td_render *r, struct td_value obj,
                                  struct td_value name)
{
    const struct td_tnode *n = obj.u.macro->node;
    if (td_value_str_is(name, "name"))
        return n->kind == TD_N_MACRO ? td_value_cstr(r->t->names[n->name])
                                     : td_value_none();
    if (td_value_str_is(name, "arguments")) {
        struct td_value list = td_value_list(r, TD_V_TUPLE, 0);
        for (const struct td_tnode *p = n->a; p; p = p->next)
            td_value_push(r, &list, td_value_cstr(r->t->names[p->name]));
        return list;
    }
    static const struct {
        const char *name;
        uint8_t flag;
    } flags[] = {{"caller", TD_NF_CALLER},
                 {"catch_kwargs", TD_NF_KWARGS},
                 {"catch_varargs", TD_NF_VARARGS}};
    for (size_t i = 0; i < TD_COUNT(flags); i++)
        if (td_value_str_is(name, flags[i].name))
            return td_value_bool(n->flags & flags[i].flag);
    return (struct td_value){.kind = TD_V_MISSING};
}

static struct td_value number_attr(struct td_value obj, struct td_value name)
{
    bool real = td_value_str_is(name, "real"), imag = td_value_str_is(name, "imag");
    if (obj.kind == TD_V_FLOAT && (real || imag))
        return td_value_float(real ? obj.u.f : 0.0);
    if (obj.kind != TD_V_FLOAT && (real || td_value_str_is(name, "numerator")))
        return td_value_int(td_value_as_int(obj));
    if (obj.kind != TD_V_FLOAT && (imag || td_value_str_is(name, "denominator")))
        return td_value_int(!imag);
    return (struct td_value){.kind = TD_V_MISSING};
}

/* What Python's getattr() finds, but for methods; MISSING: nothing. */
static struct td_value own_attr(struct td_render *r, struct td_value obj,
                                struct td_value name)
{
    struct td_value *v;
    switch ((enum td_value_kind)obj.kind) {
    case TD_V_BOOL:
    case TD_V_INT:
    case TD_V_FLOAT:
        return number_attr(obj, name);
    case TD_V_NAMESPACE:
        v = td_value_dict_get(r, obj.u.dict, name);
        return v ? *v : (struct td_value){.kind = TD_V_MISSING};
    case TD_V_TUPLE:
        if (obj.flags & TD_VF_GROUP && td_value_str_is(name, "grouper"))
            return obj.u.items->v[0];
        if (obj.flags & TD_VF_GROUP && td_value_str_is(name, "list"))
            return obj.u.items->v[1];
        break;
    case TD_V_RANGE:
        if (td_value_str_is(name, "start"))
            return td_value_int(obj.u.range->start);
        if (td_value_str_is(name, "stop"))
            return td_value_int(obj.u.range->stop);
        if (td_value_str_is(name, "step"))
            return td_value_int(obj.u.range->step);
        break;
    case TD_V_LOOP:
        return td_loop_attr(r, obj, name);
    case TD_V_CYCLER:
    case TD_V_JOINER:
        return cycler_attr(obj, name);
    case TD_V_MACRO:
        return macro_attr(r, obj, name);
    default:
        break;
    }
    return (struct td_value){.kind = TD_V_MISSING};
}

/* An attribute or method; MISSING: there is none. */
static struct td_value get_attr(struct td_render *r, struct td_value obj,
                                struct td_value name)
{
    struct td_value v = own_attr(r, obj, name);
    const struct td_builtin *m = NULL;
    if (v.kind == TD_V_MISSING && obj.kind != TD_V_NAMESPACE)
        m = td_method_find(obj, name.u.s, name.len);
    if (!m)
        return v;
    if (!m->run && !m->call) {
        struct td_shown shown = td_value_show(r, name);
        return td_value_hint(r, "access to attribute %s of '%s' object is unsafe.",
                             shown.s, td_value_type(obj));
    }
    struct td_method *bound = td_render_alloc(r, 1, sizeof(*bound));
    if (!bound)
        return td_value_undef();
    *bound = (struct td_method){.self = obj, .impl = m};
    return (struct td_value){.kind = TD_V_METHOD, .u.method = bound};
}

struct td_value td_value_attr(struct td_render *r, struct td_value obj,
                              struct td_value name)
{
    if (!td_render_ok(r))
        return td_value_undef();
    if (obj.kind == TD_V_UNDEF)
        return td_value_use_undef(r, obj);
    struct td_value v = get_attr(r, obj, name);
    if (v.kind == TD_V_MISSING && obj.kind == TD_V_DICT) {
        const struct td_value *found = td_value_dict_get(r, obj.u.dict, name);
        if (found)
            return *found;
    }
    return v.kind == TD_V_MISSING ? td_value_no_attr(r, obj, name) : v;
}

/* ---- items ----------------------------------------------------------------------- */

static bool is_hashable(struct td_render *r, struct td_value v)
{
    if (v.kind == TD_V_TUPLE) {
        bool yes = td_render_enter(r);
        for (uint32_t i = 0; i < v.len && yes && td_render_charge(r, 1); i++)
            yes = is_hashable(r, v.u.items->v[i]);
        td_render_leave(r);
        return yes;
    }
    return v.kind != TD_V_LIST && v.kind != TD_V_DICT && v.kind != TD_V_VIEW;
}

/* obj[i] of a sequence; MISSING: out of range, or no sequence. */
static struct td_value at_index(struct td_render *r, struct td_value obj, int64_t i)
{
    struct td_value missing = {.kind = TD_V_MISSING};
    if (obj.kind != TD_V_STR && obj.kind != TD_V_LIST && obj.kind != TD_V_TUPLE &&
        obj.kind != TD_V_RANGE)
        return missing;
    int64_t n = td_value_len(r, obj);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return missing;
    if (obj.kind == TD_V_RANGE)
        return td_value_int(obj.u.range->start + i * obj.u.range->step);
    if (obj.kind != TD_V_STR)
        return obj.u.items->v[i];
    size_t from = td_str_offset(obj.u.s, obj.len, (size_t)i), len;
    td_render_charge(r, from / 64);
    (void)td_str_char(obj.u.s + from, obj.len - from, &len);
    struct td_value c = td_value_str(obj.u.s + from, len);
    c.flags = obj.flags;
    return c;
}

struct td_value td_value_item(struct td_render *r, struct td_value obj,
                              struct td_value key)
{
    struct td_value v = {.kind = TD_V_MISSING};
    if (!td_render_ok(r))
        return td_value_undef();
    if (obj.kind == TD_V_UNDEF)
        return td_value_use_undef(r, obj);
    if (obj.kind == TD_V_DICT && is_hashable(r, key)) {
        const struct td_value *found = td_value_dict_get(r, obj.u.dict, key);
        if (found)
            return *found;
    } else if (td_value_is_int(key)) {
        v = at_index(r, obj, td_value_as_int(key));
    }
    if (v.kind == TD_V_MISSING && key.kind == TD_V_STR)
        v = get_attr(r, obj, key);
    return v.kind == TD_V_MISSING ? td_value_no_attr(r, obj, key) : v;
}

/* ---- slices ---------------------------------------------------------------------- */

static bool slice_part(struct td_render *r, struct td_value v, int64_t absent,
                       int64_t *out)
{
    *out = absent;
    if (!td_arg_given(v))
        return true;
    if (!td_value_is_int(v)) {
        td_render_fail(r, "slice indices must be integers or None or have an "
                          "__index__ method");
        return false;
    }
    *out = td_value_as_int(v);
    return true;
}

static int64_t clamp(int64_t i, int64_t n, int64_t lo, int64_t hi)
{
    if (i < 0)
        i += n;
    return i < lo ? lo : i > hi ? hi : i;
}

bool td_slice_range(struct td_render *r, int64_t n, struct td_value start,
                    struct td_value stop, struct td_value step, int64_t *i0,
                    int64_t *by, int64_t *count)
{
    int64_t a, b, s;
    if (!slice_part(r, step, 1, &s))
        return false;
    if (s == 0) {
        td_render_fail(r, "slice step cannot be zero");
        return false;
    }
    if (s < -INT64_MAX)
        s = -INT64_MAX;
    int64_t lo = s < 0 ? -1 : 0, hi = s < 0 ? n - 1 : n;
    if (!slice_part(r, start, 0, &a) || !slice_part(r, stop, 0, &b))
        return false;
    a = td_arg_given(start) ? clamp(a, n, lo, hi) : s < 0 ? hi : lo;
    b = td_arg_given(stop) ? clamp(b, n, lo, hi) : s < 0 ? lo : hi;
    if (s > 0)
        *count = a < b ? (b - a - 1) / s + 1 : 0;
    else
        *count = a > b ? (a - b - 1) / -s + 1 : 0;
    *i0 = a;
    *by = s;
    return true;
}

static struct td_value slice_str(struct td_render *r, struct td_value s, int64_t i0,
                                 int64_t by, int64_t count)
{
    struct td_value out = td_value_str("", 0);
    td_render_charge(r, s.len / 32);
    if (by == 1) {
        size_t from = td_str_offset(s.u.s, s.len, (size_t)i0);
        size_t n = td_str_offset(s.u.s + from, s.len - from, (size_t)count);
        out = td_value_str(s.u.s + from, n);
    } else if (count > 0) {
        /* walk once through the characters, from the lowest position taken */
        int64_t jump = by < 0 ? -by : by, low = by < 0 ? i0 + by * (count - 1) : i0;
        size_t at = td_str_offset(s.u.s, s.len, (size_t)low), used = 0, k;
        char *p = td_render_alloc(r, s.len + 1, 1);
        for (int64_t i = 0; p && i < count; i++) {
            (void)td_str_char(s.u.s + at, s.len - at, &k);
            memcpy(p + used, s.u.s + at, k);
            used += k;
            at += td_str_offset(s.u.s + at, s.len - at, (size_t)jump);
        }
        if (!p)
            return td_value_undef();
        out = td_value_str(p, used);
        out = by < 0 ? td_str_reverse(r, out) : out;
    }
    out.flags = s.flags;
    return out;
}

static struct td_value slice_range(struct td_render *r, const struct td_range *old,
                                   int64_t i0, int64_t by, int64_t count)
{
    struct td_range *g = td_render_alloc(r, 1, sizeof(*g));
    if (!g)
        return td_value_undef();
    int64_t start = old->start + i0 * old->step;
    *g = (struct td_range){.start = start, .stop = start, .step = 1, .count = count};
    if (td_int_mul_overflows(old->step, by) ||
        td_int_mul_overflows(old->step * by, count) ||
        td_int_add_overflows(start, old->step * by * count))
        return td_render_fail(r, "an integer does not fit into 64 bits");
    g->step = old->step * by;
    g->stop = start + g->step * count;
    return (struct td_value){.kind = TD_V_RANGE, .u.range = g};
}

struct td_value td_value_slice(struct td_render *r, struct td_value obj,
                               struct td_value start, struct td_value stop,
                               struct td_value step)
{
    int64_t i0, by, count;
    if (!td_render_ok(r))
        return td_value_undef();
    if (obj.kind == TD_V_UNDEF)
        return td_value_use_undef(r, obj);
    if (obj.kind == TD_V_DICT)
        return td_render_fail(r, "unhashable type: 'slice'");
    if (obj.kind != TD_V_STR && obj.kind != TD_V_LIST && obj.kind != TD_V_TUPLE &&
        obj.kind != TD_V_RANGE)
        return td_render_fail(r, "'%s' object is not subscriptable",
                              td_value_type(obj));
    if (!td_slice_range(r, td_value_len(r, obj), start, stop, step, &i0, &by, &count))
        return td_value_undef();
    if (obj.kind == TD_V_STR)
        return slice_str(r, obj, i0, by, count);
    if (obj.kind == TD_V_RANGE)
        return slice_range(r, obj.u.range, i0, by, count);
    struct td_value list = td_value_list(r, obj.kind, (size_t)count);
    for (int64_t i = 0; i < count && td_render_charge(r, 1); i++)
        td_value_push(r, &list, obj.u.items->v[i0 + i * by]);
    return list;
}

/* ---- paths ----------------------------------------------------------------------- */

struct td_path td_path_parse(struct td_render *r, struct td_value attribute)
{
    struct td_path path = {.fallback = {.kind = TD_V_MISSING}};
    if (!td_arg_given(attribute))
        return path;
    size_t n = 1, from = 0;
    for (size_t i = 0; attribute.kind == TD_V_STR && i < attribute.len; i++)
        n += attribute.u.s[i] == '.';
    path.parts = td_render_alloc(r, n, sizeof(*path.parts));
    if (!path.parts)
        return path;
    if (attribute.kind != TD_V_STR) {
        path.parts[path.count++] = attribute;
        return path;
    }
    for (size_t i = 0; i <= attribute.len; i++) {
        if (i < attribute.len && attribute.u.s[i] != '.')
            continue;
        struct td_value part = td_value_str(attribute.u.s + from, i - from);
        int64_t index = 0;
        bool digits = part.len > 0;
        for (uint32_t k = 0; k < part.len; k++)
            digits = digits && part.u.s[k] >= '0' && part.u.s[k] <= '9';
        if (digits && td_int_parse(part.u.s, part.len, 10, &index) == TD_NUMBER_OK)
            part = td_value_int(index);
        path.parts[path.count++] = part;
        from = i + 1;
    }
    return path;
}

struct td_value td_path_get(struct td_render *r, const struct td_path *path,
                            struct td_value v)
{
    for (size_t i = 0; i < path->count && td_render_ok(r); i++) {
        v = td_value_item(r, v, path->parts[i]);
        if (v.kind == TD_V_UNDEF && td_arg_given(path->fallback))
            v = path->fallback;
    }
    if (path->fold && v.kind == TD_V_STR) {
        v = td_str_case(r, v, TD_CASE_LOWER);
        v.flags = 0;
    }
    return v;
}

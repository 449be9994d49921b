/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: a call's arguments are matched to a builtin's parameters here, in one place
 * for filters, tests, methods and functions alike.
 */
#include "text/template_tree.h"
#include "text/template_value.h"

#include <string.h>

bool td_arg_given(struct td_value v)
{
    return v.kind != TD_V_MISSING && v.kind != TD_V_NONE;
}

bool td_arg_bool(struct td_render *r, struct td_value v, bool absent)
{
    return v.kind == TD_V_MISSING ? absent : td_value_truth(r, v);
}

int64_t td_arg_int(struct td_render *r, struct td_value v, int64_t absent,
                   const char *func)
{
    if (v.kind == TD_V_MISSING)
        return absent;
    if (td_value_is_int(v))
        return td_value_as_int(v);
    if (v.kind == TD_V_UNDEF)
        td_value_use_undef(r, v);
    else
        td_render_fail(r, "%s(): '%s' object cannot be interpreted as an integer", func,
                       td_value_type(v));
    return absent;
}

bool td_arg_str(struct td_render *r, struct td_value v, const char *func)
{
    if (v.kind != TD_V_STR)
        td_render_fail(r, "%s(): an argument must be str, not %s", func,
                       td_value_type(v));
    return v.kind == TD_V_STR;
}

const struct td_builtin *td_builtin_find(const struct td_builtin *table, const char *s,
                                         size_t len)
{
    for (; table->name; table++)
        if (strlen(table->name) == len && memcmp(table->name, s, len) == 0)
            return table;
    return NULL;
}

/* The number of names in a parameter list. */
static size_t count_params(const char *params)
{
    size_t n = *params != 0;
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

/* Which parameter a keyword names; count when none. */
static size_t param_index(const char *params, struct td_value name)
{
    size_t i = 0;
    while (*params) {
        const char *end = strchr(params, ' ');
        size_t n = end ? (size_t)(end - params) : strlen(params);
        if (n == name.len && memcmp(params, name.u.s, n) == 0)
            return i;
        params += n + (end != NULL);
        i++;
    }
    return i;
}

/* Matches arguments to parameters; false after a failure. */
static bool match(struct td_render *r, const struct td_builtin *b,
                  const struct td_call *call, struct td_value *slots)
{
    const char *params = b->params ? b->params : "";
    bool keywords = *params != '/';
    params += !keywords;
    size_t n = count_params(params);
    for (size_t i = 0; i < TD_MAX_PARAMS; i++)
        slots[i] = i < call->npos && i < n ? call->pos[i]
                                           : (struct td_value){.kind = TD_V_MISSING};
    if (call->npos > n) {
        td_render_fail(r, "%s() takes at most %zu arguments (%zu given)", b->name, n,
                       call->npos);
        return false;
    }
    for (size_t i = 0; i < call->nkw; i++) {
        size_t k = keywords ? param_index(params, call->names[i]) : n;
        if (k >= n || slots[k].kind != TD_V_MISSING) {
            struct td_shown name = td_value_show(r, call->names[i]);
            td_render_fail(r,
                           k >= n ? "%s() got an unexpected keyword argument %s"
                                  : "%s() got multiple values for argument %s",
                           b->name, name.s);
            return false;
        }
        slots[k] = call->values[i];
    }
    for (size_t i = 0; i < b->required; i++)
        if (slots[i].kind == TD_V_MISSING) {
            td_render_fail(r, "%s() is missing %zu of its arguments", b->name,
                           b->required - i);
            return false;
        }
    return td_render_ok(r);
}

struct td_value td_builtin_call(struct td_render *r, const struct td_builtin *b,
                                struct td_value self, const struct td_call *call)
{
    struct td_value slots[TD_MAX_PARAMS];
    if (!td_render_charge(r, 1))
        return td_value_undef();
    if (b->call)
        return b->call(r, self, call);
    if (!b->run)
        return td_render_fail(r, "'%s' is not supported", b->name);
    return match(r, b, call, slots) ? b->run(r, self, slots) : td_value_undef();
}

static struct td_value joiner_call(struct td_render *r, struct td_value f,
                                   const struct td_call *call)
{
    if (call->npos || call->nkw)
        return td_render_fail(r, "a joiner takes no arguments");
    bool first = f.u.cycler->pos == 0;
    f.u.cycler->pos = 1;
    return first ? td_value_cstr("") : f.u.cycler->items;
}

struct td_value td_value_call(struct td_render *r, struct td_value f,
                              const struct td_call *call)
{
    if (!td_render_ok(r))
        return td_value_undef();
    switch ((enum td_value_kind)f.kind) {
    case TD_V_UNDEF:
        return td_value_use_undef(r, f);
    case TD_V_FUNC:
        return td_builtin_call(r, f.u.func, f, call);
    case TD_V_METHOD:
        return td_builtin_call(r, f.u.method->impl, f.u.method->self, call);
    case TD_V_MACRO:
        return td_macro_call(r, f.u.macro, call);
    case TD_V_JOINER:
        return joiner_call(r, f, call);
    default:
        return td_render_fail(r, "'%s' object is not callable", td_value_type(f));
    }
}

/* One pair of dict([(k, v), ...]). */
static void put_pair(struct td_render *r, struct td_vdict *d, struct td_value pair,
                     int64_t at)
{
    if (!td_value_iterable(pair)) {
        td_render_fail(r,
                       "cannot convert dictionary update sequence element #%lld to a "
                       "sequence",
                       (long long)at);
        return;
    }
    struct td_value kv = td_value_collect(r, pair, TD_V_TUPLE);
    if (td_render_ok(r) && kv.len != 2)
        td_render_fail(r,
                       "dictionary update sequence element #%lld has length %u; 2 is "
                       "required",
                       (long long)at, (unsigned)kv.len);
    if (td_render_ok(r))
        td_value_dict_put(r, d, kv.u.items->v[0], kv.u.items->v[1]);
}

struct td_value td_value_make_dict(struct td_render *r, const struct td_call *call,
                                   const char *name)
{
    struct td_value out = td_value_dict(r, call->nkw);
    struct td_iter it;
    struct td_value x;
    if (call->npos > 1)
        return td_render_fail(r, "%s expected at most 1 argument, got %zu", name,
                              call->npos);
    if (call->npos == 1 && call->pos[0].kind == TD_V_DICT) {
        const struct td_vdict *from = call->pos[0].u.dict;
        for (uint32_t i = 0; i < from->count && td_render_ok(r); i++)
            td_value_dict_put(r, out.u.dict, from->entries[i].key,
                              from->entries[i].value);
    } else if (call->npos == 1) {
        td_iter_init(r, &it, call->pos[0]);
        for (int64_t i = 0; td_iter_next(r, &it, &x); i++)
            put_pair(r, out.u.dict, x, i);
    }
    for (size_t i = 0; i < call->nkw && td_render_ok(r); i++)
        td_value_dict_put(r, out.u.dict, call->names[i], call->values[i]);
    return td_render_ok(r) ? out : td_value_undef();
}

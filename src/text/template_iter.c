/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Iteration: over containers, and through the generators that map, select, unique and
 * their like give. Generators are lazy, as in Python: an item is computed when somebody
 * asks for it, and read only once.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

bool td_value_iterable(struct td_value v)
{
    switch ((enum td_value_kind)v.kind) {
    case TD_V_UNDEF:
    case TD_V_STR:
    case TD_V_LIST:
    case TD_V_TUPLE:
    case TD_V_DICT:
    case TD_V_VIEW:
    case TD_V_RANGE:
    case TD_V_ITER:
        return true;
    default:
        return false;
    }
}

bool td_value_reversible(struct td_value v)
{
    return td_value_iterable(v) && v.kind != TD_V_ITER;
}

void td_iter_init(struct td_render *r, struct td_iter *it, struct td_value v)
{
    *it = (struct td_iter){.kind = TD_IT_EMPTY, .src = v};
    switch ((enum td_value_kind)v.kind) {
    case TD_V_UNDEF:
        break;
    case TD_V_STR:
        it->kind = TD_IT_CHARS;
        break;
    case TD_V_LIST:
    case TD_V_TUPLE:
        it->kind = TD_IT_ITEMS;
        break;
    case TD_V_DICT:
        it->src.flags = TD_VF_KEYS;
        it->kind = TD_IT_DICT;
        break;
    case TD_V_VIEW:
        it->kind = TD_IT_DICT;
        break;
    case TD_V_RANGE:
        it->kind = TD_IT_RANGE;
        break;
    case TD_V_ITER:
        it->kind = TD_IT_SHARED;
        break;
    default:
        td_render_fail(r, "'%s' object is not iterable", td_value_type(v));
        break;
    }
}

void td_iter_reverse(struct td_render *r, struct td_iter *it, struct td_value v)
{
    if (!td_value_reversible(v)) {
        *it = (struct td_iter){.kind = TD_IT_EMPTY};
        td_render_fail(r, "'%s' object is not reversible", td_value_type(v));
        return;
    }
    td_iter_init(r, it, v);
    it->reversed = true;
    if (v.kind == TD_V_STR)
        it->pos = v.len;
}

struct td_iter *td_iter_new(struct td_render *r, enum td_iter_kind kind,
                            struct td_value in)
{
    struct td_iter *it = td_render_alloc(r, 1, sizeof(*it));
    struct td_iter *from = td_render_alloc(r, 1, sizeof(*from));
    if (!it || !from)
        return NULL;
    td_iter_init(r, from, in);
    *it = (struct td_iter){.kind = kind, .in = from};
    return td_render_ok(r) ? it : NULL;
}

struct td_value td_value_iter(struct td_iter *it)
{
    if (!it)
        return td_value_undef();
    return (struct td_value){.kind = TD_V_ITER, .u.iter = it};
}

/* ---- containers ------------------------------------------------------------------ */

static struct td_value entry_value(struct td_render *r, const struct td_iter *it,
                                   int64_t pos)
{
    const struct td_vdict_entry *e = &it->src.u.dict->entries[pos];
    if (it->src.flags & TD_VF_KEYS)
        return e->key;
    if (it->src.flags & TD_VF_VALUES)
        return e->value;
    return td_value_pair(r, e->key, e->value);
}

/* The position of the next item, or -1. */
static int64_t step(struct td_iter *it, int64_t count)
{
    if (it->pos >= count)
        return -1;
    int64_t pos = it->pos++;
    return it->reversed ? count - 1 - pos : pos;
}

static bool next_char(struct td_iter *it, struct td_value *out)
{
    const char *s = it->src.u.s;
    size_t pos = (size_t)it->pos, n;
    if (it->reversed) {
        if (pos == 0)
            return false;
        size_t start = td_str_back(s, pos);
        *out = td_value_str(s + start, pos - start);
        it->pos = (int64_t)start;
        return true;
    }
    if (pos >= it->src.len)
        return false;
    (void)td_str_char(s + pos, it->src.len - pos, &n);
    *out = td_value_str(s + pos, n);
    it->pos += (int64_t)n;
    return true;
}

/* ---- generators ------------------------------------------------------------------ */

/* map: an attribute of each item, or a filter on it. */
static bool next_mapped(struct td_render *r, struct td_iter *it, struct td_value *out)
{
    struct td_value x;
    if (!td_iter_next(r, it->in, &x))
        return false;
    *out = it->kind == TD_IT_MAP_ATTR ? td_path_get(r, &it->path, x)
                                      : td_builtin_call(r, it->impl, x, it->call);
    return td_render_ok(r);
}

/* select, reject, selectattr, rejectattr. */
static bool next_selected(struct td_render *r, struct td_iter *it, struct td_value *out)
{
    while (td_iter_next(r, it->in, out)) {
        struct td_value v = it->has_path ? td_path_get(r, &it->path, *out) : *out;
        if (it->impl)
            v = td_builtin_call(r, it->impl, v, it->call);
        bool yes = td_value_truth(r, v) != it->negate;
        if (!td_render_ok(r))
            return false;
        if (yes)
            return true;
    }
    return false;
}

static bool next_unique(struct td_render *r, struct td_iter *it, struct td_value *out)
{
    while (td_iter_next(r, it->in, out)) {
        struct td_value key = td_path_get(r, &it->path, *out);
        bool seen = td_value_dict_get(r, it->seen, key) != NULL;
        td_value_dict_put(r, it->seen, key, td_value_none());
        if (!td_render_ok(r))
            return false;
        if (!seen)
            return true;
    }
    return false;
}

static bool next_batch(struct td_render *r, struct td_iter *it, struct td_value *out)
{
    struct td_value x, list = td_value_list(r, TD_V_LIST, 0);
    /* an item that did not fit into the last batch waits in src; a size below 1 never
     * matches, so that everything is one batch, but for an empty first one at 0 */
    if (it->src.kind != TD_V_MISSING && it->pos) {
        td_value_push(r, &list, it->src);
        it->src.kind = TD_V_MISSING;
        it->pos = 0;
    }
    bool full = false;
    while (!full && td_iter_next(r, it->in, &x)) {
        full = list.len == it->n;
        if (full) {
            it->src = x;
            it->pos = 1;
        } else {
            td_value_push(r, &list, x);
        }
    }
    if (!td_render_ok(r) || (!full && list.len == 0))
        return false;
    while (!full && td_arg_given(it->fill) && list.len < it->n &&
           td_render_charge(r, 1))
        td_value_push(r, &list, it->fill);
    *out = list;
    return td_render_ok(r);
}

/* it->src is the list, n the number of slices, n2 the offset of the next one. */
static bool next_slice(struct td_render *r, struct td_iter *it, struct td_value *out)
{
    if (it->pos >= it->n)
        return false;
    int64_t each = it->src.len / it->n, extra = it->src.len % it->n;
    int64_t count = each + (it->pos < extra);
    struct td_value list = td_value_list(r, TD_V_LIST, (size_t)count);
    for (int64_t i = 0; i < count && td_render_charge(r, 1); i++)
        td_value_push(r, &list, it->src.u.items->v[it->n2 + i]);
    if (td_arg_given(it->fill) && it->pos >= extra)
        td_value_push(r, &list, it->fill);
    it->n2 += count;
    it->pos++;
    *out = list;
    return td_render_ok(r);
}

static bool next_generated(struct td_render *r, struct td_iter *it,
                           struct td_value *out)
{
    if (!td_render_enter(r))
        return false;
    bool more;
    switch (it->kind) {
    case TD_IT_MAP:
    case TD_IT_MAP_ATTR:
        more = next_mapped(r, it, out);
        break;
    case TD_IT_SELECT:
        more = next_selected(r, it, out);
        break;
    case TD_IT_UNIQUE:
        more = next_unique(r, it, out);
        break;
    case TD_IT_BATCH:
        more = next_batch(r, it, out);
        break;
    default:
        more = next_slice(r, it, out);
        break;
    }
    td_render_leave(r);
    return more;
}

bool td_iter_next(struct td_render *r, struct td_iter *it, struct td_value *out)
{
    int64_t pos;
    if (!td_render_charge(r, 1))
        return false;
    switch (it->kind) {
    case TD_IT_EMPTY:
        return false;
    case TD_IT_ITEMS:
        pos = step(it, it->src.len);
        if (pos >= 0)
            *out = it->src.u.items->v[pos];
        return pos >= 0;
    case TD_IT_CHARS:
        return next_char(it, out);
    case TD_IT_DICT:
        pos = step(it, it->src.u.dict->count);
        if (pos >= 0)
            *out = entry_value(r, it, pos);
        return pos >= 0 && td_render_ok(r);
    case TD_IT_RANGE:
        pos = step(it, it->src.u.range->count);
        if (pos >= 0)
            *out = td_value_int(it->src.u.range->start + pos * it->src.u.range->step);
        return pos >= 0;
    case TD_IT_SHARED:
        return td_iter_next(r, it->src.u.iter, out);
    default:
        return next_generated(r, it, out);
    }
}

struct td_value td_value_collect(struct td_render *r, struct td_value v,
                                 enum td_value_kind kind)
{
    struct td_iter it;
    struct td_value x, list = td_value_list(r, kind, 0);
    td_iter_init(r, &it, v);
    while (td_iter_next(r, &it, &x))
        td_value_push(r, &list, x);
    return list;
}

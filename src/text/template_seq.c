/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters on sequences. Those that Python writes as generators give lazy iterators
 * (map, select, unique, ...); the others read their input at once.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <string.h>

TD_BUILTIN_RUN(f_length)
{
    (void)a;
    return td_value_int(td_value_len(r, self));
}

TD_BUILTIN_RUN(f_list)
{
    (void)a;
    return td_value_collect(r, self, TD_V_LIST);
}

TD_BUILTIN_RUN(f_first)
{
    (void)a;
    struct td_iter it;
    struct td_value x;
    td_iter_init(r, &it, self);
    if (td_iter_next(r, &it, &x))
        return x;
    return td_value_hint(r, "No first item, sequence was empty.");
}

TD_BUILTIN_RUN(f_last)
{
    (void)a;
    struct td_iter it;
    struct td_value x;
    td_iter_reverse(r, &it, self);
    if (td_iter_next(r, &it, &x))
        return x;
    return td_value_hint(r, "No last item, sequence was empty.");
}

TD_BUILTIN_RUN(f_join)
{
    struct td_value sep = td_value_cstr("");
    if (a[0].kind != TD_V_MISSING)
        sep = td_value_to_plain(r, a[0]);
    if (!td_arg_given(a[1]))
        return td_str_join(r, sep, self, true);
    struct td_iter *it = td_iter_new(r, TD_IT_MAP_ATTR, self);
    if (!it)
        return td_value_undef();
    it->path = td_path_parse(r, a[1]);
    return td_str_join(r, sep, td_value_iter(it), true);
}

TD_BUILTIN_RUN(f_items)
{
    (void)a;
    if (self.kind != TD_V_DICT && self.kind != TD_V_UNDEF)
        return td_render_fail(r, "Can only get item pairs from a mapping.");
    struct td_iter *it = td_render_alloc(r, 1, sizeof(*it));
    if (!it)
        return td_value_undef();
    if (self.kind == TD_V_DICT)
        self = (struct td_value){
            .kind = TD_V_VIEW, .flags = TD_VF_ITEMS, .u.dict = self.u.dict};
    td_iter_init(r, it, self);
    return td_value_iter(it);
}

TD_BUILTIN_RUN(f_reverse)
{
    (void)a;
    if (self.kind == TD_V_STR)
        return td_str_reverse(r, self);
    struct td_iter *it = td_render_alloc(r, 1, sizeof(*it));
    if (!it)
        return td_value_undef();
    if (!td_value_reversible(self)) {
        struct td_value list = td_value_collect(r, self, TD_V_LIST);
        for (uint32_t i = 0, j = list.len; td_render_ok(r) && i + 1 < j; i++) {
            j--;
            struct td_value x = list.u.items->v[i];
            list.u.items->v[i] = list.u.items->v[j];
            list.u.items->v[j] = x;
        }
        return list;
    }
    td_iter_reverse(r, it, self);
    return td_value_iter(it);
}

/* ---- map, select and their like -------------------------------------------------- */

/* The call without its first n positional arguments. */
static const struct td_call *rest_of(struct td_render *r, const struct td_call *call,
                                     size_t n)
{
    struct td_call *c = td_render_alloc(r, 1, sizeof(*c));
    if (!c)
        return NULL;
    *c = *call;
    c->pos += n;
    c->npos -= n;
    return c;
}

/* A filter or test given by name. */
static const struct td_builtin *by_name(struct td_render *r, struct td_value name,
                                        bool filter)
{
    const struct td_builtin *b = NULL;
    if (name.kind == TD_V_STR)
        b = filter ? td_filter_find(name.u.s, name.len)
                   : td_test_find(name.u.s, name.len);
    if (!b) {
        struct td_shown shown = td_value_show(r, name);
        td_render_fail(r, "there is no %s named %s", filter ? "filter" : "test",
                       shown.s);
    }
    return b;
}

static bool map_attribute(struct td_render *r, struct td_iter *it,
                          const struct td_call *call)
{
    struct td_value attribute = {.kind = TD_V_MISSING}, fallback = attribute;
    for (size_t i = 0; i < call->nkw; i++) {
        if (td_value_str_is(call->names[i], "attribute")) {
            attribute = call->values[i];
        } else if (td_value_str_is(call->names[i], "default")) {
            fallback = call->values[i];
        } else {
            struct td_shown shown = td_value_show(r, call->names[i]);
            td_render_fail(r, "Unexpected keyword argument %s", shown.s);
            return false;
        }
    }
    it->kind = TD_IT_MAP_ATTR;
    it->path = td_path_parse(r, attribute);
    it->path.fallback = fallback;
    return true;
}

static bool has_keyword(const struct td_call *call, const char *name)
{
    for (size_t i = 0; i < call->nkw; i++)
        if (td_value_str_is(call->names[i], name))
            return true;
    return false;
}

TD_BUILTIN_CALL(f_map)
{
    /* nothing is checked for an empty input, not even the arguments */
    struct td_value in = td_value_truth(r, self) ? self : td_value_undef();
    struct td_iter *it = td_iter_new(r, TD_IT_MAP, in);
    if (!it || in.kind == TD_V_UNDEF)
        return td_value_iter(it);
    if (call->npos == 0 && has_keyword(call, "attribute"))
        return map_attribute(r, it, call) ? td_value_iter(it) : td_value_undef();
    if (call->npos == 0)
        return td_render_fail(r, "map requires a filter argument");
    it->impl = by_name(r, call->pos[0], true);
    it->call = rest_of(r, call, 1);
    return td_render_ok(r) ? td_value_iter(it) : td_value_undef();
}

static struct td_value select_items(struct td_render *r, struct td_value self,
                                    const struct td_call *call, bool negate, bool attr)
{
    size_t at = attr;
    struct td_value in = td_value_truth(r, self) ? self : td_value_undef();
    struct td_iter *it = td_iter_new(r, TD_IT_SELECT, in);
    if (!it || in.kind == TD_V_UNDEF)
        return td_value_iter(it);
    it->negate = negate;
    it->has_path = attr;
    if (attr && call->npos == 0)
        return td_render_fail(r, "Missing parameter for attribute name");
    if (attr)
        it->path = td_path_parse(r, call->pos[0]);
    if (call->npos > at) {
        it->impl = by_name(r, call->pos[at], false);
        it->call = rest_of(r, call, at + 1);
    }
    return td_render_ok(r) ? td_value_iter(it) : td_value_undef();
}

TD_BUILTIN_CALL(f_select)
{
    return select_items(r, self, call, false, false);
}

TD_BUILTIN_CALL(f_reject)
{
    return select_items(r, self, call, true, false);
}

TD_BUILTIN_CALL(f_selectattr)
{
    return select_items(r, self, call, false, true);
}

TD_BUILTIN_CALL(f_rejectattr)
{
    return select_items(r, self, call, true, true);
}

TD_BUILTIN_RUN(f_unique)
{
    struct td_iter *it = td_iter_new(r, TD_IT_UNIQUE, self);
    struct td_value seen = td_value_dict(r, 0);
    if (!it || !td_render_ok(r))
        return td_value_undef();
    it->path = td_path_parse(r, a[1]);
    it->path.fold = !td_arg_bool(r, a[0], false);
    it->seen = seen.u.dict;
    return td_value_iter(it);
}

TD_BUILTIN_RUN(f_batch)
{
    struct td_iter *it = td_iter_new(r, TD_IT_BATCH, self);
    if (!it)
        return td_value_undef();
    it->n = td_arg_int(r, a[0], 0, "batch");
    it->fill = a[1];
    return td_value_iter(it);
}

TD_BUILTIN_RUN(f_slice)
{
    struct td_value list = td_value_collect(r, self, TD_V_LIST);
    struct td_iter *it = td_iter_new(r, TD_IT_SLICE, list);
    if (!it)
        return td_value_undef();
    it->src = list;
    it->n = td_arg_int(r, a[0], 0, "slice");
    it->fill = a[1];
    if (it->n == 0)
        return td_render_fail(r, "integer division or modulo by zero");
    return td_value_iter(it);
}

/* ---- sorting --------------------------------------------------------------------- */

struct keyed {
    struct td_value key, item;
};

/* Stable merge sort; reverse keeps equal items in their order, too. */
static void merge_sort(struct td_render *r, struct keyed *v, struct keyed *tmp,
                       size_t n, bool reverse)
{
    if (n < 2 || !td_render_ok(r))
        return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    merge_sort(r, v, tmp, half, reverse);
    merge_sort(r, v + half, tmp, n - half, reverse);
    while (i < half && j < n && td_render_ok(r)) {
        bool right_first = reverse ? td_value_order(r, v[i].key, v[j].key, TD_OP_LT)
                                   : td_value_order(r, v[j].key, v[i].key, TD_OP_LT);
        tmp[k++] = right_first ? v[j++] : v[i++];
    }
    while (i < half)
        tmp[k++] = v[i++];
    memcpy(v, tmp, k * sizeof(*v));
}

/* The items of `in` sorted by key: the value of the path, or with `lists` a list of the
 * values of all paths (which compare as lists, so that two undefined values are equal
 * and no error). NULL after a failure. */
static struct keyed *sorted(struct td_render *r, struct td_value in,
                            const struct td_path *paths, size_t npaths, bool lists,
                            bool reverse, size_t *count)
{
    struct td_value items = td_value_collect(r, in, TD_V_LIST);
    struct keyed *v = td_render_alloc(r, (size_t)items.len + 1, sizeof(*v));
    struct keyed *tmp = td_render_alloc(r, (size_t)items.len + 1, sizeof(*tmp));
    if (!v || !tmp)
        return NULL;
    for (uint32_t i = 0; i < items.len && td_render_ok(r); i++) {
        v[i].item = items.u.items->v[i];
        if (!lists) {
            v[i].key = td_path_get(r, &paths[0], v[i].item);
            continue;
        }
        v[i].key = td_value_list(r, TD_V_LIST, npaths);
        for (size_t k = 0; k < npaths; k++)
            td_value_push(r, &v[i].key, td_path_get(r, &paths[k], v[i].item));
    }
    merge_sort(r, v, tmp, items.len, reverse);
    *count = items.len;
    return td_render_ok(r) ? v : NULL;
}

static struct td_value items_of(struct td_render *r, const struct keyed *v, size_t n)
{
    struct td_value list = td_value_list(r, TD_V_LIST, n);
    for (size_t i = 0; v && i < n; i++)
        td_value_push(r, &list, v[i].item);
    return td_render_ok(r) ? list : td_value_undef();
}

/* sort(attribute="a,b.c"): one path for each part. */
static struct td_path *sort_paths(struct td_render *r, struct td_value attribute,
                                  bool fold, size_t *count)
{
    size_t n = 1, from = 0, k = 0;
    bool text = attribute.kind == TD_V_STR;
    for (size_t i = 0; text && i < attribute.len; i++)
        n += attribute.u.s[i] == ',';
    struct td_path *paths = td_render_alloc(r, n, sizeof(*paths));
    if (!paths)
        return NULL;
    for (size_t i = 0; i <= (text ? attribute.len : 0u); i++) {
        if (text && i < attribute.len && attribute.u.s[i] != ',')
            continue;
        struct td_value part =
            text ? td_value_str(attribute.u.s + from, i - from) : attribute;
        paths[k] = td_path_parse(r, part);
        paths[k++].fold = fold;
        from = i + 1;
    }
    *count = n;
    return paths;
}

TD_BUILTIN_RUN(f_sort)
{
    size_t npaths = 0, n = 0;
    bool reverse = td_arg_bool(r, a[0], false), exact = td_arg_bool(r, a[1], false);
    struct td_path *paths = sort_paths(r, a[2], !exact, &npaths);
    if (!paths)
        return td_value_undef();
    const struct keyed *v = sorted(r, self, paths, npaths, true, reverse, &n);
    return items_of(r, v, n);
}

TD_BUILTIN_RUN(f_dictsort)
{
    bool exact = td_arg_bool(r, a[0], false), reverse = td_arg_bool(r, a[2], false);
    bool by_value = td_value_str_is(a[1], "value");
    size_t n = 0;
    if (!by_value && a[1].kind != TD_V_MISSING && !td_value_str_is(a[1], "key"))
        return td_render_fail(r, "You can only sort by either \"key\" or \"value\"");
    if (self.kind != TD_V_DICT)
        return self.kind == TD_V_UNDEF
                   ? td_value_use_undef(r, self)
                   : td_render_fail(r, "'%s' object has no attribute 'items'",
                                    td_value_type(self));
    struct td_value index = td_value_int(by_value);
    struct td_path path = {.parts = &index, .count = 1, .fold = !exact};
    struct td_value pairs = {
        .kind = TD_V_VIEW, .flags = TD_VF_ITEMS, .u.dict = self.u.dict};
    const struct keyed *v = sorted(r, pairs, &path, 1, false, reverse, &n);
    return items_of(r, v, n);
}

TD_BUILTIN_RUN(f_groupby)
{
    struct td_path path = td_path_parse(r, a[0]), exact;
    path.fallback = a[1];
    exact = path;
    path.fold = !td_arg_bool(r, a[2], false);
    size_t n = 0;
    const struct keyed *v = sorted(r, self, &path, 1, false, false, &n);
    struct td_value out = td_value_list(r, TD_V_LIST, 0);
    for (size_t i = 0, j; v && i < n && td_render_ok(r); i = j) {
        struct td_value members = td_value_list(r, TD_V_LIST, 0);
        for (j = i; j < n && (j == i || td_value_eq(r, v[i].key, v[j].key)); j++)
            td_value_push(r, &members, v[j].item);
        struct td_value group =
            td_value_pair(r, td_path_get(r, &exact, v[i].item), members);
        group.flags = TD_VF_GROUP;
        td_value_push(r, &out, group);
    }
    return out;
}

/* ---- folding --------------------------------------------------------------------- */

static struct td_value extreme(struct td_render *r, struct td_value self,
                               const struct td_value *a, int better)
{
    struct td_path path = td_path_parse(r, a[1]);
    struct td_iter it;
    struct td_value x, best = {.kind = TD_V_MISSING}, best_key = best;
    path.fold = !td_arg_bool(r, a[0], false);
    td_iter_init(r, &it, self);
    while (td_iter_next(r, &it, &x)) {
        struct td_value key = td_path_get(r, &path, x);
        if (best.kind == TD_V_MISSING || td_value_order(r, key, best_key, better)) {
            best = x;
            best_key = key;
        }
    }
    if (best.kind != TD_V_MISSING)
        return best;
    return td_value_hint(r, "No aggregated item, sequence was empty.");
}

TD_BUILTIN_RUN(f_min)
{
    return extreme(r, self, a, TD_OP_LT);
}

TD_BUILTIN_RUN(f_max)
{
    return extreme(r, self, a, TD_OP_GT);
}

TD_BUILTIN_RUN(f_sum)
{
    struct td_path path = td_path_parse(r, a[0]);
    struct td_value total = a[1].kind == TD_V_MISSING ? td_value_int(0) : a[1], x;
    struct td_iter it;
    if (total.kind == TD_V_STR)
        return td_render_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    td_iter_init(r, &it, self);
    while (td_iter_next(r, &it, &x))
        total = td_value_binary(r, TD_OP_ADD, total, td_path_get(r, &path, x));
    return total;
}

/* clang-format off */
const struct td_builtin td_filters_seq[] = {
    {"length", "/", 0, f_length, NULL},
    {"count", "/", 0, f_length, NULL},
    {"join", "d attribute", 0, f_join, NULL},
    {"first", "", 0, f_first, NULL},
    {"last", "", 0, f_last, NULL},
    {"list", "", 0, f_list, NULL},
    {"items", "", 0, f_items, NULL},
    {"map", NULL, 0, NULL, f_map},
    {"select", NULL, 0, NULL, f_select},
    {"reject", NULL, 0, NULL, f_reject},
    {"selectattr", NULL, 0, NULL, f_selectattr},
    {"rejectattr", NULL, 0, NULL, f_rejectattr},
    {"reverse", "", 0, f_reverse, NULL},
    {"sort", "reverse case_sensitive attribute", 0, f_sort, NULL},
    {"dictsort", "case_sensitive by reverse", 0, f_dictsort, NULL},
    {"unique", "case_sensitive attribute", 0, f_unique, NULL},
    {"groupby", "attribute default case_sensitive", 1, f_groupby, NULL},
    {"batch", "linecount fill_with", 1, f_batch, NULL},
    {"slice", "slices fill_with", 1, f_slice, NULL},
    {"min", "case_sensitive attribute", 0, f_min, NULL},
    {"max", "case_sensitive attribute", 0, f_max, NULL},
    {"sum", "attribute start", 0, f_sum, NULL},
    {NULL, NULL, 0, NULL, NULL},
};
/* clang-format on */

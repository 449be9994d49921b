/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values: how they are made, and what Python says about their truth, length, equality
 * and order. See template_value.h. Dicts are insertion-ordered arrays with a hash index
 * once they are larger than a few entries.
 */
#include "text/template_value.h"

#include "base/limits.h"
#include "text/template_tree.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SCAN_MAX = 8 }; /* entries that a dict searches one by one */

/* ---- making ---------------------------------------------------------------------- */

struct td_value td_value_cstr(const char *s)
{
    return td_value_str(s, strlen(s));
}

struct td_value td_value_copy_str(struct td_render *r, const char *s, size_t n)
{
    char *p = td_render_alloc(r, n + 1, 1);
    if (!p)
        return td_value_undef();
    memcpy(p, s, n);
    return td_value_str(p, n);
}

static struct td_value undef(struct td_render *r, struct td_undef u)
{
    struct td_value v = td_value_undef();
    struct td_undef *copy = td_render_alloc(r, 1, sizeof(*copy));
    if (copy) {
        *copy = u;
        v.u.undef = copy;
    }
    return v;
}

struct td_value td_value_no_name(struct td_render *r, struct td_value name)
{
    return undef(r, (struct td_undef){.name = name});
}

struct td_value td_value_no_attr(struct td_render *r, struct td_value obj,
                                 struct td_value name)
{
    const char *type = td_value_is(obj, TD_V_NONE) ? "None" : td_value_type(obj);
    return undef(r, (struct td_undef){.type = type, .name = name});
}

struct td_value td_value_hint(struct td_render *r, const char *hint, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, hint);
    (void)vsnprintf(text, sizeof(text), hint, ap);
    va_end(ap);
    struct td_value copy = td_value_copy_str(r, text, strlen(text));
    return td_render_ok(r) ? undef(r, (struct td_undef){.hint = copy.u.s}) : copy;
}

struct td_value td_value_list(struct td_render *r, enum td_value_kind kind, size_t n)
{
    struct td_items *items = td_render_alloc(r, 1, sizeof(*items));
    struct td_value v = {.kind = (uint8_t)kind};
    if (!items)
        return td_value_undef();
    if (n > UINT32_MAX / 2)
        return TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_MEMORY);
    items->cap = (uint32_t)n;
    items->v = n ? td_render_alloc(r, n, sizeof(*items->v)) : NULL;
    if (n && !items->v)
        return td_value_undef();
    v.u.items = items;
    return v;
}

void td_value_push(struct td_render *r, struct td_value *list, struct td_value v)
{
    if (!td_render_ok(r))
        return;
    struct td_items *it = list->u.items;
    if (it->used != list->len || it->used == it->cap) {
        struct td_items *more = td_render_alloc(r, 1, sizeof(*more));
        size_t cap = TD_MAX((size_t)list->len * 2, (size_t)4);
        struct td_value *room =
            cap < UINT32_MAX / 2 ? td_render_alloc(r, cap, sizeof(*room)) : NULL;
        if (!more || !room) {
            TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_MEMORY);
            return;
        }
        if (list->len)
            memcpy(room, it->v, list->len * sizeof(*room));
        *more = (struct td_items){.v = room, .used = list->len, .cap = (uint32_t)cap};
        list->u.items = it = more;
    }
    it->v[it->used++] = v;
    list->len++;
}

struct td_value td_value_pair(struct td_render *r, struct td_value a, struct td_value b)
{
    struct td_value t = td_value_list(r, TD_V_TUPLE, 2);
    td_value_push(r, &t, a);
    td_value_push(r, &t, b);
    return t;
}

static struct td_value container_from_json(struct td_render *r, const json_t *j)
{
    struct td_value v;
    if (json_is_array(j)) {
        size_t n = json_array_size(j);
        v = td_value_list(r, TD_V_LIST, n);
        for (size_t i = 0; i < n && td_render_ok(r); i++)
            td_value_push(r, &v, td_value_from_json(r, json_array_get(j, i)));
        return v;
    }
    v = td_value_dict(r, json_object_size(j));
    json_t *obj = (json_t *)(uintptr_t)j; /* jansson's iterators want it writable */
    for (void *it = json_object_iter(obj); it && td_render_ok(r);
         it = json_object_iter_next(obj, it)) {
        const char *key = json_object_iter_key(it);
        td_value_dict_put(r, v.u.dict, td_value_cstr(key),
                          td_value_from_json(r, json_object_iter_value(it)));
    }
    return v;
}

struct td_value td_value_from_json(struct td_render *r, const json_t *j)
{
    struct td_value v = td_value_none();
    td_render_charge(r, 1);
    switch (json_typeof(j)) {
    case JSON_STRING:
        return td_value_str(json_string_value(j), json_string_length(j));
    case JSON_INTEGER:
        return td_value_int(json_integer_value(j));
    case JSON_REAL:
        return td_value_float(json_real_value(j));
    case JSON_TRUE:
    case JSON_FALSE:
        return td_value_bool(json_is_true(j));
    case JSON_ARRAY:
    case JSON_OBJECT:
        if (!td_render_enter(r))
            return v;
        v = container_from_json(r, j);
        td_render_leave(r);
        return v;
    default:
        return v;
    }
}

/* ---- asking ---------------------------------------------------------------------- */

const char *td_value_type(struct td_value v)
{
    switch ((enum td_value_kind)v.kind) {
    case TD_V_MISSING:
    case TD_V_UNDEF:
        return "Undefined";
    case TD_V_NONE:
        return "NoneType";
    case TD_V_BOOL:
        return "bool";
    case TD_V_INT:
        return "int";
    case TD_V_FLOAT:
        return "float";
    case TD_V_STR:
        return v.flags & TD_VF_SAFE ? "Markup" : "str";
    case TD_V_LIST:
        return "list";
    case TD_V_TUPLE:
        return "tuple";
    case TD_V_DICT:
        return "dict";
    case TD_V_VIEW:
        return v.flags & TD_VF_KEYS     ? "dict_keys"
               : v.flags & TD_VF_VALUES ? "dict_values"
                                        : "dict_items";
    case TD_V_RANGE:
        return "range";
    case TD_V_ITER:
        return "generator";
    case TD_V_NAMESPACE:
        return "namespace";
    case TD_V_MACRO:
        return "Macro";
    case TD_V_FUNC:
        return "function";
    case TD_V_METHOD:
        return "method";
    case TD_V_LOOP:
        return "LoopContext";
    case TD_V_CYCLER:
        return "Cycler";
    case TD_V_JOINER:
        return "Joiner";
    }
    return "object";
}

double td_value_as_double(struct td_value v)
{
    return v.kind == TD_V_FLOAT ? v.u.f : (double)td_value_as_int(v);
}

bool td_value_str_is(struct td_value v, const char *s)
{
    return v.kind == TD_V_STR && v.len == strlen(s) && memcmp(v.u.s, s, v.len) == 0;
}

bool td_value_has_len(struct td_value v)
{
    switch ((enum td_value_kind)v.kind) {
    case TD_V_UNDEF:
    case TD_V_STR:
    case TD_V_LIST:
    case TD_V_TUPLE:
    case TD_V_DICT:
    case TD_V_VIEW:
    case TD_V_RANGE:
    case TD_V_LOOP:
        return true;
    default:
        return false;
    }
}

int64_t td_value_len(struct td_render *r, struct td_value v)
{
    switch ((enum td_value_kind)v.kind) {
    case TD_V_UNDEF:
        return 0;
    case TD_V_STR:
        td_render_charge(r, v.len / 64);
        return (int64_t)td_str_chars(v.u.s, v.len);
    case TD_V_LIST:
    case TD_V_TUPLE:
        return v.len;
    case TD_V_DICT:
    case TD_V_VIEW:
        return v.u.dict->count;
    case TD_V_RANGE:
        return v.u.range->count;
    case TD_V_LOOP:
        return td_loop_attr(r, v, td_value_cstr("length")).u.i;
    default:
        td_render_fail(r, "object of type '%s' has no len()", td_value_type(v));
        return 0;
    }
}

bool td_value_truth(struct td_render *r, struct td_value v)
{
    switch ((enum td_value_kind)v.kind) {
    case TD_V_MISSING:
    case TD_V_UNDEF:
    case TD_V_NONE:
        return false;
    case TD_V_BOOL:
        return v.u.b;
    case TD_V_INT:
        return v.u.i != 0;
    case TD_V_FLOAT:
        return fpclassify(v.u.f) != FP_ZERO;
    case TD_V_STR:
        return v.len != 0;
    default:
        return td_value_has_len(v) ? td_value_len(r, v) != 0 : true;
    }
}

bool td_value_same(struct td_value a, struct td_value b)
{
    if (a.kind != b.kind || a.len != b.len)
        return false;
    switch ((enum td_value_kind)a.kind) {
    case TD_V_MISSING:
    case TD_V_NONE:
        return true;
    case TD_V_BOOL:
        return a.u.b == b.u.b;
    case TD_V_INT:
        return a.u.i == b.u.i;
    case TD_V_FLOAT:
        return memcmp(&a.u.f, &b.u.f, sizeof(a.u.f)) == 0;
    case TD_V_STR:
        return a.u.s == b.u.s || memcmp(a.u.s, b.u.s, a.len) == 0;
    case TD_V_METHOD:
        return false; /* each access makes a new one */
    default:
        return a.flags == b.flags && a.u.items == b.u.items;
    }
}

/* -1, 0, 1, or 2 when one is not a number. Exact, also where a 64-bit integer has no
 * double. */
static int compare_numbers(struct td_value a, struct td_value b)
{
    if (td_value_is_int(a) && td_value_is_int(b)) {
        int64_t x = td_value_as_int(a), y = td_value_as_int(b);
        return (x > y) - (x < y);
    }
    if (a.kind == TD_V_FLOAT && b.kind == TD_V_FLOAT)
        return isnan(a.u.f) || isnan(b.u.f) ? 2 : (a.u.f > b.u.f) - (a.u.f < b.u.f);
    if (a.kind == TD_V_FLOAT) {
        int c = compare_numbers(b, a);
        return c == 2 ? 2 : -c;
    }
    double y = b.u.f;
    int64_t x = td_value_as_int(a);
    if (isnan(y))
        return 2;
    if (y >= 9223372036854775808.0)
        return -1;
    if (y < -9223372036854775808.0)
        return 1;
    int64_t whole = (int64_t)y;
    if (x != whole)
        return x < whole ? -1 : 1;
    double rest = y - (double)whole;
    return (rest < 0) - (rest > 0);
}

static bool items_eq(struct td_render *r, struct td_value a, struct td_value b)
{
    if (a.len != b.len || !td_render_enter(r))
        return false;
    bool eq = true;
    for (uint32_t i = 0; i < a.len && eq; i++)
        eq = td_value_eq(r, a.u.items->v[i], b.u.items->v[i]);
    td_render_leave(r);
    return eq;
}

static bool dicts_eq(struct td_render *r, const struct td_vdict *a,
                     const struct td_vdict *b, bool values)
{
    if (a->count != b->count || !td_render_enter(r))
        return false;
    bool eq = true;
    for (uint32_t i = 0; i < a->count && eq && td_render_ok(r); i++) {
        const struct td_value *v = td_value_dict_get(r, b, a->entries[i].key);
        eq = v && (!values || td_value_eq(r, a->entries[i].value, *v));
    }
    td_render_leave(r);
    return eq;
}

static bool ranges_eq(const struct td_range *a, const struct td_range *b)
{
    return a->count == b->count && (a->count == 0 || a->start == b->start) &&
           (a->count <= 1 || a->step == b->step);
}

bool td_value_eq(struct td_render *r, struct td_value a, struct td_value b)
{
    if (!td_render_charge(r, 1))
        return false;
    if (td_value_is_number(a) && td_value_is_number(b))
        return compare_numbers(a, b) == 0;
    if (a.kind != b.kind)
        return false;
    switch ((enum td_value_kind)a.kind) {
    case TD_V_UNDEF:
    case TD_V_NONE:
        return true;
    case TD_V_STR:
        td_render_charge(r, a.len / 64);
        return a.len == b.len && memcmp(a.u.s, b.u.s, a.len) == 0;
    case TD_V_LIST:
    case TD_V_TUPLE:
        return td_value_same(a, b) || items_eq(r, a, b);
    case TD_V_DICT:
        return a.u.dict == b.u.dict || dicts_eq(r, a.u.dict, b.u.dict, true);
    case TD_V_VIEW:
        if (a.flags & TD_VF_VALUES || a.flags != b.flags)
            return false;
        return dicts_eq(r, a.u.dict, b.u.dict, a.flags & TD_VF_ITEMS);
    case TD_V_RANGE:
        return ranges_eq(a.u.range, b.u.range);
    case TD_V_METHOD:
        return a.u.method->impl == b.u.method->impl &&
               td_value_same(a.u.method->self, b.u.method->self);
    default:
        return td_value_same(a, b);
    }
}

static const char *const order_names[] = {
    [TD_OP_LT] = "<",
    [TD_OP_LE] = "<=",
    [TD_OP_GT] = ">",
    [TD_OP_GE] = ">=",
};

static bool decide(int cmp, int op)
{
    switch (op) {
    case TD_OP_LT:
        return cmp < 0;
    case TD_OP_LE:
        return cmp <= 0;
    case TD_OP_GT:
        return cmp == 1;
    default:
        return cmp == 1 || cmp == 0;
    }
}

static bool order_items(struct td_render *r, struct td_value a, struct td_value b,
                        int op)
{
    if (!td_render_enter(r))
        return false;
    uint32_t n = TD_MIN(a.len, b.len), i = 0;
    while (i < n && td_value_eq(r, a.u.items->v[i], b.u.items->v[i]))
        i++;
    bool yes = i < n ? td_value_order(r, a.u.items->v[i], b.u.items->v[i], op)
                     : decide((a.len > b.len) - (a.len < b.len), op);
    td_render_leave(r);
    return yes;
}

bool td_value_order(struct td_render *r, struct td_value a, struct td_value b, int op)
{
    if (!td_render_charge(r, 1))
        return false;
    if (td_value_is(a, TD_V_UNDEF) || td_value_is(b, TD_V_UNDEF)) {
        td_value_use_undef(r, td_value_is(a, TD_V_UNDEF) ? a : b);
        return false;
    }
    if (td_value_is_number(a) && td_value_is_number(b)) {
        int c = compare_numbers(a, b);
        return c == 2 ? false : decide(c, op);
    }
    if (a.kind == TD_V_STR && b.kind == TD_V_STR) {
        /* bytes of UTF-8 are in the order of code points */
        uint32_t n = TD_MIN(a.len, b.len);
        td_render_charge(r, n / 64);
        int c = memcmp(a.u.s, b.u.s, n);
        c = c ? c : (a.len > b.len) - (a.len < b.len);
        return decide((c > 0) - (c < 0), op);
    }
    if (a.kind == b.kind && (a.kind == TD_V_LIST || a.kind == TD_V_TUPLE))
        return order_items(r, a, b, op);
    td_render_fail(r, "'%s' not supported between instances of '%s' and '%s'",
                   order_names[op], td_value_type(a), td_value_type(b));
    return false;
}

static bool in_str(struct td_render *r, struct td_value v, struct td_value s)
{
    if (v.kind != TD_V_STR) {
        td_render_fail(r, "'in <string>' requires string as left operand, not %s",
                       td_value_type(v));
        return false;
    }
    return td_str_find(r, s.u.s, s.len, v.u.s, v.len) >= 0;
}

bool td_value_in(struct td_render *r, struct td_value v, struct td_value container)
{
    if (container.kind == TD_V_STR)
        return in_str(r, v, container);
    if (container.kind == TD_V_DICT ||
        (container.kind == TD_V_VIEW && container.flags & TD_VF_KEYS))
        return td_value_dict_get(r, container.u.dict, v) != NULL;
    if (!td_value_iterable(container)) {
        td_render_fail(r, "argument of type '%s' is not iterable",
                       td_value_type(container));
        return false;
    }
    struct td_iter it;
    struct td_value x;
    td_iter_init(r, &it, container);
    while (td_iter_next(r, &it, &x))
        if (td_value_same(x, v) || td_value_eq(r, x, v))
            return true;
    return false;
}

struct td_value td_value_use_undef(struct td_render *r, struct td_value v)
{
    const struct td_undef *u = v.u.undef;
    if (!u)
        return td_render_fail(r, "an undefined value was used");
    if (u->hint)
        return td_render_fail(r, "%s", u->hint);
    struct td_shown name = td_value_show(r, u->name);
    if (!u->type)
        return td_render_fail(r, "%s is undefined", name.s);
    const char *object = strcmp(u->type, "None") == 0 ? "" : " object";
    if (u->name.kind == TD_V_STR)
        return td_render_fail(r, "'%s%s' has no attribute %s", u->type, object, name.s);
    return td_render_fail(r, "%s%s has no element %s", u->type, object, name.s);
}

/* ---- dicts ----------------------------------------------------------------------- */

static uint32_t mix(uint32_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x01000193u;
    return h;
}

static uint32_t hash_number(uint32_t h, struct td_value v)
{
    int64_t i = td_value_is_int(v) ? td_value_as_int(v) : 0;
    if (v.kind == TD_V_FLOAT) {
        bool whole = v.u.f >= -9223372036854775808.0 && v.u.f < 9223372036854775808.0;
        i = whole ? (int64_t)v.u.f : 0;
        if (!whole || (double)i < v.u.f || (double)i > v.u.f)
            return mix(h, &v.u.f, sizeof(v.u.f));
    }
    return mix(h, &i, sizeof(i));
}

/* Fails for what Python cannot hash. */
static uint32_t hash(struct td_render *r, struct td_value v)
{
    uint32_t h = 0x811C9DC5u ^ r->seed;
    switch ((enum td_value_kind)v.kind) {
    case TD_V_BOOL:
    case TD_V_INT:
    case TD_V_FLOAT:
        return hash_number(h, v);
    case TD_V_STR:
        td_render_charge(r, v.len / 64);
        return mix(h, v.u.s, v.len);
    case TD_V_TUPLE:
        if (!td_render_enter(r))
            return h;
        for (uint32_t i = 0; i < v.len && td_render_ok(r); i++) {
            uint32_t x = hash(r, v.u.items->v[i]);
            h = mix(h, &x, sizeof(x));
        }
        td_render_leave(r);
        return h;
    case TD_V_LIST:
    case TD_V_DICT:
    case TD_V_VIEW:
        td_render_fail(r, "unhashable type: '%s'", td_value_type(v));
        return h;
    default:
        return h ^ v.kind;
    }
}

struct td_value td_value_dict(struct td_render *r, size_t n)
{
    struct td_vdict *d = td_render_alloc(r, 1, sizeof(*d));
    if (!d)
        return td_value_undef();
    if (n > UINT32_MAX / 4)
        return TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_MEMORY);
    d->cap = (uint32_t)n;
    d->entries = n ? td_render_alloc(r, n, sizeof(*d->entries)) : NULL;
    if (n && !d->entries)
        return td_value_undef();
    return (struct td_value){.kind = TD_V_DICT, .u.dict = d};
}

/* The index slot of a key: its entry's, or the free one where it belongs. */
static uint32_t *slot_of(struct td_render *r, const struct td_vdict *d,
                         struct td_value key, uint32_t h)
{
    uint32_t i = (h ^ h >> 15) & (d->nindex - 1);
    while (td_render_ok(r) && d->index[i] &&
           !td_value_eq(r, d->entries[d->index[i] - 1].key, key))
        i = (i + 1) & (d->nindex - 1);
    return &d->index[i];
}

static struct td_vdict_entry *find(struct td_render *r, const struct td_vdict *d,
                                   struct td_value key, uint32_t h)
{
    if (d->index) {
        uint32_t *slot = slot_of(r, d, key, h);
        return *slot && td_render_ok(r) ? &d->entries[*slot - 1] : NULL;
    }
    for (uint32_t i = 0; i < d->count; i++)
        if (td_value_eq(r, d->entries[i].key, key))
            return &d->entries[i];
    return NULL;
}

struct td_value *td_value_dict_get(struct td_render *r, const struct td_vdict *d,
                                   struct td_value key)
{
    uint32_t h = d->index || key.kind != TD_V_STR ? hash(r, key) : 0;
    struct td_vdict_entry *e = td_render_ok(r) ? find(r, d, key, h) : NULL;
    return e ? &e->value : NULL;
}

static void grow_dict(struct td_render *r, struct td_vdict *d)
{
    uint32_t cap = d->cap ? d->cap * 2 : 4;
    struct td_vdict_entry *more =
        cap < UINT32_MAX / 4 ? td_render_alloc(r, cap, sizeof(*more)) : NULL;
    if (!more) {
        TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_MEMORY);
        return;
    }
    if (d->count)
        memcpy(more, d->entries, d->count * sizeof(*more));
    d->entries = more;
    d->cap = cap;
}

static void build_index(struct td_render *r, struct td_vdict *d)
{
    uint32_t n = 16;
    while (n < d->cap * 2)
        n *= 2;
    d->index = td_render_alloc(r, n, sizeof(*d->index));
    d->nindex = n;
    for (uint32_t i = 0; i < d->count && td_render_ok(r); i++)
        *slot_of(r, d, d->entries[i].key, hash(r, d->entries[i].key)) = i + 1;
}

void td_value_dict_put(struct td_render *r, struct td_vdict *d, struct td_value key,
                       struct td_value value)
{
    uint32_t h = td_render_ok(r) ? hash(r, key) : 0;
    struct td_vdict_entry *e = td_render_ok(r) ? find(r, d, key, h) : NULL;
    if (e)
        e->value = value;
    if (e || !td_render_ok(r))
        return;
    if (d->count == d->cap)
        grow_dict(r, d);
    if (!td_render_ok(r))
        return;
    d->entries[d->count++] = (struct td_vdict_entry){key, value};
    if (d->count > SCAN_MAX && d->count * 2 > d->nindex)
        build_index(r, d);
    else if (d->index)
        *slot_of(r, d, key, h) = d->count;
}

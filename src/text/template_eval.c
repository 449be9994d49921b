/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluating expressions: a walk over the tree, one value for each node.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <string.h>

/* ---- names ----------------------------------------------------------------------- */

struct td_scope *td_scope_new(struct td_render *r, struct td_scope *parent)
{
    struct td_scope *s = td_render_alloc(r, 1, sizeof(*s));
    if (s)
        s->parent = parent;
    return s;
}

void td_scope_set(struct td_render *r, struct td_scope *scope, uint32_t name,
                  struct td_value v)
{
    if (!td_render_ok(r))
        return;
    if (!scope) {
        r->globals[name] = v;
        return;
    }
    for (uint32_t i = 0; i < scope->count; i++)
        if (scope->b[i].name == name) {
            scope->b[i].value = v;
            return;
        }
    if (scope->count == scope->cap) {
        uint32_t cap = scope->cap ? scope->cap * 2 : 4;
        struct td_binding *b = td_render_alloc(r, cap, sizeof(*b));
        if (!b)
            return;
        if (scope->count)
            memcpy(b, scope->b, scope->count * sizeof(*b));
        scope->b = b;
        scope->cap = cap;
    }
    scope->b[scope->count++] = (struct td_binding){name, v};
}

/* A parameter without a value yet is MISSING, and hides what is outside. */
struct td_value td_scope_get(struct td_render *r, struct td_scope *scope, uint32_t name)
{
    struct td_value v = {.kind = TD_V_MISSING};
    bool found = false;
    for (; scope && !found; scope = scope->parent) {
        r->steps += scope->count / 16;
        for (uint32_t i = 0; i < scope->count && !found; i++)
            if (scope->b[i].name == name) {
                v = scope->b[i].value;
                found = true;
            }
    }
    if (!found)
        v = r->globals[name].kind != TD_V_MISSING ? r->globals[name] : r->outside[name];
    if (v.kind == TD_V_MISSING)
        return td_value_no_name(r, td_value_cstr(r->t->names[name]));
    return v;
}

/* ---- calls ----------------------------------------------------------------------- */

static void add_keyword(struct td_render *r, struct td_call *call, struct td_value name,
                        struct td_value v)
{
    for (size_t i = 0; i < call->nkw; i++)
        if (td_value_eq(r, call->names[i], name)) {
            struct td_shown shown = td_value_show(r, name);
            td_render_fail(r, "got multiple values for keyword argument %s", shown.s);
        }
    call->names[call->nkw] = name;
    call->values[call->nkw++] = v;
}

/* *args: more positional arguments than there was room for. */
static void add_star(struct td_render *r, struct td_call *call, struct td_value v)
{
    struct td_value list = td_value_collect(r, v, TD_V_LIST);
    struct td_value *pos = td_render_alloc(r, call->npos + list.len + 1, sizeof(*pos));
    if (!pos)
        return;
    if (call->npos && call->pos)
        memcpy(pos, call->pos, call->npos * sizeof(*pos));
    if (list.len && list.u.items->v)
        memcpy(pos + call->npos, list.u.items->v, list.len * sizeof(*pos));
    call->pos = pos;
    call->npos += list.len;
}

/* **kwargs; `more` keywords may still follow. */
static void add_star2(struct td_render *r, struct td_call *call, struct td_value v,
                      size_t more)
{
    if (v.kind != TD_V_DICT) {
        td_render_fail(r, "argument after ** must be a mapping, not %s",
                       td_value_type(v));
        return;
    }
    const struct td_vdict *d = v.u.dict;
    size_t room = call->nkw + d->count + more + 1;
    struct td_value *names = td_render_alloc(r, room, sizeof(*names));
    struct td_value *values = td_render_alloc(r, room, sizeof(*values));
    if (!names || !values)
        return;
    if (call->nkw && call->names && call->values) {
        memcpy(names, call->names, call->nkw * sizeof(*names));
        memcpy(values, call->values, call->nkw * sizeof(*values));
    }
    call->names = names;
    call->values = values;
    for (uint32_t i = 0; i < d->count && td_render_ok(r); i++) {
        if (d->entries[i].key.kind != TD_V_STR)
            td_render_fail(r, "keywords must be strings");
        else
            add_keyword(r, call, d->entries[i].key, d->entries[i].value);
    }
}

void td_eval_args(struct td_render *r, const struct td_tnode *list,
                  struct td_scope *scope, struct td_call *call)
{
    size_t npos = 0, nkw = 1; /* room for `caller` */
    for (const struct td_tnode *a = list; a; a = a->next) {
        npos += a->kind == TD_N_ARG;
        nkw += a->kind == TD_N_KWARG;
    }
    *call = (struct td_call){.pos = NULL};
    call->pos = npos ? td_render_alloc(r, npos, sizeof(*call->pos)) : NULL;
    call->names = td_render_alloc(r, nkw, sizeof(*call->names));
    call->values = td_render_alloc(r, nkw, sizeof(*call->values));
    for (const struct td_tnode *a = list; a && td_render_ok(r); a = a->next) {
        struct td_value v = td_eval(r, a->a, scope);
        if (!td_render_ok(r))
            return;
        if (a->kind == TD_N_ARG)
            call->pos[call->npos++] = v;
        else if (a->kind == TD_N_KWARG)
            add_keyword(r, call, a->val, v);
        else if (a->kind == TD_N_STAR)
            add_star(r, call, v);
        else
            add_star2(r, call, v, nkw);
    }
}

/* A call: of a method right away, without making a value of it, else of a value. */
static struct td_value eval_call(struct td_render *r, const struct td_tnode *n,
                                 struct td_scope *scope)
{
    struct td_call call;
    const struct td_builtin *method = NULL;
    struct td_value f;
    if (n->a->kind == TD_N_ATTR) {
        f = td_eval(r, n->a->a, scope);
        method = td_method_find(f, n->a->val.u.s, n->a->val.len);
        if (method && !method->run && !method->call)
            method = NULL;
        if (!method)
            f = td_value_attr(r, f, n->a->val);
    } else {
        f = td_eval(r, n->a, scope);
    }
    td_eval_args(r, n->b, scope, &call);
    r->line = n->line;
    if (!td_render_ok(r))
        return td_value_undef();
    return method ? td_builtin_call(r, method, f, &call) : td_value_call(r, f, &call);
}

static struct td_value eval_filter(struct td_render *r, const struct td_tnode *n,
                                   struct td_scope *scope)
{
    struct td_call call;
    struct td_value in = n->a ? td_eval(r, n->a, scope) : r->block_text;
    if (!n->impl)
        return td_render_fail(r, "there is no %s named '%.*s'",
                              n->kind == TD_N_FILTER ? "filter" : "test",
                              (int)TD_MIN(n->val.len, 60u), n->val.u.s);
    td_eval_args(r, n->b, scope, &call);
    r->line = n->line;
    if (!td_render_ok(r))
        return td_value_undef();
    return td_builtin_call(r, n->impl, in, &call);
}

/* ---- the kinds ------------------------------------------------------------------- */

static struct td_value eval_items(struct td_render *r, const struct td_tnode *n,
                                  struct td_scope *scope)
{
    size_t count = 0;
    for (const struct td_tnode *i = n->a; i; i = i->next)
        count++;
    struct td_value list =
        td_value_list(r, n->kind == TD_N_LIST ? TD_V_LIST : TD_V_TUPLE, count);
    for (const struct td_tnode *i = n->a; i && td_render_ok(r); i = i->next)
        td_value_push(r, &list, td_eval(r, i->a, scope));
    return list;
}

static struct td_value eval_dict(struct td_render *r, const struct td_tnode *n,
                                 struct td_scope *scope)
{
    struct td_value d = td_value_dict(r, 0);
    for (const struct td_tnode *i = n->a; i && td_render_ok(r); i = i->next->next) {
        struct td_value key = td_eval(r, i->a, scope);
        struct td_value value = td_eval(r, i->next->a, scope);
        if (td_render_ok(r))
            td_value_dict_put(r, d.u.dict, key, value);
    }
    return d;
}

static struct td_value eval_item(struct td_render *r, const struct td_tnode *n,
                                 struct td_scope *scope)
{
    struct td_value obj = td_eval(r, n->a, scope), part[3];
    if (n->b->kind != TD_N_SLICE)
        return td_value_item(r, obj, td_eval(r, n->b, scope));
    const struct td_tnode *kids[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++)
        part[i] = kids[i] ? td_eval(r, kids[i], scope) : td_value_none();
    return td_value_slice(r, obj, part[0], part[1], part[2]);
}

static struct td_value eval_concat(struct td_render *r, const struct td_tnode *n,
                                   struct td_scope *scope)
{
    struct td_value s = td_value_to_plain(r, td_eval(r, n->a->a, scope));
    for (const struct td_tnode *i = n->a->next; i && td_render_ok(r); i = i->next) {
        struct td_value x = td_value_to_plain(r, td_eval(r, i->a, scope));
        s = td_value_concat(r, s, x);
    }
    return s;
}

static bool compare(struct td_render *r, int op, struct td_value a, struct td_value b)
{
    switch (op) {
    case TD_OP_EQ:
        return td_value_eq(r, a, b);
    case TD_OP_NE:
        return !td_value_eq(r, a, b);
    case TD_OP_IN:
        return td_value_in(r, a, b);
    case TD_OP_NOT_IN:
        return !td_value_in(r, a, b);
    default:
        return td_value_order(r, a, b, op);
    }
}

/* a < b < c: each pair, up to the first that does not hold. */
static struct td_value eval_compare(struct td_render *r, const struct td_tnode *n,
                                    struct td_scope *scope)
{
    struct td_value a = td_eval(r, n->a, scope);
    bool yes = true;
    for (const struct td_tnode *o = n->b; o && yes && td_render_ok(r); o = o->next) {
        struct td_value b = td_eval(r, o->a, scope);
        r->line = o->line;
        yes = td_render_ok(r) && compare(r, o->op, a, b);
        a = b;
    }
    return td_value_bool(yes);
}

static struct td_value eval_cond(struct td_render *r, const struct td_tnode *n,
                                 struct td_scope *scope)
{
    bool yes = td_value_truth(r, td_eval(r, n->a, scope));
    if (!td_render_ok(r))
        return td_value_undef();
    if (yes)
        return td_eval(r, n->b, scope);
    if (n->c)
        return td_eval(r, n->c, scope);
    return td_value_hint(
        r,
        "the inline if-expression on line %u evaluated to false and no "
        "else section was defined.",
        (unsigned)n->line);
}

static struct td_value eval_node(struct td_render *r, const struct td_tnode *n,
                                 struct td_scope *scope)
{
    struct td_value a, b;
    switch (n->kind) {
    case TD_N_CONST:
        return n->val;
    case TD_N_NAME:
        return td_scope_get(r, scope, n->name);
    case TD_N_TUPLE:
    case TD_N_LIST:
        return eval_items(r, n, scope);
    case TD_N_DICT:
        return eval_dict(r, n, scope);
    case TD_N_ATTR:
        a = td_eval(r, n->a, scope);
        r->line = n->line;
        return td_value_attr(r, a, n->val);
    case TD_N_ITEM:
        return eval_item(r, n, scope);
    case TD_N_CALL:
        return eval_call(r, n, scope);
    case TD_N_FILTER:
    case TD_N_TEST:
        return eval_filter(r, n, scope);
    case TD_N_NOT:
        return td_value_bool(!td_value_truth(r, td_eval(r, n->a, scope)));
    case TD_N_NEG:
    case TD_N_POS:
        return td_value_negate(r, td_eval(r, n->a, scope), n->kind == TD_N_POS);
    case TD_N_BINARY:
        a = td_eval(r, n->a, scope);
        b = td_eval(r, n->b, scope);
        r->line = n->line;
        return td_value_binary(r, n->op, a, b);
    case TD_N_AND:
    case TD_N_OR:
        a = td_eval(r, n->a, scope);
        if (!td_render_ok(r) || td_value_truth(r, a) == (n->kind == TD_N_OR))
            return a;
        return td_eval(r, n->b, scope);
    case TD_N_CONCAT:
        return eval_concat(r, n, scope);
    case TD_N_COMPARE:
        return eval_compare(r, n, scope);
    case TD_N_COND:
        return eval_cond(r, n, scope);
    default:
        return td_render_fail(r, "this cannot be evaluated");
    }
}

struct td_value td_eval(struct td_render *r, const struct td_tnode *n,
                        struct td_scope *scope)
{
    if (!td_render_charge(r, 1) || !td_render_enter(r))
        return td_value_undef();
    r->line = n->line;
    struct td_value v = eval_node(r, n, scope);
    td_render_leave(r);
    return v;
}

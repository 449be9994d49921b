/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running statements. A scope holds the names that a loop, macro or other block binds;
 * if-blocks have none of their own. A macro sees the scope it was written in, as it is
 * when the macro is called.
 */
#include "text/template_tree.h"
#include "text/template_value.h"

/* ---- assignment ------------------------------------------------------------------ */

static void assign_attr(struct td_render *r, struct td_scope *scope,
                        const struct td_tnode *target, struct td_value v)
{
    struct td_value ns = td_scope_get(r, scope, target->name);
    if (ns.kind != TD_V_NAMESPACE)
        td_render_fail(r, "cannot assign attribute on non-namespace object");
    else if (target->val.u.s[0] == '_')
        td_render_fail(r,
                       "a namespace cannot have names that start with an underscore");
    else
        td_value_dict_put(r, ns.u.dict, target->val, v);
}

/* a, b = v */
static void unpack(struct td_render *r, struct td_scope *scope,
                   const struct td_tnode *target, struct td_value v)
{
    uint32_t want = 0, i = 0;
    for (const struct td_tnode *t = target->a; t; t = t->next)
        want++;
    if (!td_value_iterable(v)) {
        td_render_fail(r, "cannot unpack non-iterable %s object", td_value_type(v));
        return;
    }
    struct td_value list = td_value_collect(r, v, TD_V_LIST);
    if (td_render_ok(r) && list.len < want)
        td_render_fail(r, "not enough values to unpack (expected %u, got %u)",
                       (unsigned)want, (unsigned)list.len);
    if (td_render_ok(r) && list.len > want)
        td_render_fail(r, "too many values to unpack (expected %u)", (unsigned)want);
    for (const struct td_tnode *t = target->a; t && td_render_ok(r); t = t->next)
        td_exec_assign(r, scope, t->a, list.u.items->v[i++]);
}

void td_exec_assign(struct td_render *r, struct td_scope *scope,
                    const struct td_tnode *target, struct td_value v)
{
    if (!td_render_enter(r))
        return;
    if (target->kind == TD_N_NAME)
        td_scope_set(r, scope, target->name, v);
    else if (target->kind == TD_N_NSREF)
        assign_attr(r, scope, target, v);
    else
        unpack(r, scope, target, v);
    td_render_leave(r);
}

/* ---- macros ---------------------------------------------------------------------- */

static struct td_value new_macro(struct td_render *r, const struct td_tnode *n,
                                 struct td_scope *scope)
{
    struct td_macro *m = td_render_alloc(r, 1, sizeof(*m));
    if (!m)
        return td_value_undef();
    *m = (struct td_macro){.node = n, .scope = scope};
    return (struct td_value){.kind = TD_V_MACRO, .u.macro = m};
}

static const char *macro_name(const struct td_render *r, const struct td_tnode *n)
{
    return n->kind == TD_N_MACRO ? r->t->names[n->name] : "caller";
}

/* Takes a keyword argument out of the call; MISSING when it is not there. */
static struct td_value take_keyword(struct td_call *call, const char *name)
{
    for (size_t i = 0; i < call->nkw; i++)
        if (td_value_str_is(call->names[i], name)) {
            struct td_value v = call->values[i];
            for (; i + 1 < call->nkw; i++) {
                call->names[i] = call->names[i + 1];
                call->values[i] = call->values[i + 1];
            }
            call->nkw--;
            return v;
        }
    return (struct td_value){.kind = TD_V_MISSING};
}

/* A variable that a macro gets without a parameter for it. */
static void bind_extra(struct td_render *r, struct td_scope *scope, const char *name,
                       struct td_value v)
{
    for (uint32_t i = 0; i < r->t->nnames; i++)
        if (td_value_str_is(td_value_cstr(name), r->t->names[i]))
            td_scope_set(r, scope, i, v);
}

static bool has_param(const struct td_render *r, const struct td_tnode *n,
                      const char *name)
{
    for (const struct td_tnode *p = n->a; p; p = p->next)
        if (td_value_str_is(td_value_cstr(name), r->t->names[p->name]))
            return true;
    return false;
}

/* kwargs and varargs take what no parameter took; without them it is an error. */
static void bind_rest(struct td_render *r, const struct td_tnode *n,
                      struct td_scope *scope, struct td_call *call, size_t used)
{
    if (n->flags & TD_NF_CALLER && !has_param(r, n, "caller")) {
        struct td_value c = take_keyword(call, "caller");
        bind_extra(r, scope, "caller",
                   td_arg_given(c) ? c : td_value_hint(r, "No caller defined"));
    }
    if (n->flags & TD_NF_KWARGS && !has_param(r, n, "kwargs")) {
        struct td_call keywords = *call;
        keywords.npos = 0;
        bind_extra(r, scope, "kwargs", td_value_make_dict(r, &keywords, "kwargs"));
    } else if (call->nkw && td_render_ok(r)) {
        struct td_shown shown = td_value_show(r, call->names[0]);
        td_render_fail(r, "macro '%s' takes no keyword argument %s", macro_name(r, n),
                       shown.s);
    }
    if (n->flags & TD_NF_VARARGS && !has_param(r, n, "varargs")) {
        struct td_value rest = td_value_list(r, TD_V_TUPLE, 0);
        for (size_t i = used; i < call->npos; i++)
            td_value_push(r, &rest, call->pos[i]);
        bind_extra(r, scope, "varargs", rest);
    } else if (call->npos > used) {
        td_render_fail(r, "macro '%s' takes not more than %zu argument(s)",
                       macro_name(r, n), used);
    }
}

struct td_value td_macro_call(struct td_render *r, const struct td_macro *m,
                              const struct td_call *given)
{
    const struct td_tnode *n = m->node;
    struct td_scope *scope = td_scope_new(r, m->scope);
    struct td_call call = *given;
    struct td_buf *before;
    size_t used = 0;
    if (!scope)
        return td_value_undef();
    for (const struct td_tnode *p = n->a; p; p = p->next) {
        struct td_value v = used < call.npos
                                ? call.pos[used]
                                : take_keyword(&call, r->t->names[p->name]);
        td_scope_set(r, scope, p->name, v);
        used++;
    }
    bind_rest(r, n, scope, &call, used);
    struct td_capture *c = td_render_capture(r, &before);
    used = 0;
    for (const struct td_tnode *p = n->a; p && td_render_ok(r); p = p->next) {
        if (scope->b[used++].value.kind != TD_V_MISSING)
            continue;
        td_scope_set(r, scope, p->name,
                     p->a ? td_eval(r, p->a, scope)
                          : td_value_hint(r, "parameter '%s' was not provided",
                                          r->t->names[p->name]));
    }
    (void)td_exec(r, n->d, scope);
    return td_render_end_capture(r, c, before);
}

/* What a call or filter block gives is not converted to text. */
static void print_block(struct td_render *r, struct td_value v, const char *tag)
{
    if (td_render_ok(r) && v.kind != TD_V_STR)
        td_render_fail(r, "a %s block must give a string, not %s", tag,
                       td_value_type(v));
    td_value_print(r, v);
}

static void exec_call_block(struct td_render *r, const struct td_tnode *n,
                            struct td_scope *scope)
{
    struct td_value caller = new_macro(r, n, scope);
    struct td_value f = td_eval(r, n->b->a, scope);
    struct td_call call;
    td_eval_args(r, n->b->b, scope, &call);
    if (!td_render_ok(r))
        return;
    call.names[call.nkw] = td_value_cstr("caller");
    call.values[call.nkw++] = caller;
    r->line = n->line;
    print_block(r, td_value_call(r, f, &call), "call");
}

/* ---- blocks ---------------------------------------------------------------------- */

/* The text of a body; through the filters of a set or filter block, if any. */
static struct td_value captured(struct td_render *r, const struct td_tnode *n,
                                struct td_scope *scope)
{
    struct td_buf *before;
    struct td_scope *inner = td_scope_new(r, scope);
    struct td_capture *c = td_render_capture(r, &before);
    if (inner)
        (void)td_exec(r, n->d, inner);
    struct td_value text = td_render_end_capture(r, c, before);
    if (!n->b || !td_render_ok(r))
        return text;
    struct td_value outer = r->block_text;
    r->block_text = text;
    text = td_eval(r, n->b, inner);
    r->block_text = outer;
    return text;
}

static void exec_with(struct td_render *r, const struct td_tnode *n,
                      struct td_scope *scope)
{
    struct td_scope *inner = td_scope_new(r, scope);
    const struct td_tnode *v = n->b;
    for (const struct td_tnode *t = n->a; inner && t && td_render_ok(r); t = t->next) {
        td_exec_assign(r, inner, t->a, td_eval(r, v->a, scope));
        v = v->next;
    }
    if (inner)
        (void)td_exec(r, n->d, inner);
}

static enum td_flow exec_if(struct td_render *r, const struct td_tnode *n,
                            struct td_scope *scope)
{
    while (td_render_ok(r)) {
        bool yes = td_value_truth(r, td_eval(r, n->a, scope));
        if (!td_render_ok(r))
            break;
        if (yes)
            return td_exec(r, n->b, scope);
        if (!(n->flags & TD_NF_ELIF))
            return td_exec(r, n->c, scope);
        n = n->c;
    }
    return TD_FLOW_NEXT;
}

static void exec_scope(struct td_render *r, const struct td_tnode *n,
                       struct td_scope *outer)
{
    struct td_scope *scope = td_scope_new(r, outer);
    if (scope)
        (void)td_exec(r, n->d, scope);
}

static enum td_flow exec_with_flow(struct td_render *r, const struct td_tnode *n,
                                   struct td_scope *scope)
{
    struct td_value v;
    switch (n->kind) {
    case TD_N_DATA:
        td_render_put(r, n->val.u.s, n->val.len);
        break;
    case TD_N_PRINT:
        v = td_eval(r, n->a, scope);
        td_value_print(r, v);
        break;
    case TD_N_IF:
        return exec_if(r, n, scope);
    case TD_N_FOR:
        return td_exec_for(r, n, scope);
    case TD_N_SET:
        v = td_eval(r, n->b, scope);
        td_exec_assign(r, scope, n->a, v);
        break;
    case TD_N_SET_BLOCK:
        v = captured(r, n, scope);
        td_exec_assign(r, scope, n->a, v);
        break;
    case TD_N_MACRO:
        td_scope_set(r, scope, n->name, new_macro(r, n, scope));
        break;
    case TD_N_CALL_BLOCK:
        exec_call_block(r, n, scope);
        break;
    case TD_N_FILTER_BLOCK:
        print_block(r, captured(r, n, scope), "filter");
        break;
    case TD_N_WITH:
        exec_with(r, n, scope);
        break;
    case TD_N_SCOPE:
        exec_scope(r, n, scope);
        break;
    case TD_N_BLOCK:
        exec_scope(r, n, n->flags & TD_NF_SCOPED ? scope : NULL);
        break;
    case TD_N_BREAK:
        return TD_FLOW_BREAK;
    case TD_N_CONTINUE:
        return TD_FLOW_CONTINUE;
    default:
        td_render_fail(r, "this cannot be run");
        break;
    }
    return TD_FLOW_NEXT;
}

enum td_flow td_exec(struct td_render *r, const struct td_tnode *list,
                     struct td_scope *scope)
{
    enum td_flow flow = TD_FLOW_NEXT;
    if (!list || !td_render_enter(r))
        return flow;
    for (; list && flow == TD_FLOW_NEXT && td_render_charge(r, 1); list = list->next) {
        r->line = list->line;
        flow = exec_with_flow(r, list, scope);
    }
    td_render_leave(r);
    return flow;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The for statement and its variable `loop`.
 *
 * Items are pulled one at a time, through the loop's own `if` where it has one, so that
 * a condition sees what earlier rounds did to a namespace. loop.last and loop.nextitem
 * look one item ahead; loop.length counts a container, or reads a generator to its end
 * and keeps the rest, all as jinja2 does.
 */
#include "text/template_tree.h"
#include "text/template_value.h"

struct td_loop {
    const struct td_tnode *node;
    struct td_scope *test_scope; /* NULL unless the loop has a condition */
    struct td_value source;
    struct td_iter iter;
    struct td_value drained; /* LIST of what loop.length read ahead, or MISSING */
    uint32_t drained_at;
    struct td_value current, before, ahead; /* MISSING: none */
    bool ended;                             /* nothing is ahead */
    int64_t index0, length;                 /* length -1: not known yet */
    struct td_value changed;                /* what loop.changed() saw last */
};

/* The next item that passes the condition. */
static bool pull(struct td_render *r, struct td_loop *lp, struct td_value *out)
{
    if (lp->drained.kind != TD_V_MISSING) {
        if (lp->drained_at >= lp->drained.len)
            return false;
        *out = lp->drained.u.items->v[lp->drained_at++];
        return true;
    }
    while (td_iter_next(r, &lp->iter, out)) {
        if (!lp->test_scope)
            return true;
        lp->test_scope->count = 0;
        td_exec_assign(r, lp->test_scope, lp->node->a, *out);
        bool yes = td_value_truth(r, td_eval(r, lp->node->c, lp->test_scope));
        if (!td_render_ok(r))
            return false;
        if (yes)
            return true;
    }
    return false;
}

/* Looks one item ahead; false when there is none. */
static bool peek(struct td_render *r, struct td_loop *lp)
{
    if (lp->ahead.kind == TD_V_MISSING && !lp->ended && !pull(r, lp, &lp->ahead)) {
        lp->ahead.kind = TD_V_MISSING;
        lp->ended = true;
    }
    return lp->ahead.kind != TD_V_MISSING;
}

static bool next_round(struct td_render *r, struct td_loop *lp)
{
    struct td_value x = lp->ahead;
    lp->ahead.kind = TD_V_MISSING;
    if (x.kind == TD_V_MISSING && (lp->ended || !pull(r, lp, &x)))
        return false;
    lp->before = lp->current;
    lp->current = x;
    lp->index0++;
    return td_render_ok(r);
}

static int64_t length(struct td_render *r, struct td_loop *lp)
{
    if (lp->length >= 0)
        return lp->length;
    if (!lp->test_scope && td_value_has_len(lp->source)) {
        lp->length = td_value_len(r, lp->source);
        return lp->length;
    }
    struct td_value rest = td_value_list(r, TD_V_LIST, 0), x;
    while (pull(r, lp, &x))
        td_value_push(r, &rest, x);
    if (!td_render_ok(r))
        return 0;
    lp->drained = rest;
    lp->drained_at = 0;
    lp->length = rest.len + lp->index0 + 1 + (lp->ahead.kind != TD_V_MISSING);
    return lp->length;
}

enum td_flow td_exec_for(struct td_render *r, const struct td_tnode *n,
                         struct td_scope *scope)
{
    struct td_value source = td_eval(r, n->b, scope);
    struct td_loop *lp = td_render_alloc(r, 1, sizeof(*lp));
    struct td_scope *body = td_scope_new(r, scope);
    if (!lp || !body)
        return TD_FLOW_NEXT;
    *lp = (struct td_loop){.node = n, .source = source, .index0 = -1, .length = -1};
    lp->test_scope = n->c ? td_scope_new(r, scope) : NULL;
    td_iter_init(r, &lp->iter, source);
    uint32_t loop_name = 0;
    while (loop_name < r->t->nnames &&
           !td_value_str_is(td_value_cstr("loop"), r->t->names[loop_name]))
        loop_name++;
    bool finished_one =
        false; /* a body that ran to its end keeps `else` from running */
    while (next_round(r, lp)) {
        body->count = 0;
        td_exec_assign(r, body, n->a, lp->current);
        if (loop_name < r->t->nnames)
            td_scope_set(r, body, loop_name,
                         (struct td_value){.kind = TD_V_LOOP, .u.loop = lp});
        enum td_flow flow = td_exec(r, n->d, body);
        finished_one = finished_one || flow == TD_FLOW_NEXT;
        if (flow == TD_FLOW_BREAK || !td_render_ok(r))
            break;
        r->line = n->line;
    }
    if (!n->e || finished_one || !td_render_ok(r))
        return TD_FLOW_NEXT;
    struct td_scope *otherwise = td_scope_new(r, scope);
    return otherwise ? td_exec(r, n->e, otherwise) : TD_FLOW_NEXT;
}

/* ---- the variable ---------------------------------------------------------------- */

struct td_value td_loop_attr(struct td_render *r, struct td_value loop,
                             struct td_value name)
{
    struct td_loop *lp = loop.u.loop;
    if (td_value_str_is(name, "index0"))
        return td_value_int(lp->index0);
    if (td_value_str_is(name, "index"))
        return td_value_int(lp->index0 + 1);
    if (td_value_str_is(name, "first"))
        return td_value_bool(lp->index0 == 0);
    if (td_value_str_is(name, "last"))
        return td_value_bool(!peek(r, lp));
    if (td_value_str_is(name, "length"))
        return td_value_int(length(r, lp));
    if (td_value_str_is(name, "revindex"))
        return td_value_int(length(r, lp) - lp->index0);
    if (td_value_str_is(name, "revindex0"))
        return td_value_int(length(r, lp) - lp->index0 - 1);
    if (td_value_str_is(name, "depth"))
        return td_value_int(1);
    if (td_value_str_is(name, "depth0"))
        return td_value_int(0);
    if (td_value_str_is(name, "previtem"))
        return lp->index0 > 0 ? lp->before
                              : td_value_hint(r, "there is no previous item");
    if (td_value_str_is(name, "nextitem"))
        return peek(r, lp) ? lp->ahead : td_value_hint(r, "there is no next item");
    return (struct td_value){.kind = TD_V_MISSING};
}

void td_loop_repr(struct td_render *r, struct td_loop *loop)
{
    td_render_putf(r, "<LoopContext %lld/%lld>", (long long)loop->index0 + 1,
                   (long long)length(r, loop));
}

static struct td_value loop_cycle(struct td_render *r, struct td_value self,
                                  const struct td_call *call)
{
    if (call->npos == 0 || call->nkw)
        return td_render_fail(r, "no items for cycling given");
    return call->pos[(size_t)self.u.loop->index0 % call->npos];
}

static struct td_value loop_changed(struct td_render *r, struct td_value self,
                                    const struct td_call *call)
{
    struct td_loop *lp = self.u.loop;
    struct td_value now = td_value_list(r, TD_V_TUPLE, call->npos);
    for (size_t i = 0; i < call->npos; i++)
        td_value_push(r, &now, call->pos[i]);
    if (!td_render_ok(r))
        return td_value_undef();
    if (lp->changed.kind != TD_V_MISSING && td_value_eq(r, lp->changed, now))
        return td_value_bool(false);
    lp->changed = now;
    return td_value_bool(true);
}

const struct td_builtin td_loop_methods[] = {
    {"cycle", NULL, 0, NULL, loop_cycle},
    {"changed", NULL, 0, NULL, loop_changed},
    {NULL, NULL, 0, NULL, NULL},
};

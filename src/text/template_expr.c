/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions, by recursive descent in jinja2's order of precedence, loosest first:
 *
 *     x if y else z;  or;  and;  not;  comparisons and in;  + -;  ~;  * / // %;  **;
 *     unary - +;  then .name [item] (call), and last | filters and `is` tests
 *
 * (so -1|abs is 1, and 2**-1 binds the minus first).
 */
#include "text/template_tree.h"

#include <string.h>

static struct td_tnode *or_expr(struct td_parser *p);
static struct td_tnode *primary(struct td_parser *p, bool namespaces);
static struct td_tnode *postfix(struct td_parser *p, struct td_tnode *n);
static struct td_tnode *call_args(struct td_parser *p);

static struct td_tnode **append(struct td_tnode **tail, struct td_tnode *n)
{
    if (!n)
        return tail;
    *tail = n;
    return &n->next;
}

static struct td_tnode *node2(struct td_parser *p, enum td_tnode_kind kind,
                              uint32_t line, struct td_tnode *a, struct td_tnode *b)
{
    struct td_tnode *n = td_parse_node(p, kind, line);
    if (n) {
        n->a = a;
        n->b = b;
    }
    return n;
}

/* Items are wrapped, because an expression's own `next` may be in use already. */
static struct td_tnode *wrap(struct td_parser *p, enum td_tnode_kind kind,
                             struct td_tnode *value)
{
    return node2(p, kind, value ? value->line : p->tok.line, value, NULL);
}

static bool is_constant_name(const struct td_lex_token *t, struct td_value *out)
{
    static const struct {
        const char *name;
        int kind, b;
    } names[] = {{"true", TD_V_BOOL, 1},  {"false", TD_V_BOOL, 0},
                 {"none", TD_V_NONE, 0},  {"True", TD_V_BOOL, 1},
                 {"False", TD_V_BOOL, 0}, {"None", TD_V_NONE, 0}};
    for (size_t i = 0; i < TD_COUNT(names); i++) {
        if (t->len != strlen(names[i].name) || memcmp(t->s, names[i].name, t->len) != 0)
            continue;
        *out = names[i].kind == TD_V_BOOL ? td_value_bool(names[i].b) : td_value_none();
        return true;
    }
    return false;
}

/* Tells the macros around that their body reads caller, kwargs or varargs. */
static void note_name(struct td_parser *p, const struct td_lex_token *t)
{
    static const struct {
        const char *name;
        uint8_t flag;
    } special[] = {
        {"caller", TD_NF_CALLER}, {"kwargs", TD_NF_KWARGS}, {"varargs", TD_NF_VARARGS}};
    for (size_t i = 0; i < TD_COUNT(special); i++)
        if (t->len == strlen(special[i].name) &&
            memcmp(t->s, special[i].name, t->len) == 0)
            for (struct td_parse_macro *m = p->outer; m; m = m->outer)
                m->node->flags |= special[i].flag;
}

static struct td_tnode *name_expr(struct td_parser *p, bool namespaces)
{
    struct td_lex_token t = p->tok;
    struct td_value constant;
    td_parse_next(p);
    if (is_constant_name(&t, &constant)) {
        struct td_tnode *n = td_parse_node(p, TD_N_CONST, t.line);
        if (n)
            n->val = constant;
        return n;
    }
    bool nsref = namespaces && td_parse_skip(p, TD_LEX_DOT);
    struct td_tnode *n = td_parse_node(p, nsref ? TD_N_NSREF : TD_N_NAME, t.line);
    if (!n)
        return NULL;
    n->name = td_parse_id(p, t.s, t.len);
    note_name(p, &t);
    if (nsref) {
        n->val = td_value_str(p->tok.s, p->tok.len);
        td_parse_expect(p, TD_LEX_NAME);
    }
    return n;
}

/* Strings that follow each other are one. */
static struct td_tnode *string_expr(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_CONST, p->tok.line);
    struct td_lex_token t = p->tok;
    td_parse_next(p);
    while (p->status == TD_OK && p->tok.kind == TD_LEX_STRING) {
        char *both = td_parse_alloc(p, t.len + p->tok.len + 1, 1);
        if (!both)
            return NULL;
        memcpy(both, t.s, t.len);
        memcpy(both + t.len, p->tok.s, p->tok.len);
        t.s = both;
        t.len += p->tok.len;
        td_parse_next(p);
    }
    if (n)
        n->val = td_value_str(t.s, t.len);
    return n;
}

/* [a, b] and {k: v}; the opening bracket is the token. */
static struct td_tnode *list_expr(struct td_parser *p)
{
    bool dict = p->tok.kind == TD_LEX_LBRACE;
    enum td_lex_kind close = dict ? TD_LEX_RBRACE : TD_LEX_RBRACKET;
    struct td_tnode *n = td_parse_node(p, dict ? TD_N_DICT : TD_N_LIST, p->tok.line);
    struct td_tnode *items = NULL, **tail = &items;
    td_parse_next(p);
    while (p->status == TD_OK && p->tok.kind != close) {
        if (items)
            td_parse_expect(p, TD_LEX_COMMA);
        if (p->tok.kind == close)
            break;
        tail = append(tail, wrap(p, TD_N_ARG, td_parse_expr(p)));
        if (dict) {
            td_parse_expect(p, TD_LEX_COLON);
            tail = append(tail, wrap(p, TD_N_ARG, td_parse_expr(p)));
        }
    }
    td_parse_expect(p, close);
    if (n)
        n->a = items;
    return n;
}

static struct td_tnode *unexpected(struct td_parser *p)
{
    if (p->tok.kind == TD_LEX_NAME)
        td_parse_fail(p, p->tok.line, "expected an expression, found '%.*s'",
                      (int)TD_MIN(p->tok.len, (size_t)60), p->tok.s);
    else
        td_parse_fail(p, p->tok.line, "expected an expression, found %s",
                      td_lex_kind_name(p->tok.kind));
    return NULL;
}

/* A tuple's parts may be expressions, or with `simple` names and literals only. */
static struct td_tnode *tuple(struct td_parser *p, bool simple, bool namespaces,
                              bool cond, const char *end, bool in_parens)
{
    uint32_t line = p->tok.line;
    struct td_tnode *items = NULL, **tail = &items;
    bool is_tuple = false;
    while (p->status == TD_OK) {
        enum td_lex_kind k = p->tok.kind;
        if (k == TD_LEX_PRINT_END || k == TD_LEX_BLOCK_END || k == TD_LEX_RPAREN ||
            (end && td_parse_is_name(p, end)))
            break;
        struct td_tnode *x = simple ? primary(p, namespaces)
                             : cond ? td_parse_expr(p)
                                    : or_expr(p);
        tail = append(tail, wrap(p, TD_N_ARG, x));
        if (!td_parse_skip(p, TD_LEX_COMMA))
            break;
        is_tuple = true;
    }
    if (!is_tuple && items)
        return items->a;
    if (!is_tuple && !in_parens)
        return unexpected(p);
    return node2(p, TD_N_TUPLE, line, items, NULL);
}

struct td_tnode *td_parse_tuple(struct td_parser *p, bool cond, const char *end)
{
    return tuple(p, false, false, cond, end, false);
}

static struct td_tnode *primary(struct td_parser *p, bool namespaces)
{
    struct td_tnode *n = NULL;
    switch (p->tok.kind) {
    case TD_LEX_NAME:
        return name_expr(p, namespaces);
    case TD_LEX_STRING:
        return string_expr(p);
    case TD_LEX_INT:
    case TD_LEX_FLOAT:
        n = td_parse_node(p, TD_N_CONST, p->tok.line);
        if (n)
            n->val = p->tok.kind == TD_LEX_INT ? td_value_int(p->tok.i)
                                               : td_value_float(p->tok.f);
        td_parse_next(p);
        return n;
    case TD_LEX_LPAREN:
        td_parse_next(p);
        if (td_parse_enter(p)) {
            n = tuple(p, false, false, true, NULL, true);
            td_parse_leave(p);
        }
        td_parse_expect(p, TD_LEX_RPAREN);
        return n;
    case TD_LEX_LBRACKET:
    case TD_LEX_LBRACE:
        return list_expr(p);
    default:
        return unexpected(p);
    }
}

/* ---- targets --------------------------------------------------------------------- */

static void check_target(struct td_parser *p, const struct td_tnode *n)
{
    if (!n || p->status != TD_OK)
        return;
    if (n->kind == TD_N_TUPLE) {
        for (const struct td_tnode *i = n->a; i; i = i->next)
            check_target(p, i->a);
    } else if (n->kind != TD_N_NAME && n->kind != TD_N_NSREF) {
        td_parse_fail(p, n->line, "expected a name to assign to");
    } else if (n->kind == TD_N_NAME && p->loops &&
               strcmp(p->t->names[n->name], "loop") == 0) {
        td_parse_fail(p, n->line, "'loop' cannot be assigned in a loop");
    }
}

struct td_tnode *td_parse_target(struct td_parser *p, bool namespaces, const char *end)
{
    struct td_tnode *n = tuple(p, true, namespaces, true, end, false);
    check_target(p, n);
    return n;
}

/* ---- after a primary ------------------------------------------------------------- */

static struct td_tnode *slice_or_expr(struct td_parser *p)
{
    uint32_t line = p->tok.line;
    struct td_tnode *part[3] = {NULL, NULL, NULL};
    if (p->tok.kind != TD_LEX_COLON) {
        part[0] = td_parse_expr(p);
        if (p->tok.kind != TD_LEX_COLON)
            return part[0];
    }
    td_parse_next(p);
    for (int i = 1; i < 3; i++) {
        enum td_lex_kind k = p->tok.kind;
        if (k != TD_LEX_COLON && k != TD_LEX_RBRACKET && k != TD_LEX_COMMA)
            part[i] = td_parse_expr(p);
        if (i == 1 && !td_parse_skip(p, TD_LEX_COLON))
            break;
    }
    struct td_tnode *n = node2(p, TD_N_SLICE, line, part[0], part[1]);
    if (n)
        n->c = part[2];
    return n;
}

static struct td_tnode *bracket_item(struct td_parser *p, struct td_tnode *obj,
                                     uint32_t line)
{
    struct td_tnode *items = NULL, **tail = &items, *key;
    size_t count = 0;
    while (p->status == TD_OK && p->tok.kind != TD_LEX_RBRACKET) {
        if (items)
            td_parse_expect(p, TD_LEX_COMMA);
        struct td_tnode *x = slice_or_expr(p);
        tail = append(tail, wrap(p, TD_N_ARG, x));
        count++;
    }
    td_parse_expect(p, TD_LEX_RBRACKET);
    if (p->status != TD_OK)
        return NULL;
    if (count == 1 && items) {
        key = items->a;
    } else {
        for (const struct td_tnode *i = items; i; i = i->next)
            if (i->a->kind == TD_N_SLICE)
                td_parse_fail(p, line, "a slice cannot be part of a tuple");
        key = node2(p, TD_N_TUPLE, line, items, NULL);
    }
    return node2(p, TD_N_ITEM, line, obj, key);
}

/* .name, .0 or [item]; the dot or bracket is the token. */
static struct td_tnode *subscript(struct td_parser *p, struct td_tnode *obj)
{
    uint32_t line = p->tok.line;
    struct td_tnode *n = NULL;
    if (td_parse_skip(p, TD_LEX_LBRACKET)) {
        if (td_parse_enter(p)) {
            n = bracket_item(p, obj, line);
            td_parse_leave(p);
        }
        return n;
    }
    td_parse_next(p);
    struct td_lex_token t = p->tok;
    td_parse_next(p);
    if (t.kind == TD_LEX_NAME) {
        n = node2(p, TD_N_ATTR, line, obj, NULL);
        if (n)
            n->val = td_value_str(t.s, t.len);
    } else if (t.kind == TD_LEX_INT) {
        struct td_tnode *key = td_parse_node(p, TD_N_CONST, t.line);
        if (key)
            key->val = td_value_int(t.i);
        n = node2(p, TD_N_ITEM, line, obj, key);
    } else {
        td_parse_fail(p, t.line, "expected a name or number after the dot, found %s",
                      td_lex_kind_name(t.kind));
    }
    return n;
}

static struct td_tnode *keyword_arg(struct td_parser *p)
{
    struct td_lex_token name = p->tok;
    td_parse_next(p);
    td_parse_next(p);
    struct td_tnode *n = wrap(p, TD_N_KWARG, td_parse_expr(p));
    if (n)
        n->val = td_value_str(name.s, name.len);
    return n;
}

/* (a, k=b, *c, **d); the parenthesis is the token. */
static struct td_tnode *call_args(struct td_parser *p)
{
    struct td_tnode *list = NULL, **tail = &list;
    uint32_t line = p->tok.line;
    bool kw = false, star = false, star2 = false, bad = false;
    td_parse_expect(p, TD_LEX_LPAREN);
    while (p->status == TD_OK && p->tok.kind != TD_LEX_RPAREN) {
        if (list)
            td_parse_expect(p, TD_LEX_COMMA);
        if (p->tok.kind == TD_LEX_RPAREN)
            break;
        if (td_parse_skip(p, TD_LEX_MUL)) {
            bad |= star || star2;
            star = true;
            tail = append(tail, wrap(p, TD_N_STAR, td_parse_expr(p)));
        } else if (td_parse_skip(p, TD_LEX_POW)) {
            bad |= star2;
            star2 = true;
            tail = append(tail, wrap(p, TD_N_STAR2, td_parse_expr(p)));
        } else if (p->tok.kind == TD_LEX_NAME &&
                   td_parse_look(p)->kind == TD_LEX_ASSIGN) {
            bad |= star2;
            kw = true;
            tail = append(tail, keyword_arg(p));
        } else {
            bad |= kw || star || star2;
            tail = append(tail, wrap(p, TD_N_ARG, td_parse_expr(p)));
        }
        if (bad)
            td_parse_fail(p, line, "the arguments of a call are in the wrong order");
    }
    td_parse_expect(p, TD_LEX_RPAREN);
    return list;
}

static struct td_tnode *call_expr(struct td_parser *p, struct td_tnode *callee)
{
    uint32_t line = p->tok.line;
    struct td_tnode *args = NULL;
    if (td_parse_enter(p)) {
        args = call_args(p);
        td_parse_leave(p);
    }
    return node2(p, TD_N_CALL, line, callee, args);
}

static struct td_tnode *postfix(struct td_parser *p, struct td_tnode *n)
{
    while (p->status == TD_OK) {
        if (p->tok.kind == TD_LEX_DOT || p->tok.kind == TD_LEX_LBRACKET)
            n = subscript(p, n);
        else if (p->tok.kind == TD_LEX_LPAREN)
            n = call_expr(p, n);
        else
            break;
    }
    return n;
}

/* A filter's or test's name, dots included. */
static struct td_value dotted_name(struct td_parser *p)
{
    struct td_lex_token t = p->tok;
    td_parse_expect(p, TD_LEX_NAME);
    const char *s = t.s;
    size_t len = t.len;
    while (p->status == TD_OK && td_parse_skip(p, TD_LEX_DOT)) {
        if (p->tok.kind == TD_LEX_NAME)
            len = (size_t)(p->tok.s + p->tok.len - s);
        td_parse_expect(p, TD_LEX_NAME);
    }
    return td_value_str(s, len);
}

/* Remembers a filter or test that does not exist. */
static void note_unknown(struct td_parser *p, const struct td_tnode *n)
{
    if (!n || n->impl || p->soft)
        return;
    struct td_unknown *u = td_parse_alloc(p, 1, sizeof(*u));
    if (u) {
        *u = (struct td_unknown){.before = p->unknown, .node = n};
        p->unknown = u;
    }
}

struct td_tnode *td_parse_filters(struct td_parser *p, struct td_tnode *input,
                                  bool started)
{
    struct td_tnode *n = input;
    while (p->status == TD_OK && (started || td_parse_skip(p, TD_LEX_PIPE))) {
        uint32_t line = p->tok.line;
        started = false;
        struct td_value name = dotted_name(p);
        struct td_tnode *args = p->tok.kind == TD_LEX_LPAREN ? call_args(p) : NULL;
        n = node2(p, TD_N_FILTER, line, n, args);
        if (n) {
            n->val = name;
            n->impl = td_filter_find(name.u.s, name.len);
        }
        note_unknown(p, n);
    }
    return n;
}

/* x is [not] test [argument]; `is` is the token. */
static struct td_tnode *test_expr(struct td_parser *p, struct td_tnode *x)
{
    uint32_t line = p->tok.line;
    td_parse_next(p);
    bool negated = td_parse_skip_name(p, "not");
    struct td_value name = dotted_name(p);
    struct td_tnode *args = NULL;
    switch (p->tok.kind) {
    case TD_LEX_LPAREN:
        args = call_args(p);
        break;
    case TD_LEX_NAME:
        if (td_parse_is_name(p, "else") || td_parse_is_name(p, "or") ||
            td_parse_is_name(p, "and"))
            break;
        if (td_parse_is_name(p, "is"))
            td_parse_fail(p, line, "tests with `is` cannot be chained");
        args = wrap(p, TD_N_ARG, postfix(p, primary(p, false)));
        break;
    case TD_LEX_STRING:
    case TD_LEX_INT:
    case TD_LEX_FLOAT:
    case TD_LEX_LBRACKET:
    case TD_LEX_LBRACE:
        args = wrap(p, TD_N_ARG, postfix(p, primary(p, false)));
        break;
    default:
        break;
    }
    struct td_tnode *n = node2(p, TD_N_TEST, line, x, args);
    if (n) {
        n->val = name;
        n->impl = td_test_find(name.u.s, name.len);
    }
    note_unknown(p, n);
    return negated ? node2(p, TD_N_NOT, line, n, NULL) : n;
}

static struct td_tnode *filters_and_tests(struct td_parser *p, struct td_tnode *n)
{
    while (p->status == TD_OK) {
        if (p->tok.kind == TD_LEX_PIPE)
            n = td_parse_filters(p, n, false);
        else if (td_parse_is_name(p, "is"))
            n = test_expr(p, n);
        else if (p->tok.kind == TD_LEX_LPAREN)
            n = call_expr(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators ------------------------------------------------------------------- */

static struct td_tnode *unary(struct td_parser *p, bool with_filters)
{
    struct td_tnode *n = NULL;
    uint32_t line = p->tok.line;
    bool minus = p->tok.kind == TD_LEX_SUB;
    if (minus || p->tok.kind == TD_LEX_ADD) {
        td_parse_next(p);
        if (td_parse_enter(p)) {
            n = node2(p, minus ? TD_N_NEG : TD_N_POS, line, unary(p, false), NULL);
            td_parse_leave(p);
        }
    } else {
        n = primary(p, false);
    }
    n = postfix(p, n);
    return with_filters ? filters_and_tests(p, n) : n;
}

static struct td_tnode *binary(struct td_parser *p, int op, uint32_t line,
                               struct td_tnode *a, struct td_tnode *b)
{
    struct td_tnode *n = node2(p, TD_N_BINARY, line, a, b);
    if (n)
        n->op = (uint8_t)op;
    return n;
}

static struct td_tnode *power(struct td_parser *p)
{
    struct td_tnode *n = unary(p, true);
    for (uint32_t line = p->tok.line; td_parse_skip(p, TD_LEX_POW); line = p->tok.line)
        n = binary(p, TD_OP_POW, line, n, unary(p, true));
    return n;
}

static struct td_tnode *product(struct td_parser *p)
{
    struct td_tnode *n = power(p);
    for (;;) {
        uint32_t line = p->tok.line;
        int op = p->tok.kind == TD_LEX_MUL        ? TD_OP_MUL
                 : p->tok.kind == TD_LEX_DIV      ? TD_OP_DIV
                 : p->tok.kind == TD_LEX_FLOORDIV ? TD_OP_FLOORDIV
                 : p->tok.kind == TD_LEX_MOD      ? TD_OP_MOD
                                                  : -1;
        if (op < 0)
            return n;
        td_parse_next(p);
        n = binary(p, op, line, n, power(p));
    }
}

static struct td_tnode *concat(struct td_parser *p)
{
    uint32_t line = p->tok.line;
    struct td_tnode *first = product(p), *items = NULL, **tail = &items;
    if (p->tok.kind != TD_LEX_TILDE)
        return first;
    tail = append(tail, wrap(p, TD_N_ARG, first));
    while (td_parse_skip(p, TD_LEX_TILDE))
        tail = append(tail, wrap(p, TD_N_ARG, product(p)));
    return node2(p, TD_N_CONCAT, line, items, NULL);
}

static struct td_tnode *sum(struct td_parser *p)
{
    struct td_tnode *n = concat(p);
    for (;;) {
        uint32_t line = p->tok.line;
        bool plus = p->tok.kind == TD_LEX_ADD;
        if (!plus && p->tok.kind != TD_LEX_SUB)
            return n;
        td_parse_next(p);
        n = binary(p, plus ? TD_OP_ADD : TD_OP_SUB, line, n, concat(p));
    }
}

/* The comparison that starts at the token, -1: none. Its tokens are skipped. */
static int comparison(struct td_parser *p)
{
    int op = -1;
    switch (p->tok.kind) {
    case TD_LEX_EQ:
        op = TD_OP_EQ;
        break;
    case TD_LEX_NE:
        op = TD_OP_NE;
        break;
    case TD_LEX_LT:
        op = TD_OP_LT;
        break;
    case TD_LEX_LE:
        op = TD_OP_LE;
        break;
    case TD_LEX_GT:
        op = TD_OP_GT;
        break;
    case TD_LEX_GE:
        op = TD_OP_GE;
        break;
    case TD_LEX_NAME:
        if (td_parse_is_name(p, "in")) {
            op = TD_OP_IN;
        } else if (td_parse_is_name(p, "not")) {
            const struct td_lex_token *t = td_parse_look(p);
            if (t->kind == TD_LEX_NAME && t->len == 2 && memcmp(t->s, "in", 2) == 0) {
                td_parse_next(p);
                op = TD_OP_NOT_IN;
            }
        }
        break;
    default:
        break;
    }
    if (op >= 0)
        td_parse_next(p);
    return op;
}

static struct td_tnode *compare(struct td_parser *p)
{
    uint32_t line = p->tok.line;
    struct td_tnode *first = sum(p), *ops = NULL, **tail = &ops;
    for (int op = comparison(p); op >= 0; op = comparison(p)) {
        struct td_tnode *n = wrap(p, TD_N_OPERAND, sum(p));
        if (n)
            n->op = (uint8_t)op;
        tail = append(tail, n);
    }
    return ops ? node2(p, TD_N_COMPARE, line, first, ops) : first;
}

static struct td_tnode *not_expr(struct td_parser *p)
{
    uint32_t line = p->tok.line;
    struct td_tnode *n = NULL;
    if (!td_parse_is_name(p, "not"))
        return compare(p);
    td_parse_next(p);
    if (td_parse_enter(p)) {
        n = node2(p, TD_N_NOT, line, not_expr(p), NULL);
        td_parse_leave(p);
    }
    return n;
}

static struct td_tnode *and_expr(struct td_parser *p)
{
    struct td_tnode *n = not_expr(p);
    for (uint32_t line = p->tok.line; td_parse_skip_name(p, "and"); line = p->tok.line)
        n = node2(p, TD_N_AND, line, n, not_expr(p));
    return n;
}

static struct td_tnode *or_expr(struct td_parser *p)
{
    struct td_tnode *n = and_expr(p);
    for (uint32_t line = p->tok.line; td_parse_skip_name(p, "or"); line = p->tok.line)
        n = node2(p, TD_N_OR, line, n, and_expr(p));
    return n;
}

struct td_tnode *td_parse_expr(struct td_parser *p)
{
    if (!td_parse_enter(p))
        return NULL;
    uint32_t line = p->tok.line;
    struct td_unknown *unknown = p->unknown;
    struct td_tnode *n = or_expr(p);
    while (td_parse_skip_name(p, "if")) {
        struct td_tnode *test = or_expr(p), *otherwise = NULL;
        if (td_parse_skip_name(p, "else"))
            otherwise = td_parse_expr(p);
        n = node2(p, TD_N_COND, line, test, n);
        if (n)
            n->c = otherwise;
        p->unknown = unknown; /* those of a condition fail only when used */
        line = p->tok.line;
    }
    td_parse_leave(p);
    return n;
}

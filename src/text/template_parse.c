/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements: the tags of a template, and the tree they make. Expressions are in
 * template_expr.c. One token of lookahead is enough.
 *
 * Where jinja2 compiles to Python, some rules come from there and are checked here: no
 * break outside a loop of the same function, no assignment to `loop` in a loop, no
 * parameter twice; an unknown filter is an error at once, unless a condition may keep
 * it from being used.
 */
#include "base/utf8.h"
#include "text/template_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- tools shared with template_expr.c ------------------------------------------- */

static void give_up(struct td_parser *p, enum td_status s)
{
    if (p->status == TD_OK)
        p->status = s;
    p->has_ahead = false;
    p->tok = (struct td_lex_token){.kind = TD_LEX_EOF, .line = p->tok.line};
}

void td_parse_fail(struct td_parser *p, uint32_t line, const char *why, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, why);
    (void)vsnprintf(text, sizeof(text), why, ap);
    va_end(ap);
    if (p->status == TD_OK)
        td_template_invalid(p->err, p->t->name, line, "%s", text);
    give_up(p, TD_E_TEMPLATE);
}

static void no_room(struct td_parser *p, enum td_status s)
{
    if (p->status == TD_OK && s == TD_E_LIMIT)
        td_error_set(p->err, s,
                     "%s: its tree needs more than %lld MiB (TD_MAX_TEMPLATE_TREE)",
                     p->t->name, TD_MAX_TEMPLATE_TREE / TD_MIB);
    else if (p->status == TD_OK)
        td_error_set(p->err, s, "%s: no memory to parse it", p->t->name);
    give_up(p, s);
}

void *td_parse_alloc(struct td_parser *p, size_t n, size_t size)
{
    void *m = p->status == TD_OK ? td_arena_alloc(&p->t->arena, n, size) : NULL;
    if (!m && p->status == TD_OK)
        no_room(p, p->t->arena.status);
    return m;
}

struct td_tnode *td_parse_node(struct td_parser *p, enum td_tnode_kind kind,
                               uint32_t line)
{
    struct td_tnode *n = td_parse_alloc(p, 1, sizeof(*n));
    if (n) {
        n->kind = kind;
        n->line = line;
    }
    return n;
}

void td_parse_next(struct td_parser *p)
{
    if (p->status != TD_OK)
        return;
    if (p->has_ahead) {
        p->tok = p->ahead;
        p->has_ahead = false;
        return;
    }
    enum td_status s = td_lexer_next(&p->lx, &p->tok);
    if (s != TD_OK)
        give_up(p, s);
}

const struct td_lex_token *td_parse_look(struct td_parser *p)
{
    if (!p->has_ahead && p->status == TD_OK) {
        enum td_status s = td_lexer_next(&p->lx, &p->ahead);
        if (s != TD_OK)
            give_up(p, s);
        else
            p->has_ahead = true;
    }
    return p->has_ahead ? &p->ahead : &p->tok;
}

static bool token_is(const struct td_lex_token *t, const char *name)
{
    return t->kind == TD_LEX_NAME && t->len == strlen(name) &&
           memcmp(t->s, name, t->len) == 0;
}

bool td_parse_is_name(const struct td_parser *p, const char *name)
{
    return token_is(&p->tok, name);
}

bool td_parse_skip_name(struct td_parser *p, const char *name)
{
    if (!td_parse_is_name(p, name))
        return false;
    td_parse_next(p);
    return true;
}

bool td_parse_skip(struct td_parser *p, enum td_lex_kind kind)
{
    if (p->tok.kind != kind)
        return false;
    td_parse_next(p);
    return true;
}

static void expected(struct td_parser *p, const char *what)
{
    if (p->tok.kind == TD_LEX_NAME)
        td_parse_fail(p, p->tok.line, "expected %s, found '%.*s'", what,
                      (int)TD_MIN(p->tok.len, (size_t)60), p->tok.s);
    else
        td_parse_fail(p, p->tok.line, "expected %s, found %s", what,
                      td_lex_kind_name(p->tok.kind));
}

void td_parse_expect(struct td_parser *p, enum td_lex_kind kind)
{
    if (p->status == TD_OK && !td_parse_skip(p, kind))
        expected(p, td_lex_kind_name(kind));
}

bool td_parse_enter(struct td_parser *p)
{
    if (p->depth == TD_MAX_TEMPLATE_NESTING)
        td_parse_fail(p, p->tok.line,
                      "blocks and expressions are nested deeper than %d levels "
                      "(TD_MAX_TEMPLATE_NESTING)",
                      TD_MAX_TEMPLATE_NESTING);
    if (p->status != TD_OK)
        return false;
    p->depth++;
    return true;
}

void td_parse_leave(struct td_parser *p)
{
    p->depth--;
}

uint32_t td_parse_id(struct td_parser *p, const char *s, size_t len)
{
    uint64_t id = 0;
    struct td_template *t = p->t;
    if (p->status != TD_OK || td_map_get(&p->ids, s, len, &id))
        return (uint32_t)id;
    if (t->nnames == p->names_cap) {
        size_t cap = p->names_cap ? p->names_cap * 2 : 32;
        const char **names = td_parse_alloc(p, cap, sizeof(*names));
        if (!names)
            return 0;
        if (t->nnames)
            memcpy(names, t->names, t->nnames * sizeof(*names));
        t->names = names;
        p->names_cap = cap;
    }
    char *copy = td_arena_strndup(&t->arena, s, len);
    if (!copy)
        no_room(p, t->arena.status);
    else if (td_map_put(&p->ids, copy, len, t->nnames) != TD_OK)
        no_room(p, TD_E_NOMEM);
    else
        t->names[t->nnames++] = copy;
    return copy && p->status == TD_OK ? (uint32_t)(t->nnames - 1) : 0;
}

/* ---- blocks ---------------------------------------------------------------------- */

static struct td_tnode *statement(struct td_parser *p);

static bool is_one_of(const struct td_parser *p, const char *const *names)
{
    for (; *names; names++)
        if (td_parse_is_name(p, *names))
            return true;
    return false;
}

static void missing_end(struct td_parser *p, const char *const *ends, uint32_t line)
{
    char list[96] = "";
    for (size_t used = 0; *ends; ends++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s{%% %s %%}",
                                 used ? " or " : "", *ends);
    td_parse_fail(p, p->tok.line, "expected %s for the tag of line %u, found %s", list,
                  (unsigned)line, td_lex_kind_name(TD_LEX_EOF));
}

static struct td_tnode **append(struct td_tnode **tail, struct td_tnode *n)
{
    if (!n)
        return tail;
    *tail = n;
    return &n->next;
}

/* Text, prints and statements up to a tag of `ends` (its name is then the token), or to
 * the end of the template when ends is NULL. `line_before`: of the tag before it. */
static struct td_tnode *body_until(struct td_parser *p, const char *const *ends,
                                   uint32_t line_before)
{
    struct td_tnode *list = NULL, **tail = &list, *n;
    while (p->status == TD_OK && p->tok.kind != TD_LEX_EOF) {
        uint32_t line = p->tok.line;
        if (p->tok.kind == TD_LEX_DATA) {
            n = td_parse_node(p, TD_N_DATA, line);
            if (n)
                n->val = td_value_str(p->tok.s, p->tok.len);
            tail = append(tail, n);
            td_parse_next(p);
        } else if (td_parse_skip(p, TD_LEX_PRINT_BEGIN)) {
            n = td_parse_node(p, TD_N_PRINT, line);
            struct td_tnode *expr = td_parse_tuple(p, true, NULL);
            if (n)
                n->a = expr;
            tail = append(tail, n);
            td_parse_expect(p, TD_LEX_PRINT_END);
        } else {
            td_parse_expect(p, TD_LEX_BLOCK_BEGIN);
            if (ends && is_one_of(p, ends))
                return list;
            for (tail = append(tail, statement(p)); *tail; tail = &(*tail)->next)
                ;
            td_parse_expect(p, TD_LEX_BLOCK_END);
        }
    }
    if (ends && p->status == TD_OK)
        missing_end(p, ends, line_before);
    return list;
}

/* The body of a tag whose head has been read. */
static struct td_tnode *block_body(struct td_parser *p, const char *const *ends)
{
    struct td_tnode *body = NULL;
    td_parse_skip(p, TD_LEX_COLON);
    uint32_t line = p->tok.line;
    td_parse_expect(p, TD_LEX_BLOCK_END);
    if (td_parse_enter(p)) {
        body = body_until(p, ends, line);
        td_parse_leave(p);
    }
    return body;
}

/* The same, in a scope of its own, ended by one tag that is dropped. */
static struct td_tnode *scope_body(struct td_parser *p, const char *end)
{
    bool soft = p->soft;
    p->soft = false;
    struct td_tnode *body = block_body(p, (const char *const[]){end, NULL});
    td_parse_next(p);
    p->soft = soft;
    return body;
}

/* The body of a function: break and continue do not reach out of it. */
static struct td_tnode *function_body(struct td_parser *p, struct td_tnode *n,
                                      const char *end)
{
    struct td_parse_macro here = {.outer = p->outer, .node = n};
    bool breakable = p->breakable;
    p->breakable = false;
    if (n)
        p->outer = &here;
    struct td_tnode *body = scope_body(p, end);
    p->outer = here.outer;
    p->breakable = breakable;
    return body;
}

static const char *const if_ends[] = {"elif", "else", "endif", NULL};
static const char *const for_ends[] = {"endfor", "else", NULL};
static const char *const endif[] = {"endif", NULL};
static const char *const endfor[] = {"endfor", NULL};

static struct td_tnode *if_statement(struct td_parser *p)
{
    struct td_tnode *first = NULL, **link = &first;
    bool soft = p->soft;
    p->soft = true;
    for (bool more = true; more && p->status == TD_OK;) {
        struct td_tnode *n = td_parse_node(p, TD_N_IF, p->tok.line);
        td_parse_next(p);
        struct td_tnode *test = td_parse_tuple(p, false, NULL);
        struct td_tnode *body = block_body(p, if_ends);
        if (!n || p->status != TD_OK)
            break;
        n->a = test;
        n->b = body;
        *link = n;
        more = td_parse_is_name(p, "elif");
        if (more)
            n->flags = TD_NF_ELIF;
        else if (td_parse_skip_name(p, "else"))
            n->c = block_body(p, endif);
        link = &n->c;
    }
    td_parse_next(p); /* endif */
    p->soft = soft;
    return first;
}

static struct td_tnode *for_statement(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_FOR, p->tok.line);
    bool soft = p->soft, breakable = p->breakable;
    td_parse_next(p);
    p->loops++;
    struct td_tnode *target = td_parse_target(p, false, "in");
    p->loops--;
    if (!td_parse_skip_name(p, "in"))
        expected(p, "'in'");
    struct td_tnode *items = td_parse_tuple(p, false, "recursive");
    p->soft = false;
    struct td_tnode *test = td_parse_skip_name(p, "if") ? td_parse_expr(p) : NULL;
    if (td_parse_is_name(p, "recursive"))
        td_parse_fail(p, p->tok.line, "recursive loops are not supported");
    p->breakable = true;
    p->loops++;
    struct td_tnode *body = block_body(p, for_ends), *otherwise = NULL;
    p->breakable = breakable;
    if (td_parse_skip_name(p, "else"))
        otherwise = block_body(p, endfor);
    p->loops--;
    td_parse_next(p); /* endfor */
    p->soft = soft;
    if (n && p->status == TD_OK) {
        n->a = target;
        n->b = items;
        n->c = test;
        n->d = body;
        n->e = otherwise;
    }
    return n;
}

static struct td_tnode *set_statement(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_SET, p->tok.line);
    td_parse_next(p);
    struct td_tnode *target = td_parse_target(p, true, NULL), *value, *body = NULL;
    bool is_block = !td_parse_skip(p, TD_LEX_ASSIGN);
    if (is_block) {
        value = td_parse_filters(p, NULL, false);
        body = scope_body(p, "endset");
    } else {
        value = td_parse_tuple(p, true, NULL);
    }
    if (n && p->status == TD_OK) {
        n->kind = is_block ? TD_N_SET_BLOCK : TD_N_SET;
        n->a = target;
        n->b = value;
        n->d = body;
    }
    return n;
}

/* (a, b=1) of a macro or call block. */
static struct td_tnode *parameters(struct td_parser *p)
{
    struct td_tnode *list = NULL, **tail = &list;
    bool defaults = false;
    td_parse_expect(p, TD_LEX_LPAREN);
    while (p->status == TD_OK && p->tok.kind != TD_LEX_RPAREN) {
        if (list)
            td_parse_expect(p, TD_LEX_COMMA);
        struct td_lex_token name = p->tok;
        td_parse_expect(p, TD_LEX_NAME);
        struct td_tnode *n = td_parse_node(p, TD_N_PARAM, name.line);
        if (!n)
            break;
        n->name = td_parse_id(p, name.s, name.len);
        for (const struct td_tnode *o = list; o; o = o->next)
            if (o->name == n->name)
                td_parse_fail(p, name.line, "the parameter '%.*s' is there twice",
                              (int)TD_MIN(name.len, (size_t)60), name.s);
        if (td_parse_skip(p, TD_LEX_ASSIGN)) {
            defaults = true;
            n->a = td_parse_expr(p);
        } else if (defaults) {
            td_parse_fail(p, name.line,
                          "a parameter without default follows one with a default");
        }
        tail = append(tail, n);
    }
    td_parse_expect(p, TD_LEX_RPAREN);
    return list;
}

/* `caller` is filled in by the call, so that as a parameter it needs a default. */
static void check_caller(struct td_parser *p, const struct td_tnode *n)
{
    if (p->status != TD_OK || !(n->flags & TD_NF_CALLER))
        return;
    for (const struct td_tnode *a = n->a; a; a = a->next)
        if (!a->a && strcmp(p->t->names[a->name], "caller") == 0)
            td_parse_fail(p, n->line, "the parameter 'caller' needs a default");
}

static struct td_tnode *macro_statement(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_MACRO, p->tok.line);
    td_parse_next(p);
    struct td_lex_token name = p->tok;
    td_parse_expect(p, TD_LEX_NAME);
    struct td_tnode *params = parameters(p);
    if (!n || p->status != TD_OK)
        return NULL;
    n->name = td_parse_id(p, name.s, name.len);
    n->a = params;
    n->d = function_body(p, n, "endmacro");
    check_caller(p, n);
    return n;
}

static struct td_tnode *call_statement(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_CALL_BLOCK, p->tok.line);
    uint32_t line = p->tok.line;
    td_parse_next(p);
    struct td_tnode *params = p->tok.kind == TD_LEX_LPAREN ? parameters(p) : NULL;
    struct td_tnode *call = td_parse_expr(p);
    if (!n || p->status != TD_OK)
        return NULL;
    if (call->kind != TD_N_CALL)
        td_parse_fail(p, line, "expected a call after {%% call %%}");
    n->a = params;
    n->b = call;
    n->d = function_body(p, n, "endcall");
    check_caller(p, n);
    return n;
}

static struct td_tnode *filter_statement(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_FILTER_BLOCK, p->tok.line);
    bool soft = p->soft;
    td_parse_next(p);
    p->soft = false;
    struct td_tnode *filter = td_parse_filters(p, NULL, true);
    struct td_tnode *body = scope_body(p, "endfilter");
    p->soft = soft;
    if (n && p->status == TD_OK) {
        n->b = filter;
        n->d = body;
    }
    return n;
}

static struct td_tnode *with_statement(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_WITH, p->tok.line);
    struct td_tnode *targets = NULL, *values = NULL, **t = &targets, **v = &values;
    td_parse_next(p);
    while (p->status == TD_OK && p->tok.kind != TD_LEX_BLOCK_END) {
        if (targets)
            td_parse_expect(p, TD_LEX_COMMA);
        struct td_tnode *target = td_parse_node(p, TD_N_ARG, p->tok.line);
        if (target)
            target->a = td_parse_target(p, false, NULL);
        t = append(t, target);
        td_parse_expect(p, TD_LEX_ASSIGN);
        struct td_tnode *value = td_parse_node(p, TD_N_ARG, p->tok.line);
        if (value)
            value->a = td_parse_expr(p);
        v = append(v, value);
    }
    struct td_tnode *body = scope_body(p, "endwith");
    if (n && p->status == TD_OK) {
        n->a = targets;
        n->b = values;
        n->d = body;
    }
    return n;
}

static struct td_tnode *generation_statement(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_SCOPE, p->tok.line);
    td_parse_next(p);
    struct td_tnode *body = function_body(p, NULL, "endgeneration");
    if (n)
        n->d = body;
    return n;
}

/* {% block %}: a chat template has no parent or child, so it is its body, in a scope
 * under the top level. */
static struct td_tnode *block_statement(struct td_parser *p)
{
    struct td_tnode *n = td_parse_node(p, TD_N_BLOCK, p->tok.line);
    td_parse_next(p);
    struct td_lex_token name = p->tok;
    td_parse_expect(p, TD_LEX_NAME);
    if (n && td_parse_skip_name(p, "scoped"))
        n->flags = TD_NF_SCOPED;
    if (td_parse_is_name(p, "required"))
        td_parse_fail(p, name.line, "a required block needs a child template");
    struct td_parse_macro *outer = p->outer;
    p->outer = NULL;
    struct td_tnode *body = function_body(p, NULL, "endblock");
    p->outer = outer;
    if (name.s && p->tok.s && p->tok.kind == TD_LEX_NAME && p->tok.len == name.len &&
        memcmp(p->tok.s, name.s, name.len) == 0)
        td_parse_next(p);
    if (n)
        n->d = body;
    return n;
}

static struct td_tnode *print_statement(struct td_parser *p)
{
    struct td_tnode *list = NULL, **tail = &list;
    td_parse_next(p);
    while (p->status == TD_OK && p->tok.kind != TD_LEX_BLOCK_END) {
        if (list)
            td_parse_expect(p, TD_LEX_COMMA);
        struct td_tnode *n = td_parse_node(p, TD_N_PRINT, p->tok.line);
        if (n)
            n->a = td_parse_expr(p);
        tail = append(tail, n);
    }
    return list;
}

static struct td_tnode *loop_control(struct td_parser *p)
{
    bool is_break = td_parse_is_name(p, "break");
    if (!p->breakable)
        td_parse_fail(p, p->tok.line, "{%% %s %%} is not in a loop",
                      is_break ? "break" : "continue");
    td_parse_next(p);
    return td_parse_node(p, is_break ? TD_N_BREAK : TD_N_CONTINUE, p->tok.line);
}

static struct td_tnode *refused(struct td_parser *p)
{
    if (td_parse_is_name(p, "autoescape"))
        td_parse_fail(p, p->tok.line, "{%% autoescape %%} is not supported");
    else
        td_parse_fail(p, p->tok.line,
                      "{%% %.*s %%}: a chat template cannot use other templates",
                      (int)p->tok.len, p->tok.s);
    return NULL;
}

static const struct {
    const char *name;
    struct td_tnode *(*parse)(struct td_parser *p);
} tags[] = {
    {"if", if_statement},       {"for", for_statement},
    {"set", set_statement},     {"macro", macro_statement},
    {"call", call_statement},   {"filter", filter_statement},
    {"with", with_statement},   {"generation", generation_statement},
    {"block", block_statement}, {"print", print_statement},
    {"break", loop_control},    {"continue", loop_control},
    {"extends", refused},       {"include", refused},
    {"import", refused},        {"from", refused},
    {"autoescape", refused},
};

static struct td_tnode *statement(struct td_parser *p)
{
    for (size_t i = 0; i < TD_COUNT(tags); i++)
        if (td_parse_is_name(p, tags[i].name))
            return tags[i].parse(p);
    if (p->tok.kind == TD_LEX_NAME)
        td_parse_fail(p, p->tok.line, "there is no tag {%% %.*s %%}%s",
                      (int)TD_MIN(p->tok.len, (size_t)60), p->tok.s,
                      p->tok.len > 3 && memcmp(p->tok.s, "end", 3) == 0
                          ? " to close here"
                          : " here");
    else
        expected(p, "the name of a tag");
    return NULL;
}

/* The first filter or test that does not exist, unless a condition guards it. */
static void check_unknown(struct td_parser *p)
{
    const struct td_tnode *first = NULL;
    for (const struct td_unknown *u = p->unknown; u; u = u->before)
        first = u->node;
    if (first)
        td_parse_fail(p, first->line, "there is no %s named '%.*s'",
                      first->kind == TD_N_FILTER ? "filter" : "test",
                      (int)TD_MIN(first->val.len, 60u), first->val.u.s);
}

enum td_status td_template_parse(struct td_template *t, const char *src, size_t len,
                                 struct td_error *err)
{
    struct td_parser p = {.t = t, .err = err};
    td_map_init(&p.ids);
    td_lexer_init(&p.lx, src, len, t->name, &t->arena, err);
    td_parse_next(&p);
    t->body = body_until(&p, NULL, 1);
    if (p.status == TD_OK)
        check_unknown(&p);
    td_map_release(&p.ids);
    return p.status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From template source to a tree: tokens, nodes, and the parsed template itself.
 * Private to the template files.
 *
 *     source --template_lex.c--> tokens --template_parse.c, template_expr.c--> nodes
 *
 * All of it lives in the template's arena and is read-only once parsed.
 */
#ifndef TD_TEXT_TEMPLATE_TREE_H
#define TD_TEXT_TEMPLATE_TREE_H

#include "base/arena.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/status.h"
#include "text/template_value.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tokens ---------------------------------------------------------------------- */

enum td_lex_kind {
    TD_LEX_EOF,
    TD_LEX_DATA,
    TD_LEX_PRINT_BEGIN, /* {{ */
    TD_LEX_PRINT_END,
    TD_LEX_BLOCK_BEGIN, /* {% */
    TD_LEX_BLOCK_END,
    TD_LEX_NAME,
    TD_LEX_STRING,
    TD_LEX_INT,
    TD_LEX_FLOAT,
    TD_LEX_ADD,
    TD_LEX_SUB,
    TD_LEX_MUL,
    TD_LEX_DIV,
    TD_LEX_FLOORDIV,
    TD_LEX_MOD,
    TD_LEX_POW,
    TD_LEX_TILDE,
    TD_LEX_LBRACKET,
    TD_LEX_RBRACKET,
    TD_LEX_LPAREN,
    TD_LEX_RPAREN,
    TD_LEX_LBRACE,
    TD_LEX_RBRACE,
    TD_LEX_EQ,
    TD_LEX_NE,
    TD_LEX_GT,
    TD_LEX_GE,
    TD_LEX_LT,
    TD_LEX_LE,
    TD_LEX_ASSIGN,
    TD_LEX_DOT,
    TD_LEX_COLON,
    TD_LEX_PIPE,
    TD_LEX_COMMA,
    TD_LEX_SEMICOLON
};

struct td_lex_token {
    enum td_lex_kind kind;
    uint32_t line;
    const char *s; /* DATA, NAME and operators as written; STRING unescaped */
    size_t len;
    int64_t i; /* INT */
    double f;  /* FLOAT */
};

struct td_lexer {
    const char *name; /* of the template, for errors */
    struct td_error *err;
    struct td_arena *arena; /* takes unescaped strings */
    const char *src;        /* newlines normalised to \n */
    size_t len, pos;
    uint32_t line;
    enum td_lex_kind mode; /* EOF: in text; PRINT_BEGIN, BLOCK_BEGIN: inside a tag */
    bool at_line_start;    /* what came before ended a line */
    bool queued;           /* a begin token follows the data just given */
    enum td_lex_kind queued_kind;
    char closers[TD_MAX_TEMPLATE_NESTING]; /* brackets that wait to be closed */
    size_t open;
};

/* Starts at the beginning of normalised source. */
void td_lexer_init(struct td_lexer *lx, const char *src, size_t len, const char *name,
                   struct td_arena *arena, struct td_error *err);

/* The next token; TD_LEX_EOF for ever after the last. */
enum td_status td_lexer_next(struct td_lexer *lx, struct td_lex_token *out);

/* How errors spell a kind of token. */
const char *td_lex_kind_name(enum td_lex_kind kind);

/* Fills err: the source is invalid at that line, because ... Returns TD_E_TEMPLATE. */
enum td_status td_template_invalid(struct td_error *err, const char *name,
                                   uint32_t line, const char *why, ...) TD_PRINTF(4, 5);

/* ---- nodes ----------------------------------------------------------------------- */

/*
 * One struct serves all kinds. Lists (bodies, arguments, items) are chained by `next`.
 *
 *     statements    a            b           c            d       e
 *     DATA          val: the text
 *     PRINT         expression
 *     IF            test         body        IF or list          (elif: c is an IF)
 *     FOR           target       iterable    test or 0    body    else body
 *     SET           target       value
 *     SET_BLOCK     target       filter or 0              body
 *     MACRO         parameters                            body   name
 *     CALL_BLOCK    parameters   call                     body
 *     FILTER_BLOCK               filter                   body
 *     WITH          targets      values                   body
 *     SCOPE                                               body   (generation)
 *     BLOCK                                               body   (scoped or not)
 *     BREAK, CONTINUE
 *
 *     expressions
 *     CONST         val
 *     NAME          name
 *     TUPLE, LIST   items
 *     DICT          key, value, key, value ...
 *     ATTR          object                               val: attribute
 *     ITEM          object       index or SLICE
 *     SLICE         start or 0   stop or 0   step or 0
 *     CALL          callee       arguments
 *     FILTER        input or 0   arguments               val: name, impl
 *     TEST          input        arguments               val: name, impl
 *     NOT, NEG, POS operand
 *     BINARY        left         right                   op
 *     AND, OR       left         right
 *     CONCAT        items
 *     COMPARE       left         OPERANDs (a: right side, op)
 *     COND          test         then        else or 0
 *     NSREF         name                                 val: attribute (target only)
 *
 *     PARAM         default or 0                         name
 *     ARG, STAR, STAR2 value;  KWARG value               val: keyword
 */
enum td_tnode_kind {
    TD_N_DATA,
    TD_N_PRINT,
    TD_N_IF,
    TD_N_FOR,
    TD_N_SET,
    TD_N_SET_BLOCK,
    TD_N_MACRO,
    TD_N_CALL_BLOCK,
    TD_N_FILTER_BLOCK,
    TD_N_WITH,
    TD_N_SCOPE,
    TD_N_BLOCK,
    TD_N_BREAK,
    TD_N_CONTINUE,
    TD_N_CONST,
    TD_N_NAME,
    TD_N_TUPLE,
    TD_N_LIST,
    TD_N_DICT,
    TD_N_ATTR,
    TD_N_ITEM,
    TD_N_SLICE,
    TD_N_CALL,
    TD_N_FILTER,
    TD_N_TEST,
    TD_N_NOT,
    TD_N_NEG,
    TD_N_POS,
    TD_N_BINARY,
    TD_N_AND,
    TD_N_OR,
    TD_N_CONCAT,
    TD_N_COMPARE,
    TD_N_OPERAND,
    TD_N_COND,
    TD_N_NSREF,
    TD_N_PARAM,
    TD_N_ARG,
    TD_N_KWARG,
    TD_N_STAR,
    TD_N_STAR2
};

/* Flags of MACRO and CALL_BLOCK (what the body reads), IF, BLOCK. */
enum {
    TD_NF_CALLER = 1,
    TD_NF_KWARGS = 2,
    TD_NF_VARARGS = 4,
    TD_NF_ELIF = 8, /* IF: c is one IF, the elif */
    TD_NF_SCOPED = 16
};

struct td_tnode {
    enum td_tnode_kind kind;
    uint8_t op, flags;
    uint32_t line, name; /* name: index into the template's names */
    struct td_tnode *next, *a, *b, *c, *d, *e;
    struct td_value val;
    const struct td_builtin *impl; /* FILTER, TEST; NULL: there is none of that name */
};

/* Operators of BINARY and OPERAND. */
enum td_top {
    TD_OP_ADD,
    TD_OP_SUB,
    TD_OP_MUL,
    TD_OP_DIV,
    TD_OP_FLOORDIV,
    TD_OP_MOD,
    TD_OP_POW,
    TD_OP_EQ,
    TD_OP_NE,
    TD_OP_LT,
    TD_OP_LE,
    TD_OP_GT,
    TD_OP_GE,
    TD_OP_IN,
    TD_OP_NOT_IN
};

struct td_template {
    struct td_arena arena;
    const char *name;
    struct td_tnode *body;
    const char **names; /* every variable name, by index; zero-terminated */
    size_t nnames;
    struct td_template *tool_use; /* renders contexts that have tools; may be NULL */
};

/* ---- parser ---------------------------------------------------------------------- */

/* A filter or test that does not exist, outside of any condition. */
struct td_unknown {
    struct td_unknown *before;
    const struct td_tnode *node;
};

struct td_parser {
    struct td_template *t;
    struct td_error *err;
    enum td_status status; /* after the first failure `tok` stays TD_LEX_EOF */
    struct td_lexer lx;
    struct td_lex_token tok, ahead;
    bool has_ahead;
    struct td_map ids; /* name to index */
    size_t names_cap;
    size_t depth; /* nesting of blocks and expressions */
    struct td_unknown *unknown;
    bool soft;                    /* in an `if`: unknown filters fail only when used */
    unsigned loops;               /* for blocks around, macros included */
    bool breakable;               /* break and continue have a loop here */
    struct td_parse_macro *outer; /* the functions around, innermost first */
};

/* One MACRO or CALL_BLOCK whose body is being parsed. */
struct td_parse_macro {
    struct td_parse_macro *outer;
    struct td_tnode *node;
};

/* Parses t's source into t->body and t->names. */
enum td_status td_template_parse(struct td_template *t, const char *src, size_t len,
                                 struct td_error *err);

/* Shared by the two halves of the parser (statements and expressions). After a failure
 * they return NULL or do nothing. */
struct td_tnode *td_parse_node(struct td_parser *p, enum td_tnode_kind kind,
                               uint32_t line);
void *td_parse_alloc(struct td_parser *p, size_t n, size_t size);
void td_parse_fail(struct td_parser *p, uint32_t line, const char *why, ...)
    TD_PRINTF(3, 4);
void td_parse_next(struct td_parser *p);
const struct td_lex_token *td_parse_look(struct td_parser *p);
bool td_parse_is_name(const struct td_parser *p, const char *name);
bool td_parse_skip_name(struct td_parser *p, const char *name);
bool td_parse_skip(struct td_parser *p, enum td_lex_kind kind);
void td_parse_expect(struct td_parser *p, enum td_lex_kind kind);
uint32_t td_parse_id(struct td_parser *p, const char *s, size_t len);

/* True, with the depth raised, when another level may be entered. */
bool td_parse_enter(struct td_parser *p);
void td_parse_leave(struct td_parser *p);

struct td_tnode *td_parse_expr(struct td_parser *p);

/* Expressions with commas are tuples. `end`: a name that also ends it, or NULL.
 * `cond`: x if y else z is allowed. */
struct td_tnode *td_parse_tuple(struct td_parser *p, bool cond, const char *end);

/* What stands left of `=` or between `for` and `in`. */
struct td_tnode *td_parse_target(struct td_parser *p, bool namespaces, const char *end);

/* A chain of filters on `input` (NULL: the text of a block). `started`: no | before the
 * first. */
struct td_tnode *td_parse_filters(struct td_parser *p, struct td_tnode *input,
                                  bool started);

#endif

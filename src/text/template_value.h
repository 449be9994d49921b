/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a render and the state they live in. Private to the template files.
 *
 * A value is 16 bytes, copied freely; what it points to lives in the render's arena
 * (or in the template, or in the caller's JSON) until the render ends. Nothing a
 * template can reach is ever modified, as in jinja2's immutable sandbox, except
 * namespaces, cyclers, joiners and iterators.
 *
 * Failures stick: the first one is recorded in the render (td_render_fail), functions
 * then return an undefined value, and everything after it is harmless and short. Loops
 * check td_render_ok().
 */
#ifndef TD_TEXT_TEMPLATE_VALUE_H
#define TD_TEXT_TEMPLATE_VALUE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_tnode;
struct td_template;

/* ---- values ---------------------------------------------------------------------- */

enum td_value_kind {
    TD_V_MISSING, /* no value at all: a name not bound, an argument not given */
    TD_V_UNDEF,
    TD_V_NONE,
    TD_V_BOOL,
    TD_V_INT,
    TD_V_FLOAT,
    TD_V_STR, /* len bytes of UTF-8 at s */
    TD_V_LIST,
    TD_V_TUPLE,
    TD_V_DICT,
    TD_V_VIEW, /* keys, values or items of a dict (flags) */
    TD_V_RANGE,
    TD_V_ITER, /* a generator: read once, no length */
    TD_V_NAMESPACE,
    TD_V_MACRO,
    TD_V_FUNC,   /* a global function */
    TD_V_METHOD, /* a method with its object */
    TD_V_LOOP,
    TD_V_CYCLER,
    TD_V_JOINER
};

enum {
    TD_VF_SAFE = 1,  /* STR: Python's Markup, as the filters safe and escape give */
    TD_VF_GROUP = 2, /* TUPLE of groupby: has .grouper and .list */
    TD_VF_KEYS = 4,  /* VIEW */
    TD_VF_VALUES = 8,
    TD_VF_ITEMS = 16
};

struct td_value {
    uint8_t kind, flags;
    uint32_t len; /* STR: bytes; LIST, TUPLE: items */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        struct td_items *items;
        struct td_vdict *dict; /* DICT, VIEW, NAMESPACE */
        const struct td_range *range;
        const struct td_undef *undef; /* NULL: nothing known about it */
        struct td_iter *iter;
        struct td_macro *macro;
        const struct td_builtin *func;
        struct td_method *method;
        struct td_loop *loop;
        struct td_cycler *cycler; /* CYCLER, JOINER */
    } u;
};

/* Lists share their items: `a + [x]` appends in place when `a` ends where the items
 * end, which no other list can see. So building a list in a loop costs linear time. */
struct td_items {
    struct td_value *v;
    uint32_t used, cap;
};

struct td_vdict_entry {
    struct td_value key, value;
};

/* Keeps the order of insertion. The index is there from 9 entries on. */
struct td_vdict {
    struct td_vdict_entry *entries;
    uint32_t count, cap;
    uint32_t *index; /* entry number + 1, 0: free; nindex is a power of two */
    uint32_t nindex;
};

struct td_range {
    int64_t start, stop, step, count; /* stop as given */
};

/* What an error about an undefined value says: the hint, or TYPE has no attribute NAME
 * (type set), or NAME is undefined. */
struct td_undef {
    const char *hint;
    const char *type;
    struct td_value name;
};

struct td_macro {
    const struct td_tnode *node;
    struct td_scope *scope; /* where it was defined */
};

struct td_method {
    struct td_value self;
    const struct td_builtin *impl;
};

struct td_cycler {
    struct td_value items; /* CYCLER: tuple; JOINER: the separator */
    uint32_t pos;          /* JOINER: 1 once used */
};

/* ---- the render ------------------------------------------------------------------ */

struct td_capture {
    struct td_capture *all, *spare;
    struct td_buf buf;
};

/* A string that was grown by concatenation and has room behind it. */
struct td_grown {
    char *p;
    size_t used, cap;
};

enum { TD_RENDER_GROWN = 4 };

struct td_render {
    const struct td_template *t;
    struct td_arena arena;
    struct td_error *err;
    enum td_status status;
    uint32_t line;  /* of the node at work */
    uint32_t depth; /* of nested evaluations */
    uint64_t steps;
    struct td_buf *out; /* where text goes now: the caller's, or a capture's */
    size_t put;         /* bytes of text held: the output's and all captures' */
    struct td_capture *captures, *spare;
    struct td_value block_text; /* the input of a filter without one */
    struct td_value *globals;   /* by name: assigned at top level, or MISSING */
    struct td_value *outside;   /* by name: the context's, or a global function */
    struct td_grown grown[TD_RENDER_GROWN];
    unsigned next_grown;
    uint32_t seed; /* of dict hashes */
};

static inline bool td_render_ok(const struct td_render *r)
{
    return r->status == TD_OK;
}

/* Records that the template failed at the current line, and why. Returns undefined. */
struct td_value td_render_fail(struct td_render *r, const char *why, ...)
    TD_PRINTF(2, 3);

/* Records that a ceiling was passed. The macro takes a constant of base/limits.h. */
struct td_value td_render_limit(struct td_render *r, const char *name, long long max);
#define TD_RENDER_LIMIT(r, NAME) td_render_limit(r, #NAME, (long long)(NAME))

/* Counts n units of work; false when that was too much. */
bool td_render_charge(struct td_render *r, size_t n);

/* Enter and leave a nested evaluation. */
bool td_render_enter(struct td_render *r);
void td_render_leave(struct td_render *r);

/* Zeroed memory of the render; NULL after a failure. */
void *td_render_alloc(struct td_render *r, size_t n, size_t size);

/* Text goes to a scratch buffer until td_render_end_capture() makes a string of it.
 * They nest. */
struct td_capture *td_render_capture(struct td_render *r, struct td_buf **before);
struct td_value td_render_end_capture(struct td_render *r, struct td_capture *c,
                                      struct td_buf *before);

/* Append to where text goes now. */
void td_render_put(struct td_render *r, const char *s, size_t n);
void td_render_puts(struct td_render *r, const char *s);
void td_render_putf(struct td_render *r, const char *fmt, ...) TD_PRINTF(2, 3);

/* ---- making values --------------------------------------------------------------- */

static inline struct td_value td_value_undef(void)
{
    return (struct td_value){.kind = TD_V_UNDEF};
}

static inline struct td_value td_value_none(void)
{
    return (struct td_value){.kind = TD_V_NONE};
}

static inline struct td_value td_value_bool(bool b)
{
    return (struct td_value){.kind = TD_V_BOOL, .u.b = b};
}

static inline struct td_value td_value_int(int64_t i)
{
    return (struct td_value){.kind = TD_V_INT, .u.i = i};
}

static inline struct td_value td_value_float(double f)
{
    return (struct td_value){.kind = TD_V_FLOAT, .u.f = f};
}

/* Borrows the bytes. */
static inline struct td_value td_value_str(const char *s, size_t n)
{
    return (struct td_value){.kind = TD_V_STR, .len = (uint32_t)n, .u.s = s};
}

struct td_value td_value_cstr(const char *s);
struct td_value td_value_copy_str(struct td_render *r, const char *s, size_t n);

/* Undefined with a reason for errors. */
struct td_value td_value_no_name(struct td_render *r, struct td_value name);
struct td_value td_value_no_attr(struct td_render *r, struct td_value obj,
                                 struct td_value name);
struct td_value td_value_hint(struct td_render *r, const char *hint, ...)
    TD_PRINTF(2, 3);

/* An empty list with room for n; grows with td_value_push(). kind: LIST or TUPLE. */
struct td_value td_value_list(struct td_render *r, enum td_value_kind kind, size_t n);
void td_value_push(struct td_render *r, struct td_value *list, struct td_value v);
struct td_value td_value_pair(struct td_render *r, struct td_value a,
                              struct td_value b);

/* JSON as values; strings are borrowed from it. */
struct td_value td_value_from_json(struct td_render *r, const json_t *j);

struct td_value td_value_dict(struct td_render *r, size_t n);
void td_value_dict_put(struct td_render *r, struct td_vdict *d, struct td_value key,
                       struct td_value value);
/* Value or NULL; fails when the key cannot be hashed. */
struct td_value *td_value_dict_get(struct td_render *r, const struct td_vdict *d,
                                   struct td_value key);

/* ---- asking values (template_value.c) -------------------------------------------- */

/* Python's name of the type: "str", "NoneType". */
const char *td_value_type(struct td_value v);

static inline bool td_value_is(struct td_value v, enum td_value_kind kind)
{
    return v.kind == kind;
}

static inline bool td_value_is_number(struct td_value v)
{
    return v.kind == TD_V_INT || v.kind == TD_V_FLOAT || v.kind == TD_V_BOOL;
}

/* The integer of an INT or BOOL. */
static inline int64_t td_value_as_int(struct td_value v)
{
    return v.kind == TD_V_BOOL ? v.u.b : v.u.i;
}

static inline bool td_value_is_int(struct td_value v)
{
    return v.kind == TD_V_INT || v.kind == TD_V_BOOL;
}

double td_value_as_double(struct td_value v); /* of any number */
bool td_value_str_is(struct td_value v, const char *s);
bool td_value_truth(struct td_render *r, struct td_value v);
bool td_value_has_len(struct td_value v);
int64_t td_value_len(struct td_render *r, struct td_value v); /* fails without one */
bool td_value_same(struct td_value a, struct td_value b);     /* Python's `is` */
bool td_value_eq(struct td_render *r, struct td_value a, struct td_value b);
/* <, <=, >, >= by enum td_top. */
bool td_value_order(struct td_render *r, struct td_value a, struct td_value b, int op);
bool td_value_in(struct td_render *r, struct td_value v, struct td_value container);

/* Says why an undefined value cannot be used, as a failure. */
struct td_value td_value_use_undef(struct td_render *r, struct td_value v);

/* ---- text of values (template_print.c) ------------------------------------------- */

/* Append str(v) or repr(v) to where text goes now. */
void td_value_print(struct td_render *r, struct td_value v);
void td_value_repr(struct td_render *r, struct td_value v);

/* str(v): v itself (flags kept) when it is a string. td_value_to_plain() drops flags. */
struct td_value td_value_to_str(struct td_render *r, struct td_value v);
struct td_value td_value_to_plain(struct td_render *r, struct td_value v);

/* A short repr for error messages, in a static-size buffer. */
struct td_shown {
    char s[96];
};
struct td_shown td_value_show(struct td_render *r, struct td_value v);

/* HTML escape; a safe string stays as it is. The result is safe. */
struct td_value td_value_escape(struct td_render *r, struct td_value v);

/* Python's shortest float text; needs 32 bytes. */
void td_float_repr(char *out, size_t size, double f);

/* int(text, base) and float(text) as Python reads them. */
enum td_number { TD_NUMBER_OK, TD_NUMBER_BAD, TD_NUMBER_BIG };
enum td_number td_int_parse(const char *s, size_t n, int base, int64_t *out);
bool td_float_parse(const char *s, size_t n, double *out);

/* json.dumps(v) with transformers' options; see template_json.c. */
struct td_value td_value_to_json(struct td_render *r, const struct td_value *args);

/* "..." % args and "...".format(...). */
struct td_value td_value_percent(struct td_render *r, struct td_value format,
                                 struct td_value args);
struct td_call;
struct td_value td_value_format(struct td_render *r, struct td_value format,
                                const struct td_call *call);

/* ---- iteration (template_iter.c) ------------------------------------------------- */

enum td_iter_kind {
    TD_IT_EMPTY,
    TD_IT_ITEMS, /* list, tuple */
    TD_IT_CHARS,
    TD_IT_DICT, /* keys, values or items by src.flags */
    TD_IT_RANGE,
    TD_IT_SHARED, /* reads a generator value */
    TD_IT_MAP,    /* generators: what filters of the same name give */
    TD_IT_MAP_ATTR,
    TD_IT_SELECT,
    TD_IT_UNIQUE,
    TD_IT_BATCH,
    TD_IT_SLICE
};

/* A path of attribute names and indices, "a.b.0". */
struct td_path {
    struct td_value *parts;
    size_t count;
    struct td_value fallback; /* replaces undefined on the way; MISSING: none */
    bool fold;                /* lower-case a string at the end */
};

struct td_iter {
    enum td_iter_kind kind;
    bool reversed; /* ITEMS, CHARS, DICT, RANGE */
    struct td_value src;
    int64_t pos;
    struct td_iter *in; /* generators read from it */
    const struct td_builtin *impl;
    const struct td_call *call;
    struct td_path path;
    bool negate, has_path;
    struct td_vdict *seen;
    struct td_value fill;
    int64_t n, n2; /* BATCH: size; SLICE: number of slices, items */
};

/* Starts reading v; fails when it cannot be iterated. */
void td_iter_init(struct td_render *r, struct td_iter *it, struct td_value v);
/* The same backwards; fails for what Python's reversed() refuses. */
void td_iter_reverse(struct td_render *r, struct td_iter *it, struct td_value v);
bool td_value_iterable(struct td_value v);
bool td_value_reversible(struct td_value v);
/* The next value; false at the end or after a failure. */
bool td_iter_next(struct td_render *r, struct td_iter *it, struct td_value *out);
/* A new generator value around an iterator of that kind. */
struct td_iter *td_iter_new(struct td_render *r, enum td_iter_kind kind,
                            struct td_value in);
struct td_value td_value_iter(struct td_iter *it);
struct td_value td_value_collect(struct td_render *r, struct td_value v,
                                 enum td_value_kind kind);

/* ---- operators and access (template_ops.c, template_access.c) -------------------- */

bool td_int_add_overflows(int64_t a, int64_t b);
bool td_int_mul_overflows(int64_t a, int64_t b);

struct td_value td_value_binary(struct td_render *r, int op, struct td_value a,
                                struct td_value b);
struct td_value td_value_negate(struct td_render *r, struct td_value v, bool plus);
struct td_value td_value_concat(struct td_render *r, struct td_value a,
                                struct td_value b); /* two strings, no escaping */
struct td_value td_value_attr(struct td_render *r, struct td_value obj,
                              struct td_value name);
struct td_value td_value_item(struct td_render *r, struct td_value obj,
                              struct td_value key);
/* MISSING or None: not given. */
struct td_value td_value_slice(struct td_render *r, struct td_value obj,
                               struct td_value start, struct td_value stop,
                               struct td_value step);
/* Python's clamped slice: positions i0, i0 + step, ... `count` of them. */
bool td_slice_range(struct td_render *r, int64_t n, struct td_value start,
                    struct td_value stop, struct td_value step, int64_t *i0,
                    int64_t *by, int64_t *count);

struct td_path td_path_parse(struct td_render *r, struct td_value attribute);
struct td_value td_path_get(struct td_render *r, const struct td_path *path,
                            struct td_value v);

/* ---- calls ----------------------------------------------------------------------- */

/* The arguments of one call. */
struct td_call {
    struct td_value *pos;
    size_t npos;
    struct td_value *names, *values; /* keyword arguments */
    size_t nkw;
};

enum { TD_MAX_PARAMS = 6 };

/*
 * A filter, test, method or global function. `params` are its names in order, separated
 * by blanks; a leading / says that they cannot be given by keyword. `run` gets them in
 * a[0..], MISSING where not given; `call` gets the call as it is. The value at work
 * (the filter's input, the method's object) is `self`. Neither: jinja2 has it, tandem
 * does not (or the sandbox forbids it).
 */
struct td_builtin {
    const char *name, *params;
    size_t required;
    struct td_value (*run)(struct td_render *r, struct td_value self,
                           const struct td_value *a);
    struct td_value (*call)(struct td_render *r, struct td_value self,
                            const struct td_call *call);
};

/* Heads of the functions that go into `run` and `call`. */
#define TD_BUILTIN_RUN(name)                                                           \
    static struct td_value name(struct td_render *r, struct td_value self,             \
                                const struct td_value *a)
#define TD_BUILTIN_CALL(name)                                                          \
    static struct td_value name(struct td_render *r, struct td_value self,             \
                                const struct td_call *call)

/* By name; NULL: there is none. A table ends with a NULL name. */
const struct td_builtin *td_builtin_find(const struct td_builtin *table, const char *s,
                                         size_t len);
const struct td_builtin *td_filter_find(const char *s, size_t len);
const struct td_builtin *td_test_find(const char *s, size_t len);
const struct td_builtin *td_global_find(const char *s, size_t len);
/* Methods of a value's type, those the sandbox forbids included. */
const struct td_builtin *td_method_find(struct td_value v, const char *s, size_t len);
extern const struct td_builtin td_str_methods[], td_loop_methods[];
extern const struct td_builtin td_filters_seq[];

struct td_value td_builtin_call(struct td_render *r, const struct td_builtin *b,
                                struct td_value self, const struct td_call *call);

/* Calls any value: function, method, macro, joiner. */
struct td_value td_value_call(struct td_render *r, struct td_value f,
                              const struct td_call *call);

/* dict(...) and namespace(...): pairs, a mapping, keywords. */
struct td_value td_value_make_dict(struct td_render *r, const struct td_call *call,
                                   const char *name);

/* ---- argument helpers (template_call.c) ------------------------------------------ */

bool td_arg_given(struct td_value v); /* neither MISSING nor None */
bool td_arg_bool(struct td_render *r, struct td_value v, bool absent);
/* An integer, or `absent`; fails naming the function. */
int64_t td_arg_int(struct td_render *r, struct td_value v, int64_t absent,
                   const char *func);
/* A string or a failure. */
bool td_arg_str(struct td_render *r, struct td_value v, const char *func);

/* ---- strings (template_utf8.c) --------------------------------------------------- */

size_t td_str_chars(const char *s, size_t n);
/* Byte offset of the char-th character. */
size_t td_str_offset(const char *s, size_t n, size_t chars);
/* First or last place of a needle, -1: nowhere. Work is charged. */
int64_t td_str_find(struct td_render *r, const char *s, size_t n, const char *needle,
                    size_t m);
int64_t td_str_rfind(struct td_render *r, const char *s, size_t n, const char *needle,
                     size_t m);
/* The character at s and its length. */
int32_t td_str_char(const char *s, size_t n, size_t *len);
/* The start of the character that ends at s + n. */
size_t td_str_back(const char *s, size_t n);
size_t td_char_encode(int32_t c, char out[4]);
bool td_char_is_space(int32_t c);
bool td_char_is_word(int32_t c); /* Python's \w */
bool td_char_is_name(int32_t c); /* may be in an identifier */
bool td_char_is_printable(int32_t c);
bool td_char_is_lower(int32_t c);
bool td_char_is_upper(int32_t c); /* titlecase letters are neither */
bool td_char_is_title(int32_t c);

/* How to change case; full Unicode mappings, as Python's. */
enum td_case { TD_CASE_LOWER, TD_CASE_UPPER, TD_CASE_TITLE, TD_CASE_FOLD };
/* Appends the mapping of the character at byte `at` to where text goes. */
void td_str_put_case(struct td_render *r, struct td_value s, size_t at,
                     enum td_case how);
struct td_value td_str_case(struct td_render *r, struct td_value s, enum td_case how);
struct td_value td_str_capitalize(struct td_render *r, struct td_value s);
/* strip() with Python's meaning of `chars` (MISSING or None: white space). */
struct td_value td_str_strip(struct td_render *r, struct td_value s,
                             struct td_value chars, bool left, bool right);
struct td_value td_str_replace(struct td_render *r, struct td_value s,
                               struct td_value old, struct td_value new_, int64_t max);
struct td_value td_str_center(struct td_render *r, struct td_value s, int64_t width,
                              struct td_value fill);
struct td_value td_str_reverse(struct td_render *r, struct td_value s);
/* Lines without their ends (or with). */
struct td_value td_str_lines(struct td_render *r, struct td_value s, bool keep);
struct td_value td_str_join(struct td_render *r, struct td_value sep,
                            struct td_value items, bool convert);

/* ---- statements (template_exec.c, template_loop.c) -------------------------------- */

struct td_binding {
    uint32_t name;
    struct td_value value;
};

/* Names bound by a loop, macro, with or other block. The top level has none: its names
 * are in the render's `globals`. */
struct td_scope {
    struct td_scope *parent; /* NULL: the top level is next */
    struct td_binding *b;
    uint32_t count, cap;
};

enum td_flow { TD_FLOW_NEXT, TD_FLOW_BREAK, TD_FLOW_CONTINUE };

enum td_flow td_exec(struct td_render *r, const struct td_tnode *list,
                     struct td_scope *scope);
enum td_flow td_exec_for(struct td_render *r, const struct td_tnode *n,
                         struct td_scope *scope);
struct td_value td_eval(struct td_render *r, const struct td_tnode *n,
                        struct td_scope *scope);
void td_eval_args(struct td_render *r, const struct td_tnode *list,
                  struct td_scope *scope, struct td_call *call);
void td_scope_set(struct td_render *r, struct td_scope *scope, uint32_t name,
                  struct td_value v);
struct td_value td_scope_get(struct td_render *r, struct td_scope *scope,
                             uint32_t name);
struct td_scope *td_scope_new(struct td_render *r, struct td_scope *parent);
void td_exec_assign(struct td_render *r, struct td_scope *scope,
                    const struct td_tnode *target, struct td_value v);
struct td_value td_macro_call(struct td_render *r, const struct td_macro *m,
                              const struct td_call *given);

/* The variable `loop`. */
struct td_value td_loop_attr(struct td_render *r, struct td_value loop,
                             struct td_value name);
void td_loop_repr(struct td_render *r, struct td_loop *loop);

#endif

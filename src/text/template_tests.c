/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: what stands after `is`, and what select() takes by name. Each gives a truth
 * value for the value at work.
 */
#include "text/template_tree.h"
#include "text/template_value.h"

/* A test on the kind of value alone. */
#define KIND(name, expr)                                                               \
    TD_BUILTIN_RUN(name)                                                               \
    {                                                                                  \
        (void)r;                                                                       \
        (void)a;                                                                       \
        return td_value_bool(expr);                                                    \
    }

KIND(t_defined, self.kind != TD_V_UNDEF)
KIND(t_undefined, self.kind == TD_V_UNDEF)
KIND(t_none, self.kind == TD_V_NONE)
KIND(t_boolean, self.kind == TD_V_BOOL)
KIND(t_true, self.kind == TD_V_BOOL && self.u.b)
KIND(t_false, self.kind == TD_V_BOOL && !self.u.b)
KIND(t_integer, self.kind == TD_V_INT)
KIND(t_float, self.kind == TD_V_FLOAT)
KIND(t_number, td_value_is_number(self))
KIND(t_string, self.kind == TD_V_STR)
KIND(t_mapping, self.kind == TD_V_DICT)
KIND(t_escaped, self.kind == TD_V_STR && self.flags & TD_VF_SAFE)
KIND(t_iterable, td_value_iterable(self) || self.kind == TD_V_LOOP)
KIND(t_sequence,
     td_value_has_len(self) && self.kind != TD_V_VIEW && self.kind != TD_V_LOOP)
KIND(t_callable, self.kind == TD_V_FUNC || self.kind == TD_V_METHOD ||
                     self.kind == TD_V_MACRO || self.kind == TD_V_JOINER ||
                     self.kind == TD_V_LOOP || self.kind == TD_V_UNDEF)

/* self % by, as an integer or float. */
static struct td_value remainder_of(struct td_render *r, struct td_value self,
                                    struct td_value by)
{
    return td_value_binary(r, TD_OP_MOD, self, by);
}

TD_BUILTIN_RUN(t_odd)
{
    (void)a;
    return td_value_bool(
        td_value_eq(r, remainder_of(r, self, td_value_int(2)), td_value_int(1)));
}

TD_BUILTIN_RUN(t_even)
{
    (void)a;
    return td_value_bool(
        td_value_eq(r, remainder_of(r, self, td_value_int(2)), td_value_int(0)));
}

TD_BUILTIN_RUN(t_divisibleby)
{
    return td_value_bool(td_value_eq(r, remainder_of(r, self, a[0]), td_value_int(0)));
}

static struct td_value ask_str(struct td_render *r, struct td_value self,
                               const char *method)
{
    struct td_value s = td_value_to_plain(r, self);
    const struct td_call none = {.pos = NULL};
    const struct td_builtin *m = td_method_find(s, method, 7);
    return m ? td_builtin_call(r, m, s, &none) : td_value_bool(false);
}

TD_BUILTIN_RUN(t_lower)
{
    (void)a;
    return ask_str(r, self, "islower");
}

TD_BUILTIN_RUN(t_upper)
{
    (void)a;
    return ask_str(r, self, "isupper");
}

TD_BUILTIN_RUN(t_sameas)
{
    (void)r;
    return td_value_bool(td_value_same(self, a[0]));
}

TD_BUILTIN_RUN(t_in)
{
    return td_value_bool(td_value_in(r, self, a[0]));
}

TD_BUILTIN_RUN(t_eq)
{
    return td_value_bool(td_value_eq(r, self, a[0]));
}

TD_BUILTIN_RUN(t_ne)
{
    return td_value_bool(!td_value_eq(r, self, a[0]));
}

TD_BUILTIN_RUN(t_lt)
{
    return td_value_bool(td_value_order(r, self, a[0], TD_OP_LT));
}

TD_BUILTIN_RUN(t_le)
{
    return td_value_bool(td_value_order(r, self, a[0], TD_OP_LE));
}

TD_BUILTIN_RUN(t_gt)
{
    return td_value_bool(td_value_order(r, self, a[0], TD_OP_GT));
}

TD_BUILTIN_RUN(t_ge)
{
    return td_value_bool(td_value_order(r, self, a[0], TD_OP_GE));
}

TD_BUILTIN_RUN(t_filter)
{
    (void)r;
    (void)a;
    return td_value_bool(self.kind == TD_V_STR && td_filter_find(self.u.s, self.len));
}

TD_BUILTIN_RUN(t_test)
{
    (void)r;
    (void)a;
    return td_value_bool(self.kind == TD_V_STR && td_test_find(self.u.s, self.len));
}

/* clang-format off */
static const struct td_builtin tests[] = {
    {"defined", "", 0, t_defined, NULL},
    {"undefined", "", 0, t_undefined, NULL},
    {"none", "", 0, t_none, NULL},
    {"string", "", 0, t_string, NULL},
    {"mapping", "", 0, t_mapping, NULL},
    {"iterable", "", 0, t_iterable, NULL},
    {"sequence", "", 0, t_sequence, NULL},
    {"number", "", 0, t_number, NULL},
    {"integer", "", 0, t_integer, NULL},
    {"float", "", 0, t_float, NULL},
    {"boolean", "", 0, t_boolean, NULL},
    {"true", "", 0, t_true, NULL},
    {"false", "", 0, t_false, NULL},
    {"callable", "/", 0, t_callable, NULL},
    {"escaped", "", 0, t_escaped, NULL},
    {"equalto", "/other", 1, t_eq, NULL},
    {"eq", "/other", 1, t_eq, NULL},
    {"==", "/other", 1, t_eq, NULL},
    {"ne", "/other", 1, t_ne, NULL},
    {"!=", "/other", 1, t_ne, NULL},
    {"lt", "/other", 1, t_lt, NULL},
    {"lessthan", "/other", 1, t_lt, NULL},
    {"<", "/other", 1, t_lt, NULL},
    {"le", "/other", 1, t_le, NULL},
    {"<=", "/other", 1, t_le, NULL},
    {"gt", "/other", 1, t_gt, NULL},
    {"greaterthan", "/other", 1, t_gt, NULL},
    {">", "/other", 1, t_gt, NULL},
    {"ge", "/other", 1, t_ge, NULL},
    {">=", "/other", 1, t_ge, NULL},
    {"in", "seq", 1, t_in, NULL},
    {"odd", "", 0, t_odd, NULL},
    {"even", "", 0, t_even, NULL},
    {"divisibleby", "num", 1, t_divisibleby, NULL},
    {"lower", "", 0, t_lower, NULL},
    {"upper", "", 0, t_upper, NULL},
    {"sameas", "other", 1, t_sameas, NULL},
    {"filter", "", 0, t_filter, NULL},
    {"test", "", 0, t_test, NULL},
    {NULL, NULL, 0, NULL, NULL},
};
/* clang-format on */

const struct td_builtin *td_test_find(const char *s, size_t len)
{
    return td_builtin_find(tests, s, len);
}

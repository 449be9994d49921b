/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python's arithmetic on values. Integers are 64 bits wide; a result that needs more
 * is an error, not a wrong number. Division and remainder round down.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <math.h>
#include <string.h>

static const char *const op_names[] = {
    [TD_OP_ADD] = "+",       [TD_OP_SUB] = "-", [TD_OP_MUL] = "*", [TD_OP_DIV] = "/",
    [TD_OP_FLOORDIV] = "//", [TD_OP_MOD] = "%", [TD_OP_POW] = "**"};

static struct td_value too_large(struct td_render *r)
{
    return td_render_fail(r, "an integer does not fit into 64 bits");
}

/* ---- integers -------------------------------------------------------------------- */

bool td_int_add_overflows(int64_t a, int64_t b)
{
    return b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b;
}

bool td_int_mul_overflows(int64_t a, int64_t b)
{
    if (a == 0 || b == 0)
        return false;
    if (a > 0)
        return b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a;
    return b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a;
}

static struct td_value int_floordiv(struct td_render *r, int64_t a, int64_t b, int op)
{
    if (b == 0)
        return td_render_fail(r, "integer %s by zero",
                              op == TD_OP_MOD ? "modulo" : "division or modulo");
    if (b == -1) {
        if (op == TD_OP_MOD)
            return td_value_int(0);
        return a == INT64_MIN ? too_large(r) : td_value_int(-a);
    }
    int64_t q = a / b, rest = a % b;
    bool down = rest != 0 && (rest < 0) != (b < 0);
    return td_value_int(op == TD_OP_MOD ? rest + (down ? b : 0) : q - down);
}

static struct td_value int_pow(struct td_render *r, int64_t base, int64_t exp)
{
    if (exp < 0) {
        if (base == 0)
            return td_render_fail(r, "0.0 cannot be raised to a negative power");
        return td_value_float(pow((double)base, (double)exp));
    }
    int64_t x = 1;
    bool big = false; /* base no longer fits; fatal only if it is used */
    for (; exp > 0; exp >>= 1) {
        if (exp & 1) {
            if (big || td_int_mul_overflows(x, base))
                return too_large(r);
            x *= base;
        }
        if (exp > 1) {
            big = big || td_int_mul_overflows(base, base);
            base = big ? 0 : base * base;
        }
    }
    return td_value_int(x);
}

static struct td_value int_div(struct td_render *r, int64_t a, int64_t b)
{
    if (b == 0)
        return td_render_fail(r, "division by zero");
    return td_value_float((double)((long double)a / (long double)b));
}

static struct td_value int_op(struct td_render *r, int op, int64_t a, int64_t b)
{
    switch (op) {
    case TD_OP_ADD:
        return td_int_add_overflows(a, b) ? too_large(r) : td_value_int(a + b);
    case TD_OP_SUB:
        if (b == INT64_MIN)
            return a >= 0 ? too_large(r) : td_value_int(a - b);
        return td_int_add_overflows(a, -b) ? too_large(r) : td_value_int(a - b);
    case TD_OP_MUL:
        return td_int_mul_overflows(a, b) ? too_large(r) : td_value_int(a * b);
    case TD_OP_DIV:
        return int_div(r, a, b);
    case TD_OP_POW:
        return int_pow(r, a, b);
    default:
        return int_floordiv(r, a, b, op);
    }
}

/* ---- floats ---------------------------------------------------------------------- */

static bool is_zero(double x)
{
    return fpclassify(x) == FP_ZERO;
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (is_zero(m))
        return copysign(0.0, b);
    return (b < 0) != (m < 0) ? m + b : m;
}

static double float_floordiv(double a, double b)
{
    double m = fmod(a, b), q = (a - m) / b;
    if (!is_zero(m) && (b < 0) != (m < 0))
        q -= 1.0;
    if (is_zero(q))
        return copysign(0.0, a / b);
    double whole = floor(q);
    return q - whole > 0.5 ? whole + 1.0 : whole;
}

static struct td_value float_op(struct td_render *r, int op, double a, double b)
{
    double x;
    switch (op) {
    case TD_OP_ADD:
        return td_value_float(a + b);
    case TD_OP_SUB:
        return td_value_float(a - b);
    case TD_OP_MUL:
        return td_value_float(a * b);
    case TD_OP_POW:
        if (is_zero(a) && b < 0)
            return td_render_fail(r, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && floor(b) < b)
            return td_render_fail(r, "a negative number to a fractional power is "
                                     "complex, which is not supported");
        x = pow(a, b);
        if (isinf(x) && isfinite(a) && isfinite(b))
            return td_render_fail(r, "numerical result out of range");
        return td_value_float(x);
    default:
        if (is_zero(b))
            return td_render_fail(r, op == TD_OP_DIV ? "float division by zero"
                                     : op == TD_OP_MOD
                                         ? "float modulo"
                                         : "float floor division by zero");
        x = op == TD_OP_DIV   ? a / b
            : op == TD_OP_MOD ? float_mod(a, b)
                              : float_floordiv(a, b);
        return td_value_float(x);
    }
}

/* ---- sequences ------------------------------------------------------------------- */

struct td_value td_value_concat(struct td_render *r, struct td_value a,
                                struct td_value b)
{
    size_t total = (size_t)a.len + b.len;
    if (b.len == 0)
        return a;
    if (!td_render_charge(r, b.len / 64))
        return td_value_undef();
    struct td_grown *g = NULL;
    for (int i = 0; i < TD_RENDER_GROWN && a.len; i++)
        if (r->grown[i].p && r->grown[i].p + r->grown[i].used == a.u.s + a.len &&
            a.u.s >= r->grown[i].p)
            g = &r->grown[i];
    if (g && g->cap - g->used >= b.len) {
        memcpy(g->p + g->used, b.u.s, b.len);
        g->used += b.len;
        return td_value_str(a.u.s, total);
    }
    /* short strings are copied as they are; long ones get room to grow */
    size_t cap = total < 256 ? total : total * 2;
    char *p = td_render_alloc(r, cap, 1);
    if (!p || !td_render_charge(r, a.len / 64))
        return td_value_undef();
    if (a.len)
        memcpy(p, a.u.s, a.len);
    memcpy(p + a.len, b.u.s, b.len);
    if (cap > total) {
        if (!g)
            g = &r->grown[r->next_grown++ % TD_RENDER_GROWN];
        *g = (struct td_grown){.p = p, .used = total, .cap = cap};
    }
    return td_value_str(p, total);
}

static struct td_value add_lists(struct td_render *r, struct td_value a,
                                 struct td_value b)
{
    for (uint32_t i = 0; i < b.len && td_render_charge(r, 1); i++)
        td_value_push(r, &a, b.u.items->v[i]);
    a.flags = 0;
    return a;
}

static struct td_value add_strings(struct td_render *r, struct td_value a,
                                   struct td_value b)
{
    bool safe = (a.flags | b.flags) & TD_VF_SAFE;
    if (safe) {
        a = td_value_escape(r, a);
        b = td_value_escape(r, b);
    }
    struct td_value v = td_value_concat(r, a, b);
    v.flags = safe ? TD_VF_SAFE : 0;
    return v;
}

static struct td_value repeat(struct td_render *r, struct td_value v, int64_t n)
{
    uint8_t flags = v.flags;
    if (n < 0 || v.len == 0)
        n = 0;
    if ((uint64_t)n * v.len > (uint64_t)TD_MAX_TEMPLATE_MEMORY || n > UINT32_MAX)
        return TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_MEMORY);
    if (v.kind != TD_V_STR) {
        struct td_value list = td_value_list(r, v.kind, (size_t)n * v.len);
        for (int64_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < v.len && td_render_charge(r, 1); j++)
                td_value_push(r, &list, v.u.items->v[j]);
        return list;
    }
    size_t total = (size_t)n * v.len;
    char *p = td_render_alloc(r, total + 1, 1);
    if (!p || !td_render_charge(r, total / 64))
        return td_value_undef();
    for (size_t done = 0; done < total;) { /* what is there doubles */
        size_t k = done ? TD_MIN(done, total - done) : v.len;
        memcpy(p + done, done ? p : v.u.s, k);
        done += k;
    }
    v = td_value_str(p, total);
    v.flags = flags;
    return v;
}

static bool is_sequence(struct td_value v)
{
    return v.kind == TD_V_STR || v.kind == TD_V_LIST || v.kind == TD_V_TUPLE;
}

static struct td_value unsupported(struct td_render *r, int op, struct td_value a,
                                   struct td_value b)
{
    if (op == TD_OP_ADD && is_sequence(a))
        return td_render_fail(r, "can only concatenate %s (not \"%s\") to %s",
                              td_value_type(a), td_value_type(b), td_value_type(a));
    return td_render_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'",
                          op_names[op], td_value_type(a), td_value_type(b));
}

struct td_value td_value_binary(struct td_render *r, int op, struct td_value a,
                                struct td_value b)
{
    if (!td_render_ok(r))
        return td_value_undef();
    if (td_value_is_int(a) && td_value_is_int(b))
        return int_op(r, op, td_value_as_int(a), td_value_as_int(b));
    if (td_value_is_number(a) && td_value_is_number(b))
        return float_op(r, op, td_value_as_double(a), td_value_as_double(b));
    if (op == TD_OP_MOD && a.kind == TD_V_STR)
        return td_value_percent(r, a, b);
    if (a.kind == TD_V_UNDEF || b.kind == TD_V_UNDEF)
        return td_value_use_undef(r, a.kind == TD_V_UNDEF ? a : b);
    if (op == TD_OP_ADD && a.kind == b.kind && is_sequence(a))
        return a.kind == TD_V_STR ? add_strings(r, a, b) : add_lists(r, a, b);
    if (op == TD_OP_MUL && is_sequence(a) && td_value_is_int(b))
        return repeat(r, a, td_value_as_int(b));
    if (op == TD_OP_MUL && is_sequence(b) && td_value_is_int(a))
        return repeat(r, b, td_value_as_int(a));
    return unsupported(r, op, a, b);
}

struct td_value td_value_negate(struct td_render *r, struct td_value v, bool plus)
{
    if (td_value_is_int(v)) {
        int64_t i = td_value_as_int(v);
        if (!plus && i == INT64_MIN)
            return too_large(r);
        return td_value_int(plus ? i : -i);
    }
    if (v.kind == TD_V_FLOAT)
        return td_value_float(plus ? v.u.f : -v.u.f);
    if (v.kind == TD_V_UNDEF)
        return td_value_use_undef(r, v);
    return td_render_fail(r, "bad operand type for unary %s: '%s'", plus ? "+" : "-",
                          td_value_type(v));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters on strings and single values, and the look-up of all filters. Those on
 * sequences are in template_seq.c.
 */
#include "base/limits.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- strings --------------------------------------------------------------------- */

TD_BUILTIN_RUN(f_upper)
{
    (void)a;
    return td_str_case(r, td_value_to_str(r, self), TD_CASE_UPPER);
}

TD_BUILTIN_RUN(f_lower)
{
    (void)a;
    return td_str_case(r, td_value_to_str(r, self), TD_CASE_LOWER);
}

TD_BUILTIN_RUN(f_capitalize)
{
    (void)a;
    return td_str_capitalize(r, td_value_to_str(r, self));
}

static bool is_word_gap(int32_t c)
{
    return td_char_is_space(c) || (c > 0 && c < 0x80 && strchr("-({[<", (int)c));
}

/* Words start after blanks, hyphens and opening brackets. The rest of a word is put to
 * lower case as if it stood alone, which matters for a final sigma. */
TD_BUILTIN_RUN(f_title)
{
    (void)a;
    struct td_buf *before;
    struct td_value s = td_value_to_str(r, self), rest = s;
    struct td_capture *c = td_render_capture(r, &before);
    bool start = true;
    size_t n, from = 0;
    td_render_charge(r, s.len / 8);
    for (size_t i = 0; i < s.len && td_render_ok(r); i += n) {
        bool gap = is_word_gap(td_str_char(s.u.s + i, s.len - i, &n));
        if (gap) {
            td_render_put(r, s.u.s + i, n);
        } else if (start) {
            td_str_put_case(r, s, i, TD_CASE_UPPER);
            size_t k, end = from = i + n;
            while (end < s.len &&
                   !is_word_gap(td_str_char(s.u.s + end, s.len - end, &k)))
                end += k;
            rest = td_value_str(s.u.s + from, end - from);
        } else {
            td_str_put_case(r, rest, i - from, TD_CASE_LOWER);
        }
        start = gap;
    }
    return td_render_end_capture(r, c, before);
}

TD_BUILTIN_RUN(f_trim)
{
    return td_str_strip(r, td_value_to_str(r, self), a[0], true, true);
}

TD_BUILTIN_RUN(f_string)
{
    (void)a;
    return td_value_to_str(r, self);
}

TD_BUILTIN_RUN(f_safe)
{
    (void)a;
    struct td_value s = td_value_to_str(r, self);
    s.flags = TD_VF_SAFE;
    return s;
}

TD_BUILTIN_RUN(f_escape)
{
    (void)a;
    return td_value_escape(r, self);
}

TD_BUILTIN_RUN(f_forceescape)
{
    (void)a;
    return td_value_escape(r, td_value_to_plain(r, self));
}

TD_BUILTIN_RUN(f_replace)
{
    struct td_value s = td_value_to_plain(r, self), old = td_value_to_plain(r, a[0]);
    struct td_value new_ = td_value_to_plain(r, a[1]);
    int64_t max = td_arg_given(a[2]) ? td_arg_int(r, a[2], -1, "replace") : -1;
    return td_str_replace(r, s, old, new_, max);
}

TD_BUILTIN_RUN(f_center)
{
    return td_str_center(r, td_value_to_str(r, self), td_arg_int(r, a[0], 80, "center"),
                         td_value_cstr(" "));
}

TD_BUILTIN_CALL(f_format)
{
    struct td_value args = td_value_list(r, TD_V_TUPLE, call->npos);
    if (call->npos && call->nkw)
        return td_render_fail(r, "can't handle positional and keyword arguments at the "
                                 "same time");
    if (call->nkw) {
        struct td_call keywords = *call;
        keywords.npos = 0;
        args = td_value_make_dict(r, &keywords, "format");
    }
    for (size_t i = 0; i < call->npos; i++)
        td_value_push(r, &args, call->pos[i]);
    return td_value_percent(r, td_value_to_str(r, self), args);
}

TD_BUILTIN_RUN(f_wordcount)
{
    (void)a;
    struct td_value s = td_value_to_str(r, self);
    int64_t count = 0;
    bool inside = false;
    size_t n;
    td_render_charge(r, s.len / 8);
    for (size_t i = 0; i < s.len; i += n) {
        bool word = td_char_is_word(td_str_char(s.u.s + i, s.len - i, &n));
        count += word && !inside;
        inside = word;
    }
    return td_value_int(count);
}

/* The indentation: n blanks, or a string. */
static struct td_value indentation(struct td_render *r, struct td_value width)
{
    if (width.kind == TD_V_STR)
        return width;
    int64_t n = td_arg_int(r, width, 4, "indent");
    if (n > TD_MAX_TEMPLATE_WIDTH)
        return TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_WIDTH);
    return td_value_binary(r, TD_OP_MUL, td_value_cstr(" "), td_value_int(n));
}

TD_BUILTIN_RUN(f_indent)
{
    struct td_value by = indentation(r, a[0]);
    bool first = td_arg_bool(r, a[1], false), blank = td_arg_bool(r, a[2], false);
    if (self.kind != TD_V_STR)
        return self.kind == TD_V_UNDEF
                   ? td_value_use_undef(r, self)
                   : td_render_fail(r, "indent: expected a string, not %s",
                                    td_value_type(self));
    /* a text that ends in a line end has an empty line behind it */
    struct td_value text = td_value_concat(r, self, td_value_cstr("\n"));
    struct td_value lines = td_str_lines(r, text, false);
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    for (uint32_t i = 0; td_render_ok(r) && i < lines.len; i++) {
        struct td_value line = lines.u.items->v[i];
        if (i)
            td_render_puts(r, "\n");
        if (i ? blank || line.len : first)
            td_render_put(r, by.u.s, by.len);
        td_render_put(r, line.u.s, line.len);
    }
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = self.flags;
    return v;
}

TD_BUILTIN_RUN(f_truncate)
{
    int64_t length = td_arg_int(r, a[0], 255, "truncate");
    bool kill = td_arg_bool(r, a[1], false);
    struct td_value end = a[2].kind == TD_V_MISSING ? td_value_cstr("...") : a[2];
    int64_t leeway = td_arg_given(a[3]) ? td_arg_int(r, a[3], 5, "truncate") : 5;
    int64_t end_len = td_value_len(r, end), len;
    if (length < end_len)
        return td_render_fail(r, "expected length >= %lld, got %lld",
                              (long long)end_len, (long long)length);
    if (leeway < 0)
        return td_render_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
    len = td_value_len(r, self);
    if (len <= length || len - length <= leeway)
        return self;
    if (self.kind != TD_V_STR || end.kind != TD_V_STR)
        return td_render_fail(r, "truncate: expected a string, not %s",
                              td_value_type(self.kind != TD_V_STR ? self : end));
    struct td_value cut = td_value_slice(
        r, self, td_value_none(), td_value_int(length - end_len), td_value_none());
    if (!kill && td_render_ok(r)) {
        int64_t at = td_str_rfind(r, cut.u.s, cut.len, " ", 1);
        if (at >= 0)
            cut.len = (uint32_t)at;
    }
    return td_value_binary(r, TD_OP_ADD, cut, end);
}

/* Percent-encodes; in a query "/" is encoded, too, and a blank becomes "+". */
static void put_url(struct td_render *r, struct td_value v, bool query)
{
    struct td_value s = td_value_to_plain(r, v);
    td_render_charge(r, s.len / 8);
    for (uint32_t i = 0; i < s.len && td_render_ok(r); i++) {
        char c = s.u.s[i];
        if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
            (c >= 'a' && c <= 'z') || (c && strchr(query ? "_.-~" : "_.-~/", c)))
            td_render_put(r, &c, 1);
        else if (query && c == ' ')
            td_render_puts(r, "+");
        else
            td_render_putf(r, "%%%02X", (unsigned)(unsigned char)c);
    }
}

TD_BUILTIN_RUN(f_urlencode)
{
    (void)a;
    struct td_buf *before;
    struct td_iter it;
    struct td_value x;
    struct td_capture *c = td_render_capture(r, &before);
    if (self.kind == TD_V_STR || !td_value_iterable(self)) {
        put_url(r, self, false);
        return td_render_end_capture(r, c, before);
    }
    if (self.kind == TD_V_DICT)
        self = (struct td_value){
            .kind = TD_V_VIEW, .flags = TD_VF_ITEMS, .u.dict = self.u.dict};
    td_iter_init(r, &it, self);
    for (bool first = true; td_iter_next(r, &it, &x); first = false) {
        struct td_value pair = td_value_collect(r, x, TD_V_TUPLE);
        if (td_render_ok(r) && pair.len != 2)
            td_render_fail(r, "urlencode: expected pairs, got %u values",
                           (unsigned)pair.len);
        if (!td_render_ok(r))
            break;
        td_render_puts(r, first ? "" : "&");
        put_url(r, pair.u.items->v[0], true);
        td_render_puts(r, "=");
        put_url(r, pair.u.items->v[1], true);
    }
    return td_render_end_capture(r, c, before);
}

/* ---- values ---------------------------------------------------------------------- */

TD_BUILTIN_RUN(f_default)
{
    struct td_value other = a[0].kind == TD_V_MISSING ? td_value_cstr("") : a[0];
    bool falsy = td_arg_bool(r, a[1], false);
    if (self.kind == TD_V_UNDEF || (falsy && !td_value_truth(r, self)))
        return other;
    return self;
}

TD_BUILTIN_RUN(f_abs)
{
    (void)a;
    if (td_value_is_int(self)) {
        int64_t i = td_value_as_int(self);
        return i < 0 ? td_value_negate(r, self, false) : td_value_int(i);
    }
    if (self.kind == TD_V_FLOAT)
        return td_value_float(fabs(self.u.f));
    if (self.kind == TD_V_UNDEF)
        return td_value_use_undef(r, self);
    return td_render_fail(r, "bad operand type for abs(): '%s'", td_value_type(self));
}

static struct td_value float_to_int(struct td_render *r, double f)
{
    if (f >= 9223372036854775808.0 || f < -9223372036854775808.0)
        return td_render_fail(r, "an integer does not fit into 64 bits");
    return td_value_int((int64_t)f);
}

TD_BUILTIN_RUN(f_int)
{
    struct td_value absent = a[0].kind == TD_V_MISSING ? td_value_int(0) : a[0];
    int64_t base = td_arg_int(r, a[1], 10, "int"), i;
    double f;
    if (self.kind == TD_V_UNDEF)
        return td_value_use_undef(r, self);
    if (td_value_is_int(self))
        return td_value_int(td_value_as_int(self));
    if (self.kind == TD_V_FLOAT) {
        if (isnan(self.u.f))
            return absent;
        if (isinf(self.u.f))
            return td_render_fail(r, "cannot convert float infinity to integer");
        return float_to_int(r, self.u.f);
    }
    if (self.kind != TD_V_STR)
        return absent;
    bool base_ok = base == 0 || (base >= 2 && base <= 36);
    enum td_number n =
        base_ok ? td_int_parse(self.u.s, self.len, (int)base, &i) : TD_NUMBER_BAD;
    if (n == TD_NUMBER_OK)
        return td_value_int(i);
    if (n == TD_NUMBER_BIG)
        return td_render_fail(r, "an integer does not fit into 64 bits");
    if (!td_float_parse(self.u.s, self.len, &f) || isnan(f) || isinf(f))
        return absent;
    return float_to_int(r, f);
}

TD_BUILTIN_RUN(f_float)
{
    struct td_value absent = a[0].kind == TD_V_MISSING ? td_value_float(0.0) : a[0];
    double f;
    if (self.kind == TD_V_UNDEF)
        return td_value_use_undef(r, self);
    if (td_value_is_number(self))
        return td_value_float(td_value_as_double(self));
    if (self.kind == TD_V_STR && td_float_parse(self.u.s, self.len, &f))
        return td_value_float(f);
    return absent;
}

/* round() to a power of ten, half to even on the exact binary value: printing with that
 * many digits rounds so. */
static struct td_value round_float(double f, int64_t digits)
{
    char text[512];
    if (!isfinite(f) || digits > 323 || (digits >= 0 && fabs(f) >= 4503599627370496.0))
        return td_value_float(f);
    if (digits >= 0) {
        (void)snprintf(text, sizeof(text), "%.*f", (int)digits, f);
    } else {
        if (digits < -308 || fabs(f) <= 5.0 * pow(10.0, (double)(-digits - 1)))
            return td_value_float(copysign(0.0, f));
        (void)snprintf(text, sizeof(text), "%.17e", f);
        int64_t exp = 0;
        const char *e = strchr(text, 'e') + 1;
        (void)td_int_parse(e, strlen(e), 10, &exp);
        if (exp + digits < 0) /* more than half of the unit, which is its only digit */
            return td_value_float(copysign(pow(10.0, (double)-digits), f));
        (void)snprintf(text, sizeof(text), "%.*e", (int)(exp + digits), f);
    }
    double back = f;
    (void)td_float_parse(text, strlen(text), &back);
    return td_value_float(back);
}

/* round() of an integer to tens, hundreds, ...; half to even. */
static struct td_value round_int(struct td_render *r, int64_t i, int64_t digits)
{
    if (digits >= 0)
        return td_value_int(i);
    int64_t unit = 1;
    for (; digits < 0; digits++) {
        if (unit > INT64_MAX / 10)
            return td_value_int(0);
        unit *= 10;
    }
    int64_t rest = i % unit, base = i - rest, half = unit / 2;
    int64_t away = rest < 0 ? -rest : rest;
    if (away > half || (away == half && (base / unit) % 2 != 0)) {
        int64_t by = rest < 0 ? -unit : unit;
        if (td_int_add_overflows(base, by))
            return td_render_fail(r, "an integer does not fit into 64 bits");
        base += by;
    }
    return td_value_int(base);
}

TD_BUILTIN_RUN(f_round)
{
    int64_t digits = td_arg_int(r, a[0], 0, "round");
    bool common = a[1].kind == TD_V_MISSING || td_value_str_is(a[1], "common");
    bool up = td_value_str_is(a[1], "ceil");
    if (!common && !up && !td_value_str_is(a[1], "floor"))
        return td_render_fail(r, "method must be common, ceil or floor");
    if (!td_value_is_number(self))
        return self.kind == TD_V_UNDEF
                   ? td_value_use_undef(r, self)
                   : td_render_fail(r, "type %s doesn't define __round__ method",
                                    td_value_type(self));
    if (common)
        return td_value_is_int(self) ? round_int(r, td_value_as_int(self), digits)
                                     : round_float(self.u.f, digits);
    double unit = pow(10.0, (double)digits), f = td_value_as_double(self) * unit;
    if (!isfinite(f))
        return td_render_fail(r, "cannot convert float infinity to integer");
    return td_value_float((up ? ceil(f) : floor(f)) / unit);
}

TD_BUILTIN_RUN(f_tojson)
{
    struct td_value args[TD_MAX_PARAMS] = {self, a[0], a[1], a[2], a[3]};
    return td_value_to_json(r, args);
}

/* The attribute or method only, never the item of that name. */
TD_BUILTIN_RUN(f_attr)
{
    if (!td_arg_str(r, a[0], "attr"))
        return td_value_undef();
    if (self.kind == TD_V_DICT && !td_method_find(self, a[0].u.s, a[0].len))
        return td_value_no_attr(r, self, a[0]);
    return td_value_attr(r, self, a[0]);
}

/* clang-format off */
static const struct td_builtin text_filters[] = {
    {"trim", "chars", 0, f_trim, NULL},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, f_tojson, NULL},
    {"default", "default_value boolean", 0, f_default, NULL},
    {"d", "default_value boolean", 0, f_default, NULL},
    {"string", "", 0, f_string, NULL},
    {"safe", "", 0, f_safe, NULL},
    {"upper", "", 0, f_upper, NULL},
    {"lower", "", 0, f_lower, NULL},
    {"title", "", 0, f_title, NULL},
    {"capitalize", "", 0, f_capitalize, NULL},
    {"replace", "old new count", 2, f_replace, NULL},
    {"indent", "width first blank", 0, f_indent, NULL},
    {"int", "default base", 0, f_int, NULL},
    {"float", "default", 0, f_float, NULL},
    {"round", "precision method", 0, f_round, NULL},
    {"abs", "/", 0, f_abs, NULL},
    {"format", NULL, 0, NULL, f_format},
    {"escape", "/", 0, f_escape, NULL},
    {"e", "/", 0, f_escape, NULL},
    {"forceescape", "", 0, f_forceescape, NULL},
    {"truncate", "length killwords end leeway", 0, f_truncate, NULL},
    {"wordcount", "", 0, f_wordcount, NULL},
    {"center", "width", 0, f_center, NULL},
    {"urlencode", "", 0, f_urlencode, NULL},
    {"attr", "name", 1, f_attr, NULL},
    /* in jinja2, but not here: say so when they are used */
    {"filesizeformat", NULL, 0, NULL, NULL},
    {"pprint", NULL, 0, NULL, NULL},
    {"random", NULL, 0, NULL, NULL},
    {"striptags", NULL, 0, NULL, NULL},
    {"urlize", NULL, 0, NULL, NULL},
    {"wordwrap", NULL, 0, NULL, NULL},
    {"xmlattr", NULL, 0, NULL, NULL},
    {NULL, NULL, 0, NULL, NULL},
};
/* clang-format on */

const struct td_builtin *td_filter_find(const char *s, size_t len)
{
    const struct td_builtin *b = td_builtin_find(text_filters, s, len);
    return b ? b : td_builtin_find(td_filters_seq, s, len);
}

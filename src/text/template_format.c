/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python's two ways to format: "%05.1f" % x, and "{:>8,}".format(x). Both end in the
 * same steps: the number's digits, its sign, and padding to a width.
 */
#include "base/limits.h"
#include "text/template_value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PRECISION_MAX = 100, NUMBER_MAX = 512 };

/* What stands between % or : and the type. */
struct spec {
    struct td_value fill; /* one character */
    bool filled;          /* it was given, so that a 0 before the width is a digit */
    char align;           /* '<', '>', '^', '=', 0: by type */
    char sign;            /* '+', ' ', 0 */
    bool alt, zero;
    int64_t width, precision; /* -1: none */
    char group;               /* ',', '_', 0 */
    char type;                /* 0: none */
};

/* ---- shared ---------------------------------------------------------------------- */

static void put_times(struct td_render *r, struct td_value c, int64_t n)
{
    for (; n > 0 && td_render_ok(r); n--)
        td_render_put(r, c.u.s, c.len);
}

/* sign and prefix, then body, padded. */
static void put_padded(struct td_render *r, const struct spec *sp, const char *prefix,
                       struct td_value body, char align)
{
    int64_t used = (int64_t)strlen(prefix) + td_value_len(r, body);
    int64_t gap = sp->width > used ? sp->width - used : 0;
    int64_t left = align == '>' ? gap : align == '^' ? gap / 2 : 0;
    if (sp->width > TD_MAX_TEMPLATE_WIDTH) {
        TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_WIDTH);
        return;
    }
    put_times(r, sp->fill, left);
    td_render_puts(r, prefix);
    if (align == '=')
        put_times(r, sp->fill, gap);
    td_render_put(r, body.u.s, body.len);
    if (align != '=')
        put_times(r, sp->fill, gap - left);
}

/* Digits of |x| in a base; returns their number. */
static size_t int_digits(uint64_t x, int base, bool upper, char *out)
{
    const char *set = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    char back[72];
    size_t n = 0;
    do
        back[n++] = set[x % (uint64_t)base];
    while (x /= (uint64_t)base);
    for (size_t i = 0; i < n; i++)
        out[i] = back[n - 1 - i];
    out[n] = 0;
    return n;
}

static uint64_t magnitude(int64_t i)
{
    return i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
}

/* |f| by one of eEfFgG, like printf; inf and nan in the type's case. */
static void float_digits(char *out, size_t size, double f, char type, int precision,
                         bool alt)
{
    bool upper = type >= 'A' && type <= 'Z';
    if (!isfinite(f)) {
        const char *text = isnan(f) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
        (void)snprintf(out, size, "%s", text);
        return;
    }
    if (type == 'f' || type == 'F')
        (void)snprintf(out, size, alt ? "%#.*f" : "%.*f", precision, fabs(f));
    else if ((type | 32) == 'e')
        (void)snprintf(out, size,
                       upper ? (alt ? "%#.*E" : "%.*E") : (alt ? "%#.*e" : "%.*e"),
                       precision, fabs(f));
    else
        (void)snprintf(out, size,
                       upper ? (alt ? "%#.*G" : "%.*G") : (alt ? "%#.*g" : "%.*g"),
                       precision, fabs(f));
}

static bool precision_ok(struct td_render *r, int64_t precision)
{
    if (precision > PRECISION_MAX)
        td_render_fail(r, "a precision above %d is not supported", PRECISION_MAX);
    return precision <= PRECISION_MAX;
}

static const char *sign_of(bool negative, char sign)
{
    return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

/* The text of repr(v) in ASCII. */
static struct td_value ascii_repr(struct td_render *r, struct td_value v)
{
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    td_value_repr(r, v);
    struct td_value s = td_render_end_capture(r, c, before);
    size_t n;
    c = td_render_capture(r, &before);
    for (size_t i = 0; i < s.len && td_render_ok(r); i += n) {
        int32_t ch = td_str_char(s.u.s + i, s.len - i, &n);
        if (ch < 0x80)
            td_render_put(r, s.u.s + i, n);
        else
            td_render_putf(r,
                           ch < 0x100     ? "\\x%02x"
                           : ch < 0x10000 ? "\\u%04x"
                                          : "\\U%08x",
                           (unsigned)ch);
    }
    return td_render_end_capture(r, c, before);
}

static struct td_value repr_of(struct td_render *r, struct td_value v)
{
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    td_value_repr(r, v);
    return td_render_end_capture(r, c, before);
}

/* ---- % --------------------------------------------------------------------------- */

/* Where the arguments of one % formatting come from. */
struct source {
    struct td_value args;
    bool tuple, mapping;
    size_t used;
    bool safe; /* the format is safe: what goes in is escaped */
};

static struct td_value next_arg(struct td_render *r, struct source *src)
{
    size_t i = src->used++;
    if (src->tuple && i < src->args.len)
        return src->args.u.items->v[i];
    if (!src->tuple && i == 0)
        return src->args;
    return td_render_fail(r, "not enough arguments for format string");
}

static void percent_int(struct td_render *r, struct spec *sp, struct td_value v)
{
    char text[NUMBER_MAX], prefix[8];
    int64_t i = 0;
    bool decimal = strchr("diu", sp->type) != NULL;
    if (td_value_is_int(v)) {
        i = td_value_as_int(v);
    } else if (decimal && v.kind == TD_V_FLOAT) {
        if (!(fabs(v.u.f) < 9223372036854775808.0)) {
            td_render_fail(r, "cannot convert a float to a 64-bit integer");
            return;
        }
        i = (int64_t)v.u.f;
    } else {
        td_render_fail(r, "%%%c format: %s is required, not %s", sp->type,
                       decimal ? "a real number" : "an integer", td_value_type(v));
        return;
    }
    int base = (sp->type | 32) == 'x' ? 16 : sp->type == 'o' ? 8 : 10;
    size_t n = int_digits(magnitude(i), base, sp->type == 'X', text);
    if (!precision_ok(r, sp->precision))
        return;
    if ((int64_t)n < sp->precision) {
        size_t zeros = (size_t)sp->precision - n;
        memmove(text + zeros, text, n + 1);
        memset(text, '0', zeros);
    }
    (void)snprintf(prefix, sizeof(prefix), "%s%s", sign_of(i < 0, sp->sign),
                   !sp->alt || base == 10 ? ""
                   : base == 8            ? "0o"
                   : sp->type == 'X'      ? "0X"
                                          : "0x");
    char align = sp->align ? sp->align : sp->zero ? '=' : '>';
    sp->fill = td_value_cstr(sp->zero && align == '=' ? "0" : " ");
    put_padded(r, sp, prefix, td_value_cstr(text), align);
}

static void percent_float(struct td_render *r, struct spec *sp, struct td_value v)
{
    char text[NUMBER_MAX];
    if (!td_value_is_number(v)) {
        if (v.kind == TD_V_UNDEF)
            td_value_use_undef(r, v);
        td_render_fail(r, "must be real number, not %s", td_value_type(v));
        return;
    }
    if (!precision_ok(r, sp->precision))
        return;
    double f = td_value_as_double(v);
    int precision = sp->precision < 0 ? 6 : (int)sp->precision;
    float_digits(text, sizeof(text), f, sp->type, precision, sp->alt);
    char align = sp->align ? sp->align : sp->zero ? '=' : '>';
    sp->fill = td_value_cstr(sp->zero && align == '=' ? "0" : " ");
    put_padded(r, sp, sign_of(signbit(f) && !isnan(f), sp->sign), td_value_cstr(text),
               align);
}

/* A code point that UTF-8 can hold: surrogates are none. */
static bool is_char(int64_t i)
{
    return i >= 0 && i < 0x110000 && (i < 0xD800 || i >= 0xE000);
}

static void percent_text(struct td_render *r, struct spec *sp, struct td_value v,
                         bool safe)
{
    struct td_value s;
    char c[4];
    if (sp->type == 'c') {
        if (td_value_is_int(v) && is_char(td_value_as_int(v))) {
            size_t n = td_char_encode((int32_t)td_value_as_int(v), c);
            s = td_value_str(c, n);
        } else if (v.kind == TD_V_STR && td_str_chars(v.u.s, v.len) == 1) {
            s = v;
        } else {
            td_render_fail(r, "%%c requires int or char");
            return;
        }
    } else if (sp->type == 's') {
        s = safe ? td_value_escape(r, v) : td_value_to_plain(r, v);
    } else {
        s = sp->type == 'r' ? repr_of(r, v) : ascii_repr(r, v);
        s = safe ? td_value_escape(r, s) : s;
    }
    if (sp->precision >= 0 && sp->type != 'c' && td_render_ok(r))
        s.len = (uint32_t)td_str_offset(s.u.s, s.len, (size_t)sp->precision);
    sp->fill = td_value_cstr(" ");
    put_padded(r, sp, "", s, sp->align ? sp->align : '>');
}

/* Width or precision: digits or *. */
static const char *percent_number(struct td_render *r, struct source *src,
                                  const char *p, const char *end, int64_t *out)
{
    if (p < end && *p == '*') {
        struct td_value v = next_arg(r, src);
        if (td_render_ok(r) && !td_value_is_int(v))
            td_render_fail(r, "* wants int");
        *out = td_render_ok(r) ? td_value_as_int(v) : 0;
        return p + 1;
    }
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (*out <= TD_MAX_TEMPLATE_WIDTH)
            *out = (*out < 0 ? 0 : *out) * 10 + (*p - '0');
    return p;
}

/* (key) of a mapping. */
static const char *percent_key(struct td_render *r, const struct source *src,
                               const char *p, const char *end, struct td_value *v)
{
    const char *start = ++p;
    int depth = 1;
    for (; p < end && depth > 0; p++)
        depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
    if (depth > 0) {
        td_render_fail(r, "incomplete format key");
        return end;
    }
    struct td_value key = td_value_str(start, (size_t)(p - 1 - start));
    if (!src->mapping || src->args.kind != TD_V_DICT) {
        td_render_fail(r, "format requires a mapping");
        return p;
    }
    const struct td_value *found = td_value_dict_get(r, src->args.u.dict, key);
    if (found) {
        *v = *found;
    } else {
        struct td_shown shown = td_value_show(r, key);
        td_render_fail(r, "there is no key %s", shown.s);
    }
    return p;
}

static const char *percent_flags(const char *p, const char *end, struct spec *sp)
{
    for (; p < end && *p && strchr("-+ #0", *p); p++) {
        if (*p == '-')
            sp->align = '<';
        else if (*p == '+' || (*p == ' ' && !sp->sign))
            sp->sign = *p;
        else if (*p == '#')
            sp->alt = true;
        else if (*p == '0')
            sp->zero = true;
    }
    return p;
}

/* One conversion; p is behind the %. */
static const char *percent_one(struct td_render *r, struct source *src, const char *p,
                               const char *end)
{
    struct spec sp = {.width = 0, .precision = -1};
    struct td_value v = {.kind = TD_V_MISSING};
    if (p < end && *p == '(')
        p = percent_key(r, src, p, end, &v);
    p = percent_flags(p, end, &sp);
    p = percent_number(r, src, p, end, &sp.width);
    if (sp.width < 0) {
        sp.align = '<';
        sp.width = sp.width == INT64_MIN ? INT64_MAX : -sp.width;
    }
    if (p < end && *p == '.') {
        sp.precision = 0;
        p = percent_number(r, src, p + 1, end, &sp.precision);
        sp.precision = TD_MAX(sp.precision, (int64_t)0);
    }
    if (p < end && (*p == 'h' || *p == 'l' || *p == 'L'))
        p++;
    if (p >= end) {
        td_render_fail(r, "incomplete format");
        return end;
    }
    sp.type = *p;
    if (sp.type == '%') {
        td_render_puts(r, "%");
        return p + 1;
    }
    if (!strchr("diuxXoeEfFgGcrsa", sp.type)) {
        td_render_fail(r, "unsupported format character '%c'", sp.type);
        return p + 1;
    }
    if (v.kind == TD_V_MISSING && td_render_ok(r))
        v = next_arg(r, src);
    if (!td_render_ok(r))
        return p + 1;
    if (strchr("diuxXo", sp.type))
        percent_int(r, &sp, v);
    else if (strchr("crsa", sp.type))
        percent_text(r, &sp, v, src->safe);
    else
        percent_float(r, &sp, v);
    return p + 1;
}

struct td_value td_value_percent(struct td_render *r, struct td_value format,
                                 struct td_value args)
{
    struct source src = {.args = args,
                         .tuple = args.kind == TD_V_TUPLE,
                         .mapping = args.kind == TD_V_DICT || args.kind == TD_V_LIST ||
                                    args.kind == TD_V_RANGE || args.kind == TD_V_UNDEF,
                         .safe = format.flags & TD_VF_SAFE};
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    const char *p = format.u.s, *end = p + format.len;
    while (p < end && td_render_ok(r)) {
        const char *percent = memchr(p, '%', (size_t)(end - p));
        const char *stop = percent ? percent : end;
        td_render_put(r, p, (size_t)(stop - p));
        p = percent ? percent_one(r, &src, percent + 1, end) : end;
    }
    size_t have = src.tuple ? args.len : 1;
    if (td_render_ok(r) && !src.mapping && src.used < have)
        td_render_fail(r, "not all arguments converted during string formatting");
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = format.flags;
    return v;
}

/* ---- {} : one value by its specification ------------------------------------------ */

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static const char *parse_align(const char *p, const char *end, struct spec *sp)
{
    size_t n = 0;
    if (p < end)
        (void)td_str_char(p, (size_t)(end - p), &n);
    if (p + n < end && is_align(p[n])) {
        sp->fill = td_value_str(p, n);
        sp->filled = true;
        sp->align = p[n];
        return p + n + 1;
    }
    if (p < end && is_align(*p))
        sp->align = *p++;
    return p;
}

/* [[fill]align][sign][#][0][width][,_][.precision][type] */
static bool parse_spec(struct td_render *r, struct td_value text, struct spec *sp)
{
    const char *p = text.u.s, *end = p + text.len;
    *sp = (struct spec){.fill = td_value_cstr(" "), .width = -1, .precision = -1};
    p = parse_align(p, end, sp);
    if (p < end && (*p == '+' || *p == '-' || *p == ' '))
        sp->sign = *p++;
    if (p < end && *p == '#') {
        sp->alt = true;
        p++;
    }
    if (p < end && *p == '0' && !sp->filled) {
        sp->zero = true;
        sp->fill = td_value_cstr("0");
        p++;
    }
    p = percent_number(r, NULL, p, p < end && *p == '*' ? p : end, &sp->width);
    if (p < end && (*p == ',' || *p == '_'))
        sp->group = *p++;
    if (p < end && *p == '.') {
        const char *digits = ++p;
        p = percent_number(r, NULL, p, p < end && *p == '*' ? p : end, &sp->precision);
        if (p == digits) {
            td_render_fail(r, "Format specifier missing precision");
            return false;
        }
    }
    if (p < end)
        sp->type = *p++;
    if (p < end) {
        td_render_fail(r, "Invalid format specifier");
        return false;
    }
    return true;
}

/* Puts separators between the digits before the point; with zero padding the zeros
 * count as digits. Returns a new string in the render's memory. */
static struct td_value grouped(struct td_render *r, const struct spec *sp,
                               const char *text, size_t prefix)
{
    size_t whole = strspn(text, "0123456789abcdefABCDEF"), rest = strlen(text + whole);
    bool decimal = !sp->type || !strchr("bxXo", sp->type);
    size_t each = decimal ? 3 : 4, zeros = 0;
    if (decimal) {
        whole = strspn(text, "0123456789");
        rest = strlen(text + whole);
    }
    if (td_value_str_is(sp->fill, "0") && sp->align == '=' && sp->width > 0) {
        size_t width = (size_t)TD_MIN(sp->width, (int64_t)TD_MAX_TEMPLATE_WIDTH);
        while (prefix + whole + zeros + (whole + zeros - 1) / each + rest < width)
            zeros++;
    }
    size_t digits = whole + zeros, total = digits + (digits - 1) / each + rest, k = 0;
    char *out = td_render_alloc(r, total + 1, 1);
    if (!out || whole == 0)
        return td_value_cstr(text);
    for (size_t i = 0; i < digits; i++) {
        if (i && (digits - i) % each == 0)
            out[k++] = sp->group;
        out[k++] = i < zeros ? '0' : text[i - zeros];
    }
    memcpy(out + k, text + whole, rest);
    return td_value_str(out, k + rest);
}

static void put_number(struct td_render *r, struct spec *sp, const char *prefix,
                       const char *text)
{
    if (sp->zero && !sp->align)
        sp->align = '=';
    struct td_value body =
        sp->group ? grouped(r, sp, text, strlen(prefix)) : td_value_cstr(text);
    put_padded(r, sp, prefix, body, sp->align ? sp->align : '>');
}

static void bad_type(struct td_render *r, const struct spec *sp, struct td_value v)
{
    td_render_fail(r, "Unknown format code '%c' for object of type '%s'", sp->type,
                   td_value_type(v));
}

/* Type none with a precision: like g, but never without a point, and with an exponent
 * one digit sooner. `alt` keeps zeros at the end. */
static void general_digits(char *out, size_t size, double f, int precision, bool alt)
{
    char sci[NUMBER_MAX];
    precision = precision ? precision : 1;
    float_digits(sci, sizeof(sci), f, 'e', precision - 1, alt);
    const char *e = strchr(sci, 'e');
    int64_t exp = 0;
    if (!e || td_int_parse(e + 1, strlen(e + 1), 10, &exp) != TD_NUMBER_OK) {
        (void)snprintf(out, size, "%s", sci);
        return;
    }
    if (exp >= -4 && exp < precision - 1) {
        float_digits(out, size, f, 'g', precision, alt);
        if (!strchr(out, '.'))
            (void)snprintf(out + strlen(out), size - strlen(out), ".0");
        return;
    }
    size_t n = (size_t)(e - sci);
    if (!alt && memchr(sci, '.', n)) {
        while (sci[n - 1] == '0')
            n--;
        n -= sci[n - 1] == '.';
    }
    (void)snprintf(out, size, "%.*s%s", (int)n, sci, e);
}

static void format_float(struct td_render *r, struct spec *sp, struct td_value v)
{
    char text[NUMBER_MAX];
    double f = td_value_as_double(v);
    bool percent = sp->type == '%';
    if (!precision_ok(r, sp->precision))
        return;
    if (sp->type && !strchr("eEfFgGn%", sp->type)) {
        bad_type(r, sp, v);
        return;
    }
    int precision = sp->precision < 0 ? 6 : (int)sp->precision;
    if (!sp->type && sp->precision < 0)
        td_float_repr(text, sizeof(text), fabs(f));
    else if (!sp->type)
        general_digits(text, sizeof(text), f, precision, sp->alt);
    else
        float_digits(text, sizeof(text), percent ? f * 100.0 : f,
                     percent           ? 'f'
                     : sp->type == 'n' ? 'g'
                                       : sp->type,
                     precision, sp->alt);
    if (percent)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%%");
    put_number(r, sp, sign_of(signbit(f) && !isnan(f), sp->sign), text);
}

static void format_char(struct td_render *r, struct spec *sp, int64_t i)
{
    char text[8];
    if (sp->sign || sp->alt || !is_char(i)) {
        td_render_fail(r, is_char(i) ? "Sign and # are not allowed with 'c'"
                                     : "%%c arg not in range(0x110000)");
        return;
    }
    text[td_char_encode((int32_t)i, text)] = 0;
    put_number(r, sp, "", text);
}

static void format_int(struct td_render *r, struct spec *sp, struct td_value v)
{
    char text[NUMBER_MAX], prefix[8];
    int64_t i = td_value_as_int(v);
    if (sp->type && strchr("eEfFgG%", sp->type)) {
        format_float(r, sp, td_value_float((double)i));
        return;
    }
    if (sp->type && !strchr("bcdoxXn", sp->type)) {
        bad_type(r, sp, v);
        return;
    }
    if (sp->precision >= 0) {
        td_render_fail(r, "Precision not allowed in integer format specifier");
        return;
    }
    if (sp->type == 'c') {
        format_char(r, sp, i);
        return;
    }
    int base = sp->type == 'b'          ? 2
               : sp->type == 'o'        ? 8
               : (sp->type | 32) == 'x' ? 16
                                        : 10;
    int_digits(magnitude(i), base, sp->type == 'X', text);
    const char *mark = !sp->alt || base == 10 ? ""
                       : base == 2            ? "0b"
                       : base == 8            ? "0o"
                       : sp->type == 'X'      ? "0X"
                                              : "0x";
    (void)snprintf(prefix, sizeof(prefix), "%s%s", sign_of(i < 0, sp->sign), mark);
    put_number(r, sp, prefix, text);
}

static void format_str(struct td_render *r, struct spec *sp, struct td_value s)
{
    if (sp->type && sp->type != 's') {
        bad_type(r, sp, s);
        return;
    }
    if (sp->sign || sp->align == '=' || sp->group || sp->alt) {
        td_render_fail(r, "a string cannot be formatted like a number");
        return;
    }
    if (sp->precision >= 0)
        s.len = (uint32_t)td_str_offset(s.u.s, s.len, (size_t)sp->precision);
    put_padded(r, sp, "", s, sp->align ? sp->align : '<');
}

/* format(v, text) */
static void format_value(struct td_render *r, struct td_value v, struct td_value text)
{
    struct spec sp;
    if (text.len == 0) {
        td_value_print(r, v);
        return;
    }
    if (!td_value_is_number(v) && v.kind != TD_V_STR) {
        td_render_fail(r, "unsupported format string passed to %s.__format__",
                       td_value_type(v));
        return;
    }
    if (!parse_spec(r, text, &sp))
        return;
    const char *groups = sp.group == ',' ? "deEfFgG%" : "deEfFgG%bxXo";
    if (sp.group && sp.type && !strchr(groups, sp.type)) {
        td_render_fail(r, "Cannot specify '%c' with '%c'.", sp.group, sp.type);
        return;
    }
    if (v.kind == TD_V_STR)
        format_str(r, &sp, v);
    else if (v.kind == TD_V_FLOAT)
        format_float(r, &sp, v);
    else
        format_int(r, &sp, v);
}

/* ---- {} : fields ----------------------------------------------------------------- */

struct fields {
    const struct td_call *call;
    int64_t next; /* automatic number; -1: numbers are given */
    bool safe;
};

static struct td_value field_start(struct td_render *r, struct fields *f,
                                   struct td_value name)
{
    int64_t i = 0;
    enum td_number n = td_int_parse(name.u.s, name.len, 10, &i);
    if (name.len == 0) {
        if (f->next < 0)
            return td_render_fail(r, "cannot switch from manual field specification to "
                                     "automatic field numbering");
        i = f->next++;
    } else if (n == TD_NUMBER_OK && i >= 0) {
        if (f->next > 0)
            return td_render_fail(r, "cannot switch from automatic field numbering to "
                                     "manual field specification");
        f->next = -1;
    } else {
        for (size_t k = 0; k < f->call->nkw; k++)
            if (td_value_eq(r, f->call->names[k], name))
                return f->call->values[k];
        struct td_shown shown = td_value_show(r, name);
        return td_render_fail(r, "there is no argument %s", shown.s);
    }
    if ((size_t)i >= f->call->npos)
        return td_render_fail(
            r, "Replacement index %lld out of range for positional args tuple",
            (long long)i);
    return f->call->pos[i];
}

/* name.attr[item] */
static struct td_value field_value(struct td_render *r, struct fields *f,
                                   struct td_value text)
{
    size_t i = 0;
    while (i < text.len && text.u.s[i] != '.' && text.u.s[i] != '[')
        i++;
    struct td_value v = field_start(r, f, td_value_str(text.u.s, i));
    while (i < text.len && td_render_ok(r)) {
        bool item = text.u.s[i] == '[';
        size_t from = ++i;
        while (i < text.len &&
               (item ? text.u.s[i] != ']' : text.u.s[i] != '.' && text.u.s[i] != '['))
            i++;
        struct td_value key = td_value_str(text.u.s + from, i - from);
        int64_t n = 0;
        if (key.len == 0 || (item && i == text.len))
            return td_render_fail(r, "Empty attribute in format string");
        if (item && td_int_parse(key.u.s, key.len, 10, &n) == TD_NUMBER_OK && n >= 0)
            key = td_value_int(n);
        v = item ? td_value_item(r, v, key) : td_value_attr(r, v, key);
        i += item;
    }
    return v;
}

static void format_text(struct td_render *r, struct fields *f, struct td_value text,
                        int depth);

/* The end of the field whose { is before `i`: the position of its }. */
static size_t field_end(struct td_value text, size_t i)
{
    int open = 1;
    for (; i < text.len; i++) {
        open += text.u.s[i] == '{' ? 1 : text.u.s[i] == '}' ? -1 : 0;
        if (open == 0)
            return i;
    }
    return text.len;
}

/* What is between { and }. */
static void put_field(struct td_render *r, struct fields *f, struct td_value text,
                      int depth)
{
    struct td_buf *before;
    size_t i = 0;
    while (i < text.len && text.u.s[i] != '!' && text.u.s[i] != ':') {
        if (text.u.s[i] == '[')
            while (i < text.len && text.u.s[i] != ']')
                i++;
        i += i < text.len;
    }
    struct td_value v = field_value(r, f, td_value_str(text.u.s, i));
    if (i < text.len && text.u.s[i] == '!') {
        char how = i + 1 < text.len ? text.u.s[i + 1] : 0;
        if (!how || !strchr("rsa", how) ||
            (i + 2 < text.len && text.u.s[i + 2] != ':')) {
            td_render_fail(r, "a conversion in a format string must be !r, !s or !a");
            return;
        }
        v = how == 'r'   ? repr_of(r, v)
            : how == 'a' ? ascii_repr(r, v)
                         : td_value_to_plain(r, v);
        i += 2;
    }
    size_t from = TD_MIN(i + 1, (size_t)text.len);
    struct td_capture *c = td_render_capture(r, &before);
    format_text(r, f, td_value_str(text.u.s + from, text.len - from), depth + 1);
    struct td_value spec = td_render_end_capture(r, c, before);
    if (!td_render_ok(r))
        return;
    if (!f->safe || depth) {
        format_value(r, v, spec);
        return;
    }
    c = td_render_capture(r, &before);
    format_value(r, v, spec);
    struct td_value s = td_render_end_capture(r, c, before);
    if (td_render_ok(r) && v.kind == TD_V_STR)
        s.flags = v.flags;
    td_value_print(r, td_value_escape(r, s));
}

static void format_text(struct td_render *r, struct fields *f, struct td_value text,
                        int depth)
{
    if (depth > 1 && memchr(text.u.s, '{', text.len)) {
        td_render_fail(r, "Max string recursion exceeded");
        return;
    }
    for (size_t i = 0; i < text.len && td_render_ok(r);) {
        char c = text.u.s[i];
        bool twice = i + 1 < text.len && text.u.s[i + 1] == c;
        if (c != '{' && c != '}') {
            size_t from = i;
            while (i < text.len && text.u.s[i] != '{' && text.u.s[i] != '}')
                i++;
            td_render_put(r, text.u.s + from, i - from);
        } else if (twice) {
            td_render_put(r, &c, 1);
            i += 2;
        } else if (c == '}') {
            td_render_fail(r, "Single '}' encountered in format string");
        } else {
            size_t end = field_end(text, i + 1);
            if (end == text.len) {
                td_render_fail(r, "expected '}' before end of string");
                return;
            }
            put_field(r, f, td_value_str(text.u.s + i + 1, end - i - 1), depth);
            i = end + 1;
        }
    }
}

struct td_value td_value_format(struct td_render *r, struct td_value format,
                                const struct td_call *call)
{
    struct fields f = {.call = call, .safe = format.flags & TD_VF_SAFE};
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    format_text(r, &f, format, 0);
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = format.flags;
    return v;
}

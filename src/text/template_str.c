/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of strings. Positions are in characters, as in Python; results of a safe
 * string are safe.
 */
#include "base/limits.h"
#include "base/utf8.h"
#include "text/template_value.h"

#include <string.h>
#include <utf8proc.h>

/* Pieces of a safe string are safe. */
static void mark_items(struct td_value list, uint8_t flags)
{
    for (uint32_t i = 0; flags && i < list.len; i++)
        list.u.items->v[i].flags = flags;
}

/* A piece of self. */
static struct td_value piece(struct td_value self, size_t from, size_t n)
{
    self.u.s += from;
    self.len = (uint32_t)n;
    return self;
}

/* ---- case ------------------------------------------------------------------------ */

TD_BUILTIN_RUN(str_upper)
{
    (void)a;
    return td_str_case(r, self, TD_CASE_UPPER);
}

TD_BUILTIN_RUN(str_lower)
{
    (void)a;
    return td_str_case(r, self, TD_CASE_LOWER);
}

TD_BUILTIN_RUN(str_casefold)
{
    (void)a;
    return td_str_case(r, self, TD_CASE_FOLD);
}

TD_BUILTIN_RUN(str_capitalize)
{
    (void)a;
    return td_str_capitalize(r, self);
}

static bool is_cased(int32_t c)
{
    return td_char_is_lower(c) || td_char_is_upper(c) || td_char_is_title(c);
}

/* title(): a letter after a letter is lower case; swapcase(): the other one. */
static struct td_value change_case(struct td_render *r, struct td_value self,
                                   bool title)
{
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    bool inside = false;
    size_t n;
    td_render_charge(r, self.len / 8);
    for (size_t i = 0; i < self.len && td_render_ok(r); i += n) {
        int32_t ch = td_str_char(self.u.s + i, self.len - i, &n);
        if (title)
            td_str_put_case(r, self, i, inside ? TD_CASE_LOWER : TD_CASE_TITLE);
        else if (td_char_is_upper(ch))
            td_str_put_case(r, self, i, TD_CASE_LOWER);
        else if (td_char_is_lower(ch))
            td_str_put_case(r, self, i, TD_CASE_UPPER);
        else
            td_render_put(r, self.u.s + i, n);
        inside = is_cased(ch);
    }
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = self.flags;
    return v;
}

TD_BUILTIN_RUN(str_title)
{
    (void)a;
    return change_case(r, self, true);
}

TD_BUILTIN_RUN(str_swapcase)
{
    (void)a;
    return change_case(r, self, false);
}

/* ---- strip, pad ------------------------------------------------------------------ */

TD_BUILTIN_RUN(str_strip)
{
    return td_str_strip(r, self, a[0], true, true);
}

TD_BUILTIN_RUN(str_lstrip)
{
    return td_str_strip(r, self, a[0], true, false);
}

TD_BUILTIN_RUN(str_rstrip)
{
    return td_str_strip(r, self, a[0], false, true);
}

/* The fill character of a[1]; a blank when it is not given. */
static bool fill_char(struct td_render *r, const struct td_value *a,
                      struct td_value *out)
{
    *out = td_value_cstr(" ");
    if (a[1].kind == TD_V_MISSING)
        return true;
    if (!td_arg_str(r, a[1], "padding"))
        return false;
    if (td_str_chars(a[1].u.s, a[1].len) != 1) {
        td_render_fail(r, "The fill character must be exactly one character long");
        return false;
    }
    *out = a[1];
    return true;
}

TD_BUILTIN_RUN(str_center)
{
    struct td_value fill;
    if (!fill_char(r, a, &fill))
        return td_value_undef();
    return td_str_center(r, self, td_arg_int(r, a[0], 0, "center"), fill);
}

/* self with `n` fills on one side. */
static struct td_value padded(struct td_render *r, struct td_value self, int64_t width,
                              struct td_value fill, size_t at)
{
    int64_t gap = width - td_value_len(r, self);
    if (gap <= 0)
        return self;
    if (width > TD_MAX_TEMPLATE_WIDTH)
        return TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_WIDTH);
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    td_render_put(r, self.u.s, at);
    for (; gap > 0 && td_render_ok(r); gap--)
        td_render_put(r, fill.u.s, fill.len);
    td_render_put(r, self.u.s + at, self.len - at);
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = self.flags;
    return v;
}

TD_BUILTIN_RUN(str_ljust)
{
    struct td_value fill;
    if (!fill_char(r, a, &fill))
        return td_value_undef();
    return padded(r, self, td_arg_int(r, a[0], 0, "ljust"), fill, self.len);
}

TD_BUILTIN_RUN(str_rjust)
{
    struct td_value fill;
    if (!fill_char(r, a, &fill))
        return td_value_undef();
    return padded(r, self, td_arg_int(r, a[0], 0, "rjust"), fill, 0);
}

TD_BUILTIN_RUN(str_zfill)
{
    bool sign = self.len && (self.u.s[0] == '-' || self.u.s[0] == '+');
    return padded(r, self, td_arg_int(r, a[0], 0, "zfill"), td_value_cstr("0"), sign);
}

TD_BUILTIN_RUN(str_expandtabs)
{
    int64_t size = td_arg_int(r, a[0], 8, "expandtabs"), column = 0;
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    size_t n;
    if (size > TD_MAX_TEMPLATE_WIDTH)
        TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_WIDTH);
    td_render_charge(r, self.len / 8);
    for (size_t i = 0; i < self.len && td_render_ok(r); i += n) {
        int32_t ch = td_str_char(self.u.s + i, self.len - i, &n);
        if (ch != '\t') {
            td_render_put(r, self.u.s + i, n);
            column = ch == '\n' || ch == '\r' ? 0 : column + 1;
            continue;
        }
        for (int64_t k = size > 0 ? size - column % size : 0; k > 0; k--, column++)
            td_render_put(r, " ", 1);
    }
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = self.flags;
    return v;
}

/* ---- searching ------------------------------------------------------------------- */

/* The bytes of self[start:end] for find() and its like. start_chars: where it begins,
 * in characters; false when start is past the end (nothing is found then). */
static bool window(struct td_render *r, struct td_value self, const struct td_value *a,
                   struct td_value *out, int64_t *start_chars)
{
    int64_t n = td_value_len(r, self), i0, by, count;
    if (!td_slice_range(r, n, a[0], a[1], td_value_none(), &i0, &by, &count))
        return false;
    *start_chars = i0;
    int64_t from =
        td_arg_given(a[0]) && td_value_is_int(a[0]) ? td_value_as_int(a[0]) : 0;
    int64_t to =
        td_arg_given(a[1]) && td_value_is_int(a[1]) ? td_value_as_int(a[1]) : n;
    if (from > n || (to < 0 ? TD_MAX(to + n, (int64_t)0) : to) < i0)
        return false;
    size_t at = td_str_offset(self.u.s, self.len, (size_t)i0);
    size_t len = td_str_offset(self.u.s + at, self.len - at, (size_t)count);
    *out = piece(self, at, len);
    return true;
}

/* find, rfind: the position in characters or -1. */
static int64_t position(struct td_render *r, struct td_value self,
                        const struct td_value *a, bool from_right)
{
    struct td_value w;
    int64_t start;
    if (!td_arg_str(r, a[0], "find") || !window(r, self, a + 1, &w, &start))
        return -1;
    int64_t at = from_right ? td_str_rfind(r, w.u.s, w.len, a[0].u.s, a[0].len)
                            : td_str_find(r, w.u.s, w.len, a[0].u.s, a[0].len);
    return at < 0 ? -1 : start + (int64_t)td_str_chars(w.u.s, (size_t)at);
}

TD_BUILTIN_RUN(str_find)
{
    return td_value_int(position(r, self, a, false));
}

TD_BUILTIN_RUN(str_rfind)
{
    return td_value_int(position(r, self, a, true));
}

static struct td_value found(struct td_render *r, int64_t at)
{
    return at < 0 ? td_render_fail(r, "substring not found") : td_value_int(at);
}

TD_BUILTIN_RUN(str_index)
{
    return found(r, position(r, self, a, false));
}

TD_BUILTIN_RUN(str_rindex)
{
    return found(r, position(r, self, a, true));
}

TD_BUILTIN_RUN(str_count)
{
    struct td_value w;
    int64_t start, count = 0;
    if (!td_arg_str(r, a[0], "count") || !window(r, self, a + 1, &w, &start))
        return td_value_int(0);
    if (a[0].len == 0)
        return td_value_int(td_value_len(r, w) + 1);
    for (size_t i = 0; td_render_ok(r); count++) {
        int64_t at = td_str_find(r, w.u.s + i, w.len - i, a[0].u.s, a[0].len);
        if (at < 0)
            break;
        i += (size_t)at + a[0].len;
    }
    return td_value_int(count);
}

/* startswith, endswith: a string or a tuple of them. */
static struct td_value has_affix(struct td_render *r, struct td_value self,
                                 const struct td_value *a, bool end)
{
    const char *name = end ? "endswith" : "startswith";
    struct td_value w;
    int64_t start;
    bool tuple = a[0].kind == TD_V_TUPLE, in = window(r, self, a + 1, &w, &start);
    if (!tuple && a[0].kind != TD_V_STR)
        return td_render_fail(r, "%s first arg must be str or a tuple of str, not %s",
                              name, td_value_type(a[0]));
    for (uint32_t i = 0; i < (tuple ? a[0].len : 1) && td_render_ok(r); i++) {
        struct td_value x = tuple ? a[0].u.items->v[i] : a[0];
        if (x.kind != TD_V_STR)
            return td_render_fail(r, "tuple for %s must only contain str, not %s", name,
                                  td_value_type(x));
        if (in && x.len <= w.len && td_render_charge(r, x.len / 64) &&
            memcmp(w.u.s + (end ? w.len - x.len : 0), x.u.s, x.len) == 0)
            return td_value_bool(true);
    }
    return td_value_bool(false);
}

TD_BUILTIN_RUN(str_startswith)
{
    return has_affix(r, self, a, false);
}

TD_BUILTIN_RUN(str_endswith)
{
    return has_affix(r, self, a, true);
}

TD_BUILTIN_RUN(str_removeprefix)
{
    if (!td_arg_str(r, a[0], "removeprefix"))
        return td_value_undef();
    bool has = a[0].len <= self.len && memcmp(self.u.s, a[0].u.s, a[0].len) == 0;
    return has ? piece(self, a[0].len, self.len - a[0].len) : self;
}

TD_BUILTIN_RUN(str_removesuffix)
{
    if (!td_arg_str(r, a[0], "removesuffix"))
        return td_value_undef();
    size_t rest = self.len - TD_MIN(a[0].len, self.len);
    bool has = a[0].len <= self.len && memcmp(self.u.s + rest, a[0].u.s, a[0].len) == 0;
    return has ? piece(self, 0, rest) : self;
}

TD_BUILTIN_RUN(str_replace)
{
    if (!td_arg_str(r, a[0], "replace") || !td_arg_str(r, a[1], "replace"))
        return td_value_undef();
    struct td_value new_ = self.flags ? td_value_escape(r, a[1]) : a[1];
    return td_str_replace(r, self, a[0], new_, td_arg_int(r, a[2], -1, "replace"));
}

/* ---- splitting ------------------------------------------------------------------- */

/* split() without a separator: runs of white space. */
static struct td_value split_words(struct td_render *r, struct td_value s, int64_t max)
{
    struct td_value out = td_value_list(r, TD_V_LIST, 0);
    size_t i = 0, n;
    td_render_charge(r, s.len / 8);
    while (td_render_ok(r)) {
        while (i < s.len && td_char_is_space(td_str_char(s.u.s + i, s.len - i, &n)))
            i += n;
        if (i >= s.len)
            break;
        if (max == 0) {
            td_value_push(r, &out, piece(s, i, s.len - i));
            break;
        }
        size_t from = i;
        while (i < s.len && !td_char_is_space(td_str_char(s.u.s + i, s.len - i, &n)))
            i += n;
        td_value_push(r, &out, piece(s, from, i - from));
        max--;
    }
    return out;
}

static void reverse_items(struct td_value list)
{
    for (uint32_t i = 0, j = list.len; i + 1 < j; i++) {
        j--;
        struct td_value x = list.u.items->v[i];
        list.u.items->v[i] = list.u.items->v[j];
        list.u.items->v[j] = x;
    }
}

static struct td_value rsplit_words(struct td_render *r, struct td_value s, int64_t max)
{
    struct td_value out = td_value_list(r, TD_V_LIST, 0);
    td_render_charge(r, s.len / 8);
    while (td_render_ok(r)) {
        s = td_str_strip(r, s, td_value_none(), false, true);
        if (s.len == 0)
            break;
        if (max == 0) {
            td_value_push(r, &out, s);
            break;
        }
        size_t end = s.len, n;
        while (end > 0) {
            size_t start = td_str_back(s.u.s, end);
            if (td_char_is_space(td_str_char(s.u.s + start, end - start, &n)))
                break;
            end = start;
        }
        td_value_push(r, &out, piece(s, end, s.len - end));
        s.len = (uint32_t)end;
        max--;
    }
    if (td_render_ok(r))
        reverse_items(out);
    return out;
}

static struct td_value split_at(struct td_render *r, struct td_value s,
                                struct td_value sep, int64_t max, bool from_right)
{
    struct td_value out = td_value_list(r, TD_V_LIST, 0);
    while (max != 0 && td_render_ok(r)) {
        int64_t at = from_right ? td_str_rfind(r, s.u.s, s.len, sep.u.s, sep.len)
                                : td_str_find(r, s.u.s, s.len, sep.u.s, sep.len);
        if (at < 0)
            break;
        size_t n = (size_t)at, after = n + sep.len;
        if (from_right) {
            td_value_push(r, &out, piece(s, after, s.len - after));
            s.len = (uint32_t)n;
        } else {
            td_value_push(r, &out, piece(s, 0, n));
            s = piece(s, after, s.len - after);
        }
        max--;
    }
    td_value_push(r, &out, s);
    if (from_right && td_render_ok(r))
        reverse_items(out);
    return out;
}

static struct td_value split(struct td_render *r, struct td_value self,
                             const struct td_value *a, bool from_right)
{
    int64_t max = td_arg_int(r, a[1], -1, "split");
    struct td_value out;
    if (!td_arg_given(a[0]))
        return from_right ? rsplit_words(r, self, max) : split_words(r, self, max);
    if (!td_arg_str(r, a[0], "split"))
        return td_value_undef();
    if (a[0].len == 0)
        return td_render_fail(r, "empty separator");
    out = split_at(r, self, a[0], max, from_right);
    return out;
}

TD_BUILTIN_RUN(str_split)
{
    return split(r, self, a, false);
}

TD_BUILTIN_RUN(str_rsplit)
{
    return split(r, self, a, true);
}

TD_BUILTIN_RUN(str_splitlines)
{
    struct td_value out = td_str_lines(r, self, td_arg_bool(r, a[0], false));
    if (td_render_ok(r))
        mark_items(out, self.flags);
    return out;
}

static struct td_value partition(struct td_render *r, struct td_value self,
                                 struct td_value sep, bool from_right)
{
    if (!td_arg_str(r, sep, "partition"))
        return td_value_undef();
    if (sep.len == 0)
        return td_render_fail(r, "empty separator");
    int64_t at = from_right ? td_str_rfind(r, self.u.s, self.len, sep.u.s, sep.len)
                            : td_str_find(r, self.u.s, self.len, sep.u.s, sep.len);
    struct td_value none = piece(self, 0, 0), parts[3] = {self, none, none};
    if (at < 0 && from_right) {
        parts[0] = none;
        parts[2] = self;
    } else if (at >= 0) {
        size_t n = (size_t)at, after = n + sep.len;
        parts[0] = piece(self, 0, n);
        parts[1] = piece(self, n, sep.len);
        parts[2] = piece(self, after, self.len - after);
    }
    struct td_value out = td_value_list(r, TD_V_TUPLE, 3);
    for (int i = 0; i < 3; i++)
        td_value_push(r, &out, parts[i]);
    return out;
}

TD_BUILTIN_RUN(str_partition)
{
    return partition(r, self, a[0], false);
}

TD_BUILTIN_RUN(str_rpartition)
{
    return partition(r, self, a[0], true);
}

TD_BUILTIN_RUN(str_join)
{
    return td_str_join(r, self, a[0], false);
}

/* ---- questions ------------------------------------------------------------------- */

static bool is_alpha(int32_t c)
{
    if (c < 0x80)
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

/* Superscripts and circled digits are digits, too. */
static bool is_digit(int32_t c)
{
    return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
           (c >= 0x1369 && c <= 0x1371) || c == 0x19DA || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
           (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
           (c >= 0x2488 && c <= 0x2490) || c == 0x24EA ||
           (c >= 0x24F5 && c <= 0x24FD) || c == 0x24FF ||
           (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) ||
           (c >= 0x278A && c <= 0x2792) || (c >= 0x10A40 && c <= 0x10A43) ||
           (c >= 0x10E60 && c <= 0x10E68) || (c >= 0x11052 && c <= 0x1105A) ||
           (c >= 0x1F100 && c <= 0x1F10A);
}

static bool is_numeric(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_NO || is_digit(c);
}

static bool is_alnum(int32_t c)
{
    return is_alpha(c) || is_numeric(c);
}

/* Every character answers yes, and there is one. */
static struct td_value all_chars(struct td_render *r, struct td_value self,
                                 bool (*yes)(int32_t), bool empty)
{
    size_t n;
    td_render_charge(r, self.len / 16);
    for (size_t i = 0; i < self.len; i += n)
        if (!yes(td_str_char(self.u.s + i, self.len - i, &n)))
            return td_value_bool(false);
    return td_value_bool(self.len || empty);
}

static bool is_ascii(int32_t c)
{
    return c < 0x80;
}

#define QUESTION(name, test, empty)                                                    \
    TD_BUILTIN_RUN(name)                                                               \
    {                                                                                  \
        (void)a;                                                                       \
        return all_chars(r, self, test, empty);                                        \
    }

QUESTION(str_isalpha, is_alpha, false)
QUESTION(str_isalnum, is_alnum, false)
QUESTION(str_isdecimal, is_decimal, false)
QUESTION(str_isdigit, is_digit, false)
QUESTION(str_isnumeric, is_numeric, false)
QUESTION(str_isspace, td_char_is_space, false)
QUESTION(str_isascii, is_ascii, true)
QUESTION(str_isprintable, td_char_is_printable, true)

/* All cased characters are of one case, and there is one. */
static struct td_value one_case(struct td_render *r, struct td_value self, bool upper)
{
    bool any = false;
    size_t n;
    td_render_charge(r, self.len / 16);
    for (size_t i = 0; i < self.len; i += n) {
        int32_t c = td_str_char(self.u.s + i, self.len - i, &n);
        bool yes = upper ? td_char_is_upper(c) : td_char_is_lower(c);
        if (!yes && is_cased(c))
            return td_value_bool(false);
        any |= yes;
    }
    return td_value_bool(any);
}

TD_BUILTIN_RUN(str_islower)
{
    (void)a;
    return one_case(r, self, false);
}

TD_BUILTIN_RUN(str_isupper)
{
    (void)a;
    return one_case(r, self, true);
}

TD_BUILTIN_RUN(str_istitle)
{
    (void)a;
    bool any = false, inside = false;
    size_t n;
    td_render_charge(r, self.len / 16);
    for (size_t i = 0; i < self.len; i += n) {
        int32_t c = td_str_char(self.u.s + i, self.len - i, &n);
        bool upper = td_char_is_upper(c) || td_char_is_title(c);
        if (upper ? inside : td_char_is_lower(c) && !inside)
            return td_value_bool(false);
        inside = is_cased(c);
        any |= inside;
    }
    return td_value_bool(any);
}

TD_BUILTIN_RUN(str_isidentifier)
{
    (void)a;
    size_t n;
    for (size_t i = 0; i < self.len; i += n) {
        int32_t c = td_str_char(self.u.s + i, self.len - i, &n);
        if (!td_char_is_name(c) || (i == 0 && is_numeric(c)))
            return td_value_bool(false);
    }
    (void)r;
    return td_value_bool(self.len > 0);
}

/* ---- formatting ------------------------------------------------------------------ */

TD_BUILTIN_CALL(str_format)
{
    return td_value_format(r, self, call);
}

TD_BUILTIN_RUN(str_format_map)
{
    struct td_call call = {.pos = NULL};
    if (a[0].kind != TD_V_DICT)
        return td_render_fail(r, "format_map(): expected a dict, not %s",
                              td_value_type(a[0]));
    const struct td_vdict *d = a[0].u.dict;
    call.names = td_render_alloc(r, (size_t)d->count + 1, sizeof(*call.names));
    call.values = td_render_alloc(r, (size_t)d->count + 1, sizeof(*call.values));
    for (uint32_t i = 0; i < d->count && td_render_charge(r, 1); i++) {
        if (d->entries[i].key.kind != TD_V_STR)
            continue;
        call.names[call.nkw] = d->entries[i].key;
        call.values[call.nkw++] = d->entries[i].value;
    }
    return td_value_format(r, self, &call);
}

/* clang-format off */
const struct td_builtin td_str_methods[] = {
    {"strip", "/chars", 0, str_strip, NULL},
    {"lstrip", "/chars", 0, str_lstrip, NULL},
    {"rstrip", "/chars", 0, str_rstrip, NULL},
    {"split", "sep maxsplit", 0, str_split, NULL},
    {"rsplit", "sep maxsplit", 0, str_rsplit, NULL},
    {"splitlines", "keepends", 0, str_splitlines, NULL},
    {"startswith", "/prefix start end", 1, str_startswith, NULL},
    {"endswith", "/suffix start end", 1, str_endswith, NULL},
    {"replace", "/old new count", 2, str_replace, NULL},
    {"upper", "/", 0, str_upper, NULL},
    {"lower", "/", 0, str_lower, NULL},
    {"title", "/", 0, str_title, NULL},
    {"capitalize", "/", 0, str_capitalize, NULL},
    {"join", "/iterable", 1, str_join, NULL},
    {"find", "/sub start end", 1, str_find, NULL},
    {"rfind", "/sub start end", 1, str_rfind, NULL},
    {"index", "/sub start end", 1, str_index, NULL},
    {"rindex", "/sub start end", 1, str_rindex, NULL},
    {"count", "/sub start end", 1, str_count, NULL},
    {"format", NULL, 0, NULL, str_format},
    {"format_map", "/mapping", 1, str_format_map, NULL},
    {"partition", "/sep", 1, str_partition, NULL},
    {"rpartition", "/sep", 1, str_rpartition, NULL},
    {"removeprefix", "/prefix", 1, str_removeprefix, NULL},
    {"removesuffix", "/suffix", 1, str_removesuffix, NULL},
    {"casefold", "/", 0, str_casefold, NULL},
    {"swapcase", "/", 0, str_swapcase, NULL},
    {"center", "/width fillchar", 1, str_center, NULL},
    {"ljust", "/width fillchar", 1, str_ljust, NULL},
    {"rjust", "/width fillchar", 1, str_rjust, NULL},
    {"zfill", "/width", 1, str_zfill, NULL},
    {"expandtabs", "tabsize", 0, str_expandtabs, NULL},
    {"isalpha", "/", 0, str_isalpha, NULL},
    {"isalnum", "/", 0, str_isalnum, NULL},
    {"isascii", "/", 0, str_isascii, NULL},
    {"isdecimal", "/", 0, str_isdecimal, NULL},
    {"isdigit", "/", 0, str_isdigit, NULL},
    {"isidentifier", "/", 0, str_isidentifier, NULL},
    {"islower", "/", 0, str_islower, NULL},
    {"isnumeric", "/", 0, str_isnumeric, NULL},
    {"isprintable", "/", 0, str_isprintable, NULL},
    {"isspace", "/", 0, str_isspace, NULL},
    {"istitle", "/", 0, str_istitle, NULL},
    {"isupper", "/", 0, str_isupper, NULL},
    {NULL, NULL, 0, NULL, NULL},
};
/* clang-format on */

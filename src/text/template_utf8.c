/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings as Python sees them, on UTF-8 bytes: characters are code points, white space
 * and word characters are Unicode's, searches charge their work to the render (so that
 * a hostile pattern ends in the step limit instead of in quadratic time).
 */
#include "base/limits.h"
#include "base/utf8.h"
#include "text/template_value.h"

#include <string.h>
#include <utf8proc.h>

/* ---- characters ------------------------------------------------------------------ */

size_t td_str_chars(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

size_t td_str_offset(const char *s, size_t n, size_t chars)
{
    size_t i = 0;
    while (i < n && chars > 0) {
        i++;
        while (i < n && ((unsigned char)s[i] & 0xC0) == 0x80)
            i++;
        chars--;
    }
    return i;
}

int32_t td_str_char(const char *s, size_t n, size_t *len)
{
    const unsigned char *u = (const unsigned char *)s;
    *len = td_utf8_len(s, n);
    switch (*len) {
    case 2:
        return (u[0] & 0x1F) << 6 | (u[1] & 0x3F);
    case 3:
        return (u[0] & 0x0F) << 12 | (u[1] & 0x3F) << 6 | (u[2] & 0x3F);
    case 4:
        return (u[0] & 0x07) << 18 | (u[1] & 0x3F) << 12 | (u[2] & 0x3F) << 6 |
               (u[3] & 0x3F);
    default: /* one byte; a broken one counts as itself */
        *len = 1;
        return n ? u[0] : 0;
    }
}

size_t td_str_back(const char *s, size_t n)
{
    size_t i = n ? n - 1 : 0;
    while (i > 0 && n - i < 4 && ((unsigned char)s[i] & 0xC0) == 0x80)
        i--;
    return i;
}

size_t td_char_encode(int32_t c, char out[4])
{
    return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)out);
}

bool td_char_is_space(int32_t c)
{
    if (c < 0x80)
        return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool td_char_is_word(int32_t c)
{
    if (c < 0x80)
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
               (c >= 'a' && c <= 'z') || c == '_';
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return true;
    default:
        return false;
    }
}

bool td_char_is_name(int32_t c)
{
    if (c < 0x80)
        return td_char_is_word(c);
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_NO:
        return false;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0xB7 || c == 0x387 || td_char_is_word(c);
    }
}

bool td_char_is_printable(int32_t c)
{
    if (c < 0x80)
        return c >= 0x20 && c < 0x7F;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

/* ---- searching ------------------------------------------------------------------- */

int64_t td_str_find(struct td_render *r, const char *s, size_t n, const char *needle,
                    size_t m)
{
    if (m == 0)
        return 0;
    size_t work = 0;
    int64_t found = -1;
    for (size_t i = 0; found < 0 && m <= n && i <= n - m; i++) {
        const char *p = memchr(s + i, needle[0], n - m + 1 - i);
        if (!p)
            break;
        size_t same = 1;
        i = (size_t)(p - s);
        while (same < m && p[same] == needle[same])
            same++;
        if (same == m)
            found = (int64_t)i;
        work += 1 + same / 8;
        if (work > 4096) {
            if (!td_render_charge(r, work / 8))
                return -1;
            work = 0;
        }
    }
    td_render_charge(r, 1 + work / 8 + (found < 0 ? n : (size_t)found) / 64);
    return found;
}

int64_t td_str_rfind(struct td_render *r, const char *s, size_t n, const char *needle,
                     size_t m)
{
    if (m > n)
        return -1;
    size_t work = 0;
    for (size_t i = n - m + 1; i-- > 0;) {
        if (m == 0 || memcmp(s + i, needle, m) == 0) {
            td_render_charge(r, 1 + work / 64);
            return (int64_t)i;
        }
        work += 1 + (s[i] == needle[0] ? m / 8 : 0);
        if (work > 65536) {
            if (!td_render_charge(r, work / 64))
                return -1;
            work = 0;
        }
    }
    td_render_charge(r, 1 + work / 64);
    return -1;
}

static bool has_char(const char *set, size_t n, const char *c, size_t len)
{
    size_t k;
    for (size_t i = 0; i < n; i += k) {
        (void)td_str_char(set + i, n - i, &k);
        if (k == len && memcmp(set + i, c, len) == 0)
            return true;
    }
    return false;
}

struct td_value td_str_strip(struct td_render *r, struct td_value s,
                             struct td_value chars, bool left, bool right)
{
    const char *set = td_arg_given(chars) ? chars.u.s : NULL;
    size_t n = s.len, from = 0, k;
    if (set && !td_arg_str(r, chars, "strip"))
        return td_value_undef();
    while (left && from < n) {
        int32_t c = td_str_char(s.u.s + from, n - from, &k);
        if (set ? !has_char(set, chars.len, s.u.s + from, k) : !td_char_is_space(c))
            break;
        from += k;
    }
    while (right && n > from) {
        size_t start = td_str_back(s.u.s + from, n - from) + from;
        int32_t c = td_str_char(s.u.s + start, n - start, &k);
        if (set ? !has_char(set, chars.len, s.u.s + start, k) : !td_char_is_space(c))
            break;
        n = start;
    }
    td_render_charge(r, (s.len - (n - from)) * (set ? chars.len : 1) / 8);
    s.u.s += from;
    s.len = (uint32_t)(n - from);
    return s;
}

/* ---- building -------------------------------------------------------------------- */

struct td_value td_str_replace(struct td_render *r, struct td_value s,
                               struct td_value old, struct td_value new_, int64_t max)
{
    struct td_buf *before;
    size_t i = 0;
    if (max == 0 || (old.len && td_str_find(r, s.u.s, s.len, old.u.s, old.len) < 0))
        return s;
    struct td_capture *c = td_render_capture(r, &before);
    while (td_render_ok(r) && max != 0) {
        int64_t at = td_str_find(r, s.u.s + i, s.len - i, old.u.s, old.len);
        if (at < 0)
            break;
        td_render_put(r, s.u.s + i, (size_t)at);
        td_render_put(r, new_.u.s, new_.len);
        i += (size_t)at + old.len;
        max--;
        if (old.len)
            continue;
        size_t k =
            0; /* an empty pattern stands before every character, and at the end */
        if (i == s.len)
            break;
        (void)td_str_char(s.u.s + i, s.len - i, &k);
        td_render_put(r, s.u.s + i, k);
        i += k;
    }
    td_render_put(r, s.u.s + i, s.len - i);
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = s.flags;
    return v;
}

static void put_fill(struct td_render *r, struct td_value fill, int64_t n)
{
    for (; n > 0 && td_render_ok(r); n--)
        td_render_put(r, fill.u.s, fill.len);
}

struct td_value td_str_center(struct td_render *r, struct td_value s, int64_t width,
                              struct td_value fill)
{
    int64_t gap = width - td_value_len(r, s);
    if (gap <= 0)
        return s;
    if (width > TD_MAX_TEMPLATE_WIDTH)
        return TD_RENDER_LIMIT(r, TD_MAX_TEMPLATE_WIDTH);
    int64_t left = gap / 2 + (gap & width & 1);
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    put_fill(r, fill, left);
    td_render_put(r, s.u.s, s.len);
    put_fill(r, fill, gap - left);
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = s.flags;
    return v;
}

struct td_value td_str_reverse(struct td_render *r, struct td_value s)
{
    char *p = td_render_alloc(r, (size_t)s.len + 1, 1);
    size_t k;
    td_render_charge(r, s.len / 16);
    if (!p)
        return td_value_undef();
    for (size_t i = 0; i < s.len; i += k) {
        (void)td_str_char(s.u.s + i, s.len - i, &k);
        memcpy(p + s.len - i - k, s.u.s + i, k);
    }
    s.u.s = p;
    return s;
}

/* Where a line ends: \n, \r, \r\n, and Python's rarer ones. 0: not here. */
static size_t line_end(const char *s, size_t n, size_t *char_len)
{
    int32_t c = td_str_char(s, n, char_len);
    if (c == '\r' && n > 1 && s[1] == '\n')
        return 2;
    if ((c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
        c == 0x2029)
        return *char_len;
    return 0;
}

struct td_value td_str_lines(struct td_render *r, struct td_value s, bool keep)
{
    struct td_value out = td_value_list(r, TD_V_LIST, 0);
    size_t from = 0, k;
    td_render_charge(r, s.len / 8);
    for (size_t i = 0; i < s.len && td_render_ok(r);) {
        size_t end = line_end(s.u.s + i, s.len - i, &k);
        if (end) {
            size_t n = i - from + (keep ? end : 0);
            td_value_push(r, &out, td_value_str(s.u.s + from, n));
            from = i + end;
        }
        i += end ? end : k;
    }
    if (from < s.len)
        td_value_push(r, &out, td_value_str(s.u.s + from, s.len - from));
    return out;
}

struct td_value td_str_join(struct td_render *r, struct td_value sep,
                            struct td_value items, bool convert)
{
    struct td_buf *before;
    struct td_iter it;
    struct td_value x;
    bool safe = !convert && sep.flags & TD_VF_SAFE;
    td_iter_init(r, &it, items);
    struct td_capture *c = td_render_capture(r, &before);
    for (int64_t i = 0; td_iter_next(r, &it, &x); i++) {
        if (i)
            td_render_put(r, sep.u.s, sep.len);
        if (safe)
            x = td_value_escape(r, x);
        if (!convert && !td_value_is(x, TD_V_STR))
            td_render_fail(r, "sequence item %lld: expected str instance, %s found",
                           (long long)i, td_value_type(x));
        td_value_print(r, x);
    }
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = safe ? TD_VF_SAFE : 0;
    return v;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Letter case as Python's strings have it: Unicode's full mappings (one character may
 * become two or three), the final sigma, and which characters count as upper or lower
 * case. utf8proc knows the one-to-one mappings and the categories; the tables here hold
 * what it leaves out: the unconditional entries of Unicode's SpecialCasing.txt, and the
 * Other_Lowercase and Other_Uppercase ranges.
 */
#include "text/template_value.h"

#include <string.h>
#include <utf8proc.h>

/* clang-format off */
/* Characters with a longer upper case; title NULL: the one-to-one mapping holds. */
static const struct special {
    int32_t c;
    const char *upper, *title;
} specials[] = {
    {0x00DF, "\x53\x53", "\x53\x73"},
    {0x0149, "\xCA\xBC\x4E", "\xCA\xBC\x4E"},
    {0x01F0, "\x4A\xCC\x8C", "\x4A\xCC\x8C"},
    {0x0390, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x03B0, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x0587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
    {0x1E96, "\x48\xCC\xB1", "\x48\xCC\xB1"},
    {0x1E97, "\x54\xCC\x88", "\x54\xCC\x88"},
    {0x1E98, "\x57\xCC\x8A", "\x57\xCC\x8A"},
    {0x1E99, "\x59\xCC\x8A", "\x59\xCC\x8A"},
    {0x1E9A, "\x41\xCA\xBE", "\x41\xCA\xBE"},
    {0x1F50, "\xCE\xA5\xCC\x93", "\xCE\xA5\xCC\x93"},
    {0x1F52, "\xCE\xA5\xCC\x93\xCC\x80", "\xCE\xA5\xCC\x93\xCC\x80"},
    {0x1F54, "\xCE\xA5\xCC\x93\xCC\x81", "\xCE\xA5\xCC\x93\xCC\x81"},
    {0x1F56, "\xCE\xA5\xCC\x93\xCD\x82", "\xCE\xA5\xCC\x93\xCD\x82"},
    {0x1F80, "\xE1\xBC\x88\xCE\x99", NULL},
    {0x1F81, "\xE1\xBC\x89\xCE\x99", NULL},
    {0x1F82, "\xE1\xBC\x8A\xCE\x99", NULL},
    {0x1F83, "\xE1\xBC\x8B\xCE\x99", NULL},
    {0x1F84, "\xE1\xBC\x8C\xCE\x99", NULL},
    {0x1F85, "\xE1\xBC\x8D\xCE\x99", NULL},
    {0x1F86, "\xE1\xBC\x8E\xCE\x99", NULL},
    {0x1F87, "\xE1\xBC\x8F\xCE\x99", NULL},
    {0x1F88, "\xE1\xBC\x88\xCE\x99", NULL},
    {0x1F89, "\xE1\xBC\x89\xCE\x99", NULL},
    {0x1F8A, "\xE1\xBC\x8A\xCE\x99", NULL},
    {0x1F8B, "\xE1\xBC\x8B\xCE\x99", NULL},
    {0x1F8C, "\xE1\xBC\x8C\xCE\x99", NULL},
    {0x1F8D, "\xE1\xBC\x8D\xCE\x99", NULL},
    {0x1F8E, "\xE1\xBC\x8E\xCE\x99", NULL},
    {0x1F8F, "\xE1\xBC\x8F\xCE\x99", NULL},
    {0x1F90, "\xE1\xBC\xA8\xCE\x99", NULL},
    {0x1F91, "\xE1\xBC\xA9\xCE\x99", NULL},
    {0x1F92, "\xE1\xBC\xAA\xCE\x99", NULL},
    {0x1F93, "\xE1\xBC\xAB\xCE\x99", NULL},
    {0x1F94, "\xE1\xBC\xAC\xCE\x99", NULL},
    {0x1F95, "\xE1\xBC\xAD\xCE\x99", NULL},
    {0x1F96, "\xE1\xBC\xAE\xCE\x99", NULL},
    {0x1F97, "\xE1\xBC\xAF\xCE\x99", NULL},
    {0x1F98, "\xE1\xBC\xA8\xCE\x99", NULL},
    {0x1F99, "\xE1\xBC\xA9\xCE\x99", NULL},
    {0x1F9A, "\xE1\xBC\xAA\xCE\x99", NULL},
    {0x1F9B, "\xE1\xBC\xAB\xCE\x99", NULL},
    {0x1F9C, "\xE1\xBC\xAC\xCE\x99", NULL},
    {0x1F9D, "\xE1\xBC\xAD\xCE\x99", NULL},
    {0x1F9E, "\xE1\xBC\xAE\xCE\x99", NULL},
    {0x1F9F, "\xE1\xBC\xAF\xCE\x99", NULL},
    {0x1FA0, "\xE1\xBD\xA8\xCE\x99", NULL},
    {0x1FA1, "\xE1\xBD\xA9\xCE\x99", NULL},
    {0x1FA2, "\xE1\xBD\xAA\xCE\x99", NULL},
    {0x1FA3, "\xE1\xBD\xAB\xCE\x99", NULL},
    {0x1FA4, "\xE1\xBD\xAC\xCE\x99", NULL},
    {0x1FA5, "\xE1\xBD\xAD\xCE\x99", NULL},
    {0x1FA6, "\xE1\xBD\xAE\xCE\x99", NULL},
    {0x1FA7, "\xE1\xBD\xAF\xCE\x99", NULL},
    {0x1FA8, "\xE1\xBD\xA8\xCE\x99", NULL},
    {0x1FA9, "\xE1\xBD\xA9\xCE\x99", NULL},
    {0x1FAA, "\xE1\xBD\xAA\xCE\x99", NULL},
    {0x1FAB, "\xE1\xBD\xAB\xCE\x99", NULL},
    {0x1FAC, "\xE1\xBD\xAC\xCE\x99", NULL},
    {0x1FAD, "\xE1\xBD\xAD\xCE\x99", NULL},
    {0x1FAE, "\xE1\xBD\xAE\xCE\x99", NULL},
    {0x1FAF, "\xE1\xBD\xAF\xCE\x99", NULL},
    {0x1FB2, "\xE1\xBE\xBA\xCE\x99", "\xE1\xBE\xBA\xCD\x85"},
    {0x1FB3, "\xCE\x91\xCE\x99", NULL},
    {0x1FB4, "\xCE\x86\xCE\x99", "\xCE\x86\xCD\x85"},
    {0x1FB6, "\xCE\x91\xCD\x82", "\xCE\x91\xCD\x82"},
    {0x1FB7, "\xCE\x91\xCD\x82\xCE\x99", "\xCE\x91\xCD\x82\xCD\x85"},
    {0x1FBC, "\xCE\x91\xCE\x99", NULL},
    {0x1FC2, "\xE1\xBF\x8A\xCE\x99", "\xE1\xBF\x8A\xCD\x85"},
    {0x1FC3, "\xCE\x97\xCE\x99", NULL},
    {0x1FC4, "\xCE\x89\xCE\x99", "\xCE\x89\xCD\x85"},
    {0x1FC6, "\xCE\x97\xCD\x82", "\xCE\x97\xCD\x82"},
    {0x1FC7, "\xCE\x97\xCD\x82\xCE\x99", "\xCE\x97\xCD\x82\xCD\x85"},
    {0x1FCC, "\xCE\x97\xCE\x99", NULL},
    {0x1FD2, "\xCE\x99\xCC\x88\xCC\x80", "\xCE\x99\xCC\x88\xCC\x80"},
    {0x1FD3, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x1FD6, "\xCE\x99\xCD\x82", "\xCE\x99\xCD\x82"},
    {0x1FD7, "\xCE\x99\xCC\x88\xCD\x82", "\xCE\x99\xCC\x88\xCD\x82"},
    {0x1FE2, "\xCE\xA5\xCC\x88\xCC\x80", "\xCE\xA5\xCC\x88\xCC\x80"},
    {0x1FE3, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x1FE4, "\xCE\xA1\xCC\x93", "\xCE\xA1\xCC\x93"},
    {0x1FE6, "\xCE\xA5\xCD\x82", "\xCE\xA5\xCD\x82"},
    {0x1FE7, "\xCE\xA5\xCC\x88\xCD\x82", "\xCE\xA5\xCC\x88\xCD\x82"},
    {0x1FF2, "\xE1\xBF\xBA\xCE\x99", "\xE1\xBF\xBA\xCD\x85"},
    {0x1FF3, "\xCE\xA9\xCE\x99", NULL},
    {0x1FF4, "\xCE\x8F\xCE\x99", "\xCE\x8F\xCD\x85"},
    {0x1FF6, "\xCE\xA9\xCD\x82", "\xCE\xA9\xCD\x82"},
    {0x1FF7, "\xCE\xA9\xCD\x82\xCE\x99", "\xCE\xA9\xCD\x82\xCD\x85"},
    {0x1FFC, "\xCE\xA9\xCE\x99", NULL},
    {0xFB00, "\x46\x46", "\x46\x66"},
    {0xFB01, "\x46\x49", "\x46\x69"},
    {0xFB02, "\x46\x4C", "\x46\x6C"},
    {0xFB03, "\x46\x46\x49", "\x46\x66\x69"},
    {0xFB04, "\x46\x46\x4C", "\x46\x66\x6C"},
    {0xFB05, "\x53\x54", "\x53\x74"},
    {0xFB06, "\x53\x54", "\x53\x74"},
    {0xFB13, "\xD5\x84\xD5\x86", "\xD5\x84\xD5\xB6"},
    {0xFB14, "\xD5\x84\xD4\xB5", "\xD5\x84\xD5\xA5"},
    {0xFB15, "\xD5\x84\xD4\xBB", "\xD5\x84\xD5\xAB"},
    {0xFB16, "\xD5\x8E\xD5\x86", "\xD5\x8E\xD5\xB6"},
    {0xFB17, "\xD5\x84\xD4\xBD", "\xD5\x84\xD5\xAD"},
};

struct range {
    int32_t from, to;
};

static const struct range other_lower[] = {
    {0x00AA, 0x00AA},
    {0x00BA, 0x00BA},
    {0x02B0, 0x02B8},
    {0x02C0, 0x02C1},
    {0x02E0, 0x02E4},
    {0x0345, 0x0345},
    {0x037A, 0x037A},
    {0x1D2C, 0x1D6A},
    {0x1D78, 0x1D78},
    {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},
    {0x207F, 0x207F},
    {0x2090, 0x209C},
    {0x2170, 0x217F},
    {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},
    {0xA69C, 0xA69D},
    {0xA770, 0xA770},
    {0xA7F8, 0xA7F9},
    {0xAB5C, 0xAB5F},
    {0x10780, 0x10780},
    {0x10783, 0x10785},
    {0x10787, 0x107B0},
    {0x107B2, 0x107BA},
};

static const struct range other_upper[] = {
    {0x2160, 0x216F},
    {0x24B6, 0x24CF},
    {0x1F130, 0x1F149},
    {0x1F150, 0x1F169},
    {0x1F170, 0x1F189},
};
/* clang-format on */

static bool in_ranges(const struct range *r, size_t n, int32_t c)
{
    for (size_t i = 0; i < n; i++)
        if (c >= r[i].from && c <= r[i].to)
            return true;
    return false;
}

bool td_char_is_lower(int32_t c)
{
    if (c < 0x80)
        return c >= 'a' && c <= 'z';
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LL ||
           in_ranges(other_lower, sizeof(other_lower) / sizeof(*other_lower), c);
}

bool td_char_is_upper(int32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z';
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LU ||
           in_ranges(other_upper, sizeof(other_upper) / sizeof(*other_upper), c);
}

bool td_char_is_title(int32_t c)
{
    return c >= 0x80 && utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

static const struct special *special_of(int32_t c)
{
    size_t lo = 0, hi = sizeof(specials) / sizeof(*specials);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (specials[mid].c == c)
            return &specials[mid];
        if (specials[mid].c < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static bool is_cased(int32_t c)
{
    return td_char_is_lower(c) || td_char_is_upper(c) || td_char_is_title(c);
}

/* Marks and modifiers, which a look-around for cased letters passes over. */
static bool is_ignorable(int32_t c)
{
    static const char points[] = "'.:^`";
    if (c < 0x80)
        return c > 0 && strchr(points, (int)c) != NULL;
    if (c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027)
        return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* A capital sigma ends a word: a cased letter before it, none after. */
static bool is_final_sigma(struct td_value s, size_t at)
{
    size_t n, pos = at;
    bool before = false;
    while (pos > 0) {
        pos = td_str_back(s.u.s, pos);
        int32_t c = td_str_char(s.u.s + pos, s.len - pos, &n);
        if (is_ignorable(c))
            continue;
        before = is_cased(c);
        break;
    }
    if (!before)
        return false;
    for (pos = at + 2; pos < s.len; pos += n) {
        int32_t c = td_str_char(s.u.s + pos, s.len - pos, &n);
        if (!is_ignorable(c))
            return !is_cased(c);
    }
    return true;
}

static void put_char(struct td_render *r, int32_t c)
{
    char text[4];
    td_render_put(r, text, td_char_encode(c, text));
}

/* Case folding: the lower case of most, utf8proc's full folding of the rest. */
static void put_folded(struct td_render *r, int32_t c)
{
    utf8proc_int32_t out[8];
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(c, out, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < n && i < 8; i++)
        put_char(r, out[i]);
}

void td_str_put_case(struct td_render *r, struct td_value s, size_t at,
                     enum td_case how)
{
    size_t n;
    int32_t c = td_str_char(s.u.s + at, s.len - at, &n);
    const struct special *x = c >= 0x80 ? special_of(c) : NULL;
    switch (how) {
    case TD_CASE_UPPER:
        if (x)
            td_render_puts(r, x->upper);
        else
            put_char(r, utf8proc_toupper(c));
        break;
    case TD_CASE_TITLE:
        if (x && x->title)
            td_render_puts(r, x->title);
        else
            put_char(r, utf8proc_totitle(c));
        break;
    case TD_CASE_FOLD:
        put_folded(r, c);
        break;
    default:
        if (c == 0x3A3)
            put_char(r, is_final_sigma(s, at) ? 0x3C2 : 0x3C3);
        else if (c == 0x130)
            td_render_puts(r, "i\xCC\x87");
        else
            put_char(r, utf8proc_tolower(c));
        break;
    }
}

/* The first character one way, the others another. */
static struct td_value map_case(struct td_render *r, struct td_value s,
                                enum td_case first, enum td_case rest)
{
    struct td_buf *before;
    struct td_capture *c = td_render_capture(r, &before);
    size_t n;
    td_render_charge(r, s.len / 8);
    for (size_t i = 0; i < s.len && td_render_ok(r); i += n) {
        (void)td_str_char(s.u.s + i, s.len - i, &n);
        td_str_put_case(r, s, i, i ? rest : first);
    }
    struct td_value v = td_render_end_capture(r, c, before);
    v.flags = s.flags;
    return v;
}

struct td_value td_str_case(struct td_render *r, struct td_value s, enum td_case how)
{
    return map_case(r, s, how, how);
}

struct td_value td_str_capitalize(struct td_render *r, struct td_value s)
{
    return map_case(r, s, TD_CASE_TITLE, TD_CASE_LOWER);
}

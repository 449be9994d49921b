/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizer patterns for PCRE2. See pattern.h. One pass over the pattern; whatever
 * has no case here is refused.
 */
#include "text/pattern.h"

#include "base/limits.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* White_Space. PCRE2's \s adds U+180E. */
static const char space[] = "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"
                            "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

/* What Unicode 15 to 16 added to the classes, since PCRE2 may be older. */
static const struct addition {
    int first, last;
    char category[3];
} additions[] = {
    /* clang-format off */
    {0x897, 0x897, "Mn"}, {0xCF3, 0xCF3, "Mc"}, {0xECE, 0xECE, "Mn"},
    {0x1B4E, 0x1B4F, "Po"}, {0x1B7F, 0x1B7F, "Po"}, {0x1C89, 0x1C89, "Lu"},
    {0x1C8A, 0x1C8A, "Ll"}, {0x2427, 0x2429, "So"}, {0x2FFC, 0x2FFF, "So"},
    {0x31E4, 0x31E5, "So"}, {0x31EF, 0x31EF, "So"}, {0xA7CB, 0xA7CC, "Lu"},
    {0xA7CD, 0xA7CD, "Ll"}, {0xA7DA, 0xA7DA, "Lu"}, {0xA7DB, 0xA7DB, "Ll"},
    {0xA7DC, 0xA7DC, "Lu"}, {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"},
    {0x10D4A, 0x10D4D, "Lo"}, {0x10D4E, 0x10D4E, "Lm"}, {0x10D4F, 0x10D4F, "Lo"},
    {0x10D50, 0x10D65, "Lu"}, {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"},
    {0x10D6F, 0x10D6F, "Lm"}, {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"},
    {0x10EC2, 0x10EC4, "Lo"}, {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"},
    {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"}, {0x1138B, 0x1138B, "Lo"},
    {0x1138E, 0x1138E, "Lo"}, {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"},
    {0x113B8, 0x113BA, "Mc"}, {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"},
    {0x113C5, 0x113C5, "Mc"}, {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"},
    {0x113CE, 0x113CE, "Mn"}, {0x113CF, 0x113CF, "Mc"}, {0x113D0, 0x113D0, "Mn"},
    {0x113D1, 0x113D1, "Lo"}, {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"},
    {0x113D4, 0x113D5, "Po"}, {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"},
    {0x116D0, 0x116E3, "Nd"}, {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"},
    {0x11BE1, 0x11BE1, "Po"}, {0x11BF0, 0x11BF9, "Nd"}, {0x11F00, 0x11F01, "Mn"},
    {0x11F02, 0x11F02, "Lo"}, {0x11F03, 0x11F03, "Mc"}, {0x11F04, 0x11F10, "Lo"},
    {0x11F12, 0x11F33, "Lo"}, {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"},
    {0x11F3E, 0x11F3F, "Mc"}, {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"},
    {0x11F42, 0x11F42, "Mn"}, {0x11F43, 0x11F4F, "Po"}, {0x11F50, 0x11F59, "Nd"},
    {0x11F5A, 0x11F5A, "Mn"}, {0x1342F, 0x1342F, "Lo"}, {0x13440, 0x13440, "Mn"},
    {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"}, {0x13460, 0x143FA, "Lo"},
    {0x16100, 0x1611D, "Lo"}, {0x1611E, 0x16129, "Mn"}, {0x1612A, 0x1612C, "Mc"},
    {0x1612D, 0x1612F, "Mn"}, {0x16130, 0x16139, "Nd"}, {0x16D40, 0x16D42, "Lm"},
    {0x16D43, 0x16D6A, "Lo"}, {0x16D6B, 0x16D6C, "Lm"}, {0x16D6D, 0x16D6F, "Po"},
    {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"}, {0x1B132, 0x1B132, "Lo"},
    {0x1B155, 0x1B155, "Lo"}, {0x1CC00, 0x1CCEF, "So"}, {0x1CCF0, 0x1CCF9, "Nd"},
    {0x1CD00, 0x1CEB3, "So"}, {0x1D2C0, 0x1D2D3, "No"}, {0x1DF25, 0x1DF2A, "Ll"},
    {0x1E030, 0x1E06D, "Lm"}, {0x1E08F, 0x1E08F, "Mn"}, {0x1E4D0, 0x1E4EA, "Lo"},
    {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"}, {0x1E4F0, 0x1E4F9, "Nd"},
    {0x1E5D0, 0x1E5ED, "Lo"}, {0x1E5EE, 0x1E5EF, "Mn"}, {0x1E5F0, 0x1E5F0, "Lo"},
    {0x1E5F1, 0x1E5FA, "Nd"}, {0x1E5FF, 0x1E5FF, "Po"}, {0x1F6DC, 0x1F6DC, "So"},
    {0x1F774, 0x1F776, "So"}, {0x1F77B, 0x1F77F, "So"}, {0x1F7D9, 0x1F7D9, "So"},
    {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"}, {0x1FA75, 0x1FA77, "So"},
    {0x1FA87, 0x1FA89, "So"}, {0x1FA8F, 0x1FA8F, "So"}, {0x1FAAD, 0x1FAAF, "So"},
    {0x1FABB, 0x1FABF, "So"}, {0x1FAC6, 0x1FAC6, "So"}, {0x1FACE, 0x1FACF, "So"},
    {0x1FADA, 0x1FADC, "So"}, {0x1FADF, 0x1FADF, "So"}, {0x1FAE8, 0x1FAE9, "So"},
    {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"}, {0x2B739, 0x2B739, "Lo"},
    {0x2EBF0, 0x2EE5D, "Lo"}, {0x31350, 0x323AF, "Lo"},
    /* clang-format on */
};

static const char *const categories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
    "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
    "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc", "Cf"};

struct reader {
    const char *p, *begin, *end;
    const char *where;
    struct td_buf *out;
    struct td_error *err;
    int depth;        /* open groups */
    int literal_from; /* the depth of an open (?i: group, 0: none */
};

static enum td_status refuse(const struct reader *r, const char *what)
{
    td_error_set(r->err, TD_E_TOKENIZER, "%s: the pattern uses %s at byte %zu",
                 r->where, what, (size_t)(r->p - r->begin));
    td_error_why(r->err, "tandem translates the syntax that patterns of byte-level "
                         "tokenizers use, so that it means the same, and no more");
    td_error_fix(r->err, "use a model with another tokenizer");
    return TD_E_TOKENIZER;
}

static bool starts(const struct reader *r, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(r->end - r->p) >= n && memcmp(r->p, s, n) == 0;
}

static void add_category(struct td_buf *out, const char *name)
{
    td_buf_addf(out, "\\p{%s}", name);
    for (size_t i = 0; i < TD_COUNT(additions);) {
        const struct addition *a = &additions[i++];
        if (strncmp(a->category, name, strlen(name)) != 0)
            continue;
        int last = a->last;
        for (; i < TD_COUNT(additions) && additions[i].first == last + 1 &&
               strncmp(additions[i].category, name, strlen(name)) == 0;
             i++)
            last = additions[i].last;
        td_buf_addf(out, "\\x{%x}-\\x{%x}", a->first, last);
    }
}

/* \p{NAME} and \P{NAME}; r->p is behind the p. */
static enum td_status property(struct reader *r, bool negated, bool in_class)
{
    char name[4] = "";
    const char *close = r->p < r->end && *r->p == '{'
                            ? memchr(r->p, '}', (size_t)(r->end - r->p))
                            : NULL;
    size_t n = close ? (size_t)(close - r->p - 1) : 0;
    if (n >= 1 && n < sizeof(name))
        memcpy(name, r->p + 1, n);
    bool known = false;
    for (size_t i = 0; i < TD_COUNT(categories); i++)
        known = known || strcmp(categories[i], name) == 0;
    if (!known)
        return refuse(r, "a property that is no general category");
    if (negated && in_class)
        return refuse(r, "\\P in a class");
    if (!in_class)
        td_buf_adds(r->out, negated ? "[^" : "[");
    add_category(r->out, name);
    if (!in_class)
        td_buf_adds(r->out, "]");
    r->p = close + 1;
    return TD_OK;
}

static bool hex_digit(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \uHHHH, \xHH, \x{H...}; r->p is behind the letter. */
static enum td_status code_point(struct reader *r, char letter)
{
    size_t left = (size_t)(r->end - r->p), n = 0;
    bool braces = letter == 'x' && left && *r->p == '{';
    const char *digits = r->p + (braces ? 1 : 0);
    left -= braces ? 1 : 0;
    size_t most = braces ? 6 : letter == 'u' ? 4 : 2;
    while (n < most && n < left && hex_digit(digits[n]))
        n++;
    bool complete = braces ? n > 0 && n < left && digits[n] == '}' : n == most;
    if (!complete || (letter == 'x' && !braces && digits[0] > '7'))
        return refuse(r, "an incomplete code point");
    td_buf_addf(r->out, "\\x{%.*s}", (int)n, digits);
    r->p = digits + n + (braces ? 1 : 0);
    return TD_OK;
}

static enum td_status escape(struct reader *r, bool in_class)
{
    if (r->end - r->p < 2)
        return refuse(r, "a \\ at its end");
    char c = r->p[1];
    bool several = strchr("sSdpP", c) != NULL;
    if (several && r->literal_from)
        return refuse(r, "a class in a group that ignores case");
    if ((unsigned char)c >= 0x80 || c == 0 ||
        (!several && strchr("rntfvxu", c) == NULL &&
         (c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
          (c >= 'a' && c <= 'z'))))
        return refuse(r, "an escape that tandem does not know");
    if (c == 'S' && in_class)
        return refuse(r, "\\S in a class");
    r->p += 2;
    switch (c) {
    case 'p':
    case 'P':
        return property(r, c == 'P', in_class);
    case 'x':
    case 'u':
        return code_point(r, c);
    case 's':
    case 'S':
        td_buf_addf(r->out, in_class ? "%s%s" : "[%s%s]", c == 'S' ? "^" : "", space);
        return TD_OK;
    case 'd':
        td_buf_adds(r->out, in_class ? "" : "[");
        add_category(r->out, "Nd");
        td_buf_adds(r->out, in_class ? "" : "]");
        return TD_OK;
    case 'v':
        td_buf_adds(r->out, "\\x0b");
        return TD_OK;
    default:
        td_buf_addf(r->out, "\\%c", c);
        return TD_OK;
    }
}

/* An escape in a class that began at `first`. One that stands for several characters
 * cannot be the end of a range; its translation would become one. */
static enum td_status class_escape(struct reader *r, const char *first)
{
    bool several = r->end - r->p >= 2 && strchr("sdp", r->p[1]) != NULL;
    bool ends_range = r->p > first + 1 && r->p[-1] == '-';
    enum td_status s =
        several && ends_range ? refuse(r, "a range to a class") : escape(r, true);
    if (s == TD_OK && several && starts(r, "-") && !starts(r, "-]"))
        return refuse(r, "a range from a class");
    return s;
}

/* [...]; r->p is at the bracket. */
static enum td_status char_class(struct reader *r)
{
    if (r->literal_from)
        return refuse(r, "a class in a group that ignores case");
    td_buf_addc(r->out, *r->p++);
    if (starts(r, "^"))
        td_buf_addc(r->out, *r->p++);
    if (starts(r, "]"))
        return refuse(r, "an empty class");
    const char *first = r->p;
    while (r->p < r->end && *r->p != ']') {
        if (*r->p == '[')
            return refuse(r, "a class in a class");
        if (starts(r, "&&"))
            return refuse(r, "an intersection of classes");
        if (*r->p == '\\') {
            enum td_status s = class_escape(r, first);
            if (s != TD_OK)
                return s;
            continue;
        }
        td_buf_addc(r->out, *r->p++);
    }
    if (r->p == r->end)
        return refuse(r, "a class without an end");
    return td_buf_addc(r->out, *r->p++);
}

/* ( and what belongs to it. */
static enum td_status group(struct reader *r)
{
    static const char *const kinds[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};
    r->depth++;
    for (size_t i = 0; i < TD_COUNT(kinds); i++) {
        if (!starts(r, kinds[i]))
            continue;
        if (strcmp(kinds[i], "(?i:") == 0 && !r->literal_from)
            r->literal_from = r->depth;
        r->p += strlen(kinds[i]);
        return td_buf_adds(r->out, kinds[i]);
    }
    if (starts(r, "(?") || starts(r, "(*"))
        return refuse(r, "a kind of group that tandem does not know");
    r->p++;
    return td_buf_adds(r->out, "(?:");
}

/* {n}, {n,}, {n,m}. */
static enum td_status repeat(struct reader *r)
{
    const char *q = r->p + 1;
    while (q < r->end && ((*q >= '0' && *q <= '9') || (*q == ',' && q > r->p + 1)))
        q++;
    if (q == r->end || *q != '}' || q == r->p + 1 || q - r->p > 12)
        return refuse(r, "a { that begins no repetition");
    q++;
    td_buf_add(r->out, r->p, (size_t)(q - r->p));
    r->p = q;
    return starts(r, "+") ? refuse(r, "a repetition of a repetition") : TD_OK;
}

static enum td_status item(struct reader *r)
{
    switch (*r->p) {
    case '\\':
        return escape(r, false);
    case '[':
        return char_class(r);
    case '(':
        return group(r);
    case '{':
        return repeat(r);
    case ')':
        if (r->depth == r->literal_from)
            r->literal_from = 0;
        r->depth--;
        break;
    case '^':
    case '$':
        return refuse(r, "an anchor");
    case '.':
        if (r->literal_from)
            return refuse(r, "a class in a group that ignores case");
        break;
    case ']':
    case '}':
        td_buf_addc(r->out, '\\');
        break;
    case 0:
        return refuse(r, "a zero byte");
    default:
        break;
    }
    return td_buf_addc(r->out, *r->p++);
}

enum td_status td_pattern_translate(const char *pattern, size_t n, const char *where,
                                    struct td_buf *out, struct td_error *err)
{
    struct reader r = {.p = pattern,
                       .begin = pattern,
                       .end = pattern + n,
                       .where = where,
                       .out = out,
                       .err = err};
    if (n == 0 || n > TD_MAX_PATTERN)
        return td_error_set(err, TD_E_TOKENIZER,
                            "%s: the pattern has %zu bytes, expected 1 to %lld", where,
                            n, TD_MAX_PATTERN);
    while (r.p < r.end) {
        enum td_status s = item(&r);
        if (s == TD_OK && r.depth < 0)
            s = refuse(&r, "a ) too many");
        if (s == TD_OK)
            s = out->status;
        if (s != TD_OK)
            return td_error_set(err, s, "%s: the pattern is too large", where);
    }
    return r.depth ? refuse(&r, "a ( without its )") : TD_OK;
}

enum td_status td_pattern_quote(const char *text, size_t n, struct td_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                      (c >= 'a' && c <= 'z') || c >= 0x80;
        if (letter)
            td_buf_addc(out, (char)c);
        else
            td_buf_addf(out, "\\x{%x}", c);
    }
    return out->status;
}

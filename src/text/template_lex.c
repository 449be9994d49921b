/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template source to tokens. Text outside of tags becomes DATA tokens, already cut as
 * the white space rules say: `-` at a tag eats all white space on that side, a block or
 * comment tag alone at the start of its line eats the blanks before it (lstrip_blocks),
 * the newline right after such a tag goes too (trim_blocks), and `+` keeps both.
 * Comments and the raw tags vanish here.
 */
#include "base/utf8.h"
#include "text/template_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SIGN_NONE = 0, ESCAPE_ROOM = 12 };

enum td_status td_template_invalid(struct td_error *err, const char *name,
                                   uint32_t line, const char *why, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, why);
    (void)vsnprintf(text, sizeof(text), why, ap);
    va_end(ap);
    if (err && err->code == TD_OK) {
        td_error_set(err, TD_E_TEMPLATE, "%s, line %u: not a valid template", name,
                     (unsigned)line);
        td_error_why(err, "%s", text);
        td_error_fix(err,
                     "fetch the model's chat template again, or correct that line");
    }
    return TD_E_TEMPLATE;
}

/* Operators are between quotes, here as in messages. */
static const char *const kind_names[] = {
    [TD_LEX_EOF] = "end of template",
    [TD_LEX_DATA] = "text",
    [TD_LEX_PRINT_BEGIN] = "'{{'",
    [TD_LEX_PRINT_END] = "'}}'",
    [TD_LEX_BLOCK_BEGIN] = "'{%'",
    [TD_LEX_BLOCK_END] = "'%}'",
    [TD_LEX_NAME] = "a name",
    [TD_LEX_STRING] = "a string",
    [TD_LEX_INT] = "an integer",
    [TD_LEX_FLOAT] = "a number",
    [TD_LEX_ADD] = "'+'",
    [TD_LEX_SUB] = "'-'",
    [TD_LEX_MUL] = "'*'",
    [TD_LEX_DIV] = "'/'",
    [TD_LEX_FLOORDIV] = "'//'",
    [TD_LEX_MOD] = "'%'",
    [TD_LEX_POW] = "'**'",
    [TD_LEX_TILDE] = "'~'",
    [TD_LEX_LBRACKET] = "'['",
    [TD_LEX_RBRACKET] = "']'",
    [TD_LEX_LPAREN] = "'('",
    [TD_LEX_RPAREN] = "')'",
    [TD_LEX_LBRACE] = "'{'",
    [TD_LEX_RBRACE] = "'}'",
    [TD_LEX_EQ] = "'=='",
    [TD_LEX_NE] = "'!='",
    [TD_LEX_GT] = "'>'",
    [TD_LEX_GE] = "'>='",
    [TD_LEX_LT] = "'<'",
    [TD_LEX_LE] = "'<='",
    [TD_LEX_ASSIGN] = "'='",
    [TD_LEX_DOT] = "'.'",
    [TD_LEX_COLON] = "':'",
    [TD_LEX_PIPE] = "'|'",
    [TD_LEX_COMMA] = "','",
    [TD_LEX_SEMICOLON] = "';'",
};

const char *td_lex_kind_name(enum td_lex_kind kind)
{
    return kind_names[kind];
}

void td_lexer_init(struct td_lexer *lx, const char *src, size_t len, const char *name,
                   struct td_arena *arena, struct td_error *err)
{
    *lx = (struct td_lexer){.name = name,
                            .err = err,
                            .arena = arena,
                            .src = src,
                            .len = len,
                            .line = 1,
                            .at_line_start = true};
}

/* ---- positions ------------------------------------------------------------------- */

static bool at(const struct td_lexer *lx, size_t pos, const char *text)
{
    size_t n = strlen(text);
    return pos <= lx->len && lx->len - pos >= n && memcmp(lx->src + pos, text, n) == 0;
}

static size_t skip_space(const struct td_lexer *lx, size_t pos)
{
    while (pos < lx->len) {
        size_t n;
        int32_t c = td_str_char(lx->src + pos, lx->len - pos, &n);
        if (!td_char_is_space(c))
            break;
        pos += n;
    }
    return pos;
}

/* Moves on to `pos`, counting lines. */
static void move_to(struct td_lexer *lx, size_t pos)
{
    for (size_t i = lx->pos; i < pos; i++)
        lx->line += lx->src[i] == '\n';
    if (pos > lx->pos)
        lx->at_line_start = lx->src[pos - 1] == '\n';
    lx->pos = pos;
}

/* The sign right behind a tag's opening, '-', '+' or none. */
static char sign_at(const struct td_lexer *lx, size_t pos)
{
    if (pos < lx->len && (lx->src[pos] == '-' || lx->src[pos] == '+'))
        return lx->src[pos];
    return SIGN_NONE;
}

/* If a tag's end stands at pos, the position after it and the white space it eats;
 * else 0. `close` is "%}", "}}" or "#}". `plus`: a + before it is allowed; `trim`: it
 * eats a newline. */
static size_t tag_end(const struct td_lexer *lx, size_t pos, const char *close,
                      bool plus, bool trim)
{
    char sign = sign_at(lx, pos);
    if (sign == '-' && at(lx, pos + 1, close))
        return skip_space(lx, pos + 3);
    if (sign == '+' && plus && at(lx, pos + 1, close))
        return pos + 3;
    if (!at(lx, pos, close))
        return 0;
    pos += 2;
    return trim && pos < lx->len && lx->src[pos] == '\n' ? pos + 1 : pos;
}

/* If `{% raw %}` or `{% endraw %}` (word) opens at pos, the position after it, else 0. */
static size_t raw_tag(const struct td_lexer *lx, size_t pos, const char *word, bool end)
{
    pos += 2;
    pos += sign_at(lx, pos) != SIGN_NONE;
    pos = skip_space(lx, pos);
    if (!at(lx, pos, word))
        return 0;
    return tag_end(lx, skip_space(lx, pos + strlen(word)), "%}", end, end);
}

/* ---- text ------------------------------------------------------------------------ */

/* The length of the text [from, tag) that is left before a tag with that sign. */
static size_t cut_text(const struct td_lexer *lx, size_t from, size_t tag, char sign,
                       bool lstrip)
{
    size_t end = tag;
    if (sign == '-') {
        while (end > from) {
            size_t n, start = td_str_back(lx->src + from, end - from);
            int32_t c = td_str_char(lx->src + from + start, end - from - start, &n);
            if (!td_char_is_space(c))
                break;
            end = from + start;
        }
    } else if (sign != '+' && lstrip) {
        size_t line = tag;
        while (line > from && lx->src[line - 1] != '\n')
            line--;
        if ((line > from || lx->at_line_start) && skip_space(lx, line) >= tag)
            end = line;
    }
    return end - from;
}

static size_t find_tag(const struct td_lexer *lx)
{
    for (size_t i = lx->pos; i + 1 < lx->len; i++) {
        const char *brace = memchr(lx->src + i, '{', lx->len - 1 - i);
        if (!brace)
            break;
        i = (size_t)(brace - lx->src);
        char c = lx->src[i + 1];
        if (c == '{' || c == '%' || c == '#')
            return i;
    }
    return lx->len;
}

static void give_text(struct td_lexer *lx, struct td_lex_token *out, size_t len)
{
    *out = (struct td_lex_token){
        .kind = TD_LEX_DATA, .line = lx->line, .s = lx->src + lx->pos, .len = len};
}

/* After `{% raw %}`: everything up to `{% endraw %}` is text. As for a comment, jinja2
 * does not miss the end where the template has ended anyway. */
static enum td_status raw_text(struct td_lexer *lx, struct td_lex_token *out)
{
    give_text(lx, out, 0);
    if (lx->pos >= lx->len)
        return TD_OK;
    for (size_t i = lx->pos; i < lx->len; i++) {
        size_t after = at(lx, i, "{%") ? raw_tag(lx, i, "endraw", true) : 0;
        if (!after)
            continue;
        give_text(lx, out, cut_text(lx, lx->pos, i, sign_at(lx, i + 2), true));
        move_to(lx, after);
        return TD_OK;
    }
    return td_template_invalid(lx->err, lx->name, lx->line,
                               "{%% raw %%} has no {%% endraw %%}");
}

static enum td_status skip_comment(struct td_lexer *lx)
{
    uint32_t line = lx->line;
    size_t from = lx->pos + 2 + (sign_at(lx, lx->pos + 2) != SIGN_NONE);
    for (size_t i = from; i < lx->len; i++) {
        size_t after = tag_end(lx, i, "#}", true, true);
        if (after) {
            move_to(lx, after);
            return TD_OK;
        }
    }
    if (from < lx->len)
        return td_template_invalid(lx->err, lx->name, line, "a comment has no #}");
    move_to(lx, lx->len);
    return TD_OK;
}

/* Outside of tags. Gives text if there is any before the next tag, and queues what the
 * tag begins. *given: a token was given. */
static enum td_status next_text(struct td_lexer *lx, struct td_lex_token *out,
                                bool *given)
{
    size_t tag = find_tag(lx);
    if (tag == lx->len) {
        give_text(lx, out, tag - lx->pos);
        move_to(lx, tag);
        *given = out->len > 0;
        return TD_OK;
    }
    bool print = lx->src[tag + 1] == '{';
    char sign = sign_at(lx, tag + 2);
    give_text(lx, out, cut_text(lx, lx->pos, tag, sign, !print));
    *given = out->len > 0;
    move_to(lx, tag);
    if (lx->src[tag + 1] == '#')
        return skip_comment(lx);
    size_t raw = print ? 0 : raw_tag(lx, tag, "raw", false);
    if (raw) {
        if (*given)
            return TD_OK; /* the tag is read again after its text */
        move_to(lx, raw);
        enum td_status s = raw_text(lx, out);
        *given = s == TD_OK && out->len > 0;
        return s;
    }
    lx->queued = true;
    lx->queued_kind = print ? TD_LEX_PRINT_BEGIN : TD_LEX_BLOCK_BEGIN;
    return TD_OK;
}

/* ---- inside tags ----------------------------------------------------------------- */

static bool is_digit(char c, int base)
{
    if (base == 16)
        return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
    return c >= '0' && c < '0' + base;
}

/* The end of digits with single underscores between them; `pos` when there are none. */
static size_t digits(const struct td_lexer *lx, size_t pos, int base)
{
    size_t end = pos;
    while (pos < lx->len && is_digit(lx->src[pos], base)) {
        end = ++pos;
        if (pos < lx->len && lx->src[pos] == '_')
            pos++;
    }
    return end;
}

/* The end of a float that starts at pos, or pos. */
static size_t float_end(const struct td_lexer *lx, size_t pos)
{
    if (pos > 0 && lx->src[pos - 1] == '.')
        return pos;
    size_t end = digits(lx, pos, 10), start = pos;
    if (end == pos)
        return start;
    bool real = false;
    if (end < lx->len && lx->src[end] == '.' && digits(lx, end + 1, 10) > end + 1) {
        end = digits(lx, end + 1, 10);
        real = true;
    }
    if (end < lx->len && (lx->src[end] | 32) == 'e') {
        size_t exp = end + 1;
        exp += sign_at(lx, exp) != SIGN_NONE;
        if (digits(lx, exp, 10) > exp) {
            end = digits(lx, exp, 10);
            real = true;
        }
    }
    return real ? end : start;
}

/* The end of an integer at pos: 12, 1_000, 0x1f, 0o17, 0b1; of zeros, 00 but not 007. */
static size_t int_end(const struct td_lexer *lx, size_t pos, int *base)
{
    const char *s = lx->src + pos;
    char c = pos + 1 < lx->len ? (char)(s[1] | 32) : 0;
    *base = s[0] != '0' ? 10 : c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    if (*base == 10 && s[0] != '0')
        return digits(lx, pos, 10);
    if (*base != 10) {
        size_t from = pos + 2 + at(lx, pos + 2, "_"), end = digits(lx, from, *base);
        if (end > from)
            return end;
        *base = 10; /* 0x without digits is 0 and a name */
        return pos + 1;
    }
    for (pos++; at(lx, pos, "0") || at(lx, pos, "_0");)
        pos += at(lx, pos, "0") ? 1 : 2;
    return pos;
}

static enum td_status number(struct td_lexer *lx, struct td_lex_token *out)
{
    size_t end = float_end(lx, lx->pos), start = lx->pos;
    const char *s = lx->src + start;
    int base;
    if (end > start) {
        out->kind = TD_LEX_FLOAT;
        if (!td_float_parse(s, end - start, &out->f))
            return td_template_invalid(lx->err, lx->name, lx->line,
                                       "%.*s is not a number", (int)(end - start), s);
    } else {
        end = int_end(lx, start, &base);
        out->kind = TD_LEX_INT;
        base = base == 10 ? 10 : 0;
        if (td_int_parse(s, end - start, base, &out->i) != TD_NUMBER_OK)
            return td_template_invalid(lx->err, lx->name, lx->line,
                                       "%.*s does not fit into 64 bits",
                                       (int)(end - start), s);
    }
    out->s = s;
    out->len = end - start;
    move_to(lx, end);
    return TD_OK;
}

/* Up to `max` hexadecimal (or octal) digits; -1 unless `exact` of them are there. */
static int64_t escape_number(const char *s, size_t n, size_t max, bool exact, int base,
                             size_t *used)
{
    int64_t c = 0;
    size_t i = 0;
    for (; i < max && i < n && is_digit(s[i], base); i++) {
        int d = s[i] <= '9' ? s[i] - '0' : (s[i] | 32) - 'a' + 10;
        c = c * base + d;
    }
    *used = i;
    return exact && i != max ? -1 : c;
}

/* One escape after a backslash at s[0]. Writes its text to dst and returns the bytes
 * written, *used those read; *why is set when it is invalid. dst has ESCAPE_ROOM. */
static size_t unescape(const char *s, size_t n, char *dst, size_t *used,
                       const char **why)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = memchr(from, s[0], sizeof(from) - 1);
    *used = 1;
    if (simple) {
        dst[0] = to[simple - from];
        return 1;
    }
    if (s[0] == '\n')
        return 0;
    size_t width = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0, taken = 0;
    int64_t c = -1;
    if (width) {
        c = escape_number(s + 1, n - 1, width, true, 16, &taken);
        if (c < 0 || c > 0x10FFFF)
            *why = "is cut short or too large";
        taken++;
    } else if (is_digit(s[0], 8)) {
        c = escape_number(s, n, 3, false, 8, &taken);
    } else if (s[0] == 'N') {
        *why = "(a character by its name) is not supported";
    } else if ((unsigned char)s[0] >= 0x80) {
        /* Python escapes such a character first, then reads the backslash twice */
        size_t len;
        int32_t wide = td_str_char(s, n, &len);
        *used = len;
        (void)snprintf(dst, ESCAPE_ROOM,
                       wide < 0x100     ? "\\x%02x"
                       : wide < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                       (unsigned)wide);
        return strlen(dst);
    } else {
        dst[0] = '\\';
        dst[1] = s[0];
        return 2;
    }
    if (c >= 0xD800 && c < 0xE000)
        *why = "is half of a surrogate pair";
    if (*why)
        return 0;
    *used = taken;
    return td_char_encode((int32_t)c, dst);
}

static enum td_status string(struct td_lexer *lx, struct td_lex_token *out)
{
    char quote = lx->src[lx->pos];
    size_t from = lx->pos + 1, end = from;
    bool escapes = false;
    while (end < lx->len && lx->src[end] != quote) {
        escapes |= lx->src[end] == '\\';
        end += lx->src[end] == '\\' ? 2 : 1;
    }
    if (end >= lx->len)
        return td_template_invalid(lx->err, lx->name, lx->line,
                                   "a string that starts with %c has no end", quote);
    out->kind = TD_LEX_STRING;
    out->s = lx->src + from;
    out->len = end - from;
    if (escapes) {
        /* an escape grows at most from 5 bytes (\ and a wide character) to 10 */
        char *dst = td_arena_alloc(lx->arena, (end - from) * 2 + ESCAPE_ROOM, 1);
        if (!dst)
            return td_error_set(lx->err, lx->arena->status, "%s: no room to parse it",
                                lx->name);
        size_t len = 0, used;
        const char *why = NULL;
        for (size_t i = from; i < end; i += used) {
            used = 1;
            if (lx->src[i] != '\\') {
                dst[len++] = lx->src[i];
                continue;
            }
            len += unescape(lx->src + i + 1, end - i - 1, dst + len, &used, &why);
            if (why)
                return td_template_invalid(lx->err, lx->name, lx->line,
                                           "the escape \\%c in a string %s",
                                           lx->src[i + 1], why);
            used++;
        }
        out->s = dst;
        out->len = len;
    }
    move_to(lx, end + 1);
    return TD_OK;
}

/* The end of a name at pos, or pos. */
static size_t name_end(const struct td_lexer *lx, size_t pos)
{
    while (pos < lx->len) {
        size_t n;
        int32_t c = td_str_char(lx->src + pos, lx->len - pos, &n);
        if (!td_char_is_name(c))
            break;
        pos += n;
    }
    return pos;
}

static enum td_status balance(struct td_lexer *lx, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *o = strchr(opening, c), *e = strchr(closing, c);
    if (o) {
        if (lx->open == sizeof(lx->closers))
            return td_template_invalid(lx->err, lx->name, lx->line,
                                       "more than %zu brackets inside each other "
                                       "(TD_MAX_TEMPLATE_NESTING)",
                                       sizeof(lx->closers));
        lx->closers[lx->open++] = closing[o - opening];
    } else if (e) {
        if (lx->open == 0)
            return td_template_invalid(lx->err, lx->name, lx->line, "unexpected '%c'",
                                       c);
        char want = lx->closers[--lx->open];
        if (want != c)
            return td_template_invalid(lx->err, lx->name, lx->line,
                                       "unexpected '%c', expected '%c'", c, want);
    }
    return TD_OK;
}

static enum td_status operator_token(struct td_lexer *lx, struct td_lex_token *out)
{
    enum td_lex_kind best = TD_LEX_EOF;
    size_t len = 0;
    for (int k = TD_LEX_ADD; k <= TD_LEX_SEMICOLON; k++) {
        size_t n = strlen(kind_names[k]) - 2;
        if (n > len && lx->len - lx->pos >= n &&
            memcmp(lx->src + lx->pos, kind_names[k] + 1, n) == 0) {
            best = (enum td_lex_kind)k;
            len = n;
        }
    }
    if (len == 0) {
        size_t n;
        (void)td_str_char(lx->src + lx->pos, lx->len - lx->pos, &n);
        return td_template_invalid(lx->err, lx->name, lx->line,
                                   "unexpected character '%.*s'", (int)n,
                                   lx->src + lx->pos);
    }
    out->kind = best;
    out->s = lx->src + lx->pos;
    out->len = len;
    enum td_status s = balance(lx, lx->src[lx->pos]);
    move_to(lx, lx->pos + len);
    return s;
}

static enum td_status next_in_tag(struct td_lexer *lx, struct td_lex_token *out)
{
    bool print = lx->mode == TD_LEX_PRINT_BEGIN;
    move_to(lx, skip_space(lx, lx->pos));
    *out = (struct td_lex_token){.kind = TD_LEX_EOF, .line = lx->line};
    if (lx->pos >= lx->len)
        return TD_OK;
    size_t after = 0;
    if (lx->open == 0)
        after = tag_end(lx, lx->pos, print ? "}}" : "%}", !print, !print);
    if (after) {
        out->kind = print ? TD_LEX_PRINT_END : TD_LEX_BLOCK_END;
        lx->mode = TD_LEX_EOF;
        move_to(lx, after);
        return TD_OK;
    }
    char c = lx->src[lx->pos];
    if (is_digit(c, 10))
        return number(lx, out);
    if (c == '\'' || c == '"')
        return string(lx, out);
    size_t end = name_end(lx, lx->pos);
    if (end > lx->pos) {
        out->kind = TD_LEX_NAME;
        out->s = lx->src + lx->pos;
        out->len = end - lx->pos;
        move_to(lx, end);
        return TD_OK;
    }
    return operator_token(lx, out);
}

enum td_status td_lexer_next(struct td_lexer *lx, struct td_lex_token *out)
{
    bool given = false;
    while (lx->mode == TD_LEX_EOF && !lx->queued && !given) {
        if (lx->pos >= lx->len) {
            *out = (struct td_lex_token){.kind = TD_LEX_EOF, .line = lx->line};
            return TD_OK;
        }
        enum td_status s = next_text(lx, out, &given);
        if (s != TD_OK)
            return s;
    }
    if (given)
        return TD_OK;
    if (lx->queued) {
        *out = (struct td_lex_token){.kind = lx->queued_kind, .line = lx->line};
        lx->queued = false;
        lx->mode = lx->queued_kind;
        move_to(lx, lx->pos + 2 + (sign_at(lx, lx->pos + 2) != SIGN_NONE));
        return TD_OK;
    }
    return next_in_tag(lx, out);
}

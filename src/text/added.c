/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Added tokens. See added.h.
 *
 * Tokens are sorted by their bytes. From a place in the text, each further byte narrows
 * the range of tokens that agree so far; where the range is empty, the search ends. At
 * most places the first byte decides.
 */
#include "text/added.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void td_added_init(struct td_added *a)
{
    *a = (struct td_added){0};
}

void td_added_release(struct td_added *a)
{
    td_free(a->tokens);
    td_added_init(a);
}

enum td_status td_added_put(struct td_added *a, const struct td_added_token *token)
{
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 64;
        struct td_added_token *t = td_realloc(a->tokens, cap, sizeof(*t));
        if (!t)
            return TD_E_NOMEM;
        a->tokens = t;
        a->cap = cap;
    }
    a->tokens[a->n++] = *token;
    unsigned char c = (unsigned char)token->text[0];
    a->first[c / 32] |= (uint32_t)1 << c % 32;
    return TD_OK;
}

static int by_bytes(const void *x, const void *y)
{
    const struct td_added_token *a = x, *b = y;
    int d = memcmp(a->text, b->text, TD_MIN(a->len, b->len));
    return d ? d : (a->len > b->len) - (a->len < b->len);
}

bool td_added_finish(struct td_added *a)
{
    if (a->n)
        qsort(a->tokens, a->n, sizeof(*a->tokens), by_bytes);
    for (size_t i = 1; i < a->n; i++)
        if (by_bytes(&a->tokens[i - 1], &a->tokens[i]) == 0)
            return false;
    return true;
}

/* The first token of lo..hi, all of which agree before byte i, whose byte i is not
 * below c. A token that ends at i comes before all others. */
static size_t lower(const struct td_added *a, size_t lo, size_t hi, size_t i, int c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct td_added_token *t = &a->tokens[mid];
        if ((i < t->len ? (unsigned char)t->text[i] : -1) < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest token at the beginning of the text, or NULL. */
static const struct td_added_token *longest(const struct td_added *a, const char *text,
                                            size_t n)
{
    const struct td_added_token *best = NULL;
    size_t lo = 0, hi = a->n;
    for (size_t i = 0; i < n && lo < hi; i++) {
        int c = (unsigned char)text[i];
        lo = lower(a, lo, hi, i, c);
        hi = lower(a, lo, hi, i, c + 1);
        if (lo < hi && a->tokens[lo].len == i + 1)
            best = &a->tokens[lo];
    }
    return best;
}

static const struct td_added_token *search(const struct td_added *a, const char *text,
                                           size_t n, size_t *at)
{
    for (size_t i = *at; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!(a->first[c / 32] >> c % 32 & 1))
            continue;
        const struct td_added_token *t = longest(a, text + i, n - i);
        if (t) {
            *at = i;
            return t;
        }
    }
    return NULL;
}

static int32_t char_at(const char *text, size_t n, size_t *len)
{
    utf8proc_int32_t c = -1;
    utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)text,
                                            (utf8proc_ssize_t)TD_MIN(n, (size_t)4), &c);
    *len = got > 0 ? (size_t)got : 1;
    return c;
}

static int32_t char_before(const char *text, size_t n, size_t *len)
{
    size_t begin = n - 1, ignored;
    while (begin > 0 && n - begin < 4 && ((unsigned char)text[begin] & 0xC0) == 0x80)
        begin--;
    *len = n - begin;
    return char_at(text + begin, n - begin, &ignored);
}

static bool is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* A word character in the sense of Unicode's regular expressions: alphabetic, mark,
 * decimal digit, connecting punctuation, join control. */
static bool is_word(int32_t c)
{
    if (c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
        (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
        (c >= 0x1F170 && c <= 0x1F189))
        return true;
    utf8proc_category_t k = utf8proc_category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) ||
           k == UTF8PROC_CATEGORY_PC;
}

static bool alone(const char *text, size_t n, size_t begin, size_t end)
{
    size_t len;
    return (begin == 0 || !is_word(char_before(text, begin, &len))) &&
           (end == n || !is_word(char_at(text + end, n - end, &len)));
}

/* Extends a match over the white space that the token strips, back to `floor`. */
static void strip(const struct td_added_token *t, const char *text, size_t n,
                  size_t floor, size_t *begin, size_t *end)
{
    size_t len;
    while (t->lstrip && *begin > floor && is_space(char_before(text, *begin, &len)))
        *begin -= len;
    while (t->rstrip && *end < n && is_space(char_at(text + *end, n - *end, &len)))
        *end += len;
}

enum td_status td_added_cut(const struct td_added *a, const char *text, size_t n,
                            bool special, td_stretch_fn fn, void *ctx)
{
    enum td_status s = TD_OK;
    size_t done = 0, at = 0;
    const struct td_added_token *t;
    while (s == TD_OK && (t = search(a, text, n, &at)) != NULL) {
        size_t begin = at, end = at + t->len;
        at = end;
        if ((t->special && !special) || (t->single_word && !alone(text, n, begin, end)))
            continue;
        strip(t, text, n, TD_MIN(done, begin), &begin, &end);
        if (begin > done)
            s = fn(ctx, -1, text + done, begin - done);
        if (s == TD_OK)
            s = fn(ctx, t->id, text + begin, end - begin);
        done = end;
    }
    if (s == TD_OK && done < n)
        s = fn(ctx, -1, text + done, n - done);
    return s;
}

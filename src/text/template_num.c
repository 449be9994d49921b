/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as text, both ways, as Python does it: the shortest decimal that reads back
 * as the same double, int() with a base, float().
 */
#include "text/template_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void td_float_repr(char *out, size_t size, double f)
{
    char sci[40], digits[24];
    if (isnan(f) || isinf(f)) {
        (void)snprintf(out, size, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    /* 15 digits are exact when trailing zeros are cut; else 16 or 17 are needed */
    for (int p = 14; p <= 16; p++) {
        (void)snprintf(sci, sizeof(sci), "%.*e", p, f);
        double back = strtod(sci, NULL);
        if (memcmp(&back, &f, sizeof(f)) == 0)
            break;
    }
    const char *s = sci;
    const char *sign = *s == '-' ? "-" : "";
    size_t n = 0;
    for (s += *s == '-'; *s && *s != 'e'; s++)
        if (*s >= '0' && *s <= '9')
            digits[n++] = *s;
    int exp = (int)strtol(s + 1, NULL, 10);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
    if (exp < -4 || exp >= 16)
        (void)snprintf(out, size, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "",
                       digits + 1, exp < 0 ? '-' : '+', abs(exp));
    else if (exp < 0)
        (void)snprintf(out, size, "%s0.%.*s%s", sign, -exp - 1, "0000", digits);
    else if ((size_t)exp + 1 >= n)
        (void)snprintf(out, size, "%s%s%.*s.0", sign, digits, exp + 1 - (int)n,
                       "0000000000000000");
    else
        (void)snprintf(out, size, "%s%.*s.%s", sign, exp + 1, digits, digits + exp + 1);
}

static void strip(const char **s, size_t *n)
{
    size_t len;
    while (*n && td_char_is_space(td_str_char(*s, *n, &len))) {
        *s += len;
        *n -= len;
    }
    while (*n) {
        size_t start = td_str_back(*s, *n);
        if (!td_char_is_space(td_str_char(*s + start, *n - start, &len)))
            break;
        *n = start;
    }
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* Skips 0x, 0o or 0b; with base 0 chooses the base by it. */
static int take_prefix(const char **s, size_t *n, int base)
{
    if (*n >= 2 && **s == '0') {
        char c = (char)((*s)[1] | 32);
        int b = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (b && (base == 0 || base == b)) {
            *s += 2;
            *n -= 2;
            if (*n && **s == '_') {
                ++*s;
                --*n;
            }
            return b;
        }
    }
    return base ? base : 10;
}

enum td_number td_int_parse(const char *s, size_t n, int base, int64_t *out)
{
    bool negative = false, big = false, after_digit = false, zeros = base == 0;
    uint64_t x = 0;
    strip(&s, &n);
    if (n && (*s == '-' || *s == '+')) {
        negative = *s == '-';
        s++;
        n--;
    }
    base = take_prefix(&s, &n, base);
    zeros = zeros && base == 10 && n > 1 && *s == '0'; /* 010 is no literal, 00 is */
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '_' && after_digit && i + 1 < n) {
            after_digit = false;
            continue;
        }
        int d = digit_of(s[i]);
        if (d >= base || (zeros && d))
            return TD_NUMBER_BAD;
        big |= x > (UINT64_MAX - (uint64_t)d) / (uint64_t)base;
        x = x * (uint64_t)base + (uint64_t)d;
        after_digit = true;
    }
    if (!after_digit)
        return TD_NUMBER_BAD;
    if (big || x > (uint64_t)INT64_MAX + negative)
        return TD_NUMBER_BIG;
    *out = negative ? (int64_t)(0 - x) : (int64_t)x;
    return TD_NUMBER_OK;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    if (n != strlen(word))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((s[i] | 32) != word[i])
            return false;
    return true;
}

bool td_float_parse(const char *s, size_t n, double *out)
{
    char text[512];
    size_t len = 0;
    bool digit = false, ok = true;
    strip(&s, &n);
    size_t sign = n && (*s == '-' || *s == '+');
    double special =
        is_word(s + sign, n - sign, "nan") ? (double)NAN
        : is_word(s + sign, n - sign, "inf") || is_word(s + sign, n - sign, "infinity")
            ? (double)INFINITY
            : 0.0;
    if (isnan(special) || isinf(special)) {
        *out = sign && *s == '-' ? -special : special;
        return true;
    }
    for (size_t i = 0; i < n && ok; i++) {
        char c = s[i];
        bool is_digit = c >= '0' && c <= '9';
        if (c == '_' && digit && i + 1 < n && s[i + 1] >= '0' && s[i + 1] <= '9')
            continue;
        ok = (is_digit || strchr("+-.eE", c)) && c && len + 1 < sizeof(text);
        digit = is_digit;
        if (ok)
            text[len++] = c;
    }
    if (!ok || len == 0)
        return false;
    text[len] = 0;
    char *end = NULL;
    *out = strtod(text, &end);
    return end == text + len;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8. See utf8.h.
 */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* What the lead byte asks for: total length and the range of the second byte. */
struct lead {
    size_t len;
    unsigned char lo, hi;
};

static struct lead lead_of(unsigned char c)
{
    if (c < 0x80)
        return (struct lead){1, 0, 0};
    if (c < 0xC2 || c > 0xF4)
        return (struct lead){0, 0, 0};
    if (c < 0xE0)
        return (struct lead){2, 0x80, 0xBF};
    if (c < 0xF0)
        return (struct lead){3, c == 0xE0 ? 0xA0 : 0x80, c == 0xED ? 0x9F : 0xBF};
    return (struct lead){4, c == 0xF0 ? 0x90 : 0x80, c == 0xF4 ? 0x8F : 0xBF};
}

/* How many of the bytes at s fit the character that the lead byte begins. */
static size_t fitting(const unsigned char *s, size_t n, struct lead l)
{
    size_t i = 1;
    if (i < l.len && i < n && s[1] >= l.lo && s[1] <= l.hi)
        for (i = 2; i < l.len && i < n && (s[i] & 0xC0) == 0x80; i++)
            ;
    return i;
}

size_t td_utf8_len(const char *s, size_t n)
{
    if (n == 0)
        return 0;
    const unsigned char *u = (const unsigned char *)s;
    struct lead l = lead_of(u[0]);
    return l.len && fitting(u, n, l) == l.len ? l.len : 0;
}

bool td_utf8_is_cut(const char *s, size_t n)
{
    if (n == 0)
        return false;
    const unsigned char *u = (const unsigned char *)s;
    struct lead l = lead_of(u[0]);
    return l.len > n && fitting(u, n, l) == n;
}

size_t td_utf8_bad(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    struct lead l = lead_of(u[0]);
    return l.len ? fitting(u, n, l) : 1;
}

bool td_utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (n - i >= sizeof(eight)) {
            memcpy(&eight, s + i, sizeof(eight));
            if ((eight & 0x8080808080808080u) == 0) {
                i += sizeof(eight);
                continue;
            }
        }
        size_t len = td_utf8_len(s + i, n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

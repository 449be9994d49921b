/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable byte buffer with a maximum. See buf.h.
 */
#include "base/buf.h"

#include "base/mem.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static char empty[1] = "";

void td_buf_init(struct td_buf *b, size_t max)
{
    *b = (struct td_buf){.p = empty, .max = max};
}

void td_buf_release(struct td_buf *b)
{
    if (b->cap)
        td_free(b->p);
    td_buf_init(b, b->max);
}

void td_buf_clear(struct td_buf *b)
{
    b->status = TD_OK;
    td_buf_set_len(b, 0);
}

enum td_status td_buf_reserve(struct td_buf *b, size_t n)
{
    if (b->status != TD_OK)
        return b->status;
    if (n > b->max - b->len)
        return b->status = TD_E_LIMIT;
    size_t need = b->len + n + 1;
    if (need <= b->cap)
        return TD_OK;
    size_t cap = b->cap < 64 ? 64 : b->cap * 2;
    cap = TD_MAX(cap, need);
    if (cap > b->max + 1)
        cap = b->max + 1;
    char *p = td_realloc(b->cap ? b->p : NULL, cap, 1);
    if (!p)
        return b->status = TD_E_NOMEM;
    b->p = p;
    b->cap = cap;
    b->p[b->len] = 0;
    return TD_OK;
}

void td_buf_set_len(struct td_buf *b, size_t n)
{
    b->len = n;
    if (b->cap)
        b->p[n] = 0;
}

enum td_status td_buf_add(struct td_buf *b, const void *p, size_t n)
{
    if (n == 0 || td_buf_reserve(b, n) != TD_OK)
        return b->status;
    memcpy(b->p + b->len, p, n);
    td_buf_set_len(b, b->len + n);
    return TD_OK;
}

enum td_status td_buf_adds(struct td_buf *b, const char *s)
{
    return td_buf_add(b, s, strlen(s));
}

enum td_status td_buf_addc(struct td_buf *b, char c)
{
    return td_buf_add(b, &c, 1);
}

enum td_status td_buf_vaddf(struct td_buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n > 0 && td_buf_reserve(b, (size_t)n) == TD_OK) {
        (void)vsnprintf(b->p + b->len, (size_t)n + 1, fmt, again);
        td_buf_set_len(b, b->len + (size_t)n);
    }
    va_end(again);
    return b->status;
}

enum td_status td_buf_addf(struct td_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    enum td_status s = td_buf_vaddf(b, fmt, ap);
    va_end(ap);
    return s;
}

void td_buf_drop(struct td_buf *b, size_t n)
{
    if (n == 0)
        return;
    memmove(b->p, b->p + n, b->len - n);
    td_buf_set_len(b, b->len - n);
}

char *td_buf_take(struct td_buf *b)
{
    char *p = b->cap ? b->p : td_strdup("");
    td_buf_init(b, b->max);
    return p;
}

enum td_status td_buf_add_wrapped(struct td_buf *b, const char *text, size_t indent)
{
    enum { WIDTH = 80 };
    static const char blanks[] = " \n";
    size_t column = indent;
    for (const char *p = text; *p && b->status == TD_OK;) {
        size_t gap = strspn(p, blanks), n = strcspn(p + gap, blanks);
        bool paragraph = gap > 1 && p[0] == '\n' && p[1] == '\n';
        if (n == 0)
            break;
        if (paragraph)
            td_buf_addc(b, '\n');
        if (paragraph || (column > indent && column + 1 + n > WIDTH)) {
            td_buf_addf(b, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            td_buf_addc(b, ' ');
            column++;
        }
        td_buf_add(b, p + gap, n);
        column += n;
        p += gap + n;
    }
    return b->status;
}

void td_text_copy(char *out, size_t size, const char *s)
{
    size_t n = TD_MIN(strlen(s), size - 1);
    memmove(out, s, n);
    out[n] = 0;
}

struct td_size_text td_size_text(int64_t bytes, int decimals)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    struct td_size_text out;
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024 && u + 1 < TD_COUNT(units); u++)
        v /= 1024;
    (void)snprintf(out.text, sizeof(out.text), "%.*f %s", u ? decimals : 0, v,
                   units[u]);
    return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings. See stops.h.
 */
#include "api/stops.h"

#include "base/limits.h"

#include <string.h>

size_t td_tail_match(const char *text, size_t n, const char *tag, size_t tag_n)
{
    size_t k = tag_n ? TD_MIN(tag_n - 1, n) : 0;
    while (k > 0 && memcmp(text + n - k, tag, k) != 0)
        k--;
    return k;
}

size_t td_find_text(const char *text, size_t n, const char *tag, size_t tag_n)
{
    for (size_t at = 0; tag_n > 0 && at + tag_n <= n; at++) {
        const char *p = memchr(text + at, tag[0], n - at - tag_n + 1);
        if (!p)
            return n;
        at = (size_t)(p - text);
        if (memcmp(p, tag, tag_n) == 0)
            return at;
    }
    return n;
}

void td_stops_init(struct td_stops *s, const struct td_stop_set *set)
{
    s->set = set;
    s->matched = -1;
    td_buf_init(&s->held, TD_MAX_TEXT);
}

void td_stops_release(struct td_stops *s)
{
    td_buf_release(&s->held);
}

/* The place of the earliest stop string in what is held; its length if there is none. */
static size_t find_first(struct td_stops *s)
{
    size_t first = s->held.len;
    for (size_t i = 0; i < s->set->n; i++) {
        size_t at =
            td_find_text(s->held.p, s->held.len, s->set->text[i], s->set->len[i]);
        if (at < first) {
            first = at;
            s->matched = (int)i;
        }
    }
    return first;
}

/* How much of the end of what is held may be the beginning of a stop string. */
static size_t longest_tail(const struct td_stops *s)
{
    size_t keep = 0;
    for (size_t i = 0; i < s->set->n; i++) {
        size_t k =
            td_tail_match(s->held.p, s->held.len, s->set->text[i], s->set->len[i]);
        keep = TD_MAX(keep, k);
    }
    return keep;
}

enum td_status td_stops_add(struct td_stops *s, const char *text, size_t n, bool armed,
                            struct td_buf *out)
{
    if (s->matched >= 0)
        return out->status;
    if (s->set->n == 0 || !armed)
        return td_buf_add(out, text, n);
    if (td_buf_add(&s->held, text, n) != TD_OK)
        return s->held.status;
    size_t at = find_first(s);
    if (s->matched >= 0) {
        size_t show = at + (s->set->include ? s->set->len[s->matched] : 0);
        td_buf_add(out, s->held.p, show);
        td_buf_clear(&s->held);
        return out->status;
    }
    size_t show = s->held.len - longest_tail(s);
    td_buf_add(out, s->held.p, show);
    td_buf_drop(&s->held, show);
    return out->status;
}

enum td_status td_stops_end(struct td_stops *s, struct td_buf *out)
{
    td_buf_add(out, s->held.p, s->held.len);
    td_buf_clear(&s->held);
    return out->status;
}

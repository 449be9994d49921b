/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings in a stream of text.
 *
 * Text comes in pieces of whole characters; what can no longer be the beginning of a
 * stop string comes out, the rest is held back. So no part of a stop string is ever
 * shown, wherever pieces are cut.
 */
#ifndef TD_API_STOPS_H
#define TD_API_STOPS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* The stop strings of a request; shared by its answers, borrowed. */
struct td_stop_set {
    const char *const *text;
    const size_t *len; /* each at least 1 */
    size_t n;
    bool include; /* the stop string belongs to the answer */
};

struct td_stops {
    const struct td_stop_set *set;
    struct td_buf held;
    int matched; /* index of the stop string that came, -1: none */
};

void td_stops_init(struct td_stops *s, const struct td_stop_set *set);
void td_stops_release(struct td_stops *s);

/* Takes n bytes, appends what may be shown to out. `armed` false: too early for a stop,
 * everything may be shown. Nothing more comes out once one has matched. Returns the
 * buffers' status. */
enum td_status td_stops_add(struct td_stops *s, const char *text, size_t n, bool armed,
                            struct td_buf *out);

/* The end: appends what was held back. */
enum td_status td_stops_end(struct td_stops *s, struct td_buf *out);

/* The length of the longest end of text that is the beginning, but not all, of tag. */
size_t td_tail_match(const char *text, size_t n, const char *tag, size_t tag_n);

/* The first place of tag within text, n when there is none. */
size_t td_find_text(const char *text, size_t n, const char *tag, size_t tag_n);

#endif

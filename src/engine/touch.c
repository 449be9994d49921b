/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Touching the caches beside the load. See touch.h.
 */
#include "engine/touch.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

enum { PAGE = 4096 };

#define PIECE (64 * TD_MIB)

/* Writes a byte of each page that begins in the piece; the memory is zero already. */
static void touch_piece(const struct td_cache *c, int64_t piece)
{
    int64_t at = piece * PIECE, end = at + PIECE;
    for (size_t i = 0; i < TD_COUNT(c->slabs); i++) {
        int64_t bytes = (int64_t)c->slabs[i].bytes;
        volatile char *p = c->slabs[i].p;
        for (int64_t k = TD_MAX(at, 0); k < TD_MIN(end, bytes); k += PAGE)
            p[k] = 0;
        at -= (bytes + PAGE - 1) / PAGE * PAGE;
        end -= (bytes + PAGE - 1) / PAGE * PAGE;
    }
}

static void *touch(void *arg)
{
    struct td_touch *t = arg;
    for (;;) {
        int64_t piece = atomic_fetch_add(&t->next, 1);
        if (piece * PIECE >= t->bytes)
            return NULL;
        touch_piece(t->cache, piece);
        if (t->beat)
            atomic_fetch_add(t->beat, 1);
        atomic_store(&t->seconds, td_clock_now() - t->start);
    }
}

void td_touch_start(struct td_touch *t, const struct td_dev *dev,
                    struct td_cache *cache, atomic_ullong *beat)
{
    memset(t, 0, sizeof(*t));
    if (!dev->host)
        return;
    t->cache = cache;
    t->beat = beat;
    t->start = td_clock_now();
    for (size_t i = 0; i < TD_COUNT(cache->slabs); i++)
        t->bytes += ((int64_t)cache->slabs[i].bytes + PAGE - 1) / PAGE * PAGE;
    int64_t pieces = (t->bytes + PIECE - 1) / PIECE;
    int most = (int)TD_MIN(TD_MIN(dev->threads, TD_TOUCH_MAX), pieces);
    while (t->n < most && pthread_create(&t->threads[t->n], NULL, touch, t) == 0)
        t->n++;
}

void td_touch_end(struct td_touch *t, bool needed)
{
    if (!t->cache)
        return;
    if (needed)
        (void)touch(t); /* also what no thread could be started for */
    else
        atomic_store(&t->next, t->bytes / PIECE + 1);
    for (int i = 0; i < t->n; i++)
        (void)pthread_join(t->threads[i], NULL);
    if (needed)
        td_event("touched", (struct td_num[]){{"bytes", (double)t->bytes},
                                              {"seconds", atomic_load(&t->seconds)},
                                              {NULL, 0}});
    t->cache = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bump memory: many small pieces that are freed together.
 *
 * Pieces are zeroed and aligned to 16 bytes. An arena never gives out more than `max`
 * bytes in all; past that, and when memory is short, td_arena_alloc() returns NULL and
 * `status` says why.
 */
#ifndef TD_BASE_ARENA_H
#define TD_BASE_ARENA_H

#include "base/status.h"

#include <stddef.h>

struct td_arena_block;

struct td_arena {
    struct td_arena_block *head;
    size_t used, max;
    enum td_status status;
};

void td_arena_init(struct td_arena *a, size_t max);
void td_arena_release(struct td_arena *a);

/* n elements of `size` bytes, borrowed until td_arena_release(). */
TD_MUST_USE void *td_arena_alloc(struct td_arena *a, size_t n, size_t size);

/* A copy of n bytes with a final zero. */
TD_MUST_USE char *td_arena_strndup(struct td_arena *a, const char *s, size_t n);

#endif

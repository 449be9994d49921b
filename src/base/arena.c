/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bump memory. See arena.h. Blocks grow from 4 KiB to 1 MiB; a piece larger than that
 * gets a block of its own.
 */
#include "base/arena.h"

#include "base/mem.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_BLOCK = 4096, LAST_BLOCK = 1 << 20 };

struct td_arena_block {
    struct td_arena_block *next;
    size_t used, size;
    alignas(ALIGNMENT) char bytes[];
};

void td_arena_init(struct td_arena *a, size_t max)
{
    *a = (struct td_arena){.max = max};
}

void td_arena_release(struct td_arena *a)
{
    struct td_arena_block *b = a->head;
    while (b) {
        struct td_arena_block *next = b->next;
        td_free(b);
        b = next;
    }
    td_arena_init(a, a->max);
}

static struct td_arena_block *add_block(struct td_arena *a, size_t bytes)
{
    size_t size = a->head ? TD_MIN(a->head->size * 2, (size_t)LAST_BLOCK) : FIRST_BLOCK;
    size = TD_MAX(size, bytes);
    struct td_arena_block *b = td_calloc(1, sizeof(*b) + size);
    if (!b)
        return NULL;
    b->size = size;
    b->next = a->head;
    a->head = b;
    return b;
}

void *td_arena_alloc(struct td_arena *a, size_t n, size_t size)
{
    if (a->status != TD_OK)
        return NULL;
    size_t left = a->max - a->used;
    if ((size && n > SIZE_MAX / 2 / size) || n * size + ALIGNMENT > left) {
        a->status = TD_E_LIMIT;
        return NULL;
    }
    size_t bytes = (n * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct td_arena_block *b = a->head;
    if (!b || b->size - b->used < bytes)
        b = add_block(a, bytes);
    if (!b) {
        a->status = TD_E_NOMEM;
        return NULL;
    }
    void *p = b->bytes + b->used;
    b->used += bytes;
    a->used += bytes;
    return p;
}

char *td_arena_strndup(struct td_arena *a, const char *s, size_t n)
{
    char *copy = td_arena_alloc(a, n + 1, 1);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map from byte strings to 64-bit values. See map.h. Linear probing, at most
 * half full.
 */
#include "base/map.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

void td_map_init(struct td_map *m)
{
    *m = (struct td_map){.seed = (uint64_t)td_clock_ns() * 0x9E3779B97F4A7C15u ^
                                 (uint64_t)(uintptr_t)m};
}

void td_map_release(struct td_map *m)
{
    td_free(m->slots);
    td_map_init(m);
}

static uint32_t hash_of(const struct td_map *m, const char *key, size_t len)
{
    uint64_t h = 0xCBF29CE484222325u ^ m->seed;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)key[i]) * 0x100000001B3u;
    h ^= h >> 32;
    return (uint32_t)(h * 0x9E3779B97F4A7C15u >> 32);
}

/* The slot that holds the key, or the free one where it belongs. */
static struct td_map_slot *find(const struct td_map *m, const char *key, size_t len,
                                uint32_t hash)
{
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct td_map_slot *s = &m->slots[i];
        if (!s->key)
            return s;
        if (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0)
            return s;
    }
}

static enum td_status grow(struct td_map *m)
{
    struct td_map bigger = *m;
    bigger.cap = m->cap ? m->cap * 2 : 16;
    bigger.slots = td_calloc(bigger.cap, sizeof(*bigger.slots));
    if (!bigger.slots)
        return TD_E_NOMEM;
    for (size_t i = 0; i < m->cap; i++) {
        const struct td_map_slot *s = &m->slots[i];
        if (s->key)
            *find(&bigger, s->key, s->len, s->hash) = *s;
    }
    td_free(m->slots);
    *m = bigger;
    return TD_OK;
}

enum td_status td_map_put(struct td_map *m, const char *key, size_t len, uint64_t value)
{
    if (m->count * 2 >= m->cap && grow(m) != TD_OK)
        return TD_E_NOMEM;
    uint32_t hash = hash_of(m, key, len);
    struct td_map_slot *s = find(m, key, len, hash);
    if (!s->key)
        m->count++;
    *s = (struct td_map_slot){
        .key = key, .len = (uint32_t)len, .hash = hash, .value = value};
    return TD_OK;
}

bool td_map_get(const struct td_map *m, const char *key, size_t len, uint64_t *value)
{
    if (!m->cap)
        return false;
    const struct td_map_slot *s = find(m, key, len, hash_of(m, key, len));
    if (!s->key)
        return false;
    *value = s->value;
    return true;
}

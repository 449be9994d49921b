/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map from byte strings to 64-bit values (open addressing, FNV-1a with a per-map
 * seed so that hostile keys cannot be prepared to collide).
 *
 * Keys are borrowed: they must outlive the map. Values are plain numbers; a caller that
 * stores indices or pointers casts them.
 */
#ifndef TD_BASE_MAP_H
#define TD_BASE_MAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_map_slot {
    const char *key; /* NULL: free */
    uint32_t len, hash;
    uint64_t value;
};

struct td_map {
    struct td_map_slot *slots;
    size_t cap, count; /* cap is 0 or a power of two */
    uint64_t seed;
};

void td_map_init(struct td_map *m);
void td_map_release(struct td_map *m);

/* Adds a key or replaces its value. Key length must be below 4 GiB. */
enum td_status td_map_put(struct td_map *m, const char *key, size_t len,
                          uint64_t value);

/* True and *value when the key is there. */
bool td_map_get(const struct td_map *m, const char *key, size_t len, uint64_t *value);

#endif

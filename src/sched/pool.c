/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV blocks and the prefix tree. See pool.h.
 *
 * Nodes are found through a hash table over (parent, tokens) with chaining by block
 * number; lists are doubly linked through the node array. All memory is taken at the
 * start.
 */
#include "sched/pool.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum state { FREE, PRIVATE, CACHED };

struct node {
    enum state state;
    int32_t parent, children, refs;
    int32_t snapshot;   /* slot, -1 for none */
    int32_t chain;      /* next in the hash chain */
    int32_t prev, next; /* free list, or evictable list (state CACHED, refs 0) */
    uint32_t hash;
    int32_t ids[TD_SCHED_BLOCK];
};

/* A snapshot slot; its list is by use, oldest first, or the free ones. */
struct snapshot {
    int32_t owner; /* block, -1: free */
    int32_t prev, next;
};

struct list {
    int32_t first, last, n;
};

struct td_pool {
    int32_t n_blocks, n_snapshots;
    struct node *node;
    struct snapshot *snap;
    int32_t *table; /* [cap] first block of each chain, -1 */
    uint32_t cap;
    struct list free, evictable, snap_free, snap_used;
};

/* ---- lists -------------------------------------------------------------------------
 * One implementation for nodes and snapshots: both begin a link pair at `prev`. */

struct links {
    int32_t *prev, *next;
};

static struct links node_links(const struct td_pool *p, int32_t i)
{
    return (struct links){&p->node[i].prev, &p->node[i].next};
}

static struct links snap_links(const struct td_pool *p, int32_t i)
{
    return (struct links){&p->snap[i].prev, &p->snap[i].next};
}

typedef struct links (*links_fn)(const struct td_pool *p, int32_t i);

static void append(const struct td_pool *p, struct list *l, links_fn links, int32_t i)
{
    struct links at = links(p, i);
    *at.prev = l->last;
    *at.next = -1;
    if (l->last >= 0)
        *links(p, l->last).next = i;
    else
        l->first = i;
    l->last = i;
    l->n++;
}

static void unlink_item(const struct td_pool *p, struct list *l, links_fn links,
                        int32_t i)
{
    struct links at = links(p, i);
    if (*at.prev >= 0)
        *links(p, *at.prev).next = *at.next;
    else
        l->first = *at.next;
    if (*at.next >= 0)
        *links(p, *at.next).prev = *at.prev;
    else
        l->last = *at.prev;
    l->n--;
}

/* ---- making ------------------------------------------------------------------------ */

enum td_status td_pool_new(int32_t n_blocks, int32_t n_snapshots, struct td_pool **out,
                           struct td_error *err)
{
    struct td_pool *p = td_calloc(1, sizeof(*p));
    if (!p)
        return td_error_set(err, TD_E_NOMEM, "no memory for a block pool");
    p->n_blocks = n_blocks;
    p->n_snapshots = n_snapshots;
    for (p->cap = 16; p->cap < 2 * (uint32_t)n_blocks; p->cap *= 2)
        ;
    p->node = td_calloc((size_t)n_blocks, sizeof(*p->node));
    p->snap = td_calloc((size_t)n_snapshots, sizeof(*p->snap));
    p->table = td_calloc(p->cap, sizeof(*p->table));
    if (!p->node || !p->snap || !p->table) {
        td_pool_free(p);
        return td_error_set(err, TD_E_NOMEM, "no memory for %d KV blocks", n_blocks);
    }
    memset(p->table, 0xFF, p->cap * sizeof(*p->table));
    p->free = p->evictable = p->snap_free = p->snap_used = (struct list){-1, -1, 0};
    for (int32_t i = 0; i < n_blocks; i++) {
        p->node[i].parent = p->node[i].snapshot = -1;
        append(p, &p->free, node_links, i);
    }
    for (int32_t i = 0; i < n_snapshots; i++) {
        p->snap[i].owner = -1;
        append(p, &p->snap_free, snap_links, i);
    }
    *out = p;
    return TD_OK;
}

void td_pool_free(struct td_pool *p)
{
    if (!p)
        return;
    td_free(p->node);
    td_free(p->snap);
    td_free(p->table);
    td_free(p);
}

int32_t td_pool_available(const struct td_pool *p)
{
    /* A cached block with children becomes free after them; if nobody uses it, nobody
     * uses its children either. So all of them can be had. */
    return p->free.n + p->evictable.n;
}

int32_t td_pool_used(const struct td_pool *p)
{
    return p->n_blocks - td_pool_available(p);
}

/* ---- the tree ---------------------------------------------------------------------- */

static uint32_t hash_of(int32_t parent, const int32_t *ids)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ (uint64_t)(uint32_t)parent;
    for (int i = 0; i < TD_SCHED_BLOCK; i++) {
        h = (h ^ (uint32_t)ids[i]) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 32);
}

static int32_t lookup(const struct td_pool *p, int32_t parent, const int32_t *ids)
{
    uint32_t h = hash_of(parent, ids);
    int32_t i = p->table[h & (p->cap - 1)];
    while (i >= 0) {
        const struct node *n = &p->node[i];
        if (n->hash == h && n->parent == parent &&
            memcmp(n->ids, ids, sizeof(n->ids)) == 0)
            return i;
        i = n->chain;
    }
    return -1;
}

static void drop_snapshot(struct td_pool *p, int32_t slot)
{
    unlink_item(p, &p->snap_used, snap_links, slot);
    p->node[p->snap[slot].owner].snapshot = -1;
    p->snap[slot].owner = -1;
    append(p, &p->snap_free, snap_links, slot);
}

/* Takes an unused leaf out of the tree. */
static void evict(struct td_pool *p, int32_t block)
{
    struct node *n = &p->node[block];
    int32_t *at = &p->table[n->hash & (p->cap - 1)];
    while (*at != block)
        at = &p->node[*at].chain;
    *at = n->chain;
    if (n->snapshot >= 0)
        drop_snapshot(p, n->snapshot);
    if (n->parent >= 0)
        p->node[n->parent].children--;
    n->parent = -1;
    unlink_item(p, &p->evictable, node_links, block);
    n->state = FREE;
    append(p, &p->free, node_links, block);
}

/* The least recently used block without children. */
static int32_t oldest_leaf(const struct td_pool *p)
{
    int32_t i = p->evictable.first;
    while (i >= 0 && p->node[i].children)
        i = p->node[i].next;
    return i;
}

int32_t td_pool_take(struct td_pool *p)
{
    if (p->free.n == 0) {
        int32_t leaf = oldest_leaf(p);
        if (leaf < 0)
            return -1;
        evict(p, leaf);
    }
    int32_t block = p->free.first;
    unlink_item(p, &p->free, node_links, block);
    p->node[block].state = PRIVATE;
    return block;
}

static void take_reference(struct td_pool *p, int32_t block)
{
    struct node *n = &p->node[block];
    if (n->refs++ == 0)
        unlink_item(p, &p->evictable, node_links, block);
}

void td_pool_release(struct td_pool *p, int32_t block)
{
    struct node *n = &p->node[block];
    assert(n->state != FREE);
    if (n->state == PRIVATE) {
        n->state = FREE;
        append(p, &p->free, node_links, block);
    } else if (--n->refs == 0) {
        append(p, &p->evictable, node_links, block);
    }
}

int32_t td_pool_find(struct td_pool *p, const int32_t *ids, int32_t n, int32_t limit,
                     int32_t *out, int32_t *snapshot)
{
    int32_t depth = 0, good = 0, parent = -1;
    int32_t most = TD_MIN(n, limit) / TD_SCHED_BLOCK;
    *snapshot = -1;
    while (depth < most) {
        int32_t block = lookup(p, parent, ids + (size_t)depth * TD_SCHED_BLOCK);
        if (block < 0)
            break;
        out[depth++] = parent = block;
        if (p->node[block].snapshot >= 0) {
            good = depth;
            *snapshot = p->node[block].snapshot;
        }
    }
    for (int32_t i = 0; i < good; i++)
        take_reference(p, out[i]);
    if (good) {
        unlink_item(p, &p->snap_used, snap_links, *snapshot);
        append(p, &p->snap_used, snap_links, *snapshot);
    }
    return good;
}

int32_t td_pool_insert(struct td_pool *p, int32_t parent, int32_t block,
                       const int32_t *ids)
{
    struct node *n = &p->node[block];
    assert(n->state == PRIVATE);
    int32_t known = lookup(p, parent, ids);
    if (known >= 0) {
        take_reference(p, known);
        td_pool_release(p, block);
        return known;
    }
    n->state = CACHED;
    n->parent = parent;
    n->children = 0;
    n->refs = 1;
    n->snapshot = -1;
    n->hash = hash_of(parent, ids);
    memcpy(n->ids, ids, sizeof(n->ids));
    n->chain = p->table[n->hash & (p->cap - 1)];
    p->table[n->hash & (p->cap - 1)] = block;
    if (parent >= 0)
        p->node[parent].children++;
    return block;
}

int32_t td_pool_snapshot(struct td_pool *p, int32_t block)
{
    assert(p->node[block].state == CACHED);
    if (p->node[block].snapshot >= 0 || p->n_snapshots == 0)
        return -1;
    if (p->snap_free.n == 0)
        drop_snapshot(p, p->snap_used.first);
    int32_t slot = p->snap_free.first;
    unlink_item(p, &p->snap_free, snap_links, slot);
    append(p, &p->snap_used, snap_links, slot);
    p->snap[slot].owner = block;
    p->node[block].snapshot = slot;
    return slot;
}

void td_pool_check(const struct td_pool *p)
{
    int32_t free_blocks = 0, evictable = 0, owned = 0;
    for (int32_t i = 0; i < p->n_blocks; i++) {
        const struct node *n = &p->node[i];
        free_blocks += n->state == FREE;
        evictable += n->state == CACHED && n->refs == 0;
        assert(n->refs >= 0);
        if (n->state == CACHED && n->parent >= 0)
            assert(p->node[n->parent].state == CACHED &&
                   p->node[n->parent].refs >= (n->refs > 0));
        if (n->state == CACHED && n->snapshot >= 0) {
            assert(p->snap[n->snapshot].owner == i);
            owned++;
        }
    }
    assert(free_blocks == p->free.n && evictable == p->evictable.n);
    assert(owned == p->snap_used.n && owned + p->snap_free.n == p->n_snapshots);
    (void)free_blocks;
    (void)evictable;
    (void)owned;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV blocks, and which prompt text is still in them: the prefix tree.
 *
 * A block holds TD_SCHED_BLOCK tokens. It is in one of three states:
 *
 *     free      on the free list, contents worthless           pool_release, evict
 *     private   one request writes to it                       td_pool_take
 *     cached    full of PREFILLED tokens and in the tree       td_pool_insert
 *
 * The tree has a node for each cached block, named by the block's number: its tokens,
 * and its parent, the block before it in the text (-1 for the first). Looking up a text
 * compares tokens, not only hashes, so a hit is exact. Cached blocks are shared: `refs`
 * counts the requests that use them. A cached block with refs 0 is kept until memory is
 * needed; then the least recently used one without children goes first, so that a node's
 * parents are always there.
 *
 * A node may carry a snapshot: the recurrent and convolution state behind its last
 * token. A prompt can begin behind a node only where a snapshot is, because KV alone is
 * not the whole state of this model. Snapshots have slots of their own and their own
 * least-recently-used order; one that is being copied into a request's slot is pinned by
 * the same step and cannot go.
 *
 * Invariants (td_pool_check): every block is in one state; free and evictable lists are
 * disjoint; a request's blocks have refs >= 1 or are private; a node's parent is cached;
 * a snapshot slot belongs to one node at most.
 */
#ifndef TD_SCHED_POOL_H
#define TD_SCHED_POOL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_SCHED_BLOCK = 64 };

struct td_pool;

/* n_snapshots may be 0: then no prefix is ever found. */
enum td_status td_pool_new(int32_t n_blocks, int32_t n_snapshots, struct td_pool **out,
                           struct td_error *err);
void td_pool_free(struct td_pool *p);

/* Blocks that td_pool_take() can still give: free ones and cached ones nobody uses. */
int32_t td_pool_available(const struct td_pool *p);

/* Blocks that requests hold. */
int32_t td_pool_used(const struct td_pool *p);

/* A private block, -1 when none is left. May evict cached ones. */
int32_t td_pool_take(struct td_pool *p);

/* Gives a request's block back: a private one becomes free, a cached one loses a
 * reference. */
void td_pool_release(struct td_pool *p, int32_t block);

/* The longest prefix of n tokens that ends behind a snapshot and is at most `limit`
 * tokens: its blocks in out[], each with a reference taken, and the snapshot. Returns
 * the number of blocks, 0 for no hit. */
int32_t td_pool_find(struct td_pool *p, const int32_t *ids, int32_t n, int32_t limit,
                     int32_t *out, int32_t *snapshot);

/* The tokens of `block`, private and just prefilled, become known behind the cached
 * block `parent` (-1: at the start). When the tree has them already, `block` is freed
 * and the known one is returned with a reference; otherwise `block` itself. */
int32_t td_pool_insert(struct td_pool *p, int32_t parent, int32_t block,
                       const int32_t *ids);

/* A snapshot slot to be filled behind a cached block; -1 when it has one already or none
 * can be had. May evict the least recently used snapshot. */
int32_t td_pool_snapshot(struct td_pool *p, int32_t block);

/* For debug builds and tests: ends the program when an invariant does not hold. */
void td_pool_check(const struct td_pool *p);

#endif

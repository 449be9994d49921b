/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte pair encoding. See bpe.h.
 *
 * A piece that is a token of the vocabulary is that token, if merging its bytes would
 * lead there; whether it does is found out once per token. Of the others, short pieces
 * are searched for the lowest rank again and again; long ones keep their pairs in a
 * heap, as a pair's rank and position in one number, and leave stale entries in it,
 * which a comparison with the pair's present rank finds.
 */
#include "text/bpe.h"

#include "base/mem.h"

#include <string.h>

enum {
    SHORT_PIECE = 48,
    BYTE_PAIRS = 1 << 16,
    WHOLE_UNKNOWN = 0,
    WHOLE_YES = 1,
    WHOLE_NO = 2
};

#define NO_GOAL UINT64_MAX
#define NO_NODE UINT32_MAX

void td_ids_init(struct td_ids *ids)
{
    *ids = (struct td_ids){0};
}

void td_ids_release(struct td_ids *ids)
{
    td_free(ids->p);
    td_ids_init(ids);
}

/* Makes room for n more. */
static enum td_status reserve_ids(struct td_ids *ids, size_t n)
{
    if (n <= ids->cap - ids->len)
        return TD_OK;
    size_t cap = TD_MAX(ids->len + n, ids->cap + ids->cap / 2 + 64);
    int32_t *p = td_realloc(ids->p, cap, sizeof(*p));
    if (!p)
        return TD_E_NOMEM;
    ids->p = p;
    ids->cap = cap;
    return TD_OK;
}

enum td_status td_ids_add(struct td_ids *ids, int32_t id)
{
    if (reserve_ids(ids, 1) != TD_OK)
        return TD_E_NOMEM;
    ids->p[ids->len++] = id;
    return TD_OK;
}

void td_bpe_init(struct td_bpe *b)
{
    *b = (struct td_bpe){0};
}

void td_bpe_release(struct td_bpe *b)
{
    td_free(b->byte_goal);
    td_free(b->merges);
    td_free(b->whole);
    td_bpe_init(b);
}

enum td_status td_bpe_open(struct td_bpe *b, const struct td_vocab *vocab, size_t n)
{
    size_t slots = 16;
    while (slots < n * 2)
        slots *= 2;
    b->vocab = vocab;
    b->mask = slots - 1;
    b->byte_goal = td_calloc(BYTE_PAIRS, sizeof(*b->byte_goal));
    b->merges = td_calloc(slots, sizeof(*b->merges));
    b->whole = td_calloc(vocab->size, sizeof(*b->whole));
    if (!b->byte_goal || !b->merges || !b->whole)
        return TD_E_NOMEM;
    memset(b->byte_goal, 0xFF, BYTE_PAIRS * sizeof(*b->byte_goal));
    memset(b->merges, 0xFF, slots * sizeof(*b->merges));
    b->all_bytes = true;
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        b->byte_id[i] = td_vocab_find(vocab, &c, 1);
        b->all_bytes = b->all_bytes && b->byte_id[i] >= 0;
    }
    return TD_OK;
}

static struct td_merge *slot_of(const struct td_bpe *b, uint64_t pair)
{
    uint64_t h = (pair ^ b->vocab->seed) * 0x9E3779B97F4A7C15u;
    for (size_t i = (h >> 32) & b->mask;; i = (i + 1) & b->mask)
        if (b->merges[i].pair == pair || b->merges[i].pair == UINT64_MAX)
            return &b->merges[i];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint64_t goal_of(const struct td_bpe *b, int32_t left, int32_t right)
{
    return slot_of(b, pair_of(left, right))->goal;
}

void td_bpe_put(struct td_bpe *b, int32_t left, int32_t right, uint32_t rank,
                int32_t joined)
{
    uint64_t pair = pair_of(left, right);
    struct td_merge *m = slot_of(b, pair);
    *m = (struct td_merge){pair, (uint64_t)rank << 32 | (uint32_t)joined};
    const struct td_vocab_token *l = td_vocab_at(b->vocab, left);
    const struct td_vocab_token *r = td_vocab_at(b->vocab, right);
    if (l && r && l->len == 1 && r->len == 1) {
        size_t x = (unsigned char)b->vocab->bytes.p[l->at];
        size_t y = (unsigned char)b->vocab->bytes.p[r->at];
        b->byte_goal[x << 8 | y] = m->goal;
    }
}

/* Merges at most SHORT_PIECE bytes, all of which have an id, into ids (room for n).
 * Returns how many ids remain. */
static size_t merge_short(const struct td_bpe *b, const unsigned char *p, size_t n,
                          int32_t *ids)
{
    uint64_t goal[SHORT_PIECE]; /* of the pair that begins here */
    for (size_t i = 0; i + 1 < n; i++) {
        ids[i] = b->byte_id[p[i]];
        goal[i] = b->byte_goal[(size_t)p[i] << 8 | p[i + 1]];
    }
    ids[n - 1] = b->byte_id[p[n - 1]];
    while (n > 1) {
        size_t at = 0;
        uint64_t best = goal[0];
        for (size_t i = 1; i + 1 < n; i++) {
            if (goal[i] < best) {
                best = goal[i];
                at = i;
            }
        }
        if (best == NO_GOAL)
            break;
        ids[at] = (int32_t)(uint32_t)best;
        n--;
        if (at + 1 < n) {
            memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof(*ids));
            memmove(goal + at + 1, goal + at + 2, (n - at - 2) * sizeof(*goal));
            goal[at] = goal_of(b, ids[at], ids[at + 1]);
        }
        if (at > 0)
            goal[at - 1] = goal_of(b, ids[at - 1], ids[at]);
    }
    return n;
}

/* A symbol of a long piece. */
struct node {
    int32_t id;
    uint32_t rank;       /* of the pair with the next one; UINT32_MAX: none */
    uint32_t prev, next; /* NO_NODE at the ends */
};

/* A heap of rank << 32 | position, the lowest first. */
struct heap {
    uint64_t *p;
    size_t n;
};

static void sift_down(const struct heap *h, size_t i)
{
    uint64_t x = h->p[i];
    for (size_t kid; (kid = 2 * i + 1) < h->n; i = kid) {
        if (kid + 1 < h->n && h->p[kid + 1] < h->p[kid])
            kid++;
        if (h->p[kid] >= x)
            break;
        h->p[i] = h->p[kid];
    }
    h->p[i] = x;
}

static void heap_push(struct heap *h, uint64_t x)
{
    size_t i = h->n++;
    for (; i > 0 && h->p[(i - 1) / 2] > x; i = (i - 1) / 2)
        h->p[i] = h->p[(i - 1) / 2];
    h->p[i] = x;
}

static uint64_t heap_pop(struct heap *h)
{
    uint64_t top = h->p[0];
    h->p[0] = h->p[--h->n];
    if (h->n)
        sift_down(h, 0);
    return top;
}

/* Looks the pair that begins at node i up again. */
static void pair_anew(const struct td_bpe *b, struct node *nodes, struct heap *h,
                      uint32_t i)
{
    uint64_t goal = goal_of(b, nodes[i].id, nodes[nodes[i].next].id);
    nodes[i].rank = (uint32_t)(goal >> 32);
    if (goal != NO_GOAL)
        heap_push(h, (uint64_t)nodes[i].rank << 32 | i);
}

static void join(const struct td_bpe *b, struct node *nodes, struct heap *h, uint32_t i)
{
    struct node *left = &nodes[i], *right = &nodes[left->next];
    left->id = (int32_t)(uint32_t)goal_of(b, left->id, right->id);
    left->rank = UINT32_MAX;
    left->next = right->next;
    right->rank = UINT32_MAX;
    if (left->next != NO_NODE) {
        nodes[left->next].prev = i;
        pair_anew(b, nodes, h, i);
    }
    if (left->prev != NO_NODE)
        pair_anew(b, nodes, h, left->prev);
}

/* Merges any number of bytes. A join removes an entry from the heap and adds at most
 * two, and there are fewer joins than bytes: 2n entries are enough. */
static enum td_status merge_long(const struct td_bpe *b, const unsigned char *p,
                                 size_t n, struct td_bpe_work *work, struct td_ids *out)
{
    size_t need = n * (sizeof(struct node) + 2 * sizeof(uint64_t));
    if (work->cap < need) {
        void *q = td_realloc(work->p, need, 1);
        if (!q)
            return TD_E_NOMEM;
        work->p = q;
        work->cap = need;
    }
    struct heap h = {.p = work->p};
    struct node *nodes = (struct node *)(h.p + 2 * n);
    for (size_t i = 0; i < n; i++) {
        uint64_t goal =
            i + 1 < n ? b->byte_goal[(size_t)p[i] << 8 | p[i + 1]] : NO_GOAL;
        nodes[i] = (struct node){.id = b->byte_id[p[i]],
                                 .rank = (uint32_t)(goal >> 32),
                                 .prev = i ? (uint32_t)i - 1 : NO_NODE,
                                 .next = i + 1 < n ? (uint32_t)i + 1 : NO_NODE};
        if (goal != NO_GOAL)
            h.p[h.n++] = (uint64_t)nodes[i].rank << 32 | i;
    }
    for (size_t i = h.n / 2; i-- > 0;)
        sift_down(&h, i);
    while (h.n) {
        uint64_t top = heap_pop(&h);
        uint32_t i = (uint32_t)top;
        if (nodes[i].rank == (uint32_t)(top >> 32))
            join(b, nodes, &h, i);
    }
    for (uint32_t i = 0; i != NO_NODE; i = nodes[i].next)
        out->p[out->len++] = nodes[i].id;
    return TD_OK;
}

/* Merges without asking whether the piece is a token. */
static enum td_status merge(const struct td_bpe *b, const char *piece, size_t n,
                            struct td_bpe_work *work, struct td_ids *out)
{
    const unsigned char *p = (const unsigned char *)piece;
    if (reserve_ids(out, n) != TD_OK)
        return TD_E_NOMEM;
    if (n > SHORT_PIECE)
        return merge_long(b, p, n, work, out);
    out->len += merge_short(b, p, n, out->p + out->len);
    return TD_OK;
}

/* A piece some of whose bytes may have no id: those are left out, as the reference
 * does, and their neighbours become neighbours. */
static enum td_status merge_known(const struct td_bpe *b, const char *piece, size_t n,
                                  struct td_bpe_work *work, struct td_ids *out)
{
    if (b->all_bytes)
        return merge(b, piece, n, work, out);
    char *kept = td_calloc(n, 1);
    if (!kept)
        return TD_E_NOMEM;
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[(unsigned char)piece[i]] >= 0)
            kept[m++] = piece[i];
    enum td_status s = m ? merge(b, kept, m, work, out) : TD_OK;
    td_free(kept);
    return s;
}

enum td_status td_bpe_encode(const struct td_bpe *b, const char *piece, size_t n,
                             struct td_bpe_work *work, struct td_ids *out)
{
    int32_t id = td_vocab_find(b->vocab, piece, n);
    if (id < 0)
        return n ? merge_known(b, piece, n, work, out) : TD_OK;
    uint8_t whole = atomic_load_explicit(&b->whole[id], memory_order_relaxed);
    if (whole == WHOLE_YES || b->ignore_merges)
        return td_ids_add(out, id);
    size_t before = out->len;
    enum td_status s = merge_known(b, piece, n, work, out);
    if (s == TD_OK && whole == WHOLE_UNKNOWN) {
        bool yes = out->len == before + 1 && out->p[before] == id;
        atomic_store_explicit(&b->whole[id], yes ? WHOLE_YES : WHOLE_NO,
                              memory_order_relaxed);
    }
    return s;
}

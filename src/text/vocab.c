/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vocabulary. See vocab.h.
 *
 * Nearly every lookup asks for a piece of text of a few bytes, so a slot holds up to
 * eight bytes itself: such a lookup touches one cache line. Linear probing, at most half
 * full. The hash is seeded, so that no file can be prepared to collide.
 */
#include "text/vocab.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"

#include <string.h>

enum { FIRST_SLOTS = 1024, INLINE = 8 };

void td_vocab_init(struct td_vocab *v)
{
    *v = (struct td_vocab){.seed = (uint64_t)td_clock_ns() * 0x9E3779B97F4A7C15u ^
                                   (uint64_t)(uintptr_t)v};
    td_buf_init(&v->bytes, (size_t)TD_MAX_JSON_FILE);
}

void td_vocab_release(struct td_vocab *v)
{
    td_free(v->tokens);
    td_free(v->slots);
    td_buf_release(&v->bytes);
    td_vocab_init(v);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}

static uint64_t load(const char *p, size_t n)
{
    uint64_t x = 0;
    memcpy(&x, p, n);
    return x;
}

/* Equal only for equal bytes, when the lengths are equal and at most INLINE. */
static uint64_t key_of(const struct td_vocab *v, const char *p, size_t n)
{
    if (n == INLINE)
        return load(p, INLINE);
    if (n >= 4 && n < INLINE)
        return load(p, 4) | load(p + n - 4, 4) << 32;
    if (n < 4)
        return (uint64_t)(unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 |
               (uint64_t)(unsigned char)p[n - 1] << 16;
    uint64_t h = v->seed ^ n;
    size_t i = 0;
    for (; i + INLINE <= n; i += INLINE)
        h = mix(h ^ load(p + i, INLINE));
    return mix(h ^ load(p + n - INLINE, INLINE));
}

/* The slot of these bytes, or the free one where they belong. */
static struct td_vocab_slot *slot_of(const struct td_vocab *v, const char *p, size_t n)
{
    uint64_t key = key_of(v, p, n);
    for (size_t i = mix(key ^ v->seed ^ n) & v->mask;; i = (i + 1) & v->mask) {
        struct td_vocab_slot *s = &v->slots[i];
        if (s->len == 0)
            return s;
        if (s->key != key || s->len != n)
            continue;
        if (n <= INLINE || memcmp(v->bytes.p + v->tokens[s->id].at, p, n) == 0)
            return s;
    }
}

static enum td_status grow_slots(struct td_vocab *v)
{
    struct td_vocab bigger = *v;
    size_t n = v->slots ? (v->mask + 1) * 2 : FIRST_SLOTS;
    bigger.slots = td_calloc(n, sizeof(*bigger.slots));
    if (!bigger.slots)
        return TD_E_NOMEM;
    bigger.mask = n - 1;
    for (size_t i = 0; v->slots && i <= v->mask; i++) {
        const struct td_vocab_slot *s = &v->slots[i];
        if (s->len)
            *slot_of(&bigger, v->bytes.p + v->tokens[s->id].at, s->len) = *s;
    }
    td_free(v->slots);
    *v = bigger;
    return TD_OK;
}

static enum td_status grow_tokens(struct td_vocab *v, size_t need)
{
    size_t cap = TD_MAX(need, v->cap * 2);
    struct td_vocab_token *t = td_realloc(v->tokens, cap, sizeof(*t));
    if (!t)
        return TD_E_NOMEM;
    memset(t + v->cap, 0, (cap - v->cap) * sizeof(*t));
    v->tokens = t;
    v->cap = cap;
    return TD_OK;
}

enum td_status td_vocab_put(struct td_vocab *v, int32_t id, const char *bytes,
                            size_t len, uint8_t flags)
{
    bool model = !(flags & TD_TOKEN_HIDDEN);
    if ((size_t)id >= v->cap && grow_tokens(v, (size_t)id + 1) != TD_OK)
        return TD_E_NOMEM;
    if (model && (!v->slots || v->used * 2 > v->mask) && grow_slots(v) != TD_OK)
        return TD_E_NOMEM;
    struct td_vocab_token *t = &v->tokens[id];
    if (t->flags || len == 0 || len > UINT32_MAX || v->bytes.len > UINT32_MAX)
        return TD_E_TOKENIZER;
    uint32_t at = (uint32_t)v->bytes.len;
    struct td_vocab_slot *s = model ? slot_of(v, bytes, len) : NULL;
    if (s && s->len)
        return TD_E_TOKENIZER;
    if (td_buf_add(&v->bytes, bytes, len) != TD_OK)
        return v->bytes.status;
    *t = (struct td_vocab_token){
        .at = at, .len = (uint32_t)len, .flags = flags | TD_TOKEN_DEFINED};
    if (s) {
        *s = (struct td_vocab_slot){
            .key = key_of(v, bytes, len), .len = (uint32_t)len, .id = id};
        v->used++;
        v->longest = TD_MAX(v->longest, len);
    }
    v->size = TD_MAX(v->size, (size_t)id + 1);
    return TD_OK;
}

void td_vocab_mark(struct td_vocab *v, int32_t id, uint8_t flags)
{
    v->tokens[id].flags |= flags;
}

int32_t td_vocab_find(const struct td_vocab *v, const char *bytes, size_t len)
{
    if (len == 0 || len > v->longest)
        return -1;
    const struct td_vocab_slot *s = slot_of(v, bytes, len);
    return s->len ? s->id : -1;
}

const struct td_vocab_token *td_vocab_at(const struct td_vocab *v, int64_t id)
{
    if (id < 0 || (uint64_t)id >= v->size || !v->tokens[id].flags)
        return NULL;
    return &v->tokens[id];
}

static bool stands_for_itself(unsigned c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) ||
           (c >= 0xAE && c <= 0xFF);
}

/* The n-th byte that does not stand for itself: 0x00-0x20, 0x7F-0xA0, 0xAD. */
static int other_byte(unsigned n)
{
    if (n <= 0x20)
        return (int)n;
    if (n < 0x21 + 0x22)
        return (int)(n - 0x21 + 0x7F);
    return n == 0x21 + 0x22 ? 0xAD : -1;
}

bool td_vocab_unspell(const char *spelled, size_t len, struct td_buf *out)
{
    size_t before = out->len;
    for (size_t i = 0; i < len; i++) {
        unsigned c = (unsigned char)spelled[i];
        if (c >= 0xC2 && c <= 0xC5 && i + 1 < len)
            c = (c & 0x1F) << 6 | ((unsigned char)spelled[++i] & 0x3F);
        else if (c >= 0x80)
            c = 0; /* no letter of the alphabet begins like this */
        int b = c >= 0x100 ? other_byte(c - 0x100) : stands_for_itself(c) ? (int)c : -1;
        if (b < 0 || td_buf_addc(out, (char)b) != TD_OK) {
            td_buf_set_len(out, before);
            return false;
        }
    }
    return true;
}

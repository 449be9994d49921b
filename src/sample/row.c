/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans over a row of logits and partial selection. See sample_int.h.
 *
 * A row is long (a quarter of a million ids in the Qwen3.5 family) and a draw needs few
 * of them. The plan of every scan is the same: one pass finds the largest value of each
 * block of 64 ids, and from these a floor is derived that everything of interest must
 * reach, so that only a handful of blocks is read again. Loops over a full block have a
 * constant length and no branches: compilers make vector code of them.
 *
 * Selection is quickselect with an even simpler partition (no branches that depend on
 * the data). Keys are unique because they hold the id, so rows of equal logits are no
 * special case.
 */
#include "sample/sample_int.h"

#include "base/compiler.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LANES = 8 };

/* Weights below exp(LEAST) are skipped where a whole row is summed. */
#define LEAST (-50.0F)

static uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof(b));
    return b;
}

static float float_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof(x));
    return x;
}

/* exp(z) for z <= 0 within 2e-7 relative, 0 below -87. exp(z) = 2^n exp(r) with n the
 * nearest integer to z / ln 2; adding 1.5 * 2^23 leaves n in the low mantissa bits. The
 * limit is applied to the bits and by a mask, because compilers make no vector code of
 * float comparisons that might trap. */
static inline float exp_below(float z)
{
    const float magic = 12582912.0F;
    const int32_t limit = 0x42ae0000; /* 87 */
    int32_t far = (int32_t)(bits_of(z) & 0x7fffffffU);
    float c = -float_of((uint32_t)(far < limit ? far : limit));
    float t = c * 1.44269504F + magic, n = t - magic;
    float r = (c - n * 0.693359375F) + n * 2.12194440e-4F;
    float p = 1.0F / 720.0F + r * (1.0F / 5040.0F);
    p = 1.0F / 120.0F + r * p;
    p = 1.0F / 24.0F + r * p;
    p = 1.0F / 6.0F + r * p;
    p = 0.5F + r * p;
    p = 1.0F + r * p;
    p = 1.0F + r * p;
    uint32_t e = bits_of(p) + ((bits_of(t) - bits_of(magic)) << 23);
    return float_of(e & (0U - (uint32_t)(far < limit)));
}

static inline float weight(float x, const struct td_scale *s)
{
    return exp_below((x - s->max) * s->inv_temperature);
}

static int32_t block_end(const struct td_sample_work *w, int32_t b)
{
    return TD_MIN((b + 1) * TD_ROW_BLOCK, w->vocab);
}

/* ---- whole row -------------------------------------------------------------------- */

/* Floats as signed integers of the same order, and back: negative ones get all bits but
 * the sign inverted. */
static inline int32_t ordered(uint32_t b)
{
    return (int32_t)(b ^ ((0U - (b >> 31)) >> 1));
}

/* Largest value of a block, as ordered(). *wrong gets its top bit set when a value is
 * NaN or infinite: its exponent, all ones, overflows into the sign. */
static int32_t block_max(const float *x, int32_t n, uint32_t *wrong)
{
    int32_t max = INT32_MIN;
    uint32_t bits = 0;
    if (n == TD_ROW_BLOCK)
        for (int32_t i = 0; i < TD_ROW_BLOCK; i++) {
            uint32_t b = bits_of(x[i]);
            int32_t v = ordered(b);
            max = v > max ? v : max;
            bits |= (b & 0x7fffffffU) + 0x00800000U;
        }
    else
        for (int32_t i = 0; i < n; i++) {
            uint32_t b = bits_of(x[i]);
            max = TD_MAX(max, ordered(b));
            bits |= (b & 0x7fffffffU) + 0x00800000U;
        }
    *wrong |= bits;
    return max;
}

static float row_max(struct td_sample_work *w, const float *x, uint32_t *wrong)
{
    float all = -INFINITY;
    for (int32_t b = 0; b < w->blocks; b++) {
        int32_t i = b * TD_ROW_BLOCK;
        int32_t m = block_max(x + i, block_end(w, b) - i, wrong);
        w->max[b] = float_of((uint32_t)ordered((uint32_t)m));
        all = TD_MAX(all, w->max[b]);
    }
    return all;
}

bool td_row_max(struct td_sample_work *w, const float *x, float *max)
{
    uint32_t wrong = 0;
    *max = row_max(w, x, &wrong);
    return wrong >> 31 == 0;
}

float td_row_max_masked(struct td_sample_work *w, const float *x)
{
    uint32_t ignored = 0;
    return row_max(w, x, &ignored);
}

static float lane_sum(const float each[TD_ROW_BLOCK])
{
    float sum[LANES] = {0};
    for (int32_t i = 0; i < TD_ROW_BLOCK; i += LANES)
        for (int j = 0; j < LANES; j++)
            sum[j] += each[i + j];
    for (int j = 1; j < LANES; j++)
        sum[0] += sum[j];
    return sum[0];
}

static float block_sum(const float *x, int32_t n, const struct td_scale *s)
{
    float each[TD_ROW_BLOCK] = {0};
    if (n == TD_ROW_BLOCK)
        for (int32_t i = 0; i < TD_ROW_BLOCK; i++)
            each[i] = weight(x[i], s);
    else
        for (int32_t i = 0; i < n; i++)
            each[i] = weight(x[i], s);
    return lane_sum(each);
}

double td_row_sum(struct td_sample_work *w, const float *x, const struct td_scale *s)
{
    double total = 0;
    for (int32_t b = 0; b < w->blocks; b++) {
        int32_t i = b * TD_ROW_BLOCK;
        bool matters = (w->max[b] - s->max) * s->inv_temperature >= LEAST;
        w->sum[b] = matters ? block_sum(x + i, block_end(w, b) - i, s) : 0.0F;
        total += (double)w->sum[b];
    }
    return total;
}

int32_t td_row_argmax(const struct td_sample_work *w, const float *x, float max)
{
    int32_t b = 0, i;
    while (b + 1 < w->blocks && w->max[b] < max)
        b++;
    i = b * TD_ROW_BLOCK;
    while (i + 1 < block_end(w, b) && x[i] < max)
        i++;
    return i;
}

int32_t td_row_draw(const struct td_sample_work *w, const float *x,
                    const struct td_scale *s, double total, double u)
{
    double target = u * total, before = 0;
    int32_t b = 0, last = 0, chosen = -1;
    /* The block under the target, or the last one that has any weight. */
    for (; b < w->blocks; b++) {
        if (w->sum[b] > 0)
            last = b;
        if (before + (double)w->sum[b] >= target)
            break;
        before += (double)w->sum[b];
    }
    b = TD_MIN(b, last);
    for (int32_t i = b * TD_ROW_BLOCK; i < block_end(w, b); i++) {
        double mass = (double)weight(x[i], s);
        if (mass <= 0)
            continue;
        chosen = i;
        before += mass;
        if (before >= target)
            break;
    }
    return chosen;
}

int32_t td_row_rank(const struct td_sample_work *w, const float *x, float value,
                    int32_t id)
{
    int32_t before = 0;
    for (int32_t b = 0; b < w->blocks; b++) {
        if (w->max[b] < value)
            continue;
        for (int32_t i = b * TD_ROW_BLOCK; i < block_end(w, b); i++)
            before += x[i] > value || (x[i] >= value && i < id);
    }
    return before;
}

/* ---- candidates --------------------------------------------------------------------- */

float td_row_floor(struct td_sample_work *w, int64_t k)
{
    if (k > w->blocks)
        return -INFINITY;
    for (int32_t b = 0; b < w->blocks; b++)
        w->keys[b] = td_key(w->max[b], b);
    td_key_select(w->keys, (size_t)w->blocks, (size_t)k);
    uint64_t least = w->keys[0];
    for (int64_t i = 1; i < k; i++)
        least = TD_MIN(least, w->keys[i]);
    return td_key_value(least);
}

size_t td_row_gather(struct td_sample_work *w, const float *x, float floor)
{
    size_t n = 0;
    floor = TD_MAX(floor, -FLT_MAX);
    for (int32_t b = 0; b < w->blocks; b++) {
        if (w->max[b] < floor)
            continue;
        for (int32_t i = b * TD_ROW_BLOCK; i < block_end(w, b); i++) {
            /* Written in any case, kept only if it counts: no branch to mispredict. */
            w->keys[n] = td_key(x[i], i);
            n += x[i] >= floor;
        }
    }
    return n;
}

/* Floats compare like the integers of their bits once negative ones are inverted and
 * positive ones get the top bit; -0 is made 0 first. */
uint64_t td_key(float x, int32_t id)
{
    uint32_t b = bits_of(x + 0.0F);
    b ^= (b & 0x80000000U) ? 0xffffffffU : 0x80000000U;
    return (uint64_t)b << 32 | (uint32_t)~id;
}

/* The way back: b ^ 0x80000000 where the top bit is set, ~b where it is not. */
static inline float value_of(uint32_t b)
{
    return float_of(b ^ (0x80000000U | ((b >> 31) - 1U)));
}

float td_key_value(uint64_t key)
{
    return value_of((uint32_t)(key >> 32));
}

int32_t td_key_id(uint64_t key)
{
    return (int32_t) ~(uint32_t)key;
}

void td_key_swap(uint64_t *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = keys[i] << 32 | keys[i] >> 32;
}

static float key_weight(uint64_t key, const struct td_scale *s, bool by_id)
{
    return weight(value_of((uint32_t)(by_id ? key : key >> 32)), s);
}

/* Splits keys[lo..hi) at one of them, chosen by a number that input cannot foresee in
 * practice, and returns where it ended: larger keys before it, smaller ones behind. */
static size_t partition(uint64_t *keys, size_t lo, size_t hi, uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    size_t at = lo + (size_t)((*state >> 33) % (hi - lo)), store = lo;
    uint64_t pivot = keys[at];
    keys[at] = keys[hi - 1];
    keys[hi - 1] = pivot;
    for (size_t i = lo; i + 1 < hi; i++) {
        uint64_t key = keys[i];
        keys[i] = keys[store];
        keys[store] = key;
        store += key > pivot;
    }
    keys[hi - 1] = keys[store];
    keys[store] = pivot;
    return store;
}

void td_key_select(uint64_t *keys, size_t n, size_t k)
{
    uint64_t state = n;
    size_t lo = 0, hi = n;
    while (hi - lo > 1 && k > lo && k < hi) {
        size_t mid = partition(keys, lo, hi, &state);
        if (mid >= k)
            hi = mid;
        else
            lo = mid + 1;
    }
}

void td_key_sort(uint64_t *keys, size_t n, size_t k)
{
    td_key_select(keys, n, k);
    for (size_t i = 1; i < k; i++) {
        uint64_t key = keys[i];
        size_t j = i;
        for (; j > 0 && keys[j - 1] < key; j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

double td_key_sum(const uint64_t *keys, size_t n, const struct td_scale *s, bool by_id)
{
    double sum = 0;
    const int shift = by_id ? 0 : 32;
    while (n >= TD_ROW_BLOCK) {
        float each[TD_ROW_BLOCK];
        for (int i = 0; i < TD_ROW_BLOCK; i++)
            each[i] = weight(value_of((uint32_t)(keys[i] >> shift)), s);
        sum += (double)lane_sum(each);
        keys += TD_ROW_BLOCK;
        n -= TD_ROW_BLOCK;
    }
    for (size_t i = 0; i < n; i++)
        sum += (double)key_weight(keys[i], s, by_id);
    return sum;
}

size_t td_key_select_mass(uint64_t *keys, size_t n, double mass,
                          const struct td_scale *s, bool by_id)
{
    uint64_t state = n;
    size_t lo = 0, hi = n;
    while (hi - lo > 1) {
        size_t mid = partition(keys, lo, hi, &state);
        double left = td_key_sum(keys + lo, mid - lo, s, by_id);
        double with = left + (double)key_weight(keys[mid], s, by_id);
        if (mid > lo && left >= mass) {
            hi = mid;
        } else if (with >= mass) {
            return mid + 1;
        } else {
            mass -= with;
            lo = mid + 1;
        }
    }
    return TD_MIN(lo + 1, n);
}

/* ---- randomness ----------------------------------------------------------------------- */

/* J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. */
void td_philox(uint32_t counter[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xD2511F53ULL * counter[0], b = 0xCD9E8D57ULL * counter[2];
        counter[0] = (uint32_t)(b >> 32) ^ counter[1] ^ k0;
        counter[1] = (uint32_t)b;
        counter[2] = (uint32_t)(a >> 32) ^ counter[3] ^ k1;
        counter[3] = (uint32_t)a;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
}

double td_draw_uniform(uint64_t seed, uint32_t choice, int64_t position)
{
    uint32_t c[4] = {(uint32_t)position, (uint32_t)((uint64_t)position >> 32), choice,
                     0};
    td_philox(c, seed);
    uint64_t bits = ((uint64_t)c[0] << 32 | c[1]) >> 11;
    return ldexp((double)(bits + 1), -53);
}

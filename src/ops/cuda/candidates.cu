/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best ids of rows of logits. Blocks take parts of a row, then one block for each row
 * takes the best of its parts.
 *
 * A logit and its column make a key; larger is better, and no two are equal, so nothing
 * depends on the order in which threads come. Each thread finds its largest key. The
 * 64th largest of these is a bound: at least 64 keys reach it, and few more. Those are
 * gathered and sorted.
 */
#include "ops/cuda/device.cuh"

enum {
    THREADS = 256,
    KEEP = TD_CANDIDATES,
    PART = 8192,                    /* columns of a block */
    ROOM = KEEP * (PART / THREADS), /* keys that can reach the bound */
    ROUND = THREADS * 8,            /* keys that the last block takes at a time */
    LISTS = (ROUND - KEEP) / KEEP   /* of these, from parts */
};

/* What a part leaves: its best keys in falling order, 0 where there are no more. */
struct part {
    uint64_t key[KEEP];
    float max, sum;
};

struct sorter {
    uint64_t top[THREADS], found[ROOM];
    int n;
};

TD_DEVICE uint64_t key_of(float x, uint32_t column)
{
    uint32_t b = __float_as_uint(x + 0.0f); /* both zeros are equal */
    b = b & 0x80000000u ? ~b : b | 0x80000000u;
    return (uint64_t)b << 32 | ~column;
}

TD_DEVICE float logit_of(uint64_t key)
{
    uint32_t b = (uint32_t)(key >> 32);
    return __uint_as_float(b & 0x80000000u ? b & 0x7fffffffu : ~b);
}

/* Falling order; n is a power of two. All threads of the block must call it. */
static __device__ void sort_keys(uint64_t *key, int n)
{
    for (int width = 2; width <= n; width *= 2)
        for (int step = width / 2; step; step /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < n / 2; i += THREADS) {
                int a = i / step * 2 * step + i % step, b = a + step;
                bool rising = a & width;
                uint64_t x = key[a], y = key[b];
                if (x < y != rising) {
                    key[a] = y;
                    key[b] = x;
                }
            }
        }
    __syncthreads();
}

/* The KEEP best of the keys that key_at(i) gives for i below n, sorted, in s->found;
 * n / THREADS keys may reach the bound for each of KEEP threads. */
template <typename F> static __device__ void best_of(struct sorter *s, int n, F key_at)
{
    uint64_t mine = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        uint64_t k = key_at(i);
        mine = k > mine ? k : mine;
    }
    __syncthreads();
    s->top[threadIdx.x] = mine;
    if (threadIdx.x == 0)
        s->n = 0;
    sort_keys(s->top, THREADS);
    uint64_t bound = s->top[KEEP - 1];
    for (int i = (int)threadIdx.x; i < n && mine >= bound; i += THREADS) {
        uint64_t k = key_at(i);
        if (k && k >= bound)
            s->found[atomicAdd(&s->n, 1)] = k;
    }
    __syncthreads();
    int size = KEEP;
    while (size < s->n)
        size *= 2;
    for (int i = s->n + (int)threadIdx.x; i < size; i += THREADS)
        s->found[i] = 0;
    sort_keys(s->found, size);
}

static __global__ void __launch_bounds__(THREADS)
    part_candidates(const struct td_candidates_args a, struct part *parts, int32_t most)
{
    __shared__ struct sorter s;
    const float *x = a.logits + (int64_t)blockIdx.y * a.stride;
    uint32_t first = blockIdx.x * PART;
    int n = (int)(a.n - first < PART ? a.n - first : PART);
    struct part *out = &parts[(int64_t)blockIdx.y * most + blockIdx.x];
    x += first;
    best_of(&s, n, [=](int i) { return key_of(x[i], first + (uint32_t)i); });
    float max = logit_of(s.found[0]), sum = 0.0f;
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        sum += isfinite(x[i]) ? expf(x[i] - max) : NAN;
    sum = td_block_sum(sum);
    if (threadIdx.x < KEEP)
        out->key[threadIdx.x] = s.found[threadIdx.x];
    if (threadIdx.x == 0) {
        out->max = max;
        out->sum = sum;
    }
}

static __global__ void __launch_bounds__(THREADS)
    row_candidates(const struct td_candidates_args a, const struct part *parts,
                   int32_t most, int32_t n)
{
    __shared__ struct sorter s;
    __shared__ uint64_t best[KEEP];
    const struct part *p = parts + (int64_t)blockIdx.x * most;
    struct td_candidates *out = &a.out[blockIdx.x];
    if (threadIdx.x < KEEP)
        best[threadIdx.x] = 0;
    __syncthreads();
    for (int32_t at = 0; at < n; at += LISTS) {
        int lists = n - at < LISTS ? n - at : LISTS;
        best_of(&s, (lists + 1) * KEEP, [=](int i) {
            return i < KEEP ? best[i] : p[at + i / KEEP - 1].key[i % KEEP];
        });
        if (threadIdx.x < KEEP)
            best[threadIdx.x] = s.found[threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.x < KEEP) {
        uint64_t k = best[threadIdx.x];
        out->id[threadIdx.x] = k ? (int32_t)a.first + (int32_t) ~(uint32_t)k : -1;
        out->logit[threadIdx.x] = k ? logit_of(k) : -INFINITY;
    }
    if (threadIdx.x == 0) {
        float max = best[0] ? logit_of(best[0]) : -INFINITY, sum = 0.0f;
        for (int32_t i = 0; i < n; i++)
            sum += p[i].sum * expf(p[i].max - max);
        out->max = max;
        out->sum = sum;
    }
}

static int64_t parts_of(int64_t n)
{
    return (n + PART - 1) / PART;
}

extern "C" size_t td_cuda_candidates_bytes(const struct td_reserve *r)
{
    return (size_t)r->max_out * (size_t)parts_of(r->vocab) * sizeof(struct part);
}

extern "C" void td_cuda_candidates(const struct td_cuda_ctx *c,
                                   const struct td_candidates_args *a)
{
    struct part *parts = (struct part *)c->candidates;
    int32_t n = (int32_t)parts_of(a->n), most = (int32_t)parts_of(c->limits.vocab);
    if (n)
        part_candidates<<<dim3((unsigned)n, (unsigned)a->rows), THREADS, 0,
                          c->stream>>>(*a, parts, most);
    row_candidates<<<(unsigned)a->rows, THREADS, 0, c->stream>>>(*a, parts, most, n);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best ids of rows of logits. Blocks take parts of a row, then one block for each row
 * takes the best of its parts.
 *
 * A logit and its column make a key; larger is better, and no two are equal, so nothing
 * depends on the order in which threads come. A bound is found that at least 64 keys
 * reach, and few more: of a part, the 64th largest of the threads' largest keys; of a
 * row, the 64th largest of its parts' largest. Those that reach it are gathered. Both
 * steps ask for a key's rank, which is the number of larger keys: counting takes one
 * meeting of the threads, where sorting takes dozens.
 */
#include "ops/cuda/device.cuh"

enum {
    THREADS = 256,
    KEEP = TD_CANDIDATES,
    FEW = 8,                 /* columns of a thread */
    MANY = 64,               /* the same where there are more than THREADS parts else */
    MOST_FOUND = KEEP * KEEP /* keys that can reach a row's bound */
};

/* What a part leaves: its best keys in falling order, 0 where there are no more. */
struct part {
    uint64_t key[KEEP];
    float max, sum;
};

/* Keys that are gathered, room for R, and the best of them in order. */
template <int R> struct sorter {
    uint64_t top[THREADS], found[R], best[KEEP], bound;
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

/* How many of n keys are larger; of equal ones, those in front. */
TD_DEVICE int rank_of(const uint64_t *keys, int n, int at)
{
    uint64_t key = keys[at];
    int larger = 0;
#pragma unroll 8
    for (int i = 0; i < n; i++)
        larger += keys[i] > key || (keys[i] == key && i < at);
    return larger;
}

/* The key of rank `rank` of those that threads give. All threads must call it. */
template <int R>
static __device__ uint64_t bound_of(struct sorter<R> *s, uint64_t mine, int rank)
{
    s->top[threadIdx.x] = mine;
    if (threadIdx.x == 0)
        s->n = 0;
    __syncthreads();
    if (rank_of(s->top, THREADS, (int)threadIdx.x) == rank)
        s->bound = mine;
    __syncthreads();
    return s->bound;
}

template <int R>
TD_DEVICE void gather(struct sorter<R> *s, uint64_t key, uint64_t bound)
{
    if (key && key >= bound)
        s->found[atomicAdd(&s->n, 1)] = key;
}

/* The best of what was gathered, in order, 0 behind them. */
template <int R> static __device__ void sort_found(struct sorter<R> *s)
{
    if (threadIdx.x < KEEP)
        s->best[threadIdx.x] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < s->n; i += THREADS) {
        int rank = rank_of(s->found, s->n, i);
        if (rank < KEEP)
            s->best[rank] = s->found[i];
    }
    __syncthreads();
}

/* A block for THREADS * HELD columns. */
template <int HELD>
static __global__ void __launch_bounds__(THREADS)
    part_candidates(const struct td_candidates_args a, struct part *parts, int32_t most)
{
    __shared__ struct sorter<KEEP * HELD> s;
    td_wait();
    const float *x = a.logits + (int64_t)blockIdx.y * a.stride;
    uint32_t first = blockIdx.x * THREADS * HELD + threadIdx.x;
    struct part *out = &parts[(int64_t)blockIdx.y * most + blockIdx.x];
    float v[HELD];
    uint64_t key[HELD], mine = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        v[i] = first + i * THREADS < a.n ? x[first + i * THREADS] : -INFINITY;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        uint32_t column = first + i * THREADS;
        key[i] = column < a.n ? key_of(v[i], column) : 0;
        mine = key[i] > mine ? key[i] : mine;
    }
    uint64_t bound = bound_of(&s, mine, KEEP - 1);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        gather(&s, key[i], bound);
    sort_found(&s);
    float max = logit_of(s.best[0]), sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (key[i])
            sum += isfinite(v[i]) ? expf(v[i] - max) : NAN;
    sum = td_block_sum(sum);
    if (threadIdx.x < KEEP)
        out->key[threadIdx.x] = s.best[threadIdx.x];
    if (threadIdx.x == 0) {
        out->max = max;
        out->sum = sum;
    }
}

/* A bound for the keys of n parts: fewer than KEEP have KEEP keys among their first. */
TD_DEVICE uint64_t row_bound(struct sorter<MOST_FOUND> *s, const struct part *p,
                             int32_t n)
{
    int32_t place = n < KEEP && n ? (KEEP - 1) / n : 0;
    uint64_t mine = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += THREADS) {
        uint64_t k = p[i].key[place];
        mine = k > mine ? k : mine;
    }
    return bound_of(s, mine, n < KEEP && n ? n - 1 : KEEP - 1);
}

static __global__ void __launch_bounds__(THREADS)
    row_candidates(const struct td_candidates_args a, const struct part *parts,
                   int32_t most, int32_t n)
{
    __shared__ struct sorter<MOST_FOUND> s;
    td_wait();
    const struct part *p = parts + (int64_t)blockIdx.x * most;
    struct td_candidates *out = &a.out[blockIdx.x];
    uint64_t bound = row_bound(&s, p, n);
#pragma unroll 8
    for (int32_t i = (int32_t)threadIdx.x; i < n * KEEP; i += THREADS)
        gather(&s, p[i / KEEP].key[i % KEEP], bound);
    sort_found(&s);
    float max = s.n ? logit_of(s.best[0]) : -INFINITY, sum = 0.0f;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += THREADS)
        sum += p[i].sum * expf(p[i].max - max);
    sum = td_block_sum(sum);
    if (threadIdx.x < KEEP) {
        uint64_t k = s.best[threadIdx.x];
        out->id[threadIdx.x] = k ? (int32_t)a.first + (int32_t) ~(uint32_t)k : -1;
        out->logit[threadIdx.x] = k ? logit_of(k) : -INFINITY;
    }
    if (threadIdx.x == 0) {
        out->max = max;
        out->sum = sum;
    }
}

/* Columns of a part, such that rows of up to `vocab` columns have THREADS parts at most. */
static int64_t part_of(int64_t vocab)
{
    return THREADS * (vocab <= THREADS * THREADS * FEW ? FEW : MANY);
}

static int64_t parts_of(int64_t n, int64_t vocab)
{
    return (n + part_of(vocab) - 1) / part_of(vocab);
}

extern "C" size_t td_cuda_candidates_bytes(const struct td_reserve *r)
{
    return (size_t)r->max_out * (size_t)parts_of(r->vocab, r->vocab) *
           sizeof(struct part);
}

extern "C" void td_cuda_candidates(const struct td_cuda_ctx *c,
                                   const struct td_candidates_args *a)
{
    struct part *parts = (struct part *)c->candidates;
    int64_t vocab = c->limits.vocab;
    int32_t n = (int32_t)parts_of(a->n, vocab), most = (int32_t)parts_of(vocab, vocab);
    dim3 grid((unsigned)n, (unsigned)a->rows);
    if (n && part_of(vocab) == THREADS * FEW)
        td_start(c, part_candidates<FEW>, grid, THREADS, 0, *a, parts, most);
    else if (n)
        td_start(c, part_candidates<MANY>, grid, THREADS, 0, *a, parts, most);
    td_start(c, row_candidates, dim3((unsigned)a->rows), THREADS, 0, *a, parts, most,
             n);
}

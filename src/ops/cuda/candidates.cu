/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best ids of rows of logits, in two kernels: a warp finds the best logit of each
 * group of columns, then a block for each row looks at the groups that matter.
 *
 * A logit and its column make a key; larger is better, and no two are equal, so nothing
 * depends on the order in which threads come. The block bisects for a bound that at least
 * KEEP of the groups' best keys reach, and few more. Whatever reaches it lies in those
 * groups: some hundred columns of a hundred groups, which are gathered and put in order by
 * counting, for each, the larger ones.
 */
#include "ops/cuda/device.cuh"

enum {
    THREADS = 256,
    GROUPS = THREADS / WARP, /* of a block */
    ROW_THREADS = 1024,
    KEEP = TD_CANDIDATES,
    /* Columns of a lane: many groups are wanted, but no more than a row's block holds. */
    ONE = 1,
    FEW = 8,
    MANY = 32,
    MOST_OF_ONE = 1 << 16, /* columns of a row, for lanes of ONE */
    HELD = 4,              /* groups of a thread of row_candidates() */
    MOST = 2 * KEEP,       /* groups that are looked at */
    ROOM = 4096,           /* keys that are gathered */
    RANKERS = 8            /* threads that count for a key */
};

/* A group's best key and the sum of exp(logit - its best). */
struct group {
    uint64_t best;
    float sum;
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

/* The lane's keys of a group, 0 behind the end. */
template <int N>
TD_DEVICE void load_keys(const struct td_candidates_args &a, int64_t row, int32_t group,
                         float (&v)[N], uint64_t (&key)[N])
{
    const float *x = a.logits + row * a.stride;
    uint32_t first = (uint32_t)group * N * WARP + threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = first + i * WARP < a.n ? x[first + i * WARP] : -INFINITY;
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t column = first + i * WARP;
        key[i] = column < a.n ? key_of(v[i], column) : 0;
    }
}

/* The largest of a warp's keys. */
TD_DEVICE uint64_t warp_best(uint64_t key)
{
    uint32_t hi = __reduce_max_sync(0xffffffff, (uint32_t)(key >> 32));
    uint32_t lo = (uint32_t)(key >> 32) == hi ? (uint32_t)key : 0;
    return (uint64_t)hi << 32 | __reduce_max_sync(0xffffffff, lo);
}

/* A warp for each group. */
template <int N>
static __global__ void __launch_bounds__(THREADS)
    group_candidates(const struct td_candidates_args a, struct group *groups, int32_t n)
{
    int32_t group = (int32_t)blockIdx.x * GROUPS + (int32_t)threadIdx.x / WARP;
    int64_t row = blockIdx.y;
    float v[N], sum = 0.0f;
    uint64_t key[N], best = 0;
    td_wait_early(gridDim.y);
    if (group >= n)
        return;
    load_keys(a, row, group, v, key);
#pragma unroll
    for (int i = 0; i < N; i++)
        best = key[i] > best ? key[i] : best;
    best = warp_best(best);
    float max = logit_of(best);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (key[i])
            sum += isfinite(v[i]) ? expf(v[i] - max) : NAN;
    sum = td_warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        groups[row * n + group] = {best, sum};
}

struct chooser {
    uint64_t found[ROOM], best[KEEP];
    int32_t picked[MOST];
    int n_picked, n_found;
};

/* A bound that KEEP of the block's n keys reach, and no more than MOST and half of them
 * if these are more; all if there are fewer. All threads must call it. */
TD_DEVICE uint64_t find_bound(const uint64_t (&mine)[HELD], int32_t n)
{
    uint64_t lo = 1, hi = ~0ull;
    const int most = min((int)MOST, max(n / 2, (int)KEEP));
    while (n > KEEP && hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        int count = __syncthreads_count(mine[0] >= mid);
        for (int i = 1; i < HELD && i * ROW_THREADS < n; i++) {
            uint64_t key = i == 1 ? mine[1] : i == 2 ? mine[2] : mine[3];
            count += __syncthreads_count(key >= mid);
        }
        if (count < KEEP)
            hi = mid;
        else
            lo = mid;
        if (count >= KEEP && count <= most)
            break;
    }
    return lo;
}

/* How many columns of the picked groups reach the bound; those there is room for are
 * found. All threads must call it. */
template <int N>
TD_DEVICE int gather(const struct td_candidates_args &a, int64_t row, uint64_t bound,
                     struct chooser &s)
{
    __syncthreads();
    if (threadIdx.x == 0)
        s.n_found = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x / WARP; i < s.n_picked; i += ROW_THREADS / WARP) {
        float v[N];
        uint64_t key[N];
        load_keys(a, row, s.picked[i], v, key);
#pragma unroll
        for (int k = 0; k < N; k++)
            if (key[k] >= bound) {
                int at = atomicAdd(&s.n_found, 1);
                if (at < ROOM)
                    s.found[at] = key[k];
            }
    }
    __syncthreads();
    return s.n_found;
}

/* Gathers at least KEEP keys that are larger than all others, or all; a higher bound is
 * looked for when the best ones crowd in few groups. */
template <int N>
TD_DEVICE int gather_best(const struct td_candidates_args &a, int64_t row,
                          uint64_t bound, struct chooser &s)
{
    uint64_t lo = bound, hi = ~0ull;
    int n = gather<N>(a, row, bound, s);
    while (n > ROOM || (n < KEEP && bound > lo)) {
        if (n > ROOM)
            lo = bound;
        else
            hi = bound;
        bound = lo + (hi - lo) / 2;
        n = gather<N>(a, row, bound, s);
    }
    return n;
}

/* The best of what was gathered, in order, 0 behind them. */
TD_DEVICE void sort_found(struct chooser &s, int n)
{
    int sub = (int)threadIdx.x % RANKERS;
    if (threadIdx.x < KEEP)
        s.best[threadIdx.x] = 0;
    __syncthreads();
    for (int first = 0; first < n; first += ROW_THREADS / RANKERS) {
        int at = first + (int)threadIdx.x / RANKERS, larger = 0;
        uint64_t key = at < n ? s.found[at] : ~0ull;
        for (int i = sub; i < n; i += RANKERS)
            larger += s.found[i] > key;
#pragma unroll
        for (int d = 1; d < RANKERS; d *= 2)
            larger += __shfl_xor_sync(0xffffffff, larger, d);
        if (at < n && sub == 0 && larger < KEEP)
            s.best[larger] = key;
    }
    __syncthreads();
}

/* A block for each row of n groups. */
template <int N>
static __global__ void __launch_bounds__(ROW_THREADS)
    row_candidates(const struct td_candidates_args a, const struct group *groups,
                   int32_t n)
{
    __shared__ struct chooser s;
    int64_t row = blockIdx.x;
    int t = (int)threadIdx.x;
    td_wait_early(gridDim.x);
    const struct group *g = groups + row * n;
    struct td_candidates *out = &a.out[row];
    uint64_t mine[HELD];
    float part[HELD], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        bool have = t + i * ROW_THREADS < n;
        mine[i] = have ? g[t + i * ROW_THREADS].best : 0;
        part[i] = have ? g[t + i * ROW_THREADS].sum : 0.0f;
    }
    if (t == 0)
        s.n_picked = 0;
    uint64_t bound = find_bound(mine, n);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (mine[i] >= bound)
            s.picked[atomicAdd(&s.n_picked, 1)] = t + i * ROW_THREADS;
    int found = gather_best<N>(a, row, bound, s);
    sort_found(s, found);
    float max = found ? logit_of(s.best[0]) : -INFINITY;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (mine[i])
            sum += part[i] * expf(logit_of(mine[i]) - max);
    sum = td_block_sum(sum);
    if (t < KEEP) {
        uint64_t k = s.best[t];
        out->id[t] = k ? (int32_t)a.first + (int32_t) ~(uint32_t)k : -1;
        out->logit[t] = k ? logit_of(k) : -INFINITY;
    }
    if (t == 0) {
        out->max = max;
        out->sum = sum;
    }
}

/* Columns of a lane for a row of n. The fewer columns a row has, the smaller its groups
 * must be: with no more than KEEP of them every column is looked at. */
static int lane_of(int64_t n)
{
    return n <= MOST_OF_ONE                                ? ONE
           : n <= (int64_t)ROW_THREADS * HELD * WARP * FEW ? FEW
                                                           : MANY;
}

static int64_t groups_of(int64_t n)
{
    int64_t wide = WARP * lane_of(n);
    return (n + wide - 1) / wide;
}

/* For rows of up to `vocab` columns. */
extern "C" size_t td_cuda_candidates_bytes(const struct td_reserve *r)
{
    int64_t most =
        TD_MAX(groups_of(r->vocab), groups_of(TD_MIN(r->vocab, (int64_t)MOST_OF_ONE)));
    return (size_t)r->max_out * (size_t)most * sizeof(struct group);
}

template <int N>
static void run(const struct td_cuda_ctx *c, const struct td_candidates_args *a)
{
    struct group *groups = (struct group *)c->candidates;
    int32_t n = (int32_t)groups_of(a->n);
    dim3 grid((unsigned)((n + GROUPS - 1) / GROUPS), (unsigned)a->rows);
    if (n)
        td_start(c, group_candidates<N>, grid, THREADS, 0, *a, groups, n);
    td_start(c, row_candidates<N>, dim3((unsigned)a->rows), ROW_THREADS, 0, *a, groups,
             n);
}

extern "C" void td_cuda_candidates(const struct td_cuda_ctx *c,
                                   const struct td_candidates_args *a)
{
    int lane = lane_of(a->n);
    if (lane == ONE)
        run<ONE>(c, a);
    else if (lane == FEW)
        run<FEW>(c, a);
    else
        run<MANY>(c, a);
}

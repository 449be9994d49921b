/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a prompt's rows on GPUs whose tensor cores are fed by warpgroups (sm_90a).
 *
 *     wide_run()   128 weight rows by up to 128 activation rows, or 32 rows of three
 *                  planes, in the order of sums of tile.cuh
 *
 * These GPUs' tensor cores add up 16 products and a sum in one rounding, whichever
 * instruction asks for it, so the bits are those of tile.cuh too.
 *
 * A block stays and takes units of work one after another. One warpgroup, the feeder,
 * brings what is multiplied into a ring of slots in shared memory, a k block a slot:
 * activations, planes in slices (planes.cuh), by the copy engine, weights piece by piece.
 * Two warpgroups have 64 weight rows each, expand them into registers and multiply: while
 * the tensor cores work for one, the other adds up its block and expands the next one's
 * weights.
 *
 * WIDE_CLUSTER blocks side by side take units that differ in their weights only. Each
 * brings its part of the rows into the shared memory of all of them.
 *
 * A unit's source is a WORK: see wide_run().
 */
#ifndef TD_OPS_CUDA_WARPGROUP_CUH
#define TD_OPS_CUDA_WARPGROUP_CUH

#include "ops/cuda/bulk.cuh"
#include "ops/cuda/planes.cuh"
#include "ops/cuda/tile.cuh"

enum {
    GROUP = 128,      /* threads of a warpgroup */
    WIDE_CLUSTER = 2, /* blocks of a cluster */
    WIDE_THREADS = 3 * GROUP,
    WIDE_ROWS = 128,         /* of a slot */
    WIDE_ROWS_3 = 32,        /* of each of three planes in a slot */
    SLICE_BYTES = SLICE * 2, /* of a row */
    SLOT_SLICES = KB / SLICE,
    SLICE_STEPS = SLICE / 16,
    SLOT_SLICE_BYTES = WIDE_ROWS * SLICE_BYTES,
    SLOT_X_BYTES = SLOT_SLICES * SLOT_SLICE_BYTES, /* weights lie behind */
    WIDE_SLOTS = 3,
    SLOT_ALIGN = 1024,
    OUT_PITCH = 64 + 4, /* floats of a row of results, apart by banks */
    /* Registers of a thread: what a block begins with, what the feeder keeps, and what
     * the others get of the rest. */
    WIDE_REGISTERS = 65536 / WIDE_THREADS / 8 * 8,
    FEEDER_REGISTERS = 88,
    OTHER_REGISTERS = WIDE_REGISTERS + (WIDE_REGISTERS - FEEDER_REGISTERS) / 2 / 8 * 8,
    QUEUE = 4, /* units */
    UNIT_BYTES = 128,
    PLACE_BYTES = UNIT_BYTES + WIDE_ROWS * 4, /* a unit and where its rows go */
    /* Of shared memory, in front of slots: results, units, scales, barriers. */
    OUT_BYTES = 2 * WIDE_ROWS * OUT_PITCH * 4,
    UNITS_AT = OUT_BYTES,
    SCALES_AT = UNITS_AT + QUEUE * PLACE_BYTES,
    BARRIERS_AT = SCALES_AT + WIDE_SLOTS * 8,
    SLOTS_AT = (BARRIERS_AT + 2 * 8 * (WIDE_SLOTS + QUEUE) + SLOT_ALIGN - 1) /
               SLOT_ALIGN * SLOT_ALIGN,
    WIDE_BYTES = SLOTS_AT + WIDE_SLOTS * (SLOT_X_BYTES + TILE_M * KB)
};

/* Slots of what is there for weights of a byte. */
template <int TYPE> struct td_slot {
    static constexpr int w_bytes = TILE_M * KB * (TYPE == TD_MAT_F8 ? 1 : 2);
    static constexpr int bytes = SLOT_X_BYTES + w_bytes;
    static constexpr int n = (WIDE_BYTES - SLOTS_AT) / bytes;
};

/* Threads that the kernels are built for; few where their body is missing, which is how
 * the host finds out. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TD_WIDE_BOUNDS __launch_bounds__(WIDE_THREADS, 1)
#else
#define TD_WIDE_BOUNDS __launch_bounds__(WARP, 1)
#endif

/* What a block multiplies: weight rows n0 .. n0 + 127 of w[0], or, with NW = 2, rows n0 ..
 * n0 + 63 of both, with `count` activation rows; weight rows from n on are zeros. */
template <int NW> struct td_unit {
    const void *w[NW];
    const float *scale[NW]; /* of weight row n0, by k block; NULL for none */
    int64_t n, n0;
    const uint16_t *x; /* planes in slices, from the first row on */
    int64_t plane;     /* elements between them */
    int32_t tall, blocks, count;
    /* Results: with NW = 1 row r's at out + (pick ? pick[r] : r) * step. With
     * NW = 2 silu(first) * second, rounded, as a plane in slices: that of n0 from the
     * first row on, which is swizzled like row 0; NULL for columns behind its end. */
    void *out;
    int64_t step;
    const int32_t *pick;
    bool rounds; /* with NW = 1: results are bf16, else f32 */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

TD_DEVICE unsigned char *td_wide_shared(void)
{
    extern __shared__ __align__(SLOT_ALIGN) unsigned char wide[];
    return wide;
}

/* ---- barriers in shared memory ---- */

/* Arrives at the barrier in the same place of a block of the cluster. */
TD_DEVICE void td_barrier_arrive(uint32_t at, int block)
{
    asm volatile("{\n\t"
                 ".reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t"
                 "}" ::"r"(at),
                 "r"(block)
                 : "memory");
}

TD_DEVICE void td_barrier_arrive(uint32_t at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* Arrives when what the thread has asked for with td_copy16() and td_copy4() is there. */
TD_DEVICE void td_barrier_arrive_behind_copies(uint32_t at)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at)
                 : "memory");
}

/* Among the threads of a warpgroup; 0 is everybody's barrier. */
TD_DEVICE void td_group_sync(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group), "n"((int)GROUP) : "memory");
}

/* All threads of the cluster's blocks. */
TD_DEVICE void td_cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/* ---- the copy engine ---- */

/* Brings memory to the same place in all blocks of the cluster, and tells the barriers
 * there. */
TD_DEVICE void td_bring(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    if (WIDE_CLUSTER == 1)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier)
            : "memory");
    else
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(barrier),
                     "h"((uint16_t)((1 << WIDE_CLUSTER) - 1))
                     : "memory");
}

/* ---- the multiplying instruction ---- */

TD_DEVICE void td_group_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

TD_DEVICE void td_group_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* All groups but the last n are over. */
template <int n> TD_DEVICE void td_group_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

#define TD_D4(d, i)       "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TD_D16(d, i)      TD_D4(d, i), TD_D4(d, i + 4), TD_D4(d, i + 8), TD_D4(d, i + 12)
#define TD_IN(a, b, adds) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds)
#define TD_S16_0          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TD_S16_1          "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TD_S16_2          "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define TD_S16_3          "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TD_MMA_TEXT(n, sums, a, b, adds)                                               \
    "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " adds ", 0;\n\t"                            \
    "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" sums "}, {" a "}, " b  \
    ", p, 1, 1, 0;\n\t}"

/* d[64 x 2 * R] = a[64 x 16] b[16 x 2 * R] + (adds ? d : 0). A warp's a and d are like
 * td_mma()'s, b is described as in td_slot_descriptor(). */
TD_DEVICE void td_group_mma(float (&d)[16], const uint32_t (&a)[4], uint64_t b,
                            int adds)
{
    asm volatile(TD_MMA_TEXT("32", TD_S16_0, "%16,%17,%18,%19", "%20", "%21")
                 : TD_D16(d, 0)
                 : TD_IN(a, b, adds));
}

TD_DEVICE void td_group_mma(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                            int adds)
{
    asm volatile(
        TD_MMA_TEXT("64", TD_S16_0 "," TD_S16_1, "%32,%33,%34,%35", "%36", "%37")
        : TD_D16(d, 0), TD_D16(d, 16)
        : TD_IN(a, b, adds));
}

TD_DEVICE void td_group_mma(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                            int adds)
{
    asm volatile(TD_MMA_TEXT("128", TD_S16_0 "," TD_S16_1 "," TD_S16_2 "," TD_S16_3,
                             "%64,%65,%66,%67", "%68", "%69")
                 : TD_D16(d, 0), TD_D16(d, 16), TD_D16(d, 32), TD_D16(d, 48)
                 : TD_IN(a, b, adds));
}

#undef TD_D4
#undef TD_D16
#undef TD_IN
#undef TD_S16_0
#undef TD_S16_1
#undef TD_S16_2
#undef TD_S16_3
#undef TD_MMA_TEXT

/* Rows of 128 bytes, eight of them a swizzled whole: piece p of row r lies at place
 * p ^ r % 8. The next step begins 32 bytes on. */
TD_DEVICE uint64_t td_slot_descriptor(uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16 |
           (uint64_t)(8 * 128 >> 4) << 32 | (uint64_t)1 << 62;
}

/* ---- the ring ---- */

/* The next of N slots or units, and the ring's turn. */
struct td_ring {
    int at;
    uint32_t turn; /* its lowest bit */
};

template <int TYPE> TD_DEVICE unsigned char *td_ring_slot(int slot)
{
    return td_wide_shared() + SLOTS_AT + slot * td_slot<TYPE>::bytes;
}

/* Scales of both matrices in a slot's block. */
TD_DEVICE float *td_ring_scales(int slot)
{
    return (float *)(td_wide_shared() + SCALES_AT) + 2 * slot;
}

/* The barriers that say of a slot that it is full, and that it is free in all blocks of
 * the cluster. */
TD_DEVICE uint32_t td_ring_full(int slot)
{
    return td_shared_at(td_wide_shared()) + BARRIERS_AT + 8 * (uint32_t)slot;
}

TD_DEVICE uint32_t td_ring_empty(int slot)
{
    return td_ring_full(WIDE_SLOTS + slot);
}

template <int N> TD_DEVICE void td_ring_next(td_ring &r)
{
    if (++r.at == N) {
        r.at = 0;
        r.turn ^= 1;
    }
}

/* A warp does not need the slot any more. */
TD_DEVICE void td_ring_release(int slot)
{
    int lane = (int)threadIdx.x % WARP;
    if (lane < WIDE_CLUSTER)
        td_barrier_arrive(td_ring_empty(slot), lane);
}

/* ---- units ---- */

/* They come from the feeder through a ring of their own. */
TD_DEVICE uint32_t td_queue_full(int place)
{
    return td_ring_empty(WIDE_SLOTS + place);
}

TD_DEVICE uint32_t td_queue_empty(int place)
{
    return td_queue_full(QUEUE + place);
}

template <int NW> TD_DEVICE td_unit<NW> &td_queued(int place)
{
    static_assert(sizeof(td_unit<NW>) <= UNIT_BYTES, "a unit's place");
    return *(td_unit<NW> *)(td_wide_shared() + UNITS_AT + place * PLACE_BYTES);
}

TD_DEVICE void td_ring_init(void)
{
    for (int i = 0; i < WIDE_SLOTS; i++) {
        td_barrier_init(td_ring_full(i), GROUP + 1);
        td_barrier_init(td_ring_empty(i), WIDE_CLUSTER * 2 * GROUP / WARP);
    }
    for (int i = 0; i < QUEUE; i++) {
        td_barrier_init(td_queue_full(i), GROUP + 1);
        td_barrier_init(td_queue_empty(i), 2 * GROUP / WARP);
    }
    td_barrier_ready();
}

/* Of the unit's row r: which of those that `out` has it is. */
template <int NW> TD_DEVICE int32_t *td_unit_rows(const td_unit<NW> &u)
{
    return (int32_t *)((uint8_t *)(uintptr_t)&u + UNIT_BYTES);
}

/* ---- feeder ---- */

/* What a thread brings of a unit's weights: a piece of every `rows` of them. */
template <int TYPE> struct td_feed {
    static constexpr int wide = KB * (TYPE == TD_MAT_F8 ? 1 : 2) / 16; /* pieces */
    static constexpr int rows = GROUP / wide, n = TILE_M / rows;
    const uint8_t *from[2];
    int64_t step; /* bytes from one of its rows to the next */
    int left[2];  /* rows that there are from its first one on */
    int to;       /* bytes in a slot */
};

template <int TYPE, int NW> TD_DEVICE td_feed<TYPE> td_feed_of(const td_unit<NW> &u)
{
    td_feed<TYPE> f;
    int m = (int)threadIdx.x / f.wide, piece = (int)threadIdx.x % f.wide;
    int64_t pitch = (int64_t)u.blocks * KB * td_bytes_of<TYPE>();
#pragma unroll
    for (int i = 0; i < NW; i++) {
        f.from[i] = (const uint8_t *)u.w[i] + (u.n0 + m) * pitch + 16 * piece;
        f.left[i] = (int)min(u.n - u.n0, (int64_t)TILE_M) - m;
    }
    f.step = f.rows * pitch;
    f.to = SLOT_X_BYTES + 16 * (m * f.wide + td_swizzle_w(piece, m));
    return f;
}

/* Asks for a block of weights. Rows of a slot are those of the unit, or 64 of each of its
 * matrices. */
template <int TYPE, int NW>
TD_DEVICE void td_feed_weights(td_feed<TYPE> &f, unsigned char *slot)
{
    const int each = f.n / NW;
#pragma unroll
    for (int i = 0; i < f.n; i++) {
        int of = i / each, row = i % each;
        bool there = row * f.rows < f.left[of];
        td_copy16(slot + f.to + 16 * f.wide * f.rows * i,
                  there ? f.from[of] + row * f.step : NULL, there);
    }
#pragma unroll
    for (int i = 0; i < NW; i++)
        f.from[i] += KB * td_bytes_of<TYPE>();
}

/* What there is of the rows of a unit for this block of the cluster to bring. */
struct td_feed_rows {
    const uint16_t *from;
    int64_t slice, plane; /* elements */
    int to, bytes, all;   /* in a slice of a slot */
};

template <int NW> TD_DEVICE td_feed_rows td_feed_rows_of(const td_unit<NW> &u)
{
    int eights = (u.count + SLICE_ROWS - 1) / SLICE_ROWS;
    int part = (eights + WIDE_CLUSTER - 1) / WIDE_CLUSTER * SLICE_ROWS;
    int first = (int)blockIdx.x % WIDE_CLUSTER * part;
    return td_feed_rows{u.x + first * SLICE,
                        (int64_t)u.tall * SLICE,
                        u.plane,
                        first * SLICE_BYTES,
                        min(part, eights * SLICE_ROWS - first) * SLICE_BYTES,
                        eights * SLICE_ROWS * SLICE_BYTES};
}

/* Asks for a block of rows. */
template <int PLANES>
TD_DEVICE void td_feed_x(td_feed_rows &f, unsigned char *slot, uint32_t full)
{
    td_barrier_expect(full, SLOT_SLICES * PLANES * f.all);
#pragma unroll
    for (int i = 0; i < SLOT_SLICES; i++, f.from += f.slice)
#pragma unroll
        for (int p = 0; p < PLANES; p++)
            if (f.bytes > 0)
                td_bring(td_shared_at(slot) + (uint32_t)(i * SLOT_SLICE_BYTES + f.to +
                                                         p * WIDE_ROWS_3 * SLICE_BYTES),
                         f.from + p * f.plane, f.bytes, full);
}

/* Brings a unit. */
template <int TYPE, int PLANES, int NW>
TD_DEVICE void td_feed_unit(const td_unit<NW> &u, td_ring &ring)
{
    td_feed<TYPE> w = td_feed_of<TYPE>(u);
    td_feed_rows x = td_feed_rows_of(u);
#pragma unroll 1
    for (int b = 0; b < u.blocks; b++) {
        uint32_t full = td_ring_full(ring.at);
        unsigned char *slot = td_ring_slot<TYPE>(ring.at);
        td_barrier_wait(td_ring_empty(ring.at), ring.turn ^ 1);
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 0; i < NW; i++) {
                float *scale = td_ring_scales(ring.at) + i;
                if (u.scale[i])
                    td_copy4(scale, u.scale[i] + b);
                else
                    *scale = 1.0f;
            }
            td_feed_x<PLANES>(x, slot, full);
        }
        td_feed_weights<TYPE, NW>(w, slot);
        td_barrier_arrive_behind_copies(full);
        td_ring_next<td_slot<TYPE>::n>(ring);
    }
}

/* Hands over a unit. */
template <int NW> TD_DEVICE void td_feed_place(const td_unit<NW> &u, int place)
{
    uint32_t full = td_queue_full(place);
    int r = (int)threadIdx.x;
    int32_t *row = td_unit_rows(td_queued<NW>(place)) + r;
    if (u.pick && r < u.count) {
        td_copy4(row, u.pick + r);
        td_barrier_arrive_behind_copies(full);
    } else {
        *row = r;
        td_barrier_arrive(full);
    }
    if (r == 0) {
        td_queued<NW>(place) = u;
        td_barrier_arrive(full);
    }
}

/* The work of a block: units block, block + blocks, ... without empty ones; behind them
 * one of no rows. */
template <int TYPE, int PLANES, int NW, typename WORK>
TD_DEVICE void td_feed_run(const WORK &work)
{
    td_ring ring = {}, queue = {};
    td_unit<NW> u;
    u.count = 1;
    for (int at = (int)blockIdx.x; u.count > 0; at += (int)gridDim.x) {
        if (!work.find(at, u))
            u.count = 0;
        else if (u.count == 0) {
            u.count = 1;
            continue;
        }
        td_barrier_wait(td_queue_empty(queue.at), queue.turn ^ 1);
        td_feed_place(u, queue.at);
        td_ring_next<QUEUE>(queue);
        if (u.count > 0)
            td_feed_unit<TYPE, PLANES>(u, ring);
    }
    td_copy_commit();
    td_copy_wait<0>();
}

/* ---- multiplying ---- */

/* The first of a lane's two weight rows in a slot, 8 or 64 apart. A warpgroup has 64 of a
 * matrix, or of both those 32 whose results make half of a row of a slice, in the order
 * for weights of TYPE: a warp's eight are a lane's two steps. */
template <int TYPE, int NW> TD_DEVICE int td_lane_row(void)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x % GROUP / WARP;
    int group = (int)threadIdx.x / GROUP - 1;
    if (NW == 1)
        return 64 * group + 16 * warp + lane / 4;
    return (TYPE == TD_MAT_F8 ? 16 * warp + 8 * group : 32 * group + 8 * warp) +
           lane / 4;
}

/* The operands of a slot's block. */
template <int TYPE, int NW>
TD_DEVICE void td_slot_operands(const unsigned char *slot, uint32_t (&a)[STEPS][4])
{
    const int wide = td_feed<TYPE>::wide;
    int lo = td_lane_row<TYPE, NW>(), hi = lo + (NW == 2 ? 64 : 8);
    const uint4 *w = (const uint4 *)(slot + SLOT_X_BYTES);
    td_frag<TYPE> f;
#pragma unroll
    for (int i = 0; i < wide / 4; i++) {
        int piece = td_swizzle_w(4 * i + (int)threadIdx.x % 4, lo); /* alike for both */
        f.lo[i] = w[lo * wide + piece];
        f.hi[i] = w[hi * wide + piece];
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        td_operand<TYPE>(f, s, a[s]);
}

/* sum = the products of operands a with a slot's activations. */
template <int PLANES, int R>
TD_DEVICE void td_wide_block(uint32_t (&a)[STEPS][4], const unsigned char *slot,
                             float (&sum)[R])
{
    uint64_t d = td_slot_descriptor(td_shared_at(slot));
#pragma unroll
    for (int s = 0; s < STEPS; s++) /* or they are made between the instructions */
        asm volatile("" : "+r"(a[s][0]), "+r"(a[s][1]), "+r"(a[s][2]), "+r"(a[s][3]));
    td_group_fence();
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int p = 0; p < PLANES; p++)
            td_group_mma(sum, a[s],
                         d + s / SLICE_STEPS * (SLOT_SLICE_BYTES >> 4) +
                             2 * (s % SLICE_STEPS) +
                             p * (WIDE_ROWS_3 * SLICE_BYTES >> 4),
                         s + p != 0);
    td_group_commit();
    td_group_wait<0>();
#pragma unroll
    for (int i = 0; i < R; i++)
        asm volatile("" : "+f"(sum[i])); /* there only now */
}

/* Elements at .. at + 3 (rounded + 7) of a row that ends with `left` of them: a piece of 16
 * bytes. */
template <bool ROUNDS>
TD_DEVICE void td_store_piece(void *row, int64_t at, int64_t left, const float *y)
{
    const int n = ROUNDS ? 8 : 4;
    float *to = (float *)row + at;
    uint16_t *rounded = (uint16_t *)row + at;
    float4 lo = *(const float4 *)y;
    if (ROUNDS && left >= n && (uintptr_t)rounded % 16 == 0) {
        float4 hi = *(const float4 *)(y + 4);
        *(uint4 *)rounded =
            make_uint4(td_to_bf16x2(lo.x, lo.y), td_to_bf16x2(lo.z, lo.w),
                       td_to_bf16x2(hi.x, hi.y), td_to_bf16x2(hi.z, hi.w));
    } else if (!ROUNDS && left >= n && (uintptr_t)to % 16 == 0) {
        *(float4 *)to = lo;
    } else {
#pragma unroll 1
        for (int i = 0; i < n && i < left; i++)
            if (ROUNDS)
                rounded[i] = td_to_bf16(y[i]);
            else
                to[i] = y[i];
    }
}

/* A thread's part of the results. */
template <bool ROUNDS>
TD_DEVICE void td_store_rows(const td_unit<1> &u, const float *out)
{
    const int n = ROUNDS ? 8 : 4, each = 64 / n; /* threads for a row */
    int thread = (int)threadIdx.x % GROUP, in = thread % each * n, count = u.count;
    int64_t at = u.n0 + ((int)threadIdx.x / GROUP - 1) * 64 + in, left = u.n - at;
    int64_t step = u.step * (ROUNDS ? 2 : 4);
    const int32_t *rows = td_unit_rows(u);
    char *to = (char *)u.out;
#pragma unroll 4
    for (int r = thread / each; r < count; r += GROUP / each)
        td_store_piece<ROUNDS>(to + rows[r] * step, at, left, out + r * OUT_PITCH + in);
}

/* A thread's part of the gated results: pieces of eight, as a row of planes wants it. */
TD_DEVICE void td_store_gated(const td_unit<2> &u, const float *out)
{
    int thread = (int)threadIdx.x % GROUP, piece = thread % 4;
    int group = (int)threadIdx.x / GROUP - 1;
    if (!u.out)
        return;
#pragma unroll 1
    for (int r = thread / 4; r < u.count; r += GROUP / 4) {
        uint32_t word[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float *from = out + r * OUT_PITCH + 8 * c + 2 * piece;
            float2 gate = *(const float2 *)from, up = *(const float2 *)(from + 32);
            word[c] = td_to_bf16x2(td_silu(gate.x) * up.x, td_silu(gate.y) * up.y);
        }
        uint16_t *to =
            (uint16_t *)u.out + r * SLICE + 8 * ((4 * group + piece) ^ r % 8);
        *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

/* A warpgroup's results by way of shared memory, so that those of a row go out
 * together. */
template <int NW, int R>
TD_DEVICE void td_wide_store(const td_unit<NW> &u, const float (&total)[R])
{
    int thread = (int)threadIdx.x % GROUP, lane = thread % WARP, warp = thread / WARP;
    int group = (int)threadIdx.x / GROUP;
    float *out = (float *)td_wide_shared() + (group - 1) * WIDE_ROWS * OUT_PITCH;
    float *lo = out + (NW == 2 ? 8 : 16) * warp + lane / 4 + lane % 4 * 2 * OUT_PITCH;
    float *hi = lo + (NW == 2 ? 32 : 8);
    td_group_sync(group);
#pragma unroll
    for (int i = 0; i < R; i++)
        (i % 4 < 2 ? lo : hi)[(2 * (i / 4 * 4) + i % 2) * OUT_PITCH] = total[i];
    td_group_sync(group);
    if constexpr (NW == 2)
        td_store_gated(u, out);
    else if (u.rounds)
        td_store_rows<true>(u, out);
    else
        td_store_rows<false>(u, out);
}

/* A unit with at most 2 * R activation rows. */
template <int TYPE, int PLANES, int NW, int R>
TD_DEVICE void td_wide_unit(const td_unit<NW> &u, td_ring &ring)
{
    float total[R] = {}, sum[R];
#pragma unroll 1
    for (int b = u.blocks; b > 0; b--) {
        uint32_t a[STEPS][4];
        const unsigned char *slot = td_ring_slot<TYPE>(ring.at);
        td_barrier_wait(td_ring_full(ring.at), ring.turn);
        td_slot_operands<TYPE, NW>(slot, a);
        float lo = td_ring_scales(ring.at)[0];
        float hi = NW == 2 ? td_ring_scales(ring.at)[1] : lo;
        td_wide_block<PLANES>(a, slot, sum);
        td_ring_release(ring.at);
        td_ring_next<td_slot<TYPE>::n>(ring);
#pragma unroll
        for (int i = 0; i < R; i++)
            total[i] = fmaf(sum[i], i % 4 < 2 ? lo : hi, total[i]);
    }
    td_wide_store<NW>(u, total);
}

template <int TYPE, int PLANES, int NW> TD_DEVICE void td_wide_multiply(void)
{
    td_ring ring = {}, queue = {};
    for (;;) {
        td_barrier_wait(td_queue_full(queue.at), queue.turn);
        const td_unit<NW> &u = td_queued<NW>(queue.at);
        if (u.count == 0)
            break;
        if (PLANES == 1 && u.count > 64)
            td_wide_unit<TYPE, PLANES, NW, 64>(u, ring);
        else if (PLANES == 1 && u.count > 32)
            td_wide_unit<TYPE, PLANES, NW, 32>(u, ring);
        else
            td_wide_unit<TYPE, PLANES, NW, 16>(u, ring);
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            td_barrier_arrive(td_queue_empty(queue.at));
        td_ring_next<QUEUE>(queue);
    }
}

/* WORK has bool find(int unit, td_unit<NW> &u): false behind the last unit; a count of 0
 * for one without work. Units WIDE_CLUSTER * i and those that follow it in a cluster have
 * the same rows. */
template <int TYPE, int PLANES, int NW, typename WORK>
TD_DEVICE void wide_run(const WORK &work)
{
    if (threadIdx.x == 0)
        td_ring_init();
    td_cluster_sync();
    td_wait();
    if (threadIdx.x < GROUP) {
        asm volatile(
            "setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)FEEDER_REGISTERS));
        td_feed_run<TYPE, PLANES, NW>(work);
        __syncwarp();
        td_cluster_sync(); /* nobody sends to a block that has ended */
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)OTHER_REGISTERS));
        td_wide_multiply<TYPE, PLANES, NW>();
        td_cluster_sync();
    }
}

#else

template <int TYPE, int PLANES, int NW, typename WORK>
TD_DEVICE void wide_run(const WORK &)
{
}

#endif

template <typename... P> static inline void td_allow_wide(void (*kernel)(P...))
{
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)WIDE_BYTES);
}

/* Launches a kernel whose blocks stay. */
template <typename... P, typename... A>
static inline void td_start_wide(const struct td_cuda_ctx *c, void (*kernel)(P...),
                                 const A &...args)
{
    unsigned clusters = (unsigned)TD_MAX(c->processors / WIDE_CLUSTER, 1);
    td_start_cluster(c, kernel, dim3(clusters * WIDE_CLUSTER), WIDE_THREADS, WIDE_BYTES,
                     WIDE_CLUSTER, args...);
}

#endif

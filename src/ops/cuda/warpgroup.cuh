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
 * A block stays and takes units of work one after another. One warp, the feeder, has the
 * copy engine bring activations, planes in slices (planes.cuh), into a ring of slots in
 * shared memory, a k block a slot. Two warpgroups hold 64 weight rows each, read straight
 * into registers and expanded there, and multiply: while the tensor cores work for one,
 * the other adds up its block and expands its next weights, so they take turns.
 *
 * WIDE_CLUSTER blocks side by side take units that differ in their weights only. Each
 * brings its part of the rows into the shared memory of all of them.
 *
 * A unit's source is a WORK: see wide_run().
 */
#ifndef TD_OPS_CUDA_WARPGROUP_CUH
#define TD_OPS_CUDA_WARPGROUP_CUH

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
    SLOT_BYTES = SLOT_SLICES * SLOT_SLICE_BYTES,
    SLOTS = 4,
    SLOT_ALIGN = 1024,
    OUT_PITCH = 64 + 4, /* floats of a row of results, apart by banks */
    /* Registers of a thread: what a block begins with, what the feeder keeps, and what
     * the others get of the rest. */
    WIDE_REGISTERS = 65536 / WIDE_THREADS / 8 * 8,
    FEEDER_REGISTERS = 40,
    OTHER_REGISTERS = WIDE_REGISTERS + (WIDE_REGISTERS - FEEDER_REGISTERS) / 2 / 8 * 8,
    QUEUE = 4, /* units */
    UNIT_BYTES = 128,
    WIDE_RING = SLOTS * SLOT_BYTES + 2 * 8 * (SLOTS + QUEUE) /* barriers included */
};

/* Threads that the kernels are built for; few where their body is missing, which is how
 * the host finds out. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TD_WIDE_BOUNDS __launch_bounds__(WIDE_THREADS, 1)
#else
#define TD_WIDE_BOUNDS __launch_bounds__(WARP, 1)
#endif

static constexpr size_t td_wide_bytes(void)
{
    return WIDE_RING + QUEUE * UNIT_BYTES +
           2 * (size_t)WIDE_ROWS * OUT_PITCH * sizeof(float);
}

/* How float results are stored: as they are, on top of what is there, or rounded. */
enum td_wide_how { WIDE_STORES, WIDE_ADDS, WIDE_ROUNDS };

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
    int32_t how; /* with NW = 1, of enum td_wide_how */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Shared memory: the ring's slots, barriers, units, results. */
TD_DEVICE unsigned char *td_wide_shared(void)
{
    extern __shared__ __align__(SLOT_ALIGN) unsigned char wide[];
    return wide;
}

TD_DEVICE float *td_wide_out(void)
{
    return (float *)(td_wide_shared() + WIDE_RING + QUEUE * UNIT_BYTES);
}

/* ---- barriers in shared memory ---- */

TD_DEVICE uint32_t td_shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

TD_DEVICE void td_barrier_init(uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals)
                 : "memory");
}

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

/* Arrives, and `bytes` will come. */
TD_DEVICE void td_barrier_expect(uint32_t at, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
                 "r"(bytes)
                 : "memory");
}

TD_DEVICE void td_barrier_wait(uint32_t at, uint32_t parity)
{
    asm volatile("{\n\t"
                 ".reg .pred over;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t"
                 "@!over bra again;\n\t"
                 "}" ::"r"(at),
                 "r"(parity)
                 : "memory");
}

/* Among the threads of a warpgroup; 0 is everybody's barrier. */
TD_DEVICE void td_group_sync(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group), "n"((int)GROUP) : "memory");
}

/* Waits for the other warpgroup to have passed the turn. */
TD_DEVICE void td_turn_wait(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(2 + group), "n"(2 * (int)GROUP) : "memory");
}

TD_DEVICE void td_turn_pass(int group)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(2 + 3 - group), "n"(2 * (int)GROUP)
                 : "memory");
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

struct td_ring {
    int at;
    uint32_t turn; /* of the ring, its lowest bit */
};

TD_DEVICE uint32_t td_ring_slot(int slot)
{
    return td_shared_at(td_wide_shared()) + (uint32_t)slot * SLOT_BYTES;
}

/* The barriers that say of a slot that it is full, and that it is free in all blocks of
 * the cluster. */
TD_DEVICE uint32_t td_ring_full(int slot)
{
    return td_shared_at(td_wide_shared()) + SLOTS * SLOT_BYTES + 8 * (uint32_t)slot;
}

TD_DEVICE uint32_t td_ring_empty(int slot)
{
    return td_ring_full(slot) + 8 * SLOTS;
}

TD_DEVICE void td_ring_next(td_ring &r)
{
    if (++r.at == SLOTS) {
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
    return td_ring_empty(SLOTS + place);
}

TD_DEVICE uint32_t td_queue_empty(int place)
{
    return td_queue_full(QUEUE + place);
}

template <int NW> TD_DEVICE td_unit<NW> &td_queued(int place)
{
    static_assert(sizeof(td_unit<NW>) <= UNIT_BYTES, "a unit's place");
    return *(td_unit<NW> *)(td_wide_shared() + WIDE_RING + place * UNIT_BYTES);
}

TD_DEVICE void td_queue_next(td_ring &r)
{
    if (++r.at == QUEUE) {
        r.at = 0;
        r.turn ^= 1;
    }
}

TD_DEVICE void td_ring_init(void)
{
    for (int i = 0; i < SLOTS; i++) {
        td_barrier_init(td_ring_full(i), 1);
        td_barrier_init(td_ring_empty(i), WIDE_CLUSTER * 2 * GROUP / WARP);
    }
    for (int i = 0; i < QUEUE; i++) {
        td_barrier_init(td_queue_full(i), 1);
        td_barrier_init(td_queue_empty(i), 2 * GROUP / WARP);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* ---- feeder ---- */

/* Brings the rows of a unit. */
template <int TYPE, int PLANES, int NW>
TD_DEVICE void td_feed_unit(const td_unit<NW> &u, td_ring &ring)
{
    bool first_lane = threadIdx.x % WARP == 0;
    int eights = (u.count + SLICE_ROWS - 1) / SLICE_ROWS;
    int part = (eights + WIDE_CLUSTER - 1) / WIDE_CLUSTER * SLICE_ROWS;
    int first = (int)blockIdx.x % WIDE_CLUSTER * part;
    int bytes = min(part, eights * SLICE_ROWS - first) * SLICE_BYTES;
    int all = SLOT_SLICES * PLANES * eights * SLICE_ROWS * SLICE_BYTES;
    const uint16_t *from = u.x + first * SLICE;
#pragma unroll 1
    for (int b = 0; b < u.blocks; b++) {
        uint32_t full = td_ring_full(ring.at);
        uint32_t to = td_ring_slot(ring.at) + (uint32_t)(first * SLICE_BYTES);
        td_barrier_wait(td_ring_empty(ring.at), ring.turn ^ 1);
        if (first_lane)
            td_barrier_expect(full, all);
#pragma unroll
        for (int i = 0; i < SLOT_SLICES; i++) {
#pragma unroll
            for (int p = 0; p < PLANES; p++)
                if (first_lane && bytes > 0)
                    td_bring(to + i * SLOT_SLICE_BYTES + p * WIDE_ROWS_3 * SLICE_BYTES,
                             from + p * u.plane, bytes, full);
            from += (int64_t)u.tall * SLICE;
        }
        td_ring_next(ring);
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
        if (threadIdx.x == 0) {
            td_queued<NW>(queue.at) = u;
            td_barrier_arrive(td_queue_full(queue.at));
        }
        td_queue_next(queue);
        if (u.count > 0)
            td_feed_unit<TYPE, PLANES>(u, ring);
    }
}

/* ---- multiplying ---- */

/* A lane's weights of a block, and the scales of its two rows. */
template <int TYPE> struct td_weights {
    td_frag<TYPE> f;
    float lo, hi;
};

/* Where the lane's next weights are; NULL for rows outside. */
struct td_reader {
    const uint8_t *lo, *hi;
    const float *scale_lo, *scale_hi;
    td_ring queue;     /* the unit behind this one */
    int block, blocks; /* 0: there is none */
};

/* A warpgroup's weight rows: 64 of a matrix, or of both those 32 whose results make half of
 * a row of a slice, in the order for weights of TYPE: a warp's eight are a lane's two
 * steps. A lane has two of them, 8 apart or alike. */
template <int TYPE, int NW> TD_DEVICE int td_lane_row(void)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x % GROUP / WARP;
    int group = (int)threadIdx.x / GROUP - 1;
    if (NW == 1)
        return 64 * group + 16 * warp + lane / 4;
    return (TYPE == TD_MAT_F8 ? 16 * warp + 8 * group : 32 * group + 8 * warp) +
           lane / 4;
}

template <int TYPE, int NW> TD_DEVICE void td_reader_turn(td_reader &r)
{
    const td_unit<NW> &u = td_queued<NW>(r.queue.at);
    td_barrier_wait(td_queue_full(r.queue.at), r.queue.turn);
    td_queue_next(r.queue);
    r.block = 0;
    r.blocks = u.count > 0 ? u.blocks : 0;
    if (u.count == 0)
        return;
    int64_t pitch = (int64_t)u.blocks * KB * td_bytes_of<TYPE>();
    int64_t lo = u.n0 + td_lane_row<TYPE, NW>(), hi = NW == 2 ? lo : lo + 8;
    r.lo = lo < u.n ? (const uint8_t *)u.w[0] + lo * pitch : NULL;
    r.hi = hi < u.n ? (const uint8_t *)u.w[NW - 1] + hi * pitch : NULL;
    r.scale_lo = u.scale[0];
    r.scale_hi = u.scale[NW - 1];
}

/* Asks for the next block. */
template <int TYPE, int NW> TD_DEVICE void td_read(td_reader &r, td_weights<TYPE> &w)
{
    const uint4 zero = {0, 0, 0, 0};
    if (r.blocks == 0)
        return;
    int at = r.block * KB * td_bytes_of<TYPE>() + 16 * ((int)threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < KB * td_bytes_of<TYPE>() / 64; i++) {
        w.f.lo[i] = r.lo ? td_load_weights(r.lo + at + 64 * i) : zero;
        w.f.hi[i] = r.hi ? td_load_weights(r.hi + at + 64 * i) : zero;
    }
    w.lo = r.scale_lo ? r.scale_lo[r.block] : 1.0f;
    w.hi = r.scale_hi ? r.scale_hi[r.block] : 1.0f;
    if (++r.block == r.blocks)
        td_reader_turn<TYPE, NW>(r);
}

/* sum = the products of operands a with the next slot. */
template <int PLANES, int R>
TD_DEVICE void td_wide_block(uint32_t (&a)[STEPS][4], td_ring &ring, float (&sum)[R])
{
    int group = (int)threadIdx.x / GROUP;
    uint64_t d = td_slot_descriptor(td_ring_slot(ring.at));
    td_barrier_wait(td_ring_full(ring.at), ring.turn);
#pragma unroll
    for (int s = 0; s < STEPS; s++) /* or they are made between the instructions */
        asm volatile("" : "+r"(a[s][0]), "+r"(a[s][1]), "+r"(a[s][2]), "+r"(a[s][3]));
    td_turn_wait(group);
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
    td_turn_pass(group);
    td_group_wait<0>();
#pragma unroll
    for (int i = 0; i < R; i++)
        asm volatile("" : "+f"(sum[i])); /* there only now */
    td_ring_release(ring.at);
    td_ring_next(ring);
}

/* Elements at .. at + 3 of a row that ends with `left` of them. */
TD_DEVICE void td_store_four(void *row, int64_t at, int64_t left, int how, float4 y)
{
    float each[4] = {y.x, y.y, y.z, y.w}, *to = (float *)row + at;
    if (how != WIDE_ROUNDS && left >= 4 && (uintptr_t)to % 16 == 0) {
        if (how == WIDE_ADDS) {
            float4 x = *(float4 *)to;
            y = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
        }
        *(float4 *)to = y;
        return;
    }
    uint16_t *rounded = (uint16_t *)row + at;
    if (how == WIDE_ROUNDS && left >= 4 && (uintptr_t)rounded % 8 == 0) {
        *(uint2 *)rounded = make_uint2(td_to_bf16x2(y.x, y.y), td_to_bf16x2(y.z, y.w));
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i >= left)
            continue;
        if (how == WIDE_ROUNDS)
            rounded[i] = td_to_bf16(each[i]);
        else
            to[i] = how == WIDE_ADDS ? to[i] + each[i] : each[i];
    }
}

/* A thread's part of the results. */
TD_DEVICE void td_store_rows(const td_unit<1> &u, const float *out)
{
    const int each = 64 / 4; /* threads for a row */
    int thread = (int)threadIdx.x % GROUP, at = thread % each * 4;
    int64_t n = u.n0 + ((int)threadIdx.x / GROUP - 1) * 64 + at;
    const int32_t *pick = u.pick;
    char *to = (char *)u.out;
    int64_t left = u.n - n, step = u.step * (u.how == WIDE_ROUNDS ? 2 : 4);
    int count = u.count, how = u.how;
#pragma unroll 4
    for (int r = thread / each; r < count; r += GROUP / each)
        td_store_four(to + (pick ? pick[r] : r) * step, n, left, how,
                      *(const float4 *)(out + r * OUT_PITCH + at));
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
    float *out = td_wide_out() + (group - 1) * WIDE_ROWS * OUT_PITCH;
    float *lo = out + (NW == 2 ? 8 : 16) * warp + lane / 4 + lane % 4 * 2 * OUT_PITCH;
    float *hi = lo + (NW == 2 ? 32 : 8);
    td_group_sync(group);
#pragma unroll
    for (int i = 0; i < R; i++)
        (i % 4 < 2 ? lo : hi)[(2 * (i / 4 * 4) + i % 2) * OUT_PITCH] = total[i];
    td_group_sync(group);
    if constexpr (NW == 1)
        td_store_rows(u, out);
    else
        td_store_gated(u, out);
}

/* A block of products, with the weights that were asked for longest; others take their
 * place. */
template <int TYPE, int PLANES, int NW, int R>
TD_DEVICE void td_wide_step(td_reader &reader, td_weights<TYPE> &w, td_ring &ring,
                            float (&total)[R])
{
    uint32_t a[STEPS][4];
    float sum[R], lo = w.lo, hi = w.hi;
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        td_operand<TYPE>(w.f, s, a[s]);
    td_read<TYPE, NW>(reader, w);
    td_wide_block<PLANES>(a, ring, sum);
#pragma unroll
    for (int i = 0; i < R; i++)
        total[i] = fmaf(sum[i], i % 4 < 2 ? lo : hi, total[i]);
}

/* A unit with at most 2 * R activation rows, of which the first weights were asked for. */
template <int TYPE, int PLANES, int NW, int R>
TD_DEVICE void td_wide_unit(const td_unit<NW> &u, td_reader &reader,
                            td_weights<TYPE> &w, td_ring &ring)
{
    float total[R] = {};
#pragma unroll 1
    for (int b = u.blocks; b > 0; b--)
        td_wide_step<TYPE, PLANES, NW>(reader, w, ring, total);
    td_wide_store<NW>(u, total);
}

template <int TYPE, int PLANES, int NW> TD_DEVICE void td_wide_multiply(void)
{
    int group = (int)threadIdx.x / GROUP;
    td_ring ring = {}, queue = {};
    td_weights<TYPE> w = {};
    td_reader reader = {};
    td_reader_turn<TYPE, NW>(reader);
    td_read<TYPE, NW>(reader, w);
    if (group == 2) /* the first one begins */
        td_turn_pass(group);
    while (td_queued<NW>(queue.at).count > 0) {
        const td_unit<NW> &u = td_queued<NW>(queue.at);
        if (PLANES == 1 && u.count > 64)
            td_wide_unit<TYPE, PLANES, NW, 64>(u, reader, w, ring);
        else if (PLANES == 1 && u.count > 32)
            td_wide_unit<TYPE, PLANES, NW, 32>(u, reader, w, ring);
        else
            td_wide_unit<TYPE, PLANES, NW, 16>(u, reader, w, ring);
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            td_barrier_arrive(td_queue_empty(queue.at));
        td_queue_next(queue);
    }
    if (group == 1) /* the last turn is nobody's */
        td_turn_wait(group);
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
        if (threadIdx.x < WARP)
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
                               (int)td_wide_bytes());
}

/* Launches a kernel whose blocks stay. */
template <typename... P, typename... A>
static inline void td_start_wide(const struct td_cuda_ctx *c, void (*kernel)(P...),
                                 const A &...args)
{
    unsigned clusters = (unsigned)TD_MAX(c->processors / WIDE_CLUSTER, 1);
    td_start_cluster(c, kernel, dim3(clusters * WIDE_CLUSTER), WIDE_THREADS,
                     td_wide_bytes(), WIDE_CLUSTER, args...);
}

#endif

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
 * brings activations into a ring of slots in shared memory, 64 of k a slot; two others
 * hold 64 weight rows each, read straight into registers and expanded there, and
 * multiply.
 *
 * Which 16 elements of k make a step is tile.cuh's td_k_of(): those that four lanes hold
 * side by side. The feeder deals them out so that a step's elements lie together.
 *
 * A unit's source is a WORK: see wide_run().
 */
#ifndef TD_OPS_CUDA_WARPGROUP_CUH
#define TD_OPS_CUDA_WARPGROUP_CUH

#include "ops/cuda/tile.cuh"

enum {
    GROUP = 128, /* threads of a warpgroup */
    WIDE_THREADS = 3 * GROUP,
    WIDE_ROWS = 128,  /* of a slot */
    WIDE_ROWS_3 = 32, /* of each of three planes in a slot */
    SLOT_K = 64,
    SLOT_STEPS = SLOT_K / 16,
    SLOT_BYTES = WIDE_ROWS * SLOT_K * 2,
    SLOTS = 8,
    SLOT_ALIGN = 1024,
    OUT_PITCH = 64 + 4, /* floats of a row of results, apart by banks */
    AHEAD = 4,          /* slots that are asked for before one is needed */
    /* Registers of a thread: what a block begins with, what the feeder keeps, and what
     * the others get of the rest. */
    WIDE_REGISTERS = 65536 / WIDE_THREADS / 8 * 8,
    FEEDER_REGISTERS = 56,
    OTHER_REGISTERS = WIDE_REGISTERS + (WIDE_REGISTERS - FEEDER_REGISTERS) / 2 / 8 * 8,
    WIDE_RING = SLOTS * SLOT_BYTES + 2 * 8 * SLOTS /* its barriers included */
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
    return WIDE_RING + 2 * (size_t)WIDE_ROWS * OUT_PITCH * sizeof(float);
}

/* What a block multiplies: weight rows n0 .. n0 + 127 of w[0], or, with NW = 2, rows n0 ..
 * n0 + 63 of both; rows from n on are zeros. `count` activation rows, of which row r is
 * row (pick ? pick[r] : first + r) / share of x. */
template <int NW> struct td_unit {
    const void *w[NW];
    const float *scale[NW]; /* of weight row n0, by k block; NULL for none */
    int64_t n, n0;
    const uint16_t *x;
    int64_t plane; /* elements between planes of x */
    const int32_t *pick;
    int32_t blocks, first, share, count, at; /* at: the WORK's own */
};

template <int NW> TD_DEVICE int32_t td_unit_row(const td_unit<NW> &u, int r)
{
    return u.pick ? u.pick[r] : u.first + r;
}

/* Elements at .. at + 3 of a row of n. */
TD_DEVICE void td_store_row(float *row, int64_t at, int64_t n, float4 y)
{
    if (at + 4 <= n && (uintptr_t)(row + at) % 16 == 0) {
        *(float4 *)(row + at) = y;
        return;
    }
    const float each[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (at + i < n)
            row[at + i] = each[i];
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Shared memory: the ring's slots, its barriers, results. */
TD_DEVICE unsigned char *td_wide_shared(void)
{
    extern __shared__ __align__(SLOT_ALIGN) unsigned char wide[];
    return wide;
}

TD_DEVICE float *td_wide_out(void)
{
    return (float *)(td_wide_shared() + WIDE_RING);
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

TD_DEVICE void td_barrier_arrive(uint32_t at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
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

/* The barriers that say of a slot that it is full, and that it is free. */
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

/* ---- feeder ---- */

/* The work of a block: units block, block + blocks, ... without empty ones. */
TD_DEVICE int td_before_first(void)
{
    return (int)blockIdx.x - (int)gridDim.x;
}

/* The unit behind `at`; negative behind the last. */
template <typename WORK, int NW>
TD_DEVICE int td_next_unit(const WORK &work, int at, td_unit<NW> &u)
{
    do {
        at += (int)gridDim.x;
        if (!work.find(at, u))
            return -1;
    } while (u.count == 0);
    return at;
}

enum { FEED_ROWS = 8 };

/* A feeder's warp brings rows 16 w .. 16 w + 15 and those 64 on. Its lanes ask for whole
 * lines of 128 bytes: a lane for piece lane % 8 of rows lane / 8, 4 more, ... */
struct td_feed {
    const uint4 *x;
    int32_t from[FEED_ROWS]; /* where the lane's rows begin, negative for none */
    int at, slot, slots;
    bool two; /* there are rows in both halves */
};

/* The lane's row i of the tile. */
TD_DEVICE int td_feed_row(int i)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    return 16 * warp + lane / 8 + 4 * (i % 4) + 64 * (i / 4);
}

template <int PLANES, int NW, typename WORK>
TD_DEVICE void td_feed_unit(const WORK &work, td_feed &f)
{
    td_unit<NW> u;
    f.at = td_next_unit(work, f.at, u);
    if (f.at < 0)
        return;
    int32_t pitch = u.blocks * (KB / 8);
    f.x = (const uint4 *)u.x;
    f.slot = 0;
    f.slots = u.blocks * (KB / SLOT_K);
#pragma unroll
    for (int i = 0; i < FEED_ROWS; i++) {
        int row = td_feed_row(i), plane = 0;
        if (PLANES == 3) {
            plane = row / WIDE_ROWS_3;
            row %= WIDE_ROWS_3;
        }
        f.from[i] = -1;
        if (row < u.count && plane < PLANES)
            f.from[i] = plane * (int32_t)(u.plane / 8) +
                        td_unit_row(u, row) / u.share * pitch + (int)threadIdx.x % 8;
    }
    f.two = PLANES == 3 || u.count > WIDE_ROWS / 2;
}

/* A row's pieces in a slot, of which h = 0 and 1 each make four others: piece i of half h
 * lies where td_feed_turn() will leave piece i of what it makes. */
template <int TYPE> TD_DEVICE int td_feed_place(int piece)
{
    return TYPE == TD_MAT_F8 ? 4 * (piece % 2) + piece / 2 : piece;
}

/* Asks for the lane's pieces of the unit's next slot. */
template <int TYPE> TD_DEVICE void td_feed_ask(const td_feed &f, int slot)
{
    const uint4 *x = f.x + f.slot * (SLOT_K / 8);
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int place = td_feed_place<TYPE>(lane % 8) ^ lane / 8;
    int to = slot * SLOT_BYTES + (16 * warp + lane / 8) * 128 + 16 * place;
#pragma unroll
    for (int i = 0; i < FEED_ROWS; i++)
        if (f.from[i] >= 0)
            td_copy16(td_wide_shared() + (to ^ 64 * (i % 2)) +
                          128 * (4 * (i % 4) + 64 * (i / 4)),
                      x + f.from[i], true);
}

/* Pieces of four lanes' elements become pieces of steps, in their places: a lane turns
 * half of a row, then of the one 64 on. */
TD_DEVICE void td_feed_turn(int slot, bool two)
{
    int row = (int)threadIdx.x / 2, half = (int)threadIdx.x % 2;
    int at = slot * SLOT_BYTES + row * 128 + 16 * (4 * half ^ (row & 7));
#pragma unroll
    for (int second = 0; second < 2; second++, at += 64 * 128) {
        uint4 v[4];
        if (second && !two)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = *(const uint4 *)(td_wide_shared() + (at ^ 16 * i));
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(uint4 *)(td_wide_shared() + (at ^ 16 * i)) = make_uint4(
                td_word(v[0], i), td_word(v[1], i), td_word(v[2], i), td_word(v[3], i));
    }
}

template <int TYPE, int PLANES, int NW, typename WORK>
TD_DEVICE void td_feed_run(const WORK &work)
{
    int asked = 0;
    uint32_t two = 0; /* a bit for each slot asked for, the last one's lowest */
    td_ring ask = {}, turn = {};
    td_feed f = {};
    f.at = td_before_first();
    td_feed_unit<PLANES, NW>(work, f);
    for (int i = 0; f.at >= 0 || asked > 0; i++) {
        two = two << 1 | f.two;
        if (f.at >= 0) {
            td_barrier_wait(td_ring_empty(ask.at), ask.turn ^ 1);
            td_feed_ask<TYPE>(f, ask.at);
            td_ring_next(ask);
            asked++;
        }
        td_copy_commit();
        if (i >= AHEAD) {
            td_copy_wait<AHEAD>();
            __syncwarp();
            td_feed_turn(turn.at, two >> AHEAD & 1);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            if (threadIdx.x % WARP == 0)
                td_barrier_arrive(td_ring_full(turn.at));
            td_ring_next(turn);
            asked--;
        }
        if (f.at >= 0 && ++f.slot == f.slots)
            td_feed_unit<PLANES, NW>(work, f);
    }
}

/* ---- multiplying ---- */

/* Among the threads of a warpgroup; 0 is everybody's barrier. */
TD_DEVICE void td_group_sync(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group), "n"((int)GROUP) : "memory");
}

/* A lane's weights of a slot: pieces of its two rows. */
template <int TYPE> struct td_slot_frag {
    uint4 lo[TYPE == TD_MAT_F8 ? 1 : 2], hi[TYPE == TD_MAT_F8 ? 1 : 2];
};

/* Where a lane's weights are; NULL for rows outside. */
struct td_lane_rows {
    const uint8_t *lo, *hi;
    const float *scale[2];
};

template <int TYPE, int NW> TD_DEVICE td_lane_rows td_lane_rows_of(const td_unit<NW> &u)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP - 4;
    int64_t pitch = (int64_t)u.blocks * KB * td_bytes_of<TYPE>();
    int64_t lo = u.n0 + (NW == 2 ? 8 : 16) * warp + lane / 4;
    int64_t hi = NW == 2 ? lo : lo + 8;
    td_lane_rows r;
    r.lo = lo < u.n ? (const uint8_t *)u.w[0] + lo * pitch : NULL;
    r.hi = hi < u.n ? (const uint8_t *)u.w[NW - 1] + hi * pitch : NULL;
    r.scale[0] = u.scale[0];
    r.scale[1] = u.scale[NW - 1];
    return r;
}

template <int TYPE>
TD_DEVICE void td_slot_load(td_slot_frag<TYPE> &f, const td_lane_rows &r, int slot)
{
    const int n = TYPE == TD_MAT_F8 ? 1 : 2;
    const uint4 zero = {0, 0, 0, 0};
    int at = 64 * n * slot + 16 * ((int)threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < n; i++) {
        f.lo[i] = r.lo ? td_load_weights(r.lo + at + 64 * i) : zero;
        f.hi[i] = r.hi ? td_load_weights(r.hi + at + 64 * i) : zero;
    }
}

/* Registers that must hold their values here. */
TD_DEVICE void td_keep(uint32_t (&a)[SLOT_STEPS][4])
{
#pragma unroll
    for (int s = 0; s < SLOT_STEPS; s++)
        asm volatile("" : "+r"(a[s][0]), "+r"(a[s][1]), "+r"(a[s][2]), "+r"(a[s][3]));
}

template <int TYPE>
TD_DEVICE void td_slot_operands(const td_slot_frag<TYPE> &f,
                                uint32_t (&a)[SLOT_STEPS][4])
{
    td_frag<TYPE> whole;
#pragma unroll
    for (int i = 0; i < (TYPE == TD_MAT_F8 ? 1 : 2); i++) {
        whole.lo[i] = f.lo[i];
        whole.hi[i] = f.hi[i];
    }
#pragma unroll
    for (int s = 0; s < SLOT_STEPS; s++)
        td_operand<TYPE>(whole, s, a[s]);
}

/* What a lane keeps from unit to unit: weights of the next two slots, asked for. */
template <int TYPE> struct td_hands {
    td_slot_frag<TYPE> f[2];
    td_lane_rows rows;
};

TD_DEVICE void td_release(int slot)
{
    if (threadIdx.x % WARP == 0)
        td_barrier_arrive(td_ring_empty(slot));
}

/* sum = the products of a block's two slots, of which the first one's operands are there
 * and then those of the next block are. Weights from block `ahead` are asked for. */
template <int TYPE, int PLANES, int R>
TD_DEVICE void td_wide_block(td_hands<TYPE> &h, td_ring &ring, int ahead,
                             uint32_t (&a)[2][SLOT_STEPS][4], float (&sum)[R])
{
    int first = ring.at;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (half == 1)
            td_slot_operands<TYPE>(h.f[1], a[1]);
        td_slot_load<TYPE>(h.f[half], h.rows, 2 * ahead + half);
        td_barrier_wait(td_ring_full(ring.at), ring.turn);
        uint64_t d = td_slot_descriptor(td_ring_slot(ring.at));
        td_keep(a[half]); /* or they are made between the instructions */
        td_group_fence();
#pragma unroll
        for (int s = 0; s < SLOT_STEPS; s++)
#pragma unroll
            for (int p = 0; p < PLANES; p++)
                td_group_mma(sum, a[half][s], d + 2 * s + p * (WIDE_ROWS_3 * 128 >> 4),
                             half + s + p != 0);
        td_group_commit();
        if (half == 0)
            td_ring_next(ring);
    }
    td_group_wait<1>();
    td_release(first);
    td_slot_operands<TYPE>(h.f[0], a[0]);
    td_keep(a[0]);
    td_group_wait<0>();
#pragma unroll
    for (int i = 0; i < R; i++)
        asm volatile("" : "+f"(sum[i])); /* there only now */
    td_release(ring.at);
    td_ring_next(ring);
}

/* Scales of a lane's two rows in a block. */
struct td_block_scale {
    float lo, hi;

    TD_DEVICE_MEMBER td_block_scale(const td_lane_rows &r, int block)
        : lo(r.scale[0] ? r.scale[0][block] : 1.0f),
          hi(r.scale[1] ? r.scale[1][block] : 1.0f)
    {
    }

    template <int R>
    TD_DEVICE_MEMBER void add(const float (&sum)[R], float (&total)[R]) const
    {
#pragma unroll
        for (int i = 0; i < R; i++)
            total[i] = fmaf(sum[i], i % 4 < 2 ? lo : hi, total[i]);
    }
};

/* A warpgroup's results of unit `at` by way of shared memory, so that those of a row go
 * out together. */
template <int NW, int R, typename WORK>
TD_DEVICE void td_wide_store(const WORK &work, int at, const float (&total)[R])
{
    int thread = (int)threadIdx.x % GROUP, lane = thread % WARP, warp = thread / WARP;
    int group = (int)threadIdx.x / GROUP;
    float *out = td_wide_out() + (group - 1) * WIDE_ROWS * OUT_PITCH;
    float *lo = out + (NW == 2 ? 8 : 16) * warp + lane / 4 + lane % 4 * 2 * OUT_PITCH;
    float *hi = lo + (NW == 2 ? 32 : 8);
    td_unit<NW> u;
    td_group_sync(group);
#pragma unroll
    for (int i = 0; i < R; i++)
        (i % 4 < 2 ? lo : hi)[(2 * (i / 4 * 4) + i % 2) * OUT_PITCH] = total[i];
    td_group_sync(group);
    work.find(at, u);
    const int each = 64 / NW / 4; /* threads for a row */
    int64_t n = u.n0 + (group - 1) * (64 / NW) + thread % each * 4;
#pragma unroll 1
    for (int r = thread / each; r < u.count; r += GROUP / each) {
        const float *from = out + r * OUT_PITCH + thread % each * 4;
        work.store(u, td_unit_row(u, r), n, *(const float4 *)from,
                   *(const float4 *)(NW == 2 ? from + 32 : from));
    }
}

/* Unit `at`, with at most 2 * R activation rows. Returns the next one, of which the first
 * weights were asked for meanwhile; negative for none. */
template <int TYPE, int PLANES, int NW, int R, typename WORK>
TD_DEVICE int td_wide_unit(const WORK &work, int at, int blocks, td_hands<TYPE> &h,
                           td_ring &ring)
{
    float total[R] = {}, sum[R] = {};
    uint32_t a[2][SLOT_STEPS][4];
    int next = -1;
    td_unit<NW> u;
    td_slot_operands<TYPE>(h.f[0], a[0]);
    for (int b = 0; b + 1 < blocks; b++) {
        td_block_scale scale(h.rows, b);
        td_wide_block<TYPE, PLANES>(h, ring, b + 1, a, sum);
        scale.add(sum, total);
    }
    td_block_scale scale(h.rows, blocks - 1);
    next = td_next_unit(work, at, u);
    if (next >= 0)
        h.rows = td_lane_rows_of<TYPE>(u);
    td_wide_block<TYPE, PLANES>(h, ring, 0, a, sum);
    scale.add(sum, total);
    td_wide_store<NW>(work, at, total);
    return next;
}

template <int TYPE, int PLANES, int NW, typename WORK>
TD_DEVICE void td_wide_multiply(const WORK &work)
{
    td_ring ring = {};
    td_hands<TYPE> h;
    td_unit<NW> u;
    int at = td_next_unit(work, td_before_first(), u);
    if (at < 0)
        return;
    h.rows = td_lane_rows_of<TYPE>(u);
#pragma unroll
    for (int i = 0; i < 2; i++)
        td_slot_load<TYPE>(h.f[i], h.rows, i);
    while (at >= 0) {
        work.find(at, u);
        if (PLANES == 1 && u.count > 64)
            at = td_wide_unit<TYPE, PLANES, NW, 64>(work, at, u.blocks, h, ring);
        else if (PLANES == 1 && u.count > 32)
            at = td_wide_unit<TYPE, PLANES, NW, 32>(work, at, u.blocks, h, ring);
        else
            at = td_wide_unit<TYPE, PLANES, NW, 16>(work, at, u.blocks, h, ring);
    }
}

/* WORK has
 *     bool find(int unit, td_unit<NW> &u)     false behind the last unit; a count of 0
 *                              for one without work
 *     void store(u, row, n, a, b)     results of weight rows n .. n + 3 and the row
 *                              that td_unit_row() gives, with NW = 2 of both matrices; n,
 *                              a multiple of 4, may lie outside */
template <int TYPE, int PLANES, int NW, typename WORK>
TD_DEVICE void wide_run(const WORK &work)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) {
            td_barrier_init(td_ring_full(i), GROUP / WARP);
            td_barrier_init(td_ring_empty(i), 2 * GROUP / WARP);
        }
    }
    __syncthreads();
    td_wait();
    if (threadIdx.x < GROUP) {
        asm volatile(
            "setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)FEEDER_REGISTERS));
        td_feed_run<TYPE, PLANES, NW>(work);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)OTHER_REGISTERS));
        td_wide_multiply<TYPE, PLANES, NW>(work);
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
    td_start(c, kernel, dim3((unsigned)c->processors), WIDE_THREADS, td_wide_bytes(),
             args...);
}

#endif

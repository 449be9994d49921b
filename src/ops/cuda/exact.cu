/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact products of many rows with BF16 weights of few columns (router, gates), on GPUs
 * whose tensor cores are fed by warpgroups (sm_90a), in the order of sums of tile.cuh.
 *
 * Here activations are the tensor cores' first operand: a lane reads f32 numbers as they
 * lie and makes three planes of them in registers. All weights pass through shared memory
 * once for each 64 rows; `exact_image` lays them out beforehand so that a slot, 64 of k of
 * all columns, is one piece of memory, which the copy engine brings.
 *
 * A block has a warpgroup that asks for slots and two that multiply. These share 64 rows
 * and have N columns each (SPLIT), or share N columns and have 64 rows each.
 */
#include "ops/cuda/exact.cuh"
#include "ops/cuda/panels.cuh"

enum {
    EXACT_GROUPS = 2,
    EXACT_ROWS = 64, /* of a warpgroup */
    EXACT_SLOTS = 4,
    EXACT_WIDE = 136, /* columns of a warpgroup that splits, and of one that does not */
    EXACT_NARROW = 64,
    ROW_BYTES = SLICE * 2, /* of a column in a slot */
    ASK_REGISTERS = 24,
    MULTIPLY_REGISTERS = 240,
    PLANES = 3
};

struct exact {
    const float *x;
    uint4 *image;
    int64_t x_stride;
    int32_t rows, slots, columns; /* columns: of the image */
    int32_t count;
    struct {
        const uint16_t *w;
        float *y;
        int64_t y_stride;
        int32_t n;
    } term[TD_LINEAR_MAX];
};

/* Columns of the image for n. */
static int32_t image_columns(int64_t n)
{
    const int32_t whole = EXACT_GROUPS * EXACT_WIDE;
    return n <= EXACT_NARROW ? EXACT_NARROW
                             : (int32_t)((n + whole - 1) / whole) * whole;
}

size_t td_cuda_exact_bytes(const struct td_reserve *r)
{
    int64_t most = TD_MAX((int64_t)r->experts + 1, 2 * (int64_t)r->n_v);
    return (size_t)(image_columns(most) * td_cuda_pitch(r->hidden)) * sizeof(uint16_t);
}

/* ---- weights ---- */

/* A thread for each piece of 16 bytes of the image: half h of a step of a column, whose
 * words four lanes hold side by side (see td_k_of()). Rows of a slot are columns of the
 * product, swizzled. */
static __global__ void __launch_bounds__(256) exact_image(const struct exact p)
{
    int32_t at = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    int32_t piece = at % 8, slot = at / 8 % p.slots, column = at / 8 / p.slots;
    int32_t n = column, i = 0;
    uint4 v = {0, 0, 0, 0};
    while (i < p.count && n >= p.term[i].n)
        n -= p.term[i++].n;
    if (i < p.count && column < p.columns) {
        const uint32_t *w =
            (const uint32_t *)(p.term[i].w + ((int64_t)n * p.slots + slot) * SLICE) +
            piece / 4 * 16 + piece % 4;
        v = make_uint4(w[0], w[4], w[8], w[12]);
    }
    td_wait();
    if (column < p.columns)
        p.image[((int64_t)slot * p.columns + column) * 8 + (piece ^ (column & 7))] = v;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- the instructions ---- */

#define TD_D4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TD_D16(d, i) TD_D4(d, i), TD_D4(d, i + 4), TD_D4(d, i + 8), TD_D4(d, i + 12)
#define TD_IN(a, b, adds)                                                              \
    "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b), "r"(adds)
#define TD_MMA(n, sums, a, b, adds)                                                    \
    "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " adds ", 0;\n\t"                            \
    "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" sums "}, {" a "}, " b  \
    ", p, 1, 1, 0;\n\t}"
#define TD_S32                                                                         \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"   \
    "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TD_S68                                                                         \
    TD_S32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49," \
           "%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67"

/* d[64 x 2 R] = a[64 x 16] b[16 x 2 R] + (adds ? d : 0). */
TD_DEVICE void exact_mma(float (&d)[32], const uint32_t *a, uint64_t b, int adds)
{
    asm volatile(TD_MMA("64", TD_S32, "%32,%33,%34,%35", "%36", "%37")
                 : TD_D16(d, 0), TD_D16(d, 16)
                 : TD_IN(a, b, adds));
}

TD_DEVICE void exact_mma(float (&d)[68], const uint32_t *a, uint64_t b, int adds)
{
    asm volatile(TD_MMA("136", TD_S68, "%68,%69,%70,%71", "%72", "%73")
                 : TD_D16(d, 0), TD_D16(d, 16), TD_D16(d, 32), TD_D16(d, 48),
                   TD_D4(d, 64)
                 : TD_IN(a, b, adds));
}

#undef TD_D4
#undef TD_D16
#undef TD_IN
#undef TD_MMA
#undef TD_S32
#undef TD_S68

/* ---- rows ---- */

/* A lane's numbers of two steps: of each of its two rows eight side by side. */
struct exact_pair {
    float4 v[2][2];
};

TD_DEVICE void load_pair(exact_pair &p, const float *const (&x)[2], int pair)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            p.v[r][i] = __ldg((const float4 *)(x[r] + 32 * pair + 4 * i));
}

/* Two numbers as a word of each plane. */
TD_DEVICE void split(float x, float y, uint32_t (&a)[PLANES][4], int at)
{
#pragma unroll
    for (int p = 0; p < PLANES; p++) {
        a[p][at] = td_to_bf16x2(x, y);
        x -= __uint_as_float(a[p][at] << 16);
        y -= __uint_as_float(a[p][at] & 0xffff0000);
    }
}

TD_DEVICE void split_step(const exact_pair &p, int step, uint32_t (&a)[PLANES][4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        split(p.v[r][step].x, p.v[r][step].y, a, r);
        split(p.v[r][step].z, p.v[r][step].w, a, r + 2);
    }
}

/* Totals of columns first .. first + 2 R of rows row and row + 8. */
template <int R>
TD_DEVICE void store_totals(const struct exact &p, int32_t first, int32_t row,
                            const float (&total)[R])
{
    int32_t base = 0, c = (int32_t)threadIdx.x % 4;
    for (int t = 0; t < p.count; t++) {
        float *y = p.term[t].y;
        int64_t stride = p.term[t].y_stride;
#pragma unroll
        for (int i = 0; i < R; i++) {
            int32_t n = first + i / 4 * 8 + 2 * c + i % 2 - base;
            int32_t r = row + i % 4 / 2 * 8;
            if (n >= 0 && n < p.term[t].n && r < p.rows)
                y[r * stride + n] = total[i];
        }
        base += p.term[t].n;
    }
}

/* Shared memory: slots, then barriers. */
template <int BYTES> TD_DEVICE uint32_t full_at(uint32_t memory, int slot)
{
    return memory + EXACT_SLOTS * BYTES + 8 * (uint32_t)slot;
}

template <int BYTES> TD_DEVICE uint32_t empty_at(uint32_t memory, int slot)
{
    return full_at<BYTES>(memory, slot) + 8 * EXACT_SLOTS;
}

template <int BYTES>
TD_DEVICE void ask_slots(const struct exact &p, int32_t column0, uint32_t memory)
{
    const uint8_t *from = (const uint8_t *)p.image + (int64_t)column0 * ROW_BYTES;
    for (int32_t i = 0; i < p.slots; i++) {
        int slot = i % EXACT_SLOTS;
        td_barrier_wait(empty_at<BYTES>(memory, slot),
                        (uint32_t)(i / EXACT_SLOTS & 1) ^ 1);
        td_barrier_expect(full_at<BYTES>(memory, slot), BYTES);
        td_bulk_copy(memory + (uint32_t)slot * BYTES,
                     from + (int64_t)i * p.columns * ROW_BYTES, BYTES,
                     full_at<BYTES>(memory, slot));
    }
}

/* What a warpgroup has in hand: numbers of two pairs of steps, and planes of two steps. */
template <int R> struct exact_hands {
    exact_pair x[2];
    uint32_t a[2][PLANES][4];
    float sum[R], total[R];
};

/* Pair `pair` of a block's four, number `at` of all; the pairs behind are on their way.
 * `memory` is where the group's columns of slot 0 are. */
template <int BYTES, int R>
TD_DEVICE void multiply_pair(exact_hands<R> &h, const float *const (&x)[2], int pair,
                             int32_t at, int32_t pairs, uint32_t memory,
                             uint32_t barriers)
{
    int32_t i = at / 2, slot = i % EXACT_SLOTS;
#pragma unroll
    for (int step = 0; step < 2; step++) {
        split_step(h.x[pair % 2], step, h.a[step]);
        if (step == 1 && at + 2 < pairs)
            load_pair(h.x[pair % 2], x, at + 2);
        if (pair + step == 0 && at > 0) {
            td_group_wait<0>();
            td_settle(h.sum);
#pragma unroll
            for (int j = 0; j < R; j++)
                h.total[j] += h.sum[j];
        }
        if (pair % 2 + step == 0)
            td_barrier_wait(full_at<BYTES>(barriers, slot),
                            (uint32_t)(i / EXACT_SLOTS & 1));
        uint64_t b = td_slot_descriptor(td_uniform(
            memory + (uint32_t)slot * BYTES + (uint32_t)(pair % 2 * 64 + step * 32)));
        td_settle(h.sum);
        td_group_fence();
#pragma unroll
        for (int q = 0; q < PLANES; q++)
            exact_mma(h.sum, h.a[step][q], b, pair + step + q != 0);
        td_group_commit();
        td_group_wait<1>();
        if (pair % 2 + step == 0 && at > 0 && threadIdx.x % WARP == 0)
            td_barrier_arrive(empty_at<BYTES>(barriers, (i - 1) % EXACT_SLOTS));
    }
}

/* Group 0 or 1; `memory` is the block's slots. */
template <int N, bool SPLIT>
TD_DEVICE void multiply(const struct exact &p, int32_t group, uint32_t memory)
{
    const int COLUMNS = (SPLIT ? EXACT_GROUPS : 1) * N, BYTES = COLUMNS * ROW_BYTES;
    const int R = N / 2;
    int32_t warp = (int32_t)threadIdx.x / WARP % 4, lane = (int32_t)threadIdx.x % WARP;
    int32_t tile =
        SPLIT ? (int32_t)blockIdx.x : (int32_t)blockIdx.x * EXACT_GROUPS + group;
    int32_t row = tile * EXACT_ROWS + warp * 16 + lane / 4, pairs = 2 * p.slots;
    int32_t column = SPLIT ? group * N : 0;
    uint32_t own = memory + (uint32_t)(column * ROW_BYTES);
    const float *x[2];
    exact_hands<R> h;
#pragma unroll
    for (int i = 0; i < 2; i++)
        x[i] = p.x + min(row + 8 * i, p.rows - 1) * p.x_stride + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < R; i++)
        h.sum[i] = h.total[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < 2; i++)
        load_pair(h.x[i], x, i);
    for (int32_t at = 0; at < pairs; at += 4)
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply_pair<BYTES>(h, x, i, at + i, pairs, own, memory);
    td_group_wait<0>();
    td_settle(h.sum);
#pragma unroll
    for (int i = 0; i < R; i++)
        h.total[i] += h.sum[i];
    store_totals(p, (int32_t)blockIdx.y * COLUMNS + column, row, h.total);
}

template <int N, bool SPLIT> TD_DEVICE void exact_run(const struct exact &p)
{
    const int COLUMNS = (SPLIT ? EXACT_GROUPS : 1) * N, BYTES = COLUMNS * ROW_BYTES;
    extern __shared__ __align__(SLOT_ALIGN) unsigned char slots[];
    uint32_t memory = td_shared_at(slots);
    if (threadIdx.x < EXACT_SLOTS) {
        td_barrier_init(full_at<BYTES>(memory, (int)threadIdx.x), 1);
        td_barrier_init(empty_at<BYTES>(memory, (int)threadIdx.x),
                        EXACT_GROUPS * GROUP / WARP);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    td_wait();
    if (threadIdx.x < GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)ASK_REGISTERS));
        if (threadIdx.x == 0)
            ask_slots<BYTES>(p, (int32_t)blockIdx.y * COLUMNS, memory);
    } else {
        asm volatile(
            "setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)MULTIPLY_REGISTERS));
        multiply<N, SPLIT>(p, (int32_t)threadIdx.x / GROUP - 1, memory);
    }
}

#else

template <int N, bool SPLIT> TD_DEVICE void exact_run(const struct exact &)
{
}

#endif

template <int N, bool SPLIT>
static __global__ void TD_WIDE_BOUNDS exact_rows(const __grid_constant__ struct exact p)
{
    exact_run<N, SPLIT>(p);
}

/* ---- launches ---- */

static constexpr size_t exact_shared_bytes(int columns)
{
    return EXACT_SLOTS * ((size_t)columns * ROW_BYTES + 2 * sizeof(uint64_t));
}

/* Whether term t of k elements a row is one for exact_rows(). */
static bool takes(const struct td_linear_args::td_linear_term &t, int64_t k)
{
    return t.exact && t.w->type == TD_MAT_BF16 && k % KB == 0;
}

/* Whether rows can be read as they lie. */
static bool readable(const struct td_cuda_ctx *c, const struct td_linear_args *a)
{
    return c->warpgroups && a->rows > TD_CUDA_SMALL_ROWS && a->x_stride % 4 == 0 &&
           (uintptr_t)a->x % 16 == 0;
}

static void start(const struct td_cuda_ctx *c, const struct exact &p)
{
    unsigned pieces = (unsigned)(p.columns * p.slots * 8);
    unsigned tiles = (unsigned)((p.rows + EXACT_ROWS - 1) / EXACT_ROWS);
    td_start(c, exact_image, dim3((pieces + 255) / 256), 256, 0, p);
    if (p.columns == EXACT_NARROW)
        td_start(c, exact_rows<EXACT_NARROW, false>,
                 dim3((tiles + EXACT_GROUPS - 1) / EXACT_GROUPS), WIDE_THREADS,
                 exact_shared_bytes(EXACT_NARROW), p);
    else
        td_start(c, exact_rows<EXACT_WIDE, true>,
                 dim3(tiles, (unsigned)(p.columns / (EXACT_GROUPS * EXACT_WIDE))),
                 WIDE_THREADS, exact_shared_bytes(EXACT_GROUPS * EXACT_WIDE), p);
}

uint32_t td_exact_rows(const struct td_cuda_ctx *c, const struct td_linear_args *a)
{
    const int64_t k = a->term[0].w->k;
    struct exact p = {};
    uint32_t done = 0;
    int64_t n = 0;
    for (int i = 0; i < a->count && readable(c, a); i++) {
        const auto &t = a->term[i];
        if (!takes(t, k))
            continue;
        p.term[p.count].w = (const uint16_t *)t.w->data;
        p.term[p.count].y = t.y;
        p.term[p.count].y_stride = t.y_stride;
        p.term[p.count++].n = (int32_t)t.w->n;
        n += t.w->n;
        done |= 1u << i;
    }
    p.columns = image_columns(n);
    if (n == 0 ||
        (size_t)(p.columns * k) * sizeof(uint16_t) > td_cuda_exact_bytes(&c->limits))
        return 0;
    p.x = a->x;
    p.image = (uint4 *)c->image;
    p.x_stride = a->x_stride;
    p.rows = a->rows;
    p.slots = (int32_t)(k / SLICE);
    start(c, p);
    return done;
}

extern "C" void td_cuda_prepare_exact(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (!c->warpgroups)
        return;
    (void)cudaFuncSetAttribute(exact_rows<EXACT_NARROW, false>, bytes,
                               (int)exact_shared_bytes(EXACT_NARROW));
    (void)cudaFuncSetAttribute(exact_rows<EXACT_WIDE, true>, bytes,
                               (int)exact_shared_bytes(EXACT_GROUPS * EXACT_WIDE));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of prompts on GPUs whose tensor cores are fed by warpgroups (sm_90a), in the
 * order of attend.cu: blocks of the cache from position 0 on, maximum and sum running
 * along, so that a row's bits follow from its own context alone. What a row does not
 * attend to adds zeros to its sums, exactly.
 *
 * A block has 128 rows of a prompt and a head. One warpgroup, the feeder, brings blocks of
 * keys and values into a ring of slots in shared memory; two others have 64 rows each.
 * Such a warpgroup asks for the scores of one block of keys and for the values of the
 * block before, and makes the weights of the former while the tensor cores are busy with
 * the latter.
 *
 * Queries, keys and values lie in panels (panels.cuh).
 */
#include "ops/cuda/attend.cuh"
#include "ops/cuda/panels.cuh"

enum {
    T = TD_KV_BLOCK,
    ROWS = 64, /* of a warpgroup */
    GROUPS = 2,
    RING = 4, /* keys, values, keys, values */
    FEED_AHEAD = 2,
    FEED_REGISTERS = 40,
    WORK_REGISTERS = 232
};

template <int D> struct wide_shared {
    uint16_t ring[RING][T * D], q[GROUPS][ROWS * D];
    uint64_t full[RING], empty[RING];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- feeder ---- */

/* Asks for a block of keys or values; rows behind `count` become zeros. */
template <int D>
TD_DEVICE void feed_block(const uint16_t *from, int32_t count, uint16_t *to)
{
    const int pieces = D / 8; /* of a row */
    int at = (int)threadIdx.x % pieces * 8, r0 = (int)threadIdx.x / pieces;
#pragma unroll
    for (int i = 0; i < T * pieces / GROUP; i++) {
        int r = r0 + i * (GROUP / pieces);
        td_copy16(to + td_panel_at(r, at), from + r * D + at, r < count);
    }
}

/* The slots' contents are there for the instructions. */
TD_DEVICE void feed_done(uint64_t *full)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        td_barrier_arrive(td_shared_at(full));
}

template <int D>
TD_DEVICE void feed(const struct td_attend &a, const struct td_batch &b, int32_t seq,
                    int32_t kv_head, int32_t len, struct wide_shared<D> &s)
{
    int32_t blocks = (len + T - 1) / T;
    const int32_t *table = b.blocks + (int64_t)seq * b.max_blocks;
    int32_t number = table[0], items = 0;
    for (int32_t j = 0; j < blocks; j++) {
        int64_t from = ((int64_t)number * a.n_kv + kv_head) * T * D;
        number = table[min(j + 1, blocks - 1)];
#pragma unroll
        for (int h = 0; h < 2; h++, items++) {
            int slot = j % 2 * 2 + h;
            td_barrier_wait(td_shared_at(&s.empty[slot]), (uint32_t)(j / 2 & 1) ^ 1);
            feed_block<D>((h ? a.v : a.k) + from, len - j * T, s.ring[slot]);
            td_copy_commit();
            if (items >= FEED_AHEAD) {
                td_copy_wait<FEED_AHEAD>();
                feed_done(&s.full[(items - FEED_AHEAD) % RING]);
            }
        }
    }
    td_copy_wait<0>();
    for (int i = FEED_AHEAD; i > 0; i--)
        feed_done(&s.full[(items - i) % RING]);
}

/* ---- rows ---- */

TD_DEVICE float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A lane's two rows: pos[h] is where row h stands; sum is the lane's share. */
struct lane_rows {
    int32_t pos[2];
    float top[2], sum[2], rescale[2];
};

/* Scores become weights; rescale is for what was added up so far. `factor` is the scale
 * and turns powers of e into powers of two. */
TD_DEVICE void weights_of(float (&s)[32], int32_t t0, bool masks, float factor,
                          struct lane_rows &r)
{
    int c = (int)threadIdx.x % 4;
    if (masks)
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (t0 + 8 * (i / 4) + 2 * c + i % 2 > r.pos[i % 4 / 2])
                s[i] = -INFINITY;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = r.top[h], more = 0.0f;
#pragma unroll
        for (int i = 0; i < 16; i++)
            most = fmaxf(most, s[i / 2 * 4 + 2 * h + i % 2]);
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
        r.rescale[h] = exp2_of((r.top[h] - most) * factor);
        r.top[h] = most;
        most *= factor;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float &x = s[i / 2 * 4 + 2 * h + i % 2];
            x = exp2_of(fmaf(x, factor, -most));
            more += x;
        }
        r.sum[h] = fmaf(r.sum[h], r.rescale[h], more);
    }
}

/* What follows does not begin before x is known, a number that is not negative. Else the
 * compiler lets the warp wait first and compute then. */
TD_DEVICE void not_before(float x)
{
    asm volatile("{\n\t.reg .pred never;\n\tsetp.lt.f32 never, %0, 0f00000000;\n\t"
                 "@never nanosleep.u32 1;\n\t}" ::"f"(x)
                 : "memory");
}

/* What was added up so far becomes relative to the new maximum; mostly it is the old one
 * for all of a warp's rows. */
template <int D> TD_DEVICE void rescale(const struct lane_rows &r, float (&out)[D / 2])
{
    if (__any_sync(0xffffffff, r.rescale[0] != 1.0f || r.rescale[1] != 1.0f))
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            out[i] *= r.rescale[i % 4 / 2];
}

/* The weights as operands of T / 16 steps. */
TD_DEVICE void weight_words(const float (&s)[32], uint32_t (&p)[16])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        p[i] = td_to_bf16x2(s[2 * i], s[2 * i + 1]);
}

/* The group's queries into shared memory, n of them; zeros behind. */
template <int D>
TD_DEVICE void load_queries(const struct td_attend &a, int64_t row0, int32_t head,
                            int32_t n, uint16_t *q)
{
    for (int i = (int)threadIdx.x % GROUP; i < ROWS * D / 4; i += GROUP) {
        int r = i / (D / 4), at = i % (D / 4) * 4;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r < n)
            x = *(const float4 *)&a.qg[((row0 + r) * a.n_heads + head) * 2 * D + at];
        *(uint2 *)(q + td_panel_at(r, at)) =
            make_uint2(td_to_bf16x2(x.x, x.y), td_to_bf16x2(x.z, x.w));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Two lanes side by side hold two elements each of two rows: the even one stores four of
 * the first row, the odd one four of the second. */
template <int D>
TD_DEVICE void store_rows(const struct td_attend &a, int64_t row0, int32_t head,
                          int32_t n, const struct lane_rows &r,
                          const float (&out)[D / 2])
{
    int thread = (int)threadIdx.x % GROUP, lane = thread % WARP, odd = lane % 2;
    int row = thread / WARP * 16 + lane / 4 + 8 * odd;
    int64_t at = (row0 + row) * a.n_heads + head;
    const float *gate = a.qg + at * 2 * D + D;
    float lo = 1.0f / r.sum[0], hi = 1.0f / r.sum[1];
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        const float *o = out + 4 * i;
        float4 v = make_float4(o[0] * lo, o[1] * lo, o[2] * hi, o[3] * hi);
        float x = __shfl_xor_sync(0xffffffff, odd ? v.x : v.z, 1);
        float y = __shfl_xor_sync(0xffffffff, odd ? v.y : v.w, 1);
        v = odd ? make_float4(x, y, v.z, v.w) : make_float4(v.x, v.y, x, y);
        if (row >= n)
            continue;
        int d = 8 * i + lane % 4 / 2 * 4;
        float4 g = *(const float4 *)&gate[d];
        v = make_float4(v.x * td_sigmoid(g.x), v.y * td_sigmoid(g.y),
                        v.z * td_sigmoid(g.z), v.w * td_sigmoid(g.w));
        if (!a.only_planes)
            *(float4 *)&a.y[at * D + d] = v;
        td_planes_store4(v, a.planes, row0 + row, head * D + d);
    }
}

/* What a warpgroup does with the ring. */
template <int D> struct walk {
    struct wide_shared<D> &s;
    uint32_t q;

    TD_DEVICE_MEMBER void wait(int32_t j, int h) const
    {
        td_barrier_wait(td_shared_at(&s.full[j % 2 * 2 + h]), (uint32_t)(j / 2 & 1));
    }

    TD_DEVICE_MEMBER void release(int32_t j, int h) const
    {
        if (threadIdx.x % WARP == 0)
            td_barrier_arrive(td_shared_at(&s.empty[j % 2 * 2 + h]));
    }

    /* Asks for the scores of block j. */
    TD_DEVICE_MEMBER void scores(int32_t j, float (&to)[32]) const
    {
        wait(j, 0);
        uint64_t x = td_panel_descriptor(q);
        uint64_t y = td_panel_descriptor(td_shared_at(s.ring[j % 2 * 2]));
        td_settle(to);
        td_group_fence();
#pragma unroll
        for (int step = 0; step < D / 16; step++)
            td_panel_mma(to, td_panel_step(x, step), td_panel_step(y, step), step != 0);
        td_group_commit();
    }

    /* Asks for the sums of the values of block j. */
    TD_DEVICE_MEMBER void values(int32_t j, const uint32_t (&p)[16],
                                 float (&out)[D / 2]) const
    {
        wait(j, 1);
        uint64_t y = td_panel_descriptor(td_shared_at(s.ring[j % 2 * 2 + 1]));
        td_settle(out);
        td_group_fence();
#pragma unroll
        for (int step = 0; step < T / 16; step++)
            td_panel_mma_rows(out, p + 4 * step, td_panel_rows(y, step));
        td_group_commit();
    }
};

/* n rows from row0 on, of which the last attends to the tokens before `len`. */
template <int D>
TD_DEVICE void work(const struct td_attend &a, const struct td_batch &b, int64_t row0,
                    int32_t n, int32_t head, int32_t blocks, struct wide_shared<D> &s)
{
    int group = (int)threadIdx.x / GROUP - 1;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x % GROUP / WARP;
    const struct walk<D> w = {
        s, td_shared_at(s.q[group])
    };
    const float factor = a.scale * 1.4426950408889634f;
    int32_t own = n > 0 ? b.pos[row0 + n - 1] / T + 1 : 0, r0 = warp * 16 + lane / 4;
    struct lane_rows r = {{0, 0}, {-INFINITY, -INFINITY}, {0.0f, 0.0f}, {0.0f, 0.0f}};
    float out[D / 2], x[32];
    uint32_t p[16];
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        out[i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) /* rows that are not there are not stored */
        if (r0 + 8 * h < n)
            r.pos[h] = b.pos[row0 + r0 + 8 * h];
    if (own > 0) {
        int32_t first = b.pos[row0];
        load_queries<D>(a, row0, head, n, s.q[group]);
        td_group_sync(group + 1);
        w.scores(0, x);
        td_group_wait<0>();
        td_settle(x);
        w.release(0, 0);
        weights_of(x, 0, first < T - 1, factor, r);
        weight_words(x, p);
        for (int32_t j = 1; j < own; j++) {
            w.scores(j, x);
            w.values(j - 1, p, out);
            td_group_wait<1>();
            td_settle(x);
            w.release(j, 0);
            weights_of(x, j * T, first < j * T + T - 1, factor, r);
            not_before(r.sum[0] + r.sum[1]);
            td_group_wait<0>();
            td_settle(out);
            w.release(j - 1, 1);
            rescale<D>(r, out);
            weight_words(x, p);
        }
        w.values(own - 1, p, out);
        td_group_wait<0>();
        td_settle(out);
        w.release(own - 1, 1);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            r.sum[h] += __shfl_xor_sync(0xffffffff, r.sum[h], 1);
            r.sum[h] += __shfl_xor_sync(0xffffffff, r.sum[h], 2);
        }
        store_rows<D>(a, row0, head, n, r, out);
    }
    for (int32_t j = own; j < blocks; j++)
        for (int h = 0; h < 2; h++) {
            w.wait(j, h);
            w.release(j, h);
        }
}

template <int D>
TD_DEVICE void attend_rows(const struct td_attend &a, const struct td_batch &b)
{
    extern __shared__ __align__(SLOT_ALIGN) unsigned char memory[];
    struct wide_shared<D> &s = *(struct wide_shared<D> *)memory;
    int32_t head = (int32_t)blockIdx.x, kv_head = head / (a.n_heads / a.n_kv);
    int32_t seq, row0, n;
    if (threadIdx.x < RING) {
        td_barrier_init(td_shared_at(&s.full[threadIdx.x]), GROUP / WARP);
        td_barrier_init(td_shared_at(&s.empty[threadIdx.x]), GROUPS * GROUP / WARP);
    }
    __syncthreads();
    td_wait();
    /* the longest contexts first */
    if (!td_attend_rows(b, GROUPS * ROWS, (int32_t)(gridDim.y - 1 - blockIdx.y), &seq,
                        &row0, &n))
        return;
    int32_t len = b.pos[row0 + n - 1] + 1;
    if (threadIdx.x < GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)FEED_REGISTERS));
        feed<D>(a, b, seq, kv_head, len, s);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)WORK_REGISTERS));
        int32_t first = ((int32_t)threadIdx.x / GROUP - 1) * ROWS;
        work<D>(a, b, row0 + first, min(n - first, (int32_t)ROWS), head,
                (len + T - 1) / T, s);
    }
}

#else

template <int D>
TD_DEVICE void attend_rows(const struct td_attend &, const struct td_batch &)
{
}

#endif

template <int D>
static __global__ void TD_WIDE_BOUNDS attend_wide(const __grid_constant__ td_attend a,
                                                  const __grid_constant__ td_batch b)
{
    attend_rows<D>(a, b);
}

template <int D>
static void start(const struct td_cuda_ctx *c, const struct td_attend &a,
                  const struct td_batch *b)
{
    dim3 grid((unsigned)a.n_heads, td_attend_tiles(b, GROUPS * ROWS));
    td_start(c, attend_wide<D>, grid, WIDE_THREADS, sizeof(struct wide_shared<D>), a,
             *b);
}

void td_attend_wide(const struct td_cuda_ctx *c, const struct td_attend &a,
                    const struct td_batch *b, int32_t dim)
{
    if (dim == 256)
        start<256>(c, a, b);
    else if (dim == 128)
        start<128>(c, a, b);
    else
        start<64>(c, a, b);
}

template <int D> static void allow(void)
{
    (void)cudaFuncSetAttribute(attend_wide<D>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)sizeof(struct wide_shared<D>));
}

void td_attend_wide_prepare(const struct td_cuda_ctx *c)
{
    if (!c->warpgroups)
        return;
    allow<256>();
    allow<128>();
    allow<64>();
}

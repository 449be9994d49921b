/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixture of experts of few rows, which have few experts in common: each choice is
 * multiplied by itself, in two kernels.
 *
 *     inner_one   mid[choice] = silu(gate x) * up x, rounded; 8 of its numbers a block
 *     outer_join  16 outputs of a row a block: down mid of all its choices and of the
 *                 shared expert, weighed and added up
 *
 * Where all blocks are there at a time, both take the choice from the router's logits by
 * themselves, which is faster than to wait for a kernel that does. Sums are in the order
 * of experts.cu.
 */
#include "ops/cuda/planes.cuh"
#include "ops/cuda/route.cuh"
#include "ops/cuda/small.cuh"

enum {
    JOIN_WARPS = MANY_WARPS,
    GATE = 0,
    UP,
    DOWN,
    PER_SHIFT = 20 /* bits of a fixed-point number behind the point */
};

/* The chosen experts, or the shared one. */
struct side {
    const uint8_t *w[3]; /* of expert 0 */
    const float *scale[3];
    int64_t step[3], scale_step[3]; /* bytes and floats between experts */
    int64_t n;                      /* inner numbers */
    uint16_t *mid;                  /* [choices, or rows][blocks * KB] */
    int32_t blocks;                 /* of n; 0: there is no such expert */
};

struct few {
    struct side side[2];
    const uint16_t *x; /* [rows][blocks * KB] */
    const float *logits, *weight,
        *shared_gate; /* logits NULL: id and weight are there */
    const int32_t *id;
    float *y;
    int64_t hidden;
    int32_t rows, experts, k, blocks;
    int32_t ring, slots; /* of inner_one(), and of a warp of outer_join() */
    int32_t per_block;   /* 1 / side[0].blocks, fixed point, up: exact for units */
    bool adds;
};

TD_DEVICE const uint8_t *weights_of(const struct side &s, int which, int64_t expert)
{
    return s.w[which] + expert * s.step[which];
}

/* The scales of rows n0 and on, by k block of `blocks`; NULL for none. */
TD_DEVICE const float *scales_of(const struct side &s, int which, int32_t expert,
                                 int64_t n0, int32_t blocks)
{
    return s.scale[which] ? s.scale[which] + expert * s.scale_step[which] +
                                n0 / TD_SCALE_BLOCK * blocks
                          : NULL;
}

/* ---- gate and up ---- */

/* The expert of a choice, by way of shared memory. All threads must call it. */
TD_DEVICE int32_t expert_of(const struct few &f, int32_t choice, int32_t *expert)
{
    if (!f.logits)
        return f.id[choice];
    if (threadIdx.x < WARP) {
        int32_t row = choice / f.k, place = choice % f.k;
        int32_t id = td_choose_id<TD_ROUTE_HELD>(f.logits + (int64_t)row * f.experts,
                                                 f.experts, place + 1);
        if ((int32_t)threadIdx.x == place)
            *expert = id;
    }
    __syncthreads();
    return *expert;
}

/* The block's 8 rows of gate and the same of up. */
template <int TYPE>
TD_DEVICE td_small_in inner_rows(const struct few &f, const struct side &s,
                                 int32_t expert)
{
    int64_t n0 = (int64_t)blockIdx.x * (SMALL_M / 2), n = n0 + threadIdx.x % WARP / 4;
    int64_t at = n * f.blocks * KB * td_bytes_of<TYPE>();
    return td_small_in{n < s.n ? weights_of(s, GATE, expert) + at : NULL,
                       n < s.n ? weights_of(s, UP, expert) + at : NULL,
                       {scales_of(s, GATE, expert, n0, f.blocks),
                        scales_of(s, UP, expert, n0, f.blocks)},
                       f.blocks};
}

/* Blocks behind those of the choices are the shared expert's, whose weights are known
 * before. */
template <int TYPE, int W, bool AGAIN>
static __global__ void __launch_bounds__(W *WARP, td_one_blocks(W))
    inner_one(const __grid_constant__ struct few f)
{
    extern __shared__ uint4 shared[];
    int32_t choice = (int32_t)blockIdx.y, own = f.rows * f.k;
    bool is_shared = choice >= own;
    const struct side &s = f.side[is_shared];
    int64_t n = (int64_t)blockIdx.x * (SMALL_M / 2) + threadIdx.x;
    bool there = (int64_t)blockIdx.x * (SMALL_M / 2) < s.blocks * KB;
    int32_t t = (int32_t)threadIdx.x, row = is_shared ? choice - own : choice / f.k;
    const auto place = small_place<TYPE, W>(f.ring, f.blocks, shared, t);
    uint16_t *xs = (uint16_t *)place.parts;
    const uint16_t *x = f.x + (int64_t)row * f.blocks * KB;
    td_small_in in = {};
    if (is_shared) {
        in = inner_rows<TYPE>(f, s, 0);
        if (there)
            small_ask<TYPE, W>(in, place, t);
        td_wait();
        small_ask_x<W>(xs, f.blocks, x);
        td_copy_wait<0>();
    } else {
        td_wait();
        small_ask_x<W>(xs, f.blocks, x);
        int32_t *expert = (int32_t *)td_behind_x(place.parts, f.blocks);
        in = inner_rows<TYPE>(f, s, expert_of(f, choice, expert));
        if (there)
            small_ask<TYPE, W>(in, place, t);
    }
    if (!there)
        return;
    small_parts<TYPE, 1, W, AGAIN>(in, place, t % WARP < 4 ? xs : NULL, 0, place.parts,
                                   KB / 2, t);
    float gate = small_total<TYPE, W>(place, f.blocks, place.parts, KB / 2, t);
    float up = __shfl_xor_sync(0xffffffff, gate, 8);
    int64_t to = is_shared ? row : choice;
    if (t < 8)
        s.mid[to * s.blocks * KB + n] = td_to_bf16(td_silu(gate) * up);
}

/* ---- down ---- */

/* A row's choices. */
struct chosen {
    int32_t id[TD_CUDA_MAX_CHOICES];
    float weight[TD_CUDA_MAX_CHOICES];
};

/* Choices were made, or their logits written, before inner_one() let this kernel begin.
 * All threads must call it. */
TD_DEVICE void load_chosen(const struct few &f, int32_t row, struct chosen &s)
{
    int32_t lane = (int32_t)threadIdx.x;
    if (lane < WARP) {
        td_choice c = {0, 0.0f};
        if (f.logits)
            c = td_choose<TD_ROUTE_HELD>(f.logits + (int64_t)row * f.experts, f.experts,
                                         f.k);
        else if (lane < f.k)
            c = {f.id[row * f.k + lane], f.weight[row * f.k + lane]};
        s.id[lane] = c.id;
        s.weight[lane] = c.p;
    }
    __syncthreads();
}

/* What a lane asks for of unit u, a k block of a choice (number i of the row) or, behind
 * those, of the shared expert (i is k): all that is known before the choice is. */
struct unit {
    int32_t i, at, scale; /* bytes and floats from where the expert's begin */
};

template <int TYPE> TD_DEVICE int32_t unit_pitch(const struct few &f, bool own)
{
    return (own ? f.side[0].blocks : f.side[1].blocks) * KB * td_bytes_of<TYPE>();
}

template <int TYPE> TD_DEVICE unit unit_at(const struct few &f, int32_t u)
{
    int32_t n0 = (int32_t)blockIdx.x * SMALL_M, each = f.side[0].blocks;
    int32_t i = min(u * f.per_block >> PER_SHIFT, f.k), block = u - i * each;
    int32_t g = (int32_t)(threadIdx.x % WARP / 4);
    unit at = {
        i, (n0 + g) * unit_pitch<TYPE>(f, i < f.k) + block * KB * td_bytes_of<TYPE>(),
        n0 / TD_SCALE_BLOCK * (i < f.k ? each : f.side[1].blocks) + block};
    asm volatile("" : "+r"(at.i), "+r"(at.at), "+r"(at.scale)); /* not later */
    return at;
}

/* Asks for a unit's weights and scale. */
template <int TYPE>
TD_DEVICE void ask_unit(const struct few &f, const struct chosen &c, const unit &u,
                        uint4 *slot, float *scale)
{
    bool own = u.i < f.k;
    int64_t expert = own ? c.id[u.i] : 0;
    int32_t n = (int32_t)(blockIdx.x * SMALL_M + threadIdx.x % WARP / 4);
    const uint8_t *w =
        (own ? weights_of(f.side[0], DOWN, expert) : f.side[1].w[DOWN]) + u.at;
    const float *from = own ? f.side[0].scale[DOWN] : f.side[1].scale[DOWN];
    td_ask<TYPE>(slot, w, w + 8 * unit_pitch<TYPE>(f, own), n < f.hidden,
                 n + 8 < f.hidden);
    if (threadIdx.x % WARP == 0 && from)
        td_copy4(scale,
                 from + (own ? expert * f.side[0].scale_step[DOWN] : 0) + u.scale);
    else if (threadIdx.x % WARP == 0)
        *scale = 1.0f;
}

/* Brings the inner numbers of all units, each warp those that it multiplies. */
TD_DEVICE void load_mid(const struct few &f, int32_t row, int32_t units, uint16_t *xs)
{
    int32_t warp = (int32_t)threadIdx.x / WARP, lane = (int32_t)(threadIdx.x % WARP);
    int32_t of_experts = f.k * f.side[0].blocks;
    const uint16_t *own = f.side[0].mid + (int64_t)row * of_experts * KB + 8 * lane;
    const uint16_t *shared =
        f.side[1].mid + ((int64_t)row * f.side[1].blocks - of_experts) * KB + 8 * lane;
    for (int32_t u = warp; u < units; u += JOIN_WARPS)
        if (lane < KB / 8)
            td_copy16(xs + u * KB + 8 * lane, (u < of_experts ? own : shared) + u * KB,
                      true);
    td_copy_commit();
    td_copy_wait<0>();
    __syncwarp();
}

/* The sums of all units take the place of their inner numbers. */
template <int TYPE>
TD_DEVICE void unit_sums(const struct few &f, const struct chosen &c, int32_t units,
                         uint4 *slots, uint16_t *xs, float *scales)
{
    const int size = td_pieces<TYPE>() * WARP;
    int32_t warp = (int32_t)threadIdx.x / WARP, lane = (int32_t)threadIdx.x % WARP;
    for (int32_t u = warp, at = 0; u < units; u += JOIN_WARPS) {
        float sum[4], *to = (float *)(xs + u * KB) + lane / 4;
        int32_t then = u + f.slots * JOIN_WARPS;
        td_copy_wait_but(f.slots - 1);
        slot_block<TYPE, 1>(slots + at * size, lane < 4 ? xs : NULL, 0, u * KB, sum);
        if (then < units)
            ask_unit<TYPE>(f, c, unit_at<TYPE>(f, then), slots + at * size,
                           scales + then);
        td_copy_commit();
        at = at + 1 < f.slots ? at + 1 : 0;
        __syncwarp();
        if (lane % 4 == 0) {
            to[0] = sum[0];
            to[8] = sum[2];
        }
    }
    __syncthreads();
}

/* A thread for each choice and output adds up the k blocks, then one for each output the
 * choices; in threads 0 .. 15, which bring the shared expert's gate, the output. All
 * threads must call it. */
TD_DEVICE float join_sums(const struct few &f, const struct chosen &c, int32_t row,
                          const uint16_t *xs, const float *scales, float *totals,
                          float gate)
{
    int32_t thread = (int32_t)threadIdx.x, m = thread % SMALL_M;
    int32_t nets = f.k + (f.side[1].blocks != 0);
    const float *sum = (const float *)xs + m;
    float y = 0.0f;
    for (int32_t i = thread / SMALL_M; i < nets; i += JOIN_WARPS * WARP / SMALL_M) {
        int32_t first = i * f.side[0].blocks, n = f.side[i == f.k].blocks;
        float total = 0.0f;
#pragma unroll 4
        for (int32_t u = first; u < first + n; u++)
            total = fmaf(sum[u * KB / 2], scales[u], total);
        totals[i * SMALL_M + m] = td_round_bf16(total);
    }
    __syncthreads();
    if (thread >= SMALL_M)
        return y;
    for (int32_t i = 0; i < f.k; i++)
        y = fmaf(c.weight[i], totals[i * SMALL_M + m], y);
    if (f.side[1].blocks)
        y = fmaf(td_sigmoid(gate), totals[f.k * SMALL_M + m], y);
    return y;
}

/* Shared memory: slots, inner numbers of all units (then their sums), [units] scales,
 * [k + 1][16] totals. */
template <int TYPE>
static __global__ void __launch_bounds__(JOIN_WARPS *WARP, 2)
    outer_join(const __grid_constant__ struct few f)
{
    extern __shared__ uint4 shared[];
    __shared__ struct chosen c;
    const int size = td_pieces<TYPE>() * WARP;
    int32_t row = (int32_t)blockIdx.y, warp = (int32_t)threadIdx.x / WARP;
    int32_t units = f.k * f.side[0].blocks + f.side[1].blocks;
    int64_t n = (int64_t)blockIdx.x * SMALL_M + threadIdx.x;
    uint4 *slots = shared + warp * f.slots * size;
    uint16_t *xs = (uint16_t *)(shared + JOIN_WARPS * f.slots * size);
    float *scales = (float *)(xs + units * KB), *y = f.y + row * f.hidden + n;
    float before = 0.0f, gate = 0.0f;
    bool mine = threadIdx.x < SMALL_M && n < f.hidden;
    unit first[MOST_SLOTS];
#pragma unroll
    for (int32_t i = 0; i < MOST_SLOTS; i++)
        first[i] = unit_at<TYPE>(f, warp + i * JOIN_WARPS);
    load_chosen(f, row, c);
#pragma unroll
    for (int32_t i = 0; i < MOST_SLOTS; i++) {
        int32_t u = warp + i * JOIN_WARPS;
        if (i < f.slots && u < units)
            ask_unit<TYPE>(f, c, first[i], slots + i * size, scales + u);
        if (i < f.slots)
            td_copy_commit();
    }
    td_wait_early(f.rows);
    if (f.adds && mine)
        before = *y;
    if (mine && f.side[1].blocks) /* later it would queue behind the next kernel */
        gate = f.shared_gate[row];
    load_mid(f, row, units, xs);
    unit_sums<TYPE>(f, c, units, slots, xs, scales);
    float sum = join_sums(f, c, row, xs, scales, scales + units, gate);
    if (mine)
        *y = f.adds ? before + sum : sum;
}

/* ---- launches ---- */

/* Shared memory of outer_join() but for slots. */
static size_t join_bytes(const struct td_experts_args *a)
{
    int64_t shared = a->shared_down ? td_cuda_pitch(a->shared_down->k) / KB : 0;
    size_t units = (size_t)(a->k * td_cuda_pitch(a->down[0].k) / KB + shared);
    return units * (KB * sizeof(uint16_t) + sizeof(float)) +
           (size_t)(a->k + 1) * SMALL_M * sizeof(float);
}

static bool fits(const struct td_cuda_ctx *c, const struct td_experts_args *a)
{
    int type = a->gate[0].type;
    return c->numerics == TD_NUM_BF16 && a->rows <= TD_CUDA_FEW_ROWS &&
           type != TD_MAT_F32 && a->down[0].type == type &&
           (!a->shared_down ||
            (a->shared_down->type == type && a->shared_gate_proj->type == type)) &&
           join_bytes(a) + JOIN_WARPS * td_slot_bytes(type) + 2048 <=
               (size_t)c->shared_max;
}

static struct side side_of(const struct td_matrix *gate, const struct td_matrix *up,
                           const struct td_matrix *down, bool many, uint16_t *mid)
{
    struct side s = {};
    const struct td_matrix *of[] = {gate, up, down};
    for (int i = 0; i < 3; i++) {
        const struct td_matrix *m = of[i];
        s.w[i] = (const uint8_t *)m->data;
        s.scale[i] = m->scale;
        if (many)
            s.step[i] = (const char *)m[1].data - (const char *)m[0].data;
        if (many && m->scale)
            s.scale_step[i] = m[1].scale - m[0].scale;
    }
    s.n = gate->n;
    s.mid = mid;
    s.blocks = (int32_t)(td_cuda_pitch(gate->n) / KB);
    return s;
}

template <int TYPE> static void start_inner(const struct td_cuda_ctx *c, struct few &f)
{
    int32_t wide = TD_MAX(f.side[0].blocks, f.side[1].blocks) * KB;
    int32_t nets = f.rows * (f.k + (f.side[1].blocks != 0));
    dim3 grid((unsigned)wide / (SMALL_M / 2), (unsigned)nets);
    const struct td_one_launch l = {(int64_t)grid.x * grid.y, BLOCK_WARPS, f.blocks,
                                    TYPE, td_one_x(f.blocks)};
    size_t bytes;
    f.ring = td_one_plan(c, l, &bytes);
    if (td_one_again(l, f.ring))
        td_start(c, inner_one<TYPE, BLOCK_WARPS, true>, grid, BLOCK_THREADS, bytes, f);
    else
        td_start(c, inner_one<TYPE, BLOCK_WARPS, false>, grid, BLOCK_THREADS, bytes, f);
}

/* With as many slots as there is room for. */
template <int TYPE> static void start_join(const struct td_cuda_ctx *c, struct few &f)
{
    dim3 grid((unsigned)((f.hidden + SMALL_M - 1) / SMALL_M), (unsigned)f.rows);
    int32_t units = f.k * f.side[0].blocks + f.side[1].blocks;
    size_t at_once = grid.x * grid.y > (unsigned)c->processors ? 2 : 1;
    size_t slot = JOIN_WARPS * td_slot_bytes(TYPE);
    size_t bytes = (size_t)units * (KB * sizeof(uint16_t) + sizeof(float)) +
                   (size_t)(f.k + 1) * SMALL_M * sizeof(float) + slot;
    for (f.slots = 1; f.slots < MOST_SLOTS && f.slots * JOIN_WARPS < units &&
                      bytes + slot + 2048 <= (size_t)c->shared_max / at_once;
         f.slots++)
        bytes += slot;
    td_start(c, outer_join<TYPE>, grid, JOIN_WARPS * WARP, bytes, f);
}

template <int TYPE> static void start(const struct td_cuda_ctx *c, struct few &f)
{
    start_inner<TYPE>(c, f);
    start_join<TYPE>(c, f);
}

bool td_cuda_few(const struct td_cuda_ctx *c, const struct td_experts_args *a)
{
    int64_t hidden = a->down[0].n;
    int64_t wide =
        td_cuda_pitch(TD_MAX(a->gate[0].n, a->shared_down ? a->shared_up->n : 0));
    int64_t blocks = wide / (SMALL_M / 2) * a->rows * (a->k + (a->shared_down != NULL));
    bool many = a->experts > 1, once = blocks <= 5 * (int64_t)c->processors;
    bool chooses = once && a->experts <= WARP * TD_ROUTE_HELD;
    struct few f = {};
    if (!fits(c, a))
        return false;
    if (a->logits && !chooses) {
        const struct td_route_args route = {a->logits, a->id,      a->weight,
                                            a->rows,   a->experts, a->k};
        td_cuda_route(c, &route);
    }
    f.side[0] = side_of(a->gate, a->up, a->down, many, c->mid);
    if (a->shared_down)
        f.side[1] = side_of(a->shared_gate_proj, a->shared_up, a->shared_down, false,
                            c->mid + (int64_t)a->rows * a->k * f.side[0].blocks * KB);
    f.x = td_planes_make(c, a->x, hidden, a->rows, hidden, 1, false, TD_MAT_F8).first;
    f.logits = chooses ? a->logits : NULL;
    f.weight = a->weight;
    f.shared_gate = a->shared_gate;
    f.id = a->id;
    f.y = a->y;
    f.hidden = hidden;
    f.rows = a->rows;
    f.experts = a->experts;
    f.k = a->k;
    f.blocks = (int32_t)(td_cuda_pitch(hidden) / KB);
    f.per_block = ((1 << PER_SHIFT) + f.side[0].blocks - 1) / f.side[0].blocks;
    f.adds = a->adds;
    if (a->gate[0].type == TD_MAT_F8)
        start<TD_MAT_F8>(c, f);
    else
        start<TD_MAT_BF16>(c, f);
    return true;
}

template <int TYPE> static void allow(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    int most = c->shared_max - 2048; /* the rest is static */
    (void)cudaFuncSetAttribute(inner_one<TYPE, BLOCK_WARPS, false>, bytes, most);
    (void)cudaFuncSetAttribute(inner_one<TYPE, BLOCK_WARPS, true>, bytes, most);
    (void)cudaFuncSetAttribute(outer_join<TYPE>, bytes, most);
}

extern "C" void td_cuda_prepare_few(const struct td_cuda_ctx *c)
{
    allow<TD_MAT_F8>(c);
    allow<TD_MAT_BF16>(c);
}

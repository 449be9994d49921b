/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `scan` of chunks.cu for GPUs whose tensor cores are fed by warpgroups (sm_90a).
 *
 * A block is a warpgroup with TD_CHUNK_COLS columns of a head's state. It holds the state
 * transposed, in f32 as the instruction's sums, and multiplies from the left with
 * everything that it makes, from registers:
 *
 *     X^t = v^t - exp(G) (S^t k^t),  U^t = X^t T^t,  o^t = exp(G) (S^t q^t) + U^t M^t,
 *     S^t = exp(G_last) S^t + (exp(G_last - G) U^t) k
 *
 * What prepare() left, and the values, are brought by the copy engine, as they lie, a chunk
 * ahead. So the block's warps meet once a chunk, to free a stage.
 */
#include "ops/cuda/chunks.cuh"

enum {
    STAGES = 2,
    COLS = TD_CHUNK_COLS,
    PITCH = COLS + 4 /* floats of a row of values, apart by banks */
};

/* A chunk in shared memory. */
template <int DK> struct chunk_stage {
    uint16_t k[2 * C * DK], q[C * DK]; /* a key record */
    uint16_t squares[SQUARES];         /* a head record */
    float decay[C], rest[C];
    float v[C * PITCH];
    uint16_t align[SLOT_ALIGN / 4];
};

static_assert(sizeof(chunk_stage<128>) % SLOT_ALIGN == 0 &&
                  sizeof(chunk_stage<64>) % SLOT_ALIGN == 0,
              "panels begin at whole swizzles");

template <int DK> struct chunk_shared {
    chunk_stage<DK> stage[STAGES];
    uint64_t full[STAGES];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A matrix of 64 x 16 * N as operands of N steps: two planes, or rounded. */
template <int N> struct planes_of {
    uint32_t hi[N][4], lo[N][4];
};

/* Sums become operands. */
template <int N> TD_DEVICE void split(const float (&x)[8 * N], planes_of<N> &to)
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        uint32_t word = td_to_bf16x2(a, b);
        to.hi[i / 4][i % 4] = word;
        to.lo[i / 4][i % 4] = td_to_bf16x2(a - __uint_as_float(word << 16),
                                           b - __uint_as_float(word & 0xffff0000));
    }
}

/* What a block works on. */
struct walk {
    int32_t head, col0, row, end; /* rows of the piece that are left */
    int32_t chunk, last;          /* of the whole forward */
};

/* Asks for a chunk; a warp does. Of values there are those of the piece's rows. */
template <int DK>
TD_DEVICE void ask_chunk(const struct td_delta_args &a, const struct td_chunk_work &w,
                         const struct walk &p, int32_t ahead, chunk_stage<DK> &s,
                         uint64_t *full)
{
    const uint32_t key = (uint32_t)td_key_record(DK) * 2, row_bytes = COLS * 4;
    const uint32_t head = (uint32_t)td_head_record() * 2, at = td_shared_at(full);
    int32_t chunk = p.chunk + ahead, row = p.row + ahead * C;
    int32_t n = min(p.end - row, (int32_t)C);
    if (threadIdx.x == 0) {
        const int64_t key_at = (int64_t)chunk * a.n_k + p.head / (a.n_v / a.n_k);
        td_bulk_expect(at, key + head + (uint32_t)n * row_bytes);
        td_bulk_copy(td_shared_at(s.k), w.keys + key_at * td_key_record(DK), key, at);
        td_bulk_copy(td_shared_at(s.squares),
                     w.heads + ((int64_t)chunk * a.n_v + p.head) * td_head_record(),
                     head, at);
    }
    __syncwarp();
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += WARP)
        td_bulk_copy(td_shared_at(s.v + i * PITCH),
                     td_chunk_row(a, row + i) + 2 * a.n_k * DK + p.head * a.dv + p.col0,
                     row_bytes, at);
}

/* Column of the state and token of a lane's element i of a matrix [COLS][tokens]. */
TD_DEVICE int lane_col(int i)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    return 16 * warp + lane / 4 + i % 4 / 2 * 8;
}

TD_DEVICE int lane_token(int i)
{
    return i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
}

TD_DEVICE void store_outputs(const struct td_delta_args &a, const struct walk &p,
                             const float (&o)[32])
{
    float *to = a.y + ((int64_t)p.row * a.n_v + p.head) * a.dv + p.col0;
    int64_t pitch = (int64_t)a.n_v * a.dv;
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (p.row + lane_token(i) < p.end)
            to[lane_token(i) * pitch + lane_col(i)] = o[i];
}

/* One chunk: outputs to y, the state moves on. */
template <int DK>
TD_DEVICE void walk_chunk(const struct td_delta_args &a, const struct walk &p,
                          const chunk_stage<DK> &s, float (&S)[DK / 2])
{
    const int N = DK / 16, M = C / 16;
    const uint64_t k = td_panel_descriptor(td_shared_at(s.k));
    const uint64_t k_lo = td_panel_descriptor(td_shared_at(s.k + C * DK));
    const uint64_t q = td_panel_descriptor(td_shared_at(s.q));
    const uint64_t t = td_panel_descriptor(td_shared_at(s.squares));
    const uint64_t t_lo = td_panel_descriptor(td_shared_at(s.squares + SQUARE));
    const uint64_t m = td_panel_descriptor(td_shared_at(s.squares + 2 * SQUARE));
    float x[32], o[32], u[32];
    planes_of<M> f;
    {
        planes_of<N> state;
        split(S, state);
        td_group_fence();
#pragma unroll
        for (int i = 0; i < N; i++) {
            td_group_mma(x, state.hi[i], td_panel_step(k, i), i != 0);
            td_group_mma(x, state.hi[i], td_panel_step(k_lo, i), 1);
            td_group_mma(x, state.lo[i], td_panel_step(k, i), 1);
        }
        td_group_commit();
#pragma unroll
        for (int i = 0; i < N; i++)
            td_group_mma(o, state.hi[i], td_panel_step(q, i), i != 0);
        td_group_commit();
    }
    td_group_wait<1>();
    td_settle(x);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        float v = s.v[lane_token(i) * PITCH + lane_col(i)];
        x[i] = p.row + lane_token(i) < p.end ? fmaf(-s.decay[lane_token(i)], x[i], v)
                                             : 0.0f;
    }
    split(x, f);
    td_group_fence();
#pragma unroll
    for (int i = 0; i < M; i++) {
        td_group_mma(u, f.hi[i], td_panel_step(t, i), i != 0);
        td_group_mma(u, f.hi[i], td_panel_step(t_lo, i), 1);
        td_group_mma(u, f.lo[i], td_panel_step(t, i), 1);
    }
    td_group_commit();
#pragma unroll
    for (int i = 0; i < DK / 2; i++)
        S[i] *= s.decay[C - 1];
    td_group_wait<0>();
    td_settle(o);
    td_settle(u);
    uint32_t rounded[M][4];
#pragma unroll
    for (int i = 0; i < 16; i++)
        rounded[i / 4][i % 4] = td_to_bf16x2(u[2 * i], u[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        o[i] *= s.decay[lane_token(i)];
        u[i] *= s.rest[lane_token(i)];
    }
    split(u, f);
    td_settle(o);
    td_settle(S);
    td_group_fence();
#pragma unroll
    for (int i = 0; i < M; i++)
        td_group_mma(o, rounded[i], td_panel_step(m, i), 1);
    td_group_commit();
#pragma unroll
    for (int i = 0; i < M; i++) {
        td_panel_mma_rows(S, f.hi[i], td_panel_rows(k, i));
        td_panel_mma_rows(S, f.hi[i], td_panel_rows(k_lo, i));
        td_panel_mma_rows(S, f.lo[i], td_panel_rows(k, i));
    }
    td_group_commit();
    td_group_wait<1>();
    td_settle(o);
    store_outputs(a, p, o);
    td_group_wait<0>();
    td_settle(S);
}

/* A block for each piece, value head and COLS columns of its state. */
template <int DK>
TD_DEVICE void walk_chunks(const struct td_delta_args &a, const struct td_batch &b,
                           const struct td_chunk_work &w)
{
    extern __shared__ __align__(SLOT_ALIGN) unsigned char memory[];
    struct chunk_shared<DK> &s = *(struct chunk_shared<DK> *)memory;
    int32_t seq = b.n_decode + (int32_t)blockIdx.z;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            td_barrier_init(td_shared_at(&s.full[i]), 1);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    td_wait();
    int32_t first = b.row0[seq], end = b.row0[seq + 1];
    if (b.seq[first] < 0)
        return;
    struct walk p = {(int32_t)blockIdx.y,
                     (int32_t)blockIdx.x * COLS,
                     first,
                     end,
                     td_chunks_before(b, seq),
                     0};
    p.last = p.chunk + (end - first + C - 1) / C;
    if (threadIdx.x < WARP)
        for (int i = 0; i < STAGES && p.chunk + i < p.last; i++)
            ask_chunk<DK>(a, w, p, i, s.stage[i], &s.full[i]);
    float *state =
        a.state + ((int64_t)b.slot[seq] * a.n_v + p.head) * DK * a.dv + p.col0;
    bool have = b.pos[first] != 0;
    float S[DK / 2];
#pragma unroll
    for (int i = 0; i < DK / 2; i++)
        S[i] = have ? state[(int64_t)lane_token(i) * a.dv + lane_col(i)] : 0.0f;
    int at = 0;
    for (uint32_t turn = 0; p.chunk < p.last; p.chunk++, p.row += C) {
        td_barrier_wait(td_shared_at(&s.full[at]), turn);
        walk_chunk<DK>(a, p, s.stage[at], S);
        __syncthreads(); /* all are done with the stage */
        if (threadIdx.x < WARP && p.chunk + STAGES < p.last)
            ask_chunk<DK>(a, w, p, STAGES, s.stage[at], &s.full[at]);
        if (++at == STAGES) {
            at = 0;
            turn ^= 1;
        }
    }
#pragma unroll
    for (int i = 0; i < DK / 2; i++)
        state[(int64_t)lane_token(i) * a.dv + lane_col(i)] = S[i];
}

#else

template <int DK>
TD_DEVICE void walk_chunks(const struct td_delta_args &, const struct td_batch &,
                           const struct td_chunk_work &)
{
}

#endif

template <int DK>
static __global__ void __launch_bounds__(GROUP, 1)
    scan_wide(const __grid_constant__ td_delta_args a,
              const __grid_constant__ td_batch b, const struct td_chunk_work w)
{
    walk_chunks<DK>(a, b, w);
}

template <int DK>
static void start(const struct td_cuda_ctx *c, const struct td_delta_args &a,
                  const struct td_chunk_work &w)
{
    dim3 grid((unsigned)(a.dv / COLS), (unsigned)a.n_v, (unsigned)a.batch->n_prefill);
    td_start(c, scan_wide<DK>, grid, GROUP, sizeof(struct chunk_shared<DK>), a,
             *a.batch, w);
}

void td_chunks_wide(const struct td_cuda_ctx *c, const struct td_delta_args &a,
                    const struct td_chunk_work &w)
{
    if (a.dk == 128)
        start<128>(c, a, w);
    else
        start<64>(c, a, w);
}

template <int DK> static void allow(void)
{
    (void)cudaFuncSetAttribute(scan_wide<DK>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)sizeof(struct chunk_shared<DK>));
}

void td_chunks_wide_prepare(const struct td_cuda_ctx *c)
{
    if (!c->warpgroups)
        return;
    allow<128>();
    allow<64>();
}

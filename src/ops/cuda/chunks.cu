/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gated delta rule over prompts on tensor cores, in bf16 numerics, for key heads of 64
 * or 128 and value heads of whole COLS; see delta.cu for the rule and its symbols.
 *
 * All matrices but the state are held as two bf16 planes x = x0 + x1, and a product is
 * x0 y0 + x0 y1 + x1 y0: 16 bits of each factor. The state, sums, decays and the inverse
 * stay f32.
 *
 * `prepare` leaves for each chunk what does not depend on the state, laid out as shared
 * memory wants it, so that `scan` copies it as it is: for every key head the planes of k,
 * then of q [2][64][dk]; for every value head the planes of T, then of M [2][64][64], then
 * G [64].
 *
 * `scan` walks over the chunks of a piece with COLS columns of a head's state: in f32 in
 * the registers of the warps, 16 rows of the state each, and as planes in shared memory.
 * With RICH shared memory the next chunk is on its way while one is computed; without, T
 * and M take the place of q when that is done.
 */
#include "ops/cuda/planes.cuh"

enum {
    COLS = 32,
    C = TD_CHUNK,
    THREADS = 256,
    WARPS = THREADS / WARP,
    SQUARE = 2 * C * C, /* planes of T or M */
    PITCH = C + 1
};

struct work {
    uint16_t *keys;  /* [chunk][n_k][k, q][2][64][dk] */
    uint16_t *heads; /* [chunk][n_v] of SQUARE * 2 + 2 * C elements, G being f32 */
};

static __host__ __device__ int64_t key_record(int32_t dk)
{
    return (int64_t)4 * C * dk;
}

static __host__ __device__ int64_t head_record(void)
{
    return 2 * SQUARE + 2 * C;
}

/* Chunks of the forward at most. */
static int64_t most_chunks(const struct td_reserve *r)
{
    return r->max_rows / C + r->max_seqs;
}

size_t td_cuda_planes_of_chunks(const struct td_reserve *r)
{
    return sizeof(uint16_t) * (size_t)most_chunks(r) *
           (size_t)(r->n_k * key_record(r->dk) + r->n_v * head_record());
}

/* Element `at` of row r where rows are D elements, swizzled in pieces of 8. */
template <int D> TD_DEVICE int wide_at(int r, int at)
{
    return r * D + ((at / 8 ^ (r & 7)) * 8 + at % 8);
}

/* The same of rows of COLS elements. */
TD_DEVICE int cols_at(int r, int at)
{
    return r * COLS + ((at / 8 ^ (r >> 1 & 3)) * 8 + at % 8);
}

/* x, y side by side as two planes, `plane` elements apart. */
TD_DEVICE void store2(float x, float y, uint16_t *to, int plane)
{
    uint32_t first = td_to_bf16x2(x, y);
    *(uint32_t *)to = first;
    *(uint32_t *)(to + plane) = td_to_bf16x2(x - __uint_as_float(first << 16),
                                             y - __uint_as_float(first & 0xffff0000));
}

/* An operand of two planes and what three products of them add up to. */
struct operand {
    uint32_t r[2][4];
};

struct sums {
    float s[3][4];
};

TD_DEVICE void multiply(struct sums &to, const struct operand &a,
                        const struct operand &b, int n)
{
    td_mma(to.s[0], a.r[0], b.r[0][2 * n], b.r[0][2 * n + 1]);
    td_mma(to.s[1], a.r[0], b.r[1][2 * n], b.r[1][2 * n + 1]);
    td_mma(to.s[2], a.r[1], b.r[0][2 * n], b.r[0][2 * n + 1]);
}

TD_DEVICE float sum_of(const struct sums &x, int e)
{
    return x.s[0][e] + (x.s[1][e] + x.s[2][e]);
}

/* Rows m0 .. m0 + 16, columns k0 .. k0 + 16 of a matrix [2][64][D]. */
template <int D>
TD_DEVICE void load_a(struct operand &a, const uint16_t *x, int m0, int k0)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int p = 0; p < 2; p++)
        td_ldmatrix(a.r[p],
                    x + p * C * D + wide_at<D>(m0 + lane % 16, k0 + lane / 16 * 8));
}

/* The same of its transpose: m runs along the rows of D. */
template <int D>
TD_DEVICE void load_at(struct operand &a, const uint16_t *x, int m0, int k0)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int p = 0; p < 2; p++)
        td_ldmatrix_trans(a.r[p], x + p * C * D +
                                      wide_at<D>(k0 + lane / 16 * 8 + lane % 8,
                                                 m0 + lane / 8 % 2 * 8));
}

/* Rows k0 .. k0 + 16, columns n0 .. n0 + 16 of [2][rows][COLS]. */
TD_DEVICE void load_b(struct operand &b, const uint16_t *x, int rows, int k0, int n0)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int p = 0; p < 2; p++)
        td_ldmatrix_trans(b.r[p], x + p * rows * COLS +
                                      cols_at(k0 + lane % 16, n0 + lane / 16 * 8));
}

/* ---- what a row offers ---- */

TD_DEVICE const float *row_of(const struct td_delta_args &a, int64_t row)
{
    return a.c + row * (2 * (int64_t)a.n_k * a.dk + (int64_t)a.n_v * a.dv);
}

/* Chunks before piece `seq`. */
TD_DEVICE int32_t chunks_before(const struct td_batch &b, int32_t seq)
{
    int32_t n = 0;
    for (int32_t s = b.n_decode; s < seq; s++)
        n += (b.row0[s + 1] - b.row0[s] + C - 1) / C;
    return n;
}

/* ---- prepare ---- */

/* Memory of a block of prepare(). */
template <int DK> struct prepare_shared {
    uint16_t k[2 * C * DK], q[2 * C * DK]; /* as they go to work memory */
    float A[C * PITCH], T[C * PITCH];
    float G[C], beta[C];
};

/* Unit vectors of n rows as planes, zeros behind them; a warp a row. */
template <int DK>
TD_DEVICE void load_units(const struct td_delta_args &a, int32_t row, int32_t n,
                          int32_t key_head, struct prepare_shared<DK> &s)
{
    const int E = DK / WARP;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    for (int i = warp; i < C; i += WARPS) {
        const float *q = row_of(a, row + min(i, n - 1)) + key_head * DK;
        const float *k = q + (int64_t)a.n_k * DK;
        float qv[E], kv[E], qq = 0.0f, kk = 0.0f;
#pragma unroll
        for (int e = 0; e < E; e++) {
            qv[e] = i < n ? q[E * lane + e] : 0.0f;
            kv[e] = i < n ? k[E * lane + e] : 0.0f;
            qq = fmaf(qv[e], qv[e], qq);
            kk = fmaf(kv[e], kv[e], kk);
        }
        float fq = 1.0f / sqrtf(td_warp_sum(qq) + 1e-6f) / sqrtf((float)DK);
        float fk = 1.0f / sqrtf(td_warp_sum(kk) + 1e-6f);
#pragma unroll
        for (int e = 0; e < E; e += 2) {
            int at = wide_at<DK>(i, E * lane + e);
            store2(qv[e] * fq, qv[e + 1] * fq, s.q + at, C * DK);
            store2(kv[e] * fk, kv[e + 1] * fk, s.k + at, C * DK);
        }
    }
}

/* T = (I + A)^-1 for a strictly lower A, on and below the diagonal; four threads work on a
 * column, which depends on itself alone. Row col + r of the column is kept by the thread
 * whose part is r % 4. */
TD_DEVICE void invert(const float *A, float *T)
{
    int col = (int)threadIdx.x / 4, part = (int)threadIdx.x % 4;
    float own[C / 4] = {};
#pragma unroll
    for (int r = 0; r < C; r++) {
        const float *row = A + min(col + r, C - 1) * PITCH + col + part;
        float sum = 0.0f;
#pragma unroll
        for (int m = 0; 4 * m < r; m++)
            if (4 * m + part < r && col + r < C)
                sum = fmaf(row[4 * m], own[m], sum);
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        float t = (r == 0 ? 1.0f : 0.0f) - sum;
        own[r / 4] = r % 4 == part ? t : own[r / 4];
        if (part == 0 && col + r < C)
            T[(col + r) * PITCH + col] = t;
    }
}

/* A into shared memory, the planes of M to `to`. */
template <int DK>
TD_DEVICE void pair_products(struct prepare_shared<DK> &s, uint16_t *to)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int m0 = warp % 4 * 16, half = warp / 4 * 32, g = lane / 4, c = lane % 4;
    struct sums kk[4] = {}, qk[4] = {};
#pragma unroll 2
    for (int k0 = 0; k0 < DK; k0 += 16) {
        struct operand ka, qa;
        load_a<DK>(ka, s.k, m0, k0);
        load_a<DK>(qa, s.q, m0, k0);
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            struct operand kb; /* rows of k are columns of its transpose */
#pragma unroll
            for (int p = 0; p < 2; p++)
                td_ldmatrix(kb.r[p],
                            s.k + p * C * DK +
                                wide_at<DK>(half + 8 * n + lane / 16 * 8 + lane % 8,
                                            k0 + lane / 8 % 2 * 8));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                multiply(kk[n + i], ka, kb, i);
                multiply(qk[n + i], qa, kb, i);
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = m0 + g + 8 * h, j = half + 8 * n + 2 * c;
            float m[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float decay = j + e <= i ? expf(s.G[i] - s.G[j + e]) : 0.0f;
                s.A[i * PITCH + j + e] =
                    j + e < i ? s.beta[i] * sum_of(kk[n], 2 * h + e) * decay : 0.0f;
                m[e] = sum_of(qk[n], 2 * h + e) * decay;
            }
            store2(m[0], m[1], to + wide_at<C>(i, j), C * C);
        }
}

/* A block for each chunk and value head. */
template <int DK>
static __global__ void __launch_bounds__(THREADS, 2)
    prepare(const struct td_delta_args a, const struct td_batch b, const struct work w)
{
    extern __shared__ uint4 shared[];
    struct prepare_shared<DK> &s = *(struct prepare_shared<DK> *)shared;
    int32_t row, n, head = (int32_t)blockIdx.y, t = (int32_t)threadIdx.x;
    int32_t group = a.n_v / a.n_k, chunk = (int32_t)blockIdx.x;
    td_wait();
    if (!td_find_chunk(b, chunk, &row, &n))
        return;
    uint16_t *to = w.heads + ((int64_t)chunk * a.n_v + head) * head_record();
    load_units<DK>(a, row, n, head / group, s);
    if (t < C) {
        float x =
            t < n ? a.a[(int64_t)(row + t) * a.n_v + head] + a.dt_bias[head] : 0.0f;
        float log_decay = a.a_neg[head] * (x > 20.0f ? x : log1pf(expf(x)));
        s.G[t] = t < n ? log_decay : 0.0f;
        s.beta[t] = t < n ? td_sigmoid(a.b[(int64_t)(row + t) * a.n_v + head]) : 0.0f;
    }
    __syncthreads();
    if (t == 0)
        for (int i = 1; i < C; i++)
            s.G[i] += s.G[i - 1];
    __syncthreads();
    pair_products<DK>(s, to + SQUARE);
    __syncthreads();
    invert(s.A, s.T);
    __syncthreads();
    for (int i = 2 * t; i < C * C; i += 2 * THREADS) {
        int r = i / C, j = i % C;
        float x = j <= r ? s.T[r * PITCH + j] * s.beta[j] : 0.0f;
        float y = j + 1 <= r ? s.T[r * PITCH + j + 1] * s.beta[j + 1] : 0.0f;
        store2(x, y, to + wide_at<C>(r, j), C * C);
    }
    if (t < C)
        ((float *)(to + 2 * SQUARE))[t] = s.G[t];
    if (head % group)
        return;
    uint4 *keys =
        (uint4 *)(w.keys + ((int64_t)chunk * a.n_k + head / group) * key_record(DK));
    for (int i = t; i < 4 * C * DK / 8; i += THREADS)
        keys[i] = ((const uint4 *)s.k)[i]; /* q follows k */
}

/* ---- scan ---- */

/* Memory of a block. */
template <int DK, bool RICH> struct scan_shared {
    struct {
        uint16_t k[2 * C * DK], q[2 * C * DK];
        uint16_t
            TM[RICH ? 2 * SQUARE : 2 * SQUARE - 2 * C * DK + 8]; /* else from q on */
        float G[C];
    } stage[RICH ? 2 : 1];
    uint16_t S[2 * DK * COLS], X[2 * C * COLS], U[2 * C * COLS];
};

TD_DEVICE void copy(void *to, const void *from, int bytes)
{
    for (int i = 16 * (int)threadIdx.x; i < bytes; i += 16 * THREADS)
        td_copy16((char *)to + i, (const char *)from + i, true);
}

/* A warp's part of the state: rows 16 warp + g and + 8, all columns. */
struct state {
    float s[COLS / 8][4];
};

/* Where a lane's element of n-tile n lies in the state of a head. */
TD_DEVICE int64_t state_at(const struct td_delta_args &a, int n, int e)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    return (int64_t)(16 * warp + lane / 4 + 8 * (e / 2)) * a.dv + 8 * n +
           2 * (lane % 4) + e % 2;
}

template <int DK> TD_DEVICE void store_state(const struct state &st, uint16_t *S)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (warp < DK / 16)
                store2(
                    st.s[n][2 * h], st.s[n][2 * h + 1],
                    S + cols_at(16 * warp + lane / 4 + 8 * h, 8 * n + 2 * (lane % 4)),
                    DK * COLS);
}

/* S = exp(last) S + k^T U', U' in X. */
template <int DK>
TD_DEVICE void update_state(struct state &st, const uint16_t *k, const uint16_t *X,
                            float decay)
{
    int warp = (int)threadIdx.x / WARP;
    struct sums sum[COLS / 8] = {};
    if (warp >= DK / 16)
        return;
#pragma unroll
    for (int k0 = 0; k0 < C; k0 += 16) {
        struct operand ka;
        load_at<DK>(ka, k, 16 * warp, k0);
#pragma unroll
        for (int n = 0; n < COLS / 8; n += 2) {
            struct operand xb;
            load_b(xb, X, C, k0, 8 * n);
            multiply(sum[n], ka, xb, 0);
            multiply(sum[n + 1], ka, xb, 1);
        }
    }
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            st.s[n][e] = fmaf(st.s[n][e], decay, sum_of(sum[n], e));
}

/* out[2] += rows m0 .. m0 + 16 of [2][64][64] times columns n0 .. n0 + 16 of [2][64][COLS]. */
TD_DEVICE void square_product(struct sums (&out)[2], const uint16_t *square,
                              const uint16_t *x, int m0, int n0)
{
#pragma unroll
    for (int k0 = 0; k0 < C; k0 += 16) {
        struct operand a, b;
        load_a<C>(a, square, m0, k0);
        load_b(b, x, C, k0, n0);
        multiply(out[0], a, b, 0);
        multiply(out[1], a, b, 1);
    }
}

/* What a block works on. */
struct place {
    int32_t head, col0, chunk; /* chunk: of the whole forward */
    int32_t row, n;            /* first row and number of the chunk */
};

template <int DK, bool RICH>
TD_DEVICE void load_chunk(const struct td_delta_args &a, const struct work &w,
                          const struct place &p, int32_t chunk,
                          struct scan_shared<DK, RICH> &s)
{
    auto &stage = s.stage[RICH ? chunk % 2 : 0];
    const uint16_t *keys =
        w.keys + ((int64_t)chunk * a.n_k + p.head / (a.n_v / a.n_k)) * key_record(DK);
    const uint16_t *head = w.heads + ((int64_t)chunk * a.n_v + p.head) * head_record();
    copy(stage.k, keys, (int)(key_record(DK) * sizeof(uint16_t)));
    if (RICH)
        copy(stage.TM, head, (int)(2 * SQUARE * sizeof(uint16_t)));
    copy(stage.G, head + 2 * SQUARE, C * (int)sizeof(float));
    td_copy_commit();
}

/* One chunk: outputs to y, the state moves on. */
template <int DK, bool RICH>
TD_DEVICE void scan_chunk(const struct td_delta_args &a, const struct work &w,
                          const struct place &p, struct scan_shared<DK, RICH> &s,
                          struct state &st)
{
    auto &stage = s.stage[RICH ? p.chunk % 2 : 0];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int m0 = warp % 4 * 16, n0 = warp / 4 * 16, g = lane / 4, c = lane % 4;
    const uint16_t *T = RICH ? stage.TM : stage.q, *M = T + SQUARE;
    struct sums ks[2] = {}, qs[2] = {};
    float2 v[2][2]; /* half, n-tile */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = m0 + g + 8 * h;
            v[h][n] = make_float2(0.0f, 0.0f);
            if (i < p.n)
                v[h][n] =
                    *(const float2 *)(row_of(a, p.row + i) + 2 * a.n_k * DK +
                                      p.head * a.dv + p.col0 + n0 + 8 * n + 2 * c);
        }
#pragma unroll 2
    for (int k0 = 0; k0 < DK; k0 += 16) {
        struct operand ka, qa, sb;
        load_a<DK>(ka, stage.k, m0, k0);
        load_a<DK>(qa, stage.q, m0, k0);
        load_b(sb, s.S, DK, k0, n0);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            multiply(ks[n], ka, sb, n);
            multiply(qs[n], qa, sb, n);
        }
    }
    float G[2] = {stage.G[m0 + g], stage.G[m0 + g + 8]}, last = stage.G[p.n - 1];
    if (!RICH) {
        __syncthreads(); /* all are done with q */
        copy(stage.q, w.heads + ((int64_t)p.chunk * a.n_v + p.head) * head_record(),
             (int)(2 * SQUARE * sizeof(uint16_t)));
        td_copy_commit();
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = m0 + g + 8 * h;
            float decay = i < p.n ? expf(G[h]) : 0.0f;
            store2(v[h][n].x - decay * sum_of(ks[n], 2 * h),
                   v[h][n].y - decay * sum_of(ks[n], 2 * h + 1),
                   s.X + cols_at(i, n0 + 8 * n + 2 * c), C * COLS);
        }
    if (!RICH)
        td_copy_wait<0>();
    __syncthreads();
    struct sums u[2] = {}, mu[2] = {};
    square_product(u, T, s.X, m0, n0);
    __syncthreads(); /* all are done with X */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = m0 + g + 8 * h, at = cols_at(i, n0 + 8 * n + 2 * c);
            float rest = i < p.n ? expf(last - G[h]) : 0.0f;
            float x = sum_of(u[n], 2 * h), y = sum_of(u[n], 2 * h + 1);
            store2(x, y, s.U + at, C * COLS);
            store2(x * rest, y * rest, s.X + at, C * COLS);
        }
    __syncthreads();
    square_product(mu, M, s.U, m0, n0);
    update_state<DK>(st, stage.k, s.X, expf(last));
    store_state<DK>(st, s.S); /* not read until the next chunk */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = m0 + g + 8 * h;
            float decay = expf(G[h]);
            if (i < p.n)
                *(float2 *)(a.y + ((int64_t)(p.row + i) * a.n_v + p.head) * a.dv +
                            p.col0 + n0 + 8 * n + 2 * c) =
                    make_float2(fmaf(decay, sum_of(qs[n], 2 * h), sum_of(mu[n], 2 * h)),
                                fmaf(decay, sum_of(qs[n], 2 * h + 1),
                                     sum_of(mu[n], 2 * h + 1)));
        }
}

/* A block for each piece, value head and COLS columns of its state. */
template <int DK, bool RICH>
static __global__ void __launch_bounds__(THREADS, 1)
    scan(const struct td_delta_args a, const struct td_batch b, const struct work w)
{
    extern __shared__ uint4 shared[];
    struct scan_shared<DK, RICH> &s = *(struct scan_shared<DK, RICH> *)shared;
    int32_t seq = b.n_decode + (int32_t)blockIdx.z, warp = (int32_t)threadIdx.x / WARP;
    td_wait();
    int32_t first = b.row0[seq], end = b.row0[seq + 1];
    if (b.seq[first] < 0)
        return;
    struct place p = {(int32_t)blockIdx.y, (int32_t)blockIdx.x * COLS,
                      chunks_before(b, seq), first, 0};
    int32_t last = p.chunk + (end - first + C - 1) / C;
    float *state =
        a.state + ((int64_t)b.slot[seq] * a.n_v + p.head) * DK * a.dv + p.col0;
    bool have = b.pos[first] != 0 && warp < DK / 16;
    struct state st;
    if (RICH)
        load_chunk<DK, RICH>(a, w, p, p.chunk, s);
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            st.s[n][e] = have ? state[state_at(a, n, e)] : 0.0f;
    store_state<DK>(st, s.S);
    for (; p.chunk < last; p.chunk++, p.row += C) {
        p.n = min(end - p.row, (int32_t)C);
        if (RICH) {
            if (p.chunk + 1 < last)
                load_chunk<DK, RICH>(a, w, p, p.chunk + 1, s);
            else
                td_copy_commit();
            td_copy_wait<1>();
        } else {
            load_chunk<DK, RICH>(a, w, p, p.chunk, s);
            td_copy_wait<0>();
        }
        __syncthreads();
        scan_chunk<DK, RICH>(a, w, p, s, st);
        __syncthreads(); /* all are done with the chunk */
    }
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (warp < DK / 16)
                state[state_at(a, n, e)] = st.s[n][e];
}

/* ---- launches ---- */

template <int DK, bool RICH> static bool fits(const struct td_cuda_ctx *c)
{
    return sizeof(struct scan_shared<DK, RICH>) <= (size_t)c->shared_max &&
           sizeof(struct prepare_shared<DK>) <= (size_t)c->shared_max;
}

template <int DK>
static void run(const struct td_cuda_ctx *c, const struct td_delta_args *a)
{
    const struct td_batch *b = a->batch;
    int64_t most = (b->rows - b->n_decode) / C + b->n_prefill;
    struct work w = {(uint16_t *)c->chunks,
                     (uint16_t *)c->chunks + most * a->n_k * key_record(DK)};
    dim3 chunks((unsigned)most, (unsigned)a->n_v);
    dim3 pieces((unsigned)(a->dv / COLS), (unsigned)a->n_v, (unsigned)b->n_prefill);
    td_start(c, prepare<DK>, chunks, THREADS, sizeof(struct prepare_shared<DK>), *a, *b,
             w);
    if (fits<DK, true>(c))
        td_start(c, scan<DK, true>, pieces, THREADS,
                 sizeof(struct scan_shared<DK, true>), *a, *b, w);
    else
        td_start(c, scan<DK, false>, pieces, THREADS,
                 sizeof(struct scan_shared<DK, false>), *a, *b, w);
}

extern "C" bool td_cuda_chunks_fit(const struct td_cuda_ctx *c, int32_t dk, int32_t dv)
{
    return c->numerics == TD_NUM_BF16 && dv % COLS == 0 &&
           (dk == 128  ? fits<128, false>(c)
            : dk == 64 ? fits<64, false>(c)
                       : false);
}

extern "C" bool td_cuda_chunks(const struct td_cuda_ctx *c,
                               const struct td_delta_args *a)
{
    if (!td_cuda_chunks_fit(c, a->dk, a->dv) || (uintptr_t)a->c % 16 ||
        (uintptr_t)a->y % 16)
        return false;
    if (a->dk == 128)
        run<128>(c, a);
    else
        run<64>(c, a);
    return true;
}

template <int DK> static void allow(const struct td_cuda_ctx *c)
{
    const cudaFuncAttribute bytes = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (!fits<DK, false>(c))
        return;
    (void)cudaFuncSetAttribute(prepare<DK>, bytes,
                               (int)sizeof(struct prepare_shared<DK>));
    (void)cudaFuncSetAttribute(scan<DK, false>, bytes,
                               (int)sizeof(struct scan_shared<DK, false>));
    if (fits<DK, true>(c))
        (void)cudaFuncSetAttribute(scan<DK, true>, bytes,
                                   (int)sizeof(struct scan_shared<DK, true>));
}

extern "C" void td_cuda_prepare_chunks(const struct td_cuda_ctx *c)
{
    allow<128>(c);
    allow<64>(c);
}

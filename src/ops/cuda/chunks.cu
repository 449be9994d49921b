/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gated delta rule over prompts on tensor cores, in bf16 numerics, for key heads of 64
 * or 128 and value heads of whole COLS; see delta.cu for the rule and its symbols.
 *
 * What the state is made from is held as two bf16 planes x = x0 + x1, and a product is
 * x0 y0 + x0 y1 + x1 y0: 16 bits of each factor. What only outputs are made from, q and M,
 * is rounded. The state, sums, decays and the inverse stay f32.
 *
 * `prepare` leaves for each chunk what does not depend on the state, laid out as shared
 * memory wants it, so that `scan` copies it as it is: for every key head the planes of k
 * [2][64][dk], then q [64][dk]; for every value head the planes of T [2][64][64], then M
 * [64][64], exp(G) and exp(G_last - G) [64]. Matrices lie in panels (panels.cuh).
 *
 * `scan` walks over the chunks of a piece with COLS columns of a head's state: in f32 in
 * the registers of the warps, 16 rows of the state each, and as planes in shared memory.
 * With RICH shared memory the next chunk is on its way while one is computed; without, T
 * and M take the place of q when that is done.
 */
#include "ops/cuda/panels.cuh"
#include "ops/cuda/planes.cuh"

enum {
    COLS = 32,
    THREADS = 256,
    WARPS = THREADS / WARP,
    C = TD_CHUNK,
    SQUARE = C * C,
    SQUARES = 3 * SQUARE, /* planes of T, then M */
    PITCH = C + 4,
    HEADS = 4 /* of which a block of prepare() makes decays at a time */
};

struct work {
    uint16_t *keys;  /* [chunk][n_k][k, k, q][64][dk] */
    uint16_t *heads; /* [chunk][n_v] of SQUARES + 4 * C elements, the last 2 * C f32 */
};

static __host__ __device__ int64_t key_record(int32_t dk)
{
    return (int64_t)3 * C * dk;
}

static __host__ __device__ int64_t head_record(void)
{
    return SQUARES + 4 * C;
}

/* q, k and v of a row. */
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

/* Element `at` of row r where rows are COLS elements, swizzled in pieces of 8. */
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

/* The same where both are rounded. */
TD_DEVICE void multiply_rounded(float (&to)[4], const uint32_t (&a)[4],
                                const struct operand &b, int n)
{
    td_mma(to, a, b.r[0][2 * n], b.r[0][2 * n + 1]);
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
                    x + p * C * D + td_panel_at(m0 + lane % 16, k0 + lane / 16 * 8));
}

/* The same of a matrix [64][D]. */
TD_DEVICE void load_rounded(uint32_t (&a)[4], const uint16_t *x, int m0, int k0)
{
    int lane = (int)threadIdx.x % WARP;
    td_ldmatrix(a, x + td_panel_at(m0 + lane % 16, k0 + lane / 16 * 8));
}

/* The same as load_a() of its transpose: m runs along the rows of D. */
template <int D>
TD_DEVICE void load_at(struct operand &a, const uint16_t *x, int m0, int k0)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int p = 0; p < 2; p++)
        td_ldmatrix_trans(a.r[p], x + p * C * D +
                                      td_panel_at(k0 + lane / 16 * 8 + lane % 8,
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

/* ---- prepare ---- */

/* A lane's share of a row of a key head, as it is loaded. */
template <bool FOUR> struct pick {
    typedef float2 type;
};

template <> struct pick<true> {
    typedef float4 type;
};

/* What a value head needs: T and M as they go to work memory, and A. */
struct prepare_head {
    uint16_t squares[SQUARES];
    float A[C * PITCH];
};

/* Memory of a block of prepare(). The second of two heads takes the place of keys and
 * queries when their products are made. */
template <int DK> struct prepare_shared {
    union {
        struct {
            uint16_t k[2 * C * DK], q[C * DK]; /* as they go to work memory */
        };
        struct prepare_head second;
    };
    struct prepare_head first;
    float G[HEADS][C], beta[HEADS][C];
};

/* Unit vectors of n rows, zeros behind them; a warp a row. */
template <int DK>
TD_DEVICE void load_units(const struct td_delta_args &a, int32_t row, int32_t n,
                          int32_t key_head, struct prepare_shared<DK> &s)
{
    const int E = DK / WARP, EACH = C / WARPS;
    using numbers = typename pick<E == 4>::type;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    union {
        numbers v;
        float x[E];
    } q[EACH], k[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const float *from =
            row_of(a, row + min(warp + j * WARPS, n - 1)) + key_head * DK;
        q[j].v = ((const numbers *)from)[lane];
        k[j].v = ((const numbers *)(from + (int64_t)a.n_k * DK))[lane];
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int i = warp + j * WARPS, at = td_panel_at(i, E * lane);
        float qq = 0.0f, kk = 0.0f;
#pragma unroll
        for (int e = 0; e < E; e++) {
            qq = fmaf(q[j].x[e], q[j].x[e], qq);
            kk = fmaf(k[j].x[e], k[j].x[e], kk);
        }
        float fq =
            i < n ? 1.0f / sqrtf(td_warp_sum(qq) + 1e-6f) / sqrtf((float)DK) : 0.0f;
        float fk = i < n ? 1.0f / sqrtf(td_warp_sum(kk) + 1e-6f) : 0.0f;
#pragma unroll
        for (int e = 0; e < E; e += 2) {
            *(uint32_t *)(s.q + at + e) =
                td_to_bf16x2(q[j].x[e] * fq, q[j].x[e + 1] * fq);
            store2(k[j].x[e] * fk, k[j].x[e + 1] * fk, s.k + at + e, C * DK);
        }
    }
}

/* A lane's gates of two rows. */
struct gates {
    float a[2], b[2];
};

/* Those of `warp` heads behind `head`; a warp has one of up to HEADS heads. */
TD_DEVICE struct gates load_gates(const struct td_delta_args &a, int32_t row, int32_t n,
                                  int32_t head, int32_t heads)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    struct gates g = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = lane + WARP * h;
        int64_t at = (int64_t)(row + i) * a.n_v + head + warp;
        g.a[h] = warp < heads && i < n ? a.a[at] : 0.0f;
        g.b[h] = warp < heads && i < n ? a.b[at] : 0.0f;
    }
    return g;
}

/* G and beta of up to HEADS heads from `head` on; zeros behind n rows. */
template <int DK>
TD_DEVICE void store_decays(const struct td_delta_args &a, const struct gates &g,
                            int32_t n, int32_t head, int32_t heads,
                            struct prepare_shared<DK> &s)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    if (warp >= heads)
        return;
    float sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = lane + WARP * h;
        float x = g.a[h] + a.dt_bias[head + warp];
        float log_decay = a.a_neg[head + warp] * (x > 20.0f ? x : log1pf(expf(x)));
        sum[h] = i < n ? log_decay : 0.0f;
        s.beta[warp][i] = i < n ? td_sigmoid(g.b[h]) : 0.0f;
    }
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        float lo = __shfl_up_sync(0xffffffff, sum[0], d);
        float hi = __shfl_up_sync(0xffffffff, sum[1], d);
        sum[0] += lane >= d ? lo : 0.0f;
        sum[1] += lane >= d ? hi : 0.0f;
    }
    s.G[warp][lane] = sum[0];
    s.G[warp][lane + WARP] = __shfl_sync(0xffffffff, sum[0], WARP - 1) + sum[1];
}

/* Planes of T = (I + A)^-1 diag(beta) for a strictly lower A; two threads work on a column,
 * which depends on itself alone, 2 C on a head. Row 8 m + 4 p + e of it is kept by part p,
 * as own[4 m + e]. */
TD_DEVICE void invert(struct prepare_head &h, const float *beta, int thread)
{
    int col = thread / 2, part = thread % 2;
    float own[C / 2] = {}, b = beta[col];
#pragma unroll
    for (int i = 0; i < C; i++) {
        float sum[4] = {};
#pragma unroll
        for (int m = 0; 8 * m < i; m++) {
            float4 row = *(const float4 *)(h.A + i * PITCH + 8 * m + 4 * part);
            sum[0] = fmaf(row.x, own[4 * m], sum[0]);
            sum[1] = fmaf(row.y, own[4 * m + 1], sum[1]);
            sum[2] = fmaf(row.z, own[4 * m + 2], sum[2]);
            sum[3] = fmaf(row.w, own[4 * m + 3], sum[3]);
        }
        float all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        all += __shfl_xor_sync(0xffffffff, all, 1);
        float t = (i == col ? 1.0f : 0.0f) - all;
        float &mine = own[i / 8 * 4 + i % 4];
        mine = i / 4 % 2 == part ? t : mine;
    }
#pragma unroll
    for (int i = 0; i < C / 2; i++) {
        float x = own[i] * b;
        uint16_t *to = h.squares + td_panel_at(i / 4 * 8 + 4 * part + i % 4, col);
        uint16_t rounded = td_to_bf16(x);
        to[0] = rounded;
        to[SQUARE] = td_to_bf16(x - td_from_bf16(rounded));
    }
}

/* A warp's 16 x 32 of k k^T and q k^T. */
struct pairs {
    float kk[4][4], qk[4][4];
};

/* Where a lane's element e of n-tile n is. */
TD_DEVICE void pair_place(int n, int e, int *i, int *j)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    *i = warp % 4 * 16 + lane / 4 + 8 * (e / 2);
    *j = warp / 4 * 32 + 8 * n + 2 * (lane % 4) + e % 2;
}

template <int DK>
TD_DEVICE void pair_products(const struct prepare_shared<DK> &s, struct pairs &p)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int m0 = warp % 4 * 16, half = warp / 4 * 32;
    struct sums kk[4] = {};
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            p.qk[n][e] = 0.0f;
#pragma unroll 2
    for (int k0 = 0; k0 < DK; k0 += 16) {
        struct operand ka;
        uint32_t qa[4];
        load_a<DK>(ka, s.k, m0, k0);
        load_rounded(qa, s.q, m0, k0);
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            struct operand kb; /* rows of k are columns of its transpose */
#pragma unroll
            for (int plane = 0; plane < 2; plane++)
                td_ldmatrix(kb.r[plane],
                            s.k + plane * C * DK +
                                td_panel_at(half + 8 * n + lane / 16 * 8 + lane % 8,
                                            k0 + lane / 8 % 2 * 8));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                multiply(kk[n + i], ka, kb, i);
                multiply_rounded(p.qk[n + i], qa, kb, i);
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            p.kk[n][e] = sum_of(kk[n], e);
}

/* A and M of a head. */
TD_DEVICE void weigh_pairs(const struct pairs &p, const float *G, const float *beta,
                           struct prepare_head &head)
{
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i, j;
            float x[2], m[2];
            pair_place(n, 2 * h, &i, &j);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float decay = j + e <= i ? __expf(G[i] - G[j + e]) : 0.0f;
                x[e] = j + e < i ? beta[i] * p.kk[n][2 * h + e] * decay : 0.0f;
                m[e] = p.qk[n][2 * h + e] * decay;
            }
            *(float2 *)(head.A + i * PITCH + j) = make_float2(x[0], x[1]);
            *(uint32_t *)(head.squares + 2 * SQUARE + td_panel_at(i, j)) =
                td_to_bf16x2(m[0], m[1]);
        }
}

/* 16 bytes a thread, as many as there are. */
TD_DEVICE void write_out(void *to, const void *from, int bytes)
{
    for (int i = (int)threadIdx.x; i < bytes / 16; i += THREADS)
        ((uint4 *)to)[i] = ((const uint4 *)from)[i];
}

TD_DEVICE void store_head(const struct work &w, int64_t record,
                          const struct prepare_head &h, const float *G)
{
    uint16_t *to = w.heads + record * head_record();
    int t = (int)threadIdx.x;
    write_out(to, h.squares, SQUARES * (int)sizeof(uint16_t));
    if (t < 2 * C)
        ((float *)(to + SQUARES))[t] = expf(t < C ? G[t] : G[C - 1] - G[t - C]);
}

/* A block for each chunk and key head: pairs of keys are the same for all value heads that
 * share it. */
template <int DK>
static __global__ void __launch_bounds__(THREADS, 2)
    prepare(const struct td_delta_args a, const struct td_batch b, const struct work w)
{
    extern __shared__ uint4 shared[];
    struct prepare_shared<DK> &s = *(struct prepare_shared<DK> *)shared;
    int32_t row, n, key_head = (int32_t)blockIdx.y, t = (int32_t)threadIdx.x;
    int32_t group = a.n_v / a.n_k, chunk = (int32_t)blockIdx.x;
    struct pairs p;
    td_wait();
    if (!td_find_chunk(b, chunk, &row, &n))
        return;
    int32_t heads = min(group, (int32_t)HEADS);
    struct gates g = load_gates(a, row, n, key_head * group, heads);
    load_units<DK>(a, row, n, key_head, s);
    store_decays<DK>(a, g, n, key_head * group, heads, s);
    __syncthreads();
    write_out(w.keys + ((int64_t)chunk * a.n_k + key_head) * key_record(DK), s.k,
              (int)(key_record(DK) * sizeof(uint16_t))); /* q follows k */
    pair_products<DK>(s, p);
    for (int32_t i = 0; i < group; i += 2) {
        int32_t at = i % HEADS, head = key_head * group + i;
        bool two = i + 1 < group;
        __syncthreads(); /* keys, or the heads before, are done with */
        if (at == 0 && i > 0) {
            heads = min(group - i, (int32_t)HEADS);
            g = load_gates(a, row, n, head, heads);
            store_decays<DK>(a, g, n, head, heads, s);
            __syncthreads();
        }
        weigh_pairs(p, s.G[at], s.beta[at], s.first);
        if (two)
            weigh_pairs(p, s.G[at + 1], s.beta[at + 1], s.second);
        __syncthreads();
        if (t < 2 * C)
            invert(s.first, s.beta[at], t);
        else if (two)
            invert(s.second, s.beta[at + 1], t - 2 * C);
        __syncthreads();
        store_head(w, (int64_t)chunk * a.n_v + head, s.first, s.G[at]);
        if (two)
            store_head(w, (int64_t)chunk * a.n_v + head + 1, s.second, s.G[at + 1]);
    }
}

/* ---- scan ---- */

/* Memory of a block. */
template <int DK, bool RICH> struct scan_shared {
    struct {
        uint16_t k[2 * C * DK], q[C * DK];
        uint16_t TM[RICH ? SQUARES : SQUARES - C * DK + 8]; /* else from q on */
        float decay[C], rest[C];
    } stage[RICH ? 2 : 1];
    uint16_t S[2 * DK * COLS], X[2 * C * COLS], U[C * COLS];
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
        copy(stage.TM, head, (int)(SQUARES * sizeof(uint16_t)));
    copy(stage.decay, head + SQUARES, 2 * C * (int)sizeof(float)); /* and rest */
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
    const uint16_t *T = RICH ? stage.TM : stage.q, *M = T + 2 * SQUARE;
    struct sums ks[2] = {};
    float qs[2][4] = {};
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
        struct operand ka, sb;
        uint32_t qa[4];
        load_a<DK>(ka, stage.k, m0, k0);
        load_rounded(qa, stage.q, m0, k0);
        load_b(sb, s.S, DK, k0, n0);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            multiply(ks[n], ka, sb, n);
            multiply_rounded(qs[n], qa, sb, n);
        }
    }
    if (!RICH) {
        __syncthreads(); /* all are done with q */
        copy(stage.q, w.heads + ((int64_t)p.chunk * a.n_v + p.head) * head_record(),
             (int)(SQUARES * sizeof(uint16_t)));
        td_copy_commit();
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = m0 + g + 8 * h;
            float decay = stage.decay[i];
            store2(v[h][n].x - decay * sum_of(ks[n], 2 * h),
                   v[h][n].y - decay * sum_of(ks[n], 2 * h + 1),
                   s.X + cols_at(i, n0 + 8 * n + 2 * c), C * COLS);
        }
    if (!RICH)
        td_copy_wait<0>();
    __syncthreads();
    struct sums u[2] = {};
    float mu[2][4] = {};
#pragma unroll
    for (int k0 = 0; k0 < C; k0 += 16) {
        struct operand ta, xb;
        load_a<C>(ta, T, m0, k0);
        load_b(xb, s.X, C, k0, n0);
        multiply(u[0], ta, xb, 0);
        multiply(u[1], ta, xb, 1);
    }
    __syncthreads(); /* all are done with X */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = m0 + g + 8 * h, at = cols_at(i, n0 + 8 * n + 2 * c);
            float rest = stage.rest[i];
            float x = sum_of(u[n], 2 * h), y = sum_of(u[n], 2 * h + 1);
            *(uint32_t *)(s.U + at) = td_to_bf16x2(x, y);
            store2(x * rest, y * rest, s.X + at, C * COLS);
        }
    __syncthreads();
#pragma unroll
    for (int k0 = 0; k0 < C; k0 += 16) {
        uint32_t ma[4], ub[4];
        load_rounded(ma, M, m0, k0);
        td_ldmatrix_trans(ub, s.U + cols_at(k0 + lane % 16, n0 + lane / 16 * 8));
        td_mma(mu[0], ma, ub[0], ub[1]);
        td_mma(mu[1], ma, ub[2], ub[3]);
    }
    update_state<DK>(st, stage.k, s.X, stage.decay[C - 1]);
    store_state<DK>(st, s.S); /* not read until the next chunk */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int i = m0 + g + 8 * h;
            float decay = stage.decay[i];
            if (i < p.n)
                *(float2 *)(a.y + ((int64_t)(p.row + i) * a.n_v + p.head) * a.dv +
                            p.col0 + n0 + 8 * n + 2 * c) =
                    make_float2(fmaf(decay, qs[n][2 * h], mu[n][2 * h]),
                                fmaf(decay, qs[n][2 * h + 1], mu[n][2 * h + 1]));
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
    dim3 chunks((unsigned)most, (unsigned)a->n_k);
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

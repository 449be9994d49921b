/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated DeltaNet: the causal convolution and the gated delta rule.
 *
 * Generated rows: a block takes COLS columns of a head's state into registers, a warp
 * every eighth row of it, and passes over them twice.
 *
 * Prompts that chunks.cu does not take, with the symbols of ops/ref/delta.c. What does not depend on the state is made
 * for all chunks at once (`prepare`): unit vectors q and k, G, and the two matrices
 *
 *     T = (I + A)^-1 diag(beta),  M_ij = (q_i . k_j) exp(G_i - G_j) for j <= i
 *
 * Then a block walks over the chunks of a piece with COLS columns of a head's state in
 * shared memory (`scan`):
 *
 *     X = v - exp(G) k S,  U = T X,  o = exp(G) q S + M U,
 *     S = exp(G_last) S + sum_j exp(G_last - G_j) k_j (x) U_j
 *
 * chunks: q, k [rows][n_k][dk], T, M [rows][n_v][TD_CHUNK], G [rows][n_v].
 */
#include "ops/cuda/device.cuh"

enum {
    CONV_THREADS = 256,
    CONV_MOST = TD_CUDA_MAX_CONV,
    CONV_USUAL = 4, /* width */
    CONV_STRIP = 16,
    DELTA_THREADS = 256,
    DELTA_WARPS = DELTA_THREADS / WARP,
    COLS = 32,
    SQUARE = TD_CHUNK * TD_CHUNK
};

/* ---- convolution ---- */

/* u of `back` rows before row `first + at` of a sequence, from its state if need be. */
TD_DEVICE float conv_input(const struct td_conv_args &a, const struct td_batch &b,
                           const float *state, int32_t first, int32_t at, int32_t ch)
{
    if (at >= 0)
        return a.u[(int64_t)(first + at) * a.channels + ch];
    return b.pos[first] == 0 ? 0.0f
                             : state[(int64_t)(a.width - 1 + at) * a.channels + ch];
}

/* Generated rows: y, and the state moves on. */
static __global__ void __launch_bounds__(CONV_THREADS)
    conv_step(const struct td_conv_args a, const struct td_batch b)
{
    int32_t row = (int32_t)blockIdx.x, keep = a.width - 1;
    int32_t ch = (int32_t)blockIdx.y * CONV_THREADS + (int32_t)threadIdx.x;
    bool valid = ch < a.channels && b.seq[row] >= 0;
    float *state = a.state + (int64_t)b.slot[row] * keep * a.channels + ch;
    float window[CONV_MOST] = {}, w[CONV_MOST] = {}, sum = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < CONV_MOST; i++)
        if (i < a.width && valid)
            w[i] = a.w[(int64_t)ch * a.width + i];
#pragma unroll
    for (int32_t i = 0; i < CONV_MOST; i++)
        if (i < keep && valid && b.pos[row] != 0)
            window[i] = state[(int64_t)i * a.channels];
    td_wait();
    if (!valid)
        return;
    float u = a.u[(int64_t)row * a.channels + ch];
#pragma unroll
    for (int32_t i = 0; i < CONV_MOST; i++)
        if (i < a.width)
            sum = fmaf(w[i], i == keep ? u : window[i], sum);
    a.y[(int64_t)row * a.channels + ch] = td_silu(sum);
#pragma unroll
    for (int32_t i = 0; i < CONV_MOST; i++)
        if (i < keep)
            state[(int64_t)i * a.channels] =
                i + 1 == keep ? u : window[i + 1 < CONV_MOST ? i + 1 : i];
}

/* V channels side by side. */
template <int V> struct channels_of;

template <> struct channels_of<1> {
    typedef float type;
};

template <> struct channels_of<2> {
    typedef float2 type;
};

TD_DEVICE float each(const float &x, int)
{
    return x;
}

TD_DEVICE float each(const float2 &x, int i)
{
    return i ? x.y : x.x;
}

/* y of CONV_STRIP rows of one sequence, V channels. W: the width, or the most. */
template <int V, int W>
TD_DEVICE void conv_strip(const struct td_conv_args &a, const struct td_batch &b,
                          int32_t row0, int32_t ch)
{
    using some = typename channels_of<V>::type;
    const int32_t width = W < CONV_MOST ? W : a.width, keep = width - 1;
    int32_t seq = b.seq[row0], first = b.row0[seq];
    const float *state = a.state + (int64_t)b.slot[seq] * keep * a.channels;
    /* the oldest in front, behind what is not used */
    float u[V][W - 1 + CONV_STRIP], w[V][W];
    some x[CONV_STRIP];
#pragma unroll
    for (int32_t i = 0; i < CONV_STRIP; i++)
        x[i] = *(const some *)(a.u + (int64_t)(row0 + i) * a.channels + ch);
#pragma unroll
    for (int v = 0; v < V; v++) {
#pragma unroll
        for (int32_t i = 0; i < W; i++)
            w[v][i] =
                i + width < W ? 0.0f : a.w[(int64_t)(ch + v) * width + i + width - W];
#pragma unroll
        for (int32_t i = 0; i < W - 1; i++)
            u[v][i] = i + keep < W - 1 ? 0.0f
                                       : conv_input(a, b, state, first,
                                                    row0 - first - W + 1 + i, ch + v);
#pragma unroll
        for (int32_t i = 0; i < CONV_STRIP; i++)
            u[v][W - 1 + i] = each(x[i], v);
    }
#pragma unroll
    for (int32_t r = 0; r < CONV_STRIP; r++) {
        union {
            some all;
            float one[V];
        } y;
#pragma unroll
        for (int v = 0; v < V; v++) {
            float sum = 0.0f;
#pragma unroll
            for (int32_t i = 0; i < W; i++)
                if (i + width >= W)
                    sum = fmaf(w[v][i], u[v][r + i], sum);
            y.one[v] = td_silu(sum);
        }
        *(some *)(a.y + (int64_t)(row0 + r) * a.channels + ch) = y.all;
    }
}

/* y of rows row0 .. end of one channel. The window is filled anew where another sequence
 * begins. */
TD_DEVICE void conv_some(const struct td_conv_args &a, const struct td_batch &b,
                         int32_t row0, int32_t end, int32_t ch)
{
    int32_t keep = a.width - 1, before = -1;
    float window[CONV_MOST] = {}, w[CONV_MOST] = {};
#pragma unroll
    for (int32_t i = 0; i < CONV_MOST; i++)
        if (i < a.width)
            w[i] = a.w[(int64_t)ch * a.width + i];
    for (int32_t row = row0; row < end; row++) {
        int32_t seq = b.seq[row];
        if (seq < 0)
            continue;
        if (seq != before) {
            int32_t first = b.row0[seq];
            const float *state = a.state + (int64_t)b.slot[seq] * keep * a.channels;
#pragma unroll
            for (int32_t i = 0; i < CONV_MOST; i++)
                if (i < keep)
                    window[i] =
                        conv_input(a, b, state, first, row - first - keep + i, ch);
        }
        before = seq;
        float sum = 0.0f, u = a.u[(int64_t)row * a.channels + ch];
#pragma unroll
        for (int32_t i = 0; i < CONV_MOST; i++)
            if (i < a.width)
                sum = fmaf(w[i], i == keep ? u : window[i], sum);
        a.y[(int64_t)row * a.channels + ch] = td_silu(sum);
#pragma unroll
        for (int32_t i = 0; i < CONV_MOST; i++)
            if (i < keep)
                window[i] = i + 1 == keep ? u : window[i + 1 < CONV_MOST ? i + 1 : i];
    }
}

/* y of CONV_STRIP rows from `from` on, V channels a thread; the states stay as they are. */
template <int V, int W>
static __global__ void __launch_bounds__(CONV_THREADS)
    conv_rows(const struct td_conv_args a, const struct td_batch b, int32_t from)
{
    int32_t row0 = from + (int32_t)blockIdx.x * CONV_STRIP;
    int32_t ch = ((int32_t)blockIdx.y * CONV_THREADS + (int32_t)threadIdx.x) * V;
    td_wait();
    if (ch >= a.channels)
        return;
    int32_t end = min(row0 + CONV_STRIP, b.rows);
    if (end == row0 + CONV_STRIP && b.seq[row0] >= 0 && b.seq[row0] == b.seq[end - 1]) {
        conv_strip<V, W>(a, b, row0, ch);
        return;
    }
    for (int v = 0; v < V; v++)
        conv_some(a, b, row0, end, ch + v);
}

/* The last inputs of a piece become its sequence's state; oldest first, so that a state
 * that is shifted is read before it is overwritten. */
static __global__ void __launch_bounds__(CONV_THREADS)
    conv_state(const struct td_conv_args a, const struct td_batch b)
{
    int32_t seq = b.n_decode + (int32_t)blockIdx.x;
    int32_t ch = (int32_t)blockIdx.y * CONV_THREADS + (int32_t)threadIdx.x;
    td_wait();
    int32_t first = b.row0[seq];
    if (b.seq[first] < 0 || ch >= a.channels)
        return;
    int32_t n = b.row0[seq + 1] - first, keep = a.width - 1;
    float *state = a.state + (int64_t)b.slot[seq] * keep * a.channels;
    for (int32_t i = 0; i < keep; i++)
        state[(int64_t)i * a.channels + ch] =
            conv_input(a, b, state, first, n - keep + i, ch);
}

/* Blocks for all channels. */
static unsigned conv_wide(const struct td_conv_args *a, int each = 1)
{
    return (unsigned)((a->channels / each + CONV_THREADS - 1) / CONV_THREADS);
}

extern "C" void td_cuda_conv(const struct td_cuda_ctx *c, const struct td_conv_args *a)
{
    const struct td_batch *b = a->batch;
    if (b->n_decode)
        td_start(c, conv_step, dim3((unsigned)b->n_decode, conv_wide(a)), CONV_THREADS,
                 0, *a, *b);
    td_cuda_conv_pieces(c, a);
}

template <int V, int W>
static void start_rows(const struct td_cuda_ctx *c, const struct td_conv_args *a,
                       int32_t rows)
{
    dim3 grid((unsigned)((rows + CONV_STRIP - 1) / CONV_STRIP), conv_wide(a, V));
    td_start(c, conv_rows<V, W>, grid, CONV_THREADS, 0, *a, *a->batch,
             a->batch->n_decode);
}

void td_cuda_conv_pieces(const struct td_cuda_ctx *c, const struct td_conv_args *a)
{
    const struct td_batch *b = a->batch;
    int32_t rows = b->rows - b->n_decode;
    dim3 seqs((unsigned)b->n_prefill, conv_wide(a));
    bool two =
        a->channels % 2 == 0 && (uintptr_t)a->u % 8 == 0 && (uintptr_t)a->y % 8 == 0;
    c->made->x = NULL;
    if (rows && two && a->width == CONV_USUAL)
        start_rows<2, CONV_USUAL>(c, a, rows);
    else if (rows && two)
        start_rows<2, CONV_MOST>(c, a, rows);
    else if (rows)
        start_rows<1, CONV_MOST>(c, a, rows);
    if (b->n_prefill)
        td_start(c, conv_state, seqs, CONV_THREADS, 0, *a, *b);
}

/* ---- what a row offers ---- */

TD_DEVICE const float *row_of(const struct td_delta_args &a, int64_t row)
{
    return a.c + row * (2 * (int64_t)a.n_k * a.dk + (int64_t)a.n_v * a.dv);
}

TD_DEVICE int32_t key_head(const struct td_delta_args &a, int32_t head)
{
    return head / (a.n_v / a.n_k);
}

TD_DEVICE const float *value_of(const struct td_delta_args &a, int64_t row,
                                int32_t head)
{
    return row_of(a, row) + 2 * (int64_t)a.n_k * a.dk + (int64_t)head * a.dv;
}

TD_DEVICE float log_decay(const struct td_delta_args &a, int64_t row, int32_t head)
{
    float x = a.a[row * a.n_v + head] + a.dt_bias[head];
    return a.a_neg[head] * (x > 20.0f ? x : log1pf(expf(x)));
}

TD_DEVICE float beta_of(const struct td_delta_args &a, int64_t row, int32_t head)
{
    return td_sigmoid(a.b[row * a.n_v + head]);
}

/* Factors that make q (with the rule's 1 / sqrt(dk)) and k unit vectors. */
TD_DEVICE float unit_factor(float squares)
{
    return 1.0f / sqrtf(squares + 1e-6f);
}

/* ---- generated rows ---- */

/* Sum over the warps of part[warp][lane], for the calling thread's lane. */
TD_DEVICE float over_warps(float (*part)[COLS], float x)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    float sum = 0.0f;
    __syncthreads();
    part[warp][lane] = x;
    __syncthreads();
    for (int i = 0; i < DELTA_WARPS; i++)
        sum += part[i][lane];
    return sum;
}

/* The sums of x and y over the block, in every thread. */
TD_DEVICE float2 block_sums(float x, float y)
{
    __shared__ float2 sums[DELTA_WARPS];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    x = td_warp_sum(x);
    y = td_warp_sum(y);
    if (lane == 0)
        sums[warp] = make_float2(x, y);
    __syncthreads();
    float2 all = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < DELTA_WARPS; i++) {
        all.x += sums[i].x;
        all.y += sums[i].y;
    }
    return all;
}

/* R: rows of the state that a warp holds at most. The state is asked for before the rest
 * of the step is there: it was last written by the step before. */
template <int R>
static __global__ void __launch_bounds__(DELTA_THREADS)
    delta_step(const struct td_delta_args a, const struct td_batch b)
{
    __shared__ float q[TD_CUDA_MAX_DIM], k[TD_CUDA_MAX_DIM], part[DELTA_WARPS][COLS];
    int32_t row = (int32_t)blockIdx.z, head = (int32_t)blockIdx.y,
            at = (int)threadIdx.x;
    int32_t col = (int32_t)blockIdx.x * COLS + at % WARP, warp = at / WARP;
    bool there = b.seq[row] >= 0, valid = col < a.dv && there;
    bool begins = b.pos[row] == 0;
    float *state = a.state + ((int64_t)b.slot[row] * a.n_v + head) * a.dk * a.dv + col;
    float s[R], sum = 0.0f;
#pragma unroll
    for (int r = 0; r < R; r++) {
        int32_t i = warp + DELTA_WARPS * r;
        s[r] = i < a.dk && valid && !begins ? state[(int64_t)i * a.dv] : 0.0f;
    }
    td_wait();
    if (!there)
        return;
    const float *from = row_of(a, row) + (int64_t)key_head(a, head) * a.dk;
    float qx = at < a.dk ? from[at] : 0.0f;
    float kx = at < a.dk ? from[(int64_t)a.n_k * a.dk + at] : 0.0f;
    float value = valid ? value_of(a, row, head)[col] : 0.0f;
    float decay = expf(log_decay(a, row, head)), beta = beta_of(a, row, head);
    float2 squares = block_sums(qx * qx, kx * kx);
    if (at < a.dk) {
        q[at] = qx * (unit_factor(squares.x) / sqrtf((float)a.dk));
        k[at] = kx * unit_factor(squares.y);
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; r++) {
        int32_t i = warp + DELTA_WARPS * r;
        s[r] *= decay;
        if (i < a.dk)
            sum = fmaf(k[i], s[r], sum);
    }
    sum = over_warps(part, sum);
    float d = beta * (value - sum), o = 0.0f;
#pragma unroll
    for (int r = 0; r < R; r++) {
        int32_t i = warp + DELTA_WARPS * r;
        if (i >= a.dk)
            continue;
        s[r] = fmaf(k[i], d, s[r]);
        o = fmaf(q[i], s[r], o);
        if (valid)
            state[(int64_t)i * a.dv] = s[r];
    }
    o = over_warps(part, o);
    if (warp == 0 && valid)
        a.y[((int64_t)row * a.n_v + head) * a.dv + col] = o;
}

/* ---- prompts: what does not depend on the state ---- */

struct chunks {
    float *q, *k, *T, *M, *G;
};

static size_t chunk_floats(const struct td_reserve *r)
{
    return (size_t)(2 * r->n_k * r->dk + r->n_v * (2 * TD_CHUNK + 1));
}

size_t td_cuda_chunks_bytes(const struct td_reserve *r)
{
    return (size_t)r->max_rows * chunk_floats(r) * sizeof(float);
}

/* T = (I + A)^-1 for A in at[TD_CHUNK][TD_CHUNK + 1], strictly lower; four threads work
 * on a column, which depends on itself alone. */
TD_DEVICE void invert(const float *at, float *T)
{
    int col = (int)threadIdx.x / 4, part = (int)threadIdx.x % 4;
    for (int i = 0; i < TD_CHUNK; i++) {
        float sum = 0.0f;
        for (int j = col + part; j < i; j += 4)
            sum = fmaf(at[i * (TD_CHUNK + 1) + j], T[j * (TD_CHUNK + 1) + col], sum);
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        if (part == 0)
            T[i * (TD_CHUNK + 1) + col] = (i == col ? 1.0f : 0.0f) - sum;
        __syncwarp();
    }
}

/* Unit vectors of n rows into q, k [TD_CHUNK][dk + 1], zeros behind them; a warp a row. */
TD_DEVICE void load_units(const struct td_delta_args &a, int32_t row, int32_t n,
                          int32_t head, float *q, float *k)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int32_t from = key_head(a, head) * a.dk;
    for (int i = warp; i < TD_CHUNK; i += DELTA_WARPS) {
        const float *qi = row_of(a, row + min(i, n - 1)) + from;
        const float *ki = qi + (int64_t)a.n_k * a.dk;
        float qq = 0.0f, kk = 0.0f;
        for (int d = lane; d < a.dk; d += WARP) {
            qq = fmaf(qi[d], qi[d], qq);
            kk = fmaf(ki[d], ki[d], kk);
        }
        float fq = unit_factor(td_warp_sum(qq)) / sqrtf((float)a.dk);
        float fk = unit_factor(td_warp_sum(kk));
        for (int d = lane; d < a.dk; d += WARP) {
            q[i * (a.dk + 1) + d] = i < n ? qi[d] * fq : 0.0f;
            k[i * (a.dk + 1) + d] = i < n ? ki[d] * fk : 0.0f;
        }
    }
}

/* A block for each chunk and value head. */
static __global__ void __launch_bounds__(DELTA_THREADS)
    prepare(const struct td_delta_args a, const struct td_batch b,
            const struct chunks c)
{
    extern __shared__ float shared[];
    __shared__ float G[TD_CHUNK], beta[TD_CHUNK];
    float *q = shared, *k = q + TD_CHUNK * (a.dk + 1), *A = k + TD_CHUNK * (a.dk + 1);
    float *T = A + TD_CHUNK * (TD_CHUNK + 1);
    int32_t row, n, head = (int32_t)blockIdx.y, t = (int32_t)threadIdx.x;
    td_wait();
    if (!td_find_chunk(b, (int32_t)blockIdx.x, &row, &n))
        return;
    load_units(a, row, n, head, q, k);
    if (t < TD_CHUNK) {
        G[t] = t < n ? log_decay(a, row + t, head) : 0.0f;
        beta[t] = t < n ? beta_of(a, row + t, head) : 0.0f;
    }
    __syncthreads();
    if (t == 0)
        for (int i = 1; i < TD_CHUNK; i++)
            G[i] += G[i - 1];
    __syncthreads();
    float kk[4][4] = {}, qk[4][4] = {};
    int ti = t / 16, tj = t % 16;
    for (int d = 0; d < a.dk; d++) {
        float x[4], y[4], z[4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            x[r] = k[(ti + 16 * r) * (a.dk + 1) + d];
            y[r] = q[(ti + 16 * r) * (a.dk + 1) + d];
            z[r] = k[(tj + 16 * r) * (a.dk + 1) + d];
        }
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int s = 0; s < 4; s++) {
                kk[r][s] = fmaf(x[r], z[s], kk[r][s]);
                qk[r][s] = fmaf(y[r], z[s], qk[r][s]);
            }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int s = 0; s < 4; s++) {
            int i = ti + 16 * r, j = tj + 16 * s;
            float decay = j <= i ? expf(G[i] - G[j]) : 0.0f;
            A[i * (TD_CHUNK + 1) + j] = j < i ? beta[i] * kk[r][s] * decay : 0.0f;
            if (i < n)
                c.M[((int64_t)(row + i) * a.n_v + head) * TD_CHUNK + j] =
                    qk[r][s] * decay;
        }
    __syncthreads();
    invert(A, T);
    __syncthreads();
    for (int i = t; i < n * TD_CHUNK; i += DELTA_THREADS) {
        int r = i / TD_CHUNK, j = i % TD_CHUNK;
        c.T[((int64_t)(row + r) * a.n_v + head) * TD_CHUNK + j] =
            T[r * (TD_CHUNK + 1) + j] * beta[j];
    }
    if (t < n)
        c.G[(int64_t)(row + t) * a.n_v + head] = G[t];
    if (head % (a.n_v / a.n_k))
        return;
    for (int i = t; i < n * a.dk; i += DELTA_THREADS) {
        int r = i / a.dk, d = i % a.dk;
        int64_t to = ((int64_t)(row + r) * a.n_k + key_head(a, head)) * a.dk + d;
        c.q[to] = q[r * (a.dk + 1) + d];
        c.k[to] = k[r * (a.dk + 1) + d];
    }
}

/* ---- prompts: along the state ---- */

/* Shared memory of scan(); wide is dk rounded up to a multiple of 4. */
struct scan_shared {
    float *S;     /* [wide][COLS] */
    float *q, *k; /* [TD_CHUNK][wide] */
    float *T, *M; /* [TD_CHUNK][TD_CHUNK] */
    float *X, *U; /* [TD_CHUNK][COLS] */
};

static __host__ __device__ int32_t scan_wide(int32_t dk)
{
    return (dk + 3) / 4 * 4;
}

static size_t scan_bytes(int32_t dk)
{
    size_t wide = (size_t)scan_wide(dk);
    return sizeof(float) *
           (wide * COLS + 2 * TD_CHUNK * wide + 2 * SQUARE + 2 * TD_CHUNK * COLS);
}

/* out[4][2] += x[row .. row + 4][n] y[n][2 tx, 2 tx + 1]; n is a multiple of 4. */
TD_DEVICE void add_tile(float (&out)[4][2], const float *x, int32_t row, int32_t n,
                        const float *y, int32_t tx)
{
    for (int32_t d = 0; d < n; d += 4) {
        float2 s[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[e] = *(const float2 *)&y[(d + e) * COLS + 2 * tx];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float4 v = *(const float4 *)&x[(row + r) * n + d];
            float w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                out[r][0] = fmaf(w[e], s[e].x, out[r][0]);
                out[r][1] = fmaf(w[e], s[e].y, out[r][1]);
            }
        }
    }
}

/* Brings a chunk's matrices to shared memory; zeros for rows that it does not have. */
TD_DEVICE void load_chunk(const struct td_delta_args &a, const struct chunks &c,
                          const struct scan_shared &s, int32_t row, int32_t n,
                          int32_t head)
{
    int32_t wide = scan_wide(a.dk), t = (int32_t)threadIdx.x;
    for (int i = t; i < TD_CHUNK * wide; i += DELTA_THREADS) {
        int r = i / wide, d = i % wide;
        int64_t at = ((int64_t)(row + r) * a.n_k + key_head(a, head)) * a.dk + d;
        bool have = r < n && d < a.dk;
        s.q[i] = have ? c.q[at] : 0.0f;
        s.k[i] = have ? c.k[at] : 0.0f;
    }
    for (int i = t; i < SQUARE; i += DELTA_THREADS) {
        int r = i / TD_CHUNK;
        int64_t at = ((int64_t)(row + r) * a.n_v + head) * TD_CHUNK + i % TD_CHUNK;
        s.T[i] = r < n ? c.T[at] : 0.0f;
        s.M[i] = r < n ? c.M[at] : 0.0f;
    }
}

/* S = exp(last) S + k^T U, with U already weighted. */
TD_DEVICE void update_state(const struct scan_shared &s, int32_t wide, float last)
{
    int32_t ty = (int32_t)threadIdx.x / 16, tx = (int32_t)threadIdx.x % 16;
    float decay = expf(last);
    for (int32_t d0 = ty; d0 < wide; d0 += 16 * 4) {
        float2 sum[4];
#pragma unroll
        for (int r = 0; r < 4; r++)
            sum[r] = make_float2(0.0f, 0.0f);
        for (int j = 0; j < TD_CHUNK; j++) {
            float2 u = *(const float2 *)&s.X[j * COLS + 2 * tx];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                int32_t d = d0 + 16 * r;
                float k = d < wide ? s.k[j * wide + d] : 0.0f;
                sum[r].x = fmaf(k, u.x, sum[r].x);
                sum[r].y = fmaf(k, u.y, sum[r].y);
            }
        }
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float2 *to = (float2 *)&s.S[(d0 + 16 * r) * COLS + 2 * tx];
            if (d0 + 16 * r < wide)
                *to = make_float2(fmaf(to->x, decay, sum[r].x),
                                  fmaf(to->y, decay, sum[r].y));
        }
    }
}

/* One chunk: outputs to y, the state moves on. */
TD_DEVICE void scan_chunk(const struct td_delta_args &a, const struct chunks &c,
                          const struct scan_shared &s, int32_t row, int32_t n,
                          int32_t head, int32_t col0)
{
    int32_t wide = scan_wide(a.dk), t = (int32_t)threadIdx.x;
    int32_t i0 = t / 16 * 4, tx = t % 16;
    float acc[4][2] = {}, G[4], last = c.G[(int64_t)(row + n - 1) * a.n_v + head];
    __syncthreads();
    load_chunk(a, c, s, row, n, head);
    __syncthreads();
    add_tile(acc, s.k, i0, wide, s.S, tx);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        bool have = i0 + r < n;
        G[r] = have ? c.G[(int64_t)(row + i0 + r) * a.n_v + head] : 0.0f;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t col = col0 + 2 * tx + e;
            float v = have && col < a.dv ? value_of(a, row + i0 + r, head)[col] : 0.0f;
            s.X[(i0 + r) * COLS + 2 * tx + e] =
                have ? v - expf(G[r]) * acc[r][e] : 0.0f;
            acc[r][e] = 0.0f;
        }
    }
    __syncthreads();
    add_tile(acc, s.T, i0, TD_CHUNK, s.X, tx);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t at = (i0 + r) * COLS + 2 * tx + e;
            s.U[at] = acc[r][e];
            s.X[at] = i0 + r < n ? acc[r][e] * expf(last - G[r]) : 0.0f;
            acc[r][e] = 0.0f;
        }
    __syncthreads();
    add_tile(acc, s.q, i0, wide, s.S, tx);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        acc[r][0] *= expf(G[r]);
        acc[r][1] *= expf(G[r]);
    }
    add_tile(acc, s.M, i0, TD_CHUNK, s.U, tx);
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t col = col0 + 2 * tx + e;
            if (i0 + r < n && col < a.dv)
                a.y[((int64_t)(row + i0 + r) * a.n_v + head) * a.dv + col] = acc[r][e];
        }
    __syncthreads();
    update_state(s, wide, last);
}

/* A block for each piece, value head and COLS columns of its state. */
static __global__ void __launch_bounds__(DELTA_THREADS)
    scan(const struct td_delta_args a, const struct td_batch b, const struct chunks c)
{
    extern __shared__ float4 whole[];
    int32_t seq = b.n_decode + (int32_t)blockIdx.z, head = (int32_t)blockIdx.y;
    int32_t col0 = (int32_t)blockIdx.x * COLS, wide = scan_wide(a.dk);
    td_wait();
    int32_t first = b.row0[seq], end = b.row0[seq + 1];
    if (b.seq[first] < 0)
        return;
    struct scan_shared s;
    s.S = (float *)whole;
    s.q = s.S + wide * COLS;
    s.k = s.q + TD_CHUNK * wide;
    s.T = s.k + TD_CHUNK * wide;
    s.M = s.T + SQUARE;
    s.X = s.M + SQUARE;
    s.U = s.X + TD_CHUNK * COLS;
    float *state = a.state + ((int64_t)b.slot[seq] * a.n_v + head) * a.dk * a.dv + col0;
    bool begins = b.pos[first] == 0;
    for (int i = (int)threadIdx.x; i < wide * COLS; i += DELTA_THREADS) {
        int32_t d = i / COLS, col = i % COLS;
        bool have = d < a.dk && col0 + col < a.dv && !begins;
        s.S[i] = have ? state[(int64_t)d * a.dv + col] : 0.0f;
    }
    for (int32_t row = first; row < end; row += TD_CHUNK)
        scan_chunk(a, c, s, row, min(end - row, (int32_t)TD_CHUNK), head, col0);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < a.dk * COLS; i += DELTA_THREADS) {
        int32_t d = i / COLS, col = i % COLS;
        if (col0 + col < a.dv)
            state[(int64_t)d * a.dv + col] = s.S[i];
    }
}

static size_t prepare_bytes(int32_t dk)
{
    return sizeof(float) *
           (2 * TD_CHUNK * (size_t)(dk + 1) + 2 * TD_CHUNK * (TD_CHUNK + 1));
}

size_t td_cuda_delta_bytes(int32_t dk)
{
    return TD_MAX(scan_bytes(dk), prepare_bytes(dk)) + 1024; /* and what is static */
}

extern "C" void td_cuda_delta(const struct td_cuda_ctx *c,
                              const struct td_delta_args *a)
{
    const struct td_batch *b = a->batch;
    unsigned cols = (unsigned)((a->dv + COLS - 1) / COLS);
    if (b->n_decode) {
        dim3 grid(cols, (unsigned)a->n_v, (unsigned)b->n_decode);
        if (a->dk <= 16 * DELTA_WARPS)
            td_start(c, delta_step<16>, grid, DELTA_THREADS, 0, *a, *b);
        else
            td_start(c, delta_step<32>, grid, DELTA_THREADS, 0, *a, *b);
    }
    td_cuda_delta_pieces(c, a);
}

void td_cuda_delta_pieces(const struct td_cuda_ctx *c, const struct td_delta_args *a)
{
    const struct td_batch *b = a->batch;
    unsigned cols = (unsigned)((a->dv + COLS - 1) / COLS);
    c->made->x = NULL;
    if (!b->n_prefill || td_cuda_chunks(c, a))
        return;
    int32_t rows = b->rows - b->n_decode;
    struct chunks w;
    w.q = c->chunks;
    w.k = w.q + (int64_t)b->rows * a->n_k * a->dk;
    w.T = w.k + (int64_t)b->rows * a->n_k * a->dk;
    w.M = w.T + (int64_t)b->rows * a->n_v * TD_CHUNK;
    w.G = w.M + (int64_t)b->rows * a->n_v * TD_CHUNK;
    dim3 chunks((unsigned)(rows / TD_CHUNK + b->n_prefill), (unsigned)a->n_v);
    dim3 pieces(cols, (unsigned)a->n_v, (unsigned)b->n_prefill);
    td_start(c, prepare, chunks, DELTA_THREADS, prepare_bytes(a->dk), *a, *b, w);
    td_start(c, scan, pieces, DELTA_THREADS, scan_bytes(a->dk), *a, *b, w);
}

extern "C" void td_cuda_prepare_delta(const struct td_cuda_ctx *c)
{
    int most = c->shared_max - 1024;
    (void)cudaFuncSetAttribute(prepare, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               most);
    (void)cudaFuncSetAttribute(scan, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

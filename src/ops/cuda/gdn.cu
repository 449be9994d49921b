/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated DeltaNet up to the product of its output. Of generated rows, all behind the
 * products of the input is one kernel (convolution, gates, delta rule, gated norm), since
 * each by itself would be nothing but waiting.
 *
 * A block for each row and value head, small enough to be there beside two of lin_norm().
 * The state is asked for before the rest of the step is there: it was last written by the
 * step before. With S the state, and q, k before
 * they are unit vectors (factors fq, fk):
 *
 *     d = beta (v - decay fk k S),  o = decay fq q S + fq fk (q . k) d,
 *     S = decay S + fk k (x) d
 *
 * so that one pass over S and one meeting of the threads give both d and o. Rounds apart,
 * o is q times the new S.
 *
 * Value heads share keys and queries, and so what the convolution keeps of them: the last
 * of their blocks to have read it writes it.
 */
#include "ops/cuda/planes.cuh"

enum {
    GDN_THREADS = 512,
    GDN_WARPS = GDN_THREADS / WARP,
    GDN_DIM = 128, /* of a head, at most */
    GDN_ROWS = 8,  /* of the state, of a thread */
    GDN_MOST = 4,  /* width of the convolution */
    GDN_AHEAD = 2  /* times four weights of a gate that a thread asks for early */
};

struct gdn {
    struct td_gdn_args a;
    struct td_matrix gate[2];
    struct td_batch b;
    struct td_planes_out planes;
    int32_t *seen; /* [row][key head]: blocks that have read */
};

struct gdn_shared {
    float x[3][GDN_DIM]; /* q, k, v behind the convolution */
    union {
        uint2 gate[2 * GDN_AHEAD][GDN_THREADS]; /* weights */
        struct {
            float ks[GDN_WARPS][GDN_DIM], qs[GDN_WARPS][GDN_DIM];
        } sum; /* of the warps, behind the gates */
    };
    float a[GDN_WARPS], b[GDN_WARPS], squares[GDN_WARPS];
    float qq, kk, qk, decay, beta;
    int32_t before;
};

/* A thread's channel of the convolution: q, k and v of the head one after another. */
struct channel {
    float kept[GDN_MOST - 1]; /* the window but for what leaves it; the last is free */
    float sum, w;             /* of the window, and the weight of what comes */
    int32_t at;               /* -1: none */
};

TD_DEVICE channel load_channel(const struct gdn &p, int32_t row, int32_t head)
{
    const struct td_conv_args &a = p.a.conv;
    const struct td_delta_args &d = p.a.delta;
    int32_t part = (int32_t)threadIdx.x / GDN_DIM, dim = (int32_t)threadIdx.x % GDN_DIM;
    int32_t key = head / (d.n_v / d.n_k), keep = a.width - 1;
    channel c = {{}, 0.0f, 0.0f, -1};
    if (part < 2 && dim < d.dk)
        c.at = (part * d.n_k + key) * d.dk + dim;
    else if (part == 2 && dim < d.dv)
        c.at = 2 * d.n_k * d.dk + head * d.dv + dim;
    if (c.at < 0)
        return c;
    const float *state = a.state + (int64_t)p.b.slot[row] * keep * a.channels + c.at;
    const float *w = a.w + (int64_t)c.at * a.width;
    bool begins = p.b.pos[row] == 0;
#pragma unroll
    for (int32_t i = 0; i < GDN_MOST - 1; i++) {
        if (i >= keep)
            continue;
        float x = begins ? 0.0f : state[(int64_t)i * a.channels];
        c.sum = fmaf(w[i], x, c.sum);
        if (i)
            c.kept[i - 1] = x;
    }
    c.w = w[keep];
    return c;
}

/* The window moves on; u is the newest input. */
TD_DEVICE void keep_channel(const struct gdn &p, const channel &c, int32_t row, float u)
{
    const struct td_conv_args &a = p.a.conv;
    int32_t keep = a.width - 1;
    float *state = a.state + (int64_t)p.b.slot[row] * keep * a.channels + c.at;
#pragma unroll
    for (int32_t i = 0; i < GDN_MOST - 1; i++)
        if (i < keep)
            state[(int64_t)i * a.channels] = i + 1 == keep ? u : c.kept[i];
}

/* Four weights of a row of BF16. */
TD_DEVICE float dot4(float sum, float4 x, uint2 w)
{
    sum = fmaf(x.x, __uint_as_float(w.x << 16), sum);
    sum = fmaf(x.y, __uint_as_float(w.x & 0xffff0000), sum);
    sum = fmaf(x.z, __uint_as_float(w.y << 16), sum);
    return fmaf(x.w, __uint_as_float(w.y & 0xffff0000), sum);
}

/* A row of weights of a head's gate 0 (a) or 1 (b). */
TD_DEVICE const uint2 *gate_row(const struct gdn &p, int32_t gate, int32_t head)
{
    return (const uint2 *)p.gate[gate].data + head * (td_cuda_pitch(p.gate[0].k) / 4);
}

/* Asks for the thread's first weights of both gates. */
TD_DEVICE void ask_gates(const struct gdn &p, int32_t head, struct gdn_shared &s)
{
    int32_t quads = (int32_t)p.gate[0].k / 4, t = (int32_t)threadIdx.x;
#pragma unroll
    for (int i = 0; i < 2 * GDN_AHEAD; i++)
        if (t + i / 2 * GDN_THREADS < quads)
            td_copy8(&s.gate[i][t], gate_row(p, i % 2, head) + t + i / 2 * GDN_THREADS);
    td_copy_commit();
}

/* The warp's part of both gates' sums goes to shared memory. */
TD_DEVICE void add_gates(const struct gdn &p, int32_t row, int32_t head,
                         struct gdn_shared &s)
{
    const float4 *x = (const float4 *)(p.a.x + row * p.gate[0].k);
    int32_t quads = (int32_t)p.gate[0].k / 4, t = (int32_t)threadIdx.x;
    float a = 0.0f, b = 0.0f;
    td_copy_wait<0>();
    for (int32_t i = 0, at = t; at < quads; i++, at += GDN_THREADS) {
        float4 v = x[at];
        a = dot4(a, v, i < GDN_AHEAD ? s.gate[2 * i][t] : gate_row(p, 0, head)[at]);
        b = dot4(b, v, i < GDN_AHEAD ? s.gate[2 * i + 1][t] : gate_row(p, 1, head)[at]);
    }
    a = td_warp_sum(a);
    b = td_warp_sum(b);
    if (t % WARP == 0) {
        s.a[t / WARP] = a;
        s.b[t / WARP] = b;
    }
}

/* Numbers that the whole block needs; a warp for each. */
TD_DEVICE void small_sums(const struct gdn &p, float bias, float a_neg,
                          struct gdn_shared &s)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    if (warp < 3) {
        const float *x = s.x[warp == 1], *y = s.x[warp != 0];
        float sum = 0.0f;
        for (int i = lane; i < p.a.delta.dk; i += WARP)
            sum = fmaf(x[i], y[i], sum);
        sum = td_warp_sum(sum);
        if (lane == 0)
            *(warp == 0 ? &s.qq : warp == 1 ? &s.kk : &s.qk) = sum;
    }
    if (warp == 3) {
        float x = td_warp_sum(lane < GDN_WARPS ? s.a[lane] : 0.0f);
        float y = td_warp_sum(lane < GDN_WARPS ? s.b[lane] : 0.0f);
        x += bias;
        if (lane == 0) {
            s.decay = expf(a_neg * (x > 20.0f ? x : log1pf(expf(x))));
            s.beta = td_sigmoid(y);
        }
    }
}

/* The warp's part of k S and q S goes to shared memory. */
template <int DV>
TD_DEVICE void sum_state(const float4 (&S)[GDN_ROWS], int32_t dk, struct gdn_shared &s)
{
    const int32_t wide = DV / 4, every = GDN_THREADS / wide;
    int32_t t = (int32_t)threadIdx.x, warp = t / WARP, lane = t % WARP;
    int32_t first = t / wide, quad = t % wide;
    float4 ks = make_float4(0.0f, 0.0f, 0.0f, 0.0f), qs = ks;
#pragma unroll
    for (int r = 0; r < GDN_ROWS; r++) {
        int32_t i = first + every * r;
        float k = i < dk ? s.x[1][i] : 0.0f, q = i < dk ? s.x[0][i] : 0.0f;
        ks.x = fmaf(k, S[r].x, ks.x);
        ks.y = fmaf(k, S[r].y, ks.y);
        ks.z = fmaf(k, S[r].z, ks.z);
        ks.w = fmaf(k, S[r].w, ks.w);
        qs.x = fmaf(q, S[r].x, qs.x);
        qs.y = fmaf(q, S[r].y, qs.y);
        qs.z = fmaf(q, S[r].z, qs.z);
        qs.w = fmaf(q, S[r].w, qs.w);
    }
#pragma unroll
    for (int32_t far = wide; far < WARP; far *= 2) { /* rows of the same warp */
        ks.x += __shfl_xor_sync(0xffffffff, ks.x, far);
        ks.y += __shfl_xor_sync(0xffffffff, ks.y, far);
        ks.z += __shfl_xor_sync(0xffffffff, ks.z, far);
        ks.w += __shfl_xor_sync(0xffffffff, ks.w, far);
        qs.x += __shfl_xor_sync(0xffffffff, qs.x, far);
        qs.y += __shfl_xor_sync(0xffffffff, qs.y, far);
        qs.z += __shfl_xor_sync(0xffffffff, qs.z, far);
        qs.w += __shfl_xor_sync(0xffffffff, qs.w, far);
    }
    if (lane < wide) {
        *(float4 *)&s.sum.ks[warp][4 * quad] = ks;
        *(float4 *)&s.sum.qs[warp][4 * quad] = qs;
    }
}

template <int DV>
static __global__ void __launch_bounds__(GDN_THREADS, 2)
    gdn_step(const __grid_constant__ struct gdn p)
{
    __shared__ struct gdn_shared s;
    const struct td_delta_args &a = p.a.delta;
    const struct td_gated_norm_args &n = p.a.norm;
    int32_t head = (int32_t)blockIdx.x, row = (int32_t)blockIdx.y;
    int32_t t = (int32_t)threadIdx.x, warp = t / WARP, lane = t % WARP;
    const int32_t wide = DV / 4, every = GDN_THREADS / wide;
    int32_t first = t / wide, quad = t % wide;
    bool there = p.b.seq[row] >= 0, begins = p.b.pos[row] == 0, outputs = t < DV;
    float4 *state =
        (float4 *)(a.state + ((int64_t)p.b.slot[row] * a.n_v + head) * a.dk * DV) + t;
    float4 S[GDN_ROWS];
#pragma unroll
    for (int r = 0; r < GDN_ROWS; r++) {
        int32_t i = first + every * r;
        S[r] = i < a.dk && there && !begins ? state[GDN_THREADS * r]
                                            : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    channel c = {{}, 0.0f, 0.0f, -1};
    if (there)
        c = load_channel(p, row, head);
    ask_gates(p, head, s);
    float w = outputs ? n.w[t] : 0.0f, bias = a.dt_bias[head], a_neg = a.a_neg[head];
    td_wait_early(gridDim.y);
    if (!there)
        return;
    int64_t to = ((int64_t)row * a.n_v + head) * DV + t;
    float u = c.at >= 0 ? p.a.conv.u[(int64_t)row * p.a.conv.channels + c.at] : 0.0f;
    float z = outputs ? n.z[to] : 0.0f;
    add_gates(p, row, head, s);
    if (c.at >= 0)
        s.x[t / GDN_DIM][t % GDN_DIM] = td_silu(fmaf(c.w, u, c.sum));
    __syncthreads(); /* q, k, v are there, and nobody reads the old window any more */
    int32_t key = head / (a.n_v / a.n_k), group = a.n_v / a.n_k, before = 0;
    int32_t *seen = p.seen + (int64_t)row * a.n_k + key;
    if (t == GDN_THREADS - 1)
        before = atomicAdd(seen, 1);
    small_sums(p, bias, a_neg, s);
    sum_state<DV>(S, a.dk, s);
    __syncthreads();
    float fk = 1.0f / sqrtf(s.kk + 1e-6f), decay = s.decay, o = 0.0f;
    float fq = 1.0f / sqrtf(s.qq + 1e-6f) / sqrtf((float)a.dk);
    if (outputs) {
        float k = 0.0f, q = 0.0f;
#pragma unroll
        for (int i = 0; i < GDN_WARPS; i++) {
            k += s.sum.ks[i][t];
            q += s.sum.qs[i][t];
        }
        float d = s.beta * (s.x[2][t] - decay * (fk * k));
        o = fmaf(fq * fk * s.qk, d, decay * (fq * q));
        s.sum.ks[0][t] = d; /* nobody else reads what was there */
    }
    float squares = td_warp_sum(o * o);
    if (lane == 0)
        s.squares[warp] = squares;
    if (t == GDN_THREADS - 1)
        s.before = before;
    __syncthreads();
    if (outputs) {
        float sum = 0.0f;
#pragma unroll
        for (int32_t i = 0; i < DV / WARP; i++)
            sum += s.squares[i];
        float y = o * (1.0f / sqrtf(sum / (float)DV + n.eps)) * w * td_silu(z);
        n.x[to] = y;
        td_planes_store(y, p.planes, row, head * DV + t);
    }
    float4 d = *(const float4 *)&s.sum.ks[0][4 * quad];
#pragma unroll
    for (int r = 0; r < GDN_ROWS; r++) {
        int32_t i = first + every * r;
        if (i >= a.dk)
            continue;
        float k = fk * s.x[1][i];
        state[GDN_THREADS * r] =
            make_float4(fmaf(k, d.x, decay * S[r].x), fmaf(k, d.y, decay * S[r].y),
                        fmaf(k, d.z, decay * S[r].z), fmaf(k, d.w, decay * S[r].w));
    }
    bool last = s.before == group - 1;
    if (c.at >= 0 && (t >= 2 * GDN_DIM || last))
        keep_channel(p, c, row, u);
    if (t == 0 && last)
        *seen = 0;
}

template <int DV>
static void start_step(const struct td_cuda_ctx *c, const struct gdn &p)
{
    dim3 grid((unsigned)p.a.delta.n_v, (unsigned)p.b.n_decode);
    td_start(c, gdn_step<DV>, grid, GDN_THREADS, 0, p);
}

/* Whether gdn_step() takes these heads, gates and windows. */
static bool fits(const struct td_gdn_args *a)
{
    const struct td_delta_args *d = &a->delta;
    return d->dk <= GDN_DIM && d->dk % 4 == 0 &&
           (d->dv == GDN_DIM || d->dv == GDN_DIM / 2) && a->conv.width <= GDN_MOST &&
           a->gate_a->type == TD_MAT_BF16 && a->gate_b->type == TD_MAT_BF16 &&
           a->gate_a->k % 4 == 0 && (uintptr_t)a->x % 16 == 0 &&
           (uintptr_t)d->state % 16 == 0;
}

size_t td_cuda_counts_bytes(const struct td_reserve *r)
{
    return (size_t)r->max_seqs * (size_t)r->n_k * sizeof(int32_t);
}

/* What gdn_step() reads besides what the products give it. */
static struct td_cuda_ahead ahead_of(const struct td_gdn_args *a)
{
    const struct td_delta_args *d = &a->delta;
    int64_t state = (int64_t)d->n_v * d->dk * d->dv * (int64_t)sizeof(float);
    int64_t window = (int64_t)(a->conv.width - 1) * a->conv.channels *
                     (int64_t)sizeof(float) / 16 * 16;
    int64_t weights =
        (int64_t)a->conv.width * a->conv.channels * (int64_t)sizeof(float) / 16 * 16;
    int64_t gate =
        a->gate_a->n * td_cuda_pitch(a->gate_a->k) * (int64_t)sizeof(int16_t);
    return td_cuda_ahead{d->batch->slot,
                         {{d->state, state, state},
                          {a->conv.state, window, window},
                          {a->conv.w, 0, weights},
                          {a->gate_a->data, 0, gate},
                          {a->gate_b->data, 0, gate}}};
}

/* Both gates by the products of the other rows. */
static void gates_of_rows(const struct td_cuda_ctx *c, const struct td_gdn_args *a)
{
    const struct td_matrix *w[2] = {a->gate_a, a->gate_b};
    float *y[2] = {a->a, a->b};
    struct td_linear_args l = {a->x, NULL, w[0]->k, a->delta.batch->rows, 2, {}};
    for (int i = 0; i < 2; i++) {
        l.term[i].w = w[i];
        l.term[i].y = y[i];
        l.term[i].y_stride = w[i]->n;
        l.term[i].exact = true;
    }
    td_cuda_linear(c, &l);
}

extern "C" void td_cuda_gdn(const struct td_cuda_ctx *c, const struct td_gdn_args *a)
{
    const struct td_batch *b = a->delta.batch;
    bool steps = fits(a);
    struct td_cuda_ahead ahead = ahead_of(a);
    td_cuda_linear_ahead(c, &a->in, steps && b->n_decode == 1 ? &ahead : NULL);
    if (b->n_prefill || !steps)
        gates_of_rows(c, a);
    if (!steps) {
        td_cuda_conv(c, &a->conv);
        td_cuda_delta(c, &a->delta);
        td_cuda_gated_norm(c, &a->norm);
        return;
    }
    td_cuda_conv_pieces(c, &a->conv);
    td_cuda_delta_pieces(c, &a->delta);
    struct td_planes_out planes =
        td_planes_for(c, a->norm.x, b->rows, (int64_t)a->norm.heads * a->norm.dim,
                      td_planes_rounded(c), a->norm.to_product);
    if (b->n_decode) {
        struct gdn p = {*a, {*a->gate_a, *a->gate_b}, *b, planes, c->counts};
        if (a->delta.dv == GDN_DIM)
            start_step<GDN_DIM>(c, p);
        else
            start_step<GDN_DIM / 2>(c, p);
    }
    td_gated_norm_from(c, &a->norm, b->n_decode, planes);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated DeltaNet: the causal convolution and the gated delta rule, recurrent for
 * generated tokens and chunked for prompts.
 *
 * Chunked form, for a chunk of n <= TD_CHUNK tokens, with G_i = g_0 + ... + g_i:
 *
 *     U_i = beta_i (v_i - exp(G_i) k_i^T S) - sum_{j<i} A_ij U_j,
 *           A_ij = beta_i (k_i . k_j) exp(G_i - G_j)
 *     o_i = exp(G_i) q_i^T S + sum_{j<=i} (q_i . k_j) exp(G_i - G_j) U_j
 *     S'  = exp(G_last) S + sum_j exp(G_last - G_j) k_j (x) U_j
 *
 * Row i uses rows j <= i alone, so a prompt that ends inside a chunk gives the same bits
 * for the rows that it has.
 */
#include "ops/ref/ref.h"

#include <math.h>
#include <string.h>

static const float L2_EPS = 1e-6f;

static void conv_sequence(const struct td_conv_args *a, int32_t s, int32_t ch)
{
    const struct td_batch *b = a->batch;
    int32_t first = b->row0[s], last = b->row0[s + 1], keep = a->width - 1;
    int64_t n = a->channels;
    float *state = a->state + (int64_t)b->slot[s] * keep * n + ch;
    const float *w = a->w + (int64_t)ch * a->width;
    for (int32_t i = 0; i < keep && b->pos[first] == 0; i++)
        state[i * n] = 0;
    for (int32_t r = first; r < last; r++) {
        float x = a->u[r * n + ch], sum = 0;
        for (int32_t i = 0; i < keep; i++)
            sum += w[i] * state[i * n];
        sum += w[keep] * x;
        for (int32_t i = 0; i + 1 < keep; i++)
            state[i * n] = state[(i + 1) * n];
        if (keep)
            state[(keep - 1) * n] = x;
        a->y[r * n + ch] = td_ref_silu(sum);
    }
}

static void conv_channels(struct td_cpu *cpu, const void *args, int64_t first,
                          int64_t last)
{
    const struct td_conv_args *a = args;
    int32_t seqs = a->batch->n_decode + a->batch->n_prefill;
    (void)cpu;
    for (int64_t ch = first; ch < last; ch++)
        for (int32_t s = 0; s < seqs; s++)
            if (a->batch->seq[a->batch->row0[s]] >= 0)
                conv_sequence(a, s, (int32_t)ch);
}

static void ref_conv(struct td_dev *dev, const struct td_conv_args *a)
{
    td_cpu_run((struct td_cpu *)dev, a->channels, 0, conv_channels, a);
}

/* What a row offers to one value head. */
struct inputs {
    const float *q, *k, *v;
    float g, beta;
};

static struct inputs inputs_of(const struct td_delta_args *a, int32_t row, int32_t head)
{
    int64_t width = 2 * (int64_t)a->n_k * a->dk + (int64_t)a->n_v * a->dv;
    const float *c = a->c + row * width;
    int32_t key_head = head / (a->n_v / a->n_k);
    float x = a->a[(int64_t)row * a->n_v + head] + a->dt_bias[head];
    float softplus = x > 20.0f ? x : log1pf(expf(x));
    return (struct inputs){
        .q = c + (int64_t)key_head * a->dk,
        .k = c + (int64_t)(a->n_k + key_head) * a->dk,
        .v = c + 2 * (int64_t)a->n_k * a->dk + (int64_t)head * a->dv,
        .g = a->a_neg[head] * softplus,
        .beta = td_ref_sigmoid(a->b[(int64_t)row * a->n_v + head]),
    };
}

/* y = x / |x| * factor */
static void unit(const float *x, int32_t n, float factor, float *y)
{
    float s = factor / sqrtf(td_ref_dot(x, x, n) + L2_EPS);
    for (int32_t i = 0; i < n; i++)
        y[i] = x[i] * s;
}

static void delta_step(struct td_cpu *cpu, const struct td_delta_args *a, int32_t row,
                       int32_t head)
{
    int32_t dk = a->dk, dv = a->dv;
    const struct td_batch *b = a->batch;
    struct inputs in = inputs_of(a, row, head);
    float *S = a->state + ((int64_t)b->slot[row] * a->n_v + head) * dk * dv;
    float *o = a->y + ((int64_t)row * a->n_v + head) * dv;
    float *q = td_cpu_scratch(cpu), *k = q + dk, *d = k + dk;
    float decay = expf(in.g);
    unit(in.q, dk, 1.0f / sqrtf((float)dk), q);
    unit(in.k, dk, 1.0f, k);
    if (b->pos[row] == 0)
        memset(S, 0, (size_t)dk * (size_t)dv * sizeof(*S));
    for (int32_t j = 0; j < dv; j++)
        d[j] = o[j] = 0;
    for (int32_t i = 0; i < dk; i++) {
        for (int32_t j = 0; j < dv; j++) {
            S[i * dv + j] *= decay;
            d[j] += k[i] * S[i * dv + j];
        }
    }
    for (int32_t j = 0; j < dv; j++)
        d[j] = in.beta * (in.v[j] - d[j]);
    for (int32_t i = 0; i < dk; i++) {
        for (int32_t j = 0; j < dv; j++) {
            S[i * dv + j] += k[i] * d[j];
            o[j] += q[i] * S[i * dv + j];
        }
    }
}

/* out[j] += f * sum over i of x[i] * S[i][j] */
static void add_product(const float *x, const float *S, int32_t dk, int32_t dv, float f,
                        float *out)
{
    for (int32_t i = 0; i < dk; i++)
        for (int32_t j = 0; j < dv; j++)
            out[j] += f * x[i] * S[(int64_t)i * dv + j];
}

static void delta_chunk(struct td_cpu *cpu, const struct td_delta_args *a, int32_t row,
                        int32_t n, int32_t head, float *S)
{
    int32_t dk = a->dk, dv = a->dv;
    int64_t wk = dk, wv = dv; /* for offsets */
    float *q = td_cpu_scratch(cpu), *k = q + TD_CHUNK * wk, *U = k + TD_CHUNK * wk;
    float *G = U + TD_CHUNK * wv;
    for (int32_t i = 0; i < n; i++) {
        struct inputs in = inputs_of(a, row + i, head);
        float *ki = k + i * wk, *Ui = U + i * wv;
        unit(in.q, dk, 1.0f / sqrtf((float)dk), q + i * wk);
        unit(in.k, dk, 1.0f, ki);
        G[i] = (i ? G[i - 1] : 0.0f) + in.g;
        memset(Ui, 0, (size_t)dv * sizeof(*Ui));
        add_product(ki, S, dk, dv, -expf(G[i]), Ui);
        for (int32_t j = 0; j < dv; j++)
            Ui[j] = in.beta * (in.v[j] + Ui[j]);
        for (int32_t j = 0; j < i; j++) {
            float A = in.beta * td_ref_dot(ki, k + j * wk, dk) * expf(G[i] - G[j]);
            for (int32_t d = 0; d < dv; d++)
                Ui[d] -= A * U[j * wv + d];
        }
    }
    for (int32_t i = 0; i < n; i++) {
        float *o = a->y + ((int64_t)(row + i) * a->n_v + head) * dv;
        memset(o, 0, (size_t)dv * sizeof(*o));
        add_product(q + i * wk, S, dk, dv, expf(G[i]), o);
        for (int32_t j = 0; j <= i; j++) {
            float w = td_ref_dot(q + i * wk, k + j * wk, dk) * expf(G[i] - G[j]);
            for (int32_t d = 0; d < dv; d++)
                o[d] += w * U[j * wv + d];
        }
    }
    float decay = expf(G[n - 1]);
    for (int32_t i = 0; i < dk * dv; i++)
        S[i] *= decay;
    for (int32_t j = 0; j < n; j++) {
        float f = expf(G[n - 1] - G[j]);
        for (int32_t i = 0; i < dk; i++)
            for (int32_t d = 0; d < dv; d++)
                S[i * wv + d] += f * k[j * wk + i] * U[j * wv + d];
    }
}

static void delta_piece(struct td_cpu *cpu, const struct td_delta_args *a, int32_t s,
                        int32_t head)
{
    const struct td_batch *b = a->batch;
    int64_t size = (int64_t)a->dk * a->dv;
    float *S = a->state + ((int64_t)b->slot[s] * a->n_v + head) * size;
    if (b->pos[b->row0[s]] == 0)
        memset(S, 0, (size_t)size * sizeof(*S));
    for (int32_t row = b->row0[s]; row < b->row0[s + 1]; row += TD_CHUNK)
        delta_chunk(cpu, a, row, TD_MIN(TD_CHUNK, b->row0[s + 1] - row), head, S);
}

static void delta_heads(struct td_cpu *cpu, const void *args, int64_t first,
                        int64_t last)
{
    const struct td_delta_args *a = args;
    const struct td_batch *b = a->batch;
    for (int64_t i = first; i < last; i++) {
        int32_t s = (int32_t)(i / a->n_v), head = (int32_t)(i % a->n_v);
        if (b->seq[b->row0[s]] < 0)
            continue;
        if (s < b->n_decode)
            delta_step(cpu, a, s, head);
        else
            delta_piece(cpu, a, s, head);
    }
}

static void ref_delta(struct td_dev *dev, const struct td_delta_args *a)
{
    int64_t seqs = a->batch->n_decode + a->batch->n_prefill;
    td_cpu_run((struct td_cpu *)dev, seqs * a->n_v, 1, delta_heads, a);
}

void td_ref_fill_delta(struct td_ops *ops)
{
    ops->conv = ref_conv;
    ops->delta = ref_delta;
}

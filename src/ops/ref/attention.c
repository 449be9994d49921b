/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated attention over the paged cache: norm, rotation and store; then scores, softmax
 * and the gated sum, position by position in order.
 */
#include "base/float.h"
#include "ops/ref/ref.h"

#include <math.h>

/* Where the element at (block, kv head, token) of a cache begins. */
static int64_t cache_at(const struct td_batch *b, int32_t seq, int32_t pos,
                        int32_t n_kv, int32_t head, int32_t dim)
{
    int64_t block = b->blocks[(int64_t)seq * b->max_blocks + pos / TD_KV_BLOCK];
    return ((block * n_kv + head) * TD_KV_BLOCK + pos % TD_KV_BLOCK) * dim;
}

static float load(const void *cache, int64_t i, bool bf16)
{
    return bf16 ? td_f32_from_bf16(((const uint16_t *)cache)[i])
                : ((const float *)cache)[i];
}

static void store(void *cache, int64_t i, bool bf16, float x)
{
    if (bf16)
        ((uint16_t *)cache)[i] = td_bf16_from_f32(x);
    else
        ((float *)cache)[i] = x;
}

/* Normalizes a head and rotates its first dims by position `pos`. */
static void norm_rope(const struct td_qkv_args *a, const float *w, int32_t pos,
                      const float *x, float *y)
{
    int32_t half = a->rotary / 2;
    float s = 1.0f / sqrtf(td_ref_dot(x, x, a->head_dim) / (float)a->head_dim + a->eps);
    for (int32_t d = 0; d < a->head_dim; d++)
        y[d] = x[d] * s * w[d];
    for (int32_t i = 0; i < half; i++) {
        float angle = (float)pos * a->inv_freq[i];
        float c = cosf(angle), sn = sinf(angle);
        float lo = y[i], hi = y[i + half];
        y[i] = lo * c - hi * sn;
        y[i + half] = hi * c + lo * sn;
    }
}

static void qkv_row(struct td_cpu *cpu, const struct td_qkv_args *a, int32_t r)
{
    const struct td_batch *b = a->batch;
    bool bf16 = cpu->dev.numerics == TD_NUM_BF16;
    int32_t dim = a->head_dim, pos = b->pos[r], seq = b->seq[r];
    float *head = td_cpu_scratch(cpu);
    for (int32_t h = 0; h < a->n_heads; h++) {
        float *q = a->qg + ((int64_t)r * a->n_heads + h) * 2 * dim;
        norm_rope(a, a->q_norm, pos, q, q);
    }
    for (int32_t h = 0; h < a->n_kv; h++) {
        int64_t from = ((int64_t)r * a->n_kv + h) * dim;
        int64_t to = cache_at(b, seq, pos, a->n_kv, h, dim);
        norm_rope(a, a->k_norm, pos, a->k + from, head);
        for (int32_t d = 0; d < dim; d++) {
            store(a->kv.k, to + d, bf16, head[d]);
            store(a->kv.v, to + d, bf16, a->v[from + d]);
        }
    }
}

static void qkv_rows(struct td_cpu *cpu, const void *args, int64_t first, int64_t last)
{
    const struct td_qkv_args *a = args;
    for (int64_t r = first; r < last; r++)
        if (a->batch->seq[r] >= 0)
            qkv_row(cpu, a, (int32_t)r);
}

static void ref_qkv(struct td_dev *dev, const struct td_qkv_args *a)
{
    td_cpu_run((struct td_cpu *)dev, a->batch->rows, 0, qkv_rows, a);
}

static void attention_head(struct td_cpu *cpu, const struct td_attention_args *a,
                           int32_t r, int32_t h)
{
    const struct td_batch *b = a->batch;
    bool bf16 = cpu->dev.numerics == TD_NUM_BF16;
    int32_t dim = a->head_dim, pos = b->pos[r], seq = b->seq[r];
    int32_t kv_head = h / (a->n_heads / a->n_kv);
    const float *q = a->qg + ((int64_t)r * a->n_heads + h) * 2 * dim;
    const float *gate = q + dim;
    float *y = a->y + ((int64_t)r * a->n_heads + h) * dim;
    float *p = td_cpu_scratch(cpu);
    float top = -INFINITY, sum = 0;
    for (int32_t t = 0; t <= pos; t++) {
        int64_t at = cache_at(b, seq, t, a->n_kv, kv_head, dim);
        float s = 0;
        for (int32_t d = 0; d < dim; d++)
            s += q[d] * load(a->kv.k, at + d, bf16);
        p[t] = s * a->scale;
        top = fmaxf(top, p[t]);
    }
    for (int32_t d = 0; d < dim; d++)
        y[d] = 0;
    for (int32_t t = 0; t <= pos; t++) {
        int64_t at = cache_at(b, seq, t, a->n_kv, kv_head, dim);
        float e = expf(p[t] - top);
        sum += e;
        for (int32_t d = 0; d < dim; d++)
            y[d] += e * load(a->kv.v, at + d, bf16);
    }
    for (int32_t d = 0; d < dim; d++)
        y[d] = y[d] / sum * td_ref_sigmoid(gate[d]);
}

static void attention_heads(struct td_cpu *cpu, const void *args, int64_t first,
                            int64_t last)
{
    const struct td_attention_args *a = args;
    for (int64_t i = first; i < last; i++)
        if (a->batch->seq[i / a->n_heads] >= 0)
            attention_head(cpu, a, (int32_t)(i / a->n_heads),
                           (int32_t)(i % a->n_heads));
}

static void ref_attention(struct td_dev *dev, const struct td_attention_args *a)
{
    int64_t heads = (int64_t)a->batch->rows * a->n_heads;
    td_cpu_run((struct td_cpu *)dev, heads, 4, attention_heads, a);
}

void td_ref_fill_attention(struct td_ops *ops)
{
    ops->qkv = ref_qkv;
    ops->attention = ref_attention;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products and table look-up. A weight row is expanded to f32 once and then
 * meets every input row, so the order of a row's sum never depends on how many there
 * are.
 */
#include "base/float.h"
#include "ops/ref/ref.h"

#include <string.h>

float td_ref_dot(const float *a, const float *b, int64_t n)
{
    float lane[REF_LANES] = {0};
    int64_t i = 0;
    for (; i + REF_LANES <= n; i += REF_LANES)
        for (int j = 0; j < REF_LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += a[i + j] * b[i + j];
    for (int width = REF_LANES / 2; width; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

static void expand_f8(const struct td_matrix *m, int64_t row, float *out)
{
    const uint8_t *w = (const uint8_t *)m->data + row * m->k;
    const float *scale = m->scale + row / TD_SCALE_BLOCK * td_scale_blocks(m->k);
    for (int64_t k = 0; k < m->k; k++)
        out[k] = td_f32_from_e4m3(w[k]) * scale[k / TD_SCALE_BLOCK];
}

void td_ref_expand(const struct td_matrix *m, int64_t row, float *out)
{
    if (m->type == TD_MAT_F8) {
        expand_f8(m, row, out);
    } else if (m->type == TD_MAT_BF16) {
        const uint16_t *w = (const uint16_t *)m->data + row * m->k;
        for (int64_t k = 0; k < m->k; k++)
            out[k] = td_f32_from_bf16(w[k]);
    } else {
        memcpy(out, (const float *)m->data + row * m->k, (size_t)m->k * sizeof(float));
    }
}

void td_ref_round(const float *x, int64_t stride, int32_t rows, int64_t k, float *out)
{
    for (int32_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < k; i++)
            out[r * k + i] = td_f32_from_bf16(td_bf16_from_f32(x[r * stride + i]));
}

struct product {
    const struct td_linear_term *term;
    const float *x;
    int64_t stride;
    int32_t rows;
};

static void product_outputs(struct td_cpu *cpu, const void *args, int64_t first,
                            int64_t last)
{
    const struct product *p = args;
    const struct td_linear_term *t = p->term;
    float *w = td_cpu_scratch(cpu);
    for (int64_t n = first; n < last; n++) {
        td_ref_expand(t->w, n, w);
        for (int32_t r = 0; r < p->rows; r++)
            t->y[r * t->y_stride + n] = td_ref_dot(w, p->x + r * p->stride, t->w->k);
    }
}

static void ref_linear(struct td_dev *dev, const struct td_linear_args *a)
{
    struct td_cpu *cpu = (struct td_cpu *)dev;
    int64_t k = a->term[0].w->k;
    bool rounds = dev->numerics == TD_NUM_BF16;
    if (rounds)
        td_ref_round(a->x, a->x_stride, a->rows, k, cpu->rounded);
    for (int32_t i = 0; i < a->count; i++) {
        bool rounded = rounds && !a->term[i].exact;
        struct product p = {.term = &a->term[i],
                            .x = rounded ? cpu->rounded : a->x,
                            .stride = rounded ? k : a->x_stride,
                            .rows = a->rows};
        td_cpu_run(cpu, a->term[i].w->n, 0, product_outputs, &p);
    }
}

static void ref_embed(struct td_dev *dev, const struct td_embed_args *a)
{
    (void)dev;
    int64_t h = a->table->k;
    for (int32_t r = 0; r < a->rows; r++) {
        int64_t row = a->token[r] - a->first;
        if (row >= 0 && row < a->table->n)
            td_ref_expand(a->table, row, a->x + r * h);
        else
            memset(a->x + r * h, 0, (size_t)h * sizeof(float));
    }
}

void td_ref_fill_linear(struct td_ops *ops)
{
    ops->linear = ref_linear;
    ops->embed = ref_embed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights from a hash instead of a file. See ops/random.h; all levels of the processor
 * share this layout, so none overrides it.
 */
#include "base/float.h"
#include "ops/random.h"
#include "ops/ref/ref.h"

static void fill_row(const struct td_fill_args *a, int64_t row)
{
    const struct td_matrix *m = a->m;
    int64_t from = a->from_row + row - a->row, at = row * m->k;
    float step = a->range / 65535.0f, code = TD_E4M3_MAX / 65535.0f;
    for (int64_t c = 0; c < m->k; c++) {
        int64_t col = a->from_col + c;
        uint64_t w = td_random_word(a->seed, td_random_place(from, col, a->cols));
        float odd = td_random_odd(w, (int)(col % TD_RANDOM_PER_WORD));
        if (m->type == TD_MAT_F8)
            ((uint8_t *)m->data)[at + c] = td_e4m3_from_f32(odd * code);
        else if (m->type == TD_MAT_BF16)
            ((uint16_t *)m->data)[at + c] = td_bf16_from_f32(odd * step);
        else
            ((float *)m->data)[at + c] = odd * step;
    }
}

static void fill_scales(const struct td_fill_args *a)
{
    const struct td_matrix *m = a->m;
    int64_t wide = td_scale_blocks(m->k), all = td_scale_blocks(a->cols);
    int64_t end = td_scale_blocks(a->row + a->n);
    for (int64_t r = a->row / TD_SCALE_BLOCK; r < end; r++)
        for (int64_t c = 0; c < wide; c++) {
            int64_t row = a->from_row / TD_SCALE_BLOCK + r - a->row / TD_SCALE_BLOCK;
            int64_t block = row * all + a->from_col / TD_SCALE_BLOCK + c;
            m->scale[r * wide + c] =
                a->range / TD_E4M3_MAX * td_random_factor(a->seed, block);
        }
}

static void fill_rows(struct td_cpu *cpu, const void *args, int64_t first, int64_t last)
{
    const struct td_fill_args *a = args;
    td_cpu_place(cpu, a->m, a->row + first);
    for (int64_t i = first; i < last; i++)
        fill_row(a, a->row + i);
}

static void ref_fill(struct td_dev *dev, const struct td_fill_args *a)
{
    td_cpu_run((struct td_cpu *)dev, a->n, 0, fill_rows, a);
    if (a->m->type == TD_MAT_F8)
        fill_scales(a);
}

void td_ref_fill_fill(struct td_ops *ops)
{
    ops->fill = ref_fill;
}

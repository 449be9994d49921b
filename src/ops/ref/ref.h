/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference shelf: plain C, slow and obvious, the truth that every other shelf is
 * checked against. Private to ops/ref.
 *
 * Sums of products run in REF_LANES partial sums (element i goes to lane i mod
 * REF_LANES), added up pairwise at the end: one fixed order that compilers can still
 * turn into vector code.
 */
#ifndef TD_OPS_REF_REF_H
#define TD_OPS_REF_REF_H

#include "ops/cpu.h"

enum { REF_LANES = 16 };

/* Sum of a[i] * b[i]. */
float td_ref_dot(const float *a, const float *b, int64_t n);

/* Row `row` of a matrix as f32, scales applied. */
void td_ref_expand(const struct td_matrix *m, int64_t row, float *out);

/* out[rows][k] = x rounded to bf16 and widened again. */
void td_ref_round(const float *x, int64_t stride, int32_t rows, int64_t k, float *out);

float td_ref_sigmoid(float x);
float td_ref_silu(float x);

void td_ref_fill_memory(struct td_ops *ops);
void td_ref_fill_fill(struct td_ops *ops);
void td_ref_fill_linear(struct td_ops *ops);
void td_ref_fill_rows(struct td_ops *ops);
void td_ref_fill_attention(struct td_ops *ops);
void td_ref_fill_delta(struct td_ops *ops);
void td_ref_fill_moe(struct td_ops *ops);

#endif

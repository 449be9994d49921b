/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels built for AVX-512 with BF16 and VBMI.
 */
#include "base/float.h"
#include "ops/x86/vec.h"
#include "ops/x86/x86.h"

#include <math.h>
#include <string.h>

enum { HAS_DOT = 1 };

#include "ops/x86/attention.inc"
#include "ops/x86/delta.inc"
#include "ops/x86/limits.inc"
#include "ops/x86/moe.inc"
#include "ops/x86/rows.inc"

void td_x86_fill_avx512bf16(struct td_ops *ops)
{
    ops->name = "avx512bf16";
    ops->reserve = td_x86_reserve;
    ops->embed = x86_embed;
    ops->norm = x86_norm;
    ops->linear = x86_linear;
    ops->qkv = x86_qkv;
    ops->attention = x86_attention;
    ops->conv = x86_conv;
    ops->delta = x86_delta;
    ops->gated_norm = x86_gated_norm;
    ops->swiglu = x86_swiglu;
    ops->route = x86_route;
    ops->experts = x86_experts;
}

void td_x86_limits_avx512bf16(struct td_limit_loops *l)
{
    l->read = x86_read;
    l->fma = x86_fma;
    l->fma_flops = 2.0 * CHAINS * LANES;
    l->dot = x86_dot;
    l->dot_flops = 4.0 * CHAINS * LANES;
}

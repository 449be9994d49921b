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

#include "ops/x86/linear.inc"
#include "ops/x86/moe.inc"
#include "ops/x86/product.inc"

void td_x86_fill_avx512bf16(struct td_ops *ops)
{
    ops->name = "avx512bf16";
    ops->reserve = td_x86_reserve;
    ops->linear = x86_linear;
    ops->embed = x86_embed;
    ops->experts = x86_experts;
}

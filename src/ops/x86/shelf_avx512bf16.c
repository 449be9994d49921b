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

#include "ops/x86/shelf.inc"

void td_x86_fill_avx512bf16(struct td_ops *ops)
{
    x86_fill(ops, "avx512bf16");
}

void td_x86_limits_avx512bf16(struct td_limit_loops *l)
{
    x86_limits(l);
    l->dot = x86_dot;
    l->dot_flops = 4.0 * CHAINS * LANES;
}

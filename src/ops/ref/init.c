/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference shelf's table.
 */
#include "ops/ref/ref.h"

void td_ops_fill_ref(struct td_ops *ops)
{
    ops->name = "ref";
    td_ref_fill_memory(ops);
    td_ref_fill_fill(ops);
    td_ref_fill_linear(ops);
    td_ref_fill_rows(ops);
    td_ref_fill_attention(ops);
    td_ref_fill_delta(ops);
    td_ref_fill_moe(ops);
}

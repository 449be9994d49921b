/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of kinds. See rules.h for the columns.
 */
#ifndef TD_EXPLAIN_KINDS_DEF_H
#define TD_EXPLAIN_KINDS_DEF_H

#include "explain/rules.h"

extern const struct td_kind td_kinds_cluster[], td_kinds_node[];
extern const size_t td_kinds_cluster_count, td_kinds_node_count;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short forms for the rows of the rules_*.c tables. See rules.h for the columns.
 */
#ifndef TD_EXPLAIN_RULES_DEF_H
#define TD_EXPLAIN_RULES_DEF_H

#include "explain/rules.h"

#define TD_RULE(i, r, k, w, l, p, n, s)                                                \
    .id = (i), .role = (r), .kind = (k), .weight = (w), .lit = (l), .re = (p),         \
    .needs = (n), .says = (s)

#define CAUSE(id, kind, weight, lit, re, needs, says)                                  \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_CAUSE, kind, weight, lit, re, needs, says)                 \
    }
#define CAUSE_IF(id, kind, weight, lit, re, needs, says, f)                            \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_CAUSE, kind, weight, lit, re, needs, says), .check = (f)   \
    }
#define CAUSE_AT(id, kind, weight, at, lit, re, needs, says)                           \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_CAUSE, kind, weight, lit, re, needs, says), .host = (at)   \
    }
#define EITHER(id, kind, weight, lit, re, needs, says)                                 \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_EITHER, kind, weight, lit, re, needs, says)                \
    }
#define EITHER_IF(id, kind, weight, lit, re, needs, says, f)                           \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_EITHER, kind, weight, lit, re, needs, says), .check = (f)  \
    }
#define EFFECT(id, lit, re, says)                                                      \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_EFFECT, 0, 0, lit, re, 0, says)                            \
    }
#define NOISE(id, lit, re, says)                                                       \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_NOISE, 0, 0, lit, re, 0, says)                             \
    }
#define FACT(id, lit, re, names)                                                       \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_FACT, 0, 0, lit, re, 0, names)                             \
    }
#define PHASE(id, step, lit, re)                                                       \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_PHASE, 0, step, lit, re, 0, 0)                             \
    }
/* A step whose first capture is the process's rank. */
#define RANK(id, step, lit, re)                                                        \
    {                                                                                  \
        TD_RULE(id, TD_ROLE_PHASE, 0, step, lit, re, 0, "rank")                        \
    }

extern const struct td_rule td_rules_common[], td_rules_nccl[], td_rules_ray[],
    td_rules_net[], td_rules_fabric[], td_rules_gpu[], td_rules_memory[],
    td_rules_model[], td_rules_start[], td_rules_host[];
extern const size_t td_rules_common_count, td_rules_nccl_count, td_rules_ray_count,
    td_rules_net_count, td_rules_fabric_count, td_rules_gpu_count,
    td_rules_memory_count, td_rules_model_count, td_rules_start_count,
    td_rules_host_count;

/* Second facts that need arithmetic (checks.c). */
int td_check_node_ip(const struct td_explain *x, const struct td_hit *hit);
int td_check_fewer_ips(const struct td_explain *x, const struct td_hit *hit);
int td_check_surplus_ips(const struct td_explain *x, const struct td_hit *hit);
int td_check_store_bridge(const struct td_explain *x, const struct td_hit *hit);
int td_check_store_apart(const struct td_explain *x, const struct td_hit *hit);
int td_check_store_plain(const struct td_explain *x, const struct td_hit *hit);
int td_check_same_subnet(const struct td_explain *x, const struct td_hit *hit);
int td_check_free_close(const struct td_explain *x, const struct td_hit *hit);
int td_check_free_unified(const struct td_explain *x, const struct td_hit *hit);
int td_check_free_held(const struct td_explain *x, const struct td_hit *hit);
int td_check_restarts(const struct td_explain *x, const struct td_hit *hit);
int td_check_hangs_here(const struct td_explain *x, const struct td_hit *hit);
int td_check_two_values(const struct td_explain *x, const struct td_hit *hit);
int td_check_joined_two(const struct td_explain *x, const struct td_hit *hit);
int td_check_arch_not_in_list(const struct td_explain *x, const struct td_hit *hit);
int td_check_arch_in_list(const struct td_explain *x, const struct td_hit *hit);
int td_check_cut_config(const struct td_explain *x, const struct td_hit *hit);

#endif

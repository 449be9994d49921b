/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of rule tables.
 */
#include "explain/rules_def.h"

/* A set's count is a constant of another file, so the list is filled by pointer. */
const struct td_rule_set td_rule_sets[] = {
    {td_rules_common, &td_rules_common_count},
    {td_rules_nccl, &td_rules_nccl_count},
    {td_rules_ray, &td_rules_ray_count},
    {td_rules_net, &td_rules_net_count},
    {td_rules_fabric, &td_rules_fabric_count},
    {td_rules_gpu, &td_rules_gpu_count},
    {td_rules_memory, &td_rules_memory_count},
    {td_rules_model, &td_rules_model_count},
    {td_rules_start, &td_rules_start_count},
    {td_rules_host, &td_rules_host_count},
    {NULL, NULL},
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of kind tables, and remedies for particular situations.
 */
#include "explain/kinds_def.h"

#include "base/compiler.h"

const struct td_kind_set td_kind_sets[] = {
    {td_kinds_cluster, &td_kinds_cluster_count},
    {td_kinds_node, &td_kinds_node_count},
    {NULL, NULL},
};

/* clang-format off */
const struct td_remedy td_remedies[] = {
{"ray-memory-monitor-kill", "capture_text|@capture|@cache",
 "leave room for graph capture: --gpu-memory-utilization 0.80; on unified memory also RAY_memory_monitor_refresh_ms=0 for `ray start`, since page cache and GPU memory are counted as the host's"},
{"ray-memory-monitor-kill", "@load !@cache",
 "give the node more memory or load less at once: fewer workers per node, no copy of the weights in /dev/shm; RAY_memory_usage_threshold=0.98 buys a little"},
{"tcpstore-unreachable", "=net/store-apart",
 "rank 0 advertised an address that this host has no route to, while Ray talks over ${ray_head}: set VLLM_HOST_IP on each host to its address in that network, and GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to its interface, before Ray is started"},
{"ray-node-ip-mismatch", "ray_node",
 "Ray knows ${ray_node}: set VLLM_HOST_IP on this host to the address that `ray status` shows for it (or start Ray with --node-ip-address), before Ray is started. The hint about tensor parallel size is false here"},
{"kv-cache-negative", "unified_gpu",
 "use less memory per rank: smaller --max-num-batched-tokens, fewer sequences, more ranks. On unified memory do not follow the printed advice: a larger fraction starves the host"},
{"kernel-pinning-regression", "unified_gpu",
 "go back to the kernel that worked (6.x), or use sockets (NCCL_IB_DISABLE=1) until the kernel is corrected; the locked-memory limit is worth a look first (ulimit -l)"},
{"wrong-interface-docker0", "net/docker0|net/docker0-boot",
 "name the interface of the data network on each host: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, or at least NCCL_SOCKET_IFNAME=^docker,br-,virbr,lo"},
{"tp-exceeds-local-gpus-no-ray", "gpus_total|ray_active",
 "the Ray cluster is up, but the engine was not told to use it: add --distributed-executor-backend ray"},
};
/* clang-format on */
const size_t td_remedy_count = TD_COUNT(td_remedies);

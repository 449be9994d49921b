/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA: devices, queue pairs, completions, memory registration.
 */
#include "explain/rules_def.h"

#include "base/compiler.h"

/* clang-format off */
const struct td_rule td_rules_fabric[] = {

/* --- devices --- */
EITHER("fabric/no-device", "ib-device-missing-in-container", 54, "net/ib : no device found|no ib devices found",
      0, "!fabric/ibverbs-open", "NCCL sees no RDMA device: its device nodes are not in this container[ (asked for ${ib_hca})]"),
EITHER("fabric/socket-despite-hca", "ib-device-missing-in-container", 42, "using network socket", "Using network Socket", "ib_hca", "RDMA was asked for (${ib_hca}), but NCCL uses sockets"),
CAUSE("fabric/no-plugin", "ib-device-missing-in-container", 82, "failed to initialize any net plugin", 0, 0,
      "NCCL can use no network at all: its RDMA devices are not in this container[ (asked for ${ib_hca})]"),
CAUSE("fabric/wrong-type", "ib-device-missing-in-container", 78, "wrong type", "socketFinalizeAccept: wrong type (\\d+) != (\\d+)", 0,
      "the ranks chose different transports: one has RDMA devices, the other has none"),
EITHER("fabric/no-infiniband-dir", "ib-device-missing-in-container", 60, "/dev/infiniband|failed to get ib devices list|couldn't open /sys/class/infiniband",
      "(/dev/infiniband|ib devices list|/sys/class/infiniband).{0,60}(No such file|not found|missing|cannot)|failed to get IB devices", 0,
      "the RDMA device nodes are not in this container"),
EITHER("fabric/ibverbs-open", "ib-library-missing", 57, "failed to open libibverbs|libibverbs.so|libibverbs: warning",
      "(Failed to open libibverbs|libibverbs\\.so\\S*: cannot open|libibverbs: Warning: couldn't load driver)", 0,
      "the image has no libibverbs, so RDMA cannot be used"),
CAUSE("fabric/ucx-device", "device-name-typo", 92, "is not available, please use one or more of",
      "device '([\\w:.-]+)' is not available, please use one or more of: (.{5,160})", 0,
      "the device $1 does not exist here; there are $2"),
EITHER("fabric/hca-list", "device-name-typo", 24, "nccl ib hcas:", "NCCL IB HCAs: +(\\S+)", 0,
      "the RDMA devices that are set ($1) may not exist on this host"),
EITHER("fabric/hca-env-none", "device-name-typo", 50, "net/ib : no device found", 0, "ib_hca",
      "the RDMA devices that are named (${ib_hca}) do not exist here"),
EITHER("fabric/dv-symbol", "gpudirect-not-supported", 45, "undefined symbol: mlx5dv|dlvsym failed on mlx5dv",
      "(undefined symbol:|dlvsym failed on) (mlx5dv\\w+)", 0, "the RDMA library here is older than this path needs ($2): transfers go through host memory"),
EITHER("fabric/gdr-disabled", "gpudirect-not-supported", 35, "gdr 0|gpu direct rdma (nvidia",
      "GPU Direct RDMA \\(nvidia|GDR 0\\b", 0, 0),

/* --- queue pairs --- */
CAUSE("fabric/modify-110", "hca-list-pairs-wrong-ports", 80, "ibv_modify_qp",
      "ibv_modify_qp failed with (?:error )?(?:110 )?(?:Connection timed out)(?:.{0,20}110)?(?:,? on dev ([\\w:]+))?", 0,
      "a queue pair cannot be connected[ on $1]: the ports that are paired are not on the same wire"),
CAUSE("fabric/modify-61", "roce-gid-index", 82, "ibv_modify_qp",
      "ibv_modify_qp failed with (?:error )?(?:61|No data available)(?:.{0,60}on dev ([\\w:]+))?", 0,
      "the GID index that is used is empty[ on $1]"),
CAUSE("fabric/modify-22", "roce-gid-index", 66, "ibv_modify_qp",
      "ibv_modify_qp failed with (?:error )?(?:22|Invalid argument)(?:.{0,60}on dev ([\\w:]+))?", 0,
      "a queue pair is refused[ on $1]: the GID index or type does not fit"),
CAUSE("fabric/modify-unreachable", "roce-path-down-or-lossy", 84, "ibv_modify_qp",
      "ibv_modify_qp failed with (?:error )?(?:101|113|Network is unreachable|No route to host)", 0,
      "the RDMA interface has no address or route to its peer"),
CAUSE("fabric/gid-changed", "roce-gid-index", 70, "gid table changed", 0, 0, "the GID table changed while the job ran"),
CAUSE("fabric/comp-12", "roce-gid-index", 60, "got completion with error|got completion from peer",
      "Got completion (with error 12\\b|from peer\\b)", 0,
      "an RDMA transfer was never answered: the GID index or its type does not fit the peer"),
EITHER("fabric/comp-12-path", "roce-path-down-or-lossy", 57, "got completion with error|got completion from peer",
      "Got completion (with error 12\\b|from peer\\b)", 0,
      "an RDMA transfer was never answered: the path is down or loses packets"),
CAUSE("fabric/comp-12-v4", "roce-path-down-or-lossy", 66, "got completion from peer",
      "Got completion from peer.{0,160}localGid ?::ffff:[\\d.]+ remoteGids? ?::ffff:[\\d.]+", 0,
      "an RDMA transfer was never answered although both ends use an IPv4 GID: the path is down or loses packets"),
EITHER("fabric/retry-exc", "mtu-mismatch", 56, "retry_exc_err|transport retry counter exceeded", "(RETRY_EXC_ERR|transport retry counter exceeded)", 0,
      "RDMA retries ran out: large packets do not pass (MTU), or the path loses them"),
CAUSE("fabric/retry-exc-modify", "mtu-mismatch", 66, "retry_exc_err", 0, "fabric/modify-any",
      "RDMA retries ran out and queue pairs could not be renewed: the MTUs or GID tables of the two ends differ"),
EITHER("fabric/modify-any", "hca-list-pairs-wrong-ports", 45, "ibv_modify_qp failed", 0, 0, "a queue pair could not be connected"),
CAUSE("fabric/async-port", "roce-path-down-or-lossy", 66, "async event|async fatal event", "(async (fatal )?event).{0,80}(port error|port_err|PORT_ERR|fatal)", 0,
      "an RDMA port failed while it was in use"),
CAUSE("fabric/mtu-text", "mtu-mismatch", 74, "message too long|mtu mismatch|mtu ", "(Message too long, mtu=|MTU mismatch|mtu.{0,30}(differs|does not match))", 0,
      "the MTUs of the two ends differ"),
CAUSE("fabric/qp-limit", "queue-pairs-exhausted", 93, "limited number of queue pairs|creating the queue pair failed",
      "Creating the queue pair failed with errno (\\d+)|limited number of queue pairs", 0, "the RDMA device has no queue pair left[ (errno $1)]"),
CAUSE("fabric/create-qp", "queue-pairs-exhausted", 62, "ibv_create_qp", "ibv_create_qp failed with (?:error )?(.{3,40})", 0,
      "the RDMA device cannot make another queue pair ($1)"),
CAUSE("fabric/jaccl-rtr", "rdma-state-stale", 76, "queue pair to", "\\[jaccl\\] Changing queue pair to (\\w+) failed with errno (\\d+)", 0,
      "the RDMA port refuses to change its state to $1 (errno $2)"),
CAUSE("fabric/jaccl-other", "rdma-state-stale", 55, "[jaccl]", "\\[jaccl\\](?!.{0,20}Creating the queue).{0,60}(fail|could ?n.t|error)", 0, 0),
CAUSE("fabric/runner-segv", "rdma-absent-not-checked", 62, "runnerfailed", "RunnerFailed.{0,60}(signal=11|Segmentation fault)", 0,
      "a runner crashed in the RDMA library: these machines have no RDMA that can be used"),

CAUSE("fabric/gid-text", "roce-gid-index", 74, "gid index|gid_index", "gid.?index.{0,40}(invalid|out of range|not found|does not exist|empty|mismatch)|(invalid|bad|no) gid.?index", 0, "the GID index that is set does not exist or does not fit"),
CAUSE("fabric/reg-mr-fault", "kernel-pinning-regression", 60, "ibv_reg_mr", "ibv_reg_mr(?:_iova2)? failed with (?:error )?(?:14 )?Bad address", 0, "memory cannot be pinned for RDMA on this kernel"),
CAUSE("fabric/net-types", "hca-list-pairs-wrong-ports", 72, "attempted to connect incompatible devices|device is incompatible with the local", 0, 0, "devices of different link types are paired: the lists of the two hosts do not match"),

/* --- memory registration --- */
CAUSE("fabric/reg-mr", "kernel-pinning-regression", 66, "ibv_reg_mr", "ibv_reg_mr(?:_iova2)? failed with (?:error )?(?:12 )?Cannot allocate memory", "!fabric/memlock-text !fabric/memlock-part",
      "memory cannot be pinned for RDMA: this kernel cannot move the pages, or the locked-memory limit is too low"),
EITHER("fabric/reg-mr-limit", "memlock-limit", 58, "ibv_reg_mr", "ibv_reg_mr(?:_iova2)? failed with (?:error )?(?:12 )?Cannot allocate memory", 0,
      "memory cannot be pinned for RDMA: the locked-memory limit is too low"),
CAUSE("fabric/cq-create", "memlock-limit", 88, "failed to create a completion queue", 0, 0,
      "the RDMA library cannot pin memory: the locked-memory limit is too low"),
CAUSE("fabric/cq-create-verbs", "memlock-limit", 70, "ibv_create_cq", "ibv_create_cq failed.{0,20}Cannot allocate memory", 0,
      "the RDMA library cannot pin memory: the locked-memory limit is too low"),
CAUSE("fabric/memlock-text", "memlock-limit", 86, "memlock|locked memory|max locked",
      "((locked|lock(ed)?-?)\\s?memory (limit|size)|RLIMIT_MEMLOCK|memlock).{0,80}(too low|exceed|limit|small|fail|insufficient|\\d+ ?k)", 0,
      "the locked-memory limit is too low for RDMA"),
CAUSE("fabric/memlock-part", "memlock-limit", 86, "registering part of your physical memory|registerable memory:", 0, 0,
      "MPI may pin only a part of the memory for RDMA: the locked-memory limit is too low"),
CAUSE("fabric/imex", "fabric-handle-imex", 84, "cumemcreate|cumemimport|cu_mem_handle_type_fabric|imex",
      "(cuMemCreate|cuMemImport\\w*|FABRIC|imex).{0,80}(not[ _]permitted|not[ _]supported|failed|no such file)|"
      "NOT_(PERMITTED|SUPPORTED).{0,80}(cuMemCreate|cuMemImport|HANDLE_TYPE_FABRIC)", 0,
      "memory of the fabric type cannot be made: no usable IMEX channel"),
EITHER("fabric/mnnvl-workspace", "allreduce-workspace-mnnvl", 58, "mnnvl|allreduce workspace|all reduce workspace|allreduce_fusion_workspace",
      "(MNNVL|mnnvl|multi-node nvlink|all ?-?reduce(_fusion_)? ?workspace).{0,120}(workspace|fail|error|not supported|init)", 0,
      "a workspace for NVLink between nodes is set up on machines that have none"),
};
/* clang-format on */
const size_t td_rules_fabric_count = TD_COUNT(td_rules_fabric);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting and meeting: ports, rendezvous, time limits, launchers, llama.cpp RPC, and the
 * messages that hold no cause at all.
 */
#include "explain/rules_def.h"

#include "base/compiler.h"

/* clang-format off */
const struct td_rule td_rules_start[] = {

/* --- ports --- */
CAUSE("start/eaddrinuse", "port-in-use", 92, "address already in use",
      "(?:addr='?tcp://([\\w.:\\[\\]-]+)|port: ?(\\d+)|\\('?([\\d.]*)'?, ?(\\d+)\\)|:(\\d{2,5})\\b).{0,80}address already in use|address already in use.{0,20}\\(?addr='?tcp://([\\w.:-]+)", 0,
      "the port[ $1][ $2][ $4][ $5][ $6] is taken by another process"),
CAUSE("start/eaddrinuse-text", "port-in-use", 90, "address already in use|eaddrinuse|only one usage of each socket address", 0, 0,
      "a port is taken by another process"),
CAUSE("start/port-docker", "port-in-use", 92, "port is already allocated|ports are not available|port is already in use|is already in use by another process",
      0, 0, "a port is taken by another process or container"),

/* --- rendezvous --- */
CAUSE_IF("start/store-joined", "worker-never-joined", 62, "clients joined", "Timed out after (\\d+) seconds waiting for clients\\. (\\d+)/(\\d+) clients joined", 0,
      "only $2 of $3 ranks came to the rendezvous within $1 s: the other host's process never got there", td_check_joined_two),
CAUSE("start/store-joined-many", "rank-world-size-wrong", 60, "clients joined", "Timed out after (\\d+) seconds waiting for clients\\. (\\d+)/(\\d+) clients joined", 0,
      "only $2 of $3 ranks came to the rendezvous within $1 s: the number of ranks, or a rank's number, is wrong, or the others ended before"),
CAUSE("start/store-wait", "engine-bug-multinode-assert", 56, "wait timeout after", "wait timeout after (\\d+) ?ms, keys: (\\S+)", 0,
      "ranks wait for the key $2 that another rank never set"),
EITHER("start/store-wait-joined", "worker-never-joined", 52, "wait timeout after", "wait timeout after (\\d+) ?ms, keys: (\\S+)", 0,
      "a rank waited $1 ms for another that never came"),
CAUSE("start/rank-range", "rank-world-size-wrong", 80, "out of world size|invalid rank requested|not in world size|must be less than world|must be in world|exceeds world size|exceeds the world size|>= world size",
      "(rank (\\d+) .{0,20}(?:is )?(?:out of|not in|must be (?:less|in)|>=|exceeds).{0,30}world.?size|Invalid rank requested|rank \\d+ of \\d+ ranks has already checked in)", 0,
      "a rank's number and the number of ranks do not fit"),
CAUSE("start/checked-in", "rank-world-size-wrong", 84, "ranks has already checked in|mismatch in info from procs", 0, 0, "two processes came with the same rank"),
EITHER("start/wait-input", "engine-bug-multinode-assert", 44, "waitforinput", "waitForInput: .{0,200}(timed out|likely a timeout)", 0, "a rank waits for an entry of the store that another rank never made"),
EITHER("start/wait-input-joined", "worker-never-joined", 42, "waitforinput", "waitForInput: .{0,200}(timed out|likely a timeout)", 0, "a rank waits for another one that never came"),
EITHER("start/mgmn", "worker-never-joined", 40, "run mgmn leader node", 0, 0, "the leader waits for ranks of other nodes that never come"),
CAUSE_IF("start/waiting-nodes", "worker-never-joined", 22, "waiting for workers|waiting for nodes|workers to join|nodes to join|for all ranks to join|waiting for other nodes|waiting for the remaining",
      "(waiting for.{0,40}(workers?|nodes?|ranks?)|(workers?|nodes?|ranks) to join)", 0, "a node waits for others that never join", td_check_hangs_here),
CAUSE("start/dp-coordinator", "dp-coordinator-timeout", 92, "dp coordinator process failed to report", 0, 0,
      "the data-parallel coordinator did not come up within its fixed limit: process start is slow here"),
CAUSE("start/dp-coordinator-other", "dp-coordinator-timeout", 80, "dp coordinator", "DP Coordinator.{0,60}(timed out|timeout|died|failed)", 0,
      "the data-parallel coordinator did not come up"),
EITHER("start/dp-backend", "dp-backend-mismatch", 8, "shared memory broadcast block", "No available shared memory broadcast block found in 60 second", 0,
      "ranks of a data-parallel start wait for each other: their back ends may differ"),
CAUSE("start/dp-backend-text", "dp-backend-mismatch", 76, "data_parallel_backend|data-parallel-backend", "data[_-]parallel[_-]backend.{0,80}(must|mismatch|not supported|conflict|only)", 0,
      "the data-parallel back end does not fit the executor"),
EITHER("start/mnnvl-hint", "allreduce-workspace-mnnvl", 7, "shared memory broadcast block", "No available shared memory broadcast block found in 60 second", 0,
      "a start that stands still may be setting up a workspace for NVLink between nodes"),
CAUSE("start/engines-initial", "engine-ready-timeout", 80, "timed out waiting for engines to send|timed out waiting for engine core|did not receive response from front-end|waiting for local engine core",
      "(Timed out waiting for engine|Did not receive response from front-end)", 0, "the front end gave up waiting while the engines were still loading or warming up"),
CAUSE("start/server-timeout", "engine-ready-timeout", 80, "server failed to start within|engine is not ready within|did not become ready|not become healthy|failed to become ready",
      0, 0, "the server was not ready within the limit of whoever started it"),
CAUSE("start/other-rank-loading", "other-rank-failed-loading", 64, "there are other ranks that didn't finish loading|other ranks that didn't finish", "TP rank (\\d+) could finish", 0,
      "rank $1 loaded its weights, another rank did not: that one's log holds the cause"),
CAUSE("start/rpc-timeout-dead", "collective-divergence", 46, "rpc call to", "RPC call to (\\w+) timed out", "engine_dead",
      "one rank stopped answering ($1): it stands in a collective that the others did not enter"),
EITHER("start/rpc-timeout", "collective-divergence", 34, "rpc call to", "RPC call to (\\w+) timed out", "!engine_dead",
      "one rank stopped answering ($1): it stands in a collective that the others did not enter"),
CAUSE("start/silent-death", "silent-worker-death-after-ready", 62, "exit code: none|exitcode: none|exitcode=none", 0, 0, "a worker ended without an exit code or a word"),
EITHER("start/died-after-ready", "silent-worker-death-after-ready", 50, "died unexpectedly", "Worker(?: ?proc)?\\b.{0,60}died unexpectedly", "@ready",
      "a worker ended after the start was complete, and its last words are not in these files"),
EITHER("start/broken-pipe", "peer-connection-lost", 20, "broken pipe", 0, 0, "a peer dropped its connection"),
EITHER("start/should-dump", "peer-died-tcpstore-closed", 40, "\"should dump\" flag on tcpstore", 0, 0,
      "rank 0's process, which holds the store, ended first; its own log holds the cause"),
EITHER("start/recv-value", "peer-died-tcpstore-closed", 38, "recvvalue failed|sendbytes failed|recv, got 0 bytes|failed to recv, got", 0, 0,
      "the process that holds the store ended first; its own log holds the cause"),
CAUSE("start/store-closed", "peer-died-tcpstore-closed", 44, "connection was likely closed. did the remote server shutdown", 0, "!effect/should-dump", "the process that holds the store ended first"),

/* --- launchers --- */
CAUSE("start/orte", "mpi-daemon-start-failed", 92, "unable to reliably start one or more daemons|orted: command not found|prte was unable to|prted: command not found",
      0, 0, "MPI could not start its daemon on another host"),
CAUSE("start/orte-other", "mpi-daemon-start-failed", 82, "lost communication with a remote daemon|orte daemon has unexpectedly failed|prte daemon has unexpectedly failed|daemon failed to start|plm_rsh_agent", 0, 0,
      "MPI's daemon on another host failed"),
CAUSE("start/slurm-pmi", "slurm-env-leaks-into-mpi", 90, "slurm's pmi support|direct launched using \"srun\"", 0, 0, "variables of the outer Slurm job confuse MPI"),
CAUSE("start/pmix", "slurm-env-leaks-into-mpi", 62, "pmix_init|pmi2_init|mpi_comm_spawn", "(PMIx?2?_Init|MPI_Comm_spawn).{0,80}(fail|error|not)", 0, "variables of an outer job confuse MPI"),
EITHER("start/script-on", "script-goes-on-after-failure", 68, "continuing anyway|continue anyway|proceeding anyway", 0, 0, "the launch script met a failure and went on"),
EITHER("start/commands-differ", "launch-commands-differ", 8, "received sigquit|sigquit from a child", 0, 0, "the commands of the two nodes may differ"),
CAUSE_IF("start/python-differs", "launch-commands-differ", 50, "python", "Python(?: version)?: ?(3\\.\\d+(?:\\.\\d+)?)", "python_version !ray/version !ray/version-bare", "the hosts run different Python versions", td_check_two_values),
CAUSE("start/args-differ", "launch-commands-differ", 78, "arguments differ|config hash mismatch|configuration mismatch|configs are inconsistent|configuration hash", 0, 0, "the processes were started with different settings"),
CAUSE("start/pid-file", "zombie-earlier-instance", 72, "pid file|pidfile|another instance|is already running", "(pid ?file.{0,40}exist|another instance.{0,40}(running|active)|already running.{0,20}\\(?pid)", 0,
      "an earlier instance still runs here"),
CAUSE("start/preflight", "preflight-false-alarm", 70, "setup stopped|preflight|pre-flight|jumbo connectivity",
      "(setup stopped: .{3,80}failed|pre-?flight.{0,60}(failed|stopped|error)|jumbo connectivity failed)", 0, "a check before the start stopped it; the check itself may be wrong"),

/* --- llama.cpp RPC --- */
CAUSE("start/rpc-version", "rpc-version-mismatch", 94, "expected hello command, update client|rpc server version mismatch|rpc protocol version mismatch", 0, 0, "the RPC server speaks another protocol version than this program"),
EITHER("start/rpc-accepted", "rpc-version-mismatch", 34, "accepted client connection|starting rpc server v", 0, 0, "the RPC connection is closed right after it was accepted: versions may differ"),
CAUSE("start/rpc-crashed", "rpc-remote-crashed", 84, "remote rpc server crashed", 0, 0, "the RPC server on the other host crashed; its own terminal shows why"),
CAUSE("start/rpc-assert", "rpc-remote-crashed", 60, "ggml_assert(status)|ggml_assert(ok)", 0, 0, "the RPC server on the other host ended in the middle of a call"),
CAUSE("start/rpc-zero", "rpc-memory-zero-means-unreachable", 86, "using device rpc", "using device RPC\\S*.{0,80} - 0 MiB free", 0, "an RPC server cannot be reached: it is listed with 0 MiB"),
CAUSE("start/rpc-connect", "rpc-memory-zero-means-unreachable", 62, "failed to connect to", "(?<!will )failed to connect to ([\\w.-]*:\\d+)\\s*$", "ggml !start/rpc-version", "the RPC server $1 cannot be reached"),

EITHER("start/rpc-connect-bare", "rpc-memory-zero-means-unreachable", 40, "failed to connect to", "^(?:E )?Failed to connect to ([\\w.-]*:\\d+)\\s*$", "!start/rpc-version", "the RPC server $1 cannot be reached"),

/* --- no cause inside --- */
EITHER("noise/broadcast", "broadcast-block-noise", 25, "shared memory broadcast block", "No available shared memory broadcast block found in (?!60 )(\\d+) second", 0,
      "the heartbeat of a waiting reader ($1 s) was taken for a fault"),
EITHER("noise/broadcast-60", "broadcast-block-noise", 5, "shared memory broadcast block", "No available shared memory broadcast block found in 60 second|No available shared memory broadcast block\\s*$", 0,
      "the heartbeat of a waiting reader was taken for a fault"),
EITHER("noise/cascade", "cascade-noise", 13, "sigquit|kill_process_tree called", "sigquit|kill_process_tree", 0, "only the tear-down is left; the first exception is not in the files"),
EITHER("noise/engine-core", "engine-core-failed-no-cause", 12, "enginecore failed to start|engine core initialization failed|engine process failed to start", 0, 0,
      "the engine reports its own end; the error that caused it is not in the files"),
EITHER("noise/engine-dead", "engine-core-failed-no-cause", 11, "enginedeaderror|workerproc initialization failed|enginecore encountered a fatal error", 0, 0,
      "the engine reports its own end; the error that caused it is not in the files"),
};
/* clang-format on */
const size_t td_rules_start_count = TD_COUNT(td_rules_start);

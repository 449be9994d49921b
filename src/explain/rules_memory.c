/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: of the GPU, of the cache, of the host, of a container.
 */
#include "explain/rules_def.h"

#include "base/compiler.h"

#define OOM_LIT                                                                        \
    "cuda out of memory|outofmemoryerror|cuda error: out of memory|hip out of "        \
    "memory|cudamalloc failed: out of memory|cuda_error_out_of_memory|"                \
    "unable to allocate cuda"
#define OOM_RE                                                                         \
    "(?<!ray\\.exceptions\\.)(CUDA out of memory|CUDA error: out of memory|HIP out "   \
    "of memory|cudaMalloc failed: out of "                                             \
    "memory|CUDA_ERROR_OUT_OF_MEMORY|torch\\S*OutOfMemoryError|unable to allocate "    \
    "CUDA)"                                                                            \
    "(?:.{0,20}Tried to allocate ([\\d.]+ \\w+)\\.? GPU (\\d+) has a total capacity "  \
    "of ([\\d.]+ \\w+) of which ([\\d.]+ \\w+))?"
#define FREE_LIT "is less than desired gpu memory utilization"
#define FREE_RE                                                                        \
    "(?:Free memory on device (\\S+ ?)?\\(([\\d.]+)/([\\d.]+) GiB\\) )?on startup is " \
    "less than desired GPU memory utilization(?: \\(([\\d.]+), ([\\d.]+) GiB)?"

/* clang-format off */
const struct td_rule td_rules_memory[] = {

/* --- GPU out of memory, by phase --- */
CAUSE("memory/oom-capture", "cuda-oom-graph-capture", 80, OOM_LIT, OOM_RE, "capture_text|@capture !profile_frame !mm_profile",
      "GPU memory ran out while CUDA graphs were captured[ ($5 of $4 free on GPU $3)]"),
CAUSE("memory/oom-profiling", "cuda-oom-profiling", 82, OOM_LIT, OOM_RE, "profile_frame|mm_profile",
      "GPU memory ran out in the profiling run[ ($5 of $4 free on GPU $3)]"),
CAUSE("memory/oom-held", "gpu-held-by-earlier-process", 66, OOM_LIT, OOM_RE, "gpu_holder !capture_text !profile_frame !mm_profile",
      "GPU memory ran out; process ${gpu_holder} holds ${gpu_held} of it"),
CAUSE("memory/oom", "cuda-oom-profiling", 50, OOM_LIT, OOM_RE, "!capture_text !profile_frame !mm_profile",
      "GPU memory ran out[ ($5 of $4 free on GPU $3)]"),
EITHER("memory/oom-bare-capture", "cuda-oom-graph-capture", 48, OOM_LIT, OOM_RE, 0, "GPU memory ran out[ ($5 of $4 free on GPU $3)]"),
EITHER("memory/oom-bare-held", "gpu-held-by-earlier-process", 46, OOM_LIT, OOM_RE, 0, "GPU memory ran out; another process may hold part of it"),

/* --- start check of free memory --- */
CAUSE_IF("memory/free-close", "gpu-mem-util-exceeds-free", 78, FREE_LIT, FREE_RE, 0,
      "[of $3 GiB only $2 GiB are free, and ][the fraction $4 asks for $5 GiB, ]more than this machine ever has free", td_check_free_close),
CAUSE_IF("memory/free-unified", "page-cache-counted-as-used", 70, FREE_LIT, FREE_RE, 0,
      "[of $3 GiB only $2 GiB count as free; ]on unified memory the page cache of an earlier load counts as used", td_check_free_unified),
CAUSE_IF("memory/free-held", "gpu-held-by-earlier-process", 70, FREE_LIT, FREE_RE, 0,
      "[of $3 GiB only $2 GiB are free: ]another process holds memory of this GPU", td_check_free_held),
CAUSE_IF("memory/free-restarts", "restart-loop-memory-leak", 76, FREE_LIT, FREE_RE, 0,
      "a start that cannot succeed is repeated again and again, and every attempt finds less free memory[ (now $2 of $3 GiB)]", td_check_restarts),

CAUSE("memory/profiling-moved", "gpu-held-by-earlier-process", 76, "error in memory profiling", "Error in memory profiling\\. Initial free memory ([\\d.]+ ?\\w*), current free memory ([\\d.]+ ?\\w*)", 0,
      "another process gave GPU memory back while it was being measured (from $1 to $2 free)"),
CAUSE("memory/device-busy", "gpu-held-by-earlier-process", 72, "busy or unavailable", "CUDA-capable device\\(s\\) is/are busy or unavailable|devices? (is|are) busy or unavailable", 0,
      "the GPU is used by another process"),

/* --- KV cache --- */
CAUSE("memory/kv-none", "kv-cache-negative", 84, "no available memory for the cache blocks", 0, 0,
      "after weights and working memory nothing is left for the cache"),
CAUSE("memory/kv-minus", "kv-cache-negative", 88, "available kv cache memory: -", "Available KV cache memory: (-[\\d.]* ?\\w*)", 0,
      "weights and working memory exceed the fraction that is allowed: $1 are left for the cache"),
CAUSE("memory/kv-max-len", "kv-cache-too-small", 94, "that can be stored in kv cache",
      "max seq len \\((\\d+)\\) is larger than the maximum number of tokens that can be stored in KV cache \\((\\d+)\\)", 0,
      "the context length $1 does not fit into the cache, which holds $2 tokens"),
CAUSE("memory/kv-needed", "kv-cache-too-small", 94, "kv cache is needed", "max seq len \\((\\d+)\\).{0,20}\\(?([\\d.]+) GiB KV cache is needed.{0,80}\\(([\\d.]+) GiB\\)", 0,
      "the context length $1 needs $2 GiB of cache, and $3 GiB are there"),
CAUSE("memory/kv-needed-cut", "kv-cache-too-small", 90, "larger than the available kv cache memory|estimated maximum model length is", 0, 0,
      "the context length does not fit into the cache"),
CAUSE("memory/kv-sglang", "kv-cache-too-small", 84, "not enough memory. please try to increase --mem-fraction|please try to increase --mem-fraction-static", 0, 0,
      "weights and graphs leave no room for the cache in the fraction that is allowed"),
CAUSE("memory/max-len", "max-model-len-above-derived", 95, "is greater than the derived",
      "User-specified (?:max_model_len|context_length) \\((\\d+)\\) is greater than the derived \\w+ \\((?:[\\w.]+=)?([\\d.]+)?", 0,
      "the context length that was asked for ($1) is above what the model allows[ ($2)]"),

/* --- host memory --- */
CAUSE("memory/cgroup-kernel", "cgroup-limit-oom", 95, "memory cgroup out of memory|constraint_memcg",
      "Memory cgroup out of memory: Kill(?:ed)? process (\\d+) \\(([^)]*)\\)|CONSTRAINT_MEMCG", 0, "the kernel killed[ $2 (pid $1)] because the container's memory limit was reached"),
CAUSE("memory/oomkilled", "cgroup-limit-oom", 92, "oomkilled", "OOMKilled\"?\\s*[:=]\\s*\"?true|Reason:\\s+OOMKilled|reason\"?: ?\"?OOMKilled|\\bOOMKilled\\b(?!\"?\\s*[:=])", 0,
      "the container was killed at its memory limit"),
CAUSE("memory/exit-137-k8s", "cgroup-limit-oom", 58, "exit code (137)|exit code 137|exitcode: 137|exit_code=137",
      "(terminated with exit code \\(137\\)|command terminated with exit code 137|exit_?code[:=] ?137)", "!host/probe !host/reason-error",
      "the container was killed from outside (137): most often its memory limit"),
CAUSE("memory/oom-killed-unified", "host-oom-unified-memory", 90, "out of memory: kill", "(?<!cgroup )Out of memory: Kill(?:ed)? process (\\d+) \\(([^)]+)\\)(?:.{0,80}anon-rss:(\\d+)kB)?", "!memory/cgroup-kernel unified_gpu|memory/nv-no-memory",
      "the kernel killed $2 (pid $1) because the memory that CPU and GPU share ran out"),
CAUSE("memory/oom-killed-vllm", "host-oom-unified-memory", 84, "out of memory: kill", "(?<!cgroup )Out of memory: Kill(?:ed)? process (\\d+) \\(([^)]+)\\)(?:.{0,80}anon-rss:(\\d+)kB)?", "!memory/cgroup-kernel !unified_gpu !memory/nv-no-memory vllm_killed",
      "the kernel killed $2 (pid $1) because the host's memory ran out (on machines with one pool, the GPU's as well)"),
CAUSE("memory/oom-killed", "host-oom-killed-137", 88, "out of memory: kill", "(?<!cgroup )Out of memory: Kill(?:ed)? process (\\d+) \\(([^)]+)\\)(?:.{0,80}anon-rss:(\\d+)kB)?", "!memory/cgroup-kernel !unified_gpu !memory/nv-no-memory !vllm_killed",
      "the kernel killed $2 (pid $1) because the host's memory ran out"),
EITHER("memory/oom-killed-137", "host-oom-killed-137", 70, "out of memory: kill", "(?<!cgroup )Out of memory: Kill(?:ed)? process (\\d+) \\(([^)]+)\\)(?:.{0,80}anon-rss:(\\d+)kB)?", "!memory/cgroup-kernel vllm_killed !unified_gpu !memory/nv-no-memory",
      "the kernel killed $2 (pid $1) because the host's memory ran out"),
CAUSE("memory/oom-invoked-unified", "host-oom-unified-memory", 82, "invoked oom-killer", "(\\S+) invoked oom-killer", "!memory/cgroup-kernel unified_gpu|memory/nv-no-memory|vllm_killed",
      "the kernel had to kill a process for memory, which CPU and GPU share ($1 asked for it)"),
CAUSE("memory/oom-invoked", "host-oom-killed-137", 80, "invoked oom-killer", "(\\S+) invoked oom-killer", "!memory/cgroup-kernel !unified_gpu !memory/nv-no-memory !vllm_killed",
      "the kernel had to kill a process for memory ($1 asked for it)"),
FACT("memory/vllm-comm", "vllm::worker|vllm::engine", "(VLLM::(?:Worker|Engine)\\w*)(?: invoked oom-killer|\\) total-vm)", "vllm_killed"),
CAUSE("memory/nv-no-memory", "host-wedge-unified-memory", 80, "nv_err_no_memory", "(Out of memory \\[NV_ERR_NO_MEMORY\\]|NV_ERR_NO_MEMORY)", 0,
      "the GPU driver could not get memory from the pool that CPU and GPU share, and the host stood still"),
CAUSE("memory/soft-lockup", "host-wedge-unified-memory", 56, "soft lockup|self-detected stall|detected stalls on cpus", 0, 0, "the host's processors stood still"),
CAUSE("memory/earlyoom", "host-oom-killed-137", 84, "earlyoom|systemd-oomd", "(earlyoom.{0,40}(sending SIG|low memory)|systemd-oomd.{0,80}[Kk]illed|Killed .{1,120} due to memory (pressure|used))", 0, "a memory guard of the host killed a process"),
CAUSE("memory/hung-task", "host-wedge-unified-memory", 50, "blocked for more than", "task (\\S+) blocked for more than (\\d+) seconds", 0,
      "the host stood still: $1 was blocked for more than $2 s"),
CAUSE("memory/page-alloc", "host-wedge-unified-memory", 60, "page allocation failure|page allocation stalls", 0, 0, "the kernel could not get memory"),
CAUSE("memory/killed-line", "host-oom-killed-137", 64, "killed", "line \\d+: +\\d+ Killed\\b", 0, "a process was killed from outside: most often the host's memory ran out"),
EITHER("memory/exited-137", "host-oom-killed-137", 44, "exited with code 137|exit code: 137|exit code 137|exit status 137",
      "(exited with code|exit code:?|exit status) 137", "!host/probe", "the container was killed from outside (137): most often the host's memory ran out"),
EITHER("memory/exit-9", "host-oom-killed-137", 42, "exit code: -9|exitcode  : -9|signal 9 (sigkill)|exitcode: -9|killed by signal 9",
      "(exit code: -9|exitcode ?: -9|Signal 9 \\(SIGKILL\\)|signal 9)", "!ray/oom-threshold-cut", "a process was killed from outside: most often the host's memory ran out"),
CAUSE("memory/rpc-unified", "host-oom-unified-memory", 40, "rpc call to", "RPC call to (\\w+) timed out", "!engine_dead",
      "a worker stopped answering ($1): seen when the host's memory ran out"),
CAUSE("memory/errno-12", "host-memory-or-pids-limit", 84, "cannot allocate memory", "(\\[Errno 12\\]|fork|mmap|OSError|os error 12|std::bad_alloc).{0,60}Cannot allocate memory", "!fabric/reg-mr-limit",
      "the system refused memory to a process: host memory, overcommit or a limit"),
CAUSE("memory/bad-alloc", "host-memory-or-pids-limit", 62, "std::bad_alloc|memoryerror", "(std::bad_alloc|^\\s*(?:numpy\\S*)?MemoryError)", 0, "a process got no memory from the system"),
CAUSE("memory/cpu-alloc", "host-memory-or-pids-limit", 80, "defaultcpuallocator", "DefaultCPUAllocator.{0,60}(can't|not enough|cannot) ?(allocate)? ?memory", 0,
      "the system refused host memory to a process"),
};
/* clang-format on */
const size_t td_rules_memory_count = TD_COUNT(td_rules_memory);

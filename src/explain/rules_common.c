/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules that name no kind: facts, steps of a start, reports about other processes' deaths
 * (effects) and lines of good starts that look like faults (noise).
 */
#include "explain/rules_def.h"

#include "base/compiler.h"

/* clang-format off */
const struct td_rule td_rules_common[] = {

/* --- noise: true of good starts too --- */
NOISE("noise/tp-exceeds", "exceeds available gpus|exceeds locally visible gpus",
      "(Tensor parallel size|Total GPU requirement) \\(.{1,40}\\) exceeds "
      "(available|locally visible) GPUs \\(\\d+\\)",
      "true of every start with one GPU on each node"),
NOISE("noise/tmp-ray-full", "% full, available space:",
      "is over \\d+% full, available space: (?!0(\\.0+)?( |;))[\\d.]+ ?\\wB",
      "a warning about the disk of the session folder, no fault while space is left"),
NOISE("noise/net-plugin", "libnccl-net|libnccl-tuner|libnccl-profiler|no plugin found|"
      "failed to find nccl",
      "(NET|TUNER|PROFILER|ENV|RAS)/?Plugin|dlerror=libnccl|libnccl-(net|tuner|profiler)"
      "\\S*\\.so|P2P plugin",
      "NCCL looks for optional plug-ins at every start"),
NOISE("noise/c10d-af", "cannot be initialized to connect to",
      "client socket cannot be initialized to connect to .{0,120}errno: 97",
      "c10d tries IPv6 first; IPv4 follows"),
NOISE("noise/custom-allreduce", "allreduce is disabled because|all-reduce is disabled",
      "custom ?all-?reduce is disabled because this process group spans",
      "true of every start over several nodes"),
NOISE("noise/env-unknown", "unknown vllm environment variable", 0,
      "a variable that only the image's own scripts know"),
NOISE("noise/nvidia-peermem", "nvidia_peermem|gpu direct rdma disabled",
      "(modprobe|module).{0,60}nvidia[_-]peermem|GPU Direct RDMA Disabled for HCA",
      "the platform has no GPUDirect RDMA; transfers go through host memory"),
NOISE("noise/torch-dtype", "`torch_dtype` is deprecated|torch_dtype is deprecated|"
      "pynvml package is deprecated", 0, "a note for programmers"),
NOISE("noise/profiling-time", "memory profiling takes", 0, "a time, not an error"),
NOISE("noise/async-cuda", "kernel errors might be asynchronously reported", 0,
      "an advice that torch adds to every CUDA error"),
NOISE("noise/redis-first", "redis server, retrying", 0,
      "Ray's first seconds, before its store listens"),
NOISE("noise/oomkilled-false", "oomkilled", "\"?OOMKilled\"?\\s*[:=]\\s*\"?false",
      "the container runtime saw no memory kill"),
NOISE("noise/metrics-exporter", "metrics exporter|metrics agent|"
      "failed to establish connection to the metrics", 0,
      "metrics are optional"),
NOISE("noise/ray-sigterm", "regarding sigterm received, please ignore", 0, "Ray's own note about its end"),
NOISE("noise/ray-stopped", "received sigterm. existing local drain|gcs server received sigterm|received sigterm node_id|reason_message: \"received sigterm|exiting with sigterm",
      0, "Ray was stopped on request"),
NOISE("noise/port-retry", "retrying with a new port", 0, "another port was taken instead"),
NOISE("noise/c10d-v6-name", "gai error", "IPv6 network addresses of .{1,120}gai error: -(5|9)\\b", "the name has no IPv6 address; IPv4 follows"),
NOISE("noise/vllm-version", "vllm._version", "No module named '?vllm\\._version", "a build from source without a version file"),
NOISE("noise/usage-stats", "stats.vllm.ai|usage-stats.ray.io|usage stats|usage_lib", 0, "usage statistics are optional"),
NOISE("noise/config-folders", "permission denied: '/", "Permission denied: '/[^']*(matplotlib|fontconfig|\\.triton/dump|\\.nv/)", "a cache that is optional"),
NOISE("noise/killed-zero", "killed due to memory pressure",
      "\\b0 Workers \\(tasks / actors\\) killed due to memory pressure", "no worker was killed"),

/* --- effects: somebody reports another one's death --- */
EFFECT("effect/engine-core", "enginecore failed to start|engine core initialization failed|"
       "engine process failed to start", 0, "engine core failed"),
EFFECT("effect/enginecore-fatal", "enginecore encountered|enginedeaderror|"
       "engine core proc|asyncengine has failed|enginecore died", 0, "engine died"),
EFFECT("effect/workerproc", "workerproc initialization failed|workerproc was terminated|"
       "workerproc failed to start|workerproc hit an exception|"
       "parent process exited, terminating worker|parent process exited unexpectedly",
       0, "worker ended"),
EFFECT("effect/init-device", "this might cause deadlock in distributed execution",
       0, "method failed on one worker"),
EFFECT("effect/worker-died", "died unexpectedly|died, exit code",
       "(Worker|Engine|process|proc)\\b.{0,80}(died unexpectedly|died, exit code)",
       "worker process died"),
EFFECT("effect/actor-dead", "the actor is dead because|actor died unexpectedly|"
       "actordiederror|rayactorerror", 0, "Ray actor died"),
EFFECT("effect/raylet-worker-died", "a worker died or was killed while executing", 0,
       "Ray worker died"),
EFFECT("effect/sigquit", "sigquit", "sigquit (from|received)|received sigquit|"
       "SIGQUIT received|got sigquit",
       "SGLang child failed"),
EFFECT("effect/kill-tree", "kill_process_tree called", 0, "process tree killed"),
EFFECT("effect/scheduler-died", "scheduler died|scheduler hit an exception|"
       "no live scheduler processes", 0, "scheduler died"),
EFFECT("effect/should-dump", "\"should dump\" flag on tcpstore", 0,
       "store of rank 0 is gone"),
EFFECT("effect/ninja", "ninja: build stopped: subcommand failed", 0, "build stopped"),
EFFECT("effect/ray-task-error", "raytaskerror(", 0, "remote call failed"),
EFFECT("effect/got-fatal", "got fatal signal from worker processes", 0,
       "worker died by a signal"),
EFFECT("effect/killing-workers", "killing local vllm worker processes", 0,
       "workers are being stopped"),
EFFECT("effect/mpi-abort", "mpi_abort was invoked|process returned a non-zero exit code|"
       "exited on signal", 0, "MPI job ended"),
EFFECT("effect/elastic", "childfailederror|root cause (first observed failure)", 0,
       "torchrun reports a failed rank"),
EFFECT("effect/leaked", "resource_tracker: there appear to be", 0,
       "left-over shared memory"),
EFFECT("effect/exited-code", "exited with code", "exited with code (?!0\\b)\\d+",
       "container ended"),
EFFECT("effect/readiness", "service not ready|grpc service not ready", 0, "not ready"),
EFFECT("effect/init-failed-triton", "failed to load model|unable to load model",
       "failed to load model|unable to load model", "model was not loaded"),
EFFECT("effect/entire-process-down", "taking the entire process down", 0,
       "watchdog ends the process"),
EFFECT("effect/core-dumped", "(core dumped)", 0, "core dumped"),
EFFECT("effect/nccl-comm-attr", "object has no attribute 'comm'", 0,
       "half-made communicator is destroyed"),
EFFECT("effect/nccl-get-version", "name 'ncclgetversion' is not defined", 0,
       "NCCL wrapper is unusable"),
EFFECT("effect/worker-failed-with", "worker failed with error", 0, "worker failed"),

/* --- errors that no rule explains --- */
EITHER("generic/exception", 0, 1, "error:|exception:|exit:|fault:|interrupt:",
       "^(\\s{0,4}|.{0,80}\\s)([A-Za-z_][\\w.]{2,80})?(Error|Exception|Exit|Fault|Interrupt)"
       "(\\(.{0,60}\\))?: .{3,}", 0, 0),
EITHER("generic/traceback-errors", 0, 1, "error response from daemon|panic:|fatal error|"
       "terminate called after|assertion failed", 0, 0, 0),

/* --- steps --- */
PHASE("step/vllm-banner", TD_STEP_CONFIG, "vllm api server version|non-default args:", 0),
PHASE("step/vllm-engine", TD_STEP_CONFIG, "initializing a v1 llm engine|"
      "initializing an llm engine", 0),
PHASE("step/sglang-args", TD_STEP_CONFIG, "server_args=serverargs", 0),
PHASE("step/trtllm-args", TD_STEP_CONFIG, "tensorrt-llm version:|[tensorrt-llm] tensorrt llm version", 0),
PHASE("step/llama-main", TD_STEP_CONFIG, "main: loading model|llama_model_loader: loaded meta", 0),
PHASE("step/ray-connected", TD_STEP_CLUSTER, "connected to ray cluster|started a local ray instance", 0),
PHASE("step/dist-begin", TD_STEP_RENDEZ, "init torch distributed begin|distributed_init_method=", 0),
RANK("step/world", TD_STEP_RENDEZ, "is assigned as dp rank", "rank (\\d+) in world size \\d+ is assigned"),
RANK("step/world-size", TD_STEP_RENDEZ, "world_size=", "world_size=\\d+ rank=(\\d+) local_rank="),
PHASE("step/using-nccl", TD_STEP_COMM, "is using nccl==", 0),
PHASE("step/nccl-start", TD_STEP_COMM, "- init start", "commId (0x[0-9a-f]+).{0,60}- Init START"),
PHASE("step/nccl-complete", TD_STEP_COMM_DONE, "- init complete", "commId (0x[0-9a-f]+).{0,60}- Init COMPLETE"),
PHASE("step/dist-ends", TD_STEP_COMM_DONE, "init torch distributed ends", 0),
PHASE("step/load", TD_STEP_LOAD, "starting to load model|load weight begin|"
      "loading safetensors checkpoint shards|load_tensors: loading model tensors", 0),
PHASE("step/loaded", TD_STEP_LOADED, "loading weights took|model loading took|load weight end", 0),
PHASE("step/profile", TD_STEP_PROFILE, "memory profiling results|profile_run|"
      "encoder cache will be initialized|available kv cache memory", 0),
PHASE("step/cache", TD_STEP_CACHE, "gpu kv cache size:|# gpu blocks:|kv cache is allocated|"
      "memory pool end|# cuda blocks:", 0),
PHASE("step/capture", TD_STEP_CAPTURE, "capturing cuda graph|capturing cudagraphs|"
      "capture cuda graph begin|capturing batches|capturing the model for cuda graphs", 0),
PHASE("step/captured", TD_STEP_CAPTURED, "graph capturing finished|capture cuda graph end|"
      "init engine (profile", 0),
PHASE("step/ready", TD_STEP_READY, "application startup complete|"
      "server is fired up and ready to roll|server is listening on|"
      "started grpcinferenceservice|http server is listening", 0),

/* --- facts --- */
FACT("fact/vllm-version", "api server version|llm engine (v", "(?:version |engine \\(v)([\\d.]+\\w*)", "vllm_version"),
FACT("fact/tp", "tensor_parallel_size|--tensor-parallel-size|tp_size=|--tp-size",
     "(?:tensor_parallel_size|tensor-parallel-size|tp_size|tp-size)['\"]?[=: ]+(\\d+)", "tp"),
FACT("fact/pp", "pipeline_parallel_size", "pipeline_parallel_size['\"]?[=: ]+(\\d+)", "pp"),
FACT("fact/backend", "distributed_executor_backend|distributed-executor-backend",
     "distributed[_-]executor[_-]backend['\"]?[=: ]+['\"]?(ray|mp|uni|external_launcher)", "executor_backend"),
FACT("fact/world", "in world size", "in world size (\\d+)", "world_size"),
FACT("fact/util", "gpu_memory_utilization|gpu-memory-utilization",
     "gpu[_-]memory[_-]utilization['\"]?[=: ]+([\\d.]+)", "gpu_util"),
FACT("fact/max-len", "max_model_len|max-model-len", "max[_-]model[_-]len['\"]?[=: ]+(\\d+)", "max_model_len"),
FACT("fact/nccl-version", "nccl version 2", "NCCL version (2[\\d.]+)", "nccl_version"),
FACT("fact/ray-local-ip", "local node ip", "local node ip: ?([\\d.]+)", "ray_node"),
FACT("fact/ray-address", "ray cluster at address", "Ray cluster at address: ?([\\d.]+)", "ray_head"),
FACT("fact/ray-node-ip-arg", "--node-ip-address|node_ip_address", "node[-_]ip[-_]address['\"]?[=: ]+['\"]?([\\d.]+)", "ray_node"),
FACT("fact/ray-prefix-ip", ", ip=", ", ip=([\\d.]+)\\)", "ray_peer"),
FACT("fact/ray-status-node", "node:", "^\\s*[\\d.]+/1\\.0 node:([\\d.]+)", "ray_node"),
FACT("fact/ray-status-healthy", ".0 gpu", "^\\s*([\\d.]+)/([\\d.]+) GPU\\b", "gpus_used gpus_total"),
FACT("fact/ray-healthy-nodes", "node_", "^\\s*(\\d+) node_[0-9a-f]{6,}", "ray_active"),
FACT("fact/ray-started", "ray runtime started", "(Ray runtime started)", "ray_started"),
FACT("fact/bootstrap", "bootstrap : using|bootstrap: using", "Bootstrap ?: Using (\\S+?):([\\d.]+)<", "nccl_if nccl_ip"),
FACT("fact/using-network", "using network", "Using network (\\w+)", "nccl_net"),
FACT("fact/hca-env", "nccl_ib_hca", "NCCL_IB_HCA(?: set by environment to |=|': ?')([\\w:,^=.]+)", "ib_hca"),
FACT("fact/ifname-env", "nccl_socket_ifname", "NCCL_SOCKET_IFNAME(?: set by environment to |=|': ?')([\\w:,^=.]+)", "nccl_ifname"),
FACT("fact/gloo-ifname", "gloo_socket_ifname", "GLOO_SOCKET_IFNAME(?:=|': ?')([\\w:,^=.]+)", "gloo_ifname"),
FACT("fact/kv-gib", "kv cache memory|kv cache is allocated", "KV cache memory: ([\\d.]+) GiB", "kv_gib"),
FACT("fact/driver", "driver version", "Driver Version: ?(\\d+\\.\\d+[\\d.]*)", "driver_version"),
FACT("fact/cuda-device", "nvidia gb10|dgx spark|gb10|jetson", "\\b(GB10|DGX Spark|Thor|Orin)\\b", "unified_gpu"),
FACT("fact/kernel", "linux version", "Linux version (\\d+\\.\\d+[\\w.-]*)", "kernel_version"),
FACT("fact/traceback", "traceback (most recent call last)", "(Traceback) \\(most recent", "traceback_head"),
FACT("fact/multinode", "--nnodes|nnodes=|--headless|node_rank", "(nnodes|headless|node_rank)", "multi_node"),
FACT("fact/ggml", "ggml_cuda_init|ggml_cuda|compute capability|llama_", "(ggml|llama_|Device \\d+: .{3,60}, compute capability [\\d.]+, VMM)", "ggml"),
FACT("fact/p2p-read", "reading gpu p2p access cache", "(reading) GPU P2P", "p2p_cache_read"),
FACT("fact/docker-pull", "pull complete", "(Pull complete)", "docker_pull"),
FACT("fact/python", "python version|python:", "Python(?: version)?: ?(3\\.\\d+(?:\\.\\d+)?)", "python_version"),
FACT("fact/mm-worst", "multi-modal embeddings in the worst case", "(worst case)", "mm_profile"),
FACT("fact/profile-frame", "in profile_run|in determine_num_available_blocks|in _dummy_run|in determine_available_memory",
     "in (profile_run|determine_num_available_blocks|_dummy_run|determine_available_memory)", "profile_frame"),
FACT("fact/capture-frame", "in capture_model|capturing cuda|cuda graph capture|cudagraph|cuda_graph_runner|graph_capture|capture cuda graph",
     "(captur\\w*|cuda_?graph\\w*)", "capture_text"),
FACT("fact/engine-dead", "enginedeaderror", "(EngineDeadError)", "engine_dead"),
FACT("fact/gpu-holder", "memory in use", "Process (\\d+) has ([\\d.]+ [GM]iB) memory in use", "gpu_holder gpu_held"),
};
/* clang-format on */
const size_t td_rules_common_count = TD_COUNT(td_rules_common);

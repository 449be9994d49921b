/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of failure on one machine: devices, drivers, containers, kernels, memory, model
 * files and software. Columns as in kinds_cluster.c.
 */
#include "explain/kinds_def.h"

#include "base/compiler.h"

#define DEVICE "device visibility"
#define DRIVER "driver, hardware, kernel, host limits"
#define ENV    "environment and container"
#define KERNEL "kernels, architecture, toolchain"
#define MEM    "memory"
#define FILES  "model files"
#define SUPP   "model support and grafts"

/* clang-format off */
const struct td_kind td_kinds_node[] = {

/* --- devices --- */
{"cuda-visible-devices-wrong", DEVICE, "a process sees the wrong GPUs, or none",
 "set CUDA_VISIBLE_DEVICES in one place only: a container that has been given GPUs counts them from 0 again; with Ray leave it to Ray",
 "CUDA_VISIBLE_DEVICES and `nvidia-smi -L` inside the worker's process", "nccl-system-error-hidden"},
{"device-type-not-inferred", DEVICE, "the engine cannot tell what device this is",
 "check that `nvidia-smi` works inside the container and that the engine's build is for CUDA; update nvidia-ml-py", "`python -c 'import pynvml; pynvml.nvmlInit()'` in the container", 0},
{"gpu-memory-unbalanced", DEVICE, "free memory differs too much between GPUs",
 "stop what holds memory on one GPU (nvidia-smi), or use equal GPUs", "`nvidia-smi` of all hosts before the start", 0},
{"mig-uuid-not-parsed", DEVICE, "device ids where numbers are expected",
 "set CUDA_VISIBLE_DEVICES to numbers; for MIG use a version that reads ids", 0, "arch-inspection-import-error model-arch-unsupported device-type-not-inferred"},
{"tp-exceeds-local-gpus-no-ray", DEVICE, "parallel size above the GPUs of this host, no executor for several hosts",
 "--distributed-executor-backend ray (with the Ray cluster running), or --nnodes and --node-rank on each host; else a smaller --tensor-parallel-size",
 "the head of the traceback: run the same command with `2>&1 | tee start.log` and give the whole file", "engine-core-failed-no-cause"},

/* --- driver, hardware --- */
{"driver-differs-between-nodes", DRIVER, "the hosts have different drivers",
 "install the same driver on all hosts", "`nvidia-smi --query-gpu=driver_version --format=csv` of all hosts", 0},
{"driver-too-old", DRIVER, "the driver is too old for this CUDA",
 "update the driver of this host, or use an image with an older CUDA", 0, "cuda-visible-devices-wrong"},
{"fabric-manager-not-running", DRIVER, "the NVSwitch fabric is not set up",
 "install and start nvidia-fabricmanager in exactly the driver's version", "`systemctl status nvidia-fabricmanager`", 0},
{"gpu-fell-off-bus", DRIVER, "a GPU is no longer reachable",
 "power-cycle the host; then look at power, heat, riser and slot, and have the card replaced when it comes back", 0, "native-crash-in-ray-worker nccl-watchdog-abort cuda-visible-devices-wrong"},
{"host-reset-while-loading", DRIVER, "the host failed or was reset while loading",
 "read the journal of the boot before (journalctl -k -b -1); try another kernel, test memory and disk", "`journalctl -k -b -1 | tail -100` and boot ids of that host", 0},
{"nvml-driver-library-mismatch", DRIVER, "driver module and libraries differ",
 "reboot, or unload and load the nvidia modules after the update", 0, "device-type-not-inferred"},
{"thread-or-fd-limit", DRIVER, "a limit of processes, threads or files is reached",
 "raise it: ulimit -u / -n, --pids-limit -1 for docker, TasksMax for systemd; give Ray fewer CPUs (--num-cpus 8)", 0,
 "ray-raylet-unregistered native-crash-in-ray-worker ray-node-start-timeout host-memory-or-pids-limit"},

/* --- container and environment --- */
{"container-toolkit-missing", ENV, "docker knows no NVIDIA runtime",
 "install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart docker", 0, 0},
{"container-without-gpu", ENV, "the container has no access to the GPU",
 "start it with --gpus all (or the NVIDIA runtime); if nvidia-smi fails on the host too, repair the driver first", "`nvidia-smi` inside the container", "driver-too-old"},
{"dev-shm-too-small", ENV, "/dev/shm is too small",
 "start the container with --ipc=host or --shm-size=16g; in Kubernetes mount an emptyDir of medium Memory at /dev/shm", "`df -h /dev/shm` inside the container",
 "nccl-system-error-hidden native-crash-in-ray-worker nccl-init-internal-error disk-full nccl-shm-attach-race"},
{"entrypoint-command-wrong", ENV, "the container's command is wrong",
 "look at the image's entry point (docker inspect -f '{{.Config.Entrypoint}} {{.Config.Cmd}}' IMAGE) and give only its arguments, or set --entrypoint", 0, 0},
{"env-not-propagated", ENV, "variables do not reach the process on the other node",
 "set them before `ray start` on each node (actors inherit that environment), or list them for the engine to copy", "/proc/PID/environ of the worker on the other node", 0},
{"env-overwritten-by-driver", ENV, "the driver's variables replace those of this node",
 "keep node-specific variables from being copied (VLLM_RAY_NON_CARRY_OVER_ENV_VARS in the configuration folder), or use names that fit both nodes", "the device names that exist on each node", 0},
{"image-arch-mismatch", ENV, "the image is for another CPU architecture",
 "pull or build the variant for this host (docker pull --platform linux/arm64 on ARM machines)", 0, "entrypoint-command-wrong"},
{"image-file-missing", ENV, "a file is missing in the installation",
 "use another build of the image, or install the wheel of that version again", "`pip show -f` of the package", 0},
{"image-transfer-failed", ENV, "the image did not arrive whole",
 "transfer it again (docker save | zstd | ssh ... docker load) and compare the digests", "`docker images --digests` on both hosts", 0},
{"permission-denied", ENV, "a file or folder cannot be used for lack of permission",
 "give the container's user the folder (chown, --user), or point HOME and HF_HOME to a writable one", "`id; ls -ld FOLDER` inside the container", 0},

/* --- kernels --- */
{"backend-unsupported-on-device", KERNEL, "a back end does not support this device",
 "choose another one (VLLM_ATTENTION_BACKEND, --attention-backend, --moe-runner-backend) or a build that supports this GPU", "the whole traceback", 0},
{"cpu-instruction-missing", KERNEL, "the CPU lacks instructions the program uses",
 "use a build for this CPU (without AMX or AVX-512), or build on this host", "`grep -m1 flags /proc/cpuinfo`", 0},
{"dtype-unsupported", KERNEL, "the number format is not supported by this GPU",
 "start with --dtype half (float16)", 0, 0},
{"engine-built-for-other-gpu", KERNEL, "the engine plan was built for another GPU",
 "build the engine on the GPU model that runs it", "the GPU model of the build", "duplicate-gpu"},
{"jit-toolchain-missing", KERNEL, "kernels cannot be compiled at the start",
 "install the CUDA toolkit with headers (and ninja, a C++ compiler, python3-dev), set CUDA_HOME to it, or use an image or package with prebuilt kernels; VLLM_USE_FLASHINFER_SAMPLER=0 avoids the sampler's",
 "the compiler's full output above `ninja: build stopped`", 0},
{"no-kernel-image", KERNEL, "no code for this GPU's architecture",
 "install a build for this architecture (torch.cuda.get_arch_list() must hold it), or build it with TORCH_CUDA_ARCH_LIST set", 0, 0},
{"ptxas-arch-unknown", KERNEL, "the assembler does not know this GPU",
 "set TRITON_PTXAS_PATH to the ptxas of a newer CUDA toolkit (/usr/local/cuda/bin/ptxas)", 0, "jit-toolchain-missing"},
{"quant-backend-not-for-arch", KERNEL, "no kernel for this quantization on this GPU",
 "choose another back end for it (Marlin often works), or a newer version", 0, "backend-unsupported-on-device"},
{"quant-capability-too-low", KERNEL, "the GPU is too old for this quantization",
 "use a checkpoint in another format", 0, 0},
{"quant-shape-not-divisible", KERNEL, "quantized sizes do not divide at this parallel size",
 "use a smaller tensor parallel size, with pipeline or expert parallelism for the rest", 0, "tp-not-divisor"},
{"tp-not-divisor", KERNEL, "a dimension cannot be split over that many ranks",
 "choose a parallel size that divides heads and experts", 0, 0},

/* --- memory --- */
{"cgroup-limit-oom", MEM, "the container reached its memory limit",
 "raise the container's limit: weights pass through page cache and staging buffers", "`kubectl describe pod` (Last State) and `dmesg -T | grep -i oom` of its host", "host-oom-killed-137"},
{"cuda-graph-capture-deadlock", MEM, "graph capture stands still",
 "start with --enforce-eager (SGLang: --disable-cuda-graph) to see that it is capture; then fewer sizes, or another NCCL",
 "stack dumps of all ranks: py-spy dump --pid PID", 0},
{"cuda-graph-capture-error", MEM, "something cannot be captured into a CUDA graph",
 "start with --enforce-eager; the first error stands above this one", "CUDA_LAUNCH_BLOCKING=1 and the lines above the error", 0},
{"cuda-oom-graph-capture", MEM, "GPU memory ran out during graph capture",
 "lower --gpu-memory-utilization by 0.03 to 0.05, or capture fewer sizes (--max-num-seqs, --cuda-graph-max-bs)", "the step before the error", 0},
{"cuda-oom-profiling", MEM, "GPU memory ran out in the profiling run",
 "lower --max-num-batched-tokens, --max-num-seqs or the images per prompt (--limit-mm-per-prompt)", "the step before the error, and `nvidia-smi` before the start", 0},
{"gpu-held-by-earlier-process", MEM, "another process holds GPU memory",
 "find it (nvidia-smi; pgrep -af 'VLLM::|sglang|EngineCore' for orphans of an earlier container) and stop it; then start again", "`nvidia-smi` and `pgrep -af 'VLLM|sglang'` on that host before the start", 0},
{"gpu-mem-util-exceeds-free", MEM, "the memory fraction is above what is ever free",
 "lower --gpu-memory-utilization just below free / total", "`nvidia-smi` or `free -g` before the start", 0},
{"host-memory-or-pids-limit", MEM, "the system refuses memory to a process",
 "free host memory, raise the container's limits, allow overcommit (vm.overcommit_memory=1)", "`free -g; ulimit -a` in the container", 0},
{"host-oom-killed-137", MEM, "killed from outside, most often for memory",
 "give it more memory or load less at once; look at the kernel log first", "`dmesg -T | grep -i -e oom -e killed` of that host, `docker inspect -f '{{.State.OOMKilled}}' NAME`", 0},
{"host-oom-unified-memory", MEM, "the memory shared by CPU and GPU ran out",
 "lower the memory fraction so that 8 to 10 GiB stay for the host; drop the page cache before the start; read weights without mapping them", "`dmesg -T` of the host that lost a worker", "host-wedge-unified-memory peer-died-tcpstore-closed host-oom-killed-137 cgroup-limit-oom"},
{"host-wedge-unified-memory", MEM, "the host stood still for lack of memory",
 "lower the memory fraction and --max-num-batched-tokens; never allocate near the whole pool on unified memory", "`journalctl -k -b -1` of that host", 0},
{"kv-cache-negative", MEM, "nothing is left for the cache",
 "if another process holds GPU memory, stop it; else use less per rank (more ranks, smaller --max-num-batched-tokens) or a larger --gpu-memory-utilization. On unified memory do not raise it above 0.85",
 "`Memory profiling results` line: a high initial memory usage means another process", 0},
{"kv-cache-too-small", MEM, "the context length does not fit into the cache",
 "lower --max-model-len to what fits, or give the cache more memory (--gpu-memory-utilization, --mem-fraction-static, more ranks, FP8 cache)", 0, 0},
{"max-model-len-above-derived", MEM, "the context length is above what the model allows",
 "lower --max-model-len, or configure rope scaling as the model's card says", 0, 0},
{"page-cache-counted-as-used", MEM, "page cache counts as used on unified memory",
 "drop it before the start (sync; echo 3 > /proc/sys/vm/drop_caches), or lower the fraction", "/proc/meminfo: MemFree against MemAvailable", 0},
{"restart-loop-memory-leak", MEM, "repeated starts leave less and less memory",
 "stop the restart policy, wait until the memory is free (or reboot), correct the first failure, start once", "the log of the first attempt", "gpu-mem-util-exceeds-free gpu-held-by-earlier-process page-cache-counted-as-used"},

/* --- model files --- */
{"chat-template-missing", FILES, "the model has no chat template",
 "give one with --chat-template FILE, or use the instruct variant of the model", 0, 0},
{"clock-wrong", FILES, "the clock of this host is wrong",
 "set the clock (timedatectl set-ntp true; chronyc makestep)", 0, "hf-auth-or-offline"},
{"disk-full", FILES, "a disk is full",
 "free space where models, images and /tmp/ray lie (df -h), or move HF_HOME and --temp-dir", "`df -h` of that host and inside the container", 0},
{"gguf-truncated", FILES, "the GGUF file is damaged or cut",
 "fetch it again and compare its checksum", 0, 0},
{"hf-auth-or-offline", FILES, "files of the model cannot be fetched",
 "accept the model's terms and set HF_TOKEN; offline: fetch it beforehand to every host and give the folder, with HF_HUB_OFFLINE=1", "`curl -I https://huggingface.co` from the container", "model-files-missing-on-node"},
{"lfs-pointer-instead-of-weights", FILES, "a weight file is a Git-LFS pointer",
 "run `git lfs pull` in the model's folder, or fetch it with the hub's own tool", 0, "safetensors-header-limit safetensors-truncated"},
{"model-files-missing-on-node", FILES, "the model's files are not on this node",
 "put the model at the same path on every host, and mount it into every container", "`ls -l MODEL` inside the container of each host", 0},
{"safetensors-header-limit", FILES, "a safetensors header is too large",
 "look at the first bytes of the file (head -c 64): a pointer or a web page means fetch it again; a real header above 100 MB needs the file to be split", "`head -c 64 FILE`", 0},
{"safetensors-truncated", FILES, "a safetensors file is damaged or cut",
 "fetch that shard again; compare size and checksum with the published ones", 0, 0},
{"shard-missing", FILES, "a shard of the model is missing",
 "compare the folder with model.safetensors.index.json and fetch what is missing, on every host", "`ls` of the folder against the index", 0},
{"tokenizer-missing", FILES, "the tokenizer's files are missing",
 "copy tokenizer.json, tokenizer_config.json (or tokenizer.model) of the model into its folder, or name one with --tokenizer", "`ls MODEL/tokenizer*`", 0},
{"trust-remote-code-needed", FILES, "the model brings its own code",
 "start with --trust-remote-code after reading that code, on all nodes", 0, 0},
{"weights-names-mismatch", FILES, "checkpoint and model class do not match",
 "use the engine version that the model's card names, or the original checkpoint", "the names in the error against the index", 0},

/* --- support --- */
{"arch-inspection-import-error", SUPP, "the model class is known but cannot be imported",
 "repair the import error that stands above (often a missing compiled module): python -c 'import vllm._C'", "the traceback of the subprocess above this line", "model-arch-unsupported"},
{"extension-not-built", SUPP, "a compiled module is missing",
 "build or install it for this Python, torch and CUDA; check the build's own errors", 0, 0},
{"grafted-patch-incompatible", SUPP, "a patch does not fit the installed version",
 "use the version that the patch was made for, or leave it out: newer versions may hold the change already", 0, "python-api-moved model-arch-unsupported"},
{"model-arch-unsupported", SUPP, "this version does not know the model class",
 "use a version that supports the model, or --model-impl transformers", 0, 0},
{"plugin-version-mismatch", SUPP, "plug-in and engine are of different versions",
 "install the pair of versions that belong together", 0, "python-api-moved extension-not-built"},
{"python-api-moved", SUPP, "a module or name is not where the caller expects it",
 "install versions that fit each other: pin the engine to the version the caller was made for", "`pip freeze` of that environment", 0},
{"transformers-too-old", SUPP, "transformers is too old for the model",
 "pip install -U transformers (or from its main branch for a new model), in the image of every node", 0, "model-arch-unsupported"},
};
/* clang-format on */
const size_t td_kinds_node_count = TD_COUNT(td_kinds_node);

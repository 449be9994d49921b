/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers, host limits, permissions, environment, who killed the process.
 */
#include "explain/rules_def.h"

#include "base/compiler.h"

/* clang-format off */
const struct td_rule td_rules_host[] = {

/* --- container set-up --- */
CAUSE("host/runtime-unknown", "container-toolkit-missing", 95, "unknown runtime specified|unknown or invalid runtime name|nvidia-container-runtime\": executable|nvidia-container-cli: not found|nvidia-container-runtime-hook",
      "(unknown runtime specified|unknown or invalid runtime name:?|nvidia-container-\\S+).{0,40}", 0, "docker does not know the NVIDIA runtime: the container toolkit is missing or not registered"),
CAUSE("host/device-driver", "container-toolkit-missing", 93, "could not select device driver|unresolvable cdi devices|failed to discover gpu vendor", 0, 0, "docker has no driver for GPUs: the container toolkit is missing or not registered"),
CAUSE("host/exec-format", "image-arch-mismatch", 91, "exec format error", 0, 0, "the image was built for another CPU architecture"),
EITHER("host/platform", "image-arch-mismatch", 89, "does not match the detected host platform|does not match the expected platform|does not match the specified platform",
      "platform \\((\\S+)\\) does not match .{0,40}\\((\\S+)\\)", 0, "the image is for $1, this host is $2"),
CAUSE("host/manifest", "image-arch-mismatch", 93, "no matching manifest for|no match for platform in manifest|no image found in manifest list", 0, 0, "the image has no variant for this host's architecture"),
CAUSE("host/qemu", "image-arch-mismatch", 88, "qemu-x86_64|qemu-aarch64|rosetta error", "(qemu-(x86_64|aarch64)\\S*: (Could not open|uncaught)|rosetta error)", 0, "the image was built for another CPU architecture"),
CAUSE("host/binary", "entrypoint-command-wrong", 89, "cannot execute binary file", "cannot execute binary file(?!: Exec format)", 0, "the shell was given a binary to interpret: the command repeats the entry point"),
CAUSE("host/exec-missing", "entrypoint-command-wrong", 88, "executable file not found", "exec: \\\\?\"(?!ray\\b|nvidia)([^\"\\\\]+)\\\\?\": executable file not found", 0, "the image has no program $1"),
CAUSE("host/exec-nofile", "entrypoint-command-wrong", 84, "no such file or directory: unknown|exec user process caused", "exec:? \\\\?\"?([^\"\\\\]{1,80}?)\\\\?\"?: (stat .{1,80}: )?no such file|exec user process caused: no such file", 0, "the command of the container does not exist in the image[: $1]"),
CAUSE("host/unrecognized", "entrypoint-command-wrong", 80, "error: unrecognized arguments|error: argument|invalid choice:", "error: (unrecognized arguments: (.{1,80})|argument .{1,60}(invalid|expected)|.{0,40}invalid choice)", 0, "the command line is not understood[: $2]"),
CAUSE("host/docker-import", "image-transfer-failed", 88, "docker-import-|error processing tar file|failed to register layer|unexpected eof", "(?!.*no space left on device)(docker-import-\\d+|Error processing tar file|failed to register layer|docker load.{0,80}unexpected EOF|archive/tar: invalid)", 0, "the image did not arrive whole"),
CAUSE("host/blob", "image-transfer-failed", 76, "blobs/sha256", "blobs/sha256/[0-9a-f]{8,}.{0,40}(no such file|not found|unexpected)", 0, "the image did not arrive whole"),
CAUSE("host/docker-socket", "permission-denied", 93, "trying to connect to the docker daemon socket|docker.sock: connect: permission denied", 0, 0, "this user may not talk to docker"),
EITHER("host/permission", "permission-denied", 84, "permission denied", "(PermissionError|Errno 13|cannot create|mkdir|open|EACCES|Permission denied: ?').{0,160}|: Permission denied$",
      "!net/ssh-key", "a file or folder may not be written or read"),
EITHER("host/read-only", "permission-denied", 84, "read-only file system|operation not permitted: '/", 0, 0, "a folder cannot be written"),
EITHER("host/http-500", "permission-denied", 22, "500 internal server error", 0, 0, "requests fail without a trace: seen when the cache folder cannot be written"),

/* --- shared memory --- */
CAUSE("host/shm-fallocate", "dev-shm-too-small", 92, "posix_fallocate failed", "posix_fallocate failed ?: ?(No space left|Operation not permitted)", 0, "/dev/shm is too small for NCCL's buffers"),
CAUSE("host/shm-extend", "dev-shm-too-small", 92, "/dev/shm", "(failed to extend /dev/shm/\\S+ to (\\d+) bytes|shared memory segment \\S*.{0,80}No space left|/dev/shm.{0,80}No space left|No space left.{0,80}/dev/shm)", 0,
      "/dev/shm is too small[: $2 more bytes did not fit]"),
CAUSE("host/shm-create", "dev-shm-too-small", 84, "creating shared memory segment", "Error while creating shared memory segment \\S+ \\(size (\\d+)\\)", "host/shm-fallocate|host/shm-extend|model/disk-full",
      "/dev/shm is too small: a segment of $1 bytes did not fit"),
CAUSE("host/shm-create-only", "dev-shm-too-small", 66, "creating shared memory segment", "Error while creating shared memory segment", "!host/shm-fallocate !host/shm-extend", "a shared-memory segment could not be made"),
CAUSE("host/shm-torch", "dev-shm-too-small", 89, "insufficient shared memory|unable to write to file </torch_|unable to mmap|shared memory object", "(insufficient shared memory|unable to (write to file|mmap).{0,60}torch_|No space left.{0,40}shared memory)", 0, "/dev/shm is too small"),
CAUSE("host/shm-psm", "dev-shm-too-small", 87, "no space left on device", "No space left on device:? .{0,10}/?(psm_|sem\\.|mp-\\w+|torch_\\d)", 0, "/dev/shm is too small"),
CAUSE("host/bus-error", "dev-shm-too-small", 74, "sigbus|bus error", "(SIGBUS received|Bus error|signal 7\\b|SIGBUS)", 0, "a process got SIGBUS: a page of /dev/shm could not be allocated"),
CAUSE("host/shm-67108864", "dev-shm-too-small", 60, "capacity: 67108864|/dev/shm because /dev/shm has only|capacity: 0.06", 0, "host/bus-error|effect/raylet-worker-died", "/dev/shm has docker's default size of 64 MB"),

/* --- limits --- */
CAUSE("host/thread-limit", "thread-or-fd-limit", 91, "pthread_create failed|thread creation failed|can't start new thread|retry: resource temporarily unavailable|unable to create thread|cannot create thread|failed to create thread|thread: resource temporarily unavailable",
      0, 0, "the limit of processes and threads is reached"),
CAUSE("host/fd-limit", "thread-or-fd-limit", 90, "too many open files", 0, 0, "the limit of open files is reached"),
CAUSE("host/fork-eagain", "thread-or-fd-limit", 80, "resource temporarily unavailable", "(fork|clone|BlockingIOError|thread|Errno 11).{0,80}Resource temporarily unavailable", 0, "the limit of processes and threads is reached"),
CAUSE("host/pids-cgroup", "thread-or-fd-limit", 90, "fork rejected by pids controller", 0, 0, "the container's limit of processes is reached"),

/* --- environment --- */
CAUSE("host/env-none", "env-not-propagated", 66, "env=none", "\\b(\\w*ENV)=None", 0, "the variable $1 does not reach the process on the other node"),
CAUSE("host/env-missing", "env-not-propagated", 60, "environment variable", "environment variable '?`?(\\w+)'?`? (?:is )?(?:expected, but )?(?:is )?not set", 0, "the variable $1 is not set in this process"),
CAUSE("host/env-keyerror", "env-not-propagated", 60, "keyerror: '", "KeyError: '((?:VLLM|NCCL|GLOO|MASTER|HF|RAY|CUDA|UCX|SGLANG)_\\w+|RANK|WORLD_SIZE|LOCAL_RANK)'", 0, "the variable $1 is not set in this process"),
EITHER("host/env-overwrite", "env-overwritten-by-driver", 82, "overwriting environment variable",
      "Overwriting environment variable (\\w*(?:NCCL|UCX|GLOO|IFNAME|HOST_IP|SOCKET|IB_HCA|CUDA)\\w*) from ?(?:'([^']*)' to '([^']*)')?", 0, "the driver's value of $1 replaced this node's own[: $3 in place of $2]"),
EITHER("host/env-overwrite-any", "env-overwritten-by-driver", 45, "overwriting environment variable", 0, 0, "the driver's variables replaced this node's own"),

/* --- killed from outside --- */
CAUSE("host/probe", "external-killer", 86, "probe failed|failed startup probe|failed liveness probe|probe errored", "((Startup|Liveness|Readiness) probe (failed|errored)|failed (startup|liveness) probe)", 0, "a probe of the orchestrator ended the container while it was still starting"),
CAUSE("host/keyboard", "external-killer", 76, "keyboardinterrupt: terminated", 0, 0,
      "the process was told to stop from outside (SIGTERM)"),
CAUSE("host/sigterm", "external-killer", 62, "received sigterm|caught sigterm|signal 15 received|received signal 15|sigterm received", 0, "!step/ready",
      "the process was told to stop from outside (SIGTERM) while it was still starting"),
CAUSE("host/reason-error", "external-killer", 70, "reason: error", "reason: Error\\b", "memory/exit-code-137", "the container was killed from outside (137), and not for its memory limit"),
FACT("memory/exit-code-137", "exitcode: 137|exit code: 137|exitcode\": 137", "(137)", "exit_137"),
CAUSE("host/deadline", "external-killer", 80, "deadlineexceeded|due to time limit|job exceeded|stopping container", "(DeadlineExceeded|DUE TO TIME LIMIT|job exceeded|Killing.{0,20}Stopping container)", 0, "the job's time limit or its orchestrator ended it"),
CAUSE("host/healthcheck", "external-killer", 70, "is unhealthy|health check failed|unhealthy and", "(container .{0,60}is unhealthy|Health ?check failed(?! for node)|unhealthy and)", 0, "a health check ended the container while it was still starting"),

/* --- kernel --- */
CAUSE("host/oops", "host-reset-while-loading", 66, "kernel panic|unable to handle kernel|bug: unable to handle page fault|internal error: oops|general protection fault|kernel bug at", 0, 0, "the kernel of this host failed"),
CAUSE("host/oops-read", "host-reset-while-loading", 60, "filemap_fault|page_cache_async_ra|ext4_readahead|nvme_setup_rw", 0, 0, "the kernel failed while it read files ahead"),
CAUSE("host/reboot", "host-reset-while-loading", 62, "-- reboot --|-- boot ", "-- (Reboot|Boot [0-9a-f]{16,}) ?--", 0, "the host was reset: its journal begins a new boot"),
EITHER("host/pcie-limited", "link-degraded", 36, "available pcie bandwidth, limited by|link width|downgraded", "(available PCIe bandwidth, limited by|PCIe.{0,60}(downgraded|degraded))", 0, "a device's link is slower than it could be"),
};
/* clang-format on */
const size_t td_rules_host_count = TD_COUNT(td_rules_host);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes logs of failed starts out of a case's printed lines, as an operator would hand
 * them over: a start that looks healthy, the case's lines in order among misleading ones,
 * the usual tear-down. Prefixes, times, colours, carriage returns and repeated lines vary
 * with the seed.
 */
#ifndef TD_TESTS_EXPLAIN_LOGS_H
#define TD_TESTS_EXPLAIN_LOGS_H

#include "base/buf.h"
#include "base/limits.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char *const logs_healthy[] = {
    "INFO @t [api_server.py:1351] vLLM API server version 0.17.1",
    "INFO @t [api_server.py:1357] non-default args: {'model': '/models/m', 'port': "
    "8000, "
    "'tensor_parallel_size': 2}",
    "INFO @t [config.py:1472] Using max model len 32768",
    "INFO @t [core.py:93] Initializing a V1 LLM engine (v0.17.1) with config: "
    "model='/models/m', tensor_parallel_size=2, pipeline_parallel_size=1, "
    "quantization=fp8",
    "WARNING @t [ray_utils.py:315] Tensor parallel size (2) exceeds available GPUs "
    "(1). "
    "This may result in Ray placement group allocation failures.",
    "2026-04-08 23:@m:@s,412\tINFO worker.py:1832 -- Connecting to existing Ray "
    "cluster "
    "at address: 10.0.0.5:6379...",
    "2026-04-08 23:@m:@s,420\tINFO worker.py:2003 -- Connected to Ray cluster.",
    "(raylet) [2026-04-08 23:@m:@s,101 E 88 117] (raylet) file_system_monitor.cc:116: "
    "/tmp/ray/session_2026 is over 95% full, available space: 6.2 GB; capacity: 916 "
    "GB. "
    "Object creation will fail if spilling is required.",
    "host-a:433:433 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using "
    "internal implementation",
    "NCCL version 2.27.3+cuda13.0",
    "INFO @t [parallel_state.py:1004] rank 0 in world size 2 is assigned as DP rank 0, "
    "PP rank 0, TP rank 0",
    "WARNING @t [envs.py:1502] Unknown vLLM environment variable detected: "
    "VLLM_SPARK_TUNED",
    "INFO @t [gpu_model_runner.py:3311] Starting to load model /models/m...",
    "Loading safetensors checkpoint shards:   0% Completed | 0/39 [00:00<?, "
    "?it/s]\rLoading safetensors checkpoint shards:  @p% Completed | @k/39 "
    "[@m:@s<06:11, 18.12s/it]",
    "FutureWarning: The pynvml package is deprecated. Please install nvidia-ml-py "
    "instead.",
    "INFO @t [shm_broadcast.py:501] No available shared memory broadcast block found "
    "in "
    "60 seconds. This typically happens when some processes are hanging or doing some "
    "time-consuming work (e.g. compilation, weight/kv cache quantization).",
    "[W408 23:@m:@s.412007112 socket.cpp:764] [c10d] The client socket cannot be "
    "initialized to connect to [localhost]:29500 (errno: 97 - Address family not "
    "supported by protocol).",
    "metrics exporter: failed to connect, will retry in 5 s",
};

static const char *const logs_teardown[] = {
    "ERROR @t [core.py:1098] EngineCore failed to start.",
    "ERROR @t [core.py:1098] Traceback (most recent call last):",
    "ERROR @t [core.py:1098]   File \"/opt/env/lib/python3.12/site-packages/vllm/v1/"
    "engine/core.py\", line 1089, in run_engine_core",
    "ERROR @t [core.py:1098]     engine_core = EngineCoreProc(*args, **kwargs)",
    "Process EngineCore_DP0:",
    "Traceback (most recent call last):",
    "  File \"/opt/env/lib/python3.12/site-packages/vllm/entrypoints/openai/"
    "api_server.py\", line 101, in build_async_engine_client",
    "    async with build_async_engine_client_from_engine_args(",
    "  File \"/usr/lib/python3.12/contextlib.py\", line 210, in __aenter__",
    "    return await anext(self.gen)",
    "           ^^^^^^^^^^^^^^^^^^^^^",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed "
    "core "
    "proc(s): {'EngineCore_DP0': 1}",
    "frame #47: ray::core::CoreWorkerProcess::RunTaskExecutionLoop() + 0x20 "
    "(0xea72d8b04a00 in /opt/env/lib/python3.12/site-packages/ray/_raylet.so)",
    "ERROR @t [core.py:1098] 442\t0.00\tray::IDLE",
    "resource_tracker: There appear to be 1 leaked shared_memory objects to clean up "
    "at "
    "shutdown",
    "[rank0]:[W408 23:@m:@s.002113402 ProcessGroupNCCL.cpp:1524] Warning: WARNING: "
    "destroy_process_group() was not called before program exit",
};

static const char *const logs_sglang_end[] = {
    "[2026-04-08 23:@m:@s] SIGQUIT received. signum=None, frame=None. It usually means "
    "one child failed.",
    "[2026-04-08 23:@m:@s] kill_process_tree called: parent_pid=311 "
    "include_parent=True",
    "Killed",
};

struct logs {
    uint64_t state; /* of the random numbers */
    int clock;
    const char *system;
    struct td_buf *out;
};

static inline uint32_t logs_random(struct logs *l, uint32_t below)
{
    uint64_t z = l->state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (uint32_t)((z ^ (z >> 31)) % below);
}

/* A line of a template: @t date and time, @m minute, @s second, @p percent, @k count. */
static inline void logs_fill(struct logs *l, const char *line, struct td_buf *out)
{
    l->clock += (int)logs_random(l, 10);
    int m = 10 + l->clock / 60 % 50, s = l->clock % 60;
    for (const char *p = line; *p; p++) {
        if (*p != '@')
            td_buf_addc(out, *p);
        else if (*++p == 't')
            td_buf_addf(out, "04-08 23:%02d:%02d", m, s);
        else if (*p == 'm' || *p == 's')
            td_buf_addf(out, "%02d", *p == 'm' ? m : s);
        else
            td_buf_addf(out, "%u", 3 + logs_random(l, *p == 'p' ? 94 : 36));
    }
}

/* The prefix that the engine or Ray would put before a line, and a line end. */
static inline void logs_dress(struct logs *l, const char *line, struct td_buf *out)
{
    static const char *const who[] = {"(APIServer pid=462)",
                                      "(EngineCore_DP0 pid=1544)",
                                      "(EngineCore_DP0 pid=1544)"};
    const char *tab = strchr(line, '\t');
    bool plain = (tab && tab - line < 30) || *line == '(' || *line == '[' ||
                 strncmp(line, "host-", 5) == 0 ||
                 strncmp(line, "NCCL version", 12) == 0 ||
                 strncmp(line, "docker", 6) == 0 || strncmp(line, "srun", 4) == 0 ||
                 strncmp(line, "ssh", 3) == 0;
    if (!plain && strncmp(l->system, "vllm", 4) == 0) {
        const char *w = who[logs_random(l, 3)];
        if (logs_random(l, 10) < 3)
            td_buf_addf(out, "\x1b[0;36m%s\x1b[0;0m ", w);
        else
            td_buf_addf(out, "%s ", w);
    }
    td_buf_adds(out, line);
    td_buf_addc(out, '\n');
}

static inline void logs_template(struct logs *l, const char *line, struct td_buf *out)
{
    struct td_buf text;
    td_buf_init(&text, 64 * TD_KIB);
    logs_fill(l, line, &text);
    logs_dress(l, text.p, out);
    td_buf_release(&text);
}

static inline void logs_start(struct logs *l, int lines, struct td_buf *out)
{
    for (int i = 0; i < lines; i++)
        logs_template(l,
                      logs_healthy[logs_random(l, sizeof(logs_healthy) /
                                                      sizeof(logs_healthy[0]))],
                      out);
}

static inline void logs_end(struct logs *l, int repeat, struct td_buf *out)
{
    bool sglang = strcmp(l->system, "sglang") == 0;
    const char *const *lines = sglang ? logs_sglang_end : logs_teardown;
    size_t n = sglang ? sizeof(logs_sglang_end) / sizeof(logs_sglang_end[0])
                      : sizeof(logs_teardown) / sizeof(logs_teardown[0]);
    for (int r = 0; r < repeat; r++)
        for (size_t i = 0; i < n; i++)
            logs_template(l, lines[i], out);
}

/* The lines of one case in order, its misleading ones put among them. `node2` takes the
 * case's own lines when its cause stands in another node's log. */
static inline void logs_body(struct logs *l, json_t *c, struct td_buf *head,
                             struct td_buf *node2)
{
    const char *order[256];
    bool own[256];
    size_t n = 0, i;
    json_t *line;
    json_array_foreach(json_object_get(c, "lines"), i, line)
    {
        own[n] = true;
        order[n++] = json_string_value(line);
    }
    json_array_foreach(json_object_get(c, "noise"), i, line)
    {
        size_t at = logs_random(l, (uint32_t)n + 1);
        memmove(order + at + 1, order + at, (n - at) * sizeof(*order));
        memmove(own + at + 1, own + at, (n - at) * sizeof(*own));
        order[at] = json_string_value(line);
        own[at] = false;
        n++;
    }
    bool other = json_is_true(json_object_get(c, "other_node"));
    for (i = 0; i < n; i++) {
        logs_dress(l, order[i], other && own[i] ? node2 : head);
        if (logs_random(l, 20) < 3 && strstr(l->system, "ray")) {
            td_buf_adds(head, order[i]);
            td_buf_adds(head, " [repeated 3x across cluster]\n");
        }
        if (logs_random(l, 10) < 3)
            logs_start(l, 1, head);
    }
}

/* Fills head, and node2 when the case needs one. */
static inline void logs_build(json_t *c, uint64_t seed, struct td_buf *head,
                              struct td_buf *node2)
{
    struct logs l = {.state = seed,
                     .system = json_string_value(json_object_get(c, "system"))};
    for (const char *p = json_string_value(json_object_get(c, "id")); *p; p++)
        l.state = l.state * 31 + (unsigned char)*p;
    bool other = json_is_true(json_object_get(c, "other_node"));
    logs_start(&l, 20, head);
    if (other)
        logs_start(&l, 20, node2);
    logs_body(&l, c, head, node2);
    logs_end(&l, strcmp(l.system, "sglang") == 0 ? 12 : 2, head);
}

#endif

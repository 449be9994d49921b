/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain on whole folders of logs: five well-known failures of a start over two hosts,
 * whole and with only their tail left; two hundred healthy starts, real ones of Ray and
 * torch among them, in which no cause may be named; tandem's own event logs.
 */
#include "explain_logs.h"
#include "check.h"

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "explain/explain.h"

#include <stdlib.h>

#define DIR "tests/cases/explain/"

static struct td_explain *explain_path(const char *path)
{
    struct td_explain *x = NULL;
    struct td_error err;
    td_error_init(&err);
    assert_int_equal(td_explain_new(&x, &err), TD_OK);
    if (td_explain_add_path(x, path, &err) != TD_OK)
        fail_msg("%s", err.what);
    assert_int_equal(td_explain_judge(x, &err), TD_OK);
    return x;
}

static char *report_of(const struct td_explain *x)
{
    static const struct td_explain_style plain = {false, 0};
    struct td_buf out;
    td_buf_init(&out, 1 * TD_MIB);
    assert_int_equal(td_explain_text(x, &plain, &out), TD_OK);
    return td_buf_take(&out);
}

static enum td_grade grade_named(const char *name)
{
    for (int g = TD_GRADE_NONE; g <= TD_GRADE_CERTAIN; g++)
        if (strcmp(td_grade_name((enum td_grade)g), name) == 0)
            return (enum td_grade)g;
    fail_msg("no grade %s", name);
    return TD_GRADE_NONE;
}

/* One line of expect.tsv, its tabs already replaced by zeros. */
static void check_folder(const char *folder, const char *kind, const char *grade,
                         char *words)
{
    char path[256];
    (void)snprintf(path, sizeof(path), DIR "five/%s", folder);
    struct td_explain *x = explain_path(path);
    char *text = report_of(x);
    const char *got = td_explain_kind(x);
    if (!got || strcmp(got, kind) != 0)
        fail_msg("%s: %s, not %s\n%s", folder, got ? got : "nothing", kind, text);
    if (td_explain_grade(x) < grade_named(grade))
        fail_msg("%s: only %s\n%s", folder, td_grade_name(td_explain_grade(x)), text);
    for (char *w = words; *w;) {
        size_t n = strcspn(w, "|");
        bool last = w[n] == 0;
        w[n] = 0;
        if (!strstr(text, w))
            fail_msg("%s: the report does not say \"%s\"\n%s", folder, w, text);
        w += last ? n : n + 1;
    }
    free(text);
    td_explain_free(x);
}

static void test_five_failures(void **state)
{
    struct td_buf b;
    int count = 0;
    (void)state;
    td_buf_init(&b, 1 * TD_MIB);
    assert_int_equal(td_file_read(DIR "five/expect.tsv", &b, NULL), TD_OK);
    for (char *p = b.p; *p;) {
        size_t n = strcspn(p, "\n");
        bool last = p[n] == 0;
        p[n] = 0;
        char *field[4] = {p};
        for (int i = 1; i < 4 && *p != '#'; i++) {
            field[i] = strchr(field[i - 1], '\t');
            assert_non_null(field[i]);
            *field[i]++ = 0;
        }
        if (*p != '#') {
            check_folder(field[0], field[1], field[2], field[3]);
            count++;
        }
        p = last ? p + n : field[0] + n + 1;
    }
    assert_true(count >= 10);
    td_buf_release(&b);
}

static void expect_no_cause(const struct td_explain *x, const char *what)
{
    if (td_explain_grade(x) == TD_GRADE_NONE)
        return;
    char *text = report_of(x);
    print_message("%s\n%s", what, text);
    free(text);
    fail_msg("a healthy start was given a cause");
}

static void check_healthy_text(const char *text, size_t n)
{
    struct td_explain *x = NULL;
    assert_int_equal(td_explain_new(&x, NULL), TD_OK);
    assert_int_equal(td_explain_add_bytes(x, "head.log", text, n, NULL), TD_OK);
    assert_int_equal(td_explain_judge(x, NULL), TD_OK);
    expect_no_cause(x, text);
    td_explain_free(x);
}

/* Good starts in the order in which engines print them. */
static const char *const good_vllm[] = {
    "INFO @t [api_server.py:1351] vLLM API server version 0.17.1",
    "INFO @t [core.py:93] Initializing a V1 LLM engine (v0.17.1) with config: "
    "model='/models/m', tensor_parallel_size=2, distributed_executor_backend=ray",
    "WARNING @t [ray_utils.py:331] Total GPU requirement (world_size=2) exceeds "
    "locally "
    "visible GPUs (1). For multi-node Ray clusters, this may be expected.",
    "WARNING @t [__init__.py:26] Failed to read version: No module named "
    "'vllm._version'",
    "HTTPSConnectionPool(host='stats.vllm.ai', port=443): Max retries exceeded with "
    "url: / "
    "(Caused by NameResolutionError: [Errno -2] Name or service not known)",
    "mkdir -p failed for path /.config/matplotlib: [Errno 13] Permission denied: "
    "'/.config/matplotlib'",
    "[W408 23:@m:@s.412007112 socket.cpp:697] [c10d] The IPv6 network addresses of "
    "(host-a, 29500) cannot be retrieved (gai error: -5 - No address associated with "
    "hostname).",
    "INFO @t [ray_utils.py:226] Waiting for creating a placement group of specs for 10 "
    "seconds.",
    "host-a:433:433 [0] NCCL INFO Bootstrap : Using enp1s0f0np0:10.0.0.5<0>",
    "host-a:433:433 [0] NCCL INFO NET/IB : No device found.",
    "host-a:433:433 [0] NCCL INFO NET/Socket : Using [0]enp1s0f0np0:10.0.0.5<0>",
    "host-a:433:433 [0] NCCL INFO Using network Socket",
    "host-a:433:433 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 "
    "nvmlDev 0 busId 1000 commId 0x2 - Init START",
    "host-a:433:433 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 "
    "nvmlDev 0 busId 1000 commId 0x2 - Init COMPLETE",
    "WARNING @t [custom_all_reduce.py:134] Custom allreduce is disabled because this "
    "process group spans across nodes.",
    "INFO @t [gpu_model_runner.py:3311] Starting to load model /models/m...",
    "INFO @t [default_loader.py:267] Loading weights took @p.11 seconds",
    "INFO @t [gpu_worker.py:298] Available KV cache memory: @p.20 GiB",
    "INFO @t [kv_cache_utils.py:1087] GPU KV cache size: 1,074,592 tokens",
    "Capturing CUDA graphs (decode, FULL): 100%|##########| 35/35 [00:06<00:00]",
    "INFO @t [gpu_model_runner.py:4244] Graph capturing finished in 9 secs, took 0.5 "
    "GiB",
    "INFO:     Application startup complete.",
    "INFO:     127.0.0.1:5555 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK",
};
static const char *const good_sglang[] = {
    "[2026-04-08 23:@m:@s] server_args=ServerArgs(model_path='/models/m', tp_size=2)",
    "[2026-04-08 23:@m:@s TP0] Init torch distributed begin.",
    "[2026-04-08 23:@m:@s TP0] CustomAllreduce is disabled because this process group "
    "spans across nodes.",
    "[2026-04-08 23:@m:@s TP0] Init torch distributed ends. mem usage=0.10 GB",
    "[2026-04-08 23:@m:@s TP0] Load weight begin. avail mem=100.00 GB",
    "[2026-04-08 23:@m:@s TP0] Load weight end. type=X, dtype=torch.bfloat16, avail "
    "mem=60.00 GB",
    "[2026-04-08 23:@m:@s TP0] KV Cache is allocated. #tokens: 1000",
    "[2026-04-08 23:@m:@s TP0] Capture cuda graph begin. This can take up to several "
    "minutes.",
    "[2026-04-08 23:@m:@s TP0] Capture cuda graph end. Time elapsed: @p.00 s",
    "[2026-04-08 23:@m:@s] The server is fired up and ready to roll!",
};

static void good_start(uint64_t seed, struct td_buf *out)
{
    bool sglang = seed % 3 == 2;
    struct logs l = {.state = seed, .system = sglang ? "sglang" : "vllm+ray"};
    const char *const *lines = sglang ? good_sglang : good_vllm;
    size_t n = sglang ? sizeof(good_sglang) / sizeof(good_sglang[0])
                      : sizeof(good_vllm) / sizeof(good_vllm[0]);
    for (size_t i = 0; i < n; i++) {
        logs_template(&l, lines[i], out);
        if (i > 1 && i + 4 < n && logs_random(&l, 3) == 0)
            logs_start(&l, 2, out);
    }
}

static void test_healthy_starts(void **state)
{
    static const char *const real[] = {"ray-session", "ray", "torch", "tandem"};
    struct td_buf b;
    (void)state;
    td_buf_init(&b, 4 * TD_MIB);
    for (uint64_t seed = 1; seed <= 196; seed++) {
        struct logs l = {.state = seed, .system = seed % 2 ? "vllm+ray" : "nccl"};
        td_buf_clear(&b);
        if (seed % 2)
            good_start(seed / 2, &b);
        else
            logs_start(&l, 20 + (int)logs_random(&l, 200), &b);
        check_healthy_text(b.p, b.len);
    }
    td_buf_release(&b);
    for (size_t i = 0; i < sizeof(real) / sizeof(real[0]); i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), DIR "healthy/%s", real[i]);
        struct td_explain *x = explain_path(path);
        expect_no_cause(x, path);
        assert_null(td_explain_kind(x));
        td_explain_free(x);
    }
}

static void test_event_logs(void **state)
{
    (void)state;
    struct td_explain *x = explain_path(DIR "tandem/peer.jsonl");
    assert_string_equal(td_explain_kind(x), "truncated");
    assert_int_equal(td_explain_grade(x), TD_GRADE_CERTAIN);
    char *text = report_of(x);
    assert_non_null(strstr(text, "spark-2, rank 1"));
    assert_non_null(strstr(text, "model-00003-of-00039"));
    free(text);
    td_explain_free(x);
    /* the log of a second start is appended to that of the first */
    static const char again[] =
        "{\"t\":1.0,\"host\":\"a\",\"rank\":-1,\"pid\":1,\"phase\":\"load\",\"event\":"
        "\"error\",\"code\":\"io\",\"what\":\"w\",\"why\":\"\",\"fix\":\"\"}\n"
        "{\"t\":2.0,\"host\":\"a\",\"rank\":-1,\"pid\":2,\"phase\":\"plan\",\"event\":"
        "\"phase\"}\n"
        "{\"t\":3.0,\"host\":\"a\",\"rank\":-1,\"pid\":2,\"phase\":\"load\",\"event\":"
        "\"error\",\"code\":\"no-memory\",\"what\":\"w\",\"why\":\"\",\"fix\":\"\"}\n"
        "{\"t\":4.0,\"host\":\"a\",\"rank\":-1,\"pid\":3,\"phase\":\"serve\",\"event\":"
        "\"phase\"}\n";
    size_t two = (size_t)(strstr(again, "{\"t\":4.0") - again);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(td_explain_new(&x, NULL), TD_OK);
        assert_int_equal(
            td_explain_add_bytes(x, "e", again, i ? sizeof(again) - 1 : two, NULL),
            TD_OK);
        assert_int_equal(td_explain_judge(x, NULL), TD_OK);
        if (i == 0)
            assert_string_equal(td_explain_kind(x), "no-memory");
        else
            assert_null(td_explain_kind(x));
        td_explain_free(x);
    }
    /* only the ranks that saw the other one go */
    x = explain_path(DIR "tandem/only-peer.jsonl");
    assert_string_equal(td_explain_kind(x), "peer-lost");
    assert_int_equal(td_explain_grade(x), TD_GRADE_POSSIBLE);
    td_explain_free(x);
    /* the kernel log of that host names the cause */
    assert_int_equal(td_explain_new(&x, NULL), TD_OK);
    assert_int_equal(td_explain_add_path(x, DIR "tandem/only-peer.jsonl", NULL), TD_OK);
    static const char kernel[] =
        "Nov 29 11:42:07 spark-2 kernel: Out of memory: Killed process 991 (tandem) "
        "total-vm:90000000kB, anon-rss:80000000kB, file-rss:0kB\n";
    assert_int_equal(
        td_explain_add_bytes(x, "dmesg.txt", kernel, sizeof(kernel) - 1, NULL), TD_OK);
    assert_int_equal(td_explain_judge(x, NULL), TD_OK);
    assert_string_equal(td_explain_kind(x), "host-oom-killed-137");
    td_explain_free(x);
}

static void test_json(void **state)
{
    static const char *const keys[] = {"kind",       "grade", "family",   "host",
                                       "rank",       "phase", "evidence", "followers",
                                       "candidates", "fix",   "missing"};
    static const char *const paths[] = {"five/4-memory-monitor", "tandem/peer.jsonl",
                                        "healthy/ray", "five/3-store-tail"};
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char path[128];
        struct td_buf out;
        json_t *j = NULL;
        (void)snprintf(path, sizeof(path), DIR "%s", paths[i]);
        struct td_explain *x = explain_path(path);
        td_buf_init(&out, 1 * TD_MIB);
        assert_int_equal(td_explain_json(x, false, &out), TD_OK);
        assert_int_equal(td_json_parse(out.p, out.len, "report", &j, NULL), TD_OK);
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
            assert_non_null(json_object_get(j, keys[k]));
        if (i == 0) {
            json_t *e = json_array_get(json_object_get(j, "evidence"), 0);
            assert_string_equal(json_string_value(json_object_get(j, "host")),
                                "192.168.200.13");
            assert_string_equal(json_string_value(json_object_get(j, "phase")),
                                "capture");
            assert_int_equal(json_integer_value(json_object_get(e, "line")), 10);
        }
        json_decref(j);
        td_buf_release(&out);
        td_explain_free(x);
    }
}

/* The same communicator's init on two hosts whose clocks differ by an hour. */
static void test_timeline_aligns_clocks(void **state)
{
    static const char a[] =
        "2026-04-08T23:00:00.000000000Z host-a:1:1 [0] NCCL INFO "
        "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 "
        "busId 1 commId 0xabc - Init START\n"
        "2026-04-08T23:00:09.000000000Z EngineCore failed to start.\n";
    static const char b[] =
        "2026-04-09T00:00:00.500000000Z host-b:1:1 [0] NCCL INFO "
        "ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 0 nvmlDev 0 "
        "busId 1 commId 0xabc - Init START\n"
        "2026-04-09T00:00:04.000000000Z Fatal Python error: "
        "Segmentation fault\n";
    static const struct td_explain_style plain = {false, 0};
    struct td_explain *x = NULL;
    struct td_buf out;
    (void)state;
    td_buf_init(&out, 1 * TD_MIB);
    assert_int_equal(td_explain_new(&x, NULL), TD_OK);
    assert_int_equal(td_explain_add_bytes(x, "a.log", a, sizeof(a) - 1, NULL), TD_OK);
    assert_int_equal(td_explain_add_bytes(x, "b.log", b, sizeof(b) - 1, NULL), TD_OK);
    assert_int_equal(td_explain_judge(x, NULL), TD_OK);
    assert_int_equal(td_explain_timeline(x, &plain, &out), TD_OK);
    const char *crash = strstr(out.p, "Segmentation fault");
    const char *death = strstr(out.p, "EngineCore failed");
    assert_non_null(crash);
    assert_non_null(death);
    assert_true(crash < death);
    assert_non_null(strstr(out.p, "b.log is shifted by -3600.5 s"));
    td_buf_release(&out);
    td_explain_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_five_failures),
        cmocka_unit_test(test_healthy_starts),
        cmocka_unit_test(test_event_logs),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_timeline_aligns_clocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

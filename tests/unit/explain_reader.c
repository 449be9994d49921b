/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: the layers of prefixes, packed and damaged files, folders, hostile bytes, and
 * the n-th allocation failing.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "explain/explain_int.h"
#include "explain/prefix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static const char shm_line[] = "host-a:1:2 [0] include/shm.h:28 NCCL WARN Call to "
                               "posix_fallocate failed : No space "
                               "left on device\n";

/* --- prefixes --- */

struct form {
    const char *raw, *text, *host, *role;
    long pid;
    int rank;
    char level;
    double clock; /* seconds of the day, -1: none */
};

static const struct form forms[] = {
    {"INFO 11-23 11:58:35 [ray_utils.py:396] msg", "msg", "", "", -1, -1, 'I', 43115},
    {"ERROR 12-25 12:05:59 multiproc_worker_utils.py:226] msg", "msg", "", "", -1, -1,
     'E', 43559},
    {"(EngineCore pid=721) (RayWorkerProc pid=330, ip=10.0.0.6) (Worker_TP1 pid=330) "
     "2026-05-18 01:11:02,824 - INFO - autotuner.py:641 - flashinfer.jit: x",
     "autotuner.py:641 - flashinfer.jit: x", "10.0.0.6", "Worker_TP1", 330, 1, 'I',
     4262.824},
    {"2024-06-28T06:11:52.685300953Z stderr F (raylet, ip=10.0.0.6) lost", "lost",
     "10.0.0.6", "raylet", -1, -1, 0, 22312.685},
    {"Aug 19 18:34:27 host-a unit[8727]: (EngineCore pid=8727) msg", "msg", "host-a",
     "EngineCore", 8727, -1, 0, 66867},
    {"svc-1    | msg", "msg", "", "svc-1", -1, -1, 0, -1},
    {"> > [rank3]: msg", "msg", "", "", -1, 3, 0, -1},
    {"head.log:123:[default0]:msg", "msg", "", "", -1, 0, 0, -1},
    {"[1,3]<stderr>:[host-a:29881] msg", "msg", "host-a", "", 29881, 3, 0, -1},
    {"2025-11-23 11:58:33,727\tINFO worker.py:1832 -- Connecting", "Connecting", "", "",
     -1, -1, 'I', 43113.727},
    {"(gcs_server) [2025-06-13 01:49:41,730 E 1 7] (gcs_server) x.cc:9: msg",
     "x.cc:9: msg", "", "gcs_server", 1, -1, 'E', 6581.73},
    {"[2025-12-04 07:44:24 DP0 TP4] Scheduler hit", "Scheduler hit", "", "", -1, 4, 0,
     27864},
    {"[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog",
     "[Rank 0] Watchdog", "", "", -1, 0, 'E', 7628.408},
    {"[W socket.cpp:663] [c10d] msg", "[c10d] msg", "", "", -1, -1, 'W', -1},
    {"W0722 15:17:50.704000 140269336518656 torch/distributed/run.py:757] msg", "msg",
     "", "", -1, -1, 'W', 55070.704},
    {"host-a:2528:3113 [0] transport/net_ib.cc:1038 NCCL WARN msg",
     "transport/net_ib.cc:1038 NCCL WARN msg", "host-a", "", 2528, -1, 0, -1},
    {"[74889.644138] NVRM: Xid", "NVRM: Xid", "", "kernel", -1, -1, 0, -1},
    {"0.00.386.093 E msg", "msg", "", "", -1, -1, 'E', -1},
    {"#033[2m#033[33m(raylet)#033[0m msg", "msg", "", "raylet", -1, -1, 0, -1},
    {"\x1b[0;36m(APIServer pid=4)\x1b[0;0m \x1b[32mINFO\x1b[0m 01-02 00:00:01 "
     "\x1b[90m[a.py:1]\x1b[0m msg",
     "msg", "", "APIServer", 4, -1, 'I', 1},
    {"{\"log\":\"(pid=53316) say \\\"x\\\"\\n\",\"stream\":\"stderr\"}", "say \"x\"",
     "", "", 53316, -1, 0, -1},
    {"(W pid=3) msg [repeated 3x across cluster] (Ray deduplicates logs by default. "
     "Set "
     "RAY_DEDUP_LOGS=0)",
     "msg", "", "W", 3, -1, 0, -1},
    {"msg [repeated often]", "msg [repeated often]", "", "", -1, -1, 0, -1},
    {"(most recent call last)", "(most recent call last)", "", "", -1, -1, 0, -1},
    {"  File \"x.py\", line 3", "  File \"x.py\", line 3", "", "", -1, -1, 0, -1},
    {"", "", "", "", -1, -1, 0, -1},
};

static void test_prefixes(void **state)
{
    char clean[TD_LINE_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const struct form *f = &forms[i];
        struct td_line line;
        size_t n = td_line_clean(f->raw, strlen(f->raw), clean, sizeof(clean));
        td_line_parse(clean, n, &line);
        if (line.len != strlen(f->text) || memcmp(line.text, f->text, line.len) != 0)
            fail_msg("%s: text is \"%.*s\"", f->raw, (int)line.len, line.text);
        if (strcmp(line.host, f->host) != 0 || strcmp(line.role, f->role) != 0)
            fail_msg("%s: host \"%s\", role \"%s\"", f->raw, line.host, line.role);
        if (line.pid != f->pid || line.rank != f->rank || line.level != f->level)
            fail_msg("%s: pid %ld, rank %d, level %d", f->raw, line.pid, line.rank,
                     line.level);
        double day = line.time - 86400.0 * (double)(long)(line.time / 86400.0);
        if ((f->clock < 0) != (line.time < 0) ||
            (f->clock >= 0 && (day < f->clock - 0.01 || day > f->clock + 0.01)))
            fail_msg("%s: time %f", f->raw, line.time);
    }
}

/* --- sources --- */

static struct td_explain *judge_bytes(const void *p, size_t n)
{
    struct td_explain *x = NULL;
    assert_int_equal(td_explain_new(&x, NULL), TD_OK);
    assert_int_equal(td_explain_add_bytes(x, "x.log", p, n, NULL), TD_OK);
    assert_int_equal(td_explain_judge(x, NULL), TD_OK);
    return x;
}

static void expect_shm(const void *p, size_t n)
{
    struct td_explain *x = judge_bytes(p, n);
    assert_non_null(td_explain_kind(x));
    assert_string_equal(td_explain_kind(x), "dev-shm-too-small");
    td_explain_free(x);
}

static size_t gzip(const char *p, size_t n, unsigned char *out, size_t size)
{
    z_stream z;
    memset(&z, 0, sizeof(z));
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    unsigned char *in = malloc(n);
    assert_non_null(in);
    memcpy(in, p, n);
    z.next_in = in;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)size;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t k = size - z.avail_out;
    (void)deflateEnd(&z);
    free(in);
    return k;
}

static char *long_text(size_t n)
{
    char *text = malloc(n + sizeof(shm_line));
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = i % 97 == 96 ? '\n' : (char)('a' + i % 23);
    memcpy(text + n, shm_line, sizeof(shm_line));
    return text;
}

static void test_packed(void **state)
{
    enum { TEXT = 3 << 20 };
    (void)state;
    char *text = long_text(TEXT);
    size_t n = TEXT + sizeof(shm_line) - 1, size = n + 4096;
    unsigned char *packed = malloc(2 * size);
    assert_non_null(packed);

    size_t k = gzip(text, n, packed, size);
    expect_shm(packed, k);
    k += gzip(shm_line, sizeof(shm_line) - 1, packed + k, size); /* a second member */
    expect_shm(packed, k);
    struct td_explain *x = judge_bytes(packed, 700); /* cut */
    assert_null(td_explain_kind(x));
    assert_string_equal(x->sources[0].note, "the compressed file is cut");
    td_explain_free(x);
    for (size_t i = 20; i < 600; i++)
        packed[i] ^= 0x5a;
    x = judge_bytes(packed, k); /* damaged */
    assert_non_null(x->sources[0].note);
    td_explain_free(x);

    k = ZSTD_compress(packed, size, text, n, 3);
    assert_false(ZSTD_isError(k));
    expect_shm(packed, k);
    x = judge_bytes(packed, k / 2);
    assert_string_equal(x->sources[0].note, "the compressed file is cut");
    td_explain_free(x);
    free(packed);
    free(text);
}

static void test_odd_bytes(void **state)
{
    (void)state;
    char buf[4096];
    size_t n = 0;
    /* binary, broken UTF-8, carriage returns, no line end */
    for (int i = 0; i < 300; i++)
        buf[n++] = (char)(i * 7);
    n += (size_t)snprintf(buf + n, sizeof(buf) - n, "\r10%%\r20%%\r\xff\xfe %s",
                          shm_line);
    n--;
    expect_shm(buf, n);
    struct td_explain *x = judge_bytes("", 0);
    assert_null(td_explain_kind(x));
    td_explain_free(x);
    x = judge_bytes("\n\r\n\r\r\n", 6);
    assert_null(td_explain_kind(x));
    td_explain_free(x);
}

/* Far into a line without an end, and over the border of what is in memory at once. */
static void test_endless_line(void **state)
{
    (void)state;
    for (size_t at = 0; at < 4; at++) {
        size_t n = (1 << 20) - 40 + at * 16380;
        char *text = malloc(n + sizeof(shm_line));
        assert_non_null(text);
        memset(text, 'x', n);
        memcpy(text + n, shm_line, sizeof(shm_line));
        struct td_explain *x = judge_bytes(text, n + sizeof(shm_line) - 1);
        assert_true(at == 0 || td_explain_kind(x) != NULL);
        td_explain_free(x);
        free(text);
    }
}

/* Text made to be slow: many literals, patterns that almost match. */
static void test_hostile_time(void **state)
{
    static const char *const bait[] = {
        "error: exception: no such file or directory: -of- must be divisible by ",
        "NET/Socket : Using [0]a:1.2.3.4<0> running was 1GB / 2GB exceeds the memory ",
        "(((((((((((([[[[[[[[[[ resource request resource request node: node: specs= "};
    (void)state;
    for (size_t b = 0; b < 3; b++) {
        enum { SIZE = 8 << 20 };
        char *text = malloc(SIZE);
        assert_non_null(text);
        size_t k = strlen(bait[b]);
        for (size_t i = 0; i < SIZE; i++)
            text[i] = i % 12000 == 11999 ? '\n' : bait[b][i % k];
        double t = td_clock_now();
        td_explain_free(judge_bytes(text, SIZE));
        assert_true(td_clock_now() - t < 30.0);
        free(text);
    }
}

/* A program that ends with an exception and says nothing else has failed. */
static void test_bare_exception(void **state)
{
    static const char text[] = "loading\nTraceback (most recent call last):\n"
                               "  File \"x.py\", line 1, in <module>\n"
                               "ModuleNotFoundError: No module named 'sched_ext'\n";
    static const char early[] = "ModuleNotFoundError: No module named 'sched_ext'\n"
                                "going on\nwithout it\nto the\nend\n";
    (void)state;
    struct td_explain *x = judge_bytes(text, sizeof(text) - 1);
    assert_non_null(td_explain_kind(x));
    assert_string_equal(td_explain_kind(x), "extension-not-built");
    td_explain_free(x);
    x = judge_bytes(early, sizeof(early) - 1);
    assert_null(td_explain_kind(x));
    td_explain_free(x);
}

static void test_bounded_memory(void **state)
{
    struct td_buf b;
    (void)state;
    td_buf_init(&b, 64 * TD_MIB);
    for (int i = 0; i < 60000; i++)
        td_buf_addf(&b,
                    "(Worker_%d pid=%d, ip=10.%d.%d.%d) Local node IP: 10.9.%d.%d "
                    "KeyError: 'model.layers.%d' exit code: -9\n",
                    i, i, i / 65536, i / 256 % 256, i % 256, i / 256 % 256, i % 256, i);
    struct td_explain *x = judge_bytes(b.p, b.len);
    assert_true(x->nstreams <= TD_MAX_EXPLAIN_STREAMS);
    assert_true(x->nhits <= TD_MAX_EXPLAIN_HITS);
    assert_true(x->nfacts <= TD_MAX_EXPLAIN_FACTS);
    assert_true(x->arena.used <= TD_MAX_EXPLAIN_KEEP);
    assert_string_equal(td_explain_kind(x), "weights-names-mismatch");
    td_explain_free(x);
    td_buf_release(&b);
}

/* --- files --- */

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void test_folders(void **state)
{
    char dir[] = "/tmp/tandem-explain-XXXXXX", sub[256], path[512];
    struct td_explain *x = NULL;
    struct td_error err;
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(sub, sizeof(sub), "%s/logs", dir);
    assert_int_equal(mkdir(sub, 0700), 0);
    write_file(sub, "raylet.out", shm_line);
    write_file(dir, ".hidden.log", "Illegal instruction\n");
    (void)snprintf(path, sizeof(path), "%s/latest", dir);
    assert_int_equal(symlink(dir, path), 0); /* a circle */
    (void)snprintf(path, sizeof(path), "%s/again.out", dir);
    assert_int_equal(symlink("logs/raylet.out", path), 0);
    assert_int_equal(td_explain_new(&x, NULL), TD_OK);
    assert_int_equal(td_explain_add_path(x, dir, NULL), TD_OK);
    assert_int_equal(td_explain_add_path(x, path, NULL), TD_OK); /* read already */
    assert_int_equal(td_explain_judge(x, NULL), TD_OK);
    assert_int_equal(x->nsources, 1);
    assert_string_equal(td_explain_kind(x), "dev-shm-too-small");
    td_error_init(&err);
    assert_int_equal(td_explain_add_path(x, "/no/such/file", &err), TD_E_NOT_FOUND);
    assert_non_null(strstr(err.what, "/no/such/file"));
    td_explain_free(x);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/latest", dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/.hidden.log", dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/raylet.out", sub);
    (void)unlink(path);
    assert_int_equal(rmdir(sub), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Every allocation fails once: an error or a smaller answer, never a crash or a leak. */
static void test_no_memory(void **state)
{
    static const struct td_explain_style plain = {true, 80};
    (void)state;
    int failed = 0;
    for (long n = 1; n < 120; n++) {
        struct td_explain *x = NULL;
        struct td_buf out;
        td_buf_init(&out, 1 * TD_MIB);
        td_mem_fail_at(n);
        enum td_status s = td_explain_new(&x, NULL);
        if (s == TD_OK)
            s = td_explain_add_path(x, "tests/cases/explain/five/3-store", NULL);
        if (s == TD_OK)
            s = td_explain_judge(x, NULL);
        if (s == TD_OK)
            s = td_explain_text(x, &plain, &out);
        if (s == TD_OK)
            s = td_explain_json(x, true, &out);
        if (s == TD_OK)
            s = td_explain_timeline(x, &plain, &out);
        td_mem_fail_at(0);
        failed += s != TD_OK;
        td_buf_release(&out);
        td_explain_free(x);
    }
    assert_true(failed > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes),       cmocka_unit_test(test_packed),
        cmocka_unit_test(test_odd_bytes),      cmocka_unit_test(test_endless_line),
        cmocka_unit_test(test_bare_exception), cmocka_unit_test(test_hostile_time),
        cmocka_unit_test(test_bounded_memory), cmocka_unit_test(test_folders),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

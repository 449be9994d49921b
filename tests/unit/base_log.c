/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors and events: the record is filled once, the catalogue is whole, and each event
 * is one line of JSON with the promised fields.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_error(void **state)
{
    (void)state;
    struct td_error e;
    td_error_init(&e);
    assert_int_equal(e.code, TD_OK);
    assert_int_equal(e.rank, -1);
    td_phase_set(TD_PHASE_LOAD);
    assert_int_equal(td_error_set(&e, TD_E_IO, "cannot read %s", "x"), TD_E_IO);
    assert_int_equal(e.phase, TD_PHASE_LOAD);
    assert_string_equal(e.what, "cannot read x");
    assert_string_equal(e.why, td_status_info(TD_E_IO)->cause);
    assert_string_equal(e.fix, td_status_info(TD_E_IO)->remedy);
    /* the first one to know wins */
    assert_int_equal(td_error_set(&e, TD_E_JSON, "later"), TD_E_JSON);
    assert_int_equal(e.code, TD_E_IO);
    assert_string_equal(e.what, "cannot read x");
    td_error_why(&e, "because of %d", 7);
    td_error_fix(&e, "do %s", "that");
    assert_string_equal(e.why, "because of 7");
    assert_string_equal(e.fix, "do that");
    assert_int_equal(td_error_set(NULL, TD_E_IO, "nobody asks"), TD_E_IO);
    td_phase_set(TD_PHASE_CHECK);
    /* long texts are cut, not written past the end */
    char longer[2 * TD_ERROR_WHAT_MAX];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    td_error_init(&e);
    td_error_set(&e, TD_E_IO, "%s", longer);
    assert_int_equal(strlen(e.what), TD_ERROR_WHAT_MAX - 1);
}

static void test_catalogue(void **state)
{
    (void)state;
    for (int a = TD_OK + 1; a < TD_STATUS_COUNT; a++) {
        const struct td_status_info *i = td_status_info((enum td_status)a);
        assert_true(*i->slug && *i->title && *i->cause && *i->remedy);
        assert_int_equal(strspn(i->slug, "abcdefghijklmnopqrstuvwxyz-"),
                         strlen(i->slug));
        for (int b = TD_OK; b < a; b++)
            assert_string_not_equal(i->slug, td_status_info((enum td_status)b)->slug);
    }
    assert_ptr_equal(td_status_info(TD_STATUS_COUNT), td_status_info(TD_E_INTERNAL));
    assert_string_equal(td_phase_name(TD_PHASE_WARMUP), "warmup");
    assert_string_equal(td_phase_name(TD_PHASE_COUNT), "?");
}

/* A log file of this test, and its lines as JSON. */
static char path[] = "/tmp/td_log_XXXXXX";

static int open_log(void **state)
{
    struct td_error e;
    (void)state;
    td_error_init(&e);
    memcpy(path + strlen(path) - 6, "XXXXXX", 6);
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    (void)close(fd);
    return td_log_open(path, &e);
}

static int close_log(void **state)
{
    (void)state;
    td_log_close();
    td_log_set_listener(NULL, NULL);
    return unlink(path);
}

static int lines_of(json_t **out, int max)
{
    struct td_buf b;
    struct td_error e;
    int n = 0;
    td_error_init(&e);
    td_buf_init(&b, TD_MIB);
    assert_int_equal(td_file_read(path, &b, &e), TD_OK);
    for (char *p = b.p; *p && n < max; n++) {
        char *end = strchr(p, '\n');
        assert_non_null(end);
        assert_int_equal(td_json_parse(p, (size_t)(end - p), "line", &out[n], &e),
                         TD_OK);
        p = end + 1;
    }
    td_buf_release(&b);
    return n;
}

static const char *text(const json_t *line, const char *key)
{
    const char *s = json_string_value(json_object_get(line, key));
    return s ? s : "(none)";
}

static void test_events(void **state)
{
    (void)state;
    json_t *line[4];
    struct td_error e;
    td_log_set_rank(3);
    td_event_phase(TD_PHASE_LOAD);
    td_event("progress", (const struct td_num[]){
                             {"bytes", 1e15}, {"left", (double)INFINITY}, {NULL, 0}});
    td_error_init(&e);
    td_error_set(&e, TD_E_TENSOR, "a \"quoted\"\nname \xff");
    td_event_error(&e);
    td_log_set_rank(-1);
    td_phase_set(TD_PHASE_CHECK);
    assert_int_equal(lines_of(line, 4), 3);
    for (int i = 0; i < 3; i++) {
        assert_true(json_real_value(json_object_get(line[i], "t")) > 1.7e9);
        assert_int_equal(json_integer_value(json_object_get(line[i], "rank")), 3);
        assert_int_equal(json_integer_value(json_object_get(line[i], "pid")), getpid());
        assert_string_equal(text(line[i], "phase"), "load");
    }
    assert_string_equal(text(line[0], "event"), "phase");
    assert_string_equal(text(line[1], "event"), "progress");
    const json_t *n = json_object_get(line[1], "n");
    assert_true(json_number_value(json_object_get(n, "bytes")) == 1e15);
    assert_true(json_number_value(json_object_get(n, "left")) == 0);
    assert_string_equal(text(line[2], "event"), "error");
    assert_string_equal(text(line[2], "code"), "bad-tensor");
    assert_string_equal(text(line[2], "what"), "a \"quoted\"\nname \xEF\xBF\xBD");
    assert_string_equal(text(line[2], "fix"), td_status_info(TD_E_TENSOR)->remedy);
    for (int i = 0; i < 3; i++)
        json_decref(line[i]);
}

static void count(void *self, const struct td_event *event)
{
    assert_string_equal(event->name, "tick");
    ++*(int *)self;
}

static void *tick(void *arg)
{
    (void)arg;
    for (int i = 0; i < 100; i++)
        td_event("tick", (const struct td_num[]){{"i", i}, {NULL, 0}});
    return NULL;
}

/* Lines of several threads do not mix. */
static void test_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    static json_t *line[THREADS * 100 + 1];
    pthread_t thread[THREADS];
    int heard = 0;
    td_log_set_listener(count, &heard);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, tick, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(heard, THREADS * 100);
    assert_int_equal(lines_of(line, THREADS * 100 + 1), THREADS * 100);
    for (int i = 0; i < THREADS * 100; i++)
        json_decref(line[i]);
}

/* A sink that fails is dropped, the other one keeps its lines. */
static void test_broken_sink(void **state)
{
    (void)state;
    json_t *line[3];
    int full = dup(0);
    assert_true(full >= 0);
    (void)close(full); /* a descriptor that is not open any more */
    td_log_set_fd(full);
    td_event("one", NULL);
    td_event("two", NULL);
    td_log_set_fd(-1);
    assert_int_equal(lines_of(line, 3), 2);
    json_decref(line[0]);
    json_decref(line[1]);
    struct td_error e;
    td_error_init(&e);
    assert_int_equal(td_log_open("/no/such/folder/log", &e), TD_E_IO);
    assert_non_null(strstr(e.what, "/no/such/folder/log"));
}

static void test_files(void **state)
{
    (void)state;
    struct td_error e;
    struct td_buf b;
    char joined[12];
    td_error_init(&e);
    td_buf_init(&b, 64);
    assert_int_equal(td_file_read("/no/such", &b, &e), TD_E_NOT_FOUND);
    td_error_init(&e);
    assert_int_equal(td_file_read("/tmp", &b, &e), TD_E_IO);
    assert_non_null(strstr(e.what, "not a regular file"));
    assert_non_null(strstr(e.why, "a directory"));
    assert_false(td_file_exists("/no/such"));
    /* a link to nowhere is there, and is not taken for a missing file */
    (void)unlink(path);
    assert_int_equal(symlink("/no/such/blob", path), 0);
    assert_true(td_file_exists(path));
    td_error_init(&e);
    assert_int_equal(td_file_read(path, &b, &e), TD_E_NOT_FOUND);
    assert_non_null(strstr(e.why, "link to /no/such/blob"));
    /* and what keeps files from being opened is not blamed on the link */
    td_error_init(&e);
    assert_int_equal(td_file_cannot_open(path, EMFILE, &e), TD_E_IO);
    assert_non_null(strstr(e.fix, "ulimit -n"));
    td_error_init(&e);
    assert_int_equal(td_file_cannot_open(path, EACCES, &e), TD_E_IO);
    assert_non_null(strstr(e.fix, "permissions"));
    (void)unlink(path);
    assert_int_equal(symlink(path, path), 0);
    assert_true(td_file_exists(path));
    td_error_init(&e);
    assert_int_equal(td_file_read(path, &b, &e), TD_E_IO);
    (void)unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", f);
    (void)fclose(f);
    td_error_init(&e);
    assert_int_equal(td_file_read(path, &b, &e), TD_E_LFS_POINTER);
    td_buf_release(&b);
    td_buf_init(&b, 10);
    td_error_init(&e);
    assert_int_equal(td_file_read(path, &b, &e), TD_E_LIMIT);
    assert_true(td_file_exists(path));
    assert_false(td_file_is_dir(path));
    assert_true(td_file_is_dir("/tmp"));
    assert_int_equal(td_path_join(joined, sizeof(joined), "abc", "defghij", &e), TD_OK);
    assert_string_equal(joined, "abc/defghij");
    assert_int_equal(td_path_join(joined, sizeof(joined), "abc", "defghijk", &e),
                     TD_E_LIMIT);
    td_buf_release(&b);
}

#define WITH_LOG(name) cmocka_unit_test_setup_teardown(name, open_log, close_log)

/* A disk that is full is told once, however much happens behind it. */
static void test_full_disk(void **state)
{
    struct td_error e;
    (void)state;
    td_error_init(&e);
    assert_int_equal(td_log_lost(), 0);
    if (access("/dev/full", W_OK) != 0)
        skip();
    assert_int_equal(td_log_open("/dev/full", &e), TD_OK);
    td_event("one", NULL);
    assert_int_equal(td_log_lost(), ENOSPC);
    td_event("two", NULL);
    td_log_line("three", 5);
    td_log_close();
    assert_int_equal(td_log_lost(), ENOSPC);
    assert_int_equal(td_log_open("/dev/null", &e), TD_OK); /* a file of its own */
    td_event("four", NULL);
    assert_int_equal(td_log_lost(), 0);
    td_log_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_catalogue),
        WITH_LOG(test_events),
        WITH_LOG(test_threads),
        WITH_LOG(test_broken_sink),
        WITH_LOG(test_files),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

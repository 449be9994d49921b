/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of hosts: as they stand, from files, from Slurm's node lists.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/limits.h"
#include "base/mem.h"
#include "launch/hostlist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *expand(const char *hosts, enum td_status want)
{
    static char text[4096];
    struct td_buf b;
    struct td_error err;
    td_error_init(&err);
    td_buf_init(&b, sizeof(text) - 1);
    assert_int_equal(td_hostlist_expand(hosts, &b, &err), want);
    assert_int_equal(err.code, want);
    (void)snprintf(text, sizeof(text), "%s", b.p ? b.p : "");
    td_buf_release(&b);
    return text;
}

static void kinds(void **state)
{
    (void)state;
    assert_true(td_hostlist_slurm("slurm"));
    assert_false(td_hostlist_slurm(NULL) || td_hostlist_slurm("slurmy"));
    assert_string_equal(expand("a,b", TD_OK), "a,b");
}

static void slurm(void **state)
{
    static const struct {
        const char *list, *names;
    } t[] = {
        {"node7", "node7"},
        {"a,b", "a,b"},
        {"n[01-03,7]", "n01,n02,n03,n7"},
        {"n[8-11]-ib,x", "n8-ib,n9-ib,n10-ib,n11-ib,x"},
        {"a[1,2],b[3]", "a1,a2,b3"},
        {"n[099-101]", "n099,n100,n101"},
    };
    static const char *const bad[] = {
        "",          ",",      "a,",       "n[1-3",          "n1-3]", "n[]x[1]",
        "n[x]",      "n[1-]",  "n[-1]",    "n[3-1]",         "a,,b",  "n[1,2]m[3]",
        "n[0-9999]", "n[1;2]", "n[1-2-3]", "n[99999999999]",
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(t); i++) {
        assert_int_equal(setenv("SLURM_JOB_NODELIST", t[i].list, 1), 0);
        assert_string_equal(expand("slurm", TD_OK), t[i].names);
    }
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        struct td_buf b;
        td_buf_init(&b, 4096);
        if (td_hostlist_slurm_nodes(bad[i], &b, NULL) != TD_E_USAGE)
            fail_msg("taken: %s", bad[i]);
        td_buf_release(&b);
    }
    assert_int_equal(unsetenv("SLURM_JOB_NODELIST"), 0);
    (void)expand("slurm", TD_E_HOSTS);
}

static void file(void **state)
{
    char path[] = "/tmp/td-hosts-XXXXXX", at[64];
    static const char text[] = "# ours\n\nspark-1 slots=1\n  192.168.200.13:2 # two\r\n"
                               "#spark-3\nspark-4";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    (void)snprintf(at, sizeof(at), "@%s", path);
    (void)expand(at, TD_E_HOSTS);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_string_equal(expand(at, TD_OK), "spark-1,192.168.200.13:2,spark-4");
    (void)close(fd);
    (void)unlink(path);
    (void)expand(at, TD_E_NOT_FOUND);
}

static void no_room(void **state)
{
    struct td_buf b;
    (void)state;
    td_buf_init(&b, 4);
    assert_int_equal(td_hostlist_slurm_nodes("n[1-9]", &b, NULL), TD_E_LIMIT);
    td_buf_release(&b);
    td_buf_init(&b, 64);
    td_mem_fail_at(1);
    assert_int_equal(td_hostlist_expand("a,b", &b, NULL), TD_E_NOMEM);
    td_mem_fail_at(0);
    td_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),
        cmocka_unit_test(slurm),
        cmocka_unit_test(file),
        cmocka_unit_test(no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that can be had, on recorded trees of proc and sys: plain hosts, control groups
 * of both versions, containers, process limits.
 */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/sysmem.h"

static void recorded_trees(void **state)
{
    static const struct {
        const char *tree, *group;
        int64_t available;
        const char *says;
    } list[] = {
        {"host", "", 100 * TD_GIB, "100.0 GiB of this host's 119.7 GiB"},
        /* 64 GiB for the job, 20 used of which 16 are page cache; the step is free */
        {"v2", "/system.slice/slurmstepd.scope/job_17", 60 * TD_GIB,
         "job_17 allows 64.0 GiB, 4.0 GiB of them used"},
        {"v1", "/docker/4f00", 31 * TD_GIB, "/docker/4f00 allows 32.0 GiB"},
        {"container", "/", 15 * TD_GIB, "the control group / allows 16.0 GiB"},
        {"nested", "/a", 2 * TD_GIB, "/a allows 8.0 GiB, 6.0 GiB of them used"},
        {"limits", "", 5 * TD_GIB - 100 * TD_MIB, "data is limited to 5.0 GiB"},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        char root[128], why[512];
        struct td_sysmem m;
        struct td_error err;
        td_error_init(&err);
        (void)snprintf(root, sizeof(root), "tests/cases/sysmem/%s", list[i].tree);
        assert_int_equal(td_sysmem_read(root, &m, &err), TD_OK);
        assert_int_equal(m.total, INT64_C(125512340) * 1024);
        assert_string_equal(m.group, list[i].group);
        assert_int_equal(td_sysmem_available(&m, why, sizeof(why)), list[i].available);
        if (!strstr(why, list[i].says))
            fail_msg("%s: %s", list[i].tree, why);
    }
}

static void bounds(void **state)
{
    struct td_sysmem m = {.total = 100,
                          .available = 50,
                          .group_limit = 10,
                          .group_used = 20,
                          .space_limit = INT64_MAX,
                          .data_limit = INT64_MAX};
    (void)state;
    assert_int_equal(td_sysmem_available(&m, NULL, 0), 0); /* never negative */
    m.group_limit = INT64_MAX;
    m.space_limit = 70;
    m.space_used = 40;
    char why[8];
    assert_int_equal(td_sysmem_available(&m, why, sizeof(why)), 30);
    assert_string_equal(why, "the add"); /* cut, not overrun */
}

static void this_host(void **state)
{
    struct td_sysmem m;
    struct td_error err;
    (void)state;
    td_error_init(&err);
    assert_int_equal(td_sysmem_read("", &m, &err), TD_OK);
    assert_true(m.total > 0 && m.available > 0 && m.available <= m.total);
    assert_int_equal(td_sysmem_read("tests/no/such/tree", &m, &err), TD_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_trees),
        cmocka_unit_test(bounds),
        cmocka_unit_test(this_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

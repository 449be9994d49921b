/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of hosts that are refused before anything is started. All else needs other hosts:
 * tests/hosts.
 */
#include "check.h"

#include <string.h>

#include "base/mem.h"
#include "launch/hosts.h"

static void lists_that_cannot_be_used(void **state)
{
    char many[4 * (TD_MAX_RANKS + 1)] = "a";
    const struct {
        const char *hosts;
        enum td_status code;
        const char *words;
    } list[] = {
        {"a,,b", TD_E_USAGE, "no host name"},
        {"a,", TD_E_USAGE, "no host name"},
        {"a b", TD_E_USAGE, "no host name"},
        {"-oProxyCommand=x,b", TD_E_USAGE, "no host name"},
        {"a,$(id)", TD_E_USAGE, "no host name"},
        {"me@a,b", TD_E_USAGE, "no host name"},
        {"a,b,a", TD_E_HOSTS, "names a twice"},
        {"198.51.100.1,198.51.100.2", TD_E_HOSTS, "not among the hosts"},
        {"127.0.0.1,127.0.0.2", TD_E_NAME, "are both this machine"},
        {many, TD_E_LIMIT, "more than"},
    };
    (void)state;
    for (int i = 0; i < TD_MAX_RANKS; i++)
        (void)strncat(many, ",b", sizeof(many) - strlen(many) - 1);
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_join_options o = {.build = "b", .version = "0"};
        struct td_cluster c;
        struct td_error err;
        td_error_init(&err);
        assert_int_equal(td_cluster_join(list[i].hosts, &o, &c, &err), list[i].code);
        if (!strstr(err.what, list[i].words))
            fail_msg("%s: %s: %s", list[i].hosts, err.what, err.why);
        assert_true(*err.why && *err.fix);
    }
}

static void a_single_host_is_this_machine(void **state)
{
    struct td_error err;
    (void)state;
    td_error_init(&err);
    assert_int_equal(td_hosts_alone("127.0.0.1", &err), TD_OK);
    assert_int_equal(td_hosts_alone("198.51.100.1", &err), TD_E_HOSTS);
    assert_non_null(strstr(err.fix, ",198.51.100.1"));
    td_error_init(&err);
    assert_int_equal(td_hosts_alone("a[1-", &err), TD_E_USAGE);
}

static void hosts_are_counted(void **state)
{
    int n = 0;
    (void)state;
    assert_int_equal(td_hosts_count("198.51.100.1,198.51.100.2,b", &n, NULL), TD_OK);
    assert_int_equal(n, 3);
    assert_int_equal(td_hosts_count(NULL, &n, NULL), TD_OK);
    assert_int_equal(n, 1);
    assert_int_equal(td_hosts_count("a,,b", &n, NULL), TD_E_USAGE);
    assert_int_equal(td_hosts_count("@tests/none", &n, NULL), TD_E_NOT_FOUND);
    assert_int_equal(n, 1);
}

static void memory_is_short(void **state)
{
    (void)state;
    for (long n = 1; n <= 3; n++) {
        struct td_join_options o = {.build = "b", .version = "0"};
        struct td_cluster c;
        struct td_error err;
        td_error_init(&err);
        td_mem_fail_at(n);
        enum td_status s = td_cluster_join("198.51.100.1,198.51.100.2", &o, &c, &err);
        td_mem_fail_at(0);
        assert_int_equal(s, TD_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_that_cannot_be_used),
        cmocka_unit_test(a_single_host_is_this_machine),
        cmocka_unit_test(hosts_are_counted),
        cmocka_unit_test(memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

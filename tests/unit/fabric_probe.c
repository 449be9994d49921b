/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listener and what connects to it, over the loopback interface of this machine.
 */
#include "check.h"

#include <string.h>

#include "fabric/probe.h"

static struct td_target target(const char *token, int data, int oob)
{
    struct td_target t = {.ports = {data, oob}};
    (void)strncpy(t.from, "127.0.0.1", sizeof(t.from) - 1);
    (void)strncpy(t.to, "127.0.0.1", sizeof(t.to) - 1);
    (void)strncpy(t.token, token, sizeof(t.token) - 1);
    return t;
}

static struct td_listener *listen_here(char *token, struct td_ports *ports)
{
    struct td_listener *l = NULL;
    struct td_error err;
    td_error_init(&err);
    assert_true(td_token_make(token));
    assert_int_equal(strlen(token), TD_TOKEN_BYTES);
    if (td_listener_new(token, &l, ports, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    return l;
}

static void who_is_reached(void **state)
{
    char token[TD_TOKEN_BYTES + 1], other[TD_TOKEN_BYTES + 1];
    struct td_ports p, q;
    (void)state;
    struct td_listener *l = listen_here(token, &p), *m = listen_here(other, &q);
    assert_true(p.data != q.data && p.oob != q.oob);
    struct td_target t[] = {target(token, p.data, p.oob), target(other, p.data, p.oob),
                            target(token, 1, p.oob),      target(other, q.data, q.oob),
                            target(token, p.data, p.oob), target(token, p.data, 1)};
    (void)strncpy(t[4].from, "not an address", sizeof(t[4].from) - 1);
    td_probe_connect(t, 6, 10, true);
    assert_int_equal(t[0].reach, TD_REACH_OK);
    assert_int_equal(t[1].reach, TD_REACH_STRANGER);
    assert_int_equal(t[2].reach, TD_REACH_REFUSED);
    assert_true(t[2].alive && t[2].port == 1 && t[0].port == 0);
    assert_int_equal(t[5].reach, TD_REACH_REFUSED);
    assert_int_equal(t[3].reach, TD_REACH_OK);
    assert_int_equal(t[4].reach, TD_REACH_FAILED);
    td_listener_free(m);
    td_probe_connect(&t[3], 1, 10, false);
    assert_int_equal(t[3].reach, TD_REACH_REFUSED);
    td_listener_free(l);
    td_listener_free(NULL);
}

static void names_of_results(void **state)
{
    (void)state;
    for (int i = 0; i < TD_REACH_COUNT; i++) {
        enum td_reach r = TD_REACH_COUNT;
        assert_true(td_reach_by_name(td_reach_name((enum td_reach)i), &r));
        assert_int_equal(r, i);
    }
    enum td_reach r;
    assert_false(td_reach_by_name("?", &r));
}

static void a_link_is_measured(void **state)
{
    char token[TD_TOKEN_BYTES + 1];
    struct td_ports p;
    struct td_link link;
    struct td_error err;
    (void)state;
    struct td_listener *l = listen_here(token, &p);
    struct td_target t = target(token, p.data, p.oob);
    td_error_init(&err);
    if (td_probe_measure(&t, 0.2, &link, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    assert_true(link.latency_us > 0 && link.exchange_us > 0 && link.gbytes > 0);
    assert_true(link.path_mtu > 1500);

    td_error_init(&err);
    t.token[0] = t.token[0] == '0' ? '1' : '0'; /* not his token: nothing is said */
    assert_int_equal(td_probe_measure(&t, 0.2, &link, &err), TD_E_TIMEOUT);
    assert_true(link.latency_us <= 0 && link.path_mtu == 0);
    td_listener_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_reached),
        cmocka_unit_test(names_of_results),
        cmocka_unit_test(a_link_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

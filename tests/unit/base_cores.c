/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cores threads get: on made-up hosts with several packages, nodes and hardware
 * threads, for one rank and several, under quotas; and that this host's threads are where
 * they were bound.
 */
#include "base/cores.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/sysmem.h"
#include "base/team.h"
#include "check.h"

#include <hwloc.h>
#include <math.h>
#include <string.h>

/* A package of 4 cores with 2 hardware threads each, numbered as systems often do: first
 * threads 0-3, second ones 4-7. */
#define SMT "pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)"
/* Two packages, each a NUMA node, of 4 cores. */
#define TWO_NODES "pack:2 [numa] core:4 pu:1"

static struct td_cores *open_cores(const char *topology, const char *root, int threads,
                                   int rank, int ranks)
{
    struct td_cores_params p = {.threads = threads,
                                .rank = rank,
                                .ranks = ranks,
                                .synthetic = topology,
                                .root = root};
    struct td_cores *c = NULL;
    assert_int_equal(td_cores_new(&p, &c, NULL), TD_OK);
    return c;
}

/* All threads' processors, "0|1|2". */
static void expect(const char *topology, int threads, int rank, int ranks,
                   const char *sets)
{
    struct td_cores *c =
        open_cores(topology, "tests/cases/sysmem/host", threads, rank, ranks);
    char all[512] = "", one[64];
    for (int i = 0; i < td_cores_threads(c); i++) {
        td_cores_list(c, i, one, sizeof(one));
        strncat(all, i ? "|" : "", sizeof(all) - strlen(all) - 1);
        strncat(all, one, sizeof(all) - strlen(all) - 1);
    }
    assert_string_equal(all, sets);
    td_cores_free(c);
}

static void test_one_rank(void **state)
{
    (void)state;
    expect(SMT, 0, 0, 0, "0,4|1,5|2,6|3,7"); /* a core each */
    expect(SMT, 4, 0, 1, "0,4|1,5|2,6|3,7");
    expect(SMT, 6, 0, 1, "0|1|2|3|4|5"); /* hardware threads, first those alone */
    expect(SMT, 8, 0, 1, "0|1|2|3|4|5|6|7");
    expect(SMT, 2, 0, 1, "0-7|0-7"); /* the system chooses */
    expect(SMT, 9, 0, 1, "0-7|0-7|0-7|0-7|0-7|0-7|0-7|0-7|0-7"); /* too many */
    expect(TWO_NODES, 0, 0, 0, "0|1|2|3|4|5|6|7");
    expect(TWO_NODES, 4, 0, 0, "0-3|0-3|4-7|4-7"); /* both nodes' memory */
    expect("pu:3", 0, 0, 0, "0|1|2");
}

static void test_ranks_share(void **state)
{
    (void)state;
    expect(SMT, 0, 0, 2, "0,4|1,5");
    expect(SMT, 0, 1, 2, "2,6|3,7");
    expect(SMT, 4, 1, 2, "2|3|6|7");
    expect(TWO_NODES, 0, 1, 2, "4|5|6|7");
    expect(TWO_NODES, 0, 0, 3, "0|1");
    expect(TWO_NODES, 0, 1, 3, "2|3|4");
    expect(TWO_NODES, 0, 2, 3, "5|6|7");
    expect(TWO_NODES, 2, 1, 3, "2-3|2-3"); /* of its own cores, on one node */
    expect("core:2 pu:1", 0, 0, 4, "0");
    expect("core:2 pu:1", 0, 3, 4, "1"); /* more ranks than cores: in turn */
}

static void test_nodes(void **state)
{
    (void)state;
    struct td_cores *c = open_cores(TWO_NODES, NULL, 8, 0, 1);
    assert_int_equal(td_cores_nodes(c), 2);
    assert_int_equal(td_cores_node_of(c, 3), 0);
    assert_int_equal(td_cores_node_of(c, 4), 1);
    assert_false(td_cores_crowded(c));
    td_cores_place(c, 0); /* not this host's topology: nothing happens */
    td_cores_bind(c, 7);
    td_cores_free(c);

    c = open_cores(TWO_NODES, NULL, 4, 1, 2); /* counted within the share */
    assert_int_equal(td_cores_nodes(c), 1);
    assert_int_equal(td_cores_node_of(c, 0), 0);
    td_cores_free(c);

    c = open_cores(TWO_NODES, NULL, 5, 1, 2);
    assert_true(td_cores_crowded(c));
    td_cores_free(c);
}

static void test_quota(void **state)
{
    (void)state;
    assert_true(td_sysmem_processors("tests/cases/sysmem/quota") == 3.5);
    assert_true(td_sysmem_processors("tests/cases/sysmem/quota1") == 0.5);
    assert_true(isinf(td_sysmem_processors("tests/cases/sysmem/v2")));
    const struct {
        const char *root;
        int threads, ranks, get;
    } list[] = {
        {"tests/cases/sysmem/quota", 0, 1, 3},  {"tests/cases/sysmem/quota", 0, 2, 1},
        {"tests/cases/sysmem/quota", 6, 1, 6}, /* what was asked for */
        {"tests/cases/sysmem/quota1", 0, 1, 1}, {"tests/cases/sysmem/v1", 0, 1, 8},
    };
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_cores *c =
            open_cores(TWO_NODES, list[i].root, list[i].threads, 0, list[i].ranks);
        assert_int_equal(td_cores_threads(c), list[i].get);
        td_cores_free(c);
    }
}

static void bound_now(char *out, size_t size)
{
    hwloc_topology_t t;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_topology_init(&t), 0);
    assert_int_equal(hwloc_topology_load(t), 0);
    assert_int_equal(hwloc_get_cpubind(t, set, HWLOC_CPUBIND_THREAD), 0);
    (void)hwloc_bitmap_list_snprintf(out, size, set);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(t);
}

struct places {
    char of[TD_TEAM_MAX_THREADS][256];
};

static void note_place(void *arg, int64_t first, int64_t last)
{
    struct places *p = arg;
    (void)first;
    (void)last;
    bound_now(p->of[td_team_index()], sizeof(p->of[0]));
}

static void test_this_host(void **state)
{
    (void)state;
    static struct places p;
    char before[256], after[256], wanted[256];
    struct td_cores *c = open_cores(NULL, NULL, 0, 0, 0);
    struct td_team *team = NULL;
    assert_true(td_cores_threads(c) >= 1);
    assert_true(td_cores_threads(c) <= td_cpu_cores());
    bound_now(before, sizeof(before));
    assert_int_equal(td_team_new(td_cores_threads(c), c, &team, NULL), TD_OK);
    bound_now(after, sizeof(after));
    assert_string_equal(before, after); /* not before the first loop */
    td_team_run(team, 64, 1, note_place, &p);
    for (int i = 0; i < td_cores_threads(c); i++) {
        td_cores_list(c, i, wanted, sizeof(wanted));
        if (i == 0 || p.of[i][0]) /* others may have come too late */
            assert_string_equal(p.of[i], wanted);
    }
    /* a second look at the host is not misled by the binding */
    struct td_cores *again = open_cores(NULL, NULL, 0, 0, 0);
    assert_int_equal(td_cores_threads(again), td_cores_threads(c));
    td_cores_free(again);
    td_team_free(team);
    bound_now(after, sizeof(after));
    assert_string_equal(before, after);
    td_cores_free(c);
}

static void test_failures(void **state)
{
    (void)state;
    struct td_cores *c = NULL;
    struct td_error err;
    struct td_cores_params p = {.synthetic = "nonsense"};
    td_error_init(&err);
    assert_int_equal(td_cores_new(&p, &c, &err), TD_E_USAGE);
    assert_non_null(strstr(err.what, "nonsense"));
    p.synthetic = NULL;
    td_mem_fail_at(1);
    assert_int_equal(td_cores_new(&p, &c, NULL), TD_E_NOMEM);
    td_mem_fail_at(0);
    td_cores_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),  cmocka_unit_test(test_ranks_share),
        cmocka_unit_test(test_nodes),     cmocka_unit_test(test_quota),
        cmocka_unit_test(test_this_host), cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

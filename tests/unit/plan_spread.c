/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans over hosts, from recorded facts: the host with the least room decides and is
 * named; GPUs give what they have; a lone host; memory that is short.
 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt.h"

#include "base/mem.h"
#include "plan/spread.h"

#include <string.h>

enum { HOSTS = 2 };

struct bed {
    struct td_config config;
    struct td_plan_asked asked;
    struct td_facts facts[HOSTS];
    struct td_cluster_host hosts[HOSTS];
    struct td_cluster cluster;
    struct td_dev *dev;
    int gpu; /* N of cuda:N */
    struct td_spread spread;
    struct td_error err;
};

static struct td_sysmem memory(int64_t total, int64_t available)
{
    return (struct td_sysmem){.total = total,
                              .available = available,
                              .group_limit = INT64_MAX,
                              .space_limit = INT64_MAX,
                              .data_limit = INT64_MAX,
                              .resident = 10 * TD_MIB};
}

static void set_up(struct bed *b)
{
    struct td_dev_params p = {.numerics = TD_NUM_BF16, .threads = 2};
    memset(b, 0, sizeof(*b));
    td_error_init(&b->err);
    assert_int_equal(td_cpu_open(&p, &b->dev, NULL), TD_OK);
    assert_int_equal(td_config_read("models/lexicon", &b->config, NULL), TD_OK);
    b->asked = (struct td_plan_asked){.model = "models/lexicon",
                                      .max_len = 4096,
                                      .max_seqs = 8,
                                      .vocab = INT32_MAX,
                                      .serves = true,
                                      .load = {.threads = 2}};
    for (int i = 0; i < HOSTS; i++) {
        b->hosts[i].facts = &b->facts[i];
        b->facts[i].memory = memory(64 * TD_GIB, 60 * TD_GIB);
        (void)snprintf(b->hosts[i].label, sizeof(b->hosts[i].label), "spark-%d", i + 1);
    }
    b->cluster = (struct td_cluster){.n = HOSTS, .hosts = b->hosts};
}

static void tear_down(struct bed *b)
{
    td_spread_release(&b->spread);
    b->dev->ops.close(b->dev);
}

static enum td_status make(struct bed *b, int ranks)
{
    struct td_spread_params p = {.config = &b->config,
                                 .asked = &b->asked,
                                 .cluster = &b->cluster,
                                 .ranks = ranks,
                                 .gpu = b->gpu,
                                 .dev = b->dev,
                                 .program = 10 * TD_MIB};
    td_spread_release(&b->spread);
    td_error_init(&b->err);
    return td_spread_make(&p, &b->spread, &b->err);
}

/* The host with less gives all of them the smaller cache. */
static void least_room_decides(void **state)
{
    struct bed b;
    (void)state;
    set_up(&b);
    assert_int_equal(make(&b, 2), TD_OK);
    const struct td_spread_rank *r = b.spread.ranks;
    assert_int_equal(b.spread.hosts, 2);
    assert_int_equal(r[1].host, 1);
    assert_int_equal(r[0].plan.full, 8);
    int64_t need = r[1].plan.peak, kv = r[1].plan.kv;

    int64_t reserve = 64 * TD_GIB / 20;
    b.facts[1].memory.available = reserve + need - kv / 2 - 10 * TD_MIB;
    assert_int_equal(make(&b, 2), TD_OK);
    r = b.spread.ranks;
    assert_true(r[0].plan.full >= 3 && r[0].plan.full < 8);
    assert_int_equal(r[0].plan.n_blocks, r[1].plan.n_blocks);
    assert_int_equal(r[1].room.reserve, reserve);
    tear_down(&b);
}

/* Refused: which host, both numbers, and what would fit. */
static void refusal_names_the_host(void **state)
{
    struct bed b;
    (void)state;
    set_up(&b);
    b.facts[1].memory.group_limit = 1 * TD_GIB;
    b.facts[1].memory.group_used = 1 * TD_GIB - 60 * TD_MIB;
    b.facts[1].memory.total = 1 * TD_GIB;
    (void)snprintf(b.facts[1].memory.group, sizeof(b.facts[1].memory.group), "/small");
    b.asked.memory = 90 * TD_MIB; /* no reserve */
    b.asked.max_seqs = 64;
    assert_int_equal(make(&b, 2), TD_E_MEMORY_PLAN);
    check_error(&b.err, TD_E_MEMORY_PLAN, "rank 1 does not fit on spark-2: ");
    check_error(&b.err, TD_E_MEMORY_PLAN, "for one sequence of 4096 tokens");
    check_error(&b.err, TD_E_MEMORY_PLAN, "/small allows 1.0 GiB");
    assert_string_equal(b.err.host, "spark-2");

    b.facts[1].memory.group_used = 1 * TD_GIB - 100 * TD_MIB;
    assert_int_equal(make(&b, 2), TD_E_MEMORY_PLAN);
    assert_non_null(strstr(b.err.fix, "--max-num-seqs "));
    b.asked.max_seqs = 1;
    assert_int_equal(make(&b, 2), TD_OK);
    tear_down(&b);
}

/* What cannot be split, and what does not divide over the hosts. */
static void illegal_ranks(void **state)
{
    struct bed b;
    (void)state;
    set_up(&b);
    assert_int_equal(make(&b, 3), TD_E_USAGE);
    check_error(&b.err, TD_E_USAGE, "3 ranks do not divide over 2 hosts");
    assert_int_not_equal(make(&b, 4), TD_OK);
    tear_down(&b);
}

/* A device that is not the host: each rank has a GPU of its host. */
static void rooms_of_gpus(void **state)
{
    struct bed b;
    (void)state;
    set_up(&b);
    assert_true(td_spread_lacks_gpus(&b.cluster));
    for (int i = 0; i < HOSTS; i++) {
        b.facts[i].n_gpus = 2;
        for (int k = 0; k < 2; k++)
            b.facts[i].gpus[k] =
                (struct td_gpu_facts){.name = "NVIDIA H200", .total = 128 * TD_GIB};
    }
    assert_false(td_spread_lacks_gpus(&b.cluster));
    b.facts[1].gpus[0].used = 127 * TD_GIB;
    b.dev->host = b.dev->shared = false;
    assert_int_equal(make(&b, 2), TD_E_MEMORY_PLAN);
    check_error(&b.err, TD_E_MEMORY_PLAN,
                "127.0 GiB of the 128.0 GiB of NVIDIA H200 are in use");
    assert_string_equal(b.err.host, "spark-2");

    b.facts[1].gpus[0].used = 100 * TD_GIB;
    assert_int_equal(make(&b, 2), TD_OK);
    assert_int_equal(b.spread.ranks[0].plan.limit, 128 * TD_GIB - 2 * TD_GIB);
    assert_int_equal(b.spread.ranks[1].plan.limit, 28 * TD_GIB - 2 * TD_GIB);
    assert_false(b.spread.ranks[1].plan.shared);
    b.gpu = 1; /* the second one of each */
    assert_int_equal(make(&b, 2), TD_OK);
    assert_int_equal(b.spread.ranks[1].plan.limit, 128 * TD_GIB - 2 * TD_GIB);
    b.gpu = 0;
    b.hosts[1].facts = NULL; /* it did not answer: taken to be like the first */
    assert_int_equal(make(&b, 2), TD_OK);
    assert_int_equal(b.spread.ranks[1].plan.limit, b.spread.ranks[0].plan.limit);
    assert_false(b.spread.ranks[1].plan.shared);
    b.dev->host = b.dev->shared = true;
    tear_down(&b);
}

static void a_gpu_for_two_or_with_the_hosts_memory(void **state)
{
    struct td_gpu_facts gpu = {.name = "G", .total = 128 * TD_GIB, .used = 28 * TD_GIB};
    struct td_sysmem mem = memory(64 * TD_GIB, 50 * TD_GIB);
    struct td_plan_room room;
    (void)state;
    td_plan_room_gpu(&gpu, &mem, TD_MIB, 0, 2, &room);
    assert_int_equal(room.device, 50 * TD_GIB - 2 * TD_GIB);
    td_plan_room_gpu(&gpu, &mem, TD_MIB, 4 * TD_GIB, 2, &room);
    assert_int_equal(room.device, 4 * TD_GIB);
    assert_true(room.asked && strstr(room.bound, "--memory"));
    gpu = (struct td_gpu_facts){.name = "GB10", .unified = true};
    td_plan_room_gpu(&gpu, &mem, TD_MIB, 0, 1, &room);
    assert_true(room.shared);
    assert_int_equal(room.host, 50 * TD_GIB - 64 * TD_GIB / 20 + TD_MIB);
}

/* Before MPI starts: weights alone, on the GPU of each rank. */
static void weights_on_gpus(void **state)
{
    struct bed b;
    (void)state;
    set_up(&b);
    for (int i = 0; i < HOSTS; i++) {
        b.facts[i].n_gpus = 1;
        b.facts[i].gpus[0] =
            (struct td_gpu_facts){.name = "G", .total = 1 * TD_GIB, .used = 0};
    }
    assert_int_equal(td_spread_weigh(&b.config, &b.cluster, 2, 0, 0, &b.err), TD_OK);
    b.facts[1].gpus[0].used = TD_GIB - 15 * TD_MIB;
    assert_int_equal(td_spread_weigh(&b.config, &b.cluster, 2, 0, 0, &b.err),
                     TD_E_MEMORY_PLAN);
    check_error(&b.err, TD_E_MEMORY_PLAN,
                "rank 1 does not fit on spark-2: its weights");
    check_error(&b.err, TD_E_MEMORY_PLAN, "1009.0 MiB of the 1.0 GiB of G are in use");
    assert_string_equal(b.err.host, "spark-2");

    td_error_init(&b.err);
    b.facts[1].gpus[0] = (struct td_gpu_facts){.name = "GB10", .unified = true};
    assert_int_equal(td_spread_weigh(&b.config, &b.cluster, 2, 0, 0, &b.err), TD_OK);
    assert_int_equal(td_spread_weigh(&b.config, &b.cluster, 2, 0, 9 * TD_MIB, &b.err),
                     TD_E_MEMORY_PLAN);
    check_error(&b.err, TD_E_MEMORY_PLAN, "--memory allows 9.0 MiB");
    /* cuda:1: each host's second GPU, the full first one is nobody's */
    td_error_init(&b.err);
    for (int i = 0; i < HOSTS; i++) {
        b.facts[i].n_gpus = 2;
        b.facts[i].gpus[0] =
            (struct td_gpu_facts){.name = "A", .total = 1 * TD_GIB, .used = 1 * TD_GIB};
        b.facts[i].gpus[1] =
            (struct td_gpu_facts){.name = "B", .total = 1 * TD_GIB, .used = 0};
    }
    assert_int_equal(td_spread_weigh(&b.config, &b.cluster, 2, 1, 0, &b.err), TD_OK);
    b.facts[1].gpus[1].used = TD_GIB - 15 * TD_MIB;
    assert_int_equal(td_spread_weigh(&b.config, &b.cluster, 2, 1, 0, &b.err),
                     TD_E_MEMORY_PLAN);
    check_error(&b.err, TD_E_MEMORY_PLAN, "of B are in use");
    b.facts[1].n_gpus = 1; /* that it has no such GPU its rank will say */
    td_error_init(&b.err);
    assert_int_equal(td_spread_weigh(&b.config, &b.cluster, 2, 1, 0, &b.err), TD_OK);
    /* four ranks of lexicon cannot be, two would need 20 MiB each */
    td_error_init(&b.err);
    b.facts[0].gpus[0].used = 0;
    b.cluster.n = 1;
    assert_int_equal(td_spread_weigh(&b.config, &b.cluster, 1, 0, 25 * TD_MIB, &b.err),
                     TD_E_MEMORY_PLAN);
    assert_non_null(strstr(b.err.fix, "over 2 ranks"));
    tear_down(&b);
}

/* Without hosts: what this one has, or what --memory says of another. */
static void one_host_alone(void **state)
{
    struct bed b;
    (void)state;
    set_up(&b);
    b.cluster.n = 0;
    b.asked.memory = INT64_C(1) << 50;
    assert_int_equal(make(&b, 2), TD_OK);
    assert_true(b.spread.beyond && b.spread.hosts == 1);
    assert_int_equal(b.spread.ranks[1].plan.limit, INT64_C(1) << 50);
    assert_true(b.spread.program > TD_MIB);
    tear_down(&b);
}

static void memory_is_short(void **state)
{
    struct bed b;
    enum td_status s = TD_E_NOMEM;
    (void)state;
    set_up(&b);
    for (long n = 1; s != TD_OK; n++) {
        td_mem_fail_at(n);
        s = make(&b, 2);
        td_mem_fail_at(0);
        assert_true(s == TD_OK || b.err.code == s);
    }
    tear_down(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_room_decides),
        cmocka_unit_test(refusal_names_the_host),
        cmocka_unit_test(illegal_ranks),
        cmocka_unit_test(rooms_of_gpus),
        cmocka_unit_test(a_gpu_for_two_or_with_the_hosts_memory),
        cmocka_unit_test(weights_on_gpus),
        cmocka_unit_test(one_host_alone),
        cmocka_unit_test(memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

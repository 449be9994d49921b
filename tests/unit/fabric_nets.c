/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of the network and the rules about hosts, on made-up facts and measurements.
 */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "fabric/judge.h"
#include "fabric/nets.h"

enum { HOSTS = 3 };

static void add_iface(struct td_facts *f, const char *name, const char *addr, int bits,
                      int64_t mbit)
{
    struct td_iface *i = &f->ifaces[f->n_ifaces++];
    struct td_address *a = &f->addrs[f->n_addrs++];
    (void)snprintf(i->name, sizeof(i->name), "%s", name);
    i->up = i->carrier = true;
    i->mtu = 1500;
    i->mbit = mbit;
    i->index = f->n_ifaces;
    (void)snprintf(a->text, sizeof(a->text), "%s", addr);
    (void)snprintf(a->iface, sizeof(a->iface), "%s", name);
    (void)snprintf(a->cidr, sizeof(a->cidr), "%.*s.0/%d",
                   (int)(strrchr(addr, '.') - addr), addr, bits);
    a->prefix = bits;
}

/* Three hosts on a slow and a fast network, and a bridge of containers on each. */
static void setup_cluster(struct td_cluster *c)
{
    *c = (struct td_cluster){.n = HOSTS};
    c->hosts = td_calloc(HOSTS, sizeof(*c->hosts));
    c->links = td_calloc((size_t)HOSTS * HOSTS, sizeof(*c->links));
    assert_non_null(c->hosts);
    assert_non_null(c->links);
    for (int h = 0; h < HOSTS; h++) {
        char addr[TD_FACT_ADDR];
        struct td_facts *f = td_calloc(1, sizeof(*f));
        assert_non_null(f);
        c->hosts[h].facts = f;
        (void)snprintf(c->hosts[h].name, TD_FACT_TEXT, "spark-%d", h + 1);
        (void)snprintf(c->hosts[h].label, TD_FACT_TEXT, "spark-%d", h + 1);
        add_iface(f, "lo", "127.0.0.1", 24, 0);
        f->ifaces[0].loopback = true;
        (void)snprintf(addr, sizeof(addr), "10.1.230.%d", 180 + h);
        add_iface(f, "mgmt", addr, 24, 1000);
        (void)snprintf(addr, sizeof(addr), "192.168.200.%d", 12 + h);
        add_iface(f, "fabric", addr, 24, 200000);
        add_iface(f, "docker0", "172.17.0.1", 24, 0);
        (void)snprintf(f->ifaces[3].kind, sizeof(f->ifaces[3].kind), "bridge");
    }
}

static void set_net(struct td_nets *nets, int k, double gbytes, double us)
{
    for (int i = 0; i < HOSTS * HOSTS; i++) {
        if (i % (HOSTS + 1) == 0)
            continue;
        nets->v[k].pairs[i] = (struct td_net_pair){TD_REACH_OK, true, 0};
        nets->v[k].links[i] = (struct td_link){us, us + 5, gbytes, 1500};
    }
}

/* Finds the networks of a fresh cluster, all reachable, mgmt slow and fabric fast. */
static void setup_nets(struct td_cluster *c, struct td_nets *nets, const char *fabric)
{
    struct td_error err;
    td_error_init(&err);
    setup_cluster(c);
    if (td_nets_find(c, fabric, nets, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    for (int k = 0; k < nets->n; k++)
        set_net(nets, k,
                nets->v[k].cidr[0] == '1' && nets->v[k].cidr[1] == '0' ? 0.11 : 4, 25);
}

static void end_all(struct td_cluster *c, struct td_nets *nets)
{
    td_nets_release(nets);
    td_cluster_release(c);
}

/* Chooses, and expects that there is nothing: for this reason, in these words. */
static void expect_refusal(struct td_nets *nets, const struct td_cluster *c,
                           enum td_status code, const char *words)
{
    struct td_error err;
    td_error_init(&err);
    (void)td_nets_reach(nets, c);
    assert_int_equal(td_nets_choose(nets, c, &err), -1);
    if (err.code != code || !strstr(err.what, words))
        fail_msg("%s: %s: %s", td_status_info(err.code)->slug, err.what, err.why);
    assert_true(*err.why && *err.fix);
}

static void the_fastest_that_works(void **state)
{
    struct td_cluster c;
    struct td_nets nets;
    (void)state;
    setup_nets(&c, &nets, NULL);
    assert_int_equal(nets.n, 2); /* no loopback, no bridge */
    assert_int_equal(td_nets_reach(&nets, &c), 2);
    int best = td_nets_choose(&nets, &c, NULL);
    assert_string_equal(nets.v[best].cidr, "192.168.200.0/24");
    assert_string_equal(nets.v[best].members[2].addr, "192.168.200.14");
    end_all(&c, &nets);

    /* the fast one does not work: the other is taken, untold */
    setup_nets(&c, &nets, NULL);
    nets.v[1].pairs[1].reach = TD_REACH_TIMEOUT;
    assert_int_equal(td_nets_reach(&nets, &c), 1);
    best = td_nets_choose(&nets, &c, NULL);
    assert_string_equal(nets.v[best].cidr, "10.1.230.0/24");
    assert_int_equal(nets.v[1].e.code, TD_E_FIREWALL);
    end_all(&c, &nets);

    /* equal rates: the lower latency, then what the link says */
    setup_nets(&c, &nets, NULL);
    set_net(&nets, 0, 4.1, 10);
    assert_int_equal(td_nets_choose(&nets, &c, NULL), 0);
    set_net(&nets, 0, 4.1, 24);
    assert_int_equal(td_nets_choose(&nets, &c, NULL), 1);
    end_all(&c, &nets);
}

static void asked_for_by_name(void **state)
{
    struct td_cluster c;
    struct td_nets nets;
    struct td_error err;
    (void)state;
    setup_nets(&c, &nets, "mgmt");
    assert_int_equal(nets.n, 1);
    assert_string_equal(nets.v[0].cidr, "10.1.230.0/24");
    end_all(&c, &nets);
    setup_nets(&c, &nets, "192.168.0.0/16");
    assert_string_equal(nets.v[0].cidr, "192.168.0.0/16");
    assert_string_equal(nets.v[0].members[1].addr, "192.168.200.13");
    end_all(&c, &nets);

    static const char *const wrong[] = {"eth9", "docker0", "10.9.0.0/16", "lo"};
    for (size_t i = 0; i < TD_COUNT(wrong); i++) {
        td_error_init(&err);
        setup_cluster(&c);
        assert_int_equal(td_nets_find(&c, wrong[i], &nets, &err), TD_E_NETWORK);
        assert_non_null(strstr(err.why, "spark-2 has mgmt 10.1.230.181/24"));
        assert_non_null(
            strstr(err.why, "docker0 172.17.0.1/24 (a bridge of containers)"));
        end_all(&c, &nets);
    }
}

static void every_refusal(void **state)
{
    struct td_cluster c;
    struct td_nets nets;
    const char *fabric = "fabric";
    (void)state;

    setup_nets(&c, &nets, fabric);
    nets.v[0].pairs[1] = (struct td_net_pair){TD_REACH_TIMEOUT, false, 46100};
    expect_refusal(&nets, &c, TD_E_ONE_WAY, "spark-1 cannot reach spark-2");
    end_all(&c, &nets);

    setup_nets(&c, &nets, fabric);
    nets.v[0].pairs[1] = nets.v[0].pairs[HOSTS] =
        (struct td_net_pair){TD_REACH_UNREACHABLE, false, 46100};
    expect_refusal(&nets, &c, TD_E_NETWORK,
                   "spark-1 and spark-2 cannot reach each other");
    end_all(&c, &nets);

    setup_nets(&c, &nets, fabric);
    nets.v[0].pairs[HOSTS + 2] = (struct td_net_pair){TD_REACH_REFUSED, true, 46100};
    expect_refusal(&nets, &c, TD_E_FIREWALL, "ports of spark-3 are closed to spark-2");
    end_all(&c, &nets);

    setup_nets(&c, &nets, fabric);
    nets.v[0].pairs[2] = (struct td_net_pair){TD_REACH_STRANGER, true, 46100};
    expect_refusal(&nets, &c, TD_E_DUPLICATE, "192.168.200.14 is not only spark-3");
    end_all(&c, &nets);

    setup_nets(&c, &nets, fabric);
    c.hosts[1].facts->ifaces[2].mtu = 9000;
    expect_refusal(&nets, &c, TD_E_MTU, "fabric of spark-2 sends packets of 9000");
    end_all(&c, &nets);

    setup_nets(&c, &nets, fabric); /* a switch that allows less than all of them */
    for (int h = 0; h < HOSTS; h++)
        c.hosts[h].facts->ifaces[2].mtu = 9000;
    expect_refusal(&nets, &c, TD_E_MTU,
                   "packets of 9000 bytes from spark-1 do not arrive");
    end_all(&c, &nets);

    setup_nets(&c, &nets, fabric);
    td_error_set(&nets.v[0].failed[1], TD_E_MTU, "a stream of data stands still");
    expect_refusal(&nets, &c, TD_E_MTU, "stands still");
    end_all(&c, &nets);
}

static void slow_links(void **state)
{
    struct td_cluster c;
    struct td_nets nets;
    (void)state;
    setup_nets(&c, &nets, NULL);
    for (int h = 0; h < HOSTS; h++)
        c.hosts[h].facts->n_addrs = 3; /* all the same */
    nets.v[0].e.code = TD_E_NETWORK;   /* and the other one does not work */
    set_net(&nets, 1, 0.11, 80);       /* 200 Gbit/s, they say */
    expect_refusal(&nets, &c, TD_E_SLOW_LINK, "says 200.0 Gbit/s and carries 0.88");
    end_all(&c, &nets);

    setup_nets(&c, &nets, "fabric"); /* asked for: taken as it is */
    set_net(&nets, 0, 0.11, 80);
    assert_int_equal(td_nets_choose(&nets, &c, NULL), 0);
    end_all(&c, &nets);
}

static void cables_and_doubles(void **state)
{
    struct td_cluster c;
    struct td_nets nets;
    struct td_error err;
    (void)state;
    setup_cluster(&c);
    td_error_init(&err);
    c.hosts[2].facts->ifaces[2].carrier = false;
    assert_int_equal(td_nets_find(&c, "fabric", &nets, &err), TD_OK);
    assert_int_equal(nets.v[0].e.code, TD_E_NETWORK);
    assert_non_null(strstr(nets.v[0].e.why, "no carrier"));
    end_all(&c, &nets);

    setup_cluster(&c);
    add_iface(c.hosts[1].facts, "fabric2", "192.168.200.99", 24, 0);
    assert_int_equal(td_nets_find(&c, "fabric", &nets, &err), TD_OK);
    assert_non_null(strstr(nets.v[0].e.what, "two interfaces in 192.168.200.0/24"));
    end_all(&c, &nets);

    setup_cluster(&c);
    add_iface(c.hosts[1].facts, "fabric", "192.168.200.14", 24, 0);
    assert_int_equal(td_nets_find(&c, NULL, &nets, &err), TD_E_DUPLICATE);
    assert_non_null(strstr(err.what, "spark-2 and spark-3 both have"));
    end_all(&c, &nets);
}

static void memory_is_short(void **state)
{
    struct td_cluster c;
    struct td_nets nets;
    (void)state;
    for (long n = 1; n <= 9; n++) {
        struct td_error err;
        setup_cluster(&c);
        td_error_init(&err);
        td_mem_fail_at(n);
        enum td_status s = td_nets_find(&c, NULL, &nets, &err);
        td_mem_fail_at(0);
        assert_int_equal(s, n <= 8 ? TD_E_NOMEM : TD_OK);
        end_all(&c, &nets);
    }
}

/* ---- rules about hosts --------------------------------------------------------------- */

static const struct td_check_line *line_of(const struct td_cluster *c, int host,
                                           const char *topic)
{
    for (int i = 0; i < c->n_lines; i++)
        if (c->lines[i].host == host && strcmp(c->lines[i].topic, topic) == 0)
            return &c->lines[i];
    return NULL;
}

static void expect_line(const struct td_cluster *c, int host, const char *topic,
                        enum td_verdict verdict, enum td_status code, const char *words)
{
    const struct td_check_line *l = line_of(c, host, topic);
    if (!l)
        fail_msg("no line about %s", topic);
    else if (l->verdict != verdict || l->e.code != code ||
             (!strstr(l->e.what, words) && !strstr(l->e.why, words)))
        fail_msg("%s: %d %s: %s: %s", topic, (int)l->verdict,
                 td_status_info(l->e.code)->slug, l->e.what, l->e.why);
}

static void setup_good(struct td_cluster *c)
{
    setup_cluster(c);
    for (int h = 0; h < HOSTS; h++) {
        struct td_facts *f = c->hosts[h].facts;
        f->memory = (struct td_sysmem){.total = 100 * TD_GIB,
                                       .available = 90 * TD_GIB,
                                       .group_limit = INT64_MAX,
                                       .space_limit = INT64_MAX,
                                       .data_limit = INT64_MAX};
        f->nofile = f->memlock = -1;
        f->shm_total = TD_GIB;
        (void)snprintf(f->mpi, sizeof(f->mpi), "Open MPI v4.1.4");
        (void)snprintf(f->orted, sizeof(f->orted), "/usr/bin/orted");
    }
}

static void add_model(struct td_cluster *c, int64_t bytes)
{
    for (int h = 0; h < HOSTS; h++) {
        struct td_facts *f = c->hosts[h].facts;
        (void)snprintf(f->model, sizeof(f->model), "/models/m");
        f->files = td_calloc(1, sizeof(*f->files));
        assert_non_null(f->files);
        f->n_files = 1;
        (void)snprintf(f->files[0].name, TD_FACT_TEXT, "a.safetensors");
        (void)snprintf(f->files[0].hash, sizeof(f->files[0].hash), "0123");
        f->files[0].size = f->model_bytes = bytes;
    }
}

static void good_hosts_pass(void **state)
{
    struct td_cluster c;
    (void)state;
    setup_good(&c);
    add_model(&c, 60 * TD_GIB);
    td_judge(&c);
    for (int i = 0; i < c.n_lines; i++)
        assert_int_equal(c.lines[i].verdict, TD_PASS);
    assert_null(td_cluster_failure(&c));
    expect_line(&c, 1, "model", TD_PASS, TD_OK, "the same");
    td_cluster_release(&c);
}

static void bad_hosts_do_not(void **state)
{
    struct td_cluster c;
    (void)state;
    setup_good(&c);
    add_model(&c, 240 * TD_GIB);
    struct td_facts *f = c.hosts[1].facts;
    f->orted[0] = 0;
    c.hosts[1].clock = 3600;
    f->nofile = 256;
    f->memory.available = 70 * TD_GIB;
    f->holders[0] = (struct td_holder){.pid = 4711, .gpu = -1, .bytes = 21 * TD_GIB};
    (void)snprintf(f->holders[0].command, TD_FACT_NAME, "python3");
    (void)snprintf(f->holders[0].container, TD_FACT_NAME, "glm-server");
    f->n_holders = 1;
    f->files[0].size = 5;
    f->n_own = 1;
    (void)snprintf(f->own[0].text, TD_FACT_ADDR, "127.0.1.1");
    (void)snprintf(c.hosts[2].facts->mpi, TD_FACT_TEXT, "MPICH Version: 4.0.2");
    c.hosts[2].clock = -2;
    c.hosts[2].facts->files[0].hash[0] = 'x';
    td_judge(&c);
    expect_line(&c, 1, "mpi", TD_FAIL, TD_E_NO_MPI, "orted");
    expect_line(&c, 1, "clock", TD_FAIL, TD_E_CLOCK, "3600 s ahead of");
    expect_line(&c, 1, "limits", TD_WARN, TD_E_LIMIT, "256 files");
    expect_line(&c, 1, "memory", TD_FAIL, TD_E_MEMORY_TAKEN,
                "21.0 GiB by python3 (pid 4711, container glm-server)");
    expect_line(&c, 1, "model", TD_FAIL, TD_E_MODEL_DIFFERS, "5 on spark-2");
    expect_line(&c, 1, "name", TD_WARN, TD_E_NAME, "127.0.1.1");
    expect_line(&c, 2, "mpi", TD_FAIL, TD_E_NO_MPI, "MPICH");
    expect_line(&c, 2, "clock", TD_WARN, TD_E_CLOCK, "2 s behind");
    expect_line(&c, 2, "model", TD_FAIL, TD_E_MODEL_DIFFERS, "another content");
    assert_string_equal(td_cluster_failure(&c)->e.host, "spark-2");
    td_cluster_release(&c);
}

static void gpus_and_rdma(void **state)
{
    struct td_cluster c;
    (void)state;
    setup_good(&c);
    add_model(&c, 240 * TD_GIB);
    for (int h = 0; h < HOSTS; h++) {
        struct td_facts *f = c.hosts[h].facts;
        f->n_gpus = 1;
        (void)snprintf(f->gpus[0].name, TD_FACT_NAME, "NVIDIA H200");
        (void)snprintf(f->driver, TD_FACT_NAME, "580");
        f->gpus[0].total = 139 * TD_GIB;
        f->gpus[0].used = h == 1 ? 100 * TD_GIB : 0;
        f->n_rdma = 1;
        (void)snprintf(f->rdma[0].device, TD_FACT_IFNAME, "mlx5_0");
        (void)snprintf(c.hosts[h].iface, TD_FACT_IFNAME, "mgmt");
    }
    struct td_facts *f = c.hosts[1].facts;
    f->holders[0] = (struct td_holder){.pid = 7, .gpu = 0, .bytes = 99 * TD_GIB};
    f->n_holders = 1;
    c.hosts[2].facts->n_gpus = 0;
    (void)snprintf(c.hosts[0].rdma, TD_FACT_IFNAME, "mlx5_0");
    c.hosts[2].facts->memlock = 65536;
    td_judge(&c);
    expect_line(&c, 0, "gpu", TD_PASS, TD_OK, "139.0 GiB");
    expect_line(&c, 1, "gpu", TD_FAIL, TD_E_MEMORY_TAKEN,
                "99.0 GiB by a process (pid 7)");
    expect_line(&c, 2, "gpu", TD_WARN, TD_E_NO_DEVICE, "no GPU");
    expect_line(&c, 0, "rdma", TD_PASS, TD_OK, "mlx5_0");
    expect_line(&c, 1, "rdma", TD_WARN, TD_E_NETWORK, "not on mgmt");
    expect_line(&c, 2, "limits", TD_WARN, TD_E_LIMIT, "64.0 KiB");
    td_cluster_release(&c);
}

static void pins_for_every_layer(void **state)
{
    struct td_cluster c;
    struct td_pin p[TD_PIN_MAX];
    (void)state;
    setup_cluster(&c);
    (void)snprintf(c.cidr, sizeof(c.cidr), "192.168.200.0/24");
    (void)snprintf(c.hosts[1].iface, TD_FACT_IFNAME, "enp1s0");
    (void)snprintf(c.hosts[1].rdma, TD_FACT_IFNAME, "mlx5_0");
    c.hosts[1].rdma_port = 1;
    c.hosts[1].gid = 3;
    static const char *const want[] = {"OMPI_MCA_oob_tcp_if_include=192.168.200.0/24",
                                       "OMPI_MCA_btl_tcp_if_include=192.168.200.0/24",
                                       "UCX_NET_DEVICES=mlx5_0:1",
                                       "NCCL_SOCKET_IFNAME==enp1s0",
                                       "NCCL_IB_HCA==mlx5_0:1",
                                       "NCCL_IB_GID_INDEX=3",
                                       "GLOO_SOCKET_IFNAME=enp1s0"};
    int n = td_cluster_pins(&c, 1, p), found = 0;
    assert_true(n > 0 && n <= TD_PIN_MAX);
    for (int i = 0; i < n; i++) {
        char text[4096];
        (void)snprintf(text, sizeof(text), "%s=%s", p[i].name, p[i].value);
        for (size_t k = 0; k < TD_COUNT(want); k++)
            found += strcmp(text, want[k]) == 0;
    }
    assert_int_equal(found, (int)TD_COUNT(want));
    c.n = 1;
    assert_int_equal(td_cluster_pins(&c, 0, p), 0);
    c.n = HOSTS;
    td_cluster_release(&c);
}

/* ---- routes -------------------------------------------------------------------------- */

/* The fast network is one for each host, with routes "to" between them. */
static void setup_routes(struct td_cluster *c, const char *to)
{
    setup_cluster(c);
    for (int h = 0; h < HOSTS; h++) {
        struct td_facts *f = c->hosts[h].facts;
        struct td_address *a = &f->addrs[2];
        struct td_route *r = &f->routes[f->n_routes++];
        (void)snprintf(a->text, sizeof(a->text), "192.168.%d.%d", 200 + h, 12 + h);
        (void)snprintf(a->cidr, sizeof(a->cidr), "192.168.%d.0/24", 200 + h);
        (void)snprintf(r->to, sizeof(r->to), "%s", to);
        (void)snprintf(r->via, sizeof(r->via), "192.168.%d.1", 200 + h);
        (void)snprintf(r->iface, sizeof(r->iface), "fabric");
    }
}

static int routed(struct td_cluster *c)
{
    struct td_nets nets;
    assert_int_equal(td_nets_find_routed(c, &nets, NULL), TD_OK);
    int n = nets.n;
    if (n > 0) {
        assert_string_equal(nets.v[0].cidr, "192.168.200.0/22");
        assert_string_equal(nets.v[0].members[2].addr, "192.168.202.14");
        assert_string_equal(nets.v[0].members[2].iface->name, "fabric");
    }
    end_all(c, &nets);
    return n;
}

static void networks_with_routes_between(void **state)
{
    struct td_cluster c;
    (void)state;
    setup_routes(&c, "192.168.0.0/16");
    assert_int_equal(routed(&c), 1);
    setup_routes(&c, "default");
    assert_int_equal(routed(&c), 1);

    /* none of it: one network, a route that leads elsewhere, out of another interface,
     * without a gateway, a cable that is not in, something else in between */
    setup_cluster(&c);
    assert_int_equal(routed(&c), 0);
    setup_routes(&c, "192.168.201.0/24");
    assert_int_equal(routed(&c), 0);
    setup_routes(&c, "default");
    (void)snprintf(c.hosts[1].facts->routes[0].iface, TD_FACT_IFNAME, "mgmt");
    assert_int_equal(routed(&c), 0);
    setup_routes(&c, "default");
    *c.hosts[1].facts->routes[0].via = 0;
    assert_int_equal(routed(&c), 0);
    setup_routes(&c, "default");
    c.hosts[2].facts->ifaces[2].carrier = false;
    assert_int_equal(routed(&c), 0);
    setup_routes(&c, "default");
    add_iface(c.hosts[1].facts, "other", "192.168.203.7", 24, 0);
    assert_int_equal(routed(&c), 0);
}

static void no_memory_for_routes(void **state)
{
    (void)state;
    for (long n = 1; n <= 4; n++) {
        struct td_cluster c;
        struct td_nets nets;
        setup_routes(&c, "default");
        td_mem_fail_at(n);
        enum td_status s = td_nets_find_routed(&c, &nets, NULL);
        td_mem_fail_at(0);
        assert_int_equal(s, TD_E_NOMEM);
        end_all(&c, &nets);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_that_works),
        cmocka_unit_test(asked_for_by_name),
        cmocka_unit_test(every_refusal),
        cmocka_unit_test(slow_links),
        cmocka_unit_test(cables_and_doubles),
        cmocka_unit_test(memory_is_short),
        cmocka_unit_test(good_hosts_pass),
        cmocka_unit_test(bad_hosts_do_not),
        cmocka_unit_test(gpus_and_rdma),
        cmocka_unit_test(pins_for_every_layer),
        cmocka_unit_test(networks_with_routes_between),
        cmocka_unit_test(no_memory_for_routes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

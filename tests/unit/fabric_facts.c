/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host is, from recorded kernel trees, made-up netlink messages and a stand-in for
 * NVML; and the record as JSON, both ways. The RDMA and GPU readers were developed against
 * such recordings: not run on hardware.
 */
#include "check.h"

#include <arpa/inet.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "fabric/fabric_int.h"
#include "fabric/resolve.h"

static struct td_facts *facts_new(void **state)
{
    struct td_facts *f = td_calloc(1, sizeof(*f));
    (void)state;
    assert_non_null(f);
    return f;
}

static void facts_end(struct td_facts *f)
{
    td_facts_release(f);
    td_free(f);
}

/* ---- netlink ------------------------------------------------------------------------- */

struct message {
    unsigned char p[512];
    size_t n;
};

static void add(struct message *m, const void *p, size_t n)
{
    assert_true(m->n + n + 4 < sizeof(m->p));
    memcpy(m->p + m->n, p, n);
    m->n = (m->n + n + 3) & ~(size_t)3;
}

static void attr(struct message *m, int type, const void *p, size_t n)
{
    struct rtattr a = {.rta_len = (unsigned short)(sizeof(a) + n),
                       .rta_type = (unsigned short)type};
    add(m, &a, sizeof(a));
    add(m, p, n);
}

static struct message begin(int type, const void *fixed, size_t n)
{
    struct message m = {.n = 0};
    struct nlmsghdr h = {.nlmsg_type = (unsigned short)type};
    add(&m, &h, sizeof(h));
    add(&m, fixed, n);
    return m;
}

static bool feed(struct td_facts *f, struct message *m)
{
    bool done;
    uint32_t n = (uint32_t)m->n;
    memcpy(m->p, &n, sizeof(n));
    return td_facts_netlink(f, m->p, m->n, &done);
}

static struct message link_message(int index, const char *name, unsigned flags)
{
    struct ifinfomsg i = {.ifi_index = index, .ifi_flags = flags};
    struct message m = begin(RTM_NEWLINK, &i, sizeof(i));
    uint32_t mtu = 9000;
    const unsigned char mac[6] = {2, 0x42, 0xac, 0x11, 0, 2};
    attr(&m, IFLA_IFNAME, name, strlen(name) + 1);
    attr(&m, IFLA_MTU, &mtu, sizeof(mtu));
    attr(&m, IFLA_ADDRESS, mac, sizeof(mac));
    return m;
}

static struct message addr_message(int index, const char *addr, int bits)
{
    struct ifaddrmsg i = {.ifa_family = AF_INET,
                          .ifa_index = (unsigned)index,
                          .ifa_prefixlen = (unsigned char)bits};
    struct message m = begin(RTM_NEWADDR, &i, sizeof(i));
    unsigned char a[4];
    assert_int_equal(inet_pton(AF_INET, addr, a), 1);
    attr(&m, IFA_LOCAL, a, sizeof(a));
    return m;
}

static void netlink_messages(void **state)
{
    struct td_facts *f = facts_new(state);
    struct message m = link_message(3, "enp1s0f0np0", IFF_UP | IFF_LOWER_UP);
    assert_true(feed(f, &m));
    m = addr_message(3, "192.168.200.12", 20);
    assert_true(feed(f, &m));
    m = addr_message(9, "10.0.0.1", 24); /* of no interface */
    assert_true(feed(f, &m));
    struct rtmsg r = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN, .rtm_type = 1};
    m = begin(RTM_NEWROUTE, &r, sizeof(r));
    uint32_t oif = 3;
    const unsigned char via[4] = {192, 168, 200, 1};
    attr(&m, RTA_OIF, &oif, sizeof(oif));
    attr(&m, RTA_GATEWAY, via, sizeof(via));
    assert_true(feed(f, &m));

    assert_int_equal(f->n_ifaces, 1);
    const struct td_iface *i = td_facts_iface(f, "enp1s0f0np0");
    assert_non_null(i);
    assert_true(i->up && i->carrier && !i->loopback);
    assert_int_equal(i->mtu, 9000);
    assert_string_equal(i->mac, "02:42:ac:11:00:02");
    assert_int_equal(f->n_addrs, 1);
    assert_string_equal(f->addrs[0].cidr, "192.168.192.0/20");
    assert_string_equal(f->addrs[0].iface, "enp1s0f0np0");
    assert_int_equal(f->n_routes, 1);
    assert_string_equal(f->routes[0].to, "default");
    assert_string_equal(f->routes[0].via, "192.168.200.1");
    facts_end(f);
}

/* Every length that a message can be cut at, and lengths that lie. */
static void damaged_messages(void **state)
{
    struct td_facts *f = facts_new(state);
    bool done;
    struct message m = link_message(3, "eth0", IFF_UP);
    uint32_t all = (uint32_t)m.n;
    for (uint32_t n = 0; n < all; n++) {
        memcpy(m.p, &n, sizeof(n));
        (void)td_facts_netlink(f, m.p, n, &done);
        (void)td_facts_netlink(f, m.p, all, &done);
    }
    memcpy(m.p, &all, sizeof(all));
    assert_false(td_facts_netlink(f, m.p, all - 1, &done));
    m.p[sizeof(struct nlmsghdr) + sizeof(struct ifinfomsg)] = 200; /* an attribute's */
    assert_false(td_facts_netlink(f, m.p, all, &done));
    facts_end(f);
}

static void more_than_there_is_room_for(void **state)
{
    struct td_facts *f = facts_new(state);
    for (int i = 0; i < TD_FACT_IFACES + 5; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "veth%d", i);
        struct message m = link_message(i + 1, name, IFF_UP);
        assert_true(feed(f, &m));
    }
    assert_int_equal(f->n_ifaces, TD_FACT_IFACES);
    for (int i = 0; i < TD_FACT_ADDRS + 5; i++) {
        struct message m = addr_message(1, "10.0.0.1", 24);
        assert_true(feed(f, &m));
    }
    assert_int_equal(f->n_addrs, TD_FACT_ADDRS);
    facts_end(f);
}

/* ---- recorded trees ------------------------------------------------------------------ */

static const char tree[] = "tests/cases/fabric/spark";

static void rdma_and_speeds(void **state)
{
    struct td_facts *f = facts_new(state);
    int64_t gid;
    struct message m = link_message(3, "enp1s0f0np0", IFF_UP);
    assert_true(feed(f, &m));
    m = link_message(4, "enp1s0f1np1", IFF_UP);
    assert_true(feed(f, &m));
    td_facts_read_speeds(tree, f);
    assert_int_equal(f->ifaces[0].mbit, 200000);
    assert_int_equal(f->ifaces[1].mbit, 0); /* "-1": no cable */

    td_facts_read_rdma(tree, f);
    assert_int_equal(f->n_rdma, 2);
    const struct td_rdma *r = td_facts_rdma(f, "enp1s0f0np0", "192.168.200.12", &gid);
    assert_non_null(r);
    assert_string_equal(r->device, "rocep1s0f0");
    assert_true(r->active && r->ethernet);
    assert_true(r->gbit > 199.9 && r->gbit < 200.1);
    assert_int_equal(gid, 3);
    assert_int_equal(r->n_gids, 4);
    /* the port that is down, and an address the table does not have */
    assert_null(td_facts_rdma(f, "enp1s0f1np1", "192.168.200.14", &gid));
    assert_non_null(td_facts_rdma(f, "enp1s0f0np0", "192.168.200.99", &gid));
    assert_int_equal(gid, -1);
    facts_end(f);
}

static void who_holds_memory(void **state)
{
    struct td_facts *f = facts_new(state);
    int64_t page = sysconf(_SC_PAGESIZE);
    td_facts_read_holders(tree, 1000 * page, f);
    assert_int_equal(f->n_holders, 2);
    assert_int_equal(f->holders[0].pid, 4711);
    assert_int_equal(f->holders[0].bytes, 5242880 * page);
    assert_string_equal(f->holders[0].command, "python3");
    assert_string_equal(f->holders[0].container, "glm-server");
    assert_int_equal(f->holders[1].pid, 815);
    assert_string_equal(f->holders[1].container, "77d0a1b2c3d4");
    facts_end(f);
}

/* ---- a stand-in for NVML ------------------------------------------------------------- */

static int nv_ok(void)
{
    return 0;
}

static int nv_driver(char *out, unsigned size)
{
    (void)snprintf(out, size, "580.95.05");
    return 0;
}

static int nv_count(unsigned *n)
{
    *n = 2;
    return 0;
}

static int nv_handle(unsigned index, void **out)
{
    static char devices[2];
    *out = &devices[index];
    return 0;
}

static int nv_name(void *device, char *out, unsigned size)
{
    (void)device;
    (void)snprintf(out, size, "NVIDIA H200");
    return 0;
}

static int nv_memory(void *device, struct td_nvml_memory *out)
{
    void *second;
    (void)nv_handle(1, &second);
    if (device == second)
        return 3; /* NVML_ERROR_NOT_SUPPORTED: memory of the host */
    *out = (struct td_nvml_memory){UINT64_C(150) << 30, UINT64_C(100) << 30,
                                   UINT64_C(50) << 30};
    return 0;
}

static int nv_processes(void *device, unsigned *count, struct td_nvml_process *out)
{
    void *second;
    (void)nv_handle(1, &second);
    *count = device == second ? 0 : 1;
    if (*count)
        out[0] = (struct td_nvml_process){.pid = 4711, .used = UINT64_C(49) << 30};
    return 0;
}

static void gpus(void **state)
{
    struct td_facts *f = facts_new(state);
    struct td_nvml n = {.init = nv_ok,
                        .shutdown = nv_ok,
                        .driver = nv_driver,
                        .count = nv_count,
                        .handle = nv_handle,
                        .name = nv_name,
                        .memory = nv_memory,
                        .processes = nv_processes};
    td_facts_read_gpus(tree, &n, f);
    assert_int_equal(f->n_gpus, 2);
    assert_string_equal(f->driver, "580.95.05");
    assert_int_equal(f->gpus[0].used, INT64_C(50) << 30);
    assert_false(f->gpus[0].unified);
    assert_true(f->gpus[1].unified);
    assert_int_equal(f->n_holders, 1);
    assert_int_equal(f->holders[0].gpu, 0);
    assert_string_equal(f->holders[0].container, "glm-server");
    n.count = NULL; /* a library too old */
    f->n_gpus = 0;
    td_facts_read_gpus(tree, &n, f);
    assert_int_equal(f->n_gpus, 0);
    facts_end(f);
}

/* ---- the record ---------------------------------------------------------------------- */

static void this_host_there_and_back(void **state)
{
    struct td_facts *f = facts_new(state), *g = facts_new(state);
    struct td_buf a, b;
    struct td_error err;
    json_t *o = NULL;
    td_error_init(&err);
    td_buf_init(&a, 4 * TD_MIB);
    td_buf_init(&b, 4 * TD_MIB);
    td_facts_read("", f);
    assert_true(f->cores > 0 && f->memory.available > 0 && f->n_ifaces > 0);
    assert_true(*f->host && *f->arch && *f->program == '/');
    f->files = td_calloc(1, sizeof(*f->files));
    assert_non_null(f->files);
    f->n_files = 1;
    (void)snprintf(f->files[0].name, sizeof(f->files[0].name), "a \"quoted\" name");
    f->files[0].size = INT64_MAX;
    f->n_rdma = 1;
    f->rdma[0].port = 1;
    f->rdma[0].gbit = 200;
    f->rdma[0].n_gids = 1;
    (void)snprintf(f->rdma[0].gids[0].type, sizeof(f->rdma[0].gids[0].type), "RoCE v2");
    assert_int_equal(td_facts_put(&a, f), TD_OK);
    assert_int_equal(td_json_parse(a.p, a.len, "facts", &o, &err), TD_OK);
    assert_int_equal(td_facts_get(o, "facts", g, &err), TD_OK);
    assert_int_equal(td_facts_put(&b, g), TD_OK);
    assert_string_equal(a.p, b.p);
    json_decref(o);
    td_buf_release(&a);
    td_buf_release(&b);
    facts_end(f);
    facts_end(g);
}

static void hostile_records(void **state)
{
    static const struct {
        const char *text;
        enum td_status code;
        const char *names;
    } list[] = {
        {"{}", TD_OK, ""},
        {"[]", TD_E_CONFIG, "object"},
        {"{\"cores\":-1}", TD_E_CONFIG, "cores"},
        {"{\"cores\":\"two\"}", TD_E_CONFIG, "cores"},
        {"{\"arch\":7}", TD_E_CONFIG, "arch"},
        {"{\"ifaces\":{}}", TD_E_CONFIG, "ifaces"},
        {"{\"ifaces\":[7]}", TD_E_CONFIG, "object"},
        {"{\"rdma\":[{\"gbit\":1e300}]}", TD_E_CONFIG, "gbit"},
        {"{\"gpus\":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}", TD_E_LIMIT,
         "gpus"},
        {"{\"arch\":\"0123456789012345678901234567890123456789012345678901234567890123"
         "456789\"}",
         TD_E_LIMIT, "arch"},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_facts *f = facts_new(state);
        struct td_error err;
        json_t *o = NULL;
        td_error_init(&err);
        assert_int_equal(
            td_json_parse(list[i].text, strlen(list[i].text), "peer", &o, &err), TD_OK);
        assert_int_equal(td_facts_get(o, "peer", f, &err), list[i].code);
        if (!strstr(err.what, list[i].names))
            fail_msg("%s: %s", list[i].text, err.what);
        json_decref(o);
        facts_end(f);
    }
}

static void addresses_in_networks(void **state)
{
    (void)state;
    assert_true(td_addr_in("192.168.200.12", "192.168.200.0/24"));
    assert_false(td_addr_in("192.168.201.12", "192.168.200.0/24"));
    assert_true(td_addr_in("192.168.201.12", "192.168.200.0/23"));
    assert_true(td_addr_in("8.8.8.8", "0.0.0.0/0"));
    assert_true(td_addr_in("fd00::1", "fd00::/64"));
    assert_false(td_addr_in("192.168.200.12", "fd00::/64"));
    assert_false(td_addr_in("192.168.200.12", "192.168.200.0/33"));
    assert_false(td_addr_in("192.168.200.12", "192.168.200.0"));
    assert_false(td_addr_in("x", "192.168.200.0/24"));
    assert_true(td_addr_is_loopback("127.0.1.1"));
    assert_true(td_addr_is_loopback("::1"));
    assert_false(td_addr_is_loopback("128.0.0.1"));
    char list[4][TD_FACT_ADDR], why[128];
    assert_true(td_resolve("127.0.0.1", 5, list, 4, why, sizeof(why)) == 1);
    assert_string_equal(list[0], "127.0.0.1");
    assert_int_equal(td_resolve("no..such..name", 5, list, 4, why, sizeof(why)), 0);
    assert_true(*why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(netlink_messages),
        cmocka_unit_test(damaged_messages),
        cmocka_unit_test(more_than_there_is_room_for),
        cmocka_unit_test(rdma_and_speeds),
        cmocka_unit_test(who_holds_memory),
        cmocka_unit_test(gpus),
        cmocka_unit_test(this_host_there_and_back),
        cmocka_unit_test(hostile_records),
        cmocka_unit_test(addresses_in_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

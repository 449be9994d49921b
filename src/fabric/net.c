/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interfaces, addresses and routes, asked of the kernel over rtnetlink, and the speed of
 * each link from /sys. See facts.h.
 *
 * The messages are walked by hand, every length checked against what is left: the same
 * function reads the kernel's answers and recorded ones.
 */
#define _DEFAULT_SOURCE
#include "fabric/fabric_int.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ATTR_MAX = 64, ANSWER_BYTES = 32768, PATIENCE_MS = 1000 };

/* ---- messages ----------------------------------------------------------------------- */

/* The attributes behind a message's fixed part, by their type. */
struct attrs {
    const unsigned char *p[ATTR_MAX];
    size_t n[ATTR_MAX];
};

static size_t aligned(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

static bool split(const unsigned char *p, size_t n, struct attrs *out)
{
    memset(out, 0, sizeof(*out));
    while (n >= sizeof(struct rtattr)) {
        struct rtattr a;
        memcpy(&a, p, sizeof(a));
        if (a.rta_len < sizeof(a) || a.rta_len > n)
            return false;
        unsigned type = a.rta_type & NLA_TYPE_MASK;
        if (type < ATTR_MAX) {
            out->p[type] = p + sizeof(a);
            out->n[type] = a.rta_len - sizeof(a);
        }
        size_t step = TD_MIN(aligned(a.rta_len), n);
        p += step;
        n -= step;
    }
    return true;
}

static uint32_t attr_u32(const struct attrs *a, int type)
{
    uint32_t v = 0;
    if (a->n[type] >= sizeof(v))
        memcpy(&v, a->p[type], sizeof(v));
    return v;
}

static void attr_text(const struct attrs *a, int type, char *out, size_t size)
{
    size_t n = a->p[type] ? strnlen((const char *)a->p[type], a->n[type]) : 0;
    (void)snprintf(out, size, "%.*s", (int)n, n ? (const char *)a->p[type] : "");
}

static bool attr_addr(const struct attrs *a, int type, int family, char *out,
                      size_t size)
{
    size_t want = family == AF_INET ? 4 : 16;
    return a->n[type] == want &&
           inet_ntop(family, a->p[type], out, (socklen_t)size) != NULL;
}

/* ADDRESS/BITS with the host's bits cleared. */
static void network_of(int family, const unsigned char *addr, unsigned bits, char *out,
                       size_t size)
{
    unsigned char net[16];
    char text[TD_FACT_ADDR] = "";
    size_t n = family == AF_INET ? 4 : 16;
    for (size_t i = 0; i < n; i++) {
        unsigned here = bits > 8 * i ? TD_MIN(bits - 8 * (unsigned)i, 8U) : 0;
        net[i] = (unsigned char)(addr[i] & (0xff00U >> here));
    }
    if (inet_ntop(family, net, text, sizeof(text)))
        (void)snprintf(out, size, "%.40s/%u", text, bits);
}

static struct td_iface *iface_by_index(struct td_facts *f, int64_t index)
{
    for (int64_t i = 0; i < f->n_ifaces; i++)
        if (f->ifaces[i].index == index)
            return &f->ifaces[i];
    return NULL;
}

/* The head of a message, and the attributes behind it. */
static bool open_message(const unsigned char *p, size_t n, void *head, size_t size,
                         struct attrs *a)
{
    if (n < size)
        return false;
    memcpy(head, p, size);
    return split(p + aligned(size), n - aligned(size), a);
}

static bool read_link(struct td_facts *f, const unsigned char *p, size_t n)
{
    struct ifinfomsg m;
    struct attrs a, info;
    if (!open_message(p, n, &m, sizeof(m), &a))
        return false;
    if (f->n_ifaces == TD_FACT_IFACES)
        return true;
    struct td_iface *i = &f->ifaces[f->n_ifaces++];
    i->index = m.ifi_index;
    i->up = (m.ifi_flags & IFF_UP) != 0;
    i->carrier = (m.ifi_flags & IFF_LOWER_UP) != 0;
    i->loopback = (m.ifi_flags & IFF_LOOPBACK) != 0;
    i->mtu = attr_u32(&a, IFLA_MTU);
    attr_text(&a, IFLA_IFNAME, i->name, sizeof(i->name));
    if (a.n[IFLA_ADDRESS] == 6) {
        const unsigned char *b = a.p[IFLA_ADDRESS];
        (void)snprintf(i->mac, sizeof(i->mac), "%02x:%02x:%02x:%02x:%02x:%02x", b[0],
                       b[1], b[2], b[3], b[4], b[5]);
    }
    if (a.p[IFLA_LINKINFO] && split(a.p[IFLA_LINKINFO], a.n[IFLA_LINKINFO], &info))
        attr_text(&info, IFLA_INFO_KIND, i->kind, sizeof(i->kind));
    return true;
}

static bool read_addr(struct td_facts *f, const unsigned char *p, size_t n)
{
    struct ifaddrmsg m;
    struct attrs a;
    if (!open_message(p, n, &m, sizeof(m), &a))
        return false;
    int family = m.ifa_family;
    const struct td_iface *i = iface_by_index(f, m.ifa_index);
    /* of a point-to-point link, IFA_ADDRESS is the other end's */
    int own = a.p[IFA_LOCAL] ? IFA_LOCAL : IFA_ADDRESS;
    if ((family != AF_INET && family != AF_INET6) || !i ||
        f->n_addrs == TD_FACT_ADDRS || m.ifa_prefixlen > (family == AF_INET ? 32 : 128))
        return true;
    struct td_address *to = &f->addrs[f->n_addrs];
    if (!attr_addr(&a, own, family, to->text, sizeof(to->text)))
        return true;
    to->prefix = m.ifa_prefixlen;
    network_of(family, a.p[own], m.ifa_prefixlen, to->cidr, sizeof(to->cidr));
    td_text_copy(to->iface, sizeof(to->iface), i->name);
    f->n_addrs++;
    return true;
}

static bool read_route(struct td_facts *f, const unsigned char *p, size_t n)
{
    struct rtmsg m;
    struct attrs a;
    if (!open_message(p, n, &m, sizeof(m), &a))
        return false;
    int family = m.rtm_family;
    const struct td_iface *i = iface_by_index(f, attr_u32(&a, RTA_OIF));
    if ((family != AF_INET && family != AF_INET6) || m.rtm_table != RT_TABLE_MAIN ||
        m.rtm_type != RTN_UNICAST || !i || f->n_routes == TD_FACT_ROUTES)
        return true;
    struct td_route *r = &f->routes[f->n_routes++];
    td_text_copy(r->iface, sizeof(r->iface), i->name);
    (void)attr_addr(&a, RTA_GATEWAY, family, r->via, sizeof(r->via));
    if (a.n[RTA_DST] == (family == AF_INET ? 4 : 16))
        network_of(family, a.p[RTA_DST], m.rtm_dst_len, r->to, sizeof(r->to));
    else
        (void)snprintf(r->to, sizeof(r->to), "default");
    return true;
}

bool td_facts_netlink(struct td_facts *f, const void *bytes, size_t n, bool *done)
{
    const unsigned char *p = bytes;
    *done = false;
    while (n >= sizeof(struct nlmsghdr) && !*done) {
        struct nlmsghdr h;
        memcpy(&h, p, sizeof(h));
        if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > n)
            return false;
        const unsigned char *body = p + sizeof(h);
        size_t len = h.nlmsg_len - sizeof(h);
        bool good = true;
        if (h.nlmsg_type == RTM_NEWLINK)
            good = read_link(f, body, len);
        else if (h.nlmsg_type == RTM_NEWADDR)
            good = read_addr(f, body, len);
        else if (h.nlmsg_type == RTM_NEWROUTE)
            good = read_route(f, body, len);
        *done = h.nlmsg_type == NLMSG_DONE || h.nlmsg_type == NLMSG_ERROR;
        if (!good)
            return false;
        size_t step = TD_MIN(aligned(h.nlmsg_len), n);
        p += step;
        n -= step;
    }
    return true;
}

/* ---- asking the kernel -------------------------------------------------------------- */

static void dump(struct td_facts *f, int fd, int type)
{
    struct {
        struct nlmsghdr h;
        struct rtgenmsg g;
    } ask = {.h = {.nlmsg_len = sizeof(ask),
                   .nlmsg_type = (unsigned short)type,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
             .g = {.rtgen_family = AF_UNSPEC}};
    unsigned char answer[ANSWER_BYTES];
    bool done = false;
    if (send(fd, &ask, sizeof(ask), 0) != (ssize_t)sizeof(ask))
        return;
    while (!done) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, PATIENCE_MS) != 1)
            return;
        ssize_t n = recv(fd, answer, sizeof(answer), 0);
        if (n <= 0 || !td_facts_netlink(f, answer, (size_t)n, &done))
            return;
    }
}

void td_facts_read_net(const char *root, struct td_facts *f)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return;
    dump(f, fd, RTM_GETLINK);
    dump(f, fd, RTM_GETADDR);
    dump(f, fd, RTM_GETROUTE);
    (void)close(fd);
    td_facts_read_speeds(root, f);
}

void td_facts_read_speeds(const char *root, struct td_facts *f)
{
    for (int64_t i = 0; i < f->n_ifaces; i++) {
        struct td_iface *x = &f->ifaces[i];
        char text[TD_FACT_NAME];
        x->mbit = 0;
        if (td_small_file(text, sizeof(text), "%s/sys/class/net/%s/speed", root,
                          x->name))
            x->mbit = TD_MAX(td_text_int(text, 0), 0);
    }
}

const struct td_iface *td_facts_iface(const struct td_facts *f, const char *name)
{
    for (int64_t i = 0; i < f->n_ifaces; i++)
        if (strcmp(f->ifaces[i].name, name) == 0)
            return &f->ifaces[i];
    return NULL;
}

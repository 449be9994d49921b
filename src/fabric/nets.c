/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of the one network. See nets.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "fabric/nets.h"

#include "base/mem.h"
#include "fabric/resolve.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of what a link says (counted up to 25 Gbit/s, which one TCP stream can fill), it has to
 * carry this share. */
static const double least_share = 1.0 / 20, stream_gbit = 25;

/* Rates within this factor count as equal. */
static const double equal_rates = 1.25;

static const char *name_of(const struct td_cluster *c, int host)
{
    return c->hosts[host].label;
}

static const struct td_net_pair *pair_of(const struct td_nets *nets,
                                         const struct td_net *net, int from, int to)
{
    return &net->pairs[(size_t)from * (size_t)nets->n_hosts + (size_t)to];
}

/* ---- finding ------------------------------------------------------------------------ */

bool td_iface_is_private(const struct td_iface *i)
{
    static const char *const names[] = {"docker", "br-", "virbr",  "lxcbr",
                                        "lxdbr",  "cni", "podman", "flannel"};
    if (strcmp(i->kind, "bridge") != 0)
        return false;
    for (size_t k = 0; k < TD_COUNT(names); k++)
        if (strncmp(i->name, names[k], strlen(names[k])) == 0)
            return true;
    return false;
}

/* The interface of an address that hosts could talk over, else NULL. */
static const struct td_iface *usable(const struct td_facts *f,
                                     const struct td_address *a)
{
    const struct td_iface *i = td_facts_iface(f, a->iface);
    if (!i || i->loopback || strchr(a->text, ':'))
        return NULL;
    return i;
}

/* "mgmt 10.1.230.180/24, fabric 192.168.200.12/24" */
static void list_addresses(const struct td_facts *f, char *out, size_t size)
{
    size_t at = 0;
    *out = 0;
    for (int64_t k = 0; k < f->n_addrs && at < size; k++) {
        const struct td_iface *i = usable(f, &f->addrs[k]);
        int n =
            !i ? 0
               : snprintf(out + at, size - at, "%s%s %s/%" PRId64 "%s", at ? ", " : "",
                          i->name, f->addrs[k].text, f->addrs[k].prefix,
                          td_iface_is_private(i) ? " (a bridge of containers)"
                          : i->up                ? ""
                                                 : " (down)");
        at += (size_t)TD_MAX(n, 0);
    }
    if (!*out)
        td_text_copy(out, size, "no IPv4 address");
}

static enum td_status nothing_shared(const struct td_cluster *c, const char *fabric,
                                     struct td_error *err)
{
    char why[TD_ERROR_WHY_MAX] = "", list[TD_FACT_TEXT];
    size_t at = 0;
    for (int h = 0; h < c->n && at < sizeof(why); h++) {
        list_addresses(c->hosts[h].facts, list, sizeof(list));
        int n = snprintf(why + at, sizeof(why) - at, "%s%s has %s", h ? "; " : "",
                         name_of(c, h), list);
        at += (size_t)TD_MAX(n, 0);
    }
    if (fabric)
        td_error_set(err, TD_E_NETWORK, "--fabric %s is not on all hosts", fabric);
    else
        td_error_set(err, TD_E_NETWORK, "the hosts share no network");
    td_error_why(err, "%s", why);
    td_error_fix(err,
                 "give them addresses in one network, or name a CIDR that holds an "
                 "address of each: --fabric 10.0.0.0/8");
    return TD_E_NETWORK;
}

/* The place of a host in a network; false when it has none. Two interfaces are one too
 * many: Open MPI would use both. */
static bool place(const struct td_cluster *c, int host, struct td_net *net)
{
    const struct td_facts *f = c->hosts[host].facts;
    struct td_net_member *m = &net->members[host];
    for (int64_t k = 0; k < f->n_addrs; k++) {
        const struct td_iface *i = usable(f, &f->addrs[k]);
        if (!i || td_iface_is_private(i) || !td_addr_in(f->addrs[k].text, net->cidr))
            continue;
        if (m->iface && m->iface != i && net->e.code == TD_OK) {
            td_error_set(&net->e, TD_E_NETWORK,
                         "%s has two interfaces in %s: %s and %s", name_of(c, host),
                         net->cidr, m->iface->name, i->name);
            td_error_why(&net->e, "every layer would choose between them by itself");
            td_error_fix(&net->e, "give one of them a network of its own");
        }
        if (m->iface)
            continue;
        m->iface = i;
        td_text_copy(m->addr, sizeof(m->addr), f->addrs[k].text);
    }
    if (m->iface && (!m->iface->up || !m->iface->carrier) && net->e.code == TD_OK) {
        td_error_set(&net->e, TD_E_NETWORK, "%s of %s is down", m->iface->name,
                     name_of(c, host));
        td_error_why(&net->e, "%s",
                     m->iface->up ? "it has no carrier: no cable, or nothing at its end"
                                  : "it was switched off");
        td_error_fix(&net->e, "look at the cable; ip link set %s up", m->iface->name);
    }
    return m->iface != NULL;
}

/* An empty network behind the others; there is room for it. */
static enum td_status new_net(const struct td_cluster *c, const char *cidr,
                              struct td_nets *out, struct td_error *err)
{
    size_t n = (size_t)c->n;
    struct td_net *net = &out->v[out->n++];
    td_text_copy(net->cidr, sizeof(net->cidr), cidr);
    td_error_init(&net->e);
    net->members = td_calloc(n, sizeof(*net->members));
    net->pairs = td_calloc(n * n, sizeof(*net->pairs));
    net->links = td_calloc(n * n, sizeof(*net->links));
    net->failed = td_calloc(n * n, sizeof(*net->failed));
    if (net->members && net->pairs && net->links && net->failed)
        return TD_OK;
    return td_error_set(err, TD_E_NOMEM, "no memory for the networks of the hosts");
}

static void free_net(struct td_net *net)
{
    td_free(net->members);
    td_free(net->pairs);
    td_free(net->links);
    td_free(net->failed);
    *net = (struct td_net){0};
}

static enum td_status add_net(const struct td_cluster *c, const char *cidr,
                              struct td_nets *out, struct td_error *err)
{
    for (int i = 0; i < out->n; i++)
        if (strcmp(out->v[i].cidr, cidr) == 0)
            return TD_OK;
    if (out->n == TD_MAX_NETS)
        return TD_OK;
    enum td_status s = new_net(c, cidr, out, err);
    bool everywhere = s == TD_OK;
    for (int h = 0; h < c->n && s == TD_OK; h++)
        everywhere = place(c, h, &out->v[out->n - 1]) && everywhere;
    if (s == TD_OK && !everywhere)
        free_net(&out->v[--out->n]);
    return s;
}

/* The interface of a host that has this address, and could meet others with it. */
static const struct td_iface *holder_of(const struct td_facts *f, const char *addr)
{
    for (int64_t k = 0; k < f->n_addrs; k++) {
        const struct td_iface *i = usable(f, &f->addrs[k]);
        if (i && !td_iface_is_private(i) && strcmp(f->addrs[k].text, addr) == 0)
            return i;
    }
    return NULL;
}

static enum td_status find_duplicate(const struct td_cluster *c, int host,
                                     const char *addr, struct td_error *err)
{
    const struct td_iface *i = holder_of(c->hosts[host].facts, addr);
    for (int g = 0; i && g < host; g++) {
        const struct td_iface *j = holder_of(c->hosts[g].facts, addr);
        if (!j)
            continue;
        td_error_set(err, TD_E_DUPLICATE, "%s and %s both have the address %s",
                     name_of(c, g), name_of(c, host), addr);
        td_error_why(err, "it is on %s of %s and on %s of %s", j->name, name_of(c, g),
                     i->name, name_of(c, host));
        return TD_E_DUPLICATE;
    }
    return TD_OK;
}

/* An address that two of the hosts have, on networks where they could meet. */
static enum td_status find_duplicates(const struct td_cluster *c,
                                      const struct td_nets *nets, struct td_error *err)
{
    enum td_status s = TD_OK;
    for (int h = 0; h < c->n; h++) {
        const struct td_facts *f = c->hosts[h].facts;
        for (int64_t k = 0; k < f->n_addrs; k++)
            for (int n = 0; n < nets->n && s == TD_OK; n++)
                if (td_addr_in(f->addrs[k].text, nets->v[n].cidr))
                    s = find_duplicate(c, h, f->addrs[k].text, err);
    }
    return s;
}

enum td_status td_nets_find(const struct td_cluster *c, const char *fabric,
                            struct td_nets *out, struct td_error *err)
{
    const struct td_facts *f = c->hosts[0].facts;
    enum td_status s = TD_OK;
    *out = (struct td_nets){.n_hosts = c->n, .forced = fabric != NULL};
    bool cidr = fabric && strchr(fabric, '/');
    for (int64_t k = 0; k < f->n_addrs && s == TD_OK; k++) {
        const struct td_iface *i = usable(f, &f->addrs[k]);
        if (!i || td_iface_is_private(i))
            continue;
        if (cidr && td_addr_in(f->addrs[k].text, fabric))
            s = add_net(c, fabric, out, err);
        else if (!fabric || (!cidr && strcmp(i->name, fabric) == 0))
            s = add_net(c, f->addrs[k].cidr, out, err);
    }
    if (s == TD_OK)
        s = find_duplicates(c, out, err);
    if (s == TD_OK && out->n == 0)
        s = nothing_shared(c, fabric, err);
    return s;
}

void td_nets_release(struct td_nets *nets)
{
    for (int i = 0; i < nets->n; i++)
        free_net(&nets->v[i]);
    *nets = (struct td_nets){0};
}

/* ---- routes ------------------------------------------------------------------------- */

enum { MOST_WAYS = 4096 }; /* combinations of addresses that are looked at */

/* The next address of a host that others could be reached from, from `k` on; -1: none. */
static int64_t next_address(const struct td_facts *f, int64_t k)
{
    for (; k < f->n_addrs; k++) {
        const struct td_iface *i = usable(f, &f->addrs[k]);
        if (i && i->up && i->carrier && !td_iface_is_private(i))
            return k;
    }
    return -1;
}

/* Does a host send what is for `to` out of the interface of its address `own`? */
static bool sends_to(const struct td_facts *f, const struct td_address *own,
                     const char *to)
{
    if (td_addr_in(to, own->cidr))
        return true;
    for (int64_t k = 0; k < f->n_routes; k++) {
        const struct td_route *r = &f->routes[k];
        if (strcmp(r->iface, own->iface) == 0 && *r->via &&
            (strcmp(r->to, "default") == 0 || td_addr_in(to, r->to)))
            return true;
    }
    return false;
}

static bool all_send(const struct td_cluster *c, const int64_t *at)
{
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->n; j++)
            if (i != j && !sends_to(c->hosts[i].facts, &c->hosts[i].facts->addrs[at[i]],
                                    c->hosts[j].facts->addrs[at[j]].text))
                return false;
    return true;
}

/* The network of so many bits that an IPv4 address is in. */
static void network_of(const char *addr, int bits, char cidr[TD_FACT_ADDR])
{
    unsigned char a[4] = {0};
    (void)inet_pton(AF_INET, addr, a);
    for (int i = bits; i < 32; i++)
        a[i / 8] &= (unsigned char)~(0x80 >> i % 8);
    (void)snprintf(cidr, TD_FACT_ADDR, "%d.%d.%d.%d/%d", a[0], a[1], a[2], a[3], bits);
}

/* The smallest CIDR around the addresses at[]; false when it holds anything else of a
 * host, or loopback. */
static bool around(const struct td_cluster *c, const int64_t *at,
                   char cidr[TD_FACT_ADDR])
{
    const char *first = c->hosts[0].facts->addrs[at[0]].text;
    for (int bits = 31; bits > 0; bits--) {
        bool all = true;
        network_of(first, bits, cidr);
        for (int h = 1; h < c->n && all; h++)
            all = td_addr_in(c->hosts[h].facts->addrs[at[h]].text, cidr);
        if (!all)
            continue;
        for (int h = 0; h < c->n; h++) {
            const struct td_facts *f = c->hosts[h].facts;
            for (int64_t k = 0; k < f->n_addrs; k++)
                if (k != at[h] && td_addr_in(f->addrs[k].text, cidr))
                    return false;
        }
        return true; /* 127.0.0.1 is among the addresses of each */
    }
    return false;
}

static bool in_one_network(const struct td_cluster *c, const int64_t *at)
{
    const char *first = c->hosts[0].facts->addrs[at[0]].cidr;
    for (int h = 1; h < c->n; h++)
        if (strcmp(c->hosts[h].facts->addrs[at[h]].cidr, first) != 0)
            return false;
    return true;
}

static enum td_status add_routed(const struct td_cluster *c, const int64_t *at,
                                 struct td_nets *out, struct td_error *err)
{
    char cidr[TD_FACT_ADDR];
    if (in_one_network(c, at) || !all_send(c, at) || !around(c, at, cidr))
        return TD_OK;
    enum td_status s = new_net(c, cidr, out, err);
    for (int h = 0; h < c->n && s == TD_OK; h++) {
        const struct td_address *a = &c->hosts[h].facts->addrs[at[h]];
        struct td_net_member *m = &out->v[out->n - 1].members[h];
        m->iface = td_facts_iface(c->hosts[h].facts, a->iface);
        td_text_copy(m->addr, sizeof(m->addr), a->text);
    }
    return s;
}

/* The next combination, like the digits of a number; false behind the last. */
static bool next_way(const struct td_cluster *c, int64_t *at)
{
    for (int h = c->n - 1; h >= 0; h--) {
        const struct td_facts *f = c->hosts[h].facts;
        at[h] = next_address(f, at[h] + 1);
        if (at[h] >= 0)
            return true;
        at[h] = next_address(f, 0);
    }
    return false;
}

enum td_status td_nets_find_routed(const struct td_cluster *c, struct td_nets *out,
                                   struct td_error *err)
{
    int64_t at[TD_MAX_RANKS] = {0};
    enum td_status s = TD_OK;
    bool more = true;
    *out = (struct td_nets){.n_hosts = c->n};
    for (int h = 0; h < c->n; h++) {
        at[h] = next_address(c->hosts[h].facts, 0);
        more = more && at[h] >= 0;
    }
    for (int k = 0; k < MOST_WAYS && more && s == TD_OK && out->n < TD_MAX_NETS; k++) {
        s = add_routed(c, at, out, err);
        more = next_way(c, at);
    }
    return s;
}

/* ---- reachable in both directions? -------------------------------------------------- */

static const char *reach_text(enum td_reach r)
{
    switch (r) {
    case TD_REACH_REFUSED:
        return "the connection is refused";
    case TD_REACH_TIMEOUT:
        return "nothing answers";
    case TD_REACH_UNREACHABLE:
        return "there is no route to it, or nobody has this address";
    case TD_REACH_STRANGER:
        return "somebody else answers there";
    case TD_REACH_FAILED:
    case TD_REACH_OK:
    case TD_REACH_COUNT:
        break;
    }
    return "it could not be tried";
}

static void refuse_pair(const struct td_nets *nets, struct td_net *net,
                        const struct td_cluster *c, int from, int to)
{
    const struct td_net_pair *p = pair_of(nets, net, from, to);
    const struct td_net_member *a = &net->members[from], *b = &net->members[to];
    bool back = pair_of(nets, net, to, from)->reach == TD_REACH_OK;
    if (net->e.code != TD_OK)
        return;
    if (p->reach == TD_REACH_STRANGER) {
        td_error_set(&net->e, TD_E_DUPLICATE,
                     "%s is not only %s: another machine answers", b->addr,
                     name_of(c, to));
        td_error_why(&net->e,
                     "a connection from %s to port %d of it reached a program that is "
                     "not %s's",
                     name_of(c, from), p->port, name_of(c, to));
    } else if (p->alive) {
        td_error_set(&net->e, TD_E_FIREWALL,
                     "tandem's ports of %s are closed to %s on %s", name_of(c, to),
                     name_of(c, from), net->cidr);
        td_error_why(&net->e,
                     "port 22 of %s answers, port %d does not, where %s listens: %s",
                     b->addr, p->port, name_of(c, to), reach_text(p->reach));
        td_error_fix(&net->e, "let TCP ports %d to %d through on %s of %s, from %s",
                     TD_PORT_OOB_FIRST, TD_PORT_MPI_FIRST + TD_PORT_MPI_COUNT - 1,
                     b->iface->name, name_of(c, to), net->cidr);
    } else if (back) {
        td_error_set(&net->e, TD_E_ONE_WAY,
                     "%s cannot reach %s on %s, but is reached by it", name_of(c, from),
                     name_of(c, to), net->cidr);
        td_error_why(&net->e, "from %s to %s: %s; the other way round it works",
                     a->addr, b->addr, reach_text(p->reach));
        td_error_fix(&net->e, "look at the firewall of %s and the routes of %s",
                     name_of(c, to), name_of(c, from));
    } else {
        td_error_set(&net->e, TD_E_NETWORK, "%s and %s cannot reach each other on %s",
                     name_of(c, from), name_of(c, to), net->cidr);
        td_error_why(&net->e, "from %s (%s) to %s: %s", a->addr, a->iface->name,
                     b->addr, reach_text(p->reach));
    }
}

static bool connects(const struct td_nets *nets, const struct td_net *net)
{
    for (int i = 0; i < nets->n_hosts; i++)
        for (int j = 0; j < nets->n_hosts; j++)
            if (i != j && pair_of(nets, net, i, j)->reach != TD_REACH_OK)
                return false;
    return true;
}

bool td_nets_any_connects(const struct td_nets *nets)
{
    for (int k = 0; k < nets->n; k++)
        if (connects(nets, &nets->v[k]))
            return true;
    return false;
}

int td_nets_reach(struct td_nets *nets, const struct td_cluster *c)
{
    int left = 0;
    for (int k = 0; k < nets->n; k++) {
        struct td_net *net = &nets->v[k];
        for (int i = 0; i < c->n; i++)
            for (int j = 0; j < c->n; j++)
                if (i != j && pair_of(nets, net, i, j)->reach != TD_REACH_OK)
                    refuse_pair(nets, net, c, i, j);
        left += net->e.code == TD_OK;
    }
    return left;
}

/* ---- fast? -------------------------------------------------------------------------- */

double td_net_carries(const struct td_nets *nets, const struct td_net *net)
{
    double least = 0;
    for (int i = 0; i < nets->n_hosts; i++)
        for (int j = 0; j < nets->n_hosts; j++) {
            double g =
                8 * net->links[(size_t)i * (size_t)nets->n_hosts + (size_t)j].gbytes;
            if (i != j && g > 0 && (least == 0 || g < least))
                least = g;
        }
    return least;
}

double td_net_says(const struct td_nets *nets, const struct td_net *net)
{
    double least = 0;
    for (int i = 0; i < nets->n_hosts; i++) {
        double g = (double)net->members[i].iface->mbit / 1000;
        if (g > 0 && (least == 0 || g < least))
            least = g;
    }
    return least;
}

static double worst_latency(const struct td_nets *nets, const struct td_net *net)
{
    double worst = 0;
    for (int k = 0; k < nets->n_hosts * nets->n_hosts; k++)
        worst = TD_MAX(worst, net->links[k].latency_us);
    return worst;
}

static void refuse_mtu(const struct td_nets *nets, struct td_net *net,
                       const struct td_cluster *c, int from, int to)
{
    const struct td_iface *a = net->members[from].iface, *b = net->members[to].iface;
    int64_t path =
        net->links[(size_t)from * (size_t)nets->n_hosts + (size_t)to].path_mtu;
    if (net->e.code != TD_OK)
        return;
    if (a->mtu != b->mtu) {
        td_error_set(
            &net->e, TD_E_MTU,
            "%s of %s sends packets of %" PRId64 " bytes, %s of %s takes %" PRId64,
            (a->mtu > b->mtu ? a : b)->name, name_of(c, a->mtu > b->mtu ? from : to),
            TD_MAX(a->mtu, b->mtu), (a->mtu > b->mtu ? b : a)->name,
            name_of(c, a->mtu > b->mtu ? to : from), TD_MIN(a->mtu, b->mtu));
        td_error_why(&net->e, "what is larger is lost on the way, without a word");
        td_error_fix(&net->e, "set the same MTU on both: ip link set %s mtu %" PRId64,
                     b->name, TD_MIN(a->mtu, b->mtu));
    } else if (path > 0 && path < a->mtu) {
        td_error_set(&net->e, TD_E_MTU,
                     "packets of %" PRId64 " bytes from %s do not arrive at %s", a->mtu,
                     name_of(c, from), name_of(c, to));
        td_error_why(&net->e,
                     "both interfaces are set to it, but the largest that passed has "
                     "%" PRId64 " bytes: a switch between them allows less",
                     path);
        td_error_fix(&net->e,
                     "raise the MTU of the switch, or lower that of %s to %" PRId64,
                     a->name, path);
    }
}

bool td_net_is_slow(const struct td_nets *nets, const struct td_net *net)
{
    double says = td_net_says(nets, net), carries = td_net_carries(nets, net);
    return says > 0 && carries > 0 && carries < least_share * TD_MIN(says, stream_gbit);
}

static void refuse_slow(const struct td_nets *nets, struct td_net *net)
{
    if (net->e.code != TD_OK || nets->forced || !td_net_is_slow(nets, net))
        return;
    td_error_set(&net->e, TD_E_SLOW_LINK, "%s says %.1f Gbit/s and carries %.2f",
                 net->cidr, td_net_says(nets, net), td_net_carries(nets, net));
    td_error_why(&net->e, "less than a twentieth of what the interfaces report passes");
}

/* Is a better than b? Both are usable. */
static bool better(const struct td_nets *nets, const struct td_net *a,
                   const struct td_net *b)
{
    double ra = td_net_carries(nets, a), rb = td_net_carries(nets, b);
    double la = worst_latency(nets, a), lb = worst_latency(nets, b);
    if (ra > equal_rates * rb || rb > equal_rates * ra)
        return ra > rb;
    if (la * equal_rates < lb || lb * equal_rates < la)
        return la < lb;
    return td_net_says(nets, a) > td_net_says(nets, b);
}

/* How much a cause explains: the later in this list, the more. */
static int telling(enum td_status code)
{
    static const enum td_status order[] = {
        TD_E_NETWORK,  TD_E_TIMEOUT,   TD_E_ONE_WAY, TD_E_DUPLICATE,
        TD_E_FIREWALL, TD_E_SLOW_LINK, TD_E_MTU};
    for (size_t i = 0; i < TD_COUNT(order); i++)
        if (order[i] == code)
            return (int)i;
    return -1;
}

static void judge(struct td_nets *nets, struct td_net *net, const struct td_cluster *c)
{
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->n; j++) {
            const struct td_error *f =
                &net->failed[(size_t)i * (size_t)c->n + (size_t)j];
            if (i == j)
                continue;
            refuse_mtu(nets, net, c, i, j);
            if (f->code != TD_OK && net->e.code == TD_OK)
                net->e = *f;
        }
    refuse_slow(nets, net);
}

int td_nets_choose(struct td_nets *nets, const struct td_cluster *c,
                   struct td_error *err)
{
    int best = -1;
    const struct td_error *cause = NULL;
    for (int k = 0; k < nets->n; k++) {
        struct td_net *net = &nets->v[k];
        if (net->e.code == TD_OK)
            judge(nets, net, c);
        if (net->e.code == TD_OK && (best < 0 || better(nets, net, &nets->v[best])))
            best = k;
        if (net->e.code != TD_OK &&
            (!cause || telling(net->e.code) > telling(cause->code)))
            cause = &net->e;
    }
    if (best < 0 && cause && err && err->code == TD_OK)
        *err = *cause;
    return best;
}

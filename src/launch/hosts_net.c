/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network between hosts that are being joined: agents listen, try to reach each
 * other, and measure; fabric/nets.h decides. See hosts.h.
 */
#include "launch/hosts_int.h"

#include "base/mem.h"
#include "fabric/nets.h"

#include <string.h>

static const double listen_seconds = 2, try_seconds = 3, measure_seconds = 0.16,
                    patience = 4; /* for an answer, beyond what the work itself takes */

enum {
    MOST_MEASURED = 4, /* networks; more are not */
    LOOKS = 3          /* at one that measures badly */
};

struct places {
    char token[TD_TOKEN_BYTES + 1];
    struct td_ports ports;
};

static void put_target(struct td_buf *b, const struct td_net *net,
                       const struct places *places, int from, int to)
{
    td_buf_addf(b,
                "\"from\":\"%s\",\"to\":\"%s\",\"data\":%d,\"oob\":%d,"
                "\"token\":\"%s\"",
                net->members[from].addr, net->members[to].addr, places[to].ports.data,
                places[to].ports.oob, places[to].token);
}

/* An agent that failed meanwhile, or answered with an error, becomes a line. */
static bool failed(struct td_join *j)
{
    for (int i = 0; i < j->c->n; i++) {
        const struct td_error *e =
            j->errors[i].code != TD_OK ? &j->errors[i] : &j->agents[i].e;
        if (e->code == TD_OK)
            continue;
        struct td_error *to = td_cluster_say(j->c, TD_FAIL, i, "network");
        td_error_set(to, e->code, "%s: %.400s", j->c->hosts[i].name, e->what);
        td_error_why(to, "%s", e->why);
        td_error_fix(to, "%s", e->fix);
        return true;
    }
    return false;
}

static bool listen_everywhere(struct td_join *j, struct places *places)
{
    for (int i = 0; i < j->c->n; i++) {
        if (!td_token_make(places[i].token)) {
            td_error_set(&j->errors[i], TD_E_IO, "the kernel gives no random bytes");
            return false;
        }
        td_buf_addf(&j->requests[i], "{\"do\":\"listen\",\"token\":\"%s\"}",
                    places[i].token);
    }
    bool all = td_join_ask(j, listen_seconds);
    for (int i = 0; i < j->c->n && all; i++) {
        const char *name = j->c->hosts[i].name;
        int64_t data = 0, oob = 0;
        (void)td_json_int(j->answers[i], "data", name, 1, 65535, 0, &data,
                          &j->errors[i]);
        (void)td_json_int(j->answers[i], "oob", name, 1, 65535, 0, &oob, &j->errors[i]);
        places[i].ports = (struct td_ports){(int)data, (int)oob};
        if (!data || !oob)
            td_error_set(&j->errors[i], TD_E_PEER, "%s named no port", name);
        all = j->errors[i].code == TD_OK;
    }
    return all;
}

/* ---- who reaches whom --------------------------------------------------------------- */

static void ask_reach(struct td_join *j, const struct td_nets *nets,
                      const struct places *places, int from, bool hurry)
{
    struct td_buf *b = &j->requests[from];
    const char *comma = "";
    td_buf_addf(b, "{\"do\":\"connect\",\"seconds\":%.3f,\"hurry\":%s,\"targets\":[",
                try_seconds, hurry ? "true" : "false");
    for (int k = 0; k < nets->n; k++)
        for (int to = 0; to < j->c->n; to++) {
            if (to == from)
                continue;
            td_buf_addf(b, "%s{", comma);
            put_target(b, &nets->v[k], places, from, to);
            td_buf_addc(b, '}');
            comma = ",";
        }
    td_buf_adds(b, "]}");
}

static void read_reach(struct td_join *j, struct td_nets *nets, int from)
{
    const json_t *list = json_object_get(j->answers[from], "reach");
    size_t at = 0;
    for (int k = 0; k < nets->n; k++)
        for (int to = 0; to < j->c->n; to++) {
            if (to == from)
                continue;
            const json_t *o = json_array_get(list, at++);
            const char *name = json_string_value(json_object_get(o, "reach"));
            struct td_net_pair *p = &nets->v[k].pairs[from * j->c->n + to];
            p->reach = TD_REACH_FAILED;
            if (name)
                (void)td_reach_by_name(name, &p->reach);
            p->alive = json_is_true(json_object_get(o, "alive"));
            p->port = (int)json_integer_value(json_object_get(o, "port"));
        }
}

static bool try_once(struct td_join *j, struct td_nets *nets,
                     const struct places *places, bool hurry)
{
    for (int i = 0; i < j->c->n; i++)
        ask_reach(j, nets, places, i, hurry);
    if (!td_join_ask(j, try_seconds + patience))
        return false;
    for (int i = 0; i < j->c->n; i++)
        read_reach(j, nets, i);
    return true;
}

/* With patience only when nothing was found without: a lost packet is sent again after a
 * second. */
static bool try_all(struct td_join *j, struct td_nets *nets,
                    const struct places *places)
{
    return try_once(j, nets, places, true) &&
           (td_nets_any_connects(nets) || try_once(j, nets, places, false));
}

/* ---- how fast ----------------------------------------------------------------------- */

/* The partner of a host in a round, as in a tournament where all meet once; -1: none. */
static int partner(int n, int round, int host)
{
    int last = TD_MAX(n + n % 2 - 1, 1); /* an empty seat when n is odd */
    int other;
    if (host == last)
        other = round;
    else if (host == round)
        other = last;
    else
        other = (2 * round - host + 2 * last) % last;
    return other < n ? other : -1;
}

static bool measure_round(struct td_join *j, struct td_net *net,
                          const struct places *places, int round, bool upward)
{
    int n = j->c->n;
    for (int i = 0; i < n; i++) {
        int k = partner(n, round, i);
        if (k < 0 || (upward ? i > k : i < k))
            continue;
        td_buf_addf(&j->requests[i], "{\"do\":\"measure\",\"seconds\":%.3f,",
                    measure_seconds);
        put_target(&j->requests[i], net, places, i, k);
        td_buf_addc(&j->requests[i], '}');
    }
    bool all = td_join_ask(j, measure_seconds + 2 * patience);
    for (int i = 0; i < n && all; i++) {
        int k = partner(n, round, i);
        size_t at = (size_t)i * (size_t)n + (size_t)TD_MAX(k, 0);
        if (!j->answers[i])
            continue;
        struct td_link *best = &net->links[at], l = {0};
        td_error_init(&net->failed[at]);
        (void)td_agent_get_link(j->answers[i], &l, &net->failed[at]);
        if (l.gbytes >= best->gbytes)
            *best = l;
        if (j->errors[i].code != TD_OK) { /* the measurement's, not the agent's */
            net->failed[at] = j->errors[i];
            td_error_init(&j->errors[i]);
        }
    }
    return all;
}

static bool broke_off(const struct td_join *j, const struct td_net *net)
{
    for (int i = 0; i < j->c->n * j->c->n; i++)
        if (net->failed[i].code != TD_OK)
            return true;
    return false;
}

/* What would refuse the network is looked at again: hosts may have been busy. */
static bool measure_net(struct td_join *j, const struct td_nets *nets,
                        struct td_net *net, const struct places *places)
{
    int rounds = j->c->n + j->c->n % 2 - 1;
    for (int look = 0; look < LOOKS; look++) {
        for (int r = 0; r < rounds; r++)
            if (!measure_round(j, net, places, r, true) ||
                !measure_round(j, net, places, r, false))
                return false;
        if (!td_net_is_slow(nets, net) && !broke_off(j, net))
            break;
    }
    return true;
}

static bool measure_all(struct td_join *j, struct td_nets *nets,
                        const struct places *places)
{
    int measured = 0;
    for (int k = 0; k < nets->n; k++) {
        if (nets->v[k].e.code != TD_OK || measured++ == MOST_MEASURED)
            continue;
        if (!measure_net(j, nets, &nets->v[k], places))
            return false;
    }
    return true;
}

/* ---- what comes out ----------------------------------------------------------------- */

static void adopt(struct td_cluster *c, const struct td_nets *nets, int best)
{
    const struct td_net *net = &nets->v[best];
    td_text_copy(c->cidr, sizeof(c->cidr), net->cidr);
    memcpy(c->links, net->links, sizeof(*c->links) * (size_t)c->n * (size_t)c->n);
    for (int i = 0; i < c->n; i++) {
        struct td_cluster_host *h = &c->hosts[i];
        const struct td_net_member *m = &net->members[i];
        td_text_copy(h->address, sizeof(h->address), m->addr);
        td_text_copy(h->iface, sizeof(h->iface), m->iface->name);
        h->mtu = m->iface->mtu;
        const struct td_rdma *r =
            td_facts_rdma(h->facts, h->iface, h->address, &h->gid);
        h->rdma_port = r ? r->port : -1;
        if (r)
            td_text_copy(h->rdma, sizeof(h->rdma), r->device);
    }
    double says = td_net_says(nets, net), carries = td_net_carries(nets, net);
    td_cluster_pass(c, -1, "network",
                    "%s works in both directions between all hosts and carries %.1f "
                    "Gbit/s%s",
                    net->cidr, carries,
                    nets->n > 1 ? ", the best of those they share" : "");
    if (says > 0 && carries * 4 < TD_MIN(says, 25)) {
        struct td_error *e = td_cluster_say(c, TD_WARN, -1, "network");
        td_error_set(e, TD_E_SLOW_LINK, "%s says %.1f Gbit/s and carries %.2f",
                     net->cidr, says, carries);
    }
}

/* Networks that were refused while another one works: worth knowing, other programs may
 * pick them. */
static void mention_others(struct td_cluster *c, const struct td_nets *nets)
{
    for (int k = 0; k < nets->n; k++) {
        if (nets->v[k].e.code == TD_OK)
            continue;
        struct td_error *e = td_cluster_say(c, TD_WARN, -1, "network");
        td_error_set(e, nets->v[k].e.code, "%s is not used: %.400s", nets->v[k].cidr,
                     nets->v[k].e.what);
        td_error_why(e, "%s", nets->v[k].e.why);
        td_error_fix(e, "nothing to do for tandem, which uses %s for everything",
                     c->cidr);
    }
}

/* Tries and measures networks; false when an agent failed meanwhile. */
static bool examine_nets(struct td_join *j, struct td_nets *nets,
                         const struct places *places, int *left)
{
    *left = 0;
    if (nets->n == 0)
        return true;
    if (!try_all(j, nets, places))
        return false;
    *left = td_nets_reach(nets, j->c);
    return *left == 0 || measure_all(j, nets, places);
}

/* Where nothing that the hosts share works: addresses with routes between them take the
 * place of `nets`, if there are any that work. False as above. */
static bool try_routes(struct td_join *j, struct td_nets *nets,
                       const struct places *places)
{
    struct td_nets routed;
    struct td_error e;
    int left = 0;
    td_error_init(&e);
    bool all = true;
    if (td_nets_find_routed(j->c, &routed, &e) == TD_OK)
        all = examine_nets(j, &routed, places, &left);
    if (left > 0 && td_nets_choose(&routed, j->c, &e) >= 0) {
        struct td_nets old = *nets;
        *nets = routed;
        routed = old;
    }
    td_nets_release(&routed);
    return all;
}

void td_join_network(struct td_join *j)
{
    struct td_nets nets;
    struct td_error e;
    struct places *places = td_calloc((size_t)j->c->n, sizeof(*places));
    int best = -1, left = 0;
    td_error_init(&e);
    enum td_status s = td_nets_find(j->c, j->fabric, &nets, &e);
    bool routes = !j->fabric && (s == TD_OK || s == TD_E_NETWORK);
    if (!places)
        s = td_error_set(&e, TD_E_NOMEM, "no memory for the networks of the hosts");
    if (!places || (s != TD_OK && !routes))
        goto out;
    if (!listen_everywhere(j, places) || !examine_nets(j, &nets, places, &left))
        goto out;
    if (left == 0 && routes && !try_routes(j, &nets, places))
        goto out;
    best = nets.n ? td_nets_choose(&nets, j->c, &e) : -1;
    if (best >= 0)
        adopt(j->c, &nets, best);
    if (best >= 0)
        mention_others(j->c, &nets);
out:
    if (e.code != TD_OK && best < 0) {
        struct td_error *line = td_cluster_say(j->c, TD_FAIL, -1, "network");
        if (line)
            *line = e;
    } else if (best < 0) {
        (void)failed(j);
    }
    td_nets_release(&nets);
    td_free(places);
}

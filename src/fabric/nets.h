/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of the one network: which networks the hosts share, which of them work in
 * both directions, and which of those is the fastest. Pure decisions on facts and
 * measurements that others collected:
 *
 *     td_nets_find()      networks that every host has an address in
 *     (connect tests)     fill net->pairs
 *     td_nets_reach()     refuses those that do not work, each with its cause
 *     (measurements)      fill net->links and net->failed
 *     td_nets_choose()    refuses those that are broken or slow, takes the best
 *
 * A network is four octets and a mask that host 0 is in. Private bridges of container
 * engines, which exist on every host separately, are none. Where no network that hosts
 * share works, td_nets_find_routed() names addresses with routes between them, which then
 * go through the same steps: their "network" is the smallest CIDR that holds them.
 */
#ifndef TD_FABRIC_NETS_H
#define TD_FABRIC_NETS_H

#include "fabric/probe.h"

enum { TD_MAX_NETS = 16 };

/* A host's place in a network. */
struct td_net_member {
    char addr[TD_FACT_ADDR];
    const struct td_iface *iface; /* into its facts */
};

/* Whether one host reaches another over it. */
struct td_net_pair {
    enum td_reach reach;
    bool alive; /* see td_target, as for the next */
    int port;
};

struct td_net {
    char cidr[TD_FACT_ADDR];
    struct td_net_member *members; /* n */
    struct td_net_pair *pairs;     /* n * n, from * n + to */
    struct td_link *links;         /* n * n */
    struct td_error *failed;       /* n * n; of measurements that broke off */
    struct td_error e;             /* why it is not used; code TD_OK while it may be */
};

struct td_nets {
    int n_hosts, n;
    bool forced; /* --fabric chose: what is slow is taken as it is */
    struct td_net v[TD_MAX_NETS];
};

/* Finds the networks that all n hosts are in; `fabric` (CIDR or an interface of host 0,
 * may be NULL) leaves only that one. Errors: TD_E_NETWORK says what each host has;
 * TD_E_DUPLICATE when two hosts have one address; TD_E_NOMEM. Release in any case. */
enum td_status td_nets_find(const struct td_cluster *c, const char *fabric,
                            struct td_nets *out, struct td_error *err);
void td_nets_release(struct td_nets *nets);

/* Combinations of an address of each host, not all in one network, such that every host
 * has routes to the others' out of the interface of its own, and the smallest CIDR around
 * them holds no other address of theirs: Open MPI is given that. None is no error. */
enum td_status td_nets_find_routed(const struct td_cluster *c, struct td_nets *out,
                                   struct td_error *err);

/* Does one of them connect all hosts? */
bool td_nets_any_connects(const struct td_nets *nets);

/* Refuses networks by their pairs. Returns how many are left. */
int td_nets_reach(struct td_nets *nets, const struct td_cluster *c);

/* Refuses networks by their measurements, and returns the index of the best that is
 * left; -1 with the most telling cause when there is none. */
int td_nets_choose(struct td_nets *nets, const struct td_cluster *c,
                   struct td_error *err);

/* What the slowest direction carries, and what the slowest interface on it says, in
 * Gbit/s; 0 when not known. */
double td_net_carries(const struct td_nets *nets, const struct td_net *net);
double td_net_says(const struct td_nets *nets, const struct td_net *net);

/* Does it carry so little of what it says that it would be refused? */
bool td_net_is_slow(const struct td_nets *nets, const struct td_net *net);

/* A private bridge of a container engine or of virtual machines. */
bool td_iface_is_private(const struct td_iface *i);

#endif

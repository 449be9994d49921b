/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several hosts and the one network between them: the result of `tandem check`, and
 * what plan and launch begin with. `launch/hosts.h` fills it.
 *
 * hosts[0] is this machine and rank 0's. With one host there is no network: addresses
 * are empty, `cidr` too.
 */
#ifndef TD_FABRIC_CLUSTER_H
#define TD_FABRIC_CLUSTER_H

#include "fabric/facts.h"

/* Ports that tandem uses between hosts. A firewall has to leave them open on the chosen
 * network; the check connects to one of them. */
enum {
    TD_PORT_OOB_FIRST = 46000, /* Open MPI's out-of-band connections */
    TD_PORT_OOB_COUNT = 32,
    TD_PORT_MPI_FIRST = 46100, /* its data */
    TD_PORT_MPI_COUNT = 100
};

struct td_cluster_host {
    char name[TD_FACT_TEXT];    /* as given to --hosts: ssh takes it */
    char label[TD_FACT_TEXT];   /* for people: what the host calls itself, where an
                                   address was given and no other host has this name */
    char address[TD_FACT_ADDR]; /* on the chosen network: the one to hand to others */
    char iface[TD_FACT_IFNAME]; /* that has this address */
    int64_t mtu;
    char rdma[TD_FACT_IFNAME]; /* RDMA device on that interface, "" when none */
    int64_t rdma_port, gid;    /* its port and RoCE v2 address index; -1 when none */
    double clock;              /* seconds its clock is ahead of this machine's */
    struct td_facts *facts;    /* owned; NULL: the host could not be asked */
    /* Bytes a second, where they were asked for; 0: could not be measured. */
    double memory_rate;          /* its processors reading together */
    double disk_rate;            /* the model's files */
    char disk_how[TD_FACT_NAME]; /* how, or why not */
};

/* What was measured from one host to another over the chosen network. */
struct td_link {
    double latency_us;  /* half a round trip of 64 bytes */
    double exchange_us; /* half a round trip of 6 KiB, one all-reduce of a small step */
    double gbytes;      /* GB/s (1e9) one way */
    int64_t path_mtu;   /* largest packet that arrived; 0: not measured */
};

enum td_verdict { TD_PASS, TD_WARN, TD_FAIL };

/* A line of the report. A pass has only topic and what. */
struct td_check_line {
    enum td_verdict verdict;
    int host;          /* index, -1: all of them */
    const char *topic; /* static: "ssh", "network", "memory", ... */
    struct td_error e; /* code, what, why, fix */
};

struct td_cluster {
    int n;
    struct td_cluster_host *hosts; /* n */
    char cidr[TD_FACT_ADDR];       /* the chosen network; around several with routes
                                      between them */
    struct td_link *links;         /* n * n, from * n + to; the diagonal is 0 */
    struct td_check_line *lines;   /* in the order in which they were found */
    int n_lines;
    bool lost; /* a line could not be kept: memory is short */
};

/* The link from one host to another. */
static inline const struct td_link *td_cluster_link(const struct td_cluster *c,
                                                    int from, int to)
{
    return &c->links[(size_t)from * (size_t)c->n + (size_t)to];
}

/* Adds a line to the report and returns its error for td_error_set(); NULL, which
 * td_error_set() takes, when memory is short: the cluster's `lost` then says so. */
struct td_error *td_cluster_say(struct td_cluster *c, enum td_verdict verdict, int host,
                                const char *topic);

/* A pass: topic and text only. */
void td_cluster_pass(struct td_cluster *c, int host, const char *topic,
                     const char *what, ...) TD_PRINTF(4, 5);

/* The first failure of the report, NULL when there is none. */
const struct td_check_line *td_cluster_failure(const struct td_cluster *c);

/* Frees what the cluster owns; it is empty afterwards. */
void td_cluster_release(struct td_cluster *c);

/* The settings that put every layer of one host onto the chosen network. */
struct td_pin {
    char name[40]; /* of an environment variable */
    char value[128];
};

enum { TD_PIN_MAX = 16 };

/* Writes the variables for one host (Open MPI's as OMPI_MCA_*, UCX, NCCL, Gloo) and
 * returns their number; 0 when the cluster has one host. Values differ between hosts
 * when their interfaces have different names: set them in each rank's own environment. */
int td_cluster_pins(const struct td_cluster *c, int host,
                    struct td_pin pins[TD_PIN_MAX]);

#endif

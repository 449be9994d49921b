/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining hosts: one ssh command to each starts an agent (the same program, verb
 * `agent`), asks what that host is, measures the links between all of them, and chooses
 * the one network that works.
 *
 *     struct td_join_options o = {.fabric = NULL, .model = "models/lexicon"};
 *     if (td_cluster_join("192.168.200.12,192.168.200.13", &o, &cluster, err) == TD_OK)
 *         ...cluster.hosts[1].address...
 *     td_cluster_release(&cluster);
 *
 * Everything runs in parallel and has a deadline; the whole takes less than 10 s. The
 * agents end before these functions return.
 */
#ifndef TD_LAUNCH_HOSTS_H
#define TD_LAUNCH_HOSTS_H

#include "base/status.h"
#include "fabric/cluster.h"

struct td_join_options {
    const char *fabric; /* CIDR or interface to use; NULL: chosen by measurement */
    const char *ssh;    /* the command, "ssh -p 2222 -F FILE"; NULL: "ssh" */
    const char *model;  /* folder whose files are compared over the hosts; NULL: none */
    const char *build, *version; /* of this program: td_build, td_version */
    /* Not 0: a look at the hosts that ends after so many seconds. No network is tried or
     * chosen, nothing is copied; a host that does not answer in time has a line in the
     * report and no facts. */
    double glance;
    const char *rates_of; /* also measure how fast hosts read their memory and the files
                             of this model folder; NULL: do not */
};

/* How many hosts a list names, as td_cluster_examine() has it. Nothing is started. Errors:
 * those of td_hostlist_expand(), TD_E_HOSTS (one is given twice), TD_E_USAGE. */
enum td_status td_hosts_count(const char *hosts, int *n, struct td_error *err);

/* Is the only host of a list this machine? Nothing is started. TD_E_HOSTS: it is not; else
 * the errors of td_hosts_count(). */
enum td_status td_hosts_alone(const char *hosts, struct td_error *err);

/* Looks at the hosts of a list "a,b,c" (names or addresses, or as hostlist.h has it; NULL
 * or "": this machine alone), judges what was found, and keeps going where that is
 * possible: TD_OK means that out->lines tells the whole story, which may well contain
 * failures. Whichever entry is this machine becomes hosts[0]. Errors only when nothing can
 * be looked at: TD_E_HOSTS (no entry is this machine, or one is given twice), TD_E_USAGE,
 * TD_E_NOMEM, TD_E_IO. */
enum td_status td_cluster_examine(const char *hosts, const struct td_join_options *o,
                                  struct td_cluster *out, struct td_error *err);

/* The same, and the first failure of the report becomes the error (with its host): on
 * TD_OK the hosts can be used together. Warnings stay in out->lines. */
enum td_status td_cluster_join(const char *hosts, const struct td_join_options *o,
                               struct td_cluster *out, struct td_error *err);

#endif

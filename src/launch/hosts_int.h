/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files that join hosts share. See hosts.h.
 */
#ifndef TD_LAUNCH_HOSTS_INT_H
#define TD_LAUNCH_HOSTS_INT_H

#include "launch/agent.h"
#include "launch/agents.h"
#include "launch/hosts.h"

/* Hosts that are being joined. All arrays have one entry for each. */
struct td_join {
    struct td_cluster *c;
    struct td_agent *agents;
    struct td_buf *requests; /* to be written before td_join_ask(), cleared by it */
    json_t **answers;        /* of the last question; NULL: none */
    struct td_error *errors; /* the first error each agent answered with */
    const char *fabric;      /* --fabric, NULL: not given */
    bool glance;             /* a short look: see hosts.h */
    double end;              /* of a glance's present part: no question waits longer */
};

/* Asks those that have a request. False when an agent is not up any more. */
bool td_join_ask(struct td_join *j, double seconds);

/* Finds, tries, measures and chooses the network; all hosts have facts. What comes out,
 * and what went wrong, stands in the cluster and its report. */
void td_join_network(struct td_join *j);

#endif

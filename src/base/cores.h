/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the host's cores this process's threads run on, and where their memory lies.
 *
 * A process may use the processors in its affinity mask (which batch systems and
 * containers set), for as much time as its control groups give. The cores in the mask
 * are shared out evenly among the ranks of this host, neighbours together, so that no two
 * ranks have a core in common unless there are more ranks than cores.
 *
 * When there are as many threads as cores in the share, each gets a core of its own with
 * all its hardware threads; when there are as many as hardware threads or fewer than
 * those, but more than cores, each gets one of those; otherwise the system may move them
 * within their NUMA node: with fewer threads than cores it knows better than we which
 * cores others use.
 */
#ifndef TD_BASE_CORES_H
#define TD_BASE_CORES_H

#include "base/status.h"

#include <stdbool.h>

struct td_cores;

struct td_cores_params {
    int threads;     /* 0: one for each core of the share, within the time allowed */
    int rank, ranks; /* of this host's; 0 of 0 is the only one */

    /* For tests: a topology in hwloc's synthetic notation in place of this host's, and
     * where proc and sys are (NULL: this host's). */
    const char *synthetic, *root;
};

/* Looks at the host. Never fails for want of information: a host that tells nothing is
 * as many cores as td_cpu_cores() says, on one node. TD_E_NOMEM; TD_E_USAGE for a
 * synthetic topology that cannot be read. */
enum td_status td_cores_new(const struct td_cores_params *params, struct td_cores **out,
                            struct td_error *err);
void td_cores_free(struct td_cores *c);

int td_cores_threads(const struct td_cores *c);

/* Whether more threads of this host's ranks share these cores than there are. */
bool td_cores_crowded(const struct td_cores *c);

/* NUMA nodes of the share, and that of a thread, counted from 0 within the share. */
int td_cores_nodes(const struct td_cores *c);
int td_cores_node_of(const struct td_cores *c, int thread);

/* Processors that a thread may run on, as a list such as "3,67"; cut to `size`. */
void td_cores_list(const struct td_cores *c, int thread, char *out, size_t size);

/* Binds the calling thread to the cores of thread `thread`, or lets it run where the
 * process may. What the system refuses is left as it is. */
void td_cores_bind(const struct td_cores *c, int thread);
void td_cores_unbind(const struct td_cores *c);

/* Where the calling thread's new pages lie from now on: on the node of thread `thread`,
 * or with -1 spread over all nodes of the share. Nothing happens on a single node. */
void td_cores_place(const struct td_cores *c, int thread);

#endif

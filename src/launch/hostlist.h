/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the list of hosts comes from:
 *
 *     a,b,c       as it stands
 *     @FILE       a host a line, as mpirun's host files have it: what follows the name and
 *                 behind a # is ignored
 *     slurm       the nodes of the Slurm allocation that this process runs in
 */
#ifndef TD_LAUNCH_HOSTLIST_H
#define TD_LAUNCH_HOSTLIST_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>

/* The nodes are Slurm's. */
bool td_hostlist_slurm(const char *hosts);

/* Appends the hosts, divided by commas. Errors: TD_E_HOSTS (no allocation, an empty file),
 * TD_E_IO, TD_E_USAGE (a node list that cannot be read), TD_E_LIMIT. */
enum td_status td_hostlist_expand(const char *hosts, struct td_buf *out,
                                  struct td_error *err);

/* Appends the names of a node list as Slurm writes it: "a,n[01-03,7]-ib". */
enum td_status td_hostlist_slurm_nodes(const char *list, struct td_buf *out,
                                       struct td_error *err);

#endif

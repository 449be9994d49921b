/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often the kernel has killed a process for lack of memory. The kernel tells nobody
 * why a process was killed; but these counters rise with each such kill.
 */
#ifndef TD_BASE_OOM_H
#define TD_BASE_OOM_H

#include <stdint.h>

/* -1: not readable. */
struct td_oom_counts {
    int64_t host;  /* /proc/vmstat */
    int64_t group; /* of this process's control group, version 1 or 2 */
};

/* Counts below `root` ("" for this host; tests give recorded trees). */
void td_oom_counts_read(const char *root, struct td_oom_counts *out);

/* All that is known of: the host counts what happens in groups as well, where it can be
 * read. */
int64_t td_oom_counts_all(const struct td_oom_counts *c);

#endif

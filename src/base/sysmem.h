/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory this host can really give to this process: what the kernel calls
 * available, the tightest control group (version 1 or 2) along the process's path, and
 * the process's own limits. Containers and batch systems set the latter two, and they
 * are what kills a process that looked at MemTotal only.
 */
#ifndef TD_BASE_SYSMEM_H
#define TD_BASE_SYSMEM_H

#include "base/status.h"

#include <stdint.h>

enum { TD_SYSMEM_NAME_MAX = 256 };

/* Bytes. A limit that is not set is INT64_MAX. */
struct td_sysmem {
    int64_t total;     /* MemTotal */
    int64_t available; /* MemAvailable: free and reclaimable, swap not counted */

    /* The control group with the least room. Use is without page cache. */
    int64_t group_limit, group_used;
    char group[TD_SYSMEM_NAME_MAX]; /* its path, "" when none has a limit */

    /* RLIMIT_AS and RLIMIT_DATA, and what the process has used of them. */
    int64_t space_limit, space_used, data_limit, data_used;

    /* Of this process: what is in memory now, and the most that ever was. */
    int64_t resident, resident_peak;
};

/* Reads proc and sys below `root` ("" for this host; tests give recorded trees). Only
 * /proc/meminfo must be there: TD_E_IO otherwise. */
enum td_status td_sysmem_read(const char *root, struct td_sysmem *out,
                              struct td_error *err);

/* Processors' worth of time that the tightest control group gives this process, such as
 * 2.5; INFINITY when none has a limit. */
double td_sysmem_processors(const char *root);

/* The bytes that can still be allocated, never negative. `why` (size bytes, may be NULL
 * with size 0) receives what bounds them, as part of a sentence: "the control group /x
 * allows 64.0 GiB, 12.1 GiB of them used". */
int64_t td_sysmem_available(const struct td_sysmem *m, char *why, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host knows of a process that was killed there: whether it was the kernel for
 * lack of memory, how much there is, who holds the most of it.
 */
#ifndef TD_LAUNCH_EVIDENCE_H
#define TD_LAUNCH_EVIDENCE_H

#include "fabric/facts.h"
#include "launch/watch.h"

struct td_evidence_params {
    const char *address;               /* of the host; NULL: this one */
    const char *ssh, *build, *version; /* as in struct td_join_options */
};

/* Reads what the host is now; seconds at most. */
enum td_status td_evidence_read(const struct td_evidence_params *p,
                                struct td_facts *out, struct td_error *err);

/* If kills for lack of memory were counted there since the rank was heard of last,
 * replaces err (which says that it was killed) and returns true. */
bool td_evidence_judge(int rank, const struct td_watch_rank *r,
                       const struct td_facts *facts, struct td_error *err);

#endif

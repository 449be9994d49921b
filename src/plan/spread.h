/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plans of all ranks of a model, spread over hosts: who holds what, and whether each
 * host has room for its ranks. `tandem plan` prints it; a start over several hosts is
 * refused by it before a rank runs.
 *
 * Ranks take equal parts of the hosts, in order. Of hosts that were looked at, rooms come
 * from their facts; nothing is opened there.
 */
#ifndef TD_PLAN_SPREAD_H
#define TD_PLAN_SPREAD_H

#include "fabric/cluster.h"
#include "model/names.h"
#include "plan/plan.h"

struct td_spread_params {
    const struct td_config *config;
    const struct td_plan_asked *asked;
    /* NULL, or n is 0: this host alone. A host without facts is taken to be like this. */
    const struct td_cluster *cluster;
    int ranks;
    int gpu;            /* the first of each host's GPUs that ranks take */
    struct td_dev *dev; /* as ranks will open it; sizes are its own */
    int64_t program; /* bytes of a rank's process before it plans; 0: like this one */
    int64_t front;   /* bytes that others will take on the first host beside ranks */
    bool ends;       /* this process ends before ranks start: its memory is theirs */
};

struct td_spread_rank {
    int host; /* index in the cluster; 0 without one */
    struct td_slice slice;
    struct td_model *model; /* opened for its sizes; ranks of equal shape share it */
    bool owner;
    struct td_plan_room room;
    struct td_plan plan;
};

struct td_spread {
    int hosts, n;
    struct td_spread_rank *ranks; /* n */
    int64_t program;              /* bytes of this process with one model opened */
    bool beyond; /* --memory is more than this host can give: planned for another */
};

/* Do ranks divide over the hosts? TD_E_USAGE, with what would. */
enum td_status td_spread_divide(int ranks, int hosts, struct td_error *err);

/* Plans every rank; all have the context and the caches of the one with the least room.
 * TD_E_MEMORY_PLAN names the host with the least room, in err->host and in the text.
 * Errors else: those of td_split_check(), td_spread_divide(), td_model_size() and
 * td_plan_make(). Release it in any case.
 *
 * In two steps, of which the first needs no cluster yet: sizes, then rooms and plans. */
enum td_status td_spread_size(const struct td_spread_params *params,
                              struct td_spread *out, struct td_error *err);
enum td_status td_spread_plan(const struct td_spread_params *params,
                              struct td_spread *out, struct td_error *err);
enum td_status td_spread_make(const struct td_spread_params *params,
                              struct td_spread *out, struct td_error *err);
void td_spread_release(struct td_spread *s);

/* Ranks on GPUs of hosts that were looked at, from number `gpu` on: do their weights alone
 * fit? What else a GPU takes is for the rank to say, which has it open, and whether there
 * is one. `memory` is the user's limit, 0: none.
 * TD_E_MEMORY_PLAN as above. (Tested with recorded facts; not run on hardware.) */
enum td_status td_spread_weigh(const struct td_config *config,
                               const struct td_cluster *cluster, int ranks, int gpu,
                               int64_t memory, struct td_error *err);

/* One of the hosts has no GPU: what may run on any device then runs on processors. */
bool td_spread_lacks_gpus(const struct td_cluster *c);

/* Room on a GPU of a host that was looked at; `share` ranks are on it, `mem` is what its
 * host has. (Written after the shelf's own rule; not run on hardware.) */
void td_plan_room_gpu(const struct td_gpu_facts *gpu, const struct td_sysmem *mem,
                      int64_t program, int64_t asked_memory, int share,
                      struct td_plan_room *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of several. See world.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "cmd/world.h"

#include "base/log.h"
#include "cmd/options.h"
#include "engine/ranks.h"
#include "engine/world.h"

#include <unistd.h>

/* The time that processes have to find each other. */
#define JOIN_SECONDS 30.0

static struct td_world *world;
static bool several; /* or would be, had it not failed */

struct td_world *td_cmd_world(void)
{
    return world;
}

enum td_status td_cmd_join(const struct td_conf *conf, const struct td_cmd *cmd,
                           struct td_error *err)
{
    unsigned verbs = TD_VERB_RUN | TD_VERB_BENCH | TD_VERB_WORKER;
    int ranks = 1;
    bool worker = cmd->verb == TD_VERB_WORKER;
    struct td_comm *comm;
    if (cmd->verb & verbs && td_conf_is_set(conf, TD_O_WORLD))
        ranks = (int)td_conf_int(conf, TD_O_WORLD);
    if (worker)
        td_log_set_fd(STDOUT_FILENO);
    several = ranks > 1;
    if (!several)
        return TD_OK;
    td_phase_set(TD_PHASE_LAUNCH);
    enum td_status s = td_comm_mpi(ranks, JOIN_SECONDS, &comm, err);
    if (s != TD_OK)
        return s;
    td_log_set_rank(comm->rank);
    struct td_world_params p = {.comm = comm,
                                .build = td_build,
                                .beat_fd = worker ? STDOUT_FILENO : -1,
                                .rank_timeout = td_conf_real(conf, TD_O_RANK_TIMEOUT),
                                .load_timeout = td_conf_real(conf, TD_O_LOAD_TIMEOUT)};
    return td_world_open(&p, &world, err);
}

int td_cmd_do(const struct td_cmd *cmd, struct td_conf *conf, struct td_error *err)
{
    if (!world || td_world_rank(world) == 0)
        return cmd->run(conf, err);
    struct td_engine_params own =
        td_options_engine(conf, conf->nargs ? conf->args[0] : "");
    return td_world_follow(world, &own, err) == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

bool td_cmd_reports(const struct td_error *err)
{
    int rank = world ? td_world_rank(world) : 0;
    return rank == 0 || err->rank < 0;
}

static int exit_code(int code, const struct td_error *err)
{
    if (code == TD_EXIT_OK)
        return code;
    if (code == TD_EXIT_USAGE)
        return TD_RANK_EXIT_USAGE;
    /* what all ranks know of is a failure like one's own */
    bool lost = err->code == TD_E_PEER || err->code == TD_E_TIMEOUT;
    return lost ? TD_RANK_EXIT_PEER : TD_RANK_EXIT_FAILED;
}

int td_cmd_leave(int code, const struct td_error *err)
{
    if (!several)
        return code;
    code = exit_code(code, err);
    td_world_close(world, code ? code : TD_RANK_EXIT_FAILED);
    world = NULL;
    return code;
}

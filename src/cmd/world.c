/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of several. See world.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "cmd/world.h"

#include "base/log.h"
#include "cmd/options.h"
#include "cmd/term.h"
#include "engine/ranks.h"
#include "engine/world.h"
#include "launch/hand.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The time that processes have to find each other. */
#define JOIN_SECONDS 30.0

static struct td_world *world;
static bool several; /* or would be, had it not failed */
static bool told;    /* whoever started the ranks is told of events and prints them */
static int launcher; /* its socket, open to the end */

struct td_world *td_cmd_world(void)
{
    return world;
}

static volatile sig_atomic_t last_code;

static void end(int signal)
{
    (void)signal;
    _exit(last_code);
}

/* The process ends with this code in so many seconds, whatever it does by then. */
static void end_in(unsigned seconds, int exit_code)
{
    struct sigaction a;
    memset(&a, 0, sizeof(a));
    a.sa_handler = end;
    (void)sigemptyset(&a.sa_mask);
    last_code = exit_code;
    if (sigaction(SIGALRM, &a, NULL) == 0)
        (void)alarm(seconds);
}

/* Ends the process from any thread: what it says may block like everything else. */
static void leave(void *self, const struct td_error *err, int exit_code)
{
    (void)self;
    end_in(1, exit_code);
    td_event_error(err);
    td_term_error(stderr, err);
    _exit(exit_code);
}

/* Processes that start and never find each other are told from one that never started.
 * MPI's own number of this one is not known yet; Open MPI has it in the environment. */
static void say_started(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank)
        td_log_set_rank((int)strtol(rank, NULL, 10));
    td_event_phase(TD_PHASE_LAUNCH);
}

enum td_status td_cmd_join(const struct td_conf *conf, const struct td_cmd *cmd,
                           struct td_error *err)
{
    unsigned verbs = TD_VERB_RUN | TD_VERB_BENCH | TD_VERB_WORKER;
    int ranks = 1;
    bool worker = cmd->verb == TD_VERB_WORKER;
    bool handed = !worker && td_conf_is_set(conf, TD_O_SOCKET);
    int out = STDOUT_FILENO;
    struct td_comm *comm;
    if (cmd->verb & verbs && td_conf_is_set(conf, TD_O_WORLD))
        ranks = (int)td_conf_int(conf, TD_O_WORLD);
    told = worker || (handed && ranks > 1);
    if (told)
        td_log_set_fd(out);
    several = ranks > 1;
    if (!several)
        return TD_OK;
    say_started();
    enum td_status s = td_comm_mpi(ranks, JOIN_SECONDS, &comm, err);
    if (s != TD_OK)
        return s;
    td_log_set_rank(comm->rank);
    if (handed && comm->rank == 0) {
        s = td_hand_take(td_conf_str(conf, TD_O_SOCKET), &out, &launcher, err);
        td_log_set_fd(out);
        if (s != TD_OK)
            return s;
    }
    struct td_world_params p = {.comm = comm,
                                .build = td_build,
                                .beat_fd = told ? out : -1,
                                .rank_timeout = td_conf_real(conf, TD_O_RANK_TIMEOUT),
                                .load_timeout = td_conf_real(conf, TD_O_LOAD_TIMEOUT),
                                .leave = leave};
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
    if (told && several)
        return false;
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
    end_in(TD_RANK_FAREWELL, code);
    td_world_close(world);
    world = NULL;
    (void)alarm(0);
    return code;
}

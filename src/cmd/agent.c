/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem agent: answers another host's tandem over standard input and output. Started by
 * `check`, `plan` and `serve` through ssh, never by people.
 */
#include "launch/agent.h"
#include "cmd/cmd.h"

#include <stdio.h>

static int run(struct td_conf *conf, struct td_error *err)
{
    (void)conf;
    return td_agent_run(0, 1, td_build, td_version, err) == TD_OK ? TD_EXIT_OK
                                                                  : TD_EXIT_FAILED;
}

const struct td_cmd td_cmd_agent = {
    .name = "agent",
    .verb = TD_VERB_AGENT,
    .usage = "agent",
    .summary = "", /* started by tandem itself */
    .details = "",
    .run = run,
};

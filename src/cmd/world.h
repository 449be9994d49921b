/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is one rank of several: the parts of engine/ranks.h's contract that
 * belong to the command line. main.c runs a verb between the two functions.
 */
#ifndef TD_CMD_WORLD_H
#define TD_CMD_WORLD_H

#include "cmd/cmd.h"

struct td_world;

/* Joins the other ranks if the options say that there are any. */
enum td_status td_cmd_join(const struct td_conf *conf, const struct td_cmd *cmd,
                           struct td_error *err);

/* The ranks that this process works with, NULL: it is alone. */
struct td_world *td_cmd_world(void);

/* Runs the verb on rank 0, or alone; on other ranks what rank 0's verb needs of them. */
int td_cmd_do(const struct td_cmd *cmd, struct td_conf *conf, struct td_error *err);

/* Whether the failure is this process's to print. */
bool td_cmd_reports(const struct td_error *err);

/* Leaves the other ranks; returns the exit code that fits. */
int td_cmd_leave(int code, const struct td_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asking side of agent.h: one agent for each host, started over ssh (this machine's
 * without), all asked at the same time, every wait with a deadline.
 *
 * Over ssh a few lines of shell look for this build of the program: at the path it has
 * here, then in ~/.cache/tandem/BUILD. If it is in neither place and the running program
 * belongs to a folder made by `make bundle`, that folder is copied to the second. Whatever
 * fails says at which step: name, connection, host key, login, program.
 */
#ifndef TD_LAUNCH_AGENTS_H
#define TD_LAUNCH_AGENTS_H

#include "base/buf.h"
#include "base/json.h"
#include "fabric/facts.h"

#include <sys/types.h>

struct td_agent {
    char name[TD_FACT_TEXT]; /* as given to --hosts */
    bool local;              /* this machine: no ssh */
    bool skip;               /* not to be started */
    struct td_error e;       /* why it cannot be asked; code TD_OK while it can */

    /* The rest is this file's own. */
    pid_t pid;           /* 0: none */
    int in, out, err;    /* we write, read, read; -1: closed */
    struct td_buf text;  /* unread output */
    struct td_buf said;  /* standard error, the beginning of it */
    struct td_buf notes; /* where the program was looked for, and what happened */
    bool up, copy;       /* it greeted; the program has to be copied first */
    char arch[TD_FACT_NAME];
    double answered; /* wall clock when the last answer came */
};

/* What agents are started with. */
struct td_agent_start {
    const char *ssh; /* the command with its options, "ssh" */
    const char *version,
        *build;     /* of this program; the build is compared with theirs */
    double seconds; /* until all have to be there, copying not counted */
    bool no_copy;   /* a program that is not there is a failure */
};

/* Empty agents for the names; free them with td_agents_free(). */
struct td_agent *td_agents_new(int n);

/* Starts all whose `e` is empty, and waits until each answers or has failed. What fails
 * stays in its `e`. */
void td_agents_start(struct td_agent *a, int n, const struct td_agent_start *o);

/* Sends a line to each that is up and whose request is not empty, and waits for one
 * answer of each: answers[i] is a new reference, NULL when there is none. An agent that
 * does not answer in time, or not in JSON, is given up (TD_E_TIMEOUT, TD_E_PEER). An
 * answer that is an error is handed over as it is. */
void td_agents_ask(struct td_agent *a, int n, struct td_buf *requests, double seconds,
                   json_t **answers);

/* Ends all agents, and frees them. */
void td_agents_free(struct td_agent *a, int n);

/* The bundle that the running program belongs to, of this build: its folder (from
 * $FOLDER/bin/tandem or, in a build tree, dist/...). False when there is none. */
bool td_bundle_find(const char *program, const char *version, const char *build,
                    char *out, size_t size);

#endif

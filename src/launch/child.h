/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process with pipes on its standard output and error, and what became of it.
 *
 * The child gets a session of its own (a ^C in a terminal is the front's alone),
 * /dev/null as standard input, and gets a signal when this process ends in whatever way.
 */
#ifndef TD_LAUNCH_CHILD_H
#define TD_LAUNCH_CHILD_H

#include "base/oom.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct td_child {
    pid_t pid;          /* 0: none */
    int out_fd, err_fd; /* not blocking; -1: closed */
    struct td_oom_counts before;
};

/* Runs argv[0], which is a path; `farewell` is the signal for when this process ends. */
enum td_status td_child_spawn(char *const *argv, int farewell, struct td_child *out,
                              struct td_error *err);

/* True when the child has ended: *status as from waitpid(). */
bool td_child_ended(struct td_child *c, int *status);

void td_child_kill(const struct td_child *c, int signal);

/* Closes the pipes; the child must have ended. */
void td_child_release(struct td_child *c);

/* "SIGKILL"; some with their usual meaning. Static. */
const char *td_signal_name(int sig);

/* Fills err with how a child ended: by a signal (one of the kernel's for lack of memory,
 * if a counter rose since `before`), or by itself. `said` is its own last error, empty
 * (code TD_OK) when it reported none; `words` are its last lines of standard error. */
void td_child_cause(int status, const struct td_oom_counts *before,
                    const struct td_oom_counts *after, const struct td_error *said,
                    const char *words, struct td_error *err);

#endif

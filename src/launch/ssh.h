/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words that are given to ssh, the lines that the shell on the other side runs, and
 * what an ending of ssh means.
 */
#ifndef TD_LAUNCH_SSH_H
#define TD_LAUNCH_SSH_H

#include "base/buf.h"
#include "fabric/facts.h"
#include "launch/argv.h"

/* Appends the ssh command (words divided by spaces), options for unattended use, and the
 * host. A connection is given up after `seconds`. */
void td_ssh_words(struct td_argv *out, const char *ssh, const char *host, int seconds);

/* The lines for `sh` that look for this build and start its agent. They print, before
 * the agent greets, lines of their own:
 *
 *     tandem-note PATH: MESSAGE      why this one is not it
 *     tandem-none ARCH               none is; nothing was started
 */
enum td_status td_ssh_script(struct td_buf *out, const char *program,
                             const char *build);

/* The command for the other side that unpacks a bundle from its standard input. */
enum td_status td_ssh_unpack(struct td_buf *out, const char *build);

/* Fills err with what it means that ssh to `host` ended with this status (as from
 * waitpid()), having said this on standard error. `where` is what the name resolves to
 * here, "" when it does not. */
void td_ssh_cause(const char *host, const char *where, int status, const char *said,
                  struct td_error *err);

#endif

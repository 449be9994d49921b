/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands a process's standard input, output and error to rank 0, which runs on the same
 * host but below mpirun: what a terminal's program needs (line editing, colours, ^C)
 * does not survive mpirun's forwarding.
 *
 *     the launcher            rank 0
 *     td_hand_over(fd)  --->  td_hand_take(path)     over a Unix socket
 *
 * Rank 0 keeps the socket open to its end.
 */
#ifndef TD_LAUNCH_HAND_H
#define TD_LAUNCH_HAND_H

#include "base/status.h"

#include <sys/types.h>

/* Sends descriptors 0 to 2 over a connected socket. *pid is the process at its other
 * end, to which signals are forwarded. */
enum td_status td_hand_over(int socket, pid_t *pid, struct td_error *err);

/* Connects to `path` and makes what is received there descriptors 0 to 2. *out is what
 * was descriptor 1 before, for events; the caller's, as is *socket. Errors: TD_E_PEER,
 * TD_E_USAGE for a path that is too long. */
enum td_status td_hand_take(const char *path, int *out, int *socket,
                            struct td_error *err);

#endif

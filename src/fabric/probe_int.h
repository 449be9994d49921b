/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two sides of a measurement say to each other.
 *
 * TCP: the caller sends the token and one letter; the listener answers with the welcome.
 * Then, by the letter: nothing more; every byte comes back; or bytes are swallowed until
 * the caller closes its side, and the answer is their number and the nanoseconds between
 * the first and the last, both as 19 digits.
 *
 * UDP: a datagram that begins with the token is answered by the token and its length.
 */
#ifndef TD_FABRIC_PROBE_INT_H
#define TD_FABRIC_PROBE_INT_H

#include "fabric/probe.h"

#define TD_WELCOME "tandem/1"

enum {
    TD_OP_HELLO = 'c',
    TD_OP_ECHO = 'e',
    TD_OP_SINK = 's',
    TD_HELLO_BYTES = TD_TOKEN_BYTES + 1,
    TD_WELCOME_BYTES = sizeof(TD_WELCOME) - 1,
    TD_LENGTH_DIGITS = 6,
    TD_SINK_ANSWER = 41 /* two numbers, a space, a newline, a zero */
};

#endif

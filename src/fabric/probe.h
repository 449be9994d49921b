/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections between hosts, tried and measured: what `tandem check` means by "works".
 *
 * Each host listens on a port in each of the two ranges that MPI will use (cluster.h), on
 * all of its IPv4 addresses. Open MPI speaks IPv4 only,
 * so nothing else is tried. A caller has to send the listener's token first: another
 * program, or another host that has the same address, is recognised by not knowing it.
 */
#ifndef TD_FABRIC_PROBE_H
#define TD_FABRIC_PROBE_H

#include "fabric/cluster.h"

enum { TD_TOKEN_BYTES = 32 }; /* hexadecimal digits, without the final zero */

/* A fresh token; false when the kernel gives no random bytes. */
bool td_token_make(char token[TD_TOKEN_BYTES + 1]);

/* ---- the listener ------------------------------------------------------------------- */

struct td_listener;

/* The ports of a listener: in the range of MPI's data (TCP and UDP), and in that of its
 * out-of-band connections (TCP). */
struct td_ports {
    int data, oob;
};

/* Listens in a thread of its own until td_listener_free(). Errors: TD_E_IO (no free port
 * in a range), TD_E_NOMEM. */
enum td_status td_listener_new(const char *token, struct td_listener **out,
                               struct td_ports *ports, struct td_error *err);
void td_listener_free(struct td_listener *l);

/* ---- is it reachable ---------------------------------------------------------------- */

/* X(code, name) */
#define TD_REACH_LIST(X)                                                               \
    X(TD_REACH_OK, "ok")                   /* connected, and it knew the token */      \
    X(TD_REACH_REFUSED, "refused")         /* the host answered that nobody listens */ \
    X(TD_REACH_TIMEOUT, "timeout")         /* no answer */                             \
    X(TD_REACH_UNREACHABLE, "unreachable") /* no route, no neighbour */                \
    X(TD_REACH_STRANGER, "stranger")       /* connected to somebody else */            \
    X(TD_REACH_FAILED, "failed")           /* this host could not try */

enum td_reach {
#define X(code, name) code,
    TD_REACH_LIST(X)
#undef X
        TD_REACH_COUNT
};

const char *td_reach_name(enum td_reach reach);
bool td_reach_by_name(const char *name, enum td_reach *out);

struct td_target {
    char from[TD_FACT_ADDR]; /* this host's address to connect from */
    char to[TD_FACT_ADDR];
    char token[TD_TOKEN_BYTES + 1];
    struct td_ports ports;
    /* results */
    enum td_reach reach; /* of the port that fares worse */
    int port;            /* the one that was not reached, 0 when both were */
    bool alive; /* answered on the ssh port, if only to say that nobody listens there */
};

/* Tries all of them at the same time, within `seconds`. In a hurry, what does not connect
 * is given up earlier, once others have for a while. */
void td_probe_connect(struct td_target *targets, int n, double seconds, bool hurry);

/* ---- how fast is it ----------------------------------------------------------------- */

/* Measures the link to a target that is reachable, for about `seconds`. TD_E_IO or
 * TD_E_TIMEOUT say at what it failed; *out then holds what was measured before. */
enum td_status td_probe_measure(const struct td_target *target, double seconds,
                                struct td_link *out, struct td_error *err);

#endif

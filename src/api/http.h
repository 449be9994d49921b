/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP on top of libmicrohttpd: whole requests in, replies out at any later time.
 *
 * One request and its reply are an exchange. The handler gets it in one of the server's
 * threads, once the body is there, and either replies at once or keeps it
 * (td_exchange_hold) and replies later, from any thread:
 *
 *     td_exchange_reply()                           a whole reply, or
 *     td_exchange_begin(), _write()..., _end()      a stream of pieces
 *
 * While a reply is outstanding the connection is suspended and costs no thread. The
 * library does not look at suspended connections, so a thread of our own watches their
 * sockets: when the client hangs up (or closes its sending side), td_gone_fn is called.
 * The same thread closes connections that do not deliver a request in time, or never will
 * because their client closed its side.
 *
 * Ceilings: TD_MAX_HTTP_HEADER, the body and those of all requests that arrive as given,
 * the number of connections, the bytes that a slow reader leaves unread
 * (TD_MAX_HTTP_UNREAD).
 */
#ifndef TD_API_HTTP_H
#define TD_API_HTTP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct td_http;
struct td_exchange;

typedef void (*td_http_fn)(void *self, struct td_exchange *x);
typedef void (*td_gone_fn)(void *self, struct td_exchange *x);

struct td_http_params {
    const char *host;              /* address or name to listen on */
    int port;                      /* 0: any free one */
    int threads, max_connections;  /* more are refused with 503 */
    size_t max_body, max_arriving; /* of a request; of all until they are handled */
    double idle;                   /* seconds a connection may do nothing */
    double slow;                   /* seconds more that a request may take to arrive */
    /* Sees method, path and headers before the body is read; a reply from it means that
     * the body is not wanted. */
    td_http_fn head;
    td_http_fn fn; /* sees whole requests */
    void *self;
};

/* Listens and serves from now on. TD_E_IO names address and port and says why. */
enum td_status td_http_start(const struct td_http_params *params, struct td_http **out,
                             struct td_error *err);
int td_http_port(const struct td_http *h);

/* Sockets that a server with that ceiling may have open: some more, to refuse them. */
int td_http_sockets(int max_connections);

/* Takes no more connections; those that there are go on. */
void td_http_quiesce(struct td_http *h);

/* Lets complete replies go out (2 s at most), closes all connections (clients that wait
 * are gone) and ends the threads. */
void td_http_stop(struct td_http *h);

/* ---- a request -------------------------------------------------------------------- */

const char *td_exchange_method(const struct td_exchange *x);
const char *td_exchange_path(const struct td_exchange *x);

/* NULL when there is none. Only within the handler. */
const char *td_exchange_header(const struct td_exchange *x, const char *name);
const char *td_exchange_query(const struct td_exchange *x, const char *name);

/* The body, followed by a zero byte; borrowed. Only within the handler. */
const char *td_exchange_body(const struct td_exchange *x, size_t *n);

/* Keep the exchange beyond the handler; each hold needs a release. */
struct td_exchange *td_exchange_hold(struct td_exchange *x);
void td_exchange_release(struct td_exchange *x);

/* Calls fn once if the client goes before its reply is complete, from any thread, even
 * before this returns. */
void td_exchange_on_gone(struct td_exchange *x, td_gone_fn fn, void *self);

/* ---- the reply -------------------------------------------------------------------- */

/* Adds a header; before the reply begins. */
void td_exchange_add_header(struct td_exchange *x, const char *name, const char *value);

/* A whole reply. A second one is ignored. */
void td_exchange_reply(struct td_exchange *x, int status, const char *type,
                       const char *body, size_t n);

/* A stream. td_exchange_write() returns false when the client is gone or too slow. */
void td_exchange_begin(struct td_exchange *x, int status, const char *type);
bool td_exchange_write(struct td_exchange *x, const char *p, size_t n);
void td_exchange_end(struct td_exchange *x);

/* Has the reply begun? */
bool td_exchange_begun(struct td_exchange *x);

#endif

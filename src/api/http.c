/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP on top of libmicrohttpd. See http.h.
 *
 * An exchange is shared by the connection (until the library says that the request is
 * over), the library's response object (until that is destroyed), and whoever holds it.
 * Its lock guards everything below it. The library's functions to suspend and resume a
 * connection are called under that lock, so that a resume cannot overtake a suspend;
 * they take locks of the library that are never held when it calls us.
 *
 *     READING --body complete--> HANDLED --reply or begin--> REPLIED
 *
 * A connection is suspended in HANDLED while there is no reply, and in REPLIED while a
 * stream has nothing to send.
 */
#define _POSIX_C_SOURCE 200809L
#include "api/http.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STREAM_BLOCK = 4096, MAX_HEADERS = 8, WATCH_EVERY_MS = 1000, BACKLOG = 511 };

static const double LAST_REPLIES = 2; /* seconds for them to go out at the end */
static const double LAST_BYTES = 1;   /* for a request whose sender closed its side */
static const uint64_t WAKE = 0;       /* the watcher's event that is no exchange's */

enum state { READING, HANDLED, REPLIED };

struct header {
    char name[48], value[128];
};

/* A connection, for the deadline of its next request. In the server's list. */
struct link {
    struct link *next, **at;
    int fd;
    bool extra;      /* one too many: its requests are refused */
    double deadline; /* 0: a request is being answered */
};

struct td_exchange {
    pthread_mutex_t lock;
    int refs;
    struct td_http *http;
    struct MHD_Connection *connection; /* NULL once the library is done with it */
    struct link *link;
    struct td_exchange *next, **at; /* in the server's list while watched */
    uint64_t watch_id;              /* no other exchange ever has it; 0: not watched */
    char *method, *path;
    struct td_buf body, out;
    size_t counted; /* bytes of the body in the server's sum */
    size_t wasted;  /* bytes of it that were thrown away */
    size_t out_at;
    enum state state;
    int status;
    const char *type;
    struct header headers[MAX_HEADERS];
    int n_headers;
    bool stream, ended, gone, suspended, queued, too_large, crowded;
    td_gone_fn on_gone;
    void *gone_self;
};

struct td_http {
    struct td_http_params params;
    struct MHD_Daemon *daemon;
    int port, listen_fd, watch_fd, wake_fd;
    pthread_t watcher;
    bool watching;
    pthread_mutex_t lock; /* guards the lists; taken before an exchange's */
    struct td_exchange *watched;
    uint64_t watch_ids;
    struct link *links;
    int n_links;
    atomic_size_t arriving; /* bytes of bodies that are not handled yet */
    atomic_bool stopping;
    bool quiesced;
};

/* ---- exchanges --------------------------------------------------------------------- */

static struct td_exchange *exchange_new(struct td_http *h, struct MHD_Connection *c,
                                        const char *method, const char *path)
{
    struct td_exchange *x = td_calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->refs = 1;
    x->http = h;
    x->connection = c;
    td_buf_init(&x->body, h->params.max_body);
    td_buf_init(&x->out, TD_MAX_HTTP_UNREAD);
    x->method = td_strdup(method);
    x->path = td_strdup(path);
    (void)pthread_mutex_init(&x->lock, NULL);
    if (!x->method || !x->path) {
        td_exchange_release(x);
        return NULL;
    }
    return x;
}

struct td_exchange *td_exchange_hold(struct td_exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    x->refs++;
    (void)pthread_mutex_unlock(&x->lock);
    return x;
}

void td_exchange_release(struct td_exchange *x)
{
    if (!x)
        return;
    (void)pthread_mutex_lock(&x->lock);
    int refs = --x->refs;
    (void)pthread_mutex_unlock(&x->lock);
    if (refs > 0)
        return;
    td_buf_release(&x->body);
    td_buf_release(&x->out);
    td_free(x->method);
    td_free(x->path);
    (void)pthread_mutex_destroy(&x->lock);
    td_free(x);
}

const char *td_exchange_method(const struct td_exchange *x)
{
    return x->method;
}

const char *td_exchange_path(const struct td_exchange *x)
{
    return x->path;
}

const char *td_exchange_header(const struct td_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

const char *td_exchange_query(const struct td_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *td_exchange_body(const struct td_exchange *x, size_t *n)
{
    *n = x->body.len;
    return x->body.p;
}

/* Marks the client as gone; returns whom to tell, outside of the lock. */
static td_gone_fn mark_gone(struct td_exchange *x, void **self)
{
    td_gone_fn fn = NULL;
    if (!x->gone && !x->ended) {
        fn = x->on_gone;
        *self = x->gone_self;
    }
    x->gone = true;
    return fn;
}

void td_exchange_on_gone(struct td_exchange *x, td_gone_fn fn, void *self)
{
    (void)pthread_mutex_lock(&x->lock);
    bool now = x->gone && !x->ended;
    x->on_gone = fn;
    x->gone_self = self;
    (void)pthread_mutex_unlock(&x->lock);
    if (now)
        fn(self, x);
}

/* ---- replies ----------------------------------------------------------------------- */

static void resume(struct td_exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->connection);
}

/* False while the server stops: the library must not stop with suspended connections. */
static bool suspend(struct td_exchange *x)
{
    if (atomic_load(&x->http->stopping))
        return false;
    x->suspended = true;
    MHD_suspend_connection(x->connection);
    return true;
}

void td_exchange_add_header(struct td_exchange *x, const char *name, const char *value)
{
    (void)pthread_mutex_lock(&x->lock);
    if (x->n_headers < MAX_HEADERS && x->state != REPLIED) {
        struct header *h = &x->headers[x->n_headers++];
        (void)snprintf(h->name, sizeof(h->name), "%s", name);
        (void)snprintf(h->value, sizeof(h->value), "%s", value);
    }
    (void)pthread_mutex_unlock(&x->lock);
}

static bool start_reply(struct td_exchange *x, int status, const char *type)
{
    if (x->state == REPLIED)
        return false;
    x->state = REPLIED;
    x->status = status;
    x->type = type;
    return true;
}

void td_exchange_reply(struct td_exchange *x, int status, const char *type,
                       const char *body, size_t n)
{
    (void)pthread_mutex_lock(&x->lock);
    if (start_reply(x, status, type)) {
        x->out.max = TD_MAX(n, 1);
        x->ended = true;
        if (td_buf_add(&x->out, body, n) != TD_OK)
            x->status = MHD_HTTP_INTERNAL_SERVER_ERROR;
        resume(x);
    }
    (void)pthread_mutex_unlock(&x->lock);
}

void td_exchange_begin(struct td_exchange *x, int status, const char *type)
{
    (void)pthread_mutex_lock(&x->lock);
    if (start_reply(x, status, type)) {
        x->stream = true;
        resume(x);
    }
    (void)pthread_mutex_unlock(&x->lock);
}

bool td_exchange_write(struct td_exchange *x, const char *p, size_t n)
{
    (void)pthread_mutex_lock(&x->lock);
    bool ok = !x->gone && x->stream && !x->ended;
    if (ok && x->out_at == x->out.len) {
        td_buf_clear(&x->out);
        x->out_at = 0;
    }
    if (ok && td_buf_add(&x->out, p, n) != TD_OK) {
        ok = false;
        x->gone = true; /* it does not read: the connection is closed */
    }
    if (x->stream)
        resume(x);
    (void)pthread_mutex_unlock(&x->lock);
    return ok;
}

void td_exchange_end(struct td_exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    if (x->stream && !x->ended) {
        x->ended = true;
        resume(x);
    }
    (void)pthread_mutex_unlock(&x->lock);
}

bool td_exchange_begun(struct td_exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    bool begun = x->state == REPLIED;
    (void)pthread_mutex_unlock(&x->lock);
    return begun;
}

/* The library wants bytes of a stream. */
static ssize_t read_stream(void *self, uint64_t pos, char *to, size_t max)
{
    struct td_exchange *x = self;
    ssize_t n = 0;
    (void)pos;
    (void)pthread_mutex_lock(&x->lock);
    size_t left = x->out.len - x->out_at;
    if (x->gone) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (left > 0) {
        size_t take = TD_MIN(left, max);
        memcpy(to, x->out.p + x->out_at, take);
        x->out_at += take;
        if (x->out_at > TD_MAX_HTTP_UNREAD / 2) {
            td_buf_drop(&x->out, x->out_at);
            x->out_at = 0;
        }
        n = (ssize_t)take;
    } else if (x->ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (!suspend(x)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    }
    (void)pthread_mutex_unlock(&x->lock);
    return n;
}

static void free_stream(void *self)
{
    td_exchange_release(self);
}

/* Hands the reply to the library; called by the connection's thread only, without the
 * lock: what it reads does not change once the reply has begun. */
static enum MHD_Result queue(struct td_exchange *x)
{
    struct MHD_Response *r;
    if (x->stream)
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK,
                                              read_stream, x, free_stream);
    else
        r = MHD_create_response_from_buffer(x->out.len, x->out.p,
                                            MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    if (x->stream)
        (void)td_exchange_hold(x); /* free_stream() releases it */
    x->queued = true;
    enum MHD_Result ok = MHD_add_response_header(r, "Content-Type", x->type);
    for (int i = 0; i < x->n_headers && ok == MHD_YES; i++)
        ok = MHD_add_response_header(r, x->headers[i].name, x->headers[i].value);
    if (ok == MHD_YES)
        ok = MHD_queue_response(x->connection, (unsigned)x->status, r);
    MHD_destroy_response(r); /* the connection keeps it */
    return ok;
}

/* ---- watching ---------------------------------------------------------------------- */

/* An event names its exchange by a number: by the time it is looked at, the exchange may
 * be over, and another one may lie at the same address. */
static void expect_hang_up(struct td_exchange *x, int operation)
{
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT,
                            .data.u64 = x->watch_id};
    (void)epoll_ctl(x->http->watch_fd, operation, x->link->fd, &e);
}

static void watch(struct td_exchange *x)
{
    struct td_http *h = x->http;
    (void)pthread_mutex_lock(&h->lock);
    x->watch_id = ++h->watch_ids;
    x->next = h->watched;
    x->at = &h->watched;
    if (x->next)
        x->next->at = &x->next;
    h->watched = x;
    expect_hang_up(x, EPOLL_CTL_ADD);
    (void)pthread_mutex_unlock(&h->lock);
}

/* Its request has arrived: there is no deadline any more, and who hangs up now, or has
 * done so, is gone. */
static void watch_again(struct td_exchange *x)
{
    struct td_http *h = x->http;
    (void)pthread_mutex_lock(&h->lock);
    x->link->deadline = 0;
    expect_hang_up(x, EPOLL_CTL_MOD);
    (void)pthread_mutex_unlock(&h->lock);
}

static void unwatch(struct td_exchange *x)
{
    struct td_http *h = x->http;
    (void)pthread_mutex_lock(&h->lock);
    if (x->watch_id) {
        x->watch_id = 0;
        *x->at = x->next;
        if (x->next)
            x->next->at = x->at;
        (void)epoll_ctl(h->watch_fd, EPOLL_CTL_DEL, x->link->fd, NULL);
    }
    (void)pthread_mutex_unlock(&h->lock);
}

/* The exchange that an event speaks of, held; NULL when it is over meanwhile, or its
 * request has not been read yet. The library may miss that no more of it will come (where
 * the last bytes and the end arrive together), hence a deadline for the rest. */
static struct td_exchange *find_watched(struct td_http *h, uint64_t which)
{
    struct td_exchange *x;
    (void)pthread_mutex_lock(&h->lock);
    for (x = h->watched; x && x->watch_id != which; x = x->next)
        ;
    bool reading = x && x->link->deadline > 0;
    if (reading)
        x->link->deadline = TD_MIN(x->link->deadline, td_clock_now() + LAST_BYTES);
    else if (x)
        td_exchange_hold(x);
    (void)pthread_mutex_unlock(&h->lock);
    return reading ? NULL : x;
}

static void hang_up(struct td_http *h, uint64_t which)
{
    void *self = NULL;
    struct td_exchange *x = find_watched(h, which);
    if (!x)
        return;
    (void)pthread_mutex_lock(&x->lock);
    td_gone_fn fn = mark_gone(x, &self);
    resume(x);
    (void)pthread_mutex_unlock(&x->lock);
    if (fn)
        fn(self, x);
    td_exchange_release(x);
}

/* Cuts connections whose request does not arrive. */
static void check_deadlines(struct td_http *h)
{
    double now = td_clock_now();
    for (const struct link *l = h->links; l; l = l->next)
        if (l->deadline > 0 && now > l->deadline)
            (void)shutdown(l->fd, SHUT_RDWR);
}

static void *watcher(void *self)
{
    struct td_http *h = self;
    while (!atomic_load(&h->stopping)) {
        struct epoll_event e[64];
        int n = epoll_wait(h->watch_fd, e, (int)TD_COUNT(e), WATCH_EVERY_MS);
        for (int i = 0; i < n; i++)
            if (e[i].data.u64 != WAKE)
                hang_up(h, e[i].data.u64);
        (void)pthread_mutex_lock(&h->lock);
        check_deadlines(h);
        (void)pthread_mutex_unlock(&h->lock);
    }
    return NULL;
}

/* By the connection's thread: nobody else looks at a body. */
static void drop_body(struct td_exchange *x)
{
    (void)atomic_fetch_sub(&x->http->arriving, x->counted);
    x->counted = 0;
    td_buf_release(&x->body);
}

/* ---- the library's calls ----------------------------------------------------------- */

static void expect_request(struct td_http *h, struct link *l)
{
    (void)pthread_mutex_lock(&h->lock);
    l->deadline = td_clock_now() + h->params.idle + h->params.slow;
    (void)pthread_mutex_unlock(&h->lock);
}

static void on_connection(void *self, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct td_http *h = self;
    struct link *l = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        (void)pthread_mutex_lock(&h->lock);
        if (l) {
            h->n_links--;
            *l->at = l->next;
            if (l->next)
                l->next->at = l->at;
        }
        (void)pthread_mutex_unlock(&h->lock);
        td_free(l);
        return;
    }
    l = td_calloc(1, sizeof(*l));
    *socket_context = l;
    if (!l)
        return;
    int on = 1;
    l->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)pthread_mutex_lock(&h->lock);
    l->extra = ++h->n_links > h->params.max_connections;
    l->next = h->links;
    l->at = &h->links;
    if (l->next)
        l->next->at = &l->next;
    h->links = l;
    (void)pthread_mutex_unlock(&h->lock);
    expect_request(h, l);
}

static void on_completed(void *self, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct td_http *h = self;
    struct td_exchange *x = *context;
    void *gone_self = NULL;
    (void)c;
    *context = NULL;
    if (!x)
        return;
    unwatch(x);
    drop_body(x);
    expect_request(h, x->link);
    (void)pthread_mutex_lock(&x->lock);
    td_gone_fn fn =
        code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? NULL : mark_gone(x, &gone_self);
    x->gone = true;
    x->suspended = false;
    x->connection = NULL;
    x->link = NULL;
    (void)pthread_mutex_unlock(&x->lock);
    if (fn)
        fn(gone_self, x);
    td_exchange_release(x);
}

/* Called again and again until there is a reply: queue it or wait. */
static enum MHD_Result answer_or_wait(struct td_exchange *x)
{
    enum MHD_Result ok = MHD_YES;
    (void)pthread_mutex_lock(&x->lock);
    bool replied = x->state == REPLIED;
    if (x->gone || (!replied && !suspend(x)))
        ok = MHD_NO;
    (void)pthread_mutex_unlock(&x->lock);
    return ok == MHD_YES && replied && !x->queued ? queue(x) : ok;
}

static struct link *link_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void refuse(struct td_exchange *x, int status, const char *code,
                   const char *message)
{
    char text[512];
    int n = snprintf(text, sizeof(text),
                     "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,"
                     "\"code\":\"%s\"}}",
                     message, status < 500 ? "invalid_request_error" : "server_error",
                     code);
    td_exchange_reply(x, status, "application/json", text, (size_t)n);
}

/* The library would let it wait without a word. */
static void refuse_extra(struct td_exchange *x)
{
    char text[128];
    (void)snprintf(text, sizeof(text),
                   "%d clients are connected already, as many as may be; try again "
                   "later",
                   x->http->params.max_connections);
    td_exchange_add_header(x, "Retry-After", "1");
    td_exchange_add_header(x, "Connection", "close");
    refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "too_many_connections", text);
}

static enum MHD_Result count_lengths(void *self, enum MHD_ValueKind kind,
                                     const char *name, const char *value)
{
    int *n = self;
    (void)kind;
    (void)value;
    *n += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0 ||
          strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    return MHD_YES;
}

/* The library takes one of two lengths. A proxy may take the other, and hand the rest of
 * one client's request to the next one (RFC 9112, section 6.3). */
static bool refuse_lengths(struct td_exchange *x)
{
    int n = 0;
    (void)MHD_get_connection_values(x->connection, MHD_HEADER_KIND, count_lengths, &n);
    if (n < 2)
        return false;
    td_exchange_add_header(x, "Connection", "close");
    refuse(x, MHD_HTTP_BAD_REQUEST, "two_lengths",
           "the length of the request's body is given twice");
    return true;
}

/* Method, path and headers are there. */
static enum MHD_Result on_head(struct td_http *h, struct MHD_Connection *c,
                               const char *url, const char *method, void **context)
{
    struct link *l = link_of(c);
    struct td_exchange *x = l ? exchange_new(h, c, method, url) : NULL;
    *context = x;
    if (!x)
        return MHD_NO;
    x->link = l;
    if (l->extra)
        refuse_extra(x);
    else if (!refuse_lengths(x))
        h->params.head(h->params.self, x);
    if (td_exchange_begun(x))
        return queue(x);
    watch(x);
    return MHD_YES;
}

/* A piece of the body. What is too long, or finds no room beside the others', is thrown
 * away, and the request refused at its end; a client that goes on for much longer is cut
 * off. */
static enum MHD_Result on_body(struct td_exchange *x, const char *data, size_t *n)
{
    struct td_http *h = x->http;
    size_t bytes = *n;
    *n = 0;
    if (!x->too_large && !x->crowded) {
        x->counted += bytes;
        x->crowded =
            atomic_fetch_add(&h->arriving, bytes) + bytes > h->params.max_arriving;
        if (!x->crowded && td_buf_add(&x->body, data, bytes) == TD_OK)
            return MHD_YES;
        x->too_large = !x->crowded;
        drop_body(x);
    }
    x->wasted += bytes;
    return x->wasted <= h->params.max_body / 4 * 5 ? MHD_YES : MHD_NO;
}

static void refuse_body(struct td_exchange *x)
{
    if (x->too_large) {
        refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "too_large",
               "the request's body is too large");
        return;
    }
    td_exchange_add_header(x, "Retry-After", "1");
    refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "too_many_bytes",
           "too many large requests arrive at a time; try again later");
}

static enum MHD_Result on_request(void *self, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version,
                                  const char *data, size_t *n, void **context)
{
    struct td_http *h = self;
    struct td_exchange *x = *context;
    (void)version;
    if (!x)
        return on_head(h, c, url, method, context);
    if (*n > 0)
        return on_body(x, data, n);
    if (x->state == READING) {
        x->state = HANDLED;
        watch_again(x);
        if (x->too_large || x->crowded)
            refuse_body(x);
        else
            h->params.fn(h->params.self, x);
        drop_body(x);
    }
    return answer_or_wait(x);
}

/* ---- starting and stopping --------------------------------------------------------- */

static int listen_on(const struct addrinfo *a)
{
    int on = 1, fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0)
        return -1;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int e = errno;
    (void)close(fd);
    errno = e;
    return -1;
}

static enum td_status open_port(struct td_http *h, struct td_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    char port[16];
    (void)snprintf(port, sizeof(port), "%d", h->params.port);
    int e = getaddrinfo(h->params.host, port, &hints, &list);
    if (e != 0) {
        td_error_set(err, TD_E_IO, "cannot listen on %s: %s", h->params.host,
                     gai_strerror(e));
        td_error_why(err, "--host is the address of this machine to listen on");
        td_error_fix(err, "use an address of this machine, or 0.0.0.0 for all");
        return TD_E_IO;
    }
    for (const struct addrinfo *a = list; a && h->listen_fd < 0; a = a->ai_next)
        h->listen_fd = listen_on(a);
    e = errno;
    freeaddrinfo(list);
    if (h->listen_fd < 0) {
        td_error_set(err, TD_E_IO, "cannot listen on %s port %d: %s", h->params.host,
                     h->params.port, strerror(e));
        td_error_why(err, e == EADDRINUSE ? "another process uses that port"
                                          : "the system refused the address");
        td_error_fix(err, "choose another one with --port or --host");
        return TD_E_IO;
    }
    if (getsockname(h->listen_fd, (struct sockaddr *)&at, &size) == 0)
        h->port =
            ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                           : ((struct sockaddr_in *)&at)->sin_port);
    return TD_OK;
}

static enum td_status start(struct td_http *h, struct td_error *err)
{
    enum td_status s = open_port(h, err);
    if (s != TD_OK)
        return s;
    struct epoll_event wake = {.events = EPOLLIN, .data.u64 = WAKE};
    h->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    h->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (h->watch_fd < 0 || h->wake_fd < 0 ||
        epoll_ctl(h->watch_fd, EPOLL_CTL_ADD, h->wake_fd, &wake) != 0 ||
        pthread_create(&h->watcher, NULL, watcher, h) != 0)
        return td_error_set(err, TD_E_NOMEM, "cannot start the watcher of sockets");
    h->watching = true;
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        on_request, h, MHD_OPTION_LISTEN_SOCKET, h->listen_fd,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)h->params.threads,
        MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)td_http_sockets(h->params.max_connections),
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->params.idle,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)TD_MAX_HTTP_HEADER,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_END);
    if (!h->daemon)
        return td_error_set(err, TD_E_NOMEM, "cannot start the HTTP server's threads");
    h->listen_fd = -1; /* the library's now */
    return TD_OK;
}

int td_http_sockets(int max_connections)
{
    return max_connections + max_connections / 8 + 64;
}

enum td_status td_http_start(const struct td_http_params *params, struct td_http **out,
                             struct td_error *err)
{
    struct td_http *h = td_calloc(1, sizeof(*h));
    if (!h)
        return td_error_set(err, TD_E_NOMEM, "no memory for the HTTP server");
    h->params = *params;
    h->listen_fd = h->watch_fd = h->wake_fd = -1;
    (void)pthread_mutex_init(&h->lock, NULL);
    enum td_status s = start(h, err);
    if (s == TD_OK)
        *out = h;
    else
        td_http_stop(h);
    return s;
}

int td_http_port(const struct td_http *h)
{
    return h->port;
}

void td_http_quiesce(struct td_http *h)
{
    if (h->quiesced)
        return;
    h->quiesced = true;
    int fd = MHD_quiesce_daemon(h->daemon);
    if (fd >= 0)
        (void)close(fd);
}

static bool is_suspended(struct td_exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    bool suspended = x->suspended;
    (void)pthread_mutex_unlock(&x->lock);
    return suspended;
}

/* Wakes all connections, for good since `stopping` is set; they see `gone`. */
static void wake_all(struct td_http *h)
{
    uint64_t id;
    do {
        struct td_exchange *x;
        (void)pthread_mutex_lock(&h->lock);
        for (x = h->watched; x && !is_suspended(x); x = x->next)
            ;
        id = x ? x->watch_id : 0;
        (void)pthread_mutex_unlock(&h->lock);
        if (id)
            hang_up(h, id);
    } while (id);
}

/* Is a complete reply on its way to a client that reads? */
static bool is_sending(struct td_http *h)
{
    bool any = false;
    (void)pthread_mutex_lock(&h->lock);
    for (struct td_exchange *x = h->watched; x && !any; x = x->next) {
        (void)pthread_mutex_lock(&x->lock);
        any = x->ended && !x->gone;
        (void)pthread_mutex_unlock(&x->lock);
    }
    (void)pthread_mutex_unlock(&h->lock);
    return any;
}

static void finish_replies(struct td_http *h)
{
    double end = td_clock_now() + LAST_REPLIES;
    while (is_sending(h) && td_clock_now() < end)
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

void td_http_stop(struct td_http *h)
{
    if (!h)
        return;
    if (h->daemon)
        finish_replies(h);
    atomic_store(&h->stopping, true);
    if (h->daemon) {
        td_http_quiesce(h);
        wake_all(h);
    }
    if (h->watching) {
        (void)eventfd_write(h->wake_fd, 1);
        (void)pthread_join(h->watcher, NULL);
    }
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    if (h->listen_fd >= 0)
        (void)close(h->listen_fd);
    if (h->watch_fd >= 0)
        (void)close(h->watch_fd);
    if (h->wake_fd >= 0)
        (void)close(h->wake_fd);
    (void)pthread_mutex_destroy(&h->lock);
    td_free(h);
}

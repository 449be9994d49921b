/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The active side of the measurements: connect tests, latency, bandwidth, path MTU. See
 * probe.h.
 */
#define _DEFAULT_SOURCE
#include "fabric/probe_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SSH_PORT = 22,
    SMALL = 64,          /* bytes of the latency test */
    STEP = 6144,         /* of a small step's all-reduce */
    ROUNDS = 400,        /* most round trips of a test */
    CHUNK = 1 << 16,     /* bytes of a write */
    CONFIRMED = 1 << 14, /* that have to arrive at least */
    IP_UDP_HEADERS = 28
};

static const int64_t most_bytes = 512 * TD_MIB;
static const double stall_seconds = 1.0;

/* Once something has answered, the rest has this many times as long, and at least this. */
static const double late_factor = 10, late_seconds = 0.4;

static const char *const reach_names[] = {
#define X(code, name) name,
    TD_REACH_LIST(X)
#undef X
};

const char *td_reach_name(enum td_reach reach)
{
    return (unsigned)reach < TD_REACH_COUNT ? reach_names[reach] : "?";
}

bool td_reach_by_name(const char *name, enum td_reach *out)
{
    for (int i = 0; i < TD_REACH_COUNT; i++)
        if (strcmp(name, reach_names[i]) == 0) {
            *out = (enum td_reach)i;
            return true;
        }
    return false;
}

/* ---- sockets ------------------------------------------------------------------------ */

static bool address(const char *text, int port, struct sockaddr_in *out)
{
    *out =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return inet_pton(AF_INET, text, &out->sin_addr) == 1;
}

/* A socket on its way to a target; -1 with errno. */
static int begin(const struct td_target *t, int type, int port)
{
    struct sockaddr_in from, to;
    if (!address(t->from, 0, &from) || !address(t->to, port, &to)) {
        errno = EINVAL;
        return -1;
    }
    int one = 1, fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (type == SOCK_STREAM)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0 &&
        (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EINPROGRESS))
        return fd;
    int why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

static int left_ms(double end)
{
    double ms = 1e3 * (end - td_clock_now());
    return ms > 0 ? (int)ms + 1 : 0;
}

static bool wait_for(int fd, short events, double end)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n;
    do
        n = poll(&p, 1, left_ms(end));
    while (n < 0 && errno == EINTR && left_ms(end) > 0);
    return n == 1;
}

static bool send_all(int fd, const char *p, size_t n, double end)
{
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (k < 0 && !wait_for(fd, POLLOUT, end))
            return false;
        p += TD_MAX(k, 0);
        n -= (size_t)TD_MAX(k, 0);
    }
    return true;
}

/* Receives all of it; `spin`: looks without sleeping, which is how MPI waits. */
static bool recv_all(int fd, char *p, size_t n, bool spin, double end)
{
    while (n > 0) {
        ssize_t k = recv(fd, p, n, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (k < 0 && spin) {
            if (td_clock_now() > end)
                return false;
            (void)sched_yield();
            continue;
        }
        if (k < 0 && !wait_for(fd, POLLIN, end))
            return false;
        p += TD_MAX(k, 0);
        n -= (size_t)TD_MAX(k, 0);
    }
    return true;
}

/* ---- reachable? --------------------------------------------------------------------- */

enum stage { CONNECTING, GREETED, FINISHED };

enum { TRIES = 3 }; /* data, out of band, ssh */

/* One attempt. */
struct attempt {
    int fd;
    enum stage stage;
    struct td_target *t;
    int port;
    bool ssh;
    size_t got;
    char welcome[TD_WELCOME_BYTES];
};

static enum td_reach reach_of(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
        return TD_REACH_REFUSED;
    case ETIMEDOUT:
        return TD_REACH_TIMEOUT;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
        return TD_REACH_UNREACHABLE;
    default:
        return TD_REACH_FAILED;
    }
}

static void finish(struct attempt *a, enum td_reach reach)
{
    if (a->fd >= 0)
        (void)close(a->fd);
    a->fd = -1;
    a->stage = FINISHED;
    if (a->ssh) {
        a->t->alive = reach == TD_REACH_OK || reach == TD_REACH_REFUSED;
    } else if (reach != TD_REACH_OK && a->t->reach == TD_REACH_OK) {
        a->t->reach = reach;
        a->t->port = a->port;
    }
}

static void start(struct attempt *a)
{
    a->stage = CONNECTING;
    a->fd = begin(a->t, SOCK_STREAM, a->port);
    if (a->fd < 0)
        finish(a, reach_of(errno));
}

static void advance(struct attempt *a)
{
    int error = 0;
    socklen_t size = sizeof(error);
    if (a->stage == CONNECTING) {
        char hello[TD_HELLO_BYTES];
        if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error) {
            finish(a, reach_of(error));
            return;
        }
        if (a->ssh) {
            finish(a, TD_REACH_OK);
            return;
        }
        memcpy(hello, a->t->token, TD_TOKEN_BYTES);
        hello[TD_TOKEN_BYTES] = TD_OP_HELLO;
        if (send(a->fd, hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello))
            finish(a, TD_REACH_STRANGER);
        else
            a->stage = GREETED;
        return;
    }
    ssize_t n = recv(a->fd, a->welcome + a->got, sizeof(a->welcome) - a->got, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            finish(a, TD_REACH_STRANGER);
        return;
    }
    a->got += (size_t)n;
    if (a->got == sizeof(a->welcome))
        finish(a, memcmp(a->welcome, TD_WELCOME, sizeof(a->welcome)) == 0
                      ? TD_REACH_OK
                      : TD_REACH_STRANGER);
}

/* Fills the poll set; how many attempts are connecting, and how many were greeted. */
static void count_open(const struct attempt *a, struct pollfd *p, int n,
                       int *connecting, int *greeted)
{
    *connecting = *greeted = 0;
    for (int i = 0; i < n; i++) {
        short events = a[i].stage == CONNECTING ? POLLOUT : POLLIN;
        p[i] = (struct pollfd){.fd = a[i].fd, .events = events};
        *connecting += a[i].stage == CONNECTING;
        *greeted += a[i].stage == GREETED;
    }
}

static void attempt_all(struct attempt *a, struct pollfd *p, int n, double end,
                        bool hurry)
{
    double began = td_clock_now(), until = end;
    int connecting, greeted;
    for (int i = 0; i < n; i++)
        start(&a[i]);
    for (;;) {
        count_open(a, p, n, &connecting, &greeted);
        int ms = left_ms(greeted ? end : until);
        if (!(connecting + greeted) || ms == 0)
            break;
        if (poll(p, (nfds_t)n, ms) < 0 && errno != EINTR)
            break;
        for (int i = 0; i < n; i++) {
            if (a[i].stage == FINISHED || !p[i].revents)
                continue;
            advance(&a[i]);
            double now = td_clock_now();
            double more = TD_MAX(late_seconds, late_factor * (now - began));
            until = hurry ? TD_MIN(end, now + more) : end;
        }
    }
    for (int i = 0; i < n; i++)
        if (a[i].stage != FINISHED)
            finish(&a[i], a[i].stage == GREETED ? TD_REACH_STRANGER : TD_REACH_TIMEOUT);
}

void td_probe_connect(struct td_target *targets, int n, double seconds, bool hurry)
{
    size_t count = (size_t)n * TRIES + 1;
    struct attempt *a = td_calloc(count, sizeof(*a));
    struct pollfd *p = td_calloc(count, sizeof(*p));
    for (int i = 0; i < n; i++) {
        struct td_target *t = &targets[i];
        t->reach = a && p ? TD_REACH_OK : TD_REACH_FAILED;
        t->alive = false;
        t->port = 0;
        if (!a || !p)
            continue;
        a[i] = (struct attempt){.t = t, .port = t->ports.data};
        a[n + i] = (struct attempt){.t = t, .port = t->ports.oob};
        a[n + n + i] = (struct attempt){.t = t, .port = SSH_PORT, .ssh = true};
    }
    if (a && p)
        attempt_all(a, p, TRIES * n, td_clock_now() + seconds, hurry);
    td_free(a);
    td_free(p);
}

/* ---- how fast? ---------------------------------------------------------------------- */

/* A conversation of one kind, the welcome received; -1 when it does not come about. */
static int converse(const struct td_target *t, char op, double end)
{
    char hello[TD_HELLO_BYTES], welcome[TD_WELCOME_BYTES];
    int fd = begin(t, SOCK_STREAM, t->ports.data);
    memcpy(hello, t->token, TD_TOKEN_BYTES);
    hello[TD_TOKEN_BYTES] = op;
    if (fd >= 0 && wait_for(fd, POLLOUT, end) &&
        send_all(fd, hello, sizeof(hello), end) &&
        recv_all(fd, welcome, sizeof(welcome), false, end) &&
        memcmp(welcome, TD_WELCOME, sizeof(welcome)) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of half a round trip, in us; 0 when none succeeded. */
static double ping(int fd, size_t bytes, double seconds)
{
    char out[STEP] = {0}, in[STEP];
    double us[ROUNDS], end = td_clock_now() + seconds;
    int n = 0;
    while (n < ROUNDS && (n < 3 || td_clock_now() < end)) {
        double start = td_clock_now(), patience = start + stall_seconds;
        if (!send_all(fd, out, bytes, patience) ||
            !recv_all(fd, in, bytes, true, patience))
            return 0;
        us[n++] = (td_clock_now() - start) * 0.5e6;
    }
    qsort(us, (size_t)n, sizeof(us[0]), compare);
    return us[n / 2];
}

static enum td_status measure_latency(const struct td_target *t, double seconds,
                                      struct td_link *out, struct td_error *err)
{
    int fd = converse(t, TD_OP_ECHO, td_clock_now() + stall_seconds);
    if (fd >= 0) {
        (void)ping(fd, SMALL, seconds / 8); /* both sides warm */
        out->latency_us = ping(fd, SMALL, seconds / 2);
        out->exchange_us = ping(fd, STEP, seconds / 2);
        (void)close(fd);
    }
    if (out->latency_us > 0 && out->exchange_us > 0)
        return TD_OK;
    td_error_set(err, TD_E_TIMEOUT, "%s does not answer messages of %d bytes", t->to,
                 out->latency_us > 0 ? STEP : SMALL);
    td_error_why(err, "a connection was made, but data did not come back within %.0f s",
                 stall_seconds);
    return TD_E_TIMEOUT;
}

/* Sends for so long, or until the link stands still; the bytes that were handed over. */
static int64_t flood(int fd, const char *chunk, double seconds)
{
    double end = td_clock_now() + seconds;
    int64_t sent = 0;
    while (sent < most_bytes && td_clock_now() < end) {
        if (!send_all(fd, chunk, CHUNK, td_clock_now() + stall_seconds))
            return sent;
        sent += CHUNK;
    }
    (void)shutdown(fd, SHUT_WR);
    return sent;
}

/* What the listener counted, in GB/s. When its answer is late, the link is slow: then
 * what it has confirmed so far, 0 when that is next to nothing. */
static double count_arrived(int fd, int64_t sent, double began)
{
    char answer[TD_SINK_ANSWER] = "", *next = NULL;
    int left = 0;
    if (recv_all(fd, answer, sizeof(answer), false, td_clock_now() + stall_seconds)) {
        answer[sizeof(answer) - 1] = 0;
        double bytes = (double)strtoll(answer, &next, 10);
        double ns = (double)strtoll(next, NULL, 10);
        return bytes > 0 && ns > 0 ? bytes / ns : 0;
    }
    if (ioctl(fd, SIOCOUTQ, &left) != 0 || sent - left < CONFIRMED)
        return 0;
    return (double)(sent - left) / (td_clock_now() - began) * 1e-9;
}

static enum td_status measure_bandwidth(const struct td_target *t, double seconds,
                                        struct td_link *out, struct td_error *err)
{
    char *chunk = td_calloc(1, CHUNK);
    if (!chunk)
        return td_error_set(err, TD_E_NOMEM, "no memory to measure bandwidth");
    int fd = converse(t, TD_OP_SINK, td_clock_now() + stall_seconds);
    if (fd >= 0) {
        double began = td_clock_now();
        int64_t sent = flood(fd, chunk, seconds);
        out->gbytes = count_arrived(fd, sent, began);
        (void)close(fd);
    }
    td_free(chunk);
    if (out->gbytes > 0)
        return TD_OK;
    td_error_set(err, TD_E_MTU, "a stream of data to %s stands still", t->to);
    td_error_why(err, "small messages pass, full packets do not arrive within %.0f s",
                 stall_seconds);
    return TD_E_MTU;
}

/* Datagrams of several sizes that must not be cut; the largest that is answered. */
static int64_t measure_mtu(const struct td_target *t)
{
    static const int sizes[] = {65535, 9216, 9000, 4200, 4096, 1500, 1420, 1280, 576};
    int probe = IP_PMTUDISC_PROBE, own = 0;
    socklen_t size = sizeof(own);
    int64_t best = 0;
    int fd = begin(t, SOCK_DGRAM, t->ports.data);
    char *data = td_calloc(1, 65536);
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe));
    if (fd < 0 || !data || getsockopt(fd, IPPROTO_IP, IP_MTU, &own, &size) != 0)
        goto out;
    memcpy(data, t->token, TD_TOKEN_BYTES);
    for (int try = 0; try < 3 && best < own; try++) {
        char answer[TD_TOKEN_BYTES + TD_LENGTH_DIGITS + 1];
        (void)send(fd, data, (size_t)(TD_MIN(own, 65535) - IP_UDP_HEADERS), 0);
        for (size_t i = 0; i < TD_COUNT(sizes); i++)
            if (sizes[i] < own)
                (void)send(fd, data, (size_t)(sizes[i] - IP_UDP_HEADERS), 0);
        double end = td_clock_now() + 0.1;
        while (best < own && wait_for(fd, POLLIN, end)) {
            ssize_t n = recv(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT);
            if (n != (ssize_t)sizeof(answer) - 1)
                break;
            answer[n] = 0;
            best = TD_MAX(best,
                          strtoll(answer + TD_TOKEN_BYTES, NULL, 10) + IP_UDP_HEADERS);
        }
    }
out:
    if (fd >= 0)
        (void)close(fd);
    td_free(data);
    return TD_MIN(best, own);
}

enum td_status td_probe_measure(const struct td_target *target, double seconds,
                                struct td_link *out, struct td_error *err)
{
    *out = (struct td_link){0};
    out->path_mtu = measure_mtu(target);
    enum td_status s = measure_latency(target, seconds / 2, out, err);
    if (s == TD_OK)
        s = measure_bandwidth(target, seconds / 2, out, err);
    return s;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The passive side of the measurements: one thread, one poll loop, a handful of small
 * conversations. See probe.h and probe_int.h for what is said.
 */
#define _DEFAULT_SOURCE
#include "fabric/probe_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNS = 256,
    CHUNK = 1 << 18,
    BACKLOG = 128,
    FIXED_FDS = 4,    /* the wake-up pipe, two of TCP, UDP */
    SPIN_NS = 200000, /* how long an echo waits for the next one before it sleeps */
    IDLE_S = 5        /* a conversation that stands still is dropped */
};

struct conn {
    int fd;
    size_t got; /* bytes of the greeting */
    char hello[TD_HELLO_BYTES];
    int64_t bytes, first_ns, last_ns;
    int64_t seen_ns;
};

struct td_listener {
    char token[TD_TOKEN_BYTES + 1];
    int tcp, oob, udp, wake[2];
    pthread_t thread;
    struct conn conns[CONNS];
    int n;
    char chunk[CHUNK];
};

bool td_token_make(char token[TD_TOKEN_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[TD_TOKEN_BYTES / 2];
    if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
        return false;
    for (size_t i = 0; i < sizeof(raw); i++) {
        token[2 * i] = digits[raw[i] >> 4];
        token[2 * i + 1] = digits[raw[i] & 15];
    }
    token[TD_TOKEN_BYTES] = 0;
    return true;
}

/* ---- conversations ------------------------------------------------------------------ */

/* Echoes, and stays for a moment: the next message is on its way. */
static bool serve_echo(struct td_listener *l, struct conn *c)
{
    int64_t until = td_clock_ns() + SPIN_NS;
    for (;;) {
        ssize_t n = recv(c->fd, l->chunk, sizeof(l->chunk), MSG_DONTWAIT);
        if (n > 0) {
            if (send(c->fd, l->chunk, (size_t)n, MSG_NOSIGNAL) != n)
                return false;
            until = td_clock_ns() + SPIN_NS;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return false;
        } else if (td_clock_ns() > until) {
            return true;
        } else {
            (void)sched_yield();
        }
    }
}

/* Swallows, and says at the end how much in which time. */
static bool serve_sink(struct td_listener *l, struct conn *c)
{
    char answer[TD_SINK_ANSWER];
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(c->fd, l->chunk, sizeof(l->chunk), MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        c->last_ns = td_clock_ns();
        if (!c->bytes)
            c->first_ns = c->last_ns;
        c->bytes += n;
        if (n == 0) {
            (void)snprintf(answer, sizeof(answer), "%19lld %19lld\n",
                           (long long)c->bytes, (long long)(c->last_ns - c->first_ns));
            (void)send(c->fd, answer, sizeof(answer), MSG_NOSIGNAL);
            return false;
        }
    }
    return true;
}

static bool serve_hello(struct td_listener *l, struct conn *c)
{
    ssize_t n = recv(c->fd, c->hello + c->got, TD_HELLO_BYTES - c->got, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    c->got += (size_t)n;
    if (c->got < TD_HELLO_BYTES)
        return true;
    return memcmp(c->hello, l->token, TD_TOKEN_BYTES) == 0 &&
           send(c->fd, TD_WELCOME, TD_WELCOME_BYTES, MSG_NOSIGNAL) == TD_WELCOME_BYTES;
}

/* False when the conversation is over. */
static bool serve(struct td_listener *l, struct conn *c)
{
    if (c->got < TD_HELLO_BYTES)
        return serve_hello(l, c);
    if (c->hello[TD_TOKEN_BYTES] == TD_OP_ECHO)
        return serve_echo(l, c);
    return c->hello[TD_TOKEN_BYTES] == TD_OP_SINK && serve_sink(l, c);
}

static void answer_datagram(struct td_listener *l)
{
    struct sockaddr_in from;
    socklen_t size = sizeof(from);
    char answer[TD_TOKEN_BYTES + TD_LENGTH_DIGITS + 1];
    ssize_t n = recvfrom(l->udp, l->chunk, sizeof(l->chunk), MSG_DONTWAIT,
                         (struct sockaddr *)&from, &size);
    if (n < TD_TOKEN_BYTES || memcmp(l->chunk, l->token, TD_TOKEN_BYTES) != 0)
        return;
    (void)snprintf(answer, sizeof(answer), "%s%*d", l->token, TD_LENGTH_DIGITS, (int)n);
    (void)sendto(l->udp, answer, sizeof(answer) - 1, MSG_NOSIGNAL,
                 (struct sockaddr *)&from, size);
}

static void welcome_caller(struct td_listener *l, int from)
{
    int fd = accept(from, NULL, NULL), one = 1;
    if (fd < 0)
        return;
    if (l->n == CONNS) {
        (void)close(fd);
        return;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    l->conns[l->n++] = (struct conn){.fd = fd, .seen_ns = td_clock_ns()};
}

/* ---- the loop ----------------------------------------------------------------------- */

static void *loop(void *arg)
{
    struct td_listener *l = arg;
    struct pollfd p[FIXED_FDS + CONNS];
    for (;;) {
        int n = l->n;
        nfds_t fds = FIXED_FDS;
        p[0] = (struct pollfd){.fd = l->wake[0], .events = POLLIN};
        p[1] = (struct pollfd){.fd = l->tcp, .events = POLLIN};
        p[2] = (struct pollfd){.fd = l->udp, .events = POLLIN};
        p[3] = (struct pollfd){.fd = l->oob, .events = POLLIN};
        for (int i = 0; i < n; i++)
            p[FIXED_FDS + i] = (struct pollfd){.fd = l->conns[i].fd, .events = POLLIN};
        fds += (nfds_t)n;
        if (poll(p, fds, 1000) < 0 && errno != EINTR)
            return NULL;
        if (p[0].revents)
            return NULL;
        int64_t now = td_clock_ns();
        for (int i = n - 1; i >= 0;
             i--) { /* from the end: one that leaves makes room */
            struct conn *c = &l->conns[i];
            bool idle = now - c->seen_ns > IDLE_S * INT64_C(1000000000);
            if (p[FIXED_FDS + i].revents)
                c->seen_ns = now;
            if (p[FIXED_FDS + i].revents ? serve(l, c) : !idle)
                continue;
            (void)close(c->fd);
            l->conns[i] = l->conns[--l->n];
        }
        if (p[1].revents)
            welcome_caller(l, l->tcp);
        if (p[2].revents)
            answer_datagram(l);
        if (p[3].revents)
            welcome_caller(l, l->oob);
    }
}

static int bound_socket(int type, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (type == SOCK_STREAM)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
        (type != SOCK_STREAM || listen(fd, BACKLOG) == 0))
        return fd;
    (void)close(fd);
    return -1;
}

static bool find_ports(struct td_listener *l, struct td_ports *ports)
{
    for (int i = 0; i < TD_PORT_OOB_COUNT && l->oob < 0; i++) {
        ports->oob = TD_PORT_OOB_FIRST + i;
        l->oob = bound_socket(SOCK_STREAM, ports->oob);
    }
    for (int i = 0; i < TD_PORT_MPI_COUNT && l->oob >= 0; i++) {
        ports->data = TD_PORT_MPI_FIRST + i;
        l->tcp = bound_socket(SOCK_STREAM, ports->data);
        l->udp = l->tcp < 0 ? -1 : bound_socket(SOCK_DGRAM, ports->data);
        if (l->udp >= 0)
            return true;
        if (l->tcp >= 0)
            (void)close(l->tcp);
        l->tcp = -1;
    }
    return false;
}

static void close_all(struct td_listener *l)
{
    const int fds[] = {l->wake[0], l->tcp, l->oob, l->udp};
    for (size_t i = 0; i < TD_COUNT(fds); i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    for (int i = 0; i < l->n; i++)
        (void)close(l->conns[i].fd);
    td_free(l);
}

enum td_status td_listener_new(const char *token, struct td_listener **out,
                               struct td_ports *ports, struct td_error *err)
{
    struct td_listener *l = td_calloc(1, sizeof(*l));
    if (!l)
        return td_error_set(err, TD_E_NOMEM, "no memory for a listener");
    l->tcp = l->oob = l->udp = -1;
    if (pipe(l->wake) != 0) {
        td_free(l);
        return td_error_set(err, TD_E_IO, "cannot make a pipe: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++)
        (void)fcntl(l->wake[i], F_SETFD, FD_CLOEXEC);
    td_text_copy(l->token, sizeof(l->token), token);
    if (find_ports(l, ports) && pthread_create(&l->thread, NULL, loop, l) == 0) {
        *out = l;
        return TD_OK;
    }
    (void)close(l->wake[1]);
    close_all(l);
    td_error_set(err, TD_E_IO, "cannot listen on any of the ports %d to %d",
                 TD_PORT_OOB_FIRST, TD_PORT_MPI_FIRST + TD_PORT_MPI_COUNT - 1);
    td_error_why(err, "another program has them, or sockets are not allowed here");
    return TD_E_IO;
}

void td_listener_free(struct td_listener *l)
{
    if (!l)
        return;
    (void)close(l->wake[1]);
    (void)pthread_join(l->thread, NULL);
    close_all(l);
}

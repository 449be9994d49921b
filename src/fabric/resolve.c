/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names to addresses, with a deadline. See resolve.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "fabric/resolve.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child writes: the result of getaddrinfo(), then the addresses. */
struct answer {
    int code;
    int count;
    char addr[TD_FACT_OWN][TD_FACT_ADDR];
};

static void add(struct answer *a, const struct addrinfo *i)
{
    char text[TD_FACT_ADDR];
    const void *p = &((const struct sockaddr_in *)(const void *)i->ai_addr)->sin_addr;
    if (i->ai_family == AF_INET6)
        p = &((const struct sockaddr_in6 *)(const void *)i->ai_addr)->sin6_addr;
    if (a->count == TD_FACT_OWN || !inet_ntop(i->ai_family, p, text, sizeof(text)))
        return;
    for (int k = 0; k < a->count; k++)
        if (strcmp(a->addr[k], text) == 0)
            return;
    memcpy(a->addr[a->count++], text, sizeof(text));
}

static void look_up(const char *name, struct answer *a)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    a->code = getaddrinfo(name, NULL, &hints, &list);
    if (a->code != 0)
        return;
    for (size_t f = 0; f < TD_COUNT(families); f++)
        for (const struct addrinfo *i = list; i; i = i->ai_next)
            if (i->ai_family == families[f])
                add(a, i);
    freeaddrinfo(list);
}

static bool read_answer(int fd, double seconds, struct answer *a)
{
    double end = td_clock_now() + seconds;
    size_t n = 0;
    while (n < sizeof(*a)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ms = (int)(1e3 * (end - td_clock_now()));
        if (ms < 0 || (poll(&p, 1, ms) < 0 && errno != EINTR))
            return false;
        if (!(p.revents & (POLLIN | POLLHUP)))
            continue;
        ssize_t got = read(fd, (char *)a + n, sizeof(*a) - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
    }
    return a->count >= 0 && a->count <= TD_FACT_OWN;
}

int td_resolve(const char *name, double seconds, char (*out)[TD_FACT_ADDR], int max,
               char *why, size_t size)
{
    struct answer a = {0};
    int fd[2], n = 0;
    if (size)
        *why = 0;
    if (pipe(fd) != 0)
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        look_up(name, &a);
        _exit(write(fd[1], &a, sizeof(a)) == (ssize_t)sizeof(a) ? 0 : 1);
    }
    (void)close(fd[1]);
    bool answered = pid > 0 && read_answer(fd[0], seconds, &a);
    (void)close(fd[0]);
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (!answered)
        (void)(size &&
               snprintf(why, size, "no name server answered within %.1f s", seconds));
    else if (a.code != 0)
        (void)(size && snprintf(why, size, "%s", gai_strerror(a.code)));
    for (; answered && n < TD_MIN(a.count, max); n++) {
        a.addr[n][TD_FACT_ADDR - 1] = 0;
        memcpy(out[n], a.addr[n], TD_FACT_ADDR);
    }
    return n;
}

/* ---- addresses as text -------------------------------------------------------------- */

bool td_addr_is_loopback(const char *text)
{
    return td_addr_in(text, "127.0.0.0/8") || td_addr_in(text, "::1/128");
}

bool td_addr_in(const char *addr, const char *cidr)
{
    unsigned char a[16], b[16];
    char net[TD_FACT_ADDR];
    const char *slash = strchr(cidr, '/');
    int family = strchr(addr, ':') ? AF_INET6 : AF_INET,
        most = family == AF_INET ? 32 : 128;
    if (!slash || (size_t)(slash - cidr) >= sizeof(net))
        return false;
    memcpy(net, cidr, (size_t)(slash - cidr));
    net[slash - cidr] = 0;
    char *end = NULL;
    long bits = strtol(slash + 1, &end, 10);
    if (end == slash + 1 || *end || bits < 0 || bits > most ||
        inet_pton(family, addr, a) != 1 || inet_pton(family, net, b) != 1)
        return false;
    for (int i = 0; i < (int)bits; i++)
        if (((a[i / 8] ^ b[i / 8]) >> (7 - i % 8)) & 1)
            return false;
    return true;
}

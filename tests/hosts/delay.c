/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delay A B USEC: a cable between two interfaces that holds every frame for USEC
 * microseconds, for testbed.sh on kernels without netem. One thread, two queues of
 * frames; frames travel with their offload headers (they can be 64 KiB long, with
 * checksums still to be filled in).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { QUEUE = 1024, LONGEST = 70000, SPIN_NS = 40000 };

struct frame {
    int64_t due; /* when it is to be sent on */
    size_t len;
    char bytes[LONGEST];
};

struct direction {
    int in, out;
    unsigned first, count;
    struct frame *queue;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value));
}

static int open_interface(const char *name)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0);
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(name)};
    if (fd < 0 || set(fd, SOL_PACKET, PACKET_VNET_HDR, 1) ||
        set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) ||
        set(fd, SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20) ||
        set(fd, SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20) ||
        bind(fd, (struct sockaddr *)&at, sizeof(at))) {
        perror(name);
        exit(1);
    }
    return fd;
}

static void take(struct direction *d, int64_t delay)
{
    while (d->count < QUEUE) {
        struct frame *f = &d->queue[(d->first + d->count) % QUEUE];
        ssize_t n = recv(d->in, f->bytes, LONGEST, 0);
        if (n <= 0)
            return;
        f->len = (size_t)n;
        f->due = now_ns() + delay;
        d->count++;
    }
}

/* Sends what is due; when the next one is, or INT64_MAX. */
static int64_t give(struct direction *d)
{
    for (; d->count; d->first = (d->first + 1) % QUEUE, d->count--) {
        struct frame *f = &d->queue[d->first];
        if (f->due > now_ns())
            return f->due;
        (void)!send(d->out, f->bytes, f->len, 0); /* a lost frame is sent again */
    }
    return INT64_MAX;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: delay A B USEC\n");
        return 2;
    }
    int64_t delay = strtoll(argv[3], NULL, 10) * 1000;
    int a = open_interface(argv[1]), b = open_interface(argv[2]);
    struct direction way[2] = {{.in = a, .out = b}, {.in = b, .out = a}};
    struct sched_param first = {.sched_priority = 1};
    for (int i = 0; i < 2; i++) {
        way[i].queue = malloc(QUEUE * sizeof(struct frame));
        if (!way[i].queue)
            return 1;
    }
    prctl(PR_SET_TIMERSLACK, 1);
    if (sched_setscheduler(0, SCHED_FIFO, &first))
        perror("delay: ordinary priority");
    for (;;) {
        struct pollfd p[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
        int64_t next = INT64_MAX;
        for (int i = 0; i < 2; i++) {
            take(&way[i], delay);
            int64_t due = give(&way[i]);
            next = due < next ? due : next;
        }
        int64_t left = next - now_ns();
        struct timespec t = {.tv_sec = (left - SPIN_NS) / 1000000000,
                             .tv_nsec = (left - SPIN_NS) % 1000000000};
        if (next == INT64_MAX)
            ppoll(p, 2, NULL, NULL);
        else if (left > SPIN_NS) /* the last moment is spent spinning */
            ppoll(p, 2, &t, NULL);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtandem-mpi.so: messages between ranks over MPI. See comm/transport.h.
 */
#define _DEFAULT_SOURCE /* TCP_USER_TIMEOUT */
#include "comm/transport.h"
#include "base/compiler.h"
#include "base/limits.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TAG = 7, MOST_GUARDED = 2 * TD_MAX_RANKS };

static MPI_Request sending[TD_MAX_RANKS], receiving[TD_MAX_RANKS];
static char failure[MPI_MAX_ERROR_STRING + 1];
static int guarded[MOST_GUARDED], guards;

TD_EXPORT int td_transport_version(void);
TD_EXPORT int td_transport_open(struct td_transport *out, char *why, size_t size);

static int check(int code)
{
    int n = 0;
    if (code == MPI_SUCCESS)
        return 1;
    if (MPI_Error_string(code, failure, &n) != MPI_SUCCESS)
        n = 0;
    failure[n] = '\0';
    return -1;
}

static int start_send(int peer, const void *p, size_t bytes)
{
    if (bytes > INT_MAX)
        return check(MPI_ERR_COUNT);
    return check(
        MPI_Isend(p, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &sending[peer]));
}

static int start_receive(int peer, void *p, size_t bytes)
{
    if (bytes > INT_MAX)
        return check(MPI_ERR_COUNT);
    return check(MPI_Irecv(p, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                           &receiving[peer]));
}

static int test(MPI_Request *r)
{
    int done = 0;
    int ok = check(MPI_Test(r, &done, MPI_STATUS_IGNORE));
    return ok < 0 ? ok : done;
}

static int is_sent(int peer)
{
    return test(&sending[peer]);
}

static int is_received(int peer)
{
    return test(&receiving[peer]);
}

static const char *last_failure(void)
{
    return failure;
}

static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

/* Is it a TCP connection? */
static int is_connection(int fd)
{
    struct sockaddr_storage peer;
    socklen_t n = sizeof(peer), m = sizeof(int);
    int type = 0;
    return getpeername(fd, (struct sockaddr *)&peer, &n) == 0 &&
           (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &m) == 0 && type == SOCK_STREAM;
}

/* Open MPI has no setting for it, does not say which descriptors are its own, and closes
 * one that failed without a word: all connections of this process get it, and are kept
 * in duplicate. */
static void guard(int seconds)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *e;
    while (dir && (e = readdir(dir)) != NULL && guards < MOST_GUARDED) {
        int fd = (int)strtol(e->d_name, NULL, 10);
        if (*e->d_name == '.' || !is_connection(fd))
            continue;
        set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
        set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
        set(fd, IPPROTO_TCP, TCP_KEEPCNT, seconds);
        set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
            guarded[guards++] = fd;
    }
    if (dir)
        (void)closedir(dir);
}

static int is_whole(void)
{
    for (int i = 0; i < guards; i++) {
        struct tcp_info t;
        socklen_t n = sizeof(t);
        if (getsockopt(guarded[i], IPPROTO_TCP, TCP_INFO, &t, &n) != 0 ||
            t.tcpi_state == TCP_ESTABLISHED)
            continue;
        (void)snprintf(failure, sizeof(failure), "a connection has ended");
        return -1;
    }
    return 1;
}

/* The duplicates would keep connections open that MPI closes to say that it ends. */
static void finish(void)
{
    while (guards > 0)
        (void)close(guarded[--guards]);
    (void)MPI_Finalize();
}

int td_transport_version(void)
{
    return TD_TRANSPORT_VERSION;
}

/* Which of the ranks of this host, and of how many. */
static int find_neighbours(struct td_transport *t)
{
    MPI_Comm here;
    int ok = check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0,
                                       MPI_INFO_NULL, &here));
    if (ok > 0)
        ok = check(MPI_Comm_rank(here, &t->local_rank));
    if (ok > 0)
        ok = check(MPI_Comm_size(here, &t->local_ranks));
    return ok > 0 ? check(MPI_Comm_free(&here)) : ok;
}

int td_transport_open(struct td_transport *out, char *why, size_t size)
{
    int have = 0, n = 0;
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    struct td_transport t = {.send = start_send,
                             .receive = start_receive,
                             .sent = is_sent,
                             .received = is_received,
                             .guard = guard,
                             .whole = is_whole,
                             .why = last_failure,
                             .close = finish};
    int ok = check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &have));
    if (ok > 0)
        ok = check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (ok > 0)
        ok = check(MPI_Comm_rank(MPI_COMM_WORLD, &t.rank));
    if (ok > 0)
        ok = check(MPI_Comm_size(MPI_COMM_WORLD, &t.ranks));
    if (ok > 0 && t.ranks <= TD_MAX_RANKS)
        ok = find_neighbours(&t);
    if (ok > 0)
        ok = check(MPI_Get_library_version(text, &n));
    if (ok > 0 && have < MPI_THREAD_SERIALIZED) {
        (void)snprintf(failure, sizeof(failure),
                       "this MPI may not be used by several threads");
        ok = -1;
    }
    for (int r = 0; r < TD_MAX_RANKS; r++)
        sending[r] = receiving[r] = MPI_REQUEST_NULL;
    if (ok < 0) {
        (void)snprintf(why, size, "%s", failure);
        return ok;
    }
    text[strcspn(text, ",\n")] = '\0';
    (void)snprintf(t.library, sizeof(t.library), "%.200s", text);
    *out = t;
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard files for rank 0. See hand.h.
 */
#define _GNU_SOURCE /* struct ucred */
#include "launch/hand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FILES = 3, ROOM = 64 };

/* Three descriptors behind a byte that carries them. */
struct parcel {
    char byte;
    struct iovec data;
    _Alignas(16) char control[ROOM]; /* room for a struct cmsghdr and the files */
    struct msghdr m;
};

static void wrap(struct parcel *p)
{
    memset(p, 0, sizeof(*p));
    p->data = (struct iovec){.iov_base = &p->byte, .iov_len = 1};
    p->m = (struct msghdr){.msg_iov = &p->data,
                           .msg_iovlen = 1,
                           .msg_control = p->control,
                           .msg_controllen = CMSG_SPACE(FILES * sizeof(int))};
}

enum td_status td_hand_over(int socket, pid_t *pid, struct td_error *err)
{
    static const int files[FILES] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
    struct ucred other;
    socklen_t size = sizeof(other);
    struct parcel p;
    wrap(&p);
    struct cmsghdr *c = CMSG_FIRSTHDR(&p.m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(files));
    memcpy(CMSG_DATA(c), files, sizeof(files));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0 ||
        sendmsg(socket, &p.m, MSG_NOSIGNAL) != 1)
        return td_error_set(err, TD_E_PEER,
                            "cannot hand the terminal over to rank 0: %s",
                            strerror(errno));
    *pid = other.pid;
    return TD_OK;
}

static bool receive(int fd, int files[FILES])
{
    struct parcel p;
    ssize_t n;
    wrap(&p);
    do
        n = recvmsg(fd, &p.m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    const struct cmsghdr *c = n == 1 ? CMSG_FIRSTHDR(&p.m) : NULL;
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(FILES * sizeof(int)))
        return false;
    memcpy(files, CMSG_DATA(c), FILES * sizeof(int));
    return true;
}

enum td_status td_hand_take(const char *path, int *out, int *sock, struct td_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int files[FILES];
    if (strlen(path) >= sizeof(at.sun_path))
        return td_error_set(err, TD_E_USAGE, "--socket %s is too long", path);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        !receive(fd, files)) {
        td_error_set(err, TD_E_PEER, "cannot get the terminal from %s: %s", path,
                     strerror(errno));
        td_error_why(err, "the process that started the ranks is gone");
        if (fd >= 0)
            (void)close(fd);
        return TD_E_PEER;
    }
    *out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, FILES);
    *sock = fd;
    for (int i = 0; i < FILES; i++) {
        (void)dup2(files[i], i);
        (void)close(files[i]);
    }
    return TD_OK;
}

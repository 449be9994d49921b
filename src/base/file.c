/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files. See file.h.
 */
#define _DEFAULT_SOURCE /* preadv */
#include "base/file.h"

#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool td_is_lfs_pointer(const char *p, size_t n)
{
    static const char head[] = "version https://git-lfs.github.com/spec/";
    return n >= sizeof(head) - 1 && memcmp(p, head, sizeof(head) - 1) == 0;
}

static enum td_status read_all(int fd, const char *path, size_t size,
                               struct td_buf *out, struct td_error *err)
{
    if (td_buf_reserve(out, size) != TD_OK)
        return td_error_set(err, out->status, "cannot hold %s (%zu bytes)", path, size);
    while (out->len < size) {
        ssize_t n = read(fd, out->p + out->len, size - out->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return td_error_set(err, TD_E_IO, "cannot read %s: %s", path,
                                strerror(errno));
        if (n == 0)
            break;
        td_buf_set_len(out, out->len + (size_t)n);
    }
    return TD_OK;
}

enum td_status td_file_cannot_open(const char *path, int error, struct td_error *err)
{
    char target[TD_MAX_PATH];
    bool missing = error == ENOENT || error == ENOTDIR;
    enum td_status s = missing ? TD_E_NOT_FOUND : TD_E_IO;
    td_error_set(err, s, "cannot open %s: %s", path, strerror(error));
    if (error == EMFILE || error == ENFILE) {
        td_error_why(err, "too many files are open at once");
        td_error_fix(err, "raise the limit (ulimit -n)");
        return s;
    }
    if (error == EACCES) {
        td_error_why(err, "this user may not read it, or not enter its folder");
        td_error_fix(err, "change its permissions (chmod a+r), or start tandem as its "
                          "owner");
        return s;
    }
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n > 0) {
        target[n] = 0;
        td_error_why(err, "it is a symbolic link to %s, which cannot be reached",
                     target);
        td_error_fix(err, "copy the files that links point to as well (cp -rL), or "
                          "fetch the file again");
    }
    return s;
}

enum td_status td_file_open(const char *path, int *fd, int64_t *size,
                            struct td_error *err)
{
    struct stat st;
    /* without O_NONBLOCK a pipe of that name would wait for its writer */
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f < 0)
        return td_file_cannot_open(path, errno, err);
    if (fstat(f, &st) != 0 || !S_ISREG(st.st_mode)) {
        td_error_set(err, TD_E_IO, "%s is not a regular file", path);
        td_error_why(err, S_ISDIR(st.st_mode) ? "it is a directory"
                                              : "it is a pipe, a socket or a device");
        td_error_fix(err, "put the file itself in its place");
        (void)close(f);
        return TD_E_IO;
    }
    *fd = f;
    *size = (int64_t)st.st_size;
    return TD_OK;
}

enum td_status td_file_read(const char *path, struct td_buf *out, struct td_error *err)
{
    int64_t size = 0;
    int fd = -1;
    enum td_status s = td_file_open(path, &fd, &size, err);
    if (s != TD_OK)
        return s;
    if ((uint64_t)size > out->max) {
        s = td_error_set(err, TD_E_LIMIT, "%s has %lld bytes, at most %zu are read",
                         path, (long long)size, out->max);
        goto out;
    }
    s = read_all(fd, path, (size_t)size, out, err);
    if (s == TD_OK && td_is_lfs_pointer(out->p, out->len))
        s = td_error_set(err, TD_E_LFS_POINTER, "%s is a Git-LFS pointer", path);
out:
    (void)close(fd);
    return s;
}

static _Atomic long fail_at;
static _Atomic int fail_error;

void td_pread_fail_at(long n, int error)
{
    atomic_store(&fail_error, error);
    atomic_store(&fail_at, n);
}

static bool must_fail(void)
{
    if (atomic_load(&fail_at) <= 0 || atomic_fetch_sub(&fail_at, 1) != 1)
        return false;
    errno = atomic_load(&fail_error);
    return true;
}

ssize_t td_pread(int fd, void *out, size_t n, int64_t offset)
{
    struct iovec part = {.iov_base = out, .iov_len = n};
    return td_preadv(fd, &part, 1, offset);
}

ssize_t td_preadv(int fd, struct iovec *to, int n, int64_t offset)
{
    ssize_t done = 0;
    if (must_fail())
        return errno ? -1 : 0;
    while (n > 0) {
        ssize_t got = preadv(fd, to, n, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += got;
        for (; n > 0 && (size_t)got >= to->iov_len; to++, n--)
            got -= (ssize_t)to->iov_len;
        if (n > 0) {
            to->iov_base = (char *)to->iov_base + got;
            to->iov_len -= (size_t)got;
        }
    }
    return done;
}

bool td_file_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

bool td_file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum td_status td_path_join(char *out, size_t size, const char *dir, const char *name,
                            struct td_error *err)
{
    int n = snprintf(out, size, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= size)
        return td_error_set(err, TD_E_LIMIT, "the path %s/%s is too long", dir, name);
    return TD_OK;
}

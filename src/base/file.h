/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files: read whole, with a ceiling. Weights have their own reader in `load`.
 */
#ifndef TD_BASE_FILE_H
#define TD_BASE_FILE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Reports that opening a path failed with that errno, and as far as the system tells
 * what stands in the way (a link to nowhere, permissions): TD_E_NOT_FOUND, TD_E_IO. */
enum td_status td_file_cannot_open(const char *path, int error, struct td_error *err);

/* Opens a regular file for reading. *fd is the caller's to close, *size its bytes. Fails
 * as above, or with TD_E_IO when it is something else than a regular file. */
enum td_status td_file_open(const char *path, int *fd, int64_t *size,
                            struct td_error *err);

/* Reads a regular file into an initialised, empty buffer. Errors name the path:
 * TD_E_NOT_FOUND, TD_E_IO, TD_E_LIMIT (larger than out->max), TD_E_NOMEM,
 * TD_E_LFS_POINTER when the file is a Git-LFS pointer. */
enum td_status td_file_read(const char *path, struct td_buf *out, struct td_error *err);

/* pread() that goes on after an interruption; fewer bytes mean the end of the file, -1 an
 * error in errno. */
ssize_t td_pread(int fd, void *out, size_t n, int64_t offset);

/* The same to several places, one after the other in the file; `to` is used up. */
ssize_t td_preadv(int fd, struct iovec *to, int n, int64_t offset);

/* For tests: the n-th of these two calls from now on fails (once) with this errno, or
 * finds the end of the file when it is 0; n = 0 switches that off. */
void td_pread_fail_at(long n, int error);

/* False only when the folder has no entry of that name. What cannot be opened is there
 * all the same (a link to nowhere, a folder without permission): reading it says why. */
bool td_file_exists(const char *path);

/* Links are followed. */
bool td_file_is_dir(const char *path);

/* Joins directory and name into out (size bytes); TD_E_LIMIT when it does not fit. */
enum td_status td_path_join(char *out, size_t size, const char *dir, const char *name,
                            struct td_error *err);

/* True when the bytes are a Git-LFS pointer file. */
bool td_is_lfs_pointer(const char *p, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small checkpoints in a temporary folder, whole and broken ones, and checks of errors.
 * To be included first.
 */
#ifndef TD_TESTS_CKPT_H
#define TD_TESTS_CKPT_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

struct ckpt {
    char dir[256];
};

static inline void ckpt_path(const struct ckpt *c, const char *name, char out[512])
{
    (void)snprintf(out, 512, "%s/%s", c->dir, name);
}

static inline void ckpt_init(struct ckpt *c)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(c->dir, sizeof(c->dir), "%s/tandem-test-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(c->dir));
}

/* Removes the folder and the files directly in it. */
static inline void ckpt_release(struct ckpt *c)
{
    char path[512];
    DIR *d = opendir(c->dir);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        ckpt_path(c, e->d_name, path);
        (void)unlink(path);
    }
    if (d)
        (void)closedir(d);
    (void)rmdir(c->dir);
}

static inline void ckpt_write(const struct ckpt *c, const char *name, const void *bytes,
                              size_t n)
{
    char path[512];
    ckpt_path(c, name, path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void ckpt_text(const struct ckpt *c, const char *name, const char *text)
{
    ckpt_write(c, name, text, strlen(text));
}

/* The data byte at an offset behind the header of every file that ckpt_file() writes. */
static inline unsigned char ckpt_byte(int64_t offset)
{
    return (unsigned char)((uint64_t)offset * 0x9E3779B97F4A7C15u >> 53);
}

/* A safetensors file: the length `says`, this header, n bytes of data. */
static inline void ckpt_file_saying(const struct ckpt *c, const char *name,
                                    uint64_t says, const char *header, int64_t n)
{
    char path[512];
    ckpt_path(c, name, path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        assert_int_not_equal(fputc((int)(says >> (8 * i) & 0xFF), f), EOF);
    assert_true(fputs(header, f) >= 0);
    for (int64_t i = 0; i < n; i++)
        assert_int_not_equal(fputc(ckpt_byte(i), f), EOF);
    assert_int_equal(fclose(f), 0);
}

static inline void ckpt_file(const struct ckpt *c, const char *name, const char *header,
                             int64_t n)
{
    ckpt_file_saying(c, name, strlen(header), header, n);
}

/* The error has this code, texts for a user, and says this in `what` or `why`. */
static inline void check_error(const struct td_error *err, enum td_status code,
                               const char *says)
{
    if (err->code != code ||
        (says && !strstr(err->what, says) && !strstr(err->why, says)))
        fail_msg("expected %s and \"%s\", found %s: %s | %s",
                 td_status_info(code)->slug, says ? says : "",
                 td_status_info(err->code)->slug, err->what, err->why);
    assert_true(err->what[0] != 0 && err->why[0] != 0);
    assert_true(err->fix[0] != 0 || code == TD_E_CANCELLED);
}

#endif

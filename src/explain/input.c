/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files, directories and standard input, cut into lines.
 */
#define _XOPEN_SOURCE 700
#include "explain/explain_int.h"
#include "explain/reader.h"

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WINDOW = 1 << 20,    /* bytes in memory at a time; a longer line is cut there */
    LOOK_AHEAD = 1 << 16 /* bytes after a line that multi-line records may need */
};

static bool looks_binary(const char *p, size_t n)
{
    n = TD_MIN(n, (size_t)4096);
    return n > 0 && memchr(p, 0, n) != NULL;
}

struct window {
    char *p;
    size_t at, n;
    bool end;
};

static enum td_status fill(struct td_reader *r, struct window *w)
{
    memmove(w->p, w->p + w->at, w->n - w->at);
    w->n -= w->at;
    w->at = 0;
    while (w->n < WINDOW && !w->end) {
        size_t got;
        enum td_status s = td_reader_read(r, w->p + w->n, WINDOW - w->n, &got);
        if (s != TD_OK)
            return s;
        w->n += got;
        w->end = got == 0;
    }
    return TD_OK;
}

static enum td_status each_line(struct td_explain *x, struct td_reader *r,
                                struct window *w)
{
    enum td_status s = TD_OK;
    while (s == TD_OK) {
        if (!w->end && w->n - w->at < LOOK_AHEAD)
            s = fill(r, w);
        if (s != TD_OK || w->at == w->n)
            break;
        const char *p = w->p + w->at;
        size_t left = w->n - w->at;
        const char *nl = memchr(p, '\n', left);
        if (!nl && !w->end && left < WINDOW) {
            s = fill(r, w);
            continue;
        }
        size_t n = nl ? (size_t)(nl - p) : left;
        w->at += n + (nl != NULL);
        s = td_scan_line(x, p, n, w->p + w->at, w->n - w->at);
    }
    return s;
}

/* Reads one source. inside: found in a directory, so that binary files are left out. */
static enum td_status read_source(struct td_explain *x, const char *name, int fd,
                                  const void *bytes, size_t size, bool inside,
                                  struct td_error *err)
{
    struct td_reader *r = NULL;
    struct window w = {0};
    struct td_source *src = td_scan_begin(x, name);
    if (!src)
        return x->nsources >= TD_MAX_EXPLAIN_SOURCES
                   ? TD_OK
                   : td_error_set(err, TD_E_NOMEM, "no memory to read %s", name);
    enum td_status s = td_reader_new(fd, bytes, size, &r, err);
    w.p = s == TD_OK ? td_calloc(WINDOW, 1) : NULL;
    if (s == TD_OK && !w.p)
        s = TD_E_NOMEM;
    if (s == TD_OK)
        s = fill(r, &w);
    if (s == TD_OK && inside && looks_binary(w.p, w.n))
        src->binary = true;
    else if (s == TD_OK)
        s = each_line(x, r, &w);
    if (s == TD_OK && td_reader_note(r)) {
        src = &x->sources[x->nsources - 1];
        src->note = td_reader_note(r);
        src->unreadable = true;
    }
    td_scan_end(x);
    td_free(w.p);
    td_reader_free(r);
    return s == TD_OK ? TD_OK : td_error_set(err, s, "no memory to read %s", name);
}

enum td_status td_explain_add_bytes(struct td_explain *x, const char *name,
                                    const void *p, size_t n, struct td_error *err)
{
    return read_source(x, name, -1, p, n, false, err);
}

static bool seen_before(struct td_explain *x, const struct stat *st)
{
    for (size_t i = 0; i < x->nseen; i++)
        if (x->seen[i].dev == (uint64_t)st->st_dev &&
            x->seen[i].ino == (uint64_t)st->st_ino)
            return true;
    if (x->nseen < TD_MAX_EXPLAIN_SOURCES)
        x->seen[x->nseen++] =
            (struct td_seen_file){(uint64_t)st->st_dev, (uint64_t)st->st_ino};
    return false;
}

static enum td_status add_file(struct td_explain *x, const char *path, bool inside,
                               struct td_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int e = errno;
        if (fd >= 0)
            (void)close(fd);
        if (!inside)
            return td_file_cannot_open(path, e, err);
        struct td_source *src = td_scan_begin(x, path);
        if (src) {
            src->unreadable = true;
            src->note = "cannot be opened";
            td_scan_end(x);
        }
        return TD_OK;
    }
    enum td_status s = TD_OK;
    if (!S_ISREG(st.st_mode) || !seen_before(x, &st))
        s = read_source(x, path, fd, NULL, 0, inside, err);
    (void)close(fd);
    return s;
}

static enum td_status add_dir(struct td_explain *x, const char *path, int depth,
                              struct td_error *err);

static enum td_status add_entry(struct td_explain *x, const char *dir, const char *name,
                                int depth, struct td_error *err)
{
    char path[TD_MAX_PATH];
    struct stat st, link;
    if (*name == '.' || td_path_join(path, sizeof(path), dir, name, NULL) != TD_OK)
        return TD_OK;
    if (stat(path, &st) != 0 || lstat(path, &link) != 0)
        return TD_OK;
    if (S_ISREG(st.st_mode))
        return add_file(x, path, true, err);
    /* linked folders lead in circles or to the same files again */
    if (S_ISDIR(link.st_mode) && depth < TD_MAX_EXPLAIN_DEPTH)
        return add_dir(x, path, depth + 1, err);
    return TD_OK;
}

static enum td_status add_dir(struct td_explain *x, const char *path, int depth,
                              struct td_error *err)
{
    struct dirent **names = NULL;
    int n = scandir(path, &names, NULL, alphasort);
    enum td_status s = TD_OK;
    if (n < 0 && depth == 0)
        return td_error_set(err, TD_E_IO, "cannot list %s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (s == TD_OK)
            s = add_entry(x, path, names[i]->d_name, depth, err);
        td_free(names[i]);
    }
    td_free(names);
    return s;
}

enum td_status td_explain_add_path(struct td_explain *x, const char *path,
                                   struct td_error *err)
{
    if (strcmp(path, "-") == 0)
        return read_source(x, "stdin", STDIN_FILENO, NULL, 0, false, err);
    if (td_file_is_dir(path)) {
        char dir[TD_MAX_PATH]; /* without the slash that shells add */
        size_t n = strlen(path);
        while (n > 1 && path[n - 1] == '/')
            n--;
        if (n >= sizeof(dir))
            return td_error_set(err, TD_E_LIMIT, "the path %s is too long", path);
        memcpy(dir, path, n);
        dir[n] = 0;
        return add_dir(x, dir, 0, err);
    }
    return add_file(x, path, false, err);
}

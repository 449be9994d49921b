/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a model folder, as they are compared over the hosts. See agent.h.
 *
 * Weights are not read: of a safetensors file the header is hashed, which names every
 * tensor with its place, and its size is compared. Small files are hashed whole.
 */
#define _POSIX_C_SOURCE 200809L
#include "launch/agent.h"

#include "base/file.h"
#include "base/mem.h"
#include "load/model_dir.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcmp(name + n - k, end) == 0;
}

static bool relevant(const char *name)
{
    return name[0] != '.' && strlen(name) < TD_FACT_TEXT &&
           (ends_with(name, ".safetensors") || ends_with(name, ".json") ||
            ends_with(name, ".jinja"));
}

static int by_name(const void *a, const void *b)
{
    const struct td_model_file *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static uint64_t hash_more(uint64_t h, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    return h;
}

/* How many bytes of a file are hashed. */
static int64_t hashed_bytes(int fd, const char *name, int64_t size)
{
    unsigned char head[8];
    uint64_t n = 0;
    if (!ends_with(name, ".safetensors"))
        return TD_MIN(size, (int64_t)TD_MAX_JSON_FILE);
    if (td_pread(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head))
        return size;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | head[i];
    n = TD_MIN(n, (uint64_t)TD_MAX_HEADER);
    return TD_MIN(size, (int64_t)n + 8);
}

static bool read_one(const char *path, struct td_model_file *f, struct td_error *err)
{
    unsigned char piece[65536];
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    int fd;
    if (td_file_open(path, &fd, &f->size, err) != TD_OK)
        return false;
    int64_t end = hashed_bytes(fd, f->name, f->size), at = 0;
    while (at < end) {
        size_t want = (size_t)TD_MIN(end - at, (int64_t)sizeof(piece));
        ssize_t n = td_pread(fd, piece, want, at);
        if (n <= 0)
            break;
        h = hash_more(h, piece, (size_t)n);
        at += n;
    }
    if (at < end)
        td_error_set(err, TD_E_IO, "%s cannot be read: %s", path, strerror(errno));
    (void)close(fd);
    (void)snprintf(f->hash, sizeof(f->hash), "%016" PRIx64, h);
    return at == end;
}

/* One text that has room for a line. */
static void say(struct td_facts *f, const struct td_error *e)
{
    (void)snprintf(f->model_error, sizeof(f->model_error), "%.120s: %.120s", e->what,
                   e->why);
}

/* The names, sorted. */
static void list_files(DIR *d, struct td_facts *f, struct td_error *err)
{
    for (struct dirent *e; (e = readdir(d)) != NULL && err->code == TD_OK;) {
        if (!relevant(e->d_name))
            continue;
        struct td_model_file *v =
            td_realloc(f->files, (size_t)f->n_files + 1, sizeof(*v));
        if (!v) {
            td_error_set(err, TD_E_NOMEM, "no memory for the files of %s", f->model);
            continue;
        }
        f->files = v;
        if (f->n_files == TD_MAX_MODEL_FILES) {
            td_error_set(err, TD_E_LIMIT, "%s has more than %d files", f->model,
                         TD_MAX_MODEL_FILES);
            continue;
        }
        v = &v[f->n_files++];
        *v = (struct td_model_file){.size = 0};
        td_text_copy(v->name, sizeof(v->name), e->d_name);
    }
    if (f->n_files)
        qsort(f->files, (size_t)f->n_files, sizeof(*f->files), by_name);
}

static void read_files(const char *path, struct td_facts *f, struct td_error *err)
{
    char full[TD_MAX_PATH];
    DIR *d = opendir(path);
    if (!d) {
        (void)td_file_cannot_open(path, errno, err);
        return;
    }
    list_files(d, f, err);
    (void)closedir(d);
    for (int64_t i = 0; i < f->n_files && err->code == TD_OK; i++) {
        struct td_model_file *m = &f->files[i];
        if (td_path_join(full, sizeof(full), path, m->name, err) == TD_OK &&
            read_one(full, m, err))
            f->model_bytes += ends_with(m->name, ".safetensors") ? m->size : 0;
    }
}

void td_model_files_read(const char *path, struct td_facts *f)
{
    struct td_error err;
    struct td_model_dir dir;
    td_error_init(&err);
    td_text_copy(f->model, sizeof(f->model), path);
    if (!td_file_is_dir(path)) {
        td_error_set(&err, TD_E_NOT_FOUND, "%s is no folder", path);
        td_error_why(&err, "%s",
                     td_file_exists(path) ? "it is a file" : "it is missing");
    } else if (td_model_dir_open(path, &dir, &err) == TD_OK) {
        td_model_dir_release(&dir);
        read_files(path, f, &err);
        td_facts_read_disk(path, f);
    }
    if (err.code != TD_OK)
        say(f, &err);
}

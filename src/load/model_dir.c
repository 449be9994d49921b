/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model directory. See model_dir.h.
 *
 * Shard names come from the index or from the directory, headers from the shards; then
 * both are held against each other: every name once, every name where the index says.
 */
#define _POSIX_C_SOURCE 200809L
#include "load/model_dir.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "load/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_FILE "model.safetensors.index.json"

static const char ending[] = ".safetensors";

/* What td_model_dir_open() builds, and what it needs on the way. */
struct opener {
    struct td_model_dir dir;
    struct td_tensor_list list;
    int32_t cap_shards;
    json_t *index; /* NULL: there is none */
    char index_path[TD_MAX_PATH];
    struct td_error *err;
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static enum td_status no_memory(struct opener *o)
{
    return td_error_set(o->err, TD_E_NOMEM, "no memory for the tensor table of %s",
                        o->dir.path);
}

static enum td_status add_shard(struct opener *o, const char *name)
{
    struct td_model_dir *d = &o->dir;
    char path[TD_MAX_PATH];
    if (d->n_shards >= TD_MAX_SHARDS)
        return td_error_set(o->err, TD_E_LIMIT, "%s has more than %d safetensors files",
                            d->path, TD_MAX_SHARDS);
    enum td_status s = td_path_join(path, sizeof(path), d->path, name, o->err);
    if (s != TD_OK)
        return s;
    if (d->n_shards == o->cap_shards) {
        int32_t cap = o->cap_shards ? o->cap_shards * 2 : 16;
        struct td_shard *v = td_realloc(d->shards, (size_t)cap, sizeof(*v));
        if (!v)
            return no_memory(o);
        d->shards = v;
        o->cap_shards = cap;
    }
    struct td_shard *shard = &d->shards[d->n_shards];
    *shard = (struct td_shard){
        .name = td_arena_strndup(&d->arena, name, strlen(name)),
        .path = td_arena_strndup(&d->arena, path, strlen(path)),
    };
    if (!shard->name || !shard->path)
        return no_memory(o);
    d->n_shards++;
    return TD_OK;
}

/* A file of weights that `witness` says there is. */
static enum td_status missing_shard(struct opener *o, const char *file,
                                    const char *witness)
{
    td_error_set(o->err, TD_E_NOT_FOUND, "%s is missing in %s", file, o->dir.path);
    td_error_why(o->err, "%s says that it belongs there: the download is incomplete",
                 witness);
    td_error_fix(o->err, "fetch that file into the directory");
    return TD_E_NOT_FOUND;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct td_shard *)a)->name,
                  ((const struct td_shard *)b)->name);
}

/* ---- shards from the index --------------------------------------------------------- */

/* An index may name files of its own folder only. */
static bool is_plain_name(const char *name)
{
    return !strchr(name, '/') && !strchr(name, '\\') && name[0] != '.' &&
           ends_with(name, ending);
}

static enum td_status bad_index(struct opener *o, const char *fmt, ...) TD_PRINTF(2, 3);

static enum td_status bad_index(struct opener *o, const char *fmt, ...)
{
    char text[TD_MAX_NAME + 128];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    td_error_set(o->err, TD_E_JSON, "%s: %s", o->index_path, text);
    td_error_why(o->err, "an index maps every tensor to a file beside it; this one is "
                         "damaged or was edited");
    return TD_E_JSON;
}

static enum td_status shards_from_index(struct opener *o)
{
    json_t *map = json_object_get(o->index, "weight_map");
    struct td_map seen;
    enum td_status s = TD_OK;
    td_map_init(&seen);
    if (!json_is_object(map) || json_object_size(map) == 0)
        s = bad_index(o, "\"weight_map\" is missing, expected tensor names and their "
                         "files");
    const char *file = NULL;
    for (void *it = json_object_iter(map); it && s == TD_OK;
         it = json_object_iter_next(map, it)) {
        const char *f = json_string_value(json_object_iter_value(it));
        uint64_t at = 0;
        if (!f || !is_plain_name(f))
            s = bad_index(o, "%s lies in %s, expected a *%s file of the same folder",
                          json_object_iter_key(it), f ? f : "no file", ending);
        else if ((!file || strcmp(file, f) != 0) &&
                 !td_map_get(&seen, f, strlen(f), &at)) {
            s = td_map_put(&seen, f, strlen(f), 0);
            s = s == TD_OK ? add_shard(o, f) : no_memory(o);
        }
        file = f;
    }
    td_map_release(&seen);
    if (o->dir.n_shards)
        qsort(o->dir.shards, (size_t)o->dir.n_shards, sizeof(*o->dir.shards), by_name);
    return s;
}

/* ---- shards from the directory ----------------------------------------------------- */

static enum td_status no_weights(struct opener *o, const char *other)
{
    if (*other) {
        td_error_set(o->err, TD_E_UNSUPPORTED, "%s has no *%s, only %s", o->dir.path,
                     ending, other);
        td_error_why(o->err, "%s",
                     ends_with(other, ".gguf")
                         ? "tandem does not read GGUF files"
                         : "tandem does not read PyTorch files, which "
                           "can run code when they are opened");
        td_error_fix(o->err, "fetch the model's safetensors form");
        return TD_E_UNSUPPORTED;
    }
    td_error_set(o->err, TD_E_NOT_FOUND, "%s has no *%s", o->dir.path, ending);
    td_error_why(o->err, "the weights were not downloaded, or not to this "
                         "directory");
    td_error_fix(o->err, "fetch the model's *%s files into it", ending);
    return TD_E_NOT_FOUND;
}

/* Files named NAME-00002-of-00005.safetensors tell how many belong together. */
static enum td_status check_numbering(struct opener *o)
{
    const struct td_model_dir *d = &o->dir;
    for (int32_t i = 0; i < d->n_shards; i++) {
        const char *name = d->shards[i].name;
        const char *of = strstr(name, "-of-");
        if (!of || of - name < 6 || strlen(of) < 9 + sizeof(ending) - 1)
            continue;
        long total = strtol(of + 4, NULL, 10);
        for (long k = 1; k <= total && k <= TD_MAX_SHARDS; k++) {
            char want[TD_MAX_PATH];
            (void)snprintf(want, sizeof(want), "%.*s%05ld%s", (int)(of - name - 5),
                           name, k, of);
            struct td_shard key = {.name = want};
            if (!bsearch(&key, d->shards, (size_t)d->n_shards, sizeof(key), by_name))
                return missing_shard(o, want, name);
        }
        return TD_OK;
    }
    return TD_OK;
}

static enum td_status shards_from_directory(struct opener *o)
{
    static const char *const others[] = {".gguf", ".bin", ".pt", ".pth"};
    char other[256] = "";
    enum td_status s = TD_OK;
    DIR *d = opendir(o->dir.path);
    if (!d)
        return td_file_cannot_open(o->dir.path, errno, o->err);
    const struct dirent *e;
    while (s == TD_OK && (e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.' && ends_with(e->d_name, ending))
            s = add_shard(o, e->d_name);
        for (size_t i = 0; i < TD_COUNT(others); i++)
            if (ends_with(e->d_name, others[i]))
                (void)snprintf(other, sizeof(other), "%s", e->d_name);
    }
    (void)closedir(d);
    if (s == TD_OK && o->dir.n_shards == 0)
        s = no_weights(o, other);
    if (s != TD_OK)
        return s;
    qsort(o->dir.shards, (size_t)o->dir.n_shards, sizeof(*o->dir.shards), by_name);
    return check_numbering(o);
}

/* ---- tensors ----------------------------------------------------------------------- */

static enum td_status index_names(struct opener *o)
{
    struct td_model_dir *d = &o->dir;
    for (int32_t i = 0; i < d->n_tensors; i++) {
        const struct td_tensor *t = &d->tensors[i];
        uint64_t other = 0;
        if (td_map_get(&d->by_name, t->name, t->name_len, &other))
            return td_error_set(o->err, TD_E_HEADER,
                                "the tensor %s is given twice, in %s and in %s",
                                t->name, d->shards[d->tensors[other].shard].name,
                                d->shards[t->shard].name);
        if (td_map_put(&d->by_name, t->name, t->name_len, (uint64_t)i) != TD_OK)
            return no_memory(o);
        d->bytes += t->bytes;
    }
    return TD_OK;
}

static enum td_status disagree(struct opener *o, const char *tensor, const char *a,
                               const char *b)
{
    td_error_set(o->err, TD_E_TENSOR, "%s: %s is %s, but %s", o->index_path, tensor, a,
                 b);
    td_error_why(o->err, "the index and the files do not belong together");
    td_error_fix(o->err, "fetch the index and all *%s again, from one revision",
                 ending);
    return TD_E_TENSOR;
}

/* Every tensor of the index lies where it says, and nothing else lies there. */
static enum td_status check_index(struct opener *o)
{
    json_t *map = json_object_get(o->index, "weight_map");
    const struct td_model_dir *d = &o->dir;
    char a[300], b[300];
    for (void *it = json_object_iter(map); it; it = json_object_iter_next(map, it)) {
        const char *name = json_object_iter_key(it);
        const char *file = json_string_value(json_object_iter_value(it));
        int32_t t = td_model_dir_find(d, name);
        (void)snprintf(a, sizeof(a), "said to lie in %s", file);
        if (t < 0)
            return disagree(o, name, a, "that file does not have it");
        const char *real = d->shards[d->tensors[t].shard].name;
        (void)snprintf(b, sizeof(b), "%s has it", real);
        if (strcmp(real, file) != 0)
            return disagree(o, name, a, b);
    }
    if (json_object_size(map) == (size_t)d->n_tensors)
        return TD_OK;
    for (int32_t i = 0; i < d->n_tensors; i++) {
        const struct td_tensor *t = &d->tensors[i];
        (void)snprintf(b, sizeof(b), "%s has it", d->shards[t->shard].name);
        if (!json_object_get(map, t->name))
            return disagree(o, t->name, "not named", b);
    }
    return TD_OK;
}

static enum td_status read_shard(struct opener *o, int32_t i)
{
    struct td_model_dir *d = &o->dir;
    struct td_shard *shard = &d->shards[i];
    if (o->index && !td_file_exists(shard->path))
        return missing_shard(o, shard->name, INDEX_FILE);
    return td_safetensors_read(shard, i, &d->arena, &o->list, o->err);
}

/* The index when there is one, and the shards that it names. */
static enum td_status read_index(struct opener *o)
{
    enum td_status s = td_path_join(o->index_path, sizeof(o->index_path), o->dir.path,
                                    INDEX_FILE, o->err);
    if (s != TD_OK || !td_file_exists(o->index_path))
        return s;
    s = td_json_read(o->index_path, (size_t)TD_MAX_JSON_FILE, &o->index, o->err);
    return s == TD_OK ? shards_from_index(o) : s;
}

static enum td_status open_all(struct opener *o)
{
    struct td_model_dir *d = &o->dir;
    enum td_status s = read_index(o);
    if (s == TD_OK && !o->index)
        s = shards_from_directory(o);
    for (int32_t i = 0; i < d->n_shards && s == TD_OK; i++)
        s = read_shard(o, i);
    d->tensors = o->list.v;
    d->n_tensors = (int32_t)o->list.count;
    if (s == TD_OK)
        s = index_names(o);
    if (s == TD_OK && o->index)
        s = check_index(o);
    return s;
}

static enum td_status names_from_index(struct opener *o)
{
    json_t *map = json_object_get(o->index, "weight_map");
    struct td_model_dir *d = &o->dir;
    size_t n = json_object_size(map);
    if (n > TD_MAX_TENSORS)
        return td_error_set(o->err, TD_E_LIMIT, "%s names more than %d tensors",
                            o->index_path, TD_MAX_TENSORS);
    d->tensors = td_calloc(n, sizeof(*d->tensors));
    if (!d->tensors)
        return no_memory(o);
    for (void *it = json_object_iter(map); it; it = json_object_iter_next(map, it)) {
        struct td_tensor *t = &d->tensors[d->n_tensors++];
        const char *name = json_object_iter_key(it);
        struct td_shard key = {.name = json_string_value(json_object_iter_value(it))};
        const struct td_shard *shard =
            bsearch(&key, d->shards, (size_t)d->n_shards, sizeof(key), by_name);
        t->name_len = (uint32_t)strlen(name);
        t->name = td_arena_strndup(&d->arena, name, t->name_len);
        t->shard = (int32_t)(shard - d->shards);
        if (!t->name)
            return no_memory(o);
    }
    return index_names(o);
}

static enum td_status open_names(struct opener *o)
{
    enum td_status s = read_index(o);
    o->dir.names_only = true;
    if (s != TD_OK)
        return s;
    if (o->index)
        return names_from_index(o);
    return td_error_set(o->err, TD_E_NOT_FOUND, "%s is missing in %s", INDEX_FILE,
                        o->dir.path);
}

static enum td_status open_with(enum td_status (*fn)(struct opener *o),
                                const char *path, struct td_model_dir *dir,
                                struct td_error *err)
{
    struct opener o = {.err = err};
    enum td_status s = TD_OK;
    td_arena_init(&o.dir.arena, (size_t)(1 * TD_GIB));
    td_map_init(&o.dir.by_name);
    o.dir.path = td_arena_strndup(&o.dir.arena, path, strlen(path));
    s = o.dir.path ? fn(&o)
                   : td_error_set(err, TD_E_NOMEM, "no memory to open %s", path);
    json_decref(o.index);
    if (s == TD_OK)
        *dir = o.dir;
    else
        td_model_dir_release(&o.dir);
    return s;
}

enum td_status td_model_dir_open(const char *path, struct td_model_dir *dir,
                                 struct td_error *err)
{
    return open_with(open_all, path, dir, err);
}

enum td_status td_model_dir_names(const char *path, struct td_model_dir *dir,
                                  struct td_error *err)
{
    return open_with(open_names, path, dir, err);
}

void td_model_dir_release(struct td_model_dir *dir)
{
    td_free(dir->shards);
    td_free(dir->tensors);
    td_map_release(&dir->by_name);
    td_arena_release(&dir->arena);
    *dir = (struct td_model_dir){0};
}

int32_t td_model_dir_find(const struct td_model_dir *dir, const char *name)
{
    uint64_t at = 0;
    return td_map_get(&dir->by_name, name, strlen(name), &at) ? (int32_t)at : -1;
}

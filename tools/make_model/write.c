/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight files: which tensor goes where, headers, index, and the data.
 *
 * A safetensors file is the header's length (8 bytes, little-endian), the header (JSON,
 * filled up with spaces to a multiple of 8), and the data without holes. Within a file
 * tensors lie by falling element size and then by name, so that each is aligned; that is
 * how the format's own library writes them.
 *
 * The data is made in pieces of some MiB, each by one thread: values, then one pwrite.
 * A piece of FP8 rows also writes the scales of its rows.
 */
#define _POSIX_C_SOURCE 200809L
#include "tools/make_model/synth.h"

#include "base/buf.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/team.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 4 << 20, MAX_FILE_NAME = 64 };

#define MAX_HEADER (512 * TD_MIB)

/* Some rows of a tensor. */
struct piece {
    const struct td_synth_tensor *t;
    int64_t row, rows;
};

struct writer {
    const struct td_synth *m;
    struct td_synth_list *list;
    int files;      /* with the draft's own */
    int main_files; /* without */
    bool draft_file;
    int64_t buffer;       /* bytes for the largest piece */
    int64_t scale_buffer; /* bytes for its scales */
    struct piece *pieces;
    int64_t count, cap;
};

static void file_name(const struct writer *w, int file, char out[MAX_FILE_NAME])
{
    if (w->draft_file && file == w->main_files)
        (void)snprintf(out, MAX_FILE_NAME, "mtp.safetensors");
    else if (!w->m->shards && !w->m->shard_size)
        (void)snprintf(out, MAX_FILE_NAME, "model.safetensors");
    else
        (void)snprintf(out, MAX_FILE_NAME, "model-%05d-of-%05d.safetensors", file + 1,
                       w->main_files);
}

static enum td_status io_error(struct td_error *err, const char *doing, const char *dir,
                               const char *name)
{
    td_error_set(err, TD_E_IO, "cannot %s %s/%s", doing, dir, name);
    td_error_why(err, "%s", strerror(errno));
    return TD_E_IO;
}

/* A weight and its scales stay together. */
static int64_t unit_bytes(const struct td_synth_list *l,
                          const struct td_synth_tensor *t)
{
    return t->bytes + (t->scale >= 0 ? l->items[t->scale].bytes : 0);
}

/* Gives each tensor its file. With a number of shards, cuts where the running sum passes
 * an equal share; with a size, where the next tensor would pass it. */
static void assign_files(struct writer *w)
{
    struct td_synth_list *l = w->list;
    int64_t total = 0, before = 0, in_file = 0, share = 0;
    int file = 0;
    w->draft_file = w->m->mtp_file;
    for (int64_t i = 0; i < l->count; i++)
        if (!w->draft_file || strncmp(l->items[i].name, "mtp.", 4) != 0)
            total += l->items[i].bytes;
    for (int64_t i = 0; i < l->count; i++) {
        struct td_synth_tensor *t = &l->items[i];
        t->file = -1;
        if (w->draft_file && strncmp(t->name, "mtp.", 4) == 0)
            continue;
        if (!t->is_scale) {
            int64_t now = w->m->shards ? before / (total / w->m->shards + 1) : 0;
            bool full =
                w->m->shard_size && in_file + unit_bytes(l, t) > w->m->shard_size;
            if (in_file && (now > share || full)) {
                file++;
                in_file = 0;
            }
            share = now;
        }
        t->file = file;
        in_file += t->bytes;
        before += t->bytes;
    }
    w->main_files = file + 1;
    w->files = w->main_files + w->draft_file;
    for (int64_t i = 0; i < l->count; i++)
        if (l->items[i].file < 0)
            l->items[i].file = w->main_files;
}

static int by_place(const void *a, const void *b)
{
    const struct td_synth_tensor *x = *(const struct td_synth_tensor *const *)a;
    const struct td_synth_tensor *y = *(const struct td_synth_tensor *const *)b;
    if (x->file != y->file)
        return x->file - y->file;
    if (x->dtype != y->dtype) { /* F16 and BF16 have the same size */
        int64_t d = td_synth_size(y->dtype) - td_synth_size(x->dtype);
        if (d)
            return (int)d;
    }
    return strcmp(x->name, y->name);
}

static void add_header_entry(struct td_buf *b, const struct td_synth_tensor *t)
{
    td_buf_addf(b, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
                td_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++)
        td_buf_addf(b, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    td_buf_addf(b, "],\"data_offsets\":[%lld,%lld]}", (long long)t->offset,
                (long long)t->offset + (long long)t->bytes);
}

/* Lays out the tensors of one file, sorted[0..n), and gives its header with the length
 * in front. On return the tensors' offsets count from the start of the file. */
static enum td_status make_header(struct td_synth_tensor **sorted, int64_t n,
                                  struct td_buf *b, int64_t *end)
{
    static const char length[8] = {0};
    int64_t at = 0;
    td_buf_clear(b);
    td_buf_add(b, length, sizeof(length));
    td_buf_adds(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < n; i++) {
        sorted[i]->offset = at;
        at += sorted[i]->bytes;
        add_header_entry(b, sorted[i]);
    }
    td_buf_addc(b, '}');
    while (b->status == TD_OK && b->len % 8)
        td_buf_addc(b, ' ');
    if (b->status != TD_OK)
        return b->status;
    for (size_t i = 0; i < 8; i++)
        b->p[i] = (char)(unsigned char)((b->len - 8) >> (8 * i) & 0xff);
    for (int64_t i = 0; i < n; i++)
        sorted[i]->offset += (int64_t)b->len;
    *end = at + (int64_t)b->len;
    return TD_OK;
}

static bool write_all(int fd, const void *data, size_t size, int64_t at)
{
    const char *p = data;
    while (size) {
        ssize_t n = pwrite(fd, p, size, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

enum td_status td_synth_write_file(const struct td_synth *m, const char *name,
                                   const void *data, size_t size, struct td_error *err)
{
    char path[TD_MAX_PATH];
    enum td_status s = td_path_join(path, sizeof(path), m->out, name, err);
    if (s != TD_OK)
        return s;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return io_error(err, "create", m->out, name);
    if (!write_all(fd, data, size, 0))
        s = io_error(err, "write", m->out, name);
    if (close(fd) != 0 && s == TD_OK)
        s = io_error(err, "write", m->out, name);
    return s;
}

/* Rows of a tensor that make a piece: about PIECE bytes, whole blocks. */
static int64_t piece_rows(const struct td_synth_tensor *t)
{
    int64_t width = t->cols * td_synth_size(t->dtype);
    int64_t blocks = PIECE / (width * TD_SYNTH_BLOCK);
    return TD_MAX(blocks, 1) * TD_SYNTH_BLOCK;
}

static enum td_status add_pieces(struct writer *w, const struct td_synth_tensor *t)
{
    int64_t step = piece_rows(t), width = t->cols * td_synth_size(t->dtype);
    int64_t blocks = (t->cols + TD_SYNTH_BLOCK - 1) / TD_SYNTH_BLOCK;
    for (int64_t row = 0; row < t->rows; row += step) {
        if (w->count == w->cap) {
            int64_t cap = w->cap ? 2 * w->cap : 256;
            void *p = td_realloc(w->pieces, (size_t)cap, sizeof(*w->pieces));
            if (!p)
                return TD_E_NOMEM;
            w->pieces = p;
            w->cap = cap;
        }
        w->pieces[w->count++] = (struct piece){t, row, TD_MIN(step, t->rows - row)};
    }
    w->buffer = TD_MAX(w->buffer, step * width);
    w->scale_buffer = TD_MAX(w->scale_buffer, step / TD_SYNTH_BLOCK * blocks * 4);
    return TD_OK;
}

/* Makes one piece in `out` and `scales` and writes it. */
static bool write_piece(const struct writer *w, const struct piece *p, int fd,
                        uint8_t *out, uint8_t *scales)
{
    const struct td_synth_tensor *t = p->t;
    int64_t width = t->cols * td_synth_size(t->dtype);
    td_synth_values(t, p->row, p->rows, out, w->m->scale_dtype, scales);
    if (!write_all(fd, out, (size_t)(p->rows * width), t->offset + p->row * width))
        return false;
    if (t->scale < 0)
        return true;
    const struct td_synth_tensor *s = &w->list->items[t->scale];
    int64_t scale_width = s->cols * td_synth_size(s->dtype);
    int64_t first = p->row / TD_SYNTH_BLOCK;
    int64_t count = (p->rows + TD_SYNTH_BLOCK - 1) / TD_SYNTH_BLOCK;
    return write_all(fd, scales, (size_t)(count * scale_width),
                     s->offset + first * scale_width);
}

/* The pieces of one file, and a buffer of each thread. */
struct writing {
    const struct writer *w;
    uint8_t *buffers;
    int64_t out, scales; /* bytes of a thread's two buffers */
    int fd;
    _Atomic int failure; /* errno of the first one */
};

static void write_some(void *arg, int64_t first, int64_t last)
{
    struct writing *f = arg;
    uint8_t *out = f->buffers + td_team_index() * (f->out + f->scales);
    for (int64_t i = first; i < last && !atomic_load(&f->failure); i++)
        if (!write_piece(f->w, &f->w->pieces[i], f->fd, out, out + f->out))
            atomic_store(&f->failure, errno ? errno : EIO);
}

/* Writes all pieces of one file; 0, or the errno of a failure. */
static int write_pieces(const struct writer *w, int fd)
{
    struct td_team *team = NULL;
    struct writing f = {.w = w,
                        .fd = fd,
                        .out = (w->buffer + 63) / 64 * 64,
                        .scales = (w->scale_buffer + 63) / 64 * 64};
    int threads = w->m->threads ? (int)w->m->threads : td_cpu_cores();
    if (td_team_new(threads, NULL, &team, NULL) != TD_OK)
        return ENOMEM;
    f.buffers = td_calloc((size_t)td_team_threads(team), (size_t)(f.out + f.scales));
    if (f.buffers)
        td_team_run(team, w->count, 1, write_some, &f);
    else
        f.failure = ENOMEM;
    td_team_free(team);
    td_free(f.buffers);
    return f.failure;
}

static enum td_status write_data(struct writer *w, struct td_synth_tensor **sorted,
                                 int64_t n, int fd, const char *name,
                                 struct td_error *err)
{
    w->count = 0;
    w->buffer = w->scale_buffer = 1;
    for (int64_t i = 0; i < n; i++)
        if (!sorted[i]->is_scale && add_pieces(w, sorted[i]) != TD_OK)
            return td_error_set(err, TD_E_NOMEM, "no memory for the list of pieces");
    int failure = write_pieces(w, fd);
    if (failure == ENOMEM)
        return td_error_set(err, TD_E_NOMEM, "no memory for the values of %s", name);
    errno = failure;
    return failure ? io_error(err, "write", w->m->out, name) : TD_OK;
}

static enum td_status write_one(struct writer *w, struct td_synth_tensor **sorted,
                                int64_t n, struct td_buf *header,
                                struct td_synth_stats *stats, struct td_error *err)
{
    char name[MAX_FILE_NAME], path[TD_MAX_PATH];
    int64_t size;
    file_name(w, sorted[0]->file, name);
    enum td_status s = td_path_join(path, sizeof(path), w->m->out, name, err);
    if (s != TD_OK)
        return s;
    s = make_header(sorted, n, header, &size);
    if (s != TD_OK)
        return td_error_set(err, s, "no memory for the header of %s", name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return io_error(err, "create", w->m->out, name);
    if (ftruncate(fd, (off_t)size) != 0 || !write_all(fd, header->p, header->len, 0))
        s = io_error(err, "write", w->m->out, name);
    if (s == TD_OK && !w->m->headers_only)
        s = write_data(w, sorted, n, fd, name, err);
    if (close(fd) != 0 && s == TD_OK)
        s = io_error(err, "write", w->m->out, name);
    stats->bytes += size;
    stats->files++;
    return s;
}

static enum td_status write_index(const struct writer *w,
                                  struct td_synth_tensor **sorted, struct td_error *err)
{
    struct td_buf b;
    int64_t total = 0;
    td_buf_init(&b, MAX_HEADER);
    for (int64_t i = 0; i < w->list->count; i++)
        total += sorted[i]->bytes;
    td_buf_addf(&b, "{\n  \"metadata\": {\"total_size\": %lld},\n  \"weight_map\": {",
                (long long)total);
    for (int64_t i = 0; i < w->list->count; i++) {
        char name[MAX_FILE_NAME];
        file_name(w, sorted[i]->file, name);
        td_buf_addf(&b, "%s\n    \"%s\": \"%s\"", i ? "," : "", sorted[i]->name, name);
    }
    td_buf_adds(&b, "\n  }\n}\n");
    enum td_status s = b.status;
    if (s != TD_OK)
        td_error_set(err, s, "no memory for the index");
    else
        s = td_synth_write_file(w->m, "model.safetensors.index.json", b.p, b.len, err);
    td_buf_release(&b);
    return s;
}

enum td_status td_synth_write_weights(const struct td_synth *m,
                                      struct td_synth_list *list,
                                      struct td_synth_stats *stats,
                                      struct td_error *err)
{
    struct writer w = {.m = m, .list = list};
    struct td_buf header;
    enum td_status s = TD_OK;
    td_buf_init(&header, MAX_HEADER);
    struct td_synth_tensor **sorted =
        td_calloc((size_t)list->count, sizeof(struct td_synth_tensor *));
    if (!sorted) {
        s = td_error_set(err, TD_E_NOMEM, "no memory for the list of tensors");
        goto out;
    }
    assign_files(&w);
    for (int64_t i = 0; i < list->count; i++)
        sorted[i] = &list->items[i];
    qsort(sorted, (size_t)list->count, sizeof(struct td_synth_tensor *), by_place);
    *stats = (struct td_synth_stats){.tensors = list->count};
    for (int64_t i = 0, n; i < list->count && s == TD_OK; i += n) {
        for (n = 1; i + n < list->count && sorted[i + n]->file == sorted[i]->file; n++)
            ;
        s = write_one(&w, sorted + i, n, &header, stats, err);
    }
    if (s == TD_OK && (m->shards || m->shard_size))
        s = write_index(&w, sorted, err);
out:
    td_free(w.pieces);
    td_free(sorted);
    td_buf_release(&header);
    return s;
}

enum td_status td_synth_write(const struct td_synth *m, struct td_synth_stats *stats,
                              struct td_error *err)
{
    struct td_synth_list list = {0};
    char path[TD_MAX_PATH];
    enum td_status s = td_path_join(path, sizeof(path), m->out, "config.json", err);
    if (s != TD_OK)
        return s;
    if (td_file_exists(path)) {
        td_error_set(err, TD_E_USAGE, "%s holds a model already", m->out);
        td_error_why(err, "it has a config.json");
        td_error_fix(err, "remove the directory or give another one");
        return TD_E_USAGE;
    }
    if (mkdir(m->out, 0755) != 0 && errno != EEXIST)
        return io_error(err, "create", m->out, "");
    s = td_synth_list_init(&list, m, err);
    if (s == TD_OK)
        s = td_synth_write_weights(m, &list, stats, err);
    if (s == TD_OK)
        s = td_synth_write_texts(m, err);
    td_synth_list_release(&list);
    return s;
}

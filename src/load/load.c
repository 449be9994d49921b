/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and packing. See load.h; load_plan.c decides what a run is.
 *
 *     next run -> read into this thread's buffer -> pack its parts -> count -> again
 *
 * Each thread does the whole chain with a buffer of its own, so that one reads while
 * another packs, nothing is handed over, and a buffer is packed while it is still in the
 * processor's cache. Runs are given out in file order. For a device that copies behind
 * our back a thread has two buffers, and fills one while the other is copied.
 *
 * What comes through the page cache and may lie as it is in the file is read to its
 * place at once, without a buffer: copying costs as much as the kernel's own copy.
 *
 * Without page cache, large runs are read directly (O_DIRECT) where the file system
 * allows it; everything else goes through the cache, which is told to forget it.
 */
#define _GNU_SOURCE /* O_DIRECT, madvise */
#include "load/load.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sysmem.h"
#include "load/load_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE = 4096, /* alignment of direct reads; a multiple of every sector size */
    DIRECT_CHUNK = 2 << 20, /* large enough for a disk */
    PLACED_CHUNK = 2 << 20,
    CACHED_CHUNK = 512 << 10, /* small enough for a processor's cache */
    MIN_CHUNK = 128 << 10,    /* of small models */
    DIRECT_FROM = 256 << 10,
    LONGEST_COPIED = 16 << 10, /* bytes of a row; longer ones are read */
    DEFAULT_THREADS = 16,      /* as many reads at a time as keep a fast disk busy */
    EVENT_NS = 100000000,
    MOST_PLACES = 64 /* of one read */
};

#if !defined(MADV_POPULATE_READ)
#define MADV_POPULATE_READ 22 /* Linux 5.14; older kernels refuse it */
#endif

struct loader {
    const struct td_model_dir *dir;
    const struct td_piece *pieces;
    const struct td_load_opts *opts;
    td_pack_fn pack;
    void *self;
    struct td_load_plan plan;
    struct td_dev *stage; /* device that copies from staging areas, or NULL */
    bool drop;            /* leave no page cache behind */
    int64_t start_ns;

    _Atomic size_t next_run;
    _Atomic int64_t packed, read, calls, next_event_ns;
    atomic_bool stop;

    pthread_mutex_t lock; /* of the two below */
    enum td_status status;
    struct td_error error;
};

/* One thread's files and memory. */
struct reader {
    struct loader *l;
    char *buffer;         /* PAGE-aligned, with a PAGE of room in front */
    size_t bytes;         /* of it, room included */
    char *other;          /* the second one for staging, else the same */
    int area, other_area; /* their numbers */
    int64_t read, calls;  /* counted here first: no counter is shared by all reads */
    bool placed;          /* parts of this run that have a place are there */
    int32_t shard;        /* that the files belong to, -1: none */
    int fd, direct;       /* -1: not open, or not possible */
    char *map;            /* of the file, for columns; NULL: not mapped */
    size_t map_bytes;
    struct td_error error; /* its failure, until it is handed over */
};

/* ---- files ------------------------------------------------------------------------- */

static void close_files(struct reader *r)
{
    if (r->fd >= 0)
        (void)close(r->fd);
    if (r->direct >= 0)
        (void)close(r->direct);
    if (r->map)
        (void)munmap(r->map, r->map_bytes);
    r->map = NULL;
    r->fd = r->direct = r->shard = -1;
}

static enum td_status open_shard(struct reader *r, int32_t shard)
{
    const char *path = r->l->dir->shards[shard].path;
    if (r->shard == shard)
        return TD_OK;
    close_files(r);
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0)
        return td_file_cannot_open(path, errno, &r->error);
    r->shard = shard;
    if (r->l->drop)
        r->direct = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    else
        (void)posix_fadvise(r->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return TD_OK;
}

static const char *tensor_at(const struct loader *l, const struct td_run *run,
                             int64_t offset)
{
    const struct td_part *p = &l->plan.parts[run->first];
    for (size_t i = 1; i < run->n_parts && p[1].offset <= offset; i++)
        p++;
    return l->dir->tensors[l->pieces[p->piece].tensor].name;
}

static enum td_status read_failed(struct reader *r, const struct td_run *run,
                                  int64_t offset, int64_t wanted, ssize_t got)
{
    const struct td_shard *shard = &r->l->dir->shards[run->shard];
    int64_t at = offset + TD_MAX((int64_t)got, 0);
    const char *tensor = tensor_at(r->l, run, at);
    struct stat sb;
    if (got < 0)
        return td_error_set(&r->error, TD_E_IO,
                            "cannot read %s at byte %" PRId64 " (tensor %s): %s",
                            shard->path, at, tensor, strerror(errno));
    int64_t now = fstat(r->fd, &sb) == 0 ? (int64_t)sb.st_size : at;
    td_error_set(&r->error, TD_E_TRUNCATED,
                 "%s ends at byte %" PRId64 ", before the end of the tensor %s",
                 shard->path, now, tensor);
    td_error_why(&r->error,
                 "%" PRId64 " bytes were expected at byte %" PRId64 ", %zd found; the "
                 "file had %" PRId64 " bytes when its header was read",
                 wanted, offset, got, shard->size);
    return TD_E_TRUNCATED;
}

/* Reads n bytes to out. */
static enum td_status read_bytes(struct reader *r, const struct td_run *run, char *out,
                                 int64_t offset, int64_t n)
{
    ssize_t got = td_pread(r->fd, out, (size_t)n, offset);
    if (got != (ssize_t)n)
        return read_failed(r, run, offset, n, got);
    r->read += n;
    r->calls++;
    return TD_OK;
}

/* Where a part goes without being packed, or NULL. */
static char *place_of(const struct reader *r, const struct td_part *p)
{
    const struct td_load_opts *o = r->l->opts;
    if (!o->place || (p->slice != p->pitch && p->n_rows > 1))
        return NULL;
    return o->place(r->l->self, &r->l->pieces[p->piece], p->row0, p->n_rows);
}

/* Parts of a run that are read by one call, each to its place. */
struct scatter {
    struct iovec to[MOST_PLACES];
    int n;
    int64_t offset, bytes; /* in the file */
};

static enum td_status read_scatter(struct reader *r, const struct td_run *run,
                                   struct scatter *s)
{
    ssize_t got = s->n ? td_preadv(r->fd, s->to, s->n, s->offset) : 0;
    if (got != (ssize_t)s->bytes)
        return read_failed(r, run, s->offset, s->bytes, got);
    r->read += s->bytes;
    r->calls += s->n > 0;
    *s = (struct scatter){.offset = s->offset + s->bytes};
    return TD_OK;
}

static enum td_status add_place(struct reader *r, const struct td_run *run,
                                struct scatter *s, char *to, int64_t bytes)
{
    enum td_status status = TD_OK;
    if (bytes == 0)
        return TD_OK;
    if (s->n == MOST_PLACES)
        status = read_scatter(r, run, s);
    s->to[s->n++] = (struct iovec){.iov_base = to, .iov_len = (size_t)bytes};
    s->bytes += bytes;
    return status;
}

/* Reads a run through the page cache: parts to their places, all else into the buffer,
 * where it would lie if the whole run was read there. */
static enum td_status read_places(struct reader *r, const struct td_run *run)
{
    struct scatter s = {.offset = run->offset};
    enum td_status status = TD_OK;
    for (size_t i = 0; i < run->n_parts && status == TD_OK; i++) {
        const struct td_part *p = &r->l->plan.parts[run->first + i];
        int64_t at = s.offset + s.bytes;
        char *place = place_of(r, p);
        status = add_place(r, run, &s, r->buffer + (at - run->offset), p->offset - at);
        if (status == TD_OK)
            status = add_place(r, run, &s,
                               place ? place : r->buffer + (p->offset - run->offset),
                               td_part_span(p));
    }
    r->placed = true;
    return status == TD_OK ? read_scatter(r, run, &s) : status;
}

/* Reads the run's pages directly. False when that does not work here: the caller then
 * reads through the page cache. */
static bool read_direct(struct reader *r, const struct td_run *run, char **data)
{
    int64_t skip = run->offset % PAGE;
    int64_t n = (skip + run->bytes + PAGE - 1) / PAGE * PAGE;
    if (r->direct < 0 || run->bytes < DIRECT_FROM)
        return false;
    ssize_t got = pread(r->direct, r->buffer, (size_t)n, (off_t)(run->offset - skip));
    if (got < skip + run->bytes)
        return false;
    r->read += got;
    r->calls++;
    *data = r->buffer + skip;
    return true;
}

/* Whole pages of the run that this thread alone has read. */
static void forget(struct reader *r, const struct td_run *run)
{
    if (r->l->drop)
        (void)posix_fadvise(r->fd, (off_t)run->offset, (off_t)run->bytes,
                            POSIX_FADV_DONTNEED);
}

static enum td_status read_span(struct reader *r, const struct td_run *run, char **data)
{
    if (read_direct(r, run, data))
        return TD_OK;
    *data = r->buffer;
    enum td_status s = r->l->opts->place
                           ? read_places(r, run)
                           : read_bytes(r, run, r->buffer, run->offset, run->bytes);
    forget(r, run);
    return s;
}

/* Maps the present file; where that is not possible rows are read. */
static bool map_file(struct reader *r)
{
    int64_t size = r->l->dir->shards[r->shard].size;
    if (r->map)
        return true;
    void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, r->fd, 0);
    if (p == MAP_FAILED)
        return false;
    r->map = p;
    r->map_bytes = (size_t)size;
    return true;
}

/* Copies rows out of the page cache: for short rows that costs a fraction of a system
 * call for each. The pages are asked for first, by a call that reports a file that was
 * cut short or a disk that fails (and that qemu passes over, hence the look at the size);
 * then false, and reading the rows tells which. */
static bool copy_rows(struct reader *r, const struct td_run *run)
{
    struct stat now;
    const struct td_part *p = &r->l->plan.parts[run->first];
    int64_t start = run->offset / PAGE * PAGE, end = run->offset + run->bytes;
    if (p->slice > LONGEST_COPIED || !map_file(r) || end > (int64_t)r->map_bytes ||
        fstat(r->fd, &now) != 0 || end > (int64_t)now.st_size)
        return false;
    char *pages = r->map + start;
    size_t n = (size_t)(end - start);
    if (madvise(pages, n, MADV_POPULATE_READ) != 0)
        return false;
    const char *from = r->map + p->offset;
    for (int64_t i = 0; i < p->n_rows; i++)
        memcpy(r->buffer + i * p->slice, from + i * p->pitch, (size_t)p->slice);
    (void)madvise(pages, n, MADV_DONTNEED); /* out of this process, not of the cache */
    r->read += td_part_bytes(p);
    r->calls += 2;
    return true;
}

static enum td_status read_rows(struct reader *r, const struct td_run *run, char **data)
{
    const struct td_part *p = &r->l->plan.parts[run->first];
    enum td_status s = TD_OK;
    *data = r->buffer;
    /* where whole pages are left out the kernel sees no sequence and would fetch page by
     * page: let it fetch all in large requests */
    if (p->pitch - p->slice >= PAGE)
        (void)posix_fadvise(r->fd, (off_t)run->offset, (off_t)run->bytes,
                            POSIX_FADV_WILLNEED);
    bool copied = copy_rows(r, run);
    for (int64_t i = 0; i < p->n_rows && s == TD_OK && !copied; i++) {
        s = read_bytes(r, run, r->buffer + i * p->slice, p->offset + i * p->pitch,
                       p->slice);
        if (i % 256 == 0 && atomic_load(&r->l->stop))
            s = TD_E_CANCELLED;
    }
    forget(r, run);
    return s;
}

/* ---- packing ----------------------------------------------------------------------- */

/* Brings a part's rows together, at an address that suits its elements. Moves only
 * towards lower addresses, over bytes that are done with: the last ones of the part
 * before may have to be waited for. */
static char *gather(const struct reader *r, const struct td_part *p, char *at)
{
    char *out = at - (uintptr_t)at % 4;
    int64_t pitch = p->pitch;
    if (out != at && r->l->stage)
        r->l->stage->ops.stage_wait(r->l->stage, r->area);
    if (p->slice == pitch || p->n_rows == 1) {
        if (out != at)
            memmove(out, at, (size_t)td_part_bytes(p));
        return out;
    }
    for (int64_t i = 0; i < p->n_rows; i++)
        memmove(out + i * p->slice, at + i * pitch, (size_t)p->slice);
    return out;
}

static enum td_status pack_part(struct reader *r, const struct td_part *part,
                                const char *bytes)
{
    struct loader *l = r->l;
    const struct td_piece *piece = &l->pieces[part->piece];
    enum td_status s =
        l->pack(l->self, piece, part->row0, part->n_rows, bytes, &r->error);
    if (s != TD_OK)
        td_error_set(&r->error, s, "%s could not be packed",
                     l->dir->tensors[piece->tensor].name);
    return s;
}

static enum td_status pack_run(struct reader *r, const struct td_run *run, char *data)
{
    enum td_status s = TD_OK;
    for (size_t i = 0; i < run->n_parts && s == TD_OK; i++) {
        const struct td_part *p = &r->l->plan.parts[run->first + i];
        if (!r->placed || !place_of(r, p)) {
            const char *bytes = run->kind == TD_RUN_ROWS
                                    ? data
                                    : gather(r, p, data + (p->offset - run->offset));
            s = pack_part(r, p, bytes);
        }
        if (s == TD_OK)
            atomic_fetch_add(&r->l->packed, td_part_bytes(p));
    }
    return s;
}

/* ---- progress ---------------------------------------------------------------------- */

static void report(struct loader *l, const char *name)
{
    double packed = (double)atomic_load(&l->packed), of = (double)l->plan.payload;
    double seconds = (double)(td_clock_ns() - l->start_ns) * 1e-9;
    double rate = seconds > 0 ? packed / seconds : 0;
    td_event(name, (struct td_num[]){{"bytes", packed},
                                     {"of", of},
                                     {"rate", rate},
                                     {"left", rate > 0 ? (of - packed) / rate : 0},
                                     {"seconds", seconds},
                                     {NULL, 0}});
}

static void maybe_report(struct loader *l)
{
    int64_t now = td_clock_ns(), due = atomic_load(&l->next_event_ns);
    if (now >= due &&
        atomic_compare_exchange_strong(&l->next_event_ns, &due, now + EVENT_NS))
        report(l, "progress");
}

/* ---- threads ----------------------------------------------------------------------- */

/* A buffer that nothing is copied from. */
static void next_buffer(struct reader *r)
{
    char *buffer = r->buffer;
    int area = r->area;
    if (!r->l->stage)
        return;
    r->buffer = r->other;
    r->area = r->other_area;
    r->other = buffer;
    r->other_area = area;
    r->l->stage->ops.stage_wait(r->l->stage, r->area);
}

static void *read_all(void *self)
{
    struct reader *r = self;
    struct loader *l = r->l;
    enum td_status s = TD_OK;
    /* whether a late thread still finds work must not decide what a start takes */
    memset(r->buffer - PAGE, 0, r->bytes);
    if (r->other != r->buffer)
        memset(r->other - PAGE, 0, r->bytes);
    while (s == TD_OK && !atomic_load(&l->stop)) {
        size_t i = atomic_fetch_add(&l->next_run, 1);
        char *data = NULL;
        if (i >= l->plan.n_runs)
            break;
        const struct td_run *run = &l->plan.runs[i];
        if (l->opts->cancel && atomic_load(l->opts->cancel))
            s = td_error_set(&r->error, TD_E_CANCELLED, "loading was stopped");
        if (s == TD_OK)
            s = open_shard(r, run->shard);
        next_buffer(r);
        r->placed = false;
        if (s == TD_OK)
            s = run->kind == TD_RUN_SPAN ? read_span(r, run, &data)
                                         : read_rows(r, run, &data);
        if (s == TD_OK)
            s = pack_run(r, run, data);
        if (s == TD_OK)
            maybe_report(l);
        if (l->opts->beat)
            (void)atomic_fetch_add(l->opts->beat, 1);
    }
    close_files(r);
    atomic_fetch_add(&l->read, r->read);
    atomic_fetch_add(&l->calls, r->calls);
    if (s == TD_OK || atomic_exchange(&l->stop, true))
        return NULL;
    (void)pthread_mutex_lock(&l->lock);
    l->status = s;
    l->error = r->error;
    (void)pthread_mutex_unlock(&l->lock);
    return NULL;
}

static char *round_up(char *p)
{
    return p + (PAGE - (uintptr_t)p % PAGE) % PAGE;
}

/* Runs n readers, the first of them in this thread, each with `areas` buffers of
 * `bytes`. */
static enum td_status run_readers(struct loader *l, int n, int areas, size_t bytes,
                                  struct td_error *err)
{
    struct reader readers[TD_MAX_LOAD_THREADS];
    pthread_t threads[TD_MAX_LOAD_THREADS];
    int started = 1;
    /* one block, so that it is large enough for huge pages: fewer pieces for the disk */
    size_t total = (size_t)n * (size_t)areas * bytes + PAGE;
    char *memory = td_alloc_aligned(total);
    if (!memory)
        return td_error_set(err, TD_E_NOMEM,
                            "no memory for %zu bytes of buffers to load %s", total,
                            l->dir->path);
    struct td_dev *dev = l->opts->dev;
    char *base = round_up(memory);
    if (areas == 2 && dev->ops.stage(dev, base, n * areas, bytes))
        l->stage = dev;
    for (int i = 0; i < n; i++) {
        readers[i] = (struct reader){.l = l, .shard = -1, .fd = -1, .direct = -1};
        readers[i].area = i * areas;
        readers[i].other_area = i * areas + areas - 1;
        readers[i].buffer = base + (size_t)readers[i].area * bytes + PAGE;
        readers[i].other = base + (size_t)readers[i].other_area * bytes + PAGE;
        readers[i].bytes = bytes;
        td_error_init(&readers[i].error);
    }
    /* a thread that the system refuses only makes it slower */
    while (started < n &&
           pthread_create(&threads[started], NULL, read_all, &readers[started]) == 0)
        started++;
    (void)read_all(&readers[0]);
    for (int i = 1; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    if (l->stage)
        l->stage->ops.stage_end(l->stage);
    td_free_aligned(memory, total);
    if (l->status != TD_OK && err && err->code == TD_OK)
        *err = l->error;
    return l->status;
}

/* ---- the whole --------------------------------------------------------------------- */

static int64_t wanted_bytes(const struct td_model_dir *dir, const struct td_piece *p,
                            size_t n)
{
    double sum = 0; /* pieces are not checked yet: no overflow here */
    for (size_t i = 0; i < n; i++)
        if (p[i].tensor >= 0 && p[i].tensor < dir->n_tensors)
            sum += (double)p[i].n_rows * (double)p[i].n_cols *
                   td_dtype_bits(dir->tensors[p[i].tensor].dtype) / 8;
    return sum > 0 && sum < 9e18 ? (int64_t)sum : 0;
}

static bool decide_drop(const struct td_load_opts *opts, int64_t bytes)
{
    struct td_sysmem m;
    if (opts->cache != TD_LOAD_CACHE_AUTO)
        return opts->cache == TD_LOAD_CACHE_DROP;
    return td_sysmem_read("", &m, NULL) == TD_OK &&
           bytes > td_sysmem_available(&m, NULL, 0) / 3;
}

static int thread_count(const struct td_load_opts *opts, size_t n_runs)
{
    int n = opts->threads > 0 ? opts->threads : DEFAULT_THREADS;
    n = TD_MIN(n, TD_MAX_LOAD_THREADS);
    return (int)TD_MAX(TD_MIN((size_t)n, n_runs), 1);
}

/* Pages that several readers shared, or that were written shortly before. */
static void forget_all(const struct loader *l)
{
    for (size_t i = 0; i < l->plan.n_runs; i++) {
        int32_t shard = l->plan.runs[i].shard;
        if (i > 0 && l->plan.runs[i - 1].shard == shard)
            continue;
        int fd = open(l->dir->shards[shard].path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        (void)fdatasync(fd);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
}

static int64_t staging_limit(const struct td_load_opts *opts)
{
    return opts->staging > 0 ? TD_MIN(opts->staging, TD_MAX_STAGING)
                             : (int64_t)TD_MAX_STAGING;
}

/* Bytes that are read at a time. */
static int64_t chunk_for(const struct td_load_opts *opts, int64_t wanted, bool drop)
{
    bool places = opts->place || (opts->dev && opts->dev->ops.place);
    int64_t chunk = drop ? DIRECT_CHUNK : places ? PLACED_CHUNK : CACHED_CHUNK;
    chunk = TD_MAX(TD_MIN(wanted / 64, chunk), (int64_t)MIN_CHUNK);
    return TD_MIN(chunk, staging_limit(opts));
}

/* A reader's buffer: room in front, for the pages at both ends, and whole pages. */
static int64_t buffer_bytes(int64_t longest_run)
{
    return (longest_run / PAGE + 4) * PAGE;
}

/* Buffers of a reader: two where a device copies out of one while the next is read. */
static int area_count(const struct td_load_opts *opts)
{
    return opts->dev && opts->dev->ops.stage ? 2 : 1;
}

int64_t td_load_staging(const struct td_load_opts *opts, int64_t bytes)
{
    int64_t chunk = chunk_for(opts, bytes, decide_drop(opts, bytes));
    int64_t each = buffer_bytes(chunk) * area_count(opts);
    int threads = thread_count(opts, (size_t)(bytes / chunk + 1));
    return TD_MIN(threads, TD_MAX(staging_limit(opts) / each, 1)) * each + PAGE;
}

int64_t td_load_list_bytes(int64_t pieces)
{
    return pieces * TD_LOAD_PIECE_BYTES;
}

enum td_status td_load(const struct td_model_dir *dir, const struct td_piece *pieces,
                       size_t n, const struct td_load_opts *opts, td_pack_fn pack,
                       void *self, struct td_load_stats *stats, struct td_error *err)
{
    struct loader l = {.dir = dir,
                       .pieces = pieces,
                       .opts = opts,
                       .pack = pack,
                       .self = self,
                       .start_ns = td_clock_ns(),
                       .lock = PTHREAD_MUTEX_INITIALIZER};
    int64_t wanted = wanted_bytes(dir, pieces, n);
    l.drop = decide_drop(opts, wanted);
    l.next_event_ns = l.start_ns + EVENT_NS;
    enum td_status s = td_load_plan_make(dir, pieces, n,
                                         chunk_for(opts, wanted, l.drop), &l.plan, err);
    if (s != TD_OK)
        return s;
    int64_t bytes = buffer_bytes(l.plan.staging);
    int areas = area_count(opts), threads = thread_count(opts, l.plan.n_runs);
    threads =
        (int)TD_MIN((int64_t)threads, TD_MAX(staging_limit(opts) / bytes / areas, 1));
    if (l.plan.staging > TD_MAX_STAGING)
        s = td_error_set(err, TD_E_LIMIT,
                         "%s: a row of %" PRId64 " bytes is longer than the %lld that "
                         "are read at a time",
                         dir->path, l.plan.staging, (long long)TD_MAX_STAGING);
    if (s == TD_OK && l.plan.n_runs)
        s = run_readers(&l, threads, areas, (size_t)bytes, err);
    if (l.drop)
        forget_all(&l);
    if (s == TD_OK)
        report(&l, "loaded");
    if (s == TD_OK && stats)
        *stats = (struct td_load_stats){
            .bytes = l.packed,
            .read = l.read,
            .calls = l.calls,
            .seconds = (double)(td_clock_ns() - l.start_ns) * 1e-9,
            .threads = threads,
            .staging = (int64_t)threads * areas * bytes,
        };
    td_load_plan_release(&l.plan);
    return s;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_load [--gpu|--json] MODEL [RANK RANKS [THREADS]]: how fast a rank's weights are
 * read.
 *
 * Reads the slice of one rank through td_load(), into place where the files' layout allows it, and the
 * same number of bytes from the same files with plain parallel reads, both into fresh
 * memory, each with the files in the page cache (warm) and out of it (cold). Prints
 * rates and their ratio; docs/SPEED.md keeps results. With --gpu the callback packs onto
 * the first GPU, and what copies from pinned memory reach is printed too.
 */
#define _GNU_SOURCE /* O_DIRECT */
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "model/names.h"
#include "ops/ops.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BLOCK = 2 << 20, REPEATS = 5, AREAS = 8, AREA = 32 << 20 };

struct bench {
    struct td_config cfg;
    struct td_model_dir dir;
    struct td_weights weights;
    struct td_piece *pieces;
    size_t n;
    char *to;
    int threads;
    struct td_dev *gpu; /* or NULL; then room for everything on it */
    char *gpu_to;

    /* plain reads */
    int flags;
    _Atomic int64_t next;
    int64_t bytes;
    double spent; /* see best() */
};

static void fail(const struct td_error *err)
{
    (void)fprintf(stderr, "error   %s\ncause   %s\n", err->what, err->why);
    exit(1);
}

static enum td_status copy(void *self, const struct td_piece *p, int64_t row0,
                           int64_t n_rows, const void *bytes, struct td_error *err)
{
    const struct bench *b = self;
    int64_t row = p->n_cols * td_dtype_bits(b->dir.tensors[p->tensor].dtype) / 8;
    (void)err;
    memcpy(b->to + (size_t)(uintptr_t)p->user + row0 * row, bytes,
           (size_t)(n_rows * row));
    return TD_OK;
}

/* Where such rows may be read to at once, as a model on the processor has it. */
static void *place(void *self, const struct td_piece *p, int64_t row0, int64_t n_rows)
{
    const struct bench *b = self;
    int64_t row = p->n_cols * td_dtype_bits(b->dir.tensors[p->tensor].dtype) / 8;
    (void)n_rows;
    return b->to + (size_t)(uintptr_t)p->user + row0 * row;
}

/* Bytes of a matrix of this piece's rows, as if an element were a byte. */
static struct td_matrix as_matrix(const struct bench *b, const struct td_piece *p)
{
    int64_t row = p->n_cols * td_dtype_bits(b->dir.tensors[p->tensor].dtype) / 8;
    return (struct td_matrix){.type = TD_MAT_F8, .n = p->n_rows, .k = row};
}

static enum td_status pack(void *self, const struct td_piece *p, int64_t row0,
                           int64_t n_rows, const void *bytes, struct td_error *err)
{
    const struct bench *b = self;
    struct td_matrix m = as_matrix(b, p);
    (void)err;
    m.data = b->gpu_to + p->dst_row;
    b->gpu->ops.pack(b->gpu, &m, row0, n_rows, bytes, TD_DTYPE_F8_E4M3);
    return TD_OK;
}

/* Opens the first GPU and gives each piece its place there. */
static void open_gpu(struct bench *b)
{
    struct td_dev_params params = {.numerics = TD_NUM_BF16};
    struct td_error err;
    void *room = NULL;
    int64_t at = 0;
    td_error_init(&err);
    if (td_cuda_open(&params, &b->gpu, &err) != TD_OK)
        fail(&err);
    for (size_t i = 0; i < b->n; i++) {
        struct td_matrix m = as_matrix(b, &b->pieces[i]);
        b->pieces[i].dst_row = at;
        at += (int64_t)b->gpu->ops.matrix_bytes(b->gpu, m.type, m.n, m.k);
    }
    if (b->gpu->ops.alloc(b->gpu, (size_t)TD_MAX(at, AREA), "weights", &room, &err) !=
        TD_OK)
        fail(&err);
    b->gpu_to = room;
}

/* GB/s of copies from pinned memory alone. */
static double copy_rate(const struct bench *b)
{
    struct td_matrix m = {.type = TD_MAT_F8, .n = AREA / 4096, .k = 4096};
    size_t bytes = (size_t)AREAS * AREA;
    char *memory = td_alloc_aligned(bytes);
    double start = 0;
    m.data = b->gpu_to;
    if (!memory || !b->gpu->ops.stage(b->gpu, memory, AREAS, AREA))
        exit(1);
    for (int round = -1; round < REPEATS; round++) {
        if (round == 0)
            start = td_clock_now();
        for (int i = 0; i < AREAS; i++)
            b->gpu->ops.pack(b->gpu, &m, 0, m.n, memory + (size_t)i * AREA,
                             TD_DTYPE_F8_E4M3);
        for (int i = 0; i < AREAS; i++)
            b->gpu->ops.stage_wait(b->gpu, i);
    }
    double seconds = td_clock_now() - start;
    b->gpu->ops.stage_end(b->gpu);
    td_free_aligned(memory, bytes);
    return (double)bytes * REPEATS / seconds * 1e-9;
}

static void open_model(struct bench *b, const char *model, int rank, int ranks)
{
    struct td_slice slice;
    struct td_error err;
    int64_t at = 0;
    td_error_init(&err);
    if (td_config_read(model, &b->cfg, &err) != TD_OK ||
        td_model_dir_open(model, &b->dir, &err) != TD_OK ||
        td_slice_make(&b->cfg, rank, ranks, &slice, &err) != TD_OK ||
        td_weights_bind(&b->cfg, &b->dir, &slice, TD_UNKNOWN_FAILS, &b->weights,
                        &err) != TD_OK)
        fail(&err);
    b->pieces = td_calloc(6 * b->weights.count, sizeof(*b->pieces));
    if (!b->pieces)
        exit(1);
    for (size_t i = 0; i < b->weights.count; i++) {
        const struct td_weight *w = &b->weights.w[i];
        b->n += (size_t)td_weight_pieces(w, NULL, b->pieces + b->n);
        b->n += (size_t)td_weight_scale_pieces(w, NULL, b->pieces + b->n);
    }
    for (size_t i = 0; i < b->n; i++) {
        struct td_piece *p = &b->pieces[i];
        p->user = (void *)(uintptr_t)at;
        at +=
            p->n_rows * p->n_cols * td_dtype_bits(b->dir.tensors[p->tensor].dtype) / 8;
    }
    b->bytes = at;
}

/* One block after the other, from the files as if they were one. */
static void *read_blocks(void *self)
{
    struct bench *b = self;
    int fd = -1;
    int32_t open_shard = -1;
    for (;;) {
        int64_t at = atomic_fetch_add(&b->next, BLOCK), left = at;
        if (at >= b->bytes)
            break;
        int32_t s = 0;
        while (s + 1 < b->dir.n_shards && left >= b->dir.shards[s].size)
            left -= (b->dir.shards[s++].size + BLOCK - 1) / BLOCK * BLOCK;
        if (s != open_shard) {
            if (fd >= 0)
                (void)close(fd);
            fd = open(b->dir.shards[s].path, O_RDONLY | b->flags);
            open_shard = s;
        }
        if (fd < 0 || pread(fd, b->to + at, BLOCK, (off_t)left) < 0)
            perror(b->dir.shards[s].path);
    }
    if (fd >= 0)
        (void)close(fd);
    return NULL;
}

static void plain(struct bench *b)
{
    pthread_t threads[TD_MAX_LOAD_THREADS];
    int n = 0;
    b->next = 0;
    while (n < b->threads && pthread_create(&threads[n], NULL, read_blocks, b) == 0)
        n++;
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
}

static void forget(const struct bench *b)
{
    for (int32_t i = 0; i < b->dir.n_shards; i++) {
        int fd = open(b->dir.shards[i].path, O_RDONLY);
        if (fd < 0)
            continue;
        (void)fdatasync(fd);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
}

/* Seconds of one go; memory is fresh each time. */
static double once(struct bench *b, bool load, bool cold, enum td_load_cache cache,
                   struct td_load_stats *stats)
{
    size_t room = (size_t)b->bytes + 2 * (size_t)BLOCK;
    struct td_error err;
    td_error_init(&err);
    b->to = td_alloc_aligned(room);
    if (!b->to)
        exit(1);
    b->flags = cold && !load ? O_DIRECT : 0;
    if (cold)
        forget(b);
    double start = td_clock_now();
    struct td_load_opts opts = {.threads = b->threads,
                                .cache = cache,
                                .dev = b->gpu,
                                .place = b->gpu ? NULL : place};
    if (!load)
        plain(b);
    else if (td_load(&b->dir, b->pieces, b->n, &opts, b->gpu ? pack : copy, b, stats,
                     &err) != TD_OK)
        fail(&err);
    if (load && b->gpu && b->gpu->ops.sync(b->gpu, &err) != TD_OK)
        fail(&err);
    double seconds = td_clock_now() - start;
    td_free_aligned(b->to, room);
    return seconds;
}

/* Processor seconds of this process. */
static double spent(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* The rate of the fastest of several; b->spent: the least processor time of one. */
static double best(struct bench *b, bool load, bool cold, enum td_load_cache cache,
                   struct td_load_stats *stats)
{
    double least = 1e30;
    b->spent = 1e30;
    for (int i = 0; i < REPEATS; i++) {
        double before = spent();
        least = TD_MIN(least, once(b, load, cold, cache, stats));
        b->spent = TD_MIN(b->spent, spent() - before);
    }
    return (double)b->bytes / least * 1e-9;
}

/* GB/s of loads and of reads to compare them with. */
struct rates {
    double warm, plain, cold, direct, cached;
    double warm_spent, plain_spent; /* processor seconds */
};

static void print_rates(const struct bench *b, const struct rates *r,
                        const struct td_load_stats *stats)
{
    (void)printf("%zu pieces, %.1f MB, %d threads, best of %d\n", b->n,
                 (double)b->bytes * 1e-6, b->threads, REPEATS);
    (void)printf("warm    load %.2f GB/s, plain reads %.2f GB/s, ratio %.2f\n", r->warm,
                 r->plain, r->warm / r->plain);
    (void)printf("        %.3f s of processor time, plain reads %.3f s\n",
                 r->warm_spent, r->plain_spent);
    (void)printf("        %.4f bytes read for each one wanted, %" PRId64
                 " calls, %.1f MB staging\n",
                 (double)stats->read / (double)stats->bytes, stats->calls,
                 (double)stats->staging * 1e-6);
    (void)printf("cold    load %.2f GB/s, direct reads %.2f GB/s, ratio %.2f\n",
                 r->cold, r->direct, r->cold / r->direct);
    (void)printf("        through the page cache %.2f GB/s\n", r->cached);
}

int main(int argc, char **argv)
{
    struct bench b = {.threads = 16}; /* as td_load() does by itself */
    struct td_load_stats stats = {0};
    bool gpu = argc > 1 && strcmp(argv[1], "--gpu") == 0;
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    argc -= gpu || json;
    argv += gpu || json;
    if (argc < 2 || argc == 3 || argc > 5) {
        (void)fprintf(
            stderr, "usage: bench_load [--gpu|--json] MODEL [RANK RANKS [THREADS]]\n");
        return 2;
    }
    if (argc == 5)
        b.threads =
            TD_MAX(TD_MIN((int)strtol(argv[4], NULL, 10), TD_MAX_LOAD_THREADS), 1);
    open_model(&b, argv[1], argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0,
               argc > 3 ? (int)strtol(argv[3], NULL, 10) : 1);
    if (gpu)
        open_gpu(&b);
    (void)once(&b, false, false, TD_LOAD_CACHE_KEEP, NULL);
    struct rates r = {.plain = best(&b, false, false, TD_LOAD_CACHE_KEEP, NULL)};
    r.plain_spent = b.spent;
    r.warm = best(&b, true, false, TD_LOAD_CACHE_KEEP, &stats);
    r.warm_spent = b.spent;
    r.direct = best(&b, false, true, TD_LOAD_CACHE_DROP, NULL);
    r.cold = best(&b, true, true, TD_LOAD_CACHE_DROP, NULL);
    r.cached = best(&b, true, true, TD_LOAD_CACHE_KEEP, NULL);
    if (json)
        (void)printf("{\"warm\":%.3f,\"plain\":%.3f,\"cold\":%.3f,\"direct\":%.3f}\n",
                     r.warm, r.plain, r.cold, r.direct);
    else
        print_rates(&b, &r, &stats);
    if (gpu) {
        (void)printf("copies  from pinned memory alone %.2f GB/s\n", copy_rate(&b));
        b.gpu->ops.close(b.gpu);
    }
    td_weights_release(&b.weights);
    td_model_dir_release(&b.dir);
    td_free(b.pieces);
    return 0;
}

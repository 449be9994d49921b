/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates of this machine. See speed.h.
 */
#define _GNU_SOURCE /* O_DIRECT */
#include "plan/speed.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sysmem.h"
#include "ops/limits.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READERS = 8, BLOCK = 2 << 20, BLOCK_SIZE = 512 /* of st_blocks */ };

#define MEMORY_BYTES (256 * TD_MIB)

static const double DISK_SECONDS = 0.3;

/* ---- the disk ----------------------------------------------------------------------- */

/* The blocks of one file, read by several threads until the time is over. */
struct disk {
    int fd;
    int64_t blocks;
    double until;
    _Atomic int64_t next, bytes;
    atomic_bool failed;
};

static void *read_blocks(void *self)
{
    struct disk *d = self;
    char *buffer = td_alloc_aligned((size_t)2 * BLOCK);
    if (!buffer) {
        d->failed = true;
        return NULL;
    }
    char *at = buffer + (4096 - (uintptr_t)buffer % 4096) % 4096;
    while (!d->failed && td_clock_now() < d->until) {
        int64_t i = atomic_fetch_add(&d->next, 1);
        if (i >= d->blocks)
            break;
        ssize_t got = pread(d->fd, at, BLOCK, (off_t)(i * BLOCK));
        if (got <= 0)
            d->failed = true;
        else
            atomic_fetch_add(&d->bytes, got);
    }
    td_free_aligned(buffer, (size_t)2 * BLOCK);
    return NULL;
}

/* The largest safetensors file of a folder; false when there is none. */
static bool find_largest(const char *folder, char path[TD_MAX_PATH], struct stat *out)
{
    static const char end[] = ".safetensors";
    char name[TD_MAX_PATH];
    struct stat sb;
    bool found = false;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        if (n < sizeof(end) || strcmp(e->d_name + n - sizeof(end) + 1, end) != 0 ||
            td_path_join(name, sizeof(name), folder, e->d_name, NULL) != TD_OK ||
            stat(name, &sb) != 0 || (found && sb.st_size <= out->st_size))
            continue;
        td_text_copy(path, TD_MAX_PATH, name);
        *out = sb;
        found = true;
    }
    if (d)
        (void)closedir(d);
    return found;
}

static double run_readers(struct disk *d)
{
    pthread_t threads[READERS];
    int n = 0;
    double start = td_clock_now();
    d->until = start + DISK_SECONDS;
    while (n < READERS && pthread_create(&threads[n], NULL, read_blocks, d) == 0)
        n++;
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
    double seconds = td_clock_now() - start;
    return n && !d->failed && seconds > 0 ? (double)d->bytes / seconds : 0;
}

static void measure_disk(const char *folder, struct td_plan_rates *out)
{
    char path[TD_MAX_PATH];
    struct stat sb;
    if (!find_largest(folder, path, &sb)) {
        out->disk_how = "the files are not here";
        return;
    }
    struct disk d = {.fd = -1, .blocks = (int64_t)sb.st_size / BLOCK};
    if ((int64_t)sb.st_blocks * BLOCK_SIZE < (int64_t)sb.st_size / 2) {
        out->disk_how = "the files are holes";
        return;
    }
    if (d.blocks < READERS) {
        out->disk_how = "the files are too small to measure with";
        return;
    }
    d.fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    out->disk_how = "direct reads of its files, measured now";
    if (d.fd < 0) {
        d.fd = open(path, O_RDONLY | O_CLOEXEC);
        out->disk_how = "reads of its files, perhaps cached, measured now";
    }
    if (d.fd >= 0) {
        out->disk = run_readers(&d);
        (void)close(d.fd);
    }
    if (out->disk <= 0)
        out->disk_how = "its files cannot be read";
}

/* ---- the whole ---------------------------------------------------------------------- */

static void measure_memory(struct td_dev *dev, struct td_plan_rates *r)
{
    struct td_sysmem mem;
    struct td_limits limits = {0};
    bool host = !dev || dev->host;
    r->share = host ? TD_PLAN_SHARE_HOST : TD_PLAN_SHARE_GPU;
    if (!host)
        (void)td_limits_of(dev, false, &limits, NULL);
    else if (td_sysmem_read("", &mem, NULL) == TD_OK &&
             td_sysmem_available(&mem, NULL, 0) > 4 * MEMORY_BYTES)
        (void)td_limits_measure(0, (size_t)MEMORY_BYTES, &limits, NULL);
    r->memory = limits.read;
    if (limits.upload > 0 && limits.upload < r->disk) {
        r->disk = limits.upload;
        r->disk_how = "from the host onto the GPU, measured now";
    }
}

void td_plan_rates_measure(const char *model, struct td_dev *dev,
                           struct td_plan_rates *out)
{
    struct td_plan_rates r = {0};
    measure_disk(model, &r);
    measure_memory(dev, &r);
    *out = r;
}

int64_t td_plan_token_bytes(const struct td_config *config,
                            const struct td_slice *slice, int64_t kv_token,
                            int64_t state, int32_t context)
{
    struct td_names_sum sum;
    td_names_sum(config, slice, &(struct td_name_form){0}, &sum);
    return sum.token_bytes + kv_token * context + 2 * state;
}

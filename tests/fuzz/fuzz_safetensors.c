/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Safetensors files: the header, and reading what it describes.
 *
 * An input that begins with a brace is a header up to its first zero byte, followed by
 * data; any other input is a whole file. What the reader accepts is then loaded, whole
 * and in slices, every byte of it touched.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "load/load.h"
#include "load/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_TENSORS = 32 };

static char path[] = "/tmp/tandem-fuzz-XXXXXX";
static int fd = -1;

static void remove_file(void)
{
    (void)unlink(path);
}

static void put(const void *p, size_t n, off_t at)
{
    if (n && pwrite(fd, p, n, at) != (ssize_t)n)
        abort();
}

static void write_file(const uint8_t *data, size_t size)
{
    if (fd < 0) {
        fd = mkstemp(path);
        if (fd < 0 || atexit(remove_file) != 0)
            abort();
    }
    if (ftruncate(fd, 0) != 0)
        abort();
    if (size == 0 || data[0] != '{') {
        put(data, size, 0);
        return;
    }
    const uint8_t *end = memchr(data, 0, size);
    size_t header = end ? (size_t)(end - data) : size;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header >> (8 * i));
    put(length, sizeof(length), 0);
    put(data, header, 8);
    if (end)
        put(end + 1, size - header - 1, (off_t)(8 + header));
}

static enum td_status touch(void *self, const struct td_piece *p, int64_t row0,
                            int64_t n_rows, const void *bytes, struct td_error *err)
{
    const struct td_model_dir *dir = self;
    int64_t n = n_rows * p->n_cols * td_dtype_bits(dir->tensors[p->tensor].dtype) / 8;
    static volatile unsigned sum;
    (void)err;
    if (row0 < 0 || row0 + n_rows > p->n_rows)
        abort();
    for (int64_t i = 0; i < n; i++)
        sum = sum + ((const unsigned char *)bytes)[i];
    return TD_OK;
}

static void load_all(struct td_model_dir *dir)
{
    struct td_piece pieces[2 * MAX_TENSORS];
    size_t n = 0;
    for (int32_t i = 0; i < dir->n_tensors && i < MAX_TENSORS; i++) {
        const struct td_tensor *t = &dir->tensors[i];
        int64_t rows = t->n_dims && t->shape[0] ? t->shape[0] : 1;
        int64_t cols = t->elements / rows;
        if (td_dtype_bits(t->dtype) % 8 != 0)
            continue;
        pieces[n++] = (struct td_piece){
            .tensor = i, .rows = rows, .cols = cols, .n_rows = rows, .n_cols = cols};
        pieces[n++] = (struct td_piece){.tensor = i,
                                        .rows = rows,
                                        .cols = cols,
                                        .row0 = rows / 3,
                                        .n_rows = rows / 2,
                                        .col0 = cols / 2,
                                        .n_cols = cols / 4};
    }
    struct td_load_opts opts = {
        .threads = 1, .staging = 4096, .cache = TD_LOAD_CACHE_KEEP};
    struct td_error err;
    td_error_init(&err);
    if (td_load(dir, pieces, n, &opts, touch, dir, NULL, &err) != TD_OK)
        abort(); /* the header was checked against the file */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_arena names;
    struct td_tensor_list list = {0};
    struct td_error err;
    struct td_shard shard = {.name = "f", .path = path};
    write_file(data, size);
    td_arena_init(&names, (size_t)(16 * TD_MIB));
    td_error_init(&err);
    if (td_safetensors_read(&shard, 0, &names, &list, &err) == TD_OK) {
        struct td_model_dir dir = {.path = "d",
                                   .shards = &shard,
                                   .n_shards = 1,
                                   .tensors = list.v,
                                   .n_tensors = (int32_t)list.count};
        load_all(&dir);
    } else if (err.what[0] == 0) {
        abort();
    }
    td_free(list.v);
    td_arena_release(&names);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacking. See reader.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "explain/reader.h"

#include "base/limits.h"
#include "base/mem.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT_SIZE = 256 * 1024, ZSTD_WINDOW_LOG_MAX = 26 };

enum packing { PACK_PLAIN, PACK_GZIP, PACK_ZSTD };

struct td_reader {
    int fd;
    const char *bytes; /* memory source */
    size_t left;
    enum packing packing;
    bool end;      /* of the packed bytes */
    bool finished; /* of the text */
    bool between;  /* just after a gzip member or zstd frame */
    const char *note;
    unsigned char *in;
    size_t in_at, in_n;
    unsigned long long total;
    z_stream gz;
    ZSTD_DCtx *zstd;
};

/* Refills the input buffer when it is empty. */
static void refill(struct td_reader *r)
{
    if (r->in_at < r->in_n || r->end)
        return;
    r->in_at = r->in_n = 0;
    if (r->fd < 0) {
        size_t n = TD_MIN(r->left, (size_t)INPUT_SIZE);
        memcpy(r->in, r->bytes, n);
        r->bytes += n;
        r->left -= n;
        r->in_n = n;
    } else {
        ssize_t n;
        do
            n = read(r->fd, r->in, INPUT_SIZE);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            r->note = "reading it failed before its end";
        r->in_n = n > 0 ? (size_t)n : 0;
    }
    r->end = r->in_n == 0;
}

static enum td_status start_packing(struct td_reader *r)
{
    static const unsigned char gzip_magic[] = {0x1f, 0x8b};
    static const unsigned char zstd_magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    refill(r);
    if (r->in_n >= 2 && memcmp(r->in, gzip_magic, 2) == 0) {
        if (inflateInit2(&r->gz, 15 + 16) != Z_OK)
            return TD_E_NOMEM;
        r->packing = PACK_GZIP;
    } else if (r->in_n >= 4 && memcmp(r->in, zstd_magic, 4) == 0) {
        r->zstd = ZSTD_createDCtx();
        if (!r->zstd)
            return TD_E_NOMEM;
        (void)ZSTD_DCtx_setParameter(r->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
        r->packing = PACK_ZSTD;
    }
    return TD_OK;
}

enum td_status td_reader_new(int fd, const void *bytes, size_t n,
                             struct td_reader **out, struct td_error *err)
{
    struct td_reader *r = td_calloc(1, sizeof(*r));
    enum td_status s = r ? TD_OK : TD_E_NOMEM;
    if (s == TD_OK) {
        r->fd = fd;
        r->bytes = bytes;
        r->left = n;
        r->in = td_calloc(INPUT_SIZE, 1);
        s = r->in ? start_packing(r) : TD_E_NOMEM;
    }
    if (s != TD_OK) {
        td_reader_free(r);
        return td_error_set(err, s, "no memory to read a log");
    }
    *out = r;
    return TD_OK;
}

void td_reader_free(struct td_reader *r)
{
    if (!r)
        return;
    if (r->packing == PACK_GZIP)
        (void)inflateEnd(&r->gz);
    ZSTD_freeDCtx(r->zstd);
    td_free(r->in);
    td_free(r);
}

const char *td_reader_note(const struct td_reader *r)
{
    return r->note;
}

static size_t read_plain(struct td_reader *r, char *out, size_t n)
{
    refill(r);
    size_t k = TD_MIN(n, r->in_n - r->in_at);
    memcpy(out, r->in + r->in_at, k);
    r->in_at += k;
    return k;
}

static size_t read_gzip(struct td_reader *r, char *out, size_t n)
{
    r->gz.next_out = (Bytef *)out;
    r->gz.avail_out = (uInt)n;
    while (r->gz.avail_out == n) {
        refill(r);
        if (r->end) {
            if (!r->between && !r->note)
                r->note = "the compressed file is cut";
            break;
        }
        r->gz.next_in = r->in + r->in_at;
        r->gz.avail_in = (uInt)(r->in_n - r->in_at);
        int z = inflate(&r->gz, Z_NO_FLUSH);
        r->in_at = r->in_n - r->gz.avail_in;
        r->between = z == Z_STREAM_END;
        if (z == Z_STREAM_END) {
            (void)inflateReset(&r->gz);
        } else if (z != Z_OK && z != Z_BUF_ERROR) {
            r->note = "the compressed file is damaged";
            r->end = true;
            r->in_at = r->in_n;
            break;
        }
    }
    return n - r->gz.avail_out;
}

static size_t read_zstd(struct td_reader *r, char *out, size_t n)
{
    ZSTD_outBuffer o = {out, n, 0};
    while (o.pos == 0) {
        refill(r);
        if (r->end) {
            if (!r->between && !r->note)
                r->note = "the compressed file is cut";
            break;
        }
        ZSTD_inBuffer i = {r->in, r->in_n, r->in_at};
        size_t z = ZSTD_decompressStream(r->zstd, &o, &i);
        r->in_at = i.pos;
        r->between = z == 0;
        if (ZSTD_isError(z)) {
            r->note = "the compressed file is damaged";
            r->end = true;
            r->in_at = r->in_n;
            break;
        }
    }
    return o.pos;
}

enum td_status td_reader_read(struct td_reader *r, char *out, size_t n, size_t *got)
{
    *got = 0;
    if (r->finished || n == 0)
        return TD_OK;
    n = TD_MIN(n, (size_t)(1 << 30));
    if (r->packing == PACK_GZIP)
        *got = read_gzip(r, out, n);
    else if (r->packing == PACK_ZSTD)
        *got = read_zstd(r, out, n);
    else
        *got = read_plain(r, out, n);
    r->total += *got;
    if (r->total > TD_MAX_EXPLAIN_FILE) {
        r->note = "it is larger than tandem reads";
        r->finished = true;
    }
    r->finished = r->finished || *got == 0;
    return TD_OK;
}

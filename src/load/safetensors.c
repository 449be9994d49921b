/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of one safetensors file. See safetensors.h.
 *
 * scan_* functions read one piece of grammar at the cursor; a failure says at which byte
 * of the header it happened. Then add_tensor() checks one entry against the file, and
 * check_order() the entries against each other.
 */
#define _POSIX_C_SOURCE 200809L
#include "load/safetensors.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8 };

struct scan {
    const char *begin, *p, *end;
    const char *where;
    struct td_error *err;
};

/* An entry as it stands in the header. */
struct entry {
    const char *name;
    size_t name_len;
    enum td_dtype dtype;
    int32_t n_dims;
    int64_t shape[TD_MAX_DIMS];
    int64_t from, to; /* relative to the data */
};

static enum td_status bad(struct scan *s, const char *fmt, ...) TD_PRINTF(2, 3);

static enum td_status bad(struct scan *s, const char *fmt, ...)
{
    char text[TD_MAX_NAME + 128];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return td_error_set(s->err, TD_E_HEADER, "%s: header byte %zu: %s", s->where,
                        (size_t)(s->p - s->begin), text);
}

static void skip_space(struct scan *s)
{
    while (s->p < s->end &&
           (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
}

/* True and past it when the next character is c. */
static bool take(struct scan *s, char c)
{
    skip_space(s);
    if (s->p >= s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

static enum td_status expect(struct scan *s, char c)
{
    return take(s, c) ? TD_OK : bad(s, "expected '%c'", c);
}

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* Decodes the escape behind a backslash into at most 3 bytes. Surrogate pairs do not
 * occur in tensor names and are refused. */
static enum td_status scan_escape(struct scan *s, char out[3], size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = s->p < s->end ? memchr(from, *s->p, sizeof(from) - 1) : NULL;
    if (at) {
        out[0] = to[at - from];
        *n = 1;
        s->p++;
        return TD_OK;
    }
    if (s->end - s->p < 5 || *s->p != 'u')
        return bad(s, "an escape that JSON does not have");
    int c = hex4(s->p + 1);
    if (c < 0 || (c >= 0xD800 && c <= 0xDFFF))
        return bad(s, "a \\u escape that is not a character");
    s->p += 5;
    if (c < 0x80) {
        out[0] = (char)c;
        *n = 1;
    } else if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        *n = 2;
    } else {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        *n = 3;
    }
    return TD_OK;
}

/* A string of at most size bytes after decoding. With size 0 it is only checked for
 * syntax and passed over, however long. */
static enum td_status scan_string(struct scan *s, char *out, size_t size, size_t *len)
{
    size_t n = 0;
    enum td_status st = expect(s, '"');
    while (st == TD_OK && s->p < s->end && *s->p != '"') {
        char piece[3] = {*s->p};
        size_t m = 1;
        s->p++;
        if (piece[0] == '\\')
            st = scan_escape(s, piece, &m);
        else if ((unsigned char)piece[0] < 0x20)
            st = bad(s, "a control character in a string");
        if (st != TD_OK)
            break;
        if (size && n + m > size)
            return bad(s, "a name of more than %zu bytes", size);
        if (size)
            memcpy(out + n, piece, m);
        n += m;
    }
    if (st == TD_OK && s->p >= s->end)
        st = bad(s, "a string that does not end");
    if (st != TD_OK)
        return st;
    s->p++;
    *len = n;
    return TD_OK;
}

/* A whole number from 0 to 2^62. */
static enum td_status scan_uint(struct scan *s, int64_t *out)
{
    int64_t v = 0;
    skip_space(s);
    const char *first = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') {
        if (v > ((INT64_C(1) << 62) - 9) / 10)
            return bad(s, "a number that is too large");
        v = v * 10 + (*s->p++ - '0');
    }
    if (s->p == first || (*first == '0' && s->p - first > 1))
        return bad(s, "expected a whole number");
    *out = v;
    return TD_OK;
}

/* An array of at most max whole numbers. */
static enum td_status scan_uints(struct scan *s, int64_t *out, int32_t max, int32_t *n)
{
    enum td_status st = expect(s, '[');
    *n = 0;
    if (st != TD_OK || take(s, ']'))
        return st;
    do {
        if (*n >= max)
            return bad(s, "more than %d numbers in an array", max);
        st = scan_uint(s, &out[(*n)++]);
    } while (st == TD_OK && take(s, ','));
    return st == TD_OK ? expect(s, ']') : st;
}

static enum td_status scan_field(struct scan *s, const char *key, size_t len,
                                 struct entry *e, unsigned *seen)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    unsigned k = 0;
    char name[16];
    int64_t range[2] = {0, 0};
    int32_t n = 0;
    size_t name_len = 0;
    while (k < TD_COUNT(keys) &&
           (strlen(keys[k]) != len || memcmp(keys[k], key, len) != 0))
        k++;
    if (k == TD_COUNT(keys) || (*seen & 1u << k))
        return bad(s, "\"%.*s\" %s in a tensor's entry", (int)len, key,
                   k == TD_COUNT(keys) ? "is unknown" : "is given twice");
    *seen |= 1u << k;
    if (k == 1)
        return scan_uints(s, e->shape, TD_MAX_DIMS, &e->n_dims);
    if (k == 2) {
        enum td_status st = scan_uints(s, range, 2, &n);
        if (st == TD_OK && n != 2)
            st = bad(s, "\"data_offsets\" needs two numbers");
        if (st == TD_OK) {
            e->from = range[0];
            e->to = range[1];
        }
        return st;
    }
    enum td_status st = scan_string(s, name, sizeof(name), &name_len);
    if (st == TD_OK && !td_dtype_parse(name, name_len, &e->dtype)) {
        st = bad(s, "the number format \"%.*s\" of %.*s is unknown", (int)name_len,
                 name, (int)e->name_len, e->name);
        td_error_why(s->err, "tandem reads weights in F32, F16, BF16 and F8_E4M3");
        td_error_fix(s->err, "use a checkpoint in BF16 or block FP8");
    }
    return st;
}

static enum td_status scan_entry(struct scan *s, struct entry *e)
{
    unsigned seen = 0;
    enum td_status st = expect(s, '{');
    if (st == TD_OK && !take(s, '}')) {
        do {
            char key[16];
            size_t len = 0;
            st = scan_string(s, key, sizeof(key), &len);
            if (st == TD_OK)
                st = expect(s, ':');
            if (st == TD_OK)
                st = scan_field(s, key, len, e, &seen);
        } while (st == TD_OK && take(s, ','));
        if (st == TD_OK)
            st = expect(s, '}');
    }
    if (st == TD_OK && seen != 7)
        st = bad(s, "%.*s lacks dtype, shape or data_offsets", (int)e->name_len,
                 e->name);
    return st;
}

static enum td_status scan_metadata(struct scan *s)
{
    size_t len = 0;
    enum td_status st = expect(s, '{');
    if (st != TD_OK || take(s, '}'))
        return st;
    do {
        st = scan_string(s, NULL, 0, &len);
        if (st == TD_OK)
            st = expect(s, ':');
        if (st == TD_OK)
            st = scan_string(s, NULL, 0, &len);
    } while (st == TD_OK && take(s, ','));
    return st == TD_OK ? expect(s, '}') : st;
}

static enum td_status check_name(struct scan *s, const char *name, size_t n)
{
    if (n == 0)
        return bad(s, "a tensor without a name");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F ||
            ((unsigned char)name[i] == 0xC2 && i + 1 < n &&
             (unsigned char)name[i + 1] < 0xA0))
            return bad(s, "a control character in a tensor name");
    return td_utf8_valid(name, n) ? TD_OK : bad(s, "a tensor name that is not UTF-8");
}

/* The entry's size from its shape, and whether its range says the same. */
static enum td_status check_entry(struct scan *s, const struct entry *e,
                                  int64_t *elements)
{
    int64_t n = 1, bits = td_dtype_bits(e->dtype);
    for (int32_t i = 0; i < e->n_dims; i++) {
        if (e->shape[i] && n > (INT64_C(1) << 56) / e->shape[i])
            return bad(s, "the shape of %.*s is too large", (int)e->name_len, e->name);
        n *= e->shape[i];
    }
    if (e->from > e->to)
        return bad(s, "the range %" PRId64 "..%" PRId64 " of %.*s runs backwards",
                   e->from, e->to, (int)e->name_len, e->name);
    if (n * bits % 8 != 0 || n * bits / 8 != e->to - e->from)
        return bad(s, "%.*s has %" PRId64 " bytes, its shape and format need %" PRId64,
                   (int)e->name_len, e->name, e->to - e->from, (n * bits + 7) / 8);
    *elements = n;
    return TD_OK;
}

static enum td_status grow(struct td_tensor_list *list, struct scan *s)
{
    if (list->count >= TD_MAX_TENSORS)
        return td_error_set(s->err, TD_E_LIMIT, "%s: more than %d tensors", s->where,
                            TD_MAX_TENSORS);
    if (list->count < list->cap)
        return TD_OK;
    size_t cap = list->cap ? list->cap * 2 : 1024;
    struct td_tensor *v = td_realloc(list->v, cap, sizeof(*v));
    if (!v)
        return td_error_set(s->err, TD_E_NOMEM, "no memory for the header of %s",
                            s->where);
    list->v = v;
    list->cap = cap;
    return TD_OK;
}

static enum td_status add_tensor(struct scan *s, const struct entry *e, int64_t start,
                                 int32_t shard, struct td_arena *names,
                                 struct td_tensor_list *list)
{
    int64_t elements = 0;
    enum td_status st = check_entry(s, e, &elements);
    if (st == TD_OK)
        st = grow(list, s);
    if (st != TD_OK)
        return st;
    const char *name = td_arena_strndup(names, e->name, e->name_len);
    if (!name)
        return td_error_set(s->err, names->status, "no memory for the names in %s",
                            s->where);
    struct td_tensor *t = &list->v[list->count++];
    *t = (struct td_tensor){.name = name,
                            .name_len = (uint32_t)e->name_len,
                            .dtype = e->dtype,
                            .shard = shard,
                            .n_dims = e->n_dims,
                            .elements = elements,
                            .offset = start + e->from,
                            .bytes = e->to - e->from};
    memcpy(t->shape, e->shape, sizeof(t->shape));
    return TD_OK;
}

/* Where the tensors of a header go. */
struct sink {
    int64_t start;
    int32_t shard;
    struct td_arena *names;
    struct td_tensor_list *list;
    bool seen_meta;
};

/* One `"name": {...}` of the header. */
static enum td_status scan_member(struct scan *s, struct sink *to)
{
    static const char meta[] = "__metadata__";
    char name[TD_MAX_NAME];
    struct entry e = {.name = name};
    enum td_status st = scan_string(s, name, sizeof(name), &e.name_len);
    if (st == TD_OK)
        st = check_name(s, name, e.name_len);
    if (st == TD_OK)
        st = expect(s, ':');
    if (st != TD_OK)
        return st;
    if (e.name_len == sizeof(meta) - 1 && memcmp(name, meta, e.name_len) == 0) {
        if (to->seen_meta)
            return bad(s, "two __metadata__");
        to->seen_meta = true;
        return scan_metadata(s);
    }
    st = scan_entry(s, &e);
    return st == TD_OK ? add_tensor(s, &e, to->start, to->shard, to->names, to->list)
                       : st;
}

static enum td_status scan_header(struct scan *s, struct sink *to)
{
    enum td_status st = expect(s, '{');
    if (st == TD_OK && !take(s, '}')) {
        do
            st = scan_member(s, to);
        while (st == TD_OK && take(s, ','));
        if (st == TD_OK)
            st = expect(s, '}');
    }
    skip_space(s);
    if (st == TD_OK && s->p != s->end)
        st = bad(s, "text behind the end of the JSON");
    return st;
}

static int by_offset(const void *a, const void *b)
{
    const struct td_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    /* empty ones first, so that only true overlaps look like overlaps */
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The last tensor ends where the file ends. */
static enum td_status check_end(struct scan *s, const struct td_tensor *last,
                                int64_t file_size)
{
    int64_t end = last->offset + last->bytes;
    if (end == file_size)
        return TD_OK;
    enum td_status st = end > file_size ? TD_E_TRUNCATED : TD_E_HEADER;
    td_error_set(s->err, st, "%s has %" PRId64 " bytes, its header describes %" PRId64,
                 s->where, file_size, end);
    if (st == TD_E_TRUNCATED)
        td_error_why(s->err,
                     "the data of %s end behind the end of the file: a download or "
                     "copy did not finish",
                     last->name);
    else
        td_error_why(s->err,
                     "bytes follow the data of %s, which are the last: header and data "
                     "do not belong together",
                     last->name);
    return st;
}

static enum td_status check_order(struct scan *s, const struct td_tensor *t, size_t n,
                                  int64_t file_size)
{
    for (size_t i = 1; i < n; i++)
        if (t[i].offset < t[i - 1].offset + t[i - 1].bytes)
            return td_error_set(s->err, TD_E_HEADER,
                                strcmp(t[i - 1].name, t[i].name) == 0
                                    ? "%s: %s is given twice"
                                    : "%s: the data of %s and %s overlap",
                                s->where, t[i - 1].name, t[i].name);
    return check_end(s, &t[n - 1], file_size);
}

enum td_status td_safetensors_parse(const char *text, size_t n, const char *where,
                                    int64_t data_start, int64_t file_size,
                                    int32_t shard, struct td_arena *names,
                                    struct td_tensor_list *list, struct td_error *err)
{
    struct scan s = {
        .begin = text, .p = text, .end = text + n, .where = where, .err = err};
    size_t first = list->count;
    struct sink to = {
        .start = data_start, .shard = shard, .names = names, .list = list};
    enum td_status st = scan_header(&s, &to);
    if (st != TD_OK || list->count == first)
        return st;
    qsort(list->v + first, list->count - first, sizeof(*list->v), by_offset);
    return check_order(&s, list->v + first, list->count - first, file_size);
}

/* ---- files ------------------------------------------------------------------------- */

static enum td_status read_at(int fd, char *out, size_t n, int64_t offset,
                              const char *path, struct td_error *err)
{
    ssize_t got = td_pread(fd, out, n, offset);
    if (got < 0)
        return td_error_set(err, TD_E_IO, "cannot read %s at byte %" PRId64 ": %s",
                            path, offset, strerror(errno));
    if ((size_t)got < n)
        return td_error_set(err, TD_E_TRUNCATED,
                            "%s ended at byte %" PRId64 " while being read", path,
                            offset + (int64_t)got);
    return TD_OK;
}

/* The header's length, from the first bytes of a file that may be no safetensors. */
static enum td_status read_length(int fd, const struct td_shard *shard,
                                  uint64_t *length, struct td_error *err)
{
    unsigned char head[64];
    size_t n = (size_t)TD_MIN(shard->size, (int64_t)sizeof(head));
    enum td_status st = read_at(fd, (char *)head, n, 0, shard->path, err);
    if (st != TD_OK)
        return st;
    if (td_is_lfs_pointer((const char *)head, n))
        return td_error_set(err, TD_E_LFS_POINTER,
                            "%s is a Git-LFS pointer, not the weights", shard->path);
    if (n < LENGTH_BYTES)
        return td_error_set(err, TD_E_TRUNCATED,
                            "%s has %" PRId64 " bytes, a safetensors file at least 10",
                            shard->path, shard->size);
    *length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        *length = *length << 8 | head[i];
    if (*length > (uint64_t)TD_MAX_HEADER) {
        td_error_set(err, TD_E_HEADER,
                     "%s says that its header has %" PRIu64 " bytes, at most %lld are "
                     "read",
                     shard->path, *length, (long long)TD_MAX_HEADER);
        td_error_why(err, "the file is not in safetensors format, or damaged");
        return TD_E_HEADER;
    }
    if ((int64_t)*length > shard->size - LENGTH_BYTES)
        return td_error_set(err, TD_E_TRUNCATED,
                            "%s has %" PRId64 " bytes, its header alone %" PRIu64,
                            shard->path, shard->size, *length + LENGTH_BYTES);
    return TD_OK;
}

static enum td_status read_open(int fd, struct td_shard *shard, int32_t index,
                                struct td_arena *names, struct td_tensor_list *list,
                                struct td_error *err)
{
    uint64_t length = 0;
    size_t first = list->count;
    enum td_status st = read_length(fd, shard, &length, err);
    if (st != TD_OK)
        return st;
    char *text = td_calloc((size_t)length, 1);
    if (!text)
        return td_error_set(err, TD_E_NOMEM, "no memory for the header of %s",
                            shard->path);
    shard->data_start = LENGTH_BYTES + (int64_t)length;
    st = read_at(fd, text, (size_t)length, LENGTH_BYTES, shard->path, err);
    if (st == TD_OK)
        st = td_safetensors_parse(text, (size_t)length, shard->path, shard->data_start,
                                  shard->size, index, names, list, err);
    shard->first = (int32_t)first;
    shard->count = (int32_t)(list->count - first);
    td_free(text);
    return st;
}

enum td_status td_safetensors_read(struct td_shard *shard, int32_t index,
                                   struct td_arena *names, struct td_tensor_list *list,
                                   struct td_error *err)
{
    int fd = -1;
    enum td_status st = td_file_open(shard->path, &fd, &shard->size, err);
    if (st != TD_OK)
        return st;
    st = read_open(fd, shard, index, names, list, err);
    (void)close(fd);
    return st;
}

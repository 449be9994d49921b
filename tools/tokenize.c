/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a model's tokenizer by itself: to look at ids, to compare, to measure.
 *
 *     build/tokenize MODEL <text             ids of the text, in a line
 *     build/tokenize MODEL --decode <ids     text of the ids (decimal numbers)
 *     build/tokenize MODEL --time N <text    N passes, processor seconds of each
 *
 *     --plain          special tokens in the text are text
 *     --skip-special   leave special tokens out of decoded text
 *     --frames         many texts: each is its length (four bytes, low first) and its
 *                      bytes. Ids come, or go with --decode, as their count and then
 *                      four bytes each; decoded texts come as frames
 */
#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"
#include "text/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const size_t input_max = (size_t)TD_GIB;

struct options {
    const char *model;
    bool decode, plain, skip_special, frames;
    long passes; /* 0: no measurement */
};

static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--decode") == 0)
            o->decode = true;
        else if (strcmp(a, "--plain") == 0)
            o->plain = true;
        else if (strcmp(a, "--skip-special") == 0)
            o->skip_special = true;
        else if (strcmp(a, "--frames") == 0)
            o->frames = true;
        else if (strcmp(a, "--time") == 0 && i + 1 < argc)
            o->passes = strtol(argv[++i], NULL, 10);
        else if (a[0] != '-' && !o->model)
            o->model = a;
        else
            return false;
    }
    return o->model && o->passes >= 0;
}

static bool read_input(struct td_buf *in)
{
    for (;;) {
        if (td_buf_reserve(in, (size_t)TD_MIB) != TD_OK)
            return false;
        size_t n = fread(in->p + in->len, 1, (size_t)TD_MIB, stdin);
        td_buf_set_len(in, in->len + n);
        if (n == 0)
            return !ferror(stdin);
    }
}

static uint32_t number_at(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 |
           (uint32_t)u[3] << 24;
}

static void add_number(struct td_buf *out, uint32_t x)
{
    const char bytes[4] = {(char)(x & 0xFF), (char)(x >> 8 & 0xFF),
                           (char)(x >> 16 & 0xFF), (char)(x >> 24)};
    td_buf_add(out, bytes, sizeof(bytes));
}

/* Takes the next text (or ids: `unit` bytes each) off the input; false at its end. */
static bool next(const struct td_buf *in, const struct options *o, size_t unit,
                 size_t *at, const char **p, size_t *n)
{
    if (*at >= in->len && !(in->len == 0 && *at == 0 && !o->frames))
        return false;
    if (!o->frames) {
        *p = in->p;
        *n = in->len;
        *at = in->len + 1;
        return true;
    }
    if (in->len - *at < 4)
        return false;
    *n = (size_t)number_at(in->p + *at) * unit;
    *p = in->p + *at + 4;
    if (*n > in->len - *at - 4)
        return false;
    *at += 4 + *n;
    return true;
}

static enum td_status encode_one(const struct td_tokenizer *t, const struct options *o,
                                 const char *p, size_t n, struct td_ids *ids,
                                 struct td_error *err)
{
    ids->len = 0;
    return td_tokenizer_encode(t, p, n, o->plain ? TD_ENCODE_TEXT : TD_ENCODE_SPECIAL,
                               ids, err);
}

static enum td_status encode_all(const struct td_tokenizer *t, const struct options *o,
                                 const struct td_buf *in, struct td_buf *out,
                                 struct td_error *err)
{
    struct td_ids ids;
    const char *p;
    size_t n, at = 0;
    enum td_status s = TD_OK;
    td_ids_init(&ids);
    while (s == TD_OK && next(in, o, 1, &at, &p, &n)) {
        s = encode_one(t, o, p, n, &ids, err);
        if (s == TD_OK && o->frames)
            add_number(out, (uint32_t)ids.len);
        for (size_t i = 0; s == TD_OK && i < ids.len; i++) {
            if (o->frames)
                add_number(out, (uint32_t)ids.p[i]);
            else
                td_buf_addf(out, i ? " %" PRId32 : "%" PRId32, ids.p[i]);
        }
        if (!o->frames)
            td_buf_addc(out, '\n');
    }
    td_ids_release(&ids);
    return s;
}

static enum td_status read_ids(const struct options *o, const char *p, size_t n,
                               struct td_ids *ids)
{
    enum td_status s = TD_OK;
    ids->len = 0;
    for (size_t i = 0; o->frames && i < n && s == TD_OK; i += 4)
        s = td_ids_add(ids, (int32_t)number_at(p + i));
    for (char *q; !o->frames && s == TD_OK; p = q) {
        long id = strtol(p, &q, 10);
        if (q == p)
            break;
        s = td_ids_add(ids, (int32_t)id);
    }
    return s;
}

static enum td_status decode_all(const struct td_tokenizer *t, const struct options *o,
                                 const struct td_buf *in, struct td_buf *out)
{
    struct td_ids ids;
    struct td_buf text;
    const char *p;
    size_t n, at = 0;
    enum td_status s = TD_OK;
    td_ids_init(&ids);
    td_buf_init(&text, input_max);
    while (s == TD_OK && next(in, o, 4, &at, &p, &n)) {
        td_buf_clear(&text);
        s = read_ids(o, p, n, &ids);
        if (s == TD_OK)
            s = td_tokenizer_decode(
                t, ids.p, ids.len,
                o->skip_special ? TD_DECODE_SKIP_SPECIAL : TD_DECODE_ALL, &text);
        if (o->frames)
            add_number(out, (uint32_t)text.len);
        td_buf_add(out, text.p, text.len);
    }
    td_ids_release(&ids);
    td_buf_release(&text);
    return s;
}

/* Seconds of processor time: what else the machine does matters less. */
static double processor_now(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Each pass encodes all texts; prints its seconds. */
static enum td_status measure(const struct td_tokenizer *t, const struct options *o,
                              const struct td_buf *in, struct td_buf *out,
                              struct td_error *err)
{
    struct td_ids ids;
    const char *p;
    size_t n;
    enum td_status s = TD_OK;
    td_ids_init(&ids);
    for (long pass = 0; pass < o->passes && s == TD_OK; pass++) {
        double start = processor_now();
        for (size_t at = 0; s == TD_OK && next(in, o, 1, &at, &p, &n);)
            s = encode_one(t, o, p, n, &ids, err);
        td_buf_addf(out, "%.6f\n", processor_now() - start);
    }
    td_ids_release(&ids);
    return s;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct td_tokenizer *t = NULL;
    struct td_error err;
    struct td_buf in, out;
    if (!parse(argc, argv, &o)) {
        (void)fprintf(stderr, "usage: tokenize MODEL [--decode] [--time N] [--plain] "
                              "[--skip-special] [--frames] <input\n");
        return 2;
    }
    td_error_init(&err);
    td_buf_init(&in, input_max);
    td_buf_init(&out, input_max);
    double start = processor_now();
    enum td_status s = td_tokenizer_load(o.model, &t, &err);
    if (o.passes)
        (void)fprintf(stderr, "load %.6f\n", processor_now() - start);
    if (s == TD_OK && !read_input(&in))
        s = td_error_set(&err, TD_E_IO, "cannot read the input");
    if (s == TD_OK && o.passes)
        s = measure(t, &o, &in, &out, &err);
    else if (s == TD_OK && o.decode)
        s = decode_all(t, &o, &in, &out);
    else if (s == TD_OK)
        s = encode_all(t, &o, &in, &out, &err);
    if (s == TD_OK)
        s = out.status;
    if (s == TD_OK && fwrite(out.p, 1, out.len, stdout) != out.len)
        s = td_error_set(&err, TD_E_IO, "cannot write the output");
    if (s != TD_OK)
        td_error_set(&err, s, "%s", td_status_info(s)->title);
    if (s != TD_OK)
        (void)fprintf(stderr, "error   %s\ncause   %s\nfix     %s\n", err.what, err.why,
                      err.fix);
    td_tokenizer_free(t);
    td_buf_release(&in);
    td_buf_release(&out);
    return s == TD_OK ? 0 : 1;
}

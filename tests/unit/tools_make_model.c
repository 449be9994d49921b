/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_model: FP8 blocks against a search over all codes, equal bytes on every run and
 * with any number of threads, the inventory of published checkpoints, well-formed
 * files, and refusals.
 */
#define _XOPEN_SOURCE 700
#include "check.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/float.h"
#include "base/json.h"
#include "base/mem.h"
#include "tools/make_model/synth.h"

enum { MAX_WORDS = 48 };

static char folder[TD_MAX_PATH]; /* of the test at hand */

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(folder, sizeof(folder), "%s/tandem-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int empty_folder(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        (void)unlinkat(dirfd(d), e->d_name, 0);
    return d ? closedir(d) : -1;
}

static int remove_folder(void **state)
{
    return empty_folder(state) || rmdir(folder);
}

/* Parses a command line; the folder comes last. */
static enum td_status parse(const char *line, struct td_synth *m, struct td_error *err)
{
    static char text[1024];
    char *words[MAX_WORDS];
    int n = 0;
    bool help = false;
    (void)snprintf(text, sizeof(text), "%s", line);
    for (char *p = text; *p && n < MAX_WORDS - 1; p += strspn(p, " ")) {
        words[n++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = 0;
    }
    words[n++] = folder;
    td_error_init(err);
    return td_synth_parse(n, words, m, &help, err);
}

static void make(const char *line)
{
    struct td_synth m;
    struct td_error err;
    struct td_synth_stats stats;
    (void)empty_folder(NULL);
    if (parse(line, &m, &err) != TD_OK || td_synth_write(&m, &stats, &err) != TD_OK)
        fail_msg("%s: %s (%s)", line, err.what, err.why);
}

static void read_file(const char *name, struct td_buf *b)
{
    char path[TD_MAX_PATH];
    td_buf_init(b, 64 * TD_MIB);
    assert_int_equal(td_path_join(path, sizeof(path), folder, name, NULL), TD_OK);
    assert_int_equal(td_file_read(path, b, NULL), TD_OK);
}

static uint64_t hash_file(const char *name)
{
    struct td_buf b;
    uint64_t h = 0xcbf29ce484222325u;
    read_file(name, &b);
    for (size_t i = 0; i < b.len; i++)
        h = (h ^ (uint8_t)b.p[i]) * 0x100000001b3u;
    td_buf_release(&b);
    return h;
}

/* The values of one matrix, as f32 and as FP8 with scales. */
static void fp8_blocks(int64_t rows, int64_t cols, enum td_dtype scale_dtype)
{
    struct td_synth_tensor t = {
        .key = td_synth_key(3, "x"), .rows = rows, .cols = cols};
    size_t n = (size_t)(rows * cols), size = (size_t)td_synth_size(scale_dtype);
    size_t across = ((size_t)cols + 127) / 128, down = ((size_t)rows + 127) / 128;
    uint8_t *wide = td_calloc(n, 4), *codes = td_calloc(n, 1);
    uint8_t *scales = td_calloc(across * down, size);
    size_t highest = 0;
    t.gain = 1;
    assert_non_null(wide);
    assert_non_null(codes);
    assert_non_null(scales);
    t.dtype = TD_DTYPE_F32;
    td_synth_values(&t, 0, rows, wide, scale_dtype, NULL);
    t.dtype = TD_DTYPE_F8_E4M3;
    td_synth_values(&t, 0, rows, codes, scale_dtype, scales);
    for (size_t i = 0; i < n; i++) {
        size_t block = i / (size_t)cols / 128 * across + i % (size_t)cols / 128;
        float w, scale;
        uint16_t half;
        memcpy(&w, wide + 4 * i, 4);
        memcpy(&half, scales + block * size, 2);
        memcpy(&scale, scales + block * size, size);
        scale = size == 2 ? td_f32_from_bf16(half) : scale;
        float x = w / scale, best = INFINITY;
        for (int c = 0; c < 256; c++) /* NaN compares false */
            if (fabsf(td_e4m3_table[c] - x) < best)
                best = fabsf(td_e4m3_table[c] - x);
        assert_true(fabsf(td_e4m3_table[codes[i]] - x) == best);
        highest += (codes[i] & 0x7f) == 0x7e;
    }
    assert_true(highest >= across * down); /* the largest of each block is 448 */
    td_free(wide);
    td_free(codes);
    td_free(scales);
}

static void fp8_is_exact(void **state)
{
    (void)state;
    fp8_blocks(256, 128, TD_DTYPE_BF16);
    fp8_blocks(130, 300, TD_DTYPE_F32);
    fp8_blocks(1, 97, TD_DTYPE_BF16);
}

static void spread_is_as_asked(void **state)
{
    (void)state;
    enum { ROWS = 1280, COLS = 1280 };
    static float w[ROWS * COLS];
    struct td_synth_tensor t = {.key = td_synth_key(0, "y"), .gain = 2};
    double sum = 0, squares = 0;
    t.rows = ROWS;
    t.cols = COLS;
    td_synth_values(&t, 0, ROWS, (uint8_t *)w, TD_DTYPE_F32, NULL);
    for (size_t i = 0; i < TD_COUNT(w); i++) {
        sum += (double)w[i];
        squares += (double)w[i] * (double)w[i];
    }
    assert_true(fabs(sum / (ROWS * COLS)) < 0.01 * 2 / sqrt(COLS));
    assert_true(fabs(sqrt(squares / (ROWS * COLS)) * sqrt(COLS) - 2) < 0.1);
    /* Rows made alone are the same rows. */
    float part[COLS];
    td_synth_values(&t, 256, 1, (uint8_t *)part, TD_DTYPE_F32, NULL);
    assert_memory_equal(part, w + 256 * COLS, sizeof(part));
}

/* These bytes are promised: recorded results of other tests rest on them. */
static void bytes_are_fixed(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "--preset tiny-moe --threads 1",
        "--preset tiny-moe --threads 4",
    };
    for (size_t i = 0; i < TD_COUNT(lines); i++) {
        make(lines[i]);
        assert_int_equal(hash_file("model.safetensors"), 0xdcd477c916dd02fcu);
    }
    make("--preset tiny-dense --seed 7");
    assert_int_equal(hash_file("model.safetensors"), 0xf49215efc5e7a079u);
}

/* Reads a file's header; gives the tensors' total size and checks that there are no
 * holes and that each tensor is aligned to its element size. */
static int64_t check_header(const char *name, int64_t *tensors)
{
    struct td_buf b;
    json_t *header, *entry, *part;
    const char *key;
    uint64_t length;
    int64_t end = 0, largest = 8;
    read_file(name, &b);
    memcpy(&length, b.p, 8);
    assert_true(length % 8 == 0 && length + 8 <= b.len);
    assert_int_equal(td_json_parse(b.p + 8, (size_t)length, name, &header, NULL),
                     TD_OK);
    json_object_foreach(header, key, entry)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        const char *dtype = json_string_value(json_object_get(entry, "dtype"));
        json_t *at = json_object_get(entry, "data_offsets");
        int64_t count = 1, size = strcmp(dtype, "F32") == 0       ? 4
                                  : strcmp(dtype, "F8_E4M3") == 0 ? 1
                                                                  : 2;
        size_t i;
        json_array_foreach(json_object_get(entry, "shape"), i, part) count *=
            json_integer_value(part);
        assert_int_equal(json_integer_value(json_array_get(at, 0)), end);
        assert_true(end % size == 0 && size <= largest);
        largest = size;
        end += count * size;
        assert_int_equal(json_integer_value(json_array_get(at, 1)), end);
        ++*tensors;
    }
    assert_int_equal(8 + length + (uint64_t)end, b.len);
    json_decref(header);
    td_buf_release(&b);
    return end;
}

static void shards_are_well_formed(void **state)
{
    (void)state;
    struct td_buf b;
    json_t *index;
    int64_t tensors = 0, bytes = 0;
    make("--preset tiny-moe --shards 3 --mtp-file --vision-layers 1");
    bytes += check_header("model-00001-of-00003.safetensors", &tensors);
    bytes += check_header("model-00002-of-00003.safetensors", &tensors);
    bytes += check_header("model-00003-of-00003.safetensors", &tensors);
    bytes += check_header("mtp.safetensors", &tensors);
    read_file("model.safetensors.index.json", &b);
    assert_int_equal(td_json_parse(b.p, b.len, "index", &index, NULL), TD_OK);
    json_t *map = json_object_get(index, "weight_map");
    json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    assert_int_equal(json_object_size(map), tensors);
    assert_int_equal(json_integer_value(total), bytes);
    assert_string_equal(json_string_value(json_object_get(map, "mtp.fc.weight")),
                        "mtp.safetensors");
    json_decref(index);
    td_buf_release(&b);
}

/* The same weights under either prefix; holes where headers are all that is asked for. */
static void layouts_agree(void **state)
{
    (void)state;
    struct stat full, sparse;
    char path[TD_MAX_PATH];
    struct td_buf a, b;
    make("--preset tiny-dense --layout flat");
    read_file("model.safetensors", &a);
    make("--preset tiny-dense");
    read_file("model.safetensors", &b);
    uint64_t la, lb;
    memcpy(&la, a.p, 8);
    memcpy(&lb, b.p, 8);
    assert_int_equal(a.len - la, b.len - lb);
    assert_memory_equal(a.p + 8 + la, b.p + 8 + lb, a.len - 8 - la);
    td_buf_release(&a);
    td_buf_release(&b);
    assert_int_equal(
        td_path_join(path, sizeof(path), folder, "model.safetensors", NULL), TD_OK);
    assert_int_equal(stat(path, &full), 0);
    make("--preset tiny-dense --headers-only");
    assert_int_equal(stat(path, &sparse), 0);
    assert_int_equal(full.st_size, sparse.st_size);
    assert_true(sparse.st_blocks < full.st_blocks / 2);
}

/* Counts and sizes of published checkpoints, text and vision. */
static void inventory(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int64_t tensors, main_bytes, draft_bytes; /* without vision */
    } known[] = {
        {"--preset 35b-a3b", 64196, 35707988096, 853668480},
        {"--preset 122b-a10b", 76656, 123706066944, 2543664640},
        {"--preset 27b --vision-layers 0", 0, 29468020224, 0},
        {"--preset 35b-a3b --dtype bf16 --vision-layers 0", 712, 0, 0},
    };
    for (size_t k = 0; k < TD_COUNT(known); k++) {
        struct td_synth m;
        struct td_error err;
        struct td_synth_list l;
        int64_t bytes = 0, draft = 0;
        assert_int_equal(parse(known[k].line, &m, &err), TD_OK);
        assert_int_equal(td_synth_list_init(&l, &m, &err), TD_OK);
        for (int64_t i = 0; i < l.count; i++) {
            const struct td_synth_tensor *t = &l.items[i];
            if (strncmp(t->name, "mtp.", 4) == 0)
                draft += t->bytes;
            else if (strncmp(t->name, "model.visual.", 13) != 0)
                bytes += t->bytes;
        }
        if (known[k].tensors)
            assert_int_equal(l.count, known[k].tensors);
        if (known[k].main_bytes)
            assert_int_equal(bytes, known[k].main_bytes);
        if (known[k].draft_bytes)
            assert_int_equal(draft, known[k].draft_bytes);
        td_synth_list_release(&l);
    }
}

/* A small vocabulary gets the tokenizer cut down to bytes and added tokens. */
static void tokenizer_is_cut_down(void **state)
{
    (void)state;
    struct td_buf b;
    json_t *t, *token;
    size_t i;
    make("--preset tiny-dense --vocab 282");
    read_file("tokenizer.json", &b);
    assert_int_equal(td_json_parse(b.p, b.len, "tokenizer", &t, NULL), TD_OK);
    json_t *model = json_object_get(t, "model"),
           *added = json_object_get(t, "added_tokens");
    assert_int_equal(json_object_size(json_object_get(model, "vocab")), 256);
    assert_int_equal(json_array_size(json_object_get(model, "merges")), 0);
    assert_int_equal(json_array_size(added), 26);
    json_array_foreach(added, i, token)
        assert_int_equal(json_integer_value(json_object_get(token, "id")), 256 + i);
    json_decref(t);
    td_buf_release(&b);
    make("--preset tiny-dense --vocab 8192");
    assert_int_equal(access("models/lexicon/tokenizer.json", R_OK), 0);
    read_file("tokenizer.json", &b);
    struct td_buf original;
    td_buf_init(&original, 64 * TD_MIB);
    assert_int_equal(td_file_read("models/lexicon/tokenizer.json", &original, NULL),
                     TD_OK);
    assert_int_equal(b.len, original.len);
    assert_memory_equal(b.p, original.p, b.len);
    td_buf_release(&b);
    td_buf_release(&original);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *line, *what;
    } cases[] = {
        {"--preset none", "--preset"},
        {"--hidden 0", "--hidden is \"0\""},
        {"--heads 3", "no multiple of --kv-heads"},
        {"--gdn-value-heads 5", "no multiple of --gdn-key-heads"},
        {"--rotary 0.3", "not an even number"},
        {"--layer-types llx", "besides l and f"},
        {"--layer-types llf --layers 4", "another length"},
        {"--experts 8 --intermediate 64", "both --experts and --intermediate"},
        {"--experts 0", "neither --experts nor --intermediate"},
        {"--top-k 9", "larger than --experts"},
        {"--preset tiny-dense --experts 4", "lacks --moe"},
        {"--preset tiny-dense --top-k 2", "for a dense model"},
        {"--preset tiny-dense --expert-form fused", "fused experts"},
        {"--expert-form fused --moe 96", "whole blocks"},
        {"--dtype bf16 --scale-dtype f32", "--scale-dtype"},
        {"--layout flat --vision-layers 2", "--layout flat"},
        {"--no-mtp --mtp-file --shards 2", "without the draft layer"},
        {"--no-mtp --mtp-expert-form fused", "without the draft layer"},
        {"--mtp-file", "without --shards"},
        {"--shards 2 --shard-size 1M", "both --shards and --shard-size"},
        {"--vocab 281 --tokenizer models/lexicon", "--vocab 281 is too small"},
        {"--tokenizer /nonexistent", "/nonexistent"},
        {"one", "no directory"},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        struct td_synth m;
        struct td_error err;
        struct td_synth_stats stats;
        (void)empty_folder(NULL);
        enum td_status s = parse(cases[i].line, &m, &err);
        if (s == TD_OK)
            s = td_synth_write(&m, &stats, &err);
        if (s == TD_OK || !strstr(err.what, cases[i].what))
            fail_msg("%s: status %d, \"%s\"", cases[i].line, s, err.what);
        assert_true(*err.why && *err.fix);
    }
    make("--preset tiny-dense");
    struct td_synth m;
    struct td_error err;
    struct td_synth_stats stats;
    assert_int_equal(parse("--preset tiny-dense", &m, &err), TD_OK);
    assert_int_equal(td_synth_write(&m, &stats, &err), TD_E_USAGE);
    assert_non_null(strstr(err.what, "holds a model already"));
}

static void memory_failures(void **state)
{
    (void)state;
    struct td_synth m;
    struct td_error err;
    struct td_synth_stats stats;
    enum td_status s = TD_E_NOMEM;
    long n = 0;
    assert_int_equal(parse("--preset tiny-moe --threads 1 --shards 2", &m, &err),
                     TD_OK);
    while (s != TD_OK) {
        struct td_synth_list l;
        td_error_init(&err);
        td_mem_fail_at(++n);
        s = td_synth_list_init(&l, &m, &err);
        if (s == TD_OK)
            s = td_synth_write_weights(&m, &l, &stats, &err);
        td_mem_fail_at(0);
        td_synth_list_release(&l);
        assert_true(s == TD_OK || (s == TD_E_NOMEM && err.code == s));
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp8_is_exact),
        cmocka_unit_test(spread_is_as_asked),
        cmocka_unit_test_setup_teardown(bytes_are_fixed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(shards_are_well_formed, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(layouts_agree, make_folder, remove_folder),
        cmocka_unit_test(inventory),
        cmocka_unit_test_setup_teardown(tokenizer_is_cut_down, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(refusals, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(memory_failures, make_folder, remove_folder),
    };
    return cmocka_run_group_tests_name("tools_make_model", tests, NULL, NULL);
}

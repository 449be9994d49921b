/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model directories: shards with and without an index, and every way in which they can
 * disagree.
 */
#include "ckpt.h"

#include "base/clock.h"
#include "base/mem.h"
#include "load/model_dir.h"

#define A        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
#define B        "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
#define INDEX    "model.safetensors.index.json"
#define SHARD(n) "model-0000" n "-of-00002.safetensors"

static void expect(const struct ckpt *c, enum td_status code, const char *says)
{
    struct td_model_dir dir;
    struct td_error err;
    td_error_init(&err);
    enum td_status s = td_model_dir_open(c->dir, &dir, &err);
    if (s == TD_OK)
        td_model_dir_release(&dir);
    if (code != TD_OK)
        check_error(&err, code, says);
    assert_int_equal(s, code);
}

/* Two shards and their index. */
static void make_two(const struct ckpt *c)
{
    ckpt_file(c, SHARD("1"), A, 4);
    ckpt_file(c, SHARD("2"), B, 4);
    ckpt_text(c, INDEX,
              "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"b\":\"" SHARD(
                  "2") "\",\"a\":\"" SHARD("1") "\"}}");
}

static void lexicon(void **state)
{
    struct td_model_dir dir;
    struct td_error err;
    (void)state;
    td_error_init(&err);
    assert_int_equal(td_model_dir_open("models/lexicon", &dir, &err), TD_OK);
    assert_int_equal(dir.n_shards, 3);
    assert_int_equal(dir.n_tensors, 1063);
    assert_int_equal(dir.bytes, 43645880);
    int32_t t = td_model_dir_find(&dir, "mtp.fc.weight");
    assert_true(t >= 0);
    assert_int_equal(dir.tensors[t].n_dims, 2);
    assert_int_equal(dir.tensors[t].shape[0], 256);
    assert_int_equal(dir.tensors[t].shape[1], 512);
    assert_int_equal(dir.tensors[t].dtype, TD_DTYPE_BF16);
    assert_int_equal(td_model_dir_find(&dir, "mtp.fc.weigh"), -1);
    /* file order, and every tensor is found under its name */
    for (int32_t i = 0; i < dir.n_tensors; i++) {
        const struct td_tensor *now = &dir.tensors[i];
        const struct td_shard *shard = &dir.shards[now->shard];
        assert_int_equal(td_model_dir_find(&dir, now->name), i);
        assert_true(i >= shard->first && i < shard->first + shard->count);
        assert_true(now->offset >= shard->data_start);
        assert_true(now->offset + now->bytes <= shard->size);
        if (i > shard->first)
            assert_true(now[-1].offset + now[-1].bytes <= now->offset);
    }
    td_model_dir_release(&dir);
}

static void index_and_shards(void **state)
{
    struct ckpt c;
    char path[512];
    (void)state;
    ckpt_init(&c);
    make_two(&c);
    expect(&c, TD_OK, NULL);
    /* the same without an index */
    ckpt_path(&c, INDEX, path);
    assert_int_equal(unlink(path), 0);
    expect(&c, TD_OK, NULL);
    /* numbered shards tell that one is missing */
    ckpt_path(&c, SHARD("1"), path);
    assert_int_equal(unlink(path), 0);
    expect(&c, TD_E_NOT_FOUND, SHARD("1"));
    make_two(&c);
    assert_int_equal(unlink(path), 0);
    expect(&c, TD_E_NOT_FOUND, SHARD("1"));
    /* a pointer in place of one of them */
    ckpt_text(&c, SHARD("1"),
              "version https://git-lfs.github.com/spec/v1\noid sha256:");
    expect(&c, TD_E_LFS_POINTER, SHARD("1"));
    /* the same tensor in both */
    ckpt_file(&c, SHARD("1"), B, 4);
    expect(&c, TD_E_HEADER, "b is given twice");
    ckpt_file(&c, SHARD("1"),
              "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
              "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
              4);
    expect(&c, TD_E_HEADER, "a is given twice");
    /* more, fewer and other tensors than the index says */
    ckpt_file(&c, SHARD("1"),
              "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
              "\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
              4);
    expect(&c, TD_E_TENSOR, "x is not named");
    ckpt_file(&c, SHARD("1"), "{}", 4);
    expect(&c, TD_E_TENSOR, "a is said to lie in " SHARD("1"));
    ckpt_file(&c, SHARD("1"), B, 4);
    ckpt_file(&c, SHARD("2"), A, 4);
    expect(&c, TD_E_TENSOR, SHARD("1") " has it");
    ckpt_release(&c);
}

static void bad_indexes(void **state)
{
    static const struct {
        const char *text;
        enum td_status code;
        const char *says;
    } list[] = {
        {"", TD_E_JSON, INDEX},
        {"[]", TD_E_JSON, "weight_map"},
        {"{\"weight_map\":{}}", TD_E_JSON, "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", TD_E_JSON, "a lies in no file"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", TD_E_JSON, "same folder"},
        {"{\"weight_map\":{\"a\":\"/etc/x.safetensors\"}}", TD_E_JSON, "same folder"},
        {"{\"weight_map\":{\"a\":\"sub/x.safetensors\"}}", TD_E_JSON, "same folder"},
        {"{\"weight_map\":{\"a\":\".safetensors\"}}", TD_E_JSON, "same folder"},
        {"{\"weight_map\":{\"a\":\"passwd\"}}", TD_E_JSON, "same folder"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}}",
         TD_E_JSON, "duplicate"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\"}}", TD_E_NOT_FOUND,
         "x.safetensors is missing"},
        {"version https://git-lfs.github.com/spec/v1", TD_E_LFS_POINTER, INDEX},
    };
    struct ckpt c;
    (void)state;
    ckpt_init(&c);
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        ckpt_text(&c, INDEX, list[i].text);
        expect(&c, list[i].code, list[i].says);
    }
    /* links to files that were not copied along are not taken for no index */
    char path[512];
    ckpt_path(&c, INDEX, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/no/such/blob", path), 0);
    expect(&c, TD_E_NOT_FOUND, INDEX);
    ckpt_release(&c);
}

static void other_directories(void **state)
{
    struct ckpt c;
    (void)state;
    ckpt_init(&c);
    expect(&c, TD_E_NOT_FOUND, ".safetensors");
    ckpt_text(&c, "pytorch_model.bin", "x");
    expect(&c, TD_E_UNSUPPORTED, "PyTorch");
    ckpt_release(&c);
    ckpt_init(&c);
    ckpt_text(&c, "model-Q4_K_M.gguf", "GGUF");
    expect(&c, TD_E_UNSUPPORTED, "GGUF");
    ckpt_release(&c);
    expect(&c, TD_E_NOT_FOUND, "cannot open");
}

static void failing_allocations(void **state)
{
    struct ckpt c;
    struct td_model_dir dir;
    struct td_error err;
    (void)state;
    ckpt_init(&c);
    make_two(&c);
    long n = 1;
    for (;; n++) {
        td_error_init(&err);
        td_mem_fail_at(n);
        enum td_status s = td_model_dir_open(c.dir, &dir, &err);
        td_mem_fail_at(0);
        if (s == TD_OK)
            break;
        check_error(&err, TD_E_NOMEM, NULL);
    }
    td_model_dir_release(&dir);
    assert_true(n > 8);
    ckpt_release(&c);
}

/* As many tensors as the largest checkpoints of today hold, in a fraction of a second. */
static void many_tensors(void **state)
{
    enum { COUNT = 76656 };
    struct ckpt c;
    struct td_model_dir dir;
    struct td_error err;
    size_t size = (size_t)COUNT * 160, len = 0;
    char *text = td_calloc(size, 1);
    (void)state;
    td_error_init(&err);
    ckpt_init(&c);
    assert_non_null(text);
    for (int i = 0; i < COUNT; i++)
        len += (size_t)snprintf(text + len, size - len,
                                "%c\"model.language_model.layers.%d.mlp.experts.%d.w\":"
                                "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":"
                                "[%d,%d]}",
                                i ? ',' : '{', i / 512, i % 512, i, i + 1);
    text[len] = '}';
    ckpt_file(&c, "model.safetensors", text, COUNT);
    double start = td_clock_now();
    assert_int_equal(td_model_dir_open(c.dir, &dir, &err), TD_OK);
    assert_true(td_clock_now() - start < 20.0); /* quadratic would take minutes */
    assert_int_equal(dir.n_tensors, COUNT);
    assert_true(
        td_model_dir_find(&dir, "model.language_model.layers.7.mlp.experts.9.w") > 0);
    td_model_dir_release(&dir);
    td_free(text);
    ckpt_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lexicon),
        cmocka_unit_test(index_and_shards),
        cmocka_unit_test(bad_indexes),
        cmocka_unit_test(other_directories),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(many_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

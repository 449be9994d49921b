/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of safetensors files: what is accepted, and every way to lie in one.
 */
#include "ckpt.h"

#include "base/limits.h"
#include "base/mem.h"
#include "load/safetensors.h"

struct result {
    struct td_arena names;
    struct td_tensor_list list;
    struct td_error err;
};

static enum td_status parse(struct result *r, const char *text, size_t n, int64_t data)
{
    *r = (struct result){0};
    td_arena_init(&r->names, (size_t)TD_MIB);
    td_error_init(&r->err);
    return td_safetensors_parse(text, n, "f", 100, 100 + data, 3, &r->names, &r->list,
                                &r->err);
}

static void result_release(struct result *r)
{
    td_arena_release(&r->names);
    td_free(r->list.v);
}

static void good_header(void **state)
{
    static const char text[] =
        " {\"__metadata__\" : {\"format\":\"pt\", \"a\\u00e9\":\"\\n\"},\n"
        "\"b\":{\"data_offsets\":[6,22],\"shape\":[2,2],\"dtype\":\"F32\"},"
        "\"a \\\"\\u00e9\\u20ac\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":"
        "[0,6]},\"none\":{\"dtype\":\"F8_E4M3\",\"shape\":[0,7],\"data_offsets\":[6,6]}"
        ","
        "\"one\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[30,31]}}   ";
    struct result r;
    (void)state;
    assert_int_equal(parse(&r, text, sizeof(text) - 1, 31), TD_OK);
    assert_int_equal(r.list.count, 4);
    const struct td_tensor *t = r.list.v;
    assert_string_equal(t[0].name, "a \"\xC3\xA9\xE2\x82\xAC");
    assert_int_equal(t[0].name_len, strlen(t[0].name));
    assert_int_equal(t[0].dtype, TD_DTYPE_BF16);
    assert_int_equal(t[0].offset, 100);
    assert_string_equal(t[1].name, "none");
    assert_int_equal(t[1].elements, 0);
    assert_string_equal(t[2].name, "b");
    assert_int_equal(t[2].n_dims, 2);
    assert_int_equal(t[2].shape[1], 2);
    assert_int_equal(t[2].elements, 4);
    assert_int_equal(t[2].offset, 106);
    assert_int_equal(t[2].bytes, 16);
    assert_int_equal(t[2].shard, 3);
    assert_string_equal(t[3].name, "one");
    assert_int_equal(t[3].elements, 1);
    result_release(&r);
    assert_int_equal(parse(&r, "{}", 2, 0), TD_OK);
    assert_int_equal(r.list.count, 0);
    result_release(&r);
}

#define ENTRY(dtype, shape, offsets)                                                   \
    "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct {
    const char *text;
    enum td_status code;
    const char *says;
} bad_headers[] = {
    {"", TD_E_HEADER, "expected '{'"},
    {"[]", TD_E_HEADER, "expected '{'"},
    {"{", TD_E_HEADER, "expected '\"'"},
    {"{}x", TD_E_HEADER, "behind the end"},
    {"{\"t\"", TD_E_HEADER, "expected ':'"},
    {"{\"t", TD_E_HEADER, "does not end"},
    {"{\"t\":{}}", TD_E_HEADER, "lacks"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", TD_E_HEADER, "lacks"},
    {"{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", TD_E_HEADER, "twice"},
    {"{\"t\":{\"stride\":[1]}}", TD_E_HEADER, "unknown"},
    {"{\"t\":{\"a key of many letters\":1}}", TD_E_HEADER, "more than 16"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", TD_E_HEADER, "two __metadata__"},
    {"{\"__metadata__\":{\"a\":1}}", TD_E_HEADER, "expected '\"'"},
    {"{\"__metadata__\":[]}", TD_E_HEADER, "expected '{'"},
    {"{\"\":"
     "{}}",
     TD_E_HEADER, "without a name"},
    {"{\"a\\u0001\":{}}", TD_E_HEADER, "control character"},
    {"{\"a\x01\":{}}", TD_E_HEADER, "control character"},
    {"{\"a\xFF\":{}}", TD_E_HEADER, "not UTF-8"},
    {"{\"a\\ud800\":{}}", TD_E_HEADER, "not a character"},
    {"{\"a\\u12\":{}}", TD_E_HEADER, "escape"},
    {"{\"a\\q\":{}}", TD_E_HEADER, "escape"},
    {"{\"a\\", TD_E_HEADER, "escape"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}", TD_E_HEADER,
     "expected '\"'"},
    {ENTRY("F33", "[1]", "[0,4]"), TD_E_HEADER, "\"F33\" of "},
    {ENTRY("F32", "[1,1,1,1,1,1,1]", "[0,4]"), TD_E_HEADER, "more than 6"},
    {ENTRY("F32", "[-1]", "[0,4]"), TD_E_HEADER, "whole number"},
    {ENTRY("F32", "[1.0]", "[0,4]"), TD_E_HEADER, "expected ']'"},
    {ENTRY("F32", "[01]", "[0,4]"), TD_E_HEADER, "whole number"},
    {ENTRY("F32", "[1]", "[0]"), TD_E_HEADER, "two numbers"},
    {ENTRY("F32", "[1]", "[0,4,8]"), TD_E_HEADER, "more than 2"},
    {ENTRY("F32", "[1]", "[4,0]"), TD_E_HEADER, "backwards"},
    {ENTRY("F32", "[1]", "[0,5]"), TD_E_HEADER, "shape and format need 4"},
    {ENTRY("F32", "[2]", "[0,4]"), TD_E_HEADER, "shape and format need 8"},
    {ENTRY("F4", "[3]", "[0,1]"), TD_E_HEADER, "shape and format need 2"},
    {ENTRY("U8", "[99999999999999999999]", "[0,4]"), TD_E_HEADER, "too large"},
    {ENTRY("U8", "[4611686018427387904]", "[0,4]"), TD_E_HEADER, "too large"},
    {ENTRY("U8", "[4294967296,4294967296]", "[0,0]"), TD_E_HEADER, "too large"},
    {ENTRY("U8", "[4294967296,4294967296,4294967296]", "[0,0]"), TD_E_HEADER,
     "too large"},
    {ENTRY("U8", "[9]", "[0,9]"), TD_E_TRUNCATED,
     "108 bytes, its header describes 109"},
    {ENTRY("U8", "[7]", "[0,7]"), TD_E_HEADER, "108 bytes, its header describes 107"},
    {ENTRY("U8", "[1]", "[4611686018427387000,4611686018427387001]"), TD_E_TRUNCATED,
     "describes"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
     TD_E_HEADER, "a and b overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     TD_E_HEADER, "overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     TD_E_HEADER, "a is given twice"},
    /* CSI as one character of two bytes: terminals obey it */
    {"{\"a\xc2\x9b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     TD_E_HEADER, "control character"},
};

static void lying_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < TD_COUNT(bad_headers); i++) {
        struct result r;
        const char *text = bad_headers[i].text;
        assert_int_equal(parse(&r, text, strlen(text), 8), bad_headers[i].code);
        check_error(&r.err, bad_headers[i].code, bad_headers[i].says);
        result_release(&r);
    }
}

/* A header cut anywhere is refused, never read past its end. */
static void cut_headers(void **state)
{
    static const char text[] = "{\"__metadata__\":{\"a\":\"\\u0041\"}," //
                               "\"t\\n\":{\"dtype\":\"U8\",\"shape\":[8],"
                               "\"data_offsets\":[0,8]}}";
    (void)state;
    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        struct result r;
        char *copy = td_calloc(n, 1); /* exact size: a sanitizer sees one byte more */
        assert_non_null(copy);
        memcpy(copy, text, n);
        assert_int_equal(parse(&r, copy, n, 8), TD_E_HEADER);
        result_release(&r);
        td_free(copy);
    }
}

static void name_of_maximal_length(void **state)
{
    char text[TD_MAX_NAME + 100];
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct result r;
        int n = TD_MAX_NAME + more;
        char name[TD_MAX_NAME + 2];
        memset(name, 'n', (size_t)n);
        name[n] = 0;
        int len = snprintf(text, sizeof(text),
                           "{\"%s\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":"
                           "[0,8]}}",
                           name);
        enum td_status s = parse(&r, text, (size_t)len, 8);
        assert_int_equal(s, more ? TD_E_HEADER : TD_OK);
        result_release(&r);
    }
}

static enum td_status read_file(const struct ckpt *c, struct td_error *err)
{
    char path[512];
    struct td_arena names;
    struct td_tensor_list list = {0};
    td_arena_init(&names, (size_t)TD_MIB);
    td_error_init(err);
    ckpt_path(c, "f.safetensors", path);
    struct td_shard shard = {.name = "f.safetensors", .path = path};
    enum td_status s = td_safetensors_read(&shard, 0, &names, &list, err);
    if (s == TD_OK)
        assert_int_equal(shard.count, (int32_t)list.count);
    td_arena_release(&names);
    td_free(list.v);
    return s;
}

static void files(void **state)
{
    static const char header[] = ENTRY("U8", "[8]", "[0,8]");
    struct ckpt c;
    struct td_error err;
    (void)state;
    ckpt_init(&c);
    assert_int_equal(read_file(&c, &err), TD_E_NOT_FOUND);
    check_error(&err, TD_E_NOT_FOUND, "f.safetensors");
    ckpt_file(&c, "f.safetensors", header, 8);
    assert_int_equal(read_file(&c, &err), TD_OK);
    ckpt_file(&c, "f.safetensors", header, 7);
    assert_int_equal(read_file(&c, &err), TD_E_TRUNCATED);
    ckpt_file_saying(&c, "f.safetensors", sizeof(header) + 9, header, 8);
    assert_int_equal(read_file(&c, &err), TD_E_TRUNCATED);
    check_error(&err, TD_E_TRUNCATED, "its header alone");
    ckpt_file_saying(&c, "f.safetensors", UINT64_C(2) << 30, header, 8);
    assert_int_equal(read_file(&c, &err), TD_E_HEADER);
    check_error(&err, TD_E_HEADER, "2147483648");
    ckpt_file_saying(&c, "f.safetensors", UINT64_MAX, header, 8);
    assert_int_equal(read_file(&c, &err), TD_E_HEADER);
    ckpt_file_saying(&c, "f.safetensors", 0, "", 0);
    assert_int_equal(read_file(&c, &err), TD_E_HEADER);
    ckpt_text(&c, "f.safetensors", "");
    assert_int_equal(read_file(&c, &err), TD_E_TRUNCATED);
    ckpt_text(&c, "f.safetensors", "1234567");
    assert_int_equal(read_file(&c, &err), TD_E_TRUNCATED);
    ckpt_text(&c, "f.safetensors",
              "version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 9\n");
    assert_int_equal(read_file(&c, &err), TD_E_LFS_POINTER);
    ckpt_release(&c);
    /* a folder in place of a file */
    ckpt_init(&c);
    char path[512];
    ckpt_path(&c, "f.safetensors", path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(read_file(&c, &err), TD_E_IO);
    assert_int_equal(rmdir(path), 0);
    ckpt_release(&c);
}

static void failing_allocations(void **state)
{
    struct ckpt c;
    struct td_error err;
    (void)state;
    ckpt_init(&c);
    ckpt_file(&c, "f.safetensors", ENTRY("U8", "[8]", "[0,8]"), 8);
    long n = 1;
    for (;; n++) {
        td_mem_fail_at(n);
        enum td_status s = read_file(&c, &err);
        td_mem_fail_at(0);
        if (s == TD_OK)
            break;
        check_error(&err, TD_E_NOMEM, "f.safetensors");
    }
    assert_true(n > 3);
    ckpt_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_header), cmocka_unit_test(lying_headers),
        cmocka_unit_test(cut_headers), cmocka_unit_test(name_of_maximal_length),
        cmocka_unit_test(files),       cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

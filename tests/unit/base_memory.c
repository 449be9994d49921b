/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: allocation and its failures, buffers and their ceiling, arenas, maps.
 */
#include "check.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static void test_mem(void **state)
{
    (void)state;
    char *p = td_calloc(100, 3);
    assert_non_null(p);
    assert_true(is_zero(p, 300));
    td_free(p);
    assert_null(td_calloc(SIZE_MAX / 2, 3));
    assert_null(td_realloc(NULL, SIZE_MAX / 2, 3));
    p = td_strndup("tandem", 3);
    assert_string_equal(p, "tan");
    td_free(p);
    td_free(NULL);
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4 << 20, (4 << 20) + 1};
    for (size_t i = 0; i < TD_COUNT(sizes); i++) {
        char *a = td_alloc_aligned(sizes[i]);
        assert_non_null(a);
        assert_int_equal((uintptr_t)a % 64, 0);
        assert_true(is_zero(a, sizes[i]));
        memset(a, 1, sizes[i]);
        td_free_aligned(a, sizes[i]);
    }
    assert_null(td_alloc_aligned(SIZE_MAX - 1));
    td_free_aligned(NULL, 100);
}

static void test_fail_at(void **state)
{
    (void)state;
    td_mem_fail_at(2);
    void *a = td_calloc(1, 1), *b = td_calloc(1, 1), *c = td_calloc(1, 1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    td_free(a);
    td_free(c);
    td_mem_fail_at(1);
    td_mem_fail_at(0);
    a = td_calloc(1, 1);
    assert_non_null(a);
    td_free(a);
}

static void test_buf(void **state)
{
    (void)state;
    struct td_buf b;
    td_buf_init(&b, 10);
    assert_string_equal(b.p, "");
    td_buf_drop(&b, 0);
    assert_int_equal(td_buf_addf(&b, "%d-%s", 12, "ab"), TD_OK);
    assert_int_equal(td_buf_addc(&b, '!'), TD_OK);
    assert_string_equal(b.p, "12-ab!");
    assert_int_equal(td_buf_adds(&b, "3456"), TD_OK);
    assert_int_equal(b.len, 10);
    /* full: the failure stays and the contents too */
    assert_int_equal(td_buf_addc(&b, 'x'), TD_E_LIMIT);
    assert_int_equal(td_buf_add(&b, "", 0), TD_E_LIMIT);
    assert_int_equal(td_buf_reserve(&b, SIZE_MAX), TD_E_LIMIT);
    assert_string_equal(b.p, "12-ab!3456");
    td_buf_clear(&b);
    assert_int_equal(b.status, TD_OK);
    assert_string_equal(b.p, "");
    assert_int_equal(td_buf_addf(&b, "%s", "more than ten bytes"), TD_E_LIMIT);
    assert_string_equal(b.p, "");
    td_buf_clear(&b);
    td_buf_adds(&b, "abcdef");
    td_buf_drop(&b, 4);
    assert_string_equal(b.p, "ef");
    assert_int_equal(td_buf_reserve(&b, 3), TD_OK);
    memcpy(b.p + b.len, "ghi", 3);
    td_buf_set_len(&b, 5);
    char *taken = td_buf_take(&b);
    assert_string_equal(taken, "efghi");
    assert_string_equal(b.p, "");
    td_free(taken);
    taken = td_buf_take(&b);
    assert_string_equal(taken, "");
    td_free(taken);
    td_mem_fail_at(1);
    assert_int_equal(td_buf_addc(&b, 'x'), TD_E_NOMEM);
    assert_int_equal(td_buf_addc(&b, 'x'), TD_E_NOMEM);
    assert_string_equal(b.p, "");
    td_buf_release(&b);
    assert_int_equal(b.status, TD_OK);
}

static void test_arena(void **state)
{
    (void)state;
    struct td_arena a;
    td_arena_init(&a, 8 * TD_MIB);
    for (size_t i = 0; i < 3000; i++) {
        char *p = td_arena_alloc(&a, i % 700, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_true(is_zero(p, i % 700));
        memset(p, 0xAA, i % 700);
    }
    char *s = td_arena_strndup(&a, "tandem", 4);
    assert_string_equal(s, "tand");
    assert_non_null(td_arena_alloc(&a, 2 * TD_MIB, 1));
    assert_null(td_arena_alloc(&a, SIZE_MAX / 4, 8));
    assert_int_equal(a.status, TD_E_LIMIT);
    assert_null(td_arena_alloc(&a, 1, 1));
    td_arena_release(&a);
    assert_int_equal(a.status, TD_OK);
    td_mem_fail_at(1);
    assert_null(td_arena_alloc(&a, 1, 1));
    assert_int_equal(a.status, TD_E_NOMEM);
    td_arena_release(&a);
    td_arena_init(&a, 100);
    assert_null(td_arena_alloc(&a, 101, 1));
    assert_int_equal(a.status, TD_E_LIMIT);
    td_arena_release(&a);
}

static void test_map(void **state)
{
    (void)state;
    enum { N = 5000 };
    static char keys[N][16];
    struct td_map m;
    uint64_t v = 0;
    td_map_init(&m);
    assert_false(td_map_get(&m, "a", 1, &v));
    for (int i = 0; i < N; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "key%d", i);
        assert_int_equal(td_map_put(&m, keys[i], strlen(keys[i]), (uint64_t)i), TD_OK);
    }
    assert_int_equal(td_map_put(&m, keys[7], strlen(keys[7]), 77), TD_OK);
    assert_int_equal(m.count, N);
    for (int i = 0; i < N; i++) {
        assert_true(td_map_get(&m, keys[i], strlen(keys[i]), &v));
        assert_int_equal(v, i == 7 ? 77 : i);
    }
    /* lengths count: zero bytes and prefixes are keys of their own */
    assert_false(td_map_get(&m, "key", 3, &v));
    assert_false(td_map_get(&m, "key1\0", 5, &v));
    assert_int_equal(td_map_put(&m, "", 0, 5), TD_OK);
    assert_true(td_map_get(&m, "other", 0, &v));
    assert_int_equal(v, 5);
    td_map_release(&m);
    td_mem_fail_at(1);
    assert_int_equal(td_map_put(&m, "a", 1, 1), TD_E_NOMEM);
    assert_int_equal(td_map_put(&m, "a", 1, 1), TD_OK);
    td_map_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mem), cmocka_unit_test(test_fail_at),
        cmocka_unit_test(test_buf), cmocka_unit_test(test_arena),
        cmocka_unit_test(test_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

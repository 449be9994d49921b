/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans over a row and partial selection, each against a loop or a full sort; the random
 * number generator against its published vectors.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sample/sample_int.h"

enum { MOST = 700 };

static uint64_t state = 1;

static uint32_t next(void)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(state >> 33);
}

/* Steps of a quarter, so that ties are common; now and then all equal, and -0. */
static void fill(float *x, int32_t n)
{
    uint32_t span = next() % 5 == 0 ? 1 : 1 + next() % 200;
    for (int32_t i = 0; i < n; i++) {
        x[i] = (float)((int)(next() % span) - (int)(span / 2)) * 0.25F;
        if (x[i] == 0 && next() % 2)
            x[i] = -0.0F;
    }
}

static int descending(const void *a, const void *b)
{
    uint64_t p = *(const uint64_t *)a, q = *(const uint64_t *)b;
    return p < q ? 1 : p > q ? -1 : 0;
}

static void test_keys_order(void **unused)
{
    (void)unused;
    static const float up[] = {-INFINITY, -3e38F, -1.0F, -1e-40F, 0.0F,
                               1e-40F,    1.0F,   3e38F, INFINITY};
    for (size_t i = 0; i < TD_COUNT(up); i++) {
        assert_true(td_key_value(td_key(up[i], 7)) == up[i]);
        assert_int_equal(td_key_id(td_key(up[i], 7)), 7);
        assert_true(td_key(up[i], 3) > td_key(up[i], 4));
        if (i > 0)
            assert_true(td_key(up[i], INT32_MAX) > td_key(up[i - 1], 0));
    }
    assert_true(td_key(-0.0F, 5) == td_key(0.0F, 5));
    uint64_t keys[2] = {td_key(1.0F, 9), td_key(5.0F, 10)};
    td_key_swap(keys, 2);
    assert_true(keys[0] > keys[1]);
}

static void test_row_scans(void **unused)
{
    (void)unused;
    static float x[MOST];
    for (int round = 0; round < 400; round++) {
        int32_t n = 1 + (int32_t)(next() % MOST);
        struct td_sample_work w;
        assert_int_equal(td_sample_work_init(&w, n, NULL), TD_OK);
        fill(x, n);
        float max, most = x[0];
        int32_t best = 0;
        for (int32_t i = 1; i < n; i++)
            if (x[i] > x[best])
                best = i;
        most = x[best];
        assert_true(td_row_max(&w, x, &max));
        assert_true(max == most);
        assert_int_equal(td_row_argmax(&w, x, max), best);

        struct td_scale scale = {max, 1.0F / (0.05F + (float)(next() % 40) / 20.0F)};
        double total = 0;
        for (int32_t i = 0; i < n; i++)
            total += exp((double)((x[i] - max) * scale.inv_temperature));
        double sum = td_row_sum(&w, x, &scale);
        assert_true(fabs(sum - total) < 1e-6 * total);

        int32_t id = (int32_t)(next() % (uint32_t)n), rank = 0;
        for (int32_t i = 0; i < n; i++)
            rank += x[i] > x[id] || (x[i] == x[id] && i < id);
        assert_int_equal(td_row_rank(&w, x, x[id], id), rank);

        size_t k = 1 + next() % (uint32_t)n, reach = 0;
        float floor = td_row_floor(&w, (int64_t)k);
        for (int32_t i = 0; i < n; i++)
            reach += x[i] >= floor;
        assert_true(reach >= k);
        assert_int_equal(td_row_gather(&w, x, floor), reach);
        for (size_t i = 0; i < reach; i++)
            assert_true(td_key_value(w.keys[i]) == x[td_key_id(w.keys[i])] &&
                        td_key_value(w.keys[i]) >= floor);
        td_sample_work_release(&w);
    }
}

static void test_bad_values_are_seen_everywhere(void **unused)
{
    (void)unused;
    static float x[200];
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    struct td_sample_work w;
    float max;
    assert_int_equal(td_sample_work_init(&w, 200, NULL), TD_OK);
    for (int32_t i = 0; i < 200; i++)
        for (size_t j = 0; j < TD_COUNT(bad); j++) {
            x[i] = bad[j];
            assert_false(td_row_max(&w, x, &max));
            x[i] = i % 2 ? 3.4e38F : -3.4e38F;
            assert_true(td_row_max(&w, x, &max));
            x[i] = 0;
        }
    td_sample_work_release(&w);
}

static void test_row_draw_lays_ids_side_by_side(void **unused)
{
    (void)unused;
    static float x[300];
    struct td_sample_work w;
    assert_int_equal(td_sample_work_init(&w, 300, NULL), TD_OK);
    for (int round = 0; round < 200; round++) {
        float max;
        fill(x, 300);
        x[next() % 300] = 500.0F; /* most others get no weight at all */
        if (next() % 2)
            fill(x, 300);
        assert_true(td_row_max(&w, x, &max));
        struct td_scale scale = {max, 1.0F};
        double total = td_row_sum(&w, x, &scale);
        double u = round == 0 ? 1.0 : (1.0 + next()) / 2147483648.0, before = 0;
        int32_t id = td_row_draw(&w, x, &scale, total, u);
        assert_in_range(id, 0, 299);
        for (int32_t i = 0; i < id; i++)
            before += exp((double)(x[i] - max));
        double after = before + exp((double)(x[id] - max));
        assert_true(u * total >= before - 1e-5 * total);
        assert_true(u * total <= after + 1e-5 * total);
    }
    td_sample_work_release(&w);
}

static void test_selection(void **unused)
{
    (void)unused;
    static uint64_t keys[MOST], sorted[MOST];
    static float x[MOST];
    for (int round = 0; round < 500; round++) {
        size_t n = 1 + next() % MOST, k = next() % (n + 1);
        fill(x, (int32_t)n);
        for (size_t i = 0; i < n; i++)
            sorted[i] = keys[i] = td_key(x[i], (int32_t)i);
        qsort(sorted, n, sizeof(*sorted), descending);
        td_key_select(keys, n, k);
        for (size_t i = 0; i < k; i++)
            assert_true(keys[i] >= sorted[k - 1]);
        for (size_t i = k; i < n; i++)
            assert_true(keys[i] <= sorted[k]);
        k = TD_MIN(k, (size_t)TD_MAX_LOGPROBS);
        td_key_sort(keys, n, k);
        assert_memory_equal(keys, sorted, k * sizeof(*keys));
    }
}

static void test_selection_by_mass(void **unused)
{
    (void)unused;
    static uint64_t keys[MOST], sorted[MOST];
    static float x[MOST];
    for (int round = 0; round < 500; round++) {
        size_t n = 1 + next() % MOST, want = 0;
        bool by_id = next() % 2;
        struct td_scale s = {0, 1.0F};
        fill(x, (int32_t)n);
        for (size_t i = 0; i < n; i++) {
            x[i] -= 60.0F;
            keys[i] = td_key(x[i], (int32_t)i);
        }
        s.max = td_key_value(keys[0]);
        for (size_t i = 1; i < n; i++)
            s.max = TD_MAX(s.max, td_key_value(keys[i]));
        if (by_id)
            td_key_swap(keys, n);
        memcpy(sorted, keys, n * sizeof(*keys));
        qsort(sorted, n, sizeof(*sorted), descending);
        double total = td_key_sum(keys, n, &s, by_id), run = 0;
        double mass = total * (1 + next() % 1000) / 1000.0;
        while (want < n && run < mass - 1e-9 * total)
            run += td_key_sum(sorted + want++, 1, &s, by_id);
        bool near = fabs(run - mass) < 1e-6 * total; /* rounding decides */
        size_t got = td_key_select_mass(keys, n, mass, &s, by_id);
        assert_in_range(got, 1, n);
        if (!near)
            assert_int_equal(got, want);
        for (size_t i = 0; i < got; i++)
            assert_true(keys[i] >= sorted[got - 1]);
        assert_true(keys[got - 1] == sorted[got - 1]);
    }
}

/* Rounding can leave a mass that no prefix reaches: the last key, never past the end. */
static void test_mass_beyond_all(void **unused)
{
    (void)unused;
    uint64_t keys[3] = {td_key(1.0F, 0), td_key(1.0F, 1), td_key(0.0F, 2)};
    struct td_scale s = {1.0F, 1.0F};
    assert_int_equal(td_key_select_mass(keys, 3, 100.0, &s, false), 3);
    assert_int_equal(td_key_id(keys[2]), 2);
    assert_int_equal(td_key_select_mass(keys, 3, 0.0, &s, false), 1);
    assert_int_equal(td_key_id(keys[0]), 0);
    assert_int_equal(td_key_select_mass(keys, 1, 5.0, &s, false), 1);
}

/* Vectors that Random123, the generator's first implementation, is tested with. */
static void test_philox_vectors(void **unused)
{
    (void)unused;
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t out[4];
    } known[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0U, ~0U, ~0U, ~0U}, ~0ULL, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822ULL,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < TD_COUNT(known); i++) {
        uint32_t c[4];
        memcpy(c, known[i].counter, sizeof(c));
        td_philox(c, known[i].key);
        assert_memory_equal(c, known[i].out, sizeof(c));
    }
}

static void test_uniform(void **unused)
{
    (void)unused;
    enum { N = 20000, BINS = 20 };
    int bins[3][BINS] = {{0}};
    for (int i = 0; i < N; i++) {
        double u[3] = {td_draw_uniform(5, 0, i), td_draw_uniform((uint64_t)i, 0, 5),
                       td_draw_uniform(5, (uint32_t)i, 0)};
        for (int j = 0; j < 3; j++) {
            assert_true(u[j] > 0 && u[j] <= 1);
            bins[j][TD_MIN((int)(u[j] * BINS), BINS - 1)]++;
        }
    }
    for (int j = 0; j < 3; j++) {
        double chi = 0, e = (double)N / BINS;
        for (int b = 0; b < BINS; b++)
            chi += (bins[j][b] - e) * (bins[j][b] - e) / e;
        assert_true(chi < 43.8); /* 0.999 of chi-square with 19 degrees of freedom */
    }
    assert_true(td_draw_uniform(1, 2, 3) == td_draw_uniform(1, 2, 3));
    assert_true(td_draw_uniform(1, 2, 3) != td_draw_uniform(1, 2, 3 + (1LL << 32)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_order),
        cmocka_unit_test(test_row_scans),
        cmocka_unit_test(test_bad_values_are_seen_everywhere),
        cmocka_unit_test(test_row_draw_lays_ids_side_by_side),
        cmocka_unit_test(test_selection),
        cmocka_unit_test(test_selection_by_mass),
        cmocka_unit_test(test_mass_beyond_all),
        cmocka_unit_test(test_philox_vectors),
        cmocka_unit_test(test_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

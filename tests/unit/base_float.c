/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Narrow number formats against their definitions: every code of each format, and
 * rounding against a search over all codes for the nearest.
 */
#include "check.h"

#include <math.h>

#include "base/float.h"

/* The value of a code by the format's definition. */
static double value_of(uint32_t code, int ebits, int mbits, int bias)
{
    uint32_t m = code & ((1u << mbits) - 1), e = (code >> mbits) & ((1u << ebits) - 1);
    double v = e == 0 ? ldexp((double)m, 1 - bias - mbits)
                      : ldexp((double)(m + (1u << mbits)), (int)e - bias - mbits);
    return code >> (ebits + mbits) ? -v : v;
}

/* Nearest of the values of codes 0..last for x >= 0, ties to the even code. */
static uint32_t nearest(double x, uint32_t last, int ebits, int mbits, int bias)
{
    uint32_t lo = 0, hi = last;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        *(value_of(mid, ebits, mbits, bias) <= x ? &lo : &hi) = mid;
    }
    double down = x - value_of(lo, ebits, mbits, bias);
    double up = value_of(hi, ebits, mbits, bias) - x;
    if (down == up)
        return lo % 2 ? hi : lo;
    return down < up ? lo : hi;
}

static uint64_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 20;
}

static void e4m3_values(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 256; c++) {
        float f = td_f32_from_e4m3((uint8_t)c);
        if ((c & 0x7f) == 0x7f) {
            assert_true(isnan(f));
            continue;
        }
        assert_true((double)f == value_of(c, 4, 3, 7));
        assert_true(!signbit(f) == !(c & 0x80));
        assert_int_equal(td_e4m3_from_f32(f), c);
    }
    assert_true(td_f32_from_e4m3(0x38) == 1.0f && td_f32_from_e4m3(0x39) == 1.125f);
    assert_true(td_f32_from_e4m3(0x77) == 240.0f && td_f32_from_e4m3(0xb8) == -1.0f);
    assert_true(td_f32_from_e4m3(0x7e) == TD_E4M3_MAX);
}

static void check_e4m3(float f)
{
    uint32_t want = nearest((double)f, 0x7e, 4, 3, 7);
    assert_int_equal(td_e4m3_from_f32(f), want);
    assert_int_equal(td_e4m3_from_f32(-f), want | 0x80);
}

static void e4m3_rounding(void **state)
{
    (void)state;
    for (uint8_t c = 0; c < 0x7e; c++) { /* each midpoint and its neighbours */
        float mid = (td_e4m3_table[c] + td_e4m3_table[c + 1]) / 2;
        check_e4m3(mid);
        check_e4m3(nextafterf(mid, 0.0f));
        check_e4m3(nextafterf(mid, 1000.0f));
    }
    uint64_t s = 1;
    for (int i = 0; i < 200000; i++) { /* exponents from far below to 511 */
        uint32_t e = 90u + (uint32_t)(next_random(&s) % 46);
        check_e4m3(td_f32_from_bits(e << 23 | (uint32_t)(next_random(&s) & 0x7fffff)));
    }
    assert_int_equal(td_e4m3_from_f32(464.0f), 0x7e);
    assert_int_equal(td_e4m3_from_f32(1e30f), 0x7e);
    assert_int_equal(td_e4m3_from_f32(-INFINITY), 0xfe);
    assert_int_equal(td_e4m3_from_f32(NAN) & 0x7f, 0x7f);
}

static void bf16_all(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 65536; c++) {
        float f = td_f32_from_bf16((uint16_t)c);
        if ((c & 0x7fff) > 0x7f80) {
            assert_true(isnan(f));
            assert_true(isnan(td_bf16_round(f)));
            continue;
        }
        assert_int_equal(td_bf16_from_f32(f), c);
        if ((c & 0x7fff) >= 0x7f80)
            continue;
        assert_true((double)f == value_of(c, 8, 7, 127));
        float half = td_f32_from_bits(c << 16 | 0x8000u); /* between c and c + 1 */
        assert_int_equal(td_bf16_from_f32(half), c + c % 2);
        assert_int_equal(td_bf16_from_f32(td_f32_from_bits(c << 16 | 0x7fffu)), c);
        assert_int_equal(td_bf16_from_f32(td_f32_from_bits(c << 16 | 0x8001u)), c + 1);
    }
    assert_true(isinf(td_bf16_round(3.4e38f)));
    /* A NaN whose payload lies in the lower half only must not become infinity. */
    assert_true(isnan(td_bf16_round(td_f32_from_bits(0x7f800001u))));
}

static void f16_all(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 65536; c++) {
        float f = td_f32_from_f16((uint16_t)c);
        if ((c & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
            assert_true(isnan(td_f32_from_f16(td_f16_from_f32(f))));
            continue;
        }
        assert_int_equal(td_f16_from_f32(f), c);
        assert_true((c & 0x7fff) == 0x7c00 ? isinf(f) != 0
                                           : (double)f == value_of(c, 5, 10, 15));
        if ((c & 0x7fff) >= 0x7bff)
            continue;
        float mid = (f + td_f32_from_f16((uint16_t)(c + 1))) / 2;
        assert_int_equal(td_f16_from_f32(mid), c + c % 2);
        assert_int_equal(td_f16_from_f32(nextafterf(mid, 0.0f)), c);
        assert_int_equal(td_f16_from_f32(nextafterf(mid, mid * 2)), c + 1);
    }
    assert_int_equal(td_f16_from_f32(65519.0f), 0x7bff);
    assert_int_equal(td_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(td_f16_from_f32(-1e30f), 0xfc00);
    assert_int_equal(td_f16_from_f32(-1e-30f), 0x8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3_values),
        cmocka_unit_test(e4m3_rounding),
        cmocka_unit_test(bf16_all),
        cmocka_unit_test(f16_all),
    };
    return cmocka_run_group_tests_name("base_float", tests, NULL, NULL);
}

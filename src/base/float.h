/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The narrow number formats of checkpoints, from and to float.
 *
 *     bf16   1 sign, 8 exponent, 7 mantissa bits: the upper half of a float
 *     f16    1, 5, 10: IEEE half
 *     e4m3   1, 4, 3 (the "fn" form): bias 7, no infinity, 0x7f and 0xff are NaN,
 *            largest 0x7e = 448, smallest normal 2^-6, smallest subnormal 2^-9
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even, down to the narrow
 * format's subnormals; it needs the default rounding mode and then gives the same bits on
 * every machine. Out of range: bf16 and f16 become infinity, e4m3 saturates at 448
 * (infinity too). NaN stays NaN; which one is specified for e4m3 only (0x7f or 0xff).
 *
 * Everything is inline and free of branches, so that loops over it vectorise.
 */
#ifndef TD_BASE_FLOAT_H
#define TD_BASE_FLOAT_H

#include <stdint.h>
#include <string.h>

/* Value of each e4m3 code. */
extern const float td_e4m3_table[256];

#define TD_E4M3_MAX 448.0f

static inline uint32_t td_bits_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float td_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline float td_f32_from_bf16(uint16_t b)
{
    return td_f32_from_bits((uint32_t)b << 16);
}

static inline uint16_t td_bf16_from_f32(float f)
{
    uint32_t u = td_bits_from_f32(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* The value that f becomes when it is stored as bf16. */
static inline float td_bf16_round(float f)
{
    return td_f32_from_bf16(td_bf16_from_f32(f));
}

static inline float td_f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu;
    /* Subnormals: put the mantissa below 2^-14's, then take 2^-14 away again. */
    uint32_t small = td_bits_from_f32(td_f32_from_bits(0x38800000u + (a << 13)) -
                                      td_f32_from_bits(0x38800000u));
    uint32_t normal = (a << 13) + (112u << 23);
    uint32_t special = (a << 13) + (224u << 23);
    uint32_t u = a < 0x400u ? small : a < 0x7c00u ? normal : special;
    return td_f32_from_bits(u | sign);
}

static inline uint16_t td_f16_from_f32(float f)
{
    uint32_t u = td_bits_from_f32(f), sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    /* Below 2^-14 the sum with 0.5 rounds to multiples of 2^-24, f16's smallest step. */
    uint32_t small = td_bits_from_f32(td_f32_from_bits(a) + 0.5f) - 0x3f000000u;
    uint32_t normal = (a + 0xfffu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
    uint32_t h = a < 0x38800000u ? small : a < 0x477ff000u ? normal : 0x7c00u;
    return (uint16_t)((a > 0x7f800000u ? 0x7e00u : h) | sign);
}

static inline float td_f32_from_e4m3(uint8_t code)
{
    return td_e4m3_table[code];
}

static inline uint8_t td_e4m3_from_f32(float f)
{
    uint32_t u = td_bits_from_f32(f), sign = (u >> 24) & 0x80u;
    uint32_t a = u & 0x7fffffffu;
    /* Below 2^-6 the sum with 2^14 rounds to multiples of 2^-9, e4m3's smallest step. */
    uint32_t small = td_bits_from_f32(td_f32_from_bits(a) + 16384.0f) - 0x46800000u;
    uint32_t normal = (a + 0x7ffffu + ((a >> 20) & 1u) - (120u << 23)) >> 20;
    uint32_t code = a < 0x3c800000u ? small : a < 0x43e00000u ? normal : 0x7eu;
    return (uint8_t)((a > 0x7f800000u ? 0x7fu : code) | sign);
}

#endif

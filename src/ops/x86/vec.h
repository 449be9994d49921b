/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One vector of floats under two instruction sets, so that the kernels are written once
 * and built for each level: 16 lanes with AVX-512, 8 with AVX2. Without either the
 * header is empty.
 *
 * Sums over lanes have one fixed order. exp() is within 2 units in the last place and
 * needs no table; below -87.3 it gives 0 and above 88.3 a large finite number.
 * Narrowing to bf16 rounds to nearest even and keeps subnormals and NaN, as
 * td_bf16_from_f32() does.
 */
#ifndef TD_OPS_X86_VEC_H
#define TD_OPS_X86_VEC_H

#if defined(__AVX2__)

#include "base/compiler.h"

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)

#define VF __m512
enum { LANES = 16 };

TD_INLINE VF v_set1(float x)
{
    return _mm512_set1_ps(x);
}
TD_INLINE VF v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
TD_INLINE void v_store(float *p, VF x)
{
    _mm512_storeu_ps(p, x);
}
TD_INLINE __mmask16 v_first(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}
/* The first n < LANES lanes, zeros in the others. */
TD_INLINE VF v_loadn(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v_first(n), p);
}
TD_INLINE void v_storen(float *p, VF x, int64_t n)
{
    _mm512_mask_storeu_ps(p, v_first(n), x);
}
TD_INLINE VF v_add(VF a, VF b)
{
    return _mm512_add_ps(a, b);
}
TD_INLINE VF v_sub(VF a, VF b)
{
    return _mm512_sub_ps(a, b);
}
TD_INLINE VF v_mul(VF a, VF b)
{
    return _mm512_mul_ps(a, b);
}
TD_INLINE VF v_div(VF a, VF b)
{
    return _mm512_div_ps(a, b);
}
TD_INLINE VF v_max(VF a, VF b)
{
    return _mm512_max_ps(a, b);
}
TD_INLINE VF v_min(VF a, VF b)
{
    return _mm512_min_ps(a, b);
}
/* a * b + c and c - a * b, one rounding */
TD_INLINE VF v_fma(VF a, VF b, VF c)
{
    return _mm512_fmadd_ps(a, b, c);
}
TD_INLINE VF v_fnma(VF a, VF b, VF c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
/* Of each quarter: the lower or upper two lanes of a and b in turn, or both halves. */
TD_INLINE VF v_low_pairs(VF a, VF b)
{
    return _mm512_unpacklo_ps(a, b);
}
TD_INLINE VF v_high_pairs(VF a, VF b)
{
    return _mm512_unpackhi_ps(a, b);
}
TD_INLINE VF v_low_halves(VF a, VF b)
{
    return _mm512_shuffle_ps(a, b, 0x44);
}
TD_INLINE VF v_high_halves(VF a, VF b)
{
    return _mm512_shuffle_ps(a, b, 0xee);
}
TD_INLINE __m256 v_half(VF a)
{
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
TD_INLINE float v_hmax(VF a)
{
    return _mm512_reduce_max_ps(a);
}
/* A bit for each lane where a > b. */
TD_INLINE unsigned v_above(VF a, VF b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
TD_INLINE VF v_round(VF a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for whole n */
TD_INLINE VF v_scale2(VF a, VF n)
{
    return _mm512_scalef_ps(a, n);
}
TD_INLINE VF v_gather(const float *p, int64_t stride)
{
    __m512i lane =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)stride));
    return _mm512_i32gather_ps(at, p, 4);
}
TD_INLINE VF v_widen(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
TD_INLINE VF v_load_bf16(const uint16_t *p)
{
    return v_widen(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TD_INLINE VF v_loadn_bf16(const uint16_t *p, int64_t n)
{
    return v_widen(_mm256_maskz_loadu_epi16(v_first(n), p));
}
TD_INLINE __m256i v_narrow(VF x)
{
    __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff));
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(
        _mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), nan, quiet));
}
TD_INLINE void v_store_bf16(uint16_t *p, VF x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v_narrow(x));
}
TD_INLINE void v_storen_bf16(uint16_t *p, VF x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, v_first(n), v_narrow(x));
}
/* 2 * LANES e4m3 codes times `scale`, which holds 256 times the wanted factor: a code's
 * bits, moved into a half's exponent and mantissa, stand for its value / 256,
 * subnormals included. The two NaN codes read as +-480. */
TD_INLINE void v_load_f8(const uint8_t *p, VF scale, VF out[2])
{
    __m512i w =
        _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    w = _mm512_and_si512(_mm512_slli_epi16(w, 7), _mm512_set1_epi16((short)0xbf80));
    out[0] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(w)), scale);
    out[1] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(w, 1)), scale);
}

#else

#define VF __m256
enum { LANES = 8 };

TD_INLINE VF v_set1(float x)
{
    return _mm256_set1_ps(x);
}
TD_INLINE VF v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
TD_INLINE void v_store(float *p, VF x)
{
    _mm256_storeu_ps(p, x);
}
TD_INLINE __m256i v_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TD_INLINE VF v_loadn(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, v_first(n));
}
TD_INLINE void v_storen(float *p, VF x, int64_t n)
{
    _mm256_maskstore_ps(p, v_first(n), x);
}
TD_INLINE VF v_add(VF a, VF b)
{
    return _mm256_add_ps(a, b);
}
TD_INLINE VF v_sub(VF a, VF b)
{
    return _mm256_sub_ps(a, b);
}
TD_INLINE VF v_mul(VF a, VF b)
{
    return _mm256_mul_ps(a, b);
}
TD_INLINE VF v_div(VF a, VF b)
{
    return _mm256_div_ps(a, b);
}
TD_INLINE VF v_max(VF a, VF b)
{
    return _mm256_max_ps(a, b);
}
TD_INLINE VF v_min(VF a, VF b)
{
    return _mm256_min_ps(a, b);
}
TD_INLINE VF v_fma(VF a, VF b, VF c)
{
    return _mm256_fmadd_ps(a, b, c);
}
TD_INLINE VF v_fnma(VF a, VF b, VF c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
/* Of each quarter: the lower or upper two lanes of a and b in turn, or both halves. */
TD_INLINE VF v_low_pairs(VF a, VF b)
{
    return _mm256_unpacklo_ps(a, b);
}
TD_INLINE VF v_high_pairs(VF a, VF b)
{
    return _mm256_unpackhi_ps(a, b);
}
TD_INLINE VF v_low_halves(VF a, VF b)
{
    return _mm256_shuffle_ps(a, b, 0x44);
}
TD_INLINE VF v_high_halves(VF a, VF b)
{
    return _mm256_shuffle_ps(a, b, 0xee);
}
TD_INLINE __m256 v_half(VF a)
{
    return a;
}
TD_INLINE float v_hmax(VF a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
TD_INLINE unsigned v_above(VF a, VF b)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
TD_INLINE VF v_round(VF a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* Only for results that are normal numbers. */
TD_INLINE VF v_scale2(VF a, VF n)
{
    __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), bits));
}
TD_INLINE VF v_gather(const float *p, int64_t stride)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i at = _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)stride));
    return _mm256_i32gather_ps(p, at, 4);
}
TD_INLINE VF v_widen(__m128i x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
TD_INLINE VF v_load_bf16(const uint16_t *p)
{
    return v_widen(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TD_INLINE VF v_loadn_bf16(const uint16_t *p, int64_t n)
{
    uint16_t part[LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        part[i] = p[i];
    return v_load_bf16(part);
}
TD_INLINE __m128i v_narrow(VF x)
{
    __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i r = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
TD_INLINE void v_store_bf16(uint16_t *p, VF x)
{
    _mm_storeu_si128((__m128i *)(void *)p, v_narrow(x));
}
TD_INLINE void v_storen_bf16(uint16_t *p, VF x, int64_t n)
{
    uint16_t part[LANES];
    v_store_bf16(part, x);
    for (int64_t i = 0; i < n; i++)
        p[i] = part[i];
}
TD_INLINE void v_load_f8(const uint8_t *p, VF scale, VF out[2])
{
    __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    w = _mm256_and_si256(_mm256_slli_epi16(w, 7), _mm256_set1_epi16((short)0xbf80));
    out[0] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(w)), scale);
    out[1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(w, 1)), scale);
}

#endif

TD_INLINE VF v_zero(void)
{
    return v_set1(0.0f);
}

/* The sums over the lanes of four vectors: first within quarters of four lanes. */
TD_INLINE __m128 v_sum4(VF a, VF b, VF c, VF d)
{
    VF ab = v_add(v_low_pairs(a, b), v_high_pairs(a, b));
    VF cd = v_add(v_low_pairs(c, d), v_high_pairs(c, d));
    __m256 h = v_half(v_add(v_low_halves(ab, cd), v_high_halves(ab, cd)));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

TD_INLINE float v_sum(VF a)
{
    return _mm_cvtss_f32(v_sum4(a, a, a, a));
}

TD_INLINE VF v_exp(VF x)
{
    VF clipped = v_min(v_set1(88.3f), v_max(v_set1(-87.3f), x)); /* NaN passes */
    VF n = v_round(v_mul(clipped, v_set1(1.44269504f)));
    VF r = v_fnma(n, v_set1(0.693145752f), clipped);
    r = v_fnma(n, v_set1(1.42860677e-6f), r);
    VF p = v_set1(1.98756932e-4f);
    p = v_fma(p, r, v_set1(1.39819994e-3f));
    p = v_fma(p, r, v_set1(8.33345205e-3f));
    p = v_fma(p, r, v_set1(4.16657962e-2f));
    p = v_fma(p, r, v_set1(1.66666657e-1f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(v_mul(p, r), r, v_add(r, v_set1(1.0f)));
    p = v_scale2(p, n);
#if defined(__AVX512F__)
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, clipped, _CMP_NLT_UQ), p);
#else
    return _mm256_and_ps(p, _mm256_cmp_ps(x, clipped, _CMP_NLT_UQ));
#endif
}

TD_INLINE VF v_sigmoid(VF x)
{
    VF one = v_set1(1.0f);
    return v_div(one, v_add(one, v_exp(v_sub(v_zero(), x))));
}

TD_INLINE VF v_silu(VF x)
{
    return v_mul(x, v_sigmoid(x));
}

#endif
#endif

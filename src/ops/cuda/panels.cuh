/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices of 64 rows in shared memory as warpgroups multiply them (sm_90a): panels of 64
 * columns, one behind another, rows of 128 bytes of which eight are a swizzled whole:
 * piece p of row r lies at place p ^ r % 8.
 */
#ifndef TD_OPS_CUDA_PANELS_CUH
#define TD_OPS_CUDA_PANELS_CUH

#include "ops/cuda/warpgroup.cuh"

enum { PANEL = 64, PANEL_BYTES = PANEL * PANEL * 2 };

/* Element `at` of row r of panels of 64 rows. */
TD_DEVICE int td_panel_at(int r, int at)
{
    return at / PANEL * (PANEL * PANEL) + r * PANEL +
           ((at % PANEL / 8 ^ (r & 7)) * 8 + at % 8);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define TD_D4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TD_D16(d, i) TD_D4(d, i), TD_D4(d, i + 4), TD_D4(d, i + 8), TD_D4(d, i + 12)
#define TD_S16_0     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TD_S16_1     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TD_S16_2     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define TD_S16_3     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TD_S16_4     "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define TD_S16_5     "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TD_S16_6                                                                       \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define TD_S16_7                                                                       \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define TD_MMA(n) "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 "

/* s[64 x 64] = a[64 x 16] b[16 x 64] + (adds ? s : 0); both operands described, elements
 * of a row along k. */
TD_DEVICE void td_panel_mma(float (&s)[32], uint64_t a, uint64_t b, int adds)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t" TD_MMA(
                     "64") "{" TD_S16_0 "," TD_S16_1 "}, %32, %33, p, 1, 1, 0, 0;\n\t}"
                 : TD_D16(s, 0), TD_D16(s, 16)
                 : "l"(a), "l"(b), "r"(adds));
}

/* out[64 x 2 R] += a[64 x 16] b[16 x 2 R]; elements of b's rows along the latter. */
TD_DEVICE void td_panel_mma_rows(float (&d)[32], const uint32_t *a, uint64_t b)
{
    asm volatile(TD_MMA("64") "{" TD_S16_0 "," TD_S16_1
                              "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : TD_D16(d, 0), TD_D16(d, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

TD_DEVICE void td_panel_mma_rows(float (&d)[64], const uint32_t *a, uint64_t b)
{
    asm volatile(TD_MMA("128") "{" TD_S16_0 "," TD_S16_1 "," TD_S16_2 "," TD_S16_3
                               "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : TD_D16(d, 0), TD_D16(d, 16), TD_D16(d, 32), TD_D16(d, 48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

TD_DEVICE void td_panel_mma_rows(float (&d)[128], const uint32_t *a, uint64_t b)
{
    asm volatile(TD_MMA("256") "{" TD_S16_0 "," TD_S16_1 "," TD_S16_2 "," TD_S16_3
                               "," TD_S16_4 "," TD_S16_5 "," TD_S16_6 "," TD_S16_7
                               "}, {%128,%129,%130,%131}, %132, 1, 1, 1, 1;"
                 : TD_D16(d, 0), TD_D16(d, 16), TD_D16(d, 32), TD_D16(d, 48),
                   TD_D16(d, 64), TD_D16(d, 80), TD_D16(d, 96), TD_D16(d, 112)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef TD_D4
#undef TD_D16
#undef TD_S16_0
#undef TD_S16_1
#undef TD_S16_2
#undef TD_S16_3
#undef TD_S16_4
#undef TD_S16_5
#undef TD_S16_6
#undef TD_S16_7
#undef TD_MMA

/* A value that is the same in all lanes, so that the compiler knows: it keeps descriptors
 * in the warp's own registers then, where the instruction wants them. */
TD_DEVICE uint32_t td_uniform(uint32_t x)
{
    return __shfl_sync(0xffffffff, x, 0);
}

/* Where panels begin, or where a step of 16 along the rows begins: 32 bytes on within a
 * panel. A step of 16 rows begins 2048 bytes on. */
TD_DEVICE uint64_t td_panel_descriptor(uint32_t at)
{
    const uint64_t eight = 8 * PANEL * 2 >> 4, panel = PANEL_BYTES >> 4;
    at = td_uniform(at);
    return (uint64_t)(at >> 4 & 0x3fff) | panel << 16 | eight << 32 | (uint64_t)1 << 62;
}

/* Element 16 * step of the rows of panels at `panels`. */
TD_DEVICE uint64_t td_panel_step(uint64_t panels, int step)
{
    return panels + (uint64_t)((step / 4 * PANEL_BYTES + step % 4 * 32) >> 4);
}

/* Row 16 * step. */
TD_DEVICE uint64_t td_panel_rows(uint64_t panels, int step)
{
    return panels + (uint64_t)(step * (16 * PANEL * 2) >> 4);
}

/* Values are what they are only now. */
template <int N> TD_DEVICE void td_settle(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i])::"memory");
}

#endif

#endif

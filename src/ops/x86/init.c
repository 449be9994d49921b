/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all x86 levels share: which of them this processor has, their work memory, the
 * grouping of choices by expert, and the table that expands FP8 to bf16.
 */
#include "base/cpu.h"
#include "ops/x86/x86.h"

#include <string.h>

/* Upper and lower byte of the bf16 with exponent e (of e4m3) and mantissa m. */
#define BITS(e, m) ((((e) + 120) << 7) | ((m) << 4))
#define HIGH(e, m) (BITS(e, m) >> 8)
#define LOW(e, m)  (BITS(e, m) & 0xff)
#define ROW(part, e)                                                                   \
    part(e, 0), part(e, 1), part(e, 2), part(e, 3), part(e, 4), part(e, 5),            \
        part(e, 6), part(e, 7)
/* Subnormals: m * 2^-9 as normal numbers. */
#define SMALL(part)                                                                    \
    0, part(-2, 0), part(-1, 0), part(-1, 4), part(0, 0), part(0, 2), part(0, 4),      \
        part(0, 6)
#define TABLE(part, nan)                                                               \
    SMALL(part), ROW(part, 1), ROW(part, 2), ROW(part, 3), ROW(part, 4), ROW(part, 5), \
        ROW(part, 6), ROW(part, 7), ROW(part, 8), ROW(part, 9), ROW(part, 10),         \
        ROW(part, 11), ROW(part, 12), ROW(part, 13), ROW(part, 14), part(15, 0),       \
        part(15, 1), part(15, 2), part(15, 3), part(15, 4), part(15, 5), part(15, 6),  \
        nan

TD_ALIGNED(64)
const uint8_t td_x86_f8_bytes[256] = {TABLE(HIGH, 0x7f), TABLE(LOW, 0xc0)};

bool td_x86_has_avx2(void)
{
    return td_cpu_flags() & TD_CPU_AVX2;
}

bool td_x86_has_avx512(void)
{
    return td_cpu_flags() & TD_CPU_AVX512;
}

bool td_x86_has_avx512bf16(void)
{
    unsigned need = TD_CPU_AVX512 | TD_CPU_AVX512_BF16 | TD_CPU_AVX512_VBMI;
    return (td_cpu_flags() & need) == need;
}

/* Bytes of a thread's panels: two of four rows at least. */
static size_t panel_bytes(const struct td_reserve *r)
{
    size_t k = (size_t)td_x86_padded(TD_MAX(r->max_k, r->hidden));
    return TD_MAX((size_t)X86_PANEL_BYTES,
                  (size_t)8 * (k * sizeof(float) + X86_LINE_GAP));
}

/* n in whole vectors of any level. */
static size_t whole(int32_t n)
{
    return ((size_t)n + 15) / 16 * 16;
}

/* Floats for one set of query vectors and what attention keeps for them. */
static size_t query_floats(const struct td_reserve *r, int32_t lines)
{
    int32_t group = r->n_kv ? r->n_heads / r->n_kv : 1;
    size_t n = (size_t)TD_MAX(lines, group), width = whole(r->head_dim);
    return n * (2 * width + TD_KV_BLOCK + 3) + TD_KV_BLOCK * width;
}

/* Bytes that one thread works in, the most over all operations. */
static size_t thread_scratch(const struct td_reserve *r)
{
    size_t panel = panel_bytes(r) + X86_SAVE_FLOATS * sizeof(float) +
                   (size_t)16 * X86_PANEL_ROWS * sizeof(float);
    size_t chunk =
        TD_CHUNK * (3 * whole(r->dk) + 2 * (size_t)r->dv + 2 * (size_t)TD_CHUNK + 3);
    size_t attention = 2 * query_floats(r, X86_ATTENTION_LINES);
    size_t floats = TD_MAX(TD_MAX(attention, chunk), (size_t)r->experts + 64);
    size_t bytes = TD_MAX(panel, floats * sizeof(float));
    return (bytes + 4095) / 4096 * 4096;
}

enum { AREAS = 9 };

static void areas_of(struct td_cpu *cpu, const struct td_reserve *r,
                     struct td_cpu_area out[AREAS])
{
    size_t rows = (size_t)r->max_rows, k = (size_t)r->experts_k;
    size_t threads = (size_t)cpu->dev.threads, e = (size_t)r->experts;
    size_t wide = rows * td_x86_stride(r->max_k, X86_RAW);
    size_t mid = td_x86_stride(r->expert_size, X86_RAW) * k +
                 td_x86_stride(r->shared_size, X86_RAW);
    bool bf16 = cpu->dev.numerics == TD_NUM_BF16;
    const struct td_cpu_area areas[AREAS] = {
        {thread_scratch(r) * threads, (void **)&cpu->scratch},
        {bf16 ? rows * td_x86_stride(r->max_k, X86_NARROW) : 0,
         (void **)&cpu->inputs[X86_NARROW]},
        {bf16 ? wide : 0, (void **)&cpu->inputs[X86_ROUNDED]},
        {!bf16 || r->hidden % TD_SCALE_BLOCK ? wide : 0,
         (void **)&cpu->inputs[X86_RAW]},
        {X86_SHARED_TASKS * threads * X86_ATTENTION_PARTS * query_floats(r, 1) *
             sizeof(float),
         (void **)&cpu->parts},
        {e ? rows * mid : 0, (void **)&cpu->expert_mid},
        {e ? rows * (k + 1) * (size_t)r->hidden * sizeof(float) : 0,
         (void **)&cpu->expert_out},
        {e ? (rows * k + 2 * e + 2) * sizeof(int32_t) : 0, (void **)&cpu->groups},
        {e ? (e + 1) * X86_NETWORK_BYTES : 0, &cpu->plan},
    };
    memcpy(out, areas, sizeof(areas));
}

size_t td_x86_reserve_bytes(const struct td_dev *dev, const struct td_reserve *r)
{
    struct td_cpu_area areas[AREAS];
    areas_of((struct td_cpu *)(uintptr_t)dev, r, areas); /* only asks for sizes */
    return td_cpu_areas_bytes(areas, AREAS);
}

enum td_status td_x86_reserve(struct td_dev *dev, const struct td_reserve *r,
                              struct td_error *err)
{
    struct td_cpu *cpu = (struct td_cpu *)dev;
    struct td_cpu_area areas[AREAS];
    areas_of(cpu, r, areas);
    cpu->limits = *r;
    cpu->panel_bytes = panel_bytes(r);
    cpu->scratch_bytes = thread_scratch(r);
    return td_cpu_areas_take(dev, areas, AREAS, err);
}

void td_x86_group(struct td_cpu *cpu, const int32_t *id, int32_t choices,
                  int32_t experts, struct td_x86_groups *g)
{
    g->start = cpu->groups;
    g->busy = g->start + experts + 1;
    g->order = g->busy + experts + 1;
    g->n_busy = 0;
    memset(g->start, 0, (size_t)(experts + 1) * sizeof(*g->start));
    for (int32_t c = 0; c < choices; c++)
        g->start[id[c]]++;
    for (int32_t e = 0, at = 0; e < experts; e++) {
        int32_t n = g->start[e];
        g->start[e] = at;
        at += n;
        if (n)
            g->busy[g->n_busy++] = e;
    }
    for (int32_t c = 0; c < choices; c++)
        g->order[g->start[id[c]]++] = c;
    memmove(g->start + 1, g->start, (size_t)experts * sizeof(*g->start));
    g->start[0] = 0;
}

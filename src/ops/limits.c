/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the processor's limits with the best loops that it can run: a level's own,
 * or portable ones.
 */
#include "ops/limits.h"

#include "base/clock.h"
#include "base/mem.h"
#include "ops/cpu.h"

#include <string.h>

enum { PORTABLE_LANES = 64, REPEATS = 3, STEPS = 1 << 18 };

static uint64_t portable_read(const void *data, size_t bytes, size_t ahead)
{
    const uint64_t *p = data;
    uint64_t sum[8] = {0}, all = 0;
    (void)ahead;
    for (size_t i = 0; i + 8 <= bytes / 8; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] ^= p[i + j];
    for (int j = 0; j < 8; j++)
        all ^= sum[j];
    return all;
}

static float portable_fma(int64_t n, float start)
{
    float acc[PORTABLE_LANES], all = 0;
    for (int i = 0; i < PORTABLE_LANES; i++)
        acc[i] = start * (float)i;
    for (int64_t t = 0; t < n; t++)
        for (int i = 0; i < PORTABLE_LANES; i++)
            acc[i] = acc[i] * start + (1.0f - start);
    for (int i = 0; i < PORTABLE_LANES; i++)
        all += acc[i];
    return all;
}

static struct td_limit_loops loops(void)
{
    struct td_limit_loops l = {portable_read, portable_fma, 2.0 * PORTABLE_LANES, NULL,
                               0};
#if defined(__x86_64__)
    if (td_x86_has_avx2())
        td_x86_limits_avx2(&l);
    if (td_x86_has_avx512())
        td_x86_limits_avx512(&l);
    if (td_x86_has_avx512bf16())
        td_x86_limits_avx512bf16(&l);
#endif
    return l;
}

/* One timed region: every thread runs its share; `sink` keeps the results alive. */
static double read_once(const struct td_limit_loops *l, const char *data, size_t bytes,
                        int threads, size_t ahead, size_t piece)
{
    uint64_t sink = 0;
    size_t pieces = bytes / piece;
    double start = td_clock_now();
#pragma omp parallel for num_threads(threads) schedule(static) reduction(^ : sink)
    for (size_t i = 0; i < pieces; i++)
        sink ^= l->read(data + i * piece, piece, ahead);
    double seconds = td_clock_now() - start;
    return sink == 1 ? 0 : (double)(pieces * piece) / seconds;
}

static double compute_once(float (*loop)(int64_t, float), double per_step, int threads)
{
    float sink = 0;
    double start = td_clock_now();
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sink)
    for (int i = 0; i < threads; i++)
        sink += loop(STEPS, 0.5f);
    double seconds = td_clock_now() - start;
    return sink < 0 ? 0 : per_step * STEPS * threads / seconds;
}

enum td_status td_limits_measure(int threads, size_t bytes, struct td_limits *out,
                                 struct td_error *err)
{
    static const size_t ahead[] = {0, 2048};
    struct td_limit_loops l = loops();
    size_t n = bytes ? bytes : (size_t)512 << 20, piece = (size_t)1 << 20;
    struct td_limits best = {0};
    threads = threads ? threads : td_cpu_cores();
    n = (n + piece - 1) / piece * piece;
    char *data = td_alloc_aligned(n);
    if (!data)
        return td_error_set(err, TD_E_NOMEM, "no memory to measure the processor with");
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n / piece; i++)
        memset(data + i * piece, (int)i, piece);
    for (int r = 0; r < REPEATS; r++) {
        double f32 = compute_once(l.fma, l.fma_flops, threads);
        double bf16 = l.dot ? compute_once(l.dot, l.dot_flops, threads) : f32;
        best.f32 = TD_MAX(best.f32, f32);
        best.bf16 = TD_MAX(TD_MAX(best.bf16, bf16), best.f32);
        for (size_t i = 0; i < TD_COUNT(ahead); i++) {
            double rate = read_once(&l, data, n, threads, ahead[i], piece);
            best.read = TD_MAX(best.read, rate);
        }
    }
    td_free_aligned(data, n);
    *out = best;
    return TD_OK;
}

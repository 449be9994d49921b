/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the processor's limits with the best loops that it can run: a level's own,
 * or portable ones. A GPU's shelf measures its own.
 */
#include "ops/limits.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/mem.h"
#include "ops/cpu.h"

#include <string.h>

enum {
    PORTABLE_LANES = 64,
    REPEATS = 3,
    STEPS = 1 << 16,
    COMPUTE_PIECES = 4, /* for each thread */
    PIECE = 1 << 20     /* bytes */
};

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

/* A timed loop. `sinks`, one for each thread, keep the results alive. */
struct timed {
    char *data;
    uint64_t (*read)(const void *data, size_t bytes, size_t ahead);
    float (*compute)(int64_t n, float start);
    size_t ahead;
    struct {
        TD_ALIGNED(64) uint64_t bits;
        float sum;
    } sinks[TD_TEAM_MAX_THREADS];
};

static void write_pieces(void *arg, int64_t first, int64_t last)
{
    const struct timed *t = arg;
    for (int64_t i = first; i < last; i++)
        memset(t->data + i * PIECE, (int)i, PIECE);
}

static void read_pieces(void *arg, int64_t first, int64_t last)
{
    struct timed *t = arg;
    for (int64_t i = first; i < last; i++)
        t->sinks[td_team_index()].bits ^= t->read(t->data + i * PIECE, PIECE, t->ahead);
}

static void compute_pieces(void *arg, int64_t first, int64_t last)
{
    struct timed *t = arg;
    for (int64_t i = first; i < last; i++)
        t->sinks[td_team_index()].sum += t->compute(STEPS, 0.5f);
}

static double read_once(struct td_team *team, struct timed *t, int64_t pieces)
{
    double start = td_clock_now();
    td_team_run(team, pieces, 1, read_pieces, t);
    return (double)(pieces * PIECE) / (td_clock_now() - start);
}

/* Enough pieces that all threads end at about the same time. */
static double compute_once(struct td_team *team, struct timed *t, double per_step)
{
    int64_t pieces = (int64_t)td_team_threads(team) * COMPUTE_PIECES;
    double start = td_clock_now();
    td_team_run(team, pieces, 1, compute_pieces, t);
    return per_step * STEPS * (double)pieces / (td_clock_now() - start);
}

static void measure(struct td_team *team, struct timed *t, int64_t pieces,
                    struct td_limits *best)
{
    static const size_t ahead[] = {0, 2048};
    struct td_limit_loops l = loops();
    td_team_run(team, pieces, 0, write_pieces, t);
    t->read = l.read;
    for (int r = 0; r < REPEATS; r++) {
        t->compute = l.fma;
        double f32 = compute_once(team, t, l.fma_flops);
        t->compute = l.dot;
        double bf16 = l.dot ? compute_once(team, t, l.dot_flops) : f32;
        best->f32 = TD_MAX(best->f32, f32);
        best->bf16 = TD_MAX(TD_MAX(best->bf16, bf16), best->f32);
        for (size_t i = 0; i < TD_COUNT(ahead); i++) {
            t->ahead = ahead[i];
            best->read = TD_MAX(best->read, read_once(team, t, pieces));
        }
    }
}

enum td_status td_limits_measure(int threads, size_t bytes, struct td_limits *out,
                                 struct td_error *err)
{
    size_t n = bytes ? bytes : (size_t)512 << 20;
    int64_t pieces = (int64_t)((n + PIECE - 1) / PIECE);
    struct td_limits best = {0};
    struct td_team *team = NULL;
    struct td_cores *cores = NULL;
    struct timed *t = td_alloc_aligned(sizeof(*t));
    char *data = td_alloc_aligned((size_t)(pieces * PIECE));
    enum td_status s = TD_OK;
    if (!t || !data)
        s = td_error_set(err, TD_E_NOMEM, "no memory to measure the processor with");
    if (s == TD_OK)
        s = td_cores_new(&(struct td_cores_params){.threads = threads}, &cores, err);
    if (s == TD_OK)
        s = td_team_new(td_cores_threads(cores), cores, &team, err);
    if (s == TD_OK) {
        t->data = data;
        measure(team, t, pieces, &best);
        *out = best;
    }
    td_team_free(team);
    td_cores_free(cores);
    td_free_aligned(data, (size_t)(pieces * PIECE));
    td_free_aligned(t, sizeof(*t));
    return s;
}

enum td_status td_limits_of(struct td_dev *dev, bool products, struct td_limits *out,
                            struct td_error *err)
{
    if (!dev->ops.limits)
        return td_limits_measure(dev->threads, 0, out, err);
    *out = (struct td_limits){0};
    dev->ops.limits(dev, products, out);
    return TD_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights for a configuration without files, made on the device by its fill operation.
 *
 * The numbers of the table keep such a model in a useful range, whatever its size: a
 * product turns inputs of deviation 1 into outputs of deviation `gain`, a layer adds
 * about half of the embedding to the residual stream, decays forget after one to a few
 * hundred tokens, and the router prefers some experts to others, differently for each
 * token.
 */
#include "ops/random.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/model_int.h"

#include <math.h>
#include <string.h>

/* Matrices have a gain, vectors spread evenly over lo .. hi as stored. */
static const struct {
    float gain, lo, hi;
} values[TD_ROLE_COUNT] = {
    [TD_W_FINAL_NORM] = {0, -0.3f, 0.3f},
    [TD_W_LM_HEAD] = {3, 0, 0},
    [TD_W_INPUT_NORM] = {0, -0.3f, 0.3f},
    [TD_W_POST_NORM] = {0, -0.3f, 0.3f},
    [TD_W_Q] = {1, 0, 0},
    [TD_W_K] = {1, 0, 0},
    [TD_W_V] = {1, 0, 0},
    [TD_W_O] = {1.4f, 0, 0},
    [TD_W_Q_NORM] = {0, 0.2f, 1.2f},
    [TD_W_K_NORM] = {0, 0.2f, 1.2f},
    [TD_W_GDN_QKV] = {1.2f, 0, 0},
    [TD_W_GDN_Z] = {1.5f, 0, 0},
    [TD_W_GDN_B] = {1.5f, 0, 0},
    [TD_W_GDN_A] = {1, 0, 0},
    [TD_W_GDN_CONV] = {0, -0.8f, 0.8f},
    [TD_W_GDN_DT_BIAS] = {0, -3, 1},
    [TD_W_GDN_A_LOG] = {0, -4, 2},
    [TD_W_GDN_NORM] = {0, 0.6f, 1.4f},
    [TD_W_GDN_OUT] = {0.6f, 0, 0},
    [TD_W_GATE] = {1.4f, 0, 0},
    [TD_W_UP] = {1.4f, 0, 0},
    [TD_W_DOWN] = {0.4f, 0, 0},
    [TD_W_ROUTER] = {2, 0, 0},
    [TD_W_SHARED_ROUTER] = {1.5f, 0, 0},
    [TD_W_SHARED_GATE] = {1.4f, 0, 0},
    [TD_W_SHARED_UP] = {1.4f, 0, 0},
    [TD_W_SHARED_DOWN] = {0.4f, 0, 0},
    [TD_W_EXPERT_GATE] = {1.4f, 0, 0},
    [TD_W_EXPERT_UP] = {1.4f, 0, 0},
    [TD_W_EXPERT_DOWN] = {0.4f, 0, 0},
    [TD_W_MTP_FC] = {1, 0, 0},
    [TD_W_MTP_NORM_EMBED] = {0, -0.3f, 0.3f},
    [TD_W_MTP_NORM_HIDDEN] = {0, -0.3f, 0.3f},
    [TD_W_MTP_NORM] = {0, -0.3f, 0.3f},
};

static uint64_t seed_of(const struct td_model *m, const struct td_weight *w)
{
    uint64_t s = td_random_word(m->random, (uint64_t)w->role);
    s = td_random_word(s, (uint64_t)((int64_t)w->layer + 1));
    return td_random_word(s, (uint64_t)((int64_t)w->expert + 1));
}

/* An even spread over -r .. r has the deviation r / sqrt(3). Elements of an embedding
 * have deviation 1; tied to the head, the head's. */
static float range_of(const struct td_model *m, const struct td_weight *w)
{
    float gain = values[w->role].gain;
    if (w->role == TD_W_EMBED)
        gain = m->cfg.tied ? 2 : sqrtf((float)w->cols);
    return gain * sqrtf(3.0f / (float)w->cols);
}

static void fill_matrix(struct td_model *m, const struct td_weight *w,
                        const struct td_matrix *to)
{
    struct td_fill_args a = {.m = to,
                             .from_col = w->col.first,
                             .cols = w->cols,
                             .range = range_of(m, w),
                             .seed = seed_of(m, w)};
    for (int i = 0; i < w->n_ranges; i++) {
        a.n = w->row[i].count;
        a.from_row = w->row[i].first;
        if (a.n > 0)
            m->dev->ops.fill(m->dev, &a);
        a.row += a.n;
    }
}

static enum td_status fill_vector(struct td_model *m, const struct td_weight *w,
                                  const struct td_place *p, struct td_error *err)
{
    uint64_t seed = seed_of(m, w);
    float lo = values[w->role].lo, step = (values[w->role].hi - lo) / 131070.0f;
    size_t n = (size_t)(w->local_rows * w->col.count);
    float *v = td_calloc(n, sizeof(*v)), *at = v;
    if (!v)
        return td_error_set(err, TD_E_NOMEM, "no memory for random weights");
    for (int i = 0; i < w->n_ranges; i++)
        for (int64_t r = 0; r < w->row[i].count; r++)
            for (int64_t c = w->col.first; c < w->col.first + w->col.count; c++) {
                uint64_t word = td_random_word(
                    seed, td_random_place(w->row[i].first + r, c, w->cols));
                float odd = td_random_odd(word, (int)(c % TD_RANDOM_PER_WORD));
                *at++ = td_transformed(p->transform, lo + (odd + 65535.0f) * step);
            }
    m->dev->ops.put(m->dev, *p->vector, v, n * sizeof(*v));
    td_free(v);
    return TD_OK;
}

enum td_status td_model_imagine(struct td_model *m, struct td_load_stats *stats,
                                struct td_error *err)
{
    enum td_status s = TD_OK;
    int64_t start = td_clock_ns();
    for (size_t i = 0; i < m->names.count && s == TD_OK; i++) {
        const struct td_weight *w = &m->names.w[i];
        struct td_place p = td_model_placed(m, w);
        if (p.vector)
            s = fill_vector(m, w, &p, err);
        else
            fill_matrix(m, w, p.m);
    }
    if (s == TD_OK)
        s = td_model_put_frequencies(m, err);
    if (s == TD_OK)
        s = m->dev->ops.sync(m->dev, err);
    double seconds = (double)(td_clock_ns() - start) * 1e-9;
    double bytes = (double)m->names.bytes;
    if (s == TD_OK)
        td_event("loaded",
                 (struct td_num[]){{"bytes", bytes},
                                   {"of", bytes},
                                   {"rate", seconds > 0 ? bytes / seconds : 0},
                                   {"left", 0},
                                   {"seconds", seconds},
                                   {NULL, 0}});
    if (s == TD_OK && stats)
        *stats = (struct td_load_stats){.bytes = m->names.bytes, .seconds = seconds};
    return s;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * td_sample() against a slow sampler that follows the order of operations of sample.h
 * literally: every rule alone, all rules at random, the distribution of many draws, and
 * the promises around it (ids beyond the tokenizer, determinism, resumption, failures).
 *
 *     sample_sampler --bench      time for one token, instead of the tests
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sample/sample_int.h"

enum { SMALL = 400, MOST = 20000, MAX_IDS = 1000 };

static uint64_t state = 7;

static uint32_t next(void)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(state >> 33);
}

static float real(float lo, float hi)
{
    return lo + (hi - lo) * (float)next() / 2147483648.0F;
}

/* ---- the slow sampler ---------------------------------------------------------------- */

struct history {
    const int32_t *prompt, *generated;
    size_t n_prompt, n_generated;
};

struct item {
    int32_t id;
    double x, p;
};

static int by_rank(const void *a, const void *b)
{
    const struct item *p = a, *q = b;
    if (p->x != q->x)
        return p->x < q->x ? 1 : -1;
    return p->id < q->id ? -1 : 1;
}

static size_t times(const int32_t *ids, size_t n, int32_t id)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ids[i] == id;
    return count;
}

static double changed_logit(const struct td_sampling *s, const struct history *h,
                            int32_t id, double x)
{
    size_t made = times(h->generated, h->n_generated, id);
    for (size_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].id == id)
            x += (double)s->bias[i].bias;
    if (made || times(h->prompt, h->n_prompt, id))
        x = x > 0 ? x / (double)s->repetition_penalty
                  : x * (double)s->repetition_penalty;
    x -= (double)s->frequency_penalty * (double)made;
    if (made)
        x -= (double)s->presence_penalty;
    bool stop = times(s->stop_ids, s->n_stop_ids, id) ||
                (!s->ignore_eos && times(s->eos_ids, s->n_eos_ids, id));
    if (stop && (int64_t)h->n_generated < s->min_tokens)
        return -HUGE_VAL;
    return x;
}

/* Fills p[vocab] with the probabilities that are drawn from. Returns how near the
 * nearest decision (top_p's sum, min_p's border) was to going the other way. */
static double probabilities(const struct td_sampling *s, const struct history *h,
                            const float *logits, int32_t vocab, double *p)
{
    static struct item item[MOST];
    double total = 0, left = 0, run = 0, near = 1;
    size_t n = (size_t)vocab, keep = 0;
    for (int32_t i = 0; i < vocab; i++) {
        item[i] = (struct item){i, changed_logit(s, h, i, (double)logits[i]), 0};
        p[i] = 0;
    }
    qsort(item, n, sizeof(*item), by_rank);
    if (s->temperature < 1e-5F) {
        p[item[0].id] = 1;
        return n > 1 && item[1].x > item[0].x - 1e-4 && item[1].x != item[0].x ? 0 : 1;
    }
    for (size_t i = 0; i < n; i++)
        item[i].p = exp((item[i].x - item[0].x) / (double)s->temperature);
    for (keep = 0; keep < n && item[keep].p >= (double)s->min_p; keep++)
        near = fmin(near, s->min_p > 0 && keep ? item[keep].p - (double)s->min_p : 1);
    if (keep < n)
        near = fmin(near, (double)s->min_p - item[keep].p);
    n = keep;
    if (s->top_k > 0 && (size_t)s->top_k < n) {
        n = (size_t)s->top_k;
        /* Values that differ by rounding only may rank either way. */
        if (fabs(item[n].x - item[n - 1].x) < 1e-4 && item[n].x != item[n - 1].x)
            near = 0;
    }
    for (size_t i = 0; i < n; i++)
        total += item[i].p;
    for (keep = 0; keep < n && (keep == 0 || run < (double)s->top_p * total); keep++) {
        run += item[keep].p;
        if (s->top_p < 1)
            near = fmin(near, fabs(run / total - (double)s->top_p));
    }
    if (s->top_p < 1)
        n = keep;
    for (size_t i = 0; i < n; i++)
        left += item[i].p;
    for (size_t i = 0; i < n; i++)
        p[item[i].id] = item[i].p / left;
    return near;
}

/* True when id is what lies under u, give or take rounding. */
static bool under(const double *p, int32_t vocab, int32_t id, double u)
{
    double before = 0;
    if (id < 0 || id >= vocab || p[id] <= 0)
        return false;
    for (int32_t i = 0; i < id; i++)
        before += p[i];
    return u > before - 1e-4 && u < before + p[id] + 1e-4;
}

/* ---- all rules at random ---------------------------------------------------------------- */

static void random_settings(struct td_sampling *s, int32_t vocab)
{
    static struct td_logit_bias bias[8];
    static int32_t eos[2], stop[3];
    td_sampling_default(s);
    s->temperature = next() % 6 == 0 ? 0 : real(0.1F, 2.0F);
    if (next() % 2)
        s->top_k = 1 + (int32_t)(next() % (uint32_t)(vocab + 3));
    if (next() % 2)
        s->top_p = real(0.05F, 1.0F);
    if (next() % 3 == 0)
        s->min_p = real(0, 1.0F);
    if (next() % 3 == 0)
        s->repetition_penalty = real(0.5F, 2.0F);
    if (next() % 3 == 0)
        s->presence_penalty = real(-2, 2);
    if (next() % 3 == 0)
        s->frequency_penalty = real(-2, 2);
    if (next() % 3 == 0) {
        s->bias = bias;
        s->n_bias = 1 + next() % TD_COUNT(bias);
        for (size_t i = 0; i < s->n_bias; i++)
            bias[i] = (struct td_logit_bias){(int32_t)(next() % (uint32_t)vocab),
                                             real(-10, 10)};
    }
    if (next() % 3 == 0 && vocab > 6) {
        s->min_tokens = next() % 5;
        s->ignore_eos = next() % 2;
        s->eos_ids = eos;
        s->n_eos_ids = 1 + next() % TD_COUNT(eos);
        s->stop_ids = stop;
        s->n_stop_ids = next() % (TD_COUNT(stop) + 1);
        for (size_t i = 0; i < s->n_eos_ids; i++)
            eos[i] = (int32_t)(next() % (uint32_t)vocab);
        for (size_t i = 0; i < s->n_stop_ids; i++)
            stop[i] = (int32_t)(next() % (uint32_t)vocab);
    }
    s->seed = next();
    s->choice = next() % 4;
}

/* One draw from x by random settings; false when rounding could decide it. */
static bool one_draw(const float *x, int32_t vocab, int64_t position)
{
    static double p[MOST];
    int32_t prompt[6], made[6];
    struct td_sampler s;
    struct td_sample_work w;
    struct td_sampling set;
    struct td_sampled out;
    for (size_t i = 0; i < 6; i++) {
        prompt[i] = (int32_t)(next() % (uint32_t)vocab);
        made[i] = (int32_t)(next() % (uint32_t)vocab);
    }
    struct history h = {prompt, made, next() % 7, next() % 7};
    random_settings(&set, vocab);
    assert_int_equal(td_sampler_init(&s, vocab, MAX_IDS, NULL), TD_OK);
    assert_int_equal(td_sample_work_init(&w, vocab, NULL), TD_OK);
    assert_int_equal(
        td_sampler_begin(&s, &set, prompt, h.n_prompt, made, h.n_generated, NULL),
        TD_OK);
    assert_int_equal(td_sample(&s, &w, x, position, &out, NULL), TD_OK);
    bool clear = probabilities(&set, &h, x, vocab, p) >= 1e-5;
    double u = td_draw_uniform(set.seed, set.choice, position);
    if (clear)
        assert_true(set.temperature == 0 ? p[out.id] == 1 : under(p, vocab, out.id, u));
    td_sampler_release(&s);
    td_sample_work_release(&w);
    return clear;
}

static void test_random_settings(void **unused)
{
    (void)unused;
    static float x[SMALL];
    int skipped = 0;
    for (int round = 0; round < 6000; round++) {
        int32_t vocab = 1 + (int32_t)(next() % (next() % 2 ? SMALL : 8));
        float span = real(0.1F, 30.0F);
        bool steps = next() % 2; /* many ties, or none */
        for (int32_t i = 0; i < vocab; i++)
            x[i] = steps ? floorf(real(-4, 4)) : real(-span, span);
        skipped += !one_draw(x, vocab, round);
    }
    assert_in_range(skipped, 0, 300);
}

/* Rows of hundreds of blocks, flat ones and ones where few ids hold nearly everything:
 * the scans that skip blocks must not miss any. */
static void test_large_rows(void **unused)
{
    (void)unused;
    static float x[MOST];
    int skipped = 0;
    for (int round = 0; round < 250; round++) {
        float span = round % 2 ? real(5, 40) : real(0.1F, 2.0F);
        for (int32_t i = 0; i < MOST; i++)
            x[i] = real(-span, 0) * real(0, 1);
        for (int i = round % 3 ? 10 : 0; i > 0; i--)
            x[next() % MOST] = real(0, 0.3F * span);
        skipped += !one_draw(x, MOST, round);
    }
    assert_in_range(skipped, 0, 150);
}

/* ---- a fixture for the rest --------------------------------------------------------------- */

struct bed {
    struct td_sampler s;
    struct td_sample_work w;
    struct td_sampling set;
    struct td_sampled out;
    struct td_error err;
};

static void bed_open(struct bed *b, int32_t vocab)
{
    td_error_init(&b->err);
    td_sampling_default(&b->set);
    assert_int_equal(td_sampler_init(&b->s, vocab, MAX_IDS, &b->err), TD_OK);
    assert_int_equal(td_sample_work_init(&b->w, vocab, &b->err), TD_OK);
}

static void bed_close(struct bed *b)
{
    td_sampler_release(&b->s);
    td_sample_work_release(&b->w);
}

static void begin(struct bed *b)
{
    assert_int_equal(td_sampler_begin(&b->s, &b->set, NULL, 0, NULL, 0, &b->err),
                     TD_OK);
}

static int32_t pick(struct bed *b, const float *x, int64_t position)
{
    assert_int_equal(td_sample(&b->s, &b->w, x, position, &b->out, &b->err), TD_OK);
    return b->out.id;
}

static void test_greedy_and_ties(void **unused)
{
    (void)unused;
    struct bed b;
    float x[130] = {0};
    bed_open(&b, 130);
    b.set.temperature = 0;
    begin(&b);
    assert_int_equal(pick(&b, x, 0), 0);
    x[129] = x[70] = x[128] = 2;
    assert_int_equal(pick(&b, x, 0), 70);
    x[129] = 3;
    assert_int_equal(pick(&b, x, 0), 129);

    /* top_k among ties keeps the lowest ids; so does top_p. */
    b.set.temperature = 1;
    b.set.top_k = 3;
    x[129] = x[70] = x[128] = 0;
    begin(&b);
    for (int i = 0; i < 200; i++)
        assert_in_range(pick(&b, x, i), 0, 2);
    b.set.top_k = 0;
    b.set.top_p = 0.05F; /* 6.5 of 130 equal ids */
    begin(&b);
    int most = 0;
    for (int i = 0; i < 500; i++)
        most = TD_MAX(most, pick(&b, x, i));
    assert_int_equal(most, 6);
    bed_close(&b);
}

static void test_penalties_by_hand(void **unused)
{
    (void)unused;
    struct bed b;
    static const int32_t prompt[] = {0, 1, 9, -3}, made[] = {2, 2, 3};
    const float x[6] = {4.0F, -2.0F, 3.0F, 1.0F, 0.5F, 3.5F};
    bed_open(&b, 6);
    b.set.temperature = 0;
    b.set.repetition_penalty = 2;
    assert_int_equal(td_sampler_begin(&b.s, &b.set, prompt, 4, made, 3, NULL), TD_OK);
    assert_int_equal(pick(&b, x, 0), 5); /* 4/2, -2*2, 3/2, 1/2, 0.5, 3.5 */

    b.set.repetition_penalty = 1;
    b.set.presence_penalty = 0.75F; /* prompt ids are not touched */
    assert_int_equal(td_sampler_begin(&b.s, &b.set, prompt, 4, made, 3, NULL), TD_OK);
    assert_int_equal(pick(&b, x, 0), 0);
    const float y[6] = {0, 0, 3.0F, 2.0F, 2.2F, 0};
    assert_int_equal(pick(&b, y, 0), 2); /* 2.25, 1.25, 2.2 */
    b.set.frequency_penalty = 0.1F;
    assert_int_equal(td_sampler_begin(&b.s, &b.set, prompt, 4, made, 3, NULL), TD_OK);
    assert_int_equal(pick(&b, y, 0), 4); /* 2.05, 1.15, 2.2 */
    assert_int_equal(td_sampler_add(&b.s, 4), TD_OK);
    assert_int_equal(pick(&b, y, 0), 2); /* 2.05, 1.15, 1.35 */

    /* The caller's row stays as it was. */
    assert_true(y[2] == 3.0F && y[4] == 2.2F);
    bed_close(&b);
}

static void test_stop_ids(void **unused)
{
    (void)unused;
    struct bed b;
    static const int32_t eos[] = {1, 400}, stop[] = {3};
    const float x[4] = {0, 5.0F, -1.0F, 4.0F};
    bed_open(&b, 4);
    b.set.temperature = 0;
    b.set.eos_ids = eos;
    b.set.n_eos_ids = 2;
    b.set.stop_ids = stop;
    b.set.n_stop_ids = 1;
    b.set.min_tokens = 2;
    begin(&b);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pick(&b, x, i), 0);
        assert_int_equal(b.out.stop, TD_STOP_NONE);
        assert_int_equal(td_sampler_add(&b.s, 0), TD_OK);
    }
    assert_int_equal(pick(&b, x, 2), 1);
    assert_int_equal(b.out.stop, TD_STOP_EOS);
    assert_int_equal(td_sampler_stop(&b.s, 3), TD_STOP_ID);

    b.set.ignore_eos = true; /* not masked, not a stop; the request's own still is */
    begin(&b);
    assert_int_equal(pick(&b, x, 0), 1);
    assert_int_equal(b.out.stop, TD_STOP_NONE);
    assert_int_equal(td_sampler_stop(&b.s, 3), TD_STOP_ID);

    /* A masked id is out even where nothing is cut off, and at any temperature. */
    b.set.ignore_eos = false;
    b.set.temperature = 2;
    begin(&b);
    for (int i = 0; i < 500; i++)
        assert_true(pick(&b, x, i) % 2 == 0);
    b.set.top_k = 4;
    begin(&b);
    for (int i = 0; i < 500; i++)
        assert_true(pick(&b, x, i) % 2 == 0);
    bed_close(&b);
}

static void test_all_ids_masked(void **unused)
{
    (void)unused;
    struct bed b;
    static const int32_t stop[] = {0, 1};
    const float x[2] = {0, 1};
    bed_open(&b, 2);
    b.set.stop_ids = stop;
    b.set.n_stop_ids = 2;
    b.set.min_tokens = 1;
    begin(&b);
    assert_int_equal(td_sample(&b.s, &b.w, x, 0, &b.out, &b.err), TD_E_INPUT);
    assert_non_null(strstr(b.err.what, "min_tokens"));
    bed_close(&b);
}

/* ---- distribution -------------------------------------------------------------------------- */

/* Chi-square of `draws` draws against the slow sampler's probabilities must stay below
 * its 0.9999 quantile (Wilson-Hilferty). vary: 0 position, 1 seed, 2 choice. */
static void check_distribution(struct bed *b, const float *x, int32_t vocab, int vary)
{
    enum { DRAWS = 20000 };
    static double p[MOST];
    static int count[MOST];
    struct history h = {0};
    double chi = 0, df = -1, rest = 0, rest_count = 0;
    memset(count, 0, sizeof(count));
    probabilities(&b->set, &h, x, vocab, p);
    begin(b);
    for (int i = 0; i < DRAWS; i++) {
        b->s.set.seed = vary == 1 ? (uint64_t)i : 99;
        b->s.set.choice = vary == 2 ? (uint32_t)i : 0;
        count[pick(b, x, vary == 0 ? i : 1234)]++;
    }
    for (int32_t i = 0; i < vocab; i++) {
        double e = p[i] * DRAWS;
        if (p[i] == 0)
            assert_int_equal(count[i], 0);
        if (e < 5) {
            rest += e;
            rest_count += count[i];
            continue;
        }
        chi += (count[i] - e) * (count[i] - e) / e;
        df++;
    }
    if (rest >= 5) {
        chi += (rest_count - rest) * (rest_count - rest) / rest;
        df++;
    }
    double z = 2.0 / (9 * df), limit = df * pow(1 - z + 3.719 * sqrt(z), 3);
    if (chi > limit)
        print_message("chi-square %.1f, limit %.1f, %d degrees\n", chi, limit, (int)df);
    assert_true(df >= 3 && chi <= limit);
}

static void test_distribution(void **unused)
{
    (void)unused;
    struct bed b;
    static float x[300];
    bed_open(&b, 300);
    for (int i = 0; i < 300; i++)
        x[i] = real(-6, 3);
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } cases[] = {{1.0F, 1.0F, 0, 0},     {2.0F, 1.0F, 0, 0},  {0.7F, 0.9F, 0, 0},
                 {1.0F, 0.95F, 0, 20},   {1.3F, 1.0F, 0, 40}, {1.0F, 1.0F, 0.1F, 0},
                 {0.6F, 0.8F, 0.02F, 30}};
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        b.set.temperature = cases[i].temperature;
        b.set.top_p = cases[i].top_p;
        b.set.min_p = cases[i].min_p;
        b.set.top_k = cases[i].top_k;
        for (int vary = 0; vary < 3; vary++)
            check_distribution(&b, x, 300, vary);
    }
    bed_close(&b);
}

/* ---- promises ------------------------------------------------------------------------------ */

static void test_ids_beyond_the_tokenizer(void **unused)
{
    (void)unused;
    struct bed b;
    static float x[640];
    const int32_t vocab = 600;
    for (int32_t i = 0; i < 640; i++)
        x[i] = i < vocab ? real(-2, 2) : i % 2 ? 1e30F : NAN;
    for (int mode = 0; mode < 4; mode++) {
        bed_open(&b, vocab);
        b.set.temperature = mode == 3 ? 0 : 2;
        b.set.top_p = mode == 1 ? 0.99F : 1;
        b.set.top_k = mode == 2 ? 590 : 0;
        b.set.logprobs = 20;
        begin(&b);
        for (int i = 0; i < 10000; i++)
            assert_in_range(pick(&b, x, i), 0, vocab - 1);
        for (int32_t i = 0; i < b.out.n_top; i++)
            assert_in_range(b.out.top[i].id, 0, vocab - 1);
        bed_close(&b);
    }
}

/* Ids that a sequence draws, one after the other, from rows made from the position. */
static void sequence(struct bed *b, int32_t *ids, int from, int to,
                     struct bed *neighbour)
{
    float x[100];
    for (int t = from; t < to; t++) {
        state = (uint64_t)t + 1;
        for (int i = 0; i < 100; i++)
            x[i] = real(-3, 3);
        if (neighbour) {
            float y[100] = {0};
            (void)td_sampler_add(&neighbour->s, pick(neighbour, y, t));
            struct td_sample_work swap = b->w; /* and share the scratch memory */
            b->w = neighbour->w;
            neighbour->w = swap;
        }
        ids[t] = pick(b, x, t);
        assert_int_equal(td_sampler_add(&b->s, ids[t]), TD_OK);
    }
}

static void test_same_seed_same_text(void **unused)
{
    (void)unused;
    struct bed a, b;
    int32_t one[64], two[64], prompt[] = {4, 5, 6};
    bed_open(&a, 100);
    bed_open(&b, 100);
    a.set.seed = 4711;
    a.set.presence_penalty = 0.5F;
    a.set.repetition_penalty = 1.1F;
    a.set.top_k = 30;
    assert_int_equal(td_sampler_begin(&a.s, &a.set, prompt, 3, NULL, 0, NULL), TD_OK);
    sequence(&a, one, 0, 64, NULL);

    /* With a neighbour in the batch, in a slot that was used before. */
    b.set.temperature = 2;
    begin(&b);
    assert_int_equal(td_sampler_begin(&a.s, &a.set, prompt, 3, NULL, 0, NULL), TD_OK);
    sequence(&a, two, 0, 64, &b);
    assert_memory_equal(one, two, sizeof(one));

    /* Resumed in another slot after 20 ids. */
    memset(two, 0, sizeof(two));
    memcpy(two, one, 20 * sizeof(*one));
    assert_int_equal(td_sampler_begin(&b.s, &a.set, prompt, 3, two, 20, NULL), TD_OK);
    sequence(&b, two, 20, 64, NULL);
    assert_memory_equal(one, two, sizeof(one));

    /* Another seed, another choice: other texts. */
    a.set.choice = 1;
    assert_int_equal(td_sampler_begin(&a.s, &a.set, prompt, 3, NULL, 0, NULL), TD_OK);
    sequence(&a, two, 0, 64, NULL);
    assert_memory_not_equal(one, two, sizeof(one));
    a.set.choice = 0;
    a.set.seed++;
    assert_int_equal(td_sampler_begin(&a.s, &a.set, prompt, 3, NULL, 0, NULL), TD_OK);
    sequence(&a, two, 0, 64, NULL);
    assert_memory_not_equal(one, two, sizeof(one));
    bed_close(&a);
    bed_close(&b);
}

static void check_logprobs(const float *x, int32_t vocab, const struct td_sampled *out,
                           int32_t asked)
{
    double max = -HUGE_VAL, sum = 0;
    int32_t rank = 1;
    for (int32_t i = 0; i < vocab; i++)
        max = fmax(max, (double)x[i]);
    for (int32_t i = 0; i < vocab; i++)
        sum += exp((double)x[i] - max);
    for (int32_t i = 0; i < vocab; i++)
        rank += x[i] > x[out->id] || (x[i] == x[out->id] && i < out->id);
    assert_true(fabs((double)out->logprob - ((double)x[out->id] - max - log(sum))) <
                1e-5);
    assert_int_equal(out->rank, rank);
    assert_int_equal(out->n_top, TD_MIN(asked, vocab));
    for (int32_t i = 0; i < out->n_top; i++) {
        const struct td_logprob *t = &out->top[i];
        assert_true(fabs((double)t->logprob - ((double)x[t->id] - max - log(sum))) <
                    1e-5);
        if (i > 0)
            assert_true(x[t->id] < x[t[-1].id] ||
                        (x[t->id] == x[t[-1].id] && t->id > t[-1].id));
        if (rank == i + 1)
            assert_int_equal(t->id, out->id);
    }
    if (out->n_top > 0 && out->n_top < vocab) {
        const struct td_logprob *last = &out->top[out->n_top - 1];
        int32_t before = 0;
        for (int32_t i = 0; i < vocab; i++)
            before += x[i] > x[last->id] || (x[i] == x[last->id] && i < last->id);
        assert_int_equal(before, out->n_top - 1);
    }
}

static void test_logprobs(void **unused)
{
    (void)unused;
    static float x[SMALL];
    static const int32_t asked[] = {0, 1, 5, 20, TD_MAX_LOGPROBS};
    static const struct td_logit_bias bias[] = {{0, 50.0F}};
    for (int round = 0; round < 300; round++) {
        struct bed b;
        int32_t vocab = 1 + (int32_t)(next() % SMALL);
        for (int32_t i = 0; i < vocab; i++)
            x[i] = round % 2 ? real(-20, 20) : floorf(real(-3, 3));
        bed_open(&b, vocab);
        b.set.logprobs = asked[round % (int)TD_COUNT(asked)];
        b.set.temperature = real(0, 2);
        b.set.bias = bias; /* chosen against the odds, reported as the model saw it */
        b.set.n_bias = round % 3 == 0;
        begin(&b);
        int32_t id = pick(&b, x, round);
        check_logprobs(x, vocab, &b.out, b.set.logprobs);
        struct td_sampled again;
        struct td_logprob kept[TD_MAX_LOGPROBS];
        memcpy(kept, b.out.top, sizeof(kept));
        assert_int_equal(td_logprobs(&b.w, x, id, b.set.logprobs, &again, NULL), TD_OK);
        assert_true(again.logprob == b.out.logprob && again.rank == b.out.rank);
        assert_memory_equal(kept, again.top, (size_t)again.n_top * sizeof(*kept));
        assert_int_equal(td_logprobs(&b.w, x, vocab, 3, &again, NULL), TD_OK);
        assert_true(isinf(again.logprob) && again.rank == vocab + 1);
        bed_close(&b);
    }
}

/* ---- failures ------------------------------------------------------------------------------ */

static void test_logits_that_are_not_finite(void **unused)
{
    (void)unused;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct bed b;
    static float x[300];
    bed_open(&b, 300);
    for (int mode = 0; mode < 3; mode++)
        for (size_t i = 0; i < TD_COUNT(bad); i++) {
            b.set.temperature = (float)mode / 2;
            b.set.logprobs = mode;
            begin(&b);
            x[211] = bad[i];
            td_error_init(&b.err);
            assert_int_equal(td_sample(&b.s, &b.w, x, 0, &b.out, &b.err),
                             TD_E_NUMERICS);
            assert_non_null(strstr(b.err.what, "id 211"));
            assert_int_equal(td_sample(&b.s, &b.w, x, 0, &b.out, NULL), TD_E_NUMERICS);
            assert_int_equal(td_logprobs(&b.w, x, 0, 1, &b.out, NULL), TD_E_NUMERICS);
            x[211] = 0;
            (void)pick(&b, x, 0);
        }
    /* Large but finite logits are no failure, whatever is added to them. */
    static const struct td_logit_bias bias[] = {{5, 100.0F}};
    for (int i = 0; i < 300; i++)
        x[i] = i % 2 ? 3.4e38F : -3.4e38F;
    b.set.bias = bias;
    b.set.n_bias = 1;
    b.set.logprobs = 5;
    begin(&b);
    assert_true(pick(&b, x, 0) % 2);
    bed_close(&b);
}

static void test_out_of_memory(void **unused)
{
    (void)unused;
    struct td_error err;
    for (long n = 1; n <= 4; n++) {
        struct td_sample_work w;
        td_error_init(&err);
        td_mem_fail_at(n);
        assert_int_equal(td_sample_work_init(&w, 1000, &err), TD_E_NOMEM);
        assert_int_equal(err.code, TD_E_NOMEM);
    }
    for (long n = 1; n <= 3; n++) {
        struct td_sampler s;
        td_mem_fail_at(n);
        assert_int_equal(td_sampler_init(&s, 1000, 10, NULL), TD_E_NOMEM);
    }
    td_mem_fail_at(0);
    struct td_sampler s;
    struct td_sample_work w;
    assert_int_equal(td_sampler_init(&s, 0, 10, NULL), TD_E_INPUT);
    assert_int_equal(td_sample_work_init(&w, -1, NULL), TD_E_INPUT);
}

static void test_the_step_allocates_nothing(void **unused)
{
    (void)unused;
    struct bed b;
    static float x[300];
    static const int32_t stop[] = {3};
    bed_open(&b, 300);
    b.set.presence_penalty = 1;
    b.set.logprobs = 20;
    b.set.min_tokens = 9;
    b.set.stop_ids = stop;
    b.set.n_stop_ids = 1;
    td_mem_fail_at(1);
    for (int i = 0; i < 6; i++) {
        b.set.temperature = i < 3 ? 1 : 0;
        b.set.top_p = i % 3 == 1 ? 0.5F : 1;
        b.set.top_k = i % 3 == 2 ? 7 : 0;
        begin(&b);
        assert_int_equal(td_sampler_add(&b.s, pick(&b, x, i)), TD_OK);
    }
    assert_null(td_calloc(1, 1)); /* the failure is still waiting */
    td_mem_fail_at(0);
    bed_close(&b);
}

static void test_more_ids_than_promised(void **unused)
{
    (void)unused;
    struct td_sampler s;
    struct td_sampling set;
    struct td_error err;
    static const int32_t ids[] = {0, 1, 1, 2, 3};
    td_error_init(&err);
    td_sampling_default(&set);
    set.repetition_penalty = 1.5F;
    assert_true(td_sampler_bytes(100, 3) < td_sampler_bytes(100, 1000));
    assert_true(td_sampler_bytes(100, 100) == td_sampler_bytes(100, INT64_MAX));
    assert_int_equal(td_sampler_init(&s, 100, 3, NULL), TD_OK);
    assert_int_equal(td_sampler_begin(&s, &set, ids, 5, NULL, 0, &err), TD_E_LIMIT);
    assert_non_null(strstr(err.why, "5 prompt ids"));
    assert_int_equal(td_sampler_begin(&s, &set, NULL, 0, ids, 5, NULL), TD_E_LIMIT);
    assert_int_equal(s.n_distinct, 0);
    assert_int_equal(td_sampler_begin(&s, &set, ids, 4, NULL, 0, NULL), TD_OK);
    assert_int_equal(td_sampler_add(&s, 1), TD_OK);
    assert_int_equal(td_sampler_add(&s, 3), TD_E_LIMIT);
    set.temperature = -1;
    assert_int_equal(td_sampler_begin(&s, &set, NULL, 0, NULL, 0, NULL), TD_E_INPUT);
    td_sampler_release(&s);
    td_sampler_release(&s);
}

/* ---- speed --------------------------------------------------------------------------------- */

/* A row that looks like a language model's: most ids far below a few good ones. */
static void model_like(float *x, int32_t vocab, float sharp)
{
    for (int32_t i = 0; i < vocab; i++) {
        float sum = 0;
        for (int j = 0; j < 6; j++)
            sum += real(-1, 1);
        x[i] = sum * sharp;
    }
    for (int i = 0; i < 12; i++)
        x[next() % (uint32_t)vocab] = (4 + real(0, 4)) * sharp;
}

static void bench_one(struct bed *b, const float *x, int32_t vocab, const char *name)
{
    double best = 1e9;
    begin(b);
    for (int32_t i = 0; i < 500; i++)
        (void)td_sampler_add(&b->s, (int32_t)(next() % (uint32_t)vocab));
    for (int round = 0; round < 7; round++) {
        int n = vocab > 100000 ? 40 : 1000;
        double t = td_clock_now();
        for (int i = 0; i < n; i++)
            (void)td_sample(&b->s, &b->w, x, i, &b->out, NULL);
        best = TD_MIN(best, (td_clock_now() - t) / n);
    }
    (void)printf("  %7ld  %-44s %9.1f us\n", (long)vocab, name, best * 1e6);
    td_sampling_default(&b->set);
}

static int bench(void)
{
    static const int32_t sizes[] = {8192, 248320};
    (void)printf(
        "  vocab    settings                                      one token\n");
    for (size_t i = 0; i < TD_COUNT(sizes); i++) {
        int32_t vocab = sizes[i];
        struct bed b;
        float *x = td_calloc((size_t)vocab, sizeof(*x));
        float *flat = td_calloc((size_t)vocab, sizeof(*flat));
        if (!x || !flat)
            return 1;
        model_like(x, vocab, 3.0F);
        model_like(flat, vocab, 0.3F);
        bed_open(&b, vocab);
        b.set.temperature = 0;
        bench_one(&b, x, vocab, "temperature 0");
        b.set.top_k = 20;
        b.set.top_p = 0.95F;
        bench_one(&b, x, vocab, "top-k 20, top-p 0.95");
        bench_one(&b, x, vocab, "temperature 1");
        bench_one(&b, flat, vocab, "temperature 1, flat row");
        b.set.top_p = 0.95F;
        bench_one(&b, x, vocab, "top-p 0.95");
        b.set.top_p = 0.95F;
        bench_one(&b, flat, vocab, "top-p 0.95, flat row");
        b.set.min_p = 0.05F;
        bench_one(&b, x, vocab, "min-p 0.05");
        b.set.top_k = vocab / 2;
        bench_one(&b, flat, vocab, "top-k half of the vocabulary, flat row");
        b.set.top_k = 20;
        b.set.top_p = 0.95F;
        b.set.presence_penalty = 1.5F;
        bench_one(&b, x, vocab, "top-k 20, top-p 0.95, presence, 500 ids");
        b.set.temperature = 0;
        b.set.logprobs = 20;
        bench_one(&b, x, vocab, "temperature 0, 20 log probabilities");
        bed_close(&b);
        td_free(x);
        td_free(flat);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_settings),
        cmocka_unit_test(test_large_rows),
        cmocka_unit_test(test_greedy_and_ties),
        cmocka_unit_test(test_penalties_by_hand),
        cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_all_ids_masked),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_ids_beyond_the_tokenizer),
        cmocka_unit_test(test_same_seed_same_text),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_logits_that_are_not_finite),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_the_step_allocates_nothing),
        cmocka_unit_test(test_more_ids_than_promised),
    };
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return bench();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

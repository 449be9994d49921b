/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence's sampler, and the step from a row of logits to an id. See sample.h for
 * the order of operations and sample_int.h for the scans it is made of.
 *
 * Steps 2 to 5 of that order touch few ids, but the row belongs to the caller: when one
 * of them applies, it works on a copy in the scratch memory. From then on three ways
 * lead to an id:
 *
 *     temperature 0        the first id of the first block that holds the maximum
 *     nothing is cut off   weights of the whole row summed by block, the block under
 *                          the random number searched
 *     min_p, top_k, top_p  ids above a floor that the survivors certainly reach are
 *                          gathered as keys; what is cut off is always the tail of one
 *                          order, so each cut is a partial selection on them
 */
#include "sample/sample.h"

#include "base/compiler.h"
#include "base/mem.h"
#include "sample/sample_int.h"

#include <math.h>
#include <string.h>

#define GREEDY_BELOW 1e-5F

/* Top bit of td_sampler.seen. */
#define IN_PROMPT 0x80000000U

/* ---- memory ------------------------------------------------------------------------- */

enum td_status td_sample_work_init(struct td_sample_work *w, int32_t vocab,
                                   struct td_error *err)
{
    memset(w, 0, sizeof(*w));
    if (vocab < 1)
        return td_error_set(err, TD_E_INPUT, "a vocabulary of %ld ids", (long)vocab);
    w->vocab = vocab;
    w->blocks = (vocab - 1) / TD_ROW_BLOCK + 1;
    w->logits = td_calloc((size_t)vocab, sizeof(*w->logits));
    w->keys = td_calloc((size_t)vocab, sizeof(*w->keys));
    w->max = td_calloc((size_t)w->blocks, sizeof(*w->max));
    w->sum = td_calloc((size_t)w->blocks, sizeof(*w->sum));
    if (w->logits && w->keys && w->max && w->sum)
        return TD_OK;
    td_sample_work_release(w);
    return td_error_set(err, TD_E_NOMEM, "no memory for sampling from %ld ids",
                        (long)vocab);
}

void td_sample_work_release(struct td_sample_work *w)
{
    td_free(w->logits);
    td_free(w->keys);
    td_free(w->max);
    td_free(w->sum);
    memset(w, 0, sizeof(*w));
}

static size_t most_distinct(int32_t vocab, int64_t max_ids)
{
    return (size_t)TD_MIN((int64_t)vocab, TD_MAX(max_ids, 1));
}

size_t td_sampler_bytes(int32_t vocab, int64_t max_ids)
{
    return (size_t)vocab * sizeof(uint32_t) +
           most_distinct(vocab, max_ids) * sizeof(int32_t) +
           TD_MAX_LOGIT_BIAS * sizeof(struct td_logit_bias);
}

enum td_status td_sampler_init(struct td_sampler *s, int32_t vocab, int64_t max_ids,
                               struct td_error *err)
{
    memset(s, 0, sizeof(*s));
    if (vocab < 1)
        return td_error_set(err, TD_E_INPUT, "a vocabulary of %ld ids", (long)vocab);
    s->vocab = vocab;
    s->max_distinct = most_distinct(vocab, max_ids);
    s->seen = td_calloc((size_t)vocab, sizeof(*s->seen));
    s->distinct = td_calloc(s->max_distinct, sizeof(*s->distinct));
    s->bias = td_calloc(TD_MAX_LOGIT_BIAS, sizeof(*s->bias));
    td_sampling_default(&s->set);
    if (s->seen && s->distinct && s->bias)
        return TD_OK;
    td_sampler_release(s);
    return td_error_set(err, TD_E_NOMEM, "no memory for a sequence's penalties");
}

void td_sampler_release(struct td_sampler *s)
{
    td_free(s->seen);
    td_free(s->distinct);
    td_free(s->bias);
    memset(s, 0, sizeof(*s));
}

/* ---- a sequence ------------------------------------------------------------------- */

static bool penalises_generated(const struct td_sampling *set)
{
    return set->presence_penalty != 0 || set->frequency_penalty != 0;
}

static bool repeats_matter(const struct td_sampling *set)
{
    return set->repetition_penalty != 1.0F;
}

static void forget(struct td_sampler *s)
{
    for (size_t i = 0; i < s->n_distinct; i++)
        s->seen[s->distinct[i]] = 0;
    s->n_distinct = 0;
    s->generated = 0;
    td_sampling_default(&s->set);
}

/* The slot's seen[] for an id, or NULL when there is no room for a new one. */
static uint32_t *entry(struct td_sampler *s, int32_t id)
{
    if (s->seen[id] == 0) {
        if (s->n_distinct == s->max_distinct)
            return NULL;
        s->distinct[s->n_distinct++] = id;
    }
    return &s->seen[id];
}

enum td_status td_sampler_add(struct td_sampler *s, int32_t id)
{
    bool counts = repeats_matter(&s->set) || penalises_generated(&s->set);
    if (counts && id >= 0 && id < s->vocab) {
        uint32_t *seen = entry(s, id);
        if (!seen)
            return TD_E_LIMIT;
        *seen += 1;
    }
    s->generated++;
    return TD_OK;
}

static enum td_status count_prompt(struct td_sampler *s, const int32_t *ids, size_t n)
{
    if (!repeats_matter(&s->set))
        return TD_OK;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= s->vocab)
            continue;
        uint32_t *seen = entry(s, ids[i]);
        if (!seen)
            return TD_E_LIMIT;
        *seen |= IN_PROMPT;
    }
    return TD_OK;
}

static void copy_settings(struct td_sampler *s, const struct td_sampling *set)
{
    s->set = *set;
    if (set->n_eos_ids)
        memcpy(s->eos_ids, set->eos_ids, set->n_eos_ids * sizeof(*s->eos_ids));
    if (set->n_stop_ids)
        memcpy(s->stop_ids, set->stop_ids, set->n_stop_ids * sizeof(*s->stop_ids));
    if (set->n_bias)
        memcpy(s->bias, set->bias, set->n_bias * sizeof(*s->bias));
    s->set.eos_ids = s->eos_ids;
    s->set.stop_ids = s->stop_ids;
    s->set.bias = s->bias;
    if (set->top_k < 0 || set->top_k >= s->vocab)
        s->set.top_k = 0;
}

enum td_status td_sampler_begin(struct td_sampler *s, const struct td_sampling *set,
                                const int32_t *prompt, size_t n_prompt,
                                const int32_t *generated, size_t n_generated,
                                struct td_error *err)
{
    forget(s);
    enum td_status status = td_sampling_check(set, s->vocab, err);
    if (status != TD_OK)
        return status;
    copy_settings(s, set);
    status = count_prompt(s, prompt, n_prompt);
    for (size_t i = 0; i < n_generated && status == TD_OK; i++)
        status = td_sampler_add(s, generated[i]);
    if (status == TD_OK)
        return TD_OK;
    size_t max = s->max_distinct;
    forget(s);
    td_error_set(err, status, "a sequence with more than %zu different ids", max);
    td_error_why(err, "%zu prompt ids and %zu generated ids do not fit", n_prompt,
                 n_generated);
    return status;
}

static bool has_id(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

enum td_stop td_sampler_stop(const struct td_sampler *s, int32_t id)
{
    if (!s->set.ignore_eos && has_id(s->eos_ids, s->set.n_eos_ids, id))
        return TD_STOP_EOS;
    return has_id(s->stop_ids, s->set.n_stop_ids, id) ? TD_STOP_ID : TD_STOP_NONE;
}

/* ---- changes to the row -------------------------------------------------------------- */

static bool too_early(const struct td_sampler *s)
{
    return s->generated < s->set.min_tokens;
}

static bool changes_row(const struct td_sampler *s)
{
    const struct td_sampling *set = &s->set;
    bool stops = set->n_stop_ids > 0 || (set->n_eos_ids > 0 && !set->ignore_eos);
    return set->n_bias > 0 || s->n_distinct > 0 || (too_early(s) && stops);
}

static void exclude(const struct td_sampler *s, float *x, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < s->vocab)
            x[ids[i]] = -INFINITY;
}

static float penalised(const struct td_sampling *set, float x, uint32_t seen)
{
    uint32_t times = seen & ~IN_PROMPT;
    x = x > 0 ? x / set->repetition_penalty : x * set->repetition_penalty;
    if (times > 0)
        x -= set->frequency_penalty * (float)times + set->presence_penalty;
    return x;
}

/* Bias and penalties commute with exclusion, so that comes last. */
static void change_row(const struct td_sampler *s, float *x)
{
    const struct td_sampling *set = &s->set;
    for (size_t i = 0; i < set->n_bias; i++)
        x[set->bias[i].id] += set->bias[i].bias;
    for (size_t i = 0; i < s->n_distinct; i++) {
        int32_t id = s->distinct[i];
        x[id] = penalised(set, x[id], s->seen[id]);
    }
    if (!too_early(s))
        return;
    exclude(s, x, set->stop_ids, set->n_stop_ids);
    if (!set->ignore_eos)
        exclude(s, x, set->eos_ids, set->n_eos_ids);
}

/* ---- the draw -------------------------------------------------------------------------- */

/* The id under u among n candidates. */
static int32_t draw(uint64_t *keys, size_t n, const struct td_scale *scale, double u)
{
    td_key_swap(keys, n);
    double mass = u * td_key_sum(keys, n, scale, true);
    uint64_t key = keys[td_key_select_mass(keys, n, mass, scale, true) - 1];
    td_key_swap(&key, 1);
    return td_key_id(key);
}

/* Gathers candidates that hold at least `mass` of a row, or all that count. Guesses how
 * many blocks are needed, few at first: in a usual row a handful of ids holds nearly
 * everything. */
static size_t gather_mass(struct td_sample_work *w, const float *x,
                          const struct td_scale *scale, double mass)
{
    for (int64_t k = 32; k <= w->blocks; k *= 8) {
        size_t n = td_row_gather(w, x, td_row_floor(w, k));
        if (td_key_sum(w->keys, n, scale, false) >= mass)
            return n;
    }
    return td_row_gather(w, x, -INFINITY);
}

/* Candidates that min_p and top_k leave. */
static size_t gather_best(const struct td_sampling *set, struct td_sample_work *w,
                          const float *x, const struct td_scale *scale)
{
    float floor = -INFINITY;
    if (set->top_k > 0)
        floor = td_row_floor(w, set->top_k);
    if (set->min_p > 0)
        floor = TD_MAX(floor, scale->max + logf(set->min_p) / scale->inv_temperature);
    size_t n = td_row_gather(w, x, floor);
    if (set->top_k == 0 || n <= (size_t)set->top_k)
        return n;
    td_key_select(w->keys, n, (size_t)set->top_k);
    return (size_t)set->top_k;
}

/* The draw among the first n keys, of which top_p keeps the best. Few keys are put in
 * order first, so that sums over them do not depend on where the keys came from. */
static int32_t draw_best(const struct td_sampling *set, struct td_sample_work *w,
                         size_t n, const struct td_scale *scale, double u)
{
    if (n <= TD_CANDIDATES)
        td_key_sort(w->keys, n, n);
    if (set->top_p < 1.0F) {
        double mass = (double)set->top_p * td_key_sum(w->keys, n, scale, false);
        n = td_key_select_mass(w->keys, n, mass, scale, false);
    }
    return draw(w->keys, n, scale, u);
}

static int32_t draw_cut(const struct td_sampling *set, struct td_sample_work *w,
                        const float *x, const struct td_scale *scale, double u)
{
    if (set->min_p > 0 || set->top_k > 0)
        return draw_best(set, w, gather_best(set, w, x, scale), scale, u);
    double mass = (double)set->top_p * td_row_sum(w, x, scale);
    size_t n = gather_mass(w, x, scale, mass);
    n = td_key_select_mass(w->keys, n, mass, scale, false);
    return draw(w->keys, n, scale, u);
}

static int32_t choose(const struct td_sampler *s, struct td_sample_work *w,
                      const float *x, float max, int64_t position)
{
    const struct td_sampling *set = &s->set;
    if (set->temperature < GREEDY_BELOW || set->top_k == 1)
        return td_row_argmax(w, x, max);
    struct td_scale scale = {max, 1.0F / set->temperature};
    double u = td_draw_uniform(set->seed, set->choice, position);
    if (set->top_k > 0 || set->top_p < 1.0F || set->min_p > 0)
        return draw_cut(set, w, x, &scale, u);
    return td_row_draw(w, x, &scale, td_row_sum(w, x, &scale), u);
}

/* ---- log probabilities ---------------------------------------------------------------- */

/* What the row says about id and its best alternatives. Needs w->max of x. */
static void describe(struct td_sample_work *w, const float *x, float max, int32_t id,
                     int32_t logprobs, struct td_sampled *out)
{
    struct td_scale scale = {max, 1.0F};
    double norm = (double)max + log(td_row_sum(w, x, &scale));
    bool known = id >= 0 && id < w->vocab;
    out->logprob = known ? (float)((double)x[id] - norm) : -INFINITY;
    out->rank = known ? td_row_rank(w, x, x[id], id) + 1 : w->vocab + 1;
    out->n_top = TD_MIN(logprobs, w->vocab);
    out->top = w->top;
    if (out->n_top < 1)
        return;
    size_t n = td_row_gather(w, x, td_row_floor(w, out->n_top));
    td_key_sort(w->keys, n, (size_t)out->n_top);
    for (int32_t i = 0; i < out->n_top; i++) {
        w->top[i].id = td_key_id(w->keys[i]);
        w->top[i].logprob = (float)((double)td_key_value(w->keys[i]) - norm);
    }
}

static enum td_status not_finite(const struct td_sample_work *w, const float *x,
                                 struct td_error *err)
{
    int32_t id = 0;
    while (id + 1 < w->vocab && isfinite(x[id]))
        id++;
    td_error_set(err, TD_E_NUMERICS, "the logit of id %ld is %g", (long)id,
                 (double)x[id]);
    return TD_E_NUMERICS;
}

enum td_status td_logprobs(struct td_sample_work *w, const float *logits, int32_t id,
                           int32_t logprobs, struct td_sampled *out,
                           struct td_error *err)
{
    float max;
    if (logprobs < 0 || logprobs > TD_MAX_LOGPROBS)
        return td_error_set(err, TD_E_INPUT, "logprobs is %ld, expected 0 to %d",
                            (long)logprobs, TD_MAX_LOGPROBS);
    if (!td_row_max(w, logits, &max))
        return not_finite(w, logits, err);
    memset(out, 0, sizeof(*out));
    out->id = id;
    describe(w, logits, max, id, logprobs, out);
    return TD_OK;
}

/* ---- the step ---------------------------------------------------------------------------- */

enum td_status td_sample(const struct td_sampler *s, struct td_sample_work *w,
                         const float *logits, int64_t position, struct td_sampled *out,
                         struct td_error *err)
{
    const float *x = logits;
    bool changed = changes_row(s);
    float max, own;
    if (!td_row_max(w, logits, &own))
        return not_finite(w, logits, err);
    max = own;
    if (changed) {
        memcpy(w->logits, logits, (size_t)s->vocab * sizeof(*logits));
        change_row(s, w->logits);
        x = w->logits;
        max = td_row_max_masked(w, x);
        if (!isfinite(max))
            return td_error_set(err, TD_E_INPUT,
                                "min_tokens is %lld and every id is a stop id",
                                (long long)s->set.min_tokens);
    }
    memset(out, 0, sizeof(*out));
    out->id = choose(s, w, x, max, position);
    out->stop = td_sampler_stop(s, out->id);
    if (s->set.logprobs < 0)
        return TD_OK;
    if (changed)
        (void)td_row_max(w, logits, &own);
    describe(w, logits, own, out->id, s->set.logprobs, out);
    return TD_OK;
}

/* ---- from candidates --------------------------------------------------------------------- */

/* Steps 2 to 5 never raise a logit: an id that is no candidate stays behind them all. */
static bool only_lowers(const struct td_sampler *s)
{
    const struct td_sampling *set = &s->set;
    for (size_t i = 0; i < set->n_bias; i++)
        if (set->bias[i].bias > 0)
            return false;
    return s->n_distinct == 0 ||
           (set->repetition_penalty >= 1.0F && set->presence_penalty >= 0 &&
            set->frequency_penalty >= 0);
}

/* What change_row() makes of one logit. */
static float changed_value(const struct td_sampler *s, int32_t id, float x)
{
    const struct td_sampling *set = &s->set;
    for (size_t i = 0; i < set->n_bias; i++)
        if (set->bias[i].id == id)
            x += set->bias[i].bias;
    if (s->seen[id])
        x = penalised(set, x, s->seen[id]);
    if (too_early(s) &&
        (has_id(set->stop_ids, set->n_stop_ids, id) ||
         (!set->ignore_eos && has_id(set->eos_ids, set->n_eos_ids, id))))
        x = -INFINITY;
    return x;
}

/* The keys of the candidates in order, changed as the sampler says. Those up to the
 * returned number are certain: no other id of the row can come before them. */
static size_t certain_keys(const struct td_sampler *s, struct td_sample_work *w,
                           const struct td_candidates *c, uint64_t *last)
{
    size_t n = 0, certain = 0;
    bool changed = changes_row(s), all = false;
    for (int32_t i = 0; i < TD_CANDIDATES && !all; i++) {
        all = c->id[i] < 0;
        float x = all       ? -INFINITY
                  : changed ? changed_value(s, c->id[i], c->logit[i])
                            : c->logit[i];
        if (x > -INFINITY)
            w->keys[n++] = td_key(x, c->id[i]);
    }
    td_key_sort(w->keys, n, n);
    *last = all ? 0 : td_key(c->logit[TD_CANDIDATES - 1], c->id[TD_CANDIDATES - 1]);
    while (certain < n && w->keys[certain] >= *last)
        certain++;
    return certain;
}

/* The id that choose() finds in the row, -1: the candidates do not tell. */
static int32_t choose_best(const struct td_sampler *s, struct td_sample_work *w,
                           const struct td_candidates *c, int64_t position)
{
    const struct td_sampling *set = &s->set;
    uint64_t last;
    size_t n = certain_keys(s, w, c, &last);
    if (n == 0)
        return -1;
    if (set->temperature < GREEDY_BELOW || set->top_k == 1)
        return td_key_id(w->keys[0]);
    struct td_scale scale = {td_key_value(w->keys[0]), 1.0F / set->temperature};
    size_t wanted = set->top_k > 0 ? (size_t)set->top_k : SIZE_MAX;
    bool enough = n >= wanted || (last == 0 && wanted < SIZE_MAX);
    if (set->min_p > 0) {
        float floor = scale.max + logf(set->min_p) / scale.inv_temperature;
        enough = enough || last == 0 || td_key_value(last) < floor;
        while (n > 0 && td_key_value(w->keys[n - 1]) < floor)
            n--;
    }
    if (!enough)
        return -1;
    return draw_best(set, w, TD_MIN(n, wanted), &scale,
                     td_draw_uniform(set->seed, set->choice, position));
}

/* As describe(), for an id that is among the candidates. */
static void describe_best(struct td_sample_work *w, const struct td_candidates *c,
                          int32_t logprobs, struct td_sampled *out)
{
    double norm = (double)c->max + log((double)c->sum);
    out->n_top = TD_MIN(logprobs, w->vocab);
    out->top = w->top;
    for (int32_t i = 0; i < TD_CANDIDATES && c->id[i] >= 0; i++) {
        float logprob = (float)((double)c->logit[i] - norm);
        if (i < out->n_top)
            w->top[i] = (struct td_logprob){c->id[i], logprob};
        if (c->id[i] == out->id) {
            out->logprob = logprob;
            out->rank = i + 1;
        }
    }
}

void td_candidates_merge(const struct td_candidates *parts, size_t n, size_t step,
                         struct td_candidates *out)
{
    int32_t at[TD_MAX_RANKS] = {0};
    double sum = 0;
    out->max = -INFINITY;
    for (size_t p = 0; p < n; p++)
        out->max = TD_MAX(out->max, parts[p * step].max);
    for (size_t p = 0; p < n; p++) {
        const struct td_candidates *c = &parts[p * step];
        /* a part without ids, or with NAN, which stays */
        if (c->sum > 0 || isnan(c->sum))
            sum += (double)c->sum * exp((double)c->max - (double)out->max);
    }
    out->sum = (float)sum;
    for (int32_t i = 0; i < TD_CANDIDATES; i++) {
        size_t best = n;
        for (size_t p = 0; p < n; p++) {
            if (at[p] == TD_CANDIDATES || parts[p * step].id[at[p]] < 0)
                continue; /* ids rise with the parts: the first of equals wins */
            if (best == n ||
                parts[p * step].logit[at[p]] > parts[best * step].logit[at[best]])
                best = p;
        }
        out->id[i] = best < n ? parts[best * step].id[at[best]] : -1;
        out->logit[i] = best < n ? parts[best * step].logit[at[best]++] : -INFINITY;
    }
}

bool td_sample_best(const struct td_sampler *s, struct td_sample_work *w,
                    const struct td_candidates *c, int64_t position,
                    struct td_sampled *out)
{
    if (isnan(c->sum) || !only_lowers(s))
        return false;
    int32_t id = choose_best(s, w, c, position);
    if (id < 0)
        return false;
    memset(out, 0, sizeof(*out));
    out->id = id;
    out->stop = td_sampler_stop(s, id);
    if (s->set.logprobs >= 0)
        describe_best(w, c, s->set.logprobs, out);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sequence at a time. See generate.h.
 */
#include "engine/generate.h"

#include "base/clock.h"
#include "base/mem.h"

struct td_generator {
    struct td_engine *engine;
    struct td_engine_info info;
    struct td_sampler sampler;
    struct td_sample_work work;
    int32_t *blocks; /* [n_blocks] 0, 1, 2, ... */
    int32_t vocab;
};

enum td_status td_generator_new(struct td_engine *e, int32_t vocab,
                                struct td_generator **out, struct td_error *err)
{
    struct td_generator *g = td_calloc(1, sizeof(*g));
    if (!g)
        return td_error_set(err, TD_E_NOMEM, "no memory for a generator");
    g->engine = e;
    td_engine_info(e, &g->info);
    g->vocab = TD_MIN(vocab, g->info.config->vocab);
    g->blocks = td_calloc((size_t)g->info.n_blocks, sizeof(*g->blocks));
    enum td_status s =
        g->blocks ? td_sampler_init(&g->sampler, g->vocab, g->info.max_len, err)
                  : td_error_set(err, TD_E_NOMEM, "no memory for a generator");
    if (s == TD_OK)
        s = td_sample_work_init(&g->work, g->vocab, err);
    if (s != TD_OK) {
        td_generator_free(g);
        return s;
    }
    for (int32_t i = 0; i < g->info.n_blocks; i++)
        g->blocks[i] = i;
    *out = g;
    return TD_OK;
}

void td_generator_free(struct td_generator *g)
{
    if (!g)
        return;
    td_sampler_release(&g->sampler);
    td_sample_work_release(&g->work);
    td_free(g->blocks);
    td_free(g);
}

static bool is_cancelled(const struct td_generate_args *a)
{
    return a->cancel && atomic_load(a->cancel);
}

static enum td_status check(const struct td_generator *g,
                            const struct td_generate_args *a, struct td_error *err)
{
    if (a->n_prompt < 1)
        return td_error_set(err, TD_E_INPUT, "the prompt is empty");
    if (a->n_prompt >= g->info.max_len) {
        td_error_set(err, TD_E_INPUT, "the prompt has %d tokens", a->n_prompt);
        td_error_why(err, "the context holds %d, answer included", g->info.max_len);
        if (g->info.plan.most_len > g->info.max_len)
            td_error_fix(err, "shorten it, or give --max-model-len up to %d",
                         g->info.plan.most_len);
        else if (g->info.max_len >= g->info.config->max_positions)
            td_error_fix(err, "shorten it: the model was made for no more");
        else
            td_error_fix(err, "shorten it: no longer context fits into memory");
        return TD_E_INPUT;
    }
    for (int32_t i = 0; i < a->n_prompt; i++)
        if (a->prompt[i] < 0 || a->prompt[i] >= g->info.config->vocab)
            return td_error_set(err, TD_E_INPUT, "prompt token %d is %d, outside 0..%d",
                                i, a->prompt[i], g->info.config->vocab - 1);
    return td_sampling_check(&a->sampling, g->vocab, err);
}

/* Runs rows at start .. start + n; logits of the last one. */
static enum td_status step(struct td_generator *g, const int32_t *ids, int32_t n,
                           int32_t start, bool decode, bool wants, struct td_error *err)
{
    struct td_seq_rows rows = {.ids = ids,
                               .n = n,
                               .start = start,
                               .decode = decode,
                               .blocks = g->blocks,
                               .n_blocks = g->info.n_blocks,
                               .n_out = wants ? 1 : 0};
    return td_engine_forward(g->engine, &rows, 1, err);
}

/* *done says how far it got when it was cancelled. */
static enum td_status prefill(struct td_generator *g, const struct td_generate_args *a,
                              int32_t *done, struct td_error *err)
{
    enum td_status s = TD_OK;
    int32_t piece = g->info.max_rows / TD_CHUNK * TD_CHUNK;
    for (*done = 0; *done < a->n_prompt && s == TD_OK && !is_cancelled(a);) {
        int32_t n = TD_MIN(piece, a->n_prompt - *done);
        s = step(g, a->prompt + *done, n, *done, false, *done + n == a->n_prompt, err);
        *done += n;
    }
    return s;
}

static enum td_status decode(struct td_generator *g, const struct td_generate_args *a,
                             struct td_generated *out, struct td_error *err)
{
    struct td_sampled token = {0};
    int32_t room = g->info.max_len - a->n_prompt;
    int32_t limit = a->max_tokens ? TD_MIN(a->max_tokens, room) : room;
    double first = 0;
    enum td_status s = TD_OK;
    for (int32_t at = a->n_prompt; s == TD_OK; at++) {
        s = td_engine_sample(g->engine, 0, &g->sampler, &g->work, at, &token, err);
        if (s != TD_OK)
            break;
        if (first == 0)
            first = td_clock_now();
        if (token.stop != TD_STOP_NONE) {
            out->finish = TD_FINISH_STOP;
            out->stop_id = token.id;
            break;
        }
        out->n_tokens++;
        if (!a->on_token(a->self, &token) || is_cancelled(a)) {
            out->finish = TD_FINISH_CANCELLED;
            break;
        }
        if (out->n_tokens == limit)
            break;
        s = td_sampler_add(&g->sampler, token.id);
        if (s == TD_OK)
            s = step(g, &token.id, 1, at, true, true, err);
    }
    out->decode = first > 0 ? td_clock_now() - first : 0;
    out->prefill += first;
    return s;
}

enum td_status td_generate(struct td_generator *g, const struct td_generate_args *args,
                           struct td_generated *out, struct td_error *err)
{
    double start = td_clock_now();
    int32_t done = 0;
    enum td_status s = check(g, args, err);
    if (s == TD_OK)
        s = td_sampler_begin(&g->sampler, &args->sampling, args->prompt,
                             (size_t)args->n_prompt, NULL, 0, err);
    if (s != TD_OK)
        return s;
    *out =
        (struct td_generated){.finish = TD_FINISH_LENGTH, .n_prompt = args->n_prompt};
    s = prefill(g, args, &done, err);
    if (s != TD_OK)
        return s;
    if (done < args->n_prompt) {
        out->finish = TD_FINISH_CANCELLED;
        return TD_OK;
    }
    out->prefill = -start;
    return decode(g, args, out, err);
}

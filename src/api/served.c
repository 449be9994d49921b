/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the front knows of the model. See served.h.
 */
#include "api/served.h"

#include <string.h>

enum td_status td_served_open(struct td_served *m, const char *dir, const char *name,
                              struct td_error *err)
{
    struct td_generation_defaults d;
    memset(m, 0, sizeof(*m));
    m->name = name;
    m->think_open = m->think_close = m->message_end = -1;
    td_sampling_default(&m->sampling);
    enum td_status s = td_model_arg_check(dir, err);
    if (s == TD_OK)
        s = td_config_read(dir, &m->config, err);
    if (s == TD_OK)
        s = td_generation_defaults_read(dir, &m->config, &d, err);
    if (s != TD_OK)
        return s;
    m->sampling.temperature = d.do_sample ? (float)d.temperature : 0;
    m->sampling.top_k = d.top_k;
    m->sampling.top_p = (float)d.top_p;
    m->sampling.min_p = (float)d.min_p;
    m->sampling.repetition_penalty = (float)d.repetition_penalty;
    for (int i = 0; i < d.n_eos; i++)
        m->eos[i] = d.eos[i];
    m->sampling.n_eos_ids = (size_t)d.n_eos;
    m->sampling.eos_ids = m->eos;
    return TD_OK;
}

static int32_t find(const struct td_served *m, const char *text)
{
    return td_tokenizer_find(m->tokenizer, text, strlen(text));
}

/* The tokenizer's own end counts too. */
static void add_eos(struct td_served *m, int32_t id)
{
    size_t n = m->sampling.n_eos_ids;
    for (size_t i = 0; i < n; i++)
        if (m->eos[i] == id)
            return;
    if (id < 0 || n == TD_MAX_STOP_IDS)
        return;
    m->eos[n] = id;
    m->sampling.n_eos_ids++;
}

/* Tokens of the context times bytes of the longest token. */
static size_t longest_text(const struct td_served *m)
{
    size_t longest = 1, n;
    for (int32_t id = 0; id < m->vocab; id++)
        if (td_tokenizer_token(m->tokenizer, id, &n))
            longest = TD_MAX(longest, n);
    return (size_t)m->config.max_positions * longest;
}

enum td_status td_served_load(struct td_served *m, const char *dir,
                              struct td_error *err)
{
    struct td_error none;
    enum td_status s = td_tokenizer_load(dir, &m->tokenizer, err);
    if (s != TD_OK)
        return s;
    td_error_init(&none);
    s = td_template_load(dir, &m->template, &none);
    if (s != TD_OK && s != TD_E_NOT_FOUND) {
        *err = none;
        return s;
    }
    size_t known = td_tokenizer_size(m->tokenizer);
    m->vocab = (int32_t)TD_MIN(known, (size_t)m->config.vocab);
    m->think_open = find(m, "<think>");
    m->think_close = find(m, "</think>");
    m->message_end = find(m, "<|im_end|>");
    m->max_text = longest_text(m);
    add_eos(m, td_tokenizer_eos(m->tokenizer));
    return TD_OK;
}

void td_served_release(struct td_served *m)
{
    td_tokenizer_free(m->tokenizer);
    td_template_free(m->template);
}

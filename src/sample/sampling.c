/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may ask of the sampler: neutral settings, ranges, a seed when it names
 * none. See sample.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "sample/sample.h"

#include "base/clock.h"
#include "base/compiler.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const struct range {
    const char *name;
    size_t at; /* of a float in struct td_sampling */
    double lo, hi;
    bool above; /* lo itself is not allowed */
} ranges[] = {
    {"temperature", offsetof(struct td_sampling, temperature), 0, 2, false},
    {"top_p", offsetof(struct td_sampling, top_p), 0, 1, true},
    {"min_p", offsetof(struct td_sampling, min_p), 0, 1, false},
    {"repetition_penalty", offsetof(struct td_sampling, repetition_penalty), 0.01, 100,
     false},
    {"presence_penalty", offsetof(struct td_sampling, presence_penalty), -2, 2, false},
    {"frequency_penalty", offsetof(struct td_sampling, frequency_penalty), -2, 2,
     false},
};

static float *field(struct td_sampling *s, const struct range *r)
{
    return (float *)(void *)((char *)s + r->at);
}

static bool in_range(const struct range *r, double v)
{
    /* as floats: 0.01 as a float lies below 0.01 */
    float f = (float)v, lo = (float)r->lo;
    return f <= (float)r->hi && (r->above ? f > lo : f >= lo);
}

void td_sampling_default(struct td_sampling *s)
{
    memset(s, 0, sizeof(*s));
    s->temperature = 1;
    s->top_p = 1;
    s->repetition_penalty = 1;
    s->logprobs = -1;
}

/* ---- ranges ------------------------------------------------------------------------- */

static enum td_status check_count(const char *name, size_t n, size_t max,
                                  struct td_error *err)
{
    if (n <= max)
        return TD_OK;
    return td_error_set(err, TD_E_INPUT, "%s has %zu entries, expected at most %zu",
                        name, n, max);
}

static enum td_status check_int(const char *name, int64_t v, int64_t lo, int64_t hi,
                                struct td_error *err)
{
    if (v >= lo && v <= hi)
        return TD_OK;
    return td_error_set(err, TD_E_INPUT, "%s is %lld, expected %lld to %lld", name,
                        (long long)v, (long long)lo, (long long)hi);
}

static enum td_status check_id(const char *name, int32_t id, int32_t vocab,
                               struct td_error *err)
{
    if (id >= 0 && id < vocab)
        return TD_OK;
    td_error_set(err, TD_E_INPUT, "%s names id %ld", name, (long)id);
    td_error_why(err, "the tokenizer's ids are 0 to %ld", (long)vocab - 1);
    return TD_E_INPUT;
}

static enum td_status check_bias(const struct td_sampling *s, int32_t vocab,
                                 struct td_error *err)
{
    enum td_status st = check_count("logit_bias", s->n_bias, TD_MAX_LOGIT_BIAS, err);
    for (size_t i = 0; i < s->n_bias && st == TD_OK; i++) {
        double bias = (double)s->bias[i].bias;
        st = check_id("logit_bias", s->bias[i].id, vocab, err);
        if (st == TD_OK && !(bias >= -100 && bias <= 100))
            st = td_error_set(err, TD_E_INPUT,
                              "logit_bias of id %ld is %g, expected -100 to 100",
                              (long)s->bias[i].id, bias);
    }
    return st;
}

static enum td_status check_stops(const struct td_sampling *s, int32_t vocab,
                                  struct td_error *err)
{
    enum td_status st = check_count("eos_token_id", s->n_eos_ids, TD_MAX_STOP_IDS, err);
    if (st == TD_OK)
        st = check_count("stop_token_ids", s->n_stop_ids, TD_MAX_STOP_IDS, err);
    for (size_t i = 0; i < s->n_stop_ids && st == TD_OK; i++)
        st = check_id("stop_token_ids", s->stop_ids[i], vocab, err);
    return st;
}

enum td_status td_sampling_check(const struct td_sampling *s, int32_t vocab,
                                 struct td_error *err)
{
    struct td_sampling copy = *s;
    for (size_t i = 0; i < TD_COUNT(ranges); i++) {
        double v = (double)*field(&copy, &ranges[i]);
        if (!in_range(&ranges[i], v))
            return td_error_set(err, TD_E_INPUT, "%s is %g, expected %s%g to %g",
                                ranges[i].name, v, ranges[i].above ? "above " : "",
                                ranges[i].lo, ranges[i].hi);
    }
    enum td_status st = check_int("top_k", s->top_k, -1, INT32_MAX, err);
    if (st == TD_OK)
        st = check_int("logprobs", s->logprobs, -1, TD_MAX_LOGPROBS, err);
    if (st == TD_OK)
        st = check_int("min_tokens", s->min_tokens, 0, INT32_MAX, err);
    if (st == TD_OK)
        st = check_bias(s, vocab, err);
    if (st == TD_OK)
        st = check_stops(s, vocab, err);
    return st;
}

/* ---- seeds ------------------------------------------------------------------------ */

uint64_t td_seed_fresh(void)
{
    uint64_t seed = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, &seed, sizeof(seed)) : -1;
    if (fd >= 0)
        (void)close(fd);
    if (n != (ssize_t)sizeof(seed))
        seed = (uint64_t)td_clock_ns() * 0x9E3779B97F4A7C15ULL ^ (uint64_t)getpid();
    return seed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The room's front: life of the object, the catalogue's look-ups. See explain.h.
 */
#include "explain/explain.h"

#include "explain/explain_int.h"

#include "base/limits.h"
#include "base/mem.h"

#include <string.h>

size_t td_rule_count(void)
{
    static size_t count; /* the tables never change */
    if (count == 0) {
        size_t n = 0;
        for (const struct td_rule_set *s = td_rule_sets; s->rules; s++)
            n += *s->count;
        count = n;
    }
    return count;
}

const struct td_rule *td_rule_at(size_t i)
{
    const struct td_rule_set *s = td_rule_sets;
    while (i >= *s->count) {
        i -= *s->count;
        s++;
    }
    return &s->rules[i];
}

const struct td_kind *td_kind_find(const char *slug)
{
    for (const struct td_kind_set *s = td_kind_sets; s->kinds; s++)
        for (size_t i = 0; i < *s->count; i++)
            if (strcmp(s->kinds[i].slug, slug) == 0)
                return &s->kinds[i];
    return NULL;
}

const char *td_step_name(enum td_step step)
{
    static const char *const names[TD_STEP_COUNT] = {
        "start", "config", "cluster", "rendezvous", "communicator", "communicator-done",
        "load",  "loaded", "profile", "cache",      "capture",      "captured",
        "ready"};
    return step < TD_STEP_COUNT ? names[step] : names[0];
}

enum td_status td_explain_new(struct td_explain **out, struct td_error *err)
{
    struct td_explain *x = td_calloc(1, sizeof(*x));
    if (!x)
        return td_error_set(err, TD_E_NOMEM, "no memory to read logs");
    td_arena_init(&x->arena, TD_MAX_EXPLAIN_KEEP);
    td_map_init(&x->rule_of);
    td_map_init(&x->stream_of);
    x->last_stream = UINT32_MAX;
    x->verdict.unknown = -1;
    enum td_status s = td_matcher_new(&x->matcher, err);
    x->rule_counts = td_calloc(td_rule_count(), sizeof(*x->rule_counts));
    x->seen = td_calloc(TD_MAX_EXPLAIN_SOURCES, sizeof(*x->seen));
    if (s == TD_OK && (!x->rule_counts || !x->seen))
        s = TD_E_NOMEM;
    for (size_t r = 0; s == TD_OK && r < td_rule_count(); r++) {
        const char *id = td_rule_at(r)->id;
        s = td_map_put(&x->rule_of, id, strlen(id), r);
    }
    if (s != TD_OK) {
        td_explain_free(x);
        return td_error_set(err, s, "no memory to read logs");
    }
    *out = x;
    return TD_OK;
}

void td_explain_clear(struct td_explain *x)
{
    td_map_release(&x->stream_of);
    td_arena_release(&x->arena);
    td_arena_init(&x->arena, TD_MAX_EXPLAIN_KEEP);
    x->nsources = x->nstreams = x->nhits = x->nfacts = x->nfailures = x->nseen = 0;
    x->order = 0;
    x->last_stream = UINT32_MAX;
    x->verdict = (struct td_verdict){.unknown = -1};
    if (x->rule_counts)
        memset(x->rule_counts, 0, td_rule_count() * sizeof(*x->rule_counts));
}

void td_explain_free(struct td_explain *x)
{
    if (!x)
        return;
    td_explain_clear(x);
    td_matcher_free(x->matcher);
    td_map_release(&x->rule_of);
    td_free(x->sources);
    td_free(x->streams);
    td_free(x->hits);
    td_free(x->facts);
    td_free(x->failures);
    td_free(x->rule_counts);
    td_free(x->seen);
    td_free(x);
}

enum td_grade td_explain_grade(const struct td_explain *x)
{
    return x->verdict.grade;
}

const char *td_grade_name(enum td_grade grade)
{
    static const char *const names[] = {"not-in-these-files", "possible", "likely",
                                        "certain"};
    return names[grade];
}

const char *td_explain_candidate(const struct td_explain *x, size_t i)
{
    return i < x->verdict.count ? x->verdict.candidates[i].slug : NULL;
}

const char *td_explain_kind(const struct td_explain *x)
{
    return td_explain_candidate(x, 0);
}

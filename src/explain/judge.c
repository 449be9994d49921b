/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From hits to a verdict.
 *
 *  1. Each hit whose second facts hold speaks for its rule's kind, with the rule's weight.
 *  2. A kind's weight is that of its best hit, a little more when other rules agree.
 *  3. Hits of a start that recovered (it got ready afterwards and nothing failed later)
 *     do not count.
 *  4. Kinds that follow from another kind that was seen are followers, not candidates.
 *  5. The heaviest kind is the first cause; among equals the earliest line. Weights are
 *     made so that causes outweigh symptoms, and symptoms outweigh reports of a death.
 *  6. Two certain kinds that do not follow from each other lower the grade to likely.
 */
#include "explain/explain_int.h"

#include "base/mem.h"

#include <string.h>

enum {
    MAX_KINDS = 256,
    CERTAIN = 85,
    LIKELY = 60,
    POSSIBLE = 30,
    AGREE = 3, /* for each further rule that speaks for the same kind */
    LAST_LINES = 3,
    DROP = -1000
};

struct tally {
    const char *slug;
    int weight, rules;
    uint32_t hit;
    uint16_t last_rule;
    bool follower;
};

struct tallies {
    size_t count;
    struct tally of[MAX_KINDS];
};

static enum td_grade grade_of(int weight)
{
    return weight >= CERTAIN    ? TD_GRADE_CERTAIN
           : weight >= LIKELY   ? TD_GRADE_LIKELY
           : weight >= POSSIBLE ? TD_GRADE_POSSIBLE
                                : TD_GRADE_NONE;
}

/* The time of a hit on the first source's clock; -1 when it has none. */
static double hit_time(const struct td_explain *x, const struct td_hit *h)
{
    return h->time < 0 ? -1 : h->time + x->sources[h->source].shift;
}

static bool earlier(const struct td_explain *x, const struct td_hit *a,
                    const struct td_hit *b)
{
    double ta = hit_time(x, a), tb = hit_time(x, b);
    if (a->source != b->source && ta >= 0 && tb >= 0 && (ta < tb || tb < ta))
        return ta < tb;
    return a->order < b->order;
}

/* Marks the sources in which something failed after the start was ready. */
static void mark_late_failures(struct td_explain *x)
{
    for (size_t i = 0; i < x->nhits; i++) {
        const struct td_hit *h = &x->hits[i];
        const struct td_rule *r = td_rule_at(h->rule);
        bool bad = r->role == TD_ROLE_EFFECT ||
                   (r->role == TD_ROLE_CAUSE && r->weight >= POSSIBLE);
        if (h->step == TD_STEP_READY && bad)
            x->sources[h->source].late_failure = true;
    }
}

/* A start that printed "ready" after the hit, and no failure after that. */
static bool recovered(const struct td_explain *x, const struct td_hit *h)
{
    const struct td_source *src = &x->sources[h->source];
    return src->step == TD_STEP_READY && h->step != TD_STEP_READY && !src->late_failure;
}

/* DROP when the hit does not count. */
static int weight_of(const struct td_explain *x, const struct td_hit *h)
{
    const struct td_rule *r = td_rule_at(h->rule);
    if ((r->role != TD_ROLE_CAUSE && r->role != TD_ROLE_EITHER) || !r->kind)
        return DROP;
    if (!td_needs_hold(x, r->needs, h) || recovered(x, h))
        return DROP;
    int more = r->check ? r->check(x, h) : 0;
    return more == DROP ? DROP : TD_MAX(1, r->weight + more);
}

static struct tally *tally_of(struct tallies *t, const char *slug)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->of[i].slug, slug) == 0)
            return &t->of[i];
    if (t->count == MAX_KINDS)
        return NULL;
    t->of[t->count] =
        (struct tally){.slug = slug, .weight = DROP, .last_rule = UINT16_MAX};
    return &t->of[t->count++];
}

/* either: whether rules of lines that good starts print as well take part. */
static void count_hits(struct td_explain *x, struct tallies *t, bool either)
{
    for (size_t i = 0; i < x->nhits; i++) {
        struct td_hit *h = &x->hits[i];
        bool skip = td_rule_at(h->rule)->role == TD_ROLE_EITHER && !either;
        int w = skip ? DROP : weight_of(x, h);
        h->weight = w == DROP ? 0 : w;
        struct tally *k = w == DROP ? NULL : tally_of(t, td_rule_at(h->rule)->kind);
        if (!k)
            continue;
        if (h->rule != k->last_rule)
            k->rules++;
        k->last_rule = h->rule;
        if (w > k->weight || (w == k->weight && earlier(x, h, &x->hits[k->hit]))) {
            k->weight = w;
            k->hit = (uint32_t)i;
        }
    }
    /* agreement strengthens, but does not lift over the border of a grade */
    for (size_t i = 0; i < t->count; i++) {
        struct tally *k = &t->of[i];
        int top = k->weight >= CERTAIN    ? 100
                  : k->weight >= LIKELY   ? CERTAIN - 1
                  : k->weight >= POSSIBLE ? LIKELY - 1
                                          : POSSIBLE - 1;
        k->weight = TD_MIN(k->weight + AGREE * TD_MIN(k->rules - 1, 2), top);
    }
}

static bool lists(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; p && *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (strcspn(p, " ") == n && memcmp(p, word, n) == 0)
            return true;
    return false;
}

static void mark_followers(struct tallies *t)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct td_kind *kind = td_kind_find(t->of[i].slug);
        if (!kind || !kind->over || t->of[i].weight < POSSIBLE)
            continue;
        for (size_t k = 0; k < t->count; k++)
            if (k != i && lists(kind->over, t->of[k].slug) &&
                t->of[k].weight <= t->of[i].weight + 10)
                t->of[k].follower = true;
    }
}

/* An error among the last lines of a file: what an uncaught exception leaves behind. */
static bool ends_with_error(const struct td_explain *x, const struct td_hit *h)
{
    return strncmp(td_rule_at(h->rule)->id, "generic/exception", 17) == 0 &&
           h->line + LAST_LINES >= x->sources[h->source].lines && !recovered(x, h);
}

static bool speaks_of_failure(const struct td_explain *x, const struct tallies *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->of[i].weight >= POSSIBLE)
            return true;
    for (size_t i = 0; i < x->nhits; i++)
        if (td_rule_at(x->hits[i].rule)->role == TD_ROLE_EFFECT &&
            !recovered(x, &x->hits[i]))
            return true;
    for (size_t i = 0; i < x->nhits; i++)
        if (ends_with_error(x, &x->hits[i]))
            return true;
    return x->nfailures > 0;
}

static void add_candidate(struct td_verdict *v, const struct td_candidate *c)
{
    size_t at = v->count;
    while (at > 0 && v->candidates[at - 1].weight < c->weight)
        at--;
    if (at == TD_MAX_CANDIDATES)
        return;
    if (v->count < TD_MAX_CANDIDATES)
        v->count++;
    for (size_t i = v->count - 1; i > at; i--)
        v->candidates[i] = v->candidates[i - 1];
    v->candidates[at] = *c;
}

static void add_own_failure(const struct td_explain *x, struct td_verdict *v)
{
    bool certain;
    const struct td_failure *f = td_events_first(x, &certain);
    if (!f)
        return;
    int weight = certain ? 97 : 45;
    add_candidate(v, &(struct td_candidate){.slug = f->code,
                                            .weight = weight,
                                            .failure = f,
                                            .grade = grade_of(weight)});
}

/* The next tally to take: heaviest, then earliest. NULL when all are taken. */
static struct tally *next_tally(const struct td_explain *x, struct tallies *t,
                                int floor)
{
    struct tally *best = NULL;
    for (size_t i = 0; i < t->count; i++) {
        struct tally *k = &t->of[i];
        if (k->follower || k->weight < floor)
            continue;
        if (!best || k->weight > best->weight ||
            (k->weight == best->weight &&
             earlier(x, &x->hits[k->hit], &x->hits[best->hit])))
            best = k;
    }
    return best;
}

static void rank_candidates(struct td_explain *x, struct tallies *t)
{
    struct td_verdict *v = &x->verdict;
    add_own_failure(x, v);
    int floor = v->failed ? 1 : POSSIBLE;
    for (int i = 0; i < TD_MAX_CANDIDATES; i++) {
        struct tally *k = next_tally(x, t, floor);
        if (!k)
            break;
        k->follower = true; /* taken */
        add_candidate(v, &(struct td_candidate){.slug = k->slug,
                                                .kind = td_kind_find(k->slug),
                                                .weight = k->weight,
                                                .hit = k->hit,
                                                .grade = grade_of(k->weight)});
    }
    if (v->count == 0)
        return;
    bool conflict = v->count > 1 && v->candidates[1].grade == TD_GRADE_CERTAIN &&
                    !v->candidates[0].failure;
    if (conflict)
        v->candidates[0].grade = v->candidates[1].grade = TD_GRADE_LIKELY;
    v->grade = v->candidates[0].grade;
    /* candidates far behind the first do not help the reader */
    while (v->count > 1 && v->candidates[0].weight >= LIKELY &&
           v->candidates[v->count - 1].weight + 35 < v->candidates[0].weight)
        v->count--;
}

/* The earliest error line that no other rule said anything about. */
static void find_unknown(struct td_explain *x)
{
    x->verdict.unknown = -1;
    for (size_t i = 0; i < x->nhits; i++) {
        const struct td_hit *h = &x->hits[i];
        if (strncmp(td_rule_at(h->rule)->id, "generic/", 8) != 0 || recovered(x, h))
            continue;
        bool known = false;
        for (size_t k = 0; k < x->nhits && !known; k++)
            known = k != i && x->hits[k].source == h->source &&
                    x->hits[k].line == h->line &&
                    strncmp(td_rule_at(x->hits[k].rule)->id, "generic/", 8) != 0;
        if (!known &&
            (x->verdict.unknown < 0 || earlier(x, h, &x->hits[x->verdict.unknown])))
            x->verdict.unknown = (int32_t)i;
    }
}

/* Hosts' clocks differ; a record that both sides print at the same moment (the same
 * communicator's init, told by its id) gives the difference. */
static void align_clocks(struct td_explain *x)
{
    for (size_t i = 0; i < x->nhits; i++) {
        const struct td_hit *a = &x->hits[i];
        if (td_rule_at(a->rule)->role != TD_ROLE_PHASE || !*a->caps[0] || a->time < 0)
            continue;
        for (size_t k = 0; k < i; k++) {
            const struct td_hit *b = &x->hits[k];
            struct td_source *src = &x->sources[a->source];
            if (b->rule != a->rule || b->source >= a->source || b->time < 0 ||
                strcmp(a->caps[0], b->caps[0]) != 0)
                continue;
            if (src->shift == 0.0)
                src->shift = hit_time(x, b) - a->time;
        }
    }
}

enum td_status td_explain_judge(struct td_explain *x, struct td_error *err)
{
    struct tallies *t = td_calloc(1, sizeof(*t));
    if (!t)
        return td_error_set(err, TD_E_NOMEM, "no memory to weigh the lines");
    mark_late_failures(x);
    align_clocks(x);
    count_hits(x, t, false);
    x->verdict.failed = speaks_of_failure(x, t);
    if (x->verdict.failed) {
        t->count = 0;
        count_hits(x, t, true);
    }
    mark_followers(t);
    for (size_t i = 0; i < x->nsources; i++)
        x->verdict.ready = x->verdict.ready || x->sources[i].step == TD_STEP_READY;
    rank_candidates(x, t);
    find_unknown(x);
    td_free(t);
    return TD_OK;
}

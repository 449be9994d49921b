/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine form of a verdict:
 *
 *     {"kind", "grade", "family", "cause", "host", "rank", "phase",
 *      "evidence": [{"file", "line", "text"}], "followers": [{"what", "file", "line"}],
 *      "candidates": [{"kind", "grade", "cause", "file", "line"}], "fix", "missing",
 *      "timeline": [{"seconds", "host", "rank", "what", "file", "line", "text"}]}
 *
 * Absent things are null or empty lists; the keys are always there, but for the timeline,
 * which has to be asked for.
 */
#include "explain/explain_int.h"

#include "base/json.h"
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { LIST_MAX = 16, PART_BYTES = 4096 };

static void add_str(struct td_buf *out, const char *key, const char *value)
{
    td_buf_addf(out, ",\"%s\":", key);
    if (value && *value)
        td_json_add_string(out, value, strlen(value));
    else
        td_buf_adds(out, "null");
}

static void add_place(const struct td_explain *x, uint32_t source, uint64_t line,
                      struct td_buf *out)
{
    const char *name = x->sources[source].name;
    td_buf_adds(out, "\"file\":");
    td_json_add_string(out, name, strlen(name));
    td_buf_addf(out, ",\"line\":%" PRIu64, line);
}

static void add_line(const struct td_explain *x, uint32_t source, uint64_t line,
                     const char *text, bool first, struct td_buf *out)
{
    td_buf_adds(out, first ? "{" : ",{");
    add_place(x, source, line, out);
    td_buf_adds(out, ",\"text\":");
    td_json_add_string(out, text, strlen(text));
    td_buf_addc(out, '}');
}

static void add_evidence(const struct td_explain *x, struct td_buf *out)
{
    const struct td_verdict *v = &x->verdict;
    td_buf_adds(out, ",\"evidence\":[");
    if (v->count) {
        const struct td_candidate *c = &v->candidates[0];
        const struct td_hit *h = td_report_hit(x, c);
        if (c->failure)
            add_line(x, c->failure->source, c->failure->line, c->failure->text, true,
                     out);
        else
            add_line(x, h->source, h->line, h->text, true, out);
        uint32_t more[LIST_MAX];
        size_t n = td_report_others(x, TD_OTHER_EVIDENCE, more, LIST_MAX);
        for (size_t i = 0; i < n; i++)
            add_line(x, x->hits[more[i]].source, x->hits[more[i]].line,
                     x->hits[more[i]].text, false, out);
    } else if (v->unknown >= 0) {
        const struct td_hit *h = &x->hits[v->unknown];
        add_line(x, h->source, h->line, h->text, true, out);
    }
    td_buf_addc(out, ']');
}

static void add_followers(const struct td_explain *x, struct td_buf *out)
{
    uint32_t list[LIST_MAX];
    size_t n = td_report_others(x, TD_OTHER_FOLLOWED, list, LIST_MAX);
    td_buf_adds(out, ",\"followers\":[");
    for (size_t i = 0; i < n && x->verdict.failed; i++) {
        const struct td_hit *h = &x->hits[list[i]];
        const struct td_rule *r = td_rule_at(h->rule);
        td_buf_adds(out, i ? ",{\"what\":" : "{\"what\":");
        const char *what = r->kind ? r->kind : r->says ? r->says : r->id;
        td_json_add_string(out, what, strlen(what));
        td_buf_addc(out, ',');
        add_place(x, h->source, h->line, out);
        td_buf_addf(out, ",\"count\":%" PRIu32 "}", x->rule_counts[h->rule].seen);
    }
    td_buf_addc(out, ']');
}

static void add_candidates(const struct td_explain *x, struct td_buf *part,
                           struct td_buf *out)
{
    td_buf_adds(out, ",\"candidates\":[");
    for (size_t i = 0; i < x->verdict.count; i++) {
        const struct td_candidate *c = &x->verdict.candidates[i];
        const struct td_hit *h = td_report_hit(x, c);
        td_buf_adds(out, i ? ",{\"kind\":" : "{\"kind\":");
        td_json_add_string(out, c->slug, strlen(c->slug));
        add_str(out, "grade", td_grade_name(c->grade));
        td_buf_clear(part);
        td_report_cause(x, c, part);
        add_str(out, "cause", part->p);
        td_buf_addc(out, ',');
        assert(h || c->failure);
        if (h)
            add_place(x, h->source, h->line, out);
        else
            add_place(x, c->failure->source, c->failure->line, out);
        td_buf_addc(out, '}');
    }
    td_buf_addc(out, ']');
}

static void add_rank(struct td_buf *out, int rank)
{
    if (rank >= 0)
        td_buf_addf(out, ",\"rank\":%d", rank);
    else
        td_buf_adds(out, ",\"rank\":null");
}

static void add_moment(const struct td_explain *x, const struct td_moment *m,
                       double zero, struct td_buf *out)
{
    const struct td_hit *h = &x->hits[m->hit];
    enum td_role role = td_rule_at(h->rule)->role;
    if (m->time >= 0)
        td_buf_addf(out, "{\"seconds\":%.3f", m->time - zero);
    else
        td_buf_adds(out, "{\"seconds\":null");
    add_str(out, "host", td_moment_host(x, h));
    add_rank(out, h->rank);
    add_str(out, "what",
            role == TD_ROLE_CAUSE    ? "failure"
            : role == TD_ROLE_EFFECT ? "effect"
                                     : "step");
    td_buf_addc(out, ',');
    add_place(x, h->source, h->line, out);
    add_str(out, "text", h->text);
    td_buf_addc(out, '}');
}

static enum td_status add_timeline(const struct td_explain *x, struct td_buf *out)
{
    struct td_moment *list;
    size_t n;
    double zero;
    enum td_status s = td_moments(x, &list, &n, &zero);
    if (s != TD_OK)
        return s;
    td_buf_adds(out, ",\"timeline\":[");
    for (size_t i = 0; i < n && i < TD_MOMENTS_MAX; i++) {
        td_buf_adds(out, i ? "," : "");
        add_moment(x, &list[i], zero, out);
    }
    td_buf_addc(out, ']');
    td_free(list);
    return TD_OK;
}

enum td_status td_explain_json(const struct td_explain *x, bool all, struct td_buf *out)
{
    const struct td_verdict *v = &x->verdict;
    const struct td_candidate *c = v->count ? &v->candidates[0] : NULL;
    struct td_buf part;
    td_buf_init(&part, PART_BYTES);
    td_buf_adds(out, "{\"kind\":");
    if (c)
        td_json_add_string(out, c->slug, strlen(c->slug));
    else
        td_buf_adds(out, "null");
    add_str(out, "grade", td_grade_name(v->grade));
    add_str(out, "family", !c ? NULL : c->kind ? c->kind->family : "tandem");
    if (c)
        td_report_cause(x, c, &part);
    add_str(out, "cause", part.p);
    add_str(out, "host", c ? td_report_host(x, c) : NULL);
    add_rank(out, c ? td_report_rank(x, c) : -1);
    td_buf_clear(&part);
    if (c && c->failure)
        td_buf_adds(&part, c->failure->phase);
    else if (c)
        td_buf_adds(&part, td_step_name(x->hits[c->hit].step));
    add_str(out, "phase", part.p);
    add_evidence(x, out);
    add_followers(x, out);
    add_candidates(x, &part, out);
    td_buf_clear(&part);
    if (c)
        td_report_fix(x, c, &part);
    add_str(out, "fix", part.p);
    td_buf_clear(&part);
    td_report_missing(x, c, &part);
    add_str(out, "missing", part.p);
    td_buf_release(&part);
    enum td_status s = all ? add_timeline(x, out) : TD_OK;
    td_buf_adds(out, "}\n");
    return s == TD_OK ? out->status : s;
}

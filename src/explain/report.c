/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report, and the parts of it that the machine form shares.
 */
#define _POSIX_C_SOURCE 200809L
#include "explain/explain_int.h"

#include "base/limits.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

enum {
    INDENT = 10,
    PARTS_MAX = 12, /* lines of one section */
    PART_BYTES = 4096,
    HINT = 30,   /* weight below which a line is a mere hint */
    MENTION = 8, /* weight below which a hint is left to the machine form */
    QUOTE = 90   /* columns of a quoted line on narrow output */
};

const struct td_hit *td_report_hit(const struct td_explain *x,
                                   const struct td_candidate *c)
{
    return c->failure ? NULL : &x->hits[c->hit];
}

void td_report_cause(const struct td_explain *x, const struct td_candidate *c,
                     struct td_buf *out)
{
    if (c->failure) {
        td_buf_addf(out, "%s%s%s", c->failure->what, *c->failure->why ? ": " : "",
                    c->failure->why);
        return;
    }
    const struct td_hit *h = &x->hits[c->hit];
    const char *says = td_rule_at(h->rule)->says;
    td_sentence(x, h, says ? says : c->kind ? c->kind->title : c->slug, out);
}

void td_report_fix(const struct td_explain *x, const struct td_candidate *c,
                   struct td_buf *out)
{
    const struct td_hit *h = td_report_hit(x, c);
    if (c->failure) {
        td_buf_adds(out, c->failure->fix);
        return;
    }
    for (size_t i = 0; i < td_remedy_count; i++)
        if (strcmp(td_remedies[i].kind, c->slug) == 0 &&
            td_needs_hold(x, td_remedies[i].needs, h)) {
            td_sentence(x, h, td_remedies[i].fix, out);
            return;
        }
    if (c->kind)
        td_sentence(x, h, c->kind->fix, out);
}

const char *td_report_step(enum td_step step)
{
    static const char *const words[TD_STEP_COUNT] = {
        "before the first known step",
        "after the options were read",
        "after the cluster was reached",
        "during the rendezvous of the ranks",
        "during NCCL communicator initialisation",
        "after NCCL was initialised",
        "while weights were loading",
        "after the weights were loaded",
        "during memory profiling",
        "after cache memory was reserved",
        "during CUDA graph capture",
        "after CUDA graph capture",
        "after the server was ready"};
    return step < TD_STEP_COUNT ? words[step] : words[0];
}

static void report_phase(const struct td_explain *x, const struct td_candidate *c,
                         struct td_buf *out)
{
    if (c->failure) {
        td_buf_addf(out, "in phase %s", c->failure->phase);
        return;
    }
    const struct td_hit *h = &x->hits[c->hit];
    if (h->step == TD_STEP_NONE)
        return;
    td_buf_adds(out, td_report_step(h->step));
    if (h->step == TD_STEP_CAPTURE)
        td_buf_adds(out, ", after the weights were loaded");
    if (h->step >= TD_STEP_CACHE)
        td_sentence(x, h, "[ (${kv_gib} GiB of KV cache reserved)]", out);
}

const char *td_report_host(const struct td_explain *x, const struct td_candidate *c)
{
    if (c->failure)
        return c->failure->host;
    const struct td_hit *h = &x->hits[c->hit];
    int at = td_rule_at(h->rule)->host;
    if (at > 0 && *h->caps[at - 1])
        return h->caps[at - 1];
    return *h->host ? h->host : x->sources[h->source].host;
}

int td_report_rank(const struct td_explain *x, const struct td_candidate *c)
{
    if (c->failure)
        return c->failure->rank;
    const struct td_hit *h = &x->hits[c->hit];
    const char *host = td_report_host(x, c);
    int found = -1;
    if (h->rank >= 0 && strcmp(host, h->host) == 0)
        return h->rank;
    /* the only rank that any process of that host told */
    for (size_t i = 0; i < x->nstreams; i++) {
        const struct td_stream *s = &x->streams[i];
        if (s->rank < 0 || !*s->host || strcmp(s->host, host) != 0)
            continue;
        if (found >= 0 && found != s->rank)
            return h->rank;
        found = s->rank;
    }
    return found >= 0 ? found : h->rank;
}

void td_report_missing(const struct td_explain *x, const struct td_candidate *c,
                       struct td_buf *out)
{
    bool none = !c || c->grade == TD_GRADE_NONE;
    if (c && c->kind && c->kind->missing && c->grade != TD_GRADE_CERTAIN)
        td_sentence(x, td_report_hit(x, c), c->kind->missing, out);
    if (c && c->failure && c->grade != TD_GRADE_CERTAIN)
        td_buf_addf(out, "the event log of the process that %s lost",
                    *c->failure->host ? c->failure->host : "this one");
    if (none && out->len)
        td_buf_adds(out, "; ");
    if (none)
        td_report_needed(x, out);
}

/* Whether another rule takes the same line for a report about a failure. */
static bool reports_a_death(const struct td_explain *x, const struct td_hit *h)
{
    for (size_t i = 0; i < x->nhits; i++)
        if (x->hits[i].source == h->source && x->hits[i].line == h->line &&
            td_rule_at(x->hits[i].rule)->role == TD_ROLE_EFFECT)
            return true;
    return false;
}

static bool tells(const struct td_explain *x, const struct td_hit *h,
                  enum td_other which)
{
    const struct td_rule *r = td_rule_at(h->rule);
    const struct td_verdict *v = &x->verdict;
    const struct td_candidate *best = v->count ? &v->candidates[0] : NULL;
    const struct td_hit *first = best ? td_report_hit(x, best) : NULL;
    bool same = best && r->kind && strcmp(r->kind, best->slug) == 0;
    if (first && first->source == h->source && first->line == h->line)
        return false;
    if (which == TD_OTHER_NOISE)
        return r->role == TD_ROLE_NOISE ||
               (r->role == TD_ROLE_EITHER && r->kind && r->weight < HINT && !same &&
                !reports_a_death(x, h));
    if (which == TD_OTHER_EVIDENCE)
        return same && h->weight > 0;
    return r->role == TD_ROLE_EFFECT ||
           (r->role == TD_ROLE_CAUSE && h->weight >= HINT && !same);
}

size_t td_report_others(const struct td_explain *x, enum td_other which, uint32_t *out,
                        size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < x->nhits && n < max; i++) {
        const struct td_hit *h = &x->hits[i];
        bool again = !tells(x, h, which);
        for (size_t k = 0; k < n && !again; k++) {
            const struct td_hit *o = &x->hits[out[k]];
            again =
                o->rule == h->rule || (o->source == h->source && o->line == h->line);
        }
        if (!again)
            out[n++] = (uint32_t)i;
    }
    return n;
}

/* --- text --- */

struct page {
    const struct td_explain_style *style;
    struct td_buf *out;
};

const char *td_report_file(const struct td_explain *x, uint32_t source)
{
    const char *first = x->sources[0].name;
    size_t common = 0;
    for (size_t i = 0; first[i]; i++)
        common = first[i] == '/' ? i + 1 : common;
    for (size_t s = 1; s < x->nsources; s++) {
        const char *name = x->sources[s].name;
        size_t k = 0;
        for (size_t i = 0; i < common && name[i] == first[i]; i++)
            k = name[i] == '/' ? i + 1 : k;
        common = k;
    }
    return x->sources[source].name + common;
}

/* Columns of a UTF-8 text: one for each character. */
static size_t columns(const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += ((unsigned char)s[i] & 0xc0) != 0x80;
    return k;
}

static void put_label(struct page *p, const char *label, int color)
{
    if (p->style->color && color)
        td_buf_addf(p->out, "\x1b[%dm%s\x1b[0m", color, label);
    else
        td_buf_adds(p->out, label);
    for (size_t i = strlen(label); i < INDENT; i++)
        td_buf_addc(p->out, ' ');
    if (strlen(label) >= INDENT)
        td_buf_adds(p->out, "  ");
}

/* Text from outside: control bytes and broken UTF-8 must not reach a terminal. */
static void put_safe(struct td_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t k = td_utf8_len(s + i, n - i);
        if (k == 0 || (unsigned char)s[i] < ' ' || s[i] == 0x7f) {
            td_buf_addc(out, (unsigned char)s[i] == '\t' ? ' ' : '?');
            i++;
            continue;
        }
        td_buf_add(out, s + i, k);
        i += k;
    }
}

/* Words, wrapped to the page's width with a hanging indent. */
static void put_text(struct page *p, const char *text)
{
    size_t width = p->style->width > 40 ? (size_t)p->style->width - INDENT : 0;
    size_t used = 0;
    for (const char *w = text; *w;) {
        size_t n = strcspn(w, " "), cols = columns(w, n);
        if (used && width && used + 1 + cols > width) {
            td_buf_addf(p->out, "\n%*s", INDENT, "");
            used = 0;
        } else if (used) {
            td_buf_addc(p->out, ' ');
            used++;
        }
        put_safe(p->out, w, n);
        used += cols;
        w += n;
        w += strspn(w, " ");
    }
    td_buf_addc(p->out, '\n');
}

static void put_section(struct page *p, const char *label, int color,
                        const struct td_buf *text)
{
    if (text->len == 0)
        return;
    put_label(p, label, color);
    put_text(p, text->p);
}

static void put_line_of(struct page *p, const char *label, const char *file,
                        uint64_t line, const char *text)
{
    size_t n = strlen(text), room = n;
    put_label(p, label, 0);
    size_t at = p->out->len;
    put_safe(p->out, file, strlen(file));
    td_buf_addf(p->out, ":%" PRIu64 "   ", line);
    if (p->style->width > 40) {
        size_t have = p->out->len - at + INDENT, w = (size_t)p->style->width;
        room = w > have + QUOTE / 2 ? w - have : QUOTE / 2;
    }
    put_safe(p->out, text, TD_MIN(n, room));
    td_buf_adds(p->out, n > room ? "..\n" : "\n");
}

static void put_evidence(const struct td_explain *x, struct page *p)
{
    const struct td_candidate *c = &x->verdict.candidates[0];
    if (c->failure) {
        put_line_of(p, "evidence", td_report_file(x, c->failure->source),
                    c->failure->line, c->failure->text);
        return;
    }
    const struct td_hit *h = &x->hits[c->hit];
    put_line_of(p, "evidence", td_report_file(x, h->source), h->line, h->text);
    uint32_t more[3];
    size_t n = td_report_others(x, TD_OTHER_EVIDENCE, more, TD_COUNT(more));
    for (size_t i = 0; i < n; i++) {
        h = &x->hits[more[i]];
        put_line_of(p, "", td_report_file(x, h->source), h->line, h->text);
    }
}

static void put_followed(const struct td_explain *x, struct page *p)
{
    uint32_t list[PARTS_MAX];
    struct td_buf b;
    td_buf_init(&b, PART_BYTES);
    size_t n = td_report_others(x, TD_OTHER_FOLLOWED, list, TD_COUNT(list));
    for (size_t i = 0; i < n; i++) {
        const struct td_hit *h = &x->hits[list[i]];
        const struct td_rule *r = td_rule_at(h->rule);
        const struct td_kind *k = r->kind ? td_kind_find(r->kind) : NULL;
        td_buf_adds(&b, i ? " \xc2\xb7 " : "");
        if (r->role == TD_ROLE_EFFECT && r->says)
            td_sentence(x, h, r->says, &b);
        else
            td_buf_adds(&b, k ? k->title : r->id);
        td_buf_addf(&b, " (%s:%" PRIu64, td_report_file(x, h->source), h->line);
        if (x->rule_counts[h->rule].seen > 1)
            td_buf_addf(&b, ", %" PRIu32 " times", x->rule_counts[h->rule].seen);
        td_buf_addc(&b, ')');
    }
    put_section(p, "followed", 0, &b);
    td_buf_release(&b);
}

static void put_noise(const struct td_explain *x, struct page *p)
{
    uint32_t list[4];
    size_t n = td_report_others(x, TD_OTHER_NOISE, list, TD_COUNT(list));
    for (size_t i = 0; i < n; i++) {
        const struct td_hit *h = &x->hits[list[i]];
        const struct td_rule *r = td_rule_at(h->rule);
        struct td_buf b;
        td_buf_init(&b, PART_BYTES);
        td_buf_addc(&b, '"');
        td_buf_add(&b, h->text, TD_MIN(strlen(h->text), (size_t)QUOTE));
        td_buf_adds(&b, "\": ");
        if (r->role == TD_ROLE_NOISE && r->says)
            td_buf_adds(&b, r->says);
        else
            td_buf_adds(&b, "good starts print it too");
        put_section(p, "not the cause", 0, &b);
        td_buf_release(&b);
    }
}

static void put_candidates(const struct td_explain *x, struct page *p)
{
    const struct td_verdict *v = &x->verdict;
    for (size_t i = 1; i < v->count; i++) {
        const struct td_candidate *c = &v->candidates[i];
        struct td_buf b;
        if (c->weight < MENTION || (c->grade == TD_GRADE_NONE && v->grade != c->grade))
            continue; /* a hint beside a better answer */
        td_buf_init(&b, PART_BYTES);
        td_report_cause(x, c, &b);
        td_buf_addf(&b, " (%s", td_grade_name(c->grade));
        const struct td_hit *h = td_report_hit(x, c);
        if (h)
            td_buf_addf(&b, ", %s:%" PRIu64, td_report_file(x, h->source), h->line);
        td_buf_addc(&b, ')');
        if (c->kind && c->kind->missing) {
            td_buf_adds(&b, "; it would be settled by ");
            td_sentence(x, h, c->kind->missing, &b);
        }
        put_section(p, "or", 0, &b);
        td_buf_release(&b);
    }
}

static void put_known(const struct td_explain *x, struct page *p)
{
    struct td_buf b;
    td_buf_init(&b, PART_BYTES);
    td_report_known(x, &b);
    put_section(p, "known", 0, &b);
    td_buf_release(&b);
    if (x->verdict.unknown >= 0) {
        const struct td_hit *h = &x->hits[x->verdict.unknown];
        put_line_of(p, "first error", td_report_file(x, h->source), h->line, h->text);
    }
}

static void put_where(const struct td_explain *x, const struct td_candidate *c,
                      struct page *p)
{
    struct td_buf b;
    td_buf_init(&b, PART_BYTES);
    const char *host = td_report_host(x, c);
    int rank = td_report_rank(x, c);
    td_buf_adds(&b, host);
    if (rank >= 0)
        td_buf_addf(&b, "%srank %d", *host ? ", " : "", rank);
    put_section(p, "where", 0, &b);
    td_buf_clear(&b);
    report_phase(x, c, &b);
    put_section(p, "when", 0, &b);
    td_buf_release(&b);
}

static void put_notes(const struct td_explain *x, struct page *p)
{
    struct td_buf b;
    td_buf_init(&b, PART_BYTES);
    for (size_t i = 0; i < x->nsources; i++)
        if (x->sources[i].unreadable)
            td_buf_addf(&b, "%s%s: %s", b.len ? "; " : "",
                        td_report_file(x, (uint32_t)i), x->sources[i].note);
    put_section(p, "note", 0, &b);
    td_buf_release(&b);
}

static void put_cause(const struct td_explain *x, struct page *p)
{
    static const int colors[] = {33, 33, 31, 31};
    const struct td_verdict *v = &x->verdict;
    const struct td_candidate *c = v->count ? &v->candidates[0] : NULL;
    struct td_buf b;
    td_buf_init(&b, PART_BYTES);
    if (c && v->grade != TD_GRADE_NONE)
        td_report_cause(x, c, &b);
    else if (v->failed)
        td_buf_adds(&b, "the start failed, and these files do not say why");
    else
        td_buf_addf(&b, "none: nothing in these files speaks of a failure%s",
                    v->ready ? ", and the start became ready" : "");
    td_buf_addf(&b, "  [%s]",
                v->grade == TD_GRADE_NONE ? "not in these files"
                                          : td_grade_name(v->grade));
    put_section(p, "cause", colors[v->grade], &b);
    td_buf_release(&b);
}

enum td_status td_explain_text(const struct td_explain *x,
                               const struct td_explain_style *style, struct td_buf *out)
{
    struct page p = {style, out};
    const struct td_verdict *v = &x->verdict;
    const struct td_candidate *c = v->count ? &v->candidates[0] : NULL;
    struct td_buf b;
    td_buf_init(&b, PART_BYTES);
    put_cause(x, &p);
    if (c && v->grade != TD_GRADE_NONE) {
        put_where(x, c, &p);
        put_evidence(x, &p);
        if (v->grade == TD_GRADE_POSSIBLE)
            put_known(x, &p);
    } else {
        put_known(x, &p);
        if (c) {
            td_buf_adds(&b, "it looks like: ");
            td_report_cause(x, c, &b);
            put_section(&p, "nearest", 0, &b);
            put_evidence(x, &p);
        }
    }
    if (v->failed)
        put_followed(x, &p);
    put_candidates(x, &p);
    td_buf_clear(&b);
    if (c)
        td_report_fix(x, c, &b);
    put_section(&p, "fix", 32, &b);
    td_buf_clear(&b);
    if (v->failed || c || !v->ready)
        td_report_missing(x, c, &b);
    put_section(&p, v->grade == TD_GRADE_NONE ? "needed" : "to be sure", 0, &b);
    if (v->failed)
        put_noise(x, &p);
    put_notes(x, &p);
    td_buf_release(&b);
    return out->status;
}

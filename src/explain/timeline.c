/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeline of all hosts: what each process reached and when it failed, on the first
 * source's clock as far as shared records tell the difference.
 */
#include "explain/explain_int.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOST_COLUMNS = 24,
    HINT = 30 /* weight below which a cause is a mere hint */
};

static int by_time(const void *pa, const void *pb)
{
    const struct td_moment *a = pa, *b = pb;
    if (a->time < b->time || a->time > b->time)
        return a->time < b->time ? -1 : 1;
    return a->hit < b->hit ? -1 : a->hit > b->hit;
}

/* Rank of a hit among those of its line: a cause before an effect before a step. */
static int shown(const struct td_hit *h)
{
    const struct td_rule *r = td_rule_at(h->rule);
    return r->role == TD_ROLE_CAUSE && h->weight >= HINT ? 3
           : r->role == TD_ROLE_EFFECT                   ? 2
           : r->role == TD_ROLE_PHASE                    ? 1
                                                         : 0;
}

static size_t collect(const struct td_explain *x, struct td_moment *out)
{
    size_t n = 0;
    for (size_t i = 0; i < x->nhits; i++) {
        const struct td_hit *h = &x->hits[i];
        const struct td_hit *before = n > 0 ? &x->hits[out[n - 1].hit] : NULL;
        if (shown(h) == 0)
            continue;
        if (before && before->source == h->source && before->line == h->line) {
            if (shown(h) > shown(before))
                out[n - 1].hit = (uint32_t)i;
            continue;
        }
        double t = h->time < 0 ? -1 : h->time + x->sources[h->source].shift;
        if (t < 0 && n > 0 && x->hits[out[n - 1].hit].source == h->source)
            t = out[n - 1].time;
        out[n++] = (struct td_moment){t, (uint32_t)i};
    }
    qsort(out, n, sizeof(*out), by_time);
    return n;
}

enum td_status td_moments(const struct td_explain *x, struct td_moment **out, size_t *n,
                          double *zero)
{
    struct td_moment *list = td_calloc(x->nhits + 1, sizeof(*list));
    if (!list)
        return TD_E_NOMEM;
    *out = list;
    *n = collect(x, list);
    *zero = 0;
    for (size_t i = 0; i < *n && *zero <= 0; i++)
        *zero = list[i].time;
    return TD_OK;
}

const char *td_moment_host(const struct td_explain *x, const struct td_hit *h)
{
    return *h->host ? h->host : x->sources[h->source].host;
}

static void put_plain(struct td_buf *out, const char *s, size_t max)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n && i < max;) {
        size_t k = td_utf8_len(s + i, n - i);
        bool bad = k == 0 || (unsigned char)s[i] < ' ';
        if (bad)
            td_buf_addc(out, ' ');
        else
            td_buf_add(out, s + i, k);
        i += bad ? 1 : k;
    }
}

static void put_entry(const struct td_explain *x, const struct td_moment *e,
                      double zero, const struct td_explain_style *style,
                      struct td_buf *out)
{
    const struct td_hit *h = &x->hits[e->hit];
    const struct td_rule *r = td_rule_at(h->rule);
    const char *host = td_moment_host(x, h);
    const char *mark = r->role == TD_ROLE_CAUSE    ? "!"
                       : r->role == TD_ROLE_EFFECT ? "-"
                                                   : " ";
    char who[64];
    if (h->rank >= 0)
        (void)snprintf(who, sizeof(who), "%.40s rank %d", host, h->rank);
    else
        (void)snprintf(who, sizeof(who), "%.60s", host);
    if (e->time >= 0)
        td_buf_addf(out, "%+10.1f s  ", e->time - zero);
    else
        td_buf_adds(out, "         ?    ");
    td_buf_addf(out, "%-*.*s %s ", HOST_COLUMNS, HOST_COLUMNS, who, mark);
    size_t room = style->width > 60 ? (size_t)style->width - 36 : TD_TEXT_MAX;
    size_t before = out->len;
    put_plain(out, td_report_file(x, h->source), 60);
    td_buf_addf(out, ":%" PRIu64 "  ", h->line);
    size_t used = out->len - before;
    put_plain(out, h->text, room > used + 20 ? room - used : 20);
    td_buf_addc(out, '\n');
}

enum td_status td_explain_timeline(const struct td_explain *x,
                                   const struct td_explain_style *style,
                                   struct td_buf *out)
{
    struct td_moment *list;
    size_t n;
    double zero;
    enum td_status st = td_moments(x, &list, &n, &zero);
    if (st != TD_OK)
        return st;
    for (size_t i = 0; i < n && i < TD_MOMENTS_MAX; i++)
        put_entry(x, &list[i], zero, style, out);
    if (n > TD_MOMENTS_MAX)
        td_buf_addf(out, "... and %zu more\n", n - TD_MOMENTS_MAX);
    for (size_t i = 0; i < x->nsources; i++)
        if (fabs(x->sources[i].shift) > 0.5)
            td_buf_addf(out, "clock     %s is shifted by %+.1f s\n",
                        td_report_file(x, (uint32_t)i), x->sources[i].shift);
    for (size_t i = 0; i < x->nstreams && i < TD_MOMENTS_MAX; i++) {
        const struct td_stream *s = &x->streams[i];
        if (!*s->role || s->pid < 0)
            continue;
        td_buf_adds(out, "last      ");
        td_report_process(x, s, out);
        td_buf_addf(out, ", line %" PRIu64 " of ", s->last_line);
        put_plain(out, td_report_file(x, s->source), 60);
        td_buf_addf(out, ", %s: ", td_report_step(s->step));
        put_plain(out, s->last_text, 80);
        td_buf_addc(out, '\n');
    }
    td_free(list);
    return out->status;
}

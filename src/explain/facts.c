/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts that logs give away, and the little language that rules use to ask for them.
 */
#define _POSIX_C_SOURCE 200809L
#include "explain/explain_int.h"

#include "base/limits.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { VALUES_OF_A_NAME = 64, NAME_MAX_BYTES = 64 };

enum td_status td_fact_add(struct td_explain *x, const char *name, size_t name_n,
                           const char *value, size_t n)
{
    const char *known = NULL;
    size_t same = 0;
    for (size_t i = 0; i < x->nfacts; i++) {
        struct td_fact *f = &x->facts[i];
        if (strncmp(f->name, name, name_n) != 0 || f->name[name_n])
            continue;
        known = f->name;
        same++;
        if (strlen(f->value) == n && memcmp(f->value, value, n) == 0)
            return TD_OK;
    }
    if (same >= VALUES_OF_A_NAME || n == 0 || n > TD_CAPTURE_MAX)
        return TD_OK;
    void *p = x->facts;
    enum td_status s = td_explain_grow(&p, &x->cap_facts, x->nfacts, sizeof(*x->facts),
                                       TD_MAX_EXPLAIN_FACTS);
    x->facts = p;
    if (s != TD_OK)
        return s == TD_E_LIMIT ? TD_OK : s;
    x->facts[x->nfacts++] = (struct td_fact){
        .name = known ? known : td_explain_keep(x, name, name_n, NAME_MAX_BYTES),
        .value = td_explain_keep(x, value, n, TD_CAPTURE_MAX),
        .source = (uint32_t)(x->nsources - 1),
    };
    return TD_OK;
}

const struct td_fact *td_fact_at(const struct td_explain *x, const char *name, size_t i)
{
    for (size_t k = 0; k < x->nfacts; k++)
        if (strcmp(x->facts[k].name, name) == 0 && i-- == 0)
            return &x->facts[k];
    return NULL;
}

const char *td_fact_get(const struct td_explain *x, const char *name)
{
    const struct td_fact *f = td_fact_at(x, name, 0);
    return f ? f->value : NULL;
}

bool td_rule_was_seen(const struct td_explain *x, const char *id)
{
    uint64_t r;
    return td_map_get(&x->rule_of, id, strlen(id), &r) && x->rule_counts[r].seen > 0;
}

static bool step_reached(const struct td_hit *hit, const char *name)
{
    for (int s = TD_STEP_CONFIG; s < TD_STEP_COUNT; s++)
        if (strcmp(td_step_name((enum td_step)s), name) == 0)
            return hit && hit->step >= (enum td_step)s;
    return false;
}

/* One alternative: a name, perhaps negated. */
static bool atom_holds(const struct td_explain *x, const char *p, size_t n,
                       const struct td_hit *hit)
{
    char name[NAME_MAX_BYTES];
    bool no = n > 0 && *p == '!';
    if (no) {
        p++;
        n--;
    }
    if (n == 0 || n >= sizeof(name))
        return false;
    memcpy(name, p, n);
    name[n] = 0;
    bool yes = *name == '@'   ? step_reached(hit, name + 1)
               : *name == '=' ? hit && strcmp(td_rule_at(hit->rule)->id, name + 1) == 0
                              : td_fact_get(x, name) || td_rule_was_seen(x, name);
    return yes != no;
}

bool td_needs_hold(const struct td_explain *x, const char *needs,
                   const struct td_hit *hit)
{
    if (!needs)
        return true;
    const char *p = needs;
    while (*p) {
        size_t word = strcspn(p, " ");
        bool any = false;
        for (size_t i = 0; i < word;) {
            size_t n = strcspn(p + i, "| ");
            any = any || atom_holds(x, p + i, n, hit);
            i += n + 1;
        }
        if (!any)
            return false;
        p += word;
        p += strspn(p, " ");
    }
    return true;
}

/* Appends the value that starts at p ('$'); false when it is not known. */
static bool add_value(const struct td_explain *x, const struct td_hit *hit,
                      const char **pp, struct td_buf *out)
{
    const char *p = *pp + 1;
    if (*p >= '1' && *p <= '0' + TD_MAX_CAPTURES) {
        const char *v = hit ? hit->caps[*p - '1'] : "";
        *pp = p + 1;
        td_buf_adds(out, v);
        return *v != 0;
    }
    size_t n = strcspn(p, "}");
    char name[NAME_MAX_BYTES];
    *pp = p + n + (p[n] == '}');
    if (*p != '{' || n < 2 || n - 1 >= sizeof(name))
        return false;
    memcpy(name, p + 1, n - 1);
    name[n - 1] = 0;
    const char *v = td_fact_get(x, name);
    td_buf_adds(out, v ? v : "");
    return v != NULL;
}

void td_sentence(const struct td_explain *x, const struct td_hit *hit, const char *text,
                 struct td_buf *out)
{
    size_t open = 0;
    bool inside = false, known = true;
    for (const char *p = text; *p;) {
        if (*p == '[') {
            open = out->len;
            inside = known = true;
            p++;
        } else if (*p == ']' && inside) {
            if (!known)
                td_buf_set_len(out, open);
            inside = false;
            p++;
        } else if (*p == '$') {
            known = add_value(x, hit, &p, out) && known;
        } else {
            td_buf_addc(out, *p++);
        }
    }
}

uint32_t td_ip_parse(const char *s)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char *end;
        unsigned long part = strtoul(s, &end, 10);
        if (end == s || end - s > 3 || part > 255 || *end != (i < 3 ? '.' : 0))
            return 0;
        v = v << 8 | (uint32_t)part;
        s = end + 1;
    }
    return v;
}

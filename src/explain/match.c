/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Literals and patterns. See match.h.
 *
 * The automaton is a full transition table over byte classes: bytes that occur in no
 * literal share class 0, upper and lower case share theirs. A transition whose target (or
 * one of its suffixes) ends a literal carries the top bit, so that the loop over the bytes
 * has a single rarely taken branch.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "explain/match.h"

#include "base/mem.h"
#include "explain/rules.h"

#include <pcre2.h>
#include <string.h>

enum {
    MAX_STATES = 0x7fff,
    HAS_OUTPUT = 0x8000,
    MATCH_LIMIT = 20000,
    DEPTH_LIMIT = 2000,
    HEAP_LIMIT_KIB = 4096,
    MAX_OVERRUNS = 32,
    JIT_AFTER = 64 /* runs of a pattern before compiling it is worth while */
};

struct output {
    uint16_t rule, next; /* next output of the same state, 0: none */
};

struct pattern {
    pcre2_code *code;
    unsigned runs, overruns;
    bool bad, joined;
};

struct td_matcher {
    uint8_t class_of[256];
    size_t classes, states, outputs;
    uint16_t *next;   /* [states][classes] */
    uint16_t *fail;   /* [states] */
    uint16_t *first;  /* [states] first output, 0: none */
    uint16_t *suffix; /* [states] nearest suffix state with outputs, 0: none */
    struct output *out;
    struct pattern *patterns;
    uint8_t *seen; /* [rules], for td_matcher_scan() */
    pcre2_match_data *data;
    pcre2_match_context *limits;
    size_t rules;
};

static unsigned char fold(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

/* Calls fn for each literal of each rule; stops at the first failure. */
typedef enum td_status (*literal_fn)(struct td_matcher *m, size_t rule, const char *p,
                                     size_t n);

static enum td_status each_literal(struct td_matcher *m, literal_fn fn)
{
    for (size_t r = 0; r < m->rules; r++) {
        const char *p = td_rule_at(r)->lit;
        while (*p) {
            size_t n = strcspn(p, "|");
            enum td_status s = fn(m, r, p, n);
            if (s != TD_OK)
                return s;
            p += n + (p[n] == '|');
        }
    }
    return TD_OK;
}

static enum td_status count_literal(struct td_matcher *m, size_t rule, const char *p,
                                    size_t n)
{
    (void)rule;
    for (size_t i = 0; i < n; i++)
        m->class_of[fold(p[i])] = 1;
    m->states += n;
    m->outputs++;
    return TD_OK;
}

static enum td_status add_literal(struct td_matcher *m, size_t rule, const char *p,
                                  size_t n)
{
    size_t s = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t *to = &m->next[s * m->classes + m->class_of[fold(p[i])]];
        if (*to == 0)
            *to = (uint16_t)m->states++;
        s = *to;
    }
    m->outputs++;
    m->out[m->outputs] = (struct output){(uint16_t)rule, m->first[s]};
    m->first[s] = (uint16_t)m->outputs;
    return TD_OK;
}

/* Breadth first: fail links, then the missing transitions. */
static enum td_status link_states(struct td_matcher *m)
{
    uint16_t *queue = td_calloc(m->states, sizeof(*queue));
    size_t head = 0, tail = 0;
    if (!queue)
        return TD_E_NOMEM;
    for (size_t c = 0; c < m->classes; c++)
        if (m->next[c])
            queue[tail++] = m->next[c];
    while (head < tail) {
        size_t s = queue[head++], f = m->fail[s];
        m->suffix[s] = m->first[f] ? (uint16_t)f : m->suffix[f];
        for (size_t c = 0; c < m->classes; c++) {
            uint16_t *to = &m->next[s * m->classes + c];
            uint16_t other = m->next[f * m->classes + c];
            if (*to == 0) {
                *to = other;
                continue;
            }
            m->fail[*to] = other;
            queue[tail++] = *to;
        }
    }
    td_free(queue);
    for (size_t i = 0; i < m->states * m->classes; i++) {
        uint16_t to = m->next[i];
        if (m->first[to] || m->suffix[to])
            m->next[i] = to | HAS_OUTPUT;
    }
    return TD_OK;
}

static enum td_status build(struct td_matcher *m, struct td_error *err)
{
    m->states = 1;
    (void)each_literal(m, count_literal);
    if (m->states > MAX_STATES)
        return td_error_set(err, TD_E_INTERNAL, "the rules' literals are too long");
    m->classes = 1;
    for (size_t b = 0; b < 256; b++)
        if (m->class_of[b])
            m->class_of[b] = (uint8_t)m->classes++;
    for (int b = 'A'; b <= 'Z'; b++)
        m->class_of[b] = m->class_of[b + 32];
    size_t states = m->states;
    m->next = td_calloc(states * m->classes, sizeof(*m->next));
    m->fail = td_calloc(states, sizeof(*m->fail));
    m->first = td_calloc(states, sizeof(*m->first));
    m->suffix = td_calloc(states, sizeof(*m->suffix));
    m->out = td_calloc(m->outputs + 1, sizeof(*m->out));
    if (!m->next || !m->fail || !m->first || !m->suffix || !m->out)
        return td_error_set(err, TD_E_NOMEM, "no memory for the rules");
    m->states = 1;
    m->outputs = 0;
    (void)each_literal(m, add_literal);
    if (link_states(m) != TD_OK)
        return td_error_set(err, TD_E_NOMEM, "no memory for the rules");
    return TD_OK;
}

enum td_status td_matcher_new(struct td_matcher **out, struct td_error *err)
{
    struct td_matcher *m = td_calloc(1, sizeof(*m));
    if (!m)
        return td_error_set(err, TD_E_NOMEM, "no memory for the rules");
    m->rules = td_rule_count();
    enum td_status s = build(m, err);
    m->patterns = td_calloc(m->rules, sizeof(*m->patterns));
    m->seen = td_calloc(m->rules, 1);
    m->data = pcre2_match_data_create(TD_MAX_CAPTURES + 1, NULL);
    m->limits = pcre2_match_context_create(NULL);
    if (s == TD_OK && (!m->patterns || !m->seen || !m->data || !m->limits))
        s = td_error_set(err, TD_E_NOMEM, "no memory for the rules");
    if (s != TD_OK) {
        td_matcher_free(m);
        return s;
    }
    (void)pcre2_set_match_limit(m->limits, MATCH_LIMIT);
    (void)pcre2_set_depth_limit(m->limits, DEPTH_LIMIT);
    (void)pcre2_set_heap_limit(m->limits, HEAP_LIMIT_KIB);
    for (size_t r = 0; r < m->rules; r++) {
        const char *re = td_rule_at(r)->re;
        m->patterns[r].joined = re && strstr(re, "\\n");
    }
    *out = m;
    return TD_OK;
}

void td_matcher_free(struct td_matcher *m)
{
    if (!m)
        return;
    for (size_t r = 0; m->patterns && r < m->rules; r++)
        pcre2_code_free(m->patterns[r].code);
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->limits);
    td_free(m->patterns);
    td_free(m->seen);
    td_free(m->next);
    td_free(m->fail);
    td_free(m->first);
    td_free(m->suffix);
    td_free(m->out);
    td_free(m);
}

static size_t collect(struct td_matcher *m, size_t state, uint16_t *out, size_t count)
{
    for (size_t s = state; s; s = m->suffix[s])
        for (size_t o = m->first[s]; o; o = m->out[o].next) {
            uint16_t rule = m->out[o].rule;
            if (m->seen[rule] || count == TD_MAX_LINE_RULES)
                continue;
            m->seen[rule] = 1;
            out[count++] = rule;
        }
    return count;
}

size_t td_matcher_scan(struct td_matcher *m, const char *line, size_t n,
                       uint16_t out[TD_MAX_LINE_RULES])
{
    const unsigned char *p = (const unsigned char *)line, *end = p + n;
    const uint16_t *next = m->next;
    size_t classes = m->classes, s = 0, count = 0;
    while (p < end) {
        s = next[s * classes + m->class_of[*p++]];
        if (s & HAS_OUTPUT) {
            s &= MAX_STATES;
            count = collect(m, s, out, count);
        }
    }
    for (size_t i = 0; i < count; i++)
        m->seen[out[i]] = 0;
    for (size_t i = 1; i < count; i++) /* few: insertion sort */
        for (size_t k = i; k > 0 && out[k - 1] > out[k]; k--) {
            uint16_t t = out[k];
            out[k] = out[k - 1];
            out[k - 1] = t;
        }
    return count;
}

bool td_matcher_is_joined(const struct td_matcher *m, size_t rule)
{
    return m->patterns[rule].joined;
}

static enum td_status compile(struct td_matcher *m, size_t rule, struct td_error *err)
{
    struct pattern *p = &m->patterns[rule];
    int code = 0;
    PCRE2_SIZE at = 0;
    p->code = pcre2_compile((PCRE2_SPTR)td_rule_at(rule)->re, PCRE2_ZERO_TERMINATED,
                            PCRE2_CASELESS | PCRE2_NEVER_UTF | PCRE2_MULTILINE, &code,
                            &at, NULL);
    if (p->code)
        return TD_OK;
    p->bad = true;
    return td_error_set(err, TD_E_INTERNAL, "pattern of rule %s: error %d at %zu",
                        td_rule_at(rule)->id, code, (size_t)at);
}

bool td_matcher_run(struct td_matcher *m, size_t rule, const char *text, size_t n,
                    struct td_capture caps[TD_MAX_CAPTURES])
{
    struct pattern *p = &m->patterns[rule];
    memset(caps, 0, sizeof(*caps) * TD_MAX_CAPTURES);
    if (!td_rule_at(rule)->re)
        return true;
    if (p->bad || (!p->code && compile(m, rule, NULL) != TD_OK))
        return false;
    if (++p->runs == JIT_AFTER)
        (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    int got = pcre2_match(p->code, (PCRE2_SPTR)text, n, 0, 0, m->data, m->limits);
    /* text made to exhaust a pattern gets only so many chances */
    if ((got == PCRE2_ERROR_MATCHLIMIT || got == PCRE2_ERROR_DEPTHLIMIT) &&
        ++p->overruns == MAX_OVERRUNS)
        p->bad = true;
    if (got < 0)
        return false;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    for (size_t i = 1; i < (size_t)got && i <= TD_MAX_CAPTURES; i++)
        if (at[2 * i] != PCRE2_UNSET)
            caps[i - 1] =
                (struct td_capture){text + at[2 * i], at[2 * i + 1] - at[2 * i]};
    return true;
}

enum td_status td_matcher_check(struct td_matcher *m, struct td_error *err)
{
    for (size_t r = 0; r < m->rules; r++)
        if (td_rule_at(r)->re && !m->patterns[r].code && compile(m, r, err) != TD_OK)
            return TD_E_INTERNAL;
    return TD_OK;
}

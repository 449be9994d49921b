/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenization with PCRE2. See pretok.h.
 *
 * Patterns come with the model: their steps are limited per match and their time per
 * text, so that one that explodes ends in an error.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretok.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "text/pattern.h"

#include <pcre2.h>

enum {
    STEPS = 1000000,      /* of one match, and */
    STEPS_PER_BYTE = 16,  /* as many for each byte of the text */
    HEAP_KIB = 64 * 1024, /* of the interpreter, where there is no machine code */
    CALLS_PER_LOOK = 16,  /* matches between two looks at the clock */
    NS_PER_BYTE = 1000,   /* the time for a text, and */
    MS_AT_LEAST = 5000    /* that much more */
};

static void *take(size_t n, void *ctx)
{
    (void)ctx;
    return td_realloc(NULL, n, 1);
}

static void give(void *p, void *ctx)
{
    (void)ctx;
    td_free(p);
}

void td_pretok_init(struct td_pretok *p)
{
    *p = (struct td_pretok){0};
}

void td_pretok_release(struct td_pretok *p)
{
    for (size_t i = 0; i < p->n; i++)
        pcre2_code_free(p->stages[i]);
    pcre2_general_context_free(p->memory);
    td_pretok_init(p);
}

static enum td_status compile(struct td_pretok *p, const struct td_buf *source,
                              const char *where, struct td_error *err)
{
    int code = 0;
    size_t at = 0;
    uint32_t empty = 0;
    char text[160] = "";
    pcre2_compile_context *c = pcre2_compile_context_create(p->memory);
    if (!c)
        return td_error_set(err, TD_E_NOMEM, "%s: no memory", where);
    (void)pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)source->p, source->len,
                                   PCRE2_UTF | PCRE2_UCP, &code, &at, c);
    pcre2_compile_context_free(c);
    if (!re && code == PCRE2_ERROR_HEAP_FAILED)
        return td_error_set(err, TD_E_NOMEM, "%s: no memory", where);
    if (!re) {
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof(text));
        return td_error_set(err, TD_E_TOKENIZER, "%s: the pattern is invalid: %s",
                            where, text);
    }
    (void)pcre2_pattern_info(re, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) {
        pcre2_code_free(re);
        return td_error_set(err, TD_E_TOKENIZER,
                            "%s: the pattern can match an empty text", where);
    }
    p->jit[p->n] = pcre2_jit_compile(re, PCRE2_JIT_COMPLETE) == 0;
    p->stages[p->n++] = re;
    return TD_OK;
}

enum td_status td_pretok_add(struct td_pretok *p, const char *pattern, size_t n,
                             bool literal, const char *where, struct td_error *err)
{
    if (p->n == TD_MAX_PRETOKENIZERS)
        return td_error_set(err, TD_E_LIMIT, "%s: more than %d pre-tokenizers", where,
                            TD_MAX_PRETOKENIZERS);
    if (!p->memory)
        p->memory = pcre2_general_context_create(take, give, NULL);
    if (!p->memory)
        return td_error_set(err, TD_E_NOMEM, "%s: no memory", where);
    struct td_buf source;
    td_buf_init(&source, 64 * TD_MAX_PATTERN);
    enum td_status s = literal ? td_pattern_quote(pattern, n, &source)
                               : td_pattern_translate(pattern, n, where, &source, err);
    if (s == TD_OK)
        s = compile(p, &source, where, err);
    else
        td_error_set(err, s, "%s: the pattern cannot be held", where);
    td_buf_release(&source);
    return s;
}

enum td_status td_pretok_work_init(const struct td_pretok *p, size_t n,
                                   struct td_pretok_work *w)
{
    int64_t ns = MS_AT_LEAST * (int64_t)1000000 + (int64_t)n * NS_PER_BYTE;
    *w = (struct td_pretok_work){.deadline_ns = td_clock_ns() + ns};
    if (p->n == 0)
        return TD_OK;
    w->match = pcre2_match_context_create(p->memory);
    if (!w->match)
        return TD_E_NOMEM;
    (void)pcre2_set_match_limit(w->match, (uint32_t)(STEPS + STEPS_PER_BYTE * n));
    (void)pcre2_set_heap_limit(w->match, HEAP_KIB);
    for (size_t i = 0; i < p->n; i++) {
        w->data[i] = pcre2_match_data_create(1, p->memory);
        if (!w->data[i])
            return TD_E_NOMEM;
    }
    return TD_OK;
}

void td_pretok_work_release(struct td_pretok_work *w)
{
    for (size_t i = 0; i < TD_MAX_PRETOKENIZERS; i++)
        pcre2_match_data_free(w->data[i]);
    pcre2_match_context_free(w->match);
    *w = (struct td_pretok_work){0};
}

/* Finds the next match of a stage at or after `from`: 1 found, 0 none, < 0 an error of
 * PCRE2. Machine code first; where its stack is too small, the interpreter. */
static int match(const struct td_pretok *p, struct td_pretok_work *w, size_t stage,
                 const char *text, size_t n, size_t from)
{
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (++w->calls % CALLS_PER_LOOK == 0 && td_clock_ns() > w->deadline_ns)
        return PCRE2_ERROR_MATCHLIMIT;
    if (p->jit[stage])
        rc = pcre2_jit_match(p->stages[stage], (PCRE2_SPTR)text, n, from, 0,
                             w->data[stage], w->match);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->stages[stage], (PCRE2_SPTR)text, n, from,
                         PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK, w->data[stage], w->match);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    return rc >= 0 ? 1 : rc;
}

struct cutter {
    const struct td_pretok *p;
    struct td_pretok_work *w;
    td_piece_fn fn;
    void *ctx;
    struct td_error *err;
};

static enum td_status cut(const struct cutter *c, size_t stage, const char *text,
                          size_t n);

static enum td_status pass_on(const struct cutter *c, size_t stage, const char *text,
                              size_t n)
{
    if (stage == c->p->n)
        return n ? c->fn(c->ctx, text, n) : TD_OK;
    return cut(c, stage, text, n);
}

static enum td_status cut(const struct cutter *c, size_t stage, const char *text,
                          size_t n)
{
    for (size_t from = 0; from < n;) {
        int found = match(c->p, c->w, stage, text, n, from);
        if (found < 0)
            return found == PCRE2_ERROR_NOMEMORY
                       ? td_error_set(c->err, TD_E_NOMEM, "no memory to cut a text")
                       : td_error_set(c->err, TD_E_LIMIT,
                                      "the tokenizer's pattern takes too long "
                                      "(PCRE2 error %d at byte %zu of a text of %zu)",
                                      found, from, n);
        const size_t *span = pcre2_get_ovector_pointer(c->w->data[stage]);
        size_t begin = found ? span[0] : n, end = found ? span[1] : n;
        enum td_status s = TD_OK;
        if (begin > from)
            s = pass_on(c, stage + 1, text + from, begin - from);
        if (s == TD_OK && end > begin)
            s = pass_on(c, stage + 1, text + begin, end - begin);
        if (s != TD_OK)
            return s;
        from = TD_MAX(end, from + 1);
    }
    return TD_OK;
}

enum td_status td_pretok_cut(const struct td_pretok *p, struct td_pretok_work *w,
                             const char *text, size_t n, td_piece_fn fn, void *ctx,
                             struct td_error *err)
{
    const struct cutter c = {p, w, fn, ctx, err};
    return pass_on(&c, 0, text, n);
}

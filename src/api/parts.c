/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of an answer. See parts.h.
 */
#include "api/parts.h"

#include "api/stops.h"
#include "base/limits.h"
#include "base/mem.h"

#include <string.h>

enum { OPEN, CLOSE, CALL, N_TAGS };

static const struct {
    const char *text;
    size_t n;
} tags[N_TAGS] = {
    [OPEN] = {"<think>", 7}, [CLOSE] = {"</think>", 8}, [CALL] = {"<tool_call>", 11}};

void td_parts_init(struct td_parts *p, bool think, const json_t *tools,
                   enum td_part first)
{
    memset(p, 0, sizeof(*p));
    p->think = think;
    p->calls = tools != NULL;
    p->part = first;
    p->skip_space = first == TD_PART_REASONING;
    td_buf_init(&p->held, TD_MAX_TEXT);
    td_buf_init(&p->gap, TD_MAX_TEXT);
    td_buf_init(&p->text[0], TD_MAX_TEXT);
    td_buf_init(&p->text[1], TD_MAX_TEXT);
    td_call_parser_init(&p->parser, tools);
}

void td_parts_release(struct td_parts *p)
{
    for (int i = 0; i < p->n_calls; i++)
        td_call_release(&p->call[i]);
    td_free(p->call);
    td_buf_release(&p->held);
    td_buf_release(&p->gap);
    td_buf_release(&p->text[0]);
    td_buf_release(&p->text[1]);
    td_call_parser_release(&p->parser);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_tag(const struct td_parts *p, int tag)
{
    return tag == CALL ? p->calls : p->think;
}

/* Shows the first n bytes of what is held. */
static void show(struct td_parts *p, size_t n)
{
    size_t from = 0;
    while (p->skip_space && from < n && is_space(p->held.p[from]))
        from++;
    if (from < n)
        p->skip_space = false;
    td_buf_add(&p->text[p->part], p->held.p + from, n - from);
    td_buf_drop(&p->held, n);
}

static size_t without_space(const struct td_parts *p, size_t n)
{
    while (n > 0 && is_space(p->held.p[n - 1]))
        n--;
    return n;
}

/* May white space at the end turn out to stand before a tag? */
static bool trims(const struct td_parts *p)
{
    return p->calls || p->part == TD_PART_REASONING;
}

static enum td_status open_call(struct td_parts *p)
{
    if (p->n_calls == p->max_calls) {
        int max = p->max_calls ? 2 * p->max_calls : 4;
        struct td_call *c = td_realloc(p->call, (size_t)max, sizeof(*c));
        if (!c)
            return TD_E_NOMEM;
        p->call = c;
        p->max_calls = max;
    }
    td_call_init(&p->call[p->n_calls++]);
    td_call_parser_begin(&p->parser);
    p->in_call = true;
    return TD_OK;
}

/* A tag stands at the beginning of what is held. */
static enum td_status take_tag(struct td_parts *p, int tag)
{
    td_buf_drop(&p->held, tags[tag].n);
    if (tag == CALL)
        return open_call(p);
    p->part = tag == OPEN ? TD_PART_REASONING : TD_PART_CONTENT;
    p->skip_space = true;
    return TD_OK;
}

/* Text up to the next tag, if it is there. True when a tag was taken. */
static bool take_text(struct td_parts *p, enum td_status *status)
{
    size_t first = p->held.len, keep = 0;
    int found = N_TAGS;
    for (int i = 0; i < N_TAGS; i++) {
        if (!is_tag(p, i))
            continue;
        size_t at = td_find_text(p->held.p, p->held.len, tags[i].text, tags[i].n);
        size_t tail = td_tail_match(p->held.p, p->held.len, tags[i].text, tags[i].n);
        keep = TD_MAX(keep, tail);
        if (at < first) {
            first = at;
            found = i;
        }
    }
    if (found < N_TAGS) {
        bool trim = found == CALL || p->part == TD_PART_REASONING;
        size_t shown = trim ? without_space(p, first) : first;
        show(p, shown);
        td_buf_clear(&p->gap);
        if (!p->skip_space)
            td_buf_add(&p->gap, p->held.p, first - shown);
        td_buf_drop(&p->held, first - shown);
        *status = take_tag(p, found);
        return true;
    }
    size_t n = p->held.len - keep;
    show(p, trims(p) ? without_space(p, n) : n);
    return false;
}

/* Text of a call. True when it is over. */
static bool take_call(struct td_parts *p)
{
    struct td_call *c = &p->call[p->n_calls - 1];
    size_t used;
    enum td_call_result r =
        td_call_parser_add(&p->parser, p->held.p, p->held.len, &used, c);
    td_buf_drop(&p->held, used);
    if (r == TD_CALL_MORE)
        return false;
    p->in_call = false;
    if (r == TD_CALL_NONE) { /* it was no call: the tag is text after all */
        td_call_release(c);
        p->n_calls--;
        td_buf_add(&p->text[p->part], p->gap.p, p->gap.len);
        td_buf_add(&p->text[p->part], tags[CALL].text, tags[CALL].n);
        p->skip_space = false;
    } else {
        p->skip_space = true;
    }
    return true;
}

static enum td_status status_of(const struct td_parts *p)
{
    enum td_status s = p->held.status;
    s = s == TD_OK ? p->gap.status : s;
    s = s == TD_OK ? p->text[0].status : s;
    s = s == TD_OK ? p->text[1].status : s;
    s = s == TD_OK ? p->parser.value.status : s;
    if (s == TD_OK && p->n_calls > 0)
        s = p->call[p->n_calls - 1].args.status;
    return s;
}

enum td_status td_parts_add(struct td_parts *p, const char *text, size_t n)
{
    enum td_status s = TD_OK;
    bool again = true;
    if (!p->think && !p->calls)
        return td_buf_add(&p->text[p->part], text, n);
    td_buf_add(&p->held, text, n);
    while (again && s == TD_OK)
        again = p->in_call ? take_call(p) : take_text(p, &s);
    return s == TD_OK ? status_of(p) : s;
}

enum td_status td_parts_end(struct td_parts *p)
{
    if (p->in_call) {
        struct td_call *c = &p->call[p->n_calls - 1];
        if (!td_call_parser_end(&p->parser, p->held.p, p->held.len, c)) {
            td_call_release(c);
            p->n_calls--;
        }
        td_buf_clear(&p->held);
        p->in_call = false;
    }
    if (p->n_calls > 0 && without_space(p, p->held.len) == 0)
        td_buf_clear(&p->held); /* line breaks behind the last call */
    show(p, p->held.len);
    return status_of(p);
}

int td_parts_calls_done(const struct td_parts *p)
{
    int n = p->n_calls;
    while (n > 0 && !p->call[n - 1].done)
        n--;
    return n;
}

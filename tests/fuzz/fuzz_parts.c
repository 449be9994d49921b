/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reasoning and tool calls in a model's text: cut at places that the first bytes choose,
 * the result is that of the whole text, no tag is shown, arguments are JSON.
 */
#include "api/parts.h"
#include "api/stops.h"
#include "base/json.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static json_t *tools(void)
{
    return json_pack("[{s:{s:s, s:{s:{s:{s:s}, s:{s:s}, s:{s:[s,s]}}}}}]", "function",
                     "name", "f", "parameters", "properties", "s", "type", "string",
                     "i", "type", "integer", "u", "type", "string", "null");
}

static void feed(struct td_parts *p, const char *text, size_t n, size_t piece)
{
    for (size_t at = 0; at < n;) {
        size_t end = at + piece < n ? at + piece : n;
        while (end < n && ((unsigned char)text[end] & 0xC0) == 0x80)
            end++;
        if (td_parts_add(p, text + at, end - at) != TD_OK)
            abort();
        at = end;
    }
    if (td_parts_end(p) != TD_OK)
        abort();
}

static void same(const struct td_buf *a, const struct td_buf *b)
{
    if (a->len != b->len || memcmp(a->p, b->p, a->len) != 0)
        abort();
}

static void check(const struct td_parts *a, const struct td_parts *b)
{
    same(&a->text[0], &b->text[0]);
    same(&a->text[1], &b->text[1]);
    if (a->n_calls != b->n_calls)
        abort();
    for (int i = 0; i < a->n_calls; i++) {
        json_t *v = NULL;
        same(&a->call[i].name, &b->call[i].name);
        same(&a->call[i].args, &b->call[i].args);
        if (td_json_parse(a->call[i].args.p, a->call[i].args.len, "args", &v, NULL) !=
                TD_OK ||
            !json_is_object(v))
            abort();
        json_decref(v);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct td_parts whole, pieces;
    if (n < 2 || !td_utf8_valid((const char *)data + 1, n - 1) ||
        memchr(data + 1, 0, n - 1))
        return 0; /* the detokenizer gives whole characters */
    json_t *t = tools();
    enum td_part first = data[0] & 1 ? TD_PART_REASONING : TD_PART_CONTENT;
    const char *text = (const char *)data + 1;
    td_parts_init(&whole, true, t, first);
    td_parts_init(&pieces, true, t, first);
    feed(&whole, text, n - 1, n);
    feed(&pieces, text, n - 1, (size_t)(data[0] >> 1) % 16 + 1);
    check(&whole, &pieces);
    td_parts_release(&whole);
    td_parts_release(&pieces);
    json_decref(t);
    return 0;
}

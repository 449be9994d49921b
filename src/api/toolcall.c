/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen's tool calls. See toolcall.h.
 */
#include "api/toolcall.h"

#include "api/stops.h"
#include "base/json.h"
#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

enum {
    T_STRING = 1,
    T_INTEGER = 2,
    T_NUMBER = 4,
    T_BOOLEAN = 8,
    T_OBJECT = 16,
    T_ARRAY = 32,
    T_NULL = 64
};

enum { SCHEMA_DEPTH = 8 };

#define TAG(text) text, sizeof(text) - 1

/* What ends a value; a missing </parameter> is forgiven at the start of a line. */
static const struct tag {
    const char *text;
    size_t n;
    bool eat; /* the tag belongs to the value */
} value_ends[] = {{TAG("\n</parameter>"), true},
                  {TAG("</parameter>"), true},
                  {TAG("\n<parameter="), false},
                  {TAG("\n</function>"), false},
                  {TAG("\n</tool_call>"), false}};

void td_call_init(struct td_call *c)
{
    td_buf_init(&c->name, TD_MAX_TOOL_NAME);
    td_buf_init(&c->args, TD_MAX_TEXT);
    c->done = false;
}

void td_call_release(struct td_call *c)
{
    td_buf_release(&c->name);
    td_buf_release(&c->args);
}

void td_call_parser_init(struct td_call_parser *p, const json_t *tools)
{
    memset(p, 0, sizeof(*p));
    p->tools = tools;
    td_arena_init(&p->keys, 1 * TD_MIB);
    td_buf_init(&p->value, TD_MAX_TEXT);
}

void td_call_parser_release(struct td_call_parser *p)
{
    td_arena_release(&p->keys);
    td_buf_release(&p->value);
}

void td_call_parser_begin(struct td_call_parser *p)
{
    p->state = TD_CALL_HEAD;
    p->schema = NULL;
    p->n_keys = 0;
    td_arena_release(&p->keys);
    td_arena_init(&p->keys, 1 * TD_MIB);
    p->key = td_arena_alloc(&p->keys, TD_MAX_ARGUMENTS, sizeof(*p->key));
}

/* ---- schemas ----------------------------------------------------------------------- */

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"string", T_STRING},   {"integer", T_INTEGER}, {"number", T_NUMBER},
                 {"boolean", T_BOOLEAN}, {"object", T_OBJECT},   {"array", T_ARRAY},
                 {"null", T_NULL}};
    for (size_t i = 0; name && i < TD_COUNT(types); i++)
        if (strcmp(name, types[i].name) == 0)
            return types[i].type;
    return 0;
}

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return T_STRING;
    case JSON_INTEGER:
        return T_INTEGER | T_NUMBER;
    case JSON_REAL:
        return T_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return T_BOOLEAN;
    case JSON_OBJECT:
        return T_OBJECT;
    case JSON_ARRAY:
        return T_ARRAY;
    default:
        return T_NULL;
    }
}

/* "#/$defs/Name" within the function's parameters. */
static const json_t *follow_ref(const json_t *root, const char *ref)
{
    static const char *const lists[] = {"$defs", "definitions"};
    const char *name = ref ? strrchr(ref, '/') : NULL;
    for (size_t i = 0; name && i < TD_COUNT(lists); i++) {
        const json_t *found =
            json_object_get(json_object_get(root, lists[i]), name + 1);
        if (found)
            return found;
    }
    return NULL;
}

static unsigned enum_types(const json_t *values)
{
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(values); i++)
        types |= type_of(json_array_get(values, i));
    return types;
}

/* Types that a schema allows, 0 when it does not say. */
static unsigned schema_types(const json_t *root, const json_t *schema, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    const json_t *type = json_object_get(schema, "type");
    const json_t *constant = json_object_get(schema, "const");
    unsigned types = type_named(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(json_string_value(json_array_get(type, i)));
    if (types || depth == 0)
        return types;
    if (constant)
        return type_of(constant);
    types = enum_types(json_object_get(schema, "enum"));
    for (size_t u = 0; u < TD_COUNT(unions); u++) {
        const json_t *list = json_object_get(schema, unions[u]);
        for (size_t i = 0; i < json_array_size(list); i++)
            types |= schema_types(root, json_array_get(list, i), depth - 1);
    }
    const json_t *ref =
        follow_ref(root, json_string_value(json_object_get(schema, "$ref")));
    return ref ? types | schema_types(root, ref, depth - 1) : types;
}

static const json_t *find_schema(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *fn = json_object_get(tool, "function");
        const json_t *at = fn ? fn : tool;
        const char *its = json_string_value(json_object_get(at, "name"));
        if (its && strcmp(its, name) == 0)
            return json_object_get(at, "parameters");
    }
    return NULL;
}

/* ---- values ------------------------------------------------------------------------ */

/* Appends text to an open JSON string. */
static void add_text(struct td_buf *out, const char *text, size_t n)
{
    struct td_buf quoted;
    td_buf_init(&quoted, 8 * (size_t)TD_MAX_TEXT);
    if (td_json_add_string(&quoted, text, n) == TD_OK)
        td_buf_add(out, quoted.p + 1, quoted.len - 2);
    else
        out->status = quoted.status;
    td_buf_release(&quoted);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The JSON form of a value that is not a string: its own text when that is JSON of an
 * allowed type; False, True and None are forgiven. NULL: it is a string after all. */
static const char *plain_form(unsigned types, const char *text, size_t n, size_t *len)
{
    static const char *const words[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    json_t *v = NULL;
    for (size_t i = 0; i < TD_COUNT(words); i++)
        if (n == strlen(words[i][0]) && memcmp(text, words[i][0], n) == 0) {
            text = words[i][1];
            n = strlen(text);
        }
    *len = n;
    if (n == 0 || td_json_parse(text, n, "value", &v, NULL) != TD_OK)
        return NULL;
    unsigned is = type_of(v);
    double d = json_is_real(v) ? json_real_value(v) : 0.5;
    if (json_is_real(v) && d >= -1e15 && d <= 1e15 && (double)(long long)d == d)
        is |= T_INTEGER; /* 5.0 is an integer to JSON schema */
    json_decref(v);
    return is & types ? text : NULL;
}

static void add_value(struct td_buf *out, unsigned types, const char *text, size_t n)
{
    size_t from = 0, to = n, len;
    while (from < to && is_space(text[from]))
        from++;
    while (to > from && is_space(text[to - 1]))
        to--;
    const char *plain = plain_form(types, text + from, to - from, &len);
    if (plain)
        td_buf_add(out, plain, len);
    else
        td_json_add_string(out, text, n);
}

static bool streams(const struct td_call_parser *p)
{
    return p->types == T_STRING;
}

static void value_text(struct td_call_parser *p, const char *text, size_t n,
                       struct td_call *out)
{
    if (p->skip)
        return;
    if (streams(p))
        add_text(&out->args, text, n);
    else
        td_buf_add(&p->value, text, n);
}

static void value_end(struct td_call_parser *p, struct td_call *out)
{
    if (!p->skip && streams(p))
        td_buf_addc(&out->args, '"');
    else if (!p->skip)
        add_value(&out->args, p->types, p->value.p, p->value.len);
    td_buf_clear(&p->value);
    p->state = TD_CALL_BODY;
}

/* ---- the stages -------------------------------------------------------------------- */

static size_t spaces(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && is_space(text[i]))
        i++;
    return i;
}

/* Does text begin with the tag (1), or end before it can tell (0)? -1: neither. */
static int begins(const char *text, size_t n, const char *tag, size_t tag_n)
{
    size_t k = TD_MIN(n, tag_n);
    if (memcmp(text, tag, k) != 0)
        return -1;
    return n >= tag_n;
}

/* <function=NAME>, complete or not at all. */
static enum td_call_result head(struct td_call_parser *p, const char *text, size_t n,
                                size_t *used, struct td_call *out)
{
    static const char tag[] = "<function=";
    size_t at = spaces(text, n), tag_n = sizeof(tag) - 1;
    int is = begins(text + at, n - at, tag, tag_n);
    if (is <= 0)
        return is < 0 || at > TD_MAX_TOOL_NAME ? TD_CALL_NONE : TD_CALL_MORE;
    at += tag_n;
    size_t end = at;
    while (end < n && text[end] != '>' && text[end] != '<' && text[end] != '\n')
        end++;
    if (end - at > TD_MAX_TOOL_NAME || (end < n && (text[end] != '>' || end == at)))
        return TD_CALL_NONE;
    if (end == n)
        return TD_CALL_MORE;
    td_buf_add(&out->name, text + at, end - at);
    td_buf_addc(&out->args, '{');
    p->schema = find_schema(p->tools, out->name.p);
    p->state = TD_CALL_BODY;
    *used = end + 1;
    return TD_CALL_MORE;
}

static void begin_value(struct td_call_parser *p, const char *key, size_t n,
                        struct td_call *out)
{
    const char *name = td_arena_strndup(&p->keys, key, n);
    p->skip = !name || !p->key || p->n_keys >= TD_MAX_ARGUMENTS;
    for (int i = 0; i < p->n_keys && !p->skip; i++)
        p->skip = strcmp(p->key[i], name) == 0;
    p->state = TD_CALL_BREAK;
    if (p->skip)
        return;
    const json_t *props = json_object_get(p->schema, "properties");
    p->types = schema_types(p->schema, json_object_get(props, name), SCHEMA_DEPTH);
    if (!p->types)
        p->types = T_STRING;
    td_buf_adds(&out->args, p->n_keys ? ", " : "");
    td_json_add_string(&out->args, name, strlen(name));
    td_buf_adds(&out->args, streams(p) ? ": \"" : ": ");
    p->key[p->n_keys++] = name;
}

/* Between parameters; what is no tag there is passed over. */
static enum td_call_result body(struct td_call_parser *p, const char *text, size_t n,
                                size_t *used, struct td_call *out)
{
    static const char param[] = "<parameter=", close[] = "</function>",
                      end[] = "</tool_call>";
    size_t at = spaces(text, n), left = n - at;
    const char *t = text + at;
    int is_param = begins(t, left, param, sizeof(param) - 1);
    int is_close = begins(t, left, close, sizeof(close) - 1);
    int is_end = begins(t, left, end, sizeof(end) - 1);
    *used = at;
    if (is_close > 0 || is_end > 0) {
        td_buf_addc(&out->args, '}');
        out->done = true;
        p->state = TD_CALL_CLOSING;
        *used += is_close > 0 ? sizeof(close) - 1 : 0;
    } else if (is_param > 0) {
        size_t from = sizeof(param) - 1, to = from;
        while (to < left && t[to] != '>' && to - from <= TD_MAX_TOOL_NAME)
            to++;
        if (to == left)
            return TD_CALL_MORE;
        begin_value(p, t + from, to - from, out);
        *used += to + (t[to] == '>');
    } else if (left > 0 && is_param < 0 && is_close < 0 && is_end < 0) {
        *used += 1;
    }
    return TD_CALL_MORE;
}

static enum td_call_result value(struct td_call_parser *p, const char *text, size_t n,
                                 size_t *used, struct td_call *out)
{
    size_t first = n, keep = 0;
    const struct tag *end = NULL;
    for (size_t i = 0; i < TD_COUNT(value_ends); i++) {
        const struct tag *t = &value_ends[i];
        size_t at = td_find_text(text, n, t->text, t->n);
        size_t tail = td_tail_match(text, n, t->text, t->n);
        keep = TD_MAX(keep, tail);
        if (at < first) {
            first = at;
            end = t;
        }
    }
    *used = end ? first : n - keep;
    value_text(p, text, *used, out);
    if (end) {
        value_end(p, out);
        *used += end->eat ? end->n : 1;
    }
    return TD_CALL_MORE;
}

static enum td_call_result closing(const char *text, size_t n, size_t *used)
{
    static const char end[] = "</tool_call>";
    size_t at = spaces(text, n);
    int is = begins(text + at, n - at, end, sizeof(end) - 1);
    if (is == 0)
        return TD_CALL_MORE;
    *used = is > 0 ? at + sizeof(end) - 1 : 0;
    return TD_CALL_DONE;
}

static enum td_call_result stage(struct td_call_parser *p, const char *text, size_t n,
                                 size_t *used, struct td_call *out)
{
    *used = 0;
    switch (p->state) {
    case TD_CALL_HEAD:
        return head(p, text, n, used, out);
    case TD_CALL_BODY:
        return body(p, text, n, used, out);
    case TD_CALL_BREAK:
        if (n > 0) {
            *used = text[0] == '\n';
            p->state = TD_CALL_VALUE;
        }
        return TD_CALL_MORE;
    case TD_CALL_VALUE:
        return value(p, text, n, used, out);
    default:
        return closing(text, n, used);
    }
}

enum td_call_result td_call_parser_add(struct td_call_parser *p, const char *text,
                                       size_t n, size_t *used, struct td_call *out)
{
    enum td_call_result r = TD_CALL_MORE;
    enum td_call_state before;
    size_t step;
    *used = 0;
    do {
        before = p->state;
        r = stage(p, text + *used, n - *used, &step, out);
        *used += step;
    } while (r == TD_CALL_MORE && (step > 0 || p->state != before));
    return r;
}

bool td_call_parser_end(struct td_call_parser *p, const char *text, size_t n,
                        struct td_call *out)
{
    if (p->state == TD_CALL_HEAD)
        return false;
    if (p->state == TD_CALL_VALUE)
        value_text(p, text, n, out);
    if (p->state == TD_CALL_VALUE || p->state == TD_CALL_BREAK)
        value_end(p, out);
    if (!out->done)
        td_buf_addc(&out->args, '}');
    out->done = true;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON on top of jansson. See json.h. Nesting is checked before jansson sees the text,
 * because its own limit is far higher than any document needs.
 */
#include "base/json.h"

#include "base/file.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <string.h>

static enum td_status check_depth(const char *text, size_t n, const char *where,
                                  struct td_error *err)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > TD_MAX_JSON_DEPTH)
                return td_error_set(err, TD_E_JSON, "%s: nested deeper than %d levels",
                                    where, TD_MAX_JSON_DEPTH);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return TD_OK;
}

/* jansson's own words, but for one that speaks of its flags. */
static const char *wording(const json_error_t *je)
{
    enum json_error_code code = json_error_code(je);
    if (code == json_error_null_character || code == json_error_null_byte_in_key)
        return "a string with \\u0000, which no text has";
    return je->text;
}

static enum td_status parse(const char *text, size_t n, size_t flags, const char *where,
                            json_t **out, struct td_error *err)
{
    json_error_t je;
    enum td_status s = check_depth(text, n, where, err);
    if (s != TD_OK)
        return s;
    if (n == 0) {
        td_error_set(err, TD_E_JSON, "%s: line 1, column 0: it is empty", where);
        td_error_why(err, "a download or copy did not finish");
        return TD_E_JSON;
    }
    flags |= JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
    json_t *root = json_loadb(text, n, flags, &je);
    if (!root && json_error_code(&je) == json_error_out_of_memory)
        return td_error_set(err, TD_E_NOMEM, "%s: no memory to parse it", where);
    if (!root)
        return td_error_set(err, TD_E_JSON, "%s: line %d, column %d: %s", where,
                            je.line, je.column, wording(&je));
    *out = root;
    return TD_OK;
}

enum td_status td_json_parse(const char *text, size_t n, const char *where,
                             json_t **out, struct td_error *err)
{
    return parse(text, n, 0, where, out, err);
}

enum td_status td_json_parse_nul(const char *text, size_t n, const char *where,
                                 json_t **out, struct td_error *err)
{
    return parse(text, n, JSON_ALLOW_NUL, where, out, err);
}

enum td_status td_json_read(const char *path, size_t max, json_t **out,
                            struct td_error *err)
{
    struct td_buf b;
    td_buf_init(&b, max);
    enum td_status s = td_file_read(path, &b, err);
    if (s == TD_OK)
        s = td_json_parse(b.p, b.len, path, out, err);
    td_buf_release(&b);
    return s;
}

/* The value, or NULL when it is absent or null. */
static const json_t *lookup(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_null(v) ? NULL : v;
}

/* The beginning of a dumped value; json_dumpb() would leave holes in a short buffer. */
struct shown {
    char text[64];
    size_t len;
};

static int show(const char *part, size_t n, void *data)
{
    struct shown *s = data;
    size_t room = sizeof(s->text) - 1 - s->len;
    memcpy(s->text + s->len, part, TD_MIN(n, room));
    s->len += TD_MIN(n, room);
    if (n > room)
        memcpy(s->text + sizeof(s->text) - 4, "...", 4);
    return 0;
}

enum td_status td_json_refuse(const json_t *v, const char *key, const char *where,
                              const char *expected, struct td_error *err)
{
    struct shown s = {.len = 0};
    (void)json_dump_callback(
        v, show, &s, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    return td_error_set(err, TD_E_CONFIG, "%s: \"%s\" is %s, expected %s", where, key,
                        s.text, expected);
}

enum td_status td_json_int(const json_t *obj, const char *key, const char *where,
                           int64_t lo, int64_t hi, int64_t absent, int64_t *out,
                           struct td_error *err)
{
    const json_t *v = lookup(obj, key);
    if (!v) {
        *out = absent;
        return TD_OK;
    }
    bool whole =
        json_is_integer(v) ||
        (json_is_real(v) && json_real_value(v) > -9e15 && json_real_value(v) < 9e15 &&
         (double)(int64_t)json_real_value(v) == json_real_value(v));
    int64_t x = json_is_integer(v) ? json_integer_value(v)
                                   : (whole ? (int64_t)json_real_value(v) : 0);
    if (!whole || x < lo || x > hi) {
        char want[96];
        (void)snprintf(want, sizeof(want), "a whole number from %lld to %lld",
                       (long long)lo, (long long)hi);
        return td_json_refuse(v, key, where, want, err);
    }
    *out = x;
    return TD_OK;
}

enum td_status td_json_double(const json_t *obj, const char *key, const char *where,
                              double lo, double hi, double absent, double *out,
                              struct td_error *err)
{
    const json_t *v = lookup(obj, key);
    if (!v) {
        *out = absent;
        return TD_OK;
    }
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= lo && x <= hi)) {
        char want[96];
        (void)snprintf(want, sizeof(want), "a number from %g to %g", lo, hi);
        return td_json_refuse(v, key, where, want, err);
    }
    *out = x;
    return TD_OK;
}

enum td_status td_json_bool(const json_t *obj, const char *key, const char *where,
                            bool absent, bool *out, struct td_error *err)
{
    const json_t *v = lookup(obj, key);
    if (v && !json_is_boolean(v))
        return td_json_refuse(v, key, where, "true or false", err);
    *out = v ? json_is_true(v) : absent;
    return TD_OK;
}

enum td_status td_json_str(const json_t *obj, const char *key, const char *where,
                           const char *absent, const char **out, struct td_error *err)
{
    const json_t *v = lookup(obj, key);
    if (v && !json_is_string(v))
        return td_json_refuse(v, key, where, "a string", err);
    *out = v ? json_string_value(v) : absent;
    return TD_OK;
}

enum td_status td_json_add_string(struct td_buf *b, const char *s, size_t n)
{
    td_buf_addc(b, '"');
    for (size_t i = 0; i < n && b->status == TD_OK;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = td_utf8_len(s + i, n - i);
        if (c == '"' || c == '\\')
            td_buf_addf(b, "\\%c", c);
        else if (c == '\n')
            td_buf_adds(b, "\\n");
        else if (c < 0x20 || c == 0x7F)
            td_buf_addf(b, "\\u%04x", c);
        else if (len == 0)
            td_buf_adds(b, "\xEF\xBF\xBD");
        else
            td_buf_add(b, s + i, len);
        i += len ? len : 1;
    }
    return td_buf_addc(b, '"');
}

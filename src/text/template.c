/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: parse, load from a model directory, render. See template.h.
 *
 *     template.c  the functions others call          template_render.c  limits, buffers
 *     template_lex.c  template_parse.c  template_expr.c            source to tree
 *     template_eval.c  template_exec.c  template_loop.c            running the tree
 *     template_value.c  _iter.c  _ops.c  _access.c  _print.c       Python's values
 *     template_call.c  _globals.c  _filters.c  _seq.c  _tests.c    what can be called
 *     template_utf8.c  _case.c  _str.c  _num.c  _format.c  _json.c  text and numbers
 */
#include "text/template.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/template_tree.h"
#include "text/template_value.h"

#include <string.h>

/* ---- parsing --------------------------------------------------------------------- */

/* A copy with \n as the only line end, and without the last one, as jinja2 has it. */
static char *normalise(struct td_arena *a, const char *source, size_t len, size_t *out)
{
    char *copy = td_arena_alloc(a, len + 1, 1);
    size_t n = 0;
    for (size_t i = 0; copy && i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n && copy[n - 1] == '\n')
        n--;
    *out = n;
    return copy;
}

enum td_status td_template_new(const char *source, size_t len, const char *name,
                               struct td_template **out, struct td_error *err)
{
    enum td_status s;
    char *copy = NULL;
    if (len > (size_t)TD_MAX_TEMPLATE_FILE)
        return td_error_set(err, TD_E_LIMIT,
                            "%s: %zu bytes are more than a template may have "
                            "(TD_MAX_TEMPLATE_FILE, %lld)",
                            name, len, TD_MAX_TEMPLATE_FILE);
    if (!td_utf8_valid(source, len))
        return td_template_invalid(err, name, 1, "the source is not UTF-8");
    struct td_template *t = td_calloc(1, sizeof(*t));
    if (!t)
        return td_error_set(err, TD_E_NOMEM, "%s: no memory to parse it", name);
    td_arena_init(&t->arena, (size_t)TD_MAX_TEMPLATE_TREE);
    t->name = td_arena_strndup(&t->arena, name, strlen(name));
    if (t->name)
        copy = normalise(&t->arena, source, len, &len);
    if (copy)
        s = td_template_parse(t, copy, len, err);
    else
        s = td_error_set(err, t->arena.status, "%s: no memory to parse it", name);
    if (s == TD_OK)
        *out = t;
    else
        td_template_free(t);
    return s;
}

void td_template_free(struct td_template *t)
{
    if (!t)
        return;
    td_template_free(t->tool_use);
    td_arena_release(&t->arena);
    td_free(t);
}

/* ---- loading --------------------------------------------------------------------- */

static enum td_status from_file(const char *path, struct td_template **out,
                                struct td_error *err)
{
    struct td_buf b;
    td_buf_init(&b, (size_t)TD_MAX_TEMPLATE_FILE);
    enum td_status s = td_file_read(path, &b, err);
    if (s == TD_OK)
        s = td_template_new(b.p, b.len, path, out, err);
    td_buf_release(&b);
    return s;
}

static enum td_status from_json(const json_t *text, const char *path,
                                struct td_template **out, struct td_error *err)
{
    return td_template_new(json_string_value(text), json_string_length(text), path, out,
                           err);
}

/* The template of that name in a list of {name, template}; NULL: none. */
static const json_t *named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *n = json_string_value(json_object_get(entry, "name"));
        const json_t *text = json_object_get(entry, "template");
        if (n && strcmp(n, name) == 0 && json_is_string(text))
            return text;
    }
    return NULL;
}

static enum td_status no_template(const char *dir, struct td_error *err)
{
    td_error_set(err, TD_E_NOT_FOUND, "%s has no chat template", dir);
    td_error_why(err, "there is no chat_template.jinja in it, and no usable "
                      "chat_template in tokenizer_config.json");
    td_error_fix(err, "add the model's chat_template.jinja; base models have none");
    return TD_E_NOT_FOUND;
}

static enum td_status from_config(const char *dir, const char *path,
                                  struct td_template **out, struct td_error *err)
{
    json_t *config = NULL;
    struct td_template *t = NULL;
    if (!td_file_exists(path))
        return no_template(dir, err);
    enum td_status s = td_json_read(path, (size_t)TD_MAX_JSON_FILE, &config, err);
    if (s != TD_OK)
        return s;
    const json_t *field = json_object_get(config, "chat_template");
    const json_t *text = json_is_array(field) ? named(field, "default") : field;
    const json_t *tools = json_is_array(field) ? named(field, "tool_use") : NULL;
    if (!json_is_string(text))
        s = no_template(dir, err);
    else
        s = from_json(text, path, &t, err);
    struct td_template *tool_use = NULL;
    if (s == TD_OK && tools)
        s = from_json(tools, path, &tool_use, err);
    if (t)
        t->tool_use = tool_use;
    if (s == TD_OK)
        *out = t;
    else
        td_template_free(t);
    json_decref(config);
    return s;
}

enum td_status td_template_load(const char *dir, struct td_template **out,
                                struct td_error *err)
{
    char path[TD_MAX_PATH];
    struct td_template *t = NULL;
    enum td_status s =
        td_path_join(path, sizeof(path), dir, "chat_template.jinja", err);
    if (s != TD_OK)
        return s;
    if (!td_file_exists(path)) {
        s = td_path_join(path, sizeof(path), dir, "tokenizer_config.json", err);
        return s == TD_OK ? from_config(dir, path, out, err) : s;
    }
    s = from_file(path, &t, err);
    if (s == TD_OK)
        s = td_path_join(path, sizeof(path), dir,
                         "additional_chat_templates/tool_use.jinja", err);
    struct td_template *tool_use = NULL;
    if (s == TD_OK && td_file_exists(path))
        s = from_file(path, &tool_use, err);
    if (t)
        t->tool_use = tool_use;
    if (s == TD_OK)
        *out = t;
    else
        td_template_free(t);
    return s;
}

/* ---- rendering ------------------------------------------------------------------- */

/* Gives every name of the template its value from outside. */
static void read_context(struct td_render *r, const json_t *context)
{
    const struct td_template *t = r->t;
    r->globals = td_render_alloc(r, t->nnames + 1, sizeof(*r->globals));
    r->outside = td_render_alloc(r, t->nnames + 1, sizeof(*r->outside));
    for (size_t i = 0; i < t->nnames && td_render_ok(r); i++) {
        const json_t *j = json_object_get(context, t->names[i]);
        const struct td_builtin *f = td_global_find(t->names[i], strlen(t->names[i]));
        if (j)
            r->outside[i] = td_value_from_json(r, j);
        else if (f)
            r->outside[i] = (struct td_value){.kind = TD_V_FUNC, .u.func = f};
    }
}

enum td_status td_template_render(const struct td_template *t, const json_t *context,
                                  struct td_buf *out, struct td_error *err)
{
    const json_t *tools = json_object_get(context, "tools");
    size_t before = out->len;
    if (t->tool_use && tools && !json_is_null(tools))
        t = t->tool_use;
    if (!json_is_object(context))
        return td_error_set(err, TD_E_INPUT, "%s: the context is not a JSON object",
                            t->name);
    if (out->status != TD_OK)
        return td_error_set(err, out->status, "%s: the output buffer has failed before",
                            t->name);
    struct td_render r = {.t = t, .err = err, .out = out, .line = 1};
    r.seed = (uint32_t)td_clock_ns() * 0x9E3779B9u;
    td_arena_init(&r.arena, (size_t)TD_MAX_TEMPLATE_MEMORY);
    read_context(&r, context);
    if (td_render_ok(&r))
        (void)td_exec(&r, t->body, NULL);
    for (struct td_capture *c = r.captures; c; c = c->all)
        td_buf_release(&c->buf);
    td_arena_release(&r.arena);
    if (r.status != TD_OK) {
        out->status = TD_OK;
        td_buf_set_len(out, before);
    }
    return r.status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * render TEMPLATE CONTEXT: prints what a chat template makes of a context.
 *
 * TEMPLATE is a file of template source or a model directory, CONTEXT a JSON file with
 * the variables (messages, tools, add_generation_prompt, ...), or - for standard input.
 * Compare it with jinja2 when a template looks wrong. With --batch, reads one JSON
 * object {"template", "context"} a line from standard input and answers each with a
 * line {"output"} or {"error": {"what", "why"}}.
 */
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "text/template.h"

#include <stdio.h>
#include <string.h>

static int complain(const struct td_error *err)
{
    (void)fprintf(stderr, "error   %s\ncause   %s\n", err->what, err->why);
    return 1;
}

static enum td_status open_template(const char *path, struct td_template **t,
                                    struct td_error *err)
{
    if (td_file_is_dir(path))
        return td_template_load(path, t, err);
    struct td_buf b;
    td_buf_init(&b, (size_t)TD_MAX_TEMPLATE_FILE);
    enum td_status s = td_file_read(path, &b, err);
    if (s == TD_OK)
        s = td_template_new(b.p, b.len, path, t, err);
    td_buf_release(&b);
    return s;
}

static enum td_status read_all(FILE *f, struct td_buf *b)
{
    char piece[4096];
    size_t n;
    while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
        td_buf_add(b, piece, n);
    return b->status;
}

static enum td_status read_context(const char *path, json_t **out, struct td_error *err)
{
    if (strcmp(path, "-") != 0)
        return td_json_read(path, (size_t)TD_MAX_JSON_FILE, out, err);
    struct td_buf b;
    td_buf_init(&b, (size_t)TD_MAX_JSON_FILE);
    enum td_status s = read_all(stdin, &b);
    if (s == TD_OK)
        s = td_json_parse(b.p, b.len, "standard input", out, err);
    td_buf_release(&b);
    return s;
}

static void answer(const json_t *job, struct td_buf *line)
{
    struct td_error err;
    struct td_template *t = NULL;
    struct td_buf text;
    const json_t *source = json_object_get(job, "template");
    td_error_init(&err);
    td_buf_init(&text, (size_t)TD_MAX_TEMPLATE_OUTPUT);
    enum td_status s = td_template_new(json_string_value(source),
                                       json_string_length(source), "t", &t, &err);
    if (s == TD_OK)
        s = td_template_render(t, json_object_get(job, "context"), &text, &err);
    if (s == TD_OK) {
        td_buf_adds(line, "{\"output\": ");
        td_json_add_string(line, text.p, text.len);
    } else {
        td_buf_adds(line, "{\"error\": {\"what\": ");
        td_json_add_string(line, err.what, strlen(err.what));
        td_buf_adds(line, ", \"why\": ");
        td_json_add_string(line, err.why, strlen(err.why));
        td_buf_adds(line, "}");
    }
    td_buf_adds(line, "}\n");
    td_buf_release(&text);
    td_template_free(t);
}

/* Returns the number of lines that were no job. */
static int batch(void)
{
    struct td_buf in, out;
    int bad = 0;
    td_buf_init(&in, (size_t)TD_MAX_JSON_FILE);
    td_buf_init(&out, (size_t)TD_GIB);
    if (read_all(stdin, &in) != TD_OK)
        bad = 1;
    for (const char *p = in.p, *nl; bad == 0 && (nl = strchr(p, '\n')); p = nl + 1) {
        json_t *job = NULL;
        struct td_error err;
        td_error_init(&err);
        if (td_json_parse(p, (size_t)(nl - p), "job", &job, &err) != TD_OK) {
            bad += complain(&err);
            continue;
        }
        answer(job, &out);
        json_decref(job);
    }
    (void)fwrite(out.p, 1, out.len, stdout);
    td_buf_release(&in);
    td_buf_release(&out);
    return bad;
}

int main(int argc, char **argv)
{
    struct td_error err;
    struct td_template *t = NULL;
    json_t *context = NULL;
    struct td_buf out;
    if (argc == 2 && strcmp(argv[1], "--batch") == 0)
        return batch() != 0;
    if (argc != 3) {
        (void)fprintf(stderr, "usage: render TEMPLATE CONTEXT | render --batch\n");
        return 2;
    }
    td_error_init(&err);
    td_buf_init(&out, (size_t)TD_MAX_TEMPLATE_OUTPUT);
    enum td_status s = open_template(argv[1], &t, &err);
    if (s == TD_OK)
        s = read_context(argv[2], &context, &err);
    if (s == TD_OK)
        s = td_template_render(t, context, &out, &err);
    if (s == TD_OK)
        (void)fwrite(out.p, 1, out.len, stdout);
    td_buf_release(&out);
    td_template_free(t);
    json_decref(context);
    return s == TD_OK ? 0 : complain(&err);
}

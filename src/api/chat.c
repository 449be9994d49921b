/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chats: messages and tools to the template's context, its text to token ids.
 *
 * Messages are rebuilt for the template rather than passed on: content parts become one
 * text, `developer` becomes `system`, the arguments of earlier tool calls become objects
 * again (templates list them one by one), reasoning goes by one name.
 */
#include "api/request.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static const json_t *present(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static bool no_memory(struct td_refusal *no)
{
    td_refuse(no, 500, NULL, "no memory for this request");
    no->type = "server_error";
    return false;
}

/* A field of message i by its full name, such as messages[2].content. */
struct place {
    char name[64];
};

static struct place place_of(size_t i, const char *field)
{
    struct place p;
    (void)snprintf(p.name, sizeof(p.name), "messages[%zu]%s%s", i, *field ? "." : "",
                   field);
    return p;
}

/* ---- content ----------------------------------------------------------------------- */

static bool add_part(struct td_buf *text, const json_t *part, const char *param,
                     struct td_refusal *no)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *value = json_object_get(part, "text");
    if (json_is_string(part))
        value = part;
    else if (type && strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 &&
             strcmp(type, "refusal") != 0)
        return td_refuse(no, 400, param,
                         "request: %s has a part of type %.40s; only text is supported",
                         param, type);
    else if (type && strcmp(type, "refusal") == 0)
        value = json_object_get(part, "refusal");
    if (!json_is_string(value))
        return td_refuse(no, 400, param, "request: %s has a part without text", param);
    td_buf_add(text, json_string_value(value), json_string_length(value));
    return true;
}

/* The text of a content; null and absent are "" where that is allowed. */
static bool read_content(const json_t *content, const char *param, bool needed,
                         struct td_buf *text, struct td_refusal *no)
{
    td_buf_clear(text);
    if (!content && needed)
        return td_refuse(no, 400, param, "request: %s is missing", param);
    if (json_is_string(content))
        td_buf_add(text, json_string_value(content), json_string_length(content));
    else if (content && !json_is_array(content))
        return td_refuse(no, 400, param,
                         "request: %s must be a text or a list of text parts", param);
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!add_part(text, json_array_get(content, i), param, no))
            return false;
    return text->status == TD_OK || no_memory(no);
}

static bool put_text(json_t *o, const char *key, const struct td_buf *text)
{
    return json_object_set_new(o, key, json_stringn(text->p, text->len)) == 0;
}

/* ---- assistant messages ------------------------------------------------------------- */

/* The arguments of an earlier call: JSON text, or an object already. */
static json_t *read_arguments(const json_t *v)
{
    json_t *o = NULL;
    if (json_is_object(v))
        return json_incref((json_t *)(uintptr_t)v);
    if (!v || json_is_null(v) || (json_is_string(v) && json_string_length(v) == 0))
        return json_object();
    if (!json_is_string(v))
        return NULL;
    if (td_json_parse(json_string_value(v), json_string_length(v), "arguments", &o,
                      NULL) != TD_OK)
        return NULL;
    if (json_is_object(o))
        return o;
    json_decref(o);
    return NULL;
}

static bool add_call(json_t *list, const json_t *call, const char *param,
                     struct td_refusal *no)
{
    const json_t *fn = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(fn, "name"));
    const json_t *id = json_object_get(call, "id");
    if (!name)
        return td_refuse(no, 400, param, "request: %s has a call without a name",
                         param);
    json_t *args = read_arguments(json_object_get(fn, "arguments"));
    if (!args)
        return td_refuse(no, 400, param,
                         "request: %s: the arguments of %.100s are no JSON object",
                         param, name);
    json_t *o = json_pack("{s:s, s:{s:s, s:o}}", "type", "function", "function", "name",
                          name, "arguments", args);
    if (!o)
        return no_memory(no);
    if (json_is_string(id))
        json_object_set(o, "id", (json_t *)(uintptr_t)id);
    return json_array_append_new(list, o) == 0 || no_memory(no);
}

static bool add_calls(json_t *to, const json_t *calls, size_t at, struct td_refusal *no)
{
    struct place p = place_of(at, "tool_calls");
    if (!calls || (json_is_array(calls) && json_array_size(calls) == 0))
        return true;
    if (!json_is_array(calls))
        return td_refuse(no, 400, p.name, "request: %s must be a list", p.name);
    json_t *list = json_array();
    if (!list || json_object_set_new(to, "tool_calls", list) != 0)
        return no_memory(no);
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!add_call(list, json_array_get(calls, i), p.name, no))
            return false;
    return true;
}

static bool add_reasoning(json_t *to, const json_t *message, size_t at,
                          struct td_refusal *no)
{
    static const char *const names[] = {"reasoning_content", "reasoning"};
    for (size_t i = 0; i < TD_COUNT(names); i++) {
        const json_t *v = present(message, names[i]);
        struct place p = place_of(at, names[i]);
        if (v && !json_is_string(v))
            return td_refuse(no, 400, p.name, "request: %s must be a string", p.name);
        if (v)
            return json_object_set(to, names[0], (json_t *)(uintptr_t)v) == 0 ||
                   no_memory(no);
    }
    return true;
}

/* ---- messages ---------------------------------------------------------------------- */

static bool copy_field(json_t *to, const json_t *from, const char *key)
{
    json_t *v = json_object_get(from, key);
    return !json_is_string(v) || json_object_set(to, key, v) == 0;
}

static bool add_message(json_t *list, const json_t *m, size_t at, struct td_buf *text,
                        struct td_refusal *no)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant",
                                        "tool"};
    const char *role = json_string_value(json_object_get(m, "role"));
    struct place p = place_of(at, "role"), c = place_of(at, "content");
    size_t r = 0;
    if (!json_is_object(m))
        return td_refuse(no, 400, place_of(at, "").name,
                         "request: messages[%zu] must be an object", at);
    while (role && r < TD_COUNT(roles) && strcmp(role, roles[r]) != 0)
        r++;
    if (!role || r == TD_COUNT(roles))
        return td_refuse(no, 400, p.name,
                         "request: %s must be one of system, developer, user, "
                         "assistant, tool",
                         p.name);
    bool assistant = r == 3;
    json_t *o = json_object();
    if (!o || json_array_append_new(list, o) != 0)
        return no_memory(no);
    if (json_object_set_new(o, "role", json_string(r == 1 ? "system" : role)) != 0)
        return no_memory(no);
    if (!read_content(present(m, "content"), c.name, !assistant, text, no))
        return false;
    if (!put_text(o, "content", text) || !copy_field(o, m, "name") ||
        !copy_field(o, m, "tool_call_id"))
        return no_memory(no);
    return !assistant || (add_reasoning(o, m, at, no) &&
                          add_calls(o, present(m, "tool_calls"), at, no));
}

static bool add_messages(const struct td_ask *a, json_t *context, struct td_refusal *no)
{
    const json_t *messages = present(a->body, "messages");
    size_t n = json_array_size(messages);
    struct td_buf text;
    bool ok = true;
    if (!json_is_array(messages) || n == 0 || n > TD_MAX_MESSAGES)
        return td_refuse(no, 400, "messages",
                         "request: messages must be a list of 1 to %d messages",
                         TD_MAX_MESSAGES);
    json_t *list = json_array();
    if (!list || json_object_set_new(context, "messages", list) != 0)
        return no_memory(no);
    td_buf_init(&text, TD_MAX_HTTP_BODY);
    for (size_t i = 0; i < n && ok; i++)
        ok = add_message(list, json_array_get(messages, i), i, &text, no);
    td_buf_release(&text);
    return ok;
}

/* ---- tools ------------------------------------------------------------------------- */

static bool check_tool(const json_t *tool, size_t i, struct td_refusal *no)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *fn = json_object_get(tool, "function");
    const json_t *params = present(fn, "parameters");
    if (!type || strcmp(type, "function") != 0 || !json_is_object(fn))
        return td_refuse(no, 400, "tools",
                         "request: tools[%zu] must be of type function", i);
    size_t n = json_string_length(json_object_get(fn, "name"));
    if (n == 0 || n > TD_MAX_TOOL_NAME)
        return td_refuse(no, 400, "tools",
                         "request: tools[%zu].function.name must be a string of 1 to "
                         "%d bytes",
                         i, TD_MAX_TOOL_NAME);
    if (params && !json_is_object(params))
        return td_refuse(no, 400, "tools",
                         "request: tools[%zu].function.parameters must be an object",
                         i);
    return true;
}

/* tool_choice: auto and none; anything else would force the answer's form. */
static bool read_choice(const struct td_ask *a, bool *none, struct td_refusal *no)
{
    const json_t *choice = present(a->body, "tool_choice");
    const char *word = json_string_value(choice);
    *none = word && strcmp(word, "none") == 0;
    if (!choice || *none || (word && strcmp(word, "auto") == 0))
        return true;
    return td_refuse(no, 400, "tool_choice",
                     "request: tool_choice other than auto and none is not supported");
}

static bool read_tools(struct td_ask *a, struct td_refusal *no)
{
    static const char *const old[] = {"functions", "function_call"};
    const json_t *tools = present(a->body, "tools");
    bool none = false, parallel = true;
    for (size_t i = 0; i < TD_COUNT(old); i++)
        if (present(a->body, old[i]))
            return td_refuse(no, 400, old[i], "request: %s is not supported; use tools",
                             old[i]);
    if (tools && (!json_is_array(tools) || json_array_size(tools) > TD_MAX_TOOLS))
        return td_refuse(no, 400, "tools",
                         "request: tools must be a list of at most "
                         "%d tools",
                         TD_MAX_TOOLS);
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!check_tool(json_array_get(tools, i), i, no))
            return false;
    if (!read_choice(a, &none, no) ||
        !td_field_bool(a->body, "parallel_tool_calls", &parallel, no))
        return false;
    a->one_call = !parallel;
    a->tools = json_array_size(tools) > 0 && !none ? tools : NULL;
    return true;
}

/* ---- the context ------------------------------------------------------------------- */

/* What the client wants the template to know. */
static bool add_kwargs(const struct td_ask *a, json_t *context, struct td_refusal *no)
{
    json_t *kwargs = json_object_get(a->body, "chat_template_kwargs");
    const json_t *wanted = present(a->body, "reasoning_effort");
    const char *effort = json_string_value(wanted);
    if (kwargs && !json_is_null(kwargs) && !json_is_object(kwargs))
        return td_refuse(no, 400, "chat_template_kwargs",
                         "request: chat_template_kwargs must be an object");
    if (wanted && !effort)
        return td_refuse(no, 400, "reasoning_effort",
                         "request: reasoning_effort must be a string");
    if (effort &&
        json_object_set_new(context, "reasoning_effort", json_string(effort)) != 0)
        return no_memory(no);
    if (effort && strcmp(effort, "none") == 0 &&
        json_object_set_new(context, "enable_thinking", json_false()) != 0)
        return no_memory(no);
    if (json_is_object(kwargs) && json_object_update(context, kwargs) != 0)
        return no_memory(no);
    return true;
}

static bool build_context(struct td_ask *a, json_t *context, struct td_refusal *no)
{
    bool prompt = true, go_on = false;
    if (!td_field_bool(a->body, "add_generation_prompt", &prompt, no) ||
        !td_field_bool(a->body, "continue_final_message", &go_on, no))
        return false;
    if (go_on)
        return td_refuse(no, 400, "continue_final_message",
                         "request: continue_final_message is not supported");
    if (present(a->body, "chat_template"))
        return td_refuse(no, 400, "chat_template",
                         "request: the template is the model's own");
    json_t *tools = a->tools ? (json_t *)(uintptr_t)a->tools : NULL;
    if (!add_kwargs(a, context, no) || !add_messages(a, context, no))
        return false;
    if (json_object_set_new(context, "tools",
                            tools ? json_incref(tools) : json_null()) != 0 ||
        json_object_set_new(context, "documents", json_null()) != 0 ||
        json_object_set_new(context, "add_generation_prompt", json_boolean(prompt)) !=
            0)
        return no_memory(no);
    return true;
}

static bool render(struct td_ask *a, const struct td_served *m, struct td_refusal *no)
{
    struct td_error err;
    struct td_buf text;
    bool ok = false;
    json_t *context = json_object();
    td_error_init(&err);
    td_buf_init(&text, TD_MAX_TEXT);
    if (!context)
        no_memory(no);
    else if (!build_context(a, context, no))
        ok = false;
    else if (td_template_render(m->template, context, &text, &err) != TD_OK)
        td_refuse_error(no, "messages", &err);
    else
        ok = true;
    if (ok) {
        a->prompts->len = text.len;
        a->prompts->text = td_arena_strndup(&a->arena, text.p, text.len);
        ok = a->prompts->text || no_memory(no);
    }
    td_buf_release(&text);
    json_decref(context);
    return ok;
}

/* Where messages end, and with which part the answer begins. */
static bool look_at_ids(struct td_ask *a, const struct td_served *m,
                        struct td_refusal *no)
{
    struct td_prompt *p = a->prompts;
    size_t n = 0;
    p->first = TD_PART_CONTENT;
    for (size_t i = 0; i < p->ids.len; i++) {
        n += p->ids.p[i] == m->message_end;
        if (p->ids.p[i] == m->think_open && m->think_open >= 0)
            p->first = TD_PART_REASONING;
        else if (p->ids.p[i] == m->think_close || p->ids.p[i] == m->message_end)
            p->first = TD_PART_CONTENT;
    }
    p->ends = td_arena_alloc(&a->arena, n + 1, sizeof(*p->ends));
    if (!p->ends)
        return no_memory(no);
    for (size_t i = 0; i < p->ids.len; i++) /* the line break belongs to the message */
        if (p->ids.p[i] == m->message_end)
            p->ends[p->n_ends++] = (int32_t)TD_MIN(i + 2, p->ids.len);
    return true;
}

bool td_ask_messages(struct td_ask *a, const struct td_served *m, struct td_refusal *no)
{
    if (!m->template)
        return td_refuse(no, 400, "messages",
                         "this model has no chat template; use /v1/completions");
    a->prompts = td_arena_alloc(&a->arena, 1, sizeof(*a->prompts));
    if (!a->prompts)
        return no_memory(no);
    a->n_prompts = 1;
    td_ids_init(&a->prompts->ids);
    return read_tools(a, no) && render(a, m, no) &&
           td_ask_encode(m, a->prompts, "messages", no) && look_at_ids(a, m, no);
}

/* Log probabilities and what a chat alone can ask for. */
static bool read_chat_fields(struct td_ask *a, struct td_refusal *no)
{
    int64_t top = 0;
    const json_t *kinds = present(a->body, "modalities");
    if (!td_field_bool(a->body, "logprobs", &a->logprobs, no) ||
        !td_field_int(a->body, "top_logprobs", 0, TD_MAX_LOGPROBS, &top, no))
        return false;
    if (top > 0 && !a->logprobs)
        return td_refuse(no, 400, "top_logprobs",
                         "request: top_logprobs needs logprobs to be true");
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const char *kind = json_string_value(json_array_get(kinds, i));
        if (!kind || strcmp(kind, "text") != 0)
            return td_refuse(no, 400, "modalities",
                             "request: modalities other than text are not supported");
    }
    if (present(a->body, "audio"))
        return td_refuse(no, 400, "audio", "request: audio is not supported");
    a->sampling.logprobs = a->logprobs ? (int32_t)top : -1;
    return true;
}

bool td_ask_chat(struct td_ask *a, const struct td_served *m, const char *body,
                 size_t n, struct td_refusal *no)
{
    if (!td_ask_begin(a, m, body, n, no))
        return false;
    a->chat = true;
    return td_ask_common(a, m, no) && read_chat_fields(a, no) &&
           td_ask_messages(a, m, no);
}

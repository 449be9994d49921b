/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: messages in, prompt text out.
 *
 * A template is Jinja source as model repositories ship it. It is parsed once; a render
 * gives the text that Python's jinja2 gives when transformers configures it (sandboxed
 * and immutable, trim_blocks, lstrip_blocks, break and continue, {% generation %}).
 * Values behave and print as Python's do: 64-bit integers (an overflow is an error),
 * shortest floats, True and None, lists and dicts with Python's quotes.
 *
 *     struct td_template *t;
 *     td_template_load("models/lexicon", &t, err);
 *     td_buf_init(&text, max);
 *     td_template_render(t, context, &text, err);
 *     td_template_free(t);
 *
 * The context is a JSON object: messages, tools, add_generation_prompt,
 * enable_thinking, bos_token, eos_token and whatever else the template asks for. A
 * missing key is an undefined variable. transformers always passes `tools` and
 * `documents` (null when there are none) and `add_generation_prompt`.
 *
 * What is left out, each with an error that names it and its line: other templates
 * (extends, include, import), autoescape, recursive loops, and the filters that wrap
 * or mark up text (urlize, wordwrap, xmlattr, ...).
 *
 * Errors are TD_E_TEMPLATE: `what` has the template's name, the line, and whether the
 * source is invalid, the render failed, or the template refused the messages with
 * raise_exception(); `why` is the reason, in the last case the template's own words.
 * Passing a TD_MAX_TEMPLATE_* ceiling of base/limits.h is TD_E_LIMIT and names it.
 *
 * A parsed template never changes: any number of threads may render it at once, each
 * with its own context and buffer.
 */
#ifndef TD_TEXT_TEMPLATE_H
#define TD_TEXT_TEMPLATE_H

#include "base/buf.h"
#include "base/status.h"

#include <jansson.h>
#include <stddef.h>

struct td_template;

/* Parses UTF-8 source; `name` is what errors call it. Both are copied. */
enum td_status td_template_new(const char *source, size_t len, const char *name,
                               struct td_template **out, struct td_error *err);

/* Reads the template of a model directory: chat_template.jinja, else the chat_template
 * of tokenizer_config.json, a string or a list of {name, template}. A second template
 * named "tool_use" (in that list, or additional_chat_templates/tool_use.jinja) renders
 * the contexts whose `tools` is neither absent nor null. TD_E_NOT_FOUND: none there. */
enum td_status td_template_load(const char *dir, struct td_template **out,
                                struct td_error *err);

void td_template_free(struct td_template *t);

/* Appends the rendered text to `out`. On failure `out` is as it was before. */
enum td_status td_template_render(const struct td_template *t, const json_t *context,
                                  struct td_buf *out, struct td_error *err);

#endif

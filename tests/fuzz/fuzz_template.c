/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: any bytes as a template, rendered on a context with a bit of
 * everything. Whatever happens, an error says where and why and leaves the output
 * alone, and text that comes out is UTF-8.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context_text[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\","
    "\"content\":[{\"type\":\"text\",\"text\":\"h\\u00e9 <x> 'q'\"}]},{\"role\":"
    "\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"function\":{"
    "\"name\":"
    "\"f\",\"arguments\":{\"a\":1,\"b\":[true,2.5]}}}]},{\"role\":\"tool\",\"content\":"
    "\"5\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
    "\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}}}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"x\":3,\"f\":-1.5e9,\"n\":"
    "null,"
    "\"s\":\"a b,c\\n\\u65e5\\ud83d\\ude00\",\"l\":[3,1,2],\"d\":{\"k\":1,\"j\":[]}}";

static json_t *context;

static void check(const struct td_template *t)
{
    struct td_buf out;
    struct td_error err;
    td_error_init(&err);
    td_buf_init(&out, 1 << 20);
    td_buf_adds(&out, "before");
    if (td_template_render(t, context, &out, &err) != TD_OK) {
        if (strcmp(out.p, "before") != 0 || out.status != TD_OK || !err.what[0] ||
            !err.why[0])
            abort();
    } else if (!td_utf8_valid(out.p, out.len)) {
        abort();
    }
    td_buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_template *t = NULL;
    struct td_error err;
    td_error_init(&err);
    if (!context && td_json_parse(context_text, strlen(context_text), "context",
                                  &context, &err) != TD_OK)
        abort();
    if (td_template_new((const char *)data, size, "fuzz", &t, &err) == TD_OK)
        check(t);
    else if (!err.what[0] || !err.why[0])
        abort();
    td_template_free(t);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON documents: whatever parses is asked for fields of every kind, and its strings
 * survive being written and read again.
 */
#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"

#include <stdlib.h>

static void ask(const json_t *root, struct td_error *err)
{
    const char *key;
    json_t *value;
    int64_t i;
    double d;
    bool b;
    const char *s;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        (void)td_json_int(root, key, "x", -1000, 1 << 20, 0, &i, err);
        (void)td_json_double(root, key, "x", 0, 1, 0, &d, err);
        (void)td_json_bool(root, key, "x", false, &b, err);
        (void)td_json_str(root, key, "x", "", &s, err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct td_error err;
    struct td_buf text;
    json_t *root, *again = NULL;
    td_error_init(&err);
    if (td_json_parse((const char *)data, n, "fuzz", &root, &err) == TD_OK) {
        ask(root, &err);
        json_decref(root);
    }
    td_error_init(&err);
    td_buf_init(&text, 8 * TD_MIB);
    if (td_json_add_string(&text, (const char *)data, n) == TD_OK) {
        enum td_status s = td_json_parse(text.p, text.len, "again", &again, &err);
        /* a zero byte is written as an escape, which the parser refuses */
        bool zero = false;
        for (size_t i = 0; i < n; i++)
            zero = zero || data[i] == 0;
        if ((s == TD_OK) == zero)
            abort();
        json_decref(again);
    }
    td_buf_release(&text);
    return 0;
}

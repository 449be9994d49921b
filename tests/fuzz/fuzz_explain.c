/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain on any bytes: reading, judging and all three ways to print the verdict.
 */
#include "base/buf.h"
#include "base/limits.h"
#include "explain/explain.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct td_explain_style narrow = {true, 60};
    static struct td_explain *x; /* building the rules would take most of the time */
    struct td_buf out;
    if (!x && td_explain_new(&x, NULL) != TD_OK)
        return 0;
    td_buf_init(&out, 4 * TD_MIB);
    /* two sources: the second half may answer the first */
    size_t half = size / 2;
    if (td_explain_add_bytes(x, "a.log", data, half, NULL) != TD_OK ||
        td_explain_add_bytes(x, "b.log", data + half, size - half, NULL) != TD_OK ||
        td_explain_judge(x, NULL) != TD_OK)
        abort();
    if (td_explain_text(x, &narrow, &out) != TD_OK ||
        td_explain_timeline(x, &narrow, &out) != TD_OK ||
        td_explain_json(x, true, &out) != TD_OK)
        abort();
    td_buf_release(&out);
    td_explain_clear(x);
    return 0;
}

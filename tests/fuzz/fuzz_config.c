/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json and generation_config.json: what is accepted must then be safe to compute
 * with: every split, every slice, every name.
 */
#include <stdint.h>
#include <stdlib.h>

#include "model/names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void names_of(const struct td_config *c)
{
    static const struct td_name_form forms[] = {{false, false}, {true, true}};
    int ranks[TD_MAX_RANKS];
    int n = td_split_list(c, ranks);
    if (n < 1 || ranks[0] != 1)
        abort();
    /* every weight is visited: keep one input quick */
    if ((int64_t)c->n_layers * (c->n_experts + 1) > 20000)
        return;
    for (int i = 0; i < 2; i++) {
        struct td_slice slice;
        struct td_names_sum sum;
        int k = ranks[i ? n - 1 : 0];
        if (td_slice_make(c, k - 1, k, &slice, NULL) != TD_OK)
            abort();
        td_names_sum(c, &slice, &forms[i], &sum);
        if (sum.params < 0 || sum.bytes < 0 || sum.token_bytes > sum.bytes)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_config c;
    struct td_generation_defaults g;
    struct td_error err;
    const char *text = (const char *)data;
    td_error_init(&err);
    if (td_config_parse(text, size, "config.json", &c, &err) == TD_OK)
        names_of(&c);
    else if (err.what[0] == 0)
        abort();
    c = (struct td_config){.vocab = 8192, .n_eos = 1, .eos = {7}};
    td_error_init(&err);
    if (td_generation_defaults_parse(text, size, "generation_config.json", &c, &g,
                                     &err) != TD_OK &&
        err.what[0] == 0)
        abort();
    return 0;
}

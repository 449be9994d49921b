/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of HTTP requests: the first byte chooses chat, completion or tokenize, the rest
 * is the body. What is taken must lie within the limits; what is refused has a reason.
 */
#include "api/request.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct td_served served;
    struct td_refusal no = {0};
    struct td_ask ask;
    struct td_error err;
    td_error_init(&err);
    if (!served.tokenizer &&
        (td_served_open(&served, "models/lexicon", "lexicon", &err) != TD_OK ||
         td_served_load(&served, "models/lexicon", &err) != TD_OK))
        abort();
    if (n == 0)
        return 0;
    const char *body = (const char *)data + 1;
    bool ok = data[0] % 3 == 0   ? td_ask_chat(&ask, &served, body, n - 1, &no)
              : data[0] % 3 == 1 ? td_ask_completion(&ask, &served, body, n - 1, &no)
                                 : td_ask_tokenize(&ask, &served, body, n - 1, &no);
    if (ok &&
        (ask.n_prompts < 1 || ask.n < 1 || ask.n * ask.n_prompts > TD_MAX_CHOICES))
        abort();
    if (ok && td_sampling_check(&ask.sampling, served.vocab, &err) != TD_OK)
        abort();
    if (!ok && (no.status < 400 || !no.message[0] || !no.type))
        abort();
    td_ask_release(&ask);
    return 0;
}

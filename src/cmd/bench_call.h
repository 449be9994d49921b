/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One streamed request of `tandem bench --url`, and what is measured while its answer
 * arrives. Works with every server that speaks OpenAI's API.
 */
#ifndef TD_CMD_BENCH_CALL_H
#define TD_CMD_BENCH_CALL_H

#include "base/buf.h"
#include "base/status.h"
#include "cmd/bench_stream.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

/* What all requests have in common. Texts are borrowed. */
struct td_bench_shape {
    const char *url, *key, *model;
    bool completions; /* /v1/completions instead of /v1/chat/completions */
    bool usage;       /* ask for usage at the stream's end */
    bool ignore_eos;  /* ask for answers of full length */
};

struct td_bench_call {
    CURL *easy;
    struct curl_slist *headers;
    struct td_buf body, refusal; /* sent; a reply that is none */
    struct td_bench_stream stream;
    char words[CURL_ERROR_SIZE];
    double began; /* monotonic seconds */
};

/* A call that can be used many times; TD_E_NOMEM. */
enum td_status td_bench_call_init(struct td_bench_call *c, struct td_error *err);
void td_bench_call_release(struct td_bench_call *c);

/* Prepares the request: `words` words after a beginning that no other prompt has
 * (numbered by `serial`), an answer of `max_tokens`. Then perform c->easy. */
enum td_status td_bench_call_set(struct td_bench_call *c,
                                 const struct td_bench_shape *shape, unsigned serial,
                                 int words, int max_tokens, struct td_samples *gaps,
                                 struct td_error *err);

/* After the transfer: was it answered? Otherwise `kind` says in a few words why not. */
bool td_bench_call_judge(struct td_bench_call *c, CURLcode code, char *kind,
                         size_t size);

/* Tokens of the answer: the server's count, or pieces. */
int td_bench_call_tokens(const struct td_bench_call *c);

#endif

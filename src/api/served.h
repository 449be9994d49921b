/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the front knows of the model that it serves: names, tokenizer, chat template,
 * ends of an answer and sampling defaults. Read once, never changed: any thread.
 */
#ifndef TD_API_SERVED_H
#define TD_API_SERVED_H

#include "base/limits.h"
#include "base/status.h"
#include "model/config.h"
#include "sample/sample.h"
#include "text/template.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct td_served {
    const char *name; /* borrowed */
    struct td_config config;
    struct td_tokenizer *tokenizer;
    struct td_template *template; /* NULL: the model has none, so no chat */
    struct td_sampling sampling;  /* defaults; its eos_ids are the array below */
    int32_t eos[TD_MAX_STOP_IDS];
    int32_t vocab;                   /* ids that the tokenizer knows */
    size_t max_text;                 /* bytes: a longer text has too many tokens */
    int32_t think_open, think_close; /* -1: the model does not reason in tags */
    int32_t message_end;             /* <|im_end|>, -1: none */
};

/* The small files: config.json, generation_config.json. Fast. */
enum td_status td_served_open(struct td_served *m, const char *dir, const char *name,
                              struct td_error *err);

/* The large ones: tokenizer and template. */
enum td_status td_served_load(struct td_served *m, const char *dir,
                              struct td_error *err);
void td_served_release(struct td_served *m);

#endif

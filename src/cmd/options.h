/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every option of every verb, in one list: flag, variable, file entry, help and docs.
 *
 * X(id, name, letter, kind, verbs, value, default, lo, hi, help)
 */
#ifndef TD_CMD_OPTIONS_H
#define TD_CMD_OPTIONS_H

#include "base/conf.h"
#include "cmd/cmd.h"

#define TD_OPTION_LIST(X)                                                              \
    X(CONFIG, "config", 0, TD_OPT_STR, TD_VERB_ALL, "FILE", NULL, 0, 0,                \
      "read options from FILE instead of ./tandem.conf or "                            \
      "~/.config/tandem/tandem.conf")                                                  \
    X(HELP, "help", 'h', TD_OPT_BOOL, TD_VERB_ALL, "", NULL, 0, 0,                     \
      "help of this verb")                                                             \
    X(JSON, "json", 0, TD_OPT_BOOL, TD_VERB_ALL, "", NULL, 0, 0,                       \
      "print the machine form")                                                        \
    X(ALL, "all", 'a', TD_OPT_BOOL, TD_VERB_EXPLAIN, "", NULL, 0, 0,                   \
      "also print the timeline of all hosts")                                          \
    X(EVENT_LOG, "event-log", 0, TD_OPT_STR, TD_VERB_ALL, "FILE", NULL, 0, 0,          \
      "append this process's events to FILE as JSON lines")                            \
    X(TENSORS, "tensors", 0, TD_OPT_BOOL, TD_VERB_INSPECT, "", NULL, 0, 0,             \
      "also list every tensor: format, shape, bytes, file, use")                       \
    X(SYSTEM, "system", 's', TD_OPT_STR, TD_VERB_RUN, "TEXT", NULL, 0, 0,              \
      "instructions that come before the conversation")                                \
    X(THINK, "think", 0, TD_OPT_BOOL, TD_VERB_RUN, "", NULL, 0, 0,                     \
      "reason before answering; --no-think: answer at once (default: as the model's "  \
      "template has it)")                                                              \
    X(MAX_TOKENS, "max-tokens", 'n', TD_OPT_INT, TD_VERB_RUN, "N", NULL, 1, 1 << 24,   \
      "longest answer, reasoning included (default: until the context ends)")          \
    X(TEMPERATURE, "temperature", 't', TD_OPT_REAL, TD_VERB_RUN, "T", NULL, 0, 2,      \
      "0: always the most probable token; 1: as probable as the model says (this and " \
      "the next four: default as in generation_config.json)")                          \
    X(TOP_P, "top-p", 0, TD_OPT_REAL, TD_VERB_RUN, "P", NULL, 1e-6, 1,                 \
      "draw from the most probable tokens that together reach P; 1: from all")         \
    X(TOP_K, "top-k", 0, TD_OPT_INT, TD_VERB_RUN, "K", NULL, 0, 1 << 24,               \
      "draw from the K most probable tokens; 0: from all")                             \
    X(MIN_P, "min-p", 0, TD_OPT_REAL, TD_VERB_RUN, "P", NULL, 0, 1,                    \
      "leave out tokens with less than P times the largest probability")               \
    X(REPETITION_PENALTY, "repetition-penalty", 0, TD_OPT_REAL, TD_VERB_RUN, "X",      \
      NULL, 0.01, 100, "divides the logit of every token seen so far; 1: off")         \
    X(PRESENCE_PENALTY, "presence-penalty", 0, TD_OPT_REAL, TD_VERB_RUN, "X", NULL,    \
      -2, 2, "taken off the logit of every token the answer already has")              \
    X(SEED, "seed", 0, TD_OPT_INT, TD_VERB_RUN, "N", NULL, 0, 9007199254740992.0,      \
      "same seed, same text (default: another one each time)")                         \
    X(NUMERICS, "numerics", 0, TD_OPT_CHOICE, TD_VERB_RUN, "f32|bf16", "bf16", 0, 0,   \
      "f32: everything in 32 bits, the reference; bf16: inputs of products and the "   \
      "KV cache rounded to 16 bits")                                                   \
    X(THREADS, "threads", 0, TD_OPT_INT, TD_VERB_RUN, "N", NULL, 1, 1024,              \
      "processor threads (default: all cores this process may use)")                   \
    X(MEMORY, "memory", 0, TD_OPT_BYTES, TD_VERB_RUN, "BYTES", NULL, 0, 0,             \
      "use at most this much, such as 84G (default: what the host can give)")          \
    X(MAX_MODEL_LEN, "max-model-len", 0, TD_OPT_INT, TD_VERB_RUN, "N", NULL, 1,        \
      1 << 24,                                                                         \
      "tokens of the context, prompt and answer (default: the model's, or "            \
      "what fits)")                                                                    \
    X(STATS, "stats", 0, TD_OPT_BOOL, TD_VERB_RUN, "", NULL, 0, 0,                     \
      "say after each answer how long it took, on standard error")

enum td_option {
#define X(id, name, letter, kind, verbs, value, def, lo, hi, help) TD_O_##id,
    TD_OPTION_LIST(X)
#undef X
        TD_OPTION_COUNT
};

/* The table for td_conf_init(), and the hints for flags of other engines. */
extern const struct td_opt td_options[TD_OPTION_COUNT];
extern const struct td_opt_hint td_option_hints[];

#endif

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
      "also list every tensor: format, shape, bytes, file, use")

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

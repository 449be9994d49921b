/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs. One file per verb, each ending in one struct td_cmd that main.c lists.
 */
#ifndef TD_CMD_CMD_H
#define TD_CMD_CMD_H

#include "base/conf.h"
#include "base/status.h"

/* Bits of td_opt.verbs. */
enum td_verb {
    TD_VERB_RUN = 1 << 0,
    TD_VERB_INSPECT = 1 << 1,
    TD_VERB_EXPLAIN = 1 << 2,
    TD_VERB_BENCH = 1 << 3,
    TD_VERB_SERVE = 1 << 4,
    TD_VERB_PLAN = 1 << 5,
    TD_VERB_CHECK = 1 << 6,
    TD_VERB_STATUS = 1 << 7,
    TD_VERB_WORKER = 1 << 8,
    TD_VERB_AGENT = 1 << 9,
    TD_VERB_HELP = 1 << 10,
    TD_VERB_ALL = ~0
};

enum td_exit {
    TD_EXIT_OK = 0,
    TD_EXIT_FAILED = 1,  /* a cause was printed */
    TD_EXIT_USAGE = 2,   /* wrong usage */
    TD_EXIT_NO_CAUSE = 3 /* explain: the cause is not in the files */
};

/* Which arguments a verb takes. */
struct td_cmd_args {
    int least, most;
    const char *lacks; /* what is missing where there are fewer: "model" */
    const char *fix;   /* what to do where there are more, NULL: what help says */
};

struct td_cmd {
    const char *name;
    unsigned verb;     /* its bit in enum td_verb */
    const char *usage; /* "run MODEL [PROMPT]" */
    struct td_cmd_args args;
    const char *summary; /* one line for `tandem help`; "": not listed there */
    const char *details; /* paragraphs for `tandem help VERB`, may be "" */
    /* Returns an enum td_exit, or fills err and returns any value: a filled err is
     * printed by main.c and ends in TD_EXIT_USAGE (code TD_E_USAGE) or TD_EXIT_FAILED. */
    int (*run)(struct td_conf *conf, struct td_error *err);
};

extern const struct td_cmd td_cmd_help;
extern const struct td_cmd td_cmd_run;
extern const struct td_cmd td_cmd_inspect;
extern const struct td_cmd td_cmd_explain;
extern const struct td_cmd td_cmd_plan;
extern const struct td_cmd td_cmd_serve;
extern const struct td_cmd td_cmd_status;
extern const struct td_cmd td_cmd_bench;
extern const struct td_cmd td_cmd_worker;
extern const struct td_cmd td_cmd_check;
extern const struct td_cmd td_cmd_agent;

/* Of this program: "0.1.0", the commit it was built from. */
extern const char td_version[], td_build[];

/* All verbs, ended by NULL. */
const struct td_cmd *const *td_cmd_list(void);

#endif

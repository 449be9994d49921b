/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue: kinds of failure, and the rules that recognise them in logs.
 *
 * A rule says: when a line holds one of these literals and then matches this pattern, and
 * these other things were seen anywhere in the same files, then the line has this role.
 * Literals are searched for all rules in one pass over the bytes; a pattern only ever runs
 * on the few lines that hold one of its rule's literals.
 *
 * To add a diagnosis: one line in a rules_*.c table, one entry in kinds_*.c when the kind
 * is new, one case in tests/cases/explain. docs/HOWTO.md shows it.
 */
#ifndef TD_EXPLAIN_RULES_H
#define TD_EXPLAIN_RULES_H

#include <stdbool.h>
#include <stddef.h>

enum td_role {
    TD_ROLE_CAUSE, /* names the kind */
    TD_ROLE_EITHER, /* names it only while nothing better does, also seen in good starts */
    TD_ROLE_EFFECT, /* a report about somebody else's failure: proves that one happened */
    TD_ROLE_NOISE, /* true of good starts too; hides other rules on the same line */
    TD_ROLE_FACT,  /* its captures are kept under the names in `says` */
    TD_ROLE_PHASE  /* a start got this far; `weight` is an enum td_step */
};

/* How far a start got, in order. */
enum td_step {
    TD_STEP_NONE,
    TD_STEP_CONFIG,    /* options read */
    TD_STEP_CLUSTER,   /* connected to Ray, MPI or the like */
    TD_STEP_RENDEZ,    /* process group set-up began */
    TD_STEP_COMM,      /* NCCL communicator init began */
    TD_STEP_COMM_DONE, /* ... ended */
    TD_STEP_LOAD,      /* weights are being read */
    TD_STEP_LOADED,
    TD_STEP_PROFILE, /* memory is being profiled */
    TD_STEP_CACHE,   /* cache reserved */
    TD_STEP_CAPTURE, /* CUDA graphs are being captured */
    TD_STEP_CAPTURED,
    TD_STEP_READY,
    TD_STEP_COUNT
};

struct td_explain;
struct td_hit;

/* Looks at what the files say besides the line: returns what to add to the weight (may be
 * negative; -1000 drops the hit). */
typedef int (*td_rule_check)(const struct td_explain *x, const struct td_hit *hit);

struct td_rule {
    const char *id; /* unique; `needs` of other rules refer to it */
    enum td_role role;
    const char *kind; /* slug; NULL for facts, phases and plain effects */
    int weight;       /* 85..100 certain, 60..84 likely, 30..59 possible, below: hint */
    const char *lit;  /* "literal|or this one", lower case, at least 4 bytes each */
    const char *re; /* pattern, caseless; NULL: the literal is enough. With \n in it, it
                       * runs over the line and the nine that follow */
    const char *needs; /* "a !b c|d": ids or fact names that must (not) have been seen;
                        * @step: the process had reached that step; =id: the rule that decided */
    const char *says;  /* sentence with $1..$6 and ${fact}; NULL: the kind's title */
    td_rule_check check;
    int host; /* the capture that names the host it happened on, 0: the line's own */
};

struct td_rule_set {
    const struct td_rule *rules;
    const size_t *count;
};

/* All tables, ended by a set without rules. */
extern const struct td_rule_set td_rule_sets[];

/* A remedy for a situation: the first whose needs hold is printed. */
struct td_remedy {
    const char *kind;
    const char *needs; /* as above; NULL: always */
    const char *fix;
};

struct td_kind {
    const char *slug, *family, *title;
    const char *fix; /* remedy; ${fact} is replaced */
    const char
        *missing; /* what would settle or confirm it, and the command; NULL: nothing */
    const char *over; /* kinds that follow from it, separated by spaces; NULL */
};

struct td_kind_set {
    const struct td_kind *kinds;
    const size_t *count;
};

extern const struct td_kind_set td_kind_sets[];
extern const struct td_remedy td_remedies[];
extern const size_t td_remedy_count;

/* The entry of a slug, or NULL. */
const struct td_kind *td_kind_find(const char *slug);

/* Number of rules, and the i-th over all tables. */
size_t td_rule_count(void);
const struct td_rule *td_rule_at(size_t i);

const char *td_step_name(enum td_step step);

#endif

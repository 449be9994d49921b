/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table: one array describes every option, and flags, TANDEM_* variables,
 * tandem.conf, help texts and docs/OPTIONS.md all come from it.
 *
 * An option `max-tokens` is the flag --max-tokens, the variable TANDEM_MAX_TOKENS and
 * the line `max-tokens = 64` of a tandem.conf. A flag beats a variable, a variable beats
 * the file, the file beats the default. Flags take their value as `--max-tokens 64` or
 * `--max-tokens=64`; booleans as `--stats` or `--no-stats`. `--` ends the flags.
 */
#ifndef TD_BASE_CONF_H
#define TD_BASE_CONF_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_opt_kind {
    TD_OPT_BOOL,
    TD_OPT_INT,   /* within lo..hi */
    TD_OPT_REAL,  /* within lo..hi */
    TD_OPT_BYTES, /* from lo, with an optional K, M, G or T (powers of 1024) */
    TD_OPT_STR,   /* of at least lo bytes */
    TD_OPT_CHOICE /* one of the words of `arg`, separated by | */
};

/* How the help of an option begins that only tandem itself uses: not for people. */
#define TD_OPT_INTERNAL "(internal) "

struct td_opt {
    const char *name;
    char letter; /* short flag, 0 for none */
    enum td_opt_kind kind;
    unsigned verbs;   /* which verbs take it, one bit each; meaning is the caller's */
    const char *arg;  /* what help calls the value: "N", "f32|bf16" */
    const char *def;  /* default as text; NULL: unset */
    double lo, hi;    /* TD_OPT_BYTES: hi 0 is no bound; TD_OPT_STR: lo alone */
    const char *help; /* one line */
};

/* A flag of another program, and the option it means here (or a sentence). */
struct td_opt_hint {
    const char *theirs, *ours;
};

enum td_opt_origin { TD_FROM_DEFAULT, TD_FROM_FILE, TD_FROM_ENV, TD_FROM_FLAG };

struct td_opt_value {
    enum td_opt_origin origin;
    bool set; /* false: no default and not given */
    int64_t i;
    double d;
    char *s; /* owned; the text as given */
};

struct td_conf {
    const struct td_opt *opts;
    size_t count;
    const struct td_opt_hint *hints; /* ends with a NULL `theirs` */
    struct td_opt_value *values;     /* one for each option */
    char **args;                     /* positional arguments, borrowed from argv */
    int nargs;
};

/* All options at their defaults. opts and hints are borrowed for the conf's life. */
enum td_status td_conf_init(struct td_conf *c, const struct td_opt *opts, size_t count,
                            const struct td_opt_hint *hints, struct td_error *err);
void td_conf_release(struct td_conf *c);

/* Reads argv (without program and verb), taking only options of `verbs`. Errors are
 * TD_E_USAGE and say what is wrong, what is expected, and the nearest known name. */
enum td_status td_conf_parse_args(struct td_conf *c, unsigned verbs, int argc,
                                  char **argv, struct td_error *err);

/* Reads TANDEM_* variables; never overrides a flag. An empty one counts as not set, but
 * for texts: a secret that came out empty must not switch its check off; for the same
 * reason a name that is nearly an option's is refused. Call after td_conf_parse_args(). */
enum td_status td_conf_parse_env(struct td_conf *c, struct td_error *err);

/* Reads a tandem.conf: `name = value`, `#` comments. Never overrides flags or variables.
 * Unknown names and bad values are errors with file and line. */
enum td_status td_conf_parse_file(struct td_conf *c, const char *path,
                                  struct td_error *err);

/* Values by the option's index in the table. */
bool td_conf_is_set(const struct td_conf *c, size_t opt);
bool td_conf_is_flag(const struct td_conf *c, size_t opt); /* on the command line */
bool td_conf_bool(const struct td_conf *c, size_t opt);
int64_t td_conf_int(const struct td_conf *c, size_t opt); /* TD_OPT_INT, TD_OPT_BYTES */
double td_conf_real(const struct td_conf *c, size_t opt);
const char *td_conf_str(const struct td_conf *c, size_t opt); /* NULL when unset */

struct td_buf;

/* Appends the help text of the options of `verbs`, two columns, 80 wide; internal ones
 * are left out. */
enum td_status td_conf_help(const struct td_conf *c, unsigned verbs,
                            struct td_buf *out);

/* Appends a Markdown table of all options. */
enum td_status td_conf_markdown(const struct td_conf *c, struct td_buf *out);

/* Parses "84G", "512M", "100" into bytes. */
bool td_parse_bytes(const char *s, int64_t *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing list of words: the command line of a child process.
 */
#ifndef TD_LAUNCH_ARGV_H
#define TD_LAUNCH_ARGV_H

#include "base/compiler.h"
#include "base/status.h"

#include <stddef.h>

struct td_argv {
    char **v; /* n words, owned, and a NULL behind them; NULL while empty */
    size_t n;
    enum td_status status; /* the first failure; then nothing is added any more */
};

/* Adds a word (a copy, or formatted), or two. A failure stays in `status`. */
void td_argv_add(struct td_argv *a, const char *word);
void td_argv_addf(struct td_argv *a, const char *fmt, ...) TD_PRINTF(2, 3);
void td_argv_pair(struct td_argv *a, const char *word, const char *other);

/* Adds all words of a NULL-ended list. */
void td_argv_list(struct td_argv *a, char *const *words);

/* TD_OK, or fills err with what `status` says. */
enum td_status td_argv_done(const struct td_argv *a, struct td_error *err);

void td_argv_release(struct td_argv *a);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing list of words. See argv.h.
 */
#include "launch/argv.h"

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdarg.h>

/* Takes over `word`; NULL is a failed copy of it. */
static void push(struct td_argv *a, char *word)
{
    char **more =
        word && a->status == TD_OK ? td_realloc(a->v, a->n + 2, sizeof(*more)) : NULL;
    if (!more) {
        a->status = a->status == TD_OK ? TD_E_NOMEM : a->status;
        td_free(word);
        return;
    }
    a->v = more;
    a->v[a->n++] = word;
    a->v[a->n] = NULL;
}

void td_argv_add(struct td_argv *a, const char *word)
{
    push(a, td_strdup(word));
}

void td_argv_addf(struct td_argv *a, const char *fmt, ...)
{
    struct td_buf b;
    va_list ap;
    td_buf_init(&b, TD_MAX_ARGUMENT);
    va_start(ap, fmt);
    enum td_status s = td_buf_vaddf(&b, fmt, ap);
    va_end(ap);
    if (s != TD_OK && a->status == TD_OK)
        a->status = s;
    push(a, s == TD_OK ? td_buf_take(&b) : NULL);
    td_buf_release(&b);
}

void td_argv_pair(struct td_argv *a, const char *word, const char *other)
{
    td_argv_add(a, word);
    td_argv_add(a, other);
}

void td_argv_list(struct td_argv *a, char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        td_argv_add(a, words[i]);
}

enum td_status td_argv_done(const struct td_argv *a, struct td_error *err)
{
    if (a->status == TD_OK)
        return TD_OK;
    if (a->status == TD_E_LIMIT)
        td_error_set(err, TD_E_LIMIT, "a word of the ranks' command is too long");
    else
        td_error_set(err, a->status, "no memory for the ranks' command");
    return a->status;
}

void td_argv_release(struct td_argv *a)
{
    for (size_t i = 0; i < a->n; i++)
        td_free(a->v[i]);
    td_free(a->v);
    *a = (struct td_argv){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines typed by a person: libedit on a terminal, fgets() elsewhere. See term.h.
 *
 * On a terminal ^C must clear the line, not end the program. A signal would have to break
 * libedit's read, which retries; so the terminal makes no signals of keys while a line
 * is edited, and ^C and ^Z are keys like any other. While a model answers they are what
 * they always are.
 */
#define _DEFAULT_SOURCE
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cmd/term.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    HISTORY_LINES = 1000,
    PLAIN_MAX = 8192 /* more than a terminal hands over at a time */
};

struct td_lines {
    EditLine *edit; /* NULL: plain input */
    History *history;
    char plain[PLAIN_MAX];
    const char *prompt;
    char path[TD_MAX_PATH]; /* of the history, "" when there is none */
};

/* ---- the state folder ---------------------------------------------------------------- */

static bool make_folder(const char *path)
{
    return mkdir(path, S_IRWXU) == 0 || (errno == EEXIST && td_file_is_dir(path));
}

/* Makes the folders that the absolute path lies in. */
static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool made = make_folder(path);
        *slash = '/';
        if (!made)
            return false;
    }
    return true;
}

bool td_state_path(char *out, size_t size, const char *name)
{
    char tail[256];
    const char *base = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool own = base && *base == '/';
    if (!own && (!home || *home != '/'))
        return false;
    int n =
        snprintf(tail, sizeof(tail), "%standem/%s", own ? "" : ".local/state/", name);
    if (n < 0 || (size_t)n >= sizeof(tail))
        return false;
    return td_path_join(out, size, own ? base : home, tail, NULL) == TD_OK &&
           make_folders(out);
}

/* ---- libedit -------------------------------------------------------------------------- */

static char *show_prompt(EditLine *edit)
{
    static char copy[32];
    struct td_lines *l = NULL;
    (void)el_get(edit, EL_CLIENTDATA, &l);
    (void)snprintf(copy, sizeof(copy), "%s", l->prompt);
    return copy;
}

static unsigned char suspend(EditLine *edit, int key)
{
    (void)key;
    (void)el_set(edit, EL_PREP_TERM, 0);
    (void)raise(SIGTSTP);
    (void)el_set(edit, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
}

static void open_history(struct td_lines *l)
{
    HistEvent event;
    l->history = history_init();
    if (!l->history)
        return;
    (void)history(l->history, &event, H_SETSIZE, HISTORY_LINES);
    (void)history(l->history, &event, H_SETUNIQUE, 1);
    if (!td_state_path(l->path, sizeof(l->path), "history"))
        l->path[0] = 0;
    else if (td_file_exists(l->path))
        (void)history(l->history, &event, H_LOAD, l->path);
    (void)el_set(l->edit, EL_HIST, history, l->history);
}

static void open_editor(struct td_lines *l)
{
    /* Without a locale libedit takes bytes for characters. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    l->edit = el_init("tandem", stdin, stdout, stderr);
    if (!l->edit)
        return;
    (void)el_set(l->edit, EL_CLIENTDATA, l);
    (void)el_set(l->edit, EL_PROMPT, show_prompt);
    (void)el_set(l->edit, EL_EDITOR, "emacs");
    (void)el_set(l->edit, EL_SIGNAL, 1);
    (void)el_set(l->edit, EL_SETTY, "-d", "-isig", NULL);
    (void)el_set(l->edit, EL_ADDFN, "suspend", "Stop until the shell says go on",
                 suspend);
    (void)el_set(l->edit, EL_BIND, "^C", "em-kill-line", NULL);
    (void)el_set(l->edit, EL_BIND, "^Z", "suspend", NULL);
    (void)el_set(l->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    open_history(l);
}

/* Keeps the line at once, so that a killed terminal loses nothing. */
static void remember(struct td_lines *l, const char *line)
{
    HistEvent event;
    if (!l->history || !line[strspn(line, " \t\r\n")])
        return;
    (void)history(l->history, &event, H_ENTER, line);
    if (!l->path[0])
        return;
    mode_t before = umask(S_IRWXG | S_IRWXO);
    (void)history(l->history, &event, H_SAVE, l->path);
    (void)umask(before);
}

/* ---- lines ---------------------------------------------------------------------------- */

enum td_status td_lines_open(struct td_lines **out, struct td_error *err)
{
    struct td_lines *l = td_calloc(1, sizeof(*l));
    if (!l)
        return td_error_set(err, TD_E_NOMEM, "no memory for the input line");
    if (td_term_is(stdin) && td_term_is(stdout))
        open_editor(l);
    *out = l;
    return TD_OK;
}

void td_lines_close(struct td_lines *l)
{
    if (!l)
        return;
    if (l->edit)
        el_end(l->edit);
    if (l->history)
        history_end(l->history);
    td_free(l);
}

static bool next_plain(struct td_lines *l, const char **text, size_t *n)
{
    if (!fgets(l->plain, sizeof(l->plain), stdin))
        return false;
    *text = l->plain;
    *n = strlen(l->plain);
    return true;
}

static bool next_edited(struct td_lines *l, const char **text, size_t *n)
{
    int len = 0;
    const char *line = el_gets(l->edit, &len);
    if (!line || len <= 0) {
        (void)fputc('\n', stdout);
        return false;
    }
    remember(l, line);
    *text = line;
    *n = strlen(line);
    return true;
}

bool td_lines_next(struct td_lines *l, const char *prompt, const char **text, size_t *n)
{
    l->prompt = prompt;
    bool some = l->edit ? next_edited(l, text, n) : next_plain(l, text, n);
    if (some && *n > 0 && (*text)[*n - 1] == '\n')
        (*n)--;
    return some;
}

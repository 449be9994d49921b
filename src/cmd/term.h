/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal: what may be written to it, the load's progress bar, and lines typed by
 * a person.
 */
#ifndef TD_CMD_TERM_H
#define TD_CMD_TERM_H

#include "base/buf.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Is this a terminal, and one that wants colours (NO_COLOR unset, TERM not "dumb")? */
bool td_term_is(FILE *f);
bool td_term_colours(FILE *f);

/* Writes a model's text. With `careful`, control characters other than newline and tab
 * (escape sequences begin with one) become U+FFFD: a model must not drive a terminal. */
void td_term_text(FILE *f, const char *text, size_t n, bool careful);

/* An error as people read it: what failed, the cause, the remedy. Control characters are
 * treated as above wherever it is written: names of files and values of a model's
 * configuration get into it. */
void td_term_error(FILE *f, const struct td_error *err);

/* Shows the load's progress on stderr while one runs: a bar from the process's events
 * when stderr is a terminal, nothing otherwise. One at a time. */
void td_progress_start(void);
void td_progress_stop(void);

/* Appends the bar of a "progress" event's numbers to out, without a newline. */
enum td_status td_progress_format(const struct td_num *nums, struct td_buf *out);

/* ---- lines ------------------------------------------------------------------------ */

struct td_lines;

/* Opens standard input for lines with a prompt: with editing and a history (kept in the
 * state folder, readable by its owner only) when standard input and output are
 * terminals, plainly otherwise. A history that cannot be read or kept is no failure. */
enum td_status td_lines_open(struct td_lines **out, struct td_error *err);
void td_lines_close(struct td_lines *l);

/* The next line without its newline, borrowed until the next call. False at the end: ^D
 * on an empty line, or no more input. ^C clears the line. */
bool td_lines_next(struct td_lines *l, const char *prompt, const char **text,
                   size_t *n);

/* $XDG_STATE_HOME/tandem/NAME or ~/.local/state/tandem/NAME into out; makes the folders
 * (mode 0700). False when that is not possible. */
bool td_state_path(char *out, size_t size, const char *name);

#endif

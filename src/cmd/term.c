/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be written to a terminal, and the load's progress bar. See term.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "cmd/term.h"

#include "base/limits.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_CELLS = 22 };

bool td_term_is(FILE *f)
{
    return isatty(fileno(f)) == 1;
}

bool td_term_colours(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return td_term_is(f) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* Bytes at s, of n, that a terminal shows; 0 when s begins with a control character. */
static size_t harmless(const char *s, size_t n)
{
    unsigned char c = (unsigned char)s[0], next = n > 1 ? (unsigned char)s[1] : 0;
    if (c == '\n' || c == '\t')
        return 1;
    if (c < 0x20 || c == 0x7F || (c == 0xC2 && next >= 0x80 && next < 0xA0))
        return 0;
    size_t len = td_utf8_len(s, n);
    return len ? len : 1;
}

void td_term_text(FILE *f, const char *text, size_t n, bool careful)
{
    size_t from = 0;
    for (size_t i = 0; careful && i < n;) {
        size_t len = harmless(text + i, n - i);
        if (len > 0) {
            i += len;
            continue;
        }
        (void)fwrite(text + from, 1, i - from, f);
        (void)fputs("\xEF\xBF\xBD", f);
        i += (unsigned char)text[i] == 0xC2 ? 2 : 1;
        from = i;
    }
    (void)fwrite(text + from, 1, n - from, f);
}

static void error_line(FILE *f, const char *head, const char *text)
{
    if (!*text)
        return;
    (void)fputs(head, f);
    td_term_text(f, text, strlen(text), true);
    (void)fputc('\n', f);
}

void td_term_error(FILE *f, const struct td_error *err)
{
    error_line(f, "error   ", err->what);
    error_line(f, "cause   ", err->why);
    error_line(f, "fix     ", err->fix);
}

/* ---- progress ---------------------------------------------------------------------- */

static double number(const struct td_num *nums, const char *key)
{
    for (; nums && nums->key; nums++)
        if (strcmp(nums->key, key) == 0)
            return nums->value;
    return 0;
}

enum td_status td_progress_format(const struct td_num *nums, struct td_buf *out)
{
    double bytes = number(nums, "bytes"), of = number(nums, "of");
    double rate = number(nums, "rate"), left = number(nums, "left");
    bool small = of < (double)TD_GIB;
    double unit = small ? (double)TD_MIB : (double)TD_GIB;
    int cells = of > 0 ? (int)(BAR_CELLS * bytes / of) : 0;
    td_buf_adds(out, "load    [");
    for (int i = 0; i < BAR_CELLS; i++)
        td_buf_addc(out, i < cells ? '#' : ' ');
    td_buf_addf(out, "]  %.1f/%.1f %s", bytes / unit, of / unit, small ? "MiB" : "GiB");
    if (rate >= 1e9)
        td_buf_addf(out, "  %.1f GB/s", rate / 1e9);
    else if (rate > 0)
        td_buf_addf(out, "  %.0f MB/s", rate / 1e6);
    if (left >= 0.5)
        td_buf_addf(out, "  %.0f s left", left);
    return out->status;
}

/* Called under the log's lock, so lines of several readers do not mix. */
static void on_event(void *self, const struct td_event *e)
{
    bool *shown = self;
    struct td_buf line;
    if (strcmp(e->name, "progress") == 0) {
        td_buf_init(&line, 256);
        if (td_progress_format(e->nums, &line) == TD_OK)
            (void)fprintf(stderr, "\r%s\033[K", line.p);
        td_buf_release(&line);
        *shown = true;
    } else if (*shown) {
        (void)fputs("\r\033[K", stderr);
        *shown = false;
    }
    (void)fflush(stderr);
}

static bool bar_is_shown;

void td_progress_start(void)
{
    bar_is_shown = false;
    if (td_term_is(stderr))
        td_log_set_listener(on_event, &bar_is_shown);
}

void td_progress_stop(void)
{
    td_log_set_listener(NULL, NULL);
    if (bar_is_shown)
        (void)fputs("\r\033[K", stderr);
    bar_is_shown = false;
}

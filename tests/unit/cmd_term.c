/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written to a terminal: control characters, the progress bar, errors; and the
 * path of the state folder.
 */
#define _DEFAULT_SOURCE
#include "check.h"

#include "base/limits.h"
#include "cmd/term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What fn writes to a file. */
static char written[4096];

static void show_text(const char *text, size_t n, bool careful)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    td_term_text(f, text, n, careful);
    rewind(f);
    size_t got = fread(written, 1, sizeof(written) - 1, f);
    written[got] = 0;
    assert_int_equal(fclose(f), 0);
}

static void check_text(const char *text, const char *want)
{
    show_text(text, strlen(text), true);
    assert_string_equal(written, want);
    show_text(text, strlen(text), false);
    assert_string_equal(written, text);
}

static void test_control_characters(void **unused)
{
    (void)unused;
    check_text("", "");
    check_text("plain\n\ttext", "plain\n\ttext");
    check_text("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80",
               "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
    check_text("a\033[31mred", "a\xEF\xBF\xBD[31mred");
    check_text("\r\a\b\x7F", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    check_text("x\xC2\x9B"
               "31my",
               "x\xEF\xBF\xBD"
               "31my");                                 /* CSI in one character */
    check_text("\xC2\xA0\xC2\xBF", "\xC2\xA0\xC2\xBF"); /* its neighbours */
    check_text("\xC2", "\xC2");
    show_text("a\0b", 3, true);
    assert_memory_equal(written,
                        "a\xEF\xBF\xBD"
                        "b",
                        5);
}

static void test_bar(void **unused)
{
    (void)unused;
    struct td_buf b;
    td_buf_init(&b, 256);
    const struct td_num half[] = {{"bytes", 32 * 1073741824.0},
                                  {"of", 64 * 1073741824.0},
                                  {"rate", 5.1e9},
                                  {"left", 6.7},
                                  {NULL, 0}};
    assert_int_equal(td_progress_format(half, &b), TD_OK);
    assert_string_equal(
        b.p, "load    [###########           ]  32.0/64.0 GiB  5.1 GB/s  7 s left");
    td_buf_clear(&b);
    const struct td_num small[] = {
        {"bytes", 41943040.0}, {"of", 41943040.0}, {"rate", 9.5e8}, {NULL, 0}};
    assert_int_equal(td_progress_format(small, &b), TD_OK);
    assert_string_equal(b.p,
                        "load    [######################]  40.0/40.0 MiB  950 MB/s");
    td_buf_clear(&b);
    const struct td_num none[] = {{"of", 0}, {NULL, 0}};
    assert_int_equal(td_progress_format(none, &b), TD_OK);
    assert_string_equal(b.p, "load    [                      ]  0.0/0.0 MiB");
    td_buf_release(&b);
    td_buf_init(&b, 20);
    assert_int_equal(td_progress_format(half, &b), TD_E_LIMIT);
    td_buf_release(&b);
}

static void test_error(void **unused)
{
    (void)unused;
    struct td_error err;
    td_error_init(&err);
    td_error_set(&err, TD_E_INPUT, "the prompt is empty");
    td_error_why(&err, "it says \033[31m");
    err.fix[0] = 0;
    FILE *f = tmpfile();
    assert_non_null(f);
    td_term_error(f, &err);
    rewind(f);
    written[fread(written, 1, sizeof(written) - 1, f)] = 0;
    assert_int_equal(fclose(f), 0);
    assert_string_equal(written, "error   the prompt is empty\n"
                                 "cause   it says \xEF\xBF\xBD[31m\n");
}

static void test_no_terminal(void **unused)
{
    (void)unused;
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_false(td_term_is(f));
    assert_false(td_term_colours(f));
    assert_int_equal(fclose(f), 0);
}

static void test_state_path(void **unused)
{
    (void)unused;
    char dir[] = "/tmp/td-term-XXXXXX", path[TD_MAX_PATH], want[TD_MAX_PATH];
    struct stat st;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(unsetenv("XDG_STATE_HOME"), 0);
    assert_int_equal(setenv("HOME", dir, 1), 0);
    assert_true(td_state_path(path, sizeof(path), "history"));
    (void)snprintf(want, sizeof(want), "%s/.local/state/tandem/history", dir);
    assert_string_equal(path, want);
    *strrchr(want, '/') = 0;
    assert_int_equal(stat(want, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(td_state_path(path, sizeof(path), "history")); /* they exist now */

    (void)snprintf(want, sizeof(want), "%s/deep/state", dir);
    assert_int_equal(setenv("XDG_STATE_HOME", want, 1), 0);
    assert_true(td_state_path(path, sizeof(path), "x"));
    assert_non_null(strstr(path, "/deep/state/tandem/x"));

    /* A file is in the way; no home; a relative one; a path that does not fit. */
    (void)snprintf(want, sizeof(want), "%s/file", dir);
    FILE *f = fopen(want, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(setenv("XDG_STATE_HOME", want, 1), 0);
    assert_false(td_state_path(path, sizeof(path), "x"));
    assert_int_equal(setenv("XDG_STATE_HOME", "state", 1), 0);
    assert_int_equal(setenv("HOME", "home", 1), 0);
    assert_false(td_state_path(path, sizeof(path), "x"));
    assert_int_equal(unsetenv("HOME"), 0);
    assert_false(td_state_path(path, sizeof(path), "x"));
    assert_int_equal(setenv("HOME", dir, 1), 0);
    assert_false(td_state_path(path, 10, "x"));
    (void)snprintf(path, sizeof(path), "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_no_terminal),
        cmocka_unit_test(test_state_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

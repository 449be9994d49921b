/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table: where values come from and which origin wins, every kind of value,
 * and the words of the errors.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/buf.h"
#include "base/conf.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN = 1, SERVE = 2 };
enum { THREADS, RATE, MODE, SIZE, QUIET, NAME, LABEL, MOST, COUNT };

static const struct td_opt options[] = {
    {"threads", 't', TD_OPT_INT, RUN | SERVE, "N", NULL, 1, 64, "number of threads"},
    {"rate", 0, TD_OPT_REAL, RUN, "X", "0.5", 0, 2, "a rate"},
    {"mode", 0, TD_OPT_CHOICE, RUN, "fast|slow", "fast", 0, 0, "how"},
    {"size", 0, TD_OPT_BYTES, RUN, "BYTES", NULL, 1, 0, "how much"},
    {"quiet", 'q', TD_OPT_BOOL, RUN, "", NULL, 0, 0, "say less"},
    {"file-name", 0, TD_OPT_STR, SERVE, "FILE", NULL, 0, 0, "which file"},
    {"label", 0, TD_OPT_STR, RUN, "TEXT", NULL, 1, 0, "a label"},
    {"most", 0, TD_OPT_BYTES, RUN, "BYTES", NULL, 1, 1024, "at most"},
};
static const struct td_opt_hint hints[] = {{"num-workers", "tandem calls it --threads"},
                                           {NULL, NULL}};

static struct td_conf c;
static struct td_error err;

static int setup(void **state)
{
    (void)state;
    td_error_init(&err);
    return td_conf_init(&c, options, COUNT, hints, &err);
}

static int teardown(void **state)
{
    (void)state;
    td_conf_release(&c);
    return 0;
}

/* Parses words separated by blanks. */
static enum td_status args(const char *line)
{
    static char text[200];
    static char *words[20];
    int n = 0;
    (void)snprintf(text, sizeof(text), "%s", line);
    for (char *p = text; *p && n < 20;) {
        words[n++] = p;
        p += strcspn(p, " ");
        while (*p == ' ')
            *p++ = 0;
    }
    td_error_init(&err);
    return td_conf_parse_args(&c, RUN, n, words, &err);
}

static enum td_status file(const char *text)
{
    char path[] = "/tmp/td_conf_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (long)strlen(text));
    close(fd);
    td_error_init(&err);
    enum td_status s = td_conf_parse_file(&c, path, &err);
    (void)unlink(path);
    return s;
}

static void test_defaults(void **state)
{
    (void)state;
    assert_false(td_conf_is_set(&c, THREADS));
    assert_true(td_conf_is_set(&c, RATE));
    assert_true(td_conf_real(&c, RATE) == 0.5);
    assert_string_equal(td_conf_str(&c, MODE), "fast");
    assert_false(td_conf_bool(&c, QUIET));
    assert_null(td_conf_str(&c, NAME));
}

static void test_flags(void **state)
{
    (void)state;
    assert_int_equal(args("model -t 3 --rate=1.5 --size 2K --quiet - -- --mode"),
                     TD_OK);
    assert_int_equal(td_conf_int(&c, THREADS), 3);
    assert_true(td_conf_real(&c, RATE) == 1.5);
    assert_int_equal(td_conf_int(&c, SIZE), 2048);
    assert_true(td_conf_bool(&c, QUIET));
    assert_int_equal(c.nargs, 3);
    assert_string_equal(c.args[0], "model");
    assert_string_equal(c.args[1], "-");
    assert_string_equal(c.args[2], "--mode");
    assert_int_equal(args("--no-quiet"), TD_OK);
    assert_false(td_conf_bool(&c, QUIET));
    assert_int_equal(args("--quiet=on"), TD_OK);
    assert_true(td_conf_bool(&c, QUIET));
}

static void test_wrong_flags(void **state)
{
    (void)state;
    static const struct {
        const char *line, *what, *fix;
    } cases[] = {
        {"--threads 0", "--threads is \"0\"", "number of threads"},
        {"--threads 65", "--threads is \"65\"", "number"},
        {"--threads=3x", "--threads is \"3x\"", "number"},
        {"--threads 99999999999999999999", "--threads is", "number"},
        {"--rate nan", "--rate is \"nan\"", "rate"},
        {"--rate 2.1", "--rate is \"2.1\"", "rate"},
        {"--mode fas", "--mode is \"fas\"", "how"},
        {"--mode fast|slow", "--mode is", "how"},
        {"--size 5X", "--size is \"5X\"", "how much"},
        {"--label=", "--label is \"\"", "a label"},
        {"--most 1025", "--most is \"1025\"", "at most"},
        {"--size -1", "--size is \"-1\"", "how much"},
        {"--quiet=perhaps", "--quiet is \"perhaps\"", "say less"},
        {"--threads", "--threads needs a value (N)", ""},
        {"--thread 3", "unknown option --thread", "did you mean --threads?"},
        {"--file-name x", "unknown option --file-name", ""},
        {"--no-threads", "unknown option --no-threads", ""},
        {"--num-workers 3", "unknown option --num-workers", "--threads"},
        {"--num-workers=3", "unknown option --num-workers", "--threads"},
        {"-x", "unknown option -x", ""},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        assert_int_equal(args(cases[i].line), TD_E_USAGE);
        assert_non_null(strstr(err.what, cases[i].what));
        assert_non_null(strstr(err.fix, cases[i].fix));
    }
}

static void test_origins(void **state)
{
    (void)state;
    (void)setenv("TANDEM_THREADS", "5", 1);
    (void)setenv("TANDEM_FILE_NAME", "a b", 1);
    assert_int_equal(args("--mode slow"), TD_OK);
    assert_int_equal(td_conf_parse_env(&c, &err), TD_OK);
    assert_int_equal(file("# comment\n\n threads = 7\nmode=fast\nsize = 1MiB\n"
                          "  file-name = c  \nrate = 1"),
                     TD_OK);
    assert_int_equal(td_conf_int(&c, THREADS), 5);
    assert_string_equal(td_conf_str(&c, MODE), "slow");
    assert_string_equal(td_conf_str(&c, NAME), "a b");
    assert_int_equal(td_conf_int(&c, SIZE), 1 << 20);
    assert_true(td_conf_real(&c, RATE) == 1);
    assert_int_equal(c.values[MODE].origin, TD_FROM_FLAG);
    assert_int_equal(c.values[THREADS].origin, TD_FROM_ENV);
    assert_int_equal(c.values[SIZE].origin, TD_FROM_FILE);
    (void)setenv("TANDEM_THREADS", "many", 1);
    td_error_init(&err);
    assert_int_equal(td_conf_parse_env(&c, &err), TD_E_USAGE);
    assert_string_equal(err.what, "TANDEM_THREADS is \"many\"");
    assert_string_equal(err.why, "expected a whole number from 1 to 64");
    (void)setenv("TANDEM_THREADS", "", 1);
    (void)setenv("TANDEM_FILE_NAME", "", 1);
    td_error_init(&err);
    assert_int_equal(td_conf_parse_env(&c, &err), TD_OK);
    assert_string_equal(td_conf_str(&c, NAME), "");
    (void)unsetenv("TANDEM_THREADS");
    (void)unsetenv("TANDEM_FILE_NAME");
    assert_int_equal(args("--most 1K --label x"), TD_OK);
    assert_int_equal(args("--most 1.1K"), TD_E_USAGE);
    assert_string_equal(err.why, "expected a size of at most 1 KiB");
}

/* A key in a variable of nearly that name would protect nothing. */
static void test_misspelt_variables(void **state)
{
    (void)state;
    static const struct {
        const char *name, *means; /* NULL: of something else */
    } cases[] = {{"TANDEM_THREAD", "TANDEM_THREADS"},
                 {"TANDEM_FILENAME", "TANDEM_FILE_NAME"},
                 {"TANDEM_threads", "TANDEM_THREADS"},
                 {"TANDEM_FILE-NAME", "TANDEM_FILE_NAME"},
                 {"TANDEM_THREADS", NULL},
                 {"TANDEM_RANKED", NULL},
                 {"TANDEM_", NULL},
                 {"TANDEM", NULL},
                 {"ANDEM_THREAD", NULL}};
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        td_error_init(&err);
        (void)setenv(cases[i].name, "3", 1);
        enum td_status s = td_conf_parse_env(&c, &err);
        (void)unsetenv(cases[i].name);
        assert_int_equal(s, cases[i].means ? TD_E_USAGE : TD_OK);
        if (cases[i].means)
            assert_non_null(strstr(err.fix, cases[i].means));
    }
}

static void test_wrong_file(void **state)
{
    (void)state;
    assert_int_equal(file("\xEF\xBB\xBFthreads = 2\n\nrate 3\n"), TD_E_USAGE);
    assert_non_null(strstr(err.what, ":3: \"rate 3\" is not a setting"));
    assert_int_equal(file("thread = 2\n"), TD_E_USAGE);
    assert_non_null(strstr(err.what, ":1: there is no option \"thread\""));
    assert_string_equal(err.fix, "did you mean \"threads\"?");
    assert_int_equal(file("size = 0\n"), TD_E_USAGE);
    assert_int_equal(file("mode = other\n"), TD_E_USAGE);
    assert_non_null(strstr(err.what, ":1: mode is \"other\""));
    td_error_init(&err);
    assert_int_equal(td_conf_parse_file(&c, "/no/such/file", &err), TD_E_NOT_FOUND);
    td_error_init(&err);
    assert_int_equal(td_conf_parse_file(&c, "/bin/sh", &err), TD_E_USAGE);
    assert_non_null(strstr(err.what, "not a text file"));
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},          {"100", 100},        {"1k", 1024},
                {"1.5M", 3 << 19}, {"84G", 84LL << 30}, {"2TiB", 2LL << 40},
                {"3KB", 3 << 10}};
    static const char *const bad[] = {"",     "G",   "1GG", "-1",
                                      "1e30", "nan", "1 G", "1BG"};
    int64_t v = 0;
    for (size_t i = 0; i < TD_COUNT(good); i++) {
        assert_true(td_parse_bytes(good[i].text, &v));
        assert_true(v == good[i].value);
    }
    for (size_t i = 0; i < TD_COUNT(bad); i++)
        assert_false(td_parse_bytes(bad[i], &v));
}

static void test_texts(void **state)
{
    (void)state;
    struct td_buf b;
    td_buf_init(&b, 4 * TD_KIB);
    assert_int_equal(td_conf_help(&c, RUN, &b), TD_OK);
    assert_non_null(strstr(b.p, "-t, --threads N"));
    assert_non_null(strstr(b.p, "a rate (default 0.5)"));
    assert_null(strstr(b.p, "file-name"));
    td_buf_clear(&b);
    assert_int_equal(td_buf_add_wrapped(&b, "one\ntwo\n\nthree", 2), TD_OK);
    assert_string_equal(b.p, "one two\n\n  three");
    td_buf_clear(&b);
    for (int i = 0; i < 40; i++)
        td_buf_addc(&b, 'x');
    td_buf_adds(&b, " yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy z");
    char *long_text = td_buf_take(&b);
    assert_non_null(long_text);
    assert_int_equal(td_buf_add_wrapped(&b, long_text, 0), TD_OK);
    assert_int_equal(strcspn(b.p, "\n"), 80); /* as wide as it may be */
    assert_string_equal(b.p + 81, "z");
    td_free(long_text);
    td_buf_clear(&b);
    assert_int_equal(td_conf_markdown(&c, &b), TD_OK);
    assert_non_null(
        strstr(b.p, "| `--mode` | `TANDEM_MODE` | fast\\|slow | fast | how |\n"));
    assert_non_null(strstr(b.p, "`TANDEM_FILE_NAME`"));
    td_buf_release(&b);
}

/* Every allocation fails once; nothing leaks and the error says so. */
static void test_no_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct td_conf own;
        char threads[] = "--threads", three[] = "3", mode[] = "--mode=slow";
        char *words[] = {threads, three, mode, three};
        td_error_init(&err);
        td_mem_fail_at(n);
        enum td_status s = td_conf_init(&own, options, COUNT, hints, &err);
        if (s == TD_OK)
            s = td_conf_parse_args(&own, RUN, 4, words, &err);
        td_mem_fail_at(0);
        td_conf_release(&own);
        if (s == TD_OK)
            break;
        assert_int_equal(s, TD_E_NOMEM);
        assert_int_equal(err.code, TD_E_NOMEM);
        assert_true(n < 20);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults),    TEST(test_flags),
        TEST(test_wrong_flags), TEST(test_origins),
        TEST(test_sizes),       TEST(test_texts),
        TEST(test_wrong_file),  TEST(test_misspelt_variables),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

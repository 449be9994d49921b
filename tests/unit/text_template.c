/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: what jinja2 gives for every recorded case (tests/cases/template, see
 * tools/record_templates.py), where templates come from, what errors say, the ceilings,
 * and that no failing allocation leaks or crashes.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "text/template.h"

#define CASES "tests/cases/template/"

/* ---- recorded cases -------------------------------------------------------------- */

static const char *text_of(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

/* True when the failure is the recorded one, as far as both speak of the same. */
static bool same_failure(const json_t *expected, const struct td_error *err)
{
    const char *kind = text_of(expected, "error"),
               *message = text_of(expected, "message");
    char place[48];
    if (err->code != TD_E_TEMPLATE)
        return err->code == TD_E_LIMIT && (strcmp(kind, "RecursionError") == 0 ||
                                           strcmp(kind, "OverflowError") == 0);
    if (strcmp(kind, "TemplateError") == 0)
        return strstr(err->what, "refused the messages") &&
               strcmp(err->why, message) == 0;
    if (strcmp(kind, "UndefinedError") == 0)
        return strcmp(err->why, message) == 0;
    if (json_object_get(expected, "line")) {
        (void)snprintf(
            place, sizeof(place), ", line %lld: not a valid template",
            (long long)json_integer_value(json_object_get(expected, "line")));
        return strstr(err->what, place) != NULL;
    }
    return strstr(err->what, "line ") != NULL && err->why[0];
}

/* Renders one case; prints what differs and returns false. */
static bool check_case(const struct td_template *t, const struct td_error *parse,
                       const json_t *context, const json_t *expected, const char *label)
{
    struct td_buf out;
    struct td_error err = *parse;
    const char *output = json_string_value(json_object_get(expected, "output"));
    td_buf_init(&out, (size_t)TD_MAX_TEMPLATE_OUTPUT);
    bool ok = t && td_template_render(t, context, &out, &err) == TD_OK;
    bool same = ok ? output && strcmp(out.p, output) == 0
                   : !output && same_failure(expected, &err);
    if (!same)
        print_message("%s\n  expected %s%s: %s\n  got      %s%s%s\n", label,
                      output ? "" : text_of(expected, "error"), output ? output : "",
                      text_of(expected, "message"), ok ? out.p : err.what,
                      ok ? "" : ": ", ok ? "" : err.why);
    td_buf_release(&out);
    return same;
}

static json_t *read_json(const char *path)
{
    struct td_error err;
    json_t *j = NULL;
    td_error_init(&err);
    if (td_json_read(path, (size_t)TD_MAX_CONFIG_FILE, &j, &err) != TD_OK)
        fail_msg("%s", err.what);
    return j;
}

static size_t check_micro(const json_t *file, size_t *bad)
{
    const json_t *cases = json_object_get(file, "cases");
    json_t *empty = json_object();
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const json_t *source = json_object_get(c, "template");
        const json_t *context = json_object_get(c, "context");
        struct td_template *t = NULL;
        struct td_error err;
        td_error_init(&err);
        (void)td_template_new(json_string_value(source), json_string_length(source),
                              "case", &t, &err);
        *bad += !check_case(t, &err, context ? context : empty, c,
                            json_string_value(source));
        td_template_free(t);
    }
    json_decref(empty);
    return json_array_size(cases);
}

static size_t check_whole(json_t *file, json_t *conversations, size_t *bad)
{
    const char *path = text_of(file, "template"), *name;
    json_t *renders = json_object_get(file, "renders"), *expected;
    struct td_template *t = NULL;
    struct td_error err;
    struct td_buf source;
    char label[160];
    td_error_init(&err);
    td_buf_init(&source, (size_t)TD_MAX_TEMPLATE_FILE);
    assert_int_equal(td_file_read(path, &source, &err), TD_OK);
    assert_int_equal(td_template_new(source.p, source.len, path, &t, &err), TD_OK);
    json_object_foreach(renders, name, expected)
    {
        const json_t *context = json_object_get(conversations, name);
        assert_non_null(context);
        (void)snprintf(label, sizeof(label), "%s, %s", path, name);
        *bad += !check_case(t, &err, context, expected, label);
    }
    td_template_free(t);
    td_buf_release(&source);
    return json_object_size(renders);
}

static void test_recorded(void **state)
{
    (void)state;
    glob_t files;
    size_t count = 0, bad = 0;
    json_t *conversations = read_json(CASES "conversations.json");
    assert_int_equal(glob(CASES "*.json", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        json_t *file = read_json(files.gl_pathv[i]);
        if (json_object_get(file, "cases"))
            count += check_micro(file, &bad);
        else if (json_object_get(file, "renders"))
            count += check_whole(file, conversations, &bad);
        json_decref(file);
    }
    globfree(&files);
    json_decref(conversations);
    print_message("%zu recorded cases, %zu differ\n", count, bad);
    assert_true(count > 1000);
    assert_int_equal(bad, 0);
}

/* ---- helpers --------------------------------------------------------------------- */

static enum td_status render(const char *source, const char *context,
                             struct td_buf *out, struct td_error *err)
{
    struct td_template *t = NULL;
    json_t *j = NULL;
    td_error_init(err);
    enum td_status s = td_json_parse(context, strlen(context), "context", &j, err);
    if (s == TD_OK)
        s = td_template_new(source, strlen(source), "t", &t, err);
    if (s == TD_OK)
        s = td_template_render(t, j, out, err);
    td_template_free(t);
    json_decref(j);
    return s;
}

static void expect(const char *source, const char *context, const char *output)
{
    struct td_buf out;
    struct td_error err;
    td_buf_init(&out, (size_t)TD_MAX_TEMPLATE_OUTPUT);
    if (render(source, context, &out, &err) != TD_OK)
        fail_msg("%s: %s: %s", source, err.what, err.why);
    assert_string_equal(out.p, output);
    td_buf_release(&out);
}

static void expect_error(const char *source, const char *context, enum td_status code,
                         const char *what, const char *why)
{
    struct td_buf out;
    struct td_error err;
    td_buf_init(&out, (size_t)TD_MAX_TEMPLATE_OUTPUT);
    td_buf_adds(&out, "before");
    assert_int_equal(render(source, context, &out, &err), code);
    assert_int_equal(err.code, code);
    if (strcmp(err.what, what) != 0 || !strstr(err.why, why))
        fail_msg("%s\n  got %s: %s", source, err.what, err.why);
    assert_string_equal(out.p, "before");
    assert_int_equal(out.status, TD_OK);
    td_buf_release(&out);
}

/* ---- errors ---------------------------------------------------------------------- */

static void test_errors_name_the_place(void **state)
{
    (void)state;
    expect_error("a\n\n{% if x %}\n{{ x.y.z }}{% endif %}", "{\"x\":{\"a\":1}}",
                 TD_E_TEMPLATE, "t, line 4: the chat template failed",
                 "'dict object' has no attribute 'y'");
    expect_error("\n{{ raise_exception('Only \\'user\\', please: ' ~ messages) }}",
                 "{\"messages\":[1]}", TD_E_TEMPLATE,
                 "t, line 2: the chat template refused the messages",
                 "Only 'user', please: [1]");
    expect_error("{% for x in y %}\n\n{{ x }}", "{}", TD_E_TEMPLATE,
                 "t, line 3: not a valid template",
                 "expected {% endfor %} or {% else %} for the tag of line 1, found end "
                 "of template");
    expect_error("{{ 'a'\n | nope }}", "{}", TD_E_TEMPLATE,
                 "t, line 2: not a valid template", "there is no filter named 'nope'");
    expect_error("{{ 1 is nope }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: not a valid template", "there is no test named 'nope'");
    expect_error("{{ nope(1) }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: the chat template failed", "'nope' is undefined");
    expect_error("{{ 'a'|xmlattr }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: the chat template failed", "'xmlattr' is not supported");
    expect_error("{% include 'x' %}", "{}", TD_E_TEMPLATE,
                 "t, line 1: not a valid template", "cannot use other templates");
    expect_error("{{ 9223372036854775807 + 1 }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: the chat template failed",
                 "an integer does not fit into 64 bits");
    expect_error("{{ 9223372036854775808 }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: not a valid template", "does not fit into 64 bits");
    expect_error("x", "[]", TD_E_INPUT, "t: the context is not a JSON object", "");
    expect_error("{{ '\\ud800' }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: not a valid template", "half of a surrogate pair");
    expect_error("{{ '\\N{DASH}' }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: not a valid template", "is not supported");
    expect_error("a\n\xFF", "{}", TD_E_TEMPLATE, "t, line 1: not a valid template",
                 "not UTF-8");
}

static void test_generators_print_without_address(void **state)
{
    (void)state;
    expect("{{ [1]|map('string') }} {{ {}|items }}"
           "{{ range }} {{ 'a'.upper }} {{ joiner() }}",
           "{}",
           "<generator object> <generator object><function range> <method upper of str "
           "object> <Joiner object>");
}

/* ---- ceilings -------------------------------------------------------------------- */

static void test_ceilings(void **state)
{
    (void)state;
    const char *what = "t, line 1: the chat template reached a built-in limit";
    expect_error("{% for a in range(100000) %}{% for b in range(100000) %}"
                 "{% endfor %}{% endfor %}",
                 "{}", TD_E_LIMIT, what, "TD_MAX_TEMPLATE_STEPS");
    expect_error("{% macro m(a) %}{{ m(a + 1) }}{% endmacro %}{{ m(0) }}", "{}",
                 TD_E_LIMIT, what, "TD_MAX_TEMPLATE_DEPTH");
    expect_error("{% set ns = namespace(s='ab') %}{% for i in range(60) %}"
                 "{% set ns.s = ns.s * 2 %}{% endfor %}",
                 "{}", TD_E_LIMIT, what, "TD_MAX_TEMPLATE_MEMORY");
    expect_error("{% set ns = namespace(s=[1]) %}{% for i in range(60) %}"
                 "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                 "{}", TD_E_LIMIT, what, "TD_MAX_TEMPLATE_");
    expect_error("{{ 'x' * 100000000 }}", "{}", TD_E_LIMIT, what,
                 "TD_MAX_TEMPLATE_OUTPUT");
    expect_error("{{ range(100001) }}", "{}", TD_E_LIMIT, what,
                 "TD_MAX_TEMPLATE_RANGE");
    expect_error("{{ '%1000000d' % 1 }}", "{}", TD_E_LIMIT, what,
                 "TD_MAX_TEMPLATE_WIDTH");
    expect_error("{% set ns = namespace(v=1) %}{% for i in range(2000) %}"
                 "{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}",
                 "{}", TD_E_LIMIT, what, "TD_MAX_TEMPLATE_DEPTH");
    expect_error("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "{}",
                 TD_E_LIMIT, what, "TD_MAX_TEMPLATE_DEPTH");
    expect_error("{{ (('a' * 1000000) ~ 'b') in ('a' * 40000000) }}", "{}", TD_E_LIMIT,
                 what, "TD_MAX_TEMPLATE_STEPS");
}

static void test_source_ceilings(void **state)
{
    (void)state;
    struct td_error err;
    struct td_template *t = NULL;
    char deep[4096] = "";
    for (int i = 0; i < 150; i++)
        (void)snprintf(deep + (size_t)i * 10, sizeof(deep) - 1500, "{%% if 1 %%}");
    expect_error(deep, "{}", TD_E_TEMPLATE, "t, line 1: not a valid template",
                 "TD_MAX_TEMPLATE_NESTING");
    (void)snprintf(deep, sizeof(deep), "{{ ");
    memset(deep + 3, '(', 2000);
    deep[2003] = 0;
    expect_error(deep, "{}", TD_E_TEMPLATE, "t, line 1: not a valid template",
                 "TD_MAX_TEMPLATE_NESTING");
    memset(deep + 3, '-', 2000);
    expect_error(deep, "{}", TD_E_TEMPLATE, "t, line 1: not a valid template",
                 "TD_MAX_TEMPLATE_NESTING");
    size_t n = (size_t)TD_MAX_TEMPLATE_FILE + 1;
    char *big = td_calloc(n, 1);
    assert_non_null(big);
    memset(big, 'x', n);
    td_error_init(&err);
    assert_int_equal(td_template_new(big, n, "big", &t, &err), TD_E_LIMIT);
    assert_non_null(strstr(err.what, "TD_MAX_TEMPLATE_FILE"));
    for (size_t i = 0; i + 6 < n; i += 6)
        memcpy(big + i, "{{[]}}", 6);
    td_error_init(&err);
    assert_int_equal(td_template_new(big, n - 1, "big", &t, &err), TD_OK);
    td_template_free(t);
    td_free(big);
}

static void test_caller_limits_the_output(void **state)
{
    (void)state;
    struct td_buf out;
    struct td_error err;
    td_buf_init(&out, 8);
    td_buf_adds(&out, "12");
    assert_int_equal(render("{{ 'abcdefg' }}", "{}", &out, &err), TD_E_LIMIT);
    assert_non_null(strstr(err.why, "the room for the prompt (8)"));
    assert_string_equal(out.p, "12");
    assert_int_equal(render("{{ 'abcdef' }}", "{}", &out, &err), TD_OK);
    assert_string_equal(out.p, "12abcdef");
    td_buf_release(&out);
}

/* Text that grows piece by piece costs what it weighs, not its square. */
static void test_growing_values_are_cheap(void **state)
{
    (void)state;
    expect("{% set ns = namespace(s='', l=[]) %}{% for i in range(50000) %}"
           "{% set ns.s = ns.s + '0123456789' %}{% set ns.l = ns.l + [i] %}{% endfor %}"
           "{{ ns.s|length }} {{ ns.l|length }} {{ ns.l[-1] }}",
           "{}", "500000 50000 49999");
    expect("{% set a = 'x' * 300 %}{% set b = a + 'b' %}{% set c = a + 'c' %}"
           "{% set d = b + 'd' %}{{ b[-2:] }} {{ c[-2:] }} {{ d[-3:] }}"
           "{% set l = [1] %}{% set m = l + [2] %}{% set n = l + [3] %}"
           " {{ l }}{{ m }}{{ n }}{{ m + m }}",
           "{}", "xb xc xbd [1][1, 2][1, 3][1, 2, 1, 2]");
}

/* ---- failing memory -------------------------------------------------------------- */

static const char busy[] =
    "{% macro f(a, b='x') %}{{ a ~ b }}{{ varargs }}{{ kwargs }}{{ caller('c') }}"
    "{% endmacro %}"
    "{% set ns = namespace(n=0, s='') %}"
    "{% for k, v in d.items() if v %}{{ loop.index }}{{ loop.last }}{{ loop.length }}"
    "{% set ns.s = ns.s + k * 200 %}{{ k|upper ~ v|tojson(indent=2) }}{% else %}-"
    "{% endfor %}"
    "{% call(x) f(1, 'b', 3, q=4) %}<{{ x }}>{% endcall %}"
    "{{ l|sort|unique|map('string')|join(',') }}{{ l|groupby('real')|list|length }}"
    "{{ '%s-%05.1f' % ('a', 2) }}{{ '{:>5}{x[0]}'.format(1, x=[2]) }}"
    "{{ 'a b c'.split() + 'x,y'.rsplit(',') }}{{ 'aXb'.replace('X', '--').title() }}"
    "{% filter indent(2) %}a\nb{% endfilter %}{% set q %}in{{ 1 }}{% endset %}{{ q }}"
    "{% with a = [1, {'k': (1, 2)}] %}{{ a }}{{ a[1].k[::-1] }}{% endwith %}"
    "{{ range(9)[2:7:2]|batch(2, 0)|list }}{{ l|select('odd')|list }}"
    "{{ d|dictsort }}{{ l|sum }}{{ l|max }}{{ ('<'|e) + '>' }}"
    "{% for x in l %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}"
    "{{ {'a':1,'b':2,'c':3,'d':4,'e':5,'f':6,'g':7,'h':8,'i':9,'j':10}.j }}"
    "{{ 'y' * 5000 }}{{ ns.s|length }}{{ range(2000)|list|length }}";

/* Lets each allocation of parsing and rendering fail once; returns their number. */
static long fail_each(const char *source, size_t len, const json_t *context)
{
    struct td_buf out;
    td_buf_init(&out, (size_t)TD_MAX_TEMPLATE_OUTPUT);
    long n = 0;
    for (enum td_status s = TD_E_NOMEM; s == TD_E_NOMEM; n++) {
        struct td_template *t = NULL;
        struct td_error err;
        td_error_init(&err);
        td_buf_release(&out);
        td_mem_fail_at(n + 1);
        s = td_template_new(source, len, "t", &t, &err);
        if (s == TD_OK)
            s = td_template_render(t, context, &out, &err);
        td_mem_fail_at(0);
        td_template_free(t);
        assert_true(s == TD_OK || s == TD_E_NOMEM || s == TD_E_TEMPLATE);
        assert_int_equal(err.code, s);
        assert_true(s == TD_OK || out.len == 0);
    }
    td_buf_release(&out);
    return n - 1;
}

static void test_allocations_fail(void **state)
{
    (void)state;
    json_t *context = json_pack("{s:{s:[i,s],s:n,s:{s:f}},s:[i,i,i,i]}", "d", "a", 1,
                                "\xC3\xA9", "b", "c", "x", 1.5, "l", 3, 1, 2, 3);
    long failed = fail_each(busy, strlen(busy), context);
    assert_true(failed > 10);
    json_decref(context);
    json_t *conversations = read_json(CASES "conversations.json");
    glob_t files;
    assert_int_equal(glob(CASES "*.jinja", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct td_buf source;
        struct td_error err;
        td_error_init(&err);
        td_buf_init(&source, (size_t)TD_MAX_TEMPLATE_FILE);
        assert_int_equal(td_file_read(files.gl_pathv[i], &source, &err), TD_OK);
        failed += fail_each(source.p, source.len,
                            json_object_get(conversations, "call with text, answer"));
        td_buf_release(&source);
    }
    globfree(&files);
    json_decref(conversations);
    print_message("%ld allocations failed, one at a time\n", failed);
    assert_true(failed > 200);
}

/* ---- loading --------------------------------------------------------------------- */

static char dir[] = "/tmp/td_template_XXXXXX";

static void put_file(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (!text) {
        (void)unlink(path);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void expect_loaded(const char *context, const char *output)
{
    struct td_template *t = NULL;
    struct td_error err;
    struct td_buf out;
    json_t *j = json_loads(context, 0, NULL);
    td_error_init(&err);
    td_buf_init(&out, 4096);
    if (td_template_load(dir, &t, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    assert_int_equal(td_template_render(t, j, &out, &err), TD_OK);
    assert_string_equal(out.p, output);
    td_buf_release(&out);
    td_template_free(t);
    json_decref(j);
}

static void expect_not_loaded(enum td_status code, const char *what)
{
    struct td_template *t = NULL;
    struct td_error err;
    td_error_init(&err);
    assert_int_equal(td_template_load(dir, &t, &err), code);
    assert_null(t);
    if (!strstr(err.what, what))
        fail_msg("%s: %s", err.what, err.why);
}

static void test_load(void **state)
{
    (void)state;
    char path[256];
    assert_non_null(mkdtemp(dir));
    expect_not_loaded(TD_E_NOT_FOUND, "has no chat template");
    put_file("tokenizer_config.json", "{\"bos_token\":\"<s>\"}");
    expect_not_loaded(TD_E_NOT_FOUND, "has no chat template");
    put_file("tokenizer_config.json", "{\"chat_template\":\"A{{ x }}\"}");
    expect_loaded("{\"x\":1}", "A1");
    put_file("tokenizer_config.json",
             "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"R\"}]}");
    expect_not_loaded(TD_E_NOT_FOUND, "has no chat template");
    put_file(
        "tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T{{ tools }}\"},"
        "{\"name\":\"default\",\"template\":\"D\"}]}");
    expect_loaded("{}", "D");
    expect_loaded("{\"tools\":null}", "D");
    expect_loaded("{\"tools\":[1]}", "T[1]");
    put_file("tokenizer_config.json", "{\"chat_template\":\"{{ \"}");
    expect_not_loaded(TD_E_TEMPLATE, "tokenizer_config.json, line 1: not a valid");
    put_file("tokenizer_config.json", "{\"chat_template\":");
    expect_not_loaded(TD_E_JSON, "tokenizer_config.json");
    put_file("chat_template.jinja", "F\n{{ tools is defined }}\n");
    expect_loaded("{\"tools\":[]}", "F\nTrue");
    (void)snprintf(path, sizeof(path), "%s/additional_chat_templates", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    put_file("additional_chat_templates/tool_use.jinja", "U");
    expect_loaded("{\"tools\":[]}", "U");
    expect_loaded("{}", "F\nFalse");
    put_file("additional_chat_templates/tool_use.jinja", "{{");
    expect_not_loaded(TD_E_TEMPLATE, "tool_use.jinja, line 1");
    put_file("additional_chat_templates/tool_use.jinja", NULL);
    put_file("chat_template.jinja", NULL);
    put_file("tokenizer_config.json", NULL);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_load_fails_without_memory(void **state)
{
    (void)state;
    struct td_template *t = NULL;
    struct td_error err;
    enum td_status s = TD_E_NOMEM;
    for (long n = 1; s != TD_OK; n++) {
        td_error_init(&err);
        td_mem_fail_at(n);
        s = td_template_load("models/lexicon", &t, &err);
        td_mem_fail_at(0);
        assert_true(s == TD_OK || s == TD_E_NOMEM);
        assert_int_equal(err.code, s);
    }
    td_template_free(t);
    td_template_free(NULL);
}

/* ---- time, threads --------------------------------------------------------------- */

static void test_strftime_now(void **state)
{
    (void)state;
    struct td_buf out;
    struct td_error err;
    static const char format[] = "%Y-%m-%d %H:%M %j %A %a %B %b %I %p %% %F|%e";
    char source[128], before[256], after[256];
    struct tm tm;
    time_t now = time(NULL);
    (void)snprintf(source, sizeof(source), "{{ strftime_now('%s') }}", format);
    td_buf_init(&out, 4096);
    assert_int_equal(
        strftime(before, sizeof(before), format, localtime_r(&now, &tm)) > 0, 1);
    assert_int_equal(render(source, "{}", &out, &err), TD_OK);
    now = time(NULL);
    assert_int_equal(strftime(after, sizeof(after), format, localtime_r(&now, &tm)) > 0,
                     1);
    assert_true(strcmp(out.p, before) == 0 || strcmp(out.p, after) == 0);
    td_buf_release(&out);
    expect("{{ strftime_now('%f')|length }}{{ strftime_now('x%z%Z') }}", "{}", "6x");
    expect("{{ strftime_now('%-d') == strftime_now('%d')|int|string }}", "{}", "True");
    expect_error("{{ strftime_now('%Q') }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: the chat template failed", "%Q is not supported");
    expect_error("{{ strftime_now(1) }}", "{}", TD_E_TEMPLATE,
                 "t, line 1: the chat template failed", "must be str");
}

struct job {
    const struct td_template *t;
    const json_t *context;
    char *text;
};

static void *render_many(void *arg)
{
    struct job *job = arg;
    struct td_buf out;
    struct td_error err;
    td_error_init(&err);
    td_buf_init(&out, (size_t)TD_MAX_TEMPLATE_OUTPUT);
    for (int i = 0; i < 50; i++) {
        td_buf_clear(&out);
        if (td_template_render(job->t, job->context, &out, &err) != TD_OK)
            break;
    }
    job->text = td_buf_take(&out);
    return NULL;
}

static void test_threads_share_a_template(void **state)
{
    (void)state;
    struct td_template *t = NULL;
    struct td_error err;
    pthread_t threads[4];
    struct job jobs[4];
    td_error_init(&err);
    assert_int_equal(td_template_load("models/lexicon", &t, &err), TD_OK);
    json_t *conversations = read_json(CASES "conversations.json");
    const json_t *context = json_object_get(conversations, "two calls");
    for (size_t i = 0; i < 4; i++) {
        jobs[i] = (struct job){.t = t, .context = context};
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, &jobs[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(strlen(jobs[i].text) > 100);
        assert_string_equal(jobs[i].text, jobs[0].text);
    }
    for (size_t i = 0; i < 4; i++)
        td_free(jobs[i].text);
    json_decref(conversations);
    td_template_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_errors_name_the_place),
        cmocka_unit_test(test_generators_print_without_address),
        cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_source_ceilings),
        cmocka_unit_test(test_caller_limits_the_output),
        cmocka_unit_test(test_growing_values_are_cheap),
        cmocka_unit_test(test_allocations_fail),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_load_fails_without_memory),
        cmocka_unit_test(test_strftime_now),
        cmocka_unit_test(test_threads_share_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table. See conf.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/conf.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names and values of the environment; POSIX has no header that declares it. */
extern char **environ;

bool td_parse_bytes(const char *s, int64_t *out)
{
    char *end;
    errno = 0;
    double v = strtod(s, &end);
    if (end == s || errno || !(v >= 0))
        return false;
    static const char units[] = "KMGT";
    const char *u = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (u) {
        v = ldexp(v, 10 * ((int)(u - units) + 1));
        end++;
        if (*end == 'i')
            end++;
        if (*end == 'B')
            end++;
    }
    if (*end || v > 9e18)
        return false;
    *out = (int64_t)v;
    return true;
}

static bool parse_bool(const char *s, int64_t *out)
{
    static const char *const yes[] = {"1", "true", "yes", "on"};
    static const char *const no[] = {"0", "false", "no", "off"};
    for (size_t i = 0; i < TD_COUNT(yes); i++) {
        if (strcmp(s, yes[i]) == 0 || strcmp(s, no[i]) == 0) {
            *out = strcmp(s, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool is_choice(const char *choices, const char *s)
{
    size_t n = strlen(s);
    for (const char *p = choices; p; p = strchr(p, '|')) {
        p += *p == '|';
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, s, n) == 0)
            return true;
    }
    return false;
}

/* What a value of this option must look like, in words. */
static void describe(const struct td_opt *o, char *out, size_t size)
{
    switch (o->kind) {
    case TD_OPT_BOOL:
        (void)snprintf(out, size, "true or false");
        break;
    case TD_OPT_INT:
        (void)snprintf(out, size, "a whole number from %.0f to %.0f", o->lo, o->hi);
        break;
    case TD_OPT_REAL:
        (void)snprintf(out, size, "a number from %g to %g", o->lo, o->hi);
        break;
    case TD_OPT_BYTES:
        if (o->hi > 0)
            (void)snprintf(out, size, "a size of at most %s",
                           td_size_text((int64_t)o->hi, 0).text);
        else
            (void)snprintf(out, size, "a size such as 512M or 84G");
        break;
    case TD_OPT_CHOICE:
        (void)snprintf(out, size, "one of %s", o->arg);
        break;
    case TD_OPT_STR:
        (void)snprintf(out, size, "a text that is not empty");
        break;
    }
}

static bool convert(const struct td_opt *o, const char *s, struct td_opt_value *v)
{
    char *end;
    errno = 0;
    switch (o->kind) {
    case TD_OPT_BOOL:
        return parse_bool(s, &v->i);
    case TD_OPT_INT:
        v->i = strtoll(s, &end, 10);
        return end != s && !*end && !errno && (double)v->i >= o->lo &&
               (double)v->i <= o->hi;
    case TD_OPT_REAL:
        v->d = strtod(s, &end);
        return end != s && !*end && v->d >= o->lo && v->d <= o->hi;
    case TD_OPT_BYTES:
        return td_parse_bytes(s, &v->i) && (double)v->i >= o->lo &&
               (o->hi == 0 || (double)v->i <= o->hi);
    case TD_OPT_CHOICE:
        return is_choice(o->arg, s);
    case TD_OPT_STR:
        return (double)strlen(s) >= o->lo;
    }
    return false;
}

/* Sets an option unless a stronger origin has set it already. `how` is how the user
 * wrote it ("--threads", "TANDEM_THREADS", "tandem.conf:3: threads"). */
static enum td_status assign(struct td_conf *c, size_t i, enum td_opt_origin origin,
                             const char *how, const char *text, struct td_error *err)
{
    struct td_opt_value v = {.origin = origin, .set = true};
    char want[256];
    if (!convert(&c->opts[i], text, &v)) {
        describe(&c->opts[i], want, sizeof(want));
        td_error_set(err, TD_E_USAGE, "%s is \"%s\"", how, text);
        td_error_why(err, "expected %s", want);
        td_error_fix(err, "%s", c->opts[i].help);
        return TD_E_USAGE;
    }
    if (c->values[i].set && c->values[i].origin > origin)
        return TD_OK;
    v.s = td_strdup(text);
    if (!v.s)
        return td_error_set(err, TD_E_NOMEM, "no memory for option %s", how);
    td_free(c->values[i].s);
    c->values[i] = v;
    return TD_OK;
}

enum td_status td_conf_init(struct td_conf *c, const struct td_opt *opts, size_t count,
                            const struct td_opt_hint *hints, struct td_error *err)
{
    *c = (struct td_conf){.opts = opts, .count = count, .hints = hints};
    c->values = td_calloc(count, sizeof(*c->values));
    if (!c->values)
        return td_error_set(err, TD_E_NOMEM, "no memory for options");
    for (size_t i = 0; i < count; i++) {
        if (!opts[i].def)
            continue;
        enum td_status s =
            assign(c, i, TD_FROM_DEFAULT, opts[i].name, opts[i].def, err);
        if (s != TD_OK)
            return s;
    }
    return TD_OK;
}

void td_conf_release(struct td_conf *c)
{
    for (size_t i = 0; c->values && i < c->count; i++)
        td_free(c->values[i].s);
    td_free(c->values);
    td_free(c->args);
    *c = (struct td_conf){0};
}

/* Levenshtein distance of two short names; long ones count as far. */
static int distance(const char *a, size_t n, const char *b)
{
    enum { MAX_NAME = 40 };
    size_t m = strlen(b);
    int row[MAX_NAME + 1];
    if (n > MAX_NAME || m > MAX_NAME)
        return MAX_NAME;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int swap = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = TD_MIN(swap, TD_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

/* The option whose name is fewer than `most` letters away, or NULL. */
static const struct td_opt *nearest(const struct td_conf *c, unsigned verbs,
                                    const char *name, size_t n, int most)
{
    const struct td_opt *best = NULL;
    for (size_t i = 0; i < c->count; i++) {
        int d = distance(name, n, c->opts[i].name);
        if (d < most && (c->opts[i].verbs & verbs)) {
            most = d;
            best = &c->opts[i];
        }
    }
    return best;
}

/* A name of other letters is none. */
static int most_typos(size_t n)
{
    return TD_MIN(4, (int)n);
}

/* word is the flag as given, flag its name: n bytes behind the dashes. */
static enum td_status unknown(const struct td_conf *c, unsigned verbs, const char *word,
                              const char *flag, size_t n, struct td_error *err)
{
    td_error_set(err, TD_E_USAGE, "unknown option %.*s", (int)(flag + n - word), word);
    td_error_why(err, "this verb has no such option");
    for (size_t i = 0; i < c->count && word[1] != '-' && n > 1; i++)
        if (c->opts[i].letter == *flag && (c->opts[i].verbs & verbs))
            td_error_fix(err, "between -%c and its value there is a space", *flag);
    for (const struct td_opt_hint *h = c->hints; h && h->theirs; h++)
        if (strlen(h->theirs) == n && memcmp(h->theirs, flag, n) == 0) {
            td_error_fix(err, "%s", h->ours);
            return TD_E_USAGE; /* however near another name is */
        }
    const struct td_opt *o = nearest(c, verbs, flag, n, most_typos(n));
    if (o)
        td_error_fix(err, "did you mean --%s?", o->name);
    return TD_E_USAGE;
}

static bool find(const struct td_conf *c, unsigned verbs, const char *name, size_t n,
                 size_t *out)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct td_opt *o = &c->opts[i];
        bool same = n == 1 && o->letter == *name && o->letter;
        same = same || (strlen(o->name) == n && memcmp(o->name, name, n) == 0);
        if (same && (o->verbs & verbs)) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* One flag at argv[*at]; moves *at to its last word. */
static enum td_status parse_flag(struct td_conf *c, unsigned verbs, int argc,
                                 char **argv, int *at, struct td_error *err)
{
    const char *word = argv[*at];
    const char *name = word + (word[1] == '-' ? 2 : 1);
    size_t n = strcspn(name, "="), i;
    const char *value = name[n] ? name + n + 1 : NULL;
    if (find(c, verbs, name, n, &i)) {
        if (c->opts[i].kind == TD_OPT_BOOL && !value)
            value = "true";
    } else if (n > 3 && memcmp(name, "no-", 3) == 0 && !value &&
               find(c, verbs, name + 3, n - 3, &i) && c->opts[i].kind == TD_OPT_BOOL) {
        value = "false";
    } else {
        return unknown(c, verbs, word, name, n, err);
    }
    if (!value && *at + 1 >= argc) {
        td_error_set(err, TD_E_USAGE, "%s needs a value (%s)", word, c->opts[i].arg);
        td_error_why(err, "it is the last word of the command line");
        return TD_E_USAGE;
    }
    if (!value)
        value = argv[++*at];
    char how[96];
    (void)snprintf(how, sizeof(how), "%.*s", (int)(name + n - word), word);
    return assign(c, i, TD_FROM_FLAG, how, value, err);
}

enum td_status td_conf_parse_args(struct td_conf *c, unsigned verbs, int argc,
                                  char **argv, struct td_error *err)
{
    bool flags = true;
    td_free(c->args);
    c->nargs = 0;
    c->args = td_calloc((size_t)argc + 1, sizeof(*c->args));
    if (!c->args)
        return td_error_set(err, TD_E_NOMEM, "no memory for arguments");
    for (int at = 0; at < argc; at++) {
        if (flags && strcmp(argv[at], "--") == 0) {
            flags = false;
        } else if (flags && argv[at][0] == '-' && argv[at][1]) {
            enum td_status s = parse_flag(c, verbs, argc, argv, &at, err);
            if (s != TD_OK)
                return s;
        } else {
            c->args[c->nargs++] = argv[at];
        }
    }
    return TD_OK;
}

static void env_name(const char *name, char *out, size_t size)
{
    (void)snprintf(out, size, "TANDEM_%s", name);
    for (char *p = out; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

/* A variable that was meant to be an option's must not be ignored. Others may begin
 * alike: only what is one letter of four away counts. */
static enum td_status check_names(const struct td_conf *c, struct td_error *err)
{
    static const char prefix[] = "TANDEM_";
    for (char **e = environ; e && *e; e++) {
        char name[64], right[64];
        size_t n = strcspn(*e, "=");
        if (n < sizeof(prefix) || n >= sizeof(name) ||
            memcmp(*e, prefix, sizeof(prefix) - 1) != 0)
            continue;
        n -= sizeof(prefix) - 1;
        for (size_t i = 0; i < n; i++) {
            int letter = (unsigned char)(*e)[sizeof(prefix) - 1 + i];
            name[i] = letter == '_' ? '-' : (char)tolower(letter);
        }
        const struct td_opt *o = nearest(c, ~0u, name, n, (int)n / 4 + 1);
        if (!o)
            continue;
        env_name(o->name, right, sizeof(right));
        if (strlen(right) == strcspn(*e, "=") && memcmp(right, *e, strlen(right)) == 0)
            continue;
        td_error_set(err, TD_E_USAGE, "%.*s is no variable of tandem",
                     (int)strcspn(*e, "="), *e);
        td_error_why(err, "it is nearly the name of one, and would be ignored");
        td_error_fix(err, "did you mean %s?", right);
        return TD_E_USAGE;
    }
    return TD_OK;
}

enum td_status td_conf_parse_env(struct td_conf *c, struct td_error *err)
{
    for (size_t i = 0; i < c->count; i++) {
        char name[64];
        env_name(c->opts[i].name, name, sizeof(name));
        const char *text = getenv(name);
        if (!text || (!*text && c->opts[i].kind != TD_OPT_STR))
            continue;
        enum td_status s = assign(c, i, TD_FROM_ENV, name, text, err);
        if (s != TD_OK)
            return s;
    }
    return check_names(c, err);
}

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1]))
        s[--n] = 0;
    return s;
}

static enum td_status parse_line(struct td_conf *c, const char *path, int number,
                                 char *line, struct td_error *err)
{
    char how[TD_ERROR_WHAT_MAX / 2];
    char *name = trim(line);
    size_t i;
    if (!*name || *name == '#')
        return TD_OK;
    char *equals = strchr(name, '=');
    if (!equals) {
        td_error_set(err, TD_E_USAGE, "%s:%d: \"%s\" is not a setting", path, number,
                     name);
        td_error_fix(err, "write one `name = value` a line");
        return TD_E_USAGE;
    }
    *equals = 0;
    char *value = trim(equals + 1);
    name = trim(name);
    (void)snprintf(how, sizeof(how), "%s:%d: %s", path, number, name);
    if (!find(c, ~0u, name, strlen(name), &i)) {
        const struct td_opt *o =
            nearest(c, ~0u, name, strlen(name), most_typos(strlen(name)));
        td_error_set(err, TD_E_USAGE, "%s:%d: there is no option \"%s\"", path, number,
                     name);
        td_error_fix(err, "options are listed by `tandem help VERB`");
        if (o)
            td_error_fix(err, "did you mean \"%s\"?", o->name);
        return TD_E_USAGE;
    }
    return assign(c, i, TD_FROM_FILE, how, value, err);
}

/* Some editors begin a file with it: U+FEFF. */
static const char MARK[] = "\xEF\xBB\xBF";

enum td_status td_conf_parse_file(struct td_conf *c, const char *path,
                                  struct td_error *err)
{
    struct td_buf text;
    td_buf_init(&text, TD_MAX_CONFIG_FILE);
    enum td_status s = td_file_read(path, &text, err);
    int number = 1;
    if (s == TD_OK && strlen(text.p) != text.len) {
        s = td_error_set(err, TD_E_USAGE, "%s is not a text file", path);
        td_error_why(err, "its byte %zu is zero", strlen(text.p));
        td_error_fix(err, "write one `name = value` a line");
    }
    char *line = text.p;
    if (s == TD_OK && strncmp(line, MARK, sizeof(MARK) - 1) == 0)
        line += sizeof(MARK) - 1;
    for (; s == TD_OK && line && *line; number++) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        s = parse_line(c, path, number, line, err);
        line = end ? end + 1 : NULL;
    }
    td_buf_release(&text);
    return s;
}

bool td_conf_is_set(const struct td_conf *c, size_t opt)
{
    return c->values[opt].set;
}

bool td_conf_is_flag(const struct td_conf *c, size_t opt)
{
    return c->values[opt].set && c->values[opt].origin == TD_FROM_FLAG;
}

bool td_conf_bool(const struct td_conf *c, size_t opt)
{
    return c->values[opt].i != 0;
}

int64_t td_conf_int(const struct td_conf *c, size_t opt)
{
    return c->values[opt].i;
}

double td_conf_real(const struct td_conf *c, size_t opt)
{
    return c->values[opt].d;
}

const char *td_conf_str(const struct td_conf *c, size_t opt)
{
    return c->values[opt].s;
}

/* One option: the flag, then what it does from column HELP_COLUMN on. */
static void add_help(const struct td_opt *o, struct td_buf *out)
{
    enum { HELP_COLUMN = 30 };
    char flag[80], letter[8] = "    ";
    struct td_buf text;
    td_buf_init(&text, 4 * TD_KIB);
    if (o->letter)
        (void)snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    (void)snprintf(flag, sizeof(flag), "%s--%s%s%s", letter, o->name,
                   o->kind == TD_OPT_BOOL ? "" : " ",
                   o->kind == TD_OPT_BOOL ? "" : o->arg);
    td_buf_adds(&text, o->help);
    if (o->def && o->kind != TD_OPT_BOOL && *o->def)
        td_buf_addf(&text, " (default %s)", o->def);
    if (strlen(flag) > HELP_COLUMN - 4)
        td_buf_addf(out, "  %s\n%*s", flag, HELP_COLUMN, "");
    else
        td_buf_addf(out, "  %-*s", HELP_COLUMN - 2, flag);
    td_buf_add_wrapped(out, text.p, HELP_COLUMN);
    td_buf_addc(out, '\n');
    if (text.status != TD_OK)
        out->status = text.status;
    td_buf_release(&text);
}

enum td_status td_conf_help(const struct td_conf *c, unsigned verbs, struct td_buf *out)
{
    for (size_t i = 0; i < c->count; i++) {
        bool internal =
            strncmp(c->opts[i].help, TD_OPT_INTERNAL, sizeof(TD_OPT_INTERNAL) - 1) == 0;
        if ((c->opts[i].verbs & verbs) && !internal)
            add_help(&c->opts[i], out);
    }
    return out->status;
}

enum td_status td_conf_markdown(const struct td_conf *c, struct td_buf *out)
{
    td_buf_adds(out, "| option | variable | value | default | what it does |\n"
                     "| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < c->count; i++) {
        const struct td_opt *o = &c->opts[i];
        char env[64], arg[128];
        size_t n = 0;
        env_name(o->name, env, sizeof(env));
        for (const char *p = o->arg ? o->arg : ""; *p && n + 3 < sizeof(arg); p++) {
            if (*p == '|')
                arg[n++] = '\\';
            arg[n++] = *p;
        }
        arg[n] = 0;
        td_buf_addf(out, "| `--%s` | `%s` | %s | %s | %s |\n", o->name, env, arg,
                    o->def ? o->def : "", o->help);
    }
    return out->status;
}

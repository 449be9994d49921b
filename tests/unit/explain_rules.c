/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue itself: every rule has a line that it matches and a kind that exists,
 * every kind a remedy and a rule, patterns compile, are small and cannot run away.
 */
#include "check.h"

#include "base/file.h"
#include "base/limits.h"
#include "explain/explain_int.h"

#include <stdlib.h>
#include <string.h>

#define LINES "tests/cases/explain/lines.tsv"

static struct td_matcher *matcher;

static int set_up(void **state)
{
    (void)state;
    return td_matcher_new(&matcher, NULL) == TD_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    td_matcher_free(matcher);
    return 0;
}

static size_t find_rule(const char *id, size_t n)
{
    for (size_t r = 0; r < td_rule_count(); r++)
        if (strlen(td_rule_at(r)->id) == n && memcmp(td_rule_at(r)->id, id, n) == 0)
            return r;
    return SIZE_MAX;
}

static bool matches(size_t rule, const char *p, size_t n)
{
    char clean[TD_LINE_MAX];
    uint16_t found[TD_MAX_LINE_RULES];
    struct td_capture caps[TD_MAX_CAPTURES];
    struct td_line line;
    size_t count = td_matcher_scan(matcher, p, n, found);
    td_line_parse(clean, td_line_clean(p, n, clean, sizeof(clean)), &line);
    for (size_t i = 0; i < count; i++)
        if (found[i] == rule)
            return td_matcher_run(matcher, rule, line.text, line.len, caps);
    return false;
}

static void test_every_rule_has_a_line(void **state)
{
    struct td_buf b;
    (void)state;
    td_buf_init(&b, 4 * TD_MIB);
    assert_int_equal(td_file_read(LINES, &b, NULL), TD_OK);
    char *seen = calloc(td_rule_count(), 1);
    assert_non_null(seen);
    for (const char *p = b.p; *p;) {
        size_t n = strcspn(p, "\n"), id = strcspn(p, "\t\n");
        if (*p != '#') {
            size_t rule = find_rule(p, id);
            if (rule == SIZE_MAX || id == n)
                fail_msg("%s: no rule %.*s", LINES, (int)id, p);
            if (!matches(rule, p + id + 1, n - id - 1))
                fail_msg("%.*s does not match its line", (int)n, p);
            seen[rule] = 1;
        }
        p += n + (p[n] == '\n');
    }
    for (size_t r = 0; r < td_rule_count(); r++)
        if (!seen[r])
            fail_msg("%s: no line for rule %s", LINES, td_rule_at(r)->id);
    free(seen);
    td_buf_release(&b);
}

static void check_literals(const struct td_rule *r)
{
    for (const char *p = r->lit; *p;) {
        size_t n = strcspn(p, "|");
        if (n < 4)
            fail_msg("rule %s: the literal \"%.*s\" is too short", r->id, (int)n, p);
        for (size_t i = 0; i < n; i++)
            if (p[i] >= 'A' && p[i] <= 'Z')
                fail_msg("rule %s: literals are lower case", r->id);
        p += n + (p[n] == '|');
    }
}

static void test_rules_are_well_formed(void **state)
{
    (void)state;
    for (size_t r = 0; r < td_rule_count(); r++) {
        const struct td_rule *rule = td_rule_at(r);
        check_literals(rule);
        if (find_rule(rule->id, strlen(rule->id)) != r)
            fail_msg("two rules are called %s", rule->id);
        if (rule->kind && !td_kind_find(rule->kind))
            fail_msg("rule %s: there is no kind %s", rule->id, rule->kind);
        if (rule->role == TD_ROLE_CAUSE &&
            (!rule->kind || rule->weight < 1 || rule->weight > 100))
            fail_msg("rule %s: a cause has a kind and a weight of 1 to 100", rule->id);
        if (rule->role == TD_ROLE_FACT && !rule->says)
            fail_msg("rule %s: a fact has names", rule->id);
    }
}

/* Every name in `needs` is a rule or a fact. */
static void test_needs_name_things(void **state)
{
    (void)state;
    for (size_t r = 0; r < td_rule_count(); r++) {
        const char *p = td_rule_at(r)->needs;
        for (; p && *p; p += strspn(p, " |!")) {
            size_t n = strcspn(p, " |");
            const char *name = *p == '!' ? p + 1 : p;
            size_t k = n - (size_t)(name - p);
            bool known = *name == '@' || find_rule(name, k) != SIZE_MAX;
            for (size_t f = 0; f < td_rule_count() && !known; f++) {
                const struct td_rule *fact = td_rule_at(f);
                const char *s = fact->role == TD_ROLE_FACT ? fact->says : "";
                for (; *s && !known; s += strcspn(s, " "), s += strspn(s, " "))
                    known = strcspn(s, " ") == k && memcmp(s, name, k) == 0;
            }
            if (!known)
                fail_msg("rule %s needs %.*s, which nothing sets", td_rule_at(r)->id,
                         (int)k, name);
            p += n;
        }
    }
}

static void test_every_kind_is_complete(void **state)
{
    (void)state;
    for (const struct td_kind_set *s = td_kind_sets; s->kinds; s++)
        for (size_t i = 0; i < *s->count; i++) {
            const struct td_kind *k = &s->kinds[i];
            if (!k->title || strlen(k->fix) < 10 || !k->family)
                fail_msg("kind %s has no title, family or remedy", k->slug);
            bool has_rule = false;
            for (size_t r = 0; r < td_rule_count() && !has_rule; r++)
                has_rule =
                    td_rule_at(r)->kind && strcmp(td_rule_at(r)->kind, k->slug) == 0;
            if (!has_rule)
                fail_msg("no rule speaks for kind %s", k->slug);
            for (const char *p = k->over; p && *p; p += strspn(p, " ")) {
                char slug[64] = "";
                size_t n = strcspn(p, " ");
                assert_true(n < sizeof(slug));
                memcpy(slug, p, n);
                if (!td_kind_find(slug))
                    fail_msg("kind %s stands over %s, which is none", k->slug, slug);
                p += n;
            }
        }
    for (size_t i = 0; i < td_remedy_count; i++)
        assert_non_null(td_kind_find(td_remedies[i].kind));
}

/* A group that repeats without a bound must not hold something that does. */
static bool nests_quantifiers(const char *re)
{
    bool unbounded[32] = {false}; /* by depth: the group at that depth repeats inside */
    int depth = 0;
    bool in_class = false;
    for (const char *p = re; *p; p++) {
        if (*p == '\\') {
            p++;
        } else if (in_class) {
            in_class = *p != ']' || p[-1] == '[';
        } else if (*p == '[') {
            in_class = true;
        } else if (*p == '(' && depth < 31) {
            unbounded[++depth] = false;
        } else if (*p == ')' && depth > 0) {
            bool repeats = p[1] == '*' || p[1] == '+' ||
                           (p[1] == '{' && strcspn(p + 1, ",") < strcspn(p + 1, "}") &&
                            p[1 + strcspn(p + 1, ",") + 1] == '}');
            if (repeats && unbounded[depth])
                return true;
            bool inner = unbounded[depth--] || repeats;
            unbounded[depth] = unbounded[depth] || inner;
        } else if (*p == '*' || *p == '+') {
            unbounded[depth] = true;
        }
    }
    return false;
}

static void test_patterns(void **state)
{
    struct td_error err;
    (void)state;
    td_error_init(&err);
    if (td_matcher_check(matcher, &err) != TD_OK)
        fail_msg("%s", err.what);
    for (size_t r = 0; r < td_rule_count(); r++) {
        const char *re = td_rule_at(r)->re;
        if (re && nests_quantifiers(re))
            fail_msg("rule %s repeats a repetition", td_rule_at(r)->id);
        int groups = 0;
        for (const char *p = re; p && *p; p++) {
            if (*p == '\\' && p[1])
                p++;
            else if (*p == '(' && p[1] != '?')
                groups++;
        }
        if (groups > TD_MAX_CAPTURES)
            fail_msg("rule %s has more than %d captures", td_rule_at(r)->id,
                     TD_MAX_CAPTURES);
    }
    assert_true(nests_quantifiers("(a+)+"));
    assert_true(nests_quantifiers("x(?:[a-z]*,){2,}"));
    assert_false(nests_quantifiers("(a+)?(b[*+]){1,3}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule_has_a_line),
        cmocka_unit_test(test_rules_are_well_formed),
        cmocka_unit_test(test_needs_name_things),
        cmocka_unit_test(test_every_kind_is_complete),
        cmocka_unit_test(test_patterns),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

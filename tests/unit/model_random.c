/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random configurations against transformers: each file of tests/golden/random says how
 * to make a checkpoint and holds the reference's results on it (f32): the largest logits
 * and some fixed ones after each prompt, greedy ids with margins, mean absolute hidden
 * states, and the draft head's logits. bf16 numerics run on the same checkpoints, and so
 * do two and four ranks where the shapes allow them.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/json.h"
#include "model_util.h"

#include <dirent.h>

static const char folder[] = "tests/golden/random";

enum { MAX_IDS = 512 };

static int checked[UTIL_RANKS + 1]; /* files, on so many ranks */

struct expected {
    const json_t *file, *prompt;
    int32_t ids[MAX_IDS], greedy[MAX_IDS];
    int32_t n, steps;
};

static int32_t read_ids(const json_t *list, int32_t *out)
{
    int32_t n = (int32_t)json_array_size(list);
    assert_true(n < MAX_IDS);
    for (int32_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n;
}

static double number(const json_t *list, int32_t i)
{
    return json_number_value(json_array_get(list, (size_t)i));
}

/* The worst difference to {top_ids, top_logits, fixed_logits} of a result. */
static double compare(const struct expected *e, const json_t *want, const float *got)
{
    int32_t ids[MAX_IDS];
    double worst = 0;
    const json_t *top = json_object_get(want, "top_logits");
    const json_t *fixed = json_object_get(want, "fixed_logits");
    int32_t n = read_ids(json_object_get(want, "top_ids"), ids);
    assert_true(n > 0);
    for (int32_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)got[ids[i]] - number(top, i)));
    n = read_ids(json_object_get(e->file, "fixed_ids"), ids);
    for (int32_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)got[ids[i]] - number(fixed, i)));
    return worst;
}

struct states {
    const json_t *want;
    int64_t hidden;
    double worst;
    int seen;
};

static void check_state(void *self, int layer, const float *x, const float *add,
                        int32_t rows)
{
    struct states *s = self;
    int64_t n = rows * s->hidden;
    double mean = 0, want = number(s->want, layer + 1);
    for (int64_t i = 0; i < n; i++)
        mean += fabs((double)x[i] + (add ? (double)add[i] : 0)) / (double)n;
    s->worst = fmax(s->worst, fabs(mean - want) / want);
    s->seen++;
}

/* Prompt and greedy ids in one piece; row n - 1 + k of the draft foretells id k + 1. */
static double draft_difference(struct util_model *u, const struct expected *e)
{
    int32_t all[2 * MAX_IDS];
    const json_t *want = json_object_get(e->prompt, "draft");
    const json_t *best = json_object_get(want, "best_ids");
    const json_t *margins = json_object_get(want, "margins");
    memcpy(all, e->ids, (size_t)e->n * sizeof(*all));
    memcpy(all + e->n, e->greedy, (size_t)e->steps * sizeof(*all));
    struct td_seq_rows seq =
        util_rows(u, 0, all, 0, e->n + e->steps - 1, false, e->steps);
    util_forward(u, &seq, 1, true);
    seq.ids = all + 1;
    util_draft(u, &seq, 1);
    const float *got = util_logits(u);
    for (int32_t k = 0; k < e->steps; k++)
        if (number(margins, k) > 1e-2)
            assert_int_equal(util_argmax(got + k * u->cfg->vocab, u->cfg->vocab),
                             json_integer_value(json_array_get(best, (size_t)k)));
    return compare(e, want, got);
}

/* Greedy ids as long as the margins are clear. */
static void check_greedy(struct util_model *u, const struct expected *e,
                         const float *logits, double clear)
{
    const json_t *margins = json_object_get(e->prompt, "margins");
    for (int32_t k = 0; k < e->steps; k++) {
        if (number(margins, k) > clear)
            assert_int_equal(util_argmax(logits, u->cfg->vocab), e->greedy[k]);
        logits = util_decode(u, 0, e->greedy[k], e->n + k);
    }
}

static double check_prompt(struct util_model *u, const struct expected *e)
{
    struct states s = {.want = json_object_get(e->prompt, "states"),
                       .hidden = u->cfg->hidden};
    struct td_seq_rows rows = util_rows(u, 0, e->ids, 0, e->n, false, 1);
    td_model_set_trace(u->model, check_state, &s);
    util_forward(u, &rows, 1, true);
    td_model_set_trace(u->model, NULL, NULL);
    assert_int_equal(s.seen, json_array_size(s.want));
    assert_true(s.worst < 1e-4);
    double worst = compare(e, e->prompt, util_logits(u));
    check_greedy(u, e, util_logits(u), 1e-2);
    if (td_model_has_draft(u->model))
        worst = fmax(worst, draft_difference(u, e));
    assert_true(td_model_has_draft(u->model) ==
                (json_object_get(e->prompt, "draft") != NULL));
    return worst;
}

/* Spread of the logits that the file holds, to scale bounds. */
static double spread(const json_t *prompts)
{
    double sum = 0, square = 0, n = 0;
    for (size_t p = 0; p < json_array_size(prompts); p++) {
        const json_t *fixed =
            json_object_get(json_array_get(prompts, p), "fixed_logits");
        for (size_t i = 0; i < json_array_size(fixed); i++, n++) {
            sum += number(fixed, (int32_t)i);
            square += number(fixed, (int32_t)i) * number(fixed, (int32_t)i);
        }
    }
    return sqrt(square / n - sum / n * (sum / n));
}

static void check_model(const char *name, const char *dir, const json_t *file,
                        int ranks)
{
    const json_t *prompts = json_object_get(file, "prompts");
    struct util_model f32, bf16;
    double worst = 0, rough = 0, scale = fmax(1, spread(prompts));
    struct util_params p = {.path = dir, .threads = 2, .max_rows = 256, .ranks = ranks};
    util_open(&f32, &p);
    p.numerics = TD_NUM_BF16;
    util_open(&bf16, &p);
    for (size_t i = 0; i < json_array_size(prompts); i += CHECK_SMALL ? 4 : 1) {
        struct expected e = {.file = file, .prompt = json_array_get(prompts, i)};
        e.n = read_ids(json_object_get(e.prompt, "ids"), e.ids);
        e.steps = read_ids(json_object_get(e.prompt, "greedy_ids"), e.greedy);
        worst = fmax(worst, check_prompt(&f32, &e));
        const float *got = util_prompt(&bf16, 0, e.ids, e.n, 64);
        rough = fmax(rough, compare(&e, e.prompt, got));
        check_greedy(&bf16, &e, got, scale);
    }
    print_message("%-28s %d rank%s: f32 off by %.2g, bf16 by %.2g, spread %.2g\n", name,
                  ranks, ranks > 1 ? "s" : "", worst, rough, scale);
    assert_true(worst <= 1e-4 * scale);
    assert_true(rough <= 0.5 * scale);
    util_close(&f32);
    util_close(&bf16);
}

/* Recreates the checkpoint of a file with the build's make_model. */
static void make_model(const json_t *file, char *dir, size_t size)
{
    const char *tmp = getenv("TMPDIR"), *build = getenv("BUILD");
    const json_t *flags = json_object_get(file, "make_model");
    struct td_buf command;
    td_buf_init(&command, 4096);
    (void)snprintf(dir, size, "%s/tandem-random-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    td_buf_addf(&command, "%s %s/make_model",
                getenv("TEST_RUNNER") ? getenv("TEST_RUNNER") : "",
                build ? build : "build");
    for (size_t i = 0; i < json_array_size(flags); i++)
        td_buf_addf(&command, " '%s'", json_string_value(json_array_get(flags, i)));
    td_buf_addf(&command, " '%s' >/dev/null", dir);
    assert_int_equal(command.status, TD_OK);
    assert_int_equal(system(command.p), 0);
    td_buf_release(&command);
}

/* On as many ranks as the file says; of several processes, on those that there are. */
static void check_ranks(const char *name, const char *dir, const json_t *file)
{
    const json_t *list = json_object_get(file, "ranks");
    for (size_t i = 0; i < json_array_size(list); i++) {
        int ranks = (int)json_integer_value(json_array_get(list, i));
        if (util_world() > 1 && ranks != util_world())
            continue;
        check_model(name, dir, file, util_world() > 1 ? 0 : ranks);
        checked[ranks]++;
    }
}

static void check_file(const char *name)
{
    char path[512], dir[256], command[512];
    json_t *file;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(td_json_read(path, TD_MAX_JSON_FILE, &file, NULL), TD_OK);
    make_model(file, dir, sizeof(dir));
    check_ranks(name, dir, file);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    json_decref(file);
}

static void test_all(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *f = readdir(d); f; f = readdir(d)) {
        const char *dot = strrchr(f->d_name, '.');
        if (!dot || strcmp(dot, ".json") != 0)
            continue;
        check_file(f->d_name);
        n++;
    }
    assert_int_equal(closedir(d), 0);
    assert_true(n >= 8);
    assert_true(util_world() > 1 || checked[1] == n);
    assert_true(util_world() > 2 || checked[2] >= 8);
    assert_true(util_world() == 2 || checked[4] >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests_name("model_random", tests, NULL, NULL);
}

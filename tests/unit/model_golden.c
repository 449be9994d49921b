/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lexicon against the reference outputs in tests/golden: logits, greedy ids, hidden
 * states and the draft head, in f32 and in bf16 numerics, on one rank and on two.
 */
#include "base/json.h"
#include "model_util.h"

enum { GREEDY = 32, TOP = 20, DRAFT_TOP = 5 };

struct prompt {
    const json_t *json;
    const char *key;
    int32_t *ids, *greedy, n, stop;
};

static struct td_model_dir golden;
static json_t *golden_json;

static void *tensor(const char *key, const char *what)
{
    char name[128];
    int64_t n;
    (void)snprintf(name, sizeof(name), "%s.%s", key, what);
    return util_tensor(&golden, name, &n);
}

static struct prompt prompt_at(size_t i)
{
    struct prompt p = {.json =
                           json_array_get(json_object_get(golden_json, "prompts"), i)};
    const json_t *stop = json_object_get(p.json, "stop_step");
    p.key = json_string_value(json_object_get(p.json, "key"));
    p.n = (int32_t)json_array_size(json_object_get(p.json, "prompt_ids"));
    p.ids = tensor(p.key, "prompt_ids");
    p.greedy = tensor(p.key, "greedy_ids");
    p.stop = json_is_integer(stop) ? (int32_t)json_integer_value(stop) : GREEDY - 1;
    assert_non_null(p.ids);
    assert_non_null(p.greedy);
    return p;
}

static void prompt_free(struct prompt *p)
{
    td_free(p->ids);
    td_free(p->greedy);
}

static size_t prompts(void)
{
    return json_array_size(json_object_get(golden_json, "prompts"));
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(td_model_dir_open("tests/golden", &golden, NULL), TD_OK);
    assert_int_equal(
        td_json_read("tests/golden/golden.json", TD_MAX_JSON_FILE, &golden_json, NULL),
        TD_OK);
    assert_int_equal(prompts(), 12);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    td_model_dir_release(&golden);
    json_decref(golden_json);
    return 0;
}

/* Follows the reference's greedy ids up to the stop, comparing the largest logits before
 * each; returns the worst difference. */
static double follow(struct util_model *u, const struct prompt *p, const float *logits)
{
    float *values = tensor(p->key, "top_values");
    int32_t *ids = tensor(p->key, "top_ids");
    double worst = 0;
    for (int32_t step = 0; step <= p->stop; step++) {
        for (int i = 0; i < TOP; i++) {
            float got = logits[ids[step * TOP + i]];
            worst = fmax(worst, fabs((double)got - (double)values[step * TOP + i]));
        }
        if ((double)values[step * TOP] - (double)values[step * TOP + 1] > 1e-2)
            assert_int_equal(util_argmax(logits, u->cfg->vocab), p->greedy[step]);
        logits = util_decode(u, 0, p->greedy[step], p->n + step);
    }
    td_free(values);
    td_free(ids);
    return worst;
}

static void open_lexicon(struct util_model *u, enum td_numerics numerics, void **state)
{
    const int *ranks = *state;
    util_open(u, &(struct util_params){.path = "models/lexicon",
                                       .numerics = numerics,
                                       .threads = 2,
                                       .ranks = *ranks});
}

static void test_logits_f32(void **state)
{
    struct util_model u;
    open_lexicon(&u, TD_NUM_F32, state);
    double worst = 0, worst_greedy = 0;
    for (size_t i = 0; i < prompts(); i++) {
        struct prompt p = prompt_at(i);
        float *want = tensor(p.key, "prompt_logits");
        const float *got = util_prompt(&u, 0, p.ids, p.n, 0);
        worst = fmax(worst, util_max_diff(got, want, u.cfg->vocab));
        worst_greedy = fmax(worst_greedy, follow(&u, &p, got));
        td_free(want);
        prompt_free(&p);
    }
    print_message("largest logit difference: prompts %.2g, greedy %.2g\n", worst,
                  worst_greedy);
    assert_true(worst < 2e-3);
    assert_true(worst_greedy < 2e-3);
    util_close(&u);
}

/* bf16: the specification's gates, which are meant for logits that reach about 20, scaled
 * to lexicon's, which reach 70. (transformers in bf16 on the same prompts: mean 0.1,
 * largest 1.5.) One prompt has a near tie on its way: as roundings fall, its logits differ
 * by 1.1 or by 3 to 3.5, on every level of processor. */
static void test_logits_bf16(void **state)
{
    const double scale = 70.0 / 20.0;
    struct util_model u;
    double worst = 0, second = 0, sum = 0, sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0,
           n = 0;
    open_lexicon(&u, TD_NUM_BF16, state);
    for (size_t i = 0; i < prompts(); i++) {
        struct prompt p = prompt_at(i);
        float *want = tensor(p.key, "prompt_logits");
        const float *got = util_prompt(&u, 0, p.ids, p.n, 0);
        for (int32_t k = 0; k < u.cfg->vocab; k++, n++) {
            double x = (double)got[k], y = (double)want[k];
            sum += fabs(x - y);
            sx += x, sy += y, sxx += x * x, syy += y * y, sxy += x * y;
        }
        double diff = util_max_diff(got, want, u.cfg->vocab);
        second = fmax(second, fmin(worst, diff));
        worst = fmax(worst, diff);
        assert_int_equal(util_argmax(got, u.cfg->vocab), p.greedy[0]);
        (void)follow(&u, &p, got); /* greedy ids hold where the margin is clear */
        td_free(want);
        prompt_free(&p);
    }
    double r = (n * sxy - sx * sy) / sqrt((n * sxx - sx * sx) * (n * syy - sy * sy));
    print_message("bf16 logit difference: mean %.3f, largest %.3f, correlation %.5f\n",
                  sum / n, worst, r);
    assert_true(r >= 0.999);
    assert_true(sum / n <= 0.05 * scale);
    assert_true(second <= 0.5 * scale);
    assert_true(worst <= 1.2 * scale);
    util_close(&u);
}

/* Mean absolute value over all positions, and the first values at the last one. */
struct states {
    struct util_model *u;
    const json_t *want;
    int seen;
};

static void check_state(void *self, int layer, const float *x, const float *add,
                        int32_t rows)
{
    struct states *s = self;
    const json_t *want = json_array_get(s->want, (size_t)(layer + 1));
    const json_t *first = json_object_get(want, "last_first8");
    int64_t h = s->u->cfg->hidden, n = rows * h;
    double mean = 0, expect = json_number_value(json_object_get(want, "mean_abs"));
    for (int64_t i = 0; i < n; i++)
        mean += fabs((double)x[i] + (add ? (double)add[i] : 0)) / (double)n;
    assert_float_equal((float)(mean / expect), 1, 1e-5);
    for (size_t i = 0; i < json_array_size(first); i++) {
        int64_t at = (rows - 1) * h + (int64_t)i;
        double got = (double)x[at] + (add ? (double)add[at] : 0);
        assert_true(fabs(got - json_number_value(json_array_get(first, i))) < 1e-3);
    }
    s->seen++;
}

static void test_states(void **state)
{
    struct util_model u;
    struct states s = {.u = &u};
    int checked = 0;
    open_lexicon(&u, TD_NUM_F32, state);
    td_model_set_trace(u.model, check_state, &s);
    for (size_t i = 0; i < prompts(); i++) {
        struct prompt p = prompt_at(i);
        s.want = json_object_get(p.json, "states");
        s.seen = 0;
        if (s.want) {
            struct td_seq_rows rows = util_rows(&u, 0, p.ids, 0, p.n, false, 1);
            util_forward(&u, &rows, 1, true);
            assert_int_equal(s.seen, u.cfg->n_layers + 2);
            checked++;
        }
        prompt_free(&p);
    }
    assert_int_equal(checked, 3);
    util_close(&u);
}

/* The draft head over prompt and greedy ids: entry i sees token i + 1 and the state at
 * position i; row k of the reference is entry n - 1 + k. */
static void check_draft(struct util_model *u, const struct prompt *p)
{
    float *first = tensor(p->key, "draft_first_logits");
    float *values = tensor(p->key, "draft_top_values");
    int32_t *ids = tensor(p->key, "draft_top_ids");
    int32_t rows = p->n + GREEDY - 1, all[UTIL_LEN];
    memcpy(all, p->ids, (size_t)p->n * sizeof(*all));
    memcpy(all + p->n, p->greedy, GREEDY * sizeof(*all));
    struct td_seq_rows seq = util_rows(u, 0, all, 0, rows, false, GREEDY);
    util_forward(u, &seq, 1, true);
    seq.ids = all + 1;
    util_draft(u, &seq, 1);
    const float *got = util_logits(u);
    assert_true(util_max_diff(got, first, u->cfg->vocab) < 2e-3);
    for (int32_t k = 0; k < GREEDY && k <= p->stop; k++)
        for (int i = 0; i < DRAFT_TOP; i++)
            assert_true(fabsf(got[k * u->cfg->vocab + ids[k * DRAFT_TOP + i]] -
                              values[k * DRAFT_TOP + i]) < 2e-3f);
    td_free(first);
    td_free(values);
    td_free(ids);
}

static void test_draft(void **state)
{
    struct util_model u;
    int checked = 0;
    open_lexicon(&u, TD_NUM_F32, state);
    for (size_t i = 0; i < prompts(); i++) {
        struct prompt p = prompt_at(i);
        if (json_object_get(p.json, "draft_top_ids")) {
            check_draft(&u, &p);
            checked++;
        }
        prompt_free(&p);
    }
    assert_int_equal(checked, 3);
    util_close(&u);
}

int main(void)
{
    static int one, two = 2; /* one: or the world's processes */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_logits_f32, &one),
        cmocka_unit_test_prestate(test_logits_bf16, &one),
        cmocka_unit_test_prestate(test_states, &one),
        cmocka_unit_test_prestate(test_draft, &one),
        {"two ranks, f32", test_logits_f32, NULL, NULL, &two},
        {"two ranks, bf16", test_logits_bf16, NULL, NULL, &two},
        {"two ranks, states", test_states, NULL, NULL, &two},
        {"two ranks, draft", test_draft, NULL, NULL, &two},
    };
    return cmocka_run_group_tests_name("model_golden", tests, setup, teardown);
}

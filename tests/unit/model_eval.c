/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluation sets of tests/golden: lexicon's first line must be the recorded
 * definition at the share that its model card states, within one point, in both
 * numerics, and on two ranks. Sixteen questions run at a time. Set EVAL=N to look at the
 * first N of each set only.
 */
#include "base/file.h"
#include "base/json.h"
#include "model_util.h"
#include "text/template.h"
#include "text/tokenizer.h"

enum { BATCH = 16, MAX_TOKENS = 200, ALL = 1 << 30, FEW = 32 };

static struct td_tokenizer *tokenizer;
static struct td_template *template;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(td_tokenizer_load("models/lexicon", &tokenizer, NULL), TD_OK);
    assert_int_equal(td_template_load("models/lexicon", &template, NULL), TD_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    td_tokenizer_free(tokenizer);
    td_template_free(template);
    return 0;
}

struct question {
    json_t *json;
    struct td_ids ids;  /* prompt */
    struct td_buf text; /* answer so far */
    int32_t at, next;   /* position of the next token, and that token */
    bool done;
};

static void question_start(struct question *q, const char *line, size_t n)
{
    struct td_buf text;
    *q = (struct question){0};
    td_buf_init(&text, 1 << 20);
    td_buf_init(&q->text, 1 << 16);
    assert_int_equal(td_json_parse(line, n, "eval", &q->json, NULL), TD_OK);
    json_object_set_new(q->json, "add_generation_prompt", json_true());
    assert_int_equal(td_template_render(template, q->json, &text, NULL), TD_OK);
    td_ids_init(&q->ids);
    assert_int_equal(td_tokenizer_encode(tokenizer, text.p, text.len, TD_ENCODE_SPECIAL,
                                         &q->ids, NULL),
                     TD_OK);
    td_buf_release(&text);
}

/* Takes the best token; the answer's first line ends with a line feed or a stop. */
static void question_take(struct question *q, const float *logits)
{
    q->next = util_argmax(logits, (int32_t)td_tokenizer_size(tokenizer));
    q->done = td_tokenizer_is_special(tokenizer, q->next) ||
              q->at - (int32_t)q->ids.len >= MAX_TOKENS || q->at + 1 >= UTIL_LEN;
    if (!q->done)
        td_tokenizer_decode(tokenizer, &q->next, 1, TD_DECODE_ALL, &q->text);
    char *end = strchr(q->text.p, '\n');
    if (end) {
        td_buf_set_len(&q->text, (size_t)(end - q->text.p));
        q->done = true;
    }
}

static int question_end(struct question *q)
{
    const char *want =
        json_string_value(json_object_get(q->json, "expected_first_line"));
    int right = strcmp(want, q->text.p) == 0;
    if (!right)
        print_message("expected \"%s\", found \"%s\"\n", want, q->text.p);
    json_decref(q->json);
    td_buf_release(&q->text);
    td_ids_release(&q->ids);
    return right;
}

/* Answers up to BATCH questions; returns how many were right. */
static int answer(struct util_model *u, struct question *q, int n)
{
    struct td_seq_rows rows[BATCH];
    int who[BATCH], right = 0;
    int32_t active = n;
    for (int i = 0; i < n; i++) {
        q[i].at = (int32_t)q[i].ids.len;
        rows[i] = util_rows(u, i, q[i].ids.p, 0, q[i].at, false, 1);
        who[i] = i;
    }
    while (active) {
        int32_t next = 0;
        util_forward(u, rows, active, false);
        for (int32_t k = 0; k < active; k++)
            question_take(&q[who[k]],
                          util_logits(u) + (size_t)k * (size_t)u->cfg->vocab);
        for (int i = 0; i < n; i++) {
            if (q[i].done)
                continue;
            who[next] = i;
            rows[next++] = util_rows(u, i, &q[i].next, q[i].at++, 1, true, 1);
        }
        active = next;
    }
    for (int i = 0; i < n; i++)
        right += question_end(&q[i]);
    return right;
}

static void evaluate(const char *path, enum td_numerics numerics, int ranks, int most)
{
    struct util_model u;
    struct td_buf file;
    struct question q[BATCH];
    const char *few = getenv("EVAL");
    int limit = few           ? (int)strtol(few, NULL, 10)
                : CHECK_SMALL ? 8
                              : most,
        n = 0, total = 0, right = 0;
    util_open(&u, &(struct util_params){.path = "models/lexicon",
                                        .numerics = numerics,
                                        .threads = 2,
                                        .ranks = ranks});
    td_buf_init(&file, 1 << 24);
    assert_int_equal(td_file_read(path, &file, NULL), TD_OK);
    for (char *line = file.p; *line && total + n < limit;) {
        size_t len = strcspn(line, "\n");
        question_start(&q[n++], line, len);
        line += len + (line[len] == '\n');
        if (n == BATCH || !*line || total + n == limit) {
            right += answer(&u, q, n);
            total += n;
            n = 0;
        }
    }
    print_message("%s, %s: %d of %d\n", path, numerics == TD_NUM_F32 ? "f32" : "bf16",
                  right, total);
    assert_true(total > 0 && right >= 0.99 * total);
    td_buf_release(&file);
    util_close(&u);
}

static void test_seen(void **state)
{
    (void)state;
    evaluate("tests/golden/eval-seen.jsonl", TD_NUM_F32, 0, ALL);
    evaluate("tests/golden/eval-seen.jsonl", TD_NUM_BF16, 0, ALL);
}

static void test_heldout(void **state)
{
    (void)state;
    evaluate("tests/golden/eval-heldout.jsonl", TD_NUM_F32, 0, ALL);
    evaluate("tests/golden/eval-heldout.jsonl", TD_NUM_BF16, 0, ALL);
}

static void test_any(void **state)
{
    (void)state;
    evaluate("tests/golden/eval-any.jsonl", TD_NUM_F32, 0, ALL);
    evaluate("tests/golden/eval-any.jsonl", TD_NUM_BF16, 0, ALL);
}

static void test_two_ranks(void **state)
{
    (void)state;
    evaluate("tests/golden/eval-seen.jsonl", TD_NUM_F32, 2, FEW);
    evaluate("tests/golden/eval-heldout.jsonl", TD_NUM_BF16, 2, FEW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seen),
        cmocka_unit_test(test_heldout),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_two_ranks),
    };
    return cmocka_run_group_tests_name("model_eval", tests, setup, teardown);
}

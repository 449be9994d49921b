/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation with the embedded model, and the split of an answer into reasoning and
 * answer, id by id.
 */
#include "check.h"

#include "base/mem.h"
#include "cmd/chat.h"

#include <string.h>

static struct td_tokenizer *tokenizer;

static int load_tokenizer(void **unused)
{
    (void)unused;
    return td_tokenizer_load("models/lexicon", &tokenizer, NULL) == TD_OK ? 0 : -1;
}

static int free_tokenizer(void **unused)
{
    (void)unused;
    td_tokenizer_free(tokenizer);
    return 0;
}

/* ---- the split ----------------------------------------------------------------------- */

/* Feeds the ids of `text` after a prompt; what streams must be what is kept. */
static void check_split(const char *prompt, const char *text, const char *thoughts,
                        const char *answer)
{
    struct td_split s;
    struct td_ids p, ids;
    struct td_buf heard[2];
    enum td_part part;
    size_t fresh;
    td_ids_init(&p);
    td_ids_init(&ids);
    td_buf_init(&heard[0], 4096);
    td_buf_init(&heard[1], 4096);
    td_split_init(&s, tokenizer);
    assert_int_equal(td_tokenizer_encode(tokenizer, prompt, strlen(prompt),
                                         TD_ENCODE_SPECIAL, &p, NULL),
                     TD_OK);
    assert_int_equal(td_tokenizer_encode(tokenizer, text, strlen(text),
                                         TD_ENCODE_SPECIAL, &ids, NULL),
                     TD_OK);
    for (int round = 0; round < 2; round++) { /* twice: it starts afresh */
        td_buf_clear(&heard[0]);
        td_buf_clear(&heard[1]);
        td_split_begin(&s, p.p, p.len);
        for (size_t i = 0; i <= ids.len; i++) {
            enum td_status st = i < ids.len ? td_split_add(&s, ids.p[i], &part, &fresh)
                                            : td_split_end(&s, &part, &fresh);
            assert_int_equal(st, TD_OK);
            const struct td_buf *t = &s.text[part];
            td_buf_add(&heard[part], t->p + t->len - s.blank[part] - fresh, fresh);
        }
        assert_string_equal(s.text[TD_PART_REASONING].p, thoughts);
        assert_string_equal(s.text[TD_PART_ANSWER].p, answer);
    }
    td_buf_release(&heard[0]);
    td_buf_release(&heard[1]);
    td_split_release(&s);
    td_ids_release(&p);
    td_ids_release(&ids);
}

static void test_split(void **unused)
{
    (void)unused;
    static const char open[] = "<|im_start|>assistant\n<think>\n";
    static const char closed[] = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
    check_split(open, "Let me see.\n</think>\n\nA boat.<|im_end|>", "Let me see.",
                "A boat.");
    check_split(closed, "A boat.\n\nTwo lines.\n<|im_end|>", "",
                "A boat.\n\nTwo lines.");
    check_split(open, "cut while thinking", "cut while thinking", "");
    check_split(open, "a\n\n\nb  \n</think>c", "a\n\n\nb", "c");
    check_split(open, "\n</think>\n\nno thoughts", "", "no thoughts");
    check_split("<|im_start|>assistant\n", "<think>by itself</think>yes", "by itself",
                "yes");
    check_split("no tag", "plain ", "", "plain");
    check_split(closed, "", "", "");
    check_split(open, "\xE2\x82\xAC and \xF0\x9F\x98\x80</think>\xC3\xA9",
                "\xE2\x82\xAC and \xF0\x9F\x98\x80", "\xC3\xA9");
    /* A tag in the words of an earlier turn does not count once a later one follows. */
    check_split("<think>\n\n</think>\n\nold<|im_end|><think>\n", "x</think>y", "x",
                "y");
}

static void test_split_of_a_cut_character(void **unused)
{
    (void)unused;
    struct td_split s;
    struct td_ids ids;
    enum td_part part;
    size_t fresh = 0;
    td_ids_init(&ids);
    td_split_init(&s, tokenizer);
    assert_int_equal(
        td_tokenizer_encode(tokenizer, "\xF0\x9F\x98\x80", 4, 0, &ids, NULL), TD_OK);
    td_split_begin(&s, NULL, 0);
    if (ids.len > 1) {
        assert_int_equal(td_split_add(&s, ids.p[0], &part, &fresh), TD_OK);
        assert_int_equal(fresh, 0);
        assert_int_equal(td_split_end(&s, &part, &fresh), TD_OK);
        assert_string_equal(s.text[TD_PART_ANSWER].p, "\xEF\xBF\xBD");
        assert_int_equal(fresh, 3);
    }
    td_split_release(&s);
    td_ids_release(&ids);
}

/* ---- conversations ------------------------------------------------------------------- */

struct ear {
    struct td_buf text[2];
    int left; /* pieces until it has heard enough; 0: never */
};

static bool hear(void *self, enum td_part part, const char *text, size_t n)
{
    struct ear *e = self;
    td_buf_add(&e->text[part], text, n);
    return e->left == 0 || --e->left > 0;
}

static enum td_status ask(struct td_chat *c, struct ear *e, const char *text,
                          const atomic_bool *cancel, struct td_generated *g,
                          struct td_error *err)
{
    td_buf_clear(&e->text[0]);
    td_buf_clear(&e->text[1]);
    td_error_init(err);
    return td_chat_ask(c, text, strlen(text), hear, e, cancel, g, err);
}

static const char question[] = "What does the word lighthouse mean?";
static const char answer[] =
    "lighthouse (noun): a tower with a light that gives warning "
    "of shoals to passing ships";

static void test_conversation(void **unused)
{
    (void)unused;
    struct td_chat c;
    struct td_error err;
    struct td_generated g;
    struct ear e = {.left = 0};
    struct td_engine_params params = {
        .numerics = TD_NUM_F32, .max_len = 192, .threads = 1};
    atomic_bool cancel = false;
    td_error_init(&err);
    td_buf_init(&e.text[0], 65536);
    td_buf_init(&e.text[1], 65536);
    assert_int_equal(td_chat_open(&c, "models/lexicon", "Be brief.", &err), TD_OK);
    assert_true(c.sampling.temperature == 0); /* as its generation_config.json says */
    assert_int_equal(c.sampling.n_eos_ids, 2);
    c.sampling.top_p = 7;
    assert_int_equal(td_chat_load(&c, &params, &err), TD_E_INPUT);
    assert_non_null(strstr(err.what, "top_p"));
    assert_null(c.engine);
    c.sampling.top_p = 1;
    td_error_init(&err);
    assert_int_equal(td_chat_load(&c, &params, &err), TD_OK);

    assert_int_equal(ask(&c, &e, question, NULL, &g, &err), TD_OK);
    assert_int_equal(g.finish, TD_FINISH_STOP);
    assert_string_equal(e.text[TD_PART_ANSWER].p, answer);
    assert_true(e.text[TD_PART_REASONING].len > 0);
    assert_int_equal(json_array_size(c.messages), 3);

    c.thinking = TD_THINK_OFF;
    td_chat_forget(&c);
    assert_int_equal(json_array_size(c.messages), 1);
    assert_int_equal(ask(&c, &e, question, NULL, &g, &err), TD_OK);
    assert_string_equal(e.text[TD_PART_ANSWER].p, answer);
    assert_int_equal(e.text[TD_PART_REASONING].len, 0);

    /* Stopped by the listener, and by the flag; both leave what was said. */
    e.left = 2;
    assert_int_equal(ask(&c, &e, question, NULL, &g, &err), TD_OK);
    assert_int_equal(g.finish, TD_FINISH_CANCELLED);
    assert_int_equal(json_array_size(c.messages), 5);
    e.left = 0;
    atomic_store(&cancel, true);
    assert_int_equal(ask(&c, &e, question, &cancel, &g, &err), TD_OK);
    assert_int_equal(g.finish, TD_FINISH_CANCELLED);

    /* Questions that fail leave the conversation as it was. */
    size_t before = json_array_size(c.messages);
    char many[1000] = "";
    memset(many, 'x', sizeof(many) - 1);
    assert_int_equal(ask(&c, &e, many, NULL, &g, &err), TD_E_INPUT);
    assert_non_null(strstr(err.fix, "start over with /new"));
    assert_int_equal(ask(&c, &e, "\xFF", NULL, &g, &err), TD_E_INPUT);
    assert_int_equal(json_array_size(c.messages), before);

    td_chat_forget(&c);
    c.max_tokens = 3;
    assert_int_equal(ask(&c, &e, question, NULL, NULL, &err), TD_OK);
    assert_int_equal(ask(&c, &e, question, NULL, &g, &err), TD_OK);
    assert_int_equal(g.finish, TD_FINISH_LENGTH);
    assert_int_equal(g.n_tokens, 3);
    td_chat_release(&c);
    td_buf_release(&e.text[0]);
    td_buf_release(&e.text[1]);
}

static void test_what_cannot_be_opened(void **unused)
{
    (void)unused;
    struct td_chat c;
    struct td_error err;
    td_error_init(&err);
    assert_int_equal(td_chat_open(&c, "/nonexistent", NULL, &err), TD_E_NOT_FOUND);
    td_chat_release(&c);
    td_error_init(&err);
    assert_int_equal(td_chat_open(&c, "models/lexicon", "\xC3(", &err), TD_E_INPUT);
    assert_non_null(strstr(err.what, "system"));
    td_chat_release(&c);
}

static void test_out_of_memory(void **unused)
{
    (void)unused;
    int failed = 0;
    for (long n = 1; n < 60; n += 3) {
        struct td_chat c;
        struct td_error err;
        td_error_init(&err);
        td_mem_fail_at(n);
        enum td_status s = td_chat_open(&c, "models/lexicon", NULL, &err);
        td_mem_fail_at(0);
        failed += s != TD_OK;
        assert_int_equal(s, err.code);
        td_chat_release(&c);
    }
    assert_true(failed > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_of_a_cut_character),
        cmocka_unit_test(test_conversation),
        cmocka_unit_test(test_what_cannot_be_opened),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, load_tokenizer, free_tokenizer);
}

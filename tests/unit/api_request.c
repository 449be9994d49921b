/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests from their JSON: the refusals of tests/cases/api/refusals.jsonl, what good
 * requests mean, failing memory; the JSON of states and the text of metrics.
 */
#include "check.h"

#include "api/metrics.h"
#include "api/reply.h"
#include "api/request.h"
#include "api/startup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static struct td_served served;

static int setup(void **state)
{
    (void)state;
    return td_served_open(&served, "models/lexicon", "lexicon", NULL) != TD_OK ||
           td_served_load(&served, "models/lexicon", NULL) != TD_OK;
}

static int teardown(void **state)
{
    (void)state;
    td_served_release(&served);
    return 0;
}

static bool parse(const char *path, const char *body, struct td_ask *a,
                  struct td_refusal *no)
{
    memset(no, 0, sizeof(*no));
    if (strcmp(path, "/v1/completions") == 0)
        return td_ask_completion(a, &served, body, strlen(body), no);
    if (strcmp(path, "/tokenize") == 0)
        return td_ask_tokenize(a, &served, body, strlen(body), no);
    return td_ask_chat(a, &served, body, strlen(body), no);
}

static const char *text_in(const json_t *o, const char *key, const char *absent)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : absent;
}

static void check_refusal(const json_t *c)
{
    struct td_ask a;
    struct td_refusal no;
    const char *path = text_in(c, "path", "/v1/chat/completions");
    char *made = json_dumps(json_object_get(c, "body"), JSON_ENCODE_ANY);
    if (strcmp(path, "/detokenize") != 0) {
        if (parse(path, text_in(c, "raw", made), &a, &no))
            fail_msg("%s was taken", text_in(c, "name", "?"));
        assert_int_equal(no.status, 400);
        assert_string_equal(no.param, text_in(c, "param", ""));
        assert_string_equal(no.type, "invalid_request_error");
        assert_true(*no.message);
        td_ask_release(&a);
    }
    free(made);
}

static void refusals(void **state)
{
    struct td_buf file;
    int n = 0;
    (void)state;
    td_buf_init(&file, TD_MIB);
    assert_int_equal(td_file_read("tests/cases/api/refusals.jsonl", &file, NULL),
                     TD_OK);
    for (const char *line = file.p; *line; n++) {
        size_t len = strcspn(line, "\n");
        json_t *c = NULL;
        assert_int_equal(td_json_parse(line, len, "case", &c, NULL), TD_OK);
        check_refusal(c);
        json_decref(c);
        line += len + (line[len] == '\n');
    }
    assert_true(n > 50);
    td_buf_release(&file);
}

static const char full[] =
    "{\"model\":\"x\",\"messages\":[{\"role\":\"developer\",\"content\":\"Be brief.\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
    "\"text\",\"text\":\"b\"}]}],\"temperature\":0.5,\"top_k\":7,\"n\":2,\"seed\":-3,"
    "\"stop\":[\"x\",\"yz\"],\"stop_token_ids\":[5],\"logit_bias\":{\"9\":-1.5},"
    "\"max_completion_tokens\":44,\"min_tokens\":2,\"logprobs\":true,\"top_logprobs\":"
    "3,"
    "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"tools\":[{\"type\":"
    "\"function\",\"function\":{\"name\":\"f\"}}],\"parallel_tool_calls\":false}";

static void meaning(void **state)
{
    struct td_ask a;
    struct td_refusal no;
    (void)state;
    if (!parse("", full, &a, &no))
        fail_msg("%s", no.message);
    assert_true(a.chat && a.stream && a.usage && a.logprobs && a.one_call);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.max_tokens, 44);
    assert_int_equal(a.sampling.top_k, 7);
    assert_int_equal(a.sampling.seed, (uint64_t)-3);
    assert_int_equal(a.sampling.logprobs, 3);
    assert_int_equal(a.sampling.min_tokens, 2);
    assert_int_equal(a.sampling.n_stop_ids, 1);
    assert_int_equal(a.sampling.bias[0].id, 9);
    assert_int_equal(a.stops.n, 2);
    assert_int_equal(a.stops.len[1], 2);
    assert_non_null(a.tools);
    assert_non_null(strstr(a.prompts->text, "<|im_start|>user\nab<|im_end|>"));
    assert_non_null(strstr(a.prompts->text, "Be brief."));
    assert_int_equal(a.prompts->first, TD_PART_REASONING);
    assert_int_equal(a.prompts->n_ends, 2); /* behind system and user */
    for (int i = 0; i < a.prompts->n_ends; i++)
        assert_int_equal(a.prompts->ids.p[a.prompts->ends[i] - 2], served.message_end);
    td_ask_trim(&a); /* while it waits: tools and ids, not what it was read from */
    assert_ptr_equal(a.body, a.tools);
    assert_int_equal(json_array_size(a.tools), 1);
    assert_true(a.prompts->ids.len > 0 && !a.prompts->text);
    assert_string_equal(a.stops.text[1], "yz");
    td_ask_release(&a);
}

static void thinking_off(void **state)
{
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                               "\"chat_template_kwargs\":{\"enable_thinking\":false}}";
    struct td_ask a;
    struct td_refusal no;
    (void)state;
    assert_true(parse("", body, &a, &no));
    assert_int_equal(a.prompts->first, TD_PART_CONTENT);
    td_ask_trim(&a);
    assert_null(a.body);
    td_ask_release(&a);
}

static void completions(void **state)
{
    static const char body[] = "{\"prompt\":[[1,2],[3]],\"n\":2,\"max_tokens\":0,"
                               "\"echo\":true,\"logprobs\":1}";
    struct td_ask a;
    struct td_refusal no;
    (void)state;
    assert_true(parse("/v1/completions", body, &a, &no));
    assert_int_equal(a.n_prompts, 2);
    assert_int_equal(a.max_tokens, -1);
    assert_int_equal(a.prompt_logprobs, 1);
    assert_int_equal(a.prompts[0].ids.len, 2);
    td_ask_release(&a);
    assert_true(parse("/v1/completions", "{\"prompt\":\"x\"}", &a, &no));
    assert_int_equal(a.max_tokens, 16);
    assert_int_equal(a.prompt_logprobs, -1);
    td_ask_release(&a);
}

/* A text that can not fit is not even tokenized. */
static void far_too_long(void **state)
{
    struct td_buf b;
    struct td_ask a;
    struct td_refusal no;
    (void)state;
    td_buf_init(&b, 16 * TD_MIB);
    td_buf_adds(&b, "{\"prompt\":\"");
    while (b.len <= served.max_text + 20)
        td_buf_adds(&b, "words and ");
    td_buf_adds(&b, "\"}");
    assert_int_equal(b.status, TD_OK);
    assert_false(parse("/v1/completions", b.p, &a, &no));
    assert_string_equal(no.code, "context_length_exceeded");
    assert_string_equal(no.param, "prompt");
    td_ask_release(&a);
    td_buf_release(&b);
}

static void no_memory(void **state)
{
    int refused = 0;
    (void)state;
    for (long n = 1; n < (CHECK_SMALL ? 100 : 400); n++) {
        struct td_ask a;
        struct td_refusal no;
        td_mem_fail_at(n);
        bool ok = parse("", full, &a, &no);
        td_mem_fail_at(0);
        refused += !ok;
        assert_true(ok || no.status >= 400);
        td_ask_release(&a);
    }
    assert_true(refused > 5);
}

/* ---- states and metrics -------------------------------------------------------------- */

static void states(void **state)
{
    static const char line[] =
        "{\"phase\":\"load\",\"event\":\"progress\",\"n\":{\"bytes\":"
        "5,\"of\":10,\"rate\":2.5,\"left\":2}}";
    struct td_startup s;
    struct td_buf b;
    json_t *o = NULL;
    (void)state;
    td_startup_init(&s);
    td_startup_event(&s, line, sizeof(line) - 1);
    td_startup_event(&s, "no JSON", 7);
    td_error_set(&s.error, TD_E_PEER, "a \"quoted\" death");
    td_startup_enter(&s, TD_LIFE_LOST);
    td_buf_init(&b, TD_MIB);
    td_startup_json(&s, &b);
    assert_int_equal(td_json_parse(b.p, b.len, "state", &o, NULL), TD_OK);
    assert_string_equal(text_in(o, "state", ""), "lost");
    assert_string_equal(text_in(o, "phase", ""), "load");
    assert_int_equal(json_number_value(json_object_get(o, "bytes")), 5);
    assert_string_equal(text_in(json_object_get(o, "error"), "what", ""),
                        "a \"quoted\" death");
    assert_int_equal(td_startup_retry_after(&s), 3);
    static const char other[] =
        "{\"phase\":\"launch\",\"rank\":1,\"host\":\"b\",\"event\":\"progress\",\"n\":"
        "{\"bytes\":1,\"of\":10,\"rate\":1,\"left\":9}}";
    td_startup_event(&s, other, sizeof(other) - 1);
    td_startup_event(&s, "{\"rank\":999999}", 15);
    td_startup_event(&s, "{\"rank\":-1}", 11);
    const struct td_sign sign = {.host = "b", .resident = 7, .available = 8};
    td_startup_beat(&s, 1, &sign);
    td_startup_beat(&s, TD_MAX_RANKS, &sign);
    assert_int_equal(s.ranks, 2);
    assert_int_equal(s.phase, TD_PHASE_LAUNCH); /* the one behind */
    assert_true(s.bytes == 6 && s.of == 20 && s.rate == 3.5 && s.left == 9);
    json_decref(o);
    td_buf_clear(&b);
    td_startup_json(&s, &b);
    assert_int_equal(td_json_parse(b.p, b.len, "state", &o, NULL), TD_OK);
    const json_t *second = json_array_get(json_object_get(o, "ranks"), 1);
    assert_string_equal(text_in(second, "host", ""), "b");
    assert_string_equal(text_in(second, "phase", ""), "launch");
    assert_int_equal(json_number_value(json_object_get(second, "resident")), 7);
    td_startup_enter(&s, TD_LIFE_STOPPING);
    td_startup_enter(&s, TD_LIFE_READY); /* nothing comes behind stopping */
    assert_int_equal(s.life, TD_LIFE_STOPPING);
    json_decref(o);
    td_buf_release(&b);
}

static void metrics(void **state)
{
    struct td_metrics m;
    struct td_buf b;
    (void)state;
    td_metrics_init(&m);
    td_histogram_add(&m.first_token, 0.001);
    td_histogram_add(&m.first_token, 0.3);
    td_histogram_add(&m.first_token, 99999);
    m.stats.prefix_hits = 5;
    td_metrics_engine_lost(&m);
    m.stats.prefix_hits = 2;
    td_buf_init(&b, TD_MIB);
    td_metrics_text(&m, "a \"model\"", &b);
    assert_int_equal(b.status, TD_OK);
    assert_non_null(strstr(b.p, "vllm:prefix_cache_hits_total{model_name=\"a \\\"model"
                                "\\\"\",engine=\"0\"} 7\n"));
    assert_non_null(strstr(b.p, "le=\"0.001\"} 1\n"));
    assert_non_null(strstr(b.p, "le=\"0.5\"} 2\n"));
    assert_non_null(strstr(b.p, "le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(b.p, "tandem:engine_losses_total"));
    td_buf_release(&b);
}

static void errors(void **state)
{
    struct td_refusal no;
    struct td_buf b;
    json_t *o = NULL;
    (void)state;
    td_buf_init(&b, TD_MIB);
    td_refuse(&no, 400, "a\"b", "line\n%s", "two");
    td_reply_error(&b, &no);
    assert_int_equal(td_json_parse(b.p, b.len, "error", &o, NULL), TD_OK);
    const json_t *e = json_object_get(o, "error");
    assert_string_equal(text_in(e, "message", ""), "line\ntwo");
    assert_string_equal(text_in(e, "param", ""), "a\"b");
    assert_true(json_is_null(json_object_get(e, "code")));
    json_decref(o);
    td_buf_release(&b);
}

/* At least so many seconds were spent, and a little more; then just as many. */
static void assert_spent(struct td_startup *s, enum td_phase phase, double seconds)
{
    assert_true(s->spent[phase] >= seconds && s->spent[phase] < seconds + 100);
    s->spent[phase] = seconds;
}

/* What the phases of a start took, until it was ready. */
static void times_of_phases(void **state)
{
    static const char loads[] = "{\"phase\":\"load\",\"rank\":0}";
    struct td_startup s;
    struct td_buf b;
    (void)state;
    td_startup_init(&s);
    td_buf_init(&b, TD_MIB);
    s.phase_at -= 200;
    td_startup_phase(&s, TD_PHASE_LAUNCH);
    s.phase_at -= 400;
    td_startup_event(&s, loads, sizeof(loads) - 1);
    s.phase_at -= 600;
    td_startup_enter(&s, TD_LIFE_READY);
    assert_spent(&s, TD_PHASE_CHECK, 200);
    assert_spent(&s, TD_PHASE_LAUNCH, 400);
    assert_spent(&s, TD_PHASE_LOAD, 600);
    td_startup_times(&s, &b);
    assert_string_equal(b.p, "check 200.0 s, launch 400.0 s, load 600.0 s");
    td_buf_clear(&b);
    td_startup_json(&s, &b);
    assert_non_null(strstr(b.p, "\"times\":{\"check\":200.000,"));
    /* the next start counts anew */
    td_startup_enter(&s, TD_LIFE_LOST);
    td_startup_enter(&s, TD_LIFE_STARTING);
    s.phase_at -= 300;
    td_startup_enter(&s, TD_LIFE_READY);
    assert_spent(&s, TD_PHASE_LAUNCH, 300);
    td_buf_clear(&b);
    td_startup_times(&s, &b);
    assert_string_equal(b.p, "launch 300.0 s");
    td_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),     cmocka_unit_test(meaning),
        cmocka_unit_test(thinking_off), cmocka_unit_test(completions),
        cmocka_unit_test(no_memory),    cmocka_unit_test(far_too_long),
        cmocka_unit_test(states),       cmocka_unit_test(times_of_phases),
        cmocka_unit_test(metrics),      cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem run MODEL [PROMPT]: one answer, or a conversation.
 *
 *     PROMPT given                         one answer
 *     standard input is no terminal        all of it is the prompt: one answer
 *     otherwise                            a conversation, until ^D
 *
 * Answers stream to standard output, as soon as characters are whole. On a terminal the
 * reasoning comes before the answer, dimmed; elsewhere only the answer is written.
 * Everything else (progress, notes, statistics) goes to standard error.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"
#include "base/json.h"
#include "cmd/chat.h"
#include "cmd/cmd.h"
#include "cmd/job.h"
#include "cmd/options.h"
#include "cmd/term.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct run {
    const struct td_conf *conf;
    struct td_chat chat;
    double loading; /* seconds */

    /* How answers are shown. */
    bool tty, colours, json;
    bool talks; /* a conversation, not one answer */
    bool begun; /* something of this answer was written */
    enum td_part part;
};

/* Set by ^C while a model answers. */
static atomic_bool interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    atomic_store(&interrupted, true);
}

static void catch_interrupts(void (*handler)(int))
{
    struct sigaction a;
    memset(&a, 0, sizeof(a));
    a.sa_handler = handler;
    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(SIGINT, &a, NULL);
}

/* ---- options --------------------------------------------------------------------------- */

static void set_real(const struct td_conf *conf, size_t opt, float *to)
{
    if (td_conf_is_set(conf, opt))
        *to = (float)td_conf_real(conf, opt);
}

static void read_sampling(const struct td_conf *conf, struct td_sampling *s)
{
    set_real(conf, TD_O_TEMPERATURE, &s->temperature);
    set_real(conf, TD_O_TOP_P, &s->top_p);
    set_real(conf, TD_O_MIN_P, &s->min_p);
    set_real(conf, TD_O_PRESENCE_PENALTY, &s->presence_penalty);
    set_real(conf, TD_O_REPETITION_PENALTY, &s->repetition_penalty);
    if (td_conf_is_set(conf, TD_O_TOP_K))
        s->top_k = (int32_t)td_conf_int(conf, TD_O_TOP_K);
    s->seed = td_conf_is_set(conf, TD_O_SEED) ? (uint64_t)td_conf_int(conf, TD_O_SEED)
                                              : td_seed_fresh();
}

static enum td_status open_model(struct run *r, struct td_error *err)
{
    const struct td_conf *conf = r->conf;
    double start = td_clock_now();
    enum td_status s =
        td_chat_open(&r->chat, conf->args[0], td_conf_str(conf, TD_O_SYSTEM), err);
    if (s != TD_OK)
        return s;
    read_sampling(conf, &r->chat.sampling);
    if (td_conf_is_set(conf, TD_O_THINK))
        r->chat.thinking = td_conf_bool(conf, TD_O_THINK) ? TD_THINK_ON : TD_THINK_OFF;
    if (td_conf_is_set(conf, TD_O_MAX_TOKENS))
        r->chat.max_tokens = (int32_t)td_conf_int(conf, TD_O_MAX_TOKENS);
    struct td_engine_params params = td_options_engine(conf, conf->args[0]);
    td_progress_start();
    s = td_chat_load(&r->chat, &params, err);
    td_progress_stop();
    r->loading = td_clock_now() - start;
    return s;
}

/* ---- showing an answer ------------------------------------------------------------------ */

static void enter_part(struct run *r, enum td_part part)
{
    bool thoughts = part == TD_PART_REASONING;
    if (r->begun && r->part == TD_PART_REASONING)
        (void)fputs(r->colours ? "\033[0m\n\n" : "\n\n", stdout);
    else if (r->begun)
        (void)fputs("\n\n", stdout);
    if (thoughts)
        (void)fputs(r->colours ? "\033[2m" : "thinking: ", stdout);
    r->begun = true;
    r->part = part;
}

static bool show(void *self, enum td_part part, const char *text, size_t n)
{
    struct run *r = self;
    if (r->json || (part == TD_PART_REASONING && !r->tty))
        return true;
    if (!r->begun || r->part != part)
        enter_part(r, part);
    td_term_text(stdout, text, n, r->tty);
    return fflush(stdout) == 0;
}

static void end_answer(struct run *r)
{
    if (r->begun && r->part == TD_PART_REASONING && r->colours)
        (void)fputs("\033[0m", stdout);
    if (r->begun)
        (void)fputc('\n', stdout);
    (void)fflush(stdout);
}

static double tokens_per_second(const struct td_generated *g)
{
    return g->n_tokens > 1 && g->decode > 0 ? (g->n_tokens - 1) / g->decode : 0;
}

static void add_notes(const struct run *r, const struct td_generated *g)
{
    if (g->finish == TD_FINISH_LENGTH && g->n_tokens == r->chat.max_tokens)
        (void)fprintf(stderr,
                      "note    the answer was cut after %ld tokens "
                      "(--max-tokens)\n",
                      (long)g->n_tokens);
    else if (g->finish == TD_FINISH_LENGTH)
        (void)fprintf(stderr, "note    the answer was cut: the context is full%s\n",
                      r->talks ? "; /new starts over" : "");
    if (!td_conf_bool(r->conf, TD_O_STATS))
        return;
    (void)fprintf(stderr,
                  "stats   %ld prompt tokens, first token after %.3f s; %ld tokens, "
                  "%.1f tokens/s; loaded in %.2f s\n",
                  (long)g->n_prompt, g->prefill, (long)g->n_tokens,
                  tokens_per_second(g), r->loading);
    struct td_engine_info info;
    td_engine_info(r->chat.engine, &info);
    if (info.ranks > 1 && info.comm.calls > 0)
        (void)fprintf(stderr,
                      "ranks   %d; %lld sums of %.1f us each, %.1f us of them waiting; "
                      "%.3f s in all\n",
                      info.ranks, (long long)info.comm.calls,
                      info.comm.seconds / (double)info.comm.calls * 1e6,
                      info.comm.waited / (double)info.comm.calls * 1e6,
                      info.comm.seconds);
}

static const char *finish_name(const struct td_generated *g)
{
    static const char *const names[] = {[TD_FINISH_STOP] = "stop",
                                        [TD_FINISH_LENGTH] = "length",
                                        [TD_FINISH_CANCELLED] = "cancelled"};
    return names[g->finish];
}

static enum td_status print_json(const struct run *r, const struct td_generated *g,
                                 struct td_error *err)
{
    const struct td_buf *text = &r->chat.split.text[TD_PART_ANSWER];
    const struct td_buf *thoughts = &r->chat.split.text[TD_PART_REASONING];
    /* The token that ended the answer was computed too. */
    long made = (long)g->n_tokens + (g->finish == TD_FINISH_STOP);
    struct td_buf out;
    td_buf_init(&out, 16 * (size_t)TD_MAX_TEXT);
    td_buf_adds(&out, "{\"model\":");
    td_json_add_string(&out, r->chat.model, strlen(r->chat.model));
    td_buf_adds(&out, ",\"text\":");
    td_json_add_string(&out, text->p, text->len);
    td_buf_adds(&out, ",\"reasoning\":");
    if (thoughts->len > 0)
        td_json_add_string(&out, thoughts->p, thoughts->len);
    else
        td_buf_adds(&out, "null");
    td_buf_addf(&out,
                ",\"finish_reason\":\"%s\",\"seed\":%llu,"
                "\"usage\":{\"prompt_tokens\":%ld,\"completion_tokens\":%ld,"
                "\"total_tokens\":%ld},"
                "\"timings\":{\"load\":%.6f,\"first_token\":%.6f,\"decode\":%.6f,"
                "\"tokens_per_second\":%.3f}}\n",
                finish_name(g), (unsigned long long)r->chat.sampling.seed,
                (long)g->n_prompt, made, (long)g->n_prompt + made, r->loading,
                g->prefill, g->decode, tokens_per_second(g));
    enum td_status s = out.status;
    if (s == TD_OK)
        (void)fputs(out.p, stdout);
    else
        td_error_set(err, s, "the answer is too long to print");
    td_buf_release(&out);
    return s;
}

static enum td_status ask(struct run *r, const char *text, size_t n,
                          struct td_generated *g, struct td_error *err)
{
    r->begun = false;
    atomic_store(&interrupted, false);
    enum td_status s = td_chat_ask(&r->chat, text, n, show, r, &interrupted, g, err);
    end_answer(r);
    if (s == TD_OK && r->json)
        s = print_json(r, g, err);
    if (s == TD_OK)
        add_notes(r, g);
    if (s == TD_OK && (fflush(stdout) != 0 || ferror(stdout)))
        s = td_error_set(err, TD_E_IO, "cannot write the answer: %s", strerror(errno));
    return s;
}

/* ---- one answer -------------------------------------------------------------------------- */

static enum td_status read_input(struct td_buf *out, struct td_error *err)
{
    char piece[16 * TD_KIB];
    size_t n;
    while ((n = fread(piece, 1, sizeof(piece), stdin)) > 0)
        if (td_buf_add(out, piece, n) != TD_OK) {
            enum td_status s = td_error_set(err, out->status,
                                            "the prompt on standard input is too long");
            td_error_why(err, "at most %s are read", td_size_text(TD_MAX_TEXT, 0).text);
            return s;
        }
    if (ferror(stdin))
        return td_error_set(err, TD_E_IO, "cannot read the prompt: %s",
                            strerror(errno));
    return TD_OK;
}

static bool is_blank(const char *text, size_t n)
{
    return strspn(text, " \t\r\n") >= n;
}

static enum td_status check_prompt(const struct run *r, const struct td_buf *prompt,
                                   struct td_error *err)
{
    if (!is_blank(prompt->p, prompt->len))
        return TD_OK;
    td_error_set(err, TD_E_USAGE, "the prompt is empty");
    td_error_why(err, "%s",
                 r->conf->nargs > 1 ? "the second argument has no word"
                                    : "standard input has no word, and is no terminal");
    td_error_fix(err, "give it as the second argument or on standard input");
    return TD_E_USAGE;
}

static enum td_status run_once(struct run *r, struct td_error *err)
{
    struct td_buf prompt;
    struct td_generated g;
    bool stopped = false;
    td_buf_init(&prompt, TD_MAX_TEXT);
    enum td_status s = r->conf->nargs > 1 ? td_buf_adds(&prompt, r->conf->args[1])
                                          : read_input(&prompt, err);
    if (s == TD_OK)
        s = check_prompt(r, &prompt, err);
    if (s == TD_OK)
        s = open_model(r, err);
    if (s == TD_OK) {
        catch_interrupts(on_interrupt);
        s = ask(r, prompt.p, prompt.len, &g, err);
        stopped = s == TD_OK && atomic_load(&interrupted);
        catch_interrupts(SIG_DFL);
    }
    td_buf_release(&prompt);
    if (stopped)
        (void)raise(SIGINT); /* end as the shell expects it of ^C */
    return s;
}

/* ---- a conversation ---------------------------------------------------------------------- */

static void greet(const struct run *r)
{
    struct td_engine_info info;
    if (!r->tty)
        return;
    td_engine_info(r->chat.engine, &info);
    (void)printf("%s%s, %ld tokens of context. ^C stops an answer, ^D leaves, /new "
                 "starts over.%s\n",
                 r->colours ? "\033[2m" : "", r->chat.model, (long)info.max_len,
                 r->colours ? "\033[0m" : "");
}

/* After these the conversation can go on. */
static bool is_harmless(enum td_status s)
{
    return s == TD_E_INPUT || s == TD_E_LIMIT || s == TD_E_TEMPLATE;
}

/* A word behind a slash, alone on its line, is meant for us. */
static bool is_command(const char *text, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    return n > 1 && *text == '/' && 1 + strspn(text + 1, letters) >= n;
}

static void command(struct run *r, const char *text, size_t n)
{
    if (n == 4 && memcmp(text, "/new", 4) == 0)
        td_chat_forget(&r->chat);
    else
        (void)fprintf(stderr, "note    there is no %.*s: /new starts over, ^D leaves\n",
                      (int)n, text);
}

static enum td_status answer_line(struct run *r, const char *text, size_t n,
                                  struct td_error *err)
{
    struct td_generated g;
    while (n > 0 && is_blank(text + n - 1, 1))
        n--;
    for (; n > 0 && is_blank(text, 1); n--)
        text++;
    if (is_command(text, n)) {
        command(r, text, n);
        return TD_OK;
    }
    enum td_status s = ask(r, text, n, &g, err);
    if (!is_harmless(s))
        return s;
    td_term_error(stderr, err);
    td_error_init(err);
    return TD_OK;
}

static enum td_status converse(struct run *r, struct td_error *err)
{
    struct td_lines *lines = NULL;
    const char *text;
    size_t n;
    enum td_status s = open_model(r, err);
    if (s == TD_OK)
        s = td_lines_open(&lines, err);
    if (s != TD_OK)
        return s;
    greet(r);
    catch_interrupts(on_interrupt);
    while (s == TD_OK && td_lines_next(lines, "> ", &text, &n))
        if (!is_blank(text, n))
            s = answer_line(r, text, n, err);
    catch_interrupts(SIG_DFL);
    td_lines_close(lines);
    return s;
}

/* ---- the verb ----------------------------------------------------------------------------- */

static enum td_status check_args(const struct td_conf *conf, bool once,
                                 struct td_error *err)
{
    if (!once && td_conf_bool(conf, TD_O_JSON)) {
        td_error_set(err, TD_E_USAGE, "--json needs a prompt");
        td_error_why(err, "it prints one answer as one object");
        td_error_fix(err, "give the prompt as an argument or on standard input");
        return TD_E_USAGE;
    }
    return TD_OK;
}

static int run(struct td_conf *conf, struct td_error *err)
{
    struct run r = {.conf = conf,
                    .tty = td_term_is(stdout),
                    .colours = td_term_colours(stdout),
                    .json = td_conf_bool(conf, TD_O_JSON)};
    bool once = conf->nargs > 1 || !td_term_is(stdin);
    r.talks = !once;
    enum td_status s = check_args(conf, once, err);
    if (s == TD_OK && td_cmd_job_wanted(conf)) {
        struct td_engine_params engine = td_options_engine(conf, conf->args[0]);
        return td_cmd_job_run(conf, "run", TD_VERB_RUN, &engine, err);
    }
    if (s == TD_OK)
        s = once ? run_once(&r, err) : converse(&r, err);
    td_chat_release(&r.chat);
    return s == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

const struct td_cmd td_cmd_run = {
    .name = "run",
    .verb = TD_VERB_RUN,
    .usage = "run MODEL [PROMPT]",
    .args = {1, 2, "model", "put the prompt between quotes"},
    .summary = "one answer, or a conversation on a terminal",
    .details = "The prompt is the second argument, or everything on standard input "
               "when that is "
               "no\nterminal. Without one a conversation begins: ^C stops an answer, "
               "^D leaves, "
               "/new starts\nover.\n\nReasoning is dimmed on a terminal and left out "
               "elsewhere. "
               "--json prints one object:\ntext, reasoning, finish_reason, usage, "
               "timings, seed.",
    .run = run,
};

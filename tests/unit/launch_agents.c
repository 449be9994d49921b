/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's protocol over pipes, what ssh's endings mean, the lines of shell, and the
 * files of a model. Real ssh and real hosts: tests/hosts.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "launch/agent.h"
#include "launch/agents.h"
#include "launch/ssh.h"

/* ---- the agent ----------------------------------------------------------------------- */

struct pair {
    int to[2], from[2];
    pthread_t thread;
    enum td_status status;
    FILE *answers;
    char line[1 << 20];
};

static void *serve(void *arg)
{
    struct pair *p = arg;
    p->status = td_agent_run(p->to[0], p->from[1], "b1", "0.1", NULL);
    (void)close(p->from[1]);
    return NULL;
}

static struct pair *pair_new(void)
{
    struct pair *p = td_calloc(1, sizeof(*p));
    assert_non_null(p);
    assert_int_equal(pipe(p->to), 0);
    assert_int_equal(pipe(p->from), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, serve, p), 0);
    p->answers = fdopen(p->from[0], "r");
    assert_non_null(p->answers);
    return p;
}

static const char *ask(struct pair *p, const char *text)
{
    size_t n = strlen(text);
    assert_int_equal(write(p->to[1], text, n), (ssize_t)n);
    assert_non_null(fgets(p->line, sizeof(p->line), p->answers));
    return p->line;
}

static enum td_status pair_end(struct pair *p)
{
    (void)close(p->to[1]);
    (void)pthread_join(p->thread, NULL);
    enum td_status s = p->status;
    (void)fclose(p->answers);
    (void)close(p->to[0]);
    td_free(p);
    return s;
}

static void questions_and_answers(void **state)
{
    struct pair *p = pair_new();
    (void)state;
    assert_non_null(strstr(ask(p, ""), "{\"tandem\":1,\"build\":\"b1\""));
    assert_non_null(strstr(ask(p, "{\"do\":\"clock\"}\n"), "{\"clock\":1"));
    assert_non_null(
        strstr(ask(p, "{\"do\":\"facts\",\"model\":\"/no/such\"}\n"), "is no folder"));
    assert_non_null(strstr(p->line, "\"build\":\"b1\""));
    assert_non_null(strstr(ask(p, "{\"do\":\"rates\",\"model\":\"/no/such\"}\n"),
                           "\"disk\":0,\"disk_how\":\"the files are not here\"}"));
    assert_non_null(
        strstr(ask(p, "{\"do\":\"connect\",\"targets\":[]}\n"), "{\"reach\":[]}"));
    /* whatever is wrong is answered, and the agent goes on */
    static const char *const wrong[] = {
        "\n",
        "x\n",
        "[1]\n",
        "{}\n",
        "{\"do\":\"dance\"}\n",
        "{\"do\":7}\n",
        "{\"do\":\"facts\",\"model\":7}\n",
        "{\"do\":\"facts\",\"name\":7}\n",
        "{\"do\":\"rates\",\"model\":7}\n",
        "{\"do\":\"listen\"}\n",
        "{\"do\":\"listen\",\"token\":\"0123456789012345678901234567890123456789\"}\n",
        "{\"do\":\"connect\",\"seconds\":1e9}\n",
        "{\"do\":\"connect\",\"targets\":[7]}\n",
        "{\"do\":\"connect\",\"targets\":[{\"from\":\"a\",\"to\":\"b\"}]}\n",
        "{\"do\":\"measure\"}\n",
    };
    for (size_t i = 0; i < TD_COUNT(wrong); i++)
        if (!strstr(ask(p, wrong[i]), "{\"error\":{\"code\":\""))
            fail_msg("%s: %s", wrong[i], p->line);
    assert_int_equal(pair_end(p), TD_OK);
}

static void a_line_without_end(void **state)
{
    struct pair *p = pair_new();
    char piece[65536];
    (void)state;
    (void)ask(p, "");
    memset(piece, 'x', sizeof(piece));
    for (size_t sent = 0; sent < (size_t)TD_MAX_AGENT_LINE; sent += sizeof(piece))
        assert_int_equal(write(p->to[1], piece, sizeof(piece)), (ssize_t)sizeof(piece));
    assert_null(fgets(p->line, sizeof(p->line), p->answers)); /* it has left */
    assert_int_equal(pair_end(p), TD_E_LIMIT);
}

static void errors_and_links_there_and_back(void **state)
{
    struct td_error e, back;
    struct td_link l = {1.5, 2.5, 23.4, 9000}, m = {0};
    struct td_buf b;
    json_t *o = NULL;
    (void)state;
    td_error_init(&e);
    td_error_init(&back);
    td_error_set(&e, TD_E_MTU, "what \"it\" was");
    td_error_why(&e, "why");
    td_buf_init(&b, 4096);
    td_buf_addc(&b, '{');
    td_agent_put_error(&b, &e);
    td_buf_addc(&b, ',');
    td_agent_put_link(&b, &l);
    td_buf_addc(&b, '}');
    assert_int_equal(td_json_parse(b.p, b.len, "x", &o, NULL), TD_OK);
    td_agent_get_error(o, &back);
    assert_int_equal(back.code, TD_E_MTU);
    assert_string_equal(back.what, e.what);
    assert_string_equal(back.fix, e.fix);
    assert_int_equal(td_agent_get_link(o, &m, NULL), TD_OK);
    assert_true(m.path_mtu == 9000 && m.gbytes > 23 && m.latency_us > 1.4);
    json_decref(o);
    assert_int_equal(td_json_parse("{\"error\":{\"code\":\"odd\"}}", 24, "x", &o, NULL),
                     TD_OK);
    td_error_init(&back);
    td_agent_get_error(o, &back);
    assert_int_equal(back.code, TD_E_PEER);
    json_decref(o);
    td_buf_release(&b);
}

/* ---- ssh ----------------------------------------------------------------------------- */

static void endings_of_ssh(void **state)
{
    static const struct {
        const char *host, *where, *said;
        int status;
        enum td_status code;
        const char *words;
    } list[] = {
        {"a", "", "ssh: Could not resolve hostname a: Name or service not known\r\n",
         255, TD_E_NAME, "does not resolve"},
        {"10.0.0.2", "10.0.0.2",
         "ssh: connect to host 10.0.0.2 port 22: No route to host\n", 255, TD_E_SSH,
         "cannot be reached"},
        {"a", "10.0.0.2", "ssh: connect to host a port 22: Connection timed out\n", 255,
         TD_E_NAME, "a leads to 10.0.0.2"},
        {"a", "10.0.0.2", "ssh: connect to host a port 22: Connection refused\n", 255,
         TD_E_SSH, "no sshd"},
        {"a", "10.0.0.2", "Host key verification failed.\n", 255, TD_E_SSH, "host key"},
        {"a", "10.0.0.2", "root@a: Permission denied (publickey).\n", 255, TD_E_SSH,
         "login"},
        {"a", "10.0.0.2", "", 127, TD_E_SSH, "cannot be started"},
        {"a", "10.0.0.2", "odd\n\n", 255, TD_E_SSH, "before anything was started"},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNT(list); i++) {
        struct td_error err;
        td_error_init(&err);
        td_ssh_cause(list[i].host, list[i].where, list[i].status << 8, list[i].said,
                     &err);
        if (err.code != list[i].code || !strstr(err.what, list[i].words))
            fail_msg("%s: %s: %s", list[i].said, err.what, err.why);
        assert_true(*err.why && *err.fix);
    }
}

/* Runs the lines in a shell from a pipe: the first program is of another build, the second
 * in the cache is right, and what follows the lines is its own to read. */
static void run_lines(const char *dir, const char *shell)
{
    char command[512], out[512] = "";
    (void)snprintf(command, sizeof(command),
                   "(cat '%s/script'; echo question) | HOME='%s' %s", dir, dir, shell);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    out[fread(out, 1, sizeof(out) - 1, f)] = 0;
    (void)pclose(f);
    if (!strstr(out, "it's/tandem: tandem 0 (old)\nstarted\n"))
        fail_msg("%s: %s", shell, out);
    /* a shell that reads ahead takes it away, one that does not leaves exactly this */
    const char *rest = strstr(out, "started\n") + strlen("started\n");
    if (*rest && strcmp(rest, "question\n") != 0)
        fail_msg("%s leaves: %s", shell, rest);
}

static void the_lines_of_shell(void **state)
{
    char dir[] = "/tmp/tandem-test-XXXXXX", path[256], command[4096];
    struct td_buf b;
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(command, sizeof(command),
                   "cd '%s' && mkdir -p .cache/tandem/b-1/bin \"it's\" && "
                   "printf '#!/bin/sh\necho \"tandem 0 (old)\"' >\"it's/tandem\" && "
                   "printf '#!/bin/sh\n[ $1 = agent ] && echo started && exec cat\n"
                   "echo \"tandem 0 (b-1)\"' >.cache/tandem/b-1/bin/tandem && "
                   "chmod +x \"it's/tandem\" .cache/tandem/b-1/bin/tandem",
                   dir);
    assert_int_equal(system(command), 0);
    td_buf_init(&b, 65536);
    (void)snprintf(path, sizeof(path), "%s/it's/tandem", dir);
    assert_int_equal(td_ssh_script(&b, path, "b-1"), TD_OK);
    (void)snprintf(command, sizeof(command), "%s/script", dir);
    FILE *f = fopen(command, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(b.p, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    run_lines(dir, "sh");
    run_lines(dir, "bash"); /* /bin/sh of other systems */
    td_buf_clear(&b);
    assert_int_equal(td_ssh_unpack(&b, "x'; rm y"), TD_OK);
    assert_non_null(strstr(b.p, "tandem/x___rm_y\""));
    td_buf_release(&b);
    (void)snprintf(command, sizeof(command), "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void a_bundle_is_known_by_its_id(void **state)
{
    char dir[] = "/tmp/tandem-test-XXXXXX", command[512], program[256],
         out[TD_MAX_PATH];
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(command, sizeof(command),
                   "mkdir '%s/bin' && echo b-1 >'%s/build-id'", dir, dir);
    assert_int_equal(system(command), 0);
    (void)snprintf(program, sizeof(program), "%s/bin/tandem", dir);
    assert_true(td_bundle_find(program, "0", "b-1", out, sizeof(out)));
    assert_false(td_bundle_find(program, "0", "b-10", out, sizeof(out)));
    assert_false(td_bundle_find(program, "0", "b-", out, sizeof(out)));
    assert_false(td_bundle_find("tandem", "0", "b-1", out, sizeof(out)));
    (void)snprintf(command, sizeof(command), "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* An agent that cannot be started, and one that says nonsense, beside one that works. */
static void agents_that_fail(void **state)
{
    struct td_agent_start o = {
        .ssh = "/no/such/ssh", .version = "0", .build = "b1", .seconds = 10};
    struct td_agent *a = td_agents_new(1);
    (void)state;
    assert_non_null(a);
    (void)snprintf(a[0].name, sizeof(a[0].name), "spark-9");
    td_agents_start(a, 1, &o);
    assert_int_equal(a[0].e.code, TD_E_SSH);
    td_agents_free(a, 1);

    a = td_agents_new(1);
    assert_non_null(a);
    (void)snprintf(a[0].name, sizeof(a[0].name), "spark-9");
    o.ssh = "sh -c echo"; /* ends at once and says nothing of use */
    td_agents_start(a, 1, &o);
    assert_true(a[0].e.code != TD_OK && !a[0].up);
    td_agents_free(a, 1);
}

/* ---- the model ----------------------------------------------------------------------- */

static void files_of_a_model(void **state)
{
    struct td_facts *f = td_calloc(1, sizeof(*f)), *g = td_calloc(1, sizeof(*g));
    (void)state;
    assert_non_null(f);
    assert_non_null(g);
    td_model_files_read("models/lexicon", f);
    assert_string_equal(f->model_error, "");
    assert_true(f->n_files > 3 && f->model_bytes > 30000000);
    for (int64_t i = 0; i < f->n_files; i++)
        assert_int_equal(strlen(f->files[i].hash), 16);
    td_model_files_read("models/lexicon/config.json", g);
    assert_non_null(strstr(g->model_error, "is no folder"));
    td_facts_release(f);
    td_facts_release(g);
    td_free(f);
    td_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_and_answers),
        cmocka_unit_test(a_line_without_end),
        cmocka_unit_test(errors_and_links_there_and_back),
        cmocka_unit_test(endings_of_ssh),
        cmocka_unit_test(the_lines_of_shell),
        cmocka_unit_test(a_bundle_is_known_by_its_id),
        cmocka_unit_test(agents_that_fail),
        cmocka_unit_test(files_of_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

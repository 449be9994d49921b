/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front over real HTTP with an engine that this test plays: it answers every request
 * with the tokens of a script, one a round, and dies where it is told to. So tool calls,
 * split characters, deaths and failures can be had at every place of an answer.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "api/front.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/wire.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SEQS = 16, MAX_LEN = 4096, MAX_CLIENTS = 100, MAX_ARRIVING = 3 << 19 };

/* What the engine is playing. */
struct seq {
    uint64_t id; /* 0: free */
    int32_t at, max;
};

struct world {
    struct td_served served;
    struct td_front *front;
    struct td_http *http;
    pthread_t engine;
    atomic_bool stop;
    struct td_ids script;      /* what each answer is */
    enum td_done_reason end;   /* with which it ends */
    atomic_int die_at, deaths; /* tokens of a life, then it dies, so many times */
    int told;                  /* tokens of this life */
    struct seq seqs[MAX_SEQS];
    struct td_buf in; /* bytes of the front */
    atomic_int cancels, resumed_at;
    bool hello;
};

static struct world w;

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
}

/* ---- the engine -------------------------------------------------------------------- */

static void to_front(struct td_buf *b)
{
    size_t used = 0;
    struct td_error err;
    td_error_init(&err);
    if (td_front_received(w.front, b->p, b->len, &used, &err) != TD_OK)
        fail_msg("%s", err.what);
    assert_int_equal(used, b->len);
    td_buf_release(b);
}

static void say_done(uint64_t id, enum td_done_reason reason)
{
    struct td_buf b;
    struct td_wire_done d = {.request = id, .reason = reason, .stop_id = -1};
    td_error_init(&d.error);
    if (reason == TD_DONE_STOP)
        d.stop_id = w.served.eos[0];
    if (reason == TD_DONE_FAILED || reason == TD_DONE_REFUSED)
        td_error_set(&d.error, TD_E_NUMERICS, "played failure");
    td_buf_init(&b, TD_MIB);
    td_wire_put_done(&b, &d);
    to_front(&b);
}

static void on_submit(const struct td_frame *f)
{
    struct td_arena a;
    struct td_wire_submit m;
    td_arena_init(&a, TD_MAX_FRAME);
    assert_int_equal(td_wire_get_submit(f, &a, &m, NULL), TD_OK);
    if (m.id == 0) {
        say_done(0, TD_DONE_LENGTH);
    } else {
        int i = 0;
        while (w.seqs[i].id)
            i++;
        w.seqs[i] = (struct seq){.id = m.id, .at = m.n_generated, .max = m.max_tokens};
        for (int32_t k = 0; k < m.n_generated; k++)
            assert_int_equal(m.generated[k], w.script.p[k]);
        if (m.n_generated)
            atomic_store(&w.resumed_at, m.n_generated);
    }
    td_arena_release(&a);
}

static void on_cancel(const struct td_frame *f)
{
    uint64_t id;
    assert_int_equal(td_wire_get_cancel(f, &id, NULL), TD_OK);
    atomic_fetch_add(&w.cancels, 1);
    for (int i = 0; i < MAX_SEQS; i++)
        if (w.seqs[i].id == id) {
            w.seqs[i].id = 0;
            say_done(id, TD_DONE_CANCELLED);
        }
}

static void from_front(void)
{
    size_t used = 1;
    while (used) {
        struct td_frame f;
        assert_int_equal(td_wire_next(w.in.p, w.in.len, &f, &used, NULL), TD_OK);
        if (used && f.type == TD_WIRE_SUBMIT)
            on_submit(&f);
        else if (used && f.type == TD_WIRE_CANCEL)
            on_cancel(&f);
        td_buf_drop(&w.in, used);
    }
}

static void step(struct seq *s)
{
    struct td_buf b;
    struct td_wire_token t = {.request = s->id, .n_top = 0};
    uint64_t id = s->id;
    if (s->at == (int32_t)w.script.len || s->at == s->max) {
        s->id = 0;
        say_done(id, s->at == s->max ? TD_DONE_LENGTH : w.end);
        return;
    }
    t.id = w.script.p[s->at++];
    w.told++;
    td_buf_init(&b, TD_MIB);
    td_wire_put_tokens(&b, &t, 1);
    to_front(&b);
}

static void be_born(void)
{
    static const char line[] = "{\"event\":\"phase\",\"phase\":\"serve\"}";
    struct td_buf b;
    struct td_wire_hello h = {.version = TD_WIRE_VERSION,
                              .max_len = MAX_LEN,
                              .max_seqs = MAX_SEQS / 2,
                              .vocab = w.served.config.vocab,
                              .ranks = 1};
    td_front_event(w.front, line, sizeof(line) - 1);
    td_front_connected(w.front);
    td_buf_init(&b, TD_MIB);
    td_wire_put_hello(&b, &h);
    to_front(&b);
    w.told = 0;
}

static void die(void)
{
    struct td_error why;
    td_error_init(&why);
    td_error_set(&why, TD_E_PEER, "played death");
    memset(w.seqs, 0, sizeof(w.seqs));
    td_buf_clear(&w.in);
    td_front_lost(w.front, &why, 0);
    be_born();
}

static void *engine(void *arg)
{
    (void)arg;
    if (w.hello)
        be_born();
    while (!atomic_load(&w.stop)) {
        (void)td_front_round(w.front, &w.in);
        from_front();
        for (int i = 0; i < MAX_SEQS; i++)
            if (w.seqs[i].id)
                step(&w.seqs[i]);
        if (atomic_load(&w.deaths) > 0 && w.told >= atomic_load(&w.die_at)) {
            atomic_fetch_sub(&w.deaths, 1);
            die();
        }
        nap();
    }
    return NULL;
}

static void not_stuck(void *self, const struct td_error *why)
{
    (void)self;
    fail_msg("%s", why->what);
}

static void ready(void *self, const char *times)
{
    (void)self;
    assert_non_null(times);
}

static void nothing(void *self)
{
    (void)self;
}

/* ---- the world --------------------------------------------------------------------- */

static void play(const char *text)
{
    w.script.len = 0;
    w.end = TD_DONE_STOP;
    assert_int_equal(td_tokenizer_encode(w.served.tokenizer, text, strlen(text),
                                         TD_ENCODE_SPECIAL, &w.script, NULL),
                     TD_OK);
}

static void open_world(bool hello)
{
    struct td_error err;
    struct td_front_params p = {.served = &w.served,
                                .version = "0",
                                .build = "test",
                                .max_queue = 100,
                                .queue_timeout = 60,
                                .drain_timeout = 5,
                                .max_body = TD_MIB,
                                .wake = nothing,
                                .ready = ready,
                                .stuck = not_stuck,
                                .drained = nothing};
    td_error_init(&err);
    if (td_served_open(&w.served, "models/lexicon", "lexicon", &err) != TD_OK ||
        td_served_load(&w.served, "models/lexicon", &err) != TD_OK ||
        td_front_new(&p, &w.front, &err) != TD_OK)
        fail_msg("%s", err.what);
    struct td_http_params h = {.host = "127.0.0.1",
                               .threads = 2,
                               .max_connections = MAX_CLIENTS,
                               .max_body = TD_MIB,
                               .max_arriving = MAX_ARRIVING,
                               .idle = 30,
                               .slow = 30,
                               .head = td_front_head,
                               .fn = td_front_handle,
                               .self = w.front};
    if (td_http_start(&h, &w.http, &err) != TD_OK)
        fail_msg("%s", err.what);
    td_front_loaded(w.front);
    td_buf_init(&w.in, TD_MAX_FRAME);
    w.hello = hello;
    atomic_store(&w.stop, false);
    assert_int_equal(pthread_create(&w.engine, NULL, engine, NULL), 0);
}

static void close_world(void)
{
    td_http_stop(w.http);
    atomic_store(&w.stop, true);
    (void)pthread_join(w.engine, NULL);
    td_front_free(w.front);
    td_served_release(&w.served);
    td_ids_release(&w.script);
    td_buf_release(&w.in);
    memset(&w, 0, sizeof(w));
}

/* ---- a client ---------------------------------------------------------------------- */

static int dial(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)td_http_port(w.http)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static void post(int fd, const char *path, const char *body)
{
    struct td_buf b;
    td_buf_init(&b, TD_MIB);
    td_buf_addf(&b, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", path);
    td_buf_addf(&b, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    assert_int_equal(send(fd, b.p, b.len, MSG_NOSIGNAL), b.len);
    td_buf_release(&b);
}

/* Joins the chunks of a body. */
static void unchunk(struct td_buf *b, size_t at)
{
    size_t to = at;
    for (;;) {
        char *end;
        size_t n = strtoul(b->p + at, &end, 16);
        at = (size_t)(end - b->p) + 2;
        if (n == 0)
            break;
        memmove(b->p + to, b->p + at, n);
        to += n;
        at += n + 2;
    }
    td_buf_set_len(b, to);
}

/* Sends a request and returns the status; reply is the body. */
static int ask(const char *path, const char *body, struct td_buf *reply)
{
    int fd = dial(), status = 0;
    ssize_t n;
    td_buf_init(reply, 16 * TD_MIB);
    post(fd, path, body);
    do {
        td_buf_reserve(reply, 65536);
        n = read(fd, reply->p + reply->len, 65536);
        if (n > 0)
            td_buf_set_len(reply, reply->len + (size_t)n);
    } while (n > 0);
    (void)close(fd);
    assert_true(reply->len > 12);
    status = (int)strtol(reply->p + 9, NULL, 10);
    const char *head = strstr(reply->p, "\r\n\r\n");
    assert_non_null(head);
    size_t start = (size_t)(head - reply->p) + 4;
    const char *chunked = strstr(reply->p, "Transfer-Encoding: chunked");
    if (chunked && chunked < head)
        unchunk(reply, start);
    td_buf_drop(reply, start);
    return status;
}

/* What a streamed answer adds up to. */
struct sum {
    struct td_buf content, reasoning, args[4], names[4];
    int n_calls, chunks;
    char finish[32], error[64];
};

static void add_text(struct td_buf *b, const json_t *delta, const char *key)
{
    const json_t *v = json_object_get(delta, key);
    if (!json_is_string(v))
        return;
    assert_true(td_utf8_valid(json_string_value(v), json_string_length(v)));
    td_buf_add(b, json_string_value(v), json_string_length(v));
}

static void add_calls(struct sum *s, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        int index = (int)json_integer_value(json_object_get(c, "index"));
        const json_t *fn = json_object_get(c, "function");
        assert_in_range(index, 0, 3);
        if (index == s->n_calls) { /* a call's first piece: id, type and name */
            assert_string_equal(json_string_value(json_object_get(c, "type")),
                                "function");
            assert_int_equal(
                strncmp(json_string_value(json_object_get(c, "id")), "call_", 5), 0);
            assert_non_null(json_object_get(fn, "name"));
            s->n_calls++;
        } else {
            assert_null(json_object_get(c, "id"));
            assert_null(json_object_get(fn, "name"));
        }
        add_text(&s->names[index], fn, "name");
        add_text(&s->args[index], fn, "arguments");
    }
}

static void add_event(struct sum *s, const char *line, size_t n)
{
    json_t *o = NULL;
    assert_int_equal(td_json_parse(line, n, "event", &o, NULL), TD_OK);
    const json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    const json_t *delta = json_object_get(c, "delta");
    const char *finish = json_string_value(json_object_get(c, "finish_reason"));
    const char *error =
        json_string_value(json_object_get(json_object_get(o, "error"), "code"));
    if (s->chunks++ == 0 && c)
        assert_non_null(json_object_get(delta, "role"));
    add_text(&s->content, delta, "content");
    add_text(&s->reasoning, delta, "reasoning_content");
    add_calls(s, json_object_get(delta, "tool_calls"));
    if (finish)
        (void)snprintf(s->finish, sizeof(s->finish), "%s", finish);
    if (error)
        (void)snprintf(s->error, sizeof(s->error), "%s", error);
    json_decref(o);
}

static void sum_up(struct sum *s, const struct td_buf *reply)
{
    bool done = false;
    memset(s, 0, sizeof(*s));
    td_buf_init(&s->content, TD_MIB);
    td_buf_init(&s->reasoning, TD_MIB);
    for (int i = 0; i < 4; i++) {
        td_buf_init(&s->args[i], TD_MIB);
        td_buf_init(&s->names[i], TD_MIB);
    }
    for (const char *p = reply->p; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        if (strncmp(p, "data: [DONE]", 12) == 0)
            done = true;
        else if (strncmp(p, "data: ", 6) == 0)
            add_event(s, p + 6, strcspn(p, "\n") - 6);
    }
    assert_true(done);
}

static void sum_release(struct sum *s)
{
    td_buf_release(&s->content);
    td_buf_release(&s->reasoning);
    for (int i = 0; i < 4; i++) {
        td_buf_release(&s->args[i]);
        td_buf_release(&s->names[i]);
    }
}

static const char chat[] =
    "{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":"
    "\"x\"}],\"tools\":[{\"type\":\"function\",\"function\":{"
    "\"name\":\"f\",\"parameters\":{\"properties\":{\"city\":{"
    "\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}}}]}";

static int stream(const char *body, struct sum *s)
{
    struct td_buf reply;
    int status = ask("/v1/chat/completions", body, &reply);
    if (status == 200)
        sum_up(s, &reply);
    td_buf_release(&reply);
    return status;
}

static void wait_ready(void)
{
    struct td_buf b;
    for (int i = 0; i < 10000; i++) {
        td_buf_init(&b, TD_MIB);
        td_front_state(w.front, &b);
        bool ready = strstr(b.p, "\"ready\":true") != NULL;
        td_buf_release(&b);
        if (ready)
            return;
        nap();
    }
    fail_msg("never ready");
}

/* ---- tests ------------------------------------------------------------------------- */

#define CALL(city)                                                                     \
    "<tool_call>\n<function=f>\n<parameter=city>\n" city                               \
    "\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"

static const char script[] =
    "I need it: \xF0\x9F\x97\xBC.\n</think>\n\nOne moment \xE6\x9C\xA8."
    "\n\n" CALL("Paris \\\"x\\\" \xF0\x9F\x99\x82") "\n" CALL("Rome");

static void check_calls(const struct sum *s)
{
    assert_string_equal(s->reasoning.p, "I need it: \xF0\x9F\x97\xBC.");
    assert_string_equal(s->content.p, "One moment \xE6\x9C\xA8.");
    assert_int_equal(s->n_calls, 2);
    assert_string_equal(s->names[0].p, "f");
    assert_string_equal(
        s->args[0].p,
        "{\"city\": \"Paris \\\\\\\"x\\\\\\\" \xF0\x9F\x99\x82\", \"n\": 3}");
    assert_string_equal(s->args[1].p, "{\"city\": \"Rome\", \"n\": 3}");
    assert_string_equal(s->finish, "tool_calls");
}

static void tool_calls_stream(void **state)
{
    struct sum s;
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    assert_int_equal(stream(chat, &s), 200);
    check_calls(&s);
    assert_true(s.chunks > 20);
    sum_release(&s);
    close_world();
}

static void tool_calls_whole(void **state)
{
    struct td_buf b;
    char body[sizeof(chat)];
    json_t *o = NULL;
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    (void)snprintf(body, sizeof(body), "{%s", strchr(chat, ',') + 1);
    assert_int_equal(ask("/v1/chat/completions", body, &b), 200);
    assert_int_equal(td_json_parse(b.p, b.len, "reply", &o, NULL), TD_OK);
    const json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    const json_t *calls = json_object_get(json_object_get(c, "message"), "tool_calls");
    assert_int_equal(json_array_size(calls), 2);
    const json_t *fn = json_object_get(json_array_get(calls, 1), "function");
    assert_string_equal(json_string_value(json_object_get(fn, "arguments")),
                        "{\"city\": \"Rome\", \"n\": 3}");
    assert_string_equal(json_string_value(json_object_get(c, "finish_reason")),
                        "tool_calls");
    json_decref(o);
    td_buf_release(&b);
    close_world();
}

static void one_call_only(void **state)
{
    struct sum s;
    char body[sizeof(chat) + 64];
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    (void)snprintf(body, sizeof(body), "{\"parallel_tool_calls\":false,%s", chat + 1);
    assert_int_equal(stream(body, &s), 200);
    assert_int_equal(s.n_calls, 1);
    assert_string_equal(s.finish, "tool_calls");
    assert_int_equal(atomic_load(&w.cancels), 1);
    sum_release(&s);
    close_world();
}

/* The engine dies once behind each token of the answer: nothing is lost or repeated. */
static void death_at_every_token(void **state)
{
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    for (int k = 1; k <= (int)w.script.len; k += CHECK_SMALL ? 9 : 1) {
        struct sum s;
        wait_ready();
        atomic_store(&w.die_at, k);
        w.told = 0;
        atomic_store(&w.deaths, 1);
        assert_int_equal(stream(chat, &s), 200);
        check_calls(&s);
        assert_int_equal(atomic_load(&w.resumed_at), k);
        sum_release(&s);
    }
    close_world();
}

static void two_deaths(void **state)
{
    struct sum s;
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    atomic_store(&w.die_at, 3);
    atomic_store(&w.deaths, 2);
    assert_int_equal(stream(chat, &s), 200);
    assert_string_equal(s.error, "engine_lost");
    sum_release(&s);
    close_world();
}

/* Cut by its length within a call: the arguments are JSON nevertheless. */
static void cut_at_every_token(void **state)
{
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    for (int k = 1; k < (int)w.script.len; k += CHECK_SMALL ? 9 : 1) {
        struct sum s;
        char body[sizeof(chat) + 64];
        (void)snprintf(body, sizeof(body), "{\"max_tokens\":%d,%s", k, chat + 1);
        assert_int_equal(stream(body, &s), 200);
        assert_string_equal(s.finish, "length");
        for (int i = 0; i < s.n_calls; i++) {
            json_t *o = NULL;
            assert_int_equal(
                td_json_parse(s.args[i].p, s.args[i].len, "args", &o, NULL), TD_OK);
            json_decref(o);
        }
        sum_release(&s);
    }
    close_world();
}

static void failures(void **state)
{
    struct sum s;
    (void)state;
    open_world(true);
    play("");
    wait_ready();
    w.end = TD_DONE_FAILED;
    assert_int_equal(stream(chat, &s), 500);
    w.end = TD_DONE_REFUSED;
    assert_int_equal(stream(chat, &s), 400);
    play("a few words");
    w.end = TD_DONE_FAILED; /* the reply has begun: an error within the stream */
    assert_int_equal(stream(chat, &s), 200);
    assert_string_equal(s.finish, "");
    sum_release(&s);
    close_world();
}

static void not_ready(void **state)
{
    struct td_buf b;
    (void)state;
    open_world(false);
    assert_int_equal(ask("/v1/chat/completions", chat, &b), 503);
    assert_non_null(strstr(b.p, "\"startup\":{\"state\":\"starting\""));
    td_buf_release(&b);
    close_world();
}

static enum td_status greet(const char *level, struct td_error *err)
{
    struct td_buf b;
    size_t used;
    struct td_wire_hello h = {
        .version = TD_WIRE_VERSION, .max_len = MAX_LEN, .ranks = 1};
    (void)snprintf(h.level, sizeof(h.level), "%s", level);
    td_buf_init(&b, TD_MIB);
    td_wire_put_hello(&b, &h);
    td_error_init(err);
    enum td_status s = td_front_received(w.front, b.p, b.len, &used, err);
    td_buf_release(&b);
    return s;
}

/* What began on a GPU does not go on without one unasked. */
static void gpu_gone(void **state)
{
    struct td_error err;
    (void)state;
    open_world(false);
    assert_int_equal(greet("avx2", &err), TD_OK);
    assert_int_equal(greet("cuda:0 a GPU", &err), TD_OK);
    assert_int_equal(greet("cuda:0 a GPU", &err), TD_OK);
    assert_int_equal(greet("avx2", &err), TD_E_GPU_LOST);
    assert_non_null(strstr(err.why, "cuda:0 a GPU"));
    close_world();
}

/* Many at a time, clients that leave among them; the world must close cleanly. */
static void *client(void *arg)
{
    int fd = dial();
    post(fd, "/v1/chat/completions", chat);
    if (*(int *)arg % 2) {
        char piece[4096];
        while (read(fd, piece, sizeof(piece)) > 0)
            ;
    }
    (void)close(fd);
    return NULL;
}

static void many_clients(void **state)
{
    pthread_t t[24];
    int number[24];
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    for (int i = 0; i < 24; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, client, &number[i]), 0);
    }
    for (int i = 0; i < 24; i++)
        (void)pthread_join(t[i], NULL);
    close_world();
}

/* Connections that wait when the server stops. */
static void stop_with_open_streams(void **state)
{
    int fd[8];
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    for (int i = 0; i < 8; i++) {
        fd[i] = dial();
        post(fd[i], i % 2 ? "/v1/chat/completions" : "/v1/none", chat);
    }
    nap();
    close_world();
    for (int i = 0; i < 8; i++)
        (void)close(fd[i]);
}

/* Who comes when all places are taken is told so, and is served when one is free. */
static void too_many_clients(void **state)
{
    static const char request[] = "{\"prompt\":\"a\",\"max_tokens\":1}";
    struct td_buf reply;
    int fds[MAX_CLIENTS], status = 0;
    (void)state;
    open_world(true);
    play(script);
    wait_ready();
    for (int i = 0; i < MAX_CLIENTS; i++)
        fds[i] = dial();
    for (int i = 0; i < 500 && status != 503; i++) { /* until all are accepted */
        status = ask("/v1/completions", request, &reply);
        if (status == 503)
            assert_non_null(strstr(reply.p, "too_many_connections"));
        td_buf_release(&reply);
    }
    assert_int_equal(status, 503);
    for (int i = 0; i < MAX_CLIENTS; i++)
        (void)close(fds[i]);
    for (int i = 0; i < 500 && status != 200; i++) {
        status = ask("/v1/completions", request, &reply);
        td_buf_release(&reply);
        nap();
    }
    assert_int_equal(status, 200);
    close_world();
}

/* A body that will never be whole, because its sender closed its side, is not waited for.
 * Its last bytes and the end come in one packet. */
static void half_a_body(void **state)
{
    static const char half[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                               "Content-Length: 100\r\n\r\n{\"prompt\"";
    char answer[16];
    int on = 1;
    (void)state;
    open_world(true);
    int fd = dial();
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)), 0);
    assert_int_equal(send(fd, half, strlen(half), MSG_NOSIGNAL), strlen(half));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1); /* of 60 s that a request may take */
    assert_true(recv(fd, answer, sizeof(answer), 0) <= 0);
    (void)close(fd);
    close_world();
}

/* Nothing is under way, so nothing is waited for. */
static void an_idle_server_stops_at_once(void **state)
{
    double best = 1;
    (void)state;
    for (int i = 0; i < 3; i++) {
        open_world(true);
        for (int n = 0; n < 100; n++) /* until all of its threads wait */
            nap();
        double start = td_clock_now();
        td_http_stop(w.http);
        best = TD_MIN(best, td_clock_now() - start);
        w.http = NULL;
        close_world();
    }
    assert_true(best < 0.5);
}

/* Bodies that arrive slowly leave room for others' up to a sum: who finds none is told so,
 * and is served when there is. */
static void too_many_bytes(void **state)
{
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                               "Content-Length: 1000000\r\n\r\n";
    static const char request[] = "{\"prompt\":\"a\",\"max_tokens\":1}";
    static char body[600001]; /* two leave no room for a third */
    struct td_buf reply;
    int fds[2], status = 0;
    (void)state;
    open_world(true);
    play("");
    wait_ready();
    memset(body, ' ', sizeof(body) - 1);
    memcpy(body, request, strlen(request));
    for (int i = 0; i < 2; i++) {
        fds[i] = dial();
        assert_true(send(fds[i], head, strlen(head), MSG_NOSIGNAL) > 0);
        for (ssize_t at = 0, n; body[at]; at += n) {
            n = send(fds[i], body + at, strlen(body + at), MSG_NOSIGNAL);
            assert_true(n > 0);
        }
    }
    for (int i = 0; i < 500 && status != 503; i++) { /* until both were read */
        status = ask("/v1/completions", body, &reply);
        if (status == 503)
            assert_non_null(strstr(reply.p, "too_many_bytes"));
        td_buf_release(&reply);
        nap();
    }
    assert_int_equal(status, 503);
    for (int i = 0; i < 2; i++)
        (void)close(fds[i]);
    for (int i = 0; i < 500 && status != 200; i++) {
        status = ask("/v1/completions", body, &reply);
        td_buf_release(&reply);
        nap();
    }
    assert_int_equal(status, 200);
    close_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tool_calls_stream),
        cmocka_unit_test(tool_calls_whole),
        cmocka_unit_test(one_call_only),
        cmocka_unit_test(death_at_every_token),
        cmocka_unit_test(two_deaths),
        cmocka_unit_test(cut_at_every_token),
        cmocka_unit_test(failures),
        cmocka_unit_test(not_ready),
        cmocka_unit_test(gpu_gone),
        cmocka_unit_test(many_clients),
        cmocka_unit_test(too_many_clients),
        cmocka_unit_test(stop_with_open_streams),
        cmocka_unit_test(too_many_bytes),
        cmocka_unit_test(half_a_body),
        cmocka_unit_test(an_idle_server_stops_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. See log.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 16384 };

static struct {
    pthread_mutex_t lock;
    int file, fd, rank;
    int lost; /* errno that ended the file */
    char path[TD_MAX_PATH];
    td_event_fn listener;
    void *self;
} sinks = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1, .fd = -1, .rank = -1};

void td_log_set_rank(int rank)
{
    sinks.rank = rank;
}

enum td_status td_log_open(const char *path, struct td_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return td_error_set(err, TD_E_IO, "cannot write the event log %s: %s", path,
                            strerror(errno));
    td_log_close();
    sinks.file = fd;
    sinks.lost = 0;
    td_text_copy(sinks.path, sizeof(sinks.path), path);
    return TD_OK;
}

const char *td_log_path(void)
{
    return sinks.path;
}

void td_log_close(void)
{
    if (sinks.file >= 0)
        (void)close(sinks.file);
    sinks.file = -1;
}

int td_log_lost(void)
{
    return sinks.lost;
}

void td_log_set_fd(int fd)
{
    sinks.fd = fd;
}

void td_log_set_listener(td_event_fn fn, void *self)
{
    sinks.listener = fn;
    sinks.self = self;
}

static void add_field(struct td_buf *b, const char *key, const char *value)
{
    td_buf_addf(b, ",\"%s\":", key);
    td_json_add_string(b, value, strlen(value));
}

static void add_nums(struct td_buf *b, const struct td_num *nums)
{
    td_buf_adds(b, ",\"n\":{");
    for (const struct td_num *n = nums; n->key; n++) {
        td_buf_adds(b, n == nums ? "" : ",");
        td_json_add_string(b, n->key, strlen(n->key));
        /* JSON has no infinity */
        td_buf_addf(b, ":%.15g", isfinite(n->value) ? n->value : 0.0);
    }
    td_buf_addc(b, '}');
}

static void format(struct td_buf *b, const struct td_event *e)
{
    char host[TD_ERROR_HOST_MAX] = "";
    bool others = e->error && e->error->rank >= 0; /* failure: it keeps its origin */
    (void)gethostname(host, sizeof(host) - 1);
    if (others && e->error->host[0])
        td_text_copy(host, sizeof(host), e->error->host);
    td_buf_addf(b, "{\"t\":%.6f", e->t);
    add_field(b, "host", host);
    td_buf_addf(b, ",\"rank\":%d,\"pid\":%d", others ? e->error->rank : sinks.rank,
                (int)getpid());
    add_field(b, "phase", td_phase_name(e->phase));
    add_field(b, "event", e->name);
    if (e->error) {
        add_field(b, "code", td_status_info(e->error->code)->slug);
        add_field(b, "what", e->error->what);
        add_field(b, "why", e->error->why);
        add_field(b, "fix", e->error->fix);
    }
    if (e->nums)
        add_nums(b, e->nums);
    td_buf_adds(b, "}\n");
}

static ssize_t put_line(int fd, const struct td_buf *b)
{
    ssize_t n;
    do
        n = write(fd, b->p, b->len);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Behind a line that was cut by a full disk the next one would not be read either. */
static void put_in_file(const struct td_buf *b)
{
    if (sinks.file < 0)
        return;
    ssize_t n = put_line(sinks.file, b);
    if (n == (ssize_t)b->len)
        return;
    sinks.lost = n < 0 ? errno : ENOSPC;
    td_log_close();
}

static void put_in_fd(const struct td_buf *b)
{
    if (sinks.fd >= 0 && put_line(sinks.fd, b) < 0 && errno != EAGAIN)
        sinks.fd = -1;
}

static void emit(const struct td_event *e)
{
    (void)pthread_mutex_lock(&sinks.lock);
    if (sinks.file >= 0 || sinks.fd >= 0) {
        struct td_buf b;
        td_buf_init(&b, LINE_MAX_BYTES);
        format(&b, e);
        if (b.status == TD_OK) {
            put_in_file(&b);
            put_in_fd(&b);
        }
        td_buf_release(&b);
    }
    if (sinks.listener)
        sinks.listener(sinks.self, e);
    (void)pthread_mutex_unlock(&sinks.lock);
}

void td_log_line(const char *line, size_t n)
{
    struct td_buf b;
    td_buf_init(&b, LINE_MAX_BYTES);
    td_buf_add(&b, line, n);
    td_buf_addc(&b, '\n');
    (void)pthread_mutex_lock(&sinks.lock);
    if (b.status == TD_OK)
        put_in_file(&b);
    (void)pthread_mutex_unlock(&sinks.lock);
    td_buf_release(&b);
}

void td_event(const char *name, const struct td_num *nums)
{
    emit(&(struct td_event){
        .t = td_clock_wall(), .phase = td_phase_now(), .name = name, .nums = nums});
}

void td_event_error(const struct td_error *err)
{
    emit(&(struct td_event){
        .t = td_clock_wall(), .phase = err->phase, .name = "error", .error = err});
}

void td_event_phase(enum td_phase phase)
{
    td_phase_set(phase);
    td_event("phase", NULL);
}

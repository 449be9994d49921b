/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting agents and asking them. See agents.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "launch/agents.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "fabric/resolve.h"
#include "launch/agent.h"
#include "launch/child.h"
#include "launch/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PIECE = 65536,
    SCRIPT_BYTES = 65536,
    MOST_WORDS = 16 * 1024, /* kept of standard error */
    CONNECT_SECONDS = 4,
    COPY_SECONDS = 120,
    EXEC_FAILED = 127
};

struct td_agent *td_agents_new(int n)
{
    struct td_agent *a = td_calloc((size_t)n, sizeof(*a));
    for (int i = 0; a && i < n; i++) {
        td_error_init(&a[i].e);
        a[i].in = a[i].out = a[i].err = -1;
        td_buf_init(&a[i].text, TD_MAX_AGENT_LINE);
        td_buf_init(&a[i].said, MOST_WORDS);
        td_buf_init(&a[i].notes, MOST_WORDS);
    }
    return a;
}

/* ---- processes ---------------------------------------------------------------------- */

static void shut(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* What we write goes through a socket: an agent that is gone is no signal then. */
static bool make_pipe(int fd[2], bool we_write)
{
    if ((we_write ? socketpair(AF_UNIX, SOCK_STREAM, 0, fd) : pipe(fd)) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        (void)fcntl(fd[i], F_SETFD, FD_CLOEXEC);
    return true;
}

/* Runs argv with three descriptors; 0 when that is not possible. The caller's copies stay
 * open. */
static pid_t spawn(char *const *argv, int in, int out, int err)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid > 0 ? pid : 0;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setpgid(0, 0); /* ^C is for the front: it ends its agents */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && dup2(in, STDIN_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
        (void)execvp(argv[0], argv);
    _exit(EXEC_FAILED);
}

static void start_process(struct td_agent *a, char *const *argv)
{
    int i[2] = {-1, -1}, o[2] = {-1, -1}, e[2] = {-1, -1};
    if (make_pipe(i, true) && make_pipe(o, false) && make_pipe(e, false))
        a->pid = spawn(argv, i[0], o[1], e[1]);
    if (!a->pid)
        td_error_set(&a->e, TD_E_IO, "cannot start %s: %s", argv[0], strerror(errno));
    shut(&i[0]);
    shut(&o[1]);
    shut(&e[1]);
    a->in = i[1];
    a->out = o[0];
    a->err = e[0];
    for (int k = 0; k < 3; k++) {
        int fd = k == 0 ? a->in : k == 1 ? a->out : a->err;
        if (fd >= 0)
            (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    }
}

/* Ends the process and returns its status as from waitpid(), -1 if unknown. It has
 * `seconds` to end by itself. */
static int end_process(struct td_agent *a, double seconds)
{
    int status = -1;
    double until = td_clock_now() + seconds;
    shut(&a->in);
    while (a->pid) {
        pid_t got = waitpid(a->pid, &status, WNOHANG);
        if (got == a->pid || (got < 0 && errno != EINTR)) {
            a->pid = 0;
        } else if (td_clock_now() > until) {
            (void)kill(a->pid, SIGKILL);
            (void)waitpid(a->pid, &status, 0);
            a->pid = 0;
            status = -1;
        } else {
            const struct timespec nap = {.tv_nsec = 2000000};
            (void)nanosleep(&nap, NULL);
        }
    }
    shut(&a->out);
    shut(&a->err);
    a->up = false;
    return status;
}

void td_agents_free(struct td_agent *a, int n)
{
    for (int i = 0; a && i < n; i++)
        shut(&a[i].in); /* all of them see it at the same time */
    for (int i = 0; a && i < n; i++) {
        (void)end_process(&a[i], 0.5);
        td_buf_release(&a[i].text);
        td_buf_release(&a[i].said);
        td_buf_release(&a[i].notes);
    }
    td_free(a);
}

/* ---- reading ------------------------------------------------------------------------ */

/* Reads what is there; false at the end. */
static bool read_output(struct td_agent *a)
{
    if (td_buf_reserve(&a->text, PIECE) != TD_OK)
        return false;
    ssize_t n = read(a->out, a->text.p + a->text.len, PIECE);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    td_buf_set_len(&a->text, a->text.len + (size_t)n);
    return n > 0;
}

static void read_words(struct td_agent *a)
{
    char piece[4096];
    ssize_t n = read(a->err, piece, sizeof(piece));
    if (n > 0)
        (void)td_buf_add(&a->said, piece, TD_MIN((size_t)n, a->said.max - a->said.len));
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        shut(&a->err);
}

/* Takes a line off the output; false when there is no whole one. The line is borrowed
 * until the next read. */
static bool next_line(struct td_agent *a, struct td_buf *line)
{
    const char *end = a->text.len ? memchr(a->text.p, '\n', a->text.len) : NULL;
    if (!end)
        return false;
    size_t n = (size_t)(end - a->text.p);
    td_buf_clear(line);
    td_buf_add(line, a->text.p, n);
    td_buf_drop(&a->text, n + 1);
    return line->status == TD_OK;
}

/* It was there, and then it was not. */
static void explain_loss(struct td_agent *a, int status)
{
    const char *whose = a->local ? "it" : "the ssh to it";
    td_error_set(&a->e, TD_E_PEER, "the agent on %s ended", a->name);
    if (status != -1 && WIFSIGNALED(status))
        td_error_why(&a->e, "%s was killed by signal %d (%s)", whose, WTERMSIG(status),
                     td_signal_name(WTERMSIG(status)));
    else if (a->said.len)
        td_error_why(&a->e, "%.500s", a->said.p);
    else
        td_error_why(&a->e, "%s",
                     a->local ? "it said nothing"
                              : "it was killed there, or the connection of ssh broke");
}

/* The process is gone: why. */
static void explain_end(struct td_agent *a)
{
    char list[1][TD_FACT_ADDR] = {""};
    bool greeted = a->up;
    for (int i = 0; i < 4 && a->err >= 0; i++)
        read_words(a);
    int status = end_process(a, 1);
    if (a->e.code != TD_OK)
        return;
    bool ssh =
        !a->local && !greeted &&
        (status == -1 || (WIFEXITED(status) && (WEXITSTATUS(status) == 255 ||
                                                WEXITSTATUS(status) == EXEC_FAILED)));
    if (ssh) {
        (void)td_resolve(a->name, 1, list, 1, NULL, 0);
        td_ssh_cause(a->name, list[0], status, a->said.p, &a->e);
        return;
    }
    explain_loss(a, status);
}

/* ---- waiting for all ---------------------------------------------------------------- */

typedef bool (*line_fn)(struct td_agent *a, int index, struct td_buf *line, void *arg);

/* Reads until no agent is waited for, or time is up. `take` gets each line and returns
 * false when it waits for no more of that agent. Requests are written meanwhile. */
struct waiting {
    struct td_buf *out; /* n, or NULL */
    bool *open;         /* n: waited for */
    line_fn take;
    void (*end)(struct td_agent *a); /* its output ended while it was waited for */
    void *arg;
};

static void write_request(struct td_agent *a, struct td_buf *b)
{
    ssize_t n = send(a->in, b->p, b->len, MSG_NOSIGNAL);
    if (n > 0)
        td_buf_drop(b, (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        td_buf_clear(b); /* its end shows on the other pipes */
}

/* The descriptors of one agent, in this order. */
enum end { IN, OUT, ERR, ENDS };

static nfds_t poll_set(struct td_agent *a, int n, const struct waiting *w,
                       struct pollfd (*p)[ENDS])
{
    nfds_t open = 0;
    for (int i = 0; i < n; i++) {
        bool wanted = w->open[i], full = wanted && w->out && w->out[i].len;
        p[i][IN] = (struct pollfd){.fd = full ? a[i].in : -1, .events = POLLOUT};
        p[i][OUT] = (struct pollfd){.fd = wanted ? a[i].out : -1, .events = POLLIN};
        p[i][ERR] = (struct pollfd){.fd = wanted ? a[i].err : -1, .events = POLLIN};
        open += wanted;
    }
    return open;
}

static void look_at(struct td_agent *a, int i, struct waiting *w,
                    const struct pollfd *p, struct td_buf *line)
{
    if (p[IN].revents)
        write_request(a, &w->out[i]);
    if (p[ERR].revents)
        read_words(a);
    if (!p[OUT].revents)
        return;
    bool more = read_output(a);
    while (w->open[i] && next_line(a, line))
        w->open[i] = w->take(a, i, line, w->arg);
    if (!more && w->open[i]) {
        w->end(a);
        w->open[i] = false;
    }
}

static void wait_for_all(struct td_agent *a, int n, struct waiting *w, double seconds)
{
    double end = td_clock_now() + seconds;
    struct pollfd(*p)[ENDS] = td_calloc((size_t)n, sizeof(*p));
    nfds_t fds = ENDS * (nfds_t)n;
    struct td_buf line;
    td_buf_init(&line, TD_MAX_AGENT_LINE);
    while (p && poll_set(a, n, w, p) > 0) {
        double ms = 1e3 * (end - td_clock_now());
        if (ms <= 0)
            break;
        if (poll(p[0], fds, (int)ms + 1) < 0 && errno != EINTR)
            break;
        for (int i = 0; i < n; i++)
            if (w->open[i])
                look_at(&a[i], i, w, p[i], &line);
    }
    td_buf_release(&line);
    td_free(p);
}

/* ---- starting ----------------------------------------------------------------------- */

static bool starts(const char *line, const char *word, const char **rest)
{
    size_t n = strlen(word);
    *rest = line + n;
    return strncmp(line, word, n) == 0;
}

static void check_greeting(struct td_agent *a, const struct td_buf *line,
                           const struct td_agent_start *o)
{
    json_t *hello = NULL;
    const char *build;
    int64_t protocol;
    enum td_status s = td_json_parse(line->p, line->len, a->name, &hello, &a->e);
    if (s == TD_OK)
        s = td_json_int(hello, "tandem", a->name, 0, INT32_MAX, 0, &protocol, &a->e);
    if (s == TD_OK)
        s = td_json_str(hello, "build", a->name, "", &build, &a->e);
    if (s == TD_OK && (protocol != TD_AGENT_PROTOCOL || strcmp(build, o->build) != 0)) {
        td_error_set(&a->e, TD_E_PROGRAM, "%s runs another build of tandem", a->name);
        td_error_why(&a->e, "build %.40s there, %s here", build, o->build);
    }
    a->up = a->e.code == TD_OK;
    json_decref(hello);
}

/* Lines until the greeting: our script's, or what a shell prints at a login. */
static bool take_greeting(struct td_agent *a, int index, struct td_buf *line, void *arg)
{
    const char *rest;
    (void)index;
    if (starts(line->p, "{\"tandem\":", &rest)) {
        check_greeting(a, line, arg);
        return false;
    }
    if (starts(line->p, "tandem-note ", &rest)) {
        td_buf_addf(&a->notes, "%s%.300s", a->notes.len ? "; " : "", rest);
    } else if (starts(line->p, "tandem-none ", &rest)) {
        td_text_copy(a->arch, sizeof(a->arch), rest);
        a->copy = true;
        return false;
    }
    return true;
}

static void start_one(struct td_agent *a, const char *program,
                      const struct td_agent_start *o, struct td_buf *script)
{
    struct td_argv argv = {0};
    td_buf_clear(&a->text);
    td_buf_clear(&a->said);
    td_buf_clear(script);
    if (a->local) {
        td_argv_pair(&argv, program, "agent");
    } else {
        td_ssh_words(&argv, o->ssh, a->name, CONNECT_SECONDS);
        td_argv_pair(&argv, "exec", "sh");
        (void)td_ssh_script(script, program, o->build);
    }
    if (td_argv_done(&argv, &a->e) == TD_OK)
        start_process(a, argv.v);
    td_argv_release(&argv);
}

/* Starts those that are neither up nor failed, and waits for their greeting. */
static void start_all(struct td_agent *a, int n, const char *program,
                      const struct td_agent_start *o)
{
    struct td_buf *scripts = td_calloc((size_t)n, sizeof(*scripts));
    bool *open = td_calloc((size_t)n, sizeof(*open));
    for (int i = 0; i < n; i++) {
        if (!scripts || !open) {
            td_error_set(&a[i].e, TD_E_NOMEM, "no memory to start agents");
            continue;
        }
        td_buf_init(&scripts[i], SCRIPT_BYTES);
        if (a[i].up || a[i].skip || a[i].e.code != TD_OK)
            continue;
        start_one(&a[i], program, o, &scripts[i]);
        open[i] = a[i].e.code == TD_OK;
    }
    if (scripts && open) {
        struct td_agent_start with = *o;
        struct waiting w = {scripts, open, take_greeting, explain_end, &with};
        wait_for_all(a, n, &w, o->seconds);
        for (int i = 0; i < n; i++) {
            td_buf_release(&scripts[i]);
            if (!open[i])
                continue;
            (void)end_process(&a[i], 0);
            td_error_set(&a[i].e, TD_E_TIMEOUT,
                         "%s did not start its agent within %.1f s", a[i].name,
                         o->seconds);
            td_error_why(&a[i].e,
                         "ssh is connected or still tries; nothing was said%s%.200s",
                         a[i].said.len ? " but: " : "", a[i].said.p);
        }
    }
    td_free(scripts);
    td_free(open);
}

/* ---- copying ------------------------------------------------------------------------ */

static bool is_bundle(const char *folder, const char *build)
{
    char path[TD_MAX_PATH];
    struct td_buf id;
    bool same = false;
    td_buf_init(&id, TD_FACT_NAME);
    if (td_path_join(path, sizeof(path), folder, "build-id", NULL) == TD_OK &&
        td_file_exists(path) && td_file_read(path, &id, NULL) == TD_OK)
        same = strlen(build) == strcspn(id.p, "\n") &&
               strncmp(id.p, build, strlen(build)) == 0;
    td_buf_release(&id);
    return same;
}

bool td_bundle_find(const char *program, const char *version, const char *build,
                    char *out, size_t size)
{
    char dir[TD_MAX_PATH], path[TD_MAX_PATH], dist[TD_FACT_TEXT];
    const char *places[] = {"..", dist}; /* FOLDER/bin/tandem, TREE/build/tandem */
    struct utsname u;
    (void)snprintf(dist, sizeof(dist), "../dist/tandem-%s-%s", version,
                   uname(&u) == 0 ? u.machine : "");
    td_text_copy(dir, sizeof(dir), program);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return false;
    *slash = 0;
    for (size_t i = 0; i < TD_COUNT(places); i++)
        if (td_path_join(path, sizeof(path), dir, places[i], NULL) == TD_OK &&
            is_bundle(path, build)) {
            td_text_copy(out, size, path);
            return true;
        }
    return false;
}

static void refuse_copy(struct td_agent *a, const char *build, const char *arch,
                        bool bundle)
{
    td_error_set(&a->e, TD_E_PROGRAM, "this build of tandem (%s) does not run on %s",
                 build, a->name);
    if (bundle && strcmp(arch, a->arch) != 0) {
        td_error_why(&a->e, "it is a machine of another kind: %.30s there, %s here",
                     a->arch, arch);
        td_error_fix(&a->e, "build tandem there, from the same revision");
        return;
    }
    td_error_why(&a->e, "%.600s", a->notes.p);
    td_error_fix(&a->e, bundle
                            ? "look at what is said about the copied program"
                            : "install it there under the same path, or make a folder "
                              "that can be copied: make bundle");
}

/* A shell joins tar and ssh: the bytes do not come through this process, and its status
 * is that of ssh. */
static void start_copy(struct td_agent *a, const char *bundle,
                       const struct td_agent_start *o)
{
    struct td_argv argv = {0};
    struct td_buf command;
    td_buf_init(&command, TD_MAX_PATH);
    td_buf_clear(&a->text);
    td_buf_clear(&a->said);
    td_argv_pair(&argv, "sh", "-c");
    td_argv_pair(&argv, "d=$1; shift; tar -C \"$d\" -cf - . | \"$@\"", "sh");
    td_argv_add(&argv, bundle);
    td_ssh_words(&argv, o->ssh, a->name, CONNECT_SECONDS);
    (void)td_ssh_unpack(&command, o->build);
    td_argv_add(&argv, command.p);
    if (td_argv_done(&argv, &a->e) == TD_OK)
        start_process(a, argv.v);
    shut(&a->in);
    td_buf_release(&command);
    td_argv_release(&argv);
}

static bool take_nothing(struct td_agent *a, int index, struct td_buf *line, void *arg)
{
    (void)a;
    (void)index;
    (void)line;
    (void)arg;
    return true;
}

static void end_copy(struct td_agent *a)
{
    for (int i = 0; i < 4 && a->err >= 0; i++)
        read_words(a);
    if (end_process(a, 2) == 0)
        return;
    td_error_set(&a->e, TD_E_PROGRAM, "tandem cannot be copied to %s", a->name);
    td_error_why(&a->e, "%.600s",
                 a->said.len ? a->said.p : "it was given up after long");
    td_error_fix(&a->e, "free space in ~/.cache/tandem there, or install it by hand");
}

static void copy_all(struct td_agent *a, int n, const char *program,
                     const struct td_agent_start *o)
{
    char bundle[TD_MAX_PATH];
    struct utsname u;
    bool here = td_bundle_find(program, o->version, o->build, bundle, sizeof(bundle));
    bool *open = td_calloc((size_t)n, sizeof(*open));
    const char *arch = uname(&u) == 0 ? u.machine : "";
    for (int i = 0; open && i < n; i++) {
        if (!a[i].copy || a[i].e.code != TD_OK)
            continue;
        (void)end_process(&a[i], 1);
        if (here && strcmp(arch, a[i].arch) == 0)
            start_copy(&a[i], bundle, o);
        else
            refuse_copy(&a[i], o->build, arch, here);
        open[i] = a[i].e.code == TD_OK;
    }
    if (open) {
        struct waiting w = {NULL, open, take_nothing, end_copy, NULL};
        wait_for_all(a, n, &w, COPY_SECONDS);
        for (int i = 0; i < n; i++)
            if (open[i])
                end_copy(&a[i]);
    }
    td_free(open);
}

/* For those who only want to look. */
static void refuse_all(struct td_agent *a, int n, const char *build)
{
    for (int i = 0; i < n; i++) {
        if (!a[i].copy || a[i].e.code != TD_OK)
            continue;
        (void)end_process(&a[i], 0);
        td_error_set(&a[i].e, TD_E_PROGRAM,
                     "this build of tandem (%s) is not on %s yet", build, a[i].name);
        td_error_why(&a[i].e, "%.600s", a[i].notes.p);
        td_error_fix(&a[i].e, "tandem check copies the folder of make bundle there");
    }
}

void td_agents_start(struct td_agent *a, int n, const struct td_agent_start *o)
{
    char program[TD_MAX_PATH];
    bool copy = false;
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[len > 0 ? len : 0] = 0;
    start_all(a, n, program, o);
    for (int i = 0; i < n; i++)
        copy = copy || (a[i].copy && a[i].e.code == TD_OK);
    if (!copy)
        return;
    if (o->no_copy) {
        refuse_all(a, n, o->build);
        return;
    }
    copy_all(a, n, program, o);
    for (int i = 0; i < n; i++)
        a[i].copy = false;
    start_all(a, n, program, o);
    for (int i = 0; i < n; i++)
        if (a[i].copy && a[i].e.code == TD_OK) {
            (void)end_process(&a[i], 1);
            refuse_copy(&a[i], o->build, a[i].arch, true);
        }
}

/* ---- asking ------------------------------------------------------------------------- */

static bool take_answer(struct td_agent *a, int index, struct td_buf *line, void *arg)
{
    json_t **answers = arg;
    a->answered = td_clock_wall();
    if (td_json_parse(line->p, line->len, a->name, &answers[index], &a->e) != TD_OK) {
        (void)end_process(a, 0);
        a->e.code = TD_E_PEER;
    }
    return false;
}

void td_agents_ask(struct td_agent *a, int n, struct td_buf *requests, double seconds,
                   json_t **answers)
{
    bool *open = td_calloc((size_t)n, sizeof(*open));
    for (int i = 0; i < n; i++) {
        answers[i] = NULL;
        if (!open || !a[i].up || !requests[i].len)
            continue;
        td_buf_addc(&requests[i], '\n');
        open[i] = requests[i].status == TD_OK;
        if (!open[i])
            td_error_set(&a[i].e, requests[i].status, "a request to %s is too long",
                         a[i].name);
    }
    if (open) {
        struct waiting w = {requests, open, take_answer, explain_end, answers};
        wait_for_all(a, n, &w, seconds);
    }
    for (int i = 0; open && i < n; i++) {
        if (!open[i])
            continue;
        (void)end_process(&a[i], 0);
        td_error_set(&a[i].e, TD_E_TIMEOUT, "%s did not answer within %.1f s",
                     a[i].name, seconds);
        td_error_why(&a[i].e, "its agent stopped, or the connection of ssh broke");
    }
    td_free(open);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process. See child.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "launch/child.h"

#include "base/limits.h"
#include "base/sysmem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXEC_FAILED = 127 };

/* ---- spawning ---------------------------------------------------------------------- */

static bool make_pipe(int fd[2])
{
    if (pipe(fd) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        (void)fcntl(fd[i], F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd[0], F_SETFL, O_NONBLOCK);
    return true;
}

static void close_pair(const int fd[2])
{
    if (fd[0] >= 0)
        (void)close(fd[0]);
    if (fd[1] >= 0)
        (void)close(fd[1]);
}

/* Between fork and exec only calls that are safe there. */
static void become(char *const *argv, int farewell, const int fd[3], pid_t parent)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid(); /* a terminal's ^C and job control are not for it */
    (void)prctl(PR_SET_PDEATHSIG, farewell);
    if (getppid() == parent && dup2(fd[0], STDIN_FILENO) >= 0 &&
        dup2(fd[1], STDOUT_FILENO) >= 0 && dup2(fd[2], STDERR_FILENO) >= 0)
        (void)execv(argv[0], argv);
    _exit(EXEC_FAILED);
}

enum td_status td_child_spawn(char *const *argv, int farewell, struct td_child *out,
                              struct td_error *err)
{
    int o[2] = {-1, -1}, e[2] = {-1, -1}, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_t pid = -1, self = getpid();
    *out = (struct td_child){.out_fd = -1, .err_fd = -1};
    td_oom_counts_read("", &out->before);
    if (null >= 0 && make_pipe(o) && make_pipe(e))
        pid = fork();
    if (pid == 0)
        become(argv, farewell, (int[3]){null, o[1], e[1]}, self);
    int why = errno;
    if (null >= 0)
        (void)close(null);
    if (pid < 0) {
        close_pair(o);
        close_pair(e);
        bool files = why == EMFILE || why == ENFILE;
        td_error_set(err, TD_E_IO, "cannot start %s: %s", argv[0], strerror(why));
        td_error_why(err, "the system allows no more %s",
                     files ? "open files" : "processes, or has no memory for one");
        td_error_fix(err, "raise the limit (ulimit %s)", files ? "-n" : "-u, -v");
        return TD_E_IO;
    }
    (void)close(o[1]);
    (void)close(e[1]);
    *out = (struct td_child){
        .pid = pid, .out_fd = o[0], .err_fd = e[0], .before = out->before};
    return TD_OK;
}

bool td_child_ended(struct td_child *c, int *status)
{
    pid_t got;
    if (!c->pid)
        return false;
    do
        got = waitpid(c->pid, status, WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return false;
    if (got < 0)
        *status = 0;
    c->pid = 0;
    return true;
}

void td_child_kill(const struct td_child *c, int signal)
{
    if (c->pid)
        (void)kill(c->pid, signal);
}

void td_child_release(struct td_child *c)
{
    if (c->out_fd >= 0)
        (void)close(c->out_fd);
    if (c->err_fd >= 0)
        (void)close(c->err_fd);
    c->out_fd = c->err_fd = -1;
}

/* ---- the cause --------------------------------------------------------------------- */

const char *td_signal_name(int sig)
{
    static const struct {
        int sig;
        const char *name;
    } names[] = {{SIGKILL, "SIGKILL"},
                 {SIGSEGV, "SIGSEGV, a bad address"},
                 {SIGBUS, "SIGBUS, memory or a mapped file went away"},
                 {SIGABRT, "SIGABRT"},
                 {SIGTERM, "SIGTERM"},
                 {SIGILL, "SIGILL, an instruction this processor lacks"},
                 {SIGFPE, "SIGFPE"},
                 {SIGINT, "SIGINT"},
                 {SIGHUP, "SIGHUP"},
                 {SIGXCPU, "SIGXCPU, the CPU time limit"}};
    for (size_t i = 0; i < TD_COUNT(names); i++)
        if (names[i].sig == sig)
            return names[i].name;
    return "a signal";
}

/* True if a counter rose; then err says so. */
static bool killed_for_memory(const struct td_oom_counts *before,
                              const struct td_oom_counts *after, struct td_error *err)
{
    struct td_sysmem m;
    char bound[TD_ERROR_WHY_MAX] = "";
    bool group = before->group >= 0 && after->group > before->group;
    bool host = before->host >= 0 && after->host > before->host;
    if (!group && !host)
        return false;
    td_error_set(err, TD_E_NOMEM, "the engine was killed by the kernel: out of memory");
    if (td_sysmem_read("", &m, NULL) == TD_OK)
        (void)td_sysmem_available(&m, bound, sizeof(bound));
    td_error_why(err, "the kernel's counter of such kills (%s) rose%s%s",
                 group ? "oom_kill of the control group" : "oom_kill of the host",
                 *bound ? "; now " : "", bound);
    td_error_fix(err, "free memory on this host, or give tandem less with --memory");
    return true;
}

void td_child_cause(int status, const struct td_oom_counts *before,
                    const struct td_oom_counts *after, const struct td_error *said,
                    const char *words, struct td_error *err)
{
    bool spoke = said->code != TD_OK;
    if (WIFSIGNALED(status)) {
        int sig = WTERMSIG(status);
        if (sig == SIGKILL && killed_for_memory(before, after, err))
            return;
        td_error_set(err, TD_E_PEER, "the engine was killed by signal %d (%s)", sig,
                     td_signal_name(sig));
        td_error_why(err, "%s",
                     *words           ? words
                     : sig == SIGKILL ? "somebody sent it; the kernel's counters of "
                                        "kills for lack of memory did not rise"
                                      : "it said nothing before");
        return;
    }
    if (spoke) {
        td_error_set(err, said->code, "the engine ended: %s", said->what);
        td_error_why(err, "%s", said->why);
        td_error_fix(err, "%s", said->fix);
        return;
    }
    td_error_set(err, TD_E_PEER, "the engine ended with status %d",
                 WEXITSTATUS(status));
    td_error_why(err, "%s", *words ? words : "it did not say why");
}

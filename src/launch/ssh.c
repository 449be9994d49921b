/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said to ssh and what it means. See ssh.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "launch/ssh.h"

#include <string.h>
#include <sys/wait.h>

enum { NOT_FOUND = 127 }; /* as sh and env end */

void td_ssh_words(struct td_argv *out, const char *ssh, const char *host, int seconds)
{
    for (const char *p = ssh; *p;) {
        size_t n = strcspn(p, " ");
        if (n)
            td_argv_addf(out, "%.*s", (int)n, p);
        p += n + (p[n] == ' ');
    }
    td_argv_add(out, "-T");
    td_argv_pair(out, "-o", "BatchMode=yes");
    td_argv_add(out, "-o");
    td_argv_addf(out, "ConnectTimeout=%d", seconds);
    td_argv_pair(out, "-o", "ConnectionAttempts=1");
    td_argv_pair(out, "-o", "ServerAliveInterval=1");
    td_argv_pair(out, "-o", "ServerAliveCountMax=3");
    td_argv_add(out, "--");
    td_argv_add(out, host);
}

/* A word for sh in single quotes. */
static void quote(struct td_buf *out, const char *text)
{
    td_buf_addc(out, '\'');
    for (const char *p = text; *p; p++)
        if (*p == '\'')
            td_buf_adds(out, "'\\''");
        else
            td_buf_addc(out, *p);
    td_buf_addc(out, '\'');
}

enum td_status td_ssh_script(struct td_buf *out, const char *program, const char *build)
{
    /* All of it is one function: a shell that reads its input byte by byte has read it to
     * the end before the agent takes over what follows. */
    td_buf_adds(out, "main() {\nb=");
    quote(out, build);
    td_buf_adds(out, "\nfor p in ");
    quote(out, program);
    td_buf_adds(out, " \"$HOME/.cache/tandem/$b/bin/tandem\"; do\n"
                     "  [ -e \"$p\" ] || { echo \"tandem-note $p: is not there\"; "
                     "continue; }\n"
                     "  v=$(\"$p\" --version 2>&1 </dev/null | head -n 1)\n"
                     "  case $v in *\"($b)\"*) exec \"$p\" agent;; esac\n"
                     "  echo \"tandem-note $p: $v\"\n"
                     "done\n"
                     "echo \"tandem-none $(uname -m)\"\n"
                     "exit 0\n}\nmain\n");
    return out->status;
}

enum td_status td_ssh_unpack(struct td_buf *out, const char *build)
{
    td_buf_adds(out, "exec sh -c 'd=\"$HOME/.cache/tandem/");
    for (const char *p = build; *p; p++) /* goes through two shells: letters only */
        td_buf_addc(out,
                    strchr("0123456789abcdefghijklmnopqrstuvwxyz-.", *p) ? *p : '_');
    td_buf_adds(out, "\"; mkdir -p \"$d.new\" && tar -xf - -C \"$d.new\" && "
                     "rm -rf \"$d\" && mv \"$d.new\" \"$d\"'");
    return out->status;
}

/* ---- what went wrong ---------------------------------------------------------------- */

/* ssh has one exit status for all its failures and no other form than this text. */
struct symptom {
    const char *text;
    enum td_status code;
    const char *step, *fix;
};

static const struct symptom symptoms[] = {
    {"Could not resolve hostname", TD_E_NAME, "the name does not resolve",
     "give its address, or an entry in /etc/hosts or ~/.ssh/config"},
    {"Host key verification failed", TD_E_SSH,
     "its host key is not known or has changed",
     "connect once by hand and accept the key: ssh HOST"},
    {"Permission denied", TD_E_SSH,
     "the login was refused: no key of this user is accepted",
     "copy the key there: ssh-copy-id HOST"},
    {"Too many authentication failures", TD_E_SSH, "the login was refused",
     "name the key in ~/.ssh/config: IdentityFile"},
    {"Connection refused", TD_E_SSH, "it answers, but no sshd listens there",
     "start sshd on that host, or name its port: --ssh \"ssh -p PORT\""},
    {"No route to host", TD_E_SSH, "its address cannot be reached", NULL},
    {"Network is unreachable", TD_E_SSH, "there is no route to its address", NULL},
    {"timed out", TD_E_SSH, "nothing answers at its address", NULL},
    {"Connection closed", TD_E_SSH, "the connection was closed before the login", NULL},
    {"Connection reset", TD_E_SSH, "the connection was closed before the login", NULL},
};

static bool is_address(const char *host)
{
    return strspn(host, "0123456789.") == strlen(host) || strchr(host, ':');
}

/* The last line that is not empty. */
static void last_line(const char *text, char *out, size_t size)
{
    size_t n = strlen(text);
    while (n > 0 && strchr("\r\n ", text[n - 1]))
        n--;
    size_t from = n;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    n = TD_MIN(n - from, size - 1);
    memcpy(out, text + from, n);
    out[n] = 0;
}

void td_ssh_cause(const char *host, const char *where, int status, const char *said,
                  struct td_error *err)
{
    char words[TD_FACT_TEXT];
    const struct symptom *s = NULL;
    last_line(said, words, sizeof(words));
    for (size_t i = 0; i < TD_COUNT(symptoms) && !s; i++)
        if (strstr(said, symptoms[i].text))
            s = &symptoms[i];
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND && !*said) {
        td_error_set(err, TD_E_SSH, "ssh to %s cannot be started", host);
        td_error_why(err, "the program is not here: ssh, or what --ssh names");
        td_error_fix(err, "install openssh-client, or correct --ssh");
        return;
    }
    /* a name that leads somewhere from where nobody answers is the name's fault */
    bool name = s && !s->fix && *where && !is_address(host);
    if (name) {
        td_error_set(err, TD_E_NAME, "%s leads to %s, where it cannot be reached", host,
                     where);
        td_error_why(err, "ssh: %s", words);
        return;
    }
    td_error_set(err, s ? s->code : TD_E_SSH, "ssh to %s failed: %s", host,
                 s ? s->step : "it ended before anything was started there");
    td_error_why(err, "%s%s", *words ? "ssh: " : "it said nothing", words);
    if (s && s->fix)
        td_error_fix(err, "%s", s->fix);
}

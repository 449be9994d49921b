/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of mpirun. See mpi_line.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "launch/mpi_line.h"

#include "base/clock.h"
#include "base/limits.h"
#include "launch/child.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void mca(struct td_argv *a, const char *name, const char *value)
{
    td_argv_add(a, "--mca");
    td_argv_pair(a, name, value);
}

/* ---- hosts and networks --------------------------------------------------------------- */

/* Variables of the pins that begin so are settings of Open MPI's: they belong on the
 * line, because daemons read them as well as ranks. */
static const char MCA_PREFIX[] = "OMPI_MCA_";

static void network(const struct td_mpi_job *job, struct td_argv *a)
{
    struct td_pin pins[TD_PIN_MAX];
    int n = td_cluster_pins(job->cluster, 0, pins);
    for (int i = 0; i < n; i++)
        if (strncmp(pins[i].name, MCA_PREFIX, sizeof(MCA_PREFIX) - 1) == 0)
            mca(a, pins[i].name + sizeof(MCA_PREFIX) - 1, pins[i].value);
    mca(a, "btl", "self,vader,tcp");
    /* A dead host is noticed after two seconds instead of minutes. */
    mca(a, "oob_tcp_keepalive_time", "1");
    mca(a, "oob_tcp_keepalive_intvl", "1");
    mca(a, "oob_tcp_keepalive_probes", "1");
}

static void daemons(const struct td_mpi_job *job, struct td_argv *a)
{
    if (job->slurm) {
        mca(a, "plm", "slurm");
        return;
    }
    /* An allocation that happens to be around is not ours to use. */
    mca(a, "plm", job->cluster->n < 2 ? "isolated" : "^slurm"); /* alone: without ssh */
    mca(a, "ras", "^slurm");
    if (job->cluster->n < 2)
        return;
    mca(a, "plm_rsh_agent", job->ssh ? job->ssh : "ssh");
    mca(a, "plm_rsh_args",
        "-o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=1 "
        "-o ServerAliveCountMax=2");
}

int td_mpi_host_of(const struct td_mpi_job *job, int rank)
{
    int n = TD_MAX(job->cluster->n, 1), each = job->ranks / n;
    return each > 0 ? TD_MIN(rank / each, n - 1) : 0;
}

/* ---- what runs where ------------------------------------------------------------------ */

static void variables(const struct td_mpi_job *job, int host, struct td_argv *a)
{
    struct td_pin pins[TD_PIN_MAX];
    int n = td_cluster_pins(job->cluster, host, pins);
    for (int i = 0; i < n; i++)
        if (strncmp(pins[i].name, MCA_PREFIX, sizeof(MCA_PREFIX) - 1) != 0) {
            td_argv_add(a, "-x");
            td_argv_addf(a, "%s=%s", pins[i].name, pins[i].value);
        }
    for (size_t i = 0; job->env && job->env[i]; i++)
        if (getenv(job->env[i]))
            td_argv_pair(a, "-x", job->env[i]);
}

/* Hosts are given by the address of the chosen network; names lead elsewhere too
 * often. Slurm knows its nodes by name only. */
static void context(const struct td_mpi_job *job, int host, struct td_argv *a)
{
    const struct td_cluster_host *h =
        job->cluster->n > 1 ? &job->cluster->hosts[host] : NULL;
    int each = job->ranks / TD_MAX(job->cluster->n, 1);
    if (host > 0)
        td_argv_add(a, ":");
    td_argv_add(a, "-np");
    td_argv_addf(a, "%d", each);
    td_argv_add(a, "-H");
    td_argv_addf(a, "%s:%d",
                 !h           ? "localhost"
                 : job->slurm ? h->name
                              : h->address,
                 each);
    if (host > 0) /* this folder may be missing there */
        td_argv_pair(a, "-wdir", "/");
    variables(job, host, a);
    bool own = host > 0 && h && h->facts && *h->facts->program;
    td_argv_add(a, own ? h->facts->program : job->command[0]);
    td_argv_list(a, job->command + 1);
}

enum td_status td_mpi_line(const struct td_mpi_job *job, struct td_argv *a,
                           struct td_error *err)
{
    int n = TD_MAX(job->cluster->n, 1);
    td_argv_add(a, job->mpirun);
    if (job->root)
        td_argv_add(a, "--allow-run-as-root");
    td_argv_pair(a, "--bind-to", "none"); /* ranks pin their threads themselves */
    if (job->tagged)
        td_argv_add(a, "--tag-output");
    daemons(job, a);
    if (job->cluster->n > 1) {
        network(job, a);
    } else {
        mca(a, "oob_tcp_if_include", "lo");
        mca(a, "btl", "self,vader");
    }
    mca(a, "pml", "ob1"); /* else ucx or openib choose themselves where RoCE is */
    /* Copies through ptrace are forbidden in most containers. */
    mca(a, "btl_vader_single_copy_mechanism", "none");
    mca(a, "odls_base_sigkill_timeout", "0");
    /* Costs nothing measurable, and makes ranks that share a core bearable. */
    mca(a, "mpi_yield_when_idle", "1");
    for (int i = 0; i < n; i++)
        context(job, i, a);
    return td_argv_done(a, err);
}

/* ---- which mpirun ----------------------------------------------------------------------- */

enum td_status td_mpi_find(const char *folders, char *out, size_t size,
                           struct td_error *err)
{
    for (const char *p = folders; p && *p;) {
        size_t n = strcspn(p, ":");
        int len = snprintf(out, size, "%.*s/mpirun", (int)n, p);
        if (n > 0 && *p == '/' && len > 0 && (size_t)len < size &&
            access(out, X_OK) == 0)
            return TD_OK;
        p += n + (p[n] == ':');
    }
    if (size > 0)
        *out = 0;
    td_error_set(err, TD_E_NO_MPI, "there is no mpirun on this machine");
    td_error_why(err, "it is in no folder of PATH (%s)", folders ? folders : "not set");
    td_error_fix(err, "install Open MPI 4.1 here and on all hosts: openmpi-bin");
    return TD_E_NO_MPI;
}

enum td_status td_mpi_version(const char *text, struct td_error *err)
{
    static const char open_mpi[] = "mpirun (Open MPI) ";
    const char *p = strstr(text, open_mpi);
    char *end = NULL;
    long major = 0, minor = 0;
    if (p) {
        p += sizeof(open_mpi) - 1;
        major = strtol(p, &end, 10);
        minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    }
    if (major == 4 && minor == 1)
        return TD_OK;
    if (!p) {
        td_error_set(err, TD_E_NO_MPI, "mpirun is not Open MPI's");
        td_error_why(err, "it calls itself \"%.*s\"", (int)strcspn(text, "\r\n"), text);
    } else {
        td_error_set(err, TD_E_NO_MPI, "Open MPI %.*s is not one that tandem knows",
                     (int)TD_MIN(strcspn(p, " \r\n"), 20), p);
        td_error_why(err,
                     "settings have other names in other versions, and a wrong one "
                     "picks a network that hangs; 4.1 is the one that was measured");
    }
    td_error_fix(err, "install Open MPI 4.1 here and on all hosts, first in PATH");
    return TD_E_NO_MPI;
}

/* What a child prints, at most size - 1 bytes of it, until it ends or time is up. */
static void listen_to(struct td_child *c, double until, char *text, size_t size)
{
    size_t n = 0;
    int status;
    bool open = true;
    while (open && td_clock_now() < until) {
        struct pollfd p = {.fd = c->out_fd, .events = POLLIN};
        (void)poll(&p, 1, 100);
        ssize_t got = read(c->out_fd, text + n, size - 1 - n);
        n += got > 0 ? (size_t)got : 0;
        open = n + 1 < size && (got > 0 || (got < 0 && !p.revents));
    }
    text[n] = 0;
    td_child_kill(c, SIGKILL);
    while (!td_child_ended(c, &status) && td_clock_now() < until + 1)
        (void)poll(NULL, 0, 1);
    td_child_release(c);
}

enum td_status td_mpi_probe(char *out, size_t size, struct td_error *err)
{
    static char version[] = "--version";
    char *argv[] = {out, version, NULL};
    char text[512];
    struct td_child child;
    enum td_status s = td_mpi_find(getenv("PATH"), out, size, err);
    if (s == TD_OK)
        s = td_child_spawn(argv, SIGKILL, &child, err);
    if (s != TD_OK)
        return s;
    listen_to(&child, td_clock_now() + 5, text, sizeof(text));
    return td_mpi_version(text, err);
}

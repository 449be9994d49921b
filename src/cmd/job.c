/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which machines and ranks a verb runs on. See job.h.
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "cmd/job.h"

#include "base/buf.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "cmd/options.h"
#include "engine/device.h"
#include "launch/evidence.h"
#include "launch/hostlist.h"
#include "plan/spread.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the watch: silence is noticed within two seconds; the ranks' own watchdog is sooner
 * than the limits for a step that stands still. */
static const double FIRST_BEAT = 10, SILENT = 1.5, MARGIN = 1.5;

/* Seconds for a look at the hosts before a restart. */
static const double RECHECK = 4;

/* What ranks need to know of this process's environment. */
static const char *const VARIABLES[] = {"OMP_WAIT_POLICY", NULL};

bool td_cmd_job_wanted(const struct td_conf *conf)
{
    int hosts = 2; /* of a list that cannot be read, as td_cmd_job_open() will say */
    if (td_conf_is_set(conf, TD_O_WORLD))
        return false;
    if (td_conf_is_set(conf, TD_O_TP) && td_conf_int(conf, TD_O_TP) > 1)
        return true;
    (void)td_hosts_count(td_conf_str(conf, TD_O_HOSTS), &hosts, NULL);
    return hosts > 1;
}

enum td_status td_cmd_job_count(const struct td_conf *conf,
                                const struct td_config *config, int *hosts, int *ranks,
                                struct td_error *err)
{
    enum td_status s = td_hosts_count(td_conf_str(conf, TD_O_HOSTS), hosts, err);
    if (s != TD_OK)
        return s;
    *ranks = td_conf_is_set(conf, TD_O_TP) ? (int)td_conf_int(conf, TD_O_TP) : *hosts;
    s = td_spread_divide(*ranks, *hosts, err);
    return s == TD_OK ? td_split_check(config, *ranks, err) : s;
}

static enum td_status join(struct td_cmd_job *job, const struct td_conf *conf,
                           struct td_error *err)
{
    const char *hosts = td_conf_str(conf, TD_O_HOSTS);
    struct td_join_options o = {.fabric = td_conf_str(conf, TD_O_FABRIC),
                                .ssh = td_conf_str(conf, TD_O_SSH),
                                .model = job->model,
                                .build = td_build,
                                .version = td_version};
    return td_cluster_join(hosts, &o, &job->cluster, err);
}

/* A rank without a device of its own would only take time from another. Whether a GPU can
 * be used is the ranks' to say; here they are counted. */
static enum td_status count_devices(const struct td_cmd_job *job,
                                    const struct td_conf *conf, struct td_error *err)
{
    bool cpu = strcmp(td_conf_str(conf, TD_O_DEVICE), "cpu") == 0;
    int n = TD_MAX(job->cluster.n, 1), each = job->mpi.ranks / n;
    for (int i = 0; i < n; i++) {
        const struct td_facts *f =
            job->cluster.hosts ? job->cluster.hosts[i].facts : NULL;
        int64_t gpus = f && !cpu ? f->n_gpus : 0;
        int64_t cores = f ? f->cores : td_cpu_cores();
        int64_t devices = TD_MAX(gpus, cores);
        if (each <= devices)
            continue;
        td_error_set(err, TD_E_HOSTS, "%d ranks, but %s has %" PRId64 " core%s%s", each,
                     job->cluster.hosts ? job->cluster.hosts[i].label : "this host",
                     devices, devices == 1 ? "" : "s", cpu ? "" : " and no more GPUs");
        td_error_why(err, "each rank needs a GPU or a core of its own");
        td_error_fix(err, "give --tp at most %" PRId64 "%s", devices * n,
                     n > 1 ? ", or more --hosts" : ", or machines with --hosts a,b");
        return TD_E_HOSTS;
    }
    return TD_OK;
}

enum td_status td_cmd_job_open(struct td_cmd_job *job, const struct td_conf *conf,
                               const char *model, struct td_error *err)
{
    char path[PATH_MAX];
    struct td_config config;
    int hosts, ranks;
    enum td_status s = td_config_read(model, &config, err);
    if (s == TD_OK)
        s = td_cmd_job_count(conf, &config, &hosts, &ranks, err);
    if (s != TD_OK)
        return s;
    if (!realpath(model, path))
        return td_error_set(err, TD_E_NOT_FOUND, "cannot find %s: %s", model,
                            strerror(errno));
    (void)snprintf(job->model, sizeof(job->model), "%s", path);
    s = td_mpi_probe(job->mpirun, sizeof(job->mpirun), err);
    if (s == TD_OK)
        s = hosts > 1 ? join(job, conf, err) : TD_OK; /* no cluster is this host */
    if (s != TD_OK)
        return s;
    job->mpi = (struct td_mpi_job){
        .mpirun = job->mpirun,
        .cluster = &job->cluster,
        .ranks = ranks,
        .ssh = td_conf_str(conf, TD_O_SSH),
        .slurm = hosts > 1 && td_hostlist_slurm(td_conf_str(conf, TD_O_HOSTS)),
        .root = geteuid() == 0,
        .env = VARIABLES};
    job->limits = (struct td_watch_limits){
        .first = FIRST_BEAT,
        .silent = SILENT,
        .still = td_conf_real(conf, TD_O_RANK_TIMEOUT) * MARGIN,
        .load = td_conf_real(conf, TD_O_LOAD_TIMEOUT) * MARGIN};
    return count_devices(job, conf, err);
}

enum td_status td_cmd_job_plan(const struct td_cmd_job *job,
                               const struct td_engine_params *engine,
                               struct td_error *err)
{
    const struct td_cluster *c = &job->cluster;
    struct td_engine_params p = *engine;
    struct td_spread spread = {0};
    struct td_config config;
    struct td_dev *dev = NULL;
    int each = job->mpi.ranks / TD_MAX(c->n, 1);
    if (c->n < 2)
        return TD_OK;
    enum td_status s = td_config_read(job->model, &config, err);
    if (s != TD_OK)
        return s;
    bool any = strcmp(p.device, "auto") == 0;
    if (strcmp(p.device, "cpu") != 0 &&
        !(any && (td_spread_lacks_gpus(c) || !td_cuda_present())))
        return td_spread_weigh(&config, c, job->mpi.ranks, td_engine_gpu(p.device),
                               p.memory, err);
    p.device = "cpu";
    p.model = job->model;
    if (!p.threads && each > 1)
        p.threads = TD_MAX(td_cpu_cores() / each, 1);
    struct td_plan_asked asked = td_engine_asked(&p);
    struct td_spread_params spreading = {.config = &config,
                                         .asked = &asked,
                                         .cluster = c,
                                         .ranks = job->mpi.ranks,
                                         .program = c->hosts[0].facts->memory.resident};
    s = td_engine_device_open(&p, &dev, err);
    spreading.dev = dev;
    if (s == TD_OK) {
        td_plan_adapt(&asked, dev, job->mpi.ranks, p.vocab);
        s = td_spread_make(&spreading, &spread, err);
    }
    td_spread_release(&spread);
    if (dev)
        dev->ops.close(dev);
    return s;
}

enum td_status td_cmd_job_recheck(const struct td_cmd_job *job,
                                  const struct td_engine_params *engine,
                                  struct td_error *err)
{
    struct td_cmd_job now = *job;
    struct td_join_options o = {.ssh = job->mpi.ssh,
                                .model = job->model,
                                .build = td_build,
                                .version = td_version,
                                .glance = RECHECK};
    struct td_buf list;
    td_buf_init(&list, (size_t)TD_MAX_RANKS * TD_FACT_TEXT);
    for (int i = 0; i < job->cluster.n; i++)
        td_buf_addf(&list, "%s%s", i ? "," : "", job->cluster.hosts[i].address);
    enum td_status s = list.status;
    if (s != TD_OK)
        td_error_set(err, s, "no memory for the list of hosts");
    else
        s = td_cluster_join(list.p, &o, &now.cluster, err);
    td_buf_release(&list);
    if (s != TD_OK)
        return s;
    s = td_cmd_job_plan(&now, engine, err);
    td_cluster_release(&now.cluster);
    return s;
}

void td_cmd_job_close(struct td_cmd_job *job)
{
    td_cluster_release(&job->cluster);
}

/* ---- the command ------------------------------------------------------------------------ */

/* Options that this process has used up, or that are not the ranks' business. */
static bool is_ours(size_t option)
{
    static const size_t ours[] = {TD_O_CONFIG, TD_O_HELP, TD_O_EVENT_LOG, TD_O_HOSTS,
                                  TD_O_FABRIC, TD_O_SSH,  TD_O_TP};
    for (size_t i = 0; i < TD_COUNT(ours); i++)
        if (ours[i] == option)
            return true;
    return false;
}

void td_cmd_job_command(const struct td_cmd_job *job, const struct td_conf *conf,
                        const char *name, unsigned verb, const char *model,
                        struct td_argv *out)
{
    char self[TD_MAX_PATH] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    td_argv_add(out, n > 0 ? self : "/proc/self/exe");
    td_argv_pair(out, name, job ? job->model : model);
    for (size_t i = 0; i < conf->count; i++) {
        const struct td_opt_value *v = &conf->values[i];
        if ((conf->opts[i].verbs & verb) && !is_ours(i) &&
            v->origin != TD_FROM_DEFAULT && v->s)
            td_argv_addf(out, "--%s=%s", conf->opts[i].name, v->s);
    }
    if (job)
        td_argv_addf(out, "--world=%d", job->mpi.ranks);
}

void td_cmd_job_examine(const struct td_cmd_job *job, int rank,
                        const struct td_watch_rank *r, struct td_error *err)
{
    int host = td_mpi_host_of(&job->mpi, rank);
    struct td_evidence_params p = {
        .address = host > 0 ? job->cluster.hosts[host].address : NULL,
        .ssh = job->mpi.ssh,
        .build = td_build,
        .version = td_version};
    struct td_facts *f = td_calloc(1, sizeof(*f));
    struct td_error ignored;
    td_error_init(&ignored);
    if (f && td_evidence_read(&p, f, &ignored) == TD_OK)
        (void)td_evidence_judge(rank, r, f, err);
    if (f)
        td_facts_release(f);
    td_free(f);
}

/* ---- what is shown ---------------------------------------------------------------------- */

void td_cmd_job_print(const struct td_cmd_job *job)
{
    const struct td_cluster *c = &job->cluster;
    for (int i = 1; i < c->n; i++) {
        const struct td_cluster_host *a = &c->hosts[0], *b = &c->hosts[i];
        const struct td_link *l = td_cluster_link(c, 0, i);
        (void)fprintf(stderr, "fabric  %s %s  <->  %s %s   %s  %.1f us  %.1f GB/s\n",
                      a->label, a->address, b->label, b->address, a->iface,
                      l->latency_us, l->gbytes);
    }
    for (int i = 0; i < c->n_lines; i++) {
        const struct td_check_line *l = &c->lines[i];
        /* Networks that are not used are no news; `tandem check` tells them. */
        if (l->verdict == TD_WARN && strcmp(l->topic, "network") != 0)
            (void)fprintf(stderr, "warn    %s%s%s\n",
                          l->host >= 0 ? c->hosts[l->host].label : "",
                          l->host >= 0 ? ": " : "", l->e.what);
    }
    if (c->n < 2)
        (void)fprintf(stderr, "ranks   %d on this host\n", job->mpi.ranks);
    (void)fflush(stderr);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules about hosts. See judge.h. Each is one small function; td_judge() at the end
 * lists them.
 */
#include "fabric/judge.h"

#include "fabric/nets.h"
#include "fabric/resolve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double clock_warn = 1, clock_fail = 60; /* seconds */

enum {
    LEAST_FILES = 1024, /* open files: a connection each */
    TOLD_HOLDERS = 3,   /* of those that hold memory */
    HOLDERS_TEXT = 400
};

static const int64_t least_shm = 64 * TD_MIB, least_memlock = 64 * TD_MIB,
                     least_disk = 1 * TD_GIB;

static const struct td_facts *facts(const struct td_cluster *c, int h)
{
    return c->hosts[h].facts;
}

static const char *name_of(const struct td_cluster *c, int h)
{
    return c->hosts[h].label;
}

/* "21.4 GiB by python3 (pid 4711, container glm-server), ..." of the host's memory (gpu
 * -1) or of a GPU; "" when nobody holds any. */
static void tell_holders(const struct td_facts *f, int64_t gpu, char *out, size_t size)
{
    size_t at = 0;
    int told = 0;
    *out = 0;
    for (int64_t i = 0; i < f->n_holders && told < TOLD_HOLDERS && at < size; i++) {
        const struct td_holder *h = &f->holders[i];
        if (h->gpu != gpu)
            continue;
        int n = snprintf(out + at, size - at, "%s%s by %s (pid %" PRId64 "%s%s)",
                         told ? ", " : "",
                         h->bytes ? td_size_text(h->bytes, 1).text : "memory",
                         *h->command ? h->command : "a process", h->pid,
                         *h->container ? ", container " : "", h->container);
        at += (size_t)TD_MAX(n, 0);
        told++;
    }
}

/* ---- the program --------------------------------------------------------------------- */

static void judge_program(struct td_cluster *c, int h)
{
    const struct td_facts *f = facts(c, h);
    td_cluster_pass(c, h, "host", "%s, %s, %" PRId64 " cores, %s, tandem %s (%s)",
                    f->host, f->cpu, f->cores, f->arch, f->version, f->build);
}

static void judge_mpi(struct td_cluster *c, int h)
{
    static const char known[] = "Open MPI v4.1.";
    const struct td_facts *f = facts(c, h), *first = facts(c, 0);
    struct td_error *e = NULL;
    if (c->n < 2)
        return;
    if (*f->mpi && strncmp(f->mpi, "Open MPI", 8) != 0) {
        e = td_cluster_say(c, TD_FAIL, h, "mpi");
        td_error_set(e, TD_E_NO_MPI, "%s has another MPI", name_of(c, h));
        td_error_why(e, "its libmpi.so is %s", f->mpi);
    } else if (*f->mpi && strncmp(f->mpi, known, sizeof(known) - 1) != 0) {
        e = td_cluster_say(c, TD_FAIL, h, "mpi");
        td_error_set(e, TD_E_NO_MPI, "%s has an Open MPI that tandem does not know",
                     name_of(c, h));
        td_error_why(e, "its libmpi.so is %s; 4.1 is the one whose settings are known",
                     f->mpi);
        td_error_fix(e, "install Open MPI 4.1 there, first in PATH and for ldconfig");
    } else if (!*f->mpi || !*f->orted) {
        e = td_cluster_say(c, TD_FAIL, h, "mpi");
        td_error_set(e, TD_E_NO_MPI, "Open MPI is not complete on %s", name_of(c, h));
        td_error_why(e, !*f->mpi ? "its library libmpi.so cannot be loaded"
                                 : "orted is not in the PATH that ssh gives");
    } else if (first && strcmp(f->mpi, first->mpi) != 0) {
        e = td_cluster_say(c, TD_WARN, h, "mpi");
        td_error_set(e, TD_E_NO_MPI, "Open MPI differs between %s and %s",
                     name_of(c, 0), name_of(c, h));
        td_error_why(e, "%s and %s; nothing in it compares versions", first->mpi,
                     f->mpi);
        td_error_fix(e, "install the same version on both");
    } else {
        td_cluster_pass(c, h, "mpi", "%s", f->mpi);
    }
}

/* ---- memory -------------------------------------------------------------------------- */

static void judge_memory(struct td_cluster *c, int h)
{
    const struct td_facts *f = facts(c, h);
    char bound[TD_FACT_TEXT], holders[HOLDERS_TEXT];
    int64_t left = td_sysmem_available(&f->memory, bound, sizeof(bound));
    int64_t need = f->model_bytes / TD_MAX(c->n, 1);
    tell_holders(f, -1, holders, sizeof(holders));
    if (f->n_gpus && !f->gpus[0].unified)
        need = 0; /* the weights go to the GPU */
    if (need > left) {
        bool taken = *holders && need < f->memory.total;
        struct td_error *e = td_cluster_say(c, TD_FAIL, h, "memory");
        td_error_set(e, taken ? TD_E_MEMORY_TAKEN : TD_E_MEMORY_PLAN,
                     "the model's part of %s does not fit into the memory of %s",
                     td_size_text(need, 1).text, name_of(c, h));
        td_error_why(e, "%s%s%s", bound, *holders ? "; held: " : "", holders);
    } else if (f->memory.total > 0 && left < f->memory.total / 2 && *holders) {
        struct td_error *e = td_cluster_say(c, TD_WARN, h, "memory");
        td_error_set(e, TD_E_MEMORY_TAKEN, "%s has %s of memory left", name_of(c, h),
                     td_size_text(left, 1).text);
        td_error_why(e, "%s; held: %s", bound, holders);
    } else {
        td_cluster_pass(c, h, "memory", "%s", bound);
    }
}

static void judge_gpus(struct td_cluster *c, int h)
{
    const struct td_facts *f = facts(c, h);
    for (int64_t i = 0; i < f->n_gpus; i++) {
        const struct td_gpu_facts *g = &f->gpus[i];
        char holders[HOLDERS_TEXT];
        int64_t need = f->model_bytes / (TD_MAX(c->n, 1) * f->n_gpus);
        tell_holders(f, i, holders, sizeof(holders));
        bool short_of = !g->unified && need > g->total - g->used;
        if (!*holders && !short_of) {
            td_cluster_pass(c, h, "gpu", "%s%s%s, driver %s", g->name,
                            g->unified ? ", memory of the host" : ", ",
                            g->unified ? "" : td_size_text(g->total, 1).text,
                            f->driver);
            continue;
        }
        struct td_error *e = td_cluster_say(c, short_of ? TD_FAIL : TD_WARN, h, "gpu");
        td_error_set(e, *holders ? TD_E_MEMORY_TAKEN : TD_E_MEMORY_PLAN,
                     "%s of %s: %s of %s are in use", g->name, name_of(c, h),
                     td_size_text(g->used, 1).text, td_size_text(g->total, 1).text);
        if (*holders)
            td_error_why(e, "held: %s", holders);
        else
            td_error_why(e, "the model's part has %s", td_size_text(need, 1).text);
    }
    if (*f->driver && !f->n_gpus) {
        struct td_error *e = td_cluster_say(c, TD_WARN, h, "gpu");
        td_error_set(e, TD_E_NO_DEVICE, "%s has NVIDIA's driver (%s), but no GPU",
                     name_of(c, h), f->driver);
    }
}

/* ---- limits and disk ----------------------------------------------------------------- */

static void judge_limits(struct td_cluster *c, int h)
{
    const struct td_facts *f = facts(c, h);
    struct td_error *e;
    if (f->nofile >= 0 && f->nofile < LEAST_FILES) {
        e = td_cluster_say(c, TD_WARN, h, "limits");
        td_error_set(e, TD_E_LIMIT, "%s lets a process open %" PRId64 " files",
                     name_of(c, h), f->nofile);
        td_error_why(e, "every client, host and thread needs some; %d is the least",
                     LEAST_FILES);
        td_error_fix(e, "ulimit -n 65536, or LimitNOFILE= of the service");
    }
    if (f->n_rdma > 0 && f->memlock >= 0 && f->memlock < least_memlock) {
        e = td_cluster_say(c, TD_WARN, h, "limits");
        td_error_set(e, TD_E_LIMIT, "%s lets a process lock %s of memory",
                     name_of(c, h), td_size_text(f->memlock, 1).text);
        td_error_why(e, "RDMA locks its buffers");
        td_error_fix(e, "ulimit -l unlimited, in /etc/security/limits.d for ssh");
    }
    if (f->shm_total < least_shm) {
        e = td_cluster_say(c, TD_WARN, h, "limits");
        td_error_set(e, TD_E_LIMIT, "/dev/shm of %s has %s", name_of(c, h),
                     td_size_text(f->shm_total, 1).text);
        td_error_why(e, "MPI and NCCL talk through it within a host");
        td_error_fix(e, "give the container more: --shm-size 1g");
    }
    if (f->disk.total > 0 && f->disk.free < least_disk) {
        e = td_cluster_say(c, TD_WARN, h, "disk");
        td_error_set(e, TD_E_IO, "the disk of %s on %s is full: %s of %s are free",
                     f->disk.path, name_of(c, h), td_size_text(f->disk.free, 1).text,
                     td_size_text(f->disk.total, 1).text);
        td_error_why(e, "logs cannot be written any more");
        td_error_fix(e, "free some space");
    }
}

/* ---- clock and name ------------------------------------------------------------------ */

static void judge_clock(struct td_cluster *c, int h)
{
    double off = c->hosts[h].clock, amount = fabs(off);
    if (h == 0 || amount < clock_warn)
        return;
    struct td_error *e =
        td_cluster_say(c, amount >= clock_fail ? TD_FAIL : TD_WARN, h, "clock");
    td_error_set(e, TD_E_CLOCK, "the clock of %s is %.0f s %s that of %s",
                 name_of(c, h), amount, off > 0 ? "ahead of" : "behind", name_of(c, 0));
    td_error_why(e, "certificates, logs and time limits would not agree");
}

static void judge_name(struct td_cluster *c, int h)
{
    const struct td_facts *f = facts(c, h);
    for (int64_t i = 0; i < f->n_own && c->n > 1; i++) {
        if (!td_addr_is_loopback(f->own[i].text))
            continue;
        struct td_error *e = td_cluster_say(c, TD_WARN, h, "name");
        td_error_set(e, TD_E_NAME, "%s calls itself %s, which leads to %s there",
                     name_of(c, h), f->host, f->own[i].text);
        td_error_why(e,
                     "programs that tell others their name's address (Gloo, Ray) "
                     "cannot be reached; tandem passes %s instead",
                     *c->hosts[h].address ? c->hosts[h].address : "addresses");
        td_error_fix(e, "give the name its real address in /etc/hosts");
        return;
    }
}

/* Of a lone machine: the networks that it could be joined over. */
static void judge_networks(struct td_cluster *c, int h)
{
    const struct td_facts *f = facts(c, h);
    for (int64_t k = 0; k < f->n_addrs && c->n == 1; k++) {
        const struct td_address *a = &f->addrs[k];
        const struct td_iface *i = td_facts_iface(f, a->iface);
        int64_t gid;
        if (!i || i->loopback || !i->up || !i->carrier || strchr(a->text, ':') ||
            td_iface_is_private(i))
            continue;
        const struct td_rdma *r = td_facts_rdma(f, i->name, a->text, &gid);
        char speed[TD_FACT_NAME] = "";
        if (i->mbit > 0)
            (void)snprintf(speed, sizeof(speed), ", %g Gbit/s", (double)i->mbit / 1000);
        td_cluster_pass(c, h, "network", "%s %s/%" PRId64 "%s, MTU %" PRId64 "%s%s",
                        i->name, a->text, a->prefix, speed, i->mtu,
                        r ? ", RDMA by " : "", r ? r->device : "");
    }
}

static void judge_rdma(struct td_cluster *c, int h)
{
    const struct td_facts *f = facts(c, h);
    const struct td_cluster_host *host = &c->hosts[h];
    if (*host->rdma) {
        td_cluster_pass(c, h, "rdma",
                        "%s port %" PRId64 " on %s, address index %" PRId64, host->rdma,
                        host->rdma_port, host->iface, host->gid);
    } else if (*host->iface && f->n_rdma > 0) {
        struct td_error *e = td_cluster_say(c, TD_WARN, h, "rdma");
        td_error_set(e, TD_E_NETWORK, "%s has RDMA, but not on %s", name_of(c, h),
                     host->iface);
        td_error_why(e, "%s port %" PRId64 " is %s and belongs to another interface",
                     f->rdma[0].device, f->rdma[0].port,
                     f->rdma[0].active ? "active" : "down");
        td_error_fix(e, "give its interface an address in a network of all hosts");
    }
}

/* ---- the model ----------------------------------------------------------------------- */

static const struct td_model_file *file_named(const struct td_facts *f,
                                              const char *name)
{
    for (int64_t i = 0; i < f->n_files; i++)
        if (strcmp(f->files[i].name, name) == 0)
            return &f->files[i];
    return NULL;
}

/* The first difference between two folders, as a cause; false when they are equal. */
static bool differs(const struct td_cluster *c, int h, char *why, size_t size)
{
    const struct td_facts *a = facts(c, 0), *b = facts(c, h);
    for (int64_t i = 0; i < a->n_files; i++) {
        const struct td_model_file *x = &a->files[i], *y = file_named(b, x->name);
        if (!y)
            (void)snprintf(why, size, "%s is missing on %s", x->name, name_of(c, h));
        else if (x->size != y->size)
            (void)snprintf(why, size,
                           "%s has %" PRId64 " bytes on %s, %" PRId64 " on %s", x->name,
                           x->size, name_of(c, 0), y->size, name_of(c, h));
        else if (strcmp(x->hash, y->hash) != 0)
            (void)snprintf(why, size, "%s has the same size, but another content",
                           x->name);
        else
            continue;
        return true;
    }
    for (int64_t i = 0; i < b->n_files; i++)
        if (!file_named(a, b->files[i].name)) {
            (void)snprintf(why, size, "%s is on %s only", b->files[i].name,
                           name_of(c, h));
            return true;
        }
    return false;
}

static void judge_model(struct td_cluster *c, int h)
{
    const struct td_facts *f = facts(c, h), *first = facts(c, 0);
    char why[TD_ERROR_WHY_MAX];
    if (!*f->model)
        return;
    if (*f->model_error) {
        struct td_error *e = td_cluster_say(c, TD_FAIL, h, "model");
        td_error_set(e, h ? TD_E_MODEL_DIFFERS : TD_E_NOT_FOUND,
                     "the model cannot be used on %s", name_of(c, h));
        td_error_why(e, "%s", f->model_error);
        if (h)
            td_error_fix(e, "copy it: rsync -a %s/ %s:%s", f->model, c->hosts[h].name,
                         f->model);
    } else if (h && first && !*first->model_error && differs(c, h, why, sizeof(why))) {
        struct td_error *e = td_cluster_say(c, TD_FAIL, h, "model");
        td_error_set(e, TD_E_MODEL_DIFFERS, "%s has another model than %s",
                     name_of(c, h), name_of(c, 0));
        td_error_why(e, "%s", why);
        td_error_fix(e, "copy it: rsync -a %s/ %s:%s", f->model, c->hosts[h].name,
                     f->model);
    } else {
        td_cluster_pass(c, h, "model", "%s, %s in %" PRId64 " files%s", f->model,
                        td_size_text(f->model_bytes, 1).text, f->n_files,
                        h ? ", the same" : "");
    }
}

void td_judge(struct td_cluster *c)
{
    static void (*const rules[])(struct td_cluster * c, int h) = {
        judge_program, judge_mpi,    judge_clock, judge_name,   judge_networks,
        judge_rdma,    judge_memory, judge_gpus,  judge_limits, judge_model,
    };
    for (int h = 0; h < c->n; h++)
        for (size_t r = 0; r < TD_COUNT(rules) && facts(c, h); r++)
            rules[r](c, h);
}

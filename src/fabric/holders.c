/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds memory: processes of the host by their resident memory, processes on GPUs
 * through NVML, and the container that each belongs to. See facts.h. (The reader of GPUs
 * was developed against a stand-in for NVML; not run on hardware.)
 */
#define _POSIX_C_SOURCE 200809L
#include "fabric/fabric_int.h"

#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_DIGITS = 64, SHORT_ID = 12, GROUP_TEXT = 4096, MOST_ON_GPU = 32 };

/* ---- containers --------------------------------------------------------------------- */

/* Docker keeps a container's name in a file that only root can read. */
static bool docker_name(const char *root, const char *id, char *out, size_t size)
{
    char path[TD_MAX_PATH];
    json_t *doc = NULL;
    (void)snprintf(path, sizeof(path),
                   "%s/var/lib/docker/containers/%.64s/config.v2.json", root, id);
    if (!td_file_exists(path) ||
        td_json_read(path, (size_t)TD_MAX_CONFIG_FILE, &doc, NULL) != TD_OK)
        return false;
    const char *name = json_string_value(json_object_get(doc, "Name"));
    if (name)
        (void)snprintf(out, size, "%s", name + (*name == '/'));
    json_decref(doc);
    return name != NULL;
}

/* The container or pod of a process: its name if Docker's files can be read, the first
 * twelve digits of its id otherwise, "" when it is in none. */
static void container_of(const char *root, int64_t pid, char *out, size_t size)
{
    char text[GROUP_TEXT];
    *out = 0;
    if (!td_small_file(text, sizeof(text), "%s/proc/%" PRId64 "/cgroup", root, pid))
        return;
    /* every engine puts the 64 digits of the id into the path of the group */
    for (const char *p = text; *p;) {
        size_t n = strspn(p, "0123456789abcdef");
        if (n == ID_DIGITS) {
            if (!docker_name(root, p, out, size))
                (void)snprintf(out, size, "%.*s", (int)SHORT_ID, p);
            return;
        }
        p += n ? n : 1;
    }
}

/* ---- memory of the host ------------------------------------------------------------- */

/* Keeps the list sorted, the largest first, and bounded. */
static void add_holder(struct td_facts *f, const struct td_holder *h)
{
    int64_t at = f->n_holders;
    while (at > 0 && f->holders[at - 1].bytes < h->bytes)
        at--;
    if (at == TD_FACT_HOLDERS)
        return;
    int64_t last = TD_MIN(f->n_holders, (int64_t)TD_FACT_HOLDERS - 1);
    for (int64_t i = last; i > at; i--)
        f->holders[i] = f->holders[i - 1];
    f->holders[at] = *h;
    f->n_holders = last + 1;
}

static void name_holder(const char *root, struct td_holder *h)
{
    (void)td_small_file(h->command, sizeof(h->command), "%s/proc/%" PRId64 "/comm",
                        root, h->pid);
    container_of(root, h->pid, h->container, sizeof(h->container));
}

void td_facts_read_holders(const char *root, int64_t least, struct td_facts *f)
{
    char text[256];
    (void)snprintf(text, sizeof(text), "%s/proc", root);
    DIR *d = opendir(text);
    long page = sysconf(_SC_PAGESIZE), self = (long)getpid();
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        struct td_holder h = {.pid = td_text_int(e->d_name, 0), .gpu = -1};
        if (!isdigit((unsigned char)e->d_name[0]) || (!*root && h.pid == self) ||
            !td_small_file(text, sizeof(text), "%s/proc/%" PRId64 "/statm", root,
                           h.pid))
            continue;
        const char *resident = strchr(text, ' ');
        h.bytes = resident ? td_text_int(resident + 1, 0) * page : 0;
        if (h.bytes < least)
            continue;
        name_holder(root, &h);
        add_holder(f, &h);
    }
    if (d)
        (void)closedir(d);
}

/* ---- GPUs --------------------------------------------------------------------------- */

static void read_processes(const char *root, const struct td_nvml *n, void *device,
                           int64_t gpu, struct td_facts *f)
{
    struct td_nvml_process list[MOST_ON_GPU];
    unsigned count = MOST_ON_GPU;
    memset(list, 0, sizeof(list));
    if (!n->processes || n->processes(device, &count, list) != 0)
        return;
    for (unsigned i = 0; i < TD_MIN(count, (unsigned)MOST_ON_GPU); i++) {
        struct td_holder h = {.pid = list[i].pid, .gpu = gpu};
        if (list[i].used <= INT64_MAX)
            h.bytes = (int64_t)list[i].used;
        name_holder(root, &h);
        add_holder(f, &h);
    }
}

static void read_gpu(const char *root, const struct td_nvml *n, unsigned index,
                     struct td_facts *f)
{
    struct td_gpu_facts *g = &f->gpus[f->n_gpus];
    struct td_nvml_memory m = {0};
    void *device = NULL;
    int major = 0, minor = 0;
    if (n->handle(index, &device) != 0)
        return;
    *g = (struct td_gpu_facts){0};
    if (n->name)
        (void)n->name(device, g->name, sizeof(g->name) - 1);
    if (n->uuid)
        (void)n->uuid(device, g->uuid, sizeof(g->uuid) - 1);
    if (n->capability && n->capability(device, &major, &minor) == 0)
        g->capability = (int64_t)major * 10 + minor;
    /* a GPU whose memory is the host's does not answer this */
    g->unified = !n->memory || n->memory(device, &m) != 0 || m.total == 0;
    if (!g->unified) {
        g->total = (int64_t)TD_MIN(m.total, (unsigned long long)INT64_MAX);
        g->used = (int64_t)TD_MIN(m.used, (unsigned long long)INT64_MAX);
    }
    read_processes(root, n, device, f->n_gpus, f);
    f->n_gpus++;
}

void td_facts_read_gpus(const char *root, const struct td_nvml *n, struct td_facts *f)
{
    unsigned count = 0;
    if (!n->init || !n->count || !n->handle || n->init() != 0)
        return;
    if (!n->driver || n->driver(f->driver, sizeof(f->driver) - 1) != 0)
        (void)snprintf(f->driver, sizeof(f->driver), "unknown");
    if (n->count(&count) == 0)
        for (unsigned i = 0; i < count && f->n_gpus < TD_FACT_GPUS; i++)
            read_gpu(root, n, i, f);
    if (n->shutdown)
        (void)n->shutdown();
}

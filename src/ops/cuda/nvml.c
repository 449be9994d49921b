/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking NVIDIA's management library. See nvml.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "ops/cuda/nvml.h"

#include "base/buf.h"
#include "base/compiler.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_PROCESSES = 64,
    MOST_NAMED = 3,
    XID_EVENT = 8, /* nvmlEventTypeXidCriticalError */
    ID_DIGITS = 64,
    SHORT_ID = 12
};

static bool symbol(void *lib, const char *name, void *to)
{
    void *p = dlsym(lib, name);
    memcpy(to, &p, sizeof(p)); /* POSIX allows it, ISO C has no cast for it */
    return p != NULL;
}

const struct td_nvml *td_nvml_load(void)
{
    static struct td_nvml n;
    if (n.init)
        return &n;
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct td_nvml found;
    if (!lib || !symbol(lib, "nvmlInit_v2", &found.init) ||
        !symbol(lib, "nvmlDeviceGetHandleByPciBusId_v2", &found.by_bus) ||
        !symbol(lib, "nvmlDeviceGetComputeRunningProcesses_v3", &found.processes) ||
        !symbol(lib, "nvmlEventSetCreate", &found.event_set) ||
        !symbol(lib, "nvmlDeviceRegisterEvents", &found.register_events) ||
        !symbol(lib, "nvmlEventSetWait_v2", &found.event_wait) || found.init() != 0)
        return NULL;
    n = found;
    return &n;
}

void td_nvml_watch_open(struct td_nvml_watch *w, const struct td_nvml *nvml,
                        const char *bus)
{
    *w = (struct td_nvml_watch){.nvml = nvml};
    if (!nvml || nvml->by_bus(bus, &w->device) != 0) {
        w->nvml = NULL;
        return;
    }
    if (nvml->event_set(&w->set) != 0 ||
        nvml->register_events(w->device, XID_EVENT, w->set) != 0)
        w->set = NULL;
}

int td_nvml_watch_xid(const struct td_nvml_watch *w, unsigned milliseconds)
{
    struct td_nvml_event e = {0};
    int xid = 0;
    if (!w->nvml || !w->set)
        return 0;
    while (w->nvml->event_wait(w->set, &e, xid ? 0 : milliseconds) == 0)
        if (e.type & XID_EVENT)
            xid = (int)e.data;
    return xid;
}

/* ---- who holds memory ---- */

bool td_nvml_container(const char *text, char out[13])
{
    size_t run = 0;
    for (const char *p = text; *p; p++) {
        run = isxdigit((unsigned char)*p) ? run + 1 : 0;
        if (run != ID_DIGITS || isxdigit((unsigned char)p[1]))
            continue;
        memcpy(out, p - (ID_DIGITS - 1), SHORT_ID);
        out[SHORT_ID] = '\0';
        return true;
    }
    return false;
}

/* The beginning of a small file, its zero bytes as spaces. */
static bool read_text(const char *proc, unsigned pid, const char *name, char *out,
                      size_t size)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%u/%s", proc, pid, name);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(out, 1, size - 1, f);
    (void)fclose(f);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)out[i] < ' ')
            out[i] = ' ';
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
    return n > 0;
}

static void name_process(const char *proc, const struct td_nvml_process *p, char *out,
                         size_t size)
{
    char command[64], group[1024], id[SHORT_ID + 1];
    bool known = read_text(proc, p->pid, "cmdline", command, sizeof(command)) ||
                 read_text(proc, p->pid, "comm", command, sizeof(command));
    bool contained = read_text(proc, p->pid, "cgroup", group, sizeof(group)) &&
                     td_nvml_container(group, id);
    (void)snprintf(out, size, "%s (pid %u%s%s)",
                   known ? command : "a process that cannot be seen from here", p->pid,
                   contained ? ", container " : "", contained ? id : "");
}

static int by_use(const void *a, const void *b)
{
    unsigned long long x = ((const struct td_nvml_process *)a)->used;
    unsigned long long y = ((const struct td_nvml_process *)b)->used;
    return (x < y) - (x > y);
}

/* The others' processes whose use is known, the largest first; returns how many. */
static unsigned others_of(const struct td_nvml_watch *w, struct td_nvml_process *out)
{
    struct td_nvml_process all[MOST_PROCESSES];
    unsigned n = MOST_PROCESSES, kept = 0;
    if (!w->nvml || w->nvml->processes(w->device, &n, all) != 0)
        return 0;
    for (unsigned i = 0; i < TD_MIN(n, (unsigned)MOST_PROCESSES); i++)
        if (all[i].pid != (unsigned)getpid() && all[i].used != ~0ULL)
            out[kept++] = all[i];
    qsort(out, kept, sizeof(*out), by_use);
    return kept;
}

void td_nvml_holders(const struct td_nvml_watch *w, const char *proc, char *out,
                     size_t size)
{
    struct td_nvml_process p[MOST_PROCESSES];
    unsigned n = others_of(w, p);
    size_t len = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < n && i < MOST_NAMED && len < size; i++) {
        char name[192];
        name_process(proc, &p[i], name, sizeof(name));
        len += (size_t)snprintf(out + len, size - len, "%s%s are held by %s",
                                i ? ", " : "", td_size_text((int64_t)p[i].used, 1).text,
                                name);
    }
    if (n > MOST_NAMED && len < size)
        (void)snprintf(out + len, size - len, ", and %u more hold some",
                       n - MOST_NAMED);
}

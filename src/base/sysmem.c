/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that can still be had. See sysmem.h.
 */
#include "base/sysmem.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/limits.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kernel file below root, "" when it cannot be read. */
static void slurp(const char *root, const char *path, struct td_buf *b)
{
    char full[TD_MAX_PATH];
    td_buf_clear(b);
    if (td_path_join(full, sizeof(full), root, path, NULL) != TD_OK)
        return;
    /* files of proc and sys have no size: read until they end */
    FILE *f = fopen(full, "r");
    char piece[4096];
    size_t n = 0;
    while (f && (n = fread(piece, 1, sizeof(piece), f)) > 0)
        td_buf_add(b, piece, n);
    if (f)
        (void)fclose(f);
}

/* The number behind `key` at the start of a line; `absent` when it is not there or no
 * number ("max", "unlimited"). */
static int64_t number_after(const char *text, const char *key, int64_t absent)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0) {
            char *end = NULL;
            const char *at = line + n;
            uint64_t v = strtoull(at, &end, 10);
            if (end == at)
                return absent;
            return v > INT64_MAX ? INT64_MAX : (int64_t)v;
        }
        if (!*line)
            break;
    }
    return absent;
}

/* ---- control groups ---------------------------------------------------------------- */

/* The two versions name their files differently. */
struct layout {
    const char *mount;      /* below root */
    const char *controller; /* of its line in /proc/self/cgroup */
    const char *limit, *used;
    const char *inactive, *active; /* page cache in memory.stat */
};

static const struct layout layouts[] = {
    {"sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file ",
     "active_file "},
    {"sys/fs/cgroup/unified", "", "memory.max", "memory.current", "inactive_file ",
     "active_file "},
    {"sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file ", "total_active_file "},
};

/* Looks at one group of a layout; `to` is what the walk was asked to fill. */
typedef void (*look_fn)(const char *root, const struct layout *l, const char *path,
                        void *to, struct td_buf *b);

static void look_at_memory(const char *root, const struct layout *l, const char *path,
                           void *to, struct td_buf *b)
{
    struct td_sysmem *m = to;
    /* version 1 says "no limit" with a number just below 2^63 */
    const int64_t unlimited = INT64_MAX - (1 << 20);
    char file[TD_MAX_PATH];
    (void)snprintf(file, sizeof(file), "%s%s/%s", l->mount, path, l->limit);
    slurp(root, file, b);
    int64_t limit = number_after(b->p, "", INT64_MAX);
    if (limit >= unlimited)
        return;
    (void)snprintf(file, sizeof(file), "%s%s/%s", l->mount, path, l->used);
    slurp(root, file, b);
    int64_t used = number_after(b->p, "", 0);
    (void)snprintf(file, sizeof(file), "%s%s/memory.stat", l->mount, path);
    slurp(root, file, b);
    used -= number_after(b->p, l->inactive, 0) + number_after(b->p, l->active, 0);
    used = used < 0 ? 0 : used;
    if (m->group_limit != INT64_MAX && limit - used >= m->group_limit - m->group_used)
        return;
    m->group_limit = limit;
    m->group_used = used;
    (void)snprintf(m->group, sizeof(m->group), "%s", *path ? path : "/");
}

/* The process's group from /proc/self/cgroup, lines of id:controllers:path. */
static void own_group(const char *groups, const char *controller, char *out,
                      size_t size)
{
    for (const char *line = groups; *line; line += strcspn(line, "\n")) {
        line += *line == '\n';
        size_t id = strcspn(line, ":\n");
        if (line[id] != ':')
            continue;
        const char *list = line + id + 1;
        size_t n = strcspn(list, ":\n"), want = strlen(controller);
        if (list[n] != ':')
            continue;
        bool found = n == want && n == 0;
        for (size_t at = 0; at < n && !found; at += strcspn(list + at, ",:") + 1)
            found = want > 0 && strcspn(list + at, ",:") == want &&
                    memcmp(list + at, controller, want) == 0;
        if (!found)
            continue;
        const char *path = list + n + 1;
        (void)snprintf(out, size, "%.*s", (int)strcspn(path, "\n"), path);
        return;
    }
}

/* All groups from the process's own up to the root of the mount. Inside a container
 * only the upper part of the path may be visible; what is not there is passed over. */
static void look_along_path(const char *root, const struct layout *l,
                            const char *groups, look_fn look, void *to,
                            struct td_buf *b)
{
    char path[TD_MAX_PATH] = "";
    own_group(groups, l->controller, path, sizeof(path));
    for (;;) {
        size_t n = strlen(path);
        while (n > 0 && path[n - 1] == '/')
            path[--n] = 0;
        look(root, l, path, to, b);
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

/* ---- the whole --------------------------------------------------------------------- */

enum td_status td_sysmem_read(const char *root, struct td_sysmem *out,
                              struct td_error *err)
{
    struct td_buf b, groups;
    enum td_status s = TD_OK;
    struct td_sysmem m = {
        .group_limit = INT64_MAX, .space_limit = INT64_MAX, .data_limit = INT64_MAX};
    td_buf_init(&b, (size_t)(1 * TD_MIB));
    td_buf_init(&groups, (size_t)(1 * TD_MIB));
    slurp(root, "proc/meminfo", &b);
    m.total = number_after(b.p, "MemTotal:", 0) * TD_KIB;
    m.available = number_after(b.p, "MemAvailable:", 0) * TD_KIB;
    if (m.total <= 0 || m.available <= 0) {
        s = td_error_set(err, TD_E_IO,
                         "%s/proc/meminfo does not tell how much memory "
                         "there is",
                         root);
        goto out;
    }
    slurp(root, "proc/self/cgroup", &groups);
    for (size_t i = 0; i < TD_COUNT(layouts); i++)
        look_along_path(root, &layouts[i], groups.p, look_at_memory, &m, &b);
    slurp(root, "proc/self/limits", &b);
    m.space_limit = number_after(b.p, "Max address space", INT64_MAX);
    m.data_limit = number_after(b.p, "Max data size", INT64_MAX);
    slurp(root, "proc/self/status", &b);
    m.space_used = number_after(b.p, "VmSize:", 0) * TD_KIB;
    m.data_used = number_after(b.p, "VmData:", 0) * TD_KIB;
    m.resident = number_after(b.p, "VmRSS:", 0) * TD_KIB;
    m.resident_peak = number_after(b.p, "VmHWM:", 0) * TD_KIB;
    *out = m;
out:
    td_buf_release(&b);
    td_buf_release(&groups);
    return s;
}

/* ---- processor time ---------------------------------------------------------------- */

/* The quota, and the period in a file of its own in version 1. */
static const struct layout time_layouts[] = {
    {.mount = "sys/fs/cgroup", .controller = "", .limit = "cpu.max"},
    {.mount = "sys/fs/cgroup/unified", .controller = "", .limit = "cpu.max"},
    {.mount = "sys/fs/cgroup/cpu",
     .controller = "cpu",
     .limit = "cpu.cfs_quota_us",
     .used = "cpu.cfs_period_us"},
};

static void look_at_time(const char *root, const struct layout *l, const char *path,
                         void *to, struct td_buf *b)
{
    double *least = to;
    char file[TD_MAX_PATH];
    (void)snprintf(file, sizeof(file), "%s%s/%s", l->mount, path, l->limit);
    slurp(root, file, b);
    int64_t quota = number_after(b->p, "", 0), period = 0;
    if (quota <= 0)
        return; /* "max", -1, or no such file */
    if (l->used) {
        (void)snprintf(file, sizeof(file), "%s%s/%s", l->mount, path, l->used);
        slurp(root, file, b);
        period = number_after(b->p, "", 0);
    } else {
        const char *space = strchr(b->p, ' ');
        period = space ? number_after(space + 1, "", 0) : 0;
    }
    if (period > 0)
        *least = fmin(*least, (double)quota / (double)period);
}

double td_sysmem_processors(const char *root)
{
    struct td_buf b, groups;
    double least = (double)INFINITY;
    td_buf_init(&b, (size_t)(1 * TD_MIB));
    td_buf_init(&groups, (size_t)(1 * TD_MIB));
    slurp(root, "proc/self/cgroup", &groups);
    for (size_t i = 0; i < TD_COUNT(time_layouts); i++)
        look_along_path(root, &time_layouts[i], groups.p, look_at_time, &least, &b);
    td_buf_release(&b);
    td_buf_release(&groups);
    return least;
}

/* ---- what is left ------------------------------------------------------------------ */

int64_t td_sysmem_available(const struct td_sysmem *m, char *why, size_t size)
{
    int64_t least = m->available;
    char text[TD_SYSMEM_NAME_MAX + 160];
    (void)snprintf(text, sizeof(text), "%s of this host's %s are available",
                   td_size_text(m->available, 1).text, td_size_text(m->total, 1).text);
    if (m->group_limit != INT64_MAX && m->group_limit - m->group_used < least) {
        least = m->group_limit - m->group_used;
        (void)snprintf(text, sizeof(text),
                       "the control group %s allows %s, %s of them used", m->group,
                       td_size_text(m->group_limit, 1).text,
                       td_size_text(m->group_used, 1).text);
    }
    if (m->space_limit != INT64_MAX && m->space_limit - m->space_used < least) {
        least = m->space_limit - m->space_used;
        (void)snprintf(text, sizeof(text),
                       "the address space is limited to %s (ulimit -v)",
                       td_size_text(m->space_limit, 1).text);
    }
    if (m->data_limit != INT64_MAX && m->data_limit - m->data_used < least) {
        least = m->data_limit - m->data_used;
        (void)snprintf(text, sizeof(text), "data is limited to %s (ulimit -d)",
                       td_size_text(m->data_limit, 1).text);
    }
    if (size)
        (void)snprintf(why, size, "%s", text);
    return least > 0 ? least : 0;
}

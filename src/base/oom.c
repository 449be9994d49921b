/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills for lack of memory. See oom.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/oom.h"

#include "base/buf.h"
#include "base/limits.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number behind `key ` at the start of a line; -1 when there is none. */
static int64_t number_behind(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = text; p && *p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, key, n) == 0 && p[n] == ' ')
            return strtoll(p + n + 1, NULL, 10);
    }
    return -1;
}

/* proc and sys files report size 0, so td_file_read() does not take them. */
static bool read_small(const char *path, char *to, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0 && n < size - 1) {
        got = read(fd, to + n, size - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        (void)close(fd);
    to[n] = 0;
    return got >= 0 && n > 0;
}

/* Of a control group: version 2 ("0::/path"), or the memory controller of version 1
 * ("4:memory:/path"). `text` is room to work in. */
static int64_t group_count(const char *root, char *text, size_t size)
{
    static const struct {
        const char *mark, *below, *file;
    } kinds[] = {{":memory:", "/memory", "memory.oom_control"},
                 {"0::", "", "memory.events"}};
    char path[TD_MAX_PATH], own[TD_MAX_PATH];
    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (!read_small(path, own, sizeof(own)))
        return -1;
    for (size_t i = 0; i < TD_COUNT(kinds); i++) {
        const char *group = strstr(own, kinds[i].mark);
        if (!group)
            continue;
        group += strlen(kinds[i].mark);
        (void)snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%.*s/%s", root,
                       kinds[i].below, (int)strcspn(group, "\n"), group, kinds[i].file);
        if (read_small(path, text, size))
            return number_behind(text, "oom_kill");
    }
    return -1;
}

void td_oom_counts_read(const char *root, struct td_oom_counts *out)
{
    static const size_t size = 64 * TD_KIB;
    char path[TD_MAX_PATH];
    struct td_buf text;
    *out = (struct td_oom_counts){.host = -1, .group = -1};
    td_buf_init(&text, size);
    if (td_buf_reserve(&text, size) != TD_OK)
        return;
    (void)snprintf(path, sizeof(path), "%s/proc/vmstat", root);
    if (read_small(path, text.p, size))
        out->host = number_behind(text.p, "oom_kill");
    out->group = group_count(root, text.p, size);
    td_buf_release(&text);
}

int64_t td_oom_counts_all(const struct td_oom_counts *c)
{
    return TD_MAX(TD_MAX(c->host, c->group), 0);
}

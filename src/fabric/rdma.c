/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA devices, their ports and tables of addresses, from /sys/class/infiniband. See
 * facts.h. (Developed against recorded trees; not run on hardware.)
 */
#define _POSIX_C_SOURCE 200809L
#include "fabric/fabric_int.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GID_ENTRIES = 256, STATE_ACTIVE = 4 };

static void read_gids(const char *port, struct td_rdma *r)
{
    for (int i = 0; i < GID_ENTRIES && r->n_gids < TD_FACT_GIDS; i++) {
        struct td_gid g = {.index = i};
        if (!td_small_file(g.text, sizeof(g.text), "%s/gids/%d", port, i))
            return;
        /* free entries read as zero, and their type cannot be read at all */
        if (strspn(g.text, "0:") == strlen(g.text) ||
            !td_small_file(g.type, sizeof(g.type), "%s/gid_attrs/types/%d", port, i))
            continue;
        (void)td_small_file(g.iface, sizeof(g.iface), "%s/gid_attrs/ndevs/%d", port, i);
        r->gids[r->n_gids++] = g;
    }
}

static void read_ports(const char *root, const char *device, struct td_facts *f)
{
    char dir[TD_MAX_PATH], text[TD_FACT_NAME];
    for (int port = 1; f->n_rdma < TD_FACT_RDMA; port++) {
        struct td_rdma *r = &f->rdma[f->n_rdma];
        (void)snprintf(dir, sizeof(dir), "%s/sys/class/infiniband/%s/ports/%d", root,
                       device, port);
        if (!td_small_file(text, sizeof(text), "%s/state", dir))
            return;
        *r = (struct td_rdma){.port = port};
        r->active = td_text_int(text, 0) == STATE_ACTIVE;
        td_text_copy(r->device, sizeof(r->device), device);
        if (td_small_file(text, sizeof(text), "%s/link_layer", dir))
            r->ethernet = strcmp(text, "Ethernet") == 0;
        if (td_small_file(text, sizeof(text), "%s/rate", dir))
            r->gbit = strtod(text, NULL);
        if (!(r->gbit >= 0 && r->gbit < 1e6))
            r->gbit = 0;
        read_gids(dir, r);
        f->n_rdma++;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

void td_facts_read_rdma(const char *root, struct td_facts *f)
{
    char path[TD_MAX_PATH], names[TD_FACT_RDMA][TD_FACT_IFNAME];
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "%s/sys/class/infiniband", root);
    DIR *d = opendir(path);
    for (struct dirent *e; d && n < TD_FACT_RDMA && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && strlen(e->d_name) < TD_FACT_IFNAME)
            td_text_copy(names[n++], sizeof(names[0]), e->d_name);
    if (d)
        (void)closedir(d);
    qsort(names, n, sizeof(names[0]), by_name);
    for (size_t i = 0; i < n; i++)
        read_ports(root, names[i], f);
}

/* An IPv4 address as the table of a RoCE port has it. */
static bool as_gid(const char *addr, char *out, size_t size)
{
    unsigned char a[4];
    if (inet_pton(AF_INET, addr, a) != 1)
        return false;
    (void)snprintf(out, size, "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a[0],
                   a[1], a[2], a[3]);
    return true;
}

const struct td_rdma *td_facts_rdma(const struct td_facts *f, const char *iface,
                                    const char *addr, int64_t *gid)
{
    const struct td_rdma *found = NULL;
    char want[TD_FACT_ADDR] = "";
    *gid = -1;
    (void)as_gid(addr, want, sizeof(want));
    for (int64_t i = 0; i < f->n_rdma; i++) {
        const struct td_rdma *r = &f->rdma[i];
        for (int64_t k = 0; k < r->n_gids && r->active; k++) {
            const struct td_gid *g = &r->gids[k];
            if (strcmp(g->iface, iface) != 0)
                continue;
            if (!found)
                found = r;
            if (*gid < 0 && strcmp(g->type, "RoCE v2") == 0 &&
                strcmp(g->text, want) == 0) {
                found = r;
                *gid = g->index;
            }
        }
    }
    return found;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of several hosts, and the settings that pin all layers to its network. See
 * cluster.h.
 */
#include "fabric/cluster.h"

#include "base/buf.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void td_cluster_release(struct td_cluster *c)
{
    for (int i = 0; i < c->n; i++) {
        if (c->hosts[i].facts)
            td_free(c->hosts[i].facts->files);
        td_free(c->hosts[i].facts);
    }
    td_free(c->hosts);
    td_free(c->links);
    td_free(c->lines);
    *c = (struct td_cluster){0};
}

struct td_error *td_cluster_say(struct td_cluster *c, enum td_verdict verdict, int host,
                                const char *topic)
{
    struct td_check_line *v = td_realloc(c->lines, (size_t)c->n_lines + 1, sizeof(*v));
    if (!v) {
        c->lost = true;
        return NULL;
    }
    c->lines = v;
    v = &v[c->n_lines++];
    *v = (struct td_check_line){.verdict = verdict, .host = host, .topic = topic};
    td_error_init(&v->e);
    if (host >= 0 && host < c->n)
        td_text_copy(v->e.host, sizeof(v->e.host), c->hosts[host].label);
    return &v->e;
}

void td_cluster_pass(struct td_cluster *c, int host, const char *topic,
                     const char *what, ...)
{
    struct td_error *e = td_cluster_say(c, TD_PASS, host, topic);
    va_list ap;
    if (!e)
        return;
    va_start(ap, what);
    (void)vsnprintf(e->what, sizeof(e->what), what, ap);
    va_end(ap);
}

const struct td_check_line *td_cluster_failure(const struct td_cluster *c)
{
    for (int i = 0; i < c->n_lines; i++)
        if (c->lines[i].verdict == TD_FAIL)
            return &c->lines[i];
    return NULL;
}

/* ---- pinning ------------------------------------------------------------------------ */

struct list {
    struct td_pin *v;
    int n;
};

static void pin(struct list *l, const char *name, const char *fmt, ...) TD_PRINTF(3, 4);

static void pin(struct list *l, const char *name, const char *fmt, ...)
{
    struct td_pin *p = &l->v[l->n++];
    va_list ap;
    (void)snprintf(p->name, sizeof(p->name), "%s", name);
    va_start(ap, fmt);
    (void)vsnprintf(p->value, sizeof(p->value), fmt, ap);
    va_end(ap);
}

int td_cluster_pins(const struct td_cluster *c, int host,
                    struct td_pin pins[TD_PIN_MAX])
{
    struct list l = {pins, 0};
    const struct td_cluster_host *h = &c->hosts[host];
    if (c->n < 2)
        return 0;
    pin(&l, "OMPI_MCA_oob_tcp_if_include", "%s", c->cidr);
    pin(&l, "OMPI_MCA_btl_tcp_if_include", "%s", c->cidr);
    pin(&l, "OMPI_MCA_oob_tcp_dynamic_ipv4_ports", "%d-%d", TD_PORT_OOB_FIRST,
        TD_PORT_OOB_FIRST + TD_PORT_OOB_COUNT - 1);
    pin(&l, "OMPI_MCA_btl_tcp_port_min_v4", "%d", TD_PORT_MPI_FIRST);
    pin(&l, "OMPI_MCA_btl_tcp_port_range_v4", "%d", TD_PORT_MPI_COUNT);
    pin(&l, "GLOO_SOCKET_IFNAME", "%s", h->iface);
    /* NCCL takes a bare name as the beginning of names; "=" means exactly this one. */
    pin(&l, "NCCL_SOCKET_IFNAME", "=%s", h->iface);
    pin(&l, "NCCL_SOCKET_FAMILY", "AF_INET");
    if (!*h->rdma) {
        pin(&l, "UCX_NET_DEVICES", "%s", h->iface);
        pin(&l, "NCCL_IB_DISABLE", "1");
        return l.n;
    }
    pin(&l, "UCX_NET_DEVICES", "%s:%" PRId64, h->rdma, h->rdma_port);
    pin(&l, "NCCL_IB_HCA", "=%s:%" PRId64, h->rdma, h->rdma_port);
    if (h->gid >= 0) {
        pin(&l, "UCX_IB_GID_INDEX", "%" PRId64, h->gid);
        pin(&l, "NCCL_IB_GID_INDEX", "%" PRId64, h->gid);
    }
    return l.n;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the device, and joining the GPUs of several ranks. See device.h.
 */
#include "engine/device.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct opener {
    const struct td_engine_params *p;
    struct td_comm *comm;
    struct td_dev *dev;
};

static enum td_status open_cpu(struct opener *o, struct td_dev_params *dev,
                               struct td_error *err)
{
    dev->budget = INT64_MAX; /* the plan decides */
    if (o->p->common_level)
        dev->level = o->p->common_level;
    return td_cpu_open(dev, &o->dev, err);
}

static enum td_status open_gpu(struct opener *o, struct td_dev_params *dev,
                               struct td_error *err)
{
    dev->budget = (size_t)o->p->memory;
    return td_cuda_open(dev, &o->dev, err);
}

int td_engine_gpu(const char *device)
{
    int n = 0;
    if (strcmp(device, "auto") == 0)
        return 0;
    if (strncmp(device, "cuda", 4) != 0)
        return -1;
    if (device[4] == '\0')
        return 0;
    if (device[4] != ':' || device[5] == '\0' || strlen(device) > 8)
        return -1;
    for (const char *c = device + 5; *c; c++) {
        if (*c < '0' || *c > '9')
            return -1;
        n = n * 10 + (*c - '0');
    }
    return n;
}

static void close_dev(struct opener *o)
{
    if (o->dev)
        o->dev->ops.close(o->dev);
    o->dev = NULL;
}

/* A GPU if every rank has one, else the processor. */
static enum td_status open_any(struct opener *o, struct td_dev_params *dev,
                               struct td_error *err)
{
    struct td_error none;
    int64_t all = 0;
    td_error_init(&none);
    enum td_status s = o->p->level ? TD_E_NO_DEVICE : open_gpu(o, dev, &none);
    if (s != TD_OK && s != TD_E_NO_DEVICE) {
        if (err)
            *err = none;
        return s;
    }
    all = s == TD_OK;
    s = td_comm_min(o->comm, &all, 1, err);
    if (s != TD_OK || all)
        return s;
    close_dev(o);
    return open_cpu(o, dev, err);
}

/* ---- joining ---- */

/* Where a rank's GPU is. */
struct seat {
    char host[TD_ERROR_HOST_MAX], place[TD_JOIN_PLACE];
    bool can;
};

struct decision {
    bool direct;
    unsigned char id[TD_JOIN_ID];
};

static bool all_apart(const struct seat *s, int n)
{
    for (int i = 0; i < n; i++) {
        if (!s[i].can)
            return false;
        for (int k = 0; k < i; k++)
            if (strcmp(s[i].host, s[k].host) == 0 &&
                strcmp(s[i].place, s[k].place) == 0)
                return false;
    }
    return true;
}

/* On rank 0: can all be joined directly? */
static void decide(const struct opener *o, const struct seat *seats,
                   struct decision *out)
{
    struct td_error err;
    td_error_init(&err);
    out->direct = all_apart(seats, o->comm->ranks);
    if (out->direct && o->dev->ops.join_id(o->dev, out->id, &err) != TD_OK) {
        td_event_error(&err);
        out->direct = false;
    }
}

static enum td_status sum_on_host(void *self, float *x, size_t n, struct td_error *err)
{
    struct td_comm *c = self;
    return c->ops->all_reduce(c, x, n, err);
}

/* What does not work directly, for whatever reason, goes through the hosts. */
static enum td_status join_as(struct opener *o, struct td_join *how,
                              struct td_error *err)
{
    struct td_error failed;
    int64_t joined = 1;
    td_error_init(&failed);
    if (!how->direct)
        return o->dev->ops.join(o->dev, how, err);
    if (o->dev->ops.join(o->dev, how, &failed) != TD_OK) {
        td_event_error(&failed);
        joined = 0;
    }
    enum td_status s = td_comm_min(o->comm, &joined, 1, err);
    if (s != TD_OK || joined)
        return s;
    how->direct = false;
    return o->dev->ops.join(o->dev, how, err);
}

static enum td_status join(struct opener *o, struct td_error *err)
{
    struct td_comm *c = o->comm;
    struct seat mine = {.can = false}, *seats = NULL;
    struct decision d = {.direct = false};
    enum td_status s = TD_OK;
    (void)snprintf(mine.host, sizeof(mine.host), "%s", td_comm_host(c, c->rank));
    mine.can = o->dev->ops.join_place(o->dev, mine.place);
    seats = td_calloc((size_t)c->ranks, sizeof(*seats));
    if (!seats)
        return td_error_set(err, TD_E_NOMEM, "no memory for a list of ranks");
    s = c->ops->gather(c, &mine, sizeof(mine), seats, err);
    if (s == TD_OK && c->rank == 0)
        decide(o, seats, &d);
    if (s == TD_OK)
        s = c->ops->broadcast(c, &d, sizeof(d), err);
    struct td_join how = {.rank = c->rank,
                          .ranks = c->ranks,
                          .direct = d.direct,
                          .deadline = c->deadline,
                          .sum = sum_on_host,
                          .self = c};
    memcpy(how.id, d.id, sizeof(how.id));
    if (s == TD_OK)
        s = join_as(o, &how, err);
    if (s == TD_OK)
        td_event("joined", (struct td_num[]){{"direct", how.direct}, {NULL, 0}});
    td_free(seats);
    return s;
}

/* Nobody waits for a rank that has no device to join with. */
static enum td_status all_open(const struct opener *o, enum td_status s,
                               struct td_error *err)
{
    int64_t good = s == TD_OK;
    enum td_status t = td_comm_min(o->comm, &good, 1, s == TD_OK ? err : NULL);
    if (s != TD_OK || t != TD_OK)
        return s != TD_OK ? s : t;
    return good
               ? TD_OK
               : td_error_set(err, TD_E_PEER, "another rank could not open its device");
}

enum td_status td_engine_device_open(const struct td_engine_params *p,
                                     struct td_dev **out, struct td_error *err)
{
    const char *name = p->device ? p->device : "auto";
    struct opener o = {.p = p, .comm = p->comm ? p->comm : td_comm_self()};
    struct td_dev_params dev = {.numerics = p->numerics,
                                .threads = p->threads,
                                .local_rank = o.comm->local_rank,
                                .local_ranks = o.comm->local_ranks,
                                .level = p->level,
                                .no_graphs = p->no_graphs};
    enum td_status s = TD_OK;
    if (strcmp(name, "auto") == 0) {
        s = open_any(&o, &dev, err);
    } else if (strcmp(name, "cpu") == 0) {
        s = open_cpu(&o, &dev, err);
    } else if ((dev.device = td_engine_gpu(name)) >= 0) {
        s = open_gpu(&o, &dev, err);
    } else {
        s = td_error_set(err, TD_E_USAGE, "there is no device \"%.32s\"", name);
        td_error_why(err, "devices are auto, cpu, cuda and cuda:N");
    }
    s = all_open(&o, s, err);
    if (s == TD_OK && o.dev && o.comm->ranks > 1 && o.dev->ops.join)
        s = join(&o, err);
    if (s == TD_OK)
        *out = o.dev;
    else
        close_dev(&o);
    return s;
}

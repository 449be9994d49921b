/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores and NUMA nodes by hwloc. See cores.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/cores.h"

#include "base/cpu.h"
#include "base/mem.h"
#include "base/sysmem.h"
#include "base/team.h"

#include <hwloc.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

struct td_cores {
    hwloc_topology_t topology;
    hwloc_bitmap_t all;   /* processors that the process may use */
    hwloc_bitmap_t share; /* those of this rank */
    hwloc_bitmap_t nodes; /* memory next to them */
    bool real, crowded;
    int threads, n_nodes;
    hwloc_bitmap_t set[TD_TEAM_MAX_THREADS]; /* of each thread */
    int node[TD_TEAM_MAX_THREADS];           /* its node, counted within `nodes` */
};

/* What the process was given, before any of its threads was bound. */
static pthread_mutex_t given_lock = PTHREAD_MUTEX_INITIALIZER;
static hwloc_bitmap_t given;

static void keep_given(struct td_cores *c)
{
    (void)pthread_mutex_lock(&given_lock);
    if (!given) {
        given = hwloc_bitmap_alloc();
        if (given && hwloc_get_cpubind(c->topology, given, HWLOC_CPUBIND_THREAD) != 0)
            hwloc_bitmap_zero(given);
    }
    if (given && hwloc_bitmap_intersects(c->all, given))
        (void)hwloc_bitmap_and(c->all, c->all, given);
    (void)pthread_mutex_unlock(&given_lock);
}

static enum td_status load_topology(struct td_cores *c, const char *synthetic,
                                    struct td_error *err)
{
    if (hwloc_topology_init(&c->topology) != 0)
        return td_error_set(err, TD_E_NOMEM, "no memory for the host's topology");
    if (synthetic && hwloc_topology_set_synthetic(c->topology, synthetic) != 0)
        return td_error_set(err, TD_E_USAGE, "\"%s\" is no topology", synthetic);
    if (hwloc_topology_load(c->topology) != 0)
        return td_error_set(err, TD_E_NOMEM, "the host's topology cannot be read");
    c->real = hwloc_topology_is_thissystem(c->topology);
    return TD_OK;
}

/* Cores, or processors where the system tells of no cores. */
static hwloc_obj_t core_at(const struct td_cores *c, int i)
{
    hwloc_obj_t core = hwloc_get_obj_by_type(c->topology, HWLOC_OBJ_CORE, (unsigned)i);
    return core || hwloc_get_nbobjs_by_type(c->topology, HWLOC_OBJ_CORE) > 0
               ? core
               : hwloc_get_obj_by_type(c->topology, HWLOC_OBJ_PU, (unsigned)i);
}

/* The next core from *at on that has one of `within`'s processors. */
static hwloc_obj_t next_core(const struct td_cores *c, hwloc_const_bitmap_t within,
                             int *at)
{
    hwloc_obj_t core = core_at(c, *at);
    while (core && !hwloc_bitmap_intersects(core->cpuset, within))
        core = core_at(c, ++*at);
    ++*at;
    return core;
}

static int count_cores(const struct td_cores *c, hwloc_const_bitmap_t within)
{
    int at = 0, n = 0;
    while (next_core(c, within, &at))
        n++;
    return n;
}

/* This rank's part of all cores. */
static void take_share(struct td_cores *c, const struct td_cores_params *p)
{
    int cores = count_cores(c, c->all), at = 0;
    int ranks = TD_MAX(p->ranks, 1), rank = TD_MIN(TD_MAX(p->rank, 0), ranks - 1);
    int first = (int)((int64_t)cores * rank / ranks);
    int last = (int)((int64_t)cores * (rank + 1) / ranks);
    for (int i = 0; i < TD_MAX(last, first + 1); i++) {
        hwloc_obj_t core = next_core(c, c->all, &at);
        if (!core || i < first)
            continue;
        (void)hwloc_bitmap_or(c->share, c->share, core->cpuset);
        (void)hwloc_bitmap_or(c->nodes, c->nodes, core->nodeset);
    }
    (void)hwloc_bitmap_and(c->share, c->share, c->all);
    c->crowded = ranks > cores;
    c->n_nodes = TD_MAX(hwloc_bitmap_weight(c->nodes), 1);
}

static int node_index(const struct td_cores *c, hwloc_obj_t near)
{
    int index = 0, node = hwloc_bitmap_first(near->nodeset);
    for (int n = hwloc_bitmap_first(c->nodes); n >= 0 && n != node;
         n = hwloc_bitmap_next(c->nodes, n))
        index++;
    return index < c->n_nodes ? index : 0;
}

/* The processor number `i` of the share, counting the first of each core, then the
 * second of each, and so on. */
static int processor_at(const struct td_cores *c, int i)
{
    for (int level = 0;; level++) {
        int at = 0;
        bool any = false;
        for (hwloc_obj_t core = next_core(c, c->share, &at); core;
             core = next_core(c, c->share, &at)) {
            int pu = -1, left = level + 1;
            while (left > 0 && (pu = hwloc_bitmap_next(core->cpuset, pu)) >= 0)
                left -= hwloc_bitmap_isset(c->share, (unsigned)pu) != 0;
            if (pu < 0)
                continue;
            any = true;
            if (i-- == 0)
                return pu;
        }
        if (!any)
            return hwloc_bitmap_first(c->share);
    }
}

/* Threads lie evenly over the share's cores. */
static void assign(struct td_cores *c, int thread, int cores)
{
    int processors = hwloc_bitmap_weight(c->share), at = 0;
    int wanted = (int)((int64_t)thread * cores / c->threads);
    hwloc_obj_t core = next_core(c, c->share, &at);
    for (int i = 0; i < wanted; i++)
        core = next_core(c, c->share, &at);
    c->node[thread] = core ? node_index(c, core) : 0;
    if (!core)
        return;
    hwloc_bitmap_t set = c->set[thread];
    if (c->threads > cores && c->threads <= processors) {
        unsigned pu = (unsigned)processor_at(c, thread);
        hwloc_obj_t near = hwloc_get_pu_obj_by_os_index(c->topology, pu);
        (void)hwloc_bitmap_only(set, pu);
        c->node[thread] = near ? node_index(c, near) : 0;
    } else if (c->threads == cores)
        (void)hwloc_bitmap_and(set, core->cpuset, c->share);
    else
        (void)hwloc_cpuset_from_nodeset(c->topology, set, core->nodeset);
    (void)hwloc_bitmap_and(set, set, c->share);
}

/* All that the process may use, on this host or in the synthetic topology. */
static void find_all(struct td_cores *c)
{
    (void)hwloc_bitmap_copy(c->all, hwloc_topology_get_allowed_cpuset(c->topology));
    if (c->real)
        keep_given(c);
}

static enum td_status fill(struct td_cores *c, const struct td_cores_params *p,
                           struct td_error *err)
{
    enum td_status s = load_topology(c, p->synthetic, err);
    if (s != TD_OK)
        return s;
    c->all = hwloc_bitmap_alloc();
    c->share = hwloc_bitmap_alloc();
    c->nodes = hwloc_bitmap_alloc();
    if (!c->all || !c->share || !c->nodes)
        return td_error_set(err, TD_E_NOMEM, "no memory for the host's topology");
    find_all(c);
    take_share(c, p);
    int cores = TD_MAX(count_cores(c, c->share), 1);
    double time = td_sysmem_processors(p->root ? p->root : "") / TD_MAX(p->ranks, 1);
    c->threads = p->threads > 0 ? p->threads : (int)fmax(fmin(cores, floor(time)), 1);
    c->threads = TD_MIN(c->threads, TD_TEAM_MAX_THREADS);
    c->crowded = c->crowded || c->threads > hwloc_bitmap_weight(c->share);
    for (int i = 0; i < c->threads; i++) {
        c->set[i] = hwloc_bitmap_alloc();
        if (!c->set[i])
            return td_error_set(err, TD_E_NOMEM, "no memory for the host's topology");
        assign(c, i, cores);
    }
    return TD_OK;
}

enum td_status td_cores_new(const struct td_cores_params *params, struct td_cores **out,
                            struct td_error *err)
{
    struct td_cores *c = td_calloc(1, sizeof(*c));
    if (!c)
        return td_error_set(err, TD_E_NOMEM, "no memory for the host's topology");
    enum td_status s = fill(c, params, err);
    if (s == TD_OK)
        *out = c;
    else
        td_cores_free(c);
    return s;
}

void td_cores_free(struct td_cores *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->threads; i++)
        hwloc_bitmap_free(c->set[i]);
    hwloc_bitmap_free(c->all);
    hwloc_bitmap_free(c->share);
    hwloc_bitmap_free(c->nodes);
    if (c->topology)
        hwloc_topology_destroy(c->topology);
    td_free(c);
}

int td_cores_threads(const struct td_cores *c)
{
    return c->threads;
}

bool td_cores_crowded(const struct td_cores *c)
{
    return c->crowded;
}

int td_cores_nodes(const struct td_cores *c)
{
    return c->n_nodes;
}

int td_cores_node_of(const struct td_cores *c, int thread)
{
    return c->node[thread];
}

void td_cores_list(const struct td_cores *c, int thread, char *out, size_t size)
{
    (void)hwloc_bitmap_list_snprintf(out, size, c->set[thread]);
}

static void bind_to(const struct td_cores *c, hwloc_const_bitmap_t set)
{
    if (c->real && !hwloc_bitmap_iszero(set))
        (void)hwloc_set_cpubind(c->topology, set, HWLOC_CPUBIND_THREAD);
}

void td_cores_bind(const struct td_cores *c, int thread)
{
    bind_to(c, c->set[thread]);
}

void td_cores_unbind(const struct td_cores *c)
{
    bind_to(c, c->all);
}

void td_cores_place(const struct td_cores *c, int thread)
{
    static _Thread_local int placed = -2; /* node, or -1: all */
    int node = thread < 0 ? -1 : c->node[thread];
    if (!c->real || c->n_nodes == 1 || node == placed)
        return;
    placed = node;
    hwloc_const_bitmap_t near = thread < 0 ? c->share : c->set[thread];
    (void)hwloc_set_membind(c->topology, near,
                            thread < 0 ? HWLOC_MEMBIND_INTERLEAVE : HWLOC_MEMBIND_BIND,
                            HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_NOCPUBIND);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Second facts that need arithmetic: addresses against the ones seen elsewhere, memory
 * figures against each other, steps against what should have followed.
 */
#include "explain/rules_def.h"

#include "explain/explain_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    DROP = -1000,
    SILENT = 40 /* nothing failed and nothing more came: it hangs here */
};

static const char *const address_facts[] = {"ray_node", "ray_head", "ray_peer",
                                            "nccl_ip"};

static uint32_t net24(uint32_t ip)
{
    return ip & 0xffffff00U;
}

int td_check_node_ip(const struct td_explain *x, const struct td_hit *hit)
{
    if (!td_fact_get(x, "ray_node"))
        return 0;
    const struct td_fact *f;
    for (size_t i = 0; (f = td_fact_at(x, "ray_node", i)) != NULL; i++)
        if (strcmp(f->value, hit->caps[0]) == 0)
            return -12; /* Ray knows the node: rather too few GPUs */
    return 11;
}

/* $1 nodes and $2 addresses: fewer than the nodes means shared ones, more means that a
 * node is known under two. */
int td_check_fewer_ips(const struct td_explain *x, const struct td_hit *hit)
{
    return td_check_surplus_ips(x, hit) == 0 ? DROP : 0;
}

int td_check_surplus_ips(const struct td_explain *x, const struct td_hit *hit)
{
    long nodes = strtol(hit->caps[0], NULL, 10), ips = strtol(hit->caps[1], NULL, 10);
    (void)x;
    return nodes > 0 && ips > nodes ? 0 : DROP;
}

static bool is_bridge(uint32_t ip)
{
    return ip >> 24 == 172 && (ip >> 16 & 0xff) >= 17 && (ip >> 16 & 0xff) <= 31;
}

/* Whether another address of the same /16 than ip was seen in use. */
static bool others_share_16(const struct td_explain *x, uint32_t ip)
{
    for (size_t n = 0; n < sizeof(address_facts) / sizeof(address_facts[0]); n++) {
        const struct td_fact *f;
        for (size_t i = 0; (f = td_fact_at(x, address_facts[n], i)) != NULL; i++) {
            uint32_t other = td_ip_parse(f->value);
            if (other != ip && other >> 16 == ip >> 16)
                return true;
        }
    }
    return false;
}

int td_check_store_bridge(const struct td_explain *x, const struct td_hit *hit)
{
    uint32_t ip = td_ip_parse(hit->caps[0]);
    if (!is_bridge(ip))
        return DROP;
    /* a real network of that range (clouds use 172.31) */
    return others_share_16(x, ip) || (ip >> 16 & 0xff) == 31 ? -40 : 0;
}

int td_check_store_plain(const struct td_explain *x, const struct td_hit *hit)
{
    const struct td_hit bare = {.caps = {hit->caps[1]}};
    return td_check_store_bridge(x, &bare) == 0 ? -30 : 0;
}

int td_check_store_apart(const struct td_explain *x, const struct td_hit *hit)
{
    uint32_t ip = td_ip_parse(hit->caps[1]);
    bool any = false;
    if (ip == 0 || td_check_store_plain(x, hit) != 0)
        return DROP;
    for (size_t n = 0; n < sizeof(address_facts) / sizeof(address_facts[0]); n++) {
        const struct td_fact *f;
        for (size_t i = 0; (f = td_fact_at(x, address_facts[n], i)) != NULL; i++) {
            uint32_t other = td_ip_parse(f->value);
            any = any || other != 0;
            if (net24(other) == net24(ip))
                return DROP;
        }
    }
    return any ? 0 : DROP;
}

int td_check_same_subnet(const struct td_explain *x, const struct td_hit *hit)
{
    uint32_t nets[16];
    size_t n = 0;
    (void)x;
    for (const char *p = hit->caps[0]; (p = strchr(p, ':')) != NULL && n < 16;) {
        char text[16];
        size_t k = strspn(++p, "0123456789.");
        if (k < 7 || k >= sizeof(text))
            continue;
        memcpy(text, p, k);
        text[k] = 0;
        uint32_t net = net24(td_ip_parse(text));
        for (size_t i = 0; i < n && net; i++)
            if (nets[i] == net)
                return 0;
        nets[n++] = net;
    }
    return DROP;
}

/* --- free memory at the start: ($2 of $3 GiB, fraction $4 = $5 GiB) --- */

struct free_figures {
    double free, total, desired;
    bool known, unified;
};

static struct free_figures figures(const struct td_explain *x, const struct td_hit *hit)
{
    struct free_figures f = {strtod(hit->caps[1], NULL), strtod(hit->caps[2], NULL),
                             strtod(hit->caps[4], NULL), false, false};
    f.known = f.free >= 0 && f.total > 0 && f.desired > 0;
    /* 128 GB in one pool show as 119 to 125 GiB; no separate GPU memory has that size */
    f.unified = td_fact_get(x, "unified_gpu") || (f.total > 115 && f.total < 127);
    return f;
}

static bool is_close(const struct free_figures *f)
{
    /* a few GiB are always taken on a discrete GPU; a machine with one pool has a floor */
    double used = f->total - f->free, gap = f->desired - f->free;
    return !f->known || (f->unified ? gap < 0.08 * f->total : used < 4.0);
}

int td_check_free_close(const struct td_explain *x, const struct td_hit *hit)
{
    struct free_figures f = figures(x, hit);
    if (!f.known)
        return -10;
    return is_close(&f) ? 10 : f.unified ? -16 : -12;
}

int td_check_free_unified(const struct td_explain *x, const struct td_hit *hit)
{
    struct free_figures f = figures(x, hit);
    if (!f.known)
        return -20;
    return f.unified && !is_close(&f) ? 4 : DROP;
}

int td_check_free_held(const struct td_explain *x, const struct td_hit *hit)
{
    struct free_figures f = figures(x, hit);
    if (!f.known)
        return -8;
    if (is_close(&f))
        return DROP;
    return f.unified ? -3 : 12;
}

int td_check_restarts(const struct td_explain *x, const struct td_hit *hit)
{
    double first = -1, last = -1;
    size_t n = 0;
    for (size_t i = 0; i < x->nhits; i++) {
        const struct td_hit *h = &x->hits[i];
        if (h->rule != hit->rule || h->source != hit->source || !*h->caps[1])
            continue;
        last = strtod(h->caps[1], NULL);
        first = n++ == 0 ? last : first;
    }
    return n >= 3 && last < first ? 0 : DROP;
}

/* --- hangs --- */

static bool nothing_failed(const struct td_explain *x)
{
    for (size_t i = 0; i < x->nhits; i++) {
        const struct td_rule *r = td_rule_at(x->hits[i].rule);
        if (r->role == TD_ROLE_EFFECT ||
            (r->role == TD_ROLE_CAUSE && r->weight >= 30) ||
            strncmp(r->id, "generic/", 8) == 0)
            return false;
    }
    return true;
}

static uint32_t times_seen(const struct td_explain *x, const char *id)
{
    uint64_t r;
    return td_map_get(&x->rule_of, id, strlen(id), &r) ? x->rule_counts[r].seen : 0;
}

/* Whether an engine speaks in these files, and not a bare communication test. */
static bool has_engine(const struct td_explain *x)
{
    return td_fact_get(x, "vllm_version") || td_fact_get(x, "tp") ||
           td_rule_was_seen(x, "step/sglang-args") ||
           td_rule_was_seen(x, "step/world") ||
           td_rule_was_seen(x, "step/dist-begin") ||
           td_rule_was_seen(x, "step/vllm-engine") ||
           td_rule_was_seen(x, "step/capture") ||
           td_rule_was_seen(x, "nccl/queue-sglang") ||
           td_rule_was_seen(x, "noise/custom-allreduce");
}

int td_check_hangs_here(const struct td_explain *x, const struct td_hit *hit)
{
    const struct td_source *src = &x->sources[hit->source];
    const struct td_rule *r = td_rule_at(hit->rule);
    bool here = src->step == hit->step || src->step <= TD_STEP_COMM_DONE;
    if (strcmp(r->id, "nccl/start-hang") == 0 &&
        times_seen(x, "step/nccl-start") <= times_seen(x, "step/nccl-complete"))
        return DROP;
    if (!nothing_failed(x))
        return 0;
    if (!here || !has_engine(x))
        return DROP;
    return SILENT;
}

/* --- others --- */

/* The fact that the rule needs first has different values in different files. */
int td_check_two_values(const struct td_explain *x, const struct td_hit *hit)
{
    const char *needs = td_rule_at(hit->rule)->needs;
    char name[48];
    size_t n = strcspn(needs, " ");
    if (n >= sizeof(name))
        return DROP;
    memcpy(name, needs, n);
    name[n] = 0;
    const struct td_fact *a = td_fact_at(x, name, 0), *b;
    for (size_t i = 1; a && (b = td_fact_at(x, name, i)) != NULL; i++)
        if (b->source != a->source)
            return 0;
    return DROP;
}

int td_check_joined_two(const struct td_explain *x, const struct td_hit *hit)
{
    long came = strtol(hit->caps[1], NULL, 10), all = strtol(hit->caps[2], NULL, 10);
    (void)x;
    /* one of two, or a whole host's share: half of the ranks, or a third of them */
    return all == 2 || (came > 1 && all > came && all % came == 0) ? 2 : -8;
}

int td_check_arch_in_list(const struct td_explain *x, const struct td_hit *hit)
{
    char quoted[80];
    size_t n = strlen(hit->caps[0]);
    (void)x;
    if (n == 0 || n + 3 > sizeof(quoted))
        return DROP;
    quoted[0] = '\'';
    memcpy(quoted + 1, hit->caps[0], n);
    memcpy(quoted + 1 + n, "'", 2);
    return strstr(hit->caps[1], quoted) ? 12 : DROP;
}

int td_check_arch_not_in_list(const struct td_explain *x, const struct td_hit *hit)
{
    /* a list that was cut proves little, but names run in the order of the alphabet */
    return td_check_arch_in_list(x, hit) == DROP ? 0 : DROP;
}

int td_check_cut_config(const struct td_explain *x, const struct td_hit *hit)
{
    const char *backend = td_fact_get(x, "executor_backend");
    const char *gpus = td_fact_get(x, "gpus_total");
    const struct td_source *src = &x->sources[hit->source];
    if (backend && strcmp(backend, "ray") == 0)
        return -40;
    for (size_t i = 0; i < x->nhits; i++) /* the exception itself is there */
        if (strncmp(td_rule_at(x->hits[i].rule)->id, "generic/", 8) == 0 &&
            x->hits[i].source == hit->source &&
            !strstr(x->hits[i].text, "ngine core initialization failed"))
            return -40;
    if (!src->cut && src->has_head)
        return -40;
    return gpus ? 8 : 0;
}

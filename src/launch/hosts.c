/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining hosts: who is this machine, agents, facts, clocks. The networks follow in
 * hosts_net.c. See hosts.h.
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "launch/hosts_int.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "fabric/judge.h"
#include "fabric/resolve.h"
#include "launch/hostlist.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

enum { CLOCK_LOOKS = 3 };

/* Names are resolved one after the other: each has so long, all together so long. */
static const double resolve_seconds = 1.5, all_names_seconds = 3;

static const double start_seconds = 6, facts_seconds = 6, clock_seconds = 2;

/* Of a glance's time: until all agents are there, have told the time, and the facts. */
#define START_SHARE 0.65
#define CLOCK_SHARE 0.7
#define FACTS_SHARE 0.85

/* ---- the list ----------------------------------------------------------------------- */

static bool host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '.' || c == '-' || c == '_' || c == ':';
}

static enum td_status check_name(const char *name, size_t n, struct td_error *err)
{
    size_t good = 0;
    while (good < n && host_char(name[good]))
        good++;
    if (n > 0 && good == n && n < TD_FACT_TEXT && *name != '-')
        return TD_OK;
    td_error_set(err, TD_E_USAGE, "--hosts: \"%.*s\" is no host name",
                 (int)TD_MIN(n, 80), name);
    td_error_why(err, "hosts are names or addresses, divided by commas: a,b");
    if (memchr(name, '@', n))
        td_error_fix(err, "give the user with --ssh \"ssh -l USER\"");
    return TD_E_USAGE;
}

static enum td_status split(const char *hosts, struct td_cluster *c,
                            struct td_error *err)
{
    int n = 1;
    for (const char *p = hosts; *p; p++)
        n += *p == ',';
    if (n > TD_MAX_RANKS)
        return td_error_set(err, TD_E_LIMIT, "--hosts names more than %d hosts",
                            TD_MAX_RANKS);
    c->hosts = td_calloc((size_t)n, sizeof(*c->hosts));
    c->links = td_calloc((size_t)n * (size_t)n, sizeof(*c->links));
    if (!c->hosts || !c->links)
        return td_error_set(err, TD_E_NOMEM, "no memory for %d hosts", n);
    c->n = n;
    for (int i = 0; i < n; i++) {
        size_t len = strcspn(hosts, ",");
        enum td_status s = check_name(hosts, len, err);
        if (s != TD_OK)
            return s;
        memcpy(c->hosts[i].name, hosts, len);
        memcpy(c->hosts[i].label, hosts, len);
        c->hosts[i].gid = -1;
        hosts += len + (hosts[len] == ',');
        for (int k = 0; k < i; k++)
            if (strcmp(c->hosts[k].name, c->hosts[i].name) == 0) {
                td_error_set(err, TD_E_HOSTS, "--hosts names %s twice",
                             c->hosts[i].name);
                td_error_why(err, "ranks that share a host are asked for with --tp");
                return TD_E_HOSTS;
            }
    }
    return TD_OK;
}

/* ---- which one is this machine ------------------------------------------------------ */

/* The address that says so ("" when the name itself does); false for another machine. */
static bool is_this_machine(const char *name, double seconds, const char *self,
                            const struct td_facts *net, char *addr, size_t size)
{
    char list[TD_FACT_OWN][TD_FACT_ADDR];
    *addr = 0;
    int n = td_resolve(name, seconds, list, TD_FACT_OWN, NULL, 0);
    for (int i = 0; i < n; i++) {
        bool own = td_addr_is_loopback(list[i]);
        for (int64_t k = 0; k < net->n_addrs && !own; k++)
            own = strcmp(net->addrs[k].text, list[i]) == 0;
        if (own) {
            td_text_copy(addr, size, list[i]);
            return true;
        }
    }
    return strcmp(name, self) == 0;
}

static enum td_status two_are_one(const struct td_cluster *c, int a, int b,
                                  const char *addr, struct td_error *err)
{
    bool loop = td_addr_is_loopback(addr);
    enum td_status s = loop ? TD_E_NAME : TD_E_HOSTS;
    td_error_set(err, s, "%s and %s are both this machine", c->hosts[a].name,
                 c->hosts[b].name);
    td_error_why(err, "%s leads to %s here, which is an address of this machine%s",
                 c->hosts[b].name, *addr ? addr : "itself",
                 loop ? " and of no other (loopback)" : "");
    td_error_fix(err, "correct /etc/hosts, or give the other machine's address");
    return s;
}

static enum td_status nobody_is_here(const struct td_cluster *c, const char *self,
                                     struct td_error *err)
{
    td_error_set(err, TD_E_HOSTS, "this machine (%s) is not among the hosts", self);
    td_error_why(err,
                 "rank 0 runs where tandem is started; no name of the list leads to an "
                 "address of this machine");
    struct td_buf list;
    td_buf_init(&list, (size_t)TD_MAX_RANKS * TD_FACT_TEXT);
    for (int i = 0; i < c->n; i++)
        td_buf_addf(&list, ",%s", c->hosts[i].name);
    td_error_fix(err, "add it: --hosts %s%s", self, list.len ? list.p : ",...");
    td_buf_release(&list);
    return TD_E_HOSTS;
}

/* Finds this machine's entry and moves it to the front. */
static enum td_status order(struct td_cluster *c, double seconds, struct td_error *err)
{
    struct utsname u;
    struct td_facts *net = td_calloc(1, sizeof(*net));
    int here = -1;
    enum td_status s = TD_OK;
    if (!net)
        return td_error_set(err, TD_E_NOMEM, "no memory for this host's addresses");
    td_facts_read_net("", net);
    double end = td_clock_now() + seconds;
    const char *self = uname(&u) == 0 ? u.nodename : "localhost";
    for (int i = 0; i < c->n && s == TD_OK; i++) {
        char addr[TD_FACT_ADDR];
        double left = TD_MAX(end - td_clock_now(), 0.1);
        if (!is_this_machine(c->hosts[i].name, TD_MIN(left, resolve_seconds), self, net,
                             addr, sizeof(addr)))
            continue;
        if (here >= 0)
            s = two_are_one(c, here, i, addr, err);
        else
            here = i;
    }
    if (s == TD_OK && here < 0)
        s = nobody_is_here(c, self, err);
    if (s == TD_OK) {
        struct td_cluster_host h = c->hosts[here];
        for (int i = here; i > 0; i--)
            c->hosts[i] = c->hosts[i - 1];
        c->hosts[0] = h;
    }
    td_facts_release(net);
    td_free(net);
    return s;
}

/* ---- what each host says ------------------------------------------------------------ */

/* n empty request buffers; NULL when memory is short. */
static struct td_buf *requests_new(int n)
{
    struct td_buf *r = td_calloc((size_t)n, sizeof(*r));
    for (int i = 0; r && i < n; i++)
        td_buf_init(&r[i], TD_MAX_AGENT_LINE);
    return r;
}

static void requests_free(struct td_buf *r, int n)
{
    for (int i = 0; r && i < n; i++)
        td_buf_release(&r[i]);
    td_free(r);
}

bool td_join_ask(struct td_join *j, double seconds)
{
    int n = j->c->n;
    for (int i = 0; i < n; i++) {
        json_decref(j->answers[i]);
        j->answers[i] = NULL;
    }
    if (j->glance)
        seconds = TD_MIN(seconds, TD_MAX(j->end - td_clock_now(), 0));
    td_agents_ask(j->agents, n, j->requests, seconds, j->answers);
    bool all = true;
    for (int i = 0; i < n; i++) {
        td_buf_clear(&j->requests[i]);
        if (j->answers[i])
            td_agent_get_error(j->answers[i], &j->errors[i]);
        all = all && j->agents[i].up;
    }
    return all;
}

static void read_clocks(struct td_join *j)
{
    double best[TD_MAX_RANKS];
    for (int look = 0; look < (j->glance ? 1 : CLOCK_LOOKS); look++) {
        double asked = td_clock_wall();
        for (int i = 0; i < j->c->n; i++)
            td_buf_adds(&j->requests[i], "{\"do\":\"clock\"}");
        (void)td_join_ask(j, clock_seconds);
        for (int i = 0; i < j->c->n; i++) {
            const json_t *v = json_object_get(j->answers[i], "clock");
            double trip = j->agents[i].answered - asked;
            if (!json_is_number(v) || (look && trip >= best[i]))
                continue;
            best[i] = trip;
            j->c->hosts[i].clock =
                json_number_value(v) - (asked + j->agents[i].answered) / 2;
        }
    }
}

/* The same question about a model for all. */
static void ask_about(struct td_join *j, const char *what, const char *model)
{
    for (int i = 0; i < j->c->n; i++) {
        td_buf_addf(&j->requests[i], "{\"do\":%s,\"model\":", what);
        td_json_add_string(&j->requests[i], model, strlen(model));
        td_buf_addc(&j->requests[i], '}');
    }
}

/* How fast hosts read; one that cannot tell in time stays without rates. */
static void read_rates(struct td_join *j, const char *model)
{
    ask_about(j, "\"rates\"", model);
    (void)td_join_ask(j, facts_seconds);
    for (int i = 0; i < j->c->n; i++) {
        struct td_cluster_host *h = &j->c->hosts[i];
        const json_t *a = j->answers[i];
        const char *how = json_string_value(json_object_get(a, "disk_how"));
        if (!a)
            continue;
        h->memory_rate = TD_MAX(json_number_value(json_object_get(a, "memory")), 0);
        h->disk_rate = TD_MAX(json_number_value(json_object_get(a, "disk")), 0);
        td_text_copy(h->disk_how, sizeof(h->disk_how), how ? how : "");
    }
}

static void read_facts(struct td_join *j, const char *model, bool name)
{
    ask_about(j, name ? "\"facts\",\"name\":true" : "\"facts\"", model);
    (void)td_join_ask(j, facts_seconds);
    for (int i = 0; i < j->c->n; i++) {
        struct td_cluster_host *h = &j->c->hosts[i];
        struct td_agent *a = &j->agents[i];
        if (!j->answers[i] || a->e.code != TD_OK)
            continue;
        h->facts = td_calloc(1, sizeof(*h->facts));
        if (j->errors[i].code != TD_OK)
            a->e = j->errors[i];
        else if (!h->facts)
            td_error_set(&a->e, TD_E_NOMEM, "no memory for the facts of %s", h->name);
        else
            (void)td_facts_get(json_object_get(j->answers[i], "facts"), h->name,
                               h->facts, &a->e);
    }
}

static bool is_address(const char *name)
{
    return strspn(name, "0123456789.") == strlen(name) || strchr(name, ':');
}

/* People know hosts by their names. */
static void label_hosts(struct td_cluster *c)
{
    for (int i = 0; i < c->n; i++) {
        struct td_cluster_host *h = &c->hosts[i];
        bool alone = h->facts && *h->facts->host && is_address(h->name);
        for (int k = 0; k < c->n && alone; k++)
            alone = k == i || !c->hosts[k].facts ||
                    strcmp(c->hosts[k].facts->host, h->facts->host) != 0;
        if (alone)
            td_text_copy(h->label, sizeof(h->label), h->facts->host);
    }
}

/* A line for each agent that failed; true when none did. */
static bool report_agents(struct td_join *j)
{
    bool all = true;
    for (int i = 0; i < j->c->n; i++) {
        const struct td_error *e = &j->agents[i].e;
        if (e->code == TD_OK)
            continue;
        all = false;
        struct td_error *to = td_cluster_say(j->c, TD_FAIL, i, "ssh");
        if (!to)
            continue;
        char host[TD_ERROR_HOST_MAX];
        td_text_copy(host, sizeof(host), to->host);
        *to = *e;
        td_text_copy(to->host, sizeof(to->host), host);
    }
    return all;
}

/* mpirun enters hosts by their addresses of the chosen network: ssh has to accept those
 * as well as the names that were given. */
static void enter_by_address(struct td_join *j, const struct td_agent_start *start)
{
    int n = j->c->n;
    struct td_agent *a = td_agents_new(n);
    for (int i = 0; a && i < n; i++) {
        const struct td_cluster_host *h = &j->c->hosts[i];
        td_text_copy(a[i].name, sizeof(a[i].name), h->address);
        a[i].skip = i == 0 || strcmp(h->name, h->address) == 0;
    }
    if (a)
        td_agents_start(a, n, start);
    for (int i = 0; a && i < n; i++) {
        if (a[i].e.code == TD_OK)
            continue;
        struct td_error *e = td_cluster_say(j->c, TD_FAIL, i, "ssh");
        td_error_set(e, a[i].e.code, "%.400s (the address of %s in %s)", a[i].e.what,
                     j->c->hosts[i].label, j->c->cidr);
        td_error_why(e, "%s", a[i].e.why);
        td_error_fix(e, "%s", a[i].e.fix);
    }
    td_agents_free(a, n);
}

/* ---- the whole ---------------------------------------------------------------------- */

static enum td_status join_new(struct td_join *j, struct td_error *err)
{
    int n = j->c->n;
    j->agents = td_agents_new(n);
    j->requests = requests_new(n);
    j->answers = td_calloc((size_t)n, sizeof(json_t *));
    j->errors = td_calloc((size_t)n, sizeof(*j->errors));
    if (!j->agents || !j->requests || !j->answers || !j->errors)
        return td_error_set(err, TD_E_NOMEM, "no memory for the agents of %d hosts", n);
    for (int i = 0; i < n; i++) {
        td_error_init(&j->errors[i]);
        j->agents[i].local = i == 0;
        td_text_copy(j->agents[i].name, sizeof(j->agents[i].name), j->c->hosts[i].name);
    }
    return TD_OK;
}

static void join_release(struct td_join *j)
{
    for (int i = 0; j->answers && i < j->c->n; i++)
        json_decref(j->answers[i]);
    td_agents_free(j->agents, j->c->n);
    requests_free(j->requests, j->c->n);
    td_free(j->answers);
    td_free(j->errors);
}

/* This machine as the only host. */
static enum td_status alone(struct td_cluster *c, struct td_error *err)
{
    struct utsname u;
    return split(uname(&u) == 0 && *u.nodename ? u.nodename : "localhost", c, err);
}

/* What is missing stays as it was given: the rule about it will say so. */
static void absolute(const char *path, char out[PATH_MAX])
{
    if (path && !realpath(path, out))
        td_text_copy(out, PATH_MAX, path);
}

/* The hosts of a list, by their names. */
static enum td_status name_hosts(const char *hosts, struct td_cluster *c,
                                 struct td_error *err)
{
    struct td_buf list;
    if (!hosts || !*hosts)
        return alone(c, err);
    td_buf_init(&list, (size_t)TD_MAX_RANKS * TD_FACT_TEXT);
    enum td_status s = td_hostlist_expand(hosts, &list, err);
    if (s == TD_OK)
        s = split(list.p, c, err);
    td_buf_release(&list);
    return s;
}

enum td_status td_hosts_alone(const char *hosts, struct td_error *err)
{
    struct td_cluster c = {0};
    enum td_status s = name_hosts(hosts, &c, err);
    if (s == TD_OK)
        s = order(&c, all_names_seconds, err);
    td_cluster_release(&c);
    return s;
}

enum td_status td_hosts_count(const char *hosts, int *n, struct td_error *err)
{
    struct td_cluster c = {0};
    enum td_status s = name_hosts(hosts, &c, err);
    if (s == TD_OK)
        *n = c.n;
    td_cluster_release(&c);
    return s;
}

enum td_status td_cluster_examine(const char *hosts, const struct td_join_options *o,
                                  struct td_cluster *out, struct td_error *err)
{
    struct td_cluster c = {0};
    double now = td_clock_now();
    struct td_join j = {.c = &c, .fabric = o->fabric, .glance = o->glance > 0};
    struct td_agent_start start = {.ssh = o->ssh ? o->ssh : "ssh",
                                   .version = o->version,
                                   .build = o->build,
                                   .seconds = start_seconds,
                                   .no_copy = j.glance};
    char model[PATH_MAX] = "", rates_of[PATH_MAX] = "";
    enum td_status s = name_hosts(hosts, &c, err);
    if (s == TD_OK && hosts && *hosts)
        s = order(&c, j.glance ? o->glance / 3 : all_names_seconds, err);
    if (s == TD_OK)
        s = join_new(&j, err);
    if (s == TD_OK) {
        absolute(o->model, model);
        absolute(o->rates_of, rates_of);
    }
    if (s != TD_OK)
        goto out;
    if (j.glance)
        start.seconds = now + o->glance * START_SHARE - td_clock_now();
    td_agents_start(j.agents, c.n, &start);
    j.end = now + o->glance * CLOCK_SHARE;
    read_clocks(&j);
    j.end = now + o->glance * FACTS_SHARE;
    read_facts(&j, model, !j.glance);
    j.end = now + o->glance;
    label_hosts(&c);
    if (o->rates_of)
        read_rates(&j, rates_of);
    if (report_agents(&j) && c.n > 1 && !j.glance)
        td_join_network(&j);
    if (*c.cidr)
        enter_by_address(&j, &start);
    td_judge(&c);
    if (c.lost)
        s = td_error_set(err, TD_E_NOMEM, "no memory for the report");
out:
    join_release(&j);
    if (s != TD_OK)
        td_cluster_release(&c);
    else
        *out = c;
    return s;
}

enum td_status td_cluster_join(const char *hosts, const struct td_join_options *o,
                               struct td_cluster *out, struct td_error *err)
{
    struct td_cluster c;
    enum td_status s = td_cluster_examine(hosts, o, &c, err);
    if (s != TD_OK)
        return s;
    const struct td_check_line *bad = td_cluster_failure(&c);
    if (!bad) {
        *out = c;
        return TD_OK;
    }
    s = bad->e.code;
    if (err && err->code == TD_OK)
        *err = bad->e;
    td_cluster_release(&c);
    return s;
}

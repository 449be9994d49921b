/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host knows of a process that was killed there. See evidence.h.
 */
#include "launch/evidence.h"

#include "launch/agents.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const double START_SECONDS = 4, ANSWER_SECONDS = 4;

static enum td_status ask_agent(const struct td_evidence_params *p,
                                struct td_facts *out, struct td_error *err)
{
    struct td_agent_start o = {.ssh = p->ssh ? p->ssh : "ssh",
                               .version = p->version,
                               .build = p->build,
                               .seconds = START_SECONDS};
    struct td_agent *a = td_agents_new(1);
    struct td_buf request;
    json_t *answer = NULL;
    if (!a)
        return td_error_set(err, TD_E_NOMEM, "no memory to ask %s", p->address);
    td_buf_init(&request, TD_MAX_AGENT_LINE);
    td_buf_adds(&request, "{\"do\":\"facts\"}");
    (void)snprintf(a[0].name, sizeof(a[0].name), "%s", p->address);
    td_agents_start(a, 1, &o);
    td_agents_ask(a, 1, &request, ANSWER_SECONDS, &answer);
    const json_t *facts = json_object_get(answer, "facts");
    enum td_status s = TD_OK;
    if (a[0].e.code != TD_OK) {
        *err = a[0].e;
        s = err->code;
    } else {
        s = td_facts_get(facts, p->address, out, err);
    }
    json_decref(answer);
    td_buf_release(&request);
    td_agents_free(a, 1);
    return s;
}

enum td_status td_evidence_read(const struct td_evidence_params *p,
                                struct td_facts *out, struct td_error *err)
{
    *out = (struct td_facts){0};
    if (p->address)
        return ask_agent(p, out, err);
    td_facts_read("", out);
    return TD_OK;
}

/* "; python3 (pid 4711, container x) holds 21.4 GiB", or nothing. */
static void largest_holder(const struct td_facts *f, char *out, size_t size)
{
    const struct td_holder *h = f->holders;
    *out = 0;
    if (f->n_holders < 1)
        return;
    (void)snprintf(out, size, "; %s (pid %" PRId64 "%s%s) holds %.1f GiB", h->command,
                   h->pid, *h->container ? ", container " : "", h->container,
                   (double)h->bytes / (double)TD_GIB);
}

bool td_evidence_judge(int rank, const struct td_watch_rank *r,
                       const struct td_facts *f, struct td_error *err)
{
    struct td_error e;
    char bound[TD_FACT_TEXT], holder[TD_FACT_TEXT + 64];
    double kills = (double)td_oom_counts_all(&f->kills);
    if (r->age < 0 || kills <= r->kills)
        return false;
    double left = (double)td_sysmem_available(&f->memory, bound, sizeof(bound));
    largest_holder(f, holder, sizeof(holder));
    td_error_init(&e);
    td_error_set(&e, TD_E_NOMEM,
                 "%s (rank %d) was killed by the kernel: out of memory, in phase %s",
                 r->host, rank, r->phase);
    td_error_why(&e,
                 "the kernel counts %.0f more such kill%s there; the rank had %.2f GiB "
                 "when it was heard of last, %.2f GiB were left then and %.2f GiB are "
                 "now: %s%s",
                 kills - r->kills, kills - r->kills > 1 ? "s" : "",
                 r->resident / (double)TD_GIB, r->available / (double)TD_GIB,
                 left / (double)TD_GIB, bound, holder);
    td_error_fix(&e, "free memory on %s, or give tandem less with --memory", r->host);
    e.rank = rank;
    (void)snprintf(e.host, sizeof(e.host), "%s", r->host);
    *err = e;
    return true;
}

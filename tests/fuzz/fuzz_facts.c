/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other hosts and the kernel say: the facts of a host as JSON, which must come out
 * the same after a second reading, and netlink messages. The first byte says which.
 */
#include "base/limits.h"
#include "base/mem.h"
#include "fabric/facts.h"
#include "launch/agent.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_again(const struct td_facts *f)
{
    struct td_facts *g = td_calloc(1, sizeof(*g));
    struct td_buf a, b;
    json_t *o = NULL;
    td_buf_init(&a, TD_MAX_AGENT_LINE * 4);
    td_buf_init(&b, TD_MAX_AGENT_LINE * 4);
    if (!g || td_facts_put(&a, f) != TD_OK ||
        td_json_parse(a.p, a.len, "again", &o, NULL) != TD_OK ||
        td_facts_get(o, "again", g, NULL) != TD_OK || td_facts_put(&b, g) != TD_OK ||
        strcmp(a.p, b.p) != 0)
        abort();
    json_decref(o);
    td_facts_release(g);
    td_free(g);
    td_buf_release(&a);
    td_buf_release(&b);
}

static void read_json(struct td_facts *f, const char *text, size_t n)
{
    struct td_error err;
    struct td_link link;
    json_t *o = NULL;
    td_error_init(&err);
    if (td_json_parse(text, n, "input", &o, NULL) != TD_OK)
        return;
    (void)td_agent_get_link(o, &link, NULL);
    td_agent_get_error(o, &err);
    if (td_facts_get(o, "input", f, NULL) == TD_OK)
        read_again(f);
    json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct td_facts *f = td_calloc(1, sizeof(*f));
    bool done;
    if (!f || n == 0) {
        td_free(f);
        return 0;
    }
    if (data[0] == 'n')
        (void)td_facts_netlink(f, data + 1, n - 1, &done);
    else
        read_json(f, (const char *)data + 1, n - 1);
    td_facts_release(f);
    td_free(f);
    return 0;
}

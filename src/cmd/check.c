/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem check: machines and links, measured: pass, warn, fail.
 *
 * All findings come from launch/hosts.h; this file prints them, for people or machines.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/term.h"
#include "launch/hosts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_WIDTH = 24, MARGIN = 6 };

#define MAX_TEXT ((size_t)(64 * TD_MIB))

static const char *const verdicts[] = {"pass", "warn", "fail"};

/* ---- text ---------------------------------------------------------------------------- */

static void text_wrapped(struct td_buf *b, const char *label, const char *text)
{
    if (!*text)
        return;
    td_buf_addf(b, "%*s%-6s", (int)MARGIN, "", label);
    td_buf_add_wrapped(b, text, MARGIN + 6);
    td_buf_addc(b, '\n');
}

static void text_line(struct td_buf *b, const struct td_check_line *l, const char *host,
                      int width)
{
    td_buf_addf(b, "%-*s%-*.*s %-8s %s\n", (int)MARGIN, verdicts[l->verdict], width,
                (int)NAME_WIDTH, host, l->topic, l->e.what);
    if (l->verdict == TD_PASS)
        return;
    text_wrapped(b, "cause", l->e.why);
    text_wrapped(b, "fix", l->e.fix);
}

/* Host by host, then what concerns all of them. */
static void text_lines(struct td_buf *b, const struct td_cluster *c)
{
    int width = 4;
    for (int i = 0; i < c->n; i++)
        width = TD_MAX(width, (int)strlen(c->hosts[i].label));
    width = TD_MIN(width, (int)NAME_WIDTH);
    for (int h = 0; h <= c->n; h++)
        for (int i = 0; i < c->n_lines; i++) {
            const struct td_check_line *l = &c->lines[i];
            if (l->host == (h < c->n ? h : -1))
                text_line(b, l, h < c->n ? c->hosts[h].label : "all", width);
        }
}

static void text_links(struct td_buf *b, const struct td_cluster *c)
{
    if (!*c->cidr)
        return;
    td_buf_addf(b, "\nnetwork %s, for everything\n", c->cidr);
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->n; j++) {
            const struct td_link *l = td_cluster_link(c, i, j);
            if (i == j)
                continue;
            td_buf_addf(b,
                        "  %s %s -> %s %s  %s  %.1f us  %.1f us for 6 KiB  %.2f GB/s",
                        c->hosts[i].label, c->hosts[i].address, c->hosts[j].label,
                        c->hosts[j].address, c->hosts[i].iface, l->latency_us,
                        l->exchange_us, l->gbytes);
            if (l->path_mtu)
                td_buf_addf(b, "  MTU %" PRId64, l->path_mtu);
            td_buf_addc(b, '\n');
        }
}

static void count(const struct td_cluster *c, int counts[3])
{
    counts[0] = counts[1] = counts[2] = 0;
    for (int i = 0; i < c->n_lines; i++)
        counts[c->lines[i].verdict]++;
}

static void print_text(struct td_buf *b, const struct td_cluster *c, double seconds)
{
    int n[3];
    count(c, n);
    text_lines(b, c);
    text_links(b, c);
    td_buf_addf(b, "\n%d passed, %d warnings, %d failures, %.1f s\n", n[TD_PASS],
                n[TD_WARN], n[TD_FAIL], seconds);
}

/* ---- JSON ---------------------------------------------------------------------------- */

static void put_string(struct td_buf *b, const char *key, const char *value)
{
    td_buf_addf(b, "\"%s\":", key);
    td_json_add_string(b, value, strlen(value));
    td_buf_addc(b, ',');
}

/* Closes an object or array whose last element left a comma. */
static void put_end(struct td_buf *b, const char *end)
{
    if (b->len && b->p[b->len - 1] == ',')
        td_buf_set_len(b, b->len - 1);
    td_buf_adds(b, end);
}

static void json_hosts(struct td_buf *b, const struct td_cluster *c)
{
    td_buf_adds(b, "\"hosts\":[");
    for (int i = 0; i < c->n; i++) {
        const struct td_cluster_host *h = &c->hosts[i];
        struct td_pin pins[TD_PIN_MAX];
        int n = *c->cidr ? td_cluster_pins(c, i, pins) : 0;
        td_buf_addc(b, '{');
        put_string(b, "name", h->name);
        put_string(b, "label", h->label);
        put_string(b, "address", h->address);
        put_string(b, "iface", h->iface);
        put_string(b, "rdma", h->rdma);
        td_buf_addf(b, "\"rdma_port\":%" PRId64 ",\"gid\":%" PRId64 ",\"clock\":%.3f,",
                    h->rdma_port, h->gid, h->clock);
        td_buf_adds(b, "\"pins\":{");
        for (int k = 0; k < n; k++)
            put_string(b, pins[k].name, pins[k].value);
        put_end(b, "},\"facts\":");
        if (h->facts)
            td_facts_put(b, h->facts);
        else
            td_buf_adds(b, "null");
        td_buf_adds(b, "},");
    }
    put_end(b, "],");
}

static void json_links(struct td_buf *b, const struct td_cluster *c)
{
    td_buf_adds(b, "\"links\":[");
    for (int i = 0; i < c->n && *c->cidr; i++)
        for (int j = 0; j < c->n; j++) {
            const struct td_link *l = td_cluster_link(c, i, j);
            if (i == j)
                continue;
            td_buf_addf(b,
                        "{\"from\":%d,\"to\":%d,\"latency_us\":%.3f,"
                        "\"exchange_us\":%.3f,\"gbytes\":%.6f,\"path_mtu\":%" PRId64
                        "},",
                        i, j, l->latency_us, l->exchange_us, l->gbytes, l->path_mtu);
        }
    put_end(b, "],");
}

static void json_lines(struct td_buf *b, const struct td_cluster *c)
{
    td_buf_adds(b, "\"lines\":[");
    for (int i = 0; i < c->n_lines; i++) {
        const struct td_check_line *l = &c->lines[i];
        td_buf_addf(b, "{\"verdict\":\"%s\",", verdicts[l->verdict]);
        put_string(b, "host", l->host >= 0 ? c->hosts[l->host].label : "");
        put_string(b, "topic", l->topic);
        if (l->verdict != TD_PASS) {
            put_string(b, "code", td_status_info(l->e.code)->slug);
            put_string(b, "why", l->e.why);
            put_string(b, "fix", l->e.fix);
        }
        put_string(b, "what", l->e.what);
        put_end(b, "},");
    }
    put_end(b, "],");
}

static void print_json(struct td_buf *b, const struct td_cluster *c, double seconds)
{
    int n[3];
    count(c, n);
    td_buf_addf(b, "{\"ok\":%s,\"passed\":%d,\"warnings\":%d,\"failures\":%d,",
                n[TD_FAIL] ? "false" : "true", n[TD_PASS], n[TD_WARN], n[TD_FAIL]);
    put_string(b, "network", c->cidr);
    json_links(b, c);
    json_lines(b, c);
    json_hosts(b, c);
    td_buf_addf(b, "\"seconds\":%.3f}\n", seconds);
}

/* ---- the verb ------------------------------------------------------------------------ */

static int run(struct td_conf *conf, struct td_error *err)
{
    struct td_join_options o = {.fabric = td_conf_str(conf, TD_O_FABRIC),
                                .ssh = td_conf_str(conf, TD_O_SSH),
                                .model = conf->nargs ? conf->args[0] : NULL,
                                .build = td_build,
                                .version = td_version};
    struct td_cluster c;
    struct td_buf out;
    double start = td_clock_now();
    td_event_phase(TD_PHASE_CHECK);
    if (td_cluster_examine(td_conf_str(conf, TD_O_HOSTS), &o, &c, err) != TD_OK)
        return TD_EXIT_FAILED;
    td_buf_init(&out, MAX_TEXT);
    double seconds = td_clock_now() - start;
    if (td_conf_bool(conf, TD_O_JSON))
        print_json(&out, &c, seconds);
    else
        print_text(&out, &c, seconds);
    const struct td_check_line *bad = td_cluster_failure(&c);
    if (bad)
        td_event_error(&bad->e);
    int code = bad ? TD_EXIT_FAILED : TD_EXIT_OK;
    if (out.status != TD_OK)
        td_error_set(err, out.status, "the report does not fit into memory");
    else
        td_term_text(stdout, out.p, out.len, true);
    td_buf_release(&out);
    td_cluster_release(&c);
    return code;
}

const struct td_cmd td_cmd_check = {
    .name = "check",
    .verb = TD_VERB_CHECK,
    .usage = "check [MODEL] [--hosts A,B]",
    .args = {0, 1, NULL, NULL},
    .summary = "machines and links, measured: pass, warn, fail",
    .details =
        "Looks at this machine, or with --hosts at all of them through ssh: program, "
        "MPI, memory and who holds it, GPUs, limits, disk, clocks, names, and with "
        "MODEL "
        "its files. Every network that they share is tried in both directions and "
        "measured; the best one is what tandem uses for everything. Fails with a cause "
        "and a remedy when the machines cannot work together.",
    .run = run,
};

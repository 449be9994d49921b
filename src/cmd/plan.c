/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem plan MODEL: who holds what, does it fit, how fast can it be. Reads the
 * configuration and the headers (or the index, where the files are not here yet).
 *
 * All arithmetic is plan/spread.h's, the one that an engine starts by; this file asks
 * and prints. Ranks with equal numbers share a column.
 */
#include "base/buf.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/job.h"
#include "cmd/options.h"
#include "cmd/term.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "launch/hosts.h"
#include "plan/speed.h"
#include "plan/spread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    NAME_WIDTH = 12,
    COLUMN = 18,
    CONTEXT = 1024,      /* tokens before the step whose speed is estimated */
    TOKENIZER_FACTOR = 8 /* memory of a front's tokenizer for a byte of its file */
};

#define MAX_TEXT ((size_t)(4 * TD_MIB))

/* Seconds for a look at other hosts; with the sizes of a large model all of it takes less
 * than two. */
#define GLANCE 1.4

/* Rows of the table, bytes. */
#define ROW_LIST(X)                                                                    \
    X(ROW_WEIGHTS, "weights", "weights")                                               \
    X(ROW_KV, "KV cache", "kv")                                                        \
    X(ROW_STATES, "states", "states")                                                  \
    X(ROW_PREFIXES, "prefixes", "prefixes")                                            \
    X(ROW_WORK, "work", "work")                                                        \
    X(ROW_PROCESS, "process", "process")                                               \
    X(ROW_SUM, "rank", "bytes")                                                        \
    X(ROW_LIMIT, "it may use", "limit")                                                \
    X(ROW_FRONT, "front", "front")                                                     \
    X(ROW_RESERVE, "reserve", "reserve")                                               \
    X(ROW_HOST, "host has", "host_bytes")

enum row {
#define X(id, name, key) id,
    ROW_LIST(X)
#undef X
        ROWS
};

static const struct {
    const char *name, *key;
} row_names[ROWS] = {
#define X(id, name, key) {name, key},
    ROW_LIST(X)
#undef X
};

/* What is printed of a rank, beside its plan. */
struct rank {
    int64_t row[ROWS];
    int64_t token_bytes; /* moved for a token */
};

struct facts {
    struct td_engine_params engine;
    struct td_plan_asked asked;
    struct td_config cfg;
    struct td_cluster cluster; /* n is 0 without --hosts */
    int hosts, n_ranks;
    struct td_dev *dev;
    struct td_spread spread;
    struct rank *ranks; /* n_ranks */
    int64_t front;      /* bytes of the server's front on the first host */
    const char *from;   /* what the sizes were read from */
    int threads;
    const char *level;
    int64_t read;               /* bytes of files that each host reads, the most */
    int64_t token;              /* bytes that one memory moves for a token */
    struct td_plan_rates rates; /* of the first host */
    double load, decode;        /* seconds, tokens a second */
};

/* ---- finding out -------------------------------------------------------------------- */

static void ask(struct facts *f, const struct td_conf *conf, const char *model)
{
    struct td_engine_params p = td_options_server(conf, model, &f->cfg);
    if (!p.threads && f->n_ranks > f->hosts)
        p.threads = TD_MAX(td_cpu_cores() / (f->n_ranks / f->hosts), 1);
    f->engine = p;
}

/* The front holds the tokenizer beside the program. */
static int64_t front_bytes(const char *model)
{
    char path[TD_MAX_PATH];
    struct stat sb;
    struct td_sysmem mem;
    int64_t bytes = td_sysmem_read("", &mem, NULL) == TD_OK ? mem.resident : 0;
    (void)snprintf(path, sizeof(path), "%s/tokenizer.json", model);
    if (stat(path, &sb) == 0)
        bytes += TOKENIZER_FACTOR * (int64_t)sb.st_size;
    return bytes;
}

static const char *host_name(const struct facts *f, int host)
{
    return f->cluster.n ? f->cluster.hosts[host].label : "this host";
}

static void fill_rank(struct facts *f, int index)
{
    const struct td_spread_rank *r = &f->spread.ranks[index];
    const struct td_plan *p = &r->plan;
    int64_t *row = f->ranks[index].row;
    row[ROW_WEIGHTS] = p->bytes.weights;
    row[ROW_KV] = p->kv;
    row[ROW_STATES] = p->states;
    row[ROW_PREFIXES] = p->prefixes;
    row[ROW_WORK] = p->bytes.work + p->bytes.shelf;
    row[ROW_PROCESS] = p->beside;
    row[ROW_SUM] = p->device + p->beside;
    row[ROW_LIMIT] = p->limit;
    row[ROW_FRONT] = r->host ? 0 : f->front;
    row[ROW_RESERVE] = r->room.reserve;
    row[ROW_HOST] = r->room.total;
    f->ranks[index].token_bytes = td_plan_token_bytes(
        &f->cfg, &r->slice, p->bytes.kv_block / TD_KV_BLOCK, p->bytes.state, CONTEXT);
    int64_t bytes = td_model_weights(r->model)->bytes * (f->n_ranks / f->hosts);
    f->read = TD_MAX(f->read, bytes);
}

/* What the sizes were read from. */
static void look_at_files(struct facts *f)
{
    const struct td_model_dir *files = td_model_files(f->spread.ranks[0].model);
    f->from = files->names_only  ? "the index; its files are not here"
              : files->n_tensors ? "the headers of its files"
                                 : "config.json; its files are not here";
}

/* The rates of a host: its own, or where it did not tell, those of the first. A GPU's are
 * measured on the first only. */
static struct td_plan_rates rates_of(const struct facts *f, int host)
{
    const struct td_cluster_host *h = f->cluster.n ? &f->cluster.hosts[host] : NULL;
    struct td_plan_rates r = f->rates;
    bool own = h && f->dev->host;
    if (own && h->memory_rate > 0)
        r.memory = h->memory_rate;
    if (own && h->disk_rate > 0)
        r.disk = h->disk_rate;
    return r;
}

/* Everybody waits for the slowest host. */
static void estimate(struct facts *f)
{
    bool shared = f->spread.ranks[0].plan.shared; /* by the ranks of a host */
    double step = 0;
    f->token = f->ranks[0].token_bytes * (shared ? f->n_ranks / f->hosts : 1);
    for (int h = 0; h < f->hosts; h++) {
        struct td_plan_rates r = rates_of(f, h);
        if (r.disk > 0)
            f->load = TD_MAX(f->load, (double)f->read / r.disk);
        if (r.memory > 0)
            step = TD_MAX(step, (double)f->token / (r.share * r.memory));
    }
    if (step > 0)
        f->decode = 1 / step;
}

/* Looking at the hosts, in a thread of its own: it mostly waits. */
struct look {
    struct facts *f;
    const struct td_conf *conf;
    pthread_t thread;
    bool apart;
    enum td_status status;
    struct td_error err;
};

static void *look_at_hosts(void *arg)
{
    struct look *l = arg;
    const struct td_conf *conf = l->conf;
    struct td_join_options o = {.ssh = td_conf_str(conf, TD_O_SSH),
                                .build = td_build,
                                .version = td_version,
                                .glance = GLANCE,
                                .rates_of = conf->args[0]};
    l->status =
        td_cluster_examine(td_conf_str(conf, TD_O_HOSTS), &o, &l->f->cluster, &l->err);
    return NULL;
}

static void begin_look(struct look *l)
{
    td_error_init(&l->err);
    if (l->f->hosts == 1)
        return;
    l->apart = pthread_create(&l->thread, NULL, look_at_hosts, l) == 0;
    if (!l->apart)
        (void)look_at_hosts(l);
}

static enum td_status end_look(struct look *l, struct td_error *err)
{
    if (l->apart)
        (void)pthread_join(l->thread, NULL);
    l->apart = false;
    if (l->status != TD_OK) {
        if (err && err->code == TD_OK)
            *err = l->err;
        return l->status;
    }
    return TD_OK;
}

/* Of this host, which is the first; its agent has measured a processor's. */
static void find_rates(struct facts *f)
{
    if (f->cluster.n && f->dev->host) {
        const struct td_cluster_host *first = &f->cluster.hosts[0];
        f->rates = (struct td_plan_rates){.memory = first->memory_rate,
                                          .share = TD_PLAN_SHARE_HOST,
                                          .disk = first->disk_rate,
                                          .disk_how = first->disk_how};
    } else {
        td_plan_rates_measure(f->engine.model, f->dev, &f->rates);
    }
}

static struct td_spread_params spread_of(const struct facts *f)
{
    return (struct td_spread_params){.config = &f->cfg,
                                     .asked = &f->asked,
                                     .cluster = &f->cluster,
                                     .ranks = f->n_ranks,
                                     .gpu = TD_MAX(td_engine_gpu(f->engine.device), 0),
                                     .dev = f->dev,
                                     .front = f->front,
                                     .ends = true};
}

static void close_device(struct facts *f)
{
    td_spread_release(&f->spread);
    if (f->dev)
        f->dev->ops.close(f->dev);
    f->dev = NULL;
}

/* Opens the device, and the model for its sizes there. */
static enum td_status size(struct facts *f, struct td_error *err)
{
    enum td_status s = td_engine_device_open(&f->engine, &f->dev, err);
    if (s != TD_OK)
        return s;
    f->asked = td_engine_asked(&f->engine);
    td_plan_adapt(&f->asked, f->dev, f->n_ranks, 0);
    f->threads = f->dev->threads;
    f->level = f->dev->ops.name;
    struct td_spread_params p = spread_of(f);
    return td_spread_size(&p, &f->spread, err);
}

static enum td_status spread(struct facts *f, struct td_error *err)
{
    struct td_spread_params p = spread_of(f);
    enum td_status s = td_spread_plan(&p, &f->spread, err);
    if (s != TD_OK)
        return s;
    f->ranks = td_calloc((size_t)f->n_ranks, sizeof(*f->ranks));
    if (!f->ranks)
        return td_error_set(err, TD_E_NOMEM, "no memory for %d ranks", f->n_ranks);
    for (int i = 0; i < f->n_ranks; i++)
        fill_rank(f, i);
    look_at_files(f);
    find_rates(f);
    estimate(f);
    return TD_OK;
}

static enum td_status examine(struct facts *f, const struct td_conf *conf,
                              struct td_error *err)
{
    const char *model = conf->args[0];
    struct look look = {.f = f, .conf = conf};
    enum td_status s = td_model_arg_check(model, err);
    if (s == TD_OK)
        s = td_config_read(model, &f->cfg, err);
    if (s == TD_OK)
        s = td_cmd_job_count(conf, &f->cfg, &f->hosts, &f->n_ranks, err);
    if (s != TD_OK)
        return s;
    begin_look(&look);
    ask(f, conf, model);
    f->front = front_bytes(model);
    s = size(f, err);
    enum td_status looked = end_look(&look, err);
    s = s == TD_OK ? looked : s;
    if (s == TD_OK && !f->dev->host && strcmp(f->engine.device, "auto") == 0 &&
        td_spread_lacks_gpus(&f->cluster)) {
        close_device(f);
        f->engine.device = "cpu";
        s = size(f, err);
    }
    return s == TD_OK ? spread(f, err) : s;
}

/* ---- text --------------------------------------------------------------------------- */

static bool same(const struct facts *f, int a, int b)
{
    return f->spread.ranks[a].host == f->spread.ranks[b].host &&
           memcmp(f->ranks[a].row, f->ranks[b].row, sizeof(f->ranks[a].row)) == 0;
}

/* The rank behind those that share a column with this one. */
static int column_end(const struct facts *f, int first)
{
    int i = first + 1;
    while (i < f->n_ranks && same(f, first, i))
        i++;
    return i;
}

static void text_table(struct td_buf *b, const struct facts *f)
{
    td_buf_addf(b, "%-*s", (int)NAME_WIDTH, f->n_ranks > 1 ? "ranks" : "rank");
    for (int i = 0; i < f->n_ranks; i = column_end(f, i)) {
        char text[TD_FACT_TEXT + 32];
        int last = column_end(f, i) - 1;
        int n = snprintf(text, sizeof(text), i == last ? "%d" : "%d-%d", i, last);
        if (f->cluster.n)
            (void)snprintf(text + n, sizeof(text) - (size_t)n, " %.*s", COLUMN - 2 - n,
                           host_name(f, f->spread.ranks[i].host));
        td_buf_addf(b, "%*s", (int)COLUMN, text);
    }
    td_buf_addc(b, '\n');
    for (size_t k = 0; k < ROWS; k++) {
        bool any = false;
        for (int i = 0; i < f->n_ranks; i++)
            any = any || f->ranks[i].row[k] > 0;
        if (!any)
            continue;
        td_buf_addf(b, "%-*s", (int)NAME_WIDTH, row_names[k].name);
        for (int i = 0; i < f->n_ranks; i = column_end(f, i))
            td_buf_addf(b, "%*s", (int)COLUMN,
                        td_size_text(f->ranks[i].row[k], 2).text);
        td_buf_addc(b, '\n');
    }
}

static void text_range(struct td_buf *b, const char *name, struct td_range r)
{
    if (r.count > 1)
        td_buf_addf(b, ", %s %" PRId64 "-%" PRId64, name, r.first,
                    r.first + r.count - 1);
    else if (r.count)
        td_buf_addf(b, ", %s %" PRId64, name, r.first);
}

static void text_holds(struct td_buf *b, const struct facts *f)
{
    for (int i = 0; i < f->n_ranks && f->n_ranks > 1; i++) {
        const struct td_slice *s = &f->spread.ranks[i].slice;
        td_buf_addf(b, "rank %-3d    heads %" PRId64 "-%" PRId64, i, s->heads.first,
                    s->heads.first + s->heads.count - 1);
        text_range(b, "KV heads", s->kv_heads);
        text_range(b, "key heads", s->key_heads);
        text_range(b, "value heads", s->value_heads);
        text_range(b, "widths of experts", s->moe_ffn);
        text_range(b, "MLP widths", s->ffn);
        text_range(b, "vocabulary", s->vocab);
        td_buf_addc(b, '\n');
    }
}

/* Why a host could not be asked, "" when it could. */
static const char *unknown(const struct facts *f, int host)
{
    const struct td_cluster *c = &f->cluster;
    if (c->hosts[host].facts)
        return "";
    for (int i = 0; i < c->n_lines; i++)
        if (c->lines[i].host == host && c->lines[i].verdict == TD_FAIL)
            return c->lines[i].e.what;
    return "it did not answer";
}

/* What is known of each host, and what is not. */
static void text_hosts(struct td_buf *b, const struct facts *f)
{
    for (int h = 0; h < f->cluster.n; h++) {
        const struct td_cluster_host *host = &f->cluster.hosts[h];
        const struct td_facts *k = host->facts;
        td_buf_addf(b, "%-11s ", host_name(f, h));
        if (!k) {
            td_buf_addf(b, "not known: %s; taken to be like %s\n", unknown(f, h),
                        host_name(f, 0));
            continue;
        }
        td_buf_addf(b, "%" PRId64 " core%s, %s of %s of memory can be had", k->cores,
                    k->cores == 1 ? "" : "s",
                    td_size_text(td_sysmem_available(&k->memory, NULL, 0), 1).text,
                    td_size_text(k->memory.total, 1).text);
        for (int64_t g = 0; g < k->n_gpus; g++)
            td_buf_addf(b, ", %s", k->gpus[g].name);
        if (f->dev->host && host->memory_rate > 0)
            td_buf_addf(b, ", read at %.1f GB/s", host->memory_rate * 1e-9);
        else if (f->dev->host || h > 0)
            td_buf_addf(b, "; its speed was not measured, taken from %s",
                        host_name(f, 0));
        td_buf_addc(b, '\n');
    }
    if (f->cluster.n)
        td_buf_adds(b,
                    "network     not looked at: sums over the hosts are not counted; "
                    "`tandem check` measures it\n");
}

static void text_speed(struct td_buf *b, const struct facts *f)
{
    const char *slowest = f->cluster.n ? ", the slowest host" : "";
    if (f->load > 0)
        td_buf_addf(b, "load        about %.1f s: %s a host at %.2f GB/s%s (%s)\n",
                    f->load, td_size_text(f->read, 1).text,
                    (double)f->read / f->load * 1e-9, slowest, f->rates.disk_how);
    else
        td_buf_addf(b, "load        not estimated: %s\n",
                    *f->rates.disk_how ? f->rates.disk_how : "no host told in time");
    if (f->decode > 0)
        td_buf_addf(b,
                    "decode      about %.3g tokens/s for one sequence: %.3g GB a token "
                    "and %s at %.0f %% of its rate (measured now)%s\n",
                    f->decode, (double)f->token * 1e-9,
                    f->spread.ranks[0].plan.shared ? "host" : "GPU",
                    100 * f->rates.share, slowest);
    else
        td_buf_adds(
            b, "decode      not estimated: this device's memory is not measured\n");
}

static void print_text(struct td_buf *b, const struct facts *f)
{
    const struct td_plan *p = &f->spread.ranks[0].plan;
    td_buf_addf(b, "model       %s, sizes from %s\n", f->engine.model, f->from);
    td_buf_addf(b, "device      %s, %d thread%s a rank\n\n", f->level, f->threads,
                f->threads == 1 ? "" : "s");
    text_table(b, f);
    td_buf_addc(b, '\n');
    text_hosts(b, f);
    text_holds(b, f);
    td_buf_addf(b,
                "context     %d tokens, at most %d would fit (the model: %d)\n"
                "sequences   %d at a time, %d of them at full length (%" PRId64
                " tokens in the KV cache)\n",
                p->limits.max_len, p->most_len, f->cfg.max_positions,
                p->limits.max_seqs, p->full, (int64_t)p->n_blocks * TD_KV_BLOCK);
    text_speed(b, f);
    if (f->spread.beyond)
        td_buf_adds(b,
                    "note        this host cannot give what --memory says: the plan is "
                    "for another\n");
}

/* ---- JSON --------------------------------------------------------------------------- */

static void json_range(struct td_buf *b, const char *key, struct td_range r)
{
    td_buf_addf(b, "\"%s\":[%" PRId64 ",%" PRId64 "],", key, r.first, r.count);
}

static void json_text(struct td_buf *b, const char *key, const char *value)
{
    td_buf_addf(b, "\"%s\":", key);
    td_json_add_string(b, value, strlen(value));
    td_buf_addc(b, ',');
}

static void json_rank(struct td_buf *b, const struct facts *f, int i)
{
    const struct td_spread_rank *r = &f->spread.ranks[i];
    const struct td_plan_process *c = &r->plan.process;
    td_buf_addf(b, "%s{\"rank\":%d,", i ? "," : "", i);
    json_text(b, "host", host_name(f, r->host));
    json_range(b, "heads", r->slice.heads);
    json_range(b, "kv_heads", r->slice.kv_heads);
    json_range(b, "key_heads", r->slice.key_heads);
    json_range(b, "value_heads", r->slice.value_heads);
    json_range(b, "expert_widths", r->slice.moe_ffn);
    json_range(b, "mlp_widths", r->slice.ffn);
    json_range(b, "vocabulary", r->slice.vocab);
    for (size_t k = 0; k < ROWS; k++)
        td_buf_addf(b, "\"%s\":%" PRId64 ",", row_names[k].key, f->ranks[i].row[k]);
    td_buf_addf(b,
                "\"device\":%" PRId64 ",\"peak\":%" PRId64 ",\"program\":%" PRId64
                ",\"logits\":%" PRId64 ",\"samplers\":%" PRId64 ",\"threads\":%" PRId64
                ",\"lists\":%" PRId64 ",\"staging\":%" PRId64 "}",
                r->plan.device, r->plan.peak, c->program, c->logits, c->samplers,
                c->threads, c->lists, c->staging);
}

static void json_host(struct td_buf *b, const struct facts *f, int i)
{
    const struct td_cluster_host *h = &f->cluster.hosts[i];
    td_buf_addf(b, "%s{", i ? "," : "");
    json_text(b, "host", h->label);
    json_text(b, "unknown", unknown(f, i));
    json_text(b, "disk_how", h->disk_how);
    td_buf_addf(b,
                "\"known\":%s,\"cores\":%" PRId64 ",\"gpus\":%" PRId64
                ",\"memory_rate\":%.0f,\"disk_rate\":%.0f}",
                h->facts ? "true" : "false", h->facts ? h->facts->cores : 0,
                h->facts ? h->facts->n_gpus : 0, h->memory_rate, h->disk_rate);
}

static void print_json(struct td_buf *b, const struct facts *f)
{
    const struct td_plan *p = &f->spread.ranks[0].plan;
    td_buf_addc(b, '{');
    json_text(b, "model", f->engine.model);
    json_text(b, "sizes_from", f->from);
    json_text(b, "level", f->level);
    td_buf_addf(b,
                "\"threads\":%d,\"context\":%d,\"most_context\":%d,\"sequences\":%d,"
                "\"full_sequences\":%d,\"kv_tokens\":%" PRId64
                ",\"kv_per_token\":%" PRId64 ",\"state_per_sequence\":%" PRId64 ",",
                f->threads, p->limits.max_len, p->most_len, p->limits.max_seqs, p->full,
                (int64_t)p->n_blocks * TD_KV_BLOCK, p->bytes.kv_block / TD_KV_BLOCK,
                p->bytes.state);
    td_buf_addf(b, "\"load\":{\"bytes\":%" PRId64 ",\"rate\":%.0f,\"seconds\":%.3f,",
                f->read, f->rates.disk, f->load);
    json_text(b, "how", f->rates.disk_how);
    td_buf_set_len(b, b->len - 1);
    td_buf_addf(b,
                "},\"decode\":{\"bytes\":%" PRId64 ",\"memory_rate\":%.0f,"
                "\"share\":%.2f,\"tokens_per_second\":%.3f},\"hosts\":[",
                f->token, f->rates.memory, f->rates.share, f->decode);
    for (int i = 0; i < f->cluster.n; i++)
        json_host(b, f, i);
    td_buf_adds(b, "],\"ranks\":[");
    for (int i = 0; i < f->n_ranks; i++)
        json_rank(b, f, i);
    td_buf_adds(b, "]}\n");
}

/* ---- the verb ----------------------------------------------------------------------- */

static int run(struct td_conf *conf, struct td_error *err)
{
    struct facts f = {0};
    struct td_buf out;
    td_phase_set(TD_PHASE_PLAN);
    td_buf_init(&out, MAX_TEXT);
    enum td_status s = examine(&f, conf, err);
    if (s == TD_OK) {
        if (td_conf_bool(conf, TD_O_JSON))
            print_json(&out, &f);
        else
            print_text(&out, &f);
        s = out.status;
        if (s != TD_OK)
            td_error_set(err, s, "no memory for the plan's text");
        else
            td_term_text(stdout, out.p, out.len, td_term_is(stdout));
    }
    close_device(&f);
    td_cluster_release(&f.cluster);
    td_free(f.ranks);
    td_buf_release(&out);
    return s == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

const struct td_cmd td_cmd_plan = {
    .name = "plan",
    .verb = TD_VERB_PLAN,
    .usage = "plan MODEL [--hosts A,B] [--tp N] [--memory BYTES]",
    .args = {1, 1, "model", NULL},
    .summary = "who holds what of a model, does it fit, how fast can it be",
    .details =
        "Reads the configuration and the headers of the files, or the index where they "
        "are not here\nyet; loads nothing. The numbers are those that `tandem serve` "
        "with the same options starts\nby. A plan that does not fit is refused, with "
        "the nearest that does: a shorter context,\nfewer sequences, more ranks.\n\n"
        "Other hosts are asked for their memory and speed, for a second and a half at "
        "most; one that\ndoes not answer is taken to be like this one, and it says so.",
    .run = run,
};

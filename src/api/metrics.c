/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and histograms. See metrics.h.
 */
#include "api/metrics.h"

#include "base/json.h"

#include <inttypes.h>
#include <string.h>

static const double first_bounds[] = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
static const double between_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                        0.1,   0.15,   0.2,   0.3,  0.4,   0.5,  0.75,
                                        1.0,   2.5,    5.0,   7.5,  10.0,  20.0, 40.0};
static const double whole_bounds[] = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                      5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                      60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
static const double size_bounds[] = {1,     2,     5,     10,     20,     50,
                                     100,   200,   500,   1000,   2000,   5000,
                                     10000, 20000, 50000, 100000, 200000, 500000};

#define HISTOGRAM(h, list) make_histogram(h, list, (int)TD_COUNT(list))

static void make_histogram(struct td_histogram *h, const double *bounds, int n)
{
    h->bounds = bounds;
    h->n = n;
}

void td_metrics_init(struct td_metrics *m)
{
    memset(m, 0, sizeof(*m));
    HISTOGRAM(&m->first_token, first_bounds);
    HISTOGRAM(&m->between_tokens, between_bounds);
    HISTOGRAM(&m->whole, whole_bounds);
    HISTOGRAM(&m->queued, whole_bounds);
    HISTOGRAM(&m->prompt_sizes, size_bounds);
    HISTOGRAM(&m->answer_sizes, size_bounds);
}

void td_histogram_add(struct td_histogram *h, double value)
{
    int i = 0;
    while (i < h->n && value > h->bounds[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}

void td_metrics_engine_lost(struct td_metrics *m)
{
    m->past.prefix_queries += m->stats.prefix_queries;
    m->past.prefix_hits += m->stats.prefix_hits;
    m->past.preemptions += m->stats.preemptions;
    m->past.steps += m->stats.steps;
    m->past.step_seconds += m->stats.step_seconds;
    m->past.sum_seconds += m->stats.sum_seconds;
    m->past.wait_seconds += m->stats.wait_seconds;
    m->engine_losses++;
    memset(&m->stats, 0, sizeof(m->stats));
}

/* ---- text -------------------------------------------------------------------------- */

struct out {
    struct td_buf *b;
    struct td_buf labels; /* model_name="...",engine="0" */
};

static void head(struct out *o, const char *name, const char *type, const char *help)
{
    td_buf_addf(o->b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct out *o, const char *name, double value, const char *help)
{
    head(o, name, "gauge", help);
    td_buf_addf(o->b, "%s{%s} %.17g\n", name, o->labels.p, value);
}

static void counter(struct out *o, const char *name, double value, const char *help)
{
    head(o, name, "counter", help);
    td_buf_addf(o->b, "%s{%s} %.17g\n", name, o->labels.p, value);
}

static void histogram(struct out *o, const char *name, const struct td_histogram *h,
                      const char *help)
{
    uint64_t total = 0;
    head(o, name, "histogram", help);
    for (int i = 0; i <= h->n; i++) {
        total += h->counts[i];
        if (i < h->n)
            td_buf_addf(o->b, "%s_bucket{%s,le=\"%g\"} %" PRIu64 "\n", name,
                        o->labels.p, h->bounds[i], total);
        else
            td_buf_addf(o->b, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name,
                        o->labels.p, total);
    }
    td_buf_addf(o->b, "%s_sum{%s} %.17g\n%s_count{%s} %" PRIu64 "\n", name, o->labels.p,
                h->sum, name, o->labels.p, total);
}

static void outcomes(struct out *o, const struct td_metrics *m)
{
    static const char *const names[] = {[TD_OUTCOME_STOP] = "stop",
                                        [TD_OUTCOME_LENGTH] = "length",
                                        [TD_OUTCOME_ABORT] = "abort",
                                        [TD_OUTCOME_ERROR] = "error"};
    head(o, "vllm:request_success_total", "counter",
         "Answers by the reason of their end.");
    for (int i = 0; i < TD_OUTCOME_COUNT; i++)
        td_buf_addf(
            o->b, "vllm:request_success_total{%s,finished_reason=\"%s\"} %" PRIu64 "\n",
            o->labels.p, names[i], m->outcomes[i]);
}

static void cache_config(struct out *o, const struct td_metrics *m)
{
    head(o, "vllm:cache_config_info", "gauge", "How the cache is made.");
    td_buf_addf(o->b,
                "vllm:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%d\","
                "enable_prefix_caching=\"True\"} 1\n",
                o->labels.p, m->hello.kv_block_tokens, m->hello.kv_blocks);
}

static void vllm_names(struct out *o, const struct td_metrics *m)
{
    const struct td_wire_stats *s = &m->stats;
    double use = s->kv_total > 0 ? (double)s->kv_used / s->kv_total : 0;
    gauge(o, "vllm:num_requests_running", s->running, "Answers that are computed now.");
    gauge(o, "vllm:num_requests_waiting", s->waiting + m->waiting,
          "Answers that wait for their turn.");
    gauge(o, "vllm:kv_cache_usage_perc", use, "Share of the KV blocks in use, 0 to 1.");
    counter(o, "vllm:prompt_tokens_total", (double)m->prompt_tokens,
            "Tokens of prompts.");
    counter(o, "vllm:generation_tokens_total", (double)m->generated_tokens,
            "Tokens generated.");
    counter(o, "vllm:prefix_cache_queries_total",
            (double)(m->past.prefix_queries + s->prefix_queries),
            "Prompt tokens looked up in the prefix cache.");
    counter(o, "vllm:prefix_cache_hits_total",
            (double)(m->past.prefix_hits + s->prefix_hits),
            "Prompt tokens found in the prefix cache.");
    counter(o, "vllm:num_preemptions_total",
            (double)(m->past.preemptions + s->preemptions),
            "Answers that gave their blocks away and were computed again.");
    outcomes(o, m);
    cache_config(o, m);
    histogram(o, "vllm:time_to_first_token_seconds", &m->first_token,
              "From a request's arrival to its first token.");
    histogram(o, "vllm:inter_token_latency_seconds", &m->between_tokens,
              "Between two tokens of an answer.");
    histogram(o, "vllm:e2e_request_latency_seconds", &m->whole,
              "From a request's arrival to the end of its answer.");
    histogram(o, "vllm:request_queue_time_seconds", &m->queued,
              "In the server's queue, before the engine had it.");
    histogram(o, "vllm:request_prompt_tokens", &m->prompt_sizes, "Tokens of a prompt.");
    histogram(o, "vllm:request_generation_tokens", &m->answer_sizes,
              "Tokens of an answer.");
}

static void own_names(struct out *o, const struct td_metrics *m)
{
    const struct td_wire_stats *s = &m->stats;
    counter(o, "tandem:refused_requests_total", (double)m->refused,
            "Requests that were refused.");
    counter(o, "tandem:cached_prompt_tokens_total", (double)m->cached_tokens,
            "Prompt tokens that did not have to be computed.");
    counter(o, "tandem:engine_losses_total", (double)m->engine_losses,
            "Times that the engine ended.");
    counter(o, "tandem:resumed_answers_total", (double)m->resumed,
            "Answers that went on in another engine.");
    counter(o, "tandem:steps_total", (double)(m->past.steps + s->steps),
            "Steps of the engine.");
    counter(o, "tandem:step_seconds_total", m->past.step_seconds + s->step_seconds,
            "Time spent in steps.");
    counter(o, "tandem:sum_seconds_total", m->past.sum_seconds + s->sum_seconds,
            "Time of steps spent adding up over ranks.");
    counter(o, "tandem:wait_seconds_total", m->past.wait_seconds + s->wait_seconds,
            "Time of sums spent waiting for other ranks.");
    gauge(o, "tandem:slots_used", s->slots_used, "State slots in use.");
    gauge(o, "tandem:slots_total", s->slots_total, "State slots.");
    gauge(o, "tandem:device_memory_bytes", (double)m->hello.memory,
          "Memory of the engine on its device.");
}

void td_metrics_text(const struct td_metrics *m, const char *model, struct td_buf *b)
{
    struct out o = {.b = b};
    td_buf_init(&o.labels, 4096);
    td_buf_adds(&o.labels, "model_name=");
    td_json_add_string(&o.labels, model, strlen(model));
    td_buf_adds(&o.labels, ",engine=\"0\"");
    vllm_names(&o, m);
    own_names(&o, m);
    td_buf_release(&o.labels);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem bench MODEL: how fast this host's processor or GPU computes a model, and how close
 * that is to what it can do.
 *
 * What operations must move and compute is counted by a wrapped table
 * (bench_count.h). On a processor it also times them, in the steps that are measured. A
 * GPU replays recorded steps, so they are measured as they are, and counted in one more.
 * The limits are measured between the measurements, so that shares hold on a machine that
 * others use too.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "cmd/bench.h"
#include "cmd/bench_points.h"
#include "cmd/options.h"

#include <string.h>

enum {
    PROMPTS = 3,           /* times that a prompt is measured */
    STEPS = TD_BENCH_RUNS, /* the same of a step */
    WARM_HOST = 1,
    WARM_GPU = 3, /* a step is recorded at its second run */
    BEHIND = 64,  /* tokens behind the context: all steps that are made */
    APART = 97,   /* tokens between the beginnings of two sequences */
    ROWS = 2048,  /* of a prompt in a forward, at most, when nothing is asked for */
    MOST_TOKENS = 1 << 20,
    MOST_SEQUENCES = 4096 /* as --max-num-seqs */
};

/* What is asked for. */
struct lists {
    struct td_bench_list batch, prompt, context;
};

struct bench {
    struct lists ask;
    struct td_engine *engine;
    struct td_dev *dev;
    double summing; /* seconds in all-reduces before what is counted */
    int32_t *ids, *blocks;
    struct td_seq_rows *rows;
    struct td_bench_points out;
};

static int32_t longest(const struct lists *l)
{
    return TD_MAX(l->prompt.most, l->context.most);
}

static int32_t blocks_each(const struct lists *l)
{
    return (longest(l) + BEHIND + TD_KV_BLOCK - 1) / TD_KV_BLOCK;
}

/* ---- forwards ------------------------------------------------------------------------ */

/* Every sequence has tokens of its own. */
static struct td_seq_rows rows_of(const struct bench *b, int32_t seq, int32_t start,
                                  int32_t n)
{
    return (struct td_seq_rows){.ids = b->ids + start + (int64_t)seq * APART,
                                .n = n,
                                .start = start,
                                .slot = seq,
                                .blocks =
                                    b->blocks + (int64_t)seq * blocks_each(&b->ask),
                                .n_blocks = blocks_each(&b->ask)};
}

static enum td_status prefill(struct bench *b, int32_t seq, int32_t n,
                              struct td_error *err)
{
    int32_t most = b->out.info.max_rows;
    enum td_status s = TD_OK;
    for (int32_t at = 0; at < n && s == TD_OK; at += most) {
        struct td_seq_rows piece = rows_of(b, seq, at, TD_MIN(most, n - at));
        piece.n_out = at + piece.n == n;
        s = td_engine_forward(b->engine, &piece, 1, err);
    }
    return s;
}

/* A token for each of the first `batch` sequences. */
static enum td_status step(struct bench *b, int32_t batch, int32_t at,
                           struct td_error *err)
{
    for (int32_t i = 0; i < batch; i++) {
        b->rows[i] = rows_of(b, i, at, 1);
        b->rows[i].decode = true;
        b->rows[i].n_out = 1;
    }
    return td_engine_forward(b->engine, b->rows, batch, err);
}

/* Seconds of a step when nobody waits for it before the next one is asked for: what is
 * left of its time is the GPU's wait for this program. */
static enum td_status step_ahead(struct bench *b, int32_t batch, double *seconds,
                                 struct td_error *err)
{
    double start = td_clock_now();
    enum td_status s = TD_OK;
    for (int i = 0; i < STEPS && s == TD_OK; i++)
        s = td_model_forward(td_engine_model(b->engine), td_engine_cache(b->engine),
                             b->rows, batch, false, err);
    if (s == TD_OK)
        s = b->dev->ops.sync(b->dev, err);
    *seconds = (td_clock_now() - start) / STEPS;
    return s;
}

/* ---- counting ------------------------------------------------------------------------ */

static double seconds_summing(const struct bench *b)
{
    struct td_engine_info now;
    td_engine_info(b->engine, &now);
    return now.comm.seconds;
}

static enum td_status count_begin(struct bench *b, struct td_error *err)
{
    return td_bench_count_begin(b->dev, b->out.info.max_rows, b->out.info.config->top_k,
                                err);
}

static void count_anew(struct bench *b, int32_t real)
{
    td_bench_count_anew(real);
    b->summing = seconds_summing(b);
}

static void count_run(struct bench *b)
{
    double now = seconds_summing(b);
    td_bench_count_run(now - b->summing);
    b->summing = now;
}

static void count_end(struct bench *b, struct td_bench_point *p)
{
    td_bench_count_of_run(p->op);
    td_bench_count_end(b->dev);
    for (int i = 0; i < TD_BENCH_OPS; i++) {
        p->sum.bytes += p->op[i].bytes;
        p->sum.work += p->op[i].work;
    }
}

/* ---- measuring ----------------------------------------------------------------------- */

/* Products make a GPU hot, and so steps behind them slower: of steps, those of the last
 * prompt count. */
static enum td_status limits(const struct bench *b, struct td_bench_point *p,
                             struct td_error *err)
{
    struct td_limits now, *l = &p->limits;
    enum td_status s = td_limits_of(b->dev, !p->decode, &now, err);
    if (s != TD_OK)
        return s;
    if (!b->out.host && p->decode) {
        const struct td_limits *last = &b->out.point[b->out.n - 1].limits;
        now.bf16 = last->bf16;
        now.f8 = last->f8;
        now.how = last->how;
    }
    *l = (struct td_limits){TD_MAX(l->read, now.read),
                            TD_MAX(l->f32, now.f32),
                            TD_MAX(l->bf16, now.bf16),
                            TD_MAX(l->f8, now.f8),
                            TD_MAX(l->copy, now.copy),
                            TD_MAX(l->upload, now.upload),
                            now.how};
    return TD_OK;
}

static enum td_status time_prompts(struct bench *b, struct td_bench_point *p,
                                   struct td_error *err)
{
    double times[PROMPTS];
    enum td_status s = TD_OK;
    for (int i = 0; i < PROMPTS && s == TD_OK; i++) {
        double start = td_clock_now();
        s = prefill(b, 0, p->context, err);
        times[i] = td_clock_now() - start;
        if (b->out.host)
            count_run(b);
    }
    if (s == TD_OK)
        p->seconds = td_bench_median(times, PROMPTS);
    return s;
}

static enum td_status time_steps(struct bench *b, struct td_bench_point *p,
                                 struct td_error *err)
{
    double times[STEPS];
    int warm = b->out.host ? WARM_HOST : WARM_GPU;
    enum td_status s = TD_OK;
    for (int t = -warm; t < STEPS && s == TD_OK; t++) {
        if (t == 0 && b->out.host)
            count_anew(b, INT32_MAX);
        double start = td_clock_now();
        s = step(b, p->batch, p->context + warm + t, err);
        if (t < 0)
            continue;
        times[t] = td_clock_now() - start;
        if (b->out.host)
            count_run(b);
    }
    if (s == TD_OK)
        p->seconds = td_bench_median(times, STEPS);
    if (s == TD_OK && !b->out.host && b->out.info.ranks == 1)
        s = step_ahead(b, p->batch, &p->ahead, err);
    return s;
}

/* Once more, for what it moves and computes; of prompts also for the time of each
 * operation, which waits for the one before. */
static enum td_status count_gpu(struct bench *b, struct td_bench_point *p,
                                struct td_error *err)
{
    enum td_status s = count_begin(b, err);
    if (s != TD_OK)
        return s;
    count_anew(b, p->decode ? p->batch : INT32_MAX);
    s = p->decode ? step(b, p->batch, p->context + BEHIND - 1, err)
                  : prefill(b, 0, p->context, err);
    count_run(b);
    count_end(b, p);
    for (int i = 0; i < TD_BENCH_OPS && p->decode; i++)
        p->op[i].seconds = 0; /* too short to wait for each */
    return s;
}

/* Times and counts a point whose sequences are ready. */
static enum td_status measure_point(struct bench *b, struct td_bench_point p,
                                    struct td_error *err)
{
    enum td_status s = limits(b, &p, err);
    if (s == TD_OK && b->out.host)
        s = count_begin(b, err);
    if (s != TD_OK)
        return s;
    if (b->out.host)
        count_anew(b, INT32_MAX);
    s = p.decode ? time_steps(b, &p, err) : time_prompts(b, &p, err);
    if (b->out.host)
        count_end(b, &p);
    else if (s == TD_OK)
        s = count_gpu(b, &p, err);
    if (s == TD_OK)
        s = limits(b, &p, err);
    if (s == TD_OK)
        b->out.point[b->out.n++] = p;
    return s;
}

static enum td_status measure(struct bench *b, struct td_error *err)
{
    enum td_status s = TD_OK;
    for (int i = 0; i < b->ask.prompt.n && s == TD_OK; i++) {
        int32_t n = b->ask.prompt.v[i];
        s = prefill(b, 0, b->out.host ? TD_MIN(n, TD_CHUNK) : n, err); /* warms up */
        if (s == TD_OK)
            s = measure_point(
                b, (struct td_bench_point){.batch = 1, .context = n, .tokens = n}, err);
    }
    for (int i = 0; i < b->ask.context.n && s == TD_OK; i++) {
        int32_t n = b->ask.context.v[i];
        for (int32_t k = 0; k < b->ask.batch.most && s == TD_OK; k++)
            s = prefill(b, k, n, err);
        for (int k = 0; k < b->ask.batch.n && s == TD_OK; k++) {
            int32_t batch = b->ask.batch.v[k];
            s = measure_point(
                b,
                (struct td_bench_point){
                    .batch = batch, .context = n, .tokens = batch, .decode = true},
                err);
        }
    }
    return s;
}

/* ---- the verb ------------------------------------------------------------------------ */

/* What the engine would say of a context that nobody asked for. */
static enum td_status check_context(const struct lists *l, const char *model,
                                    struct td_error *err)
{
    struct td_config c;
    int32_t needed = blocks_each(l) * TD_KV_BLOCK;
    if (td_config_read(model, &c, NULL) != TD_OK || needed <= c.max_positions)
        return TD_OK;
    td_error_set(err, TD_E_USAGE,
                 "%d tokens and the steps behind them take a context of %d", longest(l),
                 needed);
    td_error_why(err, "%s was made for at most %d", model, c.max_positions);
    int32_t most = c.max_positions / TD_KV_BLOCK * TD_KV_BLOCK - BEHIND;
    if (most > 0)
        td_error_fix(err, "give --prompt and --context at most %d", most);
    else
        td_error_fix(err, "measure a model with a longer context");
    return TD_E_USAGE;
}

static enum td_status read_lists(struct lists *l, const struct td_conf *conf,
                                 struct td_error *err)
{
    enum td_status s =
        td_bench_list_read(conf, TD_O_BATCH, MOST_SEQUENCES, &l->batch, err);
    if (s == TD_OK)
        s = td_bench_list_read(conf, TD_O_PROMPT, MOST_TOKENS, &l->prompt, err);
    l->context = l->prompt;
    if (s == TD_OK && td_conf_is_set(conf, TD_O_CONTEXT))
        s = td_bench_list_read(conf, TD_O_CONTEXT, MOST_TOKENS, &l->context, err);
    return s == TD_OK ? check_context(l, conf->args[0], err) : s;
}

static struct td_engine_params params_of(const struct lists *l,
                                         const struct td_conf *conf)
{
    struct td_engine_params p = td_options_engine(conf, conf->args[0]);
    p.max_len = blocks_each(l) * TD_KV_BLOCK;
    p.max_seqs = l->batch.most;
    p.max_rows = td_conf_is_set(conf, TD_O_MAX_NUM_BATCHED_TOKENS)
                     ? (int32_t)td_conf_int(conf, TD_O_MAX_NUM_BATCHED_TOKENS)
                     : ROWS;
    p.max_rows = TD_MIN(p.max_rows, longest(l));
    p.max_rows = TD_MAX(p.max_rows, l->batch.most);
    p.max_rows = (p.max_rows + TD_CHUNK - 1) / TD_CHUNK * TD_CHUNK;
    return p;
}

enum td_status td_bench_engine(const struct td_conf *conf, struct td_engine_params *out,
                               struct td_error *err)
{
    struct lists l;
    enum td_status s = read_lists(&l, conf, err);
    if (s == TD_OK)
        *out = params_of(&l, conf);
    return s;
}

static enum td_status open_engine(struct bench *b, const struct td_conf *conf,
                                  struct td_error *err)
{
    int32_t n_blocks = b->ask.batch.most * blocks_each(&b->ask), vocab;
    int32_t n_ids = longest(&b->ask) + BEHIND + b->ask.batch.most * APART;
    struct td_engine_params p = params_of(&b->ask, conf);
    b->out.f32 = p.numerics == TD_NUM_F32;
    enum td_status s = td_engine_open(&p, &b->engine, err);
    if (s != TD_OK)
        return s;
    td_engine_info(b->engine, &b->out.info);
    b->dev = td_engine_device(b->engine);
    b->out.host = b->dev->host;
    b->ids = td_calloc((size_t)n_ids, sizeof(*b->ids));
    b->blocks = td_calloc((size_t)n_blocks, sizeof(*b->blocks));
    b->rows = td_calloc((size_t)b->ask.batch.most, sizeof(*b->rows));
    if (!b->ids || !b->blocks || !b->rows)
        return td_error_set(err, TD_E_NOMEM, "no memory for the benchmark");
    vocab = b->out.info.config->vocab;
    for (int32_t i = 0; i < n_blocks; i++)
        b->blocks[i] = i % b->out.info.n_blocks;
    for (int32_t i = 0; i < n_ids; i++)
        b->ids[i] = (int32_t)(((uint32_t)i * 2654435761u >> 8) % (uint32_t)vocab);
    return TD_OK;
}

enum td_status td_bench_model(const struct td_conf *conf, struct td_error *err)
{
    static struct bench b;
    const char *path = td_conf_str(conf, TD_O_PLOT);
    FILE *plot = NULL;
    enum td_status s = read_lists(&b.ask, conf, err);
    if (s == TD_OK && path)
        s = td_bench_plot_open(path, &plot, err);
    if (s == TD_OK)
        s = open_engine(&b, conf, err);
    if (s == TD_OK)
        s = measure(&b, err);
    if (s == TD_OK) {
        b.out.recorded = b.dev->recorded;
        b.out.recorded_bytes = b.dev->recorded_bytes;
    }
    if (s == TD_OK && td_conf_bool(conf, TD_O_JSON))
        td_bench_print_json(&b.out);
    else if (s == TD_OK)
        td_bench_print_table(&b.out);
    if (s == TD_OK && plot)
        s = td_bench_plot(&b.out, path, plot, err);
    if (plot)
        (void)fclose(plot);
    td_engine_close(b.engine);
    td_free(b.ids);
    td_free(b.blocks);
    td_free(b.rows);
    return s;
}

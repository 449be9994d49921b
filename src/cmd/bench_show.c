/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tandem bench MODEL` measured as a table, as JSON, as bars. See bench_points.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/buf.h"
#include "cmd/bench_points.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PLOT_W = 640, PLOT_H = 360 };

static double share(double amount, double seconds, double limit)
{
    return seconds > 0 && limit > 0 ? amount / seconds / limit : 0;
}

static double peak(const struct td_bench_points *b, const struct td_bench_point *p)
{
    return b->f32 ? p->limits.f32 : p->limits.bf16;
}

/* ---- the table ----------------------------------------------------------------------- */

static void print_share(double amount, double seconds, double limit, const char *of)
{
    if (limit > 0)
        printf(" %3.0f %% of %s", 100 * share(amount, seconds, limit), of);
}

static void print_ops(const struct td_bench_points *b, const struct td_bench_point *p)
{
    for (int i = 0; i < TD_BENCH_OPS; i++) {
        const struct td_bench_count *c = &p->op[i];
        if (c->seconds < 0.005 * p->seconds && c->bytes < 0.005 * p->sum.bytes)
            continue;
        printf("          %-10s", td_bench_op_names[i]);
        if (c->seconds <= 0) { /* of steps that a GPU replays */
            printf(" %8.3f GB %3.0f %%\n", c->bytes * 1e-9,
                   100 * c->bytes / p->sum.bytes);
            continue;
        }
        printf(" %8.3f ms %3.0f %%", c->seconds * 1e3, 100 * c->seconds / p->seconds);
        if (c->bytes > 0) {
            printf("  %6.1f GB/s", c->bytes / c->seconds * 1e-9);
            print_share(c->bytes, c->seconds, p->limits.read, "read");
        }
        if (c->work > 0) {
            printf("  %7.1f Gop/s", c->work / c->seconds * 1e-9);
            print_share(c->work, c->seconds, peak(b, p), "peak");
        }
        (void)fputc('\n', stdout);
    }
}

static void print_device(const struct td_bench_points *b)
{
    const struct td_limits *l = &b->point[0].limits;
    const struct td_engine_info *i = &b->info;
    if (b->host) {
        printf("processor %s, %d thread%s: read %.1f GB/s, f32 %.0f Gop/s, bf16 %.0f "
               "Gop/s\n",
               i->level, i->threads, i->threads == 1 ? "" : "s", l->read * 1e-9,
               l->f32 * 1e-9, l->bf16 * 1e-9);
        return;
    }
    printf(
        "device    %s: read %.0f GB/s, copy %.0f GB/s, from the host %.1f GB/s\n"
        "          products in bf16 %.1f Tflop/s, in FP8 %.1f Tflop/s (%s)\n"
        "          %.2f GiB used, %.2f GiB planned; %.1f MiB for %d recorded steps\n",
        i->level, l->read * 1e-9, l->copy * 1e-9, l->upload * 1e-9, l->bf16 * 1e-12,
        l->f8 * 1e-12, l->how ? l->how : "not measured", (double)i->used / TD_GIB,
        (double)i->plan.device / TD_GIB, (double)b->recorded_bytes / TD_MIB,
        b->recorded);
}

static void print_point(const struct td_bench_points *b, const struct td_bench_point *p)
{
    printf("%-9s batch %d, context %d: %.3f ms, %.1f tokens/s, %.1f GB/s",
           p->decode ? "decode" : "prefill", (int)p->batch, (int)p->context,
           p->seconds * 1e3, p->tokens / p->seconds, p->sum.bytes / p->seconds * 1e-9);
    if (p->limits.read > 0)
        printf(" (%.0f %% of read",
               100 * share(p->sum.bytes, p->seconds, p->limits.read));
    if (p->limits.copy > 0)
        printf(", %.0f %% of copy",
               100 * share(p->sum.bytes, p->seconds, p->limits.copy));
    if (p->limits.read > 0)
        (void)fputc(')', stdout);
    printf(", %.0f Gop/s", p->sum.work / p->seconds * 1e-9);
    if (peak(b, p) > 0)
        printf(" (%.0f %% of peak)", 100 * share(p->sum.work, p->seconds, peak(b, p)));
    if (p->ahead > 0)
        printf(", waits for the host %.1f %%", 100 * (1 - p->ahead / p->seconds));
    (void)fputc('\n', stdout);
}

void td_bench_print_table(const struct td_bench_points *b)
{
    const struct td_engine_info *i = &b->info;
    printf("model     %.2f GB of weights, loaded in %.2f s, %.2f GB/s\n",
           (double)i->bytes.weights * 1e-9, i->load.seconds,
           i->load.seconds > 0 ? (double)i->load.bytes / i->load.seconds * 1e-9 : 0);
    print_device(b);
    printf("memory    planned %.1f MB for the process, peak until warm %.1f MB "
           "(%+.2f %%)\n",
           (double)i->plan.peak * 1e-6, (double)i->peak * 1e-6,
           100 * ((double)i->peak / (double)i->plan.peak - 1));
    if (i->ranks > 1)
        printf("ranks     %d, this is the first one's part\n", i->ranks);
    for (int k = 0; k < b->n; k++) {
        print_point(b, &b->point[k]);
        print_ops(b, &b->point[k]);
    }
}

/* ---- JSON ---------------------------------------------------------------------------- */

static void json_point(const struct td_bench_points *b, const struct td_bench_point *p)
{
    const struct td_limits *l = &p->limits;
    printf("{\"kind\":\"%s\",\"batch\":%d,\"context\":%d,\"seconds\":%.9f,"
           "\"ahead_seconds\":%.9f,\"tokens_per_second\":%.3f,\"bytes\":%.0f,"
           "\"ops\":%.0f,\"read_share\":%.4f,\"peak_share\":%.4f,\"limits\":{"
           "\"read\":%.0f,\"f32\":%.0f,\"bf16\":%.0f,\"fp8\":%.0f,\"copy\":%.0f,"
           "\"upload\":%.0f},\"by_op\":{",
           p->decode ? "decode" : "prefill", (int)p->batch, (int)p->context, p->seconds,
           p->ahead, p->tokens / p->seconds, p->sum.bytes, p->sum.work,
           share(p->sum.bytes, p->seconds, l->read),
           share(p->sum.work, p->seconds, peak(b, p)), l->read, l->f32, l->bf16, l->f8,
           l->copy, l->upload);
    for (int o = 0; o < TD_BENCH_OPS; o++)
        printf("%s\"%s\":{\"seconds\":%.9f,\"bytes\":%.0f,\"ops\":%.0f}", o ? "," : "",
               td_bench_op_names[o], p->op[o].seconds, p->op[o].bytes, p->op[o].work);
    printf("}}");
}

void td_bench_print_json(const struct td_bench_points *b)
{
    const struct td_engine_info *i = &b->info;
    printf("{\"level\":\"%s\",\"threads\":%d,\"ranks\":%d,\"weights\":%lld,"
           "\"load_seconds\":%.6f,\"load_bytes\":%lld,\"device\":{\"planned\":%lld,"
           "\"used\":%lld,\"recorded\":%d,\"recorded_bytes\":%zu},\"points\":[",
           i->level, i->threads, i->ranks, (long long)i->bytes.weights, i->load.seconds,
           (long long)i->load.bytes, (long long)i->plan.device, (long long)i->used,
           b->recorded, b->recorded_bytes);
    for (int k = 0; k < b->n; k++) {
        if (k)
            (void)fputc(',', stdout);
        json_point(b, &b->point[k]);
    }
    printf("]}\n");
}

/* ---- bars ---------------------------------------------------------------------------- */

static enum td_status cannot_plot(const char *path, struct td_error *err)
{
    return td_error_set(err, TD_E_IO, "cannot write %s: %s", path, strerror(errno));
}

enum td_status td_bench_plot_open(const char *path, FILE **out, struct td_error *err)
{
    *out = fopen(path, "ae");
    return *out ? TD_OK : cannot_plot(path, err);
}

/* Bars: the share of the limit that binds each point (read for decode, peak for
 * prefill). */
enum td_status td_bench_plot(const struct td_bench_points *b, const char *path, FILE *f,
                             struct td_error *err)
{
    struct td_buf out;
    int step = (PLOT_W - 40) / TD_MAX(b->n, 1);
    td_buf_init(&out, 1 << 20);
    td_buf_addf(&out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "font-family=\"sans-serif\" font-size=\"10\">\n",
                PLOT_W, PLOT_H);
    for (int i = 0; i <= 4; i++)
        td_buf_addf(&out,
                    "<text x=\"2\" y=\"%d\">%d %%</text>"
                    "<path d=\"M36 %dH%d\" stroke=\"#ccc\"/>\n",
                    304 - i * 70, i * 25, 300 - i * 70, PLOT_W);
    for (int i = 0; i < b->n; i++) {
        const struct td_bench_point *p = &b->point[i];
        double part = p->decode ? share(p->sum.bytes, p->seconds, p->limits.read)
                                : share(p->sum.work, p->seconds, peak(b, p));
        int high = (int)(280 * TD_MIN(part, 1.0)), x = 40 + i * step;
        td_buf_addf(&out,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>"
                    "<text x=\"%d\" y=\"315\">%s</text><text x=\"%d\" "
                    "y=\"328\">%d x %d</text><text x=\"%d\" y=\"341\">%.0f/s</text>\n",
                    x, 300 - high, TD_MAX(step - 4, 1), high,
                    p->decode ? "#37a" : "#a73", x, p->decode ? "decode" : "prefill", x,
                    (int)p->batch, (int)p->context, x, p->tokens / p->seconds);
    }
    td_buf_adds(&out, "</svg>\n");
    enum td_status s = out.status;
    if (s != TD_OK)
        td_error_set(err, s, "no memory for the plot");
    else if (ftruncate(fileno(f), 0) != 0 && errno != EINVAL) /* EINVAL: a device */
        s = cannot_plot(path, err);
    else if (fwrite(out.p, 1, out.len, f) != out.len || fflush(f) != 0)
        s = cannot_plot(path, err);
    td_buf_release(&out);
    return s;
}

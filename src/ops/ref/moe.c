/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixture of experts: the choice, and the experts' products. Work is ordered by expert,
 * so that a weight row is expanded once for all rows that chose its expert; each row's
 * own sums keep the order of its choice.
 */
#include "base/float.h"
#include "ops/ref/ref.h"

#include <math.h>

static void route_rows(struct td_cpu *cpu, const void *args, int64_t first,
                       int64_t last)
{
    const struct td_route_args *a = args;
    for (int64_t r = first; r < last; r++) {
        const float *logit = a->logits + r * a->experts;
        int32_t *id = a->id + r * a->k;
        float *weight = a->weight + r * a->k;
        float *p = td_cpu_scratch(cpu);
        float top = -INFINITY, all = 0, chosen = 0;
        for (int32_t e = 0; e < a->experts; e++)
            top = fmaxf(top, logit[e]);
        for (int32_t e = 0; e < a->experts; e++)
            all += p[e] = expf(logit[e] - top);
        for (int32_t i = 0; i < a->k; i++) {
            int32_t best = 0;
            for (int32_t e = 1; e < a->experts; e++)
                if (p[e] > p[best])
                    best = e;
            id[i] = best;
            weight[i] = p[best] / all;
            chosen += weight[i];
            p[best] = -1.0f;
        }
        for (int32_t i = 0; i < a->k; i++)
            weight[i] /= chosen;
    }
}

static void ref_route(struct td_dev *dev, const struct td_route_args *a)
{
    td_cpu_run((struct td_cpu *)dev, a->rows, 0, route_rows, a);
}

/* One gated feed-forward network over the rows that use it. `id` names each choice's
 * expert (NULL: every row uses this one, once); mid and out have a line per choice. */
struct network {
    const struct td_matrix *gate, *up, *down;
    const float *x;
    const int32_t *id;
    int32_t expert, choices, per_row;
    float *mid, *out;
};

static void network_mid(struct td_cpu *cpu, const void *args, int64_t first,
                        int64_t last)
{
    const struct network *f = args;
    int64_t k = f->gate->k, size = f->gate->n;
    bool rounds = cpu->dev.numerics == TD_NUM_BF16;
    float *gate = td_cpu_scratch(cpu), *up = gate + k;
    for (int64_t i = first; i < last; i++) {
        td_ref_expand(f->gate, i, gate);
        td_ref_expand(f->up, i, up);
        for (int32_t c = 0; c < f->choices; c++) {
            const float *x = f->x + c / f->per_row * k;
            if (f->id && f->id[c] != f->expert)
                continue;
            float m = td_ref_silu(td_ref_dot(gate, x, k)) * td_ref_dot(up, x, k);
            f->mid[c * size + i] = rounds ? td_f32_from_bf16(td_bf16_from_f32(m)) : m;
        }
    }
}

static void network_out(struct td_cpu *cpu, const void *args, int64_t first,
                        int64_t last)
{
    const struct network *f = args;
    int64_t k = f->down->k, hidden = f->down->n;
    float *w = td_cpu_scratch(cpu);
    for (int64_t i = first; i < last; i++) {
        td_ref_expand(f->down, i, w);
        for (int32_t c = 0; c < f->choices; c++)
            if (!f->id || f->id[c] == f->expert)
                f->out[c * hidden + i] = td_ref_dot(w, f->mid + c * k, k);
    }
}

static void run_network(struct td_cpu *cpu, const struct network *f)
{
    td_cpu_run(cpu, f->gate->n, 0, network_mid, f);
    td_cpu_run(cpu, f->down->n, 0, network_out, f);
}

static bool is_chosen(const struct td_experts_args *a, int32_t expert)
{
    for (int32_t c = 0; c < a->rows * a->k; c++)
        if (a->id[c] == expert)
            return true;
    return false;
}

static void combine(const struct td_experts_args *a, const float *out, int64_t hidden)
{
    for (int32_t r = 0; r < a->rows; r++) {
        float *y = a->y + r * hidden;
        for (int64_t i = 0; i < hidden; i++)
            y[i] = 0;
        for (int32_t c = r * a->k; c < (r + 1) * a->k; c++)
            for (int64_t i = 0; i < hidden; i++)
                y[i] += a->weight[c] * out[c * hidden + i];
    }
}

static void ref_experts(struct td_dev *dev, const struct td_experts_args *a)
{
    struct td_cpu *cpu = (struct td_cpu *)dev;
    int64_t hidden = a->down[0].n;
    const float *x = a->x;
    if (dev->numerics == TD_NUM_BF16) {
        td_ref_round(x, hidden, a->rows, hidden, cpu->rounded);
        x = cpu->rounded;
    }
    for (int32_t e = 0; e < a->experts; e++) {
        struct network f = {.gate = &a->gate[e],
                            .up = &a->up[e],
                            .down = &a->down[e],
                            .x = x,
                            .id = a->id,
                            .expert = e,
                            .choices = a->rows * a->k,
                            .per_row = a->k,
                            .mid = cpu->expert_mid,
                            .out = cpu->expert_out};
        if (!is_chosen(a, e))
            continue;
        run_network(cpu, &f);
    }
    combine(a, cpu->expert_out, hidden);
    if (!a->shared_down)
        return;
    struct network f = {.gate = a->shared_gate_proj,
                        .up = a->shared_up,
                        .down = a->shared_down,
                        .x = x,
                        .choices = a->rows,
                        .per_row = 1,
                        .mid = cpu->expert_mid,
                        .out = cpu->expert_out};
    run_network(cpu, &f);
    for (int32_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < hidden; i++)
            a->y[r * hidden + i] +=
                td_ref_sigmoid(a->shared_gate[r]) * cpu->expert_out[r * hidden + i];
}

void td_ref_fill_moe(struct td_ops *ops)
{
    ops->route = ref_route;
    ops->experts = ref_experts;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the processor as a device: fills the table from the reference upward and counts
 * the threads.
 */
#include "ops/cpu.h"

#include "base/mem.h"

#include <string.h>

/* Levels in rising order; each is filled on top of those before it. */
static const struct level {
    const char *name;
    bool (*can_run)(void);
    void (*fill)(struct td_ops *ops);
} levels[] = {
    {"ref", NULL, td_ops_fill_ref},
#if defined(__x86_64__)
    {"avx2", td_x86_has_avx2, td_x86_fill_avx2},
    {"avx512", td_x86_has_avx512, td_x86_fill_avx512},
    {"avx512bf16", td_x86_has_avx512bf16, td_x86_fill_avx512bf16},
#endif
};

int td_cpu_level(const char *highest)
{
    int best = -1;
    for (size_t i = 0; i < TD_COUNT(levels); i++) {
        if (!levels[i].can_run || levels[i].can_run())
            best = (int)i;
        if (highest && strcmp(levels[i].name, highest) == 0)
            return best;
    }
    return highest ? -1 : best;
}

const char *td_cpu_level_name(int level)
{
    return levels[level].name;
}

static enum td_status fill(struct td_ops *ops, const char *highest,
                           struct td_error *err)
{
    bool reached = false;
    for (size_t i = 0; i < TD_COUNT(levels) && !reached; i++) {
        bool can = !levels[i].can_run || levels[i].can_run();
        reached = highest && strcmp(levels[i].name, highest) == 0;
        if (can)
            levels[i].fill(ops);
        else if (reached)
            return td_error_set(err, TD_E_USAGE,
                                "this processor cannot run the level \"%s\"", highest);
    }
    if (!highest || reached)
        return TD_OK;
    td_error_set(err, TD_E_USAGE, "there is no processor level \"%s\"", highest);
    char known[128] = "";
    for (size_t i = 0; i < TD_COUNT(levels); i++) {
        strncat(known, i ? ", " : "", sizeof(known) - strlen(known) - 1);
        strncat(known, levels[i].name, sizeof(known) - strlen(known) - 1);
    }
    td_error_why(err, "the known levels are %s", known);
    td_error_fix(err, "leave it out to use the best that this processor has");
    return TD_E_USAGE;
}

enum td_status td_cpu_open(const struct td_dev_params *params, struct td_dev **out,
                           struct td_error *err)
{
    struct td_ops ops = {0};
    enum td_status s = fill(&ops, params->level, err);
    if (s != TD_OK)
        return s;
    struct td_cpu *cpu = td_calloc(1, sizeof(*cpu));
    if (!cpu)
        return td_error_set(err, TD_E_NOMEM, "no memory for a device");
    cpu->dev.ops = ops;
    cpu->dev.numerics = params->numerics;
    cpu->dev.budget = params->budget;
    cpu->dev.host = true;
    cpu->dev.shared = true;
    struct td_cores_params cores = {.threads = params->threads,
                                    .rank = params->local_rank,
                                    .ranks = params->local_ranks};
    s = td_cores_new(&cores, &cpu->cores, err);
    if (s == TD_OK) {
        cpu->dev.threads = td_cores_threads(cpu->cores);
        td_cores_place(cpu->cores, -1);
        s = td_team_new(cpu->dev.threads, cpu->cores, &cpu->team, err);
    }
    if (s == TD_OK) {
        *out = &cpu->dev;
    } else {
        td_cores_free(cpu->cores);
        td_free(cpu);
    }
    return s;
}

void td_cpu_place(const struct td_cpu *cpu, const struct td_matrix *m, int64_t row)
{
    const int64_t large = 4 << 20; /* of a node's part: some huge pages */
    int64_t bytes = m->n * m->k * (m->type == TD_MAT_F8 ? 1 : 2);
    bool parts = bytes / td_cores_nodes(cpu->cores) >= large;
    td_cores_place(cpu->cores, parts ? (int)(row * cpu->dev.threads / m->n) : -1);
}

struct loop {
    struct td_cpu *cpu;
    td_cpu_work work;
    const void *args;
};

static void run_items(void *arg, int64_t first, int64_t last)
{
    const struct loop *l = arg;
    l->work(l->cpu, l->args, first, last);
}

void td_cpu_run(struct td_cpu *cpu, int64_t n, int64_t step, td_cpu_work work,
                const void *args)
{
    struct loop l = {cpu, work, args};
    td_team_run(cpu->team, n, step, run_items, &l);
}

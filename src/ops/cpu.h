/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shelves that run on the processor (ref, x86, arm) share: the device, its
 * work memory, and the row-major matrix layout.
 *
 * Layout of a matrix: rows one after another, k elements each (1, 2 or 4 bytes),
 * scales [ceil(n/128)][ceil(k/128)] f32. All levels share it, so a level may override
 * any subset of the table.
 *
 * Work memory: one area for each thread (`scratch`, `scratch_bytes`), and shared areas
 * for rows (`rounded`: inputs rounded to bf16) and experts, sized once by reserve().
 */
#ifndef TD_OPS_CPU_H
#define TD_OPS_CPU_H

#include "base/cores.h"
#include "base/team.h"
#include "ops/ops.h"

enum { TD_CPU_MAX_ALLOCS = 256 };

struct td_cpu {
    struct td_dev dev; /* first: a struct td_dev * of this shelf is a struct td_cpu * */
    struct {
        void *p;
        size_t bytes;
        const char *label;
    } allocs[TD_CPU_MAX_ALLOCS];
    int n_allocs;
    struct td_cores *cores;
    struct td_team *team; /* dev.threads threads */

    struct td_reserve limits;
    char *scratch; /* [threads][scratch_bytes] */
    size_t scratch_bytes;
    float *rounded;    /* [max_rows][max_k] inputs rounded to bf16 */
    float *expert_mid; /* [max_rows * (experts_k + 1)][max(expert, shared) size] */
    float *expert_out; /* [max_rows * experts_k][hidden] */

    /* Of the x86 shelf: copies of inputs by their form, what experts() plans, and runs
     * of a context that threads share. */
    char *inputs[3];
    float *parts;
    size_t panel_bytes; /* of the scratch area */
    int32_t *groups;
    void *plan;
};

/* Parts of the work memory that reserve() sets aside, and where their addresses go. */
struct td_cpu_area {
    size_t bytes; /* 0: not needed */
    void **to;
};

/* Bytes of the budget that the areas take, and taking them. They are written once, so
 * that no step waits for the system to find a page. */
size_t td_cpu_areas_bytes(const struct td_cpu_area *areas, size_t n);
enum td_status td_cpu_areas_take(struct td_dev *dev, const struct td_cpu_area *areas,
                                 size_t n, struct td_error *err);

/* The calling thread's scratch area. */
void *td_cpu_scratch(struct td_cpu *cpu);

/* Items first .. last of an operation's loop; `args` are those of the operation, or what
 * it made of them. */
typedef void (*td_cpu_work)(struct td_cpu *cpu, const void *args, int64_t first,
                            int64_t last);

/* work() for all items 0 .. n by all threads, `step` at a time as in td_team_run(). */
void td_cpu_run(struct td_cpu *cpu, int64_t n, int64_t step, td_cpu_work work,
                const void *args);

/* New pages of the calling thread lie near the thread that reads this row of a matrix,
 * or, of matrices too small for that, on all nodes in turn. */
void td_cpu_place(const struct td_cpu *cpu, const struct td_matrix *m, int64_t row);

/* Fill the table: the reference fills every entry, the others what they do better. */
void td_ops_fill_ref(struct td_ops *ops);

/* Loops that measure limits (ops/limits.h): read and fold memory, fetching so far ahead;
 * n steps of dependent products, and the operations in a step. */
struct td_limit_loops {
    uint64_t (*read)(const void *data, size_t bytes, size_t ahead);
    float (*fma)(int64_t n, float start);
    double fma_flops;
    float (*dot)(int64_t n, float start); /* of bf16, NULL: none */
    double dot_flops;
};
void td_x86_limits_avx2(struct td_limit_loops *l);
void td_x86_limits_avx512(struct td_limit_loops *l);
void td_x86_limits_avx512bf16(struct td_limit_loops *l);

/* The levels of x86: whether this processor has one, and its part of the table. */
bool td_x86_has_avx2(void);
bool td_x86_has_avx512(void);
bool td_x86_has_avx512bf16(void);
void td_x86_fill_avx2(struct td_ops *ops);
void td_x86_fill_avx512(struct td_ops *ops);
void td_x86_fill_avx512bf16(struct td_ops *ops);

#endif

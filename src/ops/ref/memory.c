/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the processor's shelves: allocation from the budget, copies, the row-major
 * matrix layout and the work areas. See ops/cpu.h for the layout.
 */
#include "base/buf.h"
#include "base/float.h"
#include "base/mem.h"
#include "ops/ref/ref.h"

#include <string.h>

static size_t round64(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static enum td_status ref_alloc(struct td_dev *dev, size_t bytes, const char *label,
                                void **out, struct td_error *err)
{
    struct td_cpu *cpu = (struct td_cpu *)dev;
    size_t rounded = round64(bytes);
    if (rounded < bytes || rounded > dev->budget - dev->used) {
        td_error_set(err, TD_E_MEMORY_PLAN, "%s needs %s", label,
                     td_size_text((int64_t)bytes, 1).text);
        td_error_why(err, "%s of the %s that tandem may use are left",
                     td_size_text((int64_t)(dev->budget - dev->used), 1).text,
                     td_size_text((int64_t)dev->budget, 1).text);
        return TD_E_MEMORY_PLAN;
    }
    if (cpu->n_allocs == TD_CPU_MAX_ALLOCS)
        return td_error_set(err, TD_E_INTERNAL, "too many device allocations");
    void *p = td_alloc_aligned(rounded);
    if (!p)
        return td_error_set(err, TD_E_NOMEM, "the system gave no %s for %s",
                            td_size_text((int64_t)bytes, 1).text, label);
    cpu->allocs[cpu->n_allocs].p = p;
    cpu->allocs[cpu->n_allocs].bytes = rounded;
    cpu->allocs[cpu->n_allocs++].label = label;
    dev->used += rounded;
    *out = p;
    return TD_OK;
}

static void ref_close(struct td_dev *dev)
{
    struct td_cpu *cpu = (struct td_cpu *)dev;
    for (int i = 0; i < cpu->n_allocs; i++)
        td_free_aligned(cpu->allocs[i].p, cpu->allocs[i].bytes);
    td_team_free(cpu->team);
    td_cores_free(cpu->cores);
    td_free(cpu);
}

/* The most that one thread needs at a time, over all operations of this shelf. */
static size_t thread_scratch(const struct td_reserve *r)
{
    size_t linear = 2 * (size_t)TD_MAX(r->max_k, TD_MAX(r->expert_size, r->hidden));
    size_t attention = (size_t)r->max_len;
    size_t delta =
        (size_t)TD_CHUNK * (2 * (size_t)r->dk + (size_t)r->dv + TD_CHUNK + 2) +
        (size_t)r->dv;
    size_t route = (size_t)r->experts;
    size_t floats = TD_MAX(TD_MAX(linear, attention), TD_MAX(delta, route));
    return (floats * sizeof(float) + 4095) / 4096 * 4096;
}

size_t td_cpu_areas_bytes(const struct td_cpu_area *areas, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += round64(areas[i].bytes);
    return sum;
}

enum td_status td_cpu_areas_take(struct td_dev *dev, const struct td_cpu_area *areas,
                                 size_t n, struct td_error *err)
{
    enum td_status s = TD_OK;
    for (size_t i = 0; i < n && s == TD_OK; i++) {
        if (areas[i].bytes == 0)
            continue;
        s = dev->ops.alloc(dev, areas[i].bytes, "work", areas[i].to, err);
        if (s == TD_OK)
            memset(*areas[i].to, 0, areas[i].bytes);
    }
    return s;
}

enum { AREAS = 4 };

static void areas_of(struct td_cpu *cpu, const struct td_reserve *r,
                     struct td_cpu_area out[AREAS])
{
    size_t rows = (size_t)r->max_rows, experts = r->experts ? sizeof(float) : 0;
    size_t mid = rows * (size_t)TD_MAX(r->expert_size * r->experts_k, r->shared_size);
    size_t sum = rows * (size_t)r->hidden * (size_t)TD_MAX(r->experts_k, 1);
    size_t scratch = thread_scratch(r) * (size_t)cpu->dev.threads;
    out[0] = (struct td_cpu_area){scratch, (void **)&cpu->scratch};
    out[1] = (struct td_cpu_area){rows * (size_t)r->max_k * sizeof(float),
                                  (void **)&cpu->rounded};
    out[2] = (struct td_cpu_area){mid * experts, (void **)&cpu->expert_mid};
    out[3] = (struct td_cpu_area){sum * experts, (void **)&cpu->expert_out};
}

static size_t ref_reserve_bytes(const struct td_dev *dev, const struct td_reserve *r)
{
    struct td_cpu_area areas[AREAS];
    areas_of((struct td_cpu *)(uintptr_t)dev, r, areas); /* only asks for sizes */
    return td_cpu_areas_bytes(areas, AREAS);
}

static enum td_status ref_reserve(struct td_dev *dev, const struct td_reserve *r,
                                  struct td_error *err)
{
    struct td_cpu *cpu = (struct td_cpu *)dev;
    struct td_cpu_area areas[AREAS];
    areas_of(cpu, r, areas);
    cpu->limits = *r;
    cpu->scratch_bytes = thread_scratch(r);
    return td_cpu_areas_take(dev, areas, AREAS, err);
}

void *td_cpu_scratch(struct td_cpu *cpu)
{
    return cpu->scratch + (size_t)td_team_index() * cpu->scratch_bytes;
}

static void ref_copy(struct td_dev *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    memcpy(dst, src, bytes);
}

static void ref_zero(struct td_dev *dev, void *dst, size_t bytes)
{
    (void)dev;
    memset(dst, 0, bytes);
}

static enum td_status ref_sync(struct td_dev *dev, struct td_error *err)
{
    (void)dev;
    (void)err;
    return TD_OK;
}

static size_t element(enum td_mat_type type)
{
    return type == TD_MAT_F8 ? 1 : type == TD_MAT_BF16 ? 2 : 4;
}

static size_t ref_matrix_bytes(const struct td_dev *dev, enum td_mat_type type,
                               int64_t n, int64_t k)
{
    (void)dev;
    return ((size_t)n * (size_t)k * element(type) + 63) / 64 * 64;
}

static void *ref_place(struct td_dev *dev, const struct td_matrix *m, int64_t row,
                       enum td_dtype type)
{
    if (type == TD_DTYPE_F16)
        return NULL;
    td_cpu_place((struct td_cpu *)dev, m, row);
    return (char *)m->data + (size_t)(row * m->k) * element(m->type);
}

static void ref_pack(struct td_dev *dev, const struct td_matrix *m, int64_t row,
                     int64_t n, const void *src, enum td_dtype type)
{
    size_t count = (size_t)(n * m->k);
    char *dst = (char *)m->data + (size_t)(row * m->k) * element(m->type);
    td_cpu_place((struct td_cpu *)dev, m, row);
    if (type == TD_DTYPE_F16) {
        const uint16_t *h = src;
        for (size_t i = 0; i < count; i++)
            ((float *)(void *)dst)[i] = td_f32_from_f16(h[i]);
    } else {
        memcpy(dst, src, count * element(m->type));
    }
}

void td_ref_fill_memory(struct td_ops *ops)
{
    ops->alloc = ref_alloc;
    ops->reserve = ref_reserve;
    ops->reserve_bytes = ref_reserve_bytes;
    ops->close = ref_close;
    ops->put = ref_copy;
    ops->copy = ref_copy;
    ops->get = ref_copy;
    ops->zero = ref_zero;
    ops->sync = ref_sync;
    ops->matrix_bytes = ref_matrix_bytes;
    ops->pack = ref_pack;
    ops->place = ref_place;
    ops->stage = NULL; /* packed is copied */
    ops->stage_wait = NULL;
    ops->stage_end = NULL;
    ops->join_place = NULL; /* the host sums up */
    ops->join_id = NULL;
    ops->join = NULL;
    ops->all_reduce = NULL;
}

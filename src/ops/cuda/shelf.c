/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA shelf's host side: one GPU as a device. Memory from one budget, one stream
 * for everything, and errors that wait for the next sync().
 *
 * This file and the kernels become libtandem-cuda.so, which ops/cuda.c loads. Of the
 * program it gets nothing but what td_cuda_shelf_open() is given; it has its own copy of
 * what it needs of base.
 *
 * TANDEM_CUDA_MEMORY=host makes alloc() take pinned host memory, which the processor can
 * read and write too. It is slow, and meant for checks.
 */
#include "ops/cuda/shelf.h"

#include "base/float.h"
#include "base/mem.h"
#include "base/sysmem.h"
#include "ops/cuda/fault.h"
#include "ops/cuda/join.h"
#include "ops/cuda/limits.h"
#include "ops/cuda/stage.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ALLOCS = 256,
    NAME_MAX_BYTES = 96,
    TAKEN_MAX = 384,
    MIB = 1 << 20,
    SLOTS = 4,                 /* of pinned memory for copies that the stream makes */
    SLOT_BYTES = MIB,          /* longer copies are made without */
    MAX_RECORDED = 64,         /* steps; those beyond are not recorded */
    WARM_RUNS = 1,             /* of a step before it is recorded */
    RECORDED_LAYER = 32 << 10, /* bytes that the driver takes for a layer of a recorded
                                  step; 26 KB were measured */
    RECORDED_SUMS = 256 << 10  /* the same with sums over GPUs; 262 KB */
};

/* A step that was seen: run a few times, then recorded. */
struct recorded {
    uint64_t key;
    int runs;
    bool plain; /* it cannot be recorded */
    cudaGraphExec_t graph;
};

struct td_cuda {
    struct td_dev
        dev; /* first: a struct td_dev * of this shelf is a struct td_cuda * */
    struct td_cuda_ctx ctx;
    int device;
    bool host_memory;
    char name[NAME_MAX_BYTES];
    void *allocs[MAX_ALLOCS];
    int n_allocs;
    struct td_cuda_stage stage; /* of weights, while they are loaded */
    struct td_cuda_join join;
    int share; /* ranks that use this GPU */
    struct td_nvml_watch watch;
    char taken[TAKEN_MAX]; /* who else holds its memory */
    enum td_phase (*phase)(void);

    /* Pinned memory for small copies, used in turn; an event for each says when it is
     * free again. */
    char *slots;
    cudaEvent_t slot_free[SLOTS];
    unsigned next_slot;

    struct td_cuda_made made;
    struct recorded recorded[MAX_RECORDED], *now; /* now: between begin() and end() */
    int n_recorded;
    bool recording;

    /* The first failure of a call that reports none. */
    atomic_int failure;
    const char *failed_at;
};

static double gib(size_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* ---- errors ---- */

/* Fills err for a CUDA error that came while `doing`. */
static enum td_status report(const struct td_cuda *cuda, cudaError_t e,
                             const char *doing, struct td_error *err)
{
    td_phase_set(cuda->phase());
    return td_cuda_fault(e, &cuda->watch, cuda->device, cuda->name, doing, err);
}

/* Remembers a failure for the next sync(). */
static void check(struct td_cuda *cuda, cudaError_t e, const char *doing)
{
    int none = cudaSuccess;
    if (e != cudaSuccess && atomic_compare_exchange_strong(&cuda->failure, &none, e))
        cuda->failed_at = doing;
}

/* The shelf behind dev, its GPU being the calling thread's, for an operation. */
static struct td_cuda *enter_operation(struct td_dev *dev)
{
    struct td_cuda *cuda = (struct td_cuda *)dev;
    check(cuda, cudaSetDevice(cuda->device), "choosing the GPU");
    return cuda;
}

/* The same for what may change memory beside operations. */
static struct td_cuda *enter(struct td_dev *dev)
{
    struct td_cuda *cuda = enter_operation(dev);
    cuda->made.x = NULL;
    return cuda;
}

/* ---- memory ---- */

static enum td_status over_budget(const struct td_dev *dev, size_t bytes,
                                  const char *label, struct td_error *err)
{
    td_error_set(err, TD_E_MEMORY_PLAN, "%s needs %.3f GiB", label, gib(bytes));
    td_error_why(err, "%.3f of the %.3f GiB that tandem may use of %s are left",
                 gib(dev->budget - dev->used), gib(dev->budget), dev->ops.name);
    return TD_E_MEMORY_PLAN;
}

static enum td_status cuda_alloc(struct td_dev *dev, size_t bytes, const char *label,
                                 void **out, struct td_error *err)
{
    struct td_cuda *cuda = enter(dev);
    size_t rounded = (bytes + 255) / 256 * 256;
    void *p = NULL;
    td_phase_set(cuda->phase());
    if (rounded < bytes || rounded > dev->budget - dev->used)
        return over_budget(dev, bytes, label, err);
    if (cuda->n_allocs == MAX_ALLOCS)
        return td_error_set(err, TD_E_INTERNAL, "too many device allocations");
    rounded = TD_MAX(rounded, 256);
    cudaError_t e = cuda->host_memory
                        ? cudaHostAlloc(&p, rounded, cudaHostAllocPortable)
                        : cudaMalloc(&p, rounded);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return td_cuda_no_memory(&cuda->watch, cuda->name, bytes, dev->used, label,
                                 err);
    }
    if (e == cudaSuccess)
        cuda->allocs[cuda->n_allocs++] = p;
    if (e == cudaSuccess)
        e = cudaMemset(p, 0, rounded);
    if (e == cudaSuccess)
        e = cudaDeviceSynchronize();
    if (e != cudaSuccess)
        return report(cuda, e, label, err);
    dev->used += rounded;
    *out = p;
    return TD_OK;
}

static void cuda_close(struct td_dev *dev)
{
    struct td_cuda *cuda = enter(dev);
    if (cuda->ctx.stream) /* pinned memory does not wait for those who use it */
        (void)cudaStreamSynchronize(cuda->ctx.stream);
    (void)td_cuda_stage_close(&cuda->stage);
    for (int i = 0; i < cuda->n_recorded; i++)
        if (cuda->recorded[i].graph)
            (void)cudaGraphExecDestroy(cuda->recorded[i].graph);
    td_cuda_join_close(&cuda->join); /* recorded steps hold on to it */
    for (int i = 0; i < SLOTS; i++)
        if (cuda->slot_free[i])
            (void)cudaEventDestroy(cuda->slot_free[i]);
    if (cuda->slots)
        (void)cudaFreeHost(cuda->slots);
    for (int i = 0; i < cuda->n_allocs; i++)
        (void)(cuda->host_memory ? cudaFreeHost(cuda->allocs[i])
                                 : cudaFree(cuda->allocs[i]));
    if (cuda->ctx.stream)
        (void)cudaStreamDestroy(cuda->ctx.stream);
    td_free(cuda);
}

enum { AREAS = 11 };

struct area {
    size_t bytes; /* 0: not needed */
    void **to;
};

/* The work areas that this model needs. */
static void areas_of(struct td_cuda *cuda, const struct td_reserve *r,
                     struct area out[AREAS])
{
    const struct td_dev *dev = &cuda->dev;
    struct td_cuda_ctx *c = &cuda->ctx;
    size_t rows = (size_t)r->max_rows;
    int planes = dev->numerics == TD_NUM_BF16 ? 1 : 3;
    size_t wide = (size_t)td_cuda_pitch(TD_MAX(r->max_k, r->hidden));
    size_t result =
        (size_t)r->hidden * (planes == 1 ? sizeof(uint16_t) : sizeof(float));
    const struct area areas[AREAS] = {
        {3 * (size_t)td_cuda_tall(r->max_rows) * wide * sizeof(uint16_t),
         (void **)&c->planes},
        {r->experts ? td_cuda_mid_bytes(r, planes) : 0, (void **)&c->mid},
        {r->experts ? td_cuda_out_bytes(r, planes) : 0, &c->out},
        {r->experts ? rows * result : 0, &c->shared},
        {r->experts ? td_cuda_groups_bytes(r) : 0, (void **)&c->groups},
        {td_cuda_parts_bytes(r), (void **)&c->parts},
        {TD_MAX(td_cuda_chunks_bytes(r), td_cuda_planes_of_chunks(r)),
         (void **)&c->chunks},
        {td_cuda_counts_bytes(r), (void **)&c->counts},
        {td_cuda_candidates_bytes(r), (void **)&c->candidates},
        {td_cuda_exact_bytes(r), (void **)&c->image},
        {td_cuda_join_piece(&cuda->join, r) * (size_t)cuda->join.how.ranks *
             sizeof(float),
         (void **)&cuda->join.gathered},
    };
    memcpy(out, areas, sizeof(areas));
}

/* The driver's memory for recorded steps, which is not alloc()'s. */
static size_t recorded_bytes(const struct td_cuda *cuda, const struct td_reserve *r)
{
    size_t layers = (size_t)TD_MIN(r->steps, MAX_RECORDED) * (size_t)r->layers;
    if (!cuda->dev.ops.begin)
        return 0;
    return layers * (cuda->join.nccl ? RECORDED_SUMS : RECORDED_LAYER);
}

static size_t cuda_reserve_bytes(const struct td_dev *dev, const struct td_reserve *r)
{
    struct area areas[AREAS];
    struct td_cuda *cuda = (struct td_cuda *)(uintptr_t)dev; /* only asks for sizes */
    size_t sum = recorded_bytes(cuda, r);
    areas_of(cuda, r, areas);
    for (size_t i = 0; i < AREAS; i++)
        sum += (areas[i].bytes + 255) / 256 * 256;
    return sum;
}

static enum td_status cuda_reserve(struct td_dev *dev, const struct td_reserve *r,
                                   struct td_error *err)
{
    struct td_cuda *cuda = enter(dev);
    struct td_cuda_ctx *c = &cuda->ctx;
    struct area areas[AREAS];
    areas_of(cuda, r, areas);
    int32_t part = (r->max_len + TD_CUDA_MOST_SPLITS - 1) / TD_CUDA_MOST_SPLITS;
    size_t recorded = recorded_bytes(cuda, r);
    td_phase_set(cuda->phase());
    if (r->head_dim > TD_CUDA_MAX_DIM || r->dk > TD_CUDA_MAX_DIM ||
        r->experts > TD_CUDA_MAX_EXPERTS || r->experts_k > TD_CUDA_MAX_CHOICES) {
        td_error_set(err, TD_E_UNSUPPORTED, "the CUDA kernels cannot run this model");
        td_error_why(err, "they take heads of %d, %d experts and %d choices at most",
                     TD_CUDA_MAX_DIM, TD_CUDA_MAX_EXPERTS, TD_CUDA_MAX_CHOICES);
        td_error_fix(err, "use --device cpu");
        return TD_E_UNSUPPORTED;
    }
    if (r->n_v && !td_cuda_chunks_fit(c, r->dk, r->dv) &&
        td_cuda_delta_bytes(r->dk) > (size_t)c->shared_max) {
        td_error_set(err, TD_E_UNSUPPORTED, "%s cannot run this model", cuda->name);
        td_error_why(err, "a block of it has %d bytes of shared memory, %zu are needed",
                     c->shared_max, td_cuda_delta_bytes(r->dk));
        td_error_fix(err, "use --device cpu");
        return TD_E_UNSUPPORTED;
    }
    c->limits = *r;
    cuda->join.piece = td_cuda_join_piece(&cuda->join, r);
    c->split = TD_MAX((part + TD_CUDA_SPLIT - 1) / TD_CUDA_SPLIT, 1) * TD_CUDA_SPLIT;
    for (size_t i = 0; i < AREAS; i++) {
        enum td_status s =
            areas[i].bytes ? cuda_alloc(dev, areas[i].bytes, "work", areas[i].to, err)
                           : TD_OK;
        if (s != TD_OK)
            return s;
    }
    if (recorded > dev->budget - dev->used)
        return over_budget(dev, recorded, "recorded steps", err);
    dev->used += recorded;
    return TD_OK;
}

/* The next slot, once the copy that used it last is over. */
static char *take_slot(struct td_cuda *cuda, unsigned *index)
{
    *index = cuda->next_slot++ % SLOTS;
    check(cuda, cudaEventSynchronize(cuda->slot_free[*index]), "waiting for a copy");
    return cuda->slots + (size_t)*index * SLOT_BYTES;
}

/* From memory that the caller may change at once. */
static void cuda_put(struct td_dev *dev, void *dst, const void *src, size_t bytes)
{
    struct td_cuda *cuda = enter(dev);
    unsigned slot = 0;
    if (bytes <= SLOT_BYTES) {
        char *pinned = take_slot(cuda, &slot);
        memcpy(pinned, src, bytes);
        src = pinned;
    }
    check(cuda,
          cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, cuda->ctx.stream),
          "a copy to the GPU");
    if (bytes <= SLOT_BYTES)
        check(cuda, cudaEventRecord(cuda->slot_free[slot], cuda->ctx.stream),
              "a copy to the GPU");
}

static void cuda_copy(struct td_dev *dev, void *dst, const void *src, size_t bytes)
{
    struct td_cuda *cuda = enter(dev);
    check(cuda,
          cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, cuda->ctx.stream),
          "a copy on the GPU");
}

static void cuda_get(struct td_dev *dev, void *dst, const void *src, size_t bytes)
{
    struct td_cuda *cuda = enter(dev);
    unsigned slot = 0;
    void *to = bytes <= SLOT_BYTES ? take_slot(cuda, &slot) : dst;
    check(cuda,
          cudaMemcpyAsync(to, src, bytes, cudaMemcpyDeviceToHost, cuda->ctx.stream),
          "a copy from the GPU");
    check(cuda, td_cuda_join_wait(&cuda->join, cuda->ctx.stream), "waiting for a copy");
    if (to != dst)
        memcpy(dst, to, bytes);
}

static void cuda_zero(struct td_dev *dev, void *dst, size_t bytes)
{
    struct td_cuda *cuda = enter(dev);
    check(cuda, cudaMemsetAsync(dst, 0, bytes, cuda->ctx.stream), "clearing memory");
}

static enum td_status cuda_sync(struct td_dev *dev, struct td_error *err)
{
    struct td_cuda *cuda = enter(dev);
    check(cuda, td_cuda_join_wait(&cuda->join, cuda->ctx.stream),
          "waiting for the GPU");
    int e = atomic_load(&cuda->failure);
    if (cuda->join.failure.code != TD_OK) {
        if (err && err->code == TD_OK)
            *err = cuda->join.failure;
        return cuda->join.failure.code;
    }
    return e == cudaSuccess ? TD_OK
                            : report(cuda, (cudaError_t)e, cuda->failed_at, err);
}

/* ---- recorded steps ---- */

static struct recorded *find_step(struct td_cuda *cuda, uint64_t key)
{
    for (int i = 0; i < cuda->n_recorded; i++)
        if (cuda->recorded[i].key == key)
            return &cuda->recorded[i];
    if (cuda->n_recorded == MAX_RECORDED)
        return NULL;
    struct recorded *r = &cuda->recorded[cuda->n_recorded++];
    *r = (struct recorded){.key = key};
    return r;
}

/* The first runs are made as they are, so that all code is loaded before one is
 * recorded. */
static bool cuda_begin(struct td_dev *dev, uint64_t key)
{
    struct td_cuda *cuda = enter(dev);
    struct recorded *r = cuda->now = find_step(cuda, key);
    if (!r || r->graph)
        return !r;
    if (r->plain || r->runs++ < WARM_RUNS) {
        cuda->now = NULL;
        return true;
    }
    cudaError_t e =
        cudaStreamBeginCapture(cuda->ctx.stream, cudaStreamCaptureModeThreadLocal);
    check(cuda, e, "recording a step");
    cuda->recording = e == cudaSuccess;
    if (!cuda->recording)
        cuda->now = NULL;
    return true;
}

/* From a recording to what can be launched, its memory on the GPU included. A step that
 * cannot be recorded is made call by call from then on. */
static bool instantiate(struct td_cuda *cuda, struct recorded *r)
{
    cudaGraph_t graph = NULL;
    size_t before = 0, after = 0, total = 0;
    cudaError_t e = cudaStreamEndCapture(cuda->ctx.stream, &graph);
    (void)cudaMemGetInfo(&before, &total);
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(&r->graph, graph, 0);
    if (e == cudaSuccess)
        e = cudaGraphUpload(r->graph, cuda->ctx.stream);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (e != cudaSuccess) {
        if (r->graph)
            (void)cudaGraphExecDestroy(r->graph);
        r->graph = NULL;
        r->plain = true;
        (void)cudaGetLastError();
        return false;
    }
    (void)cudaMemGetInfo(&after, &total);
    cuda->dev.recorded++;
    cuda->dev.recorded_bytes += before > after ? before - after : 0;
    return true;
}

static bool cuda_end(struct td_dev *dev)
{
    struct td_cuda *cuda = enter(dev);
    struct recorded *r = cuda->now;
    bool recording = cuda->recording;
    cuda->now = NULL;
    cuda->recording = false;
    if (recording && !instantiate(cuda, r))
        return false;
    if (r && r->graph)
        check(cuda, cudaGraphLaunch(r->graph, cuda->ctx.stream), "a recorded step");
    return true;
}

/* ---- weights ---- */

static size_t element(enum td_mat_type type)
{
    return type == TD_MAT_F8 ? 1 : type == TD_MAT_BF16 ? 2 : 4;
}

static size_t cuda_matrix_bytes(const struct td_dev *dev, enum td_mat_type type,
                                int64_t n, int64_t k)
{
    (void)dev;
    return ((size_t)n * (size_t)td_cuda_pitch(k) * element(type) + 63) / 64 * 64;
}

static bool cuda_stage(struct td_dev *dev, void *areas, int n, size_t bytes)
{
    struct td_cuda *cuda = enter(dev);
    return td_cuda_stage_open(&cuda->stage, areas, n, bytes);
}

static void cuda_stage_wait(struct td_dev *dev, int area)
{
    struct td_cuda *cuda = enter(dev);
    check(cuda, td_cuda_stage_wait(&cuda->stage, area), "copying weights");
}

static void cuda_stage_end(struct td_dev *dev)
{
    struct td_cuda *cuda = enter(dev);
    check(cuda, td_cuda_stage_close(&cuda->stage), "copying weights");
}

/* Rows of a checkpoint to rows of a matrix; from a staging area the copy goes on behind
 * the caller's back. */
static void copy_rows(struct td_cuda *cuda, void *dst, size_t pitch, const void *src,
                      size_t wide, size_t n)
{
    cudaStream_t stream = td_cuda_stage_of(&cuda->stage, src);
    if (!stream)
        stream = cuda->ctx.stream;
    cudaError_t e = pitch == wide ? cudaMemcpyAsync(dst, src, n * wide,
                                                    cudaMemcpyHostToDevice, stream)
                                  : cudaMemcpy2DAsync(dst, pitch, src, wide, wide, n,
                                                      cudaMemcpyHostToDevice, stream);
    check(cuda, e, "copying weights");
}

static void cuda_pack(struct td_dev *dev, const struct td_matrix *m, int64_t row,
                      int64_t n, const void *src, enum td_dtype type)
{
    struct td_cuda *cuda = enter(dev);
    size_t pitch = (size_t)td_cuda_pitch(m->k) * element(m->type);
    size_t wide = (size_t)m->k * element(m->type);
    char *dst = (char *)m->data + (size_t)row * pitch;
    if (type != TD_DTYPE_F16) {
        copy_rows(cuda, dst, pitch, src, wide, (size_t)n);
        return;
    }
    const uint16_t *h = src;
    float *widened = td_calloc((size_t)n, wide);
    if (!widened) {
        check(cuda, cudaErrorMemoryAllocation, "widening weights");
        return;
    }
    for (int64_t i = 0; i < n * m->k; i++)
        widened[i] = td_f32_from_f16(h[i]);
    copy_rows(cuda, dst, pitch, widened, wide, (size_t)n);
    check(cuda, cudaStreamSynchronize(cuda->ctx.stream), "copying weights");
    td_free(widened);
}

/* ---- ranks ---- */

static bool cuda_join_place(struct td_dev *dev, char place[TD_JOIN_PLACE])
{
    struct td_cuda *cuda = enter(dev);
    const char *how = getenv("TANDEM_CUDA_JOIN");
    check(cuda, cudaDeviceGetPCIBusId(place, TD_JOIN_PLACE, cuda->device),
          "asking for its address");
    return !(how && strcmp(how, "host") == 0) && td_cuda_join_can();
}

static enum td_status cuda_join_id(struct td_dev *dev, unsigned char id[TD_JOIN_ID],
                                   struct td_error *err)
{
    struct td_cuda *cuda = enter(dev);
    td_phase_set(cuda->phase());
    return td_cuda_join_id(id, err);
}

static enum td_status cuda_join(struct td_dev *dev, const struct td_join *how,
                                struct td_error *err)
{
    struct td_cuda *cuda = enter(dev);
    td_phase_set(cuda->phase());
    td_cuda_join_close(&cuda->join);
    if (!how->direct) /* what the host has to do cannot be recorded */
        dev->ops.begin = NULL;
    return td_cuda_join_open(&cuda->join, how, cuda->device, err);
}

static void cuda_all_reduce(struct td_dev *dev, float *x, size_t n)
{
    struct td_cuda *cuda = enter(dev);
    td_cuda_join_sum(&cuda->join, cuda->ctx.stream, x, n);
    check(cuda, cudaGetLastError(), "a sum over the ranks");
}

/* ---- operations ---- */

#define OPERATION(name)                                                                \
    static void cuda_##name(struct td_dev *dev, const struct td_##name##_args *a)      \
    {                                                                                  \
        struct td_cuda *cuda = enter_operation(dev);                                   \
        td_cuda_##name(&cuda->ctx, a);                                                 \
        check(cuda, cudaGetLastError(), #name);                                        \
    }

OPERATION(fill)
OPERATION(embed)
OPERATION(norm)
OPERATION(linear)
OPERATION(qkv)
OPERATION(attention)
OPERATION(conv)
OPERATION(delta)
OPERATION(gated_norm)
OPERATION(swiglu)
OPERATION(route)
OPERATION(experts)
OPERATION(candidates)
OPERATION(gdn)

static void cuda_limits(struct td_dev *dev, bool products, struct td_limits *out)
{
    struct td_cuda *cuda = enter(dev);
    td_cuda_limits(&cuda->ctx, products, out);
}

static const struct td_ops table = {
    .alloc = cuda_alloc,
    .reserve = cuda_reserve,
    .reserve_bytes = cuda_reserve_bytes,
    .close = cuda_close,
    .put = cuda_put,
    .copy = cuda_copy,
    .get = cuda_get,
    .zero = cuda_zero,
    .sync = cuda_sync,
    .begin = cuda_begin,
    .end = cuda_end,
    .matrix_bytes = cuda_matrix_bytes,
    .pack = cuda_pack,
    .stage = cuda_stage,
    .stage_wait = cuda_stage_wait,
    .stage_end = cuda_stage_end,
    .fill = cuda_fill,
    .embed = cuda_embed,
    .norm = cuda_norm,
    .linear = cuda_linear,
    .qkv = cuda_qkv,
    .attention = cuda_attention,
    .conv = cuda_conv,
    .delta = cuda_delta,
    .gated_norm = cuda_gated_norm,
    .swiglu = cuda_swiglu,
    .route = cuda_route,
    .experts = cuda_experts,
    .candidates = cuda_candidates,
    .limits = cuda_limits,
    .gdn = cuda_gdn,
    .fuses = TD_CUDA_SMALL_ROWS,
    .join_place = cuda_join_place,
    .join_id = cuda_join_id,
    .join = cuda_join,
    .all_reduce = cuda_all_reduce,
};

/* ---- opening ---- */

/* Asks who is there beside us; best effort. */
static void look_around(struct td_cuda *cuda)
{
    char bus[32];
    if (cudaDeviceGetPCIBusId(bus, sizeof(bus), cuda->device) == cudaSuccess)
        td_nvml_watch_open(&cuda->watch, td_nvml_load(), bus);
    td_nvml_holders(&cuda->watch, "/proc", cuda->taken, sizeof(cuda->taken));
    cuda->dev.taken = cuda->taken;
}

/* What may be used when nobody says: what is free, but for a reserve that the driver's
 * own needs come from. A GPU that shares the host's memory gives what the host can: the
 * driver counts the page cache as taken there, and the system's own needs as free. */
static cudaError_t find_budget(struct td_cuda *cuda)
{
    size_t left = 0, total = 0;
    int integrated = 0;
    cudaError_t e = cudaMemGetInfo(&left, &total);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, cuda->device);
    if (e != cudaSuccess)
        return e;
    cuda->dev.shared = integrated || cuda->host_memory;
    if (cuda->dev.shared) {
        struct td_sysmem mem;
        if (td_sysmem_read("", &mem, NULL) == TD_OK)
            left = (size_t)td_sysmem_available(&mem, NULL, 0);
    }
    size_t kept = (size_t)512 * MIB + (cuda->dev.shared ? 0 : total / 128);
    left = left / (size_t)cuda->share;
    left = left > kept ? left - kept : 0;
    cuda->dev.budget = cuda->dev.budget ? TD_MIN(cuda->dev.budget, left) : left;
    return cudaSuccess;
}

static cudaError_t start(struct td_cuda *cuda)
{
    struct cudaDeviceProp prop;
    cudaError_t e = cudaSetDevice(cuda->device);
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(&prop, cuda->device);
    if (e != cudaSuccess)
        return e;
    (void)snprintf(cuda->name, sizeof(cuda->name), "cuda:%d %.64s", cuda->device,
                   prop.name);
    cuda->dev.ops.name = cuda->name;
    cuda->ctx.processors = prop.multiProcessorCount;
    cuda->ctx.shared_max = (int32_t)prop.sharedMemPerBlockOptin;
    look_around(cuda);
    e = cudaStreamCreateWithFlags(&cuda->ctx.stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaHostAlloc((void **)&cuda->slots, (size_t)SLOTS * SLOT_BYTES,
                          cudaHostAllocDefault);
    for (int i = 0; i < SLOTS && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&cuda->slot_free[i], cudaEventDisableTiming);
    if (e != cudaSuccess)
        return e;
    cuda->ctx.warpgroups = td_cuda_has_warpgroups(cuda->ctx.shared_max);
    td_cuda_prepare_gates(&cuda->ctx);
    td_cuda_prepare_linear(&cuda->ctx);
    td_cuda_prepare_exact(&cuda->ctx);
    td_cuda_prepare_experts(&cuda->ctx);
    td_cuda_prepare_few(&cuda->ctx);
    td_cuda_prepare_delta(&cuda->ctx);
    td_cuda_prepare_chunks(&cuda->ctx);
    td_cuda_prepare_attention(&cuda->ctx);
    e = cudaGetLastError();
    return e == cudaSuccess ? find_budget(cuda) : e;
}

int td_cuda_shelf_version(void)
{
    return TD_OPS_VERSION;
}

enum td_status td_cuda_shelf_open(const struct td_dev_params *params,
                                  enum td_phase (*phase)(void), struct td_dev **out,
                                  struct td_error *err)
{
    const char *memory = getenv("TANDEM_CUDA_MEMORY");
    int count = 0;
    struct td_cuda *cuda = td_calloc(1, sizeof(*cuda));
    if (!cuda)
        return td_error_set(err, TD_E_NOMEM, "no memory for a device");
    cuda->dev.ops = table;
    cuda->dev.numerics = cuda->ctx.numerics = params->numerics;
    cuda->dev.threads = TD_MAX(params->threads, 1);
    cuda->dev.budget = params->budget;
    cuda->device = params->device;
    if (params->no_graphs)
        cuda->dev.ops.begin = NULL, cuda->dev.ops.end = NULL;
    cuda->ctx.made = &cuda->made;
    cuda->phase = phase;
    cuda->host_memory = memory && strcmp(memory, "host") == 0;
    (void)snprintf(cuda->name, sizeof(cuda->name), "cuda:%d", cuda->device);
    cuda->dev.ops.name = cuda->name;
    cudaError_t e = cudaGetDeviceCount(&count);
    cuda->share = 1;
    if (e == cudaSuccess && params->local_ranks > 1 && cuda->device < count) {
        cuda->device = (cuda->device + params->local_rank) % count;
        cuda->share = (params->local_ranks + count - 1) / count;
        (void)snprintf(cuda->name, sizeof(cuda->name), "cuda:%d", cuda->device);
    }
    enum td_status s = TD_OK;
    if (e == cudaSuccess && cuda->device >= count) {
        td_phase_set(phase());
        s = td_error_set(err, TD_E_NO_DEVICE, "there is no GPU %d", cuda->device);
        td_error_why(err, "this process sees %d, numbered from 0", count);
        td_error_fix(err, "choose one of them: --device cuda:N");
    } else if (e == cudaSuccess) {
        e = start(cuda);
    }
    if (e != cudaSuccess)
        s = report(cuda, e, "its start", err);
    if (s != TD_OK) {
        cuda_close(&cuda->dev);
        return s;
    }
    *out = &cuda->dev;
    return TD_OK;
}

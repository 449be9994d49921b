/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a GPU: reading and copying its memory, the way from the host's, and products.
 * See limits.h.
 *
 * Products are those of cuBLASLt with square matrices, what a library gets out of this
 * GPU; where that is not there, those of a loop of our own that needs no memory. It is
 * loaded when it is first asked for; its few functions are declared here as its manual
 * gives them.
 */
#include "ops/cuda/limits.h"

#include "base/compiler.h"

#include <dlfcn.h>
#include <string.h>

enum {
    REPEATS = 5,
    TOGETHER = 4, /* times that one measurement does it */
    SIDE = 8192,  /* of the matrices */
    OUT_BYTES = 2 /* of an element of the product */
};

#define MOST_BYTES  ((size_t)1 << 32) /* many times the cache */
#define LEAST_BYTES ((size_t)1 << 26)
#define HOST_BYTES  ((size_t)1 << 26)
#define WORK_BYTES  ((size_t)1 << 25)

/* Memory and events while it is measured. */
struct bed {
    const struct td_cuda_ctx *c;
    char *memory, *host;
    size_t bytes;
    float *sinks;
    cudaEvent_t from, to;
};

/* ---- cuBLASLt ----------------------------------------------------------------------- */

enum {
    TYPE_F32 = 0,
    TYPE_BF16 = 14,
    TYPE_E4M3 = 28,
    COMPUTE_F32 = 68,
    DESC_TRANSA = 3,
    OP_T = 1
};

static struct lt {
    int (*create)(void **handle);
    int (*desc_create)(void **desc, int compute, int scale);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*desc_destroy)(void *desc);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols,
                         int64_t pitch);
    int (*layout_destroy)(void *layout);
    int (*product)(void *handle, void *desc, const void *alpha, const void *a, void *la,
                   const void *b, void *lb, const void *beta, const void *c, void *lc,
                   void *d, void *ld, const void *algorithm, void *work, size_t bytes,
                   cudaStream_t stream);
    void *handle; /* made once, lives as long as the process */
} lt;

static bool symbol(void *lib, const char *name, void *to)
{
    void *p = dlsym(lib, name);
    memcpy(to, &p, sizeof(p)); /* POSIX allows it, ISO C has no cast for it */
    return p != NULL;
}

static bool have_lt(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "libcublasLt.so"};
    void *lib = NULL;
    for (size_t i = 0; i < TD_COUNT(names) && !lib && !lt.handle; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return lt.handle != NULL;
    return symbol(lib, "cublasLtCreate", &lt.create) &&
           symbol(lib, "cublasLtMatmulDescCreate", &lt.desc_create) &&
           symbol(lib, "cublasLtMatmulDescSetAttribute", &lt.desc_set) &&
           symbol(lib, "cublasLtMatmulDescDestroy", &lt.desc_destroy) &&
           symbol(lib, "cublasLtMatrixLayoutCreate", &lt.layout_create) &&
           symbol(lib, "cublasLtMatrixLayoutDestroy", &lt.layout_destroy) &&
           symbol(lib, "cublasLtMatmul", &lt.product) && lt.create(&lt.handle) == 0;
}

/* ---- timing ------------------------------------------------------------------------- */

/* Something that is done on the stream; returns its bytes or operations, 0: not
 * possible. */
typedef double (*deed_fn)(const struct bed *b, void *arg);

/* Amounts a second, the best of a few tries. */
static double rate(const struct bed *b, deed_fn deed, void *arg)
{
    double best = 0;
    for (int r = -1; r < REPEATS; r++) { /* the first one warms up */
        double amount = 0;
        float ms = 0;
        (void)cudaEventRecord(b->from, b->c->stream);
        for (int i = 0; i < TOGETHER; i++)
            amount += deed(b, arg);
        (void)cudaEventRecord(b->to, b->c->stream);
        if (amount <= 0 || cudaEventSynchronize(b->to) != cudaSuccess ||
            cudaEventElapsedTime(&ms, b->from, b->to) != cudaSuccess || ms <= 0)
            return 0;
        if (r >= 0)
            best = TD_MAX(best, amount / (double)ms * 1e3);
    }
    return best;
}

static double do_read(const struct bed *b, void *arg)
{
    (void)arg;
    td_cuda_limits_read(b->c, b->memory, b->bytes, b->sinks);
    return (double)b->bytes;
}

static double do_copy(const struct bed *b, void *arg)
{
    (void)arg;
    size_t half = b->bytes / 2;
    cudaError_t e = cudaMemcpyAsync(b->memory, b->memory + half, half,
                                    cudaMemcpyDeviceToDevice, b->c->stream);
    return e == cudaSuccess ? (double)(2 * half) : 0;
}

static double do_upload(const struct bed *b, void *arg)
{
    (void)arg;
    cudaError_t e = cudaMemcpyAsync(b->memory, b->host, HOST_BYTES,
                                    cudaMemcpyHostToDevice, b->c->stream);
    return e == cudaSuccess ? (double)HOST_BYTES : 0;
}

static double do_multiply(const struct bed *b, void *arg)
{
    const bool *f8 = arg;
    return td_cuda_limits_multiply(b->c, *f8, b->sinks);
}

/* A product of square matrices, and what describes it. */
struct product {
    void *desc, *in, *out;
    size_t matrix; /* bytes of an operand */
};

static double do_product(const struct bed *b, void *arg)
{
    const struct product *p = arg;
    const float one = 1, none = 0;
    char *second = b->memory + p->matrix, *out = second + p->matrix;
    char *work = out + (size_t)SIDE * SIDE * OUT_BYTES;
    int e = lt.product(lt.handle, p->desc, &one, b->memory, p->in, second, p->in, &none,
                       out, p->out, out, p->out, NULL, work, WORK_BYTES, b->c->stream);
    return e == 0 ? 2.0 * SIDE * SIDE * SIDE : 0;
}

/* ---- what is measured ---------------------------------------------------------------- */

static double library_product(const struct bed *b, bool f8)
{
    const int transposed = OP_T;
    struct product p = {.matrix = (size_t)SIDE * SIDE * (f8 ? 1 : 2)};
    int type = f8 ? TYPE_E4M3 : TYPE_BF16;
    double found = 0;
    if (b->bytes < 2 * p.matrix + (size_t)SIDE * SIDE * OUT_BYTES + WORK_BYTES ||
        !have_lt())
        return 0;
    td_cuda_limits_fill(b->c->stream, b->memory, 2 * p.matrix, f8);
    if (lt.desc_create(&p.desc, COMPUTE_F32, TYPE_F32) == 0 &&
        lt.desc_set(p.desc, DESC_TRANSA, &transposed, sizeof(transposed)) == 0 &&
        lt.layout_create(&p.in, type, SIDE, SIDE, SIDE) == 0 &&
        lt.layout_create(&p.out, TYPE_BF16, SIDE, SIDE, SIDE) == 0)
        found = rate(b, do_product, &p);
    if (p.desc)
        (void)lt.desc_destroy(p.desc);
    if (p.in)
        (void)lt.layout_destroy(p.in);
    if (p.out)
        (void)lt.layout_destroy(p.out);
    return found;
}

static void measure_products(const struct bed *b, struct td_limits *out)
{
    bool no = false, yes = true;
    out->bf16 = library_product(b, false);
    out->f8 = library_product(b, true);
    out->how = "cuBLASLt";
    if (out->bf16 > 0)
        return;
    out->bf16 = rate(b, do_multiply, &no);
    out->f8 = rate(b, do_multiply, &yes);
    out->how = "a loop of products; cuBLASLt is not here";
}

static bool make_bed(struct bed *b)
{
    size_t sinks = td_cuda_limits_sinks(b->c) * sizeof(float);
    b->bytes = MOST_BYTES;
    while (b->bytes >= LEAST_BYTES &&
           cudaMalloc((void **)&b->memory, b->bytes) != cudaSuccess)
        b->bytes /= 2;
    return b->memory && cudaMalloc((void **)&b->sinks, sinks) == cudaSuccess &&
           cudaEventCreate(&b->from) == cudaSuccess &&
           cudaEventCreate(&b->to) == cudaSuccess;
}

void td_cuda_limits(const struct td_cuda_ctx *c, bool products, struct td_limits *out)
{
    struct bed b = {.c = c};
    (void)cudaStreamSynchronize(c->stream);
    if (make_bed(&b)) {
        td_cuda_limits_fill(c->stream, b.memory, b.bytes, false);
        out->copy = rate(&b, do_copy, NULL);
        out->read = TD_MAX(rate(&b, do_read, NULL), out->copy);
        if (cudaHostAlloc((void **)&b.host, HOST_BYTES, cudaHostAllocDefault) ==
            cudaSuccess)
            out->upload = rate(&b, do_upload, NULL);
        if (products)
            measure_products(&b, out);
    }
    if (b.from)
        (void)cudaEventDestroy(b.from);
    if (b.to)
        (void)cudaEventDestroy(b.to);
    (void)cudaFreeHost(b.host);
    (void)cudaFree(b.sinks);
    (void)cudaFree(b.memory);
    (void)cudaGetLastError();
}

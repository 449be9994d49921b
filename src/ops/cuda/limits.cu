/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that do one thing only, as fast as the GPU allows: read memory, multiply. See
 * limits.h.
 *
 * Products are made from operands that stay in shared memory, so that nothing but the
 * tensor cores bounds them: by warp groups where there are such instructions (sm_90a),
 * else by warps. Operands are random, since zeros take less power and run faster.
 */
#include "ops/cuda/device.cuh"
#include "ops/cuda/limits.h"

enum {
    READ_THREADS = 512,
    READ_BLOCKS = 4, /* of a multiprocessor */
    AT_A_TIME = 8,   /* reads of 16 bytes that a thread asks for before it uses one */
    GROUP = 128,     /* threads that multiply together */
    GROUPS = 2,      /* of a multiprocessor */
    ROWS = 64,
    COLS = 128,
    STEP_BYTES = 32, /* of a row of operands in one product */
    STEPS = 8,       /* products from different operands, asked for together */
    A_BYTES = ROWS * STEP_BYTES,
    B_BYTES = COLS * STEP_BYTES,
    TILE_BYTES = STEPS * (A_BYTES + B_BYTES),
    ROUNDS = 1024,
    SUMS = ROWS * COLS / GROUP
};

/* Two bf16 or four e4m3 numbers: any sign and mantissa, exponents around 1. */
TD_DEVICE uint32_t random_word(uint32_t i, bool f8)
{
    uint32_t x = i * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    x ^= x >> 13;
    return f8 ? (x & 0x8f8f8f8fu) | 0x30303030u : (x & 0x80ff80ffu) | 0x3f003f00u;
}

static __global__ void fill(uint32_t *to, size_t words, bool f8)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words)
        to[i] = random_word((uint32_t)i, f8);
}

extern "C" void td_cuda_limits_fill(cudaStream_t stream, void *to, size_t bytes,
                                    bool f8)
{
    size_t words = bytes / sizeof(uint32_t);
    fill<<<(unsigned)((words + 255) / 256), 256, 0, stream>>>((uint32_t *)to, words,
                                                              f8);
}

static __global__ void __launch_bounds__(READ_THREADS)
    read_all(const uint4 *from, size_t n, float *sink)
{
    size_t all = (size_t)gridDim.x * READ_THREADS * AT_A_TIME;
    size_t first = (size_t)blockIdx.x * READ_THREADS * AT_A_TIME + threadIdx.x;
    uint32_t sum = 0;
    for (size_t i = first; i + (AT_A_TIME - 1) * READ_THREADS < n; i += all) {
        uint4 x[AT_A_TIME];
#pragma unroll
        for (int k = 0; k < AT_A_TIME; k++)
            x[k] = __ldcs(from + i + (size_t)k * READ_THREADS);
#pragma unroll
        for (int k = 0; k < AT_A_TIME; k++)
            sum ^= x[k].x ^ x[k].y ^ x[k].z ^ x[k].w;
    }
    if (sum == 0x7fc00001) /* keeps the reads */
        *sink = 1;
}

extern "C" void td_cuda_limits_read(const struct td_cuda_ctx *c, const void *from,
                                    size_t bytes, float *sink)
{
    read_all<<<c->processors * READ_BLOCKS, READ_THREADS, 0, c->stream>>>(
        (const uint4 *)from, bytes / sizeof(uint4), sink);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* Of 8 rows by 16 bytes, one after the other: 128 bytes from one along the row to the
 * next, 256 from one down the rows to the next. */
TD_DEVICE uint64_t operand(const unsigned char *at)
{
    uint64_t address = (uint32_t)__cvta_generic_to_shared(at);
    return (address & 0x3ffff) >> 4 | (uint64_t)(128 >> 4) << 16 |
           (uint64_t)(256 >> 4) << 32;
}

#define EIGHT(d, i)                                                                    \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]),        \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define MULTIPLY(d, a, b, shape, types, more)                                          \
    asm volatile("{\n\t.reg .pred add;\n\tsetp.eq.u32 add, 0, 0;\n\t"                  \
                 "wgmma.mma_async.sync.aligned." shape ".f32." types " {"              \
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"              \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"    \
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"    \
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"   \
                 " %64, %65, add, 1, 1" more ";\n\t}"                                  \
                 : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24), EIGHT(d, 32), \
                   EIGHT(d, 40), EIGHT(d, 48), EIGHT(d, 56)                            \
                 : "l"(a), "l"(b))

template <bool f8>
TD_DEVICE void multiply_all(const unsigned char *tile, float (&d)[SUMS])
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    for (int r = 0; r < ROUNDS; r++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            uint64_t a = operand(tile + s * A_BYTES);
            uint64_t b = operand(tile + STEPS * A_BYTES + s * B_BYTES);
            if (f8)
                MULTIPLY(d, a, b, "m64n128k32", "e4m3.e4m3", "");
            else
                MULTIPLY(d, a, b, "m64n128k16", "bf16.bf16", ", 0, 0");
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
}
#else
template <bool f8>
TD_DEVICE void multiply(float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if (f8)
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* A warp's share: 16 rows, operands kept in registers. */
template <bool f8>
TD_DEVICE void multiply_all(const unsigned char *tile, float (&d)[SUMS])
{
    const uint32_t *words = (const uint32_t *)tile + threadIdx.x % WARP;
    uint32_t a[4], b[2];
    __syncthreads();
    for (int i = 0; i < 4; i++)
        a[i] = words[i * WARP];
    for (int i = 0; i < 2; i++)
        b[i] = words[(4 + i) * WARP];
    for (int r = 0; r < ROUNDS * STEPS; r++)
#pragma unroll
        for (int i = 0; i < SUMS; i += 4)
            multiply<f8>(d + i, a, b[0], b[1]);
}
#endif

template <bool f8> static __global__ void __launch_bounds__(GROUP) products(float *sink)
{
    __shared__ __align__(128) unsigned char tile[TILE_BYTES];
    float d[SUMS] = {0}, sum = 0;
    for (int i = (int)threadIdx.x; i < TILE_BYTES / 4; i += GROUP)
        ((uint32_t *)tile)[i] = random_word((uint32_t)i, f8);
    multiply_all<f8>(tile, d);
    for (int i = 0; i < SUMS; i++)
        sum += d[i];
    sink[(size_t)blockIdx.x * GROUP + threadIdx.x] = sum;
}

extern "C" size_t td_cuda_limits_sinks(const struct td_cuda_ctx *c)
{
    return (size_t)c->processors * GROUPS * GROUP;
}

extern "C" double td_cuda_limits_multiply(const struct td_cuda_ctx *c, bool f8,
                                          float *sink)
{
    unsigned blocks = (unsigned)(c->processors * GROUPS);
    if (f8)
        products<true><<<blocks, GROUP, 0, c->stream>>>(sink);
    else
        products<false><<<blocks, GROUP, 0, c->stream>>>(sink);
    return 2.0 * ROWS * COLS * (STEP_BYTES / (f8 ? 1 : 2)) * STEPS * ROUNDS * blocks;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small pieces that kernels of this shelf share: number formats, activations, sums over a
 * warp or block in one fixed order, and the tensor-core step.
 */
#ifndef TD_OPS_CUDA_DEVICE_CUH
#define TD_OPS_CUDA_DEVICE_CUH

#include "ops/cuda/launch.h"

#include <stdint.h>

enum { WARP = 32 };

#define TD_DEVICE        static __device__ __forceinline__
#define TD_DEVICE_MEMBER __device__ __forceinline__

/* By the special functions' unit: good to a few units of the last place. */
TD_DEVICE float td_sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

TD_DEVICE float td_silu(float x)
{
    return x * td_sigmoid(x);
}

TD_DEVICE float td_from_bf16(uint16_t x)
{
    return __uint_as_float((uint32_t)x << 16);
}

/* Two numbers rounded to nearest even; lo is the lower half. */
TD_DEVICE uint32_t td_to_bf16x2(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

TD_DEVICE uint16_t td_to_bf16(float x)
{
    return (uint16_t)td_to_bf16x2(x, 0.0f);
}

TD_DEVICE float td_round_bf16(float x)
{
    return td_from_bf16(td_to_bf16(x));
}

/* Bytes 0 and 1 of w, two e4m3 numbers, as bf16, exactly: by way of f16 and f32, of which
 * the upper halves hold all bits. */
TD_DEVICE uint32_t td_expand_e4m3x2(uint32_t w)
{
    uint32_t lo, hi;
    asm("{\n\t"
        ".reg .b32 both;\n\t"
        ".reg .b16 low, high;\n\t"
        "cvt.rn.f16x2.e4m3x2 both, %2;\n\t"
        "mov.b32 {low, high}, both;\n\t"
        "cvt.f32.f16 %0, low;\n\t"
        "cvt.f32.f16 %1, high;\n\t"
        "}"
        : "=r"(lo), "=r"(hi)
        : "h"((uint16_t)w));
    return __byte_perm(lo, hi, 0x7632);
}

TD_DEVICE float td_from_e4m3(uint8_t x)
{
    return __uint_as_float(td_expand_e4m3x2(x) << 16);
}

/* Element k of a matrix row as f32 without its scale. */
TD_DEVICE float td_weight(const void *data, int type, int64_t i)
{
    return type == TD_MAT_F8     ? td_from_e4m3(((const uint8_t *)data)[i])
           : type == TD_MAT_BF16 ? td_from_bf16(((const uint16_t *)data)[i])
                                 : ((const float *)data)[i];
}

/* The sum over a warp, in every lane. */
TD_DEVICE float td_warp_sum(float x)
{
    for (int d = WARP / 2; d; d /= 2)
        x += __shfl_xor_sync(0xffffffff, x, d);
    return x;
}

TD_DEVICE float td_warp_max(float x)
{
    for (int d = WARP / 2; d; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, d));
    return x;
}

/* The sum over a block of at most 32 warps, in every thread, by way of WARP numbers of
 * shared memory. All threads must call it. */
TD_DEVICE float td_block_sum_by(float *part, float x)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    x = td_warp_sum(x);
    __syncthreads();
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    x = lane < ((int)blockDim.x + WARP - 1) / WARP ? part[lane] : 0.0f;
    return td_warp_sum(x);
}

TD_DEVICE float td_block_sum(float x)
{
    __shared__ float part[WARP];
    return td_block_sum_by(part, x);
}

/* d[16 x 8] += a[16 x 16] b[16 x 8], bf16 in, f32 sums. */
TD_DEVICE void td_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices of 16-bit elements from shared memory, lane l giving the address of
 * row l % 8 of matrix l / 8; of each, lane (g, c) gets elements 2c and 2c + 1 of row g. */
TD_DEVICE void td_ldmatrix(uint32_t (&r)[4], const void *shared)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* The same of transposed matrices. */
TD_DEVICE void td_ldmatrix_trans(uint32_t (&r)[4], const void *shared)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* 16 bytes from global to shared memory behind the thread's back; zeros if !valid. */
TD_DEVICE void td_copy16(void *shared, const void *global, bool valid)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
                 "r"(bytes)
                 : "memory");
}

/* The same of a row's part of 128 bytes, of which the other lanes' pieces come soon: the
 * memory gives 128 bytes more readily than twice 64. */
TD_DEVICE void td_copy16_of_128(void *shared, const void *global, bool valid)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(global), "r"(bytes)
                 : "memory");
}

/* 4 bytes from global to shared memory behind the thread's back. */
TD_DEVICE void td_copy4(void *shared, const void *global)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global)
                 : "memory");
}

/* 8 bytes from global to shared memory behind the thread's back. */
TD_DEVICE void td_copy8(void *shared, const void *global)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(global)
                 : "memory");
}

TD_DEVICE void td_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Kernels overlap: one may be started when all blocks of the one before it have called
 * td_wait() or td_wait_early(), and so be far ahead. Until these return, a kernel may read
 * only what no kernel of the same step writes before it (weights, the batch, states of the
 * step before), and must write nothing; every kernel that td_start() launches calls one
 * of them once in every thread, but for blocks that do nothing beside others that do. */
TD_DEVICE void td_wait(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* The same for a kernel that works on `rows` rows: of few, the next kernel may start
 * before this one's turn. Of many that costs more than it gains. */
TD_DEVICE void td_wait_early(int64_t rows)
{
    if (rows <= TD_CUDA_FEW_ROWS)
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    td_wait();
}

/* Brings memory to the second-level cache; both are multiples of 16. */
TD_DEVICE void td_prefetch(const void *global, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes)
                 : "memory");
}

/* Launches a kernel that calls td_wait(), in clusters of so many blocks. */
template <typename... P, typename... A>
static inline void td_start_cluster(const struct td_cuda_ctx *c, void (*kernel)(P...),
                                    dim3 grid, int threads, size_t shared,
                                    unsigned cluster, const A &...args)
{
    cudaLaunchConfig_t launch = {};
    cudaLaunchAttribute with[2] = {};
    with[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    with[0].val.programmaticStreamSerializationAllowed = 1;
    with[1].id = cudaLaunchAttributeClusterDimension;
    with[1].val.clusterDim.x = cluster;
    with[1].val.clusterDim.y = with[1].val.clusterDim.z = 1;
    launch.gridDim = grid;
    launch.blockDim = dim3((unsigned)threads);
    launch.dynamicSmemBytes = shared;
    launch.stream = c->stream;
    launch.attrs = with;
    launch.numAttrs = cluster > 1 ? 2 : 1;
    (void)cudaLaunchKernelEx(&launch, kernel, args...);
}

/* The same, each block on its own. */
template <typename... P, typename... A>
static inline void td_start(const struct td_cuda_ctx *c, void (*kernel)(P...),
                            dim3 grid, int threads, size_t shared, const A &...args)
{
    td_start_cluster(c, kernel, grid, threads, shared, 1, args...);
}

/* All groups but the last n have arrived. */
template <int n> TD_DEVICE void td_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

/* The first row and number of rows of chunk `index` of the batch's prompt pieces. */
TD_DEVICE bool td_find_chunk(const struct td_batch &b, int32_t index, int32_t *row,
                             int32_t *n)
{
    for (int32_t s = b.n_decode; s < b.n_decode + b.n_prefill; s++) {
        int32_t rows = b.row0[s + 1] - b.row0[s];
        int32_t chunks = (rows + TD_CHUNK - 1) / TD_CHUNK;
        if (index < chunks) {
            *row = b.row0[s] + index * TD_CHUNK;
            *n = min(rows - index * TD_CHUNK, (int32_t)TD_CHUNK);
            return b.seq[b.row0[s]] >= 0;
        }
        index -= chunks;
    }
    return false;
}

#endif

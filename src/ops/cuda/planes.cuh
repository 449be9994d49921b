/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs of products as planes of bf16 numbers: x = x0 + x1 + x2, each plane the rounded
 * rest of those before it. Rows are padded with zeros to whole blocks. A plane is
 *
 *     row by row   [rows][pitch], for all products but those of warpgroup.cuh
 *     in slices    [pitch / SLICE][tall][SLICE], for those: a tile's part of a slice is
 *                  one piece of memory, which is copied to shared memory as it is. A
 *                  row's SLICE elements are in the order of steps (tile.cuh) of FP8 or
 *                  BF16 weights, pieces of 16 bytes swizzled as the tensor cores want it:
 *                  see td_planes_at()
 */
#ifndef TD_OPS_CUDA_PLANES_CUH
#define TD_OPS_CUDA_PLANES_CUH

#include "ops/cuda/device.cuh"

enum {
    SLICE = 64,    /* elements of k */
    SLICE_ROWS = 8 /* rows that are swizzled together; `tall` is a multiple */
};

/* Where a kernel leaves its result as planes beside the f32 form. */
struct td_planes_out {
    uint16_t *first;
    int64_t plane, pitch; /* elements of a plane, of a row */
    int32_t tall;         /* rows of a slice; 0: row by row */
    int32_t n;            /* 0: none are wanted */
    int32_t type;         /* of weights: the order of a slice */
};

/* Where element k of a row lies; k + 1, if k is even, lies behind it. */
TD_DEVICE int64_t td_planes_at(const struct td_planes_out &p, int64_t row, int64_t k)
{
    if (p.tall == 0)
        return row * p.pitch + k;
    int in = (int)(k % SLICE), f8 = p.type == TD_MAT_F8;
    int lane = f8 ? in / 16 : in % 32 / 8;
    int step = f8 ? in % 16 / 4 : in / 32 * 2 + in % 8 / 4;
    int piece = (2 * step + in % 4 / 2) ^ (int)(row % SLICE_ROWS);
    return (k / SLICE * p.tall + row) * SLICE + 8 * piece + 2 * lane + in % 2;
}

/* Writes x as n planes, `plane` elements apart. */
TD_DEVICE void td_planes_store(float x, int n, uint16_t *to, int64_t plane)
{
    for (int p = 0; p < n; p++) {
        uint16_t b = td_to_bf16(x);
        to[p * plane] = b;
        x -= td_from_bf16(b);
    }
}

/* The next plane's part of two numbers, which are left with the rest. */
TD_DEVICE uint32_t td_planes_take(float &x, float &y)
{
    uint32_t two = td_to_bf16x2(x, y);
    x -= __uint_as_float(two << 16);
    y -= __uint_as_float(two & 0xffff0000);
    return two;
}

/* Four numbers side by side. */
TD_DEVICE void td_planes_store4(float4 x, int n, uint16_t *to, int64_t plane)
{
    for (int p = 0; p < n; p++) {
        uint32_t lo = td_planes_take(x.x, x.y), hi = td_planes_take(x.z, x.w);
        *(uint2 *)(to + p * plane) = make_uint2(lo, hi);
    }
}

/* Element k of a row. */
TD_DEVICE void td_planes_store(float x, const struct td_planes_out &out, int64_t row,
                               int64_t k)
{
    td_planes_store(x, out.n, out.first + td_planes_at(out, row, k), out.plane);
}

/* Elements k and k + 1, k even. */
TD_DEVICE void td_planes_store2(float x, float y, const struct td_planes_out &out,
                                int64_t row, int64_t k)
{
    uint16_t *to = out.first + td_planes_at(out, row, k);
    for (int p = 0; p < out.n; p++)
        *(uint32_t *)(to + p * out.plane) = td_planes_take(x, y);
}

/* Four elements from k on, a multiple of 4. */
TD_DEVICE void td_planes_store4(float4 x, const struct td_planes_out &out, int64_t row,
                                int64_t k)
{
    if (out.tall) {
        td_planes_store2(x.x, x.y, out, row, k);
        td_planes_store2(x.z, x.w, out, row, k + 2);
        return;
    }
    td_planes_store4(x, out.n, out.first + td_planes_at(out, row, k), out.plane);
}

/* The same where 16 lanes side by side have SLICE elements, and all of the warp call it:
 * pairs of them put their words together, so that halves of pieces are written. */
TD_DEVICE void td_planes_store4_warp(float4 x, const struct td_planes_out &out,
                                     int64_t row, int64_t k)
{
    if (out.tall == 0) {
        td_planes_store4(x, out, row, k);
        return;
    }
    int other = out.type == TD_MAT_F8 ? 4 : 2; /* holds what lies beside */
    bool second = (threadIdx.x & (unsigned)other) != 0;
    uint16_t *to = out.first + (second ? td_planes_at(out, row, k + 2) - 2
                                       : td_planes_at(out, row, k));
    for (int p = 0; p < out.n; p++) {
        uint32_t lo = td_planes_take(x.x, x.y), hi = td_planes_take(x.z, x.w);
        uint32_t got = __shfl_xor_sync(0xffffffff, second ? lo : hi, other);
        *(uint2 *)(to + p * out.plane) =
            second ? make_uint2(got, hi) : make_uint2(lo, got);
    }
}

static __global__ void __launch_bounds__(256)
    planes_row(const float *x, int64_t stride, int64_t k,
               const struct td_planes_out planes)
{
    int64_t row = blockIdx.x, i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    td_wait();
    if (i < planes.pitch)
        td_planes_store(i < k ? x[row * stride + i] : 0.0f, planes, row, i);
}

/* Whether products of so many rows are those of warpgroup.cuh. */
static inline bool td_planes_sliced(const struct td_cuda_ctx *c, int32_t rows)
{
    return c->warpgroups && rows > TD_CUDA_SMALL_ROWS;
}

/* n planes in c->planes, for products with weights of a type. */
static inline struct td_planes_out td_planes_of(const struct td_cuda_ctx *c,
                                                int32_t rows, int64_t k, int n,
                                                bool sliced, int type)
{
    int64_t pitch = td_cuda_pitch(k), tall = td_cuda_tall(rows);
    return (struct td_planes_out){
        c->planes, tall * pitch, pitch, sliced ? (int32_t)tall : 0, n, type};
}

static inline void td_planes_note(const struct td_cuda_ctx *c, const float *x,
                                  int64_t stride, int64_t k, int32_t rows,
                                  const struct td_planes_out &planes)
{
    *c->made = (struct td_cuda_made){x,        stride,           k,          rows,
                                     planes.n, planes.tall != 0, planes.type};
}

/* c->planes holds n planes of x[rows][stride], row by row or in slices for weights of
 * `type`, left there by the kernel that made x or made now. */
static inline struct td_planes_out td_planes_make(const struct td_cuda_ctx *c,
                                                  const float *x, int64_t stride,
                                                  int32_t rows, int64_t k, int n,
                                                  bool sliced, int type)
{
    const struct td_cuda_made *m = c->made;
    struct td_planes_out planes = td_planes_of(c, rows, k, n, sliced, type);
    if (m->x == x && m->stride == stride && m->k == k && m->rows == rows && m->n >= n &&
        m->sliced == sliced && (!sliced || m->type == type))
        return planes;
    dim3 grid((unsigned)rows, (unsigned)((planes.pitch + 255) / 256));
    td_start(c, planes_row, grid, 256, 0, x, stride, k, planes);
    td_planes_note(c, x, stride, k, rows, planes);
    return planes;
}

/* For a kernel that makes x and n planes of it, for products with `next` if that is known.
 * Planes beyond the end of a row are not padded, so k must be whole blocks. Slices are
 * else in the order that was wanted last. */
static inline struct td_planes_out td_planes_for(const struct td_cuda_ctx *c,
                                                 const float *x, int32_t rows,
                                                 int64_t k, int n,
                                                 const struct td_matrix *next)
{
    bool whole = k % TD_SCALE_BLOCK == 0 && rows <= c->limits.max_rows &&
                 (k <= c->limits.max_k || k <= c->limits.hidden);
    struct td_planes_out planes =
        td_planes_of(c, rows, k, whole ? n : 0, td_planes_sliced(c, rows),
                     next ? (int)next->type : c->made->type);
    td_planes_note(c, whole ? x : NULL, k, k, rows, planes);
    return planes;
}

/* gated_norm() of rows from `first` on, with planes of all rows. */
void td_gated_norm_from(const struct td_cuda_ctx *c, const struct td_gated_norm_args *a,
                        int32_t first, const struct td_planes_out &planes);

/* Planes of the inputs that are not exact. */
static inline int td_planes_rounded(const struct td_cuda_ctx *c)
{
    return c->numerics == TD_NUM_BF16 ? 1 : 3;
}

#endif

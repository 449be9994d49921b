/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs of products as planes of bf16 numbers: x = x0 + x1 + x2, each plane the rounded
 * rest of those before it. Rows are padded with zeros to whole blocks.
 */
#ifndef TD_OPS_CUDA_PLANES_CUH
#define TD_OPS_CUDA_PLANES_CUH

#include "ops/cuda/device.cuh"

/* Writes x as n planes, `plane` elements apart. */
TD_DEVICE void td_planes_store(float x, int n, uint16_t *to, int64_t plane)
{
    for (int p = 0; p < n; p++) {
        uint16_t b = td_to_bf16(x);
        to[p * plane] = b;
        x -= td_from_bf16(b);
    }
}

/* Four numbers side by side. */
TD_DEVICE void td_planes_store4(float4 x, int n, uint16_t *to, int64_t plane)
{
    for (int p = 0; p < n; p++) {
        uint32_t lo = td_to_bf16x2(x.x, x.y), hi = td_to_bf16x2(x.z, x.w);
        *(uint2 *)(to + p * plane) = make_uint2(lo, hi);
        x.x -= __uint_as_float(lo << 16);
        x.y -= __uint_as_float(lo & 0xffff0000);
        x.z -= __uint_as_float(hi << 16);
        x.w -= __uint_as_float(hi & 0xffff0000);
    }
}

/* Where a kernel leaves its result as planes beside the f32 form. */
struct td_planes_out {
    uint16_t *to;
    int64_t plane;
    int n; /* 0: none are wanted */
};

static __global__ void __launch_bounds__(256)
    planes_row(const float *x, int64_t stride, int64_t k, int n, uint16_t *to,
               int64_t plane)
{
    int64_t pitch = td_cuda_pitch(k), row = blockIdx.x;
    int64_t i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    td_wait();
    if (i < pitch)
        td_planes_store(i < k ? x[row * stride + i] : 0.0f, n, to + row * pitch + i,
                        plane);
}

static inline void td_planes_note(const struct td_cuda_ctx *c, const float *x,
                                  int64_t stride, int32_t rows, int64_t k, int n)
{
    *c->made = (struct td_cuda_made){x, stride, k, rows, n};
}

/* c->planes holds planes of x[rows][stride]: [n][rows][pitch of k], left there by the
 * kernel that made x or made now. */
static inline void td_planes_make(const struct td_cuda_ctx *c, const float *x,
                                  int64_t stride, int32_t rows, int64_t k, int n)
{
    const struct td_cuda_made *m = c->made;
    int64_t pitch = td_cuda_pitch(k);
    if (m->x == x && m->stride == stride && m->k == k && m->rows == rows && m->n >= n)
        return;
    dim3 grid((unsigned)rows, (unsigned)((pitch + 255) / 256));
    td_start(c, planes_row, grid, 256, 0, x, stride, k, n, c->planes, rows * pitch);
    td_planes_note(c, x, stride, rows, k, n);
}

/* For a kernel that makes x and n planes of it. Planes beyond the end of a row are not
 * padded, so k must be whole blocks. */
static inline struct td_planes_out td_planes_for(const struct td_cuda_ctx *c,
                                                 const float *x, int32_t rows,
                                                 int64_t k, int n)
{
    bool whole = k % TD_SCALE_BLOCK == 0 && rows <= c->limits.max_rows &&
                 (k <= c->limits.max_k || k <= c->limits.hidden);
    td_planes_note(c, whole ? x : NULL, k, rows, k, n);
    return (struct td_planes_out){c->planes, rows * k, whole ? n : 0};
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The x86 shelf: one set of kernels (the .inc files) built for each level by the
 * shelf_*.c files. Private to ops/x86.
 *
 * Sums of products run along k in a vector of partial sums, element i in lane i mod
 * lanes, added up over the lanes at the end. Work is done in blocks of TD_SCALE_BLOCK
 * elements of k; inputs are copied into rows padded with zeros to whole blocks where
 * they are not so already. The order of an output's sum is therefore the same in every
 * kernel, whatever the number of rows and wherever the weights come from.
 *
 * Numbers: below the level avx512bf16 every product is f32 (FP8 weights times their
 * scale rounded once, as the reference does). At avx512bf16 in TD_NUM_BF16 mode, FP8 and
 * BF16 weights meet bf16 inputs in the processor's dot instruction, which flushes
 * subnormals and rounds each of its two sums to nearest even; an FP8 block's sum is
 * scaled when the block is done.
 */
#ifndef TD_OPS_X86_X86_H
#define TD_OPS_X86_X86_H

#include "ops/cpu.h"

enum {
    X86_PANEL_BYTES = 512 << 10, /* expanded weights that a thread works on at a time */
    X86_PANEL_ROWS = 256,        /* the most rows of it */
    X86_SAVE_FLOATS =
        256 * 8 * 16,    /* sums of a panel whose rows are worked on in parts */
    X86_LINE_GAP = 64,   /* between copied rows, against equal cache sets */
    X86_AHEAD = 8 << 10, /* bytes from what is used to what is fetched */
    X86_STREAM_BYTES = 128 << 10, /* weights in one task when rows are few */
    X86_TINY_BYTES = 48 << 10,    /* less work than this is not worth waking threads */
    X86_ATTENTION_LINES = 48,     /* query vectors of a prompt that one thread takes */
    X86_ATTENTION_PARTS = 16, /* runs that a generated token's context is cut into */
    X86_SHARED_TASKS = 2,     /* fewer key heads a thread: threads share a context */
    X86_NETWORK_BYTES = 256,  /* what experts() plans for one expert */
};

/* How products take their inputs: bf16 for the dot instruction, f32 rounded to bf16, f32
 * as they are. Each form has an area of copies (struct td_cpu). */
enum td_x86_form { X86_NARROW, X86_ROUNDED, X86_RAW, X86_FORMS };

/* k rounded up to whole blocks. */
static inline int64_t td_x86_padded(int64_t k)
{
    return td_scale_blocks(k) * TD_SCALE_BLOCK;
}

/* Bytes from one copied input row of k elements to the next. */
static inline size_t td_x86_stride(int64_t k, enum td_x86_form form)
{
    return (size_t)td_x86_padded(k) * (form == X86_NARROW ? 2 : 4) + X86_LINE_GAP;
}

/* work() for items 0 .. n, by the calling thread alone when there is little to do. */
static inline void td_x86_run(struct td_dev *dev, int64_t bytes, int64_t n,
                              int64_t step, td_cpu_work work, const void *args)
{
    if (bytes < X86_TINY_BYTES)
        work((struct td_cpu *)dev, args, 0, n);
    else
        td_cpu_run((struct td_cpu *)dev, n, step, work, args);
}

/* The bf16 value of the e4m3 codes 0 .. 127: 128 upper bytes, then 128 lower ones. */
extern const uint8_t td_x86_f8_bytes[256];

/* Choices of experts, grouped: order[start[e] .. start[e + 1]) are the choices (row * k
 * + i) that chose expert e, in rising order; busy[0 .. n_busy) the experts with any. */
struct td_x86_groups {
    int32_t *order, *start, *busy;
    int32_t n_busy;
};

/* Fills g from memory that reserve() set aside; it stays valid until the next call. */
void td_x86_group(struct td_cpu *cpu, const int32_t *id, int32_t choices,
                  int32_t experts, struct td_x86_groups *g);

/* Sets aside what the kernels need: see struct td_cpu. */
size_t td_x86_reserve_bytes(const struct td_dev *dev, const struct td_reserve *r);
enum td_status td_x86_reserve(struct td_dev *dev, const struct td_reserve *r,
                              struct td_error *err);

#endif

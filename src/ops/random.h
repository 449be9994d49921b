/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers for weights that no file holds: a hash of (seed, place), so that any part of
 * any weight can be made alone, by any thread of any device, with the same bits.
 *
 * A word of the hash gives four elements, 16 bits each; an element is an odd whole number
 * from -65535 to 65535, times a step. Such products have one rounding, which is the same
 * on processors and GPUs.
 */
#ifndef TD_OPS_RANDOM_H
#define TD_OPS_RANDOM_H

#include <stdint.h>

#ifdef __CUDACC__
#define TD_RANDOM __host__ __device__ static inline
#else
#define TD_RANDOM static inline
#endif

/* Numbers that one word makes. */
enum { TD_RANDOM_PER_WORD = 4 };

/* splitmix64 of a counter. */
TD_RANDOM uint64_t td_random_word(uint64_t seed, uint64_t at)
{
    uint64_t z = seed + (at + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Element i of a word, for i below TD_RANDOM_PER_WORD. */
TD_RANDOM float td_random_odd(uint64_t word, int i)
{
    return (float)(2 * (int32_t)((word >> (16 * i)) & 0xffff) - 65535);
}

/* The word and the element in it of row and column of a weight with `cols` columns. */
TD_RANDOM uint64_t td_random_place(int64_t row, int64_t col, int64_t cols)
{
    const int64_t per = TD_RANDOM_PER_WORD;
    return (uint64_t)(row * ((cols + per - 1) / per) + col / per);
}

/* The factor of an FP8 block, 0.5 to 1.5: neighbours differ, as in real checkpoints. */
TD_RANDOM float td_random_factor(uint64_t seed, int64_t block)
{
    uint64_t word = td_random_word(~seed, (uint64_t)block);
    return 0.5f + (float)(word >> 40) * (1.0f / 16777216.0f);
}

#endif

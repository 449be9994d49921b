/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans over one row of logits, for the files of this room and their tests.
 *
 * A row is looked at in blocks of TD_ROW_BLOCK ids. The largest value of each block is
 * found first; later scans skip blocks that cannot matter, which for a usual row is
 * nearly all of them.
 *
 * Candidates are 64-bit keys: the value in the upper half, in a form that compares like
 * the float, and the complement of the id in the lower half. Larger key: earlier in
 * rank (larger value, then lower id). With its halves exchanged (td_key_swap()) the
 * same key sorts by id, lowest first. Nothing is ever sorted whole; prefixes of the
 * order are found by partial selection.
 */
#ifndef TD_SAMPLE_SAMPLE_INT_H
#define TD_SAMPLE_SAMPLE_INT_H

#include "sample/sample.h"

enum { TD_ROW_BLOCK = 64 };

/* Turns values into weights: exp((x - max) / temperature). */
struct td_scale {
    float max, inv_temperature;
};

/* Fills w->max for the row x [vocab]; *max is the largest of all. Returns false when a
 * value is NaN or infinite. */
bool td_row_max(struct td_sample_work *w, const float *x, float *max);

/* The same for a row that may hold -INFINITY (excluded ids) and nothing worse. */
float td_row_max_masked(struct td_sample_work *w, const float *x);

/* Fills w->sum with the weights of each block and returns their total. Needs w->max.
 * Weights below exp(-50) may be left out: all together they are less than the
 * resolution of a draw. */
double td_row_sum(struct td_sample_work *w, const float *x, const struct td_scale *s);

/* First id with the largest value. Needs w->max. */
int32_t td_row_argmax(const struct td_sample_work *w, const float *x, float max);

/* The id under u (above 0, to 1) in a draw over the whole row. Needs w->max and the
 * total of td_row_sum(). */
int32_t td_row_draw(const struct td_sample_work *w, const float *x,
                    const struct td_scale *s, double total, double u);

/* A value that at least k ids reach (the k-th largest block maximum), -INFINITY when k
 * is more than there are blocks. Needs w->max, overwrites w->keys. */
float td_row_floor(struct td_sample_work *w, int64_t k);

/* Writes the keys of all ids with x >= floor (and above -INFINITY) to w->keys, returns
 * how many. Needs w->max. */
size_t td_row_gather(struct td_sample_work *w, const float *x, float floor);

/* How many ids of the row rank before (value, id). Needs w->max. */
int32_t td_row_rank(const struct td_sample_work *w, const float *x, float value,
                    int32_t id);

uint64_t td_key(float x, int32_t id);
float td_key_value(uint64_t key);
int32_t td_key_id(uint64_t key);

/* Exchanges the halves of n keys. */
void td_key_swap(uint64_t *keys, size_t n);

/* Moves the k largest keys to the front, in no order. */
void td_key_select(uint64_t *keys, size_t n, size_t k);

/* Sorts the k largest keys to the front, largest first; k at most TD_MAX_LOGPROBS. */
void td_key_sort(uint64_t *keys, size_t n, size_t k);

/* Sum of the weights. by_id: the keys have their halves exchanged. */
double td_key_sum(const uint64_t *keys, size_t n, const struct td_scale *s, bool by_id);

/* Moves the shortest prefix of the descending order whose weights reach `mass` to the
 * front and returns its length, at least 1; its last element is the smallest key of
 * it. n at least 1. */
size_t td_key_select_mass(uint64_t *keys, size_t n, double mass,
                          const struct td_scale *s, bool by_id);

/* The random number of a draw: above 0, to 1, 53 bits. */
double td_draw_uniform(uint64_t seed, uint32_t choice, int64_t position);

/* Philox4x32-10: ten rounds on a counter, in place. */
void td_philox(uint32_t counter[4], uint64_t key);

#endif

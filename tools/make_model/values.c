/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a tensor.
 *
 * A matrix is made in tiles of 128 x 128, the blocks that share an FP8 scale. A weight
 * is i * |i| * s: i in -255..255 is the sum of two random bytes less 255, and s belongs
 * to the tile. The square makes small weights frequent and large ones rare, as training
 * does, so that all exponents of e4m3 occur; tiles differ in s by up to a factor of
 * three, so that a scale taken from the wrong block shows. As there are only 511
 * values of i, each tile gets a table of finished bytes, and the work for a weight is a
 * share of one hash and one look-up.
 *
 * A hash gives four weights. It is splitmix64 of (key, row, column / 4): a counter, so
 * any part of any tensor can be made alone.
 */
#include "tools/make_model/synth.h"

#include "base/float.h"

#include <math.h>
#include <string.h>

enum { LEVELS = 511, ZERO = 255 };

int64_t td_synth_size(enum td_dtype dtype)
{
    return td_dtype_bits(dtype) / 8;
}

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t word(uint64_t key, uint64_t counter)
{
    return mix(key + (counter + 1) * 0x9e3779b97f4a7c15u);
}

uint64_t td_synth_key(int64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *p = name; *p; p++)
        h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    return mix(h ^ mix((uint64_t)seed + 0x5851f42d4c957f2du));
}

static void put_le(uint8_t *out, uint32_t v, int64_t size)
{
    for (int64_t i = 0; i < size; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

/* One number as it is stored. */
static void put_number(uint8_t *out, float f, enum td_dtype dtype)
{
    if (dtype == TD_DTYPE_F32)
        put_le(out, td_bits_from_f32(f), 4);
    else if (dtype == TD_DTYPE_F16)
        put_le(out, td_f16_from_f32(f), 2);
    else if (dtype == TD_DTYPE_BF16)
        put_le(out, td_bf16_from_f32(f), 2);
    else
        *out = td_e4m3_from_f32(f);
}

/* A tile's numbers before scaling, each -255..255; its widest row stays in the cache. */
struct tile {
    int64_t rows, cols;
    int largest; /* absolute value */
    int16_t level[TD_SYNTH_BLOCK][TD_SYNTH_BLOCK];
};

static void draw_tile(const struct td_synth_tensor *t, int64_t row, int64_t col,
                      struct tile *tile)
{
    uint64_t words = (uint64_t)(t->cols + 3) / 4; /* of a row */
    tile->largest = 0;
    for (int64_t r = 0; r < tile->rows; r++) {
        uint64_t at = (uint64_t)(row + r) * words + (uint64_t)col / 4;
        int16_t *level = tile->level[r];
        for (int64_t c = 0; c < tile->cols; c += 4) {
            uint64_t z = word(t->key, at++), byte = 0x00ff00ff00ff00ffu;
            uint64_t sums = (z & byte) + ((z >> 8) & byte);
            for (int k = 0; k < 4; k++)
                level[c + k] = (int16_t)((int)((sums >> (16 * k)) & 0x1ff) - ZERO);
        }
        for (int64_t c = 0; c < tile->cols; c++) {
            int a = level[c] < 0 ? -level[c] : level[c];
            tile->largest = a > tile->largest ? a : tile->largest;
        }
    }
}

/* The tile's step: gain / sqrt(cols), made up for the levels' own deviation (the mean of
 * i^4 is 255^4 / 15), times a factor from 0.5 to 1.5 (mean square 13/12). */
static float tile_step(const struct td_synth_tensor *t, int64_t row, int64_t col)
{
    uint64_t tiles = (uint64_t)(t->cols + TD_SYNTH_BLOCK - 1) / TD_SYNTH_BLOCK;
    uint64_t n =
        (uint64_t)row / TD_SYNTH_BLOCK * tiles + (uint64_t)col / TD_SYNTH_BLOCK;
    float factor = 0.5f + (float)(word(~t->key, n) >> 40) / 16777216.0f;
    float spread = 65025.0f * sqrtf(13.0f / 12.0f / 15.0f);
    return factor * (t->gain / (spread * sqrtf((float)t->cols)));
}

static float level_value(int level, float step)
{
    return (float)(level * (level < 0 ? -level : level)) * step;
}

/* Writes a tile's elements, which take `size` bytes, from the table of its levels. */
static void look_up(const struct tile *tile, const uint8_t *table, int64_t size,
                    uint8_t *out, int64_t stride)
{
    for (int64_t r = 0; r < tile->rows; r++, out += stride) {
        const int16_t *level = tile->level[r];
        if (size == 1) {
            for (int64_t c = 0; c < tile->cols; c++)
                out[c] = table[level[c] + ZERO];
        } else if (size == 2) {
            for (int64_t c = 0; c < tile->cols; c++)
                memcpy(out + 2 * c, table + 2 * (int64_t)(level[c] + ZERO), 2);
        } else {
            for (int64_t c = 0; c < tile->cols; c++)
                memcpy(out + 4 * c, table + 4 * (int64_t)(level[c] + ZERO), 4);
        }
    }
}

static void write_tile(const struct td_synth_tensor *t, int64_t row, int64_t col,
                       struct tile *tile, uint8_t *out, enum td_dtype scale_dtype,
                       uint8_t *scale)
{
    int64_t size = td_synth_size(t->dtype);
    uint8_t table[4 * LEVELS];
    float step = tile_step(t, row, col), divisor = 1.0f;
    draw_tile(t, row, col, tile);
    if (t->dtype == TD_DTYPE_F8_E4M3) {
        divisor = level_value(tile->largest, step) / TD_E4M3_MAX;
        if (scale_dtype == TD_DTYPE_BF16)
            divisor = td_bf16_round(divisor);
        if (!(divisor > 0)) /* a block of zeros */
            divisor = 1.0f;
        put_number(scale, divisor, scale_dtype);
    }
    for (int i = 0; i < LEVELS; i++)
        put_number(table + i * size, level_value(i - ZERO, step) / divisor, t->dtype);
    look_up(tile, table, size, out, t->cols * size);
}

static void write_uniform(const struct td_synth_tensor *t, int64_t row0, int64_t rows,
                          uint8_t *out)
{
    int64_t size = td_synth_size(t->dtype);
    for (int64_t i = 0; i < rows * t->cols; i++) {
        uint64_t z = word(t->key, (uint64_t)(row0 * t->cols + i));
        float u = (float)(z >> 40) / 16777216.0f;
        put_number(out + i * size, t->lo + (t->hi - t->lo) * u, t->dtype);
    }
}

void td_synth_values(const struct td_synth_tensor *t, int64_t row0, int64_t rows,
                     uint8_t *out, enum td_dtype scale_dtype, uint8_t *scales)
{
    if (t->uniform) {
        write_uniform(t, row0, rows, out);
        return;
    }
    struct tile tile;
    int64_t size = td_synth_size(t->dtype);
    int64_t scale_size = td_synth_size(scale_dtype);
    for (int64_t r = 0; r < rows; r += TD_SYNTH_BLOCK) {
        tile.rows = TD_MIN(rows - r, TD_SYNTH_BLOCK);
        for (int64_t c = 0; c < t->cols; c += TD_SYNTH_BLOCK) {
            tile.cols = TD_MIN(t->cols - c, TD_SYNTH_BLOCK);
            write_tile(t, row0 + r, c, &tile, out + (r * t->cols + c) * size,
                       scale_dtype, scales);
            if (t->dtype == TD_DTYPE_F8_E4M3)
                scales += scale_size;
        }
    }
}

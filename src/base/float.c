/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of e4m3 values. A row holds the eight mantissas of one exponent, in steps of
 * a power of two; the first row are the subnormals, the last ends in NaN.
 */
#include "base/float.h"

#include <math.h>

#define ROW(step)                                                                      \
    8 * (step), 9 * (step), 10 * (step), 11 * (step), 12 * (step), 13 * (step),        \
        14 * (step), 15 * (step)

#define HALF(one, nan)                                                                 \
    0 * (one)*0x1p-9f, 1 * (one)*0x1p-9f, 2 * (one)*0x1p-9f, 3 * (one)*0x1p-9f,        \
        4 * (one)*0x1p-9f, 5 * (one)*0x1p-9f, 6 * (one)*0x1p-9f, 7 * (one)*0x1p-9f,    \
        ROW((one)*0x1p-9f), ROW((one)*0x1p-8f), ROW((one)*0x1p-7f),                    \
        ROW((one)*0x1p-6f), ROW((one)*0x1p-5f), ROW((one)*0x1p-4f),                    \
        ROW((one)*0x1p-3f), ROW((one)*0x1p-2f), ROW((one)*0x1p-1f), ROW((one)*0x1p0f), \
        ROW((one)*0x1p1f), ROW((one)*0x1p2f), ROW((one)*0x1p3f), ROW((one)*0x1p4f),    \
        256 * (one), 288 * (one), 320 * (one), 352 * (one), 384 * (one), 416 * (one),  \
        448 * (one), (nan)

const float td_e4m3_table[256] = {HALF(1.0f, NAN), HALF(-1.0f, -NAN)};

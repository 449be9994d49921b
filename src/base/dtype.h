/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Number formats of stored tensors, by the names that safetensors headers use.
 *
 * The list holds every name that such files may contain, so that a header can be
 * checked whole; which of them a weight may have is the model's business.
 */
#ifndef TD_BASE_DTYPE_H
#define TD_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/* X(id, name, bits of one element) */
#define TD_DTYPE_LIST(X)                                                               \
    X(TD_DTYPE_F32, "F32", 32)                                                         \
    X(TD_DTYPE_F16, "F16", 16)                                                         \
    X(TD_DTYPE_BF16, "BF16", 16)                                                       \
    X(TD_DTYPE_F8_E4M3, "F8_E4M3", 8)                                                  \
    X(TD_DTYPE_F8_E5M2, "F8_E5M2", 8)                                                  \
    X(TD_DTYPE_F8_E8M0, "F8_E8M0", 8)                                                  \
    X(TD_DTYPE_F8_E4M3FNUZ, "F8_E4M3FNUZ", 8)                                          \
    X(TD_DTYPE_F8_E5M2FNUZ, "F8_E5M2FNUZ", 8)                                          \
    X(TD_DTYPE_F6_E2M3, "F6_E2M3", 6)                                                  \
    X(TD_DTYPE_F6_E3M2, "F6_E3M2", 6)                                                  \
    X(TD_DTYPE_F4, "F4", 4)                                                            \
    X(TD_DTYPE_F64, "F64", 64)                                                         \
    X(TD_DTYPE_C64, "C64", 64)                                                         \
    X(TD_DTYPE_BOOL, "BOOL", 8)                                                        \
    X(TD_DTYPE_U8, "U8", 8)                                                            \
    X(TD_DTYPE_I8, "I8", 8)                                                            \
    X(TD_DTYPE_U16, "U16", 16)                                                         \
    X(TD_DTYPE_I16, "I16", 16)                                                         \
    X(TD_DTYPE_U32, "U32", 32)                                                         \
    X(TD_DTYPE_I32, "I32", 32)                                                         \
    X(TD_DTYPE_U64, "U64", 64)                                                         \
    X(TD_DTYPE_I64, "I64", 64)

enum td_dtype {
#define X(id, name, bits) id,
    TD_DTYPE_LIST(X)
#undef X
        TD_DTYPE_COUNT
};

/* The name, static; "?" for a value outside the list. */
const char *td_dtype_name(enum td_dtype t);

/* Bits of one element: a multiple of 8 for all but the F6 and F4 formats. */
int td_dtype_bits(enum td_dtype t);

/* True and *out when the n bytes at s are one of the names. */
bool td_dtype_parse(const char *s, size_t n, enum td_dtype *out);

#endif

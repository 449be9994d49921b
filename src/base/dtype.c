/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Number formats of stored tensors. See dtype.h.
 */
#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    int bits;
} formats[] = {
#define X(id, name, bits) {name, bits},
    TD_DTYPE_LIST(X)
#undef X
};

const char *td_dtype_name(enum td_dtype t)
{
    return (unsigned)t < TD_DTYPE_COUNT ? formats[t].name : "?";
}

int td_dtype_bits(enum td_dtype t)
{
    return (unsigned)t < TD_DTYPE_COUNT ? formats[t].bits : 0;
}

bool td_dtype_parse(const char *s, size_t n, enum td_dtype *out)
{
    for (unsigned i = 0; i < TD_DTYPE_COUNT; i++) {
        if (strlen(formats[i].name) == n && memcmp(formats[i].name, s, n) == 0) {
            *out = (enum td_dtype)i;
            return true;
        }
    }
    return false;
}

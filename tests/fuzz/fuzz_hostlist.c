/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as Slurm's node list: what is taken has no more names than ranks can be.
 */
#include "base/limits.h"
#include "launch/hostlist.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char list[512];
    struct td_buf b;
    int names = 1;
    n = TD_MIN(n, sizeof(list) - 1);
    memcpy(list, data, n);
    list[n] = 0;
    td_buf_init(&b, 1 << 20);
    if (td_hostlist_slurm_nodes(list, &b, NULL) == TD_OK) {
        for (size_t i = 0; i < b.len; i++)
            names += b.p[i] == ',';
        if (names > TD_MAX_RANKS)
            abort();
    }
    td_buf_release(&b);
    return 0;
}

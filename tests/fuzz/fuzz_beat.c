/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeat lines: whatever is taken for one is written again and read as the same.
 */
#include "engine/ranks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_beat b, again;
    char line[TD_BEAT_MAX];
    memset(&b, 0, sizeof(b));
    memset(&again, 0, sizeof(again));
    if (!td_beat_parse((const char *)data, size, &b))
        return 0;
    size_t n = td_beat_format(&b, line);
    if (n == 0 || !td_beat_parse(line, n, &again) || again.rank != b.rank ||
        again.seq != b.seq || again.step != b.step || strcmp(again.host, b.host) != 0 ||
        strcmp(again.phase, b.phase) != 0)
        abort();
    return 0;
}

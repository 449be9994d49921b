/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a server as the event stream of an answer: whole and in slices (their size is
 * the first byte) they must be read alike.
 */
#include "base/limits.h"
#include "cmd/bench_stream.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_all(struct td_bench_stream *s, const char *p, size_t n, size_t slice)
{
    td_bench_stream_init(s);
    for (size_t at = 0; at < n; at += slice)
        if (!td_bench_stream_add(s, p + at, TD_MIN(slice, n - at)))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct td_bench_stream a, b;
    if (n < 2 || n > TD_MAX_EVENT)
        return 0;
    const char *p = (const char *)data + 1;
    read_all(&a, p, n - 1, n);
    read_all(&b, p, n - 1, (size_t)data[0] + 1);
    if (a.pieces != b.pieces || a.tokens != b.tokens || a.prompt != b.prompt ||
        a.complete != b.complete || strcmp(a.error, b.error) != 0)
        abort();
    td_bench_stream_release(&a);
    td_bench_stream_release(&b);
    return 0;
}

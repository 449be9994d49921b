/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes from a socket as frames and messages. A request that can be read must have the
 * same length after writing it again.
 */
#include "base/limits.h"
#include "engine/wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void submit_again(const struct td_frame *f, struct td_arena *a)
{
    struct td_wire_submit m;
    struct td_buf b;
    if (td_wire_get_submit(f, a, &m, NULL) != TD_OK)
        return;
    td_buf_init(&b, TD_MAX_FRAME);
    if (td_wire_put_submit(&b, &m) != TD_OK || b.len != f->n + 8)
        abort();
    td_buf_release(&b);
}

static void read_body(const struct td_frame *f)
{
    struct td_wire_hello hello;
    struct td_wire_stats stats;
    struct td_wire_done done;
    struct td_wire_prompt_logprobs p;
    struct td_wire_token *t;
    struct td_arena a;
    uint64_t id;
    int32_t count;
    td_arena_init(&a, 64 * TD_MIB);
    submit_again(f, &a);
    (void)td_wire_get_hello(f, &hello, NULL);
    (void)td_wire_get_stats(f, &stats, NULL);
    (void)td_wire_get_done(f, &done, NULL);
    (void)td_wire_get_cancel(f, &id, NULL);
    (void)td_wire_get_tokens(f, &a, &t, &count, NULL);
    (void)td_wire_get_prompt_logprobs(f, &a, &p, NULL);
    td_arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct td_frame f;
    size_t used;
    const char *p = (const char *)data;
    while (td_wire_next(p, n, &f, &used, NULL) == TD_OK && used) {
        read_body(&f);
        p += used;
        n -= used;
    }
    f = (struct td_frame){TD_WIRE_SUBMIT, p, n};
    read_body(&f);
    return 0;
}

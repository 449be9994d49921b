/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between ranks: a forward that can be read obeys the limits of the tables and
 * can be written again.
 */
#include "base/mem.h"
#include "engine/step.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 5, PER_SLOT = 6, BLOCKS = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void again(const struct td_step *step, const struct td_seq_rows *seqs)
{
    struct td_step_tables t;
    struct td_buf b;
    td_buf_init(&b, TD_STEP_MAX);
    if (td_step_tables_init(&t, SLOTS, PER_SLOT, BLOCKS, NULL) != TD_OK)
        return;
    for (int32_t i = 0; i < step->n_seqs; i++)
        for (int32_t k = 0; k < seqs[i].n_blocks; k++)
            if (seqs[i].blocks[k] < 0 || seqs[i].blocks[k] >= BLOCKS)
                abort();
    td_step_put_forward(&b, &t, step->copies, step->n_copies, seqs, step->n_seqs);
    if (b.status != TD_OK)
        abort();
    td_step_tables_release(&t);
    td_buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct td_step_tables t;
    struct td_step step;
    struct td_seq_rows seqs[SLOTS];
    int32_t *words = td_calloc(n / sizeof(*words) + 1, sizeof(*words));
    if (!words || td_step_tables_init(&t, SLOTS, PER_SLOT, BLOCKS, NULL) != TD_OK)
        return 0;
    memcpy(words, data, n);
    if (td_step_get(words, n, &t, seqs, SLOTS, &step, NULL) == TD_OK &&
        step.kind == TD_STEP_FORWARD)
        again(&step, seqs);
    td_step_tables_release(&t);
    td_free(words);
    return 0;
}

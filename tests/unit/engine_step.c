/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between ranks: what was written is read, block tables travel once, and a
 * message that does not add up is refused whatever word is wrong.
 */
#include "check.h"

#include "base/mem.h"
#include "engine/step.h"

#include <string.h>

enum { SLOTS = 4, PER_SLOT = 8, BLOCKS = 32 };

struct bed {
    struct td_step_tables here, there;
    struct td_buf buf;
    struct td_seq_rows got[SLOTS];
    struct td_step step;
};

static void bed_open(struct bed *b)
{
    memset(b, 0, sizeof(*b));
    td_buf_init(&b->buf, TD_STEP_MAX);
    assert_int_equal(td_step_tables_init(&b->here, SLOTS, PER_SLOT, BLOCKS, NULL),
                     TD_OK);
    assert_int_equal(td_step_tables_init(&b->there, SLOTS, PER_SLOT, BLOCKS, NULL),
                     TD_OK);
}

static void bed_close(struct bed *b)
{
    td_step_tables_release(&b->here);
    td_step_tables_release(&b->there);
    td_buf_release(&b->buf);
}

static enum td_status read_it(struct bed *b)
{
    return td_step_get((const int32_t *)(const void *)b->buf.p, b->buf.len, &b->there,
                       b->got, SLOTS, &b->step, NULL);
}

/* Sends pieces over and expects them to come out the same. */
static void send(struct bed *b, const struct td_seq_rows *seqs, int32_t n)
{
    const int32_t copies[] = {3, 1, 2, 0};
    td_step_put_forward(&b->buf, &b->here, copies, 2, seqs, n);
    assert_int_equal(b->buf.status, TD_OK);
    assert_int_equal(read_it(b), TD_OK);
    assert_int_equal(b->step.kind, TD_STEP_FORWARD);
    assert_int_equal(b->step.n_copies, 2);
    assert_memory_equal(b->step.copies, copies, sizeof(copies));
    assert_int_equal(b->step.n_seqs, n);
    for (int32_t i = 0; i < n; i++) {
        const struct td_seq_rows *w = &seqs[i], *g = &b->got[i];
        int32_t blocks = (w->start + w->n + TD_KV_BLOCK - 1) / TD_KV_BLOCK;
        assert_true(g->n == w->n && g->start == w->start && g->decode == w->decode &&
                    g->slot == w->slot && g->n_out == w->n_out &&
                    g->n_blocks == blocks);
        assert_memory_equal(g->ids, w->ids, (size_t)w->n * sizeof(*w->ids));
        assert_memory_equal(g->blocks, w->blocks, (size_t)blocks * sizeof(*w->blocks));
    }
}

static void test_forward(void **state)
{
    (void)state;
    struct bed b;
    int32_t ids[130], a[PER_SLOT] = {5, 9, 2, 30, 7, 1, 0, 4};
    int32_t c[PER_SLOT] = {8, 6, 3};
    for (int32_t i = 0; i < 130; i++)
        ids[i] = i * 7;
    bed_open(&b);
    struct td_seq_rows seqs[2] = {
        {.ids = ids,
         .n = 1,
         .start = 200,
         .decode = true,
         .slot = 3,
         .blocks = a,
         .n_blocks = PER_SLOT,
         .n_out = 1},
        {.ids = ids, .n = 130, .slot = 1, .blocks = c, .n_blocks = 3, .n_out = 130}};
    send(&b, seqs, 2);
    size_t first = b.buf.len;
    seqs[1].n = 2;
    seqs[1].n_out = 0;
    send(&b, seqs, 2); /* the blocks are known */
    assert_int_equal(b.buf.len, first - (128 + 4 + 3) * sizeof(int32_t));
    seqs[0].start = 300; /* one more block, the rest as before */
    send(&b, seqs, 1);
    int32_t other[PER_SLOT] = {5, 11};
    seqs[0].blocks = other; /* another sequence in the slot, shorter */
    seqs[0].start = 100;
    send(&b, seqs, 1);
    seqs[0].blocks = a;
    seqs[0].start = 400;
    send(&b, seqs, 1);
    bed_close(&b);
}

static void test_others(void **state)
{
    (void)state;
    struct bed b;
    const int32_t copies[] = {1, 2};
    struct td_step_open open = {.numerics = 1,
                                .max_len = 2048,
                                .max_seqs = 3,
                                .max_rows = 512,
                                .max_out = 67,
                                .vocab = 8000,
                                .serves = 1,
                                .device = "cuda:1",
                                .prefix_cache = ((int64_t)5 << 32) + 0x87654321};
    bed_open(&b);
    td_step_put_open(&b.buf, &open);
    assert_int_equal(read_it(&b), TD_OK);
    assert_int_equal(b.step.kind, TD_STEP_OPEN);
    const struct td_step_open *got = &b.step.open;
    assert_true(got->numerics == 1 && got->max_len == 2048 && got->max_seqs == 3 &&
                got->max_rows == 512 && got->max_out == 67 && got->vocab == 8000 &&
                got->serves == 1 && got->prefix_cache == open.prefix_cache);
    assert_string_equal(got->device, "cuda:1");
    td_step_put_logits(&b.buf, 17);
    assert_int_equal(read_it(&b), TD_OK);
    assert_true(b.step.kind == TD_STEP_LOGITS && b.step.row == 17);
    td_step_put(&b.buf, TD_STEP_COPIES, copies, 1);
    assert_int_equal(read_it(&b), TD_OK);
    assert_true(b.step.kind == TD_STEP_COPIES && b.step.n_copies == 1 &&
                b.step.copies[0] == 1 && b.step.copies[1] == 2);
    td_step_put(&b.buf, TD_STEP_TICK, NULL, 0);
    assert_int_equal(read_it(&b), TD_OK);
    assert_int_equal(b.step.kind, TD_STEP_TICK);
    bed_close(&b);
}

/* Every word in turn becomes absurd; every length is tried. Nothing is read outside. */
static void test_damage(void **state)
{
    (void)state;
    struct bed b;
    int32_t ids[3] = {1, 2, 3}, blocks[PER_SLOT] = {0, 1, 2};
    static const int32_t absurd[] = {-1, INT32_MIN, INT32_MAX, 1 << 20};
    struct td_seq_rows seq = {.ids = ids,
                              .n = 3,
                              .start = 64,
                              .slot = 1,
                              .blocks = blocks,
                              .n_blocks = 3,
                              .n_out = 1};
    const int32_t copies[] = {1, 2};
    bed_open(&b);
    td_step_put_forward(&b.buf, &b.here, copies, 1, &seq, 1);
    size_t words = b.buf.len / sizeof(int32_t);
    /* a copy of exact length, so that sanitizers see a read beyond it */
    for (size_t n = 0; n < words; n++) {
        int32_t *cut = td_calloc(n ? n : 1, sizeof(*cut));
        assert_non_null(cut);
        memcpy(cut, b.buf.p, n * sizeof(*cut));
        assert_int_equal(
            td_step_get(cut, n * sizeof(*cut), &b.there, b.got, SLOTS, &b.step, NULL),
            TD_E_PEER);
        td_free(cut);
    }
    for (size_t at = 0; at < words; at++)
        for (size_t k = 0; k < TD_COUNT(absurd); k++) {
            int32_t *bad = td_calloc(words, sizeof(*bad));
            assert_non_null(bad);
            memcpy(bad, b.buf.p, b.buf.len);
            bad[at] = absurd[k];
            enum td_status s =
                td_step_get(bad, b.buf.len, &b.there, b.got, SLOTS, &b.step, NULL);
            /* copies, the kind of piece and ids are checked where they are used */
            bool used_elsewhere = at == 3 || at == 4 || at == 8 || at >= words - 3;
            assert_true(s == TD_E_PEER || (s == TD_OK && used_elsewhere));
            td_free(bad);
        }
    assert_int_equal(read_it(&b), TD_OK);
    bed_close(&b);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct td_step_tables t;
    for (long n = 1; n <= 2; n++) {
        td_mem_fail_at(n);
        assert_int_equal(td_step_tables_init(&t, 2, 2, 2, NULL), TD_E_NOMEM);
    }
    td_mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("engine_step", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models made of a configuration alone: finite and lively logits, the same for the same
 * seed, others for another; the slices of ranks are parts of the whole; and the sizes are
 * those of the published checkpoints.
 */
#define _POSIX_C_SOURCE 200809L
#include "model/model_int.h"
#include "model_util.h"

enum { ROWS = 70, LEN = 128 };
static const char path[] = "models/lexicon";

struct imagined {
    struct td_dev *dev;
    struct td_model *model;
    struct td_cache cache;
};

static void open_model(struct imagined *m, uint64_t seed, struct td_comm *comm)
{
    struct td_error err;
    struct td_dev_params dev = {.threads = 2, .budget = (size_t)1 << 30};
    struct td_model_limits limits = {
        .max_rows = LEN, .max_seqs = 1, .max_out = 1, .max_len = LEN, .draft = true};
    td_error_init(&err);
    if (td_cpu_open(&dev, &m->dev, &err) != TD_OK ||
        td_model_random(path, seed, m->dev, comm, &limits, &m->model, &err) != TD_OK ||
        td_model_load(m->model, NULL, NULL, &err) != TD_OK ||
        td_cache_new(m->model, LEN / TD_KV_BLOCK, 1, &m->cache, &err) != TD_OK)
        util_fail(&err);
}

static void close_model(struct imagined *m)
{
    td_cache_release(&m->cache);
    td_model_free(m->model);
    m->dev->ops.close(m->dev);
}

/* The logits behind a prompt; to be freed. */
static float *logits_of(uint64_t seed)
{
    struct imagined m;
    int32_t ids[ROWS], blocks[] = {1, 0};
    open_model(&m, seed, td_comm_self());
    for (int32_t i = 0; i < ROWS; i++)
        ids[i] = i * 61 % td_model_config(m.model)->vocab;
    struct td_seq_rows rows = {
        .ids = ids, .n = ROWS, .blocks = blocks, .n_blocks = 2, .n_out = 1};
    assert_int_equal(td_model_forward(m.model, &m.cache, &rows, 1, false, NULL), TD_OK);
    size_t n = (size_t)td_model_config(m.model)->vocab;
    float *copy = td_calloc(n, sizeof(*copy));
    assert_non_null(copy);
    m.dev->ops.get(m.dev, copy, td_model_logits(m.model), n * sizeof(*copy));
    close_model(&m);
    return copy;
}

static void test_logits(void **state)
{
    (void)state;
    float *a = logits_of(1), *same = logits_of(1), *other = logits_of(2);
    double square = 0;
    enum { N = 8192 };
    for (int i = 0; i < N; i++) {
        assert_true(isfinite(a[i]));
        square += (double)a[i] * (double)a[i] / N;
    }
    print_message("logits of deviation %.2f\n", sqrt(square));
    assert_true(square > 1 && square < 100);
    assert_memory_equal(a, same, N * sizeof(*a));
    assert_memory_not_equal(a, other, N * sizeof(*a));
    td_free(a);
    td_free(same);
    td_free(other);
}

/* A matrix of a rank equals the part of the whole: rows, columns, and three ranges. */
static float element(const struct imagined *m, const struct td_matrix *w, int64_t row,
                     int64_t col)
{
    float x[4096];
    int32_t token = (int32_t)row;
    struct td_embed_args a = {.table = w, .token = &token, .x = x, .rows = 1};
    assert_true(w->k <= 4096);
    m->dev->ops.embed(m->dev, &a);
    return x[col];
}

static void test_slices(void **state)
{
    (void)state;
    struct imagined whole, half;
    struct td_comm comm = {.rank = 1, .ranks = 2};
    open_model(&whole, 3, td_comm_self());
    open_model(&half, 3, &comm);
    const struct td_layer *w = whole.model->layers, *h = half.model->layers;
    const struct td_slice *s = &half.model->slice;
    const struct td_matrix *rows = &h[3].attention.q, *cols = &h[3].attention.o;
    for (int64_t i = 0; i < rows->n; i += 37)
        assert_true(element(&half, rows, i, 5) ==
                    element(&whole, &w[3].attention.q, rows->n + i, 5));
    for (int64_t i = 0; i < cols->k; i += 13)
        assert_true(element(&half, cols, 9, i) ==
                    element(&whole, &w[3].attention.o, 9, cols->k + i));
    int64_t keys = s->key_heads.count * half.model->cfg.key_dim; /* behind 2 times it */
    int64_t values = s->value_heads.count * half.model->cfg.value_dim;
    for (int64_t i = 0; i < values; i += 29)
        assert_true(element(&half, &h[0].gdn.qkv, 2 * keys + i, 7) ==
                    element(&whole, &w[0].gdn.qkv, 4 * keys + values + i, 7));
    int64_t wide =
        td_local_channels(half.model) * (int64_t)whole.model->cfg.conv_kernel;
    assert_memory_equal(h[0].gdn.conv + wide - 16, w[0].gdn.conv + 2 * wide - 16, 64);
    assert_memory_equal(h[2].input_norm, w[2].input_norm, 64);
    close_model(&whole);
    close_model(&half);
}

/* Bytes of the weights of the published FP8 checkpoints, by their configurations. */
static void check_bytes(const char *name, double gib)
{
    char dir[128];
    struct td_config c;
    struct td_slice slice;
    struct td_weights w;
    (void)snprintf(dir, sizeof(dir), "bench/configs/%s", name);
    assert_int_equal(td_config_read(dir, &c, NULL), TD_OK);
    assert_int_equal(td_slice_make(&c, 0, 1, &slice, NULL), TD_OK);
    assert_int_equal(td_weights_imply(&c, &slice, &w, NULL), TD_OK);
    double found = (double)w.bytes / (double)((int64_t)1 << 30);
    assert_true(fabs(found - gib) < 0.1);
    assert_true(w.has_mtp && w.bytes_mtp > 0);
    td_weights_release(&w);
}

static void test_published(void **state)
{
    (void)state;
    check_bytes("Qwen3.5-35B-A3B-FP8", 34.1);
    check_bytes("Qwen3.5-122B-A10B-FP8", 117.6);
}

static void test_no_memory(void **state)
{
    (void)state;
    int refused = 0;
    for (int64_t n = 1; n < 40 && refused < n; n++) {
        struct td_error err;
        struct td_config c;
        struct td_slice slice;
        struct td_weights w;
        assert_int_equal(td_config_read(path, &c, NULL), TD_OK);
        assert_int_equal(td_slice_make(&c, 0, 1, &slice, NULL), TD_OK);
        td_error_init(&err);
        td_mem_fail_at(n);
        enum td_status s = td_weights_imply(&c, &slice, &w, &err);
        td_mem_fail_at(0);
        if (s == TD_OK) {
            td_weights_release(&w);
            break;
        }
        assert_int_equal(s, TD_E_NOMEM);
        assert_int_equal(err.code, TD_E_NOMEM);
        refused++;
    }
    assert_true(refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("model_imagined", tests, NULL, NULL);
}

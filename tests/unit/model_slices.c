/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor parallel slices: the partial outputs of the ranks add up to the unsplit layer's
 * output, for every kind of layer; and ranks that run together give the logits of one.
 */
#define _POSIX_C_SOURCE 200809L
#include "made_model.h"
#include "model/model_int.h"
#include "model_util.h"

#include <pthread.h>

enum { ROWS = 70, MAX_RANKS = 4 };

/* Two KV heads over four ranks (each on two of them); three value heads a key head. */
typedef void (*part_fn)(struct td_model *m, struct td_cache *c,
                        const struct td_layer *l, const struct td_norm_args *norm);

static void ffn_part(struct td_model *m, struct td_cache *c, const struct td_layer *l,
                     const struct td_norm_args *norm)
{
    (void)c;
    td_layer_ffn(m, l, norm);
}

/* One layer's part on a given input; rows of a prompt, new sequence. */
static void run_part(struct util_model *u, int layer, part_fn part, const float *input)
{
    int32_t ids[ROWS] = {0};
    struct td_seq_rows rows = util_rows(u, 0, ids, 0, ROWS, false, 0);
    assert_int_equal(td_batch_make(u->model, &u->cache, &rows, 1, NULL), TD_OK);
    memcpy(u->model->work.h, input,
           (size_t)ROWS * (size_t)u->cfg->hidden * sizeof(*input));
    part(u->model, &u->cache, &u->model->layers[layer], NULL);
}

static void check_part(struct util_model *whole, struct util_model *rank, int ranks,
                       int layer, part_fn part, const float *input)
{
    size_t n = (size_t)ROWS * (size_t)whole->cfg->hidden;
    float *sum = td_calloc(n, sizeof(*sum));
    assert_non_null(sum);
    double top = 0;
    run_part(whole, layer, part, input);
    for (int r = 0; r < ranks; r++) {
        run_part(&rank[r], layer, part, input);
        for (size_t i = 0; i < n; i++)
            sum[i] += rank[r].model->work.delta[i];
    }
    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)sum[i]));
    double diff = util_max_diff(whole->model->work.delta, sum, (int32_t)n);
    assert_true(top > 0);
    if (diff > 1e-5 * fmax(top, 1))
        fail_msg("layer %d over %d ranks: off by %.2g of %.2g", layer, ranks, diff,
                 top);
    td_free(sum);
}

static void check_model(const char *path, int ranks)
{
    struct util_model whole, rank[MAX_RANKS];
    struct td_comm comm[MAX_RANKS];
    util_open(&whole,
              &(struct util_params){.path = path, .threads = 2, .max_rows = 128});
    for (int r = 0; r < ranks; r++) {
        comm[r] =
            (struct td_comm){.rank = r, .ranks = ranks}; /* nothing is exchanged */
        util_open(&rank[r],
                  &(struct util_params){
                      .path = path, .threads = 2, .max_rows = 128, .comm = &comm[r]});
    }
    size_t n = (size_t)ROWS * (size_t)whole.cfg->hidden;
    float *input = td_calloc(n, sizeof(*input));
    assert_non_null(input);
    uint32_t seed = 9;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        input[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
    int layers = whole.cfg->n_layers + (td_model_has_draft(whole.model) ? 1 : 0);
    for (int l = 0; l < layers; l++) {
        bool full = whole.model->layers[l].kind == TD_LAYER_FULL;
        check_part(&whole, rank, ranks, l, full ? td_layer_attention : td_layer_gdn,
                   input);
        check_part(&whole, rank, ranks, l, ffn_part, input);
    }
    td_free(input);
    util_close(&whole);
    for (int r = 0; r < ranks; r++)
        util_close(&rank[r]);
}

static void test_lexicon_by_two(void **state)
{
    (void)state;
    check_model("models/lexicon", 2);
}

static void test_made_by_four(void **state)
{
    (void)state;
    char dir[256];
    make_model(dir, sizeof(dir), MOE_BY_FOUR " --mtp");
    check_model(dir, 2);
    check_model(dir, 4);
    remove_model(dir);
    make_model(dir, sizeof(dir), DENSE_BY_FOUR);
    check_model(dir, 4);
    remove_model(dir);
}

struct rank_job {
    struct td_comm *comm;
    float *
        logits; /* [vocab], the rank's part of it, after the prompt, then after one generated token */
    const int32_t *ids;
    int32_t n;
};

static void *run_rank(void *arg)
{
    struct rank_job *j = arg;
    struct util_model u;
    util_open(&u, &(struct util_params){
                      .path = "models/lexicon", .threads = 1, .comm = j->comm});
    struct td_range part = td_model_vocab(u.model);
    size_t bytes = (size_t)part.count * sizeof(*j->logits);
    float *to = j->logits + part.first;
    memcpy(to, util_prompt(&u, 0, j->ids, j->n, 0), bytes);
    memcpy(to + u.cfg->vocab, util_decode(&u, 0, j->ids[0], j->n), bytes);
    util_close(&u);
    return NULL;
}

static void test_ranks_together(void **state)
{
    (void)state;
    enum { N = 100, VOCAB = 8192 };
    static float logits[2][2 * VOCAB]; /* both ranks fill their parts of the first */
    int32_t ids[N];
    struct td_comm *comms[2];
    struct rank_job jobs[3];
    pthread_t threads[2];
    for (int32_t i = 0; i < N; i++)
        ids[i] = (i * 131 + 7) % 8000;
    assert_int_equal(td_comm_threads(2, 60, comms, NULL), TD_OK);
    for (int r = 0; r < 2; r++) {
        jobs[r] = (struct rank_job){comms[r], logits[0], ids, N};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &jobs[r]), 0);
    }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        comms[r]->ops->free(comms[r]);
    }
    jobs[2] = (struct rank_job){td_comm_self(), logits[1], ids, N};
    (void)run_rank(&jobs[2]);
    assert_true(util_max_diff(logits[0], logits[1], 2 * VOCAB) < 2e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lexicon_by_two),
        cmocka_unit_test(test_made_by_four),
        cmocka_unit_test(test_ranks_together),
    };
    return cmocka_run_group_tests_name("model_slices", tests, NULL, NULL);
}

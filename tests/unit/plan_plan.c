/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: the sizes of published models from headers, from the index and from the
 * configuration alone; what fits, and the nearest that does when it does not.
 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt.h"

#include "base/mem.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct td_dev *cpu(void)
{
    struct td_dev_params p = {.numerics = TD_NUM_BF16, .threads = 2};
    struct td_dev *dev = NULL;
    assert_int_equal(td_cpu_open(&p, &dev, NULL), TD_OK);
    return dev;
}

/* A model of so many files with headers and holes below the test's folder. */
static void make(const struct ckpt *c, const char *preset)
{
    char command[512];
    (void)snprintf(command, sizeof(command),
                   "%s --preset %s --headers-only %s >/dev/null", TD_MAKE_MODEL, preset,
                   c->dir);
    assert_int_equal(system(command), 0);
}

static struct td_model *open_size(const char *path, struct td_dev *dev, int rank,
                                  int ranks, bool draft)
{
    struct td_model_limits limits = {
        .max_rows = 512, .max_seqs = 1, .max_out = 1, .max_len = 4096, .draft = draft};
    struct td_model *m = NULL;
    struct td_error err;
    td_error_init(&err);
    if (td_model_size(path, dev, rank, ranks, &limits, &m, &err) != TD_OK)
        fail_msg("%s: %s", err.what, err.why);
    return m;
}

static struct td_model_bytes sizes(const char *path, int rank, int ranks)
{
    struct td_dev *dev = cpu();
    struct td_model *m = open_size(path, dev, rank, ranks, false);
    struct td_model_bytes b;
    td_model_bytes(m, &b);
    td_model_free(m);
    dev->ops.close(dev);
    return b;
}

static void assert_gib(int64_t bytes, double want)
{
    double gib = (double)bytes / (double)TD_GIB;
    if (gib < want - 0.05 || gib >= want + 0.05)
        fail_msg("%.3f GiB, expected %.1f", gib, want);
}

/* What the draft head adds where somebody asks for it; an engine does not. */
static void check_draft(const char *path, const struct td_model_bytes *without)
{
    struct td_dev *dev = cpu();
    struct td_model *m = open_size(path, dev, 0, 2, true);
    struct td_model_bytes b;
    td_model_bytes(m, &b);
    assert_true(td_model_has_draft(m));
    assert_gib(b.weights - without->weights, 1.2);
    assert_int_equal(b.kv_block - without->kv_block, 1024 * TD_KV_BLOCK);
    assert_true(b.work > without->work && b.lists > without->lists);
    td_model_free(m);
    dev->ops.close(dev);
}

/* 122B-A10B over two ranks: 57.6 GiB each; 24 KiB of keys and values a token over both;
 * 144 MiB of recurrent state. */
static void test_published(void **state)
{
    static const char *const parts[] = {"model-000*", "*.index.json"};
    struct ckpt c;
    (void)state;
    ckpt_init(&c);
    make(&c, "122b-a10b");
    struct td_model_bytes whole = sizes(c.dir, 0, 1), half = sizes(c.dir, 0, 2);
    assert_gib(half.weights, 57.6);
    assert_gib(whole.weights, 115.2);
    assert_int_equal(half.kv_block, 12 * 1024 * TD_KV_BLOCK);
    check_draft(c.dir, &half);
    assert_int_equal(half.state, (150994944 + 2 * 2654208) / 2);
    assert_int_equal(sizes(c.dir, 1, 2).weights, half.weights);

    /* without the shards, then without the index as well */
    for (size_t i = 0; i < TD_COUNT(parts); i++) {
        char command[512];
        (void)snprintf(command, sizeof(command), "rm %s/%s", c.dir, parts[i]);
        assert_int_equal(system(command), 0);
        struct td_model_bytes b = sizes(c.dir, 0, 2);
        assert_memory_equal(&b, &half, sizeof(b));
    }
    ckpt_release(&c);

    ckpt_init(&c);
    make(&c, "35b-a3b");
    half = sizes(c.dir, 0, 2);
    assert_gib(half.weights, 16.65);
    ckpt_release(&c);
}

/* A model whose index does not name what the configuration asks for. */
static void test_wrong_index(void **state)
{
    struct ckpt c;
    struct td_dev *dev = cpu();
    struct td_model_limits limits = {
        .max_rows = 64, .max_seqs = 1, .max_out = 1, .max_len = 64};
    struct td_model *m = NULL;
    struct td_error err;
    (void)state;
    ckpt_init(&c);
    make(&c, "tiny-moe");
    char command[1024];
    (void)snprintf(command, sizeof(command),
                   "rm %s/model.safetensors; echo '{\"weight_map\":{\"x.weight\":"
                   "\"model-1.safetensors\"}}' >%s/model.safetensors.index.json",
                   c.dir, c.dir);
    assert_int_equal(system(command), 0);
    td_error_init(&err);
    assert_int_equal(td_model_size(c.dir, dev, 0, 1, &limits, &m, &err), TD_E_TENSOR);
    check_error(&err, TD_E_TENSOR, "is missing in");
    dev->ops.close(dev);
    ckpt_release(&c);
}

/* A host with nothing but memory. */
static void room_of(int64_t available, int64_t total, int64_t asked,
                    struct td_plan_room *out)
{
    struct td_sysmem mem = {.total = total,
                            .available = available,
                            .group_limit = INT64_MAX,
                            .space_limit = INT64_MAX,
                            .data_limit = INT64_MAX};
    td_plan_room_of(&mem, 10 * TD_MIB, asked, &(struct td_plan_beside){0}, out);
}

/* ---- limits and refusals ------------------------------------------------------------ */

static enum td_status plan(int64_t memory, int32_t len, int32_t seqs,
                           struct td_plan *out, struct td_error *err)
{
    struct td_dev *dev = cpu();
    struct td_model *m = open_size("models/lexicon", dev, 0, 1, false);
    struct td_plan_asked asked = {.model = "models/lexicon",
                                  .max_len = len,
                                  .max_seqs = seqs,
                                  .serves = true,
                                  .load = {.threads = 2}};
    struct td_plan_room room;
    room_of(64 * TD_GIB, 64 * TD_GIB, memory, &room);
    td_error_init(err);
    enum td_status s = td_plan_make(m, dev, &asked, &room, out, err);
    td_model_free(m);
    dev->ops.close(dev);
    return s;
}

static void test_fits(void **state)
{
    struct td_error err;
    struct td_plan p;
    (void)state;
    assert_int_equal(plan(0, 0, 4, &p, &err), TD_OK);
    assert_int_equal(p.limits.max_len, 4096);
    assert_int_equal(p.n_blocks, 4 * 4096 / TD_KV_BLOCK);
    assert_int_equal(p.full, 4);
    assert_int_equal(p.most_len, 4096);
    assert_int_equal(p.device, p.bytes.weights + p.bytes.work + p.bytes.shelf + p.kv +
                                   p.states + p.prefixes);
    assert_true(p.peak > p.device + p.process.program && p.peak <= p.limit);

    /* with less, the cache takes what fits, to the last block */
    struct td_plan less;
    assert_int_equal(plan(p.peak - p.kv / 2, 0, 4, &less, &err), TD_OK);
    assert_true(less.n_blocks < p.n_blocks && less.n_blocks >= p.n_blocks / 4);
    assert_true(less.peak <= less.limit);
    assert_true(less.peak + less.bytes.kv_block > less.limit);
}

static int number_behind(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    if (!at)
        fail_msg("no \"%s\" in: %s", word, text);
    return at ? (int)strtol(at + strlen(word), NULL, 10) : 0;
}

/* The refusal has both numbers; what it offers fits, and just so. */
static void test_nearest(void **state)
{
    struct td_error err;
    struct td_plan p, other;
    (void)state;
    assert_int_equal(plan(0, 4096, 1, &p, &err), TD_OK);
    int64_t memory = p.peak - p.kv / 2;
    assert_int_equal(plan(memory, 4096, 1, &p, &err), TD_E_MEMORY_PLAN);
    check_error(&err, TD_E_MEMORY_PLAN, "for one sequence of 4096 tokens");
    check_error(&err, TD_E_MEMORY_PLAN, "--memory allows");
    int len = number_behind(err.fix, "--max-model-len ");
    assert_true(len > 256 && len < 4096);
    assert_int_equal(plan(memory, len, 1, &other, &err), TD_OK);
    memory -= TD_MIB; /* advice leaves so much */
    assert_int_equal(plan(memory, len + TD_CHUNK, 1, &other, &err), TD_E_MEMORY_PLAN);

    assert_int_equal(plan(0, 4096, 8, &p, &err), TD_OK);
    memory = p.peak - p.kv * 7 / 8 - p.states / 2;
    assert_int_equal(plan(memory, 4096, 64, &p, &err), TD_E_MEMORY_PLAN);
    int seqs = number_behind(err.fix, "--max-num-seqs ");
    assert_true(seqs >= 1 && seqs < 64);
    assert_int_equal(plan(memory, 4096, seqs, &other, &err), TD_OK);
    memory -= TD_MIB;
    assert_int_equal(plan(memory, 4096, seqs + 1, &other, &err), TD_E_MEMORY_PLAN);

    assert_int_equal(plan(60 * TD_MIB, 256, 1, &p, &err), TD_E_MEMORY_PLAN);
    check_error(&err, TD_E_MEMORY_PLAN, "weights");
    assert_int_equal(plan(0, 5000, 1, &p, &err), TD_E_USAGE);
}

static void test_more_ranks(void **state)
{
    struct ckpt c;
    struct td_error err;
    struct td_plan p;
    struct td_plan_room room;
    struct td_dev *dev = cpu();
    (void)state;
    ckpt_init(&c);
    make(&c, "122b-a10b");
    struct td_model *m = open_size(c.dir, dev, 0, 1, false);
    struct td_plan_asked asked = {.model = c.dir, .max_seqs = 4, .serves = true};
    room_of(60 * TD_GIB, 64 * TD_GIB, 0, &room);
    assert_int_equal(room.reserve, 64 * TD_GIB / 20);
    td_error_init(&err);
    assert_int_equal(td_plan_make(m, dev, &asked, &room, &p, &err), TD_E_MEMORY_PLAN);
    assert_non_null(strstr(err.fix, "over 4 ranks"));
    td_model_free(m);
    m = open_size(c.dir, dev, 3, 4, false);
    assert_int_equal(td_plan_make(m, dev, &asked, &room, &p, NULL), TD_OK);
    assert_int_equal(p.limits.max_len, 32768);
    td_model_free(m);
    dev->ops.close(dev);
    ckpt_release(&c);
}

static void test_no_memory(void **state)
{
    struct td_dev *dev = cpu();
    struct td_model_limits limits = {
        .max_rows = 64, .max_seqs = 1, .max_out = 1, .max_len = 64};
    enum td_status s = TD_E_NOMEM;
    (void)state;
    for (int n = 1; s != TD_OK; n++) {
        struct td_model *m = NULL;
        td_mem_fail_at(n);
        s = td_model_size("models/lexicon", dev, 0, 2, &limits, &m, NULL);
        td_mem_fail_at(0);
        assert_true(s == TD_OK || s == TD_E_NOMEM);
        td_model_free(m);
    }
    dev->ops.close(dev);
}

/* Of a limit of the process a part stays in reserve, not a part of the host. */
static void test_process_limits(void **state)
{
    struct td_sysmem mem = {.total = 1024 * TD_GIB,
                            .available = 1000 * TD_GIB,
                            .group_limit = INT64_MAX,
                            .space_limit = INT64_MAX,
                            .data_limit = 8 * TD_GIB};
    struct td_plan_room room;
    (void)state;
    td_plan_room_of(&mem, 0, 0, &(struct td_plan_beside){0}, &room);
    assert_int_equal(room.reserve, 8 * TD_GIB / 20);
    mem.space_limit = TD_GIB;
    td_plan_room_of(&mem, 0, 0, &(struct td_plan_beside){0}, &room);
    assert_int_equal(room.reserve, 128 * TD_MIB);
    assert_int_equal(room.host, TD_GIB - 128 * TD_MIB);
}

/* A GPU that others fill: the refusal says who, unless the user's own limit decides. */
static void test_taken(void **state)
{
    struct td_dev *dev = cpu();
    struct td_model *m = open_size("models/lexicon", dev, 0, 1, false);
    struct td_plan_asked asked = {.model = "models/lexicon", .max_len = 4096};
    struct td_plan_beside alone = {.ranks = 1};
    struct td_plan_room room;
    struct td_plan p;
    struct td_error err;
    (void)state;
    dev->host = dev->shared = false;
    dev->budget = (size_t)(20 * TD_MIB);
    dev->taken = "60.0 GiB are held by python3 (pid 4711, container 0123456789ab)";
    assert_int_equal(td_plan_room_find(dev, 0, &alone, &room, NULL), TD_OK);
    td_error_init(&err);
    assert_int_equal(td_plan_make(m, dev, &asked, &room, &p, &err), TD_E_MEMORY_PLAN);
    assert_non_null(strstr(err.why,
                           "20.0 MiB of the GPU's memory can be used; 60.0 GiB "
                           "are held by python3 (pid 4711, container "));
    assert_int_equal(td_plan_room_find(dev, 20 * TD_MIB, &alone, &room, NULL), TD_OK);
    td_error_init(&err);
    assert_int_equal(td_plan_make(m, dev, &asked, &room, &p, &err), TD_E_MEMORY_PLAN);
    assert_string_equal(err.why, "--memory allows 20.0 MiB");
    td_model_free(m);
    dev->ops.close(dev);
}

static struct td_reserve reserved;

static size_t catch_reserve(const struct td_dev *dev, const struct td_reserve *r)
{
    (void)dev;
    reserved = *r;
    return 0;
}

/* A device hears how many steps it may come to record, and of how many layers. */
static void test_recorded(void **state)
{
    static const struct {
        int32_t seqs, steps;
    } cases[] = {{1, 1}, {5, 4}, {32, 6}, {100, 10}, {512, 14}};
    struct td_dev *dev = cpu();
    (void)state;
    dev->ops.reserve_bytes = catch_reserve;
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        struct td_model_limits limits = {.max_rows = 512,
                                         .max_seqs = cases[i].seqs,
                                         .max_out = cases[i].seqs,
                                         .max_len = 64};
        struct td_model *m = open_size("models/lexicon", dev, 0, 1, false);
        struct td_model_bytes b;
        td_model_set_limits(m, &limits);
        td_model_bytes(m, &b);
        assert_int_equal(reserved.steps, cases[i].steps);
        assert_int_equal(reserved.layers, td_model_config(m)->n_layers);
        td_model_free(m);
    }
    dev->ops.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),      cmocka_unit_test(test_wrong_index),
        cmocka_unit_test(test_fits),           cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_more_ranks),     cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_process_limits), cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

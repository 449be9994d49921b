/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader: every byte of every piece once, whatever its shape, threads and cache;
 * little more read than asked for; and every failure reported with its place.
 */
#include "ckpt.h"

#include <errno.h>
#include <pthread.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "load/load.h"

/* One file: a large matrix, a fused tensor, small scales, vectors, odd addresses. */
#define ROWS 1500
#define COLS 1024
#define HEADER                                                                         \
    "{\"big\":{\"dtype\":\"F8_E4M3\",\"shape\":[1500,1024],\"data_offsets\":"          \
    "[0,1536000]},"                                                                    \
    "\"fused\":{\"dtype\":\"BF16\",\"shape\":[3,64,96],\"data_offsets\":"              \
    "[1536000,1572864]},"                                                              \
    "\"scale\":{\"dtype\":\"BF16\",\"shape\":[24,8],\"data_offsets\":"                 \
    "[1572864,1573248]},"                                                              \
    "\"v\":{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[1573249,1573277]},"      \
    "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[1573277,1573277]}" \
    "}"
enum { DATA = 1573277, MAX_PIECES = 16 };

struct sink {
    const struct td_model_dir *dir;
    const struct td_piece *pieces;
    pthread_mutex_t lock;
    int seen[MAX_PIECES][ROWS]; /* how often each row came */
    int64_t wrong;
    char *places[MAX_PIECES]; /* of pieces that have one */
    enum td_status fail_with;
    atomic_bool cancel;
    bool cancel_soon;
};

static enum td_status pack(void *self, const struct td_piece *p, int64_t row0,
                           int64_t n_rows, const void *bytes, struct td_error *err)
{
    struct sink *s = self;
    const struct td_tensor *t = &s->dir->tensors[p->tensor];
    int64_t size = td_dtype_bits(t->dtype) / 8, wrong = 0;
    const unsigned char *b = bytes;
    (void)err;
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t from = t->offset - s->dir->shards[t->shard].data_start +
                       ((p->row0 + row0 + i) * p->cols + p->col0) * size;
        for (int64_t k = 0; k < p->n_cols * size; k++)
            wrong += *b++ != ckpt_byte(from + k);
    }
    (void)pthread_mutex_lock(&s->lock);
    wrong += (uintptr_t)bytes % 4 != 0;
    s->wrong += wrong;
    for (int64_t i = 0; i < n_rows; i++)
        s->seen[p - s->pieces][row0 + i]++;
    (void)pthread_mutex_unlock(&s->lock);
    if (s->cancel_soon)
        atomic_store(&s->cancel, true);
    return s->fail_with;
}

struct fixture {
    struct ckpt c;
    struct td_model_dir dir;
    struct td_piece pieces[MAX_PIECES];
    size_t n;
    int64_t bytes;
    struct sink sink;
};

static struct fixture fx;

static void add(const char *name, int64_t rows, int64_t cols, int64_t row0,
                int64_t n_rows, int64_t col0, int64_t n_cols)
{
    int32_t t = td_model_dir_find(&fx.dir, name);
    assert_true(t >= 0);
    fx.pieces[fx.n++] = (struct td_piece){.tensor = t,
                                          .rows = rows,
                                          .cols = cols,
                                          .row0 = row0,
                                          .n_rows = n_rows,
                                          .col0 = col0,
                                          .n_cols = n_cols,
                                          .user = &fx};
    fx.bytes += n_rows * n_cols * td_dtype_bits(fx.dir.tensors[t].dtype) / 8;
}

static int setup(void **state)
{
    struct td_error err;
    (void)state;
    memset(&fx, 0, sizeof(fx));
    td_error_init(&err);
    ckpt_init(&fx.c);
    ckpt_file(&fx.c, "model.safetensors", HEADER, DATA);
    assert_int_equal(td_model_dir_open(fx.c.dir, &fx.dir, &err), TD_OK);
    add("big", ROWS, COLS, 0, ROWS, 512, 512); /* small slices with gaps between */
    add("big", ROWS, COLS, 3, 1200, 0, COLS);
    add("big", ROWS, COLS, 1300, 1, 0, 1021); /* the next is moved over its end */
    add("big", ROWS, COLS, 1300, 1, 1021, 3);
    add("fused", 192, 96, 64, 64, 0, 96);
    add("fused", 192, 96, 130, 1, 7, 11); /* an odd address */
    add("scale", 24, 8, 0, 24, 4, 4);
    add("scale", 24, 8, 12, 12, 0, 8);
    add("v", 1, 7, 0, 1, 0, 7);
    add("v", 1, 7, 0, 1, 2, 3);
    add("empty", 0, 4, 0, 0, 0, 4);
    add("fused", 192, 96, 100, 0, 0, 96);
    fx.sink = (struct sink){
        .dir = &fx.dir, .pieces = fx.pieces, .lock = PTHREAD_MUTEX_INITIALIZER};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    td_model_dir_release(&fx.dir);
    ckpt_release(&fx.c);
    return 0;
}

static enum td_status load(const struct td_load_opts *opts, struct td_load_stats *stats,
                           struct td_error *err)
{
    td_error_init(err);
    memset(fx.sink.seen, 0, sizeof(fx.sink.seen));
    return td_load(&fx.dir, fx.pieces, fx.n, opts, pack, &fx.sink, stats, err);
}

static void every_byte_once(void **state)
{
    static const struct td_load_opts variants[] = {
        {0},
        {.threads = 1},
        {.threads = 1000, .cache = TD_LOAD_CACHE_KEEP},
        {.threads = 3, .cache = TD_LOAD_CACHE_DROP},
        {.staging = 5000},
        {.staging = 1, .threads = 2},
        {.staging = 300000, .cache = TD_LOAD_CACHE_DROP},
    };
    (void)state;
    for (size_t v = 0; v < TD_COUNT(variants); v++) {
        struct td_load_stats stats;
        struct td_error err;
        assert_int_equal(load(&variants[v], &stats, &err), TD_OK);
        assert_int_equal(fx.sink.wrong, 0);
        for (size_t i = 0; i < fx.n; i++)
            for (int64_t r = 0; r < ROWS; r++)
                assert_int_equal(fx.sink.seen[i][r], r < fx.pieces[i].n_rows);
        assert_int_equal(stats.bytes, fx.bytes);
        assert_true(stats.read >= stats.bytes);
        /* the column slice is half of each row: only it may be read */
        assert_true((double)stats.read <= 1.03 * (double)stats.bytes);
        assert_true(stats.threads >= 1 && stats.threads <= TD_MAX_LOAD_THREADS);
        assert_true(stats.staging <= TD_MAX_STAGING + TD_MIB);
        if (variants[v].threads == 1)
            assert_int_equal(stats.threads, 1);
    }
}

static int64_t row_bytes(const struct td_piece *p)
{
    return p->n_cols * td_dtype_bits(fx.dir.tensors[p->tensor].dtype) / 8;
}

static void *place(void *self, const struct td_piece *p, int64_t row0, int64_t n_rows)
{
    const struct sink *s = self;
    char *to = s->places[p - s->pieces];
    (void)n_rows;
    return to ? to + row0 * row_bytes(p) : NULL;
}

/* Two pieces of three have a place, where every row must be that was not handed over. */
static void to_their_places(void **state)
{
    static const struct td_load_opts variants[] = {
        {.cache = TD_LOAD_CACHE_KEEP, .place = place},
        {.cache = TD_LOAD_CACHE_KEEP, .place = place, .staging = 3000},
        {.cache = TD_LOAD_CACHE_DROP, .place = place, .threads = 2},
    };
    (void)state;
    for (size_t v = 0; v < TD_COUNT(variants); v++) {
        struct td_load_stats stats;
        struct td_error err;
        int64_t placed = 0;
        for (size_t i = 0; i < fx.n; i++)
            if (i % 3 != 2)
                fx.sink.places[i] = td_calloc(
                    (size_t)(fx.pieces[i].n_rows * row_bytes(&fx.pieces[i])) + 1, 1);
        assert_int_equal(load(&variants[v], &stats, &err), TD_OK);
        assert_int_equal(stats.bytes, fx.bytes);
        for (size_t i = 0; i < fx.n; i++) {
            const struct td_piece *p = &fx.pieces[i];
            for (int64_t r = 0; r < p->n_rows; r++) {
                if (fx.sink.seen[i][r] == 0) {
                    assert_non_null(fx.sink.places[i]);
                    char *copy = td_strndup(fx.sink.places[i] + r * row_bytes(p),
                                            (size_t)row_bytes(p));
                    (void)pack(&fx.sink, p, r, 1, copy, NULL);
                    td_free(copy);
                    placed++;
                }
                assert_int_equal(fx.sink.seen[i][r], 1);
            }
            td_free(fx.sink.places[i]);
            fx.sink.places[i] = NULL;
        }
        assert_int_equal(fx.sink.wrong, 0);
        assert_true(placed > (v < 2 ? 1200 : 0));
    }
}

/* A device that copies as late as it may: what was packed from an area is looked at when
 * the loader waits for it, or at the end. */
struct late {
    struct td_dev dev;
    pthread_mutex_t lock;
    char *areas;
    size_t bytes;
    int n, waits;
    bool refuses;
    struct {
        const struct td_piece *piece;
        int64_t row0, n_rows;
        const char *from;
    } todo[4096];
    int n_todo;
};

static bool late_stage(struct td_dev *dev, void *areas, int n, size_t bytes)
{
    struct late *l = (struct late *)dev;
    assert_int_equal((uintptr_t)areas % 4096, 0);
    assert_int_equal(bytes % 4096, 0);
    l->areas = areas;
    l->n = n;
    l->bytes = bytes;
    return !l->refuses;
}

static void look_at(struct late *l, int area)
{
    const char *begin = l->areas + (size_t)area * l->bytes;
    (void)pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_todo; i++) {
        if (l->todo[i].from < begin || l->todo[i].from >= begin + l->bytes)
            continue;
        (void)pack(&fx.sink, l->todo[i].piece, l->todo[i].row0, l->todo[i].n_rows,
                   l->todo[i].from, NULL);
        l->todo[i--] = l->todo[--l->n_todo];
    }
    l->waits++;
    (void)pthread_mutex_unlock(&l->lock);
}

static void late_wait(struct td_dev *dev, int area)
{
    look_at((struct late *)dev, area);
}

static void late_end(struct td_dev *dev)
{
    struct late *l = (struct late *)dev;
    for (int i = 0; i < l->n; i++)
        look_at(l, i);
    l->areas = NULL;
}

static enum td_status late_pack(void *self, const struct td_piece *p, int64_t row0,
                                int64_t n_rows, const void *bytes, struct td_error *err)
{
    struct late *l = self;
    (void)err;
    (void)pthread_mutex_lock(&l->lock);
    l->todo[l->n_todo].piece = p;
    l->todo[l->n_todo].row0 = row0;
    l->todo[l->n_todo].n_rows = n_rows;
    l->todo[l->n_todo++].from = bytes;
    (void)pthread_mutex_unlock(&l->lock);
    return TD_OK;
}

static void copied_later(void **state)
{
    static struct late l;
    struct td_load_opts opts[] = {{.dev = &l.dev},
                                  {.dev = &l.dev, .threads = 1, .staging = 100000},
                                  {.dev = &l.dev, .cache = TD_LOAD_CACHE_DROP}};
    (void)state;
    l = (struct late){.lock = PTHREAD_MUTEX_INITIALIZER};
    l.dev.ops.stage = late_stage;
    l.dev.ops.stage_wait = late_wait;
    l.dev.ops.stage_end = late_end;
    for (size_t i = 0; i < TD_COUNT(opts); i++) {
        struct td_load_stats stats;
        struct td_error err;
        td_error_init(&err);
        l.waits = 0;
        memset(fx.sink.seen, 0, sizeof(fx.sink.seen));
        assert_int_equal(
            td_load(&fx.dir, fx.pieces, fx.n, &opts[i], late_pack, &l, &stats, &err),
            TD_OK);
        assert_null(l.areas); /* ended */
        assert_int_equal(l.n, 2 * stats.threads);
        assert_true(l.waits > l.n);
        assert_int_equal(l.n_todo, 0);
        assert_int_equal(fx.sink.wrong, 0);
        for (size_t k = 0; k < fx.n; k++)
            for (int64_t r = 0; r < ROWS; r++)
                assert_int_equal(fx.sink.seen[k][r], r < fx.pieces[k].n_rows);
    }
    l.refuses = true; /* then the callback copies at once */
    memset(fx.sink.seen, 0, sizeof(fx.sink.seen));
    assert_int_equal(
        td_load(&fx.dir, fx.pieces, fx.n, opts, pack, &fx.sink, NULL, NULL), TD_OK);
    assert_int_equal(fx.sink.wrong, 0);
}

static void nothing_to_load(void **state)
{
    struct td_load_stats stats;
    struct td_error err;
    (void)state;
    fx.n = 0;
    assert_int_equal(load(&(struct td_load_opts){0}, &stats, &err), TD_OK);
    assert_int_equal(stats.bytes, 0);
}

static void pieces_outside(void **state)
{
    const struct td_piece good = fx.pieces[4];
    struct td_piece bad[] = {good, good, good, good, good, good, good, good, good};
    struct td_error err;
    (void)state;
    bad[0].tensor = -1;
    bad[1].tensor = fx.dir.n_tensors;
    bad[2].rows++;
    bad[3].rows = INT64_MAX / 2;
    bad[4].row0 = 150;
    bad[5].col0 = 1;
    bad[6].n_rows = -1;
    bad[7].n_cols = INT64_MAX;
    bad[8].cols = 0;
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        fx.pieces[4] = bad[i];
        assert_int_equal(load(&(struct td_load_opts){0}, NULL, &err), TD_E_TENSOR);
        check_error(&err, TD_E_TENSOR, i < 2 ? "(no tensor)" : "fused");
    }
}

static void failing_reads(void **state)
{
    const struct td_load_opts opts = {.threads = 2};
    struct td_error err;
    (void)state;
    long n = 1;
    for (;; n++) {
        td_pread_fail_at(n, EIO);
        enum td_status s = load(&opts, NULL, &err);
        td_pread_fail_at(0, 0);
        if (s == TD_OK)
            break;
        assert_int_equal(s, TD_E_IO);
        check_error(&err, TD_E_IO, "Input/output error");
        assert_non_null(strstr(err.what, "model.safetensors at byte"));
        assert_non_null(strstr(err.what, "(tensor "));
    }
    assert_true(n > 4);
    td_pread_fail_at(1, 0);
    assert_int_equal(load(&opts, NULL, &err), TD_E_TRUNCATED);
    td_pread_fail_at(0, 0);
    check_error(&err, TD_E_TRUNCATED, "0 found");
}

static void file_that_shrinks(void **state)
{
    char path[512];
    struct td_error err;
    (void)state;
    ckpt_path(&fx.c, "model.safetensors", path);
    assert_int_equal(truncate(path, 700000), 0);
    assert_int_equal(load(&(struct td_load_opts){0}, NULL, &err), TD_E_TRUNCATED);
    check_error(&err, TD_E_TRUNCATED, "ends at byte 700000");
    assert_non_null(strstr(err.what, "big"));
    assert_non_null(strstr(err.why, "bytes were expected at byte"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(load(&(struct td_load_opts){0}, NULL, &err), TD_E_NOT_FOUND);
}

static enum td_status ignore(void *self, const struct td_piece *piece, int64_t row0,
                             int64_t n_rows, const void *bytes, struct td_error *err)
{
    (void)self;
    (void)piece;
    (void)row0;
    (void)n_rows;
    (void)bytes;
    (void)err;
    return TD_OK;
}

/* Columns of short rows come through a mapped window: a file that ends inside it is an
 * error all the same. */
static void columns_that_are_gone(void **state)
{
    char path[512];
    struct ckpt c;
    struct td_model_dir dir;
    struct td_error err;
    (void)state;
    ckpt_init(&c);
    ckpt_file(&c, "model.safetensors",
              "{\"w\":{\"dtype\":\"U8\",\"shape\":[4096,512],"
              "\"data_offsets\":[0,2097152]}}",
              2097152);
    assert_int_equal(td_model_dir_open(c.dir, &dir, NULL), TD_OK);
    ckpt_path(&c, "model.safetensors", path);
    struct td_piece p = {
        .rows = 4096, .cols = 512, .n_rows = 4096, .col0 = 256, .n_cols = 256};
    struct td_load_stats stats;
    struct td_load_opts opts = {.threads = 2};
    td_error_init(&err);
    assert_int_equal(td_load(&dir, &p, 1, &opts, ignore, NULL, &stats, &err), TD_OK);
    assert_int_equal(stats.read, 4096 * 256);
    assert_int_equal(truncate(path, 1000000), 0);
    assert_int_equal(td_load(&dir, &p, 1, &opts, ignore, NULL, NULL, &err),
                     TD_E_TRUNCATED);
    check_error(&err, TD_E_TRUNCATED, "ends at byte 1000000");
    td_model_dir_release(&dir);
    ckpt_release(&c);
}

static void failing_callback(void **state)
{
    struct td_error err;
    (void)state;
    fx.sink.fail_with = TD_E_NOMEM;
    assert_int_equal(load(&(struct td_load_opts){0}, NULL, &err), TD_E_NOMEM);
    check_error(&err, TD_E_NOMEM, "could not be packed");
}

static void cancelled(void **state)
{
    struct td_load_opts opts = {.cancel = &fx.sink.cancel, .threads = 1};
    struct td_error err;
    (void)state;
    fx.sink.cancel_soon = true;
    assert_int_equal(load(&opts, NULL, &err), TD_E_CANCELLED);
    check_error(&err, TD_E_CANCELLED, "stopped");
}

static void failing_allocations(void **state)
{
    struct td_error err;
    long n = 1;
    (void)state;
    for (;; n++) {
        td_mem_fail_at(n);
        enum td_status s =
            load(&(struct td_load_opts){.cache = TD_LOAD_CACHE_KEEP}, NULL, &err);
        td_mem_fail_at(0);
        if (s == TD_OK)
            break;
        check_error(&err, TD_E_NOMEM, fx.c.dir);
    }
    assert_true(n > 4);
}

static void too_long_a_row(void **state)
{
    const char header[] = "{\"long\":{\"dtype\":\"U8\",\"shape\":[300000000],"
                          "\"data_offsets\":[0,300000000]}}";
    struct ckpt c;
    struct td_model_dir dir;
    struct td_error err;
    struct stat st;
    char path[512];
    (void)state;
    td_error_init(&err);
    ckpt_init(&c);
    ckpt_file(&c, "model.safetensors", header, 0);
    ckpt_path(&c, "model.safetensors", path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size + 300000000), 0); /* a hole */
    assert_int_equal(td_model_dir_open(c.dir, &dir, &err), TD_OK);
    struct td_piece p = {
        .rows = 1, .cols = 300000000, .n_rows = 1, .n_cols = 300000000};
    struct sink sink = {.dir = &dir, .pieces = &p};
    assert_int_equal(
        td_load(&dir, &p, 1, &(struct td_load_opts){0}, pack, &sink, NULL, &err),
        TD_E_LIMIT);
    check_error(&err, TD_E_LIMIT, "300000000");
    td_model_dir_release(&dir);
    ckpt_release(&c);
}

static int loaded_events;
static double last_bytes;

static void listen(void *self, const struct td_event *e)
{
    (void)self;
    if (strcmp(e->name, "loaded") != 0)
        return;
    loaded_events++;
    for (const struct td_num *n = e->nums; n->key; n++)
        if (strcmp(n->key, "bytes") == 0)
            last_bytes = n->value;
}

static void events(void **state)
{
    struct td_error err;
    (void)state;
    td_log_set_listener(listen, NULL);
    assert_int_equal(load(&(struct td_load_opts){0}, NULL, &err), TD_OK);
    td_log_set_listener(NULL, NULL);
    assert_int_equal(loaded_events, 1);
    assert_true(last_bytes == (double)fx.bytes);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_byte_once),
        TEST(to_their_places),
        TEST(copied_later),
        TEST(nothing_to_load),
        TEST(pieces_outside),
        TEST(failing_reads),
        TEST(file_that_shrinks),
        TEST(failing_callback),
        TEST(cancelled),
        TEST(failing_allocations),
        TEST(too_long_a_row),
        TEST(events),
        cmocka_unit_test(columns_that_are_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches that are touched beside the load: every page is there afterwards, with several
 * threads and without any; a device with memory of its own is left alone.
 */
#define _DEFAULT_SOURCE /* mincore */
#include "check.h"

#include "base/mem.h"
#include "engine/touch.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static const size_t sizes[] = {(size_t)150 * 1048576 + 64, (size_t)9 * 1048576};

static void make(struct td_cache *c)
{
    memset(c, 0, sizeof(*c));
    for (size_t i = 0; i < TD_COUNT(sizes); i++) {
        c->slabs[i].bytes = sizes[i];
        c->slabs[i].p = td_alloc_aligned(sizes[i]);
        assert_non_null(c->slabs[i].p);
    }
}

static void release(struct td_cache *c)
{
    for (size_t i = 0; i < TD_COUNT(sizes); i++)
        td_free_aligned(c->slabs[i].p, sizes[i]);
}

/* Pages that have memory. */
static size_t resident(const struct td_cache *c)
{
    size_t sum = 0;
    for (size_t i = 0; i < TD_COUNT(sizes); i++) {
        size_t pages = (sizes[i] + PAGE - 1) / PAGE;
        unsigned char *there = td_calloc(pages, 1);
        assert_non_null(there);
        assert_int_equal(mincore(c->slabs[i].p, sizes[i], there), 0);
        for (size_t k = 0; k < pages; k++)
            sum += there[k] & 1;
        td_free(there);
    }
    return sum;
}

static size_t all_pages(void)
{
    return (sizes[0] + PAGE - 1) / PAGE + (sizes[1] + PAGE - 1) / PAGE;
}

static void every_page_is_touched(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 3; threads++) {
        struct td_dev dev = {.host = true, .threads = threads};
        struct td_touch t;
        struct td_cache c;
        atomic_ullong beat = 0;
        make(&c);
        assert_true(resident(&c) < all_pages());
        td_touch_start(&t, &dev, &c, &beat);
        assert_int_equal(t.n, threads);
        td_touch_end(&t, true);
        assert_int_equal(resident(&c), all_pages());
        assert_int_equal(atomic_load(&beat), 3); /* pieces of 64 MiB */
        td_touch_end(&t, true);                  /* nothing is left to do */
        release(&c);
    }
}

static void a_gpu_has_touched_its_own(void **state)
{
    struct td_dev dev = {.host = false, .threads = 2};
    struct td_touch t;
    struct td_cache c;
    (void)state;
    make(&c);
    td_touch_start(&t, &dev, &c, NULL);
    td_touch_end(&t, true);
    assert_true(resident(&c) < all_pages());
    release(&c);
}

/* A load that failed waits for the piece that is in work, not for gigabytes. */
static void what_is_not_needed_is_left(void **state)
{
    struct td_dev dev = {.host = true, .threads = 0};
    struct td_touch t;
    struct td_cache c;
    (void)state;
    make(&c);
    for (int threads = 0; threads <= 1; threads++) {
        dev.threads = threads;
        td_touch_start(&t, &dev, &c, NULL);
        td_touch_end(&t, false);
        assert_true(atomic_load(&t.next) * 64 * TD_MIB >= t.bytes);
        assert_true(threads > 0 || resident(&c) < all_pages());
    }
    release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_touched),
        cmocka_unit_test(what_is_not_needed_is_left),
        cmocka_unit_test(a_gpu_has_touched_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

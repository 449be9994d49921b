/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory. See mem.h. Large aligned blocks come straight from mmap, so that they
 * can sit in huge pages and go back to the system when they are freed.
 */
#define _DEFAULT_SOURCE
#include "base/mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_FROM = 4 << 20 };

static _Atomic long fail_at;

void td_mem_fail_at(long n)
{
    atomic_store(&fail_at, n);
}

static int must_fail(void)
{
    long n = atomic_load(&fail_at);
    return n > 0 && atomic_fetch_sub(&fail_at, 1) == 1;
}

void *td_calloc(size_t n, size_t size)
{
    if (must_fail() || (size && n > SIZE_MAX / size))
        return NULL;
    return calloc(n ? n : 1, size ? size : 1);
}

void *td_realloc(void *p, size_t n, size_t size)
{
    if (must_fail() || (size && n > SIZE_MAX / size))
        return NULL;
    size_t bytes = n * size;
    return realloc(p, bytes ? bytes : 1);
}

char *td_strndup(const char *s, size_t n)
{
    if (n == SIZE_MAX)
        return NULL;
    char *copy = td_calloc(n + 1, 1);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

char *td_strdup(const char *s)
{
    return td_strndup(s, strlen(s));
}

void *td_alloc_aligned(size_t bytes)
{
    if (must_fail() || bytes > SIZE_MAX - ALIGNMENT)
        return NULL;
    if (bytes >= HUGE_FROM) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
        if (p == MAP_FAILED)
            return NULL;
        (void)madvise(p, bytes, MADV_HUGEPAGE);
        return p;
    }
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *p = aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT);
    if (p)
        memset(p, 0, rounded ? rounded : ALIGNMENT);
    return p;
}

void td_free_aligned(void *p, size_t bytes)
{
    if (!p)
        return;
    if (bytes >= HUGE_FROM)
        (void)munmap(p, bytes);
    else
        free(p);
}

void td_free(void *p)
{
    free(p);
}

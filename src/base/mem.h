/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory. All rooms allocate through here, so that tests can make the n-th
 * allocation fail and so that sizes are checked for overflow in one place.
 */
#ifndef TD_BASE_MEM_H
#define TD_BASE_MEM_H

#include "base/compiler.h"

#include <stddef.h>

/* Zeroed memory for n elements of `size` bytes; NULL when memory is short or n * size
 * overflows. Free with td_free(). */
TD_MUST_USE void *td_calloc(size_t n, size_t size);

/* Like realloc() for n elements; the old block stays valid when it returns NULL. */
TD_MUST_USE void *td_realloc(void *p, size_t n, size_t size);

/* A copy of the first n bytes of s with a final zero. */
TD_MUST_USE char *td_strndup(const char *s, size_t n);
TD_MUST_USE char *td_strdup(const char *s);

/* Zeroed memory aligned to 64 bytes, in huge pages where the system gives them when it
 * is large. Free with td_free_aligned(); `bytes` must be the same. */
TD_MUST_USE void *td_alloc_aligned(size_t bytes);
void td_free_aligned(void *p, size_t bytes);

void td_free(void *p);

/* For tests: the n-th allocation from now on fails (once); 0 switches that off. */
void td_mem_fail_at(long n);

#endif

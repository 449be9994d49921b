/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every unit test includes: cmocka and the headers that it needs first.
 */
#ifndef TD_TESTS_CHECK_H
#define TD_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Builds that run many times slower (sanitizers) do less of the same. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHECK_SMALL = 1 };
#else
enum { CHECK_SMALL = 0 };
#endif

#endif

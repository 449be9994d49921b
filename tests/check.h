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

#endif

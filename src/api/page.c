/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page at /: the bytes of page.html, which the Makefile turns into numbers.
 */
#include "api/page.h"

const char td_page[] = {
#include "api/page.inc"
};

const size_t td_page_bytes = sizeof(td_page);

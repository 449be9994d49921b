/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page that a browser gets at /: one document that asks nothing else of the network.
 */
#ifndef TD_API_PAGE_H
#define TD_API_PAGE_H

#include <stddef.h>

extern const char td_page[];
extern const size_t td_page_bytes;

#endif

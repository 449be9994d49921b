/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared objects of this program that are loaded only where they are needed.
 */
#ifndef TD_BASE_LIBRARY_H
#define TD_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Loads NAME, "libtandem-x.so", from beside the program, from where `make install` and
 * bundles put it, or from where tests find it; then from wherever the system looks. It
 * stays loaded. With `global` its symbols serve what it loads itself. NULL: `why` says
 * what is wrong with it, or that it is not there. */
void *td_library_open(const char *name, bool global, char *why, size_t size);

/* A function of a library as a pointer to store through: *(void **)(&fn) = ... */
void *td_library_symbol(void *library, const char *name);

#endif

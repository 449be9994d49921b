/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared objects beside the program. See library.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/library.h"

#include "base/compiler.h"
#include "base/limits.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The library of a folder relative to the program's; NULL if it is not there. */
static void *load_beside(const char *folder, const char *name, int flags)
{
    char path[TD_MAX_PATH];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return NULL;
    path[n] = '\0';
    char *end = strrchr(path, '/');
    size_t at = end ? (size_t)(end - path) + 1 : 0;
    int k = snprintf(path + at, sizeof(path) - at, "%s%s", folder, name);
    if (k < 0 || (size_t)k >= sizeof(path) - at || access(path, R_OK) != 0)
        return NULL;
    return dlopen(path, flags);
}

void *td_library_open(const char *name, bool global, char *why, size_t size)
{
    static const char *const folders[] = {"", "../lib/", "../lib/tandem/", "../"};
    int flags = RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL);
    void *lib = NULL;
    for (size_t i = 0; i < TD_COUNT(folders) && !lib; i++)
        lib = load_beside(folders[i], name, flags);
    if (!lib)
        lib = dlopen(name, flags);
    if (!lib) {
        const char *text = dlerror();
        (void)snprintf(why, size, "%s", text ? text : "it is not there");
    }
    return lib;
}

void *td_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

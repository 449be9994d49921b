/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads the CUDA shelf, a shared object beside the program, so that one program runs on
 * machines with and without a GPU.
 */
#define _POSIX_C_SOURCE 200809L
#include "ops/ops.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const library = "libtandem-cuda.so";

typedef enum td_status (*open_fn)(const struct td_dev_params *params,
                                  enum td_phase (*phase)(void), struct td_dev **out,
                                  struct td_error *err);
typedef int (*version_fn)(void);

/* The library of a folder relative to the program's; NULL if it is not there. */
static void *load_beside(const char *folder)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return NULL;
    path[n] = '\0';
    char *end = strrchr(path, '/');
    size_t at = end ? (size_t)(end - path) + 1 : 0;
    int k = snprintf(path + at, sizeof(path) - at, "%s%s", folder, library);
    if (k < 0 || (size_t)k >= sizeof(path) - at || access(path, R_OK) != 0)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Beside the program, where `make install` and bundles put it, and where tests find it;
 * then wherever the system looks. */
static void *load(void)
{
    static const char *const folders[] = {"", "../lib/", "../lib/tandem/", "../"};
    void *lib = NULL;
    for (size_t i = 0; i < TD_COUNT(folders) && !lib; i++)
        lib = load_beside(folders[i]);
    return lib ? lib : dlopen(library, RTLD_NOW | RTLD_LOCAL);
}

enum td_status td_cuda_open(const struct td_dev_params *params, struct td_dev **out,
                            struct td_error *err)
{
    void *lib = load(); /* stays loaded: a device lives as long as the process */
    if (!lib) {
        const char *why = dlerror();
        td_error_set(err, TD_E_NO_DEVICE, "%s cannot be loaded", library);
        td_error_why(err, "%s", why ? why : "it is not there");
        td_error_fix(err, "build it where the CUDA toolkit is: make cuda");
        return TD_E_NO_DEVICE;
    }
    version_fn version;
    open_fn open;
    /* POSIX's own way to get a function from dlsym() in ISO C */
    *(void **)(&version) = dlsym(lib, "td_cuda_shelf_version");
    *(void **)(&open) = dlsym(lib, "td_cuda_shelf_open");
    if (!version || !open || version() != TD_OPS_VERSION) {
        td_error_set(err, TD_E_DEVICE, "%s is of another build", library);
        td_error_why(err, "its table of operations is not this program's");
        td_error_fix(err, "build both from the same source: make && make cuda");
        return TD_E_DEVICE;
    }
    return open(params, td_phase_now, out, err);
}

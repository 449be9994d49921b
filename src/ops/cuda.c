/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads the CUDA shelf, a shared object beside the program, so that one program runs on
 * machines with and without a GPU.
 */
#include "base/library.h"
#include "ops/ops.h"

static const char *const library = "libtandem-cuda.so";

typedef enum td_status (*open_fn)(const struct td_dev_params *params,
                                  enum td_phase (*phase)(void), struct td_dev **out,
                                  struct td_error *err);
typedef int (*version_fn)(void);

bool td_cuda_present(void)
{
    return td_library_open(library, false, NULL, 0) != NULL;
}

enum td_status td_cuda_open(const struct td_dev_params *params, struct td_dev **out,
                            struct td_error *err)
{
    char why[TD_ERROR_WHY_MAX];
    void *lib = td_library_open(library, false, why, sizeof(why));
    if (!lib) {
        td_error_set(err, TD_E_NO_DEVICE, "%s cannot be loaded", library);
        td_error_why(err, "%s", why);
        td_error_fix(err, "build it where the CUDA toolkit is: make cuda");
        return TD_E_NO_DEVICE;
    }
    version_fn version;
    open_fn open;
    /* POSIX's own way to get a function from dlsym() in ISO C */
    *(void **)(&version) = td_library_symbol(lib, "td_cuda_shelf_version");
    *(void **)(&open) = td_library_symbol(lib, "td_cuda_shelf_open");
    if (!version || !open || version() != TD_OPS_VERSION) {
        td_error_set(err, TD_E_DEVICE, "%s is of another build", library);
        td_error_why(err, "its table of operations is not this program's");
        td_error_fix(err, "build both from the same source: make && make cuda");
        return TD_E_DEVICE;
    }
    return open(params, td_phase_now, out, err);
}

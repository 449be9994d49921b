/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that only fails: libcuda.so.1 for tests/e2e/gpu.sh, so that the real CUDA
 * runtime meets what machines with GPUs show now and then. FAKE_CUDA is the number that
 * every function returns, FAKE_CUDA_VERSION the version of CUDA that it supports (13000).
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int (*driver_fn)(void);

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuGetProcAddress_v2(const char *name, void *to, int version, uint64_t flags,
                        int *status);

static int number(const char *name, int without)
{
    const char *text = getenv(name);
    return text ? (int)strtol(text, NULL, 10) : without;
}

static int fails(void)
{
    return number("FAKE_CUDA", 0);
}

int cuInit(unsigned flags)
{
    (void)flags;
    return fails();
}

int cuDriverGetVersion(int *version)
{
    *version = number("FAKE_CUDA_VERSION", 13000);
    return 0;
}

int cuGetProcAddress_v2(const char *name, void *to, int version, uint64_t flags,
                        int *status)
{
    driver_fn fn = fails;
    (void)version, (void)flags;
    if (strcmp(name, "cuDriverGetVersion") == 0)
        fn = (driver_fn)cuDriverGetVersion;
    else if (strncmp(name, "cuGetProcAddress", 16) == 0)
        fn = (driver_fn)cuGetProcAddress_v2;
    if (status)
        *status = 0;
    memcpy(to, &fn, sizeof(fn));
    return 0;
}

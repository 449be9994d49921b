/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this processor can do. See cpu.h.
 */
#define _GNU_SOURCE
#include "base/cpu.h"

#include "base/compiler.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned flags;
static char name[128] = "unknown";

#if defined(__x86_64__)
static unsigned detect(void)
{
    unsigned f = 0;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        f |= TD_CPU_AVX2;
    if ((f & TD_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        f |= TD_CPU_AVX512;
    if (!(f & TD_CPU_AVX512))
        return f;
    if (__builtin_cpu_supports("avx512bf16"))
        f |= TD_CPU_AVX512_BF16;
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2"))
        f |= TD_CPU_AVX512_VBMI;
    if (__builtin_cpu_supports("avx512vnni"))
        f |= TD_CPU_AVX512_VNNI;
    return f;
}
#elif defined(__aarch64__)
static unsigned detect(void)
{
    unsigned f = 0;
    if (getauxval(AT_HWCAP2) & HWCAP2_BF16)
        f |= TD_CPU_NEON_BF16;
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
        f |= TD_CPU_NEON_DOT;
    return f;
}
#else
static unsigned detect(void)
{
    return 0;
}
#endif

static void read_name(void)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (f && fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = 0;
        (void)snprintf(name, sizeof(name), "%s", colon + 2);
        break;
    }
    if (f)
        (void)fclose(f);
}

static void init(void)
{
    flags = detect();
    read_name();
}

unsigned td_cpu_flags(void)
{
    (void)pthread_once(&once, init);
    return flags;
}

const char *td_cpu_name(void)
{
    (void)pthread_once(&once, init);
    return name;
}

int td_cpu_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return TD_MAX(CPU_COUNT(&set), 1);
}

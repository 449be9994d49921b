/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this processor can do. Shelves ask here which of their kernels may run.
 */
#ifndef TD_BASE_CPU_H
#define TD_BASE_CPU_H

#include <stdbool.h>

enum td_cpu_flag {
    TD_CPU_AVX2 = 1 << 0,   /* with FMA and F16C */
    TD_CPU_AVX512 = 1 << 1, /* F, BW, DQ, VL */
    TD_CPU_AVX512_BF16 = 1 << 2,
    TD_CPU_AVX512_VBMI = 1 << 3, /* VBMI and VBMI2 */
    TD_CPU_AVX512_VNNI = 1 << 4,
    TD_CPU_NEON_BF16 = 1 << 5,
    TD_CPU_NEON_DOT = 1 << 6
};

/* Flags of this processor (and operating system), found once. */
unsigned td_cpu_flags(void);

/* The processor's name as the system reports it, "unknown" otherwise. Static. */
const char *td_cpu_name(void);

/* Cores that this process may use. */
int td_cpu_cores(void);

#endif

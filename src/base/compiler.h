/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only place for compiler extensions. Everything else is C11 and POSIX 2008.
 */
#ifndef TD_BASE_COMPILER_H
#define TD_BASE_COMPILER_H

/* Checks a printf-like function: f is the format's position, a the first value's. */
#define TD_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define TD_MUST_USE     __attribute__((warn_unused_result))
#define TD_EXPORT       __attribute__((visibility("default")))
#define TD_ALIGNED(n)   __attribute__((aligned(n)))

/* Kernels with constant arguments: always part of their caller, loops unrolled. */
#define TD_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define TD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TD_UNROLL _Pragma("GCC unroll 16")
#endif

/* Tells the processor that a loop waits for another thread. */
#if defined(__x86_64__)
#define TD_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TD_RELAX() __asm__ volatile("isb" ::: "memory")
#else
#define TD_RELAX() ((void)0)
#endif

#define TD_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define TD_MAX(a, b)    ((a) > (b) ? (a) : (b))
#define TD_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif

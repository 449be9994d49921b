/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time. See clock.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <time.h>

int64_t td_clock_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double td_clock_now(void)
{
    return (double)td_clock_ns() * 1e-9;
}

double td_clock_wall(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time. Durations and deadlines use the monotonic clock, event logs the wall clock.
 */
#ifndef TD_BASE_CLOCK_H
#define TD_BASE_CLOCK_H

#include <stdint.h>

/* Monotonic nanoseconds and seconds since an arbitrary start. */
int64_t td_clock_ns(void);
double td_clock_now(void);

/* Seconds since 1970 of the wall clock. */
double td_clock_wall(void);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Monotonic time and deadlines. */
#ifndef DDP_CORE_CLOCK_H
#define DDP_CORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds since an arbitrary start, the same for all processes of the machine
 * (CLOCK_MONOTONIC). */
int64_t ddp_clock_ns(void);

/* Seconds since 1970. */
double ddp_clock_wall(void);

/* The point in time timeout_ms from now; INT64_MAX for a negative timeout: never. */
int64_t ddp_deadline_ns(int timeout_ms);

/* True once the deadline has passed. Never true for INT64_MAX, and then reads no clock. */
bool ddp_deadline_passed(int64_t deadline_ns);

#endif

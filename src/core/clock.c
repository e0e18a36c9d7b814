/* SPDX-License-Identifier: MIT
 *
 * See clock.h. */
#include "config.h"

#include "core/clock.h"

#include <time.h>

int64_t ddp_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double ddp_clock_wall(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int64_t ddp_deadline_ns(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : ddp_clock_ns() + (int64_t)timeout_ms * 1000000;
}

bool ddp_deadline_passed(int64_t deadline_ns)
{
    return deadline_ns != INT64_MAX && ddp_clock_ns() >= deadline_ns;
}

/* SPDX-License-Identifier: MIT
 *
 * See futex.h. The shared form of the calls is used throughout: the words are in memfds. */
#include "config.h"

#include "core/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void ddp_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t max_ns)
{
    struct timespec limit = {.tv_sec = max_ns / 1000000000, .tv_nsec = max_ns % 1000000000};
    if (max_ns > 0)
        syscall(SYS_futex, (void *)word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void ddp_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

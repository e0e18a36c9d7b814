/* SPDX-License-Identifier: MIT
 *
 * How a thread rounds. A library that was built with -ffast-math has the thread that loads it flush
 * subnormal numbers to zero, and threads inherit that: then bits depend on what else is in the
 * process. So whoever computes puts IEEE 754's default in force, and leaves the caller's own as it
 * was. */
#ifndef DDP_CORE_ROUNDING_H
#define DDP_CORE_ROUNDING_H

#include <fenv.h>
#include <stdbool.h>

struct ddp_rounding {
    fenv_t before;
    bool changed;
};

/* To nearest, with subnormal numbers and without traps, until it is released: for the calling
 * thread and those that it starts meanwhile. Pairs may nest. */
void ddp_rounding_hold(struct ddp_rounding *rounding);
void ddp_rounding_release(const struct ddp_rounding *rounding);

#endif

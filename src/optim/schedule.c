/* SPDX-License-Identifier: MIT
 *
 * See schedule.h. */
#include "config.h"

#include "optim/schedule.h"

#include <math.h>
#include <stddef.h>

const char *const ddp_schedule_names[] = {"constant", "linear", "cosine", NULL};

/* Each gives the factor for a part of the way, 0 at the first step after warm-up and below 1 at the
 * last. */
static double constant(double part)
{
    (void)part;
    return 1.0;
}

static double linear(double part)
{
    return 1.0 - part;
}

static double cosine(double part)
{
    return 0.5 * (1.0 + cos(3.14159265358979323846 * part));
}

static double (*const factors[])(double) = {
    [DDP_SCHEDULE_CONSTANT] = constant,
    [DDP_SCHEDULE_LINEAR] = linear,
    [DDP_SCHEDULE_COSINE] = cosine,
};

double ddp_schedule_rate(const struct ddp_schedule *schedule, int64_t step)
{
    if (step < schedule->warmup_steps)
        return schedule->rate * (double)(step + 1) / (double)schedule->warmup_steps;
    int64_t rest = schedule->total_steps - schedule->warmup_steps;
    double part = rest > 0 ? (double)(step - schedule->warmup_steps) / (double)rest : 0.0;
    return schedule->rate * factors[schedule->kind](part > 1.0 ? 1.0 : part);
}

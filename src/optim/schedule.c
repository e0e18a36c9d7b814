/* SPDX-License-Identifier: MIT
 *
 * See schedule.h. */
#include "config.h"

#include "core/portable_math.h"
#include "optim/schedule.h"

#include <stddef.h>

const char *const ddp_schedule_names[] = {"constant", "linear", "cosine", "step", NULL};

/* The part of the way after warm-up, or since the plan was extended: 0 at the first step and below
 * 1 at the last. */
static double part(const struct ddp_schedule *schedule, int64_t step)
{
    const int64_t first =
        schedule->extended_at > 0 ? schedule->extended_at : schedule->warmup_steps;
    const int64_t rest = schedule->total_steps - first;
    const double part = rest > 0 ? (double)(step - first) / (double)rest : 0.0;
    return part > 1.0 ? 1.0 : part;
}

static double between(const struct ddp_schedule *schedule, double factor)
{
    const double from = schedule->extended_at > 0 ? schedule->extended_rate : schedule->rate;
    return schedule->min_rate + factor * (from - schedule->min_rate);
}

static double constant(const struct ddp_schedule *schedule, int64_t step)
{
    (void)step;
    return schedule->rate;
}

static double linear(const struct ddp_schedule *schedule, int64_t step)
{
    return between(schedule, 1.0 - part(schedule, step));
}

static double cosine(const struct ddp_schedule *schedule, int64_t step)
{
    double sine, cosine;
    ddp_math_sin_cos(3.14159265358979323846 * part(schedule, step), &sine, &cosine);
    return between(schedule, 0.5 * (1.0 + cosine));
}

static double falls(const struct ddp_schedule *schedule, int64_t step)
{
    int64_t count = schedule->step_size > 0 ? step / schedule->step_size : 0;
    for (int i = 0; i < schedule->milestone_count; i++)
        count += step >= schedule->milestones[i];
    return schedule->rate * ddp_math_pow(schedule->gamma, (double)count);
}

static double (*const rates[])(const struct ddp_schedule *schedule, int64_t step) = {
    [DDP_SCHEDULE_CONSTANT] = constant,
    [DDP_SCHEDULE_LINEAR] = linear,
    [DDP_SCHEDULE_COSINE] = cosine,
    [DDP_SCHEDULE_STEP] = falls,
};

double ddp_schedule_rate(const struct ddp_schedule *schedule, int64_t step)
{
    if (step < schedule->warmup_steps)
        return schedule->rate * (double)(step + 1) / (double)schedule->warmup_steps;
    return rates[schedule->kind](schedule, step);
}

bool ddp_schedule_depends_on_length(const struct ddp_schedule *schedule)
{
    return schedule->kind == DDP_SCHEDULE_LINEAR || schedule->kind == DDP_SCHEDULE_COSINE;
}

void ddp_schedule_extend(struct ddp_schedule *schedule, const struct ddp_schedule *before,
                         int64_t step)
{
    const int64_t last = before->total_steps - 1;
    if (step < schedule->warmup_steps)
        return;
    schedule->extended_at = step;
    schedule->extended_rate = schedule->rate != before->rate
                                  ? schedule->rate
                                  : ddp_schedule_rate(before, step < last ? step : last);
    if (schedule->extended_rate < schedule->min_rate)
        schedule->extended_rate = schedule->min_rate;
}

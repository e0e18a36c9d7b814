/* SPDX-License-Identifier: MIT
 *
 * The learning rate as a function of the optimizer step. A schedule is one function and one line in
 * schedule.c. */
#ifndef DDP_OPTIM_SCHEDULE_H
#define DDP_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum ddp_schedule_kind {
    DDP_SCHEDULE_CONSTANT,
    DDP_SCHEDULE_LINEAR, /* falls evenly; would be at its end in the step after the last */
    DDP_SCHEDULE_COSINE, /* half a cosine; likewise */
    DDP_SCHEDULE_STEP,   /* times gamma at certain steps */
};

/* The names of the kinds, in their order, ending in NULL: a list for a choice option. */
extern const char *const ddp_schedule_names[];

#define DDP_SCHEDULE_MILESTONES 16

struct ddp_schedule {
    enum ddp_schedule_kind kind;
    double rate;          /* the highest */
    double min_rate;      /* linear, cosine: what they end in */
    int64_t warmup_steps; /* the rate rises linearly over these, from rate / warmup_steps */
    int64_t total_steps;  /* of the whole training, warm-up included */
    /* linear, cosine: planned anew at this step, after the warm-up, from this rate to the end; 0:
     * the plan is that of the beginning */
    int64_t extended_at;
    double extended_rate;
    /* step: counted from the beginning of training, warm-up included */
    double gamma;
    int64_t step_size; /* a fall every so many steps; 0: at the milestones */
    int64_t milestones[DDP_SCHEDULE_MILESTONES];
    int milestone_count;
};

/* The learning rate of optimizer step `step`, from 0. */
double ddp_schedule_rate(const struct ddp_schedule *schedule, int64_t step);

/* Whether the rate of a step depends on the number of steps. */
bool ddp_schedule_depends_on_length(const struct ddp_schedule *schedule);

/* Plans the rate anew for a run that has done `step` steps: from what it is now to min_rate at the
 * new end. A run that is complete begins with the rate of its last step. A warm-up that is not over
 * goes on as it was.
 *   schedule  in: total_steps and min_rate as they are to be; rate: that of `before`, or another to
 *             begin with now
 *   before    what was planned, of the same kind */
void ddp_schedule_extend(struct ddp_schedule *schedule, const struct ddp_schedule *before,
                         int64_t step);

#endif

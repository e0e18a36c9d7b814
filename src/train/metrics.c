/* SPDX-License-Identifier: MIT
 *
 * See metrics.h: what is derived once for all sinks, and their list. */
#include "config.h"

#include "train/metrics.h"

#include "core/clock.h"
#include "core/memory.h"

#include <stdlib.h>

static const struct ddp_train_sink_ops *const sinks[] = {
    &ddp_train_sink_progress,
    &ddp_train_sink_json,
    &ddp_train_sink_tensorboard,
};

#define SINK_COUNT (sizeof sinks / sizeof sinks[0])

struct ddp_train_metrics {
    const struct ddp_train_plan *plan;
    int64_t clock_ns; /* the end of the last step or evaluation */
    double wait_seconds;
    void *states[SINK_COUNT]; /* NULL: not asked for */
};

enum ddp_status ddp_train_metrics_open(ddp_train_metrics **metrics,
                                       const struct ddp_train_facts *facts)
{
    enum ddp_status status = DDP_OK;
    struct ddp_train_metrics *m = ddp_array_alloc(1, sizeof *m);
    if (!m)
        return DDP_ERR_MEMORY;
    m->plan = facts->plan;
    for (size_t i = 0; status == DDP_OK && i < SINK_COUNT && facts->plan->rank == 0; i++)
        status = sinks[i]->open(&m->states[i], facts);
    if (status != DDP_OK) {
        ddp_train_metrics_close(m, status);
        return status;
    }
    m->clock_ns = ddp_clock_ns();
    *metrics = m;
    return DDP_OK;
}

/* Seconds since the last call. */
static double lap(ddp_train_metrics *metrics)
{
    const int64_t now = ddp_clock_ns();
    const double seconds = (double)(now - metrics->clock_ns) * 1e-9;
    metrics->clock_ns = now;
    return seconds;
}

void ddp_train_metrics_step(ddp_train_metrics *metrics, int64_t step, double loss, double rate,
                            double gradient_norm, double wait_seconds)
{
    const struct ddp_train_plan *plan = metrics->plan;
    const int64_t in_epoch = step % plan->steps_per_epoch;
    const bool tail = in_epoch == plan->steps_per_epoch - 1;
    const int64_t rows = tail ? plan->tail_rows : plan->batch_size;
    struct ddp_train_step event = {
        .step = step,
        .epoch = step / plan->steps_per_epoch,
        .in_epoch = in_epoch,
        .last_of_epoch = tail || step == plan->total_steps - 1,
        .loss = loss,
        .rate = rate,
        .gradient_norm = gradient_norm,
        .seconds = lap(metrics),
        .wait_seconds = wait_seconds - metrics->wait_seconds,
        .samples = (double)rows * (double)plan->global_shards,
        .unit = "samples",
    };
    event.items = event.samples;
    metrics->wait_seconds = wait_seconds;
    for (size_t i = 0; i < SINK_COUNT; i++)
        if (metrics->states[i])
            sinks[i]->step(metrics->states[i], &event);
}

void ddp_train_metrics_begin_evaluation(ddp_train_metrics *metrics)
{
    lap(metrics);
}

void ddp_train_metrics_evaluation(ddp_train_metrics *metrics, int64_t step, double loss,
                                  double accuracy)
{
    struct ddp_train_evaluation event = {
        .step = step,
        .epoch = step / metrics->plan->steps_per_epoch,
        .loss = loss,
        .accuracy = accuracy,
        .seconds = lap(metrics),
    };
    for (size_t i = 0; i < SINK_COUNT; i++)
        if (metrics->states[i])
            sinks[i]->evaluation(metrics->states[i], &event);
}

void ddp_train_metrics_pause(ddp_train_metrics *metrics)
{
    for (size_t i = 0; i < SINK_COUNT; i++)
        if (metrics->states[i] && sinks[i]->pause)
            sinks[i]->pause(metrics->states[i]);
}

void ddp_train_metrics_close(ddp_train_metrics *metrics, enum ddp_status status)
{
    if (!metrics)
        return;
    for (size_t i = 0; i < SINK_COUNT; i++)
        if (metrics->states[i])
            sinks[i]->close(metrics->states[i], status);
    free(metrics);
}

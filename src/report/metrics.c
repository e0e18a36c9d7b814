/* SPDX-License-Identifier: MIT
 *
 * See metrics.h: what is derived once for all sinks, and their list. */
#include "config.h"

#include "report/metrics.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"
#include "core/write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct ddp_train_sink_ops *const sinks[] = {
    &ddp_train_sink_progress,
    &ddp_train_sink_json,
    &ddp_train_sink_tensorboard,
};

const struct ddp_train_preference_name ddp_train_preference_names[] = {
    {"rewards/chosen", offsetof(struct ddp_preferences, chosen)},
    {"rewards/rejected", offsetof(struct ddp_preferences, rejected)},
    {"rewards/margins", offsetof(struct ddp_preferences, margin)},
    {"rewards/accuracies", offsetof(struct ddp_preferences, accuracy)},
    {"logps/chosen", offsetof(struct ddp_preferences, chosen_logp)},
    {"logps/rejected", offsetof(struct ddp_preferences, rejected_logp)},
    {"kl", offsetof(struct ddp_preferences, kl)},
    {NULL, 0},
};

#define NOISE_STEPS 50 /* about as many last ones weigh in the noise */

#define SINK_COUNT (sizeof sinks / sizeof sinks[0])

struct ddp_train_metrics {
    struct ddp_train_facts facts;
    struct ddp_train_totals totals;
    struct ddp_train_event last;
    struct ddp_mode_noise noise; /* means over the last steps */
    int noise_steps;
    int64_t clock_ns; /* the end of the last step or evaluation */
    double wait_seconds;
    double items_of_sample;
    const char *unit;
    bool traces;
    int64_t trace_begin_ns;   /* of the current step or aside */
    void *states[SINK_COUNT]; /* NULL: not asked for */
};

/* Is this step, from 0, one that the trace shows? */
static bool recorded(const ddp_train_metrics *metrics, int64_t step)
{
    const struct ddp_report_options *options = &metrics->facts.options;
    return metrics->traces && step >= options->trace_first - 1 && step <= options->trace_last - 1;
}

/* Machines do not append to a file together, and have clocks of their own: each but the first has a
 * file of its own, trace.node1.json beside trace.json. */
static enum ddp_status name_trace(const struct ddp_train_facts *facts, char **path)
{
    const char *name = facts->options.trace, *slash = strrchr(name, '/'), *dot = strrchr(name, '.');
    const int node = facts->node;
    struct stat status;
    const bool special = stat(name, &status) == 0 && !S_ISREG(status.st_mode);
    const char *base = slash ? slash + 1 : name;
    const int stem = dot && dot > base ? (int)(dot - name) : (int)strlen(name);
    int made = node == 0 || special
                   ? asprintf(path, "%s", name)
                   : asprintf(path, "%.*s.node%d%s", stem, name, node, name + stem);
    return made < 0 ? ddp_fail(DDP_ERR_MEMORY, "out of memory") : DDP_OK;
}

/* The directory was made on the machine of rank 0. */
static enum ddp_status make_directory(const char *path)
{
    char *directory = ddp_directory_of(path);
    enum ddp_status status = directory ? ddp_make_directories(directory, true)
                                       : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    free(directory);
    return status;
}

/* All ranks of a machine write to the file that the first of them makes. */
static enum ddp_status open_trace(ddp_train_metrics *metrics)
{
    const struct ddp_train_facts *facts = &metrics->facts;
    const bool first = facts->node_rank == 0;
    char *path = NULL;
    if (!facts->options.trace)
        return DDP_OK;
    enum ddp_status status = name_trace(facts, &path);
    if (status == DDP_OK && first && facts->rank > 0)
        status = make_directory(path);
    if (status == DDP_OK && first)
        status = ddp_trace_open(path, facts->rank, true);
    if (status == DDP_OK)
        status = ddp_comm_barrier(facts->comm);
    if (status == DDP_OK && !first)
        status = ddp_trace_open(path, facts->rank, false);
    free(path);
    metrics->traces = status == DDP_OK;
    ddp_trace_set_recording(recorded(metrics, facts->first_step));
    return status;
}

enum ddp_status ddp_train_metrics_open(ddp_train_metrics **metrics,
                                       const struct ddp_train_facts *facts)
{
    struct ddp_train_metrics *m = ddp_array_alloc(1, sizeof *m);
    if (!m)
        return DDP_ERR_MEMORY;
    m->facts = *facts;
    const struct ddp_dataset_info *data = facts->data;
    const bool tokens = data->x_dtype == DDP_I32;
    m->unit = tokens ? "tokens" : "samples";
    /* Of (2,T) the second row is where documents begin. */
    m->items_of_sample = tokens ? (double)data->dims[data->dim_count - 1] : 1;
    enum ddp_status status = open_trace(m);
    for (size_t i = 0; status == DDP_OK && i < SINK_COUNT && facts->rank == 0; i++)
        status = sinks[i]->open(&m->states[i], &m->facts);
    if (status != DDP_OK) {
        ddp_train_metrics_close(m, status);
        return status;
    }
    m->clock_ns = ddp_clock_ns();
    m->trace_begin_ns = ddp_trace_begin();
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

/* Of one step both are too uncertain: the means of many are divided. */
static double follow_noise(ddp_train_metrics *metrics, const struct ddp_mode_noise *noise)
{
    struct ddp_mode_noise *mean = &metrics->noise;
    metrics->noise_steps += metrics->noise_steps < NOISE_STEPS;
    mean->signal += (noise->signal - mean->signal) / metrics->noise_steps;
    mean->noise += (noise->noise - mean->noise) / metrics->noise_steps;
    return mean->signal > 0 && mean->noise > 0 ? mean->noise / mean->signal : NAN;
}

void ddp_train_metrics_step(ddp_train_metrics *metrics, int64_t step, double loss, int64_t counted,
                            const struct ddp_preferences *preferences, double rate,
                            double gradient_norm, const struct ddp_mode_noise *noise,
                            double loss_scale, double wait_seconds)
{
    const struct ddp_train_facts *facts = &metrics->facts;
    const int64_t in_epoch = step % facts->steps_per_epoch;
    const bool tail = in_epoch == facts->steps_per_epoch - 1;
    const int64_t rows = tail ? facts->tail_rows : facts->batch_size;
    const int64_t every = facts->options.log_every > 0 ? facts->options.log_every : 1;
    metrics->last = (struct ddp_train_event){
        .step = step,
        .epoch = step / facts->steps_per_epoch,
        .in_epoch = in_epoch,
        .last_of_epoch = tail || step == facts->total_steps - 1,
        .logged = (step + 1) % every == 0 || step == facts->total_steps - 1,
        .loss = loss,
        .counted = counted,
        .has_preferences = preferences,
        .rate = rate,
        .gradient_norm = gradient_norm,
        .noise_scale = noise ? follow_noise(metrics, noise) : NAN,
        .loss_scale = loss_scale,
        .seconds = lap(metrics),
        .wait_seconds = wait_seconds - metrics->wait_seconds,
        .samples = (double)rows * (double)facts->global_shards,
        .unit = metrics->unit,
        .flops = tail ? facts->tail_flops : facts->step_flops,
        .peak_flops = facts->peak_flops,
    };
    struct ddp_train_event *event = &metrics->last;
    if (preferences)
        event->preferences = *preferences;
    event->items = event->samples * metrics->items_of_sample;
    metrics->totals.steps++;
    metrics->totals.seconds += event->seconds;
    metrics->totals.flops += event->flops;
    metrics->wait_seconds = wait_seconds;
    ddp_trace_end("step", metrics->trace_begin_ns, "step", step + 1);
    for (size_t i = 0; i < SINK_COUNT; i++)
        if (metrics->states[i])
            sinks[i]->step(metrics->states[i], event);
    if (metrics->traces) {
        /* What follows the last recorded step, an evaluation say, still belongs to it. */
        ddp_trace_set_recording(recorded(metrics, step) || recorded(metrics, step + 1));
        ddp_trace_flush(step == metrics->facts.options.trace_last - 1);
    }
    metrics->trace_begin_ns = recorded(metrics, step + 1) ? ddp_trace_begin() : 0;
}

const struct ddp_train_event *ddp_train_metrics_last(const ddp_train_metrics *metrics)
{
    return &metrics->last;
}

void ddp_train_metrics_begin_aside(ddp_train_metrics *metrics)
{
    lap(metrics);
    metrics->trace_begin_ns = ddp_trace_begin();
}

void ddp_train_metrics_end_aside(ddp_train_metrics *metrics, const char *name)
{
    lap(metrics);
    ddp_trace_end(name, metrics->trace_begin_ns, NULL, 0);
    metrics->trace_begin_ns = ddp_trace_begin();
}

void ddp_train_metrics_evaluation(ddp_train_metrics *metrics,
                                  struct ddp_train_evaluation *evaluation)
{
    evaluation->epoch = evaluation->step / metrics->facts.steps_per_epoch;
    evaluation->seconds = lap(metrics);
    ddp_train_metrics_end_aside(metrics, "evaluate");
    for (size_t i = 0; i < SINK_COUNT; i++)
        if (metrics->states[i])
            sinks[i]->evaluation(metrics->states[i], evaluation);
}

void ddp_train_metrics_texts(ddp_train_metrics *metrics, int64_t step, char *const *texts,
                             int64_t count)
{
    struct ddp_train_text event = {
        .step = step,
        .epoch = step / metrics->facts.steps_per_epoch,
        .count = count,
        .seconds = lap(metrics),
    };
    ddp_train_metrics_end_aside(metrics, "sample");
    for (; event.index < count; event.index++) {
        event.text = texts[event.index];
        for (size_t i = 0; i < SINK_COUNT; i++)
            if (metrics->states[i])
                sinks[i]->text(metrics->states[i], &event);
    }
}

void ddp_train_metrics_checkpoint(ddp_train_metrics *metrics, int64_t steps)
{
    ddp_train_metrics_end_aside(metrics, "checkpoint");
    for (size_t i = 0; i < SINK_COUNT; i++)
        if (metrics->states[i] && sinks[i]->checkpoint)
            sinks[i]->checkpoint(metrics->states[i], steps);
}

void ddp_train_metrics_hash(ddp_train_metrics *metrics, int64_t steps, json_t *hash)
{
    ddp_train_metrics_end_aside(metrics, "hash");
    for (size_t i = 0; i < SINK_COUNT; i++)
        if (metrics->states[i] && sinks[i]->hash)
            sinks[i]->hash(metrics->states[i], steps, hash);
}

void ddp_train_metrics_memory(ddp_train_metrics *metrics, double peak)
{
    metrics->facts.memory_peak = peak;
}

void ddp_train_metrics_restarts(ddp_train_metrics *metrics, int64_t restarts, int64_t steps,
                                double seconds)
{
    metrics->facts.restarts = restarts;
    metrics->facts.steps_again = steps;
    metrics->facts.restart_seconds = seconds;
}

void ddp_train_metrics_totals(const ddp_train_metrics *metrics, struct ddp_train_totals *totals)
{
    *totals = metrics->totals;
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
    if (metrics->traces)
        ddp_trace_finish();
    free(metrics);
}

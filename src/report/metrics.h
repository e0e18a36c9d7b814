/* SPDX-License-Identifier: MIT
 *
 * What a run reports while it trains: rank 0 hands every step and evaluation to the
 * sinks that the options name (bar and lines, JSON lines, TensorBoard). A sink is one file that
 * ends in one const struct ddp_train_sink_ops, and one line in metrics.c. */
#ifndef DDP_REPORT_METRICS_H
#define DDP_REPORT_METRICS_H

#include "core/json.h"
#include "data/dataset.h"
#include "mode/mode.h"
#include "optim/schedule.h"

/* Which sinks there are, and how much they get. */
struct ddp_report_options {
    const char *log, *tensorboard, *trace; /* files, or NULL */
    int64_t trace_first, trace_last;       /* steps, from 1 */
    int64_t log_every;                     /* steps; 0: each */
    int64_t hash_every;                    /* steps; 0: never */
    bool verbose;
};

/* What a run is, for headers. All of it outlives the metrics. */
struct ddp_train_facts {
    struct ddp_report_options options;
    const char *model; /* its name */
    const struct ddp_dataset_info *data;
    const ddp_graph *graph;
    enum ddp_mode_kind mode;
    int rank, world_size, replicas, threads;
    int stages;                 /* of a pipeline; else 1 */
    int node, nodes, node_rank; /* the machine, of how many; the worker's number on it */
    int64_t batch_size, tail_rows, global_shards; /* as of struct ddp_train_plan */
    int64_t steps_per_epoch, total_steps;
    int64_t evaluation_steps; /* from one evaluation to the next */
    int64_t epochs;           /* 0: the run has a number of steps */
    struct ddp_schedule schedule;
    bool shuffled;
    uint64_t seed;
    struct ddp_mode_memory memory; /* of the worker that holds most */
    const char *device;
    ddp_comm *comm;
    double step_flops, tail_flops; /* of a step, and of the last of an epoch */
    double peak_flops;             /* a second; 0: not measured */
    int64_t first_step;            /* above 0: training was resumed */
    double exchange_bytes;         /* that a step moves, as planned: struct ddp_mode_traffic */
    int64_t restarts, steps_again; /* of the job, and steps that they cost; at the end */
    double restart_seconds;        /* ... and seconds */
    double memory_peak;            /* bytes of a worker at most, at the end; 0: not measured */
    json_t *record; /* what the run can be computed again from (train/record.h), for the log, whose
                       lines are chained then; NULL: nothing */
    FILE *out;      /* NULL: nothing is printed */
};

/* One optimizer step. */
struct ddp_train_event {
    int64_t step;            /* from 0 */
    int64_t epoch, in_epoch; /* both from 0 */
    bool last_of_epoch;      /* or of the run */
    bool logged;             /* one that --log-every picks, or the last */
    double loss, rate;
    int64_t counted;      /* labels that the loss is the mean of, as ddp_mode_counted() has it */
    double gradient_norm; /* NAN: not computed */
    double noise_scale;   /* samples of a batch half of whose gradient is noise; NAN: not known */
    double loss_scale;    /* of the next step; 0: losses are not scaled */
    bool has_preferences; /* the loss is of such */
    struct ddp_preferences preferences;
    double seconds;      /* since the end of the step before, evaluations left out */
    double wait_seconds; /* of these, for data */
    double samples;      /* of the global batch */
    double items;        /* what `unit` counts */
    const char *unit;    /* "samples", say, or "tokens" */
    double flops;        /* of the model */
    double peak_flops;   /* that the machine could do in a second; 0: not measured */
};

/* What a run has done so far, evaluations and checkpoints left out. */
struct ddp_train_totals {
    int64_t steps;
    double seconds, flops;
};

/* What an evaluation finds. */
struct ddp_train_scores {
    int64_t samples;
    double accuracy; /* share of correct predictions, 0 .. 1; NaN: the labels are not classes */
    double loss;     /* mean over all predictions, of classes in nats */
    /* Of a language model: exp(loss), and bits for each byte of the text if it is known how many
     * bytes its tokens stand for. */
    bool has_perplexity, has_bits_per_byte;
    double perplexity, bits_per_byte;
    /* Of numbers that were scaled, in their own unit; R2 is NaN where all are equal. */
    bool has_errors;
    double squared_error, absolute_error, r2;
    bool has_preferences;
    struct ddp_preferences preferences;
    /* Questions with choices: samples are questions, the loss is that of right answers. */
    bool has_choices;
    double normalized; /* accuracy by the probability for each byte of an answer */
};

/* What TRL calls the members of struct ddp_preferences; ends in a NULL. */
struct ddp_train_preference_name {
    const char *name;
    size_t offset; /* of the double */
};
extern const struct ddp_train_preference_name ddp_train_preference_names[];

/* The i-th of them; NaN: it is not measured. */
static inline double ddp_train_preference(const struct ddp_preferences *preferences, int i)
{
    return *(const double *)((const char *)preferences + ddp_train_preference_names[i].offset);
}

struct ddp_train_evaluation {
    int64_t step, epoch; /* that it came after, from 0 */
    struct ddp_train_scores scores;
    double seconds;
    int64_t best_step; /* steps done at the lowest loss so far; 0: no loss was finite */
    double best_loss;
    int64_t since_best, patience; /* evaluations after it, and how many end the run; 0: none do */
    bool ends_run;                /* before its last step */
    bool shows_step, shows_best;  /* in the line that is printed */
};

/* One of the texts that a language model wrote after a step. */
struct ddp_train_text {
    int64_t step, epoch;  /* from 0 */
    int64_t index, count; /* which of how many, from 0 */
    const char *text;     /* UTF-8 that can be shown: lines without control characters */
    double seconds;       /* that all of them took */
};

/* What a line of the log ends in that is chained: the SHA-256 of this value in the line before, or
 * nothing in a run's first line, and of the line up to here. */
#define DDP_LOG_CHAIN ",\"chain\":\""

struct ddp_train_sink_ops {
    /* *state [out] stays NULL when the options do not ask for this sink. */
    enum ddp_status (*open)(void **state, const struct ddp_train_facts *facts);
    void (*step)(void *state, const struct ddp_train_event *step);
    void (*evaluation)(void *state, const struct ddp_train_evaluation *evaluation);
    void (*text)(void *state, const struct ddp_train_text *text);
    void (*checkpoint)(void *state, int64_t steps);         /* done; NULL: it does not show them */
    void (*hash)(void *state, int64_t steps, json_t *hash); /* NULL: as above */
    void (*pause)(void *state); /* before others print a line; NULL: it shows nothing */
    void (*close)(void *state, enum ddp_status status); /* with the result of the training */
};

extern const struct ddp_train_sink_ops ddp_train_sink_progress, ddp_train_sink_json,
    ddp_train_sink_tensorboard;

typedef struct ddp_train_metrics ddp_train_metrics;

/* Before the first step. Collective. Only rank 0 has sinks; all ranks write to the trace. */
enum ddp_status ddp_train_metrics_open(ddp_train_metrics **metrics,
                                       const struct ddp_train_facts *facts);

/* After each step.
 *   counted       as in struct ddp_train_event
 *   preferences   the same; NULL: the loss has none
 *   noise         of this step; NULL: not known
 *   wait_seconds  that data has been waited for since the start */
void ddp_train_metrics_step(ddp_train_metrics *metrics, int64_t step, double loss, int64_t counted,
                            const struct ddp_preferences *preferences, double rate,
                            double gradient_norm, const struct ddp_mode_noise *noise,
                            double loss_scale, double wait_seconds);

/* The last one; it ends with the metrics. */
const struct ddp_train_event *ddp_train_metrics_last(const ddp_train_metrics *metrics);

/* Around work that is not part of a step: it is timed apart, with a name in the trace. */
void ddp_train_metrics_begin_aside(ddp_train_metrics *metrics);
void ddp_train_metrics_end_aside(ddp_train_metrics *metrics, const char *name);

/* The result of an evaluation; ends an aside.
 *   evaluation  epoch and seconds are filled in */
void ddp_train_metrics_evaluation(ddp_train_metrics *metrics,
                                  struct ddp_train_evaluation *evaluation);

/* What a language model wrote after `step`; ends an aside. */
void ddp_train_metrics_texts(ddp_train_metrics *metrics, int64_t step, char *const *texts,
                             int64_t count);

/* A checkpoint after so many steps; ends an aside. */
void ddp_train_metrics_checkpoint(ddp_train_metrics *metrics, int64_t steps);

/* The hash of the weights after so many steps, as train/record.h has it; ends an aside. */
void ddp_train_metrics_hash(ddp_train_metrics *metrics, int64_t steps, json_t *hash);

/* What a worker has held at most, in bytes. */
void ddp_train_metrics_memory(ddp_train_metrics *metrics, double peak);

/* What restarts of the job have cost: steps that were computed again, and seconds. */
void ddp_train_metrics_restarts(ddp_train_metrics *metrics, int64_t restarts, int64_t steps,
                                double seconds);

void ddp_train_metrics_totals(const ddp_train_metrics *metrics, struct ddp_train_totals *totals);

/* Before a line is printed by others: removes the bar. */
void ddp_train_metrics_pause(ddp_train_metrics *metrics);

/* Ends what was written about the run. Of the trace its file is left: ddp_trace_close(), when no
 * thread of the run is left. metrics may be NULL. */
void ddp_train_metrics_close(ddp_train_metrics *metrics, enum ddp_status status);

#endif

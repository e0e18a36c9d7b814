/* SPDX-License-Identifier: MIT
 *
 * What trainer --log wrote, read back: the runs of a file with their steps and events. A run that
 * was restarted is one run: steps that were done again count as they were done last. */
#ifndef DDP_REPORTER_RUN_LOG_H
#define DDP_REPORTER_RUN_LOG_H

#include "ddp.h"

#include <jansson.h>

/* Weights, gradients, optimizer, activations. */
#define MEMORY_PARTS 4

struct log_step {
    int64_t step;      /* from 1 */
    double time;       /* s since 1970 */
    double items;      /* samples or tokens of it */
    double loss, norm; /* NaN: not finite, or not known */
    double noise;      /* the gradient's noise scale, in samples; NaN: not known */
    double rate;       /* the learning rate */
    double seconds;    /* that it took */
    double speed;      /* items a second */
    double waiting;    /* share of the time that it waited for data */
    size_t line;       /* where its line begins in the text */
};

struct log_evaluation {
    int64_t step;
    double time, loss, accuracy; /* NaN: not known */
    size_t line;
};

/* A number of an evaluation whose name begins with test_, the loss included. */
struct log_score {
    size_t metric; /* of the run's */
    int64_t step;
    double value;
};

#define LOG_BYTES ((size_t)2 << 30) /* of a file; larger ones are something else */

#define LOG_NAME  64
#define LOG_VALUE 200

struct log_metric {
    char name[LOG_NAME]; /* without test_ */
};

/* What a run was started with: an option, a version, the host. */
struct log_fact {
    char name[LOG_NAME], value[LOG_VALUE];
};

/* A checkpoint, or where training was restarted. */
struct log_mark {
    int64_t step;
    double time;
};

/* Since when the workers were these. */
struct log_start {
    int64_t first_step, nodes, workers;
    int64_t before;     /* the last step of those before; 0: none */
    double before_time; /* when it was done */
    int64_t again;      /* steps that were done again */
    double lost;        /* s until the job was where it had been before; NaN: not known */
};

struct log_run {
    char name[96]; /* for keys and tables: of the file, and a number when that has several runs */
    char model[64], data[256], mode[16], device[32];
    char status[64]; /* with which it ended; "": it has not */
    bool tokens;     /* what items are; else samples */
    bool ended_early;
    int64_t parameters, batch_size, global_batch, total_steps, seed_low, world_size, replicas;
    double memory[MEMORY_PARTS];  /* bytes of a worker, as planned */
    double exchange, memory_peak; /* bytes; NaN: not known */
    double start;                 /* s since 1970 */
    struct log_step *steps;
    struct log_evaluation *evaluations;
    struct log_score *scores;
    struct log_metric *metrics;
    struct log_fact *facts; /* of its last start */
    struct log_mark *checkpoints, *restarts;
    struct log_start *starts; /* the first one too */
    bool restarted;           /* and no step has been done since */
    double restart_time;
    size_t step_count, evaluation_count, score_count, metric_count, fact_count;
    size_t checkpoint_count, restart_count, start_count;
};

struct run_log {
    struct log_run *runs;
    size_t count;
};

/* Reads the text of a log, and adds its runs to those of others. Logs what is left out, as
 * warnings.
 *   name     of the file: in messages, and of the runs
 *   quietly  no warnings: it has been read before
 *   log [in,out]  zeroed before the first one; freed with run_log_free(), also after a failure
 * DDP_ERR_FORMAT: names file and line; DDP_ERR_MEMORY. */
enum ddp_status run_log_parse(struct run_log *log, const char *name, const char *text, size_t bytes,
                              bool quietly);

/* The same of a file. DDP_ERR_IO names it. */
enum ddp_status run_log_read(struct run_log *log, const char *path, bool quietly);

void run_log_free(struct run_log *log); /* also a zeroed one */

bool run_log_has_metric(const struct log_run *run, const char *name);

/* The value of a fact; "-": the run has none by that name. */
const char *run_log_fact(const struct log_run *run, const char *name);

/* Adds the facts in the first line of a run to its facts. DDP_ERR_MEMORY. */
enum ddp_status run_facts_read(struct log_run *run, const json_t *object);

#endif

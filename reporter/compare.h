/* SPDX-License-Identifier: MIT
 *
 * ddpreport compare: runs a training in several ways, in turns, and measures each. */
#ifndef DDP_REPORTER_COMPARE_H
#define DDP_REPORTER_COMPARE_H

#include "reporter/run_table.h"
#include "reporter/trace_file.h"
#include "reporter/variants.h"

/* What one way to train took. */
struct measured {
    struct log_step *steps; /* the timed ones of all repeats */
    size_t step_count;
    struct step_times times;
    struct trace_exposed exposed;  /* of all repeats */
    double communication, waiting; /* seconds: their shares of the traced steps, of the median */
    double weights, gradients, optimizer, activations, exchange, memory_peak; /* bytes */
    bool differs; /* the weights were not those of the baseline */
};

struct comparison {
    struct variant variants[VARIANTS];
    struct measured measured[VARIANTS];
    int count;
    int64_t global_batch, repeats, steps, threads; /* threads 0: as the command says */
    char model[64], data[256], device[32];
    int64_t parameters;
    bool tokens, all_equal;
    double items; /* of a step: samples or tokens */
};

/* Runs all of it.
 *   comparison [out]  freed with comparison_free(), also after a failure
 *   exit_code  [out]  of the program that failed, with DDP_ERR_ABORTED, which is logged */
enum ddp_status compare_run(struct comparison *comparison, const struct settings *settings,
                            int *exit_code);
void comparison_free(struct comparison *comparison);

#endif

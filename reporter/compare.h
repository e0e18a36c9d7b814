/* SPDX-License-Identifier: MIT
 *
 * ddpreport compare: runs a training in several ways, in turns, and measures each. */
#ifndef DDP_REPORTER_COMPARE_H
#define DDP_REPORTER_COMPARE_H

#include "reporter/series.h"
#include "reporter/trace_file.h"

#define VARIANTS 64

/* A way to train. All use one global batch. Those with as many shards end in the same weights, bit
 * for bit, unless they have local steps; the first of them has one worker, and is their
 * baseline. */
struct variant {
    const char *mode;      /* as of trainer --mode */
    int64_t units, shards; /* workers or replicas; shards of the global batch, of all of them */
    int64_t every;         /* steps from one synchronisation to the next; 1: no step is local */
    int baseline;          /* the index of its baseline; its own: it is one */
    const char *option[2]; /* one more of the trainer, and its value; NULL: none */
    char name[48];         /* "DDP 2 x 4": two units run four shards each */
};

/* What one way to train took. */
struct measured {
    struct log_step *steps; /* the timed ones of all repeats */
    size_t step_count;
    struct step_times times;
    struct trace_exposed exposed;  /* of all repeats */
    double communication, waiting; /* seconds: their shares of the traced steps, of the median */
    double memory[MEMORY_PARTS], memory_peak, exchange; /* bytes; the first as planned */
    double loss;  /* the mean over the last tenth of the steps */
    bool differs; /* the weights were not those of the baseline; local steps: of the first repeat */
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

/* Fills in the variants and returns their number; 0: the numbers of workers or of local steps do
 * not fit, which is logged. */
int variants_make(struct variant variants[VARIANTS], const struct settings *settings,
                  int64_t global_batch);

/* Runs all of it.
 *   comparison [out]  freed with comparison_free(), also after a failure
 *   exit_code  [out]  of the program that failed, with DDP_ERR_ABORTED, which is logged */
enum ddp_status compare_run(struct comparison *comparison, const struct settings *settings,
                            int *exit_code);
void comparison_free(struct comparison *comparison);

#endif

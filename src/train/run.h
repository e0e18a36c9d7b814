/* SPDX-License-Identifier: MIT
 *
 * What a training run has open, shared by the files that open it (open.c) and run it (train.c). */
#ifndef DDP_TRAIN_RUN_H
#define DDP_TRAIN_RUN_H

#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/options.h"

/* Everything a run opens; closed in reverse. */
struct ddp_run {
    const struct ddp_train_options *options;
    struct ddp_train_plan plan;
    ddp_job *job;
    ddp_comm *comm;
    ddp_dataset *data, *test;
    struct ddp_model_config model_config;
    ddp_graph *graph, *tail_graph;
    float *weights; /* flat, host */
    ddp_mode *mode;
    ddp_loader *loader;
    ddp_train_evaluator *evaluator;
    ddp_train_metrics *metrics;
    FILE *out; /* NULL on all ranks but 0 */
    bool warned;
    bool complete; /* all ranks have done their work */
};

/* Opens what the options name, step by step; on failure run is closed by the caller all the same.
 *   run  options and out are set, the rest is zero */
enum ddp_status ddp_run_open(struct ddp_run *run);
void ddp_run_close(struct ddp_run *run);

/* Copies the mode's current weights into run->weights. */
enum ddp_status ddp_run_fetch_weights(struct ddp_run *run);

#endif

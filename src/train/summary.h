/* SPDX-License-Identifier: MIT
 *
 * What a run is measured against: its operations, the machine's peak, its memory. Printed as part
 * of the plan before training, and as measured after it. */
#ifndef DDP_TRAIN_SUMMARY_H
#define DDP_TRAIN_SUMMARY_H

#include "ddp.h"

struct ddp_run;

/* Floating-point operations of a whole step over all workers. */
double ddp_run_step_flops(const struct ddp_run *run);

/* "1.23 GFLOP": three digits. */
const char *ddp_train_show_count(double value, const char *unit, char *text, size_t size);

/* With --mfu, measures what all workers together reach in matrix products: run->peak_flops.
 * Collective. */
enum ddp_status ddp_run_measure_peak(struct ddp_run *run);

/* Adds to the plan: the operations of a step, and with --plan --verbose each of them. */
void ddp_run_print_compute(const struct ddp_run *run);

/* After training: speed and share of the peak, memory as planned and at its peak. Collective. */
enum ddp_status ddp_run_print_summary(struct ddp_run *run);

#endif

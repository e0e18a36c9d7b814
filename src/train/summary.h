/* SPDX-License-Identifier: MIT
 *
 * The figures a run is measured against: its operations, the machine's peak, its memory. Printed as
 * part of the plan before training, and as measured after it. */
#ifndef DDP_TRAIN_SUMMARY_H
#define DDP_TRAIN_SUMMARY_H

#include "ddp.h"

struct ddp_run;

/* After training: speed and share of the peak, memory as planned and at its peak. Collective. */
enum ddp_status ddp_run_print_summary(struct ddp_run *run);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What the optimizers' steps share on the CPU: a flat array cut into tasks, these into pieces with
 * and without weight decay, and the bf16 copy of the weights. */
#ifndef DDP_KERNELS_CPU_UPDATE_H
#define DDP_KERNELS_CPU_UPDATE_H

#include "ddp.h"

#include "core/range.h"

struct ddp_update {
    int64_t count;
    const float *weight;   /* (n) */
    uint16_t *weight_bf16; /* (n) out; NULL: not wanted */
    const struct ddp_range *no_decay;
    int no_decay_count;
    int64_t first; /* where in the flat array element 0 lies */
    /* Updates elements [begin, end) of the arrays in `args`; called by several threads. */
    void (*piece)(const void *args, int64_t begin, int64_t end, bool decay);
    const void *args;
};

void ddp_update_run(const struct ddp_update *update, void *stream);

#endif

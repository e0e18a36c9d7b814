/* SPDX-License-Identifier: MIT
 *
 * The search for the first value that is not finite: a shard is run once more, and every tensor is
 * checked as soon as it is computed. */
#ifndef DDP_GRAPH_SCAN_H
#define DDP_GRAPH_SCAN_H

#include "graph/exec.h"

/* What kind of tensor the value is in. */
enum ddp_scan_tensor {
    DDP_SCAN_NOTHING, /* all is finite */
    DDP_SCAN_INPUT,
    DDP_SCAN_WEIGHT,
    DDP_SCAN_OUTPUT,   /* of an operation, forward */
    DDP_SCAN_GRADIENT, /* backward */
};

/* Names live as long as the graph. */
struct ddp_scan {
    enum ddp_scan_tensor kind;
    const char *tensor;
    const char *operation; /* that wrote it; NULL: none did */
    int64_t count;         /* elements of the tensor */
    int64_t bad_count;     /* of them not finite; `first` is the first of these */
    int64_t first;
    float value; /* ... and what it is */
};

/* Runs forward, loss and backward of the bound shard, up to the first tensor with a value that is
 * not finite. The exec has all parts, inputs, gradients and position set. */
enum ddp_status ddp_exec_scan(ddp_exec *exec, struct ddp_scan *scan);

/* "the output of linear, tensor hidden.1: 3 of 640 values are not finite, value 17 is inf". */
void ddp_scan_describe(const struct ddp_scan *scan, char *text, size_t size);

#endif

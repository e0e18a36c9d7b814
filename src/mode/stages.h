/* SPDX-License-Identifier: MIT
 *
 * Which worker of a pipeline runs which operations. Stage s has the operations from cut s - 1 up to
 * cut s. Where the first and a later stage read the same parameter (an embedding whose weight is
 * also the head's), the operations up to the embedding go to the later stage too: there is one copy
 * of the weight, and no gradient of its size has to travel. */
#ifndef DDP_MODE_STAGES_H
#define DDP_MODE_STAGES_H

#include "graph/stage.h"
#include "mode/mode.h"

#define DDP_STAGES_MAX 64

/* A piece of the pipeline: consecutive operations that one stage runs. */
struct ddp_piece {
    struct ddp_graph_range range;
    int stage;
};

struct ddp_stages {
    int count; /* of stages */
    int piece_count;
    struct ddp_piece pieces[DDP_STAGES_MAX + 1]; /* in the order of the graph */
    int shared; /* the parameter that two pieces of a stage read, in the whole graph's table; -1 */
};

/* The pieces for these cuts: operations of the graph, ascending. A graph that cannot be cut there
 * is logged: DDP_ERR_UNSUPPORTED, DDP_ERR_INVALID. */
enum ddp_status ddp_stages_make(struct ddp_stages *stages, const ddp_graph *graph, int count,
                                const int *cuts);

/* Cuts as a user gives them: names of layers or parameters at which stages begin, "h.4,h.8". Says
 * what is wrong with them. */
enum ddp_status ddp_stages_parse(const ddp_graph *graph, const char *list, int count, int *cuts);

/* Cuts of about equal time: operations of each kind and shape are run on the device and timed.
 * DDP_ERR_INVALID: the graph has too few operations. */
enum ddp_status ddp_stages_balance(const ddp_graph *graph, ddp_device *device, int count,
                                   int *cuts);

/* The same, estimated from floating-point operations and bytes, for a plan without the device. */
enum ddp_status ddp_stages_estimate(const ddp_graph *graph, int count, int *cuts);

#endif

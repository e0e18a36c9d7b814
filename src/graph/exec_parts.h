/* SPDX-License-Identifier: MIT
 *
 * What makes a graph that runs, for exec.c and exec_values.c. */
#ifndef DDP_GRAPH_EXEC_PARTS_H
#define DDP_GRAPH_EXEC_PARTS_H

#include "graph/internal.h"
#include "graph/stage.h"

struct ddp_exec {
    const ddp_graph *graph;
    ddp_device *device;
    unsigned parts;
    const float *weights;
    const uint16_t *weights_bf16;
    void *const *frozen; /* by number */
    uint16_t *const *frozen_bf16;
    float *gradients;
    bool adding;
    const float *loss_scale; /* or NULL */
    const struct ddp_soft_labels *soft;
    float loss_gradient; /* the number in the arena's last cache line */
    bool reported;       /* by this backward, that something is final */
    int32_t *predictions;
    ddp_exec_before *before; /* or NULL */
    void *before_arg;
    ddp_exec_reading *reading; /* or NULL */
    void *reading_arg;
    ddp_exec_sync *sync; /* or NULL */
    void *sync_arg;
    int sync_shards;
    const void **inputs;
    struct ddp_exec_position position;
    const uint32_t *place;       /* or NULL */
    struct ddp_exec_cache cache; /* memory NULL: none */
    struct ddp_exec_messages messages;
    struct {
        int parameter;
        float *memory; /* NULL: in the flat array */
    } gradient_of;
    struct ddp_graph_plan plan;
    enum { PASS_FORWARD, PASS_AGAIN, PASS_BACKWARD } pass;
    char *arena;
    size_t arena_bytes; /* its last cache line holds the gradient of the loss */
};

#endif

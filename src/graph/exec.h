/* SPDX-License-Identifier: MIT
 *
 * A graph with memory on a device: an arena for activations planned from their lifetimes, and
 * borrowed flat arrays for weights and gradients. Runs one shard at a time, in parts, so that a
 * mode can put the loss elsewhere. */
#ifndef DDP_GRAPH_EXEC_H
#define DDP_GRAPH_EXEC_H

#include "device/device.h"
#include "graph/graph.h"

typedef struct ddp_exec ddp_exec;

enum ddp_exec_part {
    DDP_EXEC_NETWORK = 1, /* operations up to the output */
    DDP_EXEC_LOSS = 2,    /* operations from the output to the loss */
    DDP_EXEC_BACKWARD = 4,
};

/* Whether a device of this name can run the graph: a program's own operations and matrices in
 * blocks need the CPU. */
enum ddp_status ddp_exec_check_device(const ddp_graph *graph, const char *device);

/* The graph, the device and the flat weights (device memory) must outlive the exec.
 *   parts  of enum ddp_exec_part: what will be run; memory is planned only for that */
enum ddp_status ddp_exec_create(ddp_exec **exec, const ddp_graph *graph, ddp_device *device,
                                unsigned parts, const float *weights);
void ddp_exec_destroy(ddp_exec *exec);
const ddp_graph *ddp_exec_graph(const ddp_exec *exec);

/* Bytes of the arena that such an exec has. */
enum ddp_status ddp_exec_arena_bytes(const ddp_graph *graph, unsigned parts, size_t *bytes);
size_t ddp_exec_graph_input_bytes(const ddp_graph *graph, int input); /* 0: no such input */
size_t ddp_exec_graph_output_bytes(const ddp_graph *graph);

/* Inputs are numbered in the order in which the graph made them; memory is device memory, borrowed
 * until the next bind. */
void ddp_exec_bind_input(ddp_exec *exec, int input, const void *memory);
/* Binds an input in host memory, directly or through `staging`.
 *   staging  device memory of ddp_exec_input_bytes() that it is copied to first; NULL: the device
 *            reads the host's */
enum ddp_status ddp_exec_load_input(ddp_exec *exec, int input, const void *host, void *staging);
size_t ddp_exec_input_bytes(const ddp_exec *exec, int input); /* 0: no such input */

/* Where backward writes (elements 0 and 1: the loss and the number of targets that do not count);
 * device memory of ddp_graph_flat_count() elements. */
void ddp_exec_set_gradients(ddp_exec *exec, float *gradients);

/* Backward adds to the gradients, and forward to the loss and the statistics, instead of writing
 * them. */
void ddp_exec_set_adding(ddp_exec *exec, bool adding);

/* The gradient of the loss that backward begins with: all others become so many times larger.
 *   scale  in the host's memory, as it is when ddp_exec_send_loss_scale() is called; NULL: 1 */
void ddp_exec_set_loss_scale(ddp_exec *exec, const float *scale);

/* What a loss of classes has in place of the labels alone, where the device reads it;
 * borrowed. NULL: nothing. */
void ddp_exec_set_soft_labels(ddp_exec *exec, const struct ddp_soft_labels *soft);
const struct ddp_soft_labels *ddp_exec_soft_labels(const ddp_exec *exec);

/* Before the passes over a shard: kernels read the scale from the device's own memory. */
enum ddp_status ddp_exec_send_loss_scale(ddp_exec *exec);

/* A bf16 copy of the flat weights, which graphs that compute in bf16 need. Device memory; kept up
 * to date by the caller. */
void ddp_exec_set_weights_bf16(ddp_exec *exec, const uint16_t *weights);

/* Where the frozen parameters lie, by their number in the graph's table: device memory, NULL where
 * the graph does not read one. Needed before anything runs; the arrays are borrowed.
 *   rounded  bf16 copies of the float32 ones, if the graph computes in bf16; or NULL: products
 *            round them each time */
void ddp_exec_set_frozen(ddp_exec *exec, void *const *values, uint16_t *const *rounded);

/* What random numbers depend on: not on where or how the shard is computed. */
struct ddp_exec_position {
    uint64_t seed;
    uint32_t step;  /* of the optimizer */
    uint32_t shard; /* of the global batch */
};
void ddp_exec_set_position(ddp_exec *exec, const struct ddp_exec_position *position);
/* Shard and step are read from device memory when operations run, not taken from the position: two
 * values that the caller keeps up to date. NULL: from the position. */
void ddp_exec_set_place(ddp_exec *exec, const uint32_t *place);
bool ddp_exec_draws(const ddp_exec *exec); /* whether it uses random numbers */

/* Adds up, over all shards of the step, the double sums that an operation made for its shard.
 * Device memory. Every shard's exec calls it equally often, in the same order, with the same
 * count. */
typedef enum ddp_status ddp_exec_sync(void *arg, double *sums, size_t count);

/* In training, batch norms cover all shards of a step, which run at the same time and have equally
 * many rows; without this, the exec's shard.
 *   sync    NULL: none
 *   shards  how many it adds up */
void ddp_exec_set_sync(ddp_exec *exec, ddp_exec_sync *sync, void *arg, int shards);

bool ddp_exec_syncs(const ddp_exec *exec); /* whether it has a sync */

/* Keys and values of the positions that come before those of the inputs: attention reads them and
 * adds to them, and positions count from `past` on. Such an exec runs forward only, in float32. Its
 * inputs are the first positions, or the next one of each sample; in the latter case a sample's
 * bits do not depend on the others, nor on their number. */
struct ddp_exec_cache {
    float *memory;    /* device: capacity x ddp_graph_cache_width() elements of each sample */
    int64_t stride;   /* elements from one sample's to the next's */
    int64_t capacity; /* positions of a sample that there is room for */
    int64_t past;     /* that are there */
};
void ddp_exec_set_cache(ddp_exec *exec, const struct ddp_exec_cache *cache); /* NULL: none */

/* Where the loss part writes the predicted class of each row; NULL: nowhere. Device memory. */
void ddp_exec_set_predictions(ddp_exec *exec, int32_t *predictions);

/* The output and its gradient, in the arena, as the graph's activations are; for handing them from
 * one exec to another. */
void *ddp_exec_output(const ddp_exec *exec);
void *ddp_exec_output_gradient(const ddp_exec *exec);
size_t ddp_exec_output_bytes(const ddp_exec *exec);

/* The loss of the last shard and, if the graph has targets, how many do not count (device memory, 2
 * elements): elements 0 and 1 of the gradients when they are set and written, not added to. */
const float *ddp_exec_loss_value(const ddp_exec *exec);

enum ddp_status ddp_exec_forward(ddp_exec *exec); /* the network part */
enum ddp_status ddp_exec_loss(ddp_exec *exec);    /* the loss part: the loss and predictions */
enum ddp_status
ddp_exec_loss_backward(ddp_exec *exec); /* the loss part: the gradient of the output */

/* Runs only the matrix products, forward and backward, on whatever is in memory, so that the device
 * meets their shapes. The next pass overwrites what this writes; inputs that are not bound are
 * zeros.
 *   gradients  as ddp_exec_set_gradients() */
enum ddp_status ddp_exec_run_products(ddp_exec *exec, float *gradients);

/* Called before an operation of backward writes the gradient of a parameter (its number), or adds
 * to it. */
typedef enum ddp_status ddp_exec_before(void *arg, int parameter);
void ddp_exec_set_before(ddp_exec *exec, ddp_exec_before *before, void *arg);

/* Parameters are read in groups: by the operations of a block, or by one outside of blocks. Called
 * with the group before an operation that is in one runs, forward, again or backward. */
typedef enum ddp_status ddp_exec_reading(void *arg, int group);
void ddp_exec_set_reading(ddp_exec *exec, ddp_exec_reading *reading, void *arg);

/* Adds which values a group reads: of parameters, and of frozen ones, both by number. Of frozen
 * ones `f32` is the values as they lie. */
void ddp_graph_mark_group(const ddp_graph *graph, int group, struct ddp_graph_reads *learned,
                          struct ddp_graph_reads *frozen);

/* Bytes of what is read by the group that reads most, as it lies, and the name of the first. */
enum ddp_status ddp_graph_largest_group(const ddp_graph *graph, size_t *bytes, const char **name);

/* The network part: writes all gradients. `ready` (may be NULL) is called as they become final, in
 * order: all elements of the flat array below `end` are. */
typedef enum ddp_status ddp_exec_ready(void *arg, int64_t end);
enum ddp_status ddp_exec_backward(ddp_exec *exec, ddp_exec_ready *ready, void *arg);

/* Calls both as a backward pass of such an exec does, and computes nothing. */
enum ddp_status ddp_exec_walk(const ddp_graph *graph, unsigned parts, ddp_exec_before *before,
                              ddp_exec_ready *ready, void *arg);

/* Calls it as those parts of a shard do. */
enum ddp_status ddp_exec_walk_reading(const ddp_graph *graph, unsigned parts,
                                      ddp_exec_reading *reading, void *arg);

#endif

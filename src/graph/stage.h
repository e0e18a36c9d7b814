/* SPDX-License-Identifier: MIT
 *
 * Stages: consecutive operations of a graph as graphs of their own, for the workers of a pipeline.
 * Tensors that earlier operations make and these or later ones read arrive in a message, and leave
 * in one: values on the way forward, gradients on the way back. Each tensor has the bits that the
 * whole graph gives it. */
#ifndef DDP_GRAPH_STAGE_H
#define DDP_GRAPH_STAGE_H

#include "graph/describe.h"
#include "graph/exec.h"

/* Operations [first, end) of a graph. */
struct ddp_graph_range {
    int first, end;
};

/* Makes a graph of each range; a worker may have several, in ascending order. They share one flat
 * array, which holds what their operations read: the loss, the statistics, then the parameters in
 * the order in which backward, from the last range to the first, finishes their gradients. All
 * have the same table of parameters. A parameter that several of them read is final after the first
 * one's backward, which adds to what the later ones' have left.
 *   graph  finished; outlives its stages, which borrow from it
 *   parts  [out] `count` graphs
 * A range that ends the graph has its output and its loss; others have neither, and run as
 * networks: ddp_exec_forward() runs all of such a stage, ddp_exec_backward() too. The last cut must
 * not lie behind the output. Whether other workers read it too does not matter. DDP_ERR_MEMORY,
 * DDP_ERR_INVALID; on failure there is nothing to destroy. */
enum ddp_status ddp_graph_make_stages(const ddp_graph *graph, const struct ddp_graph_range *ranges,
                                      int count, ddp_graph **parts);

/* Of a stage: the number, in the whole graph's table, of its parameter i. */
int ddp_graph_stage_source(const ddp_graph *stage, int i);

/* Of any graph, beside what graph/describe.h has. */

/* The operations up to the output: a cut lies before one of operations 1 .. this number - 1. */
int ddp_graph_network_count(const ddp_graph *graph);

/* Bytes of the messages that pass a cut before operation n: tensors one after another, at multiples
 * of DDP_CACHE_LINE, in the order in which the graph made them. 0: nothing passes. Gradients leave
 * out tensors that no parameter lies before. */
size_t ddp_graph_cut_values(const ddp_graph *graph, int n);
size_t ddp_graph_cut_gradients(const ddp_graph *graph, int n);

/* The operations of [begin, end) that read parameters, one after another, begin with the first that
 * reads one whose name is `name` or begins with it and a dot; -1: none does. */
int ddp_graph_find_operation(const ddp_graph *graph, const char *name);

/* Whether operation n reads the parameter (its number in the graph's table). */
bool ddp_graph_reads(const ddp_graph *graph, int n, int parameter);

/* Of one operation: its name and that of its result ("linear", "h.0.attn.c_attn"), and the
 * floating-point operations of forward and backward. */
const char *ddp_graph_operation_name(const ddp_graph *graph, int n);
const char *ddp_graph_result_name(const ddp_graph *graph, int n);
double ddp_graph_operation_flops(const ddp_graph *graph, int n);

/* Where an exec of a stage takes and puts messages: device memory, borrowed until the next call.
 * NULL if none passes, and until the pass that uses it. Forward copies values from values_in
 * and to values_out; backward copies gradients from gradients_in and to gradients_out. */
struct ddp_exec_messages {
    const void *values_in, *gradients_in;
    void *values_out, *gradients_out;
};
void ddp_exec_set_messages(ddp_exec *exec, const struct ddp_exec_messages *messages);

/* Backward writes the gradient of this parameter (its number in the graph's table) here, not into
 * the flat array, also while the exec adds: device memory of so many elements. An earlier stage of
 * the worker adds to what is there. NULL: into the flat array. One at a time. Adding it to an array
 * later gives other bits than letting backward add to that array: products add blocks of rows. */
void ddp_exec_set_gradient_of(ddp_exec *exec, int parameter, float *gradient);

#endif

/* SPDX-License-Identifier: MIT
 *
 * A model's weights as a safetensors file: parameter names and shapes of the graph, nothing of the
 * machine or the time, so that equal weights give equal files. */
#ifndef DDP_TRAIN_WEIGHTS_H
#define DDP_TRAIN_WEIGHTS_H

#include "graph/graph.h"

/* Can a file be written there at all? Asked before training, so that hours are not lost.
 * DDP_ERR_IO. */
enum ddp_status ddp_train_weights_check_path(const char *path);

/* Writes the flat host weights; the old file stays whole on failure. DDP_ERR_IO. */
enum ddp_status ddp_train_weights_save(const char *path, const ddp_graph *graph, const float *flat);

/* Reads into the flat host weights. The file must have exactly the graph's parameters, float32, of
 * its shapes. DDP_ERR_IO, DDP_ERR_FORMAT: names the file and the tensor; `flat` is untouched then.
 */
enum ddp_status ddp_train_weights_load(const char *path, const ddp_graph *graph, float *flat);

#endif

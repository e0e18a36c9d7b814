/* SPDX-License-Identifier: MIT
 *
 * A model's weights as a safetensors file: parameter names and shapes of the graph, nothing of the
 * machine or the time, so that equal weights give equal files. */
#ifndef DDP_WEIGHTS_WEIGHTS_H
#define DDP_WEIGHTS_WEIGHTS_H

#include "graph/graph.h"
#include "model/model.h"
#include "weights/safetensors.h"

/* Under which a file's metadata have the description of its model. */
#define DDP_WEIGHTS_MODEL_KEY "ddprun.model"
/* ... and that of the data it learned from. */
#define DDP_WEIGHTS_DATA_KEY "ddprun.data"

/* Copies a tensor's values, of a dtype of the files, into a parameter of as many, of any type. */
void ddp_weights_take(const struct ddp_parameter_place *place, const struct ddp_safetensor *tensor);

/* The metadata of a graph's weights. Returns how many pairs they are. */
size_t ddp_train_weights_metadata(struct ddp_safetensors_pair pairs[2], const ddp_graph *graph);

/* The description of the data that a file of ours was trained on.
 *   text [out]  freed with free(); NULL: the file has none */
enum ddp_status ddp_train_weights_data(const char *path, char **text);

/* Flat arrays that are nowhere in one piece, such as the weights of a model that is split over
 * machines: copies `count` elements of an array, from `begin`. The weights are array 0. */
#define DDP_FLAT_PIECE (sizeof(float) << 20) /* bytes that are fetched at once, at most */

struct ddp_flat_source {
    enum ddp_status (*fetch)(void *arg, int array, int64_t begin, int64_t count, float *values);
    void *arg;
};

/* Puts elements of an array into a sink, piece after piece. */
enum ddp_status ddp_flat_source_put(const struct ddp_flat_source *source, int array, int64_t begin,
                                    int64_t count, ddp_safetensors_sink *sink, void *sink_arg);

/* Writes the weights, without frozen parameters; the old file stays whole on failure.
 *   flat    in host memory; NULL: they come from
 *   source  ... this, in the order of the file
 * DDP_ERR_IO. */
enum ddp_status ddp_train_weights_save(const char *path, const ddp_graph *graph, const float *flat,
                                       const struct ddp_flat_source *source);

/* What model a saved file says that it holds: by its description, the shapes of a GPT-2's tensors,
 * or its header; of a GPT-2 in safetensors with what config.json beside it says.
 *   model [out]   NULL: it does not say
 *   config [out]  `described` is false if nothing names the heads: they are a guess then
 * DDP_ERR_FORMAT: also when tensors and config.json contradict each other. */
enum ddp_status ddp_train_weights_model(const char *path, const struct ddp_model **model,
                                        struct ddp_model_config *config);

/* Reads into the flat host weights. The contents determine the format: ours, or a GPT-2 of Hugging
 * Face or llm.c (interchange.h). It must have exactly the graph's parameters, of its shapes; ours
 * has them in float32. Values that are not finite are refused. A file of ours has all frozen
 * parameters too, in float32 or bf16, or none, which stay as they are then.
 *   heads   of a GPT-2, which llm.c's files name; 0: not known
 *   frozen  host memory, as graph.h has it; NULL where the graph has none
 * DDP_ERR_IO, DDP_ERR_FORMAT: names the file and the tensor. */
enum ddp_status ddp_train_weights_load(const char *path, const ddp_graph *graph, int64_t heads,
                                       float *flat, void *frozen);

#endif

/* SPDX-License-Identifier: MIT
 *
 * A run's dealings with directories of Hugging Face and PEFT: weights and adapters of a Llama. */
#ifndef DDP_TRAIN_LLAMA_RUN_H
#define DDP_TRAIN_LLAMA_RUN_H

#include "train/run.h"

/* Fills host weights from what --load and --adapters name: a file, or the directories of a Llama.
 *   config  of the model, completed; model  that is built, which the file may not say
 *   frozen  as for ddp_graph_place_at() */
enum ddp_status ddp_run_load_weights(const struct ddp_load *load, const struct ddp_model *model,
                                     const struct ddp_model_config *config, const ddp_graph *graph,
                                     float *weights, void *frozen);

/* The same with what a run begins with: without --load it is drawn. */
enum ddp_status ddp_run_begin_weights(const struct ddp_run *run, float *weights, void *frozen);

/* Do --export and what belongs to it fit each other, and can the directory be written? */
enum ddp_status ddp_llama_check_export(const struct ddp_run *run);

/* Is all that is wanted an export of what --load and --adapters name: without data? */
bool ddp_llama_converts(const struct ddp_train_options *options);

/* Does that: merged with the adapters, as another type, cut into other files. */
enum ddp_status ddp_llama_convert(const struct ddp_train_options *options, FILE *out);

/* Writes the directory that --export names: the model, or adapters alone. Collective. */
enum ddp_status ddp_llama_export(struct ddp_run *run);

#endif

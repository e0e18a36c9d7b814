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

/* Whether --export and its options fit each other, and the directory can be written. */
enum ddp_status ddp_llama_check_export(const struct ddp_run *run);

/* Whether only an export of what --load and --adapters name is wanted, without data. */
bool ddp_llama_converts(const struct ddp_train_options *options);

/* Does that: merged with the adapters, as another type, cut into other files. */
enum ddp_status ddp_llama_convert(const struct ddp_train_options *options, FILE *out);

/* Writes what --export wants, the model or adapters alone, from run->weights and the frozen
 * parameters into a directory; and how many bytes of weights that takes. */
enum ddp_status ddp_llama_write(struct ddp_run *run, const char *path);
uint64_t ddp_llama_write_bytes(const struct ddp_run *run);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The weights that a run begins with, and those that it exports, in host memory. */
#ifndef DDP_PLAN_WEIGHTS_H
#define DDP_PLAN_WEIGHTS_H

#include "data/text/tokenizer.h"
#include "plan/planned.h"

/* Fills them from what --load and --adapters name: a file, or the directories of a Llama.
 *   config  of the model, completed; model  that is built, which the file may not say
 *   frozen  as for ddp_graph_place_at() */
enum ddp_status ddp_load_weights(const struct ddp_load *load, const struct ddp_model *model,
                                 const struct ddp_model_config *config, const ddp_graph *graph,
                                 float *weights, void *frozen);

/* The same with the weights that a run begins with: without --load they are drawn. */
enum ddp_status ddp_planned_begin_weights(const struct ddp_planned *planned, float *weights,
                                          void *frozen);

/* Whether --export of a model writes a directory, and not a file. */
bool ddp_planned_exports_directory(const struct ddp_train_options *options,
                                   const struct ddp_model *model);

/* Checks that --export and its options fit each other, and that the directory is writable. */
enum ddp_status ddp_planned_check_llama(const struct ddp_planned *planned);

/* The same of a gpt2, which is written to a file. */
enum ddp_status ddp_planned_check_gpt2(const struct ddp_planned *planned);

enum ddp_status ddp_planned_check_bert(const struct ddp_planned *planned);

/* Writes what --export asks for to a path. DDP_ERR_IO if it is the place that fails.
 *   frozen  NULL: the frozen parameters are made again when they are written
 *   tokenizer  whose begin and end tokens are named; NULL: there is none */
enum ddp_status ddp_planned_export(const struct ddp_planned *planned, const char *path,
                                   float *weights, void *frozen, const ddp_tokenizer *tokenizer);

/* The bytes that this takes. */
uint64_t ddp_planned_export_bytes(const struct ddp_planned *planned);

/* Whether only an export of what --load and --adapters name is wanted, without data; and does it:
 * merged with the adapters, as another type, cut into other files. */
bool ddp_planned_converts(const struct ddp_train_options *options);
enum ddp_status ddp_planned_convert(const struct ddp_train_options *options, FILE *out);

#endif

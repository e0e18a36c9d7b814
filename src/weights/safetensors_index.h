/* SPDX-License-Identifier: MIT
 *
 * A model in several safetensors files, as Hugging Face cuts large ones: FILE.index.json says which
 * tensor is in which file beside it. */
#ifndef DDP_WEIGHTS_SAFETENSORS_INDEX_H
#define DDP_WEIGHTS_SAFETENSORS_INDEX_H

#include "core/json.h"
#include "weights/safetensors.h"

#define DDP_SAFETENSORS_INDEX_FILES 1000 /* at most */

struct ddp_safetensors_index {
    json_t *root;
    const json_t *map; /* of a tensor's name to that of its file */
    size_t file_count;
    const char *files[DDP_SAFETENSORS_INDEX_FILES]; /* each once; names without a directory */
};

/* Reads an index and checks it. It is freed with ddp_safetensors_index_free().
 *   name  for messages
 * DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_safetensors_index_parse(struct ddp_safetensors_index *index, const char *name,
                                            const char *text, size_t bytes);
void ddp_safetensors_index_free(struct ddp_safetensors_index *index);

/* ddp_safetensors_open(), or for FILE.index.json all files that it lists as one. They must have the
 * tensors that it lists, and no others. */
enum ddp_status ddp_safetensors_open_model(ddp_safetensors **file, const char *path);

/* The same with ddp_safetensors_open_header(). */
enum ddp_status ddp_safetensors_open_model_header(ddp_safetensors **file, const char *path);

#endif

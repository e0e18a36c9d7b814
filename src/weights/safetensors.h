/* SPDX-License-Identifier: MIT
 *
 * Files of named tensors in the safetensors format: a JSON header, then the values, little-endian
 * and row-major. Equal input gives equal bytes; files are replaced atomically; a file that is read
 * is checked to the last offset. */
#ifndef DDP_WEIGHTS_SAFETENSORS_H
#define DDP_WEIGHTS_SAFETENSORS_H

#include "core/atomic_file.h"

#define DDP_SAFETENSORS_MAX_DIMS 8

typedef struct ddp_safetensors ddp_safetensors;

struct ddp_safetensor {
    const char *name;
    const char *dtype; /* the format's word: "F32", "I64", "BF16", ... */
    int dim_count;     /* 0: a scalar */
    int64_t dims[DDP_SAFETENSORS_MAX_DIMS];
    const void *data;
    size_t bytes; /* the product of dims times the size of the dtype */
};

struct ddp_safetensors_pair {
    const char *key, *value;
};

/* Place of a dtype in the order by which the format's own library sorts; -1: unknown. */
int ddp_safetensors_dtype_order(const char *dtype);

typedef enum ddp_status ddp_safetensors_sink(void *arg, const void *data, size_t bytes);
typedef enum ddp_status ddp_safetensors_source(void *arg, size_t tensor, ddp_safetensors_sink *sink,
                                               void *sink_arg);

/* Writes a file by way of core/atomic_file: on failure the old one is unchanged. The order
 * of tensors and metadata given does not matter: tensors are sorted by dtype, then name, as the
 * format's own library does, and metadata by key.
 *   source    puts all values of tensor `tensor` of the array into the sink, in pieces of any size:
 *             they may be made while they are written; NULL: they are the tensors' data
 *   metadata  free text for other tools; may be NULL when metadata_count is 0
 * DDP_ERR_INVALID (names that are not UTF-8 or not unique, sizes that do not fit), DDP_ERR_IO,
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_safetensors_write(const char *path, ddp_safetensors_source *source,
                                      void *source_arg, const struct ddp_safetensor *tensors,
                                      size_t tensor_count,
                                      const struct ddp_safetensors_pair *metadata,
                                      size_t metadata_count);

/* The same bytes to where the caller wants them, piece after piece.
 *   name  for messages */
enum ddp_status ddp_safetensors_write_to(ddp_safetensors_sink *sink, void *arg, const char *name,
                                         ddp_safetensors_source *source, void *source_arg,
                                         const struct ddp_safetensor *tensors, size_t tensor_count,
                                         const struct ddp_safetensors_pair *metadata,
                                         size_t metadata_count);

/* The same into a file that is open, without its commit. */
enum ddp_status ddp_safetensors_write_file(ddp_atomic_file *file, const char *path,
                                           ddp_safetensors_source *source, void *source_arg,
                                           const struct ddp_safetensor *tensors,
                                           size_t tensor_count,
                                           const struct ddp_safetensors_pair *metadata,
                                           size_t metadata_count);

/* Reads a file into memory and checks it.
 *   file [out]  freed with ddp_safetensors_close()
 * DDP_ERR_IO, DDP_ERR_FORMAT (what is wrong, with the file's and the tensor's name),
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_safetensors_open(ddp_safetensors **file, const char *path);

/* The same for a file's bytes in memory, which stay the caller's and must outlive *file.
 *   name  for messages */
enum ddp_status ddp_safetensors_parse(ddp_safetensors **file, const char *name, const void *bytes,
                                      size_t size);
void ddp_safetensors_close(ddp_safetensors *file);

/* Reads and checks a file's header alone: the tensors' data are NULL, and ddp_safetensors_read()
 * reads their values from the file.
 *   keep  keep the file open */
enum ddp_status ddp_safetensors_open_header(ddp_safetensors **file, const char *path, bool keep);

/* Bytes of a tensor that find() or at() returned, from byte `first`; they must lie in it.
 * DDP_ERR_IO. */
enum ddp_status ddp_safetensors_read(const struct ddp_safetensor *tensor, size_t first, void *to,
                                     size_t bytes);

/* The file of such a tensor, if its header alone was read; else NULL. */
const char *ddp_safetensors_path(const struct ddp_safetensor *tensor);

/* Several files as one, without metadata.
 *   name    for messages
 *   shards  memory of malloc(), with `count` files: the joined one's after success
 * DDP_ERR_FORMAT: a tensor is in two of them. */
enum ddp_status ddp_safetensors_join(ddp_safetensors **file, const char *name,
                                     ddp_safetensors **shards, size_t count);

/* The tensors in the order of their data. Their data may start at any byte: copy it out with
 * memcpy(). */
size_t ddp_safetensors_count(const ddp_safetensors *file);
const struct ddp_safetensor *ddp_safetensors_at(const ddp_safetensors *file, size_t i);

/* NULL when there is no such tensor or key. */
const struct ddp_safetensor *ddp_safetensors_find(const ddp_safetensors *file, const char *name);
const char *ddp_safetensors_metadata(const ddp_safetensors *file, const char *key);

/* Bytes that a tensor of this dtype and shape has; false when the dtype is unknown, a dimension is
 * negative, the size does not fit, or the values do not fill whole bytes. */
bool ddp_safetensors_bytes(const char *dtype, int dim_count, const int64_t *dims, size_t *bytes);

#endif

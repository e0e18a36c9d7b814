/* SPDX-License-Identifier: MIT
 *
 * GGUF files, version 3, little-endian: keys with values, and where each tensor lies. Knows nothing
 * of models. Keys are a JSON object: integers are u32, and i32 in arrays, reals are f32. */
#ifndef DDP_CORE_GGUF_H
#define DDP_CORE_GGUF_H

#include "core/atomic_file.h"
#include "core/input_file.h"
#include "core/json.h"

#define DDP_GGUF_NAME  64 /* bytes of a tensor's name, with the 0 */
#define DDP_GGUF_DIMS  4
#define DDP_GGUF_ALIGN 32

/* Types of tensors that can be read, with their numbers in files. */
enum ddp_gguf_type {
    DDP_GGUF_F32 = 0,
    DDP_GGUF_F16 = 1,
    DDP_GGUF_Q4_0 = 2,
    DDP_GGUF_Q5_0 = 6,
    DDP_GGUF_Q8_0 = 8,
    DDP_GGUF_Q4_K = 12,
    DDP_GGUF_Q6_K = 14,
    DDP_GGUF_BF16 = 30,
};

/* "q4_0", and that many values in so many bytes. NULL: such tensors cannot be read. */
struct ddp_gguf_block {
    const char *name;
    int64_t values, bytes;
};
const struct ddp_gguf_block *ddp_gguf_block(int type);

struct ddp_gguf_tensor {
    char name[DDP_GGUF_NAME];
    int type; /* enum ddp_gguf_type */
    int dim_count;
    int64_t dims[DDP_GGUF_DIMS]; /* as in the file: the first one runs fastest */
    int shard;                   /* which file it lies in, from 0 */
    uint64_t offset, bytes;      /* offset: from the file's beginning, when it is read */
};

struct ddp_gguf {
    struct ddp_input_file file; /* the first one of a model in several */
    json_t *keys;
    struct ddp_gguf_tensor *tensors; /* of all files */
    size_t count;
    struct ddp_input_file *more; /* shards 1, 2 ... */
    int shard_count;
};

/* Whether the file begins as one does. Says nothing. */
bool ddp_gguf_is(const char *path);

/* Whether the file can be read up to this key, which has this text. Says nothing. */
bool ddp_gguf_is_of(const char *path, const char *key, const char *text);

/* Whether a key has this text. */
bool ddp_gguf_says(const struct ddp_gguf *gguf, const char *key, const char *text);

/* Reads all but the tensors' values, of all shards of NAME-00001-of-00003.gguf, the first of which
 * has the keys.
 *   gguf [out]  closed with ddp_gguf_close(), also after a failure
 * DDP_ERR_IO, DDP_ERR_FORMAT: names the file and what is wrong; DDP_ERR_MEMORY. */
enum ddp_status ddp_gguf_open(struct ddp_gguf *gguf, const char *path);
void ddp_gguf_close(struct ddp_gguf *gguf);

/* Bytes of a tensor, from one of its own on. DDP_ERR_IO. */
enum ddp_status ddp_gguf_read_bytes(const struct ddp_gguf *gguf,
                                    const struct ddp_gguf_tensor *tensor, uint64_t from, void *to,
                                    size_t bytes);

/* The tensor of that name, or NULL. */
const struct ddp_gguf_tensor *ddp_gguf_find(const struct ddp_gguf *gguf, const char *name);

/* Bytes of a tensor of that type and shape. */
uint64_t ddp_gguf_bytes(const struct ddp_gguf_tensor *tensor);

/* Appends all but the tensors' values, which follow in their order, each with zeros behind it up to
 * a multiple of DDP_GGUF_ALIGN.
 *   keys  without arrays that are empty
 * DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_gguf_write_header(ddp_atomic_file *file, const json_t *keys,
                                      const struct ddp_gguf_tensor *tensors, size_t count);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Matrices of NF4 as bitsandbytes stores them in safetensors: codes in the tensor of the matrix,
 * and beside it their scales, which may be quantised once more, and a JSON text that describes
 * them. */
#ifndef DDP_WEIGHTS_BNB_H
#define DDP_WEIGHTS_BNB_H

#include "ddp.h"
#include "weights/safetensors.h"

struct ddp_bnb {
    const struct ddp_safetensor *codes;
    const char *path;     /* of its file */
    enum ddp_dtype dtype; /* DDP_NF4 or DDP_NF4_BF16: what its values are rounded to */
    int64_t count;        /* of values */
    const struct ddp_safetensor *scales;
    /* Of scales that are bytes: entries of a map, times a float of each block, plus an offset. */
    const struct ddp_safetensor *nested, *map;
    int64_t nested_block;
    float offset;
};

/* Whether a tensor has such codes. */
bool ddp_bnb_is(const struct ddp_safetensor *tensor);

/* Whether a tensor belongs to the codes of another.
 *   stem [out]  bytes of the other one's name */
bool ddp_bnb_belongs(const char *name, size_t *stem);

/* Finds all that belongs to a matrix, and checks it. Reads no values.
 *   bnb [out]  borrows from the file
 * DDP_ERR_FORMAT: names the file and the tensor. */
enum ddp_status ddp_bnb_find(struct ddp_bnb *bnb, const ddp_safetensors *file, const char *path,
                             const struct ddp_safetensor *codes, int64_t rows, int64_t columns);

/* The scales, one for each block.
 *   scales [out]  freed with free()
 * DDP_ERR_FORMAT: one is not finite; DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_bnb_scales(float **scales, const struct ddp_bnb *bnb);

/* Whole blocks as memory has them; the last one may be a part, with zeros behind it.
 *   first   block
 *   count   of blocks
 *   blocks  [out]
 * DDP_ERR_IO. */
enum ddp_status ddp_bnb_blocks(const struct ddp_bnb *bnb, const float *scales, int64_t first,
                               int64_t count, uint8_t *blocks);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Values that lie in blocks of small integers with a scale: ggml's blocks, and NF4 (Dettmers et
 * al., "QLoRA", 2023), of bitsandbytes. A block has an inner order of its own, blocks follow each
 * other, and products and sums are rounded one by one: unpacked values have the same bits
 * everywhere. */
#ifndef DDP_CORE_BLOCKS_H
#define DDP_CORE_BLOCKS_H

#include "ddp.h"

/* Values of a block at most, and of those that ggml packs along rows. */
#define DDP_BLOCK_MOST 256

struct ddp_block {
    const char *name; /* "nf4" */
    int64_t values, bytes;
    bool flat; /* blocks run over the ends of rows: the last one may be a part */
    void (*unpack)(const uint8_t *blocks, int64_t count, float *values);
    void (*pack)(const float *values, uint8_t *block); /* NULL: they are only read */
    /* What unpack() makes of blocks, rounded to bf16; NULL: there is no faster way. */
    void (*halve)(const uint8_t *blocks, int64_t count, uint16_t *halves);
};

/* NULL: values of this type lie one by one. */
const struct ddp_block *ddp_block_of(enum ddp_dtype dtype);

/* Bytes of so many values of any type, one behind the other. */
size_t ddp_values_bytes(enum ddp_dtype dtype, int64_t count);

/* Values [first, first + count), wherever blocks begin. */
void ddp_blocks_unpack(const struct ddp_block *block, const void *from, int64_t first,
                       int64_t count, float *to);
/* The same rounded to bf16. */
void ddp_blocks_round(const struct ddp_block *block, const void *from, int64_t first, int64_t count,
                      uint16_t *to);

/* Values of any type of a frozen parameter as float32, and the reverse. What begins behind others
 * begins a block.
 *   values  that are not finite make their whole block not finite; so does a type without pack() */
void ddp_values_unpack(enum ddp_dtype dtype, const void *from, int64_t first, int64_t count,
                       float *to);
void ddp_values_pack(enum ddp_dtype dtype, const float *values, int64_t count, void *to);

/* NF4: the scale, a float32, and 32 bytes of two codes, the first one in the upper half. */
#define DDP_NF4_VALUES 64
extern const float ddp_nf4_codes[16];

#endif

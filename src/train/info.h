/* SPDX-License-Identifier: MIT
 *
 * `trainer info`: what a file of weights or a Hugging Face directory holds, and what training the
 * latter would need; and what files of data, logs and the like hold. */
#ifndef DDP_TRAIN_INFO_H
#define DDP_TRAIN_INFO_H

#include "weights/hf_llama.h"

/* What training a model needs, in bytes. */
struct ddp_train_needs {
    int64_t parameters, adapters; /* adapters: LoRA of rank DDP_TRAIN_INFO_RANK */
    double full_f32, full_bf16;   /* weights, gradients, AdamW's state; bf16 has fp32 masters */
    double lora;                  /* over a base in bf16 */
    /* For each token of a shard: what backward needs, in float32; half of it in bf16. */
    double kept, recomputed; /* all; or one input of each block, */
    double block;            /* and beside that one block at work */
    double logits;           /* and their gradient, in float32 */
};

#define DDP_TRAIN_INFO_RANK 16

/* "8,030,261,248" */
const char *ddp_train_info_number(char text[32], int64_t number);

/* Describes a file or directory of data, or what runs write beside their weights.
 *   known [out]  false: it is none of these, and may be weights; nothing is printed
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_train_info_data(const char *path, FILE *out, bool *known);

/* DDP_ERR_MEMORY. */
enum ddp_status ddp_train_needs(const struct ddp_hf_llama *config, struct ddp_train_needs *needs);

#endif

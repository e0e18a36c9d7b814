/* SPDX-License-Identifier: MIT
 *
 * The hash of the current weights, the same in every mode and for any number of workers, and of
 * the file that --save writes (ddprun-verify(7) has it in Python). A tensor's float32 values are
 * cut into blocks of 1 MiB; its hash is that of the hashes of its blocks, and the hash of the
 * weights that of their tensors' hashes in the order of their names. */
#ifndef DDP_TRAIN_WEIGHTS_HASH_H
#define DDP_TRAIN_WEIGHTS_HASH_H

#include "report/sha256.h"
#include "train/run.h"

#define DDP_HASH_BRIEF 16 /* digits that tell tensors apart in a log */

struct ddp_weights_hash {
    int count;
    const struct ddp_parameter **tensors; /* in the order of their names; of the graph */
    unsigned char (*digests)[DDP_SHA256_BYTES];
    char text[DDP_SHA256_TEXT];
};

/* Each worker hashes its part of the blocks. Collective; the same result on all ranks.
 *   hash [out]  freed with ddp_weights_hash_free(), also after a failure */
enum ddp_status ddp_weights_hash_take(struct ddp_weights_hash *hash, struct ddp_run *run);
void ddp_weights_hash_free(struct ddp_weights_hash *hash);

/* The first DDP_HASH_BRIEF digits of a tensor's hash. */
const char *ddp_weights_hash_brief(char text[DDP_SHA256_TEXT], const struct ddp_weights_hash *hash,
                                   int tensor);

#endif

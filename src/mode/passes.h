/* SPDX-License-Identifier: MIT
 *
 * The order in which a stage of a pipeline runs its passes: one forward, one backward (1F1B, as in
 * PipeDream-Flush and Megatron-LM). Stage s of S has at most S - s shards in flight. */
#ifndef DDP_MODE_PASSES_H
#define DDP_MODE_PASSES_H

#include "mode/stages.h"

struct ddp_pass {
    int64_t shard; /* of the replica, from 0 */
    int piece;     /* of struct ddp_stages */
    bool backward; /* else forward, of the last piece with the loss */
};

struct ddp_passes {
    struct ddp_pass *list;
    int64_t count;
};

/* The most shards of a piece between their forward and the end of their backward pass. */
int ddp_passes_in_flight(const struct ddp_stages *stages, int64_t shards, int piece);

/* The passes of one stage over a step's shards. Every message is sent before what waits for it is
 * needed elsewhere: stages that run their lists in order cannot block each other, if each channel
 * holds as many messages as its earlier piece has shards in flight. DDP_ERR_MEMORY. */
enum ddp_status ddp_passes_make(struct ddp_passes *passes, const struct ddp_stages *stages,
                                int64_t shards, int stage);
void ddp_passes_free(struct ddp_passes *passes);

/* The most shards by which the backward passes of one piece are ahead of those of an earlier one of
 * the same stage. */
int ddp_passes_ahead(const struct ddp_passes *passes, int piece, int earlier);

#endif

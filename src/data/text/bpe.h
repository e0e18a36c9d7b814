/* SPDX-License-Identifier: MIT
 *
 * Byte pair encoding of one piece of text: of all pairs of neighbours the one of lowest rank is
 * merged, the leftmost of several, until there is none. */
#ifndef DDP_DATA_TEXT_BPE_H
#define DDP_DATA_TEXT_BPE_H

#include "data/text/vocabulary.h"

/* Memory that is kept between pieces; {0} has none. */
struct ddp_bpe {
    uint32_t *next, *previous;
    int32_t *ranks;
    size_t room;
    uint64_t *heap;
    size_t heap_count, heap_room;
};

void ddp_bpe_clear(struct ddp_bpe *bpe);

/* Merges ids in place, in O(n log n).
 *   count [in,out]
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_bpe_merge(struct ddp_bpe *bpe, const struct ddp_vocabulary *vocabulary,
                              int32_t *ids, size_t *count);

#endif

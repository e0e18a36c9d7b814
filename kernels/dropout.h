/* SPDX-License-Identifier: MIT
 *
 * Dropout: each element is zeroed with probability p, the others are divided by 1 - p. Which ones,
 * is a function of the seed, the layer, the step, the shard and the element's place alone
 * (Philox), so any split of the shards gives the same mask, and backward makes it again instead of
 * reading it from memory: its call is the same, with dy for x and dx for y. */
#ifndef DDP_KERNELS_DROPOUT_H
#define DDP_KERNELS_DROPOUT_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_dropout {
    int64_t count;
    enum ddp_dtype dtype; /* of x and y: DDP_F32 or DDP_BF16 */
    float probability;    /* p, 0 <= p < 1 */
    uint32_t seed, layer, shard, step;
    const uint32_t *place; /* shard and step, read when the work runs, instead of those above: for
                              work that is recorded once and replayed; NULL: those above. Where the
                              kernels' other memory is */
    const void *x;         /* (n) */
    void *y;               /* (n) out; may be x */
    bool accumulate;       /* add to what is in y; false: overwrite it, whatever it is */
};

static inline enum ddp_status ddp_dropout_check(const struct ddp_dropout *args)
{
    if (!(args->probability >= 0 && args->probability < 1))
        return ddp_fail(DDP_ERR_INVALID, "dropout: probability %g is not in [0, 1)",
                        (double)args->probability);
    return ddp_check_elements("dropout", args->count, args->x && args->y, args->dtype);
}

enum ddp_status ddp_dropout(const struct ddp_dropout *args, void *stream);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Images changed at random, each epoch another way, as torchvision's RandomCrop(size, padding=4)
 * and RandomHorizontalFlip() do in this order. What happens to an image follows from the seed, the
 * epoch and its number in the dataset alone: it is the same for any split of the work. */
#ifndef DDP_DATA_AUGMENT_H
#define DDP_DATA_AUGMENT_H

#include "data/dataset.h"

#define DDP_AUGMENT_PADDING 4

struct ddp_augment {
    bool crop; /* DDP_AUGMENT_PADDING black pixels all round, then the old size somewhere in it */
    bool flip; /* half of the images are mirrored, left and right */
    uint64_t seed;
};

/* What happens to one image. */
struct ddp_augment_draw {
    int top, left; /* of what is cut out, in the padded image; the padding: nothing moves */
    bool flip;
};

/* Whether samples of such a dataset can be changed, which must be images. */
bool ddp_augment_fits(const struct ddp_dataset_info *info);

struct ddp_augment_draw ddp_augment_draw(const struct ddp_augment *augment, int64_t epoch,
                                         int64_t index);

/* Changes one image in place.
 *   x        (channels, height, width) f32
 *   scratch  memory of the same size */
void ddp_augment_image(const struct ddp_augment_draw *draw, const struct ddp_dataset_info *info,
                       float *x, float *scratch);

/* Changes a batch in place.
 *   indices  count dataset indices
 *   x        (count, channels, height, width) f32
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_augment_batch(const struct ddp_augment *augment,
                                  const struct ddp_dataset_info *info, int64_t epoch,
                                  const int64_t *indices, size_t count, float *x);

#endif

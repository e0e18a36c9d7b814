/* SPDX-License-Identifier: MIT
 *
 * Images changed at random, each epoch another way, as torchvision's RandomResizedCrop(),
 * RandomCrop(size, padding=4), RandomHorizontalFlip() and ColorJitter() do in this order. What
 * happens to an image follows from the seed, the epoch and its number in the dataset alone: it is
 * the same for any split of the work. Then the images of a shard's batch may be mixed with each
 * other, and their labels, as torchvision's references do with RandomMixup(). */
#ifndef DDP_DATA_AUGMENT_H
#define DDP_DATA_AUGMENT_H

#include "data/dataset.h"

#define DDP_AUGMENT_PADDING 4
#define DDP_AUGMENT_LEAST   0.08 /* of an image's area, that a region has by default */
#define DDP_AUGMENT_JITTER  0.4
#define DDP_AUGMENT_MIXUP   0.2 /* torchvision's recipes have these two */
#define DDP_AUGMENT_SMOOTH  0.1

struct ddp_augment {
    bool crop; /* DDP_AUGMENT_PADDING black pixels all round, then the old size somewhere in it */
    bool flip; /* half of the images are mirrored, left and right */
    double resized; /* a region of at least this share of the area, scaled to the size; 0: all */
    double jitter;  /* brightness, contrast and saturation change by up to this factor; 0: none */
    double mixup;  /* both parameters of the Beta distribution of the shares; 0: nothing is mixed */
    double smooth; /* of a label, is spread over all classes: torch's label_smoothing */
    uint64_t seed;
};

/* "crop,flip", "resized=0.08,flip,mixup=0.2,smooth=0.1" or "none". NULL, or what is wrong. */
const char *ddp_augment_parse(struct ddp_augment *augment, const char *text);

/* Whether a sample has more classes than its label. */
static inline bool ddp_augment_softens(const struct ddp_augment *augment)
{
    return augment->mixup > 0 || augment->smooth > 0;
}

/* What happens to one image. */
struct ddp_augment_draw {
    int top, left; /* of what is cut out, in the padded image; the padding: nothing moves */
    bool flip;
};

/* A region of an image as torchvision's RandomResizedCrop() draws it, between 3:4 and 4:3. */
struct ddp_augment_box {
    int top, left, height, width;
};
struct ddp_augment_box ddp_augment_box(const struct ddp_augment *augment, int height, int width,
                                       int64_t epoch, int64_t index);

/* torchvision's ColorJitter() of brightness, contrast and saturation: in which order, and the
 * factor of each. */
enum ddp_augment_colour { DDP_BRIGHTNESS, DDP_CONTRAST, DDP_SATURATION, DDP_AUGMENT_COLOURS };
struct ddp_augment_jitter {
    enum ddp_augment_colour order[DDP_AUGMENT_COLOURS];
    float factors[DDP_AUGMENT_COLOURS];
};
struct ddp_augment_jitter ddp_augment_jitter(const struct ddp_augment *augment, int64_t epoch,
                                             int64_t index);

/* Changes one image of 1 or 3 channels in place.
 *   x  (channels, height, width) f32, scaled as info says */
void ddp_augment_colours(const struct ddp_augment_jitter *jitter,
                         const struct ddp_dataset_info *info, float *x);

/* Whether samples of such a dataset can be changed, which must be images. */
bool ddp_augment_fits(const struct ddp_dataset_info *info);

/* Whether they have colours: 1 or 3 channels, and a scale that says which values are black. */
bool ddp_augment_colours_fit(const struct ddp_dataset_info *info);

struct ddp_augment_draw ddp_augment_draw(const struct ddp_augment *augment, int64_t epoch,
                                         int64_t index);

/* Changes one image in place.
 *   x        (channels, height, width) f32
 *   scratch  memory of the same size */
void ddp_augment_image(const struct ddp_augment_draw *draw, const struct ddp_dataset_info *info,
                       float *x, float *scratch);

/* Changes a batch in place, all but regions, which ddp_dataset_read_resized() reads.
 *   indices  count dataset indices
 *   x        (count, channels, height, width) f32
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_augment_batch(const struct ddp_augment *augment,
                                  const struct ddp_dataset_info *info, int64_t epoch,
                                  const int64_t *indices, size_t count, float *x);

/* What a batch is mixed with: its own images' share, drawn from the number of the first of them. */
double ddp_augment_share(const struct ddp_augment *augment, int64_t epoch, int64_t first);

/* Adds to each image, times its share, what is left of the one before; the last is before the
 * first.
 *   x  (count, sample_values) f32
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_augment_mix(double share, const struct ddp_dataset_info *info, size_t count,
                                float *x);

#endif

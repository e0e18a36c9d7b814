/* SPDX-License-Identifier: MIT
 *
 * Pixels of one byte: their mean and deviation, from exact integer sums, so the same on every
 * machine, and (pixel/255 - mean) / deviation as a table of 256 floats. */
#ifndef DDP_DATA_PIXELS_H
#define DDP_DATA_PIXELS_H

#include "data/dataset.h"

struct ddp_pixel_sums {
    uint64_t count, sum, squares;
};

void ddp_pixels_add(struct ddp_pixel_sums *sums, const unsigned char *pixels, size_t count);

/* Mean and deviation of pixel/255. Of one colour only: a deviation of 1, nothing is to scale. */
void ddp_pixels_moments(const struct ddp_pixel_sums *sums, double *mean, double *std);

/* Takes mean and deviation from the training set, and makes a table for each channel of what the
 * 256 values become. */
void ddp_pixels_set_scale(struct ddp_dataset_info *info, const struct ddp_dataset_info *train,
                          float (*tables)[256]);

/* x[i] = table[pixels[i]] */
void ddp_pixels_scale(float *x, const unsigned char *pixels, size_t count, const float *table);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What is kept of the training data with the weights, so that new samples are treated as they were:
 * JSON in one line. A table's is in table_schema.h. Readers take NULL for a text that says nothing.
 */
#ifndef DDP_DATA_DESCRIBE_H
#define DDP_DATA_DESCRIBE_H

#include "data/dataset.h"

/* Describes a set.
 *   text [out]  freed with free(); NULL: there is nothing to say
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_dataset_describe(const struct ddp_dataset_info *info, char **text);

/* How labels that are numbers were scaled; false: they were not. */
bool ddp_dataset_label_scale(const char *text, double *mean, double *std);

/* The mean and deviation of pixels, for the channels that `info` has; false: they are not known. */
bool ddp_dataset_pixel_scale(const char *text, struct ddp_dataset_info *info);

/* The size that images had; false: it is not known. */
bool ddp_dataset_image_size(const char *text, int64_t *height, int64_t *width);

/* The ddp_tokenizer_hash() of the tokenizer; 0: it is not known. */
uint64_t ddp_dataset_tokenizer(const char *text);

/* The name of each of so many classes.
 *   names [out]  one allocation, freed with free(); NULL: they have none
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_dataset_class_names(const char *text, int64_t count, char ***names);

#endif

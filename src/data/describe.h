/* SPDX-License-Identifier: MIT
 *
 * What is kept of the training data with the weights, so that new samples are treated as they were:
 * JSON in one line. A table's is in table_schema.h. */
#ifndef DDP_DATA_DESCRIBE_H
#define DDP_DATA_DESCRIBE_H

#include "data/dataset.h"

/* Describes a set.
 *   text [out]  freed with free(); NULL: there is nothing to say
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_dataset_describe(const struct ddp_dataset_info *info, char **text);

/* How labels that are numbers were scaled, from such a text, or NULL; false: they were not. */
bool ddp_dataset_label_scale(const char *text, double *mean, double *std);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Questions with answers to choose from, for evaluation: lines of {"prompt": "...", "choices":
 * ["...", ...], "answer": N}. The model chooses the answer that is most probable after the prompt.
 * Each answer, with its prompt, is a sequence of a pair in a row of T tokens, as in pairs.h; an
 * answer without a partner is paired with itself. */
#ifndef DDP_DATA_CHOICES_H
#define DDP_DATA_CHOICES_H

#include "data/dataset.h"

/* Whether the first line of a file has choices; says nothing. */
bool ddp_choices_recognise(const char *path);

/*   path           JSON lines
 *   dataset [out]  NULL before; what was made is closed by the caller, also after a failure
 * DDP_ERR_FORMAT names file and line; DDP_ERR_INVALID: a sequence is too long, or a token is not in
 * the vocabulary; DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_choices_open(ddp_dataset **dataset, const char *path,
                                 const struct ddp_dataset_options *options, int64_t class_count);

/* One number for each sequence, to be filled in: the logarithm of the answer's probability.
 *   count [out]  of them
 * NULL: the dataset has no choices. */
float *ddp_choices_scores(const ddp_dataset *dataset, int64_t *count);

/* Takes the numbers of a row.
 *   roles, values  (T) its second plane of labels, and what stands at first positions */
void ddp_choices_take(const ddp_dataset *dataset, int64_t row, const int32_t *roles,
                      const float *values);

/* What follows from all of them. */
struct ddp_choices_result {
    int64_t questions;
    double accuracy; /* share of questions whose right answer has the largest number; of equals the
                          first counts */
    double normalized; /* ... the largest number for each byte of the answer */
    double loss;       /* mean of minus the number of the right answer */
};
void ddp_choices_result(const ddp_dataset *dataset, struct ddp_choices_result *result);

#endif

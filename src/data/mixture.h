/* SPDX-License-Identifier: MIT
 *
 * Several sets of tokens as one, by weights: --data a.jsonl:2,b.jsonl:1. Of set i, with n(i)
 * samples and the weight w(i), an epoch has round(w(i) * M) samples, where M is the largest of
 * n(j) / w(j): that set comes once, and samples of the others are repeated, all in turn. The sets
 * follow one another; it is the sampler that mixes them. */
#ifndef DDP_DATA_MIXTURE_H
#define DDP_DATA_MIXTURE_H

#include "data/dataset.h"

#include <limits.h>

#define DDP_MIXTURE_PARTS 64

/* What --data says. */
struct ddp_mixture {
    char text[PATH_MAX];
    int count;
    const char *paths[DDP_MIXTURE_PARTS];
    double weights[DDP_MIXTURE_PARTS]; /* 1 where none is given */
};

/* False: a path like any other, because it has no weight or is the name of a file. */
bool ddp_mixture_read(struct ddp_mixture *mixture, const char *path);

/* Opens all of them, each as ddp_dataset_open() does, with a test set of its own, too, unless --val
 * names one for all.
 * DDP_ERR_INVALID also: weights out of range, data that are no tokens or of different kinds, or
 * preferences. */
enum ddp_status ddp_mixture_open(const struct ddp_mixture *mixture, const char *source,
                                 const struct ddp_dataset_options *options, ddp_dataset **train,
                                 ddp_dataset **test);

#endif

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

/* False: a path like any other, because it has no weight or is the name of a file. Weights out of
 * range become 0. */
bool ddp_mixture_read(struct ddp_mixture *mixture, const char *path);

/* Makes one set of several, at most DDP_MIXTURE_PARTS.
 *   parts         its own from now on, also after a failure
 *   weights       NULL: each sample comes once
 *   result [out]  NULL before; what was made is closed by the caller, also after a failure
 * DDP_ERR_INVALID: weights too far apart, or data that are no tokens or of different kinds. */
enum ddp_status ddp_mixture_join(ddp_dataset **result, ddp_dataset *const *parts, int count,
                                 const char *path, const double *weights);

#endif

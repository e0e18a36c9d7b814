/* SPDX-License-Identifier: MIT
 *
 * The ways to train that are compared. All use one global batch. Those with as many shards end in
 * the same weights, bit for bit; the first of them has one worker, and is their baseline. */
#ifndef DDP_REPORTER_VARIANTS_H
#define DDP_REPORTER_VARIANTS_H

#include "reporter/settings.h"

#define VARIANTS 64

struct variant {
    const char *mode;      /* as of trainer --mode */
    int64_t units, shards; /* workers or replicas; shards of the global batch, of all of them */
    int baseline;          /* the index of its baseline; its own: it is one */
    char name[48];         /* "DDP 2 x 4": two units run four shards each */
};

/* Fills in the variants and returns their number; 0: the numbers of workers do not fit, which is
 * logged. */
int variants_make(struct variant variants[VARIANTS], const struct settings *settings,
                  int64_t global_batch);

#endif

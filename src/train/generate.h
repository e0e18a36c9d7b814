/* SPDX-License-Identifier: MIT
 *
 * Text from a trained gpt2: one token after another, each drawn from what the model expects next.
 */
#ifndef DDP_TRAIN_GENERATE_H
#define DDP_TRAIN_GENERATE_H

#include "device/device.h"
#include "model/model.h"

typedef struct ddp_generator ddp_generator;

struct ddp_generator_config {
    const struct ddp_model *model;
    const struct ddp_model_config *model_config; /* batch and dims are chosen here; copied */
    const float *weights;                        /* flat, host; borrowed */
    const char *device;
    int index; /* of that kind */
    int threads;
    double temperature; /* divides the logits; 0: always the likeliest token */
    int64_t top_k;      /* only the k likeliest are drawn from; 0: all */
    uint64_t seed;
};

enum ddp_status ddp_generator_create(ddp_generator **generator,
                                     const struct ddp_generator_config *config);
void ddp_generator_destroy(ddp_generator *generator);

/* The token after these. The same seed, tokens and place give the same token.
 *   tokens  count of them, at least one; the last `context` are read */
enum ddp_status ddp_generator_next(ddp_generator *generator, const int32_t *tokens, int64_t count,
                                   int32_t *next);

/* Draws from the softmax of logits / temperature, of the k largest only (ties: the first).
 *   uniform  in [0, 1): which one
 *   order    room for `count` numbers */
int32_t ddp_generator_draw(const float *logits, int64_t count, double temperature, int64_t top_k,
                           double uniform, int32_t *order);

#endif

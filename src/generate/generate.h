/* SPDX-License-Identifier: MIT
 *
 * Text from a trained language model: one token after another, each drawn from what the model
 * expects next. Several continuations of a prompt are one batch. Keys and values of the tokens so
 * far are kept: a token costs one position of the network.
 *
 * The model distinguishes `context` positions. When they are all taken, the newer half of the
 * tokens, as the first positions, is what the next tokens are made from; and so on. */
#ifndef DDP_GENERATE_GENERATE_H
#define DDP_GENERATE_GENERATE_H

#include "device/device.h"
#include "mode/frozen.h"
#include "model/model.h"

typedef struct ddp_generator ddp_generator;

struct ddp_generator_config {
    const struct ddp_model *model;
    const struct ddp_model_config *model_config; /* batch and dims are chosen here; copied */
    ddp_device *device;                          /* borrowed */
    const float *weights;                        /* flat, on the device; borrowed */
    const struct ddp_frozen *frozen;             /* its frozen parameters; NULL: none; borrowed */
    int64_t samples;      /* at once; a sample's text does not depend on how many there are */
    int64_t prompt_count; /* tokens, at least one; the last `context` are read */
    int64_t length;       /* tokens that are added to them at most */
    double temperature;   /* divides the logits; 0: always the likeliest token */
    int64_t top_k;        /* only the k likeliest are drawn from; 0: all */
    uint64_t seed;        /* with it, the sample's number and its tokens, the text is given */
};

/* Allocates what all tokens need. */
enum ddp_status ddp_generator_create(ddp_generator **generator,
                                     const struct ddp_generator_config *config);
void ddp_generator_destroy(ddp_generator *generator);

/* All samples begin, or begin again, with the prompt. */
void ddp_generator_begin(ddp_generator *generator, const int32_t *prompt);

/* One more token for each sample, at most `length` times. DDP_ERR_FORMAT, without a message: the
 * weights give a number that is not finite. */
enum ddp_status ddp_generator_next(ddp_generator *generator);

/* No more is wanted of this sample: what it has from now on means nothing. */
void ddp_generator_end(ddp_generator *generator, int64_t sample);

/* Prompt and text of a sample, and how many tokens all of them have. */
const int32_t *ddp_generator_tokens(const ddp_generator *generator, int64_t sample);
int64_t ddp_generator_count(const ddp_generator *generator);

/* What the newest token of a sample was drawn from, one for each token of the vocabulary. */
const float *ddp_generator_logits(const ddp_generator *generator, int64_t sample);

/* Draws from the softmax of logits / temperature, of the k largest only (ties: the first).
 *   uniform  in [0, 1): which one
 *   order    room for `count` numbers */
int32_t ddp_generator_draw(const float *logits, int64_t count, double temperature, int64_t top_k,
                           double uniform, int32_t *order);

#endif

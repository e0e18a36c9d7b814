/* SPDX-License-Identifier: MIT
 *
 * --load: the file of weights that it means, and what follows from the model in it. */
#ifndef DDP_PLAN_LOAD_H
#define DDP_PLAN_LOAD_H

#include "plan/options.h"
#include "weights/hf_llama.h"
#include "weights/peft.h"

struct ddp_load {
    char *file;                    /* of weights; NULL: no --load */
    const struct ddp_model *model; /* NULL: the file does not say */
    struct ddp_model_config config;
    char *data; /* the description of what it was trained on; NULL: the file does not say */
    /* Of a Llama-type model in a directory, or in a --config; else zeros. */
    char *directory; /* with config.json and weights; or a GGUF file, which has both */
    bool gguf;
    struct ddp_hf_llama hf;
    uint8_t *blocks; /* of adapters' base, as struct ddp_lora has `each`; NULL: as --frozen-dtype */
    /* To it: PEFT's directory, a GGUF file, a checkpoint or checkpoints'; NULL: none. */
    char *adapters;
    char *saved; /* their file, where it is one of ours */
    struct ddp_peft peft;
};

/* Finds the weights that --load names: a file, a checkpoint, the newest whole checkpoint of a
 * directory, or a Hugging Face model. ddp_load_open() also reads which model they belong to.
 *   load [out]  closed with ddp_load_close(), even after a failure
 *   tell        warn of damaged checkpoints that are skipped: one rank does
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_load_find(struct ddp_load *load, const struct ddp_train_options *options,
                              bool tell);
enum ddp_status ddp_load_open(struct ddp_load *load, const struct ddp_train_options *options,
                              bool tell);
void ddp_load_close(struct ddp_load *load);

/* Chooses the model if --model is not given: that of the weights, gpt2 with --config or if the data
 * are tokens, else the default. DDP_ERR_INVALID: an option contradicts the weights. */
enum ddp_status ddp_load_choose_model(const struct ddp_load *load,
                                      struct ddp_train_options *options);

/* Completes a config for the data with the model of the weights.
 *   where  the data come from, for messages
 * DDP_ERR_INVALID: the weights are those of a model for other samples. */
enum ddp_status ddp_load_apply(const struct ddp_load *load, const struct ddp_train_options *options,
                               struct ddp_model_config *config, const char *where);

/* Names the file, if --load named its directory; says if the head for so many classes is new. */
void ddp_load_print(const struct ddp_load *load, const struct ddp_train_options *options,
                    int64_t classes, FILE *out);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What is particular about encoders of sentences: their vocabulary, and what they can export. */
#include "config.h"

#include "plan/planned.h"

#include "core/log.h"
#include "core/write.h"
#include "data/data_names.h"
#include "plan/weights.h"
#include "weights/hf_bert.h"
#include "weights/peft.h"

#include <stdlib.h>
#include <string.h>

enum ddp_status ddp_planned_open_wordpiece(struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const char *file = planned->load.file, *slash = file ? strrchr(file, '/') : NULL;
    if (options->tokenizer)
        return ddp_wordpiece_open(&planned->wordpiece, options->tokenizer);
    char *directory = slash ? strndup(file, (size_t)(slash - file)) : strdup(".");
    if (!directory)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status;
    if (file &&
        (ddp_path_is_in(directory, "tokenizer.json") || ddp_path_is_in(directory, "vocab.txt")))
        status = ddp_wordpiece_open(&planned->wordpiece, directory);
    else
        status = ddp_fail(DDP_ERR_INVALID,
                          "the model bert reads texts by a vocabulary of WordPiece, and there is "
                          "none%s%s: name a vocab.txt or tokenizer.json with --tokenizer",
                          file ? " beside " : "", file ? file : "");
    free(directory);
    return status;
}

bool ddp_planned_embeds(const struct ddp_planned *planned)
{
    const struct ddp_load *load = &planned->load;
    return load->model == &ddp_model_bert && ddp_bert_contrasts(&load->config);
}

int64_t ddp_planned_unit_width(const struct ddp_planned *planned)
{
    const struct ddp_model_config *config = &planned->model_config;
    if (planned->plan.model != &ddp_model_bert || !ddp_bert_contrasts(config))
        return 0;
    const struct ddp_bert *bert = ddp_bert_in(config);
    return bert->normalizes ? bert->channels : 0;
}

enum ddp_status ddp_planned_check_bert(const struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const bool lora = ddp_train_given(options, "lora") || planned->load.adapters;
    const char *part = options->export_dtype                               ? "dtype"
                       : options->shard_bytes > 0                          ? "shard"
                       : options->export_format                            ? "format"
                       : options->export_path && options->export_type >= 0 ? "type"
                                                                           : NULL;
    if (options->config)
        return ddp_fail(DDP_ERR_INVALID, "--config belongs to the models gpt2 and llama, and the "
                                         "model is bert: load its directory, or choose a --size");
    if (options->vocab_size)
        return ddp_fail(DDP_ERR_INVALID,
                        "--vocab-size: the vocabulary of bert is that of --tokenizer");
    if (part)
        return ddp_fail(DDP_ERR_INVALID,
                        "--export: %s: a bert is exported as a directory of Hugging Face with one "
                        "file of float32",
                        part);
    if (options->merge && !lora)
        return ddp_fail(DDP_ERR_INVALID,
                        "--export: merge: there are no adapters: it goes with --lora "
                        "or --adapters");
    if (!options->export_path || options->plan || planned->plan.rank != 0)
        return DDP_OK;
    return lora && !options->merge ? ddp_peft_save_check(options->export_path)
                                   : ddp_hf_bert_export_check(options->export_path);
}

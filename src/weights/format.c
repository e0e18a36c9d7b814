/* SPDX-License-Identifier: MIT
 *
 * See format.h. */
#include "config.h"

#include "weights/format.h"

#include "core/log.h"
#include "core/text.h"

#include <string.h>

/* The last one reads what no other does. */
static const struct ddp_weight_format *const formats[] = {
    &ddp_format_hf_gpt2, &ddp_format_llmc,    &ddp_format_llmc_bf16,
    &ddp_format_gguf,    &ddp_format_hf_bert, &ddp_format_safetensors};

#define FORMATS (sizeof formats / sizeof formats[0])

const struct ddp_weight_format *ddp_weight_format_of(const char *path)
{
    size_t i = 0;
    while (!formats[i]->is || !formats[i]->is(path))
        i++;
    return formats[i];
}

const struct ddp_weight_format *ddp_weight_format_named(const char *name)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i]->name && strcmp(formats[i]->name, name) == 0)
            return formats[i];
    return NULL;
}

enum ddp_status ddp_weight_format_choose(const struct ddp_weight_format **format, const char *path)
{
    for (size_t i = 0; !*format && i < FORMATS; i++)
        if (formats[i]->suffix && ddp_text_ends_with(path, formats[i]->suffix))
            *format = formats[i];
    return *format ? DDP_OK
                   : ddp_fail(DDP_ERR_INVALID,
                              "--export %s: name the format, as in --export PATH,format=hf, or end "
                              "the name in .safetensors (Hugging Face) or .bin (llm.c)",
                              path);
}

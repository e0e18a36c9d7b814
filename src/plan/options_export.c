/* SPDX-License-Identifier: MIT
 *
 * The value of --export: a path, and what is written there. */
#include "config.h"

#include "plan/options.h"

#include "core/parse.h"
#include "core/text.h"
#include "weights/format.h"
#include "weights/gguf.h"

#include <stdio.h>
#include <string.h>

/* One word after the path of --export; false: it is something else. */
static bool read_export_word(struct ddp_train_options *options, const char *word)
{
    const char *value = strchr(word, '=');
    const int name = value ? (int)(value++ - word) : 0;
    if (strcmp(word, "merge") == 0)
        return options->merge = true;
    if (name == 5 && strncmp(word, "shard", 5) == 0)
        return ddp_parse_bytes(value, &options->shard_bytes);
    if (name == 6 && strncmp(word, "format", 6) == 0)
        return (options->export_format = ddp_weight_format_named(value));
    if (name == 4 && strncmp(word, "type", 4) == 0)
        return (options->export_type = ddp_gguf_type_named(value)) >= 0;
    for (int i = 0; name == 5 && strncmp(word, "dtype", 5) == 0 && ddp_file_dtype_names[i]; i++)
        if (strcmp(ddp_file_dtype_names[i], value) == 0) {
            options->export_dtype = i;
            return true;
        }
    return false;
}

/* "tuned,dtype=bf16,shard=5G,merge" */
const char *ddp_train_read_export(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    static char message[256];
    if (!*value || *value == ',' || strlen(value) >= sizeof options->export_text)
        return "must begin with the path of what is written";
    strcpy(options->export_text, value);
    options->export_path = options->export_text;
    options->merge = false;
    options->shard_bytes = options->export_dtype = 0;
    options->export_format = NULL;
    options->export_type = -1;
    char *rest = strchr(options->export_text, ',');
    if (rest)
        *rest++ = '\0';
    for (char *word; (word = strsep(&rest, ","));)
        if (!read_export_word(options, word)) {
            snprintf(message, sizeof message,
                     "%.60s: what follows the path must be format=hf, llmc, llmc-bf16 or gguf, "
                     "type=f32, f16, bf16, q8_0 or q4_0 (GGUF), dtype=fp32 or bf16, shard=SIZE "
                     "such as 5G or 500M, or merge",
                     word);
            return message;
        }
    if (!options->export_format && ddp_text_ends_with(options->export_path, ".gguf"))
        options->export_format = &ddp_format_gguf;
    return NULL;
}

/* "resnet18.safetensors,frozen" */
const char *ddp_train_read_load(void *destination, const char *value)
{
    static const char frozen[] = ",frozen";
    struct ddp_train_options *options = destination;
    const size_t length = strlen(value), end = strlen(frozen);
    if (!*value)
        return "must be the path of what is read";
    options->load = value;
    options->load_frozen = length > end && strcmp(value + length - end, frozen) == 0;
    if (!options->load_frozen)
        return NULL;
    if (length - end >= sizeof options->load_text)
        return "is too long";
    snprintf(options->load_text, sizeof options->load_text, "%.*s", (int)(length - end), value);
    options->load = options->load_text;
    return NULL;
}

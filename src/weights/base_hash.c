/* SPDX-License-Identifier: MIT
 *
 * The hash by which adapters know their base; see peft.h. */
#include "config.h"

#include "core/bf16.h"
#include "core/hash.h"
#include "core/text.h"
#include "weights/bnb.h"
#include "weights/gguf.h"
#include "weights/peft.h"
#include "weights/safetensors_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES 1024 /* of a tensor */

/* Of a tensor, by its name, which files have with and without what stands before it, and by its
 * first values, in bf16: files of float32 and of bf16 are the same base. */
struct beginning {
    char name[128];
    uint16_t values[VALUES];
};

static const char *bare_name(const char *name)
{
    return strncmp(name, "model.", 6) == 0  ? name + 6
           : strncmp(name, "bert.", 5) == 0 ? name + 5
                                            : name;
}

/* An embedding or a vector, which are numbers in quantised bases too; not what some files have and
 * others leave out. */
static bool is_told_by(const struct ddp_safetensor *tensor)
{
    size_t stem;
    return (tensor->dim_count == 1 || strstr(tensor->name, "embed")) &&
           strcmp(tensor->dtype, "I64") != 0 && !ddp_text_ends_with(tensor->name, "inv_freq") &&
           !ddp_bnb_belongs(tensor->name, &stem);
}

static void add_beginning(uint64_t *sum, const char *name, const float *values, size_t count)
{
    struct beginning beginning = {0};
    snprintf(beginning.name, sizeof beginning.name, "%s", name);
    for (size_t i = 0; i < count; i++)
        beginning.values[i] = ddp_bf16_of(values[i]);
    *sum += ddp_hash(&beginning, sizeof beginning);
}

/* false: its values cannot be read. */
static bool add_tensor(uint64_t *sum, const struct ddp_safetensor *tensor)
{
    float values[VALUES];
    char raw[sizeof values];
    if (!is_told_by(tensor))
        return true;
    const size_t size = strcmp(tensor->dtype, "F32") == 0 ? sizeof(float) : sizeof(uint16_t);
    const size_t held = tensor->bytes / size, count = held < VALUES ? held : VALUES;
    if (ddp_safetensors_read(tensor, 0, raw, count * size) != DDP_OK ||
        !ddp_hf_values_convert(values, raw, tensor->dtype, count))
        return false;
    add_beginning(sum, bare_name(tensor->name), values, count);
    return true;
}

/* Of GGUF's, whose embeddings may be quantised, the vectors, which are float32 in all of them. */
static bool add_vector(uint64_t *sum, const struct ddp_gguf *gguf,
                       const struct ddp_gguf_tensor *tensor)
{
    float values[VALUES];
    if (tensor->dim_count != 1 || tensor->type != DDP_GGUF_F32 ||
        strcmp(tensor->name, DDP_GGUF_ROPE_FACTORS) == 0)
        return true;
    const size_t held = (size_t)tensor->dims[0], count = held < VALUES ? held : VALUES;
    if (ddp_gguf_read_bytes(gguf, tensor, 0, values, count * sizeof *values) != DDP_OK)
        return false;
    add_beginning(sum, tensor->name, values, count);
    return true;
}

static void gguf_hash(char text[DDP_PEFT_BASE_HASH], const char *base)
{
    struct ddp_gguf gguf;
    uint64_t sum = 0;
    bool known = ddp_gguf_open(&gguf, base) == DDP_OK;
    for (size_t i = 0; known && i < gguf.count; i++)
        known = add_vector(&sum, &gguf, &gguf.tensors[i]);
    ddp_gguf_close(&gguf);
    if (known)
        snprintf(text, DDP_PEFT_BASE_HASH, "g%015" PRIx64, sum >> 4);
}

void ddp_peft_base_hash(char text[DDP_PEFT_BASE_HASH], const char *base)
{
    text[0] = '\0';
    if (ddp_gguf_is(base)) {
        gguf_hash(text, base);
        return;
    }
    ddp_safetensors *file = NULL;
    char *path = NULL;
    uint64_t sum = 0;
    bool known = ddp_hf_find_weights(&path, base) == DDP_OK &&
                 (path || ddp_text_ends_with(base, ".safetensors")) &&
                 ddp_safetensors_open_model_header(&file, path ? path : base) == DDP_OK;
    for (size_t i = 0; known && i < ddp_safetensors_count(file); i++)
        known = add_tensor(&sum, ddp_safetensors_at(file, i));
    ddp_safetensors_close(file);
    free(path);
    if (known)
        snprintf(text, DDP_PEFT_BASE_HASH, "%016" PRIx64, sum);
}

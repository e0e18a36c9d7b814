/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a GGUF file: its header, the model that its keys describe, its tokenizer, and the
 * values of its tensors. */
#include "config.h"

#include "data/text/tokenizer.h"
#include "tests/lib/fuzz.h"
#include "tests/weights/hf_formula.h"
#include "weights/gguf.h"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#define VALUES (1 << 20) /* of a model that is read */

/* All parameters, in memory of the formula's. */
static bool accepts_gpt2(const char *path)
{
    static const struct ddp_llama none;
    struct ddp_gguf_gpt2 gpt2;
    if (ddp_gguf_read_gpt2(&gpt2, path) != DDP_OK || gpt2.shape.layers > 4 ||
        gpt2.shape.channels > 64 || gpt2.shape.vocabulary > 4096 || gpt2.shape.context > 4096)
        return false;
    struct ddp_hf_values values[DDP_GPT2_TENSORS * 4];
    char names[DDP_GPT2_TENSORS * 4][DDP_GPT2_NAME];
    size_t count = 0;
    for (int i = 0; i < DDP_GPT2_TENSORS; i++)
        for (int64_t l = 0; l < (ddp_gpt2_tensors[i].of_layer ? gpt2.shape.layers : 1); l++) {
            struct ddp_hf_values *value = &values[count];
            *value = (struct ddp_hf_values){.dtype = DDP_F32};
            value->name = ddp_gpt2_tensor_name(names[count++], &ddp_gpt2_tensors[i], l);
            value->dim_count = ddp_gpt2_tensor_dims(value->dims, &ddp_gpt2_tensors[i], &gpt2.shape);
            value->dims[1] = value->dim_count == 2 ? value->dims[1] : 0;
            value->memory = calloc((size_t)(value->dims[0] * (value->dims[1] + 1)), sizeof(float));
            assert(value->memory);
        }
    const enum ddp_status status = ddp_gguf_load_each(path, &none, values, count);
    for (size_t i = 0; i < count; i++)
        free(values[i].memory);
    return status == DDP_OK;
}

/* Of a base that has the file's architecture by chance. */
static bool accepts_adapters(const char *path)
{
    const struct ddp_llama base = {.family = DDP_LLAMA_LLAMA, .layers = 1, .head_size = 2};
    float memory[2][64];
    struct ddp_lora lora;
    struct ddp_hf_values values[2] = {{.name = "model.layers.0.self_attn.q_proj.lora_A.weight"},
                                      {.name = "model.layers.0.self_attn.q_proj.lora_B.weight"}};
    if (ddp_gguf_read_adapters(&lora, path, &base) != DDP_OK || lora.rank > 8)
        return false;
    assert(lora.targets > 0 && ddp_lora_scale(&lora) >= 0);
    for (int i = 0; i < 2; i++) {
        values[i].dim_count = 2;
        values[i].dims[0] = i ? 4 : lora.rank;
        values[i].dims[1] = i ? lora.rank : 4;
        values[i].dtype = DDP_F32;
        values[i].memory = memory[i];
    }
    return ddp_gguf_load_each(path, &base, values, 2) == DDP_OK;
}

static bool accepts(const char *path)
{
    if (ddp_gguf_is_adapters(path))
        return accepts_adapters(path);
    if (ddp_gguf_is_gpt2(path))
        return accepts_gpt2(path);
    struct ddp_hf_llama config;
    struct ddp_hf_llama_files files;
    struct formula formula;
    int64_t count, adapters;
    if (ddp_gguf_read(&config, path) != DDP_OK || ddp_gguf_check(path, &config, &files) != DDP_OK ||
        ddp_hf_llama_count(&config, 1, &count, &adapters) != DDP_OK || count > VALUES)
        return false;
    assert(files.bytes > 0 && files.dtype);
    formula_make(&formula, &config, DDP_F32, false);
    const enum ddp_status status = ddp_gguf_load(path, &config, formula.values, formula.count);
    uint8_t *types = calloc((size_t)config.shape.layers + 1, DDP_LLAMA_LINEARS);
    assert(types && ddp_gguf_linear_types(path, &config, types) == DDP_OK);
    free(types);
    for (size_t i = 0; i < formula.count; i++) /* in blocks, some as they lie */
        if (formula.values[i].dim_count == 2 && formula.values[i].dims[1] % 32 == 0)
            formula.values[i].dtype = i % 2 ? DDP_Q8_0 : DDP_Q4_0;
    assert(ddp_gguf_load(path, &config, formula.values, formula.count) == status);
    formula_free(&formula);
    return status == DDP_OK;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char path[64];
    ddp_tokenizer *tokenizer = NULL;
    const int fd = memfd_create("gguf", 0);
    assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const bool accepted = accepts(path);
    if (ddp_gguf_is(path) && ddp_tokenizer_open(&tokenizer, path) == DDP_OK)
        ddp_tokenizer_close(tokenizer);
    close(fd);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}

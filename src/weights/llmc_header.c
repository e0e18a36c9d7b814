/* SPDX-License-Identifier: MIT
 *
 * The header of llm.c's model files: every word of it is checked, and the size of the file. */
#include "config.h"

#include "weights/interchange.h"

#include "core/log.h"
#include "core/memory.h"
#include "weights/llmc_words.h"

#include <inttypes.h>
#include <string.h>

#define LARGEST_FIELD (1 << 24)

static const char *const field_names[DDP_LLMC_USED_WORDS] = {
    [DDP_LLMC_CONTEXT] = "maxT",      [DDP_LLMC_VOCABULARY] = "vocab_size",
    [DDP_LLMC_LAYERS] = "num_layers", [DDP_LLMC_HEADS] = "num_heads",
    [DDP_LLMC_CHANNELS] = "channels", [DDP_LLMC_PADDED] = "padded_vocab_size",
};

bool ddp_llmc_model_is(const void *bytes, size_t size)
{
    uint32_t magic = 0;
    if (size < sizeof magic)
        return false;
    memcpy(&magic, bytes, sizeof magic);
    return magic == DDP_LLMC_MODEL_MAGIC || magic == __builtin_bswap32(DDP_LLMC_MODEL_MAGIC);
}

static enum ddp_status check_words(const int32_t *words, const char *name)
{
    if ((uint32_t)words[DDP_LLMC_MAGIC] == __builtin_bswap32(DDP_LLMC_MODEL_MAGIC))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: its bytes are in big-endian order; llm.c's files are little-endian",
                        name);
    if (words[DDP_LLMC_MAGIC] != DDP_LLMC_MODEL_MAGIC)
        return ddp_fail(DDP_ERR_FORMAT, "%s: not a model file of llm.c: its magic is %d, not %d",
                        name, words[DDP_LLMC_MAGIC], DDP_LLMC_MODEL_MAGIC);
    if (words[DDP_LLMC_VERSION] != DDP_LLMC_F32 && words[DDP_LLMC_VERSION] != DDP_LLMC_BF16)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: version %d of llm.c's model files; %d (float32) and %d (bfloat16) can "
                        "be read",
                        name, words[DDP_LLMC_VERSION], DDP_LLMC_F32, DDP_LLMC_BF16);
    for (int i = DDP_LLMC_CONTEXT; i < DDP_LLMC_USED_WORDS; i++)
        if (words[i] < 1 || words[i] > LARGEST_FIELD)
            return ddp_fail(DDP_ERR_FORMAT, "%s: its %s is %d; 1 to %d are possible", name,
                            field_names[i], words[i], LARGEST_FIELD);
    for (int i = DDP_LLMC_USED_WORDS; i < DDP_LLMC_WORDS; i++)
        if (words[i] != 0)
            return ddp_fail(DDP_ERR_FORMAT, "%s: word %d of its header is %d, and not 0", name, i,
                            words[i]);
    if (words[DDP_LLMC_PADDED] < words[DDP_LLMC_VOCABULARY])
        return ddp_fail(DDP_ERR_FORMAT, "%s: its padded_vocab_size %d is below its vocab_size %d",
                        name, words[DDP_LLMC_PADDED], words[DDP_LLMC_VOCABULARY]);
    if (words[DDP_LLMC_CHANNELS] % words[DDP_LLMC_HEADS] != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: its channels %d are not a multiple of its num_heads %d", name,
                        words[DDP_LLMC_CHANNELS], words[DDP_LLMC_HEADS]);
    return DDP_OK;
}

/* Bytes that a file with this header has; false: more than fit. */
static bool file_size(const struct ddp_llmc_model *model, uint64_t *bytes)
{
    struct ddp_gpt2_shape shape = model->shape;
    size_t total = 0;
    shape.vocabulary = model->padded;
    for (int i = 0; i < DDP_GPT2_TENSORS; i++) {
        const struct ddp_gpt2_tensor *tensor = &ddp_gpt2_tensors[i];
        int64_t dims[2];
        size_t count = tensor->of_layer ? (size_t)shape.layers : 1;
        const int dim_count = ddp_gpt2_tensor_dims(dims, tensor, &shape);
        for (int d = 0; d < dim_count; d++)
            if (!ddp_size_multiply(count, (size_t)dims[d], &count))
                return false;
        if (!ddp_size_add(total, count, &total))
            return false;
    }
    if (!ddp_size_multiply(total, model->bf16 ? sizeof(uint16_t) : sizeof(float), &total) ||
        !ddp_size_add(total, DDP_LLMC_HEADER_BYTES, &total))
        return false;
    *bytes = total;
    return true;
}

enum ddp_status ddp_llmc_model_parse(struct ddp_llmc_model *model, const char *name,
                                     const void *bytes, size_t size, uint64_t file_bytes)
{
    int32_t words[DDP_LLMC_WORDS];
    uint64_t expected;
    if (size < sizeof words)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: truncated: %zu bytes are fewer than a header of llm.c has", name,
                        size);
    memcpy(words, bytes, sizeof words);
    enum ddp_status status = check_words(words, name);
    if (status != DDP_OK)
        return status;
    const struct ddp_llmc_model found = {
        .shape = {.layers = words[DDP_LLMC_LAYERS],
                  .heads = words[DDP_LLMC_HEADS],
                  .channels = words[DDP_LLMC_CHANNELS],
                  .vocabulary = words[DDP_LLMC_VOCABULARY],
                  .context = words[DDP_LLMC_CONTEXT]},
        .padded = words[DDP_LLMC_PADDED],
        .bf16 = words[DDP_LLMC_VERSION] == DDP_LLMC_BF16,
    };
    if (!file_size(&found, &expected))
        return ddp_fail(DDP_ERR_FORMAT, "%s: the sizes in its header are too large together", name);
    if (expected != file_bytes)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %s: it has %" PRIu64 " bytes, and its header asks for %" PRIu64, name,
                        file_bytes < expected ? "truncated" : "something follows the last tensor",
                        file_bytes, expected);
    *model = found;
    return DDP_OK;
}
